//! Between the objects that travel and the types of the job engine: reports in, launches out.
//! Spec: mapreduce/02 §2.3, §2.6.

use std::sync::Arc;

use corona_hadoop::writables as wire;
use corona_mapreduce::{
    AttemptKey, Counter, CounterGroup, Counters, JobId, JobState, Phase, RecordRange,
    ReduceProgress, SortedRanges, TaskKey, TaskKind, TaskState, TaskStatus,
};

use corona_job_engine::{JobSpec, Launch, TASK_COUNTERS, Work};

/// The attempt within its job; absent for an attempt of another job, or one that cannot exist.
pub fn attempt_key(job: &JobId, id: &wire::TaskAttemptId) -> Option<AttemptKey> {
    let kind = if id.task.is_map { TaskKind::Map } else { TaskKind::Reduce };
    let number = u32::try_from(id.task.number).ok()?;
    let attempt = TaskKey { kind, number }.attempt(u32::try_from(id.number).ok()?);
    (id.job().to_string() == job.as_str()).then_some(attempt)
}

/// The attempt as it travels; absent if its numbers are larger than the wire's.
pub fn attempt_id(job: &JobId, attempt: AttemptKey) -> Option<wire::TaskAttemptId> {
    let (tracker, number) = job.as_str().strip_prefix("job_")?.rsplit_once('_')?;
    let job = wire::JobId { number: number.parse().ok()?, tracker: tracker.to_owned() };
    let number = i32::try_from(attempt.task.number).ok()?;
    let is_map = attempt.task.kind == TaskKind::Map;
    let task = wire::TaskId { number, job, is_map };
    Some(wire::TaskAttemptId { number: i32::try_from(attempt.number).ok()?, task })
}

/// A report of a task tracker; absent if it is of another job.
pub fn status(job: &JobId, status: wire::TaskStatus) -> Option<TaskStatus> {
    let range = status.next_records;
    let reduce = status.reduce.map(|reduce| ReduceProgress {
        shuffle_finish_time_ms: reduce.shuffle_finish_time_ms,
        sort_finish_time_ms: reduce.sort_finish_time_ms,
        failed_fetches: reduce
            .failed_fetches
            .iter()
            .filter_map(|id| attempt_key(job, id))
            .collect(),
    });
    Some(TaskStatus {
        attempt: attempt_key(job, &status.attempt)?,
        state: match status.state {
            wire::TaskState::Running => TaskState::Running,
            wire::TaskState::Succeeded => TaskState::Succeeded,
            wire::TaskState::Failed => TaskState::Failed,
            wire::TaskState::Unassigned => TaskState::Unassigned,
            wire::TaskState::Killed => TaskState::Killed,
            wire::TaskState::CommitPending => TaskState::CommitPending,
            wire::TaskState::FailedUnclean => TaskState::FailedUnclean,
            wire::TaskState::KilledUnclean => TaskState::KilledUnclean,
        },
        progress: status.progress,
        phase: match status.phase {
            wire::Phase::Starting => Phase::Starting,
            wire::Phase::Map => Phase::Map,
            wire::Phase::Shuffle => Phase::Shuffle,
            wire::Phase::Sort => Phase::Sort,
            wire::Phase::Reduce => Phase::Reduce,
            wire::Phase::Cleanup => Phase::Cleanup,
        },
        diagnostics: status.diagnostics,
        state_string: status.state_string,
        start_time_ms: status.start_time_ms,
        finish_time_ms: status.finish_time_ms,
        counters: status.counters.map(counters),
        next_records: RecordRange { start: range.start, length: range.length },
        reduce,
    })
}

/// Counters of a peer.
pub fn counters(counters: wire::Counters) -> Counters {
    let groups = counters.groups.into_iter().map(|group| CounterGroup {
        name: group.name.into(),
        display_name: group.display_name.into(),
        counters: group.counters.into_iter().map(counter).collect(),
    });
    Counters { groups: groups.collect() }
}

fn counter(counter: wire::Counter) -> Counter {
    let name: Arc<str> = counter.name.into();
    let display_name = counter.display_name.map_or_else(|| name.clone(), Into::into);
    Counter { name, display_name, value: counter.value }
}

/// Counters as they travel.
pub fn counters_to_wire(counters: &Counters) -> wire::Counters {
    let counter = |counter: &Counter| wire::Counter {
        name: counter.name.to_string(),
        display_name: (counter.display_name != counter.name)
            .then(|| counter.display_name.to_string()),
        value: counter.value,
    };
    let groups = counters.groups.iter().map(|group| wire::CounterGroup {
        name: group.name.to_string(),
        display_name: group.display_name.to_string(),
        counters: group.counters.iter().map(counter).collect(),
    });
    wire::Counters { groups: groups.collect() }
}

/// The counters of a new map and a new reduce, in the group `TASK_COUNTERS`: a child reports counters only
/// if its task was launched with some. Spec: mapreduce/02 §2.6.
const NEW_MAP: &[&str] = &["SPILLED_RECORDS"];
const NEW_REDUCE: &[&str] = &[
    "SPILLED_RECORDS",
    "REDUCE_SHUFFLE_BYTES",
    "REDUCE_INPUT_GROUPS",
    "REDUCE_INPUT_BYTES",
    "REDUCE_INPUT_RECORDS",
    "REDUCE_OUTPUT_RECORDS",
    "COMBINE_OUTPUT_RECORDS",
];

/// A launch as it travels. `split` is what a map of the job's work reads, `maps` their number; absent if
/// a number is larger than the wire's.
pub fn task(
    spec: &JobSpec,
    launch: &Launch,
    split: Option<wire::Split>,
    maps: u32,
) -> Option<wire::Task> {
    let attempt = attempt_id(&spec.id, launch.attempt)?;
    let is_map = attempt.task.is_map;
    let (skip, skipping, write_skipped) = match &launch.work {
        Work::Task { skip, skipping, write_skipped } => (ranges(skip), *skipping, *write_skipped),
        _ => (wire::SkipRanges::default(), false, true),
    };
    let kind = if is_map {
        let reads = matches!(launch.work, Work::Task { .. });
        wire::TaskKind::Map { split: split.filter(|_| reads) }
    } else {
        wire::TaskKind::Reduce { maps: i32::try_from(maps).ok()? }
    };
    Some(wire::Task {
        status: new_status(&attempt, &launch.work),
        skip,
        skipping,
        job_cleanup: match launch.work {
            Work::Cleanup { state } => Some(cleanup_state(state)),
            _ => None,
        },
        job_setup: launch.work == Work::Setup,
        write_skipped,
        task_cleanup: matches!(launch.work, Work::TaskCleanup { .. }),
        ..wire::Task::new(attempt, spec.conf.to_string(), spec.user.to_string(), kind)
    })
}

/// The task that stands for a remote job tracker: a map without input. Spec: mapreduce/05 §5.7.
pub fn job_tracker_task(
    attempt: wire::TaskAttemptId,
    conf: &str,
    user: &str,
    split: wire::Split,
) -> wire::Task {
    let work = Work::Task { skip: SortedRanges::default(), skipping: false, write_skipped: true };
    let kind = wire::TaskKind::Map { split: Some(split) };
    wire::Task {
        status: new_status(&attempt, &work),
        ..wire::Task::new(attempt, conf.to_owned(), user.to_owned(), kind)
    }
}

fn new_status(attempt: &wire::TaskAttemptId, work: &Work) -> wire::TaskStatus {
    let is_map = attempt.task.is_map;
    let names = if is_map { NEW_MAP } else { NEW_REDUCE };
    let zero = |name: &&str| wire::Counter { name: (*name).into(), display_name: None, value: 0 };
    let group = wire::CounterGroup {
        name: TASK_COUNTERS.into(),
        display_name: TASK_COUNTERS.into(),
        counters: names.iter().map(zero).collect(),
    };
    let state = match work {
        Work::TaskCleanup { failed: true } => wire::TaskState::FailedUnclean,
        Work::TaskCleanup { failed: false } => wire::TaskState::KilledUnclean,
        _ => wire::TaskState::Unassigned,
    };
    wire::TaskStatus {
        output_size: 0,
        counters: Some(wire::Counters { groups: vec![group] }),
        ..wire::TaskStatus::new(attempt.clone(), state)
    }
}

fn ranges(ranges: &SortedRanges) -> wire::SkipRanges {
    let all = ranges.ranges().iter();
    let all = all.map(|range| wire::RecordRange { start: range.start, length: range.length });
    wire::SkipRanges { records: ranges.records(), ranges: all.collect() }
}

fn cleanup_state(state: JobState) -> wire::CleanupState {
    match state {
        JobState::Prep => wire::CleanupState::Prep,
        JobState::Running => wire::CleanupState::Running,
        JobState::Succeeded => wire::CleanupState::Succeeded,
        JobState::Failed => wire::CleanupState::Failed,
        JobState::Killed => wire::CleanupState::Killed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_keep_their_names_both_ways() {
        let job: JobId = "job_202611210043.1_0001".parse().unwrap();
        let key = TaskKey { kind: TaskKind::Reduce, number: 3 }.attempt(2);
        let id = attempt_id(&job, key).unwrap();
        assert_eq!(id.to_string(), job.attempt(key));
        assert_eq!(attempt_key(&job, &id), Some(key));
        let other: JobId = "job_202611210043.2_0001".parse().unwrap();
        assert_eq!(attempt_key(&other, &id), None, "another job's");
        let negative = wire::TaskAttemptId { number: -1, ..id };
        assert_eq!(attempt_key(&job, &negative), None);
    }
}
