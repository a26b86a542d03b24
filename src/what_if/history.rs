//! Workloads from what happened: from the calls and notifications of sessions it follows when they requested slots,
//! which task each request was for, and how long the task took.
//!
//! Times are in milliseconds of any clock; the workload's begin with 0.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use corona_engine::Notification;
use corona_model::types::{ResourceRequest, ResourceType, SessionInfo};

use crate::distance::Distance;
use crate::workload::{Node, Session, Task, Workload, named};

/// What happened to a cluster, in the order of time.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// When it begins.
    began_ms: i64,
    /// The time of the last event.
    until_ms: i64,
    /// The time of the last event of a session.
    busy_ms: i64,
    /// The time on the Unix epoch's clock at the beginning.
    epoch_ms: i64,
    nodes: BTreeMap<Arc<str>, Seen>,
    sessions: BTreeMap<Arc<str>, KnownSession>,
    order: Vec<Arc<str>>,
    strangers: BTreeSet<Arc<str>>,
    grants: usize,
    /// Sessions that ran already when it begins.
    older: usize,
}

/// A node, with its last heartbeat and when it was lost.
#[derive(Debug)]
struct Seen {
    node: Node,
    last_ms: i64,
    gone_ms: Option<i64>,
    /// Since when it is drained.
    drains_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct KnownSession {
    session: Session,
    /// It ran before the history begins.
    is_older: bool,
    ended_ms: Option<i64>,
    tasks: Vec<Asked>,
    by_id: BTreeMap<i32, usize>,
    /// When its tasks ended.
    ends: Vec<i64>,
    last_map_ms: Option<i64>,
    /// Tasks that lost their slots and have not requested others yet.
    lost: [VecDeque<usize>; 3],
}

#[derive(Debug)]
struct Asked {
    task: Task,
    asked_ms: i64,
    /// Whether its last grant was on none of the hosts that it prefers, if that is known.
    is_away: Option<bool>,
    /// The node and time of its present grant.
    held: Option<(Arc<str>, i64)>,
    ended_ms: Option<i64>,
    began_ms: i64,
    withdrawn: bool,
}

/// What a history does not show, as its end finds it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// Requests that were withdrawn before they were granted.
    pub(crate) withdrawn: usize,
    /// Tasks that had not ended.
    pub(crate) cut: usize,
    /// Sessions whose start it does not show.
    pub(crate) strangers: usize,
    /// Sessions that ran already when it begins, of which it knows the requests.
    pub(crate) older: usize,
    pub(crate) grants: usize,
}

impl History {
    /// A history that begins at a time, which is `epoch_ms` milliseconds after the Unix epoch.
    pub(crate) fn from(began_ms: i64, epoch_ms: i64) -> History {
        History { began_ms, until_ms: began_ms, epoch_ms, ..History::default() }
    }

    /// It begins at this time since the Unix epoch, whose clock it has.
    pub(crate) fn begins(&mut self, at_ms: i64) {
        (self.began_ms, self.epoch_ms) = (at_ms, at_ms);
    }

    /// It lasts until this time at least.
    pub(crate) fn lasts_until(&mut self, at_ms: i64) {
        self.until_ms = self.until_ms.max(at_ms);
    }

    /// Something happens to a session.
    fn is_busy(&mut self, at_ms: i64) {
        self.lasts_until(at_ms);
        self.busy_ms = self.busy_ms.max(at_ms);
    }

    /// A node sends a heartbeat. It is lost after `expiry_ms` without one.
    pub(crate) fn node_seen(&mut self, at_ms: i64, node: Node, expiry_ms: i64) {
        self.lasts_until(at_ms);
        let new = |mut node: Node| {
            node.from_ms = at_ms;
            Seen { node, last_ms: at_ms, gone_ms: None, drains_ms: None }
        };
        let Some(seen) = self.nodes.get_mut(&node.name) else {
            self.nodes.insert(node.name.clone(), new(node));
            return;
        };
        let silent_ms = seen.last_ms.saturating_add(expiry_ms);
        if let Some(gone_ms) = seen.gone_ms.take().or((silent_ms < at_ms).then_some(silent_ms)) {
            seen.node.away.push((gone_ms, at_ms));
        }
        seen.last_ms = at_ms;
        (seen.node.cpus, seen.node.memory_mb) = (node.cpus, node.memory_mb);
        (seen.node.disk_gb, seen.node.network_mbps) = (node.disk_gb, node.network_mbps);
    }

    /// A node is lost.
    pub(crate) fn node_gone(&mut self, at_ms: i64, name: &str) {
        self.lasts_until(at_ms);
        if let Some(seen) = self.nodes.get_mut(name) {
            seen.gone_ms = seen.gone_ms.or(Some(at_ms));
        }
        self.node_drains(at_ms, name, false);
    }

    /// A node is granted nothing from now on, or serves again.
    pub(crate) fn node_drains(&mut self, at_ms: i64, name: &str, on: bool) {
        let Some(seen) = self.nodes.get_mut(name) else { return };
        match on {
            true => seen.drains_ms = seen.drains_ms.or(Some(at_ms)),
            false => {
                let since_ms = seen.drains_ms.take();
                seen.node.drained.extend(since_ms.map(|since_ms| (since_ms, at_ms)));
            }
        }
    }

    pub(crate) fn session_starts(&mut self, at_ms: i64, handle: &Arc<str>, info: &SessionInfo) {
        self.starts(at_ms, handle, info, false);
    }

    /// A session that ran already when the history begins. Returns whether it is a new one.
    pub(crate) fn session_ran(&mut self, handle: &Arc<str>, info: &SessionInfo) -> bool {
        self.starts(self.began_ms, handle, info, true)
    }

    fn starts(
        &mut self,
        at_ms: i64,
        handle: &Arc<str>,
        info: &SessionInfo,
        is_older: bool,
    ) -> bool {
        self.is_busy(at_ms);
        if self.sessions.contains_key(handle) {
            return false;
        }
        let deadline = info.deadline.filter(|deadline| *deadline > 0);
        let session = Session {
            id: handle.clone(),
            name: info.name.clone(),
            user: info.user_id.clone(),
            groups: info.group_ids.iter().flatten().cloned().collect(),
            pool: info.pool.clone(),
            priority: info.priority,
            no_preempt: info.no_preempt.unwrap_or(false),
            deadline_ms: deadline.map(|at| at.saturating_sub(self.epoch_ms).max(0)),
            at_ms,
            ..Session::default()
        };
        self.older += usize::from(is_older);
        self.order.push(handle.clone());
        self.sessions
            .insert(handle.clone(), KnownSession { session, is_older, ..KnownSession::default() });
        true
    }

    pub(crate) fn session_ends(&mut self, at_ms: i64, handle: &Arc<str>) {
        self.is_busy(at_ms);
        if let Some(known) = self.known(handle) {
            known.ended_ms = known.ended_ms.or(Some(at_ms));
        }
    }

    pub(crate) fn requests(&mut self, at_ms: i64, handle: &Arc<str>, requests: &[ResourceRequest]) {
        self.is_busy(at_ms);
        if let Some(known) = self.known(handle) {
            requests.iter().for_each(|request| known.asks(at_ms, request));
        }
    }

    pub(crate) fn releases(&mut self, at_ms: i64, handle: &Arc<str>, ids: &[i32]) {
        self.is_busy(at_ms);
        if let Some(known) = self.known(handle) {
            ids.iter().for_each(|id| known.releases(at_ms, *id));
        }
    }

    /// A request has a slot of a node.
    pub(crate) fn granted(&mut self, at_ms: i64, handle: &str, id: i32, node: &Arc<str>) {
        self.is_busy(at_ms);
        self.grants += 1;
        let host = self.nodes.get(node).map(|seen| seen.node.host.clone());
        if let Some(known) = self.sessions.get_mut(handle) {
            known.granted(at_ms, id, node, host);
        }
    }

    /// A request's slot is taken back.
    pub(crate) fn revoked(&mut self, at_ms: i64, handle: &str, id: i32) {
        self.lasts_until(at_ms);
        if let Some(known) = self.sessions.get_mut(handle) {
            known.loses(at_ms, id);
        }
    }

    pub(crate) fn notified(&mut self, at_ms: i64, handle: &str, notification: &Notification) {
        match notification {
            Notification::Granted(grants) => {
                grants
                    .iter()
                    .for_each(|grant| self.granted(at_ms, handle, grant.id, &grant.node_name));
            }
            Notification::Revoked(grants) => {
                grants.iter().for_each(|grant| self.revoked(at_ms, handle, grant.id));
            }
            Notification::DeadNode(node) => {
                if let Some(known) = self.sessions.get_mut(handle) {
                    known.loses_all_on(at_ms, node);
                }
            }
        }
        self.lasts_until(at_ms);
    }

    fn known(&mut self, handle: &Arc<str>) -> Option<&mut KnownSession> {
        if !self.sessions.contains_key(handle) {
            self.strangers.insert(handle.clone());
            return None;
        }
        self.sessions.get_mut(handle)
    }

    /// The workload. Nodes that were seen so soon after the beginning were there before it; nodes that have been
    /// silent for `expiry_ms` at the end are lost.
    pub(crate) fn finish(self, name: &str, soon_ms: i64, expiry_ms: i64) -> (Workload, Gaps) {
        let (began_ms, until_ms, busy_ms) = (self.began_ms, self.until_ms, self.busy_ms);
        // Of sessions that go on at the end, nobody knows for how long.
        let all_ended = self.sessions.values().all(|known| known.ended_ms.is_some());
        let mut outlasting = 0;
        let nodes = self.nodes.into_values().map(|seen| {
            let silent_ms = seen.last_ms.saturating_add(expiry_ms);
            let mut node = seen.node;
            node.until_ms = seen.gone_ms.or((silent_ms < until_ms).then_some(silent_ms));
            if all_ended && node.until_ms.is_some_and(|at_ms| at_ms >= busy_ms) {
                outlasting += 1;
                node.until_ms = None;
            }
            node.from_ms -= began_ms;
            node.until_ms = node.until_ms.map(|at| at - began_ms);
            node.drained.extend(seen.drains_ms.map(|since_ms| (since_ms, until_ms)));
            for (from, until) in node.away.iter_mut().chain(&mut node.drained) {
                (*from, *until) = (*from - began_ms, *until - began_ms);
            }
            if node.from_ms <= soon_ms {
                node.from_ms = 0;
            }
            node
        });
        let mut workload = Workload {
            name: name.to_owned(),
            began_ms: self.epoch_ms.max(0),
            until_ms: until_ms - began_ms,
            nodes: nodes.collect(),
            ..Workload::default()
        };
        if outlasting > 0 {
            workload.assume(&format!(
                "{outlasting} nodes were lost after the last session had ended, as when a cluster is shut down: they stay."
            ));
        }
        let mut gaps = Gaps {
            strangers: self.strangers.len(),
            older: self.older,
            grants: self.grants,
            ..Gaps::default()
        };
        let mut sessions = self.sessions;
        let usual = usual_times(&sessions);
        let distance = Distance::learn(sessions.values().map(KnownSession::times));
        for handle in self.order {
            let Some(known) = sessions.remove(&handle) else { continue };
            let mut session = known.finish(until_ms, &usual, &distance, &mut gaps);
            session.at_ms -= began_ms;
            workload.sessions.push(session);
        }
        workload.sessions.sort_by_key(|session| session.at_ms);
        workload.assume(
            "A task takes as long as it was recorded; a reduce ends as long after the end of its job's maps as it was \
             recorded.",
        );
        workload.assume(&distance.sentence());
        workload.assume(
            "A request that was made some time after the end of a task follows the same number of ended tasks \
             by the same time.",
        );
        if gaps.cut > 0 {
            workload.assume(&format!(
                "{} tasks had not ended when the input did: they take as long as others of their job.",
                gaps.cut
            ));
        }
        (workload, gaps)
    }
}

impl Gaps {
    /// What was left out, as sentences.
    pub(crate) fn left_out(&self, source: &str) -> Vec<String> {
        let mut all = Vec::new();
        if self.strangers > 0 {
            all.push(format!(
                "{} sessions that are older than the {source}; their slots are free here.",
                self.strangers
            ));
        }
        if self.withdrawn > 0 {
            all.push(format!(
                "{} requests that were withdrawn before they were granted.",
                self.withdrawn
            ));
        }
        all
    }
}

impl KnownSession {
    fn asks(&mut self, at_ms: i64, request: &ResourceRequest) {
        if self.by_id.contains_key(&request.id) {
            return;
        }
        let kind = request.kind;
        if let Some(place) = self.lost[kind.index()].pop_front() {
            self.by_id.insert(request.id, place);
            return;
        }
        let last_ms = self.ends.last().copied().unwrap_or(self.session.at_ms);
        let task = Task {
            after: u32::try_from(self.ends.len()).unwrap_or(u32::MAX),
            delay_ms: at_ms - last_ms,
            hosts: request.hosts.as_slice().into(),
            exclude: request.exclude_hosts.as_slice().into(),
            takes: named(request.specs),
            ..Task::new(kind, 0)
        };
        self.by_id.insert(request.id, self.tasks.len());
        self.tasks.push(Asked {
            task,
            asked_ms: at_ms,
            held: None,
            ended_ms: None,
            is_away: None,
            began_ms: 0,
            withdrawn: false,
        });
    }

    fn granted(&mut self, at_ms: i64, id: i32, node: &Arc<str>, host: Option<Arc<str>>) {
        let Some(place) = self.by_id.get(&id) else { return };
        let Some(asked) = self.tasks.get_mut(*place) else { return };
        asked.held = Some((node.clone(), at_ms));
        asked.began_ms = at_ms;
        let hosts = &asked.task.hosts;
        asked.is_away = host.filter(|_| !hosts.is_empty()).map(|host| !hosts.contains(&host));
        asked.task.waited_ms = asked.task.waited_ms.or(Some(at_ms - asked.asked_ms));
    }

    fn loses_all_on(&mut self, at_ms: i64, node: &Arc<str>) {
        let there = self.by_id.iter().filter(|(_, place)| {
            let held = self.tasks.get(**place).and_then(|task| task.held.as_ref());
            held.is_some_and(|(on, _)| on == node)
        });
        let there: Vec<i32> = there.map(|(id, _)| *id).collect();
        there.into_iter().for_each(|id| self.loses(at_ms, id));
    }

    fn loses(&mut self, at_ms: i64, id: i32) {
        let Some(place) = self.by_id.remove(&id) else { return };
        let Some(asked) = self.tasks.get_mut(place) else { return };
        if asked.held.take().is_some() {
            asked.task.ms = at_ms - asked.began_ms;
            self.lost[asked.task.kind.index()].push_back(place);
        }
    }

    fn releases(&mut self, at_ms: i64, id: i32) {
        let Some(place) = self.by_id.remove(&id) else { return };
        let Some(asked) = self.tasks.get_mut(place) else { return };
        if asked.held.take().is_none() {
            asked.withdrawn = asked.task.waited_ms.is_none();
            return;
        }
        asked.ended_ms = Some(at_ms);
        self.ends.push(at_ms);
        if asked.task.kind == ResourceType::Map {
            self.last_map_ms = Some(at_ms);
        }
    }

    /// How long tasks with preferred hosts took, and whether they ran on none of these.
    fn times(&self) -> Vec<(i64, bool)> {
        let ended = self.tasks.iter().filter_map(|asked| {
            Some((asked.ended_ms?.saturating_sub(asked.began_ms), asked.is_away?))
        });
        ended.collect()
    }

    fn finish(
        mut self,
        until_ms: i64,
        usual: &[i64; 3],
        distance: &Distance,
        gaps: &mut Gaps,
    ) -> Session {
        let factor = distance.of_session(&self.times());
        let mut own: [Vec<i64>; 3] = Default::default();
        for asked in &self.tasks {
            if let Some(ended_ms) = asked.ended_ms {
                own[asked.task.kind.index()].push(ended_ms - asked.began_ms);
            }
        }
        let usual: Vec<i64> =
            own.iter_mut().zip(usual).map(|(own, usual)| median(own).unwrap_or(*usual)).collect();
        let last_map_ms = self.last_map_ms;
        // Tasks that hold slots when the session ends do so until then.
        let is_busy = self.tasks.iter().any(|asked| asked.held.is_some());
        for asked in self.tasks {
            if asked.withdrawn {
                gaps.withdrawn += 1;
                continue;
            }
            let mut task = asked.task;
            let usual_ms = usual.get(task.kind.index()).copied().unwrap_or(0);
            match (asked.ended_ms.or(self.ended_ms), &asked.held, asked.ended_ms) {
                (Some(ended_ms), held, ended) if held.is_some() || ended.is_some() => {
                    // A grant may have been on its way when its session ended.
                    let held_ms = (ended_ms - asked.began_ms).max(0);
                    task.held_ms = Some(held_ms);
                    task.ms = held_ms;
                    let maps_end = last_map_ms.filter(|last_ms| *last_ms <= ended_ms);
                    if let Some(last_map_ms) =
                        maps_end.filter(|_| task.kind == ResourceType::Reduce)
                    {
                        task.shuffles = true;
                        task.ms = (ended_ms - asked.began_ms.max(last_map_ms)).max(0);
                    }
                    if let Some((factor, is_away)) = factor.zip(asked.is_away) {
                        Distance::apply(&mut task, factor, is_away);
                    }
                }
                (None, Some(_), _) => {
                    gaps.cut += 1;
                    task.held_ms = Some(until_ms - asked.began_ms);
                    task.ms = usual_ms.max(until_ms - asked.began_ms);
                }
                // It lost its slot, and its job did not want another one.
                _ if task.waited_ms.is_some() && task.ms > 0 => task.held_ms = Some(task.ms),
                (Some(_), ..) => {
                    gaps.withdrawn += 1;
                    continue;
                }
                _ => {
                    gaps.cut += 1;
                    task.ms = usual_ms;
                }
            }
            if self.is_older && task.after == 0 && task.delay_ms == 0 {
                // When it was requested is not known.
                task.waited_ms = None;
            }
            self.session.tasks.push(task);
        }
        if let Some(ended_ms) = self.ended_ms {
            let last_ms = self.ends.last().copied().unwrap_or(self.session.at_ms);
            let last_ms = if is_busy { ended_ms } else { last_ms };
            self.session.lingers_ms = ended_ms.saturating_sub(last_ms).max(0);
            let took_ms = ended_ms - self.session.at_ms;
            self.session.recorded_ms = Some(took_ms).filter(|_| !self.is_older);
        }
        self.session
    }
}

fn median(times: &mut [i64]) -> Option<i64> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// How long tasks of each type took, over all sessions.
fn usual_times(sessions: &BTreeMap<Arc<str>, KnownSession>) -> [i64; 3] {
    let mut all: [Vec<i64>; 3] = Default::default();
    for asked in sessions.values().flat_map(|known| &known.tasks) {
        if let Some(ended_ms) = asked.ended_ms {
            all[asked.task.kind.index()].push((ended_ms - asked.began_ms).max(0));
        }
    }
    all.map(|mut times| median(&mut times).unwrap_or(0))
}
