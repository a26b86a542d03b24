//! What clients of the distributed file system ask a data node. Spec: hdfs/01 §1.3, §1.5.7.

use super::macros::protocol;
use crate::writables::Block;

protocol! {
    /// A data node, for readers of files that are being written. The original's interface has 17
    /// methods; this is the one that is needed.
    pub trait ClientDatanode as "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol", version 5,
        fingerprint 454_121_162, client ClientDatanodeClient
    {
        /// The block with the length that readers can see; none if the node does not have it.
        "getBlockInfo" fn get_block_info(namespace: i32, block: Block) -> Option<Block>;
    }
}
