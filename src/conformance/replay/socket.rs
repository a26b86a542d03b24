//! The socket of a recorded client, connected to the cluster manager under test.
//!
//! It sends given bytes and queues the messages that arrive. It knows no order of events.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;

use super::world::Arrival;
use corona_wire::Service;
use corona_wire::calls::ClusterManager;
use corona_wire::value::StreamReader;

/// An open connection.
#[derive(Debug)]
pub(super) struct ClientSocket {
    /// None after a reset.
    writer: Option<OwnedWriteHalf>,
    arrivals: Receiver<Arrival>,
    reader: JoinHandle<()>,
}

/// Messages that are queued here. The others wait at the peer.
const WAITING_ARRIVALS: usize = 1_024;
const MAX_ANSWER_BYTES: usize = 64 << 20;

impl ClientSocket {
    pub(super) async fn connect(target: SocketAddr) -> io::Result<ClientSocket> {
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let (sender, arrivals) = mpsc::channel(WAITING_ARRIVALS);
        let reader = tokio::spawn(read(reader, sender));
        Ok(ClientSocket { writer: Some(writer), arrivals, reader })
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.writer {
            Some(writer) => writer.write_all(bytes).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The next arrival.
    pub(super) async fn arrival(&mut self) -> Arrival {
        self.arrivals.recv().await.unwrap_or(Arrival::Closed)
    }

    /// An arrival that is queued already.
    pub(super) fn present_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.try_recv().ok()
    }

    /// Ends the connection as its client did: with a reset if it is `broken`. Otherwise messages that are
    /// still in flight can be read.
    pub(super) async fn hang_up(&mut self, broken: bool) {
        if broken {
            let Some(writer) = self.writer.take() else { return };
            let socket = socket2::SockRef::from(writer.as_ref());
            // The socket may have been closed already.
            let _ = socket.set_linger(Some(Duration::ZERO));
            // Dropping it would shut the connection down in order first.
            writer.forget();
            self.reader.abort();
        } else if let Some(writer) = &mut self.writer {
            let _ = writer.shutdown().await;
        }
    }
}

impl Drop for ClientSocket {
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
                // The receiver has been dropped if the replay has ended.
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

    /// The result of the server's read when the client hangs up.
    async fn seen(broken: bool) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut socket = ClientSocket::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        socket.send(b"x").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'x');
        socket.hang_up(broken).await;
        stream.read(&mut [0; 8]).await
    }

    #[tokio::test]
    async fn both_ways_to_hang_up_are_kept_apart() {
        assert_eq!(seen(false).await.unwrap(), 0);
        assert_eq!(seen(true).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
}
