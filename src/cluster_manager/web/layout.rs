//! What all pages look like: the frame around them, and the small parts that several have.
//!
//! Markup is written with `maud`, which escapes every text. Nothing is styled or run in place:
//! shapes get their sizes as attributes, colours come from the style sheet.

use std::fmt::{self, Display};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{DOCTYPE, Markup, html};

use crate::engine::types::{Millis, ResourceType};

/// Files that belong to the pages: path, content type, content.
const FILES: [(&str, &str, &str); 3] = [
    ("corona.css", "text/css; charset=utf-8", include_str!("assets/corona.css")),
    ("corona.js", "text/javascript; charset=utf-8", include_str!("assets/corona.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// The content type and content of a file.
pub(super) fn file(name: &str) -> Option<(&'static str, &'static str)> {
    FILES.iter().find(|(own, ..)| *own == name).map(|(_, kind, content)| (*kind, *content))
}

/// The address of a file, which changes with what is in the files.
fn address(name: &str) -> String {
    static TAG: OnceLock<u64> = OnceLock::new();
    let tag = TAG.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        FILES.hash(&mut hasher);
        hasher.finish()
    });
    format!("/static/{name}?v={tag:016x}")
}

/// The pages that every page leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Cluster,
    Pools,
    Sessions,
    Nodes,
    Retired,
    Configuration,
}

impl Section {
    const ALL: [(Section, &str, &str); 6] = [
        (Section::Cluster, "/", "Cluster"),
        (Section::Pools, "/pools", "Pools"),
        (Section::Sessions, "/sessions", "Sessions"),
        (Section::Nodes, "/nodes", "Nodes"),
        (Section::Retired, "/retired", "Retired"),
        (Section::Configuration, "/configuration", "Configuration"),
    ];
}

/// What is around a page.
#[derive(Clone, Debug)]
pub(super) struct Frame<'a> {
    /// The page, for people: the heading and the window.
    pub(super) title: &'a str,
    /// The section that it belongs to.
    pub(super) section: Option<Section>,
    /// The name of this cluster manager.
    pub(super) host: &'a str,
    pub(super) safe_mode: bool,
    /// When it was made.
    pub(super) now: Millis,
    /// The least pause between two looks of one browser; `None` for a page that does not change.
    pub(super) refresh_ms: Option<u64>,
}

/// A whole page.
pub(super) fn page(frame: &Frame<'_>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (frame.title) " – " (frame.host) " – Corona" }
                link rel="stylesheet" href=(address("corona.css"));
                link rel="icon" type="image/svg+xml" href=(address("icon.svg"));
                script src=(address("corona.js")) defer {}
            }
            body data-refresh-ms=[frame.refresh_ms] {
                a.skip href="#main" { "Skip to the content" }
                (head(frame))
                main #main tabindex="-1" { (content) }
                (foot(frame))
            }
        }
    }
}

fn head(frame: &Frame<'_>) -> Markup {
    html! {
        header.top {
            div.name {
                a.brand href="/" { span aria-hidden="true" { "◔ " } "Corona" }
                span.host { (frame.host) }
                span #safe-mode data-live {
                    @if frame.safe_mode { strong.badge.warn { "Safe mode" } }
                }
            }
            nav aria-label="Pages" {
                ul {
                    @for (section, path, name) in Section::ALL {
                        li {
                            a href=(path) aria-current=[(frame.section == Some(section)).then_some("page")] {
                                (name)
                            }
                        }
                    }
                }
            }
            // The script shows and fills it.
            div.live #live hidden {
                button #live-toggle type="button" aria-pressed="true" { "Live" }
                span #live-time {}
            }
        }
        p.unseen #live-news role="status" aria-live="polite" {}
    }
}

fn foot(frame: &Frame<'_>) -> Markup {
    html! {
        footer {
            p {
                "corona " (env!("CARGO_PKG_VERSION")) ". As of "
                span #as-of data-live { (Time(frame.now)) } "."
            }
            ul {
                li { a href="/api/v1/cluster" { "API" } }
                li { a href="/metrics" { "Metrics" } }
            }
        }
    }
}

/// A page that only says something.
pub(super) fn notice(frame: &Frame<'_>, sentence: &str) -> Markup {
    page(frame, &html! { h1 { (frame.title) } p { (sentence) } })
}

/// A point in time, in the machine's time zone.
pub(super) struct Time(pub(super) Millis);

impl Time {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millisecond(self.0.0).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zoned = self.timestamp().to_zoned(TimeZone::system());
        write!(f, "{}", zoned.strftime("%Y-%m-%d %H:%M:%S"))
    }
}

impl maud::Render for Time {
    fn render(&self) -> Markup {
        html! { time datetime=(self.timestamp()) { (self.to_string()) } }
    }
}

/// Milliseconds, for people: `59 s`, `1 min 1 s`, `1 h 1 min`, `1 d 1 h`.
pub(super) struct Span(pub(super) i64);

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.max(0) / 1000;
        match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
            (0, 0, 0, seconds) => write!(f, "{seconds} s"),
            (0, 0, minutes, seconds) => write!(f, "{minutes} min {seconds} s"),
            (0, hours, minutes, _) => write!(f, "{hours} h {minutes} min"),
            (days, hours, ..) => write!(f, "{days} d {hours} h"),
        }
    }
}

/// A short span with three digits: `740 µs`, `1.25 ms`, `12.3 s`.
pub(super) struct ShortSpan(pub(super) std::time::Duration);

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
            _ => return write!(f, "{}", Span((micros / 1e3) as i64)),
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
pub(super) struct Count<N>(pub(super) N);

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
pub(super) struct Bytes(pub(super) i64);

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
pub(super) fn class_of(kind: ResourceType) -> &'static str {
    match kind {
        ResourceType::Map => "map",
        ResourceType::Reduce => "reduce",
        ResourceType::JobTracker => "jobtracker",
    }
}

/// A part of a whole in percent, 0 of nothing.
pub(super) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}

/// A bar that is full to `part` of `whole`. The numbers stand beside it as text.
pub(super) fn bar(kind: ResourceType, part: u64, whole: u64) -> Markup {
    let width = percent(part as f64, whole as f64);
    html! {
        svg.bar.(class_of(kind)) viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="100" height="8" {}
            rect.fill width=(format!("{width:.1}")) height="8" {}
        }
    }
}

/// `1 node`, `2 nodes`
pub(super) fn plural(count: u64, one: &str, many: &str) -> String {
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

    /// Relative luminance, by the Web Content Accessibility Guidelines.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
        let linear = |part: u8| match f64::from(part) / 255.0 {
            low if low <= 0.04045 => low / 12.92,
            high => ((high + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * linear(part(1)) + 0.7152 * linear(part(3)) + 0.0722 * linear(part(5))
    }

    #[test]
    fn text_can_be_told_from_its_ground_in_light_and_in_dark() {
        let (_, css) = file("corona.css").unwrap();
        let schemes: Vec<&str> = css.split(":root {").skip(1).collect();
        assert_eq!(schemes.len(), 2);
        for scheme in schemes {
            let colour = |name: &str| {
                let after = scheme.split(&format!("--{name}: ")).nth(1).unwrap();
                luminance(after.split(';').next().unwrap())
            };
            let on = |least: f64, front: &str, grounds: &[&str]| {
                for ground in grounds {
                    let (a, b) = (colour(front), colour(ground));
                    let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                    assert!(contrast >= least, "{front} on {ground}: {contrast:.2}");
                }
            };
            on(7.0, "text", &["page", "surface", "track", "warn-back", "bad-back"]);
            on(4.5, "soft", &["page", "surface"]);
            on(4.5, "link", &["page", "surface"]);
            on(4.5, "good", &["good-back", "page"]);
            on(4.5, "warn", &["warn-back"]);
            on(4.5, "bad", &["bad-back"]);
            // Shapes, which need less.
            for kind in ["map", "reduce", "jobtracker"] {
                on(2.9, kind, &["surface", "track"]);
            }
            on(3.0, "minimum", &["surface", "track"]);
            on(3.0, "focus", &["page", "surface"]);
        }
    }

    #[test]
    fn pages_load_nothing_from_elsewhere_and_hold_no_style_or_script_in_place() {
        let frame = Frame {
            title: "<title>",
            section: Some(Section::Nodes),
            host: "h\"<",
            safe_mode: true,
            now: Millis(0),
            refresh_ms: Some(1000),
        };
        let page = notice(&frame, "a & b").into_string();
        assert!(page.contains("<title>&lt;title&gt; – h&quot;&lt; – Corona</title>"), "{page}");
        assert!(page.contains("<a href=\"/nodes\" aria-current=\"page\">Nodes</a>"), "{page}");
        assert_eq!(page.matches("aria-current").count(), 1);
        for unwanted in ["style=", "onclick", "<style", "http://", "https://", "javascript:"] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
        for (name, kind, content) in FILES {
            assert!(!content.is_empty() && !kind.is_empty());
            assert_eq!(file(name), Some((kind, content)));
            let elsewhere = content.replace("http://www.w3.org/2000/svg", "").contains("://");
            assert!(!elsewhere, "{name} names something elsewhere");
        }
        assert_eq!(file("../mod.rs"), None);
    }
}
