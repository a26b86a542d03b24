//! The owners of TCP connections of this machine. The kernel names the owner of one connection when it is asked by
//! sock_diag(7). Where it does not, its lists of all connections are read: `/proc/net/tcp` and `/proc/net/tcp6`,
//! proc(5).

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// The state of a connection that neither side has closed.
const ESTABLISHED: u8 = 1;
/// Messages of sock_diag(7): `SOCK_DIAG_BY_FAMILY`, which is also the type of a reply, and `NLMSG_ERROR`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
/// The flag `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Bytes of `struct nlmsghdr` and of a request: with `struct inet_diag_req_v2` behind it.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// Where the state and the user are in a reply: in `struct inet_diag_msg` behind the header.
const STATE_AT: usize = HEADER_BYTES + 1;
const USER_AT: usize = HEADER_BYTES + 64;
/// More than a reply has.
const REPLY_BYTES: usize = 1024;

/// How the owner of a connection is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// The kernel is asked for the connection.
    Asked,
    /// All connections of the machine are read, which takes the longer the more there are.
    Listed,
}

impl Owners {
    /// How this machine's kernel names them: it is asked for a connection of this process.
    pub fn of_machine() -> Owners {
        Owners::by(probe())
    }

    fn by(probe: io::Result<Option<u32>>) -> Owners {
        let why = match probe {
            Ok(Some(_)) => return Owners::Asked,
            Ok(None) => "it does not know them".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            why,
            "the kernel does not name the owner of a connection by sock_diag; reading its lists of all connections for each task"
        );
        Owners::Listed
    }

    /// The user that owns the socket with this local address which is connected to this remote one; none if there is
    /// no such socket.
    ///
    /// # Errors
    /// The kernel does not answer, or its lists cannot be read.
    pub fn of(self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
        let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let (local, remote) = (canonical(local), canonical(remote));
        match self {
            Owners::Asked => asked(local, remote),
            Owners::Listed => listed(local, remote),
        }
    }
}

/// Asks for a connection of this process.
fn probe() -> io::Result<Option<u32>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let remote = listener.local_addr()?;
    let client = TcpStream::connect(remote)?;
    asked(client.local_addr()?, remote)
}

fn asked(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let Some(request) = request(local, remote) else { return Ok(None) };
    let kernel = SocketAddrNetlink::new(0, 0);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    sendto(&socket, &request, SendFlags::empty(), &kernel)?;
    let mut reply = [0; REPLY_BYTES];
    // The reply is there when the request has been sent.
    let (length, _) = recv(&socket, &mut reply, RecvFlags::DONTWAIT)?;
    in_reply(reply.get(..length).unwrap_or_default())
}

/// The message that asks for a connection; none if its ends are of two versions of the protocol.
fn request(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
    let family = match (local, remote) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => AddressFamily::INET,
        (SocketAddr::V6(_), SocketAddr::V6(_)) => AddressFamily::INET6,
        _ => return None,
    };
    const TCP: u8 = 6;
    const NO_COOKIE: [u8; 8] = [u8::MAX; 8];
    let mut message = Vec::with_capacity(REQUEST_BYTES);
    message.extend(u32::try_from(REQUEST_BYTES).ok()?.to_ne_bytes());
    message.extend([BY_FAMILY, REQUEST].map(u16::to_ne_bytes).concat());
    // Number and sender: one message has one reply.
    message.extend([0; 8]);
    message.extend([u8::try_from(family.as_raw()).ok()?, TCP, 0, 0]);
    // All states: the one that is asked for says its own.
    message.extend(u32::MAX.to_ne_bytes());
    message.extend([local, remote].map(|at| at.port().to_be_bytes()).concat());
    for at in [local, remote] {
        match at.ip() {
            IpAddr::V4(ip) => message.extend([&ip.octets()[..], &[0; 12]].concat()),
            IpAddr::V6(ip) => message.extend(ip.octets()),
        }
    }
    // Any interface.
    message.extend([0; 4]);
    message.extend(NO_COOKIE);
    Some(message)
}

/// The owner, if the reply is about a connection and not about a socket that listens, or that has been closed.
fn in_reply(reply: &[u8]) -> io::Result<Option<u32>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a malformed reply of sock_diag");
    let word = |at: usize| reply.get(at..).and_then(|bytes| bytes.first_chunk()).copied();
    let kind = reply.get(4..).and_then(|bytes| bytes.first_chunk()).copied();
    match kind.map(u16::from_ne_bytes).ok_or_else(malformed)? {
        ERROR => {
            let errno =
                word(HEADER_BYTES).and_then(|errno| i32::from_ne_bytes(errno).checked_neg());
            match errno.filter(|errno| *errno > 0).ok_or_else(malformed)? {
                errno if errno == Errno::NOENT.raw_os_error() => Ok(None),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
        BY_FAMILY => {
            let state = *reply.get(STATE_AT).ok_or_else(malformed)?;
            let user = word(USER_AT).map(u32::from_ne_bytes).ok_or_else(malformed)?;
            Ok((state == ESTABLISHED).then_some(user))
        }
        _ => Err(malformed()),
    }
}

fn listed(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let list = BufReader::new(File::open("/proc/self/net/tcp")?);
    if let Some(owner) = in_list(list, local, remote)? {
        return Ok(Some(owner));
    }
    // A socket of both versions is in the second list, also if its connection is of version 4.
    match File::open("/proc/self/net/tcp6") {
        Ok(list) => in_list(BufReader::new(list), local, remote),
        // A kernel without version 6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn in_list(list: impl BufRead, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    for line in list.lines() {
        if let Some(owner) = in_line(&line?, local, remote) {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// The owner of the socket of a line, if it is the wanted one.
fn in_line(line: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let is_wanted = address(fields.next()?)? == local && address(fields.next()?)? == remote;
    // A socket that its process has closed is shown as root's.
    let is_open = u8::from_str_radix(fields.next()?, 16).ok()? == ESTABLISHED;
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
        let at = |text: &str| text.parse().unwrap();
        for (local, remote, owner) in [
            ("127.0.0.1:40000", "127.0.0.1:8080", Some(1000)),
            ("127.0.0.1:40001", "127.0.0.1:8080", Some(1001)),
            ("127.0.0.1:40002", "127.0.0.1:8080", None),
            ("127.0.0.2:40000", "127.0.0.1:8080", None),
            ("127.0.0.1:40000", "127.0.0.1:1", None),
            ("127.0.0.1:40000", "127.0.0.2:8080", None),
            // Its owner is not shown any more.
            ("127.0.0.1:40003", "127.0.0.1:8080", None),
        ] {
            let found = in_list(lists.as_bytes(), at(local), at(remote)).unwrap();
            assert_eq!(found, owner, "{local} {remote}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_kernel_is_asked_for_one_connection() {
        let at = |text: &str| text.parse().unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let asked = request(at("127.0.0.1:40000"), at("127.0.0.2:8080")).unwrap();
        let head = "4800000014000100000000000000000002060000ffffffff9c401f90";
        let zeros = |bytes: usize| "00".repeat(bytes);
        let expected =
            [head, "7f000001", &zeros(12), "7f000002", &zeros(12 + 4), &"ff".repeat(8)].concat();
        assert_eq!(hex(&asked), expected);
        let asked = request(at("[::1]:40000"), at("[::1]:8080")).unwrap();
        let head = "480000001400010000000000000000000a060000ffffffff9c401f90";
        let expected =
            [head, &zeros(15), "01", &zeros(15), "01", &zeros(4), &"ff".repeat(8)].concat();
        assert_eq!(hex(&asked), expected);
        assert_eq!(request(at("127.0.0.1:40000"), at("[::1]:8080")), None);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_reply_names_the_owner_of_a_connection_that_is_open() {
        let reply = |state: u8, user: u32| {
            let mut reply = vec![0; 124];
            reply[4] = 20;
            reply[STATE_AT] = state;
            reply[USER_AT..USER_AT + 4].copy_from_slice(&user.to_le_bytes());
            reply
        };
        let error =
            |errno: i32| [&[36, 0, 0, 0, 2, 0][..], &[0; 10], &errno.to_le_bytes()].concat();
        assert_eq!(in_reply(&reply(1, 1000)).unwrap(), Some(1000));
        assert_eq!(in_reply(&reply(10, 1000)).unwrap(), None, "it listens");
        assert_eq!(in_reply(&reply(6, 0)).unwrap(), None, "its process has closed it");
        assert_eq!(in_reply(&error(-2)).unwrap(), None, "there is none");
        let refused = in_reply(&error(-1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        for wrong in
            [&reply(1, 1)[..USER_AT + 3], &[], &[0; 16], &error(0), &error(7), &error(i32::MIN)]
        {
            assert!(in_reply(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Also one that both sides see as of version 4, through sockets of version 6.
    #[test]
    fn the_owner_of_an_own_connection_is_found() {
        let own = rustix::process::geteuid().as_raw();
        let mut ways = vec![Owners::Listed];
        // A kernel without it, or a container that refuses it, has the lists alone.
        ways.extend(Some(Owners::of_machine()).filter(|way| *way == Owners::Asked));
        for (at, to) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "::ffff:127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(at) else {
                // A machine without version 6 has nothing to find there.
                assert_ne!(at, "127.0.0.1:0");
                continue;
            };
            let server =
                SocketAddr::new(to.parse().unwrap(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(server).unwrap();
            let local = client.local_addr().unwrap();
            for way in &ways {
                assert_eq!(way.of(local, server).unwrap(), Some(own), "{way:?} {at}");
                let other = SocketAddr::new(local.ip(), 1);
                assert_eq!(way.of(other, server).unwrap(), None, "{way:?} {at}: no connection");
            }
            drop(client);
        }
    }

    #[test]
    fn lists_are_read_where_the_kernel_does_not_answer() {
        assert_eq!(Owners::by(Ok(Some(0))), Owners::Asked);
        assert_eq!(Owners::by(Ok(None)), Owners::Listed);
        for refusal in [Errno::AFNOSUPPORT, Errno::PROTONOSUPPORT, Errno::PERM, Errno::NOENT] {
            assert_eq!(Owners::by(Err(refusal.into())), Owners::Listed, "{refusal:?}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "[ 0-9A-F:]{0,120}") {
            let at = SocketAddr::from(([127, 0, 0, 1], 1));
            let _ = in_line(&line, at, at);
        }

        #[test]
        fn no_reply_panics(reply in proptest::collection::vec(any::<u8>(), 0..140), kind in 0..24_u16) {
            let mut reply = reply;
            if let Some(place) = reply.get_mut(4..6) {
                place.copy_from_slice(&kind.to_ne_bytes());
            }
            let _ = in_reply(&reply);
        }
    }
}
