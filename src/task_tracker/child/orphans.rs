//! A note on disk for each started process, and the end of processes of an earlier run.
//!
//! Process ids are reused. So a note contains the start time too, and every process that a task
//! starts has the name of its note in its environment. The original leaves such processes alone;
//! see docs/reference/compatibility.md.
//!
//! A look at the environments of all processes is expensive where there are many. So one look serves all tasks
//! that have ended since the last one ([`Leftovers`]).

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;

use crate::ids::AttemptId;
use crate::layout;
use crate::local_dirs::any_number;
use corona_net::Backoff;
use corona_process::panics::{blocking, restart_on_panic};
use corona_process::procfs::{Process, Procfs, boot_id, now_ticks, tree};

/// The variable that carries the name of the note.
pub(super) const NOTE: &str = "CORONA_PROCESS_NOTE";
/// The longest note that is read.
const MAX_NOTE_BYTES: u64 = 1024;
/// The least pause between two looks for what ended tasks have left behind.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Pause between looks for processes that are to end.
const POLL: Duration = Duration::from_millis(50);

/// Where the notes of this run are.
#[derive(Debug)]
pub struct ProcessNotes {
    dir: PathBuf,
    next: AtomicU64,
    pub(super) leftovers: Arc<Leftovers>,
    /// Becomes true when the processes are left to another program. Each supervision holds a receiver.
    pub(super) let_go: watch::Sender<bool>,
}

impl ProcessNotes {
    /// Notes in one of the local directories.
    pub fn in_local_dir(local_dir: &Path) -> io::Result<Self> {
        let dir = local_dir.join(layout::PROCESSES);
        fs::create_dir_all(&dir)?;
        let leftovers = Arc::new(Leftovers::new(Procfs::system().clone(), LOOK_PAUSE));
        // A former program in this process may have made notes too.
        let next = AtomicU64::new(any_number());
        Ok(ProcessNotes { dir, next, leftovers, let_go: watch::Sender::new(false) })
    }

    /// The name of a new note.
    pub(super) fn name(&self, attempt: &AttemptId) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{attempt}.{}.{number}", std::process::id()))
    }

    /// Ends the supervision of all processes, which go on: the program that takes the place of this one waits for
    /// their ends. Nothing may be started any more.
    pub async fn let_go(&self) {
        self.let_go.send_replace(true);
        self.let_go.closed().await;
    }
}

/// Notes that a process has been started. It blocks, for the time of a small file.
pub(super) fn note(name: &Path, pid: i32, start_ticks: u64) -> io::Result<()> {
    fs::write(name, format!("{pid} {start_ticks} {}\n", boot_id()))
}

/// Ends leftover processes of earlier runs, noted in any of these directories: SIGTERM, after the
/// delay SIGKILL. Those whose notes have one of the names of `adopted` go on. Returns the number of processes that were
/// still there. It blocks.
pub fn end_orphans(local_dirs: &[PathBuf], delay: Duration, adopted: &HashSet<OsString>) -> usize {
    let mut names = Vec::new();
    for dir in local_dirs {
        let Ok(entries) = fs::read_dir(dir.join(layout::PROCESSES)) else { continue };
        let orphans = entries.flatten().filter(|entry| !adopted.contains(&entry.file_name()));
        names.extend(orphans.map(|entry| entry.path()));
    }
    let ended = if names.is_empty() { 0 } else { end_noted(&names, delay) };
    for name in names {
        if let Err(error) = fs::remove_file(&name) {
            tracing::warn!(path = %name.display(), %error, "cannot delete the note of a process");
        }
    }
    ended
}

/// Ends the processes of these notes: SIGTERM, after the delay SIGKILL. Returns the number of processes that were still
/// there. It blocks.
pub fn end_noted(notes: &[PathBuf], delay: Duration) -> usize {
    end(&|| of_notes(notes), Instant::now() + delay)
}

/// The processes that belong to these notes: the named ones, their groups, and all that carry one of the names.
fn of_notes(notes: &[PathBuf]) -> Vec<Process> {
    let mut all = Process::all();
    let mut families = HashSet::new();
    for (pid, start) in notes.iter().filter_map(|note| read(note)) {
        let leader = all.iter().find(|process| process.pid == pid && process.start_ticks == start);
        let family = leader.map_or_else(Vec::new, |leader| tree(&all, leader.pid));
        families.extend(leader.into_iter().chain(&family).map(|process| process.pid));
    }
    let ourselves = i32::try_from(std::process::id()).unwrap_or(0);
    all.retain(|process| !process.is_zombie && process.pid != ourselves);
    let names: HashSet<_> = notes.iter().map(|note| note.to_string_lossy()).collect();
    let is_named = |carried: &HashMap<i32, String>, process: &Process| {
        carried.get(&process.pid).is_some_and(|note| names.contains(note.as_str()))
    };
    let carried = Procfs::system().variables(&all, NOTE);
    let belongs = |it: &&Process| families.contains(&it.pid) || is_named(&carried, it);
    let found: Vec<Process> = all.iter().filter(belongs).copied().collect();
    // While there are some, the caller looks again. When there are none, that must be right.
    if found.is_empty() {
        let carried = Procfs::system().variables_at_last(&all, NOTE);
        all.retain(|process| is_named(&carried, process));
        return all;
    }
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

/// Asks all found processes to end, and kills the rest at the deadline. Of those that are found later only those are asked
/// that had started before the first ones were asked: the others may clean up. Returns how many were asked.
pub(super) fn end(find: &dyn Fn() -> Vec<Process>, deadline: Instant) -> usize {
    let mut left = find();
    let began = now_ticks();
    let id = |process: &Process| (process.pid, process.start_ticks);
    let mut asked: HashSet<_> = left.iter().map(id).collect();
    for process in &left {
        signal(process, Signal::TERM);
    }
    let mut pauses = Backoff::new(POLL, POLL * 10);
    while !left.is_empty() && Instant::now() < deadline {
        let left_of_time = deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(pauses.pause().min(left_of_time));
        left = find();
        for process in left.iter().filter(|process| process.start_ticks < began) {
            if asked.insert(id(process)) {
                signal(process, Signal::TERM);
            }
        }
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
        left = find();
    }
    asked.len()
}

/// The processes of a group whose leader was just waited for. If there are none, no process is looked at.
pub(super) fn of_group(group: i32) -> Vec<Process> {
    // While it has processes, its number is no other one's.
    let is_empty = Pid::from_raw(group).is_none_or(|group| test_kill_process_group(group).is_err());
    let mut all = if is_empty { Vec::new() } else { Process::all() };
    all.retain(|process| process.group == group && !process.is_zombie);
    all
}

/// Ends processes that tasks have left behind outside their groups: one look for all tasks that have ended since
/// the last one.
#[derive(Debug)]
pub(super) struct Leftovers {
    procfs: Arc<Procfs>,
    pause: Duration,
    /// [`with_leftovers`].
    look: fn(&Procfs, Vec<Ended>) -> Vec<Ended>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Ended>,
    is_looking: bool,
}

/// A task that has ended.
#[derive(Debug)]
struct Ended {
    note: PathBuf,
    /// When its processes are killed.
    deadline: Instant,
    /// Dropped when nothing is left of it.
    _over: oneshot::Sender<()>,
}

impl Leftovers {
    fn new(procfs: Arc<Procfs>, pause: Duration) -> Leftovers {
        Leftovers { procfs, pause, look: with_leftovers, queue: Mutex::default() }
    }

    /// Ends all processes that carry a note, and deletes it. Must be called within a tokio runtime.
    pub(super) async fn end(self: &Arc<Self>, note: PathBuf, deadline: Instant) {
        let (over, is_over) = oneshot::channel();
        let is_looking = {
            let mut queue = self.lock();
            queue.waiting.push(Ended { note, deadline, _over: over });
            std::mem::replace(&mut queue.is_looking, true)
        };
        if !is_looking {
            let this = self.clone();
            tokio::spawn(async move {
                let look = || this.clone().look_while_needed();
                restart_on_panic("the look for processes that tasks left behind", look).await;
            });
        }
        // It is dropped, never sent.
        let _ = is_over.await;
    }

    async fn look_while_needed(self: Arc<Self>) {
        while let Some(ended) = self.take() {
            let (look, procfs) = (self.look, self.procfs.clone());
            for ended in blocking(move || look(&procfs, ended)).await {
                // Those that are slow to end delay no others.
                spawn_blocking(move || {
                    end(&|| of_notes(slice::from_ref(&ended.note)), ended.deadline);
                    forget(&ended);
                });
            }
            tokio::time::sleep(self.pause).await;
        }
    }

    /// The tasks that have ended; `None` if none have, and the next one begins to look again.
    fn take(&self) -> Option<Vec<Ended>> {
        let mut queue = self.lock();
        queue.is_looking = !queue.waiting.is_empty();
        queue.is_looking.then(|| std::mem::take(&mut queue.waiting))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each change is one step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of which processes are left. The others are over.
fn with_leftovers(procfs: &Procfs, ended: Vec<Ended>) -> Vec<Ended> {
    // What is older than all of them was started by none.
    let since = ended.iter().map(|ended| read(&ended.note).map_or(0, |(_, start)| start)).min();
    let ourselves = i32::try_from(std::process::id()).unwrap_or(0);
    let may_carry =
        |process: &Process| process.start_ticks >= since.unwrap_or(0) && process.pid != ourselves;
    let candidates: Vec<Process> = procfs.all().into_iter().filter(may_carry).collect();
    let carried: HashSet<String> =
        procfs.variables_at_last(&candidates, NOTE).into_values().collect();
    let is_left = |ended: &Ended| carried.contains(&*ended.note.to_string_lossy());
    let (left, over): (Vec<Ended>, Vec<Ended>) = ended.into_iter().partition(is_left);
    over.iter().for_each(forget);
    left
}

/// Deletes the note of a task of which nothing is left. A note of a process that has ended is harmless.
fn forget(ended: &Ended) {
    let _ = fs::remove_file(&ended.note);
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
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A process that ignores SIGTERM and starts another one in a session of its own.
    fn stubborn(note: &Path) -> Child {
        // Both shells stay, so both have an environment.
        let script = "trap '' TERM; setsid bash -c 'echo ready; sleep 60; :' & \
                      for _ in $(seq 60); do sleep 1; done";
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
    fn orphans_of_an_earlier_run_are_ended_with_their_children() {
        let dir = tempfile::tempdir().unwrap();
        let notes = ProcessNotes::in_local_dir(dir.path()).unwrap();
        let name = notes.name(&attempt());
        let mut child = stubborn(&name);
        let pid = i32::try_from(child.id()).unwrap();
        note(&name, pid, Process::of(pid).unwrap().start_ticks).unwrap();
        let found = end_orphans(&[dir.path().to_owned()], Duration::ZERO, &HashSet::new());
        // The shell, the one in a session of its own, mostly a sleep of each.
        assert!(found >= 2, "{found}");
        assert!(!child.wait().unwrap().success());
        assert_eq!(of_notes(&[name]), []);
        assert_eq!(fs::read_dir(dir.path().join(layout::PROCESSES)).unwrap().count(), 0);
    }

    #[test]
    fn a_process_that_is_found_late_is_asked_to_end_as_well() {
        let mut first = Command::new("sleep").arg("60").spawn().unwrap();
        let mut second = Command::new("bash")
            .args(["-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(second.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        let started = Process::of(second.id().try_into().unwrap()).unwrap().start_ticks;
        while now_ticks() <= started {
            std::thread::sleep(Duration::from_millis(1));
        }
        let looks = AtomicU64::new(0);
        let find = || {
            let child = if looks.fetch_add(1, Ordering::Relaxed) == 0 { &first } else { &second };
            let process = Process::of(child.id().try_into().unwrap());
            process.filter(|process| !process.is_zombie).into_iter().collect()
        };
        assert_eq!(end(&find, Instant::now() + Duration::from_secs(60)), 2);
        assert_eq!(second.wait().unwrap().code(), Some(7));
        first.wait().unwrap();
    }

    #[test]
    fn a_clean_up_that_a_process_starts_is_not_asked_to_end() {
        let dir = tempfile::tempdir().unwrap();
        let (name, cleaned) = (dir.path().join("note"), dir.path().join("cleaned"));
        // Longer than two looks are apart at most.
        let clean_up = format!("sleep 1 && touch {}; exit 7", cleaned.display());
        let mut child = Command::new("bash")
            .args([
                "-c",
                &format!("trap '{clean_up}' TERM; echo ready; while :; do sleep 0.01; done"),
            ])
            .env(NOTE, &name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        let names = [name];
        end(&|| of_notes(&names), Instant::now() + Duration::from_secs(60));
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert!(cleaned.exists());
    }

    /// A directory like `/proc` with so many processes, the last of which carries a note.
    fn procfs(processes: i32, note: &Path) -> (tempfile::TempDir, Arc<Procfs>) {
        // No process of the machine has such a number.
        const FIRST: i32 = 1 << 23;
        let root = tempfile::tempdir().unwrap();
        for number in 0..processes {
            let (dir, pid) = (root.path().join((FIRST + number).to_string()), FIRST + number);
            fs::create_dir(&dir).unwrap();
            // A tenth of them is younger than the tasks.
            let start = if number % 10 == 0 { 2000 } else { 10 };
            let stat =
                format!("{pid} (a) S 1 {pid} 39 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 {start} 8192 3 1");
            fs::write(dir.join("stat"), stat).unwrap();
            let carried = if number == processes - 10 { note } else { Path::new("another") };
            fs::write(dir.join("environ"), format!("A=b\0{NOTE}={}\0", carried.display())).unwrap();
        }
        let procfs = Arc::new(Procfs::at(root.path()));
        (root, procfs)
    }

    #[tokio::test]
    async fn one_look_serves_all_tasks_that_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let notes = ProcessNotes::in_local_dir(dir.path()).unwrap();
        let names: Vec<PathBuf> = (0..40).map(|_| notes.name(&attempt())).collect();
        for name in &names {
            fs::write(name, format!("1 1000 {}", boot_id())).unwrap();
        }
        let (_root, procfs) = procfs(250, &names[7]);
        let leftovers = Arc::new(Leftovers::new(procfs.clone(), Duration::from_millis(1)));
        let deadline = Instant::now();
        let mut all = tokio::task::JoinSet::new();
        for name in names.clone() {
            let leftovers = leftovers.clone();
            all.spawn(async move { leftovers.end(name, deadline).await });
        }
        all.join_all().await;
        assert!(names.iter().all(|name| !name.exists()));
        // The list, each process, and the environments of the 25 younger ones: once, not for each task.
        assert_eq!(procfs.opened(), 1 + 250 + 25);
        leftovers.end(names[0].clone(), deadline).await;
        assert!(procfs.opened() > 276, "the next task begins another look");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_panics_is_followed_by_another_one() {
        static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
        fn panic_once(procfs: &Procfs, ended: Vec<Ended>) -> Vec<Ended> {
            assert!(HAS_PANICKED.swap(true, Ordering::Relaxed), "the first look panics");
            with_leftovers(procfs, ended)
        }
        let leftovers = Leftovers::new(Procfs::system().clone(), Duration::ZERO);
        let leftovers = Arc::new(Leftovers { look: panic_once, ..leftovers });
        for _ in 0..2 {
            let end = leftovers.end(PathBuf::from("no note"), Instant::now());
            tokio::time::timeout(Duration::from_secs(60), end).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_group_without_processes_needs_no_look() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        child.wait().unwrap();
        assert_eq!(of_group(pid), []);
        assert_eq!(of_group(0), []);
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
        assert_eq!(
            end_orphans(&[dir.path().to_owned()], Duration::from_secs(60), &HashSet::new()),
            0
        );
        assert_eq!(other.try_wait().unwrap(), None);
        let pid = pid.to_string();
        // Its own note ends it.
        let own = notes.name(&attempt());
        fs::write(&own, format!("{pid} {start} {boot}")).unwrap();
        assert!(end_orphans(&[dir.path().to_owned()], Duration::ZERO, &HashSet::new()) >= 1);
        other.wait().unwrap();
        let another = [another];
        end(&|| of_notes(&another), Instant::now());
        assert_eq!(of_notes(&another), []);
    }
}
