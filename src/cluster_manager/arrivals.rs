//! The arrival times of the last inputs, at a finer resolution than the engine's clock.

use std::time::{Duration, Instant};

use corona_engine::Asked;
use corona_model::types::Millis;

/// The instants at which the last inputs were applied, by the engine's number of the input.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// By the number of the input, modulo [`Arrivals::KEPT`].
    ring: Box<[Instant]>,
    /// The numbers of the first and the last input.
    first: u64,
    last: u64,
}

impl Arrivals {
    /// Inputs whose arrival is known. So many take so long that for an earlier one the engine's
    /// milliseconds will do.
    const KEPT: u64 = 1 << 14;

    /// `inputs` were applied before, by another process: of these nothing is known.
    pub(super) fn new(inputs: u64) -> Arrivals {
        let ring = (0..Arrivals::KEPT).map(|_| Instant::now()).collect();
        Arrivals { ring, first: inputs + 1, last: inputs }
    }

    /// Notes that the input of this number was applied at this instant.
    pub(super) fn note(&mut self, input: u64, at: Instant) {
        self.last = input;
        if let Some(place) = self.ring.get_mut((input % Arrivals::KEPT) as usize) {
            *place = at;
        }
    }

    /// How long requests have waited that are granted by the last input, which came at `now`. Those
    /// of one input come together, with their count.
    pub(super) fn waits(&self, asked: &[Asked], now: Millis, mut count: impl FnMut(Duration, u64)) {
        let decided = Instant::now();
        for together in asked.chunk_by(|a, b| a.input == b.input) {
            let Some(asked) = together.first() else { continue };
            let kept =
                asked.input >= self.first && self.last.saturating_sub(asked.input) < Arrivals::KEPT;
            let place = (asked.input % Arrivals::KEPT) as usize;
            let wait = match self.ring.get(place).filter(|_| kept) {
                Some(arrived) => decided.saturating_duration_since(*arrived),
                None => Duration::from_millis(now.since(asked.at).unsigned_abs()),
            };
            count(wait, together.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_fine_for_late_inputs_and_in_milliseconds_for_early_ones() {
        let mut arrivals = Arrivals::new(0);
        let start = Instant::now();
        let asked = |input| Asked { at: Millis(1_000), input };
        for input in 1..=Arrivals::KEPT + 10 {
            arrivals.note(input, start);
        }
        let mut waits = Vec::new();
        let requests = [10, 10, 11, 11, 11].map(asked);
        arrivals.waits(&requests, Millis(61_000), |wait, count| waits.push((wait, count)));
        let [(early, 2), (late, 3)] = waits[..] else { panic!("{waits:?}") };
        assert_eq!(early, Duration::from_secs(60), "by the engine's clock");
        assert!(late <= start.elapsed(), "by the instants");
    }

    #[test]
    fn inputs_of_an_earlier_process_count_in_milliseconds() {
        let mut arrivals = Arrivals::new(7);
        arrivals.note(8, Instant::now());
        let mut waits = Vec::new();
        let requests = [7, 8].map(|input| Asked { at: Millis(1_000), input });
        arrivals.waits(&requests, Millis(61_000), |wait, _| waits.push(wait));
        assert!(waits[0] == Duration::from_secs(60) && waits[1] < waits[0], "{waits:?}");
    }
}
