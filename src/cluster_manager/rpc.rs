//! The calls of `ClusterManagerService`, each translated for the engine and back.
//!
//! No rule of scheduling is here: what may be refused is refused by the engine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use super::access::Access;
use super::core::Core;
use super::large_calls::{self, Entrance};
use super::metrics::{Metrics, place_of_call};
use super::operations::{Operation, Operations};
use super::persist::Persist;
use super::racks::{Known, Purpose, RackError, Racks};
use super::safe_mode::SafeModeSwitch;
use super::translate;
use corona_config::HostFiles;
use corona_engine::{Input, RackWanted, Refusal, Reply};
use corona_model::types::{ResourceRequest, SessionStatus};
use corona_wire::Exception;
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Answered,
};
use corona_wire::generated as wire;
use corona_wire::server::{Answer, Handler};

/// Answers the calls of peers.
#[derive(Debug)]
pub(super) struct Rpc {
    pub(super) core: Arc<Core>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) access: Arc<Access>,
    pub(super) racks: Racks,
    pub(super) host_files: HostFiles,
    pub(super) safe_mode: Arc<SafeModeSwitch>,
    pub(super) persist: Arc<Persist>,
    pub(super) operations: Arc<Operations>,
    pub(super) entrance: Entrance,
}

impl Handler<ClusterManager> for Rpc {
    async fn call(&self, peer: SocketAddr, call: Call) -> Answer<Answered> {
        let (method, started) = (place_of_call(&call), Instant::now());
        let answer = self.answer(peer, call).await;
        self.metrics.count_call(method, started.elapsed(), &answer);
        answer
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
    async fn answer(&self, peer: SocketAddr, call: Call) -> Answer<Answered> {
        if let Some((excess, answer)) = self.entrance.door.objection(&call) {
            let method = <ClusterManager as corona_wire::Service>::method_name(&call);
            tracing::warn!("{method} from {peer}: {excess}");
            return answer;
        }
        if let Some(objection) = self.access.objection(peer, &call).await {
            tracing::warn!("{objection}");
            return match call {
                Call::SessionStart { .. } => {
                    Answer::Exception(Exception::invalid_session_handle(objection))
                }
                _ => translate::fault(objection),
            };
        }
        match call {
            Call::GetNextSessionId => self.next_session_id(),
            Call::SessionStart { handle: Some(handle), info: Some(info) } => {
                let _turn = self.entrance.new_work.acquire().await;
                self.start_session(peer, handle.into(), info)
            }
            Call::SessionUpdateInfo { handle: Some(handle), info: Some(info) } => {
                let info = translate::session_info(info);
                self.done(
                    Input::UpdateSession { handle: handle.into(), info },
                    Answered::SessionUpdateInfo,
                )
            }
            Call::SessionEnd { handle: Some(handle), status } => {
                // Without a status that we know the session ends all the same.
                let status = status.and_then(translate::session_status);
                let status = status.unwrap_or(SessionStatus::KilledAborted);
                self.done(Input::EndSession { handle: handle.into(), status }, Answered::SessionEnd)
            }
            Call::SessionHeartbeat { handle: Some(handle) } => self.done(
                Input::HeartbeatSession { handle: handle.into(), view: None },
                Answered::SessionHeartbeat,
            ),
            Call::SessionHeartbeatV2 { handle: Some(handle), args: Some(args) } => {
                let view = Some(translate::session_view(args));
                self.done(
                    Input::HeartbeatSession { handle: handle.into(), view },
                    Answered::SessionHeartbeatV2,
                )
            }
            // A fault would make the client give up the method for good.
            Call::SessionHeartbeatV2 { .. } => Answer::Close,
            Call::RequestResource { handle: Some(handle), requests: Some(requests) } => {
                self.request(peer, handle.into(), requests).await
            }
            Call::ReleaseResource { handle: Some(handle), ids: Some(ids) } => {
                self.release(peer, handle.into(), ids).await
            }
            Call::NodeHeartbeat { node: Some(node) } => self.heartbeat_node(peer, node).await,
            Call::NodeFeedback { handle, types: Some(types), reports: Some(reports) } => {
                self.feedback(peer, handle.unwrap_or_default().into(), types, reports).await
            }
            Call::RefreshNodes => {
                let answer = self.refresh_nodes().await;
                self.note_answer(peer, Operation::RefreshNodes, answer)
            }
            Call::RestartNodes { args: Some(args) } => {
                let wire::RestartNodesArgs { force, batch_size } = args;
                let answer = self.apply(Input::RestartNodes { force, batch_size }, |_| {
                    Some(Answered::RestartNodes(wire::RestartNodesResponse {}))
                });
                self.note_answer(peer, Operation::RestartNodes, answer)
            }
            Call::GetSessions => self.get_sessions().await,
            Call::GetSessionInfo { handle: Some(handle) } => {
                match self.core.look(|engine, _| engine.session_info(&handle)) {
                    Ok(info) => Answer::Reply(Answered::GetSessionInfo(
                        translate::session_info_to_wire(info),
                    )),
                    Err(refusal) => refused("getSessionInfo", refusal),
                }
            }
            Call::KillSession { id: Some(id) } => self.kill_session(id.into()),
            Call::KillSessions { args: Some(args) } => self.kill_sessions(peer, args).await,
            Call::GetActualPoolInfo { args: Some(args) } => match self.actual_pool(&args) {
                Ok((pool, _)) => Answer::Reply(Answered::GetActualPoolInfo(pool)),
                Err(refusal) => refused("getActualPoolInfo", refusal),
            },
            Call::GetActualPoolInfoV2 { args: Some(args) } => match self.actual_pool(&args) {
                Ok((pool_info_string, whitelist)) => {
                    Answer::Reply(Answered::GetActualPoolInfoV2(wire::ActualPoolInfoResponse {
                        pool_info_string,
                        whitelist,
                    }))
                }
                Err(refusal) => refused("getActualPoolInfoV2", refusal),
            },
            Call::SetSafeMode { safe_mode: on } => {
                let outcome = self.safe_mode.set(&self.core, on).await;
                let done = outcome.is_ok();
                self.note(peer, Operation::SetSafeMode { on }, outcome.map_err(|e| e.to_string()));
                if !on {
                    // It runs to its end even if the caller is gone.
                    tokio::spawn(self.persist.clone().safe_mode_ended());
                }
                Answer::Reply(Answered::SetSafeMode(done))
            }
            Call::PersistState => self.persist_state(peer).await,
            incomplete => translate::fault(format!(
                "an argument of {} is missing",
                <ClusterManager as corona_wire::Service>::method_name(&incomplete)
            )),
        }
    }

    fn next_session_id(&self) -> Answer<Answered> {
        self.apply(Input::NextSessionId, |reply| match reply {
            Reply::SessionId(id) => Some(Answered::GetNextSessionId(id)),
            _ => None,
        })
    }

    fn start_session(
        &self,
        peer: SocketAddr,
        handle: Arc<str>,
        info: wire::SessionInfo,
    ) -> Answer<Answered> {
        let info = translate::session_info(info);
        let started = handle.to_string();
        let named = info.address.host.parse::<IpAddr>().is_err().then(|| handle.clone());
        let answer = self.apply(Input::StartSession { handle, info }, |reply| match reply {
            Reply::Started { log_path, pool } => {
                Some(Answered::SessionStart(wire::SessionRegistrationData {
                    handle: started,
                    cluster_manager_info: wire::ClusterManagerInfo {
                        url: String::new(),
                        job_history_location: log_path,
                    },
                    pool_info_strings: translate::pool_name_to_wire(&pool),
                }))
            }
            _ => None,
        });
        if let (Some(handle), Answer::Reply(_)) = (named, &answer) {
            self.note_peer(handle, peer);
        }
        answer
    }

    /// Notes on whose behalf the session's host is looked up.
    fn note_peer(&self, handle: Arc<str>, peer: SocketAddr) {
        let notifier = self.core.notifier();
        notifier.note_peer(&handle, peer.ip());
        // If it has ended in between, nobody else will forget the peer.
        if !self.core.look(|engine, _| engine.is_running(&handle)) {
            notifier.forget_peer(&handle);
        }
    }

    async fn request(
        &self,
        peer: SocketAddr,
        handle: Arc<str>,
        requests: Vec<wire::ResourceRequest>,
    ) -> Answer<Answered> {
        if large_calls::is_large(&requests) {
            return self.request_in_slices(peer, handle, requests).await;
        }
        for request in &requests {
            if let Err(excess) = self.entrance.door.check_request(request) {
                tracing::warn!("requestResource of {handle} from {peer}: {excess}");
                return excess.of_session();
            }
        }
        let requests: Option<Vec<ResourceRequest>> =
            requests.into_iter().map(translate::request).collect();
        let Some(requests) = requests else {
            return translate::fault(format!("Bad resource type from session: {handle}"));
        };
        let hosts = requests.iter().flat_map(|request| &request.hosts);
        let racks = match self.racks.known(hosts) {
            Ok(Known::All(racks)) => Ok(racks),
            Ok(Known::NotAll(hosts)) => {
                if let Err(refusal) = self.core.look(|engine, _| engine.check_session(&handle)) {
                    return refused("requestResource", refusal);
                }
                self.racks.search(Purpose::Request, peer.ip()).racks_of(hosts).await
            }
            Err(error) => Err(error),
        };
        match racks {
            Ok(racks) => {
                let _turn = self.entrance.new_work.acquire().await;
                self.done(
                    Input::RequestResources { handle, requests, racks },
                    Answered::RequestResource,
                )
            }
            Err(error) => no_rack(&error),
        }
    }

    async fn heartbeat_node(
        &self,
        peer: SocketAddr,
        node: wire::ClusterNodeInfo,
    ) -> Answer<Answered> {
        let report = translate::node_report(node);
        let host = &report.address.host;
        let rack = match self.racks.known(std::iter::once(host)) {
            Ok(Known::All(mut racks)) => Ok(racks.pop().map(|(_, rack)| rack)),
            Ok(Known::NotAll(hosts)) => {
                match self.core.look(|engine, _| engine.rack_wanted(&report.name, host)) {
                    RackWanted::No => Ok(None),
                    RackWanted::Known(rack) => Ok(Some(rack)),
                    RackWanted::Yes => {
                        let mut search = self.racks.search(Purpose::Heartbeat, peer.ip());
                        let racks = search.racks_of(hosts).await;
                        racks.map(|mut racks| racks.pop().map(|(_, rack)| rack))
                    }
                }
            }
            Err(error) => Err(error),
        };
        let rack = match rack {
            Ok(rack) => rack,
            Err(error) => return no_rack(&error),
        };
        self.apply(Input::HeartbeatNode { report, rack }, |reply| match reply {
            Reply::NodeHeard { restart } => {
                Some(Answered::NodeHeartbeat(wire::NodeHeartbeatResponse { restart_flag: restart }))
            }
            _ => None,
        })
    }

    /// Spec: cluster-manager/02 §3.11. A file that cannot be read leaves all as it is.
    async fn refresh_nodes(&self) -> Answer<Answered> {
        if self.core.look(|engine, _| engine.safe_mode()) {
            return refused("refreshNodes", Refusal::SafeMode);
        }
        let files = self.host_files.clone();
        match tokio::task::spawn_blocking(move || files.load()).await {
            Ok(Ok(loaded)) => {
                for (path, entries) in &loaded.read {
                    tracing::info!("Reading hosts file: {}, read {entries} nodes", path.display());
                }
                tracing::info!(
                    "After refresh Included hosts: {} Excluded hosts: {}",
                    loaded.hosts.include.len(),
                    loaded.hosts.exclude.len()
                );
                self.done(Input::HostsChanged { hosts: loaded.hosts }, Answered::RefreshNodes)
            }
            Ok(Err(errors)) => translate::fault(errors.to_string()),
            Err(error) => translate::fault(format!("the host files were not read: {error}")),
        }
    }

    async fn persist_state(&self, peer: SocketAddr) -> Answer<Answered> {
        match tokio::spawn(self.persist.clone().run()).await {
            Ok(outcome) => {
                let done = outcome.is_ok();
                self.note(peer, Operation::PersistState, outcome.map_err(|e| e.to_string()));
                Answer::Reply(Answered::PersistState(done))
            }
            Err(error) => {
                let answer = translate::fault(format!("the state was not persisted: {error}"));
                self.note_answer(peer, Operation::PersistState, answer)
            }
        }
    }

    /// Keeps what became of an administrative call, for whoever asks why it failed.
    fn note(&self, peer: SocketAddr, operation: Operation, outcome: Result<(), String>) {
        let now = self.core.look(|_, now| now);
        self.operations.note(operation, now, peer.ip(), outcome);
    }

    /// The same where the answer has the reason.
    fn note_answer(
        &self,
        peer: SocketAddr,
        operation: Operation,
        answer: Answer<Answered>,
    ) -> Answer<Answered> {
        let outcome = match &answer {
            Answer::Reply(_) => Ok(()),
            Answer::Exception(exception) => Err(exception.to_string()),
            Answer::Fault(fault) => Err(fault.message.clone()),
            Answer::Close => Err("there is no answer".to_owned()),
        };
        self.note(peer, operation, outcome);
        answer
    }

    fn kill_session(&self, handle: Arc<str>) -> Answer<Answered> {
        tracing::info!("Killing session {handle}");
        self.done(Input::KillSession { handle }, Answered::KillSession)
    }

    fn actual_pool(
        &self,
        args: &wire::ActualPoolInfoArgs,
    ) -> Result<(wire::PoolInfoStrings, String), Refusal> {
        let asked = translate::pool_name(&args.pool_info_string);
        let (pool, whitelist) =
            self.core.look(|engine, _| engine.actual_pool(&asked, args.job_input_size))?;
        Ok((translate::pool_name_to_wire(&pool), whitelist.to_string()))
    }

    /// An input that is answered with nothing.
    pub(super) fn done(&self, input: Input, answered: Answered) -> Answer<Answered> {
        self.apply(input, |_| Some(answered))
    }

    fn apply(
        &self,
        input: Input,
        answer: impl FnOnce(Reply) -> Option<Answered>,
    ) -> Answer<Answered> {
        let name = name_in_log(&input);
        match self.core.apply(input) {
            // The engine gives each input the reply that belongs to it.
            Ok(reply) => answer(reply).map_or(Answer::Close, Answer::Reply),
            Err(refusal) => refused(name, refusal),
        }
    }
}

pub(super) fn refused(method: &str, refusal: Refusal) -> Answer<Answered> {
    match &refusal {
        Refusal::SafeMode => {
            tracing::info!("{method}() called while ClusterManager is in Safe Mode");
        }
        Refusal::Malformed(text) | Refusal::TooMany(text) => tracing::error!("{text}"),
        _ => {}
    }
    translate::refusal(refusal)
}

pub(super) fn no_rack(error: &RackError) -> Answer<Answered> {
    translate::fault(error.to_string())
}

/// The method as the original names it in its log. Spec: cluster-manager/02 §2.
fn name_in_log(input: &Input) -> &'static str {
    match input {
        Input::NextSessionId => "getNextSessionId",
        Input::StartSession { .. } => "sessionStart",
        Input::UpdateSession { .. } => "sessionUpdateInfo",
        Input::EndSession { .. } => "sessionEnd",
        Input::HeartbeatSession { view: None, .. } => "sessionHeartbeat",
        Input::HeartbeatSession { .. } => "sessionHeartbeatV2",
        Input::RequestResources { .. }
        | Input::ExpectRequests { .. }
        | Input::MoreRequests { .. } => "requestResource",
        Input::ReleaseResources { .. } => "releaseResource",
        Input::HeartbeatNode { .. } => "nodeHeartbeat",
        Input::NodeFeedback { .. } => "nodeFeedback",
        Input::HostsChanged { .. } => "refreshNodes",
        Input::RestartNodes { .. } => "restartNode",
        Input::KillSession { .. } => "killSession",
        Input::SetSafeMode { .. } => "setSafeMode",
        Input::ClearBlacklist { .. }
        | Input::SettingsChanged { .. }
        | Input::NotificationFailed { .. }
        | Input::HeldUp { .. }
        | Input::Tick
        | Input::Pass => "an internal step",
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::core::Clock;
    use crate::names::Resolver;
    use crate::notifier::{Notifier, Reach};
    use crate::web::events::Events;
    use crate::{new_engine, patience};
    use corona_config::{self as config, ClusterManagerSettings};
    use corona_model::settings::Hosts;

    fn rpc(settings: ClusterManagerSettings) -> Rpc {
        let clock = Clock::new();
        let engine = new_engine(&settings, clock.now(), Hosts::default()).unwrap();
        let metrics = Arc::new(Metrics::new());
        let reach = Reach::alone(&settings.names);
        let access = Arc::new(Access::new(settings.access.clone(), reach.names.clone()));
        let notifier = Notifier::new(patience(&settings), metrics.clone(), reach);
        let events = Arc::new(Events::new(clock.now(), 1));
        let core = Arc::new(Core::new(engine, clock, notifier, metrics.clone(), events));
        let entrance = Entrance::new(&settings);
        let safe_mode = SafeModeSwitch::new(settings.proxy_job_tracker_address, clock);
        let safe_mode = Arc::new(safe_mode);
        let persist = Persist::new(core.clone(), safe_mode.clone(), "none".into(), false);
        Rpc {
            core,
            metrics,
            entrance,
            access,
            racks: Racks::new(settings.topology, settings.racks, &Resolver::system()),
            host_files: settings.host_files,
            safe_mode,
            persist: Arc::new(persist),
            operations: Arc::default(),
        }
    }

    #[tokio::test]
    async fn what_is_under_way_does_not_wait_for_new_requests() {
        let rpc = rpc(config::load(None, &[]).unwrap().settings);
        let peer: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let handle = || Some("no such session".to_owned());

        let others = rpc.entrance.new_work.acquire().await.unwrap();
        let request = Call::RequestResource { handle: handle(), requests: Some(Vec::new()) };
        let mut request = pin!(rpc.call(peer, request));
        let waits = poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_pending()));
        assert!(waits.await, "others were first");
        for call in [
            Call::SessionHeartbeat { handle: handle() },
            Call::ReleaseResource { handle: handle(), ids: Some(vec![1]) },
            Call::SessionEnd { handle: handle(), status: None },
        ] {
            assert!(matches!(rpc.call(peer, call).await, Answer::Exception(_)));
        }
        drop(others);
        assert!(matches!(request.await, Answer::Exception(_)));
    }
}
