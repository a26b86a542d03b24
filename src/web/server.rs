//! The HTTP server of all services with pages: admission of connections, the probes that are answered
//! also when there is no room for pages, and the host names under which requests are served.
//!
//! It knows no page. Limits on a connection are those of [`http`].

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use corona_access::{Gate, Peer, Stream};
use corona_net::connections::{ConnectionPermit, Connections, accept};

use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::exchange::{Answer, text};
use crate::hosts::Hosts;
use crate::http::{self, Limits};
use crate::session;

/// Paths that are served even when there are no places for pages.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// How many connections of a service may be open, and under which names it is served.
#[derive(Debug)]
pub struct Admission {
    pages: Arc<Connections>,
    /// Extra connections, reserved for monitors; they get no pages.
    probes: Arc<Connections>,
    hosts: Hosts,
    gate: Arc<Gate>,
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

impl Admission {
    /// Admits so many connections, and requests under these host names.
    pub fn new(room: Room, hosts: Hosts) -> Admission {
        Admission {
            pages: Connections::new(room.connections, room.of_peer),
            probes: Connections::new(room.probes, room.probes),
            hosts,
            gate: Gate::off(),
        }
    }

    /// Lets peers in through this gate.
    #[must_use]
    pub fn with_gate(self, gate: Arc<Gate>) -> Admission {
        Admission { gate, ..self }
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.pages.open() + self.probes.open()
    }

    /// See [`Hosts::misdirected`].
    pub fn misdirected<S>(
        &self,
        path: &str,
        headers: &HeaderMap,
        own: (&str, &str),
    ) -> Option<Answer<S>> {
        self.hosts.misdirected(path, headers, own)
    }

    /// A place for a connection, and whether only probes are served on it: when there is no room for
    /// pages, monitors of this program still have a place.
    fn admit(&self, peer: SocketAddr) -> Option<(ConnectionPermit, bool)> {
        let permit = self.pages.admit(peer.ip()).map(|permit| (permit, false));
        permit.or_else(|_| self.probes.admit(peer.ip()).map(|permit| (permit, true))).ok()
    }
}

/// A service with pages.
pub trait Site: Send + Sync + 'static {
    /// The bodies that are sent piece by piece.
    type Stream: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Its connections.
    fn admission(&self) -> &Admission;

    /// Whether this peer may connect.
    fn may_connect(&self, _peer: SocketAddr) -> bool {
        true
    }

    /// A request has arrived.
    fn count_request(&self);

    /// A connection or a request was refused.
    fn count_refused(&self);

    /// The answer to a request of a caller that may make it. `stop` is true when the service is stopping.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        caller: Peer,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Answer<Self::Stream>> + Send;
}

/// Serves until `stop` becomes true or its sender is dropped.
pub async fn serve<S: Site>(site: Arc<S>, listener: TcpListener, stop: watch::Receiver<bool>) {
    let stopped = stop.clone();
    let admit = |peer: SocketAddr| {
        let admitted = site.may_connect(peer).then(|| site.admission().admit(peer)).flatten();
        if admitted.is_none() {
            site.count_refused();
        }
        admitted
    };
    let (gate, served) = (site.admission().gate.clone(), site.clone());
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
    let answer = |request: Request<Incoming>| {
        let (site, stopped, peer) = (site.clone(), stopped.clone(), peer.clone());
        async move {
            site.count_request();
            let gate = &site.admission().gate;
            let caller = session::caller(gate, &request, &peer);
            if let Some(refused) = session::answer(gate, &request, &caller) {
                site.count_refused();
                return refused;
            }
            let is_probe = PROBES.contains(&request.uri().path());
            let mut answer = if probes_only && !is_probe {
                site.count_refused();
                text(StatusCode::SERVICE_UNAVAILABLE, "too many connections are open\n")
            } else {
                site.answer(request, caller, stopped).await
            };
            if probes_only {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    };
    http::serve(stream, &permit, Limits::default(), answer).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use corona_access::{Authority, Identity, TlsMode, TlsSettings, rights};

    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    struct Echo {
        admission: Admission,
        refused: AtomicU64,
        arrived: Notify,
    }

    impl Site for Echo {
        type Stream = Full<Bytes>;

        fn admission(&self) -> &Admission {
            &self.admission
        }

        fn count_request(&self) {}

        fn count_refused(&self) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }

        async fn answer(
            self: Arc<Self>,
            request: Request<Incoming>,
            _: Peer,
            _: watch::Receiver<bool>,
        ) -> Answer {
            let path = request.uri().path();
            let refused =
                self.admission.misdirected(path, request.headers(), ("test", "corona.test"));
            match refused {
                Some(refused) => refused,
                // Its request is answered for as long as the test runs.
                None if path == "/wait" => {
                    self.arrived.notify_one();
                    std::future::pending().await
                }
                None => text(StatusCode::OK, path),
            }
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
        let admission = Admission::new(room, Hosts::default()).with_gate(gate);
        let site = Arc::new(Echo { admission, refused: AtomicU64::new(0), arrived: Notify::new() });
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
        let admission = Admission::new(room, Hosts::default());
        let site = Arc::new(Echo { admission, refused: AtomicU64::new(0), arrived: Notify::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(site.clone(), listener, stopped));
        assert!(ask(address, "/page", "localhost").await.ends_with("/page"));
        assert!(ask(address, "/page", "evil.example").await.starts_with("HTTP/1.0 421"));
        assert!(ask(address, "/healthz", "evil.example").await.ends_with("/healthz"));
        assert_eq!(site.refused.load(Ordering::Relaxed), 0);
        let mut waiting = TcpStream::connect(address).await.unwrap();
        waiting.write_all(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        // Until its request is served its place may be taken.
        timeout(Duration::from_secs(30), site.arrived.notified()).await.unwrap();
        let page = ask(address, "/page", "localhost").await;
        assert!(page.contains("too many connections are open"), "{page}");
        assert!(ask(address, "/metrics", "localhost").await.ends_with("/metrics"));
        assert!(site.refused.load(Ordering::Relaxed) > 0);
        drop(waiting);
        stop.send(true).unwrap();
        timeout(Duration::from_secs(30), serving).await.unwrap().unwrap();
    }
}
