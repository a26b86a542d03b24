//! The leader's side of the copies: an image, the records behind it, and everything that follows, to
//! each standby that connects.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, ReadHalf, WriteHalf, split};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::instance_role::{Connected, InstanceRole, Phase, Standby};
use corona_access::{Stream, send};
use corona_journal::{Entry, Journal, frame_record};
use corona_process::panics::blocking;
use corona_standby::Input;
use corona_standby::stream::{self, HEADER, Head, Kind, MAX_PAYLOAD, Malformed};
use thiserror::Error;

/// The version of the protocol.
pub(super) const PROTOCOL: u64 = 1;
/// Bytes of a piece of an image or of records.
const PIECE_BYTES: usize = 1 << 20;
/// How long what an instance says of itself is at most. Nothing else that a standby sends has a payload.
const MAX_NAME: usize = 1024;
/// Snapshots of the journal that are in memory at a time, each for all standbys that asked meanwhile.
const MAX_SNAPSHOTS: usize = 2;
/// How long the sending of a snapshot may take, beside the time for its bytes.
pub(super) const COPY_TIME: Duration = Duration::from_secs(60);
/// Bytes that a standby takes in a second at least, on the average.
const LEAST_RATE: usize = 1 << 20;
/// Records that a standby may be behind when replies start to wait for it. What was appended while it copied
/// is still to be sent then, and callers should not wait for that.
const NEAR: u64 = 4096;
/// How long a standby may take for a piece. While the journal is read for one, others wait.
pub(super) const PIECE_TIME: Duration = Duration::from_secs(10);

/// The journal up to one moment, as the frames that bring a standby there.
#[derive(Debug)]
struct Snapshot {
    frames: Vec<Vec<u8>>,
    bytes: usize,
    /// The last record in it.
    last: u64,
    /// When the reading began.
    began: Instant,
    _place: OwnedSemaphorePermit,
}

/// The snapshots of a leader. Standbys that ask in one moment share one.
#[derive(Debug)]
pub(super) struct Snapshots {
    newest: Mutex<Weak<Snapshot>>,
    places: Arc<Semaphore>,
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots {
            newest: Mutex::new(Weak::new()),
            places: Arc::new(Semaphore::new(MAX_SNAPSHOTS)),
        }
    }
}

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
    /// How long a standby may take for a snapshot, beside the time for its bytes.
    pub(super) copy_time: Duration,
    pub(super) snapshots: Arc<Snapshots>,
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
    pub(super) async fn serve(self, mut stream: Stream, opening: OwnedSemaphorePermit) {
        let mut frames = Frames::within(MAX_NAME);
        let hello = timeout(Duration::from_secs(5), frames.next(&mut stream)).await;
        let standby = match hello {
            Ok(Ok((Head { kind: Kind::Hello, number, .. }, sent))) if sent.len() <= MAX_NAME => {
                let standby = Standby::read(&sent);
                if number != PROTOCOL {
                    let name = standby.name;
                    return tracing::warn!(
                        "Standby {name} refused: it speaks version {number} of the copy stream, and this instance {PROTOCOL}"
                    );
                }
                standby
            }
            _ => return,
        };
        let name = standby.name.clone();
        drop(opening);
        tracing::info!("Standby {name} connected");
        let Some(connected) = self.instance_role.connected(&standby) else {
            return tracing::warn!("Standby {name} refused: too many standbys are connected");
        };
        let Connected { number: connection, ended: mut replaced, progress } = connected;
        let ended = tokio::select! {
            biased;
            _ = replaced.wait_for(|replaced| *replaced) => {
                Ended::Protocol("the connection was replaced or given up".into())
            }
            ended = self.copy(&name, connection, &progress, stream, frames) => match ended {
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
        progress: &AtomicU64,
        stream: Stream,
        frames: Frames,
    ) -> Result<(), Ended> {
        stream.tcp().set_nodelay(true)?;
        // From the first frame on the standby has no copy, so it must not be one that may lead.
        while self.instance_role.may_lead(name) {
            if *self.instance_role.phase().borrow() != Phase::Leading(self.epoch) {
                return Err(Ended::Protocol("this instance does not lead any more".into()));
            }
            sleep(Duration::from_millis(10)).await;
        }
        let (read, write) = split(stream);
        let (caught_up, known) = tokio::sync::watch::channel(None);
        tokio::select! {
            sent = self.send(write, progress, &caught_up) => sent,
            heard = self.hear(name, connection, read, frames, known) => heard,
        }
    }

    fn head(&self, kind: Kind, number: u64) -> Head {
        Head { kind, epoch: self.epoch, number }
    }

    async fn send(
        &self,
        mut write: WriteHalf<Stream>,
        progress: &AtomicU64,
        caught_up: &tokio::sync::watch::Sender<Option<u64>>,
    ) -> Result<(), Ended> {
        // First, so that nothing is missing between what is read and what follows.
        let mut tap = self.journal.tap(self.max_lag_bytes);
        let snapshot = self.snapshot(Instant::now());
        tokio::pin!(snapshot);
        let snapshot = loop {
            match timeout(self.beat, &mut snapshot).await {
                Ok(snapshot) => break snapshot.map_err(Ended::Protocol)?,
                // The journal is read for this standby, or others have not taken theirs yet.
                Err(_) => {
                    let mut frame = Vec::new();
                    stream::write(&mut frame, self.head(Kind::Alive, 0), b"");
                    self.write(&mut write, &frame).await?;
                }
            }
        };
        let sending = async {
            for frame in &snapshot.frames {
                self.write(&mut write, frame).await?;
                progress.fetch_add(frame.len() as u64, Ordering::Relaxed);
            }
            Ok::<_, Ended>(())
        };
        let time = self.copy_time + Duration::from_secs((snapshot.bytes / LEAST_RATE) as u64);
        timeout(time, sending).await.map_err(|_| Ended::Silent)??;
        let last = snapshot.last;
        drop(snapshot);
        progress.store(u64::MAX, Ordering::Relaxed);
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
    async fn write(&self, to: &mut WriteHalf<Stream>, bytes: &[u8]) -> Result<(), Ended> {
        timeout(self.piece_time, send(to, bytes)).await.map_err(|_| Ended::Silent)??;
        Ok(())
    }

    fn too_far_behind(&self) -> Ended {
        Ended::Protocol(format!(
            "more than {} bytes wait for it, which is corona.cm.ha.max.lag.bytes",
            self.max_lag_bytes
        ))
    }

    /// A snapshot whose reading began after this moment. Those who ask meanwhile get the same one.
    async fn snapshot(&self, asked: Instant) -> Result<Arc<Snapshot>, String> {
        let mut newest = self.snapshots.newest.lock().await;
        if let Some(snapshot) = newest.upgrade().filter(|snapshot| snapshot.began >= asked) {
            return Ok(snapshot);
        }
        let place = self.snapshots.places.clone().acquire_owned().await;
        let place = place.map_err(|error| error.to_string())?;
        let source = self.clone();
        let read = blocking(move || source.read(place)).await?;
        let snapshot = Arc::new(read);
        *newest = Arc::downgrade(&snapshot);
        Ok(snapshot)
    }

    /// Reads the journal and makes frames of it.
    fn read(&self, place: OwnedSemaphorePermit) -> Result<Snapshot, String> {
        let began = Instant::now();
        let (mut frames, mut records, mut up_to) = (Vec::new(), Vec::new(), 0);
        let mut add = |kind, number, bytes: &[u8]| {
            for piece in bytes.chunks(PIECE_BYTES) {
                let mut frame = Vec::with_capacity(HEADER + piece.len());
                stream::write(&mut frame, self.head(kind, number), piece);
                frames.push(frame);
            }
        };
        let last = self.journal.read(|entry| {
            match entry {
                Entry::Image { number, bytes } => add(Kind::Image, number, bytes),
                Entry::Record { number, bytes } => {
                    frame_record(&mut records, number, bytes);
                    up_to = number;
                    if records.len() >= PIECE_BYTES {
                        add(Kind::Records, number, &records);
                        records.clear();
                    }
                }
            }
            Ok(())
        });
        let last = last.map_err(|error| error.to_string())?;
        add(Kind::Records, up_to, &records);
        let bytes = frames.iter().map(Vec::len).sum();
        Ok(Snapshot { frames, bytes, last, began, _place: place })
    }

    /// Takes the acknowledgements.
    async fn hear(
        &self,
        name: &Arc<str>,
        connection: u64,
        mut read: ReadHalf<Stream>,
        mut frames: Frames,
        caught_up: tokio::sync::watch::Receiver<Option<u64>>,
    ) -> Result<(), Ended> {
        let mut counts = false;
        let mut acknowledged = None;
        loop {
            let (mut head, _) = frames.next(&mut read).await?;
            // A peer may send any number of them: only the last one that has arrived is applied, and
            // each must say something new.
            loop {
                self.check(head, acknowledged)?;
                acknowledged = Some(head.number);
                match frames.arrived()? {
                    Some((next, _)) => head = next,
                    None => break,
                }
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
            tokio::task::yield_now().await;
        }
    }

    /// Whether a frame of a standby is the acknowledgement of a record that it can have, and more than the last.
    fn check(&self, head: Head, acknowledged: Option<u64>) -> Result<(), Ended> {
        if head.kind != Kind::Acknowledged || head.epoch != self.epoch {
            return Err(Ended::Protocol(format!("an unexpected frame: {head:?}")));
        }
        let last = self.journal.status().committed;
        if head.number > last {
            let text = format!("it acknowledges record {}, and the last is {last}", head.number);
            return Err(Ended::Protocol(text));
        }
        if acknowledged.is_some_and(|before| head.number <= before) {
            let text = format!("it acknowledges record {} again", head.number);
            return Err(Ended::Protocol(text));
        }
        Ok(())
    }
}

/// Frames as they arrive.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    taken: usize,
    /// Bytes of a payload at most.
    most: usize,
}

impl Frames {
    /// Frames whose payloads have at most so many bytes.
    pub(super) fn within(most: usize) -> Frames {
        Frames { bytes: Vec::new(), taken: 0, most }
    }

    /// The next frame. Not to be dropped before it is there.
    ///
    /// # Errors
    /// The connection has ended, or what came is no frame.
    pub(super) async fn next(
        &mut self,
        from: &mut (impl tokio::io::AsyncRead + Unpin),
    ) -> Result<(Head, Vec<u8>), Ended> {
        loop {
            if let Some(frame) = self.arrived()? {
                return Ok(frame);
            }
            self.bytes.drain(..self.taken);
            self.taken = 0;
            self.bytes.reserve((HEADER + self.most).min(64 << 10));
            if from.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// The next frame if all of it has arrived.
    fn arrived(&mut self) -> Result<Option<(Head, Vec<u8>)>, Ended> {
        let bytes = self.bytes.get(self.taken..).unwrap_or_default();
        let Some(frame) = stream::read(bytes, self.most)? else { return Ok(None) };
        let (head, payload) = (frame.head, frame.payload.to_vec());
        self.taken += frame.length;
        Ok(Some((head, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ha::lease;
    use corona_journal::{DiskStorage, Options};
    use corona_standby::{Ack, Copy, Settings};
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

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
        let storage = DiskStorage::open(&directory.join("journal")).unwrap();
        let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(())).unwrap();
        Source {
            instance_role,
            epoch,
            journal: Arc::new(journal),
            max_lag_bytes: 1 << 30,
            beat: Duration::from_millis(100),
            piece_time: Duration::from_secs(3),
            copy_time: COPY_TIME,
            snapshots: Arc::default(),
        }
    }

    /// Connects a standby that has asked for a copy.
    async fn ask(source: &Source, name: &str) -> (TcpStream, JoinHandle<()>) {
        ask_in(source, name, PROTOCOL).await
    }

    /// The same in this version of the copy stream.
    async fn ask_in(source: &Source, name: &str, version: u64) -> (TcpStream, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut standby = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let opening = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let serving = tokio::spawn(source.clone().serve(accepted.into(), opening));
        let mut hello = Vec::new();
        let head = Head { kind: Kind::Hello, epoch: 0, number: version };
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

    #[tokio::test]
    async fn a_standby_of_another_version_gets_no_copy() {
        let directory = tempfile::tempdir().unwrap();
        let source = leader(directory.path());
        let last = source.journal.append(b"a record").unwrap();
        source.journal.wait_for(last).await.unwrap();
        let (mut later, serving) = ask_in(&source, "later", PROTOCOL + 1).await;
        let mut received = Vec::new();
        let closed = timeout(PATIENCE, later.read_to_end(&mut received)).await.expect("in time");
        assert_eq!((closed.unwrap(), received.len()), (0, 0));
        serving.await.unwrap();
        let (mut innocent, _serving) = ask(&source, "innocent").await;
        let mut frames = Frames::within(MAX_PAYLOAD);
        let copied = |head: &Head| head.kind == Kind::CaughtUp;
        assert_eq!(read_until(&mut innocent, &mut frames, copied).await.number, last);
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
        let mut frames = Frames::within(MAX_PAYLOAD);
        let copied = |head: &Head| head.kind == Kind::CaughtUp;
        assert_eq!(read_until(&mut innocent, &mut frames, copied).await.number, last);

        let (stalled, stalling) = ask(&source, "stalled").await;
        let (mut later, _serving) = ask(&source, "later").await;
        let later = tokio::spawn(async move {
            read_until(&mut later, &mut Frames::within(MAX_PAYLOAD), copied).await.number
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

    async fn acknowledge(standby: &mut TcpStream, epoch: u64, number: u64) {
        let mut frame = Vec::new();
        stream::write(&mut frame, Head { kind: Kind::Acknowledged, epoch, number }, b"");
        // The leader may have closed it.
        let _ = standby.write_all(&frame).await;
    }

    /// A leader whose journal has so many records of a kilobyte, and a standby that is in sync with it.
    async fn with_innocent(
        directory: &std::path::Path,
        records: u64,
    ) -> (Source, TcpStream, Frames) {
        let source = leader(directory);
        for _ in 0..records {
            source.journal.append(&[7; 1024]).unwrap();
        }
        source.journal.wait_for(records).await.unwrap();
        let (mut innocent, _) = ask(&source, "innocent").await;
        let mut frames = Frames::within(MAX_PAYLOAD);
        let copied = |head: &Head| head.kind == Kind::CaughtUp;
        assert_eq!(read_until(&mut innocent, &mut frames, copied).await.number, records);
        (source, innocent, frames)
    }

    async fn gone(serving: JoinHandle<()>, why: &str) {
        timeout(PATIENCE, serving).await.unwrap_or_else(|_| panic!("{why}: still served")).unwrap();
    }

    fn names(source: &Source) -> Vec<String> {
        source.instance_role.standbys().iter().map(|standby| standby.name.to_string()).collect()
    }

    /// A record gets to the standby that does nothing wrong.
    async fn works(source: &Source, innocent: &mut TcpStream, frames: &mut Frames) {
        let number = source.journal.append(b"a record").unwrap();
        let is_it = |head: &Head| head.kind == Kind::Records && head.number >= number;
        read_until(innocent, frames, is_it).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn acknowledgements_of_nothing_are_refused_and_a_flood_of_them_is_not_served() {
        let directory = tempfile::tempdir().unwrap();
        let (source, mut innocent, mut frames) = with_innocent(directory.path(), 10).await;
        for (why, numbers) in
            [("the future", &[u64::MAX][..]), ("again", &[3, 3]), ("backwards", &[5, 4])]
        {
            let (mut fake, serving) = ask(&source, "fake").await;
            for number in numbers {
                acknowledge(&mut fake, source.epoch, *number).await;
            }
            gone(serving, why).await;
        }
        // 20 MB of them.
        let (mut fake, serving) = ask(&source, "fake").await;
        let mut flood = Vec::new();
        for _ in 0..800_000 {
            let head = Head { kind: Kind::Acknowledged, epoch: source.epoch, number: 10 };
            stream::write(&mut flood, head, b"");
        }
        let flooding = tokio::spawn(async move { fake.write_all(&flood).await.is_ok() });
        works(&source, &mut innocent, &mut frames).await;
        gone(serving, "a flood").await;
        flooding.await.unwrap();
        // A frame that would have to be kept until it is complete.
        let (mut fake, serving) = ask(&source, "fake").await;
        fake.write_all(&(1_u32 << 20).to_le_bytes()).await.unwrap();
        fake.write_all(&[0; HEADER]).await.unwrap();
        gone(serving, "a long frame").await;
        works(&source, &mut innocent, &mut frames).await;
        assert_eq!(names(&source), ["innocent"]);
    }

    /// Many peers that ask for copies and read nothing: they share snapshots, are few at a time, and a standby
    /// that reads gets its copy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn copies_are_bounded_in_number() {
        let directory = tempfile::tempdir().unwrap();
        let (source, mut innocent, mut frames) = with_innocent(directory.path(), 16 << 10).await;
        let mut fakes = Vec::new();
        for number in 0..100 {
            fakes.push(ask(&source, &format!("fake{number}")).await);
            // One that connected later could take the place of a standby that has taken nothing yet.
            let started = Instant::now();
            while source.instance_role.connections().1 < number + 2 {
                assert!(started.elapsed() < PATIENCE, "fake{number} is not connected");
                sleep(Duration::from_millis(1)).await;
            }
            let connected = source.instance_role.connections().0;
            assert!(connected <= 16, "{connected} connections after fake{number}");
        }
        let (mut standby, _serving) = ask(&source, "standby").await;
        let mut read = Frames::within(MAX_PAYLOAD);
        let copied = |head: &Head| head.kind == Kind::CaughtUp;
        read_until(&mut standby, &mut read, copied).await;
        let started = Instant::now();
        while fakes.iter().filter(|(_, serving)| !serving.is_finished()).count() > 16 {
            assert!(started.elapsed() < PATIENCE, "fakes without a connection are still served");
            sleep(Duration::from_millis(1)).await;
        }
        works(&source, &mut innocent, &mut frames).await;
        let started = Instant::now();
        while !names(&source).contains(&"standby".to_owned()) {
            assert!(started.elapsed() < PATIENCE, "{:?}", names(&source));
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn standbys_that_ask_in_one_moment_share_a_snapshot() {
        let directory = tempfile::tempdir().unwrap();
        let source = leader(directory.path());
        let number = source.journal.append(b"a record").unwrap();
        source.journal.wait_for(number).await.unwrap();
        // An earlier one is still being read.
        let reading = source.snapshots.newest.lock().await;
        let asked: Vec<_> = (0..10)
            .map(|_| {
                let (source, asked) = (source.clone(), Instant::now());
                tokio::spawn(async move { source.snapshot(asked).await.unwrap() })
            })
            .collect();
        drop(reading);
        let mut snapshots = Vec::new();
        for asked in asked {
            snapshots.push(asked.await.unwrap());
        }
        assert!(snapshots.iter().all(|one| Arc::ptr_eq(one, &snapshots[0])));
        let later = source.snapshot(Instant::now()).await.unwrap();
        assert!(!Arc::ptr_eq(&later, &snapshots[0]), "it may lack what came meanwhile");
    }
}
