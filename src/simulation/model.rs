//! The knowledge of all peers of a simulated cluster: the reports of nodes, and the requests and
//! notifications of sessions. The simplest model that follows the rules, without any index.
//!
//! It sees inputs and outcomes only. Its predictions and the engine's actions must agree, and the
//! engine may grant only free slots.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::queues::Claimed;
use super::reservations::Reserved;
use super::room::Exchanges;
use corona_engine::{
    Effect, Input, NodeUsageReport, Notification, Outcome, Refusal, Reply, RequestSummary,
    SessionView, TypeCounts,
};
use corona_model::settings::{Hosts, Settings};
use corona_model::types::{
    AccessId, Address, ComputeSpecs, Grant, Millis, NodeReport, PerType, PoolName, ResourceRequest,
    ResourceType, SessionInfo,
};

/// A handle, a node's name or a host.
pub(super) type Name = Arc<str>;

/// A request as its session sees it.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) kind: ResourceType,
    pub(super) specs: Option<ComputeSpecs>,
    pub(super) hosts: Vec<Name>,
    pub(super) excluded: Vec<Name>,
    pub(super) asked: Millis,
    pub(super) state: WishState,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum WishState {
    Waits,
    Holds { node: Name, at: Millis },
    Lost,
}

/// A running session.
#[derive(Clone, Debug)]
pub(super) struct ModelSession {
    address: Address,
    /// The pool in which it is scheduled.
    pub(super) pool: PoolName,
    told_pool: PoolName,
    pub(super) no_preempt: bool,
    pub(super) started: Millis,
    heard: Millis,
    pub(super) request_id: i32,
    pub(super) wishes: BTreeMap<i32, Wish>,
    pub(super) counts: PerType<TypeCounts>,
    pub(super) user: Name,
    /// Counts sessions in the order of their start.
    pub(super) serial: u64,
    /// Whether it has had its turn: limits of sessions do not hold it up any more.
    pub(super) served: bool,
}

/// A node that is alive, as far as its peers know.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) address: Address,
    pub(super) total: ComputeSpecs,
    free: ComputeSpecs,
    pub(super) heard: Millis,
    pub(super) late: bool,
    pub(super) apps: PerType<Option<Name>>,
    pub(super) used: PerType<u32>,
    faults: PerType<Faults>,
    pub(super) visitors: BTreeMap<Name, Visit>,
    /// Whether its host was not allowed at some time since its last heartbeat.
    pub(super) shut: bool,
    pub(super) draining: bool,
    pub(super) access: Option<AccessId>,
    pub(super) revoked: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    connections: u32,
    failures: u32,
    blacklisted: bool,
}

/// A running session's grants on a node, and its reports about it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visit {
    granted: PerType<bool>,
    connections: PerType<bool>,
    failures: PerType<bool>,
}

/// The books.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) settings: Settings,
    pub(super) safe_mode: bool,
    pub(super) hosts: Hosts,
    pub(super) nodes: BTreeMap<Name, Node>,
    pub(super) sessions: BTreeMap<Name, ModelSession>,
    /// Pools that have sessions.
    pub(super) pools: BTreeMap<PoolName, PerType<TypeCounts>>,
    pub(super) groups: BTreeMap<Name, PerType<TypeCounts>>,
    /// Nodes that are kept for requests.
    pub(super) reserved: BTreeMap<Name, Reserved>,
    /// Since when.
    pub(super) reserved_since: BTreeMap<Name, Millis>,
    /// Pools whose last reservation took too long: its node, if that is still there, and when it ended.
    pub(super) expired: BTreeMap<PoolName, (Option<Name>, Millis)>,
    /// Of the last outcome: requests whose nodes served them.
    pub(super) served: Vec<(Name, Reserved)>,
    /// When the settings were last changed.
    pub(super) settings_from: Millis,
    sessions_started: u64,
    to_restart: BTreeSet<Name>,
    id_prefix: Name,
    ids_given: i64,
}

/// The rules' prediction for an input, passes aside.
struct Foreseen {
    answer: Answer,
    /// Notifications of dead nodes: session and node, in any order.
    dead: Vec<(Name, Name)>,
    ended: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Done,
    SessionId(String),
    Started(PoolName),
    Heard,
    Cleared(Vec<ResourceType>),
    Refused(Reason),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reason {
    SafeMode,
    InvalidSession,
    DisallowedNode,
    Malformed,
    TooMany,
}

use Answer::{Done, Heard, Refused, Started};

impl Model {
    pub(super) fn new(settings: Settings, id_prefix: Name) -> Self {
        Model { settings, settings_from: Millis(i64::MIN), id_prefix, ..Model::default() }
    }

    /// Enters an input and the engine's outcome, or returns the violated rule.
    pub(super) fn observe(
        &mut self,
        now: Millis,
        input: &Input,
        outcome: &Outcome,
    ) -> Result<(), String> {
        if matches!(input, Input::Observed(_)) {
            return Err("the simulated cluster manager follows no other one".into());
        }
        let mut foreseen = self.foresee(now, input);
        if let (Input::HeartbeatNode { report, .. }, Ok(Reply::NodeHeard { restart: true })) =
            (input, &outcome.reply)
        {
            if !self.to_restart.contains(&report.name) {
                return Err(format!("{} is asked to restart without reason", report.name));
            }
            foreseen.dead.extend(self.lose_node(&report.name));
        }
        let answer = answer(&outcome.reply);
        if answer != foreseen.answer {
            return Err(format!("the answer is {:?}, not {:?}", outcome.reply, foreseen.answer));
        }
        let passes = matches!(input, Input::Pass) && !self.safe_mode;
        let (mut dead, mut ended, mut resumes) = (Vec::new(), Vec::new(), false);
        let missing = PerType(ResourceType::ALL.map(|kind| match passes {
            true => self.missing_reserve(kind),
            false => 0,
        }));
        let missing_amounts = if passes { self.missing_amounts() } else { [0; 4] };
        let (mut given, mut victims) = (BTreeSet::new(), BTreeMap::new());
        let (mut claimed, mut exchanges) = (Claimed::default(), Exchanges::default());
        for effect in &outcome.effects {
            claimed.note(self, effect)?;
            exchanges.note(self, now, effect)?;
            match effect {
                Effect::Notify { handle, to, notification } => {
                    self.check_address(handle, to)?;
                    match notification {
                        Notification::Granted(grants) if passes => {
                            self.take_grants(now, handle, grants, &mut exchanges)?;
                            given.extend(grants.first().map(|grant| grant.kind));
                        }
                        Notification::Revoked(grants) if passes => {
                            if let Some(kind) = grants.first().map(|grant| grant.kind) {
                                if given.remove(&kind) {
                                    self.check_reserve(kind, missing[kind])?;
                                }
                                let (_, pools) = victims
                                    .entry(kind.index())
                                    .or_insert_with(|| (self.pool_shares(kind), BTreeSet::new()));
                                let session = self.sessions.get(handle);
                                pools.extend(session.map(|session| session.pool.clone()));
                            }
                            if self.counts_resources() {
                                exchanges.take(self, now, handle, grants)?;
                            }
                            self.give_back(now, handle, grants)?;
                        }
                        Notification::DeadNode(name) => dead.push((handle.clone(), name.clone())),
                        other => {
                            return Err(format!("{handle} is notified out of turn: {other:?}"));
                        }
                    }
                }
                Effect::ForgetSession { handle } => ended.push(handle.clone()),
                Effect::ResumeNotifications => resumes = true,
                Effect::Record(record) => {
                    let free = matches!(input, Input::SettingsChanged { .. });
                    self.note_reservation(now, record, free)?;
                }
            }
        }
        self.check_served()?;
        claimed.check(self)?;
        exchanges.check()?;
        if passes {
            self.check_kept(missing_amounts)?;
        }
        given.into_iter().try_for_each(|kind| self.check_reserve(kind, missing[kind]))?;
        for (kind, (shares, pools)) in &victims {
            self.check_victims(ResourceType::ALL[*kind], shares, pools)?;
        }
        if resumes != matches!(input, Input::SetSafeMode { on: false }) {
            return Err(format!("notifications are resumed: {resumes}"));
        }
        same("dead nodes", foreseen.dead, dead)?;
        same("ended sessions", foreseen.ended, ended)
    }

    /// Slots of a node by its CPUs.
    pub(super) fn slots(&self, node: &Node, kind: ResourceType) -> u32 {
        self.settings.partitioning.slots(node.total.num_cpus).map_or(0, |slots| slots[kind])
    }

    /// Slots that a request of the type may still be given on the node.
    pub(super) fn room(&self, node: &Node, kind: ResourceType) -> u32 {
        if self.serves(node, kind) {
            self.slots(node, kind).saturating_sub(node.used[kind])
        } else {
            0
        }
    }

    /// Whether the node may be given grants of the type, apart from its room.
    pub(super) fn serves(&self, node: &Node, kind: ResourceType) -> bool {
        let Settings { reserved_memory_mb, reserved_disk_gb, .. } = self.settings;
        !node.shut
            && !node.draining
            && !node.revoked
            && node.apps[kind].is_some()
            && !node.faults[kind].blacklisted
            && node.free.memory_mb.unwrap_or(0) >= reserved_memory_mb
            && node.free.disk_gb.unwrap_or(0) >= reserved_disk_gb
            && !(node.late && self.settings.skip_late_nodes)
    }

    /// Whether the node is blacklisted for the type.
    pub(super) fn blacklisted(&self, node: &Node, kind: ResourceType) -> bool {
        node.faults[kind].blacklisted
    }

    fn foresee(&mut self, now: Millis, input: &Input) -> Foreseen {
        let mut foreseen = Foreseen { answer: Done, dead: Vec::new(), ended: Vec::new() };
        let always = matches!(
            input,
            Input::SetSafeMode { .. } | Input::SettingsChanged { .. } | Input::AccessRevoked { .. }
        );
        if self.safe_mode && !always {
            foreseen.answer = Refused(Reason::SafeMode);
            return foreseen;
        }
        let answer = match input {
            Input::NextSessionId => {
                self.ids_given += 1;
                Ok(Answer::SessionId(format!("{}.{}", self.id_prefix, self.ids_given)))
            }
            Input::StartSession { handle, info } => self.start_session(now, handle, info),
            Input::UpdateSession { handle, .. } => self.hear(now, handle).map(|_| Done),
            Input::EndSession { handle, .. } | Input::NotificationFailed { handle } => {
                let known = self.session(handle).map(|_| Done);
                self.end(handle, &mut foreseen);
                known
            }
            Input::KillSession { handle } => {
                self.end(handle, &mut foreseen);
                Ok(Done)
            }
            Input::HeartbeatSession { handle, view } => {
                self.heartbeat_session(now, handle, view.as_ref(), &mut foreseen)
            }
            Input::RequestResources { handle, requests, .. } => self.request(now, handle, requests),
            Input::ExpectRequests { handle, summary } => self.expect(now, handle, summary),
            Input::MoreRequests { handle, requests, .. } => self.more(now, handle, requests),
            Input::ReleaseResources { handle, ids } => self.release(now, handle, ids),
            Input::HeartbeatNode { report, .. } => self.heartbeat_node(now, report, &mut foreseen),
            Input::NodeFeedback { handle, kinds, reports } => {
                reports.iter().for_each(|report| self.blame(handle, kinds, report));
                Ok(Done)
            }
            Input::ClearBlacklist { node, kind } => Ok(self.clear_blacklist(node, *kind)),
            Input::DrainNode { node, on } => {
                self.nodes.get_mut(node).into_iter().for_each(|node| node.draining = *on);
                Ok(Done)
            }
            Input::NodeAccess { node, access } => {
                if let Some(node) = self.nodes.get_mut(node)
                    && node.access != *access
                {
                    (node.access, node.revoked) = (*access, false);
                }
                Ok(Done)
            }
            Input::AccessRevoked { ids } => {
                self.revoke_access(ids, &mut foreseen);
                Ok(Done)
            }
            Input::HostsChanged { hosts } => {
                self.hosts = hosts.clone();
                for node in self.nodes.values_mut() {
                    node.shut |= !is_allowed(hosts, &node.address.host);
                }
                Ok(Done)
            }
            Input::RestartNodes { force, .. } => {
                if *force && !self.nodes.is_empty() {
                    self.to_restart.clear();
                }
                self.to_restart.extend(self.nodes.keys().cloned());
                Ok(Done)
            }
            Input::SetSafeMode { on } => {
                self.set_safe_mode(now, *on);
                Ok(Done)
            }
            Input::SettingsChanged { settings } => {
                self.take_over(now, settings);
                Ok(Done)
            }
            Input::NodesEnded { host, names } => {
                self.lose_nodes(host, names, &mut foreseen);
                Ok(Done)
            }
            Input::HeldUp { ms } => {
                self.forgive_silence(now, *ms);
                Ok(Done)
            }
            Input::Tick => {
                self.expire(now, &mut foreseen);
                let late_ms = self.settings.node_late_ms;
                self.nodes
                    .values_mut()
                    .for_each(|node| node.late |= now.since(node.heard) > late_ms);
                Ok(Done)
            }
            Input::Pass | Input::Observed(_) => Ok(Done),
        };
        foreseen.answer = answer.unwrap_or_else(Refused);
        foreseen
    }

    fn revoke_access(&mut self, ids: &[AccessId], foreseen: &mut Foreseen) {
        let is = |node: &Node| !node.revoked && node.access.is_some_and(|id| ids.contains(&id));
        let names = self.nodes.iter().filter(|(_, node)| is(node));
        for name in names.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            foreseen.dead.extend(self.revoke_node(&name));
        }
    }

    fn take_over(&mut self, now: Millis, settings: &Settings) {
        if self.settings.resources != settings.resources {
            self.expired.clear();
        }
        self.settings = self.with_vanished(settings);
        self.count_slots_anew();
        self.take_turns();
        self.settings_from = now;
        self.forgive_late(now);
    }

    fn lose_nodes(&mut self, host: &Name, names: &[Name], foreseen: &mut Foreseen) {
        for name in names {
            let of_host = |node: &Node| node.address.host == *host;
            if self.nodes.get(name).is_some_and(of_host) {
                foreseen.dead.extend(self.lose_node(name));
            }
        }
    }

    /// Nothing was received for so long, so no peer was silent.
    fn forgive_silence(&mut self, now: Millis, ms: i64) {
        let later = |heard: Millis| heard.plus_ms(ms.max(0)).min(now);
        self.nodes.values_mut().for_each(|node| node.heard = later(node.heard));
        self.forgive_late(now);
        self.sessions.values_mut().for_each(|session| session.heard = later(session.heard));
    }

    fn start_session(
        &mut self,
        now: Millis,
        handle: &Name,
        info: &SessionInfo,
    ) -> Result<Answer, Reason> {
        let number = handle.split_once('.').and_then(|(_, number)| number.parse::<i32>().ok());
        let well_formed = handle.starts_with(&*self.id_prefix) && number.is_some();
        if !well_formed || self.sessions.contains_key(handle) {
            return Err(Reason::InvalidSession);
        }
        if self.sessions.len() >= self.settings.bounds.sessions {
            return Err(Reason::TooMany);
        }
        let redirects = &self.settings.scheduling.redirects;
        let asked = info.pool.as_ref().map(|pool| redirects.get(pool).unwrap_or(pool).clone());
        let placed = self.placed(asked.as_ref(), info);
        let configured = &self.settings.pools.pools;
        if placed.is_none()
            && self.settings.configured_pools_only
            && !asked.as_ref().is_some_and(|pool| self.is_in_file(pool) && pool.is_legal())
        {
            return Err(Reason::InvalidSession);
        }
        let asked = placed.or(asked);
        let told_pool = asked.unwrap_or_else(|| PoolName::new("default", &info.user_id));
        let mut pool = told_pool.clone();
        if pool.pool.is_empty() {
            pool = PoolName::new("default", &info.user_id);
        }
        if !pool.is_legal() {
            pool = PoolName::new("default", "defaultpool");
        }
        if !self.may_submit(&pool, info) {
            return Err(Reason::InvalidSession);
        }
        let vanished = |pool: &PoolName| {
            let rules = self.settings.pools.queues.pools.get(pool);
            rules.is_some_and(|rules| rules.vanished)
        };
        let free = |pool: &PoolName| !configured.contains_key(pool) || vanished(pool);
        let in_use = self.pools.keys().filter(|pool| free(pool)).count();
        if free(&pool) && !self.pools.contains_key(&pool) && in_use >= self.settings.bounds.pools {
            return Err(Reason::TooMany);
        }
        self.pools.entry(pool.clone()).or_default();
        self.groups.entry(pool.group.clone()).or_default();
        let session = ModelSession {
            address: info.address.clone(),
            pool,
            told_pool: told_pool.clone(),
            no_preempt: info.no_preempt == Some(true),
            started: now,
            heard: now,
            request_id: 0,
            wishes: BTreeMap::new(),
            counts: PerType::default(),
            user: info.user_id.clone(),
            serial: self.sessions_started,
            served: false,
        };
        self.sessions_started += 1;
        self.sessions.insert(handle.clone(), session);
        self.take_turns();
        Ok(Started(told_pool))
    }

    fn heartbeat_session(
        &mut self,
        now: Millis,
        handle: &Name,
        view: Option<&SessionView>,
        foreseen: &mut Foreseen,
    ) -> Result<Answer, Reason> {
        let session = self.session(handle)?;
        if view.is_some_and(|view| view.request_id != session.request_id) {
            self.end(handle, foreseen);
            return Err(Reason::InvalidSession);
        }
        session.heard = now;
        Ok(Done)
    }

    fn request(
        &mut self,
        now: Millis,
        handle: &Name,
        requests: &[ResourceRequest],
    ) -> Result<Answer, Reason> {
        let mut summary = RequestSummary::default();
        for wish in requests {
            summary.counts[wish.kind] += 1;
            summary.largest_id = summary.largest_id.max(wish.id);
            summary.contradictory |=
                wish.hosts.iter().any(|host| wish.exclude_hosts.contains(host));
        }
        self.expect(now, handle, &summary)?;
        self.more(now, handle, requests)
    }

    fn expect(
        &mut self,
        now: Millis,
        handle: &Name,
        summary: &RequestSummary,
    ) -> Result<Answer, Reason> {
        let legal = self.settings.partitioning.legal_types();
        let illegal = |kind| summary.counts[kind] > 0 && !legal[kind];
        if ResourceType::ALL.into_iter().any(illegal) || summary.contradictory {
            return Err(Reason::Malformed);
        }
        let session = self.sessions.get_mut(handle).ok_or(Reason::InvalidSession)?;
        let limits = self.settings.pools.pools.get(&session.told_pool);
        for kind in ResourceType::ALL {
            let limit = limits.filter(|pool| pool.request_max).map(|pool| pool.maximum[kind]);
            if limit.is_some_and(|limit| summary.counts[kind] as i64 > i64::from(limit)) {
                return Err(Reason::InvalidSession);
            }
        }
        let known = session.wishes.len();
        if known + summary.count() > self.settings.bounds.requests_per_session {
            return Err(Reason::TooMany);
        }
        session.heard = now;
        session.request_id = summary.largest_id;
        Ok(Done)
    }

    fn more(
        &mut self,
        now: Millis,
        handle: &Name,
        requests: &[ResourceRequest],
    ) -> Result<Answer, Reason> {
        let legal = self.settings.partitioning.legal_types();
        let session = self.sessions.get_mut(handle).ok_or(Reason::InvalidSession)?;
        let contradicts = |wish: &ResourceRequest| {
            wish.hosts.iter().any(|host| wish.exclude_hosts.contains(host))
        };
        if requests.iter().any(|wish| !legal[wish.kind] || contradicts(wish)) {
            return Err(Reason::Malformed);
        }
        let known = session.wishes.len();
        if known + requests.len() > self.settings.bounds.requests_per_session {
            return Err(Reason::TooMany);
        }
        session.heard = now;
        let mut added = Vec::new();
        for wish in requests {
            let Entry::Vacant(place) = session.wishes.entry(wish.id) else { continue };
            place.insert(Wish {
                kind: wish.kind,
                specs: wish.specs,
                hosts: wish.hosts.clone(),
                excluded: wish.exclude_hosts.clone(),
                asked: now,
                state: WishState::Waits,
            });
            added.push(wish.kind);
        }
        for kind in added {
            self.count(handle, kind, TypeCounts { requested: 1, pending: 1, granted: 0 });
        }
        Ok(Done)
    }

    fn release(&mut self, now: Millis, handle: &Name, ids: &[i32]) -> Result<Answer, Reason> {
        self.hear(now, handle)?;
        for id in ids {
            let session = self.session(handle)?;
            if let Some(wish) = session.wishes.remove(id) {
                self.forget(handle, &wish);
            }
        }
        Ok(Done)
    }

    /// Removes a lost request from the counts and frees its slot.
    fn forget(&mut self, handle: &Name, wish: &Wish) {
        let need = self.need(wish);
        let (mut pending, mut granted) = (0, 0);
        match &wish.state {
            WishState::Waits => pending = -1,
            WishState::Lost => {}
            WishState::Holds { node, .. } => {
                granted = -1;
                if let Some(node) = self.nodes.get_mut(node) {
                    node.used[wish.kind] -= need;
                }
            }
        }
        self.count(handle, wish.kind, TypeCounts { requested: -1, pending, granted });
    }

    /// A session ends, if it runs.
    fn end(&mut self, handle: &Name, foreseen: &mut Foreseen) {
        let Some(session) = self.sessions.get_mut(handle) else { return };
        let pool = session.pool.clone();
        for wish in std::mem::take(&mut session.wishes).into_values() {
            self.forget(handle, &wish);
        }
        self.sessions.remove(handle);
        for node in self.nodes.values_mut() {
            node.visitors.remove(handle);
        }
        if !self.sessions.values().any(|session| session.pool == pool) {
            self.pools.remove(&pool);
            self.expired.remove(&pool);
        }
        if !self.pools.keys().any(|other| other.group == pool.group) {
            self.groups.remove(&pool.group);
        }
        self.take_turns();
        foreseen.ended.push(handle.clone());
    }

    fn heartbeat_node(
        &mut self,
        now: Millis,
        report: &NodeReport,
        foreseen: &mut Foreseen,
    ) -> Result<Answer, Reason> {
        let name = &report.name;
        if !is_allowed(&self.hosts, &report.address.host) {
            let node = self.nodes.get_mut(name).ok_or(Reason::DisallowedNode)?;
            (node.heard, node.late) = (now, false);
            node.free = report.free.unwrap_or(node.free);
            return Ok(Heard);
        }
        let known = self.nodes.contains_key(name);
        if !known && self.nodes.len() >= self.settings.bounds.nodes {
            return Err(Reason::TooMany);
        }
        let fits = self.settings.partitioning.slots(report.total.num_cpus).is_some();
        if !known && fits {
            self.nodes.insert(
                name.clone(),
                Node {
                    address: report.address.clone(),
                    total: report.total,
                    free: report.total,
                    heard: now,
                    ..Node::default()
                },
            );
        }
        let Some(node) = self.nodes.get_mut(name) else { return Err(Reason::Malformed) };
        (node.heard, node.late) = (now, false);
        if !fits {
            return Err(Reason::Malformed);
        }
        node.shut = !is_allowed(&self.hosts, &node.address.host);
        node.free = report.free.unwrap_or(node.free);
        node.total = report.total;
        let previous = std::mem::replace(&mut node.apps, report.apps.clone());
        for kind in ResourceType::ALL {
            if previous[kind].is_some() && previous[kind] != report.apps[kind] {
                let visitors = self.nodes[name].visitors.iter();
                let users = visitors.filter(|(_, visit)| visit.granted[kind]);
                foreseen.dead.extend(users.map(|(handle, _)| (handle.clone(), name.clone())));
                self.lose_grants(name, Some(kind));
            }
        }
        Ok(Heard)
    }

    /// A node's access is revoked: all that it had is lost. Returns the notifications.
    fn revoke_node(&mut self, name: &Name) -> Vec<(Name, Name)> {
        self.lose_grants(name, None);
        self.to_restart.remove(name);
        let Some(node) = self.nodes.get_mut(name) else { return Vec::new() };
        node.revoked = true;
        let visitors = std::mem::take(&mut node.visitors);
        visitors.into_keys().map(|handle| (handle, name.clone())).collect()
    }

    /// A node is lost. Returns the notifications.
    fn lose_node(&mut self, name: &Name) -> Vec<(Name, Name)> {
        self.lose_grants(name, None);
        self.to_restart.remove(name);
        let Some(node) = self.nodes.remove(name) else { return Vec::new() };
        // One of the same name that comes later is another node.
        for (last, _) in self.expired.values_mut().filter(|(last, _)| last.as_ref() == Some(name)) {
            *last = None;
        }
        node.visitors.into_keys().map(|handle| (handle, name.clone())).collect()
    }

    /// The grants on a node, of one type or of all, are lost.
    fn lose_grants(&mut self, name: &Name, of: Option<ResourceType>) {
        let mut lost = Vec::new();
        let slots = self.slots_taken();
        for (handle, session) in &mut self.sessions {
            for wish in session.wishes.values_mut() {
                let here = matches!(&wish.state, WishState::Holds { node, .. } if node == name);
                if here && of.is_none_or(|kind| wish.kind == kind) {
                    wish.state = WishState::Lost;
                    lost.push((handle.clone(), wish.kind, slots(wish)));
                }
            }
        }
        for (handle, kind, need) in lost {
            self.count(&handle, kind, TypeCounts { requested: 0, pending: 0, granted: -1 });
            if let Some(node) = self.nodes.get_mut(name) {
                node.used[kind] -= need;
            }
        }
    }

    fn blame(&mut self, handle: &Name, kinds: &[ResourceType], report: &NodeUsageReport) {
        let limits = &self.settings.faults;
        let Some(node) = self.nodes.get_mut(&report.node_name) else { return };
        let Some(visit) = node.visitors.get_mut(handle) else { return };
        for kind in ResourceType::ALL {
            if !kinds.contains(&kind) || node.apps[kind].is_none() {
                continue;
            }
            let faults = &mut node.faults[kind];
            if report.failed_connections > limits.failed_connections_of_a_session {
                faults.connections += u32::from(!visit.connections[kind]);
                visit.connections[kind] = true;
            }
            if report.failed > limits.failures_of_a_session {
                faults.failures += u32::from(!visit.failures[kind]);
                visit.failures[kind] = true;
            }
            faults.blacklisted |= faults.connections > limits.failed_connection_sessions
                || faults.failures > limits.failure_sessions;
        }
    }

    /// Late nodes whose silence is not too long any more are on time.
    fn forgive_late(&mut self, now: Millis) {
        let late_ms = self.settings.node_late_ms;
        self.nodes.values_mut().for_each(|node| node.late &= now.since(node.heard) > late_ms);
    }

    fn clear_blacklist(&mut self, name: &Name, only: Option<ResourceType>) -> Answer {
        let mut cleared = Vec::new();
        if let Some(node) = self.nodes.get_mut(name) {
            for kind in ResourceType::ALL {
                if only.is_none_or(|it| it == kind) && node.faults[kind].blacklisted {
                    node.faults[kind] = Faults::default();
                    cleared.push(kind);
                }
            }
        }
        Answer::Cleared(cleared)
    }

    fn set_safe_mode(&mut self, now: Millis, on: bool) {
        self.safe_mode = on;
        if !on {
            self.nodes.values_mut().for_each(|node| node.heard = now);
            self.forgive_late(now);
            self.sessions.values_mut().for_each(|session| session.heard = now);
        }
    }

    fn expire(&mut self, now: Millis, foreseen: &mut Foreseen) {
        let Settings { node_expiry_ms, session_expiry_ms, .. } = self.settings;
        let silent = self.nodes.iter().filter(|(_, node)| now.since(node.heard) > node_expiry_ms);
        for name in silent.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            foreseen.dead.extend(self.lose_node(&name));
        }
        let sessions = self.sessions.iter();
        let silent = sessions.filter(|(_, session)| now.since(session.heard) > session_expiry_ms);
        for handle in silent.map(|(handle, _)| handle.clone()).collect::<Vec<_>>() {
            self.end(&handle, foreseen);
        }
    }

    fn check_address(&self, handle: &Name, to: &Address) -> Result<(), String> {
        match self.sessions.get(handle) {
            Some(session) if session.address != *to => {
                Err(format!("{handle} is notified at {to:?}, not at {:?}", session.address))
            }
            _ => Ok(()),
        }
    }

    fn take_grants(
        &mut self,
        now: Millis,
        handle: &Name,
        grants: &[Grant],
        exchanges: &mut Exchanges,
    ) -> Result<(), String> {
        if grants.is_empty() || grants.iter().any(|grant| grant.kind != grants[0].kind) {
            return Err(format!("{handle} is given {grants:?} in one call"));
        }
        exchanges.others(handle, grants).iter().try_for_each(|grant| {
            self.take_grant(now, handle, grant, false)
                .map_err(|what| format!("{handle} is given {grant:?}: {what}"))
        })
    }

    /// Enters a grant; `anywhere` if it need not be near a preferred host.
    pub(super) fn take_grant(
        &mut self,
        now: Millis,
        handle: &Name,
        grant: &Grant,
        anywhere: bool,
    ) -> Result<(), String> {
        let kind = grant.kind;
        let node = self.nodes.get(&grant.node_name).ok_or("no such node")?;
        let session = self.sessions.get(handle).ok_or("no such session")?;
        let wish = session.wishes.get(&grant.id).ok_or("never asked for")?;
        let legal = self.settings.partitioning.legal_types()[kind];
        let waits = &self.settings.scheduling;
        // A wait starts after the session; settings that have changed since then count as well.
        let may_wait = waits.rack_locality_wait_ms[kind] != 0
            && self.settings_from < session.started
            && kind == ResourceType::Map;
        let near = wish.hosts.is_empty() || wish.hosts.contains(&node.address.host);
        let waited_ms = now.since(session.started);
        let was_kept = self.was_kept_for(&grant.node_name, handle, grant.id);
        for (holds, otherwise) in [
            (wish.kind == kind && legal, "of another type"),
            (wish.state == WishState::Waits, "not waited for"),
            (node.address == grant.address, "at another address"),
            (node.apps[kind].as_ref() == Some(&grant.app_info), "of another service"),
            (grant.granted_at == now, "at another time"),
            (!wish.excluded.contains(&node.address.host), "on an excluded host"),
            (self.room(node, kind) >= self.need(wish), "without room for it"),
            (self.has_resources(&grant.node_name, wish), "without the resources for it"),
            (!self.is_kept_from(&grant.node_name, handle, grant.id), "kept for another request"),
            (
                near || anywhere
                    || was_kept
                    || !may_wait
                    || waited_ms > waits.node_locality_wait_ms[kind],
                "far away before its wait is over",
            ),
        ] {
            if !holds {
                return Err(otherwise.into());
            }
        }
        let need = self.need(wish);
        self.move_to(handle, grant.id, WishState::Holds { node: grant.node_name.clone(), at: now });
        if let Some(node) = self.nodes.get_mut(&grant.node_name) {
            node.used[kind] += need;
            node.visitors.entry(handle.clone()).or_default().granted[kind] = true;
        }
        self.count(handle, kind, TypeCounts { requested: 0, pending: -1, granted: 1 });
        self.check_rules(handle, kind)
    }

    fn give_back(&mut self, now: Millis, handle: &Name, grants: &[Grant]) -> Result<(), String> {
        if grants.is_empty() {
            return Err(format!("{handle} is notified of an empty revocation"));
        }
        grants.iter().try_for_each(|grant| {
            self.give_one_back(now, handle, grant)
                .map_err(|what| format!("{handle} has {grant:?} taken back: {what}"))
        })
    }

    fn give_one_back(&mut self, now: Millis, handle: &Name, grant: &Grant) -> Result<(), String> {
        let kind = grant.kind;
        let session = self.sessions.get(handle).ok_or("no such session")?;
        let wish = session.wishes.get(&grant.id).ok_or("never asked for")?;
        let WishState::Holds { node, at } = &wish.state else { return Err("not held".into()) };
        let scheduling = &self.settings.scheduling;
        let widened = scheduling.preemption_rounds.saturating_sub(1).min(62);
        let limit_ms =
            scheduling.preempted_task_max_running_time_ms.saturating_mul(1_i64 << widened);
        let pool = self.settings.pools.pools.get(&session.pool);
        for (holds, otherwise) in [
            (*node == grant.node_name && wish.kind == kind, "held elsewhere"),
            (*at == grant.granted_at, "given at another time"),
            (kind != ResourceType::JobTracker, "of a type that is never taken back"),
            (pool.is_none_or(|pool| pool.preemptable), "from a pool that is protected"),
            (!session.no_preempt, "from a session that is protected"),
            (now.since(*at) < limit_ms, "too old"),
            (!self.is_protected(&session.pool), "from a queue that is protected"),
            (now.since(*at) >= self.safe_ms(&session.pool), "too young"),
        ] {
            if !holds {
                return Err(otherwise.into());
            }
        }
        let need = self.need(wish);
        self.move_to(handle, grant.id, WishState::Lost);
        if let Some(node) = self.nodes.get_mut(&grant.node_name) {
            node.used[kind] -= need;
        }
        self.count(handle, kind, TypeCounts { requested: 0, pending: 0, granted: -1 });
        Ok(())
    }

    fn move_to(&mut self, handle: &Name, id: i32, state: WishState) {
        if let Some(wish) = self.sessions.get_mut(handle).and_then(|s| s.wishes.get_mut(&id)) {
            wish.state = state;
        }
    }

    fn count(&mut self, handle: &Name, kind: ResourceType, change: TypeCounts) {
        let Some(session) = self.sessions.get_mut(handle) else { return };
        let pool = self.pools.get_mut(&session.pool);
        let group = self.groups.get_mut(&session.pool.group);
        for counts in [Some(&mut session.counts), pool, group].into_iter().flatten() {
            counts[kind].requested += change.requested;
            counts[kind].pending += change.pending;
            counts[kind].granted += change.granted;
        }
    }

    fn session(&mut self, handle: &Name) -> Result<&mut ModelSession, Reason> {
        self.sessions.get_mut(handle).ok_or(Reason::InvalidSession)
    }

    fn hear(&mut self, now: Millis, handle: &Name) -> Result<(), Reason> {
        self.session(handle)?.heard = now;
        Ok(())
    }
}

fn answer(reply: &Result<Reply, Refusal>) -> Answer {
    match reply {
        Ok(Reply::Done | Reply::Observed { .. }) => Done,
        Ok(Reply::SessionId(id)) => Answer::SessionId(id.clone()),
        Ok(Reply::Started { pool, .. }) => Started(pool.clone()),
        Ok(Reply::NodeHeard { .. }) => Heard,
        Ok(Reply::BlacklistCleared { kinds }) => Answer::Cleared(kinds.clone()),
        Err(refusal) => Refused(why(refusal)),
    }
}

fn why(refusal: &Refusal) -> Reason {
    match refusal {
        Refusal::SafeMode => Reason::SafeMode,
        Refusal::UnknownSession(_)
        | Refusal::OutOfStep(_)
        | Refusal::MalformedHandle(_)
        | Refusal::ForeignHandle(_)
        | Refusal::AlreadyStarted(_)
        | Refusal::SessionPool(_)
        | Refusal::OverPoolMaximum { .. } => Reason::InvalidSession,
        Refusal::DisallowedNode(_) => Reason::DisallowedNode,
        Refusal::IllegalType(_)
        | Refusal::ContradictoryHosts(_)
        | Refusal::UnknownCpuCount { .. }
        | Refusal::Pool(_) => Reason::Malformed,
        Refusal::TooManySessions { .. }
        | Refusal::TooManyRequests { .. }
        | Refusal::TooManyNodes { .. }
        | Refusal::TooManyPools { .. } => Reason::TooMany,
    }
}

fn same<T: Ord + std::fmt::Debug>(
    what: &str,
    mut expected: Vec<T>,
    mut told: Vec<T>,
) -> Result<(), String> {
    expected.sort();
    told.sort();
    if expected == told { Ok(()) } else { Err(format!("{what}: {told:?}, not {expected:?}")) }
}

/// Whether the host files allow a host.
fn is_allowed(hosts: &Hosts, host: &str) -> bool {
    let Hosts { include, exclude } = hosts;
    (include.is_empty() || include.contains(host)) && !exclude.contains(host)
}
