//! Calls of a name node: connections, what is tried again, and what failures mean.
//!
//! A call that only asks is repeated when its reply is lost. One that changes something is not,
//! unless it says how to find out whether it was done. Spec: hdfs/01 §1.3, §1.4.7, §1.8.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use crate::{Counters, ErrorKind, FileSystemSettings, FsError};
use corona_hadoop::protocols::client_protocol::NameNodeClient;
use corona_hadoop::rpc::{CallError, ClientOptions, User};
use corona_hadoop::writables::{
    Block, ContentSummary, DatanodeId, DatanodeInfo, DirectoryListing, FsPermission,
    HdfsFileStatus, InetAddress, LocatedBlock, LocatedBlockWithMetaInfo,
    LocatedBlockWithOldGeneration, LocatedBlocksWithMetaInfo,
};
use corona_net::Backoff;

/// Calls that only ask are tried so often when their reply is lost.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt; each further one is twice as long.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::MAX);
/// Pauses of calls that wait for the end of safe mode. Spec: hdfs/01 §1.4.9.
const SAFE_MODE_PAUSES: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(60));
/// Bytes of a reply: 1000 entries of a directory, or the blocks of a large file.
const MAX_REPLY_BYTES: usize = 16 << 20;
/// Bytes of a call.
const MAX_CALL_BYTES: usize = 1 << 20;

/// The name node of a namespace, at one of its addresses.
#[derive(Debug)]
pub(super) struct NameNode {
    addresses: Vec<InetAddress>,
    /// The address that was reached last.
    current: AtomicUsize,
    idle: Mutex<Vec<(usize, NameNodeClient)>>,
    permits: Semaphore,
    options: ClientOptions,
    settings: Arc<FileSystemSettings>,
    counters: Arc<Counters>,
}

/// A connection that somebody uses. A call that is given up takes the connection with it.
struct Lent<'a> {
    number: usize,
    client: NameNodeClient,
    _permit: SemaphorePermit<'a>,
}

/// Calls a method over a connection of its own, and gives the result with the failure as it came.
macro_rules! exchange {
    ($self:ident, $client:ident => $call:expr) => {
        async {
            let mut lent = $self.lend().await;
            $self.counters.calls.add(1);
            let $client = &mut lent.client;
            let result = $call.await;
            $self.give_back(lent, &result);
            result
        }
    };
}

/// A call that only asks.
macro_rules! ask {
    ($self:ident, $name:literal, $path:expr, $client:ident => $call:expr) => {{
        let (mut attempt, mut pauses) = (1, PAUSES);
        loop {
            let result = exchange!($self, $client => $call).await;
            match result {
                Err(error) if attempt < ATTEMPTS && is_lost(&error) => {
                    tracing::debug!(call = $name, %error, "the name node is asked again");
                    sleep(pauses.pause()).await;
                    attempt += 1;
                }
                result => break result.map_err(|error| $self.failed(error, $name, $path)),
            }
        }
    }};
}

/// A call that changes something. It waits for the end of safe mode as long as is configured.
macro_rules! change {
    ($self:ident, $name:literal, $path:expr, $client:ident => $call:expr) => {{
        let deadline = Instant::now() + $self.settings.safe_mode_wait;
        let mut pauses = SAFE_MODE_PAUSES;
        loop {
            let result = exchange!($self, $client => $call).await;
            let is_lost = result.as_ref().is_err_and(is_lost);
            match result.map_err(|error| $self.failed(error, $name, $path)) {
                Err(error)
                    if error.kind == ErrorKind::SafeMode
                        && Instant::now() + pauses.upcoming() <= deadline =>
                {
                    tracing::info!(%error, "waiting for the end of safe mode");
                    sleep(pauses.pause()).await;
                }
                Err(error) => {
                    let kind = if is_lost { ErrorKind::Unknown } else { error.kind };
                    break Err(FsError { kind, ..error });
                }
                result => break result,
            }
        }
    }};
}

/// Whether the call may have been carried out although no reply came.
fn is_lost(error: &CallError) -> bool {
    matches!(error, CallError::Closed | CallError::Io(_) | CallError::Timeout(_))
}

impl NameNode {
    /// A name node that may be at any of these addresses, which are tried in this order.
    pub(super) fn new(
        addresses: Vec<InetAddress>,
        settings: Arc<FileSystemSettings>,
        counters: Arc<Counters>,
    ) -> NameNode {
        let user = User { name: settings.user.clone(), groups: settings.groups.clone() };
        let patience = settings.connect_patience;
        let options = ClientOptions {
            call_timeout: Some(settings.call_timeout),
            attempt_timeout: settings.call_timeout.min(Duration::from_secs(20)),
            // With several addresses the next one is tried instead.
            connect_patience: if addresses.len() > 1 { Duration::ZERO } else { patience },
            max_call_bytes: MAX_CALL_BYTES,
            max_reply_bytes: MAX_REPLY_BYTES,
            ..ClientOptions::new(user)
        };
        NameNode {
            addresses,
            current: AtomicUsize::new(0),
            idle: Mutex::default(),
            permits: Semaphore::new(settings.max_name_node_connections.max(1)),
            options,
            settings,
            counters,
        }
    }

    /// Where it is, or was last.
    pub(super) fn address(&self) -> &InetAddress {
        self.address_at(self.current.load(Ordering::Relaxed))
    }

    /// The address with this number, counted round.
    #[allow(clippy::indexing_slicing, reason = "a name node has an address: see `Hdfs::new`")]
    fn address_at(&self, number: usize) -> &InetAddress {
        &self.addresses[number % self.addresses.len()]
    }

    /// A connection, which need not be open. Where there are several addresses, one that can be
    /// connected to: nothing has been sent before that is known.
    async fn lend(&self) -> Lent<'_> {
        // The semaphore is never closed.
        let permit = match self.permits.acquire().await {
            Ok(permit) => permit,
            Err(_) => unreachable!("the semaphore is never closed"),
        };
        let count = self.addresses.len();
        let first = self.current.load(Ordering::Relaxed) % count;
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(number, _)| *number == first);
            idle.pop()
        };
        let make = |number: usize| {
            NameNodeClient::new(self.address_at(number).clone(), self.options.clone())
        };
        let (mut number, mut client) = idle.unwrap_or_else(|| (first, make(first)));
        if count > 1 && !client.client().is_connected() {
            // One that has lost its connection would not try it again before its next call.
            client = make(number);
            let mut tried = 1;
            while let Err(error) = client.greet().await {
                if !error.is_connect() || tried == count {
                    break;
                }
                let next = (number + 1) % count;
                tracing::warn!(%error, next = %self.address_at(next), "another name node is tried");
                (number, client, tried) = (next, make(next), tried + 1);
            }
        }
        Lent { number, client, _permit: permit }
    }

    fn give_back<T>(&self, lent: Lent<'_>, result: &Result<T, CallError>) {
        if matches!(result, Ok(_) | Err(CallError::Remote(_))) {
            self.current.store(lent.number, Ordering::Relaxed);
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((lent.number, lent.client));
        }
    }

    fn failed(&self, error: CallError, call: &'static str, path: &str) -> FsError {
        let is_no_such_method =
            matches!(&error, CallError::Remote(remote) if remote.is_no_such_method());
        let mut error = FsError::of_call(error, call, path, self.address());
        if is_no_such_method {
            error.kind = ErrorKind::Unsupported;
            error.message = format!("the name node has no method {call}: it is of another version");
        }
        error
    }

    pub(super) async fn status(&self, path: &str) -> Result<Option<HdfsFileStatus>, FsError> {
        ask!(self, "getHdfsFileInfo", path, client => client.get_hdfs_file_info(path.to_owned()))
    }

    pub(super) async fn listing(
        &self,
        path: &str,
        after: &[u8],
    ) -> Result<Option<DirectoryListing>, FsError> {
        let after: Vec<i8> = after.iter().map(|byte| byte.cast_signed()).collect();
        ask!(self, "getPartialListing", path, client => {
            client.get_partial_listing(path.to_owned(), after.clone())
        })
    }

    pub(super) async fn blocks(
        &self,
        path: &str,
        offset: u64,
        length: u64,
    ) -> Result<Option<LocatedBlocksWithMetaInfo>, FsError> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        // The sum must not overflow there. Spec: hdfs/01 §1.3.3.
        let length = i64::try_from(length).unwrap_or(i64::MAX).min(i64::MAX - offset);
        ask!(self, "openAndFetchMetaInfo", path, client => {
            client.open_and_fetch_meta_info(path.to_owned(), offset, length)
        })
    }

    pub(super) async fn summary(&self, path: &str) -> Result<ContentSummary, FsError> {
        ask!(self, "getContentSummary", path, client => {
            client.get_content_summary(path.to_owned())
        })
    }

    /// Making a directory twice does no harm.
    pub(super) async fn mkdirs(&self, path: &str, permission: u16) -> Result<bool, FsError> {
        let permission = FsPermission(permission);
        let mut result = change!(self, "mkdirs", path, client => {
            client.mkdirs(path.to_owned(), permission)
        });
        if result.as_ref().is_err_and(|error| error.kind == ErrorKind::Unknown) {
            result = change!(self, "mkdirs", path, client => {
                client.mkdirs(path.to_owned(), permission)
            });
        }
        result
    }

    pub(super) async fn create(
        &self,
        path: &str,
        client_name: &str,
        permission: u16,
        overwrite: bool,
        (replication, block_bytes): (i16, u64),
    ) -> Result<(), FsError> {
        let block_bytes = i64::try_from(block_bytes).unwrap_or(i64::MAX);
        change!(self, "create", path, client => client.create(
            path.to_owned(),
            FsPermission(permission),
            client_name.to_owned(),
            overwrite,
            true,
            replication,
            block_bytes,
        ))
    }

    /// Opens a file to be written at its end. None: its last block is full, or it has none.
    pub(super) async fn append(
        &self,
        path: &str,
        client_name: &str,
    ) -> Result<Option<LocatedBlockWithOldGeneration>, FsError> {
        change!(self, "appendAndFetchOldGS", path, client => {
            client.append_and_fetch_old_generation(path.to_owned(), client_name.to_owned())
        })
    }

    /// A call that may be repeated.
    pub(super) async fn update_pipeline(
        &self,
        client_name: &str,
        old: Block,
        new: Block,
        nodes: &[DatanodeInfo],
    ) -> Result<(), FsError> {
        let id = |node: &DatanodeInfo| DatanodeId {
            name: node.name.clone(),
            storage: node.storage.clone(),
            info_port: node.info_port,
        };
        let nodes: Vec<_> = nodes.iter().map(id).collect();
        ask!(self, "updatePipeline", "", client => {
            client.update_pipeline(client_name.to_owned(), old, new, nodes.clone())
        })
    }

    pub(super) async fn abandon_file(&self, path: &str, client_name: &str) -> Result<(), FsError> {
        change!(self, "abandonFile", path, client => {
            client.abandon_file(path.to_owned(), client_name.to_owned())
        })
    }

    pub(super) async fn add_block(
        &self,
        path: &str,
        client_name: &str,
        excluded: &[DatanodeInfo],
        start: u64,
        last: Option<Block>,
    ) -> Result<LocatedBlockWithMetaInfo, FsError> {
        let excluded = (!excluded.is_empty()).then(|| excluded.to_vec());
        let start = i64::try_from(start).unwrap_or(i64::MAX);
        change!(self, "addBlockAndFetchMetaInfo", path, client => {
            client.add_block_and_fetch_meta_info(
                path.to_owned(),
                client_name.to_owned(),
                excluded.clone(),
                None,
                start,
                last,
            )
        })
    }

    pub(super) async fn abandon_block(
        &self,
        block: Block,
        path: &str,
        client_name: &str,
    ) -> Result<(), FsError> {
        change!(self, "abandonBlock", path, client => {
            client.abandon_block(block, path.to_owned(), client_name.to_owned())
        })
    }

    /// A call that may be repeated. False: not yet.
    pub(super) async fn complete(
        &self,
        path: &str,
        client_name: &str,
        length: u64,
        last: Option<Block>,
    ) -> Result<bool, FsError> {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        change!(self, "complete", path, client => {
            client.complete(path.to_owned(), client_name.to_owned(), length, last)
        })
    }

    /// Extends leases. It is the caller who tries again.
    pub(super) async fn renew_lease(&self, client_name: &str) -> Result<(), FsError> {
        let result = exchange!(self, client => client.renew_lease(client_name.to_owned())).await;
        result.map_err(|error| self.failed(error, "renewLease", ""))
    }

    pub(super) async fn fsync(&self, path: &str, client_name: &str) -> Result<(), FsError> {
        ask!(self, "fsync", path, client => {
            client.fsync(path.to_owned(), client_name.to_owned())
        })
    }

    /// Renames. When the reply is lost, statuses tell whether it was done.
    pub(super) async fn rename(&self, from: &str, to: &str) -> Result<bool, FsError> {
        let result = change!(self, "rename", from, client => {
            client.rename(from.to_owned(), to.to_owned())
        });
        match result {
            Err(error) if error.kind == ErrorKind::Unknown => match self.status(from).await? {
                None => Ok(self.status(to).await?.is_some()),
                Some(_) => change!(self, "rename", from, client => {
                    client.rename(from.to_owned(), to.to_owned())
                }),
            },
            result => result,
        }
    }

    /// Deletes. When the reply is lost, a status call shows whether it was done.
    pub(super) async fn delete(&self, path: &str, recursive: bool) -> Result<bool, FsError> {
        let result = change!(self, "delete", path, client => {
            client.delete(path.to_owned(), recursive)
        });
        match result {
            Err(error) if error.kind == ErrorKind::Unknown => match self.status(path).await? {
                None => Ok(true),
                Some(_) => change!(self, "delete", path, client => {
                    client.delete(path.to_owned(), recursive)
                }),
            },
            result => result,
        }
    }

    pub(super) async fn set_permission(&self, path: &str, bits: u16) -> Result<(), FsError> {
        change!(self, "setPermission", path, client => {
            client.set_permission(path.to_owned(), FsPermission(bits))
        })
    }

    pub(super) async fn set_owner(
        &self,
        path: &str,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<(), FsError> {
        change!(self, "setOwner", path, client => {
            client.set_owner(path.to_owned(), owner.map(str::to_owned), group.map(str::to_owned))
        })
    }

    pub(super) async fn set_times(
        &self,
        path: &str,
        modified_ms: i64,
        accessed_ms: i64,
    ) -> Result<(), FsError> {
        change!(self, "setTimes", path, client => {
            client.set_times(path.to_owned(), modified_ms, accessed_ms)
        })
    }

    pub(super) async fn set_replication(&self, path: &str, count: i16) -> Result<bool, FsError> {
        change!(self, "setReplication", path, client => {
            client.set_replication(path.to_owned(), count)
        })
    }

    /// Reports one replica whose bytes do not fit their checksums. Spec: hdfs/01 §1.5.6.
    pub(super) async fn report_bad_block(
        &self,
        path: &str,
        block: Block,
        node: &DatanodeInfo,
    ) -> Result<(), FsError> {
        let bad = LocatedBlock { corrupt: false, offset: -1, block, locations: vec![node.clone()] };
        change!(self, "reportBadBlocks", path, client => {
            client.report_bad_blocks(vec![bad.clone()])
        })
    }
}
