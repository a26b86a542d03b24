//! The log of a program, on stderr: levels, limits, and the two formats.
//!
//! `text` has the original's layout, since operators search for it: `2026-11-21 00:05:39,123 INFO
//! target: message`, in local time. `json` is one object a line, for programs.
//! Spec: cluster-manager/08 §5.
//!
//! A thread that serves calls formats the lines that it logs, so this is a crate of its own, which is always
//! optimised. It knows nothing of clusters.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod form;
mod queue;
mod rate;

use std::fmt::Write;
use std::io;
use std::sync::Arc;

use jiff::Zoned;
use thiserror::Error;
use tracing::{Level, Subscriber};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

use form::{JsonLayout, OriginalLayout, write_time};
use rate::{Gate, LeftOut, LogRate};

pub use queue::LogGuard;
pub use rate::{LogLimits, SHORT_LINE_BYTES};
pub use tracing_subscriber::filter::Targets;

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// The original's layout, in local time.
    Text,
    /// One object a line, in UTC.
    Json,
}

/// How a program logs.
#[derive(Clone, Debug)]
pub struct Log {
    /// The form of its lines.
    pub form: LogForm,
    /// Which lines are written.
    pub levels: Targets,
    /// How many, and how long they may be.
    pub limits: LogLimits,
}

/// Why a log cannot be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The thread that writes cannot be started.
    #[error("the thread of the log: {0}")]
    Thread(#[from] io::Error),
    /// There is one.
    #[error("the log is already set up")]
    Again,
}

impl Log {
    /// Starts logging to stderr on a separate thread, because a stuck terminal or pipe must not block the
    /// program. Lines that do not fit into its queue are lost and counted. Dropping the guard writes the
    /// queued lines.
    ///
    /// # Errors
    /// When a log was set up before, or no thread can be started.
    pub fn start(self) -> Result<LogGuard, StartError> {
        let form = self.form;
        let tell = move |lost| {
            let sentence = format!("{lost} lines were lost here because stderr was blocked");
            form.line_for(lost, Level::WARN, module_path!(), &sentence)
        };
        let (queue, guard) = queue::start(io::stderr(), tell)?;
        tracing::subscriber::set_global_default(self.subscriber(queue))
            .map_err(|_| StartError::Again)?;
        Ok(guard)
    }

    fn subscriber<W>(self, writer: W) -> Box<dyn Subscriber + Send + Sync>
    where
        W: for<'w> MakeWriter<'w> + Clone + Send + Sync + 'static,
    {
        let (form, to) = (self.form, writer.clone());
        let rate = LogRate::new(self.limits, move |left_out| form.tell(left_out, &to));
        let gate = Gate(Arc::clone(&rate));
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        match self.form {
            LogForm::Text => {
                let lines = lines.event_format(OriginalLayout::new(rate));
                Box::new(tracing_subscriber::registry().with(lines).with(self.levels).with(gate))
            }
            LogForm::Json => {
                let lines = lines.event_format(JsonLayout(rate));
                Box::new(tracing_subscriber::registry().with(lines).with(self.levels).with(gate))
            }
        }
    }
}

impl LogForm {
    /// Writes a line about omitted lines.
    fn tell<W>(self, LeftOut { kind, lines }: LeftOut, to: &W)
    where
        W: for<'w> MakeWriter<'w>,
    {
        let place = format!("{}:{}", kind.file().unwrap_or("?"), kind.line().unwrap_or(0));
        let sentence = format!("{lines} more lines like those before, from {place}, are left out");
        let line = self.line_for(lines, *kind.level(), kind.target(), &sentence);
        // There is no other place to report a failure of the log.
        let _ = io::Write::write_all(&mut to.make_writer(), line.as_bytes());
    }

    /// The line about omitted lines, as a sentence.
    fn line_for(self, missing: u64, level: Level, target: &str, sentence: &str) -> String {
        let now = Zoned::now();
        let mut line = String::new();
        // Writing to a string does not fail.
        let _ = match self {
            LogForm::Text => write_time(&mut line, &now)
                .and_then(|()| writeln!(line, " {level} {target}: {sentence}")),
            LogForm::Json => {
                let object = serde_json::json!({
                    "timestamp": now.timestamp().to_string(),
                    "level": level.as_str(),
                    "message": sentence,
                    "target": target,
                    "left_out": missing,
                });
                writeln!(line, "{object}")
            }
        };
        line
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::time::Instant;

    use super::rate::tests::STORM;
    use super::*;

    /// Where a test's log goes.
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LIMITS: LogLimits = LogLimits { lines: 200, bytes: 64 << 10, line_bytes: 8 << 10 };

    /// The log that `speak` leaves.
    fn log_of(form: LogForm, levels: &str, speak: impl FnOnce()) -> String {
        log_within(LIMITS, form, levels, speak)
    }

    fn log_within(limits: LogLimits, form: LogForm, levels: &str, speak: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let sink = buffer.clone();
        let log = Log { form, levels: levels.parse().unwrap(), limits };
        tracing::subscriber::with_default(log.subscriber(move || sink.clone()), speak);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// The line without its first 23 characters, which must look like a time.
    fn without_time(line: &str) -> &str {
        let (time, rest) = line.split_at(23);
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "9999-99-99 99:99:99,999");
        rest
    }

    #[test]
    fn text_has_the_layout_of_the_original() {
        let log = log_of(LogForm::Text, "info", || {
            tracing::info!(target: "NodeManager", "Timing out node: {}", "n1");
            tracing::warn!(target: "Session", id = 7, "late");
        });
        let lines: Vec<_> = log.lines().map(without_time).collect();
        assert_eq!(lines, [" INFO NodeManager: Timing out node: n1", " WARN Session: late id=7"]);
    }

    #[test]
    fn hostile_name_cannot_forge_a_line() {
        let log = log_of(LogForm::Text, "info", || {
            tracing::info!(target: "t", name = "a\nb", "x\r\n2026 ERROR \u{1b}[2J{}", "é\u{85}\u{202e}");
        });
        assert_eq!(log.lines().count(), 1);
        let text = without_time(log.trim_end());
        assert!(
            text.starts_with(r" INFO t: x\r\n2026 ERROR \x1b[2Jé\u{85}\u{202e} name="),
            "{text}"
        );
        assert!(!text.contains(corona_model::text::is_hidden));
    }

    #[test]
    fn json_is_one_object_a_line() {
        let log = log_of(LogForm::Json, "info", || {
            tracing::info!(node = "n1", user = "a\u{202e}\u{7f}", "gone\nnow");
        });
        assert_eq!(log.lines().count(), 1);
        assert!(!log.trim_end().contains(corona_model::text::is_hidden), "{log}");
        let object: serde_json::Value = serde_json::from_str(&log).unwrap();
        assert_eq!(object["level"], "INFO");
        assert_eq!(object["message"], "gone\nnow");
        assert_eq!((&object["node"], &object["user"]), (&"n1".into(), &"a\u{202e}\u{7f}".into()));
        assert!(object["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn a_storm_of_one_line_is_cut_and_told() {
        for (form, rate, lines) in
            [(LogForm::Text, 2, 3), (LogForm::Json, 2, 3), (LogForm::Text, 0, 51)]
        {
            let log = log_within(LogLimits { lines: rate, ..LIMITS }, form, "info", || {
                for number in 0..50 {
                    tracing::warn!(number, "again");
                }
                tracing::warn!("something else");
            });
            assert_eq!(log.lines().count(), lines, "{log}");
        }
    }

    /// A peer with long names fills neither the disk nor the queue of the log. Lines that other peers
    /// cause are written whole, from the same place in the program and from others.
    #[test]
    fn a_storm_of_long_lines_leaves_room_for_the_others() {
        fn killed(session: &str) {
            tracing::info!(session, "killing session {session}");
        }
        let name = "x\"\u{1}".repeat(20_000);
        for form in [LogForm::Text, LogForm::Json] {
            let started = Instant::now();
            let log = log_of(form, "info", || {
                for _ in 0..150 {
                    killed(&name);
                }
                killed("202611210005.7");
                tracing::info!(node = "n1", "another place");
            });
            let lines: Vec<&str> = log.lines().collect();
            assert_eq!(lines.len(), 152);
            // In each second 64 KiB in long lines, and a few hundred bytes for each of the others.
            let seconds = started.elapsed().as_secs() as usize + 2;
            assert!(log.len() < seconds * (72 << 10) + 152 * 800, "{} bytes", log.len());
            let (long, rest) = lines.split_at(150);
            assert!(long[0].len() <= (8 << 10) + 300, "{}", long[0].len());
            assert!(long.iter().all(|line| line.contains(" bytes cut)")), "{}", long[149]);
            assert!(rest[0].contains("killing session 202611210005.7"), "{}", rest[0]);
            assert!(rest[1].contains("another place") && rest[1].contains("n1"), "{}", rest[1]);
            assert!(rest.iter().all(|line| !line.contains(" bytes cut)")), "{rest:?}");
            if matches!(form, LogForm::Json) {
                let objects = lines.iter().map(|line| serde_json::from_str(line).unwrap());
                let objects: Vec<serde_json::Value> = objects.collect();
                assert!(objects.iter().all(|object| object["level"] == "INFO"));
            }
        }
    }

    #[test]
    fn omissions_are_reported_in_both_forms() {
        let told = |form: LogForm| {
            let buffer = Buffer::default();
            let sink = buffer.clone();
            form.tell(LeftOut { kind: &STORM, lines: 48 }, &move || sink.clone());
            let bytes = buffer.0.lock().unwrap().clone();
            String::from_utf8(bytes).unwrap()
        };
        let sentence = "48 more lines like those before, from storm.rs:1, are left out";
        assert_eq!(without_time(&told(LogForm::Text)), format!(" WARN storm: {sentence}\n"));
        let object: serde_json::Value = serde_json::from_str(&told(LogForm::Json)).unwrap();
        assert_eq!(object["message"], sentence);
        assert_eq!(object["left_out"], 48);
    }

    #[test]
    fn level_filters_by_part() {
        let log = log_of(LogForm::Text, "warn,loud=debug", || {
            tracing::info!(target: "quiet", "unseen");
            tracing::debug!(target: "loud", "seen");
        });
        assert_eq!(log.lines().map(without_time).collect::<Vec<_>>(), [" DEBUG loud: seen"]);
    }
}
