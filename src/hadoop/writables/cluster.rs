//! The state of a cluster, as the original's classic job tracker returns it; Corona's refuses the
//! call. Spec: mapreduce/02 §2.9.

use super::task_status::Tagged;
use super::{TaskStatus, TaskTrackerStatus, constants, writable};
use crate::io::formats::{Enum, Int, List, Long, Plain, Text};

constants! {
    /// Whether a job tracker is ready.
    pub enum ClusterState: "org.apache.hadoop.mapred.JobTracker$State" {
        /// Not yet.
        Initializing = "INITIALIZING",
        /// It is.
        Running = "RUNNING",
    }
}

writable! {
    /// The status of a cluster.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ClusterStatus: "org.apache.hadoop.mapred.ClusterStatus" {
        /// Trackers that are active.
        pub active: i32 as Int,
        /// Their names, if they were requested.
        pub active_names: Vec<String> as List<Int, Text>,
        /// Trackers that are blacklisted.
        pub blacklisted: i32 as Int,
        /// Their names, if they were requested.
        pub blacklisted_names: Vec<String> as List<Int, Text>,
        /// Nodes that are excluded.
        pub excluded: i32 as Int,
        /// After how many milliseconds of silence a tracker counts as lost.
        pub tracker_expiry_ms: i64 as Long,
        /// Maps that run.
        pub maps: i32 as Int,
        /// Reduces that run.
        pub reduces: i32 as Int,
        /// Slots for maps.
        pub max_maps: i32 as Int,
        /// Slots for reduces.
        pub max_reduces: i32 as Int,
        /// Bytes of memory that the job tracker uses.
        pub used_memory: i64 as Long,
        /// Bytes of memory that it may use.
        pub max_memory: i64 as Long,
        /// Whether it is ready.
        pub state: ClusterState as Enum,
        /// Maps of all jobs.
        pub total_maps: i32 as Int,
        /// Reduces of all jobs.
        pub total_reduces: i32 as Int,
        /// Its task trackers, if the caller asked for them.
        pub trackers: Vec<TaskTrackerStatus> as List<Int, Plain>,
        /// The tasks of each of these task trackers.
        pub tasks: Vec<TrackerTasks> as List<Int, Plain>,
    }
}

writable! {
    /// The tasks that run on a task tracker.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TrackerTasks {
        /// The tracker's name.
        pub tracker: String as Text,
        /// How its tasks stand.
        pub tasks: Vec<TaskStatus> as List<Int, Tagged>,
    }
}
