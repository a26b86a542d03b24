//! Cuts one direction of a connection into messages.
//!
//! It knows framing and the ends of messages, not their contents: messages are not decoded. Once the stream
//! cannot be understood, everything is handed on as bytes, until something that looks like a message
//! begins after a gap.

use std::time::Duration;

use super::Offered;
use corona_wire::Framing;
use corona_wire::value::{RawMessage, StreamReader};

/// The state of cutting one direction.
#[derive(Debug)]
pub(crate) struct Cutter {
    service: Offered,
    state: CutterState,
    reader: StreamReader,
    /// Bytes that are not handed on yet.
    pending: Vec<u8>,
    /// How many of them the reader has been given.
    read: usize,
    /// The messages in these bytes.
    messages: Vec<RawMessage>,
    /// When the last of `pending` came.
    at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutterState {
    /// `pending` starts where a message or frame starts.
    InStep,
    /// Bytes are missing before `pending`; the next start of a message is looked for.
    Lost,
    /// The sender does not speak the protocol.
    Strange,
}

/// A larger message is taken for nonsense. The wire's own limit on frames is the same.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A part of a stream.
pub(crate) enum StreamPiece {
    /// Whole messages, and their bytes on the stream, frame lengths included.
    Messages { raw: Vec<u8>, messages: Vec<RawMessage> },
    /// Bytes that are no message.
    Bytes(Vec<u8>),
}

/// Takes each piece with the time of its last byte.
type Take<'a> = &'a mut dyn FnMut(Duration, StreamPiece);

impl Cutter {
    /// For a stream that is known from its first byte when it is `whole`.
    pub(crate) fn new(service: Offered, whole: bool) -> Self {
        Self {
            service,
            state: if whole { CutterState::InStep } else { CutterState::Lost },
            reader: reader(service),
            pending: Vec::new(),
            read: 0,
            messages: Vec::new(),
            at: Duration::ZERO,
        }
    }

    /// Takes bytes that arrived at `at`, and hands on the messages that they complete.
    pub(crate) fn data(&mut self, at: Duration, data: &[u8], take: Take<'_>) {
        self.pending.extend_from_slice(data);
        self.at = at;
        if self.state == CutterState::Lost {
            self.find_step(take);
        }
        while self.state == CutterState::InStep {
            match self.feed() {
                Fed::Nothing => return,
                Fed::Something => {}
                Fed::Whole => {
                    let rest = self.pending.split_off(self.read);
                    let raw = std::mem::replace(&mut self.pending, rest);
                    self.read = 0;
                    let messages = std::mem::take(&mut self.messages);
                    take(at, StreamPiece::Messages { raw, messages });
                }
                Fed::Nonsense => self.state = CutterState::Strange,
            }
        }
        if self.state == CutterState::Strange {
            self.hand_on_pending(take);
        }
    }

    /// Bytes that are kept until the rest of their message comes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pending.len()
    }

    /// A part of the stream is missing after the bytes so far.
    pub(crate) fn lose(&mut self, take: Take<'_>) {
        self.hand_on_pending(take);
        self.state = CutterState::Lost;
    }

    /// Nothing more will come.
    pub(crate) fn finish(&mut self, take: Take<'_>) {
        self.hand_on_pending(take);
    }

    /// Hands on bytes that are no whole message, or no message at all.
    fn hand_on_pending(&mut self, take: Take<'_>) {
        if !self.pending.is_empty() {
            take(self.at, StreamPiece::Bytes(std::mem::take(&mut self.pending)));
        }
        self.read = 0;
        self.messages.clear();
        self.reader = reader(self.service);
    }

    /// Gives the reader as little as can complete a message, so that it is known which bytes made
    /// it: a frame, or a byte.
    fn feed(&mut self) -> Fed {
        let unread = self.pending.get(self.read..).unwrap_or_default();
        let size = match self.service.framing() {
            Framing::Bare => 1,
            Framing::Framed => match frame_size(unread) {
                Ok(size) => size,
                Err(NotAFrame) => return Fed::Nonsense,
            },
        };
        let Some(bytes) = unread.get(..size).filter(|bytes| !bytes.is_empty()) else {
            return Fed::Nothing;
        };
        self.reader.push(bytes);
        self.read += size;
        loop {
            match self.reader.next_raw() {
                Ok(Some(message)) => self.messages.push(message),
                Ok(None) if self.reader.is_empty() => return Fed::Whole,
                Ok(None) => return Fed::Something,
                Err(_) => return Fed::Nonsense,
            }
        }
    }

    /// Looks for the start of a message in a stream whose beginning is not known.
    fn find_step(&mut self, take: Take<'_>) {
        let before = if self.service.framing() == Framing::Framed { 4 } else { 0 };
        let start = (0..self.pending.len())
            .find(|start| starts_message(self.pending.get(start + before..).unwrap_or_default()));
        // Bytes that may begin a header wait for its rest.
        let keep = before + HEADER_START - 1;
        let rest = start.unwrap_or(self.pending.len().saturating_sub(keep));
        let rest = self.pending.split_off(rest);
        self.hand_on_pending(take);
        self.pending = rest;
        if start.is_some() {
            self.state = CutterState::InStep;
        }
    }
}

/// The result of giving the reader some bytes.
enum Fed {
    /// There was not enough to give.
    Nothing,
    /// A message is not all there.
    Something,
    /// All that was given is whole messages.
    Whole,
    /// No message begins like this.
    Nonsense,
}

fn reader(service: Offered) -> StreamReader {
    StreamReader::new(service.schema(), service.framing(), MAX_MESSAGE_BYTES)
}

struct NotAFrame;

/// The size of the frame that starts here, its length included. Asks for four bytes when not even
/// the length is there.
fn frame_size(bytes: &[u8]) -> Result<usize, NotAFrame> {
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(4) };
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(size) if (1..=MAX_MESSAGE_BYTES).contains(&size) => Ok(4 + size),
        _ => Err(NotAFrame),
    }
}

/// Version, kind and length of the name.
const HEADER_START: usize = 8;

/// Whether bytes look like the header of a strict message with a name of the usual length.
fn starts_message(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<HEADER_START>() else { return false };
    matches!(header, [0x80, 0x01, 0x00, 1..=4, 0, 0, 0, 1..=64])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> Vec<u8> {
        let mut bytes = vec![0x80, 1, 0, 1];
        bytes.extend((name.len() as u32).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend([0, 0, 0, 7, 0]);
        bytes
    }

    fn framed(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32).to_be_bytes()[..], content].concat()
    }

    /// Cuts `stream`, given in pieces of `piece` bytes.
    fn cut(framing: Framing, whole: bool, stream: &[u8], piece: usize) -> Vec<String> {
        let service = match framing {
            Framing::Framed => Offered::ClusterManager,
            Framing::Bare => Offered::SessionDriver,
        };
        let mut cutter = Cutter::new(service, whole);
        let mut seen: Vec<String> = Vec::new();
        let mut take = |_, piece| match piece {
            StreamPiece::Messages { raw, messages } => {
                let names: Vec<_> = messages.iter().map(|m| m.name.clone()).collect();
                seen.push(format!("{} in {}", names.join("+"), raw.len()));
            }
            StreamPiece::Bytes(bytes) => match seen.last_mut().filter(|last| last.starts_with('?'))
            {
                Some(last) => {
                    let known: usize = last[1..].parse().unwrap();
                    *last = format!("?{}", known + bytes.len());
                }
                None => seen.push(format!("?{}", bytes.len())),
            },
        };
        for data in stream.chunks(piece) {
            cutter.data(Duration::ZERO, data, &mut take);
        }
        cutter.finish(&mut take);
        seen
    }

    fn check(name: &str, framing: Framing, whole: bool, stream: &[u8], expected: &[&str]) {
        for piece in [1, 3, 7, 1_000] {
            assert_eq!(cut(framing, whole, stream, piece), expected, "{name} in pieces of {piece}");
        }
    }

    #[test]
    fn streams_become_messages() {
        use Framing::{Bare, Framed};
        let (a, bc) = (message("a"), message("bc"));
        check("bare", Bare, true, &[a.clone(), bc.clone()].concat(), &["a in 14", "bc in 15"]);
        check(
            "framed",
            Framed,
            true,
            &[framed(&a), framed(&bc)].concat(),
            &["a in 18", "bc in 19"],
        );
        let both = framed(&[a.clone(), bc.clone()].concat());
        check("two in a frame", Framed, true, &both, &["a+bc in 33"]);
        let straddling = [framed(&a[..5]), framed(&[&a[5..], &bc].concat())].concat();
        check("one in two frames", Framed, true, &straddling, &["a+bc in 37"]);
        check("cut off", Framed, true, &framed(&a)[..10], &["?10"]);
    }

    #[test]
    fn bytes_that_are_no_messages_are_kept() {
        use Framing::{Bare, Framed};
        check("garbage", Framed, true, b"GET / HTTP/1.0", &["?14"]);
        check("garbage in a frame", Framed, true, &framed(b"hello"), &["?9"]);
        check("negative length", Framed, true, &[0xff; 4], &["?4"]);
        check("length zero", Framed, true, &[0; 4], &["?4"]);
        let then_garbage = [message("a"), b"nonsense".to_vec()].concat();
        check("garbage behind a message", Bare, true, &then_garbage, &["a in 14", "?8"]);
    }

    #[test]
    fn a_stream_from_the_middle_falls_into_step() {
        use Framing::{Bare, Framed};
        let stream = [message("lost"), message("a")].concat();
        check("bare", Bare, false, &stream[9..], &["?8", "a in 14"]);
        let stream = [framed(&message("lost")), framed(&message("a"))].concat();
        check("framed", Framed, false, &stream[9..], &["?12", "a in 18"]);
        check("never", Framed, false, &[5; 40], &["?40"]);
    }
}
