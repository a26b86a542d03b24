//! From the bytes of one captured packet to a TCP segment: link layer, VLAN tags, IPv4 and IPv6.
//!
//! Knows nothing of streams. Lengths that disagree with the captured bytes are tolerated: offloads
//! and short captures make them usual.

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TcpSlice, TransportSlice};

/// The header fields of a TCP segment that a stream is put together from, and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) sequence: u32,
    /// The acknowledgement number, when it is valid.
    pub(super) acknowledged: Option<u32>,
    pub(super) syn: bool,
    pub(super) fin: bool,
    pub(super) reset: bool,
    pub(super) data: &'a [u8],
    /// Bytes of data that were sent; more than `data` holds in a short capture.
    pub(super) sent_bytes: usize,
}

/// Why a packet is not a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Another protocol: ARP, UDP, ICMP...
    OtherProtocol,
    /// A link type that is not known here.
    UnknownLinkType,
    /// A piece of an IP packet.
    Fragment,
    /// Headers that cannot be read.
    Malformed,
}

/// The segment in `bytes`, a packet of the type `link_type`.
pub(super) fn segment(link_type: u16, bytes: &[u8]) -> Result<Segment<'_>, Unusable> {
    let packet = slice(link_type, bytes)?;
    let Some(net) = &packet.net else {
        return Err(if packet.stop_err.is_some() {
            Unusable::Malformed
        } else {
            Unusable::OtherProtocol
        });
    };
    let (from, to, ip_bytes) = match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let claimed = usize::from(header.total_len())
                .saturating_sub(header.slice().len())
                .saturating_sub(ip.extensions().auth.as_ref().map_or(0, |auth| auth.slice().len()));
            let addresses =
                (IpAddr::V4(header.source_addr()), IpAddr::V4(header.destination_addr()));
            (addresses.0, addresses.1, claimed)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let claimed =
                usize::from(header.payload_length()).saturating_sub(ip.extensions().slice().len());
            let addresses =
                (IpAddr::V6(header.source_addr()), IpAddr::V6(header.destination_addr()));
            (addresses.0, addresses.1, claimed)
        }
        LaxNetSlice::Arp(_) => return Err(Unusable::OtherProtocol),
    };
    if net.ip_payload_ref().is_some_and(|payload| payload.fragmented) {
        return Err(Unusable::Fragment);
    }
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => Ok(of_tcp(tcp, from, to, ip_bytes)),
        Some(_) => Err(Unusable::OtherProtocol),
        None if packet.stop_err.is_some() => Err(Unusable::Malformed),
        None => Err(Unusable::OtherProtocol),
    }
}

/// Where IP begins, by link type. Numbers: the registry of link types of tcpdump.
fn slice(link_type: u16, bytes: &[u8]) -> Result<LaxSlicedPacket<'_>, Unusable> {
    const NULL: u16 = 0;
    const ETHERNET: u16 = 1;
    const RAW: u16 = 101;
    const LOOP: u16 = 108;
    const LINUX_SLL: u16 = 113;
    const IPV4: u16 = 228;
    const IPV6: u16 = 229;
    const LINUX_SLL2: u16 = 276;
    match link_type {
        ETHERNET => LaxSlicedPacket::from_ethernet(bytes).map_err(|_| Unusable::Malformed),
        RAW | IPV4 | IPV6 => ip(bytes),
        // Four bytes of address family, in the byte order of the capturing machine; the IP header
        // has its own version.
        NULL | LOOP => ip(bytes.get(4..).ok_or(Unusable::Malformed)?),
        LINUX_SLL => cooked(bytes, 14, 16),
        LINUX_SLL2 => cooked(bytes, 0, 20),
        _ => Err(Unusable::UnknownLinkType),
    }
}

fn ip(bytes: &[u8]) -> Result<LaxSlicedPacket<'_>, Unusable> {
    LaxSlicedPacket::from_ip(bytes).map_err(|_| Unusable::Malformed)
}

/// A cooked header of `header_bytes` with the ether type at `type_at`.
fn cooked(
    bytes: &[u8],
    type_at: usize,
    header_bytes: usize,
) -> Result<LaxSlicedPacket<'_>, Unusable> {
    let payload = bytes.get(header_bytes..).ok_or(Unusable::Malformed)?;
    let ether_type = bytes
        .get(type_at..type_at + 2)
        .and_then(|pair| <[u8; 2]>::try_from(pair).ok())
        .map(u16::from_be_bytes)
        .ok_or(Unusable::Malformed)?;
    Ok(LaxSlicedPacket::from_ether_type(EtherType(ether_type), payload))
}

fn of_tcp<'a>(tcp: &TcpSlice<'a>, from: IpAddr, to: IpAddr, ip_bytes: usize) -> Segment<'a> {
    let data = tcp.payload();
    // Segmentation offload leaves a length of zero: then the captured bytes count.
    let claimed = ip_bytes.saturating_sub(tcp.header_slice().len());
    Segment {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        acknowledged: tcp.ack().then(|| tcp.acknowledgment_number()),
        syn: tcp.syn(),
        fin: tcp.fin(),
        reset: tcp.rst(),
        data,
        sent_bytes: claimed.max(data.len()),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn ethernet(vlan: bool) -> Vec<u8> {
        let mut packet = vec![2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1];
        if vlan {
            packet.extend([0x81, 0x00, 0x00, 0x07]);
        }
        packet.extend([0x08, 0x00]);
        packet.extend(bare_ip(false));
        packet
    }

    fn bare_ip(six: bool) -> Vec<u8> {
        let mut packet = Vec::new();
        if six {
            PacketBuilder::ipv6([1; 16], [2; 16], 9)
                .tcp(1000, 2000, 7, 99)
                .write(&mut packet, b"hello")
                .unwrap();
        } else {
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9)
                .tcp(1000, 2000, 7, 99)
                .write(&mut packet, b"hello")
                .unwrap();
        }
        packet
    }

    fn with_front(front: &[u8], rest: Vec<u8>) -> Vec<u8> {
        [front.to_vec(), rest].concat()
    }

    #[test]
    fn every_link_layer_leads_to_the_segment() {
        let mut sll = vec![0; 16];
        // Hardware type of the loopback device, protocol IPv4.
        sll[2..4].copy_from_slice(&772u16.to_be_bytes());
        sll[14..16].copy_from_slice(&0x0800u16.to_be_bytes());
        let mut sll2 = vec![0; 20];
        sll2[0..2].copy_from_slice(&0x86ddu16.to_be_bytes());
        let table = [
            ("ethernet", 1, ethernet(false)),
            ("vlan", 1, ethernet(true)),
            ("null", 0, with_front(&2u32.to_le_bytes(), bare_ip(false))),
            ("null, ipv6 of a BSD", 0, with_front(&30u32.to_le_bytes(), bare_ip(true))),
            ("loop", 108, with_front(&2u32.to_be_bytes(), bare_ip(false))),
            ("raw", 101, bare_ip(true)),
            ("ipv4", 228, bare_ip(false)),
            ("ipv6", 229, bare_ip(true)),
            ("cooked", 113, with_front(&sll, bare_ip(false))),
            ("cooked, second version", 276, with_front(&sll2, bare_ip(true))),
        ];
        for (name, link_type, bytes) in table {
            let segment =
                segment(link_type, &bytes).unwrap_or_else(|why| panic!("{name}: {why:?}"));
            assert_eq!(segment.data, b"hello", "{name}");
            assert_eq!((segment.from.port(), segment.to.port()), (1000, 2000), "{name}");
            assert_eq!((segment.sequence, segment.sent_bytes), (7, 5), "{name}");
        }
    }

    #[test]
    fn a_short_capture_still_tells_how_much_was_sent() {
        let bytes = ethernet(false);
        let segment = segment(1, &bytes[..bytes.len() - 3]).unwrap();
        assert_eq!((segment.data, segment.sent_bytes), (&b"he"[..], 5));
    }

    #[test]
    fn a_length_of_zero_means_what_was_captured() {
        let mut bytes = bare_ip(false);
        bytes[2..4].fill(0);
        let segment = segment(101, &bytes).unwrap();
        assert_eq!((segment.data, segment.sent_bytes), (&b"hello"[..], 5));
    }

    #[test]
    fn padding_of_a_short_ethernet_frame_is_not_data() {
        let mut bytes = ethernet(false);
        bytes.extend([0; 9]);
        assert_eq!(segment(1, &bytes).unwrap().data, b"hello");
    }

    #[test]
    fn other_packets_have_a_reason() {
        let mut udp = Vec::new();
        PacketBuilder::ipv4([1; 4], [2; 4], 9).udp(1, 2).write(&mut udp, b"x").unwrap();
        let mut fragment = bare_ip(false);
        fragment[6] |= 0x20;
        let table = [
            (101, udp, Unusable::OtherProtocol),
            (101, fragment, Unusable::Fragment),
            (147, bare_ip(false), Unusable::UnknownLinkType),
            (1, vec![0; 5], Unusable::Malformed),
            (101, bare_ip(false)[..30].to_vec(), Unusable::Malformed),
        ];
        for (link_type, bytes, expected) in table {
            assert_eq!(segment(link_type, &bytes), Err(expected));
        }
    }
}
