//! The calls of `ClusterManagerService` that concern only the engine, in the live service: carries out the
//! steps of [`handling`], with look-ups and turns.

use std::net::SocketAddr;
use std::sync::Arc;

use super::access::Access;
use super::core::{Applied, Core};
use super::handling::{self, SLICE, Step, no_rack};
use super::large_calls::Entrance;
use super::racks::Racks;
use super::translate;
use super::translate::calls::{Question, not_allowed};
use corona_config::HostFiles;
use corona_engine::{Input, Refusal};
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Answered,
};
use corona_wire::server::Answer;

/// Answers calls from the engine, and changes nothing else.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) core: Arc<Core>,
    pub(super) access: Arc<Access>,
    pub(super) racks: Racks,
    pub(super) host_files: HostFiles,
    pub(super) entrance: Entrance,
}

/// A reply, and the record to commit before it is sent.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) answer: Answer<Answered>,
    /// The record of the journal that the answer depends on; 0 for none. `None` if it shows the present
    /// state, and so depends on all records so far.
    pub(super) record: Option<u64>,
}

impl From<Answer<Answered>> for PendingReply {
    fn from(answer: Answer<Answered>) -> PendingReply {
        PendingReply { answer, record: None }
    }
}

impl Calls {
    /// The answer to a call that exceeds a bound, or that its caller may not make.
    pub(super) async fn objection(
        &self,
        peer: SocketAddr,
        call: &Call,
    ) -> Option<Answer<Answered>> {
        if let Some((excess, answer)) = self.entrance.door.objection(call) {
            let method = <ClusterManager as corona_wire::Service>::method_name(call);
            tracing::warn!("{method} from {peer}: {excess}");
            return Some(answer);
        }
        let objection = self.access.objection(peer, call).await?;
        tracing::warn!("{objection}");
        Some(not_allowed(call, objection))
    }

    /// Answers a call to which there is no objection. It does not take `setSafeMode` and
    /// `persistState`.
    pub(super) async fn answer(&self, peer: SocketAddr, call: Call) -> PendingReply {
        let ended = translate::calls::ended_before(&call);
        let question =
            match handling::first_step(&self.entrance.door, &self.racks, &*self.core, call) {
                Step::Apply(question) => question,
                Step::FindRacks { mut question, hosts, purpose } => {
                    match self.racks.search(purpose, peer.ip()).racks_of(hosts).await {
                        Ok(racks) => question.place(racks),
                        Err(error) => return no_rack(&error).into(),
                    }
                    question
                }
                Step::Answer(answer) => return answer.into(),
                Step::Refuse(method, refusal) => return refused(method, refusal).into(),
                Step::Exceeds { method, session, excess } => {
                    tracing::warn!("{method} of {session} from {peer}: {excess}");
                    return excess.of_session().into();
                }
                Step::ReadHostFiles => return self.refresh_nodes().await.into(),
                Step::ListSessions => return self.list_sessions().await.into(),
                Step::KillSessions(args) => return self.kill_sessions(peer, args).await.into(),
                Step::RequestInSlices(session, requests) => {
                    return self.request_in_slices(peer, session.into(), requests).await.into();
                }
            };
        match &question.input {
            Input::HeartbeatNode { report, .. } => {
                if let Some(ended) = ended {
                    tracing::info!(
                        "Node {} reports which nodes have ended: {ended:?}",
                        report.name
                    );
                    if let Err(refusal) = self.core.apply(ended) {
                        return refused(question.form.method, refusal).into();
                    }
                }
                self.apply(question)
            }
            Input::StartSession { .. } | Input::RequestResources { .. } => {
                let _turn = self.entrance.new_work.acquire().await;
                self.apply(question)
            }
            Input::ReleaseResources { ids, .. } if ids.len() > SLICE => {
                self.apply_in_slices(peer, question).await.into()
            }
            Input::NodeFeedback { handle, reports, .. } => {
                tracing::info!("Received feedback from session {handle}");
                if reports.len() <= SLICE {
                    return self.apply(question);
                }
                self.apply_in_slices(peer, question).await.into()
            }
            Input::KillSession { handle } => {
                tracing::info!("Killing session {handle}");
                self.apply(question)
            }
            _ => self.apply(question),
        }
    }

    fn apply(&self, Question { input, form }: Question) -> PendingReply {
        let Applied { reply, record } = self.core.apply_recorded(input);
        if let Err(refusal) = &reply {
            log_refusal(form.method, refusal);
        }
        PendingReply { answer: translate::calls::answer(form, reply), record: Some(record) }
    }

    /// Spec: cluster-manager/02 §3.11. A file that cannot be read leaves all as it is.
    async fn refresh_nodes(&self) -> Answer<Answered> {
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
                match self.core.apply(Input::HostsChanged { hosts: loaded.hosts }) {
                    Ok(_) => Answer::Reply(Answered::RefreshNodes),
                    Err(refusal) => refused("refreshNodes", refusal),
                }
            }
            Ok(Err(errors)) => translate::fault(errors.to_string()),
            Err(error) => translate::fault(format!("the host files were not read: {error}")),
        }
    }
}

/// The answer to a call of `method` that the engine has refused.
pub(super) fn refused(method: &str, refusal: Refusal) -> Answer<Answered> {
    log_refusal(method, &refusal);
    translate::refusal(refusal)
}

fn log_refusal(method: &str, refusal: &Refusal) {
    if *refusal == Refusal::SafeMode {
        tracing::info!("{method}() called while ClusterManager is in Safe Mode");
    } else if let Answer::Fault(fault) = translate::refusal::<()>(refusal.clone()) {
        tracing::error!("{}", fault.message);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;
    use std::time::Duration;

    use super::*;
    use crate::arrivals::Arrivals;
    use crate::clock::Clock;
    use crate::names::Resolver;
    use crate::notifier::Wake;
    use crate::origin::new_engine;
    use crate::outlet::Outlet;
    use crate::testing::{Effects, reach};
    use corona_cluster_pages::metrics::Metrics;
    use corona_config::{self as config, ClusterManagerSettings};
    use corona_engine::{Engine, Notification, Record};
    use corona_model::settings::Hosts;
    use corona_model::types::{Address, Millis};
    use corona_wire::generated as wire;

    fn calls(settings: ClusterManagerSettings, outlet: Arc<dyn Outlet>) -> Calls {
        let clock = Clock::new();
        let engine = new_engine(&settings, clock.now(), &Hosts::default()).unwrap();
        let names = reach(&settings.names).names;
        Calls {
            core: Arc::new(Core::new(engine, clock, outlet, Arc::<Metrics>::default())),
            entrance: Entrance::new(&settings),
            access: Arc::new(Access::new(settings.access.clone(), names)),
            racks: Racks::new(settings.topology, settings.racks, &Resolver::system()),
            host_files: settings.host_files,
        }
    }

    /// The lists that the engine was given at once, and how often another task has run before.
    #[derive(Debug, Default)]
    struct Slices {
        turns: AtomicUsize,
        seen: Mutex<Vec<Slice>>,
    }

    #[derive(Clone, Copy, Debug)]
    struct Slice {
        entries: usize,
        turns: usize,
    }

    impl Outlet for Slices {
        fn before(&self, _now: Millis, input: &Input, _engine: &Engine) {
            let entries = match input {
                Input::RequestResources { requests, .. } | Input::MoreRequests { requests, .. } => {
                    requests.len()
                }
                Input::ReleaseResources { ids, .. } => ids.len(),
                Input::NodeFeedback { reports, .. } => reports.len(),
                _ => return,
            };
            let turns = self.turns.load(Ordering::Relaxed);
            self.seen.lock().unwrap().push(Slice { entries, turns });
        }

        fn notify(&self, _: Arc<str>, _: Address, _: Notification) -> Option<Wake> {
            None
        }

        fn forget_session(&self, _: &Arc<str>) {}

        fn resume_notifications(&self) {}

        fn record(&self, _: Millis, _: &Record, _: &Arrivals) {}

        fn records(&self, _: &[Record]) {}

        fn pass(&self, _: &[Record], _: Duration) {}
    }

    #[tokio::test]
    async fn a_long_list_is_applied_in_slices_and_others_run_between_them() {
        const MANY: usize = 5 * SLICE + 1;
        let slices = Arc::new(Slices::default());
        let calls = calls(config::load(None, &[]).unwrap().settings, slices.clone());
        let peer: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let handle = match calls.answer(peer, Call::GetNextSessionId).await.answer {
            Answer::Reply(Answered::GetNextSessionId(handle)) => Some(handle),
            other => panic!("{other:?}"),
        };
        let address = wire::InetAddress::new("127.0.0.1".to_owned(), 1);
        let (name, user) = ("large".to_owned(), "user".to_owned());
        let info = wire::SessionInfo::new(address, name, user, None, None, None, None, None, None);
        let start = Call::SessionStart { handle: handle.clone(), info: Some(info) };
        assert!(matches!(calls.answer(peer, start).await.answer, Answer::Reply(_)));
        tokio::spawn({
            let slices = slices.clone();
            async move {
                loop {
                    slices.turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });

        let ids = 1..=i32::try_from(MANY).unwrap();
        let request =
            |id| wire::ResourceRequest::new(id, None, None, wire::ResourceType::MAP, None);
        let requests = Some(ids.clone().map(request).collect());
        let report = wire::NodeUsageReport::new("nobody".to_owned(), 0, 0, 0, 9, 0, 0, 9);
        let (types, reports) = (Some(vec![wire::ResourceType::MAP]), Some(vec![report; MANY]));
        for call in [
            Call::RequestResource { handle: handle.clone(), requests },
            Call::ReleaseResource { handle: handle.clone(), ids: Some(ids.collect()) },
            Call::NodeFeedback { handle: handle.clone(), types, reports },
        ] {
            let method = <ClusterManager as corona_wire::Service>::method_name(&call);
            let answer = calls.answer(peer, call).await.answer;
            assert!(matches!(answer, Answer::Reply(_)), "{method}: {answer:?}");
            let seen = std::mem::take(&mut *slices.seen.lock().unwrap());
            assert_eq!(seen.iter().map(|slice| slice.entries).sum::<usize>(), MANY, "{method}");
            assert!(seen.iter().all(|slice| slice.entries <= SLICE), "{method}: {seen:?}");
            // Tasks that yield change their order each time, so two slices may follow each other.
            let others_run = |three: &[Slice]| three[0].turns < three[2].turns;
            assert!(seen.windows(3).all(others_run), "{method}: {seen:?}");
        }
    }

    #[tokio::test]
    async fn calls_in_flight_do_not_wait_for_new_requests() {
        let effects = Arc::new(Effects::default());
        let calls = calls(config::load(None, &[]).unwrap().settings, effects);
        let peer: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let handle = || Some("no such session".to_owned());

        let others = calls.entrance.new_work.acquire().await.unwrap();
        let request = Call::RequestResource { handle: handle(), requests: Some(Vec::new()) };
        let mut request = pin!(calls.answer(peer, request));
        let waits = poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_pending()));
        assert!(waits.await, "others were first");
        for call in [
            Call::SessionHeartbeat { handle: handle() },
            Call::ReleaseResource { handle: handle(), ids: Some(vec![1]) },
            Call::SessionEnd { handle: handle(), status: None },
        ] {
            assert!(matches!(calls.answer(peer, call).await.answer, Answer::Exception(_)));
        }
        drop(others);
        assert!(matches!(request.await.answer, Answer::Exception(_)));
    }
}
