//! The output of a task, and its commit as Hadoop's `FileOutputCommitter` does it: a task writes
//! below `_temporary/_<attempt>`, and the files of the one attempt that may commit are moved up. Object stores have no
//! rename: there the moves are noted, and become objects when the job is complete.
//! Spec: mapreduce/05 §5.6.

use std::io::Write;

use corona_filesystem::FsError;
use corona_mapreduce::native::{Codec, OutputFormat};

use crate::codec::Compressed;
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::files::{JobFiles, OutputFile};
use crate::sequence_file::{SequenceFile, random_mark};
use crate::spill::Collector;
use crate::vint;

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

/// The class of keys and values of sequence files.
const TEXT: &str = "org.apache.hadoop.io.Text";
/// Bytes that are passed on at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes the records of a task.
#[derive(Debug)]
pub struct RecordOutput<'a> {
    writer: Writer<'a>,
    path: String,
    counted: Count,
    records: u64,
    counters: &'a TaskCounters,
}

#[derive(Debug)]
enum Writer<'a> {
    /// Lines: key, separator, value.
    Lines { out: Compressed<OutputFile>, buffer: Vec<u8>, format: RecordFormat<'a> },
    /// Keys and values as texts. The buffers are for their bytes.
    Sequence { out: SequenceFile<OutputFile>, key: Vec<u8>, value: Vec<u8> },
}

/// How records are written.
#[derive(Clone, Copy, Debug)]
pub struct RecordFormat<'a> {
    /// What the files are.
    pub files: OutputFormat,
    /// The separator of key and value in a line.
    pub separator: &'a [u8],
    /// Whether the line of a record without a value is its key alone.
    pub bare_keys: bool,
}

impl<'a> RecordOutput<'a> {
    /// The output of a task in a directory: `part-<number>`.
    pub fn create(
        files: &JobFiles,
        dir: &str,
        partition: i32,
        format: RecordFormat<'a>,
        counted: Count,
        counters: &'a TaskCounters,
    ) -> Result<RecordOutput<'a>, TaskError> {
        let extension = match format.files {
            OutputFormat::Text(codec) => codec.map_or("", Codec::extension),
            OutputFormat::Sequence(_) => "",
        };
        let path = format!("{dir}/part-{partition:05}{extension}");
        let file = files.create(&path)?;
        let writer = match format.files {
            OutputFormat::Text(codec) => Writer::Lines {
                out: Compressed::new(codec, file),
                buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
                format,
            },
            OutputFormat::Sequence(compression) => {
                let out = SequenceFile::new(file, TEXT, TEXT, compression, random_mark());
                let out = out.map_err(|error| TaskError::Output { path: path.clone(), error })?;
                Writer::Sequence { out, key: Vec::new(), value: Vec::new() }
            }
        };
        Ok(RecordOutput { writer, path, counted, records: 0, counters })
    }

    fn count(&mut self) {
        self.counters.add(self.counted, std::mem::take(&mut self.records));
    }

    /// Returns when the file is complete.
    pub fn close(mut self) -> Result<(), TaskError> {
        self.count();
        let RecordOutput { writer, path, .. } = self;
        let finished = match writer {
            Writer::Lines { mut out, buffer, .. } => {
                out.write_all(&buffer).and_then(|()| out.finish())
            }
            Writer::Sequence { out, .. } => out.finish(),
        };
        let closed = finished.and_then(OutputFile::close);
        closed.map_err(|error| TaskError::Output { path, error })
    }
}

impl Writer<'_> {
    #[inline]
    fn write(&mut self, key: &[u8], value: &[u8]) -> std::io::Result<()> {
        match self {
            Writer::Lines { out, buffer, format } => {
                buffer.extend_from_slice(key);
                if !(format.bare_keys && value.is_empty()) {
                    buffer.extend_from_slice(format.separator);
                    buffer.extend_from_slice(value);
                }
                buffer.push(b'\n');
                if buffer.len() < BUFFER_BYTES {
                    return Ok(());
                }
                let sent = out.write_all(buffer);
                buffer.clear();
                sent
            }
            Writer::Sequence { out, key: key_bytes, value: value_bytes } => {
                for (text, bytes) in [(key, &mut *key_bytes), (value, &mut *value_bytes)] {
                    bytes.clear();
                    vint::put_text(text, bytes);
                }
                out.append(key_bytes, value_bytes)
            }
        }
    }
}

impl Collector for RecordOutput<'_> {
    #[inline]
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        self.records += 1;
        if self.counters.progressed() {
            self.count();
        }
        let written = self.writer.write(key, value);
        written.map_err(|error| TaskError::Output { path: self.path.clone(), error })
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

    fn write(files: &JobFiles, dir: &str, records: &[(&str, &str)], format: RecordFormat<'_>) {
        let counters = TaskCounters::default();
        let count = Count::ReduceOutputRecords;
        let mut output = RecordOutput::create(files, dir, 3, format, count, &counters).unwrap();
        for (key, value) in records {
            output.collect(key.as_bytes(), value.as_bytes()).unwrap();
        }
        output.close().unwrap();
        assert_eq!(counters.get(count), records.len() as u64);
    }

    const PLAIN: RecordFormat<'static> =
        RecordFormat { files: OutputFormat::Text(None), separator: b"\t", bare_keys: false };

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
                let format = RecordFormat {
                    files: OutputFormat::Text(Some(codec)),
                    separator: b": ",
                    ..PLAIN
                };
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
            write(files, root, &records, RecordFormat { bare_keys: true, ..PLAIN });
            assert_eq!(
                fs::read_to_string(format!("{}/part-00003", local(root))).unwrap(),
                "k\tv\nk\n"
            );
        });
    }

    #[test]
    fn sequence_files_have_keys_and_values_of_their_records() {
        use corona_mapreduce::native::SequenceCompression::{Blocks, None, Records};
        let codec = Codec::Bzip2;
        for compression in [None, Records(Codec::Deflate), Blocks { codec, bytes: 10 }] {
            with_files(|files, root| {
                let records = [("k", "v"), ("a long key\n", ""), ("", "b")];
                let files_format = OutputFormat::Sequence(compression);
                write(files, root, &records, RecordFormat { files: files_format, ..PLAIN });
                let file = fs::File::open(format!("{}/part-00003", local(root))).unwrap();
                let mut text = crate::sequence_file::SequenceText::new(file, 1000).unwrap();
                let mut lines = String::new();
                std::io::Read::read_to_string(&mut text, &mut lines).unwrap();
                assert_eq!(lines, "k\tv\na long key\n\t\n\tb\n", "{compression:?}");
            });
        }
    }
}
