//! Preemption where resources are counted, found the naive way: each set of victims makes room for one request, on
//! one node, and no rule is broken by all of them together.

use std::collections::BTreeSet;

use super::model::{Model, ModelSession, Name, Wish, WishState};
use super::queues::Queue;
use corona_engine::{Effect, Record};
use corona_model::queues::SiblingOrder;
use corona_model::types::{Grant, Millis, PoolName, ResourceType};

/// A grant that was taken back.
#[derive(Clone, Debug)]
struct Lost {
    pool: PoolName,
    node: Name,
    wish: Wish,
}

/// The exchanges of an outcome.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// Grants that were taken back, and not yet said to make room for a request.
    lost: Vec<Lost>,
    /// Grants in their place, which are entered, and of which the sessions are not yet notified.
    made: Vec<(Name, Grant)>,
}

/// A part of a whole for a weight, exact: its numerator and denominator.
type Fraction = (i128, i128);

fn is_less(a: Fraction, b: Fraction) -> bool {
    a.0 * b.1 < b.0 * a.1
}

impl Exchanges {
    /// Enters grants that are about to be taken back.
    pub(super) fn take(
        &mut self,
        model: &Model,
        now: Millis,
        handle: &Name,
        grants: &[Grant],
    ) -> Result<(), String> {
        for grant in grants {
            let session = model.sessions.get(handle).ok_or("no such session")?;
            let wish = session.wishes.get(&grant.id).ok_or("never asked for")?;
            let (pool, node) = (session.pool.clone(), grant.node_name.clone());
            if wish.state == (WishState::Holds { node: node.clone(), at: now }) {
                return Err(format!("{handle} has {grant:?} taken back in the pass of its grant"));
            }
            self.lost.push(Lost { pool, node, wish: wish.clone() });
        }
        Ok(())
    }

    /// Enters an effect: the grants that were taken back make room for a request, which is granted.
    pub(super) fn note(
        &mut self,
        model: &mut Model,
        now: Millis,
        effect: &Effect,
    ) -> Result<(), String> {
        let Effect::Record(Record::RoomMade { node, handle, kind, id, victims, .. }) = effect
        else {
            return Ok(());
        };
        let lost = std::mem::take(&mut self.lost);
        let wrong = |what: String| format!("room for {id} of {handle} on {node}: {what}");
        if lost.len() as u64 != *victims {
            return Err(wrong(format!("{victims} grants are said to be taken back, not {lost:?}")));
        }
        model.check_room(node, handle, *id, *kind, &lost).map_err(wrong)?;
        let entry = model.nodes.get(node).ok_or("no such node")?;
        let grant = Grant {
            id: *id,
            node_name: node.clone(),
            address: entry.address.clone(),
            granted_at: now,
            kind: *kind,
            app_info: entry.apps[*kind].clone().ok_or("a node without the service")?,
        };
        model.take_grant(now, handle, &grant, true).map_err(wrong)?;
        self.made.push((handle.clone(), grant));
        Ok(())
    }

    /// The grants of a notification that are no exchanges.
    pub(super) fn others(&mut self, handle: &Name, grants: &[Grant]) -> Vec<Grant> {
        let mut others = grants.to_vec();
        self.made.retain(|(of, made)| {
            let told = others.iter().position(|grant| of == handle && grant == made);
            told.map(|at| others.remove(at)).is_none()
        });
        others
    }

    /// All that was taken back has made room for a request, and all sessions are notified.
    pub(super) fn check(&self) -> Result<(), String> {
        match (self.lost.first(), self.made.first()) {
            (None, None) => Ok(()),
            (Some(lost), _) => Err(format!("{lost:?} makes room for nothing")),
            (_, made) => Err(format!("{made:?} is granted without a notification")),
        }
    }
}

impl Model {
    /// Checks a set of victims that has been taken back.
    fn check_room(
        &self,
        node: &Name,
        handle: &Name,
        id: i32,
        kind: ResourceType,
        lost: &[Lost],
    ) -> Result<(), String> {
        let session = self.sessions.get(handle).ok_or("no such session")?;
        let wish = session.wishes.get(&id).ok_or("never asked for")?;
        if wish.state != WishState::Waits || wish.kind != kind {
            return Err("it is not waited for".into());
        }
        if lost.iter().any(|lost| lost.node != *node || lost.wish.kind != kind) {
            return Err(format!("not all of {lost:?} was there"));
        }
        for Lost { pool, wish: needed, .. } in lost {
            let beside = (pool, needed);
            // What a reserve in resources needs is not computed exactly: nothing too little is left to it.
            if !self.keeps_amounts()
                && self.has_room_beside(node, wish, needed)
                && self.may_be_given_beside(session, kind, wish, Some(beside))
            {
                return Err(format!("{needed:?} is taken back without need"));
            }
        }
        self.check_rule(session, wish, kind, lost)
    }

    /// Whether a node has room for a request beside another one.
    fn has_room_beside(&self, name: &Name, wish: &Wish, beside: &Wish) -> bool {
        let Some(node) = self.nodes.get(name) else { return false };
        let slots = self.need(wish) + self.need(beside);
        let (capacity, taken) = (self.capacity(node), self.taken(name));
        let (own, other) = (self.demand(wish), self.demand(beside));
        self.room(node, wish.kind) >= slots
            && (0..4).all(|at| own[at] == 0 || taken[at] + own[at] + other[at] <= capacity[at])
    }

    fn check_rule(
        &self,
        session: &ModelSession,
        wish: &Wish,
        kind: ResourceType,
        lost: &[Lost],
    ) -> Result<(), String> {
        let taker_path = self.path(&session.pool);
        let fence = self.fence(&session.pool).map(Queue::Group);
        for giver in lost.iter().map(|lost| &lost.pool).collect::<BTreeSet<_>>() {
            let path = self.path(giver);
            if *giver == session.pool || fence.as_ref().is_some_and(|fence| !path.contains(fence)) {
                return Err(format!("{giver} is its own pool, or outside of the fence"));
            }
            let own: Vec<&Queue> = path.iter().filter(|it| !taker_path.contains(it)).collect();
            let takers: Vec<&Queue> = taker_path.iter().filter(|it| !path.contains(it)).collect();
            for queue in &own {
                let (granted, minimum) =
                    (self.counts_in(queue, kind).granted, self.limits(queue, kind).0);
                if minimum > 0 && granted < minimum {
                    return Err(format!("{queue:?} is left with {granted} of its {minimum}"));
                }
                if self.is_below_quota(queue, [0; 4]) {
                    return Err(format!("{queue:?} is left with less than its resources"));
                }
            }
            let (Some(taker), Some(giver)) = (takers.last(), own.last()) else {
                return Err("the paths do not part".into());
            };
            self.check_shares((taker, giver), wish, kind, lost)?;
        }
        Ok(())
    }

    /// The share of the queue that gives is no smaller than that of the other one will be.
    fn check_shares(
        &self,
        (taker, giver): (&Queue, &Queue),
        wish: &Wish,
        kind: ResourceType,
        lost: &[Lost],
    ) -> Result<(), String> {
        let lost_in = lost.iter().filter(|lost| self.path(&lost.pool).contains(taker)).count();
        let before = self.counts_in(taker, kind).granted + lost_in as i64;
        let (taker_rank, giver_rank) = (self.rank(taker, kind), self.rank(giver, kind));
        let inside = lost.iter().filter(|lost| self.path(&lost.pool).contains(taker));
        let had = inside.map(|lost| self.demand(&lost.wish));
        let had = had.fold([0; 4], |sum, own| std::array::from_fn(|at| sum[at] + own[at]));
        let is_needy = before < self.limits(taker, kind).0 || self.is_below_quota(taker, had);
        if is_needy || taker_rank > giver_rank {
            return Ok(());
        }
        let after = self.fraction(taker, kind, Some(wish));
        let left = self.fraction(giver, kind, None);
        let gave = lost.iter().filter(|lost| self.path(&lost.pool).contains(giver));
        let gave: Vec<&Wish> = gave.map(|lost| &lost.wish).collect();
        let had = self.fraction_with(giver, kind, &gave);
        if taker_rank < giver_rank || is_less(left, after) || !is_less(after, had) {
            return Err(format!(
                "{taker:?} has {after:?} for its weight then, {giver:?} has {left:?} of {had:?}"
            ));
        }
        Ok(())
    }

    fn rank(&self, queue: &Queue, kind: ResourceType) -> i64 {
        let Queue::Pool(pool) = queue else {
            return i64::from(self.is_guaranteed(queue, kind));
        };
        let order = self.rules(&Queue::Group(pool.group.clone())).order;
        match order {
            SiblingOrder::Priority => {
                self.settings.pools.pools.get(pool).map_or(0, |pool| i64::from(pool.priority))
            }
            SiblingOrder::Fair => 0,
            SiblingOrder::Capacity => i64::from(self.is_guaranteed(queue, kind)),
        }
    }

    /// Whether a queue has a minimum, in a group in strict capacity order.
    fn is_guaranteed(&self, queue: &Queue, kind: ResourceType) -> bool {
        let around = self.parent(queue).map(|parent| self.rules(&parent).order);
        around == Some(SiblingOrder::Capacity)
            && (self.limits(queue, kind).0 > 0 || self.guaranteed(queue) != [0; 4])
    }

    fn fraction(&self, queue: &Queue, kind: ResourceType, more: Option<&Wish>) -> Fraction {
        self.fraction_with(queue, kind, more.as_slice())
    }

    /// What a queue holds, and these, for its weight, of the whole.
    fn fraction_with(&self, queue: &Queue, kind: ResourceType, more: &[&Wish]) -> Fraction {
        let sessions = self.sessions.values();
        let inside = sessions.filter(|session| self.path(&session.pool).contains(queue));
        let wishes = inside.flat_map(|session| session.wishes.values());
        let holds =
            wishes.filter(|it| it.kind == kind && matches!(it.state, WishState::Holds { .. }));
        let held = holds.chain(more.iter().copied()).fold([0; 4], |sum, wish| {
            let demand = self.demand(wish);
            std::array::from_fn(|at| sum[at] + demand[at])
        });
        let nodes = self.nodes.values();
        let whole = nodes
            .map(|node| self.capacity(node))
            .fold([0; 4], |sum, more| std::array::from_fn::<i64, 4, _>(|at| sum[at] + more[at]));
        let weight = match queue {
            _ if self.is_guaranteed(queue, kind) => match self.guaranteed(queue) {
                [0, 0, 0, 0] => self.limits(queue, kind).0 as f64,
                minimum => self.part_of(minimum, whole),
            },
            Queue::Group(_) => self.rules(queue).weight,
            Queue::Pool(pool) => {
                self.settings.pools.pools.get(pool).map_or(1.0, |pool| pool.weight)
            }
        };
        // At least one, so that what queues of no weight hold can be told apart.
        let weight = ((weight * 1_000.0).round() as i128).max(1);
        let fractions = (0..4)
            .filter(|at| whole[*at] > 0)
            .map(|at| (i128::from(held[at]), i128::from(seven_digits(whole[at])) * weight));
        let largest = |a: Fraction, b: Fraction| if is_less(a, b) { b } else { a };
        fractions.fold((0, weight), largest)
    }
}

impl Model {
    /// The largest part that a minimum is of the whole, in parts of 2^32.
    fn part_of(&self, minimum: [i64; 4], whole: [i64; 4]) -> f64 {
        let parts = (0..4).filter(|at| whole[*at] > 0);
        let parts =
            parts.map(|at| (i128::from(minimum[at]) << 32) / i128::from(seven_digits(whole[at])));
        parts.max().unwrap_or(0).max(1) as f64
    }
}

/// A number rounded up to seven binary digits.
fn seven_digits(number: i64) -> i64 {
    let mut unit = 1;
    while number >= 128 * unit {
        unit *= 2;
    }
    (number + unit - 1) / unit * unit
}
