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

use std::sync::Arc;

use corona_hadoop::protocols::{
    ALL, inter_corona_job_tracker, inter_tracker as tracker_protocol, job_files as file_protocol,
    job_submission,
};
use corona_hadoop::rpc::Services;

use self::clients::ClientCalls;
use self::inter_tracker::TrackerCalls;
use self::job_files::FileCalls;

/// All calls that the service serves.
pub(crate) struct Calls {
    pub(crate) clients: Arc<ClientCalls>,
    pub(crate) trackers: Arc<TrackerCalls>,
    pub(crate) files: Arc<FileCalls>,
}

impl Calls {
    pub(crate) fn services(&self) -> Services {
        Services::new()
            .offer(job_submission::Served::new(self.clients.clone()))
            .offer(tracker_protocol::Served::new(self.trackers.clone()))
            .offer(inter_corona_job_tracker::Served::new(self.trackers.clone()))
            .offer(file_protocol::Served::new(self.files.clone()))
            .know(ALL)
    }
}
