//! The client's side of one connection: a call out, its reply in.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::call::{Call, PING};
use super::client::{CallError, ClientOptions};
use super::header::ConnectionHeader;
use super::reply::Reply;
use crate::io::formats::Writable;
use crate::io::{DecodeError, Reader, TooLarge, Writer};
use crate::writables::InetAddress;
use corona_access::{Stream, dial, send};

/// An open connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: Stream,
    /// Received bytes of a reply.
    inbox: BytesMut,
    /// Bytes to send before the first call; sent with it, as the original does.
    preamble: Vec<u8>,
    last_used: Instant,
}

/// Room for received bytes, in one step.
const READ_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;

impl Link {
    /// Connects. All addresses of a host are tried in turn.
    pub(super) async fn open(
        address: &InetAddress,
        protocol: &str,
        options: &ClientOptions,
    ) -> io::Result<Link> {
        let user = Some(options.user.clone());
        let header = ConnectionHeader { protocol: protocol.to_owned(), user };
        let preamble = header.preamble(options.max_call_bytes);
        let preamble =
            preamble.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        let stream = dial(protocol, stream).await?;
        Ok(Link { stream, inbox: BytesMut::new(), preamble, last_used: Instant::now() })
    }

    /// Whether another call can be sent: the connection was not idle for too long, the peer has not
    /// closed it, and nothing unsolicited has arrived.
    pub(super) fn is_usable(&mut self, max_idle: Duration) -> bool {
        self.stream.is_quiet() && self.inbox.is_empty() && self.last_used.elapsed() <= max_idle
    }

    /// Sends a call and waits for a reply. After an error, or a future dropped before its end, the
    /// connection is of no use.
    pub(super) async fn exchange(
        &mut self,
        call: &Call,
        options: &ClientOptions,
    ) -> Result<Reply, CallError> {
        let mut writer = Writer::new(options.max_call_bytes);
        call.encode(&mut writer);
        let call = writer.finish().map_err(CallError::CallTooLarge)?;
        let mut bytes = std::mem::take(&mut self.preamble);
        let length = i32::try_from(call.len()).unwrap_or(i32::MAX);
        bytes.extend(length.to_be_bytes());
        bytes.extend(call);
        self.write(&bytes, options.ping_interval).await?;
        let reply = self.receive(options).await?;
        self.last_used = Instant::now();
        Ok(reply)
    }

    /// Writes, but not for longer than a peer may be silent.
    async fn write(&mut self, bytes: &[u8], due: Duration) -> Result<(), CallError> {
        let written = timeout(due, send(&mut self.stream, bytes)).await;
        Ok(written.map_err(|_| CallError::Timeout(due))??)
    }

    /// Reads until there is a reply. It has no length, so decoding is tried with the bytes
    /// received; it is not tried after every piece, or the cost would grow with the square of the
    /// length.
    async fn receive(&mut self, options: &ClientOptions) -> Result<Reply, CallError> {
        let mut tried_bytes = 0;
        loop {
            // The bytes received during a wait may have completed it.
            if self.inbox.len() == tried_bytes {
                self.read_on(options).await?;
            }
            tried_bytes = self.inbox.len();
            let mut reader = Reader::partial(&self.inbox, options.max_reply_bytes);
            match Reply::decode(&mut reader) {
                Ok(reply) => {
                    let read = reader.position();
                    self.inbox.advance(read);
                    return Ok(reply);
                }
                Err(DecodeError::Truncated) if tried_bytes >= options.max_reply_bytes => {
                    let max_bytes = options.max_reply_bytes;
                    return Err(CallError::ReplyTooLarge(TooLarge { max_bytes }));
                }
                Err(DecodeError::Truncated) => {}
                Err(error) => return Err(error.into()),
            }
            // Trying takes some nanoseconds a byte: this keeps it to a small part of the time.
            let again = Instant::now()
                + Duration::from_nanos(50) * u32::try_from(tried_bytes).unwrap_or(u32::MAX);
            while self.inbox.len() < 2 * tried_bytes {
                match timeout_at(again, self.read()).await {
                    Ok(read) => read?,
                    Err(_) => break,
                }
            }
        }
    }

    /// Waits for some bytes, with signs of life meanwhile.
    async fn read_on(&mut self, options: &ClientOptions) -> Result<(), CallError> {
        loop {
            match timeout(options.ping_interval, self.read()).await {
                Ok(read) => return read,
                Err(_) => self.write(&PING.to_be_bytes(), options.ping_interval).await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), CallError> {
        let room = self.inbox.len().clamp(*READ_BYTES.start(), *READ_BYTES.end());
        self.inbox.reserve(room);
        match self.stream.read_buf(&mut self.inbox).await? {
            0 => Err(CallError::Closed),
            _ => Ok(()),
        }
    }
}
