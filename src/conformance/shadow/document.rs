//! The report of a shadow for people: its contents, rendered as text and as HTML.

use std::borrow::Cow;
use std::time::Duration;

use super::stats::Stats;
use crate::report::document::{CountTable, Document, Fact, TableRow};
use crate::report::{self, Counts, Finding};
use corona_model::types::Span;

/// The report in lines of at most `width` columns where words allow it; unexplained differences one by one,
/// the others by row. It depends on the events of the run alone, so that a replay of them gives the same
/// text.
pub fn text(stats: &Stats, width: usize) -> String {
    report::text::text(&document(stats), width, false)
}

/// The report as an HTML page, for light and for dark windows, with the delay of this process. With
/// `refresh`, the page reloads itself at this interval.
pub fn html(stats: &Stats, refresh: Option<Duration>) -> String {
    let mut document = document(stats);
    document.facts.push(Fact::new(
        "Behind",
        format!("{} ms, at most {} ms", stats.lag.as_millis(), stats.worst_lag.as_millis()),
    ));
    report::html::html(&document, refresh)
}

fn document(stats: &Stats) -> Document<'_> {
    let calls = stats.calls.iter().map(|(method, tally)| row(method, tally));
    let notices = stats.notices.iter().map(|(method, tally)| row(method, tally));
    let tables = [
        ("Answers by method", "Method", calls.collect()),
        ("Notices by method", "Notification", notices.collect::<Vec<_>>()),
    ];
    let tables = tables.into_iter().filter(|(_, _, rows)| !rows.is_empty());
    let tables = tables.map(|(heading, first, rows)| CountTable {
        heading,
        heads: [first, "Equal", "Explained", "Different", "Not compared"],
        rows,
    });
    let of_times = (stats.times.compared() > 0)
        .then(|| report::times::table(&stats.times, ["Primary ms", "Here ms"]));
    let (explained, different): (Vec<Finding>, Vec<Finding>) =
        stats.of_times.iter().cloned().partition(|finding| finding.rule.is_some());
    let mut rows = stats.rows.clone();
    for rule in explained.iter().filter_map(|finding| finding.rule) {
        *rows.entry(rule).or_default() += 1;
    }
    Document {
        heading: format!("Shadow of {}", stats.primary),
        name: &stats.primary,
        agrees: stats.agrees(),
        verdict: verdict(stats),
        facts: facts(stats),
        tables: tables.chain(of_times).collect(),
        rows: rows.into_iter().collect(),
        not_compared: stats.reasons.iter().map(|(reason, times)| (Some(*times), *reason)).collect(),
        sides: ["primary", "here"],
        different: with(&stats.different, different),
        explained: with(&stats.explained, explained),
        left_out: stats.left_out(),
    }
}

/// The findings that are kept, and those about times.
fn with(kept: &[Finding], of_times: Vec<Finding>) -> Cow<'_, [Finding]> {
    match of_times.is_empty() {
        true => kept.into(),
        false => kept.iter().cloned().chain(of_times).collect::<Vec<_>>().into(),
    }
}

fn facts(stats: &Stats) -> Vec<Fact> {
    let near = stats.near;
    let mut facts = vec![
        Fact::new("Shadowed", format!("{} for {}", stats.primary, span(stats.ran_for))),
        Fact { label: "Answers", lines: counted(stats.all_calls()) },
        Fact { label: "Notices", lines: counted(stats.all_notices()) },
    ];
    if stats.times.compared() > 0 {
        facts.push(report::times::fact(&stats.times));
    }
    if near.of > 0 {
        let (of, primary, ours) = (near.of, near.primary, near.ours);
        let line = format!(
            "of {of} grants on a preferred host, or of requests without one: {primary} by the \
             primary, {ours} here"
        );
        facts.push(Fact::new("Near", line));
    }
    facts.push(Fact::new(
        "Sessions",
        format!("running now: {} compared, {} not compared", stats.sessions, stats.unfollowed),
    ));
    facts.push(Fact::new(
        "Waiting",
        format!("{} decisions of one side that the other has not made yet", stats.waiting),
    ));
    if stats.beginnings > 0 {
        let mut lines = vec![format!("{} times", stats.beginnings)];
        let last = stats.last_beginnings.iter();
        lines.extend(last.map(|resync| format!("after {}: {}", span(resync.at), resync.why)));
        facts.push(Fact { label: "Resynced", lines });
    }
    facts
}

fn counted(tally: Counts) -> Vec<String> {
    let mut lines = vec![tally.to_string()];
    if tally.not_compared > 0 {
        lines.push(format!("{} not compared", tally.not_compared));
    }
    lines
}

fn row<'a>(method: &'a str, tally: &Counts) -> TableRow<'a> {
    let Counts { equal, explained, different, not_compared } = *tally;
    TableRow { method, differs: different > 0, counts: [equal, explained, different, not_compared] }
}

/// The verdict in a sentence.
fn verdict(stats: &Stats) -> String {
    let different = stats.all_calls().plus(stats.all_notices()).different;
    let of_times = stats.of_times.iter().filter(|finding| finding.rule.is_none()).count();
    let others = (stats.different.len() as u64).max(different) + of_times as u64;
    let coverage = stats.coverage();
    let verdict = match others {
        0 if stats.all_calls().compared() == 0 => "NOTHING WAS COMPARED.".to_owned(),
        0 => {
            let agrees = if coverage.is_low() { "AGREES IN PART" } else { "AGREES" };
            format!("{agrees}: no unexplained differences{}.", coverage.remark())
        }
        1 => "DIFFERS: 1 unexplained difference.".to_owned(),
        others => format!("DIFFERS: {others} unexplained differences."),
    };
    format!("{verdict} {}", coverage.sentence())
}

/// A length of time for people.
fn span(time: Duration) -> Span {
    Span(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Rule;

    #[test]
    fn the_page_escapes_what_peers_said_and_reloads_only_if_asked() {
        let mut stats = Stats::new("cm:9090");
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
}
