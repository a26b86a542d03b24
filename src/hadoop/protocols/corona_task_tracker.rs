//! Orders from job trackers to task trackers. Spec: mapreduce/03 §3.1.

use super::macros::protocol;
use crate::writables::{SessionInfo, Task, TaskTrackerAction};

protocol! {
    /// A task tracker, for the job trackers that were granted its slots.
    pub trait CoronaTaskTracker as "org.apache.hadoop.mapred.CoronaTaskTrackerProtocol", version 2,
        client CoronaTaskTrackerClient
    {
        /// Takes actions, in order. Those without a session are ignored; later failures are
        /// reported in heartbeats. Null is no action at all.
        "submitActions" fn submit_actions(actions: Option<Vec<TaskTrackerAction>>) -> ();

        /// Starts a job tracker as a process of its own. An error only if that cannot be prepared.
        "startCoronaJobTracker" fn start_corona_job_tracker(task: Task, session: SessionInfo) -> ();
    }
}
