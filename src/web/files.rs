//! Static files of the pages: style sheets and scripts.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use maud::{Markup, html};

/// Static files of the pages: style sheets and scripts.
const FILES: [(&str, &str, &str); 4] = [
    ("corona.css", "text/css; charset=utf-8", include_str!("assets/corona.css")),
    ("corona.js", "text/javascript; charset=utf-8", include_str!("assets/corona.js")),
    // For pages of Java's job trackers, which link to it at a proxy job tracker.
    ("hadoop.css", "text/css; charset=utf-8", include_str!("assets/hadoop.css")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// The content type and content of a file.
pub fn file(name: &str) -> Option<(&'static str, &'static str)> {
    FILES.iter().find(|(own, ..)| *own == name).map(|(_, kind, content)| (*kind, *content))
}

/// The address of a file, which changes with the contents of the files.
fn address(name: &str) -> String {
    static TAG: OnceLock<u64> = OnceLock::new();
    let tag = TAG.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        FILES.hash(&mut hasher);
        hasher.finish()
    });
    format!("/static/{name}?v={tag:016x}")
}

/// The head of a page of the service on this host.
pub fn head(title: &str, host: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " – " (host) " – Corona" }
            link rel="stylesheet" href=(address("corona.css"));
            link rel="icon" type="image/svg+xml" href=(address("icon.svg"));
            script src=(address("corona.js")) defer {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn files_are_there_and_load_nothing_from_elsewhere() {
        for (name, kind, content) in FILES {
            assert!(!content.is_empty() && !kind.is_empty());
            assert_eq!(file(name), Some((kind, content)));
            let elsewhere = content.replace("http://www.w3.org/2000/svg", "").contains("://");
            assert!(!elsewhere, "{name} names something elsewhere");
        }
        assert_eq!(file("../mod.rs"), None);
    }
}
