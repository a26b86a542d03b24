//! The tools against peers that write down what they are asked.

use std::collections::BTreeMap;

use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, ProxyJobTracker,
    ProxyJobTrackerCall, ProxyJobTrackerReply,
};
use corona::wire::generated as wire;
use corona::wire::server::Answer;
use corona::wire::{ApplicationFault, Exception, FaultKind};
use serde_json::{Value, json};

use super::peers::{Peer, nowhere, pages};
use super::*;

/// Answers as a cluster manager on which everything goes well.
fn fine(call: &Call) -> Answer<Reply> {
    Answer::Reply(match call {
        Call::SetSafeMode { .. } => Reply::SetSafeMode(true),
        Call::PersistState => Reply::PersistState(true),
        Call::RefreshNodes => Reply::RefreshNodes,
        Call::RestartNodes { .. } => Reply::RestartNodes(wire::RestartNodesResponse {}),
        Call::GetSessions => Reply::GetSessions(sessions()),
        Call::GetSessionInfo { handle: Some(handle) } => {
            if !sessions().iter().any(|session| session.handle == *handle) {
                return Answer::Exception(Exception::invalid_session_handle(handle));
            }
            Reply::GetSessionInfo(info())
        }
        Call::KillSession { .. } => Reply::KillSession,
        Call::KillSessions { .. } => Reply::KillSessions,
        _ => return Answer::Close,
    })
}

/// As one that says no where that is possible, and is in safe mode.
fn refusing(call: &Call) -> Answer<Reply> {
    match call {
        Call::SetSafeMode { .. } => Answer::Reply(Reply::SetSafeMode(false)),
        Call::PersistState => Answer::Reply(Reply::PersistState(false)),
        _ => Answer::Exception(Exception::safe_mode()),
    }
}

fn sessions() -> Vec<wire::RunningSession> {
    let session = |handle: &str, name: &str, user: &str, pool: &str, maps| wire::RunningSession {
        handle: handle.into(),
        name: name.into(),
        user_id: user.into(),
        pool_info: wire::PoolInfoStrings {
            pool_group_name: "default".into(),
            pool_name: pool.into(),
        },
        priority: Some(wire::SessionPriority(2)),
        deadline: Some(0),
        running_resources: Some(BTreeMap::from([
            (wire::ResourceType(0), maps),
            (wire::ResourceType(1), 0),
            (wire::ResourceType(2), 1),
        ])),
    };
    vec![
        session("202611210005.10", "Sleep job", "ann", "defaultpool", 12),
        session(
            "202611210005.9",
            "PigLatin:\u{1b}[2Jnightly aggregation of everything",
            "bob",
            "b",
            0,
        ),
    ]
}

fn info() -> wire::SessionInfo {
    wire::SessionInfo {
        address: wire::InetAddress { host: "10.0.0.7".into(), port: 40000 },
        name: "Sleep job".into(),
        user_id: "ann".into(),
        group_ids: Some(vec!["users".into()]),
        pool_info_strings: Some(wire::PoolInfoStrings {
            pool_group_name: "default".into(),
            pool_name: "asked".into(),
        }),
        priority: Some(wire::SessionPriority(3)),
        no_preempt: Some(false),
        url: Some("http://10.0.0.7/job".into()),
        deadline: None,
    }
}

fn restart(force: bool, batch_size: i32) -> Call {
    Call::RestartNodes { args: Some(wire::RestartNodesArgs { force, batch_size }) }
}

#[test]
fn admin_makes_the_calls_of_the_original_in_both_spellings() {
    let on = Call::SetSafeMode { safe_mode: true };
    let off = Call::SetSafeMode { safe_mode: false };
    // Words, the call, what a cluster manager on which all goes well leaves on stdout, and one that
    // refuses on stderr.
    let no_flag = "Could not set the safeMode flag\n";
    let safe_mode = "ClusterManager is in Safe Mode\n";
    let not_persisted = "Persisting Cluster Manager state failed. \n";
    let cases = [
        ("set-safe-mode", on.clone(), "The safeMode is: ON\n", no_flag),
        ("-setSafeMode", on, "The safeMode is: ON\n", no_flag),
        ("unset-safe-mode", off.clone(), "The safeMode is: OFF\n", no_flag),
        ("-unsetSafeMode", off, "The safeMode is: OFF\n", no_flag),
        ("persist-state", Call::PersistState, "", not_persisted),
        ("-persistState", Call::PersistState, "", not_persisted),
        ("refresh-nodes", Call::RefreshNodes, "", safe_mode),
        ("-refreshNodes", Call::RefreshNodes, "", safe_mode),
        ("restart-nodes", restart(false, 1000), "", safe_mode),
        ("restart-nodes -D corona.node.restart.batch=7", restart(false, 7), "", safe_mode),
        ("restart-nodes --batch 3", restart(false, 3), "", safe_mode),
        ("restart-nodes --batch 3 --force", restart(true, 3), "", safe_mode),
        ("-restartTaskTracker", restart(false, 1000), "", safe_mode),
        ("-restartTaskTracker 5", restart(false, 5), "", safe_mode),
        ("-D corona.node.restart.batch=7 -restartTaskTracker -1", restart(false, 7), "", safe_mode),
        ("-forceRestartTaskTracker", restart(true, 1000), "", safe_mode),
        ("-forceRestartTaskTracker 5", restart(true, 5), "", safe_mode),
    ];
    let (well, badly) = (Peer::<ClusterManager>::new(fine), Peer::<ClusterManager>::new(refusing));
    for (words, call, out, err) in cases {
        for (peer, status, out, err) in [(&well, 0, out, ""), (&badly, 1, "", err)] {
            let (before, after) = (peer.address, peer.address);
            corona(&format!("admin -D cm.server.address={before} {words}")).is(status, out, err);
            assert_eq!(peer.calls(), std::slice::from_ref(&call), "{words}");
            if !words.starts_with('-') {
                corona(&format!("admin {words} --address {after}")).is(status, out, err);
                assert_eq!(peer.calls(), std::slice::from_ref(&call), "{words}");
            }
        }
    }
}

#[test]
fn admin_reaches_the_proxy_job_tracker() {
    let peer = Peer::<ProxyJobTracker>::new(|_| {
        Answer::Reply(ProxyJobTrackerReply::SetClusterManagerSafeModeFlag)
    });
    let at = peer.address;
    let key = format!("-D corona.proxy.job.tracker.thriftaddr={at}");
    for (line, flag) in [
        (format!("admin {key} force-set-safe-mode-on-pjt"), true),
        (format!("admin force-set-safe-mode-on-pjt --address {at}"), true),
        (format!("admin {key} -forceSetSafeModeOnPJT"), true),
        (format!("admin force-unset-safe-mode-on-pjt {key}"), false),
        (format!("admin {key} -forceUnsetSafeModeOnPJT"), false),
    ] {
        corona(&line).is(0, "", "");
        let call = ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag };
        assert_eq!(peer.calls(), [call], "{line}");
    }
    let done = corona(&format!("admin -forceSetSafeModeOnPJT --address {}", nowhere()));
    assert_eq!(done.status, ExitCode::from(1));
    let start = "Could not set the Safe Mode flag on the PJT: the proxy job tracker at 127.0.0.1:";
    assert!(done.err.starts_with(start) && done.err.lines().count() == 1, "{}", done.err);
}

#[test]
fn what_cannot_be_reached_or_does_not_answer_is_one_line() {
    let closing = Peer::<ClusterManager>::new(|_| Answer::Close);
    let faulty = Peer::<ClusterManager>::new(|_| {
        let message = "administrative calls are not accepted from 127.0.0.1".into();
        Answer::Fault(ApplicationFault { kind: FaultKind::InternalError, message })
    });
    for (at, expected) in [
        (nowhere(), "cannot be reached: Connection refused"),
        (closing.address, "closed the connection instead of answering"),
        (faulty.address, "administrative calls are not accepted"),
    ] {
        for words in [
            "admin set-safe-mode",
            "admin refresh-nodes",
            "sessions list",
            "sessions info 1.1",
            "sessions kill 1.1",
            "client -list",
        ] {
            let done = corona(&format!("{words} --timeout 1 --address {at}"));
            assert_eq!(done.status, ExitCode::from(1), "{words}");
            let start = format!("corona: the cluster manager at {at} ");
            assert!(done.err.starts_with(&start), "{words}: {}", done.err);
            assert!(done.err.contains(expected), "{words}: {}", done.err);
            assert_eq!((done.err.lines().count(), done.out.as_str()), (1, ""), "{words}");
        }
        for words in ["nodes list", "pools", "sessions explain 1.1"] {
            let done = corona(&format!("{words} --timeout 1 --http-address {at}"));
            assert_eq!(done.status, ExitCode::from(1), "{words}");
            let start = format!("corona: the pages of the cluster manager at {at} ");
            assert!(done.err.starts_with(&start), "{words}: {}", done.err);
            assert_eq!((done.err.lines().count(), done.out.as_str()), (1, ""), "{words}");
        }
    }
}

#[test]
fn nobody_waits_for_ever() {
    // Accepts and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    for (words, did_not) in [
        ("admin -setSafeMode --address", "the cluster manager at {} did not answer setSafeMode"),
        ("pools --http-address", "the pages of the cluster manager at {} did not answer"),
    ] {
        let done = corona(&format!("{words} {at} --timeout 1"));
        assert_eq!(done.status, ExitCode::from(1));
        let start = format!("corona: {} within 1 s", did_not.replace("{}", &at.to_string()));
        assert!(done.err.starts_with(&start), "{}", done.err);
        assert_eq!((done.err.lines().count(), done.out.as_str()), (1, ""));
    }
}

#[test]
fn the_client_prints_what_the_original_prints() {
    let peer = Peer::<ClusterManager>::new(fine);
    let at = format!("-D cm.server.address={}", peer.address);
    let head = "SessionID\tSession Name\tSession User\tSession Poolgroup\tSession Pool\t\
        Session Priority\tRunning Mappers\tRunning Reducers\tRunning Jobtrackers\n";
    let rows = "202611210005.10\tSleep job\tann\tdefault\tdefaultpool\tNORMAL\t12\t0\t1\n\
        202611210005.9\tPigLatin:\u{1b}[2Jnightly aggregation of everything\tbob\tdefault\tb\tNORMAL\t0\t0\t1\n";
    let list = format!("2 sessions currently running:\n{head}{rows}");
    corona(&format!("client {at} -list")).is(0, &list, "");

    peer.calls();
    corona(&format!("client {at} -kill 202611210005.9")).is(
        0,
        "Killing 202611210005.9",
        "202611210005.9 killed",
    );
    assert_eq!(peer.calls()[1..], [Call::KillSession { id: Some("202611210005.9".into()) }]);
    let unknown = "corona: no session 1.1 is running\n";
    corona(&format!("client {at} -kill 1.1")).is(1, "Killing 1.1\n", unknown);

    let refusing = Peer::<ClusterManager>::new(refusing);
    let at = format!("-D cm.server.address={}", refusing.address);
    let err = "corona: Cannot list sessions, ClusterManager is in Safe Mode\n";
    corona(&format!("client {at} -list")).is(1, "", err);
    let err = "corona: Cannot kill session yet, ClusterManager is in Safe Mode\n";
    corona(&format!("client {at} -kill 1.1")).is(1, "Killing 1.1\n", err);
}

#[test]
fn sessions_are_listed_for_people_and_for_programs() {
    let peer = Peer::<ClusterManager>::new(fine);
    let at = format!("--address {}", peer.address);
    let table = "\
SESSION          USER  POOL                 PRIORITY  MAP  RED  JT  NAME
202611210005.9   bob   default.b            NORMAL      0    0   1  PigLatin:\\u…
202611210005.10  ann   default.defaultpool  NORMAL     12    0   1  Sleep job
";
    corona(&format!("sessions list {at}")).is(0, table, "");
    let wide = corona(&format!("sessions list --wide {at}")).out;
    assert!(wide.contains("PigLatin:\\u{1b}[2Jnightly aggregation of everything\n"), "{wide}");

    let ann = json!({"sessions": [{
        "handle": "202611210005.10", "name": "Sleep job", "user": "ann",
        "pool": {"group": "default", "pool": "defaultpool"}, "priority": "NORMAL",
        "types": {"MAP": {"granted": 12}, "REDUCE": {"granted": 0}, "JOBTRACKER": {"granted": 1}},
    }]});
    for filter in ["--user ann", "--pool default.defaultpool", "--pool default --user ann"] {
        let out = corona(&format!("sessions list {at} --output json {filter}")).out;
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), ann, "{filter}");
    }
    corona(&format!("sessions list {at} --user eve")).is(0, "No sessions.\n", "");
    let out = corona(&format!("sessions list {at} --user eve --output json")).out;
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), json!({"sessions": []}));

    let refusing = Peer::<ClusterManager>::new(refusing);
    let err = "corona: Cannot list sessions, ClusterManager is in Safe Mode\n";
    corona(&format!("sessions list --address {}", refusing.address)).is(1, "", err);
}

#[test]
fn a_session_is_told_with_what_it_holds() {
    let peer = Peer::<ClusterManager>::new(fine);
    let at = format!("--address {}", peer.address);
    let table = "\
Session:             202611210005.10
Name:                Sleep job
User:                ann
User's groups:       users
Pool:                default.defaultpool
Asked for pool:      default.asked
Priority:            HIGH
Notified at:         10.0.0.7:40000
Page:                http://10.0.0.7/job
Slots held:          12 MAP, 0 REDUCE, 1 JOBTRACKER
";
    corona(&format!("sessions info 202611210005.10 {at}")).is(0, table, "");
    let out = corona(&format!("sessions info 202611210005.10 --output json {at}")).out;
    let info: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(info["address"], json!({"host": "10.0.0.7", "port": 40000}));
    assert_eq!(info["asked_pool"], json!({"group": "default", "pool": "asked"}));
    assert_eq!(info["types"]["MAP"], json!({"granted": 12}));
    corona(&format!("sessions info 1.1 {at}")).is(1, "", "corona: no session 1.1 is running\n");
}

/// The original fails in `getSessions` while any session has no pool.
#[test]
fn a_session_is_told_even_where_the_list_fails() {
    let peer = Peer::<ClusterManager>::new(|call| match call {
        Call::GetSessions => Answer::Close,
        other => fine(other),
    });
    let done = corona(&format!("sessions info 202611210005.9 --address {}", peer.address));
    assert_eq!(done.status, ExitCode::SUCCESS);
    assert!(done.out.contains("Pool:                default.asked\n"), "{}", done.out);
    assert!(!done.out.contains("Slots held"), "{}", done.out);
}

#[test]
fn killing_tells_which_were_running() {
    let peer = Peer::<ClusterManager>::new(fine);
    let at = format!("--address {}", peer.address);
    let kills = |peer: &Peer<ClusterManager>| {
        let mut calls = peer.calls();
        calls.retain(|call| !matches!(call, Call::GetSessionInfo { .. }));
        calls
    };
    let (nine, ten) = ("202611210005.9", "202611210005.10");
    corona(&format!("sessions kill {nine} {at}")).is(0, "Killed 202611210005.9\n", "");
    assert_eq!(kills(&peer), [Call::KillSession { id: Some(nine.into()) }]);

    let done = corona(&format!("sessions kill {nine} 1.1 {ten} {nine} {at}"));
    done.is(
        1,
        "Killed 202611210005.9\nKilled 202611210005.10\n",
        "corona: no session 1.1 is running\n",
    );
    let [Call::KillSessions { args: Some(args) }] = &*kills(&peer) else { panic!("one call") };
    assert_eq!(args.session_ids, [nine, ten]);
    assert!(!args.who.is_empty());

    let done = corona(&format!("sessions kill 1.1 --output json {at}"));
    assert_eq!(done.status, ExitCode::from(1));
    let out: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(out, json!({"killed": [], "unknown": ["1.1"]}));
    assert_eq!(kills(&peer), []);
}

#[test]
fn pools_of_the_original_are_read_off_its_page() {
    let page = include_str!("../../../fixtures/web/pool_json.json");
    let at = pages(&[("/pool_json.jsp", 200, page.into())]);
    let table = "\
POOL           MODE  SESSIONS  TYPE        HOLDS  WAITS  SHARE  MIN  MAX
default                     1  MAP             4      -      1    0    -
                               REDUCE          1      -      0    0    -
  default      FAIR         0
  defaultpool  FAIR         1  MAP             4      -      1    0    -
                               REDUCE          1      -      0    0    -
group_a                     2  MAP             0      -      1    1    -
                               REDUCE          1      -      0    0    -
                               JOBTRACKER      1      -      0    0    -
  pool_nonsla  FAIR         0
  pool_sla     FIFO         2  MAP             0      -      1    1    -
                               REDUCE          1      -      1    0    -
                               JOBTRACKER      1      -      0    0    -
";
    corona(&format!("pools --http-address {at}")).is(0, table, "");
    let out = corona(&format!("pools --group group_a --output json --http-address {at}")).out;
    let pools: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 3);
    assert_eq!(pools["pools"][2]["mode"], "FIFO");
    assert_eq!(pools["pools"][2]["types"]["MAP"]["minimum"], 1);
    corona(&format!("pools --group x --http-address {at}")).is(0, "No pools.\n", "");
}

#[test]
fn pools_show_where_they_are_redirected() {
    let map =
        json!({"MAP": {"requested": 3, "granted": 2, "waiting": 1, "share": 2.0, "minimum": 0}});
    let settings = |name: &str| {
        json!({
            "group": "g", "pool": name, "sessions": 0, "types": {}, "mode": "FIFO",
            "preemptable": true, "request_max": false, "priority": 0, "weight": 1.0,
        })
    };
    let (mut old, mut new) = (settings("old"), settings("new"));
    old["redirected_to"] = json!({"group": "g", "pool": "new"});
    new["types"] = map.clone();
    let group = json!({"group": "g", "sessions": 1, "types": map});
    let pools = json!({"now_ms": 1000, "pools": [group, new, old]});
    let at = pages(&[("/api/v1/pools", 200, pools.to_string())]);
    let table = "\
POOL   MODE  SESSIONS  TYPE  HOLDS  WAITS  SHARE  MIN  MAX  REDIRECTED TO
g                   1  MAP       2      1      2    0    -
  new  FIFO         0  MAP       2      1      2    0    -
  old  FIFO         0                                       g.new
";
    corona(&format!("pools --http-address {at}")).is(0, table, "");
}

#[test]
fn shares_of_pools_are_rounded_and_add_up_to_their_group() {
    let counts = |granted, share| {
        let map = json!({"requested": granted, "granted": granted, "waiting": 0, "share": share,
            "minimum": 0});
        json!({"MAP": map})
    };
    let pool = |name: Option<&str>, granted: i32, share: f64| {
        let mut pool = json!({"group": "g", "sessions": 1, "types": counts(granted, share)});
        if let Some(name) = name {
            let more = json!({"pool": name, "mode": "FIFO", "preemptable": true,
                "request_max": false, "priority": 0, "weight": 1.0});
            pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        pool
    };
    let pools = [pool(None, 5, 3.99), pool(Some("a"), 1, 0.98), pool(Some("b"), 4, 3.01)];
    let at = pages(&[("/api/v1/pools", 200, json!({"pools": pools}).to_string())]);
    let table = "\
POOL  MODE  SESSIONS  TYPE  HOLDS  WAITS  SHARE  MIN  MAX
g                  1  MAP       5      0      4    0    -
  a   FIFO         1  MAP       1      0      1    0    -
  b   FIFO         1  MAP       4      0      3    0    -
";
    corona(&format!("pools --http-address {at}")).is(0, table, "");
}

#[test]
fn nodes_of_the_original_are_read_off_its_pages() {
    let page = |names: &[&str]| {
        let rows: String = names.iter().map(|name| format!("<td>{name}</td></tr>\n")).collect();
        format!("<table>\n<tr><td><b>Host Name</b></td></tr>\n{rows}</table>\n")
    };
    let at = pages(&[
        ("/machines.jsp?type=alive", 200, page(&["n1", "n2"])),
        ("/machines.jsp?type=blacklisted", 200, page(&["n2"])),
    ]);
    let table = "NODE  STATE\nn1    ok\nn2    blacklisted\n";
    corona(&format!("nodes list --http-address {at}")).is(0, table, "");
    let out = corona(&format!("nodes list --problems --output json --http-address {at}")).out;
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap(),
        json!({"total": 2, "nodes": [{"name": "n2", "problems": ["blacklisted"]}]})
    );
}

#[test]
fn the_original_cannot_explain_and_says_so() {
    let at = pages(&[]);
    let err = format!(
        "corona: the pages of the cluster manager at {at} do not explain: this is the original \
         cluster manager, which cannot tell why requests wait\n"
    );
    corona(&format!("sessions explain 1.1 --http-address {at}")).is(1, "", &err);
}

#[test]
fn nodes_are_read_page_by_page() {
    let node = |name: &str, blacklisted: bool| {
        let slots = json!({"total": 4, "used": 3, "blacklisted": blacklisted});
        let problems = if blacklisted { json!(["blacklisted", "haunted"]) } else { json!([]) };
        json!({
            "name": name, "problems": problems, "rack": "/default-rack", "new_member": {},
            "address": {"host": "10.0.0.1", "port": 50060}, "last_heartbeat_ms": 1000,
            "slots": {"MAP": slots},
        })
    };
    let first = json!({"now_ms": 5000, "total": 2, "next": "a b", "nodes": [node("a b", false)]});
    let second = json!({"now_ms": 6000, "total": 2, "nodes": [node("c", true)]});
    let at = pages(&[
        ("/api/v1/nodes?limit=2000", 200, first.to_string()),
        ("/api/v1/nodes?limit=2000&after=a+b", 200, second.to_string()),
    ]);
    let table = "\
NODE  RACK           MAP  RED  JT  HEARD  STATE
a b   /default-rack  3/4    -   -    5 s  ok
c     /default-rack  3/4    -   -    5 s  blacklisted MAP, unknown problem
";
    let wide = corona(&format!("nodes list --wide --http-address {at}")).out;
    assert!(wide.starts_with("NODE  ADDRESS         RACK "), "{wide}");
    assert!(wide.contains("\na b   10.0.0.1:50060  /default-rack  3/4 "), "{wide}");
    corona(&format!("nodes list --http-address {at}")).is(0, table, "");
}

#[test]
fn a_node_is_described() {
    let mut detail = json!({
        "now_ms": 100_000, "name": "n 1", "problems": ["late", "blacklisted"], "rack": "/r",
        "address": {"host": "10.0.0.1", "port": 50060}, "last_heartbeat_ms": 60_000,
        "total": {"cpus": 4, "memory_mb": 8000}, "free": {"cpus": 4, "memory_mb": 500}, "sessions": 3,
        "slots": {
            "MAP": {"total": 4, "used": 2, "blacklisted": true},
            "REDUCE": {"total": 2, "used": 0, "blacklisted": false},
        },
        "faults": {
            "MAP": {
                "failures": 41, "failures_limit": 40, "failed_connections": 2,
                "failed_connections_limit": 20, "blacklisted_since_ms": 35_000,
            },
            "REDUCE": {
                "failures": 0, "failures_limit": 40, "failed_connections": 1,
                "failed_connections_limit": 20,
            },
        },
        "complaints": [
            {"session": "2026.7", "user": "ann", "at_ms": 1_000, "types": ["MAP"], "failed": 6,
             "failed_connections": 0},
            {"session": "2026.9", "user": "bob", "at_ms": 35_000, "types": ["MAP", "REDUCE"],
             "failed": 17, "failed_connections": 2},
        ],
        "grants_total": 3,
        "grants": [
            {"session": "2026.9", "name": "Sleep job", "user": "bob",
             "pool": {"group": "g", "pool": "p"}, "id": 5, "type": "MAP", "slots": 2,
             "granted_ms": 10_000},
        ],
    });
    let node = "\
Node:                n 1
State:               late, blacklisted MAP
Address:             10.0.0.1:50060
Rack:                /r
Last heartbeat:      40 s ago
CPUs:                4
Memory free:         500 of 8000 MB
Sessions seen:       3

TYPE    USED  FAILURES  CONNECTIONS  BLACKLISTED FOR
MAP      2/4     41/40         2/20        1 min 5 s
REDUCE   0/2      0/40         1/20                -
";
    let complaints = "
Complaints that count, the latest first:
SESSION  USER  TYPES       FAILURES  CONNECTIONS         AGO
2026.9   bob   MAP+REDUCE        17            2   1 min 5 s
2026.7   ann   MAP                6            0  1 min 39 s
";
    let grants = "
What runs here, the longest first:
SESSION  USER  POOL  TYPE  SLOTS  REQUEST    HELD FOR  NAME
2026.9   bob   g.p   MAP       2        5  1 min 30 s  Sleep job
and 2 more
";
    let serve = |detail: &Value| {
        let unknown = json!({"error": "there is no node n2"}).to_string();
        let at = pages(&[
            ("/api/v1/nodes/n%201", 200, detail.to_string()),
            ("/api/v1/nodes/n2", 404, unknown),
        ]);
        format!("--http-address {at}")
    };
    let info = |at: &str| {
        let mut words: Vec<&str> = "nodes info".split(' ').collect();
        words.push("n 1");
        words.extend(at.split(' '));
        corona_words(&words)
    };
    let at = serve(&detail);
    info(&at).is(0, &format!("{node}{complaints}{grants}"), "");
    corona(&format!("nodes info n2 {at}")).is(1, "", "corona: there is no node n2\n");
    let json = info(&format!("{at} --output json")).out;
    let shown: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&shown["faults"], &shown["grants"]), (&detail["faults"], &detail["grants"]));

    let members = detail.as_object_mut().unwrap();
    members.insert("complaints".into(), json!([]));
    members.insert("grants".into(), json!([]));
    info(&serve(&detail)).is(0, &format!("{node}\nNothing runs here.\n"), "");

    let original = pages(&[]);
    let done = corona(&format!("nodes info n1 --http-address {original}"));
    let err =
        format!("corona: the pages of the cluster manager at {original} do not describe nodes\n");
    done.is(1, "", &err);
}

#[test]
fn a_blacklisting_is_lifted_with_the_token_of_a_file_or_of_the_configuration() {
    let refused = json!({"error": "That is not the token."}).to_string();
    let at = pages(&[
        (
            "/api/v1/nodes/n1/clear-blacklist token=a+token+for+tests",
            200,
            json!({"cleared": ["MAP", "REDUCE"]}).to_string(),
        ),
        (
            "/api/v1/nodes/n1/clear-blacklist token=a+token+for+tests&type=MAP",
            200,
            json!({"cleared": []}).to_string(),
        ),
        ("/api/v1/nodes/n1/clear-blacklist token=wrong", 403, refused),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let clear = |more: &[&str]| {
        let at = at.to_string();
        let words = ["nodes", "clear-blacklist", "n1", "--http-address", &at];
        corona_words(&[&words[..], more].concat())
    };
    let right = file("right", "a token for tests\nand more\n");
    let done = "Node n1 is no longer blacklisted for MAP, REDUCE.\n";
    clear(&["--token-file", &right]).is(0, done, "");
    clear(&["-D", "corona.cm.web.kill.token=a token for tests"]).is(0, done, "");
    let nothing = "Node n1 was not blacklisted.\n";
    clear(&["--token-file", &right, "--type", "map"]).is(0, nothing, "");
    let out = clear(&["--token-file", &right, "--output", "json"]).out;
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), json!({"cleared": ["MAP", "REDUCE"]}));

    let (wrong, empty) = (file("wrong", "wrong"), file("empty", "\n"));
    for (words, expected) in [
        (&["--token-file", &wrong][..], "403 Forbidden: That is not the token."),
        (&["--token-file", &empty], "has no token in its first line"),
        (&["--token-file", "/no/such/file"], "cannot be read from /no/such/file"),
        (&[], "corona.cm.web.kill.token is not set"),
        (&["-D", "corona.cm.web.kill.token=short"], "is too short"),
    ] {
        let done = clear(words);
        assert_eq!((done.status, &*done.out), (ExitCode::from(1), ""), "{words:?}");
        assert!(done.err.contains(expected), "{words:?}: {}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{words:?}: {}", done.err);
    }
    let usage = clear(&["--type", "maps"]);
    assert_eq!(usage.status, ExitCode::from(2));
}

#[test]
fn a_session_is_explained() {
    let counts = |granted, waiting| {
        json!({
            "requested": granted + waiting, "waiting": waiting, "granted": granted,
            "max_concurrent": 9, "fulfilled": 4, "revoked": 1, "first_wait_ms": 1500, "usage": [],
        })
    };
    let pool = json!({"group": "g", "pool": "p"});
    let mut detail = json!({
        "now_ms": 61_000, "handle": "202611210005.1", "name": "Sleep", "user": "ann",
        "asked_pool": {"group": "g", "pool": "old"}, "pool": pool, "scheduling_pool": pool, "priority": "NORMAL", "started_ms": 0, "last_heartbeat_ms": 0,
        "types": {"MAP": counts(4, 5)}, "address": {"host": "h", "port": 1}, "group_ids": [],
        "no_preempt": false, "grants_total": 12,
        "grants": [{
            "id": 7, "type": "MAP", "node": "n1", "address": {"host": "h", "port": 2},
            "granted_ms": 1000,
        }],
        "waits": [
            {"type": "MAP", "requests": 3, "reason": "pool_at_maximum", "pool": pool,
             "granted": 4, "maximum": 4, "text": "pool g.p holds 4 grants,\u{7} its maximum"},
            {"type": "MAP", "requests": 2, "reason": "eclipse", "text": "it is dark"},
            {"type": "MAP", "requests": 1, "reason": "pool_at_maximum", "pool": pool,
             "granted": 4, "maximum": 4},
            {"type": "MAP", "requests": 1, "reason": "eclipse"},
        ],
    });
    let head = "\
202611210005.1 Sleep
of ann in pool g.p (asked for g.old), priority NORMAL, started 1 min 1 s ago

TYPE  HOLDS  WAITING  REVOKED  MOST AT A TIME  FIRST WAIT
MAP       4        5        1               9     1.500 s

";
    // A cluster manager of version 0.1 sends no text.
    let waits = "\
3 MAP: pool g.p holds 4 grants,\\u{7} its maximum
2 MAP: it is dark
1 MAP: pool at maximum
1 MAP: the reason is not known to this version of corona
";
    let grants = "
REQUEST  TYPE  NODE  ADDRESS  HELD FOR
      7  MAP   n1    h:2      1 min 0 s
and 11 more
";
    let serve = |detail: &Value| {
        let not_running = json!({"error": "no session 1.1 is running"}).to_string();
        let at = pages(&[
            ("/api/v1/sessions/202611210005%2E1", 200, detail.to_string()),
            ("/api/v1/sessions/1%2E1", 404, not_running),
        ]);
        format!("--http-address {at}")
    };
    let at = serve(&detail);
    let line = format!("sessions explain 202611210005.1 {at}");
    corona(&line).is(0, &format!("{head}{waits}"), "");
    corona(&format!("{line} --grants")).is(0, &format!("{head}{waits}{grants}"), "");
    let unknown = "corona: no session 1.1 is running\n";
    corona(&format!("sessions explain 1.1 {at}")).is(1, "", unknown);

    // A cluster manager that does not report why.
    detail.as_object_mut().unwrap().remove("waits");
    let silent = corona(&format!("sessions explain 202611210005.1 {}", serve(&detail)));
    let end = "This cluster manager does not report why requests wait.\n";
    silent.is(0, &format!("{head}{end}"), "");
}
