//! Holds the tables in `docs/reference/compatibility` to the program: every call, field, key and member has a
//! row and every row is of something that is there; every test that a row names exists, and every
//! difference that it names is a row of `docs/reference/compatibility.md`.
//!
//! Commands and pages are held to their tables where they are: in `commands` and in `compat-tests`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::keys;
use crate::wire::schema::{StructId, schema};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn table(name: &str) -> String {
    let path = docs().join("compatibility").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the tables whose header starts with this column: the subject of each, and its cells.
fn rows<'a>(text: &'a str, column: &str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut found = BTreeMap::new();
    let mut inside = false;
    for line in text.lines() {
        if !line.starts_with('|') {
            inside = false;
        } else if line.starts_with(&format!("| {column} |")) {
            inside = true;
        } else if inside && !line.starts_with("|--") {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let item = cells[0].trim_matches('`');
            assert!(found.insert(item, cells).is_none(), "two rows of {item}");
        }
    }
    found
}

/// The table has exactly these rows, each with a state and a test.
fn check(file: &str, column: &str, wanted: impl IntoIterator<Item = String>) {
    let text = table(file);
    let rows = rows(&text, column);
    let header = text.lines().find(|line| line.starts_with(&format!("| {column} |"))).unwrap();
    let header: Vec<_> = header.trim_matches('|').split(" | ").map(str::trim).collect();
    let place = |name: &str| header.iter().position(|cell| *cell == name).unwrap();
    let wanted: BTreeSet<String> = wanted.into_iter().collect();
    for item in &wanted {
        let row = rows.get(&**item);
        let row = row
            .unwrap_or_else(|| panic!("docs/reference/compatibility/{file} has no row of {item}"));
        assert_eq!(row.len(), header.len(), "{file}: {item}");
        assert!(!row[place("state")].is_empty(), "{file}: {item} has no state");
        assert!(row[place("shown by")].contains("::"), "{file}: nothing shows {item}");
    }
    for item in rows.keys() {
        assert!(wanted.contains(*item), "docs/reference/compatibility/{file}: there is no {item}");
    }
}

#[test]
fn every_call_and_argument_has_a_row() {
    let methods = || schema().services().iter().flat_map(|service| &service.methods);
    check("calls.md", "call", methods().map(|method| method.name.clone()));
    let arguments = methods().flat_map(|method| {
        let fields = &schema().structure(method.args).fields;
        fields.iter().map(|field| format!("{}.{}", method.name, field.name))
    });
    check("calls.md", "argument", arguments);
}

#[test]
fn every_field_has_a_row() {
    let methods = schema().services().iter().flat_map(|service| &service.methods);
    let mut apart: Vec<StructId> =
        methods.flat_map(|method| [method.args, method.result]).collect();
    apart.extend([schema().empty(), schema().application_exception()]);
    let structs = schema().structs().filter(|(id, _)| !apart.contains(id));
    let fields = structs.flat_map(|(_, structure)| {
        structure.fields.iter().map(|field| format!("{}.{}", structure.name, field.name))
    });
    check("fields.md", "field", fields);
}

#[test]
fn every_key_has_a_row() {
    check("configuration.md", "key", keys::ALL.iter().map(|key| key.name.to_owned()));
}

/// The members are those of the types that files are read into and written from.
#[test]
fn every_member_of_the_state_file_has_a_row() {
    let layout = include_str!("cluster_manager/state_file/layout.rs");
    let mut members = vec![];
    let (mut object, mut renamed) = ("", None);
    for line in layout.lines() {
        if let Some(rest) = line.strip_prefix("pub(super) struct ") {
            let name = rest.split(['<', ' ', '(']).next().unwrap_or_default();
            // The rows have the original's names; those of other things here are not used twice.
            object = name.strip_prefix("Saved").unwrap_or(name);
        } else if let Some((_, rest)) = line.split_once("rename = \"") {
            renamed = rest.split('"').next();
        } else if let Some(rest) = line.strip_prefix("    pub(super) ") {
            let name = rest.split(':').next().unwrap_or_default();
            let name = renamed.take().map_or_else(|| camel_case(name), str::to_owned);
            members.push(format!("{object}.{name}"));
        }
    }
    assert!(members.contains(&"Specs.networkMBps".to_owned()), "{members:?}");
    check("state-file.md", "member", members);
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let (head, tail) = word.split_at(1.min(word.len()));
        text + &head.to_uppercase() + tail
    })
}

fn docs() -> PathBuf {
    root().join("docs/reference")
}

/// The page on formats and their versions.
const VERSIONS: &str = "compatibility-of-versions.md";

/// All documents that name tests.
fn documents() -> Vec<(PathBuf, String)> {
    let mut paths = vec![docs().join("compatibility.md"), docs().join(VERSIONS)];
    let folder = fs::read_dir(docs().join("compatibility")).unwrap();
    paths.extend(folder.map(|entry| entry.unwrap().path()));
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The beginnings of cells of the column "state".
const STATES: &[&str] = &[
    "done",
    "own",
    "changed",
    "moved",
    "left out",
    "replaced",
    "not used",
    "accepted, no effect",
    "not supported",
    "clients only",
    "stays Java",
    "task tracker",
    "job tracker",
    "proxy job tracker",
];

/// Every row of every table has a state, a test, and its place in the specification.
#[test]
fn every_row_is_complete() {
    let mut looked_at = 0;
    for (path, text) in documents().iter().filter(|(path, _)| path.parent() != Some(&docs())) {
        let mut header: Vec<&str> = vec![];
        for line in text.lines() {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            if !line.starts_with('|') {
                header.clear();
            } else if header.is_empty() {
                header = cells;
                assert!(header.contains(&"shown by"), "{}: {line}", path.display());
            } else if !line.starts_with("|--") {
                let place = format!("{}: {line}", path.display());
                assert_eq!(cells.len(), header.len(), "{place}");
                let cell =
                    |name: &str| header.iter().position(|it| *it == name).map(|at| cells[at]);
                let state = cell("state").unwrap_or("own");
                assert!(STATES.iter().any(|known| state.starts_with(known)), "{place}");
                assert!(cell("shown by").is_some_and(|shown| shown.contains("::")), "{place}");
                let is_ours = state.contains("own");
                let spec = cell("spec").unwrap_or_default();
                assert!(is_ours || spec.contains(" §") || spec.contains("mapreduce/"), "{place}");
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 400, "{looked_at} rows");
}

#[test]
fn every_test_that_is_named_exists() {
    let tests = tests();
    let mut named = 0;
    for (path, text) in documents() {
        let words = text.split('`').skip(1).step_by(2).filter(|word| word.contains("::"));
        for word in words {
            let mut parts: Vec<_> = word.split("::").collect();
            let name = parts.pop().unwrap_or_default();
            let places = tests.get(name).map_or(&[][..], Vec::as_slice);
            let is_there =
                |place: &Vec<String>| parts.iter().all(|part| place.contains(&(*part).into()));
            assert!(places.iter().any(is_there), "{}: no test {word}", path.display());
            named += 1;
        }
    }
    assert!(named > 300, "{named} tests are named");
}

/// The states that a row of a deliberate difference may have.
const STATES_OF_DIFFERENCES: &[&str] = &["in force", "planned"];

/// Every deliberate difference has a name of its own, a known state, and tests that show it.
#[test]
fn every_difference_has_a_state_and_tests() {
    let text = differences();
    let mut names = BTreeSet::new();
    let mut header: Vec<&str> = vec![];
    for line in text.lines() {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            header.clear();
        } else if header.is_empty() {
            header = cells;
        } else if !line.starts_with("|--") {
            assert_eq!(cells.len(), header.len(), "{line}");
            let cell = |name: &str| {
                let place = header.iter().position(|column| *column == name);
                cells[place.unwrap_or_else(|| panic!("no column {name}: {line}"))]
            };
            let state = cell("state");
            assert!(STATES_OF_DIFFERENCES.iter().any(|known| state.starts_with(known)), "{line}");
            assert!(cell("shown by").contains("::"), "no test shows it: {line}");
            for name in cell("id").split(", ") {
                assert!(names.insert(name.to_owned()), "{name} names two rows");
            }
        }
    }
    assert!(names.len() > 150, "{} differences", names.len());
}

/// The part of `docs/reference/compatibility.md` that lists deliberate differences.
fn differences() -> String {
    let text = fs::read_to_string(docs().join("compatibility.md")).unwrap();
    let (_, from) = text.split_once("## Deliberate differences").unwrap();
    from.split_once("## Kept on purpose").unwrap().0.to_owned()
}

#[test]
fn every_difference_that_is_named_is_a_row() {
    let documents = documents();
    let (_, main) = documents.iter().find(|(path, _)| path.ends_with("compatibility.md")).unwrap();
    let firsts = main.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let ids: BTreeSet<&str> = firsts.flat_map(|first| first.split(", ")).collect();
    for (path, text) in &documents {
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || "-.".contains(c))) {
            let word = word.trim_end_matches('.');
            let number = word.split_once('-').filter(|(letter, _)| {
                matches!(
                    *letter,
                    "D" | "W" | "S" | "E" | "C" | "T" | "J" | "JS" | "JR" | "PJ" | "X"
                )
            });
            let is_id =
                number.is_some_and(|(_, number)| number.starts_with(|c: char| c.is_ascii_digit()));
            assert!(!is_id || ids.contains(word), "{}: no row {word}", path.display());
        }
    }
}

/// The constants of a source with the version of a format, and their values: numbers, and texts that the page
/// names.
fn versions_in(text: &str) -> Vec<(&str, &str)> {
    let constant = |line: &str| -> Option<(usize, usize, usize)> {
        let start = line.find("const ")? + "const ".len();
        let colon = start + line[start..].find(": ")?;
        let value = colon + line[colon..].find(" = ")? + " = ".len();
        Some((start, colon, value))
    };
    let found = text.lines().filter_map(|line| {
        let (start, colon, value) = constant(line)?;
        Some((&line[start..colon], line[value..].trim_end_matches(';').trim_matches('"')))
    });
    found.collect()
}

/// A row of the page on versions.
struct VersionRow<'a> {
    format: &'a str,
    /// A file and a constant in it.
    constant: Option<(&'a str, &'a str)>,
    version: &'a str,
}

/// The rows of the page on versions.
fn rows_of_versions(text: &str) -> Vec<VersionRow<'_>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains("::"));
    let row = |line| {
        let cells: Vec<&str> = str::trim_matches(line, '|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{line}");
        let words: Vec<&str> = cells[1].split('`').skip(1).step_by(2).collect();
        let constant = match words[..] {
            [] => None,
            [file, name] => Some((file, name)),
            _ => panic!("a file and a constant are expected: {line}"),
        };
        VersionRow { format: cells[0], constant, version: cells[2] }
    };
    rows.map(row).collect()
}

/// The Rust sources below some folders, by their paths below the root.
fn sources(folders: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn the_versions_of_formats_are_those_of_the_code() {
    let (page, sources) = (fs::read_to_string(docs().join(VERSIONS)).unwrap(), sources(&["src"]));
    let rows = rows_of_versions(&page);
    let mut listed = BTreeSet::new();
    for VersionRow { format, constant, version } in &rows {
        let &Some((file, name)) = constant else { continue };
        let text = sources.get(file).unwrap_or_else(|| panic!("{format}: no file {file}"));
        let values: Vec<&str> =
            versions_in(text).iter().filter(|it| it.0 == name).map(|it| it.1).collect();
        assert_eq!(values, [*version], "{format}: {name} of {file}");
        listed.insert((file, name));
    }
    assert!(listed.len() > 20, "{listed:?}");
    // A format that carries a number has a row.
    for (file, text) in &sources {
        for (name, value) in versions_in(text) {
            let is_version =
                name.ends_with("VERSION") || name.ends_with("FORM") || name == "PROTOCOL";
            if is_version
                && value.parse::<u64>().is_ok()
                && !text.contains(&format!("const {name}: i"))
            {
                assert!(listed.contains(&(&**file, name)), "no row for {name} of {file}");
            }
        }
    }
}

/// Files as earlier versions wrote them stay readable.
#[test]
fn every_file_of_a_version_is_read_by_a_test() {
    let sources = sources(&["src"]);
    let files = fs::read_dir(root().join("fixtures/versions")).unwrap();
    let mut count = 0;
    for file in files {
        let name = format!("fixtures/versions/{}", file.unwrap().file_name().display());
        assert!(sources.values().any(|text| text.contains(&name)), "nothing reads {name}");
        count += 1;
    }
    assert!(count >= 9, "{count} files");
}

/// The names of all tests, each with the parts of the paths of the files that have one so named.
fn tests() -> BTreeMap<String, Vec<Vec<String>>> {
    let mut found: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for (path, text) in sources(&["src", "compat-tests/tests"]) {
        let place = path.trim_end_matches(".rs").split('/').map(str::to_owned);
        let place: Vec<String> = place.collect();
        for name in tests_of(&text) {
            found.entry(name).or_default().push(place.clone());
        }
    }
    found
}

/// Functions behind `#[test]`, and the names that a `cases!` makes tests of.
fn tests_of(text: &str) -> Vec<String> {
    let mut names = vec![];
    let (mut is_test, mut cases) = (false, false);
    for line in text.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line == "cases! {" {
            cases = true;
        } else if line == "}" {
            cases = false;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
            is_test = false;
            names.extend(rest.split(['(', '<']).next().map(str::to_owned));
        } else if cases && line.ends_with(';') {
            // `name: case(...);` or `room::name EXPECTED;`
            let first = line.split(' ').next().unwrap_or_default().trim_end_matches(':');
            names.extend(first.rsplit("::").next().map(str::to_owned));
        }
    }
    names
}
