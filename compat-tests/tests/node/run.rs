//! `corona run` on a small cluster: lists of commands, their results, and what is left after the end of a part.

use std::collections::BTreeMap;
use std::fs;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use compat_tests::serving::free_address;
use compat_tests::task_tracker::node::{interruptible, signal};
use serde_json::Value;

use super::mini_cluster::{MiniCluster, corona, stderr, until};

fn command(cluster: &MiniCluster, arguments: &[&str]) -> Command {
    let mut command = corona();
    command.args(["run", "--conf-dir", "cluster/conf"]).args(arguments);
    command.current_dir(cluster.root.path()).stdin(Stdio::null());
    command
}

fn run(cluster: &MiniCluster, status: i32, arguments: &[&str]) -> (String, String) {
    let output = command(cluster, arguments).output().unwrap();
    ended(status, arguments, &output)
}

fn ended(status: i32, arguments: &[&str], output: &Output) -> (String, String) {
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(output));
    (String::from_utf8(output.stdout.clone()).unwrap(), stderr(output))
}

/// The results in a directory, by number; each is there once.
fn results(directory: &Path) -> BTreeMap<u64, Value> {
    let text = fs::read_to_string(directory.join("results.jsonl")).unwrap();
    let mut results = BTreeMap::new();
    for line in text.lines() {
        let result: Value = serde_json::from_str(line).unwrap();
        let number = result["id"].as_u64().unwrap();
        assert!(results.insert(number, result).is_none(), "{number} has two results");
    }
    results
}

fn lists_of_all_kinds_are_run(cluster: &MiniCluster) {
    let (out, err) = run(cluster, 0, &["--", "echo", "one"]);
    assert_eq!(out, "one\n");
    assert!(err.contains("1 command: 1 succeeded, 0 failed, 0 without a result;"), "{err}");
    let array = ["--keep-order", "--array", "5-100:5", "--", "echo $CORONA_TASK_ID is {}"];
    let (out, _) = run(cluster, 0, &array);
    let expected: String = (1..=20).map(|it| format!("{0} is {0}\n", it * 5)).collect();
    assert_eq!(out, expected);
    // A value is one word, whatever it has.
    let mut lines =
        command(cluster, &["--keep-order", "--each-line", "-", "--", "printf '<%s>' {}"]);
    let mut child = lines.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a b\n\nit's; $(x)\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"<a b><it's; $(x)>");
    cluster.write("jobs.txt", "echo a >&2\necho b | tr b c\n");
    let (out, err) = run(cluster, 0, &["--commands", "jobs.txt"]);
    assert_eq!(out, "c\n");
    assert!(err.contains("a\n"), "{err}");
}

fn failures_fail_nothing_else(cluster: &MiniCluster) {
    cluster.write("fails.txt", "exit 3\ntrue\nno-such-program\nkill -9 $$\nsleep 60\n");
    let arguments =
        ["--commands", "fails.txt", "--output", "failed", "--log", "log.tsv", "--time", "3"];
    let (_, err) = run(cluster, 1, &arguments);
    assert!(err.contains("5 commands: 1 succeeded, 4 failed, 0 without a result;"), "{err}");
    assert!(err.contains("command 1 failed: exit status 3 ("), "{err}");
    assert!(err.contains("command 5 failed: ended after 3 s, its time ("), "{err}");
    let results = results(&cluster.path("failed"));
    let ends: Vec<(Option<i64>, Option<i64>)> = results
        .values()
        .map(|it| (it["status"].as_i64(), it.get("signal").and_then(Value::as_i64)))
        .collect();
    assert_eq!(ends[..4], [(Some(3), None), (Some(0), None), (Some(127), None), (None, Some(9))]);
    assert!(results[&5]["seconds"].as_f64().unwrap() >= 3.0);
    assert!(fs::read_to_string(cluster.path("failed/3.err")).unwrap().contains("no-such-program"));
    let log = fs::read_to_string(cluster.path("log.tsv")).unwrap();
    assert_eq!(log.lines().count(), 6, "{log}");
    // A program that does not exist is named.
    let (_, err) = run(cluster, 1, &["--", "no-such-program", "x"]);
    assert!(err.contains("command 1 failed: cannot start no-such-program: "), "{err}");
    assert!(err.contains("it is no program on the PATH of this node"), "{err}");
    one_node_may_lack_a_program(cluster);
    // The second attempt of one command succeeds; others have one.
    let twice = "test {} = 2 || exit 0; test -e mark && exit 0; touch mark; exit 1";
    let twice = twice.replace("mark", cluster.path("mark").to_str().unwrap());
    let (out, _) = run(cluster, 0, &["--json", "--array", "1-3", "--retries", "2", "--", &twice]);
    let attempts: BTreeMap<u64, u64> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|it| (it["id"].as_u64().unwrap(), it["attempts"].as_u64().unwrap()))
        .collect();
    assert_eq!(attempts, BTreeMap::from([(1, 1), (2, 2), (3, 1)]));
}

/// From the working directories of maps, its path leads to a file of each node, and one of them is missing. The node
/// with the file begins alone, and its commands wait until the other node has had some.
fn one_node_may_lack_a_program(cluster: &MiniCluster) {
    const PROGRAM: &str = "../../../../../../only-here";
    let [has_begun, may_end] = ["has-begun", "may-end"].map(|name| cluster.path(name));
    let script = format!(
        "#!/bin/sh\ntouch {}\nwhile [ ! -e {} ]; do sleep 0.02; done\n",
        has_begun.display(),
        may_end.display()
    );
    let file = cluster.path("cluster/node-1/only-here");
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let nodes: Value = serde_json::from_str(&cluster.tool(&["nodes", "list", "--json"])).unwrap();
    let mut names =
        nodes["nodes"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap());
    // Each node has a loopback address of its own.
    let other = names.find(|name| name.starts_with("tracker_127.0.0.2:")).unwrap();
    cluster.tool(&["nodes", "drain", other]);
    let arguments = ["--json", "--array", "1-60", "--", PROGRAM];
    let mut list = command(cluster, &arguments);
    let mut list = list.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("a command", || has_begun.exists().then_some(()));
    cluster.tool(&["nodes", "drain", "--undo", other]);
    let out = BufReader::new(list.stdout.take().unwrap());
    let mut ends: BTreeMap<Option<i64>, usize> = BTreeMap::new();
    for line in out.lines() {
        let result: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let status = result["status"].as_i64();
        let reason = result.get("reason").and_then(Value::as_str);
        match status {
            Some(0) => assert_eq!(reason, None),
            _ => {
                assert!(reason.unwrap().starts_with(&format!("cannot start {PROGRAM}: ")));
                fs::write(&may_end, "").unwrap();
            }
        }
        *ends.entry(status).or_default() += 1;
    }
    assert_eq!(list.wait().unwrap().code(), Some(1));
    assert_eq!(ends.keys().copied().collect::<Vec<_>>(), [Some(0), Some(127)]);
    assert_eq!(ends.values().sum::<usize>(), 60);
}

fn wrong_lines_run_nothing(cluster: &MiniCluster) {
    cluster.write("nul", b"a\0b\n");
    cluster.write("empty", "\n");
    let before: Vec<_> = names(cluster.root.path());
    for (status, arguments, expected) in [
        (2, &["--array", "1-3"][..], "name a command behind --"),
        (2, &["--array", "3-1", "--", "x"], "expected numbers such as 1-1000"),
        (2, &["--nope", "--", "x"], "unexpected argument '--nope'"),
        (2, &["--resume", "--", "x"], "--output"),
        (1, &["--each-line", "nul", "--", "x", "{}"], "nul, line 1: it has a NUL byte"),
        (1, &["--each-line", "empty", "--", "x", "{}"], "empty has no lines"),
        (1, &["--each-line", "none", "--", "x", "{}"], "none: No such file"),
        (1, &["--resume", "--output", "new/none", "--", "x"], "has no run to resume"),
        (1, &["--log", "cluster", "--", "x"], "cluster: Is a directory"),
        (2, &["-Dmapred.map.max.attempts=x", "--", "x"], "-D mapred.map.max.attempts: value \"x\""),
        (1, &["-Dmapred.reduce.tasks=3", "--", "x"], "commands have no reduces"),
        // It is found when the job is submitted.
        (1, &["-Dcorona.jt.address=none", "--", "x"], "none"),
    ] {
        for further in [&[][..], &["--output", "new/directory"]] {
            let has_output = arguments.contains(&"--output") || arguments.contains(&"--resume");
            if has_output && !further.is_empty() {
                continue;
            }
            let arguments = [further, arguments].concat();
            let (out, err) = run(cluster, status, &arguments);
            assert!(out.is_empty() && err.contains(expected), "{arguments:?}: {err}");
            let own = err.lines().filter(|line| line.starts_with("corona: ")).count();
            assert_eq!(own, usize::from(!err.starts_with("error: ")), "{err}");
            assert!(!err.contains("without a result"), "{arguments:?}: {err}");
            assert_eq!(names(cluster.root.path()), before, "{arguments:?}");
        }
    }
    let (_, err) = run(cluster, 1, &["--commands", "fails.txt", "--output", "failed"]);
    assert!(err.contains("has the results of an earlier run; add --resume"), "{err}");
    let (out, _) = run(cluster, 0, &["--dry-run", "--array", "1-5000", "--", "x"]);
    assert!(out.starts_with("5000 commands in "), "{out}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether a process runs whose command line has this text.
fn runs(text: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    })
}

fn an_interrupt_ends_all_commands(cluster: &MiniCluster) {
    let mark = cluster.path("waits").display().to_string();
    let line = format!("touch {mark}; sleep 600.123456; true");
    let mut command = interruptible(&command(cluster, &["--array", "1-4", "--", &line]));
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("a command", || Path::new(&mark).exists().then_some(()));
    signal("INT", child.id());
    let status = until("the end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    until("the end of all commands", || (!runs("600.123456")).then_some(()));
}

fn each_command_has_one_result_after_any_end(cluster: &MiniCluster) {
    let count = 400;
    let range = format!("1-{count}");
    let arguments = ["--array", &range, "--output", "all", "--", "sleep 0.02; echo {}"];
    let directory = cluster.path("all");
    let table = directory.join("results.jsonl");
    let length = || fs::metadata(&table).map_or(0, |found| found.len());
    let mut child = command(cluster, &arguments).stderr(Stdio::null()).spawn().unwrap();
    until("results", || (length() > 0).then_some(()));
    cluster.crash("node-1");
    cluster.crash("job-tracker");
    signal("KILL", child.id());
    child.wait().unwrap();
    let resumed = [&["--resume"], &arguments[..]].concat();
    let mut child = command(cluster, &resumed).stderr(Stdio::null()).spawn().unwrap();
    cluster.crash("cluster-manager");
    let before = length();
    until("further results, or the end", || {
        let has_ended = child.try_wait().unwrap().is_some();
        (length() > before || has_ended).then_some(())
    });
    // It may have ended.
    let _ = child.kill();
    child.wait().unwrap();
    run(cluster, 0, &resumed);
    let results = results(&directory);
    assert_eq!(results.len(), count);
    assert!(results.values().all(|result| result["status"] == 0));
    for number in 1..=count {
        let text = fs::read_to_string(directory.join(format!("{number}.out"))).unwrap();
        assert_eq!(text, format!("{number}\n"));
    }
    for (array, command, expected) in [
        ("1-2", "sleep 0.02; echo {}", "--resume needs the same list"),
        (range.as_str(), "true", "--resume needs the same one: sleep 0.02; echo {}"),
    ] {
        let other = ["--array", array, "--output", "all", "--resume", "--", command];
        let (_, err) = run(cluster, 1, &other);
        assert!(err.contains(expected), "{err}");
    }
}

/// Of three results one was taken, and the job tracker that keeps the others cannot be reached any more.
fn results_that_are_lost_are_made_again_on_demand(cluster: &MiniCluster) {
    let arguments = ["--array", "1-3", "--output", "lost", "--", "echo {}"];
    run(cluster, 0, &arguments);
    let table = cluster.path("lost/results.jsonl");
    let text = fs::read_to_string(&table).unwrap();
    cluster.write("lost/results.jsonl", text.lines().next().unwrap().to_owned() + "\n");
    let state = cluster.path("lost/.corona-run/state.json");
    let mut noted: Value = serde_json::from_str(&fs::read_to_string(&state).unwrap()).unwrap();
    noted["rounds"][0]["job"] = "job_201201010000_0001".into();
    let output =
        cluster.path("lost/.corona-run").join(noted["rounds"][0]["output"].as_str().unwrap());
    let mut note_kept = |kept: &str| {
        noted["rounds"][0]["kept"] = kept.into();
        fs::write(&state, noted.to_string()).unwrap();
    };
    let is_noted = |kept: &str| fs::read_to_string(&state).unwrap().contains(&format!("{kept:?}"));
    results_that_may_be_there_are_not_given_up(
        cluster,
        &arguments,
        &output,
        &mut note_kept,
        &is_noted,
    );
    note_kept(&format!("corona://{}/job_201201010000_0001/output", free_address()));
    let resumed = [&["--resume", "--timeout", "1"], &arguments[..]].concat();
    let (_, err) = run(cluster, 1, &resumed);
    assert!(err.contains("--resume --rerun-lost runs those commands again"), "{err}");
    let again = [&["--rerun-lost"], &resumed[..]].concat();
    let (_, err) = run(cluster, 0, &again);
    assert!(err.contains("job_201201010000_0001: runs its commands without a result"), "{err}");
    assert_eq!(results(&cluster.path("lost")).len(), 3);
    // Results that were given up are not fetched again.
    run(cluster, 0, &resumed);
    let (_, err) = run(cluster, 2, &["--rerun-lost", "--array", "1-3", "--", "true"]);
    assert!(err.contains("--resume"), "{err}");
}

/// Neither Ctrl-C nor a fault of this machine says that the keeper of results has gone.
fn results_that_may_be_there_are_not_given_up(
    cluster: &MiniCluster,
    arguments: &[&str],
    output: &Path,
    note_kept: &mut dyn FnMut(&str),
    is_noted: &dyn Fn(&str) -> bool,
) {
    let again = [&["--resume", "--rerun-lost"], arguments].concat();
    // It does not answer.
    let keeper = TcpListener::bind("127.0.0.1:0").unwrap();
    let kept = format!("corona://{}/job_201201010000_0001/output", keeper.local_addr().unwrap());
    note_kept(&kept);
    let mut command = interruptible(&command(cluster, &again));
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let _asked = keeper.accept().unwrap();
    // The first one ends the job, the second one the wait for the keeper.
    until("the end", || {
        signal("INT", child.id());
        child.try_wait().unwrap()
    });
    let (_, err) = ended(1, &again, &child.wait_with_output().unwrap());
    assert!(err.contains("stopped"), "{err}");
    assert!(is_noted(&kept), "{err}");
    // What it has cannot be written here.
    fs::create_dir(cluster.path("kept")).unwrap();
    cluster.write("kept/part-00000", "");
    let kept = format!("file:{}", cluster.path("kept").display());
    note_kept(&kept);
    symlink("/nonexistent/place", output).unwrap();
    let (_, err) = run(cluster, 1, &again);
    assert!(err.contains("has results that its job tracker keeps; --resume takes them"), "{err}");
    assert!(is_noted(&kept), "{err}");
    assert_eq!(results(&cluster.path("lost")).len(), 1);
    fs::remove_file(output).unwrap();
}

/// The client is killed when it has noted its job, whether or not that is submitted then.
fn a_job_is_noted_before_it_is_submitted(cluster: &MiniCluster) {
    let ran = cluster.path("ran");
    let line = format!("echo {{}} >>{}", ran.display());
    let arguments = ["--array", "1-20", "--output", "noted", "--", &line];
    let state = cluster.path("noted/.corona-run/state.json");
    let mut child = command(cluster, &arguments).stderr(Stdio::null()).spawn().unwrap();
    while !fs::read_to_string(&state).is_ok_and(|text| text.contains("\"job_")) {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
    }
    signal("KILL", child.id());
    child.wait().unwrap();
    run(cluster, 0, &[&["--resume"], &arguments[..]].concat());
    assert_eq!(results(&cluster.path("noted")).len(), 20);
    let mut numbers: Vec<u64> =
        fs::read_to_string(&ran).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
}

#[test]
fn lists_of_commands_run_on_the_nodes() {
    let cluster = MiniCluster::start(&[]);
    lists_of_all_kinds_are_run(&cluster);
    failures_fail_nothing_else(&cluster);
    wrong_lines_run_nothing(&cluster);
    a_job_is_noted_before_it_is_submitted(&cluster);
    results_that_are_lost_are_made_again_on_demand(&cluster);
    an_interrupt_ends_all_commands(&cluster);
}

#[test]
fn a_list_is_finished_after_the_end_of_its_client_a_node_and_the_services() {
    let cluster = MiniCluster::start(&[]);
    each_command_has_one_result_after_any_end(&cluster);
}
