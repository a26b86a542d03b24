//! What kind of run a seed is: how large, and how much goes wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use corona_job_engine::{JobSpec, Launch, Work};
use corona_mapreduce::{JobId, JobSettings, Split, TaskKey, TaskKind};
use corona_model::settings::{PoolSettings, Settings};
use corona_model::types::{PoolName, ResourceType};
use corona_simulation::Random;

/// Chances in percent, and sizes.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) nodes: usize,
    /// Nodes that share a host with another one.
    pub(crate) shared_hosts: bool,
    /// For how long things go wrong.
    pub(crate) trouble_ms: i64,
    pub(crate) node_dies: usize,
    /// Of the nodes that die, those whose machine is gone with them, so that it refuses no connections.
    pub(crate) power_lost: usize,
    pub(crate) node_hangs: usize,
    /// The disks of the first node are full: no attempt at a task succeeds there.
    pub(crate) node_full: bool,
    pub(crate) call_lost: usize,
    pub(crate) report_late: usize,
    pub(crate) report_twice: usize,
    pub(crate) lies: usize,
    pub(crate) attempt_hangs: usize,
    pub(crate) attempt_vanishes: usize,
    pub(crate) user_kills: usize,
    /// Whether jobs learn which hosts there are.
    pub(crate) hosts_known: bool,
    pub(crate) restores: usize,
    /// Job trackers die, at an input or in any second, and are restarted.
    pub(crate) restarts: usize,
    /// They die at a step of a submission.
    pub(crate) submission_deaths: usize,
    /// The cluster manager goes away for a while, in any second.
    pub(crate) outages: usize,
    /// The processes of job trackers stop for a while, in any second.
    pub(crate) stalls: usize,
    /// The network of a job tracker is away for a while, in any second.
    pub(crate) cut_offs: usize,
    /// Somebody sets the clock of the job trackers' machine, in any second.
    pub(crate) clock_jumps: usize,
}

impl Weather {
    pub(crate) fn new(random: &mut Random) -> Weather {
        let mut chance = |usual: &[usize]| *random.pick(usual);
        Weather {
            nodes: chance(&[1, 2, 3, 4, 8]),
            shared_hosts: chance(&[0, 0, 0, 1]) == 1,
            trouble_ms: *[60_000, 180_000].get(chance(&[0, 1])).unwrap_or(&60_000),
            node_dies: chance(&[0, 0, 1, 4]),
            node_hangs: chance(&[0, 0, 1, 4]),
            call_lost: chance(&[0, 0, 2, 10]),
            report_late: chance(&[0, 0, 5, 20]),
            report_twice: chance(&[0, 0, 5, 20]),
            lies: chance(&[0, 0, 0, 2]),
            attempt_hangs: chance(&[0, 0, 2, 10]),
            attempt_vanishes: chance(&[0, 0, 1, 5]),
            user_kills: chance(&[0, 0, 1, 3]),
            hosts_known: chance(&[0, 1]) == 1,
            restores: chance(&[0, 0, 1, 1]),
            restarts: chance(&[0, 0, 0, 1]),
            node_full: chance(&[0, 0, 0, 1]) == 1,
            submission_deaths: chance(&[0, 0, 5, 30]),
            outages: chance(&[0, 0, 1, 3]),
            stalls: chance(&[0, 0, 1, 2]),
            clock_jumps: chance(&[0, 0, 2, 10]),
            cut_offs: chance(&[0, 0, 1, 3]),
            power_lost: chance(&[0, 50, 100]),
        }
    }
}

/// How the attempts of one job go.
#[derive(Clone, Debug)]
pub(crate) struct Temper {
    seed: u64,
    /// Of a hundred tasks, those whose first attempts fail.
    fails: usize,
    /// A task that always fails.
    doomed: Option<TaskKey>,
    /// Of a hundred maps, those with one or two bad records.
    bad: usize,
    /// Whether maps and reduces commit.
    pub(crate) commits: bool,
    /// The longest work of a task.
    pub(crate) work_ms: i64,
}

impl Temper {
    /// How many attempts of a task fail before one succeeds.
    pub(crate) fn failures(&self, task: TaskKey) -> u32 {
        if self.doomed == Some(task) {
            return u32::MAX;
        }
        let number = u64::from(task.number) << 1 | task.kind as u64;
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9e37_79b9));
        if random.percent(self.fails) { random.between(1, 3) as u32 } else { 0 }
    }

    /// The first bad record that an attempt reads.
    pub(crate) fn bad_record(&self, launch: &Launch) -> Option<i64> {
        let Work::Task { skip, .. } = &launch.work else { return None };
        let task = launch.attempt.task;
        let mut random = Random::new(self.seed ^ u64::from(task.number).wrapping_mul(0x51_7cc1));
        if task.kind != TaskKind::Map || !random.percent(self.bad) {
            return None;
        }
        let count = random.between(1, MOST_BAD_RECORDS);
        let bad = (0..count).map(|_| random.between(0, 63));
        let reads = |record: &i64| {
            !skip.ranges().iter().any(|range| (range.start..range.end()).contains(record))
        };
        bad.filter(reads).min()
    }
}

/// The most bad records of a map.
pub(crate) const MOST_BAD_RECORDS: i64 = 2;

/// The jobs of a run: each with the pool that it asks for.
pub(crate) fn jobs(random: &mut Random, hosts: &[Arc<str>]) -> Vec<(JobSpec, Temper, PoolName)> {
    let count = *random.pick(&[1, 1, 2, 3]);
    (1..=count).map(|number| job(random, hosts, number)).collect()
}

fn job(random: &mut Random, hosts: &[Arc<str>], number: u32) -> (JobSpec, Temper, PoolName) {
    let maps = *random.pick(&[0, 1, 2, 5, 12, 25]);
    let reduces = *random.pick(&[0, 0, 1, 2, 7]);
    let split = |random: &mut Random| {
        let count = *random.pick(&[0, 1, 3]);
        let hosts = (0..count).map(|_| random.pick(hosts).clone()).collect();
        Split { length: 1, hosts }
    };
    let splits = (0..maps).map(|_| split(random)).collect();
    let spec = JobSpec {
        id: JobId::new("simulated", number).unwrap_or_else(|wrong| panic!("{wrong}")),
        name: "simulated".into(),
        user: "nobody".into(),
        conf: "file:/job.xml".into(),
        tracker: "null:null:null".into(),
        splits,
        reduces,
        settings: job_settings(random),
        racks: Vec::new(),
    };
    let doomed = TaskKey { kind: TaskKind::Map, number: 0 };
    let skips = spec.settings.max_skipped.map > 0;
    let temper = Temper {
        seed: random.next(),
        fails: if skips { 0 } else { *random.pick(&[0, 0, 10, 40]) },
        doomed: (maps > 0 && !skips && random.percent(10)).then_some(doomed),
        bad: if skips { 20 } else { 0 },
        commits: random.percent(70),
        work_ms: *random.pick(&[100, 2_000, 20_000]),
    };
    let pool = PoolName::new("jobs", random.pick::<&str>(&["urgent", "patient"]));
    (spec, temper, pool)
}

fn job_settings(random: &mut Random) -> JobSettings {
    let mut settings = JobSettings {
        setup_cleanup_needed: !random.percent(15),
        task_cleanup_needed: !random.percent(25),
        launch_timeout_ms: 10_000,
        task_timeout_ms: 20_000,
        exclusion_wait_ms: 15_000,
        slow_start: *random.pick(&[0.0, 0.05, 1.0]),
        rush_maps: *random.pick(&[0, 5]),
        rush_reduces: *random.pick(&[0, 5]),
        finish_when_reduces_done: random.percent(10),
        max_fetch_failures: *random.pick(&[3, 50]),
        speculation_refresh_ms: 1_000,
        ..JobSettings::default()
    };
    settings.max_attempts.map = *random.pick(&[1, 4, 4]);
    settings.failures_percent.map = *random.pick(&[0, 0, 0, 20]);
    settings.speculation.map.lag_ms = 2_000;
    settings.speculation.reduce.lag_ms = 2_000;
    settings.speculation.map.enabled = random.percent(80);
    if random.percent(7) {
        settings.max_skipped.map = *random.pick(&[1, 3]);
        settings.attempts_before_skipping = *random.pick(&[1, 2]);
        // The search for a bad record takes attempts.
        settings.max_attempts.map = 12;
    }
    settings
}

/// A cluster manager that loses patience fast.
pub(crate) fn cluster_settings(random: &mut Random) -> Settings {
    let mut settings = Settings::default();
    let slots = BTreeMap::from([
        (ResourceType::Map, *random.pick(&[1, 2, 3])),
        (ResourceType::Reduce, *random.pick(&[1, 2])),
    ]);
    settings.partitioning.0.insert(1, slots);
    settings.node_expiry_ms = 10_000;
    // Longer than a service is ever down or stalled here: then a lost session is a defect.
    settings.session_expiry_ms = 600_000;
    // One job alone must not take nodes from all others.
    settings.faults.failed_connection_sessions = 1_000;
    settings.faults.failure_sessions = 1_000;
    settings.scheduling.min_preempt_period_ms = 2_000;
    settings.scheduling.starving_time_for_minimum_ms = 1_000;
    settings.scheduling.starving_time_for_share_ms = 5_000;
    let mut urgent = PoolSettings::default();
    urgent.minimum[ResourceType::Map] = *random.pick(&[0, 2, 5]);
    urgent.minimum[ResourceType::Reduce] = *random.pick(&[0, 1]);
    settings.pools.pools.insert(PoolName::new("jobs", "urgent"), urgent);
    settings
}
