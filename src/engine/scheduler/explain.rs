//! Why requests wait.
//!
//! Looks only; it runs on demand, for one session, in time that grows with the nodes and with what
//! the session asked for, not with both multiplied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::Engine;
use crate::nodes::{NodeIdx, SessionIdx};
use crate::requests::{Request, RequestState};
use crate::topology::HostIdx;
use crate::types::{Millis, PoolName, ResourceType};

/// Hosts that [`WaitReason::NearNode`] names at most.
const HOSTS_NAMED: usize = 8;

/// Requests of one session and type that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingRequests {
    /// Their type.
    pub kind: ResourceType,
    /// Their ids, ascending; neighbours are put together.
    pub ids: Vec<IdRange>,
    /// How many they are.
    pub count: u64,
    /// Why they wait.
    pub reason: WaitReason,
}

/// Ids from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdRange {
    /// The smallest id.
    pub first: i32,
    /// The largest id.
    pub last: i32,
}

/// Why a request waits: the first of these that holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum WaitReason {
    /// Nothing is given out in safe mode.
    SafeMode,
    /// The pool group has as many grants as it may.
    GroupAtMaximum {
        /// The group.
        group: Arc<str>,
        /// Its grants.
        granted: i64,
        /// Its maximum.
        maximum: i64,
    },
    /// The pool has as many grants as it may.
    PoolAtMaximum {
        /// The pool in which the session is scheduled.
        pool: PoolName,
        /// Its grants.
        granted: i64,
        /// Its maximum.
        maximum: i64,
    },
    /// No node has slots of the type and says where it serves it.
    NotServed,
    /// All slots of the type are in use by those who come first.
    NoFreeSlot {
        /// Slots in use.
        used: u64,
        /// All slots.
        total: u64,
        /// The pool in which the session is scheduled.
        pool: PoolName,
        /// Its grants.
        pool_granted: i64,
        /// What it should have in equilibrium, in slots.
        pool_share: f64,
        /// Sessions of the pool that are served first.
        sessions_ahead: usize,
    },
    /// There are nodes with free slots of the type, but none may be given anything now.
    NodesUnusable {
        /// Nodes that are blacklisted for the type.
        blacklisted: usize,
        /// Nodes on hosts that the host files exclude.
        excluded: usize,
        /// Nodes that have less memory or disk space free than they must keep.
        below_reserve: usize,
    },
    /// No node that may be used has so many slots free.
    TooLarge {
        /// Slots that the request takes.
        need: u32,
        /// Most slots that one node has free.
        most_free: u32,
    },
    /// The request excludes the hosts of all nodes that could serve it.
    HostsExcluded {
        /// How many nodes these are.
        nodes: usize,
    },
    /// A node could serve it, but the session still waits for one that is nearer.
    NearNode {
        /// When it stops waiting.
        until: Millis,
        /// Hosts that the requests want, the first few by name.
        hosts: Vec<Arc<str>>,
        /// How many hosts they want in all.
        host_count: usize,
    },
    /// A slot is free, and the next pass looks at the request.
    NextPass {
        /// Sessions of the pool that are served first.
        sessions_ahead: usize,
    },
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SafeMode => write!(f, "safe mode is on"),
            Self::GroupAtMaximum { group, granted, maximum } => {
                write!(f, "group {group} has {granted} slots of at most {maximum}")
            }
            Self::PoolAtMaximum { pool, granted, maximum } => {
                write!(f, "pool {pool} has {granted} slots of at most {maximum}")
            }
            Self::NotServed => write!(f, "no node serves this type"),
            Self::NoFreeSlot { used, total, pool, pool_granted, pool_share, sessions_ahead } => {
                write!(
                    f,
                    "no free slot: {used} of {total} are in use; pool {pool} has {pool_granted}, \
                     its share is {pool_share:.1}; {sessions_ahead} sessions of it come first"
                )
            }
            Self::NodesUnusable { blacklisted, excluded, below_reserve } => write!(
                f,
                "no node with a free slot may be used: {blacklisted} are blacklisted, {excluded} \
                 excluded by the host files, {below_reserve} short of memory or disk space"
            ),
            Self::TooLarge { need, most_free } => {
                write!(f, "needs {need} slots on one node, which has {most_free} free at most")
            }
            Self::HostsExcluded { nodes } => {
                write!(f, "excludes the hosts of all {nodes} nodes that could serve it")
            }
            Self::NearNode { until, hosts, host_count } => {
                let more = if *host_count > hosts.len() { ", ..." } else { "" };
                let hosts = hosts.join(", ");
                write!(f, "waits until {} for a node near {hosts}{more}", until.0)
            }
            Self::NextPass { sessions_ahead } => {
                write!(f, "is looked at next; {sessions_ahead} sessions of the pool come first")
            }
        }
    }
}

impl Engine {
    /// Why each waiting request of a session waits at `now`, as far as the engine knows it before
    /// its next pass: by type, those with equal reasons together. `None` for an unknown session.
    pub fn explain(&self, handle: &str, now: Millis) -> Option<Vec<WaitingRequests>> {
        let session = self.sessions.find(handle)?;
        let kinds = ResourceType::ALL.into_iter();
        Some(kinds.flat_map(|kind| self.explain_kind(session, kind, now)).collect())
    }

    fn explain_kind(
        &self,
        session: SessionIdx,
        kind: ResourceType,
        now: Millis,
    ) -> Vec<WaitingRequests> {
        let entry = &self.sessions[session];
        let pending = || {
            let requests = entry.requests.iter().map(|(_, request)| request);
            requests.filter(|request| {
                request.kind == kind && matches!(request.state, RequestState::Pending { .. })
            })
        };
        if entry.demand(kind).tally.pending == 0 {
            return Vec::new();
        }
        let offers = Offers::new(self, kind);
        if let Some(reason) = self.common_reason(session, kind, &offers) {
            let ids = pending().map(|request| request.id).collect();
            return vec![Group { ids, ..Group::default() }.explanation(kind, reason)];
        }
        let until = entry.demand(kind).blocked.and_then(|blocked| blocked.until);
        let until = until.filter(|until| *until > now);
        let mut groups: BTreeMap<Own, Group> = BTreeMap::new();
        for request in pending() {
            let own = self.own_reason(request, &offers, until);
            let group = groups.entry(own).or_default();
            group.ids.push(request.id);
            if let Own::NearNode { .. } = own {
                group.hosts.extend(&*request.hosts);
            }
        }
        let in_words = |(own, group): (Own, Group)| {
            let reason = self.in_words(session, kind, own, &group, &offers);
            group.explanation(kind, reason)
        };
        let mut explained: Vec<WaitingRequests> = groups.into_iter().map(in_words).collect();
        explained.sort_by_key(|each| each.ids.first().map(|range| range.first));
        explained
    }

    /// What keeps all requests of the type waiting, whatever they ask for.
    fn common_reason(
        &self,
        session: SessionIdx,
        kind: ResourceType,
        offers: &Offers,
    ) -> Option<WaitReason> {
        if self.safe_mode {
            return Some(WaitReason::SafeMode);
        }
        let pool = &self.scheduler.tree[self.sessions[session].pool];
        let group = self.scheduler.tree.group(pool.group);
        let maximum = i64::from(group.settings.maximum[kind]);
        let granted = group.kinds[kind.index()].tally.granted;
        if granted >= maximum {
            let group = group.name.clone();
            return Some(WaitReason::GroupAtMaximum { group, granted, maximum });
        }
        let maximum = i64::from(pool.settings.maximum[kind]);
        let granted = pool.kinds[kind.index()].tally.granted;
        let name = pool.name.clone();
        if granted >= maximum {
            return Some(WaitReason::PoolAtMaximum { pool: name, granted, maximum });
        }
        if offers.serving == 0 {
            return Some(WaitReason::NotServed);
        }
        if offers.with_room == 0 {
            return Some(WaitReason::NoFreeSlot {
                used: self.nodes.allocated(kind),
                total: self.nodes.capacity(kind),
                pool: name,
                pool_granted: granted,
                pool_share: self.share_of_pool(kind, self.sessions[session].pool),
                sessions_ahead: self.sessions_ahead(session, kind),
            });
        }
        let Offers { blacklisted, excluded, below_reserve, .. } = *offers;
        let unusable = WaitReason::NodesUnusable { blacklisted, excluded, below_reserve };
        offers.rooms.is_empty().then_some(unusable)
    }

    /// What keeps one request waiting although nodes with free slots may be used.
    fn own_reason(&self, request: &Request, offers: &Offers, until: Option<Millis>) -> Own {
        let need = request.need();
        let fitting = offers.rooms.len() - offers.rooms.partition_point(|room| *room < need);
        if fitting == 0 {
            return Own::TooLarge { need };
        }
        let excluded: BTreeSet<HostIdx> = request.excluded.iter().copied().collect();
        let excluded: usize = excluded.iter().map(|host| self.fitting_on(*host, request)).sum();
        if excluded == fitting {
            return Own::HostsExcluded { nodes: fitting };
        }
        let near = request.hosts.is_empty()
            || request.hosts.iter().any(|host| self.fitting_on(*host, request) > 0);
        match until {
            Some(until) if !near => Own::NearNode { until },
            _ => Own::NextPass,
        }
    }

    fn in_words(
        &self,
        session: SessionIdx,
        kind: ResourceType,
        own: Own,
        group: &Group,
        offers: &Offers,
    ) -> WaitReason {
        match own {
            Own::TooLarge { need } => {
                let most_free = offers.rooms.last().copied().unwrap_or(0);
                WaitReason::TooLarge { need, most_free }
            }
            Own::HostsExcluded { nodes } => WaitReason::HostsExcluded { nodes },
            Own::NearNode { until } => {
                let hosts = group.hosts.iter().map(|host| self.topology.host_name(*host).clone());
                let mut hosts: Vec<Arc<str>> = hosts.collect();
                hosts.sort_unstable();
                let host_count = hosts.len();
                hosts.truncate(HOSTS_NAMED);
                WaitReason::NearNode { until, hosts, host_count }
            }
            Own::NextPass => {
                let sessions_ahead = self.sessions_ahead(session, kind);
                WaitReason::NextPass { sessions_ahead }
            }
        }
    }

    fn fitting_on(&self, host: HostIdx, request: &Request) -> usize {
        let fits = |node: &NodeIdx| self.nodes[*node].room(request.kind) >= request.need();
        self.nodes.runnable(request.kind).on_host(host).filter(fits).count()
    }

    fn sessions_ahead(&self, session: SessionIdx, kind: ResourceType) -> usize {
        let entry = &self.sessions[session];
        let place = entry.demand(kind).place.as_ref();
        place.map_or(0, |key| self.scheduler.tree.queued_before(entry.pool, kind, key))
    }
}

/// What the nodes offer of a type.
#[derive(Debug, Default)]
struct Offers {
    /// Nodes that have slots and serve the type.
    serving: usize,
    /// Of these, nodes with a free slot.
    with_room: usize,
    /// Of these, nodes that may not be used, by the first reason.
    excluded: usize,
    blacklisted: usize,
    below_reserve: usize,
    /// Free slots of each node that may be used, ascending.
    rooms: Vec<u32>,
}

impl Offers {
    fn new(engine: &Engine, kind: ResourceType) -> Self {
        let mut offers = Offers::default();
        for (_, node) in engine.nodes.iter() {
            if node.apps[kind].is_none() || node.slots[kind] == 0 {
                continue;
            }
            offers.serving += 1;
            let room = node.room(kind);
            if room == 0 {
                continue;
            }
            offers.with_room += 1;
            if !node.allowed {
                offers.excluded += 1;
            } else if node.faults[kind.index()].blacklisted {
                offers.blacklisted += 1;
            } else if !node.has_reserve(&engine.settings) {
                offers.below_reserve += 1;
            } else {
                offers.rooms.push(room);
            }
        }
        offers.rooms.sort_unstable();
        offers
    }
}

/// Why one request waits, beside what holds for all of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Own {
    TooLarge { need: u32 },
    HostsExcluded { nodes: usize },
    NearNode { until: Millis },
    NextPass,
}

/// Requests that wait for the same reason.
#[derive(Debug, Default)]
struct Group {
    ids: Vec<i32>,
    hosts: BTreeSet<HostIdx>,
}

impl Group {
    fn explanation(mut self, kind: ResourceType, reason: WaitReason) -> WaitingRequests {
        self.ids.sort_unstable();
        WaitingRequests { kind, count: self.ids.len() as u64, ids: ranges(&self.ids), reason }
    }
}

/// Sorted ids as ranges.
fn ranges(ids: &[i32]) -> Vec<IdRange> {
    ids.chunk_by(|a, b| a.checked_add(1) == Some(*b))
        .filter_map(|run| Some(IdRange { first: *run.first()?, last: *run.last()? }))
        .collect()
}
