//! A session at the built program, with emulated nodes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use compat_tests::cluster_peers::{Caller, Node};
use compat_tests::start_plain;
use corona::session_driver::{
    Ending, Endpoint, Event, Options, ResourceType, SessionDriver, SessionEvents, SessionStatus,
    SlotRequest,
};

use super::{block_on, next};

/// Takes grants until there are so many. Returns id and node of each.
async fn take(events: &mut SessionEvents, count: usize) -> BTreeSet<(i32, String)> {
    let mut taken = BTreeSet::new();
    while taken.len() < count {
        match next(events).await {
            Event::Granted(grants) => {
                taken.extend(grants.iter().map(|grant| (grant.id, grant.node_name.to_string())));
            }
            other => panic!("{other:?}"),
        }
    }
    taken
}

#[test]
fn a_session_gets_slots_near_its_hosts_and_gives_them_back() {
    block_on(async {
        let manager = start_plain();
        let thrift = manager.thrift();
        let _nodes = [("n1", "10.0.0.1"), ("n2", "10.0.0.2")]
            .map(|(name, host)| Node::start(thrift, name, host, 2));
        let address = Endpoint::new(Ipv4Addr::LOCALHOST.to_string(), thrift.port());
        let mut options = Options::new(address, "user");
        options.timers.heartbeat_interval = Duration::from_millis(100);
        let (driver, mut events) = SessionDriver::start(options).await.expect("it starts");
        let near = SlotRequest::new(ResourceType::Map).near(["10.0.0.2"]);
        let ids = driver.request(vec![near]).unwrap();
        assert_eq!(take(&mut events, 1).await, [(1, "n2".to_owned())].into());
        driver.release(ids).unwrap();
        let ids = driver.request(vec![SlotRequest::new(ResourceType::Map); 3]).unwrap();
        assert_eq!(ids, [2, 3, 4]);
        take(&mut events, 3).await;
        let mut calls = Caller::open(thrift);
        assert_eq!(calls.sessions()[0]["handle"], **driver.handle());
        let ending = driver.end(SessionStatus::Successful).await;
        assert!(matches!(*ending, Ending::Ended(SessionStatus::Successful)), "{ending}");
        assert!(calls.sessions().is_empty());
    });
}
