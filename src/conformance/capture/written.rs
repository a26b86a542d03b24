//! Packet captures that tests write: segments in all the forms that files, links and networks give them.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use etherparse::{PacketBuilder, PacketBuilderStep, TcpHeader};

use super::{Limits, file, packet};

/// A TCP segment at a time in microseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) at_us: u64,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: Option<u32>,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) reset: bool,
    pub(crate) data: Vec<u8>,
}

pub(crate) fn segments_of(capture: &[u8]) -> Vec<Written> {
    let mut all = Vec::new();
    let read = file::read_packets(capture, &Limits::default(), |packet| {
        if let Ok(segment) = packet::segment(packet.link_type, packet.bytes) {
            let packet::Segment { from, to, sequence, acknowledged, syn, fin, reset, .. } = segment;
            let (at_us, data) = (packet.at_us.unwrap(), segment.data.to_vec());
            let data = if data.len() == segment.sent_bytes { data } else { panic!("cut") };
            let written =
                Written { at_us, from, to, sequence, acknowledged, syn, fin, reset, data };
            all.push(written);
        }
        Ok(())
    });
    read.unwrap();
    all
}

/// The layers below IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Raw,
    Ethernet,
    Vlan,
    TwoVlans,
    Cooked,
    CookedAgain,
    Null,
}

impl Link {
    /// Its number in the registry of tcpdump.
    pub(crate) fn number(self) -> u16 {
        match self {
            Link::Raw => 101,
            Link::Ethernet | Link::Vlan | Link::TwoVlans => 1,
            Link::Cooked => 113,
            Link::CookedAgain => 276,
            Link::Null => 0,
        }
    }

    /// A packet with this IP packet in it.
    pub(crate) fn packet(self, ip: &[u8]) -> Vec<u8> {
        let is_v6 = ip[0] >> 4 == 6;
        let ether_type = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
        let ethernet = [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1];
        let front = match self {
            Link::Raw => Vec::new(),
            Link::Ethernet => [&ethernet[..], &ether_type].concat(),
            Link::Vlan => [&ethernet[..], &[0x81, 0, 0, 7], &ether_type].concat(),
            Link::TwoVlans => {
                [&ethernet[..], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7], &ether_type].concat()
            }
            Link::Cooked => [&[0; 14][..], &ether_type].concat(),
            Link::CookedAgain => [&ether_type[..], &[0; 18]].concat(),
            Link::Null => vec![if is_v6 { 30 } else { 2 }, 0, 0, 0],
        };
        [front, ip.to_vec()].concat()
    }
}

impl Written {
    /// An IP packet with the segment.
    pub(crate) fn ip(&self) -> Vec<u8> {
        let mut tcp = TcpHeader::new(self.from.port(), self.to.port(), self.sequence, 9_999);
        (tcp.syn, tcp.fin, tcp.rst) = (self.syn, self.fin, self.reset);
        (tcp.ack, tcp.acknowledgment_number) =
            (self.acknowledged.is_some(), self.acknowledged.unwrap_or(0));
        let mut bytes = Vec::new();
        let step: PacketBuilderStep<_> = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                PacketBuilder::ipv4(from.octets(), to.octets(), 9)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                PacketBuilder::ipv6(from.octets(), to.octets(), 9)
            }
            mixed => panic!("{mixed:?}"),
        };
        step.tcp_header(tcp).write(&mut bytes, &self.data).unwrap();
        bytes
    }
}

/// A packet as it stands in a file.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at_us: u64,
    /// The place of its interface in a pcapng file.
    pub(crate) interface: u32,
    pub(crate) bytes: Vec<u8>,
    /// Bytes that it had on the wire.
    pub(crate) sent: usize,
}

impl Record {
    pub(crate) fn new(at_us: u64, bytes: Vec<u8>) -> Record {
        Record { at_us, interface: 0, sent: bytes.len(), bytes }
    }
}

/// Segments as records of a link.
pub(crate) fn records(segments: &[Written], link: Link) -> Vec<Record> {
    let record = |segment: &Written| Record::new(segment.at_us, link.packet(&segment.ip()));
    segments.iter().map(record).collect()
}

/// A classic file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pcap {
    pub(crate) link_type: u16,
    pub(crate) big_endian: bool,
    pub(crate) nanoseconds: bool,
}

impl Pcap {
    pub(crate) fn of(link: Link) -> Pcap {
        Pcap { link_type: link.number(), big_endian: false, nanoseconds: false }
    }

    pub(crate) fn write(self, records: &[Record]) -> Vec<u8> {
        let number =
            |value: u32| if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut file = Vec::new();
        file.extend(number(if self.nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
        file.extend(if self.big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
        for value in [0, 0, 65_535, u32::from(self.link_type)] {
            file.extend(number(value));
        }
        for Record { at_us, bytes, sent, .. } in records {
            let (seconds, us) = ((at_us / 1_000_000) as u32, (at_us % 1_000_000) as u32);
            let fraction = if self.nanoseconds { us * 1_000 + 7 } else { us };
            for value in [seconds, fraction, bytes.len() as u32, *sent as u32] {
                file.extend(number(value));
            }
            file.extend(bytes);
        }
        file
    }
}

/// A pcapng file.
#[derive(Clone, Debug)]
pub(crate) struct PcapNg {
    /// The link types of its interfaces.
    pub(crate) links: Vec<u16>,
    /// Ticks of the clock: a power of 10, or of 2 with the top bit set.
    pub(crate) resolution: u8,
    /// Seconds that are to be added to every time.
    pub(crate) offset_s: i64,
    /// Whether there are comments, names, statistics, and blocks that nobody knows.
    pub(crate) comments: bool,
    /// How many packets a section has.
    pub(crate) section: usize,
}

impl PcapNg {
    pub(crate) fn of(link: Link) -> PcapNg {
        PcapNg {
            links: vec![link.number()],
            resolution: 9,
            offset_s: 0,
            comments: false,
            section: usize::MAX,
        }
    }

    pub(crate) fn write(&self, records: &[Record]) -> Vec<u8> {
        let mut file = Vec::new();
        for section in records.chunks(self.section.min(records.len().max(1))) {
            self.begin(&mut file);
            for record in section {
                self.packet(record, &mut file);
            }
            if self.comments {
                let statistics = [[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]].concat();
                block(&mut file, 5, &statistics);
            }
        }
        file
    }

    fn begin(&self, file: &mut Vec<u8>) {
        let mut section = vec![0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
        section.extend([0xff; 8]);
        section.extend(self.comment("a cluster"));
        block(file, 0x0a0d_0d0a, &section);
        for link in &self.links {
            let mut interface = [&link.to_le_bytes()[..], &[0, 0, 0, 0, 1, 0]].concat();
            interface.extend(option(9, &[self.resolution]));
            interface.extend(option(14, &self.offset_s.to_le_bytes()));
            interface.extend(self.comment("an interface"));
            interface.extend(option(0, &[]));
            block(file, 1, &interface);
        }
        if self.comments {
            block(
                file,
                4,
                &[1, 0, 9, 0, 127, 0, 0, 1, b'h', b'o', b's', b't', 0, 0, 0, 0, 0, 0, 0, 0],
            );
            block(file, 0x0bad_0000, &[1, 2, 3, 4]);
        }
    }

    fn packet(&self, record: &Record, file: &mut Vec<u8>) {
        let us = u128::from(record.at_us) - (i128::from(self.offset_s) * 1_000_000) as u128;
        let exponent = u32::from(self.resolution & 0x7f);
        let per_second = if self.resolution & 0x80 == 0 { 10_u128 } else { 2 }.pow(exponent);
        let ticks = (us * per_second).div_ceil(1_000_000) as u64;
        let mut body = Vec::new();
        let sizes = [record.bytes.len() as u32, record.sent as u32];
        for value in [record.interface, (ticks >> 32) as u32, ticks as u32].into_iter().chain(sizes)
        {
            body.extend(value.to_le_bytes());
        }
        body.extend(&record.bytes);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(self.comment("a packet"));
        block(file, 6, &body);
    }

    fn comment(&self, text: &str) -> Vec<u8> {
        if self.comments { option(1, text.as_bytes()) } else { Vec::new() }
    }
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut option = [code.to_le_bytes(), (value.len() as u16).to_le_bytes()].concat();
    option.extend(value);
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let size = (body.len() as u32 + 12).to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(size);
    file.extend(body);
    file.extend(size);
}

/// Compressed, in members of at most so many bytes.
pub(crate) fn gzip(file: &[u8], member: usize) -> Vec<u8> {
    let compressed = |part: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(part).unwrap();
        out.finish().unwrap()
    };
    file.chunks(member).flat_map(compressed).collect()
}
