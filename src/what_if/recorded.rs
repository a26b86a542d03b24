//! Workloads from recordings: from the calls and notifications of sessions it follows when they requested slots,
//! which task each request was for, and how long the task took.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use corona_conformance::capture::Side;
use corona_conformance::conversation::{Conversation, Offered, Said, typed_calls};
use corona_model::types::{PoolName, ResourceType, SessionPriority};
use corona_wire::calls::{ClusterManager, ClusterManagerCall, SessionDriver, SessionDriverCall};
use corona_wire::generated as wire;

use crate::workload::{Node, Reading, Session, Task, Workload};

/// Nodes that send a heartbeat so soon after the beginning were there before it.
const FIRST_HEARTBEATS_MS: i64 = 30_000;

/// Reads a workload from the conversations of a recording that began at a time since the Unix epoch. Nodes are
/// lost after `node_expiry_ms` without a heartbeat.
pub fn read(
    name: &str,
    conversations: &[Conversation],
    began_ms: i64,
    node_expiry_ms: i64,
) -> Reading {
    let mut events = events(conversations);
    events.sort_by_key(|(at, _)| *at);
    let until_ms = events.last().map_or(0, |(at, _)| ms(*at));
    let mut history = History { until_ms, ..History::default() };
    for (at, event) in events {
        history.event(ms(at), event);
    }
    let managers = conversations.iter().filter(|one| one.service == Offered::ClusterManager);
    let shows_start = managers.into_iter().next().is_some_and(|first| !first.accepted);
    history.finish(name, began_ms, node_expiry_ms, shows_start)
}

fn ms(at: Duration) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

enum Event {
    ToManager(ClusterManagerCall),
    ToDriver(SessionDriverCall),
}

fn events(conversations: &[Conversation]) -> Vec<(Duration, Event)> {
    let mut events = Vec::new();
    for conversation in conversations {
        for part in conversation.parts.iter().filter(|part| part.from == Side::Client) {
            let Said::Messages { raw, .. } = &part.what else { continue };
            match conversation.service {
                Offered::ClusterManager => {
                    let calls = typed_calls::<ClusterManager>(raw).into_iter();
                    events.extend(calls.map(|call| (part.at, Event::ToManager(call))));
                }
                Offered::SessionDriver => {
                    let calls = typed_calls::<SessionDriver>(raw).into_iter();
                    events.extend(calls.map(|call| (part.at, Event::ToDriver(call))));
                }
                Offered::ProxyJobTracker => {}
            }
        }
    }
    events
}

#[derive(Default)]
struct History {
    until_ms: i64,
    nodes: BTreeMap<String, Seen>,
    sessions: BTreeMap<String, Known>,
    order: Vec<String>,
    strangers: BTreeSet<String>,
    grants: usize,
}

/// A node, from its first heartbeat to its last one.
struct Seen {
    host: String,
    cpus: i16,
    first_ms: i64,
    last_ms: i64,
    ended_ms: Option<i64>,
}

#[derive(Default)]
struct Known {
    session: Session,
    ended_ms: Option<i64>,
    tasks: Vec<Asked>,
    by_id: BTreeMap<i32, usize>,
    /// When its tasks ended.
    ends: Vec<i64>,
    last_map_ms: i64,
    /// Tasks that lost their slots and have not requested others yet.
    lost: [VecDeque<usize>; 3],
}

struct Asked {
    task: Task,
    asked_ms: i64,
    /// The node and time of its present grant.
    held: Option<(String, i64)>,
    ended_ms: Option<i64>,
    began_ms: i64,
    withdrawn: bool,
}

impl History {
    fn event(&mut self, at_ms: i64, event: Event) {
        match event {
            Event::ToManager(call) => self.call(at_ms, call),
            Event::ToDriver(call) => self.notice(at_ms, call),
        }
    }

    fn call(&mut self, at_ms: i64, call: ClusterManagerCall) {
        match call {
            ClusterManagerCall::NodeHeartbeat { node: Some(node) } => self.heartbeat(at_ms, node),
            ClusterManagerCall::SessionStart { handle: Some(handle), info: Some(info) }
                if !self.sessions.contains_key(&handle) =>
            {
                let known = Known { session: session(&handle, at_ms, info), ..Known::default() };
                self.order.push(handle.clone());
                self.sessions.insert(handle, known);
            }
            ClusterManagerCall::SessionEnd { handle: Some(handle), .. } => {
                if let Some(known) = self.known(handle) {
                    known.ended_ms = known.ended_ms.or(Some(at_ms));
                }
            }
            ClusterManagerCall::RequestResource { handle: Some(handle), requests } => {
                if let Some(known) = self.known(handle) {
                    requests.into_iter().flatten().for_each(|request| known.asks(at_ms, request));
                }
            }
            ClusterManagerCall::ReleaseResource { handle: Some(handle), ids } => {
                if let Some(known) = self.known(handle) {
                    ids.into_iter().flatten().for_each(|id| known.releases(at_ms, id));
                }
            }
            _ => {}
        }
    }

    fn known(&mut self, handle: String) -> Option<&mut Known> {
        if !self.sessions.contains_key(&handle) {
            self.strangers.insert(handle);
            return None;
        }
        self.sessions.get_mut(&handle)
    }

    fn heartbeat(&mut self, at_ms: i64, node: wire::ClusterNodeInfo) {
        for ended in node.ended.iter().flatten() {
            if let Some(seen) = self.nodes.get_mut(ended) {
                seen.ended_ms = Some(at_ms);
            }
        }
        if node.ended.iter().flatten().any(|ended| *ended == node.name) {
            return;
        }
        let new = Seen {
            host: node.address.host,
            cpus: node.total.num_cpus.max(1),
            first_ms: at_ms,
            last_ms: at_ms,
            ended_ms: None,
        };
        let seen = self.nodes.entry(node.name).or_insert(new);
        (seen.last_ms, seen.ended_ms) = (at_ms, None);
    }

    fn notice(&mut self, at_ms: i64, call: SessionDriverCall) {
        match call {
            SessionDriverCall::GrantResource { handle: Some(handle), granted } => {
                self.grants += granted.iter().flatten().count();
                if let Some(known) = self.sessions.get_mut(&handle) {
                    granted.into_iter().flatten().for_each(|grant| known.granted(at_ms, grant));
                }
            }
            SessionDriverCall::RevokeResource { handle: Some(handle), revoked, .. } => {
                if let Some(known) = self.sessions.get_mut(&handle) {
                    revoked.into_iter().flatten().for_each(|grant| known.loses(at_ms, grant.id));
                }
            }
            SessionDriverCall::ProcessDeadNode { handle: Some(handle), node: Some(node) } => {
                if let Some(known) = self.sessions.get_mut(&handle) {
                    let there = known.by_id.iter().filter(|(_, place)| {
                        let held = known.tasks.get(**place).and_then(|task| task.held.as_ref());
                        held.is_some_and(|(on, _)| *on == node)
                    });
                    let there: Vec<i32> = there.map(|(id, _)| *id).collect();
                    there.into_iter().for_each(|id| known.loses(at_ms, id));
                }
            }
            _ => {}
        }
    }

    fn finish(self, name: &str, began_ms: i64, node_expiry_ms: i64, shows_start: bool) -> Reading {
        let until_ms = self.until_ms;
        let nodes = self.nodes.into_iter().map(|(name, seen)| {
            let silent_ms = seen.last_ms.saturating_add(node_expiry_ms);
            let was_there = !shows_start && seen.first_ms <= FIRST_HEARTBEATS_MS;
            Node {
                name: name.into(),
                host: seen.host.into(),
                cpus: seen.cpus,
                from_ms: if was_there { 0 } else { seen.first_ms },
                until_ms: seen.ended_ms.or((silent_ms < until_ms).then_some(silent_ms)),
                ..Node::default()
            }
        });
        let mut workload = Workload {
            name: name.to_owned(),
            began_ms,
            until_ms,
            nodes: nodes.collect(),
            ..Workload::default()
        };
        let (mut withdrawn, mut cut, mut sessions) = (0, 0, self.sessions);
        let usual = usual_times(&sessions);
        for handle in self.order {
            let Some(known) = sessions.remove(&handle) else { continue };
            workload.sessions.push(known.finish(until_ms, &usual, &mut withdrawn, &mut cut));
        }
        workload.assume("All nodes are in the default rack: a recording has no racks.");
        workload.assume(
            "A task takes as long as it was recorded, wherever it runs; a reduce ends as long after the end of \
             its job's maps as it was recorded.",
        );
        workload.assume(
            "A request that was made some time after the end of a task follows the same number of ended tasks \
             by the same time.",
        );
        let mut left_out = Vec::new();
        if self.grants == 0 && workload.tasks() > 0 {
            left_out.push(
                "The recording has no grants, so times of tasks are not known: 'corona record \
                 --relay-callbacks' records them."
                    .to_owned(),
            );
        }
        if !self.strangers.is_empty() {
            left_out.push(format!(
                "{} sessions that are older than the recording; their slots are free here.",
                self.strangers.len()
            ));
        }
        if withdrawn > 0 {
            left_out.push(format!(
                "{withdrawn} requests that were withdrawn before they were granted."
            ));
        }
        if cut > 0 {
            workload.assume(&format!(
                "{cut} tasks had not ended when the recording did: they take as long as others of their job."
            ));
        }
        Reading { workload, left_out }
    }
}

fn session(handle: &str, at_ms: i64, info: wire::SessionInfo) -> Session {
    let pool = info.pool_info_strings;
    Session {
        id: handle.into(),
        name: info.name.into(),
        user: info.user_id.into(),
        pool: pool.map(|pool| PoolName::new(&pool.pool_group_name, &pool.pool_name)),
        priority: info.priority.and_then(|priority| SessionPriority::from_number(priority.0)),
        no_preempt: info.no_preempt.unwrap_or(false),
        at_ms,
        ..Session::default()
    }
}

fn kind_of(kind: wire::ResourceType) -> Option<ResourceType> {
    ResourceType::from_number(kind.0)
}

fn names(all: Option<Vec<String>>) -> Arc<[Arc<str>]> {
    all.into_iter().flatten().map(Arc::from).collect()
}

impl Known {
    fn asks(&mut self, at_ms: i64, request: wire::ResourceRequest) {
        let Some(kind) = kind_of(request.type_) else { return };
        if self.by_id.contains_key(&request.id) {
            return;
        }
        if let Some(place) = self.lost[kind.index()].pop_front() {
            self.by_id.insert(request.id, place);
            return;
        }
        let last_ms = self.ends.last().copied().unwrap_or(self.session.at_ms);
        let task = Task {
            after: u32::try_from(self.ends.len()).unwrap_or(u32::MAX),
            delay_ms: at_ms - last_ms,
            hosts: names(request.hosts),
            exclude: names(request.exclude_hosts),
            ..Task::new(kind, 0)
        };
        self.by_id.insert(request.id, self.tasks.len());
        self.tasks.push(Asked {
            task,
            asked_ms: at_ms,
            held: None,
            ended_ms: None,
            began_ms: 0,
            withdrawn: false,
        });
    }

    fn granted(&mut self, at_ms: i64, grant: wire::ResourceGrant) {
        let Some(place) = self.by_id.get(&grant.id) else { return };
        let Some(asked) = self.tasks.get_mut(*place) else { return };
        asked.held = Some((grant.node_name, at_ms));
        asked.began_ms = at_ms;
        asked.task.waited_ms = asked.task.waited_ms.or(Some(at_ms - asked.asked_ms));
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
            self.last_map_ms = at_ms;
        }
    }

    fn finish(
        mut self,
        until_ms: i64,
        usual: &[i64; 3],
        withdrawn: &mut usize,
        cut: &mut usize,
    ) -> Session {
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
                *withdrawn += 1;
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
                    if task.kind == ResourceType::Reduce && (1..=ended_ms).contains(&last_map_ms) {
                        task.shuffles = true;
                        task.ms = (ended_ms - asked.began_ms.max(last_map_ms)).max(0);
                    }
                }
                (None, Some(_), _) => {
                    *cut += 1;
                    task.held_ms = Some(until_ms - asked.began_ms);
                    task.ms = usual_ms.max(until_ms - asked.began_ms);
                }
                // It lost its slot, and its job did not want another one.
                _ if task.waited_ms.is_some() && task.ms > 0 => task.held_ms = Some(task.ms),
                (Some(_), ..) => {
                    *withdrawn += 1;
                    continue;
                }
                _ => {
                    *cut += 1;
                    task.ms = usual_ms;
                }
            }
            self.session.tasks.push(task);
        }
        if let Some(ended_ms) = self.ended_ms {
            let last_ms = self.ends.last().copied().unwrap_or(self.session.at_ms);
            let last_ms = if is_busy { ended_ms } else { last_ms };
            self.session.lingers_ms = ended_ms.saturating_sub(last_ms).max(0);
            self.session.recorded_ms = Some(ended_ms - self.session.at_ms);
        }
        self.session
    }
}

fn median(times: &mut [i64]) -> Option<i64> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// How long tasks of each type took, over all sessions.
fn usual_times(sessions: &BTreeMap<String, Known>) -> [i64; 3] {
    let mut all: [Vec<i64>; 3] = Default::default();
    for asked in sessions.values().flat_map(|known| &known.tasks) {
        if let Some(ended_ms) = asked.ended_ms {
            all[asked.task.kind.index()].push((ended_ms - asked.began_ms).max(0));
        }
    }
    all.map(|mut times| median(&mut times).unwrap_or(0))
}
