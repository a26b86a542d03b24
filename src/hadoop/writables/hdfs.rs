//! Files, directories, blocks and data nodes as the distributed file system describes them.
//! Spec: hdfs/01 §1.2.

use super::{constants, named, writable};
use crate::io::formats::{
    Bool, Bytes, Enum, Format, Int, List, Long, Plain, Short, Text, Utf8, Writable,
};
use crate::io::{DecodeError, Reader, Writer};

/// A port as a Java `short` without a sign.
#[derive(Debug)]
struct Port;

impl Format<u16> for Port {
    fn decode(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
        reader.u16()
    }

    fn encode(value: &u16, writer: &mut Writer) {
        writer.u16(*value);
    }
}

/// Permissions of a file: `rwxrwxrwx` in the low nine bits. Readers ignore the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsPermission(pub u16);

impl Writable for FsPermission {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u16().map(FsPermission)
    }

    fn encode(&self, writer: &mut Writer) {
        writer.u16(self.0);
    }
}

named!(FsPermission: "org.apache.hadoop.fs.permission.FsPermission");

constants! {
    /// Whether a data node is being taken out of service.
    pub enum DatanodeAdminState: "org.apache.hadoop.hdfs.protocol.DatanodeInfo$AdminStates" {
        /// In service.
        Normal = "NORMAL",
        /// Its blocks are being copied to others.
        DecommissionInProgress = "DECOMMISSION_INPROGRESS",
        /// Out of service.
        Decommissioned = "DECOMMISSIONED",
    }
}

constants! {
    /// The request about safe mode.
    pub enum SafeModeAction: "org.apache.hadoop.hdfs.protocol.FSConstants$SafeModeAction" {
        /// End it.
        Leave = "SAFEMODE_LEAVE",
        /// Begin it.
        Enter = "SAFEMODE_ENTER",
        /// Only ask.
        Get = "SAFEMODE_GET",
    }
}

writable! {
    /// A block of a file, in one of its generations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Block: "org.apache.hadoop.hdfs.protocol.Block" {
        /// The id, of any sign.
        pub id: i64 as Long,
        /// Its length in bytes; 0 while it is written.
        pub bytes: i64 as Long,
        /// The generation stamp.
        pub generation: i64 as Long,
    }
}

writable! {
    /// A data node's name and storage.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct DatanodeId: "org.apache.hadoop.hdfs.protocol.DatanodeID" {
        /// Address and port for data: `ip:port`.
        pub name: String as Utf8,
        /// The id of its storage.
        pub storage: String as Utf8,
        /// The port of its pages.
        pub info_port: u16 as Port,
    }
}

writable! {
    /// A data node and the name node's knowledge of it. Clients send it back unchanged.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct DatanodeInfo: "org.apache.hadoop.hdfs.protocol.DatanodeInfo" {
        /// Address and port for data: `ip:port`.
        pub name: String as Utf8,
        /// The id of its storage.
        pub storage: String as Utf8,
        /// The port of its pages.
        pub info_port: u16 as Port,
        /// The port of its RPC.
        pub ipc_port: u16 as Port,
        /// Bytes in all.
        pub capacity: i64 as Long,
        /// Bytes that blocks take.
        pub used: i64 as Long,
        /// Bytes that are free for blocks.
        pub remaining: i64 as Long,
        /// The time of its last heartbeat, in milliseconds since 1970.
        pub last_update_ms: i64 as Long,
        /// Connections for data that are open.
        pub transfers: i32 as Int,
        /// The path of its rack.
        pub rack: String as Text,
        /// Its host's name; may be empty.
        pub host: String as Text,
        /// Whether it is in service.
        pub admin_state: DatanodeAdminState as Enum,
    }
}

writable! {
    /// A block, its place in a file and the data nodes that have it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LocatedBlock: "org.apache.hadoop.hdfs.protocol.LocatedBlock" {
        /// All known replicas are bad, or there is none.
        pub corrupt: bool as Bool,
        /// Where it begins in the file.
        pub offset: i64 as Long,
        /// The block's id, length and generation.
        pub block: Block as Plain,
        /// Where it is, the best place first.
        pub locations: Vec<DatanodeInfo> as List<Int, Plain>,
    }
}

writable! {
    /// The same with the version of the protocol for data.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct VersionedLocatedBlock: "org.apache.hadoop.hdfs.protocol.VersionedLocatedBlock" {
        /// The data nodes' version.
        pub data_version: i32 as Int,
        /// The block.
        pub located: LocatedBlock as Plain,
    }
}

writable! {
    /// A new block with all that is needed to write it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LocatedBlockWithMetaInfo:
        "org.apache.hadoop.hdfs.protocol.LocatedBlockWithMetaInfo"
    {
        /// The name node's namespace, which data nodes ask for.
        pub namespace: i32 as Int,
        /// The fingerprint of the name node's methods.
        pub fingerprint: i32 as Int,
        /// The version of the protocol for data.
        pub data_version: i32 as Int,
        /// The block.
        pub located: LocatedBlock as Plain,
    }
}

writable! {
    /// A block that is appended to, with the generation that it had.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LocatedBlockWithOldGeneration:
        "org.apache.hadoop.hdfs.protocol.LocatedBlockWithOldGS"
    {
        /// The block in its new generation.
        pub located: LocatedBlockWithMetaInfo as Plain,
        /// The generation that it had.
        pub old_generation: i64 as Long,
    }
}

writable! {
    /// Some blocks of a file.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LocatedBlocks: "org.apache.hadoop.hdfs.protocol.LocatedBlocks" {
        /// Bytes in the whole file, without a block that is being written.
        pub file_bytes: i64 as Long,
        /// Whether a client is writing the file.
        pub under_construction: bool as Bool,
        /// The blocks in the order of the file.
        pub blocks: Vec<LocatedBlock> as List<Int, Plain>,
    }
}

writable! {
    /// The same with the version of the protocol for data.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct VersionedLocatedBlocks: "org.apache.hadoop.hdfs.protocol.VersionedLocatedBlocks" {
        /// The data nodes' version.
        pub data_version: i32 as Int,
        /// The blocks.
        pub located: LocatedBlocks as Plain,
    }
}

writable! {
    /// Some blocks of a file with all that is needed to read them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LocatedBlocksWithMetaInfo:
        "org.apache.hadoop.hdfs.protocol.LocatedBlocksWithMetaInfo"
    {
        /// The name node's namespace, which data nodes ask for.
        pub namespace: i32 as Int,
        /// The fingerprint of the name node's methods.
        pub fingerprint: i32 as Int,
        /// The version of the protocol for data.
        pub data_version: i32 as Int,
        /// The blocks.
        pub located: LocatedBlocks as Plain,
    }
}

writable! {
    /// A file or a directory, without its path.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HdfsFileStatus: "org.apache.hadoop.hdfs.protocol.HdfsFileStatus" {
        /// The last part of the path as UTF-8; empty for the requested path itself.
        pub name: Vec<u8> as Bytes,
        /// Bytes of a file; the number of entries of a directory.
        pub length: i64 as Long,
        /// Whether it is a directory.
        pub is_directory: bool as Bool,
        /// Replicas that each block should have; 0 for a directory.
        pub replication: i16 as Short,
        /// Bytes of a full block; 0 for a directory.
        pub block_size: i64 as Long,
        /// When it was last changed, in milliseconds since 1970.
        pub modified_ms: i64 as Long,
        /// When it was last read, in milliseconds since 1970; 0 for a directory.
        pub accessed_ms: i64 as Long,
        /// Who may read, write and enter it.
        pub permission: FsPermission as Plain,
        /// The user to whom it belongs.
        pub owner: String as Text,
        /// The group to which it belongs.
        pub group: String as Text,
    }
}

writable! {
    /// A file or a directory with its full path, as older calls give it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FsFileStatus: "org.apache.hadoop.fs.FileStatus" {
        /// The full path.
        pub path: String as Text,
        /// Bytes of a file; the number of entries of a directory.
        pub length: i64 as Long,
        /// Whether it is a directory.
        pub is_directory: bool as Bool,
        /// Replicas that each block should have; 0 for a directory.
        pub replication: i16 as Short,
        /// Bytes of a full block; 0 for a directory.
        pub block_size: i64 as Long,
        /// When it was last changed, in milliseconds since 1970.
        pub modified_ms: i64 as Long,
        /// When it was last read, in milliseconds since 1970; 0 for a directory.
        pub accessed_ms: i64 as Long,
        /// Who may read, write and enter it.
        pub permission: FsPermission as Plain,
        /// The user to whom it belongs.
        pub owner: String as Text,
        /// The group to which it belongs.
        pub group: String as Text,
    }
}

writable! {
    /// Some entries of a directory, in the order of the bytes of their names.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DirectoryListing: "org.apache.hadoop.hdfs.protocol.DirectoryListing" {
        /// The entries.
        pub entries: Vec<HdfsFileStatus> as List<Int, Plain>,
        /// How many more there are.
        pub remaining: i32 as Int,
    }
}

/// Some entries of a directory with the blocks of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedDirectoryListing {
    /// The entries.
    pub listing: DirectoryListing,
    /// The blocks of each entry, in the order of the entries.
    pub blocks: Vec<LocatedBlocks>,
}

impl Writable for LocatedDirectoryListing {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let listing = DirectoryListing::decode(reader)?;
        let mut blocks = Vec::new();
        for _ in &listing.entries {
            blocks.push(LocatedBlocks::decode(reader)?);
        }
        Ok(LocatedDirectoryListing { listing, blocks })
    }

    fn encode(&self, writer: &mut Writer) {
        self.listing.encode(writer);
        for blocks in &self.blocks {
            blocks.encode(writer);
        }
    }
}

named!(LocatedDirectoryListing: "org.apache.hadoop.hdfs.protocol.LocatedDirectoryListing");

writable! {
    /// Totals of the tree below a directory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ContentSummary: "org.apache.hadoop.fs.ContentSummary" {
        /// Bytes of all files.
        pub length: i64 as Long,
        /// All files below it.
        pub files: i64 as Long,
        /// Directories, itself included.
        pub directories: i64 as Long,
        /// The most names allowed; -1 for any number.
        pub quota: i64 as Long,
        /// Bytes of all replicas.
        pub space_consumed: i64 as Long,
        /// The most bytes of replicas allowed; -1 for any number.
        pub space_quota: i64 as Long,
    }
}
