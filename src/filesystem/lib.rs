//! Files where jobs keep them: `file:`, `hdfs:`, `s3:` and `corona:` behind one trait.
//!
//! [`FileSystem`] is what jobs need of a file system, [`FileSystems`] gives the one that a path
//! names. [`LocalFiles`] is this machine with Hadoop's `.crc` files, [`Hdfs`] a client of a name
//! node and its data nodes, [`ObjectStore`] a bucket of an object store, [`JobTrackerFiles`] one of a job tracker that keeps the files of jobs; both
//! are on the RPC of `corona_hadoop`. Paths are in `path.rs`, patterns in
//! `glob.rs`, failures in `error.rs`.
//!
//! It knows no job and no configuration file: settings come as a struct. Whatever it holds, be it
//! connections, leases or files with unfinished blocks, ends with its owner. Spec: hdfs/01.

// It reads bytes of peers: nothing in them may end the program, or become another number.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod copy;
mod error;
mod given_up;
mod glob;
pub mod hdfs;
mod job_files;
mod local;
mod objects;
mod path;
mod systems;
// Used by tests alone, whatever it is built into.
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]
pub mod testing;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use copy::{Copied, append_reader, copy_to_local, put, put_reader};
pub use corona_model::files::FileSystemSettings;
pub use error::{ErrorKind, FsError};
pub use given_up::all_given_up;
pub use glob::{Glob, expand};
pub use hdfs::Hdfs;
pub use job_files::{JobTrackerFiles, sees_token};
pub use local::{LocalFiles, millis, without_links, write_checksums};
pub use objects::{ObjectAccess, ObjectStore};
pub use path::{DEFAULT_PORT, FsPath, NotAPath, Root};
pub use systems::FileSystems;

/// An answer that takes time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, FsError>> + Send + 'a>>;

/// A file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Where it is.
    pub path: FsPath,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes of a file, 0 of a directory. What is being written counts without its last block.
    pub bytes: u64,
    /// Replicas that each block should have; 0 for a directory.
    pub replication: i16,
    /// Bytes of a full block; 0 for a directory.
    pub block_bytes: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: i64,
    /// When it was last read, in milliseconds since 1970; 0 if that is not kept.
    pub accessed_ms: i64,
    /// Permissions: `rwxrwxrwx` in the low nine bits.
    pub permission: u16,
    /// Its owner; may be empty.
    pub owner: String,
    /// Its group; may be empty.
    pub group: String,
    /// Names this content of the file, where that has a name: who replaces the file makes another one.
    pub version: Option<String>,
}

impl FileStatus {
    /// A file of which somebody else has found the length and the version, and nothing else.
    pub fn of_version(path: FsPath, bytes: u64, version: String) -> FileStatus {
        FileStatus { bytes, version: Some(version), ..FileStatus::empty(path) }
    }

    /// A file of which nothing is known.
    pub(crate) fn empty(path: FsPath) -> FileStatus {
        FileStatus {
            path,
            is_directory: false,
            bytes: 0,
            replication: 0,
            block_bytes: 0,
            modified_ms: 0,
            accessed_ms: 0,
            permission: 0,
            owner: String::new(),
            group: String::new(),
            version: None,
        }
    }

    /// The kind and the permissions as `ls` shows them, such as `drwxr-xr-x`.
    pub fn mode(&self) -> String {
        let bits = "rwxrwxrwx".chars().enumerate();
        let kind = if self.is_directory { 'd' } else { '-' };
        let shown = bits
            .map(|(at, letter)| if self.permission >> (8 - at) & 1 == 1 { letter } else { '-' });
        std::iter::once(kind).chain(shown).collect()
    }
}

/// Sums over what lies below a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of all files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Directories, itself included.
    pub directories: u64,
}

/// A block of a file, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockHosts {
    /// Its first byte in the file.
    pub start: u64,
    /// Bytes of it.
    pub length: u64,
    /// The hosts that have it, the best one first.
    pub hosts: Vec<HostOfBlock>,
}

/// A host that has a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostOfBlock {
    /// The host's rack, such as `/default-rack`.
    pub rack: String,
    /// The host's name, or its address if the name node knows no name.
    pub name: String,
}

/// Some entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The entries, in the order of the bytes of their names.
    pub entries: Vec<FileStatus>,
    /// Entries that cannot be used, in the same order.
    pub odd: Vec<OddEntry>,
    /// Where the next page begins; none if this is the last one.
    pub next: Option<Vec<u8>>,
}

/// An entry of a directory that has no path or no status: its name is not UTF-8, it is a link that leads
/// nowhere, or its status cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddEntry {
    /// Its name. Bytes that are no text are escaped, such as `caf\xe9`.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl OddEntry {
    /// The error of a call that must not leave the entry of this directory out.
    pub fn error(&self, call: &'static str, directory: &FsPath) -> FsError {
        let path = format!("{}/{}", directory.to_string().trim_end_matches('/'), self.name);
        FsError::new(ErrorKind::Invalid, call, path, self.why.clone())
    }
}

/// All entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Those that can be used.
    pub entries: Vec<FileStatus>,
    /// The others.
    pub odd: Vec<OddEntry>,
}

/// How a file is made. What is `None` is as configured.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Whether a file of this name is replaced.
    pub overwrite: bool,
    /// Replicas of each block.
    pub replication: Option<i16>,
    /// Bytes of a full block, a multiple of the bytes that one checksum covers.
    pub block_bytes: Option<u64>,
    /// Permissions before the umask; 0666 if none are named.
    pub permission: Option<u16>,
    /// How the writing of a block is retried when a data node fails.
    pub replay: Replay,
}

/// Where the bytes of an unfinished block come from when it must be written to other data nodes.
#[derive(Clone, Debug, Default)]
pub enum Replay {
    /// From a file without a name, which keeps the block while it is written.
    #[default]
    Kept,
    /// From this file, which holds the same bytes at the same places.
    From(Arc<File>),
}

/// A file system, as far as jobs need one. Paths are absolute; those of another file system are
/// refused. Calls have a body here where a file system may do without them: most refuse, and some only open. One that wraps
/// another passes on each of them.
pub trait FileSystem: Send + Sync {
    /// What its paths begin with.
    fn root(&self) -> &Root;

    /// The directory that relative paths start at.
    fn home(&self) -> FsPath {
        let home = FsPath::within(self.root(), "/");
        home.unwrap_or_else(|_| unreachable!("the root is a path"))
    }

    /// The error of a call that the file system does not have.
    fn unsupported(&self, call: &'static str, path: &FsPath) -> FsError {
        FsError::new(ErrorKind::Unsupported, call, path, "is not supported")
    }

    /// A file or a directory. Errors: also that there is none.
    fn status<'a>(&'a self, path: &'a FsPath) -> Answer<'a, FileStatus>;

    /// Entries of a directory, from its first one or from where a page before has ended. A file lists
    /// itself. The number in a page is bounded.
    fn list_page<'a>(&'a self, path: &'a FsPath, from: Option<Vec<u8>>) -> Answer<'a, Page>;

    /// Opens a file to be read.
    fn open<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileReader>>;

    /// Opens a file whose status is known, to be read as it was then: that it has changed since is an error where
    /// that can be known.
    fn open_found<'a>(&'a self, found: &'a FileStatus) -> Answer<'a, Box<dyn FileReader>> {
        self.open(&found.path)
    }

    /// Opens a file that others have put into a directory, to be read with rights that they do not have:
    /// neither the file nor the directory may be a symbolic link, and both have one owner. Where there are
    /// no links, and files belong to those who wrote them, that is any file.
    fn open_staged<'a>(
        &'a self,
        directory: &'a FsPath,
        name: &'a str,
    ) -> Answer<'a, Box<dyn FileReader>> {
        Box::pin(async move { self.open(&directory.join(name)).await })
    }

    /// Makes a file, and directories above it that are missing.
    fn create<'a>(
        &'a self,
        path: &'a FsPath,
        options: CreateOptions,
    ) -> Answer<'a, Box<dyn FileWriter>>;

    /// Whether a new file is seen, and replaces one of its name, when it is complete and not before.
    fn is_seen_whole(&self) -> bool {
        false
    }

    /// Opens a file that is complete, to be written at its end.
    fn append<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileWriter>> {
        failed(self.unsupported("append", path))
    }

    /// Gives a file or directory another name. A target that is a directory gets it as an entry.
    /// Errors: also that the target is a file.
    fn rename<'a>(&'a self, from: &'a FsPath, to: &'a FsPath) -> Answer<'a, ()>;

    /// Deletes a file, an empty directory or, with `recursive`, any directory. False: there was none.
    fn delete<'a>(&'a self, path: &'a FsPath, recursive: bool) -> Answer<'a, bool>;

    /// Makes a directory and those above it. It may exist. Without `permission`, 0777 less the umask.
    fn mkdirs<'a>(&'a self, path: &'a FsPath, permission: Option<u16>) -> Answer<'a, ()>;

    /// Changes permissions, without regard to the umask.
    fn set_permission<'a>(&'a self, path: &'a FsPath, permission: u16) -> Answer<'a, ()> {
        let _ = permission;
        failed(self.unsupported("setPermission", path))
    }

    /// Changes owner and group; none leaves one as it is.
    fn set_owner<'a>(
        &'a self,
        path: &'a FsPath,
        owner: Option<&'a str>,
        group: Option<&'a str>,
    ) -> Answer<'a, ()> {
        let _ = (owner, group);
        failed(self.unsupported("setOwner", path))
    }

    /// Changes times in milliseconds since 1970; none leaves one as it is.
    fn set_times<'a>(
        &'a self,
        path: &'a FsPath,
        modified_ms: Option<i64>,
        accessed_ms: Option<i64>,
    ) -> Answer<'a, ()> {
        let _ = (modified_ms, accessed_ms);
        failed(self.unsupported("setTimes", path))
    }

    /// Changes how many replicas a file should have. It returns before they exist.
    fn set_replication<'a>(&'a self, path: &'a FsPath, replication: i16) -> Answer<'a, ()> {
        let _ = replication;
        failed(self.unsupported("setReplication", path))
    }

    /// Sums over what lies below a path.
    fn summary<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Summary> {
        failed(self.unsupported("getContentSummary", path))
    }

    /// Ends the commit of a job's output: makes seen what committed tasks have written, where their commits do not.
    /// Returns whether there is such a directory.
    fn complete_output<'a>(&'a self, directory: &'a FsPath) -> Answer<'a, bool> {
        Box::pin(async move {
            match self.status(directory).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// The blocks of the first `bytes` bytes of a file, in order, with the hosts that have them. None if
    /// the file system has no hosts. Errors: also that there is no such file.
    fn blocks<'a>(&'a self, path: &'a FsPath, bytes: u64) -> Answer<'a, Vec<BlockHosts>> {
        let _ = (path, bytes);
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn failed<'a, T: Send + 'a>(error: FsError) -> Answer<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

impl dyn FileSystem + '_ {
    /// The status, or none if there is no such path.
    pub async fn find(&self, path: &FsPath) -> Result<Option<FileStatus>, FsError> {
        match self.status(path).await {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All entries of a directory, at most so many. Errors: also that one of them cannot be used, so that
    /// none is left out without a word.
    pub async fn list(&self, path: &FsPath, most: usize) -> Result<Vec<FileStatus>, FsError> {
        let Listing { entries, odd } = self.list_all(path, most).await?;
        match odd.first() {
            Some(odd) => Err(odd.error("list", path)),
            None => Ok(entries),
        }
    }

    /// All entries of a directory, at most so many, with those that cannot be used.
    pub async fn list_all(&self, path: &FsPath, most: usize) -> Result<Listing, FsError> {
        let mut listing = Listing::default();
        let mut from = None;
        loop {
            let page = self.list_page(path, from).await?;
            listing.entries.extend(page.entries);
            listing.odd.extend(page.odd);
            if listing.entries.len() + listing.odd.len() > most {
                let message = format!("it has more than {most} entries");
                return Err(FsError::new(ErrorKind::Invalid, "list", path, message));
            }
            from = page.next;
            if from.is_none() {
                return Ok(listing);
            }
        }
    }

    /// Refuses a path of another file system.
    pub(crate) fn check(&self, call: &'static str, path: &FsPath) -> Result<(), FsError> {
        let own = path.root().is_none_or(|root| root.is_same(self.root()));
        if own && path.is_absolute() {
            return Ok(());
        }
        let message = format!("Wrong FS, expected: {}", self.root());
        Err(FsError::new(ErrorKind::Invalid, call, path, message))
    }
}

/// A file that is read, at a place that moves.
pub trait FileReader: Send {
    /// Bytes of the file when it was opened.
    fn length(&self) -> u64;

    /// Where the next bytes are read.
    fn position(&self) -> u64;

    /// Moves to another place; what lies behind the end reads as the end.
    fn seek(&mut self, position: u64);

    /// Announces that nothing from this place on is going to be read, so that no more is sent.
    fn read_until(&mut self, end: u64);

    /// Reads some bytes, at least one unless the end is reached.
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Answer<'a, usize>;
}

impl dyn FileReader + '_ {
    /// Fills the buffer from a place of the file. Errors: also that the file ends before.
    pub async fn read_exact_at(&mut self, position: u64, buffer: &mut [u8]) -> Result<(), FsError> {
        self.seek(position);
        self.read_until(position.saturating_add(buffer.len() as u64));
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest).await? {
                0 => {
                    let message = "the file ends before the range that was asked for";
                    return Err(FsError::new(ErrorKind::Invalid, "read", "", message));
                }
                read => filled += read,
            }
        }
        Ok(())
    }
}

/// A file that is written. Dropped before it is closed, a new file is deleted if that can be done, and
/// otherwise left to the end of its lease. One that was there before stays, with what was flushed and
/// perhaps more.
pub trait FileWriter: Send {
    /// Where in the file the next byte is written.
    fn position(&self) -> u64;

    /// Writes all these bytes.
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Answer<'a, ()>;

    /// Returns when all that was written can be read by others.
    fn flush(&mut self) -> Answer<'_, ()>;

    /// Closes what is open, where the next write can open it again: for a file that grows now and then, beside
    /// many others.
    fn rest(&mut self) {}

    /// Returns when the file is complete. After an error it has been given up, as by `abort`.
    fn close(self: Box<Self>) -> Answer<'static, ()>;

    /// Gives the file up: deletes it if it is new, as when it is dropped.
    fn abort(self: Box<Self>) -> Answer<'static, ()>;
}

/// What a client of file systems counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes read from replicas on this machine.
    pub local_read_bytes: Count,
    /// Bytes read from replicas on other machines.
    pub remote_read_bytes: Count,
    /// Reads of replicas on this machine.
    pub local_reads: Count,
    /// Reads of replicas on other machines.
    pub remote_reads: Count,
    /// Bytes that data nodes have acknowledged.
    pub written_bytes: Count,
    /// Replicas that could not be read.
    pub failed_reads: Count,
    /// Replicas whose bytes did not fit their checksums.
    pub corrupt_replicas: Count,
    /// Blocks that were written again because a data node failed.
    pub rebuilt_blocks: Count,
    /// Blocks that were there before, or that readers may have seen, and that were continued with
    /// other data nodes because one failed.
    pub recovered_blocks: Count,
    /// Calls of name nodes.
    pub calls: Count,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(std::sync::atomic::AtomicU64);

impl Count {
    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Runs what may wait for a disk where it may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FsError> + Send + 'static,
) -> Result<T, FsError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(FsError::stopped("disk", "", error)))
}
