//! Turns a packet capture into a recording, packet by packet: a capture may be larger than memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::Duration;

use super::layout::header_bytes;
use super::{Entry, GapReason, Header, Origin, Record, RecordingWriter, Unrecorded};
use crate::capture::{
    CaptureError, ConnectionId, EventKind, ImportSummary, Imported, Limits, Side, import,
};
use crate::conversation::{Offered, Ports};

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The summary of the file that was read.
    pub read: ImportSummary,
    /// Connections in the recording.
    pub connections: u64,
    /// Those of them to the port of the cluster manager.
    pub to_cluster_manager: u64,
    /// The addresses that these connections go to.
    pub managers: BTreeSet<IpAddr>,
    /// Bytes of data in the recording.
    pub bytes: u64,
    /// Bytes that connections sent and that are not in the capture.
    pub missing_bytes: u64,
}

/// Why a capture cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The recording cannot be written.
    #[error("cannot write the recording: {0}")]
    Write(io::Error),
}

/// Writes the connections of the packet capture `source`, which is called `name`, to `out`, which
/// is empty. Servers at `ports` are recorded with their protocols.
pub fn convert(
    source: impl Read + Send,
    name: &str,
    limits: &Limits,
    ports: &Ports,
    out: impl Write + Seek,
) -> Result<Converted, ConvertError> {
    let mut header =
        Header { origin: Origin::Import, upstream: name.to_owned(), ..Header::default() };
    let writer = RecordingWriter::new(out, &header).map_err(ConvertError::Write)?;
    let mut conversion = Conversion::new(ports, writer, limits.connections);
    let mut failure = None;
    let read = import(source, limits, |imported| match conversion.take(imported) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    })?;
    if let Some(error) = failure {
        return Err(ConvertError::Write(error));
    }
    // When the capture begins is known only now.
    header.started_at_us = read.started_at_us;
    conversion.finish(&header).map_err(ConvertError::Write)?;
    let Counts { connections, to_cluster_manager, managers, bytes, missing_bytes, .. } =
        conversion.done;
    Ok(Converted { read, connections, to_cluster_manager, managers, bytes, missing_bytes })
}

struct Conversion<'a, W> {
    ports: &'a Ports,
    writer: RecordingWriter<W>,
    open: HashMap<ConnectionId, Open>,
    /// The same by the time of the last entry about them, the stalest first.
    by_age: BTreeMap<u64, ConnectionId>,
    age: u64,
    /// Connections that may be open at a time. Beyond it the stalest one is taken as closed, as
    /// readers of the recording follow no more of them.
    max_open: usize,
    /// A disconnected connection that may still get entries right after.
    broken: Option<ConnectionId>,
    done: Counts,
}

struct Open {
    age: u64,
    /// Which sides have ended, client first.
    ended: [bool; 2],
}

#[derive(Default)]
struct Counts {
    connections: u64,
    to_cluster_manager: u64,
    managers: BTreeSet<IpAddr>,
    bytes: u64,
    missing_bytes: u64,
    latest: Duration,
}

impl<'a, W: Write + Seek> Conversion<'a, W> {
    fn new(ports: &'a Ports, writer: RecordingWriter<W>, max_open: usize) -> Self {
        Conversion {
            ports,
            writer,
            open: HashMap::new(),
            by_age: BTreeMap::new(),
            age: 0,
            max_open: max_open.max(1),
            broken: None,
            done: Counts::default(),
        }
    }

    fn take(&mut self, imported: Imported) -> io::Result<()> {
        let (connection, at, record) = match imported {
            Imported::Opened(id, opening) => {
                self.done.connections += 1;
                let service = self.service(opening.server);
                if service == Some(Offered::ClusterManager) {
                    self.done.managers.insert(opening.server.ip());
                }
                self.done.to_cluster_manager += u64::from(service == Some(Offered::ClusterManager));
                (id, opening.at, Record::Opened { opening, service })
            }
            Imported::Accepted(id) => (id, self.done.latest, Record::Accepted),
            Imported::Event(id, event) => (id, event.at, self.event(event.from, event.what)),
        };
        if let Some(broken) = self.broken.filter(|broken| *broken != connection) {
            self.close(broken)?;
        }
        if matches!(record, Record::Opened { .. }) {
            self.make_room()?;
            self.open.insert(connection, Open { age: 0, ended: [false; 2] });
        }
        self.done.latest = self.done.latest.max(at);
        self.touch(connection);
        let is_over = match &record {
            Record::End(side) => self.has_ended(connection, *side),
            Record::Reset(_) => {
                self.broken = Some(connection);
                false
            }
            _ => false,
        };
        self.writer.write(&Entry { at, connection, record })?;
        if is_over { self.close(connection) } else { Ok(()) }
    }

    /// Takes the stalest connection as closed where there are too many.
    fn make_room(&mut self) -> io::Result<()> {
        while self.open.len() >= self.max_open {
            let Some((_, stalest)) = self.by_age.pop_first() else { break };
            self.close(stalest)?;
        }
        Ok(())
    }

    /// An entry is about a connection.
    fn touch(&mut self, connection: ConnectionId) {
        let Some(open) = self.open.get_mut(&connection) else { return };
        self.by_age.remove(&open.age);
        self.age += 1;
        open.age = self.age;
        self.by_age.insert(self.age, connection);
    }

    /// Notes that a side has ended. Whether both have.
    fn has_ended(&mut self, connection: ConnectionId, side: Side) -> bool {
        let Some(open) = self.open.get_mut(&connection) else { return false };
        *side.of(open.ended.each_mut()) = true;
        open.ended == [true; 2]
    }

    /// Marks the end of a connection, so that readers may drop it.
    fn close(&mut self, connection: ConnectionId) -> io::Result<()> {
        self.broken = self.broken.filter(|broken| *broken != connection);
        let Some(open) = self.open.remove(&connection) else { return Ok(()) };
        self.by_age.remove(&open.age);
        self.writer.write(&Entry { at: self.done.latest, connection, record: Record::Closed })
    }

    fn event(&mut self, from: Side, what: EventKind) -> Record {
        match what {
            EventKind::Data(data) => {
                self.done.bytes += data.len() as u64;
                Record::Data(from, data)
            }
            EventKind::Missing(bytes) => {
                self.done.missing_bytes += bytes;
                Record::Gap(from, bytes, GapReason::NotCaptured)
            }
            EventKind::End => Record::End(from),
            EventKind::Reset => Record::Reset(from),
        }
    }

    fn service(&self, server: SocketAddr) -> Option<Offered> {
        match server.port() {
            0 => None,
            port if port == self.ports.cluster_manager => {
                self.ports.has_manager(server).then_some(Offered::ClusterManager)
            }
            port if Some(port) == self.ports.proxy_job_tracker => Some(Offered::ProxyJobTracker),
            _ => None,
        }
    }

    fn finish(&mut self, header: &Header) -> io::Result<()> {
        let record = Record::Finished(Unrecorded::default());
        let at = self.done.latest;
        self.writer.write(&Entry { at, connection: ConnectionId(0), record })?;
        self.writer.flush()?;
        let out = self.writer.get_mut();
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&header_bytes(header))?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::capture::{Ending, Opening, StreamEvent};
    use crate::recorded;
    use crate::setup::RecordedSetup;
    use crate::{Traffic, open};

    #[test]
    fn a_converted_capture_says_the_same() {
        for name in ["scenarios/wire", "scenarios/grants", "jobs/remote-sleep"] {
            let directory = recorded::directory(name);
            let path = directory.join("traffic.pcap");
            let ports = RecordedSetup::read(&directory).unwrap().ports;
            let limits = Limits::default();
            let captured = open(&path, &limits).unwrap();
            let mut file = Cursor::new(Vec::new());
            let source = std::fs::File::open(&path).unwrap();
            let converted = convert(source, "traffic.pcap", &limits, &ports, &mut file).unwrap();
            let recorded = Traffic::read(&*file.into_inner(), &limits).unwrap();
            assert_eq!(recorded.capture.connections, captured.capture.connections, "{name}");
            assert_eq!(recorded.capture.started_at_us, captured.capture.started_at_us, "{name}");
            assert_eq!(converted.connections, captured.capture.connections.len() as u64, "{name}");
            assert_eq!(recorded.unrecorded, Some(Unrecorded::default()), "{name}");
            // The recording itself names the services.
            let with_ports = captured.conversations(&ports);
            let without = recorded.conversations(&Ports::default());
            assert!(!with_ports.is_empty());
            assert_eq!(format!("{without:?}"), format!("{with_ports:?}"), "{name}");
        }
    }

    #[test]
    fn no_more_connections_are_open_than_readers_follow() {
        let limits = Limits { connections: 2, ..Limits::default() };
        let header = Header { origin: Origin::Import, ..Header::default() };
        let ports = Ports::default();
        let mut file = Cursor::new(Vec::new());
        let writer = RecordingWriter::new(&mut file, &header).unwrap();
        let mut conversion = Conversion::new(&ports, writer, limits.connections);
        let ms = Duration::from_millis;
        let open = |id, at| {
            let [client, server] = ["127.0.0.1:1", "127.0.0.1:2"].map(|at| at.parse().unwrap());
            let opening = Opening { client, server, at: ms(at), whole: true };
            Imported::Opened(ConnectionId(id), opening)
        };
        let say = |id, at, what| {
            let event = StreamEvent { at: ms(at), from: Side::Client, what };
            Imported::Event(ConnectionId(id), event)
        };
        let data = |text: &str| EventKind::Data(text.as_bytes().to_vec());
        for imported in [
            open(0, 1),
            open(1, 2),
            say(0, 3, data("old but busy")),
            open(2, 4),
            say(0, 5, data(", still")),
            say(1, 6, data("too late")),
            say(2, 7, EventKind::Reset),
            open(3, 8),
        ] {
            conversion.take(imported).unwrap();
        }
        assert_eq!(conversion.open.len(), conversion.by_age.len());
        conversion.finish(&header).unwrap();
        let traffic = Traffic::read(&*file.into_inner(), &limits).unwrap();
        assert_eq!(traffic.capture.ending, Ending::Complete);
        let said: Vec<Vec<EventKind>> = traffic
            .capture
            .connections
            .iter()
            .map(|connection| connection.events.iter().map(|event| event.what.clone()).collect())
            .collect();
        let expected =
            [vec![data("old but busy"), data(", still")], vec![], vec![EventKind::Reset], vec![]];
        assert_eq!(said, expected);
    }
}
