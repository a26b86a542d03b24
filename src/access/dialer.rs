//! How the clients of this program connect: a process has one identity, and shows it to whomever it calls.
//!
//! Peers in `corona.tls.plain.networks` are called without TLS: they may be Java programs, and one that
//! reads the first bytes of TLS as the length of a message may take all of its memory for it. Other peers that
//! reply with something else than TLS are called again without it, unless TLS is required or they have spoken it before.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use corona_config::{TlsMode, TlsSettings};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustls::{ClientConnection, StreamOwned};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::gate::GateError;
use crate::identity::{HANDSHAKE_TIMEOUT, Identity, Keeper};
use crate::rights;
use crate::role::Role;
use crate::stream::Stream;
use crate::verify;

/// How the clients of a process connect.
#[derive(Debug)]
pub(crate) struct Dialer {
    settings: TlsSettings,
    identity: Arc<Identity>,
    keeper: Keeper,
    known: KnownPeers,
}

/// Which peers have spoken TLS with this process, and which have replied with something else.
#[derive(Debug, Default)]
struct KnownPeers(Mutex<HashMap<SocketAddr, Speaks>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    /// It is never called without it.
    Tls,
    /// It is called without TLS until then.
    Plain { until: Instant },
}

/// For how long a peer is called without TLS after it has replied with something else.
const PLAIN_FOR: Duration = Duration::from_secs(60);
/// Peers that are remembered.
const MAX_KNOWN: usize = 10_000;

impl KnownPeers {
    fn is_plain(&self, peer: SocketAddr, now: Instant) -> bool {
        matches!(self.lock().get(&peer), Some(Speaks::Plain { until }) if now < *until)
    }

    fn speaks_tls(&self, peer: SocketAddr) {
        let mut known = self.lock();
        if known.get(&peer) != Some(&Speaks::Tls) {
            KnownPeers::make_room(&mut known);
            known.insert(peer, Speaks::Tls);
        }
    }

    /// Whether a peer that has replied with something else than TLS may be called without it, and whether that
    /// was not known.
    fn replied_plainly(&self, peer: SocketAddr, now: Instant) -> Option<bool> {
        let mut known = self.lock();
        let before = known.get(&peer).copied();
        if before == Some(Speaks::Tls) {
            return None;
        }
        KnownPeers::make_room(&mut known);
        known.insert(peer, Speaks::Plain { until: now + PLAIN_FOR });
        Some(before.is_none())
    }

    /// Makes room for another peer. Those that have spoken TLS go last.
    fn make_room(known: &mut HashMap<SocketAddr, Speaks>) {
        if known.len() < MAX_KNOWN {
            return;
        }
        known.retain(|_, speaks| *speaks == Speaks::Tls);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Speaks>> {
        // Each change is one call, so it can be used after a panic too.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static OF_PROCESS: RwLock<Option<Arc<Dialer>>> = RwLock::new(None);

fn of_process() -> Option<Arc<Dialer>> {
    OF_PROCESS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The clients of this process show the identity of these settings from now on. A caller that opens it again, such as
/// a service that restarts in its process, gets the same one: it is renewed once for all of them.
pub(crate) fn install(settings: &TlsSettings, keeper: Keeper) -> Result<Arc<Identity>, GateError> {
    let directory = settings.directory.as_deref();
    let directory = directory.ok_or(GateError::NoIdentity(settings.mode))?;
    let known = of_process().map(|dialer| dialer.identity.clone());
    hide_memory();
    let identity = match known.filter(|identity| identity.directory() == directory) {
        Some(identity) => {
            identity.reload()?;
            identity
        }
        None => Arc::new(Identity::open(directory)?),
    };
    let dialer = Dialer::new(settings.clone(), identity.clone(), keeper);
    *OF_PROCESS.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(dialer));
    Ok(identity)
}

/// Nobody but root sees the memory of this process from now on, and no core dump is made of it. The programs that it
/// starts are not concerned.
fn hide_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "Other processes of this user can read the key in the memory of this one");
    }
}

/// The clients of this process connect as the settings say.
///
/// # Errors
/// TLS is to be spoken, and the certificate cannot be used.
pub fn use_in_clients(settings: &TlsSettings) -> Result<(), GateError> {
    connect_as(settings, Keeper::Clients)
}

fn connect_as(settings: &TlsSettings, keeper: Keeper) -> Result<(), GateError> {
    if settings.mode == TlsMode::Off {
        return Ok(());
    }
    match of_process() {
        None => install(settings, keeper).map(drop),
        Some(dialer) => {
            if dialer.settings != *settings {
                tracing::debug!("This process connects as it did before: it has one identity");
            }
            Ok(())
        }
    }
}

/// The settings and the certificate of the clients of this process, if they have one.
pub(crate) fn of_clients() -> Option<(TlsSettings, Arc<Identity>)> {
    of_process().map(|dialer| (dialer.settings.clone(), dialer.identity.clone()))
}

/// Whether the clients of this process speak nothing but TLS with members.
pub fn is_required_of_clients() -> bool {
    of_process().is_some_and(|dialer| dialer.settings.mode == TlsMode::Require)
}

/// The variables with which a process that this one starts connects as this one does.
pub fn environment() -> Vec<(&'static str, String)> {
    let Some(dialer) = of_process() else { return vec![] };
    let Dialer { settings, identity, .. } = &*dialer;
    let networks: Vec<String> = settings.plain_networks.clone().into();
    vec![
        (MODE, settings.mode.to_string()),
        (DIRECTORY, identity.directory().display().to_string()),
        (PLAIN_NETWORKS, networks.join(",")),
    ]
}

/// The clients of this process connect as those of the process that has started it, see
/// [`environment`].
///
/// # Errors
/// The variables are not those of this version, or the certificate cannot be used.
pub fn use_as_parent(variable: impl Fn(&str) -> Option<String>) -> Result<(), GateError> {
    let Some(mode) = variable(MODE) else { return Ok(()) };
    let wrong = |name| move |_| GateError::Environment(name);
    let networks = variable(PLAIN_NETWORKS).unwrap_or_default();
    let settings = TlsSettings {
        mode: mode.parse().map_err(wrong(MODE))?,
        plain_networks: networks.parse().map_err(wrong(PLAIN_NETWORKS))?,
        directory: variable(DIRECTORY).map(Into::into),
        authority: None,
    };
    connect_as(&settings, Keeper::Parent)
}

const MODE: &str = "CORONA_TLS";
const DIRECTORY: &str = "CORONA_TLS_DIRECTORY";
const PLAIN_NETWORKS: &str = "CORONA_TLS_PLAIN_NETWORKS";

/// Speaks TLS on a new connection to a server of this Thrift service or RPC protocol, if this process and
/// the server do.
///
/// # Errors
/// The handshake failed; the error's text says why.
pub async fn dial(service: &str, stream: TcpStream) -> io::Result<Stream> {
    match of_process() {
        Some(dialer) => dialer.dial(service, stream).await,
        None => Ok(Stream::Plain(stream)),
    }
}

/// A connection of a thread that waits for it, plain or TLS.
#[derive(Debug)]
pub enum BlockingStream {
    /// As the bytes come.
    Plain(std::net::TcpStream),
    /// Within TLS.
    Tls(Box<StreamOwned<ClientConnection, ReadAhead>>),
}

/// A connection that is read in large pieces: TLS itself asks the system for 4 KiB at a time.
#[derive(Debug)]
pub struct ReadAhead(io::BufReader<std::net::TcpStream>);

impl ReadAhead {
    /// Some records of TLS, which have 16 KiB.
    const BYTES: usize = 64 << 10;

    pub(crate) fn new(stream: std::net::TcpStream) -> ReadAhead {
        ReadAhead(io::BufReader::with_capacity(ReadAhead::BYTES, stream))
    }
}

impl io::Read for ReadAhead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl io::Write for ReadAhead {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// The same as [`dial`] for a thread that waits.
///
/// # Errors
/// The handshake failed; the error's text says why.
pub fn dial_blocking(service: &str, stream: std::net::TcpStream) -> io::Result<BlockingStream> {
    match of_process() {
        Some(dialer) if dialer.speaks_tls(service, stream.peer_addr()?) => {
            dialer.dial_blocking(service, stream)
        }
        _ => Ok(BlockingStream::Plain(stream)),
    }
}

impl Dialer {
    pub(crate) fn new(settings: TlsSettings, identity: Arc<Identity>, keeper: Keeper) -> Dialer {
        Dialer { settings, identity, keeper, known: KnownPeers::default() }
    }

    pub(crate) async fn dial(&self, service: &str, stream: TcpStream) -> io::Result<Stream> {
        let address = stream.peer_addr()?;
        if !self.speaks_tls(service, address) {
            return Ok(Stream::Plain(stream));
        }
        let no_delay = stream.nodelay()?;
        self.identity.keep_fresh(self.keeper, SystemTime::now()).await;
        let connected = self.identity.connect(stream, self.servers(service)).await;
        if self.learns(address, connected.as_ref().err()) {
            let late = || io::Error::from(io::ErrorKind::TimedOut);
            let connecting = timeout(HANDSHAKE_TIMEOUT, TcpStream::connect(address)).await;
            let plain = connecting.map_err(|_| late())??;
            plain.set_nodelay(no_delay)?;
            return Ok(Stream::Plain(plain));
        }
        connected
    }

    fn dial_blocking(
        &self,
        service: &str,
        stream: std::net::TcpStream,
    ) -> io::Result<BlockingStream> {
        let (address, no_delay) = (stream.peer_addr()?, stream.nodelay()?);
        let (reads, writes) = (stream.read_timeout()?, stream.write_timeout()?);
        self.identity.keep_read(self.keeper, SystemTime::now());
        let connected = self.identity.connect_blocking(stream, self.servers(service));
        if self.learns(address, connected.as_ref().err()) {
            let most = reads.unwrap_or(HANDSHAKE_TIMEOUT);
            let plain = std::net::TcpStream::connect_timeout(&address, most)?;
            plain.set_read_timeout(reads)?;
            plain.set_write_timeout(writes)?;
            plain.set_nodelay(no_delay)?;
            return Ok(BlockingStream::Plain(plain));
        }
        Ok(BlockingStream::Tls(Box::new(connected?)))
    }

    fn servers(&self, service: &str) -> &'static [Role] {
        rights::servers(service, self.identity.identified().role)
    }

    fn speaks_tls(&self, service: &str, peer: SocketAddr) -> bool {
        let networks = &self.settings.plain_networks;
        let is_plain = !networks.are_all() && networks.contain(peer.ip());
        let is_known =
            self.settings.mode == TlsMode::Allow && self.known.is_plain(peer, Instant::now());
        !is_plain && !is_known && !rights::is_plain(service)
    }

    /// Learns from the outcome of a handshake. Whether the peer is to be called without TLS: it has replied with
    /// something else, has never spoken TLS with this process, and TLS is not required.
    fn learns(&self, peer: SocketAddr, failure: Option<&io::Error>) -> bool {
        let Some(error) = failure else {
            self.known.speaks_tls(peer);
            return false;
        };
        if error.kind() != io::ErrorKind::Unsupported || self.settings.mode != TlsMode::Allow {
            return false;
        }
        let is_new = self.known.replied_plainly(peer, Instant::now());
        if is_new == Some(true) {
            tracing::info!(%peer, "A peer that was called does not speak TLS; calling it without");
        }
        is_new.is_some()
    }
}

impl io::Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            BlockingStream::Plain(stream) => stream.read(buffer),
            BlockingStream::Tls(stream) => stream.read(buffer).map_err(verify::explained_later),
        }
    }
}

impl io::Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            BlockingStream::Plain(stream) => stream.write(bytes),
            BlockingStream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            BlockingStream::Plain(stream) => stream.flush(),
            BlockingStream::Tls(stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_has_spoken_tls_is_remembered_longest() {
        let (known, now) = (KnownPeers::default(), Instant::now());
        let peer = |number: u32| SocketAddr::from((std::net::Ipv4Addr::from(number), 1));
        known.speaks_tls(peer(0));
        for number in 1..=MAX_KNOWN as u32 {
            assert_eq!(known.replied_plainly(peer(number), now), Some(true));
        }
        assert_eq!(known.replied_plainly(peer(0), now), None);
        let last = peer(MAX_KNOWN as u32);
        assert!(known.is_plain(last, now) && !known.is_plain(last, now + PLAIN_FOR));
        assert_eq!(known.replied_plainly(last, now), Some(false));
        known.speaks_tls(last);
        assert!(!known.is_plain(last, now));
        assert_eq!(known.replied_plainly(last, now), None);
    }
}
