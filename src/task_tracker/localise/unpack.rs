//! Archives of jobs, unpacked: `.jar` and `.zip`, `.tar`, `.tar.gz` and `.tgz`.
//!
//! An archive comes from a user. Nothing is written outside its directory, and both its contents
//! and the cost of reading it are limited. It blocks.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::EntryType;
use thiserror::Error;
use zip::ZipArchive;

/// The longest name or attribute list in a tar archive.
const MAX_TAR_EXTENSION_BYTES: u64 = 64 << 10;
/// The end of a zip archive: its record and the longest comment.
const ZIP_END_BYTES: u64 = 22 + 65535;

/// The limits of an archive.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all files together.
    pub max_bytes: u64,
    /// Files and directories.
    pub max_entries: usize,
}

/// How an archive is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.jar`, `.zip`
    Zip,
    /// `.tar`
    Tar,
    /// `.tar.gz`, `.tgz`
    TarGz,
}

/// The reason why an archive is not unpacked. Files that were written before stay.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// It cannot be read, or a file cannot be written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The archive, or the file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no archive of its kind, or a damaged one.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// The reader's error.
        reason: String,
    },
    /// An entry that would be written elsewhere, or is not a file, directory or link.
    #[error("{}: entry {entry:?} {wrong}", path.display())]
    Entry {
        /// The archive.
        path: PathBuf,
        /// Its name, cut if it is long.
        entry: String,
        /// The reason.
        wrong: &'static str,
    },
    /// It holds too much.
    #[error("{}: holds more than {limit}", path.display())]
    TooMuch {
        /// The archive.
        path: PathBuf,
        /// The bound that it exceeds.
        limit: String,
    },
}

impl Kind {
    /// The kind by the ending of a name; `None` for a file that is no archive.
    pub fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if ends(&[".jar", ".zip"]) {
            Some(Kind::Zip)
        } else if ends(&[".tar.gz", ".tgz"]) {
            Some(Kind::TarGz)
        } else {
            ends(&[".tar"]).then_some(Kind::Tar)
        }
    }
}

/// Unpacks an archive into a directory, in which it may lie itself, and returns the bytes written.
/// Spec: mapreduce/04 §4.4.
pub fn unpack(
    archive: &Path,
    kind: Kind,
    into: &Path,
    limits: &Limits,
) -> Result<u64, UnpackError> {
    let unpacking = Unpacking { archive, into, limits };
    match kind {
        Kind::Zip => unpacking.zip(),
        Kind::Tar => unpacking.tar(|file| file),
        Kind::TarGz => unpacking.tar(MultiGzDecoder::new),
    }
}

struct Unpacking<'a> {
    archive: &'a Path,
    into: &'a Path,
    limits: &'a Limits,
}

impl Unpacking<'_> {
    fn zip(&self) -> Result<u64, UnpackError> {
        self.refuse_long_directory()?;
        let mut zip = ZipArchive::new(self.open()?).map_err(|error| self.damaged(&error))?;
        if zip.len() > self.limits.max_entries {
            return Err(self.too_many());
        }
        let mut written = 0;
        for index in 0..zip.len() {
            let mut entry = zip.by_index(index).map_err(|error| self.damaged(&error))?;
            let name = entry.name().map_err(|error| self.damaged(&error))?.into_owned();
            let path = self.target(Path::new(name.trim_start_matches('/')), &name)?;
            if entry.is_dir() {
                self.make_dir(&path)?;
            } else {
                written += self.write(&mut entry, &path, self.limits.max_bytes - written)?;
            }
        }
        Ok(written)
    }

    /// The reader of zip archives makes a list of all entries, so their number is looked at first.
    /// Every place that it could take for the end is checked.
    fn refuse_long_directory(&self) -> Result<(), UnpackError> {
        let mut file = self.open()?;
        let length = file.seek(SeekFrom::End(0)).map_err(|error| self.unreadable(error))?;
        let start = length.saturating_sub(ZIP_END_BYTES + 20);
        file.seek(SeekFrom::Start(start)).map_err(|error| self.unreadable(error))?;
        let mut end = Vec::new();
        let mut rest = (&mut file).take(ZIP_END_BYTES + 20);
        rest.read_to_end(&mut end).map_err(|error| self.unreadable(error))?;
        for at in 0..end.len() {
            let Some(record) = end.get(at..) else { break };
            let count = if record.starts_with(b"PK\x05\x06") {
                record.get(10..12).map(little_endian)
            } else if record.starts_with(b"PK\x06\x07") {
                let place = record.get(8..16).map(little_endian);
                place.and_then(|place| zip64_count(&mut file, place))
            } else {
                None
            };
            if count.is_some_and(|count| count > self.limits.max_entries as u64 && count != 0xffff)
            {
                return Err(self.too_many());
            }
        }
        Ok(())
    }

    /// In two passes: the first one looks at every header as it stands, so that long names, which the
    /// second one keeps in memory, are bounded too.
    fn tar<R: Read>(&self, decode: impl Fn(BufReader<File>) -> R) -> Result<u64, UnpackError> {
        let unreadable = |error| self.unreadable(error);
        let mut entries = 0;
        let mut bytes: u64 = 0;
        let mut headers = tar::Archive::new(decode(BufReader::new(self.open()?)));
        for entry in headers.entries().map_err(unreadable)?.raw(true) {
            let entry = entry.map_err(|error| self.damaged(&error))?;
            let kind = entry.header().entry_type();
            let extension = kind.is_gnu_longname()
                || kind.is_gnu_longlink()
                || kind.is_pax_local_extensions()
                || kind.is_pax_global_extensions();
            if extension && entry.size() > MAX_TAR_EXTENSION_BYTES {
                return Err(self.refused("", "has a name that is too long"));
            }
            entries += 1;
            bytes = bytes.saturating_add(entry.size());
            if entries > self.limits.max_entries {
                return Err(self.too_many());
            }
            if bytes > self.limits.max_bytes {
                return Err(self.too_large());
            }
        }
        let mut archive = tar::Archive::new(decode(BufReader::new(self.open()?)));
        archive.set_overwrite(true);
        for entry in archive.entries().map_err(unreadable)? {
            let mut entry = entry.map_err(|error| self.damaged(&error))?;
            let name = entry.path().map_err(|error| self.damaged(&error))?.into_owned();
            let shown = name.to_string_lossy().into_owned();
            match entry.header().entry_type() {
                EntryType::Regular
                | EntryType::Continuous
                | EntryType::Directory
                | EntryType::Symlink
                | EntryType::Link => {}
                EntryType::XGlobalHeader => continue,
                _ => return Err(self.refused(&shown, "is not a file, directory or link")),
            }
            // A second look, since attributes may have changed name and size.
            self.target(name.strip_prefix("/").unwrap_or(&name), &shown)?;
            if entry.size() > self.limits.max_bytes {
                return Err(self.too_large());
            }
            let unpacked = entry.unpack_in(self.into).map_err(unreadable)?;
            if !unpacked {
                return Err(self.refused(&shown, "leads out of its directory"));
            }
        }
        Ok(bytes)
    }

    /// Where an entry goes. Only names below the directory are legal, and not that of the archive.
    fn target(&self, name: &Path, shown: &str) -> Result<PathBuf, UnpackError> {
        let mut path = self.into.to_owned();
        for part in name.components() {
            match part {
                Component::Normal(part) => path.push(part),
                Component::CurDir => {}
                _ => return Err(self.refused(shown, "leads out of its directory")),
            }
        }
        if path == self.archive {
            return Err(self.refused(shown, "would be written over the archive"));
        }
        if shown.contains('\0') {
            return Err(self.refused(shown, "is not a valid file name"));
        }
        Ok(path)
    }

    fn make_dir(&self, path: &Path) -> Result<(), UnpackError> {
        fs::create_dir_all(path).map_err(|error| UnpackError::Io { path: path.to_owned(), error })
    }

    /// Writes at most so many bytes, whatever size the entry claims.
    fn write(&self, from: &mut impl Read, path: &Path, room: u64) -> Result<u64, UnpackError> {
        self.make_dir(path.parent().unwrap_or(self.into))?;
        let failed = |error| UnpackError::Io { path: path.to_owned(), error };
        let mut to = File::create(path).map_err(failed)?;
        // Errors of both ends look the same; most are of the archive.
        let written = io::copy(&mut from.take(room.saturating_add(1)), &mut to).map_err(failed)?;
        if written > room { Err(self.too_large()) } else { Ok(written) }
    }

    fn open(&self) -> Result<File, UnpackError> {
        File::open(self.archive).map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, error: io::Error) -> UnpackError {
        UnpackError::Io { path: self.archive.to_owned(), error }
    }

    fn damaged(&self, error: &impl ToString) -> UnpackError {
        UnpackError::Damaged { path: self.archive.to_owned(), reason: error.to_string() }
    }

    fn refused(&self, entry: &str, wrong: &'static str) -> UnpackError {
        let entry = entry.chars().take(200).collect();
        UnpackError::Entry { path: self.archive.to_owned(), entry, wrong }
    }

    fn too_many(&self) -> UnpackError {
        let limit = format!("{} entries", self.limits.max_entries);
        UnpackError::TooMuch { path: self.archive.to_owned(), limit }
    }

    fn too_large(&self) -> UnpackError {
        let limit = format!("{} bytes", self.limits.max_bytes);
        UnpackError::TooMuch { path: self.archive.to_owned(), limit }
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// The number of entries in the record of a large archive.
fn zip64_count(file: &mut File, place: u64) -> Option<u64> {
    let mut record = [0; 40];
    file.seek(SeekFrom::Start(place)).ok()?;
    file.read_exact(&mut record).ok()?;
    record.starts_with(b"PK\x06\x06").then(|| little_endian(&record[32..40]))
}

/// Lets all users read a tree and enter and run its contents, as the original does with archives.
pub(super) fn make_accessible(root: &Path) -> io::Result<()> {
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            continue;
        }
        let mode = metadata.permissions().mode();
        if mode & 0o555 != 0o555 {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o555))?;
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
    }
    Ok(())
}

/// Bytes of all files of a tree.
pub(super) fn size(root: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        } else {
            bytes += metadata.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
pub(in super::super) mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use zip::write::SimpleFileOptions;

    use super::*;

    const LIMITS: Limits = Limits { max_bytes: 1 << 20, max_entries: 100 };

    /// An archive with these files; a name that ends with a slash is a directory.
    pub(in super::super::super) fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for (name, content) in files {
            match name.strip_suffix('/') {
                Some(dir) => zip.add_directory(dir, SimpleFileOptions::default()).unwrap(),
                None => {
                    zip.start_file(*name, SimpleFileOptions::default()).unwrap();
                    zip.write_all(content).unwrap();
                }
            }
        }
        zip.finish().unwrap().into_inner()
    }

    fn tar_entry(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(content);
        bytes.resize(bytes.len().div_ceil(512) * 512, 0);
        bytes
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut gz = GzEncoder::new(Vec::new(), Compression::default());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap()
    }

    /// Unpacks in a directory of its own, and returns the contents or the error.
    fn unpacked(name: &str, archive: &[u8], limits: &Limits) -> Result<Vec<String>, String> {
        let root = tempfile::tempdir().unwrap();
        let into = root.path().join("into");
        fs::create_dir(&into).unwrap();
        let path = into.join(name);
        fs::write(&path, archive).unwrap();
        let done = unpack(&path, Kind::of(name).unwrap(), &into, limits);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "something lies outside");
        let prefix = format!("{}/", into.display());
        done.map_err(|error| error.to_string().replace(&prefix, ""))?;
        let mut found = Vec::new();
        let mut left = vec![into];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                found.push(path.display().to_string().replace(&prefix, ""));
                if path.is_dir() && !path.is_symlink() {
                    left.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    #[test]
    fn kinds_by_name() {
        for (name, kind) in [
            ("a.jar", Some(Kind::Zip)),
            ("A.ZIP", Some(Kind::Zip)),
            ("a.tar", Some(Kind::Tar)),
            ("a.tar.gz", Some(Kind::TarGz)),
            ("a.tgz", Some(Kind::TarGz)),
            ("a.gz", None),
            ("jar", None),
        ] {
            assert_eq!(Kind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn files_come_out() {
        let zip = zip_of(&[("a/", b""), ("a/b", b"1"), ("lib/x.jar", b"2")]);
        let expected = ["a", "a/b", "lib", "lib/x.jar", "x.jar"];
        assert_eq!(unpacked("x.jar", &zip, &LIMITS).unwrap(), expected);
        let tar = [
            tar_entry(EntryType::Directory, "a/", "", b""),
            tar_entry(EntryType::Regular, "./a/b", "", b"1"),
            tar_entry(EntryType::Symlink, "link", "a/b", b""),
        ]
        .concat();
        assert_eq!(unpacked("x.tar", &tar, &LIMITS).unwrap(), ["a", "a/b", "link", "x.tar"]);
        assert_eq!(unpacked("x.tgz", &gz(&tar), &LIMITS).unwrap(), ["a", "a/b", "link", "x.tgz"]);
    }

    #[test]
    fn nothing_is_written_elsewhere() {
        let out = "leads out of its directory";
        let zips = [
            ("../evil", out),
            ("a/../../evil", out),
            ("x.jar", "would be written over the archive"),
        ];
        for (entry, wrong) in zips {
            let told = unpacked("x.jar", &zip_of(&[(entry, b"1")]), &LIMITS).unwrap_err();
            assert_eq!(told, format!("x.jar: entry {entry:?} {wrong}"));
        }
        assert_eq!(
            unpacked("x.jar", &zip_of(&[("/evil", b"1")]), &LIMITS).unwrap(),
            ["evil", "x.jar"]
        );
        let regular = |name| tar_entry(EntryType::Regular, name, "", b"1");
        let link = |target| tar_entry(EntryType::Symlink, "link", target, b"");
        let hard = tar_entry(EntryType::Link, "hard", "../../../../../../../../etc/passwd", b"");
        let cases = [
            (regular("../evil"), out),
            (regular("x.tar"), "would be written over the archive"),
            ([link("../.."), regular("link/evil")].concat(), ""),
            ([link("/"), regular("link/evil")].concat(), ""),
            (hard, ""),
            (tar_entry(EntryType::Fifo, "pipe", "", b""), "is not a file, directory or link"),
            (tar_entry(EntryType::Char, "dev", "", b""), "is not a file, directory or link"),
        ];
        for (tar, wrong) in cases {
            let told = unpacked("x.tar", &tar, &LIMITS).unwrap_err();
            assert!(told.contains(wrong), "{told}");
        }
        let absolute = unpacked("x.tar", &regular("/evil"), &LIMITS).unwrap();
        assert_eq!(absolute, ["evil", "x.tar"]);
    }

    #[test]
    fn too_much_is_refused() {
        let large = vec![0; 2000];
        let limits = Limits { max_bytes: 1999, max_entries: 3 };
        let many: [(&str, &[u8]); 4] = [("a", b""), ("b", b""), ("c", b""), ("d", b"")];
        let tar_many: Vec<u8> = many
            .iter()
            .flat_map(|(name, _)| tar_entry(EntryType::Regular, name, "", b""))
            .collect();
        let tar_large = tar_entry(EntryType::Regular, "a", "", &large);
        let long_name =
            tar_entry(EntryType::GNULongName, "././@LongLink", "", &vec![b'a'; 70 << 10]);
        let bytes = "holds more than 1999 bytes";
        let entries = "holds more than 3 entries";
        let cases = [
            ("x.zip", zip_of(&[("a", &large)]), bytes),
            ("x.zip", zip_of(&[("a", &large[..1000]), ("b", &large[..1000])]), bytes),
            ("x.zip", zip_of(&many), entries),
            ("x.tar", tar_large.clone(), bytes),
            ("x.tar.gz", gz(&tar_large), bytes),
            ("x.tar", tar_many, entries),
            ("x.tar", long_name, "has a name that is too long"),
        ];
        for (name, archive, expected) in cases {
            let told = unpacked(name, &archive, &limits).unwrap_err();
            assert!(told.ends_with(expected), "{told}");
        }
    }

    #[test]
    fn a_file_that_is_no_archive_is_reported() {
        for name in ["x.jar", "x.tgz"] {
            let told = unpacked(name, b"no archive at all", &LIMITS).unwrap_err();
            assert!(told.starts_with(&format!("{name}: ")), "{told}");
        }
        let zip = zip_of(&[("a", b"1234567890")]);
        assert!(unpacked("x.jar", &zip[..zip.len() / 2], &LIMITS).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damaged_archives_do_no_harm(place in 0usize..400, byte: u8, cut in 0usize..400, kind in 0usize..3) {
            let tar = tar_entry(EntryType::Regular, "a/b", "", b"content");
            let (name, mut archive) = match kind {
                0 => ("x.zip", zip_of(&[("a/b", b"content"), ("c", b"more")])),
                1 => ("x.tar", tar),
                _ => ("x.tgz", gz(&tar)),
            };
            if let Some(at) = archive.get_mut(place) {
                *at = byte;
            }
            archive.truncate(archive.len().saturating_sub(cut / 4));
            let _ = unpacked(name, &archive, &LIMITS);
        }
    }
}
