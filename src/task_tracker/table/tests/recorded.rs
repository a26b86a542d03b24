//! The recorded jobs: the actions for trackers, and their answers and reports.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use corona_conformance::capture::{Limits, Side};
use corona_conformance::hadoop_rpc::{HadoopSaid, hadoop_conversations};
use corona_conformance::open;
use corona_hadoop::object::Object;
use corona_hadoop::rpc::{Argument, Call, Outcome, Parameters};
use corona_hadoop::writables::{JvmTask, TaskTrackerStatus};

/// Calls with their results, in the order in which they were made.
fn recorded(job: &str) -> Vec<(Duration, Call, Option<Object>)> {
    let root =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fixtures/recordings/jobs");
    let traffic = open(&root.join(job).join("traffic.pcap"), &Limits::default()).unwrap();
    let mut calls = vec![];
    for conversation in hadoop_conversations(&traffic.capture) {
        let mut waiting: HashMap<i32, usize> = HashMap::new();
        for part in conversation.parts {
            match part.said {
                HadoopSaid::Call(call) if part.from == Side::Client => {
                    waiting.insert(call.id, calls.len());
                    calls.push((part.at, call, None));
                }
                HadoopSaid::Reply(reply) => {
                    if let (Some(place), Outcome::Value(value)) =
                        (waiting.remove(&reply.id), reply.outcome)
                    {
                        calls[place].2 = Some(value);
                    }
                }
                _ => {}
            }
        }
    }
    calls.sort_by_key(|(at, ..)| *at);
    calls
}

fn result<T: Argument>(object: Option<Object>) -> Option<T> {
    object.map(|object| T::from_object(object).unwrap())
}

/// How often each thing was compared.
#[derive(Default)]
struct Compared(BTreeMap<&'static str, usize>);

impl Compared {
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &'static str, ours: T, theirs: T) {
        assert_eq!(ours, theirs, "{what}");
        *self.0.entry(what).or_default() += 1;
    }
}

/// The table acts for all trackers of a job: it determines the answers to each process, and the
/// reported state of each attempt.
fn replay(job: &str, compared: &mut Compared) {
    let calls = recorded(job);
    let begun = Instant::now();
    let mut table = AttemptTable::new(TableLimits::default());
    // The later calls of a process show which one a tracker started for an attempt.
    let mut processes: HashMap<(TaskAttemptId, bool), Started> = HashMap::new();
    for (_, call, reply) in calls.iter().filter(|(_, call, _)| call.method == "getTask") {
        let context: JvmContext = Parameters::new(call.parameters.clone()).take().unwrap();
        if let Some(task) = result::<JvmTask>(reply.clone()).and_then(|answer| answer.task) {
            let started = Started {
                jvm: context.jvm,
                job_file: task.job_file,
                keep: Keep::Nothing,
                has_more: false,
            };
            processes.insert((task.attempt, task.task_cleanup), started);
        }
    }
    for (when, call, reply) in calls {
        let since_epoch_ms = i64::try_from(when.as_millis()).unwrap() + 1;
        let now = Now { since_epoch_ms, instant: begun + when };
        let mut parameters = Parameters::new(call.parameters);
        match call.method.as_str() {
            "submitActions" => {
                let actions: Vec<TaskTrackerAction> = parameters.take().unwrap();
                for action in actions {
                    let cleanup =
                        matches!(&action.action, Action::Launch(task) if task.task_cleanup);
                    for order in table.submit(action, now).unwrap_or_default() {
                        let Order::Start(run) = order else { continue };
                        if let Some(started) = processes.remove(&(run.attempt.clone(), cleanup)) {
                            assert!(table.start(&run, started, now));
                        }
                    }
                }
            }
            "getTask" => {
                let context: JvmContext = parameters.take().unwrap();
                if let Some(theirs) = result::<JvmTask>(reply) {
                    compared.same("getTask", table.get_task(&context), theirs);
                }
            }
            "statusUpdate" | "ping" => {
                let id: TaskAttemptId = parameters.take().unwrap();
                let known = match parameters.take::<TaskStatus>() {
                    Ok(status) => table.status_update(&id, status, now),
                    Err(_) => table.ping(&id),
                };
                if let Some(theirs) = result(reply) {
                    compared.same("statusUpdate and ping", known, theirs);
                }
            }
            "commitPending" => {
                let id = parameters.take().unwrap();
                table.commit_pending(&id, parameters.take().unwrap(), now);
            }
            "canCommit" => {
                if let Some(theirs) = result(reply) {
                    let ours = table.can_commit(&parameters.take().unwrap());
                    compared.same("canCommit", ours, theirs);
                }
            }
            "done" => {
                table.done(&parameters.take().unwrap(), now);
            }
            "heartbeat" => {
                let theirs: TaskTrackerStatus = parameters.take().unwrap();
                for theirs in theirs.tasks {
                    let job = theirs.attempt.job().clone();
                    let ours = table.reports(&job, |_| Some(0), now);
                    let ours = ours.into_iter().find(|ours| ours.attempt == theirs.attempt);
                    let ours = ours.unwrap_or_else(|| panic!("{theirs:?} is not reported"));
                    compared.same(
                        "heartbeat",
                        (ours.state, ours.progress.to_bits(), ours.phase, ours.slots),
                        (theirs.state, theirs.progress.to_bits(), theirs.phase, theirs.slots),
                    );
                    table.reported(&job, &[ours]);
                }
            }
            _ => {}
        }
    }
}

/// Jobs whose attempts all succeed: for others the recordings do not contain the ends of processes.
#[test]
fn recorded_jobs_are_answered_and_reported_as_they_were() {
    let mut compared = Compared::default();
    for job in ["inproc-sleep", "remote-sleep", "wc-remote"] {
        replay(job, &mut compared);
    }
    let expected =
        [("canCommit", 2), ("getTask", 18), ("heartbeat", 24), ("statusUpdate and ping", 31)];
    assert_eq!(compared.0, BTreeMap::from(expected));
}
