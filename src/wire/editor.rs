//! Lets a framed stream pass, and values in some of its messages be read and replaced on the way.
//!
//! It works on bytes and knows no sockets. Whatever it does not understand passes as it came; a
//! replaced value changes its own bytes and the length of its frame, and nothing else.

use std::ops::Range;

use super::check::Walk;
use super::message::Read;
use super::scan::{Bounds, Header, u32_at};
use super::schema::{Kind, ServiceSchema, StructId, schema};
use super::value::{Message, Value, body_id, read_message, write_value};

/// A value to be put into the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The names of the fields that lead from the message's body to the value.
    pub path: &'static [&'static str],
    /// The new value. It must be of the contract's type.
    pub value: Value,
}

/// The edits of a message, perhaps none.
pub type EditMessage<'a> = &'a mut dyn FnMut(&Message) -> Vec<Edit>;

/// One direction of a stream of frames.
#[derive(Debug)]
pub struct FrameEditor {
    service: &'static ServiceSchema,
    /// Messages of these methods are looked at.
    methods: &'static [&'static str],
    max_bytes: usize,
    state: EditorState,
    /// The start of a frame about which nothing is decided yet, or a frame that is wanted.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditorState {
    /// At the start of a frame.
    Start,
    /// So many bytes of a frame pass.
    Pass(usize),
    /// A frame of so many bytes, its length included, is held until it is whole.
    Hold(usize),
    /// The stream is not understood.
    Lost,
}

/// The type of a frame's contents, judged by its first bytes.
enum Begun {
    /// Not enough bytes to decide.
    TooShort,
    Is(EditorState),
}

impl FrameEditor {
    /// For messages of `service`. Of frames that start with a message of one of `methods`, those
    /// of at most `max_bytes` are held until they are whole; all else passes at once.
    pub fn new(
        service: &'static ServiceSchema,
        methods: &'static [&'static str],
        max_bytes: usize,
    ) -> Self {
        FrameEditor { service, methods, max_bytes, state: EditorState::Start, held: Vec::new() }
    }

    /// Takes the next bytes of the stream and appends to `out` the bytes to forward. `edit` sees
    /// each message of the frames that are held.
    pub fn pass(&mut self, mut bytes: &[u8], out: &mut Vec<u8>, edit: EditMessage<'_>) {
        loop {
            match self.state {
                EditorState::Lost => {
                    out.append(&mut self.held);
                    out.extend_from_slice(bytes);
                    return;
                }
                EditorState::Pass(left) => {
                    let (now, later) = bytes.split_at(left.min(bytes.len()));
                    out.extend_from_slice(now);
                    bytes = later;
                    if now.len() < left {
                        self.state = EditorState::Pass(left - now.len());
                        return;
                    }
                    self.state = EditorState::Start;
                }
                EditorState::Start => match self.begun(bytes) {
                    Begun::TooShort => {
                        self.held.extend_from_slice(bytes);
                        return;
                    }
                    Begun::Is(EditorState::Pass(size)) => {
                        self.state = EditorState::Pass(size.saturating_sub(self.held.len()));
                        out.append(&mut self.held);
                    }
                    Begun::Is(state) => self.state = state,
                },
                EditorState::Hold(size) => {
                    let missing = size.saturating_sub(self.held.len());
                    let (now, later) = bytes.split_at(missing.min(bytes.len()));
                    self.held.extend_from_slice(now);
                    bytes = later;
                    if now.len() < missing {
                        return;
                    }
                    let frame = std::mem::take(&mut self.held);
                    match edited(&frame, self.service, edit) {
                        Some(edited) => out.extend_from_slice(&edited),
                        None => out.extend_from_slice(&frame),
                    }
                    self.state = EditorState::Start;
                }
            }
        }
    }

    /// Appends the bytes still held: the stream has ended.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
        self.state = EditorState::Lost;
    }

    /// The kind of the frame that starts with the held bytes and continues with `bytes`.
    fn begun(&self, bytes: &[u8]) -> Begun {
        const LENGTH_AND_START: usize = 12;
        let longest = self.methods.iter().map(|name| name.len()).max().unwrap_or(0);
        let wanted = (LENGTH_AND_START + longest).saturating_sub(self.held.len());
        let more = bytes.get(..wanted.min(bytes.len())).unwrap_or_default();
        let start = [self.held.as_slice(), more].concat();
        let Some(length) = u32_at(&start, 0) else { return Begun::TooShort };
        let length = match usize::try_from(length.cast_signed()) {
            Ok(length) if length > 0 => length,
            _ => return Begun::Is(EditorState::Lost),
        };
        let pass = Begun::Is(EditorState::Pass(length.saturating_add(4)));
        if length > self.max_bytes {
            return pass;
        }
        let content = start.get(4..).unwrap_or_default();
        let mut left =
            self.methods.iter().filter_map(|method| could_begin(content, method.as_bytes()));
        match left.next() {
            None => pass,
            Some(true) => Begun::Is(EditorState::Hold(4 + length)),
            Some(false) if left.any(|whole| whole) => Begun::Is(EditorState::Hold(4 + length)),
            // The frame may be shorter than the header of a message.
            Some(false) if content.len() >= length => pass,
            Some(false) => Begun::TooShort,
        }
    }
}

/// Whether `content` is (`true`) or may yet become (`false`) the header of a message of `method`.
fn could_begin(content: &[u8], method: &[u8]) -> Option<bool> {
    let length = u32::try_from(method.len()).unwrap_or(u32::MAX).to_be_bytes();
    let kinds = 1..=4_u8;
    let mut expected = [0x80, 1, 0].iter().map(Some).chain([None]).chain(length.iter().map(Some));
    let fits = |found: &u8, expected: Option<&u8>| match expected {
        Some(expected) => found == expected,
        None => kinds.contains(found),
    };
    let head = content.iter().zip(expected.by_ref()).all(|(found, byte)| fits(found, byte));
    let name = content.get(8..).unwrap_or_default();
    let name = name.get(..method.len()).unwrap_or(name);
    (head && method.starts_with(name)).then_some(name.len() == method.len())
}

/// The frame with all edits made; none when nothing is to be changed or it cannot be read to its
/// end.
fn edited(frame: &[u8], service: &'static ServiceSchema, edit: EditMessage<'_>) -> Option<Vec<u8>> {
    let content = frame.get(4..)?;
    let bounds = Bounds { max_bytes: content.len(), max_depth: 64 };
    let mut at = 0;
    let mut changes: Vec<(Range<usize>, Vec<u8>)> = Vec::new();
    while at < content.len() {
        let bytes = content.get(at..)?;
        let Ok(Read::Done(message, size)) = read_message(bytes, service, bounds) else {
            return None;
        };
        for Edit { path, value } in edit(&message) {
            let change = change(bytes, service, &message, path, &value, bounds)?;
            changes.push((change.0.start + at..change.0.end + at, change.1));
        }
        at += size.max(1);
    }
    if changes.is_empty() {
        return None;
    }
    changes.sort_by_key(|(range, _)| range.start);
    let mut out = vec![0; 4];
    let mut copied = 0;
    for (range, value) in changes {
        out.extend_from_slice(content.get(copied..range.start)?);
        out.extend_from_slice(&value);
        copied = range.end;
    }
    out.extend_from_slice(content.get(copied..)?);
    let length = i32::try_from(out.len() - 4).ok()?.to_be_bytes();
    out.get_mut(..4)?.copy_from_slice(&length);
    Some(out)
}

/// The bytes of a message to replace, and their replacement.
fn change(
    bytes: &[u8],
    service: &ServiceSchema,
    message: &Message,
    path: &[&str],
    value: &Value,
    bounds: Bounds,
) -> Option<(Range<usize>, Vec<u8>)> {
    let header = Header::parse(bytes).ok()??;
    let body = body_id(service, message.kind, &message.name);
    let mut walk = Walk::new(bytes, schema(), bounds);
    let (kind, at) = place(&mut walk, body, header.body, path)?;
    let end = walk.value(kind, at).ok()?;
    let mut encoded = Vec::new();
    write_value(kind, value, &mut encoded).ok()?;
    Some((at..end, encoded))
}

/// The type of the value at the end of a path, and where it starts.
fn place<'s>(
    walk: &mut Walk<'_>,
    id: StructId,
    at: usize,
    path: &[&str],
) -> Option<(&'s Kind, usize)> {
    let (name, rest) = path.split_first()?;
    let (places, _) = walk.places(at, id).ok()?;
    let fields = &schema().structure(id).fields;
    let (field, at) = fields.iter().zip(places).find(|(field, _)| field.name == *name)?;
    let at = at?;
    match (&field.kind, rest) {
        (kind, []) => Some((kind, at)),
        (Kind::Struct(inner), rest) => place(walk, *inner, at, rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Framing;
    use crate::calls::ClusterManager;
    use crate::service::Service;
    use crate::value::MessageKind;

    const METHODS: &[&str] = &["sessionStart", "sessionEnd"];

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    fn session_start(host: &str, port: i32) -> Message {
        let address = vec![("host", text(host)), ("port", Value::I32(port))];
        let info = vec![
            ("address", Value::Struct(address)),
            ("name", text("n")),
            ("userId", text("u")),
            ("url", text("http://x")),
        ];
        let body = vec![("handle", text("1.2")), ("info", Value::Struct(info))];
        let body = Ok(Value::Struct(body));
        Message { kind: MessageKind::Call, name: "sessionStart".into(), seqid: 7, body }
    }

    fn plain(name: &str) -> Message {
        let body = Ok(Value::Struct(vec![]));
        Message { kind: MessageKind::Call, name: name.into(), seqid: 1, body }
    }

    fn framed(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        message.write(ClusterManager::schema(), Framing::Framed, &mut out).unwrap();
        out
    }

    /// The output of an editor that rewrites every session driver's address.
    fn passed(stream: &[u8], piece: usize) -> Vec<u8> {
        let mut editor = FrameEditor::new(ClusterManager::schema(), METHODS, 4_096);
        let mut out = Vec::new();
        let mut edit = |message: &Message| match message.name.as_str() {
            "sessionStart" => vec![
                Edit { path: &["info", "address", "port"], value: Value::I32(99) },
                Edit { path: &["info", "address", "host"], value: text("longer.example") },
            ],
            _ => vec![],
        };
        for bytes in stream.chunks(piece) {
            editor.pass(bytes, &mut out, &mut edit);
        }
        editor.finish(&mut out);
        out
    }

    fn check(name: &str, stream: &[u8], expected: &[u8]) {
        for piece in [1, 2, 3, 7, 50, 100_000] {
            assert_eq!(passed(stream, piece), expected, "{name} in pieces of {piece}");
        }
    }

    #[test]
    fn only_the_address_and_the_length_of_the_frame_change() {
        let before = framed(&session_start("h", 5));
        let after = framed(&session_start("longer.example", 99));
        check("alone", &before, &after);
        let others = [framed(&plain("getSessions")), framed(&plain("getNextSessionId"))].concat();
        let stream = [&others[..], &before, &others, &before].concat();
        check("among others", &stream, &[&others[..], &after, &others, &after].concat());
    }

    #[test]
    fn fields_that_nobody_knows_and_their_order_stay() {
        // An unknown field, then the address with its fields in reverse order.
        let inside = |port: i32, host: &str| {
            let address = [
                &[8, 0, 2][..],
                &port.to_be_bytes(),
                &[11, 0, 1],
                &(host.len() as u32).to_be_bytes(),
                host.as_bytes(),
                &[0],
            ]
            .concat();
            let info = [
                &[8, 0, 77, 1, 2, 3, 4, 12, 0, 1][..],
                &address,
                b"\x0b\0\x03\0\0\0\x01u\x0b\0\x02\0\0\0\x01n\0",
            ]
            .concat();
            let body = [&b"\x0c\0\x02"[..], &info, b"\x0b\0\x01\0\0\0\x031.2\0"].concat();
            let message = [&b"\x80\x01\0\x01\0\0\0\x0csessionStart\0\0\0\x07"[..], &body].concat();
            [&(message.len() as u32).to_be_bytes()[..], &message].concat()
        };
        check("odd", &inside(5, "h"), &inside(99, "longer.example"));
    }

    #[test]
    fn several_messages_in_a_frame_are_all_seen() {
        let (one, two) = (framed(&plain("sessionEnd")), framed(&session_start("h", 5)));
        let joined = |parts: &[&[u8]]| {
            let content: Vec<u8> = parts.iter().flat_map(|frame| frame[4..].to_vec()).collect();
            [&(content.len() as u32).to_be_bytes()[..], &content].concat()
        };
        // A sessionEnd without its handle cannot be read, and so nothing in its frame is touched.
        let after = framed(&session_start("longer.example", 99));
        check("twice", &joined(&[&two, &two]), &joined(&[&after, &after]));
        let broken = [one.clone(), vec![1, 2, 3]].concat();
        check("broken", &joined(&[&two, &broken]), &joined(&[&two, &broken]));
    }

    #[test]
    fn unknown_bytes_pass_unchanged() {
        let good = framed(&session_start("h", 5));
        let mut cut = good.clone();
        cut.truncate(30);
        let mut wrong_inside = good.clone();
        let last = wrong_inside.len() - 1;
        wrong_inside[last] = 0x55;
        let large = {
            let mut message = session_start("h", 5);
            let Ok(Value::Struct(fields)) = &mut message.body else { unreachable!() };
            fields[0].1 = text(&"x".repeat(5_000));
            framed(&message)
        };
        for (name, stream) in [
            ("nothing", &b""[..]),
            ("text", b"GET / HTTP/1.0\r\n\r\n"),
            ("negative length", &[0xff; 60]),
            ("length zero", &[0; 60]),
            ("cut off", &cut),
            ("a small frame", &[0, 0, 0, 3, 0x80, 1, 0, 0, 0, 0, 1, 9]),
            ("a type that does not exist", &wrong_inside),
            ("too large to hold", &large),
        ] {
            check(name, stream, stream);
        }
    }

    proptest::proptest! {
        #[test]
        fn noise_and_frames_pass_unchanged_when_nothing_is_edited(
            parts in proptest::collection::vec((0..5_u8, proptest::collection::vec(0..4_u8, 0..40)), 0..8),
            piece in 1..50_usize,
        ) {
            let part = |(kind, noise): &(u8, Vec<u8>)| match kind {
                0 => framed(&session_start("h", 5)),
                1 => framed(&plain("getSessions")),
                2 => [&[0, 0, 0, noise.len() as u8 + 20][..], b"\x80\x01\0\x01\0\0\0\x0csession", noise]
                    .concat(),
                _ => noise.clone(),
            };
            let stream: Vec<u8> = parts.iter().flat_map(part).collect();
            let mut editor = FrameEditor::new(ClusterManager::schema(), METHODS, 4_096);
            let mut out = Vec::new();
            for bytes in stream.chunks(piece) {
                editor.pass(bytes, &mut out, &mut |_| vec![]);
            }
            editor.finish(&mut out);
            proptest::prop_assert_eq!(out, stream);
        }
    }

    #[test]
    fn unwanted_bytes_do_not_wait() {
        let mut editor = FrameEditor::new(ClusterManager::schema(), METHODS, 4_096);
        let frame = framed(&plain("getSessions"));
        let mut out = Vec::new();
        editor.pass(&frame[..14], &mut out, &mut |_| unreachable!());
        assert_eq!(out, frame[..14], "the name cannot become one of those that are wanted");
        editor.pass(&frame[14..], &mut out, &mut |_| unreachable!());
        assert_eq!(out, frame);
    }
}
