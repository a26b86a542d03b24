//! A cluster manager and a proxy job tracker that are scripted by a test.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::{Endpoint, Event, Options, SessionEvents, Timers};
pub(super) use corona_net::testing::until;
use corona_wire::calls::{
    self, ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply,
    ProxyJobTracker, ProxyJobTrackerCall, ProxyJobTrackerReply, SessionDriverCall,
};
use corona_wire::client::{CallError, Client, ClientOptions};
use corona_wire::generated::{
    ClusterManagerInfo, InetAddress, PoolInfoStrings, ResourceGrant, ResourceType,
    SessionRegistrationData,
};
use corona_wire::server::{Answer, Limits, ListenOn, Peer, Server, listen};
use corona_wire::{ApplicationFault, Exception, FaultKind, Service};

/// Longer than anything here takes on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) const HANDLE: &str = "202611210001.7";

/// The answer to a call.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// A healthy cluster manager's answer.
    Well,
    /// The connection is closed.
    Close,
    SafeMode,
    Invalid(&'static str),
    /// An EXCEPTION message.
    Fault,
    /// All is well, after this time.
    Late(Duration),
    /// All is well once the stall is over.
    Stall,
}

/// Chooses the answer to a call by its method and the number of earlier calls of it.
pub(super) type Script = fn(method: &str, before: usize) -> Act;

pub(super) fn well(_: &str, _: usize) -> Act {
    Act::Well
}

/// A call as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) from: SocketAddr,
    pub(super) call: Call,
}

/// A cluster manager that follows a script.
pub(super) struct Manager {
    pub(super) address: SocketAddr,
    /// Has the port and does not listen, so that no other test gets the port during a crash.
    _port: TcpSocket,
    world: Arc<TestPeerState>,
    serving: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

struct TestPeerState {
    script: Mutex<Script>,
    seen: Mutex<Vec<Seen>>,
    stalls: watch::Sender<bool>,
    /// A number at the end of their handle distinguishes sessions; 0 for all the same.
    next_session: AtomicUsize,
}

impl Manager {
    pub(super) fn start(script: Script) -> Manager {
        let world = TestPeerState {
            script: Mutex::new(script),
            seen: Mutex::default(),
            stalls: watch::Sender::new(true),
            next_session: AtomicUsize::new(0),
        };
        let port = TcpSocket::new_v4().unwrap();
        port.set_reuseaddr(true).unwrap();
        port.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = port.local_addr().unwrap();
        let mut manager = Manager { address, _port: port, world: Arc::new(world), serving: None };
        manager.serve();
        manager
    }

    /// Opens the port again, at the same place.
    pub(super) fn serve(&mut self) {
        let listener = listen(ListenOn::Address(self.address)).unwrap();
        let world = self.world.clone();
        let handler = move |from: Peer, call| answer(world.clone(), from.address, call);
        let limits = Limits { drain_timeout: Duration::ZERO, ..Limits::default() };
        let server = Server::new(listener, handler, limits);
        let (stop, stopped) = watch::channel(false);
        self.serving = Some((stop, tokio::spawn(server.run::<ClusterManager>(stopped))));
    }

    /// Closes the port and all connections.
    pub(super) async fn crash(&mut self) {
        let (stop, served) = self.serving.take().unwrap();
        drop(stop);
        served.await.unwrap();
    }

    pub(super) fn follow(&self, script: Script) {
        *self.world.script.lock().unwrap() = script;
    }

    /// Gives each session a handle of its own.
    pub(super) fn number_sessions(&self) {
        self.world.next_session.store(1, Ordering::Relaxed);
    }

    pub(super) fn go_on(&self) {
        self.world.stalls.send_replace(false);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.world.seen.lock().unwrap().clone()
    }

    /// The methods that were called, one letter each in `word`: see [`letter`].
    pub(super) fn methods(&self) -> Vec<&'static str> {
        self.seen().iter().map(|seen| ClusterManager::method_name(&seen.call)).collect()
    }

    pub(super) fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|seen| **seen == method).count()
    }

    pub(super) async fn until_called(&self, method: &str, times: usize) {
        until(&format!("{method} {times} times"), || self.count(method) >= times).await;
    }

    /// Ids in the calls of requestResource or releaseResource, call by call.
    pub(super) fn ids(&self, method: &str) -> Vec<Vec<i32>> {
        let ids = |seen: &Seen| match &seen.call {
            Call::RequestResource { requests: Some(requests), .. }
                if method == "requestResource" =>
            {
                Some(requests.iter().map(|request| request.id).collect())
            }
            Call::ReleaseResource { ids: Some(ids), .. } if method == "releaseResource" => {
                Some(ids.clone())
            }
            _ => None,
        };
        self.seen().iter().filter_map(ids).collect()
    }

    /// Where the last session that started takes notifications.
    pub(super) fn session_address(&self) -> (String, u16) {
        let address = self.seen().iter().rev().find_map(|seen| match &seen.call {
            Call::SessionStart { info: Some(info), .. } => Some(info.address.clone()),
            _ => None,
        });
        let address = address.expect("a session has started");
        (address.host, u16::try_from(address.port).unwrap())
    }

    pub(super) async fn session(&self) -> Client<calls::SessionDriver> {
        let options = ClientOptions::default();
        Client::connect(self.session_address(), options).await.unwrap()
    }

    /// Notifies the last session, on a separate connection.
    pub(super) async fn tell(&self, call: SessionDriverCall) -> Result<(), CallError> {
        let mut client = self.session().await;
        timeout(SOON, client.call(&call)).await.expect("an answer in time").map(drop)
    }

    pub(super) async fn grant(&self, grants: &[(i32, &str)]) {
        self.tell(granted(HANDLE, grants)).await.unwrap();
    }
}

async fn answer(world: Arc<TestPeerState>, from: SocketAddr, call: Call) -> Answer<Reply> {
    let method = ClusterManager::method_name(&call);
    let act = {
        let mut seen = world.seen.lock().unwrap();
        let before =
            seen.iter().filter(|seen| ClusterManager::method_name(&seen.call) == method).count();
        seen.push(Seen { from, call: call.clone() });
        world.script.lock().unwrap()(method, before)
    };
    match act {
        Act::Well => {}
        Act::Close => return Answer::Close,
        Act::SafeMode => return Answer::Exception(Exception::safe_mode()),
        Act::Invalid(text) => return Answer::Exception(Exception::invalid_session_handle(text)),
        Act::Fault => {
            let kind = FaultKind::UnknownMethod;
            return Answer::Fault(ApplicationFault { kind, message: "no such method".into() });
        }
        Act::Late(delay) => sleep(delay).await,
        Act::Stall => {
            let _ = world.stalls.subscribe().wait_for(|stalls| !stalls).await;
        }
    }
    Answer::Reply(match call {
        Call::GetNextSessionId => Reply::GetNextSessionId(next_handle(&world)),
        Call::SessionStart { handle, info } => Reply::SessionStart(SessionRegistrationData {
            handle: handle.unwrap(),
            cluster_manager_info: ClusterManagerInfo::new(String::new(), "/log/0".into()),
            pool_info_strings: info.unwrap().pool_info_strings.map_or_else(
                || PoolInfoStrings::new("default".into(), "defaultpool".into()),
                |pool| PoolInfoStrings::new(pool.pool_group_name, "redirected".into()),
            ),
        }),
        Call::SessionUpdateInfo { .. } => Reply::SessionUpdateInfo,
        Call::SessionEnd { .. } => Reply::SessionEnd,
        Call::SessionHeartbeat { .. } => Reply::SessionHeartbeat,
        Call::SessionHeartbeatV2 { .. } => Reply::SessionHeartbeatV2,
        Call::RequestResource { .. } => Reply::RequestResource,
        Call::ReleaseResource { .. } => Reply::ReleaseResource,
        Call::NodeFeedback { .. } => Reply::NodeFeedback,
        other => panic!("a session does not call {other:?}"),
    })
}

fn next_handle(world: &TestPeerState) -> String {
    match world.next_session.load(Ordering::Relaxed) {
        0 => HANDLE.into(),
        _ => format!("202611210001.{}", world.next_session.fetch_add(1, Ordering::Relaxed)),
    }
}

/// A proxy job tracker with its flag.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    flag: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    _stop: watch::Sender<bool>,
}

impl Proxy {
    pub(super) fn start(flag: bool) -> Proxy {
        let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let address = listener.local_addr().unwrap();
        let flag = Arc::new(AtomicBool::new(flag));
        let asked = Arc::new(AtomicUsize::new(0));
        let (shown, counted) = (flag.clone(), asked.clone());
        let answer = move |_, call| -> Pin<Box<dyn Future<Output = _> + Send>> {
            let reply = match call {
                ProxyJobTrackerCall::GetSystemDir => {
                    ProxyJobTrackerReply::GetSystemDir("hdfs://nn:9000/system".to_owned())
                }
                call => {
                    assert_eq!(call, ProxyJobTrackerCall::GetClusterManagerSafeModeFlag);
                    counted.fetch_add(1, Ordering::SeqCst);
                    let flag = shown.load(Ordering::SeqCst);
                    ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(flag)
                }
            };
            Box::pin(async move { Answer::Reply(reply) })
        };
        let (stop, stopped) = watch::channel(false);
        let server = Server::new(listener, answer, Limits::default());
        tokio::spawn(server.run::<ProxyJobTracker>(stopped));
        Proxy { address, flag, asked, _stop: stop }
    }

    pub(super) fn set(&self, flag: bool) {
        self.flag.store(flag, Ordering::SeqCst);
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until it has been asked so many times more.
    pub(super) async fn until_asked(&self, more: usize) {
        let wanted = self.asked() + more;
        until("the flag is looked at", || self.asked() >= wanted).await;
    }
}

pub(super) fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::new(address.ip().to_string(), address.port())
}

/// A session that is quick to try again and heartbeats once.
pub(super) fn options(manager: &Manager) -> Options {
    let ms = Duration::from_millis;
    Options {
        name: Some("work".into()),
        timers: Timers {
            poll_interval: ms(10),
            longest_pause: ms(20),
            start_timeout: ms(100),
            safe_mode_poll: ms(10),
            client_timeout: SOON,
            end_timeout: SOON,
            ..Timers::default()
        },
        ..Options::new(endpoint(manager.address), "user")
    }
}

pub(super) fn granted(handle: &str, grants: &[(i32, &str)]) -> SessionDriverCall {
    let granted = Some(grants.iter().map(|(id, node)| grant(*id, node)).collect());
    SessionDriverCall::GrantResource { handle: Some(handle.into()), granted }
}

pub(super) fn revoked(grants: &[(i32, &str)]) -> SessionDriverCall {
    let revoked = Some(grants.iter().map(|(id, node)| grant(*id, node)).collect());
    SessionDriverCall::RevokeResource { handle: Some(HANDLE.into()), revoked, force: false }
}

pub(super) fn dead(node: &str) -> SessionDriverCall {
    SessionDriverCall::ProcessDeadNode { handle: Some(HANDLE.into()), node: Some(node.into()) }
}

fn grant(id: i32, node: &str) -> ResourceGrant {
    ResourceGrant {
        id,
        node_name: node.into(),
        address: InetAddress::new("10.0.0.1".into(), 1),
        granted_time: 5,
        type_: ResourceType::MAP,
        app_info: Some("10.0.0.1:2".into()),
    }
}

pub(super) async fn next(events: &mut SessionEvents) -> Event {
    let event = timeout(SOON, events.next()).await.expect("an event in time");
    event.expect("the session is not over")
}
