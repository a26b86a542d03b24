//! Copies the bytes of a connection to another one, and back, until both have ended. A connection on
//! which nothing comes has no buffer.

use std::io;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::TcpStream;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Relays between two connections until both directions have ended. When one peer closes its half,
/// the other sees the end and may still send.
///
/// # Errors
/// One of them failed.
pub async fn relay(one: &TcpStream, other: &TcpStream) -> io::Result<()> {
    let (there, back) = (copy(one, other), copy(other, one));
    tokio::try_join!(there, back).map(|_| ())
}

async fn copy(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    loop {
        from.readable().await?;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match from.try_read_buf(&mut piece) {
            Ok(0) => return socket2::SockRef::from(to).shutdown(std::net::Shutdown::Write),
            Ok(_) => write(to, &piece).await?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the peer has closed its half of a connection, even if bytes that it sent before are still to
/// be read.
pub fn has_closed(peer: &TcpStream) -> bool {
    let mut polled = [PollFd::new(peer, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
        && polled.iter().any(|polled| polled.revents().intersects(ended))
}

/// Writes all bytes to a connection.
///
/// # Errors
/// The connection failed.
pub async fn write(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn bytes_pass_in_both_directions_until_both_ends_have_closed() {
        let ((mut client, a), (b, mut server)) = (pair().await, pair().await);
        let relaying = tokio::spawn(async move { relay(&a, &b).await });
        let long = vec![7; 1 << 20];
        let sent = long.clone();
        let sending = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut reply = Vec::new();
            client.read_to_end(&mut reply).await.unwrap();
            reply
        });
        let mut arrived = Vec::new();
        server.read_to_end(&mut arrived).await.unwrap();
        assert_eq!(arrived, long);
        server.write_all(b"reply").await.unwrap();
        drop(server);
        assert_eq!(sending.await.unwrap(), b"reply");
        relaying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_has_closed_is_noticed_behind_unread_bytes() {
        let (mut client, server) = pair().await;
        client.write_all(b"unread").await.unwrap();
        server.readable().await.unwrap();
        assert!(!has_closed(&server));
        client.shutdown().await.unwrap();
        while !has_closed(&server) {
            tokio::task::yield_now().await;
        }
        let mut piece = [0; 6];
        assert_eq!(server.try_read(&mut piece).unwrap(), 6);
    }
}
