//! The logging options of long-running commands.

use clap::{Args, ValueEnum};
use corona_logging::{Log, LogForm, LogGuard, LogLimits, SHORT_LINE_BYTES, StartError, Targets};

use super::arguments::parse_size;

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

    /// Starts logging to stderr.
    ///
    /// # Errors
    /// When a log was set up before, or no thread can be started.
    pub(crate) fn init(&self) -> Result<LogGuard, StartError> {
        let log = Log {
            form: match self.log_format {
                LogFormat::Text => LogForm::Text,
                LogFormat::Json => LogForm::Json,
            },
            // Checked before, when the arguments were read.
            levels: self.log_level.parse().unwrap_or_else(|_| Targets::new()),
            limits: LogLimits {
                lines: self.log_rate,
                bytes: self.log_rate_bytes,
                line_bytes: self.log_line_bytes,
            },
        };
        log.start()
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
    use super::*;

    #[test]
    fn limits_are_sizes_and_no_line_is_shorter_than_the_shortest() {
        assert_eq!((parse_limit("0"), parse_limit("64k")), (Ok(0), Ok(DEFAULT_RATE_BYTES)));
        assert_eq!(parse_line_bytes("8k"), Ok(DEFAULT_LINE_BYTES));
        assert_eq!((parse_line_bytes("0"), parse_line_bytes("256")), (Ok(0), Ok(256)));
        assert!(parse_line_bytes("255").unwrap_err().contains("at least 256 bytes"));
        assert!(parse_limit("many").is_err());
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
