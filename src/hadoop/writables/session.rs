//! Which session an action comes from, and where its job tracker listens.
//! Spec: mapreduce/02 §2.1, §2.7.

use super::{named, writable};
use crate::io::formats::{Format, WString, Writable};
use crate::io::{DecodeError, Reader, Writer};

/// A host and a port, Java's `InetSocketAddress`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InetAddress {
    /// A name or a literal address.
    pub host: String,
    /// From 0 to 65,535.
    pub port: u16,
}

impl Writable for InetAddress {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let host = WString::decode(reader)?;
        let port = reader.vint()?;
        let port = u16::try_from(port).map_err(|_| DecodeError::Port(port))?;
        Ok(InetAddress { host, port })
    }

    fn encode(&self, writer: &mut Writer) {
        writer.wstring(Some(&self.host));
        writer.vint(self.port.into());
    }
}

impl std::fmt::Display for InetAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

named!(InetAddress: "org.apache.hadoop.mapred.CoronaSessionInfo$InetSocketAddressWritable");

writable! {
    /// The session on whose behalf a tracker gets an order.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SessionInfo: "org.apache.hadoop.mapred.CoronaSessionInfo" {
        /// The session's handle. Actions without one are ignored by trackers.
        pub handle: Option<String> as WString,
        /// The address of the session's job tracker, and another one to ask.
        pub trackers: SessionTrackers as crate::io::formats::Plain,
    }
}

/// Where a session's job tracker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTrackers {
    /// The address of now.
    pub job_tracker: InetAddress,
    /// The address that knows the job tracker's new address when the old one does not answer.
    pub secondary: Option<InetAddress>,
}

/// Added to the port of a job tracker when a second address follows.
const HAS_SECONDARY: i32 = 1 << 16;

impl Writable for SessionTrackers {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let host = WString::decode(reader)?;
        let marked = reader.vint()?;
        // The original divides, so that greater multiples count too.
        let port = u16::try_from(marked % HAS_SECONDARY).map_err(|_| DecodeError::Port(marked))?;
        let has_secondary = marked >= HAS_SECONDARY;
        let secondary = has_secondary.then(|| InetAddress::decode(reader)).transpose()?;
        Ok(SessionTrackers { job_tracker: InetAddress { host, port }, secondary })
    }

    fn encode(&self, writer: &mut Writer) {
        let InetAddress { host, port } = &self.job_tracker;
        let mark = if self.secondary.is_some() { HAS_SECONDARY } else { 0 };
        writer.wstring(Some(host));
        writer.vint(i32::from(*port) + mark);
        if let Some(secondary) = &self.secondary {
            secondary.encode(writer);
        }
    }
}
