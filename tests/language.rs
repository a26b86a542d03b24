//! Documents, help texts, comments, log lines and names of tests are in plain English: see "Language" in
//! CONTRIBUTING.md. This test only refuses a few phrases that are always avoidable; it lists the place
//! of each one and a replacement.

use std::fs;
use std::path::{Path, PathBuf};

/// Phrases in lower case, and their replacements.
const AVOIDED: &[(&str, &str)] = &[
    ("anew", "again; restart, reload, resynchronise"),
    ("is told", "receives, is notified; or name who reports what"),
    ("are told", "receive, are notified"),
    ("was told", "received, was notified"),
    ("were told", "received, were notified"),
    ("held up by", "stalled, blocked, delayed"),
    ("is held up", "is stalled, blocked, delayed"),
    ("what came of", "the result, the outcome"),
    ("what becomes of", "what happens to"),
    ("broke off", "failed, panicked, disconnected"),
    ("broke down", "failed, panicked"),
    ("whoever", "a noun: the peer, the operator, the caller"),
    ("for who ", "a noun: callers that, peers that"),
    ("who has none", "a noun with `without`"),
    ("and no more may", "at most"),
    ("for ever", "forever"),
    ("a host that was asked for", "a preferred host"),
    ("gives back", "releases, returns"),
    ("given back", "released, returned"),
    ("it is none", "it is not one; name the thing"),
    ("is none that", "is not, cannot; name the thing"),
    ("that is none", "malformed, unknown, not valid"),
    ("that are none", "malformed, unknown, not valid"),
    ("or is none", "or is not valid"),
    ("is none of", "is not one of, does not belong to"),
    ("are none of", "are not among, do not belong to"),
    ("asked for again", "requested again, retried"),
    ("came to nothing", "failed"),
    ("in vain", "without a result"),
    ("under way", "in flight, pending, running"),
    ("which is made if", "creating it if needed"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder with this extension.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines of a document with their numbers, without blocks of code, and without rules that quote
/// phrases to avoid.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence && !line.starts_with("    ") && !line.contains(", not \"")
    };
    let lines: Vec<&str> = text.lines().collect();
    let kept: Vec<bool> = lines.iter().map(is_prose).collect();
    (1..).zip(lines).zip(kept).filter(|(_, kept)| *kept).map(|(line, _)| line).collect()
}

/// The lines of a source that `--help` shows: documentation, and the texts of examples.
fn help(text: &str) -> Vec<(usize, &str)> {
    let text = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    let is_shown = |line: &str| line.trim_start().starts_with("/// ") || line.contains('"');
    (1..).zip(text.lines()).filter(|(_, line)| is_shown(line)).collect()
}

/// The lines of a source that developers and operators read: comments, and the texts of log lines.
fn comments_and_logs(text: &str) -> Vec<(usize, &str)> {
    const LEVELS: [&str; 5] = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];
    let mut open = 0;
    let mut found = vec![];
    for (number, line) in (1..).zip(text.lines()) {
        let start = LEVELS.iter().find_map(|level| line.find(level));
        let part = match start.filter(|_| open == 0) {
            Some(start) => &line[start..],
            None => line,
        };
        let in_log = open > 0 || start.is_some();
        if in_log && line.contains('"') || line.trim_start().starts_with("//") {
            found.push((number, line));
        }
        if in_log {
            // A log line ends with its own parenthesis.
            let count = |c| part.matches(c).count();
            open = (open + count('(')).saturating_sub(count(')'));
        }
    }
    found
}

/// The names of tests that are clauses without a noun.
fn clauses(place: &str, text: &str) -> Vec<String> {
    let mut found = vec![];
    let mut is_test = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        if let Some((_, name)) = line.split_once("fn ").filter(|_| is_test) {
            let is_clause =
                ["what_", "whatever_", "who_", "which_"].iter().any(|word| name.starts_with(word));
            if is_clause {
                found.push(format!("{place}:{number}: {name}; name the subject"));
            }
            is_test = false;
        }
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    }
    found
}

/// The avoided phrases in these lines, each with its place.
fn findings(place: &str, lines: &[(usize, &str)]) -> Vec<String> {
    let mut found = vec![];
    for (number, line) in lines {
        let line = line.to_lowercase();
        for (phrase, instead) in AVOIDED {
            let is_there = line.match_indices(phrase).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + phrase.len()..].chars().next();
                let is_letter =
                    |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !is_letter(before) && (phrase.ends_with(' ') || !is_letter(after))
            });
            if is_there {
                found.push(format!("{place}:{number}: \"{phrase}\"; write: {instead}"));
            }
        }
    }
    found
}

#[test]
fn documents_and_help_texts_are_in_plain_english() {
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    let mut documents: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
            .map(|name| root().join(name))
            .into();
    // The specification describes the original in its own terms.
    documents.extend(files("docs", "md").into_iter().filter(|path| !name(path).contains("/spec/")));
    let mut found = vec![];
    for path in &documents {
        let text = fs::read_to_string(path).unwrap();
        found.extend(findings(&name(path), &prose(&text)));
    }
    let sources = [files("src/commands", "rs"), files("src/simulate", "rs")].concat();
    for path in sources.iter().filter(|path| !name(path).contains("/tests/")) {
        let text = fs::read_to_string(path).unwrap();
        found.extend(findings(&name(path), &help(&text)));
    }
    assert!(documents.len() > 20 && sources.len() > 30, "the files were not found");
    assert!(found.is_empty(), "see \"Language\" in CONTRIBUTING.md:\n{}", found.join("\n"));
}

/// Texts that Java peers and their users read are strings, or quoted in comments; these are the program's own.
#[test]
fn comments_log_lines_and_names_of_tests_are_in_plain_english() {
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    let folders = ["src", "compat-tests", "benches", "examples"];
    let sources: Vec<PathBuf> = folders.iter().flat_map(|folder| files(folder, "rs")).collect();
    let (mut found, mut looked_at) = (vec![], 0);
    for path in sources.iter().filter(|path| !name(path).contains("/target/")) {
        let text = fs::read_to_string(path).unwrap();
        let lines = comments_and_logs(&text);
        looked_at += lines.len();
        found.extend(findings(&name(path), &lines));
        found.extend(clauses(&name(path), &text));
    }
    assert!(looked_at > 10_000, "{looked_at} lines");
    assert!(found.is_empty(), "see \"Language\" in CONTRIBUTING.md:\n{}", found.join("\n"));
}

/// Each limit is stated in one place: a second item about the same subject would soon say something else.
#[test]
fn limits_are_stated_once() {
    let text = fs::read_to_string(root().join("docs/reference/limits.md")).unwrap();
    let mut subjects = std::collections::BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("* **")) {
        let subject = line.split("**").next().unwrap().trim_end_matches('.');
        assert!(subjects.insert(subject), "two items about {subject}");
    }
    assert!(subjects.len() > 5, "{subjects:?}");
    let mut beginnings = std::collections::BTreeSet::new();
    for item in text.lines().filter_map(|line| line.strip_prefix("* ")) {
        let words: Vec<&str> = item.split_whitespace().take(6).collect();
        assert!(beginnings.insert(words.join(" ")), "two items begin with: {item}");
    }
}

#[test]
fn phrases_are_found_as_words_and_outside_of_code() {
    let text =
        "It begins anew.\n```\nanew\n```\n    anew\nrenew, anew_id, \"that\", not \"anew\"\n";
    let found = findings("a.md", &prose(text));
    assert_eq!(found, ["a.md:1: \"anew\"; write: again; restart, reload, resynchronise"]);
    let source =
        "/// Starts anew.\nfn anew() {}\nlet text = \"told anew\";\n#[cfg(test)]\n/// anew\n";
    assert_eq!(findings("a.rs", &help(source)).len(), 2);
    let source = "// It begins anew.\nlet text = \"anew\";\ntracing::info!(\n    %error,\n    \"anew\"\n);\nlet text = \"anew\";\n";
    assert_eq!(findings("a.rs", &comments_and_logs(source)).len(), 2);
    let source =
        "if is_open() { warn!(\n    path = %name(at),\n    \"anew\"\n); }\nlet text = \"anew\";\n";
    assert_eq!(findings("a.rs", &comments_and_logs(source)).len(), 1);
    let source = "fn what_helps() {}\n#[test]\nfn what_is_told() {}\n#[tokio::test]\nasync fn calls_arrive() {}\n";
    assert_eq!(clauses("a.rs", source), ["a.rs:3: what_is_told() {}; name the subject"]);
}
