//! Settings of clients of file systems.

use std::path::PathBuf;
use std::time::Duration;

/// How files are found, read and written. Spec: hdfs/01 §1.7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemSettings {
    /// The file system of paths that name none.
    pub default_fs: String,
    /// Further name nodes of the default file system, `host:port`, in the order in which they are
    /// tried when one cannot be connected to.
    pub name_nodes: Vec<String>,
    /// The class that the configuration names for `hdfs`.
    pub hdfs_class: String,
    /// The class below it, if that is one that wraps another.
    pub hdfs_inner_class: String,
    /// A configured SOCKS server, which is refused.
    pub socks_server: String,
    /// Whether the configuration requires Kerberos, which is refused.
    pub is_secure: bool,
    /// The client's claimed user name.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Replicas of a new file.
    pub replication: i16,
    /// Bytes of a block of a new file, a multiple of `bytes_per_checksum`.
    pub block_bytes: u64,
    /// Bytes that one checksum covers in new files.
    pub bytes_per_checksum: u32,
    /// Permission bits that new files and directories do not get.
    pub umask: u16,
    /// Bytes of a packet of a block that is written.
    pub packet_bytes: u32,
    /// How long a data node may be silent.
    pub socket_timeout: Duration,
    /// Added to it for each node of a pipeline.
    pub read_extension: Duration,
    /// How long a data node may leave written data unread.
    pub write_timeout: Duration,
    /// Added to it for each node of a pipeline.
    pub write_extension: Duration,
    /// Further tries to write a block.
    pub block_write_retries: u32,
    /// Further calls for a block while the one before has too few replicas.
    pub locate_block_retries: u32,
    /// How often the name node is asked again for replicas of a block that cannot be read.
    pub max_acquire_failures: u32,
    /// The unit of the pauses before that.
    pub acquire_window: Duration,
    /// Time for one call of a name node.
    pub call_timeout: Duration,
    /// How long a connection to a name node is tried.
    pub connect_patience: Duration,
    /// How often to retry the creation of a file that another client is writing.
    pub create_retries: u32,
    /// The pause before that.
    pub create_pause: Duration,
    /// How long the end of a file may wait for its last block.
    pub close_timeout: Duration,
    /// How long a change waits for the end of safe mode; zero is not at all.
    pub safe_mode_wait: Duration,
    /// The pause between renewals of the lease.
    pub lease_renewal: Duration,
    /// Renewals that may fail, a second apart, before files are given up.
    pub lease_renewal_retries: u32,
    /// Connections to data nodes at a time.
    pub max_data_connections: usize,
    /// Connections to one name node at a time.
    pub max_name_node_connections: usize,
    /// Bytes of a packet that is read.
    pub max_packet_bytes: usize,
    /// How long a request to an object store is tried again.
    pub object_patience: Duration,
    /// Minutes that deleted files stay in the trash; 0: there is none.
    pub trash_minutes: u64,
    /// Where blocks that are written are kept until data nodes have them.
    pub buffer_dir: PathBuf,
}

impl Default for FileSystemSettings {
    fn default() -> FileSystemSettings {
        FileSystemSettings {
            default_fs: "file:///".to_owned(),
            name_nodes: Vec::new(),
            hdfs_class: "org.apache.hadoop.hdfs.DistributedFileSystem".to_owned(),
            hdfs_inner_class: String::new(),
            socks_server: String::new(),
            is_secure: false,
            user: "nobody".to_owned(),
            groups: Vec::new(),
            replication: 3,
            block_bytes: 64 << 20,
            bytes_per_checksum: 512,
            umask: 0o022,
            packet_bytes: 64 << 10,
            socket_timeout: Duration::from_secs(60),
            read_extension: Duration::from_secs(3),
            write_timeout: Duration::from_secs(480),
            write_extension: Duration::from_secs(5),
            block_write_retries: 3,
            locate_block_retries: 5,
            max_acquire_failures: 3,
            acquire_window: Duration::from_secs(3),
            call_timeout: Duration::from_secs(60),
            connect_patience: Duration::from_secs(11),
            create_retries: 5,
            create_pause: Duration::from_secs(60),
            close_timeout: Duration::from_secs(300),
            safe_mode_wait: Duration::ZERO,
            lease_renewal: Duration::from_secs(30),
            lease_renewal_retries: 10,
            max_data_connections: 64,
            max_name_node_connections: 8,
            max_packet_bytes: 2 << 20,
            object_patience: Duration::from_secs(120),
            trash_minutes: 1440,
            buffer_dir: std::env::temp_dir(),
        }
    }
}
