//! A tracker's status, as in its heartbeats to job trackers. Spec: mapreduce/02 §2.5.

use super::task_status::Tagged;
use super::{TaskStatus, writable};
use crate::io::formats::{Bool, Float, Int, List, Long, Plain, Text, VInt, VLong};

writable! {
    /// The status of a tracker.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TaskTrackerStatus: "org.apache.hadoop.mapred.TaskTrackerStatus" {
        /// Its name, the same as in its heartbeats to the cluster manager.
        pub name: String as Text,
        /// The name of its host.
        pub host: String as Text,
        /// Where it serves map outputs and logs.
        pub http_port: i32 as Int,
        /// Attempts that failed since it started.
        pub failures: i32 as Int,
        /// Slots for maps.
        pub max_maps: i32 as Int,
        /// Slots for reduces.
        pub max_reduces: i32 as Int,
        /// Its memory, disk and processors.
        pub resources: ResourceStatus as Plain,
        /// The attempts of the job tracker that receives the report.
        pub tasks: Vec<TaskStatus> as List<Int, Tagged>,
        /// Whether its machine is well.
        pub health: NodeHealth as Plain,
    }
}

writable! {
    /// A machine's resources. -1 means unknown, or no limit.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ResourceStatus {
        /// Bytes of virtual memory.
        pub total_virtual_memory: i64 as VLong,
        /// Bytes of memory.
        pub total_physical_memory: i64 as VLong,
        /// Bytes of free virtual memory.
        pub available_virtual_memory: i64 as VLong,
        /// Bytes of free memory.
        pub available_physical_memory: i64 as VLong,
        /// Megabytes of memory for each map slot.
        pub map_slot_memory_mb: i64 as VLong,
        /// Megabytes of memory for each reduce slot.
        pub reduce_slot_memory_mb: i64 as VLong,
        /// Bytes that are free for local files.
        pub available_space: i64 as VLong,
        /// Processor time used, in milliseconds.
        pub cumulative_cpu_ms: i64 as VLong,
        /// The processors' frequency, in kHz.
        pub cpu_frequency_khz: i64 as VLong,
        /// How many processors there are.
        pub processors: i32 as VInt,
        /// How much of them is used, in percent.
        pub cpu_usage_percent: f32 as Float,
    }
}

/// Nothing is known, and space is unlimited.
impl Default for ResourceStatus {
    fn default() -> Self {
        ResourceStatus {
            total_virtual_memory: -1,
            total_physical_memory: -1,
            available_virtual_memory: -1,
            available_physical_memory: -1,
            map_slot_memory_mb: -1,
            reduce_slot_memory_mb: -1,
            available_space: i64::MAX,
            cumulative_cpu_ms: -1,
            cpu_frequency_khz: -1,
            processors: -1,
            cpu_usage_percent: -1.0,
        }
    }
}

writable! {
    /// The result of a machine's health script.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NodeHealth {
        /// Whether the machine is well.
        pub is_healthy: bool as Bool,
        /// The problem found.
        pub report: String as Text,
        /// The time of the result, in milliseconds since the Unix epoch.
        pub last_reported_ms: i64 as Long,
    }
}

/// Healthy, and not checked yet.
impl Default for NodeHealth {
    fn default() -> Self {
        NodeHealth { is_healthy: true, report: String::new(), last_reported_ms: 0 }
    }
}
