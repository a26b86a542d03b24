//! The effects of reports, lost nodes, failed calls and silence on attempts.
//! Spec: mapreduce/05 §5.5, mapreduce/09 §A, §K.

use std::collections::BTreeSet;
use std::sync::Arc;

use corona_mapreduce::{
    AttemptKey, EventStatus, NodeFault, RecordRange, TaskKey, TaskKind, TaskRole, TaskState,
    TaskStatus,
};
use corona_model::text::cut;
use corona_model::types::Millis;

use super::nodes::{Http, NodeIdx};
use super::tasks::{SlotUse, Stage};
use super::{JobEffect, JobEngine, JobRefusal, JobStage, Order, Turn};

/// Reports of a fetch failure that fail a map if enough of the running reduces made them.
/// Spec: mapreduce/09 §A.
pub(super) const FETCH_FAILURES: u32 = 3;

/// Attempts of a task that may fail for a fault of their node without counting against it. A fault that follows
/// the task to so many nodes is the task's own.
pub const MAX_NODE_FAULTS: usize = 16;

/// The ends of the texts of attempts that were not heard of in time: not launched, or silent.
pub const TIMEOUT_TEXTS: [&str; 2] = ["Error launching task", "Timeout running task"];

/// Why an attempt ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It failed, which counts against its task.
    Failed,
    /// It was killed, which does not.
    Killed,
}

impl JobEngine {
    /// A task tracker reports.
    pub(super) fn heard(
        &mut self,
        node: NodeIdx,
        host: Arc<str>,
        port: i32,
        reports: &[TaskStatus],
        turn: &mut Turn,
    ) {
        let is_new =
            self.nodes[node].http.as_ref().is_none_or(|it| it.host != host || it.port != port);
        if is_new {
            let url = format!("http://{host}:{port}").into();
            self.nodes[node].http = Some(Http { host, port, url });
        }
        for report in reports {
            let key = report.attempt;
            // Only the tracker to which an attempt was sent knows how it is.
            if !self.is_active() || !self.has(key) || self.attempt(key).node != node {
                continue;
            }
            self.report(key, report, turn);
            if self.is_active() {
                self.close_if_useless(key, report.state, turn);
            }
        }
    }

    pub(super) fn report(&mut self, key: AttemptKey, report: &TaskStatus, turn: &mut Turn) {
        let attempt = self.attempt(key);
        if attempt.state.is_final() {
            if attempt.state != TaskState::Succeeded {
                self.add_diagnostics(key, &report.diagnostics);
            }
            return;
        }
        if attempt.state.is_unclean() && !attempt.cleaning {
            return;
        }
        self.take_over(key, report, turn);
        // A map that it could not fetch may have failed the whole job, and the attempt with it.
        if self.attempt(key).state.is_final() || !self.is_active() {
            return;
        }
        if self.attempt(key).cleaning {
            return self.report_of_cleanup(key, report.state, turn);
        }
        match report.state {
            TaskState::Unassigned => {}
            TaskState::Running => {
                let attempt = self.attempt_mut(key);
                // A late report does not take back that it wants to commit.
                if attempt.state != TaskState::CommitPending {
                    attempt.state = TaskState::Running;
                }
                self.expect_report(key, self.spec.settings.task_timeout_ms);
            }
            TaskState::CommitPending => self.wants_to_commit(key, turn),
            TaskState::Succeeded => self.reports_success(key, report, turn),
            TaskState::Failed => self.reports_end(key, Fate::Failed, false, report, turn),
            TaskState::FailedUnclean => self.reports_end(key, Fate::Failed, true, report, turn),
            TaskState::Killed => self.reports_end(key, Fate::Killed, false, report, turn),
            TaskState::KilledUnclean => self.reports_end(key, Fate::Killed, true, report, turn),
        }
    }

    /// Takes over what the report says beside the state. Spec: mapreduce/02 §2.3.
    fn take_over(&mut self, key: AttemptKey, report: &TaskStatus, turn: &mut Turn) {
        let most = self.spec.settings.max_text_bytes;
        let packed = report
            .counters
            .as_ref()
            .map(|counters| self.counter_names.pack(counters, &self.spec.settings.counters));
        let attempt = self.attempt_mut(key);
        attempt.heard = attempt.heard || report.state != TaskState::Unassigned;
        attempt.phase = report.phase;
        if report.progress.is_finite() {
            attempt.progress = report.progress.clamp(0.0, 1.0);
        }
        if report.start_time_ms > 0 {
            attempt.start_ms = report.start_time_ms;
        }
        if report.finish_time_ms > 0 && attempt.start_ms > 0 {
            attempt.finish_ms = report.finish_time_ms;
        }
        if attempt.state_string.as_ref() != report.state_string {
            attempt.state_string = cut(&report.state_string, most).into();
        }
        if let Some(reduce) = &report.reduce {
            attempt.shuffle_ms = reduce.shuffle_finish_time_ms.max(attempt.shuffle_ms);
            attempt.sort_ms = reduce.sort_finish_time_ms.max(attempt.sort_ms);
        }
        if let Some((counters, left_out)) = packed {
            attempt.counters = counters;
            if left_out > 0 {
                turn.effects.push(JobEffect::CountersLeftOut { attempt: key, count: left_out });
            }
        }
        self.add_diagnostics(key, &report.diagnostics);
        self.update_rate(key.task);
        if key.task.kind == TaskKind::Reduce && self.role(key.task).is_work() {
            let failed = report.reduce.iter().flat_map(|reduce| &reduce.failed_fetches);
            for map in failed {
                self.fetch_failed(*map, turn);
            }
        }
    }

    pub(super) fn add_diagnostics(&mut self, key: AttemptKey, text: &str) {
        if text.is_empty() {
            return;
        }
        let most = self.spec.settings.max_text_bytes;
        let attempt = self.attempt_mut(key);
        let mut all = String::from(std::mem::take(&mut attempt.diagnostics));
        if !all.is_empty() {
            all.push(',');
        }
        let room = most.saturating_sub(all.len());
        all.push_str(cut(text, room));
        attempt.diagnostics = all.into();
    }

    fn report_of_cleanup(&mut self, key: AttemptKey, state: TaskState, turn: &mut Turn) {
        let failed = self.attempt(key).state == TaskState::FailedUnclean;
        if state.is_final() {
            let fate = if failed { Fate::Failed } else { Fate::Killed };
            self.end_attempt(key, fate, "", true, turn);
        } else {
            self.expect_report(key, self.spec.settings.task_timeout_ms);
        }
    }

    /// The first attempt of a task may commit; it gets the permission again at each report that shows that
    /// it still waits, since an order may be lost. Spec: mapreduce/09 §A. An attempt that read only a tested
    /// range has passed the test, and is killed instead: its output is of no use.
    fn wants_to_commit(&mut self, key: AttemptKey, turn: &mut Turn) {
        if self.attempt(key).state == TaskState::Unassigned {
            self.expect_report(key, self.spec.settings.task_timeout_ms);
        }
        self.attempt_mut(key).state = TaskState::CommitPending;
        let task = self.task_mut(key.task);
        let may = task.is_open() && task.attempts[key.number as usize].kill.is_none();
        if may && task.is_tested() {
            return self.passes_test(key);
        }
        if may && task.committing.is_none() {
            task.committing = Some(key.number);
        }
        if may && task.committing == Some(key.number) {
            let at = self.nodes[self.attempt(key).node].tracker();
            turn.effects.push(JobEffect::Commit { attempt: key, at });
        }
    }

    fn reports_success(&mut self, key: AttemptKey, report: &TaskStatus, turn: &mut Turn) {
        let task = self.task_mut(key.task);
        let attempt = &task.attempts[key.number as usize];
        let other_commits = task.committing.is_some_and(|number| number != key.number);
        let fate = if let Some(fail) = attempt.kill {
            Some(if fail { Fate::Failed } else { Fate::Killed })
        } else if !task.is_open() || other_commits {
            Some(Fate::Killed)
        } else if task.is_tested() {
            // It read only the tested range.
            self.passes_test(key);
            Some(Fate::Failed)
        } else {
            None
        };
        match fate {
            Some(fate) => self.reports_end(key, fate, false, report, turn),
            None => self.succeeded(key, turn),
        }
    }

    /// An attempt has failed or was killed, and may have left output that must be cleaned up.
    fn reports_end(
        &mut self,
        key: AttemptKey,
        fate: Fate,
        unclean: bool,
        report: &TaskStatus,
        turn: &mut Turn,
    ) {
        let (reported, kill) = (fate, self.attempt(key).kill);
        let is_nodes_fault = reported == Fate::Failed && kill.is_none() && self.is_nodes_fault(key);
        let fate = match kill {
            Some(true) => Fate::Failed,
            // As if its node had been lost: the task is not to blame.
            None if is_nodes_fault => Fate::Killed,
            _ => fate,
        };
        // One that fails because it was killed has not failed on a record.
        if fate == Fate::Failed && kill != Some(true) {
            self.note_bad_records(key, report.next_records);
        }
        if is_nodes_fault {
            self.avoid_host_of(key);
            self.avoid_for_owner(key);
        }
        if unclean || is_nodes_fault {
            let node = self.attempt(key).node;
            match reported {
                Fate::Failed => self.nodes[node].failed += 1,
                Fate::Killed => self.nodes[node].killed += 1,
            }
        }
        let cleanable = self.role(key.task).is_work() && self.spec.settings.task_cleanup_needed;
        if !(unclean && self.is_working() && cleanable) {
            return self.end_attempt(key, fate, "", true, turn);
        }
        self.is_no_longer_live(key);
        self.attempt_mut(key).state = match fate {
            Fate::Failed => TaskState::FailedUnclean,
            Fate::Killed => TaskState::KilledUnclean,
        };
        if fate == Fate::Failed {
            self.avoid_host_of(key);
        }
        self.withdraw_second(key.task, turn);
        self.leave_slot(key, false, turn);
        self.request_if_lacking(key.task, turn);
    }

    /// Whether an attempt that has failed has met a fault of its node, and the task may go on elsewhere without
    /// a mark against it.
    fn is_nodes_fault(&self, key: AttemptKey) -> bool {
        let before = self.task(key.task).attempts.iter().filter(|attempt| {
            let was_spared = matches!(attempt.state, TaskState::Killed | TaskState::KilledUnclean);
            was_spared && NodeFault::of(&attempt.diagnostics).is_some()
        });
        NodeFault::of(&self.attempt(key).diagnostics).is_some() && before.count() < MAX_NODE_FAULTS
    }

    /// The attempt got through the range that is tested, so that the other half is the bad one. It ends as
    /// one that failed because it was killed.
    fn passes_test(&mut self, key: AttemptKey) {
        if let Some(skipping) = self.task_mut(key.task).skipping.as_mut() {
            skipping.test_passed();
        }
        self.note_bad_records(key, RecordRange::default());
        self.attempt_mut(key).kill = Some(true);
    }

    fn note_bad_records(&mut self, key: AttemptKey, range: RecordRange) {
        let most = self.spec.settings.max_skipped[key.task.kind];
        if most > 0 && self.role(key.task).is_work() {
            self.task_mut(key.task).skipping.get_or_insert_default().failed(range, most);
        }
    }

    /// An attempt must be closed that is of no use any more. Spec: mapreduce/09 §A.
    fn close_if_useless(&mut self, key: AttemptKey, reported: TaskState, turn: &mut Turn) {
        if !reported.is_live() {
            return;
        }
        let (task, attempt) = (self.task(key.task), self.attempt(key));
        let ended = attempt.state.is_final() && attempt.state != TaskState::Succeeded;
        let not_chosen = attempt.state == TaskState::CommitPending
            && task.committing.is_some_and(|number| number != key.number);
        let useless = attempt.state.is_live() && (!task.is_open() || not_chosen);
        if ended || attempt.kill.is_some() {
            let at = self.nodes[attempt.node].tracker();
            turn.effects.push(JobEffect::Kill { attempt: key, at });
        } else if useless {
            self.order_kill(key, false, turn);
        }
    }

    /// Has a live attempt killed. Its slot is released when it has ended.
    pub(super) fn order_kill(&mut self, key: AttemptKey, fail: bool, turn: &mut Turn) {
        let attempt = self.attempt_mut(key);
        attempt.kill = Some(attempt.kill.unwrap_or(fail));
        let at = self.nodes[self.attempt(key).node].tracker();
        turn.effects.push(JobEffect::Kill { attempt: key, at });
    }

    /// A user ends an attempt. Spec: mapreduce/09 §A.
    pub(super) fn kill_attempt(
        &mut self,
        key: AttemptKey,
        fail: bool,
        turn: &mut Turn,
    ) -> Result<bool, JobRefusal> {
        if !self.has(key) {
            return Err(JobRefusal::UnknownAttempt);
        }
        let attempt = self.attempt(key);
        let will = attempt.state.is_live() && attempt.heard && attempt.kill.is_none();
        if will {
            self.order_kill(key, fail, turn);
        }
        Ok(will)
    }

    /// A reduce could not fetch the output of a map.
    fn fetch_failed(&mut self, map: AttemptKey, turn: &mut Turn) {
        let counts = map.task.kind == TaskKind::Map
            && self.has(map)
            && self.role(map.task).is_work()
            && self.task(map.task).stage == Stage::Complete(map.number)
            && self.stage == JobStage::Running;
        if !counts {
            return;
        }
        let reduces = f64::from(self.counts.reduce.live);
        let most = self.spec.settings.max_fetch_failures;
        let attempt = self.attempt_mut(map);
        attempt.fetch_failures += 1;
        let failures = attempt.fetch_failures;
        let many = f64::from(failures) / reduces >= 0.5;
        if failures >= FETCH_FAILURES && (many || failures > most) {
            self.avoid_host_of(map);
            self.end_attempt(map, Fate::Failed, "Too many fetch-failures", false, turn);
        }
    }

    pub(super) fn avoid_host_of(&mut self, key: AttemptKey) {
        let host = self.nodes[self.attempt(key).node].host;
        self.task_mut(key.task).avoid(host);
    }

    /// Whether reduces may still fetch what maps have left on nodes.
    pub(super) fn needs_map_output(&self) -> bool {
        let reduces = self.counts.reduce;
        reduces.finished + reduces.failed < self.sizes.reduce && self.stage == JobStage::Running
    }

    /// The cluster manager has given up a node. Spec: mapreduce/09 §A.
    pub(super) fn node_lost(&mut self, node: NodeIdx, turn: &mut Turn) {
        self.nodes[node].lost = true;
        let output_is_needed = self.needs_map_output();
        for key in self.keys().collect::<Vec<_>>() {
            for number in 0..self.task(key).attempts.len() as u32 {
                let key = key.attempt(number);
                let attempt = self.attempt(key);
                if attempt.node != node || !self.is_active() {
                    continue;
                }
                let is_output = self.role(key.task) == TaskRole::Map
                    && self.task(key.task).stage == Stage::Complete(number);
                if attempt.runs() {
                    let fate = self.fate_of_lost(key);
                    self.end_attempt(key, fate, "TaskTracker is dead", false, turn);
                } else if is_output && output_is_needed {
                    self.end_attempt(key, Fate::Killed, "Lost task tracker", false, turn);
                }
            }
        }
        self.drop_free_slots_of(node, turn);
    }

    /// The state of an attempt whose node is lost: killed, or its state before its clean-up.
    fn fate_of_lost(&self, key: AttemptKey) -> Fate {
        let attempt = self.attempt(key);
        let failed = attempt.state == TaskState::FailedUnclean || attempt.kill == Some(true);
        if failed { Fate::Failed } else { Fate::Killed }
    }

    fn drop_free_slots_of(&mut self, node: NodeIdx, turn: &mut Turn) {
        let lost: Vec<_> = self
            .free
            .iter()
            .copied()
            .filter(|id| self.slots[id].use_ == SlotUse::Free(node))
            .collect();
        for id in lost {
            let owner = self.slots[&id].owner;
            self.release(id, turn);
            if let Some(owner) = owner {
                self.request_if_lacking(owner, turn);
            }
        }
    }

    /// A call to a task tracker failed. Each of its orders counts. Spec: mapreduce/09 §K.
    pub(super) fn call_failed(&mut self, node: NodeIdx, orders: &[Order], turn: &mut Turn) {
        let failures = &mut self.nodes[node].failed_connections;
        *failures = failures.saturating_add(orders.len() as u32);
        for order in orders {
            let (key, text) = match order {
                Order::Launch(key) => (*key, TIMEOUT_TEXTS[0]),
                Order::Kill(key) => (*key, "TaskTracker is dead"),
                Order::Commit(_) | Order::KillJob => continue,
            };
            if self.is_active() && self.has(key) && self.attempt(key).node == node {
                self.give_up(key, text, matches!(order, Order::Launch(_)), turn);
            }
        }
    }

    /// Books an attempt whose task tracker does not answer or report.
    fn give_up(&mut self, key: AttemptKey, text: &str, counts_as_timeout: bool, turn: &mut Turn) {
        let attempt = self.attempt(key);
        if !attempt.runs() {
            return;
        }
        if counts_as_timeout {
            let node = attempt.node;
            self.nodes[node].timeouts += 1;
        }
        let fate = self.fate_of_lost(key);
        self.end_attempt(key, fate, text, false, turn);
    }

    /// The job tracker was away.
    pub(super) fn resume_attempt(&mut self, key: AttemptKey) {
        if self.is_in_doubt(key) {
            return;
        }
        let due = self.last.plus_ms(self.spec.settings.task_timeout_ms);
        let attempt = self.attempt_mut(key);
        if attempt.due < due {
            attempt.due = due;
        }
    }

    /// Whether an attempt, or its clean-up, may not have been launched: it was never heard of.
    fn is_in_doubt(&self, key: AttemptKey) -> bool {
        let attempt = self.attempt(key);
        if attempt.cleaning { attempt.due == Millis(i64::MAX) } else { !attempt.heard }
    }

    /// The attempts that were not heard of, or whose clean-ups were not. Of those that a former program launched it is
    /// not known whether their orders have left it.
    pub fn attempts_in_doubt(&self) -> BTreeSet<AttemptKey> {
        let running = |key: TaskKey| {
            let all = self.task(key).numbered().filter(|(_, attempt)| attempt.runs());
            all.map(move |(number, _)| key.attempt(number))
        };
        self.keys().flat_map(running).filter(|key| self.is_in_doubt(*key)).collect()
    }

    /// Whether an attempt, or its clean-up, is on the node of this name.
    pub fn is_on(&self, key: AttemptKey, node: &str) -> bool {
        self.has(key) && self.nodes.find(node).is_some_and(|node| self.attempt(key).node == node)
    }

    /// After a restart in place: what a former program launched has its time for a first report again.
    pub(super) fn await_launches(&mut self) {
        for key in self.attempts_in_doubt() {
            self.expect_report(key, self.spec.settings.launch_timeout_ms);
        }
    }

    /// Runs attempts again that no task tracker has reported. Those that were launched all the same are killed.
    pub(super) fn give_up_launches(&mut self, attempts: BTreeSet<AttemptKey>, turn: &mut Turn) {
        for key in attempts {
            if self.has(key) && self.attempt(key).runs() && self.is_in_doubt(key) {
                let at = self.nodes[self.attempt(key).node].tracker();
                turn.effects.push(JobEffect::Kill { attempt: key, at });
                self.give_up(key, "The job tracker was restarted", false, turn);
            }
        }
        turn.recheck = true;
    }

    /// So much time counts as nobody's silence. The times of attempts are looked up when the earlier ones
    /// have come.
    pub(super) fn excuse(&mut self, ms: i64, is_excused: impl Fn(NodeIdx) -> bool) {
        let never = Millis(i64::MAX);
        let later = |due: Millis| if due < never { due.plus_ms(ms) } else { due };
        for key in self.keys().collect::<Vec<_>>() {
            for attempt in &mut self.task_mut(key).attempts {
                if is_excused(attempt.node) {
                    attempt.due = later(attempt.due);
                }
            }
        }
        self.killed_due = later(self.killed_due);
    }

    pub(super) fn tick(&mut self, turn: &mut Turn) {
        while let Some((due, key)) = self.due.first().copied() {
            if due > self.last || !self.is_active() {
                break;
            }
            self.due.pop_first();
            let attempt = self.attempt(key);
            if !attempt.runs() {
                // Its clean-up, which may follow, gets an entry of its own.
                self.attempt_mut(key).due = Millis(i64::MAX);
                continue;
            }
            if attempt.due > self.last {
                if attempt.due < Millis(i64::MAX) {
                    self.due.insert((attempt.due, key));
                }
                continue;
            }
            let text = match attempt.state {
                TaskState::Unassigned => TIMEOUT_TEXTS[0],
                _ => TIMEOUT_TEXTS[1],
            };
            let at = self.nodes[attempt.node].tracker();
            turn.effects.push(JobEffect::Kill { attempt: key, at });
            self.give_up(key, text, true, turn);
        }
        self.end_if_killed_long_ago(turn);
        self.drop_old_exclusions(turn);
        self.look_for_slow_tasks(turn);
    }

    /// The attempt does not run any more: it is not counted, nor does it commit.
    pub(super) fn is_no_longer_live(&mut self, key: AttemptKey) {
        if !self.attempt(key).state.is_live() {
            return;
        }
        if self.role(key.task).is_work() {
            self.counts[key.task.kind].live -= 1;
        }
        let task = self.task_mut(key.task);
        if task.committing == Some(key.number) {
            task.committing = None;
        }
    }

    /// An attempt has succeeded, and its task with it.
    fn succeeded(&mut self, key: AttemptKey, turn: &mut Turn) {
        let now = self.last;
        self.is_no_longer_live(key);
        let attempt = self.attempt_mut(key);
        attempt.state = TaskState::Succeeded;
        attempt.progress = 1.0;
        if attempt.finish_ms == 0 {
            attempt.finish_ms = now.0;
        }
        let node = attempt.node;
        self.nodes[node].succeeded += 1;
        let task = self.task_mut(key.task);
        task.stage = Stage::Complete(key.number);
        task.finished = now;
        task.candidate = false;
        task.wanted_again = false;
        let role = self.role(key.task);
        if role.is_work() {
            self.counts[key.task.kind].finished += 1;
        }
        self.update_rate(key.task);
        self.count_time(key);
        let event = self.add_event(key, EventStatus::Succeeded, Some(node), turn);
        self.attempt_mut(key).event = Some(event);
        self.record_success(key, turn);
        for number in self.live_attempts(key.task) {
            self.order_kill(key.task.attempt(number), false, turn);
        }
        self.withdraw_requests(key.task, turn);
        let borrowed = {
            let slot = self.attempt(key).slot.and_then(|id| self.slots.get(&id));
            slot.is_some_and(|slot| slot.owner != Some(key.task))
        };
        match role {
            TaskRole::Setup => self.begin_work(turn),
            TaskRole::Cleanup => return self.end_after_cleanup(turn),
            TaskRole::Map | TaskRole::Reduce => self.clean_up_if_done(turn),
        }
        if self.is_active() {
            let cleaning_up = matches!(self.stage, JobStage::CleaningUp(_));
            self.leave_slot(key, borrowed || cleaning_up, turn);
            self.request_if_lacking(key.task, turn);
        }
    }

    pub(super) fn live_attempts(&self, key: TaskKey) -> Vec<u32> {
        self.task(key).live().map(|(number, _)| number).collect()
    }

    /// An attempt has failed or was killed for good. `heard` if a report said so.
    pub(super) fn end_attempt(
        &mut self,
        key: AttemptKey,
        fate: Fate,
        text: &str,
        heard: bool,
        turn: &mut Turn,
    ) {
        let was_live = self.attempt(key).state.is_live();
        self.is_no_longer_live(key);
        self.add_diagnostics(key, text);
        let now = self.last;
        let attempt = self.attempt_mut(key);
        let was_cleaned = attempt.cleaning;
        attempt.state = match fate {
            Fate::Failed => TaskState::Failed,
            Fate::Killed => TaskState::Killed,
        };
        if attempt.finish_ms == 0 {
            attempt.finish_ms = now.0;
        }
        let (node, event) = (attempt.node, attempt.event.take());
        let role = self.role(key.task);
        self.reopen(key, event, turn);
        self.count_time(key);
        let max_attempts = self.spec.settings.max_attempts[key.task.kind];
        let max_killed = self.spec.settings.max_killed_attempts;
        let task = self.task_mut(key.task);
        match fate {
            Fate::Failed => task.failed += 1,
            Fate::Killed => task.killed += 1,
        }
        let gives_up = task.is_open() && (task.failed >= max_attempts || task.killed >= max_killed);
        if gives_up {
            task.stage = Stage::Failed;
        }
        if role.is_work() {
            match fate {
                Fate::Failed => self.totals.failed_attempts[key.task.kind] += 1,
                Fate::Killed => self.totals.killed_attempts[key.task.kind] += 1,
            }
        }
        // The host of the attempt itself was noted before its clean-up ran elsewhere.
        if fate == Fate::Failed && !was_cleaned {
            self.avoid_host_of(key);
            self.avoid_for_owner(key);
        }
        let status = match (gives_up, fate) {
            (true, _) => EventStatus::TipFailed,
            (false, Fate::Failed) => EventStatus::Failed,
            (false, Fate::Killed) => EventStatus::Killed,
        };
        self.add_event(key, status, heard.then_some(node), turn);
        self.record_end(key, fate, heard, turn);
        if gives_up {
            self.task_failed(key.task, turn);
        }
        if self.is_active() {
            if was_live {
                self.withdraw_second(key.task, turn);
            }
            self.leave_slot(key, false, turn);
            self.request_if_lacking(key.task, turn);
        }
    }

    /// A success that is lost: its task is open again, its event obsolete.
    fn reopen(&mut self, key: AttemptKey, event: Option<u32>, turn: &mut Turn) {
        if let Some(id) = event {
            self.events[id as usize].status = EventStatus::Obsolete;
            turn.effects.push(JobEffect::EventObsolete { id });
        }
        let task = self.task_mut(key.task);
        if task.stage == Stage::Complete(key.number) {
            task.stage = Stage::Open;
            self.counts[key.task.kind].finished -= 1;
        }
    }

    /// A borrowed slot's host is avoided for the task that owns the slot, so that it does not come back.
    fn avoid_for_owner(&mut self, key: AttemptKey) {
        let attempt = self.attempt(key);
        let host = self.nodes[attempt.node].host;
        let owner = attempt.slot.and_then(|id| self.slots.get(&id)).and_then(|slot| slot.owner);
        if let Some(owner) = owner.filter(|owner| *owner != key.task) {
            self.task_mut(owner).avoid(host);
        }
    }
}
