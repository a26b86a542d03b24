//! The files of jobs for machines that share no directory with this one: clients leave them here, and
//! task trackers fetch them, in calls (`corona.jt.deliver.files`).
//!
//! A client may write only below the id that it was given for its job, and only until it has submitted the
//! job. The directory is the service's own, so no path leads through a link of somebody else.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use corona_hadoop::protocols::job_files::JobFiles;
use corona_hadoop::rpc::{Caller, Fault};
use corona_hadoop::writables::{FilePiece, JobFileStatus};
use corona_mapreduce::JobId;
use corona_net::permits::Permits;

use super::Shared;
use super::access::{ACCESS, Access};
use super::shared_files::Wanted;

/// Bytes of one reply.
const MOST_PIECE_BYTES: usize = 1 << 20;
/// Files and directories of one job.
const MOST_ENTRIES: u64 = 10_000;
/// Names in a path below the directory of a job.
const MOST_DEPTH: usize = 64;
/// Bytes of a path.
const MOST_PATH_BYTES: usize = 4096;
/// Bytes of the file that those get who join.
const MOST_CLUSTER_BYTES: u64 = 256 << 10;
/// Jobs whose sizes are known without a look.
const MOST_SIZES: usize = 10_000;
/// Files of a job that are being made at a time, at most: a late duplicate of a call is one of so many.
const MOST_IDS: usize = 64;
/// Calls that work with files at a time, and how many of them may be of one user on one machine.
const MOST_CALLS: usize = 32;
const MOST_CALLS_OF_ONE: usize = 4;
/// What a file or directory takes beside its bytes.
const ENTRY_BYTES: u64 = 4096;
/// All files are counted again, when there seems to be no room, after this pause: jobs end meanwhile.
const COUNT_PAUSE: Duration = Duration::from_secs(10);

/// The directory of the files, and what is known of those that are being written.
#[derive(Debug)]
pub(super) struct Kept {
    directory: PathBuf,
    most: Bounds,
    jobs: Mutex<HashMap<JobId, Arc<Mutex<Left>>>>,
    all: Mutex<All>,
    /// Held while all files are counted.
    counting: Mutex<()>,
    calls: Arc<Permits<(String, IpAddr)>>,
}

/// How many bytes the files may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Those of one job.
    pub(super) of_job: u64,
    /// Those of all jobs.
    pub(super) of_all: u64,
}

/// What a job has left here.
#[derive(Debug, Default)]
struct Left {
    /// None until it is counted.
    size: Option<Size>,
    /// The ids of the last calls that made files.
    made: VecDeque<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    bytes: u64,
    entries: u64,
}

/// The files of all jobs.
#[derive(Debug, Default)]
struct All {
    /// Bytes of all that was there when they were counted, and of what came since.
    bytes: u64,
    counted: Option<Instant>,
}

/// A place in the directory of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    job: JobId,
    path: PathBuf,
}

impl Kept {
    /// The files below a directory, within these bounds.
    pub(super) fn new(directory: PathBuf, most: Bounds) -> Kept {
        let calls = Permits::new(MOST_CALLS, MOST_CALLS_OF_ONE);
        let (jobs, all, counting) = Default::default();
        Kept { directory, most, jobs, all, counting, calls }
    }

    /// The place that a path of a client means.
    fn place(&self, path: &str) -> Result<Place, Fault> {
        let refused = || Fault::io(format!("{:.200?} is no path of a file of a job", path));
        let mut parts = path.strip_prefix('/').ok_or_else(refused)?.split('/');
        let job: JobId = parts.next().and_then(|job| job.parse().ok()).ok_or_else(refused)?;
        let parts: Vec<&str> = parts.collect();
        let is_name = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains('\0');
        if path.len() > MOST_PATH_BYTES || parts.len() > MOST_DEPTH || !parts.iter().all(is_name) {
            return Err(refused());
        }
        let path =
            parts.iter().fold(self.directory.join(job.as_str()), |path, part| path.join(part));
        Ok(Place { job, path })
    }

    /// What is known of a job. A look at its files delays no other job.
    fn left(&self, job: &JobId) -> Arc<Mutex<Left>> {
        let mut jobs = locked(&self.jobs);
        if jobs.len() >= MOST_SIZES && !jobs.contains_key(job) {
            // Those of jobs that are being written to stay.
            jobs.retain(|_, left| Arc::strong_count(left) > 1);
        }
        jobs.entry(job.clone()).or_default().clone()
    }

    /// Adds to the size of a job, or refuses.
    fn grow(&self, job: &JobId, left: &mut Left, more: Size) -> Result<(), Fault> {
        let size = *left.size.get_or_insert_with(|| size_of(&self.directory.join(job.as_str())));
        let bytes = size.bytes.saturating_add(more.bytes);
        let entries = size.entries.saturating_add(more.entries);
        if bytes > self.most.of_job {
            let most = self.most.of_job;
            return Err(Fault::io(format!(
                "the files of {job} have more than {most} bytes (corona.jt.job.files.max.bytes)"
            )));
        }
        if entries > MOST_ENTRIES {
            return Err(Fault::io(format!("{job} has more than {MOST_ENTRIES} files")));
        }
        self.grow_all(more.taken())?;
        left.size = Some(Size { bytes, entries });
        Ok(())
    }

    /// Adds to the size of all files, or refuses.
    fn grow_all(&self, more: u64) -> Result<(), Fault> {
        let most = self.most.of_all;
        let is_due = {
            let mut all = locked(&self.all);
            all.bytes = all.bytes.saturating_add(more);
            let is_old = |at: Instant| at.elapsed() >= COUNT_PAUSE;
            if all.counted.is_some() && all.bytes <= most {
                return Ok(());
            }
            all.counted.is_none_or(is_old)
        };
        // One call counts, and delays nobody else.
        if is_due && let Ok(_counting) = self.counting.try_lock() {
            let before = locked(&self.all).bytes;
            let found = size_of(&self.directory).taken();
            let mut all = locked(&self.all);
            // What came meanwhile may be counted twice, until the next time.
            let meanwhile = all.bytes.saturating_sub(before).saturating_add(more);
            *all = All { bytes: found.saturating_add(meanwhile), counted: Some(Instant::now()) };
        }
        let mut all = locked(&self.all);
        if all.bytes <= most || all.counted.is_none() {
            return Ok(());
        }
        all.bytes = all.bytes.saturating_sub(more);
        Err(Fault::io(format!(
            "the files of all jobs have more than {most} bytes \
             (corona.jt.job.files.max.total.bytes); try again when jobs have ended"
        )))
    }

    fn status(&self, place: &Place) -> Result<Option<JobFileStatus>, Fault> {
        match fs::symlink_metadata(&place.path) {
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(place, &error)),
            Ok(found) => {
                let modified =
                    found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                let modified_ms =
                    modified.map_or(0, |at| i64::try_from(at.as_millis()).unwrap_or(0));
                let bytes = if found.is_dir() { 0 } else { found.len() };
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                Ok(Some(JobFileStatus { is_directory: found.is_dir(), bytes, modified_ms }))
            }
        }
    }

    fn read(&self, place: &Place, position: u64, most: usize) -> Result<FilePiece, Fault> {
        let read = || {
            let file = File::open(&place.path)?;
            let mut bytes = vec![0; most.min(MOST_PIECE_BYTES)];
            let mut filled = 0;
            while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match file.read_at(rest, position.saturating_add(filled as u64))? {
                    0 => break,
                    read => filled += read,
                }
            }
            bytes.truncate(filled);
            Ok(FilePiece { bytes })
        };
        read().map_err(|error| failed(place, &error))
    }

    fn create(&self, place: &Place, overwrite: bool, id: i64) -> Result<(), Fault> {
        let left = self.left(&place.job);
        let mut left = locked(&left);
        if left.made.contains(&id) {
            return Ok(());
        }
        self.grow(&place.job, &mut left, self.entries_of(place))?;
        left.made.truncate(MOST_IDS - 1);
        left.made.push_front(id);
        let create = || {
            if let Some(parent) = place.path.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut options = File::options();
            match overwrite {
                true => options.write(true).create(true).truncate(true),
                false => options.write(true).create_new(true),
            };
            options.open(&place.path).map(drop)
        };
        create().map_err(|error| failed(place, &error))
    }

    fn write(&self, place: &Place, position: u64, bytes: &[u8]) -> Result<(), Fault> {
        let open = || -> io::Result<(u64, File)> {
            let file = File::options().write(true).open(&place.path)?;
            Ok((file.metadata()?.len(), file))
        };
        let left = self.left(&place.job);
        let mut left = locked(&left);
        let (length, file) = open().map_err(|error| failed(place, &error))?;
        if position > length {
            return Err(Fault::io(format!(
                "a write at {position} of a file of {length} bytes: what is before is missing"
            )));
        }
        let more = position.saturating_add(bytes.len() as u64).saturating_sub(length);
        self.grow(&place.job, &mut left, Size { bytes: more, entries: 0 })?;
        file.write_all_at(bytes, position).map_err(|error| failed(place, &error))
    }

    fn rename(&self, from: &Place, to: &Place) -> Result<(), Fault> {
        if from.job != to.job {
            return Err(Fault::io("a file of a job stays with its job"));
        }
        if fs::symlink_metadata(&to.path).is_ok() {
            // A call that is made twice.
            if fs::symlink_metadata(&from.path).is_err_and(|error| is_missing(&error)) {
                return Ok(());
            }
            return Err(failed(to, &io::ErrorKind::AlreadyExists.into()));
        }
        match fs::rename(&from.path, &to.path) {
            // A call that is made twice.
            Err(error) if is_missing(&error) && to.path.exists() => Ok(()),
            renamed => renamed.map_err(|error| failed(from, &error)),
        }
    }

    /// What is made with a file or a directory: the directories above it that are missing, too.
    fn entries_of(&self, place: &Place) -> Size {
        let above = place.path.ancestors().take_while(|path| **path != *self.directory);
        let missing = above.filter(|path| fs::symlink_metadata(path).is_err()).count();
        Size { bytes: 0, entries: u64::try_from(missing).unwrap_or(u64::MAX).max(1) }
    }

    fn mkdirs(&self, place: &Place) -> Result<(), Fault> {
        let left = self.left(&place.job);
        self.grow(&place.job, &mut locked(&left), self.entries_of(place))?;
        fs::create_dir_all(&place.path).map_err(|error| failed(place, &error))
    }

    fn delete(&self, place: &Place) -> Result<bool, Fault> {
        let deleted = match fs::symlink_metadata(&place.path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&place.path),
            Ok(_) => fs::remove_file(&place.path),
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => {
                locked(&self.left(&place.job)).size = None;
                Ok(true)
            }
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(failed(place, &error)),
        }
    }
}

impl Size {
    /// The room that it takes, in bytes.
    fn taken(self) -> u64 {
        self.bytes.saturating_add(self.entries.saturating_mul(ENTRY_BYTES))
    }
}

/// What a panic leaves is bytes that are counted twice.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The size of what lies below a directory, however deep.
fn size_of(directory: &Path) -> Size {
    let (mut size, mut directories) = (Size::default(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            size.entries += 1;
            match entry.metadata() {
                Ok(found) if found.is_dir() => directories.push(entry.path()),
                Ok(found) => size.bytes += found.len(),
                Err(_) => {}
            }
        }
    }
    size
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// An error as clients know its class.
fn failed(place: &Place, error: &io::Error) -> Fault {
    let name = place.path.file_name().unwrap_or_default().to_string_lossy();
    let text = format!("{name} of {}: {error}", place.job);
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Fault::of("java.io.FileNotFoundException", text)
        }
        io::ErrorKind::AlreadyExists => {
            Fault::of("org.apache.hadoop.hdfs.protocol.FileAlreadyExistsException", text)
        }
        _ => Fault::io(text),
    }
}

impl Shared {
    fn kept(&self) -> Result<&std::sync::Arc<Kept>, Fault> {
        let off = "this job tracker does not deliver files of jobs (corona.jt.deliver.files)";
        self.kept_files.as_ref().ok_or_else(|| Fault::io(off))
    }

    /// Does something with a place that the caller may write: the id is the caller's, and its job is not
    /// submitted yet.
    async fn change_files<T: Send + 'static>(
        &self,
        caller: &Caller,
        path: &str,
        change: impl FnOnce(&Kept, Place) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let kept = self.kept()?.clone();
        let place = kept.place(path)?;
        let user = self.access.submitter(caller)?;
        if !self.store.may_prepare(&place.job, &user.name) {
            let text = format!("user {} may not write files of {} now", user.name, place.job);
            return Err(Fault::of(ACCESS, text));
        }
        kept.in_turn(caller, &user.name, move |kept| change(kept, place)).await
    }

    async fn look_at_file<T: Send + 'static>(
        &self,
        caller: &Caller,
        path: &str,
        look: impl FnOnce(&Kept, Place) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let user = Access::user(caller)?;
        let kept = self.kept()?.clone();
        let place = kept.place(path)?;
        // Nodes, and the daemons of the head, see all. Without certificates, users are what they claim.
        if let Some(user) = caller.peer.user()
            && self.store.owner(&place.job).as_deref() != Some(user)
        {
            let text = format!("user {user} may not read files of {}", place.job);
            return Err(Fault::of(ACCESS, text));
        }
        kept.in_turn(caller, &user.name, move |kept| look(kept, place)).await
    }
}

impl Kept {
    /// Works with files when it is the user's turn: one who asks much delays no other.
    async fn in_turn<T: Send + 'static>(
        self: Arc<Self>,
        caller: &Caller,
        user: &str,
        work: impl FnOnce(&Kept) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let turn = self.calls.take((user.to_owned(), caller.peer.ip())).await;
        blocking(move || {
            let _turn = turn;
            work(&self)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Fault::io("the work with the file was stopped")))
}

impl JobFiles for Shared {
    async fn status(&self, caller: &Caller, path: String) -> Result<Option<JobFileStatus>, Fault> {
        self.look_at_file(caller, &path, |kept, place| kept.status(&place)).await
    }

    async fn read(
        &self,
        caller: &Caller,
        path: String,
        position: i64,
        most: i32,
    ) -> Result<FilePiece, Fault> {
        let position = u64::try_from(position).unwrap_or(u64::MAX);
        let most = usize::try_from(most).unwrap_or(0);
        self.look_at_file(caller, &path, move |kept, place| kept.read(&place, position, most)).await
    }

    async fn create(
        &self,
        caller: &Caller,
        path: String,
        overwrite: bool,
        id: i64,
    ) -> Result<(), Fault> {
        let create = move |kept: &Kept, place| kept.create(&place, overwrite, id);
        self.change_files(caller, &path, create).await
    }

    async fn write(
        &self,
        caller: &Caller,
        path: String,
        position: i64,
        piece: FilePiece,
    ) -> Result<(), Fault> {
        let position = u64::try_from(position).unwrap_or(u64::MAX);
        let write = move |kept: &Kept, place| kept.write(&place, position, &piece.bytes);
        self.change_files(caller, &path, write).await
    }

    async fn rename(&self, caller: &Caller, from: String, to: String) -> Result<(), Fault> {
        let to = self.kept()?.place(&to)?;
        self.change_files(caller, &from, move |kept, from| kept.rename(&from, &to)).await
    }

    async fn mkdirs(&self, caller: &Caller, path: String) -> Result<(), Fault> {
        self.change_files(caller, &path, |kept, place| kept.mkdirs(&place)).await
    }

    async fn delete(&self, caller: &Caller, path: String) -> Result<bool, Fault> {
        self.change_files(caller, &path, |kept, place| kept.delete(&place)).await
    }

    async fn unseen(
        &self,
        caller: &Caller,
        marker: String,
        token: String,
        files: Vec<String>,
        lengths: Vec<i64>,
    ) -> Result<Option<String>, Fault> {
        self.access.submitter(caller)?;
        Shared::unseen(self, Wanted::new(marker, token, files, lengths)?).await
    }

    async fn cluster(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        let Some(path) = self.settings.cluster_file.clone() else { return Ok(None) };
        blocking(move || {
            let mut text = String::new();
            let read = File::open(&path).and_then(|file| {
                io::Read::read_to_string(&mut io::Read::take(file, MOST_CLUSTER_BYTES), &mut text)
            });
            let failed = |error| Fault::io(format!("corona.jt.cluster.file: {error}"));
            read.map(|_| Some(text)).map_err(failed)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(most_bytes: u64) -> (tempfile::TempDir, Kept) {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::new(dir.path().to_owned(), of_each(most_bytes));
        (dir, kept)
    }

    fn of_each(of_job: u64) -> Bounds {
        Bounds { of_job, of_all: u64::MAX }
    }

    const JOB: &str = "/job_202611210044.1_0001";

    #[test]
    fn paths_stay_below_the_directory_of_their_job() {
        let (dir, kept) = kept(1000);
        let place = kept.place(&format!("{JOB}/files/map.py")).unwrap();
        assert_eq!(place.path, dir.path().join(&JOB[1..]).join("files/map.py"));
        for wrong in [
            "",
            "/",
            "job_202611210044.1_0001/x",
            "/cluster",
            "/../x",
            "/job_202611210044.1_0001/../x",
            "/job_202611210044.1_0001/./x",
            "/job_202611210044.1_0001//x",
            "/job_202611210044.1_0001/a\0b",
        ] {
            assert!(kept.place(wrong).is_err(), "{wrong:?}");
        }
        assert!(kept.place(&format!("{JOB}{}", "/a".repeat(65))).is_err());
        assert!(kept.place(&format!("{JOB}/{}", "a".repeat(5000))).is_err());
    }

    #[test]
    fn files_are_written_piece_by_piece_and_read_back() {
        let (_dir, kept) = kept(1000);
        let place = |name: &str| kept.place(&format!("{JOB}/{name}")).unwrap();
        let file = place("a/b");
        assert_eq!(kept.status(&file).unwrap(), None);
        kept.create(&file, false, 1).unwrap();
        let refused = kept.create(&file, false, 2).unwrap_err().to_string();
        assert!(refused.contains("FileAlreadyExistsException"), "{refused}");
        kept.create(&file, true, 3).unwrap();
        kept.write(&file, 0, b"hello ").unwrap();
        // The call was made twice, and one of them arrives now.
        kept.create(&file, true, 3).unwrap();
        kept.write(&file, 6, b"world").unwrap();
        // A call whose reply was lost is made again.
        kept.write(&file, 6, b"world").unwrap();
        let refused = kept.write(&file, 12, b"x").unwrap_err().to_string();
        assert!(refused.contains("what is before is missing"), "{refused}");
        assert_eq!(kept.status(&file).unwrap().unwrap().bytes, 11);
        assert_eq!(kept.read(&file, 6, 100).unwrap().bytes, b"world");
        assert_eq!(kept.read(&file, 0, 5).unwrap().bytes, b"hello");
        assert_eq!(kept.read(&file, 50, 5).unwrap().bytes, b"");
        kept.rename(&file, &place("c")).unwrap();
        assert!(kept.rename(&place("c"), &place("c")).is_err());
        assert!(kept.status(&place("a")).unwrap().unwrap().is_directory);
        assert_eq!(kept.read(&place("c"), 0, 5).unwrap().bytes, b"hello");
        assert!(kept.delete(&kept.place(JOB).unwrap()).unwrap());
        assert!(!kept.delete(&kept.place(JOB).unwrap()).unwrap());
    }

    #[test]
    fn a_file_is_emptied_by_a_new_call_and_by_no_late_duplicate() {
        let (_dir, kept) = kept(1 << 20);
        let place = |name: &str| kept.place(&format!("{JOB}/{name}")).unwrap();
        let file = place("a");
        kept.create(&file, true, 7).unwrap();
        kept.write(&file, 0, b"whole").unwrap();
        // Other files of the job are made meanwhile.
        for other in 0..i64::try_from(MOST_IDS).unwrap() - 1 {
            kept.create(&place(&other.to_string()), true, 100 + other).unwrap();
        }
        kept.create(&file, true, 7).unwrap();
        assert_eq!(kept.read(&file, 0, 9).unwrap().bytes, b"whole");
        kept.create(&file, true, 8).unwrap();
        assert_eq!(kept.read(&file, 0, 9).unwrap().bytes, b"");
        assert_eq!(locked(&kept.left(&file.job)).made.len(), MOST_IDS);
    }

    #[test]
    fn all_jobs_together_have_a_bound_and_those_that_have_ended_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let of_all = 3 * ENTRY_BYTES;
        let most = Bounds { of_job: 1 << 20, of_all };
        let open = || Kept::new(dir.path().to_owned(), most);
        let kept = open();
        let (one, two) =
            (kept.place(JOB).unwrap(), kept.place("/job_202611210044.2_0001").unwrap());
        kept.mkdirs(&one).unwrap();
        let file = kept.place(&format!("{JOB}/a")).unwrap();
        kept.create(&file, false, 1).unwrap();
        kept.write(&file, 0, b"x").unwrap();
        for kept in [kept, open()] {
            let refused = kept.mkdirs(&two).unwrap_err().to_string();
            assert!(refused.contains("corona.jt.job.files.max.total.bytes"), "{refused}");
            assert_eq!(kept.read(&file, 0, 1).unwrap().bytes, b"x", "others go on");
        }
        // Its job ends, and the service removes it.
        fs::remove_dir_all(&one.path).unwrap();
        open().mkdirs(&two).unwrap();
    }

    #[test]
    fn a_job_has_a_bounded_number_of_bytes_and_files() {
        let (dir, kept) = kept(10);
        let file = kept.place(&format!("{JOB}/a")).unwrap();
        kept.create(&file, false, 1).unwrap();
        kept.write(&file, 0, b"12345678").unwrap();
        let refused = kept.write(&file, 8, b"123").unwrap_err().to_string();
        assert!(refused.contains("corona.jt.job.files.max.bytes"), "{refused}");
        // Another one of the same job counts too, also after a restart.
        let restarted = Kept::new(dir.path().to_owned(), of_each(10));
        let other = restarted.place(&format!("{JOB}/b")).unwrap();
        restarted.create(&other, false, 2).unwrap();
        assert!(restarted.write(&other, 0, b"123").is_err());
        // Another job has room of its own.
        let peer = restarted.place("/job_202611210044.2_0001/a").unwrap();
        restarted.create(&peer, false, 3).unwrap();
        restarted.write(&peer, 0, b"1234567890").unwrap();
        let left = restarted.left(&peer.job);
        // Its directory is one.
        let most = Size { bytes: 0, entries: MOST_ENTRIES - 2 };
        restarted.grow(&peer.job, &mut locked(&left), most).unwrap();
        assert!(restarted.mkdirs(&peer).unwrap_err().to_string().contains("files"));
    }

    #[test]
    fn directories_that_are_made_with_a_file_count() {
        let (_dir, kept) = kept(1 << 20);
        let most = Size { bytes: 0, entries: MOST_ENTRIES - 3 };
        let job = kept.place(JOB).unwrap();
        kept.grow(&job.job, &mut locked(&kept.left(&job.job)), most).unwrap();
        let deep = kept.place(&format!("{JOB}/a/b/c")).unwrap();
        // The job's own directory is one of the four.
        for refused in [kept.create(&deep, false, 1), kept.mkdirs(&deep)] {
            assert!(refused.unwrap_err().to_string().contains("files"));
        }
        kept.mkdirs(&kept.place(&format!("{JOB}/a/b")).unwrap()).unwrap();
        assert!(kept.mkdirs(&deep).is_err());
    }
}
