//! The tables of keys in `docs/reference/configuration.md` and `docs/reference/compatibility/configuration.md`,
//! made of [`keys::ALL`].
//!
//! The text around the tables is written by hand. The first row of a table says with which key it begins; it has the
//! keys from there to the first one of the next table. A new section therefore begins with the head of a table and one
//! row that has only a name.

use std::fs;
use std::path::{Path, PathBuf};

use super::keys::{self, Key, Use};

/// The page with its tables made again: `row` makes the row of a key, from the row that is there.
fn with_tables(page: &str, head: &str, row: impl Fn(&Key, Option<&str>) -> String) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let rows_of = |key: &Key| format!("| `{}` |", key.name);
    // Of each table: the line of its first row, that behind its last, and its first key.
    let mut tables = vec![];
    for (at, line) in lines.iter().enumerate() {
        let first = at + 2;
        if !line.starts_with(head) || !lines.get(at + 1).is_some_and(|line| line.starts_with("|--"))
        {
            continue;
        }
        let key = lines
            .get(first)
            .and_then(|line| keys::ALL.iter().position(|key| line.starts_with(&rows_of(key))));
        // A table of other things has the same columns.
        let Some(key) = key else { continue };
        let rows = lines[first..].iter().take_while(|line| line.starts_with('|')).count();
        tables.push((first, first + rows, key));
    }
    assert!(
        tables.first().is_some_and(|(_, _, key)| *key == 0),
        "the first table begins with the first key"
    );
    assert!(
        tables.is_sorted_by_key(|(_, _, key)| *key),
        "tables are in the order of the keys: {tables:?}"
    );
    let mut out = String::new();
    let mut written = 0;
    for (number, (first, end, key)) in tables.iter().enumerate() {
        let next = tables.get(number + 1).map_or(keys::ALL.len(), |(_, _, key)| *key);
        lines[written..*first].iter().for_each(|line| out.push_str(&format!("{line}\n")));
        for key in &keys::ALL[*key..next] {
            let there = lines.iter().find(|line| line.starts_with(&rows_of(key)));
            out.push_str(&format!("{}\n", row(key, there.copied())));
        }
        written = *end;
    }
    lines[written..].iter().for_each(|line| out.push_str(&format!("{line}\n")));
    out
}

/// A row of the reference.
fn described(key: &Key) -> String {
    let default =
        if key.default.is_empty() { "–".to_owned() } else { format!("`{}`", key.default) };
    let unit = if key.unit.is_empty() { "–" } else { key.unit };
    let (kind, usage) = (key.kind.name(), key.usage.name());
    format!("| `{}` | {kind} | {default} | {unit} | {usage} | {} |", key.name, key.meaning)
}

/// A row of the table of compatibility. Its tests, its place in the specification and what is added to its state are
/// written by hand.
fn held(key: &Key, there: Option<&str>) -> String {
    let cells: Vec<&str> = there
        .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .unwrap_or_default();
    let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
    let state = match key.usage {
        Use::Used | Use::Files => "done",
        Use::Own | Use::FilesOwn => "own",
        usage => usage.name(),
    };
    // Whether the original knows a key that many programs read is added by hand.
    let state = match cell(1) {
        there if there.starts_with(state) => there.to_owned(),
        there if there.contains("own") && !state.contains("own") => format!("{state}, own"),
        _ => state.to_owned(),
    };
    format!("| `{}` | {state} | {} | {} |", key.name, cell(2), cell(3))
}

/// The page is as it is made; with `CORONA_WRITE_DOCS` it is written first.
fn hold(page: &str, head: &str, row: impl Fn(&Key, Option<&str>) -> String) {
    let path: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
    let written = fs::read_to_string(&path).unwrap();
    let made = with_tables(&written, head, row);
    if std::env::var_os("CORONA_WRITE_DOCS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    let differs = made.lines().zip(written.lines()).find(|(made, written)| made != written);
    assert!(
        made == written,
        "docs/reference/{page} does not agree with src/config/keys.rs; the first line that differs: {differs:?}. \
         CORONA_WRITE_DOCS=1 cargo test -p corona-config reference writes it"
    );
}

#[test]
fn the_reference_of_keys_is_made_of_the_keys() {
    hold("configuration.md", "| key | type | default | unit |", |key, _| described(key));
}

#[test]
fn the_compatibility_of_keys_is_made_of_the_keys() {
    hold("compatibility/configuration.md", "| key | state | shown by |", held);
}

#[test]
fn tables_are_made_where_they_stand() {
    let (first, second) = (keys::ALL[0].name, keys::ALL[1].name);
    let page = format!(
        "Text.\n\n| key |\n|---|\n| `{first}` | old |\n| `gone` |\n\nMore.\n\n| key |\n|---|\n| `{second}` |\nEnd.\n"
    );
    let made = with_tables(&page, "| key |", |key, there| {
        format!("| `{}` | {} |", key.name, there.is_some_and(|row| row.contains("old")))
    });
    let begin = format!(
        "Text.\n\n| key |\n|---|\n| `{first}` | true |\n\nMore.\n\n| key |\n|---|\n| `{second}` | false |\n"
    );
    assert!(made.starts_with(&begin), "{made}");
    assert!(made.ends_with(" |\nEnd.\n") && !made.contains("gone"), "{made}");
    assert_eq!(made.lines().count(), keys::ALL.len() + 10);
}
