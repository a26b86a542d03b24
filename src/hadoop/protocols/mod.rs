//! The protocols of Corona's MapReduce side and of the distributed file system, method by method.
//!
//! Each file has one protocol: a trait for servers, a client, and the [`Protocol`] that both are
//! generated from. The meaning of a method is documented beside it; its implementation is
//! elsewhere. Spec: mapreduce/03, mapreduce/01 §1.6, hdfs/01 §1.3.

pub mod client_datanode;
pub mod client_protocol;
pub mod cluster_manager_safe_mode;
pub mod corona_task_tracker;
pub mod inter_corona_job_tracker;
pub mod inter_tracker;
pub mod job_aggregator;
pub mod job_files;
pub mod job_submission;
mod macros;
pub mod task_umbilical;
#[cfg(test)]
mod tests;

use super::rpc::Protocol;

/// The protocols of the distributed file system.
pub const HDFS: &[&Protocol] = &[&client_protocol::PROTOCOL, &client_datanode::PROTOCOL];

/// All protocols of a MapReduce cluster, whichever program serves them.
pub const ALL: &[&Protocol] = &[
    &corona_task_tracker::PROTOCOL,
    &inter_corona_job_tracker::PROTOCOL,
    &inter_tracker::PROTOCOL,
    &task_umbilical::PROTOCOL,
    &job_submission::PROTOCOL,
    &cluster_manager_safe_mode::PROTOCOL,
    &job_aggregator::PROTOCOL,
];
