//! The plainest books of one job: what it was given, what it ordered, and what happened on the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corona_job_engine::{
    JobEffect, JobEngine, JobInput, JobOutcome, JobReply, MAX_NODE_FAULTS, RequestId,
    TIMEOUT_TEXTS, Work,
};
use corona_mapreduce::history::AttemptResult;
use corona_mapreduce::{
    AttemptEnd, AttemptKey, EventStatus, HistoryRecord, JobSettings, JobState, NodeFault, TaskKey,
    TaskKind, TaskState, TaskStatus,
};
use corona_model::types::Millis;

use super::trackers::MOST_SUSPECTS;
use super::weather::MOST_BAD_RECORDS;

/// A job tracker notices so late that it is cut off.
const NOTICED_MS: i64 = 5_000;
/// A map fails after no fewer reports of reduces that cannot fetch its output.
const FETCH_FAILURES: u32 = 3;

/// A slot, as the job's outcomes show it.
#[derive(Clone, Debug, PartialEq)]
enum SlotBook {
    Requested,
    Granted(Arc<str>),
    Runs(Arc<str>, AttemptKey),
    Released,
}

/// Requests whose grants may have been missed, and attempts that may not have been launched.
#[derive(Debug, Default)]
struct Doubt {
    waiting: Vec<RequestId>,
    silent: Vec<AttemptKey>,
}

/// What an attempt does not read of its input.
#[derive(Clone, Copy, Debug)]
struct Skip {
    records: i64,
    /// It only tests some records.
    is_test: bool,
    /// It skips bad records, so that it says where it was when it fails.
    is_skipping: bool,
}

/// The books of one job.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    slots: BTreeMap<RequestId, SlotBook>,
    /// Attempts that have ended, by their events, and those whose clean-up was launched.
    ended: BTreeSet<AttemptKey>,
    unclean: BTreeSet<AttemptKey>,
    /// Where each attempt was launched; where its clean-up was, once there is one.
    launched: BTreeMap<AttemptKey, Arc<str>>,
    /// The attempt of each task that may commit.
    committing: BTreeMap<TaskKey, AttemptKey>,
    allowed: BTreeSet<AttemptKey>,
    /// How often each attempt committed, on its node.
    commits: BTreeMap<AttemptKey, u32>,
    /// Attempts whose reports wait to be read.
    expected: BTreeSet<AttemptKey>,
    /// The last sign of each attempt or clean-up, and whether it has reported since its launch.
    signs: BTreeMap<AttemptKey, (Millis, bool)>,
    succeeded: BTreeMap<TaskKey, AttemptKey>,
    /// What attempts of tasks that skip bad records do not read.
    skips: BTreeMap<AttemptKey, Skip>,
    /// Attempts that fail for bad records, or only test some.
    for_records: BTreeSet<AttemptKey>,
    /// Attempts that were ordered to be killed.
    kills: BTreeSet<AttemptKey>,
    /// Hosts on which something of the job failed.
    bad_hosts: BTreeSet<Arc<str>>,
    /// Attempts that were launched while another one of their task ran.
    pub(crate) second_attempts: u64,
    /// Tasks that succeeded without some records.
    pub(crate) skipped: u64,
    events: Vec<(AttemptKey, EventStatus)>,
    /// Attempts of each task that failed: they were reported as failed, a user wanted that, or reduces could
    /// not fetch their output. Those whose node was lost were killed.
    failures: BTreeMap<TaskKey, BTreeSet<AttemptKey>>,
    killed: BTreeMap<TaskKey, BTreeSet<AttemptKey>>,
    /// Attempts of each task that failed for a fault of their node, which does not count.
    pub(crate) spared: BTreeMap<TaskKey, BTreeSet<AttemptKey>>,
    /// How often reduces could not fetch the output of an attempt.
    failed_fetches: BTreeMap<AttemptKey, u32>,
    /// A user has killed the job.
    pub(crate) is_killed: bool,
    /// Since when the network of its job tracker is away.
    pub(crate) cut_off_since: Option<Millis>,
    /// How it ended.
    pub(crate) end: Option<JobState>,
    records_of_end: u32,
}

impl Ledger {
    /// An attempt commits on its node.
    pub(crate) fn commits(&mut self, attempt: AttemptKey) {
        *self.commits.entry(attempt).or_default() += 1;
    }

    /// Reports on these attempts wait to be read.
    pub(crate) fn expects(&mut self, attempts: BTreeSet<AttemptKey>) {
        self.expected = attempts;
    }

    /// A restart releases all slots that the engine does not know any more. It must not forget one.
    pub(crate) fn lets_go(&self, released: &[i32]) -> Result<(), String> {
        let is_held = |id: &&i32| {
            self.slots.get(&RequestId(**id)).is_some_and(|book| *book != SlotBook::Released)
        };
        match released.iter().find(is_held) {
            Some(id) => Err(format!("a restart forgets slot {id}")),
            None => Ok(()),
        }
    }

    /// An attempt will fail for bad records, or only tests some.
    pub(crate) fn is_for_records(&mut self, attempt: AttemptKey) {
        self.for_records.insert(attempt);
    }

    /// Whether nothing of the past speaks against a second attempt beside this one.
    pub(crate) fn may_have_second(&self, attempt: AttemptKey, settings: &JobSettings) -> bool {
        let task = attempt.task;
        let failed = self.failures.get(&task).map_or(0, BTreeSet::len) as u32;
        let most = match settings.max_skipped[task.kind] {
            0 => settings.max_attempts[task.kind],
            _ => settings.max_attempts[task.kind].min(settings.attempts_before_skipping),
        };
        failed < most && !self.is_killed && !self.kills.contains(&attempt)
    }

    /// Whether something of the job failed on a host.
    pub(crate) fn is_bad_host(&self, host: &str) -> bool {
        self.bad_hosts.contains(host)
    }

    /// Enters an input and what it led to.
    pub(crate) fn enter(
        &mut self,
        now: Millis,
        input: &JobInput,
        outcome: &JobOutcome,
        engine: &JobEngine,
    ) -> Result<(), String> {
        if self.end.is_some() && !outcome.effects.is_empty() {
            return Err(format!("effects after the end: {:?}", outcome.effects));
        }
        if let Ok(reply) = outcome.reply {
            self.enter_input(now, input, reply);
        }
        let doubt = if *input == JobInput::Resumed { self.doubt() } else { Doubt::default() };
        let settings = &engine.spec().settings;
        for effect in &outcome.effects {
            self.enter_effect(effect, settings).map_err(|what| format!("{what}: {effect:?}"))?;
            match effect {
                JobEffect::Launch(launch) => {
                    self.signs.insert(launch.attempt, (now, false));
                }
                JobEffect::Record(HistoryRecord::Attempt(end)) if *input == JobInput::Tick => {
                    self.was_silent(now, end, settings)?;
                    self.avoid(&end.tracker);
                }
                _ => {}
            }
        }
        if self.end.is_some() {
            return Ok(());
        }
        if let (JobInput::Revoked { ids }, true) = (input, outcome.reply.is_ok()) {
            ids.iter().try_for_each(|id| self.gives_up(*id, &outcome.effects))?;
        }
        self.leaves_no(&doubt)?;
        engine.audit()
    }

    /// An attempt that was ended by its timeout has sent nothing for that long, while its job tracker ran.
    fn was_silent(
        &self,
        now: Millis,
        end: &AttemptEnd,
        settings: &JobSettings,
    ) -> Result<(), String> {
        let (AttemptResult::Failed { error } | AttemptResult::Killed { error }) = &end.result
        else {
            return Ok(());
        };
        let is_timeout = TIMEOUT_TEXTS.iter().any(|text| error.ends_with(text));
        if is_timeout && self.expected.contains(&end.attempt) {
            return Err(format!("{:?} is given up while its report waits", end.attempt));
        }
        let Some((sign, reported)) = self.signs.get(&end.attempt) else { return Ok(()) };
        let timeout_ms =
            if *reported { settings.task_timeout_ms } else { settings.launch_timeout_ms };
        let silence_ms = now.since(*sign);
        if is_timeout && silence_ms < timeout_ms {
            return Err(format!("{:?} is given up after {silence_ms} ms of silence", end.attempt));
        }
        let own_ms = self.cut_off_since.map_or(0, |since| now.since(since.max(*sign)));
        if is_timeout && silence_ms - own_ms < timeout_ms - NOTICED_MS {
            return Err(format!("{:?} is given up while its job tracker is cut off", end.attempt));
        }
        Ok(())
    }

    fn has_reported(&self, attempt: AttemptKey) -> bool {
        self.signs.get(&attempt).is_some_and(|(_, reported)| *reported)
    }

    /// What a job tracker cannot know after a restart.
    fn doubt(&self) -> Doubt {
        let waiting = self.slots.iter().filter(|(_, book)| **book == SlotBook::Requested);
        // Time shows whether a clean-up was launched.
        let silent = self
            .launched
            .keys()
            .filter(|attempt| !self.has_reported(**attempt) && !self.unclean.contains(attempt));
        Doubt { waiting: waiting.map(|(id, _)| *id).collect(), silent: silent.copied().collect() }
    }

    fn leaves_no(&self, doubt: &Doubt) -> Result<(), String> {
        let waits = |id: &&RequestId| self.slots.get(id) == Some(&SlotBook::Requested);
        if let Some(id) = doubt.waiting.iter().find(waits) {
            return Err(format!("after a restart request {} waits as before", id.0));
        }
        match doubt.silent.iter().find(|attempt| !self.ended.contains(attempt)) {
            Some(attempt) => Err(format!("after a restart {attempt:?} counts as launched")),
            None => Ok(()),
        }
    }

    /// A slot that was taken back is released, or what runs on it is killed, unless it is a clean-up.
    fn gives_up(&self, id: RequestId, effects: &[JobEffect]) -> Result<(), String> {
        let is_given_up = match self.slots.get(&id) {
            None | Some(SlotBook::Released) => true,
            Some(SlotBook::Requested | SlotBook::Granted(_)) => false,
            Some(SlotBook::Runs(_, running)) => {
                let kills = |effect: &JobEffect| matches!(effect, JobEffect::Kill { attempt, .. } if attempt == running);
                self.is_out(*running) || effects.iter().any(kills)
            }
        };
        let problem = || format!("slot {} was taken back and is kept", id.0);
        if is_given_up { Ok(()) } else { Err(problem()) }
    }

    fn enter_input(&mut self, now: Millis, input: &JobInput, reply: JobReply) {
        match input {
            JobInput::Granted { slots } => {
                for slot in slots {
                    if let Some(book) = self.slots.get_mut(&slot.id)
                        && *book == SlotBook::Requested
                    {
                        *book = SlotBook::Granted(slot.node.clone());
                    }
                }
            }
            JobInput::Heartbeat { node, reports, .. } => {
                for report in reports {
                    let attempt = report.attempt;
                    if self.launched.get(&attempt) != Some(node) {
                        continue;
                    }
                    if !self.ended.contains(&attempt) {
                        self.enter_report(now, report);
                    } else if NodeFault::of(&report.diagnostics).is_some() {
                        // It was given up before it could say why it would fail.
                        self.spared.entry(attempt.task).or_default().insert(attempt);
                    }
                }
            }
            JobInput::KillAttempt { attempt, fail: true } if reply == JobReply::Killed(true) => {
                self.fails(*attempt);
            }
            JobInput::CallFailed { node, .. } => self.avoid(node),
            JobInput::KillJob => self.is_killed = true,
            // While the job tracker was away, no report could reach it.
            JobInput::Resumed | JobInput::ResumedInPlace => {
                self.signs.values_mut().for_each(|(sign, _)| *sign = now)
            }
            JobInput::Stalled { ms } => {
                self.signs.values_mut().for_each(|(sign, _)| *sign = sign.plus_ms(*ms));
            }
            JobInput::CutOff { nodes, ms } => {
                for (attempt, (sign, _)) in &mut self.signs {
                    if self.launched.get(attempt).is_some_and(|node| nodes.contains(node)) {
                        *sign = sign.plus_ms(*ms);
                    }
                }
            }
            _ => {}
        }
    }

    /// Enters a report that the job tracker cannot ignore.
    fn enter_report(&mut self, now: Millis, report: &TaskStatus) {
        let (attempt, state) = (report.attempt, report.state);
        // As in the original, an attempt that waits for its commit must not wait for too long.
        let is_sign = match state {
            TaskState::Unassigned => false,
            TaskState::CommitPending => !self.has_reported(attempt),
            _ => true,
        };
        if is_sign {
            self.signs.insert(attempt, (now, true));
        }
        let fails = state.is_failed();
        // The end of a clean-up changes nothing about how the attempt went.
        if fails && !self.unclean.contains(&attempt) && !self.spares(report) {
            self.fails(attempt);
        }
        // A test that gets through is not a success of the task.
        let passes = matches!(state, TaskState::Succeeded | TaskState::CommitPending);
        if passes && self.is_test(attempt) {
            self.fails(attempt);
        }
        if state.is_unclean() {
            self.unclean.insert(attempt);
        }
        for map in report.reduce.iter().flat_map(|reduce| &reduce.failed_fetches) {
            *self.failed_fetches.entry(*map).or_default() += 1;
        }
    }

    /// Whether a failure is the fault of the node, and its task may have another attempt for it.
    fn spares(&mut self, report: &TaskStatus) -> bool {
        let attempt = report.attempt;
        let spared = self.spared.entry(attempt.task).or_default();
        let is_spared = NodeFault::of(&report.diagnostics).is_some()
            && !self.kills.contains(&attempt)
            && (spared.len() < MAX_NODE_FAULTS || spared.contains(&attempt));
        if is_spared {
            spared.insert(attempt);
            if let Some(node) = self.launched.get(&attempt).cloned() {
                self.avoid(&node);
            }
        }
        is_spared
    }

    fn avoid(&mut self, node: &Arc<str>) {
        self.bad_hosts.insert(host_of(node).into());
    }

    fn fails(&mut self, attempt: AttemptKey) {
        if let Some(node) = self.launched.get(&attempt).cloned() {
            self.avoid(&node);
        }
        self.failures.entry(attempt.task).or_default().insert(attempt);
    }

    fn enter_effect(&mut self, effect: &JobEffect, settings: &JobSettings) -> Result<(), String> {
        match effect {
            JobEffect::Request(requests) => {
                for request in requests {
                    let id = RequestId(request.id);
                    if self.slots.insert(id, SlotBook::Requested).is_some() {
                        return Err("an id is used twice".into());
                    }
                }
            }
            JobEffect::Release(ids) => {
                for id in ids {
                    match self.slots.insert(*id, SlotBook::Released) {
                        None | Some(SlotBook::Released) => {
                            return Err("a slot is released that is not there".into());
                        }
                        Some(_) => {}
                    }
                }
            }
            JobEffect::Launch(launch) => {
                let is_cleanup = matches!(launch.work, Work::TaskCleanup { .. });
                let earlier = self.launched.range(launch.attempt.task.attempt(0)..launch.attempt);
                let runs = |other: &AttemptKey| !self.is_out(*other);
                if !is_cleanup && earlier.map(|(other, _)| other).any(runs) {
                    self.second_attempts += 1;
                }
                if let Work::Task { skip, skipping, write_skipped } = &launch.work
                    && settings.max_skipped[launch.attempt.task.kind] > 0
                {
                    let (records, is_test) = (skip.records(), !write_skipped);
                    let skip = Skip { records, is_test, is_skipping: *skipping };
                    self.skips.insert(launch.attempt, skip);
                }
                let before = self.launched.insert(launch.attempt, launch.at.node.clone());
                if !is_cleanup && before.is_some() {
                    return Err("an attempt is launched twice".into());
                }
                if is_cleanup && !self.unclean.contains(&launch.attempt) {
                    return Err("an attempt is cleaned up after that left nothing behind".into());
                }
                let book = self.slots.get_mut(&launch.slot).ok_or("an unknown slot is used")?;
                let node = match &*book {
                    SlotBook::Granted(node) => node.clone(),
                    SlotBook::Runs(node, before) if self.ended.contains(before) => node.clone(),
                    _ => return Err(format!("a slot is used that is not free: {book:?}")),
                };
                if node != launch.at.node {
                    return Err("a slot is used on another node".into());
                }
                *book = SlotBook::Runs(node, launch.attempt);
            }
            JobEffect::Commit { attempt, .. } => {
                if self.ended.contains(attempt) || self.succeeded.contains_key(&attempt.task) {
                    return Err("a commit after the end".into());
                }
                if self.is_test(*attempt) {
                    return Err("a test of some records may commit".into());
                }
                let other = self.committing.insert(attempt.task, *attempt);
                if other.is_some_and(|other| other != *attempt && !self.is_out(other)) {
                    return Err(format!("{other:?} may commit at the same time"));
                }
                self.allowed.insert(*attempt);
            }
            JobEffect::Kill { attempt, .. } => {
                self.kills.insert(*attempt);
            }
            JobEffect::Event { id, event } => {
                self.enter_event(*id, event.attempt, event.status, settings)?;
            }
            JobEffect::EventObsolete { id } => {
                let event = self.events.get_mut(*id as usize).ok_or("an unknown event")?;
                if event.1 != EventStatus::Succeeded {
                    return Err("an event becomes obsolete that was no success".into());
                }
                event.1 = EventStatus::Obsolete;
                let attempt = event.0;
                self.succeeded.remove(&attempt.task);
                if self.failed_fetches.get(&attempt) >= Some(&FETCH_FAILURES) {
                    self.fails(attempt);
                }
            }
            JobEffect::Record(HistoryRecord::Ended(end)) => {
                self.records_of_end += 1;
                self.end = Some(end.state);
            }
            JobEffect::EndSession { .. } => self.slots.clear(),
            _ => {}
        }
        Ok(())
    }

    /// Whether an attempt that might commit will not any more, as far as the job tracker can know.
    fn is_out(&self, attempt: AttemptKey) -> bool {
        self.ended.contains(&attempt) || self.unclean.contains(&attempt)
    }

    fn enter_event(
        &mut self,
        id: u32,
        attempt: AttemptKey,
        status: EventStatus,
        settings: &JobSettings,
    ) -> Result<(), String> {
        if id as usize != self.events.len() {
            return Err("an event is out of order".into());
        }
        self.events.push((attempt, status));
        let again = !self.ended.insert(attempt);
        let task = attempt.task;
        if status == EventStatus::Succeeded {
            return match (again, self.succeeded.insert(task, attempt)) {
                (true, _) => Err("a success after the end".into()),
                (_, Some(_)) => Err("a task succeeds twice".into()),
                _ => self.skips_little(attempt, settings),
            };
        }
        let failed = self.failures.get(&task).is_some_and(|failed| failed.contains(&attempt));
        if !failed {
            self.killed.entry(task).or_default().insert(attempt);
        }
        match status {
            EventStatus::Failed if !failed => {
                Err("an attempt counts as failed that did not".into())
            }
            EventStatus::TipFailed if !self.has_failed(task, settings) => {
                Err("a task fails that may have more attempts".into())
            }
            _ => self.finds_bad_records(task),
        }
    }

    fn is_test(&self, attempt: AttemptKey) -> bool {
        self.skips.get(&attempt).is_some_and(|skip| skip.is_test)
    }

    /// An attempt that succeeds has read its input, but for a few records for each failure.
    fn skips_little(&mut self, attempt: AttemptKey, settings: &JobSettings) -> Result<(), String> {
        let Some(skip) = self.skips.get(&attempt) else { return Ok(()) };
        if skip.is_test {
            return Err("a test of some records is a success".into());
        }
        let failed = self.failures.get(&attempt.task).map_or(0, BTreeSet::len) as i64;
        if skip.records > failed * settings.max_skipped[attempt.task.kind] {
            return Err(format!("{} records are left out after {failed} failures", skip.records));
        }
        self.skipped += u64::from(skip.records > 0);
        Ok(())
    }

    /// Where attempts fail for bad records only, the search finds them: a failure names some suspects, and each
    /// test halves them.
    fn finds_bad_records(&self, task: TaskKey) -> Result<(), String> {
        let Some(failed) = self.failures.get(&task) else { return Ok(()) };
        let skips =
            |attempt: &&AttemptKey| self.skips.get(attempt).is_some_and(|skip| skip.is_skipping);
        let skipping: Vec<&AttemptKey> = failed.iter().filter(skips).collect();
        let most = MOST_BAD_RECORDS as usize * (1 + MOST_SUSPECTS.ilog2() as usize);
        match skipping.len() {
            count if count > most && skipping.iter().all(|it| self.for_records.contains(*it)) => {
                Err(format!("{count} attempts have not found the bad records"))
            }
            _ => Ok(()),
        }
    }

    /// Whether so many attempts at a task have failed, or were killed, that it may fail for good.
    fn has_failed(&self, task: TaskKey, settings: &JobSettings) -> bool {
        let count = |attempts: &BTreeMap<TaskKey, BTreeSet<AttemptKey>>| {
            attempts.get(&task).map_or(0, BTreeSet::len) as u32
        };
        count(&self.failures) >= settings.max_attempts[task.kind]
            || count(&self.killed) >= settings.max_killed_attempts
    }

    /// The job has ended: nothing is left, and its end is the one that it deserves. Where a node lied, a
    /// success may be its invention.
    pub(crate) fn close(
        &self,
        engine: &JobEngine,
        honest: bool,
        commits: bool,
        must_fail: bool,
    ) -> Result<(), String> {
        let end = self.end.ok_or("the job never ends")?;
        if self.records_of_end != 1 {
            return Err(format!("{} ends in the history", self.records_of_end));
        }
        match end {
            JobState::Failed if !self.may_fail(engine) => {
                return Err(format!("the job failed without a reason: {:?}", self.failures));
            }
            JobState::Killed if !self.is_killed => return Err("nobody killed the job".into()),
            JobState::Succeeded if must_fail && honest => {
                return Err("a task that always fails has succeeded".into());
            }
            JobState::Succeeded => self.is_complete(engine)?,
            _ => {}
        }
        if honest && commits {
            for attempt in self.succeeded.values() {
                let is_work =
                    engine.task_view(attempt.task).is_some_and(|view| view.role.is_work());
                let count = self.commits.get(attempt).copied().unwrap_or(0);
                if is_work && (count != 1 || !self.allowed.contains(attempt)) {
                    return Err(format!("{attempt:?} has succeeded and committed {count} times"));
                }
            }
        }
        Ok(())
    }

    /// Whether the set-up or clean-up has failed, or more tasks than the job may do without.
    fn may_fail(&self, engine: &JobEngine) -> bool {
        let settings = &engine.spec().settings;
        let total = engine.progress().total;
        TaskKind::ALL.into_iter().any(|kind| {
            let failed =
                |number: &u32| self.has_failed(TaskKey { kind, number: *number }, settings);
            let work = (0..total[kind]).filter(failed).count() as u64 * 100;
            let allowed = u64::from(settings.failures_percent[kind]) * u64::from(total[kind]);
            work > allowed
                || engine.tasks_of(kind).skip(total[kind] as usize).any(|task| failed(&task.number))
        })
    }

    /// All tasks have succeeded, except those that have failed and may, or whose success is not needed.
    fn is_complete(&self, engine: &JobEngine) -> Result<(), String> {
        let settings = &engine.spec().settings;
        let progress = engine.progress();
        for kind in TaskKind::ALL {
            let abandoned = kind == TaskKind::Map
                && settings.finish_when_reduces_done
                && progress.total.reduce > 0;
            if abandoned {
                continue;
            }
            let total = progress.total[kind];
            let tasks = (0..total).map(|number| TaskKey { kind, number });
            let missing: Vec<TaskKey> =
                tasks.filter(|task| !self.succeeded.contains_key(task)).collect();
            let allowed = u64::from(total) * u64::from(settings.failures_percent[kind]) / 100;
            if missing.len() as u64 > allowed {
                return Err(format!("{missing:?} of {total} tasks have not succeeded"));
            }
            if let Some(task) = missing.iter().find(|task| !self.has_failed(**task, settings)) {
                return Err(format!("the job does without {task:?}, which has not failed"));
            }
        }
        Ok(())
    }
}

/// The host in the name of a node.
fn host_of(node: &str) -> &str {
    let name = node.strip_prefix("tracker_").unwrap_or(node);
    name.split_once(':').map_or(name, |(host, _)| host)
}
