//! This program's cluster manager, which decides beside the primary, in the time of the run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::connections::{OurAnswer, OurMessage};
use super::event::Configuration;
use corona_cluster_manager::{Called, Decision, DryRun, Found, Lookup, StartError};
use corona_engine::{Engine, Input, Observed, WaitReason};
use corona_model::types::{Millis, PoolName, ResourceType};
use corona_wire::Exception;
use corona_wire::calls::{ClusterManager, ClusterManagerCall as Call};
use corona_wire::server::Answer;
use corona_wire::value::RawMessage;

/// The cluster manager and its clock.
#[derive(Debug)]
pub(super) struct Oracle {
    manager: DryRun,
    /// The time at which the run began.
    epoch: Millis,
    /// When the manager is next due.
    wakes_at: Option<Duration>,
}

impl Oracle {
    /// Starts it at `now`. The run began at `epoch`.
    pub(super) fn start(
        configuration: &Configuration,
        epoch: Millis,
        now: Duration,
    ) -> Result<Oracle, StartError> {
        let Configuration { settings, hosts } = configuration.clone();
        let manager = DryRun::start(settings, hosts, at(epoch, now))?;
        Ok(Oracle { manager, epoch, wakes_at: Some(now) })
    }

    /// The engine, to look at.
    pub(super) fn engine(&self) -> &Engine {
        self.manager.engine()
    }

    /// The pool in which a session is scheduled.
    pub(super) fn pool_of(&self, handle: &str, now: Duration) -> Option<PoolName> {
        let session = self.engine().session_at(handle, at(self.epoch, now))?;
        Some(session.scheduling_pool)
    }

    /// How many requests of a session lost their slots and have not been released.
    pub(super) fn lost(&self, handle: &str, kind: ResourceType, now: Duration) -> u64 {
        let session = self.engine().session_at(handle, at(self.epoch, now));
        session.map_or(0, |session| {
            let counts = session.counts[kind].now;
            u64::try_from(counts.requested - counts.pending - counts.granted).unwrap_or(0)
        })
    }

    /// Whether slots of a type will be taken from others for a session that waits.
    pub(super) fn will_preempt(&self, handle: &str, kind: ResourceType, now: Duration) -> bool {
        let waiting = self.engine().explain(handle, at(self.epoch, now)).unwrap_or_default();
        waiting.iter().filter(|waiting| waiting.kind == kind).any(|waiting| match &waiting.reason {
            WaitReason::NoFreeSlot { competition, .. } => {
                competition.preemption.is_some_and(|preemption| preemption.possible)
            }
            WaitReason::TooLittle { preemption, .. } => {
                preemption.is_some_and(|preemption| preemption.possible)
            }
            _ => false,
        })
    }

    /// When something is due without a call.
    pub(super) fn wakes_at(&self) -> Option<Duration> {
        self.wakes_at
    }

    /// Its answer to a call, or the look-up that is needed first.
    pub(super) fn call(
        &mut self,
        now: Duration,
        client: SocketAddr,
        message: &RawMessage,
        call: Call,
        found: Option<Found>,
    ) -> Result<OurAnswer, Lookup> {
        let answer = match self.manager.call(at(self.epoch, now), client, call, found) {
            Called::Wants(lookup) => return Err(lookup),
            Called::NotMade => return Ok(OurAnswer::NotCompared(ACTS_OUTSIDE)),
            Called::Answered(answer) => answer,
        };
        let is_reply = matches!(answer, Answer::Reply(_));
        let is_safe_mode = matches!(answer, Answer::Exception(Exception::SafeMode(_)));
        let (name, seqid) = (&message.name, message.seqid);
        Ok(match RawMessage::of_answer::<ClusterManager>(name, &answer, seqid) {
            Some(message) => {
                OurAnswer::Message(Box::new(OurMessage { message, is_reply, is_safe_mode }))
            }
            None => OurAnswer::Close,
        })
    }

    /// Makes the decisions that are due.
    pub(super) fn settle(&mut self, now: Duration) {
        let due = self.manager.settle(at(self.epoch, now));
        self.wakes_at = due.map(|due| {
            let ms = due.since(self.epoch).max(0).unsigned_abs();
            // Its clock ticks in milliseconds.
            Duration::from_millis(ms).max(now + Duration::from_millis(1))
        });
    }

    /// Decisions since the last call.
    pub(super) fn decisions(&mut self) -> Vec<Decision> {
        self.manager.decisions()
    }

    /// Enters a decision of the primary. Returns whether that could be done.
    pub(super) fn observe(&mut self, now: Duration, observed: Observed) -> bool {
        // A pass may be wanted afterwards, and a deadline may come sooner.
        self.wakes_at = Some(now);
        self.manager.observe(at(self.epoch, now), observed)
    }

    /// Numbers sessions as the primary does, whose ids begin like this.
    pub(super) fn take_identity(&mut self, now: Duration, id_prefix: Arc<str>, numbered: i64) {
        self.observe(now, Observed::Identity { id_prefix, sessions_numbered: numbered });
    }

    pub(super) fn set_safe_mode(&mut self, now: Duration, on: bool) {
        self.manager.set_safe_mode(at(self.epoch, now), on);
        self.wakes_at = Some(now);
    }

    /// Applies an input that no call of the run has made.
    #[cfg(test)]
    pub(super) fn apply(&mut self, now: Duration, input: Input) {
        self.manager.apply(at(self.epoch, now), input).unwrap();
    }

    /// The scheduling files have changed.
    pub(super) fn change_settings(
        &mut self,
        now: Duration,
        settings: Box<corona_model::settings::Settings>,
    ) {
        // Settings that were checked when they were read are not refused.
        let _ = self.manager.apply(at(self.epoch, now), Input::SettingsChanged { settings });
        self.wakes_at = Some(now);
    }
}

const ACTS_OUTSIDE: &str = "calls that act outside of the cluster manager";

/// The time of the run as the engine counts it.
fn at(epoch: Millis, now: Duration) -> Millis {
    Millis(epoch.0.saturating_add(i64::try_from(now.as_millis()).unwrap_or(i64::MAX)))
}
