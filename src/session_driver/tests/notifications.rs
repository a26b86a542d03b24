//! Notifications of a cluster manager: repeated, too late or without reason.

use std::time::Duration;

use tokio::time::timeout;

use super::peer::*;
use crate::*;
use corona_wire::calls::SessionDriverCall;
use corona_wire::client::CallError;

fn maps(count: usize) -> Vec<SlotRequest> {
    vec![SlotRequest::new(ResourceType::Map); count]
}

fn granted_ids(event: &Event) -> Vec<i32> {
    let Event::Granted(grants) = event else { panic!("{event:?}") };
    grants.iter().map(|grant| grant.id).collect()
}

fn lost_ids(event: &Event) -> Vec<i32> {
    let (Event::Revoked(lost) | Event::DeadNode { lost, .. }) = event else { panic!("{event:?}") };
    lost.iter().map(|lost| lost.request.id).collect()
}

#[tokio::test]
async fn lost_grants_are_released_and_can_be_replaced() {
    let manager = Manager::start(well);
    let (driver, mut events) = SessionDriver::start(options(&manager)).await.unwrap();
    let near = SlotRequest::new(ResourceType::Map).near(["h1"]);
    driver.request(vec![near; 4]).unwrap();
    manager.grant(&[(1, "a"), (2, "b"), (3, "b"), (4, "c")]).await;
    next(&mut events).await;
    driver.release([1]).unwrap();
    manager.tell(revoked(&[(1, "a"), (4, "c")])).await.unwrap();
    manager.tell(revoked(&[(1, "a"), (4, "c")])).await.unwrap();
    manager.tell(dead("b")).await.unwrap();
    manager.tell(dead("nobody")).await.unwrap();
    let revoked = next(&mut events).await;
    assert_eq!(lost_ids(&revoked), [4]);
    let dead = next(&mut events).await;
    assert!(matches!(&dead, Event::DeadNode { node, .. } if &**node == "b"));
    assert_eq!(lost_ids(&dead), [2, 3]);
    assert!(lost_ids(&next(&mut events).await).is_empty());
    let (Event::Revoked(lost), Event::DeadNode { lost: died, .. }) = (revoked, dead) else {
        panic!()
    };
    assert_eq!(driver.replace(&[lost, died].concat()).unwrap(), [5, 6, 7]);
    manager.until_called("requestResource", 2).await;
    assert_eq!(manager.ids("releaseResource"), [vec![1], vec![4], vec![2, 3]]);
    let snapshot = driver.snapshot();
    let mut again = snapshot.slots.iter().filter(|slot| slot.request.id > 4);
    assert!(again.all(|slot| &*slot.request.slot.hosts[0] == "h1"));
}

#[tokio::test]
async fn lost_grants_can_be_left_to_the_owner() {
    let manager = Manager::start(well);
    let options = Options { release_lost: false, ..options(&manager) };
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    driver.request(maps(2)).unwrap();
    manager.grant(&[(1, "a"), (2, "a")]).await;
    manager.tell(revoked(&[(2, "a"), (1, "a")])).await.unwrap();
    next(&mut events).await;
    let Event::Revoked(lost) = next(&mut events).await else { panic!() };
    assert_eq!(driver.snapshot().standings(ResourceType::Map).lost, 2);
    assert_eq!(driver.replace(&lost).unwrap(), [3, 4]);
    manager.until_called("releaseResource", 1).await;
    // The original's order: ask first, then give up the old ones.
    let methods = manager.methods();
    assert_eq!(methods[methods.len() - 2..], ["requestResource", "releaseResource"]);
    assert_eq!(manager.ids("releaseResource"), [[1, 2]]);
}

#[tokio::test]
async fn a_slow_owner_holds_up_the_cluster_manager_and_loses_nothing() {
    let manager = Manager::start(well);
    let mut options = options(&manager);
    options.bounds.max_incoming = 2;
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    driver.request(maps(4)).unwrap();
    let mut session = manager.session().await;
    for id in [1, 2] {
        session.call(&granted(HANDLE, &[(id, "a")])).await.unwrap();
    }
    let third = granted(HANDLE, &[(3, "a")]);
    let third = tokio::spawn(async move { session.call(&third).await.map(|_| session) });
    // Another session of the same listener is not delayed.
    let mut other = manager.session().await;
    let nobody = timeout(SOON, other.call(&granted("202611210001.99", &[]))).await.unwrap();
    assert!(matches!(nobody, Err(CallError::Closed)), "{nobody:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!third.is_finished());
    assert_eq!(granted_ids(&next(&mut events).await), [1]);
    let mut session = timeout(SOON, third).await.expect("there is room").unwrap().unwrap();
    assert_eq!(granted_ids(&next(&mut events).await), [2]);
    session.call(&granted(HANDLE, &[(4, "a")])).await.unwrap();
    assert_eq!(granted_ids(&next(&mut events).await), [3]);
    assert_eq!(granted_ids(&next(&mut events).await), [4]);
}

#[tokio::test]
async fn an_owner_that_takes_nothing_for_too_long_gets_no_more_events() {
    let manager = Manager::start(well);
    let mut options = options(&manager);
    options.bounds.max_incoming = 1;
    options.listen.max_reply_delay = Duration::from_millis(20);
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    let (_driver, mut events) = host.start(options).await.unwrap();
    manager.tell(dead("a")).await.unwrap();
    assert!(matches!(manager.tell(dead("b")).await, Err(CallError::Closed)));
    assert_eq!(host.refused_calls(), 1);
    let event = next(&mut events).await;
    assert!(matches!(&event, Event::DeadNode { node, .. } if &**node == "a"));
    manager.tell(dead("b")).await.unwrap();
}

#[tokio::test]
async fn sessions_share_a_listener_and_are_kept_apart() {
    let manager = Manager::start(well);
    manager.number_sessions();
    let mut options = options(&manager);
    options.cluster_manager.host = "localhost".into();
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..20 {
        let session = host.start(options.clone()).await.unwrap();
        session.0.request(maps(1)).unwrap();
        sessions.push(session);
    }
    for (nth, (driver, _)) in sessions.iter().enumerate() {
        manager.tell(granted(driver.handle(), &[(1, &nth.to_string())])).await.unwrap();
    }
    for (nth, (_, events)) in sessions.iter_mut().enumerate() {
        let Event::Granted(grants) = next(events).await else { panic!() };
        assert_eq!(*grants[0].node_name, *nth.to_string());
    }
    // One that has ended is not here any more.
    let (driver, _events) = sessions.pop().unwrap();
    driver.end(SessionStatus::Successful).await;
    let told = manager.tell(granted(driver.handle(), &[])).await;
    assert!(matches!(told, Err(CallError::Closed)));
    assert_eq!(host.refused_calls(), 1);
}

#[tokio::test]
async fn calls_without_arguments_do_no_harm() {
    let manager = Manager::start(well);
    let (driver, mut events) = SessionDriver::start(options(&manager)).await.unwrap();
    let handle = Some(HANDLE.to_owned());
    let nobody = SessionDriverCall::ProcessDeadNode { handle: None, node: None };
    assert!(matches!(manager.tell(nobody).await, Err(CallError::Closed)));
    let empty = [
        SessionDriverCall::GrantResource { handle: handle.clone(), granted: None },
        SessionDriverCall::RevokeResource { handle: handle.clone(), revoked: None, force: true },
        SessionDriverCall::ProcessDeadNode { handle, node: None },
    ];
    for call in empty {
        manager.tell(call).await.unwrap();
    }
    let event = next(&mut events).await;
    assert!(matches!(&event, Event::DeadNode { node, lost } if node.is_empty() && lost.is_empty()));
    driver.request(maps(1)).unwrap();
    manager.grant(&[(1, "a")]).await;
    assert_eq!(granted_ids(&next(&mut events).await), [1]);
}

#[tokio::test]
async fn strays_do_not_pile_up_calls() {
    let manager = Manager::start(|method, _| match method {
        "requestResource" => Act::Stall,
        _ => Act::Well,
    });
    let mut options = options(&manager);
    options.bounds.max_outgoing = 3;
    let (driver, mut events) = SessionDriver::start(options).await.unwrap();
    driver.request(maps(1)).unwrap();
    for id in 100..120 {
        manager.grant(&[(id, "a")]).await;
    }
    let waited = timeout(Duration::from_millis(100), events.next()).await;
    assert!(waited.is_err(), "strays are no events");
    assert_eq!(driver.traffic().waiting_calls, 3);
    manager.go_on();
    manager.grant(&[(1, "a")]).await;
    assert_eq!(granted_ids(&next(&mut events).await), [1]);
    manager.until_called("releaseResource", 20).await;
    assert_eq!(manager.ids("releaseResource"), (100..120).map(|id| vec![id]).collect::<Vec<_>>());
}
