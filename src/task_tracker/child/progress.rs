//! Who has not reported progress for too long.
//!
//! Pure: time is an argument. Spec: mapreduce/04 §4.10.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::task_tracker::ids::AttemptId;

/// When each running attempt has last reported.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    attempts: BTreeMap<AttemptId, (Instant, Option<Duration>)>,
}

impl Progress {
    /// An attempt starts; `timeout` as its job says, `None` for never.
    pub fn started(&mut self, attempt: AttemptId, now: Instant, timeout: Option<Duration>) {
        self.attempts.insert(attempt, (now, timeout));
    }

    /// An attempt has reported. A ping is no report.
    pub fn reported(&mut self, attempt: &AttemptId, now: Instant) {
        if let Some((last, _)) = self.attempts.get_mut(attempt) {
            *last = now.max(*last);
        }
    }

    /// An attempt has ended, however.
    pub fn ended(&mut self, attempt: &AttemptId) {
        self.attempts.remove(attempt);
    }

    /// Those that have been silent for longer than they may, with what to tell. They are not told
    /// again.
    pub fn overdue(&mut self, now: Instant) -> Vec<(AttemptId, String)> {
        let mut overdue = Vec::new();
        self.attempts.retain(|attempt, (last, timeout)| {
            let silent = now.saturating_duration_since(*last);
            if timeout.is_none_or(|timeout| silent <= timeout) {
                return true;
            }
            let seconds = silent.as_secs();
            let told =
                format!("Task {attempt} failed to report status for {seconds} seconds. Killing!");
            overdue.push((attempt.clone(), told));
            false
        });
        overdue
    }

    /// When the next one is overdue if nobody reports.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines =
            self.attempts.values().filter_map(|(last, timeout)| last.checked_add((*timeout)?));
        deadlines.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_from_the_last_report() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let [a, b, c] = ["0", "1", "2"].map(|number| -> AttemptId {
            format!("attempt_20.1_0001_m_00000{number}_0").parse().unwrap()
        });
        let mut progress = Progress::default();
        let timeout = Some(Duration::from_secs(600));
        progress.started(a.clone(), at(0), timeout);
        progress.started(b.clone(), at(0), timeout);
        progress.started(c.clone(), at(0), None);
        progress.reported(&a, at(100));
        // A report that is noticed late does not put the clock back.
        progress.reported(&a, at(50));
        assert_eq!(progress.next_deadline(), Some(at(600)));
        assert_eq!(progress.overdue(at(600)), []);
        let told =
            "Task attempt_20.1_0001_m_000001_0 failed to report status for 601 seconds. Killing!";
        assert_eq!(progress.overdue(at(601)), [(b.clone(), told.to_owned())]);
        assert_eq!(progress.overdue(at(700)), []);
        progress.reported(&b, at(700));
        assert_eq!(progress.overdue(at(701)).len(), 1);
        progress.ended(&c);
        assert_eq!(progress.overdue(at(100_000)), []);
        assert_eq!(progress.next_deadline(), None);
    }
}
