//! `file:` as Hadoop keeps it: beside each file that it writes lies `.NAME.crc` with checksums, which
//! readers verify, listings hide, and which follows its file. A file without one is read as it is.

use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

use crate::path::{FsPath, Root};
use crate::{
    Answer, CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem, FileSystemSettings,
    FileWriter, FsError, OddEntry, Page, Summary, blocking,
};

/// What a checksum file begins with; the bytes that one checksum covers follow.
const CRC_MAGIC: [u8; 4] = *b"crc\0";
const CRC_HEADER_LENGTH: usize = 8;
const CRC_HEADER_BYTES: u64 = CRC_HEADER_LENGTH as u64;
/// Bytes that are read or written in one step.
const STEP_BYTES: usize = 256 << 10;
/// The most bytes that a checksum is believed to cover.
const MAX_COVERED_BYTES: usize = 1 << 20;
/// Bytes of a block, which this file system does not have, as the original shows it.
const BLOCK_BYTES: u64 = 32 << 20;
/// Entries of a page of a listing.
const PAGE_ENTRIES: usize = 1000;

/// Files of this machine, or of what is mounted on it.
#[derive(Clone, Debug)]
pub struct LocalFiles {
    root: Root,
    bytes_per_checksum: u32,
    umask: u16,
}

impl LocalFiles {
    /// As configured.
    pub fn new(settings: &FileSystemSettings) -> LocalFiles {
        LocalFiles {
            root: Root::local(),
            bytes_per_checksum: settings.bytes_per_checksum,
            umask: settings.umask,
        }
    }

    /// Checks a path and does something with it where disks may be waited for.
    fn act<'a, T: Send + 'static>(
        &'a self,
        call: &'static str,
        path: &'a FsPath,
        act: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            (self as &dyn FileSystem).check(call, path)?;
            let path = path.clone();
            blocking(move || {
                act(Path::new(path.path())).map_err(|error| FsError::io(call, &path, &error))
            })
            .await
        })
    }
}

impl FileSystem for LocalFiles {
    fn root(&self) -> &Root {
        &self.root
    }

    fn home(&self) -> FsPath {
        let directory = std::env::current_dir().ok();
        let path = directory.and_then(|path| FsPath::local(&path).ok());
        path.or_else(|| FsPath::within(&self.root, "/").ok()).unwrap_or_else(|| {
            unreachable!("the root is a path");
        })
    }

    fn status<'a>(&'a self, path: &'a FsPath) -> Answer<'a, FileStatus> {
        let named = path.clone();
        self.act("status", path, move |path| status_of(named, &fs::metadata(path)?))
    }

    fn list_page<'a>(&'a self, path: &'a FsPath, from: Option<Vec<u8>>) -> Answer<'a, Page> {
        let named = path.clone();
        self.act("list", path, move |path| {
            let metadata = fs::metadata(path)?;
            if !metadata.is_dir() {
                let entries = vec![status_of(named, &metadata)?];
                return Ok(Page { entries, ..Page::default() });
            }
            let mut names = Vec::new();
            for entry in fs::read_dir(path)? {
                let name = entry?.file_name();
                let is_behind = from.as_ref().is_none_or(|from| name.as_bytes() > from.as_slice());
                if is_behind && !is_crc(&name.to_string_lossy()) {
                    names.push(name);
                }
            }
            names.sort();
            let next = (names.len() > PAGE_ENTRIES).then(|| {
                names.truncate(PAGE_ENTRIES);
                names.last().map(|name| name.as_bytes().to_vec()).unwrap_or_default()
            });
            let mut page = Page { next, ..Page::default() };
            for name in names {
                let at = path.join(&name);
                let found = fs::metadata(&at).and_then(|metadata| match name.to_str() {
                    Some(name) => {
                        let entry = named.entry(name).map_err(io::Error::other)?;
                        status_of(entry, &metadata)
                    }
                    None => {
                        Err(io::Error::new(io::ErrorKind::InvalidData, "its name is not UTF-8"))
                    }
                });
                match found {
                    Ok(status) => page.entries.push(status),
                    // It went meanwhile.
                    Err(_) if fs::symlink_metadata(&at).is_err_and(|error| is_missing(&error)) => {}
                    Err(error) => {
                        let why = match is_missing(&error) {
                            true => "is a link that leads nowhere".to_owned(),
                            false => error.to_string(),
                        };
                        page.odd.push(OddEntry { name: escaped(name.as_bytes()), why });
                    }
                }
            }
            Ok(page)
        })
    }

    fn open<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileReader>> {
        let named = path.clone();
        self.act("open", path, move |path| {
            // Looked at before opening, since opening a pipe could wait forever.
            let metadata = fs::metadata(path)?;
            if metadata.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            if !metadata.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a file"));
            }
            let sums = open_sums(path);
            Ok(LocalReader::boxed(named, File::open(path)?, sums, metadata.len()))
        })
    }

    fn open_staged<'a>(
        &'a self,
        directory: &'a FsPath,
        name: &'a str,
    ) -> Answer<'a, Box<dyn FileReader>> {
        let (named, name) = (directory.join(name), name.to_owned());
        self.act("open", directory, move |directory| {
            let directory = open_directory(directory)?;
            let (file, metadata) = open_staged(&directory, &name)?;
            let sums = crc_path(Path::new(&name));
            let sums = open_staged(&directory, &sums.to_string_lossy()).ok();
            let sums = sums.and_then(|(sums, _)| sums_of(sums, named.path()));
            Ok(LocalReader::boxed(named, file, sums, metadata.len()))
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a FsPath,
        options: CreateOptions,
    ) -> Answer<'a, Box<dyn FileWriter>> {
        let (named, covered) = (path.clone(), self.bytes_per_checksum as usize);
        let permission = options.permission.unwrap_or(0o666) & !self.umask;
        self.act("create", path, move |path| {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let is_new = !path.exists();
            let mut open = File::options();
            match options.overwrite {
                true => open.write(true).create(true).truncate(true),
                false => open.write(true).create_new(true),
            };
            let file = open.open(path)?;
            if is_new {
                file.set_permissions(fs::Permissions::from_mode(permission.into()))?;
            }
            let mut sums = File::create(crc_path(path))?;
            sums.write_all(&CRC_MAGIC)?;
            sums.write_all(&u32::try_from(covered).unwrap_or(512).to_be_bytes())?;
            let writer = LocalWriter {
                path: named,
                files: Files::Open(file, Some(sums)),
                covered,
                pending: Vec::new(),
                unsummed_from: 0,
                position: 0,
                is_kept: false,
            };
            Ok(Box::new(writer) as Box<dyn FileWriter>)
        })
    }

    /// The original does not append to files with checksums. Here the last checksum is computed again.
    fn append<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Box<dyn FileWriter>> {
        let named = path.clone();
        let opened = self.act("append", path, move |path| {
            let file = File::options().read(true).append(true).open(path)?;
            let position = file.metadata()?.len();
            let Some((sums, covered)) = open_sums(path) else {
                return Ok((file, None, 1, Vec::new(), position));
            };
            drop(sums);
            let sums = File::options().read(true).write(true).open(crc_path(path))?;
            let begun = position % covered as u64;
            let mut chunk = vec![0; covered];
            let read = read_whole(&file, &mut chunk, position - begun)?;
            chunk.truncate(read);
            Ok((file, Some(sums), covered, chunk, position))
        });
        Box::pin(async move {
            let (file, mut sums, covered, chunk, position) = opened.await?;
            let path = named;
            if let Some(sums) = &mut sums {
                let failed = |error| FsError::io("append", &path, &error);
                verify(&path, sums, covered, position - chunk.len() as u64, &chunk)?;
                // What is behind belongs to bytes that are not there.
                let end = CRC_HEADER_BYTES + 4 * position.div_ceil(covered as u64);
                sums.set_len(end).map_err(failed)?;
                sums.seek(SeekFrom::Start(end)).map_err(failed)?;
            }
            let writer = LocalWriter {
                path,
                files: Files::Open(file, sums),
                covered,
                unsummed_from: chunk.len(),
                pending: chunk,
                position,
                is_kept: true,
            };
            Ok(Box::new(writer) as Box<dyn FileWriter>)
        })
    }

    fn rename<'a>(&'a self, from: &'a FsPath, to: &'a FsPath) -> Answer<'a, ()> {
        Box::pin(async move {
            (self as &dyn FileSystem).check("rename", to)?;
            let to = PathBuf::from(to.path());
            self.act("rename", from, move |from| {
                let metadata = fs::metadata(from)?;
                let to = match to.is_dir() {
                    true => to.join(from.file_name().unwrap_or_default()),
                    false => to,
                };
                if to.exists() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(from, &to)?;
                if metadata.is_file() {
                    match fs::rename(crc_path(from), crc_path(&to)) {
                        // A file without checksums must not get those of an earlier one.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {
                            removed(&crc_path(&to))?;
                        }
                        renamed => renamed?,
                    }
                }
                Ok(())
            })
            .await
        })
    }

    fn delete<'a>(&'a self, path: &'a FsPath, recursive: bool) -> Answer<'a, bool> {
        self.act("delete", path, move |path| match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
            Ok(metadata) if metadata.is_dir() => {
                match recursive {
                    true => fs::remove_dir_all(path)?,
                    false => fs::remove_dir(path)?,
                }
                Ok(true)
            }
            Ok(_) => {
                fs::remove_file(path)?;
                removed(&crc_path(path))?;
                Ok(true)
            }
        })
    }

    fn mkdirs<'a>(&'a self, path: &'a FsPath, permission: Option<u16>) -> Answer<'a, ()> {
        let permission = permission.unwrap_or(0o777 & !self.umask);
        self.act("mkdirs", path, move |path| {
            if path.is_dir() {
                return Ok(());
            }
            fs::create_dir_all(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(permission.into()))
        })
    }

    fn set_permission<'a>(&'a self, path: &'a FsPath, permission: u16) -> Answer<'a, ()> {
        self.act("setPermission", path, move |path| {
            fs::set_permissions(path, fs::Permissions::from_mode(permission.into()))
        })
    }

    fn set_owner<'a>(
        &'a self,
        path: &'a FsPath,
        owner: Option<&'a str>,
        group: Option<&'a str>,
    ) -> Answer<'a, ()> {
        let (owner, group) = (owner.map(str::to_owned), group.map(str::to_owned));
        self.act("setOwner", path, move |path| {
            let number = |file: &str, name: Option<String>| {
                let Some(name) = name else { return Ok(None) };
                let number = number_of(file, &name).or_else(|| name.parse().ok());
                let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("no {name}"));
                number.ok_or_else(unknown).map(Some)
            };
            let (user, group) = (number("/etc/passwd", owner)?, number("/etc/group", group)?);
            std::os::unix::fs::chown(path, user, group)
        })
    }

    fn set_times<'a>(
        &'a self,
        path: &'a FsPath,
        modified_ms: Option<i64>,
        accessed_ms: Option<i64>,
    ) -> Answer<'a, ()> {
        self.act("setTimes", path, move |path| {
            let mut times = FileTimes::new();
            if let Some(modified) = modified_ms.and_then(time_of) {
                times = times.set_modified(modified);
            }
            if let Some(accessed) = accessed_ms.and_then(time_of) {
                times = times.set_accessed(accessed);
            }
            File::open(path)?.set_times(times)
        })
    }

    fn set_replication<'a>(&'a self, path: &'a FsPath, _replication: i16) -> Answer<'a, ()> {
        self.act("setReplication", path, |path| fs::metadata(path).map(drop))
    }

    fn summary<'a>(&'a self, path: &'a FsPath) -> Answer<'a, Summary> {
        self.act("summary", path, |path| {
            let mut summary = Summary::default();
            let mut waiting = vec![path.to_owned()];
            while let Some(path) = waiting.pop() {
                let metadata = fs::symlink_metadata(&path)?;
                if metadata.is_dir() {
                    summary.directories += 1;
                    for entry in fs::read_dir(&path)? {
                        waiting.push(entry?.path());
                    }
                } else if !path.file_name().is_some_and(|name| is_crc(&name.to_string_lossy())) {
                    summary.files += 1;
                    summary.bytes += metadata.len();
                }
            }
            Ok(summary)
        })
    }
}

fn status_of(path: FsPath, metadata: &Metadata) -> io::Result<FileStatus> {
    Ok(FileStatus {
        path,
        is_directory: metadata.is_dir(),
        bytes: if metadata.is_dir() { 0 } else { metadata.len() },
        replication: i16::from(!metadata.is_dir()),
        block_bytes: BLOCK_BYTES,
        modified_ms: millis(metadata.modified()?),
        accessed_ms: 0,
        permission: (metadata.mode() & 0o777) as u16,
        owner: name_of("/etc/passwd", metadata.uid()),
        group: name_of("/etc/group", metadata.gid()),
        version: None,
    })
}

/// Milliseconds since 1970.
pub fn millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |before| -before)
        }
    }
}

fn time_of(ms: i64) -> Option<SystemTime> {
    let span = Duration::from_millis(ms.unsigned_abs());
    if ms < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) }
}

/// The name of a user or group; its number if it has none.
fn name_of(file: &str, number: u32) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let wanted = number.to_string();
    let named = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == wanted).then(|| name.to_owned())
    });
    named.unwrap_or(wanted)
}

fn number_of(file: &str, name: &str) -> Option<u32> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// A name with the bytes that are no text, or no characters to show, as `\xe9`.
fn escaped(name: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => shown.extend(character.escape_default()),
                false => shown.push(character),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// Writes checksums beside a file of this machine, as Hadoop does beside each file that it copies there. It blocks.
pub fn write_checksums(path: &Path, bytes_per_checksum: u32) -> io::Result<()> {
    let covered =
        usize::try_from(bytes_per_checksum.max(1)).unwrap_or(usize::MAX).min(MAX_COVERED_BYTES);
    let mut file = io::BufReader::with_capacity(STEP_BYTES, File::open(path)?);
    let mut sums = io::BufWriter::new(File::create(crc_path(path))?);
    sums.write_all(&CRC_MAGIC)?;
    sums.write_all(&bytes_per_checksum.max(1).to_be_bytes())?;
    let mut chunk = Vec::with_capacity(covered);
    loop {
        chunk.clear();
        if file.by_ref().take(covered as u64).read_to_end(&mut chunk)? == 0 {
            return sums.flush();
        }
        sums.write_all(&crc32fast::hash(&chunk).to_be_bytes())?;
    }
}

/// Whether this is the name of a file of checksums.
fn is_crc(name: &str) -> bool {
    name.len() > 5 && name.starts_with('.') && name.ends_with(".crc")
}

fn crc_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".crc");
    path.with_file_name(name)
}

fn removed(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The checksums of a file and how many bytes each covers. As in the original, a file of checksums
/// that cannot be used is as good as none.
fn open_sums(path: &Path) -> Option<(File, usize)> {
    sums_of(File::open(crc_path(path)).ok()?, &path.to_string_lossy())
}

fn sums_of(mut sums: File, path: &str) -> Option<(File, usize)> {
    let mut header = [0; CRC_HEADER_LENGTH];
    sums.read_exact(&mut header).ok()?;
    let (magic, covered) = header.split_first_chunk::<4>()?;
    let covered = u32::from_be_bytes(covered.try_into().ok()?) as usize;
    let is_legal = *magic == CRC_MAGIC && (1..=MAX_COVERED_BYTES).contains(&covered);
    if !is_legal {
        tracing::warn!(path, "ignoring checksum file: not a checksum file");
    }
    is_legal.then_some((sums, covered))
}

const PLAIN: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// Opens a directory that is no link.
fn open_directory(directory: &Path) -> io::Result<File> {
    open(directory, PLAIN | OFlags::DIRECTORY, Mode::empty()).map(File::from).map_err(without_links)
}

/// Opens a file that is no link, in a directory of the same owner.
fn open_staged(directory: &File, name: &str) -> io::Result<(File, Metadata)> {
    // A pipe must not be waited for.
    let flags = PLAIN | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(directory, name, flags, Mode::empty()).map_err(without_links)?;
    let file = File::from(file);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refused("is not a file"));
    }
    if metadata.uid() != directory.metadata()?.uid() {
        return Err(refused("does not belong to the owner of its directory"));
    }
    Ok((file, metadata))
}

/// The error of a call that follows no link: that there was one, in words.
pub fn without_links(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR => refused("is reached by a symbolic link"),
        other => other.into(),
    }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

struct LocalReader {
    path: FsPath,
    file: Arc<File>,
    /// The checksums, and how many bytes each covers.
    sums: Option<(Arc<File>, usize)>,
    length: u64,
    position: u64,
    /// Verified bytes, and where they are in the file.
    filled_at: u64,
    filled: Vec<u8>,
}

impl LocalReader {
    fn boxed(
        path: FsPath,
        file: File,
        sums: Option<(File, usize)>,
        length: u64,
    ) -> Box<dyn FileReader> {
        Box::new(LocalReader {
            path,
            file: Arc::new(file),
            sums: sums.map(|(file, covered)| (Arc::new(file), covered)),
            length,
            position: 0,
            filled_at: 0,
            filled: Vec::new(),
        })
    }

    /// What is there from this place on.
    fn buffered(&self) -> &[u8] {
        let within = self.position.checked_sub(self.filled_at);
        let within = within.and_then(|within| usize::try_from(within).ok());
        within.and_then(|within| self.filled.get(within..)).unwrap_or_default()
    }

    async fn fill(&mut self) -> Result<(), FsError> {
        let (file, sums, path) = (self.file.clone(), self.sums.clone(), self.path.clone());
        let covered = sums.as_ref().map_or(1, |(_, covered)| *covered);
        let from = self.position - self.position % covered as u64;
        // As large as what is left of the file: many files are small. One that has grown has more steps.
        let left = usize::try_from(self.length.saturating_sub(from)).unwrap_or(usize::MAX);
        let step = if left == 0 { STEP_BYTES } else { left.min(STEP_BYTES) };
        let mut buffer = std::mem::take(&mut self.filled);
        // Here, and not on the thread that reads: what many threads allocate stays with them.
        buffer.resize(step.next_multiple_of(covered), 0);
        self.filled = blocking(move || {
            let read = read_whole(&file, &mut buffer, from)
                .map_err(|error| FsError::io("read", &path, &error))?;
            buffer.truncate(read);
            if let Some((sums, covered)) = sums {
                verify(&path, &sums, covered, from, &buffer)?;
            }
            Ok(buffer)
        })
        .await?;
        self.filled_at = from;
        Ok(())
    }
}

/// Fills the buffer, or reads to the end of the file.
fn read_whole(file: &File, buffer: &mut [u8], from: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn verify(
    path: &FsPath,
    sums: &File,
    covered: usize,
    from: u64,
    bytes: &[u8],
) -> Result<(), FsError> {
    let failed = |error| FsError::io("read", path, &error);
    let mut expected = vec![0; bytes.len().div_ceil(covered) * 4];
    let first = from / covered as u64;
    let read = read_whole(sums, &mut expected, CRC_HEADER_BYTES + 4 * first).map_err(failed)?;
    expected.truncate(read);
    for (number, chunk) in bytes.chunks(covered).enumerate() {
        let found = crc32fast::hash(chunk).to_be_bytes();
        if expected.get(4 * number..4 * number + 4) != Some(found.as_slice()) {
            let at = from + (number * covered) as u64;
            let message = format!("Checksum error: {path} at {at}");
            return Err(FsError::new(ErrorKind::Checksum, "read", path, message));
        }
    }
    Ok(())
}

impl FileReader for LocalReader {
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
            if buffer.is_empty() {
                return Ok(0);
            }
            if self.buffered().is_empty() {
                self.fill().await?;
            }
            let there = self.buffered();
            let length = there.len().min(buffer.len());
            let (to, from) = (buffer.get_mut(..length), there.get(..length));
            if let (Some(to), Some(from)) = (to, from) {
                to.copy_from_slice(from);
            }
            self.position += length as u64;
            Ok(length)
        })
    }
}

struct LocalWriter {
    path: FsPath,
    files: Files,
    covered: usize,
    /// Bytes that are not written, after those of an unfinished chunk that are.
    pending: Vec<u8>,
    /// How many bytes of `pending` are in the file already.
    unsummed_from: usize,
    position: u64,
    /// Whether the file stays when this is dropped.
    is_kept: bool,
}

/// A file that is written, and that of its checksums, if it has any.
#[derive(Debug)]
enum Files {
    Open(File, Option<File>),
    Resting {
        has_sums: bool,
    },
    /// An earlier write failed, or one is being made.
    Lost,
}

impl Files {
    /// Opens them again if they rest.
    fn open(self, path: &Path) -> io::Result<(File, Option<File>)> {
        let has_sums = match self {
            Files::Open(file, sums) => return Ok((file, sums)),
            Files::Resting { has_sums } => has_sums,
            Files::Lost => return Err(io::Error::other("an earlier write failed")),
        };
        let file = File::options().append(true).open(path)?;
        let sums =
            has_sums.then(|| File::options().write(true).open(crc_path(path))).transpose()?;
        Ok((file, sums))
    }
}

impl LocalWriter {
    /// Writes what is pending. The checksum of an unfinished chunk is written as well, and again
    /// when there is more of it.
    async fn write_out(&mut self) -> Result<(), FsError> {
        let files = std::mem::replace(&mut self.files, Files::Lost);
        let path = self.path.clone();
        let (covered, written) = (self.covered, self.unsummed_from);
        let mut pending = std::mem::take(&mut self.pending);
        let (files, pending) = blocking(move || {
            let write = || -> io::Result<Files> {
                let (mut file, mut sums) = files.open(Path::new(path.path()))?;
                file.write_all(pending.get(written..).unwrap_or_default())?;
                if let Some(sums) = &mut sums {
                    sums.seek(SeekFrom::End(if written > 0 { -4 } else { 0 }))?;
                    let found = pending
                        .chunks(covered)
                        .flat_map(|chunk| crc32fast::hash(chunk).to_be_bytes());
                    sums.write_all(&found.collect::<Vec<u8>>())?;
                }
                Ok(Files::Open(file, sums))
            };
            let files = write().map_err(|error| FsError::io("write", &path, &error))?;
            let whole = pending.len() - pending.len() % covered;
            pending.drain(..whole);
            Ok((files, pending))
        })
        .await?;
        self.files = files;
        self.unsummed_from = pending.len();
        self.pending = pending;
        Ok(())
    }
}

impl FileWriter for LocalWriter {
    fn position(&self) -> u64 {
        self.position
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Answer<'a, ()> {
        Box::pin(async move {
            for piece in bytes.chunks(STEP_BYTES) {
                self.pending.extend_from_slice(piece);
                self.position += piece.len() as u64;
                if self.pending.len() >= STEP_BYTES {
                    self.write_out().await?;
                }
            }
            Ok(())
        })
    }

    fn flush(&mut self) -> Answer<'_, ()> {
        Box::pin(async move {
            match self.pending.len() > self.unsummed_from {
                true => self.write_out().await,
                false => Ok(()),
            }
        })
    }

    fn rest(&mut self) {
        if let Files::Open(_, sums) = &self.files {
            self.files = Files::Resting { has_sums: sums.is_some() };
        }
    }

    fn close(mut self: Box<Self>) -> Answer<'static, ()> {
        Box::pin(async move {
            self.flush().await?;
            self.is_kept = true;
            Ok(())
        })
    }

    fn abort(self: Box<Self>) -> Answer<'static, ()> {
        drop(self);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Drop for LocalWriter {
    fn drop(&mut self) {
        if !self.is_kept {
            let path = Path::new(self.path.path());
            // No caller is left to receive the error.
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(crc_path(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> LocalFiles {
        LocalFiles::new(&FileSystemSettings::default())
    }

    async fn write(path: &FsPath, pieces: &[&[u8]]) {
        let mut writer = files().create(path, CreateOptions::default()).await.unwrap();
        for piece in pieces {
            writer.write(piece).await.unwrap();
            writer.flush().await.unwrap();
        }
        writer.close().await.unwrap();
    }

    async fn read(path: &FsPath) -> Result<Vec<u8>, FsError> {
        let mut reader = files().open(path).await?;
        let mut bytes = vec![0; reader.length() as usize];
        (&mut *reader as &mut dyn FileReader).read_exact_at(0, &mut bytes).await?;
        Ok(bytes)
    }

    #[test]
    fn checksums_that_are_written_later_are_those_of_a_writer() {
        let dir = tempfile::tempdir().unwrap();
        for bytes in [0_usize, 1, 511, 512, 513, 3000] {
            let content = vec![7; bytes];
            let copy = dir.path().join("copy");
            fs::write(&copy, &content).unwrap();
            write_checksums(&copy, 512).unwrap();
            let mut expected = b"crc\0\0\0\x02\0".to_vec();
            expected
                .extend(content.chunks(512).flat_map(|chunk| crc32fast::hash(chunk).to_be_bytes()));
            assert_eq!(fs::read(crc_path(&copy)).unwrap(), expected, "{bytes}");
        }
    }

    #[tokio::test]
    async fn a_file_that_rests_between_writes_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = FsPath::local(&dir.path().join("a")).unwrap();
        let bytes: Vec<u8> = (0..1300_u32).map(|n| n as u8).collect();
        let mut writer = files().create(&path, CreateOptions::default()).await.unwrap();
        for piece in bytes.chunks(100) {
            writer.write(piece).await.unwrap();
            writer.flush().await.unwrap();
            writer.rest();
            let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
                fs::read_link(entry.unwrap().path()).ok().filter(|at| at.starts_with(dir.path()))
            });
            assert_eq!(open.collect::<Vec<_>>(), Vec::<PathBuf>::new());
        }
        writer.close().await.unwrap();
        assert_eq!(read(&path).await.unwrap(), bytes, "and the checksums agree");
    }

    #[tokio::test]
    async fn staged_files_are_no_links() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        fs::write(&secret, "a password").unwrap();
        let job = dir.path().join("job");
        fs::create_dir(&job).unwrap();
        fs::write(job.join("plain"), "<configuration/>").unwrap();
        std::os::unix::fs::symlink(&secret, job.join("link")).unwrap();
        std::os::unix::fs::symlink(&job, dir.path().join("other")).unwrap();
        fs::create_dir(job.join("directory")).unwrap();
        let pipe = std::ffi::CString::new(job.join("pipe").to_str().unwrap()).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let read = async |directory: &str, name: &str| {
            let directory = FsPath::local(&dir.path().join(directory)).unwrap();
            let mut reader = files().open_staged(&directory, name).await?;
            let mut bytes = vec![0; reader.length() as usize];
            (&mut *reader as &mut dyn FileReader).read_exact_at(0, &mut bytes).await?;
            Ok::<_, FsError>(String::from_utf8(bytes).unwrap())
        };
        assert_eq!(read("job", "plain").await.unwrap(), "<configuration/>");
        for (directory, name, why) in [
            ("job", "link", "symbolic link"),
            ("other", "plain", "symbolic link"),
            ("job", "directory", "is not a file"),
            ("job", "pipe", "is not a file"),
        ] {
            let error = read(directory, name).await.unwrap_err();
            assert!(error.to_string().contains(why), "{directory}/{name}: {error}");
        }
        let missing = read("job", "missing").await.unwrap_err();
        assert_eq!(missing.kind, ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_file_has_the_checksums_of_the_original_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = FsPath::local(&dir.path().join("sub/a")).unwrap();
        let bytes: Vec<u8> = (0..1300_u32).map(|n| n as u8).collect();
        // However it is cut.
        for cut in [1, 511, 512, 513, 1024, 1300] {
            write(&path, &[&bytes[..cut], &bytes[cut..]]).await;
            let sums = fs::read(dir.path().join("sub/.a.crc")).unwrap();
            let mut expected = b"crc\0\0\0\x02\0".to_vec();
            for chunk in bytes.chunks(512) {
                expected.extend(crc32fast::hash(chunk).to_be_bytes());
            }
            assert_eq!(sums, expected, "cut at {cut}");
            assert_eq!(read(&path).await.unwrap(), bytes);
            let parent = path.parent().unwrap();
            let listed = (&files() as &dyn FileSystem).list(&parent, 10).await.unwrap();
            assert_eq!(listed.len(), 1, "checksums are hidden");
            assert!(files().delete(&path, false).await.unwrap());
            assert_eq!(fs::read_dir(dir.path().join("sub")).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn entries_that_cannot_be_used_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| dir.path().join(std::ffi::OsStr::from_bytes(name));
        for name in [&b"a"[..], b"caf\xe9\n", b"z"] {
            fs::write(at(name), "1").unwrap();
        }
        std::os::unix::fs::symlink("/no/such/file", at(b"gone")).unwrap();
        std::os::unix::fs::symlink("round", at(b"round")).unwrap();
        let path = FsPath::local(dir.path()).unwrap();
        let files = files();
        let files = &files as &dyn FileSystem;
        let listing = files.list_all(&path, 10).await.unwrap();
        let names: Vec<&str> = listing.entries.iter().map(|entry| entry.path.name()).collect();
        assert_eq!(names, ["a", "z"]);
        let odd: Vec<String> =
            listing.odd.iter().map(|odd| format!("{}: {}", odd.name, odd.why)).collect();
        assert_eq!(
            odd[..2],
            [r"caf\xe9\n: its name is not UTF-8", "gone: is a link that leads nowhere"]
        );
        assert!(odd[2].starts_with("round: ") && odd.len() == 3, "{odd:?}");
        let error = files.list(&path, 10).await.unwrap_err().to_string();
        assert_eq!(error, format!(r"{path}/caf\xe9\n: its name is not UTF-8"));
        assert!(files.list_all(&path, 4).await.is_err(), "no more than wanted");
    }

    #[tokio::test]
    async fn a_wrong_byte_is_noticed_and_a_file_without_checksums_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = FsPath::local(&dir.path().join("a")).unwrap();
        write(&path, &[&[7; 2000]]).await;
        let mut bytes = fs::read(dir.path().join("a")).unwrap();
        bytes[700] ^= 1;
        fs::write(dir.path().join("a"), &bytes).unwrap();
        let error = read(&path).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Checksum);
        assert!(error.message.ends_with("/a at 512"), "{error}");
        fs::remove_file(dir.path().join(".a.crc")).unwrap();
        assert_eq!(read(&path).await.unwrap(), bytes);
        fs::write(dir.path().join(".a.crc"), "nonsense").unwrap();
        assert_eq!(read(&path).await.unwrap(), bytes);
    }

    #[tokio::test]
    async fn checksums_follow_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| FsPath::local(&dir.path().join(name)).unwrap();
        write(&path("a"), &[b"x"]).await;
        files().mkdirs(&path("d"), None).await.unwrap();
        files().rename(&path("a"), &path("d")).await.unwrap();
        assert!(dir.path().join("d/.a.crc").exists() && !dir.path().join(".a.crc").exists());
        write(&path("b"), &[b"y"]).await;
        let error = files().rename(&path("b"), &path("d/a")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
        let error = files().create(&path("b"), CreateOptions::default()).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
        let error = files().delete(&path("d"), false).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotEmpty);
        assert!(!files().delete(&path("nothing"), false).await.unwrap());
        let error = files().status(&path("nothing")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
        let remote = FsPath::parse("hdfs://nn/a").unwrap();
        let error = files().status(&remote).await.unwrap_err();
        assert_eq!(error.to_string(), "hdfs://nn/a: Wrong FS, expected: file:");
    }

    #[tokio::test]
    async fn a_file_is_written_on_at_its_end_with_its_checksums() {
        let dir = tempfile::tempdir().unwrap();
        let path = FsPath::local(&dir.path().join("a")).unwrap();
        let bytes: Vec<u8> = (0..1300_u32).map(|n| n as u8).collect();
        for cut in [0, 1, 511, 512, 513, 1024, 1300] {
            write(&path, &[&bytes[..cut]]).await;
            let mut writer = files().append(&path).await.unwrap();
            assert_eq!(writer.position(), cut as u64);
            for piece in bytes[cut..].chunks(100) {
                writer.write(piece).await.unwrap();
                writer.flush().await.unwrap();
            }
            // Dropped before it is closed, it stays.
            drop(writer);
            assert_eq!(read(&path).await.unwrap(), bytes, "cut at {cut}");
            assert!(files().delete(&path, false).await.unwrap());
        }
        fs::write(dir.path().join("a"), "plain ").unwrap();
        let mut writer = files().append(&path).await.unwrap();
        writer.write(b"text").await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(read(&path).await.unwrap(), b"plain text");
        assert!(!dir.path().join(".a.crc").exists());
        assert!(files().delete(&path, false).await.unwrap());
        write(&path, &[b"more"]).await;
        fs::write(dir.path().join("a"), "mere").unwrap();
        let error = files().append(&path).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::Checksum, "{error}");
        let missing = FsPath::local(&dir.path().join("b")).unwrap();
        assert_eq!(files().append(&missing).await.err().unwrap().kind, ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn unclosed_files_are_deleted_and_attributes_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = FsPath::local(&dir.path().join("a")).unwrap();
        let mut writer = files().create(&path, CreateOptions::default()).await.unwrap();
        writer.write(b"x").await.unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        write(&path, &[b"x"]).await;
        files().set_permission(&path, 0o600).await.unwrap();
        files().set_times(&path, Some(1_700_000_000_123), None).await.unwrap();
        files().set_replication(&path, 3).await.unwrap();
        let status = files().status(&path).await.unwrap();
        assert_eq!((status.permission, status.modified_ms), (0o600, 1_700_000_000_123));
        assert_eq!(status.mode(), "-rw-------");
        let parent = path.parent().unwrap();
        let summary = files().summary(&parent).await.unwrap();
        assert_eq!(summary, Summary { bytes: 1, files: 1, directories: 1 });
    }
}
