//! The start of a session. Spec: cluster-manager/05 §6.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::peer::*;
use crate::*;
use corona_wire::calls::ClusterManagerCall as Call;

#[tokio::test]
async fn a_session_sends_its_identity_and_learns_its_pool() {
    let manager = Manager::start(well);
    let options = Options {
        name: None,
        pool: PoolName::new("group", "pool"),
        url: Some("http://page".into()),
        ..options(&manager)
    };
    let (driver, _events) = SessionDriver::start(options).await.unwrap();
    assert_eq!(&**driver.handle(), HANDLE);
    assert_eq!(driver.pool(), &PoolName::new("group", "redirected"));
    assert_eq!(driver.session_log(), "/log/0");
    let (host, port) = manager.session_address();
    let seen = manager.seen();
    let Call::SessionStart { handle, info: Some(info) } = &seen[1].call else { panic!("{seen:?}") };
    assert_eq!(handle.as_deref(), Some(HANDLE));
    assert_eq!(host, "127.0.0.1");
    assert!(info.name.starts_with(&format!("user@127.0.0.1:{port}-")), "{}", info.name);
    assert_eq!((info.no_preempt, info.deadline), (Some(false), None));
    assert_eq!(info.url.as_deref(), Some("http://page"));
    driver.update_info(InfoUpdate { name: Some("new".into()), ..InfoUpdate::default() }).unwrap();
    manager.until_called("sessionUpdateInfo", 1).await;
    let seen = manager.seen();
    let Some(Call::SessionUpdateInfo { info: Some(info), .. }) = seen.last().map(|seen| &seen.call)
    else {
        panic!("{seen:?}")
    };
    // The pool is the one that the session was put into.
    assert_eq!(info.pool_info_strings.as_ref().unwrap().pool_name, "redirected");
    assert_eq!((&*info.name, info.url.as_deref()), ("new", Some("http://page")));
}

#[tokio::test]
async fn each_step_of_the_start_has_a_connection_of_its_own_and_the_rest_shares_one() {
    let manager = Manager::start(well);
    let (driver, _events) = SessionDriver::start(options(&manager)).await.unwrap();
    for _ in 0..3 {
        driver.request(vec![SlotRequest::new(ResourceType::Map)]).unwrap();
    }
    manager.until_called("requestResource", 3).await;
    let connections: Vec<_> = manager.seen().iter().map(|seen| seen.from).collect();
    assert_ne!(connections[0], connections[1]);
    assert_ne!(connections[1], connections[2]);
    assert!(connections[2..].iter().all(|connection| *connection == connections[2]));
}

#[tokio::test]
async fn an_absent_cluster_manager_is_waited_for_as_long_as_the_options_say() {
    let mut manager = Manager::start(well);
    manager.crash().await;
    let proxy = Proxy::start(false);
    let options = options(&manager);
    // Whether a proxy job tracker says that this is no safe mode, does not answer, or is not there.
    for asked in [Some(endpoint(proxy.address)), Some(endpoint(manager.address)), None] {
        let options = Options { proxy_job_tracker: asked, ..options.clone() };
        let error = SessionDriver::start(options).await.unwrap_err();
        assert!(matches!(error, StartError::Unreachable { .. }), "{error}");
    }
    assert!(proxy.asked() > 0);
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    let given_up = host.next_session_id(&options).await.unwrap_err();
    assert!(matches!(given_up, StartError::Unreachable { .. }), "{given_up}");
    assert_eq!(host.contact().silence(), None, "nobody waits any more");
    let mut options = options;
    options.timers.start_timeout = SOON;
    let start = tokio::spawn({
        let host = host.clone();
        async move { host.start(options).await }
    });
    until("a silence", || host.contact().silence().is_none() && !start.is_finished()).await;
    manager.serve();
    timeout(SOON, start).await.expect("in time").unwrap().unwrap();
}

#[tokio::test]
async fn safe_mode_is_waited_out_at_each_step() {
    let refused: [Script; 2] = [
        |method, before| match method {
            "getNextSessionId" if before < 9 => Act::SafeMode,
            _ => Act::Well,
        },
        |method, before| match method {
            "sessionStart" if before < 9 => Act::SafeMode,
            _ => Act::Well,
        },
    ];
    for script in refused {
        for with_proxy in [true, false] {
            let manager = Manager::start(script);
            let proxy = Proxy::start(true);
            let address = with_proxy.then(|| endpoint(proxy.address));
            let options = Options { proxy_job_tracker: address, ..options(&manager) };
            let start = tokio::spawn(SessionDriver::start(options));
            if with_proxy {
                proxy.until_asked(5).await;
                // While the flag is set the cluster manager is left alone.
                assert!(manager.methods().len() <= 2, "{:?}", manager.methods());
                proxy.set(false);
            }
            let started = timeout(SOON, start).await.expect("it starts").unwrap();
            assert!(started.is_ok(), "{:?}", started.err());
        }
    }
}

#[tokio::test]
async fn a_refused_session_does_not_start() {
    let manager = Manager::start(|method, _| match method {
        "sessionStart" => Act::Invalid("not in this pool"),
        _ => Act::Well,
    });
    let error = SessionDriver::start(options(&manager)).await.unwrap_err();
    assert!(matches!(&error, StartError::Refused(text) if text == "not in this pool"), "{error}");
    assert_eq!(manager.methods(), ["getNextSessionId", "sessionStart"]);
}

#[tokio::test]
async fn a_start_without_an_answer_leaves_no_session_behind() {
    let manager = Manager::start(|method, _| match method {
        "sessionStart" => Act::Close,
        _ => Act::Well,
    });
    let error = SessionDriver::start(options(&manager)).await.unwrap_err();
    assert!(matches!(error, StartError::Unreachable { .. }), "{error}");
    let starts = manager.count("sessionStart");
    manager.until_called("sessionEnd", starts).await;
    // What may have been started is ended before the next attempt.
    let manager = Manager::start(|method, before| match method {
        "sessionStart" if before < 2 => Act::Close,
        _ => Act::Well,
    });
    let mut options = options(&manager);
    options.timers.start_timeout = SOON;
    let (_driver, _events) = SessionDriver::start(options).await.unwrap();
    let methods = manager.methods();
    let expected = [
        "getNextSessionId",
        "sessionStart",
        "sessionEnd",
        "sessionStart",
        "sessionEnd",
        "sessionStart",
    ];
    assert_eq!(methods[..6], expected);
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_no_session_behind() {
    let manager = Manager::start(|method, _| match method {
        "sessionStart" => Act::Stall,
        _ => Act::Well,
    });
    let start = tokio::spawn(SessionDriver::start(options(&manager)));
    manager.until_called("sessionStart", 1).await;
    start.abort();
    assert!(start.await.unwrap_err().is_cancelled());
    manager.go_on();
    manager.until_called("sessionEnd", 1).await;
    // Before the session could start, there is nothing to end.
    let manager = Manager::start(|_, _| Act::SafeMode);
    let proxy = Proxy::start(true);
    let options = Options { proxy_job_tracker: Some(endpoint(proxy.address)), ..options(&manager) };
    let start = tokio::spawn(SessionDriver::start(options));
    proxy.until_asked(2).await;
    start.abort();
    assert!(start.await.unwrap_err().is_cancelled());
    proxy.set(false);
    assert_eq!(manager.methods(), ["getNextSessionId"]);
}

#[tokio::test]
async fn a_host_takes_a_handle_once() {
    let manager = Manager::start(well);
    let options = options(&manager);
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    let (first, _events) = host.start(options.clone()).await.unwrap();
    let error = host.start(options.clone()).await.unwrap_err();
    assert!(matches!(&error, StartError::HandleTaken(handle) if handle == first.handle()));
    first.end(SessionStatus::Successful).await;
    host.start(options).await.unwrap();
}

#[tokio::test]
async fn an_id_may_be_had_long_before_the_session_starts() {
    let manager = Manager::start(well);
    let options = options(&manager);
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    let handle = host.next_session_id(&options).await.unwrap();
    assert_eq!(manager.seen().len(), 1);
    let (driver, _events) = host.start_named(handle.clone(), options).await.unwrap();
    assert_eq!(driver.handle(), &handle);
    manager.until_called("sessionStart", 1).await;
    assert_eq!(manager.count("getNextSessionId"), 1);
}

#[tokio::test]
async fn a_session_of_an_earlier_process_goes_on() {
    let manager = Manager::start(well);
    let mut options = options(&manager);
    options.timers.heartbeat_interval = Duration::from_millis(20);
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    let slot = Arc::new(SlotRequest::new(ResourceType::Map));
    let request = |id| Request { id, slot: slot.clone() };
    let address = Address { host: "node".into(), port: 1 };
    let grant = Grant::new(4, ResourceType::Map, "node", address);
    let mut saved = SavedSession::new(HANDLE, PoolName::new("group", "pool"));
    saved.session_log = "/log/0".into();
    saved.last_id = 5;
    saved.open = vec![(request(2), None), (request(4), Some(grant))];
    let (driver, _events) = host.resume(saved, options).await.unwrap();
    assert_eq!((driver.session_log(), driver.pool().to_string()), ("/log/0", "group.pool".into()));
    let new = driver.request(vec![SlotRequest::new(ResourceType::Map)]).unwrap();
    assert_eq!(new, [6]);
    driver.release([2]).unwrap();
    manager.until_called("releaseResource", 2).await;
    // The manager may have missed the release; the call with requests comes before any heartbeat.
    let methods = manager.methods();
    assert_eq!(methods[..2], ["releaseResource", "requestResource"], "{methods:?}");
    assert_eq!(manager.ids("releaseResource"), [vec![1, 3, 5], vec![2]]);
    assert_eq!(manager.ids("requestResource"), [vec![], vec![6]]);
    // The manager would compare a grant id with that of the last grants, which are not known here.
    manager.until_called("sessionHeartbeat", 2).await;
    assert_eq!(manager.count("sessionHeartbeatV2"), 0);
    driver.leave();
    drop(driver);
    host.next_session_id(&super::peer::options(&manager)).await.unwrap();
    assert_eq!(manager.count("sessionEnd"), 0);
}

/// A process writes its session down in JSON, and the next one reads it.
#[tokio::test]
async fn a_saved_session_goes_on_where_it_takes_notifications_and_nowhere_else() {
    let manager = Arc::new(Manager::start(well));
    let options = options(&manager);
    let slot = SlotRequest::new(ResourceType::Map).near(["h1"]);
    let first_process = {
        let (manager, options, slot) = (manager.clone(), options.clone(), slot.clone());
        async move {
            let (driver, mut events) = SessionDriver::start(options).await.unwrap();
            driver.request(vec![slot; 4]).unwrap();
            manager.until_called("requestResource", 1).await;
            manager.grant(&[(1, "a"), (2, "a"), (3, "b")]).await;
            next(&mut events).await;
            manager.tell(revoked(&[(3, "b")])).await.unwrap();
            next(&mut events).await;
            driver.release([1]).unwrap();
            let written = serde_json::to_string(&driver.save()).unwrap();
            driver.leave();
            written
        }
    };
    let written = tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(first_process)
    });
    let written = written.await.unwrap();
    let saved: SavedSession = serde_json::from_str(&written).unwrap();
    let kept: Vec<_> =
        saved.open.iter().map(|(request, grant)| (request.id, grant.is_some())).collect();
    assert_eq!((saved.last_id, kept), (4, vec![(2, true), (4, false)]));
    assert_eq!(*saved.open[1].0.slot, slot);
    let port = saved.notifications.as_ref().unwrap().port;
    assert_eq!(port, manager.session_address().1);
    let elsewhere = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    let refused = elsewhere.resume(saved.clone(), options.clone()).await.unwrap_err();
    assert!(matches!(refused, StartError::OtherAddress { .. }), "{refused}");
    let mut listen = options.listen.clone();
    listen.port = port;
    let host = DriverHost::open(&options.cluster_manager, &listen).await.unwrap();
    let (driver, mut events) = host.resume(saved, options).await.unwrap();
    manager.grant(&[(4, "c")]).await;
    assert!(matches!(next(&mut events).await, Event::Granted(grants) if grants[0].id == 4));
    assert_eq!(driver.snapshot().grants().map(|grant| grant.id).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(manager.count("sessionEnd"), 0);
}

#[tokio::test]
async fn a_session_that_an_earlier_process_has_left_is_ended_after_an_outage() {
    let mut manager = Manager::start(well);
    let options = options(&manager);
    let host = DriverHost::open(&options.cluster_manager, &options.listen).await.unwrap();
    manager.crash().await;
    let status = SessionStatus::Failed;
    let feedback = vec![NodeUsage { failed: 3, ..NodeUsage::new("node") }];
    let end = tokio::spawn(async move {
        host.end_left(HANDLE.into(), options, status, feedback).await.unwrap()
    });
    manager.serve();
    let ending = timeout(SOON, end).await.expect("in time").unwrap();
    assert!(matches!(*ending, Ending::Ended(_)) && ending.is_settled(), "{ending}");
    assert_eq!(manager.methods(), ["nodeFeedback", "sessionEnd"]);
}

#[tokio::test]
async fn the_proxy_job_tracker_names_the_directory_of_jobs() {
    let proxy = Proxy::start(false);
    let found = system_dir(&endpoint(proxy.address), SOON).await.unwrap();
    assert_eq!(found, "hdfs://nn:9000/system");
    let nobody = corona_net::testing::nobody();
    assert!(system_dir(&endpoint(nobody.address()), SOON).await.is_err());
}
