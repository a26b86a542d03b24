//! `corona journal` over directories.

use std::path::{Path, PathBuf};

use super::*;
use corona::cluster_manager::{Beginning, ClusterManager};
use corona::journal::{DiskStorage, Journal, Options};

fn journal(command: &str, directory: &Path, more: &[&str]) -> Done {
    let directory = directory.to_str().unwrap();
    corona_words(&[&["journal", command, "--dir", directory], more].concat())
}

/// The journal of a cluster manager that has started and stopped.
fn of_a_manager(directory: &Path) -> PathBuf {
    let state = directory.join("cm.state").display().to_string();
    let overrides = [
        ("cm.server.address", "localhost:0"),
        ("cm.server.http.address", "localhost:0"),
        ("cm.state", &state),
    ];
    let overrides = overrides.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let loaded = corona::config::load(None, &overrides).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        drop(ClusterManager::bind(loaded, Beginning::Resume).await.unwrap());
    });
    drop(runtime);
    directory.join("cm.state.journal")
}

/// A journal of three records, each durable when the next one was written.
fn of_three_records(directory: &Path) {
    let storage = DiskStorage::open(directory).unwrap();
    let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(())).unwrap();
    for record in ["one", "two", "three"] {
        let number = journal.append(record.as_bytes()).unwrap();
        journal.sync(number).unwrap();
    }
    journal.close().unwrap();
}

#[test]
fn a_journal_is_checked_shown_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = of_a_manager(directory.path());
    let segment = "00000000000000000001.journal";
    let checked = journal("check", &path, &[]);
    assert_eq!(checked.status, ExitCode::SUCCESS, "{}", checked.err);
    assert!(checked.out.lines().all(|line| line.chars().count() <= 80), "{}", checked.out);
    assert!(checked.out.contains(segment) && checked.out.contains("whole"), "{}", checked.out);
    let shown = journal("show", &path, &["--output", "json"]).json();
    assert_eq!(shown[0]["input"], "State", "{shown}");
    let shown = journal("show", &path, &[]);
    assert!(shown.out.contains("State"), "{}", shown.out);
    assert!(shown.out.lines().all(|line| line.chars().count() <= 80), "{}", shown.out);
    let before = std::fs::read(path.join(segment)).unwrap();
    let repaired = journal("repair", &path, &[]);
    assert!(
        repaired.out.starts_with("The journal is whole; nothing was changed."),
        "{}",
        repaired.out
    );
    assert_eq!(std::fs::read(path.join(segment)).unwrap(), before);
}

#[test]
fn a_damaged_journal_is_reported_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    of_three_records(&path);
    let segment = path.join("00000000000000000001.journal");
    let mut bytes = std::fs::read(&segment).unwrap();
    let damaged = bytes.windows(3).position(|bytes| bytes == b"two").unwrap();
    bytes[damaged] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    let checked = journal("check", &path, &["--output", "json"]);
    assert_eq!(checked.status, ExitCode::from(1));
    let lines: Vec<&str> = checked.err.lines().collect();
    assert!(lines.len() == 1 && lines[0].contains("damaged at byte 51"), "{}", checked.err);
    let report = checked.json();
    assert_eq!((&report["whole"], &report["files"][0]["whole"]), (&false.into(), &false.into()));
    let repaired = journal("repair", &path, &["--output", "json"]);
    let report = repaired.json();
    assert_eq!(report["last_record"], 1, "{report}");
    assert_eq!(journal("check", &path, &[]).status, ExitCode::SUCCESS);
    let aside = path.join(report["set_aside"][0]["name"].as_str().unwrap());
    assert!(aside.is_file(), "{report}");
}

#[test]
fn a_lost_journal_is_reported_and_an_operator_may_go_on_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    of_three_records(&path);
    std::fs::remove_dir_all(&path).unwrap();
    let checked = journal("check", &path, &["--output", "json"]);
    assert_eq!(checked.status, ExitCode::from(1));
    assert!(checked.err.contains("lost: the journal was stored up to record 3"), "{}", checked.err);
    let report = checked.json();
    assert_eq!((&report["whole"], &report["marker_record"]), (&false.into(), &3.into()));
    assert!(!path.exists(), "a check changes nothing");
    let repaired = journal("repair", &path, &["--output", "json"]);
    let report = repaired.json();
    assert_eq!(report["last_record"], 0, "{report}");
    assert_eq!(journal("check", &path, &[]).status, ExitCode::SUCCESS);
}

#[test]
fn a_directory_without_a_journal_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none");
    for command in ["check", "show", "repair"] {
        let done = journal(command, &path, &[]);
        assert_eq!((done.status, done.err.lines().count()), (ExitCode::from(1), 1), "{}", done.err);
        assert!(done.err.matches("No such file").count() <= 1, "{}", done.err);
        assert!(!path.exists());
    }
    let done = corona_words(&["journal", "check", "-D", "corona.cm.journal.dir=none"]);
    assert!(done.err.contains("corona.cm.journal.dir is none"), "{}", done.err);
}

#[test]
fn a_directory_without_a_journal_is_named_with_the_one_inside() {
    let directory = tempfile::tempdir().unwrap();
    let checked = journal("check", directory.path(), &[]);
    let none = format!("corona: {} has no files of a journal", directory.path().display());
    assert_eq!((checked.out.as_str(), checked.err), ("", format!("{none}\n")));
    let inner = directory.path().join("journal");
    of_three_records(&inner);
    let checked = journal("check", directory.path(), &[]);
    assert_eq!(checked.err, format!("{none}; the journal may be {}\n", inner.display()));
}
