//! The clock of the service: the only source of the engine's time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corona_model::types::Millis;

/// Milliseconds since the epoch that never run backwards, whatever is done to the machine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
    start_ms: i64,
}

impl Clock {
    /// A clock that shows the machine's time now.
    pub(super) fn new() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Clock { start: Instant::now(), start_ms }
    }

    /// A clock that shows the machine's time now, or `least` if that is later: a time that an engine
    /// has seen before.
    pub(super) fn not_before(least: Millis) -> Clock {
        let clock = Clock::new();
        Clock { start_ms: clock.start_ms.max(least.0), ..clock }
    }

    /// The present time.
    pub(super) fn now(&self) -> Millis {
        self.at(Instant::now())
    }

    /// The time that this clock shows at an instant.
    pub(super) fn at(&self, instant: Instant) -> Millis {
        let elapsed = instant.saturating_duration_since(self.start);
        let elapsed_ms = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        Millis(self.start_ms.saturating_add(elapsed_ms))
    }

    /// The instant at which this clock shows `at`; for the far future, a day from now.
    pub(super) fn instant(&self, at: Millis) -> Instant {
        const FAR_MS: i64 = 24 * 60 * 60 * 1000;
        let now = self.now();
        let wait_ms = at.since(now).clamp(0, FAR_MS);
        Instant::now() + Duration::from_millis(wait_ms.unsigned_abs())
    }
}
