//! The leader's side of the copies: an image, the records behind it, and everything that follows, to
//! each standby that connects.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::standing::{Phase, Standing};
use corona_journal::{Entry, Journal, frame_record};
use corona_process::panics::blocking;
use corona_standby::Input;
use corona_standby::stream::{self, HEADER, Head, Kind, MAX_PAYLOAD, Malformed};
use thiserror::Error;

/// The version of the protocol.
pub(super) const PROTOCOL: u64 = 1;
/// Bytes of a piece of an image or of records.
const PIECE_BYTES: usize = 1 << 20;
/// How long the name of an instance is at most.
const MAX_NAME: usize = 1024;
/// Pieces that are read ahead of the network.
const PIECES_AHEAD: usize = 4;
/// Records that a standby may be behind when replies start to wait for it. What was appended while it copied
/// is still to be sent then, and callers should not wait for that.
const NEAR: u64 = 4096;
/// How long a standby may take for a piece. While the journal is read for one, others wait.
const PIECE_TIME: Duration = Duration::from_secs(10);

/// What a leader sends copies of.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) standing: Arc<Standing>,
    pub(super) epoch: u64,
    pub(super) journal: Arc<Journal>,
    pub(super) max_lag_bytes: usize,
    /// How often a standby hears something.
    pub(super) beat: Duration,
}

/// Why a connection between instances has ended.
#[derive(Debug, Error)]
pub(super) enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("{0}")]
    Protocol(String),
    #[error("it was silent for too long")]
    Silent,
}

impl Source {
    /// Serves a standby, whose opening was read, until its connection ends.
    pub(super) async fn serve(self, mut stream: TcpStream) {
        let mut frames = Frames::default();
        let hello = timeout(Duration::from_secs(5), frames.next(&mut stream)).await;
        let name: Arc<str> = match hello {
            Ok(Ok((Head { kind: Kind::Hello, number: PROTOCOL, .. }, name)))
                if name.len() <= MAX_NAME =>
            {
                String::from_utf8_lossy(&name).into()
            }
            _ => return,
        };
        tracing::info!("Standby {name} connected");
        let (connection, mut replaced) = self.standing.connected(&name);
        let ended = tokio::select! {
            biased;
            _ = replaced.wait_for(|replaced| *replaced) => {
                Ended::Protocol("the connection was replaced or given up".into())
            }
            ended = self.copy(&name, connection, stream, frames) => match ended {
                Ok(()) => Ended::Protocol("the journal has ended".into()),
                Err(ended) => ended,
            },
        };
        self.standing.disconnected(&name, connection);
        tracing::warn!("Standby {name} disconnected: {ended}");
    }

    async fn copy(
        &self,
        name: &Arc<str>,
        connection: u64,
        stream: TcpStream,
        frames: Frames,
    ) -> Result<(), Ended> {
        stream.set_nodelay(true)?;
        // From the first frame on the standby has no copy, so it must not be one that may lead.
        while self.standing.may_lead(name) {
            if *self.standing.phase().borrow() != Phase::Leading(self.epoch) {
                return Err(Ended::Protocol("this instance does not lead any more".into()));
            }
            sleep(Duration::from_millis(10)).await;
        }
        let (read, write) = stream.into_split();
        let (caught_up, known) = tokio::sync::watch::channel(None);
        tokio::select! {
            sent = self.send(write, &caught_up) => sent,
            heard = self.hear(name, connection, read, frames, known) => heard,
        }
    }

    fn head(&self, kind: Kind, number: u64) -> Head {
        Head { kind, epoch: self.epoch, number }
    }

    async fn send(
        &self,
        mut write: OwnedWriteHalf,
        caught_up: &tokio::sync::watch::Sender<Option<u64>>,
    ) -> Result<(), Ended> {
        // First, so that nothing is missing between what is read and what follows.
        let mut tap = self.journal.tap(self.max_lag_bytes);
        let (pieces, mut ready) = mpsc::channel::<Vec<u8>>(PIECES_AHEAD);
        let source = self.clone();
        let reading = tokio::spawn(blocking(move || source.read(&pieces)));
        loop {
            match timeout(self.beat, ready.recv()).await {
                Ok(Some(piece)) => send(&mut write, &piece).await?,
                Ok(None) => break,
                // The journal is read for another standby.
                Err(_) => {
                    let mut frame = Vec::new();
                    stream::write(&mut frame, self.head(Kind::Alive, 0), b"");
                    send(&mut write, &frame).await?;
                }
            }
        }
        let last = reading
            .await
            .map_err(|error| Ended::Protocol(error.to_string()))?
            .map_err(Ended::Protocol)?;
        let mut frame = Vec::new();
        stream::write(&mut frame, self.head(Kind::CaughtUp, last), b"");
        send(&mut write, &frame).await?;
        caught_up.send_replace(Some(last));
        let lost = tap.lost();
        tokio::pin!(lost);
        loop {
            frame.clear();
            match timeout(self.beat, tap.next()).await {
                Ok(Some(tapped)) => {
                    for piece in tapped.bytes.chunks(MAX_PAYLOAD) {
                        stream::write(&mut frame, self.head(Kind::Records, tapped.last), piece);
                    }
                }
                Ok(None) if tap.is_lost() => return Err(self.too_far_behind()),
                Ok(None) => return Ok(()),
                Err(_) => {
                    let committed = self.journal.status().committed;
                    stream::write(&mut frame, self.head(Kind::Alive, committed), b"");
                }
            }
            tokio::select! {
                sent = send(&mut write, &frame) => sent?,
                () = &mut lost => return Err(self.too_far_behind()),
            }
        }
    }

    fn too_far_behind(&self) -> Ended {
        Ended::Protocol(format!(
            "more than {} bytes wait for it, which is corona.cm.ha.max.lag.bytes",
            self.max_lag_bytes
        ))
    }

    /// Reads the journal and makes frames of it. Returns the number of the last record.
    fn read(&self, pieces: &mpsc::Sender<Vec<u8>>) -> Result<u64, String> {
        let gone = || -> corona_journal::Rejected { "the standby is gone".into() };
        let mut records = Vec::new();
        let mut up_to = 0;
        let flush = |records: &mut Vec<u8>, number| {
            let mut frames = Vec::new();
            for piece in records.chunks(PIECE_BYTES) {
                stream::write(&mut frames, self.head(Kind::Records, number), piece);
            }
            records.clear();
            pieces.blocking_send(frames).map_err(|_| gone())
        };
        let last = self.journal.read(|entry| match entry {
            Entry::Image { number, bytes } => {
                for piece in bytes.chunks(PIECE_BYTES) {
                    let mut frame = Vec::new();
                    stream::write(&mut frame, self.head(Kind::Image, number), piece);
                    pieces.blocking_send(frame).map_err(|_| gone())?;
                }
                Ok(())
            }
            Entry::Record { number, bytes } => {
                frame_record(&mut records, number, bytes);
                up_to = number;
                if records.len() >= PIECE_BYTES { flush(&mut records, number) } else { Ok(()) }
            }
        });
        let last = last.map_err(|error| error.to_string())?;
        flush(&mut records, up_to).map_err(|error| error.to_string())?;
        Ok(last)
    }

    /// Takes the acknowledgements.
    async fn hear(
        &self,
        name: &Arc<str>,
        connection: u64,
        mut read: OwnedReadHalf,
        mut frames: Frames,
        caught_up: tokio::sync::watch::Receiver<Option<u64>>,
    ) -> Result<(), Ended> {
        let mut counts = false;
        loop {
            let (head, _) = frames.next(&mut read).await?;
            if head.kind != Kind::Acknowledged || head.epoch != self.epoch {
                return Err(Ended::Protocol(format!("an unexpected frame: {head:?}")));
            }
            let (standby, number) = (name.clone(), head.number);
            let has_copied = caught_up.borrow().is_some_and(|last| number >= last);
            let is_known =
                has_copied && self.journal.status().committed.saturating_sub(number) <= NEAR;
            let input = match (counts, is_known) {
                (true, _) => Input::Acknowledged { standby, number },
                (false, true) => Input::CaughtUp { standby, number },
                (false, false) => continue,
            };
            if !counts {
                tracing::info!("Standby {name} has caught up, to record {number}");
                counts = true;
            }
            self.standing.apply_from(name, connection, input);
        }
    }
}

/// Writes to a standby, within a bounded time.
async fn send(to: &mut OwnedWriteHalf, bytes: &[u8]) -> Result<(), Ended> {
    timeout(PIECE_TIME, to.write_all(bytes)).await.map_err(|_| Ended::Silent)??;
    Ok(())
}

/// Frames as they arrive.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    taken: usize,
}

impl Frames {
    /// The next frame. Not to be dropped before it is there.
    ///
    /// # Errors
    /// The connection has ended, or what came is no frame.
    pub(super) async fn next(
        &mut self,
        from: &mut (impl tokio::io::AsyncRead + Unpin),
    ) -> Result<(Head, Vec<u8>), Ended> {
        loop {
            if let Some(frame) = stream::read(&self.bytes[self.taken..])? {
                let (head, payload) = (frame.head, frame.payload.to_vec());
                self.taken += frame.length;
                return Ok((head, payload));
            }
            self.bytes.drain(..self.taken);
            self.taken = 0;
            self.bytes.reserve(HEADER.max(64 << 10));
            if from.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }
}
