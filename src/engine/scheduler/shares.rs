//! The shares of each group, pool and session in equilibrium.
//!
//! Spec: cluster-manager/04 §9.1. The search for the ratio is that of the original step by step,
//! since shares are truncated later and a different tolerance would change how many grants are
//! taken back.

use std::collections::BTreeMap;

use corona_model::queues::SiblingOrder;

/// The priority of queues with a minimum in a group in strict capacity order. Settings have none so high.
pub(super) const GUARANTEED: i64 = i64::MAX;

/// One of those among which slots are shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Claim {
    /// Slots held, waited for, or lost and not released.
    pub(crate) requested: i64,
    /// Slots guaranteed.
    pub(crate) minimum: i64,
    /// Slots at most.
    pub(crate) maximum: i64,
    /// Relative to the others.
    pub(crate) weight: f64,
    /// Larger comes first.
    pub(crate) priority: i64,
}

impl Claim {
    /// A claim without limits or weight, as a session has.
    pub(crate) fn of_session(requested: i64) -> Self {
        Claim { requested, minimum: 0, maximum: i64::from(i32::MAX), weight: 1.0, priority: 0 }
    }

    /// The claim as it counts in a group of this order.
    pub(crate) fn ordered(self, order: SiblingOrder) -> Self {
        match order {
            SiblingOrder::Priority => self,
            SiblingOrder::Fair => Claim { priority: 0, ..self },
            SiblingOrder::Capacity if self.minimum > 0 => {
                Claim { weight: self.minimum as f64, priority: GUARANTEED, ..self }
            }
            SiblingOrder::Capacity => Claim { priority: 0, ..self },
        }
    }

    /// The claim without the part of the minimum that nobody asks for.
    pub(crate) fn within_demand(self) -> Self {
        Claim { minimum: self.minimum.min(self.requested), ..self }
    }

    fn at_ratio(&self, ratio: f64) -> f64 {
        (self.weight * ratio)
            .max(self.minimum as f64)
            .min(self.maximum as f64)
            .min(self.requested as f64)
    }

    fn capped(&self) -> f64 {
        self.requested.min(self.maximum) as f64
    }
}

/// Shares in proportion to the weights, within minima, maxima and requests.
pub(crate) fn fair(total: f64, claims: &[Claim]) -> Vec<f64> {
    let ratio = search(total, |ratio| claims.iter().map(|claim| claim.at_ratio(ratio)).sum());
    claims.iter().map(|claim| claim.at_ratio(ratio)).collect()
}

/// Shares by priority: minima for all, the rest to the highest priority first.
pub(crate) fn by_priority(total: f64, claims: &[Claim]) -> Vec<f64> {
    let mut shares = vec![0.0; claims.len()];
    let guaranteed: f64 =
        claims.iter().map(|claim| claim.requested.min(claim.minimum) as f64).sum();
    if guaranteed > 0.0 && guaranteed >= total {
        for (share, claim) in shares.iter_mut().zip(claims) {
            *share = claim.minimum as f64;
        }
    }
    let mut rest = total - guaranteed;
    if rest <= 0.0 {
        return shares;
    }
    let mut classes: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        classes.entry(claim.priority).or_default().push(index);
    }
    for members in classes.into_values().rev() {
        let class: Vec<Claim> = members.iter().map(|index| claims[*index]).collect();
        let surplus: f64 =
            class.iter().map(|claim| (claim.capped() - claim.minimum as f64).max(0.0)).sum();
        let class_shares = if rest <= 0.0 {
            class.iter().map(|claim| claim.minimum as f64).collect()
        } else if surplus >= rest {
            let minima: f64 =
                class.iter().map(|claim| claim.capped().min(claim.minimum as f64)).sum();
            fair(rest + minima, &class)
        } else {
            let full = |claim: &Claim| claim.requested.max(claim.minimum).min(claim.maximum) as f64;
            class.iter().map(full).collect()
        };
        for (index, share) in members.into_iter().zip(class_shares) {
            shares[index] = share;
        }
        rest -= surplus;
    }
    shares
}

/// Shares in the given order: each gets all it wants until nothing is left.
pub(crate) fn in_order(total: f64, claims: &[Claim]) -> Vec<f64> {
    let mut rest = total;
    claims
        .iter()
        .map(|claim| {
            let share = claim.capped().min(rest).max(0.0);
            rest -= share;
            share
        })
        .collect()
}

/// The smallest power of two at which `sum` reaches `target`, then halved towards the solution.
fn search(target: f64, sum: impl Fn(f64) -> f64) -> f64 {
    const STEPS: usize = 25;
    const TOLERANCE: f64 = 0.01;
    let mut high = 1.0;
    for _ in 0..STEPS {
        let value = sum(high);
        if value >= target {
            break;
        }
        // The original compares with a previous value that it never sets.
        if (value - -1.0).abs() < TOLERANCE {
            return high;
        }
        high *= 2.0;
    }
    let (mut left, mut right) = (0.0, high);
    let mut middle = (left + right) / 2.0;
    for _ in 0..STEPS {
        let value = sum(middle);
        if (value - target).abs() < TOLERANCE {
            return middle;
        }
        if value < target {
            left = middle;
        } else {
            right = middle;
        }
        middle = (left + right) / 2.0;
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: i64 = i32::MAX as i64;

    fn claim(requested: i64, minimum: i64, maximum: i64, weight: f64, priority: i64) -> Claim {
        Claim { requested, minimum, maximum, weight, priority }
    }

    fn check(what: &str, shares: &[f64], expected: &[f64]) {
        assert_eq!(shares.len(), expected.len(), "{what}");
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 0.02, "{what}: {shares:?}, expected {expected:?}");
        }
    }

    #[test]
    fn vectors_of_the_original() {
        // Spec: cluster-manager/04 §10.
        let weighted = |limits: [(i64, i64); 4], requested: [i64; 4]| -> Vec<Claim> {
            (0..4)
                .map(|i| claim(requested[i], limits[i].0, limits[i].1, (i + 1) as f64, 0))
                .collect()
        };
        let free = [(0, ANY); 4];
        let tens = [10; 4];
        let fair_cases = [
            ("weights", weighted(free, tens), [1.6, 3.2, 4.8, 6.4]),
            (
                "maxima",
                weighted([(0, 1), (0, 2), (0, ANY), (0, ANY)], tens),
                [1.0, 2.0, 13.0 * 3.0 / 7.0, 13.0 * 4.0 / 7.0],
            ),
            (
                "requested",
                weighted(free, [1, 2, 10, 10]),
                [1.0, 2.0, 13.0 * 3.0 / 7.0, 13.0 * 4.0 / 7.0],
            ),
            (
                "minima",
                weighted([(3, ANY), (7, ANY), (0, ANY), (0, ANY)], tens),
                [3.0, 7.0, 6.0 * 3.0 / 7.0, 6.0 * 4.0 / 7.0],
            ),
            (
                "minima and maxima",
                weighted([(1, 4), (2, 5), (3, 6), (4, 7)], tens),
                [1.6, 3.2, 4.8, 6.4],
            ),
        ];
        for (what, claims, expected) in fair_cases {
            check(what, &fair(16.0, &claims), &expected);
        }

        let prioritised = |requested: [i64; 4], priorities: [i64; 4]| -> Vec<Claim> {
            (0..4)
                .map(|i| {
                    let step = 10 * i as i64;
                    let weight = (i + 1) as f64;
                    claim(requested[i], 10 + step, 40 + step, weight, priorities[i])
                })
                .collect()
        };
        let priority_cases = [
            ("minima only, 5", 30.0, prioritised([5; 4], [3, 3, 2, 1]), [10.0, 20.0, 30.0, 40.0]),
            ("minima only, 10", 30.0, prioritised([10; 4], [3, 3, 2, 1]), [10.0, 20.0, 30.0, 40.0]),
            (
                "enough for all",
                250.0,
                prioritised([15, 25, 35, 45], [3, 3, 2, 1]),
                [15.0, 25.0, 35.0, 45.0],
            ),
            (
                "trickles down",
                110.0,
                prioritised([15, 25, 35, 45], [3, 2, 2, 1]),
                [15.0, 22.0, 33.0, 40.0],
            ),
        ];
        for (what, total, claims, expected) in priority_cases {
            check(what, &by_priority(total, &claims), &expected);
        }

        let sessions = [10, 5, 2, 1].map(Claim::of_session);
        check("first come", &in_order(16.0, &sessions), &[10.0, 5.0, 1.0, 0.0]);
    }

    #[test]
    fn the_search_finds_square_roots_within_its_tolerance() {
        for square in 1..100 {
            let root = search(f64::from(square), |x| x * x);
            assert!((root - f64::from(square).sqrt()).abs() < 0.01, "{square}: {root}");
        }
    }

    #[test]
    fn two_equal_hungry_pools_get_slightly_less_than_half() {
        // Spec: cluster-manager/04 §9.1: 8 slots, group 7.992, pools 3.992; truncated to 3.
        let group = fair(8.0, &[claim(100, 0, ANY, 1.0, 0)])[0];
        let pools = by_priority(group, &[claim(50, 0, ANY, 1.0, 0), claim(50, 0, ANY, 1.0, 0)]);
        assert!(group < 8.0 && group > 7.99, "{group}");
        assert!(pools[1] < 4.0 && pools[1] > 3.99, "{pools:?}");
    }
}
