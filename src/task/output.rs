//! The output of a task, and its commit as Hadoop's `FileOutputCommitter` does it: a task writes
//! below `_temporary/_<attempt>`, and the files of the one attempt that may commit are moved up. Object stores have no
//! rename: there the moves are noted, and become objects when the job is complete.
//! Spec: mapreduce/05 §5.6.

use std::io::Write;

use corona_filesystem::FsError;
use corona_mapreduce::native::Codec;

use crate::codec::Compressed;
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::files::{JobFiles, OutputFile};
use crate::spill::Collector;

const TEMPORARY: &str = "_temporary";
const SUCCESS: &str = "_SUCCESS";
/// Entries of a directory of a task's output.
const MOST_ENTRIES: usize = 1_000_000;
/// Directories inside one another.
const MOST_DEPTH: usize = 100;

/// Commits the output of tasks and of their job. Without an output directory there is nothing to do.
#[derive(Debug)]
pub struct Committer<'a> {
    files: &'a JobFiles,
    output: Option<String>,
}

impl<'a> Committer<'a> {
    /// The committer of a job with this output directory.
    pub fn new(files: &'a JobFiles, output: Option<String>) -> Committer<'a> {
        let output = output.map(|dir| match dir.trim_end_matches('/') {
            "" => dir.clone(),
            trimmed => trimmed.to_owned(),
        });
        Committer { files, output }
    }

    fn below(&self, name: &str) -> Option<String> {
        self.output.as_ref().map(|output| format!("{output}/{name}"))
    }

    /// Where an attempt writes.
    pub fn work_dir(&self, attempt: &str) -> Option<String> {
        self.below(&format!("{TEMPORARY}/_{attempt}"))
    }

    /// Prepares the output directory.
    pub fn set_up_job(&self) -> Result<(), FsError> {
        self.below(TEMPORARY).map_or(Ok(()), |dir| self.files.make_dirs(&dir))
    }

    /// Ends the job: deletes leftovers of attempts, and marks an output that is complete, if it is to be marked.
    pub fn end_job(&self, is_complete: bool, is_marked: bool) -> Result<(), FsError> {
        let (Some(temporary), Some(success), Some(output)) =
            (self.below(TEMPORARY), self.below(SUCCESS), &self.output)
        else {
            return Ok(());
        };
        let is_there = is_complete && self.files.complete_output(output)?;
        self.files.delete(&temporary)?;
        if is_there && is_marked {
            let marked = self.files.create(&success)?.close();
            let io = corona_filesystem::ErrorKind::Io;
            marked.map_err(|error| FsError::new(io, "create", &success, error.to_string()))?;
        }
        Ok(())
    }

    /// Whether an attempt has an output to commit.
    pub fn needs_commit(&self, attempt: &str) -> Result<bool, FsError> {
        match self.work_dir(attempt) {
            Some(dir) => self.files.find(&dir).map(|found| found.is_some()),
            None => Ok(false),
        }
    }

    /// Moves the output of an attempt to its place.
    pub fn commit_task(&self, attempt: &str) -> Result<(), FsError> {
        let (Some(work), Some(output)) = (self.work_dir(attempt), &self.output) else {
            return Ok(());
        };
        self.move_entries(&work, output, 0)?;
        self.files.delete(&work).map(|_| ())
    }

    fn move_entries(&self, from: &str, to: &str, depth: usize) -> Result<(), FsError> {
        if depth > MOST_DEPTH {
            let why = format!("more than {MOST_DEPTH} directories inside one another");
            return Err(FsError::new(corona_filesystem::ErrorKind::Invalid, "commit", from, why));
        }
        for entry in self.files.list(from, MOST_ENTRIES)? {
            let name = entry.path.name();
            let (from, to) = (format!("{from}/{name}"), format!("{to}/{name}"));
            if entry.is_directory {
                self.files.make_dirs(&to)?;
                self.move_entries(&from, &to, depth + 1)?;
            } else {
                self.files.replace(&from, &to)?;
            }
        }
        Ok(())
    }

    /// Ends the commit of tasks of a job that nobody ends.
    pub fn complete(&self) -> Result<(), FsError> {
        match &self.output {
            Some(output) => self.files.complete_output(output).map(drop),
            None => Ok(()),
        }
    }

    /// Deletes the output of an attempt.
    pub fn abort_task(&self, attempt: &str) -> Result<(), FsError> {
        self.work_dir(attempt).map_or(Ok(()), |dir| self.files.delete(&dir).map(|_| ()))
    }
}

/// Writes records as lines: key, separator, value.
#[derive(Debug)]
pub struct TextOutput<'a> {
    out: Option<Compressed<OutputFile>>,
    buffer: Vec<u8>,
    path: String,
    separator: &'a [u8],
    /// Whether a record without a value is its key alone.
    bare_keys: bool,
    counted: Count,
    records: u64,
    counters: &'a TaskCounters,
}

/// How records become lines.
#[derive(Clone, Copy, Debug)]
pub struct TextFormat<'a> {
    /// The separator of key and value.
    pub separator: &'a [u8],
    /// Whether a record without a value is its key alone.
    pub bare_keys: bool,
    /// How the file is compressed.
    pub codec: Option<Codec>,
}

impl<'a> TextOutput<'a> {
    /// The output of a task in a directory: `part-<number>`.
    pub fn create(
        files: &JobFiles,
        dir: &str,
        partition: i32,
        format: TextFormat<'a>,
        counted: Count,
        counters: &'a TaskCounters,
    ) -> Result<TextOutput<'a>, TaskError> {
        let extension = format.codec.map_or("", Codec::extension);
        let path = format!("{dir}/part-{partition:05}{extension}");
        let out = Compressed::new(format.codec, files.create(&path)?);
        Ok(TextOutput {
            out: Some(out),
            buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
            path,
            separator: format.separator,
            bare_keys: format.bare_keys,
            counted,
            records: 0,
            counters,
        })
    }

    fn count(&mut self) {
        self.counters.add(self.counted, std::mem::take(&mut self.records));
    }

    fn send(&mut self) -> Result<(), TaskError> {
        self.count();
        let sent = self.out.as_mut().map_or(Ok(()), |out| out.write_all(&self.buffer));
        self.buffer.clear();
        sent.map_err(|error| TaskError::Output { path: self.path.clone(), error })
    }

    /// Returns when the file is complete.
    pub fn close(mut self) -> Result<(), TaskError> {
        self.send()?;
        let Some(out) = self.out.take() else { return Ok(()) };
        let closed = out.finish().and_then(OutputFile::close);
        closed.map_err(|error| TaskError::Output { path: self.path.clone(), error })
    }
}

/// Bytes that are passed on at a time.
const BUFFER_BYTES: usize = 64 << 10;

impl Collector for TextOutput<'_> {
    #[inline]
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        self.buffer.extend_from_slice(key);
        if !(self.bare_keys && value.is_empty()) {
            self.buffer.extend_from_slice(self.separator);
            self.buffer.extend_from_slice(value);
        }
        self.buffer.push(b'\n');
        self.records += 1;
        if self.counters.progressed() {
            self.count();
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.send()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_filesystem::{FileSystemSettings, FileSystems};
    use std::fs;
    use std::sync::Arc;

    fn with_files(test: impl FnOnce(&JobFiles, &str)) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let systems = FileSystems::new(FileSystemSettings::default()).unwrap();
        let files = JobFiles::new(systems, runtime.handle().clone(), Arc::default());
        test(&files, &format!("file:{}", dir.path().display()));
    }

    fn local(path: &str) -> &str {
        path.strip_prefix("file:").unwrap()
    }

    fn write(files: &JobFiles, dir: &str, records: &[(&str, &str)], format: TextFormat<'_>) {
        let counters = TaskCounters::default();
        let count = Count::ReduceOutputRecords;
        let mut output = TextOutput::create(files, dir, 3, format, count, &counters).unwrap();
        for (key, value) in records {
            output.collect(key.as_bytes(), value.as_bytes()).unwrap();
        }
        output.close().unwrap();
        assert_eq!(counters.get(count), records.len() as u64);
    }

    const PLAIN: TextFormat<'static> =
        TextFormat { separator: b"\t", bare_keys: false, codec: None };

    #[test]
    fn one_attempt_commits_and_others_leave_nothing() {
        with_files(|files, root| {
            let output = format!("{root}/out");
            let committer = Committer::new(files, Some(format!("{output}/")));
            committer.set_up_job().unwrap();
            for attempt in ["attempt_1", "attempt_2"] {
                assert!(!committer.needs_commit(attempt).unwrap());
                let dir = committer.work_dir(attempt).unwrap();
                write(files, &dir, &[("k", attempt), ("a", "")], PLAIN);
                fs::create_dir(format!("{}/side", local(&dir))).unwrap();
                fs::write(format!("{}/side/file", local(&dir)), attempt).unwrap();
                assert!(committer.needs_commit(attempt).unwrap());
            }
            // The output of an earlier attempt that committed and was lost is replaced.
            committer.commit_task("attempt_1").unwrap();
            committer.commit_task("attempt_2").unwrap();
            committer.abort_task("attempt_3").unwrap();
            assert_eq!(
                fs::read_to_string(format!("{}/part-00003", local(&output))).unwrap(),
                "k\tattempt_2\na\t\n"
            );
            assert_eq!(
                fs::read_to_string(format!("{}/side/file", local(&output))).unwrap(),
                "attempt_2"
            );
            committer.end_job(true, true).unwrap();
            let mut left: Vec<_> = fs::read_dir(local(&output))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| !name.ends_with(".crc"))
                .collect();
            left.sort();
            assert_eq!(left, ["_SUCCESS", "part-00003", "side"]);
        });
    }

    #[test]
    fn a_job_that_failed_has_no_mark() {
        with_files(|files, root| {
            let committer = Committer::new(files, Some(format!("{root}/out")));
            committer.set_up_job().unwrap();
            committer.end_job(false, true).unwrap();
            assert!(files.find(&format!("{root}/out/_SUCCESS")).unwrap().is_none());
            let nothing = Committer::new(files, None);
            nothing.set_up_job().and_then(|()| nothing.end_job(true, true)).unwrap();
            assert!(!nothing.needs_commit("attempt_1").unwrap());
        });
    }

    #[test]
    fn compressed_output_has_the_ending_of_its_codec() {
        with_files(|files, root| {
            for codec in [Codec::Gzip, Codec::Deflate] {
                let format = TextFormat { separator: b": ", codec: Some(codec), ..PLAIN };
                write(files, root, &[("k", "v")], format);
                let bytes =
                    fs::read(format!("{}/part-00003{}", local(root), codec.extension())).unwrap();
                let mut text = String::new();
                std::io::Read::read_to_string(
                    &mut crate::codec::reader(Some(codec), &bytes[..]),
                    &mut text,
                )
                .unwrap();
                assert_eq!(text, "k: v\n");
            }
            let records = [("k", "v"), ("k", "")];
            write(files, root, &records, TextFormat { bare_keys: true, ..PLAIN });
            assert_eq!(
                fs::read_to_string(format!("{}/part-00003", local(root))).unwrap(),
                "k\tv\nk\n"
            );
        });
    }
}
