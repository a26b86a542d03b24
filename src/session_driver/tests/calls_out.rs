//! Calls and heartbeats towards a cluster manager that closes, hangs, restarts and refuses.
//! Spec: cluster-manager/05 §6, 01 §7.

use std::time::Duration;

use super::peer::*;
use crate::*;
use corona_wire::calls::ClusterManagerCall as Call;
use corona_wire::generated::Program;

fn map() -> SlotRequest {
    SlotRequest::new(ResourceType::Map)
}

async fn until_answered(driver: &SessionDriver) {
    until("all calls are answered", || driver.traffic().waiting_calls == 0).await;
}

/// The calls after the start.
fn after_start(manager: &Manager) -> Vec<&'static str> {
    manager.methods().split_off(2)
}

#[tokio::test]
async fn a_heartbeat_comes_first_and_calls_follow_in_order() {
    let manager = Manager::start(well);
    let (driver, _events) = SessionDriver::start(options(&manager)).await.unwrap();
    driver.update_info(InfoUpdate::default()).unwrap();
    let ids = driver.request(vec![map(), map()]).unwrap();
    assert_eq!(driver.release(ids).unwrap(), [1, 2]);
    driver.feedback(vec![NodeUsage::new("node")]).unwrap();
    driver.end_other("202611210001.9").unwrap();
    assert_eq!(driver.request(vec![map()]).unwrap(), [3]);
    until_answered(&driver).await;
    let expected = [
        "sessionHeartbeatV2",
        "sessionUpdateInfo",
        "requestResource",
        "releaseResource",
        "nodeFeedback",
        "sessionEnd",
        "requestResource",
    ];
    assert_eq!(after_start(&manager), expected);
    assert_eq!(manager.ids("requestResource"), [vec![1, 2], vec![3]]);
    let snapshot = driver.snapshot();
    assert_eq!(snapshot.standing(1), None);
    assert_eq!(snapshot.standing(3), Some(&Standing::Pending));
}

#[tokio::test]
async fn a_call_without_an_answer_is_made_again() {
    // The second kind of misbehaviour is to be too late.
    let scripts: [(Script, Duration); 2] = [
        (
            |method, before| match method {
                "requestResource" if before < 3 => Act::Close,
                _ => Act::Well,
            },
            SOON,
        ),
        (
            |method, before| match method {
                "requestResource" if before < 2 => Act::Late(SOON),
                _ => Act::Well,
            },
            Duration::from_secs(1),
        ),
    ];
    for (script, client_timeout) in scripts {
        let manager = Manager::start(script);
        let mut options = options(&manager);
        options.timers.client_timeout = client_timeout;
        let (driver, _events) = SessionDriver::start(options).await.unwrap();
        driver.request(vec![map(), map()]).unwrap();
        driver.release([2]).unwrap();
        until_answered(&driver).await;
        let asked = manager.ids("requestResource");
        assert!(asked.len() >= 3 && asked.iter().all(|ids| *ids == [1, 2]), "{asked:?}");
        assert_eq!(manager.ids("releaseResource"), [[2]]);
        // A connection that was kept fails once for nothing.
        assert_eq!(driver.traffic().failed_attempts, 2);
    }
}

#[tokio::test]
async fn no_heartbeat_goes_out_while_it_is_not_known_what_the_manager_expects() {
    let manager = Manager::start(|method, before| match method {
        "requestResource" if before < 3 => Act::Close,
        _ => Act::Well,
    });
    let mut options = options(&manager);
    options.timers.heartbeat_interval = Duration::from_millis(1);
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    driver.request(vec![map(); 4]).unwrap();
    until_answered(&driver).await;
    let before = manager.count("sessionHeartbeatV2");
    manager.until_called("sessionHeartbeatV2", before + 1).await;
    let seen = manager.seen();
    let is_request = |seen: &Seen| matches!(seen.call, Call::RequestResource { .. });
    let first = seen.iter().position(is_request).unwrap();
    let last = seen.iter().rposition(is_request).unwrap();
    assert_eq!(last - first, 3, "{:?}", manager.methods());
    for Seen { call, .. } in &seen[last..] {
        if let Call::SessionHeartbeatV2 { args: Some(args), .. } = call {
            assert_eq!(args.request_id, 4);
        }
    }
}

#[tokio::test]
async fn an_outage_however_long_ends_no_session() {
    let mut manager = Manager::start(well);
    let mut options = options(&manager);
    options.timers.heartbeat_interval = Duration::from_millis(1);
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 2).await;
    until("an answer", || driver.contact().silence().is_none()).await;
    manager.crash().await;
    driver.request(vec![map()]).unwrap();
    // Far more often than the original tries: seven times.
    until("attempts", || driver.traffic().failed_attempts >= 30).await;
    let silence = driver.contact().silence().expect("a silence");
    assert!(!silence.is_safe_mode && silence.lasts > Duration::ZERO, "{silence}");
    manager.serve();
    until_answered(&driver).await;
    assert_eq!(manager.ids("requestResource"), [[1]]);
    manager.grant(&[(1, "node")]).await;
    let event = next(&mut events).await;
    assert!(matches!(&event, Event::Granted(grants) if grants[0].id == 1), "{event:?}");
}

#[tokio::test]
async fn a_request_that_always_fails_holds_up_neither_heartbeats_nor_what_does_not_need_it() {
    let manager = Manager::start(|method, _| match method {
        "requestResource" | "sessionUpdateInfo" => Act::Fault,
        _ => Act::Well,
    });
    let mut options = options(&manager);
    options.timers.heartbeat_interval = Duration::from_millis(1);
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    driver.request(vec![map()]).unwrap();
    driver.update_info(InfoUpdate::default()).unwrap();
    driver.feedback(vec![NodeUsage::new("node")]).unwrap();
    manager.until_called("nodeFeedback", 1).await;
    // It expires otherwise. They name no requests: those that failed may have been entered.
    let before = manager.count("sessionHeartbeatV2");
    manager.until_called("sessionHeartbeat", 5).await;
    assert_eq!(manager.count("sessionHeartbeatV2"), before);
    manager.follow(well);
    until_answered(&driver).await;
    assert_eq!(manager.ids("requestResource").last().unwrap(), &[1]);
    manager.until_called("sessionHeartbeatV2", before + 1).await;
}

#[tokio::test(start_paused = true)]
async fn attempts_come_less_and_less_often_up_to_a_longest_pause() {
    let timers = Timers::default();
    let mut pace = crate::conversation::Pace::new(&timers);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let now = tokio::time::Instant::now();
        pace.failed(now);
        pace.turn().await;
        pauses.push(now.elapsed().as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 5, 5]);
    pace.went_through();
    let now = tokio::time::Instant::now();
    pace.turn().await;
    assert_eq!(now.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn an_expired_or_killed_session_ends() {
    let gone: Script = |method, before| match method {
        "sessionHeartbeatV2" if before > 0 => Act::Invalid(HANDLE),
        _ => Act::Well,
    };
    let refused: Script = |method, _| match method {
        "requestResource" => Act::Invalid("too many"),
        _ => Act::Well,
    };
    for (script, is_gone) in [(gone, true), (refused, false)] {
        let manager = Manager::start(script);
        let mut options = options(&manager);
        options.timers.heartbeat_interval = Duration::from_millis(20);
        let (driver, mut events) = SessionDriver::start(options).await.unwrap();
        let _ = driver.request(vec![map()]);
        let Event::Ended(ending) = next(&mut events).await else { panic!() };
        match &*ending {
            Ending::Gone { handle } => assert!(is_gone && handle == driver.handle()),
            Ending::Refused(text) => assert!(!is_gone && text == "too many"),
            other => panic!("{other}"),
        }
        // The first reason for the end stays.
        let end = driver.end(SessionStatus::Successful).await;
        assert_eq!(end.to_string(), ending.to_string());
        assert_eq!(manager.count("sessionEnd"), 0);
    }
}

#[tokio::test]
async fn heartbeats_fall_back_for_good_where_the_new_ones_are_not_known() {
    let manager = Manager::start(|method, _| match method {
        "sessionHeartbeatV2" => Act::Fault,
        _ => Act::Well,
    });
    let mut options = options(&manager);
    options.timers.heartbeat_interval = Duration::from_millis(20);
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    manager.until_called("sessionHeartbeat", 3).await;
    let seen = manager.seen();
    assert_eq!(manager.count("sessionHeartbeatV2"), 1);
    assert!(seen[2..].iter().all(|call| call.from == seen[2].from), "on the same connection");
    let traffic = driver.traffic();
    assert_eq!((traffic.heartbeats_v2, traffic.failed_attempts), (false, 0));
}

#[tokio::test]
async fn a_lost_connection_is_no_reason_to_fall_back() {
    let manager = Manager::start(|method, before| match method {
        "sessionHeartbeatV2" if before < 2 => Act::Close,
        _ => Act::Well,
    });
    let (driver, _events) = SessionDriver::start(options(&manager)).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 3).await;
    assert!(driver.traffic().heartbeats_v2);
    assert_eq!(manager.count("sessionHeartbeat"), 0);
}

#[tokio::test]
async fn heartbeats_tell_progress_and_usage() {
    let manager = Manager::start(well);
    let mut options = options(&manager);
    options.timers.heartbeat_interval = Duration::from_millis(20);
    options.program = Some(ProgramVersion { version: "9.9".into(), started_ms: 5 });
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    driver.request(vec![map(); 3]).unwrap();
    driver.report_usage(ResourceType::Reduce, vec![1, 2, 3]);
    manager.grant(&[(3, "node"), (2, "node")]).await;
    manager.grant(&[(1, "node")]).await;
    next(&mut events).await;
    let progress = || {
        manager.seen().iter().rev().find_map(|seen| match &seen.call {
            Call::SessionHeartbeatV2 { args: Some(args), .. } => Some(args.clone()),
            _ => None,
        })
    };
    let says = |request_id, grant_id| {
        progress().is_some_and(|args| (args.request_id, args.grant_id) == (request_id, grant_id))
    };
    // A queued call is not sent yet.
    until("the first batch is told", || says(3, 3)).await;
    next(&mut events).await;
    until("the second batch is told", || says(3, 1)).await;
    let usages: Vec<_> = progress().unwrap().resource_usages.into_values().collect();
    assert_eq!(usages, [vec![0, 0, 0], vec![1, 2, 3], vec![0, 0, 0]]);
    assert_eq!(progress().unwrap().program, Some(Program::new("9.9".to_owned(), 5, None)));
}

#[tokio::test]
async fn safe_mode_and_a_restart_cost_nothing() {
    let mut manager = Manager::start(well);
    let proxy = Proxy::start(false);
    let options = Options { proxy_job_tracker: Some(endpoint(proxy.address)), ..options(&manager) };
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 1).await;
    // The manager is asked to stop: flag first, then it refuses every call, then it disconnects.
    proxy.set(true);
    manager.follow(|_, _| Act::SafeMode);
    driver.request(vec![map()]).unwrap();
    driver.release([1]).unwrap();
    manager.until_called("requestResource", 1).await;
    manager.crash().await;
    proxy.until_asked(10).await;
    assert_eq!(driver.traffic().failed_attempts, 0);
    assert_eq!(manager.count("requestResource"), 1);
    // It is reachable again before the flag is cleared, still in safe mode, then it recovers.
    manager.serve();
    proxy.until_asked(3).await;
    manager.follow(|method, before| match method {
        "requestResource" if before < 3 => Act::SafeMode,
        _ => Act::Well,
    });
    proxy.set(false);
    until_answered(&driver).await;
    assert_eq!(driver.traffic().failed_attempts, 0);
    assert_eq!(manager.ids("requestResource"), vec![vec![1]; 4]);
    manager.grant(&[(1, "late")]).await;
    assert_eq!(driver.request(vec![map()]).unwrap(), [2]);
    manager.grant(&[(2, "node")]).await;
    let event = next(&mut events).await;
    assert!(matches!(&event, Event::Granted(grants) if grants[0].id == 2), "{event:?}");
}

#[tokio::test]
async fn a_manager_that_goes_down_with_the_flag_set_is_waited_for() {
    let mut manager = Manager::start(well);
    let proxy = Proxy::start(true);
    let options = Options { proxy_job_tracker: Some(endpoint(proxy.address)), ..options(&manager) };
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 1).await;
    manager.crash().await;
    driver.request(vec![map()]).unwrap();
    // Far longer than all retries take.
    proxy.until_asked(20).await;
    assert_eq!(driver.traffic().failed_attempts, 1);
    manager.serve();
    proxy.set(false);
    until_answered(&driver).await;
}

#[tokio::test]
async fn large_batches_are_cut_and_a_full_queue_refuses() {
    let manager = Manager::start(|method, _| match method {
        "requestResource" => Act::Stall,
        _ => Act::Well,
    });
    let mut options = options(&manager);
    options.bounds = Bounds { max_outgoing: 4, max_ids_per_call: 2, ..Bounds::default() };
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    assert_eq!(driver.request(vec![map(); 5]).unwrap(), [1, 2, 3, 4, 5]);
    // This one joins the last call, and the next one finds no place in one that waits.
    assert_eq!(driver.request(vec![map()]).unwrap(), [6]);
    assert_eq!(driver.request(vec![map()]).unwrap(), [7]);
    assert!(matches!(driver.request(vec![map()]), Err(DriverError::Busy(4))));
    assert!(matches!(driver.release([1]), Err(DriverError::Busy(4))));
    // The refused call has left no trace.
    assert_eq!(driver.snapshot().totals.requested, 7);
    manager.go_on();
    until_answered(&driver).await;
    assert_eq!(manager.ids("requestResource"), [vec![1, 2], vec![3, 4], vec![5, 6], vec![7]]);
    let hosts = map().near(["a", "b"]).avoiding(["c", "b"]);
    let error = driver.request(vec![map(), hosts]).unwrap_err();
    assert!(matches!(&error, DriverError::HostExcluded(host) if &**host == "b"), "{error}");
    assert_eq!(driver.request(vec![map()]).unwrap(), [8]);
}
