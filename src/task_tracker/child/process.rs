//! A task's process: started in its own process group, waited for, and ended with all processes
//! that it started, including those that left the group.
//!
//! Spec: mapreduce/04 §4.5 and §4.7.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};

use super::cgroup::TaskGroup;
use super::command::{ChildCommand, DirectCommand};
use super::orphans::{self, Leftovers, ProcessNotes, of_group};
use crate::ids::AttemptId;
use corona_model::text::shell_word;
use corona_process::panics::caught;

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    exit: watch::Receiver<Option<Exit>>,
    gone: watch::Receiver<bool>,
    kill: Arc<Notify>,
    group: Option<Arc<TaskGroup>>,
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
    let child = process
        .current_dir(&command.work)
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .envs(corona_access::environment())
        .env(orphans::NOTE, &name)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| failed(io::Error::other("it has no number")))?;
    if let Err(error) = orphans::note(&name, pid) {
        // The task can run nevertheless; only a later run would not know of it.
        tracing::warn!(path = %name.display(), %error, "cannot write the note of a process");
    }
    let (exit_sender, exit) = watch::channel(None);
    let (gone_sender, gone) = watch::channel(false);
    let kill = Arc::new(Notify::new());
    let supervisor = Supervisor { child, pid, kill_delay, kill: kill.clone() };
    let (of_child, leftovers) = (group.clone(), notes.leftovers.clone());
    tokio::spawn(async move {
        let supervising = supervisor.run(|exit| {
            exit_sender.send_replace(Some(exit));
        });
        until_gone(pid, name, kill_delay, supervising, &leftovers).await;
        if let Some(group) = of_child {
            // Its processes have ended; a failure is logged.
            let _ = tokio::task::spawn_blocking(move || group.remove()).await;
        }
        gone_sender.send_replace(true);
    });
    Ok(RunningChild { pid, exit, gone, kill, group })
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
    pid: i32,
    note: PathBuf,
    kill_delay: Duration,
    supervising: impl Future<Output = Instant>,
    leftovers: &Arc<Leftovers>,
) {
    let deadline = caught(supervising).await.unwrap_or_else(|panic| {
        tracing::error!(path = %note.display(), %panic, "the supervision of a process panicked; ending the process");
        Instant::now() + kill_delay
    });
    let ended = tokio::task::spawn_blocking(move || orphans::end(&|| of_group(pid), deadline));
    if let Err(error) = ended.await {
        tracing::error!(%error, "cannot end the process group of a task");
    }
    leftovers.end(note, deadline).await;
}

impl RunningChild {
    /// The number of the process, which is that of its group too.
    pub fn pid(&self) -> i32 {
        self.pid
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

struct Supervisor {
    child: Child,
    pid: i32,
    kill_delay: Duration,
    kill: Arc<Notify>,
}

impl Supervisor {
    /// Waits for the end, and causes it on request. Returns the deadline for the rest.
    async fn run(mut self, ended: impl Fn(Exit)) -> Instant {
        let mut deadline: Option<Instant> = None;
        let mut killed = false;
        let status = loop {
            let until_kill = async {
                match deadline.filter(|_| !killed) {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                status = self.child.wait() => break status,
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
        let exit = |status: ExitStatus| Exit { code: status.code(), signal: status.signal() };
        ended(status.map_or(Exit { code: None, signal: None }, exit));
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
    use corona_process::procfs::Process;

    struct World {
        root: tempfile::TempDir,
        notes: ProcessNotes,
    }

    impl World {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let notes = ProcessNotes::in_local_dir(root.path()).unwrap();
            World { root, notes }
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
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                match fs::read_to_string(self.path(name)) {
                    Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                    _ => assert!(Instant::now() < deadline, "no {name}"),
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
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
        let world = World::new();
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
        let world = World::new();
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

    #[tokio::test]
    async fn a_kill_gives_time_to_clean_up() {
        let world = World::new();
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
        let world = World::new();
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
        let world = World::new();
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
        let world = World::new();
        let child = world.start("trap '' TERM; echo ready > ready; sleep 600", LONG);
        world.wait_for("ready").await;
        let note = fs::read_dir(world.root.path().join(layout::PROCESSES)).unwrap().next();
        let note = note.unwrap().unwrap().path();
        let (pid, leftovers) = (child.pid(), &world.notes.leftovers);
        until_gone(pid, note, Duration::ZERO, async { panic!("a fault") }, leftovers).await;
        assert_eq!((child.wait().await.signal, world.notes()), (Some(9), 0));
    }

    #[tokio::test]
    async fn a_failed_start_is_reported() {
        let world = World::new();
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
        assert_eq!(world.notes(), 0);
    }
}
