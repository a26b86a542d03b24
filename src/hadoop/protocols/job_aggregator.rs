//! Reports of job trackers on jobs that have ended. Spec: mapreduce/03 §3.8.

use super::macros::protocol;
use crate::writables::{Counters, JobStats};

protocol! {
    /// A proxy job tracker, for job trackers whose job has ended. Those ignore errors.
    pub trait CoronaJobAggregator as "org.apache.hadoop.mapred.CoronaJobAggregator", version 1,
        client CoronaJobAggregatorClient
    {
        /// Takes the statistics of a job. `pool` is `<group>.<pool>`.
        "reportJobStats" fn report_job_stats(
            job: Option<String>,
            pool: Option<String>,
            stats: JobStats,
            counters: Counters
        ) -> ();

        /// Takes the counters of a job's errors.
        "reportJobErrorCounters" fn report_job_error_counters(counters: Counters) -> ();
    }
}
