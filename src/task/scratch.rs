//! Where a task's intermediate files lie: in the node's local directories, where the task tracker looks
//! for them. Spec: mapreduce/04 §4.4.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::TaskError;

/// The directories of an attempt's output, one in each local directory.
#[derive(Clone, Debug)]
pub struct Scratch {
    outputs: Vec<PathBuf>,
}

impl Scratch {
    /// The outputs of an attempt below the local directories of a node.
    pub fn new(local_dirs: &[PathBuf], job: &str, attempt: &str) -> Scratch {
        let below: PathBuf = ["taskTracker", "jobcache", job, attempt, "output"].iter().collect();
        Scratch { outputs: local_dirs.iter().map(|dir| dir.join(&below)).collect() }
    }

    /// Where a new file should lie: in the directory with the most free space that can be written.
    pub fn place(&self, name: &str) -> Result<PathBuf, TaskError> {
        let mut by_space: Vec<(u64, &PathBuf)> =
            self.outputs.iter().map(|dir| (room(dir).0, dir)).collect();
        by_space.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
        let mut last = TaskError::Task("mapred.local.dir names no directory".to_owned());
        for (_, dir) in by_space {
            match fs::create_dir_all(dir) {
                Ok(()) => return Ok(dir.join(name)),
                Err(error) => last = TaskError::local(dir)(error),
            }
        }
        Err(last)
    }

    /// The most free bytes of a local directory, and the most bytes that the file system of one holds.
    pub fn room(&self) -> (u64, u64) {
        let rooms = self.outputs.iter().map(|dir| room(dir));
        rooms.fold((0, 0), |(free, all), room| (room.0.max(free), room.1.max(all)))
    }

    /// Makes a file.
    pub fn create(&self, name: &str) -> Result<(PathBuf, File), TaskError> {
        let path = self.place(name)?;
        let file = File::create(&path).map_err(TaskError::local(&path))?;
        Ok((path, file))
    }

    /// Deletes a file that is not needed any more. A file that cannot be deleted goes with the
    /// attempt.
    pub fn remove(&self, path: &Path) {
        if let Err(error) = fs::remove_file(path) {
            tracing::debug!(path = %path.display(), %error, "cannot delete an intermediate file");
        }
    }
}

/// The free bytes and all bytes of the file system where a directory is, or is going to be.
fn room(dir: &Path) -> (u64, u64) {
    let there = dir.ancestors().find(|dir| dir.exists());
    let stat = there.and_then(|dir| rustix::fs::statvfs(dir).ok());
    let bytes = |blocks: u64, size: u64| blocks.saturating_mul(size);
    stat.map_or((0, 0), |stat| {
        (bytes(stat.f_bavail, stat.f_frsize), bytes(stat.f_blocks, stat.f_frsize))
    })
}
