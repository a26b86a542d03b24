//! Times for people: a date, and how long ago something was.

use std::fmt;

use corona::model::types::Span;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Milliseconds since the epoch as `2026-11-21 00:05:39` in local time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Date(pub(super) i64);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_millisecond(self.0) {
            Ok(time) => {
                let zoned = time.to_zoned(TimeZone::system());
                write!(f, "{}", zoned.strftime("%Y-%m-%d %H:%M:%S"))
            }
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl Date {
    /// Without the year and the seconds: `11-21 00:05`.
    pub(super) fn to_the_minute(self) -> String {
        self.to_string().get(5..16).unwrap_or_default().to_owned()
    }
}

/// How long before `now_ms` something was: `5 min ago`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ago {
    pub(super) now_ms: i64,
    pub(super) then_ms: i64,
}

impl Ago {
    /// The span alone, in at most two units: `3 h 20 min`.
    pub(super) fn span(self) -> String {
        Span(self.now_ms.saturating_sub(self.then_ms)).to_string()
    }

    /// The span in at most seven characters: `3h20m`.
    pub(super) fn short(self) -> String {
        let seconds = self.now_ms.saturating_sub(self.then_ms).max(0) / 1000;
        match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
            (0, 0, 0, seconds) => format!("{seconds}s"),
            (0, 0, minutes @ 0..10, seconds) => format!("{minutes}m{seconds}s"),
            (0, 0, minutes, _) => format!("{minutes}m"),
            (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
            (days @ 0..1000, hours, ..) => format!("{days}d{hours}h"),
            (days, ..) => format!("{days}d"),
        }
    }
}

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ago", self.span())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        for (ms, text) in [(-5, "0 s ago"), (61_000, "1 min 1 s ago")] {
            assert_eq!(
                Ago { now_ms: 1_000_000_000 + ms, then_ms: 1_000_000_000 }.to_string(),
                text
            );
        }
        let extremes = Ago { now_ms: i64::MAX, then_ms: i64::MIN };
        assert!(extremes.span().ends_with(" h"));
    }

    #[test]
    fn spans_for_narrow_columns() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (3_660, "1h1m"),
            (86_399, "23h59m"),
            (90_000, "1d1h"),
            (86_400 * 1000, "1000d"),
        ] {
            assert_eq!(Ago { now_ms: seconds * 1000, then_ms: 0 }.short(), text);
        }
    }

    #[test]
    fn a_date_is_local_and_any_number_has_a_text() {
        let shape: String = Date(1_795_219_539_000)
            .to_string()
            .chars()
            .map(|c| if c.is_ascii_digit() { '9' } else { c })
            .collect();
        assert_eq!(shape, "9999-99-99 99:99:99");
        assert_eq!(Date(i64::MAX).to_string(), "9223372036854775807 ms");
    }
}
