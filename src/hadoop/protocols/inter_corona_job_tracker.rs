//! Calls to the parent of a job, from remote job trackers and from peers that have lost one. Spec:
//! mapreduce/03 §3.4.

use super::macros::protocol;
use crate::writables::{InetAddress, JobTrackerState, StateUpdate, TaskAttemptId};

protocol! {
    /// The parent of a job: the client that has it run by a remote job tracker.
    pub trait InterCoronaJobTracker as "org.apache.hadoop.mapred.InterCoronaJobTrackerProtocol",
        version 2, client InterCoronaJobTrackerClient
    {
        /// The heartbeat of a remote job tracker. The first one is answered when the parent has
        /// connected to `host` and `port`.
        "reportRemoteCoronaJobTracker" fn report_remote_corona_job_tracker(
            attempt: String,
            host: String,
            port: i32,
            session: String
        ) -> ();

        /// The address of the job tracker that replaced the unresponsive one; null if there is none
        /// yet.
        "getNewJobTrackerAddress" fn get_new_job_tracker_address(
            failed: InetAddress
        ) -> Option<InetAddress>;

        /// Leaves with the parent the state that a next job tracker will need.
        "pushCoronaJobTrackerStateUpdate" fn push_corona_job_tracker_state_update(
            attempt: TaskAttemptId,
            updates: Vec<StateUpdate>
        ) -> ();

        /// All that was left, in the order of time.
        "getCoronaJobTrackerState" fn get_corona_job_tracker_state(
            attempt: TaskAttemptId
        ) -> JobTrackerState;

        /// Records attempts that are about to commit. Returns for each the attempt at the same task
        /// that was recorded before, or null.
        "getAndSetCommitting" fn get_and_set_committing(
            attempt: TaskAttemptId,
            to_commit: Vec<TaskAttemptId>
        ) -> Vec<Option<TaskAttemptId>>;
    }
}
