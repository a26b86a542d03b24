//! How many slots the engine alone grants in a second on one core, and its use of memory.
//!
//!     cargo bench --bench engine                          the usual sizes, each in its own process
//!     cargo bench --bench engine -- 1000x10 scattered     one of them
//!     cargo bench --bench engine -- holds                 how long one input keeps the others waiting
//!
//! In the spirit of the original's BenchmarkClusterManager: nodes of 8 CPUs in racks of 40, sessions
//! of one pool that ask for 40,000 maps with three hosts each and for 397 reduces. A session gives
//! slots back as soon as it has had 41 grants, and each such release is followed by a pass of its own,
//! though a busy service would let several share one. `neighbours` wants the hosts i, i+1 and i+2 as
//! the original does, `scattered` two hosts of one rack and one of another, anywhere, as a file
//! system spreads its blocks.
//!
//! Seconds are those that the process spent on a processor.
//!
//! A plain program: it measures one long run with its memory, not the spread of many short ones.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::collections::{BTreeMap, VecDeque};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corona::engine::settings::{Hosts, Settings};
use corona::engine::types::{Millis, ResourceRequest, ResourceType, SessionStatus};
use corona::engine::{Effect, Engine, Input, Notification, Outcome, RequestSummary, testing};
use corona::process::procfs::Usage;

const SIZES: [(usize, usize); 4] = [(100, 1), (1_000, 10), (4_000, 10), (50_000, 100)];
const NODES_OF_A_RACK: usize = 40;
const CPUS: i16 = 8;
const MAPS: i32 = 40_000;
const REDUCES: i32 = 397;
const RELEASED_AT_ONCE: usize = 41;
/// Slots granted after the cluster is full, so that large sizes end in reasonable time.
const GRANTS: u64 = 1_500_000;
/// The kernel's account of processor time moves in steps of up to a tick of its clock.
const SHORTEST_TIMED: f64 = 0.05;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match &words[..] {
        [] => run_all(),
        [holds] if holds == "holds" => measure_holds(),
        [size, placement @ ..] => {
            let sides = size
                .split_once('x')
                .and_then(|(nodes, sessions)| Some((nodes.parse().ok()?, sessions.parse().ok()?)));
            let (nodes, sessions) = sides.expect("a size such as 1000x10");
            let scattered = placement.first().is_some_and(|word| word == "scattered");
            measure(nodes, sessions, scattered);
        }
    }
}

fn run_all() {
    println!(
        "{:>12} {:>10} {:>13} {:>13} {:>13} {:>10} {:>9}",
        "size", "hosts", "requests/s", "first fill/s", "grants/s", "ns/grant", "MB"
    );
    for placement in ["neighbours", "scattered"] {
        for (nodes, sessions) in SIZES {
            let program = std::env::current_exe().expect("this program has a name");
            let size = format!("{nodes}x{sessions}");
            let status = Command::new(program).args([&size, placement]).status();
            assert!(status.is_ok_and(|status| status.success()), "{size} failed");
        }
    }
}

fn measure(nodes: usize, sessions: usize, scattered: bool) {
    let mut bench = Bench::new(nodes);
    bench.join(nodes);
    let asking = Stopwatch::start();
    for session in 0..sessions {
        bench.ask(session, nodes, scattered);
    }
    let requests = sessions as f64 * f64::from(MAPS + REDUCES);
    let asked_per_second = requests / asking.seconds();
    let filling = Stopwatch::start();
    bench.pass();
    let filling_seconds = filling.seconds();
    // The smallest size is full too soon for a measurement.
    let filled_per_second = match filling_seconds > SHORTEST_TIMED {
        true => format!("{:.0}", bench.granted as f64 / filling_seconds),
        false => "-".into(),
    };
    let before = bench.granted;
    let running = Stopwatch::start();
    while bench.granted - before < GRANTS && bench.release_some() {
        bench.pass();
    }
    let seconds = running.seconds();
    let granted = (bench.granted - before) as f64;
    let placement = if scattered { "scattered" } else { "neighbours" };
    println!(
        "{:>12} {placement:>10} {asked_per_second:>13.0} {filled_per_second:>13} {:>13.0} \
         {:>10.0} {:>9}",
        format!("{nodes}x{sessions}"),
        granted / seconds,
        seconds * 1e9 / granted,
        Usage::own().peak_resident_bytes.unwrap_or(0) >> 20,
    );
}

/// The longest time for which one input of each kind holds the engine, in a cluster of 20,000 nodes
/// whose slots one session has and another one wants, with a million requests each, in parts as the
/// service applies them.
fn measure_holds() {
    const NODES: usize = 20_000;
    const REQUESTS: i32 = 1_000_000;
    const PART: usize = 8_192;

    let mut bench = Bench::new(NODES);
    bench.join(NODES);
    println!("{:>44} {:>8} {:>12} {:>12}", "input", "times", "median ms", "longest ms");
    let sessions = [0, 1].map(|session| bench.start(session));
    for (session, handle) in sessions.iter().enumerate() {
        let wanted = bench.wanted(session, NODES, true, REQUESTS);
        let parts: Vec<_> = wanted.chunks(PART).map(<[_]>::to_vec).collect();
        let announced =
            Input::ExpectRequests { handle: handle.clone(), summary: RequestSummary::of(&wanted) };
        let entered = parts.into_iter().map(|requests| Input::MoreRequests {
            handle: handle.clone(),
            requests,
            racks: Vec::new(),
        });
        bench.time("requestResource, 8,192 of 1,000,000", [announced].into_iter().chain(entered));
    }
    bench.time("pass that fills the cluster", std::iter::repeat_n(Input::Pass, 200));
    bench.explain("explain, 1,000,000 requests", &sessions[1]);
    let ids: Vec<i32> = bench.held[&sessions[0]].iter().take(PART * 4).copied().collect();
    let released: Vec<_> = ids.chunks(PART).map(<[_]>::to_vec).collect();
    let handle = sessions[0].clone();
    bench.time(
        "releaseResource, 8,192 slots",
        released.into_iter().map(|ids| Input::ReleaseResources { handle: handle.clone(), ids }),
    );
    bench.time("pass that fills what was released", std::iter::repeat_n(Input::Pass, 20));
    bench.time("time that passes", std::iter::repeat_n(Input::Tick, 20));
    let hosts = Hosts::clone(bench.engine.hosts());
    bench.time("refreshNodes, 20,000 nodes", [Input::HostsChanged { hosts }]);
    bench.time("restartNodes", [Input::RestartNodes { force: true, batch_size: 1_000 }]);
    for (handle, name) in sessions
        .into_iter()
        .zip(["sessionEnd, with the slots of the cluster", "sessionEnd, with next to no slots"])
    {
        let status = SessionStatus::Successful;
        bench.time(name, [Input::EndSession { handle, status }]);
    }
}

struct Bench {
    engine: Engine,
    now: Millis,
    granted: u64,
    handles: Vec<Arc<str>>,
    hosts: Vec<Arc<str>>,
    racks: Vec<(Arc<str>, Arc<str>)>,
    /// Grants that a session has not released.
    held: BTreeMap<Arc<str>, VecDeque<i32>>,
    /// Sessions with enough grants to give some back.
    ready: VecDeque<Arc<str>>,
}

impl Bench {
    fn new(nodes: usize) -> Self {
        let mut settings = Settings::default();
        let kinds = [ResourceType::Map, ResourceType::Reduce].map(|kind| (kind, 1));
        settings.partitioning.0.insert(1, kinds.into());
        let host = |node| format!("10.{}.{}", node / NODES_OF_A_RACK, node % NODES_OF_A_RACK);
        let hosts: Vec<Arc<str>> = (0..nodes).map(|node| host(node).into()).collect();
        let rack = |host: &Arc<str>| host.rsplit_once('.').map_or("/", |(rack, _)| rack).into();
        let mut racks: Vec<_> = hosts.iter().map(|host| (host.clone(), rack(host))).collect();
        racks.sort();
        Bench {
            engine: testing::engine(settings),
            now: Millis(1),
            granted: 0,
            handles: Vec::new(),
            hosts,
            racks,
            held: BTreeMap::new(),
            ready: VecDeque::new(),
        }
    }

    fn join(&mut self, nodes: usize) {
        for node in 0..nodes {
            let host = self.hosts[node].clone();
            let at = self.racks.partition_point(|(named, _)| *named < host);
            let rack = Some(self.racks[at].1.clone());
            let mut report = testing::report(&format!("tracker_{host}:50060"), &host, CPUS);
            report.apps[ResourceType::JobTracker] = None;
            self.apply(Input::HeartbeatNode { report, rack });
        }
    }

    fn ask(&mut self, session: usize, nodes: usize, scattered: bool) {
        let handle = self.start(session);
        let requests = self.wanted(session, nodes, scattered, MAPS);
        self.apply(Input::RequestResources { handle, requests, racks: Vec::new() });
    }

    fn start(&mut self, session: usize) -> Arc<str> {
        let handle: Arc<str> = format!("2026.{session}").into();
        self.handles.push(handle.clone());
        self.apply(testing::session(&handle, "default.hadoop"));
        handle
    }

    /// So many maps, and reduces after them.
    fn wanted(
        &self,
        session: usize,
        nodes: usize,
        scattered: bool,
        maps: i32,
    ) -> Vec<ResourceRequest> {
        let request = |id: i32, hosts: Vec<Arc<str>>, kind| ResourceRequest {
            hosts,
            ..testing::request(id, kind, &[])
        };
        let wanted = |map: i32| -> Vec<Arc<str>> {
            let map = map as usize;
            let places = match scattered {
                false => [map, map + 1, map + 2],
                true => spread(session as u64, map as u64),
            };
            places.map(|place| self.hosts[place % nodes].clone()).to_vec()
        };
        let reduces =
            (maps..maps + REDUCES).map(|id| request(id, Vec::new(), ResourceType::Reduce));
        let maps = (0..maps).map(|map| request(map, wanted(map), ResourceType::Map));
        maps.chain(reduces).collect()
    }

    /// Applies inputs of one kind and prints how long they took, without the work that follows from
    /// each.
    fn time(&mut self, kind: &str, inputs: impl IntoIterator<Item = Input>) {
        let mut times = Vec::new();
        for input in inputs {
            if input == Input::Pass && !self.engine.wants_pass() {
                break;
            }
            self.now = self.now.plus_ms(1);
            let began = Instant::now();
            let outcome = self.engine.apply(self.now, input);
            times.push(began.elapsed());
            self.take(outcome);
        }
        print_holds(kind, times);
    }

    /// Times explanations, which change nothing, and prints how long they took.
    fn explain(&self, kind: &str, handle: &str) {
        let times = (0..5).map(|_| {
            let began = Instant::now();
            assert!(self.engine.explain(handle, self.now).is_some());
            began.elapsed()
        });
        print_holds(kind, times.collect());
    }

    /// The session that has waited longest with enough grants gives some back.
    fn release_some(&mut self) -> bool {
        let Some(handle) = self.ready.pop_front() else { return false };
        let Some(held) = self.held.get_mut(&handle) else { return false };
        let ids: Vec<i32> = held.drain(..RELEASED_AT_ONCE).collect();
        if held.len() >= RELEASED_AT_ONCE {
            self.ready.push_back(handle.clone());
        }
        self.now = self.now.plus_ms(1);
        self.apply(Input::ReleaseResources { handle, ids });
        true
    }

    fn pass(&mut self) {
        while self.engine.wants_pass() {
            self.apply(Input::Pass);
        }
    }

    fn apply(&mut self, input: Input) {
        let outcome = self.engine.apply(self.now, input);
        self.take(outcome);
    }

    fn take(&mut self, outcome: Outcome) {
        assert!(outcome.reply.is_ok(), "{:?}", outcome.reply);
        for effect in outcome.effects {
            let Effect::Notify { handle, notification, .. } = effect else { continue };
            let Notification::Granted(grants) = notification else { continue };
            self.granted += grants.len() as u64;
            let held = self.held.entry(handle.clone()).or_default();
            let ready_before = held.len() >= RELEASED_AT_ONCE;
            held.extend(grants.iter().map(|grant| grant.id));
            if !ready_before && held.len() >= RELEASED_AT_ONCE {
                self.ready.push_back(handle);
            }
        }
    }
}

fn print_holds(kind: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let (median, longest) = (ms(times.get(times.len() / 2)), ms(times.last()));
    println!("{kind:>44} {:>8} {median:>12.2} {longest:>12.2}", times.len());
}

/// Two places in one rack and one anywhere, the same for the same request.
fn spread(session: u64, map: u64) -> [usize; 3] {
    let mix = |salt: u64| {
        let mixed = (session << 40 ^ map << 3 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    };
    let (first, other) = (mix(1) as usize, mix(2) as usize);
    let neighbour = first - first % NODES_OF_A_RACK + mix(3) as usize % NODES_OF_A_RACK;
    [first, neighbour, other]
}

/// Time that this process has spent on a processor, so that a busy machine does not count;
/// wall-clock time if the kernel does not report it.
struct Stopwatch {
    wall: Instant,
    on_processor_ns: Option<u64>,
}

impl Stopwatch {
    fn start() -> Self {
        Stopwatch { wall: Instant::now(), on_processor_ns: on_processor_ns() }
    }

    fn seconds(&self) -> f64 {
        match (self.on_processor_ns, on_processor_ns()) {
            (Some(before), Some(now)) => (now - before) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn on_processor_ns() -> Option<u64> {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    schedstat.split_whitespace().next()?.parse().ok()
}
