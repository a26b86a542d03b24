//! A digest of a run: one number that changes when any input or outcome of the run changes.
//!
//! The digests of many seeds are kept in `fixtures/simulation/`. A change of the engine that is not
//! meant to change a decision must leave them as they are. Therefore the digest is of a text that
//! is written out field by field ([`render`](super::render)), not the Rust types themselves, and
//! the hash is defined here, not by a crate or by the standard library.

use std::fmt;

use super::render;
use corona_engine::{Engine, Input, Outcome};
use corona_model::settings::Settings;
use corona_model::types::Millis;

/// FNV-1a with 128 bits over the text of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(Digest::PRIME);
        }
    }

    /// The digest of a text.
    #[cfg(test)]
    fn of(text: &str) -> Digest {
        let mut digest = Digest(Digest::OFFSET_BASIS);
        digest.add(text);
        digest
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The digest of a run in progress.
#[derive(Debug)]
pub(super) struct Running {
    digest: Digest,
    /// The text of the present step.
    text: String,
}

impl Running {
    /// Of a run with these settings at the start.
    pub(super) fn new(settings: &Settings) -> Running {
        let mut running =
            Running { digest: Digest(Digest::OFFSET_BASIS), text: String::with_capacity(1 << 10) };
        render::start(&mut running.text, settings);
        running.take_text();
        running
    }

    /// Adds an input and its outcome. `engine` is as the input has left it.
    pub(super) fn step(&mut self, now: Millis, input: &Input, outcome: &Outcome, engine: &Engine) {
        render::step(&mut self.text, now, input, outcome);
        render::demands(&mut self.text, engine.wants_pass(), engine.next_deadline());
        self.take_text();
    }

    /// The digest of all steps so far.
    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    fn take_text(&mut self) {
        self.digest.add(&self.text);
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // Values of the hash's authors.
        for (text, digest) in [
            ("", "6c62272e07bb014262b821756295c58d"),
            ("a", "d228cb696f1a8caf78912b704e4a8964"),
            ("foobar", "343e1662793c64bf6f0d3597ba446f18"),
        ] {
            assert_eq!(Digest::of(text).to_string(), digest, "{text:?}");
        }
    }
}
