//! The built program after a time in which the machine did not let it run: it has received nothing
//! meanwhile, and must not take that for the silence of its peers.

use std::process::Command;
use std::time::Duration;

use compat_tests::corona_program;
use corona::conformance::launch::Launch;
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
};
use corona::wire::client::{Client, ClientOptions};
use corona::wire::generated as wire;

/// Nodes and sessions may be silent for so long.
const EXPIRY: Duration = Duration::from_secs(5);

fn send(signal: &str, process: u32) {
    let script = format!("kill -s {signal} {process}");
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

#[tokio::test]
async fn a_stopped_process_keeps_its_nodes_and_sessions() {
    let expiry_ms = EXPIRY.as_millis().to_string();
    let overrides = [
        ("cm.server.address", "localhost:0"),
        ("cm.server.http.address", "localhost:0"),
        ("cm.state", "none"),
        ("corona.cm.journal.dir", "none"),
        ("cm.node.expiryinterval", &expiry_ms),
        ("cm.session.expiryinterval", &expiry_ms),
        ("cm.notifier.retry.max", "1000"),
    ];
    let launch = Launch {
        program: corona_program().to_path_buf(),
        conf_dir: None,
        overrides: overrides.map(|(key, value)| (key.into(), value.into())).to_vec(),
        arguments: vec![],
        ready_within: Duration::from_secs(30),
    };
    let manager = launch.start().unwrap_or_else(|error| panic!("{error}"));
    let mut client: Client<ClusterManager> =
        Client::connect(manager.thrift(), ClientOptions::default()).await.unwrap();

    client.call(&Call::NodeHeartbeat { node: Some(node()) }).await.unwrap();
    let Ok(Reply::GetNextSessionId(handle)) = client.call(&Call::GetNextSessionId).await else {
        panic!("no id");
    };
    let info = Some(session());
    client.call(&Call::SessionStart { handle: Some(handle.clone()), info }).await.unwrap();
    let request = wire::ResourceRequest {
        id: 1,
        hosts: None,
        specs: Some(specs(1)),
        type_: wire::ResourceType::MAP,
        exclude_hosts: None,
    };
    let (asked, requests) = (Some(handle.clone()), Some(vec![request]));
    client.call(&Call::RequestResource { handle: asked, requests }).await.unwrap();
    client.call(&Call::NodeHeartbeat { node: Some(node()) }).await.unwrap();
    client.call(&Call::SessionHeartbeat { handle: Some(handle.clone()) }).await.unwrap();

    // The grant is made in a pass of its own, after the reply.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while held(&mut client).await != [(handle.clone(), Some(1))] {
        assert!(tokio::time::Instant::now() < deadline, "{}", manager.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    send("STOP", manager.process_id());
    tokio::time::sleep(EXPIRY + Duration::from_secs(2)).await;
    send("CONT", manager.process_id());

    assert_eq!(held(&mut client).await, [(handle, Some(1))], "{}", manager.log());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !manager.log().contains("Nothing was processed for ") {
        assert!(tokio::time::Instant::now() < deadline, "{}", manager.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!manager.log().contains("Timing out"), "{}", manager.log());
}

/// The sessions, with how many MAP slots each holds.
async fn held(client: &mut Client<ClusterManager>) -> Vec<(String, Option<i32>)> {
    let Ok(Reply::GetSessions(sessions)) = client.call(&Call::GetSessions).await else {
        panic!("no sessions");
    };
    let held = |session: wire::RunningSession| {
        let resources = session.running_resources.unwrap_or_default();
        (session.handle, resources.get(&wire::ResourceType::MAP).copied())
    };
    sessions.into_iter().map(held).collect()
}

fn node() -> wire::ClusterNodeInfo {
    let apps = [(wire::ResourceType::MAP, "127.0.0.1:9".into())];
    wire::ClusterNodeInfo {
        name: "tracker:1".into(),
        address: wire::InetAddress { host: "127.0.0.1".into(), port: 50_060 },
        total: specs(4),
        free: Some(specs(4)),
        resource_infos: Some(apps.into()),
        ended: None,
        program: None,
    }
}

fn session() -> wire::SessionInfo {
    wire::SessionInfo {
        address: wire::InetAddress { host: "127.0.0.1".into(), port: 9 },
        name: "job".into(),
        user_id: "user".into(),
        group_ids: None,
        pool_info_strings: None,
        priority: None,
        no_preempt: None,
        url: None,
        deadline: None,
    }
}

fn specs(cpus: i16) -> wire::ComputeSpecs {
    wire::ComputeSpecs {
        num_cpus: cpus,
        network_m_bps: Some(10),
        memory_m_b: Some(1024),
        disk_g_b: Some(10),
    }
}
