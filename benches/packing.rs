//! How well tasks of many shapes are packed where resources are counted, and what that costs.
//!
//!     cargo bench --bench packing                  both
//!     cargo bench --bench packing -- memory        the memory in use
//!     cargo bench --bench packing -- speed 50000   grants/s at so many nodes
//!
//! *Memory in use*: six hours of jobs that come and go, in virtual time, on nodes of four sizes. They want more than
//! there is for most of the time. A fractional packing is the same cluster melted into one node: the same engine
//! serves the same jobs in the same order, and no place is too small. Slots beside it: each task takes one.
//!
//! *Speed*: grants for each second on a processor in a full cluster, with slots alone and with CPUs and memory.
//!
//! A plain program: it measures long runs, not the spread of many short ones.

#![expect(clippy::print_stdout, reason = "the result is for a person")]
#![allow(missing_docs)]

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use corona::engine::settings::Settings;
use corona::engine::types::{
    ComputeSpecs, Millis, NodeReport, PerType, ResourceRequest, ResourceType, SessionStatus,
};
use corona::engine::{Effect, Engine, Input, Notification, testing};
use corona::model::random::Random;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory"] => measure_memory(),
        ["speed", nodes] => measure_speed(nodes.parse().expect("a number of nodes")),
        _ => {
            measure_memory();
            measure_speed(50_000);
        }
    }
}

/// CPUs and megabytes of a node or of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    cpus: i16,
    memory_mb: i32,
}

/// The nodes of the trace, and how many of each: some have much memory for their CPUs, others little.
const NODES: [(usize, Shape); 4] = [
    (30, Shape { cpus: 16, memory_mb: 48 << 10 }),
    (15, Shape { cpus: 32, memory_mb: 192 << 10 }),
    (10, Shape { cpus: 48, memory_mb: 96 << 10 }),
    (5, Shape { cpus: 64, memory_mb: 384 << 10 }),
];
/// CPUs of tasks; each is as frequent as the others.
const CPUS: [i16; 8] = [1, 1, 1, 1, 2, 2, 4, 8];
/// Megabytes of a task for each of its CPUs: from one to the other, small ones as often as large ones.
const MEMORY_OF_CPU: [f64; 2] = [768.0, 16_384.0];
const TASKS_OF_JOB: [f64; 2] = [1.0, 300.0];
const TASK_MS: [f64; 2] = [20_000.0, 1_200_000.0];
/// Between the arrivals of two jobs, on average.
const ARRIVAL_MS: f64 = 23_000.0;
const HOUR_S: i64 = 3_600;

/// A job of the trace: when it comes, and its tasks, which differ in their length alone.
struct Job {
    at_s: i64,
    shape: Shape,
    tasks_s: Vec<i64>,
}

/// The same jobs each time. More come in some hours than in others.
fn trace(hours: i64) -> Vec<Job> {
    let mut random = Random::new(36);
    let mut jobs = Vec::new();
    let mut at_ms = 0.0;
    while at_ms < (hours * HOUR_S * 1_000) as f64 {
        let hour = at_ms / (HOUR_S * 1_000) as f64;
        let busy = 1.0 + 0.5 * (hour * std::f64::consts::PI).sin();
        at_ms -= (1.0 - part(&mut random)).ln() * ARRIVAL_MS / busy;
        let cpus = *random.pick(&CPUS);
        let memory_mb = (f64::from(cpus) * between(&mut random, MEMORY_OF_CPU)) as i32;
        let count = between(&mut random, TASKS_OF_JOB) as usize;
        let usual_ms = between(&mut random, TASK_MS);
        let lengths = (0..count).map(|_| usual_ms * (0.5 + part(&mut random)));
        let tasks_s = lengths.map(|ms| (ms / 1_000.0).ceil() as i64).collect();
        jobs.push(Job { at_s: at_ms as i64 / 1_000, shape: Shape { cpus, memory_mb }, tasks_s });
    }
    jobs
}

/// A number from 0 to 1.
fn part(random: &mut Random) -> f64 {
    random.below(1 << 30) as f64 / f64::from(1 << 30)
}

/// A random number between two, whose logarithm is spread evenly.
fn between(random: &mut Random, [least, most]: [f64; 2]) -> f64 {
    least * (most / least).powf(part(random))
}

/// How a cluster counts.
#[derive(Clone, Copy, Debug)]
enum Counts {
    Resources,
    /// One slot for so many megabytes.
    SlotsByMemory(i32),
    /// One slot for each CPU.
    SlotsByCpus,
}

/// A cluster that grants what its sessions request.
struct Cluster {
    engine: Engine,
    counts: Counts,
    now: Millis,
    nodes: Vec<Shape>,
    /// Grants that the trace has not taken over yet: session, request and node.
    fresh: Vec<(usize, i32, usize)>,
    granted: u64,
}

fn handle(session: usize) -> Arc<str> {
    format!("2026.{}", session + 1).into()
}

impl Cluster {
    fn new(counts: Counts, nodes: Vec<Shape>) -> Cluster {
        const NEVER: i64 = i64::MAX / 4;
        let mut settings = Settings::default();
        settings.partitioning.0.insert(1, [(ResourceType::Map, 1)].into());
        settings.node_expiry_ms = NEVER;
        settings.session_expiry_ms = NEVER;
        // Nothing is taken back, so that all tasks end after their time.
        settings.scheduling.starving_time_for_share_ms = NEVER;
        settings.scheduling.starving_time_for_minimum_ms = NEVER;
        match counts {
            Counts::Resources => {
                settings.resources.counted = [true, true, false, false];
                settings.resources.reservation.0.0 = 60_000;
            }
            Counts::SlotsByMemory(of_slot_mb) => {
                for Shape { cpus, memory_mb } in &nodes {
                    let slots = (memory_mb / of_slot_mb) as u32;
                    let of_cpus = [(ResourceType::Map, slots)].into();
                    settings.partitioning.0.insert(cpus.unsigned_abs(), of_cpus);
                }
            }
            Counts::SlotsByCpus => {}
        }
        let engine = testing::engine(settings);
        let (now, fresh, granted) = (Millis(1), Vec::new(), 0);
        let mut cluster = Cluster { engine, counts, now, nodes, fresh, granted };
        for node in 0..cluster.nodes.len() {
            let Shape { cpus, memory_mb } = cluster.nodes[node];
            let name = format!("n{node}");
            let total =
                ComputeSpecs { num_cpus: cpus, memory_mb: Some(memory_mb), ..Default::default() };
            let apps = PerType([Some("map:1".into()), None, None]);
            let free = Some(total);
            let report = NodeReport { total, free, apps, ..testing::report(&name, &name, cpus) };
            cluster.apply(Input::HeartbeatNode { report, rack: None });
        }
        cluster
    }

    fn start(&mut self, session: usize) {
        const POOLS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let pool = format!("default.{}", POOLS[session % POOLS.len()]);
        self.apply(testing::session(&handle(session), &pool));
    }

    fn ask(&mut self, session: usize, shape: Shape, ids: std::ops::Range<i32>) {
        let Shape { cpus, memory_mb } = shape;
        // With slots alone the CPUs of a request would be slots.
        let num_cpus = if let Counts::Resources = self.counts { cpus } else { 1 };
        let specs = ComputeSpecs { num_cpus, memory_mb: Some(memory_mb), ..Default::default() };
        let request = |id| ResourceRequest {
            specs: Some(specs),
            ..testing::request(id, ResourceType::Map, &[])
        };
        let requests = ids.map(request).collect();
        let (handle, racks) = (handle(session), Vec::new());
        self.apply(Input::RequestResources { handle, requests, racks });
    }

    fn release(&mut self, session: usize, ids: Vec<i32>) {
        self.apply(Input::ReleaseResources { handle: handle(session), ids });
    }

    fn apply(&mut self, input: Input) {
        let outcome = self.engine.apply(self.now, input);
        assert!(outcome.reply.is_ok(), "{:?}", outcome.reply);
        for effect in outcome.effects {
            let Effect::Notify { handle, notification: Notification::Granted(grants), .. } = effect
            else {
                continue;
            };
            let number = |text: &str| text.parse::<usize>().expect("a number of this program");
            let session = number(handle.split_once('.').expect("a handle").1) - 1;
            self.granted += grants.len() as u64;
            let grants = grants.iter().map(|it| (session, it.id, number(&it.node_name[1..])));
            self.fresh.extend(grants);
        }
    }

    fn pass(&mut self) {
        while self.engine.wants_pass() {
            self.apply(Input::Pass);
        }
    }
}

/// What a run of the trace uses, each second.
struct Use {
    /// The part of the memory that tasks have.
    memory: Vec<f64>,
    /// The part of the CPUs.
    cpus: f64,
    /// The part of the nodes whose tasks have more memory or CPUs than there are.
    over: f64,
    tasks: u64,
}

/// Runs the jobs on these nodes.
fn run(counts: Counts, nodes: Vec<Shape>, jobs: &[Job], hours: i64) -> Use {
    let mut cluster = Cluster::new(counts, nodes);
    let all = |of: fn(&Shape) -> f64| cluster.nodes.iter().map(of).sum::<f64>();
    let (all_memory, all_cpus) =
        (all(|node| f64::from(node.memory_mb)), all(|node| f64::from(node.cpus)));
    let mut taken = vec![(0_i64, 0_i64); cluster.nodes.len()];
    let mut ends: BTreeSet<(i64, usize, i32, usize)> = BTreeSet::new();
    let mut left: Vec<usize> = jobs.iter().map(|job| job.tasks_s.len()).collect();
    let mut coming = jobs.iter().enumerate().peekable();
    let mut used = Use { memory: Vec::new(), cpus: 0.0, over: 0.0, tasks: 0 };
    for now_s in 0..hours * HOUR_S {
        cluster.now = Millis(1 + now_s * 1_000);
        while let Some((session, job)) = coming.next_if(|(_, job)| job.at_s <= now_s) {
            cluster.start(session);
            cluster.ask(session, job.shape, 0..job.tasks_s.len() as i32);
        }
        while let Some(end) = ends.first().copied().filter(|end| end.0 <= now_s) {
            ends.remove(&end);
            let (_, session, id, node) = end;
            let Shape { cpus, memory_mb } = jobs[session].shape;
            taken[node] = (taken[node].0 - i64::from(cpus), taken[node].1 - i64::from(memory_mb));
            cluster.release(session, vec![id]);
            left[session] -= 1;
            if left[session] == 0 {
                let (handle, status) = (handle(session), SessionStatus::Successful);
                cluster.apply(Input::EndSession { handle, status });
            }
            used.tasks += 1;
        }
        cluster.apply(Input::Tick);
        cluster.pass();
        for (session, id, node) in std::mem::take(&mut cluster.fresh) {
            let Shape { cpus, memory_mb } = jobs[session].shape;
            taken[node] = (taken[node].0 + i64::from(cpus), taken[node].1 + i64::from(memory_mb));
            ends.insert((now_s + jobs[session].tasks_s[id as usize], session, id, node));
        }
        let both = || taken.iter().zip(&cluster.nodes);
        let memory = both().map(|(taken, node)| taken.1.min(i64::from(node.memory_mb)) as f64);
        used.memory.push(memory.sum::<f64>() / all_memory);
        let cpus = both().map(|(taken, node)| taken.0.min(i64::from(node.cpus)) as f64);
        used.cpus += cpus.sum::<f64>() / all_cpus;
        let over = both().filter(|(taken, node)| {
            taken.0 > i64::from(node.cpus) || taken.1 > i64::from(node.memory_mb)
        });
        used.over += over.count() as f64 / taken.len() as f64;
    }
    used
}

/// The memory in use by the same jobs, with each way of counting.
fn measure_memory() {
    const HOURS: i64 = 6;
    let jobs = trace(HOURS);
    let nodes: Vec<Shape> =
        NODES.iter().flat_map(|(count, shape)| std::iter::repeat_n(*shape, *count)).collect();
    let melted = Shape {
        cpus: nodes.iter().map(|node| node.cpus).sum(),
        memory_mb: nodes.iter().map(|node| node.memory_mb).sum(),
    };
    let tasks = || jobs.iter().flat_map(|job| job.tasks_s.iter().map(|_| job.shape.memory_mb));
    let mut sizes: Vec<i32> = tasks().collect();
    sizes.sort_unstable();
    let mean = (tasks().map(i64::from).sum::<i64>() / sizes.len() as i64) as i32;
    let large = sizes[sizes.len() * 9 / 10];
    println!("{} jobs with {} tasks on {} nodes", jobs.len(), sizes.len(), nodes.len());
    let names = ["", "memory", "of fractional", "CPUs", "too much on", "tasks ended"];
    println!("{}", names.map(|name| format!("{name:>16}")).concat());
    let fractional = run(Counts::Resources, vec![melted], &jobs, HOURS);
    // While little is wanted, any packing is good enough.
    let full: Vec<usize> =
        (0..fractional.memory.len()).filter(|at| fractional.memory[*at] > 0.9).collect();
    for (name, counts) in [
        ("cpus,memory", Counts::Resources),
        ("slots by CPUs", Counts::SlotsByCpus),
        ("by mean task", Counts::SlotsByMemory(mean)),
        ("by large task", Counts::SlotsByMemory(large)),
    ] {
        let used = run(counts, nodes.clone(), &jobs, HOURS);
        let seconds = used.memory.len() as f64;
        let sum = |of: &Use| full.iter().map(|at| of.memory[*at]).sum::<f64>();
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        let columns = [
            percent(sum(&used) / full.len() as f64),
            percent(sum(&used) / sum(&fractional)),
            percent(used.cpus / seconds),
            percent(used.over / seconds),
            used.tasks.to_string(),
        ];
        println!("{name:>16}{}", columns.map(|text| format!("{text:>16}")).concat());
    }
    let part = full.len() as f64 / fractional.memory.len() as f64;
    println!("fractional: {} tasks, full for {:.0} % of the time", fractional.tasks, part * 100.0);
}

/// The grants of a full cluster for each second on a processor.
fn measure_speed(nodes: usize) {
    const RELEASED_AT_ONCE: usize = 41;
    const GRANTS: u64 = 400_000;
    const SHAPES: [(i16, i32); 5] = [(1, 1_900), (1, 4_100), (2, 7_900), (4, 9_300), (2, 23_700)];
    let shapes = SHAPES.map(|(cpus, memory_mb)| Shape { cpus, memory_mb });
    println!("{:>14}{:>10}{:>14}{:>14}", "", "nodes", "fill/s", "grants/s");
    let node = Shape { cpus: 8, memory_mb: 32_768 };
    for counts in [Counts::SlotsByCpus, Counts::Resources].repeat(3) {
        let mut cluster = Cluster::new(counts, vec![node; nodes]);
        let mut next = vec![0; shapes.len()];
        let mut held: Vec<VecDeque<i32>> = vec![VecDeque::new(); shapes.len()];
        let each = (nodes * 16 / shapes.len()) as i32;
        for (session, shape) in shapes.into_iter().enumerate() {
            cluster.start(session);
            cluster.ask(session, shape, 0..each);
            next[session] = each;
        }
        let before = on_processor_s();
        cluster.pass();
        let filled = cluster.granted as f64 / (on_processor_s() - before);
        let (before, granted) = (on_processor_s(), cluster.granted);
        let mut session = 0;
        while cluster.granted - granted < GRANTS {
            for (session, id, _) in std::mem::take(&mut cluster.fresh) {
                held[session].push_back(id);
            }
            session = (session + 1) % shapes.len();
            let count = held[session].len().min(RELEASED_AT_ONCE);
            let ids = held[session].drain(..count).collect();
            cluster.now = cluster.now.plus_ms(1);
            cluster.release(session, ids);
            let first = next[session];
            next[session] += count as i32;
            cluster.ask(session, shapes[session], first..next[session]);
            cluster.pass();
        }
        let speed = (cluster.granted - granted) as f64 / (on_processor_s() - before);
        let name = if let Counts::Resources = counts { "cpus,memory" } else { "slots" };
        println!("{name:>14}{nodes:>10}{filled:>14.0}{speed:>14.0}");
    }
}

/// Seconds that this process has spent on a processor.
fn on_processor_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or(0.0) / 1e9
}
