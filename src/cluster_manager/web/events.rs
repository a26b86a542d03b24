//! Live events: `/api/v1/events`, a stream of server-sent events.
//!
//! The last events are kept in a ring. Each stream has a position in it and continues at its own
//! pace; a stream that is too slow for the ring, or is not read, is ended. Nothing here waits for a
//! reader, and publishing only adds an entry to the ring. An event leaves when the record of the journal
//! that it follows from is committed. `docs/web.md` lists the events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::commits::Commits;
use corona_engine::{Record, Starvation};
use corona_model::types::{Millis, PoolName, ResourceType, SessionStatus};

/// Events that are kept for streams that reconnect.
const KEPT: usize = 4096;
/// Of those that people want to read later, so many are kept.
const NOTABLE: usize = 50;
/// Events that are sent in one piece.
const IN_ONE_PIECE: usize = 256;
/// A piece to which nothing more is added.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for a slow reader.
const PIECES_AHEAD: usize = 4;
/// How long a reader may take for a piece.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a comment shows that the stream is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The start of a stream: how long a browser waits before it reconnects.
const GREETING: &str = "retry: 3000\n\n";

/// Something that happened, under the name of its variant in snake case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Happening {
    /// A session has started.
    SessionStarted {
        /// Its handle.
        session: Arc<str>,
        name: Arc<str>,
        /// The pool in which it is scheduled.
        #[serde(flatten)]
        pool: PoolName,
    },
    /// A session was given slots.
    SessionGranted {
        /// Its handle.
        session: Arc<str>,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// How many.
        count: u64,
    },
    /// Slots of a session were taken back.
    SessionRevoked {
        /// Its handle.
        session: Arc<str>,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// How many.
        count: u64,
    },
    /// A session has ended.
    SessionEnded {
        /// Its handle.
        session: Arc<str>,
        /// How.
        status: SessionStatus,
    },
    /// A node has come.
    NodeAdded {
        /// Its name.
        node: Arc<str>,
    },
    /// A node expired or restarted.
    NodeLost {
        /// Its name.
        node: Arc<str>,
        /// Whether it was silent for too long; otherwise it restarts.
        expired: bool,
    },
    /// A node has missed too many heartbeats.
    NodeLate {
        /// Its name.
        node: Arc<str>,
        /// The time since its last heartbeat in milliseconds.
        silent_ms: i64,
    },
    /// A late node is on time again.
    NodeOnTime {
        /// Its name.
        node: Arc<str>,
    },
    /// A node is given no more work of a type.
    NodeBlacklisted {
        /// Its name.
        node: Arc<str>,
        #[serde(rename = "type")]
        kind: ResourceType,
    },
    /// An operator has lifted the blacklisting of a node.
    BlacklistCleared {
        /// Its name.
        node: Arc<str>,
        #[serde(rename = "type")]
        kind: ResourceType,
    },
    /// A pool may take slots from others.
    PoolStarving {
        #[serde(flatten)]
        pool: PoolName,
        /// The type of the slots.
        #[serde(rename = "type")]
        kind: ResourceType,
        /// The pool's lack: `minimum` or `share`.
        cause: &'static str,
        /// Slots that it has.
        granted: i64,
    },
    /// Safe mode was switched.
    SafeMode {
        /// Whether it is on now.
        on: bool,
    },
    /// Changed configuration files are in force.
    ConfigurationReloaded {},
    /// This instance leads from now on.
    LeaderElected {
        /// Its name.
        instance: Arc<str>,
        /// The number of the leadership.
        epoch: u64,
    },
    /// The leader was asked to hand over to a standby.
    SteppingDown {
        /// The leader's name.
        instance: Arc<str>,
    },
    /// A standby has a complete copy of the journal and may take over.
    StandbyReady {
        /// Its name.
        instance: Arc<str>,
    },
    /// A standby may not take over any more.
    StandbyLost {
        /// Its name.
        instance: Arc<str>,
    },
}

impl Happening {
    /// `None` for records that are not published.
    fn of(record: &Record) -> Option<Happening> {
        let happening = match record {
            Record::SessionStarted { handle, name, scheduling_pool, .. } => {
                Happening::SessionStarted {
                    session: handle.clone(),
                    name: name.clone(),
                    pool: scheduling_pool.clone(),
                }
            }
            Record::Assigned { handle, kind, count, .. } => {
                Happening::SessionGranted { session: handle.clone(), kind: *kind, count: *count }
            }
            Record::Revoked { handle, kind, count } => {
                Happening::SessionRevoked { session: handle.clone(), kind: *kind, count: *count }
            }
            Record::SessionEnded { handle, status, .. } => {
                Happening::SessionEnded { session: handle.clone(), status: *status }
            }
            Record::NodeAdded { report, .. } => Happening::NodeAdded { node: report.name.clone() },
            Record::NodeLost { name, expired, .. } => {
                Happening::NodeLost { node: name.clone(), expired: *expired }
            }
            Record::NodeLate { name, silent_ms } => {
                Happening::NodeLate { node: name.clone(), silent_ms: *silent_ms }
            }
            Record::NodeOnTime { name } => Happening::NodeOnTime { node: name.clone() },
            Record::NodeBlacklisted { name, kind } => {
                Happening::NodeBlacklisted { node: name.clone(), kind: *kind }
            }
            Record::BlacklistCleared { name, kind } => {
                Happening::BlacklistCleared { node: name.clone(), kind: *kind }
            }
            Record::PoolStarving { pool, kind, cause, granted, .. } => Happening::PoolStarving {
                pool: pool.clone(),
                kind: *kind,
                cause: match cause {
                    Starvation::Minimum => "minimum",
                    Starvation::Share => "share",
                },
                granted: *granted,
            },
            Record::SafeMode { on } => Happening::SafeMode { on: *on },
            Record::SettingsChanged => Happening::ConfigurationReloaded {},
            _ => return None,
        };
        Some(happening)
    }

    /// The event's name in the stream.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Happening::SessionStarted { .. } => "session_started",
            Happening::SessionGranted { .. } => "session_granted",
            Happening::SessionRevoked { .. } => "session_revoked",
            Happening::SessionEnded { .. } => "session_ended",
            Happening::NodeAdded { .. } => "node_added",
            Happening::NodeLost { .. } => "node_lost",
            Happening::NodeLate { .. } => "node_late",
            Happening::NodeOnTime { .. } => "node_on_time",
            Happening::NodeBlacklisted { .. } => "node_blacklisted",
            Happening::BlacklistCleared { .. } => "blacklist_cleared",
            Happening::PoolStarving { .. } => "pool_starving",
            Happening::SafeMode { .. } => "safe_mode",
            Happening::ConfigurationReloaded {} => "configuration_reloaded",
            Happening::LeaderElected { .. } => "leader_elected",
            Happening::SteppingDown { .. } => "stepping_down",
            Happening::StandbyReady { .. } => "standby_ready",
            Happening::StandbyLost { .. } => "standby_lost",
        }
    }

    /// Whether a person may want to read about it later.
    fn is_notable(&self) -> bool {
        !matches!(self, Happening::SessionGranted { .. })
    }
}

/// An event with its number and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    #[serde(skip)]
    number: u64,
    /// The record of the journal that must be committed before the event leaves.
    #[serde(skip)]
    record: u64,
    /// When it happened.
    #[serde(rename = "time_ms")]
    pub(crate) at: Millis,
    /// The event.
    #[serde(flatten)]
    pub(crate) happening: Happening,
}

impl Event {
    /// Its number: one more than that of the event before.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// All events, and the channel to their subscribers.
#[derive(Debug)]
pub(crate) struct Events {
    log: Mutex<Log>,
    /// The number of the last event.
    newest: watch::Sender<u64>,
    commits: Commits,
    /// Distinguishes the numbers of this process from those of another.
    epoch: Box<str>,
    places: Arc<Semaphore>,
    most: usize,
}

#[derive(Debug, Default)]
struct Log {
    /// Events with consecutive numbers.
    ring: VecDeque<Arc<Event>>,
    notable: VecDeque<Arc<Event>>,
    last: u64,
}

impl Events {
    /// `now` distinguishes this process from others; at most `most` streams are open at the same
    /// time.
    pub(crate) fn new(now: Millis, most: usize, commits: Commits) -> Events {
        Events {
            log: Mutex::default(),
            newest: watch::Sender::new(0),
            commits,
            epoch: now.0.to_string().into(),
            places: Arc::new(Semaphore::new(most)),
            most,
        }
    }

    /// Publishes to all streams once the record `committed` of the journal is. Returns whether the
    /// engine's record is an event.
    pub(crate) fn publish(&self, at: Millis, record: &Record, committed: u64) -> bool {
        let Some(happening) = Happening::of(record) else { return false };
        self.add(at, happening, committed);
        true
    }

    /// Publishes to all streams once the record `committed` of the journal is.
    pub(crate) fn add(&self, at: Millis, happening: Happening, committed: u64) {
        let mut log = self.log();
        log.last += 1;
        let number = log.last;
        let event = Arc::new(Event { number, record: committed, at, happening });
        if event.happening.is_notable() {
            push(&mut log.notable, event.clone(), NOTABLE);
        }
        push(&mut log.ring, event, KEPT);
        drop(log);
        self.newest.send_replace(number);
    }

    /// The last events that people may want to read of, the latest first.
    pub(crate) fn notable(&self) -> Vec<Arc<Event>> {
        let log = self.log();
        let committed = |event: &&Arc<Event>| self.commits.has(event.record);
        log.notable.iter().rev().filter(committed).cloned().collect()
    }

    /// Open streams.
    pub(crate) fn subscribers(&self) -> usize {
        self.most - self.places.available_permits()
    }

    /// A new stream. `None` when too many are open. Needs a tokio runtime.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        begin: Begin<'_>,
        end: End,
        stop: watch::Receiver<bool>,
    ) -> Option<Stream> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let newest = self.newest.subscribe();
        let seen = match begin {
            Begin::Now => Ok(*newest.borrow()),
            Begin::Back(count) => {
                let log = self.log();
                let kept = u64::try_from(log.ring.len()).unwrap_or(u64::MAX);
                Ok(log.last.saturating_sub(kept.min(count)))
            }
            Begin::Behind(id) => self.number_of(id).ok_or(*newest.borrow()),
        };
        let (pieces, received) = mpsc::channel(PIECES_AHEAD);
        let writer = Writer { events: self.clone(), newest, pieces, end, _place: place };
        tokio::spawn(async move {
            let mut stop = stop;
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                () = writer.run(seen) => {}
            }
        });
        Some(Stream(received))
    }

    /// The number in an id of this process; `None` for any other text.
    fn number_of(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        let number = number.parse().ok()?;
        (*epoch == *self.epoch && number <= self.log().last).then_some(number)
    }

    /// The events behind number `seen`, not too many at once, and how many before them are lost.
    fn behind(&self, seen: u64) -> (u64, Vec<Arc<Event>>) {
        let log = self.log();
        let first = log.ring.front().map_or(log.last + 1, |event| event.number);
        let lost = first.saturating_sub(seen + 1);
        let skip = usize::try_from((seen + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        (lost, log.ring.iter().skip(skip).take(IN_ONE_PIECE).cloned().collect())
    }

    fn write(&self, out: &mut String, event: &Event) {
        let name = event.happening.name();
        // Numbers and strings always become JSON, and writing to a string does not fail.
        let data = serde_json::to_string(event).unwrap_or_default();
        let _ = write!(out, "id: {}-{}\nevent: {name}\ndata: {data}\n\n", self.epoch, event.number);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(ring: &mut VecDeque<Arc<Event>>, event: Arc<Event>, most: usize) {
    if ring.len() >= most {
        ring.pop_front();
    }
    ring.push_back(event);
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin<'a> {
    /// With the next event.
    Now,
    /// With the last so many events, or as many of them as are kept.
    Back(u64),
    /// Behind the event with this id.
    Behind(&'a str),
}

/// Where a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Not by itself.
    Never,
    /// With the last event.
    CaughtUp,
}

/// Fills one stream.
struct Writer {
    events: Arc<Events>,
    newest: watch::Receiver<u64>,
    pieces: mpsc::Sender<Bytes>,
    end: End,
    _place: OwnedSemaphorePermit,
}

impl Writer {
    /// Runs until the reader disconnects or is too slow. `seen` is the last event that the client
    /// has; an error if it has an unknown one, with the number of the last one.
    async fn run(mut self, seen: Result<u64, u64>) {
        let mut piece = GREETING.to_owned();
        let mut seen = seen.unwrap_or_else(|last| {
            missed(&mut piece, None);
            last
        });
        loop {
            let (lost, events) = self.events.behind(seen);
            if lost > 0 {
                missed(&mut piece, Some(lost));
                seen += lost;
            }
            let mut committed = 0;
            for event in events {
                if piece.len() >= PIECE_BYTES {
                    break;
                }
                self.events.write(&mut piece, &event);
                (seen, committed) = (event.number, event.record);
            }
            tokio::select! {
                biased;
                () = self.events.commits.wait_for(committed) => {}
                () = self.pieces.closed() => return,
            }
            if !piece.is_empty() && !self.send(std::mem::take(&mut piece)).await {
                return;
            }
            if seen < *self.newest.borrow_and_update() {
                continue;
            }
            if self.end == End::CaughtUp {
                return;
            }
            tokio::select! {
                changed = self.newest.changed() => if changed.is_err() { return },
                () = self.pieces.closed() => return,
                () = tokio::time::sleep(HEARTBEAT) => piece.push_str(": still here\n\n"),
            }
        }
    }

    async fn send(&self, piece: String) -> bool {
        let sent = timeout(PATIENCE, self.pieces.send(Bytes::from(piece))).await;
        matches!(sent, Ok(Ok(())))
    }
}

/// Informs a client that it missed events: how many, if that is known.
fn missed(piece: &mut String, count: Option<u64>) {
    let count = count.map(|count| format!("\"count\":{count}")).unwrap_or_default();
    let _ = write!(piece, "event: missed\ndata: {{{count}}}\n\n");
}

/// The body of a response without an end.
#[derive(Debug)]
pub(crate) struct Stream(mpsc::Receiver<Bytes>);

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(number: u64) -> Record {
        Record::SessionEnded {
            handle: format!("2026.{number}").into(),
            address: corona_model::types::Address { host: "h".into(), port: 1 },
            status: SessionStatus::Killed,
            url: None,
            running: 0,
        }
    }

    fn events(most: usize) -> (Arc<Events>, watch::Sender<bool>) {
        (Arc::new(Events::new(Millis(77), most, Commits::everything())), watch::Sender::new(false))
    }

    /// The next piece of a stream, or `None` at its end.
    async fn next(stream: &mut Stream) -> Option<String> {
        let piece = timeout(Duration::from_secs(20), stream.0.recv()).await.unwrap();
        piece.map(|piece| String::from_utf8(piece.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn pieces_are_bounded_in_bytes() {
        let (events, stop) = events(1);
        const LONG: usize = 9000;
        for number in 0..100 {
            let name = format!("{number:0LONG$}").into();
            events.publish(
                Millis(5),
                &Record::NodeLost { name, expired: true, nodes: 0, told: 0 },
                0,
            );
        }
        let mut stream =
            events.subscribe(Begin::Behind("77-0"), End::Never, stop.subscribe()).unwrap();
        let mut seen = 0;
        while seen < 100 {
            let piece = next(&mut stream).await.unwrap();
            assert!(piece.len() < PIECE_BYTES + LONG + 200, "{}", piece.len());
            seen += piece.matches("event: node_lost").count();
        }
    }

    #[tokio::test]
    async fn a_stream_tells_what_happens_from_its_beginning_on() {
        let (events, stop) = events(2);
        events.publish(Millis(5), &ended(1), 0);
        let mut stream = events.subscribe(Begin::Now, End::Never, stop.subscribe()).unwrap();
        assert_eq!(next(&mut stream).await.unwrap(), GREETING);
        assert!(events.publish(Millis(6), &ended(2), 0));
        assert!(!events.publish(Millis(6), &Record::RestartTold { name: "n".into() }, 0));
        assert_eq!(
            next(&mut stream).await.unwrap(),
            "id: 77-2\nevent: session_ended\n\
             data: {\"time_ms\":6,\"session\":\"2026.2\",\"status\":\"KILLED\"}\n\n"
        );
        stop.send_replace(true);
        assert_eq!(next(&mut stream).await, None);
    }

    #[tokio::test]
    async fn events_leave_when_their_records_are_committed() {
        let committed = watch::Sender::new(3);
        let commits = Commits::of(committed.subscribe());
        let events = Arc::new(Events::new(Millis(77), 2, commits));
        let stop = watch::Sender::new(false);
        let begin = || events.subscribe(Begin::Behind("77-0"), End::Never, stop.subscribe());
        events.publish(Millis(5), &ended(1), 3);
        let mut stream = begin().unwrap();
        assert!(next(&mut stream).await.unwrap().contains("id: 77-1"));
        events.publish(Millis(6), &ended(2), 4);
        assert_eq!(events.notable().len(), 1, "pages list the first only");
        let waits = timeout(Duration::from_millis(20), stream.0.recv()).await;
        assert!(waits.is_err(), "{waits:?}");
        committed.send_replace(4);
        assert!(next(&mut stream).await.unwrap().contains("id: 77-2"));
        assert_eq!(events.notable().len(), 2);
    }

    #[tokio::test]
    async fn who_comes_back_goes_on_where_it_was() {
        let (events, stop) = events(9);
        for number in 1..=3 {
            events.publish(Millis(0), &ended(number), 0);
        }
        for (last_id, told) in [
            ("77-1", "id: 77-2 id: 77-3"),
            ("77-3", ""),
            ("77-4", "event: missed"),
            ("76-1", "event: missed"),
            ("nonsense", "event: missed"),
            ("77-99999999999999999999999", "event: missed"),
        ] {
            let begin = Begin::Behind(last_id);
            let mut stream = events.subscribe(begin, End::Never, stop.subscribe()).unwrap();
            let piece = next(&mut stream).await.unwrap();
            let lines = piece
                .lines()
                .filter(|line| line.starts_with("id:") || line.starts_with("event: missed"));
            assert_eq!(lines.collect::<Vec<_>>().join(" "), told, "{last_id}");
        }
    }

    #[tokio::test]
    async fn what_the_ring_has_lost_is_told_as_missed() {
        let (events, stop) = events(1);
        for number in 1..=KEPT as u64 + 10 {
            events.publish(Millis(0), &ended(number), 0);
        }
        let begin = Begin::Behind("77-4");
        let mut stream = events.subscribe(begin, End::Never, stop.subscribe()).unwrap();
        let mut text = String::new();
        while text.matches("id: ").count() < KEPT {
            text.push_str(&next(&mut stream).await.unwrap());
        }
        assert!(text.contains("event: missed\ndata: {\"count\":6}\n\nid: 77-11\n"), "{text}");
        assert!(text.ends_with("\"session\":\"2026.4106\",\"status\":\"KILLED\"}\n\n"), "{text}");
    }

    #[tokio::test]
    async fn a_stream_may_begin_in_the_past_and_end_with_the_present() {
        for (published, back, expected) in [
            (0, 10, ""),
            (3, 0, ""),
            (3, 2, "77-2 77-3"),
            (3, 10, "77-1 77-2 77-3"),
            (KEPT as u64 + 10, 1, "77-4106"),
        ] {
            let (events, stop) = events(1);
            for number in 1..=published {
                events.publish(Millis(0), &ended(number), 0);
            }
            let begin = Begin::Back(back);
            let mut stream = events.subscribe(begin, End::CaughtUp, stop.subscribe()).unwrap();
            let mut text = String::new();
            while let Some(piece) = next(&mut stream).await {
                text.push_str(&piece);
            }
            assert!(!text.contains("missed"), "{published} {back}: {text}");
            let ids: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
            assert_eq!(ids.join(" "), expected, "{published} {back}");
        }
        // All that are kept, however many are asked for.
        let (events, stop) = events(1);
        for number in 1..=KEPT as u64 + 10 {
            events.publish(Millis(0), &ended(number), 0);
        }
        let begin = Begin::Back(u64::MAX);
        let mut stream = events.subscribe(begin, End::CaughtUp, stop.subscribe()).unwrap();
        let mut count = 0;
        while let Some(piece) = next(&mut stream).await {
            count += piece.matches("id: ").count();
        }
        assert_eq!(count, KEPT);
    }

    #[tokio::test]
    async fn streams_are_bounded_and_give_their_place_back() {
        let (events, stop) = events(1);
        let subscribe = || events.subscribe(Begin::Now, End::Never, stop.subscribe());
        let stream = subscribe().unwrap();
        assert_eq!(events.subscribers(), 1);
        assert!(subscribe().is_none());
        drop(stream);
        let freed = async {
            while events.subscribers() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), freed).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_reads_is_ended() {
        let (events, stop) = events(1);
        let mut stream = events.subscribe(Begin::Now, End::Never, stop.subscribe()).unwrap();
        for number in 1..=20 {
            events.publish(Millis(0), &ended(number), 0);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(PATIENCE * 2).await;
        assert_eq!(events.subscribers(), 0);
        let mut pieces = 0;
        while next(&mut stream).await.is_some() {
            pieces += 1;
        }
        assert_eq!(pieces, PIECES_AHEAD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_shows_that_it_is_alive() {
        let (events, stop) = events(1);
        let mut stream = events.subscribe(Begin::Now, End::Never, stop.subscribe()).unwrap();
        assert_eq!(next(&mut stream).await.unwrap(), GREETING);
        assert_eq!(next(&mut stream).await.unwrap(), ": still here\n\n");
        assert_eq!(next(&mut stream).await.unwrap(), ": still here\n\n");
    }

    #[test]
    fn every_event_is_one_line_of_json_with_its_fields() {
        let pool = PoolName::new("g", "p");
        let session: Arc<str> = "2026.1\n\"".into();
        let kind = ResourceType::Map;
        for (happening, json) in [
            (
                Happening::SessionStarted {
                    session: session.clone(),
                    name: "<b>".into(),
                    pool: pool.clone(),
                },
                r#"{"time_ms":1,"session":"2026.1\n\"","name":"<b>","group":"g","pool":"p"}"#,
            ),
            (
                Happening::SessionRevoked { session, kind, count: 3 },
                r#"{"time_ms":1,"session":"2026.1\n\"","type":"MAP","count":3}"#,
            ),
            (
                Happening::PoolStarving { pool, kind, cause: "share", granted: 2 },
                r#"{"time_ms":1,"group":"g","pool":"p","type":"MAP","cause":"share","granted":2}"#,
            ),
            (Happening::SafeMode { on: true }, r#"{"time_ms":1,"on":true}"#),
            (Happening::ConfigurationReloaded {}, r#"{"time_ms":1}"#),
        ] {
            let event = Event { number: 1, record: 0, at: Millis(1), happening };
            assert_eq!(serde_json::to_string(&event).unwrap(), json);
        }
    }
}
