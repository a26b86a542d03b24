//! Whole messages: from bytes to typed calls and answers, and back.
//!
//! It works on slices and buffers and knows no sockets. Spec: cluster-manager/01 §2.2, §3.

use std::borrow::Cow;

use thiserror::Error;
use thrift::TConfiguration;

use super::check::{Checked, check};
use super::decode::Reader;
use super::encode::{Output, write_field, write_stop};
use super::scan::{Bounds, Header, Malformed};
use super::schema::{StructId, schema};
use super::service::{
    ApplicationFault, Exception, FaultKind, Framing, Outcome, Service, Undeclared,
};

/// The kinds of message.
pub(crate) mod kind {
    pub(crate) const CALL: u8 = 1;
    pub(crate) const REPLY: u8 = 2;
    pub(crate) const EXCEPTION: u8 = 3;
    pub(crate) const ONEWAY: u8 = 4;
}

/// The value read from the start of a buffer.
#[derive(Debug)]
pub(crate) enum Read<T> {
    /// A message, and how many bytes it took.
    Done(T, usize),
    /// A message that was given up before its end: the end is not known.
    Refused(T),
    /// More bytes are needed.
    Incomplete,
}

/// A call as a server sees it.
#[derive(Debug)]
pub(crate) struct Incoming<C> {
    /// To be repeated in the reply.
    pub(crate) seqid: i32,
    /// To be repeated in the reply.
    pub(crate) name: Cow<'static, str>,
    /// The place of the method and the call, or the fault to answer with.
    pub(crate) call: Result<(usize, C), ApplicationFault>,
}

/// An answer as a client sees it.
#[derive(Debug)]
pub(crate) struct Answered<R> {
    pub(crate) seqid: i32,
    pub(crate) body: AnswerBody<R>,
}

/// The content of a response.
#[derive(Debug)]
pub(crate) enum AnswerBody<R> {
    Result(Outcome<R>),
    Fault(ApplicationFault),
    /// The result lacks a required field, which the text names.
    Incomplete(String),
    /// Neither REPLY nor EXCEPTION.
    Kind(u8),
}

/// A message that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Unsendable {
    #[error(transparent)]
    Undeclared(#[from] Undeclared),
    #[error("larger than {limit} bytes")]
    TooLarge { limit: usize },
}

/// Reads a call at the start of `bytes`. Whatever kind of message it claims to be, it is a call,
/// as it is for the original.
pub(crate) fn read_call<S>(
    bytes: &[u8],
    bounds: Bounds,
) -> Result<Read<Incoming<S::Call>>, Malformed>
where
    S: Service,
{
    let Some(header) = Header::parse(bytes)? else { return Ok(Read::Incomplete) };
    let place = std::str::from_utf8(header.name).ok().and_then(S::place);
    let method = place.and_then(|place| S::schema().methods.get(place));
    let incoming = |name, call| Incoming { seqid: header.seqid, name, call };
    let name = || match place.and_then(|place| S::METHODS.get(place)) {
        Some(name) => Cow::Borrowed(*name),
        None => Cow::Owned(String::from_utf8_lossy(header.name).into_owned()),
    };
    let (Some(place), Some(method)) = (place, method) else {
        // Nothing is known of its arguments.
        let end = match check(bytes, header.body, schema().empty(), schema(), bounds)? {
            Checked::Whole { end } => end,
            Checked::Missing(_) | Checked::Incomplete => return Ok(Read::Incomplete),
        };
        let name = name();
        let message = format!("Invalid method name: '{name}'");
        let fault = ApplicationFault { kind: FaultKind::UnknownMethod, message };
        return Ok(Read::Done(incoming(name, Err(fault)), end));
    };
    let read = |reader: &mut Reader<'_>| S::read_args(place, reader);
    match read_body(bytes, header.body, method.args, bounds, read)? {
        Body::Read(call, end) => Ok(Read::Done(incoming(name(), Ok((place, call))), end)),
        Body::Missing(message) => {
            let fault = ApplicationFault { kind: FaultKind::ProtocolError, message };
            Ok(Read::Refused(incoming(name(), Err(fault))))
        }
        Body::Incomplete => Ok(Read::Incomplete),
    }
}

/// Reads the answer to a call of the method at `place`.
pub(crate) fn read_answer<S>(
    bytes: &[u8],
    place: usize,
    bounds: Bounds,
) -> Result<Read<Answered<S::Reply>>, Malformed>
where
    S: Service,
{
    let Some(header) = Header::parse(bytes)? else { return Ok(Read::Incomplete) };
    let answered = |body| Answered { seqid: header.seqid, body };
    let method = S::schema().methods.get(place);
    let body = match (header.kind, method) {
        (kind::REPLY, Some(method)) => {
            let read =
                |reader: &mut Reader<'_>| S::read_result(place, reader).map(AnswerBody::Result);
            read_body(bytes, header.body, method.result, bounds, read)?
        }
        (kind::EXCEPTION, _) => {
            let id = schema().application_exception();
            let read = |reader: &mut Reader<'_>| read_fault(reader).map(AnswerBody::Fault);
            read_body(bytes, header.body, id, bounds, read)?
        }
        _ => return Ok(Read::Refused(answered(AnswerBody::Kind(header.kind)))),
    };
    Ok(match body {
        Body::Read(body, end) => Read::Done(answered(body), end),
        Body::Missing(text) => Read::Refused(answered(AnswerBody::Incomplete(text))),
        Body::Incomplete => Read::Incomplete,
    })
}

/// Appends a call.
pub(crate) fn write_call<S>(
    out: &mut Vec<u8>,
    call: &S::Call,
    seqid: i32,
    framing: Framing,
) -> Result<(), Unsendable>
where
    S: Service,
{
    write(out, framing, kind::CALL, S::method_name(call), seqid, |output| {
        S::write_args(call, output).map(Ok)
    })
}

/// Where the sequence id of a message of this method is, relative to the start of the appended
/// bytes.
pub(crate) fn seqid_at(name: &str, framing: Framing) -> usize {
    let length_of_frame = if framing == Framing::Framed { 4 } else { 0 };
    length_of_frame + 4 + 4 + name.len()
}

/// Appends the answer to a call of the method at `place`.
pub(crate) fn write_result<S>(
    out: &mut Vec<u8>,
    place: usize,
    result: Result<&S::Reply, &Exception>,
    seqid: i32,
    framing: Framing,
) -> Result<(), Unsendable>
where
    S: Service,
{
    let name = S::METHODS.get(place).copied().unwrap_or_default();
    write(out, framing, kind::REPLY, name, seqid, |output| S::write_result(place, result, output))
}

/// Appends an EXCEPTION message.
pub(crate) fn write_fault(
    out: &mut Vec<u8>,
    name: &str,
    fault: &ApplicationFault,
    seqid: i32,
    framing: Framing,
) -> Result<(), Unsendable> {
    write(out, framing, kind::EXCEPTION, name, seqid, |output| {
        write_field(1, &fault.message, output)?;
        write_field(2, &fault.kind.number(), output)?;
        write_stop(output);
        Ok(Ok(()))
    })
}

/// The value read from the body of a message.
enum Body<T> {
    /// The value, and the offset after it.
    Read(T, usize),
    /// A struct in it lacks a required field; this is the text of the original.
    Missing(String),
    /// More bytes are needed.
    Incomplete,
}

/// Reads a body in one walk. Only a body that cannot be read is checked for its error.
fn read_body<T>(
    bytes: &[u8],
    at: usize,
    id: StructId,
    bounds: Bounds,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<Body<T>, Malformed> {
    let mut reader = Reader::new(bytes, at, bounds);
    if let Some(value) = read(&mut reader) {
        return Ok(Body::Read(value, reader.position()));
    }
    match check(bytes, at, id, schema(), bounds)? {
        Checked::Missing(text) => Ok(Body::Missing(text)),
        Checked::Incomplete => Ok(Body::Incomplete),
        Checked::Whole { .. } => Err(Malformed::Unreadable),
    }
}

fn read_fault(reader: &mut Reader<'_>) -> Option<ApplicationFault> {
    let (mut message, mut number) = (None, None);
    while let Some((id, code)) = reader.field()? {
        match id {
            1 => reader.field_value(code, &mut message)?,
            2 => reader.field_value(code, &mut number)?,
            _ => reader.skip(code)?,
        }
    }
    let kind = number.map_or(FaultKind::Unknown, FaultKind::from_number);
    Some(ApplicationFault { kind, message: message.unwrap_or_default() })
}

/// Appends a message, or leaves `out` as it was.
fn write(
    out: &mut Vec<u8>,
    framing: Framing,
    kind: u8,
    name: &str,
    seqid: i32,
    body: impl FnOnce(&mut Output<'_>) -> thrift::Result<Result<(), Undeclared>>,
) -> Result<(), Unsendable> {
    let start = out.len();
    if framing == Framing::Framed {
        out.extend_from_slice(&[0; 4]);
    }
    let message = out.len();
    out.extend_from_slice(&[0x80, 0x01, 0x00, kind]);
    out.extend_from_slice(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&seqid.to_be_bytes());
    let config = TConfiguration::no_limits();
    let written = body(&mut Output::with_config(out, true, config));
    let limit = i32::MAX as usize;
    let length = i32::try_from(out.len() - message);
    let failure = match (written, length) {
        (Ok(Ok(())), Ok(length)) => {
            if let Some(head) = out.get_mut(start..message)
                && framing == Framing::Framed
            {
                head.copy_from_slice(&length.to_be_bytes());
            }
            return Ok(());
        }
        (Ok(Err(undeclared)), _) => undeclared.into(),
        _ => Unsendable::TooLarge { limit },
    };
    out.truncate(start);
    Err(failure)
}
