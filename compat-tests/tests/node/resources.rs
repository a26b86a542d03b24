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
    fn new(mib: u64) -> Option<MemoryGroup> {
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
            skip(Missing::MemoryController);
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

/// The memory that each of the two nodes reports, in MiB. One that has just started may not have reported yet.
fn memory_of_nodes(cluster: &MiniCluster) -> Vec<u64> {
    until("two nodes", || {
        let nodes = cluster.json(&["nodes", "list"])?;
        let nodes = nodes["nodes"].as_array()?;
        let memory = nodes.iter().map(|node| node["total"]["memory_mb"].as_u64().unwrap());
        (nodes.len() == 2).then(|| memory.collect())
    })
}

#[test]
fn a_node_in_a_control_group_reports_what_the_group_allows() {
    let Some(group) = MemoryGroup::new(3_000) else { return };
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
        // A node has room for one request of this size.
        let mut job = cluster.job(&arguments);
        job.args(["--name", output]).stdout(Stdio::null()).stderr(Stdio::null());
        job.spawn().unwrap()
    };
    let mut jobs = [job("one"), job("two"), job("three")];
    let why = "it needs 1 CPU and 300 MB of memory on one node";
    until("a job that waits for memory", || {
        let sessions = cluster.json(&["sessions", "list"])?;
        let sessions = sessions["sessions"].as_array()?;
        let handles = sessions.iter().filter_map(|session| session["handle"].as_str());
        handles
            .map(|handle| cluster.output(&["sessions", "explain", handle]))
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
    let jobs = cluster.json(&["jobs", "list", "--all"]).unwrap();
    let job = jobs[0]["id"].as_str().unwrap();
    let info = cluster.tool(&["jobs", "info", job]);
    let tasks = cluster.tool(&["jobs", "tasks", job, "--output", "json"]);
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

/// What grants take of the memory of all nodes, in MB.
fn granted(cluster: &MiniCluster) -> u64 {
    cluster.json(&["nodes", "list"]).unwrap()["resources"]["memory"]["granted"].as_u64().unwrap()
}

#[test]
fn a_restart_counts_the_resources_of_running_tasks_as_before() {
    let settings = ["corona.cm.resources=cpus,memory", "corona.tt.memory.mb=500"];
    let cluster = MiniCluster::start(&settings);
    let (began, go) = (cluster.path("began"), cluster.path("go"));
    let (began, go) = (began.display(), go.display());
    let script = format!("touch {began}; until [ -e {go} ]; do sleep 0.05; done");
    let mut list = corona();
    list.args(["run", "--conf-dir", "cluster/conf", "--memory", "300m", "--", "sh", "-c", &script]);
    list.current_dir(cluster.root.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut list = list.spawn().unwrap();
    until("the start of the command", || cluster.path("began").exists().then_some(()));
    assert_eq!(granted(&cluster), 300);
    cluster.crash("cluster-manager");
    // Its journal has the grant; nodes and the job tracker reconnect.
    let again = || {
        let nodes = cluster.json(&["nodes", "list"])?;
        let memory = &nodes["resources"]["memory"];
        let all = (memory["capacity"].as_u64()?, memory["granted"].as_u64()?);
        (all == (1_000, 300)).then_some(())
    };
    until("the same books", again);
    cluster.write("go", "");
    assert!(list.wait().unwrap().success());
    until("free memory", || (granted(&cluster) == 0).then_some(()));
    drop(cluster.stop());
}

#[test]
fn a_job_that_has_ended_says_what_it_used_of_what_it_asked_for() {
    let cluster = MiniCluster::start(&[
        "mapred.tasktracker.taskmemorymanager.monitoring-interval=50",
        "corona.tt.memory.mb=2000",
    ]);
    cluster.write("in", "a\n");
    let hungry = "sh -c 'x=$(head -c 100000000 /dev/zero | tr \"\\0\" a); sleep 1; cat'";
    cluster.run(&["--input", "in", "--output", "out", "--mapper", hungry, "--memory", "1g"]);
    let jobs = cluster.json(&["jobs", "list", "--all"]).unwrap();
    let job = jobs[0]["id"].as_str().unwrap();
    let explained = until("the history of the job", || {
        let text = String::from_utf8(cluster.output(&["jobs", "explain", job]).stdout).unwrap();
        text.contains("CPUs").then_some(text)
    });
    let memory = explained.lines().find(|line| line.contains("memory")).unwrap();
    assert!(
        memory.contains(" 1 GB ") && memory.contains("mapred.job.map.memory.mb="),
        "{explained}"
    );
    let suggested = memory.rsplit('=').next().unwrap().trim().parse::<u64>().unwrap();
    assert!((128..=512).contains(&suggested), "{explained}");
    assert!(explained.contains("corona.job.map.cpus=1"), "{explained}");
    assert!(explained.lines().all(|line| line.chars().count() <= 100), "{explained}");
    drop(cluster.stop());
}
