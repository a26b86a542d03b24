//! Thrift servers that a test answers for, which run on the runtime of their starter, and requests to pages.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use corona::conformance::launch::LaunchedManager;
use corona::net::Reserved;
use corona::wire::Service;
use corona::wire::server::{Handler, Limits, ListenOn, Server, listen};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::PATIENCE;

/// A port of loopback that no other test has, with a listener.
///
/// # Panics
/// When there is none.
pub fn free_port() -> TcpListener {
    listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).expect("a free port")
}

/// The addresses that programs of the tests have, or will have.
static KEPT: Mutex<Vec<Reserved>> = Mutex::new(Vec::new());

/// A free address of loopback, reserved for a program that a test starts with it: the program may listen on all
/// addresses. Until then nothing listens there.
///
/// # Panics
/// When there is none.
pub fn free_address() -> SocketAddr {
    let reserved = Reserved::new(ListenOn::AnyAddress(0)).expect("a free port");
    let address = (Ipv4Addr::LOCALHOST, reserved.address().port()).into();
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(reserved);
    address
}

/// Reserves the address of a program that has ended, so that it can be started there again.
pub fn keep_address(address: SocketAddr) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let is_kept = |reserved: &Reserved| {
        let kept = reserved.address();
        kept.port() == address.port() && (kept.ip().is_unspecified() || kept == address)
    };
    if !kept.iter().any(is_kept) {
        // If another program has taken it, the next start reports that.
        let all = Reserved::new(ListenOn::AnyAddress(address.port()));
        kept.extend(all.or_else(|_| Reserved::new(ListenOn::Address(address))));
    }
}

/// Serves on a free port of loopback until the sender is dropped.
///
/// # Panics
/// When there is no port.
pub fn serve<S: Service>(handler: impl Handler<S>) -> (SocketAddr, watch::Sender<bool>) {
    let listener = free_port();
    let address = listener.local_addr().expect("the address of a port");
    (address, serve_on::<S>(listener, handler))
}

/// Serves on this port until the sender is dropped.
pub fn serve_on<S: Service>(
    listener: TcpListener,
    handler: impl Handler<S>,
) -> watch::Sender<bool> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(Server::new(listener, handler, Limits::default()).run::<S>(stopped));
    stop
}

/// The head and the body of a page; `None` if there is no whole answer in time.
pub fn fetch(at: &str, path: &str) -> Option<(String, String)> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(at).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {at}\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((format!("{head}\r\n"), body.to_owned()))
}

/// The status in the head of a page.
pub fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

/// The body of a page of a cluster manager.
///
/// # Panics
/// When there is no whole answer.
pub fn page(manager: &LaunchedManager, path: &str) -> String {
    let at = manager.http().expect("it has pages").to_string();
    fetch(&at, path).unwrap_or_else(|| panic!("no answer for {path}")).1
}
