//! Reads the stream of events of the cluster manager, `/api/v1/events`, as any other program could.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use corona_api::events::{Dated, Event};
use corona_api::stream::EventReader;
use corona_model::types::ResourceType;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::news::News;
use super::stage::Stage;

/// Before the stream is opened again after a failure.
const PAUSE_SECONDS: f64 = 1.0;

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
        let (mut reader, mut observer) =
            (EventReader::default(), Observer { stage, starving: vec![] });
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                for received in reader.push(&data) {
                    if let Some(news) =
                        received.members().and_then(|members| observer.news(Dated::of(members)?))
                    {
                        stage.tell(news);
                    }
                }
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

/// Turns events into news.
struct Observer<'a> {
    stage: &'a Stage,
    /// Pools that were starving, with the type of the slots and the time of the event: preemption
    /// for them has the same time.
    starving: Vec<(i64, ResourceType, String)>,
}

impl Observer<'_> {
    /// `None` for events that are not part of the story.
    fn news(&mut self, Dated { time_ms, event }: Dated) -> Option<News> {
        let at = time_ms?;
        self.starving.retain(|(time, ..)| *time == at);
        Some(match event {
            Event::NodeAdded { node } => News::NodeJoined { node },
            Event::NodeLate { node, .. } => News::NodeLate { node },
            Event::NodeLost { node, expired } => News::NodeLost { node, expired },
            Event::NodeBlacklisted { node, kind } => News::NodeBlacklisted { node, kind },
            Event::PoolStarving { group, pool, kind, cause, granted } => {
                let pool = format!("{group}.{pool}");
                self.starving.push((at, kind, pool.clone()));
                News::PoolStarving { pool, kind, cause, granted }
            }
            Event::SessionRevoked { session, kind, count } => {
                let same_kind = self.starving.iter().filter(|(_, of, _)| *of == kind);
                News::SlotsPreempted {
                    name: self.stage.job_of(&session),
                    session,
                    pools: same_kind.map(|(.., pool)| pool.clone()).collect(),
                    kind,
                    count,
                }
            }
            Event::ConfigurationReloaded => News::ConfigurationReloaded,
            _ => return None,
        })
    }
}
