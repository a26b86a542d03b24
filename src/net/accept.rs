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

use super::connections::Connections;
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
/// each as a task, at most `max_connections` at once with those that are served already,
/// `connections`. Further connections are closed at once. Those that the gate still looks at do not
/// count. Refusals and failures are counted; `service` names the server in the log. Connections
/// that the gate does not admit are closed.
///
/// Then the listener is closed. Returns the connections that are still served.
#[allow(clippy::too_many_arguments, reason = "each is another part of a server")]
pub async fn accept_until_stopped<F>(
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
    // They are no members yet, and take no places of members.
    let entering = Connections::new(MAX_ENTERING, MAX_ENTERING);
    let mut entrances: JoinSet<Option<(Stream, Peer)>> = JoinSet::new();
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
            Some(entered) = entrances.join_next() => {
                match entered {
                    Ok(Some(_)) if connections.len() >= max_connections => counters.count_refused(),
                    Ok(Some((stream, peer))) => drop(connections.spawn(serve(stream, peer))),
                    Ok(None) | Err(_) => {}
                }
                continue;
            }
            accepted = acceptor.next(failed) => accepted,
        };
        if gate.is_off() {
            match connections.len() >= max_connections {
                true => counters.count_refused(),
                false => drop(connections.spawn(serve(stream.into(), Peer::plain(peer)))),
            }
            continue;
        }
        let Ok(permit) = entering.admit(peer.ip()) else {
            counters.count_refused();
            continue;
        };
        permit.waits();
        let gate = gate.clone();
        entrances.spawn(async move {
            tokio::select! {
                // Its state is large, and of no use once the peer is in.
                admitted = Box::pin(gate.admit(stream, peer, false)) => admitted.ok(),
                () = permit.closed() => None,
            }
        });
    }
}

/// Connections of a server that the gate has not let in yet. When there are more, the oldest one of the peer with the
/// most is closed: a handshake takes moments, and the next attempt comes by itself.
const MAX_ENTERING: usize = 1024;

/// The pauses after failures to accept that would repeat at once.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));

/// Whether the next attempt to accept may succeed.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};

    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use corona_access::{Authority, Identity, Role, TlsMode, TlsSettings};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
    async fn strangers_that_the_gate_still_looks_at_take_no_places_of_members() {
        const PLACES: usize = 2;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let now = std::time::SystemTime::now();
        let authority = Authority::create(&path("ca"), now).unwrap();
        let member = Identity::own(&path("own"), &authority, "head", ("localhost", 1), &[], now);
        let member = Arc::new(member.unwrap());
        let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
        let gate = Gate::new(settings, Some(member.clone()), None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            let serve = |mut stream: Stream, _| async move {
                let _ = stream.write_all(b"served").await;
                let _ = stream.flush().await;
                // Until its peer has left.
                let _ = stream.read(&mut [0]).await;
            };
            let counters = Counters::default();
            let none = JoinSet::new();
            accept_until_stopped(none, listener, stopped, PLACES, &counters, "test", &gate, serve)
                .await;
        });
        let mut strangers = vec![];
        for _ in 0..10 * PLACES {
            let mut stranger = TcpStream::connect(address).await.unwrap();
            // Silent, or within an endless handshake.
            if strangers.len() % 2 == 0 {
                stranger.write_all(&[0x16]).await.unwrap();
            }
            strangers.push(stranger);
        }
        let mut members = vec![];
        for place in 0..=PLACES {
            let stream = TcpStream::connect(address).await.unwrap();
            let mut stream = member.connect(stream, &[Role::Admin]).await.unwrap();
            let mut reply = [0; 6];
            let read = stream.read_exact(&mut reply).await;
            assert_eq!(read.is_ok(), place < PLACES, "{read:?}");
            members.push(stream);
        }
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
