//! Calls from clients of the distributed file system to its name node. Spec: hdfs/01 §1.3.

use super::macros::protocol;
use crate::writables::{
    Block, ContentSummary, DatanodeId, DatanodeInfo, DirectoryListing, FsPermission,
    HdfsFileStatus, LocatedBlock, LocatedBlockWithMetaInfo, LocatedBlockWithOldGeneration,
    LocatedBlocksWithMetaInfo, SafeModeAction,
};

protocol! {
    /// A name node, for clients. The original's interface has 74 methods; a client of its present
    /// version needs only these. Paths are absolute, without scheme and authority.
    pub trait NameNode as "org.apache.hadoop.hdfs.protocol.ClientProtocol", version 56,
        fingerprint -168_836_384, client NameNodeClient
    {
        /// A file or directory; none if the path does not exist.
        "getHdfsFileInfo" fn get_hdfs_file_info(path: String) -> Option<HdfsFileStatus>;

        /// The entries after this name, possibly not all; none if the path does not exist.
        "getPartialListing" fn get_partial_listing(
            path: String,
            after: Vec<i8>
        ) -> Option<DirectoryListing>;

        /// The blocks that meet a range; none for a directory, a missing file, and a range that
        /// begins at the end of the file or behind it.
        "openAndFetchMetaInfo" fn open_and_fetch_meta_info(
            path: String,
            offset: i64,
            length: i64
        ) -> Option<LocatedBlocksWithMetaInfo>;

        /// Makes a directory and those above it.
        "mkdirs" fn mkdirs(path: String, permission: FsPermission) -> bool;

        /// Makes a file that the client of this name writes.
        "create" fn create(
            path: String,
            permission: FsPermission,
            client: String,
            overwrite: bool,
            create_parent: bool,
            replication: i16,
            block_size: i64
        ) -> ();

        /// Opens a complete file to be written at its end. Gives its last block in a new generation,
        /// with the length that it has; `None` if the last block is full or the file is empty.
        "appendAndFetchOldGS" fn append_and_fetch_old_generation(
            path: String,
            client: String
        ) -> Option<LocatedBlockWithOldGeneration>;

        /// Says that the replicas of a block that is appended to have the new generation.
        "updatePipeline" fn update_pipeline(
            client: String,
            old: Block,
            new: Block,
            nodes: Vec<DatanodeId>
        ) -> ();

        /// Closes a file with what data nodes have of it, some time later.
        "abandonFile" fn abandon_file(path: String, client: String) -> ();

        /// Adds a block to a file that is written. `start` counts the bytes before it, `last` is the
        /// block before it.
        "addBlockAndFetchMetaInfo" fn add_block_and_fetch_meta_info(
            path: String,
            client: String,
            excluded: Option<Vec<DatanodeInfo>>,
            favored: Option<Vec<DatanodeInfo>>,
            start: i64,
            last: Option<Block>
        ) -> LocatedBlockWithMetaInfo;

        /// Takes the last block out of a file that is written.
        "abandonBlock" fn abandon_block(block: Block, path: String, client: String) -> ();

        /// Ends the writing of a file. False: not yet, data nodes have not reported the last block.
        "complete" fn complete(
            path: String,
            client: String,
            length: i64,
            last: Option<Block>
        ) -> bool;

        /// Extends the lease of all files that the client writes.
        "renewLease" fn renew_lease(client: String) -> ();

        /// Makes the blocks of a file that is written last over a restart of the name node.
        "fsync" fn fsync(path: String, client: String) -> ();

        /// Renames, or moves into a directory. False if that cannot be.
        "rename" fn rename(from: String, to: String) -> bool;

        /// Deletes. False if there was nothing.
        "delete" fn delete(path: String, recursive: bool) -> bool;

        /// Changes how many replicas a file should have. False if the file does not exist.
        "setReplication" fn set_replication(path: String, replication: i16) -> bool;

        /// Changes the permissions.
        "setPermission" fn set_permission(path: String, permission: FsPermission) -> ();

        /// Changes owner and group; none leaves one as it is.
        "setOwner" fn set_owner(path: String, owner: Option<String>, group: Option<String>) -> ();

        /// Changes times in milliseconds since 1970; -1 leaves one as it is.
        "setTimes" fn set_times(path: String, modified_ms: i64, accessed_ms: i64) -> ();

        /// Totals of the tree below a path.
        "getContentSummary" fn get_content_summary(path: String) -> ContentSummary;

        /// Bytes of a full block of a file.
        "getPreferredBlockSize" fn get_preferred_block_size(path: String) -> i64;

        /// Sums over all data nodes: capacity, used and remaining bytes; blocks with too few
        /// replicas, with bad ones only, with none; bytes that this namespace uses.
        "getStats" fn get_stats() -> Vec<i64>;

        /// Reports replicas whose bytes do not fit their checksums.
        "reportBadBlocks" fn report_bad_blocks(blocks: Vec<LocatedBlock>) -> ();

        /// The version of the protocol for data.
        "getDataTransferProtocolVersion" fn get_data_transfer_protocol_version() -> i32;

        /// Starts, ends or queries safe mode; returns whether it is on.
        "setSafeMode" fn set_safe_mode(action: SafeModeAction) -> bool;
    }
}
