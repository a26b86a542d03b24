//! How a connection begins. Spec: mapreduce/01 §1.2.

use std::net::IpAddr;

use corona_access::Peer;

use crate::io::formats::{Format, List, Text, VInt, Writable};
use crate::io::{DecodeError, Reader, Writer};

/// The first bytes of a connection: `hrpc` and the version. The length of the header follows.
pub const MAGIC: [u8; 5] = *b"hrpc\x03";

/// The kind of user that the original writes, and the only one that it takes.
const USER_KIND: &str = "STRING_UGI";

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionHeader {
    /// The name of the Java interface whose methods will be called.
    pub protocol: String,
    /// The user of the calls, if named.
    pub user: Option<User>,
}

/// A user by name. Nothing proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The user's groups. The original needs one at least.
    pub groups: Vec<String>,
}

/// The origin of a call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The other end of the connection.
    pub peer: Peer,
    /// The user that its certificate names, or else that it claims to be.
    pub user: Option<User>,
}

impl Caller {
    /// A peer with its claim.
    pub fn new(peer: Peer, claimed: Option<User>) -> Caller {
        // A certificate names no groups.
        let certified = peer.own_user().map(|name| User { name, groups: vec![] });
        Caller { peer, user: certified.or(claimed) }
    }

    /// From where.
    pub fn ip(&self) -> IpAddr {
        self.peer.ip()
    }
}

impl Writable for ConnectionHeader {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let protocol = Text::decode(reader)?;
        let user = reader.bool()?.then(|| User::decode(reader)).transpose()?;
        Ok(ConnectionHeader { protocol, user })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.text(&self.protocol);
        writer.bool(self.user.is_some());
        if let Some(user) = &self.user {
            user.encode(writer);
        }
    }
}

impl Writable for User {
    /// Errors: also a user of another kind.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = reader.text()?;
        if kind != USER_KIND {
            return Err(DecodeError::constant("kind of user", &kind));
        }
        let name = Text::decode(reader)?;
        Ok(User { name, groups: List::<VInt, Text>::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.text(USER_KIND);
        writer.text(&self.name);
        List::<VInt, Text>::encode(&self.groups, writer);
    }
}

impl ConnectionHeader {
    /// All that a client sends before its first call: the magic bytes, a length, the header.
    pub(super) fn preamble(&self, max_bytes: usize) -> Result<Vec<u8>, crate::io::TooLarge> {
        let mut header = Writer::new(max_bytes);
        self.encode(&mut header);
        let header = header.finish()?;
        let mut writer = Writer::new(usize::MAX);
        writer.put(&MAGIC);
        let length = writer.count(header.len());
        writer.i32(length);
        writer.put(&header);
        writer.finish()
    }
}
