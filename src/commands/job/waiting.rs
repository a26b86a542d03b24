//! What a command for jobs says while it waits, so that it is never silent for long.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use corona::api::cluster::Status;
use corona::api::jobs::JobWaits;
use corona::hadoop::writables::JobId;
use tokio::time::{Instant, timeout};

use crate::commands::jobs::{Caller, Which, pages_at};
use crate::commands::web::{Answer, Web};
use corona_terminal::console::{Console, printable};

/// How long a wait may be silent at first, and between two lines that say the same.
const FIRST: Duration = Duration::from_secs(3);
const NEXT: Duration = Duration::from_secs(30);
/// How long pages may take to say why.
const PATIENCE: Duration = Duration::from_secs(2);
/// Reasons of one job that are shown.
const MOST_REASONS: usize = 3;
/// How the cluster manager says that there are no nodes, and what to do.
const NO_NODES: &str = "the cluster has no nodes";
const HOW_TO_ADD_NODES: &str = "; the job begins when there are some: 'corona head status' on the head prints the line by \
     which a machine becomes a node, and with configuration files 'corona task-tracker' is one";

/// Says what is waited for.
pub(super) struct Waiting {
    /// The job tracker.
    who: String,
    /// The pages of the cluster manager, which may know why.
    manager: Option<Web>,
    /// What to do if they refuse connections too.
    hint: String,
    progress: Idle,
}

/// A job that makes no progress.
#[derive(Debug)]
struct Idle {
    since: Instant,
    last: Option<(f32, f32)>,
    /// When its pages are asked next.
    due: Instant,
    /// What was said last, and when.
    said: Option<(String, Instant)>,
}

impl Idle {
    fn new(now: Instant) -> Idle {
        Idle { since: now, last: None, due: now + FIRST, said: None }
    }

    /// Takes note of how far the job is. Whether its pages are to be asked now.
    fn seen(&mut self, now: Instant, progress: (f32, f32)) -> bool {
        if self.last != Some(progress) {
            *self = Idle { last: Some(progress), said: self.said.take(), ..Idle::new(now) };
            return false;
        }
        let is_due = now >= self.due;
        if is_due {
            self.due = now + FIRST;
        }
        is_due
    }

    /// Whether a text is to be shown now: it is new, or was shown long ago.
    fn says(&mut self, now: Instant, text: &str) -> bool {
        // Seconds alone are nothing new.
        let text: String = text.chars().filter(|it| !it.is_ascii_digit()).collect();
        let is_known = |said: &(String, Instant)| said.0 == text && now < said.1 + NEXT;
        if self.said.as_ref().is_some_and(is_known) {
            return false;
        }
        self.said = Some((text, now));
        true
    }
}

/// Why a job waits, as its job tracker's pages say it.
fn text_of(of: &JobWaits) -> Option<String> {
    let waits = of.waits.as_deref().unwrap_or_default().iter().take(MOST_REASONS);
    let lines: Vec<String> =
        waits.map(|wait| format!("{} {}: {}", wait.requests, wait.kind, wait.text)).collect();
    match lines.is_empty() {
        true => of.error.clone(),
        false if lines.iter().any(|line| line.ends_with(NO_NODES)) => {
            Some(lines.join("; ") + HOW_TO_ADD_NODES)
        }
        false => Some(lines.join("; ")),
    }
}

impl Waiting {
    /// A wait for something of this name.
    pub(super) fn new(who: &str) -> Waiting {
        let progress = Idle::new(Instant::now());
        Waiting { who: who.to_owned(), manager: None, hint: String::new(), progress }
    }

    /// A wait for a job tracker and its cluster.
    pub(super) fn of(caller: &Caller, which: &Which) -> Waiting {
        let manager = which.manager().map(|pages| pages.within(PATIENCE));
        Waiting { manager, hint: caller.hint.clone(), ..Waiting::new(&caller.who) }
    }

    /// The result of calls of the job tracker. When they take long, it says so, and why as far as that is
    /// known.
    pub(super) async fn on<T>(
        &self,
        calls: impl Future<Output = T>,
        console: &mut Console<'_>,
    ) -> T {
        let (began, mut calls) = (Instant::now(), pin!(calls));
        let mut pause = FIRST;
        loop {
            if let Ok(done) = timeout(pause, &mut calls).await {
                return done;
            }
            // The calls go on while the cluster manager is asked.
            let (done, why) = tokio::select! {
                biased;
                done = &mut calls => (Some(done), None),
                why = self.reason() => (None, why),
            };
            if let Some(done) = done {
                return done;
            }
            let why = why.map(|why| format!("; {why}")).unwrap_or_default();
            let seconds = began.elapsed().as_secs();
            let line = format!("{} has not answered for {seconds} s, still waiting{why}", self.who);
            console.complain(&format!("{}\n", printable(&line)));
            pause = NEXT;
        }
    }

    /// What keeps the job tracker from an answer, as far as the cluster manager's pages show it.
    async fn reason(&self) -> Option<String> {
        let pages = self.manager.as_ref()?;
        match pages.api::<Status>("/api/v1/status").await {
            Ok(Answer::Found(status)) => manager_reason(&status).map(str::to_owned),
            Ok(_) => None,
            Err(error) => {
                let text = format!("{error:#}");
                let is_refused = text.ends_with("Connection refused (os error 111)");
                Some(if is_refused { text + &self.hint } else { text })
            }
        }
    }

    /// What a running job waits for, when it has made no progress for a while.
    pub(super) async fn of_job(
        &mut self,
        job: &JobId,
        page: &str,
        progress: (f32, f32),
        note: Option<&str>,
    ) -> Option<String> {
        if !self.progress.seen(Instant::now(), progress) {
            return None;
        }
        let text = match note {
            Some(note) => Some(note.to_owned()),
            None => match self.reason_of_job(job, page).await {
                Some(text) => Some(text),
                None => self.reason().await,
            },
        };
        let now = Instant::now();
        let text = text.filter(|text| self.progress.says(now, text))?;
        let seconds = now.duration_since(self.progress.since).as_secs();
        Some(format!("{job} has waited for {seconds} s: {text}"))
    }

    async fn reason_of_job(&self, job: &JobId, page: &str) -> Option<String> {
        let pages = pages_at(page, PATIENCE)?;
        text_of(&pages.found::<JobWaits>(&format!("/api/v1/jobs/{job}/waits")).await?)
    }
}

/// What a cluster manager's status says of a job tracker that waits for it.
fn manager_reason(status: &Status) -> Option<&'static str> {
    status.safe_mode.on.then_some(
        "the cluster manager is in safe mode, which 'corona admin unset-safe-mode' turns off",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_job_without_progress_is_asked_about_now_and_then() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut idle = Idle::new(begin);
        for (seconds, progress, is_due) in [
            (0, (0.0, 0.0), false),
            (2, (0.0, 0.0), false),
            (3, (0.0, 0.0), true),
            (4, (0.0, 0.0), false),
            (6, (0.0, 0.0), true),
            (10, (0.5, 0.0), false),
            (12, (0.5, 0.0), false),
            (13, (0.5, 0.0), true),
        ] {
            assert_eq!(idle.seen(at(seconds), progress), is_due, "{seconds} s");
        }
        for (seconds, text, is_shown) in [
            (13, "no slots", true),
            (16, "no slots", false),
            (19, "no nodes", true),
            (22, "no nodes", false),
            (49, "no nodes", true),
        ] {
            assert_eq!(idle.says(at(seconds), text), is_shown, "{seconds} s");
        }
    }

    #[test]
    fn reasons_are_those_of_the_pages() {
        let text = |value: Value| text_of(&serde_json::from_value(value).unwrap());
        let wait = json!({ "type": "MAP", "requests": 2, "text": "all slots are taken" });
        let expected = Some("2 MAP: all slots are taken".to_owned());
        assert_eq!(text(json!({ "requested_slots": 2, "waits": [wait], "error": null })), expected);
        let wait = json!({ "type": "MAP", "requests": 2, "text": NO_NODES });
        let said = text(json!({ "requested_slots": 2, "waits": [wait], "error": null })).unwrap();
        assert!(said.starts_with("2 MAP: the cluster has no nodes; the job begins"), "{said}");
        assert_eq!(text(json!({ "waits": [], "error": null })), None);
        assert_eq!(text(json!({ "waits": null, "error": "silent" })), Some("silent".to_owned()));
        let mut status = Status::default();
        assert_eq!(manager_reason(&status), None);
        status.safe_mode.on = true;
        assert!(manager_reason(&status).is_some_and(|why| why.contains("safe mode")));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_take_long_are_announced() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        let waiting = Waiting::new("the job tracker at h:1");
        let soon = waiting.on(async { 1 }, &mut console).await;
        let later = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            2
        };
        assert_eq!((soon, waiting.on(later, &mut console).await), (1, 2));
        let line = |seconds| {
            format!("the job tracker at h:1 has not answered for {seconds} s, still waiting\n")
        };
        assert_eq!(String::from_utf8(err).unwrap(), line(3) + &line(33));
    }
}
