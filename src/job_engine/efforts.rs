//! What the attempts of a job took and what of it was wasted, for the proxy job tracker. It is derived
//! from the attempts when it is asked for. Spec: mapreduce/09 §G.
//!
//! Each attempt counts by its own outcome. The original counts most failed attempts as killed ones.

use corona_mapreduce::{PerKind, TaskKey, TaskKind, TaskState};

use super::reports::FETCH_FAILURES;
use super::slots::Locality;
use super::tasks::{Attempt, Stage, Task};
use super::{JobEngine, TASK_COUNTERS};

/// Sums over the attempts of a job's work. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Efforts {
    /// Attempts that were launched while another one of the same task ran.
    pub speculative: PerKind<u32>,
    /// Speculative attempts that succeeded first.
    pub speculative_succeeded: PerKind<u32>,
    /// Speculative attempts that failed or were killed.
    pub speculative_wasted: PerKind<u32>,
    /// The time of wasted speculative attempts.
    pub speculative_wasted_ms: PerKind<i64>,
    /// The time of failed attempts.
    pub failed_ms: PerKind<i64>,
    /// The time of killed attempts.
    pub killed_ms: PerKind<i64>,
    /// Bytes that successful maps read.
    pub map_input_bytes: i64,
    /// The bytes of maps that ran on a host of their split.
    pub local_map_input_bytes: i64,
    /// The bytes of maps that ran in a rack of their split, but not on a host.
    pub rack_map_input_bytes: i64,
    /// Reports of reduces that could not fetch a map's output.
    pub fetch_failures: u32,
    /// Maps that failed because of such reports.
    pub failed_by_fetch_failures: u32,
}

impl JobEngine {
    /// The efforts of all attempts that were launched so far.
    pub fn efforts(&self) -> Efforts {
        let mut efforts = Efforts::default();
        for kind in TaskKind::ALL {
            let work = self.tasks[kind].iter().take(self.sizes[kind] as usize);
            for (number, task) in (0..).zip(work) {
                efforts.add_task(kind, task);
                if kind == TaskKind::Map {
                    self.add_input(&mut efforts, TaskKey { kind, number }, task);
                }
            }
        }
        efforts
    }

    fn add_input(&self, efforts: &mut Efforts, key: TaskKey, task: &Task) {
        let Stage::Complete(number) = task.stage else { return };
        let Some(attempt) = task.attempts.get(number as usize) else { return };
        let bytes = self.counter_names.value(&attempt.counters, TASK_COUNTERS, "MAP_INPUT_BYTES");
        let bytes = bytes.unwrap_or(0);
        add(&mut efforts.map_input_bytes, bytes);
        match self.locality(key, attempt.node) {
            Locality::Host => add(&mut efforts.local_map_input_bytes, bytes),
            Locality::Rack => add(&mut efforts.rack_map_input_bytes, bytes),
            Locality::Elsewhere => {}
        }
    }
}

impl Efforts {
    fn add_task(&mut self, kind: TaskKind, task: &Task) {
        for (number, attempt) in task.numbered() {
            let (failed, killed) =
                (attempt.state == TaskState::Failed, attempt.state == TaskState::Killed);
            let time = time_of(attempt);
            if failed {
                add(&mut self.failed_ms[kind], time);
            } else if killed {
                add(&mut self.killed_ms[kind], time);
            }
            self.fetch_failures += attempt.fetch_failures;
            let fetches = attempt.fetch_failures;
            self.failed_by_fetch_failures += u32::from(failed && fetches >= FETCH_FAILURES);
            if !is_speculative(task, number, attempt) {
                continue;
            }
            self.speculative[kind] += 1;
            self.speculative_succeeded[kind] += u32::from(task.stage == Stage::Complete(number));
            if failed || killed {
                self.speculative_wasted[kind] += 1;
                add(&mut self.speculative_wasted_ms[kind], time);
            }
        }
    }
}

/// Whether an earlier attempt ran when this one was launched. The end of an attempt is a time of its node:
/// where clocks differ by more than the pause before a retry, a retry may count as well.
fn is_speculative(task: &Task, number: u32, attempt: &Attempt) -> bool {
    let mut earlier = task.attempts.iter().take(number as usize);
    earlier.any(|earlier| earlier.finish_ms == 0 || earlier.finish_ms > attempt.launched.0)
}

fn time_of(attempt: &Attempt) -> i64 {
    match attempt.start_ms {
        0 => 0,
        start => attempt.finish_ms.saturating_sub(start).max(0),
    }
}

fn add(sum: &mut i64, value: i64) {
    *sum = sum.saturating_add(value);
}
