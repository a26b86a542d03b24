//! A reduce: outputs of maps, fetched and merged, through the reducer, into the job's output.
//! Spec: mapreduce/04 §4.6, §4.9.

use std::time::{SystemTime, UNIX_EPOCH};

use corona_hadoop::writables::Phase;
use corona_mapreduce::native::{KeyOrder, Step};

use crate::builtin;
use crate::child::Work;
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::fetch::shuffle;
use crate::ifile::IFileError;
use crate::map::write_record;
use crate::order::compare;
use crate::program::of_pipe;
use crate::run::RecordStream;
use crate::segment::merged;
use crate::spill::Collector;
use crate::status::Status;
use crate::vint;

/// Runs a reduce of a job with so many maps.
pub(crate) fn run(work: &Work<'_>, partition: i32, maps: usize) -> Result<(), TaskError> {
    let mut events = work.map_events()?;
    let (job, settings) = (work.attempt.job().to_string(), &work.settings.shuffle);
    let (scratch, counters, status) = (&work.scratch, &*work.counters, &*work.status);
    let segments =
        shuffle(&job, partition, maps, &mut events, settings.clone(), scratch, counters, status)?;
    status.change_reduce(|reduce| reduce.shuffle_finish_time_ms = now_ms());
    status.set_phase(Phase::Sort);
    status.set_progress(1.0 / 3.0);
    status.set_text("reduce > sort");
    work.report()?;
    let run = merged(segments, &settings.data, scratch, counters)?;
    status.change_reduce(|reduce| reduce.sort_finish_time_ms = now_ms());
    status.set_phase(Phase::Reduce);
    status.set_progress(2.0 / 3.0);
    status.set_text("reduce > reduce");
    work.report()?;
    let (key, counts, order) = (Vec::new(), Counts::default(), &*settings.data.order);
    let mut input = Groups { run, key, counts, order, counters, status };
    let keys_alone = matches!(work.job.reducer, Step::Sort);
    let mut output = work.text_output(partition, keys_alone, Count::ReduceOutputRecords)?;
    through(work, &mut input, &mut output)?;
    input.count();
    output.close()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Sends the records through the reducer.
fn through(
    work: &Work<'_>,
    input: &mut Groups<'_>,
    to: &mut dyn Collector,
) -> Result<(), TaskError> {
    match &work.job.reducer {
        Step::Program(words) => {
            let (programs, format) = (&work.programs, &work.job.reduce_lines);
            programs.run(words, format, &work.counters, &work.status, to, |pipe| {
                while input.advance()? {
                    write_record(pipe, format, input).map_err(of_pipe)?;
                }
                Ok(())
            })
        }
        Step::Words => builtin::sum(input, to, &mut || {}),
        _ => {
            while input.advance()? {
                to.collect(vint::text(input.key()), vint::text(input.value()))?;
            }
            Ok(())
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    records: u64,
    groups: u64,
    bytes: u64,
}

/// The records of a reduce, and their counters.
struct Groups<'a> {
    run: Box<dyn RecordStream + Send>,
    key: Vec<u8>,
    counts: Counts,
    order: &'a KeyOrder,
    counters: &'a TaskCounters,
    status: &'a Status,
}

impl Groups<'_> {
    fn count(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        self.counters.add(Count::ReduceInputRecords, counts.records);
        self.counters.add(Count::ReduceInputGroups, counts.groups);
        self.counters.add(Count::ReduceInputBytes, counts.bytes);
        let done = self.counters.get(Count::ReduceInputBytes) as f32;
        let all = (self.counters.get(Count::ReduceShuffleBytes) as f32).max(1.0);
        self.status.set_progress(2.0 / 3.0 + (done / all).min(1.0) / 3.0);
    }
}

impl RecordStream for Groups<'_> {
    fn advance(&mut self) -> Result<bool, IFileError> {
        if !self.run.advance()? {
            return Ok(false);
        }
        let key = self.run.key();
        let is_first =
            self.counters.get(Count::ReduceInputRecords) == 0 && self.counts.records == 0;
        self.counts.bytes += (key.len() + self.run.value().len()) as u64;
        self.counts.records += 1;
        let is_same = |one: &[u8], other: &[u8]| match self.order {
            KeyOrder::Bytes => one == other,
            order => compare(order, vint::text(one), vint::text(other)).is_eq(),
        };
        if is_first || !is_same(&self.key, key) {
            self.counts.groups += 1;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        if self.counts.records == 1024 {
            self.count();
        }
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.run.key()
    }

    fn value(&self) -> &[u8] {
        self.run.value()
    }
}
