//! The table of mapreduce/04 §4.7, as scripts of events.

use super::*;
use corona_hadoop::writables::{CleanupState, CounterGroup, Counters, TaskKind};

pub(crate) fn at(begun: Instant, seconds: u64) -> Now {
    Now {
        since_epoch_ms: i64::try_from(seconds).unwrap() * 1000,
        instant: begun + Duration::from_secs(seconds),
    }
}

fn task(letter: char) -> Task {
    let is_map = letter == 'm';
    let attempt = format!("attempt_201401011200.7_0001_{letter}_000003_0");
    let attempt: corona_hadoop::writables::TaskAttemptId = attempt.parse().unwrap();
    let kind = if is_map { TaskKind::Map { split: None } } else { TaskKind::Reduce { maps: 1 } };
    Task::new(attempt, "file:/job.xml".to_owned(), "alice".to_owned(), kind)
}

/// Kinds of tasks by name.
pub(crate) fn kind(name: &str) -> Task {
    let plain = || task('m');
    let cleanup_of = |state| {
        let mut task = Task { task_cleanup: true, ..plain() };
        task.status.state = state;
        task
    };
    match name {
        "map" => plain(),
        "reduce" => task('r'),
        "setup" => Task { job_setup: true, ..plain() },
        "cleanup" => Task { job_cleanup: Some(CleanupState::Succeeded), ..plain() },
        "cleanup of failed" => cleanup_of(TaskState::FailedUnclean),
        "cleanup of killed" => cleanup_of(TaskState::KilledUnclean),
        other => panic!("{other}"),
    }
}

/// The report of its process after half of its work.
fn halfway(attempt: &Attempt, state: TaskState, phase: Phase) -> TaskStatus {
    TaskStatus { state, phase, progress: 0.5, ..attempt.status.clone() }
}

/// Applies an event by its name; returns whether it had an effect.
fn happen(attempt: &mut Attempt, what: &str, now: Now) -> bool {
    match what {
        "start" => attempt.start(now),
        "running" => {
            attempt.update(halfway(attempt, TaskState::Running, attempt.status.phase), now)
        }
        "cleaning" => attempt.update(halfway(attempt, attempt.status.state, Phase::Cleanup), now),
        "strays" => attempt.update(halfway(attempt, attempt.status.state, Phase::Map), now),
        "pending" => attempt.update(halfway(attempt, TaskState::CommitPending, Phase::Reduce), now),
        "claims" => {
            attempt.update(halfway(attempt, TaskState::Succeeded, attempt.status.phase), now)
        }
        "done" => attempt.finish(now),
        "exit" => attempt.exited(now),
        "kill" => attempt.kill(Cause::Request, now),
        "fail" => attempt.kill(Cause::Failure, now),
        "lost" => attempt.lose_output("disk"),
        other => panic!("{other}"),
    }
}

#[test]
fn states_follow_what_happens() {
    // A word with `!` is something that must not count.
    let table = [
        ("map", "", "UNASSIGNED", 0.0),
        ("map", "start running", "RUNNING", 0.5),
        ("map", "start running done exit!", "SUCCEEDED", 1.0),
        ("map", "start done running! kill! fail! start! done!", "SUCCEEDED", 1.0),
        ("map", "running! done!", "UNASSIGNED", 0.0),
        ("map", "kill start! exit!", "KILLED", 0.0),
        ("map", "fail start!", "FAILED", 0.0),
        ("map", "exit start!", "FAILED", 0.0),
        ("map", "start exit done!", "FAILED_UNCLEAN", 0.0),
        ("map", "start running kill exit! running!", "KILLED_UNCLEAN", 0.0),
        ("map", "start running fail exit!", "FAILED_UNCLEAN", 0.0),
        ("map", "start cleaning exit", "FAILED", 0.0),
        ("map", "start cleaning kill", "KILLED", 0.0),
        ("map", "start claims", "RUNNING", 0.5),
        ("map", "start done lost lost!", "FAILED", 0.0),
        ("map", "start lost!", "RUNNING", 0.0),
        ("reduce", "start pending running!", "COMMIT_PENDING", 0.5),
        ("reduce", "start pending pending done", "SUCCEEDED", 1.0),
        ("reduce", "start pending kill", "KILLED_UNCLEAN", 0.0),
        ("reduce", "start pending exit", "FAILED_UNCLEAN", 0.0),
        ("setup", "start exit", "FAILED", 0.0),
        ("setup", "start kill", "KILLED", 0.0),
        ("setup", "start done", "SUCCEEDED", 1.0),
        ("cleanup", "start exit", "FAILED", 0.0),
        ("cleanup", "start cleaning done", "SUCCEEDED", 1.0),
        ("cleanup of failed", "start", "FAILED_UNCLEAN", 0.0),
        ("cleanup of failed", "start running! cleaning done", "FAILED", 1.0),
        ("cleanup of failed", "start strays done", "FAILED", 1.0),
        ("cleanup of failed", "start exit", "FAILED", 0.0),
        ("cleanup of failed", "start kill", "FAILED", 0.0),
        ("cleanup of killed", "start start! cleaning done", "KILLED", 1.0),
        ("cleanup of killed", "start fail", "KILLED", 0.0),
    ];
    for (name, script, state, progress) in table {
        let begun = Instant::now();
        let mut attempt = Attempt::new(kind(name), at(begun, 0));
        for (step, word) in (1..).zip(script.split_whitespace()) {
            let what = word.trim_end_matches('!');
            let counted = happen(&mut attempt, what, at(begun, step));
            assert_eq!(counted, !word.ends_with('!'), "{name}: {script}: {word}");
        }
        let status = attempt.status();
        assert_eq!(status.state.to_string(), state, "{name}: {script}");
        assert!((status.progress - progress).abs() < 1e-6, "{name}: {script}");
        let over = is_last_report(status);
        let ended = status.finish_time_ms > 0;
        assert_eq!(over, ended, "{name}: {script}");
        assert_eq!(attempt.has_ended(), ended, "{name}: {script}");
        let started = script.starts_with("start");
        assert_eq!(status.start_time_ms, if started { 1000 } else { 0 }, "{name}: {script}");
    }
}

#[test]
fn reports_say_things_once() {
    let begun = Instant::now();
    let mut attempt = Attempt::new(task('r'), at(begun, 0));
    attempt.start(at(begun, 1));
    let failed: corona_hadoop::writables::TaskAttemptId =
        "attempt_201401011200.7_0001_m_000001_0".parse().unwrap();
    let mut told = attempt.status().clone();
    told.diagnostics = "told. ".to_owned();
    told.reduce = Some(ReduceProgress {
        shuffle_finish_time_ms: 7,
        sort_finish_time_ms: 0,
        failed_fetches: vec![failed.clone()],
    });
    assert!(attempt.update(told, at(begun, 2)));
    attempt.add_diagnostics("added.");
    let first = attempt.report(Some(5), at(begun, 3));
    assert_eq!(first.diagnostics, "told. added.");
    assert!(first.counters.is_some());
    assert_eq!(first.output_size, -1, "a reduce's output is nothing to serve");
    let reduce = first.reduce.clone().unwrap();
    assert_eq!((reduce.shuffle_finish_time_ms, reduce.failed_fetches), (7, vec![failed.clone()]));
    let second = attempt.report(None, at(begun, 62));
    assert_eq!((second.diagnostics.as_str(), second.counters), ("", None));
    assert_eq!(second.reduce.unwrap().failed_fetches, []);
    assert!(attempt.report(None, at(begun, 63)).counters.is_some(), "a minute later");

    attempt.add_diagnostics(" later.");
    attempt.report_again(&first);
    let again = attempt.report(None, at(begun, 64));
    assert_eq!(again.diagnostics, "told. added. later.");
    assert!(again.counters.is_some());
    assert_eq!(again.reduce.unwrap().failed_fetches, [failed]);

    attempt.finish(at(begun, 65));
    assert!(attempt.report(None, at(begun, 65)).counters.is_some(), "it does not run");
    assert!(attempt.report(None, at(begun, 65)).counters.is_some());
}

#[test]
fn the_output_of_a_map_that_succeeded_has_a_size() {
    let begun = Instant::now();
    let mut attempt = Attempt::new(task('m'), at(begun, 0));
    attempt.start(at(begun, 1));
    assert_eq!(attempt.report(Some(5), at(begun, 2)).output_size, -1);
    attempt.finish(at(begun, 3));
    assert_eq!(attempt.report(Some(5), at(begun, 4)).output_size, 5);
    assert_eq!(attempt.report(None, at(begun, 4)).output_size, -1);
}

/// A process can neither take another one's place nor fill the memory.
#[test]
fn reports_of_processes_change_what_they_may() {
    let begun = Instant::now();
    let mut attempt = Attempt::new(task('r'), at(begun, 0));
    attempt.start(at(begun, 1));
    let other = task('m').attempt;
    let group = CounterGroup {
        name: "g".repeat(MAX_COUNTERS_BYTES),
        display_name: String::new(),
        counters: vec![],
    };
    let huge = Counters { groups: vec![group] };
    for _ in 0..3 {
        let report = TaskStatus {
            attempt: other.clone(),
            slots: 1000,
            progress: f32::NAN,
            diagnostics: "é".repeat(MAX_DIAGNOSTICS_BYTES),
            start_time_ms: 77,
            finish_time_ms: 77,
            state_string: "é".repeat(MAX_STATE_STRING_BYTES),
            counters: Some(huge.clone()),
            reduce: Some(ReduceProgress {
                failed_fetches: vec![other.clone(); MAX_FAILED_FETCHES],
                ..ReduceProgress::default()
            }),
            ..attempt.status().clone()
        };
        assert!(attempt.update(report, at(begun, 2)));
    }
    let status = attempt.status();
    assert_eq!(status.attempt, task('r').attempt);
    assert_eq!((status.slots, status.start_time_ms, status.finish_time_ms), (1, 1000, 0));
    assert!(status.progress == 0.0);
    assert_eq!(status.counters, Some(Counters::default()));
    assert_eq!(status.state_string.len(), MAX_STATE_STRING_BYTES);
    assert_eq!(status.diagnostics.len(), MAX_DIAGNOSTICS_BYTES);
    assert_eq!(status.reduce.as_ref().unwrap().failed_fetches.len(), MAX_FAILED_FETCHES);
}

/// Recorded: a set-up task that is started as a reduce reports the time of its end three times.
#[test]
fn a_reduce_that_ends_has_come_to_everything() {
    let begun = Instant::now();
    let times = |attempt: &Attempt| {
        let reduce = attempt.status().reduce.clone().unwrap();
        let status = attempt.status();
        (reduce.shuffle_finish_time_ms, reduce.sort_finish_time_ms, status.finish_time_ms)
    };
    type End = fn(&mut Attempt, Now) -> bool;
    let ends: [End; 3] =
        [Attempt::finish, Attempt::exited, |attempt, now| attempt.kill(Cause::Request, now)];
    for end in ends {
        let mut attempt = Attempt::new(task('r'), at(begun, 0));
        attempt.start(at(begun, 1));
        assert_eq!(times(&attempt), (0, 0, 0));
        let progress = ReduceProgress { shuffle_finish_time_ms: 7, ..Default::default() };
        let told = TaskStatus { reduce: Some(progress), ..attempt.status().clone() };
        let mut shuffled = attempt.clone();
        assert!(shuffled.update(told, at(begun, 2)));
        assert!(end(&mut attempt, at(begun, 9)) && end(&mut shuffled, at(begun, 9)));
        assert_eq!(times(&attempt), (9000, 9000, 9000));
        assert_eq!(times(&shuffled), (7, 9000, 9000));
    }
}

/// Job trackers leave the phase of such a task as it was, and its process is to see the right one.
#[test]
fn a_process_that_cleans_up_after_an_attempt_learns_that() {
    let begun = Instant::now();
    for (name, phase) in [("map", Phase::Map), ("cleanup of killed", Phase::Cleanup)] {
        let attempt = Attempt::new(kind(name), at(begun, 0));
        assert_eq!(attempt.task().status.phase, phase, "{name}");
    }
}
