//! The accept loop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use corona_access::{Gate, Peer, Stream};

use super::{Backoff, Counters};

/// A listener that rests after failures that would repeat at once, such as a lack of file
/// descriptors.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    /// Connections that others have accepted.
    handed: Option<mpsc::Receiver<(TcpStream, SocketAddr)>>,
    pause: Backoff,
    /// When to accept again after a failure.
    resume: Option<Instant>,
}

/// A connection that could not be accepted.
#[derive(Debug)]
pub struct Failure {
    /// The system's error.
    pub error: io::Error,
    /// Whether the next attempt is likely to fail as well. The acceptor pauses before it.
    pub lasts: bool,
}

impl Acceptor {
    /// Accepts from this listener, which is closed when the acceptor is dropped.
    pub fn new(listener: TcpListener) -> Acceptor {
        Acceptor { listener, handed: None, pause: PAUSES, resume: None }
    }

    /// Takes connections that others have accepted as well, each with the address of its peer.
    pub fn with_handed(self, handed: mpsc::Receiver<(TcpStream, SocketAddr)>) -> Acceptor {
        Acceptor { handed: Some(handed), ..self }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection. Failures until then go to `failed`. Dropping the future loses nothing,
    /// and does not shorten a pause.
    pub async fn next(&mut self, mut failed: impl FnMut(Failure)) -> (TcpStream, SocketAddr) {
        loop {
            if let Some(resume) = self.resume {
                sleep_until(resume).await;
                self.resume = None;
            }
            let accepted = match &mut self.handed {
                None => self.listener.accept().await,
                Some(handed) => tokio::select! {
                    accepted = self.listener.accept() => accepted,
                    connection = handed.recv() => match connection {
                        Some(connection) => return connection,
                        None => {
                            self.handed = None;
                            continue;
                        }
                    },
                },
            };
            match accepted {
                Ok(accepted) => {
                    self.pause.reset();
                    return accepted;
                }
                Err(error) => {
                    let lasts = !concerns_one_connection(&error);
                    if lasts {
                        self.resume = Some(Instant::now() + self.pause.pause());
                    }
                    failed(Failure { error, lasts });
                }
            }
        }
    }
}

impl From<TcpListener> for Acceptor {
    fn from(listener: TcpListener) -> Acceptor {
        Acceptor::new(listener)
    }
}

/// Accepts connections until `stop` becomes true or its sender is dropped, and runs `serve` for
/// each as a task, at most `max_connections` at once. Further connections are closed at once.
/// Refusals and failures are counted; `service` names the server in the log. Connections that the
/// gate does not admit are closed.
///
/// Then the listener is closed. Returns the connections that are still served.
pub async fn accept_until_stopped<F>(
    listener: impl Into<Acceptor>,
    stop: watch::Receiver<bool>,
    max_connections: usize,
    counters: &Counters,
    service: &str,
    gate: &Arc<Gate>,
    serve: impl Fn(Stream, Peer) -> F + Clone + Send + 'static,
) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let connections = JoinSet::new();
    accept_beside(connections, listener, stop, max_connections, counters, service, gate, serve)
        .await
}

/// The same beside connections that are served already, which count among the others.
#[allow(clippy::too_many_arguments, reason = "it is what accept_until_stopped takes, and one more")]
pub async fn accept_beside<F>(
    mut connections: JoinSet<()>,
    listener: impl Into<Acceptor>,
    mut stop: watch::Receiver<bool>,
    max_connections: usize,
    counters: &Counters,
    service: &str,
    gate: &Arc<Gate>,
    serve: impl Fn(Stream, Peer) -> F + Clone + Send + 'static,
) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut acceptor = listener.into();
    let failed = |Failure { error, lasts }| {
        counters.count_accept_error();
        if lasts {
            tracing::error!(%error, service, "cannot accept connections");
        }
    };
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return connections,
            Some(_) = connections.join_next() => continue,
            accepted = acceptor.next(failed) => accepted,
        };
        if connections.len() >= max_connections {
            counters.count_refused();
        } else if gate.is_off() {
            connections.spawn(serve(stream.into(), Peer::plain(peer)));
        } else {
            let (gate, serve) = (gate.clone(), serve.clone());
            connections.spawn(async move {
                // Its state is large, and of no use once the peer is in.
                let admitted = Box::pin(gate.admit(stream, peer, false)).await;
                if let Ok((stream, peer)) = admitted {
                    serve(stream, peer).await;
                }
            });
        }
    }
}

/// The pauses after failures to accept that would repeat at once.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));

/// Whether the next attempt to accept may succeed.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};

    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_accept_are_told_apart() {
        // ECONNABORTED is about a peer that has disconnected; EMFILE and ENFILE last.
        for (number, one) in [(103, true), (24, false), (23, false)] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(concerns_one_connection(&error), one, "{error}");
        }
        let pauses: Vec<_> = PAUSES.take(10).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[tokio::test]
    async fn a_pause_lasts_however_often_the_wait_is_dropped() {
        const PAUSE: Duration = Duration::from_millis(200);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut acceptor = Acceptor::new(listener);
        let started = Instant::now();
        acceptor.resume = Some(started + PAUSE);
        let (mut accepted, mut dropped) = (false, 0);
        while !accepted {
            tokio::select! {
                _ = acceptor.next(|failure| panic!("{failure:?}")) => accepted = true,
                () = tokio::time::sleep(PAUSE / 20) => dropped += 1,
            }
        }
        assert!(started.elapsed() >= PAUSE && dropped > 0, "{:?} {dropped}", started.elapsed());
        assert_eq!((acceptor.resume, acceptor.pause), (None, PAUSES));
    }
}
