//! Writes typed values in the strict binary encoding: the writers that correspond to the readers of
//! [`decode`](super::decode). Those of structs are in [`generated`](super::generated).

use std::collections::BTreeMap;

use thrift::protocol::{TBinaryOutputProtocol, TOutputProtocol};

use super::decode::Decode;
use super::scan::code;

/// The output of the typed writers.
pub(crate) type Output<'a> = TBinaryOutputProtocol<&'a mut Vec<u8>>;

/// A value that can be read and written by itself.
pub(crate) trait Wire: Decode {
    /// Writes it.
    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()>;
}

impl Wire for bool {
    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.write_byte(u8::from(*self))
    }
}

macro_rules! plain {
    ($( $type:ty, $write:ident; )+) => { $(
        impl Wire for $type {
            fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
                output.$write(*self)
            }
        }
    )+ };
}

plain! {
    i16, write_i16;
    i32, write_i32;
    i64, write_i64;
}

impl Wire for String {
    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.write_string(self)
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.transport.push(T::CODE);
        write_count(self.len(), output)?;
        self.iter().try_for_each(|element| element.write(output))
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn write(&self, output: &mut Output<'_>) -> thrift::Result<()> {
        output.transport.extend_from_slice(&[K::CODE, V::CODE]);
        write_count(self.len(), output)?;
        self.iter().try_for_each(|(key, value)| {
            key.write(output)?;
            value.write(output)
        })
    }
}

/// Writes a field with its value.
pub(crate) fn write_field<T: Wire>(
    id: i16,
    value: &T,
    output: &mut Output<'_>,
) -> thrift::Result<()> {
    let [high, low] = id.to_be_bytes();
    output.transport.extend_from_slice(&[T::CODE, high, low]);
    value.write(output)
}

/// Writes the end of a struct.
pub(crate) fn write_stop(output: &mut Output<'_>) {
    output.transport.push(code::STOP);
}

/// Writes the number of elements of a list or map, for which its type leaves room up to 2147483647.
fn write_count(count: usize, output: &mut Output<'_>) -> thrift::Result<()> {
    let too_long = |_| {
        thrift::Error::Protocol(thrift::ProtocolError::new(
            thrift::ProtocolErrorKind::SizeLimit,
            "more than 2147483647 elements",
        ))
    };
    output.write_i32(i32::try_from(count).map_err(too_long)?)
}
