//! The events of a shadow in a file, and back: a recording of the relayed data, with a note for
//! everything else. So the file serves as a recording as well.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::{Configuration, Event, Learnt};
use super::stats::Stats;
use super::stepper::Stepper;
use super::{ShadowError, ShadowOptions};
use crate::capture::{CaptureError, ConnectionId, Limits};
use crate::recording::{self, Entry, Header, MAX_DATA_BYTES, Record, RecordingWriter, Unrecorded};
use crate::report::times::USUAL_TOLERANCE;
use corona_model::types::Millis;

/// A note in the file.
#[derive(Debug, Serialize, Deserialize)]
enum Note {
    Start(Box<Start>),
    Learnt(Learnt),
}

/// The first event of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Start {
    primary: String,
    patience_ms: u64,
    /// Absent in files of versions that compared no times.
    #[serde(default = "usual_tolerance_ms")]
    time_tolerance_ms: u64,
    began_ms: i64,
    configuration: Configuration,
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn usual_tolerance_ms() -> u64 {
    ms(USUAL_TOLERANCE)
}

/// Writes the events of a run. It ends early when the file reaches its limit, or when the disk
/// refuses; the run continues.
#[derive(Debug)]
pub(super) struct EventLog<W> {
    /// None once it has ended early.
    writer: Option<RecordingWriter<W>>,
    max_bytes: u64,
    flushed_at: Duration,
}

/// How old events may become before they are written.
const BLOCK_AGE: Duration = Duration::from_secs(1);

impl<W: io::Write> EventLog<W> {
    /// Starts a file, which becomes no larger than about `max_bytes`.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn start(
        file: W,
        max_bytes: u64,
        options: &ShadowOptions,
        configuration: &Configuration,
        began: Millis,
    ) -> io::Result<EventLog<W>> {
        let header = Header {
            started_at_us: began.0.max(0).unsigned_abs().saturating_mul(1_000),
            relay_callbacks: true,
            upstream: options.primary.clone(),
            ..Header::default()
        };
        let mut writer = RecordingWriter::new(file, &header)?;
        let start = Start {
            primary: options.primary.clone(),
            patience_ms: ms(options.patience),
            time_tolerance_ms: ms(options.time_tolerance),
            began_ms: began.0,
            configuration: configuration.clone(),
        };
        note(&mut writer, Duration::ZERO, &Note::Start(Box::new(start)))?;
        writer.flush()?;
        Ok(EventLog { writer: Some(writer), max_bytes, flushed_at: Duration::ZERO })
    }

    /// Whether no more events are written.
    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.writer.is_none()
    }

    /// Adds an event.
    pub(super) fn write(&mut self, now: Duration, event: &Event) {
        let Some(writer) = &mut self.writer else { return };
        let is_old = now.saturating_sub(self.flushed_at) >= BLOCK_AGE;
        let written = push(writer, now, event).and_then(|()| match is_old {
            true => writer.flush(),
            false => Ok(()),
        });
        if is_old {
            self.flushed_at = now;
        }
        let bytes = writer.whole_bytes();
        match written {
            Ok(()) if bytes < self.max_bytes => {}
            Ok(()) => {
                tracing::warn!(
                    "the file of events has reached {bytes} bytes; later events are not kept"
                );
                self.writer = None;
            }
            Err(error) => {
                tracing::error!(
                    "cannot write to the file of events, later events are not kept: {error}"
                );
                self.writer = None;
            }
        }
    }

    /// Writes the end.
    pub(super) fn finish(&mut self, now: Duration, left_out: Unrecorded) {
        let Some(writer) = &mut self.writer else { return };
        let entry =
            Entry { at: now, connection: ConnectionId(0), record: Record::Finished(left_out) };
        if let Err(error) = writer.write(&entry).and_then(|()| writer.flush()) {
            tracing::error!("cannot write the end of the file of events: {error}");
        }
    }

    /// Where the events went.
    #[cfg(test)]
    pub(super) fn into_inner(self) -> W
    where
        W: Clone,
    {
        self.writer.unwrap().get_mut().clone()
    }
}

fn push<W: io::Write>(
    writer: &mut RecordingWriter<W>,
    now: Duration,
    event: &Event,
) -> io::Result<()> {
    match event {
        Event::Passed(connection, record) => {
            let (connection, record) = (*connection, record.clone());
            writer.write(&Entry { at: now, connection, record })
        }
        Event::Learnt(learnt) => note(writer, now, &Note::Learnt(learnt.clone())),
    }
}

/// Writes a note, in pieces if it is long.
fn note<W: io::Write>(
    writer: &mut RecordingWriter<W>,
    now: Duration,
    note: &Note,
) -> io::Result<()> {
    let text = serde_json::to_vec(note).map_err(io::Error::other)?;
    let mut pieces = text.chunks(MAX_DATA_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        let record = Record::Note { more: pieces.peek().is_some(), text: piece.to_vec() };
        writer.write(&Entry { at: now, connection: ConnectionId(0), record })?;
    }
    Ok(())
}

/// Why events cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The file cannot be read, or another program has written it.
    #[error(transparent)]
    File(#[from] CaptureError),
    /// It is a recording without the events of a shadow.
    #[error("the file has no events of a shadow")]
    NoEvents,
    /// A note in it cannot be understood.
    #[error("a note at {at:?} cannot be understood: {why}")]
    Note {
        /// When it was written, since the start of the run.
        at: Duration,
        /// The reason.
        why: String,
    },
    /// The run cannot start.
    #[error(transparent)]
    Shadow(#[from] ShadowError),
}

/// Bytes of a note.
const MAX_NOTE_BYTES: usize = 256 << 20;

/// Replays the events of a run as they were written down, without waiting, and returns its results. They
/// are those of the run. Of a file that was not written to its end, the whole blocks are replayed.
///
/// # Errors
/// The file cannot be read, or has no events.
pub fn replay_events(source: impl Read) -> Result<Stats, EventsError> {
    let mut replay = Replay { stepper: None, text: Vec::new(), failure: None };
    let limits = Limits { connections: usize::MAX, ..Limits::default() };
    recording::read(source, &limits, |entry| match replay.entry(entry) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            replay.failure = Some(error);
            ControlFlow::Break(())
        }
    })?;
    match (replay.failure, replay.stepper) {
        (Some(error), _) => Err(error),
        (None, Some(stepper)) => Ok(stepper.stats().clone()),
        (None, None) => Err(EventsError::NoEvents),
    }
}

struct Replay {
    stepper: Option<Stepper>,
    /// The pieces of a note.
    text: Vec<u8>,
    failure: Option<EventsError>,
}

impl Replay {
    fn entry(&mut self, entry: Entry) -> Result<(), EventsError> {
        let Entry { at, connection, record } = entry;
        let Record::Note { more, text } = record else {
            let stepper = self.stepper.as_mut().ok_or(EventsError::NoEvents)?;
            step(stepper, at, Event::Passed(connection, record));
            return Ok(());
        };
        self.text.extend_from_slice(&text);
        let wrong = |why: String| EventsError::Note { at, why };
        if self.text.len() > MAX_NOTE_BYTES {
            return Err(wrong("it is too long".to_owned()));
        }
        if more {
            return Ok(());
        }
        let text = std::mem::take(&mut self.text);
        let note = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match (note, &mut self.stepper) {
            (Note::Learnt(learnt), Some(stepper)) => step(stepper, at, Event::Learnt(learnt)),
            (Note::Start(start), None) => {
                let [patience, time_tolerance] =
                    [start.patience_ms, start.time_tolerance_ms].map(Duration::from_millis);
                let options = ShadowOptions { primary: start.primary, patience, time_tolerance };
                let began = Millis(start.began_ms);
                self.stepper = Some(Stepper::new(start.configuration, &options, began)?);
            }
            (Note::Learnt(_), None) => return Err(EventsError::NoEvents),
            (Note::Start(_), Some(_)) => return Err(wrong("a second start".to_owned())),
        }
        Ok(())
    }
}

/// Takes a step. A panic in it was noted when it happened first, and follows as an event.
fn step(stepper: &mut Stepper, at: Duration, event: Event) {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    if catch_unwind(AssertUnwindSafe(|| stepper.step(at, event))).is_err() {
        tracing::warn!("the shadow panicked at {at:?}");
    }
}
