//! The objects that the programs of a cluster send each other, with the exact bytes of each.
//!
//! Knows bytes, and no connection and no cluster; the readers of objects interpret them. Each file
//! is a family, described field by field; [`Value`](crate::object::Value) gathers those that can be
//! parameters and results. Spec: mapreduce/02.

mod actions;
mod cluster;
mod configuration;
mod counters;
mod events;
mod failover;
mod files;
mod hdfs;
mod ids;
mod jobs;
mod macros;
mod map_output;
mod names;
mod session;
mod splits;
mod statistics;
mod task;
mod task_status;
#[cfg(test)]
pub(crate) mod tests;
mod tracker;

pub use actions::{Action, HeartbeatResponse, TaskTrackerAction};
pub use cluster::{ClusterState, ClusterStatus, TrackerTasks};
pub use configuration::{Configuration, Property};
pub use counters::{Counter, CounterGroup, Counters};
pub use events::{
    EventStatus, MapTaskCompletionEventsUpdate, ProtocolSignature, TaskCompletionEvent,
};
pub use failover::{
    JobTrackerState, StateUpdate, TaskLaunch, TaskStatusUpdate, TaskTimeout, TaskTrackerInfo,
    Update,
};
pub use files::{FilePiece, JobFileEntry, JobFilePage, JobFileStatus};
pub use hdfs::{
    Block, ContentSummary, DatanodeAdminState, DatanodeId, DatanodeInfo, DirectoryListing,
    FsFileStatus, FsPermission, HdfsFileStatus, LocatedBlock, LocatedBlockWithMetaInfo,
    LocatedBlockWithOldGeneration, LocatedBlocks, LocatedBlocksWithMetaInfo,
    LocatedDirectoryListing, SafeModeAction, VersionedLocatedBlock, VersionedLocatedBlocks,
};
pub use ids::{JobId, JvmContext, JvmId, TaskAttemptId, TaskId};
pub use jobs::{
    JobPriority, JobProfile, JobQueueInfo, JobStatus, QueueAclsInfo, TaskReport, TaskReportState,
};
pub use map_output::{IndexRecord, ShuffleHeader, SpillIndex};
pub use names::NameError;
pub use session::{InetAddress, SessionInfo, SessionTrackers};
pub use splits::{FileSplit, FileVersion, MapReduceFileSplit, RawSplit, Split, SplitFile};
pub use statistics::JobStats;
pub use task::{CleanupState, JvmTask, SkipRanges, Task, TaskKind};
pub use task_status::{Phase, RecordRange, ReduceProgress, TaskState, TaskStatus};
pub use tracker::{NodeHealth, ResourceStatus, TaskTrackerStatus};

pub(crate) use macros::{constants, named, writable};

use super::io::{DecodeError, Reader, Writer, formats::Writable};

/// An object that can be a parameter, a result, or an item of an array: it is sent with the names
/// of two classes, the declared one of the interface and its own.
pub trait Named: Sized {
    /// The class that interfaces declare.
    const DECLARED: &'static str;
    /// The class of an array of them, in Java's form `[Lname;`.
    const ARRAY: &'static str;
    /// The classes that objects of this type can have.
    const CLASSES: &'static [&'static str];

    /// The class of this object.
    fn class(&self) -> &'static str;

    /// Reads the fields of an object of this class, one of [`CLASSES`](Named::CLASSES).
    fn decode_fields(class: &str, reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Writes the fields of this object. The class that they belong to is stored elsewhere.
    fn encode_fields(&self, writer: &mut Writer);
}

/// The bytes of an object.
///
/// Errors: they would be more than `max_bytes`.
pub fn to_bytes(object: &impl Writable, max_bytes: usize) -> Result<Vec<u8>, super::io::TooLarge> {
    let mut writer = Writer::new(max_bytes);
    object.encode(&mut writer);
    writer.finish()
}
