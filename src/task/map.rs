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
use crate::files::InputFile;
use crate::lines::{LineError, SplitLines, TextLine, first_byte};
use crate::output::RecordOutput;
use crate::partition::Partitioner;
use crate::program::{Program, Programs, of_pipe};
use crate::run::RecordStream;
use crate::sequence_file::{Header, MOST_HEADER_BYTES, SequenceError, SequenceRecords};
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

/// Where the records of the input come from.
enum Source {
    Lines(SplitLines<Box<dyn Read + Send>>),
    Sequence { records: Box<SequenceRecords<InputFile>>, as_java: bool, line: Vec<u8> },
}

/// A record of the input.
#[derive(Clone, Copy)]
pub(crate) struct InputRecord<'a> {
    /// Where the file has it.
    place: u64,
    /// Its text: a line, or key and value with a tab between.
    pub(crate) line: &'a [u8],
    /// Where the input has keys of its own.
    own: Option<OwnRecord<'a>>,
}

/// A record of a sequence file.
#[derive(Clone, Copy)]
struct OwnRecord<'a> {
    /// The length of the key's text.
    key_text: usize,
    /// As the file has them.
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> InputRecord<'a> {
    /// Its key and its value.
    fn pair(&self, format: &InputFormat) -> (&'a [u8], &'a [u8]) {
        match (format, self.own) {
            (InputFormat::KeyValue { separator }, _) => split(self.line, separator, 1),
            (_, Some(own)) => (
                self.line.get(..own.key_text).unwrap_or_default(),
                self.line.get(own.key_text + 1..).unwrap_or_default(),
            ),
            (_, None) => (&[], self.line),
        }
    }

    /// Writes down that it is left out.
    fn write(&self, skipped: &mut Skipped<'_>) -> Result<(), TaskError> {
        if let Some(own) = self.own {
            return skipped.write(own.key, own.value);
        }
        let mut value = Vec::new();
        vint::put_text(self.line, &mut value);
        skipped.write(&self.place.to_be_bytes(), &value)
    }
}

/// What a source has next.
enum Next<'a> {
    /// A record, and the bytes of the file that it took.
    Record(InputRecord<'a>, usize),
    /// A record that is larger than a task may hold.
    TooLong(TaskError),
    /// Nothing.
    End,
}

impl Source {
    fn next(&mut self, path: &str) -> Result<Next<'_>, TaskError> {
        match self {
            Source::Lines(lines) => {
                let place = lines.position();
                let wrong = |error| TaskError::Input { path: path.to_owned(), error };
                match lines.next_line() {
                    Ok(Some(TextLine { text: line, bytes })) => {
                        Ok(Next::Record(InputRecord { place, line, own: None }, bytes))
                    }
                    Ok(None) => Ok(Next::End),
                    Err(error @ LineError::TooLong { .. }) => Ok(Next::TooLong(wrong(error))),
                    Err(error) => Err(wrong(error)),
                }
            }
            Source::Sequence { records, as_java, line } => {
                let place = records.position();
                let wrong = |error| TaskError::Sequence { path: path.to_owned(), error };
                match records.advance() {
                    Ok(true) => {}
                    Ok(false) => return Ok(Next::End),
                    Err(error @ SequenceError::TooLong { .. }) => {
                        return Ok(Next::TooLong(wrong(error)));
                    }
                    Err(error) => return Err(wrong(error)),
                }
                let key_text = records.put_line(*as_java, line).map_err(wrong)?;
                let (key, value) = records.record();
                let own = Some(OwnRecord { key_text, key, value });
                let bytes = records.position() - place;
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                Ok(Next::Record(InputRecord { place, line, own }, bytes))
            }
        }
    }

    /// Leaves out what was too long.
    fn leave_out(&mut self, path: &str) -> Result<(), TaskError> {
        match self {
            Source::Lines(lines) => lines.skip_line().map_err(|error| TaskError::Input {
                path: path.to_owned(),
                error: LineError::Io(error),
            }),
            // It is read to its end when it is found.
            Source::Sequence { .. } => Ok(()),
        }
    }
}

fn split_lines(
    work: &Work<'_>,
    split: &FileSplit,
    version: Option<&FileVersion>,
    max_bytes: usize,
) -> Result<SplitLines<Box<dyn Read + Send>>, TaskError> {
    let codec = work.job.input_codecs.of_file(&split.path);
    let codec = codec.map_err(|why| TaskError::Task(format!("{}: {why}", split.path)))?;
    let (start, length) = match codec {
        // A compressed file is one split.
        Some(_) => (0, None),
        None => (split.start.max(0).unsigned_abs(), Some(split.length.max(0).unsigned_abs())),
    };
    let file = open(work, split, first_byte(start), version)?;
    let end = length.map(|length| start.saturating_add(length));
    let lines = SplitLines::new(codec::input_reader(codec, file), start, end, max_bytes);
    lines.map_err(|error| TaskError::Input { path: split.path.clone(), error })
}

fn sequence_records(
    work: &Work<'_>,
    split: &FileSplit,
    version: Option<&FileVersion>,
) -> Result<SequenceRecords<InputFile>, TaskError> {
    let wrong = |error| TaskError::Sequence { path: split.path.clone(), error };
    let mut file = open(work, split, 0, version)?;
    file.seek(0, MOST_HEADER_BYTES as u64);
    let header = Header::read(&mut file).map_err(wrong)?;
    let start = split.start.max(0).unsigned_abs();
    let end = start.saturating_add(split.length.max(0).unsigned_abs());
    // A record may reach out of the split, so nothing is known of where reading ends.
    file.seek(start.max(header.bytes), u64::MAX);
    let most = work.settings.max_record_bytes;
    SequenceRecords::new(file, header, start, end, most).map_err(wrong)
}

fn open(
    work: &Work<'_>,
    split: &FileSplit,
    from: u64,
    version: Option<&FileVersion>,
) -> Result<InputFile, TaskError> {
    Ok(match version {
        Some(version) => work.files.open_version(&split.path, from, version)?,
        None => work.files.open(&split.path, from)?,
    })
}

/// The records of the input, and their counters.
pub(crate) struct Input<'a> {
    source: Source,
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
        // A line that is left out must not fill the memory, or fail the task, before.
        let lines_left_out = match work.job.input_format {
            // The setting is about lines: a record that is too large fails the task.
            InputFormat::Sequence { .. } => None,
            _ => work.job.line_bytes,
        };
        let left_out_bytes = lines_left_out.unwrap_or(usize::MAX);
        let max_bytes = work.settings.max_record_bytes.min(left_out_bytes);
        let mut skipped = Skipped::of(work);
        let source = match work.job.input_format {
            InputFormat::Sequence { as_java } => {
                let records = sequence_records(work, split, version)?;
                let header = records.header();
                skipped = skipped.map(|it| it.with_classes(&header.key_class, &header.value_class));
                Source::Sequence { records: Box::new(records), as_java, line: Vec::new() }
            }
            _ => Source::Lines(split_lines(work, split, version, max_bytes)?),
        };
        let path = split.path.clone();
        let (counters, status) = (&*work.counters, &*work.status);
        let skips_large = work.settings.skips_bad_records;
        Ok(Input {
            source,
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
        self.status.set_progress(match &self.source {
            Source::Lines(lines) => lines.progress(),
            Source::Sequence { records, .. } => records.progress(),
        });
    }

    /// Hands each record to `to`.
    pub(crate) fn each(
        &mut self,
        mut to: impl FnMut(InputRecord<'_>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        loop {
            if self.skipped.as_ref().is_some_and(Skipped::is_over) {
                self.count();
                return Ok(());
            }
            let (record, bytes) = match self.source.next(&self.path)? {
                Next::Record(record, bytes) => (record, bytes),
                Next::TooLong(_) if self.skips_large || self.left_out_bytes <= self.max_bytes => {
                    self.source.leave_out(&self.path)?;
                    let is_counted = self.left_out_bytes > self.max_bytes;
                    self.counters.add(Count::MapSkippedRecords, u64::from(is_counted));
                    continue;
                }
                Next::TooLong(error) => return Err(error),
                Next::End => {
                    self.count();
                    if let Some(skipped) = &mut self.skipped {
                        skipped.end()?;
                    }
                    return Ok(());
                }
            };
            if bytes >= self.left_out_bytes && record.own.is_none() {
                self.counters.progressed();
                continue;
            }
            if let Some(skipped) = &mut self.skipped
                && !skipped.keeps_next()?
            {
                record.write(skipped)?;
                self.counters.add(Count::MapSkippedRecords, 1);
                continue;
            }
            self.records += 1;
            self.bytes += bytes as u64;
            to(record)?;
            if self.counters.progressed() || self.records >= 1024 {
                self.count();
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

fn map_only_output<'a>(work: &'a Work<'_>, partition: i32) -> Result<RecordOutput<'a>, TaskError> {
    let bare_keys = matches!(work.job.mapper, Step::Sort | Step::Grep(_));
    work.record_output(partition, bare_keys, Count::MapOutputRecords)
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
                input.each(|record| {
                    write_input(pipe, record, &work.job.input_format, format)
                        .and_then(|()| pipe.write_all(b"\n"))
                        // Records that are held back are suspect if the program fails.
                        .and_then(|()| if skips { pipe.flush() } else { Ok(()) })
                        .map_err(of_pipe)
                })
            })
        }
        step => {
            let mapper = Mapper::new(step, &work.job.map_lines);
            input.each(|record| match (&work.job.input_format, step) {
                (
                    format @ (InputFormat::KeyValue { .. } | InputFormat::Sequence { .. }),
                    Step::Cat,
                ) => {
                    let (key, value) = record.pair(format);
                    to.collect(key, value)
                }
                _ => mapper.map(record.line, to),
            })?;
            if work.settings.counts_records {
                let records = work.counters.get(Count::MapInputRecords);
                work.count_processed(GROUP, PROCESSED_RECORDS, records);
            }
            Ok(())
        }
    }
}

/// Writes a record of the input for the mapper, as its format has it.
fn write_input(
    pipe: &mut dyn Write,
    record: InputRecord<'_>,
    input: &InputFormat,
    format: &LineFormat,
) -> std::io::Result<()> {
    let (key, value) = record.pair(input);
    if !format.ignores_key {
        match input {
            InputFormat::Placed => write!(pipe, "{}", record.place)?,
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
