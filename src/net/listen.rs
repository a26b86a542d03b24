//! Opening a listener.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::net::{TcpListener, lookup_host};

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
    bound_on(on, open)
}

fn bound_on<T>(on: ListenOn, bind: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match on {
        ListenOn::Address(address) => bind(address),
        ListenOn::AnyAddress(port) => match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                bind((Ipv4Addr::UNSPECIFIED, port).into())
            }
            result => result,
        },
    }
}

/// A configured address cannot be listened on.
#[derive(Debug, Error)]
#[error("cannot listen on {address} ({key}): {error}")]
pub struct CannotListen {
    /// The configuration key.
    pub key: &'static str,
    /// Its value.
    pub address: String,
    /// The system's error.
    pub error: io::Error,
}

impl CannotListen {
    /// Names the key and its value for errors of the system.
    pub fn at(
        key: &'static str,
        address: &dyn ToString,
    ) -> impl Fn(io::Error) -> CannotListen + use<> {
        let address = address.to_string();
        move |error| CannotListen { key, address: address.clone(), error }
    }
}

/// Opens a listener on the first address of a host. Must be called within a tokio runtime.
///
/// # Errors
/// The name has no address, or those of [`listen`].
pub async fn listen_at(
    key: &'static str,
    host: &str,
    port: u16,
) -> Result<TcpListener, CannotListen> {
    let failed = match host.contains(':') {
        true => CannotListen::at(key, &format!("[{host}]:{port}")),
        false => CannotListen::at(key, &format!("{host}:{port}")),
    };
    let address = address_of(host, port).await.map_err(&failed)?;
    listen(ListenOn::Address(address)).map_err(failed)
}

/// The first address of a host.
///
/// # Errors
/// The name has none, or cannot be looked up.
pub async fn address_of(host: &str, port: u16) -> io::Result<SocketAddr> {
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    lookup_host((host, port)).await?.next().ok_or_else(none)
}

/// A TCP port of one address, or of all, that the system gives to nobody who asks for any free port, while
/// this value exists. [`listen`] can still open it, as can every program that allows address reuse, Java's
/// among them. So a program may be started, or started again, on a port that was chosen before. One that listens
/// on all addresses needs a port that is reserved on all: the system gives a port of one address to others on
/// another one.
#[derive(Debug)]
pub struct Reserved {
    address: SocketAddr,
    _socket: Socket,
}

impl Reserved {
    /// Reserves this port, or any free one if the port is 0.
    ///
    /// # Errors
    /// Those of the system: something listens there, or the address is not of this machine.
    pub fn new(on: ListenOn) -> io::Result<Reserved> {
        // A socket that does not listen shares its port with those that allow it. The system does
        // not choose a port that any socket has.
        let socket = bound_on(on, bound)?;
        let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Reserved { address, _socket: socket })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Connections that wait to be accepted; the system's limit is lower.
const BACKLOG: i32 = 1 << 16;

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bound(address)?;
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reserved_port_is_for_those_who_name_it() {
        let any = ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into());
        let reserved = Reserved::new(any).unwrap();
        let address = reserved.address();
        // The system chooses a port only where a socket without address reuse could be bound.
        let plain = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        let refused = plain.bind(&address.into()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let listener = listen(ListenOn::Address(address)).unwrap();
        // Another one cannot listen at the same time, and nothing can be reserved there.
        let taken = listen(ListenOn::Address(address)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let again = Reserved::new(ListenOn::Address(address)).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        // It ends, and starts again.
        drop(listener);
        listen(ListenOn::Address(address)).unwrap();
    }

    #[tokio::test]
    async fn a_port_that_is_reserved_on_all_addresses_is_free_on_all() {
        let plain_at = |host: u8, port| {
            let plain = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
            plain.bind(&SocketAddr::from(([127, 0, 0, host], port)).into()).map(|()| plain)
        };
        // Where one address is reserved, others get the port on another one, and then nobody has it on all.
        let one = Reserved::new(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let port = one.address().port();
        let other = plain_at(2, port).unwrap();
        let taken = listen(ListenOn::AnyAddress(port)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(other);

        let all = Reserved::new(ListenOn::AnyAddress(0)).unwrap();
        let port = all.address().port();
        for host in [1, 2] {
            let refused = plain_at(host, port).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "127.0.0.{host}");
        }
        drop(listen(ListenOn::AnyAddress(port)).unwrap());
        for host in [1, 2] {
            let address = SocketAddr::from(([127, 0, 0, host], port));
            drop(listen(ListenOn::Address(address)).unwrap());
        }
    }
}
