//! Messages as plain values with the names of the contract: for people, for comparison and for
//! tests. The service itself uses typed calls.
//!
//! A value turns into JSON with [`serde`]: structs become objects, enumerations their names.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use super::check::{self, Checked, Halt, Walk};
use super::inbox::Inbox;
use super::message::{self, AnswerBody, Read, kind};
use super::scan::{Bounds, Header, Malformed, code};
use super::schema::{Kind, ServiceSchema, StructId, schema};
use super::server::Answer;
use super::service::{ApplicationFault, FaultKind, Framing, Outcome, Service};

/// Any value of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A truth value.
    Bool(bool),
    /// A 16-bit number.
    I16(i16),
    /// A 32-bit number.
    I32(i32),
    /// A 64-bit number.
    I64(i64),
    /// Text.
    String(String),
    /// A number of an enumeration, with its name if it has one.
    Enum(i32, Option<&'static str>),
    /// The present fields, by name, in ascending order of their ids.
    Struct(Vec<(&'static str, Value)>),
    /// Values in order.
    List(Vec<Value>),
    /// Keys and values in the order in which they were sent.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// The field of a struct with this name.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let Value::Struct(fields) = self else { return None };
        fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::I16(value) => serializer.serialize_i16(*value),
            Value::I32(value) | Value::Enum(value, None) => serializer.serialize_i32(*value),
            Value::I64(value) => serializer.serialize_i64(*value),
            Value::String(value) => serializer.serialize_str(value),
            Value::Enum(_, Some(name)) => serializer.serialize_str(name),
            Value::Struct(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
            Value::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Value::Map(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A call, which is answered.
    Call,
    /// A call that its sender does not want answered. Corona's servers answer it all the same.
    Oneway,
    /// An answer: a value or an exception that the contract declares.
    Reply,
    /// An answer outside the contract.
    Exception,
    /// A number without a meaning. A server takes it for a call.
    Other(u8),
}

impl MessageKind {
    /// The word that recordings and logs use, such as `CALL`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "CALL",
            Self::Oneway => "ONEWAY",
            Self::Reply => "REPLY",
            Self::Exception => "EXCEPTION",
            Self::Other(_) => "OTHER",
        }
    }

    /// Whether it goes from a server to a client.
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Reply | Self::Exception)
    }

    fn from_number(number: u8) -> MessageKind {
        match number {
            kind::CALL => Self::Call,
            kind::REPLY => Self::Reply,
            kind::EXCEPTION => Self::Exception,
            kind::ONEWAY => Self::Oneway,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Call => kind::CALL,
            Self::Reply => kind::REPLY,
            Self::Exception => kind::EXCEPTION,
            Self::Oneway => kind::ONEWAY,
            Self::Other(other) => other,
        }
    }
}

/// One message of a stream, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message's kind.
    pub kind: MessageKind,
    /// The method's name.
    pub name: String,
    /// The sequence id.
    pub seqid: i32,
    /// Arguments, result or `TApplicationException`. Of a method that the service does not have,
    /// nothing is known: a struct without fields. `Err`: a struct in it lacks a required field;
    /// the text is the original's.
    pub body: Result<Value, String>,
}

impl Message {
    /// Appends the message to `out`. Fields are looked up by name; a value that is not of the
    /// contract's type makes it fail, and `out` stays as it was.
    pub fn write(
        &self,
        service: &ServiceSchema,
        framing: Framing,
        out: &mut Vec<u8>,
    ) -> Result<(), MismatchError> {
        let mut body = vec![];
        let value = self.body.as_ref().map_err(|_| MismatchError(self.name.clone()))?;
        write_value(&Kind::Struct(body_id(service, self.kind, &self.name)), value, &mut body)?;
        let length = count(12 + self.name.len() + body.len())?;
        let name_length = count(self.name.len())?;
        if framing == Framing::Framed {
            out.extend_from_slice(&length);
        }
        out.extend_from_slice(&[0x80, 0x01, 0x00, self.kind.number()]);
        out.extend_from_slice(&name_length);
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(&self.seqid.to_be_bytes());
        out.extend_from_slice(&body);
        Ok(())
    }

    /// The message as a typed call, which costs an encoding: a message that came as bytes is read
    /// with [`RawMessage::call`]. The kind is ignored, as by a server. `Err`: a server's answer.
    pub fn call<S: Service>(&self) -> Result<S::Call, CallMismatch> {
        let bytes = self.bytes::<S>()?;
        match message::read_call::<S>(&bytes, NO_BOUNDS) {
            Ok(Read::Done(incoming, _) | Read::Refused(incoming)) => {
                Ok(incoming.call.map(|(_, call)| call)?)
            }
            _ => Err(MismatchError(self.name.clone()).into()),
        }
    }

    /// The message as the typed answer to a call of the method that it names.
    pub fn answer<S: Service>(&self) -> Result<Answer<S::Reply>, CallMismatch> {
        let mismatch = || MismatchError(self.name.clone());
        let place = S::place(&self.name).ok_or_else(mismatch)?;
        let bytes = self.bytes::<S>()?;
        match message::read_answer::<S>(&bytes, place, NO_BOUNDS) {
            Ok(Read::Done(answered, _)) => match answered.body {
                AnswerBody::Result(Outcome::Reply(reply)) => Ok(Answer::Reply(reply)),
                AnswerBody::Result(Outcome::Exception(exception)) => {
                    Ok(Answer::Exception(exception))
                }
                AnswerBody::Fault(fault) => Ok(Answer::Fault(fault)),
                _ => Err(mismatch().into()),
            },
            _ => Err(mismatch().into()),
        }
    }

    fn bytes<S: Service>(&self) -> Result<Vec<u8>, MismatchError> {
        let mut bytes = vec![];
        self.write(S::schema(), Framing::Bare, &mut bytes)?;
        Ok(bytes)
    }
}

/// A whole message of a stream that is not decoded yet: the values of its header, and its bytes,
/// which have been checked against the contract. Decoding it, as plain values or as a typed call,
/// walks over the bytes once.
#[derive(Clone, Debug)]
pub struct RawMessage {
    /// The message's kind.
    pub kind: MessageKind,
    /// The method's name.
    pub name: String,
    /// The sequence id.
    pub seqid: i32,
    service: &'static ServiceSchema,
    /// Without the length of a frame.
    bytes: Vec<u8>,
    /// Where its body is. `Err`: a struct in it lacks a required field; the text is the original's.
    body: Result<usize, String>,
}

impl RawMessage {
    /// The message as plain values.
    pub fn decode(&self) -> Message {
        let id = body_id(self.service, self.kind, &self.name);
        let value = |at| {
            let mut walk = Walk::new(&self.bytes, schema(), NO_BOUNDS);
            // The bytes were checked, so that they can be read.
            let read = read_struct(&mut walk, at, id).map_err(|_| "unreadable".to_owned());
            read.map(|(value, _)| value)
        };
        let body = self.body.clone().and_then(value);
        Message { kind: self.kind, name: self.name.clone(), seqid: self.seqid, body }
    }

    /// The message as a typed call of a service, which must be the one that it was read for.
    ///
    /// # Errors
    /// A server's error for it: the method is unknown, or a required field is missing. A response
    /// is no call.
    pub fn call<S: Service>(&self) -> Result<S::Call, ApplicationFault> {
        let fault = |kind, message: &str| ApplicationFault { kind, message: message.to_owned() };
        if self.kind.is_answer() {
            return Err(fault(FaultKind::InvalidMessageType, "an answer"));
        }
        match message::read_call::<S>(&self.bytes, NO_BOUNDS) {
            Ok(Read::Done(incoming, _) | Read::Refused(incoming)) => {
                incoming.call.map(|(_, call)| call)
            }
            _ => Err(fault(FaultKind::ProtocolError, "unreadable")),
        }
    }

    /// Whether two messages are the same to the last byte, their headers included. Other messages
    /// may encode the same values in other bytes.
    pub fn has_bytes_of(&self, other: &RawMessage) -> bool {
        self.bytes == other.bytes
    }

    /// A typed call with the sequence id 0; none when it is too long for a message.
    pub fn of_call<S: Service>(call: &S::Call) -> Option<RawMessage> {
        let mut bytes = vec![];
        message::write_call::<S>(&mut bytes, call, 0, Framing::Bare).ok()?;
        RawMessage::written(S::schema(), bytes)
    }

    /// A server's response to a call of this method with this answer; none if it would close the
    /// connection instead.
    pub fn of_answer<S: Service>(
        method: &str,
        answer: &Answer<S::Reply>,
        seqid: i32,
    ) -> Option<RawMessage> {
        let mut bytes = vec![];
        let place = || S::place(method);
        let framing = Framing::Bare;
        match answer {
            Answer::Reply(reply) => {
                message::write_result::<S>(&mut bytes, place()?, Ok(reply), seqid, framing)
            }
            Answer::Exception(exception) => {
                message::write_result::<S>(&mut bytes, place()?, Err(exception), seqid, framing)
            }
            Answer::Fault(fault) => message::write_fault(&mut bytes, method, fault, seqid, framing),
            Answer::Close => return None,
        }
        .ok()?;
        RawMessage::written(S::schema(), bytes)
    }

    /// A message that was written here, and agrees with the contract.
    fn written(service: &'static ServiceSchema, bytes: Vec<u8>) -> Option<RawMessage> {
        let header = Header::parse(&bytes).ok()??;
        let kind = MessageKind::from_number(header.kind);
        let name = String::from_utf8_lossy(header.name).into_owned();
        let body = Ok(header.body);
        Some(RawMessage { kind, name, seqid: header.seqid, service, body, bytes })
    }
}

/// A decoded message is not of the requested form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallMismatch {
    /// A value is not of the contract's type.
    #[error(transparent)]
    Mismatch(#[from] MismatchError),
    /// A server would refuse it with this.
    #[error("a server would answer {0}")]
    Fault(#[from] ApplicationFault),
}

/// A value is not of the contract's type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not agree with the contract")]
pub struct MismatchError(pub String);

/// Messages of this process only, or of files: the reader of a stream has its own limits.
const NO_BOUNDS: Bounds = Bounds { max_bytes: i32::MAX as usize, max_depth: 64 };

/// Takes one direction of a stream apart, however it is cut: recorded, or passing through.
#[derive(Debug)]
pub struct StreamReader {
    service: &'static ServiceSchema,
    inbox: Inbox,
    bounds: Bounds,
}

impl StreamReader {
    /// A reader for messages of a service, none larger than `max_bytes`.
    pub fn new(
        service: &'static ServiceSchema,
        framing: Framing,
        max_bytes: usize,
    ) -> StreamReader {
        let bounds = Bounds { max_bytes, max_depth: 64 };
        StreamReader { service, inbox: Inbox::new(framing, bounds, max_bytes), bounds }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.inbox.space().extend_from_slice(bytes);
    }

    /// The next message; none until more bytes arrive. After an error the stream is useless.
    pub fn next_message(&mut self) -> Result<Option<Message>, Malformed> {
        let StreamReader { service, inbox, bounds } = self;
        inbox.take(|bytes| read_message(bytes, service, *bounds))
    }

    /// As [`Self::next_message`], for messages that may never have to be decoded.
    pub fn next_raw(&mut self) -> Result<Option<RawMessage>, Malformed> {
        let StreamReader { service, inbox, bounds } = self;
        inbox.take(|bytes| read_raw(bytes, service, *bounds))
    }

    /// The next message as a typed call, whatever kind it claims to be, as a server reads it. `Err` inside:
    /// the reply of a server that refuses it.
    pub fn next_call<S: Service>(
        &mut self,
    ) -> Result<Option<Result<S::Call, ApplicationFault>>, Malformed> {
        let StreamReader { inbox, bounds, .. } = self;
        let incoming = inbox.take(|bytes| message::read_call::<S>(bytes, *bounds))?;
        Ok(incoming.map(|incoming| incoming.call.map(|(_, call)| call)))
    }

    /// Whether no incomplete message is buffered.
    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }
}

/// The struct that a message's body is.
pub(super) fn body_id(service: &ServiceSchema, kind: MessageKind, name: &str) -> StructId {
    let method = service.method(name);
    match (kind, method) {
        (MessageKind::Exception, _) => schema().application_exception(),
        (_, None) => schema().empty(),
        (MessageKind::Reply, Some(method)) => method.result,
        (_, Some(method)) => method.args,
    }
}

pub(super) fn read_message(
    bytes: &[u8],
    service: &'static ServiceSchema,
    bounds: Bounds,
) -> Result<Read<Message>, Malformed> {
    Ok(match read_raw(bytes, service, bounds)? {
        Read::Done(message, end) => Read::Done(message.decode(), end),
        Read::Refused(message) => Read::Refused(message.decode()),
        Read::Incomplete => Read::Incomplete,
    })
}

fn read_raw(
    bytes: &[u8],
    service: &'static ServiceSchema,
    bounds: Bounds,
) -> Result<Read<RawMessage>, Malformed> {
    let Some(header) = Header::parse(bytes)? else { return Ok(Read::Incomplete) };
    let kind = MessageKind::from_number(header.kind);
    let name = String::from_utf8_lossy(header.name).into_owned();
    let id = body_id(service, kind, &name);
    let raw = |bytes: &[u8], body| {
        let bytes = bytes.to_vec();
        RawMessage { kind, name, seqid: header.seqid, service, bytes, body }
    };
    match check::check(bytes, header.body, id, schema(), bounds)? {
        Checked::Incomplete => Ok(Read::Incomplete),
        Checked::Missing(text) => Ok(Read::Refused(raw(bytes, Err(text)))),
        Checked::Whole { end } => {
            let whole = bytes.get(..end).ok_or(Malformed::Unreadable)?;
            Ok(Read::Done(raw(whole, Ok(header.body)), end))
        }
    }
}

/// Decodes a struct that has been checked, so that its cost is bounded by its bytes.
pub(super) fn read_struct(
    walk: &mut Walk<'_>,
    at: usize,
    id: StructId,
) -> Result<(Value, usize), Halt> {
    let (places, end) = walk.places(at, id)?;
    let mut values = vec![];
    for (field, place) in schema().structure(id).fields.iter().zip(places) {
        if let Some(at) = place {
            values.push((field.name.as_str(), read_value(walk, &field.kind, at)?.0));
        }
    }
    Ok((Value::Struct(values), end))
}

fn read_value(walk: &mut Walk<'_>, kind: &Kind, at: usize) -> Result<(Value, usize), Halt> {
    match kind {
        Kind::Bool => walk.truth(at).map(|(value, end)| (Value::Bool(value), end)),
        Kind::I16 | Kind::I32 | Kind::I64 | Kind::Enum(_) => {
            let (number, end) = walk.number(kind, at)?;
            let value = match kind {
                Kind::I16 => Value::I16(i16::try_from(number).unwrap_or_default()),
                Kind::I64 => Value::I64(number),
                Kind::Enum(id) => {
                    let number = i32::try_from(number).unwrap_or_default();
                    Value::Enum(number, schema().enumeration(*id).name_of(number))
                }
                _ => Value::I32(i32::try_from(number).unwrap_or_default()),
            };
            Ok((value, end))
        }
        Kind::String => walk.string(at).map(|(text, end)| (Value::String(text.into_owned()), end)),
        Kind::Struct(id) => read_struct(walk, at, *id),
        Kind::List(element) => {
            let (mut at, count) = walk.list_head(element, at)?;
            let mut values = vec![];
            for _ in 0..count {
                let (value, end) = read_value(walk, element, at)?;
                values.push(value);
                at = end;
            }
            Ok((Value::List(values), at))
        }
        Kind::Map(key_kind, value_kind) => {
            let (mut at, count) = walk.map_head(key_kind, value_kind, at)?;
            let mut pairs = vec![];
            for _ in 0..count {
                let (key, end) = read_value(walk, key_kind, at)?;
                let (value, end) = read_value(walk, value_kind, end)?;
                pairs.push((key, value));
                at = end;
            }
            Ok((Value::Map(pairs), at))
        }
    }
}

pub(super) fn write_value(
    kind: &Kind,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), MismatchError> {
    match (kind, value) {
        (Kind::Bool, Value::Bool(value)) => out.push(u8::from(*value)),
        (Kind::I16, Value::I16(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (Kind::I32, Value::I32(value)) | (Kind::Enum(_), Value::Enum(value, _)) => {
            out.extend_from_slice(&value.to_be_bytes());
        }
        (Kind::I64, Value::I64(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (Kind::String, Value::String(text)) => {
            out.extend_from_slice(&count(text.len())?);
            out.extend_from_slice(text.as_bytes());
        }
        (Kind::Struct(id), Value::Struct(fields)) => {
            for (name, value) in fields {
                let mut known = schema().structure(*id).fields.iter();
                let field = known.find(|field| field.name == *name);
                let field = field.ok_or_else(|| MismatchError((*name).to_owned()))?;
                out.push(check::code_of(&field.kind));
                out.extend_from_slice(&field.id.to_be_bytes());
                write_value(&field.kind, value, out)?;
            }
            out.push(code::STOP);
        }
        (Kind::List(element), Value::List(values)) => {
            out.push(check::code_of(element));
            out.extend_from_slice(&count(values.len())?);
            for value in values {
                write_value(element, value, out)?;
            }
        }
        (Kind::Map(key_kind, value_kind), Value::Map(pairs)) => {
            out.extend_from_slice(&[check::code_of(key_kind), check::code_of(value_kind)]);
            out.extend_from_slice(&count(pairs.len())?);
            for (key, value) in pairs {
                write_value(key_kind, key, out)?;
                write_value(value_kind, value, out)?;
            }
        }
        (kind, _) => return Err(MismatchError(format!("{kind:?}"))),
    }
    Ok(())
}

fn count(length: usize) -> Result<[u8; 4], MismatchError> {
    let too_long = |_| MismatchError(format!("a length of {length}"));
    i32::try_from(length).map(i32::to_be_bytes).map_err(too_long)
}
