//! What a record of the journal means, and how it is encoded.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::outbox::Outbox;
use corona_engine::codec::{self, CodecError};
use corona_engine::{Image, Input};
use corona_model::types::Millis;

/// A record.
///
/// **Its form is a promise** to later versions, which read journals of this one: variants and fields
/// stay as they are, and new variants come last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// The whole state. The first record of each journal is one.
    Base(Box<Base>),
    /// What happened next.
    Step(Box<Step>),
}

/// The whole state at one moment. It is also what an image of the journal holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub(crate) engine: Image,
    /// The notifications that sessions have not acknowledged.
    pub(crate) outbox: Outbox,
}

/// What happened since the record before, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Heartbeats of nodes that said the same as the last one of the node: time and node.
    pub(crate) heard: Vec<(Millis, Arc<str>)>,
    /// Notifications that sessions have acknowledged: the session, and the serial number of the last.
    pub(crate) acknowledged: Vec<(Arc<str>, u64)>,
    /// An input and its time.
    pub(crate) input: Option<(Millis, Input)>,
}

/// A [`Step`] in pieces that others own. It is encoded as an [`Entry::Step`] is.
#[derive(Serialize)]
enum EntryRef<'a> {
    #[allow(dead_code)] // It keeps the number of the next one.
    Base,
    Step(StepRef<'a>),
}

#[derive(Serialize)]
struct StepRef<'a> {
    heard: &'a [(Millis, Arc<str>)],
    acknowledged: &'a [(Arc<str>, u64)],
    input: Option<(Millis, &'a Input)>,
}

impl Entry {
    /// The entry of these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Entry, CodecError> {
        codec::decode(bytes)
    }

    /// The bytes of an entry.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self)
    }
}

impl Base {
    /// The state of these bytes of an image.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Base, CodecError> {
        codec::decode(bytes)
    }

    /// The bytes of an image.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self)
    }
}

/// Encodes a step in place of what `bytes` has held.
pub(crate) fn encode_step(
    mut bytes: Vec<u8>,
    heard: &[(Millis, Arc<str>)],
    acknowledged: &[(Arc<str>, u64)],
    input: Option<(Millis, &Input)>,
) -> Result<Vec<u8>, CodecError> {
    bytes.clear();
    codec::encode_into(&EntryRef::Step(StepRef { heard, acknowledged, input }), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_was_written() {
        let heard = vec![(Millis(5), Arc::from("node"))];
        let acknowledged = vec![(Arc::from("2026.1"), 7)];
        let input = Input::KillSession { handle: "2026.1".into() };
        for input in [None, Some((Millis(9), input))] {
            let borrowed = input.as_ref().map(|(at, input)| (*at, input));
            let bytes = encode_step(vec![1, 2], &heard, &acknowledged, borrowed).unwrap();
            let step = Step { heard: heard.clone(), acknowledged: acknowledged.clone(), input };
            let entry = Entry::Step(Box::new(step));
            assert_eq!(bytes, entry.encode().unwrap());
            assert_eq!(Entry::decode(&bytes), Ok(entry));
        }
    }
}
