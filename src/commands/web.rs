//! Reading the pages of a cluster manager, and acting through them: one request at a time, with
//! limits on time and size.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use corona::access::{Stream, dial, rights};
use corona::api::Failure;
use corona::api::cluster::StandbyStatus;
use corona::config::HostPort;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::arguments::no_cluster_hint;
use super::jobs::for_browsers;
use corona_terminal::console::printable;

/// The largest page that is read.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// How often a request goes on to the leader: leaders change.
const MAX_HOPS: usize = 3;

/// The pages of a cluster manager. An instance that does not lead names the leader, and the request is repeated
/// there.
#[derive(Clone, Debug)]
pub(super) struct Web {
    /// The service whose pages they are.
    service: &'static str,
    address: HostPort,
    timeout: Duration,
}

/// How a stream ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The cluster manager ended it.
    Ended,
    /// The cluster manager has no such stream.
    NoApi,
}

/// The result of asking one instance for a stream.
enum Streamed {
    Here(StreamEnd),
    /// Another instance leads.
    AtLeader(HostPort),
}

/// The response of a path of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer<T> {
    /// The requested object.
    Found(T),
    /// The cluster manager has the API, but not this.
    NotFound(String),
    /// The cluster manager has no such API: it is the original, or an older
    /// version.
    NoApi,
}

impl<T> Answer<T> {
    /// The object, if there is one.
    pub(super) fn found(self) -> Option<T> {
        match self {
            Answer::Found(found) => Some(found),
            Answer::NotFound(_) | Answer::NoApi => None,
        }
    }
}

/// The address of the leader's pages that an instance names.
pub(super) fn leader_of(standby: &StandbyStatus) -> Option<HostPort> {
    let pages = standby.ha.leader_pages.as_deref()?;
    let address = pages.strip_prefix("http://")?.trim_end_matches('/');
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').into();
    Some(HostPort { host, port: port.parse().ok()? })
}

impl Web {
    pub(super) fn new(address: HostPort, timeout: Duration) -> Web {
        Web::of("cluster manager", address, timeout)
    }

    /// The pages of another service.
    pub(super) fn of(service: &'static str, address: HostPort, timeout: Duration) -> Web {
        Web { service, address, timeout }
    }

    /// The host and the port of the pages.
    pub(super) fn address(&self) -> &HostPort {
        &self.address
    }

    /// The address of the pages, for browsers.
    pub(super) fn url(&self) -> String {
        for_browsers(&format!("http://{}/", self.address))
    }

    /// The same pages with a shorter timeout.
    pub(super) fn within(&self, most: Duration) -> Web {
        Web { timeout: self.timeout.min(most), ..self.clone() }
    }

    /// Where the pages are, for errors.
    pub(super) fn who(&self) -> String {
        format!("the pages of the {} at {}", self.service, self.address)
    }

    /// Reads JSON from a path of the API. The path is the encoded one of the request.
    ///
    /// # Errors
    /// When there is no response, or an unexpected one.
    pub(super) async fn api<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Answer<T>> {
        let (reply, web) = self.follow(Method::GET, path, String::new()).await?;
        web.answer(reply)
    }

    /// The status of an instance, unless it leads or is no instance.
    ///
    /// # Errors
    /// When there is no response.
    pub(super) async fn standby(&self) -> anyhow::Result<Option<StandbyStatus>> {
        let (_, body) = self.exchange(Method::GET, "/api/v1/status", String::new()).await?;
        Ok(serde_json::from_slice(&body).ok())
    }

    /// The data at a path of the API; none if it has no data, or if there is no response.
    pub(super) async fn found<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        self.api(path).await.ok()?.found()
    }

    /// Sends a form to a path of the API and reads the JSON of the response.
    pub(super) async fn send_form<T: DeserializeOwned>(
        &self,
        path: &str,
        fields: &[(&str, &str)],
    ) -> anyhow::Result<Answer<T>> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        let (reply, web) = self.follow(Method::POST, path, form.finish()).await?;
        web.answer(reply)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        (status, body): (StatusCode, Bytes),
    ) -> anyhow::Result<Answer<T>> {
        if status == StatusCode::OK {
            let value = serde_json::from_slice(&body)
                .with_context(|| format!("{} returned an unexpected response", self.who()))?;
            return Ok(Answer::Found(value));
        }
        match (status, serde_json::from_slice::<Failure>(&body)) {
            (StatusCode::NOT_FOUND, Ok(failure)) => Ok(Answer::NotFound(failure.error)),
            (StatusCode::NOT_FOUND, Err(_)) => Ok(Answer::NoApi),
            (_, Ok(failure)) => bail!("{} answered {status}: {}", self.who(), failure.error),
            (_, Err(_)) => bail!("{} answered {status}", self.who()),
        }
    }

    /// Reads a page as text. Bytes that are no text are replaced.
    ///
    /// # Errors
    /// When there is none.
    pub(super) async fn page(&self, path: &str) -> anyhow::Result<String> {
        let (status, body) = self.get(path).await?;
        if status != StatusCode::OK {
            return Err(self.refusal(status, &body, path));
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Why there is no page: in the words of the daemon, where it refuses.
    fn refusal(&self, status: StatusCode, body: &[u8], path: &str) -> anyhow::Error {
        let words = String::from_utf8_lossy(body);
        match words.lines().next().map(printable) {
            Some(reason) if status == StatusCode::FORBIDDEN => {
                anyhow!("{} refuse {path}: {reason:.500}", self.who())
            }
            _ => anyhow!("{} answered {status} for {path}", self.who()),
        }
    }

    /// As [`Self::page`]; none if there is no such page, or not any more.
    ///
    /// # Errors
    /// The pages do not answer, or not with a page.
    pub(super) async fn page_if_any(&self, path: &str) -> anyhow::Result<Option<String>> {
        let (status, body) = self.get(path).await?;
        match status {
            StatusCode::OK => Ok(Some(String::from_utf8_lossy(&body).into_owned())),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            _ => Err(self.refusal(status, &body, path)),
        }
    }

    /// Reads a stream of events piece by piece, after the event `last_id` if
    /// there is one. The stream is abandoned when it is silent for longer than
    /// `silence`.
    ///
    /// # Errors
    /// When there is none, when it ends early, and errors of `on_piece`.
    pub(super) async fn stream(
        &self,
        path: &str,
        last_id: Option<&str>,
        silence: Duration,
        mut on_piece: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<StreamEnd> {
        let mut web = self.clone();
        for _ in 0..MAX_HOPS {
            match web.stream_here(path, last_id, silence, &mut on_piece).await? {
                Streamed::Here(end) => return Ok(end),
                Streamed::AtLeader(address) => web = Web { address, ..web },
            }
        }
        Err(self.no_leader())
    }

    async fn stream_here(
        &self,
        path: &str,
        last_id: Option<&str>,
        silence: Duration,
        on_piece: &mut impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Streamed> {
        let stream = self.connect().await?;
        let failed = || format!("{} failed to answer", self.who());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .with_context(failed)?;
        let mut request = Request::get(path).header(HOST, self.address.to_string());
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Full::new(Bytes::new())).with_context(failed)?;
        let seconds = self.timeout.as_secs();
        let exchange = async {
            let answered = timeout(self.timeout, sender.send_request(request)).await;
            let response = answered
                .map_err(|_| anyhow!("{} did not answer within {seconds} s", self.who()))?
                .map_err(|error| self.failed(error))?;
            match response.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Ok(Streamed::Here(StreamEnd::NoApi)),
                status => {
                    let body = Limited::new(response.into_body(), MAX_PAGE_BYTES).collect();
                    let body = timeout(silence, body).await.ok().and_then(Result::ok);
                    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                    return match self.leader_elsewhere(status, &body) {
                        Some(leader) => Ok(Streamed::AtLeader(leader)),
                        None => self
                            .answer((status, body))
                            .map(|_: Answer<()>| Streamed::Here(StreamEnd::NoApi)),
                    };
                }
            }
            let mut body = response.into_body();
            loop {
                let frame = timeout(silence, body.frame()).await;
                let frame = frame.map_err(|_| anyhow!("{} stopped sending", self.who()))?;
                let Some(frame) = frame else { return Ok(Streamed::Here(StreamEnd::Ended)) };
                let frame = frame.with_context(|| format!("{} ended a stream", self.who()))?;
                if let Some(piece) = frame.data_ref() {
                    on_piece(piece)?;
                }
            }
        };
        tokio::select! {
            exchanged = exchange => exchanged,
            never = driven(connection) => match never {},
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        Ok(self.follow(Method::GET, path, String::new()).await?.0)
    }

    /// The response of the leader, and its pages.
    async fn follow(
        &self,
        method: Method,
        path: &str,
        form: String,
    ) -> anyhow::Result<((StatusCode, Bytes), Web)> {
        let mut web = self.clone();
        for _ in 0..MAX_HOPS {
            let reply = web.exchange(method.clone(), path, form.clone()).await?;
            match web.leader_elsewhere(reply.0, &reply.1) {
                Some(address) => web = Web { address, ..web },
                None => return Ok((reply, web)),
            }
        }
        Err(self.no_leader())
    }

    fn no_leader(&self) -> anyhow::Error {
        anyhow!("{} and those that they name know no instance that leads; try again", self.who())
    }

    /// The address of the leader's pages in the response of another instance.
    fn leader_elsewhere(&self, status: StatusCode, body: &[u8]) -> Option<HostPort> {
        if status != StatusCode::SERVICE_UNAVAILABLE {
            return None;
        }
        let standby: StandbyStatus = serde_json::from_slice(body).ok()?;
        let leader = leader_of(&standby)?;
        (leader != self.address).then_some(leader)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        form: String,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let seconds = self.timeout.as_secs();
        let stream = self.connect().await?;
        let answered = timeout(self.timeout, self.converse(stream, method, path, form)).await;
        answered.map_err(|_| anyhow!("{} did not answer within {seconds} s", self.who()))?
    }

    async fn connect(&self) -> anyhow::Result<Stream> {
        let seconds = self.timeout.as_secs();
        let address = (&*self.address.host, self.address.port);
        let connecting = async { dial(rights::HTTP, TcpStream::connect(address).await?).await };
        let connected = timeout(self.timeout, connecting).await;
        connected
            .map_err(|_| anyhow!("{} did not accept a connection within {seconds} s", self.who()))?
            .map_err(|error| {
                let hint = no_cluster_hint(&self.address, |name| std::env::var_os(name));
                anyhow!("{} cannot be reached: {error}{hint}", self.who())
            })
    }

    /// A request without a response. A Thrift service reads the request as the
    /// length of a message that it does not allow, and closes the connection.
    fn failed(&self, error: hyper::Error) -> anyhow::Error {
        let is_thrift = error.is_incomplete_message() || error.is_parse();
        let other_port = match self.service {
            "cluster manager" => {
                Some("cm.server.address, name that of cm.server.http.address with --http-address")
            }
            "proxy job tracker" => Some(
                "corona.proxy.job.tracker.rpcaddr or another one without pages, name that of \
                 mapred.job.tracker.corona.proxyaddr with --proxy-job-tracker",
            ),
            _ => None,
        };
        if let Some(other_port) = other_port.filter(|_| is_thrift) {
            return anyhow!(
                "{} did not answer with HTTP ({error}): if this is the port of {other_port}",
                self.who()
            );
        }
        anyhow::Error::new(error).context(format!("{} failed to answer", self.who()))
    }

    async fn converse(
        &self,
        stream: Stream,
        method: Method,
        path: &str,
        form: String,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let failed = || format!("{} failed to answer", self.who());
        let stream = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(stream).await.with_context(failed)?;
        let mut request = Request::builder()
            .method(&method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(CONNECTION, "close");
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request
            .body(Full::new(Bytes::from(form)))
            .with_context(|| format!("{path:?} is no path"))?;
        let exchange = async {
            let response =
                sender.send_request(request).await.map_err(|error| self.failed(error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_PAGE_BYTES).collect().await;
            let body = body.map_err(|error| anyhow!("{error}")).with_context(failed)?;
            Ok((status, body.to_bytes()))
        };
        tokio::select! {
            exchanged = exchange => exchanged,
            never = driven(connection) => match never {},
        }
    }
}

/// Drives a connection. Its errors also appear in the exchange, with more
/// context.
async fn driven(connection: impl Future<Output = hyper::Result<()>>) -> Infallible {
    let _ = connection.await;
    std::future::pending().await
}
