//! Orders to task trackers: one connection and one task for each, which takes the orders in the order
//! in which they came. A tracker that hangs delays only its own. Spec: mapreduce/05 §5.4, mapreduce/09 §K.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_hadoop::protocols::corona_task_tracker::CoronaTaskTrackerClient;
use corona_hadoop::rpc::{CallError, ClientOptions, User};
use corona_hadoop::writables::{InetAddress, TaskTrackerAction};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::engine::{Order, Tracker};

/// Orders in one call. The original sends all that wait.
const MAX_ORDERS: usize = 200;
/// A connection without orders for so long is closed.
const IDLE: Duration = Duration::from_secs(9);
/// How often the end of a job is sent to a task tracker, and the pause between.
const FORGET_TRIES: u32 = 4;
const FORGET_PAUSE: Duration = Duration::from_secs(5);
/// A task tracker that could not be connected to is tried once at a time for so long.
const UNREACHABLE_FOR: Duration = Duration::from_secs(60);
/// The pause before another try to connect to such a task tracker; each further pause is twice as long. The
/// cluster manager may grant the slots of a dead node again and again until it expires.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Learns which orders could not be delivered.
pub(super) trait Sender: Send + Sync {
    fn not_delivered(&self, node: Arc<str>, orders: Vec<Order>, why: &CallError);
}

/// An order as it travels, and what the engine calls it.
#[derive(Debug)]
pub(super) struct Dispatch {
    pub(super) order: Order,
    pub(super) action: TaskTrackerAction,
}

/// Delivers orders. Copies are the same.
#[derive(Clone)]
pub(super) struct Launcher {
    shared: Arc<Shared>,
}

struct Shared {
    options: ClientOptions,
    trackers: Mutex<HashMap<Arc<str>, Arc<Queue>>>,
    /// Batches that wait or are being delivered.
    pending: watch::Sender<usize>,
    /// Task trackers that could not be connected to lately.
    unreachable: Mutex<HashMap<Arc<str>, Missed>>,
}

/// Connections to a task tracker that failed, one after another.
#[derive(Clone, Copy)]
struct Missed {
    last: Instant,
    times: u32,
}

/// What waits for one task tracker.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Batch>>,
    wake: Notify,
}

/// Orders of one job.
struct Batch {
    node: Arc<str>,
    sender: Arc<dyn Sender>,
    orders: Vec<Dispatch>,
    tries: u32,
}

impl Launcher {
    pub(super) fn new(user: User, connect: Duration, call: Duration) -> Launcher {
        let options = ClientOptions {
            attempt_timeout: connect,
            connect_patience: connect,
            call_timeout: Some(call),
            ..ClientOptions::new(user)
        };
        let pending = watch::Sender::new(0);
        let (trackers, unreachable) = (Mutex::default(), Mutex::default());
        Launcher { shared: Arc::new(Shared { options, trackers, pending, unreachable }) }
    }

    /// Sends orders of a job, in this order and behind those that it sent before.
    pub(super) fn send(&self, to: &Tracker, sender: Arc<dyn Sender>, orders: Vec<Dispatch>) {
        let batch = Batch { node: to.node.clone(), sender, orders, tries: 1 };
        self.queue(to.address.clone(), batch);
    }

    fn queue(&self, address: Arc<str>, batch: Batch) {
        let mut trackers = self.shared.lock();
        let known = trackers.get(&address).cloned();
        let queue = known.unwrap_or_else(|| {
            let queue = Arc::<Queue>::default();
            trackers.insert(address.clone(), queue.clone());
            tokio::spawn(self.clone().deliver(address, queue.clone()));
            queue
        });
        // Under the lock of the map, so that a queue that ends has nothing in it.
        queue.lock().push_back(batch);
        self.shared.pending.send_modify(|pending| *pending += 1);
        queue.wake.notify_one();
    }

    /// Waits until all orders are delivered or given up, for at most so long. Orders that are tried again
    /// after a pause do not count.
    pub(super) async fn drained(&self, patience: Duration) {
        let mut pending = self.shared.pending.subscribe();
        // The waiting caller continues either way.
        let _ = timeout(patience, pending.wait_for(|pending| *pending == 0)).await;
    }

    /// Task trackers that orders were sent to lately.
    #[cfg(test)]
    fn connected(&self) -> usize {
        self.shared.lock().len()
    }

    async fn deliver(self, address: Arc<str>, queue: Arc<Queue>) {
        let mut client = None;
        loop {
            let next = queue.lock().pop_front();
            let Some(batch) = next else {
                if timeout(IDLE, queue.wake.notified()).await.is_err() {
                    let mut trackers = self.shared.lock();
                    if queue.lock().is_empty() {
                        trackers.remove(&address);
                        return;
                    }
                }
                continue;
            };
            if let Some(pause) = self.shared.pause(&address) {
                sleep(pause).await;
            }
            let reached = self.deliver_batch(&address, &queue, &mut client, batch).await;
            if let Err(Unreachable(why)) = reached {
                self.shared.note_unreachable(address.clone());
                let failed = queue.fail_all(&why);
                self.shared.pending.send_modify(|pending| *pending -= failed);
            } else {
                self.shared.reached(&address);
            }
            self.shared.pending.send_modify(|pending| *pending -= 1);
        }
    }

    async fn deliver_batch(
        &self,
        address: &Arc<str>,
        queue: &Queue,
        client: &mut Option<CoronaTaskTrackerClient>,
        mut batch: Batch,
    ) -> Result<(), Unreachable> {
        if batch.orders.len() > MAX_ORDERS {
            let rest = batch.orders.split_off(MAX_ORDERS);
            let Batch { node, sender, tries, .. } = &batch;
            let (node, sender, tries) = (node.clone(), sender.clone(), *tries);
            queue.lock().push_front(Batch { node, sender, orders: rest, tries });
            self.shared.pending.send_modify(|pending| *pending += 1);
        }
        let is_only_to_forget = batch.is_only_to_forget();
        let orders: Vec<Order> = batch.orders.iter().map(|dispatch| dispatch.order).collect();
        let actions: Vec<TaskTrackerAction> =
            batch.orders.into_iter().map(|dispatch| dispatch.action).collect();
        let to_forget = is_only_to_forget.then(|| actions.clone());
        let Some(target) = parse(address) else {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not host:port");
            let address = InetAddress { host: address.to_string(), port: 0 };
            let why = CallError::Connect { address, error };
            batch.sender.not_delivered(batch.node, orders, &why);
            return Ok(());
        };
        let open = client.get_or_insert_with(|| {
            CoronaTaskTrackerClient::new(target, self.shared.options(address))
        });
        let Err(error) = open.submit_actions(Some(actions)).await else { return Ok(()) };
        *client = None;
        match to_forget {
            // The job is over: only the last try is worth a line.
            Some(actions) if batch.tries < FORGET_TRIES => {
                let tries = batch.tries + 1;
                let orders = actions.into_iter();
                let orders = orders.map(|action| Dispatch { order: Order::KillJob, action });
                let again = Batch {
                    orders: orders.collect(),
                    tries,
                    ..batch_of(&batch.node, &batch.sender)
                };
                let (launcher, address) = (self.clone(), address.clone());
                tokio::spawn(async move {
                    sleep(FORGET_PAUSE * (tries - 1)).await;
                    launcher.queue(address, again);
                });
            }
            _ => {
                tracing::info!(%address, node = %batch.node, %error, "orders to a task tracker failed");
                batch.sender.not_delivered(batch.node, orders, &error);
            }
        }
        match error {
            CallError::Connect { .. } => Err(Unreachable(error)),
            _ => Ok(()),
        }
    }
}

/// A task tracker could not be connected to.
struct Unreachable(CallError);

impl Shared {
    /// How a task tracker is connected to: one that could not be reached lately is tried once, so that
    /// the slots that are still granted there cost other jobs no time.
    fn options(&self, address: &Arc<str>) -> ClientOptions {
        match self.missed(address) {
            Some(_) => ClientOptions { connect_patience: Duration::ZERO, ..self.options.clone() },
            None => self.options.clone(),
        }
    }

    /// How long the next orders for a task tracker wait, at most as long as its first connection may take.
    fn pause(&self, address: &Arc<str>) -> Option<Duration> {
        let missed = self.missed(address)?;
        let pause = FIRST_PAUSE.saturating_mul(1 << missed.times.saturating_sub(1).min(16));
        Some(pause.min(self.options.connect_patience))
    }

    fn missed(&self, address: &Arc<str>) -> Option<Missed> {
        let missed = self.unreachable().get(address).copied();
        missed.filter(|missed| missed.last.elapsed() < UNREACHABLE_FOR)
    }

    fn note_unreachable(&self, address: Arc<str>) {
        let mut unreachable = self.unreachable();
        unreachable.retain(|_, missed| missed.last.elapsed() < UNREACHABLE_FOR);
        let missed =
            unreachable.entry(address).or_insert(Missed { last: Instant::now(), times: 0 });
        *missed = Missed { last: Instant::now(), times: missed.times.saturating_add(1) };
    }

    fn reached(&self, address: &Arc<str>) {
        self.unreachable().remove(address);
    }

    /// No panic happens while it is held.
    fn unreachable(&self) -> MutexGuard<'_, HashMap<Arc<str>, Missed>> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn batch_of(node: &Arc<str>, sender: &Arc<dyn Sender>) -> Batch {
    Batch { node: node.clone(), sender: sender.clone(), orders: Vec::new(), tries: 1 }
}

impl Batch {
    /// Whether it only reports the end of a job: nothing waits for that.
    fn is_only_to_forget(&self) -> bool {
        self.orders.iter().all(|dispatch| dispatch.order == Order::KillJob)
    }
}

pub(super) fn parse(address: &str) -> Option<InetAddress> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some(())?;
    Some(InetAddress { host: host.to_owned(), port: port.parse().ok()? })
}

impl Shared {
    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Queue>>> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// What waited while a connection was tried waits no longer. Where jobs are only to be forgotten that is
    /// tried again. Returns how many batches have failed.
    fn fail_all(&self, why: &CallError) -> usize {
        let waiting = std::mem::take(&mut *self.lock());
        let (forget, failed): (VecDeque<Batch>, VecDeque<Batch>) =
            waiting.into_iter().partition(Batch::is_only_to_forget);
        self.lock().extend(forget);
        let count = failed.len();
        for batch in failed {
            let orders = batch.orders.iter().map(|dispatch| dispatch.order).collect();
            batch.sender.not_delivered(batch.node, orders, why);
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Batch>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use corona_hadoop::protocols::corona_task_tracker::{CoronaTaskTracker, Served};
    use corona_hadoop::rpc::{Caller, Fault, Limits, Server, Services};
    use corona_hadoop::writables::{Action, JobId, SessionInfo, Task};
    use tokio::sync::{mpsc, watch};

    use super::*;

    /// A task tracker that passes on what it is sent, and may never reply.
    struct Tracked {
        heard: mpsc::Sender<Vec<TaskTrackerAction>>,
        hangs: bool,
    }

    impl CoronaTaskTracker for Tracked {
        async fn submit_actions(
            &self,
            _caller: &Caller,
            actions: Option<Vec<TaskTrackerAction>>,
        ) -> Result<(), Fault> {
            let _ = self.heard.send(actions.unwrap_or_default()).await;
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }

        async fn start_corona_job_tracker(
            &self,
            _caller: &Caller,
            _task: Task,
            _session: SessionInfo,
        ) -> Result<(), Fault> {
            Ok(())
        }
    }

    struct Failures(mpsc::Sender<Vec<Order>>);

    impl Sender for Failures {
        fn not_delivered(&self, _node: Arc<str>, orders: Vec<Order>, _why: &CallError) {
            let _ = self.0.try_send(orders);
        }
    }

    type Heard = mpsc::Receiver<Vec<TaskTrackerAction>>;

    fn tracker(hangs: bool, stop: &watch::Receiver<bool>) -> (Tracker, Heard) {
        let at = corona_net::ListenOn::Address(([127, 0, 0, 1], 0).into());
        let listener = corona_net::listen(at).unwrap();
        let address = listener.local_addr().unwrap().to_string().into();
        let (heard, hears) = mpsc::channel(1000);
        let service = Served::new(Arc::new(Tracked { heard, hangs }));
        let server = Server::new(listener, Services::new().offer(service), Limits::default());
        tokio::spawn(server.run(stop.clone()));
        (Tracker { node: "node".into(), address }, hears)
    }

    fn orders(numbers: std::ops::Range<i32>) -> Vec<Dispatch> {
        let dispatch = |number| {
            let job = JobId { number, tracker: "1.1".into() };
            let action = TaskTrackerAction { session: None, action: Action::KillJob(job) };
            let task = corona_mapreduce::TaskKey {
                kind: corona_mapreduce::TaskKind::Map,
                number: number.unsigned_abs(),
            };
            Dispatch { order: Order::Kill(task.attempt(0)), action }
        };
        numbers.map(dispatch).collect()
    }

    fn numbers(actions: &[TaskTrackerAction]) -> Vec<i32> {
        let number = |action: &TaskTrackerAction| match &action.action {
            Action::KillJob(job) => job.number,
            other => panic!("{other:?}"),
        };
        actions.iter().map(number).collect()
    }

    #[tokio::test]
    async fn orders_arrive_in_order_and_one_that_hangs_delays_no_other() {
        let (_stop, stopped) = watch::channel(false);
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let second = Duration::from_secs(1);
        let launcher = Launcher::new(user, second, second);
        let (failed, mut failures) = mpsc::channel(1000);
        let sender: Arc<dyn Sender> = Arc::new(Failures(failed));
        let (hanging, mut stuck) = tracker(true, &stopped);
        let (good, mut heard) = tracker(false, &stopped);
        launcher.send(&hanging, sender.clone(), orders(0..3));
        stuck.recv().await.unwrap();
        launcher.send(&good, sender.clone(), orders(0..250));
        launcher.send(&good, sender.clone(), orders(250..252));
        let mut all = Vec::new();
        while all.len() < 252 {
            all.extend(numbers(&heard.recv().await.unwrap()));
        }
        assert_eq!(all, (0..252).collect::<Vec<_>>());
        assert!(failures.try_recv().is_err(), "the good one was not delayed by the time-out");
        assert_eq!(failures.recv().await.unwrap().len(), 3);
        // A port without a listener, and an invalid address.
        let nowhere = Tracker { node: "node".into(), address: "127.0.0.1:1".into() };
        launcher.send(&nowhere, sender.clone(), orders(0..1));
        assert_eq!(failures.recv().await.unwrap().len(), 1);
        let none = Tracker { node: "node".into(), address: "nonsense".into() };
        launcher.send(&none, sender, orders(0..2));
        assert_eq!(failures.recv().await.unwrap().len(), 2);
        assert_eq!(launcher.connected(), 4);
    }

    #[tokio::test]
    async fn a_task_whose_slots_are_always_on_a_host_that_is_gone_is_tried_ever_less_often() {
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let patience = Duration::from_millis(200);
        let launcher = Launcher::new(user, patience, Duration::from_secs(60));
        let (failed, mut failures) = mpsc::channel(1000);
        let sender: Arc<dyn Sender> = Arc::new(Failures(failed));
        let nowhere = Tracker { node: "node".into(), address: "127.0.0.1:1".into() };
        let until = Instant::now() + Duration::from_millis(1_500);
        let mut tries = 0;
        while Instant::now() < until {
            launcher.send(&nowhere, sender.clone(), orders(0..1));
            assert_eq!(failures.recv().await.unwrap().len(), 1);
            tries += 1;
        }
        // 10, 20, 40, 80, 160 and then 200 ms between.
        assert!((2..=15).contains(&tries), "{tries} tries");
    }

    #[tokio::test]
    async fn a_host_that_is_gone_costs_one_wait_and_not_one_for_each_launch() {
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let patience = Duration::from_millis(2_500);
        let launcher = Launcher::new(user, patience, Duration::from_secs(60));
        let (failed, mut failures) = mpsc::channel(1000);
        let sender: Arc<dyn Sender> = Arc::new(Failures(failed));
        // A port that was just closed has no listener.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: Arc<str> = listener.local_addr().unwrap().to_string().into();
        drop(listener);
        let nowhere = Tracker { node: "node".into(), address: address.clone() };
        let begun = Instant::now();
        for number in 0..5 {
            launcher.send(&nowhere, sender.clone(), orders(number..number + 1));
        }
        for _ in 0..5 {
            assert_eq!(failures.recv().await.unwrap().len(), 1);
        }
        assert!(begun.elapsed() < 2 * patience, "{:?}", begun.elapsed());
        // Later ones, of this job or another, hardly wait.
        let again = Instant::now();
        for number in 0..5 {
            launcher.send(&nowhere, sender.clone(), orders(number..number + 1));
            assert_eq!(failures.recv().await.unwrap().len(), 1);
        }
        assert!(again.elapsed() < patience, "{:?}", again.elapsed());
        // Once it is there again, orders reach it.
        let (_stop, stopped) = watch::channel(false);
        let at = corona_net::ListenOn::Address(address.parse().unwrap());
        let (heard, mut hears) = mpsc::channel(1000);
        let service = Served::new(Arc::new(Tracked { heard, hangs: false }));
        let listener = corona_net::listen(at).unwrap();
        let server = Server::new(listener, Services::new().offer(service), Limits::default());
        tokio::spawn(server.run(stopped));
        launcher.send(&nowhere, sender, orders(7..8));
        assert_eq!(numbers(&hears.recv().await.unwrap()), [7]);
        assert!(launcher.shared.unreachable().is_empty() || failures.try_recv().is_err());
    }
}
