//! Messages of a test's tasks, and how the test releases them: files in a directory that both know.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The directory.
#[derive(Clone, Debug)]
pub struct Notes {
    directory: PathBuf,
}

/// A message of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The attempt, by name.
    pub attempt: String,
    /// The process.
    pub pid: u32,
    /// Its subject.
    pub what: String,
    /// Its value.
    pub value: String,
}

impl Notes {
    /// Notes in a directory that exists.
    pub fn new(directory: &Path) -> Notes {
        Notes { directory: directory.to_owned() }
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds a note of this process, in one piece.
    ///
    /// Errors: those of the system.
    pub fn add(&self, attempt: &str, what: &str, value: &str) -> io::Result<()> {
        let mut file =
            OpenOptions::new().append(true).create(true).open(self.directory.join("notes"))?;
        let value = value.replace('\n', " ");
        file.write_all(format!("{attempt}\t{}\t{what}\t{value}\n", std::process::id()).as_bytes())
    }

    /// All notes, in the order in which they were made.
    pub fn all(&self) -> Vec<Note> {
        let text = fs::read_to_string(self.directory.join("notes")).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        whole.filter_map(note).collect()
    }

    /// The values of the notes of an attempt on something.
    pub fn of(&self, attempt: &str, what: &str) -> Vec<String> {
        let all = self.all().into_iter();
        all.filter(|note| note.attempt == attempt && note.what == what)
            .map(|note| note.value)
            .collect()
    }

    /// Releases an attempt that waits, now or later.
    ///
    /// Errors: those of the system.
    pub fn let_go(&self, attempt: &str) -> io::Result<()> {
        fs::write(self.gate(attempt), "")
    }

    /// Whether a waiting attempt may continue.
    pub fn may_go(&self, attempt: &str) -> bool {
        self.gate(attempt).exists()
    }

    fn gate(&self, attempt: &str) -> PathBuf {
        self.directory.join(format!("go.{attempt}"))
    }
}

fn note(line: &str) -> Option<Note> {
    let mut fields = line.splitn(4, '\t');
    let mut next = || fields.next().map(str::to_owned);
    let (attempt, pid) = (next()?, next()?.parse().ok()?);
    Some(Note { attempt, pid, what: next()?, value: next()? })
}
