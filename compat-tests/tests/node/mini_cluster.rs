//! The built program as a whole cluster on this machine, and jobs on it: what a newcomer does first, what
//! jobs can be, and what happens to them when parts of the cluster end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use compat_tests::daemons::{first_line, start_daemon, tell_end};
use compat_tests::serving::{fetch, keep_address, status};
use compat_tests::task_tracker::node::{interruptible, signal};
pub(super) use compat_tests::until;
use compat_tests::{corona_program, repository};
use tempfile::TempDir;

/// A cluster that runs, and a directory for jobs.
pub(super) struct MiniCluster {
    child: Child,
    pub(super) root: TempDir,
    pub(super) ready: String,
}

impl MiniCluster {
    pub(super) fn start(settings: &[&str]) -> MiniCluster {
        MiniCluster::start_in(tempfile::tempdir().expect("a directory"), settings)
    }

    /// Starts a cluster in a directory that may have one already.
    fn start_in(root: TempDir, settings: &[&str]) -> MiniCluster {
        MiniCluster::start_by(corona(), root, settings)
    }

    /// Starts a cluster with a command that ends in the program.
    pub(super) fn start_by(command: Command, root: TempDir, settings: &[&str]) -> MiniCluster {
        let settings: Vec<_> = settings.iter().flat_map(|setting| ["-D", setting]).collect();
        MiniCluster::start_with(command, root, &settings)
    }

    /// The same with these options.
    pub(super) fn start_with(mut command: Command, root: TempDir, options: &[&str]) -> MiniCluster {
        command.args(["mini-cluster", "--nodes", "2", "--free-ports", "--dir", "cluster"]);
        command.args(options).current_dir(root.path());
        let mut child = start_daemon(command, [], &root.path().join("news"));
        let ready = first_line(&mut child);
        let cluster = MiniCluster { child, root, ready };
        assert!(cluster.ready.contains(" ready: pages http"), "{}", cluster.news());
        cluster
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn news(&self) -> String {
        fs::read_to_string(self.path("news")).unwrap_or_default()
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A job with these arguments, which runs in the directory.
    pub(super) fn job(&self, arguments: &[&str]) -> Command {
        let mut command = corona();
        command.args(["job", "run", "--conf-dir", "cluster/conf"]).args(arguments);
        command.current_dir(self.root.path());
        command
    }

    /// Runs a job that succeeds.
    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        let output = self.job(arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }

    /// Runs a job that does not; returns what it says.
    pub(super) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.job(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    }

    /// The same for a client that sees the files that a cluster with mounts of its own sees.
    pub(super) fn fails_inside(&self, arguments: &[&str]) -> String {
        let inside = self.child.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--user", "--mount", "--preserve-credentials", "--target", &inside]);
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.root.path());
        command.arg(corona_program()).args(["job", "run", "--conf-dir", "cluster/conf"]);
        let output = command.args(arguments).env_remove("HADOOP_CONF_DIR").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        stderr(&output)
    }

    /// All lines of an output, sorted.
    pub(super) fn lines(&self, output: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for entry in fs::read_dir(self.path(output)).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("part-") {
                lines.extend(fs::read_to_string(path).unwrap().lines().map(str::to_owned));
            }
        }
        lines.sort();
        lines
    }

    /// The same without blanks at the ends, such as the separator behind a key without a value.
    pub(super) fn trimmed(&self, output: &str) -> Vec<String> {
        self.lines(output).iter().map(|line| line.trim_end().to_owned()).collect()
    }

    /// The number of the process of a daemon.
    pub(super) fn pid(&self, daemon: &str) -> u32 {
        let file = self.path("cluster/run").join(format!("{daemon}.pid"));
        let read = || fs::read_to_string(&file).ok()?.trim().parse().ok();
        until(&format!("the process of {daemon}"), read)
    }

    /// Ends a daemon at once, and waits until it has been started again.
    pub(super) fn crash(&self, daemon: &str) {
        let before = self.pid(daemon);
        signal("KILL", before);
        until("another process", || (self.pid(daemon) != before).then_some(()));
    }

    /// Runs a tool.
    pub(super) fn output(&self, arguments: &[&str]) -> Output {
        let mut command = corona();
        command.args(arguments).args(["--conf-dir", "cluster/conf"]);
        command.current_dir(self.root.path()).output().unwrap()
    }

    /// Runs a tool, which succeeds; returns what it prints.
    pub(super) fn tool(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a tool prints as JSON, if it succeeds: a daemon may not answer at the moment.
    pub(super) fn json(&self, arguments: &[&str]) -> Option<serde_json::Value> {
        let output = self.output(&[arguments, &["--output", "json"]].concat());
        output.status.success().then(|| serde_json::from_slice(&output.stdout).ok())?
    }

    /// Saves the state of the cluster manager as an operator does before another one takes over.
    fn save_state(&self) {
        self.tool(&["admin", "set-safe-mode"]);
        self.tool(&["admin", "persist-state"]);
        assert!(self.path("cluster/cluster-manager/cm.state").exists());
    }

    /// Stops the cluster as Ctrl-C does.
    pub(super) fn stop(mut self) -> TempDir {
        signal("INT", self.child.id());
        let child = &mut self.child;
        let status = until("the end of the cluster", || child.try_wait().ok().flatten());
        assert!(status.success(), "{status}");
        // It may be started again, with the same ports.
        let ports = fs::read(self.path("cluster/ports.json")).unwrap();
        let ports: BTreeMap<String, u16> = serde_json::from_slice(&ports).unwrap();
        for port in ports.into_values() {
            (1..=2).for_each(|host| keep_address(([127, 0, 0, host], port).into()));
        }
        // Only the directory is used from here on.
        std::mem::replace(&mut self.root, tempfile::tempdir().unwrap())
    }
}

impl Drop for MiniCluster {
    fn drop(&mut self) {
        // The daemons end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            tell_end("the news of the cluster", &self.news(), usize::MAX);
            for entry in fs::read_dir(self.path("cluster/logs")).into_iter().flatten().flatten() {
                let log = fs::read_to_string(entry.path()).unwrap_or_default();
                tell_end(&entry.path().display().to_string(), &log, 25);
            }
        }
    }
}

pub(super) fn corona() -> Command {
    let mut command = Command::new(corona_program());
    command.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
    command
}

pub(super) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a command of the shell prints, in sorted lines.
pub(super) fn shell(directory: &Path, command: &str) -> Vec<String> {
    let output = Command::new("sh").args(["-c", command]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{command}");
    let mut lines: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Text with many words, some of them often.
pub(super) fn text() -> String {
    (0..2_000).map(|n| format!("line {n} of {} words\n", n % 7)).collect()
}

#[test]
fn the_tour_of_the_readme_runs_a_job() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## A first job\n").expect("a section of the README");
    let section = section.split("\n## ").next().unwrap();
    let commands: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let (cluster, jobs): (Vec<&str>, Vec<&str>) = commands
        .into_iter()
        .partition(|line| line.starts_with("target/release/corona mini-cluster"));
    let [cluster] = cluster[..] else { panic!("{cluster:?}") };
    assert_eq!(cluster, "target/release/corona mini-cluster --nodes 2 --dir cluster");
    let jobs = jobs.join("\n");
    assert!(jobs.matches("corona job run").count() >= 2, "{jobs}");
    let cluster = MiniCluster::start(&[]);
    let log = |name: &str| fs::read_to_string(cluster.path("cluster/logs").join(name)).unwrap();
    // Whatever the operator should know of would be a warning.
    until("the proxy job tracker has the flag of safe mode", || {
        log("cluster-manager.log")
            .contains("Flag successfully set in ProxyJobTracker")
            .then_some(())
    });
    for name in ["cluster-manager.log", "proxy-job-tracker.log", "job-tracker.log"] {
        until("the budget of a daemon", || {
            log(name).contains("this process may use ").then_some(())
        });
        let log = log(name);
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{name}: {log}");
    }
    fs::copy(repository().join("README.md"), cluster.path("README.md")).unwrap();
    let program = corona_program().display();
    let script = jobs.replace(
        "alias corona=target/release/corona",
        &format!("corona() {{ {program} \"$@\"; }}"),
    );
    let mut tour = Command::new("sh");
    let output = tour.args(["-ec", &script]).current_dir(cluster.root.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{printed}", stderr(&output));
    let words = readme.split_whitespace().filter(|word| *word == "corona").count();
    assert!(cluster.lines("words").contains(&format!("corona\t{words}")), "{printed}");
    assert!(printed.contains("SUCCEEDED"), "{printed}");
    cluster.stop();
}

#[test]
fn a_job_of_programs_is_what_the_shell_makes_of_it() {
    let cluster = MiniCluster::start(&[]);
    fs::create_dir(cluster.path("in")).unwrap();
    cluster.write("in/a.txt", text());
    cluster.write("in/b.txt", text().replace("line", "row"));
    cluster.write("in/_left_out", "never\n");
    cluster.write("c.txt", text().replace("line", "column"));
    shell(cluster.root.path(), "gzip c.txt");
    // The text in capital letters, in two streams.
    fs::copy(repository().join("src/task/golden/text.bz2"), cluster.path("d.bz2")).unwrap();
    cluster.write("capitals", text().to_uppercase());
    let output = cluster.run(&[
        "--input",
        "in",
        "c.*",
        "d.bz2",
        "--output",
        "out",
        "--reduces",
        "3",
        "--split-size",
        "16k",
        "--mapper",
        "tr -s ' ' '\\n'",
        "--reducer",
        "uniq -c",
        "--compress-map-output",
        "--json",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["state"].as_str(), json["reduces"].as_u64()), (Some("SUCCEEDED"), Some(3)));
    assert!(json["maps"].as_u64().unwrap() > 5, "{json}");
    let expected =
        "(cat in/a.txt in/b.txt capitals; zcat c.txt.gz) | tr -s ' ' '\\n' | sort | uniq -c";
    // Behind a key without a value stands the separator, as in the original.
    let found = cluster.trimmed("out");
    assert_eq!(found, shell(cluster.root.path(), expected));
    let counter = |name: &str| {
        let all = json["counters"].as_array().unwrap();
        let found = all.iter().find(|counter| counter["name"] == name);
        found.and_then(|counter| counter["value"].as_i64()).unwrap_or_else(|| panic!("{name}"))
    };
    let times = |line: &String| line.split_whitespace().next().unwrap().parse::<i64>().unwrap();
    let (words, different) = (found.iter().map(times).sum::<i64>(), found.len() as i64);
    let inputs = [text(), text().replace("line", "row"), text().replace("line", "column"), text()];
    for (name, expected) in [
        ("MAP_INPUT_RECORDS", 8_000),
        ("MAP_INPUT_BYTES", inputs.concat().len() as i64),
        ("MAP_OUTPUT_RECORDS", words),
        ("REDUCE_INPUT_RECORDS", words),
        ("REDUCE_INPUT_GROUPS", different),
        ("REDUCE_OUTPUT_RECORDS", different),
    ] {
        assert_eq!(counter(name), expected, "{name}");
    }
    assert!(counter("SPILLED_RECORDS") >= words);

    // A script that is shipped, a variable, a counter of its own, parts of the key, compressed output.
    cluster.write(
        "map.sh",
        "sed \"s/$/ $SUFFIX/\"; echo reporter:counter:mine,runs,1 >&2; echo reporter:status:fine >&2",
    );
    let output = cluster.run(&[
        "--input",
        "in/a.txt",
        "--output",
        "out2",
        "--file",
        "map.sh",
        "--env",
        "SUFFIX=a, 'b'",
        "--mapper",
        "sh map.sh",
        "--separator",
        " ",
        "--key-fields",
        "3",
        "--partition-by",
        "3,3",
        "--reduces",
        "2",
        "--compress-output",
        "--name",
        "a name",
    ]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("mine  ") && printed.contains("MAP_INPUT_RECORDS"), "{printed}");
    let said = stderr(&output);
    assert!(
        said.contains("1 map, 2 reduces; page http://") && said.contains("succeeded"),
        "{said}"
    );
    let found = shell(cluster.root.path(), "zcat out2/part-*.gz");
    assert_eq!(found, shell(cluster.root.path(), "sed \"s/$/ a, 'b'/\" in/a.txt"));

    // Nothing is written for a try.
    let planned =
        cluster.run(&["--input", "in", "--output", "new", "--mapper", "cat", "--dry-run"]);
    let printed = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(printed.contains("2 files") && printed.contains("2 maps, 1 reduce;"), "{printed}");
    assert!(!cluster.path("new").exists());
    cluster.stop();
}

/// The value of a key in the configuration of the cluster.
pub(super) fn configured(cluster: &MiniCluster, key: &str) -> String {
    let xml = fs::read_to_string(cluster.path("cluster/conf/core-site.xml")).unwrap();
    let rest = xml.split_once(&format!("<name>{key}</name><value>")).unwrap().1;
    rest.split_once("</value>").unwrap().0.to_owned()
}

#[test]
fn finished_jobs_are_found_from_the_one_url_and_safe_mode_can_be_set() {
    let cluster = MiniCluster::start(&[]);
    cluster.write("in", "a\nb\n");
    let tool = |arguments: &[&str]| cluster.tool(arguments);
    // Relative paths start at the working directory, also those above it.
    fs::create_dir(cluster.path("below")).unwrap();
    let mut job = corona();
    job.args(["job", "run", "--conf-dir", "../cluster/conf", "--input", "../in"]);
    job.args(["--output", "../out", "--mapper", "cat", "--name", "a name"]);
    let output = job.current_dir(cluster.path("below")).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("map 100 % reduce 100 %\n"), "{said}");
    let found = until("the finished job", || {
        let jobs = cluster.json(&["jobs", "list", "--finished", "--name", "A NAME"])?;
        jobs.get(0).filter(|job| job["state"] == "succeeded").cloned()
    });
    let id = found["id"].as_str().unwrap();
    assert_eq!(found["history"]["maps"], 1, "{found}");
    assert!(tool(&["jobs", "history", id]).contains("JOB_STATUS=\"SUCCESS\""));
    assert!(tool(&["jobs", "list", "--all"]).contains("100 %  a name"));
    let said = stderr(&cluster.output(&["jobs", "explain", id]));
    assert!(said.starts_with(&format!("corona: {id} has ended: SUCCEEDED;")), "{said}");
    let status = tool(&["status"]);
    assert!(status.contains("has the flag off"), "it was started before: {status}");
    let proxy = configured(&cluster, "corona.proxy.job.tracker.rpcaddr");
    let refused = corona().args(["jobs", "list", "--job-tracker", &proxy]).output().unwrap();
    let said = stderr(&refused);
    assert!(said.contains("perhaps a proxy job tracker: name the port of corona.jt.a"), "{said}");
    // The pages of the cluster manager, to which the one URL leads, link to those of finished jobs.
    let pages = format!("http://{}/", configured(&cluster, "mapred.job.tracker.corona.proxyaddr"));
    let url = cluster.ready.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let page = |url: &str| shell(cluster.root.path(), &format!("curl -sf '{url}'")).join("\n");
    assert!(page(url).contains(&format!("href=\"{pages}\"")), "{url} does not link to {pages}");
    assert!(page(&pages).contains(id), "{pages} does not list {id}");
    // The page of an attempt leads to its logs, which the node serves.
    let attempt = format!("{}_m_000000_0", id.replace("job_", "attempt_"));
    let tracker = configured(&cluster, "mapred.job.tracker.http.address");
    let shown = page(&format!("http://{tracker}/jobs/{id}/attempts/{attempt}"));
    let link = shown.split('"').find(|part| part.contains("/tasklog?")).expect(&shown);
    assert!(page(&link.replace("&amp;", "&")).contains(&attempt), "{link}");
    // A job that is started in safe mode waits, and continues after it.
    tool(&["admin", "set-safe-mode"]);
    let mut job = cluster.job(&["--input", "in", "--output", "later", "--mapper", "cat"]);
    let mut job = job.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let metric = format!("{pages}metrics");
    until("safe mode", || page(&metric).contains("tracker_safe_mode 1\n").then_some(()));
    assert!(!cluster.path("later/_SUCCESS").exists());
    tool(&["admin", "unset-safe-mode"]);
    until("the end of the job", || job.try_wait().unwrap()).success().then_some(()).unwrap();
    assert!(!cluster.lines("later").is_empty());
    cluster.stop();
}

#[test]
fn a_job_that_fails_says_why() {
    let cluster = MiniCluster::start(&["mapred.map.max.attempts=2"]);
    cluster.write("in", "a\nb\n");
    let broken = "cat >/dev/null; echo it is broken >&2; exit 3";
    let map = ["--input", "in", "--reduces", "0", "--mapper", broken, "--output", "out1"];
    let said = cluster.fails(&map);
    for expected in [
        "m_000000 failed 2 times; the last time:",
        "subprocess failed with code 3",
        "it is broken",
        "/tasklog?taskid=attempt_",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // One that writes without end, in lines and in one line.
    for (mapper, limit, expected) in [
        ("yes", "corona.task.max.output.bytes=1000000", "yes has written more than 1000000 bytes"),
        (
            "yes | tr -d '\\n'",
            "corona.task.max.record.bytes=100000",
            "a line has more than 100000 bytes",
        ),
    ] {
        let output = format!("out-{}", mapper.len());
        let said = cluster.fails(&[
            "--input",
            "in",
            "--output",
            &output,
            "--mapper",
            mapper,
            "-D",
            limit,
            "-D",
            "mapred.map.max.attempts=1",
        ]);
        assert!(said.contains(expected), "{said}");
    }
    // A line of the input that is too large can be left out.
    cluster.write("in", format!("a\n{}\nb\n", "x".repeat(5_000)));
    let bad = ["--input", "in", "--mapper", "cat", "-D", "corona.task.max.record.bytes=2000"];
    let output = cluster.run(&[&bad[..], &["--output", "out2", "--skip-bad-records"]].concat());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("MAP_SKIPPED_RECORDS"), "{printed}");
    assert_eq!(cluster.lines("out2"), ["a\t", "b\t"]);
    cluster.stop();
}

/// A program that ends with the status 3 at a line that begins with `bad`, and else passes on its lines.
const BREAKS: &str = "while read line; do case $line in bad*) exit 3;; esac; echo \"$line\"; done";

#[test]
fn records_on_which_a_program_fails_are_skipped() {
    let cluster = MiniCluster::start(&[]);
    let lines = |count: usize, bad: &[usize]| -> String {
        let line = |n| format!("{} {n:03}\n", if bad.contains(&n) { "bad" } else { "good" });
        (0..count).map(line).collect()
    };
    cluster.write("in", lines(60, &[20, 41]));
    let run = |output: &str, mapper: &str, reducer: &str, settings: &[&str]| {
        let steps = ["--input", "in", "--mapper", mapper, "--reducer", reducer];
        let arguments = [&steps[..], &["--json", "--output", output], settings].concat();
        let output = cluster.run(&arguments);
        let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let counters = job["counters"].as_array().unwrap().clone();
        move |name: &str| {
            let found = counters.iter().find(|counter| counter["name"] == name);
            found.and_then(|counter| counter["value"].as_i64()).unwrap_or(0)
        }
    };
    let good = || shell(cluster.root.path(), "grep -v bad in");
    let skipped = |directory: &str| {
        let files = fs::read_dir(cluster.path(directory)).into_iter().flatten().flatten();
        let files = files.filter(|file| file.file_name().to_string_lossy().starts_with("attempt_"));
        files.map(|file| fs::read(file.path()).unwrap()).collect::<Vec<_>>()
    };
    // The mapper does not report what it has processed: the bad records are found by halves.
    let of_maps = ["--max-skipped-records", "1", "-D", "mapred.map.max.attempts=40"];
    let counter = run("out1", BREAKS, "cat", &of_maps);
    assert_eq!(cluster.trimmed("out1"), good());
    assert_eq!(["MAP_INPUT_RECORDS", "MAP_SKIPPED_RECORDS"].map(counter), [58, 2]);
    let files = skipped("out1/_logs/skip");
    assert!(!files.is_empty() && files.iter().all(|file| file.starts_with(b"SEQ\x06")));
    // One that reports it, with a directory for the records.
    let reports = BREAKS.replace(
        "; done",
        "; echo reporter:counter:SkippingTaskCounters,MapProcessedRecords,1 >&2; done",
    );
    let directory = format!("mapred.skip.out.dir=file:{}", cluster.path("bad").display());
    let counter = run("out2", &reports, "cat", &[&of_maps[..], &["-D", &directory]].concat());
    assert_eq!(cluster.trimmed("out2"), good());
    assert_eq!(["MapProcessedRecords", "MAP_SKIPPED_RECORDS"].map(counter), [58, 2]);
    assert!(!skipped("bad").is_empty() && skipped("out2/_logs/skip").is_empty());
    // The groups of a reduce, and none of them is written.
    let of_reduces = ["--max-skipped-groups", "1", "-D", "mapred.reduce.max.attempts=40"];
    let nowhere = ["-D", "mapred.skip.out.dir=none"];
    let counter = run("out3", "cat", BREAKS, &[&of_reduces[..], &nowhere].concat());
    assert_eq!(cluster.trimmed("out3"), good());
    let groups = ["REDUCE_INPUT_GROUPS", "REDUCE_SKIPPED_GROUPS", "REDUCE_SKIPPED_RECORDS"];
    assert_eq!(groups.map(counter), [58, 2, 2]);
    assert!(skipped("out3/_logs/skip").is_empty());
    cluster.stop();
}

/// A mapper that leaves the number of its process and waits for a file.
const WAITS: &str =
    "echo $$ >\"$NOTES/started.$$\"; while [ ! -e \"$NOTES/go\" ]; do sleep 0.05; done; cat";

/// A job whose maps wait, while something happens to the cluster.
fn survives(settings: &[&str], happens: impl Fn(&MiniCluster, u32)) {
    let cluster = MiniCluster::start(settings);
    fs::create_dir(cluster.path("notes")).unwrap();
    for name in ["a", "b", "c"] {
        cluster.write(name, text());
    }
    let notes = format!("NOTES={}", cluster.path("notes").display());
    let mut job = cluster
        .job(&["--input", "a", "b", "c", "--output", "out", "--env", &notes, "--mapper", WAITS])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = || {
        let entries = fs::read_dir(cluster.path("notes")).unwrap();
        let found = entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>();
        let of_first = || fs::read_to_string(&found[0]).ok()?.trim().parse().ok();
        if found.len() == 3 { of_first() } else { None }
    };
    let mapper = until("all maps", started);
    happens(&cluster, mapper);
    cluster.write("notes/go", "");
    let status = until("the end of the job", || job.try_wait().ok().flatten());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut job.stderr.take().unwrap(), &mut said).unwrap();
    assert!(status.success(), "{said}");
    assert_eq!(cluster.trimmed("out"), shell(cluster.root.path(), "cat a b c"));
    cluster.stop();
}

#[test]
fn a_job_survives_a_task_that_is_killed() {
    survives(&[], |_, mapper| signal("KILL", mapper));
}

#[test]
fn a_job_survives_a_node_that_is_killed() {
    survives(&["cm.node.expiryinterval=3000"], |cluster, _| cluster.crash("node-1"));
}

#[test]
fn a_job_survives_a_job_tracker_that_is_killed() {
    survives(&[], |cluster, _| cluster.crash("job-tracker"));
}

#[test]
fn a_job_survives_a_cluster_manager_that_is_killed() {
    survives(&[], |cluster, _| cluster.crash("cluster-manager"));
}

/// A state file of `corona admin persist-state` keeps no cluster manager from going on.
#[test]
fn a_job_survives_a_cluster_manager_that_is_killed_when_its_state_was_saved() {
    survives(&[], |cluster, _| {
        cluster.save_state();
        cluster.crash("cluster-manager");
        let outdated = cluster.path("cluster/cluster-manager/cm.state.outdated");
        until("a file that is set aside", || outdated.exists().then_some(()));
    });
}

#[test]
fn a_cluster_that_was_stopped_goes_on() {
    let cluster = MiniCluster::start(&[]);
    cluster.write("in", "a\nb\n");
    let arguments = ["--input", "in", "--output", "out", "--mapper", "builtin:wc"];
    cluster.run(&arguments);
    let ready = cluster.ready.clone();
    // A second cluster in the same directory is refused.
    let mut second = corona();
    second.args(["mini-cluster", "--dir", "cluster"]).current_dir(cluster.root.path());
    let refused = second.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("another mini-cluster uses cluster"), "{}", stderr(&refused));
    // The state file of an operator does not keep the next one from going on.
    cluster.save_state();
    let root = cluster.stop();
    assert_eq!(fs::read_dir(root.path().join("cluster/run")).unwrap().count(), 0);
    let cluster = MiniCluster::start_in(root, &[]);
    assert_eq!(cluster.ready, ready);
    cluster.run(&["--input", "in", "--output", "out2", "--mapper", "builtin:wc"]);
    assert_eq!(cluster.lines("out2"), cluster.lines("out"));
    cluster.stop();
}

/// A signal kills the job, or comes before it is submitted, whenever it comes.
#[test]
fn a_client_that_is_stopped_leaves_no_job() {
    let cluster = MiniCluster::start(&[]);
    cluster.write("in", "a\nb\n");
    let running = || cluster.json(&["jobs", "list"]).expect("a list").as_array().unwrap().len();
    let mut killed = 0;
    // On a busy machine it takes longer until a job is submitted.
    for run in 0_u64.. {
        if run >= 16 && killed > 0 {
            break;
        }
        assert!(run < 500, "no job was submitted before its client was stopped");
        let out = format!("out{run}");
        let arguments = ["--input", "in", "--output", &out, "--mapper", "sleep 600"];
        let mut job = interruptible(&cluster.job(&arguments));
        let job = job.stderr(Stdio::piped()).spawn().unwrap();
        // What starts the program may ignore the signal.
        let exe = format!("/proc/{}/exe", job.id());
        let is_program = || fs::read_link(&exe).ok().filter(|exe| exe.ends_with("corona"));
        until("the program", is_program);
        // Before, during or after the submission: no job may be left in any case.
        std::thread::sleep(Duration::from_millis(run * 6));
        signal("INT", job.id());
        let output = job.wait_with_output().unwrap();
        assert!(!output.status.success(), "{}", stderr(&output));
        assert_eq!(running(), 0, "after {} ms: {}", run * 6, stderr(&output));
        if stderr(&output).contains(" killed after ") {
            assert_eq!(output.status.code(), Some(1));
            killed += 1;
        }
    }
    // The client waits for a reply that never comes: the first signal ends it.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let arguments = ["--input", "in", "--output", "none", "--mapper", "cat"];
    let mut job = cluster.job(&arguments);
    job.args(["--job-tracker", &address]);
    let job = interruptible(&job).stderr(Stdio::piped()).spawn().unwrap();
    let _connection = silent.accept().unwrap();
    signal("INT", job.id());
    let output = job.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("stopped before the job was submitted"), "{output:?}");
    cluster.stop();
}

#[test]
fn daemons_end_with_the_cluster_that_was_killed() {
    let mut cluster = MiniCluster::start(&[]);
    let names = ["cluster-manager", "job-tracker", "proxy-job-tracker", "node-1", "node-2"];
    let pids = names.map(|name| cluster.pid(name));
    cluster.child.kill().unwrap();
    cluster.child.wait().unwrap();
    for pid in pids {
        let gone = || (!compat_tests::task_tracker::node::runs(pid as i32)).then_some(());
        until("the end of a daemon", gone);
    }
    // The directory can be used again at once.
    let root = std::mem::replace(&mut cluster.root, tempfile::tempdir().unwrap());
    MiniCluster::start_in(root, &[]).stop();
}

/// A configuration that counts the words of a file, as a client has written it.
fn word_count(cluster: &MiniCluster, name: &str, changes: &[(&str, &str)]) {
    let mut properties = BTreeMap::from([
        ("corona.task.native", "true".to_owned()),
        ("corona.task.mapper", "wc".to_owned()),
        ("corona.task.reducer", "wc".to_owned()),
        ("mapred.input.format.class", "org.apache.hadoop.mapred.TextInputFormat".to_owned()),
        ("mapred.output.format.class", "org.apache.hadoop.mapred.TextOutputFormat".to_owned()),
        ("mapred.output.key.class", "org.apache.hadoop.io.Text".to_owned()),
        ("mapred.output.value.class", "org.apache.hadoop.io.Text".to_owned()),
        ("mapred.job.name", "words".to_owned()),
        ("mapred.input.dir", format!("file:{}", cluster.path("in.txt").display())),
        ("mapred.output.dir", format!("file:{}", cluster.path(name).display())),
    ]);
    properties.extend(changes.iter().map(|(key, value)| (*key, (*value).to_owned())));
    let properties: String = properties
        .iter()
        .map(|(key, value)| {
            format!("<property><name>{key}</name><value>{value}</value></property>")
        })
        .collect();
    let xml = format!("<configuration>{properties}</configuration>");
    cluster.write(&format!("{name}.xml"), xml);
}

#[test]
fn a_job_whose_files_are_ready_is_submitted_and_followed() {
    let cluster = MiniCluster::start(&[]);
    cluster.write("in.txt", text());
    let count = "tr -s ' ' '\\n' < in.txt | sort | uniq -c | awk '{print $2 \"\\t\" $1}'";
    let expected = shell(cluster.root.path(), count);
    let submit = |arguments: &[&str]| cluster.output(&[&["job", "submit"], arguments].concat());
    word_count(&cluster, "words", &[]);
    let output = submit(&["words.xml", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let end: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&end["state"], &end["maps"]), (&"SUCCEEDED".into(), &1.into()), "{end}");
    assert_eq!(cluster.lines("words"), expected);
    // The output is not overwritten.
    let output = submit(&["words.xml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("already exists"), "{}", stderr(&output));

    // Without waiting, and its jar goes with it.
    let jar = cluster.path("job.jar").display().to_string();
    // An archive without entries.
    cluster.write("job.jar", [b"PK\x05\x06".as_slice(), &[0; 18]].concat());
    word_count(&cluster, "later", &[("mapred.jar", &jar)]);
    let output = submit(&["later.xml", "--no-wait", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let submitted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = submitted["job"].as_str().unwrap();
    assert!(id.starts_with("job_") && submitted["page"].as_str().unwrap().starts_with("http://"));
    until("the output", || cluster.path("later/_SUCCESS").exists().then_some(()));
    assert_eq!(cluster.lines("later"), expected);

    // By a job tracker in this process, which leaves nothing behind.
    word_count(&cluster, "own", &[]);
    let output = submit(&["own.xml", "--in-process"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(cluster.lines("own"), expected);
    until("the end of its session", || {
        let sessions = cluster.json(&["sessions", "list"])?;
        sessions["sessions"].as_array().is_some_and(Vec::is_empty).then_some(())
    });

    // A job that fails, malformed splits, and splits that cannot be made.
    word_count(&cluster, "failing", &[("corona.task.mapper", "sh exit 3")]);
    let output = submit(&["failing.xml", "-D", "mapred.map.max.attempts=1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(" failed"), "{}", stderr(&output));
    word_count(&cluster, "java", &[("mapred.input.format.class", "org.example.Input")]);
    let output = submit(&["java.xml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot be made without Java"), "{}", stderr(&output));
    let output = submit(&["java.xml", "--splits", "in.txt"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the splits in in.txt"), "{}", stderr(&output));
    let output = submit(&["nothing.xml"]);
    assert!(stderr(&output).contains("there is no such file"), "{}", stderr(&output));
    drop(cluster.stop());
}

/// The number of the process that runs a job on a node of this cluster: jobs of other clusters may have
/// the same id.
fn remote_job_tracker(cluster: &MiniCluster, job: &str, but: Option<u32>) -> Option<u32> {
    let root = fs::canonicalize(cluster.root.path()).unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let directory = fs::read_link(format!("/proc/{pid}/cwd"));
        if !directory.is_ok_and(|directory| directory.starts_with(&root)) {
            return false;
        }
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = command.split('\0');
        words.any(|word| word == "--remote") && words.any(|word| word == job) && Some(*pid) != but
    })
}

/// A job of four maps with further arguments. Two maps wait for the file `go`, and each adds a line to `runs`.
fn half_done(cluster: &MiniCluster, more: &[&str]) -> (Child, String) {
    for (name, text) in [("a", "done a"), ("b", "done b"), ("c", "wait c"), ("d", "wait d")] {
        cluster.write(&format!("{name}.txt"), format!("{text}\n"));
    }
    let (runs, go) = (cluster.path("runs"), cluster.path("go"));
    let mapper = format!(
        "read line; echo \"$line\" >> {}; case $line in wait*) \
         while [ ! -e {} ]; do sleep 0.05; done;; esac; echo \"$line\"",
        runs.display(),
        go.display()
    );
    let mut arguments = vec!["--input", "a.txt", "b.txt", "c.txt", "d.txt", "--output", "out"];
    arguments.extend(["--mapper", &mapper, "--json"]);
    arguments.extend(more);
    arguments.extend(["-D", "mapred.coronajobtracker.forceremote=true"]);
    arguments.extend(["-D", "mapred.map.tasks.speculative.execution=false"]);
    let mut command = cluster.job(&arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // All four have run so far as they can, and the ends of two are known.
    let lines = |lines: usize| {
        let text = fs::read_to_string(&runs).unwrap_or_default();
        (text.lines().count() >= lines).then_some(())
    };
    until("the maps", || lines(4));
    let job = until("half of the job", || {
        let jobs = cluster.json(&["jobs", "list"])?;
        let half = jobs[0]["map_progress"].as_f64()? >= 0.5;
        half.then(|| jobs[0]["id"].as_str().map(str::to_owned))?
    });
    (child, job)
}

/// The end of a job as it was printed.
fn end(child: Child) -> serde_json::Value {
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
}

/// How often the maps ran that were done, and those that waited.
fn runs(cluster: &MiniCluster) -> (usize, usize) {
    let text = fs::read_to_string(cluster.path("runs")).unwrap();
    (text.matches("done").count(), text.matches("wait").count())
}

#[test]
fn a_reduce_that_waits_for_maps_follows_its_job_to_the_next_job_tracker() {
    let cluster = MiniCluster::start(&[]);
    let mut more = vec!["--reducer", "cat", "-D", "mapred.coronajobtracker.restart.count=2"];
    more.extend(["-D", "mapred.reduce.slowstart.completed.maps=0"]);
    more.extend(["-D", "mapred.job.rushreduce.map.threshold=0"]);
    let (child, job) = half_done(&cluster, &more);
    let first = until("a job tracker on a node", || remote_job_tracker(&cluster, &job, None));
    let reduces = || cluster.json(&["jobs", "tasks", &job, "--type", "reduce"]);
    until("the reduce", || (reduces()?[0]["state"] == "RUNNING").then_some(()));
    // The next service has what the job tracker on the node has left.
    cluster.crash("job-tracker");
    signal("KILL", first);
    until("the next one", || remote_job_tracker(&cluster, &job, Some(first)));
    cluster.write("go", "");
    let end = end(child);
    assert_eq!(end["state"], "SUCCEEDED", "{end}");
    let lines: Vec<String> =
        cluster.lines("out").iter().map(|line| line.trim_end().to_owned()).collect();
    assert_eq!(lines, ["done a", "done b", "wait c", "wait d"]);
    assert_eq!(runs(&cluster), (2, 4), "finished maps do not run again");
    until("the end of the last one", || {
        remote_job_tracker(&cluster, &job, None).is_none().then_some(())
    });
    drop(cluster.stop());
}

#[test]
fn a_job_on_a_node_survives_the_service_without_running_anything_again() {
    let cluster = MiniCluster::start(&[]);
    let (child, job) = half_done(&cluster, &[]);
    let remote = until("a job tracker on a node", || remote_job_tracker(&cluster, &job, None));
    cluster.crash("job-tracker");
    cluster.write("go", "");
    let end = end(child);
    assert_eq!(end["state"], "SUCCEEDED", "{end}");
    assert_eq!(cluster.lines("out"), ["done a\t", "done b\t", "wait c\t", "wait d\t"]);
    assert_eq!(runs(&cluster), (2, 2));
    assert_eq!(remote_job_tracker(&cluster, &job, Some(remote)), None, "no other one was started");
    drop(cluster.stop());
}

/// JSON of the job tracker service.
fn of_service(cluster: &MiniCluster, path: &str) -> Option<serde_json::Value> {
    let pages = configured(cluster, "mapred.job.tracker.http.address");
    let body = shell(cluster.root.path(), &format!("curl -sf 'http://{pages}/api/v1/{path}'"));
    serde_json::from_str(&body.concat()).ok()
}

#[test]
fn a_drained_node_is_stopped_without_a_map_that_runs_again() {
    let cluster = MiniCluster::start(&[]);
    let go = cluster.path("go");
    let names: Vec<String> = ('a'..='h').map(String::from).collect();
    names.iter().for_each(|name| cluster.write(name, text()));
    // The reduce ends when the file appears.
    let reducer = format!("cat; while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let mut arguments = vec!["--output", "out", "--json", "--mapper", "cat", "--reducer", &reducer];
    arguments.extend(["-D", "mapred.reduce.tasks.speculative.execution=false"]);
    arguments.push("--input");
    arguments.extend(names.iter().map(String::as_str));
    let mut command = cluster.job(&arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let job = until("all maps", || {
        let jobs = of_service(&cluster, "jobs")?;
        let job = &jobs["jobs"][0];
        let done = job["maps"]["succeeded"].as_u64()? == names.len() as u64;
        done.then(|| job["id"].as_str().map(str::to_owned))?
    });
    let reduce = until("the reduce", || {
        let tasks = of_service(&cluster, &format!("jobs/{job}/tasks?kind=reduce"))?;
        let task = tasks["tasks"][0]["id"].as_str()?;
        let task = of_service(&cluster, &format!("jobs/{job}/tasks/{task}"))?;
        task["attempts"][0]["node"].as_str().map(str::to_owned)
    });
    let nodes = of_service(&cluster, &format!("jobs/{job}")).unwrap()["nodes"].clone();
    let nodes = nodes.as_array().unwrap().iter().map(|node| node["node"].as_str().unwrap());
    let node = nodes.into_iter().find(|node| *node != reduce).expect("a map on the other node");

    let drain = |wait: &str| cluster.output(&["nodes", "drain", wait, node]);
    let pending = drain("--wait=1");
    let said = String::from_utf8_lossy(&pending.stdout);
    assert_eq!(pending.status.code(), Some(3), "{said}{}", stderr(&pending));
    assert!(said.contains(" to fetch\n"), "{said}");
    assert!(cluster.tool(&["nodes", "list"]).contains("draining"));
    cluster.write("go", "");
    let drained = drain("--wait=60");
    assert!(drained.status.success(), "{}", stderr(&drained));
    // Each node has a loopback address of its own.
    let is_first = node.starts_with("tracker_127.0.0.1:");
    cluster.crash(if is_first { "node-1" } else { "node-2" });
    let end = end(child);
    assert_eq!(end["state"], "SUCCEEDED", "{end}");
    let detail = of_service(&cluster, &format!("jobs/{job}")).unwrap();
    assert_eq!(detail["totals"]["maps"]["launched"], names.len(), "{detail}");
    drop(cluster.stop());
}

/// The links and forms of a page that lead to the same server, except those for files of the program.
fn links(page: &str) -> Vec<String> {
    let attributes = [" href=\"/", " action=\"/"];
    let after = attributes.iter().flat_map(|attribute| page.split(attribute).skip(1));
    let links = after.filter_map(|rest| rest.split('"').next());
    links
        .map(|link| format!("/{}", link.replace("&amp;", "&")))
        .filter(|link| !link.starts_with("/static/"))
        .collect()
}

#[test]
fn pages_of_a_job_tracker_on_a_node_are_whole_through_the_proxy_job_tracker() {
    let cluster = MiniCluster::start(&[]);
    let (child, job) = half_done(&cluster, &[]);
    until("a job tracker on a node", || remote_job_tracker(&cluster, &job, None));
    let proxy = configured(&cluster, "mapred.job.tracker.corona.proxyaddr");
    let manager = configured(&cluster, "cm.server.http.address");
    // The address that the session of the job tracker on the node has announced.
    let announced = until("the announced address", || {
        let (_, sessions) = fetch(&manager, "/api/v1/sessions")?;
        let sessions: serde_json::Value = serde_json::from_str(&sessions).ok()?;
        let urls = sessions["sessions"].as_array()?.iter().filter_map(|it| it["url"].as_str());
        let mut own = urls.filter(|url| url.contains("/proxy?")).map(str::to_owned);
        own.next()
    });
    let first = announced.strip_prefix(&format!("http://{proxy}")).expect("the proxy").to_owned();
    let (mut seen, mut left, mut places) = (BTreeMap::new(), vec![first], String::new());
    while let Some(address) = left.pop() {
        if seen.contains_key(&address) || seen.len() >= 300 {
            continue;
        }
        let (head, body) = fetch(&proxy, &address).unwrap_or_else(|| panic!("{address}"));
        let status = status(&head).to_owned();
        match head.split("location: ").nth(1).and_then(|rest| rest.lines().next()) {
            Some(to) => left.push(to.to_owned()),
            None => {
                assert_eq!(status, "200", "{address}: {head}\n{body}");
                let links = links(&body);
                for link in &links {
                    assert!(link.starts_with("/proxy/"), "{address} leads to {link}");
                    places = link.split('/').take(3).collect::<Vec<_>>().join("/");
                }
                left.extend(links);
            }
        }
        seen.insert(address, status);
    }
    for page in ["", "/tasks?kind=map", "/configuration", "/history", "/failures"] {
        let address = format!("{places}/jobs/{job}{page}");
        assert!(seen.contains_key(&address), "{address} is not among {:?}", seen.keys());
    }
    assert!(seen.keys().any(|address| address.contains("/attempts/")), "{:?}", seen.keys());
    cluster.write("go", "");
    assert_eq!(end(child)["state"], "SUCCEEDED");
    drop(cluster.stop());
}

#[test]
fn a_job_whose_job_tracker_is_lost_fails_if_it_may_not_be_replaced() {
    let cluster = MiniCluster::start(&[]);
    let (child, job) = half_done(&cluster, &[]);
    signal("KILL", until("a job tracker on a node", || remote_job_tracker(&cluster, &job, None)));
    let end = end(child);
    assert_eq!(end["state"], "FAILED", "{end}");
    let why = "remote job trackers lost: 1, replacements allowed: 0 \
               (mapred.coronajobtracker.restart.count)";
    assert_eq!(end["note"], why, "{end}");
    assert_eq!(remote_job_tracker(&cluster, &job, None), None, "no other one was started");
    let log = || fs::read_to_string(cluster.path("cluster/logs/job-tracker.log")).unwrap();
    until("the reason", || log().contains("replacements allowed: 0").then_some(()));
    // The service completes what the lost one has left: unfinished output and a history.
    until("the end of the unfinished output", || {
        (!cluster.path("out/_temporary").exists()).then_some(())
    });
    assert!(!cluster.path("out/_SUCCESS").exists());
    until("the history", || {
        let history = cluster.output(&["jobs", "history", &job]).stdout;
        String::from_utf8_lossy(&history).contains("JOB_STATUS=\"FAILED\"").then_some(())
    });
    // It is known after a restart as well.
    cluster.crash("job-tracker");
    let info = until("the job", || cluster.json(&["jobs", "info", &job]));
    assert_eq!((&info["state"], &info["scheduling_info"]), (&"FAILED".into(), &why.into()));
    drop(cluster.stop());
}

#[test]
fn a_closed_cluster_is_not_started_again_as_an_open_one() {
    let root = tempfile::tempdir().unwrap();
    // The authority that an earlier start has left.
    fs::create_dir_all(root.path().join("cluster/access")).unwrap();
    let mut open = corona();
    open.args(["mini-cluster", "--dir", "cluster", "--free-ports"]).current_dir(root.path());
    let refused = open.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("is closed; start it again with --closed"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn a_job_for_a_node_is_refused_where_no_node_takes_job_trackers() {
    let cluster =
        MiniCluster::start(&[r#"cm.cpu.to.resource.partitioning={"1":{"MAP":1,"REDUCE":1}}"#]);
    cluster.write("in", "a\n");
    let forced = ["-D", "mapred.coronajobtracker.forceremote=true"];
    let arguments = ["--input", "in", "--output", "out", "--mapper", "cat"];
    let said = cluster.fails(&[&arguments[..], &forced].concat());
    let why = "no node has slots of type JOBTRACKER (cm.cpu.to.resource.partitioning";
    assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    // Other jobs run there.
    cluster.run(&arguments);
    drop(cluster.stop());
}

/// The id of the first job that has not ended.
fn first_job(cluster: &MiniCluster) -> Option<String> {
    cluster.json(&["jobs", "list"])?[0]["id"].as_str().map(str::to_owned)
}

#[test]
fn a_job_that_waits_for_a_job_tracker_says_so() {
    // Nodes that have the slots by their number of processors, and take no job trackers.
    let cluster = MiniCluster::start(&["corona.tt.job.trackers=false"]);
    cluster.write("in", "a\n");
    let mut command = cluster.job(&["--input", "in", "--output", "out", "--mapper", "cat"]);
    command.args(["-D", "mapred.coronajobtracker.forceremote=true", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let job = until("the job", || first_job(&cluster));
    let info = cluster.tool(&["jobs", "info", &job]);
    assert!(info.contains("waits for a slot of type JOBTRACKER on a node"), "{info}");
    let explained = cluster.tool(&["jobs", "explain", &job]);
    assert!(explained.contains("none of the 2 nodes serves JOBTRACKER"), "{explained}");
    let waits = of_service(&cluster, &format!("jobs/{job}/waits")).unwrap().to_string();
    assert!(waits.contains("none of the 2 nodes serves JOBTRACKER"), "{waits}");
    cluster.tool(&["jobs", "kill", &job]);
    let end = end(child);
    assert_eq!((&end["state"], &end["note"]), (&"KILLED".into(), &serde_json::Value::Null));
    drop(cluster.stop());
}

/// A cluster that counts CPUs and memory sees what jobs and lists of commands ask for.
#[test]
fn requests_name_the_resources_of_their_job() {
    let cluster = MiniCluster::start(&["corona.cm.resources=cpus,memory"]);
    cluster.write("in", "a\n");
    let mut list = corona();
    list.args(["run", "--conf-dir", "cluster/conf", "--cpus", "3", "--memory", "1000g"]);
    list.args(["--", "true"]).current_dir(cluster.root.path());
    let mut job = cluster.job(&["--input", "in", "--output", "out", "--mapper", "cat"]);
    job.args(["--cpus", "3", "--memory", "1000g"]);
    for mut command in [job, list] {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let id = until("the job", || first_job(&cluster));
        until("the reason why it waits", || {
            let explained = cluster.output(&["jobs", "explain", &id]).stdout;
            let why =
                "it needs 3 CPUs and 1024000 MB of memory on one node, and no node has so much";
            String::from_utf8(explained).unwrap().contains(why).then_some(())
        });
        cluster.tool(&["jobs", "kill", &id]);
        child.wait().unwrap();
        until("the end of the job", || {
            let listed = cluster.json(&["jobs", "list"])?;
            listed.as_array().is_some_and(Vec::is_empty).then_some(())
        });
    }
    cluster.run(&["--input", "in", "--output", "out", "--mapper", "cat", "--memory", "100m"]);
    drop(cluster.stop());
}
