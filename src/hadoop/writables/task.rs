//! A task as it is handed to a tracker and on to a child. Spec: mapreduce/02 §2.6.

use super::task_status::Tagged;
use super::{Named, RecordRange, Split, TaskAttemptId, TaskState, TaskStatus, constants, writable};
use crate::io::formats::{Bool, Bytes, Enum, Format, Int, List, Long, Plain, Text, Writable};
use crate::io::{DecodeError, Reader, Writer};

constants! {
    /// How a job ended, for the task that cleans up after it.
    pub enum CleanupState: "org.apache.hadoop.mapreduce.JobStatus$State" {
        /// It has not ended.
        Running = "RUNNING",
        /// Its output is to be committed.
        Succeeded = "SUCCEEDED",
        /// Its output is to be aborted, since it failed.
        Failed = "FAILED",
        /// It has not begun.
        Prep = "PREP",
        /// Its output is to be aborted, since it was killed.
        Killed = "KILLED",
    }
}

writable! {
    /// Records that a task leaves out.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct SkipRanges {
        /// How many records there are in the ranges.
        pub records: i64 as Long,
        /// The ranges, in order.
        pub ranges: Vec<RecordRange> as List<Int, Plain>,
    }
}

/// A task with all that a child needs to run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Where the job's configuration is: a URI from a job tracker, a local path for a child.
    pub job_file: String,
    /// The attempt at a task that this is.
    pub attempt: TaskAttemptId,
    /// Its number among the maps or the reduces of the job.
    pub partition: i32,
    /// The slots that it takes.
    pub slots: i32,
    /// Its status. The child reports counters only if this has some, even an empty list.
    pub status: TaskStatus,
    /// Records that it leaves out.
    pub skip: SkipRanges,
    /// Whether records may be skipped.
    pub skipping: bool,
    /// If it cleans up after the job: how the job ended.
    pub job_cleanup: Option<CleanupState>,
    /// Whether it prepares the job.
    pub job_setup: bool,
    /// Whose job it is.
    pub user: String,
    /// Whether skipped records are written down.
    pub write_skipped: bool,
    /// Whether it cleans up after an attempt that failed or was killed.
    pub task_cleanup: bool,
    /// Nothing, as far as is known.
    pub extra_data: Vec<u8>,
    /// Fields that are particular to maps and to reduces.
    pub kind: TaskKind,
}

/// Fields that are particular to maps and to reduces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A map, or a task that prepares or cleans up in a map's slot.
    Map {
        /// Its input. Tasks that only prepare or clean up have no input, and none is written for
        /// them.
        split: Option<Split>,
    },
    /// A reduce, or a task that prepares or cleans up in a reduce's slot.
    Reduce {
        /// How many maps the job has.
        maps: i32,
    },
}

impl Task {
    /// A task that runs the user's code and has not begun, with an empty list of counters.
    pub fn new(attempt: TaskAttemptId, job_file: String, user: String, kind: TaskKind) -> Task {
        let status = TaskStatus {
            output_size: 0,
            counters: Some(super::Counters::default()),
            ..TaskStatus::new(attempt.clone(), TaskState::Unassigned)
        };
        Task {
            job_file,
            partition: attempt.task.number,
            attempt,
            slots: 1,
            status,
            skip: SkipRanges::default(),
            skipping: false,
            job_cleanup: None,
            job_setup: false,
            user,
            write_skipped: true,
            task_cleanup: false,
            extra_data: Vec::new(),
            kind,
        }
    }

    /// Whether its kind is [`TaskKind::Map`].
    pub fn is_map(&self) -> bool {
        matches!(self.kind, TaskKind::Map { .. })
    }

    /// Whether it runs the user's code: it neither prepares nor cleans up.
    pub fn is_work(&self) -> bool {
        self.job_cleanup.is_none() && !self.job_setup && !self.task_cleanup
    }

    /// The memory that it takes, roughly, in bytes.
    pub fn bytes(&self) -> usize {
        let split = match &self.kind {
            TaskKind::Map { split: Some(split) } => split.class.len() + split.data.len(),
            _ => 0,
        };
        let status = &self.status;
        let fetches = status.reduce.as_ref().map_or(0, |reduce| reduce.failed_fetches.len());
        let texts = [&self.job_file, &self.user, &status.diagnostics, &status.state_string];
        size_of::<Task>()
            + split
            + self.extra_data.len()
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + status.counters.as_ref().map_or(0, super::Counters::bytes)
            + self.skip.ranges.len() * size_of::<RecordRange>()
            + fetches * size_of::<TaskAttemptId>()
    }

    /// Reads a map or a reduce.
    pub fn decode(is_map: bool, reader: &mut Reader<'_>) -> Result<Task, DecodeError> {
        let job_file = Text::decode(reader)?;
        let attempt = Plain::decode(reader)?;
        let partition = Int::decode(reader)?;
        let slots = Int::decode(reader)?;
        let status = TaskStatus::decode(is_map, reader)?;
        let skip = Plain::decode(reader)?;
        let skipping = Bool::decode(reader)?;
        let job_cleanup = Bool::decode(reader)?.then(|| Enum::decode(reader)).transpose()?;
        let job_setup = Bool::decode(reader)?;
        let user = Text::decode(reader)?;
        let write_skipped = Bool::decode(reader)?;
        let task_cleanup = Bool::decode(reader)?;
        let extra_data = Bytes::decode(reader)?;
        let is_work = job_cleanup.is_none() && !job_setup && !task_cleanup;
        let kind = match is_map {
            true => TaskKind::Map { split: is_work.then(|| Plain::decode(reader)).transpose()? },
            false => TaskKind::Reduce { maps: Int::decode(reader)? },
        };
        Ok(Task {
            job_file,
            attempt,
            partition,
            slots,
            status,
            skip,
            skipping,
            job_cleanup,
            job_setup,
            user,
            write_skipped,
            task_cleanup,
            extra_data,
            kind,
        })
    }

    /// Writes it without a word on whether it is a map. A split is written only for a task that has
    /// one to read; one that should have it and has none gets an empty one.
    pub fn encode(&self, writer: &mut Writer) {
        writer.text(&self.job_file);
        self.attempt.encode(writer);
        writer.i32(self.partition);
        writer.i32(self.slots);
        self.encode_status(writer);
        self.skip.encode(writer);
        writer.bool(self.skipping);
        writer.bool(self.job_cleanup.is_some());
        if let Some(state) = &self.job_cleanup {
            Enum::encode(state, writer);
        }
        writer.bool(self.job_setup);
        writer.text(&self.user);
        writer.bool(self.write_skipped);
        writer.bool(self.task_cleanup);
        Bytes::encode(&self.extra_data, writer);
        match &self.kind {
            TaskKind::Map { split: Some(split) } if self.is_work() => split.encode(writer),
            TaskKind::Map { split: None } if self.is_work() => Split::default().encode(writer),
            TaskKind::Map { .. } => {}
            TaskKind::Reduce { maps } => writer.i32(*maps),
        }
    }

    /// The kind of the task determines how the status is read, whatever the status contains.
    fn encode_status(&self, writer: &mut Writer) {
        if self.status.is_map() == self.is_map() {
            return self.status.encode(writer);
        }
        let reduce = (!self.is_map()).then(Default::default);
        TaskStatus { reduce, ..self.status.clone() }.encode(writer);
    }
}

impl Format<Task> for Tagged {
    fn decode(reader: &mut Reader<'_>) -> Result<Task, DecodeError> {
        let is_map = reader.bool()?;
        Task::decode(is_map, reader)
    }

    fn encode(value: &Task, writer: &mut Writer) {
        writer.bool(value.is_map());
        value.encode(writer);
    }
}

const MAP: &str = "org.apache.hadoop.mapred.MapTask";
const REDUCE: &str = "org.apache.hadoop.mapred.ReduceTask";

impl Named for Task {
    const DECLARED: &'static str = "org.apache.hadoop.mapred.Task";
    const ARRAY: &'static str = "[Lorg.apache.hadoop.mapred.Task;";
    const CLASSES: &'static [&'static str] = &[MAP, REDUCE];

    fn class(&self) -> &'static str {
        if self.is_map() { MAP } else { REDUCE }
    }

    fn decode_fields(class: &str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Task::decode(class == MAP, reader)
    }

    fn encode_fields(&self, writer: &mut Writer) {
        self.encode(writer);
    }
}

writable! {
    /// The reply to a child that asks for a task. Neither an end nor a task: ask again later.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct JvmTask: "org.apache.hadoop.mapred.JvmTask" {
        /// Whether the child is to end.
        pub should_die: bool as Bool,
        /// The task to run.
        pub task: Option<Task> as IfAny,
    }
}

/// A task, if there is one, after a `boolean` that indicates whether.
#[derive(Debug)]
struct IfAny;

impl Format<Option<Task>> for IfAny {
    fn decode(reader: &mut Reader<'_>) -> Result<Option<Task>, DecodeError> {
        reader.bool()?.then(|| Tagged::decode(reader)).transpose()
    }

    fn encode(value: &Option<Task>, writer: &mut Writer) {
        writer.bool(value.is_some());
        if let Some(task) = value {
            Tagged::encode(task, writer);
        }
    }
}
