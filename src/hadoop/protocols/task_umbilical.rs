//! Calls from the process of a task to the tracker that started it. Spec: mapreduce/03 §3.3.

use super::macros::protocol;
use crate::writables::{
    JobId, JvmContext, JvmTask, MapTaskCompletionEventsUpdate, RecordRange, TaskAttemptId,
    TaskStatus,
};

protocol! {
    /// A task tracker, for the processes of its tasks.
    pub trait TaskUmbilical as "org.apache.hadoop.mapred.TaskUmbilicalProtocol", version 18,
        client TaskUmbilicalClient
    {
        /// Returns a process's task, or orders it to ask again later, or to end.
        "getTask" fn get_task(context: JvmContext) -> JvmTask;

        /// Takes a report. False if the attempt is not known: the process ends then.
        "statusUpdate" fn status_update(attempt: TaskAttemptId, status: TaskStatus) -> bool;

        /// Records that the attempt lives. False if it is unknown.
        "ping" fn ping(attempt: TaskAttemptId) -> bool;

        /// Adds to the diagnostics.
        "reportDiagnosticInfo" fn report_diagnostic_info(
            attempt: TaskAttemptId,
            text: Option<String>
        ) -> ();

        /// Reports the next records, for tasks that skip bad ones.
        "reportNextRecordRange" fn report_next_record_range(
            attempt: TaskAttemptId,
            range: RecordRange
        ) -> ();

        /// Takes a report of an attempt that waits to commit its output.
        "commitPending" fn commit_pending(attempt: TaskAttemptId, status: TaskStatus) -> ();

        /// Whether the attempt may commit its output now.
        "canCommit" fn can_commit(attempt: TaskAttemptId) -> bool;

        /// The attempt has done its work.
        "done" fn done(attempt: TaskAttemptId) -> ();

        /// The attempt cannot fetch map outputs.
        "shuffleError" fn shuffle_error(attempt: TaskAttemptId, message: Option<String>) -> ();

        /// The attempt cannot continue because a file system fails.
        "fsError" fn fs_error(attempt: TaskAttemptId, message: Option<String>) -> ();

        /// The attempt cannot continue.
        "fatalError" fn fatal_error(attempt: TaskAttemptId, message: Option<String>) -> ();

        /// Events of the maps of a job. In Corona reduces ask the job tracker.
        "getMapCompletionEvents" fn get_map_completion_events(
            job: JobId,
            from: i32,
            max: i32,
            attempt: TaskAttemptId
        ) -> MapTaskCompletionEventsUpdate;
    }
}
