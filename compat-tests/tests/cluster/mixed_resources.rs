//! The built program counts resources in a cluster whose nodes and job trackers are the original's: these report all that
//! they have, and request the same constants for each task.

use std::time::{Duration, Instant};

use compat_tests::cluster_peers::{Caller, Node, PATIENCE};
use compat_tests::serving::page;
use compat_tests::start_with;
use corona::conformance::launch::LaunchedManager;
use serde_json::{Value as Json, json};

/// A cluster manager that counts CPUs and memory, with 2,048 MB for a map that names none.
fn manager(resources: &str) -> LaunchedManager {
    start_with(&[
        ("cm.notifier.retry.max", "1000"),
        ("cm.session.expiryinterval", "600000"),
        ("cm.cpu.to.resource.partitioning", "{\"1\":{\"MAP\":1,\"REDUCE\":1}}"),
        ("corona.cm.resources", resources),
        ("corona.cm.request.default.MAP.memory", "2048"),
        ("corona.cm.overcommit.memory", "50"),
    ])
}

struct Cluster {
    manager: LaunchedManager,
    calls: Caller,
    _node: Node,
}

impl Cluster {
    /// Starts one with a node as those of the original, of 65,536 MB, of which half is given out.
    fn start() -> Cluster {
        let manager = manager("cpus,memory");
        let node = Node::start(manager.thrift(), "tracker:1", "127.0.0.1", 64);
        let calls = Caller::open(manager.thrift());
        Cluster { manager, calls, _node: node }
    }

    /// Starts a session of a user, whose pool has the user's name.
    fn session(&mut self, user: &str) -> String {
        self.calls.session(9, &json!({ "userId": user }))
    }

    /// Requests slots for so many maps with these resources.
    fn request(&mut self, handle: &str, count: i32, specs: &Json) {
        self.calls.request(handle, 1..=count, &json!({ "specs": specs }));
    }

    fn api(&self, path: &str) -> Json {
        let body = page(&self.manager, path);
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
    let mut cluster = Cluster::start();
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
    cluster.calls.release(&java, [1]);
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
    let mut calls = Caller::open(manager.thrift());
    let specs = json!({ "numCpus": 4, "networkMBps": 100 });
    let more = json!({ "total": specs, "free": specs });
    calls.heartbeat("tracker:1", "127.0.0.1", 4, &more);
    let nodes: Json = serde_json::from_str(&page(&manager, "/api/v1/nodes")).unwrap();
    let expected = json!({ "memory": { "capacity": 0, "granted": 0 } });
    assert_eq!(nodes["nodes"][0]["resources"], expected, "{nodes}");
}
