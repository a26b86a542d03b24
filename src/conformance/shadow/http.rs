//! The page of a shadow, its JSON and its metrics, over HTTP/1.1.
//!
//! On a thread of its own, so that no browser delays the relay or the comparison. It serves no
//! changes, so every client that reaches the address may read.

use std::io;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Watched;
use super::document::html;
use super::json::json;
use super::metrics::metrics;
use corona_access::Gate;
use corona_net::connections::{Connections, accept};
use corona_net::{ListenOn, listen};
use corona_web::http;
use corona_web::prometheus;

/// How long a connection may last: one request and its answer.
const CONNECTION: Duration = Duration::from_secs(30);
/// Connections at a time. One more takes the place of one without a request, or is closed at once.
const MAX_CONNECTIONS: usize = 64;
/// The interval at which the page reloads itself.
const REFRESH: Duration = Duration::from_secs(5);

/// The pages of a shadow, served.
#[derive(Debug)]
pub struct ShadowPages {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl ShadowPages {
    /// Serves on `address`; port 0 is any free one.
    ///
    /// Errors: those of the system, such as a port that is taken.
    pub fn start(address: SocketAddr, stats: Watched) -> io::Result<ShadowPages> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _runtime = runtime.enter();
            listen(ListenOn::Address(address))?
        };
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(false);
        let thread = thread::Builder::new().name("shadow-pages".to_owned());
        let thread = thread.spawn(move || runtime.block_on(serve(listener, stats, stopped)))?;
        Ok(ShadowPages { address, stop, thread })
    }

    /// Where they are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves no longer.
    pub fn end(self) {
        self.stop.send_replace(true);
        // It holds nothing of value.
        let _ = self.thread.join();
    }
}

async fn serve(listener: TcpListener, stats: Watched, stop: watch::Receiver<bool>) {
    let connections = Connections::new(MAX_CONNECTIONS, MAX_CONNECTIONS);
    let limits = http::Limits { keep_alive: false, ..http::Limits::default() };
    let admit = |peer: SocketAddr| Some((connections.admit(peer.ip()).ok()?, stats.clone()));
    accept(listener, stop, &Gate::off(), admit, move |stream, _, place, stats| async move {
        let serving = http::serve(stream, &place, limits, |request| {
            let uri = request.uri();
            let answer = answer(request.method(), uri.path(), uri.query(), &stats);
            async move { answer }
        });
        let _ = timeout(CONNECTION, serving).await;
    })
    .await;
}

fn answer(
    method: &Method,
    path: &str,
    query: Option<&str>,
    stats: &Watched,
) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "only GET and HEAD are supported\n",
        );
    }
    match path {
        "/" => {
            let refresh = (query != Some("still")).then_some(REFRESH);
            let page = html(&stats.now(), refresh);
            plain(StatusCode::OK, "text/html; charset=utf-8", page)
        }
        "/report.json" => {
            let stats = stats.now();
            let text = serde_json::to_string(&json(&stats)).unwrap_or_default();
            plain(StatusCode::OK, "application/json", text)
        }
        "/metrics" => plain(StatusCode::OK, prometheus::CONTENT_TYPE, metrics(&stats.now())),
        _ => plain(StatusCode::NOT_FOUND, "text/plain", "there are /, /report.json and /metrics\n"),
    }
}

fn plain(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::shadow::tests::watched;

    #[test]
    fn page_json_and_metrics_are_served_and_nothing_else() {
        let pages = ShadowPages::start("127.0.0.1:0".parse().unwrap(), watched("cm:9090")).unwrap();
        for (request, begins, holds) in [
            ("GET /", "HTTP/1.1 200", "Shadow of cm:9090"),
            ("GET /?still", "HTTP/1.1 200", "NOTHING WAS COMPARED"),
            ("GET /report.json", "HTTP/1.1 200", "\"agrees\":false"),
            ("GET /metrics", "HTTP/1.1 200", "corona_shadow_lag_seconds 0"),
            ("GET /other", "HTTP/1.1 404", "there are /"),
            ("POST /", "HTTP/1.1 405", "only GET and HEAD are supported"),
        ] {
            let mut stream = TcpStream::connect(pages.address()).unwrap();
            write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(begins) && answer.contains(holds), "{request}: {answer}");
        }
        pages.end();
    }

    #[test]
    fn idle_connections_do_not_block_the_pages() {
        let figures = watched("cm:9090");
        let pages = ShadowPages::start("127.0.0.1:0".parse().unwrap(), figures).unwrap();
        let idle: Vec<_> = (0..2 * MAX_CONNECTIONS)
            .map(|_| TcpStream::connect(pages.address()).unwrap())
            .collect();
        let mut innocent = TcpStream::connect(pages.address()).unwrap();
        innocent.set_read_timeout(Some(CONNECTION / 2)).unwrap();
        innocent.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        innocent.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(idle);
        pages.end();
    }
}
