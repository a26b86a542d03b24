//! Commands that copy and move.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use corona::filesystem::{
    CreateOptions, ErrorKind, FileReader, FileStatus, FileSystem, FsError, FsPath, put_reader,
};

use super::super::protect::{compared, copies_into_itself};
use super::super::{Failure, MAX_DEPTH, MAX_FILES, Output, STANDARD, Shell, worded};
use super::Line;

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 64 << 10;

impl Shell {
    pub(super) async fn move_all(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        match words.split_last() {
            Some((to, from)) => self.rename(from, to, output).await,
            None => Ok(()),
        }
    }

    pub(super) async fn put_all(
        &self,
        name: &str,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((to, from)) = line.words.split_last() else { return Ok(()) };
        let options = CreateOptions { overwrite: line.has("-f"), ..CreateOptions::default() };
        self.put(from, to, options, output).await?;
        if name == "-moveFromLocal" && !output.has_failed {
            for from in from {
                let path = Path::new(from.strip_prefix("file:").unwrap_or(from));
                let removed = match path.symlink_metadata() {
                    Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
                    _ => std::fs::remove_file(path),
                };
                if let Err(error) = removed {
                    output.fail(&format!("cannot remove {}: {error}", path.display()));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn get_all(
        &self,
        line: &Line,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((to, from)) = line.words.split_last() else { return Ok(()) };
        if line.has("-crc") {
            output.console.complain(match to == STANDARD {
                true => "-crc option is not valid when destination is stdout.\n",
                false => {
                    "-crc option is not valid when source file system does not have crc files. \
                     Automatically turn the option off.\n"
                }
            });
        }
        match to == STANDARD {
            true => self.cat_all(from, output).await,
            false => self.get(from, Path::new(to), output).await,
        }
    }

    /// Copies the files of directories, one behind the other, to one of this machine, which has its name
    /// when it is complete.
    pub(super) async fn merge(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let (from, to, has_ends) = match words {
            [from, to] => (from, to, false),
            [from, to, ends] => (from, to, ends.eq_ignore_ascii_case("true")),
            _ => return Ok(()),
        };
        let Some((files, found)) = self.named(from, output).await else { return Ok(()) };
        let mut to = Path::new(to).to_owned();
        if to.is_dir() {
            to.push(found.first().map(|status| status.path.name()).unwrap_or_default());
        }
        if to.exists() {
            output.fail(&format!("Target {} already exists", to.display()));
            return Ok(());
        }
        let mut sources = Vec::new();
        for status in found {
            match status.is_directory {
                false => sources.push(status),
                true => {
                    let entries = output.reported(files.list(&status.path, MAX_FILES).await);
                    let entries = entries.unwrap_or_default().into_iter();
                    sources.extend(entries.filter(|it| !it.is_directory));
                }
            }
        }
        let merged = async {
            let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
            let mut new = tempfile::Builder::new()
                .permissions(Permissions::from_mode(0o666))
                .tempfile_in(directory.unwrap_or(Path::new(".")))
                .map_err(|error| format!("{}: {error}", to.display()))?;
            for source in &sources {
                let mut reader = files.open(&source.path).await?;
                copy_to(&mut *reader, &mut new).await?;
                if has_ends {
                    new.write_all(b"\n").map_err(|error| error.to_string())?;
                }
            }
            let kept = new.persist_noclobber(&to);
            let failed =
                |error: tempfile::PersistError| format!("{}: {}", to.display(), error.error);
            kept.map(drop).map_err(|error| Failure(failed(error)))
        };
        if !output.has_failed {
            output.reported(merged.await);
        }
        Ok(())
    }

    pub(super) async fn copy_all(
        &self,
        words: &[String],
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((to, from)) = words.split_last() else { return Ok(()) };
        let Some((target, path, found)) = output.reported(self.looked_up(to).await) else {
            return Ok(());
        };
        let into = found.is_some_and(|found| found.is_directory);
        let mut sources = Vec::new();
        for text in from {
            if let Some((files, found)) = self.named(text, output).await {
                sources.extend(found.into_iter().map(|status| (files.clone(), status)));
            }
        }
        if (from.len() > 1 || sources.len() > 1) && !into {
            output.fail(&format!(
                "When copying multiple files, destination {to} should be a directory."
            ));
            return Ok(());
        }
        for (files, status) in sources {
            let to = if into { path.join(status.path.name()) } else { path.clone() };
            if files.root().is_same(target.root())
                && let Some(refused) = copies_into_itself(
                    &compared(&*files, &status.path),
                    &compared(&*target, &to),
                    status.is_directory,
                )
            {
                output.fail(&refused);
                continue;
            }
            if let Err(error) = copy_tree(&*files, status, &*target, to.clone()).await {
                output.fail(&match error.kind {
                    ErrorKind::AlreadyExists => format!("Target {to} already exists"),
                    ErrorKind::IsADirectory => format!("Target {to} is a directory"),
                    _ => worded(&error),
                });
            }
        }
        Ok(())
    }
}

/// Copies a file, or a directory with all that it has.
async fn copy_tree(
    files: &dyn FileSystem,
    status: FileStatus,
    target: &dyn FileSystem,
    to: FsPath,
) -> Result<(), FsError> {
    if target.find(&to).await?.is_some_and(|found| found.is_directory) {
        return Err(FsError::new(ErrorKind::IsADirectory, "cp", &to, "Is a directory"));
    }
    let mut waiting = vec![(status, to, 0)];
    while let Some((status, to, depth)) = waiting.pop() {
        if !status.is_directory {
            let mut reader = files.open(&status.path).await?;
            let options = CreateOptions::default();
            put_reader(&mut *reader, target, &to, options, &mut |_| ()).await?;
            continue;
        }
        if depth > MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} directories inside one another");
            return Err(FsError::new(ErrorKind::Invalid, "cp", &status.path, message));
        }
        target.mkdirs(&to, None).await?;
        let entries = files.list(&status.path, MAX_FILES).await?;
        waiting.extend(entries.into_iter().map(|entry| {
            let to = to.join(entry.path.name());
            (entry, to, depth + 1)
        }));
    }
    Ok(())
}

/// Copies the rest of a file.
async fn copy_to(reader: &mut dyn FileReader, to: &mut impl Write) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = reader.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        let bytes = piece.get(..read).unwrap_or_default();
        to.write_all(bytes).map_err(|error| error.to_string())?;
    }
}
