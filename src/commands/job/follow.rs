//! A job that was submitted: its progress, its end, and why it failed.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use corona::hadoop::writables::JobId;
use corona::net::Backoff;
use jiff::Zoned;
use serde::Serialize;
use tokio::time::sleep;

use super::output::Output;
use super::sight::see_output;
use super::stop::Stop;
use super::waiting::Waiting;
use crate::commands::jobs::{
    Caller, Counter, Failure, Reports, counters_table, for_browsers, is_over, listed, note, state,
    summary, wrote_nothing,
};
use corona_terminal::console::{Console, printable};
use corona_terminal::counted;
use corona_terminal::progress::bar;

/// The pause between two looks at the job, which grows from the first to the second.
const PAUSES: Backoff =
    Backoff::new(Duration::from_millis(30), Duration::from_millis(500)).with_factor(5, 4);
/// How long the kill of a job may take after a second signal.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// A job that runs.
pub(super) struct Follower {
    pub(super) id: JobId,
    pub(super) maps: usize,
    pub(super) reduces: u32,
    pub(super) bytes: u64,
    pub(super) output: String,
    /// Parts that the output must have.
    pub(super) parts: usize,
    pub(super) voice: Voice,
}

/// In whose words a job is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// This program's, with the result as text.
    Text,
    /// The same with the result as JSON.
    Json,
    /// Those of the original's streaming client, which logs to stderr.
    Streaming,
}

impl Voice {
    /// This program's words.
    pub(super) fn of(json: bool) -> Voice {
        if json { Voice::Json } else { Voice::Text }
    }
}

/// A line of the log of the original's streaming client.
pub(super) fn logged(level: &str, text: &str) -> String {
    logged_by(level, "streaming.StreamJob", text)
}

/// A line of the log of a class of the original.
pub(super) fn logged_by(level: &str, class: &str, text: &str) -> String {
    let now = Zoned::now().strftime("%y/%m/%d %H:%M:%S");
    format!("{now} {level} {class}: {}\n", printable(text))
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

/// What a job is watched with.
struct Watch<'a> {
    output: &'a Output,
    page: &'a str,
    waiting: &'a mut Waiting,
    stop: &'a mut Stop,
}

/// What a look at a job has found.
enum Look {
    Runs {
        maps: f32,
        reduces: f32,
        /// What the job tracker adds.
        note: Option<String>,
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
        output: &Output,
        mut waiting: Waiting,
        mut stop: Stop,
        console: &mut Console<'_>,
    ) -> anyhow::Result<bool> {
        let began = Instant::now();
        let client = &mut caller.client;
        let profile = caller.retry.again(async || client.get_job_profile(self.id.clone()).await);
        let profile = stop.or(profile).await.map(|profile| caller.checked(profile)).transpose()?;
        let page = profile.flatten().map(|profile| for_browsers(&profile.url)).unwrap_or_default();
        let maps = counted(self.maps as u64, "map");
        let reduces = counted(self.reduces.into(), "reduce");
        console.complain(&match self.voice {
            Voice::Streaming => logged("INFO", &format!("Tracking URL: {page}")),
            _ => format!("{}: {maps}, {reduces}; page {}\n", self.id, printable(&page)),
        });
        let mut watch = Watch { output, page: &page, waiting: &mut waiting, stop: &mut stop };
        let (state, note) = self.until_over(caller, &mut watch, console).await?;
        let seconds = began.elapsed().as_secs_f64();
        let failures = match state {
            "SUCCEEDED" => Vec::new(),
            _ => Reports::of(caller, &self.id).await.failures(caller, &self.id).await,
        };
        let client = &mut caller.client;
        let counters =
            caller.retry.again(async || client.get_job_counters(self.id.clone()).await).await;
        let counters = listed(caller.checked(counters)?.unwrap_or_default());
        let has_succeeded = state == "SUCCEEDED";
        if has_succeeded && self.parts > 0 {
            let seen = stop.or(see_output(output, self.parts)).await;
            seen.unwrap_or_else(|| Err(self.left()))?;
        }
        for failure in &failures {
            console.complain_wrapped(&failure.text());
        }
        if let Some(note) = &note {
            console.complain_wrapped(&format!("{}: {}", self.id, printable(note)));
        }
        if self.voice == Voice::Streaming {
            self.end_of_streaming(has_succeeded, &page, &counters, console);
            return Ok(has_succeeded);
        }
        let word = state.to_lowercase();
        console.complain(&format!("{} {word} after {seconds:.1} s\n", self.id));
        if self.voice == Voice::Json {
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
            console.print(&format!("{}\n{table}", summary(&counters, Some(seconds))))?;
            console.print(&format!("output {}\n", printable(&self.output)))?;
            if wrote_nothing(&counters) {
                console.complain(&format!(
                    "note: the job has written no records; this prints what its programs wrote to stderr:\n  \
                     corona jobs logs {}\n",
                    self.id
                ));
            }
        }
        Ok(has_succeeded)
    }

    /// The last lines of the original's streaming client.
    fn end_of_streaming(
        &self,
        has_succeeded: bool,
        page: &str,
        counters: &[Counter],
        console: &mut Console<'_>,
    ) {
        if !has_succeeded {
            console.complain(&logged("INFO", &format!("Tracking URL: {page}")));
            console.complain(&logged("ERROR", "Job not Successful!"));
            console.complain(&logged("INFO", "killJob..."));
            return;
        }
        console.complain(&logged("INFO", &format!("Job complete: {}", self.id)));
        let mut lines = vec![format!("Counters: {}", counters.len())];
        let mut group = "";
        for counter in counters {
            if counter.group != group {
                group = &counter.group;
                lines.push(format!("  {}", counter.group_name));
            }
            lines.push(format!("    {}={}", counter.display_name, counter.value));
        }
        for line in lines {
            console.complain(&logged_by("INFO", "mapred.JobClient", &line));
        }
        console.complain(&logged("INFO", &format!("Output: {}", self.output)));
    }

    /// Waits for the end; returns the state of the job then.
    async fn until_over(
        &self,
        caller: &mut Caller,
        watch: &mut Watch<'_>,
        console: &mut Console<'_>,
    ) -> anyhow::Result<(&'static str, Option<String>)> {
        let Watch { output, page, waiting, stop } = watch;
        let mut shown = Progress::new(self.voice);
        let mut pauses = PAUSES;
        let mut is_killed = false;
        loop {
            if stop.is_wanted() && !is_killed {
                shown.clear(console);
                console.complain(&match self.voice {
                    Voice::Streaming => logged("WARN", &format!("killing {page}")),
                    _ => format!("killing {}; again to stop at once\n", self.id),
                });
                is_killed = true;
                let client = &mut caller.client;
                let kill = caller.retry.again(async || client.kill_job(self.id.clone()).await);
                let (killed, is_second) = stop.or_later(KILL_PATIENCE, kill).await;
                match killed.map(|killed| caller.checked(killed)) {
                    Some(Ok(_)) if is_second => return Err(self.left()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.context(self.may_run())),
                    None => return Err(self.may_run()),
                }
                pauses.reset();
            }
            let look = async {
                sleep(pauses.upcoming()).await;
                self.look(caller).await
            };
            let looked = match stop.or(waiting.on(look, console)).await {
                Some(looked) => looked?,
                None if is_killed => {
                    shown.clear(console);
                    return Err(self.left());
                }
                None => continue,
            };
            match looked {
                Look::Runs { maps, reduces, note } => {
                    shown.show(maps, reduces, self.reduces, console);
                    let progress = (maps, reduces);
                    let said = waiting.of_job(&self.id, page, progress, note.as_deref());
                    if let Some(Some(line)) = stop.or(said).await {
                        shown.clear(console);
                        console.complain_wrapped(&printable(&line));
                    }
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
                    return match output.files.find(&output.path.join("_SUCCESS")).await? {
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
            pauses.pause();
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
        let status =
            caller.retry.again(async || client.get_job_status(self.id.clone()).await).await;
        Ok(match caller.checked(status)? {
            None => Look::Forgotten,
            Some(status) if is_over(status.run_state) => {
                Look::Over(state(status.run_state), note(&status).map(str::to_owned))
            }
            Some(status) => Look::Runs {
                maps: status.map_progress,
                reduces: status.reduce_progress,
                note: note(&status).map(str::to_owned),
            },
        })
    }
}

/// The progress of a job: a bar on a terminal, else a line for each change of a few percent.
struct Progress {
    voice: Voice,
    on_terminal: bool,
    shown: Option<(u32, u32)>,
}

impl Progress {
    /// Percent after which a further line is written where there is no terminal.
    const STEP: u32 = 10;

    fn new(voice: Voice) -> Progress {
        let on_terminal = voice != Voice::Streaming && std::io::stderr().is_terminal();
        Progress { voice, on_terminal, shown: None }
    }

    fn show(&mut self, maps: f32, reduces: f32, of_reduces: u32, console: &mut Console<'_>) {
        let percent = |part: f32| (part.clamp(0.0, 1.0) * 100.0) as u32;
        let (maps, reduces) = (percent(maps), percent(reduces));
        let now = match self.on_terminal || self.voice == Voice::Streaming {
            true => (maps, reduces),
            false => (maps / Progress::STEP, reduces / Progress::STEP),
        };
        if self.shown == Some(now) {
            return;
        }
        self.shown = Some(now);
        if self.voice == Voice::Streaming {
            console.complain(&logged("INFO", &format!(" map {maps}%  reduce {reduces}%")));
            return;
        }
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
