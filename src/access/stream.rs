//! One connection, plain or TLS, and who is at its other end.

use std::fmt;
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::audit::{Actor, Noted};
use crate::certificate::Identified;
use crate::revoked::Revoked;
use crate::rights::{self, Rights};
use crate::role::Role;
use crate::verify;

/// A connection, plain or TLS.
#[derive(Debug)]
pub enum Stream {
    /// As the bytes come.
    Plain(TcpStream),
    /// Within TLS.
    Tls(Tls),
}

/// Writes all bytes and lets them out: within TLS they would otherwise wait for more.
///
/// # Errors
/// The connection failed.
pub async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// A connection within TLS. Its end is announced to the peer when it is dropped.
#[derive(Debug)]
pub struct Tls(Box<TlsStream<TcpStream>>);

impl Tls {
    pub(crate) fn new(stream: impl Into<TlsStream<TcpStream>>) -> Tls {
        Tls(Box::new(stream.into()))
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        struct Now<'a>(&'a TcpStream);
        impl Write for Now<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.try_write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        // Whatever the system does not take at once is lost, as is the rest of a plain connection
        // whose peer does not read.
        match &mut *self.0 {
            TlsStream::Client(stream) => {
                let (tcp, session) = stream.get_mut();
                session.send_close_notify();
                let _ = session.write_tls(&mut Now(tcp));
            }
            TlsStream::Server(stream) => {
                let (tcp, session) = stream.get_mut();
                session.send_close_notify();
                let _ = session.write_tls(&mut Now(tcp));
            }
        }
    }
}

impl Stream {
    /// The connection below.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.0.get_ref().0,
        }
    }

    /// Whether it is within TLS.
    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Whether the connection is open and nothing has arrived.
    pub fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        match self {
            Stream::Plain(stream) => matches!(
                stream.try_read(&mut byte),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock
            ),
            Stream::Tls(stream) => {
                let mut buffer = ReadBuf::new(&mut byte);
                let mut context = Context::from_waker(Waker::noop());
                Pin::new(&mut *stream.0).poll_read(&mut context, &mut buffer).is_pending()
            }
        }
    }

    /// Writes as many bytes as are taken without waiting, perhaps none.
    ///
    /// # Errors
    /// The connection failed.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => match stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                written => written,
            },
            Stream::Tls(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                match Pin::new(&mut *stream.0).poll_write(&mut context, bytes) {
                    Poll::Ready(written) => written,
                    Poll::Pending => Ok(0),
                }
            }
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream::Plain(stream)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => {
                Pin::new(&mut *stream.0).poll_read(context, buffer).map_err(verify::explained_later)
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(&mut *stream.0).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Tls(stream) => Pin::new(&mut *stream.0).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.0.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(&mut *stream.0).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(&mut *stream.0).poll_shutdown(context),
        }
    }
}

/// The other end of a connection to a server.
#[derive(Clone, Debug)]
pub struct Peer {
    /// From where.
    pub address: SocketAddr,
    standing: Standing,
    /// When the token ends that it has shown; a certificate may be shown again.
    until: Option<SystemTime>,
}

/// What is known about a peer.
#[derive(Clone, Debug)]
enum Standing {
    /// Plain, where that is allowed: it may do what everybody may without access control.
    Plain { is_noted: bool },
    /// It has shown nothing.
    Nobody { is_tls: bool },
    /// It has shown a certificate, or a browser's session for one.
    Member(Arc<Identified>, Arc<Revoked>),
}

impl Peer {
    /// A plain peer where there is no access control.
    pub fn plain(address: SocketAddr) -> Peer {
        Peer { address, standing: Standing::Plain { is_noted: false }, until: None }
    }

    /// A plain peer beside members. What it changes is noted, as of these.
    pub(crate) fn plain_beside_members(address: SocketAddr) -> Peer {
        Peer { address, standing: Standing::Plain { is_noted: true }, until: None }
    }

    /// One that has shown nothing, within TLS or not.
    pub(crate) fn nobody(address: SocketAddr, is_tls: bool) -> Peer {
        Peer { address, standing: Standing::Nobody { is_tls }, until: None }
    }

    pub(crate) fn member(
        address: SocketAddr,
        identified: Arc<Identified>,
        revoked: Arc<Revoked>,
    ) -> Peer {
        Peer { address, standing: Standing::Member(identified, revoked), until: None }
    }

    /// Whether its connection is within TLS.
    pub fn is_tls(&self) -> bool {
        match self.standing {
            Standing::Plain { .. } => false,
            Standing::Nobody { is_tls } => is_tls,
            Standing::Member(..) => true,
        }
    }

    /// Its address without the port.
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// Who it is, if it has shown a certificate.
    pub fn identified(&self) -> Option<&Identified> {
        match &self.standing {
            Standing::Member(identified, _) => Some(identified),
            Standing::Plain { .. } | Standing::Nobody { .. } => None,
        }
    }

    /// The user as whom it runs jobs, if its certificate names one.
    pub fn user(&self) -> Option<&str> {
        self.identified().and_then(Identified::user)
    }

    /// The user of its calls, whatever it claims: of an observer one that has no jobs, with its role before the name.
    pub fn own_user(&self) -> Option<String> {
        self.identified().and_then(Identified::own_user)
    }

    /// Why it may not do something that needs these rights; `None` if it may.
    pub fn objection(&self, rights: impl FnOnce() -> Rights) -> Option<String> {
        match &self.standing {
            Standing::Plain { .. } => None,
            Standing::Nobody { .. } => {
                (!rights().is_everybody()).then(|| "access to this cluster is needed".to_owned())
            }
            Standing::Member(identified, revoked) if revoked.contains(identified.grant) => {
                Some(format!("access {} has been revoked", identified.grant))
            }
            Standing::Member(identified, _) => (!rights().allow(identified.role))
                .then(|| format!("the role {} may not do this", identified.role)),
        }
    }
}

impl Peer {
    /// The same member as one that only looks.
    #[must_use]
    pub fn as_observer(&self) -> Peer {
        let standing = match &self.standing {
            Standing::Member(who, revoked) => {
                let observer = Identified { role: Role::Read, ..(**who).clone() };
                Standing::Member(Arc::new(observer), revoked.clone())
            }
            standing => standing.clone(),
        };
        Peer { standing, ..*self }
    }

    /// The same with a token that ends then.
    #[must_use]
    pub(crate) fn until(self, until: SystemTime) -> Peer {
        Peer { until: Some(until), ..self }
    }

    /// Done when the access of this peer is revoked or its token ends; never, if it has shown none.
    pub fn access_ends(&self) -> impl Future<Output = ()> + Send + use<> {
        let (standing, until) = (self.standing.clone(), self.until);
        let revoked = async move {
            match standing {
                Standing::Member(identified, revoked) => revoked.wait_for(identified.grant).await,
                Standing::Plain { .. } | Standing::Nobody { .. } => std::future::pending().await,
            }
        };
        let token_ends = async move {
            match until {
                Some(until) => {
                    let left = until.duration_since(SystemTime::now()).unwrap_or_default();
                    tokio::time::sleep(left).await;
                }
                None => std::future::pending().await,
            }
        };
        async move {
            tokio::select! {
                () = revoked => {}
                () = token_ends => {}
            }
        }
    }

    /// Notes what a peer does that changes the cluster or a job. It has been found that it may.
    pub fn note(&self, service: &str, call: &str) -> Noted {
        let who = match &self.standing {
            Standing::Member(who, _) => Actor::Member(who.clone()),
            Standing::Plain { is_noted: true } => Actor::Plain,
            Standing::Plain { .. } | Standing::Nobody { .. } => return Noted::default(),
        };
        let change = rights::change(service, call);
        change.map_or_else(Noted::default, |change| {
            Noted::begin(change, who, self.address, format!("{service} {call}"))
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        match &self.standing {
            Standing::Plain { .. } => Ok(()),
            Standing::Nobody { .. } => f.write_str(" (without access)"),
            Standing::Member(identified, _) => write!(f, " as {identified}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn long_replies_end_with_the_token_that_has_begun_them() {
        const HOUR: Duration = Duration::from_secs(3600);
        let peer = Peer::nobody(([127, 0, 0, 1], 1).into(), true);
        let holder = peer.clone().until(SystemTime::now() + 2 * HOUR);
        assert!(timeout(HOUR, holder.access_ends()).await.is_err());
        assert!(timeout(3 * HOUR, holder.access_ends()).await.is_ok());
        assert!(timeout(3 * HOUR, holder.as_observer().access_ends()).await.is_ok());
        assert!(timeout(3 * HOUR, peer.access_ends()).await.is_err(), "it has shown none");
    }
}
