//! Each pool's due share, computed by halving an interval until nothing changes any more.
//!
//! Spec: cluster-manager/04 §9.1. The engine stops its search where the original does; this is the
//! exact solution near which that must be.

use std::cmp::Reverse;

/// One of those among which slots are shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelClaim {
    pub(super) requested: f64,
    pub(super) minimum: f64,
    pub(super) maximum: f64,
    pub(super) weight: f64,
    pub(super) priority: i32,
}

impl ModelClaim {
    fn at(&self, ratio: f64) -> f64 {
        (self.weight * ratio).max(self.minimum).min(self.maximum).min(self.requested)
    }

    fn ceiling(&self) -> f64 {
        self.requested.min(self.maximum)
    }
}

/// Shares in proportion to the weights within the limits.
pub(super) fn fair(total: f64, claims: &[ModelClaim]) -> Vec<f64> {
    let (mut low, mut high) = (0.0, f64::from(1 << 25));
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if claims.iter().map(|claim| claim.at(middle)).sum::<f64>() < total {
            low = middle;
        } else {
            high = middle;
        }
    }
    claims.iter().map(|claim| claim.at(high)).collect()
}

/// Minima for all, then the rest by priority.
pub(super) fn by_priority(total: f64, claims: &[ModelClaim]) -> Vec<f64> {
    let guaranteed: f64 = claims.iter().map(|claim| claim.minimum.min(claim.requested)).sum();
    let mut left = total - guaranteed;
    if left <= 0.0 {
        let enough = guaranteed > 0.0;
        return claims.iter().map(|claim| if enough { claim.minimum } else { 0.0 }).collect();
    }
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by_key(|index| Reverse(claims[*index].priority));
    let mut shares = vec![0.0; claims.len()];
    for class in order.chunk_by(|a, b| claims[*a].priority == claims[*b].priority) {
        let members: Vec<ModelClaim> = class.iter().map(|index| claims[*index]).collect();
        let wanted: f64 = members.iter().map(|c| (c.ceiling() - c.minimum).max(0.0)).sum();
        let own: f64 = members.iter().map(|c| c.ceiling().min(c.minimum)).sum();
        let given: Vec<f64> = if left <= 0.0 {
            members.iter().map(|c| c.minimum).collect()
        } else if wanted >= left {
            fair(left + own, &members)
        } else {
            members.iter().map(|c| c.requested.max(c.minimum).min(c.maximum)).collect()
        };
        for (index, share) in class.iter().zip(given) {
            shares[*index] = share;
        }
        left -= wanted;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_up_to_the_limits() {
        let claim = |requested, minimum, maximum, weight, priority| ModelClaim {
            requested,
            minimum,
            maximum,
            weight,
            priority,
        };
        let plain = claim(10.0, 0.0, 99.0, 1.0, 0);
        let cases = [
            (fair(8.0, &[plain, plain]), [4.0, 4.0]),
            (fair(8.0, &[claim(10.0, 0.0, 99.0, 3.0, 0), plain]), [6.0, 2.0]),
            (fair(8.0, &[claim(10.0, 0.0, 1.0, 3.0, 0), plain]), [1.0, 7.0]),
            (by_priority(8.0, &[claim(10.0, 0.0, 99.0, 1.0, 1), plain]), [8.0, 0.0]),
            (by_priority(8.0, &[claim(10.0, 9.0, 99.0, 1.0, 0), plain]), [9.0, 0.0]),
        ];
        for (shares, expected) in cases {
            let near =
                shares.iter().zip(expected).all(|(share, e): (&f64, f64)| (share - e).abs() < 1e-6);
            assert!(near, "{shares:?}, expected {expected:?}");
        }
    }
}
