//! A recorded client's connection to the cluster manager under test.
//!
//! Sends what it is told and keeps what arrives. Knows no order of things.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;

use crate::wire::Service;
use crate::wire::calls::ClusterManager;
use crate::wire::value::{Message, StreamReader};

/// An open connection, and the calls on it that wait for an answer.
#[derive(Debug)]
pub(super) struct Line {
    writer: OwnedWriteHalf,
    arrivals: Receiver<Arrival>,
    reader: JoinHandle<()>,
    /// Recorded calls that are not answered yet, the oldest first.
    pub(super) unanswered: VecDeque<Message>,
    /// Whether the other side is known to have ended it.
    pub(super) is_dead: bool,
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
        Ok(Line { writer, arrivals, reader, unanswered: VecDeque::new(), is_dead: false })
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await
    }

    /// What comes next.
    pub(super) async fn next(&mut self) -> Arrival {
        let arrival = self.arrivals.recv().await.unwrap_or(Arrival::Closed);
        self.is_dead |= !matches!(arrival, Arrival::Message(_));
        arrival
    }

    /// Ends the connection as its client did. What is still sent to it can be read.
    pub(super) async fn hang_up(&mut self, broken: bool) {
        if broken {
            let socket = socket2::SockRef::from(self.writer.as_ref());
            // A socket that is gone already needs no breaking.
            let _ = socket.set_linger(Some(std::time::Duration::ZERO));
            self.reader.abort();
        } else {
            let _ = self.writer.shutdown().await;
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
