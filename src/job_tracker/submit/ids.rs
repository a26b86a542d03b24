//! The ids that were given out and not used, in a file: a client that has one may submit its job after the
//! service was restarted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corona_config::JournalSync;
use corona_mapreduce::JobId;
use corona_model::types::Millis;

/// The first line. **The form of the file is a promise** to later versions: `+ <id> <ms> <user>` for an id
/// that was given out, `- <id>` for one that was used.
const FORM: &str = "corona job ids 1";
/// Lines after which the file is rewritten, with what is still of use; if that is more than half of them, after
/// as many lines again.
const MAX_LINES: usize = 100_000;
/// An id that nobody submits is forgotten after a day.
const ID_AGE_MS: i64 = 24 * 3600 * 1000;

/// The file.
#[derive(Debug)]
pub(crate) struct Ids {
    path: PathBuf,
    sync: JournalSync,
    state: Mutex<IdsState>,
}

#[derive(Debug)]
struct IdsState {
    file: File,
    lines: usize,
    /// Lines after which the file is rewritten.
    most: usize,
    /// A line may not be whole: nothing may follow it.
    is_broken: bool,
    open: BTreeMap<JobId, Given>,
}

/// To whom and when an id was given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    at: Millis,
    user: String,
}

impl Ids {
    /// Opens the file, and returns the ids that an earlier run gave out, with their users.
    pub(crate) fn open(
        path: PathBuf,
        sync: JournalSync,
        now: Millis,
    ) -> io::Result<(Ids, Vec<(JobId, String)>)> {
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let open = read(&text, now)?;
        let given = open.iter().map(|(id, given)| (id.clone(), given.user.clone())).collect();
        let file = write_anew(&path, &open)?;
        let lines = open.len();
        let state = IdsState { file, lines, most: most_lines(lines), is_broken: false, open };
        Ok((Ids { path, sync, state: Mutex::new(state) }, given))
    }

    /// Notes an id before its client gets it.
    pub(crate) fn give(&self, id: JobId, user: String, now: Millis) -> io::Result<()> {
        let mut state = self.lock();
        let given = Given { at: now, user };
        let line = line(&id, &given);
        state.open.insert(id.clone(), given);
        let kept = self.append(&mut state, &line, now);
        if kept.is_err() {
            // Its client does not get it.
            state.open.remove(&id);
        }
        kept
    }

    /// Notes that the job of an id has begun.
    pub(crate) fn used(&self, id: &JobId, now: Millis) -> io::Result<()> {
        let mut state = self.lock();
        match state.open.remove(id) {
            Some(_) => self.append(&mut state, &format!("- {id}\n"), now),
            None => Ok(()),
        }
    }

    fn append(&self, state: &mut IdsState, line: &str, now: Millis) -> io::Result<()> {
        if state.is_broken || state.lines >= state.most {
            // What is still of use has the line in it.
            return self.write_anew(state, now);
        }
        let written = state.file.write_all(line.as_bytes()).and_then(|()| match self.sync {
            JournalSync::Always => state.file.sync_data(),
            JournalSync::Write => Ok(()),
        });
        state.is_broken = written.is_err();
        state.lines += 1;
        written
    }

    fn write_anew(&self, state: &mut IdsState, now: Millis) -> io::Result<()> {
        state.open.retain(|_, given| now.since(given.at) <= ID_AGE_MS);
        state.file = write_anew(&self.path, &state.open)?;
        state.is_broken = false;
        state.lines = state.open.len();
        state.most = most_lines(state.lines);
        Ok(())
    }

    /// No panic happens while it is held.
    fn lock(&self) -> MutexGuard<'_, IdsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines after which a file that has so many now is rewritten.
fn most_lines(lines: usize) -> usize {
    MAX_LINES.max(lines.saturating_mul(2))
}

/// A name of a user is anything but a line break, which is left out.
fn line(id: &JobId, Given { at, user }: &Given) -> String {
    let user: String = user.chars().filter(|it| !matches!(it, '\n' | '\r')).collect();
    format!("+ {id} {} {user}\n", at.0)
}

/// What is still of use. The last line may be cut.
fn read(text: &str, now: Millis) -> io::Result<BTreeMap<JobId, Given>> {
    let mut open = BTreeMap::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.lines();
    match lines.next() {
        Some(FORM) | None => {}
        Some(other) => {
            let other = corona_model::text::cut(other, 100);
            return Err(io::Error::other(format!("{other:?} is no form that this version reads")));
        }
    }
    for line in lines {
        let mut words = line.splitn(4, ' ');
        let (sign, id) = (words.next(), words.next().and_then(|id| id.parse::<JobId>().ok()));
        let at = words.next().and_then(|at| at.parse().ok()).map(Millis);
        match (sign, id, at, words.next()) {
            (Some("+"), Some(id), Some(at), Some(user)) if now.since(at) <= ID_AGE_MS => {
                open.insert(id, Given { at, user: user.to_owned() });
            }
            (Some("-"), Some(id), ..) => drop(open.remove(&id)),
            _ => {}
        }
    }
    Ok(open)
}

fn write_anew(path: &Path, open: &BTreeMap<JobId, Given>) -> io::Result<File> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    let mut text = format!("{FORM}\n");
    open.iter().for_each(|(id, given)| text.push_str(&line(id, given)));
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> JobId {
        JobId::new(&format!("202611210043.{number}"), 1).unwrap()
    }

    #[test]
    fn ids_survive_until_they_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        let open = |now| Ids::open(path.clone(), JournalSync::Always, Millis(now)).unwrap();
        let (ids, given) = open(1_000);
        assert_eq!(given, []);
        for number in 1..=3 {
            ids.give(id(number), format!("a user {number}\n"), Millis(1_000)).unwrap();
        }
        ids.used(&id(2), Millis(1_001)).unwrap();
        ids.used(&id(7), Millis(1_001)).unwrap();
        drop(ids);
        // The process died in the middle of a line.
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"- job_202611210043.1_00").unwrap();
        let (ids, given) = open(2_000);
        let expected = [(id(1), "a user 1".to_owned()), (id(3), "a user 3".to_owned())];
        assert_eq!(given, expected);
        ids.give(id(4), "b".into(), Millis(2_000)).unwrap();
        drop(ids);
        assert_eq!(open(1_001 + ID_AGE_MS).1, [(id(4), "b".to_owned())], "old ones are forgotten");
    }

    #[test]
    fn files_of_the_first_version_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        fs::write(&path, include_str!("../../../fixtures/versions/job-ids")).unwrap();
        let (_, given) = Ids::open(path, JournalSync::Write, Millis(2_000)).unwrap();
        assert_eq!(given, [(id(2), "a user".to_owned()), (id(3), "bob".to_owned())]);
    }

    #[test]
    fn a_file_with_many_ids_of_use_is_written_anew_seldom() {
        use std::os::unix::fs::MetadataExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        let (ids, _) = Ids::open(path.clone(), JournalSync::Write, Millis(0)).unwrap();
        let (mut times, mut inode) = (0, fs::metadata(&path).unwrap().ino());
        for number in 0..2 * MAX_LINES as u32 + 3000 {
            ids.give(id(number), "alice".into(), Millis(0)).unwrap();
            // Each new file has another number.
            if number % 1000 == 999 {
                let now = fs::metadata(&path).unwrap().ino();
                times += usize::from(now != inode);
                inode = now;
            }
        }
        assert_eq!(times, 2);
        drop(ids);
        let (_, given) = Ids::open(path, JournalSync::Write, Millis(0)).unwrap();
        assert_eq!(given.len(), 2 * MAX_LINES + 3000);
    }

    #[test]
    fn nothing_follows_a_line_that_could_not_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        let (ids, _) = Ids::open(path.clone(), JournalSync::Write, Millis(0)).unwrap();
        ids.give(id(1), "alice".into(), Millis(0)).unwrap();
        // Writes fail, after a part of a line.
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"+ job_2026").unwrap();
        ids.lock().file = File::open("/dev/full").unwrap();
        ids.give(id(2), "bob".into(), Millis(0)).unwrap_err();
        ids.give(id(3), "carol".into(), Millis(0)).unwrap();
        drop(ids);
        let (_, given) = Ids::open(path, JournalSync::Write, Millis(0)).unwrap();
        assert_eq!(given, [(id(1), "alice".to_owned()), (id(3), "carol".to_owned())]);
    }

    #[test]
    fn a_file_does_not_grow_without_end_and_another_form_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        let (ids, _) = Ids::open(path.clone(), JournalSync::Write, Millis(0)).unwrap();
        for number in 0..MAX_LINES as u32 {
            ids.give(id(number), "alice".into(), Millis(0)).unwrap();
            ids.used(&id(number), Millis(0)).unwrap();
        }
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= MAX_LINES + 1, "{lines}");
        drop(ids);
        fs::write(&path, "corona job ids 2\n").unwrap();
        let error = Ids::open(path, JournalSync::Write, Millis(0)).unwrap_err();
        assert!(error.to_string().contains("corona job ids 2"), "{error}");
    }
}
