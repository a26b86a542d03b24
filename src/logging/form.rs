//! The two forms of a log line, and the limit on its length.
//!
//! Names come from peers: none may forge a line, send commands to the terminal that shows it, or fill
//! the disk. Text beyond the limit is dropped while it is formatted, so it takes no memory either.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use corona_model::text::{escape_json, is_hidden};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serializer;
use serde_json::{Number, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{DefaultFields, FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::rate::LogRate;

/// The layout of the time in a line, without the milliseconds.
const SECOND: &str = "%Y-%m-%d %H:%M:%S";

/// `yyyy-MM-dd HH:mm:ss,SSS LEVEL target: message`, then fields as ` name=value`.
pub(super) struct OriginalLayout {
    rate: Arc<LogRate>,
    /// A second, and its text: lines of the same second share it.
    second: Mutex<(i64, String)>,
}

impl OriginalLayout {
    pub(super) fn new(rate: Arc<LogRate>) -> OriginalLayout {
        OriginalLayout { rate, second: Mutex::new((i64::MIN, String::new())) }
    }

    fn write_time(&self, out: &mut impl Write, now: Timestamp) -> fmt::Result {
        // No panic leaves half a text in it.
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = now.as_millisecond();
        if second.0 != ms.div_euclid(1000) {
            second.0 = ms.div_euclid(1000);
            second.1.clear();
            let local = now.to_zoned(TimeZone::system());
            write!(second.1, "{}", local.strftime(SECOND))?;
        }
        write!(out, "{},{:03}", second.1, ms.rem_euclid(1000))
    }
}

/// One object a line: `timestamp`, `level`, the fields of the event, `target`.
pub(super) struct JsonLayout(pub(super) Arc<LogRate>);

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
        let metadata = event.metadata();
        self.write_time(&mut writer, Timestamp::now())?;
        write!(writer, " {} {}: ", metadata.level(), metadata.target())?;
        let mut line = Within::new(&mut writer, self.rate.line_bytes(metadata), Escaping::Here);
        context.field_format().format_fields(Writer::new(&mut line), event)?;
        let (written, cut) = line.end();
        self.rate.wrote(metadata, head_bytes(metadata).saturating_add(written));
        if cut > 0 {
            write!(writer, " {}", CutMark(cut))?;
        }
        writer.write_char('\n')
    }
}

impl<S> FormatEvent<S, DefaultFields> for JsonLayout
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut object = Object {
            members: Vec::new(),
            left: self.0.line_bytes(metadata),
            written: head_bytes(metadata),
        };
        object.members.push(("timestamp", format!("{:.6}", Timestamp::now()).into()));
        object.members.push(("level", metadata.level().as_str().into()));
        event.record(&mut object);
        object.members.push(("target", metadata.target().into()));
        self.0.wrote(metadata, object.written);
        let mut line = Vec::new();
        let mut json = serde_json::Serializer::new(&mut line);
        json.collect_map(object.members).map_err(|_| fmt::Error)?;
        writeln!(writer, "{}", escape_json(&String::from_utf8_lossy(&line)))
    }
}

/// `2026-11-21 00:05:39,123`
pub(super) fn write_time(out: &mut impl Write, time: &Zoned) -> fmt::Result {
    write!(out, "{},{:03}", time.strftime(SECOND), time.millisecond())
}

/// Roughly the bytes of a line outside its fields.
fn head_bytes(metadata: &Metadata<'_>) -> usize {
    const TIME_AND_MARKS: usize = 32;
    metadata.target().len() + TIME_AND_MARKS
}

/// Replaces the rest of a text.
struct CutMark(u64);

impl fmt::Display for CutMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "... ({} bytes cut)", self.0)
    }
}

/// Writes at most `left` bytes, whole characters only, and counts the bytes that it drops.
struct Within<W> {
    out: W,
    left: usize,
    written: usize,
    cut: u64,
    escaping: Escaping,
}

/// Where special characters are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escaping {
    /// Hidden characters are escaped here.
    Here,
    /// They are escaped later, in JSON.
    AsJson,
}

impl Escaping {
    /// The bytes of a character after escaping.
    fn bytes_of(self, character: char) -> usize {
        match (self, character) {
            (Escaping::Here, character) if is_hidden(character) => character.escape_default().len(),
            (Escaping::AsJson, '"' | '\\') => 2,
            (Escaping::AsJson, character) if is_hidden(character) => 6 * character.len_utf16(),
            (_, character) => character.len_utf8(),
        }
    }
}

impl<W: Write> Within<W> {
    fn new(out: W, left: usize, escaping: Escaping) -> Self {
        Within { out, left, written: 0, cut: 0, escaping }
    }

    /// The numbers of bytes that were written and dropped.
    fn end(self) -> (usize, u64) {
        (self.written, self.cut)
    }
}

impl<W: Write> Write for Within<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        // After a cut, later pieces must not look as if they followed.
        while let Some(character) = rest.chars().next().filter(|_| self.cut == 0) {
            let mut clean = 0;
            let mut full = false;
            for character in rest.chars() {
                let bytes = self.escaping.bytes_of(character);
                full = bytes > self.left;
                if full || self.escaping == Escaping::Here && is_hidden(character) {
                    break;
                }
                self.left -= bytes;
                self.written += bytes;
                clean += character.len_utf8();
            }
            if clean == 0 && !full {
                let escaped = character.escape_default();
                self.left -= escaped.len();
                self.written += escaped.len();
                write!(self.out, "{escaped}")?;
                clean = character.len_utf8();
            } else {
                self.out.write_str(rest.get(..clean).unwrap_or_default())?;
            }
            rest = rest.get(clean..).unwrap_or_default();
            if full {
                break;
            }
        }
        self.cut = self.cut.saturating_add(rest.len() as u64);
        Ok(())
    }
}

/// The members of a line of JSON. The texts of its fields share the limit.
struct Object {
    members: Vec<(&'static str, Value)>,
    left: usize,
    written: usize,
}

impl Object {
    fn put(&mut self, field: &Field, value: Value) {
        // Numbers are short.
        self.written += field.name().len();
        self.members.push((field.name(), value));
    }

    fn put_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let mut kept = String::new();
        let mut within = Within::new(&mut kept, self.left, Escaping::AsJson);
        // A value whose formatting fails is kept up to the failure.
        let _ = within.write_fmt(text);
        let (written, cut) = within.end();
        self.left -= written;
        self.written += written;
        if cut > 0 {
            kept.push_str(&CutMark(cut).to_string());
        }
        self.put(field, kept.into());
    }
}

impl Visit for Object {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Number::from_f64(value).map_or(Value::Null, Value::Number));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil;

    use super::*;

    #[test]
    fn time_has_the_layout_of_the_original() {
        let time = civil::date(2026, 1, 2).at(3, 4, 5, 6_789_000).to_zoned(TimeZone::UTC).unwrap();
        let mut text = String::new();
        write_time(&mut text, &time).unwrap();
        assert_eq!(text, "2026-01-02 03:04:05,006");
    }

    #[test]
    fn lines_of_one_second_share_its_text() {
        let rate =
            LogRate::new(super::super::LogLimits { lines: 0, bytes: 0, line_bytes: 0 }, |_| {});
        let layout = OriginalLayout::new(rate);
        // Also when the clock is set back, and before 1970.
        for ms in [1_000, 1_999, 2_000, 61_007, 1_500, -1, -1_000, -1_001] {
            let now = Timestamp::from_millisecond(ms).unwrap();
            let (mut text, mut expected) = (String::new(), String::new());
            layout.write_time(&mut text, now).unwrap();
            write_time(&mut expected, &now.to_zoned(TimeZone::system())).unwrap();
            assert_eq!(text, expected, "{ms}");
        }
    }

    #[test]
    fn every_hidden_character_is_escaped() {
        let mut line = String::new();
        let mut within = Within::new(&mut line, 100, Escaping::Here);
        within.write_str("\u{1b}a\nb\u{0}\u{7f}é\u{9b}c\u{202e}\u{200b}").unwrap();
        assert_eq!(within.end(), (line.len(), 0));
        assert_eq!(line, r"\u{1b}a\nb\u{0}\u{7f}é\u{9b}c\u{202e}\u{200b}");
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_the_rest_counted() {
        for (limit, kept, cut) in [
            (0, "", 7),
            (1, "a", 6),
            (2, "a", 6),
            (3, "aé", 4),
            (6, "aébcd", 1),
            (7, "aébcd", 1),
            (8, "aébcd\\n", 0),
        ] {
            let mut text = String::new();
            let mut within = Within::new(&mut text, limit, Escaping::Here);
            within.write_str("aé").unwrap();
            within.write_str("bcd\n").unwrap();
            assert_eq!((within.end().1, text.as_str()), (cut, kept), "{limit}");
        }
        let mut text = String::new();
        let mut within = Within::new(&mut text, 10, Escaping::AsJson);
        within.write_str("\"\u{1}abcd").unwrap();
        assert_eq!(within.end(), (10, 2));
        assert_eq!(text, "\"\u{1}ab");
    }
}
