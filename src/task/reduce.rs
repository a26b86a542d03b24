//! A reduce: outputs of maps, fetched and merged, through the reducer, into the job's output.
//! Spec: mapreduce/04 §4.6, §4.9.

use std::io;

use corona_hadoop::writables::Phase;
use corona_mapreduce::native::{KeyOrder, Step};
use corona_process::now_ms;

use crate::aggregate;
use crate::builtin;
use crate::child::Work;
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::fetch::shuffle;
use crate::ifile::IFileError;
use crate::map::write_record;
use crate::order::compare;
use crate::program::{Program, of_pipe};
use crate::run::RecordStream;
use crate::segment::merged;
use crate::skipped::{GROUP, PROCESSED_GROUPS, Skipped};
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
    let skipped = Skipped::of(work);
    let (has_group, is_left_out) = (false, false);
    let mut input =
        Groups { run, key, has_group, counts, order, counters, status, skipped, is_left_out };
    let bare_keys = matches!(work.job.reducer, Step::Sort);
    let mut output = work.record_output(partition, bare_keys, Count::ReduceOutputRecords)?;
    through(work, &mut input, &mut output)?;
    input.count();
    if work.settings.counts_groups && !matches!(work.job.reducer, Step::Program(_)) {
        let groups = counters.get(Count::ReduceInputGroups);
        work.count_processed(GROUP, PROCESSED_GROUPS, groups);
    }
    output.close()
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
            let words = programs.profiled(words);
            let mut has_record = input.advance()?;
            // As in the original, the program runs without records, too, and its output is dropped.
            let mut dropped = Dropped { counters: &work.counters, records: 0 };
            let to: &mut dyn Collector = if has_record { &mut *to } else { &mut dropped };
            let program = Program { step: "reduce", words: &words };
            programs.run(program, format, &work.counters, &work.status, to, |pipe| {
                let skips = input.skipped.is_some();
                while has_record {
                    write_record(pipe, format, input).map_err(of_pipe)?;
                    if skips {
                        // Records that are held back are suspect if the program fails.
                        pipe.flush().map_err(of_pipe)?;
                    }
                    has_record = input.advance()?;
                }
                Ok(())
            })?;
            if dropped.records > 0 {
                let lines = dropped.records;
                tracing::warn!(
                    lines,
                    "the reduce got no records; dropped the output of its program"
                );
            }
            Ok(())
        }
        Step::Words => builtin::sum(input, to),
        Step::Aggregate => aggregate::reduce(input, to),
        _ => {
            while input.advance()? {
                to.collect(vint::text(input.key()), vint::text(input.value()))?;
            }
            Ok(())
        }
    }
}

/// Takes the records of a program that got none.
struct Dropped<'a> {
    counters: &'a TaskCounters,
    records: u64,
}

impl Collector for Dropped<'_> {
    fn collect(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), TaskError> {
        self.counters.progressed();
        self.records += 1;
        Ok(())
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
    /// The key of the group.
    key: Vec<u8>,
    has_group: bool,
    counts: Counts,
    order: &'a KeyOrder,
    counters: &'a TaskCounters,
    status: &'a Status,
    skipped: Option<Skipped<'a>>,
    /// Whether the group of the record is left out.
    is_left_out: bool,
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

impl Groups<'_> {
    /// Whether the record is the first one of its key.
    fn begins_group(&self) -> bool {
        let key = self.run.key();
        let is_same = match self.order {
            KeyOrder::Bytes => self.key == key,
            order => compare(order, vint::text(&self.key), vint::text(key)).is_eq(),
        };
        !self.has_group || !is_same
    }

    fn enter_group(&mut self) -> Result<(), TaskError> {
        self.has_group = true;
        self.key.clear();
        self.key.extend_from_slice(self.run.key());
        if let Some(skipped) = &mut self.skipped {
            self.is_left_out = !skipped.keeps_next()?;
        }
        match self.is_left_out {
            true => self.counters.add(Count::ReduceSkippedGroups, 1),
            false => self.counts.groups += 1,
        }
        Ok(())
    }

    fn leave_out(&mut self) -> Result<(), TaskError> {
        self.counters.add(Count::ReduceSkippedRecords, 1);
        match &mut self.skipped {
            Some(skipped) => skipped.write(self.run.key(), self.run.value()),
            None => Ok(()),
        }
    }
}

impl RecordStream for Groups<'_> {
    fn advance(&mut self) -> Result<bool, IFileError> {
        let failed = |error: TaskError| IFileError::Io(io::Error::other(error));
        while self.run.advance()? {
            if self.begins_group() {
                if self.skipped.as_ref().is_some_and(Skipped::is_over) {
                    return Ok(false);
                }
                self.enter_group().map_err(failed)?;
            }
            if self.is_left_out {
                self.leave_out().map_err(failed)?;
                continue;
            }
            self.counts.bytes += (self.run.key().len() + self.run.value().len()) as u64;
            self.counts.records += 1;
            if self.counters.progressed() || self.counts.records >= 1024 {
                self.count();
            }
            return Ok(true);
        }
        if let Some(skipped) = &mut self.skipped {
            skipped.end().map_err(failed)?;
        }
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        self.run.key()
    }

    fn value(&self) -> &[u8] {
        self.run.value()
    }
}
