//! Stalls of a replay: times in which the machine was busy with other work.
//!
//! Recorded pauses are played in real time, and nodes and sessions expire in it. If one of the two sides
//! did not run for a while, a difference proves nothing about the cluster manager. This file counts
//! stalls; it reads no clock.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Report;
use crate::report::json::as_us;

/// A wake-up later than this is a stall; a reply later than this is late.
pub const TOLERATED: Duration = Duration::from_millis(50);

/// Times in which the replayer or the cluster manager did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stalls {
    /// How often the replayer itself woke more than [`TOLERATED`] late.
    pub pauses: usize,
    /// The longest of these pauses.
    #[serde(rename = "longest_us", serialize_with = "as_us")]
    pub longest: Duration,
    /// The sum of these pauses.
    #[serde(rename = "total_us", serialize_with = "as_us")]
    pub total: Duration,
    /// Replies that arrived more than [`TOLERATED`] later than in the recording.
    pub late_answers: usize,
    /// The delay of the latest of these replies.
    #[serde(rename = "latest_answer_us", serialize_with = "as_us")]
    pub latest_answer: Duration,
    /// The cluster manager's own count, if it has one: `corona_held_up_seconds_total`.
    #[serde(rename = "manager_us", serialize_with = "as_us")]
    pub manager: Duration,
}

/// A play that was repeated, so that its verdict does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EarlierPlay {
    /// Its unexplained differences.
    pub different: usize,
    /// What was stalled meanwhile.
    #[serde(rename = "held_up")]
    pub stalls: Stalls,
}

impl Stalls {
    /// Whether there was a stall, which may have caused a difference.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Counts a wake-up of the replayer that was `late` by this much.
    pub(super) fn woke(&mut self, late: Duration) {
        if late > TOLERATED {
            self.pauses += 1;
            self.longest = self.longest.max(late);
            self.total += late;
        }
    }

    /// Counts a reply that was `late` by this much.
    pub(super) fn answered(&mut self, late: Duration) {
        if late > TOLERATED {
            self.late_answers += 1;
            self.latest_answer = self.latest_answer.max(late);
        }
    }

    pub(super) fn add(&mut self, other: &Stalls) {
        self.pauses += other.pauses;
        self.longest = self.longest.max(other.longest);
        self.total += other.total;
        self.late_answers += other.late_answers;
        self.latest_answer = self.latest_answer.max(other.latest_answer);
        self.manager += other.manager;
    }
}

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let ms = |time: Duration| time.as_millis();
        if self.pauses > 0 {
            let (longest, total) = (ms(self.longest), ms(self.total));
            parts.push(format!(
                "replayer {} times, {longest} ms at most, {total} ms in all",
                self.pauses
            ));
        }
        if self.late_answers > 0 {
            let latest = ms(self.latest_answer);
            let answers = if self.late_answers == 1 { "answer" } else { "answers" };
            parts.push(format!("{} {answers} late by up to {latest} ms", self.late_answers));
        }
        if self.manager > Duration::ZERO {
            parts.push(format!("cluster manager {} ms by its own account", ms(self.manager)));
        }
        match parts.is_empty() {
            true => f.write_str("nothing"),
            false => f.write_str(&parts.join("; ")),
        }
    }
}

/// Repeats a replay until it is `as_expected` or was not stalled, at most `times` times (at least
/// once). The last report counts; it lists the others.
pub fn repeat_if_stalled(
    times: usize,
    as_expected: impl Fn(&Report) -> bool,
    mut play: impl FnMut() -> Report,
) -> Report {
    let mut earlier = Vec::new();
    loop {
        let mut report = play();
        let is_last = earlier.len() + 1 >= times;
        if is_last || as_expected(&report) || !report.stalls.any() {
            report.earlier = earlier;
            return report;
        }
        let different = report.different.len();
        earlier.push(EarlierPlay { different, stalls: report.stalls });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Finding, Report, Subject};
    use super::*;

    #[test]
    fn small_delays_are_no_stalls() {
        let mut seen = Stalls::default();
        seen.woke(TOLERATED);
        seen.answered(TOLERATED);
        assert!(!seen.any());
        assert_eq!(seen.to_string(), "nothing");
        seen.woke(Duration::from_millis(60));
        seen.woke(Duration::from_millis(70));
        seen.answered(Duration::from_millis(80));
        seen.add(&Stalls { manager: Duration::from_millis(300), ..Stalls::default() });
        assert!(seen.any());
        assert_eq!(
            seen.to_string(),
            "replayer 2 times, 70 ms at most, 130 ms in all; 1 answer late by up to 80 ms; \
             cluster manager 300 ms by its own account"
        );
    }

    /// Plays with these outcomes (differs, stalled); returns how many were played and whether the last
    /// one agrees.
    fn outcome(times: usize, plays: &[(bool, bool)]) -> (usize, bool) {
        let mut next = plays.iter();
        let report = repeat_if_stalled(times, Report::agrees, || {
            let (differs, stalled) = *next.next().unwrap();
            let mut report = Report::default();
            report.stalls.pauses = usize::from(stalled);
            report.equal("getSessions");
            if differs {
                let both = ("one".to_owned(), "two".to_owned());
                report.add(Finding::of_words(Duration::ZERO, Subject::Run, String::new(), both));
            }
            report
        });
        assert!(report.earlier.iter().all(|play| play.different == 1 && play.stalls.any()));
        (report.earlier.len() + 1, report.agrees())
    }

    #[test]
    fn only_a_stalled_play_that_differs_is_repeated() {
        for (plays, expected) in [
            (&[(false, false)][..], (1, true)),
            (&[(false, true)], (1, true)),
            (&[(true, false)], (1, false)),
            (&[(true, true), (false, true)], (2, true)),
            (&[(true, true), (true, false)], (2, false)),
            (&[(true, true), (true, true), (true, true)], (3, false)),
            (&[(true, true), (true, true), (false, false)], (3, true)),
        ] {
            assert_eq!(outcome(3, plays), expected, "{plays:?}");
        }
        assert_eq!(outcome(0, &[(true, true)]), (1, false));
    }
}
