//! Starts the work for each order of the table. Nothing here waits.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::queues::QueuePlace;
use super::run::StopOrder;
use super::{TrackerCore, TrackerState, reporter, run};
use crate::ids;
use crate::localise::TaskKind;
use crate::table::Order;
use corona_hadoop::writables::{JobId, TaskAttemptId};
use corona_process::panics::caught;

/// A deletion that is not over.
#[derive(Clone, Debug)]
pub(super) enum Owed {
    Attempt {
        id: TaskAttemptId,
        /// Whether only the working directory is deleted.
        keep_output: bool,
    },
    Job(JobId),
}

impl TrackerCore {
    pub(super) fn carry_out(self: &Arc<Self>, state: &mut TrackerState, order: Order) {
        match order {
            Order::Start(run) => run::begin(self, state, run),
            Order::End(run) => state.order(run.number, StopOrder::End),
            Order::Release(run) => state.order(run.number, StopOrder::Release),
            Order::DeleteAttempt(id) => self.delete_attempt(state, &id, false),
            Order::DeleteWork(id) => self.delete_attempt(state, &id, true),
            Order::DeleteJob(id) => self.delete_job(state, &id),
            Order::StartReporter(job, session) => reporter::begin(self, state, job, session, None),
            // It ends as its other side is dropped.
            Order::StopReporter(job) => drop(state.reporters.remove(&job)),
            Order::ReportSoon(job) => {
                if let Some(reporter) = state.reporters.get(&job) {
                    reporter.soon();
                }
            }
        }
    }

    /// Does something on a task of its own, which [`stop`](super::Tracker::stop) waits for.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let running = self.stop.subscribe();
        let mut frozen = self.frozen.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                // The next program goes on with it.
                _ = frozen.wait_for(|frozen| *frozen) => {}
                done = caught(work) => {
                    if let Err(panic) = done {
                        tracing::error!(%panic, "a background task panicked");
                    }
                }
            }
            drop(running);
        });
    }

    /// Does a work on a job or an attempt in its turn. When it is over, however it ends, those behind
    /// it may begin.
    pub(super) async fn in_turn(
        self: Arc<Self>,
        job: JobId,
        place: QueuePlace,
        work: impl Future<Output = ()>,
    ) {
        // If this is dropped before its end, as when the next program goes on with it, nothing behind it may begin.
        let mut place = ManuallyDrop::new(place);
        place.turn().await;
        if let Err(panic) = caught(work).await {
            tracing::error!(%job, %panic, "work on a job panicked; continuing with its next order");
        }
        {
            let mut state = self.lock();
            state.queues.over(&job, place.number);
            state.owed.remove(&place.number);
        }
        drop(ManuallyDrop::into_inner(place));
    }

    pub(super) fn delete_attempt(
        self: &Arc<Self>,
        state: &mut TrackerState,
        id: &TaskAttemptId,
        keep_output: bool,
    ) {
        let Ok(name) = id.to_string().parse::<ids::AttemptId>() else { return };
        let place = state.queues.attempt(id);
        state.owed.insert(place.number, Owed::Attempt { id: id.clone(), keep_output });
        let shared = self.clone();
        let work = async move {
            let mut kinds = vec![TaskKind::Work];
            if !keep_output {
                kinds.push(TaskKind::AttemptCleanup);
                shared.parts.outputs.forget(&name);
            }
            for kind in kinds {
                shared.forget_attempt(&name, kind, keep_output).await;
            }
        };
        self.spawn(self.clone().in_turn(id.job().clone(), place, work));
    }

    pub(super) fn delete_job(self: &Arc<Self>, state: &mut TrackerState, id: &JobId) {
        let place = state.queues.deletion(id);
        state.owed.insert(place.number, Owed::Job(id.clone()));
        let (shared, job) = (self.clone(), id.clone());
        let work = async move {
            if let Ok(name) = job.to_string().parse() {
                shared.parts.localiser.forget(&name).await;
            }
        };
        self.spawn(self.clone().in_turn(id.clone(), place, work));
    }

    /// Deletes an attempt's files. Failures are logged; the files are deleted with the job.
    pub(super) async fn forget_attempt(
        &self,
        id: &ids::AttemptId,
        kind: TaskKind,
        keep_output: bool,
    ) {
        if let Err(error) = self.parts.localiser.forget_attempt(id, kind, keep_output).await {
            tracing::warn!(attempt = %id, %error, "cannot delete the files of an attempt");
        }
    }
}

impl TrackerState {
    /// Orders a run to end, if it is not over.
    fn order(&self, number: u64, order: StopOrder) {
        if let Some(live) = self.live.get(&number) {
            live.order(order);
        }
    }
}
