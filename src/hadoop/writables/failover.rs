//! The state that a remote job tracker leaves with its parent, so that another can take its place.
//! Spec: mapreduce/02 §2.10.

use super::task_status::Tagged;
use super::{InetAddress, TaskAttemptId, TaskStatus, TaskTrackerStatus, writable};
use crate::io::formats::{Byte, Format, Int, List, Plain, Text, VInt, VLong, WString, Writable};
use crate::io::{DecodeError, Reader, Writer};

writable! {
    /// An attempt has been reported by a tracker.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TaskStatusUpdate {
        /// The reported status.
        pub status: TaskStatus as Tagged,
        /// The reporting tracker.
        pub tracker: Option<String> as WString,
    }
}

writable! {
    /// An attempt has been sent to a tracker.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TaskLaunch {
        /// The attempt that was sent.
        pub attempt: TaskAttemptId as Plain,
        /// The tracker's name.
        pub tracker: Option<String> as WString,
        /// Where the tracker takes actions.
        pub address: InetAddress as Plain,
        /// The grant that is used, -1 if none.
        pub grant: i32 as VInt,
    }
}

writable! {
    /// A tracker in use.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TaskTrackerInfo {
        /// Its name, the same as in its heartbeats to the cluster manager.
        pub name: String as Text,
        /// The name of its host.
        pub host: String as Text,
        /// Where it serves map outputs and logs.
        pub http_port: i32 as Int,
    }
}

writable! {
    /// A tracker has sent no heartbeat for too long.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TaskTimeout {
        /// Its name.
        pub tracker: Option<String> as WString,
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// An attempt has been reported.
    StatusUpdate(TaskStatusUpdate),
    /// An attempt has been sent out.
    Launch(TaskLaunch),
    /// A tracker is in use.
    Tracker(TaskTrackerInfo),
    /// A tracker's heartbeat. The original turns it into the former before it sends it.
    TrackerStatus(Box<TaskTrackerStatus>),
    /// A map's or a reduce's status without a tracker. The original does not send it either.
    Status(Box<TaskStatus>),
    /// A tracker is silent.
    Timeout(TaskTimeout),
}

/// The numbers by which the original distinguishes them.
mod kind {
    pub(super) const STATUS_UPDATE: i8 = 0;
    pub(super) const LAUNCH: i8 = 1;
    pub(super) const TRACKER: i8 = 2;
    pub(super) const TRACKER_STATUS: i8 = 3;
    pub(super) const MAP_STATUS: i8 = 4;
    pub(super) const REDUCE_STATUS: i8 = 5;
    pub(super) const TIMEOUT: i8 = 6;
}

impl Writable for Update {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = Byte::decode(reader)?;
        Ok(match kind {
            kind::STATUS_UPDATE => Update::StatusUpdate(Plain::decode(reader)?),
            kind::LAUNCH => Update::Launch(Plain::decode(reader)?),
            kind::TRACKER => Update::Tracker(Plain::decode(reader)?),
            kind::TRACKER_STATUS => Update::TrackerStatus(Box::new(Plain::decode(reader)?)),
            kind::MAP_STATUS => Update::Status(Box::new(TaskStatus::decode(true, reader)?)),
            kind::REDUCE_STATUS => Update::Status(Box::new(TaskStatus::decode(false, reader)?)),
            kind::TIMEOUT => Update::Timeout(Plain::decode(reader)?),
            other => {
                return Err(DecodeError::Number { kind: "kind of update", value: other.into() });
            }
        })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.i8(match self {
            Update::StatusUpdate(_) => kind::STATUS_UPDATE,
            Update::Launch(_) => kind::LAUNCH,
            Update::Tracker(_) => kind::TRACKER,
            Update::TrackerStatus(_) => kind::TRACKER_STATUS,
            Update::Status(status) if status.is_map() => kind::MAP_STATUS,
            Update::Status(_) => kind::REDUCE_STATUS,
            Update::Timeout(_) => kind::TIMEOUT,
        });
        match self {
            Update::StatusUpdate(update) => update.encode(writer),
            Update::Launch(launch) => launch.encode(writer),
            Update::Tracker(tracker) => tracker.encode(writer),
            Update::TrackerStatus(status) => status.encode(writer),
            Update::Status(status) => status.encode(writer),
            Update::Timeout(timeout) => timeout.encode(writer),
        }
    }
}

writable! {
    /// Something has happened, and when.
    #[derive(Clone, Debug, PartialEq)]
    pub struct StateUpdate: "org.apache.hadoop.mapred.CoronaStateUpdate" {
        /// The event.
        pub update: Update as Plain,
        /// When, in milliseconds since the Unix epoch.
        pub at_ms: i64 as VLong,
    }
}

writable! {
    /// All data that a new job tracker needs to continue a job.
    #[derive(Clone, Debug, PartialEq)]
    pub struct JobTrackerState: "org.apache.hadoop.mapred.CoronaJTState" {
        /// The events.
        pub updates: Vec<StateUpdate> as List<VInt, Plain>,
        /// The session of the last job tracker.
        pub session: String as Text,
        /// How many job trackers there were before.
        pub restarts: i32 as VInt,
    }
}
