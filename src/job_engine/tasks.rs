//! Tasks and their attempts, as plain data with the questions that it answers by itself.

use corona_mapreduce::{AttemptKey, PackedCounters, Phase, TaskState};
use corona_model::types::Millis;
use serde::{Deserialize, Serialize};

use super::input::RequestId;
use super::nodes::{HostIdx, NodeIdx};
use super::skipping::Skipping;

/// How far a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// It needs an attempt that succeeds.
    #[default]
    Open,
    /// This attempt has succeeded.
    Complete(u32),
    /// Too many attempts failed.
    Failed,
    /// The job has ended without it.
    Killed,
}

/// A map, a reduce, or a task that sets the job up or cleans up after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) stage: Stage,
    /// The hosts of its split.
    pub(super) hosts: Box<[HostIdx]>,
    pub(super) attempts: Vec<Attempt>,
    /// Slots and requests that belong to it, in the order of the requests.
    pub(super) slots: Vec<RequestId>,
    /// Hosts on which no further attempt is to run.
    pub(super) avoided: Vec<HostIdx>,
    /// There is no host left to avoid: any node will do.
    pub(super) last_resort: bool,
    pub(super) failed: u32,
    pub(super) killed: u32,
    /// The attempt that may commit.
    pub(super) committing: Option<u32>,
    /// Progress per millisecond of its best attempt, as the statistics of speculation have it.
    #[serde(with = "corona_mapreduce::exact")]
    pub(super) rate: f64,
    /// Its running attempt is slow, and another one may be started.
    pub(super) candidate: bool,
    /// A user wants another attempt.
    pub(super) wanted_again: bool,
    pub(super) first_launch: Millis,
    pub(super) finished: Millis,
    pub(super) skipping: Option<Box<Skipping>>,
}

/// One attempt at a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Attempt {
    pub(super) state: TaskState,
    /// Where it runs; where its clean-up runs once that was launched.
    pub(super) node: NodeIdx,
    /// The slot that it holds.
    pub(super) slot: Option<RequestId>,
    /// Its clean-up was launched.
    pub(super) cleaning: bool,
    /// A report has come.
    pub(super) heard: bool,
    /// It is to be killed; `true` if it then counts as failed.
    pub(super) kill: Option<bool>,
    pub(super) launched: Millis,
    /// When it is given up unless a report comes.
    pub(super) due: Millis,
    #[serde(with = "corona_mapreduce::exact")]
    pub(super) progress: f32,
    pub(super) phase: Phase,
    pub(super) start_ms: i64,
    pub(super) finish_ms: i64,
    pub(super) shuffle_ms: i64,
    pub(super) sort_ms: i64,
    pub(super) fetch_failures: u32,
    /// The place of the event of its success.
    pub(super) event: Option<u32>,
    pub(super) state_string: Box<str>,
    pub(super) diagnostics: Box<str>,
    pub(super) counters: PackedCounters,
}

impl Task {
    pub(super) fn new(hosts: Box<[HostIdx]>) -> Task {
        Task { hosts, ..Task::default() }
    }

    /// Avoids a host from now on, unless any will do.
    pub(super) fn avoid(&mut self, host: HostIdx) {
        if !self.avoided.contains(&host) && !self.last_resort {
            self.avoided.push(host);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether its attempts read only the records that are tested, in the search for bad ones.
    pub(super) fn is_tested(&self) -> bool {
        self.skipping.as_ref().is_some_and(|skipping| skipping.is_testing())
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete(_))
    }

    /// Attempts that run the task itself.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, &Attempt)> {
        self.numbered().filter(|(_, attempt)| attempt.state.is_live())
    }

    pub(super) fn numbered(&self) -> impl Iterator<Item = (u32, &Attempt)> {
        (0..).zip(&self.attempts)
    }

    /// The first attempt that waits for a slot to be cleaned up after.
    pub(super) fn to_clean(&self) -> Option<u32> {
        let unclean = self.numbered().find(|(_, it)| it.state.is_unclean() && !it.cleaning);
        unclean.map(|(number, _)| number)
    }

    /// Whether the clean-up of an attempt runs.
    pub(super) fn is_being_cleaned(&self) -> bool {
        self.attempts.iter().any(|it| it.state.is_unclean() && it.cleaning)
    }

    /// Whether the task lacks a slot unless it has an unused one: to be cleaned up after, or because
    /// nothing of it runs.
    pub(super) fn lacks_slot(&self) -> bool {
        let idle = || self.live().next().is_none() && !self.is_being_cleaned();
        self.to_clean().is_some() || (self.is_open() && idle())
    }

    /// Whether its attempts' numbers allow another attempt. Spec: mapreduce/09 §C.
    pub(super) fn may_start_another(&self, max_attempts: u32) -> bool {
        (self.attempts.len() as u32) < 1 + max_attempts + self.killed
    }

    /// From 0 to 1: of its success, or of the attempt that is ahead.
    pub(super) fn progress(&self) -> f32 {
        match self.stage {
            Stage::Complete(_) => 1.0,
            Stage::Open => self.live().map(|(_, it)| it.progress).fold(0.0, f32::max),
            Stage::Failed | Stage::Killed => 0.0,
        }
    }
}

impl Attempt {
    /// Whether it or its clean-up runs.
    pub(super) fn runs(&self) -> bool {
        self.state.is_live() || (self.state.is_unclean() && self.cleaning)
    }

    pub(super) fn new(node: NodeIdx, slot: RequestId, launched: Millis, phase: Phase) -> Attempt {
        Attempt {
            state: TaskState::Unassigned,
            node,
            slot: Some(slot),
            cleaning: false,
            heard: false,
            kill: None,
            launched,
            due: Millis(i64::MAX),
            progress: 0.0,
            phase,
            start_ms: 0,
            finish_ms: 0,
            shuffle_ms: 0,
            sort_ms: 0,
            fetch_failures: 0,
            event: None,
            state_string: "".into(),
            diagnostics: "".into(),
            counters: PackedCounters::default(),
        }
    }
}

/// A request, or the slot that answers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Slot {
    /// The task for which it was requested; absent for a request on behalf of the job.
    pub(super) owner: Option<corona_mapreduce::TaskKey>,
    pub(super) kind: corona_mapreduce::TaskKind,
    pub(super) use_: SlotUse,
    /// The cluster manager wants it back.
    pub(super) revoked: bool,
    pub(super) exclusions: Exclusions,
}

/// Whether a request excludes hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Exclusions {
    None,
    Some,
    /// It has waited too long with exclusions, so any host will do for this one.
    Dropped,
}

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SlotUse {
    /// It was requested.
    Requested,
    /// It was granted on this node and runs nothing.
    Free(NodeIdx),
    /// It runs this attempt, or its clean-up.
    Runs(AttemptKey),
}
