//! `check-config` over whole directories.

use std::path::Path;

use serde_json::json;

use super::*;

const PARTITIONING: &str = "<property><name>cm.cpu.to.resource.partitioning</name>\
    <value>{\"1\":{\"MAP\":1}}</value></property>";

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

/// Every kind of file with something wrong in it.
fn broken() -> tempfile::TempDir {
    let site = format!(
        "<configuration>\n{PARTITIONING}\n\
         <property><name>cm.node.expiryinterval</name><value>10m</value></property>\n\
         <property><name>cm.server.adress</name><value>h:1</value></property>\n\
         <property><name>cm.pools.config.file</name><value>pools.xml</value></property>\n\
         </configuration>"
    );
    directory(&[
        ("core-site.xml", &site),
        (
            "corona.xml",
            "<configuration>\n<grantsPerIteration>0</grantsPerIteration>\n</configuration>",
        ),
        (
            "pools.xml",
            "<configuration>\n<group name=\"g\">\n<maxMAP>all</maxMAP>\n</group>\n</configuration>",
        ),
    ])
}

fn check(dir: &Path, more: &[&str]) -> Done {
    let dir = dir.to_str().unwrap();
    corona_words(&[&["check-config", "--conf-dir", dir], more].concat())
}

#[test]
fn every_problem_is_one_line_with_its_place() {
    let dir = broken();
    let done =
        check(dir.path(), &["-D", "cm.hosts=/no/such/hosts", "-D", "corona.node.restart.batch=x"]);
    let text = done.out.replace(dir.path().to_str().unwrap(), "DIR");
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.pop(), Some("4 errors, 2 warnings; the configuration cannot be used."));
    lines.sort_unstable();
    let starts = [
        "error: -D: corona.node.restart.batch: value \"x\" is not a whole number; expected ",
        "error: DIR/core-site.xml:3: cm.node.expiryinterval: value \"10m\" is not a whole number; ",
        "error: DIR/corona.xml:2: grantsPerIteration: value \"0\" ",
        "error: DIR/pools.xml:3: group g: maxMAP: value \"all\" ",
        "warning: -D: cm.hosts: file /no/such/hosts does not exist; every host may heartbeat",
        "warning: DIR/core-site.xml:4: cm.server.adress: unknown key, ignored; did you mean cm.server.address? It is not set, so its default localhost:8888 is used",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:#?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\nis not {start}");
    }
    assert_eq!((done.status, done.err.as_str()), (ExitCode::from(1), ""));
}

#[test]
fn problems_are_data_for_programs() {
    let dir = broken();
    let done = check(dir.path(), &["--output", "json"]);
    assert_eq!(done.status, ExitCode::from(1));
    let report = done.json();
    assert_eq!((&report["usable"], &report["errors"]), (&json!(false), &json!(3)));
    assert!(report.get("in_force").is_none());
    let problems = report["problems"].as_array().unwrap();
    let about = |subject| problems.iter().filter(|p| p["subject"] == subject).collect::<Vec<_>>();
    let [pool] = &about("group g: maxMAP")[..] else { panic!("{report:#}") };
    assert_eq!((&pool["line"], &pool["value"]), (&json!(3), &json!("all")), "{pool}");
    assert_eq!(
        about("cm.node.expiryinterval"),
        [&json!({
            "severity": "error", "origin": "file", "line": 3,
            "file": dir.path().join("core-site.xml").to_str().unwrap(),
            "subject": "cm.node.expiryinterval", "value": "10m",
            "expected": "milliseconds, 1 to 2147483647",
            "message": "value \"10m\" is not a whole number; expected milliseconds, 1 to 2147483647",
        })]
    );
}

#[test]
fn a_good_configuration_is_shown_with_origins() {
    let site = format!("<configuration>\n{PARTITIONING}\n</configuration>");
    let dir = directory(&[("core-site.xml", &site), ("corona.xml", "<configuration/>")]);
    check(dir.path(), &[]).is(0, "No problems.\n", "");

    let shown = check(dir.path(), &["--show", "-D", "cm.session.expiryinterval=7", "--wide"]);
    assert_eq!(shown.status, ExitCode::SUCCESS);
    // Nothing is padded: values can be very long.
    let line = shown.out.lines().find(|line| line.starts_with("cm.compress.state"));
    assert_eq!(line, Some("cm.compress.state  false  default"));
    let row = |key: &str| {
        let row = shown.out.lines().find(|line| line.starts_with(&format!("{key} ")));
        row.unwrap_or_default().split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("cm.session.expiryinterval"), "7 -D");
    assert_eq!(row("cm.node.expiryinterval"), "600000 default");
    let place = dir.path().join("core-site.xml");
    let partitioning = format!("{{\"1\":{{\"MAP\":1}}}} {}:2", place.display());
    assert_eq!(row("cm.cpu.to.resource.partitioning"), partitioning);

    let shown = check(dir.path(), &["--show", "--output", "json"]);
    let report = shown.json();
    let values = report["in_force"].as_array().unwrap();
    let expected = json!({"key": "cm.node.expiryinterval", "value": "600000", "origin": "default"});
    assert!(values.contains(&expected), "{values:#?}");
    let expected = json!({
        "key": "cm.cpu.to.resource.partitioning", "value": "{\"1\":{\"MAP\":1}}",
        "origin": "file", "file": place.to_str().unwrap(), "line": 2,
    });
    assert!(values.contains(&expected), "{values:#?}");
}

#[test]
fn warnings_alone_leave_it_usable() {
    let site = format!("<configuration>\n{PARTITIONING}\n</configuration>");
    let dir = directory(&[("core-site.xml", &site), ("corona.xml", "<configuration/>")]);
    let done = check(dir.path(), &["-D", "topology.script.file.name=/no/such/script"]);
    let warning = "warning: -D: topology.script.file.name: file /no/such/script does not exist; \
        no host can be put into a rack\n1 warning; the configuration can be used.\n";
    done.is(0, warning, "");
}

#[test]
fn a_missing_directory_is_a_failure() {
    for (path, expected) in [
        ("/no/such/directory", "configuration directory /no/such/directory does not exist; "),
        ("/etc/passwd", "/etc/passwd is a file; name the directory of core-site.xml "),
    ] {
        check(Path::new(path), &[]).fails(&format!("corona: {expected}"));
    }
}
