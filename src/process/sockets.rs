//! The owners of TCP connections of this machine, from `/proc/net/tcp` and `/proc/net/tcp6`, proc(5).

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a connection that neither side has closed.
const ESTABLISHED: &str = "01";

/// The users that own sockets with this local address which are connected to this port: one user, unless several
/// sockets share the address. Empty if there is none.
///
/// # Errors
/// The kernel's lists cannot be read.
pub fn owners(local: SocketAddr, remote_port: u16) -> io::Result<Vec<u32>> {
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let mut owners =
        of_list(BufReader::new(File::open("/proc/self/net/tcp")?), local, remote_port)?;
    // A socket of both versions is in the second list, also if its connection is of version 4.
    match File::open("/proc/self/net/tcp6") {
        Ok(list) => owners.extend(of_list(BufReader::new(list), local, remote_port)?),
        // A kernel without version 6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(owners)
}

fn of_list(list: impl BufRead, local: SocketAddr, remote_port: u16) -> io::Result<Vec<u32>> {
    let mut owners = Vec::new();
    for line in list.lines() {
        owners.extend(owner(&line?, local, remote_port));
    }
    Ok(owners)
}

/// The owner of the socket of a line, if it is the wanted one.
fn owner(line: &str, local: SocketAddr, remote_port: u16) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let is_wanted =
        address(fields.next()?)? == local && address(fields.next()?)?.port() == remote_port;
    // A socket that its process has closed is shown as root's.
    let is_open = fields.next()? == ESTABLISHED;
    // Queues, timer and retransmissions are before it.
    fields.nth(3).filter(|_| is_wanted && is_open)?.parse().ok()
}

/// An address as the kernel writes it: words of four bytes in the machine's order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn a_line_names_the_owner_of_a_socket() {
        let lists = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1 1 0 100 0\n\
            1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4\n\
            2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     7        0 3 1 0 20 4\n\
            3: 0000000000000000FFFF00000100007F:9C41 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0 1001 0 4\n\
            4: 0100007F:9C42\n\
            5: 0100007F:9C43 0100007F:1F90 04 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4\n";
        let find = |local: &str| of_list(lists.as_bytes(), local.parse().unwrap(), 8080).unwrap();
        assert_eq!(find("127.0.0.1:40000"), [1000]);
        assert_eq!(find("127.0.0.1:40001"), [1001]);
        assert_eq!(find("127.0.0.1:40002"), [0; 0]);
        assert_eq!(find("127.0.0.2:40000"), [0; 0]);
        assert_eq!(find("127.0.0.1:40003"), [0; 0], "its owner is not shown any more");
        let other_port = of_list(lists.as_bytes(), "127.0.0.1:40000".parse().unwrap(), 1).unwrap();
        assert_eq!(other_port, [0; 0]);
    }

    #[test]
    fn the_owner_of_an_own_connection_is_found() {
        let own = rustix::process::geteuid().as_raw();
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(at) else {
                // A machine without version 6 has nothing to find there.
                assert_eq!(at, "[::1]:0");
                continue;
            };
            let server = listener.local_addr().unwrap();
            let client = TcpStream::connect(server).unwrap();
            let local = client.local_addr().unwrap();
            assert_eq!(owners(local, server.port()).unwrap(), [own], "{at}");
            drop(client);
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "[ 0-9A-F:]{0,120}") {
            let _ = owner(&line, SocketAddr::from(([127, 0, 0, 1], 1)), 1);
        }
    }
}
