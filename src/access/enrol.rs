//! The conversation in which members get certificates, codes and lists: TLS with a protocol of its own on
//! any port of a daemon, one line of JSON in each direction.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::audit::Done;
use crate::identity::{Identity, PAGES, handshake};
use crate::stream::send;
use crate::string::AccessString;
use crate::table::{Entry, GrantId, NewGrant};

/// How long a connection and an answer may take, each.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a request.
pub(crate) const MAX_REQUEST: usize = 16 * 1024;
/// Bytes of a reply.
const MAX_REPLY: usize = 16 << 20;

/// What a member asks for.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// A certificate for the key that the connection has shown.
    Enrol { secret: String, name: String, hosts: Vec<String> },
    /// Another certificate for the same key.
    Renew { hosts: Vec<String> },
    /// The access that has been revoked, unless it is what the asker knows: by its [`crate::revoked::name`].
    Revoked { known: String },
    /// A code for a browser's one-time link to this daemon.
    Code,
    /// A token for scripts that call this daemon.
    Token,
    /// An access string.
    Grant { new: NewGrant, host: String, port: u16 },
    /// All access strings.
    List,
    /// No more access.
    Revoke { id: GrantId },
    /// Another secret.
    Rotate { id: GrantId, host: String, port: u16 },
    /// What was done, as this daemon has noted it.
    Audit,
}

/// Without what is secret in it.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Enrol { name, .. } => write!(f, "get access as {name}"),
            Request::Renew { .. } => f.write_str("renew a certificate"),
            Request::Revoked { .. } => f.write_str("list revoked access"),
            Request::Code => f.write_str("get a one-time link"),
            Request::Token => f.write_str("get a token"),
            Request::Grant { new, .. } => write!(f, "create access for {new}"),
            Request::List => f.write_str("list access"),
            Request::Revoke { id } => write!(f, "revoke access {id}"),
            Request::Audit => f.write_str("list privileged actions"),
            Request::Rotate { id, .. } => write!(f, "replace the secret of access {id}"),
        }
    }
}

/// A certificate, in PEM.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Enrolled {
    pub(crate) certificate: String,
    /// When it was issued, by the clock of the head: in seconds since 1970.
    pub(crate) issued: u64,
}

/// An access string, with the secret.
#[derive(Serialize, Deserialize)]
pub(crate) struct Granted {
    pub(crate) id: GrantId,
    pub(crate) string: String,
}

/// A code or a token of a daemon.
#[derive(Clone, Serialize, Deserialize)]
pub struct Ticket {
    /// The secret itself.
    pub value: String,
    /// How long it can be used, in seconds.
    pub valid_secs: u64,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("valid_secs", &self.valid_secs).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply<T> {
    Ok(T),
    Refused(String),
}

/// Why a daemon gave nothing.
#[derive(Debug, Error)]
pub enum EnrolError {
    /// There is no connection.
    #[error("cannot reach {at}: {error}")]
    Connect {
        /// The daemon's address.
        at: String,
        /// The system's error.
        error: io::Error,
    },
    /// The handshake failed.
    #[error("no access at {at}: {error}")]
    Handshake {
        /// The daemon's address.
        at: String,
        /// Why.
        error: io::Error,
    },
    /// The connection failed.
    #[error("the connection to {at} failed: {error}")]
    Io {
        /// The daemon's address.
        at: String,
        /// The system's error.
        error: io::Error,
    },
    /// The daemon refuses.
    #[error("{at} refuses: {reason}")]
    Refused {
        /// The daemon's address.
        at: String,
        /// Why.
        reason: String,
    },
    /// The reply is none.
    #[error("{at} replied with something else: {problem}")]
    Malformed {
        /// The daemon's address.
        at: String,
        /// What is wrong.
        problem: String,
    },
}

/// Asks a daemon, if `accepted` has no objection to the certificates that it shows: a request may hold a secret,
/// and a reply is believed. Returns the reply and the certificates.
pub(crate) async fn ask<T: DeserializeOwned>(
    (host, port): (&str, u16),
    config: Arc<ClientConfig>,
    request: &Request,
    accepted: impl Fn(&[CertificateDer<'_>]) -> io::Result<()>,
) -> Result<(T, Vec<CertificateDer<'static>>), EnrolError> {
    let at = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("nothing within {PATIENCE:?}"));
    let connecting = timeout(PATIENCE, TcpStream::connect((host, port))).await;
    let stream = connecting
        .unwrap_or_else(|_| Err(late()))
        .map_err(|error| EnrolError::Connect { at: at.clone(), error })?;
    let mut stream = handshake(config, stream)
        .await
        .map_err(|error| EnrolError::Handshake { at: at.clone(), error })?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain: Vec<_> = chain.iter().map(|shown| shown.clone().into_owned()).collect();
    accepted(&chain).map_err(|error| EnrolError::Handshake { at: at.clone(), error })?;
    let conversing = async {
        write_line(&mut stream, request).await?;
        read_line(&mut stream, MAX_REPLY).await
    };
    let line = timeout(PATIENCE, conversing).await.unwrap_or_else(|_| Err(late()));
    let line = line.map_err(|error| EnrolError::Io {
        at: at.clone(),
        error: io::Error::new(error.kind(), crate::verify::explain(&error)),
    })?;
    match serde_json::from_slice(&line) {
        Ok(Reply::Ok(reply)) => Ok((reply, chain)),
        Ok(Reply::Refused(reason)) => Err(EnrolError::Refused { at, reason }),
        Err(error) => Err(EnrolError::Malformed { at, problem: error.to_string() }),
    }
}

/// Writes a value as one line.
pub(crate) async fn write_line(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    send(stream, &line).await
}

/// Reads one line, without its end.
pub(crate) async fn read_line(
    stream: &mut (impl AsyncRead + Unpin),
    max_bytes: usize,
) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        if line.last() == Some(&b'\n') {
            line.pop();
            return Ok(line);
        }
        if line.len() > max_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => line.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
}

/// What members ask a head or another daemon for.
impl Identity {
    /// A code for a browser's one-time link to the pages of this daemon: `/access?code=` and the
    /// code.
    ///
    /// # Errors
    /// The daemon cannot be reached, or refuses.
    pub async fn one_time_code(&self, host: &str, port: u16) -> Result<Ticket, EnrolError> {
        self.ask_at((host, port), PAGES, &Request::Code).await
    }

    /// A token for scripts that call the pages of this daemon with `Authorization: Bearer`.
    ///
    /// # Errors
    /// The daemon cannot be reached, or refuses.
    pub async fn token(&self, host: &str, port: u16) -> Result<Ticket, EnrolError> {
        self.ask_at((host, port), PAGES, &Request::Token).await
    }

    /// Gives access, as an administrator.
    ///
    /// # Errors
    /// The head cannot be reached, or refuses.
    pub async fn grant(&self, new: NewGrant) -> Result<(GrantId, AccessString), EnrolError> {
        let (host, port) = self.head();
        let granted: Granted = self.ask(&Request::Grant { new, host, port }).await?;
        Ok((granted.id, self.parsed(&granted.string)?))
    }

    /// All access strings, as an administrator.
    ///
    /// # Errors
    /// The head cannot be reached, or refuses.
    pub async fn list(&self) -> Result<Vec<Entry>, EnrolError> {
        self.ask(&Request::List).await
    }

    /// What was done at a daemon, at any of its ports or else at the head, as an administrator.
    ///
    /// # Errors
    /// The daemon cannot be reached, or refuses.
    pub async fn audit(&self, at: Option<(&str, u16)>) -> Result<Vec<Done>, EnrolError> {
        match at {
            Some(at) => self.ask_at(at, PAGES, &Request::Audit).await,
            None => self.ask(&Request::Audit).await,
        }
    }

    /// Takes access back, as an administrator.
    ///
    /// # Errors
    /// The head cannot be reached, or refuses.
    pub async fn revoke(&self, id: GrantId) -> Result<(), EnrolError> {
        self.ask(&Request::Revoke { id }).await
    }

    /// Replaces the secret of a string, as an administrator.
    ///
    /// # Errors
    /// The head cannot be reached, or refuses.
    pub async fn rotate(&self, id: GrantId) -> Result<AccessString, EnrolError> {
        let (host, port) = self.head();
        let granted: Granted = self.ask(&Request::Rotate { id, host, port }).await?;
        self.parsed(&granted.string)
    }

    fn parsed(&self, string: &str) -> Result<AccessString, EnrolError> {
        let (host, port) = self.head();
        let malformed = |error: crate::string::StringError| EnrolError::Malformed {
            at: format!("{host}:{port}"),
            problem: error.to_string(),
        };
        string.parse().map_err(malformed)
    }
}
