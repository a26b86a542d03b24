//! The rate limit for log lines of one kind.
//!
//! An overloaded cluster or a hostile peer can cause the same line a hundred thousand times a
//! second. Lines of one kind, from one place in the program, are written up to a maximum per
//! second; the others are counted, and reported in one line when the second is over.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The window in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Limits the lines of a kind per second.
pub(crate) struct LogRate<T> {
    most: u32,
    tell: T,
    counts: Mutex<Counts>,
}

/// Lines that were omitted in a window.
#[derive(Clone, Copy)]
pub(crate) struct LeftOut {
    /// Where the lines come from.
    pub(crate) kind: &'static Metadata<'static>,
    /// How many there were.
    pub(crate) lines: u64,
}

struct Counts {
    began: Instant,
    by_kind: HashMap<Identifier, Kind, ahash::RandomState>,
}

struct Kind {
    metadata: &'static Metadata<'static>,
    lines: u64,
}

impl<T: Fn(LeftOut)> LogRate<T> {
    /// `most` lines a second of each kind, 0 for no limit. `tell` is called once for each kind
    /// whose lines were left out in a past second; it must not log.
    pub(crate) fn new(most: u32, tell: T) -> Self {
        let by_kind = HashMap::with_hasher(ahash::RandomState::new());
        let counts = Mutex::new(Counts { began: Instant::now(), by_kind });
        LogRate { most, tell, counts }
    }

    /// Whether a line of the kind may be written at `now`.
    fn admit(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let (admitted, over) = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let over = counts.end_window(now, self.most);
            let kind = counts.by_kind.entry(metadata.callsite());
            let kind = kind.or_insert(Kind { metadata, lines: 0 });
            kind.lines += 1;
            (kind.lines <= u64::from(self.most), over)
        };
        over.into_iter().for_each(&self.tell);
        admitted
    }
}

impl Counts {
    /// Starts a new window if the current one is over, and returns the lines
    /// that were omitted in it.
    fn end_window(&mut self, now: Instant, most: u32) -> Vec<LeftOut> {
        if now.saturating_duration_since(self.began) < WINDOW {
            return Vec::new();
        }
        self.began = now;
        let mut over = Vec::new();
        for kind in self.by_kind.values_mut() {
            let lines = std::mem::take(&mut kind.lines).saturating_sub(most.into());
            if lines > 0 {
                over.push(LeftOut { kind: kind.metadata, lines });
            }
        }
        over.sort_unstable_by_key(|left_out| (left_out.kind.target(), left_out.kind.line()));
        over
    }
}

impl<S: Subscriber, T: Fn(LeftOut) + 'static> Layer<S> for LogRate<T> {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.most == 0 || self.admit(event.metadata(), Instant::now())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use tracing::callsite::{Callsite, DefaultCallsite};
    use tracing::field::FieldSet;
    use tracing::metadata::Kind as MetadataKind;
    use tracing::{Level, Metadata};

    use super::*;

    macro_rules! kind {
        ($name:ident, $callsite:ident, $target:literal) => {
            static $callsite: DefaultCallsite = DefaultCallsite::new(&$name);
            pub(in crate::commands) static $name: Metadata<'static> = Metadata::new(
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
    fn what_is_too_much_is_counted_and_told_when_the_second_is_over() {
        assert_eq!(STORM.callsite(), Identifier(&STORM_PLACE as &dyn Callsite));
        let told = RefCell::new(Vec::new());
        let rate = LogRate::new(3, |left_out: LeftOut| {
            told.borrow_mut().push((left_out.kind.target(), left_out.lines));
        });
        let start = Instant::now();
        let admitted = (0..10).filter(|_| rate.admit(&STORM, start)).count();
        assert_eq!(admitted, 3);
        assert!(rate.admit(&CALM, start), "another kind has a number of its own");
        assert!(told.borrow().is_empty());

        assert!(rate.admit(&CALM, start + 2 * WINDOW));
        assert_eq!(*told.borrow(), [("storm", 7)]);
        assert!(rate.admit(&STORM, start + 2 * WINDOW), "a new second, a new number");
        assert!(rate.admit(&CALM, start + 4 * WINDOW));
        assert_eq!(told.borrow().len(), 1, "nothing was left out since");
    }
}
