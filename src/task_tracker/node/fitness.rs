//! Whether this node can take new tasks, by its own look at its disks and file descriptors.
//!
//! A node that cannot reports less free disk space than there can be ([`NO_ROOM_GB`]), for which every cluster
//! manager grants it nothing and leaves what it has granted. It knows no job and no cluster manager.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::local_dirs::LocalDirs;
use corona_process::procfs::Descriptors;

/// The free disk space that a node reports which takes no tasks, in GB: below every reserve, also that of 0.
/// Spec: cluster-manager/03 §2.
pub const NO_ROOM_GB: i32 = -1;
/// Descriptors that stay free, at most: for heartbeats, the reports of tasks that run and the outputs of maps. Fewer
/// than are left when all connections that the configuration allows are open.
const RESERVED_DESCRIPTORS: u64 = 64;
/// The part of the limit that stays free where that is less.
const RESERVED_PART: u64 = 16;

/// What a node lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LocalDirs,
    Logs,
    Descriptors,
}

/// Why a node takes no tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Obstacle {
    kind: Kind,
    text: String,
}

/// Looks at the node.
#[derive(Debug)]
pub struct Fitness {
    dirs: Arc<LocalDirs>,
    /// The directory of tasks' logs, if that is known.
    logs: Option<PathBuf>,
    last: Mutex<Vec<Obstacle>>,
}

impl Fitness {
    /// Of a node with these local directories and this directory of logs. Until the first look it takes tasks.
    pub fn new(dirs: Arc<LocalDirs>, logs: Option<PathBuf>) -> Fitness {
        Fitness { dirs, logs, last: Mutex::default() }
    }

    /// Looks whether it takes new tasks. Logs the beginning and the end of each obstacle. It blocks.
    pub fn look(&self) -> bool {
        let found = self.obstacles_now(Descriptors::now());
        let mut last = self.lock();
        let has = |list: &[Obstacle], kind| list.iter().any(|obstacle| obstacle.kind == kind);
        for obstacle in found.iter().filter(|obstacle| !has(&last, obstacle.kind)) {
            tracing::error!(why = obstacle.text, "this node takes no new tasks");
        }
        for obstacle in last.iter().filter(|obstacle| !has(&found, obstacle.kind)) {
            tracing::info!(
                was = obstacle.text,
                remaining = found.len(),
                "an obstacle to new tasks is gone"
            );
        }
        *last = found;
        last.is_empty()
    }

    /// Why it takes no new tasks, by the last look.
    pub fn obstacles(&self) -> Vec<String> {
        self.lock().iter().map(|obstacle| obstacle.text.clone()).collect()
    }

    fn obstacles_now(&self, descriptors: Descriptors) -> Vec<Obstacle> {
        let logs = self.logs.as_deref().and_then(|logs| self.dirs.lacks_room_for_logs(logs));
        let found = [
            (Kind::LocalDirs, self.dirs.shortage()),
            (Kind::Logs, logs.map(|why| format!("no room for logs: {why}"))),
            (Kind::Descriptors, too_few(descriptors)),
        ];
        let found = found.into_iter().filter_map(|(kind, text)| Some((kind, text?)));
        found.map(|(kind, text)| Obstacle { kind, text }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Obstacle>> {
        // The list is replaced as a whole.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether descriptors run out, of this process or of the machine.
fn too_few(descriptors: Descriptors) -> Option<String> {
    let Descriptors { open, limit, open_of_all, limit_of_all } = descriptors;
    let lacks = |open: u64, limit: u64| {
        limit > 0 && limit.saturating_sub(open) < (limit / RESERVED_PART).min(RESERVED_DESCRIPTORS)
    };
    if lacks(open, limit) {
        return Some(format!(
            "{open} of {limit} file descriptors are open; raise the limit (ulimit -n)"
        ));
    }
    lacks(open_of_all, limit_of_all).then(|| {
        format!("{open_of_all} of the machine's {limit_of_all} files are open (fs.file-max)")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::local_dirs::tests::settings;
    use corona_config::LocalSettings;

    const NONE: Descriptors = Descriptors { open: 0, limit: 0, open_of_all: 0, limit_of_all: 0 };

    #[test]
    fn descriptors_run_out_before_the_last_one() {
        let table = [
            (NONE, None),
            (Descriptors { open: 960, limit: 1024, ..NONE }, None),
            (
                Descriptors { open: 961, limit: 1024, ..NONE },
                Some("961 of 1024 file descriptors are open; raise the limit (ulimit -n)"),
            ),
            (Descriptors { open: 1_000_000 - 64, limit: 1_000_000, ..NONE }, None),
            (
                Descriptors {
                    open: 2000,
                    limit: 1_000_000,
                    open_of_all: 999_990,
                    limit_of_all: 1_000_000,
                },
                Some("999990 of the machine's 1000000 files are open (fs.file-max)"),
            ),
        ];
        for (descriptors, expected) in table {
            assert_eq!(too_few(descriptors).as_deref(), expected, "{descriptors:?}");
        }
    }

    #[test]
    fn a_node_takes_tasks_again_when_it_is_well() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("l");
        let dirs = Arc::new(LocalDirs::open(&settings(&[&dir])).unwrap());
        let fitness = Fitness::new(dirs.clone(), None);
        assert!(fitness.look() && fitness.obstacles().is_empty());
        // A file where the directory should be fails for a privileged user too.
        fs::remove_dir_all(&dir).unwrap();
        fs::write(&dir, "").unwrap();
        dirs.check(|_| {});
        assert!(!fitness.look());
        let told = fitness.obstacles();
        assert!(
            told.len() == 1 && told[0].starts_with("no local directory can be used: /"),
            "{told:?}"
        );
        fs::remove_file(&dir).unwrap();
        dirs.check(|_| {});
        assert!(fitness.look() && fitness.obstacles().is_empty());
    }

    #[test]
    fn a_node_keeps_its_reserve_free() {
        let root = tempfile::tempdir().unwrap();
        let reserved =
            LocalSettings { min_space_start_bytes: u64::MAX, ..settings(&[root.path()]) };
        let dirs = Arc::new(LocalDirs::open(&reserved).unwrap());
        let fitness = Fitness::new(dirs, Some(root.path().to_owned()));
        assert!(!fitness.look());
        let told = fitness.obstacles();
        assert!(told[0].starts_with("no local directory has room for new tasks: /"), "{told:?}");
        assert!(told[0].contains(" bytes free, fewer than"), "{told:?}");
        assert_eq!(told.len(), 1, "the setting does not concern logs: {told:?}");
    }
}
