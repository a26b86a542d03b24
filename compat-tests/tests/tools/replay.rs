//! `corona replay` as a process: its verdict on recordings that the program agrees with, on those that it
//! decides otherwise, and on its own recordings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use compat_tests::task_tracker::node::signal;
use compat_tests::{corona, repository, start_recorded, until};
use corona::conformance::setup::RecordedSetup;
use serde_json::Value as Json;

use super::record::Relay;

fn fixture(name: &str) -> PathBuf {
    repository().join("fixtures/recordings").join(name)
}

/// Status, stdout and stderr.
fn told(words: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = corona(words).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// The verdict on a recording, and the exit status. The machine may be busy, and then it is played
/// again.
pub(crate) fn verdict(file: &Path, conf_dir: &Path, more: &[&str]) -> (Option<i32>, Json) {
    let (file_name, conf) = (file.to_str().unwrap(), conf_dir.to_str().unwrap());
    let line = ["replay", file_name, "--spawn", "--conf-dir", conf, "--output", "json"];
    let speed = ["--speed", "max"];
    let speed: &[&str] = if more.contains(&"--speed") { &[] } else { &speed };
    let words = [&line, speed, ["--retries", "2"].as_slice(), more].concat();
    let (status, out, err) = told(&words, conf_dir);
    assert_eq!(err, "");
    (status, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}")))
}

/// A recording agrees with the configuration that it was made with, and differs where another one decides otherwise.
#[test]
fn a_decision_of_another_configuration_is_found() {
    let (directory, recorded) = (tempfile::tempdir().unwrap(), fixture("scenarios/strict_pools"));
    let capture = recorded.join("traffic.pcap");
    let (status, agrees) = verdict(&capture, &recorded, &[]);
    assert_eq!((status, &agrees["agrees"]), (Some(0), &Json::Bool(true)), "{agrees:#}");
    for file in ["core-site.xml", "corona.xml", "pools.xml"] {
        let text = fs::read_to_string(recorded.join(file)).unwrap();
        fs::write(directory.path().join(file), text.replace("\"known\"", "\"other\"")).unwrap();
    }
    let (status, differs) = verdict(&capture, directory.path(), &["--timeout", "3"]);
    assert_eq!((status, &differs["agrees"]), (Some(1), &Json::Bool(false)), "{differs:#}");
    let is_refusal = |finding: &Json| {
        let is_it = finding["verdict"] == "different" && finding["method"] == "sessionStart";
        is_it && finding["fields"].as_array().unwrap().iter().any(|field| field["equal"] == false)
    };
    assert!(differs["findings"].as_array().unwrap().iter().any(is_refusal), "{differs:#}");
}

/// Recorded clients are played through a relay, and its recording is played again.
#[test]
fn a_recording_of_this_program_replays_without_differences() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["scenarios/grants", "scenarios/preemption"] {
        let conf_dir = fixture(name);
        let conf = conf_dir.to_str().unwrap();
        let manager = start_recorded(&conf_dir, directory.path());
        let file = directory.path().join(format!("{}.corec", name.replace('/', "-")));
        let relay = Relay::to_file(manager.thrift(), &file, &["--relay-callbacks"]);
        let capture = conf_dir.join("traffic.pcap");
        let (capture, target) = (capture.to_str().unwrap(), relay.address.to_string());
        let line = ["replay", capture, "--target", &target, "--conf-dir", conf, "--speed", "max"];
        let (status, out, err) = told(&line, directory.path());
        assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
        assert!(out.contains("Not compared: What the cluster manager had before"), "{out}");
        assert_eq!(relay.end("TERM").status, Some(0));

        let (status, again) = verdict(&file, &conf_dir, &[]);
        assert_eq!(status, Some(0), "{again:#}");
        let calls = &again["calls"];
        assert!(calls["compared"].as_u64() > Some(5), "{again:#}");
        assert_eq!(calls["different"], 0, "{again:#}");
        assert!(again["notices"]["told"].as_u64() > Some(5), "{again:#}");
        assert_eq!(again["notices"]["told"], again["notices"]["recorded"], "{again:#}");
    }
}

/// Every command of the page, in its order, with a capture and its configuration in place.
#[test]
fn the_documentation_leads_from_a_capture_to_a_report() {
    const JOB: &str = "jobs/wc-remote";
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::copy(fixture(JOB).join("traffic.pcap"), here.join("cm.pcap")).unwrap();
    fs::create_dir(here.join("conf")).unwrap();
    for entry in fs::read_dir(fixture(JOB)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "xml") {
            fs::copy(&path, here.join("conf").join(path.file_name().unwrap())).unwrap();
        }
    }
    let ports = RecordedSetup::read(&fixture(JOB)).unwrap().ports;
    let text = fs::read_to_string(repository().join("docs/operate/conformance.md")).unwrap();
    let commands: Vec<&str> =
        text.lines().map(str::trim_start).filter_map(|line| line.strip_prefix("corona ")).collect();
    assert!(commands.len() >= 5, "{commands:?}");
    // Those have a test of their own.
    let commands = commands.into_iter().filter(|command| !command.starts_with("shadow "));
    for command in commands {
        let manager = start_recorded(&here.join("conf"), here);
        let line = command
            .replace("localhost:9090", &manager.thrift().to_string())
            .replace("cluster-manager=9090", &format!("cluster-manager={}", ports.cluster_manager))
            .replace(
                "proxy-job-tracker=9091",
                &format!("proxy-job-tracker={}", ports.proxy_job_tracker.unwrap()),
            );
        let (status, out, err) = told(&line.split(' ').collect::<Vec<_>>(), here);
        assert_eq!((status, err.as_str()), (Some(0), ""), "corona {line}: {out}");
        if line.starts_with("replay") {
            assert!(out.starts_with("AGREES"), "corona {line}: {out}");
            assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
        }
    }
    let page = fs::read_to_string(here.join("monday.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("AGREES"), "{page}");
}

#[test]
fn unplayable_recordings_are_one_line_and_wrong_usage_is_status_two() {
    let directory = tempfile::tempdir().unwrap();
    let conf_dir = fixture("scenarios/grants");
    let (conf, capture) = (conf_dir.to_str().unwrap(), conf_dir.join("traffic.pcap"));
    let capture = capture.to_str().unwrap();
    let spawn = ["replay", capture, "--spawn", "--conf-dir", conf];
    let of = |more: &[&'static str]| [&spawn, more].concat();
    for (line, status, words) in [
        (vec!["replay", capture], 2, "<--spawn|--target <HOST:PORT>>"),
        (vec!["replay", capture, "--spawn"], 2, "--conf-dir"),
        (of(&["--target", "localhost:1"]), 2, "cannot be used with"),
        (of(&["--speed", "0"]), 2, "0.01 to 10000, or max"),
        (of(&["--report", "x.pdf"]), 2, ".txt, .json or .html"),
        (of(&["--port", "cluster-manager=1"]), 1, "has no connection to port 1"),
        (vec!["replay", "none", "--spawn", "--conf-dir", conf], 1, "cannot open none"),
        (vec!["replay", capture, "--spawn", "--conf-dir", "none"], 1, "none does not exist"),
        (
            vec!["replay", capture, "--target", "127.0.0.1:1", "--conf-dir", conf],
            1,
            "no cluster manager answers",
        ),
    ] {
        let (told_status, out, err) = told(&line, directory.path());
        assert_eq!((told_status, out.as_str()), (Some(status), ""), "{line:?}: {err}");
        assert!(err.contains(words), "{line:?}: {err}");
        assert!(status == 2 || err.lines().count() == 1, "{line:?}: {err}");
    }
    fs::write(directory.path().join("r.txt"), "kept").unwrap();
    let line = of(&["--speed", "max", "--report", "r.txt"]);
    // Obstacles to the report are reported before anything is played.
    let (status, out, err) = told(&line, directory.path());
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert_eq!(err, "corona: r.txt exists already; --force overwrites it\n");
    let own = fs::copy(capture, directory.path().join("own.txt")).unwrap();
    let itself = ["replay", "own.txt", "--spawn", "--conf-dir", conf, "--report", "own.txt"];
    let (status, _, err) = told(&[&itself[..], &["--force"]].concat(), directory.path());
    assert_eq!(status, Some(1));
    assert_eq!(err, "corona: own.txt cannot be read and overwritten at once\n");
    assert_eq!(fs::metadata(directory.path().join("own.txt")).unwrap().len(), own);
    let nobody = ["replay", capture, "--target", "127.0.0.1:1", "--conf-dir", conf];
    let (status, ..) = told(&[&nobody[..], &["--report", "n.html"]].concat(), directory.path());
    assert_eq!(status, Some(1));
    assert!(!directory.path().join("n.html").exists(), "no report without a verdict");
    let (status, out, err) = told(&[line, vec!["--force"]].concat(), directory.path());
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    let report = fs::read_to_string(directory.path().join("r.txt")).unwrap();
    assert!(report.starts_with("AGREES"), "{report}");
}

/// A signal to a replay also ends the cluster manager that it started.
#[test]
fn a_stopped_replay_leaves_nobody_behind() {
    let directory = tempfile::tempdir().unwrap();
    let conf_dir = fixture("jobs/preempt");
    let (conf, capture) = (conf_dir.to_str().unwrap(), conf_dir.join("traffic.pcap"));
    let line = ["replay", capture.to_str().unwrap(), "--spawn", "--conf-dir", conf];
    let mut replay = corona(&line).current_dir(directory.path()).spawn().unwrap();
    let id = replay.id();
    let children = || {
        let output = Command::new("ps").args(["-o", "pid=", "--ppid", &id.to_string()]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    until("the cluster manager is started", || (!children().is_empty()).then_some(()));
    let started = children();
    // The signal is handled once the play has begun, and would end it anyhow before.
    signal("TERM", id);
    until("the replay ends", || (replay.try_wait().unwrap().is_some()).then_some(()));
    let runs = |process: &String| Path::new("/proc").join(process).exists();
    until("the cluster manager ends", || (!started.iter().any(runs)).then_some(()));
}
