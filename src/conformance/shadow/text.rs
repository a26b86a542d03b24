//! What a shadow has found, as text for a terminal. Texts of peers are in it as they came: whoever
//! prints it makes each line harmless first.

use std::fmt::Write as _;

use super::stats::{Stats, Tally};
use crate::replay::report::text::wrapped;
use crate::report::Finding;

/// The least width that lines are wrapped to.
const LEAST_WIDTH: usize = 40;

/// All of it in lines of at most `width` columns where words allow it; differences that nothing
/// explains one by one, the others by row.
pub fn text(stats: &Stats, width: usize) -> String {
    let mut whole = String::new();
    // Writing to a text does not fail.
    let _ = write(&mut whole, stats);
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

fn write(out: &mut String, stats: &Stats) -> std::fmt::Result {
    writeln!(out, "{}\n", verdict(stats))?;
    writeln!(out, "Shadowed    {} for {} s", stats.primary, stats.ran_for.as_secs())?;
    writeln!(out, "Answers     {}", counted(stats.all_calls()))?;
    writeln!(out, "Notices     {}", counted(stats.all_notices()))?;
    let near = stats.near;
    if near.of > 0 {
        let (of, primary, ours) = (near.of, near.primary, near.ours);
        writeln!(out, "Near        of {of} grants: {primary} by the primary, {ours} here")?;
    }
    if stats.beginnings > 0 {
        writeln!(out, "Resynced    {} times", stats.beginnings)?;
        for beginning in &stats.last_beginnings {
            writeln!(out, "  at {} s: {}", beginning.at.as_secs(), beginning.why)?;
        }
    }
    writeln!(out)?;
    let calls = stats.calls.iter().map(|(method, tally)| (method.as_str(), tally));
    let notices = stats.notices.iter().map(|(method, tally)| (*method, tally));
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
    if !stats.rows.is_empty() {
        writeln!(out, "Explained by rows of docs/compatibility.md:")?;
        for (rule, times) in &stats.rows {
            let name = if rule.is_free_choice() { "free choice" } else { rule.row };
            writeln!(out, "{times:>10}  {name}: {}", rule.text)?;
        }
        writeln!(out)?;
    }
    if !stats.reasons.is_empty() {
        writeln!(out, "Not compared:")?;
        for (reason, times) in &stats.reasons {
            writeln!(out, "{times:>10}  {reason}")?;
        }
        writeln!(out)?;
    }
    for (place, finding) in stats.different.iter().enumerate() {
        write_finding(out, place + 1, stats.different.len(), finding)?;
    }
    let left_out = stats.left_out();
    if left_out > 0 {
        writeln!(out, "{left_out} differences of either kind are counted, but not kept.")?;
    }
    Ok(())
}

/// The verdict in a sentence.
pub(super) fn verdict(stats: &Stats) -> String {
    let different = stats.all_calls().plus(stats.all_notices()).different;
    let others = (stats.different.len() as u64).max(different);
    match others {
        0 if stats.all_calls().compared() == 0 => "NOTHING SEEN: nothing was compared.".to_owned(),
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
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::report::Rule;

    #[test]
    fn the_summary_tells_counts_rows_reasons_and_differences() {
        let mut stats = Stats::new("cm:9090", SystemTime::UNIX_EPOCH);
        assert!(text(&stats, 80).starts_with("NOTHING SEEN"), "{}", text(&stats, 80));
        stats.call("nodeHeartbeat").equal = 7;
        stats.notice("grantResource").explained = 2;
        stats.rows.insert(Rule::FREE_NODE, 2);
        stats.not_compared("calls of others");
        assert!(text(&stats, 80).starts_with("AGREES"), "{}", text(&stats, 80));
        stats.run_differs(Duration::ZERO, "somewhere", "this", "that");
        let text = text(&stats, 80);
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
