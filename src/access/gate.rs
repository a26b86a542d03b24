//! The entrance of a daemon: one port for TLS and for plain peers, told apart by the first byte.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corona_config::{TlsMode as Mode, TlsSettings};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::Acceptor;
use serde::Serialize;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, server};

use crate::audit::{self, Actor};
use crate::authority::{Authority, AuthorityError, pem};
use crate::certificate::{self, Identified, PublicKey, is_name};
use crate::dialer;
use crate::enrol::{self, Enrolled, Granted, MAX_REQUEST, Reply, Request, Ticket};
use crate::identity::{HANDSHAKE_TIMEOUT, Identity, IdentityError, Keeper};
use crate::plain::PlainPeers;
use crate::renewals::Renewals;
use crate::revoked::{self, Revocations};
use crate::rights::Change;
use crate::role::Role;
use crate::seconds;
use crate::sessions::{CODE_VALID, Codes, Kind, TOKEN_VALID};
use crate::stream::{Peer, Stream, Tls};
use crate::string::Secret;
use crate::table::Act;
use crate::verify::{self, ACCESS_PROTOCOL};

/// The reply of a plain service to a peer that begins with TLS: a client that may then calls it without.
pub const NO_TLS: &[u8] = b"this port does not speak TLS\n";

/// Whether the first bytes of a connection are those of TLS.
pub fn is_tls(first: &[u8]) -> bool {
    first.starts_with(&[TLS_FIRST_BYTE, 3])
}

/// The first byte of every TLS connection: the record of a handshake.
pub(crate) const TLS_FIRST_BYTE: u8 = 0x16;
/// How often a daemon reads which access has been revoked, and whether its certificate is to be
/// renewed.
const MAINTENANCE: Duration = Duration::from_secs(15);
/// How long a refused peer may take to read why.
const LEAVING: Duration = Duration::from_secs(1);
/// Names of a member's pages.
const MAX_HOSTS: usize = 4;
/// Look-ups of names at a time: each takes a thread for as long as the name's servers are silent.
pub(crate) const MAX_LOOK_UPS: u32 = 4;
pub(crate) static LOOK_UPS: Semaphore = Semaphore::const_new(MAX_LOOK_UPS as usize);

/// Why a daemon has no entrance.
#[derive(Debug, Error)]
pub enum GateError {
    /// TLS needs a certificate.
    #[error("corona.tls={0} needs a certificate of the cluster: set corona.tls.directory")]
    NoIdentity(Mode),
    /// The process was started by one of another version.
    #[error("the value of the environment variable {0} cannot be read by this version of corona")]
    Environment(&'static str),
    /// The certificate cannot be used.
    #[error("corona.tls.directory: {0}")]
    Identity(#[from] IdentityError),
    /// The authority cannot be used.
    #[error("corona.tls.authority.directory: {0}")]
    Authority(#[from] AuthorityError),
}

/// What was not served as a connection of the service.
#[derive(Debug, Error)]
pub enum Refused {
    /// A plain peer from where TLS is required.
    #[error("a plain connection, where TLS is required")]
    Plain,
    /// The first byte did not come in time, or the peer has left.
    #[error("no first byte")]
    Silent,
    /// The handshake failed.
    #[error("{0}")]
    Handshake(String),
    /// The connection got a certificate, a code or a list, and has ended.
    #[error("served")]
    Served,
}

/// The entrance of a daemon, for all its listeners.
#[derive(Debug, Default)]
pub struct Gate {
    settings: TlsSettings,
    identity: Option<Arc<Identity>>,
    authority: Option<Arc<Authority>>,
    codes: Codes,
    renewals: Renewals,
    plain_peers: Arc<PlainPeers>,
}

impl Gate {
    /// An entrance that lets everybody in and looks at nothing.
    pub fn off() -> Arc<Gate> {
        Arc::default()
    }

    /// The entrance that the settings describe. The clients of the process show its identity.
    ///
    /// # Errors
    /// TLS is to be spoken, and the certificate or the authority cannot be used.
    pub fn open(settings: &TlsSettings) -> Result<Arc<Gate>, GateError> {
        if settings.mode == Mode::Off {
            return Ok(Gate::off());
        }
        let identity = dialer::install(settings, Keeper::Gate)?;
        let authority = settings.authority.as_deref().map(Authority::open).transpose()?;
        let gate = Gate::with(settings.clone(), Some(identity), authority.map(Arc::new))?;
        Ok(Arc::new(Gate { plain_peers: PlainPeers::of_process(), ..gate }))
    }

    /// An entrance. One with an authority issues certificates.
    ///
    /// # Errors
    /// TLS is to be spoken, and there is no identity.
    pub fn new(
        settings: TlsSettings,
        identity: Option<Arc<Identity>>,
        authority: Option<Arc<Authority>>,
    ) -> Result<Arc<Gate>, GateError> {
        Gate::with(settings, identity, authority).map(Arc::new)
    }

    /// The entrance of a program whose clients have a certificate, for what others are to call there.
    pub fn of_clients() -> Arc<Gate> {
        dialer::of_clients().map_or_else(Gate::off, |(settings, identity)| {
            let identity = Some(identity);
            Arc::new(Gate { settings, identity, ..Gate::default() })
        })
    }

    fn with(
        settings: TlsSettings,
        identity: Option<Arc<Identity>>,
        authority: Option<Arc<Authority>>,
    ) -> Result<Gate, GateError> {
        if settings.mode != Mode::Off && identity.is_none() {
            return Err(GateError::NoIdentity(settings.mode));
        }
        // Before the first peer comes; daemons without an authority know what they knew.
        if let (Some(identity), Some(authority)) = (&identity, &authority) {
            identity.learn(&authority.revoked()?)?;
        }
        Ok(Gate { settings, identity, authority, ..Gate::default() })
    }

    /// Whether nothing is looked at.
    pub fn is_off(&self) -> bool {
        self.settings.mode == Mode::Off
    }

    /// Whether TLS is spoken.
    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// The identity with which this daemon calls others.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.identity.as_ref().filter(|_| !self.is_off())
    }

    /// Which access this daemon refuses; `None` if it asks for none.
    pub fn revocations(&self) -> Option<Revocations> {
        self.identity().map(|identity| identity.revoked().follow())
    }

    /// Peers that came without TLS.
    pub fn plain_peers(&self) -> &PlainPeers {
        &self.plain_peers
    }

    /// Renews the certificate and reads which access was revoked, until `stop` becomes true or its
    /// sender is dropped.
    pub async fn maintain(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let Some(identity) = self.identity().cloned() else { return };
        loop {
            if let Err(error) = self.maintain_once(&identity).await {
                tracing::warn!(%error, "Cannot renew the certificate or read revocations; trying again");
            }
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(jittered(MAINTENANCE)) => {}
            }
        }
    }

    pub(crate) async fn maintain_once(&self, identity: &Arc<Identity>) -> Result<(), String> {
        let Some(authority) = self.authority.clone() else {
            let renewed = identity.renew_if_due(SystemTime::now()).await;
            let read = identity.refresh_revoked().await;
            return both(renewed.map(drop), read);
        };
        let identity = identity.clone();
        blocking(move || {
            let renewed = identity.renew_own(&authority, SystemTime::now());
            let read = authority.revoked().map_err(IdentityError::from);
            both(renewed.map(drop), read.and_then(|revoked| identity.learn(&revoked)))
        })
        .await
    }

    /// Notes what users of this machine have done with the authority, in the one daemon that does it for a cluster.
    /// What they have revoked is refused from now on.
    ///
    /// # Errors
    /// The table of the authority cannot be used.
    pub async fn note_acts_here(&self) -> Result<(), String> {
        let (Some(identity), Some(_)) = (self.identity().cloned(), &self.authority) else {
            return Ok(());
        };
        let acts = self.with_authority(|authority| authority.take_acts()).await?;
        let is_none = acts.is_empty();
        // They are in the table no more: whatever fails below, they are noted.
        for Act { at, user, action } in acts {
            audit::note_here(UNIX_EPOCH + Duration::from_secs(at), user, action);
        }
        if is_none {
            return Ok(());
        }
        let revoked = self.with_authority(|authority| authority.revoked()).await?;
        blocking(move || identity.learn(&revoked).map_err(|error| error.to_string())).await
    }

    /// A plain peer, if it may be one here.
    pub fn plain(&self, address: SocketAddr) -> Option<Peer> {
        let may_be = self.settings.may_be_plain(address.ip());
        may_be.then(|| match self.is_off() {
            true => Peer::plain(address),
            false => Peer::plain_beside_members(address),
        })
    }

    /// Looks at the first byte of a connection: speaks TLS, or finds a plain peer. A plain peer that
    /// may not come in, and one without a certificate, is `Ok` only on a listener of pages, without any right but
    /// those of everybody.
    ///
    /// # Errors
    /// The connection is not one of the service. The reason has been logged.
    pub async fn admit(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        pages: bool,
    ) -> Result<(Stream, Peer), Refused> {
        let identity = match &self.identity {
            Some(identity) if !self.is_off() => identity,
            _ => return Ok((Stream::Plain(stream), Peer::plain(address))),
        };
        let may_be_plain = self.settings.may_be_plain(address.ip());
        let is_tls = match timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut [0])).await {
            Ok(Ok(1)) => speaks_tls(&stream).await,
            // Plain services have limits of their own for peers that wait.
            Err(_) if may_be_plain => false,
            _ => return Err(Refused::Silent),
        };
        if is_tls {
            let refused =
                match timeout(HANDSHAKE_TIMEOUT, self.handshake(identity, stream, address, pages))
                    .await
                {
                    Ok(Ok(Admitted::Member(stream, peer))) => return Ok((stream, peer)),
                    Ok(Ok(Admitted::Asking(stream))) => {
                        self.serve(identity, stream, address).await;
                        return Err(Refused::Served);
                    }
                    Ok(Err(refused)) => refused,
                    Err(_) => {
                        Refused::Handshake(format!("no handshake within {HANDSHAKE_TIMEOUT:?}"))
                    }
                };
            tracing::warn!(peer = %address, reason = %refused, "Refused a TLS connection");
            return Err(refused);
        }
        let is_first = self.plain_peers.count(address.ip(), may_be_plain);
        match (may_be_plain, is_first) {
            (true, true) => tracing::info!(peer = %address.ip(), "A peer does not speak TLS"),
            (false, true) => tracing::warn!(
                peer = %address.ip(),
                "Refused a plain connection: TLS is required, and the peer is in none of corona.tls.plain.networks"
            ),
            _ => {}
        }
        match (may_be_plain, pages) {
            (true, _) => Ok((stream.into(), Peer::plain_beside_members(address))),
            (false, true) => Ok((stream.into(), Peer::nobody(address, false))),
            (false, false) => Err(Refused::Plain),
        }
    }

    async fn handshake(
        &self,
        identity: &Identity,
        stream: TcpStream,
        address: SocketAddr,
        pages: bool,
    ) -> Result<Admitted, Refused> {
        let failed = |error: io::Error| Refused::Handshake(verify::explain(&error));
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(failed)?;
        let asks = {
            let mut protocols = hello.client_hello().alpn().into_iter().flatten();
            protocols.any(|protocol| protocol == ACCESS_PROTOCOL)
        };
        if asks {
            let stream = hello.into_stream(identity.access_server()).await.map_err(failed)?;
            return Ok(Admitted::Asking(Box::new(stream)));
        }
        let stream = match hello.into_stream(identity.server()).into_fallible().await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                leave(stream).await;
                return Err(failed(error));
            }
        };
        let peer = match shown(&stream) {
            // A browser.
            None if pages => Peer::nobody(address, true),
            None => return Err(Refused::Handshake("the peer shows no certificate".to_owned())),
            Some(certificate) => {
                let member = certificate::identified(&certificate);
                let member = member.map_err(|error| Refused::Handshake(error.to_string()))?;
                identity.peer(address, member)
            }
        };
        Ok(Admitted::Member(Stream::Tls(Tls::new(stream)), peer))
    }

    /// Answers one request.
    async fn serve(
        &self,
        identity: &Arc<Identity>,
        mut stream: Box<server::TlsStream<TcpStream>>,
        address: SocketAddr,
    ) {
        let conversing = async {
            let line = enrol::read_line(&mut stream, MAX_REQUEST).await?;
            let reply = match serde_json::from_slice(&line) {
                Ok(request) => self.answer(identity, shown(&stream), address, request).await,
                Err(_) => Err("the request cannot be read".to_owned()),
            };
            let reply = match reply {
                Ok(reply) => Reply::Ok(reply),
                Err(reason) => {
                    tracing::warn!(peer = %address, reason, "Refused a request for access");
                    Reply::Refused(reason)
                }
            };
            enrol::write_line(&mut stream, &reply).await?;
            stream.shutdown().await
        };
        match timeout(enrol::PATIENCE, conversing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = verify::explain(&error);
                tracing::debug!(peer = %address, error, "A request for access was not answered");
            }
            Err(_) => tracing::warn!(peer = %address, "A request for access took too long"),
        }
    }

    async fn answer(
        &self,
        identity: &Arc<Identity>,
        certificate: Option<CertificateDer<'static>>,
        address: SocketAddr,
        request: Request,
    ) -> Result<serde_json::Value, String> {
        let certificate = certificate.ok_or("the peer shows no certificate")?;
        let key = PublicKey::of(&certificate).map_err(|error| error.to_string())?;
        if let Request::Enrol { secret, name, hosts } = request {
            let secret = Secret::read(&secret).ok_or("the secret is damaged")?;
            // Nothing is done for a stranger but this.
            let known = secret.clone();
            self.with_authority(move |authority| authority.check(&known, SystemTime::now()))
                .await?;
            let hosts = own_hosts(hosts, address.ip()).await;
            let now = SystemTime::now();
            let issue =
                move |authority: &Authority| authority.enrol(&secret, &key, &name, &hosts, now);
            let issued = self.with_authority(issue).await?;
            let who = Actor::Member(Arc::new(issued.identified));
            audit::note(Change::Cluster, &who, address, "become a member", "done");
            let certificate = pem(&issued.certificate);
            return value(Enrolled { certificate, issued: seconds(now) });
        }
        let member = self.member(identity, &certificate)?;
        if member.role != Role::Admin && is_administrative(&request) {
            return Err(format!("the role {} may not do this", member.role));
        }
        let is_noted = is_administrative(&request) && !matches!(request, Request::Audit);
        let audited = is_noted.then(|| format!("{request:?}"));
        let answer = self.answer_member(identity, member.clone(), key, address, request).await;
        if let Some(action) = audited {
            let outcome = match &answer {
                Ok(reply) => match reply.get("id").and_then(serde_json::Value::as_str) {
                    Some(id) => format!("done: access {id}"),
                    None => "done".to_owned(),
                },
                Err(reason) => format!("failed: {reason}"),
            };
            audit::note(Change::Cluster, &Actor::Member(member), address, &action, &outcome);
        }
        answer
    }

    async fn answer_member(
        &self,
        identity: &Identity,
        member: Arc<Identified>,
        key: PublicKey,
        address: SocketAddr,
        request: Request,
    ) -> Result<serde_json::Value, String> {
        let no_random = || "the system has no random numbers".to_owned();
        let ticket = |secret: Option<String>, valid: Duration| {
            let ticket = secret.map(|value| Ticket { value, valid_secs: valid.as_secs() });
            value(ticket.ok_or_else(no_random)?)
        };
        match request {
            Request::Code => ticket(self.codes.give(member, Instant::now()), CODE_VALID),
            Request::Token => {
                let token = identity.token_for(Kind::Script, &member, SystemTime::now());
                ticket(token, TOKEN_VALID)
            }
            Request::Renew { hosts } => {
                self.authority.as_ref().ok_or(NO_AUTHORITY)?;
                if !self.renewals.may(&key, Instant::now()) {
                    let pause = Renewals::PAUSE;
                    return Err(format!("this certificate was renewed within the last {pause:?}"));
                }
                let hosts = own_hosts(hosts, address.ip()).await;
                let now = SystemTime::now();
                let renew =
                    move |authority: &Authority| authority.renew(&member, &key, &hosts, now);
                let issued = self.with_authority(renew).await?;
                let certificate = pem(&issued.certificate);
                value(Enrolled { certificate, issued: seconds(now) })
            }
            Request::Revoked { known } => {
                let listed = self.with_authority(|authority| authority.revoked()).await?;
                value((revoked::name(&listed) != known).then_some(listed))
            }
            Request::List => value(self.with_authority(|authority| authority.list()).await?),
            Request::Grant { new, host, port } => {
                let grant = move |authority: &Authority| {
                    authority.grant(&new, (&host, port), SystemTime::now())
                };
                let (id, string) = self.with_authority(grant).await?;
                value(Granted { id, string: string.to_string() })
            }
            Request::Rotate { id, host, port } => {
                let rotate = move |authority: &Authority| authority.rotate(id, (&host, port));
                let string = self.with_authority(rotate).await?.to_string();
                value(Granted { id, string })
            }
            Request::Revoke { id } => {
                let revoke = move |authority: &Authority| {
                    authority.revoke(id)?;
                    authority.revoked()
                };
                let revoked = self.with_authority(revoke).await?;
                let Some(identity) = self.identity.clone() else { return value(()) };
                blocking(move || identity.learn(&revoked).map_err(|error| error.to_string()))
                    .await?;
                value(())
            }
            Request::Audit => value(audit::last_actions()),
            Request::Enrol { .. } => Err("the peer has a certificate already".to_owned()),
        }
    }

    /// The member that shows this certificate, if it is one of this cluster.
    fn member(
        &self,
        identity: &Identity,
        certificate: &CertificateDer<'_>,
    ) -> Result<Arc<Identified>, String> {
        let now = UnixTime::now();
        let checked = identity.members().verify_client_cert(certificate, &[], now);
        checked.map_err(|error| verify::explain(&io::Error::other(error)))?;
        certificate::identified(certificate).map_err(|error| error.to_string())
    }

    async fn with_authority<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Authority) -> Result<T, AuthorityError> + Send + 'static,
    ) -> Result<T, String> {
        let authority = self.authority.clone();
        let authority = authority.ok_or(NO_AUTHORITY)?;
        blocking(move || ask(&authority).map_err(|error| error.to_string())).await
    }

    /// The session of a browser for the code of a one-time link.
    pub fn redeem(&self, code: &str) -> Option<String> {
        let member = self.codes.redeem(code, Instant::now())?;
        self.identity.as_ref()?.token_for(Kind::Browser, &member, SystemTime::now())
    }

    /// The name of the cookie with a browser's session: browsers send the cookies of a host to all its ports.
    pub fn cookie_name(&self) -> Option<String> {
        Some(format!("corona-{}", self.identity.as_ref()?.key_name()))
    }

    /// The peer with this token of a script, at the other end of a connection within TLS.
    pub fn holder(&self, token: &str, address: SocketAddr) -> Option<Peer> {
        self.with_token(Kind::Script, token, address)
    }

    /// The peer with this session of a browser, at the other end of a connection within TLS.
    pub fn browser(&self, session: &str, address: SocketAddr) -> Option<Peer> {
        self.with_token(Kind::Browser, session, address)
    }

    fn with_token(&self, kind: Kind, token: &str, address: SocketAddr) -> Option<Peer> {
        let identity = self.identity.as_ref()?;
        let (member, until) = identity.holder(kind, token, SystemTime::now())?;
        Some(identity.peer(address, Arc::new(member)).until(until))
    }
}

/// Whether a connection, on which something has arrived or will, begins with TLS.
pub async fn speaks_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first == [TLS_FIRST_BYTE]
}

/// Why a daemon without an authority issues nothing.
const NO_AUTHORITY: &str = "certificates are not issued here; ask the head";

/// Somewhat less, by chance: daemons that start together do not ask together forever.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    let _ = SystemRandom::new().fill(&mut byte);
    pause - pause / 4 * byte[0].into() / 256
}

/// A connection after its handshake.
enum Admitted {
    Member(Stream, Peer),
    Asking(Box<server::TlsStream<TcpStream>>),
}

/// Has a refused peer read why: what it has sent meanwhile would have the system discard that.
async fn leave(mut stream: TcpStream) {
    let reading = async {
        stream.shutdown().await?;
        while stream.read(&mut [0; 1024]).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(LEAVING, reading).await;
}

fn is_administrative(request: &Request) -> bool {
    match request {
        Request::Grant { .. }
        | Request::List
        | Request::Revoke { .. }
        | Request::Rotate { .. }
        | Request::Audit => true,
        Request::Enrol { .. }
        | Request::Renew { .. }
        | Request::Revoked { .. }
        | Request::Code
        | Request::Token => false,
    }
}

fn shown(stream: &server::TlsStream<TcpStream>) -> Option<CertificateDer<'static>> {
    let shown = stream.get_ref().1.peer_certificates()?.first()?;
    Some(shown.clone().into_owned())
}

/// The peer's address, and those of the names that lead to it: a certificate names nothing else, so that
/// no member can speak for another host.
async fn own_hosts(hosts: Vec<String>, address: IpAddr) -> Vec<String> {
    let address = address.to_canonical();
    let mut own = vec![address.to_string()];
    for host in hosts.into_iter().take(MAX_HOSTS).filter(|host| is_name(host)) {
        let name = host.clone();
        let found = async {
            let place = LOOK_UPS.acquire().await.ok()?;
            // It goes on when nobody waits for it any more, and keeps its place until then.
            let looking = tokio::spawn(async move {
                let _place = place;
                let mut found = tokio::net::lookup_host((name, 0)).await.ok()?;
                Some(found.any(|found| found.ip().to_canonical() == address))
            });
            looking.await.ok()?
        };
        let is_own = timeout(HANDSHAKE_TIMEOUT / 4, found).await;
        if matches!(is_own, Ok(Some(true))) && !own.contains(&host) {
            own.push(host);
        }
    }
    own
}

/// Both have been done; the reasons why one or the other failed.
fn both<A: fmt::Display, B: fmt::Display>(
    first: Result<(), A>,
    second: Result<(), B>,
) -> Result<(), String> {
    let failed =
        [first.err().map(|error| error.to_string()), second.err().map(|error| error.to_string())];
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn value(reply: impl Serialize) -> Result<serde_json::Value, String> {
    serde_json::to_value(reply).map_err(|error| error.to_string())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}
