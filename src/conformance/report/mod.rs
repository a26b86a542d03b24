//! Differences between two cluster managers, as replays and shadows find them.
//!
//! It does not know how the comparison was made. `fields` sets two messages side by side, and
//! `rules` has the rows of the compatibility table that can explain a difference. A replay and a
//! shadow fill a `document`; `text` and `html` render it. `json` has the common part of their JSON.

pub(crate) mod coverage;
pub(crate) mod document;
mod fields;
pub(crate) mod html;
pub(crate) mod json;
mod rules;
pub(crate) mod text;
pub mod times;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use corona_wire::value::Message;

pub use fields::{FieldPair, Fields};
pub use rules::Rule;

/// The subject of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The answer to a call of this method.
    Call(String),
    /// A notification.
    Notice,
    /// The time that a kind of decision took.
    Time,
    /// The run as a whole.
    Run,
}

/// Counts by verdict: of answers, or of entries of notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The same on both sides, in a replay once ids, times and ports are translated.
    pub equal: u64,
    /// Different, which a row of the compatibility table allows.
    pub explained: u64,
    /// Different, which nothing allows.
    pub different: u64,
    /// Not compared, in a shadow.
    pub not_compared: u64,
}

impl Counts {
    /// All that was compared.
    pub fn compared(&self) -> u64 {
        self.equal + self.explained + self.different
    }

    /// Both together.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            equal: self.equal + other.equal,
            explained: self.explained + other.explained,
            different: self.different + other.different,
            not_compared: self.not_compared + other.not_compared,
        }
    }

    /// Counts a difference, which this row allows.
    pub(crate) fn differs(&mut self, rule: Option<Rule>) {
        match rule {
            Some(_) => self.explained += 1,
            None => self.different += 1,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { equal, explained, different, .. } = self;
        let compared = self.compared();
        write!(
            f,
            "{compared} compared: {equal} equal, {explained} explained, {different} different"
        )
    }
}

/// The counts of a method. Methods come from peers, so their number has a bound.
pub(crate) fn of_method<'a>(all: &'a mut BTreeMap<String, Counts>, name: &str) -> &'a mut Counts {
    let is_known = all.contains_key(name) || all.len() < MAX_METHODS;
    all.entry(if is_known { name } else { "others" }.to_owned()).or_default()
}

/// Methods that are counted by name.
pub(crate) const MAX_METHODS: usize = 100;

/// One difference between two cluster managers: the one that is recorded or in service, and the one that
/// is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// When: in a replay since the first packet of the recording, in a shadow since the start of the run.
    pub at: Duration,
    /// What it is about.
    pub about: Subject,
    /// The conversation and call, or the session.
    pub place: String,
    /// The arguments of the call, shortened; empty when it is about none.
    pub arguments: String,
    /// The recording's or the primary's side, on one line; in a replay with names and ports as in the run
    /// under test.
    pub recorded: String,
    /// The side of the cluster manager that is judged, on one line.
    pub live: String,
    /// Both decoded and set side by side; empty where one of them is no message.
    pub fields: Fields,
    /// The row that allows it, if there is one.
    pub rule: Option<Rule>,
}

/// Characters of a side that are kept on its one line.
const MAX_LINE: usize = 4_000;

impl Finding {
    /// A difference between two texts.
    pub(crate) fn of_words(
        at: Duration,
        about: Subject,
        place: String,
        (recorded, live): (String, String),
    ) -> Finding {
        Finding {
            at,
            about,
            place,
            arguments: String::new(),
            recorded: cut(recorded, MAX_LINE),
            live: cut(live, MAX_LINE),
            fields: Fields::default(),
            rule: None,
        }
    }

    /// Two messages that differ, decoded.
    pub(crate) fn with_messages(mut self, recorded: &Message, live: &Message) -> Finding {
        self.fields = Fields::of_messages(recorded, live);
        self
    }
}

/// At most so many characters of a text.
fn cut(text: String, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Some(rule) => write!(f, "explained by '{}'", rule.row)?,
            None => write!(f, "DIFFERENT")?,
        }
        writeln!(f, " at {:.4} s, {}", self.at.as_secs_f64(), self.place)?;
        writeln!(f, "  recorded: {}", self.recorded)?;
        write!(f, "  live:     {}", self.live)
    }
}
