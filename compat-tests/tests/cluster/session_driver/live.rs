//! Sessions at the built program, with emulated nodes and a proxy job tracker.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use compat_tests::cluster_peers::{Caller, Node};
use compat_tests::serving::{keep_address, serve};
use compat_tests::{launch, repository, start};
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::conformance::setup::RecordedSetup;
use corona::session_driver::{
    Ending, Endpoint, Event, Lost, Options, PoolName, ResourceType, SessionDriver, SessionEvents,
    SessionStatus, SlotRequest,
};
use corona::wire::calls::{ProxyJobTracker, ProxyJobTrackerCall, ProxyJobTrackerReply};
use corona::wire::server::Answer;
use serde_json::json;
use tokio::sync::watch;

use super::{block_on, next};

/// The built program with nodes, and a proxy job tracker that has nothing but its flag.
struct Cluster {
    launch: Launch,
    manager: LaunchedManager,
    proxy: SocketAddr,
    _stop: watch::Sender<bool>,
}

impl Cluster {
    fn start(conf_dir: Option<PathBuf>, settings: &[(&str, &str)]) -> Cluster {
        let (proxy, stop) = proxy_job_tracker();
        let proxy_setting = [("corona.proxy.job.tracker.thriftaddr", &*proxy.to_string())];
        let mut launch = launch(&[&proxy_setting, settings].concat());
        if let Some(conf_dir) = &conf_dir {
            let setup = RecordedSetup::read(conf_dir).expect("a configuration");
            let state = std::env::temp_dir().join("no-such-directory/cm.state");
            launch.overrides.splice(..0, setup.overrides(1.0, proxy, &state));
        }
        launch.conf_dir = conf_dir;
        let manager = start(&launch);
        Cluster { launch, manager, proxy, _stop: stop }
    }

    /// Starts the program again at the same address, with these arguments besides the old ones.
    fn restart(self, arguments: &[&str]) -> Cluster {
        let Cluster { mut launch, manager, proxy, _stop } = self;
        let address = format!("localhost:{}", manager.thrift().port());
        let thrift = manager.thrift();
        drop(manager);
        keep_address(thrift);
        launch.overrides.push(("cm.server.address".into(), address));
        launch.arguments = arguments.iter().map(Into::into).collect();
        let manager = start(&launch);
        Cluster { launch, manager, proxy, _stop }
    }

    /// A node with this many CPUs that heartbeats until it is dropped.
    fn node(&self, name: &str, host: &str, cpus: i16) -> Node {
        Node::start(self.manager.thrift(), name, host, cpus)
    }

    fn options(&self) -> Options {
        let thrift = self.manager.thrift();
        let proxy = Endpoint::new(self.proxy.ip().to_string(), self.proxy.port());
        let manager = Endpoint::new(Ipv4Addr::LOCALHOST.to_string(), thrift.port());
        let mut options = Options::new(manager, "user");
        options.proxy_job_tracker = Some(proxy);
        options.timers.heartbeat_interval = Duration::from_millis(100);
        options.timers.poll_interval = Duration::from_millis(50);
        options.timers.safe_mode_poll = Duration::from_millis(20);
        options.timers.longest_pause = Duration::from_millis(100);
        options
    }

    async fn session(&self) -> (SessionDriver, SessionEvents) {
        SessionDriver::start(self.options()).await.expect("the session starts")
    }

    fn calls(&self) -> Caller {
        Caller::open(self.manager.thrift())
    }

    fn set_safe_mode(&self, on: bool) {
        let done = self.calls().call("setSafeMode", &json!({ "safeMode": on }));
        assert_eq!(done, true);
    }
}

fn proxy_job_tracker() -> (SocketAddr, watch::Sender<bool>) {
    let flag = Arc::new(AtomicBool::new(false));
    serve::<ProxyJobTracker>(move |_, call| {
        let reply = match call {
            ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag: set } => {
                flag.store(set, Ordering::SeqCst);
                ProxyJobTrackerReply::SetClusterManagerSafeModeFlag
            }
            _ => ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(flag.load(Ordering::SeqCst)),
        };
        async move { Answer::Reply(reply) }
    })
}

fn maps(count: usize) -> Vec<SlotRequest> {
    vec![SlotRequest::new(ResourceType::Map); count]
}

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
        let cluster = Cluster::start(None, &[]);
        let _nodes = [cluster.node("n1", "10.0.0.1", 2), cluster.node("n2", "10.0.0.2", 2)];
        let (driver, mut events) = cluster.session().await;
        let near = SlotRequest::new(ResourceType::Map).near(["10.0.0.2"]);
        let ids = driver.request(vec![near]).unwrap();
        assert_eq!(take(&mut events, 1).await, [(1, "n2".to_owned())].into());
        driver.release(ids).unwrap();
        let ids = driver.request(maps(3)).unwrap();
        assert_eq!(ids, [2, 3, 4]);
        take(&mut events, 3).await;
        assert_eq!(cluster.calls().sessions()[0]["handle"], **driver.handle());
        let ending = driver.end(SessionStatus::Successful).await;
        assert!(matches!(*ending, Ending::Ended(SessionStatus::Successful)), "{ending}");
        assert!(cluster.calls().sessions().is_empty());
    });
}

#[test]
fn preemption_is_survived() {
    block_on(async {
        let conf_dir = repository().join("fixtures/config/preempt");
        let cluster = Cluster::start(Some(conf_dir), &[]);
        let _node = cluster.node("n1", "10.0.0.1", 4);
        let in_pool = |group, pool| {
            let mut options = cluster.options();
            options.pool = PoolName::new(group, pool);
            options
        };
        let (first, mut told) = SessionDriver::start(in_pool("group_b", "pool_b")).await.unwrap();
        first.request(maps(4)).unwrap();
        take(&mut told, 4).await;
        // Its pool has a minimum of 2 and takes it back after 3 s.
        let (second, mut granted) =
            SessionDriver::start(in_pool("group_a", "pool_a")).await.unwrap();
        second.request(maps(2)).unwrap();
        let mut lost: Vec<Lost> = Vec::new();
        while lost.len() < 2 {
            let Event::Revoked(more) = next(&mut told).await else { panic!() };
            lost.extend(more);
        }
        first.replace(&lost).unwrap();
        take(&mut granted, 2).await;
        second.end(SessionStatus::Successful).await;
        let again = take(&mut told, 2).await;
        assert_eq!(again.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [5, 6]);
    });
}

#[test]
fn an_upgrade_is_survived() {
    block_on(async {
        let scratch = tempfile::tempdir().expect("a directory for the state file");
        let state = scratch.path().join("cm.state").display().to_string();
        // It resumes from the state file alone.
        let settings = [("cm.state", &*state), ("corona.cm.journal.dir", "none")];
        let cluster = Cluster::start(None, &settings);
        let _node = cluster.node("n1", "10.0.0.1", 2);
        let (driver, mut events) = cluster.session().await;
        driver.request(maps(1)).unwrap();
        take(&mut events, 1).await;
        cluster.set_safe_mode(true);
        driver.request(maps(1)).unwrap();
        assert_eq!(cluster.calls().call("persistState", &json!({})), true);
        // The new one clears the flag by itself.
        let cluster = cluster.restart(&["--recover-from-disk"]);
        let _node = cluster.node("n1", "10.0.0.1", 2);
        assert_eq!(take(&mut events, 1).await, [(2, "n1".to_owned())].into());
        assert_eq!(driver.snapshot().grants().count(), 2);
        assert_eq!(driver.traffic().failed_attempts, 0);
        let ending = driver.end(SessionStatus::Successful).await;
        assert!(matches!(*ending, Ending::Ended(_)), "{ending}");
    });
}
