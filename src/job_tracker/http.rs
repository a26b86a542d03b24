//! One HTTP request at a time, with bounds: for notices of the ends of jobs and for pages of the cluster.

use std::io;
use std::time::Duration;

use corona_access::Stream;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For one request, from the look-up of the host to the last byte of the reply.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest head of a reply, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// What is requested, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Target {
    /// A path of a server.
    pub(crate) fn new(host: &str, port: u16, path: &str) -> Target {
        let authority = format!("{host}:{port}");
        Target { authority, host: host.to_owned(), port, path: path.to_owned() }
    }

    /// What a URL names; none if it is not one of `http`.
    pub(crate) fn parse(url: &str) -> Option<Target> {
        let rest = url.strip_prefix("http://")?;
        if url.contains(|c: char| c.is_control() || c == ' ') {
            return None;
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        (!host.is_empty()).then(|| Target {
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path,
        })
    }
}

/// Fetches from a daemon of the cluster; the status of the reply and its body.
pub(crate) async fn get(target: &Target, most_bytes: usize) -> io::Result<(u16, Vec<u8>)> {
    let fetching = async {
        let stream =
            corona_access::dial(corona_access::rights::HTTP, connect(target).await?).await?;
        exchange(stream, target, most_bytes).await
    };
    in_time(fetching).await
}

/// Fetches from an address that a user names, which gets nothing of the cluster's access; the status of the
/// reply.
pub(crate) async fn get_outside(target: &Target) -> io::Result<u16> {
    let fetching = async { exchange(connect(target).await?.into(), target, 0).await };
    Ok(in_time(fetching).await?.0)
}

async fn in_time<T>(fetching: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let due = timeout(TIMEOUT, fetching).await;
    due.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no reply in time")))
}

async fn connect(target: &Target) -> io::Result<TcpStream> {
    TcpStream::connect((target.host.as_str(), target.port)).await
}

/// With `most_bytes` 0 the body is not read.
async fn exchange(
    mut stream: Stream,
    target: &Target,
    most_bytes: usize,
) -> io::Result<(u16, Vec<u8>)> {
    let Target { authority, path, .. } = target;
    // Version 1.0, so that the body ends with the connection.
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {authority}\r\nUser-Agent: corona\r\nConnection: close\r\n\r\n"
    );
    corona_access::send(&mut stream, request.as_bytes()).await?;
    let mut reply = Vec::new();
    loop {
        if let Some((code, body)) = head(&reply) {
            if most_bytes == 0 {
                return Ok((code, Vec::new()));
            }
            let mut body = reply.split_off(body);
            while body.len() <= most_bytes {
                if stream.read_buf(&mut body).await? == 0 {
                    return Ok((code, body));
                }
            }
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply is too long"));
        }
        if reply.len() > MAX_HEAD || stream.read_buf(&mut reply).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not an HTTP reply"));
        }
    }
}

/// The status of a reply and where its body begins, once its head is there.
fn head(reply: &[u8]) -> Option<(u16, usize)> {
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n")?;
    let line = String::from_utf8_lossy(reply.get(..end)?);
    let code = line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((code.get(..3)?.parse().ok()?, end + 4))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_http_addresses_are_fetched() {
        let target = Target::parse("http://host:81/a?b=c").unwrap();
        assert_eq!((&*target.host, target.port, &*target.path), ("host", 81, "/a?b=c"));
        let bare = Target::parse("http://host?x").unwrap();
        assert_eq!((bare.port, &*bare.path), (80, "/?x"));
        for url in [
            "",
            "https://host/",
            "file:///etc/passwd",
            "http://",
            "http://h/\r\nX: y",
            "http://h:x/",
        ] {
            assert_eq!(Target::parse(url), None, "{url:?}");
        }
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Target::new("127.0.0.1", port, "/");
        for (reply, most, expected) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", 100, Some((200, "body"))),
            ("HTTP/1.1 404 No\r\n\r\n", 100, Some((404, ""))),
            ("HTTP/1.1 200 OK\r\n\r\nbody", 0, Some((200, ""))),
            ("HTTP/1.1 200 OK\r\n\r\nbody", 3, None),
            ("nonsense", 100, None),
        ] {
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 512];
                assert_ne!(stream.read(&mut request).await.unwrap(), 0);
                // The reader may have had enough.
                let _ = stream.write_all(reply.as_bytes()).await;
            };
            let (got, ()) = tokio::join!(get(&target, most), serving);
            let got = got.ok().map(|(code, body)| (code, String::from_utf8(body).unwrap()));
            let expected = expected.map(|(code, body)| (code, body.to_owned()));
            assert_eq!(got, expected, "{reply}");
        }
    }
}
