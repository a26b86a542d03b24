//! Waits for replies and notifications that did not come: too many of them end a replay.

use std::time::Duration;

/// The sum of waits without a result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    limit: Duration,
    waited: Duration,
}

impl Silence {
    pub(super) fn of(limit: Duration) -> Silence {
        Silence { limit, waited: Duration::ZERO }
    }

    /// Something was waited for, and did not come.
    pub(super) fn waited(&mut self, time: Duration) {
        self.waited = self.waited.saturating_add(time);
    }

    /// Why the replay is to end, if it is.
    pub(super) fn is_too_long(&self) -> Option<String> {
        (self.waited >= self.limit).then(|| {
            let waited = self.waited.as_secs_f64();
            format!("it had waited {waited:.0} s for replies and notifications that did not come")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_add_up_to_the_limit() {
        let mut silence = Silence::of(Duration::from_secs(12));
        silence.waited(Duration::from_secs(5));
        silence.waited(Duration::from_secs(5));
        assert_eq!(silence.is_too_long(), None);
        silence.waited(Duration::from_secs(5));
        let why = silence.is_too_long().unwrap();
        assert!(why.contains("waited 15 s for replies"), "{why}");
    }
}
