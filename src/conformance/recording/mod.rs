//! The recording format: the traffic of connections in compressed blocks, each of which can be read alone.
//!
//! Knows connections and bytes, nothing of their meaning. The bytes are described in
//! `docs/reference/recording-format.md`. A file is written by a [`RecordingWriter`] and is readable up to its
//! last whole block, whatever happened to the writer. [`read`] streams: it needs the memory of one
//! block. A file is hostile input: lengths are checked before anything is allocated.

mod convert;
mod layout;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capture::{ConnectionId, Opening, Side};
use crate::conversation::Offered;

pub use convert::{ConvertError, Converted, convert};
pub(crate) use layout::MAGIC;
pub use reading::{RecordingSummary, read};
pub use writing::RecordingWriter;

/// The version that this program writes, and the only one that it reads.
pub const VERSION: u16 = 1;

/// The largest block in bytes, before and after compression. Larger ones are refused.
pub const MAX_BLOCK_BYTES: usize = 4 << 20;

/// The most bytes of one data record. Longer data is written as several.
pub const MAX_DATA_BYTES: usize = 256 << 10;

/// The header of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// When it was started: microseconds since the Unix epoch. All times count from here.
    pub started_at_us: u64,
    /// The program that made it.
    pub origin: Origin,
    /// Whether callbacks to session drivers were relayed and recorded.
    pub relay_callbacks: bool,
    /// Where clients connected, as it was given on the command line; empty for an import.
    pub listener: String,
    /// The cluster manager behind the relay; for an import, the name of the file.
    pub upstream: String,
}

/// The program that made a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A relay between clients and a cluster manager.
    #[default]
    Relay,
    /// A packet capture that was converted.
    Import,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, since the start, in whole microseconds.
    pub at: Duration,
    /// On which connection. 0 and without a meaning for [`Record::Finished`] and [`Record::Note`].
    pub connection: ConnectionId,
    /// The event.
    pub record: Record,
}

/// The events of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A connection begins. The times of the opening and of the entry are the same.
    Opened {
        /// The addresses of client and server.
        opening: Opening,
        /// The server's service, if it is known.
        service: Option<Offered>,
    },
    /// The server took the connection.
    Accepted,
    /// Bytes that a side sent.
    Data(Side, Vec<u8>),
    /// A side will send no more (FIN).
    End(Side),
    /// A side broke the connection off (RST).
    Reset(Side),
    /// So many bytes of a side passed, but are not in the file.
    Gap(Side, u64, GapReason),
    /// The connection is over, and no more entries are about it.
    Closed,
    /// The recording was ended in order; the last record.
    Finished(Unrecorded),
    /// A note of the program that made the recording, which nothing passed for: see `corona shadow
    /// --keep-events`.
    Note {
        /// Whether the next note continues this one.
        more: bool,
        /// At most [`MAX_DATA_BYTES`].
        text: Vec<u8>,
    },
}

/// Why bytes are not in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// They are not in the packet capture that was converted.
    NotCaptured,
    /// The buffer to the disk was full.
    BufferFull,
}

/// How much passed the relay without being recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unrecorded {
    /// Connections without any record.
    pub connections: u64,
    /// Bytes, of those connections and of gaps.
    pub bytes: u64,
}
