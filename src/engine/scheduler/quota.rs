//! The limits of queues in resources, of all types of slots together.
//!
//! A queue is *below its minimum* while it holds less than its minimum of every resource that the minimum names:
//! what is guaranteed is a place of that size, and a queue that has filled it in one resource has used its place.
//! It is *full* as soon as it holds its maximum of any resource that the maximum names. See
//! [queues.md](../../../docs/operate/queues.md#limits-in-resources).

use super::order::QueueIdx;
use super::shares::{Claim, GUARANTEED};
use super::tree::{QueueState, Tree};
use crate::index::{GroupIdx, PoolIdx};
use crate::requests::Wish;
use crate::types::{PerType, ResourceType};
use corona_model::queues::{Quota, Quotas};
use corona_model::resources::{Amounts, Dimension};

/// A queue's limits in resources that are in force now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaState {
    /// What is guaranteed; nothing of a resource that has no minimum.
    pub(crate) minimum: Amounts,
    /// The most; [`Amounts::MOST`] of a resource that has no maximum.
    pub(crate) maximum: Amounts,
    /// The smallest maximum from here outwards.
    pub(super) reach: Amounts,
    /// What stays free for it and the queues in it, because these do not lend.
    pub(super) reserve: Amounts,
    /// The reserves of the queues in it.
    pub(super) inner_reserve: Amounts,
}

/// The most that one request may be given: more is kept for others, or above a maximum of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) slots: u32,
    pub(crate) amounts: Amounts,
}

impl Allowance {
    /// Whether a request may be given what it wants.
    pub(crate) fn allows(&self, wish: &Wish) -> bool {
        wish.need <= self.slots && wish.demand.fits(&self.amounts)
    }
}

impl Default for QuotaState {
    fn default() -> Self {
        QuotaState {
            minimum: Amounts::ZERO,
            maximum: Amounts::MOST,
            reach: Amounts::MOST,
            reserve: Amounts::ZERO,
            inner_reserve: Amounts::ZERO,
        }
    }
}

impl QuotaState {
    /// The limits by a queue's rules and those of the group around it. `counted` are the resources that are
    /// counted, `whole` what all nodes give out.
    pub(super) fn new(
        quotas: &Quotas,
        counted: [bool; 4],
        around: Option<&QuotaState>,
        whole: Amounts,
    ) -> Self {
        let mut state = QuotaState::default();
        for dimension in Dimension::ALL {
            let (least, reach) = match around {
                None => (whole[dimension], whole[dimension]),
                Some(around) => (around.minimum[dimension], around.reach[dimension]),
            };
            if !dimension.item(&counted) {
                continue;
            }
            state.minimum[dimension] = match *dimension.item(&quotas.minimum) {
                None => 0,
                Some(Quota::Amount(amount)) => amount,
                Some(Quota::Part(part)) => part.of_amount(least),
            };
            state.maximum[dimension] = match *dimension.item(&quotas.maximum) {
                None => u64::MAX,
                Some(Quota::Amount(amount)) => amount,
                Some(Quota::Part(part)) => part.at_least_of_amount(reach),
            };
        }
        state.reach = state.maximum.least(around.map_or(whole, |around| around.reach));
        state
    }

    /// The largest part of the minimum that a queue holds, if it is below its minimum.
    pub(super) fn part_below(&self, held: Amounts) -> Option<f64> {
        if self.minimum == Amounts::ZERO {
            return None;
        }
        let named = held.0.iter().zip(&self.minimum.0).filter(|(_, least)| **least > 0);
        let mut most = 0.0_f64;
        for (held, least) in named {
            if held >= least {
                return None;
            }
            most = most.max(*held as f64 / *least as f64);
        }
        Some(most)
    }

    /// Whether a queue that holds so much is below its minimum.
    pub(super) fn is_below(&self, held: Amounts) -> bool {
        self.part_below(held).is_some()
    }

    /// Whether a queue that holds so much may be given nothing more.
    pub(super) fn is_full(&self, held: Amounts) -> bool {
        held.0.iter().zip(&self.maximum.0).any(|(held, most)| held >= most)
    }

    /// Whether a queue that holds so much may give something and keep its minimum.
    pub(super) fn has_more(&self, held: Amounts) -> bool {
        self.minimum == Amounts::ZERO
            || held.0.iter().zip(&self.minimum.0).any(|(held, least)| *least > 0 && held > least)
    }

    /// A claim in strict capacity order: a queue with a minimum has for its weight the part of the cluster that
    /// the minimum is.
    pub(super) fn guaranteed(&self, claim: Claim, whole: Amounts) -> Claim {
        if self.minimum == Amounts::ZERO {
            return claim;
        }
        let weight = self.minimum.dominant_share(&whole).max(1) as f64;
        Claim { weight, priority: GUARANTEED, ..claim }
    }

    /// Takes over the reserves inside. Returns the queue's own before.
    fn reserve_again(&mut self, inside: Amounts, held: Amounts, lend: bool) -> Amounts {
        self.inner_reserve = inside;
        let own = if lend { Amounts::ZERO } else { self.minimum.minus(held) };
        std::mem::replace(&mut self.reserve, own.most(inside))
    }

    /// What of the reserve all queues inside may take, and not only those that have a reserve of their own.
    pub(super) fn own_reserve(&self) -> Amounts {
        self.reserve.minus(self.inner_reserve)
    }
}

/// What a queue holds, of all types together.
pub(crate) fn held_of(kinds: &PerType<QueueState>) -> Amounts {
    kinds.0.iter().fold(Amounts::ZERO, |sum, state| sum.plus(state.held))
}

impl Tree {
    /// The limits of a queue in resources.
    pub(super) fn quota(&self, queue: QueueIdx) -> &QuotaState {
        match queue {
            QueueIdx::Group(group) => &self.group(group).quota,
            QueueIdx::Pool(pool) => &self[pool].quota,
        }
    }

    /// What a queue holds, of all types together.
    pub(super) fn held(&self, queue: QueueIdx) -> Amounts {
        match queue {
            QueueIdx::Group(group) => held_of(&self.group(group).kinds),
            QueueIdx::Pool(pool) => held_of(&self[pool].kinds),
        }
    }

    /// Whether a queue has less than is guaranteed, of slots or of resources.
    pub(super) fn is_needy(&self, queue: QueueIdx, kind: ResourceType) -> bool {
        let state = self.state(queue, kind);
        let below = || self.has_quotas && self.quota(queue).is_below(self.held(queue));
        state.tally.granted < state.minimum || below()
    }

    /// Whether a queue may be given more.
    pub(super) fn is_open(&self, queue: QueueIdx, kind: ResourceType) -> bool {
        self.is_open_after(queue, kind, 0, Amounts::ZERO)
    }

    /// The same after so many grants inside were taken back, with these resources.
    pub(super) fn is_open_after(
        &self,
        queue: QueueIdx,
        kind: ResourceType,
        lost: i64,
        amounts: Amounts,
    ) -> bool {
        let is_full =
            || self.has_quotas && self.quota(queue).is_full(self.held(queue).minus(amounts));
        self.state(queue, kind).is_open_after(lost) && !is_full()
    }

    /// The most that maxima leave to a request of the pool.
    pub(super) fn left_to(&self, pool: PoolIdx) -> Amounts {
        if !self.has_quotas {
            return Amounts::MOST;
        }
        let left = |queue: QueueIdx| self.quota(queue).maximum.minus(self.held(queue));
        self.path(pool).map(left).fold(Amounts::MOST, Amounts::least)
    }

    /// The outermost queue around a pool, itself included, that has a maximum in resources.
    pub(super) fn outermost_limited(&self, pool: PoolIdx) -> Option<QueueIdx> {
        if !self.has_quotas {
            return None;
        }
        let limited = |queue: &QueueIdx| self.quota(*queue).maximum != Amounts::MOST;
        self.path(pool).filter(limited).last()
    }

    /// Whether resources stay free for queues that do not lend.
    pub(super) fn keeps_amounts(&self) -> bool {
        self.reserved_amounts != Amounts::ZERO
    }

    /// The most of the `free` resources that a request of the pool may be given without touching those that
    /// stay free for queues that do not lend.
    pub(super) fn most_of_free(&self, pool: PoolIdx, free: Amounts) -> Amounts {
        if !self.keeps_amounts() {
            return Amounts::MOST;
        }
        let own = self.path(pool).map(|queue| self.quota(queue).own_reserve());
        let own = own.fold(Amounts::ZERO, Amounts::plus);
        let most = free.minus(self.reserved_amounts).plus(own);
        let kept = |at: usize| self.reserved_amounts.0[at] > 0;
        Amounts(std::array::from_fn(|at| if kept(at) { most.0[at] } else { u64::MAX }))
    }

    /// Takes over what a pool holds into the reserves of its path. Returns whether more is kept.
    pub(super) fn reserve_amounts(&mut self, pool: PoolIdx) -> bool {
        let entry = &mut self.pools[pool];
        let held = held_of(&entry.kinds);
        let mut before = entry.quota.reserve_again(Amounts::ZERO, held, entry.rules.lend);
        let mut now = entry.quota.reserve;
        for group in self.around(pool) {
            let entry = &mut self.groups[group];
            let held = held_of(&entry.kinds);
            let inside = entry.quota.inner_reserve.minus(before).plus(now);
            before = entry.quota.reserve_again(inside, held, entry.rules.lend);
            now = entry.quota.reserve;
        }
        self.reserved_amounts = self.reserved_amounts.minus(before).plus(now);
        !now.fits(&before)
    }

    /// The limits in resources in force, from outside inwards, then the reserves, from inside outwards.
    pub(super) fn set_quotas(&mut self) {
        self.reserved_amounts = Amounts::ZERO;
        self.groups.values_mut().for_each(|group| group.quota = QuotaState::default());
        self.pools.values_mut().for_each(|pool| pool.quota = QuotaState::default());
        if !self.has_quotas {
            return;
        }
        let groups = self.groups_inside_out();
        for group in groups.iter().rev() {
            self.set_quota_of_group(*group);
        }
        for pool in self.pool_numbers() {
            self.set_quota_of_pool(pool);
            let entry = &mut self.pools[pool];
            let held = held_of(&entry.kinds);
            entry.quota.reserve_again(Amounts::ZERO, held, entry.rules.lend);
            let (group, reserve) = (entry.group, entry.quota.reserve);
            let around = &mut self.groups[group].quota.inner_reserve;
            *around = around.plus(reserve);
        }
        for group in groups {
            let entry = &mut self.groups[group];
            let (held, inside) = (held_of(&entry.kinds), entry.quota.inner_reserve);
            entry.quota.reserve_again(inside, held, entry.rules.lend);
            let (parent, reserve) = (entry.parent, entry.quota.reserve);
            let around = match parent {
                Some(parent) => &mut self.groups[parent].quota.inner_reserve,
                None => &mut self.reserved_amounts,
            };
            *around = around.plus(reserve);
        }
    }

    /// Sets the limits of a group by those around it. Reserves follow.
    pub(super) fn set_quota_of_group(&mut self, group: GroupIdx) {
        let entry = &self.groups[group];
        let around = entry.parent.map(|parent| self.groups[parent].quota);
        let quota =
            QuotaState::new(&entry.rules.quotas, self.counted, around.as_ref(), self.amounts);
        self.groups[group].quota = quota;
    }

    /// Sets the limits of a pool by those around it. Reserves follow.
    pub(super) fn set_quota_of_pool(&mut self, pool: PoolIdx) {
        let entry = &self.pools[pool];
        let around = &self.groups[entry.group].quota;
        let quota = QuotaState::new(&entry.rules.quotas, self.counted, Some(around), self.amounts);
        self.pools[pool].quota = quota;
    }
}
