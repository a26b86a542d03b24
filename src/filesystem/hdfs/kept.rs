//! The bytes of the block at hand, kept until all data nodes have them: in memory while they are few,
//! else in a file without a name, or in the file that they come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::{FsError, Replay, blocking};

/// Memory that is kept before it is written to a file.
const MEMORY_BYTES: usize = 1 << 20;
/// Buffers that are kept to be used again.
const MAX_SPARE: usize = 2 * MEMORY_BYTES / (64 << 10);

/// The bytes of one block so far, from the first one that this client wrote.
#[derive(Debug)]
pub(super) enum BlockBytes {
    /// They are in this file, from this place on.
    Elsewhere { file: Arc<File>, start: u64, bytes: u64, spare: Vec<u8> },
    /// The last ones are in memory, those before in a file.
    Here(Box<Here>),
}

/// Bytes in memory and in a file without a name. They are written to the file while further ones
/// come, so that no reader waits for the disk unless it is slower than the data nodes.
#[derive(Debug, Default)]
pub(super) struct Here {
    directory: PathBuf,
    file: Option<Arc<File>>,
    /// Bytes that are in the file, or on their way there.
    in_file: u64,
    memory: Vec<Piece>,
    /// Bytes of all pieces, and the memory that they take.
    bytes: u64,
    capacity: usize,
    writing: Option<JoinHandle<Result<Written, FsError>>>,
    spare: Vec<Vec<u8>>,
}

/// Bytes of a block that stand at the end of a buffer, as they were sent.
#[derive(Debug)]
struct Piece {
    buffer: Vec<u8>,
    start: usize,
}

impl Piece {
    fn data(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }
}

/// The file, and the memory that was written to it.
type Written = (Arc<File>, Vec<Piece>);

impl BlockBytes {
    pub(super) fn new(replay: Replay, directory: &Path) -> BlockBytes {
        match replay {
            Replay::From(file) => {
                BlockBytes::Elsewhere { file, start: 0, bytes: 0, spare: Vec::new() }
            }
            Replay::Kept => {
                let directory = directory.to_owned();
                BlockBytes::Here(Box::new(Here { directory, ..Here::default() }))
            }
        }
    }

    /// Bytes of the block so far.
    pub(super) fn len(&self) -> u64 {
        match self {
            BlockBytes::Elsewhere { bytes, .. } => *bytes,
            BlockBytes::Here(here) => here.in_file + here.bytes,
        }
    }

    /// Forgets the block: what comes belongs to the next one.
    pub(super) fn next_block(&mut self) {
        match self {
            BlockBytes::Elsewhere { start, bytes, .. } => {
                *start += *bytes;
                *bytes = 0;
            }
            BlockBytes::Here(here) => {
                here.in_file = 0;
                let memory = std::mem::take(&mut here.memory);
                (here.bytes, here.capacity) = (0, 0);
                here.reuse(memory.into_iter().map(|piece| piece.buffer));
            }
        }
    }

    /// An empty buffer, if possible one that was used before.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        match self {
            BlockBytes::Elsewhere { spare, .. } => std::mem::take(spare),
            BlockBytes::Here(here) => here.spare.pop().unwrap_or_default(),
        }
    }

    /// Keeps what stands in a buffer from `start` on.
    pub(super) async fn add(&mut self, mut buffer: Vec<u8>, start: usize) -> Result<(), FsError> {
        let length = buffer.len().saturating_sub(start);
        match self {
            BlockBytes::Elsewhere { bytes, spare, .. } => {
                *bytes += length as u64;
                buffer.clear();
                *spare = buffer;
            }
            BlockBytes::Here(here) => {
                here.bytes += length as u64;
                let last = here.memory.last_mut();
                let fits = |last: &&mut Piece| last.buffer.capacity() - last.buffer.len() >= length;
                // Small pieces share a buffer.
                if let Some(last) = last.filter(fits) {
                    last.buffer.extend_from_slice(buffer.get(start..).unwrap_or_default());
                    here.reuse([buffer]);
                } else {
                    here.capacity += buffer.capacity();
                    here.memory.push(Piece { buffer, start });
                }
                if here.capacity >= MEMORY_BYTES {
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
            BlockBytes::Elsewhere { file, start, .. } => (file.clone(), *start + at, length),
            BlockBytes::Here(here) => {
                here.settle().await?;
                let behind = at.checked_sub(here.in_file);
                let behind = behind.map(|behind| usize::try_from(behind).unwrap_or(usize::MAX));
                match (behind, &here.file) {
                    (None, Some(file)) => {
                        let left = usize::try_from(here.in_file - at).unwrap_or(usize::MAX);
                        (file.clone(), at, length.min(left))
                    }
                    (behind, _) => {
                        let bytes = here.memory.iter().flat_map(Piece::data);
                        let bytes = bytes.skip(behind.unwrap_or(0)).take(length);
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
        let (directory, kept, begin) = (self.directory.clone(), self.file.clone(), self.in_file);
        let full = std::mem::take(&mut self.memory);
        self.in_file += self.bytes;
        (self.bytes, self.capacity) = (0, 0);
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let failed = |error: io::Error| FsError::io("buffer", directory.display(), &error);
            let kept = match kept {
                Some(kept) => kept,
                None => Arc::new(nameless(&directory).map_err(failed)?),
            };
            let mut at = begin;
            for piece in &full {
                kept.write_all_at(piece.data(), at).map_err(failed)?;
                at += piece.data().len() as u64;
            }
            Ok((kept, full))
        }));
        Ok(())
    }

    /// Waits until what is on its way to the file is there.
    async fn settle(&mut self) -> Result<(), FsError> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let written = writing.await;
        self.writing = None;
        let stopped = |error| FsError::io("buffer", "", &io::Error::other(error));
        let (file, emptied) = written.map_err(stopped)??;
        self.file = Some(file);
        self.reuse(emptied.into_iter().map(|piece| piece.buffer));
        Ok(())
    }

    fn reuse(&mut self, buffers: impl IntoIterator<Item = Vec<u8>>) {
        let room = MAX_SPARE.saturating_sub(self.spare.len());
        self.spare.extend(buffers.into_iter().take(room).map(|mut buffer| {
            buffer.clear();
            buffer
        }));
    }
}

/// A new file without a name in this directory, which is deleted when it is closed.
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
    async fn buffers_are_released() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n / 3) as u8).collect();
        let source = dir.path().join("source");
        std::fs::write(&source, [b"first".as_slice(), &bytes].concat()).unwrap();
        let source = Arc::new(File::open(&source).unwrap());
        for replay in [Replay::Kept, Replay::From(source)] {
            let mut kept = BlockBytes::new(replay, dir.path());
            let add = async |kept: &mut BlockBytes, bytes: &[u8]| {
                let mut buffer = kept.buffer();
                assert!(buffer.is_empty());
                buffer.reserve_exact(1000 + 66_000);
                buffer.resize(1000, 0);
                buffer.extend_from_slice(bytes);
                kept.add(buffer, 1000).await.unwrap();
            };
            add(&mut kept, b"fi").await;
            add(&mut kept, b"rst").await;
            assert_eq!(kept.read(1, 3).await.unwrap(), b"irs");
            kept.next_block();
            assert_eq!(kept.len(), 0);
            let (small, large) = bytes.split_at(20_000);
            for piece in small.chunks(7).chain(large.chunks(65_000)) {
                add(&mut kept, piece).await;
                if let BlockBytes::Here(here) = &kept {
                    assert!(here.memory.len() <= MEMORY_BYTES / 65_000 + 1, "small ones share");
                    assert!(here.spare.len() <= MAX_SPARE);
                }
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
