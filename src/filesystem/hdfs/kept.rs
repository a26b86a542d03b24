//! The bytes of the block at hand, kept until all data nodes have them: in memory while they are few,
//! else in a file without a name, or in the file that they come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::{FsError, Replay, blocking};

/// Bytes that are kept in memory.
const MEMORY_BYTES: usize = 1 << 20;

/// The bytes of one block so far.
#[derive(Debug)]
pub(super) enum Kept {
    /// They are in this file, from this place on.
    Elsewhere { file: Arc<File>, start: u64, bytes: u64 },
    /// The last ones are in memory, those before in a file.
    Here(Box<Here>),
}

/// Bytes in memory and in a file without a name. They are written to the file while further ones
/// come, so that nobody waits for the disk unless it is slower than the data nodes.
#[derive(Debug)]
pub(super) struct Here {
    directory: PathBuf,
    file: Option<Arc<File>>,
    /// Bytes that are in the file, or on their way there.
    in_file: u64,
    memory: Vec<u8>,
    writing: Option<JoinHandle<Result<Written, FsError>>>,
    /// Memory that is used again.
    spare: Vec<u8>,
}

/// The file, and the memory that was written to it.
type Written = (Arc<File>, Vec<u8>);

impl Kept {
    pub(super) fn new(replay: Replay, directory: &Path) -> Kept {
        match replay {
            Replay::From(file) => Kept::Elsewhere { file, start: 0, bytes: 0 },
            Replay::Kept => Kept::Here(Box::new(Here {
                directory: directory.to_owned(),
                file: None,
                in_file: 0,
                memory: Vec::new(),
                writing: None,
                spare: Vec::new(),
            })),
        }
    }

    /// Bytes of the block so far.
    pub(super) fn len(&self) -> u64 {
        match self {
            Kept::Elsewhere { bytes, .. } => *bytes,
            Kept::Here(here) => here.in_file + here.memory.len() as u64,
        }
    }

    /// Forgets the block: what comes belongs to the next one.
    pub(super) fn next_block(&mut self) {
        match self {
            Kept::Elsewhere { start, bytes, .. } => {
                *start += *bytes;
                *bytes = 0;
            }
            Kept::Here(here) => {
                here.in_file = 0;
                here.memory.clear();
            }
        }
    }

    pub(super) async fn add(&mut self, more: &[u8]) -> Result<(), FsError> {
        match self {
            Kept::Elsewhere { bytes, .. } => *bytes += more.len() as u64,
            Kept::Here(here) => {
                here.memory.extend_from_slice(more);
                if here.memory.len() >= MEMORY_BYTES {
                    here.write_out().await?;
                }
            }
        }
        Ok(())
    }

    /// Bytes of the block from a place on, at most so many.
    pub(super) async fn read(&mut self, at: u64, most: usize) -> Result<Vec<u8>, FsError> {
        let length = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX).min(most);
        let (file, from, length) = match self {
            Kept::Elsewhere { file, start, .. } => (file.clone(), *start + at, length),
            Kept::Here(here) => {
                here.settle().await?;
                let behind = at.checked_sub(here.in_file);
                let behind = behind.map(|behind| usize::try_from(behind).unwrap_or(usize::MAX));
                match (behind, &here.file) {
                    (None, Some(file)) => {
                        let left = usize::try_from(here.in_file - at).unwrap_or(usize::MAX);
                        (file.clone(), at, length.min(left))
                    }
                    (behind, _) => {
                        let bytes = here.memory.iter().skip(behind.unwrap_or(0)).take(length);
                        return Ok(bytes.copied().collect());
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

impl Here {
    /// Begins to write what is in memory to the file, when what was begun before is done.
    async fn write_out(&mut self) -> Result<(), FsError> {
        self.settle().await?;
        let (directory, kept, at) = (self.directory.clone(), self.file.clone(), self.in_file);
        let full = std::mem::replace(&mut self.memory, std::mem::take(&mut self.spare));
        self.in_file += full.len() as u64;
        self.writing = Some(tokio::spawn(blocking(move || {
            let failed = |error: io::Error| FsError::io("buffer", directory.display(), &error);
            let kept = match kept {
                Some(kept) => kept,
                None => Arc::new(nameless(&directory).map_err(failed)?),
            };
            kept.write_all_at(&full, at).map_err(failed)?;
            Ok((kept, full))
        })));
        Ok(())
    }

    /// Waits until what is on its way to the file is there.
    async fn settle(&mut self) -> Result<(), FsError> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let written = writing.await;
        self.writing = None;
        let stopped = |error| FsError::io("buffer", "", &io::Error::other(error));
        let (file, mut emptied) = written.map_err(stopped)??;
        emptied.clear();
        (self.file, self.spare) = (Some(file), emptied);
        Ok(())
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
