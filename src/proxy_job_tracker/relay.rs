//! Passes requests on to the pages of job trackers that sessions have announced, and their replies
//! back, piece by piece. One that is silent takes only its own share of requests.
//! Spec: mapreduce/08 §8.8.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use corona_access::rights::{self, HTTP};
use corona_access::{Peer, dial};
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, LOCATION,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::http::{Page, PageBody, begun};
use super::sessions::{Place, Sessions, Target};
use corona_config::{ProxyJobTrackerSettings, TlsMode};
use corona_mapreduce::JobId;
use corona_web::exchange::{POLICY, encode_segment, text};
use corona_web::prefix::HEADER as PATH_OF_PROXY;

/// The largest reply that is passed on, in bytes; a log of a task may be long.
const MAX_BODY: u64 = 1 << 30;
/// What browsers may do with a page that is shown at an address of the original's: its forms are
/// sent, and none of its scripts runs, since it would run as a page of this program.
const SANDBOX: &str = "sandbox allow-forms allow-same-origin; default-src 'none'; \
                       style-src 'self' 'unsafe-inline'; img-src 'self'; form-action 'self'; \
                       base-uri 'none'; frame-ancestors 'none'";
/// The part of all relayed requests that one job tracker may have.
const SHARE: usize = 8;

/// Why a request was not passed on.
#[derive(Debug, Error)]
pub(super) enum Failed {
    /// The job tracker cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// Too many requests are being passed on.
    #[error("too many requests to job trackers wait for their replies")]
    Busy,
    /// It did not answer in time, or not in HTTP.
    #[error("{0}")]
    NoReply(String),
    /// The caller may not ask the job tracker for it.
    #[error("{0}")]
    Denied(String),
    /// It redirects to something that is not the page of a running job.
    #[error("the job tracker redirects to {0:?}, an address that no running job has announced")]
    Redirect(String),
}

impl Failed {
    /// What its caller gets, if no other page takes the place of the job tracker's.
    pub(super) fn page(&self) -> Option<Page> {
        match self {
            Failed::Unreachable(_) | Failed::NoReply(_) => None,
            Failed::Busy => Some(text(StatusCode::SERVICE_UNAVAILABLE, format!("{self}\n"))),
            Failed::Denied(_) | Failed::Redirect(_) => {
                Some(text(StatusCode::FORBIDDEN, format!("{self}\n")))
            }
        }
    }
}

/// How a browser asks for a page of a job tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// With parameters, as the original's pages do: `/proxy?host=H&port=P&path=PAGE`.
    Query,
    /// With a path, as links of this program's pages do: `/proxy/H:P/PAGE`.
    Path,
}

/// A request to a job tracker.
pub(super) struct Wanted<'a> {
    pub(super) caller: &'a Peer,
    pub(super) address: Address,
    /// Begins with a slash.
    pub(super) path: &'a str,
    /// With one it is a POST.
    pub(super) form: Option<String>,
}

/// Passes requests on.
pub(super) struct Relay {
    connect_timeout: Duration,
    timeout: Duration,
    most: usize,
    /// Whether the forms of relayed pages are sent. Where members have sessions they are not: a member that announces a
    /// page could have an administrator press a button.
    with_forms: bool,
    running: Arc<Running>,
}

/// The requests that are being passed on.
#[derive(Default)]
struct Running(Mutex<HashMap<Target, usize>>);

/// The place of one request. Its drop makes room.
struct Turn {
    running: Arc<Running>,
    target: Target,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut running = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = running.get_mut(&self.target) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.target);
            }
        }
    }
}

impl Relay {
    pub(super) fn new(settings: &ProxyJobTrackerSettings) -> Relay {
        Relay {
            connect_timeout: settings.relay_connect_timeout,
            timeout: settings.relay_timeout,
            most: settings.max_relays,
            with_forms: settings.tls.mode == TlsMode::Off,
            running: Arc::default(),
        }
    }

    /// Requests that are being passed on.
    pub(super) fn running(&self) -> usize {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    fn turn(&self, target: &Target) -> Option<Turn> {
        let mut running = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = running.values().sum();
        let own = running.get(target).copied().unwrap_or_default();
        if all >= self.most || own >= (self.most / SHARE).max(1) {
            return None;
        }
        *running.entry(target.clone()).or_default() += 1;
        Some(Turn { running: self.running.clone(), target: target.clone() })
    }

    /// Passes a request on, if its caller may make it there: the peer sees the certificate of this daemon,
    /// which may do everything.
    pub(super) async fn pass(
        &self,
        sessions: &Sessions,
        target: &Target,
        Wanted { caller, address, path, form }: Wanted<'_>,
    ) -> Result<Page, Failed> {
        let request = request(target, path, form)
            .ok_or_else(|| Failed::NoReply("the path is not one of HTTP".to_owned()))?;
        // A proxy would ask with its own rights, not with those of the caller.
        let asked = request.uri().path();
        if asked == "/proxy" || asked.starts_with("/proxy/") {
            return Err(Failed::Denied("relayed requests are not relayed again".to_owned()));
        }
        let rights = || rights::page(request.method().as_str(), asked);
        if let Some(objection) = caller.objection(rights) {
            return Err(Failed::Denied(objection));
        }
        let turn = self.turn(target).ok_or(Failed::Busy)?;
        let socket = (&*target.host, target.port);
        let connecting = async { dial(HTTP, TcpStream::connect(socket).await?).await };
        let stream = match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Failed::Unreachable(error.to_string())),
            Err(_) => return Err(Failed::Unreachable("no connection in time".to_owned())),
        };
        let no_reply = |error: hyper::Error| Failed::NoReply(error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(no_reply)?;
        // It ends with the reply, or with the caller that waits for it.
        let conversation = Conversation(tokio::spawn(connection).abort_handle());
        let response = timeout(self.timeout, sender.send_request(request)).await;
        let response = match response {
            Ok(response) => response.map_err(no_reply)?,
            Err(_) => return Err(Failed::NoReply("no reply in time".to_owned())),
        };
        let location = match response.status().is_redirection() {
            true => {
                let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let location = location.unwrap_or_default();
                let to = redirect(sessions, target, address, location).await;
                Some(to.ok_or_else(|| Failed::Redirect(location.to_owned()))?)
            }
            false => None,
        };
        Ok(self.reply(address, response, location, turn, conversation))
    }

    fn reply(
        &self,
        address: Address,
        response: Response<Incoming>,
        location: Option<HeaderValue>,
        turn: Turn,
        conversation: Conversation,
    ) -> Page {
        let (head, body) = response.into_parts();
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let body = PageBody::new(Relayed {
            body,
            left: MAX_BODY,
            patience: self.timeout,
            due: Box::pin(sleep(self.timeout)),
            _turn: turn,
            _conversation: conversation,
        });
        let mut response = match address {
            Address::Query => as_the_original(header(CONTENT_TYPE), body),
            Address::Path => as_own(header(CONTENT_TYPE), body),
        };
        if !self.with_forms {
            take_forms(response.headers_mut());
        }
        *response.status_mut() = head.status;
        response.headers_mut().extend(location.map(|location| (LOCATION, location)));
        response
    }
}

/// A reply as the original gives it: a page whatever it is.
fn as_the_original(kind: Option<&str>, body: PageBody) -> Page {
    let kind = kind.filter(|kind| kind.to_ascii_lowercase().starts_with("text/html"));
    let kind = kind.and_then(|kind| HeaderValue::from_str(kind).ok());
    let mut response = Response::new(Either::Right(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("text/html")));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A reply at an address of this program. Its page may use the script of this program's pages, which
/// job trackers of this program do; nothing that is relayed is a script.
fn as_own(kind: Option<&str>, body: PageBody) -> Page {
    let mut response = begun(StatusCode::OK, safe_kind(kind), body);
    let policy = format!("sandbox allow-forms allow-same-origin allow-scripts; {POLICY}");
    let policy = HeaderValue::from_str(&policy).ok();
    let policy = policy.unwrap_or(HeaderValue::from_static(SANDBOX));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// Has browsers send no form of a page.
fn take_forms(headers: &mut HeaderMap) {
    let policy = headers.get(CONTENT_SECURITY_POLICY).and_then(|policy| policy.to_str().ok());
    let policy = policy.unwrap_or(SANDBOX).replace(" allow-forms", "");
    let policy = policy.replace("form-action 'self'", "form-action 'none'");
    let policy = HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("sandbox"));
    headers.insert(CONTENT_SECURITY_POLICY, policy);
}

/// The kind of a reply, if it is one that browsers show and do not run.
fn safe_kind(kind: Option<&str>) -> &'static str {
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    match kind.split(';').next().unwrap_or_default().trim() {
        "text/html" => "text/html; charset=utf-8",
        "application/json" => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

/// The path below which the pages of a job tracker are shown.
pub(super) fn prefix(target: &Target) -> String {
    format!("/proxy/{}", encode_segment(&target.to_string()).replace("%3A", ":"))
}

/// Ends the conversation with a job tracker when it is dropped.
struct Conversation(AbortHandle);

impl Drop for Conversation {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn request(target: &Target, path: &str, form: Option<String>) -> Option<Request<Full<Bytes>>> {
    let mut request = Request::builder()
        .method(if form.is_some() { Method::POST } else { Method::GET })
        .uri(path)
        .header(HOST, target.to_string())
        .header(PATH_OF_PROXY, prefix(target))
        .header(CONNECTION, "close");
    if form.is_some() {
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    request.body(Full::new(form.unwrap_or_default().into())).ok()
}

/// Where a redirect of a job tracker leads through this proxy: to the same one, or to another that a
/// session has announced, as a parent redirects to its remote job tracker.
async fn redirect(
    sessions: &Sessions,
    from: &Target,
    address: Address,
    location: &str,
) -> Option<HeaderValue> {
    let mut place = Place::of_redirect(from, location)?;
    if place.target != *from {
        let job = place.query.get("jobid").and_then(|job| job.parse::<JobId>().ok());
        let session = job.as_ref().and_then(JobId::session);
        place.target = sessions.announced(&place.target, session).await?;
    }
    HeaderValue::from_str(&at(&place, address)).ok()
}

/// The address of a page of a job tracker at this proxy.
fn at(place: &Place, address: Address) -> String {
    let Place { target, path, query } = place;
    match address {
        Address::Path => query.address(&format!("{}/{path}", prefix(target))),
        Address::Query => {
            let begun = String::from("/proxy?");
            let start = begun.len();
            let mut to = form_urlencoded::Serializer::for_suffix(begun, start);
            to.append_pair("host", &target.host).append_pair("port", &target.port.to_string());
            to.append_pair("path", path).extend_pairs(query.others(&["host", "port", "path"]));
            to.finish()
        }
    }
}

/// The body of a reply, as it arrives.
struct Relayed {
    body: Incoming,
    left: u64,
    patience: Duration,
    due: Pin<Box<Sleep>>,
    _turn: Turn,
    _conversation: Conversation,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                match this.left.checked_sub(bytes) {
                    Some(left) => this.left = left,
                    None => return Poll::Ready(Some(Err(broken("the reply is too long")))),
                }
                let next = Instant::now() + this.patience;
                this.due.as_mut().reset(next);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(broken(&error.to_string())))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match this.due.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(broken("the reply stopped")))),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

fn broken(why: &str) -> std::io::Error {
    std::io::Error::other(why.to_owned())
}

#[cfg(test)]
mod tests {
    use corona_config::HostPort;

    use super::*;

    #[tokio::test]
    async fn a_redirect_leads_through_the_proxy_or_nowhere() {
        let target = Target { host: "jt".into(), port: 81 };
        let nobody = HostPort { host: "127.0.0.1".into(), port: 1 };
        let sessions = Sessions::new(nobody, vec![]);
        for (location, by_query, by_path) in [
            (
                "http://jt:81/a.jsp?x=1%26",
                Some("/proxy?host=jt&port=81&path=a.jsp&x=1%26"),
                Some("/proxy/jt:81/a.jsp?x=1%26"),
            ),
            ("/a.jsp", Some("/proxy?host=jt&port=81&path=a.jsp"), Some("/proxy/jt:81/a.jsp")),
            ("http://127.0.0.1:2/a.jsp", None, None),
            ("//127.0.0.1:2/a.jsp", None, None),
            ("/a\rb", None, None),
            ("", None, None),
        ] {
            for (address, expected) in [(Address::Query, by_query), (Address::Path, by_path)] {
                let to = redirect(&sessions, &target, address, location).await;
                assert_eq!(to.as_ref().map(|to| to.to_str().unwrap()), expected, "{location:?}");
            }
        }
        let six = Target { host: "fe80::1%2".into(), port: 81 };
        assert_eq!(prefix(&six), "/proxy/%5Bfe80::1%252%5D:81");
    }

    #[test]
    fn nothing_that_browsers_run_has_a_kind_of_its_own() {
        for (kind, expected) in [
            (Some("text/html"), "text/html; charset=utf-8"),
            (Some("Application/JSON; charset=x"), "application/json"),
            (Some("text/javascript"), "text/plain; charset=utf-8"),
            (Some("image/svg+xml"), "text/plain; charset=utf-8"),
            (None, "text/plain; charset=utf-8"),
        ] {
            assert_eq!(safe_kind(kind), expected, "{kind:?}");
        }
    }

    #[test]
    fn relayed_pages_have_no_forms_where_members_have_sessions() {
        let body = PageBody::default;
        for mut page in [as_own(None, body()), as_the_original(None, body())] {
            let before = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
            assert!(before.contains(" allow-forms") && before.contains("form-action 'self'"));
            take_forms(page.headers_mut());
            let policy = page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(!policy.contains("allow-forms") && policy.contains("form-action 'none'"));
            assert!(policy.starts_with("sandbox allow-same-origin"), "{policy}");
        }
    }

    #[test]
    fn one_job_tracker_gets_its_share_of_the_requests() {
        let relay = Relay {
            connect_timeout: Duration::ZERO,
            timeout: Duration::ZERO,
            most: 16,
            with_forms: true,
            running: Arc::default(),
        };
        let target = |port| Target { host: "jt".into(), port };
        let one: Vec<Turn> = (0..16).map_while(|_| relay.turn(&target(1))).collect();
        assert_eq!(one.len(), 2);
        assert!(relay.turn(&target(2)).is_some());
        drop(one);
        assert_eq!(relay.running(), 0);
    }
}
