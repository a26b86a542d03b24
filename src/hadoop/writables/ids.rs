//! Identifiers of jobs, tasks, attempts and child processes. Spec: mapreduce/02 §2.2.
//!
//! On the wire the parts come from the inside out: an attempt begins with its own number and ends
//! with the job it belongs to. [`names`](super::names) has their text forms.

use super::writable;
use crate::io::formats::{Bool, Int, Plain, Text};

writable! {
    /// A job: `job_<tracker>_<number>`.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct JobId: "org.apache.hadoop.mapred.JobID" {
        /// Its number within its tracker: 1, unless a remote job tracker was restarted.
        pub number: i32 as Int,
        /// The id of the job tracker's session; the original calls it the identifier of the job
        /// tracker.
        pub tracker: String as Text,
    }
}

writable! {
    /// A task of a job: one map or one reduce.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct TaskId: "org.apache.hadoop.mapred.TaskID" {
        /// Its number among the maps or the reduces of the job.
        pub number: i32 as Int,
        /// Its job.
        pub job: JobId as Plain,
        /// Whether it is a map; otherwise it is a reduce.
        pub is_map: bool as Bool,
    }
}

writable! {
    /// One attempt at a task.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct TaskAttemptId: "org.apache.hadoop.mapred.TaskAttemptID" {
        /// Its number among the attempts at the task, from 0.
        pub number: i32 as Int,
        /// Its task.
        pub task: TaskId as Plain,
    }
}

impl TaskAttemptId {
    /// The job that it belongs to.
    pub fn job(&self) -> &JobId {
        &self.task.job
    }
}

writable! {
    /// A child process of a task tracker.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct JvmId: "org.apache.hadoop.mapred.JVMId" {
        /// A random number, which may be negative.
        pub number: i32 as Int,
        /// The job whose tasks it runs.
        pub job: JobId as Plain,
        /// Whether it runs maps.
        pub is_map: bool as Bool,
    }
}

writable! {
    /// A child process's identity when it asks for a task.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct JvmContext: "org.apache.hadoop.mapred.JvmContext" {
        /// The JVM's id.
        pub jvm: JvmId as Plain,
        /// Its process id, as its parent passed it.
        pub pid: String as Text,
    }
}
