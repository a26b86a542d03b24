//! Names for encodings, so that a type can name the encoding of each field.
//!
//! A Java `int` and a `VInt` are the same number in Rust; [`Int`] and [`VInt`] distinguish their
//! formats.

use std::marker::PhantomData;

use super::{DecodeError, Reader, Writer};

/// How a value of the type `T` travels.
pub trait Format<T> {
    /// Reads one value.
    fn decode(reader: &mut Reader<'_>) -> Result<T, DecodeError>;
    /// Writes one value.
    fn encode(value: &T, writer: &mut Writer);
}

/// One constant of a Java enum, which travels by its name.
pub trait Constant: Copy + Sized + 'static {
    /// The enum's class in the original.
    const CLASS: &'static str;
    /// All constants, in the original's order.
    const ALL: &'static [Self];

    /// The constant's name.
    fn name(self) -> &'static str;
    /// The constant of this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|constant| constant.name() == name)
    }
}

/// An object that can be written to a stream and read back, without any framing.
pub trait Writable: Sized {
    /// Reads one object.
    ///
    /// Errors: the bytes end too early, or are not such an object.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
    /// Writes the object.
    fn encode(&self, writer: &mut Writer);
}

/// Declares formats that are one method of the reader and one of the writer.
macro_rules! formats {
    ($($(#[$doc:meta])* $format:ident: $type:ty = $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $format;

        impl Format<$type> for $format {
            fn decode(reader: &mut Reader<'_>) -> Result<$type, DecodeError> {
                reader.$method()
            }

            fn encode(value: &$type, writer: &mut Writer) {
                writer.$method(*value);
            }
        }
    )*};
}

formats! {
    /// One byte.
    Bool: bool = bool;
    /// A Java `byte`.
    Byte: i8 = i8;
    /// A Java `short`.
    Short: i16 = i16;
    /// A Java `int`.
    Int: i32 = i32;
    /// A Java `long`.
    Long: i64 = i64;
    /// A Java `float`.
    Float: f32 = f32;
    /// An `int` of one to five bytes.
    VInt: i32 = vint;
    /// A `long` of one to nine bytes.
    VLong: i64 = vlong;
}

/// UTF-8 after its length as a [`VInt`].
#[derive(Debug)]
pub struct Text;

impl Format<String> for Text {
    fn decode(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
        reader.text()
    }

    fn encode(value: &String, writer: &mut Writer) {
        writer.text(value);
    }
}

/// UTF-8 after its length as an [`Int`]; the only string that can be null.
#[derive(Debug)]
pub struct WString;

impl Format<Option<String>> for WString {
    fn decode(reader: &mut Reader<'_>) -> Result<Option<String>, DecodeError> {
        reader.wstring()
    }

    fn encode(value: &Option<String>, writer: &mut Writer) {
        writer.wstring(value.as_deref());
    }
}

impl Format<String> for WString {
    fn decode(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
        reader.wstring()?.ok_or(DecodeError::Null)
    }

    fn encode(value: &String, writer: &mut Writer) {
        writer.wstring(Some(value));
    }
}

/// Hadoop's old string encoding.
#[derive(Debug)]
pub struct Utf8;

impl Format<String> for Utf8 {
    fn decode(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
        reader.utf8()
    }

    fn encode(value: &String, writer: &mut Writer) {
        writer.utf8(value);
    }
}

/// Bytes after their length as an [`Int`], the original's `BytesWritable`.
#[derive(Debug)]
pub struct Bytes;

impl Format<Vec<u8>> for Bytes {
    fn decode(reader: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
        let length = reader.i32()?;
        let length = reader.length(length.into())?;
        reader.take(length).map(<[u8]>::to_vec)
    }

    fn encode(value: &Vec<u8>, writer: &mut Writer) {
        let length = writer.count(value.len());
        writer.i32(length);
        writer.put(value);
    }
}

/// The constant of an enum: its name as a `Text`.
#[derive(Debug)]
pub struct Enum;

impl<T: Constant> Format<T> for Enum {
    fn decode(reader: &mut Reader<'_>) -> Result<T, DecodeError> {
        let name = reader.nullable_text()?.ok_or(DecodeError::Null)?;
        T::from_name(&name).ok_or_else(|| DecodeError::constant(T::CLASS, &name))
    }

    fn encode(value: &T, writer: &mut Writer) {
        writer.text(value.name());
    }
}

/// An object as it writes itself.
#[derive(Debug)]
pub struct Plain;

impl<T: Writable> Format<T> for Plain {
    fn decode(reader: &mut Reader<'_>) -> Result<T, DecodeError> {
        T::decode(reader)
    }

    fn encode(value: &T, writer: &mut Writer) {
        value.encode(writer);
    }
}

/// Items after their number: the number as `Count`, each item as `Item`.
#[derive(Debug)]
pub struct List<Count, Item>(PhantomData<(Count, Item)>);

impl<T, Count: Format<i32>, Item: Format<T>> Format<Vec<T>> for List<Count, Item> {
    fn decode(reader: &mut Reader<'_>) -> Result<Vec<T>, DecodeError> {
        let count = Count::decode(reader)?;
        // Each item takes a byte at least; memory is taken as items come.
        let count = reader.length(count.into())?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(Item::decode(reader)?);
        }
        Ok(items)
    }

    fn encode(value: &Vec<T>, writer: &mut Writer) {
        let count = writer.count(value.len());
        Count::encode(&count, writer);
        for item in value {
            Item::encode(item, writer);
        }
    }
}
