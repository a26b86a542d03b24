//! The parent of a job whose job tracker runs on a node: a pure state machine. It requests a slot of type
//! `JOBTRACKER`, has a job tracker started there, replaces it by another one when it is lost, and keeps
//! what the next one needs. Spec: mapreduce/05 §5.7, mapreduce/09 §I.
//!
//! [`Parent::apply`] takes one input with the time and returns a reply and effects. It has no network,
//! clock or files: the service carries out the effects, and journals the inputs, which lead back to the
//! same parent after a restart.
//!
//! A *remote* is a job tracker on a node; its *attempt* is its number within the job. Only the current
//! attempt is listened to, so a lost remote that is still running is refused, and ends.

mod saved;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corona_mapreduce::{AttemptKey, JobState, PerKind, TaskKey, TaskKind};
use corona_model::types::{ComputeSpecs, Millis, ResourceRequest, ResourceType, SessionPriority};
use serde::{Deserialize, Serialize};

pub use self::saved::{SavedState, SavedUpdate};
use crate::{GrantedSlot, RequestId};

/// The number of the task by which nodes know the first remote of a job without maps.
/// Spec: mapreduce/05 §5.7.
const FIRST_TASK: u32 = 100_000;
/// A node that did not take an order is not tried again for so long, in milliseconds: the cluster manager may
/// grant a dead one until it has expired.
const DEAD_MS: i64 = 60_000;
/// Starts that nodes may leave unanswered, one after the other.
const MAX_UNANSWERED: u32 = 64;

/// The settings of a parent. Spec: mapreduce/05 §5.7.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentSettings {
    /// Maps of the job.
    pub maps: u32,
    /// Reduces of the job.
    pub reduces: u32,
    /// Remotes that may be lost without ending the job.
    pub max_restarts: u32,
    /// Remotes that may fail to start, one after the other.
    pub start_attempts: u32,
    /// How long a remote may take until it reports, in milliseconds.
    pub start_timeout_ms: i64,
    /// Whether hosts where a remote failed are left out.
    pub exclude_failed: bool,
    /// How long other hosts are waited for, in milliseconds.
    pub exclusion_wait_ms: i64,
    /// Bytes of state that are kept for the next remote.
    pub max_state_bytes: usize,
}

/// The parent of one job. See the module's text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    settings: ParentSettings,
    stage: Stage,
    /// The latest time of an input.
    last: Millis,
    submitted: Option<Millis>,
    last_request: i32,
    /// The number of the current remote.
    attempt: u32,
    /// Remotes that did not start, since one was lost or the job began.
    not_started: u32,
    /// Remotes that were lost.
    lost: u32,
    /// The hosts of those that did not start, and of the last one that was lost.
    excluded: BTreeSet<Arc<str>>,
    /// Nodes that did not take the order to start a remote, or were lost before it had started, and when.
    dead: BTreeMap<Arc<str>, Millis>,
    /// How many starts such nodes have cost, since one was lost or the job began.
    unanswered: u32,
    /// A user wants the job killed.
    is_killed: bool,
    /// The priority that a user has given the job since it began.
    priority: Option<SessionPriority>,
    /// The session of the last remote that reported.
    last_session: Arc<str>,
    /// The addresses of all remotes that reported.
    addresses: Vec<(Arc<str>, u16)>,
    saved: SavedState,
    /// The attempt at each task that was the last to be allowed to commit.
    committing: BTreeMap<TaskKey, AttemptKey>,
}

/// How far the parent is.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// The job was not submitted.
    New,
    /// A slot is requested.
    Waiting { request: RequestId, since: Millis },
    /// Only a node that is dead was granted. Another slot is requested after a pause.
    Pausing { since: Millis },
    /// A remote was started, and has not reported.
    Starting { slot: GrantedSlot, since: Millis },
    /// A remote has reported.
    Working { slot: GrantedSlot, remote: Remote },
    /// The job has ended.
    Over(JobState),
}

/// A job tracker on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// The number of its attempt.
    pub attempt: u32,
    /// Its host, as it reports it.
    pub host: Arc<str>,
    /// The port of its Hadoop RPC.
    pub port: u16,
    /// The session in which it runs the job.
    pub session: Arc<str>,
}

/// One thing that happens to a parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ParentInput {
    /// The job begins.
    Submitted,
    /// The cluster manager has granted slots.
    Granted {
        /// The slots.
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
    /// A task tracker could not be ordered to start a remote.
    StartFailed {
        /// The number of its attempt.
        attempt: u32,
    },
    /// A remote reports. Reports that repeat the one before need no input.
    Reported(Remote),
    /// A remote cannot be called, or has been silent for too long.
    Unreachable {
        /// The number of its attempt.
        attempt: u32,
    },
    /// A remote leaves what the next one needs.
    Pushed {
        /// The number of its attempt.
        attempt: u32,
        /// In the order in which they came.
        updates: Vec<SavedUpdate>,
    },
    /// Attempts at tasks are about to commit. Reply: [`ParentReply::Committed`].
    Committing {
        /// The number of the remote's attempt.
        attempt: u32,
        /// The attempts at tasks.
        tasks: Vec<AttemptKey>,
    },
    /// A remote reports that the job has ended.
    Ended {
        /// The number of its attempt.
        attempt: u32,
        /// How.
        state: JobState,
    },
    /// A user ends the job.
    KillJob,
    /// A user changes the priority of the job.
    SetPriority {
        /// The new priority.
        priority: SessionPriority,
    },
    /// The session with the cluster manager is lost, and with it the remote's slot.
    SessionLost,
    /// The parent was away, and is there again.
    Resumed,
    /// Time has passed. Due at [`Parent::next_deadline`].
    Tick,
    /// The process of the parent did not run for so long: that counts as nobody's silence.
    Stalled {
        /// In milliseconds.
        ms: i64,
    },
}

/// Something that must be done after an input.
#[derive(Clone, Debug, PartialEq)]
pub enum ParentEffect {
    /// Request a slot from the cluster manager.
    Request(ResourceRequest),
    /// Give a slot back, or withdraw a request.
    Release(RequestId),
    /// Order a task tracker to start a remote.
    Start {
        /// The number of its attempt.
        attempt: u32,
        /// Where.
        slot: GrantedSlot,
    },
    /// Submit the job to a remote, and watch it.
    Watch(Remote),
    /// Order a remote to kill the job.
    Kill(Remote),
    /// End the session of a remote that is lost, as timed out.
    EndRemoteSession(Arc<str>),
    /// Notify the cluster manager of the priority.
    UpdatePriority(SessionPriority),
    /// The job has ended. Nothing follows.
    End {
        /// How.
        state: JobState,
        /// Why the parent has ended it; none if the remote has, or a user.
        reason: Option<EndReason>,
    },
}

/// Why a parent ends a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// More remotes were lost than the job allows.
    #[error(
        "remote job trackers lost: {lost}, replacements allowed: {allowed} \
         (mapred.coronajobtracker.restart.count)"
    )]
    RestartLimit {
        /// How many were lost.
        lost: u32,
        /// How many may be.
        allowed: u32,
    },
    /// The state that a remote left is not complete.
    #[error("a remote job tracker was lost, and its state is larger than {0} bytes")]
    StateTooLarge(usize),
    /// No remote could be started.
    #[error(
        "remote job trackers that did not start, one after the other: {0} \
         (mapred.coronajobtracker.remotejobtracker.attempts)"
    )]
    NotStarted(u32),
    /// The session with the cluster manager is lost.
    #[error("the session with the cluster manager is lost")]
    SessionLost,
}

/// The answer to an input that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParentReply {
    /// Done.
    Done,
    /// For each attempt the one at the same task that was recorded before.
    Committed(Vec<Option<AttemptKey>>),
}

/// Why an input is refused. It has changed nothing, but where it says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParentRefusal {
    /// Another remote has taken its place.
    #[error("Attempt {attempt} does not match current attempt {current}")]
    NotCurrent {
        /// The number of the attempt that asks.
        attempt: u32,
        /// The number of the current one.
        current: u32,
    },
    /// The job allows no other remote, so nothing is kept for it.
    #[error("Logic error: got state update but state restoring is disabled")]
    NotRestoring,
    /// The state is too large. No remote replaces this one.
    #[error("the state of the job tracker is larger than {0} bytes")]
    StateTooLarge(usize),
    /// The job has no such task.
    #[error("the job has no such task")]
    UnknownTask,
    /// The job has ended, or was submitted before.
    #[error("the job has ended")]
    Ended,
}

/// The outcome of one input.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentOutcome {
    /// The reply to the caller.
    pub reply: Result<ParentReply, ParentRefusal>,
    /// The effects, in order.
    pub effects: Vec<ParentEffect>,
}

impl Parent {
    /// The parent of a job that was not submitted yet.
    pub fn new(settings: ParentSettings) -> Parent {
        Parent {
            settings,
            stage: Stage::New,
            last: Millis(i64::MIN),
            submitted: None,
            last_request: 0,
            attempt: 0,
            not_started: 0,
            lost: 0,
            excluded: BTreeSet::new(),
            dead: BTreeMap::new(),
            unanswered: 0,
            is_killed: false,
            priority: None,
            last_session: "".into(),
            addresses: Vec::new(),
            saved: SavedState::default(),
            committing: BTreeMap::new(),
        }
    }

    /// Takes one input at the time `now`. A time before that of an earlier input counts as that time.
    pub fn apply(&mut self, now: Millis, input: ParentInput) -> ParentOutcome {
        self.last = self.last.max(now);
        let mut effects = Vec::new();
        let reply = self.dispatch(input, &mut effects);
        ParentOutcome { reply, effects }
    }

    /// The latest time of an input; long ago if there was none.
    pub fn last(&self) -> Millis {
        self.last
    }

    /// When time alone changes something, [`ParentInput::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Millis> {
        match &self.stage {
            Stage::Waiting { since, .. } if !self.excluded.is_empty() => {
                Some(since.plus_ms(self.settings.exclusion_wait_ms))
            }
            Stage::Pausing { since } => Some(since.plus_ms(self.settings.exclusion_wait_ms)),
            Stage::Starting { since, .. } => Some(since.plus_ms(self.settings.start_timeout_ms)),
            _ => None,
        }
    }

    /// The key by which nodes know a remote: a map that the job does not have.
    pub fn key(&self, attempt: u32) -> AttemptKey {
        let number = self.settings.maps.saturating_add(FIRST_TASK);
        TaskKey { kind: TaskKind::Map, number }.attempt(attempt)
    }

    /// The remote that works, if one does.
    pub fn remote(&self) -> Option<&Remote> {
        match &self.stage {
            Stage::Working { remote, .. } => Some(remote),
            _ => None,
        }
    }

    /// What the job waits for before a remote works; nothing if one does, or the job has ended.
    pub fn awaits(&self) -> Option<&'static str> {
        match self.stage {
            Stage::New | Stage::Waiting { .. } | Stage::Pausing { .. } => {
                Some("waits for a slot of type JOBTRACKER on a node, for its job tracker")
            }
            Stage::Starting { .. } => Some("its job tracker is being started on a node"),
            Stage::Working { .. } | Stage::Over(_) => None,
        }
    }

    /// Maps and reduces of the job.
    pub fn total(&self) -> PerKind<u32> {
        PerKind { map: self.settings.maps, reduce: self.settings.reduces }
    }

    /// The time of the submission.
    pub fn submitted(&self) -> Option<Millis> {
        self.submitted
    }

    /// The number of the current remote.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How the job has ended, if it has.
    pub fn end(&self) -> Option<JobState> {
        match self.stage {
            Stage::Over(state) => Some(state),
            _ => None,
        }
    }

    /// Remotes that were lost.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// The priority that a user has given the job since it began, if one has.
    pub fn priority(&self) -> Option<SessionPriority> {
        self.priority
    }

    /// The addresses at which remotes of this job were, the latest last.
    pub fn addresses(&self) -> &[(Arc<str>, u16)] {
        &self.addresses
    }

    /// Whether all that remotes have left is kept.
    pub fn has_whole_state(&self) -> bool {
        !self.saved.is_cut()
    }

    /// Whether a remote that is lost is replaced.
    pub fn may_restart(&self) -> bool {
        self.settings.max_restarts > 0
    }

    /// What was left for the current remote. Errors: it is not the current one, or nothing is kept.
    pub fn saved(&self, attempt: u32) -> Result<(&SavedState, &str), ParentRefusal> {
        self.must_be_current(attempt)?;
        self.must_restore()?;
        Ok((&self.saved, &self.last_session))
    }

    /// The last id of a request, and the request that is not released with its grant: what a session
    /// must know after a restart.
    pub fn open_request(&self) -> (i32, Option<(RequestId, Option<&GrantedSlot>)>) {
        let open = match &self.stage {
            Stage::Waiting { request, .. } => Some((*request, None)),
            Stage::Starting { slot, .. } | Stage::Working { slot, .. } => {
                Some((slot.id, Some(slot)))
            }
            Stage::New | Stage::Pausing { .. } | Stage::Over(_) => None,
        };
        (self.last_request, open)
    }

    fn dispatch(
        &mut self,
        input: ParentInput,
        effects: &mut Vec<ParentEffect>,
    ) -> Result<ParentReply, ParentRefusal> {
        if (self.stage == Stage::New) != (input == ParentInput::Submitted) || self.end().is_some() {
            return Err(ParentRefusal::Ended);
        }
        match input {
            ParentInput::Submitted => {
                self.submitted = Some(self.last);
                self.request(effects);
            }
            ParentInput::Granted { slots } => {
                slots.into_iter().for_each(|slot| self.granted(slot, effects));
            }
            ParentInput::Revoked { ids } => {
                if self.slot().is_some_and(|slot| ids.contains(&slot.id)) {
                    self.lose_slot(effects);
                }
            }
            ParentInput::NodeLost { node } => {
                if self.slot().is_some_and(|slot| slot.node == node) {
                    match self.stage {
                        Stage::Starting { .. } => self.start_unanswered(effects),
                        _ => self.lose_slot(effects),
                    }
                }
            }
            ParentInput::StartFailed { attempt } => {
                if attempt == self.attempt && matches!(self.stage, Stage::Starting { .. }) {
                    self.start_unanswered(effects);
                }
            }
            ParentInput::Reported(remote) => self.reported(remote, effects)?,
            ParentInput::Unreachable { attempt } => {
                if attempt == self.attempt && self.remote().is_some() {
                    self.lose_remote(effects);
                }
            }
            ParentInput::Pushed { attempt, updates } => {
                self.must_be_current(attempt)?;
                self.must_restore()?;
                let most = self.settings.max_state_bytes;
                self.saved.add(updates, most).map_err(|_| ParentRefusal::StateTooLarge(most))?;
            }
            ParentInput::Committing { attempt, tasks } => {
                self.must_be_current(attempt)?;
                self.must_restore()?;
                if !tasks.iter().all(|key| self.has(key.task)) {
                    return Err(ParentRefusal::UnknownTask);
                }
                let record = |key: AttemptKey| self.committing.insert(key.task, key);
                return Ok(ParentReply::Committed(tasks.into_iter().map(record).collect()));
            }
            ParentInput::Ended { attempt, state } => {
                if attempt == self.attempt && self.remote().is_some() {
                    self.end_as(state, None, effects);
                }
            }
            ParentInput::KillJob => match self.remote() {
                Some(remote) => {
                    effects.push(ParentEffect::Kill(remote.clone()));
                    self.is_killed = true;
                }
                None => self.end_as(JobState::Killed, None, effects),
            },
            ParentInput::SetPriority { priority } => {
                self.priority = Some(priority);
                effects.push(ParentEffect::UpdatePriority(priority));
            }
            ParentInput::SessionLost => {
                self.end_remote_session(effects);
                let state = if self.is_killed { JobState::Killed } else { JobState::Failed };
                self.end_as(state, Some(EndReason::SessionLost), effects);
            }
            ParentInput::Resumed => self.resume(effects),
            ParentInput::Tick => self.tick(effects),
            ParentInput::Stalled { ms } => match &mut self.stage {
                Stage::Waiting { since, .. }
                | Stage::Pausing { since }
                | Stage::Starting { since, .. } => {
                    *since = since.plus_ms(ms.max(0));
                }
                Stage::New | Stage::Working { .. } | Stage::Over(_) => {}
            },
        }
        Ok(ParentReply::Done)
    }

    fn slot(&self) -> Option<&GrantedSlot> {
        match &self.stage {
            Stage::Starting { slot, .. } | Stage::Working { slot, .. } => Some(slot),
            _ => None,
        }
    }

    fn must_be_current(&self, attempt: u32) -> Result<(), ParentRefusal> {
        let current = self.attempt;
        let is_there = matches!(self.stage, Stage::Starting { .. } | Stage::Working { .. });
        match attempt == current && is_there {
            true => Ok(()),
            false => Err(ParentRefusal::NotCurrent { attempt, current }),
        }
    }

    /// Whether the job may have the task. One of each kind sets it up, and one cleans up after it.
    fn has(&self, task: TaskKey) -> bool {
        let most = match task.kind {
            TaskKind::Map => self.settings.maps,
            TaskKind::Reduce => self.settings.reduces,
        };
        task.number < most.saturating_add(2)
    }

    fn must_restore(&self) -> Result<(), ParentRefusal> {
        match self.settings.max_restarts > 0 {
            true => Ok(()),
            false => Err(ParentRefusal::NotRestoring),
        }
    }

    /// Requests a slot.
    fn request(&mut self, effects: &mut Vec<ParentEffect>) {
        self.last_request += 1;
        let id = self.last_request;
        self.stage = Stage::Waiting { request: RequestId(id), since: self.last };
        effects.push(ParentEffect::Request(ResourceRequest {
            id,
            hosts: Vec::new(),
            specs: Some(ComputeSpecs { num_cpus: 1, ..ComputeSpecs::default() }),
            kind: ResourceType::JobTracker,
            exclude_hosts: self.excluded.iter().cloned().collect(),
        }));
    }

    fn granted(&mut self, slot: GrantedSlot, effects: &mut Vec<ParentEffect>) {
        let is_wanted =
            matches!(&self.stage, Stage::Waiting { request, .. } if *request == slot.id);
        if is_wanted && self.is_dead(&slot.node) {
            // The cluster manager has not noticed yet: another node, or this one when it may be back.
            effects.push(ParentEffect::Release(slot.id));
            self.stage = Stage::Pausing { since: self.last };
        } else if is_wanted {
            let attempt = self.attempt;
            effects.push(ParentEffect::Start { attempt, slot: slot.clone() });
            self.stage = Stage::Starting { slot, since: self.last };
        }
    }

    fn reported(
        &mut self,
        remote: Remote,
        effects: &mut Vec<ParentEffect>,
    ) -> Result<(), ParentRefusal> {
        self.must_be_current(remote.attempt)?;
        if let Stage::Starting { slot, .. } = &self.stage {
            let slot = slot.clone();
            (self.not_started, self.unanswered) = (0, 0);
            self.last_session = remote.session.clone();
            self.addresses.push((remote.host.clone(), remote.port));
            effects.push(ParentEffect::Watch(remote.clone()));
            self.stage = Stage::Working { slot, remote };
        }
        Ok(())
    }

    /// The slot is taken back, or its node is lost.
    fn lose_slot(&mut self, effects: &mut Vec<ParentEffect>) {
        match self.stage {
            Stage::Working { .. } => self.lose_remote(effects),
            _ => self.start_failed(effects),
        }
    }

    fn is_dead(&self, node: &str) -> bool {
        self.dead.get(node).is_some_and(|at| self.last.since(*at) < DEAD_MS)
    }

    /// A node did not take the order to start a remote, or is lost: no remote has failed.
    fn start_unanswered(&mut self, effects: &mut Vec<ParentEffect>) {
        if let Some(slot) = self.slot() {
            let (node, at) = (slot.node.clone(), self.last);
            self.dead.insert(node, at);
        }
        self.unanswered += 1;
        self.leave_host(effects);
        if self.unanswered >= MAX_UNANSWERED {
            let reason = EndReason::NotStarted(self.unanswered);
            return self.end_as(JobState::Failed, Some(reason), effects);
        }
        self.request(effects);
    }

    /// A remote did not start: the next one is tried elsewhere.
    fn start_failed(&mut self, effects: &mut Vec<ParentEffect>) {
        self.not_started += 1;
        self.leave_host(effects);
        if self.not_started >= self.settings.start_attempts {
            let reason = EndReason::NotStarted(self.not_started);
            return self.end_as(JobState::Failed, Some(reason), effects);
        }
        self.request(effects);
    }

    /// A remote is lost: the next one continues from its state, if that is allowed.
    fn lose_remote(&mut self, effects: &mut Vec<ParentEffect>) {
        self.end_remote_session(effects);
        self.lost += 1;
        self.excluded.clear();
        self.leave_host(effects);
        let (lost, allowed) = (self.lost, self.settings.max_restarts);
        if self.is_killed {
            self.end_as(JobState::Killed, None, effects);
        } else if lost > allowed {
            let reason = EndReason::RestartLimit { lost, allowed };
            self.end_as(JobState::Failed, Some(reason), effects);
        } else if self.saved.is_cut() {
            let reason = EndReason::StateTooLarge(self.settings.max_state_bytes);
            self.end_as(JobState::Failed, Some(reason), effects);
        } else {
            self.request(effects);
        }
    }

    fn end_remote_session(&self, effects: &mut Vec<ParentEffect>) {
        if let Some(remote) = self.remote() {
            effects.push(ParentEffect::EndRemoteSession(remote.session.clone()));
        }
    }

    /// Gives the slot back. The next remote has another number, and another host if there is one.
    fn leave_host(&mut self, effects: &mut Vec<ParentEffect>) {
        if let Some(slot) = self.slot() {
            let (id, host) = (slot.id, slot.host.clone());
            effects.push(ParentEffect::Release(id));
            if self.settings.exclude_failed {
                self.excluded.insert(host);
            }
        }
        self.attempt += 1;
    }

    fn end_as(
        &mut self,
        state: JobState,
        reason: Option<EndReason>,
        effects: &mut Vec<ParentEffect>,
    ) {
        self.stage = Stage::Over(state);
        self.saved = SavedState::default();
        self.committing.clear();
        effects.push(ParentEffect::End { state, reason });
    }

    /// It is not known which requests and orders went out, and which grants were missed.
    fn resume(&mut self, effects: &mut Vec<ParentEffect>) {
        match &self.stage {
            Stage::Waiting { request, .. } => {
                effects.push(ParentEffect::Release(*request));
                self.request(effects);
            }
            Stage::Starting { slot, .. } => {
                // The host has not failed.
                effects.push(ParentEffect::Release(slot.id));
                self.attempt += 1;
                self.request(effects);
            }
            Stage::Working { remote, .. } => {
                effects.push(ParentEffect::Watch(remote.clone()));
                if self.is_killed {
                    effects.push(ParentEffect::Kill(remote.clone()));
                }
            }
            Stage::Pausing { .. } => self.request(effects),
            Stage::New | Stage::Over(_) => {}
        }
    }

    fn tick(&mut self, effects: &mut Vec<ParentEffect>) {
        if self.next_deadline().is_none_or(|due| self.last < due) {
            return;
        }
        match &self.stage {
            // No other host has a slot: the one that failed is better than none.
            Stage::Waiting { request, .. } => {
                let request = *request;
                self.excluded.clear();
                self.request(effects);
                effects.push(ParentEffect::Release(request));
            }
            Stage::Starting { .. } => self.start_failed(effects),
            Stage::Pausing { .. } => self.request(effects),
            _ => {}
        }
    }
}
