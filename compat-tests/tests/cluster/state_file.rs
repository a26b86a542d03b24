//! Safe mode, the state file and recovery, with the built program as a process: a replacement
//! resumes with the state of the cluster manager before it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use compat_tests::corona_program;
use compat_tests::serving::{free_address, free_port, serve, serve_on};
use corona::conformance::launch::{Launch, LaunchError, LaunchedManager};
use corona::wire::Exception;
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, ProxyJobTracker,
    ProxyJobTrackerCall, ProxyJobTrackerReply, SessionDriver, SessionDriverCall,
    SessionDriverReply,
};
use corona::wire::client::{CallError, Client, ClientOptions};
use corona::wire::generated as wire;
use corona::wire::server::Answer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a test waits for events that must not happen.
const A_WHILE: Duration = Duration::from_millis(300);

/// A directory for the state file, and a proxy job tracker.
struct TestState {
    directory: tempfile::TempDir,
    proxy_job_tracker: SocketAddr,
    /// Every value of the safe mode flag that the proxy job tracker received.
    flags: Arc<Mutex<Vec<bool>>>,
    _stop: watch::Sender<bool>,
}

impl TestState {
    fn new() -> TestState {
        let flags = Arc::new(Mutex::new(Vec::new()));
        let told = flags.clone();
        let answer = move |_peer, call| {
            let ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag } = call else {
                panic!("a cluster manager never calls {call:?}");
            };
            told.lock().unwrap().push(flag);
            async { Answer::Reply(ProxyJobTrackerReply::SetClusterManagerSafeModeFlag) }
        };
        let (proxy_job_tracker, stop) = serve::<ProxyJobTracker>(answer);
        let directory = tempfile::tempdir().unwrap();
        TestState { directory, proxy_job_tracker, flags, _stop: stop }
    }

    fn state_file(&self) -> PathBuf {
        self.directory.path().join("cm.state")
    }

    async fn start(&self, arguments: &[&str]) -> Manager {
        let launch = self.launch(&self.state_file(), self.proxy_job_tracker, arguments);
        let running = tokio::task::spawn_blocking(move || launch.start());
        let running = running.await.unwrap().unwrap_or_else(|error| panic!("{error}"));
        Manager { running }
    }

    /// Why it does not start.
    async fn refused(&self, state_file: &Path, arguments: &[&str]) -> String {
        let launch = self.launch(state_file, self.proxy_job_tracker, arguments);
        match tokio::task::spawn_blocking(move || launch.start()).await.unwrap() {
            Err(LaunchError::Ended { status, log }) => {
                assert_eq!(status, "exit status: 1", "{log}");
                let told: Vec<&str> = log.lines().filter(|l| l.starts_with("corona: ")).collect();
                assert_eq!(told.len(), 1, "{log}");
                told[0].to_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    fn launch(&self, state_file: &Path, pjt: SocketAddr, arguments: &[&str]) -> Launch {
        let overrides = [
            ("cm.server.address", "localhost:0".to_owned()),
            ("cm.server.http.address", "localhost:0".to_owned()),
            ("cm.server.sotimeout", "500".to_owned()),
            // No session is given up while a test is stalled.
            ("cm.notifier.retry.max", "1000".to_owned()),
            ("cm.session.expiryinterval", "600000".to_owned()),
            ("cm.state", state_file.display().to_string()),
            // These tests are about the file.
            ("corona.cm.journal.dir", "none".to_owned()),
            ("corona.proxy.job.tracker.thriftaddr", pjt.to_string()),
        ];
        Launch {
            program: corona_program().to_path_buf(),
            conf_dir: None,
            overrides: overrides.map(|(key, value)| (key.to_owned(), value)).to_vec(),
            arguments: arguments.iter().map(Into::into).collect(),
            ready_within: PATIENCE,
        }
    }

    async fn flags_become(&self, expected: &[bool]) {
        until(&format!("flags {expected:?}"), || *self.flags.lock().unwrap() == expected).await;
    }
}

/// A running cluster manager. It closes connections that are idle for half a second, so each call
/// has its own.
struct Manager {
    running: LaunchedManager,
}

impl Manager {
    async fn try_call(&self, call: &Call) -> Result<Reply, CallError> {
        let connected = Client::connect(self.running.thrift(), ClientOptions::default()).await;
        let mut client: Client<ClusterManager> = connected.unwrap();
        client.call(call).await
    }

    async fn call(&self, call: Call) -> Reply {
        let answer = self.try_call(&call).await;
        answer.unwrap_or_else(|error| panic!("{call:?}: {error}\n{}", self.running.log()))
    }

    async fn refused_in_safe_mode(&self, call: Call) {
        let answer = self.try_call(&call).await;
        assert!(
            matches!(answer, Err(CallError::Exception(Exception::SafeMode(_)))),
            "{call:?}: {answer:?}"
        );
    }

    async fn set_safe_mode(&self, on: bool) -> bool {
        match self.call(Call::SetSafeMode { safe_mode: on }).await {
            Reply::SetSafeMode(done) => done,
            other => panic!("{other:?}"),
        }
    }

    async fn persist(&self) -> bool {
        match self.call(Call::PersistState).await {
            Reply::PersistState(done) => done,
            other => panic!("{other:?}"),
        }
    }

    async fn next_session_id(&self) -> String {
        match self.call(Call::GetNextSessionId).await {
            Reply::GetNextSessionId(id) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn heartbeat_node(&self) {
        self.call(Call::NodeHeartbeat { node: Some(node()) }).await;
    }

    /// Starts a session of which the driver listens at `driver`.
    async fn start_session(&self, driver: SocketAddr) -> String {
        let handle = self.next_session_id().await;
        let info = wire::SessionInfo {
            address: address("127.0.0.1", driver.port()),
            name: format!("job of {handle}"),
            user_id: "user".into(),
            group_ids: None,
            pool_info_strings: Some(wire::PoolInfoStrings {
                pool_group_name: "g".into(),
                pool_name: "p".into(),
            }),
            priority: Some(wire::SessionPriority::HIGH),
            no_preempt: Some(false),
            url: Some("http://job".into()),
            deadline: None,
        };
        self.call(Call::SessionStart { handle: Some(handle.clone()), info: Some(info) }).await;
        handle
    }

    async fn request(&self, handle: &str, ids: impl IntoIterator<Item = i32>) {
        let request = |id| wire::ResourceRequest {
            id,
            hosts: Some(vec!["127.0.0.1".into()]),
            specs: Some(specs(1)),
            type_: wire::ResourceType::MAP,
            exclude_hosts: None,
        };
        let requests = Some(ids.into_iter().map(request).collect());
        self.call(Call::RequestResource { handle: Some(handle.into()), requests }).await;
    }

    async fn release(&self, handle: &str, ids: &[i32]) {
        let (handle, ids) = (Some(handle.into()), Some(ids.to_vec()));
        self.call(Call::ReleaseResource { handle, ids }).await;
    }

    async fn heartbeat_session(&self, handle: &str, request_id: i32, grant_id: i32) {
        let args = wire::HeartbeatArgs {
            request_id,
            grant_id,
            resource_usages: Default::default(),
            program: None,
        };
        self.call(Call::SessionHeartbeatV2 { handle: Some(handle.into()), args: Some(args) }).await;
    }

    /// Every session with the slots that it holds, by handle.
    async fn sessions(&self) -> Vec<wire::RunningSession> {
        match self.call(Call::GetSessions).await {
            Reply::GetSessions(mut sessions) => {
                sessions.sort_by(|a, b| a.handle.cmp(&b.handle));
                sessions
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the session holds so many slots for maps.
    async fn holds(&self, handle: &str, wanted: i32) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sessions = self.sessions().await;
            let held = sessions.iter().find(|session| session.handle == handle).map(maps);
            if held == Some(wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{held:?} of {wanted} in time");
        }
    }

    async fn session_info(&self, handle: &str) -> wire::SessionInfo {
        match self.call(Call::GetSessionInfo { handle: Some(handle.into()) }).await {
            Reply::GetSessionInfo(info) => info,
            other => panic!("{other:?}"),
        }
    }

    /// Ends it in no orderly way.
    async fn stop(self) {
        tokio::task::spawn_blocking(move || drop(self.running)).await.unwrap();
    }
}

/// Serves as a session's driver. Out come the ids of each notification of grants.
fn serve_driver(listener: TcpListener) -> (mpsc::Receiver<Vec<i32>>, watch::Sender<bool>) {
    let (tell, told) = mpsc::channel(1000);
    let answer = move |_peer, call| {
        let tell = tell.clone();
        async move {
            let SessionDriverCall::GrantResource { granted: Some(granted), .. } = call else {
                return Answer::Close;
            };
            let _ = tell.send(granted.iter().map(|grant| grant.id).collect()).await;
            Answer::Reply(SessionDriverReply::GrantResource)
        }
    };
    (told, serve_on::<SessionDriver>(listener, answer))
}

/// All ids that the driver receives, until there are as many as wanted; sorted.
async fn granted(told: &mut mpsc::Receiver<Vec<i32>>, wanted: usize) -> Vec<i32> {
    let mut ids = Vec::new();
    while ids.len() < wanted {
        let more = timeout(PATIENCE, told.recv()).await.expect("the driver is told in time");
        ids.extend(more.expect("the driver serves"));
    }
    ids.sort_unstable();
    ids
}

/// Takes unserved connections off the listener, so that calls sent on them are not taken for news
/// later.
async fn forget_connections(listener: &TcpListener) {
    while timeout(A_WHILE, listener.accept()).await.is_ok() {}
}

fn node() -> wire::ClusterNodeInfo {
    use wire::ResourceType;
    let apps = [ResourceType::MAP, ResourceType::REDUCE].map(|kind| (kind, "127.0.0.1:9".into()));
    wire::ClusterNodeInfo {
        name: "tracker:1".into(),
        address: address("127.0.0.1", 50_060),
        total: specs(4),
        free: Some(specs(4)),
        resource_infos: Some(apps.into()),
        ended: None,
        program: None,
    }
}

fn address(host: &str, port: u16) -> wire::InetAddress {
    wire::InetAddress { host: host.into(), port: port.into() }
}

fn specs(cpus: i16) -> wire::ComputeSpecs {
    wire::ComputeSpecs {
        num_cpus: cpus,
        network_m_bps: Some(10),
        memory_m_b: Some(1024),
        disk_g_b: Some(10),
    }
}

/// Slots for maps that a session holds.
fn maps(session: &wire::RunningSession) -> i32 {
    let held = session.running_resources.as_ref().unwrap();
    held[&wire::ResourceType::MAP]
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} in time");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_cluster_manager_goes_on_where_another_one_stopped() {
    for compress in [false, true] {
        upgrade(compress).await;
    }
}

/// The procedure of an upgrade. Spec: cluster-manager/07 §7.
async fn upgrade(compress: bool) {
    let world = TestState::new();
    let compress = format!("cm.compress.state={compress}");
    let old = world.start(&["-D", &compress]).await;
    world.flags_become(&[false]).await;
    old.heartbeat_node().await;

    // One session receives its notifications, one is silent.
    let listener = free_port();
    let hearing = old.start_session(listener.local_addr().unwrap()).await;
    let (mut told, _stop) = serve_driver(listener);
    let silent_driver = free_port();
    let silent = old.start_session(silent_driver.local_addr().unwrap()).await;
    old.request(&silent, [1]).await;
    old.holds(&silent, 1).await;
    old.request(&hearing, 1..=5).await;
    let first = granted(&mut told, 3).await;
    let before = old.sessions().await;
    assert_eq!(before.iter().map(maps).collect::<Vec<_>>(), [3, 1]);

    assert!(!old.persist().await, "only in safe mode");
    assert!(!world.state_file().exists());
    assert!(old.set_safe_mode(true).await);
    world.flags_become(&[false, true]).await;
    old.refused_in_safe_mode(Call::GetSessions).await;
    old.refused_in_safe_mode(Call::NodeHeartbeat { node: Some(node()) }).await;
    assert!(old.persist().await);
    old.stop().await;
    forget_connections(&silent_driver).await;

    let why = world.refused(&world.state_file(), &[]).await;
    for part in [&*world.state_file().display().to_string(), "--recover-from-disk", "move it away"]
    {
        assert!(why.contains(part), "{why}");
    }

    let written = std::fs::read(world.state_file()).unwrap();
    let new = world.start(&["--recover-from-disk"]).await;
    world.flags_become(&[false, true, false]).await;
    assert!(world.state_file().exists(), "the file stays");
    let restoring = format!("Restoring state from {}", world.state_file().display());
    until("the log tells", || new.running.log().contains(&restoring)).await;

    // Sessions, their slots and their descriptions of themselves.
    assert_eq!(new.sessions().await, before);
    let info = new.session_info(&silent).await;
    assert_eq!(
        (&*info.name, info.priority),
        (&*format!("job of {silent}"), Some(wire::SessionPriority::HIGH))
    );
    // Ids continue.
    let (prefix, number) = silent.split_once('.').unwrap();
    assert_eq!((number, new.next_session_id().await), ("2", format!("{prefix}.3")));
    // Undelivered notifications are delivered; delivered ones are not repeated.
    let (mut silent_told, _stop_silent) = serve_driver(silent_driver);
    assert_eq!(granted(&mut silent_told, 1).await, [1]);
    assert!(timeout(A_WHILE, told.recv()).await.is_err());
    // Both sides are in step.
    new.heartbeat_session(&hearing, 5, first[2]).await;
    // Pending requests are granted when there is room, on a node that is known.
    new.release(&hearing, &first).await;
    let mut all = [first, granted(&mut told, 2).await].concat();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5]);
    new.heartbeat_node().await;

    // Another time: the file before is kept.
    assert!(new.set_safe_mode(true).await);
    assert!(new.persist().await);
    until("the log tells", || new.running.log().contains("Persisted the state")).await;
    assert!(!new.running.log().contains("Adding node"), "{}", new.running.log());
    let previous = world.directory.path().join("cm.state.previous");
    assert_eq!(std::fs::read(previous).unwrap(), written);
    assert_ne!(std::fs::read(world.state_file()).unwrap(), written);
    new.stop().await;
}

/// A service, which is started with the same option each time, recovers once and from nothing that
/// is out of date.
#[tokio::test]
async fn a_service_recovers_from_a_state_file_once() {
    const OPTION: &[&str] = &["--recover-if-present"];
    let world = TestState::new();
    let recovered = world.directory.path().join("cm.state.recovered");
    let outdated = world.directory.path().join("cm.state.outdated");
    let old = world.start(OPTION).await;
    world.flags_become(&[false]).await;
    old.heartbeat_node().await;
    let handle = old.start_session(free_address()).await;
    assert!(old.set_safe_mode(true).await && old.persist().await);
    let written = std::fs::read(world.state_file()).unwrap();
    old.stop().await;

    let new = world.start(OPTION).await;
    assert_eq!(new.sessions().await.iter().map(|s| &s.handle).collect::<Vec<_>>(), [&handle]);
    assert!(!world.state_file().exists());
    assert_eq!(std::fs::read(&recovered).unwrap(), written);
    // An upgrade that is given up leaves nothing to recover from.
    assert!(new.set_safe_mode(true).await && new.persist().await);
    assert!(world.state_file().exists() && !outdated.exists());
    assert!(new.set_safe_mode(false).await);
    until("the file is set aside", || outdated.exists()).await;
    assert!(!world.state_file().exists());
    new.stop().await;

    // A crash leaves none either: the next one starts with nothing.
    let next = world.start(OPTION).await;
    assert_eq!(next.sessions().await, []);
    next.stop().await;
    assert_eq!(std::fs::read(&recovered).unwrap(), written);
}

#[tokio::test]
async fn a_plain_recovery_leaves_a_state_file_that_is_out_of_date() {
    let world = TestState::new();
    let manager = world.start(&[]).await;
    assert!(manager.set_safe_mode(true).await && manager.persist().await);
    assert!(manager.set_safe_mode(false).await);
    manager.stop().await;
    assert!(world.state_file().exists());
}

#[tokio::test]
async fn an_upgrade_that_is_given_up_costs_nothing() {
    let world = TestState::new();
    let manager = world.start(&[]).await;
    manager.heartbeat_node().await;
    let driver = free_port();
    let handle = manager.start_session(driver.local_addr().unwrap()).await;
    manager.request(&handle, [1]).await;
    manager.holds(&handle, 1).await;
    assert!(manager.set_safe_mode(true).await);
    assert!(manager.persist().await);

    // The call is in the file: it must not arrive before it is clear which manager delivers it.
    forget_connections(&driver).await;
    let (mut told, _stop) = serve_driver(driver);
    assert!(timeout(A_WHILE, told.recv()).await.is_err());
    assert!(manager.set_safe_mode(false).await);
    assert_eq!(granted(&mut told, 1).await, [1]);
    world.flags_become(&[false, true, false]).await;
    manager.stop().await;
}

#[tokio::test]
async fn a_state_that_cannot_be_written_is_told_and_leaves_all_as_it_was() {
    let world = TestState::new();
    let manager = world.start(&[]).await;
    manager.heartbeat_node().await;
    let driver = free_port();
    let handle = manager.start_session(driver.local_addr().unwrap()).await;
    manager.request(&handle, [1]).await;
    manager.holds(&handle, 1).await;
    assert!(manager.set_safe_mode(true).await);
    // A directory is in the way, which stops every user, root too.
    std::fs::create_dir(world.directory.path().join("cm.state.new")).unwrap();
    assert!(!manager.persist().await);
    let log = || manager.running.log();
    until("the log tells", || log().contains("Could not persist the state")).await;
    assert!(!world.state_file().exists());
    manager.refused_in_safe_mode(Call::GetSessions).await;
    // No other process will deliver the pending calls.
    let (mut told, _stop) = serve_driver(driver);
    assert_eq!(granted(&mut told, 1).await[0], 1);
    std::fs::remove_dir(world.directory.path().join("cm.state.new")).unwrap();
    assert!(manager.persist().await);
    manager.stop().await;
}

#[tokio::test]
async fn a_state_file_that_is_of_no_use_is_told_in_one_line() {
    let world = TestState::new();
    let recover = ["--recover-from-disk"];
    let missing = world.state_file();
    let why = world.refused(&missing, &recover).await;
    assert!(why.contains(&*missing.display().to_string()) && why.contains("No such file"), "{why}");

    let recorded = compat_tests::repository()
        .join("fixtures/recordings/scenarios/safe_mode_and_recovery/cm.state");
    let recorded = std::fs::read_to_string(recorded).unwrap();
    let half = recorded.get(..recorded.len() / 2).unwrap().to_owned();
    let other_id = recorded.replace("\"requestId\" : 6", "\"requestId\" : 6000000000");
    for (text, part) in [
        (half, "EOF while parsing"),
        (String::new(), "EOF while parsing"),
        (other_id, "[\"202611210032.1\"].expectedInfo.requestId: invalid value"),
    ] {
        std::fs::write(&missing, text).unwrap();
        let why = world.refused(&missing, &recover).await;
        assert!(why.contains(part), "{why}");
    }
}

#[tokio::test]
async fn a_file_of_the_original_is_gone_on_from() {
    let world = TestState::new();
    let recorded = compat_tests::repository()
        .join("fixtures/recordings/scenarios/safe_mode_and_recovery/cm.state");
    std::fs::copy(recorded, world.state_file()).unwrap();
    // Four maps are granted on a node of four CPUs, two wait. The setting for compression is
    // that of another file.
    let manager = world.start(&["--recover-from-disk", "-D", "cm.compress.state=true"]).await;
    let sessions = manager.sessions().await;
    let [session] = &sessions[..] else { panic!("{sessions:?}") };
    assert_eq!((&*session.handle, &*session.name), ("202611210032.1", "keeper"));
    assert_eq!(maps(session), 4);
    // Spec: cluster-manager/02 §3.14.
    let info = manager.session_info("202611210032.1").await;
    assert_eq!((info.no_preempt, info.deadline), (Some(false), Some(0)));
    manager.heartbeat_session("202611210032.1", 6, 5).await;
    manager.release("202611210032.1", &[1, 2, 3, 5]).await;
    manager.holds("202611210032.1", 2).await;
    manager.stop().await;
}

#[tokio::test]
async fn a_proxy_job_tracker_that_hangs_holds_up_no_start() {
    let world = TestState::new();
    let hangs = free_port();
    let hangs_at = hangs.local_addr().unwrap();
    let launch = world.launch(&world.state_file(), hangs_at, &[]);
    let running = tokio::task::spawn_blocking(move || launch.start()).await.unwrap().unwrap();
    let manager = Manager { running };
    manager.next_session_id().await;
    let failure = "Exception while setting the safe mode flag in ProxyJobTracker";
    assert!(
        !manager.running.log().contains(failure),
        "it waits for the proxy job tracker no longer"
    );
    // It received a call, and is reported when it does not answer.
    let (connection, _) = timeout(PATIENCE, hangs.accept()).await.unwrap().unwrap();
    drop(connection);
    let log = || manager.running.log();
    until("the log tells", || log().contains(failure)).await;
    assert!(log().contains("Safe mode is now: OFF"), "{}", log());
    manager.stop().await;
}
