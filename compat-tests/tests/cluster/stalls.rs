//! The built program after a time in which the machine did not let it run: it has received nothing
//! meanwhile, and must not take that for the silence of its peers.

use std::thread::sleep;
use std::time::Duration;

use compat_tests::cluster_peers::{Caller, DEFAULT};
use compat_tests::task_tracker::node::signal;
use compat_tests::{start_with, until};
use serde_json::json;

/// Nodes and sessions may be silent for so long.
const EXPIRY: Duration = Duration::from_secs(5);

#[test]
fn a_stopped_process_keeps_its_nodes_and_sessions() {
    let expiry_ms = EXPIRY.as_millis().to_string();
    let manager = start_with(&[
        ("cm.node.expiryinterval", &expiry_ms),
        ("cm.session.expiryinterval", &expiry_ms),
        ("cm.notifier.retry.max", "1000"),
    ]);
    let mut caller = Caller::open(manager.thrift());
    caller.heartbeat("tracker:1", "127.0.0.1", 4, DEFAULT);
    let handle = caller.session(9, DEFAULT);
    caller.request(&handle, [1], DEFAULT);
    caller.heartbeat("tracker:1", "127.0.0.1", 4, DEFAULT);
    caller.notify("sessionHeartbeat", &json!({ "handle": handle }));
    caller.holds(&handle, 1);

    signal("STOP", manager.process_id());
    sleep(EXPIRY + Duration::from_secs(2));
    signal("CONT", manager.process_id());

    caller.holds(&handle, 1);
    until("the line in the log", || {
        manager.log().contains("Nothing was processed for ").then_some(())
    });
    assert!(!manager.log().contains("Timing out"), "{}", manager.log());
}
