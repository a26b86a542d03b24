//! Who may do what: each call of each service has one row in the table of rights and in its document.

use std::collections::BTreeSet;

use corona::access::rights::{self, Row};
use corona::access::{Peer, Rights, Role};
use corona::hadoop::protocols;
use corona::wire::schema::schema;

/// The protocols that no peer outside of the machine calls.
const LOCAL: &str = "org.apache.hadoop.mapred.TaskUmbilicalProtocol";

fn names(rows: &[Row]) -> BTreeSet<(&str, &str)> {
    let names: BTreeSet<_> = rows.iter().map(|row| (row.of, row.name)).collect();
    assert_eq!(names.len(), rows.len(), "a row is there twice");
    names
}

#[test]
fn every_thrift_call_has_a_row() {
    let services = ["ClusterManagerService", "SessionDriverService", "CoronaTaskTrackerService"];
    let calls: BTreeSet<_> = services
        .into_iter()
        .chain(["CoronaProxyJobTrackerService"])
        .flat_map(|name| {
            let service = schema().service(name).unwrap();
            service.methods.iter().map(move |method| (name, &*method.name))
        })
        .collect();
    assert_eq!(names(rights::THRIFT), calls);
}

#[test]
fn every_method_of_hadoop_rpc_has_a_row() {
    let served = protocols::ALL.iter().copied().filter(|protocol| protocol.name != LOCAL);
    let methods: BTreeSet<_> = served
        .chain([&protocols::job_files::PROTOCOL])
        .flat_map(|protocol| protocol.methods.iter().map(|method| (protocol.name, method.name)))
        .collect();
    assert_eq!(names(rights::HADOOP), methods);
}

#[test]
fn the_document_has_the_same_tables() {
    let document = std::fs::read_to_string("docs/operate/access.md").unwrap();
    let all = [rights::THRIFT, rights::HADOOP, rights::PAGES].concat();
    let documented: BTreeSet<&str> = document.lines().filter(|line| line.contains("| `")).collect();
    for row in &all {
        let of = row.of.rsplit('.').next().unwrap();
        let line = format!("| {of} | `{}` | {} |", row.name, row.rights);
        assert!(documented.contains(&*line), "docs/operate/access.md lacks: {line}");
    }
    let keys = document.lines().filter(|line| line.starts_with("| `corona.tls")).count();
    assert_eq!(documented.len(), all.len() + keys);
}

#[test]
fn dangerous_calls_need_the_right_role() {
    let may = |rights: Rights| -> Vec<Role> {
        Role::ALL.into_iter().filter(|role| rights.allow(*role)).collect()
    };
    let (admin, node) = (vec![Role::Admin], vec![Role::Admin, Role::Node]);
    for call in ["killSession", "killSessions", "restartNodes", "refreshNodes", "setSafeMode"] {
        assert_eq!(may(rights::thrift("ClusterManagerService", call)), admin, "{call}");
    }
    assert_eq!(may(rights::thrift("ClusterManagerService", "nodeHeartbeat")), node);
    let launch = "org.apache.hadoop.mapred.CoronaTaskTrackerProtocol";
    assert_eq!(may(rights::hadoop(launch, "submitActions")), node);
    let submit = "org.apache.hadoop.mapred.JobSubmissionProtocol";
    assert_eq!(may(rights::hadoop(submit, "submitJob")), [Role::Admin, Role::Submit]);
    assert_eq!(may(rights::page("GET", "/mapOutput")), node);
    assert_eq!(may(rights::page("GET", "/api/v1/sessions")), Role::ALL);
    assert_eq!(may(rights::page("POST", "/sessions/1/kill")), admin);
    // Without a row.
    assert_eq!(may(rights::page("DELETE", "/")), admin);
    assert_eq!(may(rights::thrift("ClusterManagerService", "new")), admin);
    assert_eq!(may(rights::hadoop("New", "new")), admin);
    assert!(rights::page("GET", "/healthz").is_everybody());
    assert!(!rights::page("GET", "/readyz").is_everybody());
    assert!(!rights::page("GET", "/metrics").is_everybody());
    let plain = Peer::plain(([127, 0, 0, 1], 1).into());
    assert_eq!(plain.objection(|| Rights::ADMIN), None, "as without access control");
}
