//! The peers of a simulated cluster: nodes that join, report, change and lie, sessions that ask,
//! release, repeat themselves and vanish, operators who change things, and time that jumps.
//!
//! Chooses only the events. Their consequences are for the engine and the [`Model`].

use std::collections::VecDeque;
use std::sync::Arc;

use super::Random;
use super::model::{Model, ModelSession, Name, WishState};
use super::{Plan, weather};
use corona_engine::{Engine, Input, NodeUsageReport, RequestSummary, SessionView};
use corona_model::settings::Settings;
use corona_model::types::{
    AccessId, Address, ComputeSpecs, Millis, NodeReport, PerType, PoolName, ResourceRequest,
    ResourceType, SessionInfo, SessionPriority, SessionStatus,
};

/// The prefix of session ids.
pub(super) const ID_PREFIX: &str = "202611210900";
/// When simulations begin.
pub(super) const BEGIN: Millis = Millis(1_790_000_000_000);

/// Access strings of nodes.
const ACCESS_IDS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Deed {
    Join,
    Report,
    ReportOddly,
    Start,
    Ask,
    Release,
    End,
    Update,
    Heartbeat,
    Vanish,
    Repeat,
    Accuse,
    Pardon,
    EditHostFiles,
    Restart,
    Kill,
    Unreachable,
    SafeMode,
    Configure,
    TakeId,
    WakeEarly,
    Jump,
    Replace,
    Leave,
    Drain,
    ShowCertificate,
    RevokeAccess,
}

/// How often each thing happens. A run leaves some out and does others more often, so that runs
/// differ in kind.
const USUAL: [(Deed, usize); 22] = [
    (Deed::Join, 6),
    (Deed::Report, 25),
    (Deed::ReportOddly, 6),
    (Deed::Start, 7),
    (Deed::Ask, 30),
    (Deed::Release, 30),
    (Deed::End, 4),
    (Deed::Update, 4),
    (Deed::Heartbeat, 10),
    (Deed::Vanish, 2),
    (Deed::Repeat, 4),
    (Deed::Accuse, 4),
    (Deed::EditHostFiles, 1),
    (Deed::Restart, 1),
    (Deed::Kill, 1),
    (Deed::Unreachable, 1),
    (Deed::SafeMode, 1),
    (Deed::Configure, 1),
    (Deed::TakeId, 1),
    (Deed::WakeEarly, 2),
    (Deed::Jump, 4),
    (Deed::Pardon, 1),
];

/// All peers of one run.
#[derive(Debug)]
pub(super) struct Peers {
    random: Random,
    now: Millis,
    deeds: Vec<(Deed, usize)>,
    hosts: Vec<Name>,
    racks: Vec<(Name, Name)>,
    /// Inputs that follow at once.
    agenda: VecDeque<Input>,
    last: Input,
    nodes_named: u32,
    sessions_named: u32,
    requests_named: i32,
    /// How many peers there should be.
    most_nodes: usize,
    most_sessions: usize,
    /// Whether sessions want much more than there is, and rarely release anything.
    crowded: bool,
    /// Requests that a session has before it rather releases some.
    many_requests: usize,
    /// Nodes that report no more.
    silent: Vec<Name>,
    /// Whether operators change trees of queues.
    trees: bool,
    /// Whether operators change the resources that are counted, and peers name amounts of all of them.
    resources: bool,
}

impl Peers {
    pub(super) fn new(mut random: Random, plan: Plan) -> Self {
        let Plan { restarts, trees, resources, .. } = plan;
        let hosts: Vec<Name> =
            (0..random.between(2, 10)).map(|host| format!("host{host}").into()).collect();
        let rack_count = random.between(1, 4) as usize;
        // Racks are sorted by host, as the engine wants them. The first rack is the default one.
        let mut racks: Vec<(Name, Name)> = hosts
            .iter()
            .enumerate()
            .filter(|(host, _)| host % rack_count > 0)
            .map(|(host, name)| (name.clone(), format!("/rack{}", host % rack_count).into()))
            .collect();
        racks.sort();
        let deeds = USUAL.map(|(deed, weight)| (deed, weight * random.pick(&[0, 1, 1, 1, 4])));
        let mut deeds: Vec<_> = deeds.into_iter().filter(|(_, weight)| *weight > 0).collect();
        // Without nodes and requests nothing happens.
        deeds.extend([Deed::Join, Deed::Report, Deed::Start, Deed::Ask].map(|deed| (deed, 5)));
        if restarts {
            deeds.extend([(Deed::Replace, 8), (Deed::Leave, 3), (Deed::Drain, 4)]);
            deeds.extend([(Deed::ShowCertificate, 8), (Deed::RevokeAccess, 3)]);
        }
        let crowded = random.percent(40);
        Peers {
            now: BEGIN,
            deeds,
            hosts,
            racks,
            agenda: VecDeque::new(),
            last: Input::Tick,
            nodes_named: 0,
            sessions_named: 0,
            requests_named: 0,
            most_nodes: random.between(1, if crowded { 4 } else { 12 }) as usize,
            most_sessions: random.between(if crowded { 3 } else { 1 }, 8) as usize,
            crowded,
            many_requests: *random.pick(&[20, 60, 60, 250]),
            trees,
            resources,
            silent: Vec::new(),
            random,
        }
    }

    /// The next event, and its time.
    pub(super) fn next(&mut self, model: &Model, engine: &Engine) -> (Millis, Input) {
        let input = self.choose(model, engine);
        self.last = input.clone();
        (self.now, input)
    }

    /// The end of a run: every peer leaves, and no state may remain.
    pub(super) fn farewell(&mut self, model: &Model, engine: &Engine) -> Option<(Millis, Input)> {
        let input = if model.safe_mode {
            Input::SetSafeMode { on: false }
        } else if engine.wants_pass() {
            Input::Pass
        } else if let Some(handle) = model.sessions.keys().next() {
            self.end(handle.clone())
        } else if !model.nodes.is_empty() {
            self.now = self.now.plus_ms(model.settings.node_expiry_ms + 1);
            Input::Tick
        } else {
            return None;
        };
        Some((self.now, input))
    }

    fn choose(&mut self, model: &Model, engine: &Engine) -> Input {
        if let Some(input) = self.agenda.pop_front() {
            return input;
        }
        let due = engine.next_deadline().is_some_and(|at| at <= self.now);
        if due && self.random.percent(80) {
            return Input::Tick;
        }
        // Several inputs may share one pass.
        if engine.wants_pass() && self.random.percent(60) {
            return Input::Pass;
        }
        if model.safe_mode && self.random.percent(30) {
            return Input::SetSafeMode { on: false };
        }
        let pause_ms = [0, 0, 0, 1, 7, 30, 150];
        self.now = self.now.plus_ms(*self.random.pick(&pause_ms));
        let total = self.deeds.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.below(total);
        let chosen = self.deeds.iter().find(|(_, weight)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        let deed = match chosen {
            _ if model.sessions.is_empty() && self.random.percent(60) => Deed::Start,
            _ if model.nodes.is_empty() && self.random.percent(60) => Deed::Join,
            chosen => chosen.map_or(Deed::TakeId, |(deed, _)| *deed),
        };
        self.act(deed, model, engine)
    }

    fn act(&mut self, deed: Deed, model: &Model, engine: &Engine) -> Input {
        match deed {
            Deed::Join if model.nodes.len() < self.most_nodes => self.join(model),
            Deed::Join | Deed::Report => self.report(model),
            Deed::ReportOddly => self.report_oddly(model),
            Deed::Start if model.sessions.len() < self.most_sessions => self.start(model),
            Deed::Start | Deed::Ask => self.ask(model),
            Deed::Release => self.release(model),
            Deed::End => {
                let handle = self.handle(model);
                self.end(handle)
            }
            Deed::Update => Input::UpdateSession { handle: self.handle(model), info: self.info() },
            Deed::Heartbeat => self.heartbeat(model),
            Deed::Vanish => self.vanish(model),
            Deed::Repeat => self.last.clone(),
            Deed::Accuse => self.accuse(model),
            Deed::Pardon => self.pardon(model),
            Deed::EditHostFiles => {
                Input::HostsChanged { hosts: weather::host_files(&mut self.random, &self.hosts) }
            }
            Deed::Restart => Input::RestartNodes {
                force: self.random.percent(50),
                batch_size: self.random.between(-1, 4) as i32,
            },
            Deed::Kill => Input::KillSession { handle: self.handle(model) },
            Deed::Unreachable => Input::NotificationFailed { handle: self.handle(model) },
            Deed::SafeMode => Input::SetSafeMode { on: self.random.percent(70) },
            Deed::Configure => {
                let mut settings = weather::changed(&mut self.random, &model.settings);
                if self.trees && self.random.percent(60) {
                    weather::tree(&mut self.random, &mut settings);
                }
                if self.resources && self.random.percent(30) {
                    weather::resources(&mut self.random, &mut settings);
                }
                if self.resources {
                    weather::reserves(&self.random, &mut settings);
                }
                if self.trees && self.resources {
                    weather::quotas(&self.random, &mut settings);
                }
                Input::SettingsChanged { settings: Box::new(settings) }
            }
            Deed::TakeId => Input::NextSessionId,
            Deed::WakeEarly => Input::Tick,
            Deed::Jump => self.jump(model, engine),
            Deed::Replace => self.replace(model),
            Deed::Leave => self.leave(model),
            Deed::Drain => self.drain(model),
            Deed::ShowCertificate => self.show_certificate(model),
            Deed::RevokeAccess => self.revoke_access(),
        }
    }

    /// Time passes. Most peers send something afterwards, before or after the clock is read.
    fn jump(&mut self, model: &Model, engine: &Engine) -> Input {
        let deadline = engine.next_deadline().filter(|at| *at > self.now);
        self.now = match deadline {
            Some(at) if self.random.percent(60) => at.plus_ms(self.random.between(-1, 1).max(0)),
            _ => self.now.plus_ms(*self.random.pick(&[300, 1_100, 2_500, 12_000])),
        };
        // The cluster manager was stalled meanwhile, or reports so.
        if self.random.percent(5) {
            return Input::HeldUp { ms: *self.random.pick(&[-1, 1, 700, 12_000]) };
        }
        let heard = *self.random.pick(&[50, 100, 100]);
        for name in model.nodes.keys() {
            if self.random.percent(heard) && !self.silent.contains(name) {
                let report = self.known_report(name, model);
                self.agenda.push_back(self.node_heartbeat(report));
            }
        }
        for handle in model.sessions.keys() {
            if self.random.percent(heard) {
                let handle = handle.clone();
                self.agenda.push_back(Input::HeartbeatSession { handle, view: None });
            }
        }
        if self.random.percent(30) {
            return Input::Tick;
        }
        self.agenda.push_back(Input::Tick);
        self.agenda.pop_front().unwrap_or(Input::Tick)
    }

    fn join(&mut self, model: &Model) -> Input {
        self.nodes_named += 1;
        let host = self.random.pick(&self.hosts).clone();
        // Now and then a name is used again.
        let number = if self.random.percent(10) {
            self.random.between(1, i64::from(self.nodes_named)) as u32
        } else {
            self.nodes_named
        };
        let name: Name = format!("node{number}").into();
        self.silent.retain(|silent| *silent != name && model.nodes.contains_key(silent));
        let mut report = NodeReport {
            name,
            address: Address { host, port: 50_000 + number as i32 },
            total: self.specs(),
            free: None,
            apps: PerType::default(),
        };
        report.apps = self.apps();
        report.free = self.free();
        self.node_heartbeat(report)
    }

    /// A process of a node takes the place of others on its host, of which some may never have been heard.
    fn replace(&mut self, model: &Model) -> Input {
        let join = self.join(model);
        let Input::HeartbeatNode { report, .. } = &join else { return join };
        let host = report.address.host.clone();
        let of_host = |(_, node): &(&Name, &super::model::Node)| node.address.host == host;
        let known = model.nodes.iter().filter(of_host).map(|(name, _)| name.clone());
        let mut names: Vec<Name> = known.filter(|_| self.random.percent(60)).collect();
        // A name of another host is passed over, and so is an unknown one.
        names.extend(model.nodes.keys().next().cloned());
        names.push("unheard".into());
        self.agenda.push_back(join);
        Input::NodesEnded { host, names }
    }

    fn leave(&mut self, model: &Model) -> Input {
        let all: Vec<_> = model.nodes.iter().collect();
        if all.is_empty() {
            return self.join(model);
        }
        let (name, node) = *self.random.pick(&all);
        Input::NodesEnded { host: node.address.host.clone(), names: vec![name.clone()] }
    }

    /// A node shows another certificate, or none.
    fn show_certificate(&mut self, model: &Model) -> Input {
        let node = self.some_node(model);
        let access =
            self.random.percent(90).then(|| AccessId(self.random.below(ACCESS_IDS) as u32));
        Input::NodeAccess { node, access }
    }

    /// An administrator revokes access, which several nodes may use, or none.
    fn revoke_access(&mut self) -> Input {
        let count = self.random.between(1, 2);
        let ids = (0..count).map(|_| AccessId(self.random.below(ACCESS_IDS) as u32)).collect();
        Input::AccessRevoked { ids }
    }

    /// An operator drains a node or lets one serve again, sometimes one that is not there.
    fn drain(&mut self, model: &Model) -> Input {
        let node = self.some_node(model);
        Input::DrainNode { node, on: self.random.percent(50) }
    }

    /// The name of a node, sometimes of none.
    fn some_node(&mut self, model: &Model) -> Name {
        let names: Vec<&Name> = model.nodes.keys().collect();
        match names.is_empty() || self.random.percent(5) {
            true => Arc::from("nowhere"),
            false => (*self.random.pick(&names)).clone(),
        }
    }

    fn report(&mut self, model: &Model) -> Input {
        let names: Vec<&Name> =
            model.nodes.keys().filter(|name| !self.silent.contains(name)).collect();
        if names.is_empty() {
            return self.join(model);
        }
        let name = *self.random.pick(&names);
        let report = self.known_report(name, model);
        self.node_heartbeat(report)
    }

    fn report_oddly(&mut self, model: &Model) -> Input {
        let names: Vec<&Name> = model.nodes.keys().collect();
        if names.is_empty() {
            return self.join(model);
        }
        let name = *self.random.pick(&names);
        let mut report = self.known_report(name, model);
        match self.random.below(5) {
            0 => report.total = self.specs(),
            1 => report.apps = self.apps(),
            2 => report.address.host = self.random.pick(&self.hosts).clone(),
            3 => report.free = self.free(),
            _ => self.silent.push(name.clone()),
        }
        if self.resources {
            lie(&self.random, &mut report);
        }
        self.node_heartbeat(report)
    }

    fn known_report(&self, name: &Name, model: &Model) -> NodeReport {
        let node = &model.nodes[name];
        NodeReport {
            name: name.clone(),
            address: node.address.clone(),
            total: node.total,
            free: None,
            apps: node.apps.clone(),
        }
    }

    fn node_heartbeat(&self, report: NodeReport) -> Input {
        let host = &report.address.host;
        let at = self.racks.binary_search_by(|(named, _)| named.cmp(host)).ok();
        let rack = at.and_then(|at| self.racks.get(at)).map(|(_, rack)| rack.clone());
        Input::HeartbeatNode { report, rack }
    }

    fn specs(&mut self) -> ComputeSpecs {
        let cpus = match self.random.below(20) {
            0 => -3,
            1 => 0,
            _ => *self.random.pick(&[1, 2, 2, 3, 4, 8]),
        };
        ComputeSpecs {
            num_cpus: cpus,
            network_mbps: self.resources.then(|| self.random.between(0, 40) as i16),
            memory_mb: Some(self.random.between(50, 500) as i32),
            disk_gb: Some(self.random.between(5, 50) as i32),
        }
    }

    fn free(&mut self) -> Option<ComputeSpecs> {
        match self.random.below(4) {
            0 => Some(ComputeSpecs::default()),
            1 => Some(self.specs()),
            _ => None,
        }
    }

    fn apps(&mut self) -> PerType<Option<Name>> {
        PerType([(); 3].map(|()| match self.random.below(10) {
            0 => None,
            1 => Some("other:2".into()),
            _ => Some("app:1".into()),
        }))
    }

    fn start(&mut self, model: &Model) -> Input {
        self.sessions_named += 1;
        let handle = match self.random.below(25) {
            0 => format!("999.{}", self.sessions_named),
            1 => format!("{ID_PREFIX}.x"),
            2 => return Input::StartSession { handle: self.handle(model), info: self.info() },
            _ => format!("{ID_PREFIX}.{}", self.sessions_named),
        };
        Input::StartSession { handle: handle.into(), info: self.info() }
    }

    fn info(&mut self) -> SessionInfo {
        let pool: Option<PoolName> =
            (!self.random.percent(5)).then(|| weather::pool_name(&mut self.random));
        let priority = *self.random.pick(&[
            None,
            Some(SessionPriority::Low),
            Some(SessionPriority::Normal),
            Some(SessionPriority::High),
        ]);
        SessionInfo {
            address: Address { host: "driver".into(), port: self.random.between(1, 9) as i32 },
            name: (*self.random.pick(&["job", "query"])).into(),
            user_id: (*self.random.pick(&["ann", "bob", "Eve"])).into(),
            group_ids: self.trees.then(|| vec!["staff".into()]),
            pool,
            priority,
            no_preempt: *self.random.pick(&[None, Some(false), Some(false), Some(true)]),
            url: None,
            deadline: *self.random.pick(&[None, Some(0), Some(5), Some(7)]),
        }
    }

    fn ask(&mut self, model: &Model) -> Input {
        let handle = self.handle(model);
        let session = model.sessions.get(&handle);
        if session.is_some_and(|session| session.wishes.len() > self.many_requests) {
            return self.release_of(handle, session);
        }
        let usual: &[i32] = if self.crowded { &[4, 8, 25] } else { &[0, 1, 1, 1, 2, 4, 8, 25] };
        let count = *self.random.pick(usual);
        let template = self.wish();
        let alike = self.random.percent(50);
        let requests = (0..count).map(|_| {
            let mut request = if alike { template.clone() } else { self.wish() };
            // Ids grow, except for peers that have lost count.
            self.requests_named += 1;
            request.id = match self.random.below(40) {
                0 => self.random.between(-2, 2) as i32,
                1 => self.random.between(1, i64::from(self.requests_named)) as i32,
                _ => self.requests_named,
            };
            request
        });
        let requests: Vec<ResourceRequest> = requests.collect();
        let racks = self.racks.clone();
        if self.random.percent(85) {
            return Input::RequestResources { handle, requests, racks };
        }
        // A call in parts. Now and then its session ends between two of them.
        let summary = RequestSummary::of(&requests);
        for part in requests.chunks(3) {
            if self.random.percent(5) {
                self.agenda.push_back(Input::KillSession { handle: handle.clone() });
            }
            if self.random.percent(50) {
                self.agenda.push_back(Input::Pass);
            }
            let (handle, racks) = (handle.clone(), racks.clone());
            self.agenda.push_back(Input::MoreRequests { handle, requests: part.to_vec(), racks });
        }
        Input::ExpectRequests { handle, summary }
    }

    fn wish(&mut self) -> ResourceRequest {
        let kind = *self.random.pick(&[
            ResourceType::Map,
            ResourceType::Map,
            ResourceType::Map,
            ResourceType::Reduce,
            ResourceType::JobTracker,
        ]);
        let mut some = |chances: &[i64]| -> Vec<Name> {
            let count = *self.random.pick(chances);
            (0..count).map(|_| self.random.pick(&self.hosts).clone()).collect()
        };
        let (hosts, mut exclude_hosts) = (some(&[0, 0, 1, 2, 3]), some(&[0, 0, 0, 1, 3]));
        if !self.random.percent(2) {
            exclude_hosts.retain(|host| !hosts.contains(host));
        }
        let cpus = *self.random.pick(&[1, 1, 1, 1, 1, 1, 2, 3, 0, -7]);
        let mut specs = ComputeSpecs { num_cpus: cpus, ..ComputeSpecs::default() };
        if self.resources {
            specs = self.demand(cpus);
        }
        let specs = (!self.random.percent(5)).then_some(specs);
        ResourceRequest { id: 0, hosts, specs, kind, exclude_hosts }
    }

    /// Amounts of some resources, or the ones that the original's job trackers always send.
    fn demand(&mut self, num_cpus: i16) -> ComputeSpecs {
        if self.random.percent(10) {
            let network_mbps = Some(*self.random.pick(&[10, 50]));
            let (memory_mb, disk_gb) = (Some(1_024), Some(10));
            return ComputeSpecs { num_cpus: 1, network_mbps, memory_mb, disk_gb };
        }
        ComputeSpecs {
            num_cpus,
            network_mbps: *self.random.pick(&[None, None, Some(0), Some(3), Some(20)]),
            memory_mb: *self.random.pick(&[
                None,
                Some(-1),
                Some(10),
                Some(60),
                Some(200),
                Some(450),
            ]),
            disk_gb: *self.random.pick(&[None, None, Some(2), Some(20)]),
        }
    }

    fn release(&mut self, model: &Model) -> Input {
        let handle = self.handle(model);
        let session = model.sessions.get(&handle);
        self.release_of(handle, session)
    }

    fn release_of(&mut self, handle: Name, session: Option<&ModelSession>) -> Input {
        let usual: &[usize] = if self.crowded { &[1, 2, 20] } else { &[5, 30, 100] };
        let chance = *self.random.pick(usual);
        // Job trackers release grants more often than they withdraw requests.
        let mut ids: Vec<i32> = Vec::new();
        for (id, wish) in session.into_iter().flat_map(|session| &session.wishes) {
            let chance = if wish.state == WishState::Waits { chance / 4 } else { chance };
            if self.random.percent(chance) {
                ids.push(*id);
            }
        }
        if self.random.percent(15) {
            ids.extend([i32::MAX, 0, self.requests_named]);
            ids.extend(ids.first().copied());
        }
        Input::ReleaseResources { handle, ids }
    }

    fn end(&mut self, handle: Name) -> Input {
        let status = *self.random.pick(&SessionStatus::ALL);
        Input::EndSession { handle, status }
    }

    fn heartbeat(&mut self, model: &Model) -> Input {
        let handle = self.handle(model);
        let in_step = model.sessions.get(&handle).map_or(0, |session| session.request_id);
        let view = match self.random.below(12) {
            0 => Some(in_step + 1),
            1..=5 => None,
            _ => Some(in_step),
        };
        let view = view.map(|request_id| SessionView {
            request_id,
            grant_id: self.random.between(0, i64::from(self.requests_named)) as i32,
            usages: PerType([Some(vec![1, 2, 3]), None, Some(Vec::new())]),
        });
        Input::HeartbeatSession { handle, view }
    }

    /// A session or a node goes silent.
    fn vanish(&mut self, model: &Model) -> Input {
        let Settings { node_expiry_ms, session_expiry_ms, .. } = model.settings;
        let wait_ms = *self.random.pick(&[node_expiry_ms, session_expiry_ms]);
        if wait_ms < 100_000 {
            self.now = self.now.plus_ms(wait_ms / 2);
        }
        Input::Tick
    }

    fn accuse(&mut self, model: &Model) -> Input {
        let node_name = self.some_node(model);
        let kinds = ResourceType::ALL.into_iter().filter(|_| self.random.percent(60)).collect();
        let failed = *self.random.pick(&[0, 5, 6, 100]);
        let failed_connections = *self.random.pick(&[0, 1, 2]);
        let report = NodeUsageReport { node_name, failed, failed_connections };
        let reports = vec![report; self.random.between(0, 2) as usize];
        Input::NodeFeedback { handle: self.handle(model), kinds, reports }
    }

    /// An operator lifts a blacklisting, if there is one.
    fn pardon(&mut self, model: &Model) -> Input {
        let nodes = model.nodes.iter();
        let blacklisted: Vec<&Name> = nodes
            .filter(|(_, node)| ResourceType::ALL.iter().any(|it| model.blacklisted(node, *it)))
            .map(|(name, _)| name)
            .collect();
        let node = match blacklisted.is_empty() {
            true => Arc::from("nowhere"),
            false => (*self.random.pick(&blacklisted)).clone(),
        };
        let kind = *self.random.pick(&[None, None, Some(ResourceType::Map)]);
        Input::ClearBlacklist { node, kind }
    }

    /// Mostly the handle of a running session.
    fn handle(&mut self, model: &Model) -> Name {
        let handles: Vec<&Name> = model.sessions.keys().collect();
        if handles.is_empty() || self.random.percent(4) {
            let number = self.random.between(0, i64::from(self.sessions_named));
            return format!("{ID_PREFIX}.{number}").into();
        }
        (*self.random.pick(&handles)).clone()
    }
}

/// Makes a node report more or less than it has, or numbers that mean nothing. `random` is left as it is, so that
/// runs draw the same numbers as before there were lies.
fn lie(random: &Random, report: &mut NodeReport) {
    let mut random = Random::new(random.clone().next());
    if !random.percent(20) {
        return;
    }
    let garbage = [i32::MIN, -1, 0, 1, i32::MAX];
    let twist = |random: &mut Random, specs: &mut ComputeSpecs| {
        match random.below(6) {
            // More, less or nothing of the one, and nonsense of the other.
            0 => specs.memory_mb = specs.memory_mb.map(|memory| memory.saturating_mul(3)),
            1 => specs.memory_mb = specs.memory_mb.map(|memory| memory / 3),
            2 => (specs.memory_mb, specs.disk_gb, specs.network_mbps) = (None, None, None),
            3 => specs.memory_mb = Some(*random.pick(&garbage)),
            4 => specs.disk_gb = Some(*random.pick(&garbage)),
            _ => {
                specs.network_mbps = Some(*random.pick(&[i16::MIN, -1, 0, i16::MAX]));
                specs.num_cpus = *random.pick(&[i16::MIN, 0, 300]);
            }
        }
    };
    twist(&mut random, &mut report.total);
    if random.percent(50) {
        // More is free than there is, or less than nothing.
        let mut free = report.total;
        twist(&mut random, &mut free);
        report.free = Some(free);
    }
}
