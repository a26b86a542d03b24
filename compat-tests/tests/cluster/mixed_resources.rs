//! The built program counts resources in a cluster whose nodes and job trackers are the original's: these report all that
//! they have, and request the same constants for each task.

use std::time::{Duration, Instant};

use compat_tests::cluster_peers::{Connection, Node, PATIENCE, call, report};
use compat_tests::corona_program;
use compat_tests::serving::fetch;
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::wire::value::{MessageKind, Value};
use serde_json::{Value as Json, json};

/// A cluster manager that counts CPUs and memory, with 2,048 MB for a map that names none.
fn manager(resources: &str) -> LaunchedManager {
    let overrides = [
        ("cm.server.address", "localhost:0"),
        ("cm.server.http.address", "localhost:0"),
        ("cm.state", "none"),
        ("corona.cm.journal.dir", "none"),
        ("cm.notifier.retry.max", "1000"),
        ("cm.session.expiryinterval", "600000"),
        ("cm.cpu.to.resource.partitioning", "{\"1\":{\"MAP\":1,\"REDUCE\":1}}"),
        ("corona.cm.resources", resources),
        ("corona.cm.request.default.MAP.memory", "2048"),
        ("corona.cm.overcommit.memory", "50"),
    ];
    let launch = Launch {
        program: corona_program().to_path_buf(),
        conf_dir: None,
        overrides: overrides.map(|(key, value)| (key.into(), value.into())).to_vec(),
        arguments: vec![],
        ready_within: Duration::from_secs(30),
    };
    launch.start().unwrap_or_else(|error| panic!("{error}"))
}

struct Cluster {
    manager: LaunchedManager,
    calls: Connection,
    _node: Node,
}

impl Cluster {
    /// Starts one with a node as those of the original, of 65,536 MB, of which half is given out.
    fn start(resources: &str, cpus: i16) -> Cluster {
        let manager = manager(resources);
        let node = Node::start(manager.thrift(), "tracker:1", "127.0.0.1", cpus);
        let calls = Connection::open(manager.thrift());
        Cluster { manager, calls, _node: node }
    }

    fn call(&mut self, method: &str, arguments: &Json) -> Value {
        self.calls.send(&call(method, arguments, 1));
        let answer = self.calls.receive().expect("an answer");
        assert_eq!(answer.kind, MessageKind::Reply, "{answer:?}");
        answer.body.expect("a reply")
    }

    /// Starts a session of a user, whose pool has the user's name.
    fn session(&mut self, user: &str) -> String {
        let answer = serde_json::to_value(self.call("getNextSessionId", &json!({}))).unwrap();
        let handle = answer["success"].as_str().expect("an id").to_owned();
        let address = json!({ "host": "127.0.0.1", "port": 9 });
        let info = json!({ "address": address, "name": "job", "userId": user });
        self.call("sessionStart", &json!({ "handle": handle, "info": info }));
        handle
    }

    /// Requests slots for so many maps with these resources.
    fn request(&mut self, handle: &str, count: i32, specs: &Json) {
        let request = |id: i32| json!({ "id": id, "specs": specs, "type": "MAP" });
        let requests: Vec<Json> = (1..=count).map(request).collect();
        self.call("requestResource", &json!({ "handle": handle, "requestList": requests }));
    }

    fn api(&self, path: &str) -> Json {
        let http = self.manager.http().expect("pages").to_string();
        let (_, body) = fetch(&http, path).expect("an answer");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// A session once it holds so many slots of maps.
    fn holds(&self, handle: &str, granted: u64) -> Json {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let session = self.api(&format!("/api/v1/sessions/{handle}"));
            if session["types"]["MAP"]["granted"] == granted {
                return session;
            }
            assert!(Instant::now() < deadline, "{session}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The constants that job trackers of the original request for every map.
fn constants() -> Json {
    json!({ "numCpus": 1, "networkMBps": 10, "memoryMB": 1024, "diskGB": 10 })
}

#[test]
fn tasks_of_the_original_take_the_default_and_nodes_give_out_what_they_report() {
    let mut cluster = Cluster::start("cpus,memory", 64);
    // 16 of 2,048 MB fill the 32,768 MB that are given out, though 64 CPUs and slots are there.
    let java = cluster.session("java");
    cluster.request(&java, 20, &constants());
    let session = cluster.holds(&java, 16);
    assert_eq!(session["resources"], json!({ "cpus": 16, "memory": 32_768 }), "{session}");
    assert_eq!(session["dominant_share"], 1.0, "{session}");
    let why = "each needs 1 CPU and 2048 MB of memory on one node";
    let waits = session["waits"].to_string();
    assert!(waits.contains(why) && waits.contains("\"too_little\""), "{waits}");
    // A job tracker of ours names what its tasks need, and its pool, which holds nothing, comes first.
    let ours = cluster.session("ours");
    cluster.request(&ours, 3, &json!({ "numCpus": 2, "memoryMB": 512 }));
    let ids = json!({ "handle": java, "idList": [1] });
    cluster.call("releaseResource", &ids);
    let session = cluster.holds(&ours, 3);
    assert_eq!(session["resources"], json!({ "cpus": 6, "memory": 1_536 }), "{session}");
    let node = cluster.api("/api/v1/nodes/tracker%3A1");
    let memory = &node["resources"]["memory"];
    let expected = json!({ "capacity": 32_768, "granted": 32_256, "total": 65_536, "used": 0 });
    assert_eq!(*memory, expected, "{node}");
    assert_eq!(node["grants_total"], 18, "{node}");
    let largest = cluster.api("/api/v1/cluster")["resources"]["memory"]["largest_free"].clone();
    assert_eq!(largest, 512);
}

#[test]
fn a_node_of_the_original_that_reports_no_memory_gives_out_none() {
    let manager = manager("memory");
    let mut calls = Connection::open(manager.thrift());
    let mut node = report("tracker:1", "127.0.0.1", 4);
    for specs in ["total", "free"] {
        node[specs] = json!({ "numCpus": 4, "networkMBps": 100 });
    }
    calls.send(&call("nodeHeartbeat", &json!({ "node": node }), 1));
    assert!(calls.receive().expect("an answer").body.is_ok());
    let http = manager.http().expect("pages").to_string();
    let (_, nodes) = fetch(&http, "/api/v1/nodes").expect("an answer");
    let nodes: Json = serde_json::from_str(&nodes).unwrap();
    let expected = json!({ "memory": { "capacity": 0, "granted": 0 } });
    assert_eq!(nodes["nodes"][0]["resources"], expected, "{nodes}");
}

#[test]
fn where_slots_are_counted_memory_is_not_and_cpus_are_slots() {
    let mut cluster = Cluster::start("slots", 8);
    let ours = cluster.session("ours");
    cluster.request(&ours, 3, &json!({ "numCpus": 3, "memoryMB": 1_000_000 }));
    let session = cluster.holds(&ours, 2);
    for absent in ["resources", "dominant_share"] {
        assert_eq!(session.get(absent), None, "{session}");
    }
    let node = cluster.api("/api/v1/nodes/tracker%3A1");
    assert_eq!(node["slots"]["MAP"]["used"], 6, "{node}");
    assert_eq!(node.get("resources"), None, "{node}");
    for path in ["/api/v1/cluster", "/api/v1/status", "/api/v1/nodes"] {
        assert_eq!(cluster.api(path).get("resources"), None, "{path}");
    }
}
