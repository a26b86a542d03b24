//! The calls to the parent of a job: reports, and the state and permissions that another job tracker
//! would need. Spec: mapreduce/05 §5.7, mapreduce/09 §I.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use corona_hadoop::protocols::inter_corona_job_tracker::InterCoronaJobTrackerClient;
use corona_hadoop::rpc::{CallError, ClientOptions, User};
use corona_hadoop::writables as wire;
use corona_hadoop::writables::{InetAddress, StateUpdate, TaskAttemptId};
use corona_mapreduce::JobId;
use tokio::sync::{mpsc, oneshot};

use crate::jobs::inbox::WeakInbox;
use crate::launch::launcher::{Dispatch, Launcher, Sender};
use corona_job_engine::{JobInput, Order, Tracker};
use corona_job_wire::translate;

/// The largest state of a job, in bytes: some 200,000 tasks.
const MAX_STATE_BYTES: usize = 512 << 20;

/// Where the parent of a job is, and under which name it knows this job tracker.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    pub(super) address: InetAddress,
    pub(super) attempt: TaskAttemptId,
    pub(super) user: User,
    /// How long a connection is tried.
    pub(super) connect: Duration,
    /// How long the parent may take for a call.
    pub(super) call: Duration,
}

impl Parent {
    /// A connection of its own: one call at a time.
    pub(super) fn client(&self) -> InterCoronaJobTrackerClient {
        let options = ClientOptions {
            connect_patience: self.connect,
            connect_pause: Duration::from_millis(200),
            call_timeout: Some(self.call),
            max_reply_bytes: MAX_STATE_BYTES,
            max_call_bytes: MAX_STATE_BYTES,
            ..ClientOptions::new(self.user.clone())
        };
        InterCoronaJobTrackerClient::new(self.address.clone(), options)
    }
}

/// Whether nobody listens at the parent's address any more.
pub(super) fn is_refused(error: &CallError) -> bool {
    matches!(error, CallError::Connect { error, .. }
        if error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// What goes through the hands of the [`Saver`], in this order.
pub(super) enum Item {
    /// For the parent.
    Update(Box<StateUpdate>),
    /// For a task tracker, once the parent has all updates before.
    Orders(Tracker, Vec<Dispatch>),
    /// To be notified once the parent has all updates before.
    Settled(oneshot::Sender<()>),
}

/// Leaves what happens to the job with the parent before anything that follows from it leaves.
pub(super) struct Saver {
    pub(super) parent: Parent,
    pub(super) job: JobId,
    pub(super) launcher: Launcher,
    pub(super) sender: Arc<dyn Sender>,
    pub(super) inbox: WeakInbox,
    /// Updates in one call. `corona.jt.state.max.batch.updates.size`
    pub(super) most: usize,
}

impl Saver {
    /// Runs until all senders of items are gone. An error ends it: what is not saved must not happen.
    pub(super) async fn run(self, mut items: mpsc::Receiver<Item>) -> Result<(), CallError> {
        let mut client = self.parent.client();
        let mut permitted = HashSet::new();
        let mut batch = Vec::new();
        while items.recv_many(&mut batch, self.most.max(1)).await > 0 {
            let mut updates = Vec::new();
            let mut after = Vec::new();
            for item in batch.drain(..) {
                match item {
                    Item::Update(update) => updates.push(*update),
                    other => after.push(other),
                }
            }
            if !updates.is_empty() {
                let attempt = self.parent.attempt.clone();
                client.push_corona_job_tracker_state_update(attempt, updates).await?;
            }
            self.ask_to_commit(&mut client, &after, &mut permitted).await?;
            for item in after {
                match item {
                    Item::Orders(to, orders) => {
                        self.launcher.send(&to, self.sender.clone(), orders)
                    }
                    // Who waited may have given up.
                    Item::Settled(tell) => drop(tell.send(())),
                    Item::Update(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Records at the parent the attempts that are about to commit, each once. An attempt that an earlier
    /// job tracker had permitted to commit, and that runs here again, is killed.
    async fn ask_to_commit(
        &self,
        client: &mut InterCoronaJobTrackerClient,
        items: &[Item],
        permitted: &mut HashSet<TaskAttemptId>,
    ) -> Result<(), CallError> {
        let orders = items.iter().filter_map(|item| match item {
            Item::Orders(_, orders) => Some(orders),
            _ => None,
        });
        let commits = orders.flatten().filter_map(|dispatch| match dispatch.order {
            Order::Commit(key) => translate::attempt_id(&self.job, key),
            _ => None,
        });
        let mut asked: Vec<TaskAttemptId> = Vec::new();
        for attempt in commits {
            if !permitted.contains(&attempt) && !asked.contains(&attempt) {
                asked.push(attempt);
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let before = self.parent.attempt.clone();
        let before = client.get_and_set_committing(before, asked.clone()).await?;
        for (now, before) in asked.into_iter().zip(before) {
            if let Some(before) = before.filter(|before| *before != now) {
                tracing::info!(%before, %now, "another attempt had the permission to commit");
                self.kill(&before);
            }
            permitted.insert(now);
        }
        Ok(())
    }

    fn kill(&self, attempt: &wire::TaskAttemptId) {
        let key = translate::attempt_key(&self.job, attempt);
        if let (Some(attempt), Some(inbox)) = (key, self.inbox.upgrade()) {
            inbox.note(JobInput::KillAttempt { attempt, fail: false });
        }
    }
}
