//! Sessions: how they start, stay alive and end.

use serde_json::json;

use crate::any_manager::world::CaseState;

pub(crate) const A_SESSION_FROM_START_TO_END: &str = r#"
    start => {"clusterManagerInfo":{"jobHistoryLocation":"DIR","url":""},"handle":"S1","poolInfoStrings":{"poolGroupName":"ga","poolName":"pa"}}
    info => {"address":{"host":"127.0.0.1","port":"PORT"},"deadline":77,"groupIds":["g1","g2"],"name":"j1","noPreempt":false,"poolInfoStrings":{"poolGroupName":"ga","poolName":"pa"},"priority":"NORMAL","url":"http://x/","userId":"alice"}
    holds => 0 0 0
    heartbeat => ok
    update => ok
    info after it => {"address":{"host":"127.0.0.1","port":"PORT"},"deadline":99,"groupIds":["g1","g2"],"name":"j2","noPreempt":false,"poolInfoStrings":{"poolGroupName":"ga","poolName":"pa"},"priority":"VERY_HIGH","url":"http://y/","userId":"alice"}
    end => ok
    end again => InvalidSessionHandle: S1
    heartbeat after the end => InvalidSessionHandle: S1
    info after the end => InvalidSessionHandle: S1
    request after the end => InvalidSessionHandle: S1
"#;

pub(crate) fn a_session_from_start_to_end(world: &mut CaseState<'_>) {
    let handle = world.new_id();
    let mut info = world.info("j1", "ga", "pa");
    info["groupIds"] = json!(["g1", "g2"]);
    info["url"] = json!("http://x/");
    info["deadline"] = json!(77);
    world.step("start", "sessionStart", json!({ "handle": handle, "info": info }));
    world.step("info", "getSessionInfo", json!({ "handle": handle }));
    let held = world.held(&handle);
    world.note("holds", held);
    world.step("heartbeat", "sessionHeartbeat", json!({ "handle": handle }));
    let mut info = world.info("j2", "elsewhere", "has no effect");
    info["priority"] = json!("VERY_HIGH");
    info["url"] = json!("http://y/");
    info["deadline"] = json!(99);
    world.step("update", "sessionUpdateInfo", json!({ "handle": handle, "info": info }));
    world.step("info after it", "getSessionInfo", json!({ "handle": handle }));
    let end = json!({ "handle": handle, "status": "SUCCESSFUL" });
    world.step("end", "sessionEnd", end.clone());
    world.step("end again", "sessionEnd", end);
    world.step("heartbeat after the end", "sessionHeartbeat", json!({ "handle": handle }));
    world.step("info after the end", "getSessionInfo", json!({ "handle": handle }));
    let request = json!({ "handle": handle, "requestList": [] });
    world.step("request after the end", "requestResource", request);
}

pub(crate) const STARTS_THAT_ARE_REFUSED: &str = r#"
    another start time => InvalidSessionHandle: Session belongs to a different start time bogus.1
    no number => original: closed | ours: InvalidSessionHandle: Session belongs to a different start time bogus | D-2.6
    the same again => InvalidSessionHandle: Session already started S1
    without info => original: closed | ours: fault 6 | D-2.1
    without handle => original: closed | ours: fault 6 | D-2.1
"#;

pub(crate) fn starts_that_are_refused(world: &mut CaseState<'_>) {
    let handle = world.session("first", "plain");
    let info = world.info("second", "g", "plain");
    for (step, handle) in
        [("another start time", "bogus.1"), ("no number", "bogus"), ("the same again", &handle)]
    {
        world.step(step, "sessionStart", json!({ "handle": handle, "info": info }));
    }
    world.step("without info", "sessionStart", json!({ "handle": "x" }));
    world.step("without handle", "sessionStart", json!({ "info": info }));
}

pub(crate) const HEARTBEATS_OF_SESSIONS: &str = "
    plain => ok
    in step => ok
    behind with grants => ok
    without arguments => closed
    of another request => InvalidSessionHandle: S1
    info after that => InvalidSessionHandle: S1
";

pub(crate) fn heartbeats_of_sessions(world: &mut CaseState<'_>) {
    let handle = world.session("first", "plain");
    world.ask(&handle, 1, 2);
    world.grants(&handle, 2);
    world.step("plain", "sessionHeartbeat", json!({ "handle": handle }));
    let mut beat = |step: &str, request: i32, grant: i32| {
        let ids = json!({ "requestId": request, "grantId": grant, "resourceUsages": {} });
        let args = json!({ "handle": handle, "heartbeatArgs": ids });
        world.step(step, "sessionHeartbeatV2", args);
    };
    beat("in step", 2, 2);
    beat("behind with grants", 2, 0);
    // A Java job tracker that saw a fault here would use the first form for good.
    world.step("without arguments", "sessionHeartbeatV2", json!({ "handle": handle }));
    let ids = json!({ "requestId": 5, "grantId": 2, "resourceUsages": {} });
    let lost = json!({ "handle": handle, "heartbeatArgs": ids });
    world.step("of another request", "sessionHeartbeatV2", lost);
    world.step("info after that", "getSessionInfo", json!({ "handle": handle }));
}

pub(crate) const SESSIONS_THAT_ARE_NOT_THERE: &str = "
    getSessionInfo => InvalidSessionHandle: x
    sessionHeartbeat => InvalidSessionHandle: x
    sessionHeartbeatV2 => InvalidSessionHandle: x
    sessionUpdateInfo => InvalidSessionHandle: x
    requestResource => InvalidSessionHandle: x
    releaseResource => InvalidSessionHandle: x
    sessionEnd => InvalidSessionHandle: x
    nodeFeedback => ok
    killSession => original: closed | ours: ok | D-2.2
    killSessions => original: closed | ours: ok | D-2.2
    killSession of one that runs => ok
    heartbeat after that => InvalidSessionHandle: S1
";

pub(crate) fn sessions_that_are_not_there(world: &mut CaseState<'_>) {
    let info = world.info("x", "g", "plain");
    let ids = json!({ "requestId": 0, "grantId": 0, "resourceUsages": {} });
    for (method, args) in [
        ("getSessionInfo", json!({ "handle": "x" })),
        ("sessionHeartbeat", json!({ "handle": "x" })),
        ("sessionHeartbeatV2", json!({ "handle": "x", "heartbeatArgs": ids })),
        ("sessionUpdateInfo", json!({ "handle": "x", "info": info })),
        ("requestResource", json!({ "handle": "x", "requestList": [] })),
        ("releaseResource", json!({ "handle": "x", "idList": [1] })),
        ("sessionEnd", json!({ "handle": "x", "status": "KILLED" })),
        ("nodeFeedback", json!({ "handle": "x", "resourceTypes": [], "stats": [] })),
        ("killSession", json!({ "sessionId": "x" })),
        ("killSessions", json!({ "killSessionsArgs": { "sessionIds": ["x"], "who": "me" } })),
    ] {
        world.step(method, method, args);
    }
    let handle = world.session("first", "plain");
    world.step("killSession of one that runs", "killSession", json!({ "sessionId": handle }));
    world.step("heartbeat after that", "sessionHeartbeat", json!({ "handle": handle }));
}

pub(crate) const A_SILENT_SESSION_EXPIRES: &str = "
    the silent one => InvalidSessionHandle: S1
    the other one => ok
";

pub(crate) fn a_silent_session_expires(world: &mut CaseState<'_>) {
    let silent = world.session("silent", "plain");
    let alive = world.session("alive", "plain");
    let deadline = std::time::Instant::now() + compat_tests::cluster_peers::PATIENCE;
    // Asking for a session's info does not keep it alive. Another case may have safe mode on for a
    // moment: answers at that time do not count.
    let answer = |world: &mut CaseState<'_>, method, handle: &String| {
        loop {
            let answer = world.call(method, json!({ "handle": handle }));
            if !answer.starts_with("SafeModeException") {
                return answer;
            }
            assert!(std::time::Instant::now() < deadline, "safe mode does not end");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    while answer(world, "getSessionInfo", &silent).starts_with('{') {
        assert!(std::time::Instant::now() < deadline, "it does not expire");
        assert_eq!(answer(world, "sessionHeartbeat", &alive), "ok");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    for (step, handle) in [("the silent one", &silent), ("the other one", &alive)] {
        let outcome = answer(world, "sessionHeartbeat", handle);
        world.note(step, outcome);
    }
}
