//! The specification of the original is cited by place, all over the sources and documents. Each
//! place that is cited exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDERS: &[&str] = &["cluster-manager", "mapreduce", "hdfs"];

/// Where citations may stand.
const SOURCES: &[&str] =
    &["src", "compat-tests", "docs", "benches", "examples", "fuzz/fuzz_targets", "thrift", "tests"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sections of each file, by folder and number: `cluster-manager/04` has `9.1`.
fn sections() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for folder in FOLDERS {
        for path in files(&root().join("docs/reference/spec").join(folder)) {
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let sections = text.lines().filter_map(section).map(str::to_owned).collect();
            found.insert(format!("{folder}/{}", &name[..2]), sections);
        }
    }
    found
}

/// The number or letter of the section that begins with this line: a heading, or a row of a table.
fn section(line: &str) -> Option<&str> {
    let is_heading = line.starts_with('#');
    let text = line.trim_start_matches(['#', '|', ' ', '*']);
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(text.len());
    let name = text[..end].trim_end_matches('.');
    let is_number = name.starts_with(|c: char| c.is_ascii_digit());
    let is_letter = is_heading && name.len() == 1;
    (is_letter || is_number && (is_heading || line.starts_with('|'))).then_some(name)
}

/// The places that a text cites: `folder/NN`, and the sections behind it, `§1.2, §3, 05 §4`.
fn citations(text: &str) -> Vec<(String, Option<String>)> {
    let mut found = vec![];
    for folder in FOLDERS {
        for (start, _) in text.match_indices(&format!("{folder}/")) {
            let mut rest = &text[start + folder.len() + 1..];
            let Some(number) = rest.get(..2).filter(|two| two.bytes().all(|b| b.is_ascii_digit()))
            else {
                continue;
            };
            let mut file = format!("{folder}/{number}");
            found.push((file.clone(), None));
            rest = &rest[2..];
            loop {
                rest = rest.strip_prefix(',').unwrap_or(rest).trim_start_matches(' ');
                if let Some((number, more)) = rest.split_at_checked(2)
                    && more.starts_with(" §")
                    && number.bytes().all(|b| b.is_ascii_digit())
                {
                    file = format!("{folder}/{number}");
                    rest = &more[1..];
                }
                let Some(more) = rest.strip_prefix('§') else { break };
                let end = more.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
                let (name, more) = more.split_at(end.unwrap_or(more.len()));
                found.push((file.clone(), Some(name.trim_end_matches('.').to_owned())));
                rest = more;
            }
        }
    }
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with("docs/reference/spec") {
                found.extend(files(&path));
            }
        } else if path.extension().is_some_and(|end| end == "rs" || end == "md" || end == "thrift")
        {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_citation_of_the_specification_exists() {
    let sections = sections();
    assert_eq!(sections.len(), 19, "{:?}", sections.keys());
    let (mut looked_at, mut wrong) = (0, vec![]);
    for folder in SOURCES {
        for path in files(&root().join(folder)) {
            for (file, section) in citations(&fs::read_to_string(&path).unwrap()) {
                looked_at += 1;
                let known = sections.get(&file);
                let exists = known
                    .is_some_and(|known| section.as_ref().is_none_or(|name| known.contains(name)));
                if !exists {
                    let section = section.map_or(String::new(), |name| format!(" §{name}"));
                    wrong.push(format!("{}: {file}{section}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 250, "{looked_at} citations");
}

#[test]
fn citations_are_found_in_text() {
    let text =
        "Spec: cluster-manager/04 §9.1, §2; mapreduce/02. See cluster-manager/05 §6, 01 §3.1.";
    let found = citations(text);
    let found: Vec<_> = found.iter().map(|(file, section)| (&**file, section.as_deref())).collect();
    assert_eq!(
        found,
        [
            ("cluster-manager/04", None),
            ("cluster-manager/04", Some("9.1")),
            ("cluster-manager/04", Some("2")),
            ("cluster-manager/05", None),
            ("cluster-manager/05", Some("6")),
            ("cluster-manager/01", Some("3.1")),
            ("mapreduce/02", None),
        ]
    );
}
