//! The limits on log lines of one kind.
//!
//! An overloaded cluster or a hostile peer can cause the same line a hundred thousand times a
//! second, or put megabytes into it. Lines of one kind, from one place in the program, are written up
//! to a maximum per second; the others are counted, and reported in one line when the second is over.
//! A line has a limit in bytes, and the lines of one kind share another one per second: after that,
//! lines are cut to 256 bytes until the second is over. So a flood of long lines leaves room for lines
//! of other kinds and for short lines of the same kind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The window in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// The length of a line after earlier lines have used up the bytes of their kind.
pub const SHORT_LINE_BYTES: usize = 256;

/// The limits; 0 means no limit.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Lines of one kind per second.
    pub lines: u32,
    /// Bytes of one kind per second, after which lines are cut.
    pub bytes: usize,
    /// Bytes of one line.
    pub line_bytes: usize,
}

/// Keeps the log within its limits.
pub(super) struct LogRate {
    limits: LogLimits,
    report: Box<dyn Fn(LeftOut) + Send + Sync>,
    counts: Mutex<Counts>,
}

/// The layer that asks a [`LogRate`] about each event before it is formatted.
pub(super) struct Gate(pub(super) Arc<LogRate>);

/// Lines that were omitted in a window.
#[derive(Clone, Copy)]
pub(super) struct LeftOut {
    /// Where the lines come from.
    pub(super) kind: &'static Metadata<'static>,
    /// How many there were.
    pub(super) lines: u64,
}

struct Counts {
    began: Instant,
    by_kind: HashMap<Identifier, Kind, ahash::RandomState>,
}

struct Kind {
    metadata: &'static Metadata<'static>,
    lines: u64,
    bytes: usize,
}

impl LogRate {
    /// `report` is called when a second is over, once for each kind with omitted lines. It must not
    /// log.
    pub(super) fn new(
        limits: LogLimits,
        report: impl Fn(LeftOut) + Send + Sync + 'static,
    ) -> Arc<LogRate> {
        let by_kind = HashMap::with_hasher(ahash::RandomState::new());
        let counts = Mutex::new(Counts { began: Instant::now(), by_kind });
        Arc::new(LogRate { limits, report: Box::new(report), counts })
    }

    /// Whether a line of the kind may be written at `now`.
    fn admit(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let (admitted, over) = {
            let mut counts = self.counts();
            let over = counts.end_window(now, self.limits.lines);
            let kind = counts.kind(metadata);
            kind.lines += 1;
            (self.limits.lines == 0 || kind.lines <= u64::from(self.limits.lines), over)
        };
        over.into_iter().for_each(&self.report);
        admitted
    }

    /// The maximum length of the next line of the kind.
    pub(super) fn line_bytes(&self, metadata: &'static Metadata<'static>) -> usize {
        let LogLimits { bytes, line_bytes, .. } = self.limits;
        let line_bytes = if line_bytes == 0 { usize::MAX } else { line_bytes };
        if bytes > 0 && self.counts().kind(metadata).bytes >= bytes {
            return line_bytes.min(SHORT_LINE_BYTES);
        }
        line_bytes
    }

    /// Counts the bytes of a written line.
    pub(super) fn wrote(&self, metadata: &'static Metadata<'static>, bytes: usize) {
        if self.limits.bytes > 0 {
            let mut counts = self.counts();
            let kind = counts.kind(metadata);
            kind.bytes = kind.bytes.saturating_add(bytes);
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn kind(&mut self, metadata: &'static Metadata<'static>) -> &mut Kind {
        let kind = self.by_kind.entry(metadata.callsite());
        kind.or_insert(Kind { metadata, lines: 0, bytes: 0 })
    }

    /// Starts a new window if the current one is over, and returns the lines that were omitted in it.
    fn end_window(&mut self, now: Instant, most: u32) -> Vec<LeftOut> {
        if now.saturating_duration_since(self.began) < WINDOW {
            return Vec::new();
        }
        self.began = now;
        let mut over = Vec::new();
        for kind in self.by_kind.values_mut() {
            kind.bytes = 0;
            let lines = std::mem::take(&mut kind.lines).saturating_sub(most.into());
            if lines > 0 && most > 0 {
                over.push(LeftOut { kind: kind.metadata, lines });
            }
        }
        over.sort_unstable_by_key(|left_out| (left_out.kind.target(), left_out.kind.line()));
        over
    }
}

impl<S: Subscriber> Layer<S> for Gate {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let LogLimits { lines, bytes, .. } = self.0.limits;
        (lines == 0 && bytes == 0) || self.0.admit(event.metadata(), Instant::now())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tracing::callsite::{Callsite, DefaultCallsite};
    use tracing::field::FieldSet;
    use tracing::metadata::Kind as MetadataKind;
    use tracing::{Level, Metadata};

    use super::*;

    macro_rules! kind {
        ($name:ident, $callsite:ident, $target:literal) => {
            static $callsite: DefaultCallsite = DefaultCallsite::new(&$name);
            pub(crate) static $name: Metadata<'static> = Metadata::new(
                "event",
                $target,
                Level::WARN,
                Some(concat!($target, ".rs")),
                Some(1),
                None,
                FieldSet::new(&[], tracing::callsite::Identifier(&$callsite)),
                MetadataKind::EVENT,
            );
        };
    }

    kind!(STORM, STORM_PLACE, "storm");
    kind!(CALM, CALM_PLACE, "calm");

    #[test]
    fn lines_beyond_the_rate_are_counted_and_reported_after_the_second() {
        assert_eq!(STORM.callsite(), Identifier(&STORM_PLACE as &dyn Callsite));
        let reported = Arc::new(Mutex::new(Vec::new()));
        let to = reported.clone();
        let limits = LogLimits { lines: 3, bytes: 0, line_bytes: 0 };
        let rate = LogRate::new(limits, move |left_out: LeftOut| {
            to.lock().unwrap().push((left_out.kind.target(), left_out.lines));
        });
        let reported = || reported.lock().unwrap().clone();
        let start = Instant::now();
        let admitted = (0..10).filter(|_| rate.admit(&STORM, start)).count();
        assert_eq!(admitted, 3);
        assert!(rate.admit(&CALM, start), "another kind has a number of its own");
        assert_eq!(reported(), []);

        assert!(rate.admit(&CALM, start + 2 * WINDOW));
        assert_eq!(reported(), [("storm", 7)]);
        assert!(rate.admit(&STORM, start + 2 * WINDOW), "a new second, a new number");
        assert!(rate.admit(&CALM, start + 4 * WINDOW));
        assert_eq!(reported().len(), 1, "nothing was left out since");
    }

    #[test]
    fn long_lines_use_up_the_bytes_of_their_kind_and_are_cut_short_then() {
        let limits = LogLimits { lines: 0, bytes: 1_000, line_bytes: 600 };
        let rate = LogRate::new(limits, |_| panic!("nothing is left out"));
        let start = Instant::now();
        let next = |kind, at| {
            assert!(rate.admit(kind, at));
            rate.line_bytes(kind)
        };
        for bytes in [600, 600, SHORT_LINE_BYTES, SHORT_LINE_BYTES] {
            assert_eq!(next(&STORM, start), bytes);
            rate.wrote(&STORM, bytes);
        }
        assert_eq!(next(&CALM, start), 600, "another kind has bytes of its own");
        assert_eq!(next(&STORM, start + WINDOW), 600, "a new second, new bytes");
        let unlimited = LogLimits { lines: 0, bytes: 0, line_bytes: 0 };
        let rate = LogRate::new(unlimited, |_| {});
        rate.wrote(&STORM, 1 << 30);
        assert_eq!(rate.line_bytes(&STORM), usize::MAX);
    }
}
