//! A transparent relay in front of any cluster manager, which passes copies of the traffic to
//! listeners.
//!
//! * `pump` moves the bytes of one connection, both ways;
//! * [`feed`](feed()) passes relayed data to listeners, off the path;
//! * [`recorder`](Recorder) is the listener that writes a file;
//! * `callbacks` sits between the manager and session drivers, if that is enabled;
//! * `guard` decides which hosts may use it, and for which session drivers;
//! * this file accepts, connects and ends.
//!
//! It is only TCP, so it knows no difference between managers. Peers are not trusted: the number of
//! connections and listeners is bounded, and at most one piece of each direction waits for a slow
//! reader.

mod callbacks;
mod feed;
pub(crate) mod guard;
mod pump;
mod recorder;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corona_config::Networks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use callbacks::{CallbackListeners, RelayedDriver, Rules, Stand};
use feed::Feeds;
pub use feed::{Feed, FeedEntries, feed};
use guard::Guard;
use pump::{Transforms, Useless};
pub use recorder::{Recorder, RecorderSummary, Store};

use crate::capture::Opening;
use crate::conversation::Offered;
use corona_net::accept::{Acceptor, Failure};
use corona_net::{ListenOn, listen};

/// Why nothing is relayed within TLS, and what to do.
pub const RELAYS_IN_TLS: &str = "a relay reads nothing within TLS, and has no certificate of its clients to show: name its machine \
                      in corona.tls.plain.networks of the cluster manager and of the clients while it runs";

/// Options of a relay.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// Where clients connect. Port 0 is any free port.
    pub listen: SocketAddr,
    /// The cluster manager, as `HOST:PORT`. The name is looked up for each connection.
    pub upstream: String,
    /// Whether to stand between the manager and session drivers as well.
    pub relay_callbacks: bool,
    /// The host that the manager receives instead of a session driver's. None: that of `listen`,
    /// or, if that is the wildcard address, the relay's local address on the way to the manager.
    pub callback_host: Option<String>,
    /// Networks in which session drivers may be besides the hosts that their sessions connect from.
    /// Callbacks to others are not relayed.
    pub callback_drivers: Option<Networks>,
    /// Networks from which callbacks are accepted besides the addresses of `upstream`.
    pub callback_sources: Option<Networks>,
    /// Whether an address is one of this machine, all of which are the same host.
    pub is_own_address: fn(IpAddr) -> bool,
    /// Connections at a time, callbacks included. One more is closed at once. Default 10,000.
    pub max_connections: usize,
    /// The maximum number of listeners for session drivers. Beyond it the one that has been idle
    /// longest is closed. Default 4,096.
    pub max_listeners: usize,
    /// How long a listener stays after the end of its last session. Default one minute.
    pub listener_linger: Duration,
    /// How long a listener stays without calls of its sessions, heartbeats included. Default one
    /// hour.
    pub listener_idle: Duration,
    /// How long connecting to the manager or a session driver may take. Default ten seconds.
    pub connect_timeout: Duration,
}

impl RelayOptions {
    /// A relay between `listen` and `upstream` with the defaults, which leaves callbacks alone.
    pub fn new(listen: SocketAddr, upstream: impl Into<String>) -> Self {
        RelayOptions {
            listen,
            upstream: upstream.into(),
            relay_callbacks: false,
            callback_host: None,
            callback_drivers: None,
            callback_sources: None,
            is_own_address: guard::is_own_address,
            max_connections: 10_000,
            max_listeners: 4_096,
            listener_linger: Duration::from_secs(60),
            listener_idle: Duration::from_secs(3_600),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A relay that listens.
pub struct Relay {
    listener: TcpListener,
    /// Taken from the listener while nothing can be wrong with it.
    address: SocketAddr,
    options: RelayOptions,
}

impl Relay {
    /// Opens the listener. Must be called within a tokio runtime.
    ///
    /// Errors: those of the system, such as a port that is taken.
    pub fn bind(options: RelayOptions) -> io::Result<Self> {
        let listener = listen(ListenOn::Address(options.listen))?;
        let address = listener.local_addr()?;
        Ok(Relay { listener, address, options })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Relays until `stop` becomes true or its sender is dropped, and then closes all connections.
    /// Copies of the traffic go to each of `feeds`, which are closed at the end.
    pub async fn run(self, feeds: Vec<Feed>, mut stop: watch::Receiver<bool>) {
        let Relay { listener, options, .. } = self;
        let (stands, mut new_stands) = mpsc::channel(options.max_listeners.max(1));
        let guard = Arc::new(Guard::new(
            options.callback_drivers.clone(),
            options.callback_sources.clone(),
            options.is_own_address,
        ));
        let callbacks = options.relay_callbacks.then(|| {
            let listen_on = options.listen.ip();
            let own = (!listen_on.is_unspecified()).then(|| listen_on.to_string());
            let rules = Rules {
                listen_on,
                host: options.callback_host.clone().or(own),
                max_listeners: options.max_listeners,
                linger: options.listener_linger,
                idle: options.listener_idle,
            };
            CallbackListeners::new(rules, Arc::clone(&guard), stands)
        });
        let room = Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS)));
        let sweep_every = (options.listener_linger.min(options.listener_idle) / 4)
            .clamp(Duration::from_millis(10), Duration::from_secs(10));
        let seldom = Seldom::default();
        let over = stop.clone();
        let feeds = Feeds(feeds);
        let hall = Arc::new(Hall { options, feeds, callbacks, guard, room, seldom, over });
        let mut tasks = JoinSet::new();
        let main = Arc::clone(&hall);
        tasks.spawn(async move { main.serve(listener, None).await });
        let mut sweep = tokio::time::interval(sweep_every);
        loop {
            tokio::select! {
                () = ended(&mut stop) => break,
                Some(stand) = new_stands.recv() => {
                    let hall = Arc::clone(&hall);
                    tasks.spawn(async move { hall.stand(stand).await });
                }
                Some(_) = tasks.join_next() => {}
                _ = sweep.tick() => hall.callbacks.iter().for_each(|callbacks| callbacks.sweep()),
            }
        }
        // They see that it is over, and have ended their connections when they end.
        while tasks.join_next().await.is_some() {}
    }
}

/// The state that all connections share.
struct Hall {
    options: RelayOptions,
    feeds: Feeds,
    callbacks: Option<Arc<CallbackListeners>>,
    guard: Arc<Guard>,
    /// Connections that may still come.
    room: Arc<Semaphore>,
    seldom: Seldom,
    /// Becomes true, or loses its sender, when the relay is to end.
    over: watch::Receiver<bool>,
}

impl Hall {
    /// Serves a listener for callbacks until it must be closed. Its connections continue.
    async fn stand(self: Arc<Self>, stand: Stand) {
        let Stand { driver, listener, mut open } = stand;
        let connections = Arc::clone(&self).serve(listener, Some((driver, &mut open)));
        connections.await;
    }

    /// Accepts connections for the cluster manager or for a session driver.
    async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        callback: Option<(RelayedDriver, &mut watch::Receiver<()>)>,
    ) {
        let (driver, mut open) = callback.unzip();
        let mut over = self.over.clone();
        let mut connections = JoinSet::new();
        let mut acceptor = Acceptor::new(listener);
        // As a rule too many open files; it passes when connections end.
        let failed =
            |failure: Failure| self.seldom.say(|| format!("cannot accept: {}", failure.error));
        loop {
            let (client, peer) = tokio::select! {
                () = ended(&mut over) => break,
                accepted = acceptor.next(failed) => accepted,
                Some(_) = connections.join_next() => continue,
                () = closed(&mut open) => break,
            };
            if driver.is_some() && !self.guard.may_call(peer.ip()) {
                pump::break_off(&client);
                self.seldom.say(|| {
                    format!(
                        "refused a callback from {peer}: it is not the cluster manager at {} \
                         (--callback-sources accepts others)",
                        self.options.upstream
                    )
                });
                continue;
            }
            match Arc::clone(&self.room).try_acquire_owned() {
                Ok(room) => {
                    let (hall, driver) = (Arc::clone(&self), driver.clone());
                    connections.spawn(async move {
                        hall.connection(client, peer, driver).await;
                        drop(room);
                    });
                }
                Err(_) => {
                    pump::break_off(&client);
                    let most = self.options.max_connections;
                    self.seldom.say(|| format!("refused {peer}: {most} connections are open"));
                }
            }
        }
        drop(acceptor);
        tokio::select! {
            () = ended(&mut over) => {}
            () = async { while connections.join_next().await.is_some() {} } => {}
        }
        connections.shutdown().await;
    }

    async fn connection(&self, client: TcpStream, peer: SocketAddr, driver: Option<RelayedDriver>) {
        let target = match &driver {
            Some(driver) => self.driver_addresses(driver).await,
            None => {
                let found = lookup(self.options.upstream.as_str()).await;
                found.inspect(|addresses| self.guard.primary_is_at(addresses))
            }
        };
        let service =
            if driver.is_some() { Offered::SessionDriver } else { Offered::ClusterManager };
        if let (Some(callbacks), Some(driver)) = (&self.callbacks, &driver) {
            callbacks.heard(driver);
        }
        let unknown = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), driver.map_or(0, |d| d.port));
        let server = target.as_ref().ok().and_then(|all| all.first().copied()).unwrap_or(unknown);
        let opening = Opening { client: peer, server, at: Duration::ZERO, whole: true };
        let taps = self.feeds.open(&opening, service);
        let connected = match target {
            Ok(target) => self.connect(&target).await,
            Err(error) => Err(error),
        };
        let upstream = match connected {
            Ok(upstream) => upstream,
            Err(error) => {
                self.seldom.say(|| format!("cannot reach {server} for {peer}: {error}"));
                pump::break_off(&client);
                return;
            }
        };
        taps.accepted();
        for stream in [&client, &upstream] {
            if let Err(error) = pump::prepare(stream) {
                self.seldom.say(|| format!("the connection of {peer}: {error}"));
            }
        }
        let transforms = self.transforms(service, peer, &upstream);
        match pump::relay(client, upstream, &taps, transforms).await {
            None => {}
            Some(Useless::Tls) => self.seldom.say(|| format!("refused {peer}, which begins with TLS: {RELAYS_IN_TLS}")),
            Some(Useless::Unanswered) => self.seldom.say(|| {
                format!(
                    "{server} closed the connection of {peer} without a reply, as one does that requires TLS: \
                     {RELAYS_IN_TLS}"
                )
            }),
        }
    }

    /// The addresses of a driver that are on its session's host, or allowed otherwise.
    async fn driver_addresses(&self, driver: &RelayedDriver) -> io::Result<Vec<SocketAddr>> {
        let mut found = lookup((driver.host.as_str(), driver.port)).await?;
        found.retain(|address| self.guard.may_have_driver_at(driver.session, address.ip()));
        if found.is_empty() {
            let why = format!(
                "the session driver {:?} is not on the session's host {} (--callback-drivers allows \
                 others)",
                driver.host, driver.session
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(found)
    }

    fn transforms(&self, service: Offered, peer: SocketAddr, upstream: &TcpStream) -> Transforms {
        let callbacks = self.callbacks.as_ref().filter(|_| service == Offered::ClusterManager);
        let own = upstream.local_addr().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |own| own.ip());
        callbacks.map(|callbacks| callbacks.transforms(own, peer.ip())).unwrap_or_default()
    }

    async fn connect(&self, target: &[SocketAddr]) -> io::Result<TcpStream> {
        let connecting = TcpStream::connect(target);
        match tokio::time::timeout(self.options.connect_timeout, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

async fn lookup(host: impl tokio::net::ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host(host).await?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

/// Done when the relay is to end.
async fn ended(over: &mut watch::Receiver<bool>) {
    // A dropped sender means the same.
    let _ = over.wait_for(|over| *over).await;
}

/// Completes when the sender is dropped; never for the listener that stays.
async fn closed(open: &mut Option<&mut watch::Receiver<()>>) {
    match open {
        Some(open) => while open.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

/// Logs events that many connections have in common, but not for each of them.
#[derive(Default)]
struct Seldom {
    last: Mutex<Option<Instant>>,
    unsaid: AtomicU64,
}

impl Seldom {
    /// The shortest time between two lines.
    const PAUSE: Duration = Duration::from_secs(10);

    fn say(&self, text: impl FnOnce() -> String) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < Self::PAUSE) {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
            return;
        }
        *last = Some(Instant::now());
        let text = text();
        match self.unsaid.swap(0, Ordering::Relaxed) {
            0 => tracing::warn!("{text}"),
            unsaid => tracing::warn!("{text} ({unsaid} more such lines were left out)"),
        }
    }
}
