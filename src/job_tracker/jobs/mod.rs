//! The task of each job, around a [`corona_job_engine::JobEngine`] or, for a job whose job tracker runs on a node, a
//! [`corona_job_engine::parent::Parent`].
//!
//! * `actor`, `inbox`: a task with a bounded queue around either engine; `job`: around that of a job; `remote`: around
//!   the parent's;
//! * `log`: the journal of a job, from which a restart resumes;
//! * `outlet`: what a job's engine decided, which is carried out by `live`; `session_types` translates;
//! * `history`, `end_notice`, `statistics`: for others; `left_output`, `sweeps`: what no task cleans up any more;
//! * `end`: what the service has of all jobs, and what follows the end of each;
//! * `owed`: which sessions must end, whatever happens;
//! * `store`: which jobs there are; `finished`: which of them have ended, for the next run.

pub(crate) mod actor;
pub(crate) mod end;
pub(crate) mod end_notice;
pub(crate) mod finished;
pub(crate) mod history;
pub(crate) mod inbox;
pub(crate) mod job;
pub(crate) mod left_output;
pub(crate) mod live;
pub(crate) mod log;
pub(crate) mod outlet;
pub(crate) mod owed;
pub(crate) mod remote;
pub(crate) mod session_types;
pub(crate) mod statistics;
pub(crate) mod store;
pub(crate) mod sweeps;
