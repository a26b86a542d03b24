//! The time of the jobs: it does not jump when somebody sets the machine's clock, and time in which the
//! process did not run is known.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corona_model::types::Millis;
use tokio::time::sleep;

/// The pause between two signs that the process runs, and the delay of one that is common on a busy machine.
const BEAT: Duration = Duration::from_millis(500);
const PROMPT: Duration = Duration::from_millis(500);

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);

/// The present time, as journals and history have it: that of the machine when the process was started, and
/// what has passed since.
pub(crate) fn now() -> Millis {
    CLOCK.now()
}

/// For how long the process did not run since it was started, in milliseconds. Nothing is known of the time
/// before [`watch`].
pub(crate) fn stalled_ms() -> i64 {
    CLOCK.stalls().notice(CLOCK.now())
}

/// Notices stalls. Runs as long as the service.
pub(crate) async fn watch() {
    loop {
        let before = stalled_ms();
        let after = CLOCK.stalls().beat(CLOCK.now());
        if after > before {
            tracing::warn!(
                stalled_ms = after - before,
                "the process was stalled; not counted as silence of task trackers"
            );
        }
        sleep(BEAT).await;
    }
}

#[derive(Debug)]
struct Clock {
    start: Instant,
    start_ms: i64,
    stalls: Mutex<Stalls>,
}

impl Clock {
    fn new() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Clock { start: Instant::now(), start_ms, stalls: Mutex::default() }
    }

    fn now(&self) -> Millis {
        let elapsed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        Millis(self.start_ms).plus_ms(elapsed)
    }

    /// No panic happens while it is held.
    fn stalls(&self) -> MutexGuard<'_, Stalls> {
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stalls of a process that gives a sign at each beat. The first look after a stall notices it, so
/// that no silence is judged before.
#[derive(Debug, Default)]
struct Stalls {
    last: Option<Millis>,
    total_ms: i64,
}

impl Stalls {
    fn beat(&mut self, now: Millis) -> i64 {
        self.notice(now);
        self.last = Some(now);
        self.total_ms
    }

    fn notice(&mut self, now: Millis) -> i64 {
        let gap_ms = self.last.map_or(0, |last| now.since(last));
        if u128::try_from(gap_ms).is_ok_and(|gap_ms| gap_ms > (BEAT + PROMPT).as_millis()) {
            self.total_ms = self.total_ms.saturating_add(gap_ms);
            self.last = Some(now);
        }
        self.total_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_between_beats_is_a_stall_for_whoever_looks_first() {
        let mut stalls = Stalls::default();
        assert_eq!(stalls.notice(Millis(90_000)), 0, "it does not beat yet");
        for at in [100_000, 100_500, 101_400] {
            assert_eq!(stalls.beat(Millis(at)), 0);
        }
        assert_eq!(stalls.notice(Millis(102_400)), 0);
        assert_eq!(stalls.notice(Millis(161_400)), 60_000);
        assert_eq!(stalls.notice(Millis(161_401)), 60_000);
        assert_eq!(stalls.beat(Millis(161_500)), 60_000);
        assert_eq!(stalls.beat(Millis(171_500)), 70_000);
    }

    #[test]
    fn time_goes_forward() {
        let before = now();
        assert!(now() >= before);
        let machine = Clock::new().start_ms;
        assert!((machine - before.0).abs() < 3_600_000, "it is near the machine's");
    }
}
