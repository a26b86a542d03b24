//! Emulated job trackers: one task for each concurrent session, which starts sessions one after
//! another and drives each as planned.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until, timeout};

use super::callbacks::CallbackServer;
use super::faults::FaultKind;
use super::meter::{Count, Measure};
use super::plan::{Crowd, Driver};
use super::session::{LoadSession, Next};
use super::world::{Caller, Failure, LoadWorld, Phase};
use corona_model::types::ResourceType;
use corona_wire::Exception;
use corona_wire::calls::{ClusterManagerCall as Call, ClusterManagerReply as Reply};
use corona_wire::client::CallError;
use corona_wire::generated::{
    InetAddress, PoolInfoStrings, SessionInfo, SessionPriority, SessionStatus,
};

/// Between heartbeats of a session.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// After a failure, before the next session is started.
const PAUSE: Duration = Duration::from_millis(200);

/// A crowd in a run: the state that its sessions share.
#[derive(Debug)]
pub(super) struct CrowdRun {
    pub(super) plan: Crowd,
    request_to_grant: Arc<Measure>,
    job: Arc<Measure>,
    pub(super) near: Arc<Count>,
    pub(super) far: Arc<Count>,
    pub(super) late_grants: Arc<Count>,
    pub(super) repeated_grants: Arc<Count>,
    pub(super) lost_slots: Arc<Count>,
    waiting: AtomicI64,
    granted: AtomicU64,
    start: Arc<Measure>,
    request: Arc<Measure>,
    release: Arc<Measure>,
    heartbeat: Arc<Measure>,
    end: Arc<Measure>,
}

impl CrowdRun {
    pub(super) fn new(world: &LoadWorld, plan: Crowd) -> CrowdRun {
        let measure = |name: &str| world.meter.measure(name);
        let count = |name| world.meter.count(name);
        CrowdRun {
            request_to_grant: measure(&format!("{}: request to grant", plan.name)),
            job: measure(&format!("{}: job", plan.name)),
            plan,
            near: count("maps on a host that they wanted"),
            far: count("maps elsewhere"),
            late_grants: count("grants of withdrawn requests"),
            repeated_grants: count("grants repeated over a new connection"),
            lost_slots: count("slots taken back or dead"),
            waiting: AtomicI64::new(0),
            granted: AtomicU64::new(0),
            start: measure("sessionStart"),
            request: measure("requestResource"),
            release: measure("releaseResource"),
            heartbeat: measure("sessionHeartbeat"),
            end: measure("sessionEnd"),
        }
    }

    /// More requests wait, or less.
    pub(super) fn add_waiting(&self, more: i64) {
        self.waiting.fetch_add(more, Ordering::Relaxed);
    }

    /// A request was granted after so long.
    pub(super) fn count_grant(&self, waited: Duration) {
        self.granted.fetch_add(1, Ordering::Relaxed);
        self.request_to_grant.record(waited);
    }

    /// Pending requests and grants so far.
    pub(super) fn waiting_and_granted(&self) -> (i64, u64) {
        (self.waiting.load(Ordering::Relaxed), self.granted.load(Ordering::Relaxed))
    }
}

/// Runs sessions one after another, after a delay, until the run stops; then releases everything,
/// reports that over `drained`, and ends the last one when it is time.
pub(super) async fn run(
    world: Arc<LoadWorld>,
    crowd: Arc<CrowdRun>,
    callbacks: Arc<CallbackServer>,
    (number, delay): (u64, Duration),
    drained: mpsc::Sender<()>,
) {
    let mut phase = world.phase.subscribe();
    let mut over = world.phase.subscribe();
    let _ = timeout(delay, phase.wait_for(|phase| *phase != Phase::Running)).await;
    let mut worker = Worker { world, crowd, callbacks, number, drained: Some(drained) };
    tokio::select! {
        () = worker.work(&mut phase) => {}
        _ = over.wait_for(|phase| *phase == Phase::Over) => {}
    }
}

struct Worker {
    world: Arc<LoadWorld>,
    crowd: Arc<CrowdRun>,
    callbacks: Arc<CallbackServer>,
    number: u64,
    drained: Option<mpsc::Sender<()>>,
}

/// Why a session went no further.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Error(#[from] CallError),
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl Worker {
    async fn work(&mut self, phase: &mut watch::Receiver<Phase>) {
        while self.world.is_running() {
            let Err(stop) = self.one_session(phase).await else { continue };
            self.blame(&stop);
            sleep(PAUSE).await;
        }
        // Whatever waits for this one waits no longer.
        self.drained = None;
    }

    fn blame(&self, stop: &Stop) {
        let kind = match stop {
            Stop::Error(CallError::Exception(Exception::InvalidSessionHandle(_))) => {
                if self.crowd.plan.driver != Driver::Prompt {
                    return; // A cluster manager is right to give it up.
                }
                FaultKind::SessionLost
            }
            _ => FaultKind::CallFailed,
        };
        self.world.faults.note(kind, || format!("a session of {}: {stop}", self.crowd.plan.name));
    }

    /// From the start of a session to its end.
    async fn one_session(&mut self, phase: &mut watch::Receiver<Phase>) -> Result<(), Stop> {
        let mut caller = self.world.connect().await?;
        let begin = Instant::now();
        let start = self.crowd.start.clone();
        let (reply, _) = self.world.call(&mut caller, &start, Call::GetNextSessionId).await;
        let reply = reply?;
        let Reply::GetNextSessionId(handle) = reply else { return Ok(()) };
        let (world, crowd) = (self.world.clone(), self.crowd.clone());
        let seed = self.number;
        let session = Arc::new(LoadSession::new(world, crowd, handle.clone(), seed));
        self.world.register(&session);
        let info = Some(self.info());
        let started = Call::SessionStart { handle: Some(handle.clone()), info };
        let lived = match self.world.call(&mut caller, &start, started).await {
            // The first attempt was not answered, and has started the session.
            (Ok(_), _) | (Err(CallError::Exception(_)), true) => {
                self.live(&mut caller, &session, phase, begin).await
            }
            (Err(error), _) => Err(error.into()),
        };
        let status = Some(SessionStatus::SUCCESSFUL);
        let ending = Call::SessionEnd { handle: Some(handle.clone()), status };
        let ended = match lived {
            Ok(()) => match self.world.call(&mut caller, &self.crowd.end, ending).await {
                // The first attempt was not answered, and has ended the session.
                (Ok(_), _) | (Err(CallError::Exception(_)), true) => Ok(()),
                (Err(error), _) => Err(error.into()),
            },
            failed => failed,
        };
        session.abandon();
        self.world.forget(&handle);
        ended
    }

    fn info(&self) -> SessionInfo {
        let address = match self.crowd.plan.driver {
            Driver::Prompt => self.callbacks.prompt,
            Driver::Dead => self.callbacks.dead,
            Driver::Stuck => self.callbacks.stuck,
        };
        let address = InetAddress::new(address.ip().to_string(), address.port().into());
        SessionInfo {
            address,
            name: format!("corona load {}", self.crowd.plan.name),
            user_id: "load".into(),
            group_ids: None,
            pool_info_strings: Some(PoolInfoStrings::new("default".into(), "defaultpool".into())),
            // As every Java job tracker sends it; the original fails on sessions without it.
            priority: Some(SessionPriority::NORMAL),
            no_preempt: Some(false),
            url: None,
            deadline: None,
        }
    }

    /// The jobs of a session, and its state when the run stops.
    async fn live(
        &mut self,
        caller: &mut Caller,
        session: &LoadSession,
        phase: &mut watch::Receiver<Phase>,
        begin: Instant,
    ) -> Result<(), Stop> {
        let mut heartbeat_due = begin + HEARTBEAT;
        let jobs = self.crowd.plan.jobs_per_session.unwrap_or(u32::MAX);
        for _ in 0..jobs {
            let begin = Instant::now();
            if !self.job(caller, session, phase, &mut heartbeat_due).await? {
                break;
            }
            self.crowd.job.record_since(begin);
            let pause = self.crowd.plan.job.pause;
            if pause > Duration::ZERO {
                let _ = timeout(pause, phase.wait_for(|p| *p != Phase::Running)).await;
            }
        }
        if self.world.is_running() {
            return Ok(());
        }
        let ids = session.withdraw_all();
        for ids in ids.chunks(10_000) {
            self.release(caller, session, ids.to_vec()).await?;
        }
        self.drained = None;
        let _ = phase.wait_for(|phase| *phase >= Phase::Ending).await;
        Ok(())
    }

    /// Requests everything, releases what is granted. False if the run stops meanwhile.
    async fn job(
        &self,
        caller: &mut Caller,
        session: &LoadSession,
        phase: &mut watch::Receiver<Phase>,
        heartbeat_due: &mut Instant,
    ) -> Result<bool, Stop> {
        let job = &self.crowd.plan.job;
        let handle = || Some(session.handle.clone());
        for (kind, mut left) in [(ResourceType::Map, job.maps), (ResourceType::Reduce, job.reduces)]
        {
            while left > 0 && self.world.is_running() {
                let count = left.min(job.request_batch);
                left -= count;
                let requests = session.ask(kind, count);
                if requests.is_none() {
                    return Ok(false);
                }
                let call = Call::RequestResource { handle: handle(), requests };
                self.world.call(caller, &self.crowd.request, call).await.0?;
                if let Next::Release(ids) = session.next(Instant::now()) {
                    self.release(caller, session, ids).await?;
                }
            }
        }
        while self.world.is_running() {
            if Instant::now() >= *heartbeat_due {
                let call = Call::SessionHeartbeat { handle: handle() };
                self.world.call(caller, &self.crowd.heartbeat, call).await.0?;
                *heartbeat_due = Instant::now() + HEARTBEAT;
            }
            let wait_until = match session.next(Instant::now()) {
                Next::Done => return Ok(true),
                Next::Release(ids) => {
                    self.release(caller, session, ids).await?;
                    continue;
                }
                Next::Wait(until) => until.unwrap_or(*heartbeat_due).min(*heartbeat_due),
            };
            tokio::select! {
                () = session.wake.notified() => {}
                () = sleep_until(wait_until.into()) => {}
                _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
            }
        }
        Ok(false)
    }

    async fn release(
        &self,
        caller: &mut Caller,
        session: &LoadSession,
        ids: Vec<i32>,
    ) -> Result<(), CallError> {
        let count = ids.len();
        let call = Call::ReleaseResource { handle: Some(session.handle.clone()), ids: Some(ids) };
        self.world.call(caller, &self.crowd.release, call).await.0?;
        session.acknowledge(count);
        Ok(())
    }
}
