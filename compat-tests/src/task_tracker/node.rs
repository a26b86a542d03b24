//! The built program as a task tracker, in a directory of its own, and its leftovers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use corona::process::procfs::{Process, Procfs};
use corona::task_tracker::layout;

use super::{PATIENCE, PAUSE, until};
use crate::corona_program;
use crate::daemons::{start_daemon, tell_end};

/// The variable by which the processes of tasks are found.
const NOTE: &str = "CORONA_PROCESS_NOTE";

/// Where a task tracker lives: a directory for all its files, and the peers that it reports to.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
    settings: Vec<(String, String)>,
    /// The size of each local directory, if they are disks of their own.
    disk_bytes: Option<u64>,
    /// The file of the program.
    program: PathBuf,
}

/// Mounts a file system in memory of `$1` bytes on each directory up to `--`, then becomes the program
/// behind that.
const ON_SMALL_DISKS: &str = r#"
size=$1
shift
while [ "$1" != -- ]; do
    mkdir -p "$1" && mount -t tmpfs -o "size=$size" tmpfs "$1" || exit 90
    shift
done
shift
exec "$@""#;

impl Home {
    /// A home in a directory that exists, for the nodes of this cluster manager and this proxy job
    /// tracker. All times are short, the machine has two CPUs.
    pub fn new(root: &Path, cluster_manager: SocketAddr, proxy: SocketAddr) -> Home {
        // The program compares paths of processes, which have no links in them.
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let shown = |name: &str| root.join(name).display().to_string();
        let settings = [
            ("cm.server.address", cluster_manager.to_string()),
            ("corona.proxy.job.tracker.thriftaddr", proxy.to_string()),
            ("cm.cpu.to.resource.partitioning", r#"{"1":{"MAP":1,"REDUCE":1}}"#.to_owned()),
            ("mapred.coronatasktracker.num.cpus", "2".to_owned()),
            ("corona.clustermanager.heartbeat.interval", "50".to_owned()),
            ("slave.host.name", "localhost".to_owned()),
            ("mapred.local.dir", format!("{},{}", shown("local1"), shown("local2"))),
            ("hadoop.log.dir", shown("logs")),
            ("hadoop.tmp.dir", shown("tmp")),
            ("mapred.system.dir", format!("file:{}", shown("system"))),
            ("mapred.task.tracker.http.address", "127.0.0.1:0".to_owned()),
            ("mapred.tasktracker.tasks.sleeptime.before.sigkill", "300".to_owned()),
            ("mapreduce.tasktracker.outofband.heartbeat", "true".to_owned()),
            ("corona.tt.build.version", super::job_tracker::BUILD.to_owned()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value)).to_vec();
        Home { root, settings, disk_bytes: None, program: corona_program().to_owned() }
    }

    /// With local directories that are disks of so many bytes, which no other process sees: see
    /// [`Node::inside`]. `None` where the system does not let this user mount anything.
    pub fn on_small_disks(mut self, bytes: u64) -> Option<Home> {
        self.disk_bytes = Some(bytes);
        may_mount().then_some(self)
    }

    /// With another file of the program.
    #[must_use]
    pub fn with_program(self, program: &Path) -> Home {
        Home { program: program.to_owned(), ..self }
    }

    /// With this setting.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Home {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Its local directories.
    pub fn local_dirs(&self) -> Vec<PathBuf> {
        let dirs = self.settings.iter().find(|(key, _)| key == "mapred.local.dir");
        dirs.iter().flat_map(|(_, dirs)| dirs.split(',')).map(PathBuf::from).collect()
    }

    /// Where the logs of an attempt are.
    pub fn logs_of(&self, attempt: &str) -> PathBuf {
        self.root.join("logs/userlogs").join(attempt)
    }

    /// Starts the program here and waits until it reports that it is ready.
    ///
    /// # Panics
    /// When it does not; with the end of its log.
    pub async fn start(&self) -> Node {
        let mut node = self.spawn();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(line) = node.lines.try_recv() {
                node.ready = line;
                return node;
            }
            let ended = node.child.try_wait().expect("a process that can be waited for");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "not ready ({ended:?}); the log:\n{}",
                node.log()
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Starts the program here.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(&self) -> Node {
        let mut command = match self.disk_bytes {
            None => Command::new(&self.program),
            Some(bytes) => {
                let mut command = in_own_mounts();
                command.args(["sh", "-c", ON_SMALL_DISKS, "sh", &bytes.to_string()]);
                command.args(self.local_dirs()).arg("--").arg(&self.program);
                command
            }
        };
        command.arg("task-tracker").current_dir(&self.root);
        let log = self.root.join("task-tracker.log");
        let settings = self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut child = start_daemon(command, settings, &log);
        let (sender, lines) = sync_channel(100);
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Later lines have no reader.
                    let _ = sender.try_send(line);
                }
            });
        }
        Node { child, lines, ready: String::new(), log, root: self.root.clone() }
    }

    /// Leftovers of tasks and jobs: processes, notes of processes, directories of jobs and files
    /// that wait for their deletion.
    pub fn left(&self) -> Vec<String> {
        let files = self.inside(&[layout::DISCARDED, "taskTracker/jobcache"]);
        self.left_running().into_iter().chain(files).collect()
    }

    /// The leftovers that concern processes.
    pub fn left_running(&self) -> Vec<String> {
        let processes = processes(&self.root).iter().map(described).collect::<Vec<_>>();
        processes.into_iter().chain(self.inside(&[layout::PROCESSES])).collect()
    }

    /// The contents of these directories of each local directory.
    fn inside(&self, directories: &[&str]) -> Vec<String> {
        let mut found = vec![];
        for dir in self.local_dirs() {
            for inside in directories {
                let entries = fs::read_dir(dir.join(inside)).into_iter().flatten().flatten();
                found.extend(entries.map(|entry| entry.path().display().to_string()));
            }
        }
        found
    }

    /// Waits until nothing is left.
    ///
    /// # Panics
    /// When something is, in the end.
    pub async fn nothing_left(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind:\n{}", left.join("\n"));
            tokio::time::sleep(PAUSE * 4).await;
        }
    }
}

/// The start of a command that sees mounts of its own.
pub fn in_own_mounts() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]);
    command
}

/// Whether the system lets this user mount file systems that no other process sees.
pub fn may_mount() -> bool {
    let mut try_it = in_own_mounts();
    try_it.args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    let tried = try_it.stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Processes of tasks of the task tracker that lives here.
fn processes(root: &Path) -> Vec<Process> {
    let mut all = Process::all();
    let notes = Procfs::system().variables(&all, NOTE);
    all.retain(|process| {
        notes.get(&process.pid).is_some_and(|note| Path::new(note).starts_with(root))
    });
    all
}

fn described(process: &Process) -> String {
    let words = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    format!("process {}: {words}", process.pid)
}

/// Whether a process runs.
pub fn runs(pid: i32) -> bool {
    Process::of(pid).is_some_and(|process| !process.is_zombie)
}

/// The program as a task tracker. When this is dropped it is ended, and all that its tasks have left.
#[derive(Debug)]
pub struct Node {
    child: Child,
    lines: Receiver<String>,
    ready: String,
    log: PathBuf,
    root: PathBuf,
}

impl Node {
    /// The line that it printed when it was ready.
    pub fn ready(&self) -> &str {
        &self.ready
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A path as this process sees it, for tests that do not see its disks.
    pub fn inside(&self, path: &Path) -> PathBuf {
        let seen = Path::new("/proc").join(self.pid().to_string()).join("root");
        seen.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to start again in place.
    pub fn ask_to_restart(&self) {
        signal("HUP", self.child.id());
    }

    /// How often it has started in its process and before, by its log.
    pub fn starts(&self) -> usize {
        self.log().matches("STARTUP_MSG").count()
    }

    /// Starts it again in place, and waits until it is ready.
    ///
    /// # Panics
    /// When it is not, in the end.
    pub async fn restart(&mut self) {
        while self.lines.try_recv().is_ok() {}
        self.ask_to_restart();
        let lines = &self.lines;
        self.ready = until("a task tracker that is ready again", || lines.try_recv().ok()).await;
    }

    /// Asks it to end.
    pub fn ask_to_end(&self) {
        signal("TERM", self.child.id());
    }

    /// Ends it at once, as a crash would.
    pub fn crash(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its exit status, once it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("the end of the task tracker", || child.try_wait().ok().flatten()).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.is_alive() {
            self.ask_to_end();
            let deadline = Instant::now() + Duration::from_secs(10);
            while self.is_alive() && Instant::now() < deadline {
                thread::sleep(PAUSE);
            }
        }
        self.crash();
        for process in processes(&self.root) {
            signal("KILL", process.pid.unsigned_abs());
        }
        if thread::panicking() {
            tell_end("the end of the task tracker's log", &self.log(), 40);
        }
    }
}

/// Sends a signal to a process; it may have ended.
pub fn signal(name: &str, pid: u32) {
    let script = format!("kill -s {name} \"$0\" 2>/dev/null");
    let _ = Command::new("sh").args(["-c", &script, &pid.to_string()]).status();
}

/// The same command, started with SIGINT as a terminal has it. A shell without job control has those that it
/// starts in the background ignore it, and so do all that they start, until they handle it.
pub fn interruptible(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal=INT").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => env.env(name, value),
            None => env.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        env.current_dir(directory);
    }
    env
}
