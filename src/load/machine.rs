//! What the machine allows this process, and what the process of the cluster manager takes of it.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use corona_process::proc_text::{Stat, number_after};

/// Files that a run has open besides its connections.
const OTHER_FILES: u64 = 64;

/// Sees to it that this process may have so many connections open. An error gives the number that
/// it may have at most.
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

/// What a process has used of its machine.
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
    /// What a process has used since its start. None when it is not there, or on a system without
    /// `/proc`.
    pub(super) fn of(process_id: u32) -> Option<ProcessUse> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{process_id}/{file}")).ok();
        let (status, stat) = (read("status")?, read("stat")?);
        let kib = |key| number_after(&status, key).map(|kib| kib * 1024);
        Some(ProcessUse {
            cpu_seconds: cpu_time(&stat)?.as_secs_f64(),
            resident_bytes: kib("VmRSS:")?,
            peak_resident_bytes: kib("VmHWM:")?,
            threads: number_after(&status, "Threads:")?,
        })
    }

    /// The same with the processor time since `earlier`.
    pub(super) fn since(self, earlier: ProcessUse) -> ProcessUse {
        ProcessUse { cpu_seconds: self.cpu_seconds - earlier.cpu_seconds, ..self }
    }
}

/// From `/proc/PID/stat`. The kernel counts in hundredths of a second.
fn cpu_time(stat: &str) -> Option<Duration> {
    let stat = Stat::of(stat)?;
    Some(Duration::from_millis((stat.number(14)? + stat.number(15)?) * 10))
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
    fn processor_time_is_that_of_user_and_kernel() {
        let stat = "7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 250 75 0 0 20 0 5 0 100 1 1";
        assert_eq!(cpu_time(stat), Some(Duration::from_millis(3_250)));
        assert_eq!(cpu_time("7 (a) S 1"), None);
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
