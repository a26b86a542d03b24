//! The limits of queues in resources, found the naive way: every number is a new sum.

use std::collections::BTreeMap;

use super::model::{Model, ModelSession, Wish, WishState};
use super::queues::Queue;
use super::resources::Numbers;
use corona_model::queues::Quota;
use corona_model::types::{PoolName, ResourceType};

/// What sessions of each pool hold.
type Held = BTreeMap<PoolName, Numbers>;

/// A queue's minimum and maximum of a resource, and the smallest maximum from here outwards.
#[derive(Clone, Copy, Debug)]
struct Limits {
    minimum: i64,
    maximum: i64,
    reach: i64,
}

impl Model {
    /// Whether any queue has a limit of a resource that is counted.
    fn has_quotas(&self) -> bool {
        let queues = &self.settings.pools.queues;
        let counted = self.settings.resources.counted;
        queues.groups.values().chain(queues.pools.values()).any(|rules| {
            let any =
                |at: &usize| rules.quotas.minimum[*at].or(rules.quotas.maximum[*at]).is_some();
            (0..4).filter(|at| counted[*at]).any(|at| any(&at))
        })
    }

    fn limits_of(&self, queue: &Queue, at: usize) -> Limits {
        let whole: i64 = self.nodes.values().map(|node| self.capacity(node)[at]).sum();
        let around = self.parent(queue).map(|parent| self.limits_of(&parent, at));
        let (least, reach) = around.map_or((whole, whole), |limits| (limits.minimum, limits.reach));
        let rules = self.rules(queue);
        let part = |part: u32, of: i64| f64::from(part) / 10_000.0 * of as f64;
        let minimum = match rules.quotas.minimum[at] {
            Some(Quota::Amount(amount)) => amount as i64,
            Some(Quota::Part(of_least)) => (part(of_least.0, least) + 1e-9).floor() as i64,
            None => 0,
        };
        let maximum = match rules.quotas.maximum[at] {
            Some(Quota::Amount(amount)) => amount as i64,
            Some(Quota::Part(of_most)) => (part(of_most.0, reach) - 1e-9).ceil().max(0.0) as i64,
            None => i64::MAX,
        };
        match self.settings.resources.counted[at] {
            true => Limits { minimum, maximum, reach: maximum.min(reach) },
            false => Limits { minimum: 0, maximum: i64::MAX, reach: i64::MAX },
        }
    }

    fn held_by_pools(&self) -> Held {
        let mut held = Held::new();
        for session in self.sessions.values() {
            let own = held.entry(session.pool.clone()).or_default();
            let wishes = session.wishes.values();
            for wish in wishes.filter(|wish| matches!(wish.state, WishState::Holds { .. })) {
                let demand = self.demand(wish);
                *own = std::array::from_fn(|at| own[at] + demand[at]);
            }
        }
        held
    }

    fn held_in(&self, queue: &Queue, held: &Held) -> Numbers {
        let inside = held.iter().filter(|(pool, _)| self.path(pool).contains(queue));
        inside.fold([0; 4], |sum, (_, own)| std::array::from_fn(|at| sum[at] + own[at]))
    }

    /// The minimum of each resource of a queue.
    pub(super) fn guaranteed(&self, queue: &Queue) -> Numbers {
        if !self.has_quotas() {
            return [0; 4];
        }
        std::array::from_fn(|at| self.limits_of(queue, at).minimum)
    }

    /// Whether a queue holds less than its minimum of every resource that has one, with `more` than it holds now.
    pub(super) fn is_below_quota(&self, queue: &Queue, more: Numbers) -> bool {
        let minimum = self.guaranteed(queue);
        if minimum == [0; 4] {
            return false;
        }
        let held = self.held_in(queue, &self.held_by_pools());
        (0..4).all(|at| minimum[at] == 0 || held[at] + more[at] < minimum[at])
    }

    /// What stays free for a queue if pools hold so much.
    fn kept_for(&self, queue: &Queue, at: usize, held: &Held) -> i64 {
        let inside: i64 =
            self.inside(Some(queue)).iter().map(|inner| self.kept_for(inner, at, held)).sum();
        if self.rules(queue).lend {
            return inside;
        }
        let missing = self.limits_of(queue, at).minimum - self.held_in(queue, held)[at];
        missing.max(inside).max(0)
    }

    fn kept(&self, held: &Held) -> Numbers {
        let outermost = self.inside(None);
        std::array::from_fn(|at| outermost.iter().map(|queue| self.kept_for(queue, at, held)).sum())
    }

    /// What is left on the nodes that may be given more of some type.
    fn left(&self) -> Numbers {
        let serves = |kind: &ResourceType, node| self.serves(node, *kind);
        let usable = self
            .nodes
            .iter()
            .filter(|(_, node)| ResourceType::ALL.iter().any(|it| serves(it, node)));
        usable.fold([0; 4], |sum, (name, node)| {
            let (capacity, taken) = (self.capacity(node), self.taken(name));
            std::array::from_fn(|at| sum[at] + (capacity[at] - taken[at]).max(0))
        })
    }

    /// Whether any resources stay free for queues that do not lend.
    pub(super) fn keeps_amounts(&self) -> bool {
        self.has_quotas() && self.kept(&self.held_by_pools()) != [0; 4]
    }

    /// What should stay free for queues that do not lend, and is in use.
    pub(super) fn missing_amounts(&self) -> Numbers {
        if !self.has_quotas() {
            return [0; 4];
        }
        let (kept, left) = (self.kept(&self.held_by_pools()), self.left());
        std::array::from_fn(|at| (kept[at] - left[at]).max(0))
    }

    /// After all grants of a pass: nothing was given that stays free for queues that do not lend, of which so much
    /// was missing before.
    pub(super) fn check_kept(&self, before: Numbers) -> Result<(), String> {
        let missing = self.missing_amounts();
        match (0..4).any(|at| missing[at] > before[at]) {
            true => Err(format!("{missing:?} are missing that stay free, and were {before:?}")),
            false => Ok(()),
        }
    }

    /// Whether the limits in resources let a request of the session be given, if a pool held one more grant.
    pub(super) fn quotas_allow(
        &self,
        session: &ModelSession,
        demand: Numbers,
        beside: Option<(&PoolName, &Wish)>,
    ) -> bool {
        if !self.has_quotas() {
            return true;
        }
        let (mut held, mut left) = (self.held_by_pools(), self.left());
        if let Some((pool, beside)) = beside {
            let more = self.demand(beside);
            let own = held.entry(pool.clone()).or_default();
            *own = std::array::from_fn(|at| own[at] + more[at]);
            left = std::array::from_fn(|at| left[at] - more[at]);
        }
        let fits = |queue: &Queue| {
            let own = self.held_in(queue, &held);
            (0..4).all(|at| own[at].saturating_add(demand[at]) <= self.limits_of(queue, at).maximum)
        };
        if !self.path(&session.pool).iter().all(fits) {
            return false;
        }
        let before = self.kept(&held);
        let own = held.entry(session.pool.clone()).or_default();
        *own = std::array::from_fn(|at| own[at] + demand[at]);
        let after = self.kept(&held);
        (0..4).all(|at| {
            let of_others = demand[at] - (before[at] - after[at]);
            before[at] == 0 || of_others <= (left[at] - before[at]).max(0)
        })
    }

    /// After a grant: no queue of the path holds more than its maximum.
    pub(super) fn check_quotas(&self, session: &ModelSession) -> Result<(), String> {
        if !self.has_quotas() {
            return Ok(());
        }
        let held = self.held_by_pools();
        for queue in self.path(&session.pool) {
            let own = self.held_in(&queue, &held);
            for (at, own) in own.into_iter().enumerate() {
                let Limits { maximum, .. } = self.limits_of(&queue, at);
                if own > maximum {
                    return Err(format!("{queue:?} holds {own} of resource {at}, of {maximum}"));
                }
            }
        }
        Ok(())
    }
}
