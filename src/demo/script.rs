//! The story: events of the cluster in this order, repeated with other nodes.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::job::{self, Plan};
use super::machine::{Condition, Machine};
use super::news::News;
use super::random::stream;
use super::stage::Stage;
use corona_model::random::Random;
use corona_session_driver::{PoolName, SessionPriority};

/// A scene of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// A job fills the whole cluster.
    Backfill,
    /// A job comes whose pool has a minimum: slots are preempted for it.
    Nightly,
    /// A node loses power; later it is dead.
    PowerCut,
    /// Tasks on a node fail; sessions report that, and it is blacklisted.
    DiskFails,
    /// A node that was not there before joins.
    NewNode,
    /// The node that died is back.
    PowerBack,
    /// The blacklisted node is switched off.
    Repair,
    /// It is back, and no longer blacklisted.
    Repaired,
    /// The node that was added leaves, to be added again.
    NodeReturned,
}

/// When each scene begins, in seconds of the demo.
const SCENES: [(f64, Scene); 9] = [
    (6.0, Scene::Backfill),
    (16.0, Scene::Nightly),
    (30.0, Scene::PowerCut),
    (38.0, Scene::DiskFails),
    (55.0, Scene::NewNode),
    (75.0, Scene::PowerBack),
    (85.0, Scene::Repair),
    (105.0, Scene::Repaired),
    (110.0, Scene::NodeReturned),
];
/// When the story repeats.
const LENGTH: f64 = 130.0;

/// Random streams of scripted jobs begin here.
const STREAMS: u64 = 1 << 40;

/// Plays until it is dropped.
pub(super) async fn run(stage: Arc<Stage>, seed: u64) {
    let mut show = Show {
        stage,
        random: stream(seed, STREAMS),
        seed,
        number: 0,
        jobs: JoinSet::new(),
        doomed: None,
        broken: None,
    };
    let mut begin = Instant::now();
    loop {
        for (at, scene) in SCENES {
            sleep_until((begin + show.stage.pace.seconds(at)).into()).await;
            show.play(scene);
            while show.jobs.try_join_next().is_some() {}
        }
        begin += show.stage.pace.seconds(LENGTH);
    }
}

struct Show {
    stage: Arc<Stage>,
    random: Random,
    seed: u64,
    /// Of the last scripted job.
    number: u64,
    jobs: JoinSet<()>,
    /// The node that loses power.
    doomed: Option<Arc<Machine>>,
    /// The node whose disk fails.
    broken: Option<Arc<Machine>>,
}

impl Show {
    fn play(&mut self, scene: Scene) {
        let slots = self.stage.machines.slots();
        match scene {
            Scene::Backfill => {
                let pool = PoolName::new("research", "backfill");
                let maps = slots.map;
                self.submit("backfill", "lena", pool, maps, 0, (35.0, 50.0), None);
            }
            Scene::Nightly => {
                let pool = PoolName::new("production", "nightly");
                let (maps, reduces) = (slots.map * 2 / 3, slots.reduce / 2);
                self.submit("nightly-load", "etl", pool, maps, reduces, (8.0, 14.0), None);
            }
            Scene::PowerCut => {
                self.doomed = self.victim();
                self.switch(self.doomed.clone(), Condition::Off, |node| News::PowerCut { node });
            }
            Scene::DiskFails => {
                self.broken = self.victim();
                let broken = self.broken.clone();
                self.switch(broken, Condition::Faulty, |node| News::DiskFailing { node });
                // The failures are noticed soon, since jobs with their input on this node come.
                for (user, pool) in [("ana", "pipeline"), ("boris", "pipeline")] {
                    let Some(broken) = self.broken.clone() else { return };
                    let (pool, maps) = (PoolName::new("ads", pool), broken.map_slots());
                    self.submit("log-scan", user, pool, maps, 0, (3.0, 6.0), Some(broken));
                }
            }
            Scene::NewNode => {
                let newcomer = self.stage.machines.newcomer().cloned();
                self.switch(newcomer, Condition::On, |node| News::NewNode { node });
            }
            Scene::PowerBack => {
                let back = self.doomed.take();
                self.switch(back, Condition::On, |node| News::PowerBack { node });
            }
            Scene::Repair => {
                let broken = self.broken.clone();
                self.switch(broken, Condition::Off, |node| News::Repair { node });
            }
            Scene::Repaired => {
                let back = self.broken.take();
                self.switch(back, Condition::On, |node| News::PowerBack { node });
            }
            Scene::NodeReturned => {
                let newcomer = self.stage.machines.newcomer().cloned();
                self.switch(newcomer, Condition::Off, |node| News::NodeReturned { node });
            }
        }
    }

    fn switch(
        &self,
        machine: Option<Arc<Machine>>,
        condition: Condition,
        news: impl FnOnce(Arc<str>) -> News,
    ) {
        if let Some(machine) = machine {
            machine.set(condition);
            self.stage.tell(news(machine.name.clone()));
        }
    }

    /// A small node that works and is not the newcomer.
    fn victim(&mut self) -> Option<Arc<Machine>> {
        let newcomer = self.stage.machines.newcomer().map(|machine| machine.name.clone());
        let mut working = self.stage.machines.working();
        working.retain(|machine| machine.is_small() && Some(&machine.name) != newcomer.as_ref());
        working.get(self.random.below(working.len())).cloned()
    }

    #[expect(clippy::too_many_arguments, reason = "each says what one of the four jobs is like")]
    fn submit(
        &mut self,
        name: &str,
        user: &'static str,
        pool: PoolName,
        maps: i64,
        reduces: i64,
        map_seconds: (f64, f64),
        input_on: Option<Arc<Machine>>,
    ) {
        self.number += 1;
        let plan = Plan {
            name: format!("{name}-{}", self.number).into(),
            user,
            pool,
            priority: SessionPriority::Normal,
            maps: usize::try_from(maps).unwrap_or(0),
            reduces: usize::try_from(reduces).unwrap_or(0),
            map_seconds,
            reduce_seconds: (6.0, 10.0),
            input_on,
            fails: false,
            scripted: true,
        };
        let random = stream(self.seed, STREAMS + self.number);
        self.jobs.spawn(job::run(self.stage.clone(), plan, random));
    }
}
