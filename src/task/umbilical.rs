//! The child's side of the umbilical: a task's reports to the task tracker that started it, and a
//! reduce's requests to its job tracker. Spec: mapreduce/03 §3.3, mapreduce/04 §4.6.

use std::time::Duration;

use corona_hadoop::protocols::inter_corona_job_tracker::InterCoronaJobTrackerClient;
use corona_hadoop::protocols::inter_tracker::InterTrackerClient;
use corona_hadoop::protocols::task_umbilical::TaskUmbilicalClient;
use corona_hadoop::rpc::{CallError, ClientOptions, User};
use corona_hadoop::writables::{
    InetAddress, JobId, JvmContext, JvmTask, RecordRange, TaskAttemptId, TaskCompletionEvent,
    TaskStatus,
};
use corona_net::Backoff;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// Errors in a row after which the task tracker is given up.
pub(crate) const MOST_ERRORS: u32 = 10;
/// The pauses before a failed call is made again: the first, and what they grow to.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_RETRY_PAUSE: Duration = Duration::from_millis(3_200);
/// The pauses between questions for a new job tracker: the first, and what they grow to. The original
/// always pauses for the longest, while the next job tracker is there after a second or two.
/// Spec: mapreduce/03 §3.4.
const FIRST_FAIL_OVER_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_FAIL_OVER_PAUSE: Duration = Duration::from_secs(10);
/// How long the parent of a job is asked for a new job tracker.
const FAIL_OVER_PATIENCE: Duration = Duration::from_secs(6000);

/// Calls the task tracker, one call at a time. The functions that wait are for threads of the task.
#[derive(Debug)]
pub(crate) struct Umbilical {
    client: Mutex<TaskUmbilicalClient>,
    runtime: Handle,
}

fn options() -> ClientOptions {
    let name = std::env::var("USER").unwrap_or_else(|_| "nobody".to_owned());
    let call_timeout = Some(Duration::from_secs(60));
    ClientOptions { call_timeout, ..ClientOptions::new(User { name, groups: Vec::new() }) }
}

impl Umbilical {
    /// The task tracker at this address.
    pub(crate) fn new(address: InetAddress, runtime: Handle) -> Umbilical {
        Umbilical { client: Mutex::new(TaskUmbilicalClient::new(address, options())), runtime }
    }

    /// Asks for the task; tries again when that fails.
    pub(crate) async fn get_task(&self, context: JvmContext) -> Result<JvmTask, CallError> {
        self.patiently(async || self.client.lock().await.get_task(context.clone()).await).await
    }

    /// Reports the task's status. False: the task tracker does not know the task.
    pub(crate) async fn status_update(&self, status: TaskStatus) -> Result<bool, CallError> {
        self.client.lock().await.status_update(status.attempt.clone(), status).await
    }

    /// Reports that the task lives. False: the task tracker does not know it.
    pub(crate) async fn ping(&self, attempt: &TaskAttemptId) -> Result<bool, CallError> {
        self.client.lock().await.ping(attempt.clone()).await
    }

    /// Reports the records that may not be processed. The answer says nothing of whether the task is known.
    pub(crate) async fn next_records(
        &self,
        attempt: &TaskAttemptId,
        records: RecordRange,
    ) -> Result<bool, CallError> {
        let mut client = self.client.lock().await;
        client.report_next_record_range(attempt.clone(), records).await.map(|()| true)
    }

    /// Reports and waits for the answer; tries again when that fails.
    pub(crate) fn report(&self, status: &TaskStatus) -> Result<bool, CallError> {
        self.repeated(async || self.status_update(status.clone()).await)
    }

    /// Reports that the output waits for its commit; tries again when that fails.
    pub(crate) fn commit_pending(&self, status: &TaskStatus) -> Result<(), CallError> {
        self.repeated(async || {
            let mut client = self.client.lock().await;
            client.commit_pending(status.attempt.clone(), status.clone()).await
        })
    }

    /// Whether the output may be committed.
    pub(crate) fn can_commit(&self, attempt: &TaskAttemptId) -> Result<bool, CallError> {
        self.repeated(async || self.client.lock().await.can_commit(attempt.clone()).await)
    }

    /// Reports that the work is done.
    pub(crate) fn done(&self, attempt: &TaskAttemptId) -> Result<(), CallError> {
        self.repeated(async || self.client.lock().await.done(attempt.clone()).await)
    }

    /// Reports why the task failed. An error means that the report was not received.
    pub(crate) fn diagnose(&self, attempt: &TaskAttemptId, why: &str) -> Result<(), CallError> {
        let why = Some(why.to_owned());
        self.repeated(async || {
            self.client.lock().await.report_diagnostic_info(attempt.clone(), why.clone()).await
        })
    }

    /// Reports that outputs of maps cannot be fetched, which ends the task.
    pub(crate) fn shuffle_error(
        &self,
        attempt: &TaskAttemptId,
        why: &str,
    ) -> Result<(), CallError> {
        let why = Some(why.to_owned());
        self.repeated(async || {
            self.client.lock().await.shuffle_error(attempt.clone(), why.clone()).await
        })
    }

    /// Reports that a file system fails, which ends the task.
    pub(crate) fn fs_error(&self, attempt: &TaskAttemptId, why: &str) -> Result<(), CallError> {
        let why = Some(why.to_owned());
        self.repeated(async || {
            self.client.lock().await.fs_error(attempt.clone(), why.clone()).await
        })
    }

    fn repeated<T>(&self, call: impl AsyncFn() -> Result<T, CallError>) -> Result<T, CallError> {
        self.runtime.block_on(self.patiently(call))
    }

    /// A task tracker may start again in place: its tasks do not end with it.
    async fn patiently<T>(
        &self,
        call: impl AsyncFn() -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut errors = 0;
        let mut pauses = Backoff::new(FIRST_RETRY_PAUSE, LONGEST_RETRY_PAUSE);
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) if errors + 1 >= MOST_ERRORS => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "a call to the task tracker failed; retrying");
                    errors += 1;
                    sleep(pauses.pause()).await;
                }
            }
        }
    }
}

/// Where a reduce learns of maps that have ended: its job tracker, or the successor of that.
#[derive(Debug)]
pub(crate) struct MapEvents {
    client: InterTrackerClient,
    secondary: Option<InetAddress>,
    job: JobId,
    next: i32,
    runtime: Handle,
}

/// Events of maps.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Whether these are all events from the first on, since the job tracker is another one.
    pub(crate) is_restart: bool,
    /// The events, in order.
    pub(crate) events: Vec<TaskCompletionEvent>,
}

/// Reads `host:port`.
pub(crate) fn address(text: &str) -> Option<InetAddress> {
    let (host, port) = text.trim().rsplit_once(':')?;
    Some(InetAddress { host: host.to_owned(), port: port.parse().ok()? })
}

/// The pauses behind questions for a new job tracker while there is none.
fn fail_over_pauses() -> impl Iterator<Item = Duration> {
    let pauses = Backoff::new(FIRST_FAIL_OVER_PAUSE, LONGEST_FAIL_OVER_PAUSE).with_factor(3, 2);
    let mut waited = Duration::ZERO;
    pauses.take_while(move |pause| {
        waited += *pause;
        waited <= FAIL_OVER_PATIENCE
    })
}

impl MapEvents {
    /// The events of a job at its job tracker.
    pub(crate) fn new(
        at: InetAddress,
        secondary: Option<InetAddress>,
        job: JobId,
        runtime: Handle,
    ) -> MapEvents {
        let client = InterTrackerClient::new(at, options());
        MapEvents { client, secondary, job, next: 0, runtime }
    }

    /// The next events; none if there are none yet.
    pub(crate) fn poll(&mut self) -> Result<Events, CallError> {
        self.runtime.clone().block_on(async {
            let asked =
                self.client.get_task_completion_events(self.job.clone(), self.next, i32::MAX).await;
            let is_restart = match &asked {
                Err(error) if error.is_connect() => self.fail_over().await,
                _ => false,
            };
            if is_restart {
                self.next = 0;
                return Ok(Events { is_restart, events: Vec::new() });
            }
            let events = asked?;
            self.next = self.next.saturating_add(i32::try_from(events.len()).unwrap_or(i32::MAX));
            Ok(Events {
                is_restart,
                events: events.into_iter().filter(|event| event.is_map).collect(),
            })
        })
    }

    /// Finds the successor of a job tracker that cannot be reached. False: it has none.
    async fn fail_over(&mut self) -> bool {
        let Some(secondary) = self.secondary.clone() else { return false };
        let mut parent = InterCoronaJobTrackerClient::new(secondary, options());
        let failed = self.client.client().address().clone();
        for pause in fail_over_pauses() {
            match parent.get_new_job_tracker_address(failed.clone()).await {
                Ok(Some(successor)) => {
                    tracing::info!(%failed, %successor, "the job tracker has a successor");
                    self.client = InterTrackerClient::new(successor, options());
                    return true;
                }
                Ok(None) => sleep(pause).await,
                Err(error) => {
                    tracing::warn!(%error, "cannot ask for the successor of the job tracker");
                    return false;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_job_tracker_is_noticed_soon_and_waited_for_as_long_as_the_original_does() {
        let pauses: Vec<Duration> = fail_over_pauses().collect();
        let mut at = Duration::ZERO;
        let asked = pauses.iter().map(|pause| {
            at += *pause;
            (at, *pause)
        });
        for (at, pause) in asked {
            // It is noticed late by at most half of the time that it took.
            assert!(pause <= at / 2 + FIRST_FAIL_OVER_PAUSE, "{pause:?} at {at:?}");
            assert!(pause <= LONGEST_FAIL_OVER_PAUSE);
        }
        let all: Duration = pauses.iter().sum();
        assert!(all > FAIL_OVER_PATIENCE - LONGEST_FAIL_OVER_PAUSE, "{all:?}");
    }
}
