//! The name node of the small cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::NAMESPACE;
use corona_hadoop::protocols::client_protocol::{NameNode as Protocol, PROTOCOL};
use corona_hadoop::rpc::{Caller, Fault};
use corona_hadoop::writables::{
    Block, ContentSummary, DatanodeId, DatanodeInfo, DirectoryListing, FsPermission,
    HdfsFileStatus, LocatedBlock, LocatedBlockWithMetaInfo, LocatedBlockWithOldGeneration,
    LocatedBlocks, LocatedBlocksWithMetaInfo, SafeModeAction,
};

const DATA_VERSION: i32 = 30;
const LEASE_EXPIRED: &str = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";
const SAFE_MODE: &str = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";
const NOT_REPLICATED: &str = "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException";
const COMMITTED: &str = "org.apache.hadoop.hdfs.server.protocol.BlockAlreadyCommittedException";
const BEING_CREATED: &str = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException";
const NOT_FOUND: &str = "java.io.FileNotFoundException";
const ACCESS: &str = "org.apache.hadoop.security.AccessControlException";
const QUOTA: &str = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException";

/// A fault of the name node, for a given number of calls of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameNodeFault {
    /// It does what it is asked and never answers.
    LoseReply,
    /// It does nothing and never answers.
    LoseCall,
    /// It answers that it is not ready: false, or that a block has too few replicas.
    NotYet,
    /// It answers that nobody writes the file.
    NoLease,
}

/// A name node in memory.
#[derive(Debug, Default)]
pub struct NameNode {
    state: Mutex<NameNodeState>,
}

#[derive(Debug, Default)]
struct NameNodeState {
    nodes: Vec<DatanodeInfo>,
    entries: BTreeMap<String, Entry>,
    /// Where replicas are: block, then number of the node and length.
    replicas: HashMap<i64, Vec<(usize, i64)>>,
    /// Bytes of blocks that data nodes have stored so far.
    stored: HashMap<i64, i64>,
    bad: HashSet<(i64, usize)>,
    faults: Vec<(&'static str, NameNodeFault, usize)>,
    calls: Vec<String>,
    next_block: i64,
    /// Generations that were given to blocks after their first one.
    generations: i64,
    safe_mode: bool,
    page: usize,
    quota: Option<usize>,
    /// A directory that has one directory in it, which is the same, and the name of that.
    looped: Option<(String, String)>,
    /// How often the data nodes of a new block are named, if not once.
    copies: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    file: Option<FileEntry>,
    permission: u16,
    owner: String,
    group: String,
    modified_ms: i64,
    accessed_ms: i64,
}

#[derive(Clone, Debug)]
struct FileEntry {
    blocks: Vec<Block>,
    replication: i16,
    block_bytes: i64,
    /// Who writes it.
    writer: Option<String>,
    /// The nodes of the block that is written.
    targets: Vec<DatanodeInfo>,
}

/// The first generation of a block.
const FIRST_GENERATION: i64 = 1001;

impl NameNode {
    fn lock(&self) -> MutexGuard<'_, NameNodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The data nodes of the cluster from now on.
    pub fn set_data_nodes(&self, nodes: Vec<DatanodeInfo>) {
        self.lock().nodes = nodes;
    }

    /// A data node has a whole block.
    pub fn received(&self, block: i64, node: usize, bytes: i64) {
        let mut state = self.lock();
        let replicas = state.replicas.entry(block).or_default();
        replicas.retain(|(other, _)| *other != node);
        replicas.push((node, bytes));
        replicas.sort_unstable();
    }

    /// A data node has so many bytes of a block that is being written.
    pub fn stored(&self, block: i64, bytes: i64) {
        self.lock().stored.insert(block, bytes);
    }

    /// A new generation for a block that is being written; none for another one.
    pub(super) fn next_generation(&self, block: i64) -> Result<i64, Fault> {
        let mut state = self.lock();
        let last_of = |entry: &Entry| {
            let file = entry.file.as_ref().filter(|file| file.writer.is_some())?;
            file.blocks.last().map(|block| block.id)
        };
        if !state.entries.values().any(|entry| last_of(entry) == Some(block)) {
            return Err(Fault::of(COMMITTED, format!("blk_{block} is already commited")));
        }
        state.generations += 1;
        Ok(FIRST_GENERATION + state.generations)
    }

    /// The replicas of a block that is written have been brought to one length.
    pub(super) fn synchronised(&self, block: Block, nodes: &[DatanodeInfo]) -> Result<(), Fault> {
        let mut state = self.lock();
        state.replicas.remove(&block.id);
        state.stored.insert(block.id, block.bytes);
        let files = state.entries.values_mut().filter_map(|entry| entry.file.as_mut());
        for file in files.filter(|file| file.writer.is_some()) {
            if let Some(last) = file.blocks.last_mut().filter(|last| last.id == block.id) {
                *last = block;
                file.targets = nodes.to_vec();
                return Ok(());
            }
        }
        Err(Fault::of(COMMITTED, format!("blk_{} is already commited", block.id)))
    }

    /// The different names of clients that have files open.
    pub fn writers(&self) -> BTreeSet<String> {
        let state = self.lock();
        let files = state.entries.values().filter_map(|entry| entry.file.as_ref());
        files.filter_map(|file| file.writer.clone()).collect()
    }

    /// Begins or ends safe mode.
    pub fn set_safe_mode(&self, is_on: bool) {
        self.lock().safe_mode = is_on;
    }

    /// Entries of a page of a listing; 0 is 1000.
    pub fn set_page(&self, entries: usize) {
        self.lock().page = entries;
    }

    /// Makes a directory that has one directory of this name in it, which is the same.
    pub fn set_loop(&self, directory: &str, name: &str) {
        self.lock().looped = Some((directory.to_owned(), name.to_owned()));
    }

    /// Names data nodes of new blocks so many times.
    pub fn set_copies(&self, copies: usize) {
        self.lock().copies = copies;
    }

    /// The most names that there may be.
    pub fn set_quota(&self, names: usize) {
        self.lock().quota = Some(names);
    }

    /// Makes the next calls of a method fail.
    pub fn fail(&self, method: &'static str, fault: NameNodeFault, times: usize) {
        self.lock().faults.push((method, fault, times));
    }

    /// Takes the lease of a file away from its writer, as if the file had been deleted.
    pub fn steal(&self, path: &str, by: &str) {
        if let Some(entry) = self.lock().entries.get_mut(path)
            && let Some(file) = &mut entry.file
        {
            file.writer = Some(by.to_owned());
        }
    }

    /// Closes a file whose lease was taken, with what data nodes have of it.
    pub fn release(&self, path: &str) {
        let mut state = self.lock();
        let file = state.entries.get(path).and_then(|entry| entry.file.as_ref());
        if let Some(writer) = file.and_then(|file| file.writer.clone()) {
            let _ = state.abandon_file(path, &writer);
        }
    }

    /// Forgets all replicas, as if no data node had reported.
    pub fn forget_replicas(&self) {
        self.lock().replicas.clear();
    }

    /// The calls so far: the method, and the path if there is one.
    pub fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    /// How often a method was called.
    pub fn count(&self, method: &str) -> usize {
        let is_it = |call: &&String| call.split(' ').next() == Some(method);
        self.lock().calls.iter().filter(is_it).count()
    }

    /// The blocks of a file.
    pub fn blocks(&self, path: &str) -> Vec<Block> {
        let state = self.lock();
        let file = state.entries.get(path).and_then(|entry| entry.file.as_ref());
        file.map(|file| file.blocks.clone()).unwrap_or_default()
    }

    /// The paths of all files, those that are written included.
    pub fn files(&self) -> Vec<String> {
        let state = self.lock();
        let files = state.entries.iter().filter(|(_, entry)| entry.file.is_some());
        files.map(|(path, _)| path.clone()).collect()
    }

    /// The bad replicas that were reported: block and node.
    pub fn bad_replicas(&self) -> Vec<(i64, usize)> {
        self.lock().bad.iter().copied().collect()
    }

    /// Notes a call and gives the fault that it is to have.
    fn begin(&self, method: &'static str, path: &str) -> Option<NameNodeFault> {
        let mut state = self.lock();
        state.calls.push(format!("{method} {path}").trim_end().to_owned());
        let due = state.faults.iter_mut().find(|(of, _, left)| *of == method && *left > 0);
        due.map(|(_, fault, left)| {
            *left -= 1;
            *fault
        })
    }

    /// Carries a call out, with the fault that it is to have.
    async fn serve<T>(
        &self,
        method: &'static str,
        path: &str,
        not_yet: impl FnOnce() -> Result<T, Fault>,
        act: impl FnOnce(&mut NameNodeState) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let fault = self.begin(method, path);
        if !path.is_empty() && !path.starts_with('/') {
            return Err(Fault::unexpected("java.lang.NullPointerException", ""));
        }
        match fault {
            Some(NameNodeFault::LoseCall) => std::future::pending().await,
            Some(NameNodeFault::NotYet) => not_yet(),
            Some(NameNodeFault::NoLease) => Err(Fault::of(LEASE_EXPIRED, "No lease on the file")),
            Some(NameNodeFault::LoseReply) => {
                let _ = act(&mut self.lock());
                std::future::pending().await
            }
            None => act(&mut self.lock()),
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn never<T>() -> Result<T, Fault> {
    Err(Fault::io("not yet"))
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

impl NameNodeState {
    fn check_safe_mode(&self, what: &str, path: &str) -> Result<(), Fault> {
        match self.safe_mode {
            false => Ok(()),
            true => Err(Fault::of(
                SAFE_MODE,
                format!(
                    "Cannot {what} {path}. Name node is in safe mode.\nIt was turned on by hand."
                ),
            )),
        }
    }

    fn make(&mut self, path: &str, entry: Entry) -> Result<(), Fault> {
        if self.quota.is_some_and(|quota| self.entries.len() >= quota) {
            let message = format!("The NameSpace quota of {path} is exceeded");
            return Err(Fault::of(QUOTA, message));
        }
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }

    fn make_directories(&mut self, path: &str, permission: u16, user: &str) -> Result<(), Fault> {
        let mut above = vec![path.to_owned()];
        while let Some(last) = above.last()
            && last != "/"
        {
            above.push(parent(last).to_owned());
        }
        for path in above.into_iter().rev() {
            match self.entries.get(&path) {
                Some(Entry { file: Some(_), .. }) => {
                    let message = format!("Parent path is not a directory: {path}");
                    return Err(Fault::of(NOT_FOUND, message));
                }
                Some(_) => {}
                None => self.make(
                    &path,
                    Entry {
                        file: None,
                        permission,
                        owner: user.to_owned(),
                        group: "users".to_owned(),
                        modified_ms: now_ms(),
                        accessed_ms: 0,
                    },
                )?,
            }
        }
        Ok(())
    }

    /// A file of this writer.
    fn written(&mut self, path: &str, client: &str) -> Result<&mut FileEntry, Fault> {
        let file = self.entries.get_mut(path).and_then(|entry| entry.file.as_mut());
        let file = file.ok_or_else(|| {
            Fault::of(LEASE_EXPIRED, format!("No lease on {path} File does not exist."))
        })?;
        match &file.writer {
            Some(writer) if writer == client => Ok(file),
            writer => Err(Fault::of(
                LEASE_EXPIRED,
                format!("Lease mismatch on {path} owned by {writer:?} but is accessed by {client}"),
            )),
        }
    }

    /// The length of a block as data nodes have reported it.
    fn reported(&self, block: i64) -> Option<i64> {
        self.replicas.get(&block)?.iter().map(|(_, bytes)| *bytes).max()
    }

    fn locations(&self, block: i64) -> Vec<DatanodeInfo> {
        let replicas = self.replicas.get(&block).map(Vec::as_slice).unwrap_or_default();
        let good = replicas.iter().filter(|(node, _)| !self.bad.contains(&(block, *node)));
        good.filter_map(|(node, _)| self.nodes.get(*node).cloned()).collect()
    }

    fn status(&self, name: &str, path: &str) -> Option<HdfsFileStatus> {
        let entry = self.entries.get(path)?;
        let file = entry.file.as_ref();
        let length = match file {
            Some(file) => {
                file.blocks.iter().map(|block| self.reported(block.id).unwrap_or(0)).sum()
            }
            None => self.children(path).count() as i64,
        };
        Some(HdfsFileStatus {
            name: name.as_bytes().to_vec(),
            length,
            is_directory: file.is_none(),
            replication: file.map_or(0, |file| file.replication),
            block_size: file.map_or(0, |file| file.block_bytes),
            modified_ms: entry.modified_ms,
            accessed_ms: entry.accessed_ms,
            permission: FsPermission(entry.permission),
            owner: entry.owner.clone(),
            group: entry.group.clone(),
        })
    }

    fn children<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let paths = self.entries.keys().map(String::as_str);
        let children = paths.filter(move |child| *child != "/" && parent(child) == path);
        children.filter_map(|child| child.rsplit('/').next())
    }

    fn delete(&mut self, path: &str, recursive: bool) -> Result<bool, Fault> {
        if !self.entries.contains_key(path) {
            return Ok(false);
        }
        let below = format!("{}/", path.trim_end_matches('/'));
        if !recursive && self.entries.keys().any(|other| other.starts_with(&below)) {
            return Err(Fault::io(format!("{path} is non empty")));
        }
        self.entries.retain(|other, _| other != path && !other.starts_with(&below));
        Ok(true)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<bool, Fault> {
        let is_directory = |path: &str| self.entries.get(path).map(|entry| entry.file.is_none());
        let to = match is_directory(to) {
            Some(true) => format!(
                "{}/{}",
                to.trim_end_matches('/'),
                from.rsplit('/').next().unwrap_or_default()
            ),
            Some(false) => return Ok(from == to && self.entries.contains_key(from)),
            None => to.to_owned(),
        };
        let within = format!("{from}/");
        let is_wrong = !self.entries.contains_key(from)
            || to.starts_with(&within)
            || self.entries.contains_key(&to)
            || is_directory(parent(&to)) != Some(true);
        if is_wrong {
            return Ok(false);
        }
        let moved: Vec<String> = self
            .entries
            .keys()
            .filter(|path| *path == from || path.starts_with(&within))
            .cloned()
            .collect();
        for path in moved {
            if let Some(entry) = self.entries.remove(&path) {
                let rest = path.strip_prefix(from).unwrap_or_default();
                self.entries.insert(format!("{to}{rest}"), entry);
            }
        }
        Ok(true)
    }

    fn create(
        &mut self,
        path: &str,
        (client, user): (&str, &str),
        permission: u16,
        overwrite: bool,
        (replication, block_bytes): (i16, i64),
    ) -> Result<(), Fault> {
        self.check_safe_mode("create file", path)?;
        if path.starts_with("/forbidden") {
            let message = format!(
                "Permission denied: user={user}, access=WRITE, inode=\"forbidden\":root:root:rwxr-xr-x"
            );
            return Err(Fault::of(ACCESS, message));
        }
        if !(1..=512).contains(&replication) {
            return Err(Fault::io(format!(
                "failed to create file {path} on client 127.0.0.1.\nRequested replication {replication} exceeds maximum 512"
            )));
        }
        match self.entries.get(path) {
            Some(Entry { file: None, .. }) => {
                return Err(Fault::io(format!("{path} already exists as a directory")));
            }
            Some(Entry { file: Some(FileEntry { writer: Some(writer), .. }), .. }) => {
                let why = match writer == client {
                    true => "current leaseholder is trying to recreate file.".to_owned(),
                    false => format!("this file is already being created by {writer}"),
                };
                return Err(Fault::of(
                    BEING_CREATED,
                    format!("failed to create file {path} for {client} because {why}"),
                ));
            }
            Some(_) if !overwrite => {
                return Err(Fault::io(format!(
                    "failed to create file {path} on client 127.0.0.1 either because the filename is invalid or the file exists"
                )));
            }
            _ => {}
        }
        self.make_directories(parent(path), 0o755, user)?;
        let file = FileEntry {
            blocks: Vec::new(),
            replication,
            block_bytes,
            writer: Some(client.to_owned()),
            targets: Vec::new(),
        };
        self.make(
            path,
            Entry {
                file: Some(file),
                // The original takes the x bits from files.
                permission: permission & 0o666,
                owner: user.to_owned(),
                group: "users".to_owned(),
                modified_ms: now_ms(),
                accessed_ms: now_ms(),
            },
        )
    }

    fn add_block(
        &mut self,
        path: &str,
        client: &str,
        excluded: &[DatanodeInfo],
        start: i64,
        last: Option<Block>,
    ) -> Result<LocatedBlockWithMetaInfo, Fault> {
        self.check_safe_mode("add block to", path)?;
        let nodes = self.nodes.clone();
        let new_id = -1000 - self.next_block;
        let file = self.written(path, client)?;
        let (count, block_bytes, replication) =
            (file.blocks.len() as i64, file.block_bytes, file.replication);
        let before = |blocks: &[Block]| blocks.last().map(|block| block.id);
        let block = if count > 1
            && start == (count - 1) * block_bytes
            && before(&file.blocks[..file.blocks.len() - 1]) == last.map(|last| last.id)
        {
            // Asked again: the same block.
            file.blocks[file.blocks.len() - 1]
        } else if start != count * block_bytes || before(&file.blocks) != last.map(|last| last.id) {
            return Err(Fault::io(format!(
                "File size from client side doesn't match name-node. Pos: {start} #block: {count} block size: {block_bytes}"
            )));
        } else {
            if last.is_some_and(|last| {
                file.blocks.last().map(|it| it.generation) != Some(last.generation)
            }) {
                return Err(Fault::io("the last block has another generation"));
            }
            let block = Block { id: new_id, bytes: 0, generation: FIRST_GENERATION };
            file.blocks.push(block);
            block
        };
        self.next_block += 1;
        let is_excluded = |node: &DatanodeInfo| {
            excluded.iter().any(|other| other.name == node.name && other.storage == node.storage)
        };
        let usable = nodes.into_iter().filter(|node| !is_excluded(node));
        let targets: Vec<_> = usable.take(replication.unsigned_abs().into()).collect();
        if targets.is_empty() {
            self.written(path, client)?.blocks.pop();
            return Err(Fault::io(format!(
                "File {path} could only be replicated to 0 nodes, instead of 1"
            )));
        }
        self.written(path, client)?.targets.clone_from(&targets);
        Ok(located(LocatedBlock { corrupt: false, offset: start, block, locations: targets }))
    }

    fn append(
        &mut self,
        path: &str,
        client: &str,
    ) -> Result<Option<LocatedBlockWithOldGeneration>, Fault> {
        self.check_safe_mode("append to", path)?;
        let missing =
            || Fault::of(NOT_FOUND, format!("failed to append to non-existent file {path}"));
        let entry = self.entries.get(path).ok_or_else(missing)?;
        let file = entry.file.as_ref().ok_or_else(|| Fault::io("it is a directory"))?;
        if let Some(writer) = &file.writer {
            let message = format!(
                "failed to create file {path} for {client}, because this file is already being created by {writer}"
            );
            return Err(Fault::of(BEING_CREATED, message));
        }
        let (last, block_bytes) = (file.blocks.last().copied(), file.block_bytes);
        let offset = file.blocks.iter().rev().skip(1).map(|block| block.bytes).sum();
        let last = last.filter(|last| last.bytes < block_bytes);
        let nodes = last.map(|last| self.locations(last.id)).unwrap_or_default();
        if let Some(last) = last {
            self.replicas.remove(&last.id);
            self.generations += 1;
        }
        let generation = FIRST_GENERATION + self.generations;
        let file = self.entries.get_mut(path).and_then(|entry| entry.file.as_mut());
        let file = file.ok_or_else(missing)?;
        file.writer = Some(client.to_owned());
        file.targets.clone_from(&nodes);
        Ok(last.map(|last| LocatedBlockWithOldGeneration {
            located: located(LocatedBlock {
                corrupt: false,
                offset,
                block: Block { generation, ..last },
                locations: nodes,
            }),
            old_generation: last.generation,
        }))
    }

    fn update_pipeline(
        &mut self,
        client: &str,
        (old, new): (Block, Block),
        nodes: &[DatanodeId],
    ) -> Result<(), Fault> {
        let known = self.nodes.clone();
        let files = self.entries.values_mut().filter_map(|entry| entry.file.as_mut());
        let mut files = files.filter(|file| file.writer.as_deref() == Some(client));
        let file = files.find(|file| file.blocks.last().is_some_and(|last| last.id == old.id));
        let no_lease = || Fault::of(LEASE_EXPIRED, format!("No lease on blk_{}", old.id));
        let file = file.ok_or_else(no_lease)?;
        let last = file.blocks.last_mut().ok_or_else(no_lease)?;
        if last.generation == new.generation {
            return Ok(());
        }
        if last.generation != old.generation || new.bytes < last.bytes {
            return Err(Fault::io(format!("Update {old:?} to an older state: {new:?}")));
        }
        *last = new;
        let is_named = |node: &DatanodeInfo| nodes.iter().any(|id| id.storage == node.storage);
        file.targets = known.into_iter().filter(is_named).collect();
        Ok(())
    }

    /// Closes a file with what data nodes have of it.
    fn abandon_file(&mut self, path: &str, client: &str) -> Result<(), Fault> {
        let stored = self.stored.clone();
        let nodes = self.nodes.clone();
        let file = self.written(path, client)?;
        file.writer = None;
        let targets = std::mem::take(&mut file.targets);
        let Some(last) = file.blocks.last_mut() else { return Ok(()) };
        last.bytes = stored.get(&last.id).copied().unwrap_or(last.bytes);
        let last = *last;
        let has_it = |(_, node): &(usize, &DatanodeInfo)| {
            targets.iter().any(|target| target.storage == node.storage)
        };
        let replicas = nodes.iter().enumerate().filter(has_it);
        let replicas = replicas.map(|(number, _)| (number, last.bytes)).collect();
        self.replicas.entry(last.id).or_insert(replicas);
        Ok(())
    }

    fn complete(
        &mut self,
        path: &str,
        client: &str,
        length: i64,
        last: Option<Block>,
    ) -> Result<bool, Fault> {
        self.check_safe_mode("complete", path)?;
        let is_done = self.entries.get(path).and_then(|entry| entry.file.as_ref());
        let is_done = is_done.is_some_and(|file| file.writer.is_none());
        let blocks = match is_done {
            true => self.entries[path].file.as_ref().map(|file| file.blocks.clone()),
            false => Some(self.written(path, client)?.blocks.clone()),
        };
        let blocks = blocks.unwrap_or_default();
        let lengths: Option<Vec<i64>> =
            blocks.iter().map(|block| self.reported(block.id)).collect();
        let Some(lengths) = lengths else { return Ok(false) };
        let sum: i64 = lengths.iter().sum();
        if sum != length || blocks.last().map(|block| block.id) != last.map(|last| last.id) {
            return Err(Fault::io(format!(
                "file size in client side doesn't match the closed file. client: {length} name-node: {sum}"
            )));
        }
        if let Some(entry) = self.entries.get_mut(path) {
            entry.modified_ms = now_ms();
            if let Some(file) = &mut entry.file {
                file.writer = None;
                for (block, bytes) in file.blocks.iter_mut().zip(lengths) {
                    block.bytes = bytes;
                }
            }
        }
        Ok(true)
    }

    fn open(&self, path: &str, offset: i64, length: i64) -> Option<LocatedBlocksWithMetaInfo> {
        let file = self.entries.get(path)?.file.as_ref()?;
        let (mut blocks, mut at) = (Vec::new(), 0);
        let end = offset.saturating_add(length);
        for (number, block) in file.blocks.iter().enumerate() {
            let is_last = number + 1 == file.blocks.len();
            let is_written = file.writer.is_some() && is_last;
            let bytes = if is_written {
                block.bytes
            } else {
                self.reported(block.id).unwrap_or(block.bytes)
            };
            if at < end && (at + bytes > offset || (is_written && at >= offset)) {
                let mut locations = self.locations(block.id);
                if is_written && locations.is_empty() {
                    locations.clone_from(&file.targets);
                }
                let corrupt = locations.is_empty();
                let block = Block { bytes, ..*block };
                blocks.push(LocatedBlock { corrupt, offset: at, block, locations });
            }
            at += bytes;
        }
        if offset >= at && at > 0 {
            return None;
        }
        Some(LocatedBlocksWithMetaInfo {
            namespace: NAMESPACE,
            fingerprint: PROTOCOL.fingerprint(),
            data_version: DATA_VERSION,
            located: LocatedBlocks {
                file_bytes: at,
                under_construction: file.writer.is_some(),
                blocks,
            },
        })
    }
}

fn located(located: LocatedBlock) -> LocatedBlockWithMetaInfo {
    LocatedBlockWithMetaInfo {
        namespace: NAMESPACE,
        fingerprint: PROTOCOL.fingerprint(),
        data_version: DATA_VERSION,
        located,
    }
}

fn user(caller: &Caller) -> String {
    caller.user.as_ref().map(|user| user.name.clone()).unwrap_or_default()
}

impl Protocol for NameNode {
    async fn get_hdfs_file_info(
        &self,
        _caller: &Caller,
        path: String,
    ) -> Result<Option<HdfsFileStatus>, Fault> {
        self.serve("getHdfsFileInfo", &path, never, |state| {
            if path == "/" {
                state.make_directories("/", 0o755, "hdfs")?;
            }
            Ok(state.status("", &path))
        })
        .await
    }

    async fn get_partial_listing(
        &self,
        _caller: &Caller,
        path: String,
        after: Vec<i8>,
    ) -> Result<Option<DirectoryListing>, Fault> {
        self.serve("getPartialListing", &path, never, |state| {
            if let Some((looped, name)) = &state.looped
                && path
                    .strip_prefix(looped)
                    .is_some_and(|below| below.is_empty() || below.starts_with('/'))
            {
                let entries = state.status(name, looped).into_iter().collect();
                return Ok(Some(DirectoryListing { entries, remaining: 0 }));
            }
            let Some(entry) = state.entries.get(&path) else { return Ok(None) };
            if entry.file.is_some() {
                let entries = state.status("", &path).into_iter().collect();
                return Ok(Some(DirectoryListing { entries, remaining: 0 }));
            }
            let after: Vec<u8> = after.iter().map(|byte| byte.cast_unsigned()).collect();
            let mut names: Vec<&str> = state.children(&path).collect();
            names.retain(|name| name.as_bytes() > after.as_slice());
            names.sort_unstable();
            let page = if state.page == 0 { 1000 } else { state.page };
            let remaining = names.len().saturating_sub(page) as i32;
            let below = path.trim_end_matches('/');
            let entries = names.iter().take(page);
            let entries = entries.filter_map(|name| state.status(name, &format!("{below}/{name}")));
            Ok(Some(DirectoryListing { entries: entries.collect(), remaining }))
        })
        .await
    }

    async fn open_and_fetch_meta_info(
        &self,
        _caller: &Caller,
        path: String,
        offset: i64,
        length: i64,
    ) -> Result<Option<LocatedBlocksWithMetaInfo>, Fault> {
        self.serve("openAndFetchMetaInfo", &path, never, |state| {
            Ok(state.open(&path, offset, length))
        })
        .await
    }

    async fn mkdirs(
        &self,
        caller: &Caller,
        path: String,
        permission: FsPermission,
    ) -> Result<bool, Fault> {
        self.serve(
            "mkdirs",
            &path,
            || Ok(false),
            |state| {
                if path.contains("//") {
                    return Err(Fault::io(format!("Invalid directory name: {path}")));
                }
                if !state.entries.contains_key(&path) {
                    state.check_safe_mode("create directory", &path)?;
                }
                state.make_directories(&path, permission.0, &user(caller)).map(|()| true)
            },
        )
        .await
    }

    async fn create(
        &self,
        caller: &Caller,
        path: String,
        permission: FsPermission,
        client: String,
        overwrite: bool,
        _create_parent: bool,
        replication: i16,
        block_size: i64,
    ) -> Result<(), Fault> {
        self.serve("create", &path, never, |state| {
            let who = user(caller);
            let shape = (replication, block_size);
            state.create(&path, (&client, &who), permission.0, overwrite, shape)
        })
        .await
    }

    async fn add_block_and_fetch_meta_info(
        &self,
        _caller: &Caller,
        path: String,
        client: String,
        excluded: Option<Vec<DatanodeInfo>>,
        _favored: Option<Vec<DatanodeInfo>>,
        start: i64,
        last: Option<Block>,
    ) -> Result<LocatedBlockWithMetaInfo, Fault> {
        let not_yet = || Err(Fault::of(NOT_REPLICATED, format!("Not replicated yet:{path}")));
        self.serve("addBlockAndFetchMetaInfo", &path, not_yet, |state| {
            let excluded = excluded.unwrap_or_default();
            let mut added = state.add_block(&path, &client, &excluded, start, last)?;
            let located = &mut added.located.locations;
            *located = vec![located.clone(); state.copies.max(1)].concat();
            Ok(added)
        })
        .await
    }

    async fn append_and_fetch_old_generation(
        &self,
        _caller: &Caller,
        path: String,
        client: String,
    ) -> Result<Option<LocatedBlockWithOldGeneration>, Fault> {
        self.serve("appendAndFetchOldGS", &path, never, |state| state.append(&path, &client)).await
    }

    async fn update_pipeline(
        &self,
        _caller: &Caller,
        client: String,
        old: Block,
        new: Block,
        nodes: Vec<DatanodeId>,
    ) -> Result<(), Fault> {
        self.serve("updatePipeline", "", never, |state| {
            state.update_pipeline(&client, (old, new), &nodes)
        })
        .await
    }

    async fn abandon_file(
        &self,
        _caller: &Caller,
        path: String,
        client: String,
    ) -> Result<(), Fault> {
        self.serve("abandonFile", &path, never, |state| state.abandon_file(&path, &client)).await
    }

    async fn abandon_block(
        &self,
        _caller: &Caller,
        block: Block,
        path: String,
        client: String,
    ) -> Result<(), Fault> {
        self.serve("abandonBlock", &path, never, |state| {
            state.check_safe_mode("abandon block of", &path)?;
            let file = state.written(&path, &client)?;
            match file.blocks.last() {
                Some(last) if last.id == block.id => {
                    file.blocks.pop();
                    Ok(())
                }
                _ => Err(Fault::io(format!("Trying to delete non-last block {}", block.id))),
            }
        })
        .await
    }

    async fn complete(
        &self,
        _caller: &Caller,
        path: String,
        client: String,
        length: i64,
        last: Option<Block>,
    ) -> Result<bool, Fault> {
        self.serve(
            "complete",
            &path,
            || Ok(false),
            |state| state.complete(&path, &client, length, last),
        )
        .await
    }

    async fn renew_lease(&self, _caller: &Caller, _client: String) -> Result<(), Fault> {
        self.serve("renewLease", "", never, |state| state.check_safe_mode("renew lease", "")).await
    }

    async fn fsync(&self, _caller: &Caller, path: String, client: String) -> Result<(), Fault> {
        self.serve("fsync", &path, never, |state| {
            let stored = state.stored.clone();
            // As the original does: the length of now, which it keeps while the block grows.
            if let Some(last) = state.written(&path, &client)?.blocks.last_mut() {
                last.bytes = stored.get(&last.id).copied().unwrap_or(0);
            }
            Ok(())
        })
        .await
    }

    async fn rename(&self, _caller: &Caller, from: String, to: String) -> Result<bool, Fault> {
        self.serve(
            "rename",
            &from,
            || Ok(false),
            |state| {
                state.check_safe_mode("rename", &from)?;
                state.rename(&from, &to)
            },
        )
        .await
    }

    async fn delete(&self, _caller: &Caller, path: String, recursive: bool) -> Result<bool, Fault> {
        self.serve(
            "delete",
            &path,
            || Ok(false),
            |state| {
                state.check_safe_mode("delete", &path)?;
                state.delete(&path, recursive)
            },
        )
        .await
    }

    async fn set_replication(
        &self,
        _caller: &Caller,
        path: String,
        replication: i16,
    ) -> Result<bool, Fault> {
        self.serve(
            "setReplication",
            &path,
            || Ok(false),
            |state| {
                let file = state.entries.get_mut(&path).and_then(|entry| entry.file.as_mut());
                Ok(file.map(|file| file.replication = replication).is_some())
            },
        )
        .await
    }

    async fn set_permission(
        &self,
        _caller: &Caller,
        path: String,
        permission: FsPermission,
    ) -> Result<(), Fault> {
        self.change("setPermission", &path, |entry| entry.permission = permission.0).await
    }

    async fn set_owner(
        &self,
        _caller: &Caller,
        path: String,
        owner: Option<String>,
        group: Option<String>,
    ) -> Result<(), Fault> {
        self.change("setOwner", &path, |entry| {
            entry.owner = owner.unwrap_or_else(|| entry.owner.clone());
            entry.group = group.unwrap_or_else(|| entry.group.clone());
        })
        .await
    }

    async fn set_times(
        &self,
        _caller: &Caller,
        path: String,
        modified_ms: i64,
        accessed_ms: i64,
    ) -> Result<(), Fault> {
        self.change("setTimes", &path, |entry| {
            if modified_ms != -1 {
                entry.modified_ms = modified_ms;
            }
            if accessed_ms != -1 {
                entry.accessed_ms = accessed_ms;
            }
        })
        .await
    }

    async fn get_content_summary(
        &self,
        _caller: &Caller,
        path: String,
    ) -> Result<ContentSummary, Fault> {
        self.serve("getContentSummary", &path, never, |state| {
            if !state.entries.contains_key(&path) {
                return Err(Fault::of(NOT_FOUND, format!("File does not exist: {path}")));
            }
            let below = format!("{}/", path.trim_end_matches('/'));
            let within = |other: &&String| **other == path || other.starts_with(&below);
            let found: Vec<_> = state.entries.keys().filter(within).collect();
            let statuses: Vec<_> = found.iter().filter_map(|path| state.status("", path)).collect();
            let files = statuses.iter().filter(|status| !status.is_directory);
            let count = files.clone().count() as i64;
            Ok(ContentSummary {
                length: files.map(|file| file.length).sum(),
                files: count,
                directories: statuses.len() as i64 - count,
                quota: -1,
                space_consumed: 0,
                space_quota: -1,
            })
        })
        .await
    }

    async fn get_preferred_block_size(&self, _caller: &Caller, path: String) -> Result<i64, Fault> {
        self.serve("getPreferredBlockSize", &path, never, |state| {
            let missing = || Fault::of(NOT_FOUND, format!("File does not exist: {path}"));
            state.status("", &path).map(|status| status.block_size).ok_or_else(missing)
        })
        .await
    }

    async fn get_stats(&self, _caller: &Caller) -> Result<Vec<i64>, Fault> {
        self.serve("getStats", "", never, |_| Ok(vec![0; 7])).await
    }

    async fn report_bad_blocks(
        &self,
        _caller: &Caller,
        blocks: Vec<LocatedBlock>,
    ) -> Result<(), Fault> {
        self.serve("reportBadBlocks", "", never, |state| {
            for bad in blocks {
                let [node] = bad.locations.as_slice() else {
                    return Err(Fault::io("one location was due"));
                };
                let number = state.nodes.iter().position(|other| other.name == node.name);
                let number = number.ok_or_else(|| Fault::io("an unknown node"))?;
                state.bad.insert((bad.block.id, number));
            }
            Ok(())
        })
        .await
    }

    async fn get_data_transfer_protocol_version(&self, _caller: &Caller) -> Result<i32, Fault> {
        self.serve("getDataTransferProtocolVersion", "", never, |_| Ok(DATA_VERSION)).await
    }

    async fn set_safe_mode(&self, _caller: &Caller, action: SafeModeAction) -> Result<bool, Fault> {
        self.serve("setSafeMode", "", never, |state| {
            match action {
                SafeModeAction::Enter => state.safe_mode = true,
                SafeModeAction::Leave => state.safe_mode = false,
                SafeModeAction::Get => {}
            }
            Ok(state.safe_mode)
        })
        .await
    }
}

impl NameNode {
    /// Changes an entry that exists.
    async fn change(
        &self,
        method: &'static str,
        path: &str,
        change: impl FnOnce(&mut Entry),
    ) -> Result<(), Fault> {
        self.serve(method, path, never, |state| {
            state.check_safe_mode(method, path)?;
            let missing = || Fault::of(NOT_FOUND, format!("File does not exist: {path}"));
            state.entries.get_mut(path).map(change).ok_or_else(missing)
        })
        .await
    }
}
