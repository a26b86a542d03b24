//! Copies the data that the web shows from the engine, in pieces, so that other work does not wait
//! long.
//!
//! A copy is reused for ten times the processor time that it took to make, but
//! for ten seconds at most. So the copying of sessions, of nodes and of pools takes a tenth of a processor each at most, whatever
//! the number of readers, unless one copy takes longer than a second. After a change over HTTP no earlier copy is reused,
//! so that the operator sees the change at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::places::Places;
use crate::{Manager, Programs};
use corona_engine::{
    Engine, NodeDetail, NodeGrant, NodeView, PoolView, RetiredSession, RunningSession,
    SessionTally, Slice, SlotCounts, WaitingRequests, fill_in_shares,
};
use corona_model::settings::{Hosts, Settings};
use corona_model::types::{Grant, Millis, PerType, PoolName, ResourceType};

/// Places of a list that are looked at while the engine is held: some tens of microseconds.
const PLACES: u64 = 256;
/// A copy is reused for this many times the processor time that it took. After an explanation the next one waits this
/// many times as long as it took. Both are at most `LONGEST_REUSE`.
const REUSE: u32 = 10;
const LONGEST_REUSE: Duration = Duration::from_secs(10);

/// The way to the engine's state.
#[derive(Debug)]
pub(crate) struct Gather<M> {
    manager: Arc<M>,
    tracker_port: Option<u16>,
    sessions: Cached<Vec<RunningSession>>,
    nodes: Cached<Vec<NodeView>>,
    pools: Cached<Pools>,
    /// When the engine may be asked again why something waits, which may take it long.
    next_explanation: tokio::sync::Mutex<Instant>,
}

/// The cluster in a few numbers.
#[derive(Clone, Debug)]
pub(crate) struct Overview {
    /// The present time.
    pub(crate) now: Millis,
    /// When the cluster manager was first started.
    pub(crate) first_started: Millis,
    pub(crate) safe_mode: bool,
    /// The types that are scheduled.
    pub(crate) kinds: Vec<ResourceType>,
    /// Slots of the nodes that serve the type.
    pub(crate) slots: PerType<SlotCounts>,
    /// Slots of all nodes, as the Java cluster manager counts them.
    pub(crate) all_slots: PerType<SlotCounts>,
    /// The oldest last heartbeat of any node.
    pub(crate) oldest_heartbeat: Option<Millis>,
    pub(crate) sessions: usize,
    pub(crate) settings: Arc<Settings>,
    pub(crate) hosts: Arc<Hosts>,
    /// The port of the pages of task trackers, if there is one for all.
    pub(crate) tracker_port: Option<u16>,
    /// What runs nodes and sessions.
    pub(crate) programs: Arc<dyn Programs>,
}

/// Groups and pools with the data that only their sessions have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// All groups and pools, by group name, each group before its pools; shares are of now.
    pub(crate) views: Vec<PoolView>,
    /// How long sessions waited for their first slot of each type.
    pub(crate) first_waits: FirstWaits,
}

/// For each pool and type how long its running sessions waited for their first slot, on average, in
/// milliseconds. Absent where no session counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstWaits {
    /// Of the sessions that were granted a slot.
    pub(crate) granted_ms: BTreeMap<PoolName, PerType<Option<i64>>>,
    /// As the Java cluster manager counts it: those that have had no slot count with their wait
    /// until now. Spec: cluster-manager/08 §4.2.
    pub(crate) java_ms: BTreeMap<PoolName, PerType<Option<i64>>>,
}

/// How many nodes are how. A node may be in several of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeCounts {
    /// Nodes that sent a heartbeat within the expiry interval.
    pub(crate) alive: u64,
    /// Nodes among them that have missed too many heartbeats.
    pub(crate) late: u64,
    /// Entries of the include file from which no node heartbeats.
    pub(crate) dead: u64,
    /// Nodes that are blacklisted for a type at least.
    pub(crate) blacklisted: u64,
    /// Nodes that the host files do not allow.
    pub(crate) excluded: u64,
    /// Nodes that an operator drains.
    pub(crate) draining: u64,
    pub(crate) revoked: u64,
    /// Nodes with less memory or disk free than they must keep.
    pub(crate) below_reserve: u64,
    /// Nodes that can be given more of the type now.
    pub(crate) usable: PerType<u64>,
    /// Free slots of the type on nodes that serve it and are granted nothing.
    pub(crate) unusable_slots: PerType<u64>,
    /// Their resources, where these are counted.
    pub(crate) places: Places,
}

impl<M: Manager> Gather<M> {
    pub(crate) fn new(manager: Arc<M>, tracker_port: Option<u16>) -> Gather<M> {
        Gather {
            manager,
            tracker_port,
            sessions: Cached::default(),
            nodes: Cached::default(),
            pools: Cached::default(),
            next_explanation: tokio::sync::Mutex::new(Instant::now()),
        }
    }

    /// Discards all copies. Later readers copy the engine again.
    pub(crate) fn forget(&self) {
        self.sessions.forget();
        self.nodes.forget();
        self.pools.forget();
    }

    /// Has the present copies reused for as long as a test may take.
    #[cfg(feature = "testing")]
    pub(crate) fn keep_copies(&self) {
        self.sessions.keep_long();
        self.nodes.keep_long();
        self.pools.keep_long();
    }

    /// The few numbers that cost nothing.
    pub(crate) fn overview(&self) -> Overview {
        self.manager.look(|engine, now| Overview {
            now,
            first_started: engine.started(),
            safe_mode: engine.safe_mode(),
            kinds: engine.legal_types().collect(),
            slots: PerType(ResourceType::ALL.map(|kind| engine.slots(kind))),
            all_slots: PerType(ResourceType::ALL.map(|kind| engine.slots_of_all_nodes(kind))),
            oldest_heartbeat: engine.oldest_heartbeat(),
            sessions: engine.session_count(),
            settings: engine.settings().clone(),
            hosts: engine.hosts().clone(),
            tracker_port: self.tracker_port,
            programs: self.manager.programs(),
        })
    }

    /// All running sessions, in no order.
    pub(crate) async fn sessions(&self) -> Arc<Vec<RunningSession>> {
        self.sessions.get(|| self.pieces(|e, now, from| e.sessions_slice(now, from, PLACES))).await
    }

    /// All nodes, in no order.
    pub(crate) async fn nodes(&self) -> Arc<Vec<NodeView>> {
        self.nodes.get(|| self.pieces(|e, _, from| e.nodes_slice(from, PLACES))).await
    }

    /// A node with the complaints about it.
    pub(crate) fn node(&self, name: &str) -> Option<NodeDetail> {
        self.manager.look(|engine, _| engine.node_detail(name))
    }

    /// Grants on a node, in no order; none if there is no such node.
    pub(crate) async fn node_grants(&self, name: &str) -> Vec<NodeGrant> {
        self.pieces(|e, _, from| {
            let none = Slice { rows: Vec::new(), next: None };
            e.node_grants_slice(name, from, PLACES).unwrap_or(none)
        })
        .await
    }

    /// Ended sessions that are remembered, the oldest first.
    pub(crate) async fn retired(&self) -> Vec<RetiredSession> {
        self.pieces(|e, _, from| e.retired_slice(from, PLACES)).await
    }

    /// The slots that a running session holds, in no order; `None` if it does not run.
    pub(crate) async fn grants(&self, handle: &str) -> Option<Vec<Grant>> {
        self.manager.look(|e, _| e.grants_slice(handle, 0, 0))?;
        // If it ends meanwhile, it held the grants seen up to then.
        let piece = |e: &Engine, _, from| {
            let none = Slice { rows: Vec::new(), next: None };
            e.grants_slice(handle, from, PLACES).unwrap_or(none)
        };
        Some(self.pieces(piece).await)
    }

    /// One running session.
    pub(crate) fn session(&self, handle: &str) -> Option<RunningSession> {
        self.manager.look(|engine, now| engine.session_at(handle, now))
    }

    /// Why the requests of a running session wait. This locks the engine throughout, so the next
    /// caller waits for ten times as long as the last answer took, ten seconds at most.
    pub(crate) async fn waits(&self, handle: &str) -> Vec<WaitingRequests> {
        let mut next = self.next_explanation.lock().await;
        tokio::time::sleep_until((*next).into()).await;
        let (waits, took) = self.manager.look(|engine, now| {
            let started = Instant::now();
            (engine.explain(handle, now).unwrap_or_default(), started.elapsed())
        });
        *next = Instant::now() + (took * REUSE).min(LONGEST_REUSE);
        waits
    }

    /// All groups and pools.
    pub(crate) async fn pools(&self) -> Arc<Pools> {
        self.pools
            .get(|| async {
                let sessions = self.sessions().await;
                let (mut views, used) = self.manager.look(|engine, _| {
                    let used = ResourceType::ALL.map(|kind| engine.slots(kind).used);
                    (engine.pools(), PerType(used))
                });
                fill_in_shares(&mut views, used);
                Pools { views, first_waits: first_waits(&sessions) }
            })
            .await
    }

    async fn pieces<T>(&self, take: impl Fn(&Engine, Millis, u64) -> Slice<T>) -> Vec<T> {
        let mut rows = Vec::new();
        let mut from = 0;
        loop {
            let piece = self.manager.look(|engine, now| take(engine, now, from));
            rows.extend(piece.rows);
            match piece.next {
                Some(next) => from = next,
                None => return rows,
            }
            // Others on this thread get their turn.
            tokio::task::yield_now().await;
        }
    }
}

/// A copy, and how long it is good for.
#[derive(Debug)]
struct Cached<T> {
    kept: Mutex<Kept<T>>,
    /// Held while a new one is made; other tasks wait for it.
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Kept<T> {
    copy: Option<Copy<T>>,
    /// The number of calls of `forget`.
    forgotten: u64,
}

#[derive(Debug)]
struct Copy<T> {
    value: Arc<T>,
    good_until: Instant,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        let kept = Mutex::new(Kept { copy: None, forgotten: 0 });
        Cached { kept, making: tokio::sync::Mutex::default() }
    }
}

impl<T> Cached<T> {
    async fn get<F: Future<Output = T>>(&self, make: impl FnOnce() -> F) -> Arc<T> {
        if let Some(value) = self.present() {
            return value;
        }
        let _one_at_a_time = self.making.lock().await;
        if let Some(value) = self.present() {
            return value;
        }
        let forgotten = self.lock().forgotten;
        let (value, took) = with_cpu_time(make()).await;
        let value = Arc::new(value);
        self.keep(&value, (took * REUSE).min(LONGEST_REUSE), forgotten);
        value
    }

    /// Keeps a copy, unless copies were forgotten since it was begun.
    fn keep(&self, value: &Arc<T>, good: Duration, forgotten: u64) {
        let mut kept = self.lock();
        if kept.forgotten == forgotten {
            kept.copy = Some(Copy { value: value.clone(), good_until: Instant::now() + good });
        }
    }

    /// Earlier copies, and one that is being made, serve no later request.
    fn forget(&self) {
        let mut kept = self.lock();
        kept.copy = None;
        kept.forgotten += 1;
    }

    #[cfg(feature = "testing")]
    fn keep_long(&self) {
        if let Some(copy) = &mut self.lock().copy {
            copy.good_until = Instant::now() + Duration::from_secs(600);
        }
    }

    fn present(&self) -> Option<Arc<T>> {
        // A stale copy need not be kept until the next request.
        let mut kept = self.lock();
        kept.copy = kept.copy.take().filter(|copy| Instant::now() < copy.good_until);
        kept.copy.as_ref().map(|copy| copy.value.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        // Each change is one step.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of work, and the time that processors spent on it: on a busy machine it takes longer without costing more.
async fn with_cpu_time<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut work = pin!(work);
    let mut took = Duration::ZERO;
    let result = poll_fn(|context| {
        let before = cpu_time_of_thread();
        let polled = work.as_mut().poll(context);
        took += cpu_time_of_thread().saturating_sub(before);
        polled
    });
    let result = result.await;
    (result, took)
}

fn cpu_time_of_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn first_waits(sessions: &[RunningSession]) -> FirstWaits {
    let until_now = |counts: &SessionTally| counts.first_wait_ms.or(counts.ungranted_ms);
    FirstWaits {
        granted_ms: averages(sessions, |counts| counts.first_wait_ms),
        java_ms: averages(sessions, until_now),
    }
}

/// The average of a span for each pool and type, over the sessions that have it.
fn averages(
    sessions: &[RunningSession],
    span: impl Fn(&SessionTally) -> Option<i64>,
) -> BTreeMap<PoolName, PerType<Option<i64>>> {
    let mut sums: HashMap<&PoolName, PerType<(i64, i64)>> = HashMap::new();
    for session in sessions {
        let of_pool = sums.entry(&session.scheduling_pool).or_default();
        for kind in ResourceType::ALL {
            if let Some(wait_ms) = span(&session.counts[kind]) {
                let (sum, count) = &mut of_pool[kind];
                *sum = sum.saturating_add(wait_ms);
                *count += 1;
            }
        }
    }
    let average = |(sum, count): (i64, i64)| sum.checked_div(count);
    sums.into_iter().map(|(pool, sums)| (pool.clone(), PerType(sums.0.map(average)))).collect()
}

/// How many nodes are how.
pub(crate) fn count_nodes(nodes: &[NodeView], hosts: &Hosts) -> NodeCounts {
    let count =
        |is: &dyn Fn(&NodeView) -> bool| nodes.iter().filter(|node| is(node)).count() as u64;
    NodeCounts {
        alive: nodes.len() as u64,
        late: count(&|node| node.late),
        dead: silent_hosts(nodes, hosts).count() as u64,
        blacklisted: count(&|node| node.blacklisted.0.contains(&true)),
        excluded: count(&|node| !node.allowed),
        draining: count(&|node| node.draining),
        revoked: count(&|node| node.revoked),
        below_reserve: count(&|node| !node.has_reserve),
        places: Places::of(nodes),
        usable: PerType(ResourceType::ALL.map(|kind| count(&|node| node.is_usable(kind)))),
        unusable_slots: PerType(ResourceType::ALL.map(|kind| {
            nodes.iter().filter(|node| !node.is_usable(kind)).map(|node| node.room(kind)).sum()
        })),
    }
}

/// Hosts of the include file from which no node heartbeats and which are not excluded.
pub(crate) fn silent_hosts<'a>(
    nodes: &'a [NodeView],
    hosts: &'a Hosts,
) -> impl Iterator<Item = &'a Arc<str>> {
    let heard: HashSet<&str> = match hosts.include.is_empty() {
        true => HashSet::new(),
        false => nodes.iter().map(|node| &*node.address.host).collect(),
    };
    let included = hosts.include.iter().filter(|host| !hosts.exclude.contains(*host));
    included.filter(move |host| !heard.contains(&***host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::running_session;

    #[tokio::test]
    async fn copies_are_reused_until_they_are_forgotten() {
        let cached = Cached::default();
        cached.keep(&Arc::new(1), Duration::from_secs(600), 0);
        assert_eq!(*cached.get(async || 2).await, 1);
        cached.forget();
        assert_eq!(*cached.get(async || 3).await, 3);
        // One that was begun before is not kept either.
        cached.forget();
        cached.keep(&Arc::new(4), Duration::from_secs(600), 0);
        assert_eq!(*cached.get(async || 5).await, 5);
    }

    #[tokio::test]
    async fn waiting_costs_no_processor_time() {
        let wait = Duration::from_millis(200);
        let (result, took) = with_cpu_time(async move {
            tokio::time::sleep(wait).await;
            std::thread::sleep(wait);
            7
        })
        .await;
        assert!(result == 7 && took < wait, "{took:?}");
        let (_, took) =
            with_cpu_time(async { (0..1_000_000).map(std::hint::black_box).sum::<u64>() }).await;
        assert!(took > Duration::ZERO);
    }

    #[test]
    fn only_sessions_that_were_granted_a_slot_have_a_first_wait() {
        let session = |first_wait_ms, ungranted_ms| {
            let mut session = running_session("1.1");
            let map = &mut session.counts[ResourceType::Map];
            (map.first_wait_ms, map.ungranted_ms) = (first_wait_ms, ungranted_ms);
            session
        };
        let pool = PoolName::new("g", "p");
        for (sessions, granted_ms, java_ms) in [
            (vec![session(None, None)], None, None),
            (vec![session(None, Some(900))], None, Some(900)),
            (vec![session(Some(100), None), session(Some(201), None)], Some(150), Some(150)),
            (vec![session(Some(100), None), session(None, Some(900))], Some(100), Some(500)),
        ] {
            let waits = first_waits(&sessions);
            let map =
                |waits: &BTreeMap<PoolName, PerType<Option<i64>>>| waits[&pool][ResourceType::Map];
            let averages = (map(&waits.granted_ms), map(&waits.java_ms));
            assert_eq!(averages, (granted_ms, java_ms));
        }
    }
}
