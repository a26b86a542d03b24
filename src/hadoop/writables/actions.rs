//! Actions of trackers, and the reply to a heartbeat. Spec: mapreduce/02 §2.7.

use super::task_status::Tagged;
use super::{JobId, Named, SessionInfo, Task, TaskAttemptId, constants, writable};
use crate::io::formats::{
    Constant, Enum, Format, Int, List, Plain, Short, VInt, WString, Writable,
};
use crate::io::{DecodeError, Reader, Writer};

constants! {
    /// The kind of an action.
    pub(super) enum ActionType: "org.apache.hadoop.mapred.TaskTrackerAction$ActionType" {
        /// See [`Action::Launch`].
        LaunchTask = "LAUNCH_TASK",
        /// See [`Action::KillTask`].
        KillTask = "KILL_TASK",
        /// See [`Action::KillJob`].
        KillJob = "KILL_JOB",
        /// See [`Action::Reinit`].
        ReinitTracker = "REINIT_TRACKER",
        /// See [`Action::Commit`].
        CommitTask = "COMMIT_TASK",
    }
}

/// Something that a tracker is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskTrackerAction {
    /// On whose behalf. Corona's trackers ignore an action without.
    pub session: Option<SessionInfo>,
    /// The order itself.
    pub action: Action,
}

/// An action for a tracker.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start an attempt.
    Launch(Box<Task>),
    /// End an attempt.
    KillTask(TaskAttemptId),
    /// End all attempts of a job and forget it.
    KillJob(JobId),
    /// Let an attempt commit its output.
    Commit(TaskAttemptId),
    /// Restart. Corona's trackers ignore it.
    Reinit,
}

const LAUNCH: &str = "org.apache.hadoop.mapred.LaunchTaskAction";
const KILL_TASK: &str = "org.apache.hadoop.mapred.KillTaskAction";
const KILL_JOB: &str = "org.apache.hadoop.mapred.KillJobAction";
const COMMIT: &str = "org.apache.hadoop.mapred.CommitTaskAction";
const REINIT: &str = "org.apache.hadoop.mapred.ReinitTrackerAction";

impl TaskTrackerAction {
    fn kind(&self) -> ActionType {
        match self.action {
            Action::Launch(_) => ActionType::LaunchTask,
            Action::KillTask(_) => ActionType::KillTask,
            Action::KillJob(_) => ActionType::KillJob,
            Action::Commit(_) => ActionType::CommitTask,
            Action::Reinit => ActionType::ReinitTracker,
        }
    }

    /// Reads an action whose kind is known from the bytes before it.
    fn decode(kind: ActionType, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let said: ActionType = Enum::decode(reader)?;
        if said != kind {
            return Err(DecodeError::constant(kind.name(), said.name()));
        }
        let attached: String = WString::decode(reader)?;
        let session = match attached.as_str() {
            "" => None,
            SessionInfo::DECLARED => Some(SessionInfo::decode(reader)?),
            other => return Err(DecodeError::class(other)),
        };
        let action = match kind {
            ActionType::LaunchTask => Action::Launch(Box::new(Tagged::decode(reader)?)),
            ActionType::KillTask => Action::KillTask(Plain::decode(reader)?),
            ActionType::KillJob => Action::KillJob(Plain::decode(reader)?),
            ActionType::CommitTask => Action::Commit(Plain::decode(reader)?),
            ActionType::ReinitTracker => Action::Reinit,
        };
        Ok(TaskTrackerAction { session, action })
    }
}

impl Named for TaskTrackerAction {
    const DECLARED: &'static str = "org.apache.hadoop.mapred.TaskTrackerAction";
    const ARRAY: &'static str = "[Lorg.apache.hadoop.mapred.TaskTrackerAction;";
    const CLASSES: &'static [&'static str] = &[LAUNCH, KILL_TASK, KILL_JOB, COMMIT, REINIT];

    fn class(&self) -> &'static str {
        match self.action {
            Action::Launch(_) => LAUNCH,
            Action::KillTask(_) => KILL_TASK,
            Action::KillJob(_) => KILL_JOB,
            Action::Commit(_) => COMMIT,
            Action::Reinit => REINIT,
        }
    }

    fn decode_fields(class: &str, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = match class {
            LAUNCH => ActionType::LaunchTask,
            KILL_TASK => ActionType::KillTask,
            KILL_JOB => ActionType::KillJob,
            COMMIT => ActionType::CommitTask,
            REINIT => ActionType::ReinitTracker,
            other => return Err(DecodeError::class(other)),
        };
        TaskTrackerAction::decode(kind, reader)
    }

    fn encode_fields(&self, writer: &mut Writer) {
        Enum::encode(&self.kind(), writer);
        match &self.session {
            None => writer.wstring(Some("")),
            Some(session) => {
                writer.wstring(Some(SessionInfo::DECLARED));
                session.encode(writer);
            }
        }
        match &self.action {
            Action::Launch(task) => Tagged::encode(&**task, writer),
            Action::KillTask(attempt) | Action::Commit(attempt) => attempt.encode(writer),
            Action::KillJob(job) => job.encode(writer),
            Action::Reinit => {}
        }
    }
}

writable! {
    /// A job tracker's reply to a heartbeat.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct HeartbeatResponse: "org.apache.hadoop.mapred.HeartbeatResponse" {
        /// To be sent with the next heartbeat.
        pub response_id: i16 as Short,
        /// When the next heartbeat is due, in milliseconds.
        pub interval_ms: i32 as Int,
        /// Always empty in Corona, where actions are pushed.
        pub actions: Vec<TaskTrackerAction> as List<VInt, AfterItsKind>,
        /// Jobs that a job tracker recovered. Always empty in Corona.
        pub recovered: Vec<JobId> as List<Int, Plain>,
    }
}

/// An action after its kind, which it then repeats.
#[derive(Debug)]
struct AfterItsKind;

impl Format<TaskTrackerAction> for AfterItsKind {
    fn decode(reader: &mut Reader<'_>) -> Result<TaskTrackerAction, DecodeError> {
        let kind = Enum::decode(reader)?;
        TaskTrackerAction::decode(kind, reader)
    }

    fn encode(value: &TaskTrackerAction, writer: &mut Writer) {
        Enum::encode(&value.kind(), writer);
        value.encode_fields(writer);
    }
}
