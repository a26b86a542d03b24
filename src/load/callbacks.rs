//! The listener for the notifications of all sessions of a run, and the ways in which a session
//! fails to listen. Spec: cluster-manager/01 §6.2.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::meter::Count;
use super::world::LoadWorld;
use corona_access::Gate;
use corona_net::accept::Acceptor;
use corona_wire::calls::{SessionDriver, SessionDriverCall as Call, SessionDriverReply as Reply};
use corona_wire::server::{Answer, Handler, Limits, ListenOn, Peer, Server, listen};

/// Where sessions listen, each kind at its own address.
#[derive(Debug)]
pub(super) struct CallbackServer {
    pub(super) prompt: SocketAddr,
    pub(super) dead: SocketAddr,
    pub(super) stuck: SocketAddr,
    /// Keeps the dead port from being used by another.
    _dead: Socket,
    /// The listener stops when this is dropped.
    _stop: watch::Sender<bool>,
}

impl CallbackServer {
    /// Opens the listeners on this address of the machine.
    pub(super) fn open(world: Arc<LoadWorld>, address: IpAddr) -> io::Result<CallbackServer> {
        let any = SocketAddr::new(address, 0);
        let listener = listen(ListenOn::Address(any))?;
        let prompt = listener.local_addr()?;
        let limits = Limits { max_connections: 200_000, ..Limits::default() };
        let after_end = world.meter.count("notifications after the session's end");
        let server = Server::new(listener, Notified { world, after_end }, limits)
            .with_gate(Gate::of_clients());
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server.run::<SessionDriver>(stopped.clone()));

        let stuck = listen(ListenOn::Address(any))?;
        let stuck_address = stuck.local_addr()?;
        tokio::spawn(accept_and_ignore(stuck, stopped));

        // Bound and not listening: connections to it are refused.
        let dead = Socket::new(Domain::for_address(any), Type::STREAM, None)?;
        dead.bind(&any.into())?;
        let dead_address = dead.local_addr()?.as_socket();
        let dead_address = dead_address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(CallbackServer {
            prompt,
            dead: dead_address,
            stuck: stuck_address,
            _dead: dead,
            _stop: stop,
        })
    }
}

/// Takes connections, at most so many, and reads nothing from them.
async fn accept_and_ignore(listener: TcpListener, mut stopped: watch::Receiver<bool>) {
    const MOST: usize = 10_000;
    let mut ignored = Vec::new();
    let mut acceptor = Acceptor::new(listener);
    loop {
        let (stream, _) = tokio::select! {
            // The sender was dropped or has sent.
            _ = stopped.changed() => return,
            accepted = acceptor.next(drop) => accepted,
        };
        if ignored.len() < MOST {
            ignored.push(stream);
        }
    }
}

struct Notified {
    world: Arc<LoadWorld>,
    after_end: Arc<Count>,
}

impl Handler<SessionDriver> for Notified {
    async fn call(&self, peer: Peer, call: Call) -> Answer<Reply> {
        let (handle, reply) = match &call {
            Call::GrantResource { handle, .. } => (handle, Reply::GrantResource),
            Call::RevokeResource { handle, .. } => (handle, Reply::RevokeResource),
            Call::ProcessDeadNode { handle, .. } => (handle, Reply::ProcessDeadNode),
        };
        // A session that has just ended still receives notifications in flight.
        let Some(session) = self.world.session(handle.as_deref().unwrap_or_default()) else {
            self.after_end.add(1);
            return Answer::Reply(reply);
        };
        match &call {
            Call::GrantResource { granted, .. } => {
                session.granted(granted.as_deref().unwrap_or_default(), peer.address.port());
            }
            Call::RevokeResource { revoked, .. } => {
                session.revoked(revoked.as_deref().unwrap_or_default());
            }
            Call::ProcessDeadNode { node, .. } => {
                session.node_died(node.as_deref().unwrap_or_default());
            }
        }
        Answer::Reply(reply)
    }
}
