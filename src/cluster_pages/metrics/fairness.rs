//! The difference between the slots of pools and those under equal sharing.
//!
//! Spec: cluster-manager/08 §4.1. The original assigns slots one by one; here whole levels are
//! computed from sorted pools. If several pools could get the last slots, the original leaves the
//! choice to a heap; here those that have more get them, so that the choice does not add to the
//! difference.

use corona_engine::PoolView;
use corona_model::types::{PerType, ResourceType};

/// The measure for one type, or for all together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Unfairness {
    /// The difference between the pools' slots and their fair shares.
    pub(crate) difference: i64,
    /// Slots given wrongly, in percent of all given.
    pub(crate) percent: f32,
    /// The difference on average over pools.
    pub(crate) per_pool: f32,
    /// The square root of the mean of the squared differences.
    pub(crate) deviation: f32,
}

/// The measures by type, and for all types together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Fairness {
    pub(crate) by_type: PerType<Unfairness>,
    pub(crate) all: Unfairness,
}

/// The fairness among pools; groups are ignored. `kinds` are the types that are scheduled. `None`
/// when there is no pool.
pub(crate) fn fairness(pools: &[PoolView], kinds: &[ResourceType]) -> Option<Fairness> {
    let pools: Vec<&PoolView> = pools.iter().filter(|view| view.pool.is_some()).collect();
    if pools.is_empty() {
        return None;
    }
    let mut fairness = Fairness::default();
    let mut all = Sums::default();
    for kind in kinds {
        let claims: Vec<Claim> = pools.iter().map(|view| Claim::new(view, *kind)).collect();
        let sums = Sums::of(&claims);
        fairness.by_type[*kind] = sums.unfairness(pools.len(), 1);
        all.add(sums);
    }
    fairness.all = all.unfairness(pools.len(), kinds.len().max(1));
    Some(fairness)
}

/// One pool's grants and limits, in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    granted: i64,
    /// The slots that it requests, up to its maximum.
    desired: i64,
    /// The part of that which it is guaranteed.
    guaranteed: i64,
}

impl Claim {
    fn new(view: &PoolView, kind: ResourceType) -> Claim {
        let desired = view.counts[kind].requested.min(i64::from(view.maximum[kind])).max(0);
        let guaranteed = i64::from(view.minimum[kind]).min(desired).max(0);
        Claim { granted: view.counts[kind].granted.max(0), desired, guaranteed }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    available: i64,
    difference: i64,
    squares: f64,
}

impl Sums {
    fn of(claims: &[Claim]) -> Sums {
        let mut sums = Sums { available: available(claims), ..Sums::default() };
        for (claim, expected) in claims.iter().zip(expected(claims)) {
            let difference = (expected - claim.granted).abs();
            sums.difference += difference;
            sums.squares += (difference as f64).powi(2);
        }
        sums
    }

    fn add(&mut self, other: Sums) {
        self.available += other.available;
        self.difference += other.difference;
        self.squares += other.squares;
    }

    fn unfairness(self, pools: usize, kinds: usize) -> Unfairness {
        let parts = (pools * kinds) as f64;
        let percent = match self.available {
            0 => 0.0,
            available => self.difference as f64 * 100.0 / 2.0 / available as f64,
        };
        Unfairness {
            difference: self.difference,
            percent: single_precision(percent),
            per_pool: single_precision(self.difference as f64 / parts),
            deviation: single_precision((self.squares / parts).sqrt()),
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a measure needs no more digits")]
fn single_precision(measure: f64) -> f32 {
    measure as f32
}

fn available(claims: &[Claim]) -> i64 {
    claims.iter().map(|claim| claim.granted).sum()
}

/// Each pool's due part of all grants: first in rounds up to its guarantee, then from the bottom
/// up.
fn expected(claims: &[Claim]) -> Vec<i64> {
    let available = available(claims);
    let guaranteed: Vec<i64> = claims.iter().map(|claim| claim.guaranteed).collect();
    // A round is finished even if it grants more than there are.
    let rounds = least_level(available, &guaranteed);
    let mut expected: Vec<i64> = guaranteed.iter().map(|most| rounds.min(*most)).collect();
    let rest = available - expected.iter().sum::<i64>();
    if rest > 0 {
        fill_up(&mut expected, claims, rest);
    }
    expected
}

/// The least level to which all are to be filled so that `amount` fits into them, or the highest of
/// their brims when it does not.
fn least_level(amount: i64, brims: &[i64]) -> i64 {
    let mut sorted = brims.to_vec();
    sorted.sort_unstable();
    let mut below = 0;
    for (position, brim) in sorted.iter().enumerate() {
        let higher = i64::try_from(sorted.len() - position).unwrap_or(i64::MAX);
        if below + higher * brim >= amount {
            let missing = (amount - below).max(0);
            return (missing + higher - 1) / higher;
        }
        below += brim;
    }
    sorted.last().copied().unwrap_or(0)
}

/// Gives `rest` slots out, each to the pool that has least and wants more.
fn fill_up(expected: &mut [i64], claims: &[Claim], rest: i64) {
    let level = full_level(expected, claims, rest);
    let mut left = rest;
    for (has, claim) in expected.iter_mut().zip(claims) {
        let filled = level.min(claim.desired).max(*has);
        left -= filled - *has;
        *has = filled;
    }
    // The remainder is too small to raise the level by one for all pools at it.
    let mut open: Vec<(&mut i64, &Claim)> = expected
        .iter_mut()
        .zip(claims)
        .filter(|(has, claim)| **has == level && level < claim.desired)
        .collect();
    open.sort_by_key(|(_, claim)| -claim.granted);
    for (has, _) in open.into_iter().take(usize::try_from(left).unwrap_or(0)) {
        *has += 1;
    }
}

/// The highest level to which all that stand below it can be filled with `rest`. Between two of the
/// levels at which a pool joins or is full, the amount grows evenly.
fn full_level(expected: &[i64], claims: &[Claim], rest: i64) -> i64 {
    let mut turns: Vec<(i64, i64)> = Vec::with_capacity(2 * expected.len());
    for (has, claim) in expected.iter().zip(claims).filter(|(has, claim)| **has < claim.desired) {
        turns.push((*has, 1));
        turns.push((claim.desired, -1));
    }
    turns.sort_unstable();
    let (mut level, mut open, mut left) = (0, 0, rest);
    for (at, change) in turns {
        let whole = open * (at - level);
        if whole > left {
            return level + left / open;
        }
        left -= whole;
        level = at;
        open += change;
    }
    level
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(granted: i64, desired: i64, guaranteed: i64) -> Claim {
        Claim { granted, desired, guaranteed: guaranteed.min(desired) }
    }

    /// The documented algorithm, slot by slot.
    fn slot_by_slot(claims: &[Claim]) -> Vec<i64> {
        let available = available(claims);
        let mut expected = vec![0; claims.len()];
        let mut given = 0;
        while given < available && (0..claims.len()).any(|i| expected[i] < claims[i].guaranteed) {
            for (has, claim) in expected.iter_mut().zip(claims) {
                if *has < claim.guaranteed {
                    *has += 1;
                    given += 1;
                }
            }
        }
        while given < available {
            let open = (0..claims.len()).filter(|i| expected[*i] < claims[*i].desired);
            let next = open.min_by_key(|i| (expected[*i], -claims[*i].granted));
            let Some(next) = next else { break };
            expected[next] += 1;
            given += 1;
        }
        expected
    }

    #[test]
    fn slots_go_to_guarantees_first_and_then_from_the_bottom_up() {
        let cases = [
            ("equal", vec![claim(4, 9, 0), claim(4, 9, 0)], vec![4, 4]),
            ("uneven", vec![claim(8, 9, 0), claim(0, 9, 0)], vec![4, 4]),
            ("who has more gets the odd one", vec![claim(2, 9, 0), claim(3, 9, 0)], vec![2, 3]),
            ("little wanted", vec![claim(5, 9, 0), claim(1, 1, 0)], vec![5, 1]),
            ("guarantee", vec![claim(6, 9, 0), claim(0, 9, 5)], vec![1, 5]),
            ("a round is finished", vec![claim(1, 9, 5), claim(0, 9, 5)], vec![1, 1]),
            ("nothing", vec![claim(0, 9, 5), claim(0, 0, 0)], vec![0, 0]),
        ];
        for (what, claims, wanted) in cases {
            assert_eq!(expected(&claims), wanted, "{what}");
        }
    }

    #[test]
    fn measures_of_two_types_and_of_all() {
        let sums = Sums::of(&[claim(8, 9, 0), claim(0, 9, 0)]);
        let map = sums.unfairness(2, 1);
        let percent = 8.0 * 100.0 / 2.0 / 8.0;
        assert_eq!(map, Unfairness { difference: 8, percent, per_pool: 4.0, deviation: 4.0 });
        let mut all = sums;
        all.add(Sums::of(&[claim(3, 9, 0), claim(3, 9, 0)]));
        let all = all.unfairness(2, 2);
        assert_eq!((all.difference, all.per_pool), (8, 2.0));
        assert!((all.percent - 8.0 * 50.0 / 14.0).abs() < 1e-4);
        assert!((all.deviation - 8f32.sqrt()).abs() < 1e-6);
        assert_eq!(Sums::of(&[claim(0, 0, 0)]).unfairness(1, 1), Unfairness::default());
    }

    proptest! {
        #[test]
        fn levels_give_the_same_as_slots_one_by_one(
            claims in prop::collection::vec((0i64..40, 0i64..40, 0i64..40), 1..12)
        ) {
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(granted, desired, guaranteed)| claim(granted, desired, guaranteed))
                .collect();
            let (fast, slow) = (expected(&claims), slot_by_slot(&claims));
            let difference = |expected: &[i64]| -> i64 {
                expected.iter().zip(&claims).map(|(has, claim)| (has - claim.granted).abs()).sum()
            };
            prop_assert_eq!(fast.iter().sum::<i64>(), slow.iter().sum::<i64>());
            prop_assert_eq!(difference(&fast), difference(&slow));
            let (mut fast, mut slow) = (fast, slow);
            fast.sort_unstable();
            slow.sort_unstable();
            prop_assert_eq!(fast, slow);
        }
    }

    #[test]
    fn a_million_slots_cost_no_more_than_ten() {
        let claims: Vec<Claim> =
            (0..10_000).map(|i| claim(i * 1_000_000, i * 2_000_000, i * 500_000)).collect();
        let expected = expected(&claims);
        assert_eq!(expected.iter().sum::<i64>(), available(&claims));
    }
}
