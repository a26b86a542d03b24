//! Limits of users and of sessions in a queue.
//!
//! A session above a limit of sessions waits for its turn: it may ask, and is given nothing until an
//! earlier one ends. The grants of a user who holds as many as a queue lets one user hold are
//! considered again when that user holds fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::order::QueueIdx;
use super::tree::Tree;
use crate::Engine;
use crate::check::hold;
use crate::index::{PoolIdx, SessionIdx};
use crate::sessions::{Session, Sessions};
use crate::types::{PerType, ResourceType};
use corona_model::queues::QueueRules;

/// The sessions and users of a queue that limits them; empty for any other queue.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// Sessions that may be given grants.
    pub(crate) running: u32,
    /// Those that wait until fewer run, in the order of their start.
    waiting: BTreeSet<Turn>,
    users: BTreeMap<Arc<str>, User>,
}

/// One user's part of a queue.
#[derive(Debug, Default)]
struct User {
    granted: PerType<i64>,
    running: u32,
    waiting: BTreeSet<Turn>,
    /// How many sessions the user has in each pool.
    pools: BTreeMap<PoolIdx, u32>,
}

impl User {
    fn leave(&mut self, pool: PoolIdx) {
        if let Some(sessions) = self.pools.get_mut(&pool) {
            *sessions -= 1;
            if *sessions == 0 {
                self.pools.remove(&pool);
            }
        }
    }
}

/// Requests in a queue that wait and could be granted.
#[derive(Debug, Default)]
struct Waiting<'a> {
    /// Those in pools where nobody is limited.
    of_nobody: i64,
    of_users: BTreeMap<&'a str, i64>,
}

/// Slots that are taken back for users, in each queue of the paths.
pub(super) type Promised = BTreeMap<(QueueIdx, Arc<str>), i64>;

/// A session by the order of the starts.
type Turn = (u64, SessionIdx);

/// What a session waits for: fewer sessions in a queue, of all users or of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(super) queue: QueueIdx,
    pub(super) of_user: bool,
}

impl Gate {
    /// That of all sessions of a pool.
    pub(crate) fn of_pool(pool: PoolIdx) -> Self {
        Gate { queue: QueueIdx::Pool(pool), of_user: false }
    }
}

impl Crowd {
    /// Whether a queue of these rules has to know its users and sessions.
    pub(super) fn is_limited_by(rules: &QueueRules) -> bool {
        let QueueRules { max_sessions, max_per_user, max_sessions_per_user, .. } = rules;
        max_sessions.is_some() || max_per_user.is_some() || max_sessions_per_user.is_some()
    }

    /// A user's grants of a type.
    pub(crate) fn granted_to(&self, user: &str, kind: ResourceType) -> i64 {
        self.users.get(user).map_or(0, |user| user.granted[kind])
    }

    /// A user's sessions that may be given grants.
    pub(crate) fn running_of(&self, user: &str) -> u32 {
        self.users.get(user).map_or(0, |user| user.running)
    }

    /// Sessions that wait for their turn at this queue.
    pub(crate) fn sessions_waiting(&self) -> usize {
        self.waiting.len() + self.users.values().map(|user| user.waiting.len()).sum::<usize>()
    }

    /// Those before a session that waits at the gate.
    pub(crate) fn waiting_before(&self, gate: Gate, session: &Session) -> usize {
        let line = match gate.of_user {
            false => Some(&self.waiting),
            true => self.users.get(&session.info.user_id).map(|user| &user.waiting),
        };
        line.map_or(0, |line| line.iter().take_while(|(turn, _)| *turn < session.serial).count())
    }

    fn line(&mut self, gate: Gate, user: &Arc<str>) -> &mut BTreeSet<Turn> {
        match gate.of_user {
            false => &mut self.waiting,
            true => &mut self.users.entry(user.clone()).or_default().waiting,
        }
    }

    fn forget_if_absent(&mut self, user: &str) {
        if self.users.get(user).is_some_and(|user| user.pools.is_empty()) {
            self.users.remove(user);
        }
    }
}

impl Tree {
    /// The gate at which a session of the pool and user has to wait now, the outermost one.
    pub(super) fn closed_gate(&self, pool: PoolIdx, user: &str) -> Option<Gate> {
        let mut closed = None;
        for queue in self.path(pool) {
            let (rules, crowd) = (self.rules(queue), self.crowd(queue));
            if rules.max_sessions_per_user.is_some_and(|most| crowd.running_of(user) >= most) {
                closed = Some(Gate { queue, of_user: true });
            }
            if rules.max_sessions.is_some_and(|most| crowd.running >= most) {
                closed = Some(Gate { queue, of_user: false });
            }
        }
        closed
    }

    /// The outermost queue of a pool's path in which the user may hold no more of the type.
    pub(super) fn user_limit(
        &self,
        pool: PoolIdx,
        user: &str,
        kind: ResourceType,
    ) -> Option<(QueueIdx, u32)> {
        let full = |queue: &QueueIdx| {
            let most = self.rules(*queue).max_per_user?;
            let granted = self.crowd(*queue).granted_to(user, kind);
            (granted >= i64::from(most)).then_some((*queue, most))
        };
        self.path(pool).filter_map(|queue| full(&queue)).last()
    }

    /// How many more slots of the type the user may hold in a queue, as far as its own limit says.
    fn room_in(&self, queue: QueueIdx, user: &str, kind: ResourceType) -> Option<i64> {
        let most = self.rules(queue).max_per_user?;
        Some((i64::from(most) - self.crowd(queue).granted_to(user, kind)).max(0))
    }

    /// How many more slots of the type the user may hold in a pool.
    fn room_of(&self, pool: PoolIdx, user: &str, kind: ResourceType) -> i64 {
        let rooms = self.path(pool).filter_map(|queue| self.room_in(queue, user, kind));
        rooms.min().unwrap_or(i64::MAX)
    }

    /// The requests of each queue that its limits of users and sessions let count: those granted, and as
    /// many of those waiting as could be. A user who waits in several queues of a group counts there with
    /// what the group lets the user hold, once.
    pub(super) fn usable_requests(
        &self,
        kind: ResourceType,
        sessions: &Sessions,
    ) -> BTreeMap<QueueIdx, i64> {
        let mut waiting: BTreeMap<QueueIdx, Waiting<'_>> = BTreeMap::new();
        for (pool, entry) in self.pools() {
            let tally = entry.kinds[kind].tally;
            let mut of_pool = Waiting::default();
            if entry.crowded {
                let mut rooms = BTreeMap::new();
                for session in entry.sessions.iter().filter_map(|it| sessions.get(*it)) {
                    let (_, waiting) = self.usable_by(session, kind, &mut rooms);
                    *of_pool.of_users.entry(&session.info.user_id).or_default() += waiting;
                }
            } else {
                of_pool.of_nobody = tally.requested - tally.granted;
            }
            waiting.insert(QueueIdx::Pool(pool), of_pool);
        }
        for group in self.groups_inside_out() {
            let mut of_group = Waiting::default();
            for inner in self.inside(Some(group)).iter().filter_map(|queue| waiting.get(queue)) {
                of_group.of_nobody += inner.of_nobody;
                for (user, waiting) in &inner.of_users {
                    *of_group.of_users.entry(user).or_default() += waiting;
                }
            }
            for (user, waiting) in &mut of_group.of_users {
                let around = self.outwards(group).map(QueueIdx::Group);
                let rooms = around.filter_map(|queue| self.room_in(queue, user, kind));
                *waiting = rooms.fold(*waiting, i64::min);
            }
            waiting.insert(QueueIdx::Group(group), of_group);
        }
        let usable = waiting.into_iter().map(|(queue, waiting)| {
            let granted = self.state(queue, kind).tally.granted;
            (queue, granted + waiting.of_nobody + waiting.of_users.values().sum::<i64>())
        });
        usable.collect()
    }

    /// The pending requests of each user of a pool that could be granted besides what was promised.
    pub(super) fn usable_pending(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        sessions: &Sessions,
        promised: &Promised,
    ) -> Vec<(Arc<str>, i64)> {
        let mut pending: BTreeMap<&Arc<str>, i64> = BTreeMap::new();
        let members = self[pool].sessions.iter().filter_map(|session| sessions.get(*session));
        for session in members.filter(|session| session.gate.is_none()) {
            *pending.entry(&session.info.user_id).or_default() +=
                session.demand(kind).tally.pending;
        }
        let usable = pending.into_iter().map(|(user, pending)| {
            let rooms = self.path(pool).filter_map(|queue| {
                let promised = promised.get(&(queue, user.clone())).copied().unwrap_or(0);
                Some((self.room_in(queue, user, kind)? - promised).max(0))
            });
            (user.clone(), rooms.fold(pending, i64::min))
        });
        usable.collect()
    }

    /// Notes that so many slots are taken back for users of a pool, who can use them.
    pub(super) fn promise(
        &self,
        pool: PoolIdx,
        usable: &[(Arc<str>, i64)],
        mut slots: i64,
        promised: &mut Promised,
    ) {
        for (user, most) in usable {
            let count = slots.min(*most);
            slots -= count;
            for queue in self.path(pool) {
                *promised.entry((queue, user.clone())).or_default() += count;
            }
        }
    }

    /// The requests of a pool that its limits of users and sessions let count: those granted, and as many of those waiting as could be.
    pub(super) fn usable(
        &self,
        pool: PoolIdx,
        kind: ResourceType,
        sessions: &Sessions,
    ) -> (i64, i64) {
        let entry = &self[pool];
        let tally = entry.kinds[kind].tally;
        if !entry.crowded {
            return (tally.requested, tally.pending);
        }
        let mut rooms = BTreeMap::new();
        let mut usable = (0, 0);
        for session in entry.sessions.iter().filter_map(|session| sessions.get(*session)) {
            let (granted, waiting) = self.usable_by(session, kind, &mut rooms);
            usable.0 += granted + waiting;
            usable.1 += waiting;
        }
        (usable.0, usable.1.min(tally.pending))
    }

    /// A session's grants, and as many of its other requests as could be granted. `rooms` has what is left
    /// for each user of the pool, and is empty at first.
    pub(super) fn usable_by<'a>(
        &self,
        session: &'a Session,
        kind: ResourceType,
        rooms: &mut BTreeMap<&'a str, i64>,
    ) -> (i64, i64) {
        let tally = session.demand(kind).tally;
        let waiting = tally.requested - tally.granted;
        if !self[session.pool].crowded {
            return (tally.granted, waiting);
        }
        if session.gate.is_some() {
            return (tally.granted, 0);
        }
        let user = &*session.info.user_id;
        let room = rooms.entry(user).or_insert_with(|| self.room_of(session.pool, user, kind));
        let waiting = waiting.min(*room);
        *room -= waiting;
        (tally.granted, waiting)
    }

    /// Recomputes the crowds from the sessions.
    pub(super) fn audit_crowds(&self, sessions: &Sessions) -> Result<(), String> {
        for (_, session) in sessions.iter() {
            let closed = self.closed_gate(session.pool, &session.info.user_id);
            let right = session.gate.is_none() || closed.is_some();
            hold(right, || format!("session {} waits at no gate", session.handle))?;
        }
        let groups = self.groups().map(|(group, _)| QueueIdx::Group(group));
        let pools = self.pools().map(|(pool, _)| QueueIdx::Pool(pool));
        for queue in groups.chain(pools) {
            self.audit_crowd(queue, sessions)
                .map_err(|what| format!("{}: {what}", self.path_of(queue)))?;
        }
        Ok(())
    }

    fn audit_crowd(&self, queue: QueueIdx, sessions: &Sessions) -> Result<(), String> {
        let crowd = self.crowd(queue);
        if !Crowd::is_limited_by(self.rules(queue)) {
            return hold(crowd.users.is_empty(), || "users are counted for nothing".into());
        }
        let inside = |session: &Session| self.path(session.pool).any(|of| of == queue);
        let members = || sessions.iter().filter(|(_, session)| inside(session));
        let running = members().filter(|(_, session)| session.gate.is_none()).count();
        hold(running == crowd.running as usize, || format!("{running} sessions run"))?;
        let at = |of_user| Some(Gate { queue, of_user });
        let waiting = members().filter(|(_, session)| session.gate == at(false)).count();
        hold(waiting == crowd.waiting.len(), || format!("{waiting} sessions wait"))?;
        for (name, user) in &crowd.users {
            let own = || members().filter(|(_, session)| session.info.user_id == *name);
            let mut pools: BTreeMap<PoolIdx, u32> = BTreeMap::new();
            own().for_each(|(_, session)| *pools.entry(session.pool).or_default() += 1);
            hold(pools == user.pools, || format!("user {name}: sessions"))?;
            let running = own().filter(|(_, session)| session.gate.is_none()).count();
            hold(running == user.running as usize, || format!("user {name}: {running} run"))?;
            let waiting = own().filter(|(_, session)| session.gate == at(true)).count();
            hold(waiting == user.waiting.len(), || format!("user {name}: {waiting} wait"))?;
            for kind in ResourceType::ALL {
                let granted: i64 =
                    own().map(|(_, session)| session.demand(kind).tally.granted).sum();
                hold(granted == user.granted[kind], || format!("user {name}: {granted} {kind}"))?;
            }
        }
        let users: BTreeSet<&Arc<str>> =
            members().map(|(_, session)| &session.info.user_id).collect();
        hold(users.len() == crowd.users.len(), || format!("{} users", users.len()))
    }
}

impl Engine {
    /// Adds a new session to its pool. It waits if a queue on the path has enough sessions.
    pub(crate) fn join_pool(&mut self, session: SessionIdx) {
        let pool = self.sessions[session].pool;
        self.scheduler.tree[pool].sessions.insert(session);
        if self.scheduler.tree[pool].crowded {
            self.scheduler.tree.enter_crowds(&mut self.sessions, session);
        }
    }

    /// Takes an ending session, which holds nothing any more, out of its pool.
    pub(super) fn leave_pool(&mut self, session: SessionIdx) {
        let entry = &mut self.sessions[session];
        let (pool, user, turn) = (entry.pool, entry.info.user_id.clone(), (entry.serial, session));
        let gate = entry.gate.take();
        let tree = &mut self.scheduler.tree;
        tree[pool].sessions.remove(&session);
        if !tree[pool].crowded {
            return;
        }
        if let Some(gate) = gate {
            tree.crowd_mut(gate.queue).line(gate, &user).remove(&turn);
        }
        for queue in tree.path(pool) {
            if !Crowd::is_limited_by(tree.rules(queue)) {
                continue;
            }
            let crowd = tree.crowd_mut(queue);
            let less = u32::from(gate.is_none());
            crowd.running -= less;
            if let Some(of_user) = crowd.users.get_mut(&user) {
                of_user.running -= less;
                of_user.leave(pool);
            }
            crowd.forget_if_absent(&user);
        }
        if gate.is_none() {
            self.open_gates(pool, &user);
        }
    }

    /// Lets sessions start their turn that wait at gates of the path, the earliest first.
    fn open_gates(&mut self, pool: PoolIdx, user: &Arc<str>) {
        while let Some((gate, turn)) = self.first_at_open_gate(pool, user) {
            let (_, session) = turn;
            let owner = self.sessions[session].info.user_id.clone();
            self.scheduler.tree.crowd_mut(gate.queue).line(gate, &owner).remove(&turn);
            self.sessions[session].gate = None;
            self.scheduler.tree.pass_gates(&mut self.sessions, session);
            if self.sessions[session].gate.is_none() {
                self.requeue_all_kinds(session);
            }
        }
    }

    fn first_at_open_gate(&self, pool: PoolIdx, user: &Arc<str>) -> Option<(Gate, Turn)> {
        let tree = &self.scheduler.tree;
        let gates = tree.path(pool).flat_map(|queue| {
            let (rules, crowd) = (tree.rules(queue), tree.crowd(queue));
            let open = rules.max_sessions.is_none_or(|most| crowd.running < most);
            let all = open.then(|| crowd.waiting.first()).flatten();
            let own = crowd.users.get(user).filter(|of_user| {
                rules.max_sessions_per_user.is_none_or(|most| of_user.running < most)
            });
            let own = own.and_then(|of_user| of_user.waiting.first());
            [
                all.map(|turn| (Gate { queue, of_user: false }, *turn)),
                own.map(|turn| (Gate { queue, of_user: true }, *turn)),
            ]
        });
        gates.flatten().min_by_key(|(_, turn)| *turn)
    }

    /// Notes a change of a user's grants in the queues that limit them. Returns the user's pools whose
    /// sessions may be given more now, or no more.
    pub(super) fn count_user(
        &mut self,
        session: SessionIdx,
        kind: ResourceType,
        change: i64,
    ) -> Vec<PoolIdx> {
        let entry = &self.sessions[session];
        let mut affected = Vec::new();
        if change == 0 || !self.scheduler.tree[entry.pool].crowded {
            return affected;
        }
        let tree = &mut self.scheduler.tree;
        for queue in tree.path(entry.pool) {
            let most = tree.rules(queue).max_per_user.map(i64::from);
            let crowd = tree.crowd_mut(queue);
            let Some(user) = crowd.users.get_mut(&entry.info.user_id) else { continue };
            let full = |granted: i64| most.is_some_and(|most| granted >= most);
            let before = full(user.granted[kind]);
            user.granted[kind] += change;
            if before != full(user.granted[kind]) {
                affected.extend(user.pools.keys().copied());
            }
        }
        affected
    }

    /// Forgets all crowds and enters the sessions again, after the rules have changed. Sessions that
    /// had their turn keep it.
    pub(crate) fn enter_all_crowds(&mut self) {
        let Engine { scheduler, sessions, .. } = self;
        scheduler.tree.enter_all_crowds(sessions);
    }
}

impl Tree {
    /// See [`Engine::enter_all_crowds`].
    pub(super) fn enter_all_crowds(&mut self, sessions: &mut Sessions) {
        self.groups.values_mut().for_each(|group| group.crowd = Crowd::default());
        self.pools.values_mut().for_each(|pool| pool.crowd = Crowd::default());
        let order = sessions.in_order_of_start();
        if !self.has_crowds {
            order.into_iter().for_each(|session| sessions[session].gate = None);
            return;
        }
        let (waiting, running): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|session| sessions[*session].gate.is_some());
        for session in running {
            self.meet_crowds(sessions, session);
            self.start_turn(sessions, session);
        }
        for session in waiting {
            sessions[session].gate = None;
            self.enter_crowds(sessions, session);
        }
    }

    fn enter_crowds(&mut self, sessions: &mut Sessions, session: SessionIdx) {
        self.meet_crowds(sessions, session);
        self.pass_gates(sessions, session);
    }

    /// Makes the session and its grants known to the queues that limit users or sessions.
    fn meet_crowds(&mut self, sessions: &Sessions, session: SessionIdx) {
        let entry = &sessions[session];
        for queue in self.path(entry.pool) {
            if Crowd::is_limited_by(self.rules(queue)) {
                let users = &mut self.crowd_mut(queue).users;
                let user = users.entry(entry.info.user_id.clone()).or_default();
                *user.pools.entry(entry.pool).or_default() += 1;
                for kind in ResourceType::ALL {
                    user.granted[kind] += entry.demand(kind).tally.granted;
                }
            }
        }
    }

    /// Starts the turn of a session, or lets it wait at the first closed gate.
    fn pass_gates(&mut self, sessions: &mut Sessions, session: SessionIdx) {
        let entry = &mut sessions[session];
        entry.gate = self.closed_gate(entry.pool, &entry.info.user_id);
        match entry.gate {
            None => self.start_turn(sessions, session),
            Some(gate) => {
                let turn = (entry.serial, session);
                self.crowd_mut(gate.queue).line(gate, &entry.info.user_id).insert(turn);
            }
        }
    }

    fn start_turn(&mut self, sessions: &Sessions, session: SessionIdx) {
        let entry = &sessions[session];
        for queue in self.path(entry.pool) {
            if Crowd::is_limited_by(self.rules(queue)) {
                let crowd = self.crowd_mut(queue);
                crowd.running += 1;
                crowd.users.entry(entry.info.user_id.clone()).or_default().running += 1;
            }
        }
    }
}
