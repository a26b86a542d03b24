//! Sorted pieces of intermediate data, in memory or on disk, and their merge in bounded passes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use corona_mapreduce::native::KeyOrder;

use crate::codec::Codec;
use crate::counters::{Count, TaskCounters};
use crate::error::TaskError;
use crate::ifile::{self, IFileError, InMemory, Lengths};
use crate::run::{Merge, RecordStream};
use crate::scratch::Scratch;

/// How intermediate data is read and written.
#[derive(Clone, Debug)]
pub struct DataSettings {
    /// The order of keys.
    pub order: Arc<KeyOrder>,
    /// How it is compressed.
    pub codec: Option<Codec>,
    /// Pieces that are merged at a time.
    pub factor: usize,
    /// The largest record.
    pub max_record_bytes: usize,
}

/// A sorted piece.
#[derive(Debug)]
pub enum Segment {
    /// In memory, uncompressed.
    Memory(InMemory),
    /// Part of a file.
    Disk(DiskPart),
}

/// Part of a file of intermediate data.
#[derive(Clone, Debug)]
pub struct DiskPart {
    /// The file.
    pub path: PathBuf,
    /// Its first byte.
    pub start: u64,
    /// Its bytes.
    pub part_bytes: u64,
    /// Whether the file has no other part, and goes when it was read.
    pub is_whole_file: bool,
}

impl DiskPart {
    /// The records of the part.
    fn open(
        &self,
        settings: &DataSettings,
    ) -> Result<ifile::Reader<Box<dyn Read + Send>>, TaskError> {
        let mut file = File::open(&self.path).map_err(TaskError::local(&self.path))?;
        file.seek(SeekFrom::Start(self.start)).map_err(TaskError::local(&self.path))?;
        Ok(ifile::read(file, self.part_bytes, settings.codec, settings.max_record_bytes))
    }
}

/// A piece that is being read.
#[derive(Debug)]
enum Open {
    Memory(InMemory),
    Disk(ifile::Reader<Box<dyn Read + Send>>),
}

impl RecordStream for Open {
    #[inline]
    fn advance(&mut self) -> Result<bool, IFileError> {
        match self {
            Open::Memory(run) => run.advance(),
            Open::Disk(run) => run.advance(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Open::Memory(run) => run.key(),
            Open::Disk(run) => run.key(),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self {
            Open::Memory(run) => run.value(),
            Open::Disk(run) => run.value(),
        }
    }
}

/// The merge of all segments. Of those on disk, at most `factor` are read at a time: before the last
/// merge the smallest ones are merged into files of their own.
pub fn merged(
    mut segments: Vec<Segment>,
    settings: &DataSettings,
    scratch: &Scratch,
    counters: &TaskCounters,
) -> Result<Box<dyn RecordStream + Send>, TaskError> {
    let factor = settings.factor.max(2);
    let mut pass = 0;
    loop {
        let on_disk = segments.iter().filter(|segment| matches!(segment, Segment::Disk(_))).count();
        if on_disk <= factor {
            break;
        }
        // The first pass takes as many as leave whole passes of `factor` behind.
        let first = (on_disk - 1) % (factor - 1) + 1;
        let count = if pass == 0 && first > 1 { first } else { factor };
        segments = one_pass(segments, count, pass, settings, scratch, counters)?;
        pass += 1;
    }
    let open = segments.into_iter().map(|segment| opened(segment, settings, scratch));
    Ok(Box::new(Merge::new(open.collect::<Result<_, _>>()?, settings.order.clone())))
}

/// Merges the smallest segments on disk into one file.
fn one_pass(
    segments: Vec<Segment>,
    count: usize,
    pass: usize,
    settings: &DataSettings,
    scratch: &Scratch,
    counters: &TaskCounters,
) -> Result<Vec<Segment>, TaskError> {
    let (mut on_disk, mut rest) = (Vec::new(), Vec::new());
    for segment in segments {
        match segment {
            Segment::Disk(part) => on_disk.push(part),
            memory => rest.push(memory),
        }
    }
    on_disk.sort_by_key(|part| part.part_bytes);
    let later = on_disk.split_off(count.min(on_disk.len()));
    let small = on_disk.into_iter().map(Segment::Disk).collect();
    let name = format!("intermediate.{}.{pass}", rest.len() + later.len());
    let part = write_merged(small, &name, settings, scratch, counters)?;
    rest.extend(later.into_iter().map(Segment::Disk));
    rest.push(Segment::Disk(part));
    Ok(rest)
}

/// Merges segments, all at a time, into a file.
pub fn write_merged(
    segments: Vec<Segment>,
    name: &str,
    settings: &DataSettings,
    scratch: &Scratch,
    counters: &TaskCounters,
) -> Result<DiskPart, TaskError> {
    let (path, file) = scratch.create(name)?;
    let open = segments.into_iter().map(|segment| opened(segment, settings, scratch));
    let mut merge = Merge::new(open.collect::<Result<_, _>>()?, settings.order.clone());
    let mut writer = ifile::Writer::new(file, settings.codec);
    let mut records = 0_u64;
    while merge.advance()? {
        writer.append(merge.key(), merge.value()).map_err(TaskError::local(&path))?;
        records += 1;
        counters.progressed();
    }
    let (_, Lengths { part, .. }) = writer.finish().map_err(TaskError::local(&path))?;
    counters.add(Count::SpilledRecords, records);
    counters.add(Count::FileWritten, part);
    Ok(DiskPart { path, start: 0, part_bytes: part, is_whole_file: true })
}

/// Opens a segment. A file that has no other part loses its name, so that it goes when it was read.
fn opened(segment: Segment, settings: &DataSettings, scratch: &Scratch) -> Result<Open, TaskError> {
    match segment {
        Segment::Memory(run) => Ok(Open::Memory(run)),
        Segment::Disk(part) => {
            let open = part.open(settings)?;
            if part.is_whole_file {
                scratch.remove(&part.path);
            }
            Ok(Open::Disk(open))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::run_of;
    use crate::vint;

    #[test]
    fn many_segments_are_merged_in_passes_and_leave_no_file() {
        for (count, factor) in [(1, 2), (5, 2), (10, 10), (11, 10), (25, 4)] {
            let dir = tempfile::tempdir().unwrap();
            let scratch = Scratch::new(&[dir.path().to_owned()], "job_1", "attempt_1");
            let counters = TaskCounters::default();
            let settings = DataSettings {
                order: Arc::default(),
                codec: None,
                factor,
                max_record_bytes: 1 << 20,
            };
            let mut segments = Vec::new();
            for number in 0..count {
                let key = |at: usize| format!("{:03}", at * count + number).into_bytes();
                let run = run_of(&(0..7).map(|at| (key(at), b"v".to_vec())).collect::<Vec<_>>());
                let memory = vec![Segment::Memory(run)];
                let name = format!("piece.{number}");
                let part = write_merged(memory, &name, &settings, &scratch, &counters).unwrap();
                segments.push(Segment::Disk(part));
            }
            let mut run = merged(segments, &settings, &scratch, &counters).unwrap();
            for expected in 0..7 * count {
                assert!(run.advance().unwrap());
                assert_eq!(vint::text(run.key()), format!("{expected:03}").as_bytes());
            }
            assert!(!run.advance().unwrap());
            let output = scratch.place("x").unwrap();
            assert_eq!(std::fs::read_dir(output.parent().unwrap()).unwrap().count(), 0);
        }
    }
}
