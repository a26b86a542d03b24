//! The simulation itself: it repeats, it passes, and it finds what is broken.

use super::*;
use corona_job_engine::{JobEffect, Launch, Work};
use corona_mapreduce::{EventStatus, SortedRanges, TaskState};

#[test]
fn runs_pass() {
    // Many more run in an optimised build: see scripts/test.
    let mut sum = Summary::default();
    for seed in 1..=300 {
        match run(seed) {
            Ok(summary) => sum.add(summary),
            Err(failure) => panic!("{failure}"),
        }
    }
    // The runs show all that they are for.
    assert!(sum.succeeded > 100 && sum.failed > 10 && sum.killed > 10, "{sum:?}");
    assert!(sum.committed > 500 && sum.revoked > 20 && sum.lost_nodes > 20, "{sum:?}");
    assert!(sum.lost_calls > 100 && sum.restored > 100 && sum.restarts > 50, "{sum:?}");
    assert!(sum.second_attempts > 100 && sum.skipped > 10 && sum.spared > 100, "{sum:?}");
    assert!(sum.outages > 50 && sum.stalls > 50 && sum.clock_jumps > 100, "{sum:?}");
    assert!(sum.cut_offs > 50 && sum.given_up > 20, "{sum:?}");
    assert!(sum.stale_launches > 5 && sum.sweeps > 0, "{sum:?}");
}

#[test]
fn a_seed_repeats_and_seeds_differ() {
    assert_eq!(run(3).unwrap(), run(3).unwrap());
    assert_ne!(run(3).unwrap(), run(4).unwrap());
}

/// An engine that takes in another input than was given, whose effects are changed, or whose job is another
/// one.
struct Faulty {
    engine: JobEngine,
    fault: Fault,
}

#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    hears: fn(JobInput) -> JobInput,
    says: fn(&mut Vec<JobEffect>),
    reads: fn(JobSpec) -> JobSpec,
}

impl Subject for Faulty {
    fn apply(&mut self, now: Millis, input: JobInput) -> JobOutcome {
        let mut outcome = self.engine.apply(now, (self.fault.hears)(input));
        (self.fault.says)(&mut outcome.effects);
        outcome
    }

    fn engine(&mut self) -> &mut JobEngine {
        &mut self.engine
    }
}

fn hears(name: &'static str, hears: fn(JobInput) -> JobInput) -> Fault {
    Fault { name, hears, says: |_| {}, reads: |spec| spec }
}

fn says(name: &'static str, says: fn(&mut Vec<JobEffect>)) -> Fault {
    Fault { name, hears: |input| input, says, reads: |spec| spec }
}

fn reads(name: &'static str, reads: fn(JobSpec) -> JobSpec) -> Fault {
    Fault { name, hears: |input| input, says: |_| {}, reads }
}

/// Changes the status of all events that have another one.
fn change_events(effects: &mut [JobEffect], from: EventStatus, to: EventStatus) {
    for effect in effects {
        if let JobEffect::Event { event, .. } = effect
            && event.status == from
        {
            event.status = to;
        }
    }
}

/// Changes the state in all reports of attempts in one of these states.
fn change_states(mut input: JobInput, from: &[TaskState], to: TaskState) -> JobInput {
    if let JobInput::Heartbeat { reports, .. } = &mut input {
        for report in reports.iter_mut().filter(|report| from.contains(&report.state)) {
            report.state = to;
        }
    }
    input
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn faults() -> Vec<Fault> {
    vec![
        hears("the last grant of a call is not entered", |mut input| {
            if let JobInput::Granted { slots } = &mut input {
                slots.pop();
            }
            input
        }),
        hears("lost nodes are not noticed, nor silence", |input| match input {
            JobInput::NodeLost { .. } => JobInput::NodeLost { node: "nobody".into() },
            JobInput::Tick => JobInput::NodeLost { node: "nobody".into() },
            input => input,
        }),
        hears("revocations are not entered", |input| match input {
            JobInput::Revoked { .. } => JobInput::Revoked { ids: Vec::new() },
            input => input,
        }),
        hears("failures count as successes", |input| {
            change_states(
                input,
                &[TaskState::Failed, TaskState::FailedUnclean],
                TaskState::Succeeded,
            )
        }),
        hears("kills count as failures", |input| {
            change_states(input, &[TaskState::Killed, TaskState::KilledUnclean], TaskState::Failed)
        }),
        hears("attempts that want to commit count as successes", |input| {
            change_states(input, &[TaskState::CommitPending], TaskState::Succeeded)
        }),
        hears("failed fetches are not noticed, nor lost nodes", |mut input| {
            match &mut input {
                JobInput::NodeLost { node } => *node = "nobody".into(),
                JobInput::Heartbeat { reports, .. } => {
                    reports.iter_mut().for_each(|report| report.reduce = None);
                }
                _ => {}
            }
            input
        }),
        says("slots are not released", |effects| {
            effects.retain(|effect| !matches!(effect, JobEffect::Release(_)));
        }),
        says("requests are not sent again", |effects| {
            let launches = effects.iter().any(|effect| matches!(effect, JobEffect::Record(_)));
            if !launches {
                effects.retain(|effect| !matches!(effect, JobEffect::Request(_)));
            }
        }),
        says("attempts are launched twice", |effects| {
            let launch = effects.iter().find(|effect| matches!(effect, JobEffect::Launch(_)));
            effects.extend(launch.cloned());
        }),
        says("attempts are launched with another one's slot", |effects| {
            for effect in effects {
                if let JobEffect::Launch(Launch { slot, .. }) = effect {
                    slot.0 += 1;
                }
            }
        }),
        says("clean-ups of attempts are sent as the task", |effects| {
            for effect in effects {
                if let JobEffect::Launch(Launch { work, .. }) = effect
                    && matches!(work, Work::TaskCleanup { .. })
                {
                    *work = Work::Setup;
                }
            }
        }),
        says("nobody may commit", |effects| {
            effects.retain(|effect| !matches!(effect, JobEffect::Commit { .. }));
        }),
        says("the first attempt may commit as well", |effects| {
            let commits = effects.iter().filter_map(|effect| match effect {
                JobEffect::Commit { attempt, at } if attempt.number > 0 => {
                    let attempt = attempt.task.attempt(0);
                    Some(JobEffect::Commit { attempt, at: at.clone() })
                }
                _ => None,
            });
            let commits: Vec<JobEffect> = commits.collect();
            effects.extend(commits);
        }),
        says("attempts that are of no use run on", |effects| {
            effects.retain(|effect| !matches!(effect, JobEffect::Kill { .. }));
        }),
        says("a released slot is released again", |effects| {
            let release = effects.iter().find(|effect| matches!(effect, JobEffect::Release(_)));
            effects.extend(release.cloned());
        }),
        says("events are left out", |effects| {
            if let Some(at) = effects.iter().position(|it| matches!(it, JobEffect::Event { .. })) {
                effects.remove(at);
            }
        }),
        says("obsolete events stay", |effects| {
            effects.retain(|effect| !matches!(effect, JobEffect::EventObsolete { .. }));
        }),
        says("killed attempts are shown as failed", |effects| {
            change_events(effects, EventStatus::Killed, EventStatus::Failed);
        }),
        says("a task fails with its first attempt", |effects| {
            change_events(effects, EventStatus::Failed, EventStatus::TipFailed);
        }),
        hears("restarts are not noticed", |input| match input {
            JobInput::Resumed => JobInput::Tick,
            input => input,
        }),
        reads("slow tasks are noticed late", |mut spec| {
            spec.settings.speculation.map.lag_ms = 60_000;
            spec.settings.speculation.reduce.lag_ms = 60_000;
            spec
        }),
        says("bad records are read again", |effects| {
            for effect in effects {
                if let JobEffect::Launch(Launch { work: Work::Task { skip, .. }, .. }) = effect {
                    *skip = SortedRanges::default();
                }
            }
        }),
        says("a test of some records may commit", |effects| {
            for effect in effects {
                if let JobEffect::Kill { attempt, at } = effect {
                    *effect = JobEffect::Commit { attempt: *attempt, at: at.clone() };
                }
            }
        }),
        says("sessions do not end", |effects| {
            effects.retain(|effect| !matches!(effect, JobEffect::EndSession { .. }));
        }),
    ]
}

#[test]
fn each_fault_is_found_within_two_hundred_seeds() {
    for fault in faults() {
        let faulty = |spec| Faulty { engine: JobEngine::new((fault.reads)(spec)), fault };
        let found = (1..=200).find_map(|seed| run_with(seed, Habits::GOOD, faulty).err());
        let failure = found.unwrap_or_else(|| panic!("nobody sees that {}", fault.name));
        assert!(!failure.histories.is_empty(), "{failure}");
        assert!(!failure.what.contains("not when the run is repeated"), "{failure}");
    }
}

/// The service had each of these habits once.
#[test]
fn each_bad_habit_of_the_service_is_found_within_two_hundred_seeds() {
    let good = Habits::GOOD;
    for (what, habits, says) in [
        (
            "it gives sessions up",
            Habits { gives_up_after: Some(7), ..good },
            "nobody killed the job",
        ),
        (
            "it sends the end of a session once",
            Habits { repeats_ends: false, ..good },
            "sessions are left",
        ),
        (
            "it does not note that a session may have started",
            Habits { notes_sessions: false, ..good },
            "sessions are left",
        ),
        ("it goes on with what has not begun", Habits { begins_again: false, ..good }, "never end"),
        ("its clock jumps", Habits { has_own_clock: false, ..good }, "given up after"),
        (
            "a stall is the silence of others",
            Habits { notices_stalls: false, ..good },
            "report waits",
        ),
        (
            "it gives up nodes that it cannot reach itself",
            Habits { notices_cut_offs: false, ..good },
            "is given up and is alive",
        ),
        (
            "it takes its own silence for that of attempts",
            Habits { notices_cut_offs: false, ..good },
            "is given up while its job tracker is cut off",
        ),
        (
            "old orders are carried out, and what they leave stays",
            Habits { confirms_launches: false, sweeps: false, ..good },
            "unfinished output is left",
        ),
    ] {
        let mut failures =
            (1..=200).filter_map(|seed| run_with(seed, habits, JobEngine::new).err());
        assert!(!says.is_empty(), "any failure would do");
        // It may show in other ways as well.
        let is_found = failures.any(|failure| failure.what.contains(says));
        assert!(is_found, "nobody sees that {what}");
    }
}

/// Once the simulation asked for second attempts while nobody could grant a slot for them.
#[test]
fn tasks_that_hang_during_outages_need_no_second_attempt() {
    for seed in 1..=40 {
        let mut world =
            ServiceSimulation::new(Random::new(seed), &JobEngine::new, Habits::GOOD, false);
        let weather = &mut world.weather;
        (weather.attempt_hangs, weather.outages, weather.cut_offs) = (30, 20, 5);
        weather.stalls = 5;
        if let Err(what) = world.run() {
            panic!("seed {seed} fails: {what}");
        }
    }
}

#[test]
fn a_panic_is_a_failure_with_its_inputs() {
    struct Panics(JobEngine);
    impl Subject for Panics {
        fn apply(&mut self, now: Millis, input: JobInput) -> JobOutcome {
            assert!(!matches!(input, JobInput::Heartbeat { .. }), "cannot be reported to");
            self.0.apply(now, input)
        }
        fn engine(&mut self) -> &mut JobEngine {
            &mut self.0
        }
    }
    let failure = run_with(1, Habits::GOOD, |spec| Panics(JobEngine::new(spec))).unwrap_err();
    assert!(failure.what.contains("cannot be reported to"), "{failure}");
    let last = failure.histories.iter().filter_map(|history| history.inputs.last());
    assert!(last.into_iter().any(|(_, input)| matches!(input, JobInput::Heartbeat { .. })));
}

#[test]
fn a_kept_failure_can_be_played_again() {
    let mut histories = Vec::new();
    let summary = attempt(5, &JobEngine::new, Habits::GOOD, Some(&mut histories)).unwrap();
    let inputs: usize = histories.iter().map(|history| history.inputs.len()).sum();
    assert_eq!(inputs as u64, summary.inputs);
    for History { spec, inputs } in histories {
        let mut job = JobEngine::new(spec);
        for (now, input) in inputs {
            job.apply(now, input);
        }
        assert!(job.progress().finished_at.is_some());
    }
}
