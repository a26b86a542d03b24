//! Corona: MapReduce and scheduling on Hadoop Corona's protocols, compatible on the wire with the original in Java.
//!
//! The rooms of the house. Each is a crate of the workspace, in the folder of
//! its name below `src/`; the compiler and `tests/walls.rs` hold the walls.
//! `docs/develop/architecture.md` has the map.

pub use corona_access as access;
pub use corona_api as api;
pub use corona_cluster_manager as cluster_manager;
#[cfg(test)]
mod compatibility_tests;
pub use corona_config as config;
pub use corona_conformance as conformance;
pub use corona_demo as demo;
pub use corona_engine as engine;
pub use corona_filesystem as filesystem;
pub use corona_hadoop as hadoop;
pub use corona_job_engine as job_engine;
pub use corona_job_simulation as job_simulation;
pub use corona_job_tracker as job_tracker;
pub use corona_job_wire as job_wire;
pub use corona_journal as journal;
pub use corona_load as load;
pub use corona_mapreduce as mapreduce;
pub use corona_model as model;
pub use corona_net as net;
pub use corona_process as process;
pub use corona_proxy_job_tracker as proxy_job_tracker;
pub use corona_session_driver as session_driver;
pub use corona_simulation as simulation;
pub use corona_task as task;
pub use corona_task_tracker as task_tracker;
pub use corona_what_if as what_if;
pub use corona_wire as wire;
