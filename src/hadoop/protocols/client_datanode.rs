//! Calls from clients of the distributed file system to a data node. Spec: hdfs/01 §1.3, §1.5.7.

use super::macros::protocol;
use crate::writables::{Block, DatanodeInfo, LocatedBlock};

protocol! {
    /// A data node, for clients of files that are being written. The original's interface has 17
    /// methods; these are the ones that are needed.
    pub trait ClientDatanode as "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol", version 5,
        fingerprint 454_121_162, client ClientDatanodeClient
    {
        /// The block with the length that readers can see; none if the node does not have it.
        "getBlockInfo" fn get_block_info(namespace: i32, block: Block) -> Option<Block>;

        /// Brings the replicas of a block that is written to one length and a new generation. None if
        /// no data node has any of it. `keep_length` leaves those of another length out.
        "recoverBlock" fn recover_block(
            namespace: i32,
            block: Block,
            keep_length: bool,
            nodes: Vec<DatanodeInfo>
        ) -> Option<LocatedBlock>;
    }
}
