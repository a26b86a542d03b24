//! `corona fs rm` and `mv`: what takes a path away from where it is.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use corona::filesystem::{ErrorKind, FileStatus, FileSystem, FsError, FsPath};
use jiff::Timestamp;

use super::protect::{Surroundings, compared, is_local};
use super::{Done, Output, Shell, worded};

/// How `rm` deletes.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Removal {
    /// Delete directories with all that they have; on a terminal it asks first,
    /// unless they go to the trash
    #[arg(short, long)]
    pub(super) recursive: bool,
    /// Do not ask, and do not fail for paths that do not exist
    #[arg(short, long)]
    pub(super) force: bool,
    /// Delete at once
    #[arg(long)]
    pub(super) skip_trash: bool,
    /// Delete also a root directory, a mount point, the home directory, the
    /// working directory and directories above them
    #[arg(long)]
    pub(super) force_root: bool,
}

/// What happens to a path that is to be deleted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Trash,
    Deletion {
        /// Whether somebody is asked before.
        asks: bool,
    },
}

impl Shell {
    pub(super) async fn remove(
        &self,
        text: &str,
        how: Removal,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let Some((files, path, found)) = output.reported(self.found(text).await) else {
            return Ok(());
        };
        // Uploads that a killed program has left are not seen, and take room.
        let was_uploaded = found.is_empty() && how.recursive && files.is_seen_whole();
        let aborted = if was_uploaded { files.delete(&path, true).await } else { Ok(false) };
        if let Err(error) = aborted {
            output.fail(&worded(&error));
        } else if aborted.is_ok_and(|was_there| was_there) {
            output.say(&format!("Deleted: unfinished uploads of {path}"))?;
            output.done.push(Done { path: path.to_string(), to: None, bytes: None });
        } else if found.is_empty() && !how.force {
            output.fail(&format!("cannot remove {path}: No such file or directory."));
        }
        for status in found {
            let path = &status.path;
            let Some(fate) = output.reported(self.fate(&*files, &status, how)) else { continue };
            let (what, removed) = match fate {
                Fate::Trash => {
                    ("Moved to trash", move_to_trash(&*files, path).await.map(|()| true))
                }
                Fate::Deletion { asks: true } if !is_wanted(path, output) => {
                    output.say(&format!("Kept: {path}"))?;
                    continue;
                }
                Fate::Deletion { .. } => ("Deleted", files.delete(path, how.recursive).await),
            };
            if how.force && is_gone(&*files, path, &removed).await {
                continue;
            }
            let removed = removed.and_then(|was_there| match was_there {
                true => Ok(()),
                false => Err(FsError::not_found("delete", path)),
            });
            if output.reported(removed).is_some() {
                output.say(&format!("{what}: {path}"))?;
                output.done.push(Done { path: path.to_string(), to: None, bytes: None });
            }
        }
        Ok(())
    }

    /// What happens to a path, or why nothing does. Nothing is sent for it before.
    pub(super) fn fate(
        &self,
        files: &dyn FileSystem,
        status: &FileStatus,
        how: Removal,
    ) -> Result<Fate, String> {
        let path = &status.path;
        let has_trash = !how.skip_trash && self.settings.trash_minutes > 0;
        let goes_to_trash = has_trash && is_for_trash(files, path);
        let is_link = is_local(files) && Path::new(path.path()).is_symlink();
        let is_directory = status.is_directory && !is_link;
        let fate = match goes_to_trash {
            true => Fate::Trash,
            false => Fate::Deletion { asks: is_directory && !how.force },
        };
        if !is_directory {
            return Ok(fate);
        }
        if !how.recursive {
            return Err(format!("Cannot remove directory \"{path}\", use --recursive instead"));
        }
        // Name nodes fail at it.
        if path.parent().is_none() && !is_local(files) {
            return Err(format!("cannot remove {path}: it is the root directory"));
        }
        let directory = compared(files, path);
        let surroundings = match is_local(files) {
            true => Surroundings::of_process(&directory),
            false => Surroundings::of_home(&files.home()),
        };
        let protected = surroundings.protects(&directory);
        if let Some(why) = protected.filter(|_| !how.force_root) {
            return Err(format!("cannot remove {path}: {why}; --force-root removes it"));
        }
        match fate {
            // The original's words.
            Fate::Trash if files.home().join(".Trash").is_within(path) => {
                Err(format!("Cannot move \"{path}\" to the trash, as it contains the trash"))
            }
            fate => Ok(fate),
        }
    }

    pub(super) async fn rename(
        &self,
        from: &[String],
        to: &str,
        output: &mut Output<'_, '_>,
    ) -> anyhow::Result<()> {
        let sources = self.sources(from, output).await;
        let Some((target, to, found)) = output.reported(self.looked_up(to).await) else {
            return Ok(());
        };
        let into = found.as_ref().is_some_and(|found| found.is_directory);
        if sources.len() > 1 && !into {
            output.fail("When moving multiple files, destination should be a directory.");
            return Ok(());
        }
        for (files, status) in sources {
            let from = status.path.clone();
            let target = Target { files: &target, path: &to, exists: found.is_some(), into };
            if output.reported(rename_one(&*files, &status, target).await).is_some() {
                output.done.push(Done {
                    path: from.to_string(),
                    to: Some(to.to_string()),
                    bytes: None,
                });
            }
        }
        Ok(())
    }
}

/// Whether the path was not there to be removed, and is not there now: somebody else has removed it.
async fn is_gone(files: &dyn FileSystem, path: &FsPath, removed: &Result<bool, FsError>) -> bool {
    let was_missed = match removed {
        Ok(was_there) => !was_there,
        Err(error) => error.kind == ErrorKind::NotFound,
    };
    was_missed && files.find(path).await.is_ok_and(|found| found.is_none())
}

/// Where sources are moved to.
#[derive(Clone, Copy)]
struct Target<'a> {
    files: &'a Arc<dyn FileSystem>,
    path: &'a FsPath,
    exists: bool,
    /// Whether it is a directory, which gets the sources as entries.
    into: bool,
}

async fn rename_one(
    files: &dyn FileSystem,
    status: &FileStatus,
    target: Target<'_>,
) -> Result<(), String> {
    let (from, to) = (&status.path, target.path);
    if !files.root().is_same(target.files.root()) {
        return Err("src and destination filesystems do not match.".to_owned());
    }
    if from.parent().is_none() {
        return Err(format!("cannot move {from}: it is the root directory"));
    }
    let inner = if target.into { to.join(from.name()) } else { to.clone() };
    let (source, place) = (compared(files, from), compared(files, &inner));
    if status.is_directory && place != source && place.starts_with(&source) {
        return Err(format!("cannot move {from} to {inner}, which lies in it"));
    }
    files.rename(from, to).await.map_err(|error| match error.kind {
        _ if status.is_directory && target.exists && !target.into => {
            format!("cannot overwrite non directory {to} with directory {from}")
        }
        ErrorKind::AlreadyExists => format!("Failed to rename {from} to {to}"),
        _ => worded(&error),
    })
}

/// Whether a directory is to be deleted, as far as somebody can be asked.
fn is_wanted(directory: &FsPath, output: &mut Output<'_, '_>) -> bool {
    let question = format!("delete {directory} and all that is in it?");
    output.console.confirm(&question).unwrap_or(true)
}

/// Whether a deleted file goes to the trash. Spec: hdfs/01 §1.3.4.
fn is_for_trash(files: &dyn FileSystem, path: &FsPath) -> bool {
    let mut parts = path.path().split('/').skip(1);
    let is_temporary = match parts.next() {
        Some("tmp") => true,
        Some("namespace") => parts.nth(1) == Some("tmp"),
        _ => false,
    };
    let trash = files.home().join(".Trash");
    files.root().scheme() == "hdfs" && !is_temporary && !path.is_within(&trash)
}

pub(super) async fn move_to_trash(files: &dyn FileSystem, path: &FsPath) -> Result<(), FsError> {
    let below = path.path().trim_start_matches('/');
    let target = files.home().join(".Trash/Current").join(below);
    let directory = target.parent().unwrap_or_else(|| files.home());
    files.mkdirs(&directory, Some(0o700)).await?;
    let target = match files.find(&target).await? {
        None => target,
        Some(_) => directory.join(&format!("{}{}", path.name(), Timestamp::now().as_millisecond())),
    };
    files.rename(path, &target).await
}

#[cfg(test)]
mod tests {
    use corona::filesystem::{FileSystemSettings, LocalFiles};

    use super::*;

    #[tokio::test]
    async fn a_path_is_gone_when_it_was_missed_and_is_not_there() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("there"), "").unwrap();
        let files = LocalFiles::new(&FileSystemSettings::default());
        for (name, removed, expected) in
            [("gone", Ok(false), true), ("gone", Ok(true), false), ("there", Ok(false), false)]
        {
            let path = FsPath::parse(&format!("file:{}", root.path().join(name).display()));
            let path = path.unwrap();
            assert_eq!(is_gone(&files, &path, &removed).await, expected, "{name} {removed:?}");
            // As something else that was not found may be.
            let missed = Err(FsError::not_found("delete", &path));
            assert_eq!(is_gone(&files, &path, &missed).await, name == "gone", "{name}");
        }
    }
}
