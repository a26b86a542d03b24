//! `corona jobs logs`: what the attempts of a job wrote, from the task trackers that ran them.

use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use corona::api::jobs::{Attempt, AttemptDetail, TaskDetail};
use corona::hadoop::writables::{EventStatus, JobId, TaskAttemptId, TaskCompletionEvent, TaskId};
use serde::Serialize;

use super::failures::{events, has_failed};
use super::{One, pages_at};
use crate::commands::cluster::block_on;
use corona_terminal::console::{Console, Form, printable};

/// Attempts whose logs are printed when none is named.
const MOST_ATTEMPTS: usize = 10;

#[derive(Args, Clone, Debug)]
pub(super) struct Logs {
    #[command(flatten)]
    one: One,

    /// A task or an attempt [default: the attempts that failed, else those that
    /// succeeded, at most 10]
    #[arg(value_name = "TASK", value_parser = parse_wanted)]
    task: Option<Wanted>,

    /// Which log
    #[arg(long, value_enum, default_value_t = Which::All)]
    log: Which,

    /// The last bytes of each log only
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    tail: Option<u64>,
}

/// Whose logs are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Task(TaskId),
    Attempt(TaskAttemptId),
}

/// A log of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// All of them
    All,
    /// What programs wrote to stdout
    Stdout,
    /// What programs wrote to stderr
    Stderr,
    /// The log of the task itself
    Syslog,
}

fn parse_wanted(text: &str) -> Result<Wanted, String> {
    let attempt = || text.parse().map(Wanted::Attempt).ok();
    let task = || text.parse().map(Wanted::Task).ok();
    attempt().or_else(task).ok_or_else(|| "expected task_... or attempt_...".to_owned())
}

impl Which {
    /// The names of the filters of a task tracker.
    fn filters(self) -> &'static [&'static str] {
        match self {
            Which::All => &["stdout", "stderr", "syslog"],
            Which::Stdout => &["stdout"],
            Which::Stderr => &["stderr"],
            Which::Syslog => &["syslog"],
        }
    }
}

/// An attempt, and the address of its logs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    attempt: TaskAttemptId,
    state: String,
    /// `http://host:port` of the task tracker.
    tracker: String,
}

/// The logs of an attempt, as JSON.
#[derive(Debug, Serialize)]
struct Log {
    attempt: String,
    state: String,
    task_tracker: String,
    logs: Vec<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Part {
    log: &'static str,
    text: String,
}

/// Those whose logs are printed, and how many more there are. The events of an attempt come in order; the
/// last one counts.
fn chosen(events: &[TaskCompletionEvent], wanted: Option<&Wanted>) -> (Vec<Place>, usize) {
    let is_wanted = |event: &&TaskCompletionEvent| match wanted {
        None => true,
        Some(Wanted::Task(task)) => event.attempt.task == *task,
        Some(Wanted::Attempt(attempt)) => event.attempt == *attempt,
    };
    let mut places: Vec<(Place, bool)> = Vec::new();
    for event in events.iter().filter(is_wanted) {
        let Some(tracker) = &event.tracker_http else { continue };
        let state = match event.status {
            EventStatus::Failed | EventStatus::TipFailed => "FAILED",
            EventStatus::Killed => "KILLED",
            EventStatus::Succeeded | EventStatus::SucceededNoOutput | EventStatus::Obsolete => {
                "SUCCEEDED"
            }
        };
        let (attempt, tracker) = (event.attempt.clone(), tracker.clone());
        places.retain(|(place, _)| place.attempt != attempt);
        places.push((Place { attempt, state: state.to_owned(), tracker }, has_failed(event)));
    }
    if wanted.is_none() && places.iter().any(|(_, failed)| *failed) {
        places.retain(|(_, failed)| *failed);
    }
    let more = if wanted.is_none() { places.len().saturating_sub(MOST_ATTEMPTS) } else { 0 };
    let shown = places.len() - more;
    (places.into_iter().take(shown).map(|(place, _)| place).collect(), more)
}

impl Logs {
    pub(super) fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let Logs { one: One { job, output, which }, task, log, tail } = self;
        let due = which.patience();
        let mut caller = which.caller()?;
        let (mut places, more, page) = block_on(async {
            let page = caller.profile(&job).await?.url;
            let events = events(&mut caller, &job).await;
            let (places, more) = chosen(&events, task.as_ref());
            anyhow::Ok((places, more, page))
        })?;
        if let Some(wanted) = task.as_ref().filter(|_| places.is_empty()) {
            // It may run still.
            places = block_on(running(&job, wanted, &page, due))?;
        }
        if places.is_empty() {
            bail!(match &task {
                Some(_) => anyhow!("no attempt of it has begun; see 'corona jobs tasks {job}'"),
                None => anyhow!("no attempt of {job} has ended; name a task or an attempt"),
            });
        }
        let mut logs = Vec::new();
        for place in &places {
            let log = block_on(read(place, log, tail, due))?;
            match output.output {
                Form::Json => logs.push(log),
                Form::Table => console.print(&log.text())?,
            }
        }
        if output.output == Form::Json {
            return console.print_json(&logs);
        }
        if more > 0 {
            console.complain(&format!("{more} more attempts; name a task or an attempt\n"));
        }
        Ok(())
    }
}

/// The attempts of a task that have not ended, from the pages of this program's job tracker.
async fn running(
    job: &JobId,
    wanted: &Wanted,
    page: &str,
    due: Duration,
) -> anyhow::Result<Vec<Place>> {
    let Some(pages) = pages_at(page, due) else { return Ok(Vec::new()) };
    let attempts = match wanted {
        Wanted::Task(task) => {
            let path = format!("/api/v1/jobs/{job}/tasks/{task}");
            pages.api::<TaskDetail>(&path).await?.found().map(|task| task.attempts)
        }
        Wanted::Attempt(attempt) => {
            let path = format!("/api/v1/jobs/{job}/attempts/{attempt}");
            let detail = pages.api::<AttemptDetail>(&path).await?.found();
            detail.map(|detail| vec![detail.attempt])
        }
    };
    let place = |of: Attempt| {
        let tracker = of.logs?.split("/tasklog").next()?.to_owned();
        Some(Place { attempt: of.id.parse().ok()?, state: of.state, tracker })
    };
    Ok(attempts.into_iter().flatten().filter_map(place).collect())
}

async fn read(
    place: &Place,
    which: Which,
    tail: Option<u64>,
    due: Duration,
) -> anyhow::Result<Log> {
    let mut logs = Vec::new();
    let mut error = None;
    let tail = tail.map(|bytes| format!("&start=-{bytes}")).unwrap_or_default();
    for filter in which.filters() {
        let path =
            format!("/tasklog?taskid={}&plaintext=true&filter={filter}{tail}", place.attempt);
        let text = async {
            let pages = pages_at(&place.tracker, due);
            ensure!(pages.is_some(), "{:?} is no address", place.tracker);
            match pages {
                Some(pages) => pages.page_if_any(&path).await,
                None => Ok(None),
            }
        };
        match text.await {
            Ok(Some(text)) if !text.is_empty() => logs.push(Part { log: filter, text }),
            Ok(_) => {}
            Err(failed) => {
                error = Some(format!("{failed:#}"));
                break;
            }
        }
    }
    Ok(Log {
        attempt: place.attempt.to_string(),
        state: place.state.clone(),
        task_tracker: place.tracker.clone(),
        logs,
        error,
    })
}

impl Log {
    fn text(&self) -> String {
        let mut text = String::new();
        let Log { attempt, state, task_tracker, logs, error } = self;
        for Part { log, text: content } in logs {
            text.push_str(&format!("==> {attempt} {state} {log} <==\n"));
            for line in content.lines() {
                text.push_str(&printable(line));
                text.push('\n');
            }
        }
        let why = match error {
            Some(error) => error.clone(),
            None if logs.is_empty() => format!("{task_tracker} has no log of it"),
            None => return text,
        };
        text.push_str(&format!("==> {attempt} {state} <==\n{}\n", printable(&why)));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(attempt: &str, status: EventStatus, tracker: Option<&str>) -> TaskCompletionEvent {
        TaskCompletionEvent {
            id_within_job: 0,
            attempt: format!("attempt_202611221033.2_0001_{attempt}").parse().unwrap(),
            is_map: true,
            status,
            tracker_http: tracker.map(str::to_owned),
            run_time_ms: 1,
            event_id: 0,
        }
    }

    #[test]
    fn the_attempts_that_failed_are_shown_or_those_that_are_named() {
        use EventStatus::{Failed, Killed, Obsolete, Succeeded, TipFailed};
        let n = Some("http://n:1");
        let events = [
            event("m_000000_0", Failed, n),
            event("m_000001_0", Succeeded, n),
            event("m_000000_1", Killed, n),
            event("m_000001_0", Obsolete, n),
            event("m_000000_2", TipFailed, None),
            event("r_000000_0", Succeeded, n),
        ];
        let names = |wanted: Option<&str>, events: &[TaskCompletionEvent]| -> Vec<String> {
            let wanted = wanted.map(|text| parse_wanted(text).unwrap());
            let (places, _) = chosen(events, wanted.as_ref());
            places.iter().map(|it| format!("{} {}", it.attempt, it.state)).collect()
        };
        let shown = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("attempt_202611221033.2_0001_{name}")).collect()
        };
        assert_eq!(names(None, &events), shown(&["m_000000_0 FAILED"]));
        assert_eq!(
            names(None, &events[3..]),
            shown(&["m_000001_0 SUCCEEDED", "r_000000_0 SUCCEEDED"])
        );
        let task = "task_202611221033.2_0001_m_000000";
        assert_eq!(names(Some(task), &events), shown(&["m_000000_0 FAILED", "m_000000_1 KILLED"]));
        let attempt = "attempt_202611221033.2_0001_m_000000_1";
        assert_eq!(names(Some(attempt), &events), shown(&["m_000000_1 KILLED"]));
        let many: Vec<_> =
            (0..15).map(|number| event(&format!("m_{number:06}_0"), Succeeded, n)).collect();
        let (places, more) = chosen(&many, None);
        assert_eq!((places.len(), more), (10, 5));
        assert!(parse_wanted("job_202611221033.2_0001").is_err());
    }

    #[test]
    fn logs_have_a_head_for_each_file() {
        let log = |logs, error| Log {
            attempt: "attempt_1".into(),
            state: "FAILED".into(),
            task_tracker: "http://n:1".into(),
            logs,
            error,
        };
        let part = |log, text: &str| Part { log, text: text.to_owned() };
        let parts = vec![part("stderr", "one\n  two\u{1b}[1m"), part("syslog", "three\n")];
        let expected = "==> attempt_1 FAILED stderr <==\none\n  two\\u{1b}[1m\n\
                        ==> attempt_1 FAILED syslog <==\nthree\n";
        assert_eq!(log(parts, None).text(), expected);
        let none = "==> attempt_1 FAILED <==\nhttp://n:1 has no log of it\n";
        assert_eq!(log(vec![], None).text(), none);
        assert_eq!(log(vec![], Some("away".into())).text(), "==> attempt_1 FAILED <==\naway\n");
    }
}
