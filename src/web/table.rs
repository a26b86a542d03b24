//! Tables that can be sorted and come in pages, with links alone: `?sort=name`, `?sort=-name` for
//! the other direction, `?page=2`. The script of the pages follows the same links.
//!
//! Each cell carries its heading: where the window is too narrow for a table, each row becomes a card
//! of headings and values.

use std::borrow::Cow;
use std::cmp::Ordering;

use maud::{Markup, html};

use super::exchange::Parameters;
use super::units::{Count, plural};

/// Rows of a page if the address does not contain a number (`?rows=`).
const ROWS: usize = 200;
/// Rows of a page at most.
const MOST_ROWS: usize = 1000;

/// Which of two rows comes first.
type Order<'a, Row> = Box<dyn Fn(&Row, &Row) -> Ordering + 'a>;

/// The heading of a column of a table whose rows stay in their order.
#[derive(Clone, Copy, Debug)]
pub enum Head {
    /// Of texts.
    Text(&'static str),
    /// Of numbers.
    Number(&'static str),
}

/// A table of few rows, which stay in their order.
pub fn simple_table(id: Option<&str>, heads: &[Head], rows: &Markup) -> Markup {
    html! {
        table.rows id=[id] {
            thead {
                tr {
                    @for head in heads {
                        @match head {
                            Head::Text(title) => th scope="col" { (title) },
                            Head::Number(title) => th.n scope="col" { (title) },
                        }
                    }
                }
            }
            tbody { (rows) }
        }
    }
}

/// The same in a frame, which scrolls within its page. The heading above it has the id `NAME-title`.
pub fn framed(name: &str, id: &str, heads: &[Head], rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-labelledby=(format!("{name}-title")) {
            (simple_table(Some(id), heads, rows))
        }
    }
}

/// A table of few rows, which stay in their order. `key` identifies a row, now and in the next refresh.
pub fn fixed_table<Row>(
    id: &str,
    columns: &[Column<'_, Row>],
    rows: &[Row],
    key: fn(&Row) -> String,
) -> Markup {
    html! {
        table.rows #(id) {
            (header(columns, |column| (html! { (column.title) }, None)))
            tbody { (body(columns, rows, key)) }
        }
    }
}

/// The headings: in two lines where columns have one in common. `heading` returns the content of a heading,
/// and how the rows are sorted by it.
fn header<Row>(
    columns: &[Column<'_, Row>],
    heading: impl Fn(&Column<'_, Row>) -> (Markup, Option<&'static str>),
) -> Markup {
    let is_grouped = columns.iter().any(|column| column.group.is_some());
    let cell = |column: &Column<'_, Row>, rowspan: Option<u8>| {
        let (content, sorted) = heading(column);
        html! {
            th scope="col" class=[class(column)] rowspan=[rowspan] aria-sort=[sorted] { (content) }
        }
    };
    html! {
        thead {
            tr {
                @for columns in columns.chunk_by(|a, b| a.group.is_some() && a.group == b.group) {
                    @match columns.first().and_then(|column| column.group) {
                        Some(group) => {
                            th.group scope="colgroup" colspan=(columns.len()) { (group) }
                        }
                        None => @for column in columns { (cell(column, is_grouped.then_some(2))) },
                    }
                }
            }
            @if is_grouped {
                tr {
                    @for column in columns.iter().filter(|column| column.group.is_some()) {
                        (cell(column, None))
                    }
                }
            }
        }
    }
}

/// The rows. The first column names its row, and each other cell carries its heading.
fn body<'r, Row: 'r>(
    columns: &[Column<'_, Row>],
    rows: impl IntoIterator<Item = &'r Row>,
    key: fn(&Row) -> String,
) -> Markup {
    let labels: Vec<String> = columns.iter().map(Column::label).collect();
    html! {
        @for row in rows {
            tr data-key=(key(row)) {
                @for (position, (column, label)) in columns.iter().zip(&labels).enumerate() {
                    @if position == 0 {
                        th scope="row" class=[class(column)] { ((column.cell)(row)) }
                    } @else {
                        td class=[class(column)] data-label=(label) { ((column.cell)(row)) }
                    }
                }
            }
        }
    }
}

/// A column of a table.
pub struct Column<'a, Row> {
    key: String,
    title: Cow<'static, str>,
    /// A heading above this and its neighbours of the same group.
    group: Option<&'static str>,
    class: &'static str,
    /// By which rows are sorted; `None` if they cannot be.
    order: Option<Order<'a, Row>>,
    /// Whether the largest comes first at the first click.
    largest_first: bool,
    cell: Box<dyn Fn(&Row) -> Markup + 'a>,
}

impl<'a, Row> Column<'a, Row> {
    /// A column of text.
    pub fn text(
        key: &str,
        title: impl Into<Cow<'static, str>>,
        cell: impl Fn(&Row) -> Markup + 'a,
    ) -> Column<'a, Row> {
        Column {
            key: key.to_owned(),
            title: title.into(),
            group: None,
            class: "",
            order: None,
            largest_first: false,
            cell: Box::new(cell),
        }
    }

    /// A column of numbers, sorted by them.
    pub fn number(
        key: &str,
        title: impl Into<Cow<'static, str>>,
        number: impl Fn(&Row) -> i64 + Copy + 'a,
    ) -> Column<'a, Row> {
        Column::text(key, title, move |row| html! { (Count(number(row)).to_string()) })
            .sorted_by(move |a, b| number(a).cmp(&number(b)))
            .numeric()
    }

    /// Lets rows be sorted by this column.
    pub fn sorted_by(mut self, order: impl Fn(&Row, &Row) -> Ordering + 'a) -> Self {
        self.order = Some(Box::new(order));
        self
    }

    /// Sets the cells to the right; the largest comes first when sorted.
    pub fn numeric(mut self) -> Self {
        self.class = "n";
        self.largest_first = true;
        self
    }

    /// Lets the latest or largest come first when sorted.
    pub fn largest_first(mut self) -> Self {
        self.largest_first = true;
        self
    }

    /// Gives the column a line of its own where rows become cards.
    pub fn wide(mut self) -> Self {
        self.class = "wide";
        self
    }

    /// The heading of a cell that stands alone.
    fn label(&self) -> String {
        match self.group {
            Some(group) => format!("{group}: {}", self.title.to_lowercase()),
            None => self.title.clone().into_owned(),
        }
    }

    /// Puts the column under a common heading with its neighbours.
    pub fn under(mut self, group: &'static str) -> Self {
        self.group = Some(group);
        self
    }
}

/// A table.
pub struct Table<'a, Row> {
    /// The id in the page.
    pub id: &'static str,
    /// The table's subject.
    pub caption: &'static str,
    /// The singular and plural of a row's kind: `session`, `sessions`.
    pub rows_are: (&'static str, &'static str),
    /// A key that identifies the row, now and in the next refresh.
    pub key: fn(&Row) -> String,
    /// The page's path.
    pub path: &'a str,
    /// The page's parameters.
    pub parameters: &'a Parameters,
    /// The default sort key, with `-` before it for the largest first.
    pub usual_sort: &'static str,
    /// The first column names its row.
    pub columns: Vec<Column<'a, Row>>,
    /// The text of an empty table.
    pub empty: &'static str,
}

impl<Row> Table<'_, Row> {
    /// The table of some of `all` rows: those that were chosen. Rows that are equal by the sorted
    /// column stay in their order.
    pub fn render(&self, mut chosen: Vec<&Row>, all: usize) -> Markup {
        let (key, descending) = self.sort();
        if let Some(order) = self.column(key).and_then(|column| column.order.as_ref()) {
            chosen.sort_by(|a, b| if descending { order(b, a) } else { order(a, b) });
        }
        let page = Page::of(self.parameters, chosen.len());
        let shown = chosen.get(page.first..page.end).unwrap_or_default();
        html! {
            div.table-head {
                h2 #(format!("{}-title", self.id)) { (self.caption) }
                p.count { (self.count(chosen.len(), all)) }
            }
            (self.pager(&page, "above"))
            div.scroll tabindex="0" role="region" aria-labelledby=(format!("{}-title", self.id)) {
                table.rows #(self.id) {
                    (self.header(key, descending))
                    tbody {
                        (body(&self.columns, shown.iter().copied(), self.key))
                        @if shown.is_empty() {
                            tr { td.empty colspan=(self.columns.len()) { (self.empty) } }
                        }
                    }
                }
            }
            (self.pager(&page, "below"))
        }
    }

    fn count(&self, chosen: usize, all: usize) -> String {
        let all_rows = plural(all as u64, self.rows_are.0, self.rows_are.1);
        match chosen == all {
            true => all_rows,
            false => format!("{} of {all_rows}", Count(chosen)),
        }
    }

    fn header(&self, sorted: &str, descending: bool) -> Markup {
        let direction = if descending { "descending" } else { "ascending" };
        header(&self.columns, |column| {
            let is_sorted = column.key == sorted;
            let content = html! {
                @if column.order.is_some() {
                    a href=(self.sort_address(column, is_sorted, descending)) data-swap {
                        // Repeats the heading above, which is hidden where rows are cards.
                        @if let Some(group) = column.group { span.of { (group) ": " } }
                        (column.title)
                        @if is_sorted {
                            span.arrow aria-hidden="true" { (if descending { "\u{a0}▾" } else { "\u{a0}▴" }) }
                        }
                    }
                } @else {
                    (column.title)
                }
            };
            (content, is_sorted.then_some(direction))
        })
    }

    fn sort_address(&self, column: &Column<'_, Row>, is_sorted: bool, descending: bool) -> String {
        let descend = if is_sorted { !descending } else { column.largest_first };
        let sort = format!("{}{}", if descend { "-" } else { "" }, column.key);
        self.parameters.with(&[("sort", &sort), ("page", "")]).address(self.path)
    }

    /// Links to the other pages; nothing if there is only one.
    fn pager(&self, page: &Page, place: &str) -> Markup {
        if page.count < 2 {
            return html! {};
        }
        let link = |number: usize, name: &str, rel: &str| {
            let to = number.to_string();
            let address = self.parameters.with(&[("page", &to)]).address(self.path);
            html! { a href=(address) rel=(rel) data-swap { (name) } }
        };
        html! {
            nav.pager aria-label=(format!("Pages of {}, {place} the table", self.rows_are.1)) {
                @if page.number > 1 { (link(page.number - 1, "Previous", "prev")) }
                span { "Page " (page.number) " of " (page.count) }
                @if page.number < page.count { (link(page.number + 1, "Next", "next")) }
            }
        }
    }

    /// The key to sort by, and whether the largest comes first.
    fn sort(&self) -> (&str, bool) {
        let split = |sort: &str| {
            let (key, descending) = match sort.strip_prefix('-') {
                Some(key) => (key, true),
                None => (sort, false),
            };
            let sortable = |column: &Column<'_, Row>| column.key == key && column.order.is_some();
            Some((&*self.columns.iter().find(|column| sortable(column))?.key, descending))
        };
        let asked = self.parameters.text("sort").and_then(split);
        asked.or_else(|| split(self.usual_sort)).unwrap_or(("", false))
    }

    fn column(&self, key: &str) -> Option<&Column<'_, Row>> {
        self.columns.iter().find(|column| column.key == key)
    }
}

fn class<Row>(column: &Column<'_, Row>) -> Option<&'static str> {
    Some(column.class).filter(|class| !class.is_empty())
}

/// Which rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    /// From 1.
    number: usize,
    count: usize,
    first: usize,
    end: usize,
}

impl Page {
    fn of(parameters: &Parameters, rows: usize) -> Page {
        let number = |name| parameters.text(name).and_then(|text| text.parse::<usize>().ok());
        let size = number("rows").unwrap_or(ROWS).clamp(1, MOST_ROWS);
        let count = rows.div_ceil(size).max(1);
        let page = number("page").unwrap_or(1).clamp(1, count);
        let first = (page - 1) * size;
        Page { number: page, count, first, end: rows.min(first + size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<'a>(query: &'a Parameters) -> Table<'a, (String, i64)> {
        type Row = (String, i64);
        Table {
            id: "t",
            caption: "Things",
            rows_are: ("thing", "things"),
            path: "/things",
            parameters: query,
            usual_sort: "name",
            key: |row: &Row| row.0.clone(),
            columns: vec![
                Column::text("name", "Name", |row: &Row| html! { (row.0) })
                    .sorted_by(|a, b| a.0.cmp(&b.0)),
                Column::number("size", "Size", |row: &Row| row.1).under("MAP"),
                Column::text("note", "Note", |_| html! { "note" }),
            ],
            empty: "nothing",
        }
    }

    fn names(query: &str, rows: &[(String, i64)]) -> String {
        let parameters = Parameters::parse(query.as_bytes());
        let html = table(&parameters).render(rows.iter().collect(), rows.len()).into_string();
        let cells = html.split("<th scope=\"row\">").skip(1);
        cells.map(|cell| cell.split('<').next().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rows_are_sorted_and_come_in_pages() {
        let rows = [("b", 1), ("a", 3), ("c", 3), ("d", 2)].map(|(name, n)| (name.to_owned(), n));
        for (query, expected) in [
            ("", "a b c d"),
            ("sort=-name", "d c b a"),
            ("sort=size", "b d a c"),
            ("sort=-size", "a c d b"),
            ("sort=note", "a b c d"),
            ("sort=nonsense", "a b c d"),
            ("rows=3", "a b c"),
            ("rows=3&page=2", "d"),
            ("rows=3&page=9", "d"),
            ("rows=0&page=0", "a"),
            ("rows=-1&page=x", "a b c d"),
        ] {
            assert_eq!(names(query, &rows), expected, "{query}");
        }
    }

    #[test]
    fn headings_say_how_the_table_is_sorted_and_keep_the_filters() {
        let rows = [("a".to_owned(), 1)];
        let parameters = Parameters::parse(b"q=x%26y&sort=-size&page=3");
        let html = table(&parameters).render(rows.iter().collect(), 7).into_string();
        for part in [
            "<th scope=\"col\" rowspan=\"2\"><a href=\"/things?q=x%26y&amp;sort=name\" data-swap>Name",
            "<th scope=\"col\" class=\"n\" aria-sort=\"descending\"><a href=\"/things?q=x%26y&amp;sort=size\"",
            "<th class=\"group\" scope=\"colgroup\" colspan=\"1\">MAP</th>",
            "<th scope=\"col\" rowspan=\"2\">Note</th>",
            "1 of 7 things",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn pages_link_to_their_neighbours() {
        let rows: Vec<(String, i64)> = (0..5).map(|n| (n.to_string(), n)).collect();
        let parameters = Parameters::parse(b"rows=2&page=2");
        let html = table(&parameters).render(rows.iter().collect(), 5).into_string();
        assert!(html.contains("<a href=\"/things?rows=2&amp;page=1\" rel=\"prev\" data-swap>"));
        assert!(html.contains("<a href=\"/things?rows=2&amp;page=3\" rel=\"next\" data-swap>"));
        assert!(html.contains("Page 2 of 3") && html.contains(">5 things<"), "{html}");
        let none: Vec<&(String, i64)> = Vec::new();
        let html = table(&parameters).render(none, 0).into_string();
        assert!(html.contains("nothing") && !html.contains("class=\"pager\""));
    }
}
