//! The vocabulary of MapReduce jobs, which task trackers, job trackers and tasks share: ids, settings
//! of a job, counters, splits, statuses, completion events and history records.
//!
//! Plain data and its text forms. It knows no socket and no byte of the wire: the objects on the
//! wire are in `corona-hadoop`, and crates that know both convert.

#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod commands;
pub mod counters;
pub mod demand;
pub mod events;
pub mod exact;
pub mod history;
pub mod history_reader;
pub mod ids;
pub mod native;
pub mod node_faults;
pub mod ranges;
pub mod settings;
pub mod splits;
pub mod status;
pub mod streaming_keys;

pub use counters::{Counter, CounterGroup, CounterLimits, CounterNames, Counters, PackedCounters};
pub use demand::TaskDemand;
pub use events::{CompletionEvent, EventStatus};
pub use history::{AttemptEnd, HistoryRecord, JobState, TaskRole};
pub use history_reader::{HistoryAttempt, HistoryTask, JobHistory, PartState};
pub use ids::{AttemptId, AttemptKey, JobId, NotAnId, PerKind, TaskKey, TaskKind};
pub use node_faults::NodeFault;
pub use ranges::{RecordRange, SortedRanges};
pub use settings::JobSettings;
pub use splits::Split;
pub use status::{Phase, ReduceProgress, TaskState, TaskStatus};
