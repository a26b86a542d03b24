//! Files of jobs as this program's job tracker gives and takes them. The original has none of these.

use super::writable;
use crate::io::formats::{Bool, Bytes, Int, List, Long, Plain, Text};

writable! {
    /// A piece of a file.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct FilePiece: "corona.FilePiece" {
        /// Its contents; fewer than requested at the end of the file.
        pub bytes: Vec<u8> as Bytes,
    }
}

writable! {
    /// A file or a directory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JobFileStatus: "corona.JobFileStatus" {
        /// Whether it is a directory.
        pub is_directory: bool as Bool,
        /// Bytes of a file, 0 of a directory.
        pub bytes: i64 as Long,
        /// When it was last changed, in milliseconds since 1970.
        pub modified_ms: i64 as Long,
    }
}

writable! {
    /// An entry of a directory.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct JobFileEntry: "corona.JobFileEntry" {
        /// The last part of its path.
        pub name: String as Text,
        /// Its kind, length and time.
        pub status: JobFileStatus as Plain,
    }
}

writable! {
    /// Some entries of a directory, in the order of the bytes of their names.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct JobFilePage: "corona.JobFilePage" {
        /// The entries.
        pub entries: Vec<JobFileEntry> as List<Int, Plain>,
        /// Whether there are more behind the last one.
        pub has_more: bool as Bool,
    }
}
