//! A cluster manager's answers to a node, and a node of our own.

use compat_tests::serving::fetch;
use compat_tests::start_plain;
use compat_tests::task_tracker::cluster_manager::{ClusterManager, NodeAnswer};
use compat_tests::task_tracker::node::Home;
use compat_tests::task_tracker::{PATIENCE, until};

use corona::hadoop::writables::TaskState;
use corona::session_driver::{Endpoint, Event, Options, ResourceType, SessionDriver, SlotRequest};
use corona::wire::generated as wire;
use tokio::time::timeout;

use super::{TestNode, block_on};

#[test]
fn a_node_says_what_it_has() {
    block_on(async {
        let world = TestNode::new().await;
        let first = world.manager.heartbeat(0).await;
        assert!(first.name.starts_with("tracker_localhost:"), "{}", first.name);
        assert_eq!(first.total.num_cpus, 2);
        assert_eq!(first.total.network_m_bps, Some(100));
        assert!(first.total.memory_m_b > Some(100), "{first:?}");
        assert!(first.total.disk_g_b > Some(0), "{first:?}");
        let free = first.free.clone().unwrap();
        assert!(free.memory_m_b <= first.total.memory_m_b && free.disk_g_b <= first.total.disk_g_b);
        let infos = first.resource_infos.clone().unwrap();
        let types: Vec<_> = infos.keys().copied().collect();
        // Only nodes that can start job trackers offer slots for them.
        assert_eq!(types, [wire::ResourceType::MAP, wire::ResourceType::REDUCE]);
        assert_eq!(infos[&wire::ResourceType::MAP], infos[&wire::ResourceType::REDUCE]);
        let second = world.manager.heartbeat(1).await;
        assert_eq!((&second.name, &second.address), (&first.name, &first.address));
        assert_eq!(second.resource_infos, first.resource_infos);
    });
}

#[test]
fn a_node_that_is_to_start_anew_ends_well_and_leaves_nothing() {
    block_on(async {
        let mut world = TestNode::new().await;
        let _running = world.waiting_map("update=0.5,fork,hang").await;
        world.manager.state().answer = NodeAnswer::Restart;
        assert_eq!(world.node.ended().await.code(), Some(0));
        world.manager.state().answer = NodeAnswer::Fine;
        let before = world.manager.heartbeat(0).await.name;
        world.start_again().await;
        world.home.nothing_left().await;
        // Another process has another name.
        assert_ne!(world.manager.heartbeat(0).await.name, before);
    });
}

#[test]
fn a_node_that_is_not_wanted_ends() {
    block_on(async {
        let mut world = TestNode::new().await;
        let _running = world.waiting_map("update=0.5,hang").await;
        world.manager.state().answer = NodeAnswer::Disallowed;
        let status = world.node.ended().await;
        assert_eq!(status.code(), Some(1));
        assert!(world.node.log().contains("localhost"), "{}", world.node.log());
        // Files of jobs are deleted at the next start.
        assert_eq!(world.home.left_running(), [""; 0]);
    });
}

#[test]
fn tasks_go_on_in_safe_mode() {
    block_on(async {
        let world = TestNode::new().await;
        let (job_tracker, job, map) = world.waiting_map("update=0.5,wait,done").await;
        {
            let mut state = world.manager.state();
            (state.answer, state.safe_mode) = (NodeAnswer::SafeMode, true);
        }
        until("questions", || (world.manager.state().polls >= 2).then_some(())).await;
        job.notes().let_go(&map.to_string()).unwrap();
        assert_eq!(job_tracker.ended(&map, 1).await.state, TaskState::Succeeded);
        let before = {
            let mut state = world.manager.state();
            (state.answer, state.safe_mode) = (NodeAnswer::Fine, false);
            state.heartbeats.len()
        };
        world.manager.heartbeat(before).await;
        world.end_last_job(&job_tracker, &job).await;
    });
}

/// Without the report of the next process the earlier one would be granted slots until it expires.
#[test]
fn a_node_that_starts_again_leaves_no_ghost() {
    block_on(async {
        let manager = start_plain();
        let (thrift, web) = (manager.thrift(), manager.http().unwrap().to_string());
        let root = tempfile::tempdir().unwrap();
        let proxy = ClusterManager::start().proxy();
        let home = Home::new(root.path(), thrift, proxy);
        let nodes = || {
            let (_, body) = fetch(&web, "/api/v1/nodes").unwrap_or_default();
            let list: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            let nodes = list["nodes"].as_array().cloned().unwrap_or_default();
            nodes.iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let mut node = home.start().await;
        let endpoint = Endpoint::new(thrift.ip().to_string(), thrift.port());
        let options = Options::new(endpoint, "user");
        let (driver, mut events) = SessionDriver::start(options).await.unwrap();
        for ends_in_order in [false, true] {
            driver.request(vec![SlotRequest::new(ResourceType::Map)]).unwrap();
            let granted = timeout(PATIENCE, events.next()).await.expect("a grant").unwrap();
            let Event::Granted(grants) = granted else { panic!("{granted:?}") };
            let old = grants[0].node_name.to_string();
            assert_eq!(nodes(), [&*old]);
            if ends_in_order {
                node.ask_to_end();
                node.ended().await;
                assert_eq!(nodes(), [""; 0]);
            } else {
                node.crash();
            }
            node = home.start().await;
            // What ran there runs again at once.
            let lost = timeout(PATIENCE, events.next()).await.expect("the end").unwrap();
            assert!(matches!(&lost, Event::DeadNode { node, .. } if **node == *old), "{lost:?}");
            let replaced = || Some(nodes()).filter(|nodes| nodes.len() == 1 && nodes[0] != old);
            until("one node, the new one", replaced).await;
        }
    });
}
