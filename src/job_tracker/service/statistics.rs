//! What the proxy job tracker learns of a job that has ended. Nobody waits for it.
//! Spec: mapreduce/03 §3.8, mapreduce/09 §G.

use std::time::Duration;

use corona_hadoop::protocols::job_aggregator::CoronaJobAggregatorClient;
use corona_hadoop::rpc::{ClientOptions, User};
use corona_hadoop::writables::{InetAddress, JobStats};
use corona_mapreduce::{JobId, PerKind};

use super::job::Job;
use crate::engine::{JobEngine, JobTotals};
use crate::translate;

/// For a connection. Spec: mapreduce/03 §3.8.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A report that is due at the end of a job.
pub(super) struct Report {
    pub(super) proxy: InetAddress,
    pub(super) user: User,
    pub(super) job: JobId,
    /// `<group>.<pool>`.
    pub(super) pool: String,
}

impl Report {
    /// Looks at the job while its details are there, and sends the report later.
    pub(super) async fn make(self, job: &Job) {
        let look = |job: &JobEngine| {
            (
                figures(job.totals(), job.progress().finished),
                translate::counters_to_wire(&job.counters()),
            )
        };
        let Ok((figures, counters)) = job.look(look).await else { return };
        tokio::spawn(async move {
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

/// What is not counted here is 0: speculation, bytes, and times of attempts without success.
fn figures(totals: &JobTotals, completed: PerKind<u32>) -> JobStats {
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
        data_local_maps: count(totals.data_local),
        rack_local_maps: count(totals.rack_local),
        ..JobStats::default()
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
        let figures = figures(&totals, PerKind { map: 4, reduce: 1 });
        assert_eq!((figures.maps_launched, figures.maps_completed), (7, 4));
        assert_eq!((figures.maps_failed, figures.maps_killed), (3, 0));
        assert_eq!((figures.reduces_completed, figures.reduces_killed), (1, 1));
        assert_eq!(figures.data_local_maps, 4);
    }
}
