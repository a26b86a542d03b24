//! The Thrift service: every call passes here. [`Calls`] answers those that concern the engine
//! alone; this file handles those with effects outside of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use super::Parts;
use super::calls::{Calls, PendingReply};
use super::given_sessions::GivenSessions;
use super::large_calls::Entrance;
use super::programs::Sender;
use super::racks::Racks;
use super::revocations::NodeAccess;
use super::translate;
use corona_cluster_pages::metrics::place_of_call;
use corona_cluster_pages::operations::Operation;
use corona_process::panics::spawn_detached;
use corona_wire::Exception;
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Answered,
};
use corona_wire::server::{Answer, Handler, Peer};

/// Answers the calls of peers.
#[derive(Debug)]
pub(super) struct Rpc {
    parts: Parts,
    calls: Calls,
    given_sessions: GivenSessions,
    node_access: NodeAccess,
}

impl Handler<ClusterManager> for Rpc {
    async fn call(&self, peer: Peer, mut call: Call) -> Answer<Answered> {
        let (method, started) = (place_of_call(&call), Instant::now());
        let node = self.node_access.node_of(&call);
        let sender = Sender::of(&call);
        let objection = peer.user().and_then(|user| self.hold_to_user(user, &mut call));
        let PendingReply { mut answer, mut record } = match objection {
            Some(objection) => {
                Answer::Exception(Exception::invalid_session_handle(objection)).into()
            }
            None => self.answer(peer.address, call).await,
        };
        if let (Some(user), Answer::Reply(Answered::GetNextSessionId(handle))) =
            (peer.user(), &answer)
        {
            self.given_sessions.note(user, handle);
        }
        if let (Some(node), Answer::Reply(_)) = (node, &answer) {
            self.node_access.heard(&peer, &node);
        }
        if let Some(sender) = sender
            && self.parts.programs.heard(&self.parts.core, sender, &mut answer)
        {
            record = None;
        }
        match record {
            Some(0) => {}
            Some(record) => {
                let asked = Instant::now();
                self.calls.core.committed_up_to(record).await;
                self.parts.metrics.commit_wait.record(asked.elapsed());
            }
            None => self.calls.core.committed().await,
        }
        self.parts.metrics.count_call(method, started.elapsed(), &answer);
        answer
    }

    fn may_reply(&self) -> bool {
        self.calls.core.may_reply()
    }

    /// These may wait for the resolver, the topology script or other calls, and change nothing before.
    fn may_be_dropped(&self, call: &Call) -> bool {
        matches!(
            call,
            Call::SessionStart { .. }
                | Call::RequestResource { .. }
                | Call::NodeHeartbeat { .. }
                | Call::GetSessions
        )
    }
}

impl Rpc {
    pub(super) fn new(parts: Parts, racks: Racks, entrance: Entrance) -> Rpc {
        let (core, access) = (parts.core.clone(), parts.access.clone());
        let given_sessions = core.look(|engine, _| GivenSessions::new(engine));
        let host_files = parts.host_files.clone();
        let node_access = NodeAccess::new(core.clone(), &parts.gate);
        let calls = Calls { core, access, racks, host_files, entrance };
        Rpc { parts, calls, given_sessions, node_access }
    }

    /// Has a member that submits jobs start sessions as the user that its certificate names, under ids that
    /// it was given, and change that user's sessions only. Returns why it may not make the call.
    fn hold_to_user(&self, user: &str, call: &mut Call) -> Option<String> {
        let handle = match call {
            Call::SessionStart { handle, info: Some(info) } => {
                info.user_id = user.to_owned();
                let handle = handle.as_deref()?;
                let may_start = self.given_sessions.may_start(user, handle);
                return (!may_start).then(|| format!("the id {handle} was not given to {user}"));
            }
            Call::SessionUpdateInfo { handle, info } => {
                if let Some(info) = info {
                    info.user_id = user.to_owned();
                }
                handle
            }
            Call::SessionEnd { handle, .. }
            | Call::SessionHeartbeat { handle }
            | Call::SessionHeartbeatV2 { handle, .. }
            | Call::RequestResource { handle, .. }
            | Call::ReleaseResource { handle, .. }
            | Call::NodeFeedback { handle, .. } => handle,
            _ => return None,
        };
        let handle = handle.as_deref()?;
        let owner = self.calls.core.look(|engine, now| {
            engine.session_at(handle, now).map(|session| session.info.user_id.clone())
        });
        // One that does not run is refused as always.
        let owner = owner.filter(|owner| **owner != *user)?;
        tracing::warn!(user, handle, %owner, "Refused a call that concerns the session of another user");
        Some(format!("session {handle} is of another user than {user}"))
    }

    async fn answer(&self, peer: SocketAddr, call: Call) -> PendingReply {
        if let Some(answer) = self.calls.objection(peer, &call).await {
            return answer.into();
        }
        match call {
            Call::SetSafeMode { safe_mode: on } => self.set_safe_mode(peer, on).await.into(),
            Call::PersistState => self.persist_state(peer).await.into(),
            call => {
                let named = named_session(&call);
                let operation = match &call {
                    Call::RefreshNodes => Some(Operation::RefreshNodes),
                    Call::RestartNodes { args: Some(_) } => Some(Operation::RestartNodes),
                    _ => None,
                };
                let due = self.calls.answer(peer, call).await;
                if let (Some(handle), Answer::Reply(_)) = (named, &due.answer) {
                    self.note_peer(&handle, peer);
                }
                if let Some(operation) = operation {
                    self.note_answer(peer, operation, &due.answer);
                }
                due
            }
        }
    }

    async fn set_safe_mode(&self, peer: SocketAddr, on: bool) -> Answer<Answered> {
        let outcome = self.parts.safe_mode.set(&self.calls.core, on).await;
        let done = outcome.is_ok();
        self.note(peer, Operation::SetSafeMode { on }, outcome.map_err(|e| e.to_string()));
        if !on {
            // It runs to its end even if the caller has disconnected.
            let ended = self.parts.persist.clone().safe_mode_ended();
            spawn_detached("what follows the end of safe mode", ended);
        }
        Answer::Reply(Answered::SetSafeMode(done))
    }

    async fn persist_state(&self, peer: SocketAddr) -> Answer<Answered> {
        match tokio::spawn(self.parts.persist.clone().run()).await {
            Ok(outcome) => {
                let done = outcome.is_ok();
                self.note(peer, Operation::PersistState, outcome.map_err(|e| e.to_string()));
                Answer::Reply(Answered::PersistState(done))
            }
            Err(error) => {
                let answer = translate::fault(format!("the state was not persisted: {error}"));
                self.note_answer(peer, Operation::PersistState, &answer);
                answer
            }
        }
    }

    /// Notes for which peer the session's host is looked up.
    fn note_peer(&self, handle: &Arc<str>, peer: SocketAddr) {
        self.parts.notifier.note_peer(handle, peer.ip());
        // If the session has ended in between, nothing else removes the peer.
        if !self.calls.core.look(|engine, _| engine.is_running(handle)) {
            self.parts.notifier.forget_peer(handle);
        }
    }

    /// Keeps the outcome of an administrative call, for the pages and tools.
    fn note(&self, peer: SocketAddr, operation: Operation, outcome: Result<(), String>) {
        let now = self.calls.core.look(|_, now| now);
        self.parts.operations.note(operation, now, peer.ip(), outcome);
    }

    /// The same where the answer has the reason.
    fn note_answer(&self, peer: SocketAddr, operation: Operation, answer: &Answer<Answered>) {
        let outcome = match answer {
            Answer::Reply(_) => Ok(()),
            Answer::Exception(exception) => Err(exception.to_string()),
            Answer::Fault(fault) => Err(fault.message.clone()),
            Answer::Close => Err("the call has no reply".to_owned()),
        };
        self.note(peer, operation, outcome);
    }
}

/// The session that a call starts under the name of a host, which is no address.
fn named_session(call: &Call) -> Option<Arc<str>> {
    let Call::SessionStart { handle: Some(handle), info: Some(info) } = call else { return None };
    info.address.host.parse::<IpAddr>().is_err().then(|| handle.as_str().into())
}
