//! Periodic checks: memory of tasks, their logs, the local directories.
//!
//! Spec: mapreduce/04 §4.4, §4.11, §4.14.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use super::{TrackerCore, pulse};
use crate::attempt::Cause;
use crate::child::{Cgroups, MemoryLimits, TaskMemory, tasks_to_kill};
use crate::ids::AttemptId;
use crate::machine_stats::machine;
use crate::table::AttemptRun;
use corona_config::MemorySettings;
use corona_process::procfs;

/// Begins to look, until the tracker is stopped.
pub(super) fn start(shared: &Arc<TrackerCore>) {
    let settings = &shared.parts.settings;
    repeat(shared, pulse::BEAT, |shared| shared.pulse().beat(Instant::now()));
    repeat(shared, settings.memory.interval, |shared| shared.look_at_tasks());
    repeat(shared, settings.log_check_interval, |shared| shared.limit_logs());
    repeat(shared, settings.log_cleanup_interval, |shared| shared.clean_up_logs());
    repeat(shared, settings.dirs_check_interval, |shared| shared.check_dirs());
}

/// Looks after each pause, on a thread that may wait.
fn repeat(
    shared: &Arc<TrackerCore>,
    pause: Duration,
    look: impl Fn(&Arc<TrackerCore>) + Clone + Send + 'static,
) {
    let (theirs, mut stop) = (shared.clone(), shared.stop.subscribe());
    shared.spawn(async move {
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = sleep(pause) => {}
            }
            let (shared, look) = (theirs.clone(), look.clone());
            if tokio::task::spawn_blocking(move || look(&shared)).await.is_err() {
                tracing::error!(
                    "a check of the tasks panicked; checking again after the usual interval"
                );
            }
        }
    });
}

impl TrackerCore {
    /// Records what tasks use, and ends those that take too much of the memory.
    fn look_at_tasks(self: &Arc<Self>) {
        let processes: Vec<(AttemptRun, AttemptId, super::run::Process)> = {
            let state = self.lock();
            let live = state.live.values();
            live.filter_map(|live| {
                Some((live.run.clone(), live.name.clone(), live.process.clone()?))
            })
            .collect()
        };
        if processes.is_empty() {
            return;
        }
        let all = procfs::Process::all();
        let tasks: Vec<TaskMemory> = processes
            .iter()
            .map(|(run, attempt, process)| TaskMemory {
                attempt: attempt.clone(),
                pid: process.child.pid(),
                resident_bytes: self.record_usage(run, process, &all).memory_bytes,
                limit_bytes: process.memory_bytes,
            })
            .collect();
        let MemorySettings { reserved_bytes, is_strict, .. } = self.parts.settings.memory;
        // The kernel limits each task by itself if it can.
        let is_strict =
            is_strict && !self.parts.cgroups.as_ref().is_some_and(Cgroups::limits_memory);
        if reserved_bytes.is_none() && !is_strict {
            return;
        }
        let reserved_bytes = reserved_bytes.unwrap_or(0);
        let machine = machine(&self.parts.settings.memory);
        let limits = MemoryLimits {
            total_bytes: machine.memory_bytes,
            available_bytes: machine.available_bytes,
            reserved_bytes,
            is_strict,
        };
        let kills = tasks_to_kill(&tasks, limits);
        if kills.iter().any(|kill| !kill.is_failure) && self.end_idle_processes() {
            // Their memory may be enough; if not, the next look will tell.
            return;
        }
        for kill in kills {
            let cause = if kill.is_failure { Cause::Failure } else { Cause::Request };
            // Of an attempt one run at a time has a process.
            let Some((run, ..)) = processes.iter().find(|(_, name, _)| *name == kill.attempt)
            else {
                continue;
            };
            tracing::info!(attempt = %kill.attempt, why = kill.diagnostics, "killing a task");
            self.apply(|table, now| table.kill(run, cause, &kill.diagnostics, now));
        }
    }

    /// Ends processes that wait for tasks. False if there are none.
    fn end_idle_processes(&self) -> bool {
        let idle = self.lock().jvms.drain_idle();
        for child in &idle {
            child.kill();
        }
        !idle.is_empty()
    }

    /// Cuts the logs of running tasks that are too large.
    fn limit_logs(&self) {
        for attempt in self.running() {
            match self.parts.logs.limit_output(&attempt) {
                Ok(cut) => {
                    for log in cut {
                        let log = log.file_name();
                        tracing::info!(%attempt, log, "freed the older half of a log");
                    }
                }
                Err(error) => {
                    tracing::warn!(%attempt, %error, "cannot shorten the logs of a task");
                }
            }
        }
    }

    /// Deletes logs that are too old.
    fn clean_up_logs(&self) {
        let mut in_use: HashSet<AttemptId> = self.running().into_iter().collect();
        in_use.extend(self.lock().kept_logs.keys().cloned());
        let is_in_use = |name: &str| name.parse().is_ok_and(|name| in_use.contains(&name));
        let deleted = self.parts.logs.clean_up(SystemTime::now(), &is_in_use);
        if deleted > 0 {
            tracing::info!(deleted, "deleted the logs of old attempts");
        }
    }

    fn check_dirs(&self) {
        let deletion = self.parts.localiser.deletion();
        for change in self.parts.dirs.check(|dir| deletion.discard_all_in(dir)) {
            let path = change.path.display();
            match change.failed {
                Some(why) => tracing::error!(%path, why, "local directory is unusable"),
                None => tracing::info!(%path, "local directory is usable again"),
            }
        }
    }

    /// The attempts that have been begun.
    fn running(&self) -> Vec<AttemptId> {
        self.lock().live.values().map(|live| live.name.clone()).collect()
    }
}
