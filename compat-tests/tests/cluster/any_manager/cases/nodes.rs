//! Nodes and the cluster manager's own state.

use serde_json::{Value as Json, json};

use crate::any_manager::world::{CaseState, request};
use compat_tests::cluster_peers::{Node, report};

pub(crate) const HEARTBEATS_OF_NODES: &str = r#"
    a node that offers nothing => {"restartFlag":false}
    from another address => {"restartFlag":false}
    with CPUs that no row names => {"restartFlag":false}
    without CPUs => {"restartFlag":false}
    from a host that no name server knows => {"restartFlag":false}
    from an excluded host => DisallowedNode: 10.1.1.9
    without a node => original: closed | ours: fault 6 | D-2.1
    without an address => fault 7: Required field 'address' was not present! Struct: ClusterNodeInfo(name:n, address:null, total:null)
"#;

/// None of these nodes has slots to give, so that other cases find the cluster as it was.
pub(crate) fn heartbeats_of_nodes(world: &mut CaseState<'_>) {
    let bare = |name: &str, host: &str, cpus: i16| -> Json {
        let mut node = report(name, host, cpus);
        if let Some(fields) = node.as_object_mut() {
            fields.remove("resourceInfos");
        }
        json!({ "node": node })
    };
    for (step, node) in [
        ("a node that offers nothing", bare("bare", "10.1.1.7", 4)),
        ("from another address", bare("bare", "10.1.1.8", 4)),
        ("with CPUs that no row names", bare("three", "10.1.1.8", 3)),
        ("without CPUs", bare("none", "10.1.1.8", 0)),
        ("from a host that no name server knows", bare("lost", "no-such-host.invalid", 1)),
        ("from an excluded host", bare("excluded", "10.1.1.9", 1)),
        ("without a node", json!({})),
        ("without an address", json!({ "node": { "name": "n" } })),
    ] {
        world.step(step, "nodeHeartbeat", node);
    }
}

pub(crate) const SAFE_MODE: &str = r#"
    persistState before it => false
    setSafeMode => true
    the proxy job tracker is told => true
    getNextSessionId => SafeModeException
    sessionHeartbeat => SafeModeException
    sessionHeartbeatV2 => SafeModeException
    requestResource => SafeModeException
    releaseResource => SafeModeException
    sessionEnd => SafeModeException
    getSessions => SafeModeException
    getSessionInfo => SafeModeException
    nodeHeartbeat => SafeModeException
    refreshNodes => SafeModeException
    restartNodes => SafeModeException
    killSession => SafeModeException
    persistState => true
    setSafeMode off => true
    the proxy job tracker is told => false
    the session goes on => 1 0 0
"#;

pub(crate) fn safe_mode(world: &mut CaseState<'_>) {
    let handle = world.session("first", "plain");
    world.ask(&handle, 1, 1);
    world.grants(&handle, 1);
    world.step("persistState before it", "persistState", json!({}));
    let told = world.flags().len();
    world.step("setSafeMode", "setSafeMode", json!({ "safeMode": true }));
    let flag = world.flag_after(told);
    world.note("the proxy job tracker is told", flag);
    let ids = json!({ "requestId": 1, "grantId": 1, "resourceUsages": {} });
    for (method, args) in [
        ("getNextSessionId", json!({})),
        ("sessionHeartbeat", json!({ "handle": handle })),
        ("sessionHeartbeatV2", json!({ "handle": handle, "heartbeatArgs": ids })),
        ("requestResource", json!({ "handle": handle, "requestList": [request(2, "MAP")] })),
        ("releaseResource", json!({ "handle": handle, "idList": [1] })),
        ("sessionEnd", json!({ "handle": handle, "status": "SUCCESSFUL" })),
        ("getSessions", json!({})),
        ("getSessionInfo", json!({ "handle": handle })),
        ("nodeHeartbeat", json!({ "node": report("n4", "10.1.1.1", 4) })),
        ("refreshNodes", json!({})),
        ("restartNodes", json!({ "restartNodesArgs": { "force": false, "batchSize": 1 } })),
        ("killSession", json!({ "sessionId": handle })),
    ] {
        world.step(method, method, args);
    }
    world.step("persistState", "persistState", json!({}));
    let told = world.flags().len();
    world.step("setSafeMode off", "setSafeMode", json!({ "safeMode": false }));
    let flag = world.flag_after(told);
    world.note("the proxy job tracker is told", flag);
    let held = world.held(&handle);
    world.note("the session goes on", held);
}

pub(crate) const A_DEAD_NODE: &str = "
    the grant is on => n1
    told of => n1
    the session holds => 0 0 0
    back again, it gets => n1
";

pub(crate) fn a_dead_node(world: &mut CaseState<'_>) {
    let doomed = Node::start(world.peers.address, "n1", "10.1.1.3", 1);
    let handle = world.session("first", "plain");
    let only_there = |id: i32| {
        let mut request = request(id, "MAP");
        request["excludeHosts"] = json!(["10.1.1.1", "10.1.1.2"]);
        json!([request])
    };
    world.request(&handle, only_there(1));
    let grants = world.grants(&handle, 1);
    let node = |grant: &Json| grant["nodeName"].as_str().unwrap_or_default().to_owned();
    world.note("the grant is on", node(&grants[0]));
    drop(doomed);
    let dead = world.peers.driver.until("a dead node", |told| {
        let own =
            told.iter().find(|(name, args)| name == "processDeadNode" && args["handle"] == *handle);
        own.map(|(_, args)| args["node"].as_str().unwrap_or_default().to_owned())
    });
    world.note("told of", dead);
    let held = world.held(&handle);
    world.note("the session holds", held);
    let back = Node::start(world.peers.address, "n1", "10.1.1.3", 1);
    world.request(&handle, only_there(2));
    let grants = world.grants(&handle, 2);
    world.note("back again, it gets", node(&grants[1]));
    drop(back);
}
