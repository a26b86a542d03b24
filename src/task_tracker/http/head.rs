//! The head of a request, read before it is known which part answers it.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use corona_access::Stream;

/// Reads the head, and the bytes that came with it.
///
/// Errors: the stream ends first, or the head is longer than it may be.
pub(super) async fn read(stream: &mut Stream, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let looked_at = head.len().saturating_sub(3);
        let room = max_bytes.saturating_sub(head.len()) as u64;
        if (&mut *stream).take(room).read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let new = head.get(looked_at..).unwrap_or_default();
        if new.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(head);
        }
    }
}

/// The query of a request for map output; `None` when it is another one.
pub(super) fn shuffle_query(head: &[u8]) -> Option<String> {
    let rest = head.strip_prefix(b"GET /mapOutput")?;
    let line = rest.split(|byte| *byte == b'\r').next()?;
    let (query, version) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let query = if query.is_empty() { query } else { query.strip_prefix('?')? };
    version.starts_with("HTTP/1.").then(|| query.to_owned())
}

/// The values of the `Host` headers.
pub(super) fn hosts(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    lines.filter_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        name.eq_ignore_ascii_case(b"host").then(|| value.get(1..).unwrap_or_default().trim_ascii())
    })
}

/// A connection with bytes that were read and must be read again.
#[derive(Debug)]
pub(super) struct Reread {
    read: Cursor<Vec<u8>>,
    stream: Stream,
}

impl Reread {
    pub(super) fn new(read: Vec<u8>, stream: Stream) -> Self {
        Reread { read: Cursor::new(read), stream }
    }
}

impl AsyncRead for Reread {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let at = usize::try_from(self.read.position()).unwrap_or(usize::MAX);
        let left = self.read.get_ref().get(at..).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = left.len().min(buffer.remaining());
        buffer.put_slice(left.get(..length).unwrap_or_default());
        self.read.set_position((at + length) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Reread {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_map_output() {
        let cases = [
            ("GET /mapOutput?a=1&b=2 HTTP/1.1\r\nHost: x\r\n\r\n", Some("a=1&b=2")),
            ("GET /mapOutput? HTTP/1.0\r\n\r\n", Some("")),
            ("GET /mapOutput HTTP/1.1\r\n\r\n", Some("")),
            ("GET /mapOutputs HTTP/1.1\r\n\r\n", None),
            ("GET /mapOutput?a b HTTP/1.1\r\n\r\n", None),
            ("POST /mapOutput?a=1 HTTP/1.1\r\n\r\n", None),
            ("GET /mapOutput?a=1\r\n\r\n", None),
            ("GET /tasklog?a=1 HTTP/1.1\r\n\r\n", None),
            ("", None),
        ];
        for (head, expected) in cases {
            assert_eq!(shuffle_query(head.as_bytes()).as_deref(), expected, "{head:?}");
        }
    }

    #[test]
    fn names_of_the_host() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nA: b\r\nhost:x:1\r\nC: d\r\n\r\n", &["x:1"][..]),
            ("GET / HTTP/1.1\r\nHOST: x \r\nHost: y\r\n\r\n", &["x", "y"]),
            ("Host: x\r\nA: Host: y\r\nHosts: z\r\n\r\n", &[]),
            ("", &[]),
        ] {
            let found: Vec<&[u8]> = hosts(head.as_bytes()).collect();
            assert_eq!(found, expected.iter().map(|host| host.as_bytes()).collect::<Vec<_>>());
        }
    }
}
