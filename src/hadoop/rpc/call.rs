//! A call as it travels, without its length. Spec: mapreduce/01 §1.3.

use crate::io::formats::{Format, Int, List, Plain, Utf8, Writable};
use crate::io::{DecodeError, Reader, Writer};
use crate::object::Object;

/// A call of a method.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The id that the reply will repeat. Clients count over all their connections.
    pub id: i32,
    /// The name of the method.
    pub method: String,
    /// Its arguments, each with its declared class.
    pub parameters: Vec<Object>,
}

impl Writable for Call {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = Int::decode(reader)?;
        let method = Utf8::decode(reader)?;
        Ok(Call { id, method, parameters: List::<Int, Plain>::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.i32(self.id);
        writer.utf8(&self.method);
        List::<Int, Plain>::encode(&self.parameters, writer);
    }
}

/// The length that marks a ping, which is not answered.
pub(super) const PING: i32 = -1;
