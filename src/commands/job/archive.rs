//! Directories and archives for the tasks of a job.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::NamedTempFile;

/// The endings of archives that nodes unpack.
const ENDINGS: [&str; 5] = [".jar", ".zip", ".tar", ".tar.gz", ".tgz"];

/// The ending by which nodes know the kind of an archive.
pub(super) fn ending(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    ENDINGS.into_iter().find(|ending| name.ends_with(ending))
}

/// Packs a directory into a `.tar` without compression, which lies in a temporary directory. What links
/// lead to is packed in their place.
///
/// # Errors
/// Something cannot be read, is neither a file nor a directory, or a link leads back to a directory above
/// it.
pub(super) fn pack(directory: &Path) -> anyhow::Result<NamedTempFile> {
    let packed = NamedTempFile::new().context("cannot make a temporary file")?;
    let mut archive = tar::Builder::new(std::io::BufWriter::new(packed.as_file()));
    archive.follow_symlinks(true);
    let mut waiting = VecDeque::from([(directory.to_owned(), PathBuf::new(), Vec::new())]);
    while let Some((path, name, above)) = waiting.pop_front() {
        let shown = || path.display().to_string();
        let found = fs::metadata(&path).with_context(shown)?;
        if found.is_file() {
            let mut file = File::open(&path).with_context(shown)?;
            archive.append_file(&name, &mut file).with_context(shown)?;
            continue;
        }
        ensure!(found.is_dir(), "{} is neither a file nor a directory", path.display());
        let identity = (found.dev(), found.ino());
        ensure!(
            !above.contains(&identity),
            "{} leads back to a directory above it",
            path.display()
        );
        if !name.as_os_str().is_empty() {
            archive.append_dir(&name, &path).with_context(shown)?;
        }
        let above = [above, vec![identity]].concat();
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).with_context(shown)? {
            names.push(entry.with_context(shown)?.file_name());
        }
        names.sort();
        waiting.extend(
            names.into_iter().map(|entry| (path.join(&entry), name.join(&entry), above.clone())),
        );
    }
    archive.into_inner().and_then(|mut buffer| std::io::Write::flush(&mut buffer))?;
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn archives_are_known_by_their_endings() {
        for (name, expected) in [
            ("env.tar.gz", Some(".tar.gz")),
            ("a/ENV.TGZ", Some(".tgz")),
            ("x.zip", Some(".zip")),
            ("x.jar", Some(".jar")),
            ("x.tar", Some(".tar")),
            ("x.tar.xz", None),
            ("x", None),
        ] {
            assert_eq!(ending(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn a_directory_is_packed_with_all_that_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("package/sub/empty")).unwrap();
        fs::write(at("package/__init__.py"), "import sub").unwrap();
        fs::write(at("package/sub/run.sh"), "#!/bin/sh").unwrap();
        fs::set_permissions(at("package/sub/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at("elsewhere"), "linked").unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at("package/link")).unwrap();
        let packed = pack(&at("package")).unwrap();
        let mut archive = tar::Archive::new(File::open(packed.path()).unwrap());
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
            let name = entry.path().unwrap().display().to_string();
            found.insert(name, (text, entry.header().mode().unwrap() & 0o111 != 0));
        }
        let entry = |text: &str, runs| (text.to_owned(), runs);
        let expected = [
            ("__init__.py", entry("import sub", false)),
            ("link", entry("linked", false)),
            ("sub", entry("", true)),
            ("sub/empty", entry("", true)),
            ("sub/run.sh", entry("#!/bin/sh", true)),
        ];
        let found: Vec<_> =
            found.iter().map(|(name, it)| (name.trim_end_matches('/'), it.clone())).collect();
        assert_eq!(found, expected);
        std::os::unix::fs::symlink("..", at("package/sub/up")).unwrap();
        let refused = pack(&at("package")).unwrap_err().to_string();
        assert!(refused.ends_with("sub/up leads back to a directory above it"), "{refused}");
        fs::remove_file(at("package/sub/up")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("package/socket")).unwrap();
        let refused = pack(&at("package")).unwrap_err().to_string();
        assert!(refused.ends_with("socket is neither a file nor a directory"), "{refused}");
    }
}
