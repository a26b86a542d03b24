//! Files that are no longer needed are moved aside at once, on the same disk, and deleted in the
//! background.
//!
//! The directory itself is the list of files to delete, so the list has no bound to exceed and
//! outlives the process. Spec: mapreduce/04 §4.1 (5), §4.4.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tracing::warn;

use super::layout;
use super::local_dirs::{any_number, attempts_at_top};
use corona_process::panics::Panic;

/// Deletes files that local directories no longer need. The thread ends when the last copy is
/// dropped.
#[derive(Clone, Debug)]
pub struct Deletion {
    dirs: Arc<[PathBuf]>,
    next: Arc<AtomicU64>,
    wake: SyncSender<()>,
}

impl Deletion {
    /// Starts the thread that deletes in these directories. Files that an earlier run has moved
    /// aside are deleted too. Errors: no thread can be started.
    pub fn start(dirs: &[PathBuf]) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let dirs: Arc<[PathBuf]> = dirs.into();
        let theirs = dirs.clone();
        std::thread::Builder::new()
            .name("deletion".into())
            .spawn(move || run(&theirs, &woken, empty))?;
        // A former program in this process may have moved files aside too.
        let next = Arc::new(AtomicU64::new(any_number()));
        let deletion = Deletion { dirs, next, wake };
        deletion.wake();
        Ok(deletion)
    }

    /// Moves a file or directory aside and has it deleted. A path that does not exist is no error;
    /// one that is in none of the directories, or is one of them, is. A symbolic link is deleted,
    /// not its target.
    pub fn discard(&self, path: &Path) -> io::Result<()> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "not in a local directory");
        let dir = self
            .dirs
            .iter()
            .find(|dir| path.strip_prefix(dir).is_ok_and(is_below))
            .ok_or_else(outside)?;
        let aside = dir.join(layout::DISCARDED);
        fs::create_dir_all(&aside)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().take(50).collect();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let target = aside.join(format!("{}.{number}.{name}", std::process::id()));
        match fs::rename(path, &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        self.wake();
        Ok(())
    }

    /// Moves aside everything that jobs of an earlier run have left in one of the directories.
    /// Failures to move are logged.
    pub fn discard_all_in(&self, dir: &Path) {
        let attempts = attempts_at_top(dir).into_iter().map(|(_, path)| path);
        for path in [dir.join(layout::TRACKER)].into_iter().chain(attempts) {
            if let Err(error) = self.discard(&path) {
                warn!(path = %path.display(), %error, "cannot move files of an earlier run aside");
            }
        }
    }

    fn wake(&self) {
        // When it is full, the thread will look anyway.
        let _ = self.wake.try_send(());
    }
}

/// Whether a relative path leads to something below, and not up again.
fn is_below(rest: &Path) -> bool {
    let mut parts = rest.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// Empties the directories each time it is woken. A panic ends only the current turn, because files
/// that are not deleted fill the disks.
fn run(dirs: &[PathBuf], woken: &Receiver<()>, empty: impl Fn(&Path)) {
    while woken.recv().is_ok() {
        for dir in dirs {
            let aside = dir.join(layout::DISCARDED);
            if let Err(left) = catch_unwind(AssertUnwindSafe(|| empty(&aside))) {
                let (path, panic) = (aside.display(), Panic::of(&*left));
                tracing::error!(%path, %panic, "the deletion of a directory panicked");
            }
        }
    }
}

/// Deletes the contents of a directory; failures are logged.
fn empty(aside: &Path) {
    let entries = match fs::read_dir(aside) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            return warn!(path = %aside.display(), %error, "cannot read a directory to delete its contents");
        }
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if let Err(error) = delete(&path) {
            warn!(path = %path.display(), %error, "cannot delete a file or directory, retrying with the next deletion");
        }
    }
}

/// Deletes a file, a link, or a directory with all in it, also where a task has taken its own
/// permissions away.
fn delete(path: &Path) -> io::Result<()> {
    let is_dir = |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.is_dir());
    if !is_dir(path)? {
        return fs::remove_file(path);
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path);
            fs::remove_dir_all(path)
        }
        removed => removed,
    }
}

/// Makes every directory of a tree one that its owner can empty.
fn open_up(root: &Path) {
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        // A failure shows at the deletion.
        let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
        left.extend(below.map(|entry| entry.path()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn wait_until_empty(dir: &Path) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::read_dir(dir.join(layout::DISCARDED)).is_ok_and(|entries| entries.count() > 0) {
            assert!(Instant::now() < deadline, "not deleted in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn trees_go_and_what_links_name_stays() {
        let root = tempfile::tempdir().unwrap();
        let (local, other) = (root.path().join("local"), root.path().join("other"));
        fs::create_dir_all(local.join("taskTracker/jobcache/job_1_1/work")).unwrap();
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("precious"), "1").unwrap();
        std::os::unix::fs::symlink(&other, local.join("taskTracker/link")).unwrap();
        let hidden = local.join("taskTracker/hidden");
        fs::create_dir_all(hidden.join("below")).unwrap();
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).unwrap();
        let deletion = Deletion::start(std::slice::from_ref(&local)).unwrap();
        deletion.discard(&local.join("taskTracker/jobcache/job_1_1")).unwrap();
        assert!(!local.join("taskTracker/jobcache/job_1_1").exists());
        fs::create_dir_all(local.join("attempt_20.1_0001_r_000000_0/intermediate.1")).unwrap();
        for kept in ["attempt_of_mine", "attempts", "job_20.1_0001"] {
            fs::create_dir(local.join(kept)).unwrap();
        }
        deletion.discard_all_in(&local);
        let mut names: Vec<_> =
            fs::read_dir(&local).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["attempt_of_mine", "attempts", "job_20.1_0001", layout::DISCARDED]);
        wait_until_empty(&local);
        assert!(other.join("precious").exists());
        deletion.discard_all_in(&local);
        deletion.discard(&local.join("never/there")).unwrap();
    }

    #[test]
    fn a_panic_keeps_nothing_else_from_being_deleted() {
        let dirs = ["a", "b"].map(PathBuf::from);
        let (wake, woken) = sync_channel(2);
        for () in [(), ()] {
            wake.send(()).unwrap();
        }
        drop(wake);
        let emptied = std::cell::RefCell::new(vec![]);
        run(&dirs, &woken, |aside| {
            emptied.borrow_mut().push(aside.to_owned());
            assert!(!aside.starts_with("a"), "a fault for a test");
        });
        let asides = dirs.map(|dir| dir.join(layout::DISCARDED));
        assert_eq!(emptied.into_inner(), [asides.clone(), asides].concat());
    }

    #[test]
    fn directories_moved_aside_by_an_earlier_run_are_deleted() {
        let root = tempfile::tempdir().unwrap();
        let old = root.path().join(layout::DISCARDED).join("1.0.job_1_1/work");
        fs::create_dir_all(&old).unwrap();
        let _deletion = Deletion::start(&[root.path().to_owned()]).unwrap();
        wait_until_empty(root.path());
    }

    #[test]
    fn nothing_outside_is_touched() {
        let root = tempfile::tempdir().unwrap();
        let (local, other) = (root.path().join("local"), root.path().join("other"));
        fs::create_dir_all(&local).unwrap();
        fs::create_dir_all(&other).unwrap();
        let deletion = Deletion::start(std::slice::from_ref(&local)).unwrap();
        for path in [&other, &local, &local.join("../other"), Path::new("relative")] {
            let refused = deletion.discard(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert!(local.exists() && other.exists());
    }
}
