//! The output of tasks in an object store, which has no rename: what a task writes below `_temporary/_attempt_*` of an
//! output is an upload of the object at its last name, which is left uncompleted. A small object at the place where the
//! task writes notes the upload. The commit of a task moves the notes to `_temporary/_committed`, that of the job
//! completes their uploads. Deleting a note aborts its upload.

use serde::{Deserialize, Serialize};

use crate::path::FsPath;
use crate::{ErrorKind, FsError};

pub(super) const TEMPORARY: &str = "_temporary";
const ATTEMPTS: &str = "_attempt_";
const COMMITTED: &str = "_committed";
/// The object that makes the directory of unfinished output.
pub(super) const BEGUN: &str = "_begun";
/// The version of the form of a note.
const VERSION: u32 = 1;
/// Bytes of a note: at most 10,000 parts with tags of less than a hundred bytes.
pub(super) const MAX_RECORD_BYTES: u64 = 2 << 20;

/// The note of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) upload: String,
    /// The tags of its parts; none as long as not all are sent.
    pub(super) parts: Option<Vec<String>>,
}

impl Record {
    pub(super) fn begun(upload: &str) -> Record {
        Record { version: VERSION, upload: upload.to_owned(), parts: None }
    }

    pub(super) fn sent(upload: &str, parts: Vec<String>) -> Record {
        Record { parts: Some(parts), ..Record::begun(upload) }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn from_json(path: &FsPath, bytes: &[u8]) -> Result<Record, FsError> {
        let record = Record::if_any(path, bytes)?;
        let message = "it is no note of an upload";
        record.ok_or_else(|| FsError::new(ErrorKind::Malformed, "read", path, message))
    }

    /// The same; none of bytes that are something else.
    pub(super) fn if_any(path: &FsPath, bytes: &[u8]) -> Result<Option<Record>, FsError> {
        let record: Record = match serde_json::from_slice(bytes) {
            Ok(record) => record,
            Err(_) => return Ok(None),
        };
        if record.version == VERSION {
            return Ok(Some(record));
        }
        let why = format!(
            "it notes an upload in the unknown version {}; this version of corona reads {VERSION} only",
            record.version
        );
        Err(FsError::new(ErrorKind::Malformed, "read", path, why))
    }
}

/// A note by its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The object that the upload makes.
    pub(super) target: FsPath,
    /// Where the note is when the task is committed.
    pub(super) committed: FsPath,
    /// Whether it is there.
    pub(super) is_committed: bool,
    /// The object that is there as long as the job has not ended.
    pub(super) begun: FsPath,
}

impl Place {
    /// What a path notes; none if it is no place of a note.
    pub(super) fn of(path: &FsPath) -> Option<Place> {
        let (output, below) = path.path().split_once(&format!("/{TEMPORARY}/"))?;
        let (owner, name) = below.split_once('/')?;
        let is_committed = owner == COMMITTED;
        if name.is_empty() || !(is_committed || owner.starts_with(ATTEMPTS)) {
            return None;
        }
        let at = |below: String| path_of(path, format!("{output}/{below}").trim_start_matches('/'));
        Some(Place {
            target: at(name.to_owned()),
            committed: at(format!("{TEMPORARY}/{COMMITTED}/{name}")),
            is_committed,
            begun: at(format!("{TEMPORARY}/{BEGUN}")),
        })
    }

    /// What a path notes, if it notes anything. Errors: an object outside of this directory.
    pub(super) fn in_reach(path: &FsPath, directory: &FsPath) -> Result<Option<Place>, FsError> {
        match Place::of(path) {
            Some(place) if !place.target.is_within(directory) || place.target == *directory => {
                let message =
                    format!("it notes an upload of {}, outside of {directory}", place.target);
                Err(FsError::new(ErrorKind::Invalid, "read", path, message))
            }
            place => Ok(place),
        }
    }

    /// Where the notes of committed tasks of an output are.
    pub(super) fn all_committed(output: &FsPath) -> FsPath {
        output.join(TEMPORARY).join(COMMITTED)
    }
}

/// The output whose unfinished part this directory is.
pub(super) fn output_of(temporary: &FsPath) -> Option<FsPath> {
    temporary.parent().filter(|_| temporary.name() == TEMPORARY)
}

/// Where the objects are that notes below a directory may be of: in it, or in the output whose unfinished part it is
/// or lies in.
pub(super) fn reach_of(directory: &FsPath) -> FsPath {
    match format!("{}/", directory.path()).split_once(&format!("/{TEMPORARY}/")) {
        Some((output, _)) => path_of(directory, output.trim_start_matches('/')),
        None => directory.clone(),
    }
}

/// Whether only notes can be below a path. The uploads that they name are of other objects.
pub(super) fn has_notes_alone(path: &FsPath) -> bool {
    Place::of(&path.join("note")).is_some()
}

/// The path of an object in the bucket of another one. Its name is taken as it is: a `\` in it is no `/`.
pub(super) fn path_of(other: &FsPath, key: &str) -> FsPath {
    other.top().join(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_known_by_their_places() {
        let place = |text: &str| Place::of(&FsPath::parse(text).unwrap());
        let of_attempt =
            place("s3://b/out/_temporary/_attempt_1_0001_m_000000_0/side/part-0").unwrap();
        assert_eq!(of_attempt.target.to_string(), "s3://b/out/side/part-0");
        assert_eq!(
            of_attempt.committed.to_string(),
            "s3://b/out/_temporary/_committed/side/part-0"
        );
        let committed = place("s3://b/out/_temporary/_committed/side/part-0").unwrap();
        assert_eq!((committed.target, committed.is_committed), (of_attempt.target, true));
        assert_eq!(committed.begun.to_string(), "s3://b/out/_temporary/_begun");
        for other in [
            "s3://b/out/part-0",
            "s3://b/out/_temporary/x",
            "s3://b/out/_temporary/other/x",
            "s3://b/_temporary/_attempt_1",
        ] {
            assert_eq!(place(other), None, "{other}");
        }
    }

    #[test]
    fn below_the_places_of_notes_nothing_is_uploaded() {
        for (text, expected) in [
            ("s3://b/out/_temporary/_attempt_1", true),
            ("s3://b/out/_temporary/_attempt_1/side", true),
            ("s3://b/out/_temporary/_committed", true),
            ("s3://b/out/_temporary", false),
            ("s3://b/out/_temporary/other", false),
            ("s3://b/out", false),
            ("s3://b/", false),
        ] {
            assert_eq!(has_notes_alone(&FsPath::parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn names_are_taken_as_they_are_and_notes_reach_no_other_directory() {
        let bucket = FsPath::parse("s3://b/").unwrap();
        let at = |key: &str| path_of(&bucket, key);
        let odd = at(r"dir/x\..\..\victim/_temporary/_committed/part-0");
        let place = Place::in_reach(&odd, &at("dir")).unwrap().unwrap();
        assert_eq!(place.target.path(), r"/dir/x\..\..\victim/part-0");
        assert_eq!(place.committed, odd);
        let note = at("victim/_temporary/_committed/part-0");
        for directory in ["dir", "vic", "victim/part-0", "victim/part-0/x", "victim/_temporary"] {
            let refused = Place::in_reach(&note, &at(directory)).unwrap_err().to_string();
            assert!(refused.contains("victim/_temporary/_committed/part-0"), "{refused}");
        }
        for directory in ["victim", "", "victim/_temporary", "victim/_temporary/_committed/side"] {
            assert!(Place::in_reach(&note, &reach_of(&at(directory))).unwrap().is_some());
        }
        assert_eq!(reach_of(&at("a/_temporary_/b")), at("a/_temporary_/b"));
    }

    #[test]
    fn a_note_of_another_version_is_refused_by_name() {
        let path = FsPath::parse("s3://b/n").unwrap();
        // Later versions must read it.
        let first = include_bytes!("../../../fixtures/versions/upload-note.json");
        let tags = ["\"tag 1\"".to_owned(), "\"tag 2\"".to_owned()];
        let expected = Record::sent("id-1", tags.into());
        assert_eq!(Record::from_json(&path, first).unwrap(), expected);
        let record = Record::sent("id", vec!["\"tag\"".to_owned()]);
        assert_eq!(Record::from_json(&path, &record.to_json()).unwrap(), record);
        for (text, wrong) in [
            ("{\"version\":2,\"upload\":\"id\",\"parts\":null}", "unknown version 2"),
            ("part of an output", "is no note"),
        ] {
            let told = Record::from_json(&path, text.as_bytes()).unwrap_err().to_string();
            assert!(told.contains(wrong), "{told}");
        }
    }
}
