//! `corona:` — the files of jobs that a job tracker keeps and gives over the network, for machines that
//! share no directory. It has what clients need to leave a job there, task trackers to fetch it, and tasks
//! to leave their output there, and nothing else.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::path::{FsPath, Root};
use crate::{
    Answer, CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem, FileSystemSettings,
    FileWriter, FsError, Page,
};
use corona_hadoop::protocols::job_files::JobFilesClient;
use corona_hadoop::rpc::{CallError, ClientOptions, User};
use corona_hadoop::writables::{FilePiece, InetAddress, JobFilePage, JobFileStatus};
use corona_net::Backoff;

/// Bytes of a piece, read or written.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a call or a reply: a piece, and names around it.
const MAX_MESSAGE_BYTES: usize = PIECE_BYTES + (64 << 10);
/// Connections to one job tracker at a time.
const MAX_CONNECTIONS: usize = 16;
/// Attempts at a call whose reply is lost. Each call may be made twice.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt; each further one is twice as long.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::MAX);
/// The permissions that are shown.
const MODE: u16 = 0o700;

/// Bytes of a token.
const MAX_TOKEN_BYTES: u64 = 256;

/// Whether this machine sees a file that another one has left, with this token in it. Somebody else has named
/// the file: a pipe or a device, which may wait or never end, is none. May block.
pub fn sees_token(path: &Path, token: &str) -> bool {
    let read = || -> io::Result<Vec<u8>> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut found = Vec::new();
        file.take(MAX_TOKEN_BYTES).read_to_end(&mut found)?;
        Ok(found)
    };
    read().is_ok_and(|found| found == token.as_bytes())
}

/// The files of jobs at one job tracker.
#[derive(Debug)]
pub struct JobTrackerFiles {
    root: Root,
    address: InetAddress,
    options: ClientOptions,
    owner: String,
    idle: Mutex<Vec<JobFilesClient>>,
    permits: Semaphore,
}

/// Makes a call, again if its reply is lost.
macro_rules! call {
    ($self:expr, $name:literal, $path:expr, $client:ident => $call:expr) => {{
        let files = $self;
        let (mut attempt, mut pauses) = (1, PAUSES);
        loop {
            // The semaphore is never closed; without a permit the call is made all the same.
            let _permit = files.permits.acquire().await;
            let mut $client = files.connection();
            match $call.await {
                Ok(found) => {
                    files.give_back($client);
                    break Ok(found);
                }
                Err(error) if attempt < ATTEMPTS && is_lost(&error) => {
                    tracing::debug!(call = $name, %error, "the job tracker is asked again");
                    sleep(pauses.pause()).await;
                    attempt += 1;
                }
                Err(error) => {
                    let shown = $path.to_string();
                    break Err(FsError::of_call(error, $name, &shown, &files.address));
                }
            }
        }
    }};
}

/// A number that no other call has.
fn new_id() -> i64 {
    RandomState::new().hash_one(SystemTime::now()).cast_signed()
}

fn is_lost(error: &CallError) -> bool {
    matches!(error, CallError::Closed | CallError::Io(_) | CallError::Timeout(_))
}

impl JobTrackerFiles {
    /// The files at the job tracker that the root names.
    ///
    /// # Errors
    /// The root names no host with a port.
    pub fn new(root: &Root, settings: &FileSystemSettings) -> Result<JobTrackerFiles, FsError> {
        let wrong = || FsError::new(ErrorKind::Invalid, "connect", root, "is not host:port");
        let (host, port) = root.host_and_port().ok_or_else(wrong)?;
        let mut groups = settings.groups.clone();
        if groups.is_empty() {
            groups.push(settings.user.clone());
        }
        let options = ClientOptions {
            call_timeout: Some(settings.call_timeout),
            attempt_timeout: settings.call_timeout.min(Duration::from_secs(20)),
            connect_patience: settings.connect_patience,
            max_call_bytes: MAX_MESSAGE_BYTES,
            max_reply_bytes: MAX_MESSAGE_BYTES,
            ..ClientOptions::new(User { name: settings.user.clone(), groups })
        };
        Ok(JobTrackerFiles {
            root: root.clone(),
            address: InetAddress { host, port },
            options,
            owner: settings.user.clone(),
            idle: Mutex::default(),
            permits: Semaphore::new(MAX_CONNECTIONS),
        })
    }

    fn connection(&self) -> JobFilesClient {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| JobFilesClient::new(self.address.clone(), self.options.clone()))
    }

    fn give_back(&self, client: JobFilesClient) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    /// A second owner of the same files, with connections of its own.
    fn again(&self) -> JobTrackerFiles {
        JobTrackerFiles {
            root: self.root.clone(),
            address: self.address.clone(),
            options: self.options.clone(),
            owner: self.owner.clone(),
            idle: Mutex::default(),
            permits: Semaphore::new(1),
        }
    }

    async fn status_now(&self, path: &FsPath) -> Result<FileStatus, FsError> {
        (self as &dyn FileSystem).check("status", path)?;
        let found = call!(self, "status", path, client => client.status(path.path().to_owned()))?;
        let found = found.ok_or_else(|| FsError::not_found("status", path).at(&self.address))?;
        Ok(self.shown(path.clone(), found))
    }

    fn shown(&self, path: FsPath, status: JobFileStatus) -> FileStatus {
        let JobFileStatus { is_directory, bytes, modified_ms } = status;
        FileStatus {
            is_directory,
            bytes: u64::try_from(bytes).unwrap_or(0),
            replication: i16::from(!is_directory),
            block_bytes: PIECE_BYTES as u64,
            modified_ms,
            permission: MODE,
            owner: self.owner.clone(),
            ..FileStatus::empty(path)
        }
    }

    async fn page(&self, path: &FsPath, from: Option<Vec<u8>>) -> Result<Page, FsError> {
        (self as &dyn FileSystem).check("list", path)?;
        let malformed = |why: &str| FsError::new(ErrorKind::Malformed, "list", path, why);
        let after = from.map(String::from_utf8).transpose();
        let after = after.map_err(|_| malformed("a name is no text"))?;
        let (text, behind) = (path.path(), after.clone());
        let JobFilePage { entries, has_more } = call!(self, "list", path, client => {
            client.list(text.to_owned(), behind.clone())
        })?;
        // It comes from a peer: each page begins behind the one before, so that the listing has an end.
        let mut last = after;
        let mut page = Page::default();
        for entry in entries {
            if last.as_ref().is_some_and(|last| *last >= entry.name) {
                return Err(malformed("the entries are in no order").at(&self.address));
            }
            let of_entry = path.entry(&entry.name);
            let of_entry = of_entry.map_err(|wrong| malformed(&wrong.to_string()))?;
            page.entries.push(self.shown(of_entry, entry.status));
            last = Some(entry.name);
        }
        page.next = last.filter(|_| has_more && !page.entries.is_empty()).map(String::into_bytes);
        Ok(page)
    }
}

impl FileSystem for JobTrackerFiles {
    fn root(&self) -> &Root {
        &self.root
    }

    fn unsupported(&self, call: &'static str, path: &FsPath) -> FsError {
        let message = "is not supported for files of jobs at a job tracker";
        FsError::new(ErrorKind::Unsupported, call, path, message).at(&self.address)
    }

    fn status<'a>(&'a self, path: &'a FsPath) -> Answer<'a, FileStatus> {
        Box::pin(self.status_now(path))
    }

    fn list_page<'a>(&'a self, path: &'a FsPath, from: Option<Vec<u8>>) -> Answer<'a, Page> {
        Box::pin(self.page(path, from))
    }

    fn open<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileReader>> {
        Box::pin(async move {
            let status = self.status_now(path).await?;
            if status.is_directory {
                return Err(FsError::is_a_directory("open", path));
            }
            let (files, path, length) = (self.again(), path.clone(), status.bytes);
            Ok(Box::new(Reader { files, path, length, position: 0 }) as Box<dyn FileReader>)
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a FsPath,
        options: CreateOptions,
    ) -> Answer<'a, Box<dyn FileWriter>> {
        Box::pin(async move {
            (self as &dyn FileSystem).check("create", path)?;
            let (text, overwrite, id) = (path.path(), options.overwrite, new_id());
            call!(self, "create", path, client => client.create(text.to_owned(), overwrite, id))?;
            let pending = Vec::with_capacity(PIECE_BYTES);
            let writer = Writer { files: self.again(), path: path.clone(), sent: 0, pending };
            Ok(Box::new(writer) as Box<dyn FileWriter>)
        })
    }

    fn rename<'a>(&'a self, from: &'a FsPath, to: &'a FsPath) -> Answer<'a, ()> {
        Box::pin(async move {
            (self as &dyn FileSystem).check("rename", from)?;
            (self as &dyn FileSystem).check("rename", to)?;
            let (from, to) = (from.path(), to.path());
            call!(self, "rename", from, client => client.rename(from.to_owned(), to.to_owned()))
        })
    }

    fn delete<'a>(&'a self, path: &'a FsPath, _recursive: bool) -> Answer<'a, bool> {
        Box::pin(async move {
            (self as &dyn FileSystem).check("delete", path)?;
            call!(self, "delete", path, client => client.delete(path.path().to_owned()))
        })
    }

    fn mkdirs<'a>(&'a self, path: &'a FsPath, _permission: Option<u16>) -> Answer<'a, ()> {
        Box::pin(async move {
            (self as &dyn FileSystem).check("mkdirs", path)?;
            call!(self, "mkdirs", path, client => client.mkdirs(path.path().to_owned()))
        })
    }

    /// The job tracker shows the files to nobody on its machine, whatever is asked for.
    fn set_permission<'a>(&'a self, path: &'a FsPath, _permission: u16) -> Answer<'a, ()> {
        Box::pin(async move { (self as &dyn FileSystem).check("setPermission", path) })
    }
}

struct Reader {
    files: JobTrackerFiles,
    path: FsPath,
    length: u64,
    position: u64,
}

impl FileReader for Reader {
    fn length(&self) -> u64 {
        self.length
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn seek(&mut self, position: u64) {
        self.position = position;
    }

    fn read_until(&mut self, _end: u64) {}

    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Answer<'a, usize> {
        Box::pin(async move {
            let left = self.length.saturating_sub(self.position);
            let most =
                buffer.len().min(PIECE_BYTES).min(usize::try_from(left).unwrap_or(usize::MAX));
            if most == 0 {
                return Ok(0);
            }
            let (position, wanted) =
                (whole(self.position), i32::try_from(most).unwrap_or(i32::MAX));
            let path = self.path.path();
            let FilePiece { bytes } = call!(&self.files, "read", self.path, client => {
                client.read(path.to_owned(), position, wanted)
            })?;
            let Some(into) = buffer.get_mut(..bytes.len()).filter(|into| into.len() <= most) else {
                let message = "more bytes came than were asked for";
                let error = FsError::new(ErrorKind::Malformed, "read", &self.path, message);
                return Err(error.at(&self.files.address));
            };
            into.copy_from_slice(&bytes);
            self.position += bytes.len() as u64;
            Ok(bytes.len())
        })
    }
}

struct Writer {
    files: JobTrackerFiles,
    path: FsPath,
    /// Bytes that the job tracker has.
    sent: u64,
    pending: Vec<u8>,
}

impl Writer {
    async fn send(&mut self) -> Result<(), FsError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::replace(&mut self.pending, Vec::with_capacity(PIECE_BYTES));
        let (path, length, position) = (self.path.path(), bytes.len(), whole(self.sent));
        let piece = FilePiece { bytes };
        call!(&self.files, "write", self.path, client => {
            client.write(path.to_owned(), position, piece.clone())
        })?;
        self.sent += length as u64;
        Ok(())
    }
}

impl FileWriter for Writer {
    fn position(&self) -> u64 {
        self.sent + self.pending.len() as u64
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut rest = bytes;
            while !rest.is_empty() {
                let room = PIECE_BYTES.saturating_sub(self.pending.len()).min(rest.len());
                let (now, later) = rest.split_at(room);
                self.pending.extend_from_slice(now);
                rest = later;
                if self.pending.len() >= PIECE_BYTES {
                    self.send().await?;
                }
            }
            Ok(())
        })
    }

    fn flush(&mut self) -> Answer<'_, ()> {
        Box::pin(self.send())
    }

    fn close(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { self.send().await })
    }

    fn abort(self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move { self.files.delete(&self.path, false).await.map(drop) })
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_a_file_with_the_token_counts_and_a_pipe_makes_nobody_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("mark"), "token").unwrap();
        fs::write(path("long"), "t".repeat(10_000)).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), pipe, mode, 0).unwrap();
        std::os::unix::fs::symlink(path("pipe"), path("link")).unwrap();
        assert!(sees_token(&path("mark"), "token"));
        for (name, token) in
            [("mark", "other"), ("none", "token"), ("pipe", ""), ("link", ""), ("", "")]
        {
            assert!(!sees_token(&path(name), token), "{name}");
        }
        assert!(!sees_token(Path::new("/dev/zero"), &"\0".repeat(256)));
        assert!(!sees_token(&path("long"), &"t".repeat(10_000)), "no more than a token is read");
    }

    #[test]
    fn ids_of_calls_differ() {
        let ids: std::collections::BTreeSet<i64> = (0..1000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
