//! The bytes of the block at hand, kept until all data nodes have them: in memory while they are few,
//! else in a file without a name, or in the file that they come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{FsError, Replay, blocking};

/// Bytes that are kept in memory.
const MEMORY_BYTES: usize = 1 << 20;

/// The bytes of one block so far.
#[derive(Debug)]
pub(super) enum Kept {
    /// They are in this file, from this place on.
    Elsewhere { file: Arc<File>, start: u64, bytes: u64 },
    /// The last ones are in memory, those before in a file.
    Here { directory: PathBuf, file: Option<Arc<File>>, in_file: u64, memory: Vec<u8> },
}

impl Kept {
    pub(super) fn new(replay: Replay, directory: &Path) -> Kept {
        match replay {
            Replay::From(file) => Kept::Elsewhere { file, start: 0, bytes: 0 },
            Replay::Kept => Kept::Here {
                directory: directory.to_owned(),
                file: None,
                in_file: 0,
                memory: Vec::new(),
            },
        }
    }

    /// Bytes of the block so far.
    pub(super) fn len(&self) -> u64 {
        match self {
            Kept::Elsewhere { bytes, .. } => *bytes,
            Kept::Here { in_file, memory, .. } => in_file + memory.len() as u64,
        }
    }

    /// Forgets the block: what comes belongs to the next one.
    pub(super) fn next_block(&mut self) {
        match self {
            Kept::Elsewhere { start, bytes, .. } => {
                *start += *bytes;
                *bytes = 0;
            }
            Kept::Here { in_file, memory, .. } => {
                *in_file = 0;
                memory.clear();
            }
        }
    }

    pub(super) async fn add(&mut self, more: &[u8]) -> Result<(), FsError> {
        match self {
            Kept::Elsewhere { bytes, .. } => *bytes += more.len() as u64,
            Kept::Here { directory, file, in_file, memory } => {
                memory.extend_from_slice(more);
                if memory.len() >= MEMORY_BYTES {
                    let (directory, at) = (directory.clone(), *in_file);
                    let (kept, full) = (file.clone(), std::mem::take(memory));
                    let (kept, mut emptied) = blocking(move || {
                        let failed =
                            |error: io::Error| FsError::io("buffer", directory.display(), &error);
                        let kept = match kept {
                            Some(kept) => kept,
                            None => Arc::new(nameless(&directory).map_err(failed)?),
                        };
                        kept.write_all_at(&full, at).map_err(failed)?;
                        Ok((kept, full))
                    })
                    .await?;
                    *file = Some(kept);
                    *in_file += emptied.len() as u64;
                    emptied.clear();
                    *memory = emptied;
                }
            }
        }
        Ok(())
    }

    /// Bytes of the block from a place on, at most so many.
    pub(super) async fn read(&self, at: u64, most: usize) -> Result<Vec<u8>, FsError> {
        let length = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX).min(most);
        let (file, from, length) = match self {
            Kept::Elsewhere { file, start, .. } => (file.clone(), start + at, length),
            Kept::Here { file, in_file, memory, .. } => {
                let behind = at.checked_sub(*in_file);
                let behind = behind.map(|behind| usize::try_from(behind).unwrap_or(usize::MAX));
                match (behind, file) {
                    (None, Some(file)) => {
                        let left = usize::try_from(in_file - at).unwrap_or(usize::MAX);
                        (file.clone(), at, length.min(left))
                    }
                    (behind, _) => {
                        let behind = behind.unwrap_or(0);
                        return Ok(memory.iter().skip(behind).take(length).copied().collect());
                    }
                }
            }
        };
        blocking(move || {
            let mut bytes = vec![0; length];
            let read = file.read_exact_at(&mut bytes, from);
            read.map_err(|error| FsError::io("buffer", "the file that is copied", &error))?;
            Ok(bytes)
        })
        .await
    }
}

/// A new file in this directory that nobody else sees and that goes when it is closed.
fn nameless(directory: &Path) -> io::Result<File> {
    for attempt in 0..100 {
        let number = super::random();
        let path = directory.join(format!(".corona-block-{}-{number:x}", std::process::id()));
        match File::options().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 99 => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_kept_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n / 3) as u8).collect();
        let source = dir.path().join("source");
        std::fs::write(&source, [b"first".as_slice(), &bytes].concat()).unwrap();
        let source = Arc::new(File::open(&source).unwrap());
        for replay in [Replay::Kept, Replay::From(source)] {
            let mut kept = Kept::new(replay, dir.path());
            kept.add(b"first").await.unwrap();
            assert_eq!(kept.read(1, 3).await.unwrap(), b"irs");
            kept.next_block();
            assert_eq!(kept.len(), 0);
            for piece in bytes.chunks(65_000) {
                kept.add(piece).await.unwrap();
            }
            assert_eq!(kept.len(), bytes.len() as u64);
            let mut read = Vec::new();
            while read.len() < bytes.len() {
                read.extend(kept.read(read.len() as u64, 70_000).await.unwrap());
            }
            assert!(read == bytes);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the source alone is seen");
    }
}
