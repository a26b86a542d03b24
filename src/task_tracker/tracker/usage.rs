//! What tasks use: looked at from time to time, and when a task or its process ends.

use std::sync::Arc;

use super::TrackerCore;
use super::run::Process;
use crate::child::{RunningChild, TaskUsage};
use crate::table::AttemptRun;
use corona_process::panics::blocking;
use corona_process::procfs;

/// What a process and its descendants have used since its start. Of one in a control group the kernel
/// knows that exactly. `all` are the processes of the machine. It blocks.
pub(super) fn of_process(child: &RunningChild, all: &[procfs::Process]) -> TaskUsage {
    let seen = TaskUsage::of_tree(all, child.pid());
    let Some(group) = child.group() else { return seen };
    let counted = group.usage().after(&seen);
    // Without the controller of memory the group does not know it.
    let memory_bytes =
        if counted.memory_bytes == 0 { seen.memory_bytes } else { counted.memory_bytes };
    TaskUsage { memory_bytes, ..counted }
}

/// What a process has used that is about to take a further task: the task is not charged for it.
/// Descendants are left out, so that this takes no time. It blocks.
pub(super) fn before_task(child: &RunningChild) -> TaskUsage {
    let own: Vec<procfs::Process> = procfs::Process::of(child.pid()).into_iter().collect();
    of_process(child, &own)
}

impl TrackerCore {
    /// Records what a task has used.
    pub(super) fn record_usage(
        &self,
        run: &AttemptRun,
        process: &Process,
        all: &[procfs::Process],
    ) -> TaskUsage {
        let usage = of_process(&process.child, all).since(&process.base);
        self.lock().table.used(run, usage);
        usage
    }

    /// The process that has the task of a run.
    pub(super) fn process_of(&self, run: &AttemptRun) -> Option<Process> {
        self.lock().live.get(&run.number).and_then(|live| live.process.clone())
    }

    /// Records the use of a task that has ended, or whose process has.
    pub(super) async fn record_last_usage(
        self: &Arc<Self>,
        run: &AttemptRun,
        process: Option<Process>,
    ) {
        let Some(process) = process else { return };
        let (shared, run) = (self.clone(), run.clone());
        blocking(move || {
            // Other processes of the machine are not asked for: there may be many, and tasks end often.
            let family = procfs::Procfs::system().family(process.child.pid());
            shared.record_usage(&run, &process, &family);
        })
        .await;
    }
}
