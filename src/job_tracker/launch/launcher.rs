//! Orders to task trackers: one connection and one task for each, which takes the orders in the order
//! in which they came. A tracker that hangs delays only its own. Spec: mapreduce/05 §5.4, mapreduce/09 §K.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corona_hadoop::protocols::corona_task_tracker::CoronaTaskTrackerClient;
use corona_hadoop::rpc::{CallError, ClientOptions, User};
use corona_hadoop::writables::{Action, InetAddress, JobId, SessionInfo, TaskTrackerAction};
use corona_net::Backoff;
use corona_process::panics::{caught, spawn_detached};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use corona_job_engine::{Order, Tracker};

/// Orders in one call. The original sends all that wait.
const MAX_ORDERS: usize = 200;
/// A connection without orders for so long is closed.
const IDLE: Duration = Duration::from_secs(9);
/// How often the end of a job is sent to a task tracker, and the pause between.
const FORGET_TRIES: u32 = 4;
const FORGET_PAUSE: Duration = Duration::from_secs(5);
/// Ends of jobs that are kept for task trackers that could not be reached, and for how long.
const MAX_KEPT: usize = 10_000;
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// A task tracker that still reports on a job that has ended is sent the end again after this pause. So
/// many pairs of task tracker and job are remembered.
const REMIND_PAUSE: Duration = Duration::from_secs(60);
const MAX_REMINDED: usize = 10_000;
/// A task tracker that could not be connected to is tried once at a time for so long.
const UNREACHABLE_FOR: Duration = Duration::from_secs(60);
/// The pause after which such a task tracker is connected to again; each further pause is twice as long. The
/// cluster manager may grant the slots of a dead node again and again until it expires. Within a pause the
/// first launches of each job there fail at once, so that no job waits to learn it; further ones wait.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Learns which orders could not be delivered.
pub(crate) trait Sender: Send + Sync {
    fn not_delivered(&self, node: Arc<str>, orders: Vec<Order>, why: &CallError);
}

/// Does nothing about orders that could not be delivered: for orders to forget a job.
pub(crate) struct Nobody;

impl Sender for Nobody {
    fn not_delivered(&self, _node: Arc<str>, _orders: Vec<Order>, _why: &CallError) {}
}

/// An order as it travels, and what the engine calls it.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) order: Order,
    pub(crate) action: TaskTrackerAction,
}

/// Delivers orders. Copies are the same.
#[derive(Clone)]
pub(crate) struct Launcher {
    shared: Arc<LauncherCore>,
}

struct LauncherCore {
    options: ClientOptions,
    trackers: Mutex<HashMap<Arc<str>, Arc<Queue>>>,
    /// Batches that wait or are being delivered.
    pending: Arc<watch::Sender<usize>>,
    /// Task trackers that could not be connected to lately.
    unreachable: Mutex<HashMap<Arc<str>, Missed>>,
    /// Ends of jobs that were not delivered, by the name of the node.
    kept: Mutex<KeptEnds>,
    /// When a task tracker was last sent the end of a job because it reported on the job.
    reminded: Mutex<HashMap<(Arc<str>, JobId), Instant>>,
}

/// Ends of jobs that wait for their task tracker to report again.
#[derive(Default)]
struct KeptEnds {
    of_nodes: HashMap<Arc<str>, Vec<KeptBatch>>,
    count: usize,
}

struct KeptBatch {
    address: Arc<str>,
    actions: Vec<TaskTrackerAction>,
    sender: Arc<dyn Sender>,
    since: Instant,
}

/// Connections to a task tracker that failed, one after another.
struct Missed {
    last: Instant,
    next_try: Instant,
    pauses: Backoff,
    why: ErrorKind,
    /// The jobs whose launches have failed since the last of them.
    told: HashSet<JobKey>,
}

/// Tells the senders of jobs apart.
type JobKey = usize;

/// A batch that is counted as pending until this is dropped.
struct Pending {
    batch: Batch,
    _counted: Counted,
}

struct Counted(Arc<watch::Sender<usize>>);

impl Counted {
    fn new(pending: &Arc<watch::Sender<usize>>) -> Counted {
        pending.send_modify(|pending| *pending += 1);
        Counted(pending.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|pending| *pending -= 1);
    }
}

/// What waits for one task tracker.
#[derive(Default)]
struct Queue {
    waiting: Mutex<VecDeque<Pending>>,
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
    pub(crate) fn new(user: User, connect: Duration, call: Duration) -> Launcher {
        let options = ClientOptions {
            attempt_timeout: connect,
            connect_patience: connect,
            call_timeout: Some(call),
            ..ClientOptions::new(user)
        };
        let pending = Arc::new(watch::Sender::new(0));
        let shared = LauncherCore {
            options,
            trackers: Mutex::default(),
            pending,
            unreachable: Mutex::default(),
            kept: Mutex::default(),
            reminded: Mutex::default(),
        };
        Launcher { shared: Arc::new(shared) }
    }

    /// Sends orders of a job, in this order and behind those that it sent before.
    pub(crate) fn send(&self, to: &Tracker, sender: Arc<dyn Sender>, orders: Vec<Dispatch>) {
        let batch = Batch { node: to.node.clone(), sender, orders, tries: 1 };
        self.queue(to.address.clone(), batch);
    }

    /// A task tracker reports: what it has missed of the ends of jobs is sent again, to the address that
    /// its slots were granted with.
    pub(crate) fn heard(&self, node: &str) {
        for KeptBatch { address, actions, sender, .. } in self.shared.kept().take(node) {
            let orders = actions.into_iter().map(kill_job).collect();
            self.queue(address, Batch { node: node.into(), sender, orders, tries: 1 });
        }
    }

    /// Whether a task tracker that reports on a job that has ended is to be sent the end again now.
    /// It is noted as sent.
    pub(crate) fn may_remind(&self, node: &Arc<str>, job: &JobId) -> bool {
        let mut reminded = self.shared.reminded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| at.elapsed() < REMIND_PAUSE;
        let key = (node.clone(), job.clone());
        if reminded.get(&key).is_some_and(is_recent) {
            return false;
        }
        if reminded.len() >= MAX_REMINDED {
            reminded.retain(|_, at| is_recent(at));
        }
        let has_room = reminded.len() < MAX_REMINDED;
        if has_room {
            reminded.insert(key, Instant::now());
        }
        has_room
    }

    /// Sends the end of a job.
    pub(crate) fn forget(
        &self,
        at: &Tracker,
        sender: Arc<dyn Sender>,
        job: JobId,
        session: SessionInfo,
    ) {
        let action = TaskTrackerAction { session: Some(session), action: Action::KillJob(job) };
        self.send(at, sender, vec![kill_job(action)]);
    }

    fn queue(&self, address: Arc<str>, batch: Batch) {
        let mut trackers = self.shared.lock();
        let known = trackers.get(&address).cloned();
        let queue = known.unwrap_or_else(|| {
            let queue = Arc::<Queue>::default();
            trackers.insert(address.clone(), queue.clone());
            spawn_detached("the delivery of orders", self.clone().deliver(address, queue.clone()));
            queue
        });
        // Under the lock of the map, so that a queue that ends has nothing in it.
        queue.lock().push_back(self.shared.counted(batch));
        queue.wake.notify_one();
    }

    /// Waits until all orders are delivered or given up, for at most so long. Orders that are tried again
    /// after a pause do not count.
    pub(crate) async fn drained(&self, patience: Duration) {
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
            let Pending { batch, _counted } = batch;
            let (node, sender, orders) = (batch.node.clone(), batch.sender.clone(), batch.orders());
            let delivered = self.deliver_next(&address, &queue, &mut client, batch);
            if let Err(panic) = caught(delivered).await {
                // Those behind it are delivered, and its job must not wait for reports.
                tracing::error!(%address, %node, %panic, "the delivery of orders panicked; they count as not delivered");
                client = None;
                let why = CallError::Io(Error::other(panic));
                spawn_detached("a job that learns of lost orders", async move {
                    sender.not_delivered(node, orders, &why);
                });
            }
        }
    }

    async fn deliver_next(
        &self,
        address: &Arc<str>,
        queue: &Queue,
        client: &mut Option<CoronaTaskTrackerClient>,
        batch: Batch,
    ) {
        if let Some(until) = self.shared.next_try(address) {
            if let Some(why) = self.shared.just_missed(address, &batch) {
                return batch.fail(&why);
            }
            sleep_until(until).await;
        }
        match self.deliver_batch(address, queue, client, batch).await {
            Err(Unreachable(why)) => {
                self.shared.note_unreachable(address.clone(), &why);
                queue.fail_all(&why);
            }
            Ok(()) => self.shared.reached(address),
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
            let rest = Batch { node, sender, orders: rest, tries };
            queue.lock().push_front(self.shared.counted(rest));
        }
        let is_only_to_forget = batch.is_only_to_forget();
        let orders = batch.orders();
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
                let again = Batch {
                    orders: actions.into_iter().map(kill_job).collect(),
                    tries,
                    ..batch_of(&batch.node, &batch.sender)
                };
                let (launcher, address) = (self.clone(), address.clone());
                spawn_detached("the end of a job that is sent again", async move {
                    sleep(FORGET_PAUSE * (tries - 1)).await;
                    launcher.queue(address, again);
                });
            }
            given_up => {
                tracing::info!(%address, node = %batch.node, %error, "orders to a task tracker failed");
                if let Some(actions) = given_up {
                    self.shared.keep(&batch.node, address, actions, &batch.sender);
                }
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

impl LauncherCore {
    /// How a task tracker is connected to: one that could not be reached lately is tried once, so that
    /// the slots that are still granted there cost other jobs no time.
    fn options(&self, address: &Arc<str>) -> ClientOptions {
        match self.unreachable().get(address).is_some_and(Missed::is_recent) {
            true => ClientOptions { connect_patience: Duration::ZERO, ..self.options.clone() },
            false => self.options.clone(),
        }
    }

    /// When a task tracker that could not be reached is tried again, if that is to come: a pause is at most
    /// as long as its first connection may take.
    fn next_try(&self, address: &Arc<str>) -> Option<Instant> {
        let unreachable = self.unreachable();
        let missed = unreachable.get(address).filter(|missed| missed.is_recent())?;
        (missed.next_try > Instant::now()).then_some(missed.next_try)
    }

    /// Why launches need not wait for the next try: another job's could not be delivered just now. Each job
    /// learns it once; if it launches there all the same, it waits.
    fn just_missed(&self, address: &Arc<str>, batch: &Batch) -> Option<CallError> {
        let target = parse(address).filter(|_| batch.is_only_to_launch())?;
        let mut unreachable = self.unreachable();
        let missed = unreachable.get_mut(address)?;
        let error = Error::new(missed.why, "another job could not connect a moment ago");
        missed.told.insert(batch.job()).then_some(CallError::Connect { address: target, error })
    }

    fn note_unreachable(&self, address: Arc<str>, why: &CallError) {
        let why = match why {
            CallError::Connect { error, .. } => error.kind(),
            _ => ErrorKind::Other,
        };
        let mut unreachable = self.unreachable();
        unreachable.retain(|_, missed| missed.is_recent());
        let first = || Backoff::new(FIRST_PAUSE, self.options.connect_patience);
        let before = unreachable.get(&address).map(|missed| missed.pauses.clone());
        let (last, mut pauses) = (Instant::now(), before.unwrap_or_else(first));
        let (next_try, told) = (last + pauses.pause(), HashSet::new());
        unreachable.insert(address, Missed { last, next_try, pauses, why, told });
    }

    /// Keeps the ends of jobs until their task tracker reports again.
    fn keep(
        &self,
        node: &Arc<str>,
        address: &Arc<str>,
        actions: Vec<TaskTrackerAction>,
        sender: &Arc<dyn Sender>,
    ) {
        let (address, sender) = (address.clone(), sender.clone());
        let batch = KeptBatch { address, actions, sender, since: Instant::now() };
        if !self.kept().keep(node, batch) {
            tracing::warn!(
                %node,
                kept = MAX_KEPT,
                "dropped the end of a job for a task tracker that cannot be reached: too many are kept"
            );
        }
    }

    /// No panic happens while it is held.
    fn kept(&self) -> MutexGuard<'_, KeptEnds> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reached(&self, address: &Arc<str>) {
        self.unreachable().remove(address);
    }

    /// No panic happens while it is held.
    fn unreachable(&self) -> MutexGuard<'_, HashMap<Arc<str>, Missed>> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptEnds {
    /// Whether there was room.
    fn keep(&mut self, node: &Arc<str>, batch: KeptBatch) -> bool {
        if self.count + batch.actions.len() > MAX_KEPT {
            self.of_nodes.retain(|_, batches| {
                batches.retain(|batch| batch.since.elapsed() < KEPT_FOR);
                !batches.is_empty()
            });
            let batches = self.of_nodes.values().flatten();
            self.count = batches.map(|batch| batch.actions.len()).sum();
        }
        let has_room = self.count + batch.actions.len() <= MAX_KEPT;
        if has_room {
            self.count += batch.actions.len();
            self.of_nodes.entry(node.clone()).or_default().push(batch);
        }
        has_room
    }

    fn take(&mut self, node: &str) -> Vec<KeptBatch> {
        let batches = self.of_nodes.remove(node).unwrap_or_default();
        self.count -= batches.iter().map(|batch| batch.actions.len()).sum::<usize>();
        batches
    }
}

fn kill_job(action: TaskTrackerAction) -> Dispatch {
    Dispatch { order: Order::KillJob, action }
}

fn batch_of(node: &Arc<str>, sender: &Arc<dyn Sender>) -> Batch {
    Batch { node: node.clone(), sender: sender.clone(), orders: Vec::new(), tries: 1 }
}

impl Missed {
    fn is_recent(&self) -> bool {
        self.last.elapsed() < UNREACHABLE_FOR
    }
}

impl Batch {
    /// Whether it only starts tasks, which other slots can run.
    fn is_only_to_launch(&self) -> bool {
        self.orders.iter().all(|dispatch| matches!(dispatch.order, Order::Launch(_)))
    }

    /// A job has one sender for all its orders.
    fn job(&self) -> JobKey {
        Arc::as_ptr(&self.sender).cast::<()>().addr()
    }

    fn orders(&self) -> Vec<Order> {
        self.orders.iter().map(|dispatch| dispatch.order).collect()
    }

    fn fail(self, why: &CallError) {
        let orders = self.orders();
        self.sender.not_delivered(self.node, orders, why);
    }

    /// Whether it only reports the end of a job: nothing waits for that.
    fn is_only_to_forget(&self) -> bool {
        self.orders.iter().all(|dispatch| dispatch.order == Order::KillJob)
    }
}

pub(crate) fn parse(address: &str) -> Option<InetAddress> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then_some(())?;
    Some(InetAddress { host: host.to_owned(), port: port.parse().ok()? })
}

impl LauncherCore {
    fn counted(&self, batch: Batch) -> Pending {
        Pending { batch, _counted: Counted::new(&self.pending) }
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Queue>>> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// What waited while a connection was tried waits no longer. Where jobs are only to be forgotten that is
    /// tried again.
    fn fail_all(&self, why: &CallError) {
        let waiting = std::mem::take(&mut *self.lock());
        let (forget, failed): (VecDeque<Pending>, VecDeque<Pending>) =
            waiting.into_iter().partition(|pending| pending.batch.is_only_to_forget());
        self.lock().extend(forget);
        failed.into_iter().for_each(|pending| pending.batch.fail(why));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use corona_hadoop::protocols::corona_task_tracker::{CoronaTaskTracker, Served};
    use corona_hadoop::rpc::{Caller, Fault, Limits, Server, Services};
    use corona_hadoop::writables::{SessionTrackers, Task};
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

    pub(crate) type Heard = mpsc::Receiver<Vec<TaskTrackerAction>>;

    /// A task tracker, and what it is sent.
    pub(crate) fn tracker(hangs: bool, stop: &watch::Receiver<bool>) -> (Tracker, Heard) {
        tracker_at("127.0.0.1:0", hangs, stop)
    }

    fn tracker_at(address: &str, hangs: bool, stop: &watch::Receiver<bool>) -> (Tracker, Heard) {
        let at = corona_net::ListenOn::Address(address.parse().unwrap());
        let listener = corona_net::listen(at).unwrap();
        let address = listener.local_addr().unwrap().to_string().into();
        let (heard, hears) = mpsc::channel(1000);
        let service = Served::new(Arc::new(Tracked { heard, hangs }));
        let server = Server::new(listener, Services::new().offer(service), Limits::default());
        tokio::spawn(server.run(stop.clone()));
        (Tracker { node: "node".into(), address }, hears)
    }

    /// A task tracker that has ended: nobody listens at its port as long as the second value is held.
    fn gone() -> (Tracker, corona_net::Reserved) {
        let nobody = corona_net::testing::nobody();
        (Tracker { node: "node".into(), address: nobody.address().to_string().into() }, nobody)
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

    /// Panics the first time.
    struct Breaks(std::sync::atomic::AtomicBool, mpsc::Sender<Vec<Order>>);

    impl Sender for Breaks {
        fn not_delivered(&self, _node: Arc<str>, orders: Vec<Order>, _why: &CallError) {
            if !self.0.swap(true, std::sync::atomic::Ordering::Relaxed) {
                panic!("a test");
            }
            let _ = self.1.try_send(orders);
        }
    }

    #[tokio::test]
    async fn orders_behind_one_whose_delivery_panics_are_delivered_and_nothing_stays_pending() {
        let (_stop, stopped) = watch::channel(false);
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let launcher = Launcher::new(user, Duration::from_secs(60), Duration::from_secs(60));
        let (failed, mut failures) = mpsc::channel(10);
        let breaks: Arc<dyn Sender> = Arc::new(Breaks(Default::default(), failed));
        // Its sender panics when it learns that the address is none.
        let none = Tracker { node: "node".into(), address: "nonsense".into() };
        launcher.send(&none, breaks.clone(), orders(0..2));
        launcher.send(&none, breaks.clone(), orders(2..5));
        let mut lost = [failures.recv().await.unwrap().len(), failures.recv().await.unwrap().len()];
        lost.sort_unstable();
        assert_eq!(lost, [2, 3], "each job learns what was not delivered");
        let (good, mut heard) = tracker(false, &stopped);
        launcher.send(&good, breaks, orders(0..1));
        assert_eq!(numbers(&heard.recv().await.unwrap()), [0]);
        launcher.drained(Duration::from_secs(60)).await;
        assert_eq!(*launcher.shared.pending.borrow(), 0);
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

    #[tokio::test(start_paused = true)]
    async fn a_job_learns_at_once_that_another_one_could_not_connect_and_waits_if_it_goes_on() {
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let patience = Duration::from_secs(10);
        let launcher = Launcher::new(user, patience, Duration::from_secs(60));
        let (dead, _port) = gone();
        let refused = CallError::Connect {
            address: parse(&dead.address).unwrap(),
            error: ErrorKind::ConnectionRefused.into(),
        };
        (0..20).for_each(|_| launcher.shared.note_unreachable(dead.address.clone(), &refused));
        let launches = || {
            let mut orders = orders(0..1);
            for dispatch in &mut orders {
                let Order::Kill(attempt) = dispatch.order else { continue };
                dispatch.order = Order::Launch(attempt);
            }
            orders
        };
        let begun = Instant::now();
        let job = || {
            let (failed, failures) = mpsc::channel(10);
            (Arc::new(Failures(failed)) as Arc<dyn Sender>, failures)
        };
        let (first, mut of_first) = job();
        let (second, mut of_second) = job();
        for (sender, failures) in [(&first, &mut of_first), (&second, &mut of_second)] {
            launcher.send(&dead, sender.clone(), launches());
            assert_eq!(failures.recv().await.unwrap().len(), 1);
            assert!(begun.elapsed() < patience, "no job waits for the try of another one");
        }
        launcher.send(&dead, first, launches());
        assert_eq!(of_first.recv().await.unwrap().len(), 1);
        assert!(begun.elapsed() >= patience, "a job that launches there again waits");
        launcher.send(&dead, second, orders(0..1));
        assert_eq!(of_second.recv().await.unwrap().len(), 1);
        assert!(begun.elapsed() >= 2 * patience, "kills wait for a try");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_job_reaches_a_task_tracker_that_reports_again_hours_later() {
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let patience = Duration::from_millis(200);
        let launcher = Launcher::new(user, patience, Duration::from_secs(60));
        let (failed, mut failures) = mpsc::channel(1000);
        let sender: Arc<dyn Sender> = Arc::new(Failures(failed));
        let (at, _port) = gone();
        let job = JobId { number: 7, tracker: "1.1".into() };
        let job_tracker = InetAddress { host: "jt".into(), port: 1 };
        let trackers = SessionTrackers { job_tracker, secondary: None };
        let session = SessionInfo { handle: Some("1.1".into()), trackers };
        launcher.forget(&at, sender.clone(), job, session);
        assert_eq!(failures.recv().await.unwrap(), [Order::KillJob], "after the last try");
        sleep(Duration::from_secs(3 * 3600)).await;
        let (_stop, stopped) = watch::channel(false);
        let mut hears = tracker_at(&at.address, false, &stopped).1;
        launcher.heard("another");
        assert_eq!(launcher.shared.kept().count, 1);
        launcher.heard("node");
        assert_eq!(numbers(&hears.recv().await.unwrap()), [7]);
        assert_eq!(launcher.shared.kept().count, 0);
        launcher.heard("node");
        launcher.drained(Duration::from_secs(10)).await;
        assert!(hears.try_recv().is_err(), "once");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_of_jobs_that_are_kept_are_bounded_and_not_repeated_too_often() {
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let launcher = Launcher::new(user, Duration::ZERO, Duration::ZERO);
        let (failed, _failures) = mpsc::channel(1);
        let sender: Arc<dyn Sender> = Arc::new(Failures(failed));
        let end = |number| {
            let (address, since) = ("a:1".into(), Instant::now());
            let actions = orders(number..number + 1).into_iter().map(|it| it.action).collect();
            KeptBatch { address, actions, sender: sender.clone(), since }
        };
        let mut kept = KeptEnds::default();
        for number in 0..MAX_KEPT as i32 {
            assert!(kept.keep(&format!("node{}", number % 100).into(), end(number)));
        }
        assert!(!kept.keep(&"node".into(), end(0)));
        sleep(KEPT_FOR).await;
        assert!(kept.keep(&"node".into(), end(0)), "the old ones are dropped");
        assert_eq!((kept.count, kept.of_nodes.len()), (1, 1));

        let (node, job) = (Arc::<str>::from("n"), JobId { number: 1, tracker: "1.1".into() });
        assert!(launcher.may_remind(&node, &job));
        assert!(!launcher.may_remind(&node, &job));
        for number in 2..=MAX_REMINDED as i32 {
            assert!(launcher.may_remind(&node, &JobId { number, tracker: "1.1".into() }));
        }
        assert!(!launcher.may_remind(&node, &JobId { number: 1, tracker: "1.2".into() }));
        sleep(REMIND_PAUSE).await;
        assert!(launcher.may_remind(&node, &job));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_is_gone_costs_one_wait_and_not_one_for_each_launch() {
        let user = User { name: "me".into(), groups: vec!["me".into()] };
        let patience = Duration::from_millis(2_500);
        let launcher = Launcher::new(user, patience, Duration::from_secs(60));
        let (failed, mut failures) = mpsc::channel(1000);
        let sender: Arc<dyn Sender> = Arc::new(Failures(failed));
        let (nowhere, _port) = gone();
        let begun = Instant::now();
        for number in 0..20 {
            launcher.send(&nowhere, sender.clone(), orders(number..number + 1));
        }
        for _ in 0..20 {
            assert_eq!(failures.recv().await.unwrap().len(), 1);
        }
        assert!(begun.elapsed() < 2 * patience, "{:?}", begun.elapsed());
        // Later ones, of this job or another, hardly wait.
        let again = Instant::now();
        for number in 0..5 {
            launcher.send(&nowhere, sender.clone(), orders(number..number + 1));
            assert_eq!(failures.recv().await.unwrap().len(), 1);
        }
        assert!(again.elapsed() < 2 * patience, "{:?}", again.elapsed());
        // Once it is there again, orders reach it.
        tokio::time::resume();
        let (_stop, stopped) = watch::channel(false);
        let mut hears = tracker_at(&nowhere.address, false, &stopped).1;
        launcher.send(&nowhere, sender, orders(7..8));
        assert_eq!(numbers(&hears.recv().await.unwrap()), [7]);
        assert!(launcher.shared.unreachable().is_empty() || failures.try_recv().is_err());
    }
}
