//! Copies between a file system and this machine. The target has its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::given_up::Unfinished;
use crate::local::LocalFiles;
use crate::path::FsPath;
use crate::{
    CreateOptions, ErrorKind, FileReader, FileSystem, FileWriter, FsError, Replay, blocking,
};

/// Bytes that are copied in one step; a few steps are in flight at a time.
const STEP_BYTES: usize = 256 << 10;
/// Steps that are read and not written.
const MAX_WAITING: usize = 2;

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes in all.
    pub of: u64,
}

/// Copies a file to a local path; `progress` is called after each step. After an error there is what
/// was there before. Gives the length in bytes.
///
/// # Errors
/// Also that the file is larger than `max_bytes`, or has another length at its end than at its start.
pub async fn copy_to_local(
    files: &dyn FileSystem,
    path: &FsPath,
    to: &Path,
    max_bytes: u64,
    progress: &mut (dyn FnMut(Copied) + Send),
) -> Result<u64, FsError> {
    let mut reader = files.open(path).await?;
    let of = reader.length();
    if of > max_bytes {
        let message = format!("it is larger than {max_bytes} bytes");
        return Err(FsError::new(ErrorKind::Invalid, "copy", path, message));
    }
    let part = Part::beside(to);
    let (pieces, mut waiting) = mpsc::channel::<Vec<u8>>(MAX_WAITING);
    let (target, shown) = (part.0.clone(), to.to_owned());
    let writing = tokio::spawn(blocking(move || {
        let failed = |error: io::Error| FsError::io("write", shown.display(), &error);
        let mut file = File::create_new(target).map_err(failed)?;
        while let Some(piece) = waiting.blocking_recv() {
            file.write_all(&piece).map_err(failed)?;
        }
        Ok(())
    }));
    let mut bytes = 0;
    let read = async {
        loop {
            let mut piece = vec![0; STEP_BYTES];
            let filled = fill(&mut *reader, &mut piece).await?;
            piece.truncate(filled);
            if filled == 0 || pieces.send(piece).await.is_err() {
                return Ok(());
            }
            bytes += filled as u64;
            progress(Copied { bytes, of });
        }
    };
    let read: Result<(), FsError> = read.await;
    drop(pieces);
    let written = writing.await.map_err(|error| FsError::stopped("write", path, error));
    read?;
    written??;
    if bytes != of {
        let message = format!("it has {bytes} bytes where {of} were announced");
        return Err(FsError::new(ErrorKind::Io, "copy", path, message));
    }
    let (from, to) = (part.0.clone(), to.to_owned());
    blocking(move || {
        fs::rename(&from, &to).map_err(|error| FsError::io("rename", to.display(), &error))
    })
    .await?;
    Ok(bytes)
}

/// Copies a local file to a path of a file system; `progress` is called after each step. The target
/// is replaced only with `overwrite`, when the copy is complete. Gives the length in bytes.
pub async fn put(
    from: &Path,
    files: &dyn FileSystem,
    path: &FsPath,
    local: &LocalFiles,
    options: CreateOptions,
    progress: &mut (dyn FnMut(Copied) + Send),
) -> Result<u64, FsError> {
    let source =
        fs::canonicalize(from).map_err(|error| FsError::io("open", from.display(), &error))?;
    let mut reader = local.open(&FsPath::local(&source)?).await?;
    let raw = File::open(&source).map_err(|error| FsError::io("open", from.display(), &error))?;
    let options = CreateOptions { replay: Replay::From(Arc::new(raw)), ..options };
    put_reader(&mut *reader, files, path, options, progress).await
}

/// Copies the rest of what is read to a path of a file system, as [`put`] does.
pub async fn put_reader(
    reader: &mut dyn FileReader,
    files: &dyn FileSystem,
    path: &FsPath,
    options: CreateOptions,
    progress: &mut (dyn FnMut(Copied) + Send),
) -> Result<u64, FsError> {
    let exists = || FsError::new(ErrorKind::AlreadyExists, "put", path, "File exists");
    let is_directory = || FsError::is_a_directory("put", path);
    match files.find(path).await? {
        Some(found) if found.is_directory => return Err(is_directory()),
        Some(_) if !options.overwrite => return Err(exists()),
        _ => {}
    }
    if files.is_seen_whole() {
        let writer = files.create(path, options).await?;
        return copied(reader, writer, progress).await;
    }
    let directory = path.parent().ok_or_else(exists)?;
    // The final name is for whole files. Spec: hdfs/01 §1.6.6.
    let unfinished = directory.join(&format!("{}.{:x}.tmp", path.name(), crate::hdfs::random()));
    let overwrite = options.overwrite;
    let options = CreateOptions { overwrite: false, ..options };
    let writer = files.create(&unfinished, options).await?;
    let bytes = copied(reader, writer, progress).await?;
    let until_renamed = Unfinished::new();
    let renamed: Result<(), FsError> = async {
        // A rename onto a file is refused, and one onto a directory moves into it.
        match files.find(path).await? {
            Some(found) if found.is_directory => return Err(is_directory()),
            Some(_) if !overwrite => return Err(exists()),
            Some(_) => drop(files.delete(path, false).await?),
            None => {}
        }
        files.rename(&unfinished, path).await
    }
    .await;
    let done = match renamed {
        Ok(()) => Ok(bytes),
        Err(error) => Err(given_up(files.delete(&unfinished, false).await.map(drop), error)),
    };
    until_renamed.finish();
    done
}

/// Writes the rest of what is read at the end of a file, which is created if needed; `progress` is
/// called after each step. Gives the length of what was added in bytes.
///
/// After an error the file has what it had before, and perhaps more.
pub async fn append_reader(
    reader: &mut dyn FileReader,
    files: &dyn FileSystem,
    path: &FsPath,
    progress: &mut (dyn FnMut(Copied) + Send),
) -> Result<u64, FsError> {
    let writer = match files.append(path).await {
        Err(error) if error.kind == ErrorKind::NotFound => {
            files.create(path, CreateOptions::default()).await?
        }
        opened => opened?,
    };
    copied(reader, writer, progress).await
}

/// Copies what is read to the end, and closes the file, or gives it up after an error.
async fn copied(
    reader: &mut dyn FileReader,
    mut writer: Box<dyn FileWriter>,
    progress: &mut (dyn FnMut(Copied) + Send),
) -> Result<u64, FsError> {
    let (mut piece, mut bytes) = (vec![0; STEP_BYTES], 0);
    let copied: Result<(), FsError> = async {
        loop {
            let filled = fill(reader, &mut piece).await?;
            if filled == 0 {
                return Ok(());
            }
            writer.write(piece.get(..filled).unwrap_or_default()).await?;
            bytes += filled as u64;
            progress(Copied { bytes, of: reader.length() });
        }
    }
    .await;
    match copied {
        Ok(()) => writer.close().await.map(|()| bytes),
        Err(error) => Err(given_up(writer.abort().await, error)),
    }
}

/// The first error; that what was left could not be deleted is logged.
fn given_up(deleted: Result<(), FsError>, error: FsError) -> FsError {
    if let Err(left) = deleted {
        tracing::warn!(error = %left, "a file that was given up is left");
    }
    error
}

/// Fills a buffer, or reads to the end.
async fn fill(reader: &mut dyn FileReader, buffer: &mut [u8]) -> Result<usize, FsError> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest).await? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// An unfinished copy, which goes unless it has been renamed.
struct Part(PathBuf);

impl Part {
    fn beside(to: &Path) -> Part {
        let mut name = std::ffi::OsString::from(".");
        name.push(to.file_name().unwrap_or_default());
        name.push(format!(".{:x}.part", crate::hdfs::random()));
        Part(to.with_file_name(name))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It mostly has its name by now.
        let _ = fs::remove_file(&self.0);
    }
}
