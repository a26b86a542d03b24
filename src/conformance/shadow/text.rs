//! What a shadow has found, as text for a terminal. Texts of peers are in it as they came: whoever
//! prints it makes each line harmless first.

use std::fmt::Write as _;

use super::figures::{Figures, Tally};
use crate::replay::Finding;
use crate::replay::report::text::wrapped;

/// The least width that lines are wrapped to.
const LEAST_WIDTH: usize = 40;

/// All of it in lines of at most `width` columns where words allow it; differences that nothing
/// explains one by one, the others by row.
pub fn text(figures: &Figures, width: usize) -> String {
    let mut whole = String::new();
    // Writing to a text does not fail.
    let _ = write(&mut whole, figures);
    let width = width.max(LEAST_WIDTH);
    let mut out = String::with_capacity(whole.len());
    for line in whole.lines() {
        wrap(&mut out, line, width);
    }
    out
}

/// A line in as many as it needs, under the word after its head.
fn wrap(out: &mut String, line: &str, width: usize) {
    if line.chars().count() <= width {
        out.push_str(line);
        out.push('\n');
        return;
    }
    let head = line
        .char_indices()
        .nth(HEAD)
        .filter(|(at, _)| line.get(..*at).is_some_and(|head| head.ends_with(' ')));
    let (head, rest) = line.split_at(head.map_or(0, |(at, _)| at));
    let indent = head.chars().count();
    for (place, part) in wrapped(rest, width - indent).iter().enumerate() {
        let head = if place == 0 { head } else { "" };
        let _ = writeln!(out, "{head:indent$}{part}");
    }
}

/// Where what follows a head begins.
const HEAD: usize = 12;

fn write(out: &mut String, figures: &Figures) -> std::fmt::Result {
    writeln!(out, "{}\n", verdict(figures))?;
    writeln!(out, "Shadowed    {} for {} s", figures.primary, figures.ran_for().as_secs())?;
    writeln!(out, "Answers     {}", counted(figures.all_calls()))?;
    writeln!(out, "Notices     {}", counted(figures.all_notices()))?;
    let near = figures.near;
    if near.of > 0 {
        let (of, primary, ours) = (near.of, near.primary, near.ours);
        writeln!(out, "Near        of {of} grants: {primary} by the primary, {ours} here")?;
    }
    if figures.beginnings > 0 {
        writeln!(out, "Resynced    {} times", figures.beginnings)?;
        for beginning in &figures.last_beginnings {
            writeln!(out, "  at {} s: {}", beginning.at.as_secs(), beginning.why)?;
        }
    }
    writeln!(out)?;
    let calls = figures.calls.iter().map(|(method, tally)| (method.as_str(), tally));
    let notices = figures.notices.iter().map(|(method, tally)| (*method, tally));
    let all: Vec<(&str, &Tally)> = calls.chain(notices).collect();
    if !all.is_empty() {
        writeln!(
            out,
            "{:20}  {:>10}  {:>9}  {:>9}  {:>12}",
            "METHOD", "EQUAL", "EXPLAINED", "DIFFERENT", "NOT COMPARED"
        )?;
        for (method, tally) in all {
            let Tally { equal, explained, different, not_compared } = tally;
            writeln!(
                out,
                "{method:20}  {equal:>10}  {explained:>9}  {different:>9}  {not_compared:>12}"
            )?;
        }
        writeln!(out)?;
    }
    if !figures.rows.is_empty() {
        writeln!(out, "Explained by rows of docs/compatibility.md:")?;
        for (rule, times) in &figures.rows {
            let name = if rule.is_free_choice() { "free choice" } else { rule.row };
            writeln!(out, "{times:>10}  {name}: {}", rule.text)?;
        }
        writeln!(out)?;
    }
    if !figures.reasons.is_empty() {
        writeln!(out, "Not compared:")?;
        for (reason, times) in &figures.reasons {
            writeln!(out, "{times:>10}  {reason}")?;
        }
        writeln!(out)?;
    }
    for (place, finding) in figures.different.iter().enumerate() {
        write_finding(out, place + 1, figures.different.len(), finding)?;
    }
    let left_out = figures.left_out();
    if left_out > 0 {
        writeln!(out, "{left_out} differences of either kind are counted, but not kept.")?;
    }
    Ok(())
}

/// The verdict in a sentence.
pub(super) fn verdict(figures: &Figures) -> String {
    let different = figures.all_calls().plus(figures.all_notices()).different;
    let others = (figures.different.len() as u64).max(different);
    match others {
        0 if figures.all_calls().compared() == 0 => {
            "NOTHING SEEN: nothing was compared.".to_owned()
        }
        0 => "AGREES: no unexplained differences.".to_owned(),
        1 => "DIFFERS: 1 unexplained difference.".to_owned(),
        others => format!("DIFFERS: {others} unexplained differences."),
    }
}

fn counted(tally: Tally) -> String {
    let Tally { equal, explained, different, not_compared } = tally;
    let compared = tally.compared();
    let mut text =
        format!("{compared} compared: {equal} equal, {explained} explained, {different} different");
    if not_compared > 0 {
        let _ = write!(text, "\n            {not_compared} not compared");
    }
    text
}

fn write_finding(
    out: &mut String,
    number: usize,
    of: usize,
    finding: &Finding,
) -> std::fmt::Result {
    let at = finding.at.as_secs_f64();
    writeln!(out, "Different {number} of {of}: {}, at {at:.3} s", finding.place)?;
    if !finding.arguments.is_empty() {
        writeln!(out, "  called    {}", finding.arguments)?;
    }
    if finding.fields.pairs.is_empty() {
        writeln!(out, "  primary   {}", finding.recorded)?;
        writeln!(out, "  here      {}", finding.live)?;
    }
    for pair in finding.fields.different() {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "(not there)".to_owned());
        writeln!(out, "  {}", pair.path)?;
        writeln!(out, "    primary {}", side(&pair.recorded))?;
        writeln!(out, "    here    {}", side(&pair.live))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Rule;

    #[test]
    fn the_summary_tells_counts_rows_reasons_and_differences() {
        let mut figures = Figures::new("cm:9090");
        assert!(text(&figures, 80).starts_with("NOTHING SEEN"), "{}", text(&figures, 80));
        figures.call("nodeHeartbeat").equal = 7;
        figures.notice("grantResource").explained = 2;
        figures.rows.insert(Rule::FREE_NODE, 2);
        figures.not_compared("calls of others");
        assert!(text(&figures, 80).starts_with("AGREES"), "{}", text(&figures, 80));
        figures.run_differs("somewhere", "this", "that");
        let text = text(&figures, 80);
        for line in [
            "DIFFERS: 1 unexplained difference.",
            "Answers     7 compared: 7 equal, 0 explained, 0 different",
            "grantResource                  0          2          0             0",
            "         2  free choice: Which node serves a request is free when several are\n            equally near.",
            "         1  calls of others",
            "Different 1 of 1: somewhere, at 0.000 s",
            "  primary   this",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
