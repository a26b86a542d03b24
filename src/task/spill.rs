//! The output of a map: collected in bounded memory, spilled in sorted files when that is full, and
//! merged into `file.out` with its index, as reduces of both kinds fetch it. Spec: mapreduce/04 §4.9.
//!
//! A thread sorts and writes a spill, while the map continues in the memory that the records of the
//! spill leave.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use corona_hadoop::writables::{IndexRecord, SpillIndex};

use crate::builtin::{Sum, number, too_large};
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::fetch::copy;
use crate::ifile::{self, Lengths};
use crate::partition::Partitioner;
use crate::run::RecordStream;
use crate::scratch::Scratch;
use crate::segment::{DataSettings, DiskPart, Segment, merged};
use crate::sort::{Added, SortBuffer};
use crate::vint;

/// Takes records: the contents of key and value.
pub trait Collector: Send {
    /// Takes one.
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError>;
}

/// Makes fewer records of sorted ones.
pub trait Combiner: Send {
    /// Combines the records of a part.
    fn combine(
        &mut self,
        run: &mut (dyn RecordStream + Send),
        to: &mut dyn Collector,
    ) -> Result<(), TaskError>;
}

/// How records of a map are combined before they are written.
pub enum Combining {
    /// They are not.
    No,
    /// The numbers of each key are summed as they come: one record of each key is sorted.
    Sums,
    /// The sorted records of each spill go through a combiner.
    By(Box<dyn Combiner>),
}

/// How the output of a map is sorted and spilled.
#[derive(Clone, Debug)]
pub struct SpillSettings {
    /// Memory for records and their entries, in bytes.
    pub sort_bytes: usize,
    /// How much of it is filled before it is spilled.
    pub spill_bytes: usize,
    /// The number of spills from which on they are combined again.
    pub combine_spills: usize,
    /// Parts of the output.
    pub reduces: u32,
    /// How the data is written.
    pub data: DataSettings,
}

/// A sorted file with a part for each reduce.
#[derive(Debug)]
struct Spill {
    path: PathBuf,
    index: SpillIndex,
}

/// Records that are reported to the counters at a time.
const COUNT_EVERY: u64 = 1024;

/// Collects the output of a map.
pub struct MapOutput {
    buffer: SortBuffer,
    settings: SpillSettings,
    partitioner: Partitioner,
    /// Whether the numbers of each key are summed as they come.
    sums: bool,
    counters: Arc<TaskCounters>,
    spiller: Spiller,
    records: u64,
    bytes: u64,
}

impl std::fmt::Debug for MapOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapOutput").field("records", &self.records).finish_non_exhaustive()
    }
}

/// The owner of the spills.
enum Spiller {
    /// The thread of the map.
    Idle(Spills),
    /// A thread that writes the next one.
    Busy(JoinHandle<Result<Spills, TaskError>>),
    /// None: a spill failed, and the map fails with it.
    Failed,
}

impl Collector for MapOutput {
    #[inline]
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        let partition = self.partitioner.of(key);
        self.records += 1;
        self.bytes += (text_bytes(key) + text_bytes(value)) as u64;
        if self.counters.progressed() || self.records >= COUNT_EVERY {
            self.count();
        }
        if self.buffer.used() >= self.settings.spill_bytes {
            self.spill()?;
        }
        match self.add(partition, key, value)? {
            true => Ok(()),
            false => self.make_room(partition, key, value),
        }
    }
}

/// Bytes of a text as it is written.
fn text_bytes(text: &[u8]) -> usize {
    text.len()
        + if text.len() < 0x80 {
            1
        } else {
            vint::size(i64::try_from(text.len()).unwrap_or(i64::MAX))
        }
}

impl MapOutput {
    /// An output without records.
    pub fn new(
        settings: SpillSettings,
        partitioner: Partitioner,
        combining: Combining,
        scratch: Scratch,
        counters: Arc<TaskCounters>,
    ) -> MapOutput {
        let sums = matches!(combining, Combining::Sums);
        let combiner: Option<Box<dyn Combiner>> = match combining {
            Combining::No => None,
            Combining::Sums => Some(Box::new(Sum)),
            Combining::By(combiner) => Some(combiner),
        };
        let spills = Spills {
            settings: settings.clone(),
            scratch,
            counters: counters.clone(),
            combiner,
            files: Vec::new(),
        };
        MapOutput {
            buffer: SortBuffer::new(settings.sort_bytes, settings.data.order.clone()),
            settings,
            partitioner,
            sums,
            counters,
            spiller: Spiller::Idle(spills),
            records: 0,
            bytes: 0,
        }
    }

    fn count(&mut self) {
        self.counters.add(Count::MapOutputRecords, std::mem::take(&mut self.records));
        self.counters.add(Count::MapOutputBytes, std::mem::take(&mut self.bytes));
    }

    /// Adds a record to those in memory. False: it does not fit.
    #[inline]
    fn add(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<bool, TaskError> {
        if !self.sums {
            return Ok(self.buffer.add(partition, key, value));
        }
        match self.buffer.sum(partition, key, number(key, value)?) {
            Added::Yes => Ok(true),
            Added::Full => Ok(false),
            Added::TooLarge => Err(too_large(key)),
        }
    }

    /// Adds a record that does not fit into what is left of the memory.
    #[cold]
    fn make_room(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        // The memory of a spill that is being written may be all that is missing.
        self.settle()?;
        if self.add(partition, key, value)? {
            return Ok(());
        }
        self.spill()?;
        self.settle()?;
        if self.add(partition, key, value)? {
            return Ok(());
        }
        let mut spills = self.take_spills()?;
        spills.write_large(partition, key, value)?;
        self.spiller = Spiller::Idle(spills);
        Ok(())
    }

    /// Has a thread write the records in memory, after those that are being written.
    fn spill(&mut self) -> Result<(), TaskError> {
        let mut spills = self.take_spills()?;
        // The system takes the pages of the full buffer back when it is dropped.
        let room = self.settings.sort_bytes.saturating_sub(self.buffer.used());
        let next = SortBuffer::new(self.settings.sort_bytes, self.settings.data.order.clone());
        let mut full = std::mem::replace(&mut self.buffer, next);
        self.buffer.set_limit(room);
        let thread = thread::Builder::new().name("spill".to_owned());
        let thread = thread.spawn(move || spills.write(&mut full).map(|()| spills));
        self.spiller = Spiller::Busy(thread.map_err(TaskError::local("(threads)"))?);
        Ok(())
    }

    /// Waits for the spill that is being written. Then all memory is there for the next one.
    fn settle(&mut self) -> Result<(), TaskError> {
        self.spiller = Spiller::Idle(self.take_spills()?);
        Ok(())
    }

    /// Takes the spills, once none is being written. Until they are put back the output has failed.
    fn take_spills(&mut self) -> Result<Spills, TaskError> {
        match std::mem::replace(&mut self.spiller, Spiller::Failed) {
            Spiller::Idle(spills) => Ok(spills),
            Spiller::Busy(thread) => {
                let panicked = |_| TaskError::Task("a thread of the task panicked".to_owned());
                let spills = thread.join().map_err(panicked)??;
                self.buffer.set_limit(self.settings.sort_bytes);
                Ok(spills)
            }
            Spiller::Failed => {
                Err(TaskError::Task("the output of the map could not be written".to_owned()))
            }
        }
    }

    /// Writes `file.out` and its index, and returns the bytes of the output.
    pub fn finish(mut self) -> Result<u64, TaskError> {
        self.count();
        let mut spills = self.take_spills()?;
        spills.write(&mut self.buffer)?;
        drop(self.buffer);
        spills.finish()
    }
}

/// The sorted files of a map.
struct Spills {
    settings: SpillSettings,
    scratch: Scratch,
    counters: Arc<TaskCounters>,
    combiner: Option<Box<dyn Combiner>>,
    files: Vec<Spill>,
}

impl Spills {
    /// Sorts records and writes them to a file.
    fn write(&mut self, buffer: &mut SortBuffer) -> Result<(), TaskError> {
        if buffer.is_empty() {
            return Ok(());
        }
        buffer.sort(&|| {
            self.counters.progressed();
        });
        let mut file = SpillWriter::create(&self.next_name(), self)?;
        // Sums are combined already.
        let mut combiner = self.combiner.as_deref_mut().filter(|_| buffer.numbers() == 0);
        let before = self.counters.get(Count::SpilledRecords);
        for partition in 0..self.settings.reduces {
            let mut records = buffer.partition(partition);
            file.part(&mut records, combiner.as_deref_mut(), &self.counters)?;
        }
        if buffer.numbers() > 0 {
            let spilled = self.counters.get(Count::SpilledRecords) - before;
            self.counters.add(Count::CombineInputRecords, buffer.numbers());
            self.counters.add(Count::CombineOutputRecords, spilled);
        }
        self.add(file)
    }

    /// Writes a record that is larger than the memory to a file of its own.
    fn write_large(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        let order = self.settings.data.order.clone();
        let mut single = SortBuffer::new(key.len() + value.len() + 1024, order);
        let limit = self.settings.data.max_record_bytes;
        if key.len() + value.len() > limit || !single.add(partition, key, value) {
            let bytes = (key.len() + value.len()) as u64;
            return Err(ifile::IFileError::TooLarge { bytes, limit }.into());
        }
        let mut file = SpillWriter::create(&self.next_name(), self)?;
        for partition in 0..self.settings.reduces {
            file.part(&mut single.partition(partition), None, &self.counters)?;
        }
        self.add(file)
    }

    fn next_name(&self) -> String {
        format!("spill{}.out", self.files.len())
    }

    fn add(&mut self, file: SpillWriter) -> Result<(), TaskError> {
        let spill = file.finish(&self.counters)?;
        let bytes = spill.index.records.iter().map(|part| part.part_length.unsigned_abs()).sum();
        self.counters.add(Count::MapSpills, 1);
        self.counters.add(Count::MapSpillBytes, bytes);
        self.files.push(spill);
        Ok(())
    }

    fn finish(mut self) -> Result<u64, TaskError> {
        let path = self.scratch.place("file.out")?;
        let output = match self.files.len() {
            1 => {
                let spill = self.files.remove(0);
                self.move_to(&spill, &path)?;
                Spill { path, index: spill.index }
            }
            _ => self.merge()?,
        };
        let bytes = output.index.records.iter().map(|part| part.part_length.unsigned_abs()).sum();
        let index = self.scratch.place("file.out.index")?;
        fs::write(&index, output.index.encode()).map_err(TaskError::local(&index))?;
        Ok(bytes)
    }

    /// Renames the only spill to the output.
    fn move_to(&self, spill: &Spill, path: &PathBuf) -> Result<(), TaskError> {
        let moved = fs::rename(&spill.path, path);
        let moved = match moved {
            // It lies on another disk.
            Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
                self.copy(&spill.path, path).map(|()| self.scratch.remove(&spill.path))
            }
            moved => moved,
        };
        moved.map_err(TaskError::local(path))
    }

    fn copy(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        let (mut from, mut to) = (File::open(from)?, File::create(to)?);
        Ok(copy(&mut from, &mut to, &self.counters)?)
    }

    fn merge(&mut self) -> Result<Spill, TaskError> {
        let combines = self.files.len() >= self.settings.combine_spills;
        let mut combiner = self.combiner.take().filter(|_| combines);
        let mut file = SpillWriter::create("file.out", self)?;
        for partition in 0..self.settings.reduces as usize {
            let segments = self.files.iter().filter_map(|spill| {
                let part = spill.index.records.get(partition)?;
                Some(Segment::Disk(DiskPart {
                    path: spill.path.clone(),
                    start: part.start.unsigned_abs(),
                    part_bytes: part.part_length.unsigned_abs(),
                    is_whole_file: false,
                }))
            });
            let data = &self.settings.data;
            let mut run = merged(segments.collect(), data, &self.scratch, &self.counters)?;
            file.part(&mut *run, combiner.as_deref_mut(), &self.counters)?;
        }
        for spill in self.files.drain(..) {
            self.scratch.remove(&spill.path);
        }
        file.finish(&self.counters)
    }
}

/// Writes a file with a part for each reduce.
struct SpillWriter {
    path: PathBuf,
    file: Option<File>,
    codec: Option<crate::codec::Codec>,
    index: SpillIndex,
    at: u64,
}

impl SpillWriter {
    fn create(name: &str, spills: &Spills) -> Result<SpillWriter, TaskError> {
        let (path, file) = spills.scratch.create(name)?;
        let codec = spills.settings.data.codec;
        Ok(SpillWriter { path, file: Some(file), codec, index: SpillIndex::default(), at: 0 })
    }

    /// Writes the next part.
    fn part(
        &mut self,
        run: &mut (dyn RecordStream + Send),
        combiner: Option<&mut (dyn Combiner + 'static)>,
        counters: &TaskCounters,
    ) -> Result<(), TaskError> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let mut part = PartWriter {
            writer: ifile::Writer::new(file, self.codec),
            path: &self.path,
            key: Vec::new(),
            value: Vec::new(),
            counters,
        };
        match combiner {
            Some(combiner) => {
                // Without records it does not run: a program might write some of its own.
                if run.advance()? {
                    let mut counted = Counted { run, is_at_first: true, records: 0, counters };
                    combiner.combine(&mut counted, &mut part)?;
                    counted.count();
                    counters.add(Count::CombineOutputRecords, part.writer.records());
                }
            }
            None => {
                while run.advance()? {
                    counters.progressed();
                    part.writer
                        .append(run.key(), run.value())
                        .map_err(TaskError::local(&self.path))?;
                }
            }
        }
        counters.add(Count::SpilledRecords, part.writer.records());
        let (file, lengths) = part.writer.finish().map_err(TaskError::local(&self.path))?;
        self.file = Some(file);
        let Lengths { raw, part } = lengths;
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.index.records.push(IndexRecord {
            start: signed(self.at),
            raw_length: signed(raw),
            part_length: signed(part),
        });
        self.at += part;
        Ok(())
    }

    fn finish(self, counters: &TaskCounters) -> Result<Spill, TaskError> {
        if let Some(mut file) = self.file {
            file.flush().map_err(TaskError::local(&self.path))?;
        }
        counters.add(Count::FileWritten, self.at);
        Ok(Spill { path: self.path, index: self.index })
    }
}

/// The part that a combiner writes.
struct PartWriter<'a> {
    writer: ifile::Writer<File>,
    path: &'a PathBuf,
    key: Vec<u8>,
    value: Vec<u8>,
    counters: &'a TaskCounters,
}

impl Collector for PartWriter<'_> {
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        self.key.clear();
        self.value.clear();
        vint::put_text(key, &mut self.key);
        vint::put_text(value, &mut self.value);
        self.counters.progressed();
        self.writer.append(&self.key, &self.value).map_err(TaskError::local(self.path))
    }
}

/// Counts the records that a combiner reads.
struct Counted<'a, 'b> {
    run: &'a mut (dyn RecordStream + Send + 'b),
    /// Whether the stream stands at its first record, which was not read yet.
    is_at_first: bool,
    records: u64,
    counters: &'a TaskCounters,
}

impl Counted<'_, '_> {
    fn count(&mut self) {
        self.counters.add(Count::CombineInputRecords, std::mem::take(&mut self.records));
    }
}

impl RecordStream for Counted<'_, '_> {
    fn advance(&mut self) -> Result<bool, ifile::IFileError> {
        let has_one = std::mem::take(&mut self.is_at_first) || self.run.advance()?;
        self.records += u64::from(has_one);
        if self.counters.progressed() || self.records >= COUNT_EVERY {
            self.count();
        }
        Ok(has_one)
    }

    fn key(&self) -> &[u8] {
        self.run.key()
    }

    fn value(&self) -> &[u8] {
        self.run.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use corona_mapreduce::native::Partitioning;
    use proptest::prelude::*;
    use std::sync::mpsc;
    use std::time::Duration;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    /// Passes records on, and looks for progress with each of them.
    struct Watching(Arc<TaskCounters>);

    impl Combiner for Watching {
        fn combine(
            &mut self,
            run: &mut (dyn RecordStream + Send),
            to: &mut dyn Collector,
        ) -> Result<(), TaskError> {
            // The first one was read to see whether there are any.
            run.advance()?;
            loop {
                self.0.take_progress();
                to.collect(vint::text(run.key()), vint::text(run.value()))?;
                assert!(self.0.take_progress(), "a record that was written");
                if !run.advance()? {
                    return Ok(());
                }
                assert!(self.0.take_progress(), "a record that was read");
            }
        }
    }

    /// A program that writes a record now and then must not look as if it hung.
    #[test]
    fn each_record_is_progress_and_the_first_ones_are_counted_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
        let counters = Arc::new(TaskCounters::default());
        let watching = Box::new(Watching(counters.clone()));
        let partitioner = Partitioner::new(Partitioning::Hash, 2);
        let settings = settings(1 << 20, None);
        let mut map = MapOutput::new(
            settings,
            partitioner,
            Combining::By(watching),
            scratch,
            counters.clone(),
        );
        for number in 1..=5 {
            map.collect(&[b'a', number], b"1").unwrap();
            assert_eq!(counters.get(Count::MapOutputRecords), u64::from(number));
            assert!(counters.take_progress());
        }
        map.finish().unwrap();
        assert_eq!(counters.get(Count::CombineInputRecords), 5);
    }

    /// The output of a map with these records for each reduce, and its counters.
    fn output(
        records: &Pairs,
        settings: SpillSettings,
        combine: bool,
    ) -> (Vec<Pairs>, Arc<TaskCounters>) {
        output_of(records, settings, if combine { Combining::Sums } else { Combining::No })
    }

    fn output_of(
        records: &Pairs,
        settings: SpillSettings,
        combining: Combining,
    ) -> (Vec<Pairs>, Arc<TaskCounters>) {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
        let counters = Arc::new(TaskCounters::default());
        let partitioner = Partitioner::new(Partitioning::Hash, settings.reduces);
        let codec = settings.data.codec;
        let mut map =
            MapOutput::new(settings, partitioner, combining, scratch.clone(), counters.clone());
        for (key, value) in records {
            map.collect(key, value).unwrap();
        }
        let bytes = map.finish().unwrap();
        let path = scratch.place("file.out").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 2, "only the output and its index are left");
        let index = fs::read(scratch.place("file.out.index").unwrap()).unwrap();
        let index = SpillIndex::decode(&index).unwrap();
        let parts = index.records.iter().map(|part| {
            let file = fs::read(&path).unwrap();
            let (from, length) = (part.start as usize, part.part_length as u64);
            let mut reader = ifile::read(&file[from..], length, codec, 1 << 20);
            let mut records = Vec::new();
            while reader.advance().unwrap() {
                let text = |bytes: &[u8]| vint::text(bytes).to_vec();
                records.push((text(reader.key()), text(reader.value())));
            }
            records
        });
        (parts.collect(), counters)
    }

    fn settings(sort_bytes: usize, codec: Option<Codec>) -> SpillSettings {
        let order = Arc::default();
        let data = DataSettings { order, codec, factor: 3, max_record_bytes: 1 << 20 };
        let spill_bytes = sort_bytes * 4 / 5;
        SpillSettings { sort_bytes, spill_bytes, combine_spills: 3, reduces: 2, data }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn the_output_is_what_a_stable_sort_gives(
            keys in prop::collection::vec(prop::collection::vec(0_u8..3, 0..12), 0..120),
            sort_bytes in prop::sample::select(vec![200_usize, 400, 1 << 20]),
            codec in prop::sample::select(vec![None, Some(Codec::Deflate)]),
        ) {
            let records: Pairs = keys.into_iter().enumerate()
                .map(|(at, key)| (key, at.to_string().into_bytes())).collect();
            let (parts, counters) = output(&records, settings(sort_bytes, codec), false);
            let partitioner = Partitioner::new(Partitioning::Hash, 2);
            for (reduce, part) in parts.into_iter().enumerate() {
                let mut expected: Pairs = records.iter()
                    .filter(|(key, _)| partitioner.of(key) as usize == reduce).cloned().collect();
                expected.sort();
                let mut part = part;
                let keys = |pairs: &Pairs| pairs.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
                prop_assert_eq!(keys(&part), keys(&expected));
                part.sort();
                prop_assert_eq!(part, expected);
            }
            prop_assert_eq!(counters.get(Count::MapOutputRecords), records.len() as u64);
        }
    }

    /// The bytes that the format prescribes for two records, as Java reduces read them; the checksums are those
    /// of another program.
    #[test]
    fn the_files_of_an_output_have_the_bytes_of_the_format() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
        let counters = Arc::new(TaskCounters::default());
        let partitioner = Partitioner::new(Partitioning::Hash, 1);
        let settings = SpillSettings { reduces: 1, ..settings(1 << 16, None) };
        let mut map =
            MapOutput::new(settings, partitioner, Combining::No, scratch.clone(), counters);
        map.collect(b"b", b"").unwrap();
        map.collect(b"a", b"1").unwrap();
        assert_eq!(map.finish().unwrap(), 17);
        let output = fs::read(scratch.place("file.out").unwrap()).unwrap();
        let expected = b"\x02\x02\x01a\x011\x02\x01\x01b\x00\xff\xff\x6c\x0e\x5c\x33";
        assert_eq!(output, expected);
        let index = fs::read(scratch.place("file.out.index").unwrap()).unwrap();
        let numbers: Vec<u64> =
            index.chunks(8).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(numbers, [0, 13, 17, 0x383e_0d85]);
    }

    #[test]
    fn numbers_are_summed_as_they_come_and_in_the_merge() {
        let record = |at: usize| (format!("w{}", at % 30).into_bytes(), b"1".to_vec());
        let records: Pairs = (0..3000).map(record).collect();
        let mut expected: Pairs =
            (0..30).map(|word| (format!("w{word}").into_bytes(), b"100".to_vec())).collect();
        expected.sort();
        // In the larger memory all keys have room, in the smaller one a few.
        for (memory, spills) in [(1 << 16, 1..=1), (400, 4..=3000)] {
            let (parts, counters) = output(&records, settings(memory, None), true);
            let mut all = parts.concat();
            all.sort();
            assert_eq!(all, expected);
            let count = |count| counters.get(count);
            assert!(spills.contains(&count(Count::MapSpills)));
            assert_eq!(count(Count::MapOutputRecords), 3000);
            let combined = (count(Count::CombineInputRecords), count(Count::CombineOutputRecords));
            match memory {
                400 => assert!(combined.0 > 3000 && combined.1 > 30, "{combined:?}"),
                _ => assert_eq!(combined, (3000, 30)),
            }
        }
    }

    #[test]
    fn a_number_too_large_for_a_sum_fails_the_map_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
        let counters = Arc::new(TaskCounters::default());
        let partitioner = Partitioner::new(Partitioning::Hash, 2);
        let settings = settings(1 << 16, None);
        let mut map = MapOutput::new(settings, partitioner, Combining::Sums, scratch, counters);
        map.collect(b"word", i64::MAX.to_string().as_bytes()).unwrap();
        let error = map.collect(b"word", b"1").unwrap_err().to_string();
        assert_eq!(error, "builtin:wc: the sum of \"word\" does not fit into 64 bits");
        let error = map.collect(b"word", b"many").unwrap_err().to_string();
        assert!(error.contains("the value of \"word\" is \"many\""), "{error}");
    }

    /// A combiner that writes a record of its own, whatever it reads, as a program may at its end.
    struct Adds;

    impl Combiner for Adds {
        fn combine(
            &mut self,
            run: &mut (dyn RecordStream + Send),
            to: &mut dyn Collector,
        ) -> Result<(), TaskError> {
            while run.advance()? {}
            to.collect(b"own", b"")
        }
    }

    #[test]
    fn a_combiner_does_not_run_for_a_part_without_records() {
        let settings = SpillSettings { reduces: 4, ..settings(400, None) };
        for records in [1, 300] {
            let records: Pairs = vec![(b"a".to_vec(), b"1".to_vec()); records];
            let (parts, counters) =
                output_of(&records, settings.clone(), Combining::By(Box::new(Adds)));
            let own = vec![(b"own".to_vec(), vec![])];
            assert_eq!(parts.iter().filter(|part| part.is_empty()).count(), 3, "{parts:?}");
            assert!(parts.contains(&own), "{parts:?}");
            assert_eq!(counters.get(Count::MapSpills) > 3, records.len() > 1);
        }
    }

    #[test]
    fn a_record_larger_than_the_memory_is_a_spill_of_its_own() {
        let large = (vec![b'k'; 5000], vec![b'v'; 5000]);
        let records =
            vec![(b"a".to_vec(), b"1".to_vec()), large.clone(), (b"b".to_vec(), b"2".to_vec())];
        let (parts, counters) = output(&records, settings(400, None), false);
        assert!(parts.concat().contains(&large));
        assert_eq!(parts.concat().len(), 3);
        assert_eq!(counters.get(Count::MapSpills), 3);
    }

    /// A combiner that waits for permission at each part, and passes on the records.
    struct Waits {
        begun: mpsc::SyncSender<()>,
        go_on: mpsc::Receiver<()>,
    }

    impl Combiner for Waits {
        fn combine(
            &mut self,
            run: &mut (dyn RecordStream + Send),
            to: &mut dyn Collector,
        ) -> Result<(), TaskError> {
            let _ = self.begun.send(());
            // Without a sender it goes on.
            let _ = self.go_on.recv();
            while run.advance()? {
                to.collect(vint::text(run.key()), vint::text(run.value()))?;
            }
            Ok(())
        }
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_map_goes_on_in_the_memory_that_a_spill_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
        let counters = Arc::new(TaskCounters::default());
        let (begun, has_begun) = mpsc::sync_channel(2000);
        let (may_go_on, go_on) = mpsc::sync_channel(2000);
        let (collected, is_collected) = mpsc::sync_channel(2000);
        let settings = SpillSettings { reduces: 1, ..settings(10_000, None) };
        let partitioner = Partitioner::new(Partitioning::Hash, 1);
        let combining = Combining::By(Box::new(Waits { begun, go_on }));
        let mut map = MapOutput::new(settings, partitioner, combining, scratch, counters.clone());
        let mapper = thread::spawn(move || {
            for n in 0..1000 {
                map.collect(format!("{n:08}").as_bytes(), b"").unwrap();
                collected.send(map.buffer.used()).unwrap();
            }
            map.finish().unwrap()
        });
        has_begun.recv_timeout(PATIENCE).unwrap();
        // The mapper fills what the spill leaves of the 10,000 bytes, and then waits.
        let mut used = Vec::new();
        let is_full = |used: &[usize]| {
            let is_another = used.windows(2).any(|pair| pair[1] < pair[0]);
            is_another && used.last().is_some_and(|used| *used > 1900)
        };
        while !is_full(&used) {
            used.push(is_collected.recv_timeout(PATIENCE).unwrap());
        }
        let spilled = *used.iter().max().unwrap();
        assert!((8000..8100).contains(&spilled), "{spilled}");
        while let Ok(more) = is_collected.recv_timeout(Duration::from_millis(50)) {
            used.push(more);
        }
        let beside = *used.last().unwrap();
        assert!((1900..=10_000 - spilled).contains(&beside), "{beside}");
        drop(may_go_on);
        assert!(mapper.join().unwrap() > 8000);
        assert!(counters.get(Count::MapSpills) > 3);
    }

    #[test]
    fn a_spill_that_fails_fails_the_map() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().join("file")], "job_1", "attempt_1");
        fs::write(dir.path().join("file"), "in the way of the directory").unwrap();
        let counters = Arc::new(TaskCounters::default());
        let partitioner = Partitioner::new(Partitioning::Hash, 2);
        let mut map =
            MapOutput::new(settings(400, None), partitioner, Combining::No, scratch, counters);
        let failed = (0..1000).find_map(|n| map.collect(format!("{n}").as_bytes(), b"").err());
        assert!(matches!(failed, Some(TaskError::Local { .. })), "{failed:?}");
        assert!(map.collect(b"k", b"").is_err() && map.finish().is_err());
    }
}
