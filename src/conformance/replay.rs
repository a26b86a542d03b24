//! Plays a recording against a cluster manager and compares what it does with what was recorded.
//!
//! The recorded clients are played in the recorded order and with the recorded pauses; session
//! drivers and the proxy job tracker listen as recorded. A client sends a call only after every
//! reply and grant that it had received before it in the recording. Replies are compared exactly,
//! notifications by rule, because two correct managers may choose differently.
//!
//! A room of its own: it knows the wire and the recording, and of the manager only its address.

mod cluster;
mod conclude;
mod holdups;
mod judge;
mod ledger;
mod line;
mod names;
mod notices;
mod older;
mod peers;
mod play;
pub(crate) mod report;
mod script;
#[cfg(test)]
mod tests;
mod values;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::conversation::Conversation;

pub use crate::report::{About, FieldPair, Fields, Finding, Rule};
pub use holdups::{EarlierPlay, HoldUps, TOLERATED, again_if_held_up};
use older::{Older, older_sessions, without};
use peers::{Heard, Peers, WAITING_CALLS};
use play::Play;
pub use report::{Counts, MAX_FINDINGS, Notices, Report, html, json, text};
use script::{Step, script};

/// How to play, and what is known of the recorded configuration.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// What the report is called.
    pub name: String,
    /// Against what it is played, for the reader of the report.
    pub target: String,
    /// How much faster than recorded pauses pass. 1 keeps them; infinity goes as fast as the answers
    /// allow. Intervals in the configuration of the manager under test must be shortened to match.
    pub speed: f64,
    /// How much longer than recorded an answer may take, in real time.
    pub answer_within: Duration,
    /// How much longer than recorded a notice may take, in real time.
    pub notice_within: Duration,
    /// How long to listen after the last step, for notifications that were not recorded.
    pub settle: Duration,
    /// The recorded `cm.session.expiryinterval`, if it matters.
    pub session_expiry: Option<Duration>,
    /// The recorded `cm.node.expiryinterval`, if it matters.
    pub node_expiry: Option<Duration>,
    /// How late, in recorded time, the original may have granted what it could have granted at
    /// once: a turn of its scheduler and a missed wake-up. Spec: cluster-manager/05 §4, 09 §4.6.
    pub grant_delay: Duration,
    /// The recorded `cm.cpu.to.resource.partitioning`, as JSON. With it, grants are held against
    /// the slots of the nodes.
    pub partitioning: Option<String>,
    /// The recorded `corona.history.max.per.dir`; its default if it is not known.
    pub sessions_per_log_dir: Option<i32>,
    /// Whether the recording has notifications. Without them, only those that no correct manager
    /// sends are reported.
    pub compare_notices: bool,
    /// Whether the manager under test has the proxy job tracker of the stage as its own.
    pub compare_safe_mode: bool,
    /// The address of this machine at which the manager under test finds the session drivers.
    pub own_address: IpAddr,
}

/// How far a replay is, in recorded time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What has been played.
    pub played: Duration,
    /// All that is to be played.
    pub of: Duration,
}

/// Why the manager under test was not started again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRestart {
    /// Who plays has no power over it. What comes later is not compared.
    NotPossible,
    /// It should have been, and this happened.
    Failed(String),
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            target: String::new(),
            speed: 1.0,
            answer_within: Duration::from_secs(5),
            notice_within: Duration::from_secs(5),
            settle: Duration::from_millis(300),
            session_expiry: None,
            node_expiry: None,
            grant_delay: Duration::from_millis(1_200),
            partitioning: None,
            sessions_per_log_dir: None,
            compare_notices: true,
            compare_safe_mode: true,
            own_address: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// A replay that is ready to be played: its servers stand, its clients wait.
pub struct Stage {
    steps: Vec<Step>,
    older: Older,
    options: ReplayOptions,
    peers: Peers,
    heard: mpsc::Receiver<Heard>,
    progress: watch::Sender<Progress>,
}

impl Stage {
    /// Prepares a recording.
    ///
    /// Errors: those of the system, when no port is free.
    pub async fn set(conversations: &[Conversation], options: ReplayOptions) -> io::Result<Stage> {
        let (ear, heard) = mpsc::channel(WAITING_CALLS);
        let mut peers = Peers::new(ear, options.own_address)?;
        let sessions = older_sessions(conversations);
        let (steps, older) = if sessions.is_empty() {
            (script(conversations), Older::default())
        } else {
            let (conversations, older) = without(conversations, sessions);
            (script(&conversations), older)
        };
        if listens_first(&steps) {
            peers.set_proxy(true).await?;
        }
        let progress = watch::Sender::new(Progress::default());
        Ok(Stage { steps, older, options, peers, heard, progress })
    }

    /// Where the manager under test finds the proxy job tracker:
    /// `corona.proxy.job.tracker.thriftaddr`.
    pub fn proxy_job_tracker(&self) -> SocketAddr {
        self.peers.proxy()
    }

    /// Tells how far the play is.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Plays against the cluster manager at `target`, which has just been started. Where the
    /// recorded one was started again, `restart` does so with this one and gives its new address,
    /// or says why not; the replay ends then.
    pub async fn play(
        self,
        target: SocketAddr,
        restart: impl AsyncFnMut() -> Result<SocketAddr, NoRestart>,
    ) -> Report {
        let Stage { steps, older, options, peers, heard, progress } = self;
        let play = Play::new(target, options, older, peers, heard, progress, &steps);
        play.run(&steps, restart).await
    }
}

/// Whether the proxy job tracker listened when it was first called.
fn listens_first(steps: &[Step]) -> bool {
    let first = steps.iter().find_map(|step| match step.what {
        script::Happening::ProxyListens(listens) => Some(listens),
        _ => None,
    });
    first == Some(true)
}
