//! Pauses between attempts that keep failing.

use std::time::Duration;

/// Pauses that grow, from a first one up to a longest one. As an iterator it has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Each pause is this many times as long as the one before, as a fraction.
    factor: (u32, u32),
    next: Duration,
}

impl Backoff {
    /// Each pause is twice as long as the one before.
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, factor: (2, 1), next: first }
    }

    /// The same with another factor, `numerator / denominator`. The denominator is not zero.
    #[must_use]
    pub const fn with_factor(self, numerator: u32, denominator: u32) -> Backoff {
        Backoff { factor: (numerator, denominator), ..self }
    }

    /// The next pause, which counts as made.
    pub fn pause(&mut self) -> Duration {
        let pause = self.upcoming();
        let (numerator, denominator) = self.factor;
        self.next = pause.saturating_mul(numerator) / denominator.max(1);
        pause
    }

    /// The next pause, before it is made.
    pub fn upcoming(&self) -> Duration {
        self.next.min(self.longest)
    }

    /// An attempt has succeeded: the next pause is the first one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(pauses: impl Iterator<Item = Duration>) -> Vec<u128> {
        pauses.take(6).map(|pause| pause.as_millis()).collect()
    }

    #[test]
    fn pauses_grow_up_to_the_longest_and_start_over() {
        let millis = Duration::from_millis;
        let mut backoff = Backoff::new(millis(5), millis(50));
        assert_eq!(backoff.upcoming(), millis(5));
        assert_eq!(ms(backoff.by_ref()), [5, 10, 20, 40, 50, 50]);
        backoff.reset();
        assert_eq!(backoff.pause(), millis(5));
        assert_eq!(ms(backoff.clone().with_factor(3, 2)), [10, 15, 22, 33, 50, 50]);
        assert_eq!(ms(Backoff::new(millis(80), millis(50))), [50; 6]);
        assert_eq!(ms(Backoff::new(Duration::MAX, Duration::MAX)).len(), 6, "no overflow");
    }
}
