//! A search for settings that reach a goal: a few knobs, each with a few values, one knob at a time.
//!
//! It keeps the change of one knob that helps most, and goes on from there until nothing helps any more or it has
//! tried as many settings as it may. It plays nothing itself.

use std::collections::BTreeMap;
use std::str::FromStr;

use corona_model::settings::Settings;
use corona_model::types::{PerType, PoolName, ResourceType};
use serde::Serialize;

use crate::measure::{GroupResult, Run, Spread};
use crate::report::words;
use crate::workload::Workload;

/// Shares of all slots that a minimum may be.
const MINIMA: [f64; 7] = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75];
/// Weights, as multiples of the present one.
const WEIGHTS: [f64; 7] = [0.25, 0.5, 2.0, 4.0, 8.0, 16.0, 64.0];
/// Times for which grants are safe from preemption.
const RUNTIMES_MS: [i64; 5] = [0, 60_000, 300_000, 900_000, 3_600_000];
/// Waits for locality.
const WAITS_MS: [i64; 6] = [0, 500, 1_000, 2_000, 5_000, 15_000];
/// Waits below this count as none when others are compared.
const LEAST_MS: f64 = 1_000.0;

/// A time of waits that pools must keep below, such as `p95 of ads.* < 60s`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The figure of the waits.
    pub measure: Measure,
    /// A pool as `group.pool`; `*` stands for any text.
    pub pools: String,
    /// The time in milliseconds below which it must stay.
    pub limit_ms: i64,
}

/// What of the waits is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// The mean.
    Mean,
    /// Half of the waits are no longer.
    Median,
    /// 95 % of the waits are no longer.
    P95,
    /// 99 % of the waits are no longer.
    P99,
    /// The longest wait.
    Longest,
}

/// A text that is no goal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a goal such as 'p95 of ads.* < 60s': mean, median, p95, p99 or longest, pools, and a time in ms, s, m \
     or h"
)]
pub struct NoGoal;

/// What the search may change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// The minimum of a pool, for each type the same share of all slots.
    Minimum(PoolName),
    /// The weight of a pool among those of its group.
    Weight(PoolName),
    /// The time for which grants of a pool are safe from preemption.
    MinRuntime(PoolName),
    /// The wait for a preferred host.
    NodeWait,
    /// The wait for a preferred rack.
    RackWait,
}

/// Values of knobs by their places; a knob that is absent is as it was.
type Places = BTreeMap<usize, usize>;

/// Settings that were tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Trial {
    /// Changes against the present settings, as sentences.
    pub changes: Vec<String>,
    /// Whether it reaches all goals.
    pub reached: bool,
    /// For each goal the time of the pool that is furthest from it.
    pub times_ms: Vec<f64>,
    /// By how much the goals are missed, as a sum of shares of their limits.
    pub missed: f64,
    /// By how much the requests of all other pools wait longer on average, as a share; negative if less long.
    pub others: f64,
    /// Work that was lost to preemption and failures.
    pub lost_ms: u64,
    #[serde(skip)]
    places: Places,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Suggestion {
    /// The goals, as they were given.
    pub goals: Vec<String>,
    /// What the search may change, as texts.
    pub knobs: Vec<String>,
    /// How many settings these knobs allow.
    pub possible: f64,
    /// Whether it ended because it may try no more.
    pub exhausted: bool,
    /// Whether it was ended from outside.
    pub interrupted: bool,
    /// The place of the best one in `trials`.
    pub best: usize,
    /// In the order in which they were tried; the first one has nothing changed.
    pub trials: Vec<Trial>,
}

impl FromStr for Goal {
    type Err = NoGoal;

    fn from_str(text: &str) -> Result<Goal, NoGoal> {
        let (measure, rest) = text.trim().split_once(" of ").ok_or(NoGoal)?;
        let (pools, limit) = rest.split_once('<').ok_or(NoGoal)?;
        let measure = match measure.trim() {
            "mean" => Measure::Mean,
            "median" | "p50" => Measure::Median,
            "p95" => Measure::P95,
            "p99" => Measure::P99,
            "longest" | "max" => Measure::Longest,
            _ => return Err(NoGoal),
        };
        let limit_ms = span_ms(limit.trim()).filter(|ms| *ms > 0).ok_or(NoGoal)?;
        let pools = pools.trim();
        let is_one = !pools.is_empty() && !pools.contains(char::is_whitespace);
        is_one.then(|| Goal { measure, pools: pools.to_owned(), limit_ms }).ok_or(NoGoal)
    }
}

/// A span such as `500ms`, `90s`, `30m`, `2h` or `1d`, in milliseconds.
pub fn span_ms(text: &str) -> Option<i64> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let (number, factor) =
        units.into_iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: i64 = number.trim().parse().ok().filter(|number| *number >= 0)?;
    number.checked_mul(factor)
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Goal { measure, pools, limit_ms } = self;
        let measure = match measure {
            Measure::Mean => "mean",
            Measure::Median => "median",
            Measure::P95 => "p95",
            Measure::P99 => "p99",
            Measure::Longest => "longest",
        };
        write!(f, "{measure} of {pools} < {}", words::time(*limit_ms as f64))
    }
}

impl Goal {
    /// Whether a pool, as `group.pool`, is one of its pools.
    pub fn matches(&self, pool: &str) -> bool {
        matches(&self.pools, pool)
    }

    fn time_of(&self, waits: &Spread) -> f64 {
        match self.measure {
            Measure::Mean => waits.mean_ms,
            Measure::Median => waits.median_ms.into(),
            Measure::P95 => waits.p95_ms.into(),
            Measure::P99 => waits.p99_ms.into(),
            Measure::Longest => waits.longest_ms.into(),
        }
    }

    /// The time of the pool that is furthest from the goal; endless if requests of such pools were never served.
    fn time_in(&self, run: &Run) -> f64 {
        let pools = run.pools.iter().filter(|pool| self.matches(&pool.name));
        pools
            .map(|pool| match pool.unserved {
                0 => self.time_of(&pool.waits),
                _ => f64::from(u32::MAX),
            })
            .fold(0.0, f64::max)
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pattern.rsplit_once('*').map(|(_, last)| last) else { return rest.is_empty() };
    let between: Vec<&str> = parts.collect();
    for part in between.iter().take(between.len().saturating_sub(1)) {
        match rest.find(part).and_then(|at| rest.get(at + part.len()..)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl FromStr for Knob {
    type Err = String;

    fn from_str(text: &str) -> Result<Knob, String> {
        let (kind, pool) = text.split_once(':').unwrap_or((text, ""));
        let named = || {
            let (group, pool) = pool
                .split_once('.')
                .filter(|(group, pool)| !group.is_empty() && !pool.is_empty())?;
            Some(PoolName::new(group, pool))
        };
        let knob = match kind {
            "min" => named().map(Knob::Minimum),
            "weight" => named().map(Knob::Weight),
            "minRuntime" => named().map(Knob::MinRuntime),
            "nodeWait" if pool.is_empty() => Some(Knob::NodeWait),
            "rackWait" if pool.is_empty() => Some(Knob::RackWait),
            _ => None,
        };
        knob.ok_or_else(|| {
            "expected min:GROUP.POOL, weight:GROUP.POOL, minRuntime:GROUP.POOL, nodeWait or rackWait"
                .to_owned()
        })
    }
}

impl std::fmt::Display for Knob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Knob::Minimum(pool) => write!(f, "min:{pool}"),
            Knob::Weight(pool) => write!(f, "weight:{pool}"),
            Knob::MinRuntime(pool) => write!(f, "minRuntime:{pool}"),
            Knob::NodeWait => f.write_str("nodeWait"),
            Knob::RackWait => f.write_str("rackWait"),
        }
    }
}

impl Knob {
    fn values(&self) -> usize {
        match self {
            Knob::Minimum(_) => MINIMA.len(),
            Knob::Weight(_) => WEIGHTS.len(),
            Knob::MinRuntime(_) => RUNTIMES_MS.len(),
            Knob::NodeWait | Knob::RackWait => WAITS_MS.len(),
        }
    }

    /// Turns it to the value at a place. Returns what that changes, as a sentence; `None` if it changes nothing.
    fn turn(&self, settings: &mut Settings, slots: &PerType<u64>, place: usize) -> Option<String> {
        let before = settings.clone();
        let text = match self {
            Knob::Minimum(pool) => {
                let share = MINIMA.get(place)?;
                let of = settings.pools.pools.entry(pool.clone()).or_default();
                let mut all = Vec::new();
                for kind in ResourceType::ALL.into_iter().filter(|kind| slots[*kind] > 0) {
                    let most = f64::from(of.maximum[kind].max(0));
                    let minimum = (share * slots[kind] as f64).ceil().min(most) as i32;
                    all.push(format!("min{kind} {} instead of {}", minimum, of.minimum[kind]));
                    of.minimum[kind] = minimum;
                }
                format!("{pool}: {}.", all.join(", "))
            }
            Knob::Weight(pool) => {
                let of = settings.pools.pools.entry(pool.clone()).or_default();
                let weight = of.weight * WEIGHTS.get(place)?;
                let text = format!("{pool}: weight {weight} instead of {}.", of.weight);
                of.weight = weight;
                text
            }
            Knob::MinRuntime(pool) => {
                let ms = *RUNTIMES_MS.get(place)?;
                settings.pools.pools.entry(pool.clone()).or_default();
                let rules = settings.pools.queues.0.pools.entry(pool.clone()).or_default();
                let was = rules.min_runtime_ms.replace(ms).unwrap_or(0);
                format!("{pool}: minRuntime {ms} ms instead of {was} ms.")
            }
            Knob::NodeWait => {
                let ms = *WAITS_MS.get(place)?;
                let waits = &mut settings.scheduling.node_locality_wait_ms;
                let was = std::mem::replace(&mut waits[ResourceType::Map], ms);
                format!("nodeLocalityWaitMAP {ms} ms instead of {was} ms.")
            }
            Knob::RackWait => {
                let ms = *WAITS_MS.get(place)?;
                let waits = &mut settings.scheduling.rack_locality_wait_ms;
                let was = std::mem::replace(&mut waits[ResourceType::Map], ms);
                format!("rackLocalityWaitMAP {ms} ms instead of {was} ms.")
            }
        };
        (before != *settings).then_some(text)
    }
}

/// The knobs that are likely to matter: minimum and weight of each pool that a goal names, and the waits for
/// locality if tasks prefer hosts.
pub fn usual_knobs(workload: &Workload, base: &Run, goals: &[Goal]) -> Vec<Knob> {
    let pools = base.pools.iter().filter(|pool| goals.iter().any(|goal| goal.matches(&pool.name)));
    let names: Vec<PoolName> = pools
        .filter_map(|pool| pool.name.split_once('.'))
        .map(|(group, pool)| PoolName::new(group, pool))
        .collect();
    let mut knobs: Vec<Knob> = names.iter().cloned().map(Knob::Minimum).collect();
    knobs.extend(names.into_iter().map(Knob::Weight));
    let mut tasks = workload.sessions.iter().flat_map(|session| &session.tasks);
    if tasks.any(|task| !task.hosts.is_empty()) {
        knobs.push(Knob::NodeWait);
        if workload.nodes.iter().any(|node| node.rack.is_some()) {
            knobs.push(Knob::RackWait);
        }
    }
    knobs
}

/// Searches from the present settings, whose run is `base`. `play` runs the workload with each of the settings that
/// it is given, and returns fewer runs when it is to end.
pub fn suggest(
    settings: &Settings,
    base: &Run,
    (goals, knobs): (&[Goal], &[Knob]),
    most: usize,
    play: &mut dyn FnMut(Vec<Settings>) -> Vec<Run>,
) -> Suggestion {
    let mut slots = PerType::all(0);
    for of in &base.cluster.types {
        slots[of.kind] = of.slots;
    }
    let mut search = Search { settings, goals, knobs, slots, base, trials: Vec::new() };
    search.judge(Places::new(), base);
    let mut found = Suggestion {
        goals: goals.iter().map(ToString::to_string).collect(),
        knobs: knobs.iter().map(ToString::to_string).collect(),
        possible: knobs.iter().map(|knob| knob.values() as f64 + 1.0).product(),
        ..Suggestion::default()
    };
    loop {
        let from = search.best();
        for place in 0..knobs.len() {
            let best = search.best();
            let mut next = search.neighbours(best, place);
            let room = (most + 1).saturating_sub(search.trials.len());
            found.exhausted |= next.len() > room;
            next.truncate(room);
            let (places, settings): (Vec<_>, Vec<_>) = next.into_iter().unzip();
            let count = settings.len();
            let runs = if count > 0 { play(settings) } else { Vec::new() };
            found.interrupted |= runs.len() < count;
            for (places, run) in places.into_iter().zip(&runs) {
                search.judge(places, run);
            }
            if found.interrupted {
                break;
            }
        }
        if search.best() == from || found.exhausted || found.interrupted {
            break;
        }
    }
    found.best = search.best();
    found.trials = search.trials;
    found
}

struct Search<'a> {
    settings: &'a Settings,
    goals: &'a [Goal],
    knobs: &'a [Knob],
    slots: PerType<u64>,
    base: &'a Run,
    trials: Vec<Trial>,
}

impl Search<'_> {
    /// The settings with knobs at these places, and the changes as sentences; `None` if one of them changes
    /// nothing.
    fn turned(&self, places: &Places) -> Option<(Settings, Vec<String>)> {
        let (mut settings, mut changes) = (self.settings.clone(), Vec::new());
        for (knob, place) in places {
            changes.push(self.knobs.get(*knob)?.turn(&mut settings, &self.slots, *place)?);
        }
        Some((settings, changes))
    }

    /// Settings that differ from a trial in one knob and were not tried yet.
    fn neighbours(&self, trial: usize, knob: usize) -> Vec<(Places, Settings)> {
        let of = self.trials.get(trial).map(|trial| trial.places.clone()).unwrap_or_default();
        let values = self.knobs.get(knob).map_or(0, Knob::values);
        let others = (0..values).map(Some).chain([None]).map(|value| {
            let mut places = of.clone();
            match value {
                Some(value) => places.insert(knob, value),
                None => places.remove(&knob),
            };
            places
        });
        let new = others.filter(|places| self.trials.iter().all(|trial| trial.places != *places));
        new.filter_map(|places| {
            let (settings, _) = self.turned(&places)?;
            Some((places, settings))
        })
        .collect()
    }

    fn judge(&mut self, places: Places, run: &Run) {
        let changes = self.turned(&places).map(|(_, changes)| changes).unwrap_or_default();
        let times_ms: Vec<f64> = self.goals.iter().map(|goal| goal.time_in(run)).collect();
        let missed = self.goals.iter().zip(&times_ms);
        let reached = missed.clone().all(|(goal, ms)| *ms < goal.limit_ms as f64);
        let missed = missed.map(|(goal, ms)| (ms / goal.limit_ms as f64 - 1.0).max(0.0)).sum();
        let (before, after) = (self.others(self.base), self.others(run));
        self.trials.push(Trial {
            changes,
            reached,
            times_ms,
            missed,
            others: (after - before) / before.max(LEAST_MS),
            lost_ms: run.cluster.lost_ms,
            places,
        });
    }

    /// The mean wait of requests of pools that no goal names.
    fn others(&self, run: &Run) -> f64 {
        let is_other =
            |pool: &&GroupResult| !self.goals.iter().any(|goal| goal.matches(&pool.name));
        let waits: Vec<&Spread> =
            run.pools.iter().filter(is_other).map(|pool| &pool.waits).collect();
        let count: f64 = waits.iter().map(|waits| waits.count as f64).sum();
        waits.iter().map(|waits| waits.mean_ms * waits.count as f64).sum::<f64>() / count.max(1.0)
    }

    /// The place of the trial that reaches the goals, or is nearest to them, then costs others and lost work least,
    /// then changes least.
    fn best(&self) -> usize {
        let rank = |trial: &Trial| {
            (trial.missed, trial.others.max(0.0), trial.lost_ms as f64, trial.places.len())
        };
        let order = |one: &Trial, other: &Trial| {
            let (one_rank, other_rank) = (rank(one), rank(other));
            other
                .reached
                .cmp(&one.reached)
                .then(one_rank.0.total_cmp(&other_rank.0))
                .then(one_rank.1.total_cmp(&other_rank.1))
                .then(one_rank.2.total_cmp(&other_rank.2))
                .then(one_rank.3.cmp(&other_rank.3))
        };
        let all = self.trials.iter().enumerate();
        all.min_by(|one, other| order(one.1, other.1)).map_or(0, |(place, _)| place)
    }
}
