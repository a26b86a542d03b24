//! The types of the contract. The build script makes a row of each enumeration and struct from the contract; the macros here turn a row into
//! a type with its reader and writer.

use std::collections::BTreeMap;

use super::decode::{Decode, Reader};
use super::encode::{Output, Wire, write_field, write_stop};
use super::scan::code;

/// Enumerations. An unknown number counts as absent in a field, and is kept in lists and as a key.
macro_rules! enums {
    ($( $name:ident { $( $value:ident = $number:literal ),+ } )+) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i32);

        impl $name {
            $( pub const $value: Self = Self($number); )+
            pub const ENUM_VALUES: &'static [Self] = &[ $( Self::$value ),+ ];
        }

        impl Decode for $name {
            const CODE: u8 = code::I32;

            fn decode(reader: &mut Reader<'_>) -> Option<Self> {
                i32::decode(reader).map(Self)
            }

            fn decode_field(reader: &mut Reader<'_>) -> Option<Option<Self>> {
                Self::decode(reader).map(|value| Self::ENUM_VALUES.contains(&value).then_some(value))
            }
        }

        impl Wire for $name {
            fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
                self.0.write(output)
            }
        }
    )+ };
}

/// Structs, from rows such as `Name { 1 required field: i32, 2 optional other: String }`.
macro_rules! structs {
    ($( $name:ident { $( $id:literal $need:ident $field:ident: $type:ty ),* } )+) => { $(
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name { $( pub $field: structs!(@type $need $type) ),* }

        impl $name {
            #[allow(clippy::too_many_arguments, clippy::new_without_default, reason = "as the fields are")]
            pub fn new($( $field: structs!(@argument $need $type) ),*) -> Self {
                Self { $( $field: structs!(@new $need $field) ),* }
            }
        }

        impl Decode for $name {
            const CODE: u8 = code::STRUCT;

            fn decode(reader: &mut Reader<'_>) -> Option<Self> {
                $( let mut $field = None; )*
                while let Some((id, code)) = reader.field()? {
                    match id {
                        $( $id => reader.field_value(code, &mut $field)?, )*
                        _ => reader.skip(code)?,
                    }
                }
                Some(Self { $( $field: structs!(@read $need $field) ),* })
            }
        }

        impl Wire for $name {
            fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
                $( structs!(@write $need self.$field, $id, output); )*
                write_stop(output);
                Ok(())
            }
        }
    )+ };
    (@type required $type:ty) => { $type };
    (@type optional $type:ty) => { Option<$type> };
    (@argument required $type:ty) => { $type };
    (@argument optional $type:ty) => { impl Into<Option<$type>> };
    (@new required $field:ident) => { $field };
    (@new optional $field:ident) => { $field.into() };
    (@read required $field:ident) => { $field? };
    (@read optional $field:ident) => { $field };
    (@write required $value:expr, $id:literal, $output:ident) => {
        write_field($id, &$value, $output)?
    };
    (@write optional $value:expr, $id:literal, $output:ident) => {
        if let Some(value) = &$value {
            write_field($id, value, $output)?;
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/structs.rs"));
