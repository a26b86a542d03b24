//! A recorded client's connection to the cluster manager under test.
//!
//! A connection of the replay: it sends given bytes and keeps what arrives. It knows no order of
//! events.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;

use corona_wire::Service;
use corona_wire::calls::ClusterManager;
use corona_wire::value::{Message, StreamReader};

/// An open connection, and the calls on it that wait for an answer.
#[derive(Debug)]
pub(super) struct Line {
    /// None once the connection is broken off.
    writer: Option<OwnedWriteHalf>,
    arrivals: Receiver<Arrival>,
    reader: JoinHandle<()>,
    /// Recorded calls that are not answered yet, the oldest first.
    pub(super) unanswered: VecDeque<Message>,
    /// Whether the other side is known to have ended it.
    pub(super) is_dead: bool,
    /// Whether this side has ended it.
    has_hung_up: bool,
}

/// What comes from the cluster manager.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message.
    Message(Box<Message>),
    /// Something that is no message; nothing is read after it.
    Nonsense(String),
    /// The end of the connection.
    Closed,
}

/// More arrivals than this wait at the peer.
const WAITING_ARRIVALS: usize = 1_024;
const MAX_ANSWER_BYTES: usize = 64 << 20;

impl Line {
    pub(super) async fn open(target: SocketAddr) -> io::Result<Line> {
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let (sender, arrivals) = mpsc::channel(WAITING_ARRIVALS);
        let reader = tokio::spawn(read(reader, sender));
        Ok(Line {
            writer: Some(writer),
            arrivals,
            reader,
            unanswered: VecDeque::new(),
            is_dead: false,
            has_hung_up: false,
        })
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.writer {
            Some(writer) => writer.write_all(bytes).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What comes next.
    pub(super) async fn next(&mut self) -> Arrival {
        let arrival = self.arrivals.recv().await.unwrap_or(Arrival::Closed);
        self.is_dead |= !matches!(arrival, Arrival::Message(_));
        arrival
    }

    /// An unsolicited arrival: a message, or the end of a connection that neither side should have
    /// ended.
    pub(super) fn surplus(&mut self) -> Option<Arrival> {
        let arrival = self.arrivals.try_recv().ok()?;
        let is_due = self.is_dead || self.has_hung_up;
        (!is_due || matches!(arrival, Arrival::Message(_))).then_some(arrival)
    }

    /// Ends the connection as its client did. Unless it is `broken` off, what is still sent to it
    /// can be read.
    pub(super) async fn hang_up(&mut self, broken: bool) {
        self.has_hung_up = true;
        if broken {
            let Some(writer) = self.writer.take() else { return };
            let socket = socket2::SockRef::from(writer.as_ref());
            // The socket may have been closed already.
            let _ = socket.set_linger(Some(Duration::ZERO));
            // Else it would say goodbye first.
            writer.forget();
            self.reader.abort();
        } else if let Some(writer) = &mut self.writer {
            let _ = writer.shutdown().await;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(mut stream: OwnedReadHalf, sender: Sender<Arrival>) {
    let mut messages =
        StreamReader::new(ClusterManager::schema(), ClusterManager::FRAMING, MAX_ANSWER_BYTES);
    let mut buffer = vec![0; 16 << 10];
    loop {
        match messages.next_message() {
            Ok(Some(message)) => {
                if sender.send(Arrival::Message(Box::new(message))).await.is_err() {
                    return;
                }
                continue;
            }
            Ok(None) => {}
            Err(malformed) => {
                // Nobody listens any more when the replay has ended.
                let _ = sender.send(Arrival::Nonsense(malformed.to_string())).await;
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => {
                let _ = sender.send(Arrival::Closed).await;
                return;
            }
            Ok(size) => messages.push(buffer.get(..size).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What the other side of a connection sees when this one hangs up.
    async fn seen(broken: bool) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut line = Line::open(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        line.send(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        line.hang_up(broken).await;
        stream.read(&mut [0; 8]).await
    }

    #[tokio::test]
    async fn both_ways_to_hang_up_are_kept_apart() {
        assert_eq!(seen(false).await.unwrap(), 0);
        assert_eq!(seen(true).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
