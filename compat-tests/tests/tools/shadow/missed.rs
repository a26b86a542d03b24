//! Another decision of the primary is reported. Traffic that a shadow cannot see, or has missed, is
//! reported as such, has no differences, and sessions that begin afterwards are compared.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use compat_tests::cluster_peers::{
    Caller, Connection, DEFAULT, Driver, Node, ReceivedNotices, report,
};
use compat_tests::serving::keep_address;
use compat_tests::{corona, start};
use corona::conformance::launch::{Launch, LaunchedManager};
use corona::wire::calls::ProxyJobTracker;
use serde_json::{Value as Json, json};

use super::processes::{Shadow, counts, until_it_shows};

/// A cluster manager, and where it expects a proxy job tracker.
struct Primary {
    launch: Launch,
    running: Option<LaunchedManager>,
    proxy: ReceivedNotices,
    address: SocketAddr,
    scratch: tempfile::TempDir,
}

impl Primary {
    fn start() -> Primary {
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let scratch = tempfile::tempdir().unwrap();
        configure(scratch.path(), 2);
        // Started again, it knows nothing of before.
        let settings = [
            ("corona.proxy.job.tracker.thriftaddr", &*proxy.local_addr().unwrap().to_string()),
            ("cm.state", &scratch.path().join("cm.state").display().to_string()),
            ("corona.cm.journal.dir", "none"),
        ];
        let conf_dir = Some(scratch.path().to_path_buf());
        let launch = Launch { conf_dir, ..compat_tests::launch(&settings) };
        let running = start(&launch);
        let address = running.thrift();
        let proxy = ReceivedNotices::serve::<ProxyJobTracker>(proxy);
        Primary { launch, running: Some(running), proxy, address, scratch }
    }

    fn stop(&mut self) {
        self.running = None;
        keep_address(self.address);
    }

    /// Starts it where it was.
    fn start_again(&mut self) {
        self.launch.overrides[0].1 = self.address.to_string();
        self.running = Some(start(&self.launch));
    }
}

/// Writes a configuration with so many slots for maps on each processor.
fn configure(directory: &Path, maps: u32) {
    let text = format!(
        "<configuration><property><name>cm.cpu.to.resource.partitioning</name><value>\
         {{\"1\":{{\"MAP\":{maps},\"REDUCE\":1,\"JOBTRACKER\":1}}}}</value></property></configuration>"
    );
    std::fs::write(directory.join("core-site.xml"), text).unwrap();
}

/// A shadow with a page, which soon notices missing notifications.
fn shadow(primary: &Primary, options: &[&str]) -> Shadow {
    let conf_dir = primary.scratch.path().to_str().unwrap();
    let all = ["--http", "127.0.0.1:0", "--patience", "1", "--conf-dir", conf_dir];
    Shadow::start(primary.address, &[&all, options].concat())
}

/// Waits until the metrics have a sample of at least this value.
fn until_counted(shadow: &Shadow, sample: &str) {
    until_it_shows(shadow.http.unwrap(), "/metrics", "# TYPE", sample);
}

/// So many answers or notices of a method with this verdict, as the metrics have them.
fn sample(what: &str, method: &str, verdict: &str, count: u32) -> String {
    format!("corona_shadow_{what}_total{{method=\"{method}\",verdict=\"{verdict}\"}} {count}")
}

/// Ends a shadow that has found nothing, and returns its summary.
fn agrees(shadow: Shadow) -> String {
    let (status, summary) = shadow.end();
    assert_eq!(status, Some(0), "{summary}");
    assert!(summary.starts_with("AGREES"), "{summary}");
    summary
}

/// A whole session: two requests, granted and released.
fn session_runs(caller: &mut Caller, driver: &Driver) {
    let handle = caller.session(driver.port, DEFAULT);
    caller.request(&handle, 1..=2, DEFAULT);
    driver.granted(&handle, 2);
    caller.release(&handle, [1, 2]);
    caller.end(&handle, "SUCCESSFUL");
}

#[test]
fn a_primary_that_is_started_again_is_followed_from_its_beginning() {
    let mut primary = Primary::start();
    let shadow = shadow(&primary, &[]);
    let driver = Driver::start();
    let node = Node::start(shadow.address, "n1", "10.1.1.1", 4);
    let mut caller = Caller::open(shadow.address);
    session_runs(&mut caller, &driver);
    let handle = caller.session(driver.port, DEFAULT);
    caller.request(&handle, 1..=8, DEFAULT);
    driver.granted(&handle, 8);

    primary.stop();
    assert!(caller.try_call("getSessions", &json!({})).is_none(), "the primary is gone");
    drop(node);
    let gone = Connection::open(shadow.address).receive();
    assert!(gone.is_none(), "nobody answers");
    configure(primary.scratch.path(), 3);
    primary.start_again();

    let mut caller = Caller::open(shadow.address);
    let _node = Node::start(shadow.address, "n1", "10.1.1.1", 4);
    // The earlier session is not known any more; the new one, whose id may be the same as that of
    // an earlier one, gets all that it had, and the slots since.
    let driver = Driver::start();
    let refused = caller.call("sessionHeartbeat", &json!({ "handle": handle }));
    assert!(refused.get("e").is_some(), "{refused}");
    let handle = caller.session(driver.port, DEFAULT);
    caller.request(&handle, 1..=12, DEFAULT);
    driver.granted(&handle, 12);
    until_counted(&shadow, &sample("notices", "grantResource", "equal", 22));
    let summary = agrees(shadow);
    assert!(summary.contains("the primary could not be reached"), "{summary}");
    assert_eq!(counts(&summary, "grantResource"), [22, 0, 0, 0], "{summary}");
}

/// The configuration that the shadow has allows more slots than the primary grants.
#[test]
fn another_decision_is_reported_and_the_events_of_the_run_lead_to_the_same_report() {
    let primary = Primary::start();
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), 3);
    let conf_dir = directory.path().to_str().unwrap();
    let events = directory.path().join("run.events");
    let keep = ["--keep-events", events.to_str().unwrap()];
    let options = ["--conf-dir", conf_dir, "--patience", "2", "--http", "127.0.0.1:0"];
    let options = [&options[..], &keep].concat();
    let shadow = Shadow::start(primary.address, &options);
    let driver = Driver::start();
    let mut caller = Caller::open(shadow.address);
    caller.heartbeat("n1", "10.1.1.1", 4, DEFAULT);
    let handle = caller.session(driver.port, DEFAULT);
    caller.request(&handle, 1..=9, DEFAULT);
    driver.granted(&handle, 8);
    until_counted(&shadow, &sample("notices", "grantResource", "different", 1));
    let (status, summary) = shadow.end();
    assert_eq!(status, Some(1), "{summary}");
    assert!(summary.starts_with("DIFFERS: 1 unexplained difference."), "{summary}");
    assert!(summary.contains("nothing within 2 s"), "{summary}");
    let again = corona(&["shadow", "--events", events.to_str().unwrap()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&again.stdout), summary);
    assert_eq!(again.status.code(), status, "{}", String::from_utf8_lossy(&again.stderr));
    // They are a recording of what the cluster was asked for as well.
    let what_if = ["what-if", events.to_str().unwrap(), "--json", "--conf-dir", conf_dir];
    let output = corona(&what_if).output().unwrap();
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sessions"], 1, "{report}");
}

#[test]
fn sessions_that_began_before_the_shadow_are_not_compared_and_others_are() {
    let primary = Primary::start();
    let driver = Driver::start();
    let before = {
        let _node = Node::start(primary.address, "n1", "10.1.1.1", 4);
        let mut caller = Caller::open(primary.address);
        let handle = caller.session(driver.port, DEFAULT);
        caller.request(&handle, 1..=6, DEFAULT);
        driver.granted(&handle, 6);
        handle
    };
    let shadow = shadow(&primary, &[]);
    let _node = Node::start(shadow.address, "n1", "10.1.1.1", 4);
    let mut caller = Caller::open(shadow.address);
    until_counted(&shadow, "corona_shadow_unfollowed_sessions 1");

    // Two of eight slots are free, which only the primary knows.
    let after = caller.session(driver.port, DEFAULT);
    caller.request(&after, 1..=5, DEFAULT);
    driver.granted(&after, 2);
    caller.notify("sessionHeartbeat", &json!({ "handle": before }));
    until_counted(&shadow, &sample("notices", "grantResource", "not_compared", 3));
    caller.release(&before, [1, 2, 3]);
    driver.granted(&after, 5);
    caller.end(&before, "SUCCESSFUL");
    until_counted(&shadow, "corona_shadow_unfollowed_sessions 0");
    caller.release(&after, [1, 2, 3, 4, 5]);
    caller.end(&after, "SUCCESSFUL");
    session_runs(&mut caller, &driver);
    until_counted(&shadow, "corona_shadow_waiting_decisions 0");
    let summary = agrees(shadow);
    for reason in
        ["calls of sessions whose start was not seen", "sessions that are not followed hold slots"]
    {
        assert!(summary.contains(reason), "no {reason:?} in {summary}");
    }
    let [equal, _, different, _] = counts(&summary, "grantResource");
    assert!(equal >= 4 && different == 0, "{summary}");
}

#[test]
fn calls_beyond_the_buffer_are_missed_and_later_ones_compared() {
    let primary = Primary::start();
    let shadow = shadow(&primary, &["--max-buffer", "16k"]);
    let driver = Driver::start();
    let _node = Node::start(shadow.address, "n1", "10.1.1.1", 4);
    let mut caller = Caller::open(shadow.address);
    session_runs(&mut caller, &driver);
    until_counted(&shadow, &sample("notices", "grantResource", "equal", 2));

    // A call that is larger than the buffer, so that it is missed at least in part, and then an answer
    // that is.
    let large = caller.session(driver.port, DEFAULT);
    caller.request(&large, 1..=2_000, DEFAULT);
    driver.granted(&large, 8);
    until_counted(&shadow, "corona_shadow_beginnings_total 1");
    caller.call("getSessions", &json!({}));
    caller.end(&large, "SUCCESSFUL");
    until_counted(&shadow, "corona_shadow_unfollowed_sessions 0");
    // The same connection is understood again.
    caller.heartbeat("n1", "10.1.1.1", 4, DEFAULT);
    for _ in 0..3 {
        session_runs(&mut caller, &driver);
    }
    until_counted(&shadow, &sample("notices", "grantResource", "equal", 8));
    let summary = agrees(shadow);
    assert!(summary.contains("it was too slow, and missed "), "{summary}");
    let [equal, _, different, _] = counts(&summary, "sessionStart");
    assert!(equal >= 4 && different == 0, "{summary}");
}

#[test]
fn safe_mode_is_followed_whoever_turns_it_on_or_off() {
    let primary = Primary::start();
    let shadow = shadow(&primary, &[]);
    let driver = Driver::start();
    let heartbeat = |caller: &mut Caller| caller.heartbeat("n1", "10.1.1.1", 4, DEFAULT);
    let mut caller = Caller::open(shadow.address);
    heartbeat(&mut caller);
    let set = |caller: &mut Caller, on: bool| {
        let done = caller.call("setSafeMode", &json!({ "safeMode": on }));
        assert_eq!(done, json!(true));
    };
    let refused = |caller: &mut Caller| {
        let node = report("n1", "10.1.1.1", 4);
        let refused = caller.call("nodeHeartbeat", &json!({ "node": node }));
        assert!(refused.get("f").is_some(), "{refused}");
    };
    // Through the shadow.
    let during = caller.session(driver.port, DEFAULT);
    caller.request(&during, 1..=2, DEFAULT);
    driver.granted(&during, 2);
    set(&mut caller, true);
    refused(&mut caller);
    set(&mut caller, false);
    heartbeat(&mut caller);
    caller.release(&during, [1, 2]);
    caller.end(&during, "SUCCESSFUL");
    session_runs(&mut caller, &driver);
    until_counted(&shadow, &sample("answers", "sessionEnd", "equal", 2));
    until_counted(&shadow, "corona_shadow_beginnings_total 0");
    // Beside it.
    let mut other = Caller::open(primary.address);
    set(&mut other, true);
    refused(&mut caller);
    refused(&mut caller);
    until_counted(&shadow, "corona_shadow_beginnings_total 1");
    set(&mut other, false);
    heartbeat(&mut caller);
    until_counted(&shadow, "corona_shadow_beginnings_total 2");
    heartbeat(&mut caller);
    session_runs(&mut caller, &driver);
    until_counted(&shadow, &sample("answers", "sessionEnd", "equal", 3));
    let summary = agrees(shadow);
    for why in ["the primary is in safe mode", "the primary is no longer in safe mode"] {
        assert!(summary.contains(why), "{summary}");
    }
    // First at the start of the primary; the shadow sends it nothing.
    let flags: Vec<bool> = primary.proxy.until("all flags", |told| {
        (told.len() >= 5).then(|| told.iter().map(|(_, args)| args["flagValue"] == true).collect())
    });
    assert_eq!(flags, [false, true, false, true, false]);
}
