//! What kept a replay from keeping the recorded times: a machine that was busy with other things.
//!
//! Recorded pauses are played in real time, and nodes and sessions expire in it. Where either side
//! did not run for a while, a difference says nothing about the cluster manager. Knows no recording
//! and no manager, only clocks.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::Report;

/// A wake-up later than this is a stall; a reply later than this is late.
pub const TOLERATED: Duration = Duration::from_millis(50);

/// How often the watch looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Times in which one of the two sides did not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldUps {
    /// How often the replayer itself woke more than [`TOLERATED`] late.
    pub pauses: usize,
    /// The longest of these pauses.
    pub longest: Duration,
    /// All of them together.
    pub total: Duration,
    /// Answers that came, but more than [`TOLERATED`] later than in the recording.
    pub late_answers: usize,
    /// How late the latest of them was.
    pub latest_answer: Duration,
    /// What the cluster manager says of itself, where it does: `corona_held_up_seconds_total`.
    pub manager: Duration,
}

/// A play whose verdict did not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierPlay {
    /// Differences found in it that nothing explains.
    pub different: usize,
    /// What held it up.
    pub hold_ups: HoldUps,
}

impl HoldUps {
    /// Whether there was any, so that a difference may come from it.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// The replayer woke so much later than it wanted to.
    pub(super) fn woke(&mut self, late: Duration) {
        if late > TOLERATED {
            self.pauses += 1;
            self.longest = self.longest.max(late);
            self.total += late;
        }
    }

    /// An answer came so much later than in the recording.
    pub(super) fn answered(&mut self, late: Duration) {
        if late > TOLERATED {
            self.late_answers += 1;
            self.latest_answer = self.latest_answer.max(late);
        }
    }

    pub(super) fn add(&mut self, other: &HoldUps) {
        self.pauses += other.pauses;
        self.longest = self.longest.max(other.longest);
        self.total += other.total;
        self.late_answers += other.late_answers;
        self.latest_answer = self.latest_answer.max(other.latest_answer);
        self.manager += other.manager;
    }
}

impl fmt::Display for HoldUps {
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
pub fn again_if_held_up(
    times: usize,
    as_expected: impl Fn(&Report) -> bool,
    mut play: impl FnMut() -> Report,
) -> Report {
    let mut earlier = Vec::new();
    loop {
        let mut report = play();
        let is_last = earlier.len() + 1 >= times;
        if is_last || as_expected(&report) || !report.hold_ups.any() {
            report.earlier = earlier;
            return report;
        }
        let different = report.different.len();
        earlier.push(EarlierPlay { different, hold_ups: report.hold_ups });
    }
}

/// Records stalls of its runtime.
pub(super) struct Watch {
    seen: Arc<Mutex<HoldUps>>,
    looking: JoinHandle<()>,
}

impl Watch {
    pub(super) fn start() -> Watch {
        let seen = Arc::new(Mutex::new(HoldUps::default()));
        let noted = Arc::clone(&seen);
        let looking = tokio::spawn(async move {
            loop {
                let due = Instant::now() + LOOK_EVERY;
                sleep_until(due).await;
                let late = Instant::now().saturating_duration_since(due);
                noted.lock().unwrap_or_else(PoisonError::into_inner).woke(late);
            }
        });
        Watch { seen, looking }
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> HoldUps {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{About, Finding, Report};
    use super::*;

    #[tokio::test]
    async fn a_runtime_that_was_blocked_was_held_up() {
        let watch = Watch::start();
        // The watch has to be asleep before it can wake late.
        tokio::task::yield_now().await;
        let blocked = TOLERATED * 4;
        std::thread::sleep(blocked);
        while watch.seen().pauses == 0 {
            tokio::task::yield_now().await;
        }
        assert!(watch.seen().longest >= blocked - LOOK_EVERY, "{}", watch.seen());
    }

    #[test]
    fn small_delays_are_none() {
        let mut seen = HoldUps::default();
        seen.woke(TOLERATED);
        seen.answered(TOLERATED);
        assert!(!seen.any());
        assert_eq!(seen.to_string(), "nothing");
        seen.woke(Duration::from_millis(60));
        seen.woke(Duration::from_millis(70));
        seen.answered(Duration::from_millis(80));
        seen.add(&HoldUps { manager: Duration::from_millis(300), ..HoldUps::default() });
        assert!(seen.any());
        assert_eq!(
            seen.to_string(),
            "replayer 2 times, 70 ms at most, 130 ms in all; 1 answer late by up to 80 ms; \
             cluster manager 300 ms by its own account"
        );
    }

    /// Plays with these outcomes (differs, was held up); gives how many were played and whether the
    /// last one agrees.
    fn outcome(times: usize, plays: &[(bool, bool)]) -> (usize, bool) {
        let mut next = plays.iter();
        let report = again_if_held_up(times, Report::agrees, || {
            let (differs, held_up) = *next.next().unwrap();
            let mut report = Report::default();
            report.hold_ups.pauses = usize::from(held_up);
            if differs {
                let both = ("one".to_owned(), "two".to_owned());
                report.add(Finding::of_words(Duration::ZERO, About::Run, String::new(), both));
            }
            report
        });
        assert!(report.earlier.iter().all(|play| play.different == 1 && play.hold_ups.any()));
        (report.earlier.len() + 1, report.agrees())
    }

    #[test]
    fn only_a_held_up_difference_is_played_again() {
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
