//! A rate limit for log lines that peers can cause at will.

use std::time::{Duration, Instant};

/// Lines in one second.
const LINES: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// How many lines are left.
#[derive(Debug, Default)]
pub(super) struct LogBudget {
    second: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogBudget {
    /// Whether a line may be written, and how many were left out before it.
    pub(super) fn admit(&mut self, now: Instant) -> Option<u64> {
        let same = self.second.is_some_and(|begun| now.saturating_duration_since(begun) < SECOND);
        if !same {
            self.second = Some(now);
            self.written = 0;
        }
        if self.written >= LINES {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_lines_a_second_and_the_number_of_the_others() {
        let begun = Instant::now();
        let mut budget = LogBudget::default();
        let written = (0..25).filter_map(|_| budget.admit(begun)).count();
        assert_eq!(written, 10);
        assert_eq!(budget.admit(begun + SECOND), Some(15));
        assert_eq!(budget.admit(begun + SECOND), Some(0));
    }
}
