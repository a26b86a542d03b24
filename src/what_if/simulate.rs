//! A run: the sessions of a workload ask the cluster engine for slots, in virtual time.
//!
//! Sessions behave as a job tracker would. They request what their tasks need, run what they are granted, and
//! release it. A grant that is taken back or lost with its node is requested again. Notifications arrive at
//! once, and nodes and sessions never miss a heartbeat, except for nodes that fail.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use corona_engine::{Effect, Engine, Input, Notification, Record, Reply, Start};
use corona_model::settings::Settings;
use corona_model::types::{
    Address, ComputeSpecs, Grant, Millis, NodeReport, PerType, ResourceRequest, ResourceType,
    SessionInfo, SessionStatus,
};

use crate::measure::{Measure, Run, SessionResult};
use crate::resources::Counts;
use crate::workload::{Node, Session, Task, Workload};

/// Settings under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The name under which the report shows them.
    pub name: String,
    /// The engine's settings.
    pub settings: Settings,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Tasks that have ended.
    pub ended: usize,
    /// Tasks of the workload.
    pub tasks: usize,
}

/// Requests that nothing has served for so long, while nothing else happens, are never served.
const HOPELESS_MS: i64 = 86_400_000;
/// Inputs between two reports of progress.
const REPORT_EVERY: u64 = 20_000;
/// Spans that no engine reaches, and that can be added to any time.
const FOREVER_MS: i64 = i64::MAX / 8;

/// Plays a workload. `watch` is called now and then, and ends the run when it returns false.
pub fn simulate(
    workload: &Workload,
    setting: &Setting,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Run {
    let mut sim = Simulation::new(workload, &setting.settings);
    let stopped_at_ms = sim.run(watch);
    sim.finish(&setting.name, stopped_at_ms)
}

/// The settings without what a simulation has no use for: silence, and bounds against hostile peers.
fn for_simulation(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.node_expiry_ms = FOREVER_MS;
    settings.node_late_ms = FOREVER_MS;
    settings.session_expiry_ms = FOREVER_MS;
    settings.retired_sessions = 0;
    let bounds = &mut settings.bounds;
    (bounds.sessions, bounds.requests_per_session) = (usize::MAX, usize::MAX);
    (bounds.nodes, bounds.pools) = (usize::MAX, usize::MAX);
    settings
}

/// Something that will happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    NodeUp(u32),
    NodeDown(u32),
    Drains(u32, bool),
    /// A task of a session has done its work in the slot of a request.
    Done(u32, i32),
    Leaves(u32),
    Arrives(u32),
    /// A session requests slots for tasks at these places of its order.
    Asks(u32, u32, u32),
    EndOfBin,
}

struct Simulation<'a> {
    workload: &'a Workload,
    engine: Engine,
    began: Millis,
    now_ms: i64,
    agenda: BinaryHeap<Reverse<(i64, u64, Event)>>,
    numbered: u64,
    inputs: u64,
    sessions: Vec<Option<Box<Live>>>,
    places: BTreeMap<Arc<str>, u32>,
    followers: BTreeMap<u32, Vec<(u32, i64)>>,
    hosts: BTreeMap<Arc<str>, Arc<str>>,
    racks: BTreeMap<Arc<str>, Arc<str>>,
    results: Vec<SessionResult>,
    measure: Measure,
    counts: Counts,
    pending: PerType<i64>,
    notices: VecDeque<(Arc<str>, Notification)>,
    progress: Progress,
    /// A stretch of time has ended at this moment.
    bin_ended: bool,
    /// Sessions that have not ended.
    open: usize,
    /// When something was last granted.
    moved_ms: i64,
}

/// A session that runs.
#[derive(Default)]
struct Live {
    handle: Arc<str>,
    accounts: [usize; 2],
    ended: usize,
    maps_left: usize,
    /// The tasks in the order in which they are requested, and how many of them have been.
    order: Vec<u32>,
    next: usize,
    /// Calls for slots that are still to be made.
    calls: usize,
    waiting: usize,
    /// The task of each request, from the first one on.
    tasks: Vec<u32>,
    states: Vec<TaskState>,
    running: BTreeMap<i32, Held>,
    /// Requests of reduces that wait for the end of the maps.
    shuffling: Vec<i32>,
}

#[derive(Clone, Copy, Default)]
struct TaskState {
    asked_ms: i64,
    served: bool,
}

struct Held {
    since_ms: i64,
    node: Arc<str>,
    /// How long its task takes there.
    ms: i64,
}

impl<'a> Simulation<'a> {
    fn new(workload: &'a Workload, settings: &Settings) -> Simulation<'a> {
        let began = Millis(workload.began_ms.max(0));
        let start = Start { now: began, id_prefix: "202601010000".into(), hash_seed: 1 };
        let mut sim = Simulation {
            workload,
            engine: Engine::new(for_simulation(settings), start),
            began,
            now_ms: 0,
            agenda: BinaryHeap::new(),
            numbered: 0,
            inputs: 0,
            sessions: workload.sessions.iter().map(|_| None).collect(),
            places: BTreeMap::new(),
            followers: BTreeMap::new(),
            hosts: BTreeMap::new(),
            racks: BTreeMap::new(),
            results: vec![SessionResult::default(); workload.sessions.len()],
            measure: Measure::new(workload.until_ms),
            counts: Counts::new(settings, &workload.nodes),
            pending: PerType::default(),
            notices: VecDeque::new(),
            progress: Progress { ended: 0, tasks: workload.tasks() },
            bin_ended: false,
            open: workload.sessions.len(),
            moved_ms: 0,
        };
        sim.plan();
        sim
    }

    fn plan(&mut self) {
        let mut by_name = BTreeMap::new();
        for (place, node) in self.workload.nodes.iter().enumerate() {
            by_name.insert(node.name.clone(), place as u32);
            self.hosts.insert(node.name.clone(), node.host.clone());
            self.racks.extend(node.rack.clone().map(|rack| (node.host.clone(), rack)));
            self.at(node.from_ms, Event::NodeUp(place as u32));
            for (from_ms, until_ms) in &node.away {
                self.at(*from_ms, Event::NodeDown(place as u32));
                self.at(*until_ms, Event::NodeUp(place as u32));
            }
            if let Some(until_ms) = node.until_ms {
                self.at(until_ms, Event::NodeDown(place as u32));
            }
            for (from_ms, until_ms) in &node.drained {
                self.at(*from_ms, Event::Drains(place as u32, true));
                self.at(*until_ms, Event::Drains(place as u32, false));
            }
        }
        for failure in &self.workload.failures {
            let Some(place) = by_name.get(&failure.node) else { continue };
            self.at(failure.at_ms, Event::NodeDown(*place));
            if let Some(until_ms) = failure.until_ms {
                self.at(until_ms, Event::NodeUp(*place));
            }
        }
        for (place, session) in self.workload.sessions.iter().enumerate() {
            let place = place as u32;
            match session.follows.filter(|(of, _)| *of < place) {
                Some((of, delay)) => self.followers.entry(of).or_default().push((place, delay)),
                None => self.at(session.at_ms, Event::Arrives(place)),
            }
        }
        self.at(self.measure.width_ms, Event::EndOfBin);
    }

    fn at(&mut self, at_ms: i64, event: Event) {
        self.numbered += 1;
        self.agenda.push(Reverse((at_ms.max(self.now_ms), self.numbered, event)));
    }

    /// Runs to the end. Returns when it was stopped, if it was.
    fn run(&mut self, watch: &mut dyn FnMut(Progress) -> bool) -> Option<i64> {
        let mut reported = 0;
        while self.open > 0 {
            let next_ms = self.agenda.peek().map(|Reverse((at_ms, ..))| *at_ms);
            let due = self.engine.next_deadline().map(|at| at.since(self.began));
            let at_ms = next_ms.into_iter().chain(due).min()?;
            let at_ms = at_ms.max(self.now_ms);
            // The end of a stretch of time is always planned.
            let only_time = self.agenda.len() == 1;
            if only_time && at_ms.saturating_sub(self.moved_ms) > HOPELESS_MS {
                return None;
            }
            self.now_ms = at_ms;
            while let Some(Reverse((at_ms, _, event))) = self.agenda.peek().copied()
                && at_ms <= self.now_ms
            {
                self.agenda.pop();
                self.happens(event);
            }
            if self.engine.next_deadline().is_some_and(|due| due.since(self.began) <= self.now_ms) {
                self.apply(Input::Tick);
            }
            while self.engine.wants_pass() {
                self.apply(Input::Pass);
            }
            self.measure.slots(self.now_ms, &self.engine, &self.counts, self.pending);
            // Now what became free at this moment is granted.
            if std::mem::take(&mut self.bin_ended)
                && let Some(sample) = self.counts.sample(&self.engine)
            {
                self.measure.sampled(self.now_ms, self.moved_ms, &sample);
            }
            if self.inputs >= reported + REPORT_EVERY {
                reported = self.inputs;
                if !watch(self.progress) {
                    return Some(self.now_ms);
                }
            }
        }
        None
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::NodeUp(place) => self.node_up(place),
            Event::NodeDown(place) => {
                if let Some(Node { name, host, .. }) = self.workload.nodes.get(place as usize) {
                    let (host, names) = (host.clone(), vec![name.clone()]);
                    self.counts.node(place as usize, false);
                    self.apply(Input::NodesEnded { host, names });
                }
            }
            Event::Drains(place, on) => {
                if let Some(Node { name, .. }) = self.workload.nodes.get(place as usize) {
                    self.apply(Input::DrainNode { node: name.clone(), on });
                }
            }
            Event::Done(place, id) => self.done(place, id),
            Event::Leaves(place) => self.leaves(place),
            Event::Arrives(place) => self.arrives(place),
            Event::Asks(place, from, to) => self.asks(place, from as usize..to as usize),
            Event::EndOfBin => {
                self.bin_ended = true;
                let width_ms = self.measure.close_bin(self.now_ms, &self.engine);
                self.at(self.now_ms.saturating_add(width_ms), Event::EndOfBin);
            }
        }
    }

    /// Applies an input, and everything that follows from it.
    fn apply(&mut self, input: Input) -> Option<Reply> {
        self.inputs += 1;
        let outcome = self.engine.apply(self.began.plus_ms(self.now_ms), input);
        for effect in outcome.effects {
            match effect {
                Effect::Notify { handle, notification, .. } => {
                    self.notices.push_back((handle, notification));
                }
                Effect::Record(record) => self.note(&record),
                Effect::ForgetSession { .. } | Effect::ResumeNotifications => {}
            }
        }
        while let Some((handle, notification)) = self.notices.pop_front() {
            let Some(place) = self.places.get(&handle).copied() else { continue };
            match notification {
                Notification::Granted(grants) => {
                    grants.iter().for_each(|grant| self.granted(place, grant));
                }
                Notification::Revoked(grants) => {
                    let ids = grants.iter().map(|grant| grant.id).collect();
                    self.lost(place, ids, true);
                }
                Notification::DeadNode(node) => {
                    let Some(live) = &self.sessions[place as usize] else { continue };
                    let there = live.running.iter().filter(|(_, held)| held.node == node);
                    let ids = there.map(|(id, _)| *id).collect();
                    self.lost(place, ids, false);
                }
            }
        }
        outcome.reply.ok()
    }

    /// Counts what is done to make room on nodes.
    fn note(&mut self, record: &Record) {
        let counted = &mut self.measure.reservations;
        match record {
            Record::NodeReserved { .. } => counted.made += 1,
            Record::ReservationEnded { served: true, .. } => counted.served += 1,
            Record::ReservationExpired { .. } => counted.expired += 1,
            Record::RoomMade { .. } => counted.rooms += 1,
            _ => {}
        }
    }

    fn node_up(&mut self, place: u32) {
        let Some(node) = self.workload.nodes.get(place as usize) else { return };
        let total = self.counts.total(place as usize);
        // What is really free is not simulated.
        let (memory_mb, disk_gb) = (Some(i32::MAX), Some(i32::MAX));
        let free = ComputeSpecs { memory_mb, disk_gb, ..total };
        self.counts.node(place as usize, true);
        let app: Arc<str> = format!("{}:1", node.host).into();
        let report = NodeReport {
            name: node.name.clone(),
            address: Address { host: node.host.clone(), port: 1 },
            total,
            free: Some(free),
            apps: PerType([Some(app.clone()), Some(app.clone()), Some(app)]),
        };
        self.apply(Input::HeartbeatNode { report, rack: node.rack.clone() });
    }

    fn arrives(&mut self, place: u32) {
        let Some(session) = self.workload.sessions.get(place as usize) else { return };
        let Some(Reply::SessionId(id)) = self.apply(Input::NextSessionId) else { return };
        let handle: Arc<str> = id.into();
        let info = SessionInfo {
            address: Address { host: "driver".into(), port: 1 },
            name: session.name.clone(),
            user_id: session.user.clone(),
            group_ids: Some(session.groups.to_vec()).filter(|groups| !groups.is_empty()),
            pool: session.pool.clone(),
            priority: session.priority,
            no_preempt: Some(session.no_preempt),
            url: None,
            deadline: session.deadline_ms.map(|at| self.began.plus_ms(at).0),
        };
        let started = self.apply(Input::StartSession { handle: handle.clone(), info });
        let Some(Reply::Started { pool, .. }) = started else {
            // For instance because only configured pools may be used.
            self.measure.refused(&session.user, self.now_ms);
            return self.is_over(place);
        };
        let accounts = [
            self.measure.pool(&pool.to_string(), self.now_ms),
            self.measure.user(&session.user, self.now_ms),
        ];
        self.measure.pools[accounts[0]].sessions += 1;
        self.measure.users[accounts[1]].sessions += 1;
        self.results[place as usize].started_ms = Some(self.now_ms);
        self.places.insert(handle.clone(), place);
        self.sessions[place as usize] = Some(Box::new(Live::new(handle, accounts, session)));
        if session.tasks.is_empty() {
            return self.at(self.now_ms.saturating_add(session.lingers_ms), Event::Leaves(place));
        }
        self.plan_calls(place);
    }

    /// Plans the calls for tasks that are due after what has ended.
    fn plan_calls(&mut self, place: u32) {
        let Some((session, live)) = self.both(place) else { return };
        let is_idle = live.running.is_empty() && live.waiting == 0 && live.calls == 0;
        let mut ended = live.ended;
        if let Some(first) = live.order.get(live.next).filter(|_| is_idle) {
            // Tasks that wait for more than there is would wait forever.
            ended = ended.max(session.tasks[*first as usize].after as usize);
        }
        let mut calls = Vec::new();
        while let Some(first) = live.order.get(live.next) {
            let first = &session.tasks[*first as usize];
            if first.after as usize > ended {
                break;
            }
            let from = live.next;
            let alike = live.order[from..].iter().take_while(|task| {
                let task = &session.tasks[**task as usize];
                task.after == first.after && task.delay_ms == first.delay_ms
            });
            live.next += alike.count();
            live.calls += 1;
            calls.push((first.delay_ms, Event::Asks(place, from as u32, live.next as u32)));
        }
        for (delay_ms, event) in calls {
            self.at(self.now_ms.saturating_add(delay_ms.max(0)), event);
        }
    }

    fn both(&mut self, place: u32) -> Option<(&'a Session, &mut Live)> {
        let session = self.workload.sessions.get(place as usize)?;
        Some((session, self.sessions[place as usize].as_deref_mut()?))
    }

    fn asks(&mut self, place: u32, range: std::ops::Range<usize>) {
        let now_ms = self.now_ms;
        let Some((_, live)) = self.both(place) else { return };
        live.calls -= 1;
        let tasks: Vec<u32> = live.order[range].to_vec();
        for task in &tasks {
            live.states[*task as usize].asked_ms = now_ms;
        }
        self.request(place, &tasks);
    }

    /// Requests a slot for each of these tasks.
    fn request(&mut self, place: u32, tasks: &[u32]) {
        let Some((session, live)) = self.both(place) else { return };
        let handle = live.handle.clone();
        let mut requests = Vec::with_capacity(tasks.len());
        for task in tasks {
            live.tasks.push(*task);
            let Task { kind, takes, hosts, exclude, .. } = &session.tasks[*task as usize];
            requests.push(ResourceRequest {
                id: live.tasks.len() as i32,
                hosts: hosts.to_vec(),
                specs: *takes,
                kind: *kind,
                exclude_hosts: exclude.to_vec(),
            });
        }
        live.waiting += tasks.len();
        let [pool, _] = live.accounts;
        for task in tasks {
            let task = &session.tasks[*task as usize];
            self.pending[task.kind] += 1;
            self.counts.waits(pool, task, true);
        }
        let mut racks: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        if !self.racks.is_empty() {
            let hosts = requests.iter().flat_map(|request| &request.hosts);
            let known =
                hosts.filter_map(|host| Some((host.clone(), self.racks.get(host)?.clone())));
            racks.extend(known);
            racks.sort();
            racks.dedup();
        }
        self.apply(Input::RequestResources { handle, requests, racks });
    }

    fn granted(&mut self, place: u32, grant: &Grant) {
        let now_ms = self.now_ms;
        let host = self.hosts.get(&grant.node_name).cloned();
        let Some((session, live)) = self.both(place) else { return };
        let Some(number) = live.tasks.get((grant.id - 1).max(0) as usize).copied() else { return };
        let task = &session.tasks[number as usize];
        live.waiting -= 1;
        let is_away = !task.hosts.is_empty() && host.is_none_or(|host| !task.hosts.contains(&host));
        let ms = task.away_ms.filter(|_| is_away).unwrap_or(task.ms);
        live.running.insert(grant.id, Held { since_ms: now_ms, node: grant.node_name.clone(), ms });
        let shuffles = task.shuffles && live.maps_left > 0;
        if shuffles {
            live.shuffling.push(grant.id);
        }
        let state = &mut live.states[number as usize];
        let first = !std::mem::replace(&mut state.served, true);
        let waited = u32::try_from(now_ms - state.asked_ms).unwrap_or(u32::MAX);
        let accounts = live.accounts;
        if !shuffles {
            self.at(now_ms.saturating_add(ms), Event::Done(place, grant.id));
        }
        self.pending[task.kind] -= 1;
        self.counts.waits(accounts[0], task, false);
        self.moved_ms = now_ms;
        self.holds(accounts, task, true);
        if first {
            self.measure.waited(accounts, waited);
            let result = &mut self.results[place as usize];
            result.waited_ms = result.waited_ms.saturating_add(u64::from(waited));
            if let Some(recorded) = task.waited_ms {
                let recorded = u32::try_from(recorded.max(0)).unwrap_or(u32::MAX);
                self.measure.compared.recorded.push(recorded);
                self.measure.compared.simulated.push(waited);
            }
        }
    }

    /// A task has what it requested, or gives it back.
    fn holds(&mut self, accounts: [usize; 2], task: &Task, more: bool) {
        let (slots, takes) = self.counts.taken(task);
        self.counts.holds(takes, more);
        self.measure.slot(self.now_ms, accounts, if more { slots } else { -slots }, takes);
    }

    /// Grants are taken back, or lost with their node: their tasks start again elsewhere.
    fn lost(&mut self, place: u32, ids: Vec<i32>, revoked: bool) {
        let now_ms = self.now_ms;
        let Some((session, live)) = self.both(place) else { return };
        let mut again = Vec::new();
        let mut work_ms = Vec::new();
        for id in &ids {
            let Some(held) = live.running.remove(id) else { continue };
            let Some(task) = live.tasks.get((*id - 1).max(0) as usize).copied() else { continue };
            live.shuffling.retain(|other| other != id);
            live.states[task as usize].asked_ms = now_ms;
            again.push(task);
            work_ms.push(now_ms - held.since_ms);
        }
        let (handle, accounts) = (live.handle.clone(), live.accounts);
        for (task, ms) in again.iter().zip(work_ms) {
            self.holds(accounts, &session.tasks[*task as usize], false);
            self.measure.lost(accounts, revoked, ms);
        }
        if again.is_empty() {
            return;
        }
        self.apply(Input::ReleaseResources { handle, ids });
        self.request(place, &again);
    }

    fn done(&mut self, place: u32, id: i32) {
        let now_ms = self.now_ms;
        let Some((session, live)) = self.both(place) else { return };
        if live.running.remove(&id).is_none() {
            return;
        }
        let Some(number) = live.tasks.get((id - 1).max(0) as usize).copied() else { return };
        live.ended += 1;
        let mut released = Vec::new();
        if session.tasks[number as usize].kind == ResourceType::Map {
            live.maps_left -= 1;
            if live.maps_left == 0 {
                released = std::mem::take(&mut live.shuffling);
            }
        }
        let ends = released.into_iter().filter_map(|id| Some((live.running.get(&id)?.ms, id)));
        let ends: Vec<(i64, i32)> = ends.collect();
        let (handle, accounts) = (live.handle.clone(), live.accounts);
        let is_last = live.ended == session.tasks.len();
        for (ms, id) in ends {
            self.at(now_ms.saturating_add(ms), Event::Done(place, id));
        }
        self.progress.ended += 1;
        self.holds(accounts, &session.tasks[number as usize], false);
        self.apply(Input::ReleaseResources { handle, ids: vec![id] });
        match is_last {
            true => self.at(now_ms.saturating_add(session.lingers_ms), Event::Leaves(place)),
            false => self.plan_calls(place),
        }
    }

    fn leaves(&mut self, place: u32) {
        let Some(live) = self.sessions[place as usize].take() else { return };
        let handle = live.handle.clone();
        self.apply(Input::EndSession { handle: handle.clone(), status: SessionStatus::Successful });
        self.places.remove(&handle);
        self.results[place as usize].ended_ms = Some(self.now_ms);
        let deadline_ms =
            self.workload.sessions.get(place as usize).and_then(|one| one.deadline_ms);
        self.measure.late += u64::from(deadline_ms.is_some_and(|at| self.now_ms > at));
        self.is_over(place);
    }

    fn is_over(&mut self, place: u32) {
        self.open -= 1;
        for (follower, delay_ms) in self.followers.remove(&place).unwrap_or_default() {
            self.at(self.now_ms.saturating_add(delay_ms.max(0)), Event::Arrives(follower));
        }
    }

    fn finish(mut self, name: &str, stopped_at_ms: Option<i64>) -> Run {
        let mut unserved = 0;
        for live in self.sessions.iter().flatten() {
            let [pool, user] = live.accounts;
            unserved += live.waiting as u64;
            self.measure.pools[pool].unserved += live.waiting as u64;
            self.measure.users[user].unserved += live.waiting as u64;
        }
        let nodes = &self.workload.nodes;
        let tasks = self.workload.sessions.iter().flat_map(|session| &session.tasks);
        let held = tasks.filter_map(|task| Some((task.held_ms?, self.counts.taken(task).0)));
        self.measure.compared.slot_ms = held.map(|(ms, slots)| ms as f64 * slots as f64).sum();
        let mut run = self.measure.finish(name, self.now_ms, (&self.engine, &self.counts), nodes);
        run.ended_ms =
            self.results.iter().filter_map(|session| session.ended_ms).max().unwrap_or(0);
        run.stopped_at_ms = stopped_at_ms;
        run.cluster.unserved = unserved;
        run.cluster.unfinished = self.open as u64;
        run.sessions = self.results;
        run
    }
}

impl Live {
    fn new(handle: Arc<str>, accounts: [usize; 2], session: &Session) -> Live {
        let mut order: Vec<u32> = (0..session.tasks.len() as u32).collect();
        order.sort_by_key(|task| {
            let task = &session.tasks[*task as usize];
            (task.after, task.delay_ms)
        });
        let maps = session.tasks.iter().filter(|task| task.kind == ResourceType::Map);
        Live {
            handle,
            accounts,
            maps_left: maps.count(),
            order,
            states: vec![TaskState::default(); session.tasks.len()],
            ..Live::default()
        }
    }
}
