//! Whole messages: from checked bytes to typed calls and answers, and back.
//!
//! It works on slices and buffers and knows no sockets. Spec: cluster-manager/01 §2.2, §3.

use std::borrow::Cow;

use thiserror::Error;
use thrift::TConfiguration;

use super::check::{self, Checked};
use super::scan::{Bounds, Header, Malformed};
use super::schema::{StructId, schema};
use super::service::{
    ApplicationFault, Exception, FaultKind, Framing, Input, Outcome, Output, Service, Undeclared,
    write_field, write_stop,
};

/// The kinds of message.
pub(crate) mod kind {
    pub(crate) const CALL: u8 = 1;
    pub(crate) const REPLY: u8 = 2;
    pub(crate) const EXCEPTION: u8 = 3;
    pub(crate) const ONEWAY: u8 = 4;
}

/// What was made of the bytes at the start of a buffer.
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
    /// To be given back in the answer.
    pub(crate) seqid: i32,
    /// To be given back in the answer.
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

/// What an answer says.
#[derive(Debug)]
pub(crate) enum AnswerBody<R> {
    Result(Outcome<R>),
    Fault(ApplicationFault),
    /// The result lacks a required field; the text says which.
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
    let args = method.map_or(schema().empty(), |method| method.args);
    let incoming = |name, call| Incoming { seqid: header.seqid, name, call };
    let name = || match place.and_then(|place| S::METHODS.get(place)) {
        Some(name) => Cow::Borrowed(*name),
        None => Cow::Owned(String::from_utf8_lossy(header.name).into_owned()),
    };
    let (end, tidy) = match check::check(bytes, header.body, args, schema(), bounds)? {
        Checked::Whole { end, tidy } => (end, tidy),
        Checked::Incomplete => return Ok(Read::Incomplete),
        Checked::Missing(message) => {
            let fault = ApplicationFault { kind: FaultKind::ProtocolError, message };
            return Ok(Read::Refused(incoming(name(), Err(fault))));
        }
    };
    let Some(place) = place else {
        let name = name();
        let message = format!("Invalid method name: '{name}'");
        let fault = ApplicationFault { kind: FaultKind::UnknownMethod, message };
        return Ok(Read::Done(incoming(name, Err(fault)), end));
    };
    let body = Body { bytes, at: header.body, end, tidy, id: args };
    let call = body.read(bounds, |input| S::read_args(place, input))?;
    Ok(Read::Done(incoming(name(), Ok((place, call))), end))
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
    let id = match header.kind {
        kind::REPLY => S::schema().methods.get(place).map(|method| method.result),
        kind::EXCEPTION => Some(schema().application_exception()),
        _ => None,
    };
    let answered = |body| Answered { seqid: header.seqid, body };
    let Some(id) = id else {
        return Ok(Read::Refused(answered(AnswerBody::Kind(header.kind))));
    };
    let (end, tidy) = match check::check(bytes, header.body, id, schema(), bounds)? {
        Checked::Whole { end, tidy } => (end, tidy),
        Checked::Incomplete => return Ok(Read::Incomplete),
        Checked::Missing(text) => return Ok(Read::Refused(answered(AnswerBody::Incomplete(text)))),
    };
    let body = Body { bytes, at: header.body, end, tidy, id };
    let body = match header.kind {
        kind::REPLY => AnswerBody::Result(body.read(bounds, |input| S::read_result(place, input))?),
        _ => AnswerBody::Fault(body.read(bounds, read_fault)?),
    };
    Ok(Read::Done(answered(body), end))
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

/// Where the sequence id of a message of this method is, counted from the start of what was
/// appended.
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

/// A struct that has been checked.
pub(crate) struct Body<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
    pub(crate) end: usize,
    pub(crate) tidy: bool,
    pub(crate) id: StructId,
}

impl Body<'_> {
    /// Lets a typed reader have it, after a rewriting if it needs one.
    pub(crate) fn read<T>(
        &self,
        bounds: Bounds,
        read: impl FnOnce(&mut Input<'_>) -> thrift::Result<T>,
    ) -> Result<T, Malformed> {
        let rewritten;
        let bytes = if self.tidy {
            self.bytes.get(self.at..self.end).ok_or(Malformed::Unreadable)?
        } else {
            rewritten = check::rewrite(self.bytes, self.at, self.id, schema(), bounds)
                .ok_or(Malformed::Unreadable)?;
            &rewritten
        };
        let mut input = Input::with_config(bytes, true, TConfiguration::no_limits());
        read(&mut input).map_err(|_| Malformed::Unreadable)
    }
}

fn read_fault(input: &mut Input<'_>) -> thrift::Result<ApplicationFault> {
    use super::service::{Wire, next_field};
    use thrift::protocol::TInputProtocol;

    let mut fault = ApplicationFault { kind: FaultKind::Unknown, message: String::new() };
    while let Some((id, kind)) = next_field(input)? {
        match id {
            1 => fault.message = Wire::read(input)?,
            2 => fault.kind = FaultKind::from_number(Wire::read(input)?),
            _ => input.skip(kind)?,
        }
    }
    Ok(fault)
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
    out.extend_from_slice(&(name.len() as u32).to_be_bytes());
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
