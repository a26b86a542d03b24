//! The clock of the capturing machine, which may be set back while it captures.
//!
//! Time goes on where it was when a segment is older than an earlier one of its connection. Segments of other
//! connections alone do not show it: a merged file may have its connections one after another.

use std::time::Duration;

use super::order::REACH_US;

/// The time since the first packet.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Microseconds since the Unix epoch.
    started_at_us: Option<u64>,
    /// What the clock shows now, since the start; negative if it was set back behind it.
    shown_us: i64,
    /// By how much it was set back so far.
    set_back_us: i64,
}

impl Clock {
    /// A packet was taken at this time, in microseconds since the Unix epoch; or one without a time.
    pub(super) fn shows(&mut self, at_us: Option<u64>) {
        if let Some(us) = at_us {
            let start = *self.started_at_us.get_or_insert(us);
            self.shown_us = us.wrapping_sub(start).cast_signed();
        }
    }

    /// The packet belongs to a connection with an earlier packet of this time.
    pub(super) fn is_at_least(&mut self, earlier: Option<Duration>) {
        let Some(earlier) = earlier else { return };
        let earlier_us = i64::try_from(earlier.as_micros()).unwrap_or(i64::MAX);
        let back_us = earlier_us.saturating_sub(self.now_us());
        if back_us > REACH_US.cast_signed() {
            self.set_back_us = self.set_back_us.saturating_add(back_us);
        }
    }

    pub(super) fn now(&self) -> Duration {
        Duration::from_micros(self.now_us().max(0).unsigned_abs())
    }

    pub(super) fn started_at_us(&self) -> u64 {
        self.started_at_us.unwrap_or(0)
    }

    fn now_us(&self) -> i64 {
        self.shown_us.saturating_add(self.set_back_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_when_the_clock_is_set_back() {
        let second = |count: i64| (1_000_000_000 + count * 1_000_000).cast_unsigned();
        let at = |seconds| Some(Duration::from_secs(seconds));
        let mut clock = Clock::default();
        for (shown, earlier, now) in [
            (Some(second(0)), None, 0),
            (Some(second(10)), at(0), 10),
            (None, at(10), 10),
            // Another connection may be older.
            (Some(second(4)), None, 4),
            (Some(second(10)), at(10), 10),
            (Some(second(-100)), at(10), 10),
            (Some(second(-98)), None, 12),
            (Some(second(-99)), at(12), 11),
            (Some(second(-200)), at(12), 12),
            (Some(second(-199)), at(12), 13),
        ] {
            clock.shows(shown);
            clock.is_at_least(earlier);
            assert_eq!(clock.now(), Duration::from_secs(now), "{shown:?} {earlier:?}");
        }
        assert_eq!(clock.started_at_us(), second(0));
        for wild in [0, u64::MAX, 1 << 63] {
            clock.shows(Some(wild));
            clock.is_at_least(Some(Duration::MAX));
            let _ = clock.now();
        }
    }
}
