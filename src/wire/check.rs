//! Holds a message against the contract, as the original's readers do, without making values.
//!
//! It explains why [`decode`](super::decode) did not read a message, and accepts exactly the
//! messages that are read there: unknown fields and fields of another type are ignored, unknown
//! enumeration values count as absent. A struct that lacks a required field is named with the
//! original's wording. Spec: cluster-manager/01 §2.3, §2.4.
//!
//! The contract's structs do not contain themselves, so recursion over it ends by itself.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::scan::{Bounds, Malformed, Scanner, code, length_of, u16_at, u32_at, u64_at};
use super::schema::{EnumSchema, FieldSchema, Kind, Schema, StructId, StructSchema};

/// The result of checking a struct.
#[derive(Debug)]
pub(crate) enum Checked {
    /// All there.
    Whole {
        /// The offset after its last byte.
        end: usize,
    },
    /// A struct has been read that lacks a required field; this is the text of the original.
    Missing(String),
    /// More bytes are needed.
    Incomplete,
}

/// Checks the struct that starts at offset `at`. Looks no further than the first finding.
pub(crate) fn check(
    bytes: &[u8],
    at: usize,
    id: StructId,
    schema: &Schema,
    bounds: Bounds,
) -> Result<Checked, Malformed> {
    let mut walk = Walk::new(bytes, schema, bounds);
    match walk.structure(at, id) {
        Ok(end) => Ok(Checked::Whole { end }),
        Err(Halt::Missing(text)) => Ok(Checked::Missing(text)),
        Err(Halt::Incomplete) => Ok(Checked::Incomplete),
        Err(Halt::Malformed(malformed)) => Err(malformed),
    }
}

/// The type code of the values of a type.
pub(crate) fn code_of(kind: &Kind) -> u8 {
    match kind {
        Kind::Bool => code::BOOL,
        Kind::I16 => code::I16,
        Kind::I32 | Kind::Enum(_) => code::I32,
        Kind::I64 => code::I64,
        Kind::String => code::STRING,
        Kind::Struct(_) => code::STRUCT,
        Kind::List(_) => code::LIST,
        Kind::Map(..) => code::MAP,
    }
}

/// Why a walk ended early.
pub(crate) enum Halt {
    Incomplete,
    Malformed(Malformed),
    Missing(String),
}

impl From<Malformed> for Halt {
    fn from(malformed: Malformed) -> Halt {
        Halt::Malformed(malformed)
    }
}

/// A walk over bytes along the contract.
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    schema: &'a Schema,
    bounds: Bounds,
    /// Structs and containers around the present place.
    depth: usize,
}

/// Where the value of each field of a struct starts, by the field's place; the last one counts.
pub(crate) type Places = Vec<Option<usize>>;

impl<'a> Walk<'a> {
    /// A walk over bytes that have been checked.
    pub(crate) fn new(bytes: &'a [u8], schema: &'a Schema, bounds: Bounds) -> Walk<'a> {
        Walk { bytes, schema, bounds, depth: 0 }
    }

    /// Checks a struct and returns its end.
    fn structure(&mut self, at: usize, id: StructId) -> Result<usize, Halt> {
        let schema = self.schema.structure(id);
        let mut seen = 0u32;
        let end = self.fields(at, schema, |place, value| match value {
            Some(_) => seen |= 1 << place,
            None => seen &= !(1 << place),
        })?;
        if schema.required & !seen != 0 {
            return Err(Halt::Missing(self.missing(at, id)?));
        }
        Ok(end)
    }

    /// Where the fields of a struct are, and where the struct ends.
    pub(crate) fn places(&mut self, at: usize, id: StructId) -> Result<(Places, usize), Halt> {
        let schema = self.schema.structure(id);
        let mut places = vec![None; schema.fields.len()];
        let end = self.fields(at, schema, |place, value| {
            if let Some(slot) = places.get_mut(place) {
                *slot = value;
            }
        })?;
        Ok((places, end))
    }

    /// Passes over the fields of a struct. Calls `found` with the place of each field of the
    /// contract and the offset of its value, or with none if the value counts as absent.
    fn fields(
        &mut self,
        mut at: usize,
        schema: &StructSchema,
        mut found: impl FnMut(usize, Option<usize>),
    ) -> Result<usize, Halt> {
        loop {
            let code = *self.bytes.get(at).ok_or(Halt::Incomplete)?;
            if code == code::STOP {
                return Ok(at + 1);
            }
            let id = u16_at(self.bytes, at + 1).ok_or(Halt::Incomplete)?.cast_signed();
            at += 3;
            match schema.field(id) {
                Some((place, field)) if code_of(&field.kind) == code => {
                    let known = self.names_something(&field.kind, at)?;
                    found(place, known.then_some(at));
                    at = self.value(&field.kind, at)?;
                }
                _ => {
                    at = Scanner::skip(self.bytes, code, at, self.bounds, self.depth + 1)?
                        .ok_or(Halt::Incomplete)?;
                }
            }
        }
    }

    /// False for a number that its enumeration does not have.
    fn names_something(&mut self, kind: &Kind, at: usize) -> Result<bool, Halt> {
        let Kind::Enum(id) = kind else { return Ok(true) };
        let number = u32_at(self.bytes, at).ok_or(Halt::Incomplete)?.cast_signed();
        Ok(self.schema.enumeration(*id).name_of(number).is_some())
    }

    /// Checks a value and returns its end.
    pub(crate) fn value(&mut self, kind: &Kind, at: usize) -> Result<usize, Halt> {
        self.depth += 1;
        let end = self.value_inside(kind, at);
        self.depth -= 1;
        end
    }

    fn value_inside(&mut self, kind: &Kind, at: usize) -> Result<usize, Halt> {
        match kind {
            Kind::Bool => self.bytes.get(at).map(|_| at + 1).ok_or(Halt::Incomplete),
            Kind::I16 => self.within(at, 2),
            Kind::I32 | Kind::Enum(_) => self.within(at, 4),
            Kind::I64 => self.within(at, 8),
            Kind::String => self.text(at).map(|text| at + 4 + text.len()),
            Kind::Struct(id) => self.structure(at, *id),
            Kind::List(element) => {
                let (mut at, count) = self.list_head(element, at)?;
                if let Some(size) = super::scan::fixed_size(code_of(element))
                    && **element != Kind::Bool
                {
                    return self.within(at, count * size);
                }
                for _ in 0..count {
                    at = self.value(element, at)?;
                }
                Ok(at)
            }
            Kind::Map(key, value) => {
                let (mut at, count) = self.map_head(key, value, at)?;
                for _ in 0..count {
                    at = self.value(key, at)?;
                    at = self.value(value, at)?;
                }
                Ok(at)
            }
        }
    }

    fn within(&self, at: usize, size: usize) -> Result<usize, Halt> {
        let end = at.saturating_add(size);
        if end > self.bytes.len() { Err(self.beyond(end)) } else { Ok(end) }
    }

    /// The claim exceeds the received bytes: the rest may still come, or may never fit.
    fn beyond(&self, end: usize) -> Halt {
        let limit = self.bounds.max_bytes;
        if end > limit {
            Malformed::TooLarge { bytes: end as u64, limit }.into()
        } else {
            Halt::Incomplete
        }
    }

    fn text(&self, at: usize) -> Result<&'a [u8], Halt> {
        let length = length_of(u32_at(self.bytes, at).ok_or(Halt::Incomplete)?)?;
        let end = self.within(at + 4, length)?;
        self.bytes.get(at + 4..end).ok_or(Halt::Incomplete)
    }

    /// The offset of the first element, and how many there are.
    pub(crate) fn list_head(&mut self, element: &Kind, at: usize) -> Result<(usize, usize), Halt> {
        let found = *self.bytes.get(at).ok_or(Halt::Incomplete)?;
        let count = length_of(u32_at(self.bytes, at + 1).ok_or(Halt::Incomplete)?)?;
        self.element_type(element, found, count)?;
        self.within(at + 5, count)?;
        Ok((at + 5, count))
    }

    /// The offset of the first key, and how many pairs there are.
    pub(crate) fn map_head(
        &mut self,
        key: &Kind,
        value: &Kind,
        at: usize,
    ) -> Result<(usize, usize), Halt> {
        let found = u16_at(self.bytes, at).ok_or(Halt::Incomplete)?.to_be_bytes();
        let count = length_of(u32_at(self.bytes, at + 2).ok_or(Halt::Incomplete)?)?;
        self.element_type(key, found[0], count)?;
        self.element_type(value, found[1], count)?;
        self.within(at + 6, count)?;
        Ok((at + 6, count))
    }

    /// Elements are read as the contract specifies, so they must have its type; the type of an
    /// empty list does not matter.
    fn element_type(&mut self, kind: &Kind, found: u8, count: usize) -> Result<(), Malformed> {
        let expected = code_of(kind);
        if found != expected && count > 0 {
            return Err(Malformed::ElementType { expected, found });
        }
        Ok(())
    }

    /// The original's text for the struct at offset `at`, which lacks a required field. It looks
    /// at numbers and truth values first, then at the rest.
    fn missing(&mut self, at: usize, id: StructId) -> Result<String, Halt> {
        let (places, _) = self.places(at, id)?;
        let schema = self.schema;
        let absent = |number: bool| {
            let fields = schema.structure(id).fields.iter().zip(&places);
            fields
                .filter(|(field, place)| field.required && place.is_none())
                .map(|(field, _)| field)
                .find(|field| is_number(field) == number)
        };
        let (field, what) = match absent(true) {
            Some(field) => (Some(field), "not found in serialized data"),
            None => (absent(false), "not present"),
        };
        let name = field.map_or("", |field| field.name.as_str());
        let mut text = format!("Required field '{name}' was {what}! Struct: ");
        self.show_struct(at, id, &mut text)?;
        if text.len() > MAX_TEXT_BYTES {
            let whole = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(whole.unwrap_or(0));
            text.push_str("...");
        }
        Ok(text)
    }

    fn show_struct(&mut self, at: usize, id: StructId, text: &mut String) -> Result<usize, Halt> {
        let (places, end) = self.places(at, id)?;
        let schema = self.schema.structure(id);
        text.push_str(&schema.name);
        text.push('(');
        let mut separator = "";
        for (field, place) in schema.fields.iter().zip(places) {
            if place.is_none() && !field.required {
                continue;
            }
            text.push_str(separator);
            separator = ", ";
            text.push_str(&field.name);
            text.push(':');
            match place {
                Some(at) => {
                    self.show_value(&field.kind, at, text)?;
                }
                None => text.push_str(unset(&field.kind)),
            }
        }
        text.push(')');
        Ok(end)
    }

    fn show_value(&mut self, kind: &Kind, at: usize, text: &mut String) -> Result<usize, Halt> {
        if text.len() > MAX_TEXT_BYTES {
            return self.value(kind, at);
        }
        let end = match kind {
            Kind::Bool => {
                text.push_str(if self.bytes.get(at) == Some(&1) { "true" } else { "false" });
                at + 1
            }
            Kind::I16 | Kind::I32 | Kind::I64 => {
                let (number, end) = self.number(kind, at)?;
                let _ = write!(text, "{number}");
                end
            }
            Kind::Enum(id) => {
                let (number, end) = self.number(kind, at)?;
                text.push_str(name_or_null(self.schema.enumeration(*id), number));
                end
            }
            Kind::String => {
                let raw = self.text(at)?;
                text.push_str(&String::from_utf8_lossy(raw));
                at + 4 + raw.len()
            }
            Kind::Struct(id) => self.show_struct(at, *id, text)?,
            Kind::List(element) => {
                let (mut at, count) = self.list_head(element, at)?;
                text.push('[');
                for index in 0..count {
                    text.push_str(if index == 0 { "" } else { ", " });
                    at = self.show_value(element, at, text)?;
                }
                text.push(']');
                at
            }
            Kind::Map(key, value) => {
                let (mut at, count) = self.map_head(key, value, at)?;
                text.push('{');
                for index in 0..count {
                    text.push_str(if index == 0 { "" } else { ", " });
                    at = self.show_value(key, at, text)?;
                    text.push('=');
                    at = self.show_value(value, at, text)?;
                }
                text.push('}');
                at
            }
        };
        Ok(end)
    }

    /// The truth value at an offset, and the offset after it. Only 1 is true.
    pub(crate) fn truth(&self, at: usize) -> Result<(bool, usize), Halt> {
        let value = *self.bytes.get(at).ok_or(Halt::Incomplete)?;
        Ok((value == 1, at + 1))
    }

    /// The number at an offset, whatever its width, and the offset after it.
    pub(crate) fn number(&self, kind: &Kind, at: usize) -> Result<(i64, usize), Halt> {
        let found = match kind {
            Kind::I16 => u16_at(self.bytes, at).map(|n| (i64::from(n.cast_signed()), at + 2)),
            Kind::I64 => u64_at(self.bytes, at).map(|n| (n.cast_signed(), at + 8)),
            _ => u32_at(self.bytes, at).map(|n| (i64::from(n.cast_signed()), at + 4)),
        };
        found.ok_or(Halt::Incomplete)
    }

    /// The text at an offset, and the offset after it.
    pub(crate) fn string(&self, at: usize) -> Result<(Cow<'a, str>, usize), Halt> {
        let raw = self.text(at)?;
        Ok((String::from_utf8_lossy(raw), at + 4 + raw.len()))
    }
}

/// The limit of the text about a missing field. The original has none, but a reply that repeats a
/// request of many megabytes is useless.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Whether the original keeps this field in a Java primitive.
fn is_number(field: &FieldSchema) -> bool {
    matches!(field.kind, Kind::Bool | Kind::I16 | Kind::I32 | Kind::I64)
}

/// How the original shows a required field that was not set.
fn unset(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "false",
        Kind::I16 | Kind::I32 | Kind::I64 => "0",
        _ => "null",
    }
}

fn name_or_null(schema: &EnumSchema, number: i64) -> &str {
    i32::try_from(number).ok().and_then(|number| schema.name_of(number)).unwrap_or("null")
}
