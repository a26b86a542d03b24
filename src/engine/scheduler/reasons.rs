//! Why requests wait: the reasons as data, and each as one English text.
//!
//! The text is made here and nowhere else, so that the pages, the JSON API and the tools show the
//! same. It knows nothing of how a reason is found; see `explain.rs`.

use std::fmt::Display;
use std::sync::Arc;

use serde::Serialize;

use super::order::Precedence;
use crate::input::Starvation;
use crate::types::{Millis, PoolName, ResourceType, Span};
use corona_model::resources::Amounts;

/// Requests of one session and type that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingRequests {
    /// The type of their slots.
    pub kind: ResourceType,
    /// Their ids in ascending order, as ranges.
    pub ids: Vec<IdRange>,
    /// The number of requests.
    pub count: u64,
    /// Why they wait.
    pub reason: WaitReason,
    /// The reason in English, as clauses without a capital or a full stop.
    pub text: String,
}

/// Ids from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct IdRange {
    /// The smallest id.
    pub first: i32,
    /// The largest id.
    pub last: i32,
}

/// Why a request waits. If several reasons hold, the one that decides: a request that no node can
/// ever serve comes before limits, limits before a full cluster, and that before reasons of only
/// some requests of the session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum WaitReason {
    /// Nothing is granted in safe mode.
    SafeMode,
    /// No node has slots of the type and offers a service for it.
    NotServed {
        /// All nodes of the cluster.
        nodes: usize,
    },
    /// The pool group holds as many grants as it may.
    GroupAtMaximum {
        /// The group's name.
        group: Arc<str>,
        /// Its grants.
        granted: i64,
        /// Grants that it may hold.
        maximum: i64,
        /// Sessions, pools and groups served first within the group.
        ahead: Ahead,
    },
    /// The pool holds as many grants as it may.
    PoolAtMaximum {
        /// The pool in which the session is scheduled.
        pool: PoolName,
        /// Its grants.
        granted: i64,
        /// Grants that it may hold.
        maximum: i64,
        /// The sessions that are served before this one within the pool.
        ahead: Ahead,
    },
    /// A queue of the path has as many sessions as it gives grants at a time.
    SessionsAtMaximum {
        /// Its path.
        queue: Arc<str>,
        /// The user, if the limit is that of each user.
        user: Option<Arc<str>>,
        /// Sessions that have their turn.
        running: u32,
        /// Sessions that may have their turn at a time.
        maximum: u32,
        /// Sessions that come first when one of them ends.
        before: usize,
    },
    /// The user holds as many grants as a queue of the path lets one user hold.
    UserAtMaximum {
        /// Its path.
        queue: Arc<str>,
        /// The session's user.
        user: Arc<str>,
        /// The user's grants there.
        granted: i64,
        /// Grants that one user may hold there.
        maximum: u32,
    },
    /// All free slots stay free for queues that do not lend what is guaranteed to them.
    Reserved {
        /// Slots that stay free.
        reserved: i64,
        /// The paths of those queues, the first few by their slots.
        queues: Vec<Arc<str>>,
        /// How many queues they are.
        count: usize,
    },
    /// A queue of the path holds as much of some resource as it may, or cannot hold so much more.
    AboveMaximum {
        /// Its path.
        queue: Arc<str>,
        /// What each request takes of the resources that have a maximum, if less is left.
        demand: Option<Amounts>,
        /// What the queue holds of these.
        held: Amounts,
        /// What it may hold of these.
        maximum: Amounts,
        /// Whether each request takes more than the maximum.
        never: bool,
    },
    /// What is left on all nodes stays free for queues that do not lend what is guaranteed to them.
    AmountsReserved {
        /// What each request takes.
        demand: Amounts,
        /// What is left on all nodes.
        free: Amounts,
        /// What stays free.
        reserved: Amounts,
        /// The paths of those queues, the first few by what they keep.
        queues: Vec<Arc<str>>,
        /// How many queues they are.
        count: usize,
    },
    /// Nodes serve the type, but none of them may be used.
    NodesUnusable(Unusable),
    /// All slots of the type on usable nodes are in use.
    NoFreeSlot {
        /// Slots in use on usable nodes that serve the type.
        used: u64,
        /// All slots of these nodes.
        total: u64,
        /// Nodes with free slots that may not be used.
        unusable: Unusable,
        /// The groups, pools and sessions that hold the slots or get the next one.
        competition: Box<Competition>,
    },
    /// No usable node has so many slots free.
    TooLarge {
        /// Slots that each request takes on one node.
        need: u32,
        /// The most slots that are free on one usable node.
        most_free: u32,
        /// The most slots that a node has, whether free and usable or not.
        most_slots: u32,
        /// Usable nodes that have enough slots when they are free.
        able: usize,
        /// Nodes that have enough slots but may not be used.
        unusable: Unusable,
    },
    /// No usable node has so much of the counted resources left.
    TooLittle {
        /// What each request takes on one node.
        demand: Amounts,
        /// What is left on all usable nodes together.
        free: Amounts,
        /// What is left on the usable node that lacks least.
        largest: Amounts,
        /// Nodes that have enough when nothing runs there, usable or not.
        able: usize,
        /// Nodes that are kept for requests of others.
        kept: usize,
        /// The node that is kept for one of these requests.
        reservation: Option<ReservedNode>,
        /// The other pools with the most grants, of those that hold them under a guarantee.
        guaranteed: Vec<Holder>,
        /// When room is made by preemption, if the pool lacks its due.
        preemption: Option<Preemption>,
    },
    /// The requests exclude the hosts of all nodes with enough free slots.
    HostsExcluded {
        /// The nodes on excluded hosts: those with enough free slots or, if the requests allow no
        /// other node, all that have enough slots.
        nodes: usize,
        /// Usable nodes on other hosts, which have too few slots free.
        full: usize,
        /// Nodes on other hosts that may not be used.
        unusable: Unusable,
    },
    /// A node could serve the requests, but the session still waits for a preferred host.
    NearNode {
        /// When it stops waiting.
        until: Millis,
        /// Hosts that the requests prefer, the first few by name.
        hosts: Vec<Arc<str>>,
        /// How many hosts they prefer in all.
        host_count: usize,
    },
    /// A slot is free, and the next pass considers the requests.
    NextPass {
        /// Sessions, pools and groups served first.
        ahead: Ahead,
    },
}

/// A node that is kept for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservedNode {
    /// The node's name.
    pub node: Arc<str>,
    /// The request's id.
    pub request: i32,
    /// When it was reserved.
    pub since: Millis,
    /// When the node serves everybody again, at the latest.
    pub until: Millis,
}

/// Nodes that serve a type but are granted nothing, each counted under the first reason that holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unusable {
    /// Nodes that are blacklisted for the type.
    pub blacklisted: usize,
    /// Nodes on hosts that the host files do not allow.
    pub excluded: usize,
    /// Nodes that an operator drains.
    pub draining: usize,
    /// Nodes whose access was revoked.
    pub revoked: usize,
    /// Nodes with less memory or disk space free than they must keep.
    pub below_reserve: usize,
    /// Late nodes, where those are skipped.
    pub late: usize,
    /// Free slots on all of them.
    pub free_slots: u64,
}

/// Sessions, pools or groups that are served before a session at present.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ahead {
    /// Other groups.
    pub groups: Rivals<Arc<str>>,
    /// Other pools of the session's group.
    pub pools: Rivals<PoolName>,
    /// Other sessions of the session's pool.
    pub sessions: Rivals<Arc<str>>,
}

/// Groups, pools or sessions that are served first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rivals<N> {
    /// The first few, each with the reason why it comes first.
    pub named: Vec<(N, Precedence)>,
    /// How many there are.
    pub count: usize,
}

impl<N> Rivals<N> {
    /// Adds one that comes behind those before; the first few are named.
    pub(super) fn add(&mut self, most: usize, named: impl FnOnce() -> (N, Precedence)) {
        self.count += 1;
        if self.named.len() < most {
            self.named.push(named());
        }
    }
}

impl<N> Default for Rivals<N> {
    fn default() -> Self {
        Rivals { named: Vec::new(), count: 0 }
    }
}

/// The reasons that decide the holders of a full cluster's slots and the receiver of the next one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Competition {
    /// The pool in which the session is scheduled.
    pub pool: PoolName,
    /// Its grants.
    pub granted: i64,
    /// Its path, where groups are in groups.
    pub path: Option<Arc<str>>,
    /// The grants that it is guaranteed.
    pub minimum: i64,
    /// The resources that it is guaranteed, of all types together.
    pub minimum_amounts: Amounts,
    /// The grants that it should have in equilibrium.
    pub share: f64,
    /// Sessions, pools and groups served before the session.
    pub ahead: Ahead,
    /// Whether the session takes only slots on preferred hosts for now.
    pub near_only: bool,
    /// The other pools with the most grants.
    pub holders: Vec<Holder>,
    /// Further pools with grants.
    pub more_holders: usize,
    /// The grants of these further pools.
    pub more_granted: i64,
    /// When slots are taken from others for the pool, if it lacks any.
    pub preemption: Option<Preemption>,
}

/// Another pool that holds grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The pool.
    pub pool: PoolName,
    /// Its grants.
    pub granted: i64,
    /// The claim that protects them from the session's pool.
    pub claim: Option<HolderClaim>,
}

/// Why another pool holds grants that the session's pool does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum HolderClaim {
    /// So many are guaranteed to the pool, which is in the group of the session's pool.
    Minimum(i64),
    /// So many are guaranteed to the pool's group, which is another one.
    GroupMinimum(i64),
    /// Resources are guaranteed to the pool, which is in the group of the session's pool.
    MinimumAmounts {
        /// The guaranteed resources.
        minimum: Amounts,
        /// Whether it holds no more of any of them.
        within: bool,
    },
    /// Resources are guaranteed to the pool's group, which is another one.
    GroupMinimumAmounts(Amounts),
    /// The pool has a higher priority in the group of both.
    HigherPriority,
}

/// When slots are taken from others for a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Preemption {
    /// The pool's lack.
    pub cause: Starvation,
    /// The time from which slots are taken.
    pub due: Millis,
    /// Whether some session holds more than its share and may be taken from.
    pub possible: bool,
}

/// Further data that the text of a reason depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) kind: ResourceType,
    /// The number of requests.
    pub(super) count: u64,
    pub(super) now: Millis,
    /// The pool that the session was submitted to, if it is scheduled in another one.
    pub(super) asked: Option<&'a PoolName>,
}

impl WaitReason {
    /// Whether no node can ever serve the requests, whatever becomes free.
    pub fn is_for_ever(&self) -> bool {
        match self {
            Self::TooLarge { able, unusable, .. } => *able == 0 && unusable.nodes() == 0,
            Self::HostsExcluded { full, unusable, .. } => *full == 0 && unusable.nodes() == 0,
            Self::TooLittle { able, .. } => *able == 0,
            Self::AboveMaximum { never, .. } => *never,
            _ => false,
        }
    }

    #[allow(clippy::too_many_lines, reason = "a table: each reason has its sentence")]
    pub(super) fn text(&self, about: About<'_>) -> String {
        let kind = about.kind;
        let they = about.one_or("it", "they");
        let needs = about.one_or("it needs", "each needs");
        match self {
            Self::SafeMode => "safe mode is on".into(),
            Self::NotServed { nodes: 0 } => "the cluster has no nodes".into(),
            Self::NotServed { nodes: 1 } => format!("the only node does not serve {kind}"),
            Self::NotServed { nodes } => format!("none of the {nodes} nodes serves {kind}"),
            Self::GroupAtMaximum { group, granted, maximum, ahead } => {
                let group_differs = |asked: &&PoolName| asked.group != *group;
                let who = format!("group {group}{}", about.asked_for(group_differs));
                clauses(about.limit(&who, *granted, *maximum, ahead, "group"))
            }
            Self::PoolAtMaximum { pool, granted, maximum, ahead } => {
                let who = about.own_pool(pool);
                clauses(about.limit(&who, *granted, *maximum, ahead, "pool"))
            }
            Self::SessionsAtMaximum { queue, user, running, maximum, before } => {
                let sessions = counted(*maximum, "session");
                let whose = user.as_ref().map(|user| format!(" of user {user}"));
                let whose = whose.unwrap_or_default();
                let are = is_or_are(*running);
                let next = match before {
                    0 => "this session is next".to_owned(),
                    before => {
                        let verb = if *before == 1 { "comes" } else { "come" };
                        format!("{} {verb} first (started earlier)", counted(*before, "session"))
                    }
                };
                format!(
                    "queue {queue} serves {sessions}{whose} at a time, and {running} {are} served; {next}"
                )
            }
            Self::UserAtMaximum { queue, user, granted, maximum } => {
                let grants = counted(*granted, "grant");
                if granted == &i64::from(*maximum) {
                    format!("user {user} holds {grants} in queue {queue}, the maximum of each user")
                } else {
                    format!(
                        "user {user} holds {grants} in queue {queue}, more than the {maximum} of \
                         each user"
                    )
                }
            }
            Self::Reserved { reserved, queues, count } => {
                let slots = counted(*reserved, "slot");
                let stay = if *reserved == 1 { "stays" } else { "stay" };
                format!("{slots} {stay} free for {}", keepers(queues, *count))
            }
            Self::AboveMaximum { queue, demand, held, maximum, never } => {
                let holds = format!("queue {queue} holds {held}, and its maximum is {maximum}");
                match demand {
                    None => holds,
                    Some(demand) if *never => format!(
                        "{needs} {demand}, and the maximum of queue {queue} is {maximum}: {they} can \
                         never be served"
                    ),
                    Some(demand) => format!("{needs} {demand}; {holds}"),
                }
            }
            Self::AmountsReserved { demand, free, reserved, queues, count } => {
                let keepers = keepers(queues, *count);
                format!(
                    "{needs} {demand}; all nodes together have {free} left, of which {reserved} stay \
                     free for {keepers}"
                )
            }
            Self::NodesUnusable(unusable) => match unusable.nodes() {
                1 => format!("the only node that serves {kind} is {}", unusable.only_reason()),
                nodes => match unusable.reasons().as_slice() {
                    [(_, reason, _)] => format!("all {nodes} nodes that serve {kind} are {reason}"),
                    _ => format!(
                        "none of the {nodes} nodes that serve {kind} may be used: {}",
                        unusable.each_reason("")
                    ),
                },
            },
            Self::NoFreeSlot { total, unusable, competition, .. } => {
                let mut said = vec![match total {
                    1 => "the only slot is in use".to_owned(),
                    total => format!("all {total} slots are in use"),
                }];
                said.extend(unusable.free_elsewhere());
                said.extend(competition.clauses(about));
                clauses(said)
            }
            Self::TooLarge { need, most_free, most_slots, able, unusable } => {
                let most = match (able, unusable.nodes()) {
                    (0, 0) => {
                        format!("no node has more than {most_slots}: {they} can never be served")
                    }
                    (0, 1) => format!("the only node with so many is {}", unusable.only_reason()),
                    (0, nodes) => format!(
                        "none of the {nodes} nodes with so many may be used: {}",
                        unusable.each_reason("")
                    ),
                    _ => format!("at most {most_free} {} free on any", is_or_are(*most_free)),
                };
                format!("{needs} {} on one node, and {most}", counted(*need, "slot"))
            }
            Self::TooLittle {
                demand,
                free,
                largest,
                able,
                kept,
                reservation,
                guaranteed,
                preemption,
            } => {
                let needs = format!("{needs} {demand} on one node");
                if *able == 0 {
                    return format!("{needs}, and no node has so much: {they} can never be served");
                }
                let mut said = vec![format!(
                    "{needs}; all nodes together have {free} left, and the one that lacks least has {largest}"
                )];
                match kept {
                    0 => {}
                    1 => said.push("another node is kept for a request of others".into()),
                    kept => said.push(format!("{kept} nodes are kept for requests of others")),
                }
                said.extend(reservation.as_ref().map(|reservation| {
                    let ReservedNode { node, request, since, until } = reservation;
                    let age = Span(about.now.since(*since).max(1_000));
                    let left = Span(until.since(about.now).max(1_000));
                    format!(
                        "node {node} has been kept for request {request} for {age}, and for another \
                         {left} at most"
                    )
                }));
                let guaranteed: Vec<String> = guaranteed.iter().map(Holder::text).collect();
                said.extend((!guaranteed.is_empty()).then(|| listed(&guaranteed, "and")));
                said.extend(preemption.map(|preemption| preemption.clause("its pool", about)));
                clauses(said)
            }
            Self::HostsExcluded { nodes, full, unusable } => {
                let exclude = about.one_or("it excludes", "they exclude");
                let them = about.one_or("it", "them");
                let which = match (full, unusable.nodes()) {
                    (0, 0) => format!("that could serve {them}: {they} can never be served"),
                    _ => "with room".to_owned(),
                };
                let mut said = vec![match nodes {
                    1 => format!("{exclude} the host of the only node {which}"),
                    nodes => format!("{exclude} the hosts of all {nodes} nodes {which}"),
                }];
                match full {
                    0 => {}
                    1 => said.push("1 other node is full".into()),
                    full => said.push(format!("{full} other nodes are full")),
                }
                if unusable.nodes() > 0 {
                    said.push(unusable.each_reason("other "));
                }
                clauses(said)
            }
            Self::NearNode { until, hosts, host_count } => {
                let wait = about.one_or("it waits", "they wait");
                let more = host_count.saturating_sub(hosts.len());
                let mut hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                if more > 0 {
                    hosts.push(counted(more, "other host"));
                }
                let left = about.until(*until);
                format!("{wait} another {left} for a slot on {}", listed(&hosts, "or"))
            }
            Self::NextPass { ahead } if ahead.is_nothing() => {
                "a slot is free, and this session is considered next".into()
            }
            Self::NextPass { ahead } => {
                let mut said = vec!["a slot is free".to_owned()];
                said.extend(ahead.clauses());
                clauses(said)
            }
        }
    }
}

impl<'a> About<'a> {
    fn one_or<T>(&self, one: T, many: T) -> T {
        if self.count == 1 { one } else { many }
    }

    fn own_pool(&self, pool: &PoolName) -> String {
        format!("pool {pool}{}", self.asked_for(|_| true))
    }

    fn asked_for(&self, matters: impl FnOnce(&&'a PoolName) -> bool) -> String {
        let asked = self.asked.filter(matters);
        asked.map(|asked| format!(" (the session asked for {asked})")).unwrap_or_default()
    }

    /// The clauses about a pool or group that may not have more grants.
    fn limit(&self, who: &str, granted: i64, maximum: i64, ahead: &Ahead, of: &str) -> Vec<String> {
        let kind = self.kind;
        if maximum <= 0 {
            let they = self.one_or("it", "they");
            let never = format!("{who} may hold no {kind} grants: {they} can never be served");
            return vec![never];
        }
        let grants = counted(granted, "grant");
        let mut said = vec![if granted == maximum {
            format!("{who} holds {grants}, its maximum")
        } else {
            format!("{who} holds {grants}, more than its maximum of {maximum}")
        }];
        match ahead.is_nothing() {
            true => said.push(format!("this session is next in the {of}")),
            false => said.extend(ahead.clauses()),
        }
        said
    }

    /// The time until `at`, rounded up to seconds.
    fn until(&self, at: Millis) -> Span {
        Span(at.since(self.now).saturating_add(999))
    }
}

impl Unusable {
    /// All these nodes.
    pub(super) fn nodes(&self) -> usize {
        let shut = self.blacklisted + self.excluded + self.draining + self.revoked;
        shut + self.below_reserve + self.late
    }

    /// How many nodes have each reason, and what a node with it is called.
    fn reasons(&self) -> Vec<(usize, &'static str, [&'static str; 2])> {
        let short = "short of memory or disk space";
        let all = [
            (self.blacklisted, "blacklisted", ["blacklisted node", ""]),
            (self.excluded, "excluded by the host files", ["excluded node", ""]),
            (self.draining, "draining", ["draining node", ""]),
            (
                self.revoked,
                "without access, which was revoked",
                ["node", " whose access was revoked"],
            ),
            (self.below_reserve, short, ["node", " short of memory or disk space"]),
            (self.late, "late", ["late node", ""]),
        ];
        all.into_iter().filter(|(nodes, ..)| *nodes > 0).collect()
    }

    /// The reason of the only node.
    fn only_reason(&self) -> &'static str {
        self.reasons().first().map_or("not usable", |(_, reason, _)| reason)
    }

    /// `1 is blacklisted, 2 are excluded by the host files`, with `other` in front of the verbs.
    fn each_reason(&self, other: &str) -> String {
        let each = |(nodes, reason, _): (usize, &str, _)| match other {
            "" => format!("{nodes} {} {reason}", is_or_are(nodes)),
            other => {
                format!("{} {} {reason}", counted(nodes, &format!("{other}node")), is_or_are(nodes))
            }
        };
        self.reasons().into_iter().map(each).collect::<Vec<_>>().join(", ")
    }

    /// The free slots that cannot be used.
    fn free_elsewhere(&self) -> Option<String> {
        if self.free_slots == 0 {
            return None;
        }
        let called = |(nodes, _, [what, behind]): (usize, _, [&str; 2])| {
            format!("{}{behind}", counted(nodes, what))
        };
        let nodes: Vec<String> = self.reasons().into_iter().map(called).collect();
        let slots = counted(self.free_slots, "more slot");
        Some(format!("{slots} {} free on {}", is_or_are(self.free_slots), listed(&nodes, "and")))
    }
}

/// The queues that do not lend.
fn keepers(queues: &[Arc<str>], count: usize) -> String {
    let mut names: Vec<String> = queues.iter().map(ToString::to_string).collect();
    if count > names.len() {
        names.push(counted(count - names.len(), "other queue"));
    }
    let verb = if count == 1 { "does" } else { "do" };
    format!("{}, which {verb} not lend", listed(&names, "and"))
}

impl Competition {
    fn clauses(&self, about: About<'_>) -> Vec<String> {
        let mut said = vec![self.own_pool(about)];
        said.extend(self.preemption.map(|preemption| preemption.clause("it", about)));
        said.extend(self.held());
        match (self.ahead.is_nothing(), self.near_only) {
            (true, false) => said.push("this session is next".into()),
            (true, true) => said.push("this session is next for slots on preferred hosts".into()),
            (false, _) => said.extend(self.ahead.clauses()),
        }
        said
    }

    fn own_pool(&self, about: About<'_>) -> String {
        let pool = match &self.path {
            Some(path) => format!("queue {path}{}", about.asked_for(|_| true)),
            None => about.own_pool(&self.pool),
        };
        let minimum = match (self.minimum, self.minimum_amounts) {
            (..=0, Amounts::ZERO) => String::new(),
            (..=0, amounts) => format!(", its minimum is {amounts}"),
            (minimum, Amounts::ZERO) => format!(", its minimum is {minimum}"),
            (minimum, amounts) => format!(", its minima are {minimum} and {amounts}"),
        };
        // A share that rounds to nothing.
        let share = (self.share >= 0.05).then(|| format!("its share is {:.1}", self.share));
        let held = match self.granted {
            ..=0 => "no grants".to_owned(),
            granted => counted(granted, "grant"),
        };
        match share {
            None => format!("{pool} holds {held} and is due none at present{minimum}"),
            Some(share) => format!("{pool} holds {held}, {share}{minimum}"),
        }
    }

    /// The pools that hold the slots.
    fn held(&self) -> Option<String> {
        let mut said: Vec<String> = self.holders.iter().map(Holder::text).collect();
        if self.more_holders > 0 {
            let holds = if self.more_holders == 1 { "holds" } else { "hold" };
            let pools = counted(self.more_holders, "more pool");
            said.push(format!("{pools} {holds} {}", self.more_granted));
        }
        (!said.is_empty()).then(|| listed(&said, "and"))
    }
}

impl Holder {
    fn text(&self) -> String {
        let Holder { pool, granted, claim } = self;
        let own = |minimum: &dyn Display, within: bool| match within {
            true => format!(" (guaranteed by its minimum of {minimum})"),
            false => format!(" (its minimum is {minimum})"),
        };
        let of_group = |minimum: &dyn Display| format!(" (its group's minimum is {minimum})");
        let claim = match claim {
            None => String::new(),
            Some(HolderClaim::HigherPriority) => " (higher priority)".into(),
            Some(HolderClaim::Minimum(minimum)) => own(minimum, granted <= minimum),
            Some(HolderClaim::MinimumAmounts { minimum, within }) => own(minimum, *within),
            Some(HolderClaim::GroupMinimum(minimum)) => of_group(minimum),
            Some(HolderClaim::GroupMinimumAmounts(minimum)) => of_group(minimum),
        };
        format!("pool {pool} holds {granted}{claim}")
    }
}

impl Preemption {
    fn clause(&self, pool: &str, about: About<'_>) -> String {
        let lacking = match self.cause {
            Starvation::Minimum => format!("{pool} is below its minimum"),
            Starvation::Share => format!("{pool} is below its share"),
        };
        match (self.possible, self.due > about.now) {
            (false, _) => format!("{lacking}, but no grant can be preempted for it"),
            (true, true) => {
                format!("{lacking}, and preemption for it is due in {}", about.until(self.due))
            }
            (true, false) => format!("{lacking}, and preemption for it is due now"),
        }
    }
}

impl Ahead {
    pub(super) fn is_nothing(&self) -> bool {
        self.groups.count == 0 && self.pools.count == 0 && self.sessions.count == 0
    }

    fn clauses(&self) -> Vec<String> {
        [
            self.groups.clause("group", "", "fewer grants"),
            self.pools.clause("pool", "", "fewer grants for its weight"),
            self.sessions.clause("session", " of the same pool", "fewer grants"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl<N: Display> Rivals<N> {
    /// `2 pools come first: a (higher priority), b (below its minimum)`, bounded in length.
    fn clause(&self, what: &str, of: &str, fewer: &str) -> Option<String> {
        if let (1, [(name, precedence)]) = (self.count, self.named.as_slice()) {
            return Some(format!("{what} {name}{of} comes first ({})", precedence.text(fewer)));
        }
        let runs = self.named.chunk_by(|(_, a), (_, b)| a == b).filter_map(|run| {
            let (_, precedence) = run.first()?;
            let names: Vec<String> = run.iter().map(|(name, _)| name.to_string()).collect();
            Some(format!("{} ({})", names.join(", "), precedence.text(fewer)))
        });
        let mut runs: Vec<String> = runs.collect();
        let more = self.count.saturating_sub(self.named.len());
        if more > 0 {
            runs.push(format!("{more} more"));
        }
        let whats = counted(self.count, what);
        (self.count > 0).then(|| format!("{whats}{of} come first: {}", listed(&runs, "and")))
    }
}

impl Precedence {
    /// Its name in the JSON API.
    pub fn name(self) -> &'static str {
        match self {
            Precedence::BelowMinimum => "below_minimum",
            Precedence::FurtherBelowMinimum => "further_below_minimum",
            Precedence::Guaranteed => "guaranteed",
            Precedence::HigherPriority => "higher_priority",
            Precedence::FewerGrants => "fewer_grants",
            Precedence::EarlierDeadline => "earlier_deadline",
            Precedence::EarlierStart => "earlier_start",
            Precedence::Name => "name",
        }
    }

    fn text(self, fewer: &str) -> &str {
        match self {
            Precedence::BelowMinimum => "below its minimum",
            Precedence::FurtherBelowMinimum => "further below its minimum",
            Precedence::Guaranteed => "has a minimum",
            Precedence::HigherPriority => "higher priority",
            Precedence::FewerGrants => fewer,
            Precedence::EarlierDeadline => "earlier deadline",
            Precedence::EarlierStart => "started earlier",
            Precedence::Name => "by name",
        }
    }
}

fn clauses(said: Vec<String>) -> String {
    said.join("; ")
}

/// `1 slot`, `2 slots`.
fn counted<N: Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{plural}")
}

fn is_or_are<N: PartialEq + From<u8>>(count: N) -> &'static str {
    if count == N::from(1) { "is" } else { "are" }
}

/// `a, b and c`.
fn listed(items: &[String], last: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}
