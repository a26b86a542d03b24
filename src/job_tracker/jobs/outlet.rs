//! What a job wants done, and who does it. The core of a job never knows which outlet it has.

use std::sync::Arc;

use corona_mapreduce::HistoryRecord;
use corona_model::types::{ResourceRequest, SessionPriority, SessionStatus};

use super::history::Mark;
use corona_job_engine::{JobEffect, JobProgress, Launch, NodeUsage, Order, RequestId, Tracker};

/// The session with the cluster manager can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSession;

/// Carries out what a job's engine decides. Nothing waits.
pub(crate) trait Outlet: Send {
    /// Requests slots. Their ids ascend without gaps over all calls.
    fn request(&mut self, requests: Vec<ResourceRequest>) -> Result<(), NoSession>;

    /// Gives slots back.
    fn release(&mut self, ids: Vec<RequestId>) -> Result<(), NoSession>;

    /// Orders a task tracker to launch an attempt.
    fn launch(&mut self, launch: Launch);

    /// Any other order to a task tracker.
    fn order(&mut self, at: Tracker, order: Order);

    /// Writes to the job's history.
    fn record(&mut self, record: &HistoryRecord);

    /// A task has failed that the job does without, as the record says.
    fn done_without(&mut self, _record: &HistoryRecord) {}

    /// The end of the job's history after all records so far; none without a history that is kept.
    fn history_mark(&mut self) -> Option<Mark> {
        None
    }

    /// Notifies the cluster manager of the priority.
    fn priority(&mut self, priority: SessionPriority);

    /// The effects of an input are complete: orders that were collected may go.
    fn flush(&mut self);

    /// The job is over. Nothing follows.
    fn end(&mut self, status: SessionStatus, feedback: Vec<NodeUsage>);

    /// The job has failed because of a panic, and its engine is of no use any more. Orders have been given.
    /// Nothing follows.
    fn lost(&mut self, _progress: Arc<JobProgress>, _reason: &str) {
        self.flush();
        self.end(SessionStatus::Failed, Vec::new());
    }

    /// The program ends and the job does not: another process continues it.
    fn leave(&mut self);
}

/// Hands effects over, in order. An error means that the session is lost; the other effects are
/// carried out.
pub(crate) fn carry_out(effects: Vec<JobEffect>, outlet: &mut dyn Outlet) -> Result<(), NoSession> {
    let mut result = Ok(());
    for effect in effects {
        match effect {
            JobEffect::Request(requests) => result = result.and(outlet.request(requests)),
            JobEffect::Release(ids) => result = result.and(outlet.release(ids)),
            JobEffect::Launch(launch) => outlet.launch(launch),
            JobEffect::Kill { attempt, at } => outlet.order(at, Order::Kill(attempt)),
            JobEffect::Commit { attempt, at } => outlet.order(at, Order::Commit(attempt)),
            JobEffect::KillJob { at } => outlet.order(at, Order::KillJob),
            JobEffect::Record(record) => outlet.record(&record),
            JobEffect::DoneWithout(record) => outlet.done_without(&record),
            JobEffect::UpdatePriority(priority) => outlet.priority(priority),
            JobEffect::EndSession { status, feedback } => {
                outlet.flush();
                outlet.end(status, feedback);
            }
            JobEffect::CountersLeftOut { attempt, count } => {
                tracing::warn!(?attempt, count, "left out counters beyond the limits of the job");
            }
            // Readers ask the engine.
            JobEffect::Event { .. } | JobEffect::EventObsolete { .. } => {}
        }
    }
    outlet.flush();
    result
}
