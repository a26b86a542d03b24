//! Requests and slots: the choice of requests, and the use of each slot.
//! Spec: mapreduce/05 §5.3, mapreduce/09 §A, §B.

use std::sync::Arc;

use corona_mapreduce::{AttemptKey, JobState, Phase, TaskKey, TaskKind, TaskRole, TaskState};
use corona_model::types::{ComputeSpecs, Millis, ResourceRequest};

use super::input::slot_type;
use super::nodes::{HostIdx, NodeIdx};
use super::tasks::{Attempt, Exclusions, Slot, SlotUse};
use super::{GrantedSlot, JobEffect, JobEngine, JobStage, Launch, RequestId, Turn, Work};

impl JobEngine {
    /// Requests a slot for a task. A second one beside an attempt that runs keeps away from its host.
    pub(super) fn request(&mut self, key: TaskKey, turn: &mut Turn) {
        let mut excluded = self.excluded(key);
        if self.covers_all_hosts(key.kind, &excluded) {
            if self.would_be_second(key) {
                return;
            }
            excluded = self.avoid_only_the_last(key);
        }
        let hosts: Vec<HostIdx> = self.task(key).hosts.to_vec();
        let hosts: Vec<HostIdx> =
            hosts.into_iter().filter(|host| !excluded.contains(host)).collect();
        self.file(key.kind, Some(key), &hosts, &excluded, turn);
    }

    /// Whether a slot for the task is for a second attempt beside one that runs.
    fn would_be_second(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        task.live().next().is_some() && task.to_clean().is_none()
    }

    /// The hosts that are of no use for the next attempt at a task.
    fn excluded(&self, key: TaskKey) -> Vec<HostIdx> {
        let task = self.task(key);
        let mut excluded = task.avoided.clone();
        if self.would_be_second(key) {
            excluded.extend(task.live().map(|(_, attempt)| self.nodes[attempt.node].host));
            excluded.sort_unstable();
            excluded.dedup();
        }
        excluded
    }

    /// Requests a slot for the job's set-up or clean-up, where no task has one that could serve.
    pub(super) fn request_for_the_job(&mut self, turn: &mut Turn) {
        let Some(role) = self.due_for_the_job() else { return };
        let unused = |slot: &Slot| !matches!(slot.use_, SlotUse::Runs(_));
        if self.slots.values().any(unused) {
            return;
        }
        let kind = if self.sizes.map == 0 && self.sizes.reduce > 0 {
            TaskKind::Reduce
        } else {
            TaskKind::Map
        };
        let key = self.task_for_the_job(role, kind);
        let mut excluded = self.task(key).avoided.clone();
        if self.covers_all_hosts(kind, &excluded) {
            excluded = self.avoid_only_the_last(key);
        }
        self.file(kind, None, &[], &excluded, turn);
    }

    fn file(
        &mut self,
        kind: TaskKind,
        owner: Option<TaskKey>,
        hosts: &[HostIdx],
        excluded: &[HostIdx],
        turn: &mut Turn,
    ) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let exclusions = if excluded.is_empty() { Exclusions::None } else { Exclusions::Some };
        let slot = Slot { owner, kind, use_: SlotUse::Requested, revoked: false, exclusions };
        self.slots.insert(id, slot);
        if let Some(owner) = owner {
            self.task_mut(owner).slots.push(id);
        }
        if exclusions == Exclusions::Some && self.known_hosts[kind].is_empty() {
            self.await_exclusions(id);
        }
        turn.requests.push(ResourceRequest {
            id: id.0,
            hosts: self.host_names(hosts),
            specs: Some(specs(kind)),
            kind: slot_type(kind),
            exclude_hosts: self.host_names(excluded),
        });
        id
    }

    /// Looks at the exclusions of a request again when it has waited for some time.
    fn await_exclusions(&mut self, id: RequestId) {
        let due = self.last.plus_ms(self.spec.settings.exclusion_wait_ms);
        self.exclusions_due.insert((due, id));
    }

    /// Whether no known host is left. Where it is not known which hosts there are, time decides.
    fn covers_all_hosts(&self, kind: TaskKind, excluded: &[HostIdx]) -> bool {
        let known = &self.known_hosts[kind];
        !known.is_empty() && known.iter().all(|host| excluded.contains(host))
    }

    /// No known host is left: all will do again but the last one to fail the task, so that its attempts do not
    /// all go to one bad node that always has a free slot. Returns what remains excluded.
    fn avoid_only_the_last(&mut self, key: TaskKey) -> Vec<HostIdx> {
        let last = self.task(key).avoided.last().copied();
        let known = &self.known_hosts[key.kind];
        match last.filter(|last| known.iter().any(|host| host != last)) {
            Some(last) => {
                let only = vec![last];
                self.task_mut(key).avoided.clone_from(&only);
                only
            }
            None => {
                self.accept_any_host(key);
                Vec::new()
            }
        }
    }

    fn accept_any_host(&mut self, key: TaskKey) {
        let task = self.task_mut(key);
        task.avoided.clear();
        task.last_resort = true;
    }

    /// Requests a slot for a task that lacks one, or is worth a second attempt.
    pub(super) fn request_if_lacking(&mut self, key: TaskKey, turn: &mut Turn) {
        if !self.is_working() || !self.requested[key.kind] || !self.role(key).is_work() {
            return;
        }
        let lacks = self.task(key).lacks_slot() || self.is_worth_a_second_attempt(key);
        if lacks && !self.has_unused_slot(key) {
            self.request(key, turn);
        }
    }

    /// Whether a slot or a request of the task runs none of its attempts. One that the job's set-up has
    /// borrowed comes back.
    pub(super) fn has_unused_slot(&self, key: TaskKey) -> bool {
        self.task(key).slots.iter().any(|id| match self.slots[id].use_ {
            SlotUse::Runs(attempt) => attempt.task != key,
            _ => true,
        })
    }

    /// Gives a slot back, or withdraws a request.
    pub(super) fn release(&mut self, id: RequestId, turn: &mut Turn) {
        let Some(slot) = self.slots.remove(&id) else { return };
        self.free.remove(&id);
        if let Some(owner) = slot.owner {
            self.task_mut(owner).slots.retain(|other| *other != id);
        }
        turn.releases.push(id);
    }

    /// Withdraws what a task requested and has not used.
    pub(super) fn withdraw_requests(&mut self, key: TaskKey, turn: &mut Turn) {
        for id in self.task(key).slots.clone() {
            if self.slots[&id].use_ == SlotUse::Requested {
                self.release(id, turn);
            }
        }
    }

    /// Withdraws a request for a second attempt beside one that has just ended: it keeps away from a host that
    /// may be the only one.
    pub(super) fn withdraw_second(&mut self, key: TaskKey, turn: &mut Turn) {
        if self.task(key).live().next().is_some() {
            return;
        }
        for id in self.task(key).slots.clone() {
            let slot = &self.slots[&id];
            if slot.use_ == SlotUse::Requested && slot.exclusions == Exclusions::Some {
                self.release(id, turn);
            }
        }
    }

    /// The cluster manager has granted a slot. Grants of requests that are not known, or were granted
    /// before, are dropped.
    pub(super) fn granted(&mut self, granted: &GrantedSlot, turn: &mut Turn) {
        let Some(slot) = self.slots.get(&granted.id) else { return };
        if slot.use_ != SlotUse::Requested {
            return;
        }
        let host = self.hosts.number(&granted.host);
        let node = self.nodes.granted(granted, host);
        if let Some(slot) = self.slots.get_mut(&granted.id) {
            slot.use_ = SlotUse::Free(node);
        }
        self.free.insert(granted.id);
        turn.fresh.push(granted.id);
    }

    /// The cluster manager takes a slot back. A running attempt is killed, and its slot returned when it
    /// has ended. Spec: mapreduce/09 §J.
    pub(super) fn revoked(&mut self, id: RequestId, turn: &mut Turn) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.revoked = true;
        let (owner, running) = (slot.owner, slot.use_);
        match running {
            SlotUse::Runs(attempt) if self.attempt(attempt).state.is_live() => {
                self.order_kill(attempt, false, turn);
            }
            // A clean-up does not last long: it ends before the slot goes back.
            SlotUse::Runs(_) => {}
            SlotUse::Requested | SlotUse::Free(_) => {
                self.release(id, turn);
                if let Some(owner) = owner {
                    self.request_if_lacking(owner, turn);
                }
            }
        }
    }

    /// The list of hosts has changed. Requests whose exclusions cover all of them are filed again.
    pub(super) fn hosts_known(&mut self, kind: TaskKind, hosts: &[Arc<str>], turn: &mut Turn) {
        let mut known: Vec<HostIdx> = hosts.iter().map(|host| self.hosts.number(host)).collect();
        known.sort_unstable();
        known.dedup();
        let old = std::mem::replace(&mut self.known_hosts[kind], known);
        let known = &self.known_hosts[kind];
        if !old.is_empty() && old.iter().all(|host| known.contains(host)) {
            return;
        }
        let waits = |slot: &Slot| {
            let excludes = slot.exclusions == Exclusions::Some;
            slot.kind == kind && excludes && slot.use_ == SlotUse::Requested
        };
        let waiting = self.slots.iter().filter(|(_, slot)| waits(slot));
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.known_hosts[kind].is_empty() {
                self.await_exclusions(id);
                continue;
            }
            let excluded = self.subject(id).map(|key| self.excluded(key)).unwrap_or_default();
            if self.covers_all_hosts(kind, &excluded) {
                self.request_again(id, turn);
            }
        }
    }

    /// Requests that have waited long enough with excluded hosts take any host, where it is not known
    /// which hosts there are. They may have waited because the cluster is busy, so only this request
    /// does without exclusions, and none that is for a second attempt.
    pub(super) fn drop_old_exclusions(&mut self, turn: &mut Turn) {
        while let Some((due, id)) = self.exclusions_due.first().copied() {
            if due > self.last {
                break;
            }
            self.exclusions_due.pop_first();
            let waits = self.slots.get(&id).filter(|slot| slot.use_ == SlotUse::Requested);
            let Some(Slot { owner, kind, .. }) = waits.cloned() else { continue };
            if !self.known_hosts[kind].is_empty() {
                continue;
            }
            // The attempt beside a second one may fail, and the request be needed.
            let is_second = owner.is_some_and(|key| self.would_be_second(key));
            if is_second || self.subject(id).is_some_and(|key| self.waits_for_others(key)) {
                self.await_exclusions(id);
                continue;
            }
            self.release(id, turn);
            let hosts = owner.map(|key| self.task(key).hosts.to_vec()).unwrap_or_default();
            let anywhere = self.file(kind, owner, &hosts, &[], turn);
            if let Some(slot) = self.slots.get_mut(&anywhere) {
                slot.exclusions = Exclusions::Dropped;
            }
        }
    }

    /// Whether a task should go on waiting for another host: the job has seen one that works, and it may only be
    /// busy. It may also have left the cluster unnoticed, so that the patience has an end.
    fn waits_for_others(&self, key: TaskKey) -> bool {
        let task = self.task(key);
        let last_end = task.attempts.iter().map(|attempt| match Millis(attempt.finish_ms) {
            // Where a node's clock is ahead.
            end if end > self.last => attempt.launched,
            end => end.max(attempt.launched),
        });
        let since = last_end.max().unwrap_or(self.submitted);
        let patience_ms = self.spec.settings.exclusion_wait_ms.saturating_mul(PATIENCE_FOR_OTHERS);
        let excluded = self.excluded(key);
        let is_other = |node: &super::nodes::Node| {
            !node.is_faulty(&self.spec.settings) && !excluded.contains(&node.host)
        };
        self.last.since(since) < patience_ms && self.nodes.iter().any(is_other)
    }

    fn request_again(&mut self, id: RequestId, turn: &mut Turn) {
        let owner = self.slots.get(&id).and_then(|slot| slot.owner);
        self.release(id, turn);
        if let Some(owner) = owner {
            self.request_if_lacking(owner, turn);
        }
    }

    /// Files all requests that wait again. Attempts that report had time to fall silent too: their timeouts
    /// restart.
    pub(super) fn resume(&mut self, turn: &mut Turn) {
        let waits = |slot: &Slot| slot.use_ == SlotUse::Requested;
        let waiting = self.slots.iter().filter(|(_, slot)| waits(slot)).map(|(id, _)| *id);
        for id in waiting.collect::<Vec<_>>() {
            self.request_again(id, turn);
        }
        for key in self.keys().collect::<Vec<_>>() {
            let running = self.task(key).numbered().filter(|(_, attempt)| attempt.runs());
            for number in running.map(|(number, _)| number).collect::<Vec<_>>() {
                self.resume_attempt(key.attempt(number));
            }
        }
        turn.recheck = true;
    }

    /// The task whose experience with hosts decides on a slot.
    fn subject(&self, id: RequestId) -> Option<TaskKey> {
        let slot = self.slots.get(&id)?;
        slot.owner.or_else(|| Some(self.task_for_the_job(self.due_for_the_job()?, slot.kind)))
    }

    /// The set-up or clean-up of the job, if it is time for it and it does not run.
    fn due_for_the_job(&self) -> Option<TaskRole> {
        let role = match self.stage {
            JobStage::Prep => TaskRole::Setup,
            JobStage::CleaningUp(_) => TaskRole::Cleanup,
            _ => return None,
        };
        (!self.runs_for_the_job(role)).then_some(role)
    }

    fn runs_for_the_job(&self, role: TaskRole) -> bool {
        TaskKind::ALL
            .into_iter()
            .any(|kind| self.task(self.task_for_the_job(role, kind)).live().next().is_some())
    }

    fn task_for_the_job(&self, role: TaskRole, kind: TaskKind) -> TaskKey {
        match role {
            TaskRole::Setup => self.setup_task(kind),
            _ => self.cleanup_task(kind),
        }
    }

    /// Finds a use for the slots that came, and for those that had none so far if there may be one now.
    pub(super) fn use_free_slots(&mut self, turn: &mut Turn) {
        loop {
            let mut ids = std::mem::take(&mut turn.fresh);
            if std::mem::take(&mut turn.recheck) {
                ids = self.free.iter().copied().collect();
            }
            ids.sort_unstable();
            for id in &ids {
                self.use_slot(*id, turn);
            }
            // On a host where it failed before, rather than not at all.
            if let (Some(role), Some(id)) = (self.due_for_the_job(), self.free.first().copied()) {
                self.launch_for_the_job(role, id, turn);
                turn.recheck = true;
            }
            if turn.fresh.is_empty() && !turn.recheck {
                return;
            }
        }
    }

    fn use_slot(&mut self, id: RequestId, turn: &mut Turn) {
        let Some(Slot { owner, use_: SlotUse::Free(node), exclusions, .. }) =
            self.slots.get(&id).cloned()
        else {
            return;
        };
        if let Some(owner) = owner
            && exclusions != Exclusions::Dropped
            && self.is_bad_place(owner, node)
            && !self.avoid(owner, node)
        {
            self.release(id, turn);
            return self.request_if_lacking(owner, turn);
        }
        if let Some(role) = self.due_for_the_job() {
            let key = self.task_for_the_job(role, self.slots[&id].kind);
            let host = self.nodes[node].host;
            if !self.task(key).avoided.contains(&host) {
                return self.launch_for_the_job(role, id, turn);
            }
        }
        match owner {
            Some(owner) => self.use_for_task(id, owner, node, turn),
            None if self.due_for_the_job().is_none() => self.release(id, turn),
            None => {}
        }
    }

    /// Whether the task should not run on the node. Spec: mapreduce/09 §B.
    fn is_bad_place(&self, key: TaskKey, node: NodeIdx) -> bool {
        let (task, node) = (self.task(key), &self.nodes[node]);
        let faulty = node.is_faulty(&self.spec.settings);
        !task.last_resort && (faulty || task.avoided.contains(&node.host))
    }

    /// Keeps the task away from the node's host; true if no host would be left, so that it will do.
    fn avoid(&mut self, key: TaskKey, node: NodeIdx) -> bool {
        let host = self.nodes[node].host;
        let task = self.task_mut(key);
        if !task.avoided.contains(&host) {
            task.avoided.push(host);
        }
        let nothing_left = self.covers_all_hosts(key.kind, &self.task(key).avoided);
        if nothing_left {
            self.accept_any_host(key);
        }
        nothing_left
    }

    fn use_for_task(&mut self, id: RequestId, key: TaskKey, node: NodeIdx, turn: &mut Turn) {
        let setting_up = self.runs_for_the_job(TaskRole::Setup);
        let (task, host) = (self.task(key), self.nodes[node].host);
        let may_work = match self.stage {
            JobStage::Running => true,
            // Reduces only copy while the set-up runs. Spec: mapreduce/09 §A.
            JobStage::Prep if key.kind == TaskKind::Reduce && setting_up => true,
            JobStage::Prep => return,
            _ => false,
        };
        let elsewhere = task.live().all(|(_, other)| self.nodes[other.node].host != host);
        let second = self.is_worth_a_second_attempt(key) && elsewhere;
        let max_attempts = self.spec.settings.max_attempts[key.kind];
        if !may_work {
            self.release(id, turn);
        } else if let Some(number) = task.to_clean() {
            self.launch_cleanup_of(key.attempt(number), id, node, turn);
            // Both attempts at a task may have left something behind.
            self.request_if_lacking(key, turn);
        } else if (task.lacks_slot() || second) && task.may_start_another(max_attempts) {
            self.launch_task(key, id, node, turn);
        } else {
            // The original keeps a slot whose task has used up its attempts' numbers forever.
            self.release(id, turn);
        }
    }

    fn launch_for_the_job(&mut self, role: TaskRole, id: RequestId, turn: &mut Turn) {
        let Some(Slot { kind, use_: SlotUse::Free(node), .. }) = self.slots.get(&id).cloned()
        else {
            return;
        };
        let key = self.task_for_the_job(role, kind);
        let work = match self.stage {
            JobStage::CleaningUp(state) => Work::Cleanup { state },
            _ => Work::Setup,
        };
        self.launch(key, id, node, work, turn);
        // Reduces may start beside the set-up, and all other slots are of no use beside the clean-up.
        turn.recheck = true;
    }

    fn launch_task(&mut self, key: TaskKey, id: RequestId, node: NodeIdx, turn: &mut Turn) {
        let settings = &self.spec.settings;
        let task = self.task(key);
        let most = settings.max_skipped[key.kind];
        let skipping = most > 0 && task.failed >= settings.attempts_before_skipping;
        let ranges = task.skipping.as_deref().cloned().unwrap_or_default();
        let work =
            Work::Task { skip: ranges.skipped(), skipping, write_skipped: !ranges.is_testing() };
        self.count_launch(key, node);
        let task = self.task_mut(key);
        task.candidate = false;
        task.wanted_again = false;
        self.launch(key, id, node, work, turn);
    }

    /// Counts an attempt at a task of the work.
    pub(super) fn count_launch(&mut self, key: TaskKey, node: NodeIdx) {
        self.counts[key.kind].live += 1;
        self.statistics[key.kind].launched();
        self.totals.launched[key.kind] += 1;
        self.count_locality(key, node);
    }

    fn launch(&mut self, key: TaskKey, id: RequestId, node: NodeIdx, work: Work, turn: &mut Turn) {
        let now = self.last;
        let phase = match key.kind {
            TaskKind::Map => Phase::Map,
            TaskKind::Reduce => Phase::Shuffle,
        };
        let task = self.task_mut(key);
        let is_first = task.attempts.is_empty();
        if is_first {
            task.first_launch = now;
        }
        let attempt = key.attempt(task.attempts.len() as u32);
        // Most tasks have one attempt, and there may be very many tasks.
        task.attempts.reserve_exact(1);
        task.attempts.push(Attempt::new(node, id, now, phase));
        self.nodes[node].launched += 1;
        self.put_to_use(attempt, id, node, work, turn);
        if is_first {
            self.record_task_start(key, turn);
        }
    }

    fn launch_cleanup_of(
        &mut self,
        key: AttemptKey,
        id: RequestId,
        node: NodeIdx,
        turn: &mut Turn,
    ) {
        let ran_on = self.attempt(key).node;
        if ran_on != node {
            self.ran_on.0.insert(key, ran_on);
        }
        let attempt = self.attempt_mut(key);
        attempt.cleaning = true;
        attempt.node = node;
        attempt.slot = Some(id);
        attempt.kill = None;
        let failed = attempt.state == TaskState::FailedUnclean;
        self.nodes[node].launched += 1;
        self.put_to_use(key, id, node, Work::TaskCleanup { failed }, turn);
    }

    fn put_to_use(
        &mut self,
        attempt: AttemptKey,
        id: RequestId,
        node: NodeIdx,
        work: Work,
        turn: &mut Turn,
    ) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.use_ = SlotUse::Runs(attempt);
        }
        self.free.remove(&id);
        self.expect_report(attempt, self.spec.settings.launch_timeout_ms);
        let at = self.nodes[node].tracker();
        turn.effects.push(JobEffect::Launch(Launch { attempt, at, slot: id, work }));
    }

    /// Gives the attempt up after `span_ms` from now; never for 0.
    pub(super) fn expect_report(&mut self, key: AttemptKey, span_ms: i64) {
        let due = if span_ms > 0 { self.last.plus_ms(span_ms) } else { Millis(i64::MAX) };
        let attempt = self.attempt_mut(key);
        // A later time is looked up when the earlier one has come.
        let is_earlier = due < attempt.due;
        attempt.due = due;
        if is_earlier {
            self.due.insert((due, key));
        }
    }

    /// The slot of an attempt that has ended: kept for the job's set-up, clean-up or its owner, else
    /// released. Spec: mapreduce/09 §A.
    pub(super) fn leave_slot(&mut self, key: AttemptKey, reuse: bool, turn: &mut Turn) {
        let Attempt { node, slot, .. } = self.attempt_mut(key);
        let node = *node;
        let Some(id) = slot.take() else { return };
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let (owner, revoked) = (slot.owner, slot.revoked);
        if reuse && !revoked && !self.nodes[node].lost {
            slot.use_ = SlotUse::Free(node);
            self.free.insert(id);
            turn.fresh.push(id);
            return;
        }
        self.release(id, turn);
        if let Some(owner) = owner {
            self.request_if_lacking(owner, turn);
        }
    }

    fn count_locality(&mut self, key: TaskKey, node: NodeIdx) {
        if key.kind == TaskKind::Reduce {
            return;
        }
        match self.locality(key, node) {
            Locality::Host => self.totals.data_local += 1,
            Locality::Rack => self.totals.rack_local += 1,
            Locality::Elsewhere => {}
        }
    }

    /// Where a map on this node is, seen from its split. Spec: mapreduce/09 §F.
    pub(super) fn locality(&self, key: TaskKey, node: NodeIdx) -> Locality {
        let host = self.nodes[node].host;
        let task = self.task(key);
        let rack = |host: HostIdx| {
            let found =
                self.spec.racks.binary_search_by(|(name, _)| name.cmp(self.hosts.name(host)));
            found.ok().map(|at| &self.spec.racks[at].1)
        };
        if task.hosts.contains(&host) {
            Locality::Host
        } else if task.hosts.iter().any(|other| rack(*other) == rack(host)) {
            Locality::Rack
        } else {
            Locality::Elsewhere
        }
    }

    /// Whether the work is done but for what may fail.
    pub(super) fn clean_up_if_done(&mut self, turn: &mut Turn) {
        if self.stage == JobStage::Running && self.is_work_done() {
            self.clean_up(JobState::Succeeded, turn);
        }
    }
}

/// While the job knows of other hosts that work, a request waits this many times longer with its exclusions.
const PATIENCE_FOR_OTHERS: i64 = 10;

/// How near a node is to the hosts of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Locality {
    /// One of the hosts.
    Host,
    /// In the rack of one of them.
    Rack,
    Elsewhere,
}

/// The resources that a slot must offer. Spec: mapreduce/05 §5.3.
fn specs(kind: TaskKind) -> ComputeSpecs {
    let network_mbps = Some(match kind {
        TaskKind::Map => 10,
        TaskKind::Reduce => 50,
    });
    ComputeSpecs { num_cpus: 1, network_mbps, memory_mb: Some(1024), disk_gb: Some(10) }
}
