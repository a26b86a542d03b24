//! Beginning anew, with what runs at the primary by then unknown: at the start, when the primary has
//! been started again, and when the shadow has missed something.

use std::time::{Duration, Instant};

use super::line::Ours;
use super::run::{Missing, Run};
use crate::recording::Unrecorded;
use corona_cluster_manager::DryRun;
use corona_engine::Observed;
use corona_wire::calls::ClusterManager;
use corona_wire::client::{Client, ClientOptions};

/// How long the primary may take to tell its sessions.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// Sessions that run at the primary and are not followed.
const MAX_UNFOLLOWED: usize = 65_536;
/// How long nothing must be missed before it begins anew. What passes until then is not looked at,
/// so that what waits is taken soon, and the primary is not asked again and again.
const CALM: Duration = Duration::from_secs(1);

const BEGAN_ANEW: &str = "calls in flight when the shadow resynchronised";

impl Run {
    /// Notes how much was left out so far.
    pub(super) fn note_left_out(&mut self, left_out: Unrecorded) {
        if left_out != self.left_out {
            let before = self.missing.map_or(self.left_out, |missing| missing.before);
            self.missing = Some(Missing { before, last_at: Instant::now() });
            self.left_out = left_out;
        }
    }

    /// Begins anew if something was missed, and nothing is any more. Called when nothing waits.
    pub(super) async fn catch_up(&mut self) {
        if self.missing.is_some_and(|missing| missing.last_at.elapsed() >= CALM)
            && let Some(why) = self.missed()
        {
            self.begin_anew(&why).await;
        }
    }

    /// What was missed until now, in words, if it was anything.
    pub(super) fn missed(&mut self) -> Option<String> {
        let (now, before) = (self.left_out, self.missing.take()?.before);
        let bytes = now.bytes.saturating_sub(before.bytes);
        let connections = now.connections.saturating_sub(before.connections);
        let what = match connections {
            0 => format!("{bytes} bytes"),
            _ => format!("{bytes} bytes and {connections} connections"),
        };
        Some(format!("it was too slow, and missed {what}"))
    }

    /// Asks the primary which sessions run. They are not followed: how they began is not known.
    pub(super) async fn ask_primary(&mut self) {
        let options = ClientOptions {
            connect_timeout: ASK_TIMEOUT,
            call_timeout: ASK_TIMEOUT,
            ..ClientOptions::default()
        };
        let connected = Client::<ClusterManager>::connect(&*self.options.primary, options).await;
        let sessions = match connected {
            Ok(mut client) => client.get_sessions().await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        self.primary_told = sessions.is_ok();
        self.asked_at = Instant::now();
        match sessions {
            Ok(sessions) => {
                self.unfollowed.clear();
                for session in sessions {
                    if !self.books.sessions.contains_key(session.handle.as_str()) {
                        self.is_not_followed(&session.handle);
                    }
                }
            }
            Err(error) => tracing::warn!("cannot list the primary's sessions: {error}"),
        }
    }

    /// A session runs at the primary whose beginning was not seen.
    pub(super) fn is_not_followed(&mut self, handle: &str) {
        if self.ids.seen(handle) {
            self.take_identity();
        }
        if self.unfollowed.len() < MAX_UNFOLLOWED || self.unfollowed.contains_key(handle) {
            self.unfollowed.insert(handle.into(), Instant::now());
        }
    }

    pub(super) fn take_identity(&self) {
        if let Some((id_prefix, sessions_numbered)) = self.ids.identity() {
            self.manager.observe(Observed::Identity { id_prefix, sessions_numbered });
        }
    }

    /// Forgets everything and begins anew. What runs now is not followed.
    pub(super) async fn begin_anew(&mut self, why: &str) {
        tracing::warn!("the shadow resynchronises: {why}");
        // Whoever starts the primary again may have changed more than what it follows by itself.
        match (self.configuration)() {
            Ok(loaded) => self.loaded = loaded,
            Err(error) => {
                tracing::error!("cannot read the configuration, keeping the previous one: {error}")
            }
        }
        let manager = match DryRun::start(&self.loaded) {
            Ok(manager) => manager,
            Err(error) => {
                tracing::error!("the shadow cannot resynchronise: {error}");
                return;
            }
        };
        self.figures().begin_anew(why.to_owned());
        self.stop_watching.send_replace(true);
        self.stop_watching = tokio::sync::watch::Sender::new(false);
        self.manager = manager;
        self.watch_files();
        let books = std::mem::take(&mut self.books);
        self.unfollowed.clear();
        for handle in books.sessions.keys() {
            self.is_not_followed(handle);
        }
        for line in self.lines.values_mut() {
            for asked in &mut line.unanswered {
                asked.ours = Ours::Nothing(BEGAN_ANEW);
                asked.changes = false;
            }
        }
        for (_, asked) in std::mem::take(&mut self.closed) {
            self.not_compared(&asked.call.name, BEGAN_ANEW);
        }
        self.changes = 0;
        self.began_at = Instant::now();
        self.ask_primary().await;
        self.take_identity();
    }
}
