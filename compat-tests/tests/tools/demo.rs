//! `corona demo`: everything that it promises to show is seen through the pages' API, and it leaves
//! nothing behind.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use compat_tests::PATIENCE;
use compat_tests::corona_program;
use compat_tests::serving::{fetch, status};
use serde_json::Value;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(corona_program());
    command.arg("demo").args(arguments).args(["--port", "0", "--thrift-port", "0"]);
    command.env_remove("RUST_LOG").env_remove("HADOOP_CONF_DIR");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A demo that runs and reports as JSON; it is killed with the test.
struct Show {
    child: Child,
    lines: Receiver<Value>,
    ready: Value,
    seen: Vec<Value>,
}

impl Show {
    fn start(arguments: &[&str]) -> Show {
        let mut child = demo(arguments).args(["--output", "json"]).spawn().unwrap();
        let (tell, lines) = mpsc::sync_channel(1000);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.expect("text");
                let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
                    panic!("{error}: {line}");
                });
                if tell.send(value).is_err() {
                    return;
                }
            }
        });
        let ready = lines.recv_timeout(PATIENCE).expect("it is ready in time");
        assert_eq!(ready["event"], "ready");
        Show { child, lines, ready, seen: vec![] }
    }

    fn pages(&self) -> SocketAddr {
        let pages = self.ready["pages"].as_str().unwrap();
        let port = pages.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
        SocketAddr::new([127, 0, 0, 1].into(), port)
    }

    fn api(&self, path: &str) -> Value {
        let (head, body) = fetch(&self.pages().to_string(), &format!("/api/v1/{path}")).unwrap();
        assert_eq!(status(&head), "200", "{path}: {head}{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Takes in the events reported so far.
    fn listen(&mut self) {
        self.seen.extend(self.lines.try_iter());
    }

    /// Waits for an event for which this holds.
    fn event(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let wanted = |value: &&Value| value["event"] == name && fits(value);
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.listen();
            if let Some(found) = self.seen.iter().find(wanted) {
                return found.clone();
            }
            assert!(Instant::now() < deadline, "no {name} in time: {:#?}", self.seen);
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the API reports it.
    fn until<T>(&self, what: &str, look: impl Fn(&Show) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: not in time");
            std::thread::sleep(LOOK);
        }
    }

    fn node(&self, name: &str) -> Option<Value> {
        let nodes = self.api("nodes");
        nodes["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).cloned()
    }

    /// Ends it as Ctrl-C does, and returns the last line.
    fn stop(mut self, signal: &str) -> Value {
        compat_tests::task_tracker::node::signal(signal, self.child.id());
        let last = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).last();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{signal}");
        last.expect("a summary")
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn names(list: &Value, key: &str) -> BTreeSet<String> {
    let list = list.as_array().unwrap().iter();
    list.filter_map(|item| Some(item[key].as_str()?.to_owned())).collect()
}

#[test]
fn everything_that_it_promises_happens() {
    let mut show = Show::start(&["--speed", "10"]);

    // A cluster of several racks.
    let nodes = show.api("nodes");
    assert_eq!(nodes["total"], 24);
    assert!(names(&nodes["nodes"], "rack").len() >= 3, "{nodes}");

    // Several groups of pools, with minima and maxima.
    let pools = show.api("pools");
    let pools = pools["pools"].as_array().unwrap();
    let groups: BTreeSet<&str> = pools.iter().filter_map(|pool| pool["group"].as_str()).collect();
    assert!(groups.len() >= 3, "{groups:?}");
    let limited = |key: &str| {
        pools.iter().any(|pool| pool["types"]["MAP"][key].as_i64().is_some_and(|slots| slots > 0))
    };
    assert!(limited("minimum") && limited("maximum"), "{pools:?}");

    // A node loses power: it is late, then dead and away from the list.
    let dead = show.event("power_cut", |_| true)["node"].as_str().unwrap().to_owned();
    show.event("node_late", |late| late["node"] == *dead);
    show.event("node_lost", |lost| lost["node"] == *dead && lost["expired"] == true);
    assert_eq!(show.node(&dead), None);
    // Its tasks were restarted: it rejoins a cluster that knows it.
    show.event("node_joined", |joined| joined["node"] == *dead);

    // A node on which tasks fail is blacklisted.
    let broken = show.event("disk_failing", |_| true)["node"].as_str().unwrap().to_owned();
    show.until("a blacklisted node", |show| {
        let node = show.node(&broken)?;
        (node["slots"]["MAP"]["blacklisted"] == true).then_some(())
    });
    show.event("node_blacklisted", |node| node["node"] == *broken && node["type"] == "MAP");

    // A node joins that was not there before.
    let new = show.event("new_node", |_| true)["node"].as_str().unwrap().to_owned();
    assert!(!names(&nodes["nodes"], "name").contains(&new), "{new}");
    show.event("node_joined", |joined| joined["node"] == *new);

    // Slots were taken back for a pool with a minimum.
    let preempted = show.event("slots_preempted", |slots| slots["pools"][0].is_string());
    assert!(preempted["count"].as_u64().unwrap() > 0);
    show.until("a session with revoked slots", |show| {
        let lists = [show.api("sessions"), show.api("retired")];
        let mut all =
            lists.iter().flat_map(|list| list["sessions"].as_array().into_iter().flatten());
        all.any(|session| session["types"]["MAP"]["revoked"].as_i64() > Some(0)).then_some(())
    });

    // Jobs of several users and sizes came, and went.
    show.event("job_ended", |job| job["status"] == "SUCCESSFUL");
    let started: Vec<&Value> =
        show.seen.iter().filter(|event| event["event"] == "job_started").collect();
    let users: BTreeSet<_> = started.iter().map(|job| job["user"].as_str()).collect();
    assert!(users.len() >= 4, "{users:?}");
    let maps: BTreeSet<_> = started.iter().filter_map(|job| job["maps"].as_u64()).collect();
    assert!(maps.first() < Some(&15) && maps.last() > Some(&100), "{maps:?}");

    let summary = show.stop("INT");
    assert_eq!(summary["event"], "summary");
    for count in ["jobs_succeeded", "tasks", "slots_preempted", "nodes_lost", "blacklistings"] {
        assert!(summary[count].as_u64() > Some(0), "{count}: {summary}");
    }
}

#[test]
fn it_can_be_operated_like_any_cluster_manager() {
    let mut show = Show::start(&["--speed", "5", "--seed", "7"]);
    let thrift = show.ready["thrift"].as_str().unwrap().to_owned();
    let directory = PathBuf::from(show.ready["directory"].as_str().unwrap());

    // A session that is killed ends, and the demo continues.
    let job = show.event("job_started", |job| job["maps"].as_u64() > Some(100));
    let session = job["session"].as_str().unwrap();
    let kill = Command::new(corona_program())
        .args(["sessions", "kill", session, "--address", &thrift])
        .env_remove("HADOOP_CONF_DIR")
        .output()
        .unwrap();
    assert!(kill.status.success(), "{kill:?}");
    show.event("job_ended", |job| job["session"] == session && job["status"] == "GONE");

    // The pools file may be edited.
    let file = directory.join("pools.xml");
    let pools = std::fs::read_to_string(&file).unwrap();
    let pools = pools.replace("<pool name=\"backfill\"/>", "<pool name=\"edited\"/>");
    std::fs::write(&file, pools).unwrap();
    show.event("configuration_reloaded", |_| true);
    let pools = show.api("pools");
    assert!(names(&pools["pools"], "pool").contains("edited"), "{pools}");

    let pages = show.pages();
    show.stop("TERM");
    assert!(!directory.exists(), "{}", directory.display());
    assert!(std::net::TcpStream::connect(pages).is_err());
}

#[test]
fn it_says_where_the_pages_are_and_ends_when_its_time_is_up() {
    let begin = Instant::now();
    let Output { status, stdout, stderr } = demo(&["--for", "1"]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("http://localhost:"), "{stdout}");
    assert!(stdout.trim_end().lines().last().unwrap().starts_with("stopped after 1 s"), "{stdout}");
    assert_eq!(stderr, "", "nothing to warn of");
}

#[test]
fn a_taken_port_and_wrong_numbers_are_explained() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(corona_program());
        let output = command.arg("demo").args(arguments).env_remove("RUST_LOG").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (arguments, parts) in [
        (["--port", &port, "--thrift-port", "0"], ["for pages", "in use", "--port"]),
        (["--port", "0", "--thrift-port", &port], ["for calls", "in use", "--thrift-port"]),
    ] {
        let (status, error) = run(&arguments);
        assert_eq!(status, Some(1), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(&port), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    }
    for (arguments, expected) in [
        (["--nodes", "5"], "from 6 to 500"),
        (["--nodes", "many"], "from 6 to 500"),
        (["--speed", "0"], "from 0.1 to 20"),
        (["--for", "0"], "1.."),
    ] {
        let (status, error) = run(&arguments);
        assert_eq!(status, Some(2), "{arguments:?}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
