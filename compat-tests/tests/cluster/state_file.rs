//! Safe mode, the state file and recovery, with the built program as a process: a replacement
//! resumes with the state of the cluster manager before it.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use compat_tests::cluster_peers::{Caller, DEFAULT, Driver, ReceivedNotices, report};
use compat_tests::{launch, start, until};
use corona::conformance::launch::{Launch, LaunchError, LaunchedManager};
use corona::wire::calls::ProxyJobTracker;
use serde_json::{Value as Json, json};

/// How long a test waits for events that must not happen.
const A_WHILE: Duration = Duration::from_millis(300);

/// A directory for the state file, and a proxy job tracker.
struct TestState {
    directory: tempfile::TempDir,
    proxy_job_tracker: SocketAddr,
    flags: ReceivedNotices,
}

impl TestState {
    fn new() -> TestState {
        let listener = listener();
        let proxy_job_tracker = listener.local_addr().unwrap();
        let flags = ReceivedNotices::serve::<ProxyJobTracker>(listener);
        TestState { directory: tempfile::tempdir().unwrap(), proxy_job_tracker, flags }
    }

    fn state_file(&self) -> PathBuf {
        self.directory.path().join("cm.state")
    }

    fn start(&self, arguments: &[&str]) -> Manager {
        Manager { running: start(&self.launch(self.proxy_job_tracker, arguments)) }
    }

    /// Why it does not start.
    fn refused(&self, arguments: &[&str]) -> String {
        match self.launch(self.proxy_job_tracker, arguments).start() {
            Err(LaunchError::Ended { status, log }) => {
                assert_eq!(status, "exit status: 1", "{log}");
                let told: Vec<&str> = log.lines().filter(|l| l.starts_with("corona: ")).collect();
                assert_eq!(told.len(), 1, "{log}");
                told[0].to_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    fn launch(&self, proxy_job_tracker: SocketAddr, arguments: &[&str]) -> Launch {
        let arguments = arguments.iter().map(Into::into).collect();
        let settings = launch(&[
            ("cm.server.sotimeout", "500"),
            // No session is given up while a test is stalled.
            ("cm.notifier.retry.max", "1000"),
            ("cm.session.expiryinterval", "600000"),
            ("cm.state", &self.state_file().display().to_string()),
            // It resumes from the state file alone.
            ("corona.cm.journal.dir", "none"),
            ("corona.proxy.job.tracker.thriftaddr", &proxy_job_tracker.to_string()),
        ]);
        Launch { arguments, ..settings }
    }

    /// Waits until the proxy job tracker has received these values of the flag of safe mode.
    fn flags_become(&self, expected: &[bool]) {
        self.flags.until(&format!("flags {expected:?}"), |told| {
            let flags = told.iter().map(|(_, arguments)| arguments["flagValue"] == true);
            flags.eq(expected.iter().copied()).then_some(())
        });
    }
}

/// A running cluster manager. It closes connections that are idle for half a second, so each call
/// has its own.
struct Manager {
    running: LaunchedManager,
}

impl Manager {
    fn calls(&self) -> Caller {
        Caller::open(self.running.thrift())
    }

    fn call(&self, method: &str, args: &Json) -> Json {
        self.calls().call(method, args)
    }

    fn lists_no_sessions_in_safe_mode(&self) {
        let refused = self.call("getSessions", &json!({}));
        assert_eq!(refused, json!({ "e": {} }));
    }

    fn set_safe_mode(&self, on: bool) -> bool {
        self.call("setSafeMode", &json!({ "safeMode": on })) == true
    }

    fn persist(&self) -> bool {
        self.call("persistState", &json!({})) == true
    }

    fn next_session_id(&self) -> String {
        self.call("getNextSessionId", &json!({})).as_str().unwrap().to_owned()
    }

    /// A session that was granted what it requested, and its driver, which does not answer yet.
    fn grants_one(&self) -> (TcpListener, String) {
        self.heartbeat_node();
        let driver = listener();
        let handle = self.start_session(port(&driver));
        self.request(&handle, [1]);
        self.calls().holds(&handle, 1);
        (driver, handle)
    }

    fn heartbeat_node(&self) {
        self.calls().heartbeat("tracker:1", "127.0.0.1", 4, DEFAULT);
    }

    /// Starts a session of which the driver listens at `driver`.
    fn start_session(&self, driver: u16) -> String {
        let more = json!({
            "poolInfoStrings": { "poolGroupName": "g", "poolName": "p" },
            "name": "its name", "priority": "HIGH", "noPreempt": false, "url": "http://job",
        });
        self.calls().session(driver, &more)
    }

    fn request(&self, handle: &str, ids: impl IntoIterator<Item = i32>) {
        self.calls().request(handle, ids, &json!({ "hosts": ["127.0.0.1"] }));
    }

    fn heartbeat_session(&self, handle: &str, request_id: i32, grant_id: i64) {
        let info = json!({ "requestId": request_id, "grantId": grant_id, "resourceUsages": {} });
        let args = json!({ "handle": handle, "heartbeatArgs": info });
        self.calls().notify("sessionHeartbeatV2", &args);
    }

    fn session_info(&self, handle: &str) -> Json {
        self.call("getSessionInfo", &json!({ "handle": handle }))
    }

    /// Waits for a line of the log.
    fn logs(&self, part: &str) {
        until(part, || self.running.log().contains(part).then_some(()));
    }
}

/// A port without a server.
fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

/// Takes unserved connections off the listener, so that calls sent on them are not taken for news
/// later.
fn forget_connections(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    let mut last = Instant::now();
    while last.elapsed() < A_WHILE {
        match listener.accept() {
            Ok(_) => last = Instant::now(),
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
    listener.set_nonblocking(false).unwrap();
}

/// Slots for maps that a session holds.
fn maps(session: &Json) -> &Json {
    &session["runningResources"]["MAP"]
}

#[test]
fn a_cluster_manager_goes_on_where_another_one_stopped() {
    for compress in [false, true] {
        upgrade(compress);
    }
}

/// The procedure of an upgrade. Spec: cluster-manager/07 §7.
fn upgrade(compress: bool) {
    let world = TestState::new();
    let compress = format!("cm.compress.state={compress}");
    let old = world.start(&["-D", &compress]);
    world.flags_become(&[false]);
    old.heartbeat_node();

    // One session receives its notifications, one is silent.
    let driver = Driver::start();
    let hearing = old.start_session(driver.port);
    let silent_driver = listener();
    let silent = old.start_session(port(&silent_driver));
    old.request(&silent, [1]);
    old.calls().holds(&silent, 1);
    old.request(&hearing, 1..=5);
    let first = driver.granted(&hearing, 3);
    let before = old.calls().sessions();
    assert_eq!(before.iter().map(maps).collect::<Vec<_>>(), [3, 1]);

    assert!(!old.persist(), "only in safe mode");
    assert!(!world.state_file().exists());
    assert!(old.set_safe_mode(true));
    world.flags_become(&[false, true]);
    old.lists_no_sessions_in_safe_mode();
    let node = report("tracker:1", "127.0.0.1", 4);
    assert_eq!(old.call("nodeHeartbeat", &json!({ "node": node })), json!({ "f": {} }));
    assert!(old.persist());
    drop(old);
    forget_connections(&silent_driver);

    let why = world.refused(&[]);
    for part in [&*world.state_file().display().to_string(), "--recover-from-disk", "move it away"]
    {
        assert!(why.contains(part), "{why}");
    }

    let written = std::fs::read(world.state_file()).unwrap();
    let new = world.start(&["--recover-from-disk"]);
    world.flags_become(&[false, true, false]);
    assert!(world.state_file().exists(), "the file stays");
    new.logs(&format!("Restoring state from {}", world.state_file().display()));

    // Sessions, their slots and their descriptions of themselves.
    assert_eq!(new.calls().sessions(), before);
    let info = new.session_info(&silent);
    assert_eq!((&info["name"], &info["priority"]), (&json!("its name"), &json!("HIGH")));
    // Ids continue.
    let (prefix, number) = silent.split_once('.').unwrap();
    assert_eq!((number, new.next_session_id()), ("2", format!("{prefix}.3")));
    // Undelivered notifications are delivered; delivered ones are not repeated.
    assert_eq!(Driver::on(silent_driver).granted(&silent, 1), [1]);
    sleep(A_WHILE);
    assert_eq!(driver.granted(&hearing, 3), first);
    // Both sides are in step.
    new.heartbeat_session(&hearing, 5, first[2]);
    // Pending requests are granted when there is room, on a node that is known.
    new.calls().release(&hearing, first);
    assert_eq!(driver.granted(&hearing, 5), [1, 2, 3, 4, 5]);
    new.heartbeat_node();

    // Another time: the file before is kept.
    assert!(new.set_safe_mode(true));
    assert!(new.persist());
    new.logs("Persisted the state");
    assert!(!new.running.log().contains("Adding node"), "{}", new.running.log());
    let previous = world.directory.path().join("cm.state.previous");
    assert_eq!(std::fs::read(previous).unwrap(), written);
    assert_ne!(std::fs::read(world.state_file()).unwrap(), written);
}

/// A service, which is started with the same option each time, recovers once and from nothing that
/// is out of date.
#[test]
fn a_service_recovers_from_a_state_file_once() {
    const OPTION: &[&str] = &["--recover-if-present"];
    let world = TestState::new();
    let recovered = world.directory.path().join("cm.state.recovered");
    let outdated = world.directory.path().join("cm.state.outdated");
    let old = world.start(OPTION);
    world.flags_become(&[false]);
    old.heartbeat_node();
    let handle = old.start_session(9);
    assert!(old.set_safe_mode(true) && old.persist());
    let written = std::fs::read(world.state_file()).unwrap();
    drop(old);

    let new = world.start(OPTION);
    assert_eq!(new.calls().sessions()[0]["handle"], *handle);
    assert!(!world.state_file().exists());
    assert_eq!(std::fs::read(&recovered).unwrap(), written);
    // An upgrade that is given up leaves nothing to recover from.
    assert!(new.set_safe_mode(true) && new.persist());
    assert!(world.state_file().exists() && !outdated.exists());
    assert!(new.set_safe_mode(false));
    until("the file that is set aside", || outdated.exists().then_some(()));
    assert!(!world.state_file().exists());
    drop(new);

    // A crash leaves none either: the next one starts with nothing.
    let next = world.start(OPTION);
    assert!(next.calls().sessions().is_empty());
    assert_eq!(std::fs::read(&recovered).unwrap(), written);
}

#[test]
fn a_plain_recovery_leaves_a_state_file_that_is_out_of_date() {
    let world = TestState::new();
    let manager = world.start(&[]);
    assert!(manager.set_safe_mode(true) && manager.persist());
    assert!(manager.set_safe_mode(false));
    drop(manager);
    assert!(world.state_file().exists());
}

#[test]
fn an_upgrade_that_is_given_up_costs_nothing() {
    let world = TestState::new();
    let manager = world.start(&[]);
    let (driver, handle) = manager.grants_one();
    assert!(manager.set_safe_mode(true));
    assert!(manager.persist());

    // The call is in the file: it must not arrive before it is clear which manager delivers it.
    forget_connections(&driver);
    let driver = Driver::on(driver);
    sleep(A_WHILE);
    driver.granted(&handle, 0);
    assert!(manager.set_safe_mode(false));
    driver.granted(&handle, 1);
    world.flags_become(&[false, true, false]);
}

#[test]
fn a_state_that_cannot_be_written_is_told_and_leaves_all_as_it_was() {
    let world = TestState::new();
    let manager = world.start(&[]);
    let (driver, handle) = manager.grants_one();
    assert!(manager.set_safe_mode(true));
    // A directory is in the way, which stops every user, root too.
    std::fs::create_dir(world.directory.path().join("cm.state.new")).unwrap();
    assert!(!manager.persist());
    manager.logs("Could not persist the state");
    assert!(!world.state_file().exists());
    manager.lists_no_sessions_in_safe_mode();
    // No other process will deliver the pending calls.
    forget_connections(&driver);
    Driver::on(driver).granted(&handle, 1);
    std::fs::remove_dir(world.directory.path().join("cm.state.new")).unwrap();
    assert!(manager.persist());
}

#[test]
fn a_state_file_that_is_of_no_use_is_told_in_one_line() {
    let world = TestState::new();
    let recover = ["--recover-from-disk"];
    let missing = world.state_file();
    let why = world.refused(&recover);
    assert!(why.contains(&*missing.display().to_string()) && why.contains("No such file"), "{why}");

    let recorded = compat_tests::repository()
        .join("fixtures/recordings/scenarios/safe_mode_and_recovery/cm.state");
    let recorded = std::fs::read_to_string(recorded).unwrap();
    let other_id = recorded.replace("\"requestId\" : 6", "\"requestId\" : 6000000000");
    std::fs::write(&missing, other_id).unwrap();
    let why = world.refused(&recover);
    let place = "[\"202611210032.1\"].expectedInfo.requestId: invalid value";
    assert!(why.contains(place), "{why}");
}

#[test]
fn a_file_of_the_original_is_gone_on_from() {
    let world = TestState::new();
    let recorded = compat_tests::repository()
        .join("fixtures/recordings/scenarios/safe_mode_and_recovery/cm.state");
    std::fs::copy(recorded, world.state_file()).unwrap();
    // Four maps are granted on a node of four CPUs, two wait. The setting for compression is
    // that of another file.
    let manager = world.start(&["--recover-from-disk", "-D", "cm.compress.state=true"]);
    const KEEPER: &str = "202611210032.1";
    let sessions = manager.calls().sessions();
    let [session] = &sessions[..] else { panic!("{sessions:?}") };
    assert_eq!((&session["handle"], &session["name"]), (&json!(KEEPER), &json!("keeper")));
    assert_eq!(maps(session), 4);
    // Spec: cluster-manager/02 §3.14.
    let info = manager.session_info(KEEPER);
    assert_eq!((&info["noPreempt"], &info["deadline"]), (&json!(false), &json!(0)));
    manager.heartbeat_session(KEEPER, 6, 5);
    manager.calls().release(KEEPER, [1, 2, 3, 5]);
    manager.calls().holds(KEEPER, 2);
}

#[test]
fn a_proxy_job_tracker_that_hangs_holds_up_no_start() {
    let world = TestState::new();
    let hangs = listener();
    let running = start(&world.launch(hangs.local_addr().unwrap(), &[]));
    let manager = Manager { running };
    manager.next_session_id();
    let failure = "Exception while setting the safe mode flag in ProxyJobTracker";
    assert!(
        !manager.running.log().contains(failure),
        "it waits for the proxy job tracker no longer"
    );
    // It received a call, and is reported when it does not answer.
    hangs.set_nonblocking(true).unwrap();
    drop(until("a call", || hangs.accept().ok()));
    manager.logs(failure);
    manager.logs("Safe mode is now: OFF");
}
