//! A member's certificate and key, in a directory, and connections to other members with them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ClientConnection, ServerConfig, StreamOwned};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsConnector, client};

use crate::authority::{Authority, AuthorityError, pem};
use crate::certificate::{self, Identified, PublicKey, RENEW_AFTER, VALID};
use crate::dialer::ReadAhead;
use crate::enrol::{self, EnrolError, Enrolled, Request};
use crate::files::{self, FileError, damaged, file};
use crate::revoked::{self, Revoked};
use crate::role::Role;
use crate::seconds;
use crate::sessions::{self, Kind};
use crate::stream::{Peer, Stream, Tls};
use crate::string::AccessString;
use crate::table::GrantId;
use crate::verify::{self, ACCESS_PROTOCOL, Trust};

const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const AUTHORITY: &str = "ca.pem";
const ABOUT: &str = "identity.json";
/// The version of the form of [`ABOUT`].
const VERSION: u32 = 1;
/// The role of the daemon that issues certificates.
const HEAD: &[Role] = &[Role::Admin];
/// The roles of daemons with pages.
pub(crate) const PAGES: &[Role] = &[Role::Admin, Role::Node];
/// The age at which clients ask which access has been revoked.
const LIST_AGE: Duration = Duration::from_secs(15 * 60);
/// How long a handshake may take.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A member's certificate and key, and the authority that it accepts.
#[derive(Debug)]
pub struct Identity {
    directory: PathBuf,
    authority: CertificateDer<'static>,
    members: Arc<dyn ClientCertVerifier>,
    current: RwLock<Arc<Current>>,
    revoked: Arc<Revoked>,
    /// The name of the list of revoked access that the head has sent last.
    listed: Mutex<String>,
    /// The minute since 1970 of the last attempt to renew before a connection.
    attempted: AtomicU64,
}

/// Who renews the certificate of a process, and asks which access has been revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The gate of its listeners.
    Gate,
    /// Its connections to others: it is a command, or a program with a library of ours.
    Clients,
    /// The process that has started it, in the same directory.
    Parent,
}

/// What a renewal replaces.
#[derive(Debug)]
struct Current {
    about: About,
    identified: Arc<Identified>,
    key: KeyPair,
    public: PublicKey,
    client: Arc<ClientConfig>,
    access_client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    access_server: Arc<ServerConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    version: u32,
    /// Where certificates are renewed.
    host: String,
    port: u16,
    /// Names and addresses under which pages are served.
    hosts: Vec<String>,
    /// In seconds since 1970.
    renew_at: u64,
}

/// Why there is no identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// There is none in the directory.
    #[error("there is no certificate of a cluster in {0}")]
    Missing(PathBuf),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The head gave no certificate.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// The authority gave no certificate.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A key or a certificate could not be made.
    #[error("{0}")]
    Certificate(String),
}

impl Identity {
    /// Opens the identity of a directory.
    ///
    /// # Errors
    /// There is none, its files cannot be read, or others may read its key.
    pub fn open(directory: &Path) -> Result<Identity, IdentityError> {
        let (about, authority, own) = read(directory)?;
        let revoked = Arc::new(Revoked::open(directory)?);
        let members = verify::members(&authority, revoked.clone()).map_err(failed)?;
        let current = Current::new(directory, about, &authority, own, &members)?;
        Ok(Identity {
            directory: directory.to_owned(),
            authority,
            members,
            current: RwLock::new(Arc::new(current)),
            revoked,
            listed: Mutex::default(),
            attempted: AtomicU64::new(0),
        })
    }

    /// Exchanges an access string for a certificate. `name` is the host for a node; for `submit` the
    /// string names the user. Pages are served under `hosts`, as far as these names lead to this
    /// machine.
    ///
    /// # Errors
    /// The head cannot be reached, is of another cluster or refuses the string, or the directory
    /// cannot be written.
    pub async fn enrol(
        directory: &Path,
        access: &AccessString,
        name: &str,
        hosts: &[String],
    ) -> Result<Identity, IdentityError> {
        let key = prepared(directory)?;
        let shown = certificate::self_signed(&key).map_err(failed)?;
        let shown = (vec![shown.into()], private(&key)?);
        let trust = Trust::Pinned(access.ca);
        let config = verify::client(trust, shown, Some(ACCESS_PROTOCOL)).map_err(failed)?;
        let request = Request::Enrol {
            secret: access.secret.expose(),
            name: name.to_owned(),
            hosts: hosts.to_vec(),
        };
        let head = (access.host.as_str(), access.port);
        let accepted = |shown: &[CertificateDer<'_>]| is_one_of(HEAD, shown).map(drop);
        let (enrolled, chain) = enrol::ask(head, Arc::new(config), &request, accepted).await?;
        let Enrolled { certificate, issued } = enrolled;
        let authority = verify::pinned(&chain, access.ca);
        let authority = authority.ok_or_else(|| failed("the head did not show its CA"))?;
        write(directory, head, hosts, authority, &certificate, issued)?;
        Identity::open(directory)
    }

    /// The identity of a daemon of the head itself, whose authority is at hand. Certificates of other
    /// members are renewed at `head`; pages are served under `hosts`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn own(
        directory: &Path,
        authority: &Authority,
        name: &str,
        head: (&str, u16),
        hosts: &[String],
        now: SystemTime,
    ) -> Result<Identity, IdentityError> {
        let key = prepared(directory)?;
        let shown = certificate::self_signed(&key).map_err(failed)?;
        let key = PublicKey::of(&shown.into()).map_err(failed)?;
        let former = Identity::open(directory).ok().map(|former| former.identified().grant);
        let issued = authority.issue_own(&key, name, hosts, former, now)?;
        let certificate = pem(&issued.certificate);
        write(directory, head, hosts, authority.certificate(), &certificate, seconds(now))?;
        Identity::open(directory)
    }

    /// Who the certificate names.
    pub fn identified(&self) -> Arc<Identified> {
        self.current().identified.clone()
    }

    /// Whether its certificate has expired, so that only an access string gets another one.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        let unrenewed = VALID.saturating_sub(RENEW_AFTER);
        seconds(now) >= self.current().about.renew_at.saturating_add(unrenewed.as_secs())
    }

    /// The address of the head, where certificates are renewed.
    pub fn head(&self) -> (String, u16) {
        let current = self.current();
        (current.about.host.clone(), current.about.port)
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Speaks TLS on a connection to a server whose certificate must name one of these roles.
    ///
    /// # Errors
    /// The handshake failed; the error's text says why.
    pub async fn connect(&self, stream: TcpStream, expected: &[Role]) -> io::Result<Stream> {
        let config = self.current().client.clone();
        let stream = handshake(config, stream).await?;
        self.check_server(stream.get_ref().1.peer_certificates().unwrap_or_default(), expected)?;
        Ok(Stream::Tls(Tls::new(stream)))
    }

    /// The same on a thread that waits. The connection's own time-outs apply.
    pub(crate) fn connect_blocking(
        &self,
        stream: std::net::TcpStream,
        expected: &[Role],
    ) -> io::Result<StreamOwned<ClientConnection, ReadAhead>> {
        let mut stream = ReadAhead::new(stream);
        let config = self.current().client.clone();
        let mut session = ClientConnection::new(config, unnamed()).map_err(io::Error::other)?;
        while session.is_handshaking() {
            let done = session.complete_io(&mut stream);
            done.map_err(|error| verify::explained(&error))?;
        }
        self.check_server(session.peer_certificates().unwrap_or_default(), expected)?;
        Ok(StreamOwned::new(session, stream))
    }

    fn check_server(&self, shown: &[CertificateDer<'_>], expected: &[Role]) -> io::Result<()> {
        let found = is_one_of(expected, shown)?;
        match self.revoked.contains(found.grant) {
            true => Err(other(&format!("the server's access {} has been revoked", found.grant))),
            false => Ok(()),
        }
    }

    /// Asks the head for another certificate for the same key, if this one is old enough. Whether
    /// there is another one.
    ///
    /// # Errors
    /// The head cannot be reached or refuses, or the directory cannot be written.
    pub async fn renew_if_due(self: &Arc<Self>, now: SystemTime) -> Result<bool, IdentityError> {
        let Some(current) = self.due(now) else { return Ok(false) };
        let about = &current.about;
        let request = Request::Renew { hosts: about.hosts.clone() };
        let head = (about.host.as_str(), about.port);
        let Enrolled { certificate, issued } = self.ask_at(head, HEAD, &request).await?;
        let (identity, current) = (self.clone(), current.clone());
        // Files of keys are written through to the disk, which may take its time.
        let kept = tokio::task::spawn_blocking(move || {
            identity.keep(&current.about, &certificate, issued)
        });
        kept.await.unwrap_or_else(|error| Err(failed(error)))?;
        Ok(true)
    }

    /// The same for a daemon of the head.
    pub(crate) fn renew_own(
        &self,
        authority: &Authority,
        now: SystemTime,
    ) -> Result<bool, IdentityError> {
        let Some(current) = self.due(now) else { return Ok(false) };
        let about = &current.about;
        let own = read_certificate(&self.directory.join(CERTIFICATE))?;
        let key = PublicKey::of(&own).map_err(failed)?;
        let issued = authority.renew(&current.identified, &key, &about.hosts, now)?;
        self.keep(about, &pem(&issued.certificate), seconds(now))?;
        Ok(true)
    }

    /// Uses another certificate from now on.
    fn keep(&self, about: &About, certificate: &str, issued: u64) -> Result<(), IdentityError> {
        let head = (about.host.as_str(), about.port);
        write(&self.directory, head, &about.hosts, &self.authority, certificate, issued)?;
        self.reload()
    }

    /// Reads the directory again, after a renewal by this process or another one.
    pub(crate) fn reload(&self) -> Result<(), IdentityError> {
        self.revoked.reload()?;
        let (about, authority, own) = read(&self.directory)?;
        let fresh = Current::new(&self.directory, about, &authority, own, &self.members)?;
        if fresh.about.renew_at != self.current().about.renew_at {
            tracing::info!(identity = %fresh.identified, "The certificate of this member was renewed");
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        Ok(())
    }

    /// Keeps the identity of a process fresh that calls others: at most once a minute, after a failure too. The first
    /// certificate that is due is waited for, since a command ends soon; all else is done beside the calls.
    pub(crate) async fn keep_fresh(self: &Arc<Self>, keeper: Keeper, now: SystemTime) {
        let minute = seconds(now) / 60;
        let last = self.attempted.swap(minute, Ordering::Relaxed);
        if keeper == Keeper::Gate || last == minute {
            return;
        }
        let identity = self.clone();
        let refreshing = tokio::spawn(async move { identity.refresh(keeper, now).await });
        if last == 0 && keeper == Keeper::Clients && self.due(now).is_some() {
            let _ = timeout(HANDSHAKE_TIMEOUT, refreshing).await;
        }
    }

    /// The same for a task, whose threads wait: its parent renews and asks, and it reads what the parent has written.
    pub(crate) fn keep_read(&self, keeper: Keeper, now: SystemTime) {
        let minute = seconds(now) / 60;
        if keeper != Keeper::Parent || self.attempted.swap(minute, Ordering::Relaxed) == minute {
            return;
        }
        if let Err(error) = self.reload() {
            tracing::warn!(%error, "Cannot read the certificate of this member");
        }
    }

    async fn refresh(self: Arc<Self>, keeper: Keeper, now: SystemTime) {
        let identity = self.clone();
        let read = tokio::task::spawn_blocking(move || identity.reload()).await;
        if let Err(error) = read.unwrap_or_else(|error| Err(failed(error))) {
            tracing::warn!(%error, "Cannot read the certificate of this member");
        }
        if keeper == Keeper::Parent {
            return;
        }
        if let Err(error) = self.renew_if_due(now).await {
            tracing::warn!(%error, "Cannot renew the certificate of this member");
        }
        // Commands share what one of them has learnt.
        if self.revoked.age().is_none_or(|age| age > LIST_AGE)
            && let Err(error) = self.refresh_revoked().await
        {
            tracing::debug!(%error, "Cannot ask which access has been revoked");
        }
    }

    /// Asks the head which access has been revoked.
    pub(crate) async fn refresh_revoked(self: &Arc<Self>) -> Result<(), IdentityError> {
        let known = self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let listed: Option<Vec<GrantId>> = self.ask(&Request::Revoked { known }).await?;
        let Some(listed) = listed else { return Ok(()) };
        let identity = self.clone();
        let learnt = tokio::task::spawn_blocking(move || identity.learn(&listed));
        learnt.await.unwrap_or_else(|error| Err(failed(error)))
    }

    /// Refuses these from now on.
    pub(crate) fn learn(&self, listed: &[GrantId]) -> Result<(), IdentityError> {
        self.revoked.learn(listed, SystemTime::now())?;
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = revoked::name(listed);
        Ok(())
    }

    /// Asks the head.
    pub(crate) async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        request: &Request,
    ) -> Result<T, EnrolError> {
        let current = self.current();
        self.ask_at((&current.about.host, current.about.port), HEAD, request).await
    }

    /// Asks a daemon with one of these roles.
    pub(crate) async fn ask_at<T: for<'de> Deserialize<'de>>(
        &self,
        at: (&str, u16),
        expected: &[Role],
        request: &Request,
    ) -> Result<T, EnrolError> {
        let config = self.current().access_client.clone();
        let accepted = |shown: &[CertificateDer<'_>]| self.check_server(shown, expected);
        Ok(enrol::ask(at, config, request, accepted).await?.0)
    }

    /// A token of this daemon for a member; `None` if it cannot be signed.
    pub(crate) fn token_for(
        &self,
        kind: Kind,
        member: &Identified,
        now: SystemTime,
    ) -> Option<String> {
        sessions::token(kind, &self.current().key, member, now)
    }

    /// The member whom a token of this daemon names, or of another one with the same certificate, and when it ends.
    pub(crate) fn holder(
        &self,
        kind: Kind,
        token: &str,
        now: SystemTime,
    ) -> Option<(Identified, SystemTime)> {
        sessions::holder(kind, &self.current().public, token, now)
    }

    /// Tells daemons of one host apart that do not accept each other's tokens.
    pub(crate) fn key_name(&self) -> String {
        self.current().public.name()
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.current().server.clone()
    }

    pub(crate) fn access_server(&self) -> Arc<ServerConfig> {
        self.current().access_server.clone()
    }

    pub(crate) fn members(&self) -> &Arc<dyn ClientCertVerifier> {
        &self.members
    }

    pub(crate) fn revoked(&self) -> &Arc<Revoked> {
        &self.revoked
    }

    /// A member at the other end of a connection, as long as its access is not revoked.
    pub(crate) fn peer(&self, address: SocketAddr, member: Arc<Identified>) -> Peer {
        Peer::member(address, member, self.revoked.clone())
    }

    /// The certificate in use, if it is old enough for another one.
    fn due(&self, now: SystemTime) -> Option<Arc<Current>> {
        Some(self.current()).filter(|current| seconds(now) >= current.about.renew_at)
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Current {
    fn new(
        directory: &Path,
        about: About,
        authority: &CertificateDer<'static>,
        own: CertificateDer<'static>,
        members: &Arc<dyn ClientCertVerifier>,
    ) -> Result<Current, IdentityError> {
        let path = directory.join(KEY);
        let key_pair = key(&path)?;
        let public = PublicKey::of(&own);
        let public = public.map_err(|error| damaged(&directory.join(CERTIFICATE), error))?;
        let key = private(&key_pair)?;
        let identified = certificate::identified(&own);
        let identified =
            identified.map_err(|error| damaged(&directory.join(CERTIFICATE), error))?;
        let shown = || (vec![own.clone(), authority.clone()], key.clone_key());
        let client =
            |protocol| verify::client(Trust::Authority(authority.clone()), shown(), protocol);
        let mismatch = |error: rustls::Error| damaged(&path, error);
        Ok(Current {
            client: Arc::new(client(None).map_err(mismatch)?),
            access_client: Arc::new(client(Some(ACCESS_PROTOCOL)).map_err(mismatch)?),
            server: Arc::new(verify::server(members.clone(), shown()).map_err(mismatch)?),
            access_server: Arc::new(verify::access_server(shown()).map_err(mismatch)?),
            about,
            identified,
            key: key_pair,
            public,
        })
    }
}

/// Who the server that shows these certificates is, if its role is one of those that were called.
fn is_one_of(expected: &[Role], shown: &[CertificateDer<'_>]) -> io::Result<Arc<Identified>> {
    let found = shown.first().and_then(|shown| certificate::identified(shown).ok());
    let found = found.ok_or_else(|| other("the server's certificate names no role"))?;
    match expected.contains(&found.role) {
        true => Ok(found),
        false => Err(other(&format!("the server is a {}, not what was called", found.role))),
    }
}

/// No name is sent, and none is checked.
fn unnamed() -> ServerName<'static> {
    ServerName::from(std::net::IpAddr::from([0, 0, 0, 0]))
}

/// A handshake with a server.
pub(crate) async fn handshake(
    config: Arc<ClientConfig>,
    stream: TcpStream,
) -> io::Result<client::TlsStream<TcpStream>> {
    let connecting = TlsConnector::from(config).connect(unnamed(), stream);
    match timeout(HANDSHAKE_TIMEOUT, connecting).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(verify::explained(&error)),
        Err(_) => {
            let text = format!("no TLS handshake within {HANDSHAKE_TIMEOUT:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
    }
}

/// The key of a directory; a new one if there is none.
fn prepared(directory: &Path) -> Result<KeyPair, IdentityError> {
    files::make_private(directory).map_err(file(directory))?;
    let path = directory.join(KEY);
    match key(&path) {
        Err(FileError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            let key = certificate::new_key().map_err(failed)?;
            files::replace(&path, key.serialize_pem().as_bytes()).map_err(file(&path))?;
            Ok(key)
        }
        read => Ok(read?),
    }
}

fn key(path: &Path) -> Result<KeyPair, FileError> {
    let key = files::read_private(path).map_err(file(path))?;
    let key = String::from_utf8(key).map_err(|error| damaged(path, error))?;
    KeyPair::from_pem(&key).map_err(|error| damaged(path, error))
}

/// Writes all but the key, for a certificate that was issued at this time of the head. What the identity is comes last: without it there is none.
fn write(
    directory: &Path,
    (host, port): (&str, u16),
    hosts: &[String],
    authority: &[u8],
    certificate: &str,
    issued: u64,
) -> Result<(), IdentityError> {
    let renew_at = issued.saturating_add(RENEW_AFTER.as_secs());
    let (host, hosts) = (host.to_owned(), hosts.to_vec());
    let about = About { version: VERSION, host, port, hosts, renew_at };
    let about = serde_json::to_vec_pretty(&about).map_err(failed)?;
    for (name, content) in [
        (AUTHORITY, pem(authority).as_bytes()),
        (CERTIFICATE, certificate.as_bytes()),
        (ABOUT, &about),
    ] {
        let path = directory.join(name);
        files::replace(&path, content).map_err(file(&path))?;
    }
    Ok(())
}

/// What the files of a directory say: about the identity, the authority's certificate, and its own.
fn read(
    directory: &Path,
) -> Result<(About, CertificateDer<'static>, CertificateDer<'static>), IdentityError> {
    let path = |name: &str| directory.join(name);
    let about = files::read(&path(ABOUT)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => IdentityError::Missing(directory.to_owned()),
        _ => file(&path(ABOUT))(error).into(),
    })?;
    let about: About =
        files::versioned(&about, VERSION).map_err(|problem| damaged(&path(ABOUT), problem))?;
    let certificate = |name| read_certificate(&path(name));
    Ok((about, certificate(AUTHORITY)?, certificate(CERTIFICATE)?))
}

fn read_certificate(path: &Path) -> Result<CertificateDer<'static>, FileError> {
    let content = files::read(path).map_err(file(path))?;
    CertificateDer::from_pem_slice(&content).map_err(|error| damaged(path, error))
}

fn private(key: &KeyPair) -> Result<PrivateKeyDer<'static>, IdentityError> {
    PrivateKeyDer::try_from(key.serialize_der()).map_err(failed)
}

fn other(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text.to_owned())
}

fn failed(error: impl ToString) -> IdentityError {
    IdentityError::Certificate(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_first_version_are_read() {
        let fixture = include_str!("../../fixtures/versions/identity.json");
        let about: About = files::versioned(fixture.as_bytes(), VERSION).unwrap();
        let hosts = ["beta".to_owned(), "192.0.2.11".to_owned()];
        assert_eq!((&*about.host, about.port, about.renew_at), ("alpha", 8889, 1_800_000_000));
        assert_eq!(about.hosts, hosts);
        let written = serde_json::to_string_pretty(&about).unwrap();
        assert_eq!(written, fixture.trim_end());
    }
}
