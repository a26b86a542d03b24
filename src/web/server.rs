//! The front of all services with pages: admission of connections, the host names under which requests are
//! served, probes, metrics and static files, compression, and places for answers that take a while to make.
//! Probes are answered also when there is no room for pages.
//!
//! It knows no page. Limits on a connection are those of [`http`].

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use corona_access::{Gate, Peer, Stream};
use corona_net::connections::{ConnectionPermit, Connections, accept};

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::exchange::{self, Answer, Parameters, in_form_of, text};
use crate::hosts::Hosts;
use crate::http::{self, Limits};
use crate::making::{self, compress, make_answer};
use crate::session::{self, Admitted, Last, end};
use crate::{compression, files};

/// Paths that are served even when there are no places for pages.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// Answers that are made at a time: each may hold a copy of all that a page shows.
const MAKERS: usize = 2;

/// The front of a service: its connections, the names under which it is served, and how many answers are
/// made at a time.
#[derive(Debug)]
pub struct Front {
    /// The service, and the key that adds names, for the sentence that refuses a request under another one.
    own: (&'static str, &'static str),
    pages: Arc<Connections>,
    /// Extra connections, reserved for monitors; they get no pages.
    probes: Arc<Connections>,
    hosts: Hosts,
    gate: Arc<Gate>,
    /// A place for each answer that is being made.
    makers: Arc<Semaphore>,
    /// The same for metrics, which do not wait behind pages.
    scrapers: Arc<Semaphore>,
    requests: AtomicU64,
    refused: AtomicU64,
}

/// The number of connections of a service at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Connections of browsers and scripts.
    pub connections: usize,
    /// Those of one peer.
    pub of_peer: usize,
    /// Connections beyond these, on which only probes are served.
    pub probes: usize,
}

impl Front {
    /// Lets peers in through the gate, and answers requests under these host names. `own` are the service
    /// and the key of its names.
    pub fn new(
        own: (&'static str, &'static str),
        room: Room,
        hosts: Hosts,
        gate: Arc<Gate>,
    ) -> Front {
        Front {
            own,
            pages: Connections::new(room.connections, room.of_peer),
            probes: Connections::new(room.probes, room.probes),
            hosts,
            gate,
            makers: Arc::new(Semaphore::new(MAKERS)),
            scrapers: Arc::new(Semaphore::new(1)),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.pages.open() + self.probes.open()
    }

    /// Requests that have arrived.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Connections and requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Connections of browsers and scripts.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.pages
    }

    /// The names under which requests are answered.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The gate that peers come through.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Makes an answer on a thread that may take its time, when there is a place for it.
    pub async fn make<S: Send + 'static>(
        &self,
        make: impl FnOnce() -> Answer<S> + Send + 'static,
    ) -> Answer<S> {
        make_answer(&self.makers, make).await
    }

    /// Makes a part of an answer in the same way. `None` if that panicked.
    pub async fn make_part<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        making::make(&self.makers, make).await
    }

    /// The same for metrics.
    pub async fn make_metrics<S: Send + 'static>(
        &self,
        make: impl FnOnce() -> Answer<S> + Send + 'static,
    ) -> Answer<S> {
        make_answer(&self.scrapers, make).await
    }

    /// A place for a connection, and whether only probes are served on it: when there is no room for
    /// pages, monitors of this program still have a place.
    fn admit(&self, peer: SocketAddr) -> Option<(ConnectionPermit, bool)> {
        let permit = self.pages.admit(peer.ip()).map(|permit| (permit, false));
        permit.or_else(|_| self.probes.admit(peer.ip()).map(|permit| (permit, true))).ok()
    }

    fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The body of a request.
pub trait RequestBody:
    Body<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static
{
}

impl<B: Body<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static> RequestBody
    for B
{
}

/// A service with pages.
pub trait Site: Send + Sync + 'static {
    /// The bodies that are sent piece by piece.
    type Stream: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Its front.
    fn front(&self) -> &Front;

    /// Whether this peer may connect.
    fn may_connect(&self, _peer: SocketAddr) -> bool {
        true
    }

    /// Why its process does not work; `None` while it does.
    fn sickness(&self) -> Option<String> {
        None
    }

    /// Why it serves nobody at the moment; `None` while it does.
    fn unreadiness(&self) -> Option<String> {
        self.sickness()
    }

    /// The answer to a request for its metrics.
    fn metrics(
        self: Arc<Self>,
        parameters: Parameters,
    ) -> impl Future<Output = Answer<Self::Stream>> + Send;

    /// The answer to another request of a caller that may make it. `stop` is true when the service is
    /// stopping.
    fn answer<B: RequestBody>(
        self: Arc<Self>,
        request: Request<B>,
        caller: Peer,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Answer<Self::Stream>> + Send;
}

/// The answer to a request of a caller that may make it, compressed if the reader takes that.
pub async fn respond<S: Site, B: RequestBody>(
    site: &Arc<S>,
    request: Request<B>,
    caller: Peer,
    stop: watch::Receiver<bool>,
) -> Answer<S::Stream> {
    let front = site.front();
    let is_accepted = compression::is_accepted(request.headers());
    let is_looking = matches!(*request.method(), Method::GET | Method::HEAD);
    let uri = request.uri().clone();
    let path = uri.path();
    let answer = if let Some(refused) = front.hosts.misdirected(path, request.headers(), front.own)
    {
        refused
    } else if let Some(answer) = answer_in_front(site, &uri, *stop.borrow()).filter(|_| is_looking)
    {
        answer
    } else if is_looking && path == "/metrics" {
        let parameters = Parameters::parse(uri.query().unwrap_or_default().as_bytes());
        site.clone().metrics(parameters).await
    } else {
        site.clone().answer(request, caller, stop).await
    };
    let makers = if path == "/metrics" { &front.scrapers } else { &front.makers };
    compress(answer, is_accepted, makers).await
}

/// Probes and static files.
fn answer_in_front<S: Site>(
    site: &Arc<S>,
    uri: &Uri,
    is_stopping: bool,
) -> Option<Answer<S::Stream>> {
    let probe = |fine: &str, why_not: Option<String>| match why_not {
        None => text(StatusCode::OK, fine),
        Some(why_not) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why_not}\n")),
    };
    match uri.path() {
        "/healthz" => Some(probe("ok\n", site.sickness())),
        "/readyz" if is_stopping => Some(probe("ready\n", Some("stopping".into()))),
        "/readyz" => Some(probe("ready\n", site.unreadiness())),
        path => {
            let (kind, content) = files::file(path.strip_prefix("/static/")?)?;
            Some(match uri.query() {
                Some(_version) => exchange::file(kind, content),
                // Pages of Java's job trackers name it without a version.
                None => exchange::respond(StatusCode::OK, kind, content),
            })
        }
    }
}

/// Serves until `stop` becomes true or its sender is dropped.
pub async fn serve<S: Site>(site: Arc<S>, listener: TcpListener, stop: watch::Receiver<bool>) {
    let stopped = stop.clone();
    let admit = |peer: SocketAddr| {
        let admitted = site.may_connect(peer).then(|| site.front().admit(peer)).flatten();
        if admitted.is_none() {
            site.front().count_refused();
        }
        admitted
    };
    let (gate, served) = (site.front().gate.clone(), site.clone());
    accept(listener, stop, &gate, admit, move |stream, peer, permit, probes_only| {
        serve_connection(served.clone(), stream, peer, stopped.clone(), permit, probes_only)
    })
    .await;
}

async fn serve_connection<S: Site>(
    site: Arc<S>,
    stream: Stream,
    peer: Peer,
    stopped: watch::Receiver<bool>,
    permit: Arc<ConnectionPermit>,
    probes_only: bool,
) {
    let answer = |last: Last, request: Request<Incoming>| {
        let (site, stopped, peer) = (site.clone(), stopped.clone(), peer.clone());
        async move {
            let front = site.front();
            front.requests.fetch_add(1, Ordering::Relaxed);
            let path = request.uri().path().to_owned();
            let admitted = session::admit(&front.gate, &request, &peer);
            let Admitted { who, noted } = match admitted {
                Continue(admitted) => admitted,
                Break(answer) => {
                    front.count_refused();
                    return in_form_of(&path, answer).await;
                }
            };
            last.is(who.clone());
            let is_probe = PROBES.contains(&request.uri().path());
            let mut answer = if probes_only && !is_probe {
                front.count_refused();
                text(StatusCode::SERVICE_UNAVAILABLE, "too many connections are open\n")
            } else {
                respond(&site, request, who, stopped).await
            };
            if probes_only {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            end(noted, answer.status());
            in_form_of(&path, answer).await
        }
    };
    session::serve(&peer, |last| {
        let answer = move |request| answer(last.clone(), request);
        http::serve(stream, &permit, Limits::default(), answer)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use corona_access::{
        Authority, GrantId, Identity, NewGrant, Role, TlsMode, TlsSettings, rights,
    };
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    struct Echo {
        front: Front,
        arrived: Notify,
    }

    impl Echo {
        fn new(room: Room, gate: Arc<Gate>) -> Arc<Echo> {
            let front = Front::new(("test", "corona.test"), room, Hosts::default(), gate);
            Arc::new(Echo { front, arrived: Notify::new() })
        }
    }

    impl Site for Echo {
        type Stream = Full<Bytes>;

        fn front(&self) -> &Front {
            &self.front
        }

        async fn metrics(self: Arc<Self>, _: Parameters) -> Answer {
            text(StatusCode::OK, "/metrics")
        }

        async fn answer<B: RequestBody>(
            self: Arc<Self>,
            request: Request<B>,
            _: Peer,
            _: watch::Receiver<bool>,
        ) -> Answer {
            let path = request.uri().path();
            if path == "/wait" {
                // It is answered for as long as the test runs.
                self.arrived.notify_one();
                std::future::pending().await
            }
            text(StatusCode::OK, path)
        }
    }

    async fn ask(address: SocketAddr, path: &str, host: &str) -> String {
        ask_by("GET", address, path, host).await
    }

    async fn ask_by(method: &str, address: SocketAddr, path: &str, host: &str) -> String {
        let asked = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut reply = String::new();
            // A connection that is refused may be reset.
            let _ = stream.read_to_string(&mut reply).await;
            reply
        };
        timeout(Duration::from_secs(30), asked).await.unwrap()
    }

    #[tokio::test]
    async fn strangers_reach_no_page_of_a_closed_site_but_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let now = std::time::SystemTime::now();
        let authority = Authority::create(&path("ca"), now).unwrap();
        let own = Identity::own(&path("own"), &authority, "head", ("localhost", 1), &[], now);
        let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
        let gate = Gate::new(settings, Some(Arc::new(own.unwrap())), None).unwrap();
        let room = Room { connections: 9, of_peer: 9, probes: 1 };
        let site = Echo::new(room, gate);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(serve(site.clone(), listener, stopped));
        let paths = rights::PAGES.iter().map(|row| row.name.replace('*', "/any"));
        for path in paths.chain(["/access?code=1".to_owned(), "/".to_owned()]) {
            for method in ["GET", "HEAD", "POST"] {
                let reply = ask_by(method, address, &path, "localhost").await;
                match (method, &*path) {
                    ("GET" | "HEAD", "/healthz") => {
                        assert!(reply.starts_with("HTTP/1.0 200"), "{reply}");
                    }
                    _ => assert!(reply.starts_with("HTTP/1.0 401"), "{method} {path}: {reply}"),
                }
            }
        }
    }

    #[tokio::test]
    async fn probes_are_answered_when_there_is_no_room_for_pages() {
        let room = Room { connections: 1, of_peer: 1, probes: 1 };
        let site = Echo::new(room, Gate::off());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(site.clone(), listener, stopped));
        assert!(ask(address, "/page", "localhost").await.ends_with("/page"));
        assert!(ask(address, "/page", "evil.example").await.starts_with("HTTP/1.0 421"));
        assert!(ask(address, "/healthz", "evil.example").await.ends_with("\r\nok\n"));
        assert!(ask(address, "/readyz", "localhost").await.ends_with("\r\nready\n"));
        for (file, cached) in [("corona.css?v=1", "immutable"), ("corona.css", "no-store")] {
            let answer = ask(address, &format!("/static/{file}"), "localhost").await;
            assert!(answer.starts_with("HTTP/1.0 200") && answer.contains(cached), "{answer}");
        }
        assert_eq!(site.front.refused(), 0);
        let mut waiting = TcpStream::connect(address).await.unwrap();
        waiting.write_all(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        // Until its request is served its place may be taken.
        timeout(Duration::from_secs(30), site.arrived.notified()).await.unwrap();
        let page = ask(address, "/page", "localhost").await;
        assert!(page.contains("too many connections are open"), "{page}");
        assert!(ask(address, "/metrics", "localhost").await.ends_with("/metrics"));
        assert!(site.front.refused() > 0);
        drop(waiting);
        stop.send(true).unwrap();
        timeout(Duration::from_secs(30), serving).await.unwrap().unwrap();
    }

    /// A service of a closed cluster, and members of it.
    struct Closed {
        directory: tempfile::TempDir,
        authority: Arc<Authority>,
        gate: Arc<Gate>,
        own: Arc<Identity>,
        site: Arc<Echo>,
        address: SocketAddr,
        _stop: watch::Sender<bool>,
    }

    impl Closed {
        async fn start() -> Closed {
            let directory = tempfile::tempdir().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (now, at) = (SystemTime::now(), ("127.0.0.1", address.port()));
            let authority = Authority::create(&directory.path().join("ca"), now).unwrap();
            let authority = Arc::new(authority);
            let own = directory.path().join("own");
            let own = Arc::new(Identity::own(&own, &authority, "head", at, &[], now).unwrap());
            let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
            let gate = Gate::new(settings, Some(own.clone()), Some(authority.clone())).unwrap();
            let room = Room { connections: 100, of_peer: 100, probes: 1 };
            let site = Echo::new(room, gate.clone());
            let (stop, stopped) = watch::channel(false);
            tokio::spawn(serve(site.clone(), listener, stopped));
            Closed { directory, authority, gate, own, site, address, _stop: stop }
        }

        async fn member(&self, name: &str, role: Role) -> (GrantId, Identity) {
            let user = (role == Role::Submit).then(|| name.to_owned());
            let new = NewGrant { role, user, valid_secs: None, uses: None };
            let at = ("127.0.0.1", self.address.port());
            let (id, string) = self.authority.grant(&new, at, SystemTime::now()).unwrap();
            let directory = self.directory.path().join(name);
            (id, Identity::enrol(&directory, &string, name, &[]).await.unwrap())
        }

        async fn send(&self, who: &Identity, request: &str) -> Stream {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let mut stream = who.connect(stream, &Role::ALL).await.unwrap();
            corona_access::send(&mut stream, request.as_bytes()).await.unwrap();
            stream
        }

        /// What is replied to `METHOD PATH` with these lines of a head.
        async fn ask(&self, who: &Identity, what: &str, lines: &[&str]) -> String {
            let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            let request = format!("{what} HTTP/1.0\r\nHost: localhost\r\n{lines}\r\n");
            let mut reply = String::new();
            let reading = async {
                self.send(who, &request).await.read_to_string(&mut reply).await.unwrap();
            };
            timeout(Duration::from_secs(60), reading).await.unwrap();
            reply
        }

        async fn plainly(&self, what: &str, line: &str) -> String {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            let request = format!("{what} HTTP/1.0\r\nHost: localhost\r\n{line}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await.unwrap();
            reply
        }
    }

    #[tokio::test]
    async fn a_one_time_link_is_used_up_by_its_button_and_gives_a_session_that_looks() {
        let closed = Closed::start().await;
        let (_, admin) = closed.member("ann", Role::Admin).await;
        let (_, reader) = closed.member("bob", Role::Read).await;
        let code = admin.one_time_code("127.0.0.1", closed.address.port()).await.unwrap().value;
        let link = format!("/access?code={code}");
        // Programs that look at links do not use it up, and no other site can press the button.
        for _ in 0..2 {
            let page = closed.ask(&reader, &format!("GET {link}"), &[]).await;
            assert!(page.contains("<button") && !page.contains("set-cookie"), "{page}");
        }
        let press = format!("POST {link}");
        let foreign = closed.ask(&reader, &press, &["Origin: https://evil.example"]).await;
        assert!(foreign.starts_with("HTTP/1.0 403"), "{foreign}");
        let pressed = closed.ask(&reader, &press, &["Origin: https://localhost"]).await;
        assert!(pressed.starts_with("HTTP/1.0 303"), "{pressed}");
        let cookie = pressed.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        assert!(cookie.ends_with("; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
        let again = closed.ask(&reader, &press, &[]).await;
        assert!(again.starts_with("HTTP/1.0 403") && again.contains("has been used"), "{again}");
        let session = format!("Cookie: {}", cookie.split(';').next().unwrap());
        for (what, status) in [
            ("GET /page", "200"),
            ("GET /access/peers", "200"),
            ("GET /access/audit", "403"),
            ("HEAD /api/v1/%73ees", "403"),
            ("POST /api/v1/step-down", "403"),
            ("POST /sessions/s/kill", "200"),
        ] {
            let reply = closed.ask(&reader, what, &[&session]).await;
            assert!(reply.starts_with(&format!("HTTP/1.0 {status}")), "{what}: {reply}");
        }
        // A session is no token, and a token is no session.
        let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
        let as_token = format!("Authorization: Bearer {value}");
        let audit = closed.ask(&reader, "GET /access/audit", &[&as_token]).await;
        assert!(audit.starts_with("HTTP/1.0 403"), "{audit}");
        let token = admin.token("127.0.0.1", closed.address.port()).await.unwrap().value;
        let as_session = format!("Cookie: {name}={token}");
        let audit = closed.ask(&reader, "GET /access/audit", &[&as_session]).await;
        assert!(audit.starts_with("HTTP/1.0 403"), "{audit}");
        let bearer = format!("Authorization: Bearer {token}");
        let audit = closed.ask(&reader, "GET /access/audit", &[&bearer]).await;
        assert!(audit.starts_with("HTTP/1.0 200"), "{audit}");
        assert!(audit.contains("admin ann") && audit.contains("/sessions/s/kill: done"), "{audit}");
        assert!(!audit.contains("step-down"), "{audit}");
    }

    #[tokio::test]
    async fn a_plain_peer_sees_no_page_of_a_closed_service() {
        let closed = Closed::start().await;
        for what in ["GET /", "GET /access", "GET /access?code=x", "POST /access", "HEAD /access"] {
            let reply = closed.plainly(what, "X: x").await;
            assert!(reply.starts_with("HTTP/1.0 401"), "{what}: {reply}");
        }
        // A browser that has followed an old link is sent on, but not for good.
        let reply = closed.plainly("GET /page?a=b", "Accept: text/html").await;
        assert!(reply.starts_with("HTTP/1.0 307"), "{reply}");
        assert!(reply.contains("location: https://localhost/page?a=b\r\n"), "{reply}");
        assert!(closed.plainly("GET /healthz", "X: x").await.starts_with("HTTP/1.0 200"));
    }

    #[tokio::test]
    async fn requests_that_go_on_end_when_access_is_revoked() {
        let closed = Closed::start().await;
        let (id, alice) = closed.member("alice", Role::Submit).await;
        let token = alice.token("127.0.0.1", closed.address.port()).await.unwrap().value;
        let wait = |lines: &str| format!("GET /wait HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
        let with_token = wait(&format!("Authorization: Bearer {token}\r\n"));
        let asked = [(&alice, wait("")), (&*closed.own, with_token), (&*closed.own, wait(""))];
        let mut served = Vec::new();
        for (who, request) in asked {
            served.push(closed.send(who, &request).await);
            let arrived = closed.site.arrived.notified();
            timeout(Duration::from_secs(60), arrived).await.unwrap();
        }
        closed.authority.revoke(id).unwrap();
        let (_going, stop) = watch::channel(false);
        tokio::spawn(closed.gate.clone().maintain(stop));
        let mut innocent = served.pop().unwrap();
        for ended in &mut served {
            let mut reply = Vec::new();
            let _ = timeout(Duration::from_secs(60), ended.read_to_end(&mut reply)).await.unwrap();
            assert_eq!(reply, b"");
        }
        assert!(innocent.is_quiet());
    }
}
