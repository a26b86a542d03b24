//! Job trackers: [`service`] runs any number of jobs for clients of the original, each around a
//! [`corona_job_engine::JobEngine`] or, for a job whose job tracker runs on a node, a
//! [`corona_job_engine::parent::Parent`].

pub mod service;
