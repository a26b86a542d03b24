//! Control groups of tasks, cgroups(7) version 2: limits of memory and CPU, and what was used.
//!
//! Each process of a task gets a group of its own below a directory that this task tracker alone uses.
//! Whatever of the kernel's controllers is not there is left out, and reported to the caller once. It knows
//! neither jobs nor attempts. Spec: mapreduce/04 §4.14 for the keys and the word in diagnostics; the
//! original uses version 1.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use thiserror::Error;

use super::usage::TaskUsage;
use crate::local_dirs::any_number;
use corona_config::CgroupSettings;
use corona_process::cgroups::{Groups, number_after, number_in};

/// The group of the task tracker's own processes, where the kernel wants none beside groups of tasks.
const SERVICE: &str = "corona-service";
/// The beginning of the name of the directory with the groups of tasks.
const TASKS: &str = "corona-tasks-";
/// The period of `cpu.max`, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// How often the deletion of a group is tried: its last processes may not be gone for the kernel.
const REMOVALS: u32 = 50;
/// Pause between two such tries.
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// The groups of tasks of one task tracker.
#[derive(Debug)]
pub struct Cgroups {
    dir: PathBuf,
    next: AtomicU64,
    has_memory: bool,
    has_cpu: bool,
    cpu_percent: u32,
}

/// The limits of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory, in bytes; `None` for no limit.
    pub memory_bytes: Option<u64>,
    /// The CPUs that its job names, else its slots.
    pub cpus: u32,
}

/// Why tasks have no groups.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// No version 2 is mounted.
    #[error("cgroup version 2 is not mounted; corona.tt.cgroup.root may name its directory")]
    NotMounted,
    /// A directory or file cannot be used.
    #[error("{}: {error}; the user of the task tracker needs a delegated cgroup (systemd: Delegate=yes)", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Cgroups {
    /// Prepares groups for the tasks of the task tracker with this local directory. Groups of its
    /// earlier runs are deleted, with their processes, except those with one of the names of `adopted`. It blocks.
    ///
    /// Returns the wanted controllers that the kernel does not offer here too.
    pub fn open(
        settings: &CgroupSettings,
        local_dir: &Path,
        adopted: &HashSet<OsString>,
    ) -> Result<(Cgroups, Vec<&'static str>), CgroupError> {
        let root = match &settings.root {
            Some(root) => root.clone(),
            None => own_group().ok_or(CgroupError::NotMounted)?,
        };
        let offered = read(&root.join("cgroup.controllers"))?;
        let offers = |name: &str| offered.split_whitespace().any(|offered| offered == name);
        let wanted = [(settings.memory, "memory"), (settings.cpu, "cpu")];
        let wanted = wanted.into_iter().filter_map(|(is_wanted, name)| is_wanted.then_some(name));
        let (usable, missing): (Vec<_>, Vec<_>) = wanted.partition(|name| offers(name));
        // What tasks read and write is counted where it can be.
        let all: Vec<&str> = usable.iter().copied().chain(offers("io").then_some("io")).collect();
        let mut hasher = DefaultHasher::new();
        local_dir.hash(&mut hasher);
        let dir = root.join(format!("{TASKS}{:016x}", hasher.finish()));
        enable_below_own(&root, &all)?;
        make_dir(&dir)?;
        enable(&dir, &all)?;
        remove_all_in(&dir, adopted);
        let has = |name| usable.contains(&name);
        let (has_memory, has_cpu) = (has("memory"), has("cpu"));
        // A former program in this process may have made groups too.
        let (next, cpu_percent) = (AtomicU64::new(any_number()), settings.cpu_percent);
        Ok((Cgroups { dir, next, has_memory, has_cpu, cpu_percent }, missing))
    }

    /// Whether the kernel limits the memory of tasks.
    pub fn limits_memory(&self) -> bool {
        self.has_memory
    }

    /// Makes a group for a process of a task. It blocks.
    pub fn make(&self, name: &str, limits: CgroupLimits) -> Result<TaskGroup, CgroupError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{name}.{}.{number}", std::process::id()));
        make_dir(&path)?;
        let group = TaskGroup::of_dir(path);
        if let Some(bytes) = limits.memory_bytes.filter(|_| self.has_memory) {
            group.set("memory.max", &bytes.to_string())?;
            // Not every kernel has these. Without them a task may swap, or lose one process of several.
            let _ = group.set("memory.swap.max", "0");
            let _ = group.set("memory.oom.group", "1");
        }
        if self.has_cpu {
            let cpus = u64::from(limits.cpus.max(1));
            group.set("cpu.weight", &cpus.saturating_mul(100).min(10_000).to_string())?;
            if self.cpu_percent > 0 {
                let quota_us = (CPU_PERIOD_US / 100)
                    .saturating_mul(u64::from(self.cpu_percent))
                    .saturating_mul(cpus);
                group.set("cpu.max", &format!("{quota_us} {CPU_PERIOD_US}"))?;
            }
        }
        Ok(group)
    }
}

/// The group of a process of a task, and of all processes that it starts.
#[derive(Debug)]
pub struct TaskGroup {
    path: PathBuf,
    last: Mutex<Last>,
}

/// What is known of a group that is deleted.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    usage: TaskUsage,
    is_out_of_memory: bool,
}

impl TaskGroup {
    /// The group whose directory this is.
    pub(super) fn of_dir(path: PathBuf) -> TaskGroup {
        TaskGroup { path, last: Mutex::default() }
    }

    /// Its directory.
    pub(super) fn dir(&self) -> &Path {
        &self.path
    }

    /// The file to which a process writes `0` to belong to the group.
    pub(super) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// What its processes have used until now, or until its deletion. It blocks.
    pub fn usage(&self) -> TaskUsage {
        self.look().usage
    }

    /// Whether the kernel has killed a process of it because of its memory limit. It blocks.
    pub fn is_out_of_memory(&self) -> bool {
        self.look().is_out_of_memory
    }

    fn look(&self) -> Last {
        let file = |name: &str| fs::read_to_string(self.path.join(name)).ok();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cpu) = file("cpu.stat") {
            let number = |name: &str| number_in(&self.path.join(name));
            let memory_bytes = number("memory.current").unwrap_or(0);
            let (read_bytes, written_bytes) = io_bytes(&file("io.stat").unwrap_or_default());
            let usage = &mut last.usage;
            *usage = TaskUsage {
                cpu_ms: number_after(&cpu, "usage_usec ").unwrap_or(0) / 1000,
                memory_bytes,
                peak_memory_bytes: number("memory.peak")
                    .unwrap_or(memory_bytes)
                    .max(usage.peak_memory_bytes),
                read_bytes,
                written_bytes,
            };
            let events = file("memory.events").unwrap_or_default();
            last.is_out_of_memory |=
                number_after(&events, "oom_kill ").is_some_and(|kills| kills > 0);
        }
        *last
    }

    /// Kills what is left in it, and deletes it. It blocks.
    pub(super) fn remove(&self) {
        self.look();
        // Older kernels lack the file; processes with the name of a note have ended already.
        let _ = self.set("cgroup.kill", "1");
        let removed = (0..REMOVALS).any(|_| match fs::remove_dir(&self.path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(_) => {
                sleep(REMOVAL_PAUSE);
                false
            }
        });
        if !removed {
            tracing::warn!(path = %self.path.display(), "cannot delete the cgroup of a task");
        }
    }

    fn set(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        write(&self.path.join(file), value)
    }
}

/// The directory of the group that this process is in. A former program in this process may have moved it into one for
/// its own processes: then it is the one above.
fn own_group() -> Option<PathBuf> {
    let own = Groups::of_process().unified()?;
    Some(if own.ends_with(SERVICE) { own.parent()?.to_owned() } else { own })
}

/// Lets groups below the own one have these controllers. Processes beside them are not allowed except
/// in the root, so those of this group get one of their own.
fn enable_below_own(root: &Path, controllers: &[&str]) -> Result<(), CgroupError> {
    if enable(root, controllers).is_ok() {
        return Ok(());
    }
    let service = root.join(SERVICE);
    make_dir(&service)?;
    for pid in read(&root.join("cgroup.procs"))?.lines() {
        // One that has ended meanwhile needs no group.
        let _ = write(&service.join("cgroup.procs"), pid);
    }
    enable(root, controllers)
}

fn enable(dir: &Path, controllers: &[&str]) -> Result<(), CgroupError> {
    for name in controllers {
        write(&dir.join("cgroup.subtree_control"), &format!("+{name}"))?;
    }
    Ok(())
}

/// Ends and deletes the groups of earlier runs.
fn remove_all_in(dir: &Path, adopted: &HashSet<OsString>) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| !adopted.contains(&entry.file_name()));
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        TaskGroup::of_dir(entry.path()).remove();
    }
}

fn make_dir(path: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(at(path)(error)),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(at(path))
}

/// The kernel's files exist: none is made.
fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes())).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    let path = path.to_owned();
    move |error| CgroupError::Io { path, error }
}

/// The bytes read and written in all lines of `io.stat`.
fn io_bytes(text: &str) -> (u64, u64) {
    let sum = |name: &str| {
        let words = text.split_whitespace();
        let numbers = words.filter_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
        numbers.fold(0, u64::saturating_add)
    };
    (sum("rbytes="), sum("wbytes="))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of the kernel that are written, as the root of groups.
    fn root(controllers: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(root.path().join("cgroup.procs"), "").unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "").unwrap();
        root
    }

    fn settings(root: &Path) -> CgroupSettings {
        CgroupSettings { memory: true, cpu: true, root: Some(root.to_owned()), cpu_percent: 150 }
    }

    #[test]
    fn limits_are_written_where_the_kernel_takes_them() {
        let dir = tempfile::tempdir().unwrap();
        let groups = |has_memory, has_cpu| Cgroups {
            // `make` makes the group's directory, whose files are the kernel's.
            dir: dir.path().to_owned(),
            next: AtomicU64::new(0),
            has_memory,
            has_cpu,
            cpu_percent: 150,
        };
        let limits = CgroupLimits { memory_bytes: Some(1 << 30), cpus: 2 };
        let error = groups(true, false).make("a", limits).unwrap_err().to_string();
        assert!(error.contains("memory.max: ") && error.contains("Delegate=yes"), "{error}");
        let none = groups(false, false).make("b", limits).unwrap();
        assert_eq!(fs::read_dir(&none.path).unwrap().count(), 0);
        none.remove();
        assert!(!none.path.exists());
    }

    #[test]
    fn a_task_gets_the_memory_and_the_part_of_the_cpus_that_it_was_granted() {
        let files = ["memory.max", "memory.swap.max", "memory.oom.group", "cpu.weight", "cpu.max"];
        let gib = 1 << 30;
        for (memory_bytes, cpus, has_cpu, expected) in [
            (Some(gib), 1, true, ["1073741824", "0", "1", "100", "150000 100000"]),
            (Some(gib), 4, true, ["1073741824", "0", "1", "400", "600000 100000"]),
            (Some(gib), 4, false, ["1073741824", "0", "1", "", ""]),
            // Without a limit of memory, and with none of CPUs: one at least.
            (None, 0, true, ["", "", "", "100", "150000 100000"]),
            (None, 1_000, true, ["", "", "", "10000", "150000000 100000"]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let (next, has_memory) = (AtomicU64::new(0), true);
            let dir_of_groups = dir.path().to_owned();
            let groups =
                Cgroups { dir: dir_of_groups, next, has_memory, has_cpu, cpu_percent: 150 };
            // The kernel makes the files of a new group.
            let group = dir.path().join(format!("a.{}.0", std::process::id()));
            fs::create_dir(&group).unwrap();
            for name in files {
                fs::write(group.join(name), "").unwrap();
            }
            groups.make("a", CgroupLimits { memory_bytes, cpus }).unwrap();
            let written = files.map(|name| fs::read_to_string(group.join(name)).unwrap());
            assert_eq!(written, expected, "{memory_bytes:?} {cpus}");
        }
    }

    #[test]
    fn missing_files_of_the_kernel_are_named() {
        let root = root("cpuset io pids\n");
        let error =
            Cgroups::open(&settings(root.path()), Path::new("/l"), &HashSet::new()).unwrap_err();
        // The directory of tasks has none of the kernel's files here.
        assert!(error.to_string().contains("corona-tasks-"), "{error}");
        let control = fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(control, "+io");
        let empty = tempfile::tempdir().unwrap();
        let error =
            Cgroups::open(&settings(empty.path()), Path::new("/l"), &HashSet::new()).unwrap_err();
        assert!(error.to_string().contains("cgroup.controllers: "), "{error}");
    }

    #[test]
    fn the_use_of_a_group_is_read_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let group = TaskGroup { path: dir.path().join("g"), last: Mutex::default() };
        assert_eq!(group.usage(), TaskUsage::default());
        fs::create_dir(&group.path).unwrap();
        let set = |name: &str, text: &str| fs::write(group.path.join(name), text).unwrap();
        set("cpu.stat", "usage_usec 2500000\nuser_usec 1\n");
        set("memory.current", "4096\n");
        set("io.stat", "8:0 rbytes=10 wbytes=5 rios=1\n8:16 rbytes=1 wbytes=x\n");
        set("memory.events", "low 0\noom 1\noom_kill 0\n");
        let expected = TaskUsage {
            cpu_ms: 2500,
            memory_bytes: 4096,
            peak_memory_bytes: 4096,
            read_bytes: 11,
            written_bytes: 5,
        };
        assert_eq!((group.usage(), group.is_out_of_memory()), (expected, false));
        set("memory.peak", "8192\n");
        set("memory.events", "low 0\noom 1\noom_kill 1\noom_group_kill 1\n");
        fs::remove_file(group.path.join("memory.current")).unwrap();
        assert_eq!(group.usage().peak_memory_bytes, 8192);
        fs::remove_dir_all(&group.path).unwrap();
        assert_eq!((group.usage().cpu_ms, group.is_out_of_memory()), (2500, true));
    }

    #[test]
    fn a_real_group_counts_what_its_processes_use() {
        let Some(own) = own_group() else { return };
        let root = own.join(format!("corona-test-{}", std::process::id()));
        // Not every user may make groups; the node's tests report where that is so.
        if fs::create_dir(&root).is_err() {
            return;
        }
        let settings = CgroupSettings { memory: false, cpu: false, ..settings(&root) };
        let (groups, missing) = Cgroups::open(&settings, Path::new("/l"), &HashSet::new()).unwrap();
        assert!(missing.is_empty());
        let limits = CgroupLimits { memory_bytes: None, cpus: 1 };
        let group = groups.make("task", limits).unwrap();
        let line = "echo 0 > \"$GROUP\"; for i in $(seq 20000); do :; done; sleep 600 > /dev/null 2>&1 & echo $!";
        let task = std::process::Command::new("bash")
            .args(["-c", line])
            .env("GROUP", group.procs())
            .output();
        let output = String::from_utf8(task.unwrap().stdout).unwrap();
        let procs = fs::read_to_string(group.procs()).unwrap();
        assert_eq!(procs, output, "the one that it left behind");
        assert!(group.usage().cpu_ms > 0);
        group.remove();
        assert!(!group.path.exists() && group.usage().cpu_ms > 0);
        // What an earlier run has left goes at the next start, unless that goes on with it.
        let left = groups.make("left", limits).unwrap();
        let adopted = HashSet::from([left.path.file_name().unwrap().to_owned()]);
        drop(Cgroups::open(&settings, Path::new("/l"), &adopted).unwrap());
        assert!(left.path.exists());
        drop(Cgroups::open(&settings, Path::new("/l"), &HashSet::new()).unwrap());
        assert!(!left.path.exists());
        fs::remove_dir(&groups.dir).unwrap();
        fs::remove_dir(&root).unwrap();
    }
}
