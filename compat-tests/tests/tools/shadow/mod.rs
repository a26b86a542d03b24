//! `corona shadow` as a process: beside this program's own cluster manager it finds nothing, another
//! decision is reported, and missed messages do not lead it astray.

mod missed;
pub(crate) mod processes;

use std::process::Command;

use compat_tests::{corona_program, repository, start_recorded, start_with};

use processes::{Shadow, counts, until_it_shows};

#[test]
fn beside_itself_under_load_it_finds_nothing() {
    finds_nothing_under_load(&[]);
}

#[test]
fn beside_itself_under_load_of_resources_it_finds_nothing() {
    finds_nothing_under_load(&[("corona.cm.resources", "cpus,memory")]);
}

fn finds_nothing_under_load(settings: &[(&str, &str)]) {
    let manager = start_with(settings);
    let settings: Vec<_> = settings.iter().map(|(key, value)| format!("-D{key}={value}")).collect();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let shadow = Shadow::start(manager.thrift(), &settings);
    let address = shadow.address.to_string();
    let small = ["--nodes", "40", "--cpus", "4", "--seconds", "1", "--warm-up", "0"];
    for (scenario, options) in [
        ("churn", &["--sessions", "3", "--maps", "50"][..]),
        ("churn", &["--sessions", "3", "--maps", "500", "--hold", "0.05"]),
        ("small-jobs", &[]),
        ("mixed", &["--sessions", "3", "--maps", "50", "--hold", "0.05", "--interval", "0.2"]),
    ] {
        let mut load = Command::new(corona_program());
        load.args(["load", scenario, "--address", &address, "--threads", "1"]);
        let output = load.args(small).args(options).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{scenario}: {stderr}");
    }
    let (status, summary) = shadow.end();
    assert_eq!(status, Some(0), "{summary}");
    assert!(summary.starts_with("AGREES"), "{summary}");
    for method in
        ["getNextSessionId", "sessionStart", "requestResource", "releaseResource", "grantResource"]
    {
        let [equal, _, different, _] = counts(&summary, method);
        assert!(equal > 10 && different == 0, "{method}: {summary}");
    }
}

/// The commands of the page, each between clients and a cluster manager.
#[test]
fn every_documented_command_runs_and_tells_what_it_found() {
    let text = std::fs::read_to_string(repository().join("docs/operate/conformance.md")).unwrap();
    let commands: Vec<&str> =
        text.lines().filter_map(|line| line.trim_start().strip_prefix("corona shadow ")).collect();
    assert!(commands.len() >= 2, "{commands:?}");
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let conf_dir = here.join("conf");
    std::fs::create_dir(&conf_dir).unwrap();
    let configuration = "<configuration><property><name>cm.cpu.to.resource.partitioning</name>\
        <value>{\"1\":{\"MAP\":1,\"REDUCE\":1}}</value></property></configuration>";
    std::fs::write(conf_dir.join("core-site.xml"), configuration).unwrap();
    for command in commands {
        let manager = start_recorded(&conf_dir, here);
        let line = command
            .replace("localhost:9090", &manager.thrift().to_string())
            .replace("0.0.0.0:9191", "127.0.0.1:0")
            .replace("0.0.0.0:9192", "127.0.0.1:0");
        let mut program = Command::new(corona_program());
        program.arg("shadow").args(line.split(' ')).current_dir(here);
        let shadow = Shadow::of(program);
        let mut load = Command::new(corona_program());
        load.args(["load", "churn", "--address", &shadow.address.to_string(), "--nodes", "10"]);
        load.args(["--seconds", "1", "--warm-up", "0", "--sessions", "1", "--maps", "20"]);
        assert!(load.output().unwrap().status.success());
        if let Some(http) = shadow.http {
            until_it_shows(http, "/", "<td>0</td>", "session<wbr>Start");
            until_it_shows(http, "/report.json", "\"agrees\":true", "\"method\":\"sessionStart\"");
            let sample = "corona_shadow_answers_total{method=\"sessionStart\",verdict=\"equal\"}";
            until_it_shows(http, "/metrics", "# TYPE", sample);
        }
        let (status, summary) = shadow.end();
        assert_eq!(status, Some(0), "{summary}");
        assert!(summary.lines().all(|line| line.chars().count() <= 80), "{summary}");
    }
    let page = std::fs::read_to_string(here.join("week.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("AGREES"), "{page}");
    let mut inspect = Command::new(corona_program());
    let output = inspect.args(["inspect", "week.corec", "--stats"]).current_dir(here).output();
    let output = output.unwrap();
    let stats = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && stats.contains("grantResource"), "{stats}");
}
