//! Reads typed values from bytes, leniently as the original does and with bounds.
//!
//! One walk makes the value: unknown fields and fields of another type are ignored, an unknown
//! enumeration value counts as absent, text that is not UTF-8 gets replacement characters, a truth
//! value is true only if it is 1. Spec: cluster-manager/01 §2.3, §2.4.
//!
//! A value that cannot be read is `None`. [`check`](super::check) finds its error, or that more
//! bytes are needed; it accepts exactly the messages that are read here. The readers of structs are in
//! [`generated`](super::generated).

use std::collections::BTreeMap;

use super::scan::{Bounds, Scanner, code, length_of, u16_at, u32_at, u64_at};

/// A place in the bytes of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    bounds: Bounds,
    /// Structs and containers around the present place.
    depth: usize,
}

/// A value of the contract.
pub(crate) trait Decode: Sized {
    /// The type code of its values.
    const CODE: u8;

    /// Reads it.
    fn decode(reader: &mut Reader<'_>) -> Option<Self>;

    /// Reads it as a field: it may stand for nothing.
    fn decode_field(reader: &mut Reader<'_>) -> Option<Option<Self>> {
        Self::decode(reader).map(Some)
    }
}

/// Elements of a list for which there is room before any has been read.
const FIRST_ELEMENTS: usize = 1024;

impl<'a> Reader<'a> {
    /// A reader that starts at an offset.
    pub(crate) fn new(bytes: &'a [u8], at: usize, bounds: Bounds) -> Reader<'a> {
        Reader { bytes, at, bounds, depth: 0 }
    }

    /// The offset of the unread bytes.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The number and the type code of the next field, for which the reader then stands at the value;
    /// `Some(None)` at the end of the struct.
    pub(crate) fn field(&mut self) -> Option<Option<(i16, u8)>> {
        let code = *self.bytes.get(self.at)?;
        self.at += 1;
        if code == code::STOP {
            return Some(None);
        }
        let id = u16_at(self.bytes, self.at)?.cast_signed();
        self.at += 2;
        Some(Some((id, code)))
    }

    /// Reads the value of a field of this type code. One of another type counts as if it was not there;
    /// of several, the last one counts.
    pub(crate) fn field_value<T: Decode>(&mut self, code: u8, value: &mut Option<T>) -> Option<()> {
        if code != T::CODE {
            return self.skip(code);
        }
        self.depth += 1;
        *value = T::decode_field(self)?;
        self.depth -= 1;
        Some(())
    }

    /// Passes over the value of a field.
    pub(crate) fn skip(&mut self, code: u8) -> Option<()> {
        let (bounds, depth) = (self.bounds, self.depth + 1);
        self.at = Scanner::skip(self.bytes, code, self.at, bounds, depth).ok()??;
        Some(())
    }

    fn element<T: Decode>(&mut self) -> Option<T> {
        self.depth += 1;
        let value = T::decode(self)?;
        self.depth -= 1;
        Some(value)
    }

    /// The number of elements that follow, each of at least one byte. If there are none, their type
    /// does not matter.
    fn count(&mut self, codes: &[(u8, u8)]) -> Option<usize> {
        let count = length_of(u32_at(self.bytes, self.at)?).ok()?;
        self.at += 4;
        let agrees = codes.iter().all(|(expected, found)| expected == found);
        (count == 0 || agrees && count <= self.bytes.len() - self.at).then_some(count)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

impl Decode for bool {
    const CODE: u8 = code::BOOL;

    fn decode(reader: &mut Reader<'_>) -> Option<bool> {
        reader.byte().map(|byte| byte == 1)
    }
}

macro_rules! numbers {
    ($( $number:ty, $code:expr, $read:ident; )+) => { $(
        impl Decode for $number {
            const CODE: u8 = $code;

            fn decode(reader: &mut Reader<'_>) -> Option<$number> {
                let value = $read(reader.bytes, reader.at)?;
                reader.at += size_of::<$number>();
                Some(value.cast_signed())
            }
        }
    )+ };
}

numbers! {
    i16, code::I16, u16_at;
    i32, code::I32, u32_at;
    i64, code::I64, u64_at;
}

impl Decode for String {
    const CODE: u8 = code::STRING;

    fn decode(reader: &mut Reader<'_>) -> Option<String> {
        let length = length_of(u32_at(reader.bytes, reader.at)?).ok()?;
        let start = reader.at + 4;
        let text = reader.bytes.get(start..start.checked_add(length)?)?;
        reader.at = start + length;
        Some(match std::str::from_utf8(text) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(text).into_owned(),
        })
    }
}

impl<T: Decode> Decode for Vec<T> {
    const CODE: u8 = code::LIST;

    fn decode(reader: &mut Reader<'_>) -> Option<Vec<T>> {
        let found = reader.byte()?;
        let count = reader.count(&[(T::CODE, found)])?;
        let mut values = Vec::with_capacity(count.min(FIRST_ELEMENTS));
        for read in 0..count {
            if read == values.capacity() {
                // Room for more is made when as many have been read.
                values.reserve_exact(read.min(count - read));
            }
            values.push(reader.element()?);
        }
        Some(values)
    }
}

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const CODE: u8 = code::MAP;

    fn decode(reader: &mut Reader<'_>) -> Option<BTreeMap<K, V>> {
        let (key, value) = (reader.byte()?, reader.byte()?);
        let count = reader.count(&[(K::CODE, key), (V::CODE, value)])?;
        let mut pairs = BTreeMap::new();
        for _ in 0..count {
            let key = reader.element()?;
            pairs.insert(key, reader.element()?);
        }
        Some(pairs)
    }
}
