//! Replaces a file atomically, so that a complete file has the name at every moment, whatever
//! fails. It does not know the contents.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The end of the name of a file that was set aside after a recovery.
pub(crate) const RECOVERED: &str = ".recovered";
/// The end of the name of a file that was set aside because a journal has gone on after it.
pub(crate) const OUTDATED: &str = ".outdated";

/// Writes a new file at `path`. The previous file stays as `<path>.previous`. A `path` that is a
/// symbolic link stays one: the file that it names is replaced.
///
/// The new file is written under another name, `<path>.new`, in the same directory, synced, and
/// then takes the name over. The old file gets its second name as a hard link before that: were it
/// renamed, there would be a moment at which no file has the name.
///
/// The new file has the mode of the old one, and its owner and group if this process may set them.
/// Before that, only its owner may read it. If there is no old file, one of an earlier run counts.
///
/// # Errors
/// The system's error, or that of `write`. The old file is then still in its place.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let target = followed(path);
    let path = target.as_path();
    let new = beside(path, ".new");
    // Left there by a process that was stopped while it wrote.
    remove_if_there(&new)?;
    let aside = [RECOVERED, OUTDATED].map(|suffix| beside(path, suffix));
    let mut earlier = [path.to_owned()].into_iter().chain(aside).chain([previous(path)]);
    let old = earlier.find_map(|path| fs::metadata(path).ok().filter(Metadata::is_file));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if old.is_some() {
        options.mode(0o600);
    }
    let mut file = options.open(&new)?;
    let written = old.map_or(Ok(()), |old| take_over_access(&file, &old));
    let written = written.and_then(|()| write(&mut file)).and_then(|()| file.sync_all());
    let replaced = written.and_then(|()| {
        keep_previous(path)?;
        fs::rename(&new, path)
    });
    if let Err(error) = replaced {
        // The caller gets the first error.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    File::open(directory_of(path))?.sync_all()
}

/// Gives the file at `path` a name that ends with `suffix`, in the place of an earlier file of that
/// name, and returns it. Of a symbolic link the file that it names is renamed.
///
/// # Errors
/// The system's error. The file then still has its name.
pub(crate) fn set_aside(path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let path = followed(path);
    let aside = beside(&path, suffix);
    fs::rename(&path, &aside)?;
    File::open(directory_of(&path))?.sync_all()?;
    Ok(aside)
}

/// The file that a path names, also where it is a symbolic link to a file that is not there.
fn followed(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| match fs::read_link(path) {
        Ok(target) => directory_of(path).join(target),
        Err(_) => path.to_owned(),
    })
}

/// Where the file that was replaced last is kept.
pub(super) fn previous(path: &Path) -> PathBuf {
    beside(path, ".previous")
}

fn keep_previous(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(there) if !there.is_file() => return Err(io::Error::other("it is not a regular file")),
        Ok(_) => {}
    }
    let previous = previous(path);
    remove_if_there(&previous)?;
    // File systems without hard links have no way without the moment.
    fs::hard_link(path, &previous).or_else(|_| fs::rename(path, &previous))
}

/// Gives a file the owner, group and mode of an old one. If the group cannot be kept, the group may do
/// no more than everybody may.
fn take_over_access(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let mut mode = old.mode() & 0o777;
    if new.gid() != old.gid() && fchown(file, None, Some(old.gid())).is_err() {
        mode = mode & !0o070 | (mode & 0o007) << 3 & mode;
    }
    if new.uid() != old.uid() {
        // Only root may do this. Another process that can replace the file can read it anyway.
        let _ = fchown(file, Some(old.uid()), None);
    }
    file.set_permissions(Permissions::from_mode(mode))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn put(path: &Path, text: &str) -> io::Result<()> {
        replace(path, |file| file.write_all(text.as_bytes()))
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_new_file_takes_the_name_and_the_last_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cm.state");
        for text in ["one", "two", "three"] {
            put(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(previous(&path)).unwrap(), "two");
        assert_eq!(names(dir.path()), ["cm.state", "cm.state.previous"]);
    }

    /// An operator who has closed the file to others does not have to do so again.
    #[test]
    fn the_new_file_has_the_mode_of_the_one_that_it_replaces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cm.state");
        put(&path, "old").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        for wanted in [0o600, 0o640, 0o664, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(wanted)).unwrap();
            for text in ["second", "third"] {
                replace(&path, |file| {
                    assert_eq!(file.metadata()?.mode() & 0o777, wanted, "while it is empty");
                    file.write_all(text.as_bytes())
                })
                .unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
                assert_eq!((mode(&path), mode(&previous(&path))), (wanted, wanted), "{text}");
            }
        }
        set_aside(&path, RECOVERED).unwrap();
        put(&path, "after a recovery").unwrap();
        assert_eq!(mode(&path), 0o400);
        // Only root can change owners.
        if fs::metadata(&path).unwrap().uid() == 0 {
            std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).unwrap();
            put(&path, "newer").unwrap();
            let kept = fs::metadata(&path).unwrap();
            assert_eq!((kept.uid(), kept.gid(), mode(&path)), (12_345, 54_321, 0o400));
        }
    }

    #[test]
    fn a_file_that_is_set_aside_leaves_its_name_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cm.state");
        for text in ["one", "two"] {
            put(&path, text).unwrap();
            let aside = set_aside(&path, RECOVERED).unwrap();
            assert_eq!(fs::read_to_string(aside).unwrap(), text);
            assert_eq!(names(dir.path()), ["cm.state.recovered"]);
        }
        assert_eq!(set_aside(&path, RECOVERED).unwrap_err().kind(), io::ErrorKind::NotFound);

        let link = dir.path().join("link");
        std::os::unix::fs::symlink("cm.state", &link).unwrap();
        put(&link, "three").unwrap();
        set_aside(&link, RECOVERED).unwrap();
        assert_eq!(names(dir.path()), ["cm.state.recovered", "link"]);
        put(&link, "four").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "four");
    }

    #[test]
    fn a_write_that_fails_leaves_all_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cm.state");
        put(&path, "old").unwrap();
        let error = replace(&path, |file| {
            file.write_all(b"half of it")?;
            Err(io::Error::other("no space"))
        });
        assert_eq!(error.unwrap_err().to_string(), "no space");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["cm.state"]);
    }

    #[test]
    fn files_of_a_stopped_process_do_not_block_the_next_save() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cm.state");
        put(&path, "old").unwrap();
        // Stopped while it wrote, and stopped between the link and the renaming.
        fs::write(beside(&path, ".new"), "half").unwrap();
        fs::hard_link(&path, previous(&path)).unwrap();
        put(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(previous(&path)).unwrap(), "old");
        assert_eq!(names(dir.path()), ["cm.state", "cm.state.previous"]);
    }

    #[test]
    fn a_link_to_the_file_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (link, path) = (dir.path().join("link"), dir.path().join("cm.state"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        put(&path, "old").unwrap();
        put(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(dir.path()), ["cm.state", "cm.state.previous", "link"]);
    }

    #[test]
    fn a_directory_that_is_missing_or_in_the_way_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(put(&dir.path().join("missing/cm.state"), "x").is_err());
        let path = dir.path().join("cm.state");
        fs::create_dir(&path).unwrap();
        assert!(put(&path, "x").is_err());
        assert_eq!(names(dir.path()), ["cm.state"]);
    }
}
