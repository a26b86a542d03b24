//! Submits a job to a remote job tracker, and watches it.

use std::sync::PoisonError;
use std::time::Duration;

use corona_hadoop::protocols::job_submission::JobSubmissionClient;
use corona_hadoop::writables as wire;
use corona_mapreduce::{Counters, JobState};
use corona_net::Backoff;
use corona_process::panics::caught;
use corona_web::exchange::Parameters;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Heard, Message, RemoteLocation, TRIES, TRY_PAUSE, is_gone, tell};
use crate::clock;
use crate::pages::trackers::page_address;
use crate::rpc::answers;
use corona_job_engine::parent::{ParentInput, Remote};
use corona_job_wire::translate;

/// The pause between two looks at the job, which grows from the first to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A remote job tracker reports each second. One that is silent for so long is lost.
const SILENCE: Duration = Duration::from_secs(30);

/// What submits a job to one remote job tracker, and watches it until it is lost or the job has ended.
pub(super) struct Watcher {
    pub(super) client: JobSubmissionClient,
    pub(super) job: wire::JobId,
    pub(super) remote: Remote,
    pub(super) inbox: mpsc::WeakSender<Message>,
    pub(super) place: watch::Receiver<RemoteLocation>,
    pub(super) heard: Heard,
}

impl Watcher {
    pub(super) async fn run(mut self) {
        let (remote, mut place, heard) =
            (self.remote.clone(), self.place.clone(), self.heard.clone());
        let replaced = place.wait_for(|place| place.remote.as_ref() != Some(&remote));
        let followed = tokio::select! {
            followed = caught(self.follow()) => followed,
            () = silent(&heard) => Ok(self.lost("it does not report any more")),
            _ = replaced => return,
        };
        let message = followed.unwrap_or_else(|panic| self.lost(&panic.to_string()));
        tell(&self.inbox, message).await;
    }

    /// Returns what the parent must know: that the job has ended, or that the remote is lost.
    async fn follow(&mut self) -> Message {
        let attempt = self.remote.attempt;
        let mut failed = 0;
        let mut is_submitted = false;
        let mut looks = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE).with_factor(5, 4);
        loop {
            let status = match is_submitted {
                false => self.client.submit_job(self.job.clone()).await,
                true => self.client.get_job_status(self.job.clone()).await,
            };
            let pause = match status {
                Ok(status) => {
                    if !is_submitted {
                        tell(&self.inbox, Message::Submitted(attempt)).await;
                        self.find_pages().await;
                    }
                    (is_submitted, failed) = (true, 0);
                    let ended = status.as_ref().and_then(|status| end_of(status.run_state));
                    if let Some(status) = status {
                        tell(&self.inbox, Message::Status(attempt, Box::new(status))).await;
                    }
                    if let Some(state) = ended {
                        return Message::Ended(attempt, state, self.counters().await);
                    }
                    looks.pause()
                }
                Err(error) if is_gone(&error) => return self.lost(&error.to_string()),
                Err(error) => {
                    failed += 1;
                    if failed >= TRIES {
                        return self.lost(&error.to_string());
                    }
                    tracing::info!(job = %self.job, %error, failed, "a remote job tracker does not answer");
                    TRY_PAUSE * failed
                }
            };
            sleep(pause).await;
        }
    }

    /// Asks where the pages of the remote job tracker are. Without them the job is none the worse.
    async fn find_pages(&mut self) {
        let profile = self.client.get_job_profile(self.job.clone()).await;
        let url = profile.ok().flatten().map(|profile| profile.url);
        if let Some(address) = url.as_deref().and_then(pages_of) {
            tell(&self.inbox, Message::Pages(self.remote.attempt, address.into())).await;
        }
    }

    /// The counters of a job that has ended; none if they cannot be had any more.
    async fn counters(&mut self) -> Counters {
        match self.client.get_job_counters(self.job.clone()).await {
            Ok(counters) => counters.map(translate::counters).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(job = %self.job, %error, "the counters of a job are not known");
                Counters::default()
            }
        }
    }

    fn lost(&self, why: &str) -> Message {
        let Remote { attempt, host, port, .. } = &self.remote;
        tracing::warn!(job = %self.job, attempt, %host, port, why, "a remote job tracker is lost");
        Message::Input(ParentInput::Unreachable { attempt: *attempt }, None)
    }
}

/// Returns when a remote job tracker has been silent for too long.
async fn silent(heard: &Heard) {
    let mut stalled_ms = clock::stalled_ms();
    loop {
        let due = *heard.lock().unwrap_or_else(PoisonError::into_inner) + SILENCE;
        if clock::stalled_ms() > stalled_ms {
            // Its reports may wait to be read.
            stalled_ms = clock::stalled_ms();
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            continue;
        }
        if due <= Instant::now() {
            return;
        }
        sleep_until(due).await;
    }
}

/// How a job has ended, by its state on the wire; none if it has not.
fn end_of(run_state: i32) -> Option<JobState> {
    answers::state_of(run_state).filter(|state| state.is_over())
}

/// The address of the pages of a job tracker whose job has this tracking URL: that behind a proxy job
/// tracker, or the one that it names.
fn pages_of(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    let (host, port) = match path {
        "proxy" => {
            let parameters = Parameters::parse(query.as_bytes());
            (parameters.text("host")?.to_owned(), parameters.text("port")?.to_owned())
        }
        _ => {
            let (host, port) = authority.rsplit_once(':')?;
            (host.to_owned(), port.to_owned())
        }
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    page_address(host, port.parse().ok()?).filter(|_| host.len() <= 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_job_tracker_are_behind_a_proxy_or_where_its_url_says() {
        for (url, pages) in [
            (
                "http://p:1/proxy?host=n1&port=81&path=coronajobdetails.jsp&jobid=j",
                Some("http://n1:81/"),
            ),
            ("http://n1:81/coronajobdetails.jsp?jobid=j", Some("http://n1:81/")),
            ("http://[::1]:81/", Some("http://[::1]:81/")),
            ("http://p:1/proxy?host=::1&port=81", Some("http://[::1]:81/")),
            ("http://p:1/proxy?host=n1&port=0", None),
            ("http://p:1/proxy?host=n%2F1&port=81", None),
            ("http://n1/", None),
            ("ftp://n1:81/", None),
            ("", None),
        ] {
            assert_eq!(pages_of(url).as_deref(), pages, "{url}");
        }
    }
}
