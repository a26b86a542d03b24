//! Floating-point numbers that are the same after they were written and read, whatever the format.
//!
//! An engine's image must be exact, and decimal forms may be one unit in the last place off. So the
//! bits are written: `#[serde(with = "corona_mapreduce::exact")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number that is written as its bits.
pub trait Bits: Copy {
    /// Its bits, in the lower ones of the result if it has fewer than 64.
    fn bits(self) -> u64;
    /// The number with these bits.
    fn of_bits(bits: u64) -> Self;
}

impl Bits for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }

    fn of_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
}

impl Bits for f32 {
    fn bits(self) -> u64 {
        self.to_bits().into()
    }

    fn of_bits(bits: u64) -> Self {
        let [a, b, c, d, ..] = bits.to_le_bytes();
        f32::from_le_bytes([a, b, c, d])
    }
}

/// Writes the bits.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Bits, S: Serializer>(number: &T, serializer: S) -> Result<S::Ok, S::Error> {
    number.bits().serialize(serializer)
}

/// Reads the bits.
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'a, T: Bits, D: Deserializer<'a>>(deserializer: D) -> Result<T, D::Error> {
    u64::deserialize(deserializer).map(T::of_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Pair(#[serde(with = "crate::exact")] f64, #[serde(with = "crate::exact")] f32);

    #[test]
    fn numbers_survive_text_bit_for_bit() {
        for (wide, narrow) in [(0.1 + 0.2, 0.1), (f64::NAN, f32::MIN_POSITIVE), (1e-310, -0.0)] {
            let text = serde_json::to_string(&Pair(wide, narrow)).unwrap();
            let Pair(read_wide, read_narrow) = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (read_wide.to_bits(), read_narrow.to_bits()),
                (wide.to_bits(), narrow.to_bits())
            );
        }
    }
}
