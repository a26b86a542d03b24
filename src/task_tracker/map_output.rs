//! The output of finished maps on disk: the place of each reduce's part.
//!
//! Everything here blocks. Spec: mapreduce/02 §2.13, mapreduce/04 §4.9.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use super::ids::AttemptId;
use super::layout;
use super::local_dirs::LocalDirs;
use corona_hadoop::io::DecodeError;
use corona_hadoop::writables::{IndexRecord, SpillIndex};

/// The largest index file that is read: four million reduces.
const MAX_INDEX_BYTES: u64 = 96 << 20;

/// Finds the outputs of maps, and remembers where their parts lie.
#[derive(Debug)]
pub struct MapOutputs {
    dirs: Arc<LocalDirs>,
    max_bytes: u64,
    indexes: Mutex<Indexes>,
}

/// Indexes, the one read last at the end.
#[derive(Debug, Default)]
struct Indexes {
    bytes: u64,
    order: VecDeque<AttemptId>,
    known: HashMap<AttemptId, Arc<SpillIndex>>,
}

/// One reduce's part of a map's output.
#[derive(Debug)]
pub struct Part {
    /// The map's output, open.
    pub file: File,
    /// Where the part begins, in bytes.
    pub start: u64,
    /// Its length in the file, in bytes.
    pub part_bytes: u64,
    /// Its length without compression, in bytes.
    pub raw_bytes: u64,
}

/// Why there is no output, so that the map has to run again.
#[derive(Debug, Error)]
pub enum MapOutputError {
    /// A file is not there, or cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file; relative to the local directories when none of them has it.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The index is damaged.
    #[error("{}: {error}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: DecodeError,
    },
    /// There are not so many parts.
    #[error("{}: no part for reduce {reduce}", path.display())]
    NoPart {
        /// The index.
        path: PathBuf,
        /// The requested number.
        reduce: i32,
    },
    /// A part is not within its file.
    #[error("{}: the part for reduce {reduce} is not in the file", path.display())]
    Outside {
        /// The output.
        path: PathBuf,
        /// The requested number.
        reduce: i32,
    },
}

impl MapOutputs {
    /// Outputs in these directories. Indexes may take so much memory.
    pub fn new(dirs: Arc<LocalDirs>, max_bytes: u64) -> Self {
        MapOutputs { dirs, max_bytes, indexes: Mutex::default() }
    }

    /// The part for a reduce. Opens the file, and checks that the part lies in it.
    pub fn part(&self, attempt: &AttemptId, reduce: i32) -> Result<Part, MapOutputError> {
        let index_path = layout::map_output_index(attempt);
        let index = self.index(attempt, &index_path)?;
        let record = usize::try_from(reduce).ok().and_then(|reduce| index.records.get(reduce));
        let no_part = || MapOutputError::NoPart { path: index_path.clone(), reduce };
        let IndexRecord { start, raw_length, part_length } = *record.ok_or_else(no_part)?;
        let path = self.find(&layout::map_output(attempt))?;
        let failed = |error| MapOutputError::File { path: path.clone(), error };
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        let numbers = (start.try_into(), part_length.try_into(), raw_length.try_into());
        let (Ok(start), Ok(part_bytes), Ok(raw_bytes)): (
            Result<u64, _>,
            Result<u64, _>,
            Result<u64, _>,
        ) = numbers
        else {
            return Err(MapOutputError::Outside { path, reduce });
        };
        let in_file = start.checked_add(part_bytes).is_some_and(|end| end <= metadata.len());
        if !metadata.is_file() || !in_file {
            return Err(MapOutputError::Outside { path, reduce });
        }
        let file = File::open(&path).map_err(failed)?;
        Ok(Part { file, start, part_bytes, raw_bytes })
    }

    /// The length of a map's output in bytes, as it is reported; 0 without an output.
    pub fn bytes(&self, attempt: &AttemptId) -> u64 {
        let path = self.dirs.find(&layout::map_output(attempt));
        path.and_then(|path| fs::metadata(path).ok()).map_or(0, |metadata| metadata.len())
    }

    /// Forgets where the parts of an output lie, as it is deleted.
    pub fn forget(&self, attempt: &AttemptId) {
        self.lock().remove(attempt);
    }

    fn index(
        &self,
        attempt: &AttemptId,
        relative: &Path,
    ) -> Result<Arc<SpillIndex>, MapOutputError> {
        if let Some(index) = self.lock().known.get(attempt) {
            return Ok(index.clone());
        }
        let path = self.find(relative)?;
        let failed = |error| MapOutputError::File { path: path.clone(), error };
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > MAX_INDEX_BYTES {
            let wrong = "is not an index: not a file, or too large";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, wrong)));
        }
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(failed)?;
        file.take(MAX_INDEX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let index = SpillIndex::decode(&bytes)
            .map_err(|error| MapOutputError::Index { path: path.clone(), error })?;
        let index = Arc::new(index);
        self.lock().insert(attempt, &index, self.max_bytes);
        Ok(index)
    }

    fn find(&self, relative: &Path) -> Result<PathBuf, MapOutputError> {
        self.dirs.find(relative).ok_or_else(|| MapOutputError::File {
            path: relative.to_owned(),
            error: io::ErrorKind::NotFound.into(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Indexes> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Indexes {
    fn insert(&mut self, attempt: &AttemptId, index: &Arc<SpillIndex>, max_bytes: u64) {
        self.remove(attempt);
        self.bytes += size(index);
        self.order.push_back(attempt.clone());
        self.known.insert(attempt.clone(), index.clone());
        while self.bytes > max_bytes {
            let Some(oldest) = self.order.front().cloned() else { break };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, attempt: &AttemptId) {
        if let Some(index) = self.known.remove(attempt) {
            self.bytes = self.bytes.saturating_sub(size(&index));
            self.order.retain(|known| known != attempt);
        }
    }
}

/// The size of an index, in bytes.
fn size(index: &SpillIndex) -> u64 {
    (size_of::<IndexRecord>() * index.records.len() + 256) as u64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::local_dirs::tests::settings;

    /// Puts an output with these parts where a map would.
    pub(in super::super) fn put(dirs: &LocalDirs, attempt: &AttemptId, parts: &[&[u8]]) {
        let mut start = 0;
        let mut index = SpillIndex::default();
        for part in parts {
            let part_length = i64::try_from(part.len()).unwrap();
            index.records.push(IndexRecord { start, raw_length: part_length - 4, part_length });
            start += part_length;
        }
        write(dirs, &layout::map_output_index(attempt), &index.encode());
        write(dirs, &layout::map_output(attempt), &parts.concat());
    }

    fn write(dirs: &LocalDirs, relative: &Path, content: &[u8]) {
        let path = dirs.find(relative).unwrap_or_else(|| dirs.for_write(relative, None).unwrap());
        fs::write(path, content).unwrap();
    }

    pub(in super::super) fn attempt(number: u32) -> AttemptId {
        format!("attempt_20.1_0001_m_{number:06}_0").parse().unwrap()
    }

    fn dirs(root: &Path) -> Arc<LocalDirs> {
        Arc::new(LocalDirs::open(&settings(&[&root.join("a"), &root.join("b")])).unwrap())
    }

    #[test]
    fn parts_are_found() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let outputs = MapOutputs::new(dirs.clone(), 1 << 20);
        put(&dirs, &attempt(0), &[b"first", b"", b"third!"]);
        for (reduce, start, bytes) in [(0, 0, 5), (1, 5, 0), (2, 5, 6)] {
            // An empty part has a raw length of -4 in this index.
            match outputs.part(&attempt(0), reduce) {
                Ok(part) => assert_eq!((part.start, part.part_bytes), (start, bytes)),
                Err(error) => assert_eq!(reduce, 1, "{error}"),
            }
        }
        assert_eq!(outputs.bytes(&attempt(0)), 11);
        assert_eq!(outputs.bytes(&attempt(1)), 0);
        for (number, reduce, expected) in [
            (0, 3, "no part for reduce 3"),
            (0, -1, "no part for reduce -1"),
            (1, 0, "entity not found"),
        ] {
            let told = outputs.part(&attempt(number), reduce).unwrap_err().to_string();
            assert!(told.ends_with(expected), "{told}");
        }
    }

    #[test]
    fn damage_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let outputs = MapOutputs::new(dirs.clone(), 1 << 20);
        put(&dirs, &attempt(0), &[b"first", b"second"]);
        write(&dirs, &layout::map_output(&attempt(0)), b"firstsecon");
        let told = outputs.part(&attempt(0), 1).unwrap_err().to_string();
        assert!(told.ends_with("the part for reduce 1 is not in the file"), "{told}");
        assert!(outputs.part(&attempt(0), 0).is_ok());
        let record = IndexRecord { start: i64::MAX, raw_length: 1, part_length: i64::MAX };
        for records in [vec![record], vec![IndexRecord { start: -1, ..record }]] {
            let index = SpillIndex { records };
            write(&dirs, &layout::map_output_index(&attempt(0)), &index.encode());
            outputs.forget(&attempt(0));
            let error = outputs.part(&attempt(0), 0).unwrap_err();
            assert!(matches!(error, MapOutputError::Outside { .. }), "{error}");
        }
        for bytes in [&b"short"[..], &[0; 33], &[1; 32]] {
            write(&dirs, &layout::map_output_index(&attempt(0)), bytes);
            outputs.forget(&attempt(0));
            let error = outputs.part(&attempt(0), 0).unwrap_err();
            assert!(matches!(error, MapOutputError::Index { .. }), "{error}");
        }
    }

    #[test]
    fn indexes_are_kept_within_their_memory() {
        let root = tempfile::tempdir().unwrap();
        let dirs = dirs(root.path());
        let outputs = MapOutputs::new(dirs.clone(), 2 * (256 + 24));
        for number in 0..5 {
            put(&dirs, &attempt(number), &[b"12345"]);
            outputs.part(&attempt(number), 0).unwrap();
        }
        let known = outputs.lock();
        assert_eq!(known.order, [attempt(3), attempt(4)]);
        assert_eq!((known.known.len(), known.bytes), (2, 2 * (256 + 24)));
    }
}
