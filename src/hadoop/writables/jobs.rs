//! Jobs, their tasks and queues as clients see them. Spec: mapreduce/02 §2.9.

use super::{Counters, JobId, TaskAttemptId, TaskId, constants, writable};
use crate::io::formats::{
    Enum, Float, Format, Int, List, Long, Plain, Text, VInt, WString, Writable,
};
use crate::io::{DecodeError, Reader, Writer};

constants! {
    /// How urgent a job is.
    pub enum JobPriority: "org.apache.hadoop.mapred.JobPriority" {
        /// Before all others.
        VeryHigh = "VERY_HIGH",
        /// Before most.
        High = "HIGH",
        /// As most are.
        Normal = "NORMAL",
        /// After most.
        Low = "LOW",
        /// After all others.
        VeryLow = "VERY_LOW",
    }
}

writable! {
    /// The status of a job.
    #[derive(Clone, Debug, PartialEq)]
    pub struct JobStatus: "org.apache.hadoop.mapred.JobStatus" {
        /// The job's id.
        pub job: JobId as Plain,
        /// Of the set-up task, from 0 to 1.
        pub setup_progress: f32 as Float,
        /// Of the maps, from 0 to 1.
        pub map_progress: f32 as Float,
        /// Of the reduces, from 0 to 1.
        pub reduce_progress: f32 as Float,
        /// Of the clean-up task, from 0 to 1.
        pub cleanup_progress: f32 as Float,
        /// 1 running, 2 succeeded, 3 failed, 4 not begun, 5 killed.
        pub run_state: i32 as Int,
        /// Milliseconds since the Unix epoch.
        pub start_time_ms: i64 as Long,
        /// Whose job it is.
        pub user: String as Text,
        /// How urgent it is.
        pub priority: JobPriority as Enum,
        /// A scheduler's information about it; `NA` if none.
        pub scheduling_info: String as Text,
    }
}

writable! {
    /// The constant properties of a job.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct JobProfile: "org.apache.hadoop.mapred.JobProfile" {
        /// The job's id.
        pub job: JobId as Plain,
        /// Where its configuration is.
        pub job_file: String as Text,
        /// Its page, for people.
        pub url: String as Text,
        /// Whose job it is.
        pub user: String as Text,
        /// The name that its user gave it.
        pub name: String as Text,
        /// The queue to which it was submitted.
        pub queue: String as Text,
    }
}

writable! {
    /// A queue to which jobs are submitted.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct JobQueueInfo: "org.apache.hadoop.mapred.JobQueueInfo" {
        /// The queue's name.
        pub name: String as Text,
        /// A scheduler's information about it; `N/A` if none.
        pub scheduling_info: String as Text,
    }
}

writable! {
    /// A user's permissions for a queue.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct QueueAclsInfo: "org.apache.hadoop.mapred.QueueAclsInfo" {
        /// The queue.
        pub name: String as Text,
        /// Names of the operations that the user may perform there.
        pub operations: Vec<String> as List<Int, WString>,
    }
}

writable! {
    /// The status of a task.
    #[derive(Clone, Debug, PartialEq)]
    pub struct TaskReport: "org.apache.hadoop.mapred.TaskReport" {
        /// The task's id.
        pub task: TaskId as Plain,
        /// From 0 to 1.
        pub progress: f32 as Float,
        /// The task's own status text.
        pub state_string: String as Text,
        /// Milliseconds since the Unix epoch.
        pub start_time_ms: i64 as Long,
        /// Milliseconds since the Unix epoch, 0 if it has not ended.
        pub finish_time_ms: i64 as Long,
        /// The diagnostics of its attempts.
        pub diagnostics: Vec<String> as List<Int, WString>,
        /// The task's counters.
        pub counters: Counters as Plain,
        /// Its state, with the attempts that belong to it.
        pub state: TaskReportState as Plain,
    }
}

/// The state of a task, and the attempts that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskReportState {
    /// It has not begun.
    Pending,
    /// These attempts run.
    Running(Vec<TaskAttemptId>),
    /// This attempt succeeded.
    Complete(TaskAttemptId),
    /// It was killed.
    Killed,
    /// Too many of its attempts failed.
    Failed,
}

constants! {
    /// The name of a task's state.
    pub(super) enum TipStatus: "org.apache.hadoop.mapred.TIPStatus" {
        /// See [`TaskReportState::Pending`].
        Pending = "PENDING",
        /// See [`TaskReportState::Running`].
        Running = "RUNNING",
        /// See [`TaskReportState::Complete`].
        Complete = "COMPLETE",
        /// See [`TaskReportState::Killed`].
        Killed = "KILLED",
        /// See [`TaskReportState::Failed`].
        Failed = "FAILED",
    }
}

impl Writable for TaskReportState {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match Enum::decode(reader)? {
            TipStatus::Pending => TaskReportState::Pending,
            TipStatus::Running => TaskReportState::Running(List::<VInt, Plain>::decode(reader)?),
            TipStatus::Complete => TaskReportState::Complete(Plain::decode(reader)?),
            TipStatus::Killed => TaskReportState::Killed,
            TipStatus::Failed => TaskReportState::Failed,
        })
    }

    fn encode(&self, writer: &mut Writer) {
        let status = match self {
            TaskReportState::Pending => TipStatus::Pending,
            TaskReportState::Running(_) => TipStatus::Running,
            TaskReportState::Complete(_) => TipStatus::Complete,
            TaskReportState::Killed => TipStatus::Killed,
            TaskReportState::Failed => TipStatus::Failed,
        };
        Enum::encode(&status, writer);
        match self {
            TaskReportState::Running(attempts) => List::<VInt, Plain>::encode(attempts, writer),
            TaskReportState::Complete(attempt) => attempt.encode(writer),
            _ => {}
        }
    }
}
