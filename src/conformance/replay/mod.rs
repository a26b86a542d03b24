//! Plays a recording against a cluster manager and compares its behaviour with the recorded one.
//!
//! The recorded clients are played in the recorded order and with the recorded pauses; session
//! drivers and the proxy job tracker listen as recorded. A client sends a call only after every
//! reply and grant that it had received before it in the recording. Replies are compared exactly,
//! notifications by rule, because two correct managers may choose differently.
//!
//! It knows the wire and the recording, and of the manager only its address. The play and its judgement
//! are behind a `ReplayTarget` of calls and time, so that tests run in virtual time; sockets and the clock are in
//! `live` alone.

mod cluster;
mod conclude;
#[cfg(test)]
mod dry_manager;
mod gaps;
#[cfg(test)]
mod harmless;
mod judge;
mod ledger;
mod live;
mod names;
mod notices;
mod older;
mod peers;
#[cfg(test)]
mod planted;
mod play;
pub(crate) mod report;
mod script;
mod silence;
mod socket;
mod stalls;
#[cfg(test)]
mod tests;
mod values;
mod world;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::conversation::Conversation;

pub use crate::report::times::{Interval, Times, USUAL_TOLERANCE};
pub use crate::report::{Counts, FieldPair, Fields, Finding, Rule, Subject};
use gaps::{Gaps, gaps};
use live::LiveWorld;
use older::{Older, older_nodes, older_sessions, without};
use peers::{RecordedPeers, WAITING_CALLS};
use play::Play;
pub use report::{Ended, MAX_FINDINGS, Notices, Report, html, json, text};
use script::{Step, script};
use silence::Silence;
pub use stalls::{EarlierPlay, Stalls, TOLERATED, repeat_if_stalled};
use world::Callback;

/// How to play, and the recorded configuration as far as it is known.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The name of the report.
    pub name: String,
    /// The cluster manager under test, for the reader of the report.
    pub target: String,
    /// How much faster than recorded pauses pass. 1 keeps them; infinity goes as fast as the answers
    /// allow. Intervals in the configuration of the manager under test must be shortened to match.
    pub speed: f64,
    /// How much longer than recorded a reply may take, in real time.
    pub answer_within: Duration,
    /// How much longer than recorded a notification may take, in real time.
    pub notice_within: Duration,
    /// How long to listen after the last step, for notifications that were not recorded.
    pub settle: Duration,
    /// The recorded `cm.session.expiryinterval`, if it is known.
    pub session_expiry: Option<Duration>,
    /// The recorded `cm.node.expiryinterval`, if it is known.
    pub node_expiry: Option<Duration>,
    /// The recorded `starvingTimeForMinimum` and `starvingTimeForShare`, if they are known.
    pub starving_times: Option<[Duration; 2]>,
    /// How late, in recorded time, the original may have made a grant that was possible at once:
    /// one pass of its scheduler and a missed wake-up. Spec: cluster-manager/05 §4, 09 §4.6.
    pub grant_delay: Duration,
    /// The recorded `cm.cpu.to.resource.partitioning`, as JSON. With it, grants are compared with
    /// the slots of the nodes.
    pub partitioning: Option<String>,
    /// Whether the recorded cluster manager counted resources beside slots.
    pub counts_resources: bool,
    /// The recorded `corona.history.max.per.dir`; its default if it is not known.
    pub sessions_per_log_dir: Option<i32>,
    /// Whether the recording has notifications. Without them, only those that no correct manager
    /// sends are reported.
    pub compare_notices: bool,
    /// Whether the manager under test has the proxy job tracker of the stage as its own.
    pub compare_safe_mode: bool,
    /// How much times from a cause to a decision may differ.
    pub time_tolerance: Duration,
    /// How long to wait in all, in real time, for replies and notifications that do not come. Then the
    /// replay ends.
    pub silence: Duration,
    /// Ends the replay with a report, as soon as it has a reason.
    pub stop: Option<watch::Receiver<Option<String>>>,
    /// The address of this machine at which the manager under test finds the session drivers.
    pub own_address: IpAddr,
}

/// The progress of a replay, in recorded time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The part that has been played.
    pub played: Duration,
    /// The whole recording.
    pub of: Duration,
}

/// Why the manager under test was not restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRestart {
    /// The replayer does not control it. Later steps are not compared.
    NotPossible,
    /// The restart failed with this text.
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
            starving_times: None,
            grant_delay: Duration::from_millis(1_200),
            partitioning: None,
            counts_resources: false,
            sessions_per_log_dir: None,
            compare_notices: true,
            compare_safe_mode: true,
            time_tolerance: USUAL_TOLERANCE,
            silence: Duration::from_secs(60),
            stop: None,
            own_address: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// A replay that is ready to be played: its servers listen, its clients wait.
pub struct Stage {
    steps: Vec<Step>,
    older: Older,
    gaps: Gaps,
    options: ReplayOptions,
    peers: RecordedPeers,
    callbacks: mpsc::Receiver<(Instant, Callback)>,
    progress: watch::Sender<Progress>,
}

impl Stage {
    /// Prepares a recording.
    ///
    /// Errors: those of the system, when no port is free.
    pub async fn set(conversations: &[Conversation], options: ReplayOptions) -> io::Result<Stage> {
        let (sender, callbacks) = mpsc::channel(WAITING_CALLS);
        let mut peers = RecordedPeers::new(sender, options.own_address)?;
        let (steps, older, gaps) = steps_of(conversations, &options);
        if listens_first(&steps) {
            peers.set_proxy(true).await?;
        }
        let progress = watch::Sender::new(Progress::default());
        Ok(Stage { steps, older, gaps, options, peers, callbacks, progress })
    }

    /// Where the manager under test finds the proxy job tracker:
    /// `corona.proxy.job.tracker.thriftaddr`.
    pub fn proxy_job_tracker(&self) -> SocketAddr {
        self.peers.proxy()
    }

    /// Reports the progress of the play.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Plays against the cluster manager at `target`, which has just been started. Where the recorded one
    /// was restarted, `restart` restarts this one and returns its new address; an error ends the replay.
    pub async fn play(
        self,
        target: SocketAddr,
        restart: impl AsyncFnMut() -> Result<SocketAddr, NoRestart>,
    ) -> Report {
        let Stage { steps, older, gaps, options, peers, callbacks, progress } = self;
        let world = LiveWorld::new(target, peers, callbacks, restart);
        let mut play = Play::new(world, options, older, gaps, progress, &steps);
        play.run(&steps).await;
        play.report
    }
}

/// The steps of a recording without its older sessions, and its gaps.
fn steps_of(conversations: &[Conversation], options: &ReplayOptions) -> (Vec<Step>, Older, Gaps) {
    let (sessions, gaps) = (older_sessions(conversations), gaps(conversations));
    let nodes = older_nodes(conversations, options.node_expiry.unwrap_or(USUAL_NODE_EXPIRY));
    if sessions.is_empty() {
        return (script(conversations), Older { nodes, ..Older::default() }, gaps);
    }
    let (conversations, older) = without(conversations, sessions);
    (script(&conversations), Older { nodes, ..older }, gaps)
}

/// `cm.node.expiryinterval` where it is not recorded.
const USUAL_NODE_EXPIRY: Duration = Duration::from_secs(600);

/// Whether the proxy job tracker listened when it was first called.
fn listens_first(steps: &[Step]) -> bool {
    let first = steps.iter().find_map(|step| match step.what {
        script::StepKind::ProxyListens(listens) => Some(listens),
        _ => None,
    });
    first == Some(true)
}
