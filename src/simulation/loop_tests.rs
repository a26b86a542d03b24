//! Preemption comes to rest: pools that always want more, and tasks that never end.

use super::model::Name;
use super::*;
use corona_engine::testing;
use corona_model::queues::QueueRules;
use corona_model::settings::PoolSettings;
use corona_model::types::{ComputeSpecs, PoolName};
use std::collections::BTreeMap;

/// Nodes of several sizes, and pools that ask for tasks of two sizes. What is taken back is requested again.
struct Closed {
    watch: Watch<Engine>,
    now: Millis,
    next_id: i32,
    specs: BTreeMap<(Name, i32), ComputeSpecs>,
    /// When something was last taken back.
    last_taken: Millis,
    taken: u64,
}

impl Closed {
    fn new(seed: u64) -> Closed {
        let mut random = Random::new(seed);
        let mut settings = testing::settings();
        settings.resources.counted = [true, true, false, false];
        settings.node_expiry_ms = i64::MAX / 4;
        settings.session_expiry_ms = i64::MAX / 4;
        let scheduling = &mut settings.scheduling;
        scheduling.starving_time_for_minimum_ms = 500;
        scheduling.starving_time_for_share_ms = 500;
        scheduling.min_preempt_period_ms = *random.pick(&[0, 2_000]);
        scheduling.share_starving_ratio = *random.pick(&[0.7, 1.0]);
        scheduling.preempted_task_max_running_time_ms = i64::MAX / 4;
        let pools = random.between(2, 5);
        let name = |pool: i64| {
            PoolName::new(
                if pool % 2 == 0 { "red" } else { "green" },
                ["a", "b", "c", "d", "e"][pool as usize],
            )
        };
        if random.percent(50) {
            let rules = QueueRules { parent: Some("red".into()), ..QueueRules::default() };
            settings.pools.queues.groups.insert("green".into(), rules);
        }
        for pool in 0..pools {
            let mut limits =
                PoolSettings { weight: *random.pick(&[0.5, 1.0, 1.0, 3.0]), ..Default::default() };
            limits.minimum[ResourceType::Map] = *random.pick(&[0, 0, 0, 3]);
            settings.pools.pools.insert(name(pool), limits);
        }
        let mut closed = Closed {
            watch: Watch::new(new_engine(&settings), settings, 64),
            now: BEGIN,
            next_id: 1,
            specs: BTreeMap::new(),
            last_taken: BEGIN,
            taken: 0,
        };
        for node in 0..random.between(1, 4) {
            closed.join(node, *random.pick(&[300, 1_000, 1_700]), *random.pick(&[4, 24]));
        }
        for pool in 0..pools {
            let handle: Name = format!("{ID_PREFIX}.{}", pool + 1).into();
            closed.start(&handle, name(pool), &mut random);
            for _ in 0..2 {
                let specs = ComputeSpecs {
                    num_cpus: random.between(1, 4) as i16,
                    memory_mb: Some(10 * random.between(3, 50) as i32),
                    ..ComputeSpecs::default()
                };
                closed.ask(&handle, &[specs; 20]);
            }
            closed.wait(random.between(0, 20_000));
        }
        closed
    }

    fn join(&mut self, node: i64, memory_mb: i32, num_cpus: i16) {
        let name: Name = format!("n{node}").into();
        let mut report = testing::report(&name, &name, num_cpus);
        report.total.memory_mb = Some(memory_mb);
        report.free = Some(report.total);
        self.apply(Input::HeartbeatNode { report, rack: None });
    }

    fn start(&mut self, handle: &Name, pool: PoolName, random: &mut Random) {
        let mut info = testing::info(handle, &pool.to_string());
        info.no_preempt = Some(random.percent(10));
        self.apply(Input::NextSessionId);
        self.apply(Input::StartSession { handle: handle.clone(), info });
    }

    fn ask(&mut self, handle: &Name, all: &[ComputeSpecs]) {
        let mut requests = Vec::new();
        for specs in all {
            self.specs.insert((handle.clone(), self.next_id), *specs);
            let mut request = testing::request(self.next_id, ResourceType::Map, &[]);
            request.specs = Some(*specs);
            requests.push(request);
            self.next_id += 1;
        }
        self.apply(testing::ask(handle, requests));
    }

    /// Applies an input and all passes; what is taken back is released and requested again.
    fn apply(&mut self, input: Input) {
        let mut lost = self.apply_one(input);
        while self.watch.subject.wants_pass() {
            lost.extend(self.apply_one(Input::Pass));
        }
        for (handle, ids) in lost {
            let again: Vec<_> = ids.iter().map(|id| self.specs[&(handle.clone(), *id)]).collect();
            self.apply(Input::ReleaseResources { handle: handle.clone(), ids });
            self.ask(&handle, &again);
        }
    }

    fn apply_one(&mut self, input: Input) -> Vec<(Name, Vec<i32>)> {
        let now = self.now;
        let before = self.watch.summary.revoked;
        let holds = |closed: &Closed| {
            let sessions = closed.watch.model.sessions.iter();
            sessions
                .map(|(handle, session)| {
                    let lost = session.wishes.iter();
                    let lost = lost.filter(|(_, wish)| wish.state == super::model::WishState::Lost);
                    (handle.clone(), lost.map(|(id, _)| *id).collect::<Vec<_>>())
                })
                .filter(|(_, ids)| !ids.is_empty())
                .collect::<Vec<_>>()
        };
        self.watch.step(now, &input).unwrap_or_else(|what| panic!("{what}"));
        let taken = self.watch.summary.revoked - before;
        if taken == 0 {
            return Vec::new();
        }
        self.taken += taken;
        self.last_taken = now;
        holds(self)
    }

    fn wait(&mut self, ms: i64) {
        let end = self.now.plus_ms(ms);
        while let Some(due) = self.watch.subject.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.apply(Input::Tick);
        }
        self.now = end;
    }
}

#[test]
fn preemption_comes_to_rest_where_no_task_ends() {
    let mut taken = 0;
    for seed in 1..=SEEDS {
        let mut closed = Closed::new(seed);
        closed.wait(600_000);
        let quiet_ms = closed.now.since(closed.last_taken);
        assert!(quiet_ms > 300_000, "seed {seed}: {} are taken back, still", closed.taken);
        taken += closed.taken;
    }
    assert!(taken > 4 * SEEDS, "{taken}");
}

const SEEDS: u64 = 60;
