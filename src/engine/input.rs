//! The engine's inputs and outcomes: plain data.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::settings::{Hosts, Settings};
use super::types::{
    AccessId, Address, Grant, Millis, NodeReport, PerType, PoolName, ResourceRequest, ResourceType,
    SessionInfo, SessionPriority, SessionStatus,
};

/// One thing that happens to the engine. Spec: cluster-manager/02 §3 and §6.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// `getNextSessionId`. Reply: [`Reply::SessionId`].
    NextSessionId,
    /// `sessionStart`. Reply: [`Reply::Started`].
    StartSession {
        /// The id, which is also the handle from now on.
        handle: Arc<str>,
        /// The session's description of itself.
        info: SessionInfo,
    },
    /// `sessionUpdateInfo`: takes over name, url, priority and deadline.
    UpdateSession {
        /// The session.
        handle: Arc<str>,
        /// The session's new description of itself.
        info: SessionInfo,
    },
    /// `sessionEnd`.
    EndSession {
        /// The session.
        handle: Arc<str>,
        /// How it ended.
        status: SessionStatus,
    },
    /// `sessionHeartbeat`, and `sessionHeartbeatV2` with `view`.
    HeartbeatSession {
        /// The session.
        handle: Arc<str>,
        /// The session's own view of its progress.
        view: Option<SessionView>,
    },
    /// `requestResource`.
    RequestResources {
        /// The session.
        handle: Arc<str>,
        /// The wishes, in order.
        requests: Vec<ResourceRequest>,
        /// Racks of hosts that are not in the default rack; sorted by host.
        racks: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Announces a `requestResource` with so many requests that they come in several inputs, each a
    /// [`Input::MoreRequests`]. All that can be refused of the call as a whole is refused now.
    ExpectRequests {
        /// The session.
        handle: Arc<str>,
        /// All requests of the call.
        summary: RequestSummary,
    },
    /// Some of the requests that were announced. If the session has ended meanwhile, they are refused
    /// like those of any session that does not run.
    MoreRequests {
        /// The session.
        handle: Arc<str>,
        /// The requests, in order.
        requests: Vec<ResourceRequest>,
        /// Racks of hosts that are not in the default rack; sorted by host.
        racks: Vec<(Arc<str>, Arc<str>)>,
    },
    /// `releaseResource`: gives slots back and withdraws wishes.
    ReleaseResources {
        /// The session.
        handle: Arc<str>,
        /// Ids of requests.
        ids: Vec<i32>,
    },
    /// `nodeHeartbeat`. Reply: [`Reply::NodeHeard`].
    HeartbeatNode {
        /// The node's report.
        report: NodeReport,
        /// The rack of the node's host, if not the default rack.
        rack: Option<Arc<str>>,
    },
    /// `nodeFeedback`.
    NodeFeedback {
        /// The session that reports; need not exist, but counts only if it does.
        handle: Arc<str>,
        /// The types that the reports are about.
        kinds: Vec<ResourceType>,
        /// What the session reports, a node each.
        reports: Vec<NodeUsageReport>,
    },
    /// An operator lifts the blacklisting of a node. Reply: [`Reply::BlacklistCleared`].
    ClearBlacklist {
        /// The name of the node; one that does not exist is passed over.
        node: Arc<str>,
        /// For this type only; absent for all types.
        kind: Option<ResourceType>,
    },
    /// The host files were read again (`refreshNodes`).
    HostsChanged {
        /// Their new contents.
        hosts: Hosts,
    },
    /// `restartNodes`.
    RestartNodes {
        /// Whether to discard an earlier restart that is in progress.
        force: bool,
        /// Nodes to restart at a time.
        batch_size: i32,
    },
    /// `killSession`.
    KillSession {
        /// The session; one that does not exist is passed over.
        handle: Arc<str>,
    },
    /// The safe mode flag of the cluster manager is set or cleared.
    SetSafeMode {
        /// The new value.
        on: bool,
    },
    /// The configuration files were read again.
    SettingsChanged {
        /// The complete new settings.
        settings: Box<Settings>,
    },
    /// A session could not be reached and is given up. It ends as timed out.
    NotificationFailed {
        /// The session.
        handle: Arc<str>,
    },
    /// The process was stalled and did not process inputs meanwhile. The silence of that time does
    /// not mean that a node or a session is lost. Must precede [`Input::Tick`].
    HeldUp {
        /// For how long. Negative is the same as not at all.
        ms: i64,
    },
    /// Another cluster manager, which this one follows, has decided something. Never refused, not
    /// even in safe mode, and without effects. Reply: [`Reply::Observed`].
    Observed(Observed),
    /// Time has passed. Due after [`super::Engine::next_deadline`].
    Tick,
    /// Matches requests and slots. Due while [`super::Engine::wants_pass`].
    Pass,
    /// Nodes of a host have ended: another process of the same machine reports it. They are lost at once;
    /// names of nodes that do not exist or are on other hosts are passed over.
    NodesEnded {
        /// The host.
        host: Arc<str>,
        /// The names of the nodes.
        names: Vec<Arc<str>>,
    },
    /// An operator drains a node: it is granted nothing more until this is undone, or until it is lost.
    DrainNode {
        /// The name of the node; one that does not exist is passed over.
        node: Arc<str>,
        /// Whether it drains from now on.
        on: bool,
    },
    /// A node shows a certificate of the cluster that was issued for another access than the last one, or none.
    NodeAccess {
        /// The name of the node; one that does not exist is passed over.
        node: Arc<str>,
        /// The access for which the certificate was issued.
        access: Option<AccessId>,
    },
    /// Access has been revoked. The grants of nodes that showed certificates of it are lost at once, and these nodes
    /// are granted nothing more until they show another certificate. Safe mode does not refuse it.
    AccessRevoked {
        /// Its ids; nodes need not know them.
        ids: Vec<AccessId>,
    },
}

/// A decision of another cluster manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observed {
    /// How its session ids begin, and how many it has handed out. Ids are numbered from there.
    Identity {
        /// As [`super::Start::id_prefix`].
        id_prefix: Arc<str>,
        /// The number in the last id.
        sessions_numbered: i64,
    },
    /// A request has a slot of a node, whatever it had before, and whether or not the node has room
    /// here. Entered if session, request and node are known and the node serves the type.
    Granted {
        /// The session.
        handle: Arc<str>,
        /// The request.
        id: i32,
        /// The name of the node.
        node: Arc<str>,
    },
    /// A request that holds a slot here has none there: it waits again, behind the others of its
    /// session.
    Waiting {
        /// The session.
        handle: Arc<str>,
        /// The request.
        id: i32,
    },
    /// A request that holds a slot here has lost it.
    Lost {
        /// The session.
        handle: Arc<str>,
        /// The request.
        id: i32,
    },
    /// A session has ended.
    Ended {
        /// The session.
        handle: Arc<str>,
        /// How it ended.
        status: SessionStatus,
    },
}

/// A session's own view of its progress: the arguments of `sessionHeartbeatV2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// Largest id of its last requests.
    pub request_id: i32,
    /// Largest id of the last grants that it received.
    pub grant_id: i32,
    /// For each type that it reports: usage numbers, in practice bytes of memory.
    pub usages: PerType<Option<Vec<i64>>>,
}

/// Properties that all requests of a call share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestSummary {
    /// How many there are.
    pub counts: PerType<usize>,
    /// The largest id, at least 0.
    pub largest_id: i32,
    /// Whether one of them excludes a host that it prefers.
    pub contradictory: bool,
}

impl RequestSummary {
    /// Of these requests.
    pub fn of(requests: &[ResourceRequest]) -> RequestSummary {
        let mut summary = RequestSummary::default();
        requests.iter().for_each(|request| summary.add(request));
        summary
    }

    /// Counts one more request.
    pub fn add(&mut self, request: &ResourceRequest) {
        self.counts[request.kind] += 1;
        self.largest_id = self.largest_id.max(request.id);
        self.contradictory = self.contradictory || excludes_a_preferred_host(request);
    }

    /// How many requests there are.
    pub fn count(&self) -> usize {
        self.counts.0.iter().sum()
    }
}

pub(crate) fn excludes_a_preferred_host(request: &ResourceRequest) -> bool {
    if request.hosts.is_empty() || request.exclude_hosts.is_empty() {
        return false;
    }
    let mut excluded: Vec<&Arc<str>> = request.exclude_hosts.iter().collect();
    excluded.sort_unstable();
    request.hosts.iter().any(|host| excluded.binary_search(&host).is_ok())
}

/// A session's report on a node that it used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUsageReport {
    /// The node's name; it need not be in the cluster any more.
    pub node_name: Arc<str>,
    /// Tasks that failed there.
    pub failed: i32,
    /// Connections that failed there.
    pub failed_connections: i32,
}

/// The result of one input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The reply to the caller.
    pub reply: Result<Reply, Refusal>,
    /// Effects to carry out, in order.
    pub effects: Vec<Effect>,
}

/// The answer to an input that is not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// An id for a session that may start.
    SessionId(String),
    /// A session has started.
    Started {
        /// Directory for the session's history. Spec: cluster-manager/05 §3.1.
        log_path: String,
        /// The pool, after redirects.
        pool: PoolName,
    },
    /// A node sent a heartbeat.
    NodeHeard {
        /// Whether the node is to restart now.
        restart: bool,
    },
    /// An operator has lifted the blacklisting of a node.
    BlacklistCleared {
        /// The types for which the node was blacklisted until now.
        kinds: Vec<ResourceType>,
    },
    /// A decision of another cluster manager was observed.
    Observed {
        /// Whether it could be entered.
        entered: bool,
    },
}

/// Why an input is refused. The messages for Java peers are made where the wire is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The cluster manager is in safe mode.
    #[error("the cluster manager is in safe mode")]
    SafeMode,
    /// No session of this handle runs.
    #[error("session {0} is not running")]
    UnknownSession(Arc<str>),
    /// The session's view shows that it has lost requests; it has been ended.
    #[error("session {0} lost step with the cluster manager and was ended")]
    OutOfStep(Arc<str>),
    /// The handle does not have the form of a session id.
    #[error("{0:?} is not a session id")]
    MalformedHandle(Arc<str>),
    /// The id was handed out before the cluster manager was started.
    #[error("session id {0} belongs to another start of the cluster manager")]
    ForeignHandle(Arc<str>),
    /// A session of this handle runs.
    #[error("session {0} is running already")]
    AlreadyStarted(Arc<str>),
    /// The pool in which a session wants to start may not be used.
    #[error("the session cannot start: {0}")]
    SessionPool(PoolObjection),
    /// The pool that was asked about may not be used.
    #[error("{0}")]
    Pool(PoolObjection),
    /// A call requests more than its pool's maximum, and the pool limits calls (`requestMax`).
    #[error(
        "session {handle} requested {requested} {kind} slots at once; its pool allows {allowed}"
    )]
    OverPoolMaximum {
        /// The session.
        handle: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
        /// Requests of the type in the call.
        requested: u64,
        /// The pool's maximum.
        allowed: i32,
    },
    /// A request is for a type that no node of the cluster has slots for.
    #[error("session {0} requested slots of a type that is not scheduled")]
    IllegalType(Arc<str>),
    /// A request excludes a host that it prefers.
    #[error("session {0} excludes a host that it prefers")]
    ContradictoryHosts(Arc<str>),
    /// The host files do not allow the node's host.
    #[error("host {0} is not allowed")]
    DisallowedNode(Arc<str>),
    /// The settings give no number of slots for nodes with so many CPUs.
    #[error("no slots are configured for nodes with {num_cpus} CPUs")]
    UnknownCpuCount {
        /// The node's CPUs.
        num_cpus: i16,
    },
    /// [`Bounds::sessions`](super::settings::Bounds::sessions) is reached.
    #[error("{running} sessions are running already")]
    TooManySessions {
        /// Sessions that run.
        running: usize,
    },
    /// [`Bounds::requests_per_session`](super::settings::Bounds::requests_per_session) would be
    /// exceeded.
    #[error("session {handle} has {known} requests already")]
    TooManyRequests {
        /// The session.
        handle: Arc<str>,
        /// Requests of the session that are known.
        known: usize,
    },
    /// [`Bounds::nodes`](super::settings::Bounds::nodes) is reached.
    #[error("{known} nodes are known already")]
    TooManyNodes {
        /// Nodes that are known.
        known: usize,
    },
    /// [`Bounds::pools`](super::settings::Bounds::pools) is reached.
    #[error("{used} pools that are not configured are in use already")]
    TooManyPools {
        /// Pools in use that are not configured.
        used: usize,
    },
}

/// The reason why a pool is refused; the first three are those of a cluster of configured pools. Spec: cluster-manager/02 §3.16.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PoolObjection {
    /// None was named.
    #[error("no pool is named, and only configured pools may be used")]
    NotSpecified,
    /// The pools file does not have it.
    #[error("pool {0} is not configured, and only configured pools may be used")]
    NotConfigured(PoolName),
    /// Its name is not legal. See [`PoolName::is_legal`].
    #[error("the name of pool {0} is not legal")]
    IllegalName(PoolName),
    /// A queue of its path takes no more sessions.
    #[error("queue {0} is draining: it takes no more sessions")]
    Draining(Arc<str>),
    /// The user may not start sessions there.
    #[error("user {user} may not submit to queue {queue}")]
    NotAllowed {
        /// The path of the queue whose rule says so.
        queue: Arc<str>,
        /// The session's user.
        user: Arc<str>,
    },
}

/// Something to be done after an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Notify a session, after all earlier notifications.
    Notify {
        /// The session.
        handle: Arc<str>,
        /// Where its driver listens.
        to: Address,
        /// The notification itself.
        notification: Notification,
    },
    /// Discard a session's pending notifications: it has ended.
    ForgetSession {
        /// The session.
        handle: Arc<str>,
    },
    /// Deliver notifications again, if delivery is paused: safe mode has been switched off.
    ResumeNotifications,
    /// For history, metrics and the log. Nothing depends on it.
    Record(Record),
}

/// A notification. Spec: cluster-manager/05 §5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notification {
    /// `grantResource`: slots of one type, in the order in which they were given.
    Granted(Vec<Grant>),
    /// `revokeResource`: slots that are taken back.
    Revoked(Vec<Grant>),
    /// `processDeadNode`: the name of a lost node.
    DeadNode(Arc<str>),
}

/// Something that happened, for history, metrics and the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// A session was added.
    SessionStarted {
        /// The session's id.
        handle: Arc<str>,
        /// The job's name.
        name: Arc<str>,
        /// The job's user.
        user: Arc<str>,
        /// Where its driver listens.
        address: Address,
        /// The pool that it asked for.
        pool: PoolName,
        /// The pool in which it is scheduled.
        scheduling_pool: PoolName,
        /// Sessions that run then, this one among them.
        running: usize,
    },
    /// The session's pool has an illegal name; another one is used.
    IllegalPool {
        /// The session's id.
        handle: Arc<str>,
        /// The pool that it asked for.
        pool: PoolName,
    },
    /// A session changed its priority or another part of its description.
    SessionUpdated {
        /// The session's id.
        handle: Arc<str>,
        /// Its new priority, if that was changed.
        priority: Option<SessionPriority>,
    },
    /// A session was ended, by its job tracker or by an administrator.
    SessionEnded {
        /// The session's id.
        handle: Arc<str>,
        /// The job's name.
        name: Arc<str>,
        /// The job's user.
        user: Arc<str>,
        /// Where its driver listened.
        address: Address,
        /// How it ended.
        status: SessionStatus,
        /// Where its job tracker says more of it.
        url: Option<Arc<str>>,
        /// Sessions that run then, without this one.
        running: usize,
    },
    /// A session was ended, because its heartbeats were missing.
    SessionExpired {
        /// The session's id.
        handle: Arc<str>,
        /// The job's name.
        name: Arc<str>,
        /// The job's user.
        user: Arc<str>,
        /// Its grants.
        granted: PerType<i64>,
        /// The time since its last heartbeat.
        gap_ms: i64,
    },
    /// The session's view differs from ours.
    OutOfStep {
        /// The session's id.
        handle: Arc<str>,
        /// What the difference means.
        kind: StepMismatch,
        /// The last request that the cluster manager knows.
        request_id: i32,
        /// The last grant that the cluster manager made.
        grant_id: i32,
        /// The last request that the session's heartbeat names.
        seen_request_id: i32,
        /// The last grant that the session's heartbeat names.
        seen_grant_id: i32,
    },
    /// A session requested slots of one type.
    Requested {
        /// The session's id.
        handle: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
        /// How many slots.
        count: u64,
    },
    /// A session made a request with an id that is in use.
    DuplicateRequest {
        /// The session's id.
        handle: Arc<str>,
        /// The request's id.
        id: i32,
    },
    /// A session gave back slots of one type, or took requests back.
    Released {
        /// The session's id.
        handle: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
        /// How many requests.
        count: u64,
    },
    /// A session was granted slots of one type.
    Assigned {
        /// The session's id.
        handle: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
        /// How many slots.
        count: u64,
        /// An entry for each grant, in their order.
        asked: Vec<Asked>,
    },
    /// Grants of one type were taken back from a session.
    Revoked {
        /// The session's id.
        handle: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
        /// How many grants.
        count: u64,
    },
    /// A node joined the cluster.
    NodeAdded {
        /// Its first heartbeat.
        report: Box<NodeReport>,
        /// Nodes of the cluster then, this one among them.
        nodes: usize,
    },
    /// A node was removed, and its grants are lost.
    NodeLost {
        /// The node's name.
        name: Arc<str>,
        /// Whether its heartbeats were missing.
        expired: bool,
        /// Nodes of the cluster then, without this one.
        nodes: usize,
        /// Sessions that are notified.
        told: usize,
    },
    /// A node has missed too many heartbeats.
    NodeLate {
        /// The node's name.
        name: Arc<str>,
        /// The time since its last heartbeat.
        silent_ms: i64,
    },
    /// A late node is on time again.
    NodeOnTime {
        /// The node's name.
        name: Arc<str>,
    },
    /// A node became able to run tasks of a type, or unable.
    NodeRunnable {
        /// The node's name.
        name: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
        /// Whether it is able to now.
        runnable: bool,
    },
    /// A node is granted no more slots of a type, because sessions reported failures.
    NodeBlacklisted {
        /// The node's name.
        name: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
    },
    /// An operator has lifted the blacklisting of a node for the type.
    BlacklistCleared {
        /// The node's name.
        name: Arc<str>,
        /// The type of the slots.
        kind: ResourceType,
    },
    /// Feedback about a node that is not known.
    FeedbackForUnknownNode {
        /// The name in the feedback.
        name: Arc<str>,
    },
    /// An operator had all nodes restart.
    RestartRequested {
        /// Nodes of the cluster.
        nodes: usize,
        /// Nodes that restart at a time.
        batch_size: i32,
    },
    /// The reply to a node's heartbeat has it restart.
    RestartTold {
        /// The node's name.
        name: Arc<str>,
    },
    /// A pool has been below its due for so long that it may preempt.
    PoolStarving {
        /// The pool.
        pool: PoolName,
        /// The type of the slots.
        kind: ResourceType,
        /// Which of its due it lacks.
        cause: Starvation,
        /// Slots that it is due by its weight.
        share: f64,
        /// Slots that are guaranteed to it.
        minimum: i64,
        /// Its grants.
        granted: i64,
    },
    /// Grants were found that can be taken back for starving pools.
    PreemptionFound {
        /// The type of the slots.
        kind: ResourceType,
        /// How many grants.
        count: u64,
    },
    /// Fewer grants can be taken back than starving pools lack.
    PreemptionFellShort {
        /// The type of the slots.
        kind: ResourceType,
        /// Grants that are missing.
        missing: u64,
        /// Rounds of the search.
        rounds: u32,
        /// The bound on the running time of grants to take back, after the last round.
        max_running_time_ms: i64,
    },
    /// Safe mode was switched on or off.
    SafeMode {
        /// Whether it is on now.
        on: bool,
    },
    /// A silence of nodes and sessions was excused, because the machine was stalled.
    HeldUp {
        /// How long nothing was processed.
        ms: i64,
    },
    /// Changed configuration files are in force.
    SettingsChanged,
    /// An operator drains a node, or lets it serve again.
    NodeDraining {
        /// The node's name.
        name: Arc<str>,
        /// Whether it drains now.
        on: bool,
    },
    /// A node is kept for a request.
    NodeReserved {
        /// The node's name.
        node: Arc<str>,
        /// The request's session.
        handle: Arc<str>,
        /// The request's type.
        kind: ResourceType,
        /// The request's id.
        id: i32,
    },
    /// A node is kept for a request no longer.
    ReservationEnded {
        /// The node's name.
        node: Arc<str>,
        /// The request's session.
        handle: Arc<str>,
        /// The request's type.
        kind: ResourceType,
        /// The request's id.
        id: i32,
        /// Whether the request was granted there.
        served: bool,
    },
    /// The access of a node was revoked and its grants are lost, or it has another access now.
    NodeRevoked {
        /// The node's name.
        name: Arc<str>,
        /// The access that was revoked.
        access: AccessId,
        /// Whether its access is revoked; otherwise it serves again.
        on: bool,
        /// Sessions that are notified of the loss.
        told: usize,
    },
    /// Where resources are counted: grants on a node were taken back, to make room for a request.
    RoomMade {
        /// The node's name.
        node: Arc<str>,
        /// The request's session.
        handle: Arc<str>,
        /// The request's type.
        kind: ResourceType,
        /// The request's id.
        id: i32,
        /// Which of its due the request's pool lacked.
        cause: Starvation,
        /// Grants that were taken back.
        victims: u64,
    },
    /// A node was kept for a request for as long as it may, and serves everybody again.
    ReservationExpired {
        /// The node's name.
        node: Arc<str>,
        /// The request's session.
        handle: Arc<str>,
        /// The request's type.
        kind: ResourceType,
        /// The request's id.
        id: i32,
        /// For how long it was kept.
        kept_ms: i64,
    },
    /// Where resources are counted: enough was looked at in this second, and so many nodes are left for the next one.
    PreemptionPaused {
        /// The type whose requests were looked at.
        kind: ResourceType,
        /// Nodes that were not looked at yet.
        nodes_left: u64,
    },
}

/// When a request came. It decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The time of the input.
    pub at: Millis,
    /// The input's number, from 1. The caller that applied it can look up a finer time by it.
    pub input: u64,
}

/// How a session's view differs. Spec: cluster-manager/02 §3.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepMismatch {
    /// It has lost requests; it is ended.
    Lost,
    /// It is behind in grants and moves.
    Progress,
    /// It is behind in grants and does not move.
    NoProgress,
    /// It has been behind in grants for longer than allowed.
    Late,
}

/// Which of its due a pool lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Starvation {
    /// Slots that are guaranteed to it.
    Minimum,
    /// Slots that it is due by its weight.
    Share,
}
