//! The log on stderr: levels, limits, and the two formats.
//!
//! `text` has the original's layout, since operators search for it: `2026-11-21 00:05:39,123 INFO
//! target: message`, in local time. `json` is one object a line, for programs.
//! Spec: cluster-manager/08 §5.

mod form;
mod queue;
mod rate;

use std::fmt::Write;
use std::io;
use std::sync::Arc;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use jiff::Zoned;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

use super::arguments::parse_size;
use form::{JsonLayout, OriginalLayout, write_time};
use queue::LogGuard;
use rate::{Gate, LeftOut, LogLimits, LogRate, SHORT_LINE_BYTES};

/// The default log level, which is the original's.
const DEFAULT_LEVEL: &str = "info";

/// The default maximum of lines of one kind per second.
const DEFAULT_RATE: u32 = 200;

/// The default maximum of their bytes per second.
const DEFAULT_RATE_BYTES: usize = 64 << 10;

/// The default maximum of the bytes of one line.
const DEFAULT_LINE_BYTES: usize = 8 << 10;

/// The logging options of every long-running command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogArguments {
    /// Format of the lines on stderr
    ///
    /// 'text' is the original's layout with local time; 'json' is one object
    /// per line with the time in UTC.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,

    /// Log level, or levels by part of the program
    ///
    /// A level is one of error, warn, info, debug and trace. Levels by part are
    /// separated by commas: 'info,corona_wire=debug'.
    #[arg(long, value_name = "FILTER", env = "RUST_LOG")]
    #[arg(default_value = DEFAULT_LEVEL, value_parser = parse_filter)]
    log_level: String,

    /// Maximum number of lines of one kind per second; 0: no limit
    ///
    /// Omitted lines are counted and reported in one line per second.
    #[arg(long, value_name = "LINES", default_value_t = DEFAULT_RATE)]
    log_rate: u32,

    /// Maximum bytes per second of lines of one kind, as in 64k; 0: no limit
    ///
    /// Further lines are cut to 256 bytes until the second is over.
    #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = parse_limit)]
    log_rate_bytes: usize,

    /// Maximum bytes of one line, at least 256; 0: no limit
    ///
    /// The rest is cut, and the line reports how many bytes were cut.
    #[arg(long, value_name = "SIZE", default_value = "8k", value_parser = parse_line_bytes)]
    log_line_bytes: usize,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl LogArguments {
    /// Text lines of these levels, for a command without the other options of the log.
    pub(crate) fn of_levels(log_level: String) -> LogArguments {
        LogArguments {
            log_format: LogFormat::Text,
            log_level,
            log_rate: DEFAULT_RATE,
            log_rate_bytes: DEFAULT_RATE_BYTES,
            log_line_bytes: DEFAULT_LINE_BYTES,
        }
    }

    /// Starts logging to stderr on a separate thread, because a stuck terminal
    /// or pipe must not block the cluster manager. Lines that do not fit into
    /// its queue are lost and counted. Dropping the guard writes the queued
    /// lines.
    ///
    /// # Errors
    /// When a log was set up before, or no thread can be started.
    pub(crate) fn init(&self) -> anyhow::Result<LogGuard> {
        let form = self.log_format;
        let tell = move |lost| {
            let sentence = format!("{lost} lines were lost here because stderr was blocked");
            form.line_for(lost, Level::WARN, module_path!(), &sentence)
        };
        let (queue, guard) = queue::start(std::io::stderr(), tell)?;
        tracing::subscriber::set_global_default(self.subscriber(queue))
            .map_err(|_| anyhow!("the log is already set up"))?;
        Ok(guard)
    }

    fn subscriber<W>(&self, writer: W) -> Box<dyn Subscriber + Send + Sync>
    where
        W: for<'w> MakeWriter<'w> + Clone + Send + Sync + 'static,
    {
        let (form, to) = (self.log_format, writer.clone());
        let limits = LogLimits {
            lines: self.log_rate,
            bytes: self.log_rate_bytes,
            line_bytes: self.log_line_bytes,
        };
        let rate = LogRate::new(limits, move |left_out| form.tell(left_out, &to));
        let gate = Gate(Arc::clone(&rate));
        // Checked before, when the arguments were read.
        let levels = self.log_level.parse().unwrap_or_else(|_| Targets::new());
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        match self.log_format {
            LogFormat::Text => {
                let lines = lines.event_format(OriginalLayout(rate));
                Box::new(tracing_subscriber::registry().with(lines).with(levels).with(gate))
            }
            LogFormat::Json => {
                let lines = lines.event_format(JsonLayout(rate));
                Box::new(tracing_subscriber::registry().with(lines).with(levels).with(gate))
            }
        }
    }
}

impl LogFormat {
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
            LogFormat::Text => write_time(&mut line, &now)
                .and_then(|()| writeln!(line, " {level} {target}: {sentence}")),
            LogFormat::Json => {
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

/// A number of bytes; 0 means no limit.
fn parse_limit(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

/// A number of bytes that is not below the length to which lines are cut.
fn parse_line_bytes(text: &str) -> Result<usize, String> {
    match parse_limit(text)? {
        bytes @ 1..SHORT_LINE_BYTES => {
            Err(format!("expected at least {SHORT_LINE_BYTES} bytes, not {bytes}"))
        }
        bytes => Ok(bytes),
    }
}

/// Checks a filter while it can still be reported as wrong usage. An empty variable in the
/// environment counts as none.
pub(crate) fn parse_filter(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Ok(DEFAULT_LEVEL.into());
    }
    text.parse::<Targets>().map(|_| text.into()).map_err(|error| error.to_string())
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

    /// The log that `speak` leaves.
    fn log_of(log_format: LogFormat, log_level: &str, speak: impl FnOnce()) -> String {
        log_at_rate(DEFAULT_RATE, log_format, log_level, speak)
    }

    fn log_at_rate(
        log_rate: u32,
        log_format: LogFormat,
        log_level: &str,
        speak: impl FnOnce(),
    ) -> String {
        let buffer = Buffer::default();
        let sink = buffer.clone();
        let arguments = LogArguments {
            log_format,
            log_level: log_level.into(),
            log_rate,
            ..LogArguments::of_levels(String::new())
        };
        tracing::subscriber::with_default(arguments.subscriber(move || sink.clone()), speak);
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
        let log = log_of(LogFormat::Text, "info", || {
            tracing::info!(target: "NodeManager", "Timing out node: {}", "n1");
            tracing::warn!(target: "Session", id = 7, "late");
        });
        let lines: Vec<_> = log.lines().map(without_time).collect();
        assert_eq!(lines, [" INFO NodeManager: Timing out node: n1", " WARN Session: late id=7"]);
    }

    #[test]
    fn hostile_name_cannot_forge_a_line() {
        let log = log_of(LogFormat::Text, "info", || {
            tracing::info!(target: "t", name = "a\nb", "x\r\n2026 ERROR \u{1b}[2J{}", "é\u{85}");
        });
        assert_eq!(log.lines().count(), 1);
        let text = without_time(log.trim_end());
        assert!(text.starts_with(r" INFO t: x\r\n2026 ERROR \x1b[2Jé\u{85} name="), "{text}");
        assert!(!text.contains(char::is_control));
    }

    #[test]
    fn json_is_one_object_a_line() {
        let log = log_of(LogFormat::Json, "info", || tracing::info!(node = "n1", "gone\nnow"));
        assert_eq!(log.lines().count(), 1);
        let object: serde_json::Value = serde_json::from_str(&log).unwrap();
        assert_eq!(object["level"], "INFO");
        assert_eq!(object["message"], "gone\nnow");
        assert_eq!(object["node"], "n1");
        assert!(object["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn a_storm_of_one_line_is_cut_and_told() {
        for (form, rate, lines) in
            [(LogFormat::Text, 2, 3), (LogFormat::Json, 2, 3), (LogFormat::Text, 0, 51)]
        {
            let log = log_at_rate(rate, form, "info", || {
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
        for form in [LogFormat::Text, LogFormat::Json] {
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
            if matches!(form, LogFormat::Json) {
                let objects = lines.iter().map(|line| serde_json::from_str(line).unwrap());
                let objects: Vec<serde_json::Value> = objects.collect();
                assert!(objects.iter().all(|object| object["level"] == "INFO"));
            }
        }
    }

    #[test]
    fn limits_are_sizes_and_no_line_is_shorter_than_the_shortest() {
        assert_eq!((parse_limit("0"), parse_limit("64k")), (Ok(0), Ok(DEFAULT_RATE_BYTES)));
        assert_eq!(parse_line_bytes("8k"), Ok(DEFAULT_LINE_BYTES));
        assert_eq!((parse_line_bytes("0"), parse_line_bytes("256")), (Ok(0), Ok(256)));
        assert!(parse_line_bytes("255").unwrap_err().contains("at least 256 bytes"));
        assert!(parse_limit("many").is_err());
    }

    #[test]
    fn what_was_left_out_is_told_in_both_forms() {
        let told = |form: LogFormat| {
            let buffer = Buffer::default();
            let sink = buffer.clone();
            form.tell(LeftOut { kind: &STORM, lines: 48 }, &move || sink.clone());
            let bytes = buffer.0.lock().unwrap().clone();
            String::from_utf8(bytes).unwrap()
        };
        let sentence = "48 more lines like those before, from storm.rs:1, are left out";
        assert_eq!(without_time(&told(LogFormat::Text)), format!(" WARN storm: {sentence}\n"));
        let object: serde_json::Value = serde_json::from_str(&told(LogFormat::Json)).unwrap();
        assert_eq!(object["message"], sentence);
        assert_eq!(object["left_out"], 48);
    }

    #[test]
    fn level_filters_by_part() {
        let log = log_of(LogFormat::Text, "warn,loud=debug", || {
            tracing::info!(target: "quiet", "unseen");
            tracing::debug!(target: "loud", "seen");
        });
        assert_eq!(log.lines().map(without_time).collect::<Vec<_>>(), [" DEBUG loud: seen"]);
    }

    #[test]
    fn filter_is_checked_and_empty_means_default() {
        for (text, expected) in [
            ("", Some(DEFAULT_LEVEL)),
            (" ", Some(DEFAULT_LEVEL)),
            ("debug", Some("debug")),
            ("WARN", Some("WARN")),
            ("info,corona::wire=trace", Some("info,corona::wire=trace")),
            ("corona=loud", None),
        ] {
            assert_eq!(parse_filter(text).ok().as_deref(), expected, "{text:?}");
        }
    }
}
