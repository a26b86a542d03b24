//! The rules of a tree of queues, found the naive way: every number is a new sum.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Model, ModelSession, Name, Wish, WishState};
use super::shares::{self, ModelClaim};
use corona_engine::{Effect, Notification, Record, TypeCounts};
use corona_model::queues::{PlaceBy, PreemptionRule, QueueRules, SiblingOrder, Submitters};
use corona_model::settings::Settings;
use corona_model::types::{PerType, PoolName, ResourceType, SessionInfo};

/// A group or a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Queue {
    Group(Name),
    Pool(PoolName),
}

/// Slots by pool.
type Held = BTreeMap<PoolName, i64>;

/// The due shares of the pools.
pub(super) type Shares = BTreeMap<PoolName, f64>;

impl Model {
    /// The groups around a pool, the innermost first.
    pub(super) fn around(&self, pool: &PoolName) -> Vec<Name> {
        let groups = &self.settings.pools.queues.groups;
        let mut around = vec![pool.group.clone()];
        while let Some(rules) = around.last().and_then(|group| groups.get(group)) {
            let Some(parent) = &rules.parent else { break };
            around.push(parent.clone());
        }
        around
    }

    pub(super) fn path(&self, pool: &PoolName) -> Vec<Queue> {
        let groups = self.around(pool).into_iter().map(Queue::Group);
        [Queue::Pool(pool.clone())].into_iter().chain(groups).collect()
    }

    pub(super) fn rules(&self, queue: &Queue) -> QueueRules {
        let queues = &self.settings.pools.queues;
        let rules = match queue {
            Queue::Group(group) => queues.groups.get(group),
            Queue::Pool(pool) => queues.pools.get(pool),
        };
        rules.cloned().unwrap_or_default()
    }

    pub(super) fn parent(&self, queue: &Queue) -> Option<Queue> {
        match queue {
            Queue::Group(_) => self.rules(queue).parent.map(Queue::Group),
            Queue::Pool(pool) => Some(Queue::Group(pool.group.clone())),
        }
    }

    /// All queues: those with sessions, those of the settings, and those around.
    fn queues(&self) -> BTreeSet<Queue> {
        let pools = &self.settings.pools;
        let named = pools.pools.keys().filter(|pool| {
            let gone = pools.queues.pools.get(*pool).is_some_and(|rules| rules.vanished);
            !gone || self.pools.contains_key(*pool)
        });
        let mut queues: BTreeSet<Queue> =
            self.pools.keys().chain(named).flat_map(|pool| self.path(pool)).collect();
        let groups = pools.queues.groups.iter().filter(|(_, rules)| !rules.vanished);
        for (group, _) in groups {
            let mut at = Some(Queue::Group(group.clone()));
            while let Some(queue) = at {
                at = self.parent(&queue);
                queues.insert(queue);
            }
        }
        queues
    }

    pub(super) fn inside(&self, around: Option<&Queue>) -> Vec<Queue> {
        let queues = self.queues().into_iter();
        queues.filter(|queue| self.parent(queue).as_ref() == around).collect()
    }

    /// What the pools in a queue have.
    pub(super) fn counts_in(&self, queue: &Queue, kind: ResourceType) -> TypeCounts {
        let pools = self.pools.iter().filter(|(pool, _)| self.path(pool).contains(queue));
        pools.fold(TypeCounts::default(), |sum, (_, counts)| TypeCounts {
            requested: sum.requested + counts[kind].requested,
            pending: sum.pending + counts[kind].pending,
            granted: sum.granted + counts[kind].granted,
        })
    }

    /// Slots on the nodes that serve the type.
    fn offered(&self, kind: ResourceType) -> i64 {
        let serving = self.nodes.values().filter(|node| node.apps[kind].is_some());
        serving.map(|node| i64::from(self.slots(node, kind))).sum()
    }

    /// The minimum, the maximum, and the smallest maximum from here outwards.
    pub(super) fn limits(&self, queue: &Queue, kind: ResourceType) -> (i64, i64, i64) {
        let pools = &self.settings.pools;
        let (minimum, maximum) = match queue {
            Queue::Group(group) => {
                let own = pools.groups.get(group).cloned().unwrap_or_default();
                (own.minimum[kind], own.maximum[kind])
            }
            Queue::Pool(pool) => {
                let own = pools.pools.get(pool).cloned().unwrap_or_default();
                (own.minimum[kind], own.maximum[kind])
            }
        };
        let whole = self.offered(kind);
        let around = self.parent(queue).map(|parent| self.limits(&parent, kind));
        let (least, reach) = around.map_or((whole, whole), |(least, _, reach)| (least, reach));
        let rules = self.rules(queue);
        let part = |part: u32, of: i64| f64::from(part) / 10_000.0 * of as f64;
        let minimum = rules.minimum[kind].map_or(i64::from(minimum), |least_part| {
            (part(least_part.0, least) + 1e-9).floor() as i64
        });
        let maximum = rules.maximum[kind].map_or(i64::from(maximum), |most_part| {
            (part(most_part.0, reach) - 1e-9).ceil().max(0.0) as i64
        });
        (minimum, maximum, maximum.min(reach))
    }

    /// The slots that sessions of each pool hold.
    fn held(&self, kind: ResourceType) -> Held {
        let mut held = Held::new();
        for session in self.sessions.values() {
            let of_kind = session.wishes.values().filter(|wish| wish.kind == kind);
            let holds = of_kind.filter(|wish| matches!(wish.state, WishState::Holds { .. }));
            let slots: i64 = holds.map(|wish| i64::from(self.need(wish))).sum();
            *held.entry(session.pool.clone()).or_default() += slots;
        }
        held
    }

    /// The slots that stay free for a queue if pools hold so many.
    fn reserve(&self, queue: &Queue, kind: ResourceType, held: &Held) -> i64 {
        let inside: i64 =
            self.inside(Some(queue)).iter().map(|inner| self.reserve(inner, kind, held)).sum();
        if self.rules(queue).lend {
            return inside;
        }
        let own = held.iter().filter(|(pool, _)| self.path(pool).contains(queue));
        let missing = self.limits(queue, kind).0 - own.map(|(_, slots)| slots).sum::<i64>();
        missing.max(inside).max(0)
    }

    fn reserved(&self, kind: ResourceType, held: &Held) -> i64 {
        self.inside(None).iter().map(|queue| self.reserve(queue, kind, held)).sum()
    }

    /// Slots that should stay free for queues that do not lend, and are in use.
    pub(super) fn missing_reserve(&self, kind: ResourceType) -> i64 {
        if self.lends_all() {
            return 0;
        }
        (self.reserved(kind, &self.held(kind)) - self.free(kind)).max(0)
    }

    fn lends_all(&self) -> bool {
        self.queues().iter().all(|queue| self.rules(queue).lend)
    }

    fn free(&self, kind: ResourceType) -> i64 {
        self.nodes.values().map(|node| i64::from(self.room(node, kind))).sum()
    }

    /// After all grants of a pass: nothing was given that stays free for queues that do not lend, of
    /// which so many slots were missing before.
    pub(super) fn check_reserve(&self, kind: ResourceType, before: i64) -> Result<(), String> {
        let missing = self.missing_reserve(kind);
        if missing <= before {
            return Ok(());
        }
        Err(format!("{missing} slots of {kind} are missing that are reserved, and were {before}"))
    }

    /// Whether the rules of the path let a request of the session be given what it wants.
    pub(super) fn may_be_given(
        &self,
        session: &ModelSession,
        kind: ResourceType,
        wish: &Wish,
    ) -> bool {
        self.may_be_given_beside(session, kind, wish, None)
    }

    /// The same if a pool held one more grant, on a node that has room for it.
    pub(super) fn may_be_given_beside(
        &self,
        session: &ModelSession,
        kind: ResourceType,
        wish: &Wish,
        beside: Option<(&PoolName, &Wish)>,
    ) -> bool {
        let need = self.need(wish);
        let full = |queue: &Queue| {
            let more = beside.is_some_and(|(pool, _)| self.path(pool).contains(queue));
            self.counts_in(queue, kind).granted + i64::from(more) >= self.limits(queue, kind).1
                || self.user_room(queue, &session.user, kind) <= 0
        };
        if !session.served || self.path(&session.pool).iter().any(full) {
            return false;
        }
        if !self.quotas_allow(session, self.demand(wish), beside) {
            return false;
        }
        if self.lends_all() {
            return true;
        }
        let (mut held, mut free) = (self.held(kind), self.free(kind));
        if let Some((pool, beside)) = beside {
            *held.entry(pool.clone()).or_default() += i64::from(self.need(beside));
            free -= i64::from(self.need(beside));
        }
        let before = self.reserved(kind, &held);
        // A node may be kept for a request while no slot is free.
        if before == 0 {
            return true;
        }
        *held.entry(session.pool.clone()).or_default() += i64::from(need);
        let of_others = i64::from(need) - (before - self.reserved(kind, &held));
        of_others <= (free - before).max(0)
    }

    /// The rules of the path after a grant.
    pub(super) fn check_rules(&self, handle: &Name, kind: ResourceType) -> Result<(), String> {
        let session = &self.sessions[handle];
        if !session.served {
            return Err("it has to wait for its turn".into());
        }
        for queue in self.path(&session.pool) {
            let granted = self.counts_in(&queue, kind).granted;
            let (_, maximum, _) = self.limits(&queue, kind);
            if granted > maximum {
                return Err(format!("{granted} are too many for {queue:?}, which has {maximum}"));
            }
            if self.user_room(&queue, &session.user, kind) < 0 {
                return Err(format!("too many for user {} in {queue:?}", session.user));
            }
        }
        self.check_quotas(session)
    }

    /// Slots that a user may have more in a queue.
    fn user_room(&self, queue: &Queue, user: &Name, kind: ResourceType) -> i64 {
        let Some(most) = self.rules(queue).max_per_user else { return i64::MAX };
        let own = self
            .sessions
            .values()
            .filter(|session| session.user == *user && self.path(&session.pool).contains(queue));
        i64::from(most) - own.map(|session| session.counts[kind].granted).sum::<i64>()
    }

    /// Lets sessions have their turn, in the order of their start.
    pub(super) fn take_turns(&mut self) {
        if self.settings.pools.queues.is_empty() {
            self.sessions.values_mut().for_each(|session| session.served = true);
            return;
        }
        let mut waiting: Vec<(u64, Name)> = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.served)
            .map(|(handle, session)| (session.serial, handle.clone()))
            .collect();
        waiting.sort();
        for (_, handle) in waiting {
            let session = &self.sessions[&handle];
            let open = |queue: &Queue| {
                let rules = self.rules(queue);
                let served = || {
                    let served = self.sessions.values().filter(|other| other.served);
                    served.filter(|other| self.path(&other.pool).contains(queue))
                };
                let own = || served().filter(|other| other.user == session.user).count();
                rules.max_sessions.is_none_or(|most| served().count() < most as usize)
                    && rules.max_sessions_per_user.is_none_or(|most| own() < most as usize)
            };
            if self.path(&session.pool).iter().all(open)
                && let Some(session) = self.sessions.get_mut(&handle)
            {
                session.served = true;
            }
        }
    }

    /// The pool that a rule finds for a session.
    pub(super) fn placed(&self, asked: Option<&PoolName>, info: &SessionInfo) -> Option<PoolName> {
        let pools = &self.settings.pools;
        if asked.is_some_and(|asked| self.is_in_file(asked)) {
            return None;
        }
        let (places, name) = match asked {
            None => (pools.queues.placement.clone(), None),
            Some(asked) => {
                let inner = Queue::Group(asked.pool.clone());
                if self.parent(&inner) == Some(Queue::Group(asked.group.clone())) {
                    (self.rules(&inner).placement, None)
                } else {
                    let group = Queue::Group(asked.group.clone());
                    (self.rules(&group).placement, Some(asked.pool.clone()))
                }
            }
        };
        for place in places {
            let key = match place.by {
                PlaceBy::User => Some(info.user_id.clone()),
                PlaceBy::Group => {
                    info.group_ids.as_ref().and_then(|groups| groups.first().cloned())
                }
                PlaceBy::Name => name.clone(),
            };
            let Some(key) = key else { continue };
            let pool = PoolName { group: place.to.clone(), pool: key };
            if self.is_in_file(&pool) || place.create && pool.is_legal() {
                return Some(pool);
            }
        }
        None
    }

    /// Whether the settings have the pool, and not only because it is still used.
    pub(super) fn is_in_file(&self, pool: &PoolName) -> bool {
        let pools = &self.settings.pools;
        pools.pools.contains_key(pool)
            && pools.queues.pools.get(pool).is_none_or(|rules| !rules.vanished)
    }

    /// Whether the rules of the path let the user start a session. Those of a queue that has vanished count while
    /// there are sessions in it.
    pub(super) fn may_submit(&self, pool: &PoolName, info: &SessionInfo) -> bool {
        let is_used =
            |queue: &Queue| self.sessions.values().any(|one| self.path(&one.pool).contains(queue));
        let rules: Vec<QueueRules> = self
            .path(pool)
            .iter()
            .map(|queue| (queue, self.rules(queue)))
            .filter(|(queue, rules)| !rules.vanished || is_used(queue))
            .map(|(_, rules)| rules)
            .collect();
        let submit: Option<&Submitters> = rules.iter().find_map(|rules| rules.submit.as_ref());
        let allowed = submit.is_none_or(|submit| {
            submit.all
                || submit.users.contains(&info.user_id)
                || info.group_ids.iter().flatten().any(|group| submit.groups.contains(group))
        });
        allowed && !rules.iter().any(|rules| rules.draining)
    }

    /// The settings with the queues that they have no more while there are sessions in them.
    pub(super) fn with_vanished(&self, new: &Settings) -> Settings {
        let (old, mut new) = (&self.settings.pools, new.clone());
        let file = new.pools.clone();
        if old.queues.is_empty() {
            return new;
        }
        for pool in self.pools.keys() {
            for group in self.around(pool) {
                let of_file = file.queues.groups.contains_key(&group)
                    || file.groups.contains_key(&group)
                    || file.pools.keys().any(|other| other.group == group);
                let is_known =
                    old.queues.groups.contains_key(&group) || old.groups.contains_key(&group);
                if !of_file && is_known {
                    let rules = self.rules(&Queue::Group(group.clone()));
                    let mut limits = old.groups.get(&group).cloned().unwrap_or_default();
                    limits.minimum = PerType::all(0);
                    new.pools.groups.insert(group.clone(), limits);
                    new.pools.queues.groups.insert(group, rules.vanished());
                }
            }
            if let (false, Some(limits)) = (file.pools.contains_key(pool), old.pools.get(pool)) {
                let mut limits = limits.clone();
                limits.minimum = PerType::all(0);
                new.pools.pools.insert(pool.clone(), limits);
                let rules = self.rules(&Queue::Pool(pool.clone())).vanished();
                new.pools.queues.pools.insert(pool.clone(), rules);
            }
        }
        new
    }

    /// What each user waits for in a queue and could be granted; `what` counts a session's requests.
    fn usable_by_users(
        &self,
        queue: &Queue,
        kind: ResourceType,
        what: fn(TypeCounts) -> i64,
    ) -> BTreeMap<Name, i64> {
        let mut by_user: BTreeMap<Name, i64> = BTreeMap::new();
        if let Queue::Pool(pool) = queue {
            for session in self.sessions.values().filter(|it| it.pool == *pool && it.served) {
                *by_user.entry(session.user.clone()).or_default() += what(session.counts[kind]);
            }
        }
        for inner in self.inside(Some(queue)) {
            for (user, more) in self.usable_by_users(&inner, kind, what) {
                *by_user.entry(user).or_default() += more;
            }
        }
        let mut around = Some(queue.clone());
        while let Some(queue) = around {
            for (user, usable) in &mut by_user {
                *usable = (*usable).min(self.user_room(&queue, user, kind).max(0));
            }
            around = self.parent(&queue);
        }
        by_user
    }

    /// The requests that wait and could all be granted, if there were slots.
    pub(super) fn usable_in_all(&self, kind: ResourceType) -> i64 {
        let outermost = self.inside(None).into_iter();
        let usable = outermost.map(|queue| self.usable_by_users(&queue, kind, |it| it.pending));
        usable.flat_map(BTreeMap::into_values).sum()
    }

    /// The requests of a queue that are granted or could be.
    fn usable_requests(&self, queue: &Queue, kind: ResourceType) -> i64 {
        let waiting = self.usable_by_users(queue, kind, |it| it.requested - it.granted);
        self.counts_in(queue, kind).granted + waiting.into_values().sum::<i64>()
    }

    /// The requests of a pool that could be granted or are, and those of them that wait.
    pub(super) fn usable(&self, pool: &PoolName, kind: ResourceType) -> (i64, i64) {
        let limited = |queue: &Queue| {
            let rules = self.rules(queue);
            let sessions = rules.max_sessions.or(rules.max_sessions_per_user);
            sessions.or(rules.max_per_user).is_some()
        };
        let path = self.path(pool);
        let counts = self.pools.get(pool).map(|counts| counts[kind]).unwrap_or_default();
        if !path.iter().any(limited) {
            return (counts.requested, counts.pending);
        }
        let mut by_user: BTreeMap<&Name, (i64, i64)> = BTreeMap::new();
        for session in self.sessions.values().filter(|it| it.pool == *pool && it.served) {
            let counts = session.counts[kind];
            let of_user = by_user.entry(&session.user).or_default();
            of_user.0 += counts.granted;
            of_user.1 += counts.requested - counts.granted;
        }
        let mut sum = (0, 0);
        for (user, (granted, more)) in by_user {
            let room = path.iter().map(|queue| self.user_room(queue, user, kind)).min();
            let more = more.min(room.unwrap_or(i64::MAX).max(0));
            sum.0 += granted + more;
            sum.1 += more;
        }
        (sum.0, sum.1.min(counts.pending))
    }

    /// The due share of each pool.
    pub(super) fn pool_shares(&self, kind: ResourceType) -> Shares {
        let slots: u32 = self.nodes.values().map(|node| node.used[kind]).sum();
        let mut due = Shares::new();
        let outermost = self.inside(None);
        let claims: Vec<ModelClaim> =
            outermost.iter().map(|queue| self.claim(queue, kind)).collect();
        for (queue, share) in outermost.iter().zip(shares::fair(f64::from(slots), &claims)) {
            self.share_inside(queue, share, kind, &mut due);
        }
        due
    }

    fn share_inside(&self, queue: &Queue, share: f64, kind: ResourceType, due: &mut Shares) {
        if let Queue::Pool(pool) = queue {
            due.insert(pool.clone(), share);
            return;
        }
        let order = self.rules(queue).order;
        let inside = self.inside(Some(queue));
        let claim = |queue: &Queue| {
            let claim = self.claim(queue, kind);
            match order {
                SiblingOrder::Priority => claim,
                SiblingOrder::Capacity if claim.minimum > 0.0 => {
                    ModelClaim { priority: 1, weight: claim.minimum, ..claim }
                }
                SiblingOrder::Fair | SiblingOrder::Capacity => ModelClaim { priority: 0, ..claim },
            }
        };
        let mut claims: Vec<ModelClaim> = inside.iter().map(claim).collect();
        if !self.settings.pools.queues.is_empty() {
            // In a tree nobody is due what nobody asks for.
            claims.iter_mut().for_each(|claim| claim.minimum = claim.minimum.min(claim.requested));
        }
        for (queue, share) in inside.iter().zip(shares::by_priority(share, &claims)) {
            self.share_inside(queue, share, kind, due);
        }
    }

    fn claim(&self, queue: &Queue, kind: ResourceType) -> ModelClaim {
        let requested = self.usable_requests(queue, kind);
        let (minimum, maximum, _) = self.limits(queue, kind);
        let (weight, priority) = match queue {
            Queue::Group(_) => (self.rules(queue).weight, 0),
            Queue::Pool(pool) => {
                let own = self.settings.pools.pools.get(pool).cloned().unwrap_or_default();
                (own.weight, own.priority)
            }
        };
        ModelClaim {
            requested: requested as f64,
            minimum: minimum as f64,
            maximum: maximum as f64,
            weight,
            priority,
        }
    }

    /// The group from whose queues alone slots are taken back for the pool.
    pub(super) fn fence(&self, pool: &PoolName) -> Option<Name> {
        let fenced = |group: &Name| {
            self.rules(&Queue::Group(group.clone())).preemption == PreemptionRule::Fence
        };
        self.around(pool).into_iter().find(fenced)
    }

    /// Whether the rules of the path keep all grants of the pool from being taken back.
    pub(super) fn is_protected(&self, pool: &PoolName) -> bool {
        let disabled = |queue: &Queue| self.rules(queue).preemption == PreemptionRule::Disabled;
        self.path(pool).iter().any(disabled)
    }

    /// Milliseconds for which grants of the pool are safe.
    pub(super) fn safe_ms(&self, pool: &PoolName) -> i64 {
        let own = |queue: &Queue| self.rules(queue).min_runtime_ms;
        self.path(pool).iter().find_map(own).unwrap_or(0)
    }

    /// No pool of a tree has been taken from below its share.
    pub(super) fn check_victims(
        &self,
        kind: ResourceType,
        shares: &Shares,
        victims: &BTreeSet<PoolName>,
    ) -> Result<(), String> {
        if self.settings.pools.queues.is_empty() || self.counts_resources() {
            return Ok(());
        }
        for pool in victims {
            let share = shares.get(pool).copied().unwrap_or(0.0);
            let granted = self.pools.get(pool).map_or(0, |counts| counts[kind].granted);
            if (granted as f64) < share - 0.1 {
                return Err(format!(
                    "pool {pool} is left with {granted} slots of {kind}, its share is {share:.2}"
                ));
            }
        }
        Ok(())
    }
}

/// Slots that are claimed in an outcome, and those that are taken back.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    claimed: PerType<u64>,
    taken: PerType<u64>,
    /// What could be used, when the first slots were claimed.
    usable: PerType<Option<u64>>,
}

impl Claimed {
    /// Enters an effect before the model does. Nothing is claimed that could not be used.
    pub(super) fn note(&mut self, model: &Model, effect: &Effect) -> Result<(), String> {
        match effect {
            Effect::Record(Record::PreemptionFound { kind, count }) => {
                let usable = *self.usable[*kind]
                    .get_or_insert_with(|| u64::try_from(model.usable_in_all(*kind)).unwrap_or(0));
                self.claimed[*kind] += count;
                let claimed = self.claimed[*kind];
                if claimed > usable {
                    return Err(format!(
                        "{claimed} slots of {kind} are claimed, and {usable} could be used"
                    ));
                }
            }
            Effect::Notify { notification: Notification::Revoked(grants), .. } => {
                for grant in grants {
                    self.taken[grant.kind] += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Nothing is taken back that no pool has claimed.
    pub(super) fn check(&self, model: &Model) -> Result<(), String> {
        if model.counts_resources() {
            return Ok(());
        }
        let Claimed { claimed, taken, .. } = self;
        match ResourceType::ALL.into_iter().find(|kind| taken[*kind] > claimed[*kind]) {
            None => Ok(()),
            Some(kind) => Err(format!(
                "{} slots of {kind} are taken back, and {} are claimed",
                taken[kind], claimed[kind]
            )),
        }
    }
}
