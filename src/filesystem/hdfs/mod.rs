//! `hdfs:` of the original's branch: a client of one name node and its data nodes. Spec: hdfs/01.
//!
//! `name_node.rs` has the calls, `transfer.rs` the bytes between clients and data nodes;
//! `reader.rs` reads a file from replicas (`block_reader.rs`), `writer.rs` writes one through
//! pipelines (`pipeline.rs`) while `lease.rs` keeps it ours.

mod block_reader;
mod connection;
mod crc32c;
mod data_node;
mod kept;
mod lease;
mod name_node;
mod pipeline;
mod reader;
pub mod transfer;
mod writer;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::path::{FsPath, Root};
use crate::{
    Answer, BlockHosts, Counters, CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem,
    FileSystemSettings, FileWriter, FsError, HostOfBlock, Page, Summary,
};
use corona_hadoop::writables::{HdfsFileStatus, InetAddress, LocatedBlock};
use lease::Lease;
use name_node::NameNode;
use reader::HdfsReader;
use writer::{HdfsWriter, Shape};

/// The most blocks of a file whose hosts are listed.
const MOST_BLOCKS: usize = 1_000_000;
/// The class of the original that speaks this protocol and nothing else.
const PLAIN_CLASS: &str = "DistributedFileSystem";
/// The one that finds the name node that is in charge.
const AVATAR_CLASS: &str = "DistributedAvatarFileSystem";
/// The one that can rebuild blocks from parity.
const RAID_CLASS: &str = "DistributedRaidFileSystem";
/// Classes that wrap another one and speak its protocol. Spec: hdfs/01 §1.8.
const WRAPPERS: &[&str] = &[
    "ChecksumDistributedFileSystem",
    "LookasideCacheFileSystem",
    "APITraceFileSystem",
    RAID_CLASS,
];

/// A client of one name node.
#[derive(Clone, Debug)]
pub struct Hdfs {
    root: Root,
    shared: Arc<HdfsContext>,
}

/// What the files of a client share.
#[derive(Debug)]
struct HdfsContext {
    settings: Arc<FileSystemSettings>,
    name_node: Arc<NameNode>,
    lease: Arc<Lease>,
    /// A permit for each connection to a data node.
    data_connections: Arc<Semaphore>,
    counters: Arc<Counters>,
    is_raid: bool,
}

impl Hdfs {
    /// A client of the name node at this authority. `further` are addresses where the same name node
    /// may be instead, which are tried when it cannot be connected to.
    ///
    /// # Errors
    /// The configuration asks for something that is not supported, which the error names.
    pub fn new(
        root: &Root,
        further: &[String],
        settings: Arc<FileSystemSettings>,
        counters: Arc<Counters>,
    ) -> Result<Hdfs, FsError> {
        let refuse = |what: String| {
            let message = format!("{what} is not supported");
            Err(FsError::new(ErrorKind::Unsupported, "connect", root, message))
        };
        let simple = |class: &str| class.rsplit('.').next().unwrap_or_default().to_owned();
        let (class, inner) = (simple(&settings.hdfs_class), simple(&settings.hdfs_inner_class));
        let is_known = |class: &str| [PLAIN_CLASS, AVATAR_CLASS].contains(&class);
        let is_wrapper = WRAPPERS.contains(&class.as_str());
        if !is_known(&class) && !is_wrapper {
            return refuse(format!("class {} for hdfs", settings.hdfs_class));
        }
        if is_wrapper && !inner.is_empty() && !is_known(&inner) {
            return refuse(format!("class {} for hdfs", settings.hdfs_inner_class));
        }
        if settings.is_secure {
            return refuse("Kerberos (hadoop.security.authentication)".to_owned());
        }
        if !settings.socks_server.is_empty() {
            return refuse(format!("a SOCKS server ({})", settings.socks_server));
        }
        // The original finds the one in charge of several through ZooKeeper; a client without it
        // tries them in order, before anything is sent.
        let is_avatar = class == AVATAR_CLASS || inner == AVATAR_CLASS;
        let further = if is_avatar { further } else { &[] };
        let mut addresses = Vec::new();
        let roots = std::iter::once(root.clone()).chain(further.iter().map(|at| Root::hdfs(at)));
        for root in roots {
            let Some((host, port)) = root.host_and_port() else {
                let message = "is not host:port";
                return Err(FsError::new(ErrorKind::Invalid, "connect", &root, message));
            };
            let address = InetAddress { host, port };
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let name_node = Arc::new(NameNode::new(addresses, settings.clone(), counters.clone()));
        let [first @ .., _, _, _, _] = random().to_be_bytes();
        let name = format!("DFSClient_{}", i32::from_be_bytes(first));
        let shared = HdfsContext {
            lease: Lease::new(name, name_node.clone(), &settings),
            data_connections: Arc::new(Semaphore::new(settings.max_data_connections.max(1))),
            is_raid: class == RAID_CLASS,
            settings,
            name_node,
            counters,
        };
        Ok(Hdfs { root: root.clone(), shared: Arc::new(shared) })
    }

    /// The name under which this client holds leases.
    pub fn client_name(&self) -> &str {
        self.shared.lease.name()
    }

    fn check(&self, call: &'static str, path: &FsPath) -> Result<(), FsError> {
        (self as &dyn FileSystem).check(call, path)?;
        let part = path.path().split('/').find(|part| part.contains([':', '\n', '\r', '\t']));
        match part {
            // Name nodes refuse to make such names and find none.
            Some(part) => {
                let message = format!("{part:?} is no name of a file on HDFS");
                Err(FsError::new(ErrorKind::Invalid, call, path, message))
            }
            None => Ok(()),
        }
    }

    fn error(
        &self,
        kind: ErrorKind,
        call: &'static str,
        path: &FsPath,
        message: impl Into<String>,
    ) -> FsError {
        FsError::new(kind, call, path, message).at(self.shared.name_node.address())
    }

    fn not_found(&self, call: &'static str, path: &FsPath) -> FsError {
        FsError::not_found(call, path).at(self.shared.name_node.address())
    }

    async fn status_now(&self, path: &FsPath) -> Result<FileStatus, FsError> {
        let found = self.shared.name_node.status(path.path()).await;
        let found = found.map_err(|error| named(error, path))?;
        let found = found.ok_or_else(|| self.not_found("getHdfsFileInfo", path))?;
        Ok(status_of(path.clone(), &found))
    }
}

/// The failure with the whole path.
fn named(error: FsError, path: &FsPath) -> FsError {
    FsError { path: path.to_string(), ..error }
}

fn hosts_of(located: &LocatedBlock) -> BlockHosts {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let hosts = located.locations.iter().map(|node| {
        // As in the original, the address is the name of a host without one.
        let address = node.name.split(':').next().unwrap_or_default();
        let name = if node.host.is_empty() { address } else { &node.host };
        HostOfBlock { rack: node.rack.clone(), name: name.to_owned() }
    });
    BlockHosts {
        start: positive(located.offset),
        length: positive(located.block.bytes),
        hosts: hosts.collect(),
    }
}

fn status_of(path: FsPath, found: &HdfsFileStatus) -> FileStatus {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    FileStatus {
        path,
        is_directory: found.is_directory,
        // Of a directory it is the number of its entries. Spec: hdfs/01 §1.2.
        bytes: if found.is_directory { 0 } else { positive(found.length) },
        replication: found.replication,
        block_bytes: positive(found.block_size),
        modified_ms: found.modified_ms,
        accessed_ms: found.accessed_ms,
        permission: found.permission.0 & 0o777,
        owner: found.owner.clone(),
        group: found.group.clone(),
        version: None,
    }
}

impl FileSystem for Hdfs {
    fn root(&self) -> &Root {
        &self.root
    }

    fn home(&self) -> FsPath {
        let user = format!("/user/{}", self.shared.settings.user);
        let home = FsPath::within(&self.root, &user).or_else(|_| FsPath::within(&self.root, "/"));
        home.unwrap_or_else(|_| unreachable!("the root is a path"))
    }

    fn status<'a>(&'a self, path: &'a FsPath) -> Answer<'a, FileStatus> {
        Box::pin(async move {
            self.check("getHdfsFileInfo", path)?;
            self.status_now(path).await
        })
    }

    fn list_page<'a>(&'a self, path: &'a FsPath, from: Option<Vec<u8>>) -> Answer<'a, Page> {
        Box::pin(async move {
            self.check("getPartialListing", path)?;
            let from = from.unwrap_or_default();
            let found = self.shared.name_node.listing(path.path(), &from).await;
            let found = found.map_err(|error| named(error, path))?;
            let found = found.ok_or_else(|| self.not_found("getPartialListing", path))?;
            let last = found.entries.last().map(|entry| entry.name.clone());
            let next = last.filter(|last| found.remaining > 0 && *last > from);
            if next.is_none() && found.remaining > 0 {
                let message = "the name node's listing does not continue";
                return Err(self.error(ErrorKind::Malformed, "getPartialListing", path, message));
            }
            let entries = found.entries.iter().map(|entry| {
                let name = String::from_utf8_lossy(&entry.name);
                // A file lists itself, without a name.
                let named = match name.is_empty() && !entry.is_directory {
                    true => Ok(path.clone()),
                    false => path.entry(&name),
                };
                named.map(|named| status_of(named, entry)).map_err(|wrong| {
                    self.error(ErrorKind::Malformed, "getPartialListing", path, wrong.to_string())
                })
            });
            Ok(Page { entries: entries.collect::<Result<_, _>>()?, odd: Vec::new(), next })
        })
    }

    fn open<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileReader>> {
        Box::pin(async move {
            self.check("open", path)?;
            // Blocks are not found for a directory either. Spec: hdfs/01 §1.3.3.
            let status = self.status_now(path).await?;
            if status.is_directory {
                return Err(self.error(ErrorKind::IsADirectory, "open", path, "Is a directory"));
            }
            let reader = HdfsReader::open(self.shared.clone(), path.clone(), status.block_bytes);
            let reader = reader.await.map_err(|error| named(error, path))?;
            Ok(Box::new(reader) as Box<dyn FileReader>)
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a FsPath,
        options: CreateOptions,
    ) -> Answer<'a, Box<dyn FileWriter>> {
        Box::pin(async move {
            self.check("create", path)?;
            let settings = &self.shared.settings;
            let shape = Shape {
                permission: options.permission.unwrap_or(0o666) & !settings.umask & 0o777,
                overwrite: options.overwrite,
                replication: options.replication.unwrap_or(settings.replication),
                block_bytes: options.block_bytes.unwrap_or(settings.block_bytes),
                covered: settings.bytes_per_checksum,
            };
            let shared = self.shared.clone();
            let writer = HdfsWriter::create(shared, path.clone(), shape, options.replay).await;
            let writer = writer.map_err(|error| named(error, path))?;
            Ok(Box::new(writer) as Box<dyn FileWriter>)
        })
    }

    fn append<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileWriter>> {
        Box::pin(async move {
            self.check("append", path)?;
            let status = self.status_now(path).await?;
            if status.is_directory {
                return Err(self.error(ErrorKind::IsADirectory, "append", path, "Is a directory"));
            }
            let shape = Shape {
                permission: status.permission,
                overwrite: false,
                replication: status.replication,
                block_bytes: status.block_bytes,
                covered: self.shared.settings.bytes_per_checksum,
            };
            let writer = HdfsWriter::append(self.shared.clone(), path.clone(), shape).await;
            let writer = writer.map_err(|error| named(error, path))?;
            Ok(Box::new(writer) as Box<dyn FileWriter>)
        })
    }

    fn rename<'a>(&'a self, from: &'a FsPath, to: &'a FsPath) -> Answer<'a, ()> {
        const CALL: &str = "rename";
        Box::pin(async move {
            self.check(CALL, from)?;
            self.check(CALL, to)?;
            let renamed = self.shared.name_node.rename(from.path(), to.path()).await;
            if renamed.map_err(|error| named(error, from))? {
                return Ok(());
            }
            // What is wrong is not said. Spec: hdfs/01 §1.3.4.
            self.status_now(from).await?;
            let files: &dyn FileSystem = self;
            let (kind, message) = match files.find(to).await? {
                Some(target) if !target.is_directory => {
                    (ErrorKind::AlreadyExists, format!("{to} exists"))
                }
                _ if to.is_within(from) => (ErrorKind::Invalid, format!("{to} lies within it")),
                _ => (ErrorKind::NotFound, format!("Failed to rename {from} to {to}")),
            };
            Err(self.error(kind, CALL, from, message))
        })
    }

    fn delete<'a>(&'a self, path: &'a FsPath, recursive: bool) -> Answer<'a, bool> {
        Box::pin(async move {
            self.check("delete", path)?;
            let deleted = self.shared.name_node.delete(path.path(), recursive).await;
            deleted.map_err(|error| named(error, path))
        })
    }

    fn mkdirs<'a>(&'a self, path: &'a FsPath, permission: Option<u16>) -> Answer<'a, ()> {
        Box::pin(async move {
            self.check("mkdirs", path)?;
            let bits = permission.unwrap_or(0o777 & !self.shared.settings.umask) & 0o777;
            let made = self.shared.name_node.mkdirs(path.path(), bits).await;
            match made.map_err(|error| named(error, path))? {
                true => Ok(()),
                false => Err(self.error(ErrorKind::Remote, "mkdirs", path, "failed to create")),
            }
        })
    }

    fn set_permission<'a>(&'a self, path: &'a FsPath, permission: u16) -> Answer<'a, ()> {
        Box::pin(async move {
            self.check("setPermission", path)?;
            let set = self.shared.name_node.set_permission(path.path(), permission & 0o777).await;
            set.map_err(|error| named(error, path))
        })
    }

    fn set_owner<'a>(
        &'a self,
        path: &'a FsPath,
        owner: Option<&'a str>,
        group: Option<&'a str>,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            self.check("setOwner", path)?;
            let set = self.shared.name_node.set_owner(path.path(), owner, group).await;
            set.map_err(|error| named(error, path))
        })
    }

    fn set_times<'a>(
        &'a self,
        path: &'a FsPath,
        modified_ms: Option<i64>,
        accessed_ms: Option<i64>,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            self.check("setTimes", path)?;
            let (modified, accessed) = (modified_ms.unwrap_or(-1), accessed_ms.unwrap_or(-1));
            let set = self.shared.name_node.set_times(path.path(), modified, accessed).await;
            set.map_err(|error| named(error, path))
        })
    }

    fn set_replication<'a>(&'a self, path: &'a FsPath, replication: i16) -> Answer<'a, ()> {
        Box::pin(async move {
            self.check("setReplication", path)?;
            let set = self.shared.name_node.set_replication(path.path(), replication).await;
            if set.map_err(|error| named(error, path))? {
                return Ok(());
            }
            let status = self.status_now(path).await?;
            let kind = match status.is_directory {
                true => ErrorKind::IsADirectory,
                false => ErrorKind::Remote,
            };
            Err(self.error(kind, "setReplication", path, "Could not set replication"))
        })
    }

    fn blocks<'a>(&'a self, path: &'a FsPath, bytes: u64) -> Answer<'a, Vec<BlockHosts>> {
        Box::pin(async move {
            self.check("getBlockLocations", path)?;
            let mut blocks: Vec<BlockHosts> = Vec::new();
            loop {
                // Each answer begins with the block at the offset.
                let offset = blocks.last().map_or(0, |block| block.start + block.length);
                if offset >= bytes {
                    return Ok(blocks);
                }
                if blocks.len() > MOST_BLOCKS {
                    let why = format!("it has more than {MOST_BLOCKS} blocks");
                    return Err(self.error(ErrorKind::Invalid, "getBlockLocations", path, why));
                }
                let found = self.shared.name_node.blocks(path.path(), offset, bytes - offset).await;
                let found = found.map_err(|error| named(error, path))?;
                let Some(found) = found else {
                    // There is no block behind the end of a file, and none at all without one.
                    if !blocks.is_empty() {
                        return Ok(blocks);
                    }
                    return Err(self.not_found("getBlockLocations", path));
                };
                let before = blocks.len();
                for block in found.located.blocks.iter().map(hosts_of) {
                    let end = blocks.last().map_or(0, |block| block.start + block.length);
                    if block.start == end && block.length > 0 && end < bytes {
                        blocks.push(block);
                    }
                }
                // The file has become shorter, or its last block is being written.
                if blocks.len() == before {
                    return Ok(blocks);
                }
            }
        })
    }

    fn summary<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Summary> {
        Box::pin(async move {
            self.check("getContentSummary", path)?;
            let found = self.shared.name_node.summary(path.path()).await;
            let found = found.map_err(|error| named(error, path))?;
            let positive = |number: i64| u64::try_from(number).unwrap_or(0);
            Ok(Summary {
                bytes: positive(found.length),
                files: positive(found.files),
                directories: positive(found.directories),
            })
        })
    }
}

/// A number that cannot be guessed.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// A time below this one.
fn random_below(most: Duration) -> Duration {
    most.mul_f64((random() >> 11) as f64 / (1_u64 << 53) as f64)
}
