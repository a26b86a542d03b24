//! The machine's limits for this process, and the resources that the cluster manager's process uses.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use corona_process::procfs::Usage;

/// Files that a run has open besides its connections.
const OTHER_FILES: u64 = 64;

/// Makes sure that this process may have so many connections open. An error contains the most that
/// it may have.
pub(super) fn allow_connections(connections: usize) -> Result<(), u64> {
    let needed = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if now >= needed {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed.min(most)), maximum: limit.maximum };
    if needed > most || setrlimit(Resource::Nofile, raised).is_err() {
        return Err(most.saturating_sub(OTHER_FILES));
    }
    Ok(())
}

/// The resources that a process has used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Seconds on processors, all threads together, in the measured time.
    pub cpu_seconds: f64,
    /// Memory resident at the end of the measured time, in bytes.
    pub resident_bytes: u64,
    /// The most memory that was ever resident, in bytes.
    pub peak_resident_bytes: u64,
    /// Threads at the end of the measured time.
    pub threads: u64,
}

impl ProcessUse {
    /// The resources that a process has used since its start. None if it has ended, or on a system
    /// without `/proc`.
    pub(super) fn of(process_id: u32) -> Option<ProcessUse> {
        let used = Usage::of(process_id);
        Some(ProcessUse {
            cpu_seconds: used.cpu_seconds?,
            resident_bytes: used.resident_bytes?,
            peak_resident_bytes: used.peak_resident_bytes?,
            threads: used.threads?,
        })
    }

    /// The same with the processor time since `earlier`.
    pub(super) fn since(self, earlier: ProcessUse) -> ProcessUse {
        ProcessUse { cpu_seconds: self.cpu_seconds - earlier.cpu_seconds, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let used = ProcessUse::of(std::process::id()).expect("this process is there");
        assert!(used.resident_bytes > 1 << 20 && used.peak_resident_bytes >= used.resident_bytes);
        assert!(used.threads >= 1);
        assert_eq!(ProcessUse::of(u32::MAX), None);
    }

    #[test]
    fn more_connections_than_there_may_be_are_refused() {
        assert_eq!(allow_connections(1), Ok(()));
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let most = allow_connections(usize::MAX >> 1).expect_err("a limit");
            assert_eq!(allow_connections(most as usize), Ok(()));
        }
    }
}
