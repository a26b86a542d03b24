//! The loop that accepts connections, for every server of this crate whose connections are counted.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::limits::Counters;

/// Accepts connections until `stop` becomes true or its sender is gone, and has `serve` serve each
/// on a task of its own, `max_connections` of them at once. One more is closed at once. What is
/// refused or fails is counted; `service` says in the log whose connections they are.
///
/// Then nobody listens any more. Gives the connections that are still served.
pub async fn accept_until_stopped<F>(
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
    max_connections: usize,
    counters: &Counters,
    service: &str,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut pause = Duration::ZERO;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return connections,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                pause = Duration::ZERO;
                if connections.len() >= max_connections {
                    counters.count_refused();
                    continue;
                }
                connections.spawn(serve(stream, peer));
            }
            Err(error) if concerns_one_connection(&error) => counters.count_accept_error(),
            Err(error) => {
                counters.count_accept_error();
                pause = longer(pause);
                tracing::error!(%error, service, "cannot accept connections");
                let _ = timeout(pause, stop.wait_for(|stop| *stop)).await;
            }
        }
    }
}

/// The pause after another failure to accept that would repeat at once, such as a lack of file
/// descriptors: 5 ms, then twice as long each time, at most a second.
fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(Duration::from_millis(5), Duration::from_secs(1))
}

/// Whether the next attempt to accept may go well.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};

    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_accept_are_told_apart() {
        // ECONNABORTED is about a peer that has gone; EMFILE and ENFILE last.
        for (number, one) in [(103, true), (24, false), (23, false)] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(concerns_one_connection(&error), one, "{error}");
        }
        let pauses =
            std::iter::successors(Some(longer(Duration::ZERO)), |last| Some(longer(*last)));
        let pauses: Vec<_> = pauses.take(10).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
