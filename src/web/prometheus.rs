//! Metrics as Prometheus reads them: text of version 0.0.4. Values of labels are escaped.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use corona_process::histogram::Snapshot;
use hyper::StatusCode;

use crate::exchange::{self, Answer};

/// The content type of the response.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The response with this text.
pub fn answer<S>(text: String) -> Answer<S> {
    exchange::respond(StatusCode::OK, CONTENT_TYPE, text)
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts below bounds.
    Histogram,
}

impl Shape {
    /// The name of the shape in a `# TYPE` line.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram => "histogram",
        }
    }
}

/// A metric's name and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The metric's name.
    pub name: &'static str,
    /// Its type.
    pub shape: Shape,
    /// The counted thing, and its unit.
    pub help: &'static str,
}

/// Declares families, and `FAMILIES`: all names, in the order in which they are served, those of
/// [`process`](super::process) last.
#[macro_export]
macro_rules! families {
    ($($constant:ident = $shape:ident $name:literal $help:literal;)*) => {
        $(const $constant: $crate::prometheus::Family = $crate::prometheus::Family {
            name: $name,
            shape: $crate::prometheus::Shape::$shape,
            help: $help,
        };)*

        /// All names, in the order in which they are served.
        #[cfg(test)]
        pub(crate) const FAMILIES: &[$crate::prometheus::Family] = &[
            $($constant,)*
            $crate::process::RESIDENT,
            $crate::process::OPEN_FILES,
            $crate::process::OPEN_FILES_LIMIT,
            $crate::process::ALLOWED,
            $crate::process::MEMORY_LIMIT,
            $crate::process::THREADS_LIMIT,
            $crate::process::PLAIN_CONNECTIONS,
            $crate::process::THREADS,
            $crate::process::CPU,
            $crate::process::STARTED,
        ];
    };
}
pub use families;

/// The text as far as it is written. Writing to a string does not fail.
pub struct Text(pub String);

impl Text {
    /// Starts a family: its help and type lines.
    pub fn family(&mut self, family: Family) -> Samples<'_> {
        let Family { name, shape, help } = family;
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", shape.name());
        Samples { name, out: &mut self.0 }
    }
}

/// Writes the samples of one family.
pub struct Samples<'a> {
    /// The family's name.
    pub name: &'static str,
    /// The text to append to.
    pub out: &'a mut String,
}

/// Names and values of labels, in the order in which they are written.
pub type Labels<'a> = [(&'a str, &'a str)];

impl Samples<'_> {
    /// Writes a sample without labels.
    pub fn value(&mut self, value: impl Display) {
        self.labelled(&[], value);
    }

    /// Writes a sample with these labels.
    pub fn labelled(&mut self, labels: &Labels<'_>, value: impl Display) {
        let _ = writeln!(self.out, "{}{} {value}", self.name, InBraces(labels));
    }

    /// Writes a histogram whose buckets end with each of this many octaves of a microsecond.
    pub fn histogram_of(&mut self, labels: &Labels<'_>, snapshot: &Snapshot, octaves: usize) {
        let count = snapshot.count();
        let name = self.name;
        for (end, below) in snapshot.octaves(octaves) {
            let end = Duration::as_secs_f64(&end).to_string();
            let labels = [labels, &[("le", &*end)]].concat();
            let _ = writeln!(self.out, "{name}_bucket{} {below}", InBraces(&labels));
        }
        let labels_of_all = [labels, &[("le", "+Inf")]].concat();
        let _ = writeln!(self.out, "{name}_bucket{} {count}", InBraces(&labels_of_all));
        let sum = snapshot.sum().as_secs_f64();
        let _ = writeln!(self.out, "{name}_sum{} {sum}", InBraces(labels));
        let _ = writeln!(self.out, "{name}_count{} {count}", InBraces(labels));
    }

    /// Writes a sample if there is a value.
    pub fn labelled_if_any(&mut self, labels: &Labels<'_>, value: Option<impl Display>) {
        if let Some(value) = value {
            self.labelled(labels, value);
        }
    }
}

/// Labels in braces, values escaped; nothing when there are none.
pub struct InBraces<'a>(pub &'a Labels<'a>);

impl Display for InBraces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}=\"", if position == 0 { '{' } else { ',' })?;
            for character in value.chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    other => f.write_char(other)?,
                }
            }
            f.write_char('"')?;
        }
        f.write_str(if self.0.is_empty() { "" } else { "}" })
    }
}
