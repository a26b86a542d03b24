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

use super::instance_role::{InstanceRole, Phase};
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
pub(super) const PIECE_TIME: Duration = Duration::from_secs(10);

/// What a leader sends copies of.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) instance_role: Arc<InstanceRole>,
    pub(super) epoch: u64,
    pub(super) journal: Arc<Journal>,
    pub(super) max_lag_bytes: usize,
    /// The interval at which an idle connection carries a frame.
    pub(super) beat: Duration,
    /// How long a standby may take for a piece.
    pub(super) piece_time: Duration,
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
        let (connection, mut replaced) = self.instance_role.connected(&name);
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
        self.instance_role.disconnected(&name, connection);
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
        while self.instance_role.may_lead(name) {
            if *self.instance_role.phase().borrow() != Phase::Leading(self.epoch) {
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
                Ok(Some(piece)) => self.write(&mut write, &piece).await?,
                Ok(None) => break,
                // The journal is read for another standby.
                Err(_) => {
                    let mut frame = Vec::new();
                    stream::write(&mut frame, self.head(Kind::Alive, 0), b"");
                    self.write(&mut write, &frame).await?;
                }
            }
        }
        let last = reading
            .await
            .map_err(|error| Ended::Protocol(error.to_string()))?
            .map_err(Ended::Protocol)?;
        let mut frame = Vec::new();
        stream::write(&mut frame, self.head(Kind::CaughtUp, last), b"");
        self.write(&mut write, &frame).await?;
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
                sent = self.write(&mut write, &frame) => sent?,
                () = &mut lost => return Err(self.too_far_behind()),
            }
        }
    }

    /// Writes to a standby, within a bounded time.
    async fn write(&self, to: &mut OwnedWriteHalf, bytes: &[u8]) -> Result<(), Ended> {
        timeout(self.piece_time, to.write_all(bytes)).await.map_err(|_| Ended::Silent)??;
        Ok(())
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
            self.instance_role.apply_from(name, connection, input);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ha::lease;
    use corona_journal::{DiskStorage, Options};
    use corona_standby::{Ack, Copy, Settings};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(60);
    /// More than the buffers of a connection hold.
    const RECORDS: u64 = 32;
    const RECORD_BYTES: usize = 2 << 20;

    /// A leader with a journal.
    fn leader(directory: &std::path::Path) -> Source {
        let settings = Settings {
            me: "leader".into(),
            session_timeout_ms: 600_000,
            ack: Ack::Standby,
            ack_timeout_ms: 600_000,
        };
        let (instance_role, _) = InstanceRole::new(settings);
        let is_led = false;
        instance_role.apply(Input::Seen { is_led, succession: None, copy: Copy::Disk });
        instance_role.apply(Input::Won { sent: lease::now(), version: 0 });
        let Phase::Leading(epoch) = *instance_role.phase().borrow() else { panic!("it leads") };
        let storage = DiskStorage::open(directory).unwrap();
        let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(())).unwrap();
        Source {
            instance_role,
            epoch,
            journal: Arc::new(journal),
            max_lag_bytes: 1 << 30,
            beat: Duration::from_millis(100),
            piece_time: Duration::from_secs(3),
        }
    }

    /// Connects a standby that has asked for a copy.
    async fn ask(source: &Source, name: &str) -> (TcpStream, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut standby = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let serving = tokio::spawn(source.clone().serve(accepted));
        let mut hello = Vec::new();
        let head = Head { kind: Kind::Hello, epoch: 0, number: PROTOCOL };
        stream::write(&mut hello, head, name.as_bytes());
        standby.write_all(&hello).await.unwrap();
        (standby, serving)
    }

    /// Reads until a frame of this kind and number, and acknowledges it.
    async fn read_until(
        standby: &mut TcpStream,
        frames: &mut Frames,
        is_it: impl Fn(&Head) -> bool,
    ) -> Head {
        let read = async {
            loop {
                let (head, _) = frames.next(standby).await.unwrap();
                if is_it(&head) {
                    return head;
                }
            }
        };
        let head = timeout(PATIENCE, read).await.expect("in time");
        let mut acknowledgement = Vec::new();
        stream::write(&mut acknowledgement, Head { kind: Kind::Acknowledged, ..head }, b"");
        standby.write_all(&acknowledgement).await.unwrap();
        head
    }

    /// A peer that asks for a copy and reads nothing is disconnected. A standby that has its copy gets each
    /// record meanwhile, and one that connects then gets its copy afterwards.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_peer_that_reads_nothing_of_its_copy_is_disconnected() {
        let directory = tempfile::tempdir().unwrap();
        let source = leader(directory.path());
        let mut last = 0;
        for _ in 0..RECORDS {
            last = source.journal.append(&vec![7; RECORD_BYTES]).unwrap();
        }
        source.journal.wait_for(last).await.unwrap();
        let (mut innocent, serving) = ask(&source, "innocent").await;
        let mut frames = Frames::default();
        let copied = |head: &Head| head.kind == Kind::CaughtUp;
        assert_eq!(read_until(&mut innocent, &mut frames, copied).await.number, last);

        let (stalled, stalling) = ask(&source, "stalled").await;
        let (mut later, _serving) = ask(&source, "later").await;
        let later = tokio::spawn(async move {
            read_until(&mut later, &mut Frames::default(), copied).await.number
        });
        let started = Instant::now();
        let mut records = 0;
        while !stalling.is_finished() {
            assert!(started.elapsed() < PATIENCE, "it is still connected");
            let number = source.journal.append(b"a record").unwrap();
            let is_it = |head: &Head| head.kind == Kind::Records && head.number >= number;
            read_until(&mut innocent, &mut frames, is_it).await;
            records += 1;
            sleep(Duration::from_millis(10)).await;
        }
        assert!(started.elapsed() >= source.piece_time, "it may take that long for a piece");
        assert!(records > 3, "{records}");
        let standbys = source.instance_role.standbys();
        assert!(standbys.iter().any(|standby| *standby.name == *"innocent"), "{standbys:?}");
        assert!(!standbys.iter().any(|standby| *standby.name == *"stalled"), "{standbys:?}");
        assert!(!serving.is_finished());
        assert!(later.await.unwrap() >= last);
        drop(stalled);
    }
}
