//! `/mapOutput`: parts of map outputs for a reduce, sent from the disk to the socket without a
//! copy.
//!
//! The response's head is two lines; then come a header and the bytes of each part; the end of the
//! connection is the end of the response. Spec: mapreduce/04 §4.9.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use form_urlencoded::parse;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{HttpServer, LostOutput};
use crate::ids::{AttemptId, JobId};
use crate::map_output::{MapOutputError, Part};
use corona_access::Stream;
use corona_hadoop::io::Writer;
use corona_hadoop::io::formats::Writable;
use corona_hadoop::writables::ShuffleHeader;

/// The most bytes that one read of the disk moves.
const CHUNK_BYTES: usize = 1 << 20;
/// The most bytes that are read at a time where they are encrypted.
const PIECE_BYTES: usize = 256 << 10;
/// The head of an answer.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

/// A reduce's request.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    job: JobId,
    maps: Vec<AttemptId>,
    reduce: i32,
}

impl Wanted {
    /// Reads a query. The error is the response.
    fn parse(query: &str) -> Result<Self, &'static str> {
        let all = |name: &str| -> Vec<String> {
            let pairs = parse(query.as_bytes()).filter(|(key, _)| key == name);
            pairs.map(|(_, value)| value.into_owned()).collect()
        };
        let (jobs, maps, reduces) = (all("job"), all("map"), all("reduce"));
        if jobs.is_empty() || maps.is_empty() || reduces.is_empty() {
            return Err("Required param job, map and reduce");
        }
        let ([job], [reduce]) = (&*jobs, &*reduces) else {
            return Err("Too many job/reduce parameters");
        };
        let reduce = reduce.parse().map_err(|_| "Bad reduce parameter")?;
        let job = job.parse().map_err(|_| "Bad job parameter")?;
        let maps = maps.iter().flat_map(|maps| maps.split(',')).map(str::parse);
        let maps = maps.collect::<Result<Vec<_>, _>>().map_err(|_| "Bad map parameter")?;
        Ok(Wanted { job, maps, reduce })
    }
}

impl HttpServer {
    pub(super) async fn shuffle(&self, stream: Stream, query: String) {
        // A reduce that disconnects, or does not read, retries here or asks another node.
        let _ = match Wanted::parse(&query) {
            Ok(wanted) => self.send(stream, wanted).await,
            Err(told) => refuse(stream, told, self.limits.write_timeout).await,
        };
    }

    async fn send(&self, mut stream: Stream, wanted: Wanted) -> io::Result<()> {
        let mut waiting = OK.to_vec();
        for map in wanted.maps {
            let part = self.part(&wanted.job, &map, wanted.reduce).await;
            let lengths = part.as_ref().map_or((0, 0), |part| (part.part_bytes, part.raw_bytes));
            let length = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            let header = ShuffleHeader {
                attempt: map.to_string(),
                part_length: length(lengths.0),
                raw_length: length(lengths.1),
                reduce: wanted.reduce,
                found: part.is_some(),
            };
            let mut writer = Writer::new(1024);
            header.encode(&mut writer);
            waiting.extend(writer.finish().map_err(io::Error::other)?);
            if let Some(part) = part {
                write(&mut stream, &waiting, self.limits.write_timeout).await?;
                waiting.clear();
                stream = self.send_part(stream, part).await?;
            }
        }
        write(&mut stream, &waiting, self.limits.write_timeout).await?;
        end(stream, self.limits.write_timeout).await
    }

    /// The part; if the output is not there or damaged, that is reported to the owner of the map.
    async fn part(&self, job: &JobId, map: &AttemptId, reduce: i32) -> Option<Part> {
        let (outputs, wanted) = (self.outputs.clone(), map.clone());
        if map.job() != job {
            return None;
        }
        let found = self.threads.run(move || outputs.part(&wanted, reduce)).await;
        let error: MapOutputError = match found {
            Ok(part) => return Some(part),
            Err(error) => error,
        };
        if let MapOutputError::NoPart { .. } = error {
            tracing::warn!(%map, %error, "a part of a map output was asked for that its job has not");
            return None;
        }
        tracing::warn!(%map, reduce, %error, "map output is missing; reporting it to the job tracker");
        let diagnostics = format!("Couldn't get mapId = {map}, reduce {reduce}: {error}");
        let lost = LostOutput { attempt: map.clone(), diagnostics };
        // If the channel is closed or full, a reduce will ask again.
        let _ = self.lost.try_send(lost);
        None
    }

    /// Sends the bytes of a part.
    async fn send_part(&self, stream: Stream, part: Part) -> io::Result<Stream> {
        match stream {
            Stream::Plain(stream) => Ok(Stream::Plain(self.send_plain(stream, part).await?)),
            Stream::Tls(_) => self.send_read(stream, part).await,
        }
    }

    /// Sends the bytes of a part by way of this program, which encrypts them.
    async fn send_read(&self, mut stream: Stream, part: Part) -> io::Result<Stream> {
        let (mut offset, mut left) = (part.start, part.part_bytes);
        let file = Arc::new(part.file);
        let mut piece = Vec::new();
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let (from, mut buffer) = (file.clone(), std::mem::take(&mut piece));
            let reading = self.threads.run(move || {
                buffer.resize(count, 0);
                from.read_exact_at(&mut buffer, offset).map(|()| buffer)
            });
            piece = reading.await?;
            write(&mut stream, &piece, self.limits.write_timeout).await?;
            offset += count as u64;
            left -= count as u64;
        }
        Ok(stream)
    }

    /// Sends the bytes of a part. The disk may take its time, so a thread waits for it; the socket is
    /// waited for here, and holds no thread.
    async fn send_plain(&self, stream: TcpStream, part: Part) -> io::Result<TcpStream> {
        let (mut offset, mut left) = (part.start, part.part_bytes);
        let (stream, file) = (Arc::new(stream), Arc::new(part.file));
        while left > 0 {
            let writable = timeout(self.limits.write_timeout, stream.writable());
            writable.await.map_err(|_| io::ErrorKind::TimedOut)??;
            let (to, from, at) = (stream.clone(), file.clone(), offset);
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let sending = self.threads.run(move || {
                let mut at = at;
                to.try_io(Interest::WRITABLE, || {
                    Ok(rustix::fs::sendfile(&*to, &*from, Some(&mut at), count)?)
                })
            });
            match sending.await {
                // The file has become shorter; the reader sees that bytes are missing.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => {
                    offset += sent as u64;
                    left = left.saturating_sub(sent as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Arc::into_inner(stream).ok_or_else(|| io::Error::other("the connection is still in use"))
    }
}

/// Writes to a peer that may leave written data unread for so long.
async fn write(stream: &mut Stream, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = timeout(patience, stream.write(bytes));
        let written = written.await.map_err(|_| io::ErrorKind::TimedOut)??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

async fn refuse(mut stream: Stream, told: &str, patience: Duration) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=UTF-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{told}",
        told.len()
    );
    write(&mut stream, answer.as_bytes(), patience).await?;
    end(stream, patience).await
}

/// Ends a connection. Within TLS, the last bytes may still wait for the peer to read.
async fn end(mut stream: Stream, patience: Duration) -> io::Result<()> {
    timeout(patience, stream.shutdown()).await.map_err(|_| io::ErrorKind::TimedOut)?
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use corona_access::{Authority, Gate, Identity, Role, TlsMode, TlsSettings};
    use proptest::prelude::*;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn queries() {
        let map = "attempt_20.1_0001_m_000000_0";
        let good = format!("job=job_20.1_0001&map={map},{map}&reduce=3&map={map}");
        let wanted = Wanted::parse(&good).unwrap();
        assert_eq!((wanted.maps.len(), wanted.reduce), (3, 3));
        let cases = [
            (String::new(), "Required param job, map and reduce"),
            (good.replace("reduce", "r"), "Required param job, map and reduce"),
            (format!("{good}&reduce=1"), "Too many job/reduce parameters"),
            (good.replace("=3", "=x"), "Bad reduce parameter"),
            (good.replace("job_20", "job/20"), "Bad job parameter"),
            (good.replace("m_000000", "..%2f"), "Bad map parameter"),
        ];
        for (query, told) in cases {
            assert_eq!(Wanted::parse(&query), Err(told), "{query}");
        }
    }

    /// Both ends of a connection within TLS.
    async fn within_tls() -> (Stream, Stream) {
        let directory = tempfile::tempdir().unwrap();
        let (now, at) = (SystemTime::now(), ("127.0.0.1", 1));
        let authority = Authority::create(&directory.path().join("ca"), now).unwrap();
        let own = directory.path().join("own");
        let own = Arc::new(Identity::own(&own, &authority, "n", at, &[], now).unwrap());
        let settings = TlsSettings { mode: TlsMode::Require, ..TlsSettings::default() };
        let gate = Gate::new(settings, Some(own.clone()), None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async {
            let (stream, peer) = listener.accept().await.unwrap();
            gate.admit(stream, peer, true).await.unwrap().0
        };
        let calling = async {
            let stream = TcpStream::connect(address).await.unwrap();
            own.connect(stream, &[Role::Admin]).await.unwrap()
        };
        tokio::join!(serving, calling)
    }

    #[tokio::test]
    async fn a_reader_that_stops_at_the_end_within_tls_loses_its_place() {
        let (mut server, _client) = within_tls().await;
        // Until neither the sockets nor TLS take more.
        while server.write_now(&[0; 64 << 10]).unwrap() > 0 {
            while server.write_now(&[0; 64 << 10]).unwrap() > 0 {}
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let ended = timeout(Duration::from_secs(60), end(server, Duration::from_millis(100))).await;
        assert_eq!(ended.expect("it ends").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    proptest! {
        #[test]
        fn no_query_panics(query in "[a-z=&,%_0-9.-]{0,80}") {
            let _ = Wanted::parse(&query);
        }
    }
}
