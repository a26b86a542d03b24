//! Numbers that follow from a seed, in streams.

use corona_model::random::Random;

/// The numbers of a stream. The same seed and stream give the same numbers.
pub(super) fn stream(seed: u64, stream: u64) -> Random {
    Random::new(Random::new(seed).next() ^ stream)
}

/// From `least` to `most`.
pub(super) fn between(random: &mut Random, least: f64, most: f64) -> f64 {
    least + (most - least) * unit(random)
}

/// The time to the next of events that happen `rate` times a second on average.
pub(super) fn pause(random: &mut Random, rate: f64) -> f64 {
    -(1.0 - unit(random)).ln() / rate
}

/// From 0 to just below 1.
fn unit(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}
