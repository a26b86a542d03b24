//! A note on disk for each started process, and the end of processes of an earlier run.
//!
//! Process ids are reused. So a note contains the start time too, and every process that a task
//! starts has the name of its note in its environment. The original leaves such processes alone;
//! see docs/compatibility.md.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::ids::AttemptId;
use crate::layout;
use corona_process::procfs::{Process, boot_id, tree};

/// The variable that carries the name of the note.
pub(super) const NOTE: &str = "CORONA_PROCESS_NOTE";
/// The longest note that is read.
const MAX_NOTE_BYTES: u64 = 1024;
/// Pause between looks for processes that are to end.
const POLL: Duration = Duration::from_millis(50);

/// Where the notes of this run are.
#[derive(Debug)]
pub struct ProcessNotes {
    dir: PathBuf,
    next: AtomicU64,
}

impl ProcessNotes {
    /// Notes in one of the local directories.
    pub fn in_local_dir(local_dir: &Path) -> io::Result<Self> {
        let dir = local_dir.join(layout::PROCESSES);
        fs::create_dir_all(&dir)?;
        Ok(ProcessNotes { dir, next: AtomicU64::new(0) })
    }

    /// The name of a new note.
    pub(super) fn name(&self, attempt: &AttemptId) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{attempt}.{}.{number}", std::process::id()))
    }
}

/// Notes that a process has been started. It blocks, for the time of a small file.
pub(super) fn note(name: &Path, pid: i32) -> io::Result<()> {
    // It may have ended by now; its descendants have the name in their environment.
    let start = Process::of(pid).map_or(0, |process| process.start_ticks);
    fs::write(name, format!("{pid} {start} {}\n", boot_id()))
}

/// Ends leftover processes of earlier runs, noted in any of these directories: SIGTERM, after the
/// delay SIGKILL. Returns the number of processes that were still there. It blocks.
pub fn end_orphans(local_dirs: &[PathBuf], delay: Duration) -> usize {
    let mut names = Vec::new();
    for dir in local_dirs {
        let Ok(entries) = fs::read_dir(dir.join(layout::PROCESSES)) else { continue };
        names.extend(entries.flatten().map(|entry| entry.path()));
    }
    let orphans = |all: &[Process]| -> Vec<Process> {
        names.iter().flat_map(|name| of_note(all, name)).collect()
    };
    let ended = if names.is_empty() { 0 } else { end(&orphans, Instant::now() + delay) };
    for name in names {
        if let Err(error) = fs::remove_file(&name) {
            tracing::warn!(path = %name.display(), %error, "cannot delete the note of a process");
        }
    }
    ended
}

/// The processes that belong to a note: the named one, its group, and all that carry its name.
pub(super) fn of_note(all: &[Process], name: &Path) -> Vec<Process> {
    let leader = read(name).and_then(|(pid, start)| {
        all.iter().find(|process| process.pid == pid && process.start_ticks == start)
    });
    let mut found = leader.map_or_else(Vec::new, |leader| tree(all, leader.pid));
    if let Some(leader) = leader.filter(|leader| !found.contains(leader)) {
        found.push(*leader);
    }
    let name = name.to_string_lossy();
    for process in all {
        if !found.contains(process) && process.variable(NOTE).is_some_and(|note| note == name) {
            found.push(*process);
        }
    }
    let ourselves = i32::try_from(std::process::id()).unwrap_or(0);
    found.retain(|process| !process.is_zombie && process.pid != ourselves);
    found
}

/// Number and start of the process that a note names, if that was since the machine started.
fn read(name: &Path) -> Option<(i32, u64)> {
    if fs::symlink_metadata(name).ok()?.len() > MAX_NOTE_BYTES {
        return None;
    }
    let note = fs::read_to_string(name).ok()?;
    let mut fields = note.split_whitespace();
    let (pid, start) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (fields.next()? == boot_id()).then_some((pid, start))
}

/// Asks all found processes to end, and kills the rest at the deadline. Returns how many were found
/// first.
pub(super) fn end(find: &dyn Fn(&[Process]) -> Vec<Process>, deadline: Instant) -> usize {
    let first = find(&Process::all());
    for process in &first {
        signal(process, Signal::TERM);
    }
    let mut left = first.clone();
    let mut pause = POLL;
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
        pause = (pause * 2).min(POLL * 10);
        left = find(&Process::all());
    }
    // One that forks while we look is found in the next round.
    for _ in 0..10 {
        for process in &left {
            signal(process, Signal::KILL);
        }
        if left.is_empty() {
            break;
        }
        std::thread::sleep(POLL);
        left = find(&Process::all());
    }
    first.len()
}

/// Sends a signal, unless the number has been given to another process meanwhile.
fn signal(process: &Process, signal: Signal) {
    let same = Process::of(process.pid).is_some_and(|now| now.start_ticks == process.start_ticks);
    if let Some(pid) = Pid::from_raw(process.pid).filter(|_| same) {
        // When it has ended, nothing is left to do.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that ignores SIGTERM and starts another one in a session of its own.
    fn stubborn(note: &Path) -> Child {
        let script =
            "trap '' TERM; setsid sleep 60 & echo ready; for _ in $(seq 60); do sleep 1; done";
        let mut child = Command::new("bash")
            .args(["-c", script])
            .env(NOTE, note)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        child
    }

    fn attempt() -> AttemptId {
        "attempt_20.1_0001_m_000000_0".parse().unwrap()
    }

    #[test]
    fn what_an_earlier_run_left_is_ended_with_all_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let notes = ProcessNotes::in_local_dir(dir.path()).unwrap();
        let name = notes.name(&attempt());
        let mut child = stubborn(&name);
        note(&name, i32::try_from(child.id()).unwrap()).unwrap();
        let found = end_orphans(&[dir.path().to_owned()], Duration::ZERO);
        // The shell, the process in a session of its own, mostly a sleep of the shell.
        assert!(found >= 2, "{found}");
        assert!(!child.wait().unwrap().success());
        assert_eq!(of_note(&Process::all(), &name), []);
        assert_eq!(fs::read_dir(dir.path().join(layout::PROCESSES)).unwrap().count(), 0);
    }

    #[test]
    fn a_number_that_was_given_to_another_process_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let notes = ProcessNotes::in_local_dir(dir.path()).unwrap();
        let another = dir.path().join("another");
        let mut other = stubborn(&another);
        let pid = i32::try_from(other.id()).unwrap();
        let start = Process::of(pid).unwrap().start_ticks;
        let boot = boot_id();
        for text in [
            format!("{pid} {} {boot}", start + 1),
            format!("{pid} {start} another-boot"),
            format!("{pid} {start}"),
            "nonsense".into(),
            String::new(),
            "1".repeat(5000),
        ] {
            fs::write(notes.name(&attempt()), text).unwrap();
        }
        assert_eq!(end_orphans(&[dir.path().to_owned()], Duration::from_secs(60)), 0);
        assert_eq!(other.try_wait().unwrap(), None);
        let pid = pid.to_string();
        // Its own note ends it.
        let own = notes.name(&attempt());
        fs::write(&own, format!("{pid} {start} {boot}")).unwrap();
        assert!(end_orphans(&[dir.path().to_owned()], Duration::ZERO) >= 1);
        other.wait().unwrap();
        end(&|all| of_note(all, &another), Instant::now());
        assert_eq!(of_note(&Process::all(), &another), []);
    }
}
