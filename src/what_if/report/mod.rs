//! Runs side by side, and with what was recorded.

mod html;
mod plot;
pub mod words;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::measure::{Run, Spread};
use crate::workload::{Reading, Workload};

pub use html::html;

/// An error above this share is a warning.
pub const TOLERATED: f64 = 0.05;
/// Differences count as a share of the recorded time, but of no less than this.
const LEAST_MS: f64 = 1_000.0;
/// So many sessions that got faster, and slower, are named.
const NAMED: usize = 5;
/// A session that takes as long as before, but for this share, is neither faster nor slower.
const SAME: f64 = 0.02;

/// The report of what-if.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The name of the workload.
    pub name: String,
    /// Milliseconds since the Unix epoch; 0 if that is not known.
    pub began_ms: i64,
    /// How long the workload lasts.
    pub until_ms: i64,
    /// Nodes of the workload.
    pub nodes: usize,
    /// Sessions of the workload.
    pub sessions: usize,
    /// Tasks of all sessions.
    pub tasks: usize,
    /// What was changed, as sentences.
    pub changes: Vec<String>,
    /// What is assumed where the input does not say it, as sentences.
    pub assumptions: Vec<String>,
    /// What of the input was not used, as sentences.
    pub left_out: Vec<String>,
    /// The simulation with nothing changed, beside the recording.
    pub check: Check,
    /// The first one has nothing changed.
    pub runs: Vec<Run>,
    /// Each further run beside the first one.
    pub comparisons: Vec<Comparison>,
}

/// The simulation with nothing changed, beside the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Check {
    /// Tasks whose waits were compared.
    pub tasks: u64,
    /// What was compared.
    pub rows: Vec<CheckRow>,
    /// The largest error; none if nothing could be compared.
    pub error: Option<f64>,
}

impl Check {
    /// Whether the simulation comes out as recorded.
    pub fn is_good(&self) -> bool {
        self.error.is_some_and(|error| error <= TOLERATED)
    }
}

/// One figure, recorded and simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckRow {
    /// What is compared, for people.
    pub name: &'static str,
    /// `ms`, or `share`: 0 to 1.
    pub unit: &'static str,
    /// As recorded, in the unit.
    pub recorded: f64,
    /// As simulated, in the unit.
    pub simulated: f64,
    /// The difference as a share of the recorded value, of a second at least for times.
    pub error: f64,
}

/// A run beside the first one, by sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The name of the run's settings.
    pub name: String,
    /// Sessions that take less time than before.
    pub faster: usize,
    /// Sessions that take more time than before.
    pub slower: usize,
    /// Sessions that take as long as before, give or take 2 %.
    pub same: usize,
    /// The median of how long sessions take, as a share of before.
    pub median: f64,
    /// Those that take the most time longer, the worst first.
    pub most_slower: Vec<SessionChange>,
    /// Those that save the most time, the best first.
    pub most_faster: Vec<SessionChange>,
}

/// A session that takes longer, or less long.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionChange {
    /// Its id in the workload.
    pub id: String,
    /// The job's name.
    pub name: String,
    /// The user whose job it is.
    pub user: String,
    /// How long it took in the first run.
    pub before_ms: i64,
    /// How long it took in this run.
    pub after_ms: i64,
}

impl Report {
    /// The report of a run with nothing changed, and of others, each with the workload that it played.
    pub fn new(
        reading: &Reading,
        base: Run,
        others: Vec<(&Workload, Run)>,
        changes: Vec<String>,
    ) -> Report {
        let workload = &reading.workload;
        let mut assumptions = workload.assumptions.clone();
        assumptions.extend(base.assumptions.iter().cloned());
        for (changed, run) in &others {
            assumptions.extend(changed.assumptions.iter().chain(&run.assumptions).cloned());
        }
        let comparisons =
            others.iter().map(|(changed, run)| compare(workload, &base, changed, run)).collect();
        Report {
            name: workload.name.clone(),
            began_ms: workload.began_ms,
            until_ms: workload.until_ms,
            nodes: workload.nodes.len(),
            sessions: workload.sessions.len(),
            tasks: workload.tasks(),
            changes,
            assumptions: assumptions.into_iter().collect(),
            left_out: reading.left_out.clone(),
            check: check(workload, &base),
            comparisons,
            runs: std::iter::once(base).chain(others.into_iter().map(|(_, run)| run)).collect(),
        }
    }
}

fn check(workload: &Workload, base: &Run) -> Check {
    let [mut recorded, mut simulated] =
        [base.compared.recorded.clone(), base.compared.simulated.clone()];
    let [recorded, simulated] = [Spread::of(&mut recorded), Spread::of(&mut simulated)];
    let mut rows = Vec::new();
    let mut time = |name, recorded: f64, simulated: f64| {
        let error = (simulated - recorded).abs() / recorded.max(LEAST_MS);
        rows.push(CheckRow { name, unit: "ms", recorded, simulated, error });
    };
    if recorded.count > 0 {
        time("mean wait", recorded.mean_ms, simulated.mean_ms);
        time("median wait", recorded.median_ms.into(), simulated.median_ms.into());
        time("95 % of waits within", recorded.p95_ms.into(), simulated.p95_ms.into());
    }
    let both = workload.sessions.iter().zip(&base.sessions);
    let both: Vec<(i64, i64)> = both
        .filter_map(|(session, result)| Some((session.recorded_ms?, result.took_ms()?)))
        .collect();
    if !both.is_empty() {
        let mean = |of: fn(&(i64, i64)) -> i64| {
            both.iter().map(|pair| of(pair) as f64).sum::<f64>() / both.len() as f64
        };
        time("mean time of a session", mean(|pair| pair.0), mean(|pair| pair.1));
    }
    let held = base.compared.slot_ms;
    let slot_ms: f64 = base.cluster.types.iter().map(|of| of.slot_ms).sum();
    if held > 0.0 && slot_ms > 0.0 {
        let used_ms = base.cluster.types.iter().map(|of| of.used * of.slot_ms).sum::<f64>();
        let (recorded, simulated) = (held / slot_ms, used_ms / slot_ms);
        let error = (simulated - recorded).abs() / recorded;
        rows.push(CheckRow { name: "slots in use", unit: "share", recorded, simulated, error });
    }
    let error = rows.iter().map(|row| row.error).reduce(f64::max);
    Check { tasks: recorded.count, rows, error }
}

fn compare(before: &Workload, base: &Run, after: &Workload, run: &Run) -> Comparison {
    let times = before.sessions.iter().zip(&base.sessions);
    let times: BTreeMap<&str, i64> =
        times.filter_map(|(session, result)| Some((&*session.id, result.took_ms()?))).collect();
    let mut comparison = Comparison { name: run.name.clone(), median: 1.0, ..Default::default() };
    let mut changes = Vec::new();
    for (session, result) in after.sessions.iter().zip(&run.sessions) {
        let Some((before_ms, after_ms)) = times.get(&*session.id).copied().zip(result.took_ms())
        else {
            continue;
        };
        let ratio = after_ms.max(1) as f64 / before_ms.max(1) as f64;
        match ratio {
            ratio if ratio > 1.0 + SAME => comparison.slower += 1,
            ratio if ratio < 1.0 - SAME => comparison.faster += 1,
            _ => comparison.same += 1,
        }
        changes.push((ratio, after_ms - before_ms, session, before_ms, after_ms));
    }
    changes.sort_by(|one, other| one.0.total_cmp(&other.0));
    if let Some((median, ..)) = changes.get(changes.len() / 2) {
        comparison.median = *median;
    }
    changes.sort_by_key(|(_, by_ms, ..)| *by_ms);
    let named = |(_, _, session, before_ms, after_ms): &(f64, i64, &crate::Session, i64, i64)| {
        SessionChange {
            id: session.id.to_string(),
            name: session.name.to_string(),
            user: session.user.to_string(),
            before_ms: *before_ms,
            after_ms: *after_ms,
        }
    };
    let faster = changes.iter().filter(|change| change.0 < 1.0 - SAME);
    let slower = changes.iter().rev().filter(|change| change.0 > 1.0 + SAME);
    comparison.most_faster = faster.take(NAMED).map(named).collect();
    comparison.most_slower = slower.take(NAMED).map(named).collect();
    comparison
}
