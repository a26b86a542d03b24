//! The objects that can be parameters and results, by the names of their classes.

use crate::io::formats::Constant;
use crate::io::{DecodeError, Reader, Writer};
use crate::writables::{
    Block, CleanupState, ClusterState, ClusterStatus, Configuration, ContentSummary, Counters,
    DatanodeId, DatanodeInfo, DirectoryListing, EventStatus, FilePiece, FileSplit, FsFileStatus,
    FsPermission, HdfsFileStatus, HeartbeatResponse, InetAddress, JobFilePage, JobFileStatus,
    JobId, JobPriority, JobProfile, JobQueueInfo, JobStats, JobStatus, JobTrackerState, JvmContext,
    JvmId, JvmTask, LocatedBlock, LocatedBlockWithMetaInfo, LocatedBlockWithOldGeneration,
    LocatedBlocks, LocatedBlocksWithMetaInfo, LocatedDirectoryListing, MapReduceFileSplit,
    MapTaskCompletionEventsUpdate, Named, Phase, ProtocolSignature, QueueAclsInfo, RawSplit,
    RecordRange, SafeModeAction, SessionInfo, StateUpdate, Task, TaskAttemptId,
    TaskCompletionEvent, TaskId, TaskReport, TaskState, TaskStatus, TaskTrackerAction,
    TaskTrackerStatus, VersionedLocatedBlock, VersionedLocatedBlocks,
};

/// The interface of all objects that write themselves.
const WRITABLE: &str = "org.apache.hadoop.io.Writable";

macro_rules! values {
    ($($name:ident,)*) => {
        /// An object that can be a parameter or a result.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value {
            $(
                #[doc = concat!("See [`", stringify!($name), "`].")]
                $name(Box<$name>),
            )*
        }

        impl Value {
            /// Reads the fields of an object of this class.
            ///
            /// Errors: the class is not known, or the bytes are not such an object.
            pub(super) fn decode(class: &str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                $(
                    if $name::CLASSES.contains(&class) {
                        let value = $name::decode_fields(class, reader)?;
                        return Ok(Value::$name(Box::new(value)));
                    }
                )*
                Err(DecodeError::class(class))
            }

            /// The class of the object.
            pub fn class(&self) -> &'static str {
                match self {
                    $(Value::$name(value) => value.class(),)*
                }
            }

            /// Writes the fields, without the class.
            pub(super) fn encode_fields(&self, writer: &mut Writer) {
                match self {
                    $(Value::$name(value) => value.encode_fields(writer),)*
                }
            }
        }

        $(
            impl From<$name> for Value {
                fn from(value: $name) -> Value {
                    Value::$name(Box::new(value))
                }
            }

            impl TryFrom<Value> for $name {
                type Error = Value;

                fn try_from(value: Value) -> Result<$name, Value> {
                    match value {
                        Value::$name(value) => Ok(*value),
                        other => Err(other),
                    }
                }
            }
        )*

        /// Whether this is a class of objects, or one that an interface declares for some.
        pub(super) fn object_class(name: &str) -> Option<&'static str> {
            let declared = [WRITABLE, $($name::DECLARED,)*];
            let classes = [$($name::CLASSES,)*];
            let mut all = declared.into_iter().chain(classes.into_iter().flatten().copied());
            all.find(|class| *class == name)
        }
    };
}

values! {
    Block,
    ClusterStatus,
    Configuration,
    ContentSummary,
    Counters,
    DatanodeId,
    DatanodeInfo,
    DirectoryListing,
    FilePiece,
    FileSplit,
    FsFileStatus,
    FsPermission,
    HdfsFileStatus,
    HeartbeatResponse,
    InetAddress,
    JobFilePage,
    JobFileStatus,
    JobId,
    JobProfile,
    JobQueueInfo,
    JobStats,
    JobStatus,
    JobTrackerState,
    JvmContext,
    JvmId,
    JvmTask,
    LocatedBlock,
    LocatedBlockWithMetaInfo,
    LocatedBlockWithOldGeneration,
    LocatedBlocks,
    LocatedBlocksWithMetaInfo,
    LocatedDirectoryListing,
    MapReduceFileSplit,
    MapTaskCompletionEventsUpdate,
    ProtocolSignature,
    QueueAclsInfo,
    RawSplit,
    RecordRange,
    SessionInfo,
    StateUpdate,
    Task,
    TaskAttemptId,
    TaskCompletionEvent,
    TaskId,
    TaskReport,
    TaskStatus,
    TaskTrackerAction,
    TaskTrackerStatus,
    VersionedLocatedBlock,
    VersionedLocatedBlocks,
}

macro_rules! enums {
    ($($name:ident,)*) => {
        pub(super) fn enum_class(name: &str) -> Option<&'static str> {
            [$($name::CLASS,)*].into_iter().find(|class| *class == name)
        }

        /// Whether the enum `class` has a constant of this name.
        pub(super) fn is_constant(class: &str, name: &str) -> bool {
            match class {
                $($name::CLASS => $name::from_name(name).is_some(),)*
                _ => false,
            }
        }
    };
}

enums! {
    CleanupState,
    ClusterState,
    EventStatus,
    JobPriority,
    Phase,
    SafeModeAction,
    TaskState,
}
