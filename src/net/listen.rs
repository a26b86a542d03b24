//! Opening a listener.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenOn {
    /// This port of all addresses, of both families where the machine has both. 0 is any free port.
    /// The original does this with `cm.server.address`.
    AnyAddress(u16),
    /// This address only.
    Address(SocketAddr),
}

/// Opens a listener with address reuse and room for as many connections that wait to be accepted as
/// the system allows (`net.core.somaxconn`), so that all task trackers may reconnect at once. Must
/// be called within a tokio runtime.
///
/// Errors: those of the system, such as a port that is taken.
pub fn listen(on: ListenOn) -> io::Result<TcpListener> {
    match on {
        ListenOn::Address(address) => open(address),
        ListenOn::AnyAddress(port) => match open((Ipv6Addr::UNSPECIFIED, port).into()) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                open((Ipv4Addr::UNSPECIFIED, port).into())
            }
            result => result,
        },
    }
}

/// Connections that wait to be accepted; the system's limit is lower.
const BACKLOG: i32 = 1 << 16;

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};

    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}
