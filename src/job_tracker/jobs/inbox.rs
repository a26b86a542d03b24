//! The way to a job. Calls wait for room in its queue. Notes, which nobody waits for, are kept beside it and merged,
//! so that a job that stands still has at most one for each thing that they are about. This file must not know what
//! a job does with them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corona_job_engine::{JobEngine, JobInput, JobRefusal, JobReply, Order};
use tokio::sync::{Notify, mpsc, oneshot};

use super::actor::Mail;

/// Orders in one note. More of one node come in several.
const MAX_ORDERS: usize = 200;

pub(crate) type Look = Box<dyn FnOnce(&JobEngine) + Send>;
pub(crate) type Reply = oneshot::Sender<Result<JobReply, JobRefusal>>;

/// What waits in the queue of a job.
pub(crate) enum Message {
    /// An input of its engine, and who waits for the reply.
    Input(JobInput, Reply),
    /// Something that reads its engine.
    Look(Look),
    /// The details are no longer needed.
    Retire,
}

/// The side of those that have something for a job.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    queue: mpsc::Sender<Message>,
    notes: Arc<Notes>,
}

/// One that does not keep the job alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakInbox {
    queue: mpsc::WeakSender<Message>,
    notes: Arc<Notes>,
}

/// The side of the job.
#[derive(Debug)]
pub(crate) struct Incoming {
    queue: mpsc::Receiver<Message>,
    notes: Arc<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Orders that could not be delivered, by node.
    undelivered: BTreeMap<Arc<str>, Vec<Order>>,
    /// No two are about the same thing.
    others: Vec<JobInput>,
}

/// The two sides of a job that is about to start; its queue has room for so many messages.
pub(crate) fn inbox(most: usize) -> (Inbox, Incoming) {
    let (sender, queue) = mpsc::channel(most.max(1));
    let notes = Arc::<Notes>::default();
    (Inbox { queue: sender, notes: notes.clone() }, Incoming { queue, notes })
}

impl Inbox {
    /// Puts a message into the queue once there is room.
    ///
    /// # Errors
    /// The job takes none any more.
    pub(crate) async fn send(
        &self,
        message: Message,
    ) -> Result<(), mpsc::error::SendError<Message>> {
        self.queue.send(message).await
    }

    /// Notes an input, and waits for nothing. The job applies it before messages that are sent later.
    pub(crate) fn note(&self, input: JobInput) {
        if !self.queue.is_closed() {
            self.notes.lock().add(input);
            self.notes.wake.notify_one();
        }
    }

    /// Whether the job takes nothing any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    pub(crate) fn downgrade(&self) -> WeakInbox {
        WeakInbox { queue: self.queue.downgrade(), notes: self.notes.clone() }
    }
}

impl WeakInbox {
    /// That of the job, if it still has one.
    pub(crate) fn upgrade(&self) -> Option<Inbox> {
        Some(Inbox { queue: self.queue.upgrade()?, notes: self.notes.clone() })
    }
}

impl Mail<Message, JobInput> for Incoming {
    async fn wait(&mut self, messages: &mut Vec<Message>, most: usize) -> bool {
        tokio::select! {
            biased;
            () = self.notes.wake.notified() => {
                while messages.len() < most && let Ok(message) = self.queue.try_recv() {
                    messages.push(message);
                }
                true
            }
            count = self.queue.recv_many(messages, most) => count > 0,
        }
    }

    fn notes(&self) -> Vec<JobInput> {
        std::mem::take(&mut *self.notes.lock()).into_inputs()
    }
}

impl Notes {
    /// Each change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, input: JobInput) {
        match input {
            JobInput::CallFailed { node, orders } => {
                self.undelivered.entry(node).or_default().extend(orders);
            }
            JobInput::HostsKnown { kind, hosts } => {
                let is_older = |other: &JobInput| matches!(other, JobInput::HostsKnown { kind: of, .. } if *of == kind);
                self.others.retain(|other| !is_older(other));
                self.others.push(JobInput::HostsKnown { kind, hosts });
            }
            input if self.others.contains(&input) => {}
            input => self.others.push(input),
        }
    }

    fn into_inputs(self) -> Vec<JobInput> {
        let mut inputs = self.others;
        for (node, orders) in self.undelivered {
            let calls = orders.chunks(MAX_ORDERS);
            inputs.extend(calls.map(|orders| JobInput::CallFailed {
                node: node.clone(),
                orders: orders.to_vec(),
            }));
        }
        inputs
    }
}

#[cfg(test)]
mod tests {
    use corona_mapreduce::{TaskKey, TaskKind};

    use super::*;

    fn order(number: u32) -> Order {
        Order::Launch(TaskKey { kind: TaskKind::Map, number }.attempt(0))
    }

    fn failed(node: &str, orders: impl IntoIterator<Item = u32>) -> JobInput {
        let orders = orders.into_iter().map(order).collect();
        JobInput::CallFailed { node: node.into(), orders }
    }

    fn known(kind: TaskKind, host: &str) -> JobInput {
        JobInput::HostsKnown { kind, hosts: vec![host.into()] }
    }

    #[tokio::test]
    async fn notes_about_one_thing_are_one_and_lose_nothing() {
        let (inbox, mut incoming) = inbox(1);
        let kill = |number| JobInput::KillAttempt {
            attempt: TaskKey { kind: TaskKind::Map, number }.attempt(0),
            fail: false,
        };
        for round in 0..1000 {
            inbox.note(known(TaskKind::Map, "old"));
            inbox.note(kill(0));
            inbox.note(JobInput::Tick);
            inbox.note(known(TaskKind::Map, "new"));
            inbox.note(known(TaskKind::Reduce, "new"));
            inbox.note(failed(["a:1", "b:1"][round % 2], [round as u32]));
        }
        inbox.note(kill(1));
        let mut messages = Vec::new();
        assert!(incoming.wait(&mut messages, 1).await && messages.is_empty());
        let mut notes = incoming.notes();
        let calls = notes.split_off(5);
        let expected = [
            kill(0),
            JobInput::Tick,
            known(TaskKind::Map, "new"),
            known(TaskKind::Reduce, "new"),
            kill(1),
        ];
        assert_eq!(notes, expected);
        let orders = |of: &str| -> Vec<Order> {
            let calls = calls.iter().filter_map(|call| match call {
                JobInput::CallFailed { node, orders } if &**node == of => Some(orders),
                _ => None,
            });
            assert!(calls.clone().all(|orders| orders.len() <= MAX_ORDERS));
            calls.flatten().copied().collect()
        };
        assert_eq!(orders("a:1"), (0..1000).step_by(2).map(order).collect::<Vec<_>>());
        assert_eq!(orders("b:1"), (1..1000).step_by(2).map(order).collect::<Vec<_>>());
        assert_eq!(calls.len(), 6);
        assert!(incoming.notes().is_empty());
    }

    #[tokio::test]
    async fn a_job_that_has_ended_keeps_no_notes() {
        let (inbox, incoming) = inbox(1);
        let notes = incoming.notes.clone();
        drop(incoming);
        inbox.note(JobInput::Tick);
        assert!(notes.lock().others.is_empty());
        let weak = inbox.downgrade();
        assert!(weak.upgrade().is_some());
        drop(inbox);
        assert!(weak.upgrade().is_none());
    }

    #[tokio::test]
    async fn the_side_of_a_job_notices_that_nobody_has_the_other_one() {
        let (inbox, mut incoming) = inbox(1);
        let weak = inbox.downgrade();
        inbox.note(JobInput::Tick);
        drop(inbox);
        let mut messages = Vec::new();
        assert!(incoming.wait(&mut messages, 1).await);
        assert_eq!(incoming.notes(), [JobInput::Tick]);
        assert!(!incoming.wait(&mut messages, 1).await);
        assert!(weak.upgrade().is_none());
    }
}
