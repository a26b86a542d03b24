//! The classes of keys and values whose texts are known.

use std::fmt::LowerExp;
use std::str::FromStr;

use corona_hadoop::io::{DecodeError, Reader};

/// A class of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Text,
    Bytes,
    Byte,
    Int,
    Long,
    VInt,
    VLong,
    Float,
    Double,
    Boolean,
    Null,
}

const PACKAGE: &str = "org.apache.hadoop.io.";
const CLASSES: [(&str, Class); 11] = [
    ("Text", Class::Text),
    ("BytesWritable", Class::Bytes),
    ("ByteWritable", Class::Byte),
    ("IntWritable", Class::Int),
    ("LongWritable", Class::Long),
    ("VIntWritable", Class::VInt),
    ("VLongWritable", Class::VLong),
    ("FloatWritable", Class::Float),
    ("DoubleWritable", Class::Double),
    ("BooleanWritable", Class::Boolean),
    ("NullWritable", Class::Null),
];

/// The names of all, for people.
pub(super) fn names() -> String {
    CLASSES.map(|(name, _)| name).join(", ")
}

impl Class {
    /// The class of this name of Java.
    pub(super) fn of(name: &str) -> Option<Class> {
        let simple = name.strip_prefix(PACKAGE)?;
        CLASSES.into_iter().find(|(name, _)| *name == simple).map(|(_, class)| class)
    }

    /// Appends the text of an object from its bytes: as streaming passes it to programs, or as Java's `toString` has it, which
    /// differs for `BytesWritable`.
    ///
    /// # Errors
    /// The bytes are not a value of the class.
    pub(super) fn put_text(
        self,
        bytes: &[u8],
        as_java: bool,
        to: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut number = |number: i64| to.extend_from_slice(number.to_string().as_bytes());
        match self {
            Class::Text => {
                let length = reader.vint()?;
                let length = reader.length(length.into())?;
                to.extend_from_slice(reader.take(length)?);
            }
            Class::Bytes => {
                let length = reader.i32()?;
                let length = reader.length(length.into())?;
                let bytes = reader.take(length)?;
                if as_java { put_hexadecimal(bytes, to) } else { to.extend_from_slice(bytes) }
            }
            Class::Byte => number(reader.i8()?.into()),
            Class::Int => number(reader.i32()?.into()),
            Class::Long => number(reader.i64()?),
            Class::VInt => number(reader.vint()?.into()),
            Class::VLong => number(reader.vlong()?),
            Class::Float => {
                let value = f32::from_be_bytes(reader.i32()?.to_be_bytes());
                put_floating(value.into(), &nearest(value), to);
            }
            Class::Double => {
                let value = f64::from_be_bytes(reader.i64()?.to_be_bytes());
                put_floating(value, &nearest(value), to);
            }
            Class::Boolean => {
                let text: &[u8] = if reader.bool()? { b"true" } else { b"false" };
                to.extend_from_slice(text);
            }
            Class::Null => to.extend_from_slice(b"(null)"),
        }
        match reader.rest() {
            [] => Ok(()),
            _ => {
                let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
                Err(DecodeError::Length { length, left: reader.position() })
            }
        }
    }
}

/// A number with an exponent, and with the fewest digits that name it among the numbers of its type, but two at least. Of
/// two such texts that are as near the one with an even last digit is taken, as Java does.
fn nearest<T: LowerExp + FromStr + PartialEq>(value: T) -> String {
    let shortest = format!("{value:e}");
    let mantissa = shortest.split('e').next().unwrap_or_default();
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let rounded = format!("{value:.*e}", digits.max(2) - 1);
    if rounded.parse::<T>().is_ok_and(|read| read == value) { rounded } else { shortest }
}

/// Appends a number as Java's `toString` has it from version 19 on: from 0.001 to 10,000,000 without an exponent. The text
/// is that of [`nearest`].
fn put_floating(value: f64, text: &str, to: &mut Vec<u8>) {
    if value.is_nan() || value.is_infinite() {
        let text = if value.is_nan() { "NaN" } else { "Infinity" };
        to.extend_from_slice(if value == f64::NEG_INFINITY { b"-" } else { b"" });
        return to.extend_from_slice(text.as_bytes());
    }
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", mantissa),
    };
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // The digits before the point, and behind it.
    let split = |at: usize| match digits.split_at_checked(at) {
        Some((before, behind)) => (before.to_owned(), behind.to_owned()),
        None => (format!("{digits:0<at$}"), String::new()),
    };
    let ((before, behind), shown) = match (value == 0.0, exponent) {
        (true, _) => (split(1), String::new()),
        (_, 0..=6) => (split(exponent.unsigned_abs() as usize + 1), String::new()),
        (_, -3..0) => {
            let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
            (("0".to_owned(), zeros + &digits), String::new())
        }
        _ => (split(1), format!("E{exponent}")),
    };
    // A last digit 0 is there only if there is no other behind the point.
    let behind = match behind.trim_end_matches('0') {
        "" => "0",
        behind => behind,
    };
    to.extend_from_slice(format!("{sign}{before}.{behind}{shown}").as_bytes());
}

/// Pairs of digits with blanks between.
fn put_hexadecimal(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |byte: u8| DIGITS.get(usize::from(byte)).copied().unwrap_or_default();
    for (number, byte) in bytes.iter().enumerate() {
        if number > 0 {
            to.push(b' ');
        }
        to.extend([digit(byte >> 4), digit(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(class: Class, bytes: &[u8]) -> String {
        let mut text = Vec::new();
        class.put_text(bytes, true, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// As Java 17 prints them, except where a line says otherwise.
    #[test]
    #[expect(clippy::excessive_precision, reason = "ties are exact only with all digits")]
    fn numbers_with_fractions_are_printed_as_java_prints_them() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (10.0, "10.0"),
            (100.0, "100.0"),
            (123.456, "123.456"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (0.01234, "0.01234"),
            (0.000_999, "9.99E-4"),
            (9_999_999.0, "9999999.0"),
            (9_999_999.999, "9999999.999"),
            (1.0e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (1.0e21, "1.0E21"),
            (1.0e-5, "1.0E-5"),
            (1.0 / 3.0, "0.3333333333333333"),
            (2.0 / 3.0 * 1.0e10, "6.666666666666666E9"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (5.0e-324, "4.9E-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            // Before version 19 Java printed 1.9999999999999998E23, which is the same number.
            (2.0e23, "2.0E23"),
            // Two texts are as near.
            (16_777_216.000_976_562_5, "1.6777216000976562E7"),
        ] {
            assert_eq!(text(Class::Double, &f64::to_be_bytes(value)), expected);
        }
        for (value, expected) in [
            (0.0, "0.0"),
            (0.1_f32, "0.1"),
            (3.402_823_5e38, "3.4028235E38"),
            (1.4e-45, "1.4E-45"),
            (16_777_216.0, "1.6777216E7"),
            (1.0e10, "1.0E10"),
            (-0.5, "-0.5"),
            (1_485_020.25, "1485020.2"),
            (501_041.625, "501041.62"),
            (-2_977.406_25, "-2977.4062"),
            (0.000_244_140_625, "2.4414062E-4"),
            (f32::NAN, "NaN"),
        ] {
            assert_eq!(text(Class::Float, &f32::to_be_bytes(value)), expected);
        }
        let mut ignored = Vec::new();
        assert!(Class::Double.put_text(&[0; 7], true, &mut ignored).is_err());
        assert!(Class::Float.put_text(&[0; 5], true, &mut ignored).is_err());
    }
}
