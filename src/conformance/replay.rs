//! Plays a recording against a cluster manager and compares what it does with what was recorded.
//!
//! The recorded clients' side is played in the recorded order and with the recorded pauses; session
//! drivers and the proxy job tracker stand ready as recorded. A client does nothing before all that
//! it may have known has happened: every answer, and as many grants as it had been told. Answers
//! are compared exactly, pushed notices by rule, since two correct managers may choose differently.
//!
//! A room of its own: it knows the wire and the recording, and of the manager only its address.

mod cluster;
mod holdups;
mod judge;
mod ledger;
mod line;
mod names;
mod peers;
mod play;
mod report;
mod script;
#[cfg(test)]
mod tests;
mod values;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::conformance::conversation::Conversation;

pub use holdups::{EarlierPlay, HoldUps, TOLERATED, again_if_held_up};
use peers::{Heard, Peers, WAITING_CALLS};
use play::Play;
pub use report::{Finding, Report, Rule};
use script::{Step, script};

/// How to play, and what is known of the recorded configuration.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// What the report is called.
    pub name: String,
    /// How much faster than recorded pauses pass. 1 keeps them; infinity goes as fast as the answers
    /// allow. Intervals in the configuration of the manager under test must be shortened to match.
    pub speed: f64,
    /// How much longer than recorded an answer may take, in real time.
    pub answer_within: Duration,
    /// How much longer than recorded a notice may take, in real time.
    pub notice_within: Duration,
    /// How long to listen on after the last step, for notices that nobody recorded.
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
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            speed: 1.0,
            answer_within: Duration::from_secs(5),
            notice_within: Duration::from_secs(5),
            settle: Duration::from_millis(300),
            session_expiry: None,
            node_expiry: None,
            grant_delay: Duration::from_millis(1_200),
            partitioning: None,
        }
    }
}

/// A replay that is ready to be played: its servers stand, its clients wait.
pub struct Stage {
    steps: Vec<Step>,
    options: ReplayOptions,
    peers: Peers,
    heard: mpsc::Receiver<Heard>,
}

impl Stage {
    /// Prepares a recording.
    ///
    /// Errors: those of the system, when no port is free.
    pub async fn set(conversations: &[Conversation], options: ReplayOptions) -> io::Result<Stage> {
        let (ear, heard) = mpsc::channel(WAITING_CALLS);
        let mut peers = Peers::new(ear)?;
        let steps = script(conversations);
        if listens_first(&steps) {
            peers.set_proxy(true).await?;
        }
        Ok(Stage { steps, options, peers, heard })
    }

    /// Where the manager under test finds the proxy job tracker:
    /// `corona.proxy.job.tracker.thriftaddr`.
    pub fn proxy_job_tracker(&self) -> SocketAddr {
        self.peers.proxy()
    }

    /// Plays against the cluster manager at `target`, which has just been started. Where the
    /// recorded one was started again, `restart` does so with this one and gives its new address,
    /// or says why not; the replay ends then.
    pub async fn play(
        self,
        target: SocketAddr,
        restart: impl AsyncFnMut() -> Result<SocketAddr, String>,
    ) -> Report {
        Play::new(target, self.options, self.peers, self.heard).run(&self.steps, restart).await
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
