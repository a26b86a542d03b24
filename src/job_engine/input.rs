//! The inputs and outcomes of the job engine: plain data.

use std::collections::BTreeSet;
use std::sync::Arc;

use corona_mapreduce::{
    AttemptKey, CompletionEvent, HistoryRecord, JobId, JobSettings, JobState, PerKind,
    SortedRanges, Split, TaskKind, TaskStatus,
};
use corona_model::types::{Millis, ResourceRequest, ResourceType, SessionPriority, SessionStatus};
use serde::{Deserialize, Serialize};

/// The id of a request, which is also that of the grant that answers it. Unique within the session,
/// from 1. Spec: mapreduce/05 §5.3.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RequestId(pub i32);

/// All that does not change of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The job's id.
    pub id: JobId,
    /// Its name for people.
    pub name: Arc<str>,
    /// The user whose job it is.
    pub user: Arc<str>,
    /// Where its configuration is, as task trackers fetch it.
    pub conf: Arc<str>,
    /// The job tracker's name in the history: `null:null:null` without a remote one.
    pub tracker: Arc<str>,
    /// The splits, one for each map, in the order of the maps.
    pub splits: Vec<Split>,
    /// Reduces.
    pub reduces: u32,
    /// The settings from its configuration.
    pub settings: JobSettings,
    /// Racks of hosts that are not in the default rack; sorted by host. They count for statistics only.
    pub racks: Vec<(Arc<str>, Arc<str>)>,
}

impl JobSpec {
    /// The same without its splits, of which there may be very many.
    pub fn without_splits(&self) -> JobSpec {
        JobSpec {
            id: self.id.clone(),
            name: self.name.clone(),
            user: self.user.clone(),
            conf: self.conf.clone(),
            tracker: self.tracker.clone(),
            splits: Vec::new(),
            reduces: self.reduces,
            settings: self.settings.clone(),
            racks: self.racks.clone(),
        }
    }
}

/// One thing that happens to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobInput {
    /// The job begins: its tasks are made and slots for them requested.
    Submitted,
    /// The cluster manager has granted slots.
    Granted {
        /// The slots, in the order of the notification.
        slots: Vec<GrantedSlot>,
    },
    /// The cluster manager takes slots back.
    Revoked {
        /// The ids of the requests.
        ids: Vec<RequestId>,
    },
    /// The cluster manager has given up a node.
    NodeLost {
        /// The node's name.
        node: Arc<str>,
    },
    /// A task tracker reports. Spec: mapreduce/03 §3.2.
    Heartbeat {
        /// The node's name.
        node: Arc<str>,
        /// The host under which its map output can be fetched.
        host: Arc<str>,
        /// The port for that.
        http_port: i32,
        /// The attempts of this job.
        reports: Vec<TaskStatus>,
    },
    /// A call with orders to a task tracker failed, or was not made because its node is faulty.
    CallFailed {
        /// The node's name.
        node: Arc<str>,
        /// The orders of the call.
        orders: Vec<Order>,
    },
    /// The hosts that can serve requests of a type, as the cluster manager lists them. Exclusions never
    /// cover all of them.
    HostsKnown {
        /// Which type.
        kind: TaskKind,
        /// The hosts; none if it is not known which hosts there are.
        hosts: Vec<Arc<str>>,
    },
    /// A user or an administrator ends the job.
    KillJob,
    /// A user ends an attempt. Reply: [`JobReply::Killed`].
    KillAttempt {
        /// The attempt; it need not run any more.
        attempt: AttemptKey,
        /// Whether it counts as failed.
        fail: bool,
    },
    /// A user changes the priority of the session.
    SetPriority {
        /// The new priority.
        priority: SessionPriority,
    },
    /// A user wants a second attempt at a map or reduce that runs, however fast it is.
    Speculate {
        /// Which kind.
        kind: TaskKind,
        /// The number of the task.
        number: u32,
    },
    /// The session with the cluster manager is lost, and with it all slots.
    SessionLost {
        /// Whether a request or a release raised the error.
        aborted: bool,
    },
    /// The job tracker was away, and is there again. It is not known which orders and requests went
    /// out, and which grants were missed: requests that wait are filed again, and attempts that were
    /// never heard of are killed and run again.
    Resumed,
    /// Time has passed. Due at [`super::JobEngine::next_deadline`].
    Tick,
    /// The job begins, in place of [`JobInput::Submitted`], with what an earlier job tracker left of it:
    /// finished work counts, attempts that ran are killed and run again.
    Restored {
        /// Job trackers that ran the job before.
        fail_overs: u32,
        /// What happened, in the order of time.
        events: Vec<(Millis, SavedEvent)>,
    },
    /// The process of the job tracker did not run for so long: it was stopped, or its machine was. What
    /// was not heard meanwhile may wait to be read, so that time counts as nobody's silence.
    Stalled {
        /// In milliseconds.
        ms: i64,
    },
    /// The machine of the job tracker was cut off from these nodes for so long: that time does not count as
    /// their silence.
    CutOff {
        /// The nodes' names.
        nodes: BTreeSet<Arc<str>>,
        /// In milliseconds.
        ms: i64,
    },
    /// As [`JobInput::Resumed`], after a restart within the process of the job tracker: task trackers still have
    /// time to report what was launched. [`JobInput::NotLaunched`] follows for the others.
    ResumedInPlace,
    /// No task tracker has reported these attempts, or their clean-ups, for long enough after a restart: they are
    /// killed, and run again.
    NotLaunched {
        /// The attempts.
        attempts: BTreeSet<AttemptKey>,
    },
}

/// Something that an earlier job tracker left of a job. Spec: mapreduce/09 §I.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SavedEvent {
    /// An attempt, or its clean-up, was launched.
    Launched {
        /// The attempt that was launched, or is cleaned up after.
        attempt: AttemptKey,
        /// The node's name.
        node: Arc<str>,
        /// The node's host.
        host: Arc<str>,
        /// Where its task tracker takes orders: `host:port`.
        address: Arc<str>,
    },
    /// A task tracker reported for the first time, or from a new address.
    Tracker {
        /// The node's name.
        node: Arc<str>,
        /// The host under which its map output can be fetched.
        host: Arc<str>,
        /// The port for that.
        http_port: i32,
    },
    /// An attempt ended, wants to commit, or must be cleaned up after.
    Reported {
        /// The node's name.
        node: Arc<str>,
        /// The report, as the node sent it.
        report: TaskStatus,
    },
    /// An attempt on a node was not heard of in time.
    TimedOut {
        /// The node's name.
        node: Arc<str>,
    },
}

/// A slot that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedSlot {
    /// The request that it answers.
    pub id: RequestId,
    /// The name of the node, which its task tracker uses in its reports.
    pub node: Arc<str>,
    /// The node's host.
    pub host: Arc<str>,
    /// Where its task tracker takes orders: `host:port`.
    pub address: Arc<str>,
}

/// One order of a call to a task tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// To launch an attempt, or its clean-up.
    Launch(AttemptKey),
    /// To kill an attempt.
    Kill(AttemptKey),
    /// To let an attempt commit.
    Commit(AttemptKey),
    /// To forget the job.
    KillJob,
}

/// The outcome of one input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The reply to the caller.
    pub reply: Result<JobReply, JobRefusal>,
    /// The effects, in order.
    pub effects: Vec<JobEffect>,
}

/// The answer to an input that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobReply {
    /// Done.
    Done,
    /// Whether the attempt will be killed now: not if it has ended, has not been heard of, or is being
    /// killed already. Spec: mapreduce/09 §A.
    Killed(bool),
}

/// Why an input is refused. It has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum JobRefusal {
    /// The job was submitted before.
    #[error("the job was submitted already")]
    AlreadySubmitted,
    /// The job has ended.
    #[error("the job has ended")]
    Ended,
    /// The job has no such attempt.
    #[error("the job has no such attempt")]
    UnknownAttempt,
    /// The job has no such task, or it does not run.
    #[error("the job has no such running task")]
    UnknownTask,
    /// The job never had a slot on the node.
    #[error("the job never had a slot on this node")]
    UnknownNode,
}

/// Something that must be done after an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobEffect {
    /// Request slots from the cluster manager.
    Request(Vec<ResourceRequest>),
    /// Give slots back, or withdraw requests.
    Release(Vec<RequestId>),
    /// Order a task tracker to launch an attempt.
    Launch(Launch),
    /// Order a task tracker to kill an attempt.
    Kill {
        /// The attempt to kill.
        attempt: AttemptKey,
        /// Where.
        at: Tracker,
    },
    /// Allow an attempt to commit its output.
    Commit {
        /// The attempt that may commit.
        attempt: AttemptKey,
        /// Where.
        at: Tracker,
    },
    /// Order a task tracker to forget the job and all that it has of it.
    KillJob {
        /// Where.
        at: Tracker,
    },
    /// A new event at the end of the list of completion events.
    Event {
        /// Its place in the list.
        id: u32,
        /// The attempt that ended, and how.
        event: CompletionEvent,
    },
    /// An earlier event of a success became obsolete, in its place.
    EventObsolete {
        /// Its place in the list.
        id: u32,
    },
    /// Write to the job's history.
    Record(HistoryRecord),
    /// A task has failed for good, and the job does without it. The original's history has no line for it.
    DoneWithout(HistoryRecord),
    /// Notify the cluster manager of the session's priority.
    UpdatePriority(SessionPriority),
    /// Counters were left out because a limit was reached; for the log.
    CountersLeftOut {
        /// The attempt that reported them.
        attempt: AttemptKey,
        /// How many.
        count: usize,
    },
    /// The job has ended: report what its nodes did, then end the session. Nothing follows.
    EndSession {
        /// How it ended.
        status: SessionStatus,
        /// The usage of each node.
        feedback: Vec<NodeUsage>,
    },
}

/// A task tracker and where it takes orders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tracker {
    /// The name of its node.
    pub node: Arc<str>,
    /// `host:port`.
    pub address: Arc<str>,
}

/// An attempt to be launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The attempt. A clean-up attempt has the id of the attempt after which it cleans up.
    pub attempt: AttemptKey,
    /// Where.
    pub at: Tracker,
    /// The slot that it takes.
    pub slot: RequestId,
    /// The work to do there.
    pub work: Work,
}

/// The activity of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Its map or reduce.
    Task {
        /// Records to leave out.
        skip: SortedRanges,
        /// Whether it skips bad records.
        skipping: bool,
        /// Whether the records that it leaves out are written down; not when it only tests a range.
        write_skipped: bool,
    },
    /// Prepares the job.
    Setup,
    /// Commits or aborts the job's output.
    Cleanup {
        /// How the job ends.
        state: JobState,
    },
    /// Cleans up after an attempt that failed or was killed.
    TaskCleanup {
        /// Whether it failed; else it was killed.
        failed: bool,
    },
}

/// The usage of a node by a job: an entry of `nodeFeedback`. Spec: mapreduce/05 §5.5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUsage {
    /// The node's name.
    pub node: Arc<str>,
    /// Attempts launched there.
    pub total: u32,
    /// Attempts that succeeded.
    pub succeeded: u32,
    /// Attempts that were killed and left output to clean up.
    pub killed: u32,
    /// Attempts that failed and left output to clean up; 0 for jobs that did not succeed.
    pub failed: u32,
    /// Attempts that were not heard of in time.
    pub timeouts: u32,
    /// Orders that could not be delivered.
    pub failed_connections: u32,
}

/// The counters of a job that its job tracker computes. Spec: mapreduce/09 §F.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTotals {
    /// Attempts launched, clean-up attempts not counted.
    pub launched: PerKind<u32>,
    /// Tasks that failed.
    pub failed_tasks: PerKind<u32>,
    /// Milliseconds of all attempts that ended.
    pub slot_millis: PerKind<i64>,
    /// Milliseconds of copying, sorting and reducing.
    pub reduce_phase_millis: [i64; 3],
    /// Maps launched on a host of their split.
    pub data_local: u32,
    /// Maps launched in a rack of their split.
    pub rack_local: u32,
    /// Attempts that failed, of the job's work.
    pub failed_attempts: PerKind<u32>,
    /// Attempts that were killed, of the job's work.
    pub killed_attempts: PerKind<u32>,
    /// Job trackers that ran the job before this one.
    pub fail_overs: u32,
    /// Finished tasks that were taken over from them, and need not run again.
    pub saved: PerKind<u32>,
    /// The time that these tasks had taken, in milliseconds.
    pub saved_millis: PerKind<i64>,
}

/// The type of slot that tasks of a kind take.
pub(crate) fn slot_type(kind: TaskKind) -> ResourceType {
    match kind {
        TaskKind::Map => ResourceType::Map,
        TaskKind::Reduce => ResourceType::Reduce,
    }
}
