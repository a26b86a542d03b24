//! The tools against peers that record their calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use corona::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, ProxyJobTracker,
    ProxyJobTrackerCall, ProxyJobTrackerReply,
};
use corona::wire::generated as wire;
use corona::wire::server::Answer;
use corona::wire::{ApplicationFault, Exception, FaultKind};
use serde_json::json;

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

/// A service that refuses where that is possible, and is in safe mode.
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
    // Words, the call, the output of a healthy cluster manager on stdout, and that of a refusing
    // one on stderr. The first line is the original's, the second gives the reason.
    let no_flag = "Could not set the safeMode flag\nThe proxy job tracker could not be notified, so safe mode has not changed; the cluster manager's log says why.\n";
    let no_flag_off = "Could not set the safeMode flag\nSafe mode is off in the cluster manager, but \
        the proxy job tracker could not be notified, so clients keep waiting; the cluster manager's log says why.\n";
    let safe_mode =
        "ClusterManager is in Safe Mode\n'corona admin unset-safe-mode' turns it off.\n";
    let read_again = "The cluster manager has read its host files again. What they have is on its pages (--http-address).\n";
    let not_persisted = "Persisting Cluster Manager state failed. \nThe state file cannot be written; the cluster manager's log says why.\n";
    let cases = [
        ("set-safe-mode", on.clone(), "The safeMode is: ON\n", no_flag),
        ("-setSafeMode", on, "The safeMode is: ON\n", no_flag),
        ("unset-safe-mode", off.clone(), "The safeMode is: OFF\n", no_flag_off),
        ("-unsetSafeMode", off, "The safeMode is: OFF\n", no_flag_off),
        ("persist-state", Call::PersistState, "", not_persisted),
        ("-persistState", Call::PersistState, "", not_persisted),
        ("refresh-nodes", Call::RefreshNodes, read_again, safe_mode),
        ("-refreshNodes", Call::RefreshNodes, read_again, safe_mode),
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
            // There are no pages with more information.
            let no_pages = "-D cm.server.http.address=localhost:0";
            let line = format!("admin -D cm.server.address={before} {no_pages} {words}");
            corona(&line).is(status, out, err);
            assert_eq!(peer.calls()[0], call, "{words}");
            if !words.starts_with('-') {
                corona(&format!("admin {words} --address {after}")).is(status, out, err);
                assert_eq!(peer.calls()[0], call, "{words}");
            }
        }
    }
}

/// A cluster manager's status after `persistState` has failed.
fn status_after_a_failure(operation: &str) -> Value {
    json!({
        "version": "0.2.0", "now_ms": 100_000, "first_started_ms": 10_000,
        "process_started_ms": 40_000, "uptime_ms": 60_000,
        "safe_mode": {"on": false, "since_ms": 40_000},
        "proxy_job_tracker": {"address": "localhost:50036"},
        "nodes": 3, "sessions": 2, "pending_notifications": 0,
        "slots": {"MAP": {"total": 8, "used": 3}},
        "journal": {
            "directory": "/var/lib/corona/cm.state.journal", "sync": "write", "last_record": 90,
            "committed_record": 90, "durable_record": 88, "bytes": 3_145_728, "tail_bytes": 4096,
            "pending_bytes": 0, "stalled_ms": 0, "writes": 12, "syncs": 3, "image_record": 40,
            "image_bytes": 2048, "image_ms": 70_000, "image_took_ms": 5,
            "recovery": {"took_ms": 61, "image_record": 40, "records": 12, "torn_bytes": 0},
        },
        "state_file": {"path": "/var/lib/corona/cm.state", "saved_ms": 40_000, "bytes": 2048},
        "operations": [{
            "operation": operation,
            "last": {
                "finished_ms": 90_000, "caller": "127.0.0.1:4000", "succeeded": false,
                "reason": "safe mode is off; turn it on first",
            },
        }],
        "problems": [{"severity": "warning", "text": "1 node is late."}],
    })
}

#[test]
fn a_failed_call_says_why_as_the_cluster_manager_does() {
    let peer = Peer::<ClusterManager>::new(refusing);
    let status = status_after_a_failure("persist_state").to_string();
    let http = pages(&[("/api/v1/status", 200, status)]);
    let at = format!("--address {} --http-address {http}", peer.address);
    let first = "Persisting Cluster Manager state failed. \n";
    let why = "safe mode is off; turn it on first";
    corona(&format!("admin persist-state {at}")).is(1, "", &format!("{first}{why}\n"));
    let done = corona(&format!("admin persist-state --output json {at}"));
    assert_eq!((done.status, &done.err), (ExitCode::from(1), &format!("{first}{why}\n")));
    let told = done.json();
    assert_eq!(told, json!({"done": false, "message": first.trim_end(), "reason": why}));

    // It has no reason for another call.
    let done = corona(&format!("admin set-safe-mode {at}"));
    assert!(done.err.lines().nth(1).unwrap().starts_with("The proxy job tracker could not"));
    let fine = Peer::<ClusterManager>::new(fine);
    let done = corona(&format!("admin set-safe-mode --output json --address {}", fine.address));
    let told = done.json();
    assert_eq!(told, json!({"done": true, "message": "The safeMode is: ON"}));
}

#[test]
fn the_status_of_this_programs_cluster_manager() {
    let peer = Peer::<ClusterManager>::new(fine);
    let status = status_after_a_failure("persist_state");
    let http = pages(&[("/api/v1/status", 200, status.to_string())]);
    let at = format!("--address {} --http-address {http}", peer.address);
    for command in ["status", "admin status"] {
        let done = corona(&format!("{command} {at}"));
        assert_eq!((done.status, done.err.as_str()), (ExitCode::SUCCESS, ""));
        for line in [
            &format!("Calls:               {}\n", peer.address),
            &format!("Pages:               http://{http}/\n"),
            "Version:             0.2.0\n",
            "Up:                  1 min 0 s, since ",
            "First started:       ",
            "Safe mode:           off\n",
            "Proxy job tracker:   localhost:50036, has not acknowledged the flag yet\n",
            "Journal:             /var/lib/corona/cm.state.journal, 3 MiB, sync write\n",
            "Last image:          made 30 s ago, 4 KiB of records since\n",
            "Recovery:            took 61 ms, with 12 records\n",
            "State file:          /var/lib/corona/cm.state, saved 1 min 0 s ago, 2 KiB\n",
            "Nodes:               3\n",
            "Sessions:            2\n",
            "\nTYPE  USED  TOTAL  FREE\nMAP      3      8     5\n",
            "\nFailed calls:\n  persist-state from 127.0.0.1:4000 at ",
            ": safe mode is off; turn it on first\n",
            "\nProblems:\n  warning: 1 node is late.\n",
        ] {
            assert!(done.out.contains(line), "{line} is missing in:\n{}", done.out);
        }
        assert!(done.out.lines().all(|line| line.chars().count() <= 100), "{}", done.out);

        // A start without a recovery has no other time than its own.
        let mut fresh = status.clone();
        fresh["first_started_ms"] = 39_990.into();
        let http = pages(&[("/api/v1/status", 200, fresh.to_string())]);
        let done = corona(&format!("{command} --address {} --http-address {http}", peer.address));
        assert!(!done.out.contains("First started"), "{}", done.out);

        let told = corona(&format!("{command} --output json {at}")).json();
        let Value::Object(members) = &status else { panic!("{status}") };
        for (name, value) in members {
            assert_eq!(told[name], *value, "{name}");
        }
        assert_eq!(told["calls"], json!({"address": peer.address.to_string(), "answers": true}));
    }
}

#[test]
fn the_status_of_the_original_is_what_its_calls_and_its_page_say() {
    let page = "<b>Last Restarted:</b> Sat Nov 21 00:37:13 UTC 2026<br>\n<b>Version:</b> 0.20,\n  r1<br>\
        <b>Safe Mode :</b> OFF\n<table id=\"summaryTable\" border=\"1\">\
        <thead><tr><th colspan=4>MAP</th><th colspan=3>Nodes</th></tr></thead>\
        <tbody><tr><td>3</td><td>1</td><td>8</td><td><a href=\"x\">5</a></td>\
        <td><a href=\"y\">2</a></td><td>0</td><td>1</td><td>7</td></tr></tbody></table>";
    let http = pages(&[("/cm.jsp", 200, page.to_owned())]);
    let peer = Peer::<ClusterManager>::new(refusing);
    let at = format!("--address {} --http-address {http}", peer.address);
    let done = corona(&format!("status {at}"));
    assert_eq!((done.status, done.err.as_str()), (ExitCode::SUCCESS, ""));
    for line in [
        "Version:             0.20, r1\n",
        // Its calls report it now.
        "Safe mode:           ON\n",
        "Nodes:               2\n",
        "Sessions:            7\n",
        "\nTYPE  USED  TOTAL  FREE\nMAP      3      8     5\n",
        "\nProblems:\n  warning: 1 node is excluded.\n",
    ] {
        assert!(done.out.contains(line), "{line} is missing in:\n{}", done.out);
    }
    assert!(!done.out.contains("State file"), "{}", done.out);

    // Without pages there are only the data of the calls.
    let fine = Peer::<ClusterManager>::new(fine);
    let done = corona(&format!("status --output json --address {}", fine.address));
    let told = done.json();
    assert_eq!(
        told,
        json!({
            "calls": {"address": fine.address.to_string(), "answers": true},
            "safe_mode": {"on": false}, "sessions": 2, "problems": [],
        })
    );
}

#[test]
fn a_status_without_an_answer_is_a_failure() {
    let peer = Peer::<ClusterManager>::new(fine);
    let (calls, http) = (nowhere(), nowhere());
    let done = corona(&format!("status --address {calls} --http-address {http}"));
    done.fails_with(&calls.to_string());
    done.fails_with(&http.to_string());

    let done = corona(&format!("status --address {} --http-address {http}", peer.address));
    assert_eq!(done.status, ExitCode::from(1));
    assert!(done.out.contains(&format!("Pages:               http://{http}/, no answer\n")));
    assert!(done.out.contains("Sessions:            2\n"), "{}", done.out);
    let start = format!("corona: the pages of the cluster manager at {http} cannot be reached");
    assert!(done.err.starts_with(&start), "{}", done.err);
}

#[test]
fn the_other_port_is_recognised() {
    let peer = Peer::<ClusterManager>::new(fine);
    // A web server's answer to a malformed request.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let done = corona(&format!("sessions list --timeout 5 --address {http}"));
    done.fails_with("with HTTP: this looks like the port of the pages;");
    let done = corona(&format!("jobs list --timeout 5 --job-tracker {http}"));
    done.fails_with("with HTTP: this looks like the port of the pages;");
    done.fails_with("corona.jt.address with --job-tracker");
    let done = corona(&format!("jobs list --timeout 5 --job-tracker {}", peer.address));
    done.fails_with("corona.jt.address with --job-tracker");
    let finished = "jobs list --finished --name x --timeout 5 --proxy-job-tracker";
    let done = corona(&format!("{finished} {}", peer.address));
    done.fails_with("mapred.job.tracker.corona.proxyaddr with --proxy");
    let done = corona(&format!("pools --timeout 5 --http-address {}", peer.address));
    done.fails_with("did not answer with HTTP");
    done.fails_with("name that of cm.server.http.address with --http-address");
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
    done.fails("Could not set the Safe Mode flag on the PJT: the proxy job tracker at 127.0.0.1:");
}

#[test]
fn unreachable_and_silent_servers_are_one_line() {
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
            done.fails(&format!("corona: the cluster manager at {at} "));
            done.fails_with(expected);
        }
        for words in ["nodes list", "pools", "sessions explain 1.1"] {
            let done = corona(&format!("{words} --timeout 1 --http-address {at}"));
            done.fails(&format!("corona: the pages of the cluster manager at {at} "));
        }
    }
}

#[test]
fn every_wait_has_an_end() {
    // Accepts and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    for (words, did_not) in [
        ("admin -setSafeMode --address", "the cluster manager at {} did not answer setSafeMode"),
        ("pools --http-address", "the pages of the cluster manager at {} did not answer"),
    ] {
        let done = corona(&format!("{words} {at} --timeout 1"));
        done.fails(&format!("corona: {} within 1 s", did_not.replace("{}", &at.to_string())));
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
        let shown = corona(&format!("sessions list {at} --output json {filter}")).json();
        assert_eq!(shown, ann, "{filter}");
    }
    corona(&format!("sessions list {at} --user eve")).is(0, "No sessions.\n", "");
    let shown = corona(&format!("sessions list {at} --user eve --output json")).json();
    assert_eq!(shown, json!({"sessions": []}));

    let refusing = Peer::<ClusterManager>::new(refusing);
    let err = "corona: Cannot list sessions, ClusterManager is in Safe Mode\n";
    corona(&format!("sessions list --address {}", refusing.address)).is(1, "", err);
}

/// The running sessions as the pages of this program have them: two that the calls list too, and
/// one of another name.
fn sessions_of_pages(next: Option<&str>) -> Value {
    let session = |handle: &str, name: &str, user: &str, waiting: i64, started_ms: i64| {
        let counts = |granted: i64, waiting: i64| {
            json!({"requested": granted + waiting, "waiting": waiting, "granted": granted,
                "max_concurrent": granted, "fulfilled": granted, "revoked": 0, "usage": []})
        };
        let pool = json!({"group": "default", "pool": "b"});
        json!({
            "handle": handle, "name": name, "user": user, "pool": pool, "scheduling_pool": pool,
            "priority": "NORMAL", "started_ms": started_ms, "last_heartbeat_ms": 0,
            "types": {"MAP": counts(1, waiting), "REDUCE": counts(0, 2)},
        })
    };
    let name = "PigLatin:\u{1b}[2Jnightly aggregation of everything";
    let mut page = json!({"now_ms": 10_000_000, "total": 3, "sessions": [
        session("202611210005.9", name, "bob", 40, 10_000_000 - 12_000_000),
        session("202611210005.10", "Another job", "ann", 7, 0),
    ]});
    if let Some(next) = next {
        page["next"] = next.into();
    }
    page
}

#[test]
fn sessions_are_listed_with_what_waits_and_how_old_they_are() {
    let peer = Peer::<ClusterManager>::new(fine);
    let first = "/api/v1/sessions?limit=2000";
    let http = pages(&[(first, 200, sessions_of_pages(None).to_string())]);
    let at = format!("--address {} --http-address {http}", peer.address);
    // A session of another name is another cluster manager's.
    let table = "\
SESSION          USER  POOL             MAP  RED  JT  WAITING    AGE  NAME
202611210005.9   bob   default.b          0    0   1       42  3h20m  PigLatin:…
202611210005.10  ann   default.defaul…   12    0   1        -      -  Sleep job
";
    corona(&format!("sessions list {at}")).is(0, table, "");
    let list = corona(&format!("sessions list --user bob --output json {at}")).json();
    assert_eq!(list["now_ms"], 10_000_000);
    assert_eq!(list["sessions"][0]["started_ms"], 10_000_000 - 12_000_000);
    assert_eq!(
        list["sessions"][0]["types"],
        json!({
            "MAP": {"granted": 0, "waiting": 40}, "REDUCE": {"granted": 0, "waiting": 2},
            "JOBTRACKER": {"granted": 1},
        })
    );

    // In safe mode the calls are refused, and the pages are not.
    let refusing = Peer::<ClusterManager>::new(refusing);
    let at = format!("--address {} --http-address {http}", refusing.address);
    let done = corona(&format!("sessions list {at}"));
    assert_eq!((done.status, done.err.as_str()), (ExitCode::SUCCESS, ""));
    assert!(done.out.contains("202611210005.10  ann "), "{}", done.out);
    assert!(done.out.contains("Anot"), "{}", done.out);

    // The pages of the original have both too.
    let page = include_str!("../../../fixtures/web/active_json.json");
    let page = page.replace("202611210037.2", "202611210005.10").replace("root", "ann");
    let http = pages(&[("/active_json.jsp", 200, page)]);
    let at = format!("--address {} --http-address {http}", peer.address);
    let list = corona(&format!("sessions list --output json --user ann {at}")).json();
    let session = &list["sessions"][0];
    assert_eq!(session["types"]["MAP"], json!({"granted": 12, "waiting": 4}));
    assert!(session["started_ms"].is_i64(), "{session}");
}

#[test]
fn pages_of_another_cluster_manager_are_not_read() {
    let peer = Peer::<ClusterManager>::new(fine);
    let first = "/api/v1/sessions?limit=2000";
    let http = pages(&[(first, 200, sessions_of_pages(None).to_string())]);
    let is_read = |line: String| corona(&line).out.contains("WAITING");
    let key = format!("-D cm.server.http.address={http}");
    assert!(is_read(format!("sessions list --address {} {key}", peer.address)));
    assert!(is_read(format!("sessions list -D cm.server.address={} {key}", peer.address)));
    assert!(!is_read(format!("sessions list --address {}", peer.address)));
}

#[test]
fn sessions_that_have_ended_are_listed() {
    let session = |handle: &str, user: &str| {
        json!({
            "handle": handle, "name": "Sleep job", "user": user,
            "pool": {"group": "g", "pool": "p"}, "priority": "NORMAL", "started_ms": 1_000,
            "ended_ms": 66_000, "status": "KILLED",
            "types": {"MAP": {"max_concurrent": 3, "fulfilled": 12, "revoked": 0, "usage": []}},
        })
    };
    let retired = json!({
        "now_ms": 96_000, "total": 2, "sessions": [session("1.2", "ann"), session("1.1", "bob")],
    });
    let http = pages(&[("/api/v1/retired?limit=2000", 200, retired.to_string())]);
    let at = format!("--address {} --http-address {http}", nowhere());
    let table = "\
SESSION  USER  POOL  STATUS  ENDED   RAN  MAP  RED  NAME
1.2      ann   g.p   KILLED    30s  1m5s   12    -  Sleep job
1.1      bob   g.p   KILLED    30s  1m5s   12    -  Sleep job
";
    corona(&format!("sessions list --retired {at}")).is(0, table, "");
    let list = corona(&format!("sessions list --retired --user ann --output json {at}")).json();
    assert_eq!(list["sessions"], json!([session("1.2", "ann")]));
    let none = "No sessions have ended.\n";
    corona(&format!("sessions list --retired --pool g.q {at}")).is(0, none, "");

    let page = include_str!("../../../fixtures/web/retired_json.json");
    let http = pages(&[("/retired_json.jsp", 200, page.to_owned())]);
    let at = format!("--address {} --http-address {http}", nowhere());
    let done = corona(&format!("sessions list --retired {at}"));
    assert!(done.out.contains("SUCCESSFUL") && done.out.contains(" 13s "), "{}", done.out);
}

#[test]
fn a_pool_is_shown_with_its_settings_and_its_sessions() {
    let counts = json!({"MAP": {
        "requested": 43, "granted": 1, "waiting": 42, "share": 2.5, "minimum": 2, "maximum": 4,
        "starving_ms": 9_000,
    }});
    let group = json!({"group": "default", "sessions": 2, "types": counts});
    let pool = json!({
        "group": "default", "pool": "b", "configured": true, "sessions": 2, "mode": "FAIR",
        "preemptable": false, "request_max": true, "priority": 3, "weight": 1.5, "types": counts,
    });
    let pools = json!({"now_ms": 10_000_000, "pools": [group, pool]});
    let http = pages(&[
        ("/api/v1/pools", 200, pools.to_string()),
        ("/api/v1/sessions?limit=2000", 200, sessions_of_pages(None).to_string()),
    ]);
    let shown = "\
Pool:                default.b
In the pools file:   yes
Mode:                FAIR
Priority:            3
Weight:              1.5
Can be preempted:    no
Requests limited:    yes
Sessions:            2

TYPE  HOLDS  WAITS  SHARE  MIN  MAX  STARVED FOR  FIRST WAIT
MAP       1     42    2.5    2    4          9 s           -

SESSION          USER  PRIORITY  MAP  RED  JT  WAITING    AGE  NAME
202611210005.9   bob   NORMAL      1    0   -       42  3h20m  PigLatin:\\u{1b}[…
202611210005.10  ann   NORMAL      1    0   -        9  2h46m  Another job
";
    corona(&format!("pools info default.b --http-address {http}")).is(0, shown, "");
    let done = corona(&format!("pools info default --http-address {http}"));
    assert!(done.out.starts_with("Group:               default\nPools:               b\n"));
    let info = corona(&format!("pools info default.b --output json --http-address {http}")).json();
    assert_eq!((&info["weight"], &info["pool"]), (&json!(1.5), &json!("b")));
    assert_eq!(info["running_sessions"].as_array().unwrap().len(), 2);
    let done = corona(&format!("pools info default.c --http-address {http}"));
    let err =
        format!("corona: the pages of the cluster manager at {http} list no pool default.c\n");
    done.is(1, "", &err);
    // The list has its own name, and goes without one.
    let bare = corona(&format!("pools --group default --http-address {http}")).out;
    let named = corona(&format!("pools list --group default --http-address {http}")).out;
    assert_eq!(bare, named);
    assert!(bare.starts_with("POOL "), "{bare}");
    // Shares are shown in whole slots, those of the pools as the group's.
    let shares = bare.lines().skip(1).map(|line| line.split_whitespace().nth_back(2));
    assert_eq!(shares.collect::<Vec<_>>(), [Some("3"), Some("3")], "{bare}");
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
    let info = corona(&format!("sessions info 202611210005.10 --output json {at}")).json();
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
    let out = done.json();
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
    let pools = corona(&format!("pools --group group_a --output json --http-address {at}")).json();
    assert_eq!(pools["pools"].as_array().unwrap().len(), 3);
    assert_eq!(pools["pools"][2]["mode"], "FIFO");
    assert_eq!(pools["pools"][2]["types"]["MAP"]["minimum"], 1);
    corona(&format!("pools --group x --http-address {at}")).is(0, "No pools.\n", "");
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
    let shown = corona(&format!("nodes list --problems --output json --http-address {at}")).json();
    assert_eq!(shown, json!({"total": 2, "nodes": [{"name": "n2", "problems": ["blacklisted"]}]}));
}

#[test]
fn the_original_cannot_explain_and_says_so() {
    let at = pages(&[]);
    let err = format!(
        "corona: the pages of the cluster manager at {at} have no explanations: this is the original cluster manager, which does not report why requests wait\n"
    );
    corona(&format!("sessions explain 1.1 --http-address {at}")).is(1, "", &err);
}

#[test]
fn pages_without_events_name_their_service() {
    for (path, service) in [
        ("/api/v1/statistics", "are those of a proxy job tracker"),
        ("/api/v1/tracker", "are those of a node"),
        ("/", "this is the original cluster manager"),
    ] {
        let at = pages(&[(path, 200, "{}".to_owned())]);
        corona(&format!("events --http-address {at}")).fails_with(service);
    }
}

/// The name is needed in the next command.
#[test]
fn other_columns_are_cut_before_the_name_of_a_node() {
    let name = "tracker_127.0.0.10:localhost/127.0.0.1:38549";
    let problems = json!(["late", "below_reserve", "excluded"]);
    let node = json!({
        "name": name, "problems": problems, "rack": "/a-datacenter/a-row/a-rack",
        "address": {"host": "10.0.0.1", "port": 50060}, "last_heartbeat_ms": 1000,
        "slots": {"MAP": {"total": 4, "used": 3, "blacklisted": false}},
    });
    let nodes = json!({"now_ms": 5000, "total": 1, "nodes": [node]});
    let at = pages(&[("/api/v1/nodes?limit=2000", 200, nodes.to_string())]);
    let out = corona(&format!("nodes list --http-address {at}")).out;
    assert!(out.contains(&format!("\n{name}  ")) && out.contains('…'), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

#[test]
fn a_node_that_takes_no_tasks_is_listed_as_such() {
    let node = |name: &str, free_gb: i32| {
        json!({
            "name": name, "problems": ["below_reserve"], "last_heartbeat_ms": 1000,
            "slots": {"MAP": {"total": 4, "used": 0, "blacklisted": false}},
            "free": {"cpus": 0, "memory_mb": 7, "disk_gb": free_gb},
            "total": {"cpus": 4, "memory_mb": 9, "disk_gb": 11},
        })
    };
    let nodes = json!({"now_ms": 5000, "total": 2, "nodes": [node("n1", -1), node("n2", 3)]});
    let at = pages(&[("/api/v1/nodes?limit=2000", 200, nodes.to_string())]);
    let out = corona(&format!("nodes list --wide --http-address {at}")).out;
    let line = |name: &str| out.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("n1").contains(" 0 ") && line("n1").ends_with("takes no tasks"), "{out}");
    assert!(line("n2").ends_with("below reserve"), "{out}");
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
Reports that count, the latest first:
SESSION  USER  TYPES       FAILURES  CONNECTIONS         AGO
2026.9   bob   MAP+REDUCE        17            2   1 min 5 s
2026.7   ann   MAP                6            0  1 min 39 s
";
    let grants = "
Grants, the oldest first:
SESSION  USER  POOL  TYPE  SLOTS  REQUEST    HELD FOR  NAME
2026.9   bob   g.p   MAP       2        5  1 min 30 s  Sleep job
and 2 more
";
    let on_host = |name: &str, host: &str| json!({"name": name, "problems": [], "address": {"host": host, "port": 1}});
    let list = json!({
        "total": 3, "nodes": [on_host("n 1", "10.0.0.1"), on_host("n3", "h"), on_host("n4", "h")],
    });
    let serve = |detail: &Value| {
        let unknown = |name| json!({"error": format!("there is no node {name}")}).to_string();
        let at = pages(&[
            ("/api/v1/nodes/n%201", 200, detail.to_string()),
            ("/api/v1/nodes/n2", 404, unknown("n2")),
            ("/api/v1/nodes/10%2E0%2E0%2E1", 404, unknown("10.0.0.1")),
            ("/api/v1/nodes/h", 404, unknown("h")),
            ("/api/v1/nodes?limit=2000", 200, list.to_string()),
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
    // The host of a single node is as good as its name.
    let by_host = corona(&format!("nodes info 10.0.0.1 {at}"));
    by_host.is(0, &format!("{node}{complaints}{grants}"), "");
    let unknown = "corona: there is no node n2, and none on a host of this name\n";
    corona(&format!("nodes info n2 {at}")).is(1, "", unknown);
    let several = "corona: host h has several nodes; name one of n3, n4\n";
    corona(&format!("nodes info h {at}")).is(1, "", several);
    let shown = info(&format!("{at} --output json")).json();
    assert_eq!((&shown["faults"], &shown["grants"]), (&detail["faults"], &detail["grants"]));

    let members = detail.as_object_mut().unwrap();
    members.insert("complaints".into(), json!([]));
    members.insert("grants".into(), json!([]));
    info(&serve(&detail)).is(0, &format!("{node}\nNo grants.\n"), "");

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
    assert_eq!(
        clear(&["--token-file", &right, "--output", "json"]).json(),
        json!({"cleared": ["MAP", "REDUCE"]})
    );

    let (wrong, empty) = (file("wrong", "wrong"), file("empty", "\n"));
    for (words, expected) in [
        (&["--token-file", &wrong][..], "403 Forbidden: That is not the token."),
        (&["--token-file", &empty], "has no token in its first line"),
        (&["--token-file", "/no/such/file"], "cannot be read from /no/such/file"),
        (&[], "corona.cm.web.kill.token is not set"),
        (&["-D", "corona.cm.web.kill.token=short"], "is too short"),
    ] {
        clear(words).fails_with(expected);
    }
    let usage = clear(&["--type", "maps"]);
    assert_eq!(usage.status, ExitCode::from(2));
}

/// A node that drains: its grants, and the page of the job of the session that had some there.
fn draining(grants: &[&str], url: Option<&str>) -> String {
    let grant = |kind| {
        json!({
            "session": "2026.1", "name": "job", "user": "ann", "pool": {"group": "g", "pool": "p"},
            "id": 1, "type": kind, "slots": 1, "granted_ms": 1,
        })
    };
    let mut visitor = json!({"session": "2026.1", "user": "ann"});
    if let Some(url) = url {
        visitor["url"] = url.into();
    }
    json!({
        "now_ms": 5, "name": "n1", "problems": ["draining"], "faults": {}, "complaints": [],
        "visitors": [visitor], "grants_total": grants.len(),
        "grants": grants.iter().map(grant).collect::<Vec<_>>(),
    })
    .to_string()
}

const NODE_OF_JOB: &str = "/api/v1/jobs/job%5F2026%2E1%5F0001/nodes/n1";

/// Drains the node of pages that have these answers besides, with further arguments.
fn drain(answers: &[(&'static str, u16, String)], more: &str) -> Done {
    let list = json!({
        "total": 1,
        "nodes": [{"name": "n1", "problems": [], "address": {"host": "h1", "port": 1}}],
    });
    let on = json!({"draining": true}).to_string();
    let off = json!({"draining": false}).to_string();
    let mut all = vec![
        ("/api/v1/nodes?limit=2000", 200, list.to_string()),
        ("/api/v1/nodes/n1/drain on=1", 200, on),
        ("/api/v1/nodes/n1/drain on=0", 200, off),
    ];
    all.extend(answers.iter().cloned());
    corona(&format!("nodes drain {more} --http-address {}", pages(&all)))
}

#[test]
fn a_node_is_drained_by_its_name_or_host_and_serves_again() {
    for name in ["n1", "h1", "n1 h1"] {
        drain(&[], name).is(0, "n1 drains\n", "");
    }
    drain(&[], "n1 --undo").is(0, "n1 does not drain\n", "");
    let report = drain(&[], "n1 --json").json();
    assert_eq!(report, json!({"nodes": [{"node": "n1", "draining": true}]}));
    let unknown = "corona: there is no node n2, and none on a host of this name\n";
    drain(&[], "n1 n2").is(1, "", unknown);
    assert_eq!(drain(&[], "n1 --undo --wait").status, ExitCode::from(2));
    let original = pages(&[("/machines.jsp?type=all", 200, "<td>n1</td>".into())]);
    let done = corona(&format!("nodes drain n1 --http-address {original}"));
    assert_eq!((done.status, done.err.lines().count()), (ExitCode::from(1), 1), "{}", done.err);
}

#[test]
fn a_drain_waits_for_tasks_and_for_the_jobs_that_need_the_output_of_maps() {
    let use_of = |running: usize, outputs: usize| {
        json!({"running_attempts": running, "map_outputs": outputs}).to_string()
    };
    let job_tracker = |answer: (u16, String)| pages(&[(NODE_OF_JOB, answer.0, answer.1)]);
    let page = |at: SocketAddr| format!("http://{at}/jobdetails.jsp?jobid=job_2026.1_0001");
    let drained = "n1 drains\nn1 is drained\n";
    let idle = page(job_tracker((200, use_of(0, 0))));
    let node = |detail: String| [("/api/v1/nodes/n1", 200, detail)];
    drain(&node(draining(&[], Some(&idle))), "n1 --wait").is(0, drained, "");

    let missing = json!({"error": "no such job"}).to_string();
    for (grants, url, lines) in [
        (&["MAP", "MAP", "REDUCE"][..], Some(idle), "  slots in use: 2 MAP, 1 REDUCE\n"),
        (
            &[],
            Some(page(job_tracker((200, use_of(0, 12))))),
            "  session 2026.1 of ann: 12 map outputs to fetch\n",
        ),
        (
            &[],
            Some(page(job_tracker((200, use_of(1, 0))))),
            "  session 2026.1 of ann: 1 running attempt\n",
        ),
        (
            &[],
            Some(page(job_tracker((404, missing)))),
            "  session 2026.1 of ann: needs not known; until its end\n",
        ),
        (&[], None, "  session 2026.1 of ann: needs not known; until its end\n"),
    ] {
        let done = drain(&node(draining(grants, url.as_deref())), "n1 --wait=0.5");
        let shown = "n1 drains\nn1 is not drained yet:\n";
        let why = "corona: not drained within 0.5 s; the drain stays in force until 'nodes drain \
                   --undo'\n";
        done.is(3, &format!("{shown}{lines}"), why);
    }
    let report = drain(&node(draining(&["MAP"], None)), "n1 --wait=0.5 --json").json();
    let expected = json!({"nodes": [{
        "node": "n1", "draining": true, "drained": false, "grants": {"MAP": 1},
        "needed_by": [{"session": "2026.1", "user": "ann"}], "not_listed": 0,
    }]});
    assert_eq!(report, expected);
}

#[test]
fn a_drain_ends_when_its_node_has_left_or_somebody_has_undone_it() {
    let unknown = json!({"error": "there is no node n1"}).to_string();
    let undone = json!({"now_ms": 5, "name": "n1", "problems": [], "faults": {}, "complaints": [],
                        "grants_total": 0, "grants": []});
    for (status, body, line) in [
        (404, unknown, "n1 has left the cluster\n"),
        (200, undone.to_string(), "n1 does not drain\n"),
    ] {
        let done = drain(&[("/api/v1/nodes/n1", status, body)], "n1 --wait");
        let out = format!("n1 drains\n{line}");
        done.is(1, &out, "corona: a node was undone or left before it was drained\n");
    }
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
