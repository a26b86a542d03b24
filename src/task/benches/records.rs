//! How fast native tasks sort and count words, against the shell on the same data and memory.
//!
//!     cargo bench -p corona-task --bench records              256 MiB, 64 MiB of memory
//!     cargo bench -p corona-task --bench records -- 1024 256  MiB of input, MiB of memory
//!
//! One map reads a file and sorts it by `io.sort.mb`, a reduce reads what it leaves and writes text. The
//! shell runs `sort` with the same memory, `--parallel=2` and `LC_ALL=C`.

#![expect(clippy::print_stdout, reason = "the result is for a person")]
#![allow(missing_docs)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corona_mapreduce::native::{LineFormat, Partitioning, Step};
use corona_model::random::Random;
use corona_task::builtin::{Mapper, Sum};
use corona_task::counters::TaskCounters;
use corona_task::error::TaskError;
use corona_task::lines::SplitLines;
use corona_task::partition::Partitioner;
use corona_task::run::RecordStream;
use corona_task::scratch::Scratch;
use corona_task::segment::{DataSettings, DiskPart, Segment, merged};
use corona_task::spill::{Collector, Combiner, Combining, MapOutput, SpillSettings};

fn main() {
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let sizes: Vec<u64> = words.map(|word| word.parse().expect("a number of MiB")).collect();
    let (input, memory) = match sizes[..] {
        [input, memory] => (input, memory),
        _ => (256, 64),
    };
    let dir = tempfile::tempdir().expect("a directory");
    compare("sort", &Step::Sort, dir.path(), input, memory);
    compare("word count", &Step::Words, dir.path(), input, memory);
}

fn compare(what: &str, step: &Step, dir: &Path, input_mib: u64, memory_mib: u64) {
    let input = dir.join("input");
    let records = match step {
        Step::Words => write_text(&input, input_mib << 20),
        _ => write_records(&input, input_mib << 20),
    };
    let native = native(step, dir, &input, memory_mib << 20);
    let output = dir.join("shell");
    let sort = format!("LC_ALL=C sort --parallel=2 -S {memory_mib}M -T {}", dir.display());
    let line = match step {
        Step::Words => format!(
            "tr -s ' ' '\\n' < {} | {sort} | uniq -c > {}",
            input.display(),
            output.display()
        ),
        _ => format!("{sort} {} > {}", input.display(), output.display()),
    };
    let began = Instant::now();
    let status = Command::new("sh").args(["-c", &line]).status().expect("a shell");
    assert!(status.success(), "{line}");
    let shell = began.elapsed();
    println!(
        "{what:>10}: {input_mib} MiB, {records} records, {memory_mib} MiB: {:.1} s ({:.0} records/s); the shell {:.1} s; {:.2} of it",
        native.as_secs_f64(),
        records as f64 / native.as_secs_f64(),
        shell.as_secs_f64(),
        native.as_secs_f64() / shell.as_secs_f64(),
    );
}

fn native(step: &Step, dir: &Path, input: &Path, memory: u64) -> Duration {
    let began = Instant::now();
    let scratch = Scratch::new(&[dir.to_owned()], "job_1", "attempt_1");
    let counters = Arc::new(TaskCounters::default());
    let order = Arc::default();
    let data = DataSettings { order, codec: None, factor: 100, max_record_bytes: 64 << 20 };
    let settings = SpillSettings {
        sort_bytes: memory as usize,
        // The map goes on in one half while the other one is written.
        spill_bytes: memory as usize / 2,
        combine_spills: 3,
        reduces: 1,
        data: data.clone(),
    };
    let format = LineFormat {
        input_separator: b"\t".to_vec(),
        output_separator: b"\t".to_vec(),
        key_fields: 1,
        ignores_key: true,
    };
    let combining = match step {
        Step::Words => Combining::Sums,
        _ => Combining::No,
    };
    let partitioner = Partitioner::new(Partitioning::Hash, 1);
    let mut output =
        MapOutput::new(settings, partitioner, combining, scratch.clone(), counters.clone());
    let mapper = Mapper::new(step, &format);
    let file = File::open(input).expect("the input");
    let mut lines = SplitLines::new(file, 0, None, 64 << 20).expect("lines");
    while let Some(line) = lines.next_line().expect("a line") {
        mapper.map(line.text, &mut output).expect("room for a record");
    }
    let part_bytes = output.finish().expect("an output");
    let path = scratch.place("file.out").expect("a place");
    let part = DiskPart { path, start: 0, part_bytes, is_whole_file: true };
    let mut run = merged(vec![Segment::Disk(part)], &data, &scratch, &counters).expect("a run");
    let file = File::create(dir.join("native")).expect("an output");
    let mut text = Text(BufWriter::with_capacity(256 << 10, file));
    match step {
        Step::Words => Sum.combine(&mut *run, &mut text).expect("sums"),
        _ => write_keys(&mut *run, &mut text),
    }
    text.0.flush().expect("an output");
    began.elapsed()
}

fn write_keys(run: &mut dyn RecordStream, text: &mut Text) {
    while run.advance().expect("a record") {
        // The length of the text is one byte before these records.
        text.0.write_all(&run.key()[1..]).and_then(|()| text.0.write_all(b"\n")).expect("room");
    }
}

struct Text(BufWriter<File>);

impl Collector for Text {
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        for part in [key, b"\t", value, b"\n"] {
            self.0.write_all(part).expect("room");
        }
        Ok(())
    }
}

/// Lines of 100 bytes with their ends.
fn write_records(path: &Path, bytes: u64) -> u64 {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file"));
    let mut numbers = Random::new(1);
    let records = bytes / 100;
    for _ in 0..records {
        let (one, other) = (numbers.next(), numbers.next());
        writeln!(out, "{one:016x}{other:016x}{:>67}", "x").expect("room");
    }
    out.flush().expect("room");
    records
}

/// Lines of ten words, some of them often.
fn write_text(path: &Path, bytes: u64) -> u64 {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file"));
    let mut numbers = Random::new(1);
    let (mut written, mut words) = (0, 0);
    while written < bytes {
        let mut line = String::new();
        for _ in 0..10 {
            let spread = 1 << (numbers.next() % 17);
            line.push_str(&format!("w{:x} ", numbers.next() % spread * 7919));
            words += 1;
        }
        line.pop();
        writeln!(out, "{line}").expect("room");
        written += line.len() as u64 + 1;
    }
    out.flush().expect("room");
    words
}
