//! Data of processes and of the machine, read from `/proc`.
//!
//! A process may end between two reads, so everything about one is optional.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::time::{ClockId, clock_gettime};

use super::proc_text::{Stat, number_after};

/// The most that is read of the environment of a process.
const MAX_ENVIRONMENT_BYTES: usize = 1 << 20;
/// Pauses before further looks at environments that were empty.
const EMPTY_AGAIN: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(90)];

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// That of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Whether it has ended and was not waited for yet.
    pub is_zombie: bool,
    /// When it started, in ticks of the kernel after its own start. With the number it names one
    /// process.
    pub start_ticks: u64,
    /// Address space, in bytes.
    pub virtual_bytes: u64,
    /// Memory that it occupies, in bytes.
    pub resident_bytes: u64,
    /// CPU time in ticks, with that of descendants that have ended and were waited for.
    pub cpu_ticks: u64,
}

impl Process {
    /// The values of `/proc/<pid>/stat`.
    fn parse(stat: &str) -> Option<Process> {
        let (pid, _) = stat.split_once(' ')?;
        let stat = Stat::of(stat)?;
        Some(Process {
            pid: pid.parse().ok()?,
            is_zombie: matches!(stat.field(3)?, "Z" | "X" | "x"),
            parent: stat.field(4)?.parse().ok()?,
            group: stat.field(5)?.parse().ok()?,
            start_ticks: stat.number(22)?,
            virtual_bytes: stat.number(23)?,
            resident_bytes: stat.number(24)?.saturating_mul(page_size() as u64),
            cpu_ticks: (14..=17)
                .filter_map(|field| stat.number(field))
                .fold(0, u64::saturating_add),
        })
    }

    /// A running process; `None` if none has this number.
    pub fn of(pid: i32) -> Option<Process> {
        Procfs::system().process(pid)
    }

    /// All processes that can be seen.
    pub fn all() -> Vec<Process> {
        Procfs::system().all()
    }
}

/// Where the kernel shows its processes.
#[derive(Debug)]
pub struct Procfs {
    root: PathBuf,
    opened: AtomicU64,
}

impl Procfs {
    /// That of the machine.
    pub fn system() -> &'static Arc<Procfs> {
        static SYSTEM: LazyLock<Arc<Procfs>> = LazyLock::new(|| Arc::new(Procfs::at("/proc")));

        &SYSTEM
    }

    /// A directory of the same form.
    pub fn at(root: impl Into<PathBuf>) -> Procfs {
        Procfs { root: root.into(), opened: AtomicU64::new(0) }
    }

    /// How many files and directories of processes were opened until now.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// A running process; `None` if none has this number.
    pub fn process(&self, pid: i32) -> Option<Process> {
        Process::parse(&fs::read_to_string(self.open(&format!("{pid}/stat"))).ok()?)
    }

    /// All processes that can be seen.
    pub fn all(&self) -> Vec<Process> {
        self.numbers("").into_iter().filter_map(|pid| self.process(pid)).collect()
    }

    /// A process and its descendants, as far as their parents run. Other processes are not looked at, unless the
    /// kernel keeps no lists of children: then also those of its group are found.
    pub fn family(&self, pid: i32) -> Vec<Process> {
        let mut found: BTreeMap<i32, Process> = BTreeMap::new();
        let root = pid;
        let mut left = vec![root];
        while let Some(pid) = left.pop() {
            let Some(process) = self.process(pid).filter(|_| !found.contains_key(&pid)) else {
                continue;
            };
            found.insert(pid, process);
            match self.children(pid) {
                Some(children) => left.extend(children),
                None => return tree(&self.all(), root),
            }
        }
        found.into_values().collect()
    }

    /// The children that the threads of a process have started. `None` where the kernel does not list them.
    fn children(&self, pid: i32) -> Option<Vec<i32>> {
        let mut children = Vec::new();
        for thread in self.numbers(&format!("{pid}/task")) {
            match fs::read_to_string(self.open(&format!("{pid}/task/{thread}/children"))) {
                Ok(list) => children
                    .extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
                // Another thread may have ended.
                Err(_) if thread == pid && self.process(pid).is_some() => return None,
                Err(_) => {}
            }
        }
        Some(children)
    }

    /// The values of a variable when each of these processes started, by process number. Processes without it, or at which
    /// we may not look, are absent. A process that is about to become another program shows no environment for a moment;
    /// [`variables_at_last`](Self::variables_at_last) looks at it again.
    pub fn variables(&self, processes: &[Process], name: &str) -> HashMap<i32, String> {
        self.variables_and_empty(processes, name).0
    }

    /// The same, but empty environments are looked at again, a tenth of a second later at most. It blocks.
    pub fn variables_at_last(&self, processes: &[Process], name: &str) -> HashMap<i32, String> {
        let (mut found, mut empty) = self.variables_and_empty(processes, name);
        for pause in EMPTY_AGAIN {
            if empty.is_empty() {
                break;
            }
            std::thread::sleep(pause);
            let is_same = |before: &Process, now: &Process| before.start_ticks == now.start_ticks;
            let now = empty
                .iter()
                .filter_map(|before| self.process(before.pid).filter(|now| is_same(before, now)));
            let (more, still) = self.variables_and_empty(&now.collect::<Vec<_>>(), name);
            found.extend(more);
            empty = still;
        }
        found
    }

    /// The values of a variable, and the processes whose environments are empty.
    fn variables_and_empty(
        &self,
        processes: &[Process],
        name: &str,
    ) -> (HashMap<i32, String>, Vec<Process>) {
        let (mut found, mut empty) = (HashMap::new(), Vec::new());
        let mut buffer = vec![0; MAX_ENVIRONMENT_BYTES];
        // Zombies, and processes of the kernel, have no memory.
        for process in processes.iter().filter(|it| it.virtual_bytes > 0 && !it.is_zombie) {
            match self.environment(process.pid, &mut buffer) {
                Some([]) => empty.push(*process),
                Some(environment) => {
                    found.extend(value_in(environment, name).map(|value| (process.pid, value)));
                }
                None => {}
            }
        }
        (found, empty)
    }

    /// What a process has in its environment; `None` when it has ended or we may not look.
    fn environment<'a>(&self, pid: i32, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let mut file = fs::File::open(self.open(&format!("{pid}/environ"))).ok()?;
        // In one read: after a process has become another program, a second read of this file finds nothing.
        let length = file.read(buffer).ok()?;
        buffer.get(..length)
    }

    /// The entries of a directory that are numbers.
    fn numbers(&self, below: &str) -> Vec<i32> {
        let entries = fs::read_dir(self.open(below)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// The path of something that is about to be opened.
    fn open(&self, below: &str) -> PathBuf {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.root.join(below)
    }
}

/// The value of a variable in an environment.
fn value_in(environment: &[u8], name: &str) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The resource use of a process. Values that cannot be read are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident_bytes: Option<u64>,
    /// The most memory that was ever resident, in bytes.
    pub peak_resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_files: Option<u64>,
    /// Limit on open file descriptors.
    pub open_files_limit: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// User and system time of all threads together, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Start time in seconds since the epoch.
    pub started_seconds: Option<f64>,
}

impl Usage {
    /// Of this process.
    pub fn own() -> Usage {
        Usage::in_directory("self")
    }

    /// Of the process with this number.
    pub fn of(pid: u32) -> Usage {
        Usage::in_directory(&pid.to_string())
    }

    fn in_directory(name: &str) -> Usage {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{name}/{file}")).unwrap_or_default();
        let open_files = fs::read_dir(format!("/proc/{name}/fd")).ok();
        let mut usage = Usage::parse(&read("status"), &read("stat"), &read("limits"));
        usage.open_files = open_files.map(|files| files.count() as u64);
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        usage.started_seconds =
            usage.started_seconds.and_then(|since_boot| Some(booted_at(&uptime)? + since_boot));
        usage
    }

    /// `started_seconds` counts from the start of the machine.
    fn parse(status: &str, stat: &str, limits: &str) -> Usage {
        let bytes = |key| number_after(status, key).map(|kib| kib.saturating_mul(1024));
        let stat = Stat::of(stat);
        let seconds = |field| {
            let ticks = stat.as_ref()?.number(field)?;
            Some(ticks as f64 / clock_ticks_per_second().max(1) as f64)
        };
        Usage {
            resident_bytes: bytes("VmRSS:"),
            peak_resident_bytes: bytes("VmHWM:"),
            open_files: None,
            open_files_limit: number_after(limits, "Max open files"),
            threads: number_after(status, "Threads:"),
            cpu_seconds: seconds(14).zip(seconds(15)).map(|(user, system)| user + system),
            started_seconds: seconds(22),
        }
    }
}

/// Open files and their limits, of this process and of the machine. What cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// Of this process.
    pub open: u64,
    /// Its own limit.
    pub limit: u64,
    /// Of all processes.
    pub open_of_all: u64,
    /// The machine's limit.
    pub limit_of_all: u64,
}

impl Descriptors {
    /// The present values.
    pub fn now() -> Descriptors {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let open = fs::read_dir("/proc/self/fd").map_or(0, |open| open.count() as u64);
        Descriptors {
            open,
            ..Descriptors::parse(&read("/proc/self/limits"), &read("/proc/sys/fs/file-nr"))
        }
    }

    fn parse(limits: &str, of_all: &str) -> Descriptors {
        let mut numbers = of_all.split_whitespace().map(|number| number.parse().unwrap_or(0));
        Descriptors {
            open: 0,
            limit: number_after(limits, "Max open files").unwrap_or(0),
            open_of_all: numbers.next().unwrap_or(0),
            // Between them are free ones, of which new kernels have none.
            limit_of_all: numbers.nth(1).unwrap_or(0),
        }
    }
}

/// When the machine was started, in seconds since the epoch.
fn booted_at(uptime: &str) -> Option<f64> {
    let up = Duration::try_from_secs_f64(uptime.split(' ').next()?.parse().ok()?).ok()?;
    Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64() - up.as_secs_f64())
}

/// The present time as [`Process::start_ticks`] counts it.
pub fn now_ticks() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
    us_to_ticks(now.as_micros().try_into().unwrap_or(u64::MAX))
}

/// The processes of a group and all their descendants. Spec: mapreduce/04 §4.14.
pub fn tree(all: &[Process], group: i32) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = BTreeSet::new();
    let mut tree = Vec::new();
    let mut left: Vec<&Process> = all.iter().filter(|process| process.group == group).collect();
    while let Some(process) = left.pop() {
        if found.insert(process.pid) {
            tree.push(*process);
            left.extend(children.get(&process.pid).into_iter().flatten().copied());
        }
    }
    tree
}

/// The bytes that a process has read from disks and written to them, with those of descendants that
/// have ended and were waited for; `None` if it has ended or belongs to another user.
pub fn disk_bytes(pid: i32) -> Option<(u64, u64)> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    Some((number_after(&io, "read_bytes:")?, number_after(&io, "write_bytes:")?))
}

/// Ticks of CPU time in milliseconds.
pub fn ticks_to_ms(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / clock_ticks_per_second().max(1)
}

/// Microseconds in ticks.
pub(super) fn us_to_ticks(us: u64) -> u64 {
    us.saturating_mul(clock_ticks_per_second()) / 1_000_000
}

/// The highest frequency of the first processor that was found when it was first asked for, in kHz.
pub fn cpu_khz() -> Option<u64> {
    static KHZ: OnceLock<Option<u64>> = OnceLock::new();

    *KHZ.get_or_init(|| khz_of(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10^12")]
fn khz_of(cpuinfo: &str) -> Option<u64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    let mhz: f64 = line.split_once(':')?.1.trim().parse().ok()?;
    (mhz > 0.0 && mhz < 1e9).then_some((mhz * 1000.0) as u64)
}

/// What the machine's disks and networks have transferred since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from disks.
    pub disk_read_bytes: u64,
    /// Bytes written to disks.
    pub disk_written_bytes: u64,
    /// Bytes received by all network interfaces except the loopback.
    pub network_received_bytes: u64,
    /// Bytes sent by them.
    pub network_sent_bytes: u64,
}

impl Traffic {
    /// The present values; those that cannot be read are 0.
    pub fn now() -> Traffic {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        // Partitions have no entry of their own, nor do disks behind others count twice.
        let is_disk = |name: &str| Path::new("/sys/block").join(name).join("device").exists();
        Traffic::parse(&read("/proc/diskstats"), &read("/proc/net/dev"), &is_disk)
    }

    fn parse(disks: &str, network: &str, is_disk: &dyn Fn(&str) -> bool) -> Traffic {
        const SECTOR_BYTES: u64 = 512;

        let mut traffic = Traffic::default();
        let add = |sum: &mut u64, field: Option<&&str>, unit: u64| {
            let number: u64 = field.and_then(|field| field.parse().ok()).unwrap_or(0);
            *sum = sum.saturating_add(number.saturating_mul(unit));
        };
        for line in disks.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields.get(2).is_some_and(|name| !name.contains(['/', '.']) && is_disk(name)) {
                add(&mut traffic.disk_read_bytes, fields.get(5), SECTOR_BYTES);
                add(&mut traffic.disk_written_bytes, fields.get(9), SECTOR_BYTES);
            }
        }
        let interfaces = network.lines().filter_map(|line| line.split_once(':'));
        for (_, rest) in interfaces.filter(|(name, _)| name.trim() != "lo") {
            let fields: Vec<&str> = rest.split_whitespace().collect();
            add(&mut traffic.network_received_bytes, fields.first(), 1);
            add(&mut traffic.network_sent_bytes, fields.get(8), 1);
        }
        traffic
    }
}

/// An id of the machine's current boot; empty when it cannot be read.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Memory and CPUs of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Physical memory, in bytes.
    pub memory_bytes: u64,
    /// Available memory in bytes: free, or in use for data that can be discarded.
    pub available_bytes: u64,
    /// Room to swap to, in bytes.
    pub swap_bytes: u64,
    /// The free part of it.
    pub free_swap_bytes: u64,
    /// Processors; 0 when they cannot be counted.
    pub cpus: u32,
    /// Time that they were busy since the start of the machine, in ticks, all together.
    pub busy_ticks: u64,
    /// The same for busy and idle.
    pub total_ticks: u64,
}

impl Machine {
    /// The machine now; values that cannot be read are 0.
    pub fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
        Machine::parse(&read("/proc/meminfo"), &read("/proc/stat"))
    }

    /// Spec: mapreduce/04 §4.2.
    fn parse(meminfo: &str, stat: &str) -> Machine {
        let memory =
            |name: &str| -> u64 { number_after(meminfo, name).unwrap_or(0).saturating_mul(1024) };
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let all = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> =
            all.split_whitespace().take(8).map_while(|ticks| ticks.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        // User, nice and system count as busy in the original; waiting for a disk does not.
        let busy_ticks = at(0).saturating_add(at(1)).saturating_add(at(2));
        Machine {
            memory_bytes: memory("MemTotal:"),
            available_bytes: memory("MemFree:").saturating_add(memory("Inactive:")),
            swap_bytes: memory("SwapTotal:"),
            free_swap_bytes: memory("SwapFree:"),
            cpus: u32::try_from(stat.lines().filter(is_cpu).count()).unwrap_or(u32::MAX),
            busy_ticks,
            total_ticks: ticks.iter().fold(0, |sum, ticks| sum.saturating_add(*ticks)),
        }
    }

    /// For how long the CPUs were busy since the start of the machine, all together, in milliseconds.
    pub fn busy_ms(&self) -> u64 {
        ticks_to_ms(self.busy_ticks)
    }

    /// How busy the CPUs were since an earlier look, from 0 to 1; `None` when no time has passed.
    pub fn cpu_usage_since(&self, earlier: &Machine) -> Option<f64> {
        let total = self.total_ticks.checked_sub(earlier.total_ticks).filter(|total| *total > 0)?;
        let busy = self.busy_ticks.saturating_sub(earlier.busy_ticks);
        Some((busy as f64 / total as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn process(pid: i32, parent: i32, group: i32) -> Process {
        Process {
            pid,
            parent,
            group,
            is_zombie: false,
            start_ticks: 1,
            virtual_bytes: 2,
            resident_bytes: 3,
            cpu_ticks: 4,
        }
    }

    #[test]
    fn a_line_says_what_a_process_is() {
        let stat = "42 (a) S 7 40 39 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 1234 8192 3 18446744073709551615 1";
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 40,
            is_zombie: false,
            start_ticks: 1234,
            virtual_bytes: 8192,
            resident_bytes: 3 * page_size() as u64,
            cpu_ticks: 5 + 6 + 7 + 8,
        };
        assert_eq!(Process::parse(stat), Some(expected));
        assert!(Process::parse(&stat.replace(") S", ") Z")).unwrap().is_zombie);
        assert_eq!(Process::parse("42 (a) S 7 40 39"), None);
    }

    #[test]
    fn use_is_read_from_three_files() {
        let status = "VmHWM:\t 30 kB\nVmRSS:\t20 kB\nThreads:\t4\n";
        let stat = "42 (a) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 12345 20";
        let limits = "Max open files            1024                 4096      files\n";
        let ticks = clock_ticks_per_second() as f64;
        let expected = Usage {
            resident_bytes: Some(20 << 10),
            peak_resident_bytes: Some(30 << 10),
            open_files: None,
            open_files_limit: Some(1024),
            threads: Some(4),
            cpu_seconds: Some(200.0 / ticks),
            started_seconds: Some(12345.0 / ticks),
        };
        assert_eq!(Usage::parse(status, stat, limits), expected);
        assert_eq!(Usage::parse("", "42 (a) S 1", ""), Usage::default());
        assert_eq!(Usage::of(u32::MAX), Usage::default());
    }

    #[test]
    fn this_process_uses_something() {
        let own = Usage::own();
        assert!(own.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(own.peak_resident_bytes >= own.resident_bytes);
        assert!(own.open_files.is_some_and(|files| files > 2) && own.open_files_limit.is_some());
        assert!(own.threads.is_some_and(|threads| threads > 0) && own.cpu_seconds.is_some());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - own.started_seconds.unwrap();
        assert!((-5.0..100_000.0).contains(&age), "{age}");
        assert!(Usage::of(std::process::id()).resident_bytes.is_some());
    }

    #[test]
    fn open_files_have_limits() {
        let limits = "Max open files            1024                 4096      files\n";
        let expected = Descriptors { open: 0, limit: 1024, open_of_all: 1856, limit_of_all: 9000 };
        assert_eq!(Descriptors::parse(limits, "1856\t0\t9000\n"), expected);
        assert_eq!(Descriptors::parse("", "x"), Descriptors::default());
        let now = Descriptors::now();
        assert!(0 < now.open && now.open <= now.limit, "{now:?}");
        assert!(0 < now.open_of_all && now.open_of_all < now.limit_of_all, "{now:?}");
    }

    #[test]
    fn this_process_is_there() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let this = Process::of(pid).unwrap();
        assert!(!this.is_zombie && this.resident_bytes > 0 && this.start_ticks > 0);
        assert!(Process::all().iter().any(|process| process.pid == pid));
        assert!(tree(&Process::all(), this.group).iter().any(|process| process.pid == pid));
        let (name, value) = std::env::vars()
            .find(|(name, value)| !name.contains('=') && !value.is_empty())
            .unwrap();
        assert_eq!(Procfs::system().variables(&[this], &name), HashMap::from([(pid, value)]));
        assert!(Procfs::system().variables(&[this], "A_NAME_THAT_NOBODY_USES").is_empty());
        assert!(!boot_id().is_empty());
    }

    /// A directory like `/proc` with one process, and the path of its environment.
    fn procfs_of_one() -> (tempfile::TempDir, Procfs, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("7")).unwrap();
        let stat = "7 (a) S 1 7 39 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 2000 8192 3 1";
        fs::write(root.path().join("7/stat"), stat).unwrap();
        let (procfs, environ) = (Procfs::at(root.path()), root.path().join("7/environ"));
        (root, procfs, environ)
    }

    #[test]
    fn a_process_between_two_programs_is_looked_at_again() {
        let (root, procfs, environ) = procfs_of_one();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &environ, fifo, 0o600.into(), 0).unwrap();
        let next = root.path().join("next");
        fs::write(&next, "A=b\0NOTE=one\0").unwrap();
        let programs = std::thread::spawn(move || {
            // Both ends are open now: the first look finds nothing when this one is closed.
            let empty = fs::OpenOptions::new().write(true).open(&environ).unwrap();
            fs::rename(next, environ).unwrap();
            drop(empty);
        });
        let found = procfs.variables_at_last(&procfs.all(), "NOTE");
        programs.join().unwrap();
        assert_eq!(found, HashMap::from([(7, "one".to_owned())]));
    }

    #[test]
    fn a_process_without_an_environment_carries_nothing() {
        let (_root, procfs, environ) = procfs_of_one();
        fs::write(environ, "").unwrap();
        assert!(procfs.variables_at_last(&procfs.all(), "NOTE").is_empty());
        // The list and the process; its environment three times, and the process again before the second and third.
        assert_eq!(procfs.opened(), 2 + 3 + 2);
    }

    #[test]
    fn a_tree_holds_group_and_descendants_once() {
        let all = [
            process(1, 0, 1),
            process(10, 1, 10),
            process(11, 10, 10),
            process(12, 11, 12),
            process(13, 1, 10),
            process(20, 1, 20),
            // A loop cannot be, and does no harm.
            process(30, 31, 10),
            process(31, 30, 31),
        ];
        let mut pids: Vec<i32> = tree(&all, 10).iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [10, 11, 12, 13, 30, 31]);
        assert_eq!(tree(&all, 99), []);
    }

    /// A directory like `/proc` with these processes: number and parent.
    fn procfs(processes: &[(i32, i32)], with_children: bool) -> (tempfile::TempDir, Procfs) {
        let root = tempfile::tempdir().unwrap();
        for (pid, parent) in processes {
            let main = root.path().join(format!("{pid}/task/{pid}"));
            fs::create_dir_all(&main).unwrap();
            let stat = format!(
                "{pid} (a) S {parent} {pid} 39 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 1234 8192 3 1"
            );
            fs::write(root.path().join(format!("{pid}/stat")), stat).unwrap();
            let children = processes.iter().filter(|(_, of)| of == pid);
            let children: String = children.map(|(child, _)| format!("{child} ")).collect();
            if with_children {
                fs::write(main.join("children"), children).unwrap();
            }
        }
        let procfs = Procfs::at(root.path());
        (root, procfs)
    }

    #[test]
    fn a_family_is_found_without_a_look_at_other_processes() {
        let mut processes = vec![(10, 1), (11, 10), (12, 11), (13, 10), (20, 1)];
        processes.extend((1000..1250).map(|pid| (pid, 1)));
        for (with_children, most) in [(true, 3 * 4), (false, 300)] {
            let (_root, procfs) = procfs(&processes, with_children);
            let pids: BTreeSet<i32> = procfs.family(10).iter().map(|process| process.pid).collect();
            assert_eq!(pids, [10, 11, 12, 13].into());
            assert!(procfs.opened() <= most, "{}", procfs.opened());
            assert_eq!(procfs.family(99), []);
        }
    }

    #[test]
    fn the_children_of_this_process_are_of_its_family() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let family = Procfs::system().family(own);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(family.iter().any(|process| process.pid == pid));
    }

    #[test]
    fn traffic_of_disks_and_networks() {
        let disks = "   8       0 sda 1 2 30 4 5 6 70 8 9 10 11\n   8       1 sda1 1 2 30 4 5 6 70 8\n\
               8      16 sdb 1 2 1 4 5 6 x 8\n   7 0 loop0 1 2 3 4 5 6 7\n   8 32 ../sdc 1 2 3\n   8\n";
        let network = "Inter-|   Receive\n face |bytes    packets\n    lo: 7 1 0 0 0 0 0 0 7 1\n\
              eth0: 100 1 0 0 0 0 0 0 40 1\n  eth1:5 1 0 0 0 0 0 0 2 1\n";
        let is_disk = |name: &str| name.len() == 3;
        let traffic = Traffic::parse(disks, network, &is_disk);
        let expected = Traffic {
            disk_read_bytes: 31 * 512,
            disk_written_bytes: 70 * 512,
            network_received_bytes: 105,
            network_sent_bytes: 42,
        };
        assert_eq!(traffic, expected);
    }

    #[test]
    fn the_frequency_is_that_of_the_first_processor() {
        assert_eq!(
            khz_of("processor\t: 0\ncpu MHz\t\t: 2499.998\ncpu MHz : 1.0\n"),
            Some(2_499_998)
        );
        for text in ["", "cpu MHz\t: x\n", "cpu MHz\n", "cpu MHz: -3\n", "cpu MHz: 1e300\n"] {
            assert_eq!(khz_of(text), None, "{text:?}");
        }
    }

    #[test]
    fn bytes_that_a_process_reads_and_writes() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(disk_bytes(own).is_some());
        assert_eq!(disk_bytes(i32::MAX), None);
    }

    #[test]
    fn figures_of_the_machine() {
        let meminfo = "MemTotal:  1000 kB\nMemFree: 100 kB\nInactive: 50 kB\nInactive(anon): 7 kB\n\
            SwapCached: 1 kB\nSwapTotal: 30 kB\nSwapFree: 20 kB\n";
        let stat = "cpu  10 20 30 400 5 6 7 8 9 10\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n";
        let machine = Machine::parse(meminfo, stat);
        let expected = Machine {
            memory_bytes: 1000 << 10,
            available_bytes: 150 << 10,
            swap_bytes: 30 << 10,
            free_swap_bytes: 20 << 10,
            cpus: 2,
            busy_ticks: 60,
            total_ticks: 486,
        };
        assert_eq!(machine, expected);
        assert_eq!(machine.busy_ms(), 60_000 / clock_ticks_per_second());
        let later = Machine { busy_ticks: 85, total_ticks: 536, ..expected };
        assert_eq!(later.cpu_usage_since(&machine), Some(0.5));
        assert_eq!(machine.cpu_usage_since(&machine), None);
        assert_eq!(machine.cpu_usage_since(&later), None);
        let now = Machine::now();
        assert!(now.memory_bytes > now.available_bytes && now.cpus > 0 && now.total_ticks > 0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9() a-zA-Z:\n-]{0,120}") {
            let _ = (Process::parse(&text), Machine::parse(&text, &text), booted_at(&text));
            let _ = Usage::parse(&text, &text, &text);
            let _ = (khz_of(&text), Traffic::parse(&text, &text, &|_| true));
            let _ = Descriptors::parse(&text, &text);
        }
    }
}
