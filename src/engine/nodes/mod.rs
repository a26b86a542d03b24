//! Each node's capacity and grants, and which nodes have room.
//!
//! Spec: cluster-manager/03. A node is in the index of a type when it advertises the type, is not
//! blacklisted for it, is on an allowed host, keeps its reserved memory and disk free, and has a
//! slot left. Membership is the node's own, so two nodes may share a host.

mod image;

use std::collections::VecDeque;
use std::hint::black_box;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(super) use self::image::NodesImage;
use super::arena::Arena;
use super::check::hold;
use super::index::{HostIdx, Idx, NodeIdx, RackIdx, ReqIdx, SessionIdx, SlotIdx};
use super::lookup::{Chains, DenseSet, HashSeed, Lookup};
use super::requests::Wish;
use super::settings::Settings;
use super::types::{AccessId, Address, ComputeSpecs, Millis, PerType, ResourceType};
use corona_model::resources::{Amounts, Dimension};

/// Grants whose memory is prefetched in one batch: as many as the near caches hold.
pub(super) const PREFETCHED_AT_ONCE: usize = 64;

/// A set of resource types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) fn insert(&mut self, kind: ResourceType) {
        self.0 |= 1 << kind.index();
    }

    pub(super) fn contains(self, kind: ResourceType) -> bool {
        self.0 & (1 << kind.index()) != 0
    }
}

/// Reports of trouble with one type on one node. Spec: cluster-manager/02 §5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FaultCount {
    /// Sessions that could not connect often enough.
    pub(super) failed_connections: u32,
    /// Sessions that saw too many failures.
    pub(super) failures: u32,
    pub(super) blacklisted: bool,
}

/// A report of trouble on a node that was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// The session that reported it.
    pub session: Arc<str>,
    /// The session's user.
    pub user: Arc<str>,
    /// When.
    pub at: Millis,
    /// The types for which it was counted.
    pub kinds: PerType<bool>,
    /// Failures that it reported.
    pub failed: i32,
    /// Failed connections that it reported.
    pub failed_connections: i32,
}

/// A record of the trouble with a node, for people. No rule depends on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Trouble {
    /// Since when the node is blacklisted for a type.
    pub(super) blacklisted_since: PerType<Option<Millis>>,
    /// The last complaints that were counted, the oldest first.
    pub(super) complaints: VecDeque<Complaint>,
}

impl Trouble {
    /// Complaints that are remembered of one node.
    const MOST_COMPLAINTS: usize = 32;

    /// Remembers a complaint; the oldest one is forgotten when there are too many.
    pub(super) fn note(&mut self, complaint: Complaint) {
        if self.complaints.len() >= Trouble::MOST_COMPLAINTS {
            self.complaints.pop_front();
        }
        self.complaints.push_back(complaint);
    }

    /// Forgets the entries of one type.
    pub(super) fn forget(&mut self, kind: ResourceType) {
        self.blacklisted_since[kind] = None;
        self.complaints.retain_mut(|complaint| {
            complaint.kinds[kind] = false;
            complaint.kinds != PerType::all(false)
        });
    }
}

/// A running session's dealings with a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Visit {
    /// Types for which it ever had a grant there.
    pub(super) granted: Kinds,
    /// Types for which its failed connections have been counted.
    pub(super) blamed_for_connections: Kinds,
    /// Types for which its failures have been counted.
    pub(super) blamed_for_failures: Kinds,
}

/// Why a node is given no grants, apart from its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Its access to the cluster was revoked.
    Revoked,
    /// The host files do not allow its host.
    Excluded,
    /// An operator drains it.
    Draining,
    /// Sessions reported too many failures of the type.
    Blacklisted,
    /// It has less memory or disk space free than it must keep.
    BelowReserve,
    /// It has missed too many heartbeats, and late nodes are skipped.
    Late,
}

impl Obstacle {
    /// All of them; each one's number is its place here.
    pub(super) const ALL: [Obstacle; 6] = [
        Obstacle::Revoked,
        Obstacle::Excluded,
        Obstacle::Draining,
        Obstacle::Blacklisted,
        Obstacle::BelowReserve,
        Obstacle::Late,
    ];
}

/// A task tracker as the engine knows it. Grants go to scattered nodes, so every access costs cache
/// misses; the order of the fields keeps together those that are read together.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    // Fields that a search reads.
    pub(super) host: HostIdx,
    pub(super) rack: RackIdx,
    pub(super) slots: PerType<u32>,
    pub(super) used: PerType<u32>,
    pub(super) grant_counts: PerType<u32>,
    /// [`Self::serves`] when it was last looked at; [`Nodes::reindex`] looks.
    usable: PerType<bool>,
    in_index: PerType<bool>,
    /// While it is in an index: its place in the order in which nodes are taken, see [`Nodes::shelf_of`].
    shelf: PerType<u32>,
    /// Whether the host files allow its host. Once they do not, it is allowed again only by a heartbeat.
    pub(super) allowed: bool,
    /// Whether an operator drains it.
    pub(super) draining: bool,
    /// Whether its access was revoked. It has no grants then.
    pub(super) revoked: bool,
    /// Whether it has missed too many heartbeats; [`Nodes`] lists late nodes apart.
    pub(super) late: bool,
    /// Whether it is kept for one request, and in no index meanwhile.
    pub(super) reserved: bool,
    pub(super) last_heartbeat: Millis,
    // Further fields that a grant changes.
    /// Grants on the node: session, request, in no particular order.
    pub(super) grants: Arena<SlotIdx, (SessionIdx, ReqIdx)>,
    /// Sessions that ever had a grant here and still run.
    pub(super) sessions: Visits,
    // Fields that a grant reports.
    pub(super) name: Arc<str>,
    pub(super) address: Address,
    pub(super) apps: PerType<Option<Arc<str>>>,
    // Fields that only the node itself changes.
    /// The access for which its certificate was issued, if it shows one.
    pub(super) access: Option<AccessId>,
    pub(super) total: ComputeSpecs,
    pub(super) free: ComputeSpecs,
    pub(super) faults: PerType<FaultCount>,
    /// Absent while no session has reported failures.
    pub(super) trouble: Option<Box<Trouble>>,
    // Read and changed only where resources are counted.
    /// The resources that it gives out, by its last report.
    pub(super) capacity: Amounts,
    /// The resources of its grants.
    pub(super) held: Amounts,
}

/// The sessions that had grants on a node. A sorted list: there are few, they are read with each
/// grant, and all of them when the node is lost.
#[derive(Debug, Default)]
pub(super) struct Visits(Vec<(SessionIdx, Visit)>);

impl Visits {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, session: SessionIdx) -> Option<&Visit> {
        let at = self.find(session).ok()?;
        self.0.get(at).map(|(_, visit)| visit)
    }

    pub(super) fn get_mut(&mut self, session: SessionIdx) -> Option<&mut Visit> {
        let at = self.find(session).ok()?;
        self.0.get_mut(at).map(|(_, visit)| visit)
    }

    /// The visit of the session, a new one if there was none.
    pub(super) fn enter(&mut self, session: SessionIdx) -> &mut Visit {
        let at = self.find(session).unwrap_or_else(|at| {
            self.0.insert(at, (session, Visit::default()));
            at
        });
        &mut self.0[at].1
    }

    pub(super) fn remove(&mut self, session: SessionIdx) {
        if let Ok(at) = self.find(session) {
            self.0.remove(at);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionIdx, &Visit)> {
        self.0.iter().map(|(session, visit)| (*session, visit))
    }

    fn prefetch(&self) {
        let Visits(visits) = self;
        let last = visits.len().saturating_sub(1);
        for at in [0, last / 2, last] {
            black_box(visits.get(at).copied());
        }
    }

    fn find(&self, session: SessionIdx) -> Result<usize, usize> {
        self.0.binary_search_by_key(&session, |(session, _)| *session)
    }
}

impl Node {
    /// Slots of the type that are free, whatever else speaks against the node.
    pub(super) fn room(&self, kind: ResourceType) -> u32 {
        self.slots[kind].saturating_sub(self.used[kind])
    }

    /// Whether it may be given more of the type if it has room.
    pub(super) fn is_usable(&self, kind: ResourceType) -> bool {
        self.usable[kind]
    }

    /// The resources that it may still give out.
    pub(super) fn spare(&self) -> Amounts {
        self.capacity.minus(self.held)
    }

    /// The same, of a node that may be given more of some type.
    fn usable_spare(&self) -> Amounts {
        if self.usable.0.contains(&true) { self.spare() } else { Amounts::ZERO }
    }

    /// Whether the node has room for a request, whatever else speaks against it.
    pub(super) fn fits(&self, kind: ResourceType, wish: &Wish) -> bool {
        let has_spare = || wish.demand == Amounts::ZERO || wish.demand.fits(&self.spare());
        self.room(kind) >= wish.need && has_spare()
    }

    /// Whether the node keeps its reserved memory and disk space free by its last report.
    pub(super) fn has_reserve(&self, settings: &Settings) -> bool {
        self.free.memory_mb.unwrap_or(0) >= settings.reserved_memory_mb
            && self.free.disk_gb.unwrap_or(0) >= settings.reserved_disk_gb
    }

    /// Whether the node may be given grants of the type, apart from its room.
    pub(super) fn serves(&self, kind: ResourceType, settings: &Settings) -> bool {
        self.apps[kind].is_some() && self.obstacle(kind, settings).is_none()
    }

    /// The first reason, if any, why a node that serves the type gets no grants of it.
    pub(super) fn obstacle(&self, kind: ResourceType, settings: &Settings) -> Option<Obstacle> {
        if self.revoked {
            Some(Obstacle::Revoked)
        } else if !self.allowed {
            Some(Obstacle::Excluded)
        } else if self.draining {
            Some(Obstacle::Draining)
        } else if self.faults[kind].blacklisted {
            Some(Obstacle::Blacklisted)
        } else if !self.has_reserve(settings) {
            Some(Obstacle::BelowReserve)
        } else if self.is_skipped(settings) {
            Some(Obstacle::Late)
        } else {
            None
        }
    }

    /// Whether the node is granted nothing because it is late.
    pub(super) fn is_skipped(&self, settings: &Settings) -> bool {
        self.late && settings.skip_late_nodes
    }
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    slab: Arena<NodeIdx, Node>,
    by_name: Lookup<Arc<str>, NodeIdx>,
    /// In the order of their last heartbeats, in two lists: the last heartbeat of every late node
    /// is older than those of all nodes on time.
    by_heartbeat: Chains<NodeIdx, 1>,
    late: usize,
    runnable: PerType<Runnable>,
    /// Slots of all nodes.
    capacity: PerType<u64>,
    /// Slots of the nodes that serve the type.
    offered: PerType<u64>,
    /// Free slots of the nodes in the index.
    room: PerType<u64>,
    /// Granted slots. Only nodes that serve the type have any.
    allocated: PerType<u64>,
    /// The resources that are counted.
    counted: [bool; 4],
    /// The resources that all nodes give out.
    whole: Amounts,
    /// What is left of them on the nodes that may be given more of some type.
    spare: Amounts,
}

impl Nodes {
    pub(super) fn new(seed: HashSeed) -> Self {
        Nodes {
            slab: Arena::new(),
            by_name: Lookup::new(seed),
            by_heartbeat: Chains::default(),
            late: 0,
            runnable: Default::default(),
            capacity: PerType::all(0),
            offered: PerType::all(0),
            room: PerType::all(0),
            allocated: PerType::all(0),
            counted: [false; 4],
            whole: Amounts::ZERO,
            spare: Amounts::ZERO,
        }
    }

    /// Forgets what is used, and counts these resources from now on. No node is in an index until
    /// [`Self::reindex`]; before that, [`Self::use_again`] enters each grant.
    pub(super) fn forget_used(&mut self, counted: [bool; 4]) {
        for node in self.numbers() {
            for kind in ResourceType::ALL {
                self.leave_index(node, kind);
            }
            self.set_usable(node, PerType::all(false));
            let entry = &mut self.slab[node];
            entry.used = PerType::all(0);
            (entry.held, entry.capacity) = (Amounts::ZERO, Amounts::ZERO);
        }
        self.allocated = PerType::all(0);
        self.whole = Amounts::ZERO;
        self.counted = counted;
    }

    /// Counts a grant that the node has.
    pub(super) fn use_again(&mut self, node: NodeIdx, kind: ResourceType, wish: Wish) {
        let entry = &mut self.slab[node];
        entry.used[kind] = entry.used[kind].saturating_add(wish.need);
        entry.held = entry.held.plus(wish.demand);
        self.allocated[kind] += u64::from(wish.need);
    }

    /// The resources that all nodes give out.
    pub(super) fn whole(&self) -> Amounts {
        self.whole
    }

    /// What is left of them on the nodes that may be given more, in however small pieces.
    pub(super) fn usable_spare(&self) -> Amounts {
        self.spare
    }

    /// Changes what a node gives out or holds.
    fn change_spare(&mut self, node: NodeIdx, change: impl FnOnce(&mut Node)) {
        let entry = &mut self.slab[node];
        let before = entry.usable_spare();
        change(entry);
        self.spare = self.spare.minus(before).plus(entry.usable_spare());
    }

    /// Whether resources are counted.
    pub(super) fn counts(&self) -> bool {
        self.counted.contains(&true)
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn find(&self, name: &str) -> Option<NodeIdx> {
        self.by_name.get(name).copied()
    }

    /// The node of this number, if it still exists.
    pub(super) fn get(&self, node: NodeIdx) -> Option<&Node> {
        self.slab.get(node)
    }

    /// All numbers are below this one.
    pub(super) fn places(&self) -> usize {
        self.slab.places()
    }

    /// All nodes in a defined order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeIdx, &Node)> {
        self.slab.iter()
    }

    /// Adds a node that offers nothing yet; [`Self::set_slots`] and [`Self::reindex`] follow.
    pub(super) fn insert(
        &mut self,
        name: Arc<str>,
        address: Address,
        host: HostIdx,
        rack: RackIdx,
        now: Millis,
    ) -> NodeIdx {
        let node = self.slab.insert(Node {
            name: name.clone(),
            address,
            host,
            rack,
            total: ComputeSpecs::default(),
            free: ComputeSpecs::default(),
            last_heartbeat: now,
            allowed: true,
            draining: false,
            revoked: false,
            access: None,
            late: false,
            reserved: false,
            apps: PerType::default(),
            slots: PerType::all(0),
            used: PerType::all(0),
            grant_counts: PerType::all(0),
            faults: Default::default(),
            trouble: None,
            grants: Arena::new(),
            sessions: Visits::default(),
            usable: PerType::all(false),
            in_index: PerType::all(false),
            shelf: PerType::all(0),
            capacity: Amounts::ZERO,
            held: Amounts::ZERO,
        });
        self.by_name.insert(name, node);
        self.by_heartbeat.push_back(0, ON_TIME, node);
        node
    }

    /// Takes a node out of every index and returns it.
    pub(super) fn remove(&mut self, node: NodeIdx) -> Node {
        for kind in ResourceType::ALL {
            self.leave_index(node, kind);
        }
        self.set_slots(node, PerType::all(0));
        let entry = self.slab.remove(node);
        self.by_heartbeat.remove(0, list_of(&entry), node);
        self.late -= usize::from(entry.late);
        for kind in ResourceType::ALL {
            self.allocated[kind] -= u64::from(entry.used[kind]);
        }
        self.whole = self.whole.minus(entry.capacity);
        self.by_name.remove(&entry.name);
        entry
    }

    /// Notes that the node is alive. Returns whether it was late.
    pub(super) fn heard(&mut self, node: NodeIdx, now: Millis) -> bool {
        let entry = &mut self.slab[node];
        let list = list_of(entry);
        let was_late = std::mem::take(&mut entry.late);
        entry.last_heartbeat = now;
        self.late -= usize::from(was_late);
        self.by_heartbeat.remove(0, list, node);
        self.by_heartbeat.push_back(0, ON_TIME, node);
        was_late
    }

    /// The node with the oldest last heartbeat, and its time.
    pub(super) fn most_silent(&self) -> Option<(NodeIdx, Millis)> {
        self.first_of(LATE).or_else(|| self.first_of(ON_TIME))
    }

    /// The node with the oldest last heartbeat, and its time.
    pub(super) fn most_silent_on_time(&self) -> Option<(NodeIdx, Millis)> {
        self.first_of(ON_TIME)
    }

    fn first_of(&self, list: usize) -> Option<(NodeIdx, Millis)> {
        let node = self.by_heartbeat.first(0, list)?;
        Some((node, self.slab[node].last_heartbeat))
    }

    /// Nodes that are late.
    pub(super) fn late_count(&self) -> usize {
        self.late
    }

    /// Counts the node as late from now on. It must be [`Self::most_silent_on_time`].
    /// [`Self::reindex`] follows.
    pub(super) fn set_late(&mut self, node: NodeIdx) {
        self.slab[node].late = true;
        self.late += 1;
        self.by_heartbeat.remove(0, ON_TIME, node);
        self.by_heartbeat.push_back(0, LATE, node);
    }

    /// Counts late nodes as on time again that have not been silent for longer than `late_ms`: their
    /// silence is pardoned, or the limit has changed. Gives them back. [`Self::reindex`] follows.
    pub(super) fn forgive_late(&mut self, now: Millis, late_ms: i64) -> Vec<NodeIdx> {
        let is_late = |node: &NodeIdx| now.since(self[*node].last_heartbeat) > late_ms;
        let mut forgiven: Vec<NodeIdx> = self.by_heartbeat.iter(0, LATE).collect();
        forgiven.drain(..forgiven.partition_point(is_late));
        if forgiven.is_empty() {
            return forgiven;
        }
        let on_time: Vec<NodeIdx> = self.by_heartbeat.iter(0, ON_TIME).collect();
        for node in &forgiven {
            self.slab[*node].late = false;
            self.by_heartbeat.remove(0, LATE, *node);
        }
        self.late -= forgiven.len();
        // Their last heartbeats are older than those of nodes on time.
        for node in &on_time {
            self.by_heartbeat.remove(0, ON_TIME, *node);
        }
        for node in forgiven.iter().chain(&on_time) {
            self.by_heartbeat.push_back(0, ON_TIME, *node);
        }
        forgiven
    }

    /// Resets the silence of every node, as the end of safe mode does.
    pub(super) fn all_heard(&mut self, now: Millis) {
        for node in self.slab.values_mut() {
            node.last_heartbeat = now;
        }
    }

    /// Does not count `ms` of the silence of each node.
    pub(super) fn pardon(&mut self, now: Millis, ms: i64) {
        for node in self.slab.values_mut() {
            node.last_heartbeat = node.last_heartbeat.plus_ms(ms).min(now);
        }
    }

    /// Sets the node's slots. [`Self::reindex`] follows.
    pub(super) fn set_slots(&mut self, node: NodeIdx, slots: PerType<u32>) {
        let counts = self.counts();
        let entry = &mut self.slab[node];
        for kind in ResourceType::ALL {
            self.capacity[kind] -= u64::from(entry.slots[kind]);
            self.capacity[kind] += u64::from(slots[kind]);
            if entry.apps[kind].is_some() {
                self.offered[kind] -= u64::from(entry.slots[kind]);
                self.offered[kind] += u64::from(slots[kind]);
            }
            // Requests that need several slots may fit now.
            if (entry.in_index[kind] || counts && entry.usable[kind])
                && slots[kind] > entry.slots[kind]
            {
                self.runnable[kind].note_room(node);
            }
            if entry.usable[kind] {
                self.room[kind] -= u64::from(entry.room(kind));
                self.room[kind] += u64::from(slots[kind].saturating_sub(entry.used[kind]));
            }
        }
        entry.slots = slots;
    }

    /// Sets where the node serves a type. [`Self::reindex`] follows.
    pub(super) fn set_app(&mut self, node: NodeIdx, kind: ResourceType, app: Option<Arc<str>>) {
        let entry = &mut self.slab[node];
        if entry.apps[kind].is_some() {
            self.offered[kind] -= u64::from(entry.slots[kind]);
        }
        if app.is_some() {
            self.offered[kind] += u64::from(entry.slots[kind]);
        }
        entry.apps[kind] = app;
    }

    /// Slots of the nodes that serve the type.
    pub(super) fn offered(&self, kind: ResourceType) -> u64 {
        self.offered[kind]
    }

    /// Free slots of the nodes that may be given more, whatever is left of their resources.
    pub(super) fn usable_room(&self, kind: ResourceType) -> u64 {
        self.room[kind]
    }

    /// Slots of all nodes, of those too that do not serve the type.
    pub(super) fn capacity(&self, kind: ResourceType) -> u64 {
        self.capacity[kind]
    }

    /// Granted slots on all nodes.
    pub(super) fn allocated(&self, kind: ResourceType) -> u64 {
        self.allocated[kind]
    }

    /// Gives what a request takes of the node away. Returns the place in the node's list of grants.
    pub(super) fn allocate(
        &mut self,
        node: NodeIdx,
        kind: ResourceType,
        wish: Wish,
        holder: (SessionIdx, ReqIdx),
    ) -> SlotIdx {
        let counts = self.counts();
        let entry = &mut self.slab[node];
        let slot = entry.grants.insert(holder);
        let before = entry.room(kind);
        entry.used[kind] += wish.need;
        entry.grant_counts[kind] += 1;
        self.allocated[kind] += u64::from(wish.need);
        if entry.usable[kind] {
            self.room[kind] -= u64::from(before - entry.room(kind));
        }
        if counts {
            self.change_spare(node, |entry| entry.held = entry.held.plus(wish.demand));
            ResourceType::ALL.into_iter().for_each(|kind| self.lessened(node, kind));
        } else {
            self.lessened(node, kind);
        }
        slot
    }

    /// A node has less room than before.
    fn lessened(&mut self, node: NodeIdx, kind: ResourceType) {
        let entry = &self.slab[node];
        if entry.in_index[kind] {
            if self.has_room(entry, kind) {
                self.reshelve(node, kind);
            } else {
                self.leave_index(node, kind);
            }
        }
    }

    /// A node has more room than before.
    fn grown(&mut self, node: NodeIdx, kind: ResourceType) {
        if self.slab[node].in_index[kind] {
            self.reshelve(node, kind);
            self.runnable[kind].note_room(node);
        } else {
            self.note_slots(node, kind);
        }
    }

    /// Slots have become free on a node. Where resources are counted, it may have nothing left for a
    /// request; but a queue may have waited until more slots are free than others keep.
    fn note_slots(&mut self, node: NodeIdx, kind: ResourceType) {
        if self.counts() && self.slab[node].usable[kind] {
            self.runnable[kind].note_room(node);
        }
    }

    /// Prefetches the memory that [`Self::free`] will read, so that its cache misses overlap.
    pub(super) fn prefetch_to_free(&self, held: &[(NodeIdx, SlotIdx, ResourceType)]) {
        for (node, _, kind) in held {
            let entry = &self[*node];
            black_box((entry.in_index[*kind], entry.grants.len(), entry.sessions.len()));
            self.runnable[*kind].lists.prefetch(*node);
            if self.counts() {
                black_box(entry.spare());
            }
        }
        for (node, slot, kind) in held {
            let entry = &self[*node];
            black_box(entry.grants.get(*slot).copied());
            self.runnable[*kind].prefetch(entry.host, entry.rack);
        }
    }

    /// Prefetches the memory that allocating slots of these nodes will read.
    pub(super) fn prefetch_to_allocate(&self, nodes: &[NodeIdx], kind: ResourceType) {
        for entry in nodes.iter().filter_map(|node| self.get(*node)) {
            entry.sessions.prefetch();
            black_box(Arc::strong_count(&entry.name));
            black_box(Arc::strong_count(&entry.address.host));
            black_box(entry.apps[kind].as_ref().map(Arc::strong_count));
        }
    }

    /// Takes entry `slot` of the node's grants back and puts the node where it belongs.
    pub(super) fn free(&mut self, node: NodeIdx, kind: ResourceType, wish: Wish, slot: SlotIdx) {
        let counts = self.counts();
        let entry = &mut self.slab[node];
        entry.grants.remove(slot);
        entry.grant_counts[kind] -= 1;
        let before = entry.room(kind);
        entry.used[kind] -= wish.need;
        self.allocated[kind] -= u64::from(wish.need);
        if entry.usable[kind] {
            self.room[kind] += u64::from(entry.room(kind) - before);
        }
        if counts {
            self.change_spare(node, |entry| entry.held = entry.held.minus(wish.demand));
            for kind in ResourceType::ALL {
                self.grown(node, kind);
                self.place(node, kind);
            }
        } else {
            self.grown(node, kind);
            self.place(node, kind);
        }
    }

    /// Puts the node into or out of the index of each type as it now belongs.
    /// Returns the types for which that changed, with whether it is in now.
    pub(super) fn reindex(&mut self, node: NodeIdx, settings: &Settings) -> PerType<Option<bool>> {
        let entry = &self.slab[node];
        let usable = PerType(ResourceType::ALL.map(|kind| entry.serves(kind, settings)));
        self.set_usable(node, usable);
        if self.counts() {
            self.measure(node, settings);
        }
        PerType(ResourceType::ALL.map(|kind| self.place(node, kind)))
    }

    /// Sets whether the node may be given more of each type. [`Self::place`] follows.
    fn set_usable(&mut self, node: NodeIdx, usable: PerType<bool>) {
        let before = self.slab[node].usable;
        self.change_spare(node, |entry| entry.usable = usable);
        for kind in ResourceType::ALL {
            let room = u64::from(self.slab[node].room(kind));
            match (before[kind], usable[kind]) {
                (true, false) => self.room[kind] -= room,
                (false, true) => {
                    self.room[kind] += room;
                    self.note_slots(node, kind);
                }
                _ => {}
            }
        }
    }

    /// Takes over the resources that the node gives out by its last report.
    fn measure(&mut self, node: NodeIdx, settings: &Settings) {
        let entry = &self.slab[node];
        let (before, capacity) = (entry.capacity, capacity(&entry.total, settings));
        if before == capacity {
            return;
        }
        self.change_spare(node, |entry| entry.capacity = capacity);
        self.whole = self.whole.minus(before).plus(capacity);
        for kind in ResourceType::ALL {
            if capacity.fits(&before) {
                self.lessened(node, kind);
            } else {
                self.grown(node, kind);
            }
        }
    }

    /// Sees to it that the node, which is about to be lost, is given nothing any more. Its grants stay.
    pub(super) fn retire(&mut self, node: NodeIdx) {
        self.slab[node].allowed = false;
        self.set_usable(node, PerType::all(false));
        for kind in ResourceType::ALL {
            self.place(node, kind);
        }
    }

    fn place(&mut self, node: NodeIdx, kind: ResourceType) -> Option<bool> {
        let entry = &self.slab[node];
        let belongs = self.has_room(entry, kind) && entry.usable[kind];
        if belongs == entry.in_index[kind] {
            return None;
        }
        if belongs {
            self.enter_index(node, kind);
        } else {
            self.leave_index(node, kind);
        }
        Some(belongs)
    }

    /// Keeps a node for one request. Returns its name.
    pub(super) fn reserve(&mut self, node: NodeIdx) -> Arc<str> {
        self.slab[node].reserved = true;
        for kind in ResourceType::ALL {
            self.place(node, kind);
        }
        self.slab[node].name.clone()
    }

    /// A node is kept for a request no longer. Returns its name, if it still exists and was kept.
    pub(super) fn end_reservation(&mut self, node: NodeIdx) -> Option<Arc<str>> {
        let entry = self.slab.get_mut(node).filter(|entry| entry.reserved)?;
        entry.reserved = false;
        let name = entry.name.clone();
        for kind in ResourceType::ALL {
            self.place(node, kind);
        }
        Some(name)
    }

    /// Whether the node has a slot and something of each resource that is counted, and is not reserved.
    fn has_room(&self, entry: &Node, kind: ResourceType) -> bool {
        entry.room(kind) > 0 && (!self.counts() || !entry.reserved && self.has_spare(entry))
    }

    fn has_spare(&self, entry: &Node) -> bool {
        let spare = entry.spare();
        self.counted.iter().zip(&spare.0).all(|(counted, spare)| !counted || *spare > 0)
    }

    /// A node's place in the order in which nodes are taken for requests that may run anywhere: those with
    /// the fewest grants first or, where resources are counted, those with the least left.
    fn shelf_of(&self, entry: &Node, kind: ResourceType) -> u32 {
        if self.counts() { entry.spare().shelf() } else { entry.grant_counts[kind] }
    }

    /// As [`Self::shelf_of`], where resources are counted.
    pub(super) fn shelf(&self, node: NodeIdx) -> u32 {
        self.slab[node].spare().shelf()
    }

    /// Puts a node in an index where it belongs in that order.
    fn reshelve(&mut self, node: NodeIdx, kind: ResourceType) {
        let entry = &self.slab[node];
        let (from, to) = (entry.shelf[kind], self.shelf_of(entry, kind));
        if from != to {
            self.slab[node].shelf[kind] = to;
            self.runnable[kind].change_load(node, from, to);
        }
    }

    pub(super) fn runnable(&self, kind: ResourceType) -> &Runnable {
        &self.runnable[kind]
    }

    /// The nodes that have gained room for the type since the last call. The list goes back with
    /// [`Self::keep_list`], to be used again.
    pub(super) fn take_fresh(&mut self, kind: ResourceType) -> Vec<NodeIdx> {
        std::mem::take(&mut self.runnable[kind].fresh)
    }

    /// Takes a list from [`Self::take_fresh`] back, unless it is large.
    pub(super) fn keep_list(&mut self, kind: ResourceType, mut list: Vec<NodeIdx>) {
        const KEPT: usize = 4096;
        let fresh = &mut self.runnable[kind].fresh;
        if fresh.capacity() == 0 && list.capacity() <= KEPT {
            list.clear();
            *fresh = list;
        }
    }

    /// Numbers of all nodes, in a defined order.
    pub(super) fn numbers(&self) -> Vec<NodeIdx> {
        self.iter().map(|(node, _)| node).collect()
    }

    /// Recomputes the data derived from the nodes themselves: totals, indexes and the order of
    /// heartbeats.
    pub(super) fn audit(&self, settings: &Settings) -> Result<(), String> {
        hold(self.by_name.len() == self.slab.len(), || "nodes by name: too many".into())?;
        for (node, entry) in self.iter() {
            let named = self.by_name.get(&entry.name) == Some(&node);
            hold(named, || format!("node {} is not found by name", entry.name))?;
        }
        let list = |node: NodeIdx| self.slab.get(node).map(list_of);
        self.by_heartbeat.audit(0, "nodes by heartbeat", self.slab.len(), list)?;
        let lists = [LATE, ON_TIME].into_iter().flat_map(|list| self.by_heartbeat.iter(0, list));
        let heard = lists.map(|node| self[node].last_heartbeat);
        hold(heard.is_sorted(), || "nodes are not in the order of their heartbeats".into())?;
        let late = self.iter().filter(|(_, entry)| entry.late).count();
        hold(late == self.late, || format!("{late} nodes are late, not {}", self.late))?;
        hold(self.counted == settings.resources.counted, || "other resources".into())?;
        let mut whole = Amounts::ZERO;
        for (_, entry) in self.iter() {
            let capacity = capacity(&entry.total, settings);
            hold(entry.capacity == capacity, || {
                format!("{} gives out {capacity}, not {}", entry.name, entry.capacity)
            })?;
            whole = whole.plus(capacity);
        }
        hold(whole == self.whole, || format!("all nodes give out {whole}"))?;
        let spare = self.iter().map(|(_, entry)| entry.usable_spare());
        let spare = spare.fold(Amounts::ZERO, Amounts::plus);
        hold(spare == self.spare, || format!("{spare} are left, not {}", self.spare))?;
        for kind in ResourceType::ALL {
            let nodes = || self.iter().map(|(_, entry)| entry);
            let capacity: u64 = nodes().map(|entry| u64::from(entry.slots[kind])).sum();
            let allocated: u64 = nodes().map(|entry| u64::from(entry.used[kind])).sum();
            hold((capacity, allocated) == (self.capacity[kind], self.allocated[kind]), || {
                format!(
                    "{kind}: capacity {capacity} and allocated {allocated}, but the totals are {} \
                     and {}",
                    self.capacity[kind], self.allocated[kind]
                )
            })?;
            let serving = nodes().filter(|entry| entry.apps[kind].is_some());
            let offered: u64 = serving.map(|entry| u64::from(entry.slots[kind])).sum();
            hold(offered == self.offered[kind], || {
                format!("{kind}: {offered} slots are offered, not {}", self.offered[kind])
            })?;
            for entry in nodes() {
                let belongs = self.has_room(entry, kind) && entry.serves(kind, settings);
                hold(belongs == entry.in_index[kind], || {
                    format!("{} in the index of {kind}: should be {belongs}", entry.name)
                })?;
            }
            let usable = nodes().filter(|entry| entry.serves(kind, settings));
            let room = usable.map(|entry| entry.room(kind));
            let room: u64 = room.map(u64::from).sum();
            hold(room == self.room[kind], || {
                format!("{kind}: {room} slots are free, not {}", self.room[kind])
            })?;
            self.runnable[kind].audit(kind, self)?;
        }
        Ok(())
    }

    fn enter_index(&mut self, node: NodeIdx, kind: ResourceType) {
        let shelf = self.shelf_of(&self.slab[node], kind);
        let entry = &mut self.slab[node];
        (entry.in_index[kind], entry.shelf[kind]) = (true, shelf);
        self.runnable[kind].enter(node, entry.host, entry.rack, shelf);
    }

    fn leave_index(&mut self, node: NodeIdx, kind: ResourceType) {
        let entry = &mut self.slab[node];
        if std::mem::take(&mut entry.in_index[kind]) {
            let (host, rack, shelf) = (entry.host, entry.rack, entry.shelf[kind]);
            self.runnable[kind].leave(node, host, rack, shelf);
        }
    }
}

impl Index<NodeIdx> for Nodes {
    type Output = Node;
    fn index(&self, node: NodeIdx) -> &Node {
        &self.slab[node]
    }
}

impl IndexMut<NodeIdx> for Nodes {
    fn index_mut(&mut self, node: NodeIdx) -> &mut Node {
        &mut self.slab[node]
    }
}

/// The resources that a node gives out by its report.
fn capacity(total: &ComputeSpecs, settings: &Settings) -> Amounts {
    settings.resources.capacity(total, settings.kept())
}

/// Nodes with similar amounts left are on one shelf, by memory, then by CPUs. The last digit of a shelf's
/// number counts CPUs, the others memory in steps of an eighth.
trait Shelf {
    const CPUS: usize = Filled::ROW;
    fn shelf(&self) -> u32;
    fn may_fit(&self) -> (usize, u16);
}

impl Shelf for Amounts {
    fn shelf(&self) -> u32 {
        let memory = self[Dimension::Memory].min(u64::from(u32::MAX)) as u32;
        let octave = memory.checked_ilog2().unwrap_or(0).saturating_sub(3);
        let step = octave * 8 + (memory >> octave);
        let cpus = self[Dimension::Cpus].min(Self::CPUS as u64 - 1) as u32;
        step * Self::CPUS as u32 + cpus
    }

    /// The first step of memory that may be enough, and the numbers of CPUs.
    fn may_fit(&self) -> (usize, u16) {
        let own = self.shelf() as usize;
        (own / Self::CPUS, u16::MAX << (own % Self::CPUS))
    }
}

// The lists of nodes by heartbeat.
const ON_TIME: usize = 0;
const LATE: usize = 1;

fn list_of(node: &Node) -> usize {
    if node.late { LATE } else { ON_TIME }
}

// The ways in which nodes with room are listed.
const BY_HOST: usize = 0;
const BY_RACK: usize = 1;
const BY_LOAD: usize = 2;

/// The nodes with room for one type: by host, by rack, and by how many grants they hold.
#[derive(Debug, Default)]
pub(super) struct Runnable {
    count: usize,
    /// By host, by rack and by load.
    lists: Chains<NodeIdx, 3>,
    hosts: DenseSet<HostIdx>,
    racks: DenseSet<RackIdx>,
    /// The lists by load that have nodes.
    loads: Filled,
    generation: u64,
    fresh: Vec<NodeIdx>,
}

impl Runnable {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Hosts that have a node with room.
    pub(super) fn hosts(&self) -> &DenseSet<HostIdx> {
        &self.hosts
    }

    /// Racks that have a node with room.
    pub(super) fn racks(&self) -> &DenseSet<RackIdx> {
        &self.racks
    }

    /// Changes whenever some node has room that it did not have before.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Nodes of the host that have room, longest in the index first.
    pub(super) fn on_host(&self, host: HostIdx) -> impl Iterator<Item = NodeIdx> + '_ {
        let first = self.hosts.contains(host).then(|| self.lists.first(BY_HOST, host.place()));
        self.lists.iter_from(BY_HOST, first.flatten())
    }

    /// Nodes of the rack that have room, longest in the index first.
    pub(super) fn on_rack(&self, rack: RackIdx) -> impl Iterator<Item = NodeIdx> + '_ {
        let first = self.racks.contains(rack).then(|| self.lists.first(BY_RACK, rack.place()));
        self.lists.iter_from(BY_RACK, first.flatten())
    }

    /// All nodes that have room, those with the fewest grants first.
    /// Spec: cluster-manager/03 §7 takes one with fewer than the mean first.
    pub(super) fn least_loaded(&self) -> impl Iterator<Item = NodeIdx> + '_ {
        self.loads.lists_from(0, u16::MAX).flat_map(|load| self.lists.iter(BY_LOAD, load))
    }

    /// Where resources are counted: nodes that may have room for the demand, those with the least left
    /// first. Nodes that surely have none are passed over without a look.
    pub(super) fn best_fits(&self, demand: Amounts) -> impl Iterator<Item = NodeIdx> + '_ {
        let (memory, cpus) = demand.may_fit();
        self.loads.lists_from(memory, cpus).flat_map(|shelf| self.lists.iter(BY_LOAD, shelf))
    }

    /// Whether some node has gained room since the last [`Nodes::take_fresh`].
    pub(super) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    fn audit(&self, kind: ResourceType, nodes: &Nodes) -> Result<(), String> {
        let indexed = |node: NodeIdx| {
            nodes.slab.get(node).filter(|entry| entry.in_index[kind]).map(|entry| {
                let shelf = nodes.shelf_of(entry, kind) as usize;
                (entry.host.place(), entry.rack.place(), shelf)
            })
        };
        let count = nodes.iter().filter(|(_, entry)| entry.in_index[kind]).count();
        hold(count == self.count, || format!("{kind}: {count} nodes have room: {}", self.count))?;
        let lists = &self.lists;
        lists.audit(BY_HOST, "by host", count, |node| indexed(node).map(|place| place.0))?;
        lists.audit(BY_RACK, "by rack", count, |node| indexed(node).map(|place| place.1))?;
        lists.audit(BY_LOAD, "by load", count, |node| indexed(node).map(|place| place.2))?;
        self.hosts.audit("hosts", |host| !lists.is_empty(BY_HOST, host.place()))?;
        self.racks.audit("racks", |rack| !lists.is_empty(BY_RACK, rack.place()))?;
        for (what, set, way) in
            [("hosts", self.hosts.len(), BY_HOST), ("racks", self.racks.len(), BY_RACK)]
        {
            let used = (0..lists.chains(way)).filter(|list| !lists.is_empty(way, *list)).count();
            hold(set == used, || format!("{kind}: {used} {what} have room"))?;
        }
        let loads = (0..lists.chains(BY_LOAD)).filter(|load| !lists.is_empty(BY_LOAD, *load));
        hold(loads.eq(self.loads.lists_from(0, u16::MAX)), || {
            format!("{kind}: other loads have nodes")
        })
    }

    fn prefetch(&self, host: HostIdx, rack: RackIdx) {
        black_box((self.lists.first(BY_HOST, host.place()), self.hosts.place(host)));
        black_box((self.lists.first(BY_RACK, rack.place()), self.racks.place(rack)));
    }

    fn note_room(&mut self, node: NodeIdx) {
        self.generation += 1;
        self.fresh.push(node);
    }

    fn enter(&mut self, node: NodeIdx, host: HostIdx, rack: RackIdx, load: u32) {
        self.count += 1;
        self.lists.push_back(BY_HOST, host.place(), node);
        self.lists.push_back(BY_RACK, rack.place(), node);
        self.enter_load(node, load);
        self.hosts.insert(host);
        self.racks.insert(rack);
        self.note_room(node);
    }

    fn leave(&mut self, node: NodeIdx, host: HostIdx, rack: RackIdx, load: u32) {
        self.count -= 1;
        self.lists.remove(BY_HOST, host.place(), node);
        self.lists.remove(BY_RACK, rack.place(), node);
        self.leave_load(node, load);
        if self.lists.is_empty(BY_HOST, host.place()) {
            self.hosts.remove(host);
        }
        if self.lists.is_empty(BY_RACK, rack.place()) {
            self.racks.remove(rack);
        }
    }

    fn change_load(&mut self, node: NodeIdx, from: u32, to: u32) {
        self.leave_load(node, from);
        self.enter_load(node, to);
    }

    fn enter_load(&mut self, node: NodeIdx, load: u32) {
        self.lists.push_back(BY_LOAD, load as usize, node);
        self.loads.set(load as usize, true);
    }

    fn leave_load(&mut self, node: NodeIdx, load: u32) {
        self.lists.remove(BY_LOAD, load as usize, node);
        if self.lists.is_empty(BY_LOAD, load as usize) {
            self.loads.set(load as usize, false);
        }
    }
}

/// Which lists have nodes, a bit for each, so that many empty ones are passed over at once. A row has a list for each
/// number of CPUs, where they are shelves.
#[derive(Debug, Default)]
struct Filled(Vec<u16>);

impl Filled {
    const ROW: usize = u16::BITS as usize;

    fn set(&mut self, list: usize, filled: bool) {
        let (row, bit) = (list / Filled::ROW, 1 << (list % Filled::ROW));
        if self.0.len() <= row {
            self.0.resize(row + 1, 0);
        }
        if let Some(row) = self.0.get_mut(row) {
            *row = if filled { *row | bit } else { *row & !bit };
        }
    }

    /// The lists with nodes in order, from this row on, of those of a row that are in the mask.
    fn lists_from(&self, first: usize, mask: u16) -> impl Iterator<Item = usize> + '_ {
        let rows = self.0.iter().enumerate().skip(first);
        rows.flat_map(move |(row, filled)| {
            let mut left = filled & mask;
            std::iter::from_fn(move || {
                let place = left.trailing_zeros() as usize;
                (left != 0).then(|| {
                    left &= left - 1;
                    row * Filled::ROW + place
                })
            })
        })
    }
}
