//! How the clients of this program connect: a process has one identity, and shows it to whomever it calls.
//!
//! Peers in `corona.tls.plain.networks` are called without TLS: they may be Java programs, and one that
//! reads the first bytes of TLS as the length of a message may take all of its memory for it.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use corona_config::{TlsMode, TlsSettings};
use rustls::{ClientConnection, StreamOwned};
use tokio::net::TcpStream;

use crate::gate::GateError;
use crate::identity::Identity;
use crate::rights;
use crate::stream::Stream;

/// How the clients of a process connect.
#[derive(Debug)]
struct Dialer {
    settings: TlsSettings,
    identity: Arc<Identity>,
}

static OF_PROCESS: RwLock<Option<Arc<Dialer>>> = RwLock::new(None);

fn of_process() -> Option<Arc<Dialer>> {
    OF_PROCESS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The clients of this process show the identity of these settings from now on. A caller that opens it again, such as
/// a service that restarts in its process, gets the same one: it is renewed once for all of them.
pub(crate) fn install(settings: &TlsSettings) -> Result<Arc<Identity>, GateError> {
    let directory = settings.directory.as_deref();
    let directory = directory.ok_or(GateError::NoIdentity(settings.mode))?;
    let known = of_process().map(|dialer| dialer.identity.clone());
    let identity = match known.filter(|identity| identity.directory() == directory) {
        Some(identity) => {
            identity.reload()?;
            identity
        }
        None => Arc::new(Identity::open(directory)?),
    };
    let dialer = Dialer { settings: settings.clone(), identity: identity.clone() };
    *OF_PROCESS.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(dialer));
    Ok(identity)
}

/// The clients of this process connect as the settings say.
///
/// # Errors
/// TLS is to be spoken, and the certificate cannot be used.
pub fn use_in_clients(settings: &TlsSettings) -> Result<(), GateError> {
    if settings.mode == TlsMode::Off || of_process().is_some() {
        return Ok(());
    }
    install(settings).map(drop)
}

/// The variables with which a process that this one starts connects as this one does.
pub fn environment() -> Vec<(&'static str, String)> {
    let Some(dialer) = of_process() else { return vec![] };
    let Dialer { settings, identity } = &*dialer;
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
    use_in_clients(&TlsSettings {
        mode: mode.parse().map_err(wrong(MODE))?,
        plain_networks: networks.parse().map_err(wrong(PLAIN_NETWORKS))?,
        directory: variable(DIRECTORY).map(Into::into),
        authority: None,
    })
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
        Some(dialer) if dialer.speaks_tls(service, stream.peer_addr()?.ip()) => {
            dialer.identity.keep_fresh(SystemTime::now()).await;
            dialer.identity.connect(stream, rights::servers(service)).await
        }
        _ => Ok(Stream::Plain(stream)),
    }
}

/// A connection of a thread that waits for it, plain or TLS.
#[derive(Debug)]
pub enum BlockingStream {
    /// As the bytes come.
    Plain(std::net::TcpStream),
    /// Within TLS.
    Tls(Box<StreamOwned<ClientConnection, std::net::TcpStream>>),
}

/// The same as [`dial`] for a thread that waits.
///
/// # Errors
/// The handshake failed; the error's text says why.
pub fn dial_blocking(service: &str, stream: std::net::TcpStream) -> io::Result<BlockingStream> {
    match of_process() {
        Some(dialer) if dialer.speaks_tls(service, stream.peer_addr()?.ip()) => {
            let connected = dialer.identity.connect_blocking(stream, rights::servers(service))?;
            Ok(BlockingStream::Tls(Box::new(connected)))
        }
        _ => Ok(BlockingStream::Plain(stream)),
    }
}

impl Dialer {
    fn speaks_tls(&self, service: &str, peer: IpAddr) -> bool {
        let networks = &self.settings.plain_networks;
        let is_plain = !networks.are_all() && networks.contain(peer);
        !is_plain && !rights::is_plain(service)
    }
}

impl io::Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            BlockingStream::Plain(stream) => stream.read(buffer),
            BlockingStream::Tls(stream) => stream.read(buffer),
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
