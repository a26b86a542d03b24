//! Whatever a falsifying relay between the shadow and its primary changes is reported.

use std::process::Command;

use compat_tests::{corona_program, repository, start_recorded};
use corona::wire::value::{Message, Value};

use super::falsifier::{Edit, Falsifier, find};
use super::processes::Shadow;

/// A recorded scenario is played against this program through a falsifier and a shadow. Returns the
/// shadow's status and summary.
fn shadowed(scenario: &str, edit: Edit) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().unwrap();
    let conf_dir = repository().join("fixtures/recordings/scenarios").join(scenario);
    let manager = start_recorded(&conf_dir, directory.path());
    let primary = Falsifier::start(manager.thrift(), edit);
    let conf = conf_dir.to_str().unwrap();
    let events = directory.path().join("run.events");
    let keep = ["--keep-events", events.to_str().unwrap()];
    let options = [&["--conf-dir", conf, "--patience", "2"][..], &keep].concat();
    let shadow = Shadow::start(primary, &options);
    let mut replay = Command::new(corona_program());
    replay.arg("replay").arg(conf_dir.join("traffic.pcap"));
    replay.args(["--target", &shadow.address.to_string(), "--conf-dir", conf]);
    // Its findings are the falsifier's work, and not checked here.
    let output = replay.args(["--speed", "max", "--timeout", "4"]).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let (status, summary) = shadow.end();
    // The events of the run lead to the same findings, to the last byte.
    let mut again = Command::new(corona_program());
    again.args(["shadow", "--events"]).arg(&events).env_remove("COLUMNS");
    let output = again.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), summary);
    assert_eq!(output.status.code(), status, "{}", String::from_utf8_lossy(&output.stderr));
    // They are a recording of what the cluster was asked for as well.
    let mut what_if = Command::new(corona_program());
    what_if.arg("what-if").arg(&events).args(["--json", "--conf-dir", conf]);
    let output = what_if.output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["sessions"].as_u64() > Some(0), "{report}");
    (status, summary)
}

/// Checks that a scenario is found to agree, and to differ in one place after `edit`; returns the
/// summary.
fn found(scenario: &str, edit: Edit) -> String {
    let (status, summary) = shadowed(scenario, Box::new(|_| {}));
    assert_eq!(status, Some(0), "{summary}");
    assert!(summary.starts_with("AGREES"), "{summary}");
    let (status, summary) = shadowed(scenario, edit);
    assert_eq!(status, Some(1), "{summary}");
    assert!(summary.starts_with("DIFFERS: 1 unexplained difference."), "{summary}");
    summary
}

fn list<'a>(message: &'a mut Message, name: &str) -> &'a mut Vec<Value> {
    match find(message.body.as_mut().unwrap(), name) {
        Some(Value::List(values)) => values,
        other => panic!("no list {name}: {other:?}"),
    }
}

#[test]
fn one_flipped_field_is_reported() {
    let mut done = false;
    let summary = found(
        "session_lifecycle",
        Box::new(move |message| {
            if message.name == "getSessionInfo" && message.kind.is_answer() && !done {
                let info = find(message.body.as_mut().unwrap(), "success");
                let flag = info.and_then(|info| find(info, "noPreempt")).unwrap();
                assert_eq!(*flag, Value::Bool(false));
                *flag = Value::Bool(true);
                done = true;
            }
        }),
    );
    let expected = "  FIELD              PRIMARY  HERE\n  success.noPreempt  true     false\n";
    assert!(summary.contains(expected), "{summary}");
}

#[test]
fn a_connection_closed_instead_of_an_answer_is_reported() {
    let mut done = false;
    let summary = found(
        "session_lifecycle",
        Box::new(move |message| {
            if message.name == "getSessionInfo" && message.kind.is_answer() && !done {
                message.name.clear();
                done = true;
            }
        }),
    );
    assert!(summary.contains("  primary   the connection is closed\n"), "{summary}");
}

#[test]
fn one_grant_too_many_is_reported() {
    let mut done = false;
    let summary = found(
        "exclude_hosts",
        Box::new(move |message| {
            if message.name == "grantResource" && !message.kind.is_answer() && !done {
                let granted = list(message, "granted");
                let mut one_more = granted[0].clone();
                *find(&mut one_more, "id").unwrap() = Value::I32(9_999);
                granted.push(one_more);
                done = true;
            }
        }),
    );
    assert!(summary.contains("grantResource of request 9999 to session"), "{summary}");
    assert!(summary.contains("the request was never made"), "{summary}");
}

#[test]
fn a_grant_told_twice_and_one_not_told_are_reported() {
    for (copies, expected) in [(2, "it has been granted already"), (0, "nothing within 2 s")] {
        let mut done = false;
        let summary = found(
            "exclude_hosts",
            Box::new(move |message| {
                if message.name == "grantResource" && !message.kind.is_answer() && !done {
                    let granted = list(message, "granted");
                    let last = granted.pop().unwrap();
                    granted.extend(std::iter::repeat_n(last, copies));
                    done = true;
                }
            }),
        );
        assert!(summary.contains(expected), "{summary}");
    }
}

#[test]
fn a_reordered_revocation_is_reported() {
    let summary = found(
        "preemption",
        Box::new(|message| {
            if message.name == "revokeResource" && !message.kind.is_answer() {
                list(message, "revoked").reverse();
            }
        }),
    );
    assert!(summary.contains("revokeResource of request"), "{summary}");
    assert!(summary.contains("is revoked before"), "{summary}");
}
