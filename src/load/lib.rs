//! Load for any cluster manager, the original or ours: thousands of emulated task trackers and job
//! trackers over the real wire, the time that this took, and whether the replies were right.
//!
//! A [`Plan`] contains everything that a run will do, [`run`] does it, and a [`Report`] has the
//! results. Nodes send heartbeats over shared connections (`nodes`); each session is one task with
//! its own connection (`crowd`), and one listener receives the notifications of all (`callbacks`).
//! Every grant goes through the `ledger` of its session and the state of its node (`cluster`), and
//! the cluster manager's own counts are compared with them (`audit`).
//!
//! Emulated nodes start no tasks: use a cluster manager without other users.
//!
//! **Invariant:** nothing here knows whose cluster manager it is. It uses the wire and plain types.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod audit;
mod callbacks;
mod cluster;
mod compare;
mod connections;
mod crowd;
mod faults;
mod job_trackers;
mod jobs;
mod ledger;
mod machine;
mod meter;
mod nodes;
mod plan;
mod plot;
mod report;
mod run;
mod session;
#[cfg(test)]
mod tests;
mod world;

pub use compare::{Change, LoadComparison, compare};
pub use faults::{Fault, FaultKind};
pub use job_trackers::JobTrackersPlan;
pub use jobs::{JobsError, JobsPlan, JobsReport, median, run_jobs};
pub use machine::ProcessUse;
pub use plan::{
    Connections, Crowd, Driver, Heartbeats, Job, Nodes, Placement, Plan, PlanError, number,
};
pub use plot::svg;
pub use report::{Report, Timeline, Timing};
pub use run::{LoadError, Progress, run};

use std::time::Duration;

/// The time limit of a run's start: every connection, and the first heartbeat of every node.
const SET_UP_TIME: Duration = Duration::from_secs(60);
/// The time limit of a run's end: the release of all slots, and the ends of sessions.
const ENDING_TIME: Duration = Duration::from_secs(60);
