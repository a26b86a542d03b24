//! A map: the lines of a split, through the mapper, into the output for reduces or into the job's output.
//! Spec: mapreduce/05 §5.2.

use std::io::{Read, Write};
use std::sync::Arc;

use corona_hadoop::io::Reader;
use corona_hadoop::io::formats::Writable;
use corona_hadoop::writables::{FileSplit, FileVersion, Split};
use corona_mapreduce::native::{InputFormat, LineFormat, Step};

use crate::aggregate::Aggregate;
use crate::builtin::{Mapper, split};
use crate::child::Work;
use crate::codec;
use crate::commands;
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::lines::{LineError, SplitLines, first_byte};
use crate::output::TextOutput;
use crate::partition::Partitioner;
use crate::program::{Program, Programs, of_pipe};
use crate::run::RecordStream;
use crate::skipped::{GROUP, PROCESSED_RECORDS, Skipped};
use crate::spill::{Collector, Combiner, Combining, MapOutput};
use crate::status::Status;
use crate::vint;

const FILE_SPLIT: &str = "org.apache.hadoop.mapred.FileSplit";

/// The part of a file that a map reads, and the version of the file if it has one.
pub(crate) fn file_split(
    split: Option<&Split>,
) -> Result<(FileSplit, Option<FileVersion>), TaskError> {
    let wrong = |why: String| Err(TaskError::Task(why));
    let Some(split) = split else { return wrong("the map came without a split".to_owned()) };
    if split.class != FILE_SPLIT {
        return wrong(format!("native tasks do not read splits of class {}", split.class));
    }
    let mut reader = Reader::new(&split.data);
    let read = FileSplit::decode(&mut reader).and_then(|file| {
        let version = (!reader.rest().is_empty()).then(|| FileVersion::decode(&mut reader));
        Ok((file, version.transpose()?))
    });
    read.map_err(|error| TaskError::Task(format!("the split cannot be read: {error}")))
}

/// The lines of the input, and their counters.
pub(crate) struct Input<'a> {
    lines: SplitLines<Box<dyn Read + Send>>,
    path: String,
    counters: &'a TaskCounters,
    status: &'a Status,
    records: u64,
    bytes: u64,
    skips_large: bool,
    /// Lines of so many bytes or more, their ends included, are left out as if they were not there.
    left_out_bytes: usize,
    /// Longer lines than this are not read.
    max_bytes: usize,
    skipped: Option<Skipped<'a>>,
}

impl<'a> Input<'a> {
    pub(crate) fn open(
        work: &'a Work<'_>,
        split: &FileSplit,
        version: Option<&FileVersion>,
    ) -> Result<Input<'a>, TaskError> {
        let codec = work.job.input_codecs.of_file(&split.path);
        let codec = codec.map_err(|why| TaskError::Task(format!("{}: {why}", split.path)))?;
        let (start, length) = match codec {
            // A compressed file is one split.
            Some(_) => (0, None),
            None => (split.start.max(0).unsigned_abs(), Some(split.length.max(0).unsigned_abs())),
        };
        let file = match version {
            Some(version) => work.files.open_version(&split.path, first_byte(start), version)?,
            None => work.files.open(&split.path, first_byte(start))?,
        };
        let end = length.map(|length| start.saturating_add(length));
        let file = codec::input_reader(codec, file);
        // A line that is left out must not fill the memory, or fail the task, before.
        let left_out_bytes = work.job.line_bytes.unwrap_or(usize::MAX);
        let max_bytes = work.settings.max_record_bytes.min(left_out_bytes);
        let lines = SplitLines::new(file, start, end, max_bytes);
        let path = split.path.clone();
        let lines = lines.map_err(|error| TaskError::Input { path: path.clone(), error })?;
        let (counters, status) = (&*work.counters, &*work.status);
        let skips_large = work.settings.skips_bad_records;
        let skipped = Skipped::of(work);
        Ok(Input {
            lines,
            path,
            counters,
            status,
            records: 0,
            bytes: 0,
            skips_large,
            left_out_bytes,
            max_bytes,
            skipped,
        })
    }

    fn count(&mut self) {
        self.counters.add(Count::MapInputRecords, std::mem::take(&mut self.records));
        self.counters.add(Count::MapInputBytes, std::mem::take(&mut self.bytes));
        self.status.set_progress(self.lines.progress());
    }

    /// Hands each line to `to`, with its place in the file.
    pub(crate) fn each(
        &mut self,
        mut to: impl FnMut(u64, &[u8]) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        loop {
            if self.skipped.as_ref().is_some_and(Skipped::is_over) {
                self.count();
                return Ok(());
            }
            let position = self.lines.position();
            let line = match self.lines.next_line() {
                Err(LineError::TooLong { .. })
                    if self.skips_large || self.left_out_bytes <= self.max_bytes =>
                {
                    let skipped = self.lines.skip_line().map_err(LineError::Io);
                    skipped.map_err(|error| TaskError::Input { path: self.path.clone(), error })?;
                    let is_counted = self.left_out_bytes > self.max_bytes;
                    self.counters.add(Count::MapSkippedRecords, u64::from(is_counted));
                    continue;
                }
                Ok(Some(line)) if line.bytes >= self.left_out_bytes => {
                    self.counters.progressed();
                    continue;
                }
                line => line,
            };
            let line = line
                .map_err(|error: LineError| TaskError::Input { path: self.path.clone(), error });
            match line? {
                Some(line) => {
                    if let Some(skipped) = &mut self.skipped
                        && !skipped.keeps_next()?
                    {
                        let mut value = Vec::new();
                        vint::put_text(line.text, &mut value);
                        skipped.write(&position.to_be_bytes(), &value)?;
                        self.counters.add(Count::MapSkippedRecords, 1);
                        continue;
                    }
                    self.records += 1;
                    self.bytes += line.bytes as u64;
                    to(position, line.text)?;
                    if self.counters.progressed() || self.records >= 1024 {
                        self.count();
                    }
                }
                None => {
                    self.count();
                    if let Some(skipped) = &mut self.skipped {
                        skipped.end()?;
                    }
                    return Ok(());
                }
            }
        }
    }
}

/// Runs a map.
pub(crate) fn run(work: &Work<'_>, partition: i32, split: Option<&Split>) -> Result<(), TaskError> {
    let (split, version) = file_split(split)?;
    let mut input = Input::open(work, &split, version.as_ref())?;
    if let Step::Commands(list) = &work.job.mapper {
        return commands::run(work, partition, list, &mut input);
    }
    if work.job.reduces == 0 {
        let mut output = map_only_output(work, partition)?;
        through(work, &mut input, &mut output)?;
        return output.close();
    }
    let partitioner = Partitioner::new(work.job.partitioning.clone(), work.job.reduces);
    let combining = combining(work);
    let mut output = MapOutput::new(
        work.settings.spill.clone(),
        partitioner,
        combining,
        work.scratch.clone(),
        work.counters.clone(),
    );
    through(work, &mut input, &mut output)?;
    work.status.set_progress(1.0);
    let bytes = output.finish()?;
    work.status.set_output_bytes(bytes);
    Ok(())
}

fn map_only_output<'a>(work: &'a Work<'_>, partition: i32) -> Result<TextOutput<'a>, TaskError> {
    let bare_keys = matches!(work.job.mapper, Step::Sort | Step::Grep(_));
    work.text_output(partition, bare_keys, Count::MapOutputRecords)
}

/// Sends the input through the mapper.
fn through(
    work: &Work<'_>,
    input: &mut Input<'_>,
    to: &mut dyn Collector,
) -> Result<(), TaskError> {
    match &work.job.mapper {
        Step::Program(words) => {
            let (programs, format) = (&work.programs, &work.job.map_lines);
            let skips = input.skipped.is_some();
            let words = programs.profiled(words);
            let program = Program { step: "map", words: &words };
            programs.run(program, format, &work.counters, &work.status, to, |pipe| {
                input.each(|place, line| {
                    write_input(pipe, place, line, &work.job.input_format, format)
                        .and_then(|()| pipe.write_all(b"\n"))
                        // Records that are held back are suspect if the program fails.
                        .and_then(|()| if skips { pipe.flush() } else { Ok(()) })
                        .map_err(of_pipe)
                })
            })
        }
        step => {
            let mapper = Mapper::new(step, &work.job.map_lines);
            input.each(|_, line| match (&work.job.input_format, step) {
                (InputFormat::KeyValue { separator }, Step::Cat) => {
                    let (key, value) = split(line, separator, 1);
                    to.collect(key, value)
                }
                _ => mapper.map(line, to),
            })?;
            if work.settings.counts_records {
                let records = work.counters.get(Count::MapInputRecords);
                work.count_processed(GROUP, PROCESSED_RECORDS, records);
            }
            Ok(())
        }
    }
}

/// Writes a line of the input for the mapper, as its format has it.
fn write_input(
    pipe: &mut dyn Write,
    place: u64,
    line: &[u8],
    input: &InputFormat,
    format: &LineFormat,
) -> std::io::Result<()> {
    let (key, value) = match input {
        InputFormat::KeyValue { separator } => split(line, separator, 1),
        InputFormat::Lines | InputFormat::Placed => (&[][..], line),
    };
    if !format.ignores_key {
        match input {
            InputFormat::Placed => write!(pipe, "{place}")?,
            _ => pipe.write_all(key)?,
        }
        pipe.write_all(&format.input_separator)?;
    }
    pipe.write_all(value)
}

fn combining(work: &Work<'_>) -> Combining {
    match &work.job.combiner {
        None => Combining::No,
        Some(Step::Program(words)) => Combining::By(Box::new(ProgramCombiner {
            programs: work.programs.clone(),
            words: words.clone(),
            format: work.job.combine_lines.clone(),
            counters: work.counters.clone(),
            status: work.status.clone(),
        })),
        Some(Step::Aggregate) => Combining::By(Box::new(Aggregate)),
        Some(_) => Combining::Sums,
    }
}

/// A program that gets the sorted records of a part and gives fewer, in the same order.
struct ProgramCombiner {
    programs: Arc<Programs>,
    words: Vec<String>,
    format: LineFormat,
    counters: Arc<TaskCounters>,
    status: Arc<Status>,
}

impl Combiner for ProgramCombiner {
    fn combine(
        &mut self,
        run: &mut (dyn RecordStream + Send),
        to: &mut dyn Collector,
    ) -> Result<(), TaskError> {
        let ProgramCombiner { programs, words, format, counters, status } = self;
        let program = Program { step: "combine", words };
        programs.run(program, format, counters, status, to, |pipe| {
            while run.advance()? {
                write_record(pipe, format, run).map_err(of_pipe)?;
            }
            Ok(())
        })
    }
}

/// Writes a record as a line for a program.
pub(crate) fn write_record(
    pipe: &mut dyn Write,
    format: &LineFormat,
    run: &(dyn RecordStream + Send),
) -> std::io::Result<()> {
    if !format.ignores_key {
        pipe.write_all(vint::text(run.key()))?;
        pipe.write_all(&format.input_separator)?;
    }
    pipe.write_all(vint::text(run.value()))?;
    pipe.write_all(b"\n")
}
