//! `corona fs get` and `put`: copies between a file system and this machine.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corona::filesystem::{
    Answer, Copied, CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem, FsError, FsPath,
    append_reader, copy_to_local, put, put_reader,
};

use super::protect::{compared, copies_into_itself, is_local, real};
use super::{Done, MAX_DEPTH, MAX_FILES, Output, STANDARD, Shell, worded};
use corona_terminal::progress::CopyProgress;

impl Shell {
    pub(super) async fn get(
        &self,
        from: &[String],
        to: &Path,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let sources = self.sources(from, output).await;
        let into = to.is_dir();
        if sources.len() > 1 && !into {
            output.fail("When copying multiple files, destination should be a directory.");
            return Ok(());
        }
        let mut progress = CopyProgress::default();
        for (files, status) in sources {
            let to = if into { to.join(status.path.name()) } else { to.to_owned() };
            let refused = is_local(&*files).then(|| {
                copies_into_itself(
                    &compared(&*files, &status.path),
                    &real(&to),
                    status.is_directory,
                )
            });
            if let Some(refused) = refused.flatten() {
                output.fail(&refused);
                continue;
            }
            let mut waiting = vec![(status, to, 0)];
            while let Some((status, to, depth)) = waiting.pop() {
                let copied = self.get_one(&*files, &status, &to, depth, &mut progress).await;
                match copied {
                    Ok(Got::File(bytes)) => output.done.push(Done {
                        path: status.path.to_string(),
                        to: Some(to.display().to_string()),
                        bytes: Some(bytes),
                    }),
                    Ok(Got::Directory(entries)) => {
                        waiting.extend(entries.into_iter().map(|entry| {
                            let to = to.join(entry.path.name());
                            (entry, to, depth + 1)
                        }));
                    }
                    Err(error) => output.fail(&worded(&error)),
                }
            }
        }
        Ok(())
    }

    async fn get_one(
        &self,
        files: &dyn FileSystem,
        status: &FileStatus,
        to: &Path,
        depth: usize,
        progress: &mut CopyProgress,
    ) -> Result<Got, FsError> {
        if status.is_directory {
            if depth > MAX_DEPTH {
                let message = format!("more than {MAX_DEPTH} directories inside one another");
                return Err(FsError::new(ErrorKind::Invalid, "get", &status.path, message));
            }
            std::fs::create_dir_all(to)
                .map_err(|error| FsError::io("mkdir", to.display(), &error))?;
            return files.list(&status.path, MAX_FILES).await.map(Got::Directory);
        }
        if to.exists() {
            let message = format!("Target {} already exists", to.display());
            return Err(FsError::new(ErrorKind::AlreadyExists, "get", "", message));
        }
        let name = status.path.name();
        let mut show = |copied: Copied| progress.show(name, copied.bytes, copied.of);
        copy_to_local(files, &status.path, to, u64::MAX, &mut show).await.map(Got::File)
    }

    pub(super) async fn put(
        &self,
        from: &[String],
        to: &str,
        options: CreateOptions,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((files, path, found)) = output.reported(self.looked_up(to).await) else {
            return Ok(());
        };
        let into = found.is_some_and(|found| found.is_directory);
        if from.len() > 1 && !into {
            output.fail("When copying multiple files, destination should be a directory.");
            return Ok(());
        }
        let mut progress = CopyProgress::default();
        if let [source] = from
            && source == STANDARD
        {
            match put_stdin(&*files, &path, into, options, &mut progress).await {
                Ok(bytes) => output.done.push(Done::copied(STANDARD, &path, bytes)),
                Err(error) => output.fail(&target_worded(&error, &path)),
            }
            return Ok(());
        }
        for from in from {
            let Some(from) = output.reported(local_path(from)) else { continue };
            let name = from.canonicalize().unwrap_or_else(|_| from.clone());
            let name = name.file_name().map(|name| name.to_string_lossy().into_owned());
            let to = match name {
                Some(name) if into => path.join(&name),
                _ => path.clone(),
            };
            let refused = is_local(&*files)
                .then(|| copies_into_itself(&real(&from), &compared(&*files, &to), from.is_dir()));
            if let Some(refused) = refused.flatten() {
                output.fail(&refused);
                continue;
            }
            let mut waiting = vec![(from, to, Vec::new())];
            while let Some((from, to, above)) = waiting.pop() {
                let sent = self.put_one(&from, &*files, &to, &options, &above, &mut progress);
                match sent.await {
                    Ok(Sent::File(bytes)) => {
                        output.done.push(Done::copied(&from.display().to_string(), &to, bytes));
                    }
                    Ok(Sent::Directory { names, identity }) => {
                        let above = [above, vec![identity]].concat();
                        waiting.extend(names.into_iter().rev().map(|name| {
                            let to = to.join(&name);
                            (from.join(name), to, above.clone())
                        }));
                    }
                    Err(error) => output.fail(&target_worded(&error, &to)),
                }
            }
        }
        Ok(())
    }

    pub(super) async fn append(&self, from: &str, to: &str) -> Result<Done, FsError> {
        let (files, to) = self.systems.resolve(to)?;
        let mut progress = CopyProgress::default();
        let mut show = |copied: Copied| progress.show(to.name(), copied.bytes, copied.of);
        let bytes = if from == STANDARD {
            let mut stdin = Stdin { position: 0, waiting: Vec::new() };
            append_reader(&mut stdin, &*files, &to, &mut show).await?
        } else {
            let source = local_path(from)?;
            let source = source
                .canonicalize()
                .map_err(|error| FsError::io("put", source.display(), &error))?;
            let mut reader = self.local.open(&FsPath::local(&source)?).await?;
            append_reader(&mut *reader, &*files, &to, &mut show).await?
        };
        Ok(Done::copied(from, &to, bytes))
    }

    async fn put_one(
        &self,
        from: &Path,
        files: &dyn FileSystem,
        to: &FsPath,
        options: &CreateOptions,
        above: &[Identity],
        progress: &mut CopyProgress,
    ) -> Result<Sent, FsError> {
        let metadata = std::fs::metadata(from).map_err(|error| {
            let message = match error.kind() {
                std::io::ErrorKind::NotFound => "File does not exist.".to_owned(),
                _ => error.to_string(),
            };
            FsError { message, ..FsError::io("put", from.display(), &error) }
        })?;
        if metadata.is_dir() {
            let invalid =
                |message| FsError::new(ErrorKind::Invalid, "put", from.display(), message);
            if above.len() > MAX_DEPTH {
                let message = format!("more than {MAX_DEPTH} directories inside one another");
                return Err(invalid(message));
            }
            let identity = (metadata.dev(), metadata.ino());
            if above.contains(&identity) {
                return Err(invalid("a link leads back to a directory above it".to_owned()));
            }
            // As in the original: what a directory has already is not mixed with what is copied.
            if above.is_empty()
                && !options.overwrite
                && files.find(to).await?.is_some_and(|found| found.is_directory)
            {
                return Err(FsError::new(ErrorKind::IsADirectory, "put", to, "Is a directory"));
            }
            files.mkdirs(to, None).await?;
            let names = self.local_entries(from).await?;
            return Ok(Sent::Directory { names, identity });
        }
        let mut show = |copied: Copied| progress.show(to.name(), copied.bytes, copied.of);
        put(from, files, to, &self.local, options.clone(), &mut show).await.map(Sent::File)
    }

    /// The names in a directory of this machine, without files of checksums.
    async fn local_entries(&self, from: &Path) -> Result<Vec<String>, FsError> {
        let absolute =
            from.canonicalize().map_err(|error| FsError::io("put", from.display(), &error))?;
        let local: &dyn FileSystem = &self.local;
        let entries = local.list(&FsPath::local(&absolute)?, MAX_FILES).await?;
        Ok(entries.iter().map(|entry| entry.path.name().to_owned()).collect())
    }
}

/// Copies stdin to a file, which has its name when stdin has ended.
async fn put_stdin(
    files: &dyn FileSystem,
    to: &FsPath,
    is_directory: bool,
    options: CreateOptions,
    progress: &mut CopyProgress,
) -> Result<u64, FsError> {
    if is_directory {
        let message = "When source is stdin, destination must be a file.";
        return Err(FsError::new(ErrorKind::Invalid, "put", "", message));
    }
    let mut show = |copied: Copied| progress.show(to.name(), copied.bytes, copied.of);
    let mut stdin = Stdin { position: 0, waiting: Vec::new() };
    put_reader(&mut stdin, files, to, options, &mut show).await
}

/// A source of `put`: a path of this machine, or a `file:` path.
fn local_path(text: &str) -> Result<PathBuf, FsError> {
    match text.starts_with("file:") {
        true => Ok(PathBuf::from(FsPath::parse(text)?.path())),
        false => Ok(PathBuf::from(text)),
    }
}

/// A failure of a copy to this target, as `hadoop fs` words it.
fn target_worded(error: &FsError, to: &FsPath) -> String {
    match error.kind {
        ErrorKind::AlreadyExists => format!("Target {to} already exists"),
        ErrorKind::IsADirectory => format!("Target {to} is a directory"),
        ErrorKind::NotFound if error.call == "put" => {
            format!("File {} does not exist.", error.path)
        }
        _ => worded(error),
    }
}

enum Got {
    File(u64),
    Directory(Vec<FileStatus>),
}

enum Sent {
    File(u64),
    Directory { names: Vec<String>, identity: Identity },
}

/// The device and the number of a directory of this machine.
type Identity = (u64, u64);

/// Stdin as a file that is copied. It is read on a thread of its own, which may never return.
struct Stdin {
    position: u64,
    waiting: Vec<u8>,
}

impl FileReader for Stdin {
    fn length(&self) -> u64 {
        self.position
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn seek(&mut self, _position: u64) {}

    fn read_until(&mut self, _end: u64) {}

    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Answer<'a, usize> {
        Box::pin(async move {
            if self.waiting.is_empty() {
                let read = tokio::task::spawn_blocking(|| {
                    let mut piece = vec![0; 64 << 10];
                    std::io::stdin().lock().read(&mut piece).map(|read| {
                        piece.truncate(read);
                        piece
                    })
                });
                let read = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
                self.waiting = read.map_err(|error| FsError::io("read", "stdin", &error))?;
            }
            let length = self.waiting.len().min(buffer.len());
            for (to, from) in buffer.iter_mut().zip(self.waiting.drain(..length)) {
                *to = from;
            }
            self.position += length as u64;
            Ok(length)
        })
    }
}
