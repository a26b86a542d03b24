//! A report as text for a terminal: lines are wrapped, nothing is cut. Texts from peers are unchanged: the
//! code that prints it escapes them first.

use super::document::{CountTable, Document};
use super::{Finding, Subject};

/// The indentation of the lines below a heading.
const INDENT: usize = 2;

/// The least width that lines are wrapped to.
const LEAST_WIDTH: usize = 40;

/// The least width of the labels of facts.
const LEAST_LABEL: usize = 8;

/// The least width of a column of numbers.
const NUMBER_WIDTH: usize = 8;

/// The report in lines of at most `width` columns where words allow it. Differences that a row explains
/// are counted by row; with `all_explained` they are shown one by one as well.
pub(crate) fn text(document: &Document<'_>, width: usize, all_explained: bool) -> String {
    let width = width.max(LEAST_WIDTH);
    let mut page = TextPage { out: String::new(), width, sides: document.sides };
    page.paragraph("", &document.verdict);
    page.line("");
    page.facts(document);
    page.tables(&document.tables);
    page.rows(document);
    page.not_compared(document);
    page.findings("Different", &document.different);
    if all_explained {
        page.findings("Explained", &document.explained);
    }
    if document.left_out > 0 {
        page.line(&format!("{} more are counted, but not shown.", document.left_out));
    }
    page.out
}

struct TextPage {
    out: String,
    width: usize,
    sides: [&'static str; 2],
}

impl TextPage {
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

    fn facts(&mut self, document: &Document<'_>) {
        let widest =
            document.facts.iter().map(|fact| fact.label.len()).max().unwrap_or(0).max(LEAST_LABEL);
        for fact in &document.facts {
            for (place, line) in fact.lines.iter().enumerate() {
                let label = if place == 0 { fact.label } else { "" };
                self.paragraph(&format!("{label:widest$}  "), line);
            }
        }
        self.line("");
    }

    fn tables(&mut self, tables: &[CountTable<'_>]) {
        let names = tables.iter().flat_map(|table| &table.rows);
        let widest = names.map(|row| row.method.chars().count()).max().unwrap_or(0);
        for table in tables {
            let [first, heads @ ..] = table.heads;
            let widths = heads.map(|head| head.len().max(NUMBER_WIDTH));
            let of_numbers: usize = widths.iter().map(|width| width + 2).sum();
            let name_width =
                widest.clamp(first.len(), self.width.saturating_sub(of_numbers).max(20));
            let mut row = |name: &str, cells: [String; 4]| {
                let cells = cells.iter().zip(widths);
                let cells: String =
                    cells.map(|(cell, width)| format!("  {cell:>width$}")).collect();
                self.line(&format!("{name:name_width$}{cells}"));
            };
            row(&first.to_uppercase(), heads.map(str::to_uppercase));
            for counts in &table.rows {
                row(counts.method, counts.counts.map(|count| count.to_string()));
            }
            self.line("");
        }
    }

    fn rows(&mut self, document: &Document<'_>) {
        if document.rows.is_empty() {
            return;
        }
        self.line("Explained by rows of docs/reference/compatibility.md:");
        for (rule, times) in &document.rows {
            self.paragraph(&format!("  {times:>5} x {}: ", rule.name()), rule.text);
        }
        self.line("");
    }

    fn not_compared(&mut self, document: &Document<'_>) {
        if document.not_compared.is_empty() {
            return;
        }
        if document.not_compared.iter().any(|(times, _)| times.is_some()) {
            self.line("Not compared:");
        }
        for (times, what) in &document.not_compared {
            match times {
                Some(times) => self.paragraph(&format!("  {times:>5} x "), what),
                None => self.paragraph("Not compared: ", what),
            }
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
            let [recorded, live] = self.sides.map(|side| format!("  {side:10}"));
            self.paragraph(&recorded, &finding.recorded);
            self.paragraph(&live, &finding.live);
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
        let [left, right] = self.sides.map(str::to_uppercase);
        let head = ["FIELD", &left, &right];
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
                let [recorded, live] = self.sides.map(|side| format!("    {side:10}"));
                self.paragraph(&recorded, one);
                self.paragraph(&live, other);
            }
        }
        if finding.fields.left_out > 0 {
            self.line(&format!("  {} more fields are not shown", finding.fields.left_out));
        }
    }
}

impl Finding {
    /// Its place and time, on one line.
    pub(super) fn title(&self) -> String {
        format!("{}, at {:.3} s", self.place, self.at.as_secs_f64())
    }

    /// Its subject in a word.
    pub(super) fn kind(&self) -> &'static str {
        match self.about {
            Subject::Call(_) => "call",
            Subject::Notice => "notice",
            Subject::Time => "time",
            Subject::Run => "run",
        }
    }
}

/// Lines of at most `width` characters. They end between words, in longer words anywhere.
fn wrapped(text: &str, width: usize) -> Vec<String> {
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
    use super::*;

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
}
