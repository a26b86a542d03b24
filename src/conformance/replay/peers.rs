//! The recorded servers that a cluster manager calls: session drivers and the proxy job tracker.
//!
//! They reply as the recorded ones did, always with success, on their own ports, and report what
//! they receive. A port that was closed in the recording is closed here.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::world::Callback;
use corona_wire::Service;
use corona_wire::calls::{
    ProxyJobTracker, ProxyJobTrackerCall, ProxyJobTrackerReply, SessionDriver, SessionDriverCall,
    SessionDriverReply,
};
use corona_wire::server::{Answer, Handler, Limits, Server};

/// The channel for received calls, with the times when they came. If it is full, the caller waits for
/// its reply.
pub(super) type CallSender = mpsc::Sender<(Instant, Callback)>;

/// The number of calls that may wait in the channel.
pub(super) const WAITING_CALLS: usize = 4_096;

/// All peers of a replay, by their recorded addresses.
pub(super) struct RecordedPeers {
    calls: CallSender,
    own: IpAddr,
    proxy: ReservedPort,
    drivers: HashMap<(String, i32), ReservedPort>,
}

impl RecordedPeers {
    /// Without session drivers yet, which will listen at this address of this machine, and with a proxy
    /// job tracker on loopback whose port is closed.
    pub(super) fn new(calls: CallSender, own: IpAddr) -> io::Result<RecordedPeers> {
        let proxy = ReservedPort::closed(Ipv4Addr::LOCALHOST.into())?;
        Ok(RecordedPeers { calls, own, proxy, drivers: HashMap::new() })
    }

    /// The address of the proxy job tracker.
    pub(super) fn proxy(&self) -> SocketAddr {
        self.proxy.address
    }

    /// Lets the proxy job tracker listen, or not.
    pub(super) async fn set_proxy(&mut self, listens: bool) -> io::Result<()> {
        let calls = self.calls.clone();
        let handler = move |_, call| be_proxy(calls.clone(), call);
        self.proxy.set::<ProxyJobTracker, _>(listens, handler).await
    }

    /// Lets the session driver with this recorded address listen, or not, and returns its address.
    pub(super) async fn set_driver(
        &mut self,
        recorded: &(String, i32),
        listens: bool,
    ) -> io::Result<SocketAddr> {
        if !self.drivers.contains_key(recorded) {
            self.drivers.insert(recorded.clone(), ReservedPort::closed(self.own)?);
        }
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let port = self.drivers.get_mut(recorded).ok_or_else(missing)?;
        let (calls, number) = (self.calls.clone(), port.address.port());
        let handler = move |_, call| be_driver(calls.clone(), number, call);
        port.set::<SessionDriver, _>(listens, handler).await?;
        Ok(port.address)
    }
}

async fn be_driver(
    calls: CallSender,
    port: u16,
    call: SessionDriverCall,
) -> Answer<SessionDriverReply> {
    let reply = match &call {
        SessionDriverCall::GrantResource { .. } => SessionDriverReply::GrantResource,
        SessionDriverCall::RevokeResource { .. } => SessionDriverReply::RevokeResource,
        SessionDriverCall::ProcessDeadNode { .. } => SessionDriverReply::ProcessDeadNode,
    };
    match calls.send((Instant::now(), Callback::Session(port, call))).await {
        Ok(()) => Answer::Reply(reply),
        Err(_) => Answer::Close,
    }
}

async fn be_proxy(calls: CallSender, call: ProxyJobTrackerCall) -> Answer<ProxyJobTrackerReply> {
    let ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag } = call else {
        // The cluster manager makes no other call. Spec: cluster-manager/01 §1.
        return Answer::Close;
    };
    match calls.send((Instant::now(), Callback::SafeMode(flag))).await {
        Ok(()) => Answer::Reply(ProxyJobTrackerReply::SetClusterManagerSafeModeFlag),
        Err(_) => Answer::Close,
    }
}

/// A reserved port of this machine, open or closed.
struct ReservedPort {
    address: SocketAddr,
    /// Reserves the port while it is closed, so that callers are refused and no other program gets
    /// it.
    closed: Option<Socket>,
    open: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl ReservedPort {
    fn closed(own: IpAddr) -> io::Result<ReservedPort> {
        let socket = bind(SocketAddr::new(own, 0))?;
        let no_address = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let address = socket.local_addr()?.as_socket().ok_or_else(no_address)?;
        Ok(ReservedPort { address, closed: Some(socket), open: None })
    }

    async fn set<S, H>(&mut self, listens: bool, handler: H) -> io::Result<()>
    where
        S: Service,
        H: Handler<S>,
    {
        if !listens {
            if let Some((_, serving)) = self.open.take() {
                serving.abort();
                // The port is free when the task has ended; its abort is expected.
                let _ = serving.await;
                self.closed = Some(bind(self.address)?);
            }
            return Ok(());
        }
        let Some(socket) = self.closed.take() else { return Ok(()) };
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from_std(socket.into())?;
        let server = Server::new(listener, handler, Limits::default());
        let (stop, stopped) = watch::channel(false);
        self.open = Some((stop, tokio::spawn(server.run::<S>(stopped))));
        Ok(())
    }
}

impl Drop for ReservedPort {
    fn drop(&mut self) {
        if let Some((_, serving)) = self.open.take() {
            serving.abort();
        }
    }
}

const BACKLOG: i32 = 128;

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corona_wire::client::{Client, ClientOptions};

    #[tokio::test]
    async fn a_closed_port_refuses_and_keeps_its_port() {
        let (calls, mut received) = mpsc::channel(4);
        let own = IpAddr::from([127, 0, 0, 2]);
        let mut peers = RecordedPeers::new(calls, own).unwrap();
        let recorded = ("10.0.0.1".to_owned(), 7);
        let call = SessionDriverCall::ProcessDeadNode {
            handle: Some("s".to_owned()),
            node: Some("n".to_owned()),
        };
        let mut address = None;
        for listens in [true, false, true] {
            let now = peers.set_driver(&recorded, listens).await.unwrap();
            assert_eq!((*address.get_or_insert(now), now.ip()), (now, own));
            let client = Client::<SessionDriver>::connect(now, ClientOptions::default()).await;
            assert_eq!(client.is_ok(), listens);
            if let Ok(mut client) = client {
                client.call(&call).await.unwrap();
                let (_, called) = received.recv().await.unwrap();
                assert_eq!(called, Callback::Session(now.port(), call.clone()));
            }
        }
    }
}
