//! Calls from task trackers and reduces to a job tracker. Spec: mapreduce/03 §3.2.

use super::macros::protocol;
use crate::writables::{HeartbeatResponse, JobId, TaskCompletionEvent, TaskTrackerStatus};

/// The end of the message with which a job tracker of ours refuses reports and questions about a job that it does
/// not run any more. Those of Java run one job, and end with it.
pub const JOB_IS_OVER: &str = "has ended or is not known here";

protocol! {
    /// A job tracker, for the trackers that run its tasks and for their reduces.
    pub trait InterTracker as "org.apache.hadoop.mapred.InterTrackerProtocol", version 29,
        client InterTrackerClient
    {
        /// Takes the reports of a tracker's tasks. `response_id` is that of the last answer, -1 at
        /// first. In Corona the answer has no actions: they are pushed.
        "heartbeat" fn heartbeat(
            status: TaskTrackerStatus,
            restarted: bool,
            initial_contact: bool,
            accept_new_tasks: bool,
            response_id: i16
        ) -> HeartbeatResponse;

        /// The build of the job tracker: `<version> from <revision> by <user> on <date>`. Trackers of
        /// the original report to no job tracker of another build, unless they are configured to.
        "getBuildVersion" fn get_build_version() -> String;

        /// The events of a job from this one on, at most so many. None for another job.
        "getTaskCompletionEvents" fn get_task_completion_events(
            job: JobId,
            from: i32,
            max: i32
        ) -> Vec<TaskCompletionEvent>;

        /// The directory of the cluster's files. Corona's trackers do not ask.
        "getSystemDir" fn get_system_dir() -> Option<String>;

        /// Null in Corona.
        "getFilesystemName" fn get_filesystem_name() -> Option<String>;

        /// Records that a tracker has given up, and why.
        "reportTaskTrackerError" fn report_task_tracker_error(
            tracker: Option<String>,
            error_class: Option<String>,
            message: Option<String>
        ) -> ();
    }
}
