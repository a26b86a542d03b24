//! Clusters of the built program that count resources: what nodes report, what tasks may take of it, and what people see.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use compat_tests::corona_program;
use compat_tests::skipping::{Missing, skip};

use super::mini_cluster::{MiniCluster, corona, until};

const MIB: u64 = 1 << 20;

/// A control group that limits memory, for a test.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes one of this size in the root of a hierarchy that has the controller.
    fn new(test: &str, mib: u64) -> Option<MemoryGroup> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let found = mounts.lines().find_map(|line| {
            let (fields, rest) = line.split_once(" - ")?;
            let mount = Path::new(fields.split(' ').nth(4)?);
            let delegated = || fs::read_to_string(mount.join("cgroup.subtree_control"));
            let has = |text: &str, separator: char| {
                text.split(separator).any(|one| one.trim() == "memory")
            };
            let limit = match rest.split(' ').next()? {
                "cgroup2" if has(&delegated().ok()?, ' ') => "memory.max",
                "cgroup" if has(rest.rsplit(' ').next()?, ',') => "memory.limit_in_bytes",
                _ => return None,
            };
            let dir = mount.join(format!("corona-test-{}", std::process::id()));
            fs::create_dir(&dir).ok()?;
            let group = MemoryGroup(dir);
            fs::write(group.0.join(limit), (mib * MIB).to_string()).ok()?;
            Some(group)
        });
        if found.is_none() {
            skip(test, Missing::MemoryController);
        }
        found
    }

    /// A command that runs the program in the group.
    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.0);
        command.arg(corona_program()).env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Its processes have ended, but the kernel may need a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn json(cluster: &MiniCluster, arguments: &[&str]) -> serde_json::Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--output", "json"]).collect();
    serde_json::from_str(&cluster.tool(&arguments)).unwrap()
}

/// The memory that each node reports, in MiB.
fn memory_of_nodes(cluster: &MiniCluster) -> Vec<u64> {
    let nodes = json(cluster, &["nodes", "list"]);
    let nodes = nodes["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["total"]["memory_mb"].as_u64().unwrap()).collect()
}

#[test]
fn a_node_in_a_control_group_reports_what_the_group_allows() {
    let test = "a_node_in_a_control_group_reports_what_the_group_allows";
    let Some(group) = MemoryGroup::new(test, 3_000) else { return };
    let root = tempfile::tempdir().unwrap();
    let cluster = MiniCluster::start_by(group.command(), root, &["corona.tt.memory.mb=0"]);
    assert_eq!(memory_of_nodes(&cluster), [3_000, 3_000], "in {}", group.0.display());
    drop(cluster.stop());
}

#[test]
fn jobs_that_exceed_the_memory_of_the_nodes_together_run_one_after_the_other() {
    let settings = ["corona.cm.resources=cpus,memory", "corona.tt.memory.mb=500"];
    let cluster = MiniCluster::start(&settings);
    assert_eq!(memory_of_nodes(&cluster), [500, 500]);
    cluster.write("in", "a\n");
    // Each map notes its begin and its end.
    let log = cluster.path("log").display().to_string();
    let mapper = format!("sh -c 'echo + >> {log}; sleep 2; echo - >> {log}; cat'");
    let job = |output: &str| {
        let arguments =
            ["--input", "in", "--output", output, "--mapper", &mapper, "--memory", "300m"];
        // Nobody else asks for so much of a node twice.
        let mut job = cluster.job(&arguments);
        job.args(["--name", output]).stdout(Stdio::null()).stderr(Stdio::null());
        job.spawn().unwrap()
    };
    let mut jobs = [job("one"), job("two"), job("three")];
    let why = "it needs 1 CPU and 300 MB of memory on one node";
    until("a job that waits for memory", || {
        let sessions = json(&cluster, &["sessions", "list"]);
        let sessions = sessions["sessions"].as_array()?;
        let handles = sessions.iter().filter_map(|session| session["handle"].as_str());
        handles
            .map(|handle| {
                let mut explain = corona();
                explain.args(["sessions", "explain", handle, "--conf-dir", "cluster/conf"]);
                explain.current_dir(cluster.root.path()).output().unwrap()
            })
            .any(|explained| String::from_utf8_lossy(&explained.stdout).contains(why))
            .then_some(())
    });
    for job in &mut jobs {
        assert!(job.wait().unwrap().success());
    }
    let log = fs::read_to_string(&log).unwrap();
    let mut running = 0_i32;
    let most = log.lines().map(|line| {
        running += if line == "+" { 1 } else { -1 };
        running
    });
    assert_eq!(
        (most.max(), log.lines().count()),
        (Some(2), 6),
        "one at a time on each node: {log}"
    );
    for output in ["one", "two", "three"] {
        assert_eq!(cluster.lines(output), ["a\t"]);
    }
    drop(cluster.stop());
}

#[test]
fn a_task_that_exceeds_its_memory_says_what_it_had_wanted_and_could_ask_for() {
    let cluster = MiniCluster::start(&[
        "corona.cm.resources=cpus,memory",
        "corona.tt.memory.mb=2000",
        "mapred.tasktracker.cgroup.mem=true",
        "mapred.tasktracker.taskmemorymanager.monitoring-interval=50",
        "mapred.map.max.attempts=1",
    ]);
    cluster.write("in", "a\n");
    let greedy = "sh -c 'x=$(head -c 200000000 /dev/zero | tr \"\\0\" a); sleep 60'";
    let said =
        cluster.fails(&["--input", "in", "--output", "out", "--mapper", greedy, "--memory", "64m"]);
    let had = "This map had 64 MB of memory, wanted ";
    let could = "and could ask for up to 2000 MB on this node (mapred.job.map.memory.mb)";
    let job = json(&cluster, &["jobs", "list", "--all"])[0]["id"].as_str().unwrap().to_owned();
    let info = cluster.tool(&["jobs", "info", &job]);
    let tasks = cluster.tool(&["jobs", "tasks", &job, "--output", "json"]);
    let pages = super::mini_cluster::configured(&cluster, "mapred.job.tracker.http.address");
    let page = super::mini_cluster::shell(
        cluster.root.path(),
        &format!("curl -sf 'http://{pages}/jobs/{job}'"),
    );
    for text in [said, info, tasks, page.join("\n")] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(had) && text.contains(could), "{text}");
    }
    drop(cluster.stop());
}
