//! How fast things happen.

use std::time::Duration;

/// Turns seconds of the demo into real time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    speed: f64,
}

impl Pace {
    /// `speed` times as fast as usual.
    pub(super) fn new(speed: f64) -> Pace {
        Pace { speed }
    }

    /// So many seconds of the demo.
    pub(super) fn seconds(self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds / self.speed).unwrap_or(Duration::from_secs(1))
    }

    /// The same as a configuration has it: milliseconds, at least 1.
    pub(super) fn millis(self, seconds: f64) -> String {
        self.seconds(seconds).as_millis().max(1).to_string()
    }
}
