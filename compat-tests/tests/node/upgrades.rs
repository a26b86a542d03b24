//! A cluster is upgraded under running jobs, daemon by daemon, and taken back: two instances of the cluster manager
//! with a ZooKeeper and a gateway, the job tracker service, the proxy job tracker and three nodes.
//!
//! `scripts/mixed-versions` runs the same with a program that it builds from an earlier commit, which
//! `CORONA_EARLIER` names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use compat_tests::corona_program;
use compat_tests::daemons::tell_end;
use compat_tests::serving::{fetch, free_address, keep_address};
use compat_tests::task_tracker::PATIENCE;
use compat_tests::task_tracker::node::signal;
use compat_tests::zookeeper::ZooKeeper;
use corona::session_driver::{
    Endpoint, Event, Options, ResourceType, SessionDriver, SessionStatus, SlotRequest,
};
use serde_json::Value as Json;
use tempfile::TempDir;

use super::mini_cluster::{stderr, until};
use super::several_machines::Machines;

/// The version of the present program.
const PRESENT: &str = env!("CARGO_PKG_VERSION");
const NODES: u8 = 3;

/// A version of the program.
#[derive(Clone, Debug)]
struct Program {
    file: PathBuf,
    version: String,
    /// Whether a job tracker service and a node that get SIGHUP start again in the same process.
    restarts_in_place: bool,
}

impl Program {
    fn present(directory: &Path) -> Program {
        let file = directory.join("present");
        link(corona_program(), &file);
        Program { file, version: PRESENT.to_owned(), restarts_in_place: true }
    }

    /// The present program with a version that is higher by one: the same bytes but for the number.
    fn raised(directory: &Path) -> Program {
        let (numbers, rest) = PRESENT.split_once('-').unwrap_or((PRESENT, ""));
        let (first, patch) = numbers.rsplit_once('.').expect("three numbers");
        let patch = patch.parse::<u32>().expect("a number") + 1;
        let version = format!("{first}.{patch}-{rest}");
        let version = version.trim_end_matches('-').to_owned();
        assert_eq!(version.len(), PRESENT.len(), "a number of as many digits");
        let file = directory.join("raised");
        let into = File::create(&file).expect("a file");
        let change = format!("s/{}/{version}/g", PRESENT.replace('.', "\\."));
        let sed = Command::new("sed")
            .env("LC_ALL", "C")
            .arg(change)
            .arg(corona_program())
            .stdout(into)
            .status();
        assert!(sed.expect("sed").success());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("an executable file");
        Program { file, version, restarts_in_place: true }
    }

    /// A program of before, which starts again as a new process only.
    fn earlier(directory: &Path, from: &Path) -> Program {
        let file = directory.join("earlier");
        link(from, &file);
        let output = Command::new(&file).arg("--version").output().expect("the earlier program");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().nth(1).expect("a version").to_owned();
        Program { file, version, restarts_in_place: false }
    }

    /// Puts it in the place of another one, as a package does: the file that runs stays as it is.
    fn install(&self, place: &Path) {
        let new = place.with_extension("new");
        let _ = fs::remove_file(&new);
        link(&self.file, &new);
        // Two names of one file are left as they are by `rename`.
        let _ = fs::remove_file(place);
        fs::rename(&new, place).expect("the file of a program");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
        command
    }
}

/// Whether a daemon goes on in its process when one program takes the place of the other.
fn restarts_in_place(from: &Program, to: &Program) -> bool {
    from.restarts_in_place && to.restarts_in_place
}

/// The same file under another name, or a copy on another disk.
fn link(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).expect("a copy of the program");
    }
}

/// A daemon and the file that it was started from, which is its own.
struct Daemon {
    name: String,
    root: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
    pages: Option<SocketAddr>,
}

impl Daemon {
    fn program(&self) -> PathBuf {
        self.root.join("bin").join(&self.name)
    }

    fn output(&self, what: &str) -> PathBuf {
        self.root.join("logs").join(format!("{}.{what}", self.name))
    }

    /// Puts a program in the place of its own.
    fn install(&self, program: &Program) {
        program.install(&self.program());
    }

    /// How often it has said that it is ready.
    fn readies(&self) -> usize {
        let said = fs::read_to_string(self.output("out")).unwrap_or_default();
        said.lines().filter(|line| line.contains(" ready: ")).count()
    }

    fn start(&mut self) {
        let open = |what| {
            let file = File::options().create(true).append(true).open(self.output(what));
            file.expect("a file for what a daemon says")
        };
        let before = self.readies();
        let mut command = Command::new(self.program());
        command.env_remove("HADOOP_CONF_DIR").env_remove("NOTIFY_SOCKET");
        command.args(&self.arguments).current_dir(&self.root);
        command.stdin(Stdio::null()).stdout(open("out")).stderr(open("log"));
        self.child = Some(command.spawn().expect("the program can be started"));
        self.until_ready(before);
    }

    /// Waits until it has said once more that it is ready.
    fn until_ready(&mut self, before: usize) {
        until(&format!("the start of {}", self.name), || {
            let child = self.child.as_mut().expect("a daemon that runs");
            assert_eq!(child.try_wait().ok().flatten(), None, "{} ended", self.name);
            (self.readies() > before).then_some(())
        });
    }

    /// Ends it as an operator does.
    fn stop(&mut self) {
        let mut child = self.child.take().expect("a daemon that runs");
        signal("TERM", child.id());
        let status =
            until(&format!("the end of {}", self.name), || child.try_wait().ok().flatten());
        assert!(status.success(), "{}: {status}", self.name);
    }

    /// As `systemctl reload`: it starts again in the same process.
    fn restart_in_place(&mut self) {
        let before = self.readies();
        let id = self.child.as_ref().expect("a daemon that runs").id();
        signal("HUP", id);
        self.until_ready(before);
    }

    /// The version that it shows.
    fn version(&self) -> Option<String> {
        let pages = self.pages?.to_string();
        let (_, metrics) = fetch(&pages, "/metrics")?;
        let Some(line) = metrics.lines().find(|line| line.contains("build_info{")) else {
            // A standby.
            let (_, status) = fetch(&pages, "/api/v1/status")?;
            let status: Json = serde_json::from_str(&status).ok()?;
            return Some(status["version"].as_str()?.to_owned());
        };
        Some(line.split('"').nth(1)?.to_owned())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// All daemons of a cluster.
struct Cluster {
    daemons: BTreeMap<String, Daemon>,
    /// The address of the gateway, or else of the cluster manager.
    manager: SocketAddr,
    pages: SocketAddr,
    proxy: SocketAddr,
    proxy_pages: SocketAddr,
    job_pages: SocketAddr,
    node_port: u16,
    programs: Vec<Program>,
    zookeeper: Option<ZooKeeper>,
    path: PathBuf,
    root: TempDir,
}

fn property((key, value): &(&str, String)) -> String {
    let value = value.replace('&', "&amp;").replace('<', "&lt;");
    format!("<property><name>{key}</name><value>{value}</value></property>\n")
}

impl Cluster {
    /// Starts all daemons with the first of these programs.
    fn start(root: TempDir, zookeeper: ZooKeeper, programs: Vec<Program>) -> Cluster {
        let own = [
            ("corona.cm.journal.image.bytes", "65536".to_owned()),
            ("corona.cm.ha.zookeeper", zookeeper.servers()),
            ("corona.cm.ha.session.timeout.ms", "4000".into()),
            ("corona.cm.ha.instances", "127.0.0.0/8".into()),
            ("corona.cm.ha.ack", "standby".into()),
        ];
        let mut cluster = Cluster::laid_out(root, programs, &own);
        cluster.zookeeper = Some(zookeeper);
        let first = cluster.programs[0].clone();
        for (name, web) in [("instance-a", cluster.pages), ("instance-b", free_address())] {
            // Earlier standbys make no directory above it.
            fs::create_dir(cluster.at(name)).expect("a directory");
            let own = [
                ("cm.server.address", free_address().to_string()),
                ("cm.server.http.address", web.to_string()),
                ("corona.cm.ha.replication.address", free_address().to_string()),
                ("corona.cm.journal.dir", cluster.at(&format!("{name}/journal"))),
                ("cm.state", cluster.at(&format!("{name}/cm.state"))),
            ];
            cluster.add(name, "cluster-manager", &first, Some(web), &own);
        }
        let own = [("corona.gateway.address", cluster.manager.to_string())];
        cluster.add("gateway", "gateway", &first, None, &own);
        cluster.add_jobs_and_nodes(&first);
        cluster
    }

    /// Starts one cluster manager without a journal with the first of these programs, and all other daemons with the second.
    /// One more node runs the first program, and has a slot for job trackers alone.
    fn with_a_state_file(root: TempDir, programs: Vec<Program>) -> Cluster {
        let mut cluster = Cluster::laid_out(root, programs, &[]);
        let (first, second) = (cluster.programs[0].clone(), cluster.programs[1].clone());
        let own = [("cm.state", cluster.at("cm.state"))];
        cluster.add("manager", "cluster-manager", &first, Some(cluster.pages), &own);
        cluster.add_jobs_and_nodes(&second);
        let cpus = ("mapred.coronatasktracker.num.cpus", "2".to_owned());
        cluster.add_node(NODES + 1, &first, &[cpus]);
        cluster
    }

    /// The directories and the configuration of a cluster without daemons.
    fn laid_out(root: TempDir, programs: Vec<Program>, own: &[(&str, String)]) -> Cluster {
        let cluster = Cluster {
            daemons: BTreeMap::new(),
            manager: free_address(),
            pages: free_address(),
            proxy: free_address(),
            proxy_pages: free_address(),
            job_pages: free_address(),
            node_port: free_address().port(),
            programs,
            zookeeper: None,
            path: root.path().canonicalize().expect("a directory"),
            root,
        };
        for name in ["bin", "conf", "logs", "in"] {
            fs::create_dir(cluster.at(name)).expect("a directory");
        }
        let (jobs, rpc) = (free_address(), free_address());
        let node_pages = SocketAddr::from(([127, 0, 0, 1], cluster.node_port));
        let conf = [
            ("cm.server.address", cluster.manager.to_string()),
            ("cm.server.http.address", cluster.pages.to_string()),
            (
                "cm.cpu.to.resource.partitioning",
                r#"{"1":{"MAP":2,"REDUCE":2,"JOBTRACKER":1},"2":{"JOBTRACKER":1}}"#.into(),
            ),
            ("cm.notifier.pollinterval", "20".into()),
            // Earlier nodes report again ten seconds after a connection broke.
            ("cm.node.expiryinterval", "30000".into()),
            ("corona.jt.address", jobs.to_string()),
            ("mapred.job.tracker", jobs.to_string()),
            ("mapred.job.tracker.http.address", cluster.job_pages.to_string()),
            ("corona.proxy.job.tracker.thriftaddr", cluster.proxy.to_string()),
            ("corona.proxy.job.tracker.rpcaddr", rpc.to_string()),
            ("mapred.job.tracker.corona.proxyaddr", cluster.proxy_pages.to_string()),
            ("corona.sessions.log.dir", format!("file:{}", cluster.at("history"))),
            ("corona.system.dir", format!("file:{}", cluster.at("system"))),
            ("mapred.system.dir", format!("file:{}", cluster.at("system"))),
            ("corona.jt.data.dir", cluster.at("job-tracker")),
            ("corona.pjt.data.dir", cluster.at("proxy-job-tracker")),
            ("hadoop.tmp.dir", cluster.at("tmp")),
            ("fs.default.name", "file:///".into()),
            ("mapred.task.tracker.http.address", node_pages.to_string()),
            ("corona.loopback.only", "true".into()),
            ("corona.tt.native.tasks", "streaming".into()),
            ("mapred.coronatasktracker.num.cpus", "1".into()),
            ("corona.clustermanager.heartbeat.interval", "200".into()),
            ("corona.jobtracker.heartbeat.interval", "100".into()),
            ("mapreduce.tasktracker.outofband.heartbeat", "true".into()),
            ("mapred.map.tasks.speculative.execution", "false".into()),
            ("mapred.reduce.tasks.speculative.execution", "false".into()),
        ];
        let text: String = conf.iter().chain(own).map(property).collect();
        let text = format!("<?xml version=\"1.0\"?>\n<configuration>\n{text}</configuration>\n");
        fs::write(cluster.at("conf/core-site.xml"), text).expect("a configuration");
        cluster
    }

    /// A path in its directory, as text.
    fn at(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn add_jobs_and_nodes(&mut self, program: &Program) {
        self.add("proxy", "proxy-job-tracker", program, Some(self.proxy_pages), &[]);
        self.add("jobs", "job-tracker", program, Some(self.job_pages), &[]);
        for number in 1..=NODES {
            self.add_node(number, program, &[]);
        }
    }

    /// Nodes have pages at one port, as the cluster manager's links expect.
    fn add_node(&mut self, number: u8, program: &Program, more: &[(&str, String)]) {
        let name = format!("node-{number}");
        let web = SocketAddr::from(([127, 0, 0, number], self.node_port));
        if number > 1 {
            keep_address(web);
        }
        let own = [
            ("mapred.local.dir", self.at(&format!("{name}/local"))),
            ("hadoop.log.dir", self.at(&format!("{name}/logs"))),
            ("hadoop.tmp.dir", self.at(&format!("{name}/tmp"))),
            ("slave.host.name", web.ip().to_string()),
            ("mapred.task.tracker.http.address", web.to_string()),
            ("corona.tt.action.port", free_address().port().to_string()),
        ];
        let own = [&own, more].concat();
        self.add(&name, "task-tracker", program, Some(web), &own);
    }

    fn add(
        &mut self,
        name: &str,
        command: &str,
        program: &Program,
        pages: Option<SocketAddr>,
        own: &[(&str, String)],
    ) {
        let mut arguments = vec![command.to_owned(), "--conf-dir".into(), "conf".into()];
        for (key, value) in own {
            arguments.extend(["-D".to_owned(), format!("{key}={value}")]);
        }
        let root = self.root.path().to_owned();
        let mut daemon = Daemon { name: name.to_owned(), root, arguments, child: None, pages };
        daemon.install(program);
        daemon.start();
        self.daemons.insert(name.to_owned(), daemon);
    }

    fn daemon(&mut self, name: &str) -> &mut Daemon {
        self.daemons.get_mut(name).expect("a daemon of this name")
    }

    fn tool(&self, program: &Program, arguments: &[&str]) -> Output {
        let mut command = program.command();
        command.args(arguments).args(["--conf-dir", "conf"]).current_dir(self.root.path());
        command.output().expect("the program can be started")
    }

    /// What an instance shows of its part.
    fn part(&self, instance: &str) -> Option<Json> {
        let pages = self.daemons.get(instance)?.pages?;
        let (_, body) = fetch(&pages.to_string(), "/api/v1/status")?;
        let mut status: Json = serde_json::from_str(&body).ok()?;
        Some(status["ha"].take())
    }

    /// The instance that leads, and the standby that may take over.
    fn roles(&self) -> (&'static str, &'static str) {
        const INSTANCES: [(&str, &str); 2] =
            [("instance-a", "instance-b"), ("instance-b", "instance-a")];
        until("a leader with a standby", || {
            INSTANCES.into_iter().find(|(leader, _)| {
                let Some(part) = self.part(leader) else { return false };
                let standbys = part["standbys"].as_array().cloned().unwrap_or_default();
                part["role"] == "leader" && standbys.iter().any(|one| one["in_sync"] == true)
            })
        })
    }

    /// Puts a program in the place of a daemon's.
    fn restart(&mut self, name: &str, to: &Program) {
        let daemon = self.daemon(name);
        daemon.install(to);
        daemon.stop();
        if let Some(pages) = daemon.pages {
            keep_address(pages);
        }
        daemon.start();
    }

    /// The same for those that start again in their process where both programs can.
    fn renew(&mut self, name: &str, from: &Program, to: &Program) {
        if !restarts_in_place(from, to) {
            return self.restart(name, to);
        }
        let daemon = self.daemon(name);
        daemon.install(to);
        daemon.restart_in_place();
    }

    /// Puts a program in the place of both instances: the standby first, to which the leader steps down.
    fn change_instances(&mut self, to: &Program, grants: &Grants) {
        let (leader, standby) = self.roles();
        grants.beside("a standby", || self.restart(standby, to));
        assert_eq!(self.roles(), (leader, standby));
        grants.beside("the step down of the leader", || {
            let pages = self.daemons[leader].pages.expect("its pages").to_string();
            let stepped = self.tool(to, &["admin", "step-down", "--http-address", &pages]);
            assert!(stepped.status.success(), "{}", stderr(&stepped));
            until("another leader", || {
                let part = self.part(standby)?;
                (part["role"] == "leader").then_some(())
            });
        });
        grants.beside("the former leader", || self.restart(leader, to));
        assert_eq!(self.roles(), (standby, leader));
    }

    /// Puts a program in the place of each node's: where its tasks would end with it, it is drained first, by the
    /// tool of the present program.
    fn change_nodes(&mut self, from: &Program, to: &Program, grants: &mut Grants) {
        let drains = !restarts_in_place(from, to);
        let tool = if from.restarts_in_place { from } else { to };
        for number in 1..=NODES {
            let name = format!("node-{number}");
            if drains {
                // A session that does not say what it needs on a node has a drain wait for its end.
                std::mem::replace(grants, Grants::none()).end();
                let id = self.node_name(&name);
                let drained = self.tool(tool, &["nodes", "drain", &id, "--wait=120"]);
                assert!(drained.status.success(), "{}", stderr(&drained));
                *grants = Grants::begin(self.manager, self.proxy);
            }
            grants.beside(&name, || self.renew(&name, from, to));
        }
    }

    /// Puts a program in the place of all nodes', and has the cluster manager ask them to start again.
    fn roll_nodes(&mut self, to: &Program, grants: &Grants) {
        for number in 1..=NODES {
            self.daemon(&format!("node-{number}")).install(to);
        }
        grants.beside("all nodes", || {
            let rolled = self.tool(to, &["admin", "restart-nodes", "--rolling", "--json"]);
            let shown = String::from_utf8_lossy(&rolled.stdout);
            assert!(rolled.status.success(), "{shown}{}", stderr(&rolled));
            let report: Json = serde_json::from_slice(&rolled.stdout).expect("a report");
            let results = report["nodes"].as_array().expect("nodes").iter();
            let results: Vec<Option<&str>> = results.map(|it| it["result"].as_str()).collect();
            assert_eq!(results, [Some("restarted_in_place"); NODES as usize], "{report:#}");
        });
    }

    /// Upgrades each daemon in turn.
    fn upgrade(&mut self, from: &Program, to: &Program, held: HeldJob, grants: &mut Grants) {
        self.change_instances(to, grants);
        grants.beside("the gateway", || self.restart("gateway", to));
        grants.beside("the proxy job tracker", || self.restart("proxy", to));
        grants.beside("the job tracker service", || self.renew("jobs", from, to));
        let root = self.root.path().to_owned();
        let held = held.unless(&root, !restarts_in_place(from, to));
        match restarts_in_place(from, to) {
            true => self.roll_nodes(to, grants),
            false => self.change_nodes(from, to, grants),
        }
        if let Some(held) = held {
            held.ends(&root);
        }
        self.all_have(to);
    }

    /// Takes each daemon back, in the reverse order.
    fn take_back(&mut self, from: &Program, to: &Program, held: HeldJob, grants: &mut Grants) {
        let root = self.root.path().to_owned();
        let held = held.unless(&root, !restarts_in_place(from, to));
        self.change_nodes(from, to, grants);
        // It begins when no node has to be drained any more.
        let held = held.unwrap_or_else(|| HeldJob::submit(&root, from, "held-back", false));
        grants.beside("the job tracker service", || self.renew("jobs", from, to));
        grants.beside("the proxy job tracker", || self.restart("proxy", to));
        grants.beside("the gateway", || self.restart("gateway", to));
        if !to.restarts_in_place {
            self.forget_drains();
        }
        self.change_instances(to, grants);
        held.ends(&root);
        self.all_have(to);
    }

    /// Puts a program in the place of a cluster manager without a journal: its sessions are in a state file, and wait
    /// meanwhile.
    fn change_manager(&mut self, from: &Program, to: &Program) {
        for step in ["set-safe-mode", "persist-state"] {
            let done = self.tool(from, &["admin", step]);
            assert!(done.status.success(), "{step}: {}", stderr(&done));
        }
        const RECOVER: &str = "--recover-from-disk";
        let daemon = self.daemon("manager");
        if daemon.arguments.last().is_none_or(|last| last != RECOVER) {
            daemon.arguments.push(RECOVER.to_owned());
        }
        self.restart("manager", to);
    }

    /// Waits until all nodes are members without problems.
    fn until_nodes(&self, tool: &Program, nodes: u8) {
        until("all nodes", || {
            let listed = self.tool(tool, &["nodes", "list", "--json"]);
            let list: Json = serde_json::from_slice(&listed.stdout).ok()?;
            let list = list["nodes"].as_array()?.iter();
            let well = list.filter(|node| node["problems"].as_array().is_none_or(Vec::is_empty));
            (well.count() == usize::from(nodes)).then_some(())
        });
    }

    /// Waits until all daemons show the version of this program.
    fn all_have(&self, program: &Program) {
        for daemon in self.daemons.values().filter(|daemon| daemon.pages.is_some()) {
            until(&format!("the version of {}", daemon.name), || {
                (daemon.version()? == program.version).then_some(())
            });
        }
        // An operator sees the same.
        // By the present program, or a later one.
        let mut tools = std::iter::once(program).chain(&self.programs);
        let tool = tools.find(|tool| tool.restarts_in_place).expect("a program");
        let mut check = vec!["admin".to_owned(), "upgrade-check".into(), "--json".into()];
        for instance in ["instance-a", "instance-b"] {
            let pages = self.daemons[instance].pages.expect("its pages");
            check.extend(["--pages".into(), pages.to_string()]);
        }
        let check: Vec<&str> = check.iter().map(String::as_str).collect();
        let checked = self.tool(tool, &check);
        let report: Json = serde_json::from_slice(&checked.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&checked)));
        let all_have_it = program.version == tool.version;
        assert_eq!(checked.status.success(), all_have_it, "{report:#}");
        let daemons = report["daemons"].as_array().expect("daemons");
        let versions = daemons.iter().map(|daemon| daemon["version"].as_str());
        assert!(versions.clone().all(|it| it == Some(&program.version)), "{report:#}");
        // Two instances, the proxy job tracker, the job tracker, and the nodes.
        assert_eq!(versions.count(), 4 + usize::from(NODES), "{report:#}");
        assert_eq!(report["steps"].as_array().map(Vec::is_empty), Some(all_have_it), "{report:#}");
    }

    /// Waits until the journal of the leader says nothing any more of drains, which versions before 0.2.0 do not read:
    /// until the nodes that were drained have expired, and an image was made since.
    fn forget_drains(&self) {
        let (leader, _) = self.roles();
        let pages = self.daemons[leader].pages.expect("its pages").to_string();
        until("the expiry of drained nodes", || {
            let (_, nodes) = fetch(&pages, "/api/v1/nodes")?;
            (!nodes.contains(r#""draining""#)).then_some(())
        });
        let image = || {
            let (_, metrics) = fetch(&pages, "/metrics")?;
            let mut lines = metrics.lines();
            let line =
                lines.find(|line| line.starts_with("corona_journal_image_timestamp_seconds"))?;
            line.rsplit(' ').next()?.parse::<f64>().ok()
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        until("a later image", || (image()? > now.as_secs_f64() + 1.0).then_some(()));
    }

    /// The name that a node has at the cluster manager.
    fn node_name(&self, daemon: &str) -> String {
        let said = fs::read_to_string(self.daemons[daemon].output("out")).expect("its output");
        let ready = said.lines().rfind(|line| line.contains(" ready: ")).expect("a line");
        ready.rsplit(' ').next().expect("a name").to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            for daemon in self.daemons.values() {
                let log = fs::read_to_string(daemon.output("log")).unwrap_or_default();
                tell_end(&daemon.name, &log, 25);
            }
        }
    }
}

/// A session that takes slots and gives them back, and the longest time without one.
struct Grants {
    count: Arc<AtomicU64>,
    longest_ms: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Grants {
    fn none() -> Grants {
        Grants {
            count: Arc::default(),
            longest_ms: Arc::default(),
            stop: Arc::default(),
            thread: None,
        }
    }

    fn begin(manager: SocketAddr, proxy: SocketAddr) -> Grants {
        let grants = Grants::none();
        let (count, longest_ms, stop) =
            (grants.count.clone(), grants.longest_ms.clone(), grants.stop.clone());
        let run = async move {
            let endpoint = |at: SocketAddr| Endpoint::new(at.ip().to_string(), at.port());
            let mut options = Options::new(endpoint(manager), "watcher");
            options.proxy_job_tracker = Some(endpoint(proxy));
            // Two heartbeats with a notification on its way between them end a session, as with the original.
            options.timers.heartbeat_interval = Duration::from_secs(5);
            options.timers.poll_interval = Duration::from_millis(20);
            options.timers.safe_mode_poll = Duration::from_millis(20);
            let (driver, mut events) = SessionDriver::start(options).await.expect("a session");
            // No job of this test asks for slots of this type.
            let slot = || vec![SlotRequest::new(ResourceType::JobTracker)];
            driver.request(slot()).expect("a request");
            let mut last = Instant::now();
            while !stop.load(Ordering::SeqCst) {
                let event = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
                let since = u64::try_from(last.elapsed().as_millis()).unwrap_or(u64::MAX);
                match event {
                    // Silence counts while it lasts.
                    Err(_) => drop(longest_ms.fetch_max(since, Ordering::SeqCst)),
                    Ok(Some(Event::Granted(given))) => {
                        longest_ms.fetch_max(since, Ordering::SeqCst);
                        count.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        last = Instant::now();
                        driver.release(given.iter().map(|grant| grant.id)).expect("a release");
                        driver.request(slot()).expect("a request");
                    }
                    Ok(Some(Event::Revoked(lost) | Event::DeadNode { lost, .. })) => {
                        driver.replace(&lost).expect("other requests");
                    }
                    Ok(Some(Event::Ended(ending))) => panic!("the session {ending}"),
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("the session is over"),
                }
            }
            driver.end(SessionStatus::Successful).await;
        };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = { runtime }.worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(run);
        });
        Grants { thread: Some(thread), ..grants }
    }

    /// Does something meanwhile, and waits until slots are granted after it.
    #[allow(clippy::print_stderr, reason = "the times stand in docs/reference/performance.md")]
    fn beside(&self, what: &str, act: impl FnOnce()) {
        self.longest_ms.store(0, Ordering::SeqCst);
        act();
        let before = self.count.load(Ordering::SeqCst);
        until(&format!("grants after {what}"), || {
            let thread = self.thread.as_ref().expect("a thread");
            assert!(!thread.is_finished(), "the session of the test has ended");
            (self.count.load(Ordering::SeqCst) > before + 2).then_some(())
        });
        let longest = self.longest_ms.load(Ordering::SeqCst);
        eprintln!("{what}: no grant for {longest} ms at most");
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().expect("a thread").join().expect("a session to its end");
    }
}

/// Why a job tracker that starts again gives up an attempt of which no node has reported yet.
const UNREPORTED: &str = "The job tracker was restarted";

/// A job that the client has described in JSON succeeded, and none of its tasks failed or ended well twice, or, where
/// `once`, was taken from its node.
fn check_job(root: &Path, output: &Output, tasks: usize, once: bool) {
    assert!(output.status.success(), "{}", stderr(output));
    let job: Json = serde_json::from_slice(&output.stdout).expect("a job as JSON");
    let id = job["job"].as_str().expect("its id");
    let history = until(&format!("the history of {id}"), || {
        let trackers = fs::read_dir(root.join("history")).ok()?.flatten();
        let mut histories = trackers.map(|tracker| tracker.path().join("done").join(id));
        fs::read_to_string(histories.find(|path| path.is_file())?).ok()
    });
    let attempts = history.lines().filter(|line| {
        let is_attempt = line.starts_with("MapAttempt") || line.starts_with("ReduceAttempt");
        is_attempt && (line.contains(r#"TYPE="MAP""#) || line.contains(r#"TYPE="REDUCE""#))
    });
    let (mut succeeded, mut failed, mut killed) = (Vec::new(), Vec::new(), Vec::new());
    for line in attempts {
        let task = line.split("TASKID=").nth(1).and_then(|rest| rest.split('"').nth(1));
        if line.contains(r#"TASK_STATUS="SUCCESS""#) {
            succeeded.push(task);
        } else if line.contains(r#"TASK_STATUS="FAILED""#) {
            failed.push(task);
        } else if line.contains(r#"TASK_STATUS="KILLED""#) && !line.contains(UNREPORTED) {
            killed.push(task);
        }
    }
    assert!(!once || killed.is_empty(), "{history}");
    succeeded.sort_unstable();
    let all = succeeded.len();
    succeeded.dedup();
    assert_eq!((all, succeeded.len(), failed.len()), (tasks, tasks, 0), "{history}");
}

/// A job whose last two maps wait until they are let go.
struct HeldJob {
    client: JoinHandle<Output>,
    /// Whether its tasks must run once each.
    once: bool,
}

const HELD_MAPS: usize = 6;

impl HeldJob {
    fn submit(root: &Path, client: &Program, name: &str, once: bool) -> HeldJob {
        let go = root.join("go");
        let _ = fs::remove_file(&go);
        let inputs = root.join(format!("in-{name}"));
        fs::create_dir(&inputs).expect("a directory");
        for map in 0..HELD_MAPS {
            let text = if map < 4 { format!("quick {map}\n") } else { format!("held {map}\n") };
            fs::write(inputs.join(map.to_string()), text).expect("an input");
        }
        let mapper = format!(
            "while read -r kind n; do touch {0}/{name}-began-$n; \
             [ $kind = held ] && while [ ! -e {0}/go ]; do sleep 0.1; done; echo \"$n\"; done",
            root.display()
        );
        let mut command = client.command();
        command.args(["job", "run", "--conf-dir", "conf", "--json"]).current_dir(root);
        command.args(["--input", &format!("in-{name}/*"), "--output", &format!("out-{name}")]);
        command.args(["--mapper", &mapper, "--reducer", "cat", "--reduces", "1"]);
        let job = thread::spawn(move || command.output().expect("the program can be started"));
        let began = |n: usize| root.join(format!("{name}-began-{n}")).exists();
        until("all maps", || (0..HELD_MAPS).all(began).then_some(()));
        HeldJob { client: job, once }
    }

    /// The same job, unless it has to end now.
    fn unless(self, root: &Path, ends: bool) -> Option<HeldJob> {
        if ends {
            self.ends(root);
            return None;
        }
        Some(self)
    }

    fn ends(self, root: &Path) {
        fs::write(root.join("go"), "").expect("a file");
        let output = self.client.join().expect("a client to its end");
        check_job(root, &output, HELD_MAPS + 1, self.once);
    }
}

/// Jobs one after another, until they are to stop.
struct ManyJobs {
    stop: Arc<AtomicBool>,
    outputs: Arc<Mutex<Vec<Output>>>,
    root: PathBuf,
    once: bool,
    threads: Vec<JoinHandle<()>>,
}

impl ManyJobs {
    fn begin(root: &Path, client: &Program, name: &'static str, once: bool) -> ManyJobs {
        let (root, threads) = (root.to_owned(), vec![]);
        let mut jobs =
            ManyJobs { stop: Arc::default(), outputs: Arc::default(), root, once, threads };
        for line in 0..2 {
            let (stop, outputs) = (jobs.stop.clone(), jobs.outputs.clone());
            let (root, client) = (jobs.root.clone(), client.clone());
            jobs.threads.push(thread::spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    number += 1;
                    let output = small_job(&root, &client, &format!("{name}-{line}-{number}"));
                    outputs.lock().expect("a lock").push(output);
                }
            }));
        }
        jobs
    }

    /// How many there were.
    fn end(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("clients to their end");
        }
        let outputs = self.outputs.lock().expect("a lock");
        for output in outputs.iter() {
            check_job(&self.root, output, 3, self.once);
        }
        outputs.len()
    }
}

/// How a job is refused while a job tracker service of an earlier version is replaced: no cluster manager answers at the
/// moment, or the id was given out before a restart. Nothing has begun then.
const REFUSED: [&str; 2] =
    ["no session at the cluster manager", "was not issued by this job tracker"];

/// Runs a job of two maps that take a moment, and a reduce.
fn small_job(root: &Path, client: &Program, name: &str) -> Output {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut command = client.command();
        command.args(["job", "run", "--conf-dir", "conf", "--json", "--input", "in/*"]);
        command.args(["--output", &format!("out-{name}"), "--mapper", "sleep 0.3; cat"]);
        command.args(["--reducer", "uniq -c", "--reduces", "1"]).current_dir(root);
        let output = command.output().expect("the program can be started");
        let said = stderr(&output);
        let is_refused =
            !client.restarts_in_place && REFUSED.iter().any(|words| said.contains(words));
        if !is_refused || Instant::now() > deadline {
            return output;
        }
    }
}

/// Upgrades a cluster from the first program to the second, and takes it back.
#[allow(clippy::print_stderr, reason = "the developer of one test sees what it does")]
fn there_and_back(programs: impl FnOnce(&Path) -> [Program; 2]) {
    let Some(zookeeper) = ZooKeeper::start() else { return };
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let [from, to] = programs(root.path());
    let mut cluster = Cluster::start(root, zookeeper, vec![from.clone(), to.clone()]);
    let root = cluster.root.path().to_owned();
    for name in ["a", "b"] {
        fs::write(root.join("in").join(name), "x\ny\n").expect("an input");
    }
    let mut grants = Grants::begin(cluster.manager, cluster.proxy);
    for (from, to, name) in [(&from, &to, "there"), (&to, &from, "back")] {
        eprintln!("from {} to {}", from.version, to.version);
        let once = restarts_in_place(from, to);
        let held = HeldJob::submit(&root, from, name, once);
        let jobs = ManyJobs::begin(&root, from, name, once);
        match name {
            "there" => cluster.upgrade(from, to, held, &mut grants),
            _ => cluster.take_back(from, to, held, &mut grants),
        }
        eprintln!("{} jobs meanwhile", jobs.end());
        // Clients of both versions, when all daemons have the other one.
        for (number, client) in [from, to].into_iter().enumerate() {
            let done = small_job(&root, client, &format!("{name}-after-{number}"));
            check_job(&root, &done, 3, true);
        }
    }
    grants.end();
}

#[test]
fn a_cluster_is_upgraded_and_taken_back_under_running_jobs() {
    there_and_back(|directory| [Program::present(directory), Program::raised(directory)]);
}

/// A head gets SIGHUP under a running job: its parts start again from the file that has taken the place of theirs, and
/// the node is asked to do the same. Then all go back. Each map runs once, also over a restart of the job tracker just
/// after its launch.
#[test]
fn a_head_is_upgraded_in_place_and_taken_back_under_a_running_job() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (present, raised) = (Program::present(directory.path()), Program::raised(directory.path()));
    let installed = directory.path().join("corona");
    present.install(&installed);
    let world = Machines::of(installed.clone());
    let head = world.first_head();
    let _node = world.node(1, &[&head.line("join")]);
    world.succeeds(&["login", &head.line("login")]);
    world.until_nodes(1);
    fs::create_dir(world.path("in")).expect("a directory");
    for map in ["1", "2"] {
        fs::write(world.path("in").join(map), format!("{map}\n")).expect("an input");
    }
    let root = world.path("");
    let mapper = format!(
        "read -r n; echo x >>{0}/began-$n; while [ ! -e {0}/go ]; do sleep 0.1; done; echo $n",
        root.display()
    );
    let mut job = world.command(&["job", "run", "--json", "--input", "in/*", "--output", "out"]);
    job.args(["--mapper", &mapper, "--reducer", "cat", "--reduces", "1"]);
    let job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a client");
    let began = |map: &str| world.log(&format!("began-{map}"));
    until("both maps", || ["1", "2"].iter().all(|map| !began(map).is_empty()).then_some(()));
    // The job tracker starts again at once, before the node has reported that they run.
    signal("HUP", world.pid("head", "job-tracker"));
    until("a job tracker that goes on with the job", || {
        let resumed = world.log("head/logs/job-tracker.log").contains("resumed a job");
        (resumed && world.log("head.log").contains("job-tracker: ready again")).then_some(())
    });
    let parts = ["cluster-manager", "proxy-job-tracker", "job-tracker"];
    let numbers = || parts.map(|part| world.pid("head", part));
    for (times, program) in [&raised, &present].into_iter().enumerate() {
        let before = numbers();
        program.install(&installed);
        head.hang_up();
        until("the parts of the head", || {
            let said = world.log("head.log");
            let all = format!("SIGHUP: all parts run corona {}", program.version);
            assert!(!said.contains("does not serve"), "{said}");
            (said.matches("SIGHUP: all parts run").count() == times + 1 && said.contains(&all))
                .then_some(())
        });
        let after = numbers();
        assert!(before[0] != after[0] && before[1] != after[1]);
        assert_eq!(before[2], after[2], "the job tracker goes on in its process");
        let local = ["--json", "--conf-dir", "head/conf"];
        let rolled = [&["admin", "restart-nodes", "--rolling"][..], &local].concat();
        let rolled = until("a node that is known again", || {
            let output = world.run(&rolled);
            output.status.success().then_some(output)
        });
        let rolled = String::from_utf8_lossy(&rolled.stdout).into_owned();
        assert!(rolled.contains("restarted_in_place"), "{rolled}");
        // By the program that all of them run now.
        world.succeeds(&[&["admin", "upgrade-check"][..], &local].concat());
        let versions = world.succeeds(&[&["status"][..], &local].concat());
        assert!(versions.contains(&program.version), "{versions}");
    }
    fs::write(world.path("go"), "").expect("a file");
    let output = job.wait_with_output().expect("a client to its end");
    assert!(output.status.success(), "{}", stderr(&output));
    // The logs say why a second attempt began.
    assert_eq!(["1", "2"].map(began), ["x\n", "x\n"], "{}", world.all_logs());
}

/// Nodes of such a program are drained before they end, since their tasks end with them.
#[test]
#[ignore = "needs an earlier program: scripts/mixed-versions"]
fn a_cluster_of_an_earlier_program_is_upgraded_and_taken_back() {
    let earlier = std::env::var_os("CORONA_EARLIER").expect("CORONA_EARLIER names a program");
    let earlier = PathBuf::from(earlier);
    there_and_back(|directory| {
        [Program::earlier(directory, &earlier), Program::present(directory)]
    });
}

/// The first state of version 0.1.0 has a cluster manager without a journal, and nodes that run Java alone. Its cluster
/// manager works with all else of the present, and hands its sessions over in its state file, there and back; its node
/// works with the present cluster manager.
#[test]
#[ignore = "needs an earlier program: scripts/mixed-versions"]
#[allow(clippy::print_stderr, reason = "the developer of one test sees what it does")]
fn a_cluster_manager_without_a_journal_is_upgraded_and_taken_back() {
    let earlier = std::env::var_os("CORONA_EARLIER").expect("CORONA_EARLIER names a program");
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let from = Program::earlier(root.path(), &PathBuf::from(earlier));
    let to = Program::present(root.path());
    let mut cluster = Cluster::with_a_state_file(root, vec![from.clone(), to.clone()]);
    let root = cluster.root.path().to_owned();
    for name in ["a", "b"] {
        fs::write(root.join("in").join(name), "x\ny\n").expect("an input");
    }
    let all = NODES + 1;
    cluster.until_nodes(&to, all);
    let grants = Grants::begin(cluster.manager, cluster.proxy);
    let held = HeldJob::submit(&root, &to, "held", true);
    check_job(&root, &small_job(&root, &to, "before"), 3, true);
    for (former, next) in [(&from, &to), (&to, &from)] {
        eprintln!("from {} to {}", former.version, next.version);
        grants.beside("the cluster manager", || cluster.change_manager(former, next));
        cluster.until_nodes(&to, all);
        let name = format!("after-{}", next.version);
        check_job(&root, &small_job(&root, &to, &name), 3, true);
    }
    held.ends(&root);
    grants.end();
}
