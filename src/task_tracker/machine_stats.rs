//! The machine's data in a node's heartbeat: CPUs, memory and disks, as far as its control groups allow their use.
//!
//! Spec: mapreduce/04 §4.2. It blocks.

use super::local_dirs::{LocalDirs, Space, space};
use corona_config::{MemorySettings, TaskTrackerSettings};
use corona_process::procfs::Machine;

/// Bytes of a MiB and of a GiB, the units of heartbeats.
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The network capacity that every node reports.
const NETWORK_MBPS: i32 = 100;

/// The resources that a node has, or has free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineStats {
    /// Processors. Among free resources the number that is in use, as in the original.
    pub num_cpus: i16,
    /// Always 100.
    pub network_mbps: i32,
    /// Memory, in MiB.
    pub memory_mb: i32,
    /// Room on disks, in GiB.
    pub disk_gb: i32,
}

/// Measures the machine repeatedly.
#[derive(Debug, Default)]
pub struct Gauge {
    last: Option<Machine>,
    /// The CPU usage at the last successful measurement.
    usage: f64,
}

impl Gauge {
    /// The present total and free resources. Of CPUs the second is the number *used*, as in the
    /// original.
    pub fn read(
        &mut self,
        settings: &TaskTrackerSettings,
        dirs: &LocalDirs,
    ) -> (MachineStats, MachineStats) {
        let logs = settings.logs.task_log_dir.as_deref().and_then(|dir| space(dir).ok());
        self.of(settings.num_cpus, machine(&settings.memory), &dirs.spaces(), logs)
    }

    fn of(
        &mut self,
        num_cpus: Option<i16>,
        machine: Machine,
        disks: &[Space],
        logs: Option<Space>,
    ) -> (MachineStats, MachineStats) {
        if let Some(last) = &self.last
            && let Some(usage) = machine.cpu_usage_since(last)
        {
            self.usage = usage;
        }
        self.last = Some(machine);
        let num_cpus = cpus(num_cpus, &machine);
        let largest = disks.iter().map(|disk| disk.total_bytes).max().unwrap_or(0);
        let free = disks.iter().map(|disk| disk.free_bytes).max().unwrap_or(0);
        let free = logs.map_or(free, |logs| free.min(logs.free_bytes));
        let in_units = |bytes: u64, unit: u64| i32::try_from(bytes / unit).unwrap_or(i32::MAX);
        let total = MachineStats {
            num_cpus,
            network_mbps: NETWORK_MBPS,
            memory_mb: in_units(machine.memory_bytes, MIB),
            disk_gb: in_units(largest, GIB),
        };
        let free = MachineStats {
            #[allow(clippy::cast_possible_truncation, reason = "a fraction of an i16 is one")]
            num_cpus: (f64::from(num_cpus) * self.usage) as i16,
            network_mbps: NETWORK_MBPS,
            memory_mb: in_units(machine.available_bytes, MIB),
            disk_gb: in_units(free, GIB),
        };
        (total, free)
    }
}

/// The machine as this node may use it: within its control groups, and with the memory that is configured.
pub fn machine(settings: &MemorySettings) -> Machine {
    with_at_most(settings.most_bytes, Machine::allowed())
}

fn with_at_most(memory_bytes: Option<u64>, machine: Machine) -> Machine {
    let most = memory_bytes.unwrap_or(u64::MAX);
    Machine {
        memory_bytes: machine.memory_bytes.min(most),
        available_bytes: machine.available_bytes.min(most),
        ..machine
    }
}

/// The CPUs of a node: as configured, else as counted.
pub fn cpus(configured: Option<i16>, machine: &Machine) -> i16 {
    configured.unwrap_or_else(|| i16::try_from(machine.cpus.max(1)).unwrap_or(i16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_have_their_units() {
        let disk = |total, free| Space { total_bytes: total * GIB + 5, free_bytes: free * GIB + 5 };
        let machine = |busy_ticks, total_ticks| Machine {
            memory_bytes: 7 * MIB + 1,
            available_bytes: 3 * MIB + 1,
            cpus: 8,
            busy_ticks,
            total_ticks,
            ..Machine::default()
        };
        let mut gauge = Gauge::default();
        let disks = [disk(10, 9), disk(30, 4)];
        let (total, free) = gauge.of(None, machine(0, 0), &disks, None);
        let expected = MachineStats { num_cpus: 8, network_mbps: 100, memory_mb: 7, disk_gb: 30 };
        assert_eq!(total, expected);
        let expected = MachineStats { num_cpus: 0, network_mbps: 100, memory_mb: 3, disk_gb: 9 };
        assert_eq!(free, expected);
        let (_, free) = gauge.of(None, machine(70, 100), &disks, Some(disk(90, 2)));
        assert_eq!((free.num_cpus, free.disk_gb), (5, 2));
        // Too early for a measurement: as before.
        assert_eq!(gauge.of(None, machine(70, 100), &[], None).1.num_cpus, 5);
        let (total, free) = gauge.of(Some(4), machine(170, 200), &[], None);
        assert_eq!((total.num_cpus, free.num_cpus, total.disk_gb), (4, 4, 0));
        for (most, expected) in
            [(None, (7, 3)), (Some(8), (7, 3)), (Some(5), (5, 3)), (Some(1), (1, 1))]
        {
            let (total, free) = Gauge::default().of(
                None,
                with_at_most(most.map(|mib| mib * MIB), machine(0, 0)),
                &[],
                None,
            );
            assert_eq!((total.memory_mb, free.memory_mb), expected, "{most:?}");
        }
        let huge = Machine { memory_bytes: u64::MAX, cpus: u32::MAX, ..machine(0, 0) };
        let (total, _) = Gauge::default().of(None, huge, &[], None);
        assert_eq!((total.num_cpus, total.memory_mb), (i16::MAX, i32::MAX));
    }
}
