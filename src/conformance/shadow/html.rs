//! What a shadow has found, as one page that needs nothing else: no script, no file, no network.
//!
//! Markup is written with `maud`, which escapes every text.

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, Render, html as markup};

use super::stats::{Stats, Tally};
use super::text::verdict;
use crate::replay::report::html::{STYLE, by_method, one};

/// What the two sides are called.
const SIDES: [&str; 2] = ["Primary", "Here"];

/// The page, for light and for dark windows. With `refresh` it loads itself anew after so long.
pub fn html(stats: &Stats, refresh: Option<Duration>) -> String {
    let agrees = stats.agrees();
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
                title { (if agrees { "Agrees" } else { "Differs" }) ": " (stats.primary) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "Shadow of " (stats.primary) }
                    p.verdict.(if agrees { "good" } else { "bad" }) { (verdict(stats)) }
                    (summary(stats))
                    (tallies("Answers by method", stats.calls.iter()))
                    (tallies("Notices by method", stats.notices.iter()))
                    (reasons(stats))
                    @if !stats.different.is_empty() {
                        h2 { "Unexplained differences" }
                        @for finding in &stats.different { (one(finding, true, SIDES)) }
                    }
                    @if !stats.rows.is_empty() { (explained(stats)) }
                    @if stats.left_out() > 0 {
                        p { (stats.left_out()) " more are counted, but not shown." }
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

fn summary(stats: &Stats) -> Markup {
    let near = stats.near;
    markup! {
        dl {
            dt { "For" }
            dd { (span(stats.ran_for)) }
            dt { "Answers" }
            dd { (counted(stats.all_calls())) }
            dt { "Notices" }
            dd { (counted(stats.all_notices())) }
            @if near.of > 0 {
                dt { "Near" }
                dd {
                    "of " (near.of) " grants on a preferred host, or of requests without one: " (near.primary) " by the primary, " (near.ours) " here"
                }
            }
            dt { "Sessions" }
            dd { (stats.sessions) " compared, " (stats.unfollowed) " not compared" }
            dt { "Waiting" }
            dd { (stats.waiting) " decisions of one side that the other has not made yet" }
            dt { "Behind" }
            dd { (stats.lag.as_millis()) " ms, at most " (stats.worst_lag.as_millis()) " ms" }
            @for beginning in &stats.last_beginnings {
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

fn reasons(stats: &Stats) -> Markup {
    if stats.reasons.is_empty() {
        return markup! {};
    }
    markup! {
        h2 { "Not compared" }
        dl {
            @for (reason, times) in &stats.reasons {
                dt { (times) " ×" }
                dd { (reason) }
            }
        }
    }
}

fn explained(stats: &Stats) -> Markup {
    markup! {
        h2 { "Differences that are explained" }
        p { "Rows of " code { "docs/compatibility.md" } ", with the first examples:" }
        @for (rule, times) in &stats.rows {
            details.row {
                summary {
                    span.count { (times) " ×" } " "
                    strong { (if rule.is_free_choice() { "free choice" } else { rule.row }) } " "
                    (rule.text)
                }
                @for finding in stats.explained.iter().filter(|one| one.rule == Some(*rule)) {
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
    use std::time::SystemTime;

    use super::*;
    use crate::report::Rule;

    #[test]
    fn the_page_escapes_what_peers_said_and_refreshes_only_if_told() {
        let mut stats = Stats::new("cm:9090", SystemTime::UNIX_EPOCH);
        stats.call("<b>").different = 1;
        stats.rows.insert(Rule::FREE_NODE, 3);
        stats.run_differs(Duration::ZERO, "<script>", "one", "other");
        let page = html(&stats, Some(Duration::from_secs(5)));
        assert!(
            page.contains("DIFFERS: 1 unexplained difference")
                && page.contains("http-equiv=\"refresh\"")
        );
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
        assert!(!html(&stats, None).contains("http-equiv=\"refresh\""));
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
