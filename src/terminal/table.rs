//! Tables for a terminal: aligned columns, cut to a width, coloured where that is allowed.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::console::{Console, printable};

/// Blanks between two columns.
const GAP: usize = 2;
/// The minimum width: narrower terminals get lines that are too long.
const LEAST_SHOWN: usize = 4;
/// The mark at the end of a cut text.
const ELLIPSIS: char = '…';

/// A column: its head and how it is set.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    head: &'static str,
    right: bool,
    /// The width with which it still reads well; none when it is never cut.
    least: Option<usize>,
    /// Whether it is cut at its start.
    keeps_end: bool,
}

impl Column {
    /// A text that is never cut, such as a name that is needed in the next command.
    pub const fn whole(head: &'static str) -> Column {
        Column { head, right: false, least: None, keeps_end: false }
    }

    /// A text that may be cut, and still reads well with this many columns.
    pub const fn text(head: &'static str, least: usize) -> Column {
        Column { head, right: false, least: Some(least), keeps_end: false }
    }

    /// A text whose end matters most, such as a path with a line number: cut at
    /// its start.
    pub const fn path(head: &'static str, least: usize) -> Column {
        Column { head, right: false, least: Some(least), keeps_end: true }
    }

    /// A number: never cut, set to the right.
    pub const fn number(head: &'static str) -> Column {
        Column { head, right: true, least: None, keeps_end: false }
    }
}

/// A cell, and how it looks where colours are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

/// The tone of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As everything else.
    #[default]
    Plain,
    /// As a head.
    Strong,
    /// As something wrong.
    Bad,
    /// As something to look at.
    Notable,
}

impl Tone {
    /// The codes before and after.
    fn codes(self) -> Option<(&'static str, &'static str)> {
        match self {
            Tone::Plain => None,
            Tone::Strong => Some(("\x1b[1m", "\x1b[0m")),
            Tone::Bad => Some(("\x1b[31m", "\x1b[0m")),
            Tone::Notable => Some(("\x1b[33m", "\x1b[0m")),
        }
    }

    /// The text in this tone, if colours are allowed.
    pub fn paint(self, text: &str, colours: bool) -> String {
        match self.codes().filter(|_| colours && !text.is_empty()) {
            Some((before, after)) => format!("{before}{text}{after}"),
            None => text.to_owned(),
        }
    }
}

impl Cell {
    /// A text of one line.
    pub fn new(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::new(text, Tone::Plain)
    }
}

/// A cell with a number, or with a dash for none.
pub fn number(number: Option<impl ToString>) -> Cell {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string()).into()
}

/// A table with a head.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty. Control characters of its texts are escaped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let escape = |cell: Cell| Cell { text: printable(&cell.text).into_owned(), ..cell };
        self.rows.push(cells.into_iter().map(escape).collect());
    }

    /// Whether everything can be shown on this console.
    pub fn fits(&self, console: &Console<'_>, wide: bool) -> bool {
        let Some(limit) = console.width.filter(|_| !wide) else { return true };
        let gaps = GAP * self.columns.len().saturating_sub(1);
        self.widths(None).iter().sum::<usize>() + gaps <= limit
    }

    /// The table as lines, for this console; `wide` for columns that are not cut.
    pub fn render(&self, console: &Console<'_>, wide: bool) -> String {
        self.lines(console.width.filter(|_| !wide), console.colours)
    }

    /// The table as lines of at most so many columns, as far as its columns can be cut.
    pub fn render_within(&self, width: usize, colours: bool) -> String {
        self.lines(Some(width), colours)
    }

    fn lines(&self, limit: Option<usize>, colours: bool) -> String {
        let widths = self.widths(limit);
        let mut text = String::new();
        let heads: Vec<Cell> =
            self.columns.iter().map(|column| Cell::new(column.head, Tone::Strong)).collect();
        for row in std::iter::once(&heads).chain(&self.rows) {
            self.line(&mut text, row, &widths, colours);
        }
        text
    }

    /// The table as lines without padding: two blanks between the cells of a row. For columns of
    /// which a single text can be much longer than the others.
    pub fn render_unaligned(&self, console: &Console<'_>) -> String {
        let heads: Vec<Cell> =
            self.columns.iter().map(|column| Cell::new(column.head, Tone::Strong)).collect();
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let cells = row.iter().map(|cell| cell.tone.paint(&cell.text, console.colours));
            text.push_str(cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end());
            text.push('\n');
        }
        text
    }

    fn line(&self, text: &mut String, row: &[Cell], widths: &[usize], colours: bool) {
        let mut pending_blanks = 0;
        for ((column, width), cell) in self.columns.iter().zip(widths).zip(row) {
            let shown = match column.keeps_end {
                true => cut_start(&cell.text, *width),
                false => cut(&cell.text, *width),
            };
            let blanks = width.saturating_sub(shown.width());
            if column.right {
                pending_blanks += blanks;
            }
            // Blanks are written when something follows, so that no line ends with one.
            if !shown.is_empty() {
                text.extend(std::iter::repeat_n(' ', pending_blanks));
                text.push_str(&cell.tone.paint(&shown, colours));
                pending_blanks = 0;
            }
            pending_blanks += GAP + if column.right { 0 } else { blanks };
        }
        text.push('\n');
    }

    /// The widths of the columns: those that their texts need; if that is too much, columns with
    /// the most to spare are made narrower.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::with_capacity(self.columns.len());
        for (at, column) in self.columns.iter().enumerate() {
            let cells =
                self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.text.width());
            widths.push(cells.chain([column.head.width()]).max().unwrap_or_default());
        }
        let Some(limit) = limit else { return widths };
        let gaps = GAP * self.columns.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
        // Down to a readable width; if that is not enough, to the least that can be seen.
        for floor in [usize::MAX, LEAST_SHOWN] {
            while excess > 0 {
                let cuttable =
                    self.columns.iter().zip(&mut widths).filter_map(|(column, width)| {
                        let least = column.least?.min(floor).max(column.head.width());
                        width.checked_sub(least).filter(|spare| *spare > 0).zip(Some(width))
                    });
                let Some((_, width)) = cuttable.max_by_key(|(spare, _)| *spare) else { break };
                *width -= 1;
                excess -= 1;
            }
        }
        widths
    }
}

/// The text in at most so many columns; an ellipsis marks a cut.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = fitting(text.chars(), width);
    shown.push(ELLIPSIS);
    shown
}

/// The same with the end of the text.
fn cut_start(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let end = fitting(text.chars().rev(), width);
    std::iter::once(ELLIPSIS).chain(end.chars().rev()).collect()
}

/// As many characters as leave room for an ellipsis.
fn fitting(text: impl Iterator<Item = char>, width: usize) -> String {
    let mut taken = 0;
    text.take_while(|character| {
        taken += character.width().unwrap_or_default();
        taken < width
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(table: &Table, width: Option<usize>, wide: bool, colours: bool) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::of_test(&mut out, &mut err);
        console.width = width;
        console.colours = colours;
        table.render(&console, wide)
    }

    fn sessions() -> Table {
        let mut table =
            Table::new(&[Column::whole("ID"), Column::text("NAME", 4), Column::number("MAPS")]);
        table.row(["1.1".into(), "Sleep job".into(), number(Some(12))]);
        table.row(["1.10".into(), "日本語の仕事".into(), Cell::new("-", Tone::Bad)]);
        table.row(["1.2".into(), "a\nb".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let expected = "\
ID    NAME          MAPS
1.1   Sleep job       12
1.10  日本語の仕事     -
1.2   a\\nb
";
        assert_eq!(rendered(&sessions(), None, false, false), expected);
        assert_eq!(rendered(&sessions(), Some(10), true, false), expected);
    }

    #[test]
    fn cells_that_are_too_wide_are_cut_visibly() {
        let expected = "\
ID    NAME    MAPS
1.1   Sleep…    12
1.10  日本…      -
1.2   a\\nb
";
        assert_eq!(rendered(&sessions(), Some(18), false, false), expected);
        // Not below the need of a column, even if the line gets too long.
        let narrow = rendered(&sessions(), Some(3), false, false);
        assert!(narrow.starts_with("ID    NAME  MAPS\n1.1   Sle…    12\n"), "{narrow}");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let plain = rendered(&sessions(), Some(18), false, false);
        let coloured = rendered(&sessions(), Some(18), false, true);
        assert!(coloured.contains("\x1b[31m-\x1b[0m"), "{coloured:?}");
        let codes = ["\x1b[1m", "\x1b[31m", "\x1b[0m"];
        let stripped = codes.iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain);
    }

    #[test]
    fn cutting_keeps_to_the_width() {
        for (text, width, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本", 4, "日本"),
            ("日本", 3, "日…"),
            ("日本", 2, "…"),
            ("abc", 1, "…"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, width), expected, "{text} in {width}");
        }
        for (text, width, expected) in
            [("/a/b.xml:7", 10, "/a/b.xml:7"), ("/a/b.xml:7", 8, "…b.xml:7"), ("日本", 3, "…本")]
        {
            assert_eq!(cut_start(text, width), expected, "{text} in {width}");
        }
    }
}
