//! What a simulated run is measured by: waits, slots in use over time, work that was lost, and how long
//! sessions took.

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_engine::{Engine, PoolView};
use corona_model::resources::{Amounts, Dimension};
use corona_model::types::{PerType, ResourceType};
use serde::Serialize;

use crate::resources::{Counts, LACKS, Lacks, Sample};
use crate::workload::Node;

/// Points of a line over time at most.
const MOST_BINS: usize = 600;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// The name of its settings.
    pub name: String,
    /// When the last session ended.
    pub ended_ms: i64,
    /// When it was ended from outside, before its end.
    pub stopped_at_ms: Option<i64>,
    /// The cluster as a whole.
    pub cluster: ClusterResult,
    /// By pool.
    pub pools: Vec<GroupResult>,
    /// By user.
    pub users: Vec<GroupResult>,
    /// In the order of the workload.
    #[serde(skip)]
    pub sessions: Vec<SessionResult>,
    /// What is assumed beside what the workload assumes, as sentences.
    #[serde(skip)]
    pub(crate) assumptions: Vec<String>,
    /// Waits of the tasks whose recorded waits are known, and these.
    #[serde(skip)]
    pub(crate) compared: Compared,
}

/// The waits of tasks of which both are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Compared {
    pub(crate) recorded: Vec<u32>,
    pub(crate) simulated: Vec<u32>,
    /// How long slots were held in the recording.
    pub(crate) slot_ms: f64,
}

/// The cluster as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterResult {
    /// Nodes of the workload.
    pub nodes: usize,
    /// How long tasks waited for their slots.
    pub waits: Spread,
    /// Slots, by type.
    pub types: Vec<TypeResult>,
    /// Where resources are counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceResult>,
    /// What waiting requests lacked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<LackResult>,
    /// Where resources are counted: nodes that were kept for large requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Reservations>,
    /// Grants that were taken back for other pools.
    pub revoked: u64,
    /// Grants that were lost with their nodes.
    pub lost_with_nodes: u64,
    /// Work of grants that were taken back or lost.
    pub lost_ms: u64,
    /// Requests that were never served.
    pub unserved: u64,
    /// Sessions that did not end.
    pub unfinished: u64,
    /// Sessions that could not start, for instance because their pool may not be used.
    pub refused: u64,
    /// Sessions that ended after their deadline.
    pub late: u64,
    /// The width of a point of time.
    pub bin_ms: i64,
    /// Means over spans of `bin_ms`, from the beginning.
    pub over_time: Vec<Bin>,
}

/// Slots of a type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeResult {
    /// The type.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// The most at a time.
    pub slots: u64,
    /// Slots, multiplied by the time for which they were there while the workload came.
    pub slot_ms: f64,
    /// The share of them that was in use while the workload came, 0 to 1.
    pub used: f64,
    /// The share that was free while requests of the type waited.
    pub free_while_waiting: f64,
}

/// A resource of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResourceResult {
    /// The resource.
    pub resource: Dimension,
    /// The most that nodes gave out at a time.
    pub all: u64,
    /// The share of it that was in use while the workload came, 0 to 1.
    pub used: f64,
    /// The share that was free while requests waited.
    pub free_while_waiting: f64,
    /// The most that was free on one node while requests waited, on average.
    pub largest: f64,
    /// The share of what was free while requests waited that was on nodes where none of them fitted.
    pub too_small: f64,
}

/// What requests that waited lacked: a share of the time for which they did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LackResult {
    /// `slots` or a resource: a node would have served them with more of this alone; `several`: no node would have;
    /// `reserved`: it is kept for others; `other`: they would have fitted, but for limits, order or locality.
    pub of: &'static str,
    /// From 0 to 1.
    pub share: f64,
}

/// Nodes that were kept for large requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reservations {
    /// Nodes that were kept, each time counted.
    pub made: u64,
    /// Those whose request was granted there.
    pub served: u64,
    /// Those that ended because they had lasted for too long.
    pub expired: u64,
    /// Requests for which grants of others were taken back.
    pub rooms: u64,
}

/// A pool or a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupResult {
    /// A pool as `group.pool`, or a user's name.
    pub name: String,
    /// Sessions that were started.
    pub sessions: u64,
    /// Further sessions that could not start.
    pub refused: u64,
    /// Requests that were never served.
    pub unserved: u64,
    /// How long its tasks waited for their slots.
    pub waits: Spread,
    /// Slots in use, multiplied by time.
    pub used_ms: u64,
    /// Resources in use, multiplied by time in hours, where they are counted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_hours: BTreeMap<&'static str, f64>,
    /// What its waiting requests lacked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<LackResult>,
    /// Grants that were taken back from it.
    pub revoked: u64,
    /// The time for which the grants that were taken back had run.
    pub lost_ms: u64,
    /// Means over spans of [`ClusterResult::bin_ms`], from the beginning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_time: Vec<Bin>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Bin {
    /// Slots in use on average.
    pub used: f64,
    /// Slots that it was due, as last computed.
    pub share: f64,
    /// Slots that it is guaranteed, as far as it requested them.
    pub guaranteed: f64,
    /// Requests that waited.
    pub pending: f64,
}

/// How long things took, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many there were. All else is 0 if there were none.
    pub count: u64,
    /// Their mean.
    pub mean_ms: f64,
    /// Half of them took no longer.
    pub median_ms: u32,
    /// 95 % of them took no longer.
    pub p95_ms: u32,
    /// 99 % of them took no longer.
    pub p99_ms: u32,
    /// The longest one.
    pub longest_ms: u32,
}

impl Spread {
    /// Of these times, which are sorted then.
    pub fn of(times: &mut [u32]) -> Spread {
        times.sort_unstable();
        let at = |share: f64| {
            let place = (share * times.len() as f64).ceil() as usize;
            times.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        let sum: u64 = times.iter().map(|time| u64::from(*time)).sum();
        Spread {
            count: times.len() as u64,
            mean_ms: if times.is_empty() { 0.0 } else { sum as f64 / times.len() as f64 },
            median_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            longest_ms: times.last().copied().unwrap_or(0),
        }
    }
}

/// How a session fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionResult {
    /// Milliseconds since the beginning; none if it could not start.
    pub started_ms: Option<i64>,
    /// Milliseconds since the beginning; none if it did not end.
    pub ended_ms: Option<i64>,
    /// The waits of all its tasks together.
    pub waited_ms: u64,
}

impl SessionResult {
    /// From its start to its end, in milliseconds.
    pub fn took_ms(&self) -> Option<i64> {
        Some(self.ended_ms? - self.started_ms?)
    }
}

/// Slots in use, waits and lost work of a pool, a user or the cluster.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) sessions: u64,
    refused: u64,
    pub(crate) unserved: u64,
    pub(crate) waits: Vec<u32>,
    pub(crate) used: i64,
    changed_ms: i64,
    used_ms: u64,
    held: Amounts,
    /// Resources in use, multiplied by time.
    held_ms: [f64; 4],
    lacks: Lacks,
    /// Slots in use, multiplied by time, in the current stretch.
    area: u64,
    pub(crate) revoked: u64,
    pub(crate) lost_ms: u64,
    bins: Vec<Bin>,
}

impl Account {
    fn pass(&mut self, now_ms: i64) {
        let passed = now_ms.saturating_sub(self.changed_ms).max(0) as u64;
        let area = passed.saturating_mul(self.used.max(0) as u64);
        self.area = self.area.saturating_add(area);
        self.used_ms = self.used_ms.saturating_add(area);
        for (sum, held) in self.held_ms.iter_mut().zip(self.held.0) {
            *sum += passed as f64 * held as f64;
        }
        self.changed_ms = now_ms;
    }

    fn change(&mut self, now_ms: i64, by: i64, takes: Amounts) {
        self.pass(now_ms);
        self.used += by;
        self.held = if by > 0 { self.held.plus(takes) } else { self.held.minus(takes) };
    }

    fn close_bin(&mut self, now_ms: i64, width_ms: i64, bin: Bin) {
        self.pass(now_ms);
        let used = std::mem::take(&mut self.area) as f64 / width_ms.max(1) as f64;
        self.bins.push(Bin { used, ..bin });
    }

    /// Makes one stretch of every two.
    fn merge_bins(&mut self) {
        let merged = self.bins.chunks(2).map(|pair| {
            let mean = |of: fn(&Bin) -> f64| pair.iter().map(of).sum::<f64>() / pair.len() as f64;
            Bin {
                used: mean(|bin| bin.used),
                share: mean(|bin| bin.share),
                guaranteed: mean(|bin| bin.guaranteed),
                pending: mean(|bin| bin.pending),
            }
        });
        self.bins = merged.collect();
    }

    fn result(mut self, with_time: bool, dimensions: &[Dimension]) -> GroupResult {
        let hours =
            |dimension: &Dimension| (dimension.name(), dimension.item(&self.held_ms) / 3_600_000.0);
        GroupResult {
            resource_hours: dimensions.iter().map(hours).collect(),
            lacks: lacks(&self.lacks),
            waits: Spread::of(&mut self.waits),
            name: self.name,
            sessions: self.sessions,
            refused: self.refused,
            unserved: self.unserved,
            used_ms: self.used_ms,
            revoked: self.revoked,
            lost_ms: self.lost_ms,
            over_time: if with_time { self.bins } else { Vec::new() },
        }
    }
}

/// The measurement of a run.
#[derive(Debug, Default)]
pub(crate) struct Measure {
    /// Until when utilisation counts.
    until_ms: i64,
    pub(crate) width_ms: i64,
    pub(crate) pools: Vec<Account>,
    pub(crate) users: Vec<Account>,
    places: [BTreeMap<Arc<str>, usize>; 2],
    cluster: Account,
    kinds: PerType<OfKind>,
    dimensions: [OfKind; 4],
    /// Sums over samples: of what was free, the largest places, and what was on nodes where nothing fitted.
    sampled_ms: f64,
    sampled: [[f64; 3]; 4],
    /// How long the last stretch of time was that has ended.
    closed_ms: i64,
    pub(crate) reservations: Reservations,
    pub(crate) lost_with_nodes: u64,
    refused: u64,
    /// Sessions that ended after their deadline.
    pub(crate) late: u64,
    pub(crate) compared: Compared,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfKind {
    most: u64,
    total: u64,
    used: u64,
    waits: bool,
    changed_ms: i64,
    /// Slots or amounts, multiplied by time: of all, of those in use, of those that were free while requests waited,
    /// and of all while requests waited.
    area: [f64; 4],
}

impl OfKind {
    fn now(&mut self, now_ms: i64, until_ms: i64, (total, used): (u64, u64), waits: bool) {
        self.pass(now_ms, until_ms);
        (self.total, self.used, self.waits) = (total, used, waits);
        self.most = self.most.max(total);
    }

    /// The shares in use, and free while requests waited.
    fn shares(&self) -> [f64; 2] {
        let part = |some: f64, of: f64| if of > 0.0 { some / of } else { 0.0 };
        [part(self.area[1], self.area[0]), part(self.area[2], self.area[3])]
    }

    fn pass(&mut self, now_ms: i64, until_ms: i64) {
        let passed = (now_ms.min(until_ms) - self.changed_ms).max(0) as f64;
        self.area[0] += passed * self.total as f64;
        self.area[1] += passed * self.used as f64;
        if self.waits {
            self.area[2] += passed * self.total.saturating_sub(self.used) as f64;
            self.area[3] += passed * self.total as f64;
        }
        self.changed_ms = now_ms;
    }
}

impl Measure {
    pub(crate) fn new(until_ms: i64) -> Measure {
        Measure { until_ms, width_ms: (until_ms / 200).max(1_000), ..Measure::default() }
    }

    pub(crate) fn pool(&mut self, name: &str, now_ms: i64) -> usize {
        account(&mut self.pools, &mut self.places[0], name, now_ms)
    }

    pub(crate) fn user(&mut self, name: &str, now_ms: i64) -> usize {
        account(&mut self.users, &mut self.places[1], name, now_ms)
    }

    /// A session of a user could not start.
    pub(crate) fn refused(&mut self, user: &str, now_ms: i64) {
        let user = self.user(user, now_ms);
        self.users[user].refused += 1;
        self.refused += 1;
    }

    /// A slot of a pool and a user is granted, or is free again.
    pub(crate) fn slot(&mut self, now_ms: i64, [pool, user]: [usize; 2], by: i64, takes: Amounts) {
        for one in [&mut self.pools[pool], &mut self.users[user], &mut self.cluster] {
            one.change(now_ms, by, takes);
        }
    }

    pub(crate) fn waited(&mut self, [pool, user]: [usize; 2], ms: u32) {
        self.pools[pool].waits.push(ms);
        self.users[user].waits.push(ms);
    }

    /// A grant is lost, after so much work.
    pub(crate) fn lost(&mut self, [pool, user]: [usize; 2], revoked: bool, ms: i64) {
        for one in [&mut self.pools[pool], &mut self.users[user], &mut self.cluster] {
            one.lost_ms = one.lost_ms.saturating_add(ms.max(0) as u64);
            one.revoked += u64::from(revoked);
        }
        self.lost_with_nodes += u64::from(!revoked);
    }

    /// The slots and resources of the engine after something has changed.
    pub(crate) fn slots(
        &mut self,
        now_ms: i64,
        engine: &Engine,
        counts: &Counts,
        pending: PerType<i64>,
    ) {
        for kind in ResourceType::ALL {
            let slots = engine.slots(kind);
            let both = (slots.total, slots.used);
            self.kinds[kind].now(now_ms, self.until_ms, both, pending[kind] > 0);
        }
        let waits = pending.0.iter().any(|count| *count > 0);
        for (place, of) in self.dimensions.iter_mut().enumerate() {
            let both = (counts.capacity.0[place], counts.held.0[place]);
            of.now(now_ms, self.until_ms, both, waits);
        }
    }

    /// What was seen at the end of a stretch of time. Longer stretches count for more, and those after the last request
    /// came or the last grant was made do not: what can never run waits then.
    pub(crate) fn sampled(&mut self, now_ms: i64, moved_ms: i64, sample: &Sample) {
        if now_ms > self.until_ms.max(moved_ms.saturating_add(self.closed_ms)) {
            return;
        }
        let width = self.closed_ms as f64;
        self.sampled_ms += width;
        for (place, sums) in self.sampled.iter_mut().enumerate() {
            let seen = [sample.free, sample.largest, sample.too_small];
            for (sum, seen) in sums.iter_mut().zip(seen) {
                *sum += seen.0[place] as f64 * width;
            }
        }
        for (pool, lacks) in &sample.lacks {
            for account in [&mut self.pools[*pool], &mut self.cluster] {
                account.lacks.iter_mut().zip(lacks).for_each(|(sum, more)| *sum += more * width);
            }
        }
    }

    /// A stretch of time ends. Returns the width of the next one.
    pub(crate) fn close_bin(&mut self, now_ms: i64, engine: &Engine) -> i64 {
        let views: BTreeMap<String, PoolView> = engine
            .pools()
            .into_iter()
            .filter_map(|view| Some((format!("{}.{}", view.group, view.pool.as_ref()?), view)))
            .collect();
        let width = self.width_ms;
        self.closed_ms = width;
        let mut all = Bin::default();
        for account in &mut self.pools {
            let bin = views.get(&account.name).map(bin_of).unwrap_or_default();
            all.pending += bin.pending;
            account.close_bin(now_ms, width, bin);
        }
        self.cluster.close_bin(now_ms, width, all);
        if self.cluster.bins.len() >= MOST_BINS {
            self.pools.iter_mut().for_each(Account::merge_bins);
            self.cluster.merge_bins();
            self.width_ms *= 2;
        }
        self.width_ms
    }

    pub(crate) fn finish(
        mut self,
        name: &str,
        now_ms: i64,
        (engine, counts): (&Engine, &Counts),
        nodes: &[Node],
    ) -> Run {
        self.slots(now_ms, engine, counts, PerType::default());
        let dimensions = counts.dimensions(nodes);
        for one in self.pools.iter_mut().chain(&mut self.users) {
            one.pass(now_ms);
        }
        let mut waits: Vec<u32> = self.pools.iter().flat_map(|pool| pool.waits.clone()).collect();
        let types = ResourceType::ALL.into_iter().filter(|kind| self.kinds[*kind].most > 0);
        let types = types.map(|kind| {
            let known = &self.kinds[kind];
            let [used, free_while_waiting] = known.shares();
            TypeResult { kind, slots: known.most, slot_ms: known.area[0], used, free_while_waiting }
        });
        let resources = dimensions.iter().map(|dimension| self.of_resource(*dimension));
        let are_counted = !dimensions.is_empty();
        let cluster = ClusterResult {
            nodes: nodes.len(),
            waits: Spread::of(&mut waits),
            types: types.collect(),
            resources: resources.collect(),
            lacks: lacks(&self.cluster.lacks),
            reservations: are_counted.then_some(self.reservations),
            revoked: self.cluster.revoked,
            lost_with_nodes: self.lost_with_nodes,
            lost_ms: self.cluster.lost_ms,
            refused: self.refused,
            late: self.late,
            bin_ms: self.width_ms,
            over_time: self.cluster.bins,
            ..ClusterResult::default()
        };
        let by_name = |mut all: Vec<GroupResult>| {
            all.sort_by(|one, other| one.name.cmp(&other.name));
            all
        };
        Run {
            name: name.to_owned(),
            cluster,
            pools: by_name(
                self.pools.into_iter().map(|pool| pool.result(true, &dimensions)).collect(),
            ),
            users: by_name(
                self.users.into_iter().map(|user| user.result(false, &dimensions)).collect(),
            ),
            assumptions: counts.assumptions(nodes),
            compared: self.compared,
            ..Run::default()
        }
    }

    fn of_resource(&self, resource: Dimension) -> ResourceResult {
        let place = resource as usize;
        let [free, largest, too_small] = self.sampled[place];
        let [used, free_while_waiting] = self.dimensions[place].shares();
        ResourceResult {
            resource,
            all: self.dimensions[place].most,
            used,
            free_while_waiting,
            largest: if self.sampled_ms > 0.0 { largest / self.sampled_ms } else { 0.0 },
            too_small: if free > 0.0 { too_small / free } else { 0.0 },
        }
    }
}

/// The shares of what requests lacked, the largest first.
fn lacks(sums: &Lacks) -> Vec<LackResult> {
    let all: f64 = sums.iter().sum();
    let some = LACKS.into_iter().zip(sums).filter(|(_, sum)| **sum > 0.0);
    let mut shares: Vec<_> = some.map(|(of, sum)| LackResult { of, share: sum / all }).collect();
    shares.sort_by(|one, other| other.share.total_cmp(&one.share));
    shares
}

fn account(
    all: &mut Vec<Account>,
    places: &mut BTreeMap<Arc<str>, usize>,
    name: &str,
    now_ms: i64,
) -> usize {
    if let Some(place) = places.get(name) {
        return *place;
    }
    let new = Account { name: name.to_owned(), changed_ms: now_ms, ..Account::default() };
    all.push(new);
    places.insert(name.into(), all.len() - 1);
    all.len() - 1
}

/// The sum over the types of slots.
fn bin_of(view: &PoolView) -> Bin {
    let mut bin = Bin::default();
    for kind in ResourceType::ALL {
        let counts = &view.counts[kind];
        bin.share += view.share[kind];
        bin.pending += counts.pending as f64;
        bin.guaranteed += i64::from(view.minimum[kind]).min(counts.requested).max(0) as f64;
    }
    bin
}
