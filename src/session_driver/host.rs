//! The listener for notifications. One serves many sessions: each call names its session.
//!
//! It answers as soon as a call is in its session's queue, and does not interpret the call. Spec:
//! cluster-manager/01 §6.2, 05 §6.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::contact::Contact;
use super::conversation::{self, LoggedPanic};
use super::driver::{Beginning, SessionDriver, StartError};
use super::events::{Ending, SessionEvents};
use super::link::Connector;
use super::options::{Endpoint, Listen, Options};
use super::snapshot::SavedSession;
use super::translate;
use super::types::{Grant, NodeUsage, SessionStatus};
use corona_wire::calls::{self, SessionDriverCall, SessionDriverReply};
use corona_wire::generated::ResourceGrant;
use corona_wire::server::{Answer, Handler, ListenOn, Peer, Server, listen};

/// A notification of a session.
#[derive(Debug)]
pub(super) enum Notification {
    Granted(Vec<Grant>),
    Revoked(Vec<Grant>),
    DeadNode(String),
}

/// A listener that takes the notifications of many sessions of one process.
///
/// The original opens a listener and several threads for each session. Here the sessions of a host
/// share one listener and have no threads. Notifications are assigned by handle, so all sessions of
/// a host must be at the same cluster manager.
///
/// A call for a session that is not, or no longer, on this host closes its connection: the cluster
/// manager then gives the session up, as it does when a Java session's listener has closed.
///
/// Clones are the same host. It listens until the last clone and the last session are dropped.
#[derive(Clone, Debug)]
pub struct DriverHost {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    router: Arc<Router>,
    advertised: Endpoint,
    connector: Connector,
    contact: Contact,
    /// The server stops when this is dropped.
    _stop: watch::Sender<bool>,
}

impl DriverHost {
    /// Opens a listener that sessions at `cluster_manager` can share. Must be called within a tokio
    /// runtime, on which the listener is then served.
    ///
    /// Errors: those of the system, and of the look-up of the cluster manager's host when
    /// [`Listen::address`] is not set.
    pub async fn open(cluster_manager: &Endpoint, options: &Listen) -> io::Result<DriverHost> {
        let address = match options.address {
            Some(address) => address,
            None => address_towards(cluster_manager).await?,
        };
        let listener = listen(ListenOn::Address(SocketAddr::new(address, options.port)))?;
        let port = listener.local_addr()?.port();
        let host = options.advertised_host.clone().unwrap_or_else(|| address.to_string());
        let router = Arc::new(Router::default());
        let callbacks =
            SessionCallbacks { router: router.clone(), max_reply_delay: options.max_reply_delay };
        let server = Server::new(listener, callbacks, options.limits.to_wire())
            .with_gate(options.gate.clone());
        let (stop, stopped) = watch::channel(false);
        let advertised = Endpoint::new(host, port);
        let lost = format!(
            "The listener at {advertised} panicked; its sessions receive no more notifications"
        );
        tokio::spawn(async move {
            let _logged = LoggedPanic(lost);
            server.run::<calls::SessionDriver>(stopped).await
        });
        let connector = Connector::default();
        let contact = Contact::default();
        let inner = Inner { router, advertised, connector, contact, _stop: stop };
        Ok(DriverHost { inner: Arc::new(inner) })
    }

    /// Starts a session that is notified here. See [`SessionDriver::start`].
    pub async fn start(
        &self,
        options: Options,
    ) -> Result<(SessionDriver, SessionEvents), StartError> {
        SessionDriver::start_at(self.clone(), options, Beginning::New).await
    }

    /// An id for a session, which is not started yet. See [`DriverHost::start_named`]. It waits as
    /// long as [`SessionDriver::start`].
    pub async fn next_session_id(&self, options: &Options) -> Result<Arc<str>, StartError> {
        conversation::next_session_id(self.connector(), options, &self.inner.contact).await
    }

    /// Whether the cluster manager answers those who ask for ids.
    pub fn contact(&self) -> Contact {
        self.inner.contact.clone()
    }

    /// Starts a session with an id from [`DriverHost::next_session_id`].
    pub async fn start_named(
        &self,
        handle: Arc<str>,
        options: Options,
    ) -> Result<(SessionDriver, SessionEvents), StartError> {
        SessionDriver::start_at(self.clone(), options, Beginning::Named(handle)).await
    }

    /// Resumes a session that an earlier process started. Every id up to [`SavedSession::last_id`] that is
    /// not [open](SavedSession::open) is released at the cluster manager, in case that was lost. Requests
    /// without a grant may have been granted unnoticed: release them and request again.
    ///
    /// It does not wait for the cluster manager. If that does not know the session any more,
    /// [`Event::Ended`](super::Event::Ended) is the first event.
    ///
    /// Errors: there is a session with this id here, or the session takes notifications elsewhere.
    pub async fn resume(
        &self,
        session: SavedSession,
        options: Options,
    ) -> Result<(SessionDriver, SessionEvents), StartError> {
        let beginning = Beginning::Resumed(Box::new(session));
        SessionDriver::start_at(self.clone(), options, beginning).await
    }

    /// Ends a session that an earlier process started, after feedback that has not been sent. It is
    /// sent until the cluster manager acknowledges it, for up to
    /// [`Timers::end_timeout`](super::Timers::end_timeout).
    ///
    /// Errors: there is a session with this id here.
    pub async fn end_left(
        &self,
        handle: Arc<str>,
        options: Options,
        status: SessionStatus,
        feedback: Vec<NodeUsage>,
    ) -> Result<Arc<Ending>, StartError> {
        let left = SavedSession::new(handle, options.pool.clone());
        SessionDriver::end_at(self.clone(), options, left, status, feedback).await
    }

    /// The address that the cluster manager receives for callbacks.
    pub fn advertised(&self) -> &Endpoint {
        &self.inner.advertised
    }

    /// Calls that lost their connection because their session is not here, or because its queue
    /// was full for too long.
    pub fn refused_calls(&self) -> u64 {
        self.inner.router.refused.load(Ordering::Relaxed)
    }

    /// For the connections of this host's sessions.
    pub(super) fn connector(&self) -> Connector {
        self.inner.connector.clone()
    }

    /// Lets calls for this session in. `None` when a session with this handle is here already.
    pub(super) fn register(
        &self,
        handle: &Arc<str>,
        queue: mpsc::Sender<Notification>,
    ) -> Option<Registered> {
        match self.inner.router.queues().entry(handle.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(vacant) => vacant.insert(queue),
        };
        Some(Registered { host: self.clone(), handle: handle.clone() })
    }
}

/// A session that is let in. It no longer is when this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    host: DriverHost,
    handle: Arc<str>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.host.inner.router.queues().remove(&self.handle);
    }
}

/// The address of this machine on the way to the cluster manager; IPv4 where there is one, as Java
/// programs have it. Nothing is sent.
pub async fn address_towards(cluster_manager: &Endpoint) -> io::Result<IpAddr> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let mut addresses: Vec<_> = lookup_host(cluster_manager.pair()).await?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    for address in addresses {
        let any: SocketAddr = if address.is_ipv4() {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let local = async {
            let socket = UdpSocket::bind(any).await?;
            socket.connect(address).await?;
            socket.local_addr()
        };
        match local.await {
            Ok(local) => return Ok(local.ip()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[derive(Debug, Default)]
struct Router {
    queues: Mutex<HashMap<Arc<str>, mpsc::Sender<Notification>>>,
    refused: AtomicU64,
}

impl Router {
    /// No panic happens while the lock is held.
    fn queues(&self) -> MutexGuard<'_, HashMap<Arc<str>, mpsc::Sender<Notification>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct SessionCallbacks {
    router: Arc<Router>,
    max_reply_delay: Duration,
}

impl Handler<calls::SessionDriver> for SessionCallbacks {
    async fn call(&self, _peer: Peer, call: SessionDriverCall) -> Answer<SessionDriverReply> {
        let (handle, notification, reply) = match call {
            SessionDriverCall::GrantResource { handle, granted } => {
                (handle, Notification::Granted(grants(granted)), SessionDriverReply::GrantResource)
            }
            SessionDriverCall::RevokeResource { handle, revoked, force: _ } => {
                (handle, Notification::Revoked(grants(revoked)), SessionDriverReply::RevokeResource)
            }
            SessionDriverCall::ProcessDeadNode { handle, node } => {
                let node = Notification::DeadNode(node.unwrap_or_default());
                (handle, node, SessionDriverReply::ProcessDeadNode)
            }
        };
        let queue = self.router.queues().get(handle.as_deref().unwrap_or_default()).cloned();
        let queued = match queue {
            Some(queue) => timeout(self.max_reply_delay, queue.send(notification)).await,
            None => Ok(Err(mpsc::error::SendError(notification))),
        };
        if matches!(queued, Ok(Ok(()))) {
            return Answer::Reply(reply);
        }
        self.router.refused.fetch_add(1, Ordering::Relaxed);
        Answer::Close
    }
}

/// Grants of unknown types cannot be used and were never requested.
fn grants(grants: Option<Vec<ResourceGrant>>) -> Vec<Grant> {
    grants.unwrap_or_default().into_iter().filter_map(translate::grant).collect()
}
