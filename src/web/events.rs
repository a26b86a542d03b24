//! Live events: a stream of server-sent events.
//!
//! The last events are kept in a ring. Each stream has a position in it and continues at its own
//! pace; a stream that is too slow for the ring, or is not read, is ended. Nothing here waits for a
//! reader, and publishing only adds an entry to the ring. An event leaves when the record of the journal
//! that it follows from is committed.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::{Debug, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corona_access::{Change, Done, Following, Peer, Rights};
use corona_api::events::Event;
use http_body_util::Either;
use hyper::StatusCode;
use hyper::body::{Body, Frame};
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::exchange::{self, Answer, Parameters};
use corona_model::types::Millis;

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

/// How far the journal is committed, for events that must not leave before.
pub trait Commits: Debug + Send + Sync + 'static {
    /// Whether a record is committed.
    fn has(&self, record: u64) -> bool;

    /// Waits until it is.
    fn wait_for(&self, record: u64) -> impl Future<Output = ()> + Send;
}

/// Of events that are published when all that they follow from is committed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committed;

impl Commits for Committed {
    fn has(&self, _record: u64) -> bool {
        true
    }

    async fn wait_for(&self, _record: u64) {}
}

/// An event with its number and time.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    number: u64,
    /// The record of the journal that must be committed before the event leaves.
    record: u64,
    /// When it happened.
    pub at: Millis,
    /// The event.
    pub event: Event,
}

impl Published {
    /// Its number: one more than that of the event before.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Whether a person who sees the pages may want to read about it later; pages list jobs and tasks themselves.
fn is_notable(event: &Event) -> bool {
    event.job().is_none()
        && !matches!(event, Event::SessionGranted { .. } | Event::PrivilegedAction { .. })
}

/// Who may read it.
fn rights(event: &Event) -> Rights {
    match event {
        Event::PrivilegedAction { .. } => Rights::ADMIN,
        _ => Rights::MEMBERS,
    }
}

/// All events, and the channel to their subscribers.
#[derive(Debug)]
pub struct Events<C> {
    log: Mutex<Log>,
    /// The number of the last event.
    newest: watch::Sender<u64>,
    commits: C,
    /// Distinguishes the numbers of this process from those of another.
    epoch: Box<str>,
    places: Arc<Semaphore>,
    most: usize,
}

#[derive(Debug)]
struct Log {
    /// Events with consecutive numbers.
    ring: VecDeque<Arc<Published>>,
    notable: VecDeque<Arc<Published>>,
    last: u64,
}

impl<C: Commits> Events<C> {
    /// `now` distinguishes this process from others; at most `most` streams are open at the same
    /// time.
    pub fn new(now: Millis, most: usize, commits: C) -> Events<C> {
        let log = Log { ring: VecDeque::new(), notable: VecDeque::new(), last: 0 };
        Events {
            log: Mutex::new(log),
            newest: watch::Sender::new(0),
            commits,
            epoch: now.0.to_string().into(),
            places: Arc::new(Semaphore::new(most)),
            most,
        }
    }

    /// Publishes to all streams once the record `committed` of the journal is.
    pub fn add(&self, at: Millis, event: Event, committed: u64) {
        let mut log = self.log();
        log.last += 1;
        let number = log.last;
        let published = Arc::new(Published { number, record: committed, at, event });
        if is_notable(&published.event) {
            push(&mut log.notable, published.clone(), NOTABLE);
        }
        push(&mut log.ring, published, KEPT);
        drop(log);
        self.newest.send_replace(number);
    }

    /// Publishes what is done to the cluster or to jobs at this daemon, forever. No journal has anything of it.
    pub async fn publish_actions(&self) {
        let mut actions = Following::new();
        loop {
            for Done { time_ms, action } in actions.next().await {
                let event = Event::PrivilegedAction {
                    changes: match action.changes {
                        Change::Cluster => "cluster".to_owned(),
                        Change::Jobs => "jobs".to_owned(),
                    },
                    role: action.role.map(|role| role.to_string()),
                    name: action.name.clone(),
                    access: action.access.map(|access| access.to_string()),
                    from: action.from.clone(),
                    action: action.action.clone(),
                    outcome: action.outcome.clone(),
                };
                self.add(Millis(time_ms), event, 0);
            }
        }
    }

    /// The last events that people may want to read of, the latest first.
    pub fn notable(&self) -> Vec<Arc<Published>> {
        let log = self.log();
        let committed = |event: &&Arc<Published>| self.commits.has(event.record);
        log.notable.iter().rev().filter(committed).cloned().collect()
    }

    /// Open streams.
    pub fn subscribers(&self) -> usize {
        self.most - self.places.available_permits()
    }

    /// A new stream. `None` when too many are open. Needs a tokio runtime.
    pub fn subscribe(
        self: &Arc<Self>,
        begin: Begin<'_>,
        end: End,
        wanted: Wanted,
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
        let events = self.clone();
        let writer = Writer { events, newest, pieces, end, wanted, _place: place };
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

    /// The answer to a request for a stream: after the event `last_id`, which the client has seen last;
    /// else from as many back as `last` in the query says, or from now on. With `follow` `0` or `false` the
    /// stream ends with the last event.
    pub fn answer(
        self: &Arc<Self>,
        last_id: Option<&str>,
        parameters: &Parameters,
        wanted: Wanted,
        stop: watch::Receiver<bool>,
    ) -> Answer<Stream> {
        let back = match parameters.text("last").map(str::parse) {
            None => None,
            Some(Ok(count)) => Some(count),
            Some(Err(_)) => {
                let sentence = "last: expected a number of events\n";
                return exchange::text(StatusCode::BAD_REQUEST, sentence);
            }
        };
        let begin = match (last_id, back) {
            (Some(id), _) => Begin::Behind(id),
            (None, Some(count)) => Begin::Back(count),
            (None, None) => Begin::Now,
        };
        let end = match parameters.text("follow") {
            Some("0" | "false") => End::CaughtUp,
            _ => End::Never,
        };
        match self.subscribe(begin, end, wanted, stop) {
            Some(stream) => streamed(stream),
            None => {
                let sentence = "too many event streams are open\n";
                let mut answer = exchange::text(StatusCode::SERVICE_UNAVAILABLE, sentence);
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
                answer
            }
        }
    }

    /// The number in an id of this process; `None` for any other text.
    fn number_of(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        let number = number.parse().ok()?;
        (*epoch == *self.epoch && number <= self.log().last).then_some(number)
    }

    /// The events behind number `seen`, not too many at once, and how many before them are lost.
    fn behind(&self, seen: u64) -> (u64, Vec<Arc<Published>>) {
        let log = self.log();
        let first = log.ring.front().map_or(log.last + 1, |event| event.number);
        let lost = first.saturating_sub(seen + 1);
        let skip = usize::try_from((seen + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        (lost, log.ring.iter().skip(skip).take(IN_ONE_PIECE).cloned().collect())
    }

    fn write(&self, out: &mut String, published: &Published) {
        let Published { number, at, event, .. } = published;
        // Writing to a string does not fail.
        let _ = writeln!(out, "id: {}-{number}", self.epoch);
        event.write(out, Some(at.0));
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(ring: &mut VecDeque<Arc<Published>>, event: Arc<Published>, most: usize) {
    if ring.len() >= most {
        ring.pop_front();
    }
    ring.push_back(event);
}

/// Which events a stream has.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those about one job; none for all.
    pub job: Option<Box<str>>,
    /// Those that this peer may read; none where everybody may.
    pub reader: Option<Peer>,
}

impl Wanted {
    fn has(&self, event: &Event) -> bool {
        let may_read = |reader: &Peer| reader.objection(|| rights(event)).is_none();
        self.job.as_deref().is_none_or(|job| event.job() == Some(job))
            && self.reader.as_ref().is_none_or(may_read)
    }
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin<'a> {
    /// With the next event.
    Now,
    /// With the last so many events, or as many of them as are kept.
    Back(u64),
    /// Behind the event with this id.
    Behind(&'a str),
}

/// Where a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not by itself.
    Never,
    /// With the last event.
    CaughtUp,
}

/// Fills one stream.
struct Writer<C> {
    events: Arc<Events<C>>,
    newest: watch::Receiver<u64>,
    pieces: mpsc::Sender<Bytes>,
    end: End,
    /// Other events are left out.
    wanted: Wanted,
    _place: OwnedSemaphorePermit,
}

impl<C: Commits> Writer<C> {
    /// Runs until the reader disconnects or is too slow. `seen` is the last event that the client
    /// has; an error if it has an unknown one, with the number of the last one.
    async fn run(mut self, seen: Result<u64, u64>) {
        let mut piece = GREETING.to_owned();
        let mut seen = seen.unwrap_or_else(|last| {
            Event::Missed { count: None }.write(&mut piece, None);
            last
        });
        loop {
            let (lost, events) = self.events.behind(seen);
            if lost > 0 {
                Event::Missed { count: Some(lost) }.write(&mut piece, None);
                seen += lost;
            }
            let mut committed = 0;
            for event in events {
                if piece.len() >= PIECE_BYTES {
                    break;
                }
                if self.wanted.has(&event.event) {
                    self.events.write(&mut piece, &event);
                }
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

fn streamed(stream: Stream) -> Answer<Stream> {
    let answer: Answer<Stream> =
        exchange::respond(StatusCode::OK, "text/event-stream", Bytes::new());
    let mut answer = answer.map(|_| Either::Right(stream));
    // A proxy must not keep events back until there are more.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    answer.headers_mut().insert(unbuffered, HeaderValue::from_static("no"));
    answer
}

/// The body of a response without an end.
#[derive(Debug)]
pub struct Stream(mpsc::Receiver<Bytes>);

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
    use corona_model::types::SessionStatus;

    use super::*;

    fn ended(number: u64) -> Event {
        let session = format!("2026.{number}").into();
        Event::SessionEnded { session, status: SessionStatus::Killed }
    }

    fn events(most: usize) -> (Arc<Events<Committed>>, watch::Sender<bool>) {
        (Arc::new(Events::new(Millis(77), most, Committed)), watch::Sender::new(false))
    }

    /// Commits of a journal.
    #[derive(Debug)]
    struct Journal(watch::Receiver<u64>);

    impl Commits for Journal {
        fn has(&self, record: u64) -> bool {
            record <= *self.0.borrow()
        }

        async fn wait_for(&self, record: u64) {
            self.0.clone().wait_for(|committed| record <= *committed).await.unwrap();
        }
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
            let session = format!("{number:0LONG$}").into();
            events.add(
                Millis(5),
                Event::SessionEnded { session, status: SessionStatus::Killed },
                0,
            );
        }
        let mut stream = events
            .subscribe(Begin::Behind("77-0"), End::Never, Wanted::default(), stop.subscribe())
            .unwrap();
        let mut seen = 0;
        while seen < 100 {
            let piece = next(&mut stream).await.unwrap();
            assert!(piece.len() < PIECE_BYTES + LONG + 200, "{}", piece.len());
            seen += piece.matches("event: session_ended").count();
        }
    }

    #[tokio::test]
    async fn a_stream_tells_what_happens_from_its_beginning_on() {
        let (events, stop) = events(2);
        events.add(Millis(5), ended(1), 0);
        let mut stream =
            events.subscribe(Begin::Now, End::Never, Wanted::default(), stop.subscribe()).unwrap();
        assert_eq!(next(&mut stream).await.unwrap(), GREETING);
        events.add(Millis(6), ended(2), 0);
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
        let commits = Journal(committed.subscribe());
        let events = Arc::new(Events::new(Millis(77), 2, commits));
        let stop = watch::Sender::new(false);
        let begin = || {
            events.subscribe(Begin::Behind("77-0"), End::Never, Wanted::default(), stop.subscribe())
        };
        events.add(Millis(5), ended(1), 3);
        let mut stream = begin().unwrap();
        assert!(next(&mut stream).await.unwrap().contains("id: 77-1"));
        events.add(Millis(6), ended(2), 4);
        assert_eq!(events.notable().len(), 1, "pages list the first only");
        let waits = timeout(Duration::from_millis(20), stream.0.recv()).await;
        assert!(waits.is_err(), "{waits:?}");
        committed.send_replace(4);
        assert!(next(&mut stream).await.unwrap().contains("id: 77-2"));
        assert_eq!(events.notable().len(), 2);
    }

    #[tokio::test]
    async fn a_reader_that_reconnects_continues_where_it_was() {
        let (events, stop) = events(9);
        for number in 1..=3 {
            events.add(Millis(0), ended(number), 0);
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
            let mut stream =
                events.subscribe(begin, End::Never, Wanted::default(), stop.subscribe()).unwrap();
            let piece = next(&mut stream).await.unwrap();
            let lines = piece
                .lines()
                .filter(|line| line.starts_with("id:") || line.starts_with("event: missed"));
            assert_eq!(lines.collect::<Vec<_>>().join(" "), told, "{last_id}");
        }
    }

    #[tokio::test]
    async fn events_lost_by_the_ring_are_reported_as_missed() {
        let (events, stop) = events(1);
        for number in 1..=KEPT as u64 + 10 {
            events.add(Millis(0), ended(number), 0);
        }
        let begin = Begin::Behind("77-4");
        let mut stream =
            events.subscribe(begin, End::Never, Wanted::default(), stop.subscribe()).unwrap();
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
                events.add(Millis(0), ended(number), 0);
            }
            let begin = Begin::Back(back);
            let mut stream = events
                .subscribe(begin, End::CaughtUp, Wanted::default(), stop.subscribe())
                .unwrap();
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
            events.add(Millis(0), ended(number), 0);
        }
        let begin = Begin::Back(u64::MAX);
        let mut stream =
            events.subscribe(begin, End::CaughtUp, Wanted::default(), stop.subscribe()).unwrap();
        let mut count = 0;
        while let Some(piece) = next(&mut stream).await {
            count += piece.matches("id: ").count();
        }
        assert_eq!(count, KEPT);
    }

    #[tokio::test]
    async fn streams_are_bounded_and_give_their_place_back() {
        let (events, stop) = events(1);
        let subscribe =
            || events.subscribe(Begin::Now, End::Never, Wanted::default(), stop.subscribe());
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
        let mut stream =
            events.subscribe(Begin::Now, End::Never, Wanted::default(), stop.subscribe()).unwrap();
        for number in 1..=20 {
            events.add(Millis(0), ended(number), 0);
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
        let mut stream =
            events.subscribe(Begin::Now, End::Never, Wanted::default(), stop.subscribe()).unwrap();
        assert_eq!(next(&mut stream).await.unwrap(), GREETING);
        assert_eq!(next(&mut stream).await.unwrap(), ": still here\n\n");
        assert_eq!(next(&mut stream).await.unwrap(), ": still here\n\n");
    }

    #[tokio::test]
    async fn a_stream_may_be_about_one_job() {
        let (events, stop) = events(1);
        for job in ["job_1", "job_2", "job_1", "job_3"] {
            events.add(Millis(0), Event::JobRunning { job: job.into() }, 0);
        }
        let (begin, end) = (Begin::Back(9), End::CaughtUp);
        let wanted = Wanted { job: Some("job_1".into()), reader: None };
        let mut stream = events.subscribe(begin, end, wanted, stop.subscribe()).unwrap();
        let mut text = String::new();
        while let Some(piece) = next(&mut stream).await {
            text.push_str(&piece);
        }
        let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(ids, ["77-1", "77-3"]);
    }
}
