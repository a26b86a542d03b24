//! Arbitrary bytes: nothing panics, costs are at most a small multiple of the bytes sent, and every
//! part of the crate agrees where a message ends.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::dice::Dice;
use super::reading::call;
use crate::calls::{ClusterManager, SessionDriver};
use crate::message::{Read, read_call};
use crate::scan::{Bounds, Malformed, Scanner};
use crate::value::{Message, StreamReader, Value};
use crate::{Framing, Service};

const BOUNDS: Bounds = Bounds { max_bytes: 1 << 16, max_depth: 16 };

/// Several messages of a service.
fn messages<S: Service>(seed: u64, count: usize) -> Vec<Message> {
    let mut dice = Dice::new(seed);
    let methods = &S::schema().methods;
    (0..count)
        .map(|_| {
            let place = dice.below(methods.len());
            dice.call(&methods[place])
        })
        .collect()
}

fn bytes_of<S: Service>(messages: &[Message]) -> Vec<Vec<u8>> {
    let write = |message: &Message| {
        let mut bytes = vec![];
        message.write(S::schema(), Framing::Bare, &mut bytes).unwrap();
        bytes
    };
    messages.iter().map(write).collect()
}

/// How many values there are, one within another.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Struct(fields) => fields.iter().map(|(_, value)| count(value)).sum(),
        Value::List(values) => values.iter().map(count).sum(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| count(key) + count(value)).sum(),
        _ => 0,
    }
}

/// Holds all opinions on the first message of some bytes against each other.
fn examine<S: Service>(bytes: &[u8]) {
    let typed = read_call::<S>(bytes, BOUNDS);
    let end = Scanner::message(BOUNDS).run(bytes);
    match &typed {
        Ok(Read::Done(incoming, used)) => {
            assert_eq!(end, Ok(Some(*used)));
            // Each value shows as a few letters and names; more than that would be made up.
            let shown = format!("{:?}", incoming.call).len();
            assert!(shown <= 64 * bytes.len() + 1024, "{shown} from {}", bytes.len());
        }
        Ok(Read::Incomplete) => assert!(!matches!(end, Ok(Some(_))), "{end:?}"),
        Ok(Read::Refused(_)) => {}
        Err(malformed) => assert_ne!(*malformed, Malformed::Unreadable),
    }
    for framing in [Framing::Bare, Framing::Framed] {
        let mut reader = StreamReader::new(S::schema(), framing, BOUNDS.max_bytes);
        reader.push(bytes);
        while let Ok(Some(message)) = reader.next_message() {
            if let Ok(value) = message.body {
                assert!(count(&value) <= bytes.len(), "{value:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        examine::<ClusterManager>(&bytes);
        let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
        framed.extend(&bytes);
        examine::<ClusterManager>(&framed);
        examine::<ClusterManager>(&call("requestResource", &bytes));
        examine::<ClusterManager>(&call("noSuch", &bytes));
        examine::<SessionDriver>(&call("grantResource", &bytes));
    }

    #[test]
    fn mutated_messages(
        seed: u64,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = bytes_of::<ClusterManager>(&messages::<ClusterManager>(seed, 1)).concat();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        examine::<ClusterManager>(&bytes);
    }

    /// However a stream is split into frames and segments, the same messages come out of it.
    #[test]
    fn cuts_do_not_matter(seed: u64, frame_bytes in 1usize..200, segment_bytes in 1usize..200) {
        let sent = messages::<ClusterManager>(seed, 6);
        let stream = bytes_of::<ClusterManager>(&sent).concat();
        let mut framed = vec![];
        for content in stream.chunks(frame_bytes) {
            framed.extend((content.len() as u32).to_be_bytes());
            framed.extend(content);
        }
        for (framing, stream) in [(Framing::Bare, &stream), (Framing::Framed, &framed)] {
            let mut reader = StreamReader::new(ClusterManager::schema(), framing, 1 << 20);
            let mut received = vec![];
            for segment in stream.chunks(segment_bytes) {
                reader.push(segment);
                while let Some(message) = reader.next_message().unwrap() {
                    received.push(message);
                }
            }
            prop_assert!(reader.is_empty());
            prop_assert_eq!(&received, &sent);
        }
    }
}

/// A message with as many elements as bytes, and a claim of many more.
#[test]
fn lists_cost_no_more_than_their_bytes() {
    let mut stops = b"\x0f\0\x02\x0c\0\x0f\0\0".to_vec();
    stops.extend(vec![0; 0x0f_0000]);
    let bounds = Bounds { max_bytes: 1 << 20, max_depth: 16 };
    let read = read_call::<ClusterManager>(&call("requestResource", &stops), bounds);
    assert!(matches!(read, Ok(Read::Refused(_))), "{read:?}");
}

/// Each byte is looked at once, however slowly they come; looking again at each arrival would take
/// minutes.
#[test]
fn slow_messages_are_not_scanned_again_and_again() {
    let count = 100_000u32;
    let mut args = b"\x0f\0\x09\x0b".to_vec();
    args.extend(count.to_be_bytes());
    (0..count).for_each(|_| args.extend(b"\0\0\0\x01x"));
    let message = call("sessionHeartbeat", &args);
    let framed: Vec<u8> = message.chunks(1).flat_map(|byte| [0, 0, 0, 1, byte[0]]).collect();
    let begin = Instant::now();
    for (framing, stream, step) in [(Framing::Bare, &message, 1), (Framing::Framed, &framed, 5)] {
        let mut reader = StreamReader::new(ClusterManager::schema(), framing, 1 << 20);
        let mut received = 0;
        for segment in stream.chunks(step) {
            reader.push(segment);
            received += usize::from(reader.next_message().unwrap().is_some());
        }
        assert_eq!(received, 1);
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}
