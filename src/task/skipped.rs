//! Leaves out the records, or groups of a reduce, that an attempt skips, and writes them to a file of the
//! job. Spec: mapreduce/09 §C.

use corona_mapreduce::native::{Codec, SEQUENCE_BLOCK_BYTES, SequenceCompression};

use crate::child::Work;
use crate::error::TaskError;
use crate::files::{JobFiles, OutputFile};
use crate::sequence_file::{SequenceFile, random_mark};
use crate::skip::KeptRecords;
use crate::status::Status;

/// The group of the counters that report processed records, and their names for maps and reduces.
pub(crate) const GROUP: &str = "SkippingTaskCounters";
pub(crate) const PROCESSED_RECORDS: &str = "MapProcessedRecords";
pub(crate) const PROCESSED_GROUPS: &str = "ReduceProcessedGroups";

const LONG: &str = "org.apache.hadoop.io.LongWritable";
const TEXT: &str = "org.apache.hadoop.io.Text";
/// As the original has them.
const COMPRESSION: SequenceCompression =
    SequenceCompression::Blocks { codec: Codec::Deflate, bytes: SEQUENCE_BLOCK_BYTES };

/// Decides which records are left out.
pub(crate) struct Skipped<'a> {
    kept: KeptRecords,
    /// The number of the next record that is kept. None: all further ones are left out.
    wanted: Option<i64>,
    /// The number of the next record.
    record: i64,
    status: &'a Status,
    target: Option<Target<'a>>,
    file: Option<SequenceFile<OutputFile>>,
}

/// Where records that are left out are written.
struct Target<'a> {
    files: &'a JobFiles,
    directory: String,
    path: String,
    /// The classes of keys and values.
    classes: [String; 2],
}

impl<'a> Skipped<'a> {
    /// What an attempt leaves out. None: it does not skip.
    pub(crate) fn of(work: &'a Work<'_>) -> Option<Skipped<'a>> {
        let task = work.task();
        if !task.skipping {
            return None;
        }
        let status = &*work.status;
        status.start_skipping(&task.skip.ranges);
        let directory = work.skip_output_dir().filter(|_| task.write_skipped);
        let target = directory.map(|directory| Target {
            files: work.files,
            path: format!("{directory}/{}", task.attempt),
            directory,
            classes: [if task.is_map() { LONG } else { TEXT }, TEXT].map(str::to_owned),
        });
        let mut kept = KeptRecords::new(&task.skip.ranges);
        Some(Skipped { wanted: kept.next(), kept, record: 0, status, target, file: None })
    }

    /// Records are written with keys and values of these classes.
    pub(crate) fn with_classes(mut self, key: &str, value: &str) -> Skipped<'a> {
        if let Some(target) = &mut self.target {
            target.classes = [key, value].map(str::to_owned);
        }
        self
    }

    /// Whether all further records are left out, and need not be read.
    pub(crate) fn is_over(&self) -> bool {
        self.wanted.is_none()
    }

    /// Whether the next record is kept.
    pub(crate) fn keeps_next(&mut self) -> Result<bool, TaskError> {
        let record = self.record;
        self.record += 1;
        if self.wanted != Some(record) {
            return Ok(false);
        }
        self.wanted = self.kept.next();
        if self.kept.is_behind_ranges() {
            self.close()?;
        }
        self.status.read_record(record);
        Ok(true)
    }

    /// Writes down a record that is left out: key and value as Hadoop writes them.
    pub(crate) fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        let Some(target) = &self.target else { return Ok(()) };
        let wrong = |error| TaskError::Output { path: target.path.clone(), error };
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                target.files.make_dirs(&target.directory)?;
                let out = target.files.create(&target.path)?;
                let [key, value] = &target.classes;
                let file = SequenceFile::new(out, key, value, COMPRESSION, random_mark());
                none.insert(file.map_err(wrong)?)
            }
        };
        file.append(key, value).map_err(wrong)
    }

    /// There are no further records.
    pub(crate) fn end(&mut self) -> Result<(), TaskError> {
        self.status.read_record(self.record);
        self.close()
    }

    fn close(&mut self) -> Result<(), TaskError> {
        let (Some(file), Some(target)) = (self.file.take(), &self.target) else { return Ok(()) };
        let closed = file.finish().and_then(OutputFile::close);
        closed.map_err(|error| TaskError::Output { path: target.path.clone(), error })
    }
}
