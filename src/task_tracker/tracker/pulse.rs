//! Whether this process has just hung: stopped, swapped out, or on a machine that was. Orders that arrived meanwhile
//! wait in its sockets, and may be older than what they are about.

use std::time::{Duration, Instant};

/// The pause between two beats.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// Without a beat for longer than this the process has hung.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// For how long afterwards orders may be old ones.
const DOUBT: Duration = Duration::from_secs(60);

/// The signs of life of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    last: Instant,
    /// When it went on after it had hung.
    resumed: Option<Instant>,
}

impl Pulse {
    pub(super) fn new(now: Instant) -> Pulse {
        Pulse { last: now, resumed: None }
    }

    /// A sign of life. Due after each [`BEAT`].
    pub(super) fn beat(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last) > LONGEST_PAUSE {
            self.resumed = Some(now);
        }
        self.last = now;
    }

    /// Whether an order that is read now may have waited since before the process hung.
    pub(super) fn doubts(&mut self, now: Instant) -> bool {
        // Nobody knows which of all that is due runs first after a pause.
        self.beat(now);
        self.resumed.is_some_and(|at| now.saturating_duration_since(at) < DOUBT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_doubted_after_a_pause_of_the_process() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pulse = Pulse::new(at(0));
        for seconds in 1..=5 {
            pulse.beat(at(seconds));
        }
        assert!(!pulse.doubts(at(15)), "a busy machine");
        // The order is read before the beat that is due.
        assert!(pulse.doubts(at(26)) && pulse.doubts(at(27)));
        let mut pulse = Pulse::new(at(0));
        pulse.beat(at(100));
        for seconds in 101..160 {
            assert!(pulse.doubts(at(seconds)), "{seconds}");
        }
        assert!(!pulse.doubts(at(160)));
    }
}
