//! The report about an ended job for the proxy job tracker. Nothing waits for it.
//! Spec: mapreduce/03 §3.8, mapreduce/09 §G.

use std::time::Duration;

use corona_hadoop::protocols::job_aggregator::CoronaJobAggregatorClient;
use corona_hadoop::rpc::{ClientOptions, User};
use corona_hadoop::writables::{InetAddress, JobStats};
use corona_mapreduce::{JobId, PerKind};
use corona_process::panics::spawn_detached;

use super::job::Job;
use corona_job_engine::{Efforts, JobEngine, JobTotals};
use corona_job_wire::translate;

/// For a connection. Spec: mapreduce/03 §3.8.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A report that is due at the end of a job.
pub(crate) struct Report {
    pub(crate) proxy: InetAddress,
    pub(crate) user: User,
    pub(crate) job: JobId,
    /// `<group>.<pool>`.
    pub(crate) pool: String,
}

impl Report {
    /// Looks at the job while its details are there, and sends the report later.
    pub(crate) async fn make(self, job: &Job) {
        let look = |job: &JobEngine| {
            (
                figures(job.totals(), &job.efforts(), job.progress().finished),
                translate::counters_to_wire(&job.counters()),
            )
        };
        let Ok((figures, counters)) = job.look(look).await else { return };
        spawn_detached("the report about a job that has ended", async move {
            let options = ClientOptions {
                attempt_timeout: CONNECT_TIMEOUT,
                connect_patience: Duration::ZERO,
                call_timeout: Some(CALL_TIMEOUT),
                ..ClientOptions::new(self.user)
            };
            let mut proxy = CoronaJobAggregatorClient::new(self.proxy, options);
            let (job, pool) = (Some(self.job.to_string()), Some(self.pool));
            if let Err(error) = proxy.report_job_stats(job, pool, figures, counters).await {
                tracing::info!(job = %self.job, %error, "the proxy job tracker took no report");
            }
        });
    }
}

fn figures(totals: &JobTotals, efforts: &Efforts, completed: PerKind<u32>) -> JobStats {
    let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    JobStats {
        maps_launched: count(totals.launched.map),
        maps_completed: count(completed.map),
        maps_failed: count(totals.failed_attempts.map),
        maps_killed: count(totals.killed_attempts.map),
        reduces_launched: count(totals.launched.reduce),
        reduces_completed: count(completed.reduce),
        reduces_failed: count(totals.failed_attempts.reduce),
        reduces_killed: count(totals.killed_attempts.reduce),
        maps_failed_by_fetch_failures: count(efforts.failed_by_fetch_failures),
        map_fetch_failures: count(efforts.fetch_failures),
        speculative_maps: count(efforts.speculative.map),
        speculative_reduces: count(efforts.speculative.reduce),
        speculative_succeeded_maps: count(efforts.speculative_succeeded.map),
        speculative_succeeded_reduces: count(efforts.speculative_succeeded.reduce),
        speculative_waste_maps: count(efforts.speculative_wasted.map),
        speculative_waste_reduces: count(efforts.speculative_wasted.reduce),
        data_local_maps: count(totals.data_local),
        rack_local_maps: count(totals.rack_local),
        total_map_input_bytes: efforts.map_input_bytes,
        local_map_input_bytes: efforts.local_map_input_bytes,
        rack_map_input_bytes: efforts.rack_map_input_bytes,
        killed_map_time_ms: efforts.killed_ms.map,
        killed_reduce_time_ms: efforts.killed_ms.reduce,
        failed_map_time_ms: efforts.failed_ms.map,
        failed_reduce_time_ms: efforts.failed_ms.reduce,
        speculative_map_waste_ms: efforts.speculative_wasted_ms.map,
        speculative_reduce_waste_ms: efforts.speculative_wasted_ms.reduce,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_failed_are_reported_as_failed() {
        let totals = JobTotals {
            launched: PerKind { map: 7, reduce: 2 },
            failed_attempts: PerKind { map: 3, reduce: 0 },
            killed_attempts: PerKind { map: 0, reduce: 1 },
            data_local: 4,
            ..JobTotals::default()
        };
        let efforts = Efforts {
            speculative: PerKind { map: 3, reduce: 1 },
            speculative_wasted: PerKind { map: 2, reduce: 0 },
            failed_ms: PerKind { map: 50, reduce: 0 },
            map_input_bytes: 99,
            ..Efforts::default()
        };
        let figures = figures(&totals, &efforts, PerKind { map: 4, reduce: 1 });
        assert_eq!((figures.speculative_maps, figures.speculative_reduces), (3, 1));
        assert_eq!((figures.speculative_waste_maps, figures.failed_map_time_ms), (2, 50));
        assert_eq!(figures.total_map_input_bytes, 99);
        assert_eq!((figures.maps_launched, figures.maps_completed), (7, 4));
        assert_eq!((figures.maps_failed, figures.maps_killed), (3, 0));
        assert_eq!((figures.reduces_completed, figures.reduces_killed), (1, 1));
        assert_eq!(figures.data_local_maps, 4);
    }
}
