//! The log on stderr: levels, limits, and the two formats.
//!
//! `text` has the original's layout, since operators search for it: `2026-11-21 00:05:39,123 INFO
//! target: message`, in local time. `json` is one object a line, for programs.
//! Spec: cluster-manager/08 §5.

mod queue;
mod rate;

use std::fmt::{self, Write};
use std::io;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use jiff::Zoned;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{DefaultFields, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use queue::LogGuard;
use rate::{LeftOut, LogRate};

/// The default log level, which is the original's.
const DEFAULT_LEVEL: &str = "info";

/// The default maximum of lines of one kind per second.
const DEFAULT_RATE: u32 = 200;

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
        LogArguments { log_format: LogFormat::Text, log_level, log_rate: DEFAULT_RATE }
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
        let rate = LogRate::new(self.log_rate, move |left_out| form.tell(left_out, &to));
        // Checked before, when the arguments were read.
        let levels = self.log_level.parse().unwrap_or_else(|_| Targets::new());
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        match self.log_format {
            LogFormat::Text => {
                let lines = lines.event_format(OriginalLayout);
                Box::new(tracing_subscriber::registry().with(lines).with(levels).with(rate))
            }
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                Box::new(tracing_subscriber::registry().with(lines).with(levels).with(rate))
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

/// Checks a filter while it can still be reported as wrong usage. An empty variable in the
/// environment counts as none.
pub(crate) fn parse_filter(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Ok(DEFAULT_LEVEL.into());
    }
    text.parse::<Targets>().map(|_| text.into()).map_err(|error| error.to_string())
}

/// `yyyy-MM-dd HH:mm:ss,SSS LEVEL target: message`, then fields as ` name=value`.
struct OriginalLayout;

impl<S> FormatEvent<S, DefaultFields> for OriginalLayout
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write_time(&mut writer, &Zoned::now())?;
        let metadata = event.metadata();
        write!(writer, " {} {}: ", metadata.level(), metadata.target())?;
        let mut line = OneLine(&mut writer);
        context.field_format().format_fields(Writer::new(&mut line), event)?;
        writer.write_char('\n')
    }
}

fn write_time(out: &mut impl Write, time: &Zoned) -> fmt::Result {
    write!(out, "{}", time.strftime("%Y-%m-%d %H:%M:%S,%3f"))
}

/// Escapes control characters. Names come from peers; none may forge a line of the log or send
/// commands to the terminal that shows it.
struct OneLine<'a, W>(&'a mut W);

impl<W: Write> Write for OneLine<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (clean, from_control) = rest.split_at(at);
            self.0.write_str(clean)?;
            let mut characters = from_control.chars();
            if let Some(control) = characters.next() {
                write!(self.0, "{}", control.escape_default())?;
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use jiff::civil;
    use jiff::tz::TimeZone;

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
        let arguments = LogArguments { log_format, log_level: log_level.into(), log_rate };
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
    fn time_has_the_layout_of_the_original() {
        let time = civil::date(2026, 1, 2).at(3, 4, 5, 6_789_000).to_zoned(TimeZone::UTC).unwrap();
        let mut text = String::new();
        write_time(&mut text, &time).unwrap();
        assert_eq!(text, "2026-01-02 03:04:05,006");
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
    fn every_control_character_is_escaped() {
        let mut line = String::new();
        OneLine(&mut line).write_str("\u{1b}a\nb\u{0}\u{7f}é\u{9b}").unwrap();
        assert_eq!(line, r"\u{1b}a\nb\u{0}\u{7f}é\u{9b}");
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
