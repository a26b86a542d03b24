//! Opens files of traffic: packet captures (pcap and pcapng) and recordings, each optionally
//! compressed with gzip. Their first bytes distinguish them.
//!
//! It knows only how each kind begins. The result is the same for all of them: a
//! [`Capture`], and from it conversations.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::ops::ControlFlow;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::capture::{
    Capture, CaptureError, Collector, ConnectionId, EventKind, ImportSummary, Imported, Limits,
    PacketCounts, StreamEvent,
};
use crate::conversation::{Conversation, Offered, Ports, conversations_of_known_servers};
use crate::recording::{self, Entry, Header, MAGIC, Record, Unrecorded};

/// The contents of a file of traffic.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The connections.
    pub capture: Capture,
    /// The header, if the file is a recording.
    pub recording: Option<Header>,
    /// Data that the recording's writer reported as not recorded; none for a packet capture, or if
    /// the writer did not finish.
    pub unrecorded: Option<Unrecorded>,
    /// The services of connections, if the file contains them.
    pub services: BTreeMap<ConnectionId, Offered>,
}

/// Reads a file of traffic.
///
/// Errors: the file cannot be opened or read, or it is neither a packet capture nor a recording.
/// [`Capture::ending`] reports a damaged rest.
pub fn open(path: &Path, limits: &Limits) -> Result<Traffic, CaptureError> {
    let file = File::open(path).map_err(CaptureError::Read)?;
    Traffic::read(file, limits)
}

impl Traffic {
    /// The same for any source. It is read once, from front to back.
    pub fn read(source: impl Read + Send, limits: &Limits) -> Result<Self, CaptureError> {
        match sniff(source)? {
            Source::Packets(source) => Ok(Traffic {
                capture: Capture::read(source, limits)?,
                recording: None,
                unrecorded: None,
                services: BTreeMap::new(),
            }),
            Source::Recording(source) => of_recording(source, limits),
        }
    }

    /// The messages, in the order in which connections were opened. Services in the file take
    /// precedence over `ports`, which may be empty for a recording. Session drivers are found in
    /// registrations.
    pub fn conversations(&self, ports: &Ports) -> Vec<Conversation> {
        conversations_of_known_servers(&self.capture, ports, &self.services)
    }
}

/// A source whose first bytes have been looked at, and are still to be read.
pub enum Source<'a> {
    /// Not a recording: a packet capture, or nothing that is known.
    Packets(Box<dyn Read + Send + 'a>),
    /// A recording of `corona record` or `corona import`.
    Recording(Box<dyn Read + Send + 'a>),
}

/// Detects the format of a source, below gzip if it is compressed.
///
/// Errors: those of the source.
pub fn sniff<'a>(source: impl Read + Send + 'a) -> Result<Source<'a>, CaptureError> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let (start, source) = peek(BufReader::with_capacity(1 << 16, source))?;
    if start.is_empty() {
        return Err(CaptureError::Empty);
    }
    if !start.starts_with(&GZIP) {
        return Ok(of_start(&start, source));
    }
    let (start, source) = peek(MultiGzDecoder::new(source))?;
    Ok(of_start(&start, source))
}

fn of_start<'a>(start: &[u8], source: impl Read + Send + 'a) -> Source<'a> {
    match start.starts_with(&MAGIC) {
        true => Source::Recording(Box::new(source)),
        false => Source::Packets(Box::new(source)),
    }
}

/// The first bytes of a source, fewer only if it has no more, and a source that has them still.
fn peek<R: Read>(mut source: R) -> Result<(Vec<u8>, impl Read), CaptureError> {
    let mut start = Vec::new();
    let wanted = MAGIC.len() as u64;
    let read = io::Read::by_ref(&mut source).take(wanted).read_to_end(&mut start);
    read.map_err(CaptureError::Read)?;
    Ok((start.clone(), Cursor::new(start).chain(source)))
}

fn of_recording(source: impl Read, limits: &Limits) -> Result<Traffic, CaptureError> {
    let mut collector = Collector::new(limits);
    let mut services = BTreeMap::new();
    let summary = recording::read(source, limits, |entry| {
        if let Record::Opened { service: Some(service), .. } = entry.record {
            services.insert(entry.connection, service);
        }
        imported(entry).map_or(ControlFlow::Continue(()), |imported| collector.take(imported))
    })?;
    let capture = collector.finish(ImportSummary {
        started_at_us: summary.header.started_at_us,
        packets: PacketCounts::default(),
        ending: summary.ending,
    });
    Ok(Traffic {
        capture,
        recording: Some(summary.header),
        unrecorded: summary.unrecorded,
        services,
    })
}

/// An entry in the words of a packet capture.
fn imported(entry: Entry) -> Option<Imported> {
    let Entry { at, connection, record } = entry;
    let event = |from, what| Some(Imported::Event(connection, StreamEvent { at, from, what }));
    match record {
        Record::Opened { opening, .. } => Some(Imported::Opened(connection, opening)),
        Record::Accepted => Some(Imported::Accepted(connection)),
        Record::Data(from, data) => event(from, EventKind::Data(data)),
        Record::Gap(from, bytes, _) => event(from, EventKind::Missing(bytes)),
        Record::End(from) => event(from, EventKind::End),
        Record::Reset(from) => event(from, EventKind::Reset),
        Record::Closed | Record::Finished(_) | Record::Note { .. } => None,
    }
}
