//! A report as one page that needs nothing else: no script, no file, no network.
//!
//! Markup is written with `maud`, which escapes every text.

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::{CountTable, Document};
use super::{FieldPair, Finding};

/// The looks of the page.
const STYLE: &str = include_str!("report.css");

/// The report as an HTML page, for light and for dark windows. With `refresh`, the page reloads itself at
/// this interval.
pub(crate) fn html(document: &Document<'_>, refresh: Option<Duration>) -> String {
    let Document { heading, agrees, verdict, different, left_out, .. } = document;
    let page = html! {
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
                title { (if *agrees { "Agrees" } else { "Differs" }) ": " (document.name) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (heading) }
                    p.verdict.(if *agrees { "good" } else { "bad" }) { (verdict) }
                    (facts(document))
                    @if !different.is_empty() {
                        h2 { "Unexplained differences" }
                        @for finding in different.iter() { (one(finding, true, document.sides)) }
                    }
                    @if !document.rows.is_empty() { (explained(document)) }
                    @if *left_out > 0 {
                        p { (left_out) " more are counted, but not shown." }
                    }
                    (reasons(document))
                    @for table in &document.tables { (counts(table)) }
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
    corona_web::exchange::page_text(page)
}

fn facts(document: &Document<'_>) -> Markup {
    html! {
        dl {
            @for fact in &document.facts {
                dt { (fact.label) }
                @for line in &fact.lines { dd { (line) } }
            }
            @for (times, what) in &document.not_compared {
                @if times.is_none() {
                    dt { "Not compared" }
                    dd { (what) }
                }
            }
        }
    }
}

/// The reasons for which calls and decisions were not compared, with their counts.
fn reasons(document: &Document<'_>) -> Markup {
    let counted = document.not_compared.iter();
    let counted: Vec<_> = counted.filter_map(|(times, what)| Some(((*times)?, what))).collect();
    html! {
        @if !counted.is_empty() {
            h2 { "Not compared" }
            dl {
                @for (times, what) in counted {
                    dt { (times) " ×" }
                    dd { (what) }
                }
            }
        }
    }
}

fn explained(document: &Document<'_>) -> Markup {
    html! {
        h2 { "Differences that are explained" }
        p { "Rows of " code { "docs/reference/compatibility.md" } ", with the first differences of each:" }
        @for (rule, times) in &document.rows {
            details.row {
                summary {
                    span.count { (times) " ×" } " " strong { (rule.name()) } " " (rule.text)
                }
                @for finding in document.explained.iter().filter(|found| found.rule == Some(*rule)) {
                    (one(finding, false, document.sides))
                }
            }
        }
    }
}

/// One difference, opened or not, under the names of the two sides.
fn one(finding: &Finding, open: bool, sides: [&str; 2]) -> Markup {
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
                thead { tr { th scope="col" { "Field" } th.side scope="col" { (left) } th.side scope="col" { (right) } } }
                tbody {
                    @for pair in pairs {
                        tr.differs[!pair.is_equal()] {
                            th scope="row" { (name(&pair.path)) @if !pair.is_equal() { span.mark { " differs" } } }
                            td { (side(&pair.recorded)) }
                            td { (side(&pair.live)) }
                        }
                    }
                }
            }
        }
    }
}

/// A path or a method, which may be broken before a dot, a bracket or a capital.
fn name(name: &str) -> Markup {
    html! {
        code {
            @for (place, part) in parts(name).into_iter().enumerate() {
                @if place > 0 { wbr; }
                (part)
            }
        }
    }
}

/// The parts of a name between which a line may end.
fn parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut before) = (0, ' ');
    for (at, letter) in name.char_indices() {
        let is_end =
            matches!(letter, '.' | '[') || (letter.is_uppercase() && before.is_lowercase());
        if is_end && at > begin {
            parts.extend(name.get(begin..at));
            begin = at;
        }
        before = letter;
    }
    parts.extend(name.get(begin..));
    parts
}

fn counts(table: &CountTable<'_>) -> Markup {
    html! {
        h2 { (table.heading) }
        div.wide {
            table.numbers {
                thead {
                    tr { @for head in table.heads { th scope="col" { (head) } } }
                }
                tbody {
                    @for row in &table.rows {
                        tr.differs[row.differs] {
                            th scope="row" { (name(row.method)) }
                            @for count in row.counts { td { (count) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_within_names_only_before_dots_brackets_and_capitals() {
        for (name, expected) in [
            ("", ""),
            ("url", "url"),
            ("success.clusterManagerInfo.url", "success|.cluster|Manager|Info|.url"),
            ("success[202611210043.1].userId", "success|[202611210043|.1]|.user|Id"),
            ("getActualPoolInfoV2", "get|Actual|Pool|Info|V2"),
            ("éÉ.", "é|É|."),
        ] {
            assert_eq!(parts(name).join("|"), expected);
        }
    }
}
