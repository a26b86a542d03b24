//! A job that was submitted: its progress, its end, and why it failed.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use corona::filesystem::{FileSystem, FsPath};
use corona::hadoop::rpc::CallError;
use corona::hadoop::writables::{
    EventStatus, JobId, TaskAttemptId, TaskCompletionEvent, TaskReport, TaskReportState,
};
use serde::Serialize;
use tokio::time::sleep;

use super::stop::Stop;
use crate::commands::jobs::{Caller, Counter, counters_table, is_over, listed, note, state};
use corona_terminal::console::{Console, printable};
use corona_terminal::counted;
use corona_terminal::progress::bar;

/// The pause between two looks at the job, which grows from the first to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(30);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long a job tracker that is being restarted is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the kill of a job may take after a second signal.
const KILL_PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two calls of a job tracker that cannot be reached.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Failed tasks that are shown.
const MOST_FAILURES: usize = 3;
/// Completion events that are asked for at a time, and all in all.
const EVENTS: i32 = 1_000;
const MOST_EVENTS: usize = 100_000;

/// Makes a call again while the job tracker cannot be reached, as during a restart. The calls of a client
/// can all be repeated: the second submission of a job only returns its status.
pub(super) async fn again<T>(
    mut call: impl AsyncFnMut() -> Result<T, CallError>,
) -> Result<T, CallError> {
    let began = Instant::now();
    loop {
        match call().await {
            Ok(value) => return Ok(value),
            Err(error) => {
                let is_answer = matches!(
                    error,
                    CallError::Remote(_) | CallError::Refused(_) | CallError::Version { .. }
                ) || error.is_http();
                if is_answer || began.elapsed() >= PATIENCE {
                    return Err(error);
                }
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// A job that runs.
pub(super) struct Follower {
    pub(super) id: JobId,
    pub(super) maps: usize,
    pub(super) reduces: u32,
    pub(super) bytes: u64,
    pub(super) output: String,
    pub(super) json: bool,
}

/// The end of a job, as JSON.
#[derive(Debug, Serialize)]
struct End {
    job: String,
    state: &'static str,
    seconds: f64,
    maps: usize,
    reduces: u32,
    input_bytes: u64,
    output: String,
    page: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    failures: Vec<Failure>,
    counters: Vec<Counter>,
}

/// A task that failed, as JSON.
#[derive(Debug, Serialize)]
struct Failure {
    task: String,
    /// All that ended without success: those that failed and those that were killed.
    attempts: usize,
    failed_attempts: usize,
    killed_attempts: usize,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

/// What a look at a job has found.
enum Look {
    Runs {
        maps: f32,
        reduces: f32,
    },
    /// Its state, and why the job tracker has ended it.
    Over(&'static str, Option<String>),
    /// The job tracker has been restarted, and finished jobs are not kept.
    Forgotten,
}

impl Follower {
    /// Shows the progress of the job until it ends. The first signal kills it, the second ends the
    /// wait. Returns whether it succeeded.
    ///
    /// # Errors
    /// The job tracker cannot be reached any more.
    pub(super) async fn follow(
        self,
        caller: &mut Caller,
        files: &dyn FileSystem,
        output: &FsPath,
        mut stop: Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<bool> {
        let began = Instant::now();
        let client = &mut caller.client;
        let profile = again(async || client.get_job_profile(self.id.clone()).await);
        let profile = stop.or(profile).await.map(|profile| caller.checked(profile)).transpose()?;
        let page = profile.flatten().map(|profile| profile.url).unwrap_or_default();
        let maps = counted(self.maps as u64, "map");
        let reduces = counted(self.reduces.into(), "reduce");
        console.complain(&format!("{}: {maps}, {reduces}; page {}\n", self.id, printable(&page)));
        let (state, note) = self.until_over(caller, files, output, &mut stop, console).await?;
        let seconds = began.elapsed().as_secs_f64();
        let failures = match state {
            "SUCCEEDED" => Vec::new(),
            _ => self.failures(caller).await,
        };
        let client = &mut caller.client;
        let counters = again(async || client.get_job_counters(self.id.clone()).await).await;
        let counters = listed(caller.checked(counters)?.unwrap_or_default());
        let has_succeeded = state == "SUCCEEDED";
        for failure in &failures {
            console.complain(&failure.text());
        }
        if let Some(note) = &note {
            console.complain(&format!("{}: {}\n", self.id, printable(note)));
        }
        let word = state.to_lowercase();
        console.complain(&format!("{} {word} after {seconds:.1} s\n", self.id));
        if self.json {
            let Follower { id, maps, reduces, bytes, output, .. } = self;
            console.print_json(&End {
                job: id.to_string(),
                state,
                seconds: (seconds * 1000.0).round() / 1000.0,
                maps,
                reduces,
                input_bytes: bytes,
                output,
                page,
                note,
                failures,
                counters,
            })?;
        } else if has_succeeded {
            let table = counters_table(&counters).render(console, false);
            console.print(&table)?;
            console.print(&format!("output {}\n", printable(&self.output)))?;
        }
        Ok(has_succeeded)
    }

    /// Waits for the end; returns the state of the job then.
    async fn until_over(
        &self,
        caller: &mut Caller,
        files: &dyn FileSystem,
        output: &FsPath,
        stop: &mut Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<(&'static str, Option<String>)> {
        let mut shown = Progress::new();
        let mut pause = FIRST_PAUSE;
        let mut is_killed = false;
        loop {
            if stop.is_wanted() && !is_killed {
                shown.clear(console);
                console.complain(&format!("killing {}; again to stop at once\n", self.id));
                is_killed = true;
                let client = &mut caller.client;
                let kill = again(async || client.kill_job(self.id.clone()).await);
                let (killed, is_second) = stop.or_later(KILL_PATIENCE, kill).await;
                match killed.map(|killed| caller.checked(killed)) {
                    Some(Ok(_)) if is_second => return Err(self.left()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.context(self.may_run())),
                    None => return Err(self.may_run()),
                }
                pause = FIRST_PAUSE;
            }
            let look = async {
                sleep(pause).await;
                self.look(caller).await
            };
            let looked = match stop.or(look).await {
                Some(looked) => looked?,
                None if is_killed => {
                    shown.clear(console);
                    return Err(self.left());
                }
                None => continue,
            };
            match looked {
                Look::Runs { maps, reduces } => {
                    shown.show(maps, reduces, self.reduces, console);
                }
                Look::Over(state, note) => {
                    if state == "SUCCEEDED" {
                        // The last look was before the last task ended.
                        shown.show(1.0, 1.0, self.reduces, console);
                    }
                    shown.clear(console);
                    return Ok((state, note));
                }
                Look::Forgotten => {
                    shown.clear(console);
                    // The output is new: if it is complete, this job has completed it.
                    return match files.find(&output.join("_SUCCESS")).await? {
                        Some(_) => Ok(("SUCCEEDED", None)),
                        None => Err(anyhow!(
                            "{} does not know {} any more: it was restarted when the job had \
                             ended, and the output is not complete",
                            caller.who,
                            self.id
                        )),
                    };
                }
            }
            pause = (pause * 5 / 4).min(LONGEST_PAUSE);
        }
    }

    /// The error of a wait that a second signal has ended.
    fn left(&self) -> anyhow::Error {
        anyhow!("stopped before the end of {}; see corona jobs info {}", self.id, self.id)
    }

    /// The error of a kill that did not reach the job tracker.
    fn may_run(&self) -> anyhow::Error {
        anyhow!("{} may still run; end it with 'corona jobs kill {}'", self.id, self.id)
    }

    async fn look(&self, caller: &mut Caller) -> anyhow::Result<Look> {
        let client = &mut caller.client;
        let status = again(async || client.get_job_status(self.id.clone()).await).await;
        Ok(match caller.checked(status)? {
            None => Look::Forgotten,
            Some(status) if is_over(status.run_state) => {
                Look::Over(state(status.run_state), note(&status).map(str::to_owned))
            }
            Some(status) => {
                Look::Runs { maps: status.map_progress, reduces: status.reduce_progress }
            }
        })
    }

    /// The tasks that failed and why, as far as the job tracker says so.
    async fn failures(&self, caller: &mut Caller) -> Vec<Failure> {
        let (id, client) = (&self.id, &mut caller.client);
        let mut failed: Vec<TaskReport> = Vec::new();
        // What cannot be found out is not shown: the job's state matters more.
        for reports in [
            again(async || client.get_setup_task_reports(id.clone()).await).await,
            again(async || client.get_map_task_reports(id.clone()).await).await,
            again(async || client.get_reduce_task_reports(id.clone()).await).await,
            again(async || client.get_cleanup_task_reports(id.clone()).await).await,
        ] {
            let reports = reports.ok().flatten().unwrap_or_default();
            failed.extend(reports.into_iter().filter(|task| task.state == TaskReportState::Failed));
        }
        failed.truncate(MOST_FAILURES);
        let events = if failed.is_empty() { Vec::new() } else { self.events(caller).await };
        let mut failures = Vec::new();
        for task in failed {
            let ended = Ended::of(&task, &events);
            let reason = match &ended.last_failed {
                Some(attempt) => {
                    let client = &mut caller.client;
                    let said = again(async || client.get_task_diagnostics(attempt.clone()).await);
                    said.await
                        .ok()
                        .flatten()
                        .and_then(|texts| texts.into_iter().flatten().next_back())
                }
                None => None,
            };
            failures.push(Failure::of(&task, ended, reason));
        }
        failures
    }

    async fn events(&self, caller: &mut Caller) -> Vec<TaskCompletionEvent> {
        let client = &mut caller.client;
        let mut events = Vec::new();
        while events.len() < MOST_EVENTS {
            let from = i32::try_from(events.len()).unwrap_or(i32::MAX);
            let id = || self.id.clone();
            let next =
                again(async || client.get_task_completion_events(id(), from, EVENTS).await).await;
            let next = next.ok().flatten().unwrap_or_default();
            if next.is_empty() {
                break;
            }
            events.extend(next);
        }
        events
    }
}

/// How the attempts at a task ended that did not succeed.
#[derive(Debug, Default, PartialEq)]
struct Ended {
    failed: usize,
    killed: usize,
    last_failed: Option<TaskAttemptId>,
    log: Option<String>,
}

impl Ended {
    fn of(task: &TaskReport, events: &[TaskCompletionEvent]) -> Ended {
        let mut ended = Ended::default();
        for event in events.iter().filter(|event| event.attempt.task == task.task) {
            match event.status {
                EventStatus::Failed | EventStatus::TipFailed => {
                    ended.failed += 1;
                    ended.last_failed = Some(event.attempt.clone());
                    let tracker = event.tracker_http.as_deref();
                    ended.log = tracker
                        .map(|tracker| format!("{tracker}/tasklog?taskid={}", event.attempt));
                }
                EventStatus::Killed => ended.killed += 1,
                _ => {}
            }
        }
        // A job tracker that lists no events still has the errors.
        if ended.failed + ended.killed == 0 {
            ended.failed = task.diagnostics.len();
        }
        ended
    }
}

impl Failure {
    /// `reason` is what the last attempt that failed said.
    fn of(task: &TaskReport, ended: Ended, reason: Option<String>) -> Failure {
        let reason = reason.or_else(|| task.diagnostics.last().cloned());
        Failure {
            task: task.task.to_string(),
            attempts: ended.failed + ended.killed,
            failed_attempts: ended.failed,
            killed_attempts: ended.killed,
            reason: reason
                .map_or_else(|| "no reason is known".to_owned(), |text| text.trim_end().to_owned()),
            log: ended.log,
        }
    }

    fn text(&self) -> String {
        let times = match (self.failed_attempts, self.killed_attempts) {
            (0 | 1, 0) => String::new(),
            (times, 0) => format!(" {times} times; the last time"),
            (times, killed) => {
                let (times, killed) =
                    (counted(times as u64, "time"), counted(killed as u64, "attempt"));
                format!(" {times}, {killed} killed; the last failure")
            }
        };
        let mut text = format!("{} failed{times}:\n", printable(&self.task));
        for line in self.reason.lines() {
            text.push_str(&format!("  {}\n", printable(line)));
        }
        if let Some(log) = &self.log {
            text.push_str(&format!("  log {}\n", printable(log)));
        }
        text
    }
}

/// The progress of a job: a bar on a terminal, else a line for each change of a few percent.
struct Progress {
    on_terminal: bool,
    shown: Option<(u32, u32)>,
}

impl Progress {
    /// Percent after which a further line is written where there is no terminal.
    const STEP: u32 = 10;

    fn new() -> Progress {
        Progress { on_terminal: std::io::stderr().is_terminal(), shown: None }
    }

    fn show(&mut self, maps: f32, reduces: f32, of_reduces: u32, console: &mut Console<'_>) {
        let percent = |part: f32| (part.clamp(0.0, 1.0) * 100.0) as u32;
        let (maps, reduces) = (percent(maps), percent(reduces));
        let now = match self.on_terminal {
            true => (maps, reduces),
            false => (maps / Progress::STEP, reduces / Progress::STEP),
        };
        if self.shown == Some(now) {
            return;
        }
        self.shown = Some(now);
        let text = match of_reduces {
            0 => format!("map {maps} %"),
            _ => format!("map {maps} % reduce {reduces} %"),
        };
        if self.on_terminal {
            let done = if of_reduces == 0 { maps * 2 } else { maps + reduces };
            console.complain(&format!("\r{}", bar(done.into(), 200, &text)));
        } else {
            console.complain(&format!("{text}\n"));
        }
    }

    fn clear(&mut self, console: &mut Console<'_>) {
        if self.on_terminal && self.shown.take().is_some() {
            console.complain(&format!("\r{:79}\r", ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use corona::hadoop::writables as wire;

    use super::*;

    fn task(errors: &[&str]) -> TaskReport {
        TaskReport {
            task: attempt(0).task,
            progress: 0.0,
            state_string: String::new(),
            diagnostics: errors.iter().map(|error| (*error).to_owned()).collect(),
            state: TaskReportState::Failed,
            start_time_ms: 0,
            finish_time_ms: 0,
            counters: wire::Counters::default(),
        }
    }

    fn attempt(number: i32) -> TaskAttemptId {
        format!("attempt_202611230216.2_0001_m_000000_{number}").parse().unwrap()
    }

    fn event(number: i32, status: EventStatus) -> TaskCompletionEvent {
        TaskCompletionEvent {
            event_id: number,
            tracker_http: Some(format!("http://node{number}:1")),
            run_time_ms: 0,
            attempt: attempt(number),
            id_within_job: 0,
            is_map: true,
            status,
        }
    }

    #[test]
    fn failures_and_kills_are_counted_separately() {
        use EventStatus::{Failed, Killed, TipFailed};

        let statuses = [Killed, Failed, Killed, Failed, Killed, Killed, Failed, Killed, TipFailed];
        let events: Vec<_> =
            (0..).zip(statuses).map(|(number, status)| event(number, status)).collect();
        let errors = vec!["Error launching task"; 9];
        let failure = Failure::of(&task(&errors), Ended::of(&task(&errors), &events), None);
        let counts = (failure.attempts, failure.failed_attempts, failure.killed_attempts);
        assert_eq!(counts, (9, 4, 5));
        let text = failure.text();
        let first = "task_202611230216.2_0001_m_000000 failed 4 times, 5 attempts killed; the last failure:\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("log http://node8:1/tasklog?taskid="), "{text}");
        // Without events only the errors can be counted.
        let failure =
            Failure::of(&task(&["one", "two"]), Ended::of(&task(&["one", "two"]), &[]), None);
        assert!(failure.text().contains("failed 2 times; the last time:\n  two\n"));
        let once =
            Failure::of(&task(&["one"]), Ended::of(&task(&["one"]), &[]), Some("why".into()));
        assert!(once.text().contains("failed:\n  why\n"), "{}", once.text());
    }
}
