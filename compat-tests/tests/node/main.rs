//! The built program as a node of a cluster.

mod access;
mod frameworks;
mod hadoop;
mod job_tracker;
mod jobs;
mod mini_cluster;
mod mistakes;
mod native_jobs;
mod objects;
mod proxy_job_tracker;
mod python;
mod resources;
mod rights;
mod run;
mod several_machines;
mod task_tracker;
mod upgrades;
