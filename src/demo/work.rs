//! The daily work: small, medium and large jobs of several users that come by chance.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::job::{self, Plan};
use super::random::{between, pause, stream};
use super::stage::Stage;
use corona_model::random::Random;
use corona_session_driver::{PoolName, SessionPriority};

/// The part of the MAP slots that the daily work uses on average.
const LOAD: f64 = 0.5;
/// Jobs at the very start.
const FIRST_JOBS: usize = 8;
/// More jobs than this do not run at a time.
const MOST_JOBS: usize = 300;

const MAP_SECONDS: (f64, f64) = (3.0, 9.0);
const REDUCE_SECONDS: (f64, f64) = (5.0, 12.0);
/// Fewest and most maps of a job, and how many jobs out of a hundred are so.
const SIZES: [(usize, usize, usize); 3] = [(2, 10, 70), (15, 45, 25), (60, 120, 5)];
/// MAP slots of a cluster on which jobs have these sizes. On larger ones both size and number grow.
const USUAL_SLOTS: f64 = 150.0;
/// Jobs out of a hundred that fail.
const FAILING: usize = 4;

/// The users that submit jobs, and their jobs.
struct Team {
    group: &'static str,
    pool: &'static str,
    users: &'static [&'static str],
    jobs: &'static [&'static str],
    /// Jobs out of a hundred.
    part: usize,
}

const TEAMS: [Team; 5] = [
    Team {
        group: "production",
        pool: "reports",
        users: &["etl"],
        jobs: &["clicks-hourly", "revenue-daily", "funnel-by-country", "billing-check"],
        part: 25,
    },
    Team {
        group: "ads",
        pool: "pipeline",
        users: &["ana", "boris"],
        jobs: &["ad-features", "ctr-model", "bid-logs"],
        part: 25,
    },
    Team {
        group: "ads",
        pool: "experiments",
        users: &["chen"],
        jobs: &["ab-test-readout", "budget-what-if"],
        part: 15,
    },
    Team {
        group: "research",
        pool: "adhoc",
        users: &["dalia", "emeka", "fatima"],
        jobs: &["user-survey", "graph-sample", "word-count"],
        part: 20,
    },
    Team {
        group: "default",
        pool: "defaultpool",
        users: &["guest"],
        jobs: &["sleep", "pi"],
        part: 15,
    },
];

/// Submits jobs until it is dropped.
pub(super) async fn run(stage: Arc<Stage>, seed: u64) {
    let mut office = Office::new(seed, stage.machines.slots().map as f64);
    let mut jobs = JoinSet::new();
    for _ in 0..FIRST_JOBS {
        let (plan, random) = office.next_job();
        jobs.spawn(job::run(stage.clone(), plan, random));
    }
    loop {
        sleep(stage.pace.seconds(office.pause())).await;
        while jobs.try_join_next().is_some() {}
        if jobs.len() < MOST_JOBS {
            let (plan, random) = office.next_job();
            jobs.spawn(job::run(stage.clone(), plan, random));
        }
    }
}

/// Thinks of jobs.
#[derive(Debug)]
pub(super) struct Office {
    random: Random,
    seed: u64,
    number: u64,
    /// How much larger jobs are than usual.
    scale: f64,
    /// Jobs a second.
    rate: f64,
}

impl Office {
    /// `slots` are the MAP slots of the cluster.
    pub(super) fn new(seed: u64, slots: f64) -> Office {
        let scale = (slots / USUAL_SLOTS).sqrt();
        let sizes = SIZES.map(|(least, most, part)| (least + most) as f64 / 2.0 * part as f64);
        let maps = sizes.iter().sum::<f64>() / 100.0 * scale;
        let map_seconds = (MAP_SECONDS.0 + MAP_SECONDS.1) / 2.0;
        let rate = LOAD * slots / (maps * map_seconds);
        Office { random: stream(seed, 0), seed, number: 0, scale, rate }
    }

    /// Seconds of the demo until the next job.
    pub(super) fn pause(&mut self) -> f64 {
        pause(&mut self.random, self.rate).min(Duration::from_secs(60).as_secs_f64())
    }

    /// The next job, and the numbers by which it is carried out.
    pub(super) fn next_job(&mut self) -> (Plan, Random) {
        self.number += 1;
        let team = by_part(&TEAMS, |team| team.part, self.random.below(100));
        let user = *self.random.pick(team.users);
        let job = *self.random.pick(team.jobs);
        let (least, most, _) = *by_part(&SIZES, |(.., part)| *part, self.random.below(100));
        let maps = between(&mut self.random, least as f64, most as f64);
        let maps = (maps * self.scale).round().max(1.0);
        let maps = maps as usize;
        // One job in four has no reduces.
        let reduces = if self.random.percent(25) { 0 } else { (maps / 6).max(1) };
        let priority = match self.random.below(10) {
            0 => SessionPriority::High,
            1 => SessionPriority::Low,
            _ => SessionPriority::Normal,
        };
        let plan = Plan {
            name: format!("{job}-{:04}", self.number).into(),
            user,
            pool: PoolName::new(team.group, team.pool),
            priority,
            maps,
            reduces,
            map_seconds: MAP_SECONDS,
            reduce_seconds: REDUCE_SECONDS,
            input_on: None,
            fails: self.random.percent(FAILING),
            scripted: false,
        };
        (plan, stream(self.seed, self.number))
    }
}

/// The item in whose part of a hundred the number falls.
fn by_part<T>(items: &[T], part: impl Fn(&T) -> usize, number: usize) -> &T {
    let mut sum = 0;
    let found = items.iter().find(|item| {
        sum += part(item);
        number < sum
    });
    found.unwrap_or(&items[items.len() - 1])
}
