//! How another job tracker continues a job: what the one before left is replayed in the order of
//! time, what ran then is killed, and slots are requested for what is missing. Spec: mapreduce/09 §I.

use corona_mapreduce::{AttemptKey, Phase, TaskKey, TaskKind, TaskState, TaskStatus};
use corona_model::types::Millis;

use super::input::{GrantedSlot, RequestId, SavedEvent};
use super::nodes::{Http, NodeIdx};
use super::reports::Fate;
use super::tasks::{Attempt, Stage};
use super::{JobEffect, JobEngine, Turn};

/// The slots of restored attempts were those of another session.
const NO_SLOT: RequestId = RequestId(-1);

impl JobEngine {
    /// Begins a job with what an earlier job tracker left of it. An event from the future counts as one
    /// of this moment. Events that do not fit are left out: more is run again then.
    pub(super) fn restore(
        &mut self,
        fail_overs: u32,
        events: &[(Millis, SavedEvent)],
        turn: &mut Turn,
    ) {
        let now = self.last;
        let begun = events.iter().map(|(at, _)| *at).min().unwrap_or(now);
        self.last = begun.min(now);
        self.totals.fail_overs = fail_overs;
        self.make_tasks(turn);
        let mut replayed = Turn::default();
        for (at, event) in events {
            if !self.is_active() {
                break;
            }
            self.last = self.last.max((*at).min(now));
            self.replay(event, &mut replayed);
        }
        self.last = now;
        // The earlier job tracker has given its orders, and attempts that ran are ended below.
        let ordered = |effect: &JobEffect| {
            matches!(effect, JobEffect::Commit { .. } | JobEffect::Kill { .. })
        };
        turn.effects.extend(replayed.effects.into_iter().filter(|effect| !ordered(effect)));
        self.count_saved();
        if !self.is_active() {
            return;
        }
        self.end_restored_attempts(turn);
        if !self.is_working() {
            return;
        }
        self.requested.map = true;
        for number in 0..self.sizes.map {
            self.request_if_lacking(TaskKey { kind: TaskKind::Map, number }, turn);
        }
        turn.recheck = true;
    }

    fn replay(&mut self, event: &SavedEvent, turn: &mut Turn) {
        match event {
            SavedEvent::Launched { attempt, node, host, address } => {
                let (node, host, address) = (node.clone(), host.clone(), address.clone());
                let slot = GrantedSlot { id: NO_SLOT, node, host, address };
                let host = self.hosts.number(&slot.host);
                let node = self.nodes.granted(&slot, host);
                self.replay_launch(*attempt, node, turn);
            }
            SavedEvent::Tracker { node, host, http_port } => {
                if let Some(node) = self.nodes.find(node) {
                    let url = format!("http://{host}:{http_port}").into();
                    let http = Http { host: host.clone(), port: *http_port, url };
                    self.nodes[node].http = Some(http);
                }
            }
            SavedEvent::Reported { node, report } => {
                if let Some(node) = self.nodes.find(node) {
                    self.replay_report(node, report, turn);
                }
            }
            SavedEvent::TimedOut { node } => {
                if let Some(node) = self.nodes.find(node) {
                    self.nodes[node].timeouts = self.nodes[node].timeouts.saturating_add(1);
                }
            }
        }
    }

    /// An attempt that has its number already is one whose clean-up was launched.
    fn replay_launch(&mut self, key: AttemptKey, node: NodeIdx, turn: &mut Turn) {
        if self.tasks[key.task.kind].get(key.task.number as usize).is_none() {
            return;
        }
        if self.has(key) {
            let attempt = self.attempt_mut(key);
            if attempt.state.is_unclean() && !attempt.cleaning {
                attempt.cleaning = true;
                attempt.node = node;
            }
            return;
        }
        let task = self.task(key.task);
        if key.number as usize != task.attempts.len() {
            return;
        }
        let now = self.last;
        let is_first = task.attempts.is_empty();
        let phase = match key.task.kind {
            TaskKind::Map => Phase::Map,
            TaskKind::Reduce => Phase::Shuffle,
        };
        let attempt = Attempt { slot: None, ..Attempt::new(node, NO_SLOT, now, phase) };
        let task = self.task_mut(key.task);
        task.attempts.reserve_exact(1);
        task.attempts.push(attempt);
        self.nodes[node].launched += 1;
        if self.role(key.task).is_work() {
            self.count_launch(key.task, node);
        }
        if is_first {
            self.task_mut(key.task).first_launch = now;
            self.record_task_start(key.task, turn);
        }
    }

    fn replay_report(&mut self, node: NodeIdx, report: &TaskStatus, turn: &mut Turn) {
        let key = report.attempt;
        if !self.has(key) || self.attempt(key).node != node {
            return;
        }
        let was_lost = self.task(key.task).stage == Stage::Complete(key.number);
        match report.state {
            // Its output was lost later.
            TaskState::Failed if was_lost => {
                self.avoid_host_of(key);
                self.end_attempt(key, Fate::Failed, &report.diagnostics, false, turn);
            }
            TaskState::Killed if was_lost => {
                self.end_attempt(key, Fate::Killed, &report.diagnostics, false, turn);
            }
            _ => self.report(key, report, turn),
        }
    }

    /// What ran has no slot any more. Clean-ups run again.
    fn end_restored_attempts(&mut self, turn: &mut Turn) {
        for key in self.keys().collect::<Vec<_>>() {
            for number in 0..self.task(key).attempts.len() as u32 {
                let key = key.attempt(number);
                let attempt = self.attempt(key);
                let is_cleaned = attempt.state.is_unclean() && attempt.cleaning;
                let is_live = attempt.state.is_live();
                if !self.is_active() || !(is_cleaned || is_live) {
                    continue;
                }
                let at = self.nodes[attempt.node].tracker();
                turn.effects.push(JobEffect::Kill { attempt: key, at });
                if is_live {
                    self.end_attempt(key, Fate::Killed, "Non-existing grant", false, turn);
                } else {
                    self.attempt_mut(key).cleaning = false;
                }
            }
        }
    }

    /// The tasks that need not run again.
    fn count_saved(&mut self) {
        for kind in TaskKind::ALL {
            let size = self.sizes[kind] as usize;
            let tasks = self.tasks[kind].iter().take(size);
            let done = tasks.filter_map(|task| match task.stage {
                Stage::Complete(number) => task.attempts.get(number as usize),
                _ => None,
            });
            let (mut saved, mut millis) = (0, 0_i64);
            for attempt in done {
                saved += 1;
                millis = millis.saturating_add((attempt.finish_ms - attempt.start_ms).max(0));
            }
            self.totals.saved[kind] = saved;
            self.totals.saved_millis[kind] = millis;
        }
    }
}
