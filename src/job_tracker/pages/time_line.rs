//! How many attempts did what, over the time of a job.

use corona_mapreduce::{TaskKind, TaskRole};

use crate::whole_part;
use corona_job_engine::AttemptSpan;

/// Pieces that the time of a job is cut into.
pub(crate) const PIECES: usize = 120;

/// What an attempt can be doing: the lines of a time line.
pub(crate) const LINES: [&str; 4] = ["map", "shuffle", "sort", "reduce"];

/// Attempts at work on the average of each piece of time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimeLine {
    /// Milliseconds since the Unix epoch.
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
    /// For each of [`LINES`].
    pub(crate) lines: [Vec<f64>; LINES.len()],
}

impl TimeLine {
    /// The time line of these attempts. Those that run do so until `to_ms`.
    pub(crate) fn of(
        from_ms: i64,
        to_ms: i64,
        spans: impl Iterator<Item = AttemptSpan>,
    ) -> TimeLine {
        let to_ms = to_ms.max(from_ms.saturating_add(1));
        let mut sums = [const { Sums::new() }; LINES.len()];
        for span in spans.filter(|span| span.role == TaskRole::Map || span.role == TaskRole::Reduce)
        {
            if span.start_ms <= 0 {
                continue;
            }
            let is_over = !span.state.is_live();
            // What ended without a time is not drawn.
            let end = match (span.finish_ms, is_over) {
                (0, true) => continue,
                (0, false) => to_ms,
                (finish, _) => finish,
            };
            let ends = match span.kind {
                TaskKind::Map => [end, 0, 0, 0],
                TaskKind::Reduce => {
                    let phase = |ms: i64| if ms > 0 { ms.min(end) } else { end };
                    [0, phase(span.shuffle_ms), phase(span.sort_ms), end]
                }
            };
            let mut start = span.start_ms;
            let place = |ms: i64| {
                // Both may be the largest time.
                let width = to_ms.saturating_sub(from_ms).max(1);
                let part = ms.saturating_sub(from_ms) as f64 / width as f64;
                part.clamp(0.0, 1.0) * PIECES as f64
            };
            for (sum, end) in sums.iter_mut().zip(ends) {
                if end > start {
                    sum.add(place(start), place(end));
                    start = end;
                }
            }
        }
        TimeLine { from_ms, to_ms, lines: sums.map(Sums::line) }
    }

    /// The most attempts at work in one piece of time.
    pub(crate) fn most(&self) -> f64 {
        let at =
            |piece: usize| -> f64 { self.lines.iter().filter_map(|line| line.get(piece)).sum() };
        (0..PIECES).map(at).fold(0.0, f64::max)
    }
}

/// Sums of parts of pieces, and changes at their edges.
struct Sums {
    parts: [f64; PIECES + 1],
    changes: [f64; PIECES + 1],
}

impl Sums {
    const fn new() -> Sums {
        Sums { parts: [0.0; PIECES + 1], changes: [0.0; PIECES + 1] }
    }

    /// Adds one attempt between two places, in pieces.
    fn add(&mut self, from: f64, to: f64) {
        let (first, last) = (whole_part(from) as usize, whole_part(to) as usize);
        let mut part = |at: usize, more: f64| {
            if let Some(part) = self.parts.get_mut(at) {
                *part += more;
            }
        };
        if first == last {
            return part(first, to - from);
        }
        part(first, (first + 1) as f64 - from);
        part(last, to - last as f64);
        for (at, change) in [(first + 1, 1.0), (last, -1.0)] {
            if let Some(sum) = self.changes.get_mut(at) {
                *sum += change;
            }
        }
    }

    fn line(self) -> Vec<f64> {
        let mut whole = 0.0;
        let pieces = self.parts.iter().zip(&self.changes).take(PIECES);
        pieces
            .map(|(part, change)| {
                whole += change;
                whole + part
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::TaskState;

    use super::*;

    fn span(kind: TaskKind, start_ms: i64, phases: (i64, i64), finish_ms: i64) -> AttemptSpan {
        let role = match kind {
            TaskKind::Map => TaskRole::Map,
            TaskKind::Reduce => TaskRole::Reduce,
        };
        let state = if finish_ms > 0 { TaskState::Succeeded } else { TaskState::Running };
        let (shuffle_ms, sort_ms) = phases;
        AttemptSpan { kind, role, state, start_ms, shuffle_ms, sort_ms, finish_ms }
    }

    #[test]
    fn attempts_are_counted_for_the_time_that_they_took() {
        let spans = [
            // Half of a piece, one and a half pieces, and all from the tenth piece on.
            span(TaskKind::Map, 1000, (0, 0), 1050),
            span(TaskKind::Map, 1150, (0, 0), 1300),
            span(TaskKind::Map, 1900, (0, 0), 0),
            span(TaskKind::Reduce, 1000, (1100, 1200), 1300),
            span(TaskKind::Reduce, 1000, (0, 0), 0),
        ];
        let line = TimeLine::of(1000, 13_000, spans.into_iter());
        let [map, shuffle, sort, reduce] = &line.lines;
        assert_eq!(map[..4], [0.5, 0.5, 1.0, 0.0]);
        assert_eq!((map[8], map[9], map[119]), (0.0, 1.0, 1.0));
        assert_eq!(shuffle[..3], [2.0, 1.0, 1.0]);
        assert_eq!(
            (sort[..3].to_vec(), reduce[..4].to_vec()),
            (vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0, 0.0])
        );
        assert_eq!(line.most(), 3.0);
    }

    #[test]
    fn times_that_cannot_be_do_no_harm() {
        let spans = [
            span(TaskKind::Map, i64::MIN, (0, 0), i64::MAX),
            span(TaskKind::Map, 5, (0, 0), 1),
            span(TaskKind::Reduce, i64::MAX, (1, i64::MAX), 1),
            span(TaskKind::Reduce, 1, (i64::MAX, i64::MIN), i64::MAX),
        ];
        for (from, to) in [(0, 0), (5, 1), (i64::MIN, i64::MAX), (i64::MAX, i64::MAX)] {
            let line = TimeLine::of(from, to, spans.iter().copied());
            assert!(
                line.lines.iter().flatten().all(|count| (0.0..=4.0).contains(count)),
                "{line:?}"
            );
        }
    }
}
