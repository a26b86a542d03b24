//! A job tracker's report of a job that has ended. Spec: mapreduce/02 §2.9.

use super::writable;
use crate::io::formats::{Int, Long};

writable! {
    /// Statistics of a job.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct JobStats: "org.apache.hadoop.mapred.JobStats" {
        /// Attempts at maps that were started.
        pub maps_launched: i32 as Int,
        /// Those that succeeded.
        pub maps_completed: i32 as Int,
        /// Those that failed.
        pub maps_failed: i32 as Int,
        /// Those that counted as failed because reduces could not fetch their output.
        pub maps_failed_by_fetch_failures: i32 as Int,
        /// How often a reduce could not fetch a map's output.
        pub map_fetch_failures: i32 as Int,
        /// Attempts at maps that were killed.
        pub maps_killed: i32 as Int,
        /// Attempts at reduces that were started.
        pub reduces_launched: i32 as Int,
        /// Those that succeeded.
        pub reduces_completed: i32 as Int,
        /// Those that failed.
        pub reduces_failed: i32 as Int,
        /// Those that were killed.
        pub reduces_killed: i32 as Int,
        /// Attempts at maps beside one that already ran.
        pub speculative_maps: i32 as Int,
        /// The same of reduces.
        pub speculative_reduces: i32 as Int,
        /// Those of maps that came first.
        pub speculative_succeeded_maps: i32 as Int,
        /// Those of reduces that came first.
        pub speculative_succeeded_reduces: i32 as Int,
        /// Those of maps that were for nothing.
        pub speculative_waste_maps: i32 as Int,
        /// Those of reduces that were for nothing.
        pub speculative_waste_reduces: i32 as Int,
        /// Maps that ran where their input is.
        pub data_local_maps: i32 as Int,
        /// Maps that ran in the rack where their input is.
        pub rack_local_maps: i32 as Int,
        /// Bytes that maps read.
        pub total_map_input_bytes: i64 as Long,
        /// Bytes that maps read on their own host.
        pub local_map_input_bytes: i64 as Long,
        /// Bytes that maps read in their own rack.
        pub rack_map_input_bytes: i64 as Long,
        /// Time that went into attempts at maps that were killed, in milliseconds.
        pub killed_map_time_ms: i64 as Long,
        /// The same of reduces.
        pub killed_reduce_time_ms: i64 as Long,
        /// Time that went into attempts at maps that failed, in milliseconds.
        pub failed_map_time_ms: i64 as Long,
        /// The same of reduces.
        pub failed_reduce_time_ms: i64 as Long,
        /// Time that went into speculative attempts at maps for nothing, in milliseconds.
        pub speculative_map_waste_ms: i64 as Long,
        /// The same of reduces.
        pub speculative_reduce_waste_ms: i64 as Long,
    }
}
