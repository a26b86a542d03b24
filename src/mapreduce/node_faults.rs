//! Failures of attempts that their node has caused: a full disk, no free descriptors, a disk that fails. They
//! are recognised by the texts of the system and of the original in the diagnostics of an attempt.

/// What a node lacked when an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// Its disks are full.
    NoRoom,
    /// Its processes may open no more files.
    NoDescriptors,
    /// A disk does not read or write, or none is left that does.
    FailingDisk,
}

impl NodeFault {
    const TEXTS: [(&str, NodeFault); 7] = [
        // strerror(3) of ENOSPC, EMFILE, ENFILE, EIO and EROFS, which Java and Rust repeat.
        ("No space left on device", NodeFault::NoRoom),
        ("Too many open files", NodeFault::NoDescriptors),
        ("Input/output error", NodeFault::FailingDisk),
        ("Read-only file system", NodeFault::FailingDisk),
        // The original's local directories. Spec: mapreduce/04.
        ("Could not find any valid local directory", NodeFault::FailingDisk),
        ("DiskChecker$DiskErrorException", NodeFault::FailingDisk),
        ("No space available in any of the local directories", NodeFault::NoRoom),
    ];

    /// The fault that the diagnostics of a failed attempt name.
    pub fn of(diagnostics: &str) -> Option<NodeFault> {
        let named = |(text, _): &&(&str, NodeFault)| diagnostics.contains(text);
        NodeFault::TEXTS.iter().find(named).map(|(_, fault)| *fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_system_and_of_the_original_name_the_fault() {
        let table = [
            (
                "java.io.IOException: No space left on device\n\tat java.io...",
                Some(NodeFault::NoRoom),
            ),
            (
                "cannot write spill0.out: No space left on device (os error 28)",
                Some(NodeFault::NoRoom),
            ),
            ("error=24, Too many open files", Some(NodeFault::NoDescriptors)),
            ("Too many open files in system (os error 23)", Some(NodeFault::NoDescriptors)),
            (
                "org.apache.hadoop.util.DiskChecker$DiskErrorException: Could not find any valid local \
                 directory for taskTracker/jobcache/x",
                Some(NodeFault::FailingDisk),
            ),
            ("/data/1: Input/output error (os error 5)", Some(NodeFault::FailingDisk)),
            ("java.io.IOException: Read-only file system", Some(NodeFault::FailingDisk)),
            ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", None),
            ("java.lang.OutOfMemoryError: Java heap space", None),
            ("Task process exit with nonzero status of 1.", None),
            ("", None),
        ];
        for (text, fault) in table {
            assert_eq!(NodeFault::of(text), fault, "{text}");
        }
    }
}
