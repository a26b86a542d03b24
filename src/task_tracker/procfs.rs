//! Data of processes and of the machine, read from `/proc`.
//!
//! A process may end between two reads, so everything about one is optional.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;

use rustix::param::page_size;

use corona_process::proc_text::{Stat, number_after};

/// The most that is read of the environment of a process.
const MAX_ENVIRONMENT_BYTES: u64 = 1 << 20;

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
}

impl Process {
    /// What `/proc/<pid>/stat` says.
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
        })
    }

    /// A running process; `None` when there is none of this number.
    pub fn of(pid: i32) -> Option<Process> {
        Process::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// All processes that can be seen.
    pub fn all() -> Vec<Process> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| Process::of(name.parse().ok()?)).collect()
    }

    /// A variable as it was when the process started; `None` when it was not set or we may not look.
    pub fn variable(self, name: &str) -> Option<String> {
        let file = fs::File::open(format!("/proc/{}/environ", self.pid)).ok()?;
        let mut environment = Vec::new();
        file.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut environment).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    }
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

/// An id of the machine's current boot; empty when it cannot be read.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Memory and CPUs of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Physical memory, in bytes.
    pub memory_bytes: u64,
    /// What can be had of it, in bytes: free, and in use for what can be thrown away.
    pub available_bytes: u64,
    /// Room to swap to, in bytes.
    pub swap_bytes: u64,
    /// What is free of it.
    pub free_swap_bytes: u64,
    /// Processors; 0 when they cannot be counted.
    pub cpus: u32,
    /// Time that they were busy since the start of the machine, in ticks, all together.
    pub busy_ticks: u64,
    /// The same for busy and idle.
    pub total_ticks: u64,
}

impl Machine {
    /// The machine now; what cannot be read is 0.
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
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        self.busy_ticks.saturating_mul(1000) / ticks_per_second
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
        let (start_ticks, virtual_bytes, resident_bytes) = (1, 2, 3);
        Process { pid, parent, group, is_zombie: false, start_ticks, virtual_bytes, resident_bytes }
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
        };
        assert_eq!(Process::parse(stat), Some(expected));
        assert!(Process::parse(&stat.replace(") S", ") Z")).unwrap().is_zombie);
        assert_eq!(Process::parse("42 (a) S 7 40 39"), None);
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
        assert_eq!(this.variable(&name), Some(value));
        assert_eq!(this.variable("A_NAME_THAT_NOBODY_USES"), None);
        assert!(!boot_id().is_empty());
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
        assert_eq!(machine.busy_ms(), 60_000 / rustix::param::clock_ticks_per_second());
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
            let _ = (Process::parse(&text), Machine::parse(&text, &text));
        }
    }
}
