//! Child processes: the command line of a task, the process and all that it starts, its logs, its
//! memory, and leftovers of an earlier run.
//!
//! * `command.rs`: the command line, a pure function of the attempt and the install;
//! * `job_tracker.rs`: the same for a job tracker;
//! * `process.rs`: starting, waiting, ending with all descendants;
//! * `orphans.rs`: a note on disk for each process, and ending those of an earlier run;
//! * `logs.rs`: directories of logs, their bounds and their clean-up;
//! * `profile.rs`: the option of a profiled Java task;
//! * `debug.rs`: a job's debug script, after a failure;
//! * `cgroup.rs`: control groups of the kernel;
//! * `class_archive.rs`: an archive of classes for sooner starts of Java;
//! * `usage.rs`: what processes use;
//! * `memory.rs`: the choice of tasks to kill when memory runs short, a pure function.
//!
//! Spec: mapreduce/04 §4.5, §4.10, §4.11, §4.14.

mod cgroup;
mod class_archive;
mod command;
mod debug;
mod job_tracker;
mod logs;
mod memory;
mod orphans;
mod process;
mod profile;
mod usage;

pub use cgroup::{CgroupError, CgroupLimits, Cgroups, TaskGroup};
pub use class_archive::{ArchivedInstall, ClassArchive, ClassArchives, JavaVersion};
pub use command::{ChildCommand, CommandError, DirectCommand, Install, Launch, Native, command};
pub use debug::{DebugScript, MAX_DEBUG_BYTES};
pub use job_tracker::{JobTrackerLaunch, job_tracker};
pub use logs::{LogFile, LogPart, Logs};
pub use memory::{MemoryKill, MemoryLimits, TaskMemory, exceeded, tasks_to_kill};
pub use orphans::{ProcessNotes, end_noted, end_orphans};
pub use process::{Exit, HandedChild, RunningChild, StartError, adopt, end_strays, start};
pub use usage::TaskUsage;

#[cfg(test)]
pub(super) use logs::tests::logs as test_logs;
