//! Job trackers. [`JobTracker`] is the service: clients of the original submit to it, and it runs each job in a
//! session of its own on the task trackers of the cluster, Java or ours. All jobs share one set of ports.
//! [`standalone::RemoteJobTracker`] runs one job, for a parent elsewhere.
//!
//! ```text
//!  clients ──► rpc ──► submit ──► jobs (a task ──► launch ──► task trackers
//!  task trackers ──► rpc ───────►  each)       ──► session driver ──► cluster manager
//! ```
//!
//! * `service`: opens the ports, and owns what the parts share; `home`: its directory; `clock`, `http`, `meter`: the
//!   time of jobs, requests to others, and what is counted;
//! * `rpc`: the calls of clients, task trackers and job trackers, and who may make them;
//! * `submit`: how a job is submitted, waits for a place, begins and resumes;
//! * `jobs`: the task of each job around its engine, its journal, session and history, and the list of all;
//! * `launch`: which task trackers there are, and the orders to them;
//! * `pages`: pages, JSON and metrics;
//! * `standalone`: one job, for a parent elsewhere.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod clock;
mod home;
mod http;
mod jobs;
mod launch;
mod meter;
mod pages;
mod rpc;
mod service;
pub mod standalone;
mod submit;

pub use jobs::log::FILES_OF_JOBS;
pub use service::{Addresses, Ending, JobTracker, Keeper, KeptService, StartError};

/// The whole part of a number: 0 for a negative number and for NaN, and at most `u32::MAX`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn whole_part(number: f64) -> u32 {
    number as u32
}
