//! A reply on the wire. It has no length: only a reader of the value finds its end. Spec:
//! mapreduce/01 §1.4.

use super::fault::RemoteError;
use crate::io::formats::{Format, Int, Plain, Writable};
use crate::io::{DecodeError, Reader, Writer};
use crate::object::Object;

/// The reply to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The id of the call.
    pub id: i32,
    /// The result or exception of the call.
    pub outcome: Outcome,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The method's result.
    Value(Object),
    /// The method failed.
    Error(RemoteError),
    /// The connection is refused: it ends after this.
    Fatal(RemoteError),
}

const SUCCESS: i32 = 0;
const ERROR: i32 = 1;
const FATAL: i32 = -1;

impl Writable for Reply {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = Int::decode(reader)?;
        let outcome = match reader.i32()? {
            SUCCESS => Outcome::Value(Plain::decode(reader)?),
            ERROR => Outcome::Error(Plain::decode(reader)?),
            FATAL => Outcome::Fatal(Plain::decode(reader)?),
            other => {
                return Err(DecodeError::Number { kind: "status of a reply", value: other.into() });
            }
        };
        Ok(Reply { id, outcome })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.i32(self.id);
        match &self.outcome {
            Outcome::Value(value) => {
                writer.i32(SUCCESS);
                value.encode(writer);
            }
            Outcome::Error(error) => {
                writer.i32(ERROR);
                error.encode(writer);
            }
            Outcome::Fatal(error) => {
                writer.i32(FATAL);
                error.encode(writer);
            }
        }
    }
}
