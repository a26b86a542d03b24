//! Runs against a small cluster manager with planted faults: exactly these must be found.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::meter::locked;
use super::*;
use corona_wire::Exception;
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, SessionDriver,
};
use corona_wire::client::{Client, ClientOptions};
use corona_wire::generated::{self as wire, ResourceGrant, RunningSession};
use corona_wire::server::{Answer, Handler, Limits, ListenOn, Peer, Server, listen};

/// A job of so many maps that are released at once.
pub(super) fn job(maps: u32) -> Job {
    Job {
        maps,
        reduces: 0,
        hosts: 0,
        placement: Placement::Scattered,
        hold: Duration::ZERO,
        request_batch: 1_000,
        release_batch: 1,
        pause: Duration::ZERO,
    }
}

/// The faults of the small cluster manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Notifies each tenth grant twice.
    TellsTwice,
    /// Grants each tenth request a second time, on another node.
    GrantsTwice,
    /// Grants slots without a request.
    Invents,
    /// Misreports a property of a node.
    Misquotes,
    /// Grants everything on the first node.
    Crowds,
    /// Keeps counting each tenth slot after its release.
    ForgetsReleases,
    /// Ends a session by itself.
    DropsSessions,
    /// Asks a node to restart.
    Restarts,
    /// Closes the connection instead of each tenth reply about requests.
    Closes,
}

/// A cluster manager without a scheduler: each request is granted at once.
struct Small {
    wrong: Wrong,
    state: Mutex<ManagerState>,
    handles: AtomicU64,
    calls: AtomicU64,
}

#[derive(Default)]
struct ManagerState {
    nodes: Vec<wire::ClusterNodeInfo>,
    granted: u64,
    sessions: HashMap<String, TestSession>,
}

struct TestSession {
    to: wire::InetAddress,
    held: HashSet<i32>,
    forgotten: i32,
}

impl Small {
    fn start(wrong: Wrong) -> (SocketAddr, watch::Sender<bool>) {
        let (handles, calls) = (AtomicU64::new(0), AtomicU64::new(0));
        let small = Small { wrong, state: Mutex::default(), handles, calls };
        let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let server = Server::new(listener, small, Limits::default());
        let address = server.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server.run::<ClusterManager>(stopped));
        (address, stop)
    }

    fn heartbeat(&self, node: wire::ClusterNodeInfo) -> bool {
        let mut state = locked(&self.state);
        if state.nodes.iter().all(|known| known.name != node.name) {
            state.nodes.push(node);
        }
        self.wrong == Wrong::Restarts
    }

    /// The grants for requests, and the sessions to notify.
    fn grant(
        &self,
        handle: &str,
        ids: Vec<i32>,
    ) -> Option<(wire::InetAddress, Vec<ResourceGrant>)> {
        let mut state = locked(&self.state);
        let ManagerState { nodes, granted, sessions } = &mut *state;
        let session = sessions.get_mut(handle)?;
        let mut grant = |id| {
            *granted += 1;
            let place = if self.wrong == Wrong::Crowds { 0 } else { *granted as usize };
            let node = &nodes[place % nodes.len()];
            let info = &node.resource_infos.as_ref().unwrap()[&wire::ResourceType::MAP];
            ResourceGrant {
                id,
                node_name: node.name.clone(),
                address: node.address.clone(),
                granted_time: 1,
                type_: wire::ResourceType::MAP,
                app_info: Some(info.clone()),
            }
        };
        let mut grants = vec![];
        for id in ids {
            session.held.insert(id);
            grants.push(grant(id));
            if id % 10 == 0 {
                match self.wrong {
                    Wrong::TellsTwice => grants.push(grants[grants.len() - 1].clone()),
                    Wrong::GrantsTwice => grants.push(grant(id)),
                    Wrong::Invents => grants.push(grant(1_000_000 + id)),
                    Wrong::Misquotes => {
                        let grant = grants.last_mut().unwrap();
                        grant.app_info = Some("elsewhere:1".into());
                    }
                    _ => {}
                }
            }
        }
        Some((session.to.clone(), grants))
    }

    fn release(&self, handle: &str, ids: &[i32]) {
        let mut state = locked(&self.state);
        let Some(session) = state.sessions.get_mut(handle) else { return };
        for id in ids {
            let was_held = session.held.remove(id);
            if was_held && id % 10 == 0 && self.wrong == Wrong::ForgetsReleases {
                session.forgotten += 1;
            }
        }
    }

    fn sessions(&self) -> Vec<RunningSession> {
        let state = locked(&self.state);
        let running = state.sessions.iter().map(|(handle, session)| {
            let slots = session.held.len() as i32 + session.forgotten;
            RunningSession {
                handle: handle.clone(),
                name: "name".into(),
                user_id: "user".into(),
                pool_info: wire::PoolInfoStrings::new("default".into(), "defaultpool".into()),
                priority: None,
                deadline: None,
                running_resources: Some([(wire::ResourceType::MAP, slots)].into()),
            }
        });
        running.collect()
    }
}

impl Handler<ClusterManager> for Small {
    async fn call(&self, _peer: Peer, call: Call) -> Answer<Reply> {
        let is_about_requests =
            matches!(call, Call::RequestResource { .. } | Call::ReleaseResource { .. });
        if self.wrong == Wrong::Closes
            && is_about_requests
            && self.calls.fetch_add(1, Ordering::Relaxed) % 10 == 9
        {
            return Answer::Close;
        }
        Answer::Reply(match call {
            Call::NodeHeartbeat { node: Some(node) } => {
                Reply::NodeHeartbeat(wire::NodeHeartbeatResponse::new(self.heartbeat(node), None))
            }
            Call::GetNextSessionId => {
                let number = self.handles.fetch_add(1, Ordering::Relaxed);
                Reply::GetNextSessionId(format!("1.{number}"))
            }
            Call::SessionStart { handle: Some(handle), info: Some(info) } => {
                let session = TestSession { to: info.address, held: HashSet::new(), forgotten: 0 };
                locked(&self.state).sessions.insert(handle.clone(), session);
                let place = wire::ClusterManagerInfo::new(String::new(), String::new());
                let pool = wire::PoolInfoStrings::new("default".into(), "defaultpool".into());
                Reply::SessionStart(wire::SessionRegistrationData::new(handle, place, pool))
            }
            Call::RequestResource { handle: Some(handle), requests: Some(requests) } => {
                let ids: Vec<i32> = requests.iter().map(|request| request.id).collect();
                let dropped = self.wrong == Wrong::DropsSessions && ids.contains(&7);
                if dropped {
                    locked(&self.state).sessions.remove(&handle);
                }
                let Some((to, grants)) = self.grant(&handle, ids) else {
                    return Answer::Exception(Exception::invalid_session_handle(handle));
                };
                let to = (to.host.as_str(), to.port as u16);
                let driver = Client::<SessionDriver>::connect(to, ClientOptions::default());
                let mut driver = driver.await.expect("the session listens");
                driver.grant_resource(handle, grants).await.expect("the session answers");
                Reply::RequestResource
            }
            Call::ReleaseResource { handle: Some(handle), ids: Some(ids) } => {
                self.release(&handle, &ids);
                Reply::ReleaseResource
            }
            Call::SessionEnd { handle: Some(handle), .. } => {
                locked(&self.state).sessions.remove(&handle);
                Reply::SessionEnd
            }
            Call::GetSessions => Reply::GetSessions(self.sessions()),
            _ => return Answer::Close,
        })
    }
}

fn plan(manager: SocketAddr, crowds: Vec<Crowd>) -> Plan {
    let heartbeats = Heartbeats::Every(Duration::from_millis(50));
    Plan {
        scenario: "test",
        manager,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(1),
        nodes: Nodes { count: 20, cpus: 8, map_slots: 40, connections: 3, heartbeats },
        crowds,
        late_crowds: vec![],
        connections: Connections::None,
        threads: 1,
        reconnect: Duration::ZERO,
        process_id: None,
    }
}

/// One session at a time, of 100 maps.
fn one_by_one(jobs_per_session: Option<u32>) -> Crowd {
    let job = Job { hosts: 2, pause: Duration::from_millis(5), ..job(100) };
    Crowd { name: "jobs", sessions: 1, job, jobs_per_session, driver: Driver::Prompt }
}

async fn report_on(wrong: Wrong, jobs_per_session: Option<u32>) -> Report {
    let (manager, _stop) = Small::start(wrong);
    let plan = plan(manager, vec![one_by_one(jobs_per_session)]);
    run(plan, &Progress::default(), pending()).await.expect("the run begins")
}

#[tokio::test]
async fn a_cluster_manager_that_does_right_has_no_errors_and_all_figures() {
    let report = report_on(Wrong::Nothing, Some(1)).await;
    assert_eq!(report.errors, []);
    let names: HashSet<&str> =
        report.measures.iter().map(|measure| measure.name.as_str()).collect();
    for name in ["nodeHeartbeat", "jobs: request to grant", "jobs: job", "releaseResource"] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    for measure in &report.measures {
        assert!(measure.median_us <= measure.percentile_99_us, "{measure:?}");
        assert!(measure.percentile_99_us <= measure.max_us && measure.count > 0, "{measure:?}");
    }
    assert!(report.measured_ms >= 1_000 && !report.stopped_early);
    let maps: u64 = ["maps on a host that they wanted", "maps elsewhere"]
        .iter()
        .filter_map(|name| report.counts.get(*name))
        .sum();
    let granted = report.measures.iter().find(|measure| measure.name == "jobs: request to grant");
    // The measurement begins between two of them.
    assert!(maps.abs_diff(granted.unwrap().count) <= 100, "{maps} {granted:?}");
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

#[tokio::test]
async fn calls_are_repeated_after_a_lost_connection_if_the_plan_expects_that() {
    let (manager, _stop) = Small::start(Wrong::Closes);
    let plan =
        Plan { reconnect: Duration::from_secs(60), ..plan(manager, vec![one_by_one(Some(1))]) };
    let report = run(plan, &Progress::default(), pending()).await.expect("the run begins");
    assert_eq!(report.errors, []);
    let repeated = report.counts.get("calls repeated after a lost connection");
    assert!(repeated.is_some_and(|count| *count > 0), "{:?}", report.counts);
}

#[tokio::test]
async fn planted_errors_are_found() {
    let planted = [
        (Wrong::TellsTwice, FaultKind::GrantedTwice, "MAP 10 of session 1.0 on load-node-"),
        (Wrong::GrantsTwice, FaultKind::GrantedTwice, "MAP 10 of session 1.0 on load-node-"),
        (Wrong::Invents, FaultKind::NeverRequested, "MAP 1000010 of session 1.0 on load-node-"),
        (Wrong::Misquotes, FaultKind::WrongGrant, "grant 10 of 1.0: load-node-"),
        (Wrong::Crowds, FaultKind::OverCapacity, "100 MAP slots of load-node-"),
        (Wrong::ForgetsReleases, FaultKind::LostRelease, "session 1.0 counts as having "),
        (Wrong::DropsSessions, FaultKind::SessionLost, "a session of jobs: "),
        (Wrong::Restarts, FaultKind::NodeRefused, "nodeHeartbeat: a node is to restart"),
    ];
    for (wrong, kind, first) in planted {
        let report = report_on(wrong, None).await;
        let [fault] = &report.errors[..] else { panic!("{wrong:?}: {:?}", report.errors) };
        assert_eq!(fault.kind, kind, "{wrong:?}: {fault:?}");
        assert!(fault.first.starts_with(first) && fault.count > 0, "{wrong:?}: {fault:?}");
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_ends_in_order() {
    let (manager, _stop) = Small::start(Wrong::Nothing);
    let plan =
        Plan { duration: Duration::from_secs(3_000), ..plan(manager, vec![one_by_one(None)]) };
    let stop = async {
        let mut client: Client<ClusterManager> =
            Client::connect(manager, ClientOptions::default()).await.unwrap();
        while client.get_sessions().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let report = run(plan, &Progress::default(), stop).await.expect("the run begins");
    assert_eq!((report.errors, report.stopped_early), (vec![], true));
    let mut client: Client<ClusterManager> =
        Client::connect(manager, ClientOptions::default()).await.unwrap();
    assert_eq!(client.get_sessions().await.unwrap(), [], "all sessions were ended");
}

#[tokio::test]
async fn runs_that_cannot_begin_have_a_reason() {
    let nobody = corona_net::testing::nobody();
    let address = nobody.address();
    let begin = async |plan| {
        let error = run(plan, &Progress::default(), pending()).await.unwrap_err();
        error.to_string()
    };
    let error = begin(plan(address, vec![])).await;
    assert!(error.starts_with(&format!("the cluster manager at {address}: no connection: ")));
    let many = Crowd { sessions: 50_001, ..one_by_one(None) };
    let error = begin(plan(address, vec![many])).await;
    assert_eq!(error, "sessions must be from 0 to 50000, not 50001");
}

#[test]
fn plans_tell_all_that_they_do_in_lines_of_a_terminal() {
    let address = (Ipv4Addr::LOCALHOST, 9_090).into();
    let mut plan = plan(address, vec![one_by_one(None)]);
    plan.late_crowds.push(Crowd { name: "late", driver: Driver::Stuck, ..one_by_one(None) });
    let lines = plan.describe();
    let expected = [
        "20 nodes of 8 CPUs and 40 maps, heartbeats each 0.05 s over 3 connections",
        "1 session (jobs) of 100 maps near 2 hosts, 0.005 s between jobs",
        "later, 1 session (late) of 100 maps near 2 hosts, 0.005 s between jobs, not answering",
        "1 s after 0 s of warm-up, at most 121 s with start and end",
    ];
    assert_eq!(lines, expected);
    assert_eq!(plan.most_connections(), 8);
}

#[test]
fn plans_are_bounded() {
    let address = (Ipv4Addr::LOCALHOST, 9_090).into();
    let good = plan(address, vec![one_by_one(None)]);
    assert_eq!(good.check(), Ok(()));
    type Change = (&'static str, fn(&mut Plan));
    let bad: [Change; 8] = [
        ("the seconds of the run", |plan| plan.duration = Duration::ZERO),
        ("the seconds of the run", |plan| plan.duration = Duration::from_secs(3_601)),
        ("threads", |plan| plan.threads = 0),
        ("nodes", |plan| plan.nodes.count = 1_000_001),
        ("connections of nodes", |plan| plan.nodes.connections = 21),
        ("connections of nodes", |plan| plan.nodes.connections = 0),
        ("slots of a session", |plan| plan.crowds[0].job.maps = 0),
        ("outstanding requests", |plan| {
            plan.crowds[0].job.maps = 1_000_000;
            plan.crowds[0].sessions = 21;
        }),
    ];
    for (what, change) in bad {
        let mut plan = good.clone();
        change(&mut plan);
        let error = plan.check().expect_err(what).to_string();
        assert!(error.starts_with(&format!("{what} must be from ")), "{error}");
    }
}
