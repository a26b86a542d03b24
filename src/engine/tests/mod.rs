//! The engine's rules, as short stories: a world, events, and their result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::settings::{PoolSettings, SchedulingMode, Settings, SizeRedirect};
pub(super) use super::testing::{info, report, request, requests};
use super::types::*;
use super::*;

mod differences;
mod image;
mod nodes;
mod parts;
mod queues;
mod quotas;
mod resource_examples;
mod resources;
mod room;
mod views;

/// An engine with a clock, and all notifications to sessions.
pub(super) struct TestEngine {
    pub(super) engine: Engine,
    pub(super) now: i64,
    told: BTreeMap<String, Vec<SentNotice>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum SentNotice {
    Granted(Vec<(i32, String)>),
    Revoked(Vec<i32>),
    Dead(String),
}

use ResourceType::{JobTracker, Map, Reduce};
use SentNotice::{Dead, Granted, Revoked};

impl TestEngine {
    /// One CPU is one slot of each type.
    pub(super) fn new(change: impl FnOnce(&mut Settings)) -> TestEngine {
        let mut settings = testing::settings();
        change(&mut settings);
        TestEngine { engine: testing::engine(settings), now: 1_000, told: BTreeMap::new() }
    }

    pub(super) fn apply(&mut self, input: Input) -> Result<Reply, Refusal> {
        let outcome = self.engine.apply(Millis(self.now), input);
        assert_eq!(self.engine.audit(), Ok(()));
        for effect in outcome.effects {
            if let Effect::Notify { handle, notification, .. } = effect {
                let told = match notification {
                    Notification::Granted(grants) => {
                        Granted(grants.iter().map(|g| (g.id, g.node_name.to_string())).collect())
                    }
                    Notification::Revoked(grants) => Revoked(grants.iter().map(|g| g.id).collect()),
                    Notification::DeadNode(name) => Dead(name.to_string()),
                };
                self.told.entry(handle.to_string()).or_default().push(told);
            }
        }
        outcome.reply
    }

    /// Applies the input and all passes that it leads to.
    pub(super) fn run(&mut self, input: Input) -> Result<Reply, Refusal> {
        let reply = self.apply(input);
        while self.engine.wants_pass() {
            self.apply(Input::Pass).unwrap();
        }
        reply
    }

    /// Lets time pass, with ticks when they are due.
    pub(super) fn wait(&mut self, ms: i64) {
        let end = self.now + ms;
        while let Some(due) = self.engine.next_deadline().filter(|due| due.0 <= end) {
            self.now = self.now.max(due.0);
            self.run(Input::Tick).unwrap();
        }
        self.now = end;
    }

    pub(super) fn node(&mut self, name: &str, host: &str, cpus: i16) {
        self.try_node(report(name, host, cpus)).unwrap();
    }

    pub(super) fn try_node(&mut self, report: NodeReport) -> Result<Reply, Refusal> {
        self.run(Input::HeartbeatNode { report, rack: None })
    }

    pub(super) fn start(&mut self, handle: &str, pool: &str) {
        self.start_with(handle, pool, |_| {}).unwrap();
    }

    pub(super) fn start_with(
        &mut self,
        handle: &str,
        pool: &str,
        change: impl FnOnce(&mut SessionInfo),
    ) -> Result<Reply, Refusal> {
        let mut info = info(handle, pool);
        change(&mut info);
        self.run(Input::StartSession { handle: handle.into(), info })
    }

    pub(super) fn ask(&mut self, handle: &str, requests: Vec<ResourceRequest>) {
        self.try_ask(handle, requests).unwrap();
    }

    pub(super) fn try_ask(
        &mut self,
        handle: &str,
        requests: Vec<ResourceRequest>,
    ) -> Result<Reply, Refusal> {
        self.run(testing::ask(handle, requests))
    }

    /// Starts a session that makes these requests.
    pub(super) fn session(&mut self, handle: &str, pool: &str, requests: Vec<ResourceRequest>) {
        self.start(handle, pool);
        self.ask(handle, requests);
    }

    pub(super) fn release(&mut self, handle: &str, ids: &[i32]) {
        self.run(Input::ReleaseResources { handle: handle.into(), ids: ids.to_vec() }).unwrap();
    }

    pub(super) fn end(&mut self, handle: &str) {
        let status = SessionStatus::Successful;
        self.run(Input::EndSession { handle: handle.into(), status }).unwrap();
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = Settings::clone(self.engine.settings());
        change(&mut settings);
        self.run(Input::SettingsChanged { settings: Box::new(settings) }).unwrap();
    }

    pub(super) fn exclude(&mut self, hosts: &[&str]) {
        let exclude = hosts.iter().map(|host| Arc::from(*host)).collect();
        let hosts = Hosts { include: BTreeSet::new(), exclude };
        self.run(Input::HostsChanged { hosts }).unwrap();
    }

    pub(super) fn drain(&mut self, node: &str, on: bool) {
        self.run(Input::DrainNode { node: node.into(), on }).unwrap();
    }

    /// The session reports failed tasks and connections of a node.
    pub(super) fn blame(
        &mut self,
        handle: &str,
        node: &str,
        kinds: &[ResourceType],
        [failed, failed_connections]: [i32; 2],
    ) {
        let reports = vec![NodeUsageReport { node_name: node.into(), failed, failed_connections }];
        let (handle, kinds) = (handle.into(), kinds.to_vec());
        self.run(Input::NodeFeedback { handle, kinds, reports }).unwrap();
    }

    /// The same with an engine that is made of the image of this one, whose bytes have this form.
    pub(super) fn restored(&self, form: u8) -> TestEngine {
        let image = self.engine.image();
        let bytes = codec::encode(&image).unwrap();
        assert_eq!(bytes.first(), Some(&form));
        let engine = Engine::from_image(codec::decode(&bytes).unwrap(), 99).unwrap();
        assert_eq!(engine.image(), image);
        TestEngine { engine, now: self.now, told: BTreeMap::new() }
    }

    /// All notifications to the session since the last call.
    pub(super) fn told(&mut self, handle: &str) -> Vec<SentNotice> {
        self.told.remove(handle).unwrap_or_default()
    }

    /// Ids granted to the session since the last call of this or of [`Self::told`].
    pub(super) fn granted(&mut self, handle: &str) -> Vec<i32> {
        let told = self.told(handle).into_iter();
        told.filter_map(|told| match told {
            Granted(grants) => Some(grants.into_iter().map(|(id, _)| id)),
            _ => None,
        })
        .flatten()
        .collect()
    }

    /// Grants of the type that the session holds.
    pub(super) fn holds(&self, handle: &str, kind: ResourceType) -> i64 {
        self.counts(handle, kind).granted
    }

    /// Grants of maps that the sessions 2026.1, 2026.2, and so on hold.
    pub(super) fn held(&self, sessions: usize) -> Vec<i64> {
        (1..=sessions).map(|number| self.holds(&format!("2026.{number}"), Map)).collect()
    }

    /// Why requests of the session wait.
    pub(super) fn reasons(&self, handle: &str) -> String {
        let reasons = self.engine.explain(handle, Millis(self.now)).unwrap();
        reasons.into_iter().map(|waiting| waiting.text).collect::<Vec<_>>().join(" | ")
    }

    pub(super) fn counts(&self, handle: &str, kind: ResourceType) -> TypeCounts {
        self.engine.session_at(handle, Millis(self.now)).unwrap().counts[kind].now
    }
}

pub(super) fn cpus(mut request: ResourceRequest, num_cpus: i16) -> ResourceRequest {
    request.specs = Some(ComputeSpecs { num_cpus, ..ComputeSpecs::default() });
    request
}

pub(super) fn pool(settings: &mut Settings, name: &str, change: impl FnOnce(&mut PoolSettings)) {
    let (group, pool) = name.split_once('.').unwrap();
    change(settings.pools.pools.entry(PoolName::new(group, pool)).or_default());
}

#[test]
fn slots_are_granted_released_and_granted_again() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 2);
    world.session("2026.1", "g.p", requests(1..=3, Map));
    assert_eq!(world.told("2026.1"), [Granted(vec![(1, "n1".into()), (3, "n1".into())])]);
    world.release("2026.1", &[1]);
    assert_eq!(world.granted("2026.1"), [2]);
    world.session("2026.2", "g.p", requests(1..=5, Map));
    assert_eq!(world.granted("2026.2"), [0; 0]);
    world.end("2026.1");
    assert_eq!(world.granted("2026.2").len(), 2);
}

#[test]
fn each_type_has_slots_and_notifications_of_its_own() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 1);
    world.start("2026.1", "g.p");
    let mut all = requests(1..=1, Map);
    all.extend(requests(2..=2, Reduce));
    all.extend(requests(3..=3, JobTracker));
    world.ask("2026.1", all);
    let told = world.told("2026.1");
    assert_eq!(told, [1, 2, 3].map(|id| Granted(vec![(id, "n1".into())])));
}

#[test]
fn the_cursor_skips_one_request_after_each_grant() {
    // Spec: cluster-manager/04 §7: 1, 3, then around to 2, 4.
    let mut world = TestEngine::new(|_| {});
    world.session("2026.1", "g.p", requests(1..=4, Reduce));
    world.node("n1", "h1", 4);
    assert_eq!(world.granted("2026.1"), [1, 3, 2, 4]);
}

#[test]
fn excluded_hosts_are_not_used() {
    let mut world = TestEngine::new(|_| {});
    for host in ["h1", "h2", "h3"] {
        world.node(host, host, 4);
    }
    world.start("2026.1", "g.p");
    let mut wish = request(1, Map, &[]);
    wish.exclude_hosts = vec!["h1".into(), "h3".into()];
    world.ask("2026.1", vec![wish]);
    assert_eq!(world.told("2026.1"), [Granted(vec![(1, "h2".into())])]);
    let mut nowhere = request(2, Map, &[]);
    nowhere.exclude_hosts = ["h1", "h2", "h3"].map(Arc::from).to_vec();
    world.ask("2026.1", vec![nowhere]);
    assert_eq!(world.granted("2026.1"), [0; 0]);
    world.node("late", "h4", 1);
    assert_eq!(world.told("2026.1"), [Granted(vec![(2, "late".into())])]);
    let mut contradiction = request(3, Map, &["h1"]);
    contradiction.exclude_hosts = vec!["h1".into()];
    let refused = world.try_ask("2026.1", vec![contradiction]);
    assert_eq!(refused, Err(Refusal::ContradictoryHosts("2026.1".into())));
}

#[test]
fn near_nodes_are_waited_for_as_configured() {
    // Spec: cluster-manager/04 §7: (node wait, rack wait) and when a request for an absent host in
    // the same rack is granted elsewhere.
    for (node_wait, rack_wait, granted_after) in
        [(0, 0, 0), (0, 5_000, 1), (3_000, 0, 0), (3_000, 5_000, 3_001)]
    {
        let mut world = TestEngine::new(|settings| {
            settings.scheduling.node_locality_wait_ms[Map] = node_wait;
            settings.scheduling.rack_locality_wait_ms[Map] = rack_wait;
        });
        world.node("n1", "h1", 1);
        world.session("2026.1", "g.p", vec![request(1, Map, &["absent"])]);
        if granted_after > 0 {
            world.wait(granted_after - 1);
            assert_eq!(world.granted("2026.1"), [0; 0], "{node_wait} {rack_wait}");
            world.wait(1);
        }
        assert_eq!(world.granted("2026.1"), [1], "{node_wait} {rack_wait}");
    }
}

#[test]
fn a_near_node_that_comes_ends_the_wait() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.node_locality_wait_ms[Map] = 60_000;
        settings.scheduling.rack_locality_wait_ms[Map] = 60_000;
    });
    world.node("far", "far", 4);
    world.session("2026.1", "g.p", vec![request(1, Map, &["near"]), request(2, Map, &["absent"])]);
    assert_eq!(world.granted("2026.1"), [0; 0]);
    world.node("near", "near", 1);
    assert_eq!(world.told("2026.1"), [Granted(vec![(1, "near".into())])]);
    // A request without hosts does not wait; requests of other types neither.
    world.ask("2026.1", vec![request(3, Map, &[]), request(4, Reduce, &["absent"])]);
    assert_eq!(world.granted("2026.1"), [3, 4]);
}

#[test]
fn local_nodes_are_preferred_then_racks() {
    let mut world = TestEngine::new(|_| {});
    for (name, rack) in [("a1", "/a"), ("b1", "/b"), ("b2", "/b")] {
        let report = report(name, name, 1);
        world.run(Input::HeartbeatNode { report, rack: Some(rack.into()) }).unwrap();
    }
    world.start("2026.1", "g.p");
    let wishes = vec![request(1, Map, &["b9"]), request(2, Map, &["a1"])];
    let racks = vec![("b9".into(), "/b".into())];
    let handle = "2026.1".into();
    world.run(Input::RequestResources { handle, requests: wishes, racks }).unwrap();
    let told = world.told("2026.1");
    assert_eq!(told, [Granted(vec![(2, "a1".into()), (1, "b1".into())])]);
}

#[test]
fn requests_without_hosts_spread_over_the_nodes() {
    // Spec: cluster-manager/04 §10: 10 nodes, 10 requests, one on each.
    let mut world = TestEngine::new(|_| {});
    for node in 0..10 {
        world.node(&format!("n{node}"), &format!("h{node}"), 8);
    }
    world.session("2026.1", "g.p", requests(1..=10, Reduce));
    assert!(world.engine.nodes().iter().all(|node| node.slots[Reduce].used == 1));
}

#[test]
fn pools_share_by_weight_minimum_and_maximum() {
    let mut world = TestEngine::new(|settings| {
        pool(settings, "g.heavy", |pool| pool.weight = 2.0);
        pool(settings, "g.light", |_| {});
    });
    for (index, name) in ["g.heavy", "g.light"].into_iter().enumerate() {
        let handle = format!("2026.{index}");
        world.session(&handle, name, requests(1..=100, Map));
    }
    world.node("n1", "h1", 48);
    assert_eq!([world.holds("2026.0", Map), world.holds("2026.1", Map)], [32, 16]);

    let mut world = TestEngine::new(|settings| {
        pool(settings, "g.floor", |pool| pool.minimum[Map] = 20);
        pool(settings, "g.capped", |pool| pool.maximum[Map] = 5);
        pool(settings, "g.plain", |_| {});
    });
    for (index, name) in ["g.floor", "g.capped", "g.plain"].into_iter().enumerate() {
        let handle = format!("2026.{index}");
        world.session(&handle, name, requests(1..=100, Map));
    }
    world.node("n1", "h1", 40);
    let holds = [0, 1, 2].map(|index| world.holds(&format!("2026.{index}"), Map));
    assert_eq!(holds, [20, 5, 15]);
}

#[test]
fn modes_order_the_sessions_of_a_pool() {
    let ask_in_turn = |mode, changes: [fn(&mut SessionInfo); 3]| {
        let mut world = TestEngine::new(|settings| settings.scheduling.default_mode = mode);
        for (index, change) in changes.into_iter().enumerate() {
            let handle = format!("2026.{index}");
            world.start_with(&handle, "g.p", change).unwrap();
            world.ask(&handle, requests(1..=6, Map));
            world.now += 10;
        }
        world.node("n1", "h1", 8);
        [0, 1, 2].map(|index| world.holds(&format!("2026.{index}"), Map))
    };
    let same: [fn(&mut SessionInfo); 3] = [|_| {}; 3];
    assert_eq!(ask_in_turn(SchedulingMode::Fifo, same), [6, 2, 0]);
    assert_eq!(ask_in_turn(SchedulingMode::Fair, same), [3, 3, 2]);
    let urgent: [fn(&mut SessionInfo); 3] =
        [|_| {}, |_| {}, |info| info.priority = Some(SessionPriority::High)];
    assert_eq!(ask_in_turn(SchedulingMode::Fifo, urgent), [2, 0, 6]);
    let deadlines: [fn(&mut SessionInfo); 3] =
        [|_| {}, |info| info.deadline = Some(9), |info| info.deadline = Some(8)];
    assert_eq!(ask_in_turn(SchedulingMode::Deadline, deadlines), [0, 2, 6]);
}

#[test]
fn the_scenario_of_the_original_fifo_test() {
    // Spec: cluster-manager/04 §10: 100 nodes of 8 CPUs; five sessions of 800, 600, 200, 200, 200
    // requests, three quarters of them maps.
    let mut world = TestEngine::new(|_| {});
    for node in 0..100 {
        world.node(&format!("n{node}"), &format!("h{node}"), 8);
    }
    for (session, count) in [800, 600, 200, 200, 200].into_iter().enumerate() {
        let handle = format!("2026.{session}");
        world.start(&handle, "g.p");
        let maps = (1..=count * 3 / 4).map(|id| {
            let hosts = [id % 100, (id + 1) % 100, (id + 2) % 100].map(|host| format!("h{host}"));
            request(id, Map, &hosts.each_ref().map(String::as_str))
        });
        world.ask(&handle, maps.chain(requests(count * 3 / 4 + 1..=count, Reduce)).collect());
        world.wait(500);
    }
    let pending =
        |world: &TestEngine, session| world.counts(&format!("2026.{session}"), Map).pending;
    assert_eq!([0, 1, 2, 3, 4].map(|session| pending(&world, session)), [0, 250, 150, 150, 150]);
    world.end("2026.0");
    assert_eq!([1, 2, 3, 4].map(|session| pending(&world, session)), [0, 0, 0, 100]);
}

#[test]
fn a_starving_pool_takes_the_youngest_back() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.starving_time_for_minimum_ms = 1_500;
        settings.scheduling.starving_time_for_share_ms = 600_000;
        settings.scheduling.preempted_task_max_running_time_ms = 600_000;
        pool(settings, "g.hog", |_| {});
        pool(settings, "g.poor", |pool| pool.minimum[Map] = 3);
    });
    world.node("n1", "h1", 8);
    world.start("2026.1", "g.hog");
    for id in 1..=8 {
        world.ask("2026.1", requests(id..=id, Map));
        world.wait(10);
    }
    world.ask("2026.1", requests(9..=20, Map));
    world.told("2026.1");
    world.session("2026.2", "g.poor", requests(1..=8, Map));
    world.wait(1_000);
    assert_eq!((world.told("2026.1"), world.told("2026.2")), (vec![], vec![]));
    world.wait(2_000);
    assert_eq!(world.told("2026.1"), [Revoked(vec![8, 7, 6])]);
    assert_eq!(world.granted("2026.2").len(), 3);
    let counts = TypeCounts { requested: 20, pending: 12, granted: 5 };
    assert_eq!(world.counts("2026.1", Map), counts);
    world.wait(30_000);
    assert_eq!(world.told("2026.1"), [], "satisfied pools take nothing");
    world.release("2026.1", &[6, 7, 8]);
    assert_eq!(world.counts("2026.1", Map).requested, 17);
}

#[test]
fn preemption_widens_the_age_limit_round_by_round() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.starving_time_for_minimum_ms = 1;
        settings.scheduling.preempted_task_max_running_time_ms = 100;
        pool(settings, "g.hog", |_| {});
        pool(settings, "g.poor", |pool| pool.minimum[Map] = 2);
    });
    world.node("n1", "h1", 4);
    world.session("2026.1", "g.hog", requests(1..=4, Map));
    world.wait(10_000);
    world.told("2026.1");
    world.session("2026.2", "g.poor", requests(1..=4, Map));
    world.wait(3_000);
    assert_eq!(world.told("2026.1"), [Revoked(vec![4, 3])]);
}

#[test]
fn protected_sessions_are_not_preempted() {
    for protect in ["nobody", "pool", "session", "type"] {
        let mut world = TestEngine::new(|settings| {
            settings.scheduling.starving_time_for_minimum_ms = 1;
            pool(settings, "g.hog", |pool| pool.preemptable = protect != "pool");
            pool(settings, "g.poor", |pool| pool.minimum = PerType::all(2));
        });
        let kind = if protect == "type" { JobTracker } else { Map };
        world.node("n1", "h1", 4);
        let no_preempt = Some(protect == "session");
        world.start_with("2026.1", "g.hog", |info| info.no_preempt = no_preempt).unwrap();
        world.ask("2026.1", requests(1..=4, kind));
        world.session("2026.2", "g.poor", requests(1..=4, kind));
        world.wait(200_000);
        let kept = if protect == "nobody" { 2 } else { 4 };
        assert_eq!(world.holds("2026.1", kind), kept, "{protect}");
    }
}

#[test]
fn starving_for_the_share_moves_half() {
    // Spec: cluster-manager/04 §10, last line; shares land slightly low and are truncated.
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.starving_time_for_share_ms = 200;
        settings.scheduling.share_starving_ratio = 0.5;
        pool(settings, "g.one", |_| {});
        pool(settings, "g.two", |_| {});
    });
    world.node("n1", "h1", 80);
    world.session("2026.1", "g.one", requests(1..=80, Map));
    world.session("2026.2", "g.two", requests(1..=80, Map));
    world.wait(2_500);
    let moved = world.holds("2026.2", Map);
    assert!((39..=40).contains(&moved), "{moved}");
}

#[test]
fn a_silent_node_is_lost_and_its_sessions_are_told() {
    let mut world = TestEngine::new(|settings| settings.node_expiry_ms = 2_000);
    world.node("n1", "h1", 2);
    world.start("2026.1", "g.p");
    world.start("2026.2", "g.p");
    world.start("2026.3", "g.p");
    world.ask("2026.1", requests(1..=3, Map));
    world.ask("2026.2", requests(1..=1, Reduce));
    world.told("2026.1");
    world.release("2026.2", &[1]);
    world.told("2026.2");
    world.wait(2_000);
    assert_eq!(world.engine.node_count(), 1);
    world.wait(1);
    assert_eq!(world.engine.node_count(), 0);
    for (handle, expected) in [
        ("2026.1", vec![Dead("n1".into())]),
        ("2026.2", vec![Dead("n1".into())]),
        ("2026.3", vec![]),
    ] {
        assert_eq!(world.told(handle), expected, "{handle}");
    }
    let lost = TypeCounts { requested: 3, pending: 1, granted: 0 };
    assert_eq!(world.counts("2026.1", Map), lost);
    world.node("n1", "h1", 2);
    assert_eq!(world.granted("2026.1"), [2], "a lost request is not granted again");
}

#[test]
fn a_node_that_has_ended_is_lost_at_once() {
    let ended = |host: &str, names: &[&str]| Input::NodesEnded {
        host: host.into(),
        names: names.iter().map(|name| (*name).into()).collect(),
    };
    let mut world = TestEngine::new(|_| {});
    world.node("old", "h1", 2);
    world.node("other", "h2", 1);
    world.session("2026.1", "g.p", requests(1..=3, Map));
    world.told("2026.1");
    // Nobody speaks for another host, and what is not known is passed over.
    assert_eq!(world.run(ended("h1", &["other", "unknown"])), Ok(Reply::Done));
    assert_eq!((world.told("2026.1"), world.engine.node_count()), (vec![], 2));
    assert_eq!(world.run(ended("h1", &["old", "old"])), Ok(Reply::Done));
    assert_eq!(world.told("2026.1"), [Dead("old".into())]);
    assert_eq!((world.holds("2026.1", Map), world.engine.node_count()), (1, 1));
    // The process that takes its place may have its name.
    world.node("old", "h1", 2);
    world.ask("2026.1", requests(4..=4, Map));
    assert_eq!(world.granted("2026.1"), [4]);
    world.run(Input::SetSafeMode { on: true }).unwrap();
    assert_eq!(world.run(ended("h1", &["old"])), Err(Refusal::SafeMode));
}

#[test]
fn a_silent_session_ends_and_frees_its_slots() {
    let mut world = TestEngine::new(|settings| settings.session_expiry_ms = 2_000);
    world.node("n1", "h1", 1);
    world.session("2026.1", "g.p", requests(1..=1, Map));
    world.start("2026.2", "g.p");
    for _ in 0..3 {
        world.wait(1_000);
        let beat = Input::HeartbeatSession { handle: "2026.2".into(), view: None };
        world.run(beat).unwrap();
    }
    let beat = Input::HeartbeatSession { handle: "2026.1".into(), view: None };
    assert_eq!(world.run(beat), Err(Refusal::UnknownSession("2026.1".into())));
    assert_eq!(world.engine.slots(Map).used, 0);
    assert_eq!(world.engine.retired_sessions()[0].status, SessionStatus::TimedOut);
}

#[test]
fn a_repeated_request_changes_nothing() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 1);
    world.start("2026.1", "g.p");
    for _ in 0..3 {
        world.ask("2026.1", requests(1..=2, Map));
    }
    assert_eq!(world.counts("2026.1", Map), TypeCounts { requested: 2, pending: 1, granted: 1 });
    world.release("2026.1", &[1, 2, 99]);
    assert_eq!(world.counts("2026.1", Map), TypeCounts::default());
    assert_eq!(world.engine.slots(Map).used, 0);
}

#[test]
fn requests_take_the_slots_that_they_name() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 3);
    world.start("2026.1", "g.p");
    let one = |id, num_cpus| vec![cpus(request(id, Map, &[]), num_cpus)];
    world.ask("2026.1", one(1, 2));
    assert_eq!(world.engine.slots(Map).used, 2);
    world.ask("2026.1", one(2, 2));
    assert_eq!(world.granted("2026.1"), [1], "2 of 3 slots are used");
    for (id, odd) in [(3, 0), (4, -100)] {
        world.ask("2026.1", one(id, odd));
    }
    assert_eq!(world.engine.slots(Map).used, 3, "0 and less count as 1");
    world.release("2026.1", &[1]);
    let mut bare = request(5, Map, &[]);
    bare.specs = None;
    world.ask("2026.1", vec![bare]);
    assert_eq!(world.engine.slots(Map).used, 3);
}

#[test]
fn sessions_and_managers_keep_in_step() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 2);
    world.session("2026.1", "g.p", requests(1..=5, Map));
    let mut beat = |request_id, grant_id| {
        let view = Some(SessionView { request_id, grant_id, usages: PerType::default() });
        world.run(Input::HeartbeatSession { handle: "2026.1".into(), view })
    };
    assert_eq!(beat(5, 3), Ok(Reply::Done), "in step");
    assert_eq!(beat(5, 0), Ok(Reply::Done), "behind in grants");
    assert_eq!(beat(4, 3), Err(Refusal::OutOfStep("2026.1".into())), "lost a request");
    assert_eq!(world.engine.session_count(), 0);
    assert_eq!(world.engine.retired_sessions()[0].status, SessionStatus::FailedJobtracker);
}

#[test]
fn sessions_start_only_with_ids_of_this_manager() {
    let mut world = TestEngine::new(|settings| settings.sessions_log_dir = "/logs".into());
    type Why = fn(Arc<str>) -> Refusal;
    let cases: [(&str, Result<&str, Why>); 6] = [
        ("2026.2001", Ok("/logs/2026.2")),
        ("1999.1", Err(Refusal::ForeignHandle)),
        ("2026.x", Err(Refusal::MalformedHandle)),
        ("2026.1.2", Err(Refusal::MalformedHandle)),
        ("2026", Err(Refusal::MalformedHandle)),
        ("2026.2001", Err(Refusal::AlreadyStarted)),
    ];
    for (handle, expected) in cases {
        let reply = world.start_with(handle, "g.p", |_| {});
        let expected = match expected {
            Ok(log_path) => {
                Ok(Reply::Started { log_path: log_path.into(), pool: PoolName::new("g", "p") })
            }
            Err(why) => Err(why(handle.into())),
        };
        assert_eq!(reply, expected, "{handle}");
    }
}

#[test]
fn pools_are_found_redirected_and_made() {
    let mut world = TestEngine::new(|settings| {
        let (from, to) = (PoolName::new("g", "old"), PoolName::new("g", "new"));
        settings.scheduling.redirects.insert(from, to);
    });
    let cases = [
        (Some(("g", "p")), "g.p", "g.p"),
        (Some(("g", "old")), "g.new", "g.new"),
        (Some(("g", "")), "g.", "default.user"),
        (Some(("Upper", "case")), "Upper.case", "default.defaultpool"),
        (None, "default.user", "default.user"),
    ];
    for (index, (asked, told, scheduled)) in cases.into_iter().enumerate() {
        let handle = format!("2026.{index}");
        let asked = asked.map(|(group, pool)| PoolName::new(group, pool));
        world.start_with(&handle, "g.p", |info| info.pool = asked).unwrap();
        let session = world.engine.session_at(&handle, Millis(0)).unwrap();
        assert_eq!(session.pool.to_string(), told);
        assert_eq!(session.scheduling_pool.to_string(), scheduled);
    }
    for index in 0..5 {
        world.end(&format!("2026.{index}"));
    }
    assert_eq!(world.engine.pools(), [], "pools that nobody configured go with their sessions");
}

#[test]
fn strict_clusters_take_configured_pools_only() {
    let mut world = TestEngine::new(|settings| {
        settings.configured_pools_only = true;
        pool(settings, "g.known", |_| {});
        pool(settings, "g.UPPER", |_| {});
    });
    world.start("2026.1", "g.known");
    use PoolObjection::{IllegalName, NotConfigured, NotSpecified};
    for (asked, objection) in [
        (Some(("g", "other")), NotConfigured(PoolName::new("g", "other"))),
        (Some(("g", "UPPER")), IllegalName(PoolName::new("g", "UPPER"))),
        (None, NotSpecified),
    ] {
        let asked = asked.map(|(group, pool)| PoolName::new(group, pool));
        let refused = world.start_with("2026.2", "g.p", |info| info.pool = asked);
        assert_eq!(refused, Err(Refusal::SessionPool(objection)));
    }
}

#[test]
fn a_pool_may_bound_what_one_call_asks_for() {
    let mut world = TestEngine::new(|settings| {
        pool(settings, "g.p", |pool| {
            pool.request_max = true;
            pool.maximum[Map] = 3;
        });
    });
    world.session("2026.1", "g.p", requests(1..=3, Map));
    let refused = world.try_ask("2026.1", requests(4..=7, Map));
    let handle = "2026.1".into();
    let over = Refusal::OverPoolMaximum { handle, kind: Map, requested: 4, allowed: 3 };
    assert_eq!(refused, Err(over));
}

#[test]
fn excluded_nodes_get_nothing_new_and_their_slots_are_freed() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 1);
    world.session("2026.1", "g.p", requests(1..=2, Map));
    world.exclude(&["h1", "h2"]);
    world.release("2026.1", &[1]);
    world.node("n1", "h1", 1);
    assert_eq!(world.holds("2026.1", Map), 0);
    let refused = world.try_node(report("n2", "h2", 1));
    assert_eq!(refused, Err(Refusal::DisallowedNode("h2".into())));
    world.exclude(&[]);
    assert_eq!(world.holds("2026.1", Map), 0);
    world.node("n1", "h1", 1);
    assert_eq!(world.holds("2026.1", Map), 1);
}

#[test]
fn a_dead_node_of_a_host_that_is_allowed_again_is_granted_nothing() {
    let mut world = TestEngine::new(|_| {});
    world.node("former", "h1", 1);
    world.exclude(&["h1"]);
    world.exclude(&[]);
    world.session("2026.1", "g.p", requests(1..=2, Map));
    assert_eq!(world.holds("2026.1", Map), 0);
    world.node("present", "h1", 1);
    assert_eq!(world.holds("2026.1", Map), 1);
    let used = |name: &str| world.engine.node_detail(name).unwrap().node.slots[Map].used;
    assert_eq!((used("former"), used("present")), (0, 1));
}

#[test]
fn a_node_cannot_name_another_host_to_be_allowed() {
    let mut world = TestEngine::new(|settings| settings.reserved_memory_mb = 100);
    let with_memory = |host, memory_mb| {
        let mut report = report("n1", host, 1);
        report.free = Some(ComputeSpecs { memory_mb, ..ComputeSpecs::default() });
        report
    };
    world.try_node(with_memory("h1", Some(100))).unwrap();
    world.start("2026.1", "g.p");
    world.exclude(&["h1"]);
    world.try_node(with_memory("h2", Some(100))).unwrap();
    world.ask("2026.1", requests(1..=1, Map));
    assert_eq!(world.granted("2026.1"), [0; 0]);
    // The memory that it reports counts, whatever host it names.
    world.exclude(&["h2"]);
    world.try_node(with_memory("h1", Some(100))).unwrap();
    assert_eq!(world.granted("2026.1"), [1]);
    world.release("2026.1", &[1]);
    world.try_node(with_memory("h2", Some(99))).unwrap();
    world.ask("2026.1", requests(2..=2, Map));
    assert_eq!(world.granted("2026.1"), [0; 0]);
}

#[test]
fn configured_pools_do_not_count_against_the_bound_on_pools() {
    let mut world = TestEngine::new(|settings| {
        settings.bounds.pools = 1;
        pool(settings, "g.a", |_| {});
        pool(settings, "g.b", |_| {});
    });
    for (handle, pool, allowed) in [
        ("2026.1", "g.x", true),
        ("2026.2", "g.x", true),
        ("2026.3", "g.y", false),
        ("2026.4", "g.a", true),
    ] {
        let reply = world.start_with(handle, pool, |_| {});
        assert_eq!(reply.is_ok(), allowed, "{pool}: {reply:?}");
    }
    world.change(|settings| pool(settings, "g.x", |_| {}));
    world.start("2026.5", "g.y");
}

#[test]
fn types_of_a_session_do_not_mix() {
    // A request of another type may take the number of a finished one, and come at the same place
    // in the order of its type.
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.node_locality_wait_ms[Map] = 60_000;
        settings.scheduling.rack_locality_wait_ms[Map] = 60_000;
    });
    world.start("2026.1", "g.p");
    let near = |ids: std::ops::Range<i32>, kind| ids.map(|id| request(id, kind, &["h1"])).collect();
    world.ask("2026.1", near(0..20, Map));
    world.ask("2026.1", (20..40).map(|id| request(id, Map, &["absent"])).collect());
    world.release("2026.1", &(0..20).rev().collect::<Vec<_>>());
    world.ask("2026.1", near(100..120, Reduce));
    let mut map_only = report("n1", "h1", 9);
    map_only.apps = PerType([Some("m:1".into()), None, None]);
    world.try_node(map_only).unwrap();
    assert_eq!(world.granted("2026.1"), [0; 0]);
}

#[test]
fn slots_of_a_lost_node_no_longer_count_for_a_pools_maximum() {
    let mut world = TestEngine::new(|settings| {
        settings.node_expiry_ms = 1_000;
        pool(settings, "g.p", |pool| pool.maximum[JobTracker] = 1);
    });
    world.node("n1", "h1", 1);
    world.session("2026.1", "g.p", requests(1..=2, JobTracker));
    world.wait(600);
    world.node("n2", "h2", 1);
    world.told("2026.1");
    world.wait(600);
    assert_eq!(world.told("2026.1"), [Dead("n1".into()), Granted(vec![(2, "n2".into())])]);
}

#[test]
fn sessions_may_ask_for_ever() {
    // Places in the order of arrival are numbers of 32 bits; when they are used up, pending
    // requests are renumbered. The renumbering is not visible.
    let granted = |use_up: bool| {
        let mut world = TestEngine::new(|_| {});
        world.start("2026.1", "g.p");
        let wishes = |ids: std::ops::Range<i32>, kind| {
            ids.map(move |id| request(id, kind, &["h1", "h2"][..(id % 3) as usize]))
        };
        world.ask("2026.1", wishes(0..20, Map).chain(wishes(20..40, Reduce)).collect());
        world.node("n1", "h1", 3);
        if use_up {
            let session = world.engine.sessions.find("2026.1").unwrap();
            world.engine.sessions[session].requests.use_up_places(5);
        }
        world.ask("2026.1", wishes(40..60, Map).chain(wishes(60..80, Reduce)).collect());
        world.node("n2", "h2", 40);
        world.granted("2026.1")
    };
    let (plain, numbered_anew) = (granted(false), granted(true));
    assert_eq!(plain.len(), 80);
    assert_eq!(numbered_anew, plain);
}

#[test]
fn a_changed_service_loses_the_grants_of_its_type_only() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 1);
    world.start("2026.1", "g.p");
    let mut wishes = requests(1..=1, Map);
    wishes.extend(requests(2..=2, Reduce));
    world.ask("2026.1", wishes);
    world.told("2026.1");
    let mut moved = report("n1", "h1", 1);
    moved.apps[Map] = Some("m:2".into());
    world.try_node(moved).unwrap();
    assert_eq!(world.told("2026.1"), [Dead("n1".into())]);
    assert_eq!([Map, Reduce].map(|kind| world.holds("2026.1", kind)), [0, 1]);
    world.ask("2026.1", requests(3..=3, Map));
    assert_eq!(world.granted("2026.1"), [3]);
    let mut without = report("n1", "h1", 1);
    without.apps[Reduce] = None;
    without.apps[Map] = Some("m:2".into());
    world.try_node(without).unwrap();
    world.ask("2026.1", requests(4..=4, Reduce));
    assert_eq!([Map, Reduce].map(|kind| world.holds("2026.1", kind)), [1, 0]);
}

#[test]
fn nodes_may_change_lie_and_share_a_host() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h", 1);
    world.node("n2", "h", 1);
    world.session("2026.1", "g.p", (1..=4).map(|id| request(id, Map, &["h"])).collect());
    assert_eq!(world.holds("2026.1", Map), 2);
    world.node("n2", "h", 3);
    assert_eq!(world.holds("2026.1", Map), 4);
    world.node("n2", "h", 0);
    assert_eq!(world.engine.slots(Map), SlotCounts { total: 1, used: 4 });
    world.release("2026.1", &[1, 2, 3, 4]);
    world.ask("2026.1", requests(5..=9, Map));
    assert_eq!(world.holds("2026.1", Map), 1);
    world.node("n3", "h3", -5);
    assert_eq!(world.holds("2026.1", Map), 1);
}

#[test]
fn a_node_that_grows_serves_what_was_too_large_for_it() {
    let mut world = TestEngine::new(|_| {});
    world.session("2026.1", "g.p", vec![cpus(request(1, Map, &[]), 3)]);
    world.node("n1", "h1", 2);
    assert_eq!(world.granted("2026.1"), [0; 0]);
    world.node("n1", "h1", 3);
    assert_eq!(world.granted("2026.1"), [1]);
}

#[test]
fn reserved_memory_and_disk_are_kept_free() {
    let mut world = TestEngine::new(|settings| {
        settings.reserved_memory_mb = 100;
        settings.reserved_disk_gb = 10;
    });
    world.session("2026.1", "g.p", requests(1..=9, Map));
    let mut node = report("n1", "h1", 2);
    let free = |memory, disk| {
        Some(ComputeSpecs { memory_mb: memory, disk_gb: disk, ..ComputeSpecs::default() })
    };
    for (memory, disk, holds) in [
        (None, None, 0),
        (Some(99), Some(10), 0),
        (Some(100), Some(9), 0),
        (Some(100), Some(10), 2),
    ] {
        node.free = free(memory, disk);
        world.try_node(node.clone()).unwrap();
        assert_eq!(world.holds("2026.1", Map), holds, "{memory:?} {disk:?}");
    }
    node.free = None;
    world.release("2026.1", &[1]);
    world.try_node(node).unwrap();
    assert_eq!(world.holds("2026.1", Map), 2, "a report without free leaves the last in force");
}

/// As a node does that takes no tasks: it keeps what it has, and gets nothing more.
#[test]
fn a_node_that_reports_less_than_no_disk_space_gets_no_more_grants() {
    let mut world = TestEngine::new(|settings| settings.reserved_disk_gb = 0);
    world.start("2026.1", "g.p");
    let mut node = report("n1", "h1", 2);
    let free = |disk_gb| Some(ComputeSpecs { disk_gb: Some(disk_gb), ..ComputeSpecs::default() });
    node.free = free(0);
    world.try_node(node.clone()).unwrap();
    world.ask("2026.1", requests(1..=1, Map));
    assert_eq!(world.holds("2026.1", Map), 1);
    node.free = free(-1);
    world.try_node(node.clone()).unwrap();
    world.ask("2026.1", requests(2..=2, Map));
    assert_eq!(world.holds("2026.1", Map), 1);
    node.free = free(0);
    world.try_node(node).unwrap();
    assert_eq!(world.holds("2026.1", Map), 2);
}

#[test]
fn many_sessions_blacklist_a_type_of_a_node_and_one_cannot() {
    let mut world = TestEngine::new(|settings| {
        settings.faults.failure_sessions = 2;
        settings.faults.failed_connection_sessions = 2;
    });
    world.node("n1", "h1", 9);
    for _ in 0..10 {
        world.blame("nobody", "n1", &[Map], [6, 0]);
    }
    for session in 1..=3 {
        let handle = format!("2026.{session}");
        world.session(&handle, "g.p", requests(1..=1, Map));
        for _ in 0..10 {
            world.blame(&handle, "n1", &[Map], [6, 0]);
        }
        let blacklisted = world.engine.nodes()[0].blacklisted;
        assert_eq!(blacklisted, PerType([session == 3, false, false]));
    }
    let mut wishes = requests(2..=2, Map);
    wishes.extend(requests(3..=3, Reduce));
    world.ask("2026.1", wishes);
    assert_eq!([Map, Reduce].map(|kind| world.holds("2026.1", kind)), [1, 1]);
    world.node("n1", "h1", 9);
    assert_eq!(world.holds("2026.1", Map), 1, "a heartbeat does not lift it");
}

#[test]
fn restarts_reach_each_node_once_and_lose_its_grants() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 1);
    world.session("2026.1", "g.p", requests(1..=1, Map));
    world.told("2026.1");
    world.run(Input::RestartNodes { force: false, batch_size: 10 }).unwrap();
    let reply = world.try_node(report("n1", "h1", 1));
    assert_eq!(reply, Ok(Reply::NodeHeard { restart: true }));
    assert_eq!(world.told("2026.1"), [Dead("n1".into())]);
    let reply = world.try_node(report("n1", "h1", 1));
    assert_eq!(reply, Ok(Reply::NodeHeard { restart: false }));
}

#[test]
fn safe_mode_refuses_everything_and_stops_the_clocks() {
    let mut world = TestEngine::new(|settings| settings.session_expiry_ms = 1_000);
    world.node("n1", "h1", 1);
    world.start("2026.1", "g.p");
    world.run(Input::SetSafeMode { on: true }).unwrap();
    assert_eq!(world.try_node(report("n1", "h1", 1)), Err(Refusal::SafeMode));
    assert_eq!(world.try_ask("2026.1", requests(1..=1, Map)), Err(Refusal::SafeMode));
    assert_eq!(world.engine.next_deadline(), None);
    world.wait(60_000);
    world.run(Input::SetSafeMode { on: false }).unwrap();
    world.wait(500);
    world.ask("2026.1", requests(1..=1, Map));
    assert_eq!(world.granted("2026.1"), [1]);
}

#[test]
fn silence_while_nobody_was_listened_to_is_not_held_against_anybody() {
    // The time of silence, the part of it during which the engine was stalled, and the sessions
    // left.
    for (silent_ms, held_up_ms, left) in
        [(1_000, 0, true), (1_001, 0, false), (61_000, 60_000, true), (61_001, 60_000, false)]
    {
        let mut world = TestEngine::new(|settings| {
            settings.session_expiry_ms = 1_000;
            settings.node_expiry_ms = 1_000;
        });
        world.node("n1", "h1", 1);
        world.start("2026.1", "g.p");
        world.now += silent_ms;
        world.run(Input::HeldUp { ms: held_up_ms }).unwrap();
        world.run(Input::Tick).unwrap();
        let engine = &world.engine;
        assert_eq!(engine.session_info("2026.1").is_ok(), left, "{silent_ms} {held_up_ms}");
        assert_eq!(engine.node_count(), usize::from(left));
    }
}

#[test]
fn no_heartbeat_is_in_the_future() {
    let mut world = TestEngine::new(|settings| settings.session_expiry_ms = 1_000);
    world.start("2026.1", "g.p");
    world.run(Input::HeldUp { ms: i64::MAX }).unwrap();
    world.run(Input::HeldUp { ms: i64::MIN }).unwrap();
    world.now += 1_001;
    world.run(Input::Tick).unwrap();
    assert!(world.engine.session_info("2026.1").is_err());
}

#[test]
fn a_pass_does_a_bounded_amount_of_work() {
    let mut world = TestEngine::new(|settings| settings.scheduling.grants_per_pass = 10);
    world.node("n1", "h1", 25);
    world.start("2026.1", "g.p");
    world.apply(testing::ask("2026.1", requests(1..=25, Map))).unwrap();
    for expected in [10, 20, 25] {
        assert!(world.engine.wants_pass());
        world.apply(Input::Pass).unwrap();
        assert_eq!(world.holds("2026.1", Map), expected);
    }
    assert!(!world.engine.wants_pass());
}

#[test]
fn changed_settings_take_effect_for_running_sessions() {
    let mut world = TestEngine::new(|settings| pool(settings, "g.p", |pool| pool.maximum[Map] = 1));
    world.node("n1", "h1", 4);
    world.session("2026.1", "g.p", requests(1..=4, Map));
    assert_eq!(world.holds("2026.1", Map), 1);
    world.change(|settings| pool(settings, "g.p", |pool| pool.maximum[Map] = 3));
    assert_eq!(world.holds("2026.1", Map), 3);
}

#[test]
fn updates_keep_what_they_leave_out_of_the_priority() {
    let mut world = TestEngine::new(|_| {});
    let high = Some(SessionPriority::High);
    world.start_with("2026.1", "g.p", |info| info.priority = high).unwrap();
    let mut update = info("renamed", "g.elsewhere");
    update.url = Some("http://u".into());
    update.deadline = Some(5);
    world.run(Input::UpdateSession { handle: "2026.1".into(), info: update }).unwrap();
    let told = world.engine.session_info("2026.1").unwrap();
    assert_eq!((&*told.name, told.url.as_deref()), ("renamed", Some("http://u")));
    assert_eq!((told.priority, told.deadline), (high, None));
    assert_eq!(told.pool, Some(PoolName::new("g", "p")));
    let session = world.engine.session_at("2026.1", Millis(0)).unwrap();
    assert_eq!(session.deadline, 5);
}
