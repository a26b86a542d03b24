//! The port at which other instances connect: to copy the journal, and to pass on the connections of
//! peers. Only addresses of instances are let in. The copy is made within TLS where that is spoken; a peer's
//! connection is passed on as it is, and shows its own certificate behind this port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::copy_out::Source;
use corona_access::{Gate, Peer, Rights, Stream, speaks_tls};
use corona_config::Networks;
use corona_net::accept::{Acceptor, Failure};
use corona_net::proxy_protocol::{self, SIGNATURE};
use corona_net::relay::has_closed;
use corona_process::panics::spawn_detached;
use corona_standby::stream::OPENING;

/// How long the first bytes of a connection may take.
const OPENING_TIME: Duration = Duration::from_secs(5);
/// Connections that have not said yet what they want.
const MAX_OPENING: usize = 1024;

/// What a leader does with connections of other instances.
#[derive(Clone, Debug)]
pub(super) struct Leading {
    pub(super) source: Source,
    /// Takes connections of peers, each with the peer's address.
    pub(super) handed: mpsc::Sender<(TcpStream, SocketAddr)>,
}

/// The port for instances.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) instances: Networks,
    pub(super) gate: Arc<Gate>,
    /// `None` while this instance does not lead: connections wait for a moment, and are closed.
    pub(super) leading: watch::Sender<Option<Leading>>,
}

impl Door {
    /// Serves forever.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut acceptor = Acceptor::new(listener);
        let failed = |Failure { error, lasts }| {
            if lasts {
                tracing::error!(%error, "cannot accept connections of other instances");
            }
        };
        let opening = Arc::new(tokio::sync::Semaphore::new(MAX_OPENING));
        loop {
            let (stream, peer) = acceptor.next(failed).await;
            if !self.instances.contain(peer.ip()) {
                tracing::warn!(
                    "Refused a connection of {peer}: it is in no network of corona.cm.ha.instances"
                );
                continue;
            }
            let Ok(place) = opening.clone().try_acquire_owned() else { continue };
            let mut leading = self.leading.subscribe();
            let door = self.clone();
            spawn_detached("a connection of another instance", async move {
                let opened = timeout(OPENING_TIME, door.open(stream, peer)).await;
                // An instance that was just elected does not serve yet.
                let leads = timeout(OPENING_TIME, leading.wait_for(Option::is_some)).await;
                let leads = leads.ok().and_then(|leads| leads.ok()?.clone());
                let Some(leading) = leads else { return };
                if let Ok(Some(Opened::Copy(stream, peer))) = opened {
                    // It has the place until it has said its name.
                    tokio::select! {
                        () = leading.source.serve(stream, place) => {}
                        () = peer.access_ends() => {
                            tracing::warn!(%peer, "Ended a copy of the journal: its access was revoked");
                        }
                    }
                    return;
                }
                drop(place);
                match opened {
                    Ok(Some(Opened::Copy(..))) => {}
                    // Its instance has given it up while it waited: the peer repeats its calls.
                    Ok(Some(Opened::Peer(stream, _))) if has_closed(&stream) => {}
                    Ok(Some(Opened::Peer(stream, address))) => {
                        // A server that has stopped takes no connections.
                        let _ = leading.handed.send((stream, address.unwrap_or(peer))).await;
                    }
                    Ok(None) | Err(_) => tracing::debug!("{peer} did not say what it wants"),
                }
            });
        }
    }

    /// Starts or ends to serve as a leader.
    pub(super) fn lead(&self, leading: Option<Leading>) {
        self.leading.send_replace(leading);
    }
}

/// What a connection wants.
enum Opened {
    Copy(Stream, Peer),
    Peer(TcpStream, Option<SocketAddr>),
}

impl Door {
    /// What a connection wants, if it may have it.
    async fn open(&self, stream: TcpStream, address: SocketAddr) -> Option<Opened> {
        if !self.gate.is_off() && speaks_tls(&stream).await {
            let (mut stream, peer) = self.gate.admit(stream, address, false).await.ok()?;
            if let Some(objection) = peer.objection(|| Rights::ADMIN) {
                tracing::warn!(%peer, objection, "Refused to copy the journal to a peer");
                return None;
            }
            let mut bytes = [0; OPENING.len()];
            stream.read_exact(&mut bytes).await.ok()?;
            return (bytes == *OPENING).then_some(Opened::Copy(stream, peer));
        }
        let opened = open(stream, address).await?;
        if matches!(opened, Opened::Copy(..)) && self.gate.plain(address).is_none() {
            tracing::warn!(peer = %address, "Refused to copy the journal without TLS, which is required");
            return None;
        }
        Some(opened)
    }
}

async fn open(mut stream: TcpStream, address: SocketAddr) -> Option<Opened> {
    let mut bytes = vec![0; OPENING.len()];
    stream.read_exact(&mut bytes).await.ok()?;
    if bytes == OPENING {
        return Some(Opened::Copy(stream.into(), Peer::plain(address)));
    }
    if bytes != SIGNATURE {
        return None;
    }
    // Not one byte behind the header is read: it belongs to the peer.
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await.ok()?;
    bytes.extend(fixed);
    let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if bytes.len() + length > proxy_protocol::MAX_HEADER {
        return None;
    }
    let mut addresses = vec![0; length];
    stream.read_exact(&mut addresses).await.ok()?;
    bytes.extend(addresses);
    let (_, peer) = proxy_protocol::read(&bytes).ok()??;
    Some(Opened::Peer(stream, peer))
}
