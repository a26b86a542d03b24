//! Formats numbers, times and shapes for people, on all pages.
//!
//! Markup is written with `maud`, which escapes every text. Nothing is styled in place: shapes get
//! their sizes as attributes, colours come from the style sheet.

use std::fmt::{self, Display};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use maud::{Markup, Render, html};

pub use corona_model::types::Span;
use corona_model::types::{Millis, ResourceType};

/// A point in time, in the machine's time zone. [`as_of`] names the zone on each page.
pub struct Time(pub Millis);

impl Time {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.0).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn zoned(&self) -> Zoned {
        self.timestamp().to_zoned(TimeZone::system())
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.zoned().strftime("%Y-%m-%d %H:%M:%S"))
    }
}

impl Render for Time {
    fn render(&self) -> Markup {
        let whole = self.to_string();
        let (date, clock) = whole.split_once(' ').unwrap_or((&whole, ""));
        // Each half stays in one piece.
        html! { time datetime=(self.timestamp()) { span { (date) } " " span { (clock) } } }
    }
}

/// The time of the day of a point in time; pointing at it shows the full date.
pub struct Clock(pub Millis);

impl Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Time(self.0).zoned().strftime("%H:%M:%S"))
    }
}

impl Render for Clock {
    fn render(&self) -> Markup {
        let whole = Time(self.0);
        html! { time datetime=(whole.timestamp()) title=(whole.to_string()) { (self.to_string()) } }
    }
}

/// The foot of a page: which program made it, when, and in which time zone all its times are.
pub fn as_of(now: Millis) -> Markup {
    let at = Time(now);
    let zone = Zone::of(&at.zoned());
    html! {
        p {
            "corona " (env!("CARGO_PKG_VERSION")) ". As of "
            // The script shows the clock at the top of the page.
            span #as-of data-live data-clock={ (Clock(now).to_string()) " " (zone.short) } { (at) }
            ". All times are in the server’s time zone, " (zone.name) "."
        }
    }
}

/// A time zone at some time.
#[derive(Debug, PartialEq, Eq)]
struct Zone {
    /// `Europe/Berlin (UTC+01:00)`, `UTC`
    name: String,
    /// `CET`, `UTC`
    short: String,
}

impl Zone {
    fn of(at: &Zoned) -> Zone {
        let utc = || "UTC".to_owned();
        let offset = at.strftime("UTC%:z").to_string();
        match at.time_zone().iana_name() {
            None | Some("UTC" | "Etc/UTC" | "Etc/Unknown") if at.offset().is_zero() => {
                Zone { name: utc(), short: utc() }
            }
            None => Zone { name: offset.clone(), short: offset },
            Some(name) => {
                Zone { name: format!("{name} ({offset})"), short: at.strftime("%Z").to_string() }
            }
        }
    }
}

/// A name that peers or operators chose. It may wrap behind its punctuation, and in a word only if
/// that is wider than the place for the whole.
pub struct Name<N>(pub N);

impl<N: Display> Render for Name<N> {
    fn render_to(&self, buffer: &mut String) {
        let name = self.0.to_string();
        let ends_word = |c: char| ".-_/:@,=+&?;|".contains(c);
        let mut rest = &*name;
        while let Some(at) = rest.find(ends_word) {
            let after = rest[at..].find(|c| !ends_word(c)).map_or(rest.len(), |more| at + more);
            let (word, next) = rest.split_at(after);
            word.render_to(buffer);
            if !next.is_empty() {
                buffer.push_str("<wbr>");
            }
            rest = next;
        }
        rest.render_to(buffer);
    }
}

/// A short span with three digits: `740 µs`, `1.25 ms`, `12.3 s`.
pub struct ShortSpan(pub std::time::Duration);

impl Display for ShortSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_secs_f64() * 1e6;
        if micros < 1.0 {
            return f.write_str("< 1 µs");
        }
        let (value, unit) = match micros {
            ..1_000.0 => (micros, "µs"),
            ..1_000_000.0 => (micros / 1e3, "ms"),
            ..120_000_000.0 => (micros / 1e6, "s"),
            _ => {
                let millis = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
                return write!(f, "{}", Span(millis));
            }
        };
        let decimals = match value {
            ..10.0 if unit != "µs" => 2,
            ..100.0 if unit != "µs" => 1,
            _ => 0,
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

/// A number with thin gaps between thousands.
pub struct Count<N>(pub N);

impl<N: Display> Display for Count<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let (sign, digits) = match digits.strip_prefix('-') {
            Some(rest) => ("\u{2212}", rest),
            None => ("", &*digits),
        };
        f.write_str(sign)?;
        for (position, digit) in digits.chars().enumerate() {
            if position > 0 && (digits.len() - position) % 3 == 0 {
                f.write_str("\u{202f}")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// Bytes in binary units: `1.5 GiB`.
pub struct Bytes(pub i64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        if value.abs() < 1024.0 {
            return write!(f, "{} B", self.0);
        }
        let mut unit = "";
        for larger in UNITS {
            value /= 1024.0;
            unit = larger;
            if value.abs() < 1024.0 {
                break;
            }
        }
        write!(f, "{value:.1} {unit}")
    }
}

/// The style class of a type, which gives it its colour.
pub fn class_of(kind: ResourceType) -> &'static str {
    match kind {
        ResourceType::Map => "map",
        ResourceType::Reduce => "reduce",
        ResourceType::JobTracker => "jobtracker",
    }
}

/// A part of a whole in percent, 0 of nothing.
pub fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}

/// A bar that is full to `part` of `whole`. The numbers stand beside it as text.
pub fn bar(kind: ResourceType, part: u64, whole: u64) -> Markup {
    let width = percent(part as f64, whole as f64);
    html! {
        svg.bar.(class_of(kind)) viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="100" height="8" {}
            rect.fill width=(format!("{width:.1}")) height="8" {}
        }
    }
}

/// `1 node`, `2 nodes`
pub fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", Count(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn numbers_read_well() {
        for (ms, text) in [
            (-5, "0 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(Span(ms).to_string(), text);
        }
        for (micros, text) in [
            (0, "< 1 µs"),
            (1, "1 µs"),
            (740, "740 µs"),
            (1_250, "1.25 ms"),
            (12_345, "12.3 ms"),
            (123_456, "123 ms"),
            (4_000_000, "4.00 s"),
            (7_200_000_000, "2 h 0 min"),
        ] {
            assert_eq!(ShortSpan(Duration::from_micros(micros)).to_string(), text);
        }
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1\u{202f}000"),
            (-1_234_567, "−1\u{202f}234\u{202f}567"),
        ] {
            assert_eq!(Count(number).to_string(), text);
        }
        for (bytes, text) in [
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (5_046_586_573, "4.7 GiB"),
            (i64::MAX, "8192.0 PiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(plural(1, "node", "nodes"), "1 node");
        assert_eq!(plural(0, "node", "nodes"), "0 nodes");
    }
    #[test]
    fn names_may_wrap_behind_their_punctuation_only() {
        for (name, html) in [
            ("", ""),
            ("word", "word"),
            ("ads.adhoc", "ads.<wbr>adhoc"),
            ("a--b.", "a--<wbr>b."),
            ("n1.example.com:localhost/127", "n1.<wbr>example.<wbr>com:<wbr>localhost/<wbr>127"),
            ("<b>-\"é&x", "&lt;b&gt;-<wbr>&quot;é&amp;<wbr>x"),
        ] {
            assert_eq!(Name(name).render().into_string(), html, "{name}");
        }
    }

    #[test]
    fn a_page_names_the_time_zone_of_its_times() {
        let at = |zone: TimeZone| Zone::of(&Timestamp::UNIX_EPOCH.to_zoned(zone));
        let zone = |name: &str, short: &str| Zone { name: name.into(), short: short.into() };
        assert_eq!(at(TimeZone::UTC), zone("UTC", "UTC"));
        let offset = jiff::tz::offset(-3);
        assert_eq!(at(TimeZone::fixed(offset)), zone("UTC-03:00", "UTC-03:00"));
        let berlin = TimeZone::posix("CET-1").unwrap();
        assert_eq!(at(berlin).name, "UTC+01:00");
        if let Ok(berlin) = TimeZone::get("Europe/Berlin") {
            assert_eq!(at(berlin), zone("Europe/Berlin (UTC+01:00)", "CET"));
        }
        let foot = as_of(Millis(0)).into_string();
        assert!(foot.contains("All times are in the server’s time zone"), "{foot}");
        assert!(foot.contains("data-clock=\""), "{foot}");
    }
}
