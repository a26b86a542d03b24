//! The calls of Hadoop RPC.
//!
//! * `clients`: those of clients; `job_files`: for the files of their jobs; `access`: who may do what;
//!   `shared_files`: whether machines see the files of a job;
//! * `inter_tracker`: those of task trackers, tasks and remote job trackers;
//! * `answers`: what is replied, translated from jobs; pure.

pub(crate) mod access;
pub(crate) mod answers;
pub(crate) mod clients;
pub(crate) mod inter_tracker;
pub(crate) mod job_files;
pub(crate) mod shared_files;
