//! Calls from clients to a job tracker. Spec: mapreduce/03 §3.5.

use super::macros::protocol;
use crate::writables::{
    ClusterStatus, Counters, JobId, JobProfile, JobQueueInfo, JobStatus, QueueAclsInfo,
    TaskAttemptId, TaskCompletionEvent, TaskReport,
};

protocol! {
    /// A job tracker, for the client whose job it runs. Corona's job trackers know one job, and
    /// fail for others.
    pub trait JobSubmission as "org.apache.hadoop.mapred.JobSubmissionProtocol", version 22,
        client JobSubmissionClient
    {
        /// Starts the job. A second call only returns the job's status.
        "submitJob" fn submit_job(job: JobId) -> Option<JobStatus>;

        /// The constant properties of a job.
        "getJobProfile" fn get_job_profile(job: JobId) -> Option<JobProfile>;

        /// The status of a job. If the job has ended, the reply waits until its cleanup is
        /// complete.
        "getJobStatus" fn get_job_status(job: JobId) -> Option<JobStatus>;

        /// A job's counters.
        "getJobCounters" fn get_job_counters(job: JobId) -> Option<Counters>;

        /// How the maps stand.
        "getMapTaskReports" fn get_map_task_reports(job: JobId) -> Option<Vec<TaskReport>>;

        /// How the reduces stand.
        "getReduceTaskReports" fn get_reduce_task_reports(job: JobId) -> Option<Vec<TaskReport>>;

        /// How the tasks stand that prepare the job.
        "getSetupTaskReports" fn get_setup_task_reports(job: JobId) -> Option<Vec<TaskReport>>;

        /// How the tasks stand that clean up after it.
        "getCleanupTaskReports" fn get_cleanup_task_reports(job: JobId) -> Option<Vec<TaskReport>>;

        /// The events of a job from this one on, at most so many. None for another job.
        "getTaskCompletionEvents" fn get_task_completion_events(
            job: JobId,
            from: i32,
            max: i32
        ) -> Option<Vec<TaskCompletionEvent>>;

        /// The diagnostics of an attempt.
        "getTaskDiagnostics" fn get_task_diagnostics(
            attempt: TaskAttemptId
        ) -> Option<Vec<Option<String>>>;

        /// Kills the job. With another job's id the session is killed that the id names.
        "killJob" fn kill_job(job: JobId) -> ();

        /// Kills an attempt, as a failure or not. Whether there was something to kill.
        "killTask" fn kill_task(attempt: TaskAttemptId, should_fail: bool) -> bool;

        /// Sets how urgent the job is, by a name of a session's priority.
        "setJobPriority" fn set_job_priority(job: JobId, priority: String) -> ();

        /// A new id. Corona's job trackers make their session for it.
        "getNewJobId" fn get_new_job_id() -> Option<JobId>;

        /// The directory of the cluster's files.
        "getSystemDir" fn get_system_dir() -> Option<String>;

        /// Null in Corona.
        "getFilesystemName" fn get_filesystem_name() -> Option<String>;

        /// Null in Corona.
        "jobsToComplete" fn jobs_to_complete() -> Option<Vec<JobStatus>>;

        /// Null in Corona.
        "getAllJobs" fn get_all_jobs() -> Option<Vec<JobStatus>>;

        /// Null in Corona.
        "getQueues" fn get_queues() -> Option<Vec<JobQueueInfo>>;

        /// Null in Corona.
        "getQueueInfo" fn get_queue_info(queue: String) -> Option<JobQueueInfo>;

        /// Null in Corona.
        "getJobsFromQueue" fn get_jobs_from_queue(queue: String) -> Option<Vec<JobStatus>>;

        /// Null in Corona.
        "getQueueAclsForCurrentUser" fn get_queue_acls_for_current_user(
        ) -> Option<Vec<QueueAclsInfo>>;

        /// Not supported in Corona.
        "getClusterStatus" fn get_cluster_status(detailed: bool) -> Option<ClusterStatus>;
    }
}
