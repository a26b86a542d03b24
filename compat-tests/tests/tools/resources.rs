//! Recordings and shadows of a cluster manager that counts resources: a story in which each decision follows from the
//! calls before it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use compat_tests::cluster_peers::{Caller, Driver, Notice};
use compat_tests::serving::fetch;
use compat_tests::{start_recorded, until};
use serde_json::{Value as Json, json};

use super::record::Relay;
use super::replay::verdict;
use super::shadow::processes::{Shadow, counts};

/// Writes a configuration that counts CPUs and memory, with reservations and a pool that soon lacks its minimum.
fn configure(directory: &Path, more: &[(&str, &str)]) {
    let at = |name: &str| directory.join(name).display().to_string();
    let (general, pools) = (at("corona.xml"), at("pools.xml"));
    let partitioning = "{\"1\":{\"MAP\":2,\"REDUCE\":2,\"JOBTRACKER\":1}}";
    let settings = [
        ("cm.server.address", "localhost:18800"),
        ("cm.server.http.address", "localhost:18801"),
        ("corona.proxy.job.tracker.thriftaddr", "localhost:18802"),
        ("cm.config.file", &general),
        ("cm.pools.config.file", &pools),
        ("cm.cpu.to.resource.partitioning", partitioning),
        ("corona.cm.resources", "cpus,memory"),
    ];
    let property = |(key, value): &(&str, &str)| {
        format!("<property><name>{key}</name><value>{value}</value></property>\n")
    };
    let file = |name: &str, text: &str| {
        let text = format!("<configuration>\n{text}</configuration>\n");
        std::fs::write(directory.join(name), text).unwrap();
    };
    file("core-site.xml", &settings.iter().chain(more).map(property).collect::<String>());
    file(
        "corona.xml",
        "<nodeLocalityWaitMAP>0</nodeLocalityWaitMAP><rackLocalityWaitMAP>0</rackLocalityWaitMAP>\
         <starvingTimeForMinimum>1000</starvingTimeForMinimum>\
         <starvingTimeForShare>600000</starvingTimeForShare>\
         <preemptedTaskMaxRunningTime>600000</preemptedTaskMaxRunningTime>",
    );
    let poor = "<pool name=\"poor\"><minMAP>1</minMAP></pool>";
    file("pools.xml", &format!("<group name=\"g\">{poor}</group>"));
}

/// A client of the cluster manager, on one connection.
struct Client {
    calls: Caller,
    pages: SocketAddr,
}

/// A session of the client, and what it was notified of.
struct Session {
    handle: String,
    driver: Driver,
}

impl Client {
    fn node(&mut self, name: &str, cpus: i16, memory_mb: i32) {
        let specs = json!({ "numCpus": cpus, "networkMBps": 1000, "memoryMB": memory_mb,
                            "diskGB": 1000 });
        let more = json!({ "total": specs, "free": specs });
        self.calls.heartbeat(name, name, cpus, &more);
    }

    fn session(&mut self, pool: &str) -> Session {
        let driver = Driver::start();
        let pool = json!({ "poolGroupName": "g", "poolName": pool });
        let handle = self.calls.session(driver.port, &json!({ "poolInfoStrings": pool }));
        Session { handle, driver }
    }

    /// Requests a slot with so much of a node: its id, type, CPUs, memory, and a host that it excludes.
    fn ask(&mut self, session: &Session, request: (i32, &str, i16, i32, Option<&str>)) {
        let (id, kind, cpus, memory_mb, excluded) = request;
        let specs = json!({ "numCpus": cpus, "memoryMB": memory_mb });
        let excluded: Vec<&str> = excluded.into_iter().collect();
        let more = json!({ "specs": specs, "type": kind, "excludeHosts": excluded });
        self.calls.request(&session.handle, [id], &more);
    }

    fn release(&mut self, session: &Session, id: i32) {
        self.calls.release(&session.handle, [id]);
    }

    /// Waits until a node is kept for a request of the session.
    fn waits_for_a_node(&self, session: &Session) {
        let path = format!("/api/v1/sessions/{}", session.handle);
        until("a node that is kept", || {
            let (_, body) = fetch(&self.pages.to_string(), &path).expect("an answer");
            let found: Json = serde_json::from_str(&body).expect("JSON");
            (found["waits"][0]["reservation"]["node"] == "large").then_some(())
        });
    }
}

impl Session {
    /// Waits for so many grants, or grants that were taken back, and compares them: request and node.
    fn hears(&self, method: &str, expected: &[(i32, &str)]) {
        let named = |notices: &[Notice]| {
            let of_method = notices.iter().filter(|(name, _)| name == method);
            let list = if method == "grantResource" { "granted" } else { "revoked" };
            let grants = of_method.flat_map(|(_, notice)| notice[list].as_array().unwrap());
            let name = |grant: &Json| {
                let id = i32::try_from(grant["id"].as_i64().unwrap()).unwrap();
                (id, grant["nodeName"].as_str().unwrap().to_owned())
            };
            grants.map(name).collect::<BTreeMap<i32, String>>()
        };
        let look = |notices: &[Notice]| {
            let grants = named(notices);
            (grants.len() >= expected.len()).then_some(grants)
        };
        let grants = self.driver.told.until(method, look);
        let expected = expected.iter().map(|(id, node)| (*id, (*node).to_owned()));
        assert_eq!(grants, expected.collect::<BTreeMap<_, _>>(), "{method}");
    }
}

/// Best fit, an excluded host, types that share a node, a node that is kept for a large request, and room that is made on
/// one node. Nothing is called before all that follows from the call before it has come.
fn story(manager: SocketAddr, pages: SocketAddr) {
    let mut client = Client { calls: Caller::open(manager), pages };
    client.node("small", 4, 4_000);
    client.node("middle", 8, 8_000);
    client.node("large", 16, 32_000);
    let one = client.session("one");
    let mut expected = Vec::new();
    for (id, kind, cpus, memory_mb, node) in [
        (1, "MAP", 1, 1_350, "small"),
        (2, "MAP", 1, 1_350, "small"),
        (3, "MAP", 2, 6_000, "middle"),
        (4, "MAP", 10, 20_000, "large"),
        (5, "REDUCE", 1, 4_000, "large"),
        (6, "REDUCE", 1, 4_000, "large"),
    ] {
        client.ask(&one, (id, kind, cpus, memory_mb, None));
        expected.push((id, node));
        one.hears("grantResource", &expected);
    }
    // Only the large node would have room when the reduces end, and the middle one when the third map does.
    client.ask(&one, (7, "MAP", 1, 5_000, Some("large")));
    client.release(&one, 3);
    expected.push((7, "middle"));
    one.hears("grantResource", &expected);
    client.ask(&one, (8, "MAP", 1, 6_000, None));
    client.release(&one, 5);
    expected.push((8, "large"));
    one.hears("grantResource", &expected);

    let two = client.session("two");
    client.ask(&two, (1, "MAP", 4, 10_000, None));
    client.waits_for_a_node(&two);
    // The pace of people: a replay keeps it, so that its cluster manager has reserved the node as well.
    std::thread::sleep(Duration::from_millis(2_500));
    // Less is left on the large node, but it is kept.
    client.ask(&one, (9, "REDUCE", 1, 1_500, None));
    expected.push((9, "middle"));
    one.hears("grantResource", &expected);
    client.release(&one, 8);
    client.release(&one, 6);
    two.hears("grantResource", &[(1, "large")]);

    // A pool below its minimum takes back what makes room on one node: on the small one all maps would not be enough.
    let poor = client.session("poor");
    client.ask(&poor, (1, "MAP", 1, 5_500, None));
    one.hears("revokeResource", &[(7, "middle")]);
    poor.hears("grantResource", &[(1, "middle")]);
    client.release(&one, 7);
    for session in [&one, &two, &poor] {
        client.calls.end(&session.handle, "SUCCESSFUL");
    }
}

const RESERVES: [(&str, &str); 1] = [("corona.cm.reservation.after.ms", "300")];

#[test]
fn a_recording_of_counted_resources_replays_without_differences() {
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &RESERVES);
    let manager = start_recorded(directory.path(), directory.path());
    let file = directory.path().join("resources.corec");
    let relay = Relay::to_file(manager.thrift(), &file, &["--relay-callbacks"]);
    story(relay.address, manager.http().expect("pages"));
    assert_eq!(relay.end("TERM").status, Some(0));
    let patience = ["--speed", "1", "--time-tolerance", "10000"];
    let (status, report) = verdict(&file, directory.path(), &patience);
    assert_eq!((status, &report["agrees"]), (Some(0), &json!(true)), "{report:#}");
    assert!(report["calls"]["compared"].as_u64() > Some(25), "{report:#}");
    let notices = &report["notices"];
    assert_eq!((&notices["recorded"], &notices["told"]), (&json!(12), &json!(12)), "{report:#}");
}

#[test]
fn a_shadow_of_counted_resources_agrees() {
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &RESERVES);
    let manager = start_recorded(directory.path(), directory.path());
    let conf = directory.path().to_str().unwrap();
    let shadow = Shadow::start(manager.thrift(), &["--conf-dir", conf]);
    story(shadow.address, manager.http().expect("pages"));
    let (status, summary) = shadow.end();
    assert_eq!(status, Some(0), "{summary}");
    assert!(summary.starts_with("AGREES"), "{summary}");
    assert_eq!(counts(&summary, "grantResource"), [11, 0, 0, 0], "{summary}");
    assert_eq!(counts(&summary, "revokeResource"), [1, 0, 0, 0], "{summary}");
}
