//! Reads the stream of events of the cluster manager, `/api/v1/events`, as any other program could.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::news::News;
use super::stage::Stage;

/// Before the stream is opened again after a failure.
const PAUSE_SECONDS: f64 = 1.0;
/// The longest line that is taken for an event.
const MAX_LINE: usize = 64 << 10;

/// Reports the cluster manager's events until it is dropped. `listening` is answered once the
/// stream is open.
pub(super) async fn run(stage: Arc<Stage>, web: SocketAddr, listening: oneshot::Sender<()>) {
    let mut listening = Some(listening);
    loop {
        // A broken stream is opened again; events meanwhile are not reported.
        let _ = listen(&stage, web, &mut listening).await;
        sleep(stage.pace.seconds(PAUSE_SECONDS)).await;
    }
}

async fn listen(
    stage: &Stage,
    web: SocketAddr,
    listening: &mut Option<oneshot::Sender<()>>,
) -> Result<(), Broken> {
    let stream = TokioIo::new(TcpStream::connect(web).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let request = Request::get("/api/v1/events").header(HOST, web.to_string());
    let request = request.body(Empty::<Bytes>::new())?;
    let read = async {
        let mut body = sender.send_request(request).await?.into_body();
        if let Some(listening) = listening.take() {
            // The receiver may be gone.
            let _ = listening.send(());
        }
        let (mut lines, mut observer) = (Lines::default(), Observer { stage, starving: vec![] });
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                lines.take_in(&data, |event, data| {
                    if let Some(news) = observer.news(event, data) {
                        stage.tell(news);
                    }
                });
            }
        }
        Ok(())
    };
    // An error of the connection shows in the stream, too.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        read = read => read,
        never = driven => match never {},
    }
}

/// Any failure of the stream; all of them lead to another attempt.
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Puts the lines of a stream of events together.
#[derive(Debug, Default)]
struct Lines {
    rest: Vec<u8>,
    event: String,
}

impl Lines {
    /// Calls `tell` with the name and the data of each complete event.
    fn take_in(&mut self, bytes: &[u8], mut tell: impl FnMut(&str, &str)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.rest.len() + part.len() <= MAX_LINE {
                self.rest.extend_from_slice(part);
            }
            if !part.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.rest);
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if let Some(event) = line.strip_prefix("event: ") {
                self.event = event.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                tell(&self.event, data);
            }
        }
    }
}

/// Turns events into news.
struct Observer<'a> {
    stage: &'a Stage,
    /// Pools that were starving, with the type of the slots and the time of the event: preemption
    /// for them has the same time.
    starving: Vec<(i64, String, String)>,
}

impl Observer<'_> {
    /// `None` for events that are not part of the story.
    fn news(&mut self, event: &str, data: &str) -> Option<News> {
        let data: Value = serde_json::from_str(data).ok()?;
        let text = |key: &str| data.get(key).and_then(Value::as_str);
        let node = || text("node").map(Arc::from);
        let kind = || text("type").map(str::to_owned);
        let at = data.get("time_ms").and_then(Value::as_i64)?;
        self.starving.retain(|(time, ..)| *time == at);
        Some(match event {
            "node_added" => News::NodeJoined { node: node()? },
            "node_late" => News::NodeLate { node: node()? },
            "node_lost" => {
                News::NodeLost { node: node()?, expired: data.get("expired")?.as_bool()? }
            }
            "node_blacklisted" => News::NodeBlacklisted { node: node()?, kind: kind()? },
            "pool_starving" => {
                let (pool, kind) = (format!("{}.{}", text("group")?, text("pool")?), kind()?);
                self.starving.push((at, kind.clone(), pool.clone()));
                let cause = text("cause")?.to_owned();
                News::PoolStarving { pool, kind, cause, granted: data.get("granted")?.as_i64()? }
            }
            "session_revoked" => {
                let (session, kind) = (text("session")?, kind()?);
                let same_kind = self.starving.iter().filter(|(_, of, _)| *of == kind);
                News::SlotsPreempted {
                    name: self.stage.job_of(session),
                    session: session.into(),
                    pools: same_kind.map(|(.., pool)| pool.clone()).collect(),
                    kind,
                    count: data.get("count")?.as_u64()?,
                }
            }
            "configuration_reloaded" => News::ConfigurationReloaded,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_any_pieces() {
        let stream =
            b"retry: 3000\n\nid: 1-1\nevent: node_added\ndata: {\"node\":\"n1\"}\n\n: alive\n\
            event: b\ndata: {}\n\n";
        for size in 1..stream.len() {
            let (mut lines, mut events) = (Lines::default(), Vec::new());
            for piece in stream.chunks(size) {
                lines.take_in(piece, |event, data| {
                    events.push((event.to_owned(), data.to_owned()));
                });
            }
            let expected = [("node_added", "{\"node\":\"n1\"}"), ("b", "{}")];
            let expected = expected.map(|(event, data)| (event.to_owned(), data.to_owned()));
            assert_eq!(events, expected, "{size}");
        }
    }
}
