//! Heartbeats to the job tracker of one job. Spec: mapreduce/04 §4.8.

use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use super::{TrackerCore, TrackerState, now};
use crate::machine_stats::machine;
use corona_hadoop::protocols::inter_tracker::{InterTrackerClient, JOB_IS_OVER};
use corona_hadoop::rpc::{CallError, ClientOptions};
use corona_hadoop::writables::{
    HeartbeatResponse, InetAddress, JobId, ResourceStatus, SessionInfo, TaskState, TaskStatus,
    TaskTrackerStatus,
};
use corona_process::panics::{blocking, caught};
use corona_process::procfs;

/// The maximum age of the machine's data in reports.
const MACHINE_AGE: Duration = Duration::from_secs(1);

/// A reporter that runs; dropped, it ends.
#[derive(Debug)]
pub(super) struct Handle {
    soon: Arc<Notify>,
    position: Arc<Mutex<Position>>,
    _stop: oneshot::Sender<()>,
}

impl Handle {
    /// There is news that should not wait for the next heartbeat.
    pub(super) fn soon(&self) {
        self.soon.notify_one();
    }

    /// How far its conversation has come.
    pub(super) fn position(&self) -> Position {
        self.position.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How far the conversation with a job tracker has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Where the job tracker listens.
    pub(super) address: InetAddress,
    /// Where the job tracker listened that launched something last.
    pub(super) launched_by: InetAddress,
    /// The number of its last answer.
    pub(super) response_id: i16,
    /// The pause between heartbeats.
    pub(super) interval: Duration,
}

/// The machine's data in reports to job trackers.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    resources: ResourceStatus,
    takes_tasks: bool,
    /// Its parts.
    read: procfs::Machine,
}

/// Why no other job tracker is found.
#[derive(Debug, Error)]
pub(super) enum FailOverError {
    #[error("the secondary cannot be asked: {0}")]
    Secondary(CallError),
    #[error("the secondary knew no other one when it had been asked {0} times")]
    None(u32),
    #[error("{0} of them in a row could not be reached")]
    Unreachable(u32),
}

/// Why a job tracker is given up.
#[derive(Debug, Error)]
enum Lost {
    #[error("connection refused: {0}")]
    Gone(CallError),
    #[error("connection refused, and there is no other job tracker: {0}")]
    NotReplaced(#[from] FailOverError),
    #[error("{0} errors in a row: {1}")]
    Errors(u32, CallError),
    #[error("the job has ended")]
    Over,
}

/// Begins to send heartbeats.
/// One that goes on where a former program was begins at its position.
pub(super) fn begin(
    shared: &Arc<TrackerCore>,
    state: &mut TrackerState,
    job: JobId,
    session: SessionInfo,
    position: Option<Position>,
) {
    let (stop, stopped) = oneshot::channel();
    let soon = Arc::new(Notify::new());
    let address = session.trackers.job_tracker.clone();
    let position = position.unwrap_or_else(|| Position {
        address: address.clone(),
        launched_by: address,
        response_id: -1,
        interval: shared.parts.settings.reports.interval,
    });
    let interval = position.interval;
    let client = InterTrackerClient::new(position.address.clone(), shared.client_options());
    let position = Arc::new(Mutex::new(position));
    let handle = Handle { soon: soon.clone(), position: position.clone(), _stop: stop };
    state.reporters.insert(job.clone(), handle);
    let reporter = Reporter {
        shared: shared.clone(),
        job,
        session,
        position,
        soon,
        client,
        interval,
        errors: 0,
        last: None,
    };
    shared.spawn(async move {
        tokio::select! {
            biased;
            // Dropped, too.
            _ = stopped => {}
            () = reporter.work() => {}
        }
    });
}

/// Reports to the job tracker. If that fails, all jobs of the session end, because their results
/// would be lost.
pub(super) async fn or_give_up<L: Display>(
    shared: &Arc<TrackerCore>,
    job: &JobId,
    session: &str,
    reporting: impl Future<Output = Result<(), L>>,
) {
    match caught(reporting).await {
        Ok(Ok(())) => return,
        Ok(Err(lost)) => {
            tracing::warn!(%job, session, %lost, "lost a job tracker; ending its session")
        }
        Err(panic) => {
            tracing::error!(%job, session, %panic, "the reporter to a job tracker panicked; ending its session")
        }
    }
    shared.apply(|table, _| table.purge_session(session));
}

/// Reports that a job tracker has not answered. Dropped, they are sent again.
struct Unanswered {
    shared: Arc<TrackerCore>,
    tasks: Vec<TaskStatus>,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.tasks.is_empty() {
            self.shared.lock().table.not_reported(&self.tasks);
        }
    }
}

pub(super) struct Reporter {
    pub(super) shared: Arc<TrackerCore>,
    pub(super) job: JobId,
    pub(super) session: SessionInfo,
    position: Arc<Mutex<Position>>,
    soon: Arc<Notify>,
    pub(super) client: InterTrackerClient,
    interval: Duration,
    /// Errors since the last answer.
    errors: u32,
    /// When a heartbeat was answered last.
    last: Option<Instant>,
}

impl Reporter {
    async fn work(mut self) {
        let (shared, job) = (self.shared.clone(), self.job.clone());
        let handle = self.session.handle.clone().unwrap_or_default();
        or_give_up(&shared, &job, &handle, self.report()).await;
    }

    /// Reports until the job tracker is lost, or refuses reports.
    async fn report(&mut self) -> Result<(), Lost> {
        self.connect().await?;
        let mut is_checked = false;
        loop {
            self.wait().await;
            if !is_checked {
                match self.is_of_same_build().await {
                    Ok(true) => is_checked = true,
                    Ok(false) => return Ok(()),
                    Err(error) => {
                        self.missed(error).await?;
                        continue;
                    }
                }
            }
            if self.was_silent() {
                // A heartbeat without reports names no job: its end may have been missed.
                match still_runs(&mut self.client, &self.job).await {
                    Ok(true) => {}
                    Ok(false) => return Err(Lost::Over),
                    Err(error) => {
                        self.missed(error).await?;
                        continue;
                    }
                }
            }
            while self.is_due() {
                match self.beat().await {
                    Ok(()) => break,
                    Err(error) => self.missed(error).await?,
                }
            }
        }
    }

    /// Connects for the first time, with more patience than later.
    async fn connect(&mut self) -> Result<(), Lost> {
        let begun = Instant::now();
        let patience = self.shared.parts.settings.reports.connect_timeout;
        loop {
            match self.client.greet().await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_connect() && begun.elapsed() < patience => {}
                Err(error) => return self.missed(error).await,
            }
        }
    }

    /// Waits until the next heartbeat is due.
    async fn wait(&self) {
        if self.shared.parts.settings.reports.out_of_band {
            // Over when there is news, or when it is time.
            let _ = timeout(self.interval, self.soon.notified()).await;
        } else {
            sleep(self.interval).await;
        }
    }

    /// Whether the job tracker has the configured build. If it does not, it gets an error and no
    /// reports. Spec: mapreduce/04 §4.8 (3).
    async fn is_of_same_build(&mut self) -> Result<bool, CallError> {
        let theirs = self.client.get_build_version().await?;
        let Some(ours) = self.shared.parts.settings.reports.build_version.as_ref() else {
            return Ok(true);
        };
        if *ours == theirs {
            return Ok(true);
        }
        let message = format!(
            "JobTrackerReporter({}) shutting down. Incompatible buildVersion.\n\
             JobTracker's: {theirs}\nTaskTracker's: {ours}",
            self.job
        );
        tracing::error!(job = %self.job, %theirs, %ours, "the job tracker has another build; not reporting to it");
        let name = self.shared.parts.identity.name.clone();
        let told = self.client.report_task_tracker_error(Some(name), None, Some(message)).await;
        if let Err(error) = told {
            tracing::warn!(job = %self.job, %error, "cannot report the error to the job tracker");
        }
        Ok(false)
    }

    /// Whether there are reports, or it is time to check whether the job tracker is alive.
    fn is_due(&self) -> bool {
        let is_first = self.last.is_none();
        is_first || self.was_silent() || self.shared.lock().table.has_reports(&self.job)
    }

    /// Whether the last heartbeat that was answered is long ago: there was nothing to report, or this node was away.
    fn was_silent(&self) -> bool {
        let slow = self.shared.parts.settings.reports.slow_interval;
        self.last.is_some_and(|last| last.elapsed() > slow)
    }

    /// One heartbeat.
    async fn beat(&mut self) -> Result<(), CallError> {
        let machine = self.shared.machine().await;
        let (tasks, failures) = {
            let table = &mut self.shared.lock().table;
            // The sizes of outputs are on the disks.
            (table.reports(&self.job, |_| None, now()), table.failures())
        };
        let mut sent = Unanswered { shared: self.shared.clone(), tasks };
        self.shared.size(&mut sent.tasks).await;
        let identity = &self.shared.parts.identity;
        let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let status = TaskTrackerStatus {
            name: identity.name.clone(),
            host: identity.host.clone(),
            http_port: identity.http_port.into(),
            failures: count(failures),
            max_maps: count(self.shared.parts.slots.maps),
            max_reduces: count(self.shared.parts.slots.reduces),
            resources: machine.resources,
            tasks: sent.tasks.clone(),
            health: self.shared.parts.health.borrow().clone(),
        };
        let restarted = !self.shared.was_heard.load(Ordering::Relaxed);
        let takes = machine.takes_tasks;
        let response_id = self.position().response_id;
        let response = self.client.heartbeat(status, restarted, true, takes, response_id).await?;
        let tasks = std::mem::take(&mut sent.tasks);
        self.heard(&response, &tasks);
        Ok(())
    }

    fn position(&self) -> MutexGuard<'_, Position> {
        // Each change leaves it whole.
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&mut self, response: &HeartbeatResponse, tasks: &[TaskStatus]) {
        self.shared.lock().table.reported(&self.job, tasks);
        self.shared.was_heard.store(true, Ordering::Relaxed);
        self.errors = 0;
        self.last = Some(Instant::now());
        self.position().response_id = response.response_id;
        let reports = &self.shared.parts.settings.reports;
        let asked = Duration::from_millis(u64::try_from(response.interval_ms).unwrap_or(0));
        self.interval = asked.clamp(reports.min_interval, reports.max_interval);
        self.position().interval = self.interval;
    }

    /// After an error: waits before the next try, or finds the job tracker that took the place of
    /// this one.
    async fn missed(&mut self, error: CallError) -> Result<(), Lost> {
        if self.follow_launches() {
            return Ok(());
        }
        if is_refused(&error) {
            let Some(secondary) = self.session.trackers.secondary.clone() else {
                return Err(Lost::Gone(error));
            };
            tracing::info!(job = %self.job, %error, %secondary, "the job tracker is unreachable; asking its secondary for the new one");
            self.fail_over(&secondary).await?;
            return Ok(());
        }
        let reports = &self.shared.parts.settings.reports;
        self.errors += 1;
        if self.errors >= reports.max_errors {
            return Err(Lost::Errors(self.errors, error));
        }
        tracing::info!(job = %self.job, %error, errors = self.errors, "heartbeat to the job tracker failed; retrying");
        sleep(self.interval * self.errors).await;
        Ok(())
    }

    /// Whether another job tracker has launched tasks of the job since the last call. Reports then
    /// go to it.
    fn follow_launches(&mut self) -> bool {
        let launched_by = {
            let table = &self.shared.lock().table;
            table.session(&self.job).map(|session| session.trackers.job_tracker.clone())
        };
        let before = self.position().launched_by.clone();
        let Some(address) = launched_by.filter(|address| *address != before) else {
            return false;
        };
        self.position().launched_by = address.clone();
        let is_new = *self.client.client().address() != address;
        if is_new {
            let options = self.shared.client_options();
            self.follow(InterTrackerClient::new(address.clone(), options), &address);
        }
        is_new
    }

    /// The pause between heartbeats.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Reports to another job tracker from now on.
    pub(super) fn follow(&mut self, client: InterTrackerClient, address: &InetAddress) {
        tracing::info!(job = %self.job, %address, "switched to another job tracker");
        self.position().address = address.clone();
        self.client = client;
    }
}

/// Whether a job still runs, as its job tracker replies: it is asked for none of the job's events. Those of Java
/// run one job, and end with it.
pub(super) async fn still_runs(
    client: &mut InterTrackerClient,
    job: &JobId,
) -> Result<bool, CallError> {
    match client.get_task_completion_events(job.clone(), 0, 0).await {
        Ok(_) => Ok(true),
        Err(CallError::Remote(error)) if error.message().contains(JOB_IS_OVER) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the machine refuses the connection.
pub(super) fn is_refused(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Connect { error, .. } if error.kind() == std::io::ErrorKind::ConnectionRefused
    )
}

impl TrackerCore {
    /// How calls to job trackers are made.
    pub(super) fn client_options(&self) -> ClientOptions {
        let reports = &self.parts.settings.reports;
        ClientOptions {
            connect_patience: reports.connect_patience,
            connect_pause: reports.connect_pause,
            call_timeout: Some(reports.call_timeout),
            ..ClientOptions::new(self.parts.settings.user.clone())
        }
    }

    /// Fills in the sizes of maps' outputs.
    async fn size(&self, tasks: &mut [TaskStatus]) {
        for task in tasks.iter_mut() {
            let Ok(name) = task.attempt.to_string().parse() else { continue };
            if task.state != TaskState::Succeeded || !task.is_map() {
                continue;
            }
            let outputs = self.parts.outputs.clone();
            let bytes = blocking(move || outputs.bytes(&name)).await;
            task.output_size = i64::try_from(bytes).unwrap_or(i64::MAX);
        }
    }

    /// The machine's data in reports, at most a second old.
    async fn machine(self: &Arc<Self>) -> Machine {
        let known = || self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let last = match &*known() {
            Some((read, machine)) if read.elapsed() < MACHINE_AGE => return machine.clone(),
            last => last.as_ref().map(|(_, machine)| machine.read),
        };
        let (dirs, fitness) = (self.parts.dirs.clone(), self.parts.fitness.clone());
        let settings = self.parts.settings.memory.clone();
        let looked = blocking(move || {
            let free = dirs.spaces().iter().map(|space| space.free_bytes).max().unwrap_or(0);
            (machine(&settings), free, fitness.look())
        });
        let (read, free_bytes, takes_tasks) = looked.await;
        let cpu_khz = procfs::cpu_khz().and_then(|khz| i64::try_from(khz).ok());
        let resources = ResourceStatus {
            cpu_frequency_khz: cpu_khz.unwrap_or(-1),
            ..resources(&read, last.as_ref(), free_bytes)
        };
        let machine = Machine { resources, takes_tasks, read };
        *known() = Some((Instant::now(), machine.clone()));
        machine
    }
}

/// The resources of a machine, as the original counts them. Spec: mapreduce/02 §2.5.
fn resources(
    now: &procfs::Machine,
    last: Option<&procfs::Machine>,
    free_bytes: u64,
) -> ResourceStatus {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let usage = last.and_then(|last| now.cpu_usage_since(last));
    ResourceStatus {
        total_virtual_memory: whole(now.memory_bytes.saturating_add(now.swap_bytes)),
        total_physical_memory: whole(now.memory_bytes),
        available_virtual_memory: whole(now.available_bytes.saturating_add(now.free_swap_bytes)),
        available_physical_memory: whole(now.available_bytes),
        available_space: whole(free_bytes),
        cumulative_cpu_ms: whole(now.busy_ms()),
        processors: i32::try_from(now.cpus).unwrap_or(i32::MAX),
        #[allow(clippy::cast_possible_truncation, reason = "a percentage needs no more digits")]
        cpu_usage_percent: usage.map_or(-1.0, |usage| (usage * 100.0) as f32),
        ..ResourceStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_a_machine() {
        let last = procfs::Machine { busy_ticks: 10, total_ticks: 100, ..Default::default() };
        let now = procfs::Machine {
            memory_bytes: 1000,
            available_bytes: 100,
            swap_bytes: 50,
            free_swap_bytes: 5,
            cpus: 4,
            busy_ticks: 60,
            total_ticks: 300,
        };
        let expected = ResourceStatus {
            total_virtual_memory: 1050,
            total_physical_memory: 1000,
            available_virtual_memory: 105,
            available_physical_memory: 100,
            available_space: 7,
            cumulative_cpu_ms: i64::try_from(now.busy_ms()).unwrap(),
            processors: 4,
            cpu_usage_percent: 25.0,
            ..ResourceStatus::default()
        };
        assert_eq!(resources(&now, Some(&last), 7), expected);
        assert_eq!(resources(&now, None, 7).cpu_usage_percent, -1.0);
        assert_eq!(resources(&now, None, u64::MAX).available_space, i64::MAX);
    }
}
