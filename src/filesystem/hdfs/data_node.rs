//! Calls of a data node's RPC, for files that are being written. Spec: hdfs/01 §1.5.7.

use std::time::Duration;

use tokio::time::timeout;

use super::HdfsContext;
use super::connection::too_slow;
use crate::{ErrorKind, FsError};
use corona_hadoop::protocols::client_datanode::ClientDatanodeClient;
use corona_hadoop::rpc::{CallError, ClientOptions, User};
use corona_hadoop::writables::{Block, DatanodeInfo, InetAddress, LocatedBlock};

/// Bytes of a reply.
const MAX_REPLY_BYTES: usize = 64 << 10;
/// How long a question may take.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The exception that says that a block is complete, since somebody has closed its file.
const COMMITTED: &str = "BlockAlreadyCommittedException";

impl HdfsContext {
    /// The block as a data node's readers see it; none if the node does not have it.
    pub(super) async fn visible_block(
        &self,
        node: &DatanodeInfo,
        namespace: i32,
        block: Block,
    ) -> Result<Option<Block>, FsError> {
        let due = self.settings.call_timeout.min(QUESTION_TIMEOUT);
        let mut client = self.client(node, due);
        within("getBlockInfo", node, 2 * due, client.get_block_info(namespace, block)).await
    }

    /// Has a data node bring the replicas of a block to one length and a new generation. It asks the
    /// name node and the other data nodes, each with a time-out of its own.
    pub(super) async fn recover(
        &self,
        primary: &DatanodeInfo,
        namespace: i32,
        block: Block,
        nodes: &[DatanodeInfo],
    ) -> Result<Option<LocatedBlock>, FsError> {
        // Three calls of data nodes and two of the name node, as in the original.
        let due = 5 * self.settings.socket_timeout;
        let mut client = self.client(primary, due);
        let recovered = client.recover_block(namespace, block, false, nodes.to_vec());
        within("recoverBlock", primary, due, recovered).await
    }

    fn client(&self, node: &DatanodeInfo, due: Duration) -> ClientDatanodeClient {
        let host = node.name.rsplit_once(':').map_or(node.name.as_str(), |(host, _)| host);
        let address = InetAddress { host: host.to_owned(), port: node.ipc_port };
        let user = User { name: self.settings.user.clone(), groups: self.settings.groups.clone() };
        let options = ClientOptions {
            call_timeout: Some(due),
            attempt_timeout: due,
            connect_patience: Duration::ZERO,
            max_reply_bytes: MAX_REPLY_BYTES,
            ..ClientOptions::new(user)
        };
        ClientDatanodeClient::new(address, options)
    }
}

async fn within<T>(
    call: &'static str,
    node: &DatanodeInfo,
    due: Duration,
    asked: impl Future<Output = Result<T, CallError>>,
) -> Result<T, FsError> {
    let Ok(answer) = timeout(due, asked).await else {
        return Err(too_slow(call, node, "no answer", due));
    };
    answer.map_err(|error| {
        // A data node passes on what the name node has said.
        let is_committed = matches!(&error, CallError::Remote(remote)
            if remote.class.as_deref().is_some_and(|class| class.ends_with(COMMITTED))
                || remote.message().contains(COMMITTED));
        let error = FsError::of_call(error, call, "", &node.name);
        let kind = if is_committed { ErrorKind::Lease } else { error.kind };
        FsError { kind, ..error }
    })
}
