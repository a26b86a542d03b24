//! The header of the PROXY protocol, version 2: a relay sends it first, so that the server knows the
//! address of the peer that the relay serves.
//!
//! Source: <https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>, section 2.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// The first bytes of a header.
pub const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes before the addresses.
const FIXED: usize = 16;
/// The most bytes of a header. Bytes after the addresses are ignored.
pub const MAX_HEADER: usize = FIXED + 512;

const VERSION_2_LOCAL: u8 = 0x20;
const VERSION_2_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// Bytes that are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the header of the PROXY protocol is malformed")]
pub struct Malformed;

/// The header for a connection from `peer` to `server`.
pub fn header(peer: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.push(VERSION_2_PROXY);
    match (peer.ip().to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend([TCP_OVER_IPV4, 0, 12]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (from, to) => {
            let v6 = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            bytes.extend([TCP_OVER_IPV6, 0, 36]);
            bytes.extend(v6(from).octets());
            bytes.extend(v6(to).octets());
        }
    }
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(server.port().to_be_bytes());
    bytes
}

/// The length of the header that the bytes start with, and the address of the peer; no address if the
/// relay speaks for itself. `None` while the header is not complete.
///
/// # Errors
/// It is no header of version 2 for TCP.
pub fn read(bytes: &[u8]) -> Result<Option<(usize, Option<SocketAddr>)>, Malformed> {
    if !SIGNATURE.starts_with(bytes.get(..SIGNATURE.len()).unwrap_or(bytes)) {
        return Err(Malformed);
    }
    let Some(fixed) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if length > MAX_HEADER {
        return Err(Malformed);
    }
    let Some(addresses) = bytes.get(FIXED..length) else { return Ok(None) };
    let peer = match (fixed[12], fixed[13]) {
        (VERSION_2_LOCAL, _) => None,
        (VERSION_2_PROXY, TCP_OVER_IPV4) => {
            let from: [u8; 4] = piece(addresses, 0)?;
            Some((IpAddr::from(Ipv4Addr::from(from)), port(addresses, 8)?))
        }
        (VERSION_2_PROXY, TCP_OVER_IPV6) => {
            let from: [u8; 16] = piece(addresses, 0)?;
            Some((IpAddr::from(Ipv6Addr::from(from)), port(addresses, 32)?))
        }
        _ => return Err(Malformed),
    };
    Ok(Some((length, peer.map(SocketAddr::from))))
}

fn piece<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Malformed> {
    bytes.get(at..at + N).and_then(|piece| piece.try_into().ok()).ok_or(Malformed)
}

fn port(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    Ok(u16::from_be_bytes(piece(bytes, at)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_specification() {
        let header = header("192.0.2.1:513".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let expected =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x02\x01\0\x50";
        assert_eq!(header, expected);
    }

    #[test]
    fn addresses_come_back_whatever_the_families() {
        for (peer, server) in [
            ("192.0.2.1:513", "192.0.2.2:80"),
            ("[2001:db8::1]:1", "[2001:db8::2]:2"),
            ("192.0.2.1:513", "[2001:db8::2]:2"),
        ] {
            let peer: SocketAddr = peer.parse().unwrap();
            let mut bytes = header(peer, server.parse().unwrap());
            let length = bytes.len();
            bytes.extend(b"and a call");
            let (read_length, found) = read(&bytes).unwrap().unwrap();
            let found = found.unwrap();
            assert_eq!(read_length, length);
            assert_eq!((found.ip().to_canonical(), found.port()), (peer.ip(), peer.port()));
            for some in 0..length {
                assert_eq!(read(&bytes[..some]), Ok(None), "{some}");
            }
        }
    }

    #[test]
    fn others_are_refused_and_a_relay_may_speak_for_itself() {
        let local = [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat();
        assert_eq!(read(&local), Ok(Some((16, None))));
        for wrong in [
            &b"\x80\x01\0\x01"[..],
            &[&SIGNATURE[..], &[0x21, 0x12, 0, 12]].concat(),
            &[&SIGNATURE[..], &[0x21, 0x11, 0, 4], &[1; 12]].concat(),
            &[&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat(),
        ] {
            let wrong = [wrong, &[0; 12]].concat();
            assert_eq!(read(&wrong), Err(Malformed), "{wrong:?}");
        }
    }
}
