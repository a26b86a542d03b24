//! The files of jobs for machines that share no directory with this one: clients leave them here, and
//! task trackers fetch them, in calls (`corona.jt.deliver.files`).
//!
//! A client may write only below the id that it was given for its job, and only until it has submitted the
//! job. What is below `output` there is written by the job's tasks while it runs, and kept for its user until
//! the user deletes it, or for `corona.jt.job.output.retain.hours` after the job. The directories are the
//! service's own, so no path leads through a link of somebody else.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corona_access::rights::Rights;
use corona_hadoop::protocols::job_files::{JobFiles, OUTPUT};
use corona_hadoop::rpc::{Caller, Fault, User};
use corona_hadoop::writables::{FilePiece, JobFileEntry, JobFilePage, JobFileStatus};
use corona_mapreduce::JobId;
use corona_net::permits::Permits;

use super::access::{ACCESS, Access};
use super::shared_files::Wanted;
use crate::pages::sources::PageSources;

/// Bytes of one reply.
const MOST_PIECE_BYTES: usize = 1 << 20;
/// Files and directories of one job, and of the output of all jobs of a user.
const MOST_ENTRIES: u64 = 10_000;
const MOST_OUTPUT_ENTRIES: u64 = 100_000;
/// Entries of one reply.
const MOST_LISTED: usize = 1000;
/// Names in a path below the directory of a job.
const MOST_DEPTH: usize = 64;
/// Bytes of a path, and of a name in it.
const MOST_PATH_BYTES: usize = 4096;
const MOST_NAME_BYTES: usize = 255;
/// Bytes of the file that those get who join.
const MOST_CLUSTER_BYTES: u64 = 256 << 10;
/// Jobs or users whose sizes are known without a look.
const MOST_SIZES: usize = 10_000;
/// Files of a job or user that are being made at a time, at most: a late duplicate of a call is one of so many.
const MOST_IDS: usize = 64;
/// Calls that work with files at a time, and how many of them may be of one user on one machine.
const MOST_CALLS: usize = 32;
const MOST_CALLS_OF_ONE: usize = 4;
/// What a file or directory takes beside its bytes.
const ENTRY_BYTES: u64 = 4096;
/// All files are counted again, when there seems to be no room, after this pause: jobs end meanwhile.
const COUNT_PAUSE: Duration = Duration::from_secs(10);

/// The pause between two looks for outputs that were kept long enough.
const RETENTION_PAUSE: Duration = Duration::from_secs(600);

/// The files that clients leave, and those that tasks do.
#[derive(Debug)]
pub(crate) struct KeptFiles {
    files: Arc<FileStore>,
    outputs: Arc<FileStore>,
    /// How long an output is kept after its job.
    retention: Duration,
}

/// A directory of files, and what is known of those that are being written.
#[derive(Debug)]
struct FileStore {
    directory: PathBuf,
    of: Of,
    most: Bounds,
    /// By job or user.
    known: Mutex<HashMap<String, Arc<Mutex<Left>>>>,
    all: Mutex<All>,
    /// Held while all files are counted.
    counting: Mutex<()>,
    calls: Arc<Permits<(String, IpAddr)>>,
}

/// What files are bounded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// Those of a job, in a directory of its name.
    Job,
    /// The outputs of a user's jobs: each in a directory of its name, in that of the user.
    User,
}

/// How many bytes files may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Those of one job or user.
    pub(crate) of_each: u64,
    /// All together.
    pub(crate) of_all: u64,
}

/// What a job or a user has left here.
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
    /// Whose files are bounded together with it: the name of a job or a user.
    group: String,
    path: PathBuf,
}

impl KeptFiles {
    /// The files that clients leave below one directory and tasks below another one, within these bounds.
    ///
    /// # Errors
    /// The directory of outputs cannot be made.
    pub(crate) fn open(
        files: (PathBuf, Bounds),
        outputs: (PathBuf, Bounds),
        retention: Duration,
    ) -> io::Result<KeptFiles> {
        // Outputs of commands are for nobody on this machine.
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&outputs.0)?;
        let files = Arc::new(FileStore::new(files.0, Of::Job, files.1));
        let outputs = Arc::new(FileStore::new(outputs.0, Of::User, outputs.1));
        Ok(KeptFiles { files, outputs, retention })
    }

    /// The place that a path of a caller means, and what keeps it.
    fn place(&self, user: &User, path: &str) -> Result<(&Arc<FileStore>, Place), Fault> {
        let (job, parts) = parsed(path)?;
        match parts.split_first() {
            Some((&OUTPUT, rest)) => {
                if !is_name(&user.name) || user.name.contains('/') {
                    let text = format!("{:.200?} is no name of a user with outputs", user.name);
                    return Err(Fault::io(text));
                }
                Ok((&self.outputs, self.outputs.place(&user.name, job, rest)))
            }
            _ => Ok((&self.files, self.files.place(&user.name, job, &parts))),
        }
    }
}

/// The job that a path of a caller names, and what follows.
fn parsed(path: &str) -> Result<(JobId, Vec<&str>), Fault> {
    let refused = || Fault::io(format!("{:.200?} is no path of a file of a job", path));
    let mut parts = path.strip_prefix('/').ok_or_else(refused)?.split('/');
    let job: JobId = parts.next().and_then(|job| job.parse().ok()).ok_or_else(refused)?;
    let parts: Vec<&str> = parts.collect();
    let are_names = parts.iter().all(|part| is_name(part));
    if path.len() > MOST_PATH_BYTES || parts.len() > MOST_DEPTH || !are_names {
        return Err(refused());
    }
    Ok((job, parts))
}

/// Whether it may be the name of a file.
fn is_name(part: &str) -> bool {
    !matches!(part, "" | "." | "..") && !part.contains('\0') && part.len() <= MOST_NAME_BYTES
}

impl Of {
    /// Why a job or user may have no more bytes.
    fn full(self, group: &str, most: u64) -> Fault {
        Fault::io(match self {
            Of::Job => {
                format!(
                    "the files of {group} have more than {most} bytes (corona.jt.job.files.max.bytes)"
                )
            }
            Of::User => format!(
                "the outputs of jobs of user {group} have more than {most} bytes \
                 (corona.jt.job.output.max.user.bytes); those that were not taken are removed \
                 some time after their jobs (corona.jt.job.output.retain.hours)"
            ),
        })
    }

    /// Why all together may have no more bytes.
    fn all_full(self, most: u64) -> Fault {
        Fault::io(match self {
            Of::Job => format!(
                "the files of all jobs have more than {most} bytes \
                 (corona.jt.job.files.max.total.bytes); try again when jobs have ended"
            ),
            Of::User => format!(
                "the outputs of all users' jobs have more than {most} bytes \
                 (corona.jt.job.output.max.total.bytes); try again when some were taken"
            ),
        })
    }

    /// Files and directories of one job or user.
    fn most_entries(self) -> u64 {
        match self {
            Of::Job => MOST_ENTRIES,
            Of::User => MOST_OUTPUT_ENTRIES,
        }
    }
}

impl FileStore {
    /// The files below a directory, within these bounds.
    fn new(directory: PathBuf, of: Of, most: Bounds) -> FileStore {
        let calls = Permits::new(MOST_CALLS, MOST_CALLS_OF_ONE);
        let (known, all, counting) = Default::default();
        FileStore { directory, of, most, known, all, counting, calls }
    }

    /// A place in the directory of a job of this user.
    fn place(&self, user: &str, job: JobId, parts: &[&str]) -> Place {
        let (group, above) = match self.of {
            Of::Job => (job.as_str().to_owned(), self.directory.clone()),
            Of::User => (user.to_owned(), self.directory.join(user)),
        };
        let path = parts.iter().fold(above.join(job.as_str()), |path, part| path.join(part));
        Place { job, group, path }
    }

    /// What is known of a job or user. A look at its files delays no other one.
    fn left(&self, group: &str) -> Arc<Mutex<Left>> {
        let mut known = locked(&self.known);
        if known.len() >= MOST_SIZES && !known.contains_key(group) {
            // Those that are being written to stay.
            known.retain(|_, left| Arc::strong_count(left) > 1);
        }
        known.entry(group.to_owned()).or_default().clone()
    }

    /// Adds to the size of a job or user, or refuses.
    fn grow(&self, group: &str, left: &mut Left, more: Size) -> Result<(), Fault> {
        let size = *left.size.get_or_insert_with(|| size_of(&self.directory.join(group)));
        let bytes = size.bytes.saturating_add(more.bytes);
        let entries = size.entries.saturating_add(more.entries);
        if bytes > self.most.of_each {
            return Err(self.of.full(group, self.most.of_each));
        }
        let most = self.of.most_entries();
        if entries > most {
            return Err(Fault::io(format!("{group} has more than {most} files")));
        }
        self.grow_all(more.taken())?;
        left.size = Some(Size { bytes, entries });
        Ok(())
    }

    /// Takes from the size of a job or user what was deleted.
    fn shrink(&self, left: &mut Left, less: Size) {
        if let Some(size) = &mut left.size {
            size.bytes = size.bytes.saturating_sub(less.bytes);
            size.entries = size.entries.saturating_sub(less.entries);
        }
        let mut all = locked(&self.all);
        all.bytes = all.bytes.saturating_sub(less.taken());
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
        Err(self.of.all_full(most))
    }

    fn status(&self, place: &Place) -> Result<Option<JobFileStatus>, Fault> {
        match fs::symlink_metadata(&place.path) {
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(place, &error)),
            Ok(found) => Ok(Some(status_of(&found))),
        }
    }

    fn list(&self, place: &Place, after: Option<&str>) -> Result<JobFilePage, Fault> {
        let list = || -> io::Result<JobFilePage> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&place.path)? {
                // All names came in paths, which are text.
                let name = entry?.file_name().into_string().ok();
                names.extend(name.filter(|name| after.is_none_or(|after| **name > *after)));
            }
            names.sort_unstable();
            let has_more = names.len() > MOST_LISTED;
            names.truncate(MOST_LISTED);
            let entries = names.into_iter().filter_map(|name| {
                // One that is not there any more was deleted meanwhile.
                let status = status_of(&fs::symlink_metadata(place.path.join(&name)).ok()?);
                Some(JobFileEntry { name, status })
            });
            Ok(JobFilePage { entries: entries.collect(), has_more })
        };
        list().map_err(|error| failed(place, &error))
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
        let left = self.left(&place.group);
        let mut left = locked(&left);
        if left.made.contains(&id) {
            return Ok(());
        }
        self.grow(&place.group, &mut left, self.entries_of(place))?;
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
        let left = self.left(&place.group);
        let mut left = locked(&left);
        let (length, file) = open().map_err(|error| failed(place, &error))?;
        if position > length {
            return Err(Fault::io(format!(
                "a write at {position} of a file of {length} bytes: what is before is missing"
            )));
        }
        let more = position.saturating_add(bytes.len() as u64).saturating_sub(length);
        self.grow(&place.group, &mut left, Size { bytes: more, entries: 0 })?;
        file.write_all_at(bytes, position).map_err(|error| failed(place, &error))
    }

    fn rename(&self, from: &Place, of: Of, to: &Place) -> Result<(), Fault> {
        if from.job != to.job || self.of != of {
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
        let left = self.left(&place.group);
        let mut left = locked(&left);
        self.grow(&place.group, &mut left, self.entries_of(place))?;
        fs::create_dir_all(&place.path).map_err(|error| failed(place, &error))
    }

    fn delete(&self, place: &Place) -> Result<bool, Fault> {
        let left = self.left(&place.group);
        let mut left = locked(&left);
        let deleted = fs::symlink_metadata(&place.path).and_then(|found| match found.is_dir() {
            true => {
                let inner = size_of(&place.path);
                fs::remove_dir_all(&place.path)?;
                Ok(Size { entries: inner.entries.saturating_add(1), ..inner })
            }
            false => {
                fs::remove_file(&place.path)?;
                Ok(Size { bytes: found.len(), entries: 1 })
            }
        });
        match deleted {
            Ok(size) => {
                self.shrink(&mut left, size);
                Ok(true)
            }
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => {
                // Some of it may be gone.
                left.size = None;
                Err(failed(place, &error))
            }
        }
    }

    /// Removes the outputs of jobs that are over and whose directories did not change since then.
    fn remove_old(&self, since: SystemTime, is_active: impl Fn(&JobId) -> bool) {
        for user in entries_in(&self.directory) {
            for job in entries_in(&self.directory.join(&user)) {
                let Ok(id) = job.parse::<JobId>() else { continue };
                let place = self.place(&user, id, &[]);
                let changed = fs::symlink_metadata(&place.path).and_then(|found| found.modified());
                if is_active(&place.job) || changed.is_ok_and(|at| at > since) {
                    continue;
                }
                match self.delete(&place) {
                    Ok(_) => {
                        tracing::info!(job = %place.job, user, "removed the output of a job that nobody has taken");
                    }
                    Err(error) => {
                        tracing::warn!(job = %place.job, user, %error, "cannot remove an old output");
                    }
                }
            }
            let left = self.left(&user);
            let _unchanged = locked(&left);
            // Only one that is empty goes.
            let _ = fs::remove_dir(self.directory.join(&user));
        }
    }
}

/// The names in a directory.
fn entries_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn status_of(found: &fs::Metadata) -> JobFileStatus {
    let modified = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified_ms = modified.map_or(0, |at| i64::try_from(at.as_millis()).unwrap_or(0));
    let bytes = if found.is_dir() { 0 } else { found.len() };
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    JobFileStatus { is_directory: found.is_dir(), bytes, modified_ms }
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

/// The calls for the files of jobs.
pub(crate) struct FileCalls {
    pub(crate) access: Arc<Access>,
    /// The files, where clients and task trackers get them by calls.
    pub(crate) kept_files: Option<KeptFiles>,
    pub(crate) sources: Arc<PageSources>,
}

impl FileCalls {
    fn kept(&self) -> Result<&KeptFiles, Fault> {
        let off = "this job tracker does not deliver files of jobs (corona.jt.deliver.files)";
        self.kept_files.as_ref().ok_or_else(|| Fault::io(off))
    }

    /// Does something with a place that the caller may write.
    async fn change_files<T: Send + 'static>(
        &self,
        caller: &Caller,
        path: &str,
        change: impl FnOnce(&FileStore, Place) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let user = Access::user(caller)?;
        let (kept, place) = self.kept()?.place(user, path)?;
        self.must_write(caller, user, kept.of, &place.job)?;
        kept.clone().in_turn(caller, &user.name, move |kept| change(kept, place)).await
    }

    /// Fails unless the caller may write files of the job. A client may if the id is the user's and its job is not
    /// submitted yet; tasks may write output while their job runs.
    fn must_write(&self, caller: &Caller, user: &User, of: Of, job: &JobId) -> Result<(), Fault> {
        let may = match of {
            Of::Job => {
                self.access.submitter(caller)?;
                caller.peer.objection(|| Rights::SUBMIT).is_none()
                    && self.sources.store.may_prepare(job, &user.name)
            }
            Of::User => self.sources.store.may_write_output(job, &user.name),
        };
        let refused = || {
            let what = if of == Of::User { "output" } else { "files" };
            Fault::of(ACCESS, format!("user {} may not write {what} of {job} now", user.name))
        };
        may.then_some(()).ok_or_else(refused)
    }

    async fn look_at_file<T: Send + 'static>(
        &self,
        caller: &Caller,
        path: &str,
        look: impl FnOnce(&FileStore, Place) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let user = Access::user(caller)?;
        let (kept, place) = self.kept()?.place(user, path)?;
        // Nodes, and the daemons of the head, see all. Without certificates, users are what they claim. An output
        // lies in its user's directory.
        if let (Of::Job, Some(user)) = (kept.of, caller.peer.user())
            && self.sources.store.owner(&place.job).as_deref() != Some(user)
        {
            let text = format!("user {user} may not read files of {}", place.job);
            return Err(Fault::of(ACCESS, text));
        }
        kept.clone().in_turn(caller, &user.name, move |kept| look(kept, place)).await
    }

    /// Removes outputs that were kept long enough, for as long as the service runs.
    pub(crate) async fn remove_old_outputs(self: Arc<Self>) {
        loop {
            if let Some(KeptFiles { outputs, retention, .. }) = &self.kept_files
                && let Some(since) = SystemTime::now().checked_sub(*retention)
            {
                let (outputs, shared) = (outputs.clone(), self.clone());
                let remove = move || {
                    outputs.remove_old(since, |job| shared.sources.store.is_active(job));
                    Ok(())
                };
                // It is done again, whatever happened.
                let _ = blocking(remove).await;
            }
            tokio::time::sleep(RETENTION_PAUSE).await;
        }
    }
}

impl FileStore {
    /// Works with files when it is the user's turn: one who asks much delays no other.
    async fn in_turn<T: Send + 'static>(
        self: Arc<Self>,
        caller: &Caller,
        user: &str,
        work: impl FnOnce(&FileStore) -> Result<T, Fault> + Send + 'static,
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

impl JobFiles for FileCalls {
    async fn status(&self, caller: &Caller, path: String) -> Result<Option<JobFileStatus>, Fault> {
        self.look_at_file(caller, &path, |kept, place| kept.status(&place)).await
    }

    async fn list(
        &self,
        caller: &Caller,
        path: String,
        after: Option<String>,
    ) -> Result<JobFilePage, Fault> {
        let list = move |kept: &FileStore, place| kept.list(&place, after.as_deref());
        self.look_at_file(caller, &path, list).await
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
        let create = move |kept: &FileStore, place| kept.create(&place, overwrite, id);
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
        let write = move |kept: &FileStore, place| kept.write(&place, position, &piece.bytes);
        self.change_files(caller, &path, write).await
    }

    async fn rename(&self, caller: &Caller, from: String, to: String) -> Result<(), Fault> {
        let (keeper, to) = self.kept()?.place(Access::user(caller)?, &to)?;
        let of = keeper.of;
        self.change_files(caller, &from, move |kept, from| kept.rename(&from, of, &to)).await
    }

    async fn mkdirs(&self, caller: &Caller, path: String) -> Result<(), Fault> {
        self.change_files(caller, &path, |kept, place| kept.mkdirs(&place)).await
    }

    async fn delete(&self, caller: &Caller, path: String) -> Result<bool, Fault> {
        let user = Access::user(caller)?;
        let (kept, place) = self.kept()?.place(user, &path)?;
        // An output may always be deleted: it lies in its user's directory.
        if kept.of == Of::Job {
            self.must_write(caller, user, kept.of, &place.job)?;
        }
        kept.clone().in_turn(caller, &user.name, move |kept| kept.delete(&place)).await
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
        FileCalls::unseen(self, Wanted::new(marker, token, files, lengths)?).await
    }

    async fn cluster(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        let Some(path) = self.sources.settings.cluster_file.clone() else { return Ok(None) };
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

    fn kept(most_bytes: u64) -> (tempfile::TempDir, FileStore) {
        let dir = tempfile::tempdir().unwrap();
        let kept = FileStore::new(dir.path().to_owned(), Of::Job, of_each(most_bytes));
        (dir, kept)
    }

    fn of_each(of_each: u64) -> Bounds {
        Bounds { of_each, of_all: u64::MAX }
    }

    /// The place that a path of ann means.
    fn place(kept: &FileStore, path: &str) -> Place {
        let (job, parts) = parsed(path).unwrap();
        kept.place("ann", job, &parts)
    }

    const JOB: &str = "/job_202611210044.1_0001";

    #[test]
    fn paths_stay_below_the_directory_of_their_job() {
        let (dir, kept) = kept(1000);
        let place = place(&kept, &format!("{JOB}/files/map.py"));
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
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        assert!(parsed(&format!("{JOB}{}", "/a".repeat(65))).is_err());
        assert!(parsed(&format!("{JOB}/{}", "a".repeat(5000))).is_err());
        assert!(parsed(&format!("{JOB}/{}", "a".repeat(256))).is_err());
    }

    #[test]
    fn files_are_written_piece_by_piece_and_read_back() {
        let (_dir, kept) = kept(1000);
        let place = |name: &str| place(&kept, &format!("{JOB}/{name}"));
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
        kept.rename(&file, Of::Job, &place("c")).unwrap();
        assert!(kept.rename(&place("c"), Of::Job, &place("c")).is_err());
        assert!(kept.status(&place("a")).unwrap().unwrap().is_directory);
        assert_eq!(kept.read(&place("c"), 0, 5).unwrap().bytes, b"hello");
        let (job, _) = parsed(JOB).unwrap();
        let job = kept.place("ann", job, &[]);
        assert!(kept.delete(&job).unwrap());
        assert!(!kept.delete(&job).unwrap());
    }

    #[test]
    fn a_file_is_emptied_by_a_new_call_and_by_no_late_duplicate() {
        let (_dir, kept) = kept(1 << 20);
        let place = |name: &str| place(&kept, &format!("{JOB}/{name}"));
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
        assert_eq!(locked(&kept.left(&file.group)).made.len(), MOST_IDS);
    }

    #[test]
    fn all_jobs_together_have_a_bound_and_those_that_have_ended_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let of_all = 3 * ENTRY_BYTES;
        let most = Bounds { of_each: 1 << 20, of_all };
        let open = || FileStore::new(dir.path().to_owned(), Of::Job, most);
        let kept = open();
        let (one, two) = (place(&kept, JOB), place(&kept, "/job_202611210044.2_0001"));
        kept.mkdirs(&one).unwrap();
        let file = place(&kept, &format!("{JOB}/a"));
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
        let file = place(&kept, &format!("{JOB}/a"));
        kept.create(&file, false, 1).unwrap();
        kept.write(&file, 0, b"12345678").unwrap();
        let refused = kept.write(&file, 8, b"123").unwrap_err().to_string();
        assert!(refused.contains("corona.jt.job.files.max.bytes"), "{refused}");
        // Another one of the same job counts too, also after a restart.
        let restarted = FileStore::new(dir.path().to_owned(), Of::Job, of_each(10));
        let other = place(&restarted, &format!("{JOB}/b"));
        restarted.create(&other, false, 2).unwrap();
        assert!(restarted.write(&other, 0, b"123").is_err());
        // Another job has room of its own.
        let peer = place(&restarted, "/job_202611210044.2_0001/a");
        restarted.create(&peer, false, 3).unwrap();
        restarted.write(&peer, 0, b"1234567890").unwrap();
        let left = restarted.left(&peer.group);
        // Its directory is one.
        let most = Size { bytes: 0, entries: MOST_ENTRIES - 2 };
        restarted.grow(&peer.group, &mut locked(&left), most).unwrap();
        assert!(restarted.mkdirs(&peer).unwrap_err().to_string().contains("files"));
    }

    #[test]
    fn directories_that_are_made_with_a_file_count() {
        let (_dir, kept) = kept(1 << 20);
        let most = Size { bytes: 0, entries: MOST_ENTRIES - 3 };
        let job = place(&kept, JOB);
        kept.grow(&job.group, &mut locked(&kept.left(&job.group)), most).unwrap();
        let deep = place(&kept, &format!("{JOB}/a/b/c"));
        // The job's own directory is one of the four.
        for refused in [kept.create(&deep, false, 1), kept.mkdirs(&deep)] {
            assert!(refused.unwrap_err().to_string().contains("files"));
        }
        kept.mkdirs(&place(&kept, &format!("{JOB}/a/b"))).unwrap();
        assert!(kept.mkdirs(&deep).is_err());
    }

    fn outputs(most: Bounds) -> (tempfile::TempDir, FileStore) {
        let dir = tempfile::tempdir().unwrap();
        let kept = FileStore::new(dir.path().to_owned(), Of::User, most);
        (dir, kept)
    }

    fn job(number: u32) -> JobId {
        format!("job_202611210044.{number}_0001").parse().unwrap()
    }

    fn written(kept: &FileStore, place: &Place, bytes: &[u8]) -> Result<(), Fault> {
        static NEXT: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);
        kept.create(place, true, NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))?;
        kept.write(place, 0, bytes)
    }

    #[test]
    fn outputs_of_one_user_are_bounded_and_another_user_does_not_notice() {
        let (_dir, kept) = outputs(of_each(10));
        let of = |user, number, name| kept.place(user, job(number), &[name]);
        written(&kept, &of("ann", 1, "a"), b"12345").unwrap();
        written(&kept, &of("ann", 2, "a"), b"12345").unwrap();
        let refused = kept.write(&of("ann", 2, "a"), 5, b"6").unwrap_err().to_string();
        assert!(refused.contains("corona.jt.job.output.max.user.bytes"), "{refused}");
        written(&kept, &of("bob", 3, "a"), b"1234567890").unwrap();
        // What a client has taken and deleted makes room, without another look at the rest.
        assert!(kept.delete(&of("ann", 1, "a")).unwrap());
        kept.write(&of("ann", 2, "a"), 5, b"67890").unwrap();
        let left = kept.left("ann");
        assert_eq!(locked(&left).size, Some(Size { bytes: 10, entries: 4 }));
        assert_eq!(size_of(&kept.directory.join("ann")).bytes, 10);
    }

    #[test]
    fn outputs_of_all_users_have_a_bound_and_make_room_at_once() {
        let most = Bounds { of_each: 1 << 20, of_all: 5 * ENTRY_BYTES };
        let (_dir, kept) = outputs(most);
        let of = |user, number| kept.place(user, job(number), &["a"]);
        written(&kept, &of("ann", 1), b"x").unwrap();
        let refused = written(&kept, &of("bob", 2), b"x").unwrap_err().to_string();
        assert!(refused.contains("corona.jt.job.output.max.total.bytes"), "{refused}");
        assert!(kept.delete(&kept.place("ann", job(1), &[])).unwrap());
        written(&kept, &of("bob", 2), b"x").unwrap();
    }

    #[test]
    fn directories_are_listed_in_pages() {
        let (_dir, kept) = kept(1 << 30);
        let top = place(&kept, &format!("{JOB}/d"));
        assert!(kept.list(&top, None).unwrap_err().to_string().contains("FileNotFound"));
        kept.mkdirs(&top).unwrap();
        assert_eq!(kept.list(&top, None).unwrap(), JobFilePage::default());
        let count = MOST_LISTED + 1;
        for number in 0..count {
            fs::write(top.path.join(format!("{number:05}")), "x").unwrap();
        }
        let first = kept.list(&top, None).unwrap();
        assert!(first.has_more && first.entries.len() == MOST_LISTED);
        let last = &first.entries[MOST_LISTED - 1].name;
        let second = kept.list(&top, Some(last)).unwrap();
        assert!(!second.has_more && second.entries.len() == 1);
        let entry = &second.entries[0];
        assert_eq!((&*entry.name, entry.status.bytes), (&*format!("{:05}", count - 1), 1));
    }

    #[test]
    fn outputs_that_nobody_takes_are_removed_when_their_jobs_are_long_over() {
        let (dir, kept) = outputs(of_each(100));
        let of = |user, number| kept.place(user, job(number), &["part-00000"]);
        for (user, number) in [("ann", 1), ("ann", 2), ("bob", 3)] {
            written(&kept, &of(user, number), b"x").unwrap();
        }
        let is_active = |id: &JobId| *id == job(2);
        kept.remove_old(UNIX_EPOCH, is_active);
        assert!(of("ann", 1).path.exists(), "it is not old");
        let later = SystemTime::now() + Duration::from_secs(60);
        kept.remove_old(later, is_active);
        assert!(!of("ann", 1).path.exists() && of("ann", 2).path.exists());
        assert!(!dir.path().join("bob").exists());
        assert_eq!(locked(&kept.left("ann")).size.map(|size| size.bytes), Some(1));
    }

    fn caller(name: &str) -> Caller {
        let user = Some(User { name: name.to_owned(), groups: vec![] });
        Caller { peer: corona_access::Peer::plain(([127, 0, 0, 1], 1).into()), user }
    }

    #[tokio::test]
    async fn tasks_write_output_of_jobs_that_are_not_over_and_users_read_their_own() {
        let root = tempfile::tempdir().unwrap();
        let properties = [
            ("corona.jt.deliver.files", "true"),
            // Jobs wait, since one that is being submitted has the only place.
            ("corona.jt.max.jobs", "1"),
            ("corona.jt.max.waiting.jobs", "3"),
            ("corona.jt.submission.wait.ms", "1"),
        ];
        let shared =
            crate::service::tests::service_with(root.path(), &properties).await.calls.files;
        let (alice, bob) = (caller("alice"), caller("bob"));
        shared.sources.store.give(job(1), "alice".into());
        let dir = format!("/{}/output", job(1));
        let path = format!("{dir}/part-00000");
        let refused = shared.mkdirs(&alice, dir.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("may not write output"), "not before the submission: {refused}");
        shared.sources.store.give(job(99), "alice".into());
        assert!(shared.sources.store.arrive(&job(99), "alice").is_ok());
        assert!(shared.sources.store.arrive(&job(1), "alice").is_ok());
        shared.create(&alice, path.clone(), true, 1).await.unwrap();
        shared.write(&alice, path.clone(), 0, FilePiece { bytes: b"x".to_vec() }).await.unwrap();
        let refused = shared.create(&bob, path.clone(), true, 2).await.unwrap_err().to_string();
        assert!(refused.contains("user bob may not write output"), "{refused}");
        assert_eq!(shared.status(&bob, path.clone()).await.unwrap(), None);
        assert!(!shared.delete(&bob, dir.clone()).await.unwrap(), "it is not bob's");
        let aside = shared.rename(&alice, path.clone(), format!("/{}/aside", job(1))).await;
        assert!(aside.is_err(), "output stays output");
        for odd in ["..", "a/b", "", &"a".repeat(300)] {
            assert!(shared.status(&caller(odd), path.clone()).await.is_err(), "{odd}");
        }
        // Once the job is not known any more, its user still takes what it has left, and nobody writes.
        shared.sources.store.give_up(&job(1));
        assert!(shared.write(&alice, path.clone(), 1, FilePiece::default()).await.is_err());
        let listed = shared.list(&alice, dir.clone(), None).await.unwrap();
        assert_eq!(listed.entries.len(), 1);
        assert_eq!(shared.read(&alice, path, 0, 9).await.unwrap().bytes, b"x");
        assert!(shared.delete(&alice, dir).await.unwrap());
    }
}
