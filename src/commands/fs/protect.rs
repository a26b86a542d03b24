//! What `corona fs` refuses to delete or to move, and which targets lie within their source.
//!
//! The decisions are pure; [`Surroundings::of_process`] and [`real`] alone look at this machine.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corona::filesystem::{FileSystem, FsPath};

/// Where the kernel lists what is mounted.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The directories that a removal must leave, as absolute paths without links.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Surroundings {
    home: Option<PathBuf>,
    working: Option<PathBuf>,
    mount_points: Vec<PathBuf>,
}

/// Why a directory is not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Protected {
    /// It is the root directory.
    Root,
    /// It is the home directory, or this lies in it.
    Home(PathBuf),
    /// It is the working directory, or this lies in it.
    Working(PathBuf),
    /// A file system is mounted there, or below it.
    Mounted(PathBuf),
}

impl fmt::Display for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protected::Root => f.write_str("it is the root directory"),
            Protected::Home(home) => write!(f, "it has the home directory {}", home.display()),
            Protected::Working(at) => write!(f, "it has the working directory {}", at.display()),
            Protected::Mounted(at) => write!(f, "a file system is mounted at {}", at.display()),
        }
    }
}

impl Surroundings {
    /// Those of this process, for a directory of this machine.
    pub(in crate::commands) fn of_process(directory: &Path) -> Surroundings {
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let mounts = fs::read(MOUNTS).map(|text| mount_points(&text));
        Surroundings {
            home: std::env::home_dir().filter(|home| home.is_absolute()).map(real),
            working: std::env::current_dir().ok().map(real),
            mount_points: mounts.unwrap_or_else(|_| own_device(directory).into_iter().collect()),
        }
    }

    /// Those of a user of another file system.
    pub(super) fn of_home(home: &FsPath) -> Surroundings {
        Surroundings { home: Some(home.path().into()), ..Surroundings::default() }
    }

    /// Why a directory is not deleted without `--force-root`. The path is absolute and has no links.
    pub(in crate::commands) fn protects(&self, directory: &Path) -> Option<Protected> {
        if directory.parent().is_none() {
            return Some(Protected::Root);
        }
        let is_in_it = |path: &&PathBuf| path.starts_with(directory);
        let home = self.home.iter().find(is_in_it).cloned().map(Protected::Home);
        let working = || self.working.iter().find(is_in_it).cloned().map(Protected::Working);
        let mounted = || self.mount_points.iter().find(is_in_it).cloned().map(Protected::Mounted);
        home.or_else(working).or_else(mounted)
    }
}

/// The directory, if it is on another device than the one above it: what can be seen without `/proc`.
fn own_device(directory: &Path) -> Option<PathBuf> {
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    let above = directory.parent()?;
    (device(directory) != device(above)).then(|| directory.to_owned())
}

/// The mount points in the text of `/proc/self/mountinfo`: the fifth field of each line, in which blanks
/// and backslashes are three octal digits behind a backslash.
fn mount_points(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    fields.map(|field| std::ffi::OsString::from_vec(unescaped(field)).into()).collect()
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.first_chunk::<3>().filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

/// An absolute path without links. What does not exist of it is taken as it is written.
pub(super) fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match existing {
        // With nothing behind it, join would add a slash.
        Some((above, real)) if above == absolute => real,
        Some((above, real)) => real.join(absolute.strip_prefix(above).unwrap_or(&absolute)),
        None => absolute,
    }
}

/// A path as it is compared with others of its file system: without links on this machine.
pub(in crate::commands) fn compared(files: &dyn FileSystem, path: &FsPath) -> PathBuf {
    let path = Path::new(path.path());
    if is_local(files) { real(path) } else { path.to_owned() }
}

/// Why a file or directory is not copied there: the target lies in it, or is the same. Both paths are as
/// [`compared`] gives them.
pub(super) fn copies_into_itself(
    source: &Path,
    target: &Path,
    is_directory: bool,
) -> Option<String> {
    let (shown, to) = (source.display(), target.display());
    if source == target {
        return Some(format!("{shown} and {to} are the same"));
    }
    (is_directory && target.starts_with(source))
        .then(|| format!("cannot copy {shown} to {to}, which lies in it"))
}

/// Whether these are the files of this machine.
pub(super) fn is_local(files: &dyn FileSystem) -> bool {
    files.root().scheme() == "file"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_homes_working_directories_and_mount_points_are_protected() {
        let here = Surroundings {
            home: Some("/home/alice".into()),
            working: Some("/srv/work/now".into()),
            mount_points: vec!["/".into(), "/srv/disk".into(), "/data".into()],
        };
        for (path, expected) in [
            ("/", Some("it is the root directory")),
            ("/home", Some("it has the home directory /home/alice")),
            ("/home/alice", Some("it has the home directory /home/alice")),
            ("/home/alice/x", None),
            ("/home/al", None),
            ("/home/alice2", None),
            ("/srv/work", Some("it has the working directory /srv/work/now")),
            ("/srv/work/now", Some("it has the working directory /srv/work/now")),
            ("/srv/work/now/below", None),
            ("/srv/work/n", None),
            ("/srv", Some("it has the working directory /srv/work/now")),
            ("/srv/disk", Some("a file system is mounted at /srv/disk")),
            ("/data", Some("a file system is mounted at /data")),
            ("/data/x", None),
            ("/database", None),
        ] {
            let found = here.protects(Path::new(path)).map(|why| why.to_string());
            assert_eq!(found.as_deref(), expected, "{path}");
        }
        let remote = Surroundings::of_home(&FsPath::parse("hdfs://nn/user/alice").unwrap());
        for (path, is_protected) in
            [("/", true), ("/user", true), ("/user/alice", true), ("/user/bob", false)]
        {
            assert_eq!(remote.protects(Path::new(path)).is_some(), is_protected, "{path}");
        }
        assert_eq!(Surroundings::default().protects(Path::new("/")), Some(Protected::Root));
    }

    #[test]
    fn mount_points_are_read_from_the_kernels_list() {
        let text = b"22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
            23 22 0:21 / /proc rw - proc proc rw\n\
            24 22 0:22 / /mnt/a\\040b\\134c rw - tmpfs tmpfs rw\n\
            25 22 0:23 / /odd\\9 rw - tmpfs tmpfs rw\nshort line\n";
        let points: Vec<PathBuf> =
            ["/", "/proc", "/mnt/a b\\c", "/odd\\9"].map(PathBuf::from).into();
        assert_eq!(mount_points(text), points);
        let here = Surroundings::of_process(Path::new("/tmp"));
        assert!(here.mount_points.contains(&PathBuf::from("/")), "{here:?}");
    }

    #[test]
    fn a_directory_is_not_copied_into_itself() {
        for (source, target, is_directory, refused) in [
            ("/a/d", "/a/d/sub", true, true),
            ("/a/d", "/a/d", true, true),
            ("/a/d", "/a/d2", true, false),
            ("/a/d", "/a/e/d", true, false),
            ("/a/d/sub", "/a/d", true, false),
            ("/a/f", "/a/f", false, true),
            ("/a/f", "/a/g", false, false),
        ] {
            let found = copies_into_itself(Path::new(source), Path::new(target), is_directory);
            assert_eq!(found.is_some(), refused, "{source} {target}");
        }
    }

    #[test]
    fn real_paths_have_no_links_as_far_as_they_exist() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        fs::create_dir(at.join("d")).unwrap();
        std::os::unix::fs::symlink(at.join("d"), at.join("link")).unwrap();
        for (path, expected) in
            [("d", "d"), ("link", "d"), ("link/new/file", "d/new/file"), ("none/x", "none/x")]
        {
            assert_eq!(real(&at.join(path)), at.join(expected), "{path}");
        }
        assert_eq!(real(Path::new("/")), Path::new("/"));
    }
}
