//! Archives of jobs, unpacked: `.jar` and `.zip`, `.tar`, `.tar.gz` and `.tgz`.
//!
//! An archive comes from a user. Nothing is written outside its directory, and both its contents
//! and the cost of reading it are limited. It blocks.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::EntryType;
use thiserror::Error;
use zip::ZipArchive;

/// The most that describes one entry of a tar archive: headers, long names, attributes.
const MAX_TAR_EXTENSION_BYTES: u64 = 128 << 10;
/// The most that describes one entry of a tar archive, on average: its headers take no room and cost time.
const TAR_HEADERS_BYTES: u64 = 4096;
/// The most that describes one entry of a zip archive, on average.
const ZIP_ENTRY_BYTES: u64 = 1024;
/// Why an entry with holes is refused: its size is not that of its data.
const SPARSE: &str = "is a sparse file; pack it without holes";
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

/// What has been written.
#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    entries: usize,
}

/// A source of which no more is read than is allowed at the time.
struct Metered<'a, R> {
    source: R,
    /// Bytes that may still be read.
    allowance: &'a Cell<u64>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.get();
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other("it is longer than is allowed"));
        }
        let read = self.source.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.allowance.set(left.saturating_sub(read as u64));
        Ok(read)
    }
}

impl<R: Seek> Seek for Metered<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
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
        let allowance = Cell::new(ZIP_ENTRY_BYTES.saturating_mul(self.limits.max_entries as u64));
        let source = Metered { source: self.open()?, allowance: &allowance };
        let mut zip = match ZipArchive::new(source) {
            Ok(zip) => zip,
            Err(_) if allowance.get() == 0 => {
                return Err(self.refused("", "has a directory that is too long"));
            }
            Err(error) => return Err(self.damaged(&error)),
        };
        allowance.set(u64::MAX);
        let mut taken = Taken::default();
        for index in 0..zip.len() {
            let mut entry = zip.by_index(index).map_err(|error| self.damaged(&error))?;
            let name = entry.name().map_err(|error| self.damaged(&error))?.into_owned();
            let path = self.target(Path::new(name.trim_start_matches('/')), &name)?;
            self.take(&mut taken, 1 + self.missing_parents(&path), 0)?;
            if entry.is_dir() {
                self.make_dir(&path)?;
            } else {
                let room = self.limits.max_bytes.saturating_sub(taken.bytes);
                let written = self.write(&mut entry, &path, room)?;
                self.take(&mut taken, 0, written)?;
            }
        }
        Ok(taken.bytes)
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

    /// In one pass. The sizes of entries are those that the reader of archives applies, whichever header
    /// they stand in; what it keeps in memory between two entries, as long names, is bounded.
    fn tar<R: Read>(&self, decode: impl FnOnce(BufReader<File>) -> R) -> Result<u64, UnpackError> {
        let allowance = Cell::new(0);
        let source = decode(BufReader::new(self.open()?));
        let mut archive = tar::Archive::new(Metered { source, allowance: &allowance });
        archive.set_overwrite(true);
        let mut entries = archive.entries().map_err(|error| self.unreadable(error))?;
        let mut taken = Taken::default();
        let mut headers = TAR_HEADERS_BYTES.saturating_mul(self.limits.max_entries as u64);
        loop {
            let before = headers.min(MAX_TAR_EXTENSION_BYTES);
            allowance.set(before);
            let mut entry = match entries.next() {
                None => return Ok(taken.bytes),
                Some(Ok(entry)) => entry,
                Some(Err(_)) if allowance.get() == 0 => {
                    return Err(self.refused("", "has a name or attributes that are too long"));
                }
                Some(Err(error)) => return Err(self.damaged(&error)),
            };
            headers = headers.saturating_sub(before.saturating_sub(allowance.get()));
            allowance.set(u64::MAX);
            let name = entry.path().map_err(|error| self.damaged(&error))?.into_owned();
            let shown = name.to_string_lossy().into_owned();
            let kind = entry.header().entry_type();
            let bytes = match kind {
                EntryType::Regular | EntryType::Continuous => entry.size(),
                EntryType::Directory | EntryType::Symlink | EntryType::Link => 0,
                EntryType::XGlobalHeader => {
                    self.take(&mut taken, 1, 0)?;
                    continue;
                }
                EntryType::GNUSparse => return Err(self.refused(&shown, SPARSE)),
                _ => return Err(self.refused(&shown, "is not a file, directory or link")),
            };
            if is_sparse(&mut entry).map_err(|error| self.damaged(&error))? {
                return Err(self.refused(&shown, SPARSE));
            }
            let path = self.target(name.strip_prefix("/").unwrap_or(&name), &shown)?;
            self.take(&mut taken, 1 + self.missing_parents(&path), bytes)?;
            let unpacked =
                entry.unpack_in(self.into).map_err(|error| self.unreadable(with_causes(error)))?;
            if !unpacked {
                return Err(self.refused(&shown, "leads out of its directory"));
            }
        }
    }

    /// Counts what is about to be written.
    fn take(&self, taken: &mut Taken, entries: usize, bytes: u64) -> Result<(), UnpackError> {
        taken.entries = taken.entries.saturating_add(entries);
        taken.bytes = taken.bytes.saturating_add(bytes);
        if taken.entries > self.limits.max_entries {
            return Err(self.too_many());
        }
        if taken.bytes > self.limits.max_bytes {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// How many directories are made so that an entry has its place.
    fn missing_parents(&self, path: &Path) -> usize {
        let below = path.ancestors().skip(1).take_while(|parent| *parent != self.into);
        below.take_while(|parent| fs::symlink_metadata(parent).is_err()).count()
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

/// An error with its causes in its text: the library of tar archives leaves out the system's, by which a full disk
/// is known.
fn with_causes(error: io::Error) -> io::Error {
    let mut text = error.to_string();
    let mut cause = error.get_ref().and_then(|error| error.source());
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    io::Error::new(error.kind(), text)
}

/// Whether an entry is a sparse file in the form that pax headers describe.
fn is_sparse<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<bool> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(false) };
    Ok(extensions.flatten().any(|one| one.key_bytes().starts_with(b"GNU.sparse.")))
}

/// Lets all users read a tree and enter and run its contents, as the original does with archives.
/// Returns the bytes of its files.
pub(super) fn make_accessible(root: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    let mut dirs = Vec::new();
    let mut visit = |path: PathBuf, dirs: &mut Vec<PathBuf>| -> io::Result<()> {
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            return Ok(());
        }
        let mode = metadata.permissions().mode();
        if mode & 0o555 != 0o555 {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o555))?;
        }
        match metadata.is_dir() {
            true => dirs.push(path),
            false => bytes += metadata.len(),
        }
        Ok(())
    };
    visit(root.to_owned(), &mut dirs)?;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            visit(entry?.path(), &mut dirs)?;
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
        // The system's words are there, by which a full disk would be known.
        let onto_file = [regular("a"), regular("a/b")].concat();
        let told = unpacked("x.tar", &onto_file, &LIMITS).unwrap_err();
        assert!(told.contains("(os error "), "{told}");
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
            ("x.tar", long_name, "has a name or attributes that are too long"),
        ];
        for (name, archive, expected) in cases {
            let told = unpacked(name, &archive, &limits).unwrap_err();
            assert!(told.ends_with(expected), "{told}");
        }
    }

    /// A pax header with these records, and then an entry whose own header claims `size`.
    fn pax_entry(records: &[(&str, &str)], name: &str, size: u64, content: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = format!(" {key}={value}\n");
            let length = (rest.len()..).find(|all| all.to_string().len() + rest.len() == *all);
            text.extend(format!("{}{rest}", length.unwrap()).bytes());
        }
        let mut entry = tar_entry(EntryType::Regular, name, "", content);
        let mut header = tar::Header::from_byte_slice(&entry[..512]).clone();
        header.set_size(size);
        header.set_cksum();
        entry[..512].copy_from_slice(header.as_bytes());
        [tar_entry(EntryType::XHeader, "pax", "", &text), entry].concat()
    }

    #[test]
    fn sizes_in_pax_headers_count() {
        let limits = Limits { max_bytes: 1999, max_entries: 5 };
        let large = pax_entry(&[("size", "2000")], "a", 0, &[0; 2000]);
        // Read with the size of its own header, it hides the entries in its data.
        let many: Vec<u8> = (0..6).flat_map(|n| pax_entry(&[], &format!("f{n}"), 0, b"")).collect();
        let claimed = pax_entry(&[("size", "18446744073709551615")], "a", 0, b"");
        let halves = [
            pax_entry(&[("size", "1000")], "a", 0, &[0; 1000]),
            pax_entry(&[("size", "1000")], "b", 0, &[0; 1000]),
        ];
        let cases = [
            (&large, "holds more than 1999 bytes"),
            (&many, "holds more than 5 entries"),
            (&claimed, "size overflow"),
            (&halves.concat(), "holds more than 1999 bytes"),
        ];
        for (tar, expected) in cases {
            for (name, archive) in [("x.tar", tar.clone()), ("x.tar.gz", gz(tar))] {
                let told = unpacked(name, &archive, &limits).unwrap_err();
                assert!(told.ends_with(expected), "{told}");
            }
        }
        let innocent = [
            pax_entry(
                &[("size", "1999"), ("path", "long/name"), ("mtime", "1.5")],
                "a",
                0,
                &[1; 1999],
            ),
            tar_entry(EntryType::Directory, "long/", "", b""),
        ];
        assert_eq!(
            unpacked("x.tar", &innocent.concat(), &limits).unwrap(),
            ["long", "long/name", "x.tar"]
        );
    }

    #[test]
    fn directories_on_the_way_count_as_entries() {
        let limits = Limits { max_bytes: 100, max_entries: 5 };
        let fits = [("a/b/c/d", &b"1"[..]), ("a/b/c/e", b"2")];
        let deep = [("a/b/c/d/e/f", &b"1"[..])];
        let tar = |files: &[(&str, &[u8])]| -> Vec<u8> {
            files
                .iter()
                .flat_map(|(name, content)| tar_entry(EntryType::Regular, name, "", content))
                .collect()
        };
        for (name, fits, deep) in
            [("x.zip", zip_of(&fits), zip_of(&deep)), ("x.tar", tar(&fits), tar(&deep))]
        {
            assert_eq!(
                unpacked(name, &fits, &limits).unwrap(),
                ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/e", name]
            );
            let told = unpacked(name, &deep, &limits).unwrap_err();
            assert!(told.ends_with("holds more than 5 entries"), "{told}");
        }
    }

    #[test]
    fn links_and_headers_write_nothing_and_are_bounded() {
        let limits = Limits { max_bytes: 1999, max_entries: 40 };
        let links = [
            tar_entry(EntryType::Regular, "a", "", &[1; 1500]),
            tar_entry(EntryType::Link, "b", "a", b""),
            tar_entry(EntryType::Link, "c", "a", b""),
            tar_entry(EntryType::Symlink, "d", "a", b""),
        ];
        let found = unpacked("x.tar", &links.concat(), &limits).unwrap();
        assert_eq!(found, ["a", "b", "c", "d", "x.tar"]);
        // Data behind a link would be skipped, at the price of reading it.
        let heavy = tar_entry(EntryType::Symlink, "l", "a", &vec![0; 256 << 10]);
        let after = tar_entry(EntryType::Regular, "z", "", b"");
        let attributes = pax_entry(&[("comment", &"x".repeat(100 << 10))], "a", 0, b"");
        for tar in [[heavy, after].concat(), attributes.repeat(2)] {
            let told = unpacked("x.tgz", &gz(&tar), &limits).unwrap_err();
            assert!(told.ends_with("has a name or attributes that are too long"), "{told}");
        }
        let global = tar_entry(EntryType::XGlobalHeader, "g", "", b"13 comment=ab\n");
        let told = unpacked("x.tar", &global.repeat(41), &limits).unwrap_err();
        assert!(told.ends_with("holds more than 40 entries"), "{told}");
    }

    #[test]
    fn sparse_files_are_refused_by_name() {
        let holes = [("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "1099511627776")];
        let mut old = tar::Header::new_gnu();
        old.set_path("holes").unwrap();
        old.set_entry_type(EntryType::GNUSparse);
        old.set_size(0);
        old.as_gnu_mut().unwrap().realsize.copy_from_slice(b"00000000000\0");
        old.set_cksum();
        for tar in [pax_entry(&holes, "holes", 0, b""), old.as_bytes().to_vec()] {
            let told = unpacked("x.tar", &tar, &LIMITS).unwrap_err();
            assert_eq!(told, "x.tar: entry \"holes\" is a sparse file; pack it without holes");
        }
    }

    #[test]
    fn the_directory_of_a_zip_archive_is_bounded() {
        let limits = Limits { max_bytes: 1 << 20, max_entries: 2 };
        let long = "d/".repeat(1000) + &"n".repeat(200);
        let told = unpacked("x.zip", &zip_of(&[(&long, b""), (&long[2..], b"")]), &limits);
        let told = told.unwrap_err();
        assert!(told.ends_with("has a directory that is too long"), "{told}");
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
