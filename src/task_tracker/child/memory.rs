//! Selects the tasks to kill when memory is short: the largest first, until there is enough. Says to people what a task
//! that was killed had, wanted and could ask for.
//!
//! Pure. Spec: mapreduce/04 §4.14.

use corona_config::keys;

use crate::ids::AttemptId;

const MIB: u64 = 1 << 20;

/// The memory of a running task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMemory {
    /// The attempt that runs there.
    pub attempt: AttemptId,
    /// Its process.
    pub pid: i32,
    /// The memory of its process and the children, in bytes.
    pub resident_bytes: u64,
    /// The limit of its job, in bytes.
    pub limit_bytes: u64,
}

/// The memory of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Physical memory, in bytes.
    pub total_bytes: u64,
    /// The available memory, in bytes.
    pub available_bytes: u64,
    /// The memory that tasks must leave free, in bytes.
    pub reserved_bytes: u64,
    /// Whether a task that exceeds the limit of its job is killed even if there is enough memory.
    pub is_strict: bool,
}

/// A task that has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryKill {
    /// The attempt to kill.
    pub attempt: AttemptId,
    /// Whether that is its own fault.
    pub is_failure: bool,
    /// The diagnostics; job trackers count a word in them.
    pub diagnostics: String,
}

/// The tasks to kill, so that the rest leaves the reserved memory free, and with strict limits those
/// that exceed theirs.
pub fn tasks_to_kill(tasks: &[TaskMemory], limits: MemoryLimits) -> Vec<MemoryKill> {
    let allowed_bytes = limits.total_bytes.saturating_sub(limits.reserved_bytes);
    let sum = |sum: u64, task: &TaskMemory| sum.saturating_add(task.resident_bytes);
    let total_bytes = tasks.iter().fold(0, sum);
    let (mut used, mut available) = (total_bytes, limits.available_bytes);
    let mut by_size: Vec<&TaskMemory> =
        tasks.iter().filter(|task| task.resident_bytes > 0).collect();
    by_size.sort_by(|a, b| (b.resident_bytes, &a.attempt).cmp(&(a.resident_bytes, &b.attempt)));
    let mut kills = Vec::new();
    for task in by_size {
        let is_short = used > allowed_bytes || available < limits.reserved_bytes;
        let is_failure = task.resident_bytes > task.limit_bytes;
        let must_go = is_short || (limits.is_strict && is_failure);
        if !must_go {
            continue;
        }
        used = used.saturating_sub(task.resident_bytes);
        available = available.saturating_add(task.resident_bytes);
        let verb = if is_failure { "Failing" } else { "Killing" };
        let TaskMemory { attempt, pid, resident_bytes, limit_bytes } = task;
        let sentence = match is_failure {
            true => exceeded(attempt, *limit_bytes, *resident_bytes, limits.total_bytes),
            false => crowded_out(attempt, *resident_bytes, limits),
        };
        let diagnostics = format!(
            "{verb} high-memory task:{attempt} pid:{pid} taskMemory:{resident_bytes} \
             taskMemoryLimit:{limit_bytes} availableMemory:{} totalMemory:{total_bytes} \
             totalMemoryLimit:{allowed_bytes}\n{sentence}",
            limits.available_bytes,
        );
        kills.push(MemoryKill { attempt: task.attempt.clone(), is_failure, diagnostics });
    }
    kills
}

/// How much memory a task had that has taken more, how much it wanted, and how much it could ask for on this node.
pub fn exceeded(attempt: &AttemptId, had_bytes: u64, wanted_bytes: u64, node_bytes: u64) -> String {
    let (task, key) = match attempt.is_map() {
        true => ("map", keys::JOB_MAP_MEMORY.name),
        false => ("reduce", keys::JOB_REDUCE_MEMORY.name),
    };
    let had = had_bytes / MIB;
    // What the kernel ends at its limit has not got what it wanted.
    let wanted = match wanted_bytes > had_bytes {
        true => format!("{} MB", wanted_bytes.div_ceil(MIB)),
        false => "more".to_owned(),
    };
    format!(
        "This {task} had {had} MB of memory, wanted {wanted}, and could ask for up to {} MB on this node ({key}).",
        node_bytes / MIB
    )
}

/// Why a task was killed that has not taken more than it had.
fn crowded_out(attempt: &AttemptId, resident_bytes: u64, limits: MemoryLimits) -> String {
    let task = if attempt.is_map() { "map" } else { "reduce" };
    let MemoryLimits { available_bytes, reserved_bytes, .. } = limits;
    format!(
        "This {task} used {} MB of memory, which it may; it was killed because its node had {} MB left and must keep {} MB free, and runs again.",
        resident_bytes / MIB,
        available_bytes / MIB,
        reserved_bytes / MIB,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u32, resident_bytes: u64) -> TaskMemory {
        let attempt = format!("attempt_20.1_0001_m_{number:06}_0").parse().unwrap();
        TaskMemory { attempt, pid: 10, resident_bytes, limit_bytes: 50 }
    }

    #[test]
    fn the_largest_go_until_there_is_enough() {
        let tasks = [task(0, 20), task(1, 60), task(2, 40), task(3, 0)];
        type Case<'a> = ((u64, u64, u64), &'a [u32]);
        let cases: [Case<'_>; 6] = [
            // (total, available, reserved), tasks to kill
            ((1000, 500, 100), &[]),
            ((1000, 100, 100), &[]),
            ((1000, 99, 100), &[1]),
            ((1000, 10, 100), &[1, 2]),
            ((1000, 0, 900), &[1, 2, 0]),
            ((200, 150, 100), &[1]),
        ];
        for ((total_bytes, available_bytes, reserved_bytes), expected) in cases {
            let limits =
                MemoryLimits { total_bytes, available_bytes, reserved_bytes, is_strict: false };
            let kills = tasks_to_kill(&tasks, limits);
            let killed: Vec<u32> = kills.iter().map(|kill| kill.attempt.partition()).collect();
            assert_eq!(killed, expected, "{limits:?}");
        }
        let limits = MemoryLimits {
            total_bytes: 1000,
            available_bytes: 10,
            reserved_bytes: 100,
            is_strict: false,
        };
        let kills = tasks_to_kill(&tasks, limits);
        assert_eq!(
            kills[0].diagnostics,
            "Failing high-memory task:attempt_20.1_0001_m_000001_0 pid:10 taskMemory:60 \
             taskMemoryLimit:50 availableMemory:10 totalMemory:120 totalMemoryLimit:900\n\
             This map had 0 MB of memory, wanted 1 MB, and could ask for up to 0 MB on this node \
             (mapred.job.map.memory.mb)."
        );
        let innocent = "This map used 0 MB of memory, which it may; it was killed because its node had 0 MB left";
        assert!(kills[1].diagnostics.contains(innocent), "{}", kills[1].diagnostics);
        assert!(kills[0].is_failure && !kills[1].is_failure);
        assert!(kills[1].diagnostics.starts_with("Killing high-memory task:"));
        let strict = MemoryLimits { available_bytes: 1000, is_strict: true, ..limits };
        let kills = tasks_to_kill(&tasks, strict);
        assert_eq!((kills.len(), kills[0].attempt.partition(), kills[0].is_failure), (1, 1, true));
    }

    #[test]
    fn a_sentence_says_what_a_task_had_wanted_and_could_ask_for() {
        let said = |name: &str, had: u64, wanted: u64| {
            let attempt = name.parse().unwrap();
            exceeded(&attempt, had * MIB, wanted, 16_000 * MIB)
        };
        let map = "attempt_20.1_0001_m_000000_0";
        assert_eq!(
            said(map, 100, 163 * MIB + 1),
            "This map had 100 MB of memory, wanted 164 MB, and could ask for up to 16000 MB on this \
             node (mapred.job.map.memory.mb)."
        );
        assert!(said(map, 100, 100 * MIB).contains(" MB of memory, wanted more, and could"));
        let reduce = said("attempt_20.1_0001_r_000000_0", 1, 2 * MIB);
        assert!(reduce.starts_with("This reduce had 1 MB"), "{reduce}");
        assert!(reduce.contains("mapred.job.reduce.memory.mb"), "{reduce}");
    }
}
