//! How long a session waits from a request to the grant, with one session and one node, over the
//! real wire on loopback.
//!
//!     cargo bench --bench request_to_grant [-- ROUNDS]
//!
//! Without a journal, unless `CORONA_JOURNAL` is `write` or `always`.
//!
//! The clock starts before the request is written and stops when the session's driver has the grant
//! decoded. Each round requests one slot and releases it.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use corona::wire::calls::{
    ClusterManager as Contract, ClusterManagerCall as Call, ClusterManagerReply as Reply,
    SessionDriver, SessionDriverCall, SessionDriverReply,
};
use corona::wire::client::{Client, ClientOptions};
use corona::wire::generated::*;
use corona::wire::server::{Answer, Limits, ListenOn, Server, listen};
use tokio::sync::{mpsc, watch};

const WARM_UP: usize = 500;

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("threads can be started").block_on(measure(rounds));
}

async fn measure(rounds: usize) {
    let directory = tempfile::tempdir().expect("a directory for the journal");
    let manager = support::cluster_manager(directory.path()).await;
    let port = manager.thrift_address().port();
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(manager.run(stopped.clone()));

    let (granted, mut grants) = mpsc::channel(16);
    let driver = listen(ListenOn::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
        .expect("the driver listens");
    let driver_port = driver.local_addr().expect("it has an address").port();
    let answer = move |_peer, call| {
        let granted = granted.clone();
        async move {
            match call {
                SessionDriverCall::GrantResource { .. } => {
                    let _ = granted.send(Instant::now()).await;
                    Answer::Reply(SessionDriverReply::GrantResource)
                }
                SessionDriverCall::RevokeResource { .. } => {
                    Answer::Reply(SessionDriverReply::RevokeResource)
                }
                SessionDriverCall::ProcessDeadNode { .. } => {
                    Answer::Reply(SessionDriverReply::ProcessDeadNode)
                }
            }
        }
    };
    let driver = Server::new(driver, answer, Limits::default());
    tokio::spawn(driver.run::<SessionDriver>(stopped));

    let address = (Ipv4Addr::LOCALHOST, port);
    let mut client = Client::<Contract>::connect(address, ClientOptions::default())
        .await
        .expect("the manager accepts");
    let mut call = async |call| client.call(&call).await.expect("the call is answered");
    call(Call::NodeHeartbeat { node: Some(node()) }).await;
    let Reply::GetNextSessionId(handle) = call(Call::GetNextSessionId).await else {
        unreachable!("the client gives the reply of the method")
    };
    let info = Some(session(driver_port));
    call(Call::SessionStart { handle: Some(handle.clone()), info }).await;

    let mut micros = Vec::with_capacity(rounds);
    for round in 0..WARM_UP + rounds {
        let id = i32::try_from(round).expect("a bounded number of rounds");
        let started = Instant::now();
        let requests = Some(vec![request(id)]);
        call(Call::RequestResource { handle: Some(handle.clone()), requests }).await;
        let at = grants.recv().await.expect("the driver serves");
        if round >= WARM_UP {
            micros.push(at.saturating_duration_since(started).as_secs_f64() * 1e6);
        }
        call(Call::ReleaseResource { handle: Some(handle.clone()), ids: Some(vec![id]) }).await;
    }
    stop.send_replace(true);
    let _ = serving.await;
    report(micros);
}

fn report(mut micros: Vec<f64>) {
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    println!("request to grant, one session, one node, {} rounds, microseconds:", micros.len());
    println!("  median {:.0}", at(0.5));
    println!("  99%    {:.0}", at(0.99));
    println!("  99.9%  {:.0}", at(0.999));
    println!("  most   {:.0}", at(1.0));
}

fn node() -> ClusterNodeInfo {
    let specs = ComputeSpecs::new(4, None, None, None);
    let apps = [(ResourceType::MAP, "10.0.0.1:1".to_owned())];
    ClusterNodeInfo {
        name: "node".into(),
        address: InetAddress::new("10.0.0.1".into(), 1),
        total: specs.clone(),
        free: Some(specs),
        resource_infos: Some(apps.into()),
        ended: None,
        program: None,
    }
}

fn session(port: u16) -> SessionInfo {
    SessionInfo {
        address: InetAddress::new(Ipv4Addr::LOCALHOST.to_string(), port.into()),
        name: "bench".into(),
        user_id: "user".into(),
        group_ids: None,
        pool_info_strings: Some(PoolInfoStrings::new("default".into(), "defaultpool".into())),
        priority: None,
        no_preempt: Some(false),
        url: None,
        deadline: None,
    }
}

fn request(id: i32) -> ResourceRequest {
    ResourceRequest {
        id,
        hosts: None,
        specs: Some(ComputeSpecs::new(1, None, None, None)),
        type_: ResourceType::MAP,
        exclude_hosts: None,
    }
}
