//! The tasks of a job that failed, and why: from the calls of the original's clients.

use corona::hadoop::writables::{
    EventStatus, JobId, TaskAttemptId, TaskCompletionEvent, TaskReport, TaskReportState,
};
use serde::Serialize;

use super::{Caller, Kind};
use corona_terminal::console::printable;
use corona_terminal::counted;

/// Failed tasks that are shown.
const MOST_FAILURES: usize = 3;
/// Completion events that are asked for at a time, and all in all.
const EVENTS: i32 = 1_000;
const MOST_EVENTS: usize = 100_000;

/// A task that failed, as JSON.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Failure {
    task: String,
    /// All that ended without success: those that failed and those that were killed.
    attempts: usize,
    failed_attempts: usize,
    killed_attempts: usize,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

/// How many tasks of a kind a job has, as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    tasks: usize,
    complete: usize,
    running: usize,
    failed: usize,
    killed: usize,
}

/// The tasks of a job, as far as the job tracker still knows them.
#[derive(Debug, Default)]
pub(in crate::commands) struct Reports {
    pub(super) maps: Vec<TaskReport>,
    pub(super) reduces: Vec<TaskReport>,
    others: Vec<TaskReport>,
}

impl Counts {
    pub(super) fn of(reports: &[TaskReport]) -> Counts {
        let mut counts = Counts { tasks: reports.len(), ..Counts::default() };
        for report in reports {
            match report.state {
                TaskReportState::Pending => {}
                TaskReportState::Running(_) => counts.running += 1,
                TaskReportState::Complete(_) => counts.complete += 1,
                TaskReportState::Failed => counts.failed += 1,
                TaskReportState::Killed => counts.killed += 1,
            }
        }
        counts
    }

    /// `4: 3 complete, 1 failed`.
    pub(super) fn text(self) -> String {
        let parts = [
            (self.complete, "complete"),
            (self.running, "running"),
            (self.failed, "failed"),
            (self.killed, "killed"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, word)| format!("{count} {word}")).collect();
        match parts.is_empty() {
            true => self.tasks.to_string(),
            false => format!("{}: {}", self.tasks, parts.join(", ")),
        }
    }
}

impl Reports {
    /// What cannot be found out is left out: the job's state matters more.
    pub(in crate::commands) async fn of(caller: &mut Caller, id: &JobId) -> Reports {
        let mut others = reports(caller, Kind::Setup, id).await;
        let maps = reports(caller, Kind::Map, id).await;
        let reduces = reports(caller, Kind::Reduce, id).await;
        others.extend(reports(caller, Kind::Cleanup, id).await);
        Reports { maps, reduces, others }
    }

    /// The last end of a task, in milliseconds since 1970.
    pub(super) fn last_end_ms(&self) -> Option<i64> {
        let all = self.maps.iter().chain(&self.reduces).chain(&self.others);
        all.map(|report| report.finish_time_ms).filter(|ms| *ms > 0).max()
    }

    /// The first tasks that failed and why.
    pub(in crate::commands) async fn failures(
        self,
        caller: &mut Caller,
        id: &JobId,
    ) -> Vec<Failure> {
        let all = self.others.into_iter().chain(self.maps).chain(self.reduces);
        let failed: Vec<TaskReport> =
            all.filter(|task| task.state == TaskReportState::Failed).take(MOST_FAILURES).collect();
        let events = if failed.is_empty() { Vec::new() } else { events(caller, id).await };
        let mut failures = Vec::new();
        for task in failed {
            let ended = Ended::of(&task, &events);
            let reason = match &ended.last_failed {
                Some(attempt) => {
                    let client = &mut caller.client;
                    let said = caller
                        .retry
                        .again(async || client.get_task_diagnostics(attempt.clone()).await);
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
}

/// The tasks of a kind, as far as they can be found out.
async fn reports(caller: &mut Caller, kind: Kind, id: &JobId) -> Vec<TaskReport> {
    let retry = caller.retry;
    let reports = retry.again(async || caller.reports(kind, id).await).await;
    reports.ok().flatten().unwrap_or_default()
}

/// The completion events of a job, as far as they can be found out.
pub(super) async fn events(caller: &mut Caller, id: &JobId) -> Vec<TaskCompletionEvent> {
    let client = &mut caller.client;
    let mut events = Vec::new();
    while events.len() < MOST_EVENTS {
        let from = i32::try_from(events.len()).unwrap_or(i32::MAX);
        let next = async || client.get_task_completion_events(id.clone(), from, EVENTS).await;
        let next = caller.retry.again(next).await.ok().flatten().unwrap_or_default();
        if next.is_empty() {
            break;
        }
        events.extend(next);
    }
    events
}

/// Whether an attempt failed by itself; those that were killed did not.
pub(super) fn has_failed(event: &TaskCompletionEvent) -> bool {
    matches!(event.status, EventStatus::Failed | EventStatus::TipFailed)
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
            if has_failed(event) {
                ended.failed += 1;
                ended.last_failed = Some(event.attempt.clone());
                let tracker = event.tracker_http.as_deref();
                ended.log =
                    tracker.map(|tracker| format!("{tracker}/tasklog?taskid={}", event.attempt));
            } else if event.status == EventStatus::Killed {
                ended.killed += 1;
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

    pub(in crate::commands) fn text(&self) -> String {
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
        if let Some(hint) = hint(&self.reason) {
            text.push_str(&format!("  ({hint})\n"));
        }
        if let Some(log) = &self.log {
            text.push_str(&format!("  log {}\n", printable(log)));
        }
        text
    }
}

/// What a reason usually means, and what to do, where the reason itself does not say it.
fn hint(reason: &str) -> Option<&'static str> {
    const COMPRESSED: [&str; 5] = [".gz: ", ".bz2: ", ".deflate: ", ".xz: ", ".zst: "];
    let first = reason.lines().next().unwrap_or_default();
    let of_input = first.contains("cannot read the input ");
    if first.contains("failed to report status for ") {
        return Some(
            "it neither read, wrote nor reported anything for so long; a program reports with a line \
             reporter:status:TEXT on stderr, and -D mapred.task.timeout=MILLISECONDS allows more time",
        );
    }
    if first.contains(" ended before it had read its input") {
        return Some(
            "a program must read its input to the end; one that needs only the beginning goes on \
             with cat, as in { head -n 5; cat > /dev/null; }",
        );
    }
    if first.contains("(corona.task.max.record.bytes)") {
        return Some(match of_input {
            true => {
                "-D corona.task.max.record.bytes=BYTES allows longer lines, --skip-bad-records leaves \
                 them out"
            }
            false => "-D corona.task.max.record.bytes=BYTES allows longer lines",
        });
    }
    if of_input && COMPRESSED.iter().any(|ending| first.contains(ending)) {
        return Some(
            "the ending of the file's name decides how it is read; it is damaged, or of another kind than its \
             name says: rename it, or compress it again",
        );
    }
    let is_without = MISSING_PACKAGE.iter().any(|text| reason.contains(text));
    is_without.then_some(
        "the program needs a package that this node does not have: give it to the tasks with --file for a file or \
         directory of yours, with --archive for a whole environment, or install it on every node",
    )
}

/// What Python, Perl, Ruby, Node and R write where a package is missing.
const MISSING_PACKAGE: [&str; 6] = [
    "ModuleNotFoundError",
    "ImportError: No module named",
    "in @INC",
    "cannot load such file",
    "Cannot find module",
    "there is no package called",
];

#[cfg(test)]
mod tests {
    use super::*;
    use corona::hadoop::writables::Counters;

    fn report(task: &str, state: TaskReportState, diagnostics: &[&str]) -> TaskReport {
        TaskReport {
            task: task.parse().unwrap(),
            progress: 0.0,
            state_string: String::new(),
            start_time_ms: 1,
            finish_time_ms: 0,
            diagnostics: diagnostics.iter().map(|text| (*text).to_owned()).collect(),
            counters: Counters::default(),
            state,
        }
    }

    fn event(number: i32, status: EventStatus) -> TaskCompletionEvent {
        TaskCompletionEvent {
            event_id: number,
            tracker_http: Some(format!("http://node{number}:1")),
            run_time_ms: 0,
            attempt: format!("attempt_202611230216.2_0001_m_000000_{number}").parse().unwrap(),
            id_within_job: 0,
            is_map: true,
            status,
        }
    }

    #[test]
    fn failures_and_kills_are_counted_separately() {
        use EventStatus::{Failed, Killed, TipFailed};

        let task =
            |errors| report("task_202611230216.2_0001_m_000000", TaskReportState::Failed, errors);
        let statuses = [Killed, Failed, Killed, Failed, Killed, Killed, Failed, Killed, TipFailed];
        let events: Vec<_> =
            (0..).zip(statuses).map(|(number, status)| event(number, status)).collect();
        let many = task(&["Error launching task"; 9]);
        let failure = Failure::of(&many, Ended::of(&many, &events), None);
        let counts = (failure.attempts, failure.failed_attempts, failure.killed_attempts);
        assert_eq!(counts, (9, 4, 5));
        let text = failure.text();
        let first = "task_202611230216.2_0001_m_000000 failed 4 times, 5 attempts killed; the last failure:\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("log http://node8:1/tasklog?taskid="), "{text}");
        // Without events only the errors can be counted.
        let two = task(&["one", "two"]);
        let failure = Failure::of(&two, Ended::of(&two, &[]), None);
        assert!(failure.text().contains("failed 2 times; the last time:\n  two\n"));
        let one = task(&["one"]);
        let once = Failure::of(&one, Ended::of(&one, &[]), Some("why".into()));
        assert!(once.text().contains("failed:\n  why\n"), "{}", once.text());
    }

    #[test]
    fn tasks_are_counted_by_their_states() {
        let task = "task_202611221033.2_0001_m_000000";
        let attempt: TaskAttemptId = "attempt_202611221033.2_0001_m_000000_0".parse().unwrap();
        let states = [
            TaskReportState::Pending,
            TaskReportState::Running(vec![attempt.clone()]),
            TaskReportState::Complete(attempt),
            TaskReportState::Failed,
            TaskReportState::Killed,
            TaskReportState::Killed,
        ];
        let reports: Vec<_> = states.into_iter().map(|state| report(task, state, &[])).collect();
        let text = Counts::of(&reports).text();
        assert_eq!(text, "6: 1 complete, 1 running, 1 failed, 2 killed");
        assert_eq!(Counts::of(&[]).text(), "0");
    }

    #[test]
    fn reasons_have_hints() {
        let input = "cannot read the input file:/in/";
        for (reason, expected) in [
            (
                "Task a failed to report status for 1 seconds. Killing!",
                Some("reporter:status:TEXT"),
            ),
            ("Broken pipe: true ended before it had read its input", Some("cat > /dev/null")),
            (
                &format!(
                    "{input}line: a line has more than 9 bytes (corona.task.max.record.bytes)"
                ),
                Some("--skip-bad-records"),
            ),
            (
                "cannot read the output of x: a line has more than 9 bytes (corona.task.max.record.bytes)",
                Some("allows longer lines"),
            ),
            (&format!("{input}b.xz: invalid XZ magic bytes"), Some("the file's name")),
            (&format!("{input}b.gz: unexpected end of file"), Some("the file's name")),
            (&format!("{input}b.txt: Permission denied (os error 13)"), None),
            ("PipeMapRed.waitOutputThreads(): subprocess failed with code 3", None),
            ("code 3\nLast lines of stderr:\nx ended before it had read its input", None),
            (
                "code 1\nLast lines of stderr:\nModuleNotFoundError: No module named 'x'",
                Some("with --file for a file or directory"),
            ),
            ("code 2\nLast lines of stderr:\nCan't locate X.pm in @INC", Some("--archive")),
            ("", None),
        ] {
            let found = hint(reason);
            let fits = match (found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(fits, "{reason}: {found:?}");
        }
    }
}
