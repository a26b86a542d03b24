//! What the processes of a task use: CPU, memory and disks.
//!
//! The kernel does not count the network for single processes.

use serde::{Deserialize, Serialize};

use corona_process::procfs::{self, Process, tree};

/// What a task uses and has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// CPU time, in milliseconds.
    pub cpu_ms: u64,
    /// Memory at present, in bytes.
    pub memory_bytes: u64,
    /// The most memory that was seen, in bytes.
    pub peak_memory_bytes: u64,
    /// Bytes read from disks.
    pub read_bytes: u64,
    /// Bytes written to disks.
    pub written_bytes: u64,
}

impl TaskUsage {
    /// What the group of a process and its descendants have used, as far as it can still be seen: the
    /// time of a process that has ended counts if its parent has waited for it. It blocks.
    pub fn of_tree(all: &[Process], group: i32) -> TaskUsage {
        let mut usage = TaskUsage::default();
        let mut ticks: u64 = 0;
        for process in tree(all, group) {
            ticks = ticks.saturating_add(process.cpu_ticks);
            usage.memory_bytes = usage.memory_bytes.saturating_add(process.resident_bytes);
            let (read, written) = procfs::disk_bytes(process.pid).unwrap_or_default();
            usage.read_bytes = usage.read_bytes.saturating_add(read);
            usage.written_bytes = usage.written_bytes.saturating_add(written);
        }
        usage.cpu_ms = procfs::ticks_to_ms(ticks);
        usage.peak_memory_bytes = usage.memory_bytes;
        usage
    }

    /// This and what was known before: counts never fall.
    pub fn after(self, before: &TaskUsage) -> TaskUsage {
        TaskUsage {
            cpu_ms: self.cpu_ms.max(before.cpu_ms),
            memory_bytes: self.memory_bytes,
            peak_memory_bytes: self.peak_memory_bytes.max(before.peak_memory_bytes),
            read_bytes: self.read_bytes.max(before.read_bytes),
            written_bytes: self.written_bytes.max(before.written_bytes),
        }
    }

    /// The part since an earlier look: memory is not of a time.
    pub fn since(self, base: &TaskUsage) -> TaskUsage {
        TaskUsage {
            cpu_ms: self.cpu_ms.saturating_sub(base.cpu_ms),
            read_bytes: self.read_bytes.saturating_sub(base.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(base.written_bytes),
            ..self
        }
    }

    /// Both together.
    pub fn and(self, other: &TaskUsage) -> TaskUsage {
        TaskUsage {
            cpu_ms: self.cpu_ms.saturating_add(other.cpu_ms),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            peak_memory_bytes: self.peak_memory_bytes.max(other.peak_memory_bytes),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_ms: u64, memory_bytes: u64, peak_memory_bytes: u64, read_bytes: u64) -> TaskUsage {
        TaskUsage { cpu_ms, memory_bytes, peak_memory_bytes, read_bytes, written_bytes: 1 }
    }

    #[test]
    fn use_grows_and_memory_changes() {
        let (before, now) = (usage(10, 5, 9, 4), usage(7, 3, 3, 6));
        assert_eq!(now.after(&before), usage(10, 3, 9, 6));
        assert_eq!(now.since(&before), TaskUsage { written_bytes: 0, ..usage(0, 3, 3, 2) });
        assert_eq!(now.and(&before), TaskUsage { written_bytes: 2, ..usage(17, 8, 9, 10) });
    }

    #[test]
    fn a_busy_process_is_seen() {
        let child = std::process::Command::new("bash").args(["-c", "while :; do :; done"]).spawn();
        let mut child = child.unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let seen = loop {
            // It is in the group of this process, so it is looked for by its parent.
            let mut all = Process::all();
            all.retain(|process| process.pid == pid);
            all.iter_mut().for_each(|process| process.group = pid);
            let usage = TaskUsage::of_tree(&all, pid);
            if usage.cpu_ms > 0 && usage.memory_bytes > 0 {
                break usage;
            }
            assert!(std::time::Instant::now() < deadline, "{usage:?}");
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen.peak_memory_bytes, seen.memory_bytes);
    }
}
