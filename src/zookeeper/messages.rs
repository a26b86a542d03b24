//! The messages as bytes: integers of a fixed length, the highest byte first, and texts and data with their
//! length before them. A frame is a length and a message.

use std::fmt;

use bytes::BufMut;
use thiserror::Error;

/// The longest message in either direction. An election's nodes have some hundred bytes.
pub const MAX_FRAME_BYTES: usize = 64 << 10;

/// The number in front of an event, which answers no request.
pub(crate) const EVENT: i32 = -1;
/// The number of a ping and its reply.
pub(crate) const PING: i32 = -2;
/// What a session's password is long.
const PASSWORD_BYTES: usize = 16;
/// A version that agrees with any.
const ANY_VERSION: i32 = -1;

/// The numbers of the operations.
mod operation {
    pub(super) const CREATE: i32 = 1;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET: i32 = 4;
    pub(super) const SET: i32 = 5;
    pub(super) const PING: i32 = 11;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CLOSE: i32 = -11;
    /// Ends a list of operations, and stands for one that failed.
    pub(super) const NONE: i32 = -1;
}

/// A reason of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// The node does not exist.
    pub const NO_NODE: Code = Code(-101);
    /// The node has another version.
    pub const BAD_VERSION: Code = Code(-103);
    /// The node exists already.
    pub const NODE_EXISTS: Code = Code(-110);
    /// The session has ended.
    pub const SESSION_EXPIRED: Code = Code(-112);
    const OK: Code = Code(0);
    /// Of the changes behind the one that was refused.
    const NOT_TRIED: Code = Code(-2);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Code::NO_NODE => f.write_str("no such node"),
            Code::BAD_VERSION => f.write_str("the node has another version"),
            Code::NODE_EXISTS => f.write_str("the node exists"),
            Code::SESSION_EXPIRED => f.write_str("the session has expired"),
            Code(other) => write!(f, "error {other}"),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({}: {self})", self.0)
    }
}

/// How long a node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is deleted.
    Persistent,
    /// At most as long as the session that creates it.
    Session,
}

/// A change, or a condition, in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates a node that does not exist.
    Create {
        /// Its path.
        path: String,
        /// Its content.
        data: Vec<u8>,
        /// How long it exists.
        lifetime: Lifetime,
    },
    /// Replaces the content of a node.
    Set {
        /// Its path.
        path: String,
        /// The new content.
        data: Vec<u8>,
        /// The version that it must have; `None` for any.
        version: Option<i32>,
    },
    /// Requires a version of a node.
    Check {
        /// Its path.
        path: String,
        /// The version.
        version: i32,
    },
}

/// What is asked of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Create { path: String, data: Vec<u8>, lifetime: Lifetime },
    Set { path: String, data: Vec<u8>, version: Option<i32> },
    Get { path: String, watch: bool },
    Exists { path: String, watch: bool },
    Transaction(Vec<Change>),
    Close,
}

/// What a server has replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Without content.
    Done,
    /// The version of a node.
    Version(i32),
    /// The content of a node, and its version.
    Data(Vec<u8>, i32),
    /// Of each change, the version of its node; 0 where it has none.
    Versions(Vec<i32>),
    Refused(Code),
    ChangeRefused(usize, Code),
}

/// A message is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It ends too early.
    #[error("a message ends too early")]
    TooShort,
    /// It is longer than it should be.
    #[error("bytes follow a message")]
    TrailingBytes,
    /// A length is negative or too large.
    #[error("a length of {0} is not possible")]
    Length(i32),
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A transaction's results are not those of its changes.
    #[error("the results of a transaction do not fit to its changes")]
    Results,
    /// It answers another request, or none.
    #[error("a message answers nothing that was asked")]
    Unasked,
}

impl Request {
    /// Whether the server is to report the next change of the node.
    pub(crate) fn watches(&self) -> bool {
        matches!(self, Request::Get { watch: true, .. } | Request::Exists { watch: true, .. })
    }

    /// The frame of the request with this number.
    pub(crate) fn frame(&self, number: i32) -> Vec<u8> {
        framed(|bytes| {
            bytes.put_i32(number);
            match self {
                Request::Create { path, data, lifetime } => {
                    bytes.put_i32(operation::CREATE);
                    put_create(bytes, path, data, *lifetime);
                }
                Request::Set { path, data, version } => {
                    bytes.put_i32(operation::SET);
                    put_set(bytes, path, data, *version);
                }
                Request::Get { path, watch } => {
                    bytes.put_i32(operation::GET);
                    put_bytes(bytes, path.as_bytes());
                    bytes.put_u8(u8::from(*watch));
                }
                Request::Exists { path, watch } => {
                    bytes.put_i32(operation::EXISTS);
                    put_bytes(bytes, path.as_bytes());
                    bytes.put_u8(u8::from(*watch));
                }
                Request::Transaction(changes) => {
                    bytes.put_i32(operation::MULTI);
                    changes.iter().for_each(|change| put_change(bytes, change));
                    put_multi_header(bytes, operation::NONE, true);
                }
                Request::Close => bytes.put_i32(operation::CLOSE),
            }
        })
    }

    /// The reply in the bytes behind a header with this code.
    pub(crate) fn reply(&self, code: i32, content: &[u8]) -> Result<Reply, Malformed> {
        if Code(code) != Code::OK {
            return Ok(Reply::Refused(Code(code)));
        }
        let mut reader = Reader(content);
        let reply = match self {
            Request::Create { .. } => {
                reader.text()?;
                Reply::Done
            }
            Request::Set { .. } | Request::Exists { .. } => Reply::Version(reader.stat()?),
            Request::Get { .. } => {
                let data = reader.bytes()?.to_vec();
                Reply::Data(data, reader.stat()?)
            }
            Request::Transaction(changes) => reader.results(changes)?,
            Request::Close => Reply::Done,
        };
        reader.end()?;
        Ok(reply)
    }
}

/// The frame that opens a connection: of a new session, or of one that continues.
pub(crate) fn opening(session: &Credentials, last_seen: i64, timeout_ms: i32) -> Vec<u8> {
    framed(|bytes| {
        bytes.put_i32(0);
        bytes.put_i64(last_seen);
        bytes.put_i32(timeout_ms);
        bytes.put_i64(session.id);
        put_bytes(bytes, &session.password);
        bytes.put_u8(0);
    })
}

/// The frame of a ping.
pub(crate) fn ping() -> Vec<u8> {
    framed(|bytes| {
        bytes.put_i32(PING);
        bytes.put_i32(operation::PING);
    })
}

/// What makes a connection one of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) id: i64,
    pub(crate) password: [u8; PASSWORD_BYTES],
}

/// What a server replies to the opening of a connection. `None`: the session has ended.
pub(crate) fn opened(message: &[u8]) -> Result<Option<(Credentials, i32)>, Malformed> {
    let mut reader = Reader(message);
    reader.int()?;
    let timeout_ms = reader.int()?;
    let id = reader.long()?;
    let password = reader.bytes()?;
    // Newer servers add whether they are read-only.
    if timeout_ms <= 0 {
        return Ok(None);
    }
    let length = i32::try_from(password.len()).unwrap_or(i32::MAX);
    let password = password.try_into().map_err(|_| Malformed::Length(length))?;
    Ok(Some((Credentials { id, password }, timeout_ms)))
}

/// The header of a message: the number of the request, the server's last change, and a code.
pub(crate) fn header(message: &[u8]) -> Result<(i32, i64, i32, &[u8]), Malformed> {
    let mut reader = Reader(message);
    Ok((reader.int()?, reader.long()?, reader.int()?, reader.0))
}

/// Checks the content of an event. The path that has changed is not needed: the watcher reads again.
pub(crate) fn check_event(content: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader(content);
    reader.int()?;
    reader.int()?;
    reader.text()?;
    reader.end()
}

/// Reads bytes as each kind of message. For fuzzing: none may panic.
pub fn fuzz_reply(bytes: &[u8]) {
    let path = || "/a".to_owned();
    let (data, version, lifetime) = (vec![], None, Lifetime::Session);
    let changes = vec![
        Change::Check { path: path(), version: 0 },
        Change::Create { path: path(), data: data.clone(), lifetime },
        Change::Set { path: path(), data: data.clone(), version },
    ];
    let (watch, other) = (true, data.clone());
    // Whether bytes are a message makes no difference here.
    let _ = (opened(bytes), check_event(bytes));
    let Ok((_, _, code, content)) = header(bytes) else { return };
    for request in [
        Request::Create { path: path(), data, lifetime },
        Request::Set { path: path(), data: other, version },
        Request::Get { path: path(), watch },
        Request::Exists { path: path(), watch },
        Request::Transaction(changes),
        Request::Close,
    ] {
        let _ = (request.reply(code, content), request.reply(0, content));
    }
}

fn framed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    write(&mut bytes);
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    if let Some(begin) = bytes.first_chunk_mut() {
        *begin = length.to_be_bytes();
    }
    bytes
}

fn put_bytes(bytes: &mut Vec<u8>, data: &[u8]) {
    bytes.put_i32(i32::try_from(data.len()).unwrap_or(i32::MAX));
    bytes.put_slice(data);
}

fn put_create(bytes: &mut Vec<u8>, path: &str, data: &[u8], lifetime: Lifetime) {
    const ALL_RIGHTS: i32 = 31;
    put_bytes(bytes, path.as_bytes());
    put_bytes(bytes, data);
    bytes.put_i32(1);
    bytes.put_i32(ALL_RIGHTS);
    put_bytes(bytes, b"world");
    put_bytes(bytes, b"anyone");
    bytes.put_i32(match lifetime {
        Lifetime::Persistent => 0,
        Lifetime::Session => 1,
    });
}

fn put_set(bytes: &mut Vec<u8>, path: &str, data: &[u8], version: Option<i32>) {
    put_bytes(bytes, path.as_bytes());
    put_bytes(bytes, data);
    bytes.put_i32(version.unwrap_or(ANY_VERSION));
}

fn put_multi_header(bytes: &mut Vec<u8>, operation: i32, is_last: bool) {
    bytes.put_i32(operation);
    bytes.put_u8(u8::from(is_last));
    bytes.put_i32(-1);
}

fn put_change(bytes: &mut Vec<u8>, change: &Change) {
    put_multi_header(bytes, change.operation(), false);
    match change {
        Change::Create { path, data, lifetime } => put_create(bytes, path, data, *lifetime),
        Change::Set { path, data, version } => put_set(bytes, path, data, *version),
        Change::Check { path, version } => {
            put_bytes(bytes, path.as_bytes());
            bytes.put_i32(*version);
        }
    }
}

impl Change {
    fn operation(&self) -> i32 {
        match self {
            Change::Create { .. } => operation::CREATE,
            Change::Set { .. } => operation::SET,
            Change::Check { .. } => operation::CHECK,
        }
    }
}

/// The bytes of a message that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (fixed, rest) = self.0.split_first_chunk().ok_or(Malformed::TooShort)?;
        self.0 = rest;
        Ok(*fixed)
    }

    fn int(&mut self) -> Result<i32, Malformed> {
        self.fixed().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> Result<i64, Malformed> {
        self.fixed().map(i64::from_be_bytes)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        self.fixed::<1>().map(|[byte]| byte != 0)
    }

    /// Absent data is empty.
    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = match self.int()? {
            -1 => 0,
            length => usize::try_from(length).map_err(|_| Malformed::Length(length))?,
        };
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed::TooShort)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)
    }

    /// The version in a node's statistics.
    fn stat(&mut self) -> Result<i32, Malformed> {
        // Two numbers of changes and two times before, and the rest behind.
        self.fixed::<32>()?;
        let version = self.int()?;
        self.fixed::<32>()?;
        Ok(version)
    }

    /// One result for each change, of the same kind; or errors for all of them.
    fn results(&mut self, changes: &[Change]) -> Result<Reply, Malformed> {
        let (mut versions, mut refused) = (Vec::new(), None);
        for (place, change) in changes.iter().enumerate() {
            let (operation, is_last, _) = (self.int()?, self.flag()?, self.int()?);
            if is_last {
                return Err(Malformed::Results);
            }
            if operation == operation::NONE {
                let code = Code(self.int()?);
                // Those before the one that failed have no error of their own.
                if code != Code::OK && code != Code::NOT_TRIED && refused.is_none() {
                    refused = Some((place, code));
                }
                continue;
            }
            if operation != change.operation() {
                return Err(Malformed::Results);
            }
            versions.push(match change {
                Change::Create { .. } => {
                    self.text()?;
                    0
                }
                Change::Set { .. } => self.stat()?,
                Change::Check { .. } => 0,
            });
        }
        let (operation, is_last, _) = (self.int()?, self.flag()?, self.int()?);
        if operation != operation::NONE || !is_last {
            return Err(Malformed::Results);
        }
        match refused {
            Some((place, code)) => Ok(Reply::ChangeRefused(place, code)),
            None if versions.len() == changes.len() => Ok(Reply::Versions(versions)),
            None => Err(Malformed::Results),
        }
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::TrailingBytes) }
    }
}
