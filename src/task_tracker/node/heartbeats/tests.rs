//! Heartbeats against a cluster manager and a proxy job tracker with scripted answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::*;
use corona_config::Source;
use corona_net::testing::{soon, until};
use corona_wire::calls::{
    ClusterManagerCall, ClusterManagerReply, ProxyJobTrackerCall, ProxyJobTrackerReply,
};
use corona_wire::generated::NodeHeartbeatResponse;
use corona_wire::server::{Answer, Limits, ListenOn, Peer, Server, listen};

/// The cluster manager's reaction to a heartbeat.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Fine,
    InPlace,
    Restart,
    Disallowed,
    SafeMode,
    Fault,
    Close,
}

use Reaction::*;

/// A cluster manager and a proxy job tracker with answers that the test chooses.
struct TestServers {
    root: tempfile::TempDir,
    cluster_manager: SocketAddr,
    proxy_job_tracker: SocketAddr,
    heard: mpsc::Receiver<ClusterNodeInfo>,
    /// How often the proxy job tracker has been asked.
    asked: Arc<AtomicUsize>,
    link: Arc<Link>,
    room_made: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
}

fn fresh() -> (tokio::net::TcpListener, SocketAddr) {
    let listener = listen(ListenOn::Address("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl TestServers {
    /// Reactions to one heartbeat after another, `Fine` when there are no more; looks at safe mode
    /// return true so many times.
    fn new(reactions: &[Reaction], safe_for: usize) -> TestServers {
        let (stop, stopped) = watch::channel(false);
        let (to_test, heard) = mpsc::channel(1000);
        let reactions = Mutex::new(VecDeque::from(reactions.to_vec()));
        let (listener, cluster_manager) = fresh();
        let answer = move |_: Peer, call: ClusterManagerCall| {
            let ClusterManagerCall::NodeHeartbeat { node: Some(node) } = call else {
                panic!("{call:?}")
            };
            to_test.try_send(node).unwrap();
            let reaction = reactions.lock().unwrap().pop_front().unwrap_or(Fine);
            let reply = |restart| {
                let in_place = matches!(reaction, InPlace).then_some(true);
                let response = NodeHeartbeatResponse::new(restart, in_place);
                Answer::Reply(ClusterManagerReply::NodeHeartbeat(response))
            };
            std::future::ready(match reaction {
                Fine | InPlace => reply(false),
                Restart => reply(true),
                Disallowed => Answer::Exception(Exception::disallowed_node("h")),
                SafeMode => Answer::Exception(Exception::safe_mode()),
                Fault => Answer::Fault(corona_wire::ApplicationFault {
                    kind: corona_wire::FaultKind::InternalError,
                    message: "broken".into(),
                }),
                Close => Answer::Close,
            })
        };
        let server = Server::new(listener, answer, Limits::default());
        tokio::spawn(server.run::<ClusterManager>(stopped.clone()));
        let (listener, proxy_job_tracker) = fresh();
        let asked = Arc::<AtomicUsize>::default();
        let count = asked.clone();
        let answer = move |_: Peer, call: ProxyJobTrackerCall| {
            assert_eq!(call, ProxyJobTrackerCall::GetClusterManagerSafeModeFlag);
            let safe = count.fetch_add(1, Ordering::SeqCst) < safe_for;
            let reply = ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(safe);
            std::future::ready(Answer::Reply(reply))
        };
        let server = Server::new(listener, answer, Limits::default());
        tokio::spawn(server.run::<ProxyJobTracker>(stopped));
        TestServers {
            root: tempfile::tempdir().unwrap(),
            cluster_manager,
            proxy_job_tracker,
            heard,
            asked,
            link: Arc::default(),
            room_made: Arc::default(),
            stop,
        }
    }

    fn settings(&self, more: &[(&str, &str)]) -> TaskTrackerSettings {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut overrides: Vec<_> = more.iter().copied().map(pair).collect();
        let dir = self.root.path().join("l").display().to_string();
        for (name, value) in [
            ("cm.server.address", &*self.cluster_manager.to_string()),
            ("corona.proxy.job.tracker.thriftaddr", &self.proxy_job_tracker.to_string()),
            ("mapred.local.dir", &dir),
        ] {
            overrides.push((name.into(), value.into()));
        }
        let source = Source { overrides: &overrides, ..Source::default() };
        source.load_task_tracker().unwrap().settings
    }

    fn heartbeats(&self, settings: TaskTrackerSettings) -> Heartbeats {
        let dirs = Arc::new(LocalDirs::open(&settings.local).unwrap());
        let ms = Duration::from_millis;
        let pauses = Pauses {
            after_failure: ms(2),
            safe_mode: ms(2),
            unknown_mode: ms(2),
            ..Pauses::new(ms(1))
        };
        let node = NodeInfo {
            name: "tracker_h:h/127.0.0.1:5".into(),
            host: "h".into(),
            callback_port: 6,
            applications: [(ResourceType::MAP, "127.0.0.1:7".to_owned())].into(),
        };
        let room_made = self.room_made.clone();
        let make_room = move || {
            room_made.fetch_add(1, Ordering::SeqCst);
        };
        let (link, make_room) = (self.link.clone(), Arc::new(make_room));
        let threads = Threads::start("heartbeat", 1).unwrap();
        let fitness = Arc::new(Fitness::new(dirs.clone(), None));
        let settings = Arc::new(settings);
        Heartbeats::new(settings, node, pauses, dirs, fitness, link, threads, make_room)
    }

    /// Runs until it is stopped.
    fn spawn(&self, settings: TaskTrackerSettings) -> tokio::task::JoinHandle<Ending> {
        let (mut heartbeats, stop) = (self.heartbeats(settings), self.stop.subscribe());
        tokio::spawn(async move { heartbeats.run(stop).await })
    }

    /// Runs to an end that comes by itself. Returns the number of received heartbeats, too.
    async fn run(&mut self) -> (Ending, usize) {
        let mut heartbeats = self.heartbeats(self.settings(&[]));
        let running = heartbeats.run(self.stop.subscribe());
        let ending = soon(running).await;
        let mut heard = 0;
        while self.heard.try_recv().is_ok() {
            heard += 1;
        }
        (ending, heard)
    }
}

#[tokio::test]
async fn a_heartbeat_says_what_the_node_has() {
    let mut world = TestServers::new(&[], 0);
    let settings = world.settings(&[("mapred.coronatasktracker.num.cpus", "5")]);
    let running = world.spawn(settings);
    let mut node = world.heard.recv().await.unwrap();
    for _ in 0..3 {
        node = world.heard.recv().await.unwrap();
    }
    assert_eq!(node.name, "tracker_h:h/127.0.0.1:5");
    assert_eq!(node.address, InetAddress { host: "h".into(), port: 6 });
    let applications = node.resource_infos.unwrap();
    assert_eq!(applications, [(ResourceType::MAP, "127.0.0.1:7".to_owned())].into());
    assert_eq!((node.total.num_cpus, node.total.network_m_bps), (5, Some(100)));
    assert!(node.total.memory_m_b > Some(0));
    let free = node.free.unwrap();
    assert!((0..=5).contains(&free.num_cpus), "{free:?}");
    assert!(free.memory_m_b > Some(0) && free.memory_m_b <= node.total.memory_m_b, "{free:?}");
    assert!(free.disk_g_b <= node.total.disk_g_b, "{free:?}");
    world.stop.send_replace(true);
    assert_eq!(running.await.unwrap(), Ending::Stopped);
    let state = world.link.state();
    assert!(state.answered >= 3 && state.failed == 0 && state.trouble.is_none(), "{state:?}");
    assert!(world.link.is_alive(Duration::from_secs(600)));
    assert_eq!(world.room_made.load(Ordering::SeqCst), 0);
}

/// Files of jobs, logs and names of job trackers keep the executor's own threads busy.
#[test]
fn heartbeats_go_on_while_all_threads_of_the_executor_are_blocked() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
    let held = Arc::new(Mutex::new(held));
    runtime.block_on(async {
        for _ in 0..2 {
            let held = held.clone();
            tokio::task::spawn_blocking(move || held.lock().unwrap().recv());
        }
        let mut world = TestServers::new(&[], 0);
        let by_name = format!("localhost:{}", world.cluster_manager.port());
        let settings = TaskTrackerSettings {
            cluster_manager: by_name.parse().unwrap(),
            ..world.settings(&[])
        };
        let running = world.spawn(settings);
        let heard = async {
            for _ in 0..10 {
                world.heard.recv().await.unwrap();
            }
        };
        soon(heard).await;
        world.stop.send_replace(true);
        assert_eq!(running.await.unwrap(), Ending::Stopped);
    });
    drop(release);
}

#[tokio::test]
async fn each_answer_has_its_consequence() {
    let disallowed = || Ending::Disallowed { host: "h".into() };
    let table = [
        (vec![Restart], 0, Ending::Restart, 0),
        (vec![Fine, Fine, Restart], 0, Ending::Restart, 0),
        (vec![Disallowed], 0, disallowed(), 0),
        (vec![Fine, Disallowed], 0, disallowed(), 0),
        // Safe mode is no failure, and lasts as long as the proxy job tracker reports it.
        (vec![SafeMode, Restart], 0, Ending::Restart, 1),
        (vec![SafeMode, Restart], 3, Ending::Restart, 4),
        ([vec![SafeMode; 30], vec![Restart]].concat(), 0, Ending::Restart, 30),
        // A failure is followed by a look whether there is safe mode.
        (vec![Close, Fault, Restart], 0, Ending::Restart, 2),
        // A node that has been answered outlives any outage: it may have tasks.
        (
            [vec![Close; 9], vec![Fine], vec![Fault; 30], vec![Restart]].concat(),
            0,
            Ending::Restart,
            39,
        ),
    ];
    for (reactions, safe_for, expected, asked) in table {
        let mut world = TestServers::new(&reactions, safe_for);
        let (ending, heard) = world.run().await;
        assert_eq!(ending, expected, "{reactions:?}");
        assert_eq!(heard, reactions.len(), "{reactions:?}");
        assert_eq!(world.asked.load(Ordering::SeqCst), asked, "{reactions:?}");
    }
}

/// A node that cannot start again in place says why until it is asked again.
#[tokio::test]
async fn an_order_to_restart_in_place_is_passed_on_and_a_refusal_is_reported() {
    let mut world = TestServers::new(&[Fine, InPlace, Fine], 0);
    let settings = world.settings(&[]);
    let running = world.spawn(settings);
    let asked = world.link.restart_asked();
    soon(asked).await;
    world.link.refuse_restart(&"x".repeat(1000));
    let refused = async {
        loop {
            let program = world.heard.recv().await.unwrap().program.unwrap();
            assert_eq!(program.version, env!("CARGO_PKG_VERSION"));
            if let Some(refused) = program.refused {
                return refused;
            }
        }
    };
    assert_eq!(refused.await, "x".repeat(300));
    world.link.ask_restart();
    assert_eq!(world.link.state().refused, None);
    world.stop.send_replace(true);
    assert_eq!(running.await.unwrap(), Ending::Stopped);
}

#[tokio::test]
async fn ten_failures_without_any_answer_are_the_end() {
    let mut world = TestServers::new(&[Fault; 20], 0);
    let last = "the peer replied: InternalError: broken".to_owned();
    let (ending, heard) = world.run().await;
    assert_eq!((ending, heard), (Ending::Unreachable { failures: 10, last }, 10));
    let state = world.link.state();
    assert_eq!((state.failed, state.failed_in_a_row, state.answered), (10, 10, 0));
    assert!(!world.link.is_alive(Duration::ZERO));
}

#[tokio::test]
async fn without_cluster_manager_and_proxy_job_tracker_it_ends_too() {
    let mut world = TestServers::new(&[], 0);
    // Closed ports have no listener.
    (world.cluster_manager, world.proxy_job_tracker) = (fresh().1, fresh().1);
    let (ending, heard) = world.run().await;
    let Ending::Unreachable { failures: 10, last } = ending else { panic!("{ending:?}") };
    assert!(last.starts_with("no connection: "), "{last}");
    assert_eq!(heard, 0);
}

#[tokio::test]
async fn a_task_goes_when_disks_are_full() {
    let mut world = TestServers::new(&[Fine, Close, Fine, Restart], 0);
    let settings = world.settings(&[("mapred.local.dir.minspacekill", "9223372036854775807")]);
    let ending = world.heartbeats(settings).run(world.stop.subscribe()).await;
    assert_eq!(ending, Ending::Restart);
    // Once for each answer.
    assert_eq!(world.room_made.load(Ordering::SeqCst), 2);
    while world.heard.try_recv().is_ok() {}
}

#[tokio::test]
async fn a_stop_is_heard_in_every_pause() {
    let world = TestServers::new(&[SafeMode], usize::MAX);
    let running = world.spawn(world.settings(&[]));
    until("it is asked", || world.asked.load(Ordering::SeqCst) >= 3).await;
    assert!(world.link.state().trouble.unwrap().contains("safe mode"));
    world.stop.send_replace(true);
    let ending = soon(running).await;
    assert_eq!(ending.unwrap(), Ending::Stopped);
}

/// Less than any reserve, so that no cluster manager grants anything there.
#[tokio::test]
async fn a_node_that_takes_no_tasks_reports_less_than_no_disk_space() {
    let mut world = TestServers::new(&[], 0);
    let settings = world.settings(&[("mapred.local.dir.minspacestart", "9223372036854775807")]);
    let running = world.spawn(settings);
    let node = world.heard.recv().await.unwrap();
    assert_eq!(node.free.unwrap().disk_g_b, Some(-1));
    assert!(node.total.disk_g_b >= Some(0));
    // What is granted goes on, under a cluster manager of Java too: it would end the grants of a type that
    // is not offered any more.
    assert!(node.resource_infos.is_some_and(|offered| !offered.is_empty()));
    world.stop.send_replace(true);
    assert_eq!(running.await.unwrap(), Ending::Stopped);
}

/// The next process of a node reports that the earlier one has ended, until it is answered.
#[tokio::test]
async fn a_restarted_node_names_the_one_that_it_replaces() {
    let mut world = TestServers::new(&[], 0);
    let mut heard = Vec::new();
    for (name, reactions) in [("first", 0), ("second", 2)] {
        let mut heartbeats = world.heartbeats(world.settings(&[]));
        heartbeats.node.name = name.to_owned();
        let stop = watch::Sender::new(false);
        let running = heartbeats.run(stop.subscribe());
        let listening = async {
            for _ in 0..3 + reactions {
                let node = world.heard.recv().await.unwrap();
                heard.push((node.name, node.ended));
            }
            stop.send_replace(true);
        };
        let (ending, ()) = tokio::join!(running, listening);
        assert_eq!(ending, Ending::Stopped);
        while world.heard.try_recv().is_ok() {}
    }
    let ended = |name: &str| Some(vec![name.to_owned()]);
    assert!(heard[..3].iter().all(|said| *said == ("first".to_owned(), None)), "{heard:?}");
    assert_eq!(heard[3], ("second".to_owned(), ended("first")));
    assert_eq!(heard[4], ("second".to_owned(), None));
    // It leaves in order: nothing is replaced afterwards.
    let mut heartbeats = world.heartbeats(world.settings(&[]));
    heartbeats.node.name = "third".to_owned();
    heartbeats.link.answered();
    heartbeats.leave().await;
    let node = world.heard.recv().await.unwrap();
    assert_eq!(node.ended, ended("third"));
    assert!(node.resource_infos.is_some_and(|infos| !infos.is_empty()), "as Java expects it");
    let dirs = LocalDirs::open(&world.settings(&[]).local).unwrap();
    assert_eq!(former::claim(&dirs, "fourth"), [""; 0]);
}

/// Its disks hang before the last report, or behind it, when the note of it is written.
#[tokio::test]
async fn a_node_whose_disks_hang_leaves_all_the_same() {
    for hangs_at_once in [true, false] {
        let mut world = TestServers::new(&[], 0);
        let heartbeats = world.heartbeats(world.settings(&[]));
        heartbeats.link.answered();
        let (let_go, held) = std::sync::mpsc::sync_channel::<()>(1);
        // Nobody reads it: opening it hangs.
        let note = world.root.path().join("l/corona-node.new");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &note,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        if hangs_at_once {
            let hangs = heartbeats.threads.run(move || held.recv());
            tokio::time::timeout(Duration::from_millis(1), hangs).await.unwrap_err();
        }
        let leaving = tokio::time::timeout(Duration::from_secs(60), heartbeats.leave());
        leaving.await.expect("it has left");
        assert_eq!(world.heard.try_recv().is_ok(), !hangs_at_once);
        drop(let_go);
        // What hung goes on.
        std::fs::File::options().read(true).write(true).open(&note).unwrap();
    }
}
