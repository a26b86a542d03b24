//! What a shadow has found, as one page that needs nothing else: no script, no file, no network.
//!
//! Markup is written with `maud`, which escapes every text.

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, Render, html as markup};

use super::figures::{Figures, Tally};
use super::text::verdict;
use crate::replay::report::html::{STYLE, by_method, one};

/// What the two sides are called.
const SIDES: [&str; 2] = ["Primary", "Here"];

/// The page, for light and for dark windows. With `refresh` it loads itself anew after so long.
pub fn html(figures: &Figures, refresh: Option<Duration>) -> String {
    let agrees = figures.agrees();
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                @if let Some(refresh) = refresh {
                    meta http-equiv="refresh" content=(refresh.as_secs());
                }
                title { (if agrees { "Agrees" } else { "Differs" }) ": " (figures.primary) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "Shadow of " (figures.primary) }
                    p.verdict.(if agrees { "good" } else { "bad" }) { (verdict(figures)) }
                    (summary(figures))
                    (tallies("Answers by method", figures.calls.iter()))
                    (tallies("Notices by method", figures.notices.iter()))
                    (reasons(figures))
                    @if !figures.different.is_empty() {
                        h2 { "Unexplained differences" }
                        @for finding in &figures.different { (one(finding, true, SIDES)) }
                    }
                    @if !figures.rows.is_empty() { (explained(figures)) }
                    @if figures.left_out() > 0 {
                        p { (figures.left_out()) " more are counted, but not shown." }
                    }
                }
                footer {
                    "corona " (env!("CARGO_PKG_VERSION"))
                    @if let Some(refresh) = refresh {
                        ". This page reloads itself every " (refresh.as_secs()) " s; "
                        a href="?still" { "without reload" } "."
                    }
                }
            }
        }
    };
    page.into_string()
}

fn summary(figures: &Figures) -> Markup {
    let near = figures.near;
    markup! {
        dl {
            dt { "For" }
            dd { (span(figures.ran_for())) }
            dt { "Answers" }
            dd { (counted(figures.all_calls())) }
            dt { "Notices" }
            dd { (counted(figures.all_notices())) }
            @if near.of > 0 {
                dt { "Near" }
                dd {
                    "of " (near.of) " grants on a preferred host, or of requests without one: " (near.primary) " by the primary, " (near.ours) " here"
                }
            }
            dt { "Sessions" }
            dd { (figures.sessions) " compared, " (figures.unfollowed) " not compared" }
            dt { "Waiting" }
            dd { (figures.waiting) " decisions of one side that the other has not made yet" }
            dt { "Behind" }
            dd { (figures.lag.as_millis()) " ms, at most " (figures.worst_lag.as_millis()) " ms" }
            @for beginning in &figures.last_beginnings {
                dt { "Resynchronised" }
                dd { "after " (span(beginning.at)) ": " (beginning.why) }
            }
        }
    }
}

fn counted(tally: Tally) -> String {
    let Tally { equal, explained, different, not_compared } = tally;
    let compared = tally.compared();
    format!(
        "{compared} compared: {equal} equal, {explained} explained, {different} different; \
         {not_compared} not compared"
    )
}

fn tallies<'a>(
    heading: &str,
    rows: impl ExactSizeIterator<Item = (impl Render, &'a Tally)>,
) -> Markup {
    if rows.len() == 0 {
        return markup! {};
    }
    let rows = rows.map(|(method, tally)| {
        let Tally { equal, explained, different, not_compared } = *tally;
        (method, different > 0, [equal, explained, different, not_compared])
    });
    by_method(heading, ["Equal", "Explained", "Different", "Not compared"], rows)
}

fn reasons(figures: &Figures) -> Markup {
    if figures.reasons.is_empty() {
        return markup! {};
    }
    markup! {
        h2 { "Not compared" }
        dl {
            @for (reason, times) in &figures.reasons {
                dt { (times) " ×" }
                dd { (reason) }
            }
        }
    }
}

fn explained(figures: &Figures) -> Markup {
    markup! {
        h2 { "Differences that are explained" }
        p { "Rows of " code { "docs/compatibility.md" } ", with the first examples:" }
        @for (rule, times) in &figures.rows {
            details.row {
                summary {
                    span.count { (times) " ×" } " "
                    strong { (if rule.is_free_choice() { "free choice" } else { rule.row }) } " "
                    (rule.text)
                }
                @for finding in figures.explained.iter().filter(|one| one.rule == Some(*rule)) {
                    (one(finding, false, SIDES))
                }
            }
        }
    }
}

/// A length of time for people.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Rule;

    #[test]
    fn the_page_escapes_what_peers_said_and_refreshes_only_if_told() {
        let mut figures = Figures::new("cm:9090");
        figures.call("<b>").different = 1;
        figures.rows.insert(Rule::FREE_NODE, 3);
        figures.run_differs("<script>", "one", "other");
        let page = html(&figures, Some(Duration::from_secs(5)));
        assert!(
            page.contains("DIFFERS: 1 unexplained difference")
                && page.contains("http-equiv=\"refresh\"")
        );
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
        assert!(!html(&figures, None).contains("http-equiv=\"refresh\""));
    }

    #[test]
    fn spans_are_short() {
        for (seconds, shown) in
            [(5, "5 s"), (65, "1 min 5 s"), (3_660, "1 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), shown);
        }
    }
}
