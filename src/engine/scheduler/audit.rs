//! Recomputes the tree of queues from the sessions.

use super::order::{QueueIdx, SessionKey};
use super::tree::{Group, Pool, Tree};
use super::{Scheduler, queue::Queue};
use crate::check::hold;
use crate::index::{GroupIdx, PoolIdx};
use crate::sessions::{Sessions, Tally};
use crate::types::ResourceType;
use corona_model::resources::Amounts;

impl Scheduler {
    /// Recomputes counts, queues and orders from the sessions.
    pub(super) fn audit_tree(&self, sessions: &Sessions) -> Result<(), String> {
        let tree = &self.tree;
        let mut members = 0;
        for (pool, entry) in tree.pools() {
            self.audit_pool(pool, entry, sessions)
                .map_err(|what| format!("pool {}: {what}", entry.name))?;
            members += entry.sessions.len();
        }
        hold(members == sessions.len(), || format!("{members} sessions are in pools"))?;
        hold(tree.pool_by_name.len() == tree.pools.len(), || "pools by name: too many".into())?;
        for (group, entry) in tree.groups() {
            tree.audit_group(group, entry)
                .map_err(|what| format!("group {}: {what}", entry.name))?;
        }
        hold(tree.group_by_name.len() == tree.groups.len(), || "groups by name: too many".into())?;
        for kind in ResourceType::ALL {
            let outermost = || tree.groups().filter(|(_, group)| group.parent.is_none());
            let placed = outermost().filter(|(_, g)| g.kinds[kind].place.is_some());
            let (placed, order) = (placed.count(), tree.order_of(None, kind).len());
            hold(placed == order, || format!("{kind}: {placed} groups have a place of {order}"))?;
            let reserved: i64 = outermost().map(|(_, group)| group.kinds[kind].reserve).sum();
            hold(reserved == tree.reserved(kind), || format!("{kind}: {reserved} are reserved"))?;
        }
        let kept = tree.groups().filter(|(_, group)| group.parent.is_none());
        let kept = kept.fold(Amounts::ZERO, |sum, (_, group)| sum.plus(group.quota.reserve));
        hold(kept == tree.reserved_amounts, || format!("{kept} are kept"))?;
        tree.audit_crowds(sessions)
    }

    fn audit_pool(&self, pool: PoolIdx, entry: &Pool, sessions: &Sessions) -> Result<(), String> {
        let tree = &self.tree;
        let named = tree.pool_by_name.get(&entry.name) == Some(&pool);
        hold(named, || "is not found by name".into())?;
        hold(entry.configured || !entry.sessions.is_empty(), || "is of no use".into())?;
        let members = || {
            let entries = entry.sessions.iter().map(|session| (*session, sessions.get(*session)));
            entries.filter_map(|(session, entry)| entry.map(|entry| (session, entry)))
        };
        let own = members().filter(|(_, session)| session.pool == pool).count();
        hold(own == entry.sessions.len(), || "holds sessions of others".into())?;
        tree.audit_quota(QueueIdx::Pool(pool), Amounts::ZERO)?;
        for kind in ResourceType::ALL {
            let (mut tally, mut held) = (Tally::default(), Amounts::ZERO);
            let mut waiting = 0;
            for (number, session) in members() {
                let demand = session.demand(kind);
                tally.add(demand.tally);
                held = held.plus(demand.held);
                let belongs = self.may_be_given(session, kind);
                let key = SessionKey::new(entry.mode, session.standing(kind, tree.whole), number);
                let place = belongs.then_some(&key);
                hold(demand.place.as_ref() == place, || {
                    format!("{kind}: session {} is out of place", session.handle)
                })?;
                hold(!belongs || entry.line[kind].contains(&key, &session.info.user_id), || {
                    format!("{kind}: session {} is not in the queue", session.handle)
                })?;
                waiting += usize::from(belongs);
            }
            let noted = entry.kinds[kind].held;
            hold(noted == held, || format!("{kind}: holds {held}, not {noted}"))?;
            let queued = entry.line[kind].len();
            hold(queued == waiting, || format!("{kind}: {waiting} may be given more: {queued}"))?;
            let open = |user: &str| tree.user_limit(pool, user, kind).is_none();
            hold(entry.line[kind].has_open(open), || format!("{kind}: wrong users come first"))?;
            let first = entry.line[kind].heads();
            tree.audit_state(QueueIdx::Pool(pool), kind, tally, first, 0)?;
        }
        Ok(())
    }
}

impl Tree {
    fn audit_group(&self, group: GroupIdx, entry: &Group) -> Result<(), String> {
        let named = self.group_by_name.get(&entry.name) == Some(&group);
        hold(named, || "is not found by name".into())?;
        let used = entry.configured || !entry.pools.is_empty() || !entry.groups.is_empty();
        hold(used, || "has no queue".into())?;
        let around = entry.parent.and_then(|parent| self.groups.get(parent));
        let inside = around.is_none_or(|parent| parent.groups.contains(&group));
        hold(inside && entry.parent.is_some() == around.is_some(), || "is nowhere".into())?;
        let pools = || entry.pools.iter().filter_map(|pool| self.pools.get(*pool));
        let groups = || entry.groups.iter().filter_map(|inner| self.groups.get(*inner));
        let own = pools().filter(|pool| pool.group == group).count();
        hold(own == entry.pools.len(), || "holds pools of others".into())?;
        let own = groups().filter(|inner| inner.parent == Some(group)).count();
        hold(own == entry.groups.len(), || "holds groups of others".into())?;
        let quotas = pools().map(|pool| pool.quota).chain(groups().map(|inner| inner.quota));
        let kept = quotas.fold(Amounts::ZERO, |sum, quota| sum.plus(quota.reserve));
        self.audit_quota(QueueIdx::Group(group), kept)?;
        for kind in ResourceType::ALL {
            let states = || {
                let pools = pools().map(|pool| &pool.kinds[kind]);
                pools.chain(groups().map(|inner| &inner.kinds[kind]))
            };
            let mut tally = Tally::default();
            states().for_each(|state| tally.add(state.tally));
            let held = states().fold(Amounts::ZERO, |held, state| held.plus(state.held));
            let noted = entry.kinds[kind].held;
            hold(noted == held, || format!("{kind}: holds {held}, not {noted}"))?;
            let placed = states().filter(|state| state.place.is_some()).count();
            let order: &Queue<_> = self.order_of(Some(group), kind);
            let order = order.len();
            hold(placed == order, || format!("{kind}: {placed} queues have a place of {order}"))?;
            let reserves = states().map(|state| state.reserve).sum();
            self.audit_state(QueueIdx::Group(group), kind, tally, placed, reserves)?;
        }
        Ok(())
    }

    /// Recomputes what stays free for a queue from what does for those inside.
    fn audit_quota(&self, queue: QueueIdx, inside: Amounts) -> Result<(), String> {
        let quota = self.quota(queue);
        let own = if self.rules(queue).lend { Amounts::ZERO } else { quota.minimum };
        let reserve = own.minus(self.held(queue)).most(inside);
        hold((quota.reserve, quota.inner_reserve) == (reserve, inside), || {
            format!("{reserve} should stay free, {inside} of it inside, not {quota:?}")
        })
    }

    /// Recomputes a queue's state from the tally, the number and the reserves of those inside that
    /// may be given more.
    fn audit_state(
        &self,
        queue: QueueIdx,
        kind: ResourceType,
        tally: Tally,
        inside: usize,
        reserves: i64,
    ) -> Result<(), String> {
        let state = self.state(queue, kind);
        hold(state.tally == tally, || format!("{kind}: {tally:?}, not {:?}", state.tally))?;
        let place = (inside > 0 && self.is_open(queue, kind)).then(|| self.key(queue, kind));
        hold(state.place == place, || format!("{kind}: at {:?}, not {place:?}", state.place))?;
        let siblings = match queue {
            QueueIdx::Group(group) => self.group(group).parent,
            QueueIdx::Pool(pool) => Some(self[pool].group),
        };
        let order = self.order_of(siblings, kind);
        let noted = place.is_none_or(|place| order.contains(&place));
        hold(noted, || format!("{kind}: not in the order of its siblings"))?;
        let own = (!self.rules(queue).lend).then(|| (state.minimum - tally.slots).max(0));
        let reserve = own.unwrap_or(0).max(reserves);
        hold(state.reserve == reserve, || format!("{kind}: {reserve}, not {}", state.reserve))
    }
}
