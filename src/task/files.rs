//! Files of a job, on HDFS or this machine, as plain readers and writers for the threads of a task.

use std::io::{self, Read, Write};
use std::sync::Arc;

use corona_filesystem::{
    CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem, FileSystems, FileWriter, FsError,
    FsPath,
};
use corona_hadoop::writables::FileVersion;
use tokio::runtime::Handle;

use crate::counters::{Count, TaskCounters};

/// Bytes that are passed on at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// The file systems of a job.
#[derive(Debug)]
pub struct JobFiles {
    systems: FileSystems,
    runtime: Handle,
    counters: Arc<TaskCounters>,
}

impl JobFiles {
    /// The file systems of a job, served by a runtime whose threads are not those of the callers.
    pub fn new(systems: FileSystems, runtime: Handle, counters: Arc<TaskCounters>) -> JobFiles {
        JobFiles { systems, runtime, counters }
    }

    /// The file system of a path. Each call of one is progress: a commit may have many files to move.
    fn resolve(&self, path: &str) -> Result<(Arc<dyn FileSystem>, FsPath), FsError> {
        self.counters.progressed();
        self.systems.resolve(path)
    }

    /// Opens a file at a place, to be read up to `end` or a bit further.
    pub fn open(&self, path: &str, from: u64) -> Result<InputFile, FsError> {
        let (files, path) = self.resolve(path)?;
        let reader = self.runtime.block_on(files.open(&path))?;
        Ok(self.input(&*files, reader, from))
    }

    fn input(
        &self,
        files: &dyn FileSystem,
        mut reader: Box<dyn FileReader>,
        from: u64,
    ) -> InputFile {
        reader.seek(from);
        let count = match files.root().scheme() {
            "hdfs" => Count::HdfsRead,
            _ => Count::FileRead,
        };
        let (runtime, counters) = (self.runtime.clone(), self.counters.clone());
        InputFile { reader, runtime, count, counters }
    }

    /// Opens a version of a file of so many bytes at a place.
    pub fn open_version(
        &self,
        path: &str,
        from: u64,
        version: &FileVersion,
    ) -> Result<InputFile, FsError> {
        let (files, path) = self.resolve(path)?;
        let bytes = version.bytes.max(0).unsigned_abs();
        let found = FileStatus::of_version(path, bytes, version.version.clone());
        let reader = self.runtime.block_on(files.open_found(&found))?;
        Ok(self.input(&*files, reader, from))
    }

    /// Makes seen what committed tasks have written to an output. Returns whether there is such a directory.
    pub fn complete_output(&self, directory: &str) -> Result<bool, FsError> {
        let (files, path) = self.resolve(directory)?;
        self.runtime.block_on(files.complete_output(&path))
    }

    /// Makes a file, replacing one of that name.
    pub fn create(&self, path: &str) -> Result<OutputFile, FsError> {
        let (files, path) = self.resolve(path)?;
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let writer = self.runtime.block_on(files.create(&path, options))?;
        let count = match files.root().scheme() {
            "hdfs" => Count::HdfsWritten,
            _ => Count::FileWritten,
        };
        let (runtime, counters) = (self.runtime.clone(), self.counters.clone());
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        Ok(OutputFile { writer: Some(writer), buffer, runtime, count, counters })
    }

    /// The status of a path, or none if it does not exist.
    pub fn find(&self, path: &str) -> Result<Option<FileStatus>, FsError> {
        let (files, path) = self.resolve(path)?;
        self.runtime.block_on(files.find(&path))
    }

    /// The entries of a directory.
    pub fn list(&self, path: &str, most: usize) -> Result<Vec<FileStatus>, FsError> {
        let (files, path) = self.resolve(path)?;
        self.runtime.block_on(files.list(&path, most))
    }

    /// Makes a directory and those above it.
    pub fn make_dirs(&self, path: &str) -> Result<(), FsError> {
        let (files, path) = self.resolve(path)?;
        self.runtime.block_on(files.mkdirs(&path, None))
    }

    /// Deletes a file or a directory with all that is in it. False: there was none.
    pub fn delete(&self, path: &str) -> Result<bool, FsError> {
        let (files, path) = self.resolve(path)?;
        self.runtime.block_on(files.delete(&path, true))
    }

    /// Renames a file, and replaces one that has the new name.
    pub fn replace(&self, from: &str, to: &str) -> Result<(), FsError> {
        let (files, from) = self.resolve(from)?;
        let (_, to) = self.resolve(to)?;
        self.runtime.block_on(async {
            match files.rename(&from, &to).await {
                Ok(()) => Ok(()),
                Err(error)
                    if error.kind == ErrorKind::AlreadyExists
                        && files.delete(&to, false).await? =>
                {
                    files.rename(&from, &to).await
                }
                Err(error) => Err(error),
            }
        })
    }
}

/// A file that is read.
pub struct InputFile {
    reader: Box<dyn FileReader>,
    runtime: Handle,
    count: Count,
    counters: Arc<TaskCounters>,
}

impl std::fmt::Debug for InputFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InputFile").finish_non_exhaustive()
    }
}

impl InputFile {
    /// Moves to another place. Nothing from `end` on is going to be read.
    pub(crate) fn seek(&mut self, from: u64, end: u64) {
        self.reader.seek(from);
        self.reader.read_until(end);
    }
}

impl Read for InputFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.runtime.block_on(self.reader.read(buffer)).map_err(io::Error::other)?;
        self.counters.add(self.count, read as u64);
        Ok(read)
    }
}

/// A file that is written. It must be closed.
pub struct OutputFile {
    writer: Option<Box<dyn FileWriter>>,
    buffer: Vec<u8>,
    runtime: Handle,
    count: Count,
    counters: Arc<TaskCounters>,
}

impl std::fmt::Debug for OutputFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputFile").finish_non_exhaustive()
    }
}

impl OutputFile {
    fn send(&mut self) -> io::Result<()> {
        let writer = self.writer.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        self.runtime.block_on(writer.write(&self.buffer)).map_err(io::Error::other)?;
        self.counters.add(self.count, self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }

    /// Returns when the file is complete.
    pub fn close(mut self) -> io::Result<()> {
        self.send()?;
        let writer = self.writer.take().ok_or(io::ErrorKind::NotConnected)?;
        self.runtime.block_on(writer.close()).map_err(io::Error::other)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use corona_filesystem::FileSystemSettings;

    use super::*;

    #[test]
    fn a_file_is_replaced_only_by_one_that_is_there() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let systems = FileSystems::new(FileSystemSettings::default()).unwrap();
        let files = JobFiles::new(systems, runtime.handle().clone(), Arc::default());
        let at = |name: &str| format!("file:{}/{name}", dir.path().display());
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        std::fs::write(dir.path().join("old"), "old").unwrap();
        // To delete what is there would not help, and it may be the output of another attempt.
        let error = files.replace(&at("new"), &at("old")).unwrap_err();
        assert_eq!((error.kind, read("old")), (ErrorKind::NotFound, "old".to_owned()));
        std::fs::write(dir.path().join("new"), "new").unwrap();
        files.replace(&at("new"), &at("old")).unwrap();
        assert_eq!(read("old"), "new");
    }
}
