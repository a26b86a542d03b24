//! Servers and clients over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Reply, SessionDriver,
    SessionDriverCall, SessionDriverReply,
};
use crate::wire::client::{CallError, Client, ClientOptions};
use crate::wire::server::{Answer, Counters, Handler, Limits, ListenOn, Server, listen};
use crate::wire::{Exception, Service};

/// A server on a free port of loopback.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    pub(super) fn start<S: Service>(handler: impl Handler<S>, limits: Limits) -> Running {
        let listener = listen(ListenOn::Address((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let server = Server::new(listener, handler, limits);
        let (stop, stopped) = watch::channel(false);
        let address = server.local_addr().unwrap();
        let counters = server.counters();
        let task = tokio::spawn(server.run::<S>(stopped));
        Running { address, counters, stop, task }
    }

    pub(super) async fn client<S: Service>(&self) -> Client<S> {
        Client::connect(self.address, ClientOptions::default()).await.unwrap()
    }

    pub(super) async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(10), self.task).await.unwrap().unwrap();
    }
}

/// A cluster manager that answers a few calls in a way that can be told apart.
pub(super) async fn answer(_: SocketAddr, call: Call) -> Answer<Reply> {
    match call {
        Call::GetNextSessionId => Answer::Reply(Reply::GetNextSessionId("202611210003.1".into())),
        Call::SessionHeartbeat { handle: Some(handle) } if handle == "good" => {
            Answer::Reply(Reply::SessionHeartbeat)
        }
        Call::SessionHeartbeat { handle } => {
            Answer::Exception(Exception::invalid_session_handle(handle.unwrap_or_default()))
        }
        Call::SetSafeMode { safe_mode } => Answer::Reply(Reply::SetSafeMode(safe_mode)),
        _ => Answer::Close,
    }
}

#[tokio::test]
async fn calls_are_answered_on_a_framed_stream() {
    let server = Running::start::<ClusterManager>(answer, Limits::default());
    let mut client = server.client::<ClusterManager>().await;
    assert_eq!(client.get_next_session_id().await.unwrap(), "202611210003.1");
    client.session_heartbeat("good".to_owned()).await.unwrap();
    let error = client.session_heartbeat("bad".to_owned()).await.unwrap_err();
    let CallError::Exception(Exception::InvalidSessionHandle(exception)) = error else {
        panic!("{error}");
    };
    assert_eq!(exception.handle, "bad");
    assert!(client.set_safe_mode(true).await.unwrap());
    assert!(matches!(client.persist_state().await, Err(CallError::Closed)));
    assert!(matches!(client.persist_state().await, Err(CallError::Spent)));
    server.stop().await;
}

#[tokio::test]
async fn calls_are_answered_on_a_bare_stream() {
    let driver = |_: SocketAddr, call| async move {
        Answer::<SessionDriverReply>::Reply(match call {
            SessionDriverCall::GrantResource { .. } => SessionDriverReply::GrantResource,
            SessionDriverCall::RevokeResource { .. } => SessionDriverReply::RevokeResource,
            SessionDriverCall::ProcessDeadNode { .. } => SessionDriverReply::ProcessDeadNode,
        })
    };
    let server = Running::start::<SessionDriver>(driver, Limits::default());
    let mut client = server.client::<SessionDriver>().await;
    client.process_dead_node("s".to_owned(), "node1".to_owned()).await.unwrap();
    client.revoke_resource("s".to_owned(), vec![], false).await.unwrap();
    client.grant_resource(None, None).await.unwrap();
    assert_eq!(server.counters.calls(), 3);
    server.stop().await;
}
