//! Workloads from histories of jobs, the original's and ours: which attempts ran when and where.
//!
//! A history does not say when a slot was requested. That follows from how job trackers behave: maps after the
//! set-up, reduces after the slow start, another attempt after the end of the one before.

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_mapreduce::{
    HistoryAttempt, HistoryTask, JobHistory, JobSettings, PartState, TaskDemand, TaskKind, TaskRole,
};
use corona_model::resources::{Amounts, Dimension, Resources};
use corona_model::settings::Settings;
use corona_model::types::{
    Address, ComputeSpecs, PoolName, ResourceRequest, ResourceType, SessionInfo, SessionPriority,
};

use crate::history::History;
use crate::workload::{Node, Reading};

/// CPUs of a node at most.
const MOST_CPUS: i16 = 1_024;

/// What a job's configuration says.
#[derive(Clone, Debug, PartialEq)]
pub struct Configured {
    /// The pool that the job was to run in.
    pub pool: PoolName,
    /// Its priority, if it names one.
    pub priority: Option<SessionPriority>,
    /// The settings of the job that its tasks depend on.
    pub settings: JobSettings,
    /// What its tasks request of a node.
    pub demand: TaskDemand,
}

/// Collects histories of jobs.
#[derive(Debug, Default)]
pub struct JobHistories {
    history: History,
    began_ms: Option<i64>,
    nodes: BTreeMap<Arc<str>, u32>,
    spans: Vec<Span>,
    unconfigured: usize,
    unfinished: usize,
    empty: usize,
}

/// An attempt on a node.
#[derive(Debug)]
struct Span {
    node: u32,
    kind: ResourceType,
    takes: Option<ComputeSpecs>,
    from_ms: i64,
    until_ms: i64,
}

/// Something that a job does.
enum Step {
    Releases(i32),
    Requests(ResourceRequest),
    Granted(i32, Arc<str>),
}

impl JobHistories {
    /// Adds a job.
    pub fn add(&mut self, job: &JobHistory, configured: Option<&Configured>) {
        let times = all_times(job);
        let (Some(first_ms), Some(last_ms)) = (times.iter().min(), times.iter().max()) else {
            self.empty += 1;
            return;
        };
        let at_ms = if job.submit_ms > 0 { job.submit_ms } else { *first_ms };
        let has_ended = job.has_ended() && job.finish_ms > 0;
        // The clock may have been set back meanwhile.
        let end_ms = if has_ended { job.finish_ms } else { *last_ms }.max(at_ms);
        self.unfinished += usize::from(!has_ended);
        self.unconfigured += usize::from(configured.is_none());
        self.began_ms = Some(self.began_ms.map_or(at_ms, |began_ms| began_ms.min(at_ms)));
        let handle: Arc<str> = job.id.as_str().into();
        let info = SessionInfo {
            address: Address { host: "driver".into(), port: 1 },
            name: job.name.as_str().into(),
            user_id: job.user.as_str().into(),
            pool: configured.map(|configured| configured.pool.clone()),
            priority: configured.and_then(|configured| configured.priority),
            ..SessionInfo::default()
        };
        self.history.session_starts(at_ms, &handle, &info);
        let mut steps = self.steps(job, configured, at_ms, end_ms);
        // What ends at a time does so before anything begins.
        steps.sort_by_key(|(at_ms, step)| {
            (
                *at_ms,
                match step {
                    Step::Releases(_) => 0,
                    Step::Requests(_) => 1,
                    Step::Granted(..) => 2,
                },
            )
        });
        for (at_ms, step) in steps {
            match step {
                Step::Releases(id) => self.history.releases(at_ms, &handle, &[id]),
                Step::Requests(request) => self.history.requests(at_ms, &handle, &[request]),
                Step::Granted(id, node) => self.history.granted(at_ms, &handle, id, &node),
            }
        }
        self.history.session_ends(end_ms, &handle);
    }

    fn steps(
        &mut self,
        job: &JobHistory,
        configured: Option<&Configured>,
        at_ms: i64,
        end_ms: i64,
    ) -> Vec<(i64, Step)> {
        let begins = Begins::of(job, configured, at_ms);
        let (mut steps, mut id) = (Vec::new(), 0);
        for (key, task) in &job.tasks {
            let kind = match key.kind {
                TaskKind::Map => ResourceType::Map,
                TaskKind::Reduce => ResourceType::Reduce,
            };
            let takes = configured.and_then(|configured| configured.demand.applied(kind, None));
            let mut before_ms = None;
            for attempt in ran(task) {
                let start_ms = attempt.start_ms.clamp(at_ms, end_ms);
                let done_ms = finish_of(attempt, task).unwrap_or(end_ms).clamp(start_ms, end_ms);
                let asked_ms = match before_ms {
                    None => begins.of_role(task.role),
                    // A second attempt beside a slow one is requested when it starts.
                    Some(before_ms) if before_ms > start_ms => start_ms,
                    Some(before_ms) => before_ms,
                };
                before_ms = Some(done_ms);
                id += 1;
                let node = self.node(attempt, start_ms);
                let (from_ms, until_ms) = (start_ms, done_ms);
                self.spans.push(Span { node: node.1, kind, takes, from_ms, until_ms });
                let request = ResourceRequest {
                    id,
                    hosts: hosts(&task.splits),
                    specs: takes,
                    kind,
                    exclude_hosts: Vec::new(),
                };
                steps.push((asked_ms.clamp(at_ms, start_ms), Step::Requests(request)));
                steps.push((start_ms, Step::Granted(id, node.0)));
                steps.push((done_ms, Step::Releases(id)));
            }
        }
        steps
    }

    /// The name and number of an attempt's node.
    fn node(&mut self, attempt: &HistoryAttempt, at_ms: i64) -> (Arc<str>, u32) {
        let (rack, host) = rack_and_host(&attempt.host);
        let host = if host.is_empty() { &attempt.tracker } else { host };
        let name = if attempt.tracker.is_empty() { host.into() } else { attempt.tracker.clone() };
        let count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let number = *self.nodes.entry(name.clone()).or_insert(count);
        let node = Node { name: name.clone(), host: host.into(), rack, cpus: 1, ..Node::default() };
        self.history.node_seen(at_ms, node, i64::MAX);
        (name, number)
    }

    /// The workload of all jobs. Nodes are as large as what ran there at a time needs under these settings.
    pub fn finish(mut self, name: &str, settings: &Settings) -> Reading {
        self.history.begins(self.began_ms.unwrap_or(0));
        let (slots, amounts) = most_at_a_time(&self.spans, settings);
        let cpus = cpus_for(settings, slots, amounts[Dimension::Cpus]);
        let memory_mb = memory_for(settings, amounts[Dimension::Memory]);
        let (mut workload, gaps) = self.history.finish(name, i64::MAX, i64::MAX);
        for node in &mut workload.nodes {
            (node.cpus, node.memory_mb) = (cpus, Some(memory_mb));
        }
        workload.assume(&format!(
            "Histories show only nodes on which tasks ran. These were there all the time, and each has {cpus} CPUs and \
             {memory_mb} MB of memory: as much as the most tasks that ran on any of them at a time need."
        ));
        workload.assume(
            "Histories do not show requests: maps are requested after the set-up of their job, reduces after its \
             slow start, and another attempt after the end of the one before. Waits include the start of a task.",
        );
        workload.assume("Job trackers take no slots.");
        if self.unconfigured > 0 {
            workload.assume(&format!(
                "{} jobs have no configuration beside their history: they run in the default pool, with the \
                 usual slow start.",
                self.unconfigured
            ));
        }
        let mut left_out = gaps.left_out("histories");
        if self.unfinished > 0 {
            left_out
                .push(format!("The rest of {} jobs whose histories have no end.", self.unfinished));
        }
        if self.empty > 0 {
            left_out.push(format!("{} histories without any time.", self.empty));
        }
        Reading { workload, left_out }
    }
}

/// When the tasks of a job are first requested.
struct Begins {
    setup_ms: i64,
    maps_ms: i64,
    reduces_ms: i64,
    cleanup_ms: i64,
}

impl Begins {
    fn of(job: &JobHistory, configured: Option<&Configured>, at_ms: i64) -> Begins {
        let ends = |role: TaskRole| {
            let tasks = job.tasks.values().filter(move |task| task.role == role);
            let succeeded = tasks.flat_map(|task| ran(task).map(move |one| (one, task)));
            let succeeded = succeeded.filter(|(one, _)| one.state == PartState::Succeeded);
            let mut ends: Vec<i64> =
                succeeded.filter_map(|(one, task)| finish_of(one, task)).collect();
            ends.sort_unstable();
            ends
        };
        let setup_ms = job.launch_ms.max(at_ms);
        let maps_ms = ends(TaskRole::Setup).last().copied().unwrap_or(setup_ms);
        let maps = ends(TaskRole::Map);
        let (count, reduces) = (job.maps as usize, job.reduces as usize);
        let (slow_start, rush) = match configured.map(|configured| &configured.settings) {
            Some(settings) => (
                settings.slow_start,
                count <= settings.rush_maps || reduces <= settings.rush_reduces,
            ),
            None => (0.05, false),
        };
        let enough = if rush { 0.0 } else { (slow_start * count as f64).ceil() };
        let reduces_ms = match enough as usize {
            0 => maps_ms,
            enough => maps.get(enough - 1).or(maps.last()).copied().unwrap_or(maps_ms),
        };
        let work = maps.last().copied().into_iter().chain(ends(TaskRole::Reduce).last().copied());
        let cleanup_ms = work.max().unwrap_or(maps_ms);
        Begins { setup_ms, maps_ms, reduces_ms, cleanup_ms }
    }

    fn of_role(&self, role: TaskRole) -> i64 {
        match role {
            TaskRole::Setup => self.setup_ms,
            TaskRole::Map => self.maps_ms,
            TaskRole::Reduce => self.reduces_ms,
            TaskRole::Cleanup => self.cleanup_ms,
        }
    }
}

/// The attempts of a task that were started, in the order of their starts.
fn ran(task: &HistoryTask) -> impl Iterator<Item = &HistoryAttempt> {
    let mut ran: Vec<_> = task.attempts.iter().filter(|attempt| attempt.start_ms > 0).collect();
    ran.sort_by_key(|attempt| attempt.start_ms);
    ran.into_iter()
}

fn finish_of(attempt: &HistoryAttempt, task: &HistoryTask) -> Option<i64> {
    [attempt.finish_ms, task.finish_ms].into_iter().find(|at_ms| *at_ms > 0)
}

fn all_times(job: &JobHistory) -> Vec<i64> {
    let of_tasks = job.tasks.values().flat_map(|task| {
        let attempts = task.attempts.iter().flat_map(|one| [one.start_ms, one.finish_ms]);
        attempts.chain([task.start_ms, task.finish_ms])
    });
    let of_job = [job.submit_ms, job.launch_ms, job.finish_ms];
    of_tasks.chain(of_job).filter(|at_ms| *at_ms > 0).collect()
}

/// A host as histories name it, such as `/rack/host`.
fn rack_and_host(name: &str) -> (Option<Arc<str>>, &str) {
    match name.rsplit_once('/') {
        None => (None, name),
        Some((rack, host)) => {
            let is_known = !rack.is_empty() && rack != corona_engine::DEFAULT_RACK;
            (is_known.then(|| rack.into()), host)
        }
    }
}

fn hosts(splits: &str) -> Vec<Arc<str>> {
    let names = splits.split(',').map(|name| rack_and_host(name.trim()).1);
    names.filter(|host| !host.is_empty()).map(Arc::from).collect()
}

/// The most slots of each type and the most resources that were taken of a node at a time.
fn most_at_a_time(spans: &[Span], settings: &Settings) -> ([i64; 3], Amounts) {
    // What requests take if all resources are counted.
    let all = Resources { counted: [true; 4], ..(*settings.resources).clone() };
    let mut changes: Vec<(u32, i64, bool, usize)> = Vec::with_capacity(spans.len() * 2);
    for (place, span) in spans.iter().enumerate() {
        // What ends at a time does so before anything begins. A task that takes no time needs a slot as well.
        changes.push((span.node, span.from_ms, true, place));
        changes.push((span.node, span.until_ms.max(span.from_ms.saturating_add(1)), false, place));
    }
    changes.sort_unstable();
    let (mut most, mut most_held) = ([0; 3], Amounts::ZERO);
    let (mut now, mut held, mut of) = ([0_i64; 3], Amounts::ZERO, None);
    for (node, _, begins, place) in changes {
        if of.replace(node) != Some(node) {
            (now, held) = ([0; 3], Amounts::ZERO);
        }
        let Some(span) = spans.get(place) else { continue };
        let slots = i64::from(settings.resources.slots(span.takes));
        let takes = all.demand(span.kind, span.takes);
        held = if begins { held.plus(takes) } else { held.minus(takes) };
        if let (Some(now), Some(most)) =
            (now.get_mut(span.kind.index()), most.get_mut(span.kind.index()))
        {
            *now += if begins { slots } else { -slots };
            *most = (*now).max(*most);
        }
        for (most, held) in most_held.0.iter_mut().zip(held.0) {
            *most = held.max(*most);
        }
    }
    (most, most_held)
}

/// The fewest CPUs whose slots hold so many tasks, and that are as many as they take where CPUs are counted.
fn cpus_for(settings: &Settings, most: [i64; 3], taken: u64) -> i16 {
    let counts_cpus = settings.resources.dimensions().any(|one| one == Dimension::Cpus);
    let given = |num_cpus| {
        let total = ComputeSpecs { num_cpus, ..ComputeSpecs::default() };
        settings.resources.capacity(&total, Amounts::ZERO)[Dimension::Cpus]
    };
    let is_enough = |cpus: &i16| {
        let slots = settings.partitioning.slots(*cpus);
        let all = slots.is_some_and(|slots| {
            ResourceType::ALL.into_iter().all(|kind| {
                most.get(kind.index()).is_none_or(|most| i64::from(slots[kind]) >= *most)
            })
        });
        all && (!counts_cpus || given(*cpus) >= taken)
    };
    (1..=MOST_CPUS).find(is_enough).unwrap_or(MOST_CPUS)
}

/// The least memory of a node that gives out so much under these settings, in megabytes.
fn memory_for(settings: &Settings, wanted: u64) -> i32 {
    let all = Resources { counted: [true; 4], ..(*settings.resources).clone() };
    let given = |memory_mb| {
        let total = ComputeSpecs { memory_mb: Some(memory_mb), ..ComputeSpecs::default() };
        all.capacity(&total, settings.kept())[Dimension::Memory]
    };
    let (mut least, mut most) = (1, i32::MAX);
    while least < most {
        let middle = least + (most - least) / 2;
        match given(middle) >= wanted {
            true => most = middle,
            false => least = middle + 1,
        }
    }
    least
}
