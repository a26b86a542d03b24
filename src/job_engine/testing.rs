//! Random runs of an engine, for tests of the engine and of what keeps its inputs.

use std::sync::Arc;

use corona_mapreduce::{AttemptKey, ReduceProgress, TaskKind, TaskState, TaskStatus};
use proptest::prelude::*;

use crate::{GrantedSlot, JobEngine, JobInput, Order, RequestId};

/// One step of a random run. Requests, attempts and nodes are named by numbers, of which the remainder counts.
#[derive(Clone, Debug)]
pub enum Step {
    /// A request is granted a slot on a node.
    Grant(usize, u8),
    /// An attempt reports a state, and its progress in per cent.
    Report(usize, TaskState, u8),
    /// A user kills an attempt, and whether it counts as failed.
    Kill(usize, bool),
    /// A node is lost.
    Lose(u8),
    /// A grant is taken back.
    Revoke(usize),
    /// The hosts with slots for maps become known.
    Hosts(Vec<u8>),
    /// A call to the node of an attempt fails.
    CallFailed(usize),
    /// So many milliseconds pass.
    Wait(i64),
    /// A reduce cannot fetch the output of a map.
    FetchFailure(usize, usize),
    /// A task gets a second attempt.
    Speculate(u32),
    /// A user kills the job.
    KillJob,
    /// The job goes on after a restart, in place or not.
    Resume(bool),
    /// No task tracker has reported the launches in doubt.
    NotLaunched,
}

/// Random runs: up to 120 steps, one run in ten ended by its user.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    use TaskState::{
        CommitPending, Failed, FailedUnclean, Killed, KilledUnclean, Running, Succeeded, Unassigned,
    };
    let state = prop::sample::select(vec![
        Running,
        Running,
        Succeeded,
        Succeeded,
        Succeeded,
        CommitPending,
        Failed,
        FailedUnclean,
        Killed,
        KilledUnclean,
        Unassigned,
    ]);
    let step = prop_oneof![
        8 => (0..40_usize, 0..4_u8).prop_map(|(slot, node)| Step::Grant(slot, node)),
        16 => (0..40_usize, state, 0..101_u8).prop_map(|(at, state, part)| Step::Report(at, state, part)),
        1 => (0..40_usize, any::<bool>()).prop_map(|(at, fail)| Step::Kill(at, fail)),
        1 => (0..4_u8).prop_map(Step::Lose),
        1 => (0..40_usize).prop_map(Step::Revoke),
        1 => prop::collection::vec(0..4_u8, 0..4).prop_map(Step::Hosts),
        1 => (0..40_usize).prop_map(Step::CallFailed),
        3 => (0..90_000_i64).prop_map(Step::Wait),
        1 => (0..40_usize, 0..40_usize).prop_map(|(reduce, map)| Step::FetchFailure(reduce, map)),
        1 => (0..4_u32).prop_map(Step::Speculate),
        1 => any::<bool>().prop_map(Step::Resume),
        1 => Just(Step::NotLaunched),
    ];
    let killed = prop_oneof![9 => Just(None), 1 => Just(Some(Step::KillJob))];
    (prop::collection::vec(step, 0..120), killed).prop_map(|(mut steps, killed)| {
        steps.extend(killed);
        steps
    })
}

fn node_name(node: u8) -> String {
    char::from(b'a' + node).to_string()
}

/// The input of a step, if there is something that it can concern.
pub fn input(job: &JobEngine, step: &Step) -> Option<JobInput> {
    let attempts: Vec<(AttemptKey, Arc<str>)> = TaskKind::ALL
        .into_iter()
        .flat_map(|kind| job.tasks_of(kind))
        .filter_map(|key| job.task_view(key))
        .flat_map(|view| view.attempts)
        .map(|attempt| (attempt.attempt, attempt.node))
        .collect();
    let pick = |at: usize| attempts.get(at % attempts.len().max(1)).cloned();
    let heartbeat = |node: Arc<str>, report| JobInput::Heartbeat {
        host: node.trim_start_matches("tracker_").trim_end_matches(":1").into(),
        node,
        http_port: 50060,
        reports: vec![report],
    };
    Some(match step {
        Step::Grant(at, node) => {
            let ids: Vec<RequestId> = job.slots.keys().copied().collect();
            let id = *ids.get(at % ids.len().max(1))?;
            let host: Arc<str> = node_name(*node).into();
            let (node, address) = (format!("tracker_{host}:1").into(), format!("{host}:2").into());
            JobInput::Granted { slots: vec![GrantedSlot { id, node, host, address }] }
        }
        Step::Report(at, state, part) => {
            let (attempt, node) = pick(*at)?;
            let progress = f32::from(*part) / 100.0;
            let start_time_ms = 1_000;
            heartbeat(
                node,
                TaskStatus { progress, start_time_ms, ..TaskStatus::new(attempt, *state) },
            )
        }
        Step::FetchFailure(reduce, map) => {
            let (reduce, node) = pick(*reduce)?;
            let failed_fetches = vec![pick(*map)?.0; 3];
            let progress = ReduceProgress { failed_fetches, ..Default::default() };
            let report = TaskStatus::new(reduce, TaskState::Running);
            heartbeat(node, TaskStatus { reduce: Some(progress), ..report })
        }
        Step::Kill(at, fail) => JobInput::KillAttempt { attempt: pick(*at)?.0, fail: *fail },
        Step::Lose(node) => {
            JobInput::NodeLost { node: format!("tracker_{}:1", node_name(*node)).into() }
        }
        Step::Revoke(at) => {
            let ids: Vec<RequestId> = job.slots.keys().copied().collect();
            JobInput::Revoked { ids: vec![*ids.get(at % ids.len().max(1))?] }
        }
        Step::Hosts(hosts) => JobInput::HostsKnown {
            kind: TaskKind::Map,
            hosts: hosts.iter().map(|host| node_name(*host).into()).collect(),
        },
        Step::CallFailed(at) => {
            let (attempt, node) = pick(*at)?;
            JobInput::CallFailed { node, orders: vec![Order::Launch(attempt)] }
        }
        Step::Wait(_) => JobInput::Tick,
        Step::Speculate(number) => JobInput::Speculate { kind: TaskKind::Map, number: *number },
        Step::KillJob => JobInput::KillJob,
        Step::Resume(false) => JobInput::Resumed,
        Step::Resume(true) => JobInput::ResumedInPlace,
        Step::NotLaunched => JobInput::NotLaunched { attempts: job.attempts_in_doubt() },
    })
}
