//! A digest of a run: one number that changes when any input or outcome of the run changes.
//!
//! The digests of many seeds are kept in `fixtures/simulation/`. A change of the engine that is not
//! meant to change a decision must leave them as they are. Therefore the digest is of the bytes that
//! [journals](codec) hold, whose form outlives changes of the Rust types, and the hash is defined
//! here, not by a crate or by the standard library.

use std::fmt;

use corona_engine::{Engine, Input, Outcome, codec};
use corona_model::settings::Settings;
use corona_model::types::Millis;
use serde::Serialize;

/// FNV-1a with 128 bits over the bytes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(Digest::PRIME);
        }
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
    /// Those of the present step.
    bytes: Vec<u8>,
}

impl Running {
    /// Of a run with these settings at the start.
    pub(super) fn new(settings: &Settings) -> Running {
        let mut running = Running { digest: Digest(Digest::OFFSET_BASIS), bytes: Vec::new() };
        running.add(settings);
        running
    }

    /// Adds an input and its outcome. `engine` is as the input has left it.
    pub(super) fn step(&mut self, now: Millis, input: &Input, outcome: &Outcome, engine: &Engine) {
        self.add(&(now, input, outcome, engine.wants_pass(), engine.next_deadline()));
    }

    /// The digest of all steps so far.
    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    fn add(&mut self, value: &impl Serialize) {
        let bytes = codec::encode_into(value, std::mem::take(&mut self.bytes));
        self.bytes = bytes.expect("inputs and outcomes have a form");
        self.digest.add(&self.bytes);
        self.bytes.clear();
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
            let mut added = Digest(Digest::OFFSET_BASIS);
            added.add(text.as_bytes());
            assert_eq!(added.to_string(), digest, "{text:?}");
        }
    }
}
