//! What if: a cluster's past against other settings.
//!
//! A [`Workload`] is what a cluster was asked for: its nodes, and sessions with their tasks. It comes from a
//! recording ([`recorded`]), a cluster manager's journal ([`journaled`]), histories of jobs ([`job_histories`]), a
//! trace in the Standard Workload Format ([`swf`]) or a file of its own format ([`file`]). [`simulate`] plays it
//! in virtual time against the cluster engine with any settings, and [`report`] compares the runs with the
//! recording and with one another.
//!
//! It has no clock, threads, sockets or files; readers and writers are arguments.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

pub mod change;
mod distance;
pub mod file;
mod history;
pub mod job_histories;
pub mod journaled;
mod measure;
pub mod recorded;
pub mod report;
mod resources;
mod simulate;
pub mod suggest;
pub mod swf;
#[cfg(test)]
mod tests;
mod workload;

pub use measure::{
    Bin, ClusterResult, GroupResult, LackResult, Reservations, ResourceResult, Run, SessionResult,
    Spread, TypeResult,
};
pub use simulate::{Progress, Setting, simulate};
pub use workload::{Failure, Node, Reading, Session, Task, Workload};
