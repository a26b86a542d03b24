//! The verdict as text for a terminal: lines are wrapped, nothing is cut. Texts from peers are
//! unchanged: the code that prints it escapes them first.

use std::fmt::Write as _;

use super::Report;
use crate::report::{About, Finding};

/// Between the margin and what belongs to a heading.
const INDENT: usize = 2;

/// The least width that lines are wrapped to.
const LEAST_WIDTH: usize = 40;

/// The verdict in lines of at most `width` columns where words allow it. Differences that a row
/// explains are counted by row; with `all_explained` they are shown one by one as well.
pub fn text(report: &Report, width: usize, all_explained: bool) -> String {
    let mut page = Page { out: String::new(), width: width.max(LEAST_WIDTH) };
    page.summary(report);
    page.methods(report);
    page.rows(report);
    for what in &report.not_compared {
        page.paragraph("Not compared: ", what);
    }
    if !report.not_compared.is_empty() {
        page.line("");
    }
    page.findings("Different", &report.different);
    if all_explained {
        page.findings("Explained", &report.explained);
    }
    if report.left_out > 0 {
        page.line(&format!("{} more are counted, but not shown.", report.left_out));
    }
    page.out
}

struct Page {
    out: String,
    width: usize,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// Words after a head, in as many lines as they need, under one another.
    fn paragraph(&mut self, head: &str, text: &str) {
        let indent = head.chars().count();
        for (place, line) in wrapped(text, self.width.saturating_sub(indent)).iter().enumerate() {
            match place {
                0 => self.line(&format!("{head}{line}")),
                _ => self.line(&format!("{:indent$}{line}", "")),
            }
        }
    }

    fn summary(&mut self, report: &Report) {
        let Report { calls, notices, hold_ups, .. } = report;
        self.paragraph("", &report.verdict());
        self.line("");
        let played = format!("{} against {}, {}", report.name, report.target, report.pace());
        self.paragraph("Played    ", &played);
        self.paragraph(
            "Calls     ",
            &format!(
                "{} compared: {} equal, {} explained, {} different",
                calls.compared(),
                calls.equal,
                calls.explained,
                calls.different
            ),
        );
        self.paragraph(
            "Notices   ",
            &format!(
                "{} recorded, {} received: {} findings explained, {} different",
                notices.recorded, notices.live, notices.explained, notices.different
            ),
        );
        if hold_ups.any() {
            self.paragraph("Stalled   ", &hold_ups.to_string());
        }
        for play in &report.earlier {
            let why =
                format!("{} different in a stalled replay: {}", play.different, play.hold_ups);
            self.paragraph("Repeated  ", &why);
        }
        self.line("");
    }

    fn methods(&mut self, report: &Report) {
        if report.by_method.is_empty() {
            return;
        }
        let widest = report.by_method.keys().map(|name| name.chars().count()).max().unwrap_or(0);
        let name_width = widest.clamp(6, self.width.saturating_sub(40).max(20));
        self.line(&format!(
            "{:name_width$}  {:>8}  {:>8}  {:>9}  {:>9}",
            "METHOD", "COMPARED", "EQUAL", "EXPLAINED", "DIFFERENT"
        ));
        for (name, counts) in &report.by_method {
            self.line(&format!(
                "{name:name_width$}  {:>8}  {:>8}  {:>9}  {:>9}",
                counts.compared(),
                counts.equal,
                counts.explained,
                counts.different
            ));
        }
        self.line("");
    }

    fn rows(&mut self, report: &Report) {
        let rows = report.rows();
        if rows.is_empty() {
            return;
        }
        self.line("Explained by rows of docs/compatibility.md:");
        for (rule, times) in rows {
            let head = if rule.is_free_choice() { "free choice" } else { rule.row };
            self.paragraph(&format!("  {times:>5} x {head}: "), rule.text);
        }
        self.line("");
    }

    fn findings(&mut self, head: &str, findings: &[Finding]) {
        for (place, finding) in findings.iter().enumerate() {
            let number = format!("{head} {} of {}: ", place + 1, findings.len());
            self.paragraph(&number, &finding.title());
            self.finding(finding);
            self.line("");
        }
    }

    fn finding(&mut self, finding: &Finding) {
        if let Some(rule) = finding.rule {
            self.paragraph("  row       ", &format!("{}: {}", rule.row, rule.text));
        }
        if !finding.arguments.is_empty() {
            self.paragraph("  called    ", &finding.arguments);
        }
        if finding.fields.different().next().is_none() {
            self.paragraph("  recorded  ", &finding.recorded);
            self.paragraph("  live      ", &finding.live);
            return;
        }
        self.fields(finding);
    }

    /// Fields that differ, in three columns where they fit, else under one another.
    fn fields(&mut self, finding: &Finding) {
        const NONE: &str = "-";
        let rows: Vec<[&str; 3]> = finding
            .fields
            .different()
            .map(|pair| {
                let [recorded, live] =
                    [&pair.recorded, &pair.live].map(|side| side.as_deref().unwrap_or(NONE));
                [&*pair.path, recorded, live]
            })
            .collect();
        let head = ["FIELD", "RECORDED", "LIVE"];
        let widths: [usize; 3] = std::array::from_fn(|column| {
            let of = |row: &[&str; 3]| row.get(column).map_or(0, |cell| cell.chars().count());
            rows.iter().map(of).chain([of(&head)]).max().unwrap_or(0)
        });
        let [path, recorded, live] = widths;
        if INDENT + path + 2 + recorded + 2 + live <= self.width {
            for [name, one, other] in std::iter::once(head).chain(rows) {
                self.line(&format!("  {name:path$}  {one:recorded$}  {other}"));
            }
        } else {
            for [name, one, other] in rows {
                self.paragraph("  ", name);
                self.paragraph("    recorded  ", one);
                self.paragraph("    live      ", other);
            }
        }
        if finding.fields.left_out > 0 {
            self.line(&format!("  {} more fields are not shown", finding.fields.left_out));
        }
    }
}

impl Report {
    /// The verdict in a sentence.
    pub(super) fn verdict(&self) -> String {
        let different = self.different.len();
        match (different, self.explained.is_empty()) {
            (0, true) => "AGREES: no differences.".to_owned(),
            (0, false) => "AGREES: every difference is explained.".to_owned(),
            (1, _) => "DIFFERS: one unexplained difference.".to_owned(),
            (many, _) if self.left_out == 0 => {
                format!("DIFFERS: {many} unexplained differences.")
            }
            (many, _) => format!("DIFFERS: more than {many} unexplained differences."),
        }
    }

    /// How long it was and how fast it was played.
    pub(super) fn pace(&self) -> String {
        let seconds = self.recorded_for.as_secs_f64();
        match self.speed.is_finite() {
            true => format!("{seconds:.1} s at speed {}", self.speed),
            false => format!("{seconds:.1} s as fast as answers allow"),
        }
    }
}

impl Finding {
    /// When and where, in a line.
    pub(super) fn title(&self) -> String {
        let mut title = String::new();
        // Writing to a text does not fail.
        let _ = write!(title, "{}, at {:.3} s", self.place, self.at.as_secs_f64());
        title
    }

    /// What it is about, in a word.
    pub(super) fn kind(&self) -> &'static str {
        match self.about {
            About::Call(_) => "call",
            About::Notice => "notice",
            About::Run => "run",
        }
    }
}

/// Lines of at most `width` characters. They end between words, in longer words anywhere.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(10);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let gap = usize::from(used > 0);
        if used + gap + word.len() > width && used > 0 && word.len() <= width {
            lines.push(String::new());
            used = 0;
        } else if used > 0 {
            push(&mut lines, &[' ']);
            used += 1;
        }
        while used + word.len() > width {
            let rest = word.split_off(width.saturating_sub(used).min(word.len()));
            push(&mut lines, &word);
            word = rest;
            lines.push(String::new());
            used = 0;
        }
        push(&mut lines, &word);
        used += word.len();
    }
    lines
}

fn push(lines: &mut [String], characters: &[char]) {
    if let Some(last) = lines.last_mut() {
        last.extend(characters);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;
    use crate::report::{FieldPair, Rule};

    #[test]
    fn words_are_wrapped_and_long_ones_are_broken() {
        for (text, lines) in [
            ("", &[""][..]),
            ("one two three four", &["one two", "three four"]),
            ("abcdefghijklmnopqrstuvwxyz", &["abcdefghij", "klmnopqrst", "uvwxyz"]),
            ("ab cdefghijklmnop", &["ab cdefghi", "jklmnop"]),
            ("漢漢漢漢漢漢漢漢漢漢漢", &["漢漢漢漢漢漢漢漢漢漢", "漢"]),
        ] {
            assert_eq!(wrapped(text, 10), lines, "{text}");
        }
    }

    #[test]
    fn the_text_fits_a_terminal_and_tells_both_sides() {
        let mut report = sample();
        report.not_compared.push("words ".repeat(30).trim().to_owned());
        let pair = |path: &str, live: &str| FieldPair {
            path: path.to_owned(),
            recorded: None,
            live: Some(live.to_owned()),
        };
        let mut finding = report.explained[0].clone();
        finding.fields.pairs = vec![pair("success.name", "\"x\"")];
        finding.rule = None;
        report.add(finding.clone());
        finding.fields.pairs = vec![pair("success.name", &"y".repeat(200))];
        report.add(finding);
        let text = text(&report, 80, true);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in [
            "DIFFERS: 3 unexplained differences.\n",
            "Played    grants against this program, 3.0 s at speed 2\n",
            "Calls     4 compared: 1 equal, 1 explained, 2 different\n",
            "getSessions           3         0          1          2\n",
            "      1 x S-1: Grants are made at once",
            "Different 1 of 3: connection 3, getSessions 42, at 1.500 s\n  recorded  one\n",
            "  FIELD         RECORDED  LIVE\n  success.name  -         \"x\"\n",
            "    recorded  -\n    live      yyyy",
            "Explained 1 of 1: ",
            &format!("  row       {}: ", Rule::PROMPT_GRANTS.row),
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!super::text(&report, 80, false).contains("Explained 1 of 1"));
    }

    #[test]
    fn the_verdict_is_a_sentence() {
        let mut report = sample();
        report.different.clear();
        assert_eq!(report.verdict(), "AGREES: every difference is explained.");
        report.explained.clear();
        assert_eq!(report.verdict(), "AGREES: no differences.");
        report.speed = f64::INFINITY;
        assert_eq!(report.pace(), "3.0 s as fast as answers allow");
    }
}
