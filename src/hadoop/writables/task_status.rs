//! The status of a task attempt. Spec: mapreduce/02 §2.3.

use super::{Counters, Named, TaskAttemptId, constants, writable};
use crate::io::formats::{Enum, Float, Format, Int, List, Long, Plain, Text, Writable};
use crate::io::{DecodeError, Reader, Writer};

constants! {
    /// The state of an attempt.
    pub enum TaskState: "org.apache.hadoop.mapred.TaskStatus$State" {
        /// It runs.
        Running = "RUNNING",
        /// It has done its work.
        Succeeded = "SUCCEEDED",
        /// It has failed, and its cleanup is done.
        Failed = "FAILED",
        /// It has not begun.
        Unassigned = "UNASSIGNED",
        /// It was killed, and its cleanup is done.
        Killed = "KILLED",
        /// It waits for the permission to commit its output.
        CommitPending = "COMMIT_PENDING",
        /// It has failed, and its output is to be cleaned up.
        FailedUnclean = "FAILED_UNCLEAN",
        /// It was killed, and its output is to be cleaned up.
        KilledUnclean = "KILLED_UNCLEAN",
    }
}

constants! {
    /// The phase of an attempt.
    pub enum Phase: "org.apache.hadoop.mapred.TaskStatus$Phase" {
        /// Before its first phase.
        Starting = "STARTING",
        /// Mapping.
        Map = "MAP",
        /// A reduce that fetches map outputs.
        Shuffle = "SHUFFLE",
        /// A reduce that merges them.
        Sort = "SORT",
        /// Reducing.
        Reduce = "REDUCE",
        /// Cleaning up.
        Cleanup = "CLEANUP",
    }
}

writable! {
    /// Records of a task's input, used to skip bad ones.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RecordRange: "org.apache.hadoop.mapred.SortedRanges$Range" {
        /// The first record.
        pub start: i64 as Long,
        /// How many.
        pub length: i64 as Long,
    }
}

writable! {
    /// Fields that only reduces have.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ReduceProgress {
        /// When the last map output was there; milliseconds since the Unix epoch, 0 if it is not.
        pub shuffle_finish_time_ms: i64 as Long,
        /// When the merge was done; milliseconds since the Unix epoch, 0 if it is not.
        pub sort_finish_time_ms: i64 as Long,
        /// Maps whose output could not be fetched.
        pub failed_fetches: Vec<TaskAttemptId> as List<Int, Plain>,
    }
}

/// The status of an attempt.
///
/// Nothing on the wire distinguishes a map's status from a reduce's: the reader knows it from the
/// context, so there is no single way to decode it. See [`decode`](TaskStatus::decode).
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStatus {
    /// The attempt that it reports on.
    pub attempt: TaskAttemptId,
    /// From 0 to 1.
    pub progress: f32,
    /// The slots that it takes.
    pub slots: i32,
    /// Where the attempt stands.
    pub state: TaskState,
    /// New diagnostics; readers append them to earlier ones.
    pub diagnostics: String,
    /// The task's own status text.
    pub state_string: String,
    /// The current phase.
    pub phase: Phase,
    /// Milliseconds since the Unix epoch, 0 if it has not begun.
    pub start_time_ms: i64,
    /// Milliseconds since the Unix epoch, 0 if it has not ended.
    pub finish_time_ms: i64,
    /// Bytes of a map's output, -1 if not known.
    pub output_size: i64,
    /// Its counters, if they are reported. A child reports them only if its task came with some,
    /// even an empty list.
    pub counters: Option<Counters>,
    /// The records that it will read next.
    pub next_records: RecordRange,
    /// Further fields of a reduce; the status is a map's if it is `None`.
    pub reduce: Option<ReduceProgress>,
}

impl TaskStatus {
    /// The status of an attempt that has reported nothing yet. A reduce is in its shuffle.
    pub fn new(attempt: TaskAttemptId, state: TaskState) -> TaskStatus {
        let is_map = attempt.task.is_map;
        TaskStatus {
            attempt,
            progress: 0.0,
            slots: 1,
            state,
            diagnostics: String::new(),
            state_string: String::new(),
            phase: if is_map { Phase::Map } else { Phase::Shuffle },
            start_time_ms: 0,
            finish_time_ms: 0,
            output_size: -1,
            counters: None,
            next_records: RecordRange::default(),
            reduce: (!is_map).then(ReduceProgress::default),
        }
    }

    /// Whether it is a map's.
    pub fn is_map(&self) -> bool {
        self.reduce.is_none()
    }

    /// Reads the status of a map or of a reduce.
    pub fn decode(is_map: bool, reader: &mut Reader<'_>) -> Result<TaskStatus, DecodeError> {
        let attempt = Plain::decode(reader)?;
        let progress = Float::decode(reader)?;
        let slots = Int::decode(reader)?;
        let state = Enum::decode(reader)?;
        let diagnostics = Text::decode(reader)?;
        let state_string = Text::decode(reader)?;
        let phase = Enum::decode(reader)?;
        let start_time_ms = Long::decode(reader)?;
        let finish_time_ms = Long::decode(reader)?;
        let has_counters = reader.bool()?;
        Ok(TaskStatus {
            attempt,
            progress,
            slots,
            state,
            diagnostics,
            state_string,
            phase,
            start_time_ms,
            finish_time_ms,
            output_size: Long::decode(reader)?,
            counters: has_counters.then(|| Plain::decode(reader)).transpose()?,
            next_records: Plain::decode(reader)?,
            reduce: (!is_map).then(|| Plain::decode(reader)).transpose()?,
        })
    }

    /// Writes it without a word on whether it is a map's.
    pub fn encode(&self, writer: &mut Writer) {
        self.attempt.encode(writer);
        writer.f32(self.progress);
        writer.i32(self.slots);
        Enum::encode(&self.state, writer);
        writer.text(&self.diagnostics);
        writer.text(&self.state_string);
        Enum::encode(&self.phase, writer);
        writer.i64(self.start_time_ms);
        writer.i64(self.finish_time_ms);
        writer.bool(self.counters.is_some());
        writer.i64(self.output_size);
        if let Some(counters) = &self.counters {
            counters.encode(writer);
        }
        self.next_records.encode(writer);
        if let Some(reduce) = &self.reduce {
            reduce.encode(writer);
        }
    }
}

/// A status or a task after a `boolean` that indicates whether it is a map's.
#[derive(Debug)]
pub(super) struct Tagged;

impl Format<TaskStatus> for Tagged {
    fn decode(reader: &mut Reader<'_>) -> Result<TaskStatus, DecodeError> {
        let is_map = reader.bool()?;
        TaskStatus::decode(is_map, reader)
    }

    fn encode(value: &TaskStatus, writer: &mut Writer) {
        writer.bool(value.is_map());
        value.encode(writer);
    }
}

const MAP: &str = "org.apache.hadoop.mapred.MapTaskStatus";
const REDUCE: &str = "org.apache.hadoop.mapred.ReduceTaskStatus";

impl Named for TaskStatus {
    const DECLARED: &'static str = "org.apache.hadoop.mapred.TaskStatus";
    const ARRAY: &'static str = "[Lorg.apache.hadoop.mapred.TaskStatus;";
    const CLASSES: &'static [&'static str] = &[MAP, REDUCE];

    fn class(&self) -> &'static str {
        if self.is_map() { MAP } else { REDUCE }
    }

    fn decode_fields(class: &str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        TaskStatus::decode(class == MAP, reader)
    }

    fn encode_fields(&self, writer: &mut Writer) {
        self.encode(writer);
    }
}
