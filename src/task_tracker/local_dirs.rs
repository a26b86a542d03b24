//! The local directories: which of them are usable, where new files go, and where files are.
//!
//! A directory that fails a check is not used until it passes one again; its files stay readable as
//! far as the disk allows. Every call accesses disks, so none belongs on an executor's thread.
//! Spec: mapreduce/04 §4.1 and §4.4.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::time::Duration;

use thiserror::Error;

use super::ids::AttemptId;
use corona_config::LocalSettings;

/// How long a disk may take for the check of a directory.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// The part of a file system that its reserve is at most.
const RESERVED_PART: u64 = 20;

/// The local directories of a task tracker.
#[derive(Debug)]
pub struct LocalDirs {
    settings: LocalSettings,
    state: Mutex<Vec<LocalDir>>,
}

#[derive(Clone, Debug)]
struct LocalDir {
    path: PathBuf,
    /// Why it cannot be used.
    failed: Option<String>,
    /// Whether it has been usable since the start.
    was_used: bool,
    /// Held while a check runs that its disk may delay forever.
    probe: Arc<Mutex<()>>,
}

/// A local directory that fails now and did not before, or the reverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirChange {
    /// The directory.
    pub path: PathBuf,
    /// Why it cannot be used, if it cannot.
    pub failed: Option<String>,
}

/// Room in a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub total_bytes: u64,
    /// The bytes that an unprivileged process can still write.
    pub free_bytes: u64,
}

/// The status of a local directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirState {
    /// The directory.
    pub path: PathBuf,
    /// Why it cannot be used, according to the last check.
    pub failed: Option<String>,
    /// Its free space, if known.
    pub space: Option<Space>,
}

/// Why there is no place for a file.
#[derive(Debug, Error)]
pub enum LocalDirError {
    /// No directory passes the checks.
    #[error("no local directory can be used: {0}")]
    NoneUsable(String),
    /// None passed its last check. The text begins as the original's, by which job trackers know such failures.
    #[error("Could not find any valid local directory for {path}: {reason}")]
    AllFailed {
        /// The file, relative to a local directory.
        path: PathBuf,
        /// What the checks found.
        reason: String,
    },
    /// None of those that can be used has enough room, or lets the file's directory be made. The text begins as
    /// the original's.
    #[error("No space available in any of the local directories for {path}: {reason}")]
    NoRoom {
        /// The file, relative to a local directory.
        path: PathBuf,
        /// The error of the last directory that was tried.
        reason: String,
    },
}

impl LocalDirs {
    /// Makes and checks the directories.
    ///
    /// Errors: none can be used.
    pub fn open(settings: &LocalSettings) -> Result<Self, LocalDirError> {
        let unknown = |path: &PathBuf| LocalDir {
            path: path.clone(),
            failed: None,
            was_used: false,
            probe: Arc::default(),
        };
        let dirs = settings.dirs.iter().map(unknown).collect();
        let dirs = LocalDirs { settings: settings.clone(), state: Mutex::new(dirs) };
        dirs.check(|_| {});
        let state = dirs.lock().clone();
        match state.iter().all(|dir| dir.failed.is_some()) {
            true => Err(LocalDirError::NoneUsable(dirs.failures())),
            false => Ok(dirs),
        }
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &LocalSettings {
        &self.settings
    }

    /// Checks every directory again, and reports which fail now and did not before, or the reverse.
    /// `clear` gets each directory that can be used for the first time since the start, before it
    /// is used.
    pub fn check(&self, clear: impl Fn(&Path)) -> Vec<DirChange> {
        let before = self.lock().clone();
        let checked = |LocalDir { path, was_used, probe, .. }: &LocalDir| {
            let failed = check_within(CHECK_TIMEOUT, path, probe).err();
            if failed.is_none() && !was_used {
                clear(path);
            }
            let (path, probe) = (path.clone(), probe.clone());
            LocalDir { path, was_used: *was_used || failed.is_none(), failed, probe }
        };
        let after: Vec<LocalDir> = before.iter().map(checked).collect();
        let changed = before
            .iter()
            .zip(&after)
            .filter(|(before, after)| before.failed.is_some() != after.failed.is_some())
            .map(|(_, after)| DirChange { path: after.path.clone(), failed: after.failed.clone() })
            .collect();
        *self.lock() = after;
        changed
    }

    /// The directories that passed the last check.
    pub fn usable(&self) -> Vec<PathBuf> {
        let state = self.lock();
        state.iter().filter(|dir| dir.failed.is_none()).map(|dir| dir.path.clone()).collect()
    }

    /// `mapred.local.dir` as tasks receive it: the usable directories.
    pub fn as_property(&self) -> String {
        let usable = self.usable();
        let usable: Vec<_> = usable.iter().map(|path| path.display().to_string()).collect();
        usable.join(",")
    }

    /// A place for a new file; its directory is created. With a size in bytes, the next directory
    /// that has more room than that; without, any, the likelier the more room it has.
    pub fn for_write(&self, relative: &Path, bytes: Option<u64>) -> Result<PathBuf, LocalDirError> {
        let mut reason = String::new();
        let mut left: Vec<(PathBuf, u64)> = Vec::new();
        let usable = self.usable();
        if usable.is_empty() {
            return Err(LocalDirError::AllFailed {
                path: relative.to_owned(),
                reason: self.failures(),
            });
        }
        for dir in usable {
            match space(&dir) {
                Ok(space) if space.free_bytes > bytes.unwrap_or(0) => {
                    left.push((dir, space.free_bytes));
                }
                Ok(space) => {
                    let free = space.free_bytes;
                    reason = format!("{} has {free} bytes free", dir.display());
                }
                Err(error) => reason = format!("{}: {error}", dir.display()),
            }
        }
        while !left.is_empty() {
            let free: Vec<u64> = left.iter().map(|(_, free)| *free).collect();
            let (dir, _) = left.swap_remove(choose(&free, any_number()));
            let path = dir.join(relative);
            match path.parent().map_or(Ok(()), fs::create_dir_all) {
                Ok(()) => return Ok(path),
                Err(error) => reason = format!("{}: {error}", path.display()),
            }
        }
        Err(LocalDirError::NoRoom { path: relative.to_owned(), reason })
    }

    /// The first existing file or directory of this name, in the order of the configuration.
    pub fn find(&self, relative: &Path) -> Option<PathBuf> {
        self.all(relative).into_iter().next()
    }

    /// All existing files and directories of this name, those of failed directories too.
    pub fn all(&self, relative: &Path) -> Vec<PathBuf> {
        let dirs = self.settings.dirs.iter().map(|dir| dir.join(relative));
        dirs.filter(|path| fs::symlink_metadata(path).is_ok()).collect()
    }

    /// The directories of these attempts at the top of the local directories, where Java tasks keep
    /// files that they merge: each has the name of its attempt.
    pub fn of_attempts(&self, is_wanted: impl Fn(&AttemptId) -> bool) -> Vec<PathBuf> {
        let all = self.settings.dirs.iter().flat_map(|dir| attempts_at_top(dir));
        all.filter(|(attempt, _)| is_wanted(attempt)).map(|(_, path)| path).collect()
    }

    /// The room in each directory that can be used, in the order of the configuration.
    pub fn spaces(&self) -> Vec<Space> {
        self.usable().iter().filter_map(|dir| space(dir).ok()).collect()
    }

    /// The status of each directory, in the order of the configuration.
    pub fn states(&self) -> Vec<DirState> {
        let dirs = self.lock().clone();
        let state =
            |LocalDir { path, failed, .. }| DirState { space: space(&path).ok(), path, failed };
        dirs.into_iter().map(state).collect()
    }

    /// Why no new task may be taken: no directory passed its last check, or none has room.
    pub fn shortage(&self) -> Option<String> {
        let usable = self.usable();
        if usable.is_empty() {
            return Some(LocalDirError::NoneUsable(self.failures()).to_string());
        }
        let lacking: Option<Vec<String>> = usable.iter().map(|dir| self.lacks_room(dir)).collect();
        lacking.map(|lacking| {
            format!("no local directory has room for new tasks: {}", lacking.join("; "))
        })
    }

    /// Why the file system of a path has no room for new tasks: fewer bytes are free than
    /// `mapred.local.dir.minspacestart`, or than the reserve, which is at most a twentieth of the file system.
    fn lacks_room(&self, path: &Path) -> Option<String> {
        self.lacks(path, self.settings.min_space_start_bytes)
    }

    /// The same of logs, where they are or are going to be. Only the reserve concerns them.
    pub fn lacks_room_for_logs(&self, path: &Path) -> Option<String> {
        self.lacks(path.ancestors().find(|path| path.exists())?, 0)
    }

    fn lacks(&self, path: &Path, min_space_start_bytes: u64) -> Option<String> {
        let reserved_bytes = self.settings.reserved_bytes;
        let Space { total_bytes, free_bytes } = match space(path) {
            Ok(space) => space,
            Err(error) => return Some(format!("{}: {error}", path.display())),
        };
        let least = reserved_bytes.min(total_bytes / RESERVED_PART).max(min_space_start_bytes);
        (free_bytes <= least).then(|| {
            format!(
                "{} has {free_bytes} bytes free, fewer than the reserve of {least}",
                path.display()
            )
        })
    }

    /// What the last checks found.
    fn failures(&self) -> String {
        let failed: Vec<String> = self.lock().iter().filter_map(|dir| dir.failed.clone()).collect();
        failed.join("; ")
    }

    /// Whether a task has to go: no directory has more room than `mapred.local.dir.minspacekill`.
    pub fn must_kill(&self) -> bool {
        match self.settings.min_space_kill_bytes {
            None => false,
            Some(least) => !self.spaces().iter().any(|space| space.free_bytes > least),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LocalDir>> {
        // The list is replaced as a whole, so it is whole after a panic too.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entries with the name of an attempt in a local directory itself.
pub(super) fn attempts_at_top(dir: &Path) -> Vec<(AttemptId, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let attempt =
        |entry: fs::DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()));
    entries.filter_map(attempt).collect()
}

/// Room in the file system of a path.
pub fn space(path: &Path) -> io::Result<Space> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(Space {
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// Whether files can be made, written and deleted there. A disk that is full passes: its files are
/// to be served and deleted still.
fn check(dir: &Path) -> Result<(), String> {
    let probe = dir.join(format!(".corona-check-{}", std::process::id()));
    let written = fs::create_dir_all(dir).and_then(|()| {
        let mut file = fs::File::create(&probe)?;
        let written = file.write_all(b"check");
        drop(file);
        let removed = fs::remove_file(&probe);
        match written {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => removed,
            written => written.and(removed),
        }
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        written => written.map_err(|error| format!("{}: {error}", dir.display())),
    }
}

/// The same, on a thread of its own: a disk that does not answer within the limit fails, and is not asked again
/// before it has answered.
fn check_within(limit: Duration, dir: &Path, probe: &Arc<Mutex<()>>) -> Result<(), String> {
    let silent = || format!("{}: the disk does not answer", dir.display());
    let (answer, answered) = mpsc::sync_channel(1);
    let (path, probe) = (dir.to_owned(), probe.clone());
    let started = std::thread::Builder::new().name("disk-check".to_owned()).spawn(move || {
        let checked = match probe.try_lock() {
            Ok(_running) => check(&path),
            Err(TryLockError::Poisoned(_)) => check(&path),
            // An earlier check waits still.
            Err(TryLockError::WouldBlock) => return,
        };
        // The receiver may have given up.
        let _ = answer.send(checked);
    });
    match started {
        Ok(_) => answered.recv_timeout(limit).unwrap_or_else(|_| Err(silent())),
        Err(error) => {
            // That says nothing about the disk. The call itself may wait for it now.
            tracing::warn!(%error, dir = %dir.display(), "no thread for the check of a disk");
            check(dir)
        }
    }
}

/// An index, each as likely as its part of the sum.
fn choose(free: &[u64], random: u64) -> usize {
    // Held so that a sum of thousands times a random number fits.
    let weight = |free: &u64| u128::from(*free).min(1 << 48);
    let total: u128 = free.iter().map(weight).sum();
    let mut position = (u128::from(random) * total) >> 64;
    for (index, free) in free.iter().enumerate() {
        match position.checked_sub(weight(free)) {
            None => return index,
            Some(rest) => position = rest,
        }
    }
    free.len().saturating_sub(1)
}

/// Even enough to spread files; not for secrets.
pub(super) fn any_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The number of a process of a task.
pub(super) fn any_jvm_number() -> i32 {
    let [a, b, c, d, ..] = any_number().to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn settings(dirs: &[&Path]) -> LocalSettings {
        LocalSettings {
            dirs: dirs.iter().map(|dir| dir.to_path_buf()).collect(),
            min_space_start_bytes: 0,
            min_space_kill_bytes: None,
            reserved_bytes: 0,
            cache_bytes: 1 << 40,
            cache_entries: 1000,
        }
    }

    #[test]
    fn choices_follow_the_room() {
        let at = |part: f64| (part * u64::MAX as f64) as u64;
        let cases = [
            (&[1, 1][..], 0, 0),
            (&[1, 1], at(0.49), 0),
            (&[1, 1], at(0.51), 1),
            (&[1, 1], u64::MAX, 1),
            (&[0, 5], 0, 1),
            (&[5, 0], u64::MAX, 0),
            (&[1, 2, 1], at(0.26), 1),
            (&[1, 2, 1], at(0.74), 1),
            (&[1, 2, 1], at(0.76), 2),
            (&[u64::MAX, u64::MAX], at(0.9), 1),
            (&[7], at(0.3), 0),
        ];
        for (free, random, expected) in cases {
            assert_eq!(choose(free, random), expected, "{free:?} {random}");
        }
    }

    #[test]
    fn files_are_found_where_they_were_put() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a/deep"), root.path().join("b"));
        let dirs = LocalDirs::open(&settings(&[&a, &b])).unwrap();
        assert_eq!(dirs.as_property(), format!("{},{}", a.display(), b.display()));
        assert_eq!(dirs.find(Path::new("x/y")), None);
        let path = dirs.for_write(Path::new("x/y"), Some(10)).unwrap();
        assert!(path.parent().unwrap().is_dir());
        fs::write(&path, "1").unwrap();
        assert_eq!(dirs.find(Path::new("x/y")), Some(path));
        fs::create_dir_all(a.join("x")).unwrap();
        fs::create_dir_all(b.join("x")).unwrap();
        assert_eq!(dirs.all(Path::new("x")), [a.join("x"), b.join("x")]);
        // Nothing is left of the checks.
        assert_eq!(fs::read_dir(&a).unwrap().count(), 1);
    }

    #[test]
    fn full_directories_get_nothing() {
        let root = tempfile::tempdir().unwrap();
        let dirs = LocalDirs::open(&settings(&[root.path()])).unwrap();
        let told = dirs.for_write(Path::new("big"), Some(u64::MAX)).unwrap_err().to_string();
        let expected = "No space available in any of the local directories for big: /";
        assert!(told.starts_with(expected), "{told}");
        assert!(dirs.shortage().is_none() && !dirs.must_kill());
        let strict = LocalSettings {
            min_space_start_bytes: u64::MAX,
            min_space_kill_bytes: Some(u64::MAX),
            ..settings(&[root.path()])
        };
        let dirs = LocalDirs::open(&strict).unwrap();
        assert!(dirs.shortage().is_some() && dirs.must_kill());
        let reserved = LocalSettings { reserved_bytes: u64::MAX, ..settings(&[root.path()]) };
        let dirs = LocalDirs::open(&reserved).unwrap();
        let Space { total_bytes, free_bytes } = space(root.path()).unwrap();
        let is_full = free_bytes <= total_bytes / 20;
        assert_eq!(dirs.shortage().is_some(), is_full, "the reserve is a twentieth at most");
    }

    #[test]
    fn a_disk_that_does_not_answer_fails_and_is_asked_once() {
        let root = tempfile::tempdir().unwrap();
        let (good, bad) = (root.path().join("good"), root.path().join("bad"));
        fs::create_dir_all(&bad).unwrap();
        // A process that opens a pipe for writing waits for a reader.
        let pipe = bad.join(format!(".corona-check-{}", std::process::id()));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (probe, short) = (Arc::default(), Duration::from_millis(50));
        for _ in 0..2 {
            let told = check_within(short, &bad, &probe).unwrap_err();
            assert_eq!(told, format!("{}: the disk does not answer", bad.display()));
            while Arc::strong_count(&probe) != 2 {
                // The thread that found the first one waiting is about to end.
                std::thread::yield_now();
            }
        }
        let long = Duration::from_secs(60);
        assert_eq!(check_within(long, &good, &Arc::default()), Ok(()), "others do not wait");
        let mut reader = fs::File::open(&pipe).unwrap();
        std::io::Read::read_to_end(&mut reader, &mut Vec::new()).unwrap();
        let deadline = std::time::Instant::now() + long;
        while check_within(long, &bad, &probe).is_err() {
            assert!(std::time::Instant::now() < deadline, "it is not readmitted");
        }
    }

    #[test]
    fn a_directory_that_fails_is_left_out_until_it_is_well() {
        let root = tempfile::tempdir().unwrap();
        let (good, bad) = (root.path().join("good"), root.path().join("bad"));
        // A file where the directory should be fails for a privileged user too.
        fs::write(&bad, "").unwrap();
        let dirs = LocalDirs::open(&settings(&[&good, &bad])).unwrap();
        assert_eq!(dirs.usable(), [good.as_path()]);
        let states = dirs.states();
        assert!(states[0].failed.is_none() && states[0].space.is_some(), "{states:?}");
        assert!(states[1].path == bad && states[1].failed.is_some(), "{states:?}");
        for _ in 0..20 {
            assert!(dirs.for_write(Path::new("f"), None).unwrap().starts_with(&good));
        }
        fs::remove_file(&bad).unwrap();
        let cleared = std::cell::RefCell::new(vec![]);
        let check = || dirs.check(|dir| cleared.borrow_mut().push(dir.to_owned()));
        assert_eq!(check(), [DirChange { path: bad.clone(), failed: None }]);
        assert_eq!(dirs.usable(), [good, bad.clone()]);
        assert_eq!(check(), []);
        // If it fails again later, its contents are of this run.
        fs::remove_dir(&bad).unwrap();
        fs::write(&bad, "").unwrap();
        assert!(check()[0].failed.is_some());
        fs::remove_file(&bad).unwrap();
        check();
        assert_eq!(cleared.into_inner(), [bad]);
    }

    #[test]
    fn without_any_directory_there_is_no_start() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let told = LocalDirs::open(&settings(&[&file.join("a")])).unwrap_err().to_string();
        assert!(told.starts_with("no local directory can be used: /"), "{told}");
    }

    #[test]
    fn a_directory_below_that_cannot_be_made_is_another_ones_turn() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let dirs = LocalDirs::open(&settings(&[&a, &b])).unwrap();
        fs::write(a.join("x"), "a file, where a directory is wanted").unwrap();
        for _ in 0..20 {
            assert_eq!(dirs.for_write(Path::new("x/y"), None).unwrap(), b.join("x/y"));
        }
    }
}
