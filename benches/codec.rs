//! The cost of writing the most important calls as bytes, and of reading them as a server does:
//! finding the end, checking them against the contract, and making typed values of them.
//!
//!     cargo bench --bench codec

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use corona::wire::Service;
use corona::wire::calls::{ClusterManager, ClusterManagerCall, SessionDriver, SessionDriverCall};
use corona::wire::client::PreparedCall;
use corona::wire::generated::*;
use corona::wire::server::Limits;

/// Requests of one call, as a large job makes them.
const REQUESTS: i32 = 1_000;
/// Grants of one call, as a busy cluster manager makes them.
const GRANTS: i32 = 100;
/// How long each is repeated.
const ENOUGH: Duration = Duration::from_millis(500);

fn main() {
    println!("{:<40} {:>7} {:>12} {:>12}", "call", "bytes", "write", "read");
    measure::<ClusterManager>("nodeHeartbeat", &heartbeat());
    measure::<ClusterManager>("requestResource, 1 request", &requests(1));
    measure::<ClusterManager>("requestResource, 1,000 requests", &requests(REQUESTS));
    measure::<ClusterManager>("releaseResource, 1,000 ids", &releases());
    measure::<SessionDriver>("grantResource, 1 grant", &grants(1));
    measure::<SessionDriver>("grantResource, 100 grants", &grants(GRANTS));
}

fn measure<S: Service>(name: &str, call: &S::Call) {
    let prepared = PreparedCall::<S>::new(call).expect("it is not too large");
    let limits = Limits::default();
    let write = repeat(|| drop(black_box(PreparedCall::<S>::new(black_box(call)))));
    let read = repeat(|| drop(black_box(black_box(&prepared).read(&limits))));
    let size = prepared.size();
    println!("{name:<40} {size:>7} {:>12} {:>12}", format!("{write:.1?}"), format!("{read:.1?}"));
}

/// The median of many times, each of a group long enough for the clock.
fn repeat(mut work: impl FnMut()) -> Duration {
    const GROUP: u32 = 16;
    let begin = Instant::now();
    let mut times = vec![];
    while begin.elapsed() < ENOUGH {
        let started = Instant::now();
        (0..GROUP).for_each(|_| work());
        times.push(started.elapsed() / GROUP);
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn heartbeat() -> ClusterManagerCall {
    let specs = ComputeSpecs::new(8, 1_000, 262_144, 10_000);
    let services = [ResourceType::MAP, ResourceType::REDUCE];
    ClusterManagerCall::NodeHeartbeat {
        node: Some(ClusterNodeInfo {
            name: "tracker_host1234.example.com:localhost/127.0.0.1:34567".into(),
            address: InetAddress::new("host1234.example.com".into(), 34_567),
            total: specs.clone(),
            free: Some(specs),
            resource_infos: Some(
                services.map(|kind| (kind, "host1234.example.com:50060".to_owned())).into(),
            ),
            ended: None,
            program: None,
        }),
    }
}

fn requests(count: i32) -> ClusterManagerCall {
    let request = |id| ResourceRequest {
        id,
        hosts: Some((0..3).map(|host| format!("host{}.example.com", id * 7 + host)).collect()),
        specs: Some(ComputeSpecs::new(1, 10, 1_024, 10)),
        type_: ResourceType::MAP,
        exclude_hosts: None,
    };
    ClusterManagerCall::RequestResource {
        handle: Some("202611220133.17".into()),
        requests: Some((1..=count).map(request).collect()),
    }
}

fn releases() -> ClusterManagerCall {
    ClusterManagerCall::ReleaseResource {
        handle: Some("202611220133.17".into()),
        ids: Some((1..=REQUESTS).collect()),
    }
}

fn grants(count: i32) -> SessionDriverCall {
    let grant = |id| ResourceGrant {
        id,
        node_name: format!("tracker_host{id}.example.com:localhost/127.0.0.1:34567"),
        address: InetAddress::new(format!("host{id}.example.com"), 34_567),
        granted_time: 1_795_000_000_000,
        type_: ResourceType::MAP,
        app_info: Some(format!("host{id}.example.com:50060")),
    };
    SessionDriverCall::GrantResource {
        handle: Some("202611220133.17".into()),
        granted: Some((1..=count).map(grant).collect()),
    }
}
