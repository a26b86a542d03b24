//! HTTP for the library of object stores: this program's own TLS, with the certificates that the machine trusts.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector as Connector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// How long a connection may be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that nobody uses is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a body that are sent in a second, if a server is not silent.
const SLOWEST_BYTES_A_SECOND: u64 = 1 << 20;
/// Bytes of an answer: a list, an error, or the range of an object that a reader asks for at a time.
pub(super) const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// The error of one with more.
pub(super) const TOO_LARGE: &str = "the object store's answer has more than 16 MiB";
/// Connections that nobody uses.
const MAX_IDLE: usize = 16;

/// One client for all that is done with a bucket.
#[derive(Clone)]
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, HttpRequestBody>,
    /// How long a server may be silent.
    patience: Duration,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

impl Http {
    /// With `is_plain` no certificate is needed.
    ///
    /// Errors: the machine has no certificates that it trusts.
    pub(super) fn new(is_plain: bool, patience: Duration) -> io::Result<Http> {
        let builder = match is_plain {
            true => HttpsConnectorBuilder::new().with_tls_config(trusting_none()?),
            false => HttpsConnectorBuilder::new().with_native_roots()?,
        };
        let mut plain = HttpConnector::new();
        plain.enforce_http(false);
        plain.set_connect_timeout(Some(CONNECT_TIMEOUT));
        plain.set_nodelay(true);
        let connector = builder.https_or_http().enable_http1().wrap_connector(plain);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        Ok(Http { client, patience })
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The server is silent until the body has been sent.
        let sending = request.body().content_length() as u64 / SLOWEST_BYTES_A_SECOND;
        let patience = self.patience + Duration::from_secs(sending);
        let answer = timeout(patience, self.client.request(request)).await;
        let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let response = answer.map_err(|error| HttpError::new(kind_of(&error), error))?;
        Ok(response.map(|body| HttpResponseBody::new(Patient::new(body, self.patience))))
    }
}

fn trusting_none() -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Whether the library tries again.
fn kind_of(error: &hyper_util::client::legacy::Error) -> HttpErrorKind {
    if error.is_connect() {
        return HttpErrorKind::Connect;
    }
    let mut cause = error.source();
    while let Some(found) = cause {
        if let Some(hyper) = found.downcast_ref::<hyper::Error>() {
            // The server has closed a connection that was kept.
            if hyper.is_incomplete_message() || hyper.is_closed() || hyper.is_canceled() {
                return HttpErrorKind::Request;
            }
        }
        if found.is::<io::Error>() {
            return HttpErrorKind::Interrupted;
        }
        cause = found.source();
    }
    HttpErrorKind::Unknown
}

impl Connector for Http {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Http {
    fn call<'life, 'answer>(
        &'life self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'answer>>
    where
        'life: 'answer,
        Self: 'answer,
    {
        Box::pin(self.exchange(request))
    }
}

/// A body whose sender may be silent for a while only, and not send without end.
struct Patient {
    body: Incoming,
    patience: Duration,
    due: Pin<Box<Sleep>>,
    /// Bytes that may come.
    left: u64,
}

impl Patient {
    fn new(body: Incoming, patience: Duration) -> Patient {
        Patient { body, patience, due: Box::pin(sleep(patience)), left: MAX_ANSWER_BYTES }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        let too_large = || {
            let error = HttpError::new(HttpErrorKind::Decode, io::Error::other(TOO_LARGE));
            Poll::Ready(Some(Err(error)))
        };
        if this.body.size_hint().lower() > this.left {
            return too_large();
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.due.as_mut().reset(Instant::now() + this.patience);
            let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            let Some(Ok(frame)) = frame else {
                return Poll::Ready(frame.map(|frame| frame.map_err(broken)));
            };
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            let Some(left) = this.left.checked_sub(bytes) else { return too_large() };
            this.left = left;
            return Poll::Ready(Some(Ok(frame)));
        }
        match this.due.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let silent = io::Error::from(io::ErrorKind::TimedOut);
                Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, silent))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Who collects the body makes room for it before anything comes.
    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint() {
            hint if hint.lower() > self.left => SizeHint::default(),
            hint => hint,
        }
    }
}
