//! Parameters and results: a value with the name of its class, the original's `ObjectWritable`.
//!
//! Knows the values that can travel, not which method takes them. Spec: mapreduce/01 §1.5.

mod class;
#[cfg(test)]
mod tests;
mod value;

pub use class::Class;
pub use value::Value;

use super::io::formats::{Format, Utf8, Writable};
use super::io::{DecodeError, Reader, Writer};

/// A value and the class that its receiver takes it for.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// The null of a class, or the result of a method that has none.
    Null(Class),
    /// A Java `boolean`.
    Boolean(bool),
    /// A Java `byte`.
    Byte(i8),
    /// A Java `char`: a UTF-16 code unit.
    Char(u16),
    /// A Java `short`.
    Short(i16),
    /// A Java `int`.
    Int(i32),
    /// A Java `long`.
    Long(i64),
    /// A Java `float`.
    Float(f32),
    /// A Java `double`.
    Double(f64),
    /// A string. A writer cuts it to the longest that the encoding can hold.
    String(String),
    /// An array of a class, and its items.
    Array(Class, Vec<Object>),
    /// The constant of an enum.
    Constant(Class, String),
    /// An object, after the class that an interface declares for it.
    Writable(Class, Value),
}

/// The class in front of a null.
const NULL_DECLARED: &str = "org.apache.hadoop.io.Writable";
/// The class of a null.
const NULL: &str = "org.apache.hadoop.io.ObjectWritable$NullInstance";

impl Object {
    /// The class that the value is declared as.
    pub fn class(&self) -> Class {
        match self {
            Object::Null(class) | Object::Constant(class, _) | Object::Writable(class, _) => {
                class.clone()
            }
            Object::Boolean(_) => Class::Boolean,
            Object::Byte(_) => Class::Byte,
            Object::Char(_) => Class::Char,
            Object::Short(_) => Class::Short,
            Object::Int(_) => Class::Int,
            Object::Long(_) => Class::Long,
            Object::Float(_) => Class::Float,
            Object::Double(_) => Class::Double,
            Object::String(_) => Class::String,
            Object::Array(items, _) => Class::Array(Box::new(items.clone())),
        }
    }

    /// Reads a value whose class has been read. Arrays go as deep as their class says.
    fn decode_as(class: Class, reader: &mut Reader<'_>) -> Result<Object, DecodeError> {
        Ok(match class {
            Class::Void => Object::Null(Class::Void),
            Class::Boolean => Object::Boolean(reader.bool()?),
            Class::Byte => Object::Byte(reader.i8()?),
            Class::Char => Object::Char(reader.u16()?),
            Class::Short => Object::Short(reader.i16()?),
            Class::Int => Object::Int(reader.i32()?),
            Class::Long => Object::Long(reader.i64()?),
            Class::Float => Object::Float(reader.f32()?),
            Class::Double => Object::Double(reader.f64()?),
            Class::String => Object::String(reader.utf8()?),
            Class::Array(items) => Object::decode_array(*items, reader)?,
            Class::Enum(kind) => {
                let name = reader.utf8()?;
                if !value::is_constant(kind, &name) {
                    return Err(DecodeError::constant(kind, &name));
                }
                Object::Constant(Class::Enum(kind), name)
            }
            Class::Object(declared) => Object::decode_writable(declared, reader)?,
        })
    }

    fn decode_array(items: Class, reader: &mut Reader<'_>) -> Result<Object, DecodeError> {
        let count = reader.i32()?;
        let count = reader.length(count.into())?;
        let mut array = Vec::new();
        for _ in 0..count {
            array.push(Object::decode_item(&items, reader)?);
        }
        Ok(Object::Array(items, array))
    }

    /// Reads an item of an array. Its class is compared before the item is read: an item of another
    /// class could be an array that holds arrays without end.
    fn decode_item(items: &Class, reader: &mut Reader<'_>) -> Result<Object, DecodeError> {
        let is_item = |class: Class| match class == *items {
            true => Ok(class),
            false => Err(DecodeError::class(&class.to_string())),
        };
        let declared = Class::parse(&Utf8::decode(reader)?)?;
        // The class of a null stands behind it.
        let declared = match declared {
            null @ Class::Object(NULL_DECLARED) => null,
            other => is_item(other)?,
        };
        let item = Object::decode_as(declared, reader)?;
        is_item(item.class()).map(|_| item)
    }

    fn decode_writable(
        declared: &'static str,
        reader: &mut Reader<'_>,
    ) -> Result<Object, DecodeError> {
        let actual = Utf8::decode(reader)?;
        if actual == NULL {
            let class = Utf8::decode(reader)?;
            return Class::parse(&class).map(Object::Null);
        }
        Value::decode(&actual, reader).map(|value| Object::Writable(Class::Object(declared), value))
    }
}

impl Writable for Object {
    /// Errors: also unknown classes. The connection is unusable after that, because the end of such
    /// an object is not known.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let class = Utf8::decode(reader)?;
        Object::decode_as(Class::parse(&class)?, reader)
    }

    fn encode(&self, writer: &mut Writer) {
        if let Object::Null(class) = self {
            writer.utf8(NULL_DECLARED);
            writer.utf8(NULL);
            return writer.utf8(&class.to_string());
        }
        writer.utf8(&self.class().to_string());
        match self {
            Object::Null(_) => {}
            Object::Boolean(value) => writer.bool(*value),
            Object::Byte(value) => writer.i8(*value),
            Object::Char(value) => writer.u16(*value),
            Object::Short(value) => writer.i16(*value),
            Object::Int(value) => writer.i32(*value),
            Object::Long(value) => writer.i64(*value),
            Object::Float(value) => writer.f32(*value),
            Object::Double(value) => writer.f64(*value),
            Object::String(value) | Object::Constant(_, value) => writer.utf8(value),
            Object::Array(_, items) => {
                let count = writer.count(items.len());
                writer.i32(count);
                for item in items {
                    item.encode(writer);
                }
            }
            Object::Writable(_, value) => {
                writer.utf8(value.class());
                value.encode_fields(writer);
            }
        }
    }
}
