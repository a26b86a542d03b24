//! Times and limits of a tracker.

use std::time::Duration;

use crate::table::TableLimits;
use corona_config::{MemorySettings, TaskTrackerSettings};
use corona_hadoop::rpc::User;

/// Times and limits of a tracker.
#[derive(Clone, Debug)]
pub struct TrackerSettings {
    /// Its identity to job trackers.
    pub user: User,
    /// How much it knows at most.
    pub table: TableLimits,
    /// The time between SIGTERM and SIGKILL.
    pub sigkill_delay: Duration,
    /// For bringing the files of a task and its job here. Spec: mapreduce/04 §4.4.
    pub localise_timeout: Duration,
    /// How long a `done` may come after the end of its process. Spec: mapreduce/04 §4.6.
    pub late_done: Duration,
    /// The time that a process has after its `done` before it is ended.
    pub exit_grace: Duration,
    /// How long a process that may take a further task waits for one.
    pub jvm_idle: Duration,
    /// How long such a process may take to ask for a task that it is to run.
    pub jvm_take_timeout: Duration,
    /// The time that a job's debug script has.
    pub debug_timeout: Duration,
    /// How long the end of the tracker waits for the ends of processes.
    pub stop_timeout: Duration,
    /// How the memory of tasks is looked after.
    pub memory: MemorySettings,
    /// Pause between checks of the size of running tasks' logs.
    pub log_check_interval: Duration,
    /// Pause between looks for logs that are too old.
    pub log_cleanup_interval: Duration,
    /// Pause between checks of the local directories.
    pub dirs_check_interval: Duration,
    /// The reports to job trackers.
    pub reports: ReportSettings,
}

/// The reports to job trackers about their attempts. Spec: mapreduce/04 §4.8, mapreduce/03 §3.4.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// Pause before the first heartbeat; the job tracker sets the later ones.
    pub interval: Duration,
    /// The shortest pause that a job tracker can ask for.
    pub min_interval: Duration,
    /// The longest one.
    pub max_interval: Duration,
    /// Pause between heartbeats without reports.
    pub slow_interval: Duration,
    /// For the first connection to a job tracker.
    pub connect_timeout: Duration,
    /// How long a later connection is retried while it is refused.
    pub connect_patience: Duration,
    /// Pause between two attempts to connect.
    pub connect_pause: Duration,
    /// For the answer to a call.
    pub call_timeout: Duration,
    /// Errors in a row after which a job tracker is given up.
    pub max_errors: u32,
    /// How often a secondary is asked for a new job tracker, with a heartbeat's pause in between.
    pub fail_over_queries: u32,
    /// How many successors in a row may be unreachable.
    pub fail_over_rounds: u32,
    /// For the connection to a secondary.
    pub secondary_timeout: Duration,
    /// Whether news are reported at once, and not with the next heartbeat.
    pub out_of_band: bool,
    /// The build that job trackers must be of; `None`: any.
    pub build_version: Option<String>,
}

impl Default for ReportSettings {
    fn default() -> Self {
        ReportSettings {
            interval: Duration::from_secs(3),
            min_interval: Duration::from_millis(50),
            max_interval: Duration::from_secs(600),
            slow_interval: Duration::from_secs(180),
            connect_timeout: Duration::from_secs(60),
            connect_patience: Duration::from_secs(11),
            connect_pause: Duration::from_secs(1),
            call_timeout: Duration::from_secs(300),
            max_errors: 10,
            fail_over_queries: 600,
            fail_over_rounds: 8,
            secondary_timeout: Duration::from_secs(30),
            out_of_band: false,
            build_version: None,
        }
    }
}

impl TrackerSettings {
    /// As configured; values without a key are the original's.
    pub fn of(settings: &TaskTrackerSettings, user: User) -> TrackerSettings {
        let short_cpu_ms = settings.child.short_task.as_millis();
        TrackerSettings {
            user,
            table: TableLimits {
                short_cpu_ms: u64::try_from(short_cpu_ms).unwrap_or(u64::MAX),
                ..TableLimits::default()
            },
            sigkill_delay: settings.child.sigkill_delay,
            localise_timeout: Duration::from_secs(600),
            late_done: Duration::from_secs(3),
            exit_grace: Duration::from_secs(5),
            jvm_idle: settings.child.jvm_idle,
            // The original's tasks ask every 1.5 seconds.
            jvm_take_timeout: Duration::from_secs(10),
            debug_timeout: settings.child.debug_timeout,
            stop_timeout: settings.child.sigkill_delay + Duration::from_secs(10),
            memory: settings.memory.clone(),
            log_check_interval: Duration::from_secs(5),
            log_cleanup_interval: settings.logs.cleanup_interval,
            dirs_check_interval: Duration::from_secs(60),
            reports: ReportSettings {
                connect_timeout: settings.job_trackers.connect_timeout,
                out_of_band: settings.job_trackers.out_of_band,
                build_version: settings.job_trackers.build_version.clone(),
                ..ReportSettings::default()
            },
        }
    }
}
