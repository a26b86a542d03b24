//! `corona head`, `corona join` and `corona login`: a cluster of several machines in three commands, on
//! loopback addresses and in network namespaces.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use compat_tests::daemons::start_daemon;
use compat_tests::serving::{fetch, status};
use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::PATIENCE;
use compat_tests::task_tracker::node::signal;
use compat_tests::{corona_program, repository, until};
use tempfile::TempDir;

use crate::mini_cluster::stderr;

/// Ports of a head and its nodes, from its first one on.
const BLOCK: u16 = 20;

/// The first of a block of ports that are free on the addresses of a test, and what keeps the block from other
/// tests. The system gives ports of this range to nobody.
fn free_block() -> (u16, TcpListener) {
    // Tests of one process take blocks behind each other.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed) * 100 + std::process::id();
    let mut blocks = (0..700).map(|number| 15_000 + ((next + number) % 700) as u16 * BLOCK);
    let found = blocks.find_map(|base| {
        // Nothing of a cluster listens at the last one.
        let last = base + BLOCK - 1;
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, last)).ok()?;
        let are_free = (base..last).all(|port| {
            let at = |host| TcpListener::bind((Ipv4Addr::new(127, 0, 0, host), port));
            [1, 2].into_iter().all(|host| at(host).is_ok())
        });
        are_free.then_some((base, held))
    });
    found.expect("a free block of ports")
}

/// A service, which ends with the test.
pub(super) struct Service {
    child: Child,
    /// What it printed when it was ready.
    lines: Vec<String>,
}

impl Service {
    fn start(command: Command, lines: usize, log: &Path) -> Service {
        let mut child = start_daemon(command, [], log);
        let out = BufReader::new(child.stdout.take().unwrap());
        let lines = out.lines().take(lines).map_while(Result::ok).collect();
        Service { child, lines }
    }

    /// What follows this command in the lines.
    pub(super) fn line(&self, command: &str) -> String {
        let start = format!("  corona {command} ");
        let found = self.lines.iter().find_map(|line| line.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("{:?}", self.lines)).to_owned()
    }

    /// Has it start again in place, as `systemctl reload`.
    pub(super) fn hang_up(&self) {
        signal("HUP", self.child.id());
    }

    /// Stops it as the end of a machine does.
    pub(super) fn stop(mut self) {
        signal("TERM", self.child.id());
        let status = until("the end", || self.child.try_wait().ok().flatten());
        assert!(status.success(), "{status}");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Its daemons end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory for a head, its nodes and a user.
pub(super) struct Machines {
    root: TempDir,
    pub(super) base: u16,
    _block: TcpListener,
    /// The file of the program.
    program: PathBuf,
}

impl Machines {
    pub(super) fn new() -> Machines {
        Machines::of(corona_program().to_owned())
    }

    /// With another file of the program.
    pub(super) fn of(program: PathBuf) -> Machines {
        let (base, block) = free_block();
        Machines { root: tempfile::tempdir().unwrap(), base, _block: block, program }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A command of the user.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
        command.args(arguments).current_dir(self.root.path());
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(super) fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The JSON that a command prints.
    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let printed = self.succeeds(&[arguments, &["--json"]].concat());
        serde_json::from_str(&printed).unwrap()
    }

    fn head(&self, more: &[&str]) -> Service {
        let command = self.command(&[&["head", "--dir", "head"][..], more].concat());
        let mut head = Service::start(command, 3, &self.path("head.log"));
        assert!(head.lines.len() == 3, "{}", self.log("head.log"));
        // What goes to a file, as this does, has no secrets.
        assert!(!head.lines.concat().contains("corona1:"), "{:?}", head.lines);
        let status = self.json(&["head", "status", "--dir", "head"]);
        let shown = ["node", "user"].map(|who| format!("  {}", status[who].as_str().unwrap()));
        head.lines.extend(shown);
        head
    }

    pub(super) fn first_head(&self) -> Service {
        self.head(&["--host", "127.0.0.1", "--port-base", &self.base.to_string()])
    }

    pub(super) fn node(&self, number: u8, string: &[&str]) -> Service {
        let (dir, host) = (format!("node-{number}"), format!("127.0.0.{number}"));
        let arguments = ["join", "--dir", &dir, "--host", &host, "--slots", "2"];
        let command = self.command(&[&arguments[..], string].concat());
        let node = Service::start(command, 2, &self.path(&format!("{dir}.log")));
        assert!(node.lines.len() == 2, "{}", self.log(&format!("{dir}.log")));
        node
    }

    pub(super) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The logs of the head and a node, and of their daemons, for a test that fails.
    pub(super) fn all_logs(&self) -> String {
        let mut all = String::new();
        for directory in ["", "head/logs", "node-1/logs"] {
            let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
            let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            logs.retain(|log| log.extension().is_some_and(|extension| extension == "log"));
            logs.sort();
            for log in logs {
                let text = fs::read_to_string(&log).unwrap_or_default();
                all.push_str(&format!("\n{}\n{text}", log.display()));
            }
        }
        all
    }

    fn nodes(&self) -> usize {
        let listed = self.run(&["nodes", "list", "--json"]).stdout;
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap_or_default();
        listed["nodes"].as_array().or(listed.as_array()).map_or(0, Vec::len)
    }

    /// What the cluster manager says of the node at an address.
    fn node_at(&self, host: &str) -> Option<serde_json::Value> {
        let listed = self.run(&["nodes", "list", "--json"]).stdout;
        let listed: serde_json::Value = serde_json::from_slice(&listed).ok()?;
        let nodes = listed["nodes"].as_array()?;
        nodes.iter().find(|node| node["address"]["host"] == host).cloned()
    }

    /// Waits until the only problem of a node is this one, or until it has none.
    fn until_problem(&self, host: &str, problem: Option<&str>) -> serde_json::Value {
        let expected: Vec<&str> = problem.into_iter().collect();
        until(&format!("a node with {expected:?}"), || {
            self.node_at(host).filter(|node| node["problems"] == serde_json::json!(expected))
        })
    }

    /// Access for a node of its own: its number, and its string.
    fn access_of_node(&self) -> (String, String) {
        let string = self.succeeds(&["access", "create", "node", "--dir", "head"]);
        let listed = self.json(&["access", "list", "--dir", "head"]);
        let mut rows = listed.as_array().unwrap().iter();
        let last = rows.rfind(|row| row["role"] == "node").unwrap();
        (last["id"].as_str().unwrap().to_owned(), string.trim().to_owned())
    }

    pub(super) fn until_nodes(&self, count: usize) {
        until(&format!("{count} nodes"), || (self.nodes() == count).then_some(()));
    }

    pub(super) fn pid(&self, directory: &str, daemon: &str) -> u32 {
        let file = self.path(directory).join("run").join(format!("{daemon}.pid"));
        until("the number of a process", || fs::read_to_string(&file).ok()?.trim().parse().ok())
    }
}

#[test]
fn three_commands_make_a_cluster_and_all_its_parts_start_again() {
    let world = Machines::new();
    let head = world.first_head();
    let line = |command| head.line(command);
    assert!(head.lines[1].starts_with("This cluster is closed: "), "{:?}", head.lines);
    let first = world.node(1, &[&line("join")]);
    // A file keeps the string from lists of processes.
    fs::write(world.path("string"), line("join")).unwrap();
    let second = world.node(2, &["@string"]);
    assert!(first.lines[1].starts_with("files: this machine sees "), "{:?}", first.lines);
    let refused = world.run(&["login", &line("join")]);
    assert!(stderr(&refused).contains("this string is for 'corona join'"), "{}", stderr(&refused));
    let said = world.succeeds(&["login", &line("login"), "--name", "mine"]);
    assert!(said.starts_with("using mine: https://127.0.0.1:"), "{said}");
    assert!(world.succeeds(&["login"]).starts_with("* mine "), "the cluster in use is marked");
    world.until_nodes(2);
    let forgotten = world.succeeds(&["logout"]);
    assert!(forgotten.starts_with("forgot mine: https://127.0.0.1:"), "{forgotten}");
    assert!(forgotten.contains(" stays valid until an administrator revokes it"), "{forgotten}");
    assert!(stderr(&world.run(&["logout"])).contains("no cluster is in use"));
    world.succeeds(&["login", &line("login"), "--name", "mine"]);

    fs::write(world.path("in"), "b\na\n".repeat(500)).unwrap();
    fs::write(world.path("map.sh"), "sed s/$/x/").unwrap();
    let job = ["job", "run", "--input", "in", "--split-size", "200", "--reduces", "2"];
    let script = ["--file", "map.sh", "--mapper", "sh map.sh", "--reducer", "uniq -c"];
    world.succeeds(&[&job[..], &script, &["--output", "out"]].concat());
    let parts: Vec<String> =
        ["out/part-00000", "out/part-00001"].map(|part| world.log(part)).into();
    let mut counts: Vec<String> = parts.join("").split_whitespace().map(str::to_owned).collect();
    counts.sort();
    assert_eq!(counts, ["500", "500", "ax", "bx"]);
    // The files of the job went through the job tracker, and are gone.
    assert_eq!(fs::read_dir(world.path("head/system")).unwrap().count(), 0);
    let hidden = fs::read_dir(world.root.path()).unwrap().flatten();
    let marks = hidden.filter(|entry| entry.file_name().to_string_lossy().starts_with(".corona-"));
    assert_eq!(marks.count(), 0);

    // A peer without access gets nothing, and a browser what a one-time link gives it.
    let page = format!("127.0.0.1:{}", world.base + 9);
    assert_eq!(status(&fetch(&page, "/").unwrap().0), "401");
    assert_eq!(status(&fetch(&page, "/healthz").unwrap().0), "200");
    for (pages, port) in [("cluster", 9), ("jobs", 2), ("finished", 6)] {
        let link = world.succeeds(&["open", pages]);
        let start = format!("https://127.0.0.1:{}/access?code=", world.base + port);
        assert!(link.starts_with(&start), "{link}");
    }

    // A node that stops leaves at once; one that crashes comes back by itself.
    second.stop();
    world.until_nodes(1);
    let second = world.node(2, &[]);
    let crashed = world.pid("node-1", "node");
    signal("KILL", crashed);
    until("another process", || (world.pid("node-1", "node") != crashed).then_some(()));
    world.until_nodes(2);

    // A job goes on when the head is started again, with the same name and ports.
    let wait = "while [ ! -e go ]; do sleep 0.05; done; cat";
    let wait = format!("cd {} && {wait}", world.root.path().display());
    let mut waiting = world.command(&[&job[..], &["--output", "out2", "--mapper", &wait]].concat());
    let waiting = waiting.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the job", || world.succeeds(&["jobs", "list"]).contains("RUNNING").then_some(()));
    let status = world.json(&["head", "status", "--dir", "head"]);
    assert_eq!((&status["runs"], &status["nodes"]), (&true.into(), &2.into()), "{status}");
    assert_eq!((&status["running_jobs"], &status["access"]), (&1.into(), &"closed".into()));
    head.stop();
    let down = world.run(&["head", "status", "--dir", "head"]);
    assert_eq!(down.status.code(), Some(1), "a head that does not run");
    let head = world.head(&[]);
    fs::write(world.path("go"), "").unwrap();
    let ended = waiting.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert_eq!(
        world.log("out2/part-00000").lines().count() + world.log("out2/part-00001").lines().count(),
        1000
    );
    first.stop();
    // A string that was taken back is not shown any more, and its node says why it does not start.
    let listed = world.json(&["access", "list", "--dir", "head"]);
    let of_nodes = listed.as_array().unwrap().iter().find(|entry| entry["role"] == "node");
    let of_nodes = of_nodes.unwrap()["id"].as_str().unwrap();
    world.succeeds(&["access", "revoke", of_nodes, "--dir", "head"]);
    let status = world.succeeds(&["head", "status", "--dir", "head"]);
    assert!(status.contains("a node        the string was taken back"), "{status}");
    let revoked = until("the end of the access", || {
        let again = world.run(&["jobs", "list", "-D", "corona.tls.directory=node-1/identity"]);
        (!again.status.success()).then(|| stderr(&again))
    });
    assert!(revoked.contains("has been revoked"), "{revoked}");
    let again = world.run(&["join", "--dir", "node-1", "--host", "127.0.0.1"]);
    assert!(stderr(&again).contains("has been revoked"), "{}", stderr(&again));
    let before = head.line("join");
    for service in [second, head] {
        service.stop();
    }
    let head = world.head(&[]);
    assert_ne!(head.line("join"), before);
    head.stop();
}

#[test]
fn a_job_in_a_cluster_without_nodes_says_how_to_get_some() {
    let world = Machines::new();
    let head = world.first_head();
    world.succeeds(&["login", &head.line("login")]);
    fs::write(world.path("in"), "a\n").unwrap();
    let job = ["job", "run", "--input", "in", "--output", "out", "--mapper", "cat"];
    let mut waiting = world.command(&job);
    let mut waiting = waiting.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = lines.skip_while(|line| !line.contains("the cluster has no nodes"));
    let line = said.next().expect("a line about nodes");
    assert!(line.contains("'corona head status'"), "{line}");
    let _node = world.node(1, &[&head.line("join")]);
    said.for_each(drop);
    assert!(waiting.wait().unwrap().success());
}

/// No node of this cluster is lost by silence while the test runs.
#[test]
fn a_node_whose_access_is_revoked_loses_its_work_at_once_and_the_others_do_not_notice() {
    let world = Machines::new();
    let base = world.base.to_string();
    // No node is late here: one that is revoked sends no heartbeats, and is to have that one problem.
    let never = ["-D", "cm.node.expiryinterval=36000000", "-D", "corona.cm.node.late.heartbeats=0"];
    let settings = [&["--host", "127.0.0.1", "--port-base", &base][..], &never].concat();
    let head = world.head(&settings);
    let (access, string) = world.access_of_node();
    let _innocent = world.node(1, &[&head.line("join")]);
    let refused = world.node(2, &[&string]);
    world.succeeds(&["login", &head.line("login")]);
    world.until_nodes(2);

    // Each node has two of the four maps of a job, which all wait.
    fs::write(world.path("in"), "line\n".repeat(40)).unwrap();
    let job = ["job", "run", "--input", "in", "--split-size", "50", "--reduces", "0"];
    let wait = "while [ ! -e go ]; do sleep 0.05; done; cat";
    let wait = format!("cd {} && {wait}", world.root.path().display());
    let mut waiting = world.command(&[&job[..], &["--output", "out", "--mapper", &wait]].concat());
    let waiting = waiting.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for host in ["127.0.0.1", "127.0.0.2"] {
        until("two maps on each node", || {
            world.node_at(host).filter(|node| node["slots"]["MAP"]["used"] == 2)
        });
    }
    world.succeeds(&["access", "revoke", &access, "--dir", "head"]);
    let node = world.until_problem("127.0.0.2", Some("revoked"));
    assert_eq!(node["slots"]["MAP"]["used"], 0, "{node}");
    let node = world.node_at("127.0.0.1").unwrap();
    assert_eq!(
        (&node["slots"]["MAP"]["used"], &node["problems"]),
        (&2.into(), &serde_json::json!([]))
    );
    assert!(world.succeeds(&["nodes", "list", "--problems"]).contains("revoked"));
    let event = until("the event", || {
        let events = world.succeeds(&["events"]);
        events.lines().find(|line| line.contains("its access")).map(str::to_owned)
    });
    assert!(event.contains(&format!("is granted nothing: its access {access} was revoked")));

    // The journal keeps it, and the job ends on the other node.
    head.stop();
    let head = world.head(&settings[4..]);
    world.until_problem("127.0.0.2", Some("revoked"));
    fs::write(world.path("go"), "").unwrap();
    let ended = waiting.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    let lines = |output: &str| -> usize {
        let entries = fs::read_dir(world.path(output)).unwrap().flatten();
        let parts =
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("part-"));
        parts.map(|part| fs::read_to_string(part.path()).unwrap().lines().count()).sum()
    };
    assert_eq!(lines("out"), 40);
    world.until_problem("127.0.0.2", Some("revoked"));

    // The same machine with another line is the same node, and serves again.
    refused.stop();
    let (access, string) = world.access_of_node();
    let _again = world.node(2, &[&string]);
    world.until_problem("127.0.0.2", None);

    // Revoked while the head is away: it is granted nothing when the head is back.
    head.stop();
    world.succeeds(&["access", "revoke", &access, "--dir", "head"]);
    let _head = world.head(&settings[4..]);
    let node = until("the nodes", || world.node_at("127.0.0.2"));
    assert_eq!(node["problems"], serde_json::json!(["revoked"]), "from the first moment on");
    world.succeeds(&[&job[..], &["--output", "out2", "--mapper", "cat"]].concat());
    assert_eq!(lines("out2"), 40);
}

/// The files below a directory that contain one of these texts.
fn holding(directory: &Path, secrets: &[&str], found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            holding(&path, secrets, found);
        } else if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let content =
                String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            if secrets.iter().any(|secret| content.contains(secret)) {
                found.push(path.display().to_string());
            }
        }
    }
}

#[test]
fn secrets_are_in_no_log_page_job_file_or_list_of_processes() {
    let world = Machines::new();
    let head = world.first_head();
    let lines = [head.line("join"), head.line("login")];
    let node = world.node(1, &[&lines[0]]);
    world.succeeds(&["login", &lines[1]]);
    world.until_nodes(1);
    // A task shows what it knows: its environment, and the files of its job.
    fs::write(world.path("in"), "a\n").unwrap();
    let show = "cat >/dev/null; env; cat ../*.xml ../../*.xml 2>/dev/null; true";
    let job = ["job", "run", "--input", "in", "--output", "out", "--reduces", "0"];
    world.succeeds(&[&job[..], &["--mapper", show]].concat());
    let shown = world.log("out/part-00000");
    assert!(
        shown.contains("CORONA_TLS_DIRECTORY=") && shown.contains("mapred.job.name"),
        "{shown}"
    );

    let mut secrets: Vec<String> =
        lines.iter().map(|line| line.rsplit(':').next().unwrap().to_owned()).collect();
    let keys = ["head/access/ca.key", "head/identity/key.pem", "node-1/identity/key.pem"];
    secrets.extend(keys.iter().map(|key| world.log(key).lines().nth(1).unwrap().to_owned()));
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    assert!(secrets.iter().all(|secret| secret.len() >= 64), "{secrets:?}");
    let mut found = Vec::new();
    holding(world.root.path(), &secrets, &mut found);
    let mut private: Vec<String> = ["head/strings.json", "node-1/string"]
        .iter()
        .chain(&keys)
        .map(|name| world.path(name).display().to_string())
        .collect();
    found.sort();
    private.sort();
    assert_eq!(found, private);
    use std::os::unix::fs::PermissionsExt;
    for path in private {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{path}");
    }
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for name in ["cmdline", "environ"] {
            let content = fs::read(process.path().join(name)).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            assert!(!secrets.iter().any(|secret| content.contains(secret)), "{content}");
        }
    }
    let token = world.succeeds(&["open", "--token"]);
    assert!(!secrets.iter().any(|secret| token.contains(secret)));
    let status = world.succeeds(&["head", "status", "--dir", "head", "--json"]);
    assert!(status.contains(secrets[0]), "it is for the user of the head, who may know them");
    node.stop();
    head.stop();
}

#[test]
fn a_closed_cluster_is_loaded_within_tls() {
    let world = Machines::new();
    let head = world.first_head();
    let manager = format!("127.0.0.1:{}", world.base + 8);
    let churn = ["load", "churn", "--address", &manager, "--nodes", "2", "--cpus", "4"];
    let churn = [&churn[..], &["--sessions", "1", "--maps", "5", "--seconds", "1"]].concat();
    let refused = world.run(&churn);
    assert!(!refused.status.success(), "without a certificate");
    let report = world.succeeds(&[&churn[..], &["--tls-directory", "head/identity"]].concat());
    assert!(report.contains("All responses were correct."), "{report}");
    head.stop();
}

#[test]
fn wrong_strings_names_and_directories_are_refused_in_one_line() {
    let world = Machines::new();
    let refused = |arguments: &[&str], why: &str| {
        let output = world.run(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{arguments:?}: {said}");
    };
    refused(&["head", "--dir", "head", "--host", "localhost"], "which other machines cannot reach");
    refused(&["head", "--dir", "head", "-D", "corona.tls=off"], "a head makes a closed cluster");
    refused(&["head", "status", "--dir", "head"], "no head was ever started in head");
    refused(&["join", "--dir", "node"], "this machine has joined no cluster yet");
    let hex = "0123456789abcdef".repeat(4);
    let string = |role: &str, port: u16| format!("corona1:{role}:127.0.0.1:{port}:{hex}:{hex}");
    refused(&["join", "corona1:node:127.0.0.1:8889", "--dir", "node"], "truncated");
    refused(&["join", &string("submit", 8889), "--dir", "node"], "for 'corona login'");
    refused(&["join", "@none", "--dir", "node"], "cannot read none");
    let nobody = string("submit", world.base + 9);
    refused(&["login", &nobody], "cannot be reached: Connection refused");
    refused(&["login"], "no cluster is known");
    refused(&["login", "--name", "none"], "there is no cluster none");
    // A mistake in one key makes no command speak without TLS.
    for command in ["sessions", "jobs"] {
        let mut called = vec![command, "list", "-D", "corona.tls=requires"];
        if command == "jobs" {
            called.extend(["--job-tracker", "127.0.0.1:1"]);
        }
        refused(&called, "corona.tls: value \"requires\"");
    }
    let head = world.first_head();
    // Tasks call without TLS, so others must not reach the port for them.
    let local = format!("mapred.local.dir={}", world.path("local").display());
    let mut tracker = vec!["task-tracker"];
    for setting in [
        "corona.tls=require",
        "corona.tls.directory=head/identity",
        "slave.host.name=127.0.0.1",
        &local,
        "mapred.task.tracker.http.address=127.0.0.1:0",
        "mapred.task.tracker.report.address=0.0.0.0:0",
    ] {
        tracker.extend(["-D", setting]);
    }
    let mut limited = Command::new("timeout");
    limited.arg(PATIENCE.as_secs().to_string()).arg(corona_program()).args(tracker);
    let refused_start = limited.current_dir(world.root.path()).output().unwrap();
    let said = stderr(&refused_start);
    assert!(said.contains("tasks call without TLS, so where corona.tls=require"), "{said}");
    assert_eq!(refused_start.status.code(), Some(1), "{said}");
    // A string of another cluster.
    refused(&["login", &nobody], "no access at 127.0.0.1:");
    // A node keeps the string by which it is one.
    let kept = string("node", 8889);
    fs::create_dir_all(world.path("kept")).unwrap();
    fs::write(world.path("kept/string"), &kept).unwrap();
    let foreign = string("node", world.base + 9);
    refused(&["join", &foreign, "--dir", "kept"], "no access at 127.0.0.1:");
    assert_eq!(fs::read_to_string(world.path("kept/string")).unwrap(), kept);
    assert!(!world.path("kept/string.given").exists());
    refused(&["head", "--dir", "head"], "another head uses");
    let mut other = world.command(&["head", "--dir", "other", "--host", "127.0.0.1"]);
    let other = other.args(["--port-base", &world.base.to_string()]).output().unwrap();
    let said = stderr(&other);
    assert!(said.contains(" cannot start: ") && said.contains("in use"), "{said}");
    let string = head.lines[3].strip_prefix("  corona join ").unwrap().to_owned();
    refused(
        &["join", &string, "--dir", "node", "--host", "no-such-host.invalid"],
        "has no address",
    );
    head.stop();
}

#[test]
fn three_machines_in_namespaces_share_one_directory_or_none() {
    let namespaces =
        ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"];
    // 'ip' takes a short name for the beginning of a word of its own.
    let try_out = "mount -t tmpfs none /run && ip link add switch type bridge && ip netns add a && command -v ss";
    let mut probe = Command::new("unshare");
    let probe = probe.args(namespaces).args(["bash", "-c", try_out]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return skip(Missing::Namespaces);
    }
    let root = tempfile::tempdir().unwrap();
    let script = repository().join("compat-tests/tests/node/three_machines.sh");
    let mut machines = Command::new("unshare");
    machines.args(namespaces).arg(script).arg(corona_program()).arg(root.path());
    machines.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
    let output = machines.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.ends_with("all is well\n"),
        "{said}\n{}",
        stderr(&output)
    );
}
