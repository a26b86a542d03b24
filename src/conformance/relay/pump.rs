//! Moves bytes between the two ends of a connection, both ways, as they come.
//!
//! It knows nothing of messages. One piece of each direction is held at a time: a slow reader slows
//! down only the peer that writes to it. Half closes and resets are forwarded.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corona_access::{NO_TLS, is_tls};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::feed::Taps;
use crate::capture::Side;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// How long a connection may be silent before the system asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Changes the data of one direction.
pub(super) trait Transform: Send {
    /// Takes the bytes read and appends the bytes to send.
    fn pass(&mut self, read: &[u8], send: &mut Vec<u8>);
    /// Appends the bytes still held at the end.
    fn finish(&mut self, send: &mut Vec<u8>);
}

/// The transforms of both directions; none where bytes pass as they are.
#[derive(Default)]
pub(super) struct Transforms {
    pub(super) from_client: Option<Box<dyn Transform>>,
    pub(super) from_server: Option<Box<dyn Transform>>,
}

/// Why a relay is of no use between two peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Useless {
    /// The client begins with TLS, in which a relay reads nothing.
    Tls,
    /// The server has closed the connection without a reply, as one does that requires TLS.
    Unanswered,
}

/// How one direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The sender will send no more, and the receiver knows.
    InOrder,
    /// The sender broke the connection off.
    SourceBroken,
    /// The receiver disconnected. It may have sent data before.
    SinkBroken,
}

/// Sets the options of a relayed connection: small pieces are sent at once, and a dead peer is
/// detected.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Has the peer see a reset when the stream is closed.
pub(super) fn break_off(stream: &TcpStream) {
    // The connection may have ended already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Relays until both directions have ended, and closes both streams. Says if it was of no use.
pub(super) async fn relay(
    client: TcpStream,
    server: TcpStream,
    taps: &Taps,
    transforms: Transforms,
) -> Option<Useless> {
    let ends = Ends {
        client,
        server,
        broken: [AtomicBool::new(false), AtomicBool::new(false)],
        sent: [AtomicBool::new(false), AtomicBool::new(false)],
        is_tls: AtomicBool::new(false),
    };
    relay_between(&ends, taps, transforms).await;
    let has_sent = |side| ends.sent(side).load(Ordering::Relaxed);
    match ends.is_tls.load(Ordering::Relaxed) {
        true => Some(Useless::Tls),
        false if has_sent(Side::Client) && !has_sent(Side::Server) => Some(Useless::Unanswered),
        false => None,
    }
}

async fn relay_between(ends: &Ends, taps: &Taps, mut transforms: Transforms) {
    let up = ends.one_way(Side::Client, taps, transforms.from_client.as_deref_mut());
    let down = ends.one_way(Side::Server, taps, transforms.from_server.as_deref_mut());
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    let (first, from) = tokio::select! {
        ended = &mut up => (ended, Side::Client),
        ended = &mut down => (ended, Side::Server),
    };
    if first == Ended::SourceBroken {
        return ends.broken_by(from, taps);
    }
    let other = async {
        match from {
            Side::Client => down.await,
            Side::Server => up.await,
        }
    };
    // A peer that has finished sending may still reset the connection, and is no longer read from.
    let last = tokio::select! {
        biased;
        last = other => last,
        _ = ends.stream(from).ready(Interest::ERROR), if first == Ended::InOrder => {
            return ends.broken_by(from, taps);
        }
    };
    match (first, last) {
        (_, Ended::SourceBroken) => ends.broken_by(from.other(), taps),
        (Ended::SinkBroken, _) => ends.broken_by(from.other(), taps),
        (_, Ended::SinkBroken) => ends.broken_by(from, taps),
        _ => {}
    }
}

struct Ends {
    client: TcpStream,
    server: TcpStream,
    /// Whether sending to the client or the server failed because it had disconnected.
    broken: [AtomicBool; 2],
    /// Whether the client or the server has sent something.
    sent: [AtomicBool; 2],
    /// Whether the client has begun with TLS.
    is_tls: AtomicBool,
}

impl Ends {
    fn stream(&self, side: Side) -> &TcpStream {
        side.of([&self.client, &self.server])
    }

    fn broken(&self, side: Side) -> &AtomicBool {
        side.of(self.broken.each_ref())
    }

    fn sent(&self, side: Side) -> &AtomicBool {
        side.of(self.sent.each_ref())
    }

    fn broken_by(&self, side: Side, taps: &Taps) {
        taps.reset(side);
        break_off(self.stream(side.other()));
    }

    async fn one_way(
        &self,
        from: Side,
        taps: &Taps,
        mut transform: Option<&mut (dyn Transform + 'static)>,
    ) -> Ended {
        let (source, sink) = (self.stream(from), self.stream(from.other()));
        loop {
            let mut piece = match read(source).await {
                Ok(piece) => piece,
                Err(_) => return Ended::SourceBroken,
            };
            let over = piece.is_empty();
            if over && self.broken(from).load(Ordering::Relaxed) {
                return Ended::SourceBroken;
            }
            let is_first = !over && !self.sent(from).swap(true, Ordering::Relaxed);
            if is_first && from == Side::Client && is_tls(&piece) {
                self.is_tls.store(true, Ordering::Relaxed);
                // One that may then calls without.
                let _ = source.try_write(NO_TLS);
                return Ended::SourceBroken;
            }
            piece = keep(piece, over, from, taps, &mut transform);
            match send(&piece, sink, source).await {
                Ok(()) => {}
                Err(Gone::Source) => return Ended::SourceBroken,
                Err(Gone::Sink) => {
                    self.broken(from.other()).store(true, Ordering::Relaxed);
                    return Ended::SinkBroken;
                }
            }
            if over {
                taps.end(from);
                // A disconnected receiver is noticed in the opposite direction.
                let _ = SockRef::from(sink).shutdown(std::net::Shutdown::Write);
                return Ended::InOrder;
            }
        }
    }
}

/// Records the data of the client's side, and returns the bytes to forward.
fn keep(
    piece: Vec<u8>,
    over: bool,
    from: Side,
    taps: &Taps,
    transform: &mut Option<&mut (dyn Transform + 'static)>,
) -> Vec<u8> {
    let Some(transform) = transform else {
        taps.data(from, &piece);
        return piece;
    };
    let mut send = Vec::with_capacity(piece.len());
    transform.pass(&piece, &mut send);
    if over {
        transform.finish(&mut send);
    }
    taps.data(from, if from == Side::Client { &piece } else { &send });
    send
}

/// The bytes that have arrived; none at the end.
async fn read(source: &TcpStream) -> io::Result<Vec<u8>> {
    loop {
        source.readable().await?;
        // Only a connection on which something comes has a buffer.
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        match source.try_read_buf(&mut piece) {
            Ok(_) => return Ok(piece),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Which end has disconnected.
enum Gone {
    Source,
    Sink,
}

/// Sends a whole piece. While the receiver does not read, a reset by the sender is noticed.
async fn send(mut piece: &[u8], sink: &TcpStream, source: &TcpStream) -> Result<(), Gone> {
    while !piece.is_empty() {
        match sink.try_write(piece) {
            Ok(size) => piece = piece.get(size..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                biased;
                writable = sink.writable() => writable.map_err(|_| Gone::Sink)?,
                _ = source.ready(Interest::ERROR) => return Err(Gone::Source),
            },
            Err(_) => return Err(Gone::Sink),
        }
    }
    Ok(())
}
