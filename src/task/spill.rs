//! The output of a map: collected in bounded memory, spilled in sorted files when that is full, and
//! merged into `file.out` with its index, as reduces of both kinds fetch it. Spec: mapreduce/04 §4.9.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use corona_hadoop::writables::{IndexRecord, SpillIndex};

use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::ifile::{self, Lengths};
use crate::partition::Partitioner;
use crate::run::RecordStream;
use crate::scratch::Scratch;
use crate::segment::{DataSettings, DiskPart, Segment, merged};
use crate::sort::SortBuffer;
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
pub struct MapOutput<'a> {
    buffer: SortBuffer,
    settings: SpillSettings,
    partitioner: Partitioner,
    scratch: &'a Scratch,
    counters: &'a TaskCounters,
    combiner: Option<Box<dyn Combiner + 'a>>,
    spills: Vec<Spill>,
    records: u64,
    bytes: u64,
}

impl std::fmt::Debug for MapOutput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapOutput").field("spills", &self.spills.len()).finish_non_exhaustive()
    }
}

impl Collector for MapOutput<'_> {
    #[inline]
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        let partition = self.partitioner.of(key);
        self.records += 1;
        self.bytes += (text_bytes(key) + text_bytes(value)) as u64;
        if self.records == COUNT_EVERY {
            self.count();
        }
        if self.buffer.used() >= self.settings.spill_bytes {
            self.spill()?;
        }
        if self.buffer.add(partition, key, value) {
            return Ok(());
        }
        self.spill()?;
        match self.buffer.add(partition, key, value) {
            true => Ok(()),
            false => self.spill_large(partition, key, value),
        }
    }
}

/// Bytes of a text as it is written.
fn text_bytes(text: &[u8]) -> usize {
    text.len() + if text.len() < 0x80 { 1 } else { vint::size(text.len() as i64) }
}

impl<'a> MapOutput<'a> {
    /// An output without records.
    pub fn new(
        settings: SpillSettings,
        partitioner: Partitioner,
        combiner: Option<Box<dyn Combiner + 'a>>,
        scratch: &'a Scratch,
        counters: &'a TaskCounters,
    ) -> MapOutput<'a> {
        MapOutput {
            buffer: SortBuffer::new(settings.sort_bytes, settings.data.order.clone()),
            settings,
            partitioner,
            scratch,
            counters,
            combiner,
            spills: Vec::new(),
            records: 0,
            bytes: 0,
        }
    }

    fn count(&mut self) {
        self.counters.add(Count::MapOutputRecords, std::mem::take(&mut self.records));
        self.counters.add(Count::MapOutputBytes, std::mem::take(&mut self.bytes));
    }

    /// Sorts the records in memory and writes them to a file.
    fn spill(&mut self) -> Result<(), TaskError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.buffer.sort();
        let mut file = SpillWriter::create(&format!("spill{}.out", self.spills.len()), self)?;
        for partition in 0..self.settings.reduces {
            let mut records = self.buffer.partition(partition);
            file.part(&mut records, self.combiner.as_deref_mut(), self.counters)?;
        }
        self.spilled(file)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes a record that is larger than the memory to a file of its own.
    fn spill_large(&mut self, partition: u32, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        let order = self.settings.data.order.clone();
        let mut single = SortBuffer::new(key.len() + value.len() + 1024, order);
        let limit = self.settings.data.max_record_bytes;
        if key.len() + value.len() > limit || !single.add(partition, key, value) {
            let bytes = (key.len() + value.len()) as u64;
            return Err(ifile::IFileError::TooLarge { bytes, limit }.into());
        }
        let mut file = SpillWriter::create(&format!("spill{}.out", self.spills.len()), self)?;
        for partition in 0..self.settings.reduces {
            file.part(&mut single.partition(partition), None, self.counters)?;
        }
        self.spilled(file)
    }

    fn spilled(&mut self, file: SpillWriter) -> Result<(), TaskError> {
        let spill = file.finish(self.counters)?;
        let bytes = spill.index.records.iter().map(|part| part.part_length.unsigned_abs()).sum();
        self.counters.add(Count::MapSpills, 1);
        self.counters.add(Count::MapSpillBytes, bytes);
        self.spills.push(spill);
        Ok(())
    }

    /// Writes `file.out` and its index, and returns the bytes of the output.
    pub fn finish(mut self) -> Result<u64, TaskError> {
        self.count();
        self.spill()?;
        let path = self.scratch.place("file.out")?;
        let output = match self.spills.len() {
            1 => {
                let spill = self.spills.remove(0);
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
                fs::copy(&spill.path, path).map(|_| self.scratch.remove(&spill.path))
            }
            moved => moved,
        };
        moved.map_err(TaskError::local(path))
    }

    fn merge(&mut self) -> Result<Spill, TaskError> {
        let combines = self.spills.len() >= self.settings.combine_spills;
        let mut combiner = self.combiner.take().filter(|_| combines);
        let mut file = SpillWriter::create("file.out", self)?;
        for partition in 0..self.settings.reduces as usize {
            let segments = self.spills.iter().filter_map(|spill| {
                let part = spill.index.records.get(partition)?;
                Some(Segment::Disk(DiskPart {
                    path: spill.path.clone(),
                    start: part.start.unsigned_abs(),
                    part_bytes: part.part_length.unsigned_abs(),
                    is_whole_file: false,
                }))
            });
            let data = &self.settings.data;
            let mut run = merged(segments.collect(), data, self.scratch, self.counters)?;
            file.part(&mut *run, combiner.as_deref_mut(), self.counters)?;
        }
        for spill in self.spills.drain(..) {
            self.scratch.remove(&spill.path);
        }
        file.finish(self.counters)
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
    fn create(name: &str, output: &MapOutput<'_>) -> Result<SpillWriter, TaskError> {
        let (path, file) = output.scratch.create(name)?;
        let codec = output.settings.data.codec;
        Ok(SpillWriter { path, file: Some(file), codec, index: SpillIndex::default(), at: 0 })
    }

    /// Writes the next part.
    fn part(
        &mut self,
        run: &mut (dyn RecordStream + Send),
        combiner: Option<&mut (dyn Combiner + '_)>,
        counters: &TaskCounters,
    ) -> Result<(), TaskError> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let mut part = PartWriter {
            writer: ifile::Writer::new(file, self.codec),
            path: &self.path,
            key: Vec::new(),
            value: Vec::new(),
        };
        match combiner {
            Some(combiner) => {
                let mut counted = Counted { run, records: 0, counters };
                combiner.combine(&mut counted, &mut part)?;
                counted.count();
                counters.add(Count::CombineOutputRecords, part.writer.records());
            }
            None => {
                while run.advance()? {
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
}

impl Collector for PartWriter<'_> {
    fn collect(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskError> {
        self.key.clear();
        self.value.clear();
        vint::put_text(key, &mut self.key);
        vint::put_text(value, &mut self.value);
        self.writer.append(&self.key, &self.value).map_err(TaskError::local(self.path))
    }
}

/// Counts the records that a combiner reads.
struct Counted<'a, 'b> {
    run: &'a mut (dyn RecordStream + Send + 'b),
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
        let has_one = self.run.advance()?;
        self.records += u64::from(has_one);
        if self.records == COUNT_EVERY {
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
    use crate::builtin::Sum;
    use crate::codec::Codec;
    use corona_mapreduce::native::Partitioning;
    use proptest::prelude::*;
    use std::sync::Arc;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    /// The output of a map with these records for each reduce, and its counters.
    fn output(
        records: &Pairs,
        settings: SpillSettings,
        combine: bool,
    ) -> (Vec<Pairs>, TaskCounters) {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
        let counters = TaskCounters::default();
        let partitioner = Partitioner::new(Partitioning::Hash, settings.reduces);
        let combiner = combine.then(|| Box::new(Sum) as Box<dyn Combiner>);
        let codec = settings.data.codec;
        let mut map = MapOutput::new(settings, partitioner, combiner, &scratch, &counters);
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
        let counters = TaskCounters::default();
        let partitioner = Partitioner::new(Partitioning::Hash, 1);
        let settings = SpillSettings { reduces: 1, ..settings(1 << 16, None) };
        let mut map = MapOutput::new(settings, partitioner, None, &scratch, &counters);
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
    fn a_combiner_sums_in_each_spill_and_in_the_merge() {
        let words = ["a", "b", "c"];
        let record = |at: usize| (words[at % 3].as_bytes().to_vec(), b"1".to_vec());
        let records: Pairs = (0..300).map(record).collect();
        let (parts, counters) = output(&records, settings(400, None), true);
        let mut all = parts.concat();
        all.sort();
        let sums: Pairs = words.map(|word| (word.as_bytes().to_vec(), b"100".to_vec())).to_vec();
        assert_eq!(all, sums);
        assert!(counters.get(Count::MapSpills) > 3);
        assert!(counters.get(Count::CombineInputRecords) > 300);
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
}
