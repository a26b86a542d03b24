//! Finds out why requests wait.
//!
//! Read-only; it runs on demand, for one session, in time that grows with the nodes, the pools and
//! the session's requests, not with their product. Lists of other names are bounded.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::order::{Precedence, QueueIdx, QueueKey};
use super::quota::{Allowance, held_of};
use super::reasons::{
    About, Ahead, Competition, Holder, HolderClaim, IdRange, ReservedNode, Rivals, Unusable,
    WaitReason, WaitingRequests,
};
use super::tree::Pool;
use super::{Level, Reservation, SessionKey, levels};
use crate::Engine;
use crate::index::{ClassIdx, GroupIdx, HostIdx, NodeIdx, ReqIdx, SessionIdx};
use crate::nodes::{Node, Obstacle};
use crate::requests::{Request, RequestState, Wish};
use crate::sessions::Session;
use crate::settings::Settings;
use crate::types::{Millis, PoolName, ResourceType};
use corona_model::queues::SiblingOrder;
use corona_model::resources::Amounts;

/// Hosts that [`WaitReason::NearNode`] names at most.
const HOSTS_NAMED: usize = 8;
/// Groups, pools and sessions that are named at most, each.
const RIVALS_NAMED: usize = 3;

impl Engine {
    /// Why each waiting request of a session waits at `now`, as far as the engine knows it before
    /// its next pass: by type, those with equal reasons together. `None` for an unknown session.
    pub fn explain(&self, handle: &str, now: Millis) -> Option<Vec<WaitingRequests>> {
        let session = self.sessions.find(handle)?;
        let entry = &self.sessions[session];
        let waiting = |kind: &ResourceType| entry.demand(*kind).tally.pending > 0;
        let kinds = ResourceType::ALL.into_iter().filter(waiting);
        Some(kinds.flat_map(|kind| Question::new(self, session, kind, now).answer()).collect())
    }
}

/// Why requests of a session for one type wait.
struct Question<'a> {
    engine: &'a Engine,
    session: SessionIdx,
    entry: &'a Session,
    pool: &'a Pool,
    kind: ResourceType,
    now: Millis,
    offers: Offers,
}

impl<'a> Question<'a> {
    fn new(engine: &'a Engine, session: SessionIdx, kind: ResourceType, now: Millis) -> Self {
        let entry = &engine.sessions[session];
        let pool = &engine.scheduler.tree[entry.pool];
        let offers = Offers::new(engine, kind);
        Question { engine, session, entry, pool, kind, now, offers }
    }

    fn answer(&self) -> Vec<WaitingRequests> {
        if let Some(reason) = self.nothing_is_granted() {
            let ids = self.pending().map(|(_, request, _)| request.id).collect();
            return vec![self.explanation(Waiting { ids, hosts: BTreeSet::new() }, reason)];
        }
        let common = self.common_reason();
        let until = self.entry.demand(self.kind).blocked.and_then(|blocked| blocked.until);
        let until = until.filter(|until| *until > self.now);
        // Requests of a class take the same slots and exclude the same hosts.
        let mut verdicts: BTreeMap<ClassIdx, Verdict> = BTreeMap::new();
        let mut groups: BTreeMap<Own, Waiting> = BTreeMap::new();
        let most = self.engine.most_at_once(self.entry.pool, self.kind);
        for (req, request, class) in self.pending() {
            let wish = self.entry.requests.wish(req);
            let verdict = *verdicts.entry(class).or_insert_with(|| self.verdict(request, &wish));
            let own = match verdict {
                Verdict::Never(own) => own,
                _ if common.is_some() => Own::Common,
                Verdict::NotNow(own) => own,
                Verdict::Fits if !most.allows(&wish) => self.not_allowed(&wish, &most),
                Verdict::Fits => self.nearness(request, &wish, until),
            };
            let group = groups.entry(own).or_default();
            group.ids.push(request.id);
            if let Own::NearNode { .. } = own {
                group.hosts.extend(&*request.hosts);
            }
        }
        let mut explained: Vec<WaitingRequests> = groups
            .into_iter()
            .map(|(own, waiting)| {
                let reason = self.reason(own, &waiting, common.as_ref());
                self.explanation(waiting, reason)
            })
            .collect();
        explained.sort_by_key(|each| each.ids.first().map(|range| range.first));
        explained
    }

    /// The requests that wait, with the numbers of their classes.
    fn pending(&self) -> impl Iterator<Item = (ReqIdx, &'a Request, ClassIdx)> {
        let kind = self.kind;
        self.entry.requests.iter().filter_map(move |(req, request)| match request.state {
            RequestState::Pending { class } if request.kind == kind => Some((req, request, class)),
            _ => None,
        })
    }

    /// The reason that keeps all requests waiting, so that no other matters.
    fn nothing_is_granted(&self) -> Option<WaitReason> {
        if self.engine.safe_mode {
            return Some(WaitReason::SafeMode);
        }
        let nodes = self.engine.nodes.len();
        (self.offers.serving == 0).then_some(WaitReason::NotServed { nodes })
    }

    /// The reason that keeps all requests waiting that could be served at all.
    fn common_reason(&self) -> Option<WaitReason> {
        if let Some(reason) = self.crowd() {
            return Some(reason);
        }
        let (kind, tree) = (self.kind, &self.engine.scheduler.tree);
        let full_of_resources = |queue: &QueueIdx| tree.quota(*queue).is_full(tree.held(*queue));
        if let Some(queue) = tree.path(self.entry.pool).filter(full_of_resources).last() {
            return Some(self.above_maximum(queue, None));
        }
        let full = |queue: &QueueIdx| {
            let state = tree.state(*queue, kind);
            state.tally.granted >= state.maximum
        };
        if let Some(queue) = tree.path(self.entry.pool).filter(full).last() {
            let state = tree.state(queue, kind);
            let (granted, maximum) = (state.tally.granted, state.maximum);
            return Some(match queue {
                QueueIdx::Group(group) => {
                    let ahead = self.ahead(Some(group));
                    let group = tree.path_of(queue);
                    WaitReason::GroupAtMaximum { group, granted, maximum, ahead }
                }
                QueueIdx::Pool(_) => {
                    let (pool, ahead) = (self.pool.name.clone(), self.sessions_ahead());
                    WaitReason::PoolAtMaximum { pool, granted, maximum, ahead }
                }
            });
        }
        let Offers { used, total, .. } = self.offers;
        if self.offers.usable.is_empty() {
            return Some(WaitReason::NodesUnusable(self.offers.unusable_with(1)));
        }
        if self.offers.rooms.is_empty() {
            return Some(WaitReason::NoFreeSlot {
                used,
                total,
                unusable: self.offers.unusable_with_room,
                competition: Box::new(self.competition()),
            });
        }
        let most = self.engine.most_at_once(self.entry.pool, kind);
        (most.slots == 0).then(|| self.reserved())
    }

    /// The limit of users or sessions that keeps all requests waiting.
    fn crowd(&self) -> Option<WaitReason> {
        let tree = &self.engine.scheduler.tree;
        let user = &self.entry.info.user_id;
        if let Some(gate) = self.entry.gate {
            let (rules, crowd) = (tree.rules(gate.queue), tree.crowd(gate.queue));
            let (running, maximum) = match gate.of_user {
                false => (crowd.running, rules.max_sessions),
                true => (crowd.running_of(user), rules.max_sessions_per_user),
            };
            return Some(WaitReason::SessionsAtMaximum {
                queue: tree.path_of(gate.queue),
                user: gate.of_user.then(|| user.clone()),
                running,
                maximum: maximum.unwrap_or(running),
                before: crowd.waiting_before(gate, self.entry),
            });
        }
        let (queue, maximum) = tree.user_limit(self.entry.pool, user, self.kind)?;
        Some(WaitReason::UserAtMaximum {
            queue: tree.path_of(queue),
            user: user.clone(),
            granted: tree.crowd(queue).granted_to(user, self.kind),
            maximum,
        })
    }

    /// The free slots stay free for queues that do not lend.
    fn reserved(&self) -> WaitReason {
        let tree = &self.engine.scheduler.tree;
        let (queues, count) = self.keepers(|queue| tree.state(queue, self.kind).reserve.into());
        WaitReason::Reserved { reserved: tree.reserved(self.kind), queues, count }
    }

    /// The resources that are left stay free for queues that do not lend.
    fn amounts_reserved(&self, demand: Amounts) -> WaitReason {
        let tree = &self.engine.scheduler.tree;
        let free = self.engine.nodes.usable_spare();
        let share = |queue| tree.quota(queue).reserve.dominant_share(&free.most(demand));
        let (queues, count) = self.keepers(|queue| share(queue).into());
        let reserved = tree.reserved_amounts;
        WaitReason::AmountsReserved { demand, free, reserved, queues, count }
    }

    /// The paths of the first few queues that do not lend and keep most, and how many there are.
    fn keepers(&self, keeps: impl Fn(QueueIdx) -> i128) -> (Vec<Arc<str>>, usize) {
        let tree = &self.engine.scheduler.tree;
        let groups = tree.groups().map(|(group, _)| QueueIdx::Group(group));
        let pools = tree.pools().map(|(pool, _)| QueueIdx::Pool(pool));
        let all = groups.chain(pools).filter(|queue| !tree.rules(*queue).lend && keeps(*queue) > 0);
        let mut queues: Vec<(i128, Arc<str>)> =
            all.map(|queue| (keeps(queue), tree.path_of(queue))).collect();
        queues.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let count = queues.len();
        (queues.into_iter().take(RIVALS_NAMED).map(|(_, path)| path).collect(), count)
    }

    /// A queue of the path may hold no more resources, or not so many more.
    fn above_maximum(&self, queue: QueueIdx, demand: Option<Amounts>) -> WaitReason {
        let tree = &self.engine.scheduler.tree;
        let most = tree.quota(queue).maximum;
        let limited = |amounts: Amounts| {
            Amounts(std::array::from_fn(|at| if most.0[at] < u64::MAX { amounts.0[at] } else { 0 }))
        };
        let never = demand.is_some_and(|demand| !demand.fits(&most));
        WaitReason::AboveMaximum {
            queue: tree.path_of(queue),
            demand: demand.map(limited),
            held: limited(tree.held(queue)),
            maximum: limited(most),
            never,
        }
    }

    /// What keeps a request waiting for which some node has room.
    fn not_allowed(&self, wish: &Wish, most: &Allowance) -> Own {
        let (tree, demand) = (&self.engine.scheduler.tree, wish.demand);
        if wish.need > most.slots {
            return Own::Reserved;
        }
        let above =
            |queue: &QueueIdx| !demand.fits(&tree.quota(*queue).maximum.minus(tree.held(*queue)));
        match tree.path(self.entry.pool).filter(above).last() {
            Some(queue) => Own::AboveMaximum { queue, demand },
            None => Own::AmountsReserved { demand },
        }
    }

    /// The verdict that follows from what a request takes and the hosts that it excludes.
    fn verdict(&self, request: &Request, wish: &Wish) -> Verdict {
        let by_slots = self.verdict_by_slots(request);
        if wish.demand == Amounts::ZERO || matches!(by_slots, Verdict::Never(_)) {
            return by_slots;
        }
        let demand = wish.demand;
        let tree = &self.engine.scheduler.tree;
        let above = |queue: &QueueIdx| !demand.fits(&tree.quota(*queue).maximum);
        if let Some(queue) = tree.path(self.entry.pool).filter(above).last() {
            return Verdict::Never(Own::AboveMaximum { queue, demand });
        }
        let others =
            || self.offers.all.iter().filter(|offer| !request.excluded.contains(&offer.host));
        let able = others().filter(|offer| demand.fits(&offer.capacity)).count();
        if able == 0 {
            return Verdict::Never(Own::Resources { demand, able });
        }
        let fits = |offer: &Offer| {
            let usable = offer.obstacle.is_none() && !offer.reserved;
            usable && offer.room >= wish.need && demand.fits(&offer.spare)
        };
        match (by_slots, others().any(fits)) {
            (Verdict::Fits, false) => Verdict::NotNow(Own::Resources { demand, able }),
            (by_slots, _) => by_slots,
        }
    }

    /// What the resources are of which too little is left on each node.
    fn too_little(&self, demand: Amounts, able: usize, waiting: &Waiting) -> WaitReason {
        let usable = || {
            let all = self.offers.all.iter();
            all.filter(|offer| offer.obstacle.is_none() && !offer.reserved)
        };
        let free = usable().fold(Amounts::ZERO, |sum, offer| sum.plus(offer.spare));
        // The place that lacks the smallest part of the demand.
        let largest = usable().map(|offer| (demand.minus(offer.spare), offer.spare));
        let largest = largest.min_by_key(|(lack, spare)| (lack.dominant_share(&demand), *spare));
        let largest = largest.map_or(Amounts::ZERO, |(_, spare)| spare);
        let reservation = self.reservation(waiting);
        let kept = self.offers.all.iter().filter(|offer| offer.reserved).count();
        let kept = kept.saturating_sub(usize::from(reservation.is_some()));
        let preemption = self.engine.room_due(self.entry.pool, self.kind, self.now);
        // Types share the resources. The one that is wanted goes first.
        let mut kinds = ResourceType::ALL;
        kinds.sort_by_key(|kind| *kind != self.kind);
        let others = self.others(&kinds).into_iter().map(|other| self.holder(other, &kinds));
        let guaranteed =
            others.filter(|it| it.claim.is_some_and(|claim| claim != HolderClaim::HigherPriority));
        let guaranteed = guaranteed.take(RIVALS_NAMED).collect();
        WaitReason::TooLittle {
            demand,
            free,
            largest,
            able,
            kept,
            reservation,
            guaranteed,
            preemption,
        }
    }

    /// The node that is kept for one of the requests.
    fn reservation(&self, waiting: &Waiting) -> Option<ReservedNode> {
        let reservation = self.engine.scheduler.reservations.get(&self.entry.pool)?;
        let Reservation { node, handle, id, kind, since } = reservation;
        let until = self.engine.reservation_end(reservation);
        let own = *handle == self.entry.handle && *kind == self.kind && waiting.ids.contains(id);
        let node = self.engine.nodes.get(*node).filter(|_| own)?;
        Some(ReservedNode { node: node.name.clone(), request: *id, since: *since, until })
    }

    fn verdict_by_slots(&self, request: &Request) -> Verdict {
        let offers = &self.offers;
        let need = request.need();
        let able = at_least(&offers.usable, need);
        let unusable = offers.unusable_with(need);
        let serving = able + unusable.nodes();
        let too_large = Own::TooLarge { need, able, unusable };
        if serving == 0 {
            return Verdict::Never(too_large);
        }
        let excluded = offers.on_hosts(&request.excluded, need);
        if excluded.able + excluded.unusable.nodes() == serving {
            let unusable = Unusable::default();
            return Verdict::Never(Own::HostsExcluded { nodes: serving, full: 0, unusable });
        }
        let fitting = at_least(&offers.rooms, need);
        if fitting == 0 {
            return Verdict::NotNow(too_large);
        }
        if excluded.fitting == fitting {
            return Verdict::NotNow(Own::HostsExcluded {
                nodes: fitting,
                full: able - excluded.able,
                unusable: unusable.without(excluded.unusable),
            });
        }
        Verdict::Fits
    }

    /// Whether a request waits for a preferred host although another node could serve it.
    fn nearness(&self, request: &Request, wish: &Wish, until: Option<Millis>) -> Own {
        let nodes = &self.engine.nodes;
        let fits = |node: NodeIdx| nodes[node].fits(request.kind, wish);
        let fits_on = |host: &HostIdx| nodes.runnable(request.kind).on_host(*host).any(fits);
        match until {
            Some(until) if !request.hosts.is_empty() && !request.hosts.iter().any(fits_on) => {
                Own::NearNode { until }
            }
            _ => Own::NextPass,
        }
    }

    fn reason(&self, own: Own, waiting: &Waiting, common: Option<&WaitReason>) -> WaitReason {
        match (own, common) {
            (Own::Common, Some(common)) => common.clone(),
            (Own::TooLarge { need, able, unusable }, _) => WaitReason::TooLarge {
                need,
                most_free: self.offers.rooms.last().copied().unwrap_or(0),
                most_slots: self.offers.most_slots(),
                able,
                unusable,
            },
            (Own::HostsExcluded { nodes, full, unusable }, _) => {
                WaitReason::HostsExcluded { nodes, full, unusable }
            }
            (Own::NearNode { until }, _) => {
                let topology = &self.engine.topology;
                let hosts = waiting.hosts.iter().map(|host| topology.host_name(*host).clone());
                let mut hosts: Vec<Arc<str>> = hosts.collect();
                hosts.sort_unstable();
                let host_count = hosts.len();
                hosts.truncate(HOSTS_NAMED);
                WaitReason::NearNode { until, hosts, host_count }
            }
            (Own::Resources { demand, able }, _) => self.too_little(demand, able, waiting),
            (Own::AboveMaximum { queue, demand }, _) => self.above_maximum(queue, Some(demand)),
            (Own::Reserved, _) => self.reserved(),
            (Own::AmountsReserved { demand }, _) => self.amounts_reserved(demand),
            (Own::Common | Own::NextPass, _) => WaitReason::NextPass { ahead: self.ahead(None) },
        }
    }

    fn explanation(&self, mut waiting: Waiting, reason: WaitReason) -> WaitingRequests {
        waiting.ids.sort_unstable();
        let count = waiting.ids.len() as u64;
        let asked = self.entry.info.pool.as_ref().filter(|asked| **asked != self.pool.name);
        let text = reason.text(About { kind: self.kind, count, now: self.now, asked });
        WaitingRequests { kind: self.kind, ids: ranges(&waiting.ids), count, reason, text }
    }

    /// The queues of the path's groups that come first, from this group inwards, and sessions.
    fn ahead(&self, from: Option<GroupIdx>) -> Ahead {
        let tree = &self.engine.scheduler.tree;
        let (mut groups, mut pools) = (Rivals::default(), Rivals::default());
        let mut queue = QueueIdx::Pool(self.entry.pool);
        let mut levels = Vec::new();
        for group in tree.around(self.entry.pool).map(Some).chain([None]) {
            levels.push((group, queue));
            match group {
                Some(inner) if group != from => queue = QueueIdx::Group(inner),
                _ => break,
            }
        }
        for (group, queue) in levels.into_iter().rev() {
            let own = tree.key(queue, self.kind);
            for key in tree.before(group, self.kind, &own) {
                self.rival(&mut groups, &mut pools, key, &own);
            }
        }
        Ahead { groups, pools, ..self.sessions_ahead() }
    }

    fn rival(
        &self,
        groups: &mut Rivals<Arc<str>>,
        pools: &mut Rivals<PoolName>,
        key: &QueueKey,
        own: &QueueKey,
    ) {
        let tree = &self.engine.scheduler.tree;
        match key.index {
            QueueIdx::Group(_) => {
                groups.add(RIVALS_NAMED, || (tree.path_of(key.index), key.precedence(own)));
            }
            QueueIdx::Pool(pool) => {
                pools.add(RIVALS_NAMED, || (tree[pool].name.clone(), key.precedence(own)));
            }
        }
    }

    /// The sessions that are ahead in the own pool; groups and pools are left out.
    fn sessions_ahead(&self) -> Ahead {
        let mode = self.pool.mode;
        let own = SessionKey::new(
            mode,
            self.entry.standing(self.kind, self.engine.scheduler.tree.whole),
            self.session,
        );
        let named = |key: &SessionKey| {
            let handle = self.engine.sessions[key.session].handle.clone();
            (handle, key.precedence(&own, mode))
        };
        let tree = &self.engine.scheduler.tree;
        let before = tree.sessions_before(self.entry.pool, self.kind, &own);
        let sessions = rivals(before.into_iter(), named);
        Ahead { sessions, ..Ahead::default() }
    }

    fn competition(&self) -> Competition {
        let (kind, pool) = (self.kind, self.entry.pool);
        let shares = self.engine.shares(kind);
        let share = shares.pools.iter().find(|(of, _)| *of == pool);
        let share = share.map_or(0.0, |(_, share)| *share);
        let granted = |pool: &Pool| pool.kinds[kind].tally.granted;
        let tree = &self.engine.scheduler.tree;
        let others = self.others(&[kind]);
        let (named, more) = others.split_at(others.len().min(RIVALS_NAMED));
        Competition {
            pool: self.pool.name.clone(),
            granted: granted(self.pool),
            minimum: self.pool.kinds[kind].minimum,
            minimum_amounts: self.pool.quota.minimum,
            path: (tree.group(self.pool.group).parent.is_some()).then(|| tree.pool_path(self.pool)),
            share,
            ahead: self.ahead(None),
            near_only: self.near_only(),
            holders: named.iter().map(|other| self.holder(other, &[kind])).collect(),
            more_holders: more.len(),
            more_granted: more.iter().map(|other| granted(other)).sum(),
            preemption: self.engine.preemption_for(pool, kind, share, &shares, self.now),
        }
    }

    /// The other pools that hold grants of these types, those with the most first.
    fn others(&self, kinds: &[ResourceType]) -> Vec<&Pool> {
        let others = self.engine.scheduler.tree.pools();
        let others = others.filter(|(other, _)| *other != self.entry.pool).map(|(_, other)| other);
        let mut others: Vec<&Pool> = others.filter(|other| granted_of(other, kinds) > 0).collect();
        others.sort_by_key(|other| (Reverse(granted_of(other, kinds)), &other.name));
        others
    }

    /// Whether all requests prefer hosts, and the session does not look beyond these yet.
    fn near_only(&self) -> bool {
        let waits = self.engine.waits(self.kind);
        let mut locality = self.entry.demand(self.kind).locality;
        locality.adjust(self.now, waits, self.engine.scheduler.pass);
        levels(self.kind).contains(&Level::Rack)
            && waits.node_ms > 0
            && waits.forbid(Level::Rack, locality.required)
            && self.pending().all(|(_, request, _)| !request.hosts.is_empty())
    }

    /// A pool with its grants of these types, and the claim that protects them. A minimum in resources goes first while
    /// the pool is within it; one in slots protects the grants of its type, which are then the ones that are counted.
    fn holder(&self, other: &Pool, kinds: &[ResourceType]) -> Holder {
        let group = self.engine.scheduler.tree.group(other.group);
        let is_sibling = other.group == self.pool.group;
        let (claims, quota) = match is_sibling {
            true => (&other.kinds, &other.quota),
            false => (&group.kinds, &group.quota),
        };
        let held = |kind: &&ResourceType| other.kinds[**kind].tally.granted > 0;
        let guaranteed = kinds.iter().filter(held).find(|kind| claims[**kind].minimum > 0);
        let slots = guaranteed.map(|kind| match is_sibling {
            true => HolderClaim::Minimum(claims[*kind].minimum),
            false => HolderClaim::GroupMinimum(claims[*kind].minimum),
        });
        let (minimum, within) = (quota.minimum, !quota.has_more(held_of(claims)));
        let amounts = (minimum != Amounts::ZERO).then_some(match is_sibling {
            true => HolderClaim::MinimumAmounts { minimum, within },
            false => HolderClaim::GroupMinimumAmounts(minimum),
        });
        let order = self.engine.scheduler.tree.order_in(Some(other.group));
        let before = is_sibling
            && order == SiblingOrder::Priority
            && other.settings.priority > self.pool.settings.priority;
        let claim = amounts.filter(|_| within).or(slots).or(amounts);
        let claim = claim.or(before.then_some(HolderClaim::HigherPriority));
        let counted = guaranteed.filter(|_| claim == slots).map(std::slice::from_ref);
        let granted = granted_of(other, counted.unwrap_or(kinds));
        Holder { pool: other.name.clone(), granted, claim }
    }
}

/// The grants of a pool, of these types.
fn granted_of(pool: &Pool, kinds: &[ResourceType]) -> i64 {
    kinds.iter().map(|kind| pool.kinds[*kind].tally.granted).sum()
}

/// The first few of `keys` by name, and how many they are.
fn rivals<'k, K: 'k, N>(
    mut keys: impl Iterator<Item = &'k K>,
    named: impl FnMut(&'k K) -> (N, Precedence),
) -> Rivals<N> {
    let named: Vec<_> = keys.by_ref().take(RIVALS_NAMED).map(named).collect();
    let count = named.len() + keys.count();
    Rivals { named, count }
}

/// The nodes' offers of a type.
#[derive(Debug, Default)]
struct Offers {
    /// Nodes that have slots and serve the type.
    serving: usize,
    /// Slots in use on those of them that may be used.
    used: u64,
    /// All slots of these.
    total: u64,
    /// Slots of each node that may be used, ascending.
    usable: Vec<u32>,
    /// Free slots of each node that may be used and has any, ascending.
    rooms: Vec<u32>,
    /// Slots of each node that may not be used, by obstacle, ascending.
    unusable: [Vec<u32>; Obstacle::ALL.len()],
    /// Nodes with free slots that may not be used.
    unusable_with_room: Unusable,
    /// All that serve the type.
    all: Vec<Offer>,
    /// These in the order of their hosts, once that is needed.
    by_host: OnceCell<Vec<Offer>>,
}

/// One node's offer of a type.
#[derive(Clone, Copy, Debug)]
struct Offer {
    host: HostIdx,
    slots: u32,
    room: u32,
    obstacle: Option<Obstacle>,
    /// Whether it is kept for one request.
    reserved: bool,
    /// The resources that it gives out, and what is left of them.
    capacity: Amounts,
    spare: Amounts,
}

/// Those of the nodes on some hosts that have enough slots.
#[derive(Clone, Copy, Debug, Default)]
struct OnHosts {
    /// Nodes that may be used.
    able: usize,
    /// Of these, nodes that have enough slots free.
    fitting: usize,
    unusable: Unusable,
}

impl Offers {
    fn new(engine: &Engine, kind: ResourceType) -> Self {
        let mut offers = Offers::default();
        for (_, node) in engine.nodes.iter() {
            if let Some(offer) = Offer::of(node, kind, &engine.settings) {
                offers.enter(offer, u64::from(node.used[kind]));
            }
        }
        offers.usable.sort_unstable();
        offers.rooms.sort_unstable();
        offers.unusable.iter_mut().for_each(|slots| slots.sort_unstable());
        offers
    }

    fn enter(&mut self, offer: Offer, used: u64) {
        self.serving += 1;
        self.all.push(offer);
        if let Some(obstacle) = offer.obstacle {
            self.unusable[obstacle as usize].push(offer.slots);
            if offer.room > 0 {
                self.unusable_with_room.count(obstacle);
                self.unusable_with_room.free_slots += u64::from(offer.room);
            }
            return;
        }
        self.used += used;
        self.total += u64::from(offer.slots);
        self.usable.push(offer.slots);
        if offer.room > 0 {
            self.rooms.push(offer.room);
        }
    }

    /// The nodes with at least `need` slots that may not be used. Their free slots are not counted.
    fn unusable_with(&self, need: u32) -> Unusable {
        let mut unusable = Unusable::default();
        for obstacle in Obstacle::ALL {
            *unusable.of(obstacle) = at_least(&self.unusable[obstacle as usize], need);
        }
        unusable
    }

    fn most_slots(&self) -> u32 {
        let lists = self.unusable.iter().chain([&self.usable]);
        lists.filter_map(|slots| slots.last()).max().copied().unwrap_or(0)
    }

    /// The offers of nodes on these hosts to requests that take `need` slots.
    fn on_hosts(&self, hosts: &[HostIdx], need: u32) -> OnHosts {
        let mut found = OnHosts::default();
        if hosts.is_empty() {
            return found;
        }
        let by_host = self.by_host.get_or_init(|| {
            let mut offers = self.all.clone();
            offers.sort_unstable_by_key(|offer| offer.host);
            offers
        });
        let hosts: BTreeSet<HostIdx> = hosts.iter().copied().collect();
        for host in hosts {
            let first = by_host.partition_point(|offer| offer.host < host);
            let on_host = by_host[first..].iter().take_while(|offer| offer.host == host);
            for offer in on_host.filter(|offer| offer.slots >= need) {
                match offer.obstacle {
                    Some(obstacle) => found.unusable.count(obstacle),
                    None => found.able += 1,
                }
                found.fitting += usize::from(offer.obstacle.is_none() && offer.room >= need);
            }
        }
        found
    }
}

impl Offer {
    /// `None` for a node that does not serve the type.
    fn of(node: &Node, kind: ResourceType, settings: &Settings) -> Option<Offer> {
        if node.apps[kind].is_none() || node.slots[kind] == 0 {
            return None;
        }
        let obstacle = node.obstacle(kind, settings);
        Some(Offer {
            host: node.host,
            slots: node.slots[kind],
            room: node.room(kind),
            obstacle,
            reserved: node.reserved,
            capacity: node.capacity,
            spare: node.spare(),
        })
    }
}

impl Unusable {
    /// The number of nodes with this obstacle.
    fn of(&mut self, obstacle: Obstacle) -> &mut usize {
        match obstacle {
            Obstacle::Revoked => &mut self.revoked,
            Obstacle::Excluded => &mut self.excluded,
            Obstacle::Draining => &mut self.draining,
            Obstacle::Blacklisted => &mut self.blacklisted,
            Obstacle::BelowReserve => &mut self.below_reserve,
            Obstacle::Late => &mut self.late,
        }
    }

    fn count(&mut self, obstacle: Obstacle) {
        *self.of(obstacle) += 1;
    }

    /// Without some of them.
    fn without(mut self, mut some: Unusable) -> Unusable {
        for obstacle in Obstacle::ALL {
            *self.of(obstacle) -= *some.of(obstacle);
        }
        self
    }
}

/// How many numbers of an ascending list are at least `least`.
fn at_least(list: &[u32], least: u32) -> usize {
    list.len() - list.partition_point(|number| *number < least)
}

/// The consequence of a request's slots and excluded hosts.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// No node can serve it, whatever becomes free.
    Never(Own),
    /// No node can serve it now, though there are free slots.
    NotNow(Own),
    /// A node can serve it, if there are free slots.
    Fits,
}

/// Why one request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Own {
    /// As the others of its type.
    Common,
    TooLarge {
        need: u32,
        able: usize,
        unusable: Unusable,
    },
    HostsExcluded {
        nodes: usize,
        full: usize,
        unusable: Unusable,
    },
    Resources {
        demand: Amounts,
        able: usize,
    },
    /// A maximum in resources does not leave so much.
    AboveMaximum {
        queue: QueueIdx,
        demand: Amounts,
    },
    /// The free slots stay free for others.
    Reserved,
    /// The resources that are left stay free for others.
    AmountsReserved {
        demand: Amounts,
    },
    NearNode {
        until: Millis,
    },
    NextPass,
}

/// Requests that wait for the same reason.
#[derive(Debug, Default)]
struct Waiting {
    ids: Vec<i32>,
    /// Hosts that they prefer.
    hosts: BTreeSet<HostIdx>,
}

/// Sorted ids as ranges.
fn ranges(ids: &[i32]) -> Vec<IdRange> {
    ids.chunk_by(|a, b| a.checked_add(1) == Some(*b))
        .filter_map(|run| Some(IdRange { first: *run.first()?, last: *run.last()? }))
        .collect()
}
