//! The order of work on attempts and jobs.
//!
//! Work on an attempt runs in sequence. A job is deleted after all work on its attempts, and later
//! work waits for that. It does not know the work itself.

use std::collections::HashMap;

use tokio::sync::watch;

use corona_hadoop::writables::{JobId, TaskAttemptId};

/// The last works on every attempt and job that are not over.
#[derive(Debug, Default)]
pub(super) struct Queues {
    jobs: HashMap<JobId, JobQueue>,
    works: u64,
}

#[derive(Debug, Default)]
struct JobQueue {
    attempts: HashMap<TaskAttemptId, End>,
    deletion: Option<End>,
}

/// The end of a work: it comes when the other side is dropped.
#[derive(Clone, Debug)]
struct End {
    work: u64,
    over: watch::Receiver<()>,
}

/// The place of a work in its queue. The works behind it wait as long as this lives.
#[derive(Debug)]
pub(super) struct QueuePlace {
    pub(super) number: u64,
    before: Vec<watch::Receiver<()>>,
    _over: watch::Sender<()>,
}

impl QueuePlace {
    /// Whether nothing has to come before.
    pub(super) fn is_next(&self) -> bool {
        self.before.is_empty()
    }

    /// Waits until all that has to come before is over.
    pub(super) async fn turn(&mut self) {
        for mut before in self.before.drain(..) {
            // Nothing is ever sent: an error means that the other side was dropped.
            while before.changed().await.is_ok() {}
        }
    }
}

impl Queues {
    /// A place for a work on an attempt.
    pub(super) fn attempt(&mut self, id: &TaskAttemptId) -> QueuePlace {
        let (end, mut place) = self.place();
        let job = self.jobs.entry(id.job().clone()).or_default();
        let before = job.attempts.insert(id.clone(), end);
        place.before.extend(before.into_iter().chain(job.deletion.clone()).map(|end| end.over));
        place
    }

    /// A place for the deletion of a job.
    pub(super) fn deletion(&mut self, id: &JobId) -> QueuePlace {
        let (end, mut place) = self.place();
        let job = self.jobs.entry(id.clone()).or_default();
        // The next run waits for the deletion, which has waited for these.
        let attempts = std::mem::take(&mut job.attempts).into_values();
        place.before.extend(attempts.chain(job.deletion.replace(end)).map(|end| end.over));
        place
    }

    /// The work of this number is over: it needs no more room.
    pub(super) fn over(&mut self, job: &JobId, number: u64) {
        let Some(queue) = self.jobs.get_mut(job) else { return };
        queue.attempts.retain(|_, end| end.work != number);
        queue.deletion = queue.deletion.take().filter(|end| end.work != number);
        if queue.attempts.is_empty() && queue.deletion.is_none() {
            self.jobs.remove(job);
        }
    }

    fn place(&mut self) -> (End, QueuePlace) {
        self.works += 1;
        let (sender, over) = watch::channel(());
        let place = QueuePlace { number: self.works, before: vec![], _over: sender };
        (End { work: self.works, over }, place)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn attempt(job: u32, number: u32) -> TaskAttemptId {
        format!("attempt_20.1_{job:04}_m_{number:06}_0").parse().unwrap()
    }

    /// Whether its turn has come.
    fn may_begin(place: &mut QueuePlace) -> bool {
        let before: Vec<_> = place.before.clone();
        let turn = pin!(place.turn()).poll(&mut Context::from_waker(Waker::noop()));
        place.before = before;
        turn == Poll::Ready(())
    }

    #[test]
    fn works_on_an_attempt_follow_one_another_and_a_deletion_follows_all() {
        let mut queues = Queues::default();
        let (a, b) = (attempt(1, 0), attempt(1, 1));
        let mut first = queues.attempt(&a);
        let mut second = queues.attempt(&a);
        let mut other = queues.attempt(&b);
        let mut elsewhere = queues.attempt(&attempt(2, 0));
        assert!(may_begin(&mut first) && may_begin(&mut other) && may_begin(&mut elsewhere));
        assert!(!may_begin(&mut second));
        let mut deletion = queues.deletion(a.job());
        let mut after = queues.attempt(&a);
        let mut again = queues.deletion(a.job());
        drop(first);
        assert!(may_begin(&mut second) && !may_begin(&mut deletion));
        drop((second, other));
        assert!(may_begin(&mut deletion) && !may_begin(&mut after));
        drop(deletion);
        assert!(may_begin(&mut after) && !may_begin(&mut again));
        drop(after);
        assert!(may_begin(&mut again));
    }

    #[test]
    fn ended_entries_take_no_room() {
        let mut queues = Queues::default();
        let (id, job) = (attempt(1, 0), attempt(1, 0).job().clone());
        let numbers = [queues.attempt(&id).number, queues.attempt(&id).number];
        queues.over(&job, numbers[1]);
        assert!(queues.jobs.is_empty(), "nobody waits for the first any more");
        let first = queues.attempt(&id);
        let deletion = queues.deletion(&job);
        queues.over(&job, first.number);
        assert_eq!(queues.jobs.len(), 1);
        queues.over(&job, deletion.number);
        assert!(queues.jobs.is_empty());
    }
}
