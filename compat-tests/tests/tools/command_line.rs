//! The tools of the built program against the built cluster manager, as an operator uses them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use compat_tests::cluster_peers::{Caller, DEFAULT, Driver, PATIENCE, ReceivedNotices};
use compat_tests::serving::{fetch, status};
use compat_tests::skipping::{Missing, skip};
use compat_tests::task_tracker::node::{in_own_mounts, may_mount};
use compat_tests::{corona, corona_program, launch, repository, start};
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::wire::calls::ProxyJobTracker;
use serde_json::{Value, json};

/// The token of operators for changes over HTTP.
const TOKEN: &str = "let me change this node";

/// A cluster of one cluster manager, and the servers that it calls.
struct Cluster {
    manager: LaunchedManager,
    conf_dir: tempfile::TempDir,
    driver: Driver,
}

impl Cluster {
    /// A cluster manager with the pools `g.limited`, of at most two maps, `g.plain`, and `g.old`,
    /// which is redirected to `g.limited`.
    fn start(proxy_job_tracker: Option<SocketAddr>) -> Cluster {
        Cluster::start_with(proxy_job_tracker, &[])
    }

    fn start_with(proxy_job_tracker: Option<SocketAddr>, more: &[(&str, &str)]) -> Cluster {
        let conf_dir = tempfile::tempdir().unwrap();
        let path = |name: &str| conf_dir.path().join(name).display().to_string();
        let proxy_job_tracker = proxy_job_tracker.map_or("localhost:1".into(), |at| at.to_string());
        let state = path("cm.state");
        let properties = [
            ("corona.proxy.job.tracker.thriftaddr", &*proxy_job_tracker),
            ("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":2,"REDUCE":1,"JOBTRACKER":1}}"#),
            ("cm.hosts.exclude", &path("excluded")),
            ("cm.config.file", "corona.xml"),
            ("cm.pools.config.file", "pools.xml"),
            ("cm.state", &state),
            // Nodes of these tests heartbeat once.
            ("corona.cm.node.late.heartbeats", "0"),
            ("corona.cm.web.kill.token", TOKEN),
        ];
        let properties: String = properties
            .iter()
            .chain(more)
            .map(|(name, value)| {
                format!("<property><name>{name}</name><value>{value}</value></property>\n")
            })
            .collect();
        let site = format!("<configuration>\n{properties}</configuration>\n");
        let pools = "<configuration><group name=\"g\"><pool name=\"limited\"><maxMAP>2</maxMAP>\
            </pool><pool name=\"plain\"/><pool name=\"old\"/></group></configuration>";
        let scheduling = "<configuration><redirect source=\"g.old\" destination=\"g.limited\"/>\
            </configuration>";
        for (name, text) in [
            ("core-site.xml", site.as_str()),
            ("corona.xml", scheduling),
            ("pools.xml", pools),
            ("excluded", ""),
        ] {
            fs::write(conf_dir.path().join(name), text).unwrap();
        }
        let files = Some(conf_dir.path().to_path_buf());
        // With the journal beside its state file, as without further settings.
        let manager = start(&Launch { conf_dir: files, ..launch(&[("cm.state", &state)]) });
        Cluster { manager, conf_dir, driver: Driver::start() }
    }

    /// Runs a tool that finds this cluster in its configuration, as on a machine of the cluster.
    fn corona(&self, line: &str) -> ToolOutput {
        let output = self.command(line).output().unwrap();
        ToolOutput::of(output)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = corona(&[]);
        let mut words = line.split(' ');
        command.args(words.next());
        // The ports are free ones, so that the files do not have them.
        let http = self.manager.http().unwrap();
        let addresses = [("server", self.manager.thrift()), ("server.http", http)]
            .map(|(key, at)| format!("-Dcm.{key}.address={at}"));
        if line.starts_with("admin") || line.starts_with("client") {
            command.args(addresses).args(words);
        } else {
            command.args(words).args(addresses);
        }
        command.env("HADOOP_CONF_DIR", self.conf_dir.path());
        command
    }

    fn calls(&self) -> Caller {
        Caller::open(self.manager.thrift())
    }

    /// A node of one CPU that serves maps and reduces; whether it is to restart.
    fn heartbeat(&self, name: &str, host: &str) -> bool {
        self.heartbeat_of(name, host, Value::Null)["restartFlag"] == true
    }

    /// The same of a node that names its program.
    fn heartbeat_of(&self, name: &str, host: &str, program: Value) -> Value {
        let app = format!("{host}:9001");
        let mut more = json!({
            "address": { "host": host, "port": 9001 },
            "resourceInfos": { "MAP": app, "REDUCE": app },
        });
        if !program.is_null() {
            more["program"] = program;
        }
        self.calls().heartbeat(name, host, 1, &more)
    }

    /// A session that asks for so many maps; its handle.
    fn session(&self, name: &str, pool: &str, maps: i32) -> String {
        let more = json!({
            "name": name, "userId": "ann", "priority": "HIGH", "noPreempt": false,
            "poolInfoStrings": { "poolGroupName": "g", "poolName": pool },
        });
        let mut calls = self.calls();
        let handle = calls.session(self.driver.port, &more);
        calls.request(&handle, 1..=maps, DEFAULT);
        handle
    }

    /// A tool's JSON output once it fits.
    fn json_until(&self, line: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = self.corona(&format!("{line} --output json"));
            assert!(told.status.success(), "{line}: {}", told.err);
            let value = serde_json::from_str(&told.out).unwrap();
            if fits(&value) {
                return value;
            }
            assert!(Instant::now() < deadline, "{line} still tells {value:#}");
        }
    }
}

/// The output and status of a tool.
struct ToolOutput {
    status: ExitStatus,
    out: String,
    err: String,
}

impl ToolOutput {
    fn of(output: std::process::Output) -> ToolOutput {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        ToolOutput { status: output.status, out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn is(self, status: i32, out: &str, err: &str) {
        let told = (self.status.code(), self.out.as_str(), self.err.as_str());
        assert_eq!(told, (Some(status), out, err));
    }
}

/// A proxy job tracker that accepts every call.
fn proxy_job_tracker() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    ReceivedNotices::serve::<ProxyJobTracker>(listener);
    address
}

#[test]
fn safe_mode_is_turned_on_and_off_and_the_state_is_written() {
    let tracker = proxy_job_tracker();
    let cluster = Cluster::start(Some(tracker));
    for (on, off) in [
        ("admin set-safe-mode", "admin unset-safe-mode"),
        ("admin -setSafeMode", "admin -unsetSafeMode"),
    ] {
        cluster.corona(on).is(0, "The safeMode is: ON\n", "");
        let refused = "corona: Cannot list sessions, ClusterManager is in Safe Mode\n";
        cluster.corona("client -list").is(1, "", refused);
        let alone = format!("sessions list --address {}", cluster.manager.thrift());
        ToolOutput::of(corona(&alone.split(' ').collect::<Vec<_>>()).output().unwrap())
            .is(1, "", refused);
        // Its pages list them all the same.
        cluster.corona("sessions list").is(0, "No sessions.\n", "");
        let status = cluster.json_until("status", |_| true);
        assert_eq!(status["safe_mode"]["on"], true);
        for refused in ["admin -refreshNodes", "admin restart-nodes"] {
            let told = cluster.corona(refused);
            let first = "ClusterManager is in Safe Mode\n";
            assert_eq!((told.status.code(), told.out.as_str()), (Some(1), ""));
            assert!(told.err.starts_with(first) && told.err.lines().count() == 2, "{}", told.err);
        }
        cluster.corona(off).is(0, "The safeMode is: OFF\n", "");
        cluster.corona("sessions list").is(0, "No sessions.\n", "");
    }

    let not_persisted =
        "Persisting Cluster Manager state failed. \nsafe mode is off; turn it on first\n";
    cluster.corona("admin -persistState").is(1, "", not_persisted);
    cluster.corona("admin set-safe-mode").is(0, "The safeMode is: ON\n", "");
    cluster.corona("admin persist-state").is(0, "", "");
    assert!(cluster.conf_dir.path().join("cm.state").is_file());

    let key = format!("-Dcorona.proxy.job.tracker.thriftaddr={tracker}");
    cluster.corona(&format!("admin {key} -forceSetSafeModeOnPJT")).is(0, "", "");
}

#[test]
fn nodes_are_excluded_and_restarted() {
    let cluster = Cluster::start(None);
    for name in ["n1", "n2"] {
        assert!(!cluster.heartbeat(name, &format!("{name}.example.com")));
    }
    let nodes = cluster.json_until("nodes list", |nodes| nodes["total"] == 2);
    let n1 = &nodes["nodes"][0];
    assert_eq!((&n1["name"], &n1["problems"]), (&json!("n1"), &json!([])));
    assert_eq!(n1["address"], json!({"host": "n1.example.com", "port": 9001}));
    let slots = |total| json!({"total": total, "used": 0, "blacklisted": false});
    assert_eq!(n1["slots"], json!({"MAP": slots(2), "REDUCE": slots(1)}));

    fs::write(cluster.conf_dir.path().join("excluded"), "n2.example.com\n").unwrap();
    let file = cluster.conf_dir.path().join("excluded");
    let lines = format!(
        "cm.hosts: not set when the cluster manager was started; a restart reads it\n\
         cm.hosts.exclude: {}, 1 host\n",
        file.display()
    );
    cluster.corona("admin -refreshNodes").is(0, &lines, "");
    let nodes = cluster.json_until("nodes list --problems", |_| true);
    assert_eq!(nodes["nodes"][0]["problems"], json!(["excluded"]));
    let table = cluster.corona("nodes list --problems").out;
    let row = table.lines().nth(1).unwrap_or_default();
    assert!(row.starts_with("n2 ") && row.ends_with(" excluded"), "{table}");

    cluster.corona("admin restart-nodes --batch 5").is(0, "", "");
    assert!(cluster.heartbeat("n1", "n1.example.com"), "n1 is told to restart");
    assert!(!cluster.heartbeat("n1", "n1.example.com"), "it has restarted");
    cluster.corona("admin -forceRestartTaskTracker 5").is(0, "", "");
    assert!(cluster.heartbeat("n1", "n1.example.com"), "and is told again");
}

/// Nodes that name a program restart in place, or say why not; others drain for a second, and end. Of so few nodes one
/// may be away at a time.
#[test]
fn nodes_restart_a_few_at_a_time_with_their_tasks_going_on_or_after_a_drain() {
    let cluster = Cluster::start(None);
    // The number of its start, if it names one.
    let mut nodes = [("a", Some(1)), ("b", None), ("c", Some(1)), ("d", None)]
        .map(|(name, started)| (name.to_owned(), format!("{name}.example.com"), started));
    let program = |started: Option<i64>, refused: Option<&str>| match (started, refused) {
        (None, _) => Value::Null,
        (Some(started), None) => json!({ "version": "0.2.0", "startedMs": started }),
        (Some(started), Some(why)) => {
            json!({ "version": "0.2.0", "startedMs": started, "refused": why })
        }
    };
    for (name, host, started) in &nodes {
        cluster.heartbeat_of(name, host, program(*started, None));
    }
    cluster.session("Sleep", "plain", 8);
    let all_used = |list: &Value| {
        let nodes = list["nodes"].as_array().unwrap();
        nodes.iter().all(|node| node["slots"]["MAP"]["used"] == 2)
    };
    cluster.json_until("nodes list", all_used);
    let mut command = cluster.command("admin restart-nodes --rolling --wait 1 --output json");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut rolling = command.spawn().unwrap();
    let (mut refused, mut most) = (None, 0);
    let deadline = Instant::now() + PATIENCE;
    while rolling.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the command does not end");
        for (name, host, started) in &mut nodes {
            let why = refused.filter(|_| name == "c");
            let answer = cluster.heartbeat_of(name, host, program(*started, why));
            if answer["restartInPlace"] == true && name == "c" {
                refused = Some("no room");
            } else if answer["restartInPlace"] == true {
                *started = started.map(|number| number + 1);
            }
            if answer["restartFlag"] == true {
                name.push('2');
            }
        }
        let list: Value =
            serde_json::from_str(&cluster.corona("nodes list --output json").out).unwrap();
        let draining = list["nodes"].as_array().unwrap().iter();
        most = most.max(draining.filter(|node| node["problems"] == json!(["draining"])).count());
    }
    let told = ToolOutput::of(rolling.wait_with_output().unwrap());
    let report: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{}", told.err));
    let of = |name: &str| {
        let nodes = report["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["node"] == name).unwrap();
        (node["result"].clone(), node["reason"].clone(), node["ended_grants"].clone())
    };
    assert_eq!(of("a"), (json!("restarted_in_place"), Value::Null, json!(0)));
    assert_eq!(of("b"), (json!("restarted"), Value::Null, json!(2)));
    assert_eq!(of("c"), (json!("refused"), json!("no room"), json!(0)));
    assert_eq!(of("d"), (json!("restarted"), Value::Null, json!(2)));
    assert_eq!((report["done"].clone(), report["remaining"].clone()), (json!(false), json!(0)));
    assert_eq!((told.status.code(), most), (Some(1), 1));
    // They serve again.
    let list = cluster.json_until("nodes list --problems", |_| true);
    assert_eq!(list["nodes"], json!([]));
}

#[test]
fn sessions_are_listed_explained_and_killed() {
    let cluster = Cluster::start(None);
    for name in ["n1", "n2", "n3"] {
        cluster.heartbeat(name, &format!("{name}.example.com"));
    }
    let limited = cluster.session("Nightly\u{1b}[2J job", "limited", 3);
    let plain = cluster.session("Sleep", "plain", 1);

    let held = |maps: i64| {
        move |list: &Value| {
            let sessions = list["sessions"].as_array().unwrap();
            sessions.iter().filter_map(|s| s["types"]["MAP"]["granted"].as_i64()).sum::<i64>()
                == maps
        }
    };
    let list = cluster.json_until("sessions list", held(3));
    assert_eq!(list["sessions"][0]["handle"], limited);
    assert_eq!(list["sessions"][0]["pool"], json!({"group": "g", "pool": "limited"}));
    let listed = cluster.corona("client -list").out;
    assert!(listed.starts_with("2 sessions currently running:\nSessionID\t"), "{listed}");
    assert!(
        listed.contains(&format!("{plain}\tSleep\tann\tg\tplain\tHIGH\t1\t0\t0\n")),
        "{listed}"
    );
    let info = cluster.corona(&format!("sessions info {limited}")).out;
    assert!(info.contains("Nightly\\u{1b}[2J job") && info.contains("2 MAP, 0 REDUCE"), "{info}");

    let detail = cluster.json_until(&format!("sessions explain {limited}"), |_| true);
    assert_eq!(detail["types"]["MAP"]["waiting"], 1);
    assert_eq!(detail["grants"].as_array().unwrap().len(), 2);
    assert_eq!(detail["grants"][0]["type"], "MAP");
    let explained = cluster.corona(&format!("sessions explain --grants {limited}"));
    assert!(explained.status.success(), "{}", explained.err);
    assert!(explained.out.contains("example.com:9001"), "{}", explained.out);
    let reason =
        "1 MAP: pool g.limited holds 2 grants, its maximum; this session is next in the pool\n";
    assert!(explained.out.contains(reason), "{}", explained.out);
    let served = cluster.corona(&format!("sessions explain {plain}")).out;
    assert!(served.ends_with("Nothing waits.\n"), "{served}");

    let pools = cluster.json_until("pools", |_| true);
    let pools = pools["pools"].as_array().unwrap();
    let pool = pools.iter().find(|pool| pool["pool"] == "limited").unwrap();
    let map = &pool["types"]["MAP"];
    assert_eq!(
        (&map["granted"], &map["waiting"], &map["maximum"]),
        (&json!(2), &json!(1), &json!(2))
    );

    let unknown = "corona: no session 1.1 is running\n";
    cluster.corona(&format!("sessions kill {limited} 1.1")).is(
        1,
        &format!("Killed {limited}\n"),
        unknown,
    );
    cluster.corona(&format!("client -kill {plain}")).is(
        0,
        &format!("Killing {plain}"),
        &format!("{plain} killed"),
    );
    cluster.corona("client -kill 1.1").is(1, "Killing 1.1\n", unknown);
    cluster.corona(&format!("sessions explain {plain}")).is(
        1,
        "",
        &format!("corona: no session {plain} is running\n"),
    );
    cluster.corona("sessions list").is(0, "No sessions.\n", "");
}

#[test]
fn imported_queue_files_are_loaded_by_a_running_cluster() {
    let cluster = Cluster::start_with(None, &[("cm.config.reload.period.ms", "100")]);
    cluster.heartbeat("n1", "n1.example.com");
    let of = |name: &str| cluster.conf_dir.path().join(name);
    let property = |(name, value): (&str, &str)| {
        let name = format!("yarn.scheduler.capacity.root.{name}");
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let capacity: String = [
        ("queues", "g,dev"),
        ("g.queues", "plain,bulk"),
        ("g.capacity", "75"),
        ("g.plain.capacity", "40"),
        ("g.bulk.capacity", "60"),
        ("g.bulk.maximum-capacity", "80"),
        ("dev.capacity", "25"),
    ]
    .map(property)
    .concat();
    let fair = "<allocations><queue name='g'><weight>3.0</weight><queue name='plain'/>\
        <queue name='bulk'><maxRunningApps>1</maxRunningApps></queue></queue></allocations>";
    let handle = cluster.session("Stays", "plain", 1);
    for (name, text, rule) in [
        ("capacity", format!("<configuration>{capacity}</configuration>"), "minimum_parts"),
        ("fair", fair.to_owned(), "max_sessions"),
    ] {
        fs::write(of("yarn.xml"), text).unwrap();
        let made = of(name);
        let import =
            format!("pools import {} --output {}", of("yarn.xml").display(), made.display());
        let output =
            ToolOutput::of(corona(&import.split(' ').collect::<Vec<_>>()).output().unwrap());
        assert!(output.status.success(), "{}", output.err);
        fs::rename(made, of("pools.xml")).unwrap();
        let bulk = |pools: &Value| {
            let pools = pools["pools"].as_array().unwrap();
            pools.iter().any(|pool| {
                let queue = &pool["queue"];
                queue["path"] == "root.g.bulk" && !queue[rule].is_null()
            })
        };
        cluster.json_until("pools", bulk);
        let explained = cluster.corona("pools explain root.g.plain");
        assert!(explained.status.success(), "{}", explained.err);
        let (levels, holds) =
            (["root\n", "  root.g\n", "    root.g.plain\n"], "holds 1, 0 waiting");
        for part in levels.into_iter().chain([holds]) {
            assert!(explained.out.contains(part), "{part} is not in {}", explained.out);
        }
        let sessions = cluster.json_until("sessions list", |_| true);
        assert_eq!(sessions["sessions"][0]["handle"], handle.as_str(), "{sessions}");
    }
}

#[test]
fn a_redirect_is_shown_wherever_one_asks() {
    let cluster = Cluster::start(None);
    for name in ["n1", "n2"] {
        cluster.heartbeat(name, &format!("{name}.example.com"));
    }
    let handle = cluster.session("Moved", "old", 3);
    let limited = json!({"group": "g", "pool": "limited"});
    let list = cluster.json_until("sessions list --pool g.old", |_| true);
    assert_eq!((&list["sessions"], &list["redirected_to"]), (&json!([]), &limited));
    let moved = "No sessions.\nSessions submitted to g.old run in g.limited.\n";
    cluster.corona("sessions list --pool g.old").is(0, moved, "");
    let list = cluster.corona("sessions list --pool g.limited").out;
    assert!(list.contains(&handle) && !list.contains("ask for"), "{list}");
    cluster.corona("sessions list --pool old").is(0, "No sessions.\n", "");

    let waits = |detail: &Value| detail["types"]["MAP"]["waiting"] == 1;
    let detail = cluster.json_until(&format!("sessions explain {handle}"), waits);
    assert_eq!(detail["asked_pool"], json!({"group": "g", "pool": "old"}));
    assert_eq!((&detail["pool"], &detail["scheduling_pool"]), (&limited, &limited));
    assert_eq!(detail["types"]["MAP"]["max_concurrent"], 2);
    let text = "pool g.limited (the session asked for g.old) holds 2 grants, its maximum; this \
                session is next in the pool";
    assert_eq!(detail["waits"][0]["text"], text);
    let explained = cluster.corona(&format!("sessions explain {handle}")).out;
    assert!(explained.contains("of ann in pool g.limited (asked for g.old), "), "{explained}");
    assert!(explained.ends_with(&format!("\n1 MAP: {text}\n")), "{explained}");

    let pools = cluster.corona("pools").out;
    let old = pools.lines().find(|line| line.trim_start().starts_with("old ")).unwrap();
    assert!(pools.lines().next().unwrap().ends_with("REDIRECTED TO"), "{pools}");
    assert!(old.ends_with(" g.limited"), "{pools}");
}

/// One page after another, and values that are no limits.
#[test]
fn the_api_serves_pages() {
    let cluster = Cluster::start(None);
    let handles: Vec<String> = (0..12).map(|_| cluster.session("s", "plain", 0)).collect();
    cluster.heartbeat("a node", "n1.example.com");
    let get = |path: &str| http_get(cluster.manager.http().unwrap(), path);

    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (status, page) = get(&format!("/api/v1/sessions?limit=5{after}"));
        assert_eq!((status, &page["total"]), (200, &json!(12)));
        let rows = page["sessions"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["handle"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, handles);

    let (status, cluster_json) = get("/api/v1/cluster");
    assert_eq!(
        (status, &cluster_json["sessions"], &cluster_json["nodes"]),
        (200, &json!(12), &json!(1))
    );
    assert_eq!(cluster_json["slots"]["MAP"], json!({"total": 2, "used": 0}));
    cluster.corona(&format!("sessions kill {}", handles[0])).is(
        0,
        &format!("Killed {}\n", handles[0]),
        "",
    );
    let (status, retired) = get("/api/v1/retired?limit=1");
    assert_eq!((status, &retired["total"]), (200, &json!(1)));
    assert_eq!(retired["sessions"][0]["status"], "KILLED");

    for (path, expected) in [
        ("/api/v1/sessions?limit=0", 400),
        ("/api/v1/nodes?limit=2001", 400),
        ("/api/v1/sessions/no%20such", 404),
        ("/api/v1/sessions/%ff%00", 404),
        ("/api/v1/nonsense", 404),
        ("/api/v1/nodes/1", 404),
    ] {
        let (status, body) = get(path);
        assert_eq!(status, expected, "{path}");
        assert!(body["error"].is_string(), "{path}: {body}");
    }
}

/// The contract answers these calls with true or false only.
#[test]
fn the_status_says_why_administrative_calls_failed() {
    let cluster = Cluster::start(None);
    let status = || {
        let (status, body) = http_get(cluster.manager.http().unwrap(), "/api/v1/status");
        assert_eq!(status, 200, "{body}");
        body
    };
    let before = status();
    assert_eq!((&before["safe_mode"]["on"], &before["operations"]), (&json!(false), &json!([])));
    assert!(before["uptime_ms"].as_i64().unwrap() >= 0);
    let path = cluster.conf_dir.path().join("cm.state").display().to_string();
    assert_eq!(before["state_file"], json!({ "path": path }));
    assert_eq!(before["proxy_job_tracker"], json!({ "address": "localhost:1" }));

    for action in ["set-safe-mode", "persist-state"] {
        assert_eq!(cluster.corona(&format!("admin {action}")).status.code(), Some(1), "{action}");
    }
    let after = status();
    let [set, persist] = &after["operations"].as_array().unwrap()[..] else { panic!("{after}") };
    assert_eq!(
        (&set["operation"], &persist["operation"]),
        (&json!("set_safe_mode"), &json!("persist_state"))
    );
    for (operation, parts) in [
        (set, &["the proxy job tracker at localhost:1", "Connection refused"][..]),
        (persist, &["safe mode is off"]),
    ] {
        assert_eq!(operation["last"], operation["last_failure"]);
        let last = &operation["last"];
        assert_eq!(last["succeeded"], false);
        let caller: std::net::IpAddr = last["caller"].as_str().unwrap().parse().unwrap();
        assert!(caller.is_loopback(), "{caller}");
        let reason = last["reason"].as_str().unwrap();
        assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
        let problems = after["problems"].as_array().unwrap();
        let shown = |problem: &Value| problem["text"].as_str().unwrap().contains(reason);
        assert!(problems.iter().any(shown), "{after}");
    }
}

fn http_get(address: SocketAddr, path: &str) -> (u16, Value) {
    let (head, body) = fetch(&address.to_string(), path).unwrap();
    (status(&head).parse().unwrap(), serde_json::from_str(&body).unwrap())
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let program = corona_program().display();
    let line = format!("{program} completions bash | head -n 1; echo ${{PIPESTATUS[0]}}");
    let told = ToolOutput::of(Command::new("bash").args(["-c", &line]).output().unwrap());
    assert_eq!(told.err, "");
    assert_eq!(told.out.lines().last(), Some("0"), "{}", told.out);
}

#[test]
fn events_are_read_and_followed() {
    let cluster = Cluster::start(None);
    for name in ["n1", "n2", "n3"] {
        cluster.heartbeat(name, &format!("{name}.example.com"));
    }
    let handle = cluster.session("Sleep", "plain", 1);
    let told = cluster.corona("events");
    assert_eq!((told.status.code(), told.err.as_str()), (Some(0), ""));
    for part in ["  node n2 joined\n", &format!("  session {handle} started in g.plain: Sleep\n")] {
        assert!(told.out.contains(part), "{part} is missing in:\n{}", told.out);
    }
    let told = cluster.corona("events --last 2 --event node_added --output json").out;
    let nodes: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(nodes.iter().map(|event| &event["node"]).collect::<Vec<_>>(), ["n2", "n3"]);
    let told = cluster.corona(&format!("events --about {handle}")).out;
    assert!(!told.is_empty() && told.lines().all(|line| line.contains(&handle)), "{told}");

    let mut follower = cluster.command("events --follow --last 0 --event node_added");
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let reader = std::thread::spawn(move || tell.send(lines.next().unwrap().unwrap()));
    // It follows from the moment at which its stream is open, which is not reported: nodes join
    // until it has seen one.
    let deadline = Instant::now() + PATIENCE;
    let mut number = 4;
    let line = loop {
        cluster.heartbeat(&format!("n{number}"), &format!("n{number}.example.com"));
        number += 1;
        if let Ok(line) = told.recv_timeout(Duration::from_millis(100)) {
            break line;
        }
        assert!(Instant::now() < deadline, "nothing is followed");
    };
    follower.kill().unwrap();
    follower.wait().unwrap();
    reader.join().unwrap().unwrap();
    assert!(line.contains("  node n") && line.ends_with(" joined"), "{line}");
}

#[test]
fn a_list_is_watched_until_the_cluster_manager_is_gone() {
    let cluster = Cluster::start(None);
    cluster.heartbeat("n1", "n1.example.com");
    let mut watcher = cluster.command("nodes list --watch=0.1 --output json");
    let mut watcher = watcher.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut totals = lines.map(|line| {
        let list: Value = serde_json::from_str(&line.unwrap()).unwrap();
        list["total"].as_u64().unwrap()
    });
    assert_eq!(totals.next(), Some(1));
    cluster.heartbeat("n2", "n2.example.com");
    assert!(totals.any(|total| total == 2), "the second node is never listed");
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn the_shell_reads_the_completions() {
    let script = ToolOutput::of(corona(&["completions", "bash"]).output().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("corona");
    fs::write(&path, script.out).unwrap();
    // Bash's completions of `corona admin set`.
    let line = format!(
        "source {}; COMP_WORDS=(corona admin set); COMP_CWORD=2; _corona corona set admin; \
         echo \"${{COMPREPLY[*]}}\"",
        path.display()
    );
    ToolOutput::of(Command::new("bash").args(["-c", &line]).output().unwrap()).is(
        0,
        "set-safe-mode\n",
        "",
    );
    // And after `corona check-config -D cm.node.exp`.
    let line = format!(
        "source {}; COMP_WORDS=(corona check-config -D cm.node.exp); COMP_CWORD=3; \
         _corona_with_names corona cm.node.exp -D; echo \"${{COMPREPLY[*]}}\"",
        path.display()
    );
    ToolOutput::of(Command::new("bash").args(["-c", &line]).output().unwrap()).is(
        0,
        "cm.node.expiryinterval=\n",
        "",
    );
}

/// A table as shown in a terminal of 80 columns.
fn seen_in_a_terminal(cluster: &Cluster, environment: &[(&str, &str)]) -> String {
    let command = cluster.command("nodes list");
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut terminal = Command::new("script");
    let line = format!("stty cols 80; {}", words.join(" "));
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    terminal.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("COLUMNS");
    terminal.envs(environment.iter().copied()).env("HADOOP_CONF_DIR", cluster.conf_dir.path());
    let told = ToolOutput::of(terminal.stdin(Stdio::null()).output().unwrap());
    assert!(told.status.success(), "{}{}", told.out, told.err);
    told.out.replace('\r', "")
}

#[test]
fn tables_fit_a_terminal_and_colours_can_be_declined() {
    let cluster = Cluster::start(None);
    let long = "a-node-with-a-name.that-is-much-longer.than-the-rest-of-the-line.example.com";
    cluster.heartbeat(long, "n1.example.com");
    let plain = seen_in_a_terminal(&cluster, &[("NO_COLOR", "1")]);
    assert!(
        !plain.contains('\u{1b}') && plain.contains("a-node-with-a-") && plain.contains('…'),
        "{plain}"
    );
    assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
    let coloured = seen_in_a_terminal(&cluster, &[]);
    assert!(coloured.contains("\u{1b}[1mNODE\u{1b}[0m"), "{coloured}");

    // A file or a program gets everything, without colours.
    let piped = cluster.corona("nodes list").out;
    assert!(piped.contains(long) && !piped.contains('\u{1b}'), "{piped}");
}

/// An example with files, with those of a directory in the place of the user's.
fn on_this_machine(line: &str, files: &Path) -> String {
    let at = |path: &str| format!("file://{}/{path}", files.display());
    line.replace('\'', "")
        .replace(" /tmp", &format!(" {}", files.join("tmp").display()))
        .replace("hdfs://namenode:8020/user/alice", "/user/alice")
        .replace("/user/alice", &at("alice"))
        .replace("job.jar", &files.join("job.jar").display().to_string())
        .replace(" logs/", &format!(" {}", at("alice/logs/")))
}

/// Every command of the documentation, in its order, works as documented.
#[test]
fn the_documentation_names_commands_that_work() {
    /// The session of the examples.
    const HANDLE: &str = "202611210005.1";
    /// The node of the examples.
    const NODE: &str = "tt-000.dc1.example.com";

    let tracker = proxy_job_tracker();
    let cluster = Cluster::start(Some(tracker));
    cluster.heartbeat(NODE, NODE);
    cluster.heartbeat("tt-001.dc1.example.com", "tt-001.dc1.example.com");
    let token = cluster.conf_dir.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    let files = tempfile::tempdir().unwrap();
    fs::create_dir_all(files.path().join("alice/logs")).unwrap();
    fs::create_dir(files.path().join("tmp")).unwrap();
    fs::write(files.path().join("alice/logs/part-00000"), "a line\n").unwrap();
    fs::write(files.path().join("job.jar"), "a jar").unwrap();
    let text = fs::read_to_string(repository().join("docs/reference/command-line.md")).unwrap();
    let commands: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("    corona ")).collect();
    assert!(commands.len() > 30, "{}", commands.len());
    for command in commands {
        let conf_dir = cluster.conf_dir.path().display().to_string();
        let mut line = command.replace("/etc/hadoop/conf", &conf_dir);
        line = line.replace("--token-file token", &format!("--token-file {}", token.display()));
        if line.contains(HANDLE) {
            line = line.replace(HANDLE, &cluster.session("Sleep", "limited", 3));
        }
        if line.starts_with("nodes drain ") {
            // The sessions of the examples do not end. Waiting has tests of its own.
            line = line.replace(" --wait=3600", "").replace(" --wait", "");
        }
        if line.starts_with("fs ") {
            line = on_this_machine(&line, files.path());
        }
        if line.starts_with("admin restart-nodes --rolling") {
            // No process sends the heartbeats of these nodes, so none comes back. It has a test of its own.
            continue;
        }
        let told = match command.split(' ').next() {
            // It runs until it is stopped, and has tests of its own.
            Some("demo") => continue,
            Some("check-config" | "completions") => {
                let mut command = corona(&line.split(' ').collect::<Vec<_>>());
                command.env("HADOOP_CONF_DIR", cluster.conf_dir.path());
                ToolOutput::of(command.output().unwrap())
            }
            _ => cluster.corona(&line),
        };
        assert_eq!(told.status.code(), Some(0), "corona {line}: {}{}", told.out, told.err);
    }
}

#[test]
fn directories_that_are_needed_are_not_deleted() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().canonicalize().unwrap().join(name);
    for name in ["home/alice/kept", "work/now", "disk", "other/below"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let uri = |name: &str| format!("file:{}", at(name).display());
    let rm = |mut command: Command, words: &[&str]| {
        let command = command.args(["fs", "rm", "-r"]).args(words).stdin(Stdio::null());
        let output = command.env("HOME", at("home/alice")).current_dir(at("work/now")).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let plain = || {
        let mut command = Command::new(corona_program());
        command.env_remove("HADOOP_CONF_DIR");
        command
    };
    for (name, why) in [
        ("home/alice", format!("it has the home directory {}", at("home/alice").display())),
        ("home", format!("it has the home directory {}", at("home/alice").display())),
        ("work", format!("it has the working directory {}", at("work/now").display())),
        ("work/now", format!("it has the working directory {}", at("work/now").display())),
    ] {
        let (status, said) = rm(plain(), &[&uri(name)]);
        let expected = format!("rm: cannot remove {}: {why}; --force-root removes it\n", uri(name));
        assert_eq!((status, said), (Some(1), expected));
        assert!(at(name).is_dir());
    }
    assert_eq!(rm(plain(), &[&uri("other")]), (Some(0), String::new()));
    assert_eq!(rm(plain(), &["--force-root", &uri("home")]), (Some(0), String::new()));
    assert!(!at("other").exists() && !at("home").exists());
    if !may_mount() {
        return skip(Missing::SmallDisks);
    }
    let mut mounted = in_own_mounts();
    let script = "mount -t tmpfs tmpfs \"$1\" && touch \"$1/x\" && shift && exec \"$@\"";
    mounted.args(["sh", "-c", script, "sh"]).arg(at("disk")).arg(corona_program());
    mounted.env_remove("HADOOP_CONF_DIR");
    let (status, said) = rm(mounted, &[&uri("disk")]);
    let why = format!("a file system is mounted at {}", at("disk").display());
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains(&why), "{said}");
}
