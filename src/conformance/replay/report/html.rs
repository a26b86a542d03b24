//! The verdict as one page that needs nothing else: no script, no file, no network.
//!
//! Markup is written with `maud`, which escapes every text.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

use super::{Counts, Report};
use crate::report::{FieldPair, Finding};

/// The verdict as an HTML page, for light and for dark windows.
pub fn html(report: &Report) -> String {
    let style = PreEscaped(STYLE);
    let agrees = report.agrees();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'";
                title { (if agrees { "Agrees" } else { "Differs" }) ": " (report.name) }
                style { (style) }
            }
            body {
                main {
                    h1 { "Replay of " (report.name) }
                    p.verdict.(if agrees { "good" } else { "bad" }) { (report.verdict()) }
                    (summary(report))
                    @if !report.different.is_empty() {
                        h2 { "Unexplained differences" }
                        @for finding in &report.different { (one(finding, true, SIDES)) }
                    }
                    @if !report.explained.is_empty() { (explained(report)) }
                    @if report.left_out > 0 {
                        p { (report.left_out) " more are counted, but not shown." }
                    }
                    (methods(report))
                }
                footer { "corona " (env!("CARGO_PKG_VERSION")) }
            }
        }
    };
    page.into_string()
}

fn summary(report: &Report) -> Markup {
    let notices = &report.notices;
    html! {
        dl {
            dt { "Played" }
            dd { "against " (report.target) ", " (report.pace()) }
            dt { "Calls" }
            dd { (counted(&report.calls)) }
            dt { "Notices" }
            dd {
                (notices.recorded) " recorded, " (notices.live) " received: " (notices.explained)
                " findings explained, " (notices.different) " different"
            }
            @if report.hold_ups.any() {
                dt { "Stalled" }
                dd { (report.hold_ups) }
            }
            @for play in &report.earlier {
                dt { "Repeated" }
                dd { (play.different) " different in a stalled replay: " (play.hold_ups) }
            }
            @for what in &report.not_compared {
                dt { "Not compared" }
                dd { (what) }
            }
        }
    }
}

fn counted(counts: &Counts) -> String {
    let Counts { equal, explained, different } = counts;
    let compared = counts.compared();
    format!("{compared} compared: {equal} equal, {explained} explained, {different} different")
}

fn explained(report: &Report) -> Markup {
    html! {
        h2 { "Differences that are explained" }
        p { "Rows of " code { "docs/compatibility.md" } ":" }
        @for (rule, times) in report.rows() {
            details.row {
                summary {
                    span.count { (times) " ×" } " "
                    strong { (if rule.is_free_choice() { "free choice" } else { rule.row }) } " "
                    (rule.text)
                }
                @for finding in report.explained.iter().filter(|found| found.rule == Some(rule)) {
                    (one(finding, false, SIDES))
                }
            }
        }
    }
}

/// What the sides of a replay are called.
const SIDES: [&str; 2] = ["Recorded", "Live"];

/// The looks of a page with findings.
pub(crate) const STYLE: &str = include_str!("report.css");

/// One difference, opened or not, under the names of the two sides.
pub(crate) fn one(finding: &Finding, open: bool, sides: [&str; 2]) -> Markup {
    html! {
        details.finding open[open] {
            summary { (finding.title()) }
            @if !finding.arguments.is_empty() {
                p.arguments { "called with " code { (finding.arguments) } }
            }
            @if finding.fields.pairs.is_empty() {
                (table(&[FieldPair {
                    path: String::new(),
                    recorded: Some(finding.recorded.clone()),
                    live: Some(finding.live.clone()),
                }], sides))
            } @else {
                (table(&finding.fields.pairs, sides))
                @if finding.fields.left_out > 0 {
                    p { (finding.fields.left_out) " more fields are not shown." }
                }
            }
        }
    }
}

fn table(pairs: &[FieldPair], [left, right]: [&str; 2]) -> Markup {
    let side = |side: &Option<String>| {
        html! {
            @match side {
                Some(value) => code { (value) },
                None => span.none { "not there" },
            }
        }
    };
    html! {
        div.wide {
            table {
                thead { tr { th scope="col" { "Field" } th scope="col" { (left) } th scope="col" { (right) } } }
                tbody {
                    @for pair in pairs {
                        tr.differs[!pair.is_equal()] {
                            th scope="row" { (path(&pair.path)) @if !pair.is_equal() { span.mark { " differs" } } }
                            td { (side(&pair.recorded)) }
                            td { (side(&pair.live)) }
                        }
                    }
                }
            }
        }
    }
}

/// A path that may be broken before its dots.
fn path(path: &str) -> Markup {
    html! {
        code {
            @for (place, part) in path.split('.').enumerate() {
                @if place > 0 { wbr; "." }
                (part)
            }
        }
    }
}

fn methods(report: &Report) -> Markup {
    let rows = report.by_method.iter().map(|(method, counts)| {
        let Counts { equal, explained, different } = *counts;
        (method, different > 0, [counts.compared(), equal, explained, different])
    });
    by_method("Calls by method", ["Compared", "Equal", "Explained", "Different"], rows)
}

/// A table of numbers under a heading: the heads of its columns, and for each method whether
/// anything differs, and the numbers.
pub(crate) fn by_method<N: Render, const COLUMNS: usize>(
    heading: &str,
    heads: [&str; COLUMNS],
    rows: impl Iterator<Item = (impl Render, bool, [N; COLUMNS])>,
) -> Markup {
    html! {
        h2 { (heading) }
        div.wide {
            table.numbers {
                thead {
                    tr {
                        th scope="col" { "Method" }
                        @for head in heads { th scope="col" { (head) } }
                    }
                }
                tbody {
                    @for (method, differs, numbers) in rows {
                        tr.differs[differs] {
                            th scope="row" { code { (method) } }
                            @for number in numbers { td { (number) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn the_page_stands_alone_and_escapes_what_peers_said() {
        let mut report = sample();
        report.name = "<script>alert(1)</script>".to_owned();
        report.not_compared.push("a & b".to_owned());
        let page = html(&report);
        assert!(!page.contains("<script") && !page.contains("<b>two"), "{page}");
        for part in ["&lt;b&gt;two", "a &amp; b", "Differs: &lt;script&gt;", "S-1"] {
            assert!(page.contains(part), "{part}");
        }
        for elsewhere in ["http:", "https:", " src=", "url(", "@import", "<link"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn sides_stand_beside_one_another() {
        let mut report = sample();
        let pair = |path: &str, live: Option<&str>| FieldPair {
            path: path.to_owned(),
            recorded: Some("1".to_owned()),
            live: live.map(str::to_owned),
        };
        report.different[0].fields.pairs = vec![pair("same", Some("1")), pair("other", None)];
        let page = html(&report);
        assert_eq!(page.matches("<tr class=\"differs\">").count(), 2, "{page}");
        assert!(page.contains("not there"));
        report.different.clear();
        let page = html(&report);
        assert!(page.contains("<title>Agrees: grants</title>") && page.contains("AGREES"));
    }
}
