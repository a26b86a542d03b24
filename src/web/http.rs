//! One HTTP/1.1 connection, with limits on the resources of its peer: a request that does not
//! arrive and a reader that does not read end it. It knows no page.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use corona_net::WriteTimeout;
use corona_net::connections::ConnectionPermit;

/// Limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's head, and of the read-ahead.
    pub head_bytes: usize,
    /// How long a request's head may take to arrive, and a connection may wait for one.
    pub head_timeout: Duration,
    /// How long a reader may take no byte of written data.
    pub write_timeout: Duration,
    /// Whether a connection may carry more than one request.
    pub keep_alive: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 64 * 1024,
            head_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            keep_alive: true,
        }
    }
}

/// Answers the requests of a connection until its peer closes it or a limit does. The connection
/// waits ([`ConnectionPermit::waits`]) between two requests.
pub async fn serve<S, B, F>(
    stream: S,
    permit: &Arc<ConnectionPermit>,
    limits: Limits,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<B>>,
    B: Body + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(|request| {
        permit.serves();
        let answer = answer(request);
        let permit = limits.keep_alive.then(|| permit.clone());
        async move { Ok::<_, Infallible>(answer.await.map(|body| Served { body, permit })) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head_bytes)
        .keep_alive(limits.keep_alive)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream, limits.write_timeout)), service);
    // Errors of one peer do not concern others.
    let _ = connection.await;
}

/// A body. When it is dropped, sent or not, its connection waits for the next request.
struct Served<B> {
    body: B,
    /// None if no further request comes.
    permit: Option<Arc<ConnectionPermit>>,
}

impl<B: Body + Unpin> Body for Served<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Served<B> {
    fn drop(&mut self) {
        if let Some(permit) = &self.permit {
            permit.waits();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;
    use corona_net::connections::{Connections, Refused};

    /// Less than any answer takes.
    const BUFFER_BYTES: usize = 32;

    /// A connection of a peer whose requests are answered with their path.
    fn connect(
        connections: &Arc<Connections>,
        peer: &str,
        limits: Limits,
    ) -> Result<DuplexStream, Refused> {
        let permit = Arc::new(connections.admit(peer.parse().unwrap())?);
        permit.waits();
        let (near, far) = duplex(BUFFER_BYTES);
        tokio::spawn(async move {
            let answer = |request: Request<Incoming>| {
                let path = request.uri().path().to_owned();
                async move { Response::new(path) }
            };
            tokio::select! {
                () = serve(near, &permit, limits, answer) => {}
                () = permit.closed() => {}
            }
        });
        Ok(far)
    }

    async fn ask(stream: &mut DuplexStream, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(format!("\r\n\r\n{path}").as_bytes()) {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{answer:?}");
        }
        String::from_utf8(answer).unwrap()
    }

    /// When the server has closed the connection.
    async fn closed(mut stream: DuplexStream) -> Duration {
        let begun = Instant::now();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_carries_as_many_requests_as_its_limits_allow() {
        let connections = Connections::new(2, 2);
        let mut kept = connect(&connections, "10.0.0.1", Limits::default()).unwrap();
        for path in ["/a", "/b"] {
            assert!(ask(&mut kept, path).await.starts_with("HTTP/1.1 200 OK"));
        }
        let once = Limits { keep_alive: false, ..Limits::default() };
        let mut once = connect(&connections, "10.0.0.1", once).unwrap();
        assert!(ask(&mut once, "/a").await.contains("connection: close"));
        assert_eq!(closed(once).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn heads_that_are_slow_or_long_end_their_connection_and_no_other() {
        let connections = Connections::new(10, 10);
        let limits = Limits { head_bytes: 8192, ..Limits::default() };
        let connect = |peer| connect(&connections, peer, limits).unwrap();
        let (silent, mut slow, long) =
            (connect("10.0.0.1"), connect("10.0.0.1"), connect("10.0.0.1"));
        slow.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
        let head = format!("GET /{} HTTP/1.1\r\n", "x".repeat(9000));
        let (mut answers, mut requests) = tokio::io::split(long);
        tokio::spawn(async move { requests.write_all(head.as_bytes()).await });
        let mut innocent = connect("10.0.0.2");
        ask(&mut innocent, "/page").await;
        let (begun, mut answer) = (Instant::now(), String::new());
        answers.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 ") && begun.elapsed().is_zero(), "{answer}");
        assert_eq!(closed(slow).await, limits.head_timeout);
        assert_eq!(closed(silent).await, Duration::ZERO, "it was closed at the same time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_ends() {
        let connections = Connections::new(2, 1);
        let limits = Limits { write_timeout: Duration::from_secs(10), ..Limits::default() };
        let mut stuck = connect(&connections, "10.0.0.1", limits).unwrap();
        let begun = Instant::now();
        stuck.write_all(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut innocent = connect(&connections, "10.0.0.2", limits).unwrap();
        ask(&mut innocent, "/page").await;
        assert_eq!(connections.open(), 2);
        while connections.open() > 1 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let took = begun.elapsed();
        assert!((limits.write_timeout..limits.head_timeout).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_gives_way_to_another_peer() {
        let connections = Connections::new(1, 1);
        let idle = connect(&connections, "10.0.0.1", Limits::default()).unwrap();
        let mut innocent = connect(&connections, "10.0.0.2", Limits::default()).unwrap();
        ask(&mut innocent, "/page").await;
        assert_eq!(closed(idle).await, Duration::ZERO);
    }
}
