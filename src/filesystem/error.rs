//! Why something with a file fails: the kind, the path, the call and the server.

use std::fmt;
use std::io;

use crate::path::NotAPath;
use corona_hadoop::rpc::{CallError, RemoteError};

/// A failure that names what was done, to which path, and who refused.
#[derive(Debug)]
pub struct FsError {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What was called, such as `create`.
    pub call: &'static str,
    /// The path; empty if it concerns none.
    pub path: String,
    /// The name node or data node; none on this machine.
    pub server: Option<String>,
    /// What the server or the system said.
    pub message: String,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no such file or directory.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// A file is needed and this is a directory.
    IsADirectory,
    /// A directory is needed and this is a file.
    NotADirectory,
    /// The directory has entries.
    NotEmpty,
    /// The user may not do this.
    Permission,
    /// The name node is in safe mode and changes nothing.
    SafeMode,
    /// The file is not this writer's any more.
    Lease,
    /// Somebody else writes the file, or this client does already.
    BeingWritten,
    /// A quota of names or of space is used up.
    Quota,
    /// No data node takes the block.
    NoSpace,
    /// The name of the server has no address.
    NoSuchHost,
    /// The server cannot be reached, or the connection broke.
    Connection,
    /// The server did not answer in time.
    TooSlow,
    /// Bytes that do not fit their checksums, in every replica.
    Checksum,
    /// No data node that can be reached has the block.
    BlockMissing,
    /// The file system does not accept the path or a number.
    Invalid,
    /// The scheme, class or version is not supported.
    Unsupported,
    /// What the server sent makes no sense.
    Malformed,
    /// A reply was lost: it is not known whether the change was made.
    Unknown,
    /// The name node is not ready for this; later it may be.
    NotYet,
    /// Any other refusal of the server.
    Remote,
    /// The system refused.
    Io,
}

impl FsError {
    /// A failure on this machine, or before anything is sent.
    pub fn new(
        kind: ErrorKind,
        call: &'static str,
        path: impl fmt::Display,
        message: impl Into<String>,
    ) -> FsError {
        FsError { kind, call, path: path.to_string(), server: None, message: message.into() }
    }

    /// The same at a server.
    #[must_use]
    pub fn at(mut self, server: impl fmt::Display) -> FsError {
        self.server = Some(server.to_string());
        self
    }

    /// There is no such file.
    pub fn not_found(call: &'static str, path: impl fmt::Display) -> FsError {
        FsError::new(ErrorKind::NotFound, call, path, "No such file or directory")
    }

    /// There is a directory in place of a file.
    pub(crate) fn is_a_directory(call: &'static str, path: impl fmt::Display) -> FsError {
        FsError::new(ErrorKind::IsADirectory, call, path, "Is a directory")
    }

    /// The work of the call has panicked, or was stopped.
    pub(crate) fn stopped(
        call: &'static str,
        path: impl fmt::Display,
        error: impl fmt::Display,
    ) -> FsError {
        FsError::new(ErrorKind::Io, call, path, format!("the work was stopped: {error}"))
    }

    /// An error of the system.
    pub fn io(call: &'static str, path: impl fmt::Display, error: &io::Error) -> FsError {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::PermissionDenied => ErrorKind::Permission,
            io::ErrorKind::NotADirectory => ErrorKind::NotADirectory,
            io::ErrorKind::IsADirectory => ErrorKind::IsADirectory,
            io::ErrorKind::DirectoryNotEmpty => ErrorKind::NotEmpty,
            io::ErrorKind::QuotaExceeded => ErrorKind::Quota,
            io::ErrorKind::StorageFull => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        let message = match kind {
            ErrorKind::NotFound => "No such file or directory".to_owned(),
            _ => error.to_string(),
        };
        FsError::new(kind, call, path, message)
    }

    /// The failure of a call to a name node or of a data node's RPC.
    pub(crate) fn of_call(
        error: CallError,
        call: &'static str,
        path: &str,
        server: impl fmt::Display,
    ) -> FsError {
        let (kind, message) = match &error {
            CallError::Remote(remote) | CallError::Refused(remote) => {
                (kind_of(remote), remote.message().to_owned())
            }
            CallError::Connect { error, .. } => (kind_of_connecting(error), error.to_string()),
            CallError::Timeout(due) => {
                (ErrorKind::TooSlow, format!("no reply within {} ms", due.as_millis()))
            }
            CallError::Closed | CallError::Io(_) => (ErrorKind::Connection, error.to_string()),
            CallError::Version { .. } => (ErrorKind::Unsupported, error.to_string()),
            CallError::CallTooLarge(_) => (ErrorKind::Invalid, error.to_string()),
            _ => (ErrorKind::Malformed, error.to_string()),
        };
        FsError::new(kind, call, path, message).at(server)
    }

    /// The first line of the message.
    pub fn first_line(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }
}

/// Why a connection could not be made. The resolver's errors have no kind of their own, but a text.
pub(crate) fn kind_of_connecting(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::TimedOut => ErrorKind::TooSlow,
        _ if error.raw_os_error().is_none() && error.to_string().contains("lookup address") => {
            ErrorKind::NoSuchHost
        }
        _ => ErrorKind::Connection,
    }
}

/// The kind of an exception of a name node. Spec: hdfs/01 §1.3.5, §1.4.
fn kind_of(error: &RemoteError) -> ErrorKind {
    let class = error.class.as_deref().unwrap_or_default();
    let message = error.message();
    match class.rsplit(['.', '$']).next().unwrap_or_default() {
        "AccessControlException" => ErrorKind::Permission,
        "FileNotFoundException" if message.contains("is not a directory") => {
            ErrorKind::NotADirectory
        }
        "FileNotFoundException" => ErrorKind::NotFound,
        "FileAlreadyExistsException" => ErrorKind::AlreadyExists,
        "AlreadyBeingCreatedException" => ErrorKind::BeingWritten,
        "LeaseExpiredException" => ErrorKind::Lease,
        "NotReplicatedYetException" => ErrorKind::NotYet,
        "SafeModeException" => ErrorKind::SafeMode,
        "NSQuotaExceededException" | "DSQuotaExceededException" | "QuotaExceededException" => {
            ErrorKind::Quota
        }
        "VersionIncompatible" => ErrorKind::Unsupported,
        "IOException" => kind_of_text(message),
        _ => ErrorKind::Remote,
    }
}

/// What has no class of its own is known by its text.
fn kind_of_text(message: &str) -> ErrorKind {
    const TEXTS: &[(&str, ErrorKind)] = &[
        ("the filename is invalid or the file exists", ErrorKind::AlreadyExists),
        ("already exists as a directory", ErrorKind::IsADirectory),
        ("is non empty", ErrorKind::NotEmpty),
        ("could only be replicated to 0 nodes", ErrorKind::NoSpace),
        ("Invalid file name", ErrorKind::Invalid),
        ("Invalid directory name", ErrorKind::Invalid),
        ("Invalid name", ErrorKind::Invalid),
        ("Invalid user", ErrorKind::Invalid),
        ("Pathname too long", ErrorKind::Invalid),
        ("exceeds maximum", ErrorKind::Invalid),
        ("is less than the required minimum", ErrorKind::Invalid),
        ("NoSuchMethodException", ErrorKind::Unsupported),
    ];
    let found = TEXTS.iter().find(|(text, _)| message.contains(text));
    found.map_or(ErrorKind::Remote, |(_, kind)| *kind)
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(self.message.trim_end())?;
        match &self.server {
            Some(server) => write!(f, " ({} at {server})", self.call),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FsError {}

impl From<NotAPath> for FsError {
    fn from(wrong: NotAPath) -> FsError {
        FsError::new(ErrorKind::Invalid, "path", wrong.text, wrong.wrong)
    }
}
