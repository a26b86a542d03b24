//! `corona load` against the built program: each scenario for a short time, without faults in the
//! replies.

use std::process::{Command, Output};

use compat_tests::{corona_program, start_plain};
use corona::conformance::launch::LaunchedManager;
use corona::load::Report;

fn load(manager: &LaunchedManager, scenario: &str, options: &[&str]) -> Output {
    let mut command = Command::new(corona_program());
    command.args(["load", scenario, "--address", &manager.thrift().to_string()]);
    command.args(["--warm-up", "0", "--threads", "1"]).args(options);
    if !options.contains(&"--seconds") {
        command.args(["--seconds", "1"]);
    }
    command.output().expect("the program can be started")
}

fn report(manager: &LaunchedManager, scenario: &str, options: &[&str]) -> Report {
    let output = load(manager, scenario, &[options, &["--output", "json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{scenario}: {error}: {stderr}"));
    assert_eq!(report.errors, [], "{scenario}: {}", manager.log());
    assert!(output.status.success(), "{scenario}: {stderr}");
    assert!(stderr.starts_with(&format!("load on {}: {scenario}\n", manager.thrift())), "{stderr}");
    report
}

/// How often each of these was measured; all must have been.
fn counts<const N: usize>(report: &Report, names: [&str; N]) -> [u64; N] {
    names.map(|name| {
        let count = report.measures.iter().find(|measure| measure.name == name);
        let count = count.map_or(0, |measure| measure.count);
        assert!(count > 0, "no {name} in {:?}", report.measures);
        count
    })
}

#[test]
fn every_scenario_finds_nothing_wrong() {
    let manager = start_plain();
    let small = ["--nodes", "40", "--cpus", "4"];
    let few = [&small[..], &["--sessions", "3", "--maps", "50"]].concat();

    counts(&report(&manager, "heartbeats", &small), ["nodeHeartbeat"]);
    let paced = report(&manager, "heartbeats", &[&small[..], &["--interval", "0.2"]].concat());
    counts(&paced, ["nodeHeartbeat"]);
    counts(
        &report(&manager, "churn", &few),
        ["churn: request to grant", "requestResource", "releaseResource"],
    );
    counts(
        &report(&manager, "small-jobs", &small),
        ["small jobs: request to grant", "small jobs: job", "sessionStart", "sessionEnd"],
    );
    let mixed = [&few[..], &["--hold", "0.05", "--interval", "0.2"]].concat();
    counts(
        &report(&manager, "mixed", &mixed),
        ["large jobs: request to grant", "small jobs: job", "single: job", "nodeHeartbeat"],
    );
    counts(&report(&manager, "request-to-grant", &small), ["single: request to grant"]);
    let slow = [&small[..], &["--sessions", "5", "--hold", "0.05", "--seconds", "2"]].concat();
    let slow = report(&manager, "slow-drivers", &slow);
    for part in ["before", "with"] {
        let of_part = |name: &str| {
            let mut measures = slow.measures.iter();
            measures.any(|one| one.part.as_deref() == Some(part) && one.name == name)
        };
        assert!(of_part("healthy: request to grant"), "{part} in {:?}", slow.measures);
    }

    let storm = report(&manager, "reconnect", &small);
    counts(&storm, ["storm: one back", "storm: all back"]);
    let process_id = manager.process_id().to_string();
    let idle = ["--connections", "50", "--pid", &process_id];
    let idle = report(&manager, "idle-connections", &idle);
    assert_eq!(idle.plan[0], "50 idle connections");
    assert!(idle.process.is_some_and(|process| process.threads > 0));

    // All slots were released, and every session was ended.
    let mut list = Command::new(corona_program());
    list.args(["sessions", "list", "--output", "json", "--address", &manager.thrift().to_string()]);
    let listed = list.output().expect("the program can be started");
    let listed = String::from_utf8_lossy(&listed.stdout).replace(char::is_whitespace, "");
    assert_eq!(listed, r#"{"sessions":[]}"#);
}

#[test]
fn a_run_that_cannot_begin_says_why() {
    let mut manager = start_plain();
    let told = |output: Output, status: i32, end: &str| {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.trim_end().ends_with(end), "{stderr}");
        assert!(output.stdout.is_empty());
    };
    let output = load(&manager, "churn", &["--nodes", "4", "--maps", "2000000"]);
    told(output, 1, "corona: slots of a session must be from 1 to 1000000, not 2000000");
    told(load(&manager, "churn", &["--hold", "-1"]), 2, "For more information, try '--help'.");
    manager.stop();
    let output = load(&manager, "churn", &["--nodes", "4"]);
    told(output, 1, "no connection: Connection refused (os error 111)");
}

#[test]
fn reports_are_drawn_and_compared() {
    let manager = start_plain();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let picture = path("picture.svg");
    let options = ["--nodes", "10", "--plot", &picture, "--output", "json"];
    let output = load(&manager, "request-to-grant", &options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(path("report.json"), &output.stdout).expect("a file");
    let drawn = std::fs::read_to_string(&picture).expect("a picture");
    assert!(drawn.starts_with("<svg ") && drawn.contains("single: request to grant"), "{drawn}");

    // An existing picture is not overwritten, and nothing is sent before that is known.
    let output = load(&manager, "request-to-grant", &options);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr, format!("corona: {picture} exists already; --force overwrites it\n"));

    let report = path("report.json");
    let mut compare = Command::new(corona_program());
    compare.args(["load", "compare", "--before", &report, &report, "--after", &report]);
    let output = compare.output().expect("the program can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let begin = "before: 2 runs of request-to-grant\nafter: 1 run of request-to-grant\n\nWHAT ";
    assert!(text.starts_with(begin), "{text}");
    let line = text.lines().find(|line| line.starts_with("single: request to grant"));
    assert_eq!(line.map(|line| line.matches("  1.00").count()), Some(3), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
}

#[test]
fn a_report_for_people_fits_into_a_terminal() {
    let manager = start_plain();
    let process_id = manager.process_id().to_string();
    let options = ["--nodes", "10", "--maps", "20", "--pid", &process_id];
    let output = load(&manager, "churn", &options);
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}{text}");
    assert!(text.ends_with("\nAll responses were correct.\n"), "{text}");
    assert!(text.contains("\nchurn: request to grant "), "{text}");
    assert!(text.contains("\ncluster manager: "), "{text}");
    for line in text.lines().chain(stderr.lines()) {
        assert!(line.chars().count() < 80, "{line}");
    }
}
