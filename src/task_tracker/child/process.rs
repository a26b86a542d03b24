//! A task's process: started in its own process group, waited for, and ended with all processes
//! that it started, including those that left the group.
//!
//! Spec: mapreduce/04 §4.5 and §4.7.

use std::fs::File;
use std::future::Future;
use std::io;
use std::mem::{ManuallyDrop, forget};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

use super::cgroup::TaskGroup;
use super::command::{ChildCommand, DirectCommand};
use super::orphans::{self, Leftovers, ProcessNotes, of_group};
use crate::ids::AttemptId;
use corona_model::text::shell_word;
use corona_process::handover::{self, unheld};
use corona_process::panics::{blocking, caught, spawn_detached};
use corona_process::procfs::{Process, Procfs};

/// The pause between two looks for the end of a child where its signal cannot be received.
const CHILD_LOOK: Duration = Duration::from_millis(100);
/// The pause between two looks for the end of a process that was killed, and how many there are at most.
const STRAY_LOOK: Duration = Duration::from_millis(20);
const STRAY_LOOKS: u32 = 50;

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Exit {
    /// The status as a shell reports it, and as in the original's diagnostics: 128 plus the
    /// signal's number.
    pub fn shell_status(self) -> i32 {
        self.code.unwrap_or_else(|| 128 + self.signal.unwrap_or(0))
    }
}

/// Why a task could not be started.
#[derive(Debug, Error)]
#[error("{}: {error}", what.display())]
pub struct StartError {
    /// The directory that could not be made, or the program that could not be started.
    pub what: PathBuf,
    /// Why.
    pub error: io::Error,
}

/// A task's process. It continues when this is dropped.
#[derive(Clone, Debug)]
pub struct RunningChild {
    pid: i32,
    start_ticks: u64,
    note: Arc<Path>,
    exit: watch::Receiver<Option<Exit>>,
    gone: watch::Receiver<bool>,
    kill: Arc<Notify>,
    group: Option<Arc<TaskGroup>>,
}

/// A process of a task, for the program that takes the place of this one in the same process: it stays a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedChild {
    /// Its process id.
    pub pid: i32,
    /// When it started, in ticks of the kernel: with the number it names one process.
    pub start_ticks: u64,
    /// Its note on disk.
    pub note: PathBuf,
    /// The directory of its control group, if it has one.
    pub group: Option<PathBuf>,
    /// How it has ended, if it has. Processes that it has started may remain.
    pub exit: Option<Exit>,
}

/// Starts a task. `kill_delay` is the time between SIGTERM and SIGKILL. When the task ends, its
/// leftover processes are ended the same way. `group` is its control group, which is deleted then. The
/// log files' directory must exist.
pub fn start(
    attempt: &AttemptId,
    command: &ChildCommand,
    notes: &ProcessNotes,
    kill_delay: Duration,
    group: Option<TaskGroup>,
) -> Result<RunningChild, StartError> {
    for dir in &command.directories {
        std::fs::create_dir_all(dir).map_err(|error| StartError { what: dir.clone(), error })?;
    }
    let name = notes.name(attempt);
    let group = group.map(Arc::new);
    let (program, mut process) = match (&group, &command.direct) {
        (None, Some(direct)) => (direct.program.clone(), without_shell(direct, &command.work)?),
        (group, _) => ("bash".into(), with_shell(&command.line, group.as_deref())),
    };
    let failed = |error| StartError { what: program.clone(), error };
    process
        .current_dir(&command.work)
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .envs(corona_access::environment())
        .env(orphans::NOTE, &name)
        .env_remove(handover::VARIABLE)
        .stdin(Stdio::null())
        .process_group(0);
    let child = unheld(|| process.spawn()).map_err(failed)?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| failed(io::Error::other("it has no number")))?;
    // It may have ended by now; its descendants have the name in their environment.
    let start_ticks = Process::of(pid).map_or(0, |process| process.start_ticks);
    if let Err(error) = orphans::note(&name, pid, start_ticks) {
        // The task can run nevertheless; only a later run would not know of it.
        tracing::warn!(path = %name.display(), %error, "cannot write the note of a process");
    }
    let supervised = Supervised { pid, start_ticks, note: name, group, exit: None };
    Ok(supervised.run(Leader::Started(ManuallyDrop::new(child)), notes, kill_delay))
}

/// Goes on with a process of the former program in this process, and says whether it is lost. One that is not this process's
/// child any more is, and counts as ended with neither status nor signal; one that has only ended is not.
pub fn adopt(
    child: HandedChild,
    notes: &ProcessNotes,
    kill_delay: Duration,
) -> (RunningChild, bool) {
    let HandedChild { pid, start_ticks, note, group, exit } = child;
    let ourselves = i32::try_from(std::process::id()).unwrap_or(0);
    let is_same =
        |process: Process| process.start_ticks == start_ticks && process.parent == ourselves;
    let is_lost = exit.is_none() && !Process::of(pid).is_some_and(is_same);
    let exit = if is_lost { Some(Exit { code: None, signal: None }) } else { exit };
    let group = group.map(|path| Arc::new(TaskGroup::of_dir(path)));
    let supervised = Supervised { pid, start_ticks, note, group, exit };
    (supervised.run(Leader::Adopted, notes, kill_delay), is_lost)
}

/// Kills children of this process that the former program in it has left, except these and what tasks have started:
/// nobody waits for them. It blocks.
pub fn end_strays(adopted: &[i32]) {
    let ourselves = i32::try_from(std::process::id()).unwrap_or(0);
    let mut strays = Process::all();
    strays.retain(|process| process.parent == ourselves && !adopted.contains(&process.pid));
    let of_tasks = Procfs::system().variables_at_last(&strays, orphans::NOTE);
    strays.retain(|process| !of_tasks.contains_key(&process.pid));
    for stray in strays {
        let Some(pid) = Pid::from_raw(stray.pid) else { continue };
        // One that has ended is only waited for.
        let _ = kill_process(pid, Signal::KILL);
        for _ in 0..STRAY_LOOKS {
            match waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(None) => std::thread::sleep(STRAY_LOOK),
                Ok(Some(_)) | Err(_) => break,
            }
        }
    }
}

/// A process of a task that is waited for.
struct Supervised {
    pid: i32,
    start_ticks: u64,
    note: PathBuf,
    group: Option<Arc<TaskGroup>>,
    /// How it has ended, if it had when the supervision began.
    exit: Option<Exit>,
}

impl Supervised {
    fn run(self, leader: Leader, notes: &ProcessNotes, kill_delay: Duration) -> RunningChild {
        let Supervised { pid, start_ticks, note, group, exit: ended } = self;
        let (exit_sender, exit) = watch::channel(ended);
        let (gone_sender, gone) = watch::channel(false);
        let (exit_sender, gone_sender) = (Arc::new(exit_sender), Arc::new(gone_sender));
        let kill = Arc::new(Notify::new());
        let supervisor = Supervisor { leader, pid, kill_delay, kill: kill.clone() };
        let leftovers = notes.leftovers.clone();
        let (of_child, theirs) = (group.clone(), (exit_sender.clone(), gone_sender.clone()));
        let path: Arc<Path> = note.as_path().into();
        let supervising = async move {
            let (exit_sender, gone_sender) = theirs;
            let supervising = async move {
                match ended {
                    Some(_) => Instant::now() + kill_delay,
                    None => {
                        let tell = |exit| {
                            exit_sender.send_replace(Some(exit));
                        };
                        supervisor.run(tell).await
                    }
                }
            };
            // The number of a process that ended under the former program may be another one's by now.
            let group = Process::of(pid).is_none_or(|process| process.start_ticks == start_ticks);
            until_gone(group.then_some(pid), note, kill_delay, supervising, &leftovers).await;
            if let Some(group) = of_child {
                // Its processes have ended; a failure is logged.
                blocking(move || group.remove()).await;
            }
            gone_sender.send_replace(true);
        };
        let mut let_go = notes.let_go.subscribe();
        spawn_detached("the supervision of a process", async move {
            tokio::select! {
                biased;
                _ = let_go.wait_for(|let_go| *let_go) => {
                    // Those who wait for its end must not take this for it.
                    forget((exit_sender, gone_sender));
                }
                () = supervising => {}
            }
        });
        RunningChild { pid, start_ticks, note: path, exit, gone, kill, group }
    }
}

/// The shell with a line, which it runs in a control group.
fn with_shell(line: &str, group: Option<&TaskGroup>) -> Command {
    let line = match group {
        None => line.to_owned(),
        // Before anything is started that could stay outside.
        Some(group) => {
            let procs = shell_word(&group.procs().display().to_string());
            format!("{{ echo 0 > {procs}; }} 2> /dev/null ;{line}")
        }
    };
    let mut bash = Command::new("bash");
    // The line itself redirects the task's output.
    bash.arg("-c").arg(line).stdout(Stdio::null()).stderr(Stdio::null());
    bash
}

/// A program as a shell would start it in its directory.
fn without_shell(direct: &DirectCommand, work: &Path) -> Result<Command, StartError> {
    let log = |path: &Path| {
        let opened = File::options().create(true).append(true).open(path);
        opened.map_err(|error| StartError { what: path.to_owned(), error })
    };
    let mut program = Command::new(&direct.program);
    program.args(&direct.arguments).stdout(log(&direct.stdout)?).stderr(log(&direct.stderr)?);
    // The task tracker itself may have been started by a shell that has set them.
    program.env("PWD", work).env_remove("OLDPWD").env_remove("JVM_PID");
    Ok(program)
}

/// Awaits the supervision of a note's process, which returns the deadline for its leftover
/// processes. After that, also on failure, ends its group, and all that carry the note.
async fn until_gone(
    group: Option<i32>,
    note: PathBuf,
    kill_delay: Duration,
    supervising: impl Future<Output = Instant>,
    leftovers: &Arc<Leftovers>,
) {
    let deadline = caught(supervising).await.unwrap_or_else(|panic| {
        tracing::error!(path = %note.display(), %panic, "the supervision of a process panicked; ending the process");
        Instant::now() + kill_delay
    });
    if let Some(group) = group {
        let ended =
            tokio::task::spawn_blocking(move || orphans::end(&|| of_group(group), deadline));
        if let Err(error) = ended.await {
            tracing::error!(%error, "cannot end the process group of a task");
        }
    }
    leftovers.end(note, deadline).await;
}

impl RunningChild {
    /// The number of the process, which is that of its group too.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What the program that takes the place of this one needs to [`adopt`] it. Only once its supervision has
    /// [ended](ProcessNotes::let_go), since its end could be missed otherwise.
    pub fn hand_over(&self) -> HandedChild {
        HandedChild {
            pid: self.pid,
            start_ticks: self.start_ticks,
            note: self.note.to_path_buf(),
            group: self.group.as_ref().map(|group| group.dir().to_owned()),
            exit: self.exit(),
        }
    }

    /// Its control group, if it has one.
    pub fn group(&self) -> Option<&TaskGroup> {
        self.group.as_deref()
    }

    /// How it has ended; `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits until the process has ended. Its children may still run.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await.map(|exit| *exit) {
            Ok(Some(exit)) => exit,
            // The executor stops, so the status is not needed.
            Ok(None) | Err(_) => Exit { code: None, signal: None },
        }
    }

    /// Waits until all its processes have ended.
    pub async fn wait_until_gone(&self) {
        // An error means that the executor stops.
        let _ = self.gone.clone().wait_for(|gone| *gone).await;
    }

    /// Asks the process and its group to end, and after the delay makes them. More than once is the
    /// same as once.
    pub fn kill(&self) {
        self.kill.notify_one();
    }
}

/// The first process of a task.
enum Leader {
    /// Left alone when it is dropped: it is not waited for then, so that another program can.
    Started(ManuallyDrop<Child>),
    /// A child that another program in this process has started.
    Adopted,
}

impl Leader {
    /// Waits for its end. Nothing is lost if this is dropped before.
    async fn wait(&mut self, pid: i32) -> Exit {
        let unknown = Exit { code: None, signal: None };
        match self {
            Leader::Started(child) => {
                let exit =
                    |status: ExitStatus| Exit { code: status.code(), signal: status.signal() };
                child.wait().await.map_or(unknown, exit)
            }
            Leader::Adopted => {
                let mut changes = signal(SignalKind::child()).ok();
                loop {
                    match waitpid(Pid::from_raw(pid), WaitOptions::NOHANG) {
                        Ok(None) => {}
                        Ok(Some((_, status))) => {
                            let (code, signal) =
                                (status.exit_status(), status.terminating_signal());
                            return Exit { code, signal };
                        }
                        Err(rustix::io::Errno::INTR) => continue,
                        Err(_) => return unknown,
                    }
                    match &mut changes {
                        Some(changes) => drop(changes.recv().await),
                        None => tokio::time::sleep(CHILD_LOOK).await,
                    }
                }
            }
        }
    }
}

struct Supervisor {
    leader: Leader,
    pid: i32,
    kill_delay: Duration,
    kill: Arc<Notify>,
}

impl Supervisor {
    /// Waits for the end, and causes it on request. Returns the deadline for the rest.
    async fn run(mut self, ended: impl Fn(Exit)) -> Instant {
        let mut deadline: Option<Instant> = None;
        let mut killed = false;
        let exit = loop {
            let until_kill = async {
                match deadline.filter(|_| !killed) {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                exit = self.leader.wait(self.pid) => break exit,
                () = self.kill.notified(), if deadline.is_none() => {
                    deadline = Some(Instant::now() + self.kill_delay);
                    signal_group(self.pid, Signal::TERM);
                }
                () = until_kill => {
                    killed = true;
                    signal_group(self.pid, Signal::KILL);
                }
            }
        };
        ended(exit);
        if let Leader::Started(child) = self.leader {
            drop(ManuallyDrop::into_inner(child));
        }
        deadline.unwrap_or_else(|| Instant::now() + self.kill_delay)
    }
}

/// Only before the leader was waited for, so that the process id certainly still belongs to it.
fn signal_group(pid: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(pid) {
        // When it has ended, nothing is left to do.
        let _ = kill_process_group(group, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::layout;
    use corona_net::testing::some;

    struct TestNotes {
        root: tempfile::TempDir,
        notes: ProcessNotes,
    }

    impl TestNotes {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let notes = ProcessNotes::in_local_dir(root.path()).unwrap();
            TestNotes { root, notes }
        }

        /// Starts a script, which may write any files in its directory.
        fn start(&self, script: &str, kill_delay: Duration) -> RunningChild {
            let command = ChildCommand {
                line: format!(" export JVM_PID=`echo $$` ; {script}"),
                direct: None,
                work: self.root.path().join("work"),
                directories: vec![self.root.path().join("work/tmp")],
                environment: vec![("GIVEN".into(), "a b".into())],
                is_java: false,
            };
            self.start_command(&command, kill_delay)
        }

        fn start_command(&self, command: &ChildCommand, kill_delay: Duration) -> RunningChild {
            let attempt = "attempt_20.1_0001_m_000000_0".parse().unwrap();
            start(&attempt, command, &self.notes, kill_delay, None).unwrap()
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join("work").join(name)
        }

        async fn wait_for(&self, name: &str) -> String {
            let read = || fs::read_to_string(self.path(name)).ok();
            let whole = || read().filter(|text| text.ends_with('\n'));
            some(name, whole).await.trim().to_owned()
        }

        fn notes(&self) -> usize {
            fs::read_dir(self.root.path().join(layout::PROCESSES)).unwrap().count()
        }
    }

    const LONG: Duration = Duration::from_secs(600);

    fn runs(pid: &str) -> bool {
        Process::of(pid.parse().unwrap()).is_some_and(|process| !process.is_zombie)
    }

    #[tokio::test]
    async fn a_task_runs_where_and_as_it_should() {
        let world = TestNotes::new();
        let script = "echo \"$JVM_PID $GIVEN $PWD $(ps -o pgid= -p $$)\" > told; exit 7";
        let child = world.start(script, LONG);
        let exit = child.wait().await;
        assert_eq!((exit, exit.shell_status()), (Exit { code: Some(7), signal: None }, 7));
        let told = world.wait_for("told").await;
        let work = world.root.path().join("work");
        let pid = child.pid();
        assert_eq!(
            told.split_whitespace().collect::<Vec<_>>().join(" "),
            format!("{pid} a b {} {pid}", work.display())
        );
        assert!(work.join("tmp").is_dir());
        child.wait_until_gone().await;
        assert_eq!(child.exit(), Some(exit));
        assert_eq!(world.notes(), 0);
        // Nothing happens any more.
        child.kill();
    }

    #[tokio::test]
    async fn a_program_without_a_shell_runs_as_with_one() {
        let world = TestNotes::new();
        let work = world.root.path().join("work");
        let script = "cat; echo \"$GIVEN $PWD ${OLDPWD-none} ${JVM_PID-none} $(ps -o pgid= -p $$)\"; echo wrong >&2; exit 7";
        let direct = DirectCommand {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            stdout: work.join("stdout"),
            stderr: work.join("stderr"),
        };
        let command = ChildCommand {
            line: "exit 1".to_owned(),
            direct: Some(direct),
            work: work.clone(),
            directories: vec![work.clone()],
            environment: vec![("GIVEN".into(), "a b".into())],
            is_java: false,
        };
        fs::create_dir(&work).unwrap();
        fs::write(work.join("stdout"), "before\n").unwrap();
        let child = world.start_command(&command, LONG);
        assert_eq!(child.wait().await.code, Some(7));
        let told = fs::read_to_string(work.join("stdout")).unwrap();
        let expected = format!("before a b {} none none {}", work.display(), child.pid());
        assert_eq!(told.split_whitespace().collect::<Vec<_>>().join(" "), expected);
        assert_eq!(fs::read_to_string(work.join("stderr")).unwrap(), "wrong\n");
        child.wait_until_gone().await;
        assert_eq!(world.notes(), 0);
    }

    /// Its end may be known before the one who adopts it looks.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_process_that_has_ended_before_it_is_adopted_is_not_lost() {
        let world = TestNotes::new();
        let mut started = std::process::Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
        let pid = i32::try_from(started.id()).unwrap();
        let ended = || Process::of(pid).filter(|process| process.is_zombie);
        let ended = some("the end of a process", ended).await;
        let handed = || HandedChild {
            pid,
            start_ticks: ended.start_ticks,
            note: world.root.path().join("note"),
            group: None,
            exit: None,
        };
        let (child, is_lost) = adopt(handed(), &world.notes, LONG);
        assert_eq!((is_lost, child.wait().await.code), (false, Some(7)));
        // Now nobody can learn how it has ended.
        let (child, is_lost) = adopt(handed(), &world.notes, LONG);
        assert_eq!((is_lost, child.wait().await.code), (true, None));
        started.wait().unwrap_err();
    }

    #[tokio::test]
    async fn a_kill_gives_time_to_clean_up() {
        let world = TestNotes::new();
        let script = "trap 'echo cleaned > cleaned; exit 3' TERM; echo ready > ready; for _ in $(seq 1200); do sleep 0.05; done";
        let child = world.start(script, LONG);
        world.wait_for("ready").await;
        assert_eq!(child.exit(), None);
        assert_eq!(world.notes(), 1);
        child.kill();
        child.kill();
        assert_eq!(child.wait().await.code, Some(3));
        assert_eq!(world.wait_for("cleaned").await, "cleaned");
    }

    #[tokio::test]
    async fn one_that_does_not_listen_is_made_to_end_with_its_group() {
        let world = TestNotes::new();
        let script =
            "trap '' TERM; sleep 60 & echo $! > below; for _ in $(seq 1200); do sleep 0.05; done";
        let child = world.start(script, Duration::from_millis(1));
        let below = world.wait_for("below").await;
        child.kill();
        let exit = child.wait().await;
        assert_eq!((exit.signal, exit.shell_status()), (Some(9), 137));
        child.wait_until_gone().await;
        assert!(!runs(&below));
    }

    #[tokio::test]
    async fn processes_that_a_task_leaves_behind_are_ended() {
        let world = TestNotes::new();
        let script = "setsid bash -c 'trap \"\" TERM; echo $$ > away; for _ in $(seq 1200); do sleep 0.05; done' & \
            sleep 60 & echo $! > near; while [ ! -s away ]; do sleep 0.05; done; exit 0";
        let child = world.start(script, Duration::from_millis(1));
        assert_eq!(child.wait().await.code, Some(0));
        child.wait_until_gone().await;
        let (near, away) = (world.wait_for("near").await, world.wait_for("away").await);
        assert!(!runs(&near) && !runs(&away));
        assert_eq!(world.notes(), 0);
    }

    #[tokio::test]
    async fn a_process_without_a_supervisor_is_ended() {
        let world = TestNotes::new();
        let child = world.start("trap '' TERM; echo ready > ready; sleep 600", LONG);
        world.wait_for("ready").await;
        let note = fs::read_dir(world.root.path().join(layout::PROCESSES)).unwrap().next();
        let note = note.unwrap().unwrap().path();
        let (pid, leftovers) = (child.pid(), &world.notes.leftovers);
        until_gone(Some(pid), note, Duration::ZERO, async { panic!("a fault") }, leftovers).await;
        assert_eq!((child.wait().await.signal, world.notes()), (Some(9), 0));
    }

    #[tokio::test]
    async fn a_failed_start_is_reported() {
        let world = TestNotes::new();
        fs::write(world.root.path().join("file"), "").unwrap();
        let command = ChildCommand {
            line: "true".into(),
            direct: None,
            work: world.root.path().join("file/work"),
            directories: vec![world.root.path().join("file/work")],
            environment: Vec::new(),
            is_java: false,
        };
        let attempt = "attempt_20.1_0001_m_000000_0".parse().unwrap();
        let error = start(&attempt, &command, &world.notes, LONG, None).unwrap_err();
        assert_eq!(error.what, command.work);
        let command = ChildCommand { directories: Vec::new(), ..command };
        let error = start(&attempt, &command, &world.notes, LONG, None).unwrap_err();
        assert_eq!(error.what, Path::new("bash"));
        let child = world.start("exec /no/such/program", LONG);
        assert_eq!(child.wait().await.code, Some(127), "the shell says that there is none");
        child.wait_until_gone().await;
        assert_eq!(world.notes(), 0);
    }
}
