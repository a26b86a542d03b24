//! Job trackers: [`service`] runs any number of jobs for clients of the original, each around a
//! [`corona_job_engine::JobEngine`] or, for a job whose job tracker runs on a node, a
//! [`corona_job_engine::parent::Parent`].

#![allow(missing_docs, reason = "not a public API: a name that says it all needs no comment")]

pub mod service;
