//! The built program's `what-if`: from traces and recordings to reports, as its page describes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use compat_tests::{corona_program, repository};
use serde_json::Value;

/// What the program prints for these words, with its status.
fn what_if(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(corona_program());
    command.arg("what-if").args(words).stdin(Stdio::null());
    for variable in ["HADOOP_CONF_DIR", "COLUMNS", "NO_COLOR", "RUST_LOG"] {
        command.env_remove(variable);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[track_caller]
fn done(words: &[&str]) -> String {
    let (status, out, err) = what_if(words);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{words:?}");
    out
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&done(&[words, &["--json"]].concat())).unwrap()
}

fn path(of: &Path) -> &str {
    of.to_str().unwrap()
}

fn pools(directory: &Path, name: &str, pools: &str) -> String {
    let file = directory.join(name);
    fs::write(&file, format!("<?xml version=\"1.0\"?>\n<configuration>{pools}</configuration>\n"))
        .unwrap();
    path(&file).to_owned()
}

#[test]
fn a_trace_is_played_against_pools_files_and_reported_in_three_forms() {
    let directory = tempfile::tempdir().unwrap();
    let trace = repository().join("fixtures/workloads/small.swf");
    let group = |most| {
        format!(
            "<group name=\"group1\"><pool name=\"queue1\"><maxMAP>{most}</maxMAP></pool></group>"
        )
    };
    let [tight, wide] = [("tight.xml", 2), ("wide.xml", 800)]
        .map(|(name, most)| pools(directory.path(), name, &group(most)));
    let out = directory.path().join("out");
    let words = [path(&trace), "--report", path(&out), "--compare", &tight, &wide];
    let text = done(&words);
    assert!(text.contains("comes out as recorded"), "{text}");
    assert_eq!(fs::read_to_string(out.join("report.txt")).unwrap(), text);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("tight.xml"), "{page}");
    let report: Value =
        serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    let median = |run: usize| {
        let pools = report["runs"][run]["pools"].as_array().unwrap();
        let pool = pools.iter().find(|pool| pool["name"] == "group1.queue1").unwrap();
        pool["waits"]["median_ms"].as_u64().unwrap()
    };
    assert!(median(1) > median(0) + 10_000, "{} {}", median(1), median(0));
    assert_eq!(median(2), median(0));
}

#[test]
fn a_recording_is_saved_as_a_workload_that_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let recorded = repository().join("fixtures/recordings/scenarios/min_and_max");
    let (capture, conf) = (recorded.join("traffic.pcap"), ["--conf-dir", path(&recorded)]);
    let saved = directory.path().join("saved.jsonl.gz");
    let of_capture = json(&[&[path(&capture)], &conf[..]].concat());
    assert!(of_capture["check"]["error"].as_f64().unwrap() <= 0.05, "{of_capture}");
    let save = [&[path(&capture), "--save", path(&saved), "--anonymise"], &conf[..]].concat();
    assert_eq!(what_if(&save).0, Some(0));
    let of_saved = json(&[&[path(&saved)], &conf[..]].concat());
    assert_eq!(of_saved["tasks"], of_capture["tasks"]);
    assert_eq!(of_saved["name"], "anonymous");
    // Half of a compressed workload is used as far as it goes, and that is said.
    let bytes = fs::read(&saved).unwrap();
    let cut = directory.path().join("cut.gz");
    fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    let of_cut = json(&[&[path(&cut)], &conf[..]].concat());
    assert_eq!(of_cut["left_out"].as_array().map(Vec::len), Some(1), "{of_cut}");
}

#[test]
fn wrong_inputs_and_options_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &str| {
        let file = directory.path().join(name);
        fs::write(&file, contents).unwrap();
        path(&file).to_owned()
    };
    let (empty, newer) = (file("empty", ""), file("newer", "{\"corona_workload\":99}\n"));
    let (text, trace) =
        (file("text", "hello\n"), repository().join("fixtures/workloads/small.swf"));
    for (words, status, expected) in [
        (vec!["/no/such/file"], 1, "cannot open /no/such/file"),
        (vec![&*empty], 1, "the file is empty"),
        (vec![&*newer], 1, "has version 99"),
        (vec![&*text], 1, "neither"),
        (vec![path(&trace), "--pools", "/no/such.xml"], 1, "cannot read /no/such.xml"),
        (vec![path(&trace), "--fail-nodes", "ghost@1m"], 1, "no node ghost"),
        (vec![path(&trace), "--load", "0"], 2, "expected a factor above 0"),
        (vec![path(&trace), "--fail-nodes", "3"], 2, "expected NODES@TIME"),
    ] {
        let (found, out, err) = what_if(&words);
        assert_eq!((found, out.as_str()), (Some(status), ""), "{words:?}: {err}");
        assert!(
            err.contains(expected) && (status == 2 || err.lines().count() == 1),
            "{words:?}: {err}"
        );
    }
}
