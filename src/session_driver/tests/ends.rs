//! The end of a session: asked for, dropped, or with a cluster manager that does not listen.

use std::time::Duration;

use super::peer::*;
use crate::*;
use corona_wire::calls::ClusterManagerCall as Call;

fn map() -> SlotRequest {
    SlotRequest::new(ResourceType::Map)
}

fn end_statuses(manager: &Manager) -> Vec<i32> {
    let status = |seen: &Seen| match &seen.call {
        Call::SessionEnd { status, .. } => status.map(|status| status.0),
        _ => None,
    };
    manager.seen().iter().filter_map(status).collect()
}

#[tokio::test]
async fn the_end_forgets_what_waits_but_the_feedback() {
    let manager = Manager::start(|method, before| match method {
        "sessionHeartbeatV2" if before == 0 => Act::Stall,
        _ => Act::Well,
    });
    let (driver, mut events) = SessionDriver::start(options(&manager)).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 1).await;
    driver.request(vec![map()]).unwrap();
    driver.feedback(vec![NodeUsage { failed: 3, ..NodeUsage::new("node") }]).unwrap();
    driver.update_info(InfoUpdate::default()).unwrap();
    let end = driver.end(SessionStatus::Successful);
    tokio::pin!(end);
    tokio::select! {
        biased;
        _ = &mut end => panic!("the heartbeat is under way"),
        () = std::future::ready(()) => manager.go_on(),
    }
    assert!(matches!(*end.await, Ending::Ended(SessionStatus::Successful)));
    let methods = manager.methods();
    assert_eq!(methods[2..], ["sessionHeartbeatV2", "nodeFeedback", "sessionEnd"]);
    assert_eq!(end_statuses(&manager), [3]);
    assert!(matches!(next(&mut events).await, Event::Ended(_)));
    assert!(events.next().await.is_none());
    assert!(matches!(driver.release([1]), Err(DriverError::Over)));
    // The first caller decides.
    let ending = driver.end(SessionStatus::Failed).await;
    assert!(matches!(*ending, Ending::Ended(SessionStatus::Successful)));
}

#[tokio::test]
async fn a_session_that_is_gone_already_ends_well() {
    for method in ["sessionEnd", "nodeFeedback"] {
        let script: Script = match method {
            "sessionEnd" => |method, _| match method {
                "sessionEnd" => Act::Invalid(HANDLE),
                _ => Act::Well,
            },
            _ => |method, before| match method {
                // The heartbeat holds the feedback up until the end has begun.
                "sessionHeartbeatV2" if before == 0 => Act::Late(Duration::from_millis(100)),
                "nodeFeedback" => Act::Invalid(HANDLE),
                _ => Act::Well,
            },
        };
        let manager = Manager::start(script);
        let (driver, _events) = SessionDriver::start(options(&manager)).await.unwrap();
        manager.until_called("sessionHeartbeatV2", 1).await;
        driver.feedback(vec![NodeUsage::new("node")]).unwrap();
        let ending = driver.end(SessionStatus::Failed).await;
        assert!(matches!(*ending, Ending::Ended(SessionStatus::Failed)), "{ending}");
    }
}

#[tokio::test]
async fn a_dropped_driver_or_receiver_of_events_ends_the_session_as_killed() {
    let manager = Manager::start(well);
    let (driver, events) = SessionDriver::start(options(&manager)).await.unwrap();
    drop(driver);
    manager.until_called("sessionEnd", 1).await;
    drop(events);
    let (driver, events) = SessionDriver::start(options(&manager)).await.unwrap();
    drop(events);
    manager.until_called("sessionEnd", 2).await;
    assert!(matches!(driver.request(vec![map()]), Err(DriverError::Over)));
    assert_eq!(end_statuses(&manager), [4, 4]);
}

#[tokio::test]
async fn the_end_waits_for_no_pause_and_is_sent_until_it_is_acknowledged() {
    let mut manager = Manager::start(well);
    let mut options = options(&manager);
    options.timers.longest_pause = SOON * 3;
    options.timers.poll_interval = SOON * 3;
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 1).await;
    manager.crash().await;
    driver.request(vec![map()]).unwrap();
    until("an attempt fails", || driver.traffic().failed_attempts == 1).await;
    manager.serve();
    let ending = tokio::time::timeout(SOON, driver.end(SessionStatus::Failed)).await.unwrap();
    assert!(matches!(*ending, Ending::Ended(SessionStatus::Failed)), "{ending}");

    let mut manager = Manager::start(|method, before| match method {
        "sessionEnd" if before < 4 => Act::Close,
        _ => Act::Well,
    });
    let options = super::peer::options(&manager);
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 1).await;
    manager.crash().await;
    let end = driver.end(SessionStatus::Successful);
    tokio::pin!(end);
    let refused = async { until("attempts", || driver.traffic().failed_attempts >= 3).await };
    tokio::select! {
        biased;
        ending = &mut end => panic!("{ending}"),
        () = refused => manager.serve(),
    }
    let ending = tokio::time::timeout(SOON, end).await.unwrap();
    assert!(matches!(*ending, Ending::Ended(SessionStatus::Successful)), "{ending}");
    assert!(end_statuses(&manager).len() >= 5, "{:?}", manager.methods());
    assert_eq!(driver.contact().silence(), None);
}

#[tokio::test]
async fn the_end_takes_no_longer_than_it_may() {
    // In flight, or at the end itself.
    let stuck: [Script; 2] = [
        |method, _| match method {
            "requestResource" => Act::Stall,
            _ => Act::Well,
        },
        |method, _| match method {
            "sessionEnd" => Act::Stall,
            _ => Act::Well,
        },
    ];
    for script in stuck {
        let manager = Manager::start(script);
        let mut options = options(&manager);
        options.timers.end_timeout = Duration::from_millis(50);
        let (driver, _events) = SessionDriver::start(options).await.unwrap();
        driver.request(vec![map()]).unwrap();
        manager.until_called("requestResource", 1).await;
        let ending = tokio::time::timeout(SOON, driver.end(SessionStatus::Killed)).await.unwrap();
        let Ending::NotTold { failure: CallFailure::TooLate(_), .. } = *ending else {
            panic!("{ending}")
        };
    }
}

#[tokio::test]
async fn no_call_that_always_fails_holds_up_the_end() {
    let faulty: [Script; 2] = [
        |method, before| match method {
            // It holds the others up until the end has begun.
            "sessionHeartbeatV2" if before == 0 => Act::Late(Duration::from_millis(100)),
            "nodeFeedback" => Act::Fault,
            _ => Act::Well,
        },
        |method, _| match method {
            "requestResource" | "releaseResource" | "sessionUpdateInfo" => Act::Fault,
            _ => Act::Well,
        },
    ];
    for script in faulty {
        let manager = Manager::start(script);
        let (driver, _events) = SessionDriver::start(options(&manager)).await.unwrap();
        manager.until_called("sessionHeartbeatV2", 1).await;
        driver.feedback(vec![NodeUsage::new("node")]).unwrap();
        driver.request(vec![map()]).unwrap();
        driver.update_info(InfoUpdate::default()).unwrap();
        let end = driver.end(SessionStatus::Successful);
        let ending = tokio::time::timeout(SOON, end).await.unwrap();
        assert!(matches!(*ending, Ending::Ended(SessionStatus::Successful)), "{ending}");
        assert_eq!(end_statuses(&manager), [3]);
    }
}

#[tokio::test]
async fn an_end_in_safe_mode_waits_for_the_manager() {
    let manager = Manager::start(well);
    let proxy = Proxy::start(false);
    let options = Options { proxy_job_tracker: Some(endpoint(proxy.address)), ..options(&manager) };
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    manager.until_called("sessionHeartbeatV2", 1).await;
    proxy.set(true);
    manager.follow(|_, _| Act::SafeMode);
    drop(driver);
    proxy.until_asked(3).await;
    manager.follow(well);
    proxy.set(false);
    let Event::Ended(ending) = next(&mut events).await else { panic!() };
    assert!(matches!(*ending, Ending::Ended(SessionStatus::Killed)), "{ending}");
}

#[test]
fn a_session_whose_runtime_is_gone_is_over() {
    let other = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (driver, mut events, _manager) = other.block_on(async {
        let manager = Manager::start(well);
        let (driver, events) = SessionDriver::start(options(&manager)).await.unwrap();
        (driver, events, manager)
    });
    other.shutdown_background();
    let Event::Ended(ending) = own.block_on(next(&mut events)) else { panic!() };
    assert!(matches!(*ending, Ending::Abandoned));
    assert!(matches!(driver.request(vec![map()]), Err(DriverError::Over)));
    let ending = own.block_on(driver.end(SessionStatus::Successful));
    assert!(matches!(*ending, Ending::Abandoned));
}
