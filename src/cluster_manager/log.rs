//! What happened, as lines of the log, worded like the original's, since operators search for
//! them. Spec: cluster-manager/08 §5.

use tracing::{error, info, warn};

use crate::engine::{Record, Starvation, StepMismatch};

/// Writes the line for one record.
pub(super) fn record(record: &Record) {
    match record {
        Record::SessionStarted { handle, name, address, pool, scheduling_pool, .. } => {
            info!("Add Session {handle} -> {name}@{}:{}", address.host, address.port);
            info!(
                "Session {handle} added to pool info (poolGroup={},pool={}) (originally {pool})",
                scheduling_pool.group, scheduling_pool.pool
            );
        }
        Record::IllegalPool { handle, pool } => {
            warn!("Illegal pool info :{pool} from session {handle}");
        }
        Record::SessionUpdated { handle, priority } => {
            let priority = priority.unwrap_or_default().name();
            info!("sessionUpdateInfo called for session: {handle} with priority: {priority}");
        }
        Record::SessionEnded { handle, address, status, .. } => info!(
            "sessionEnd called for session: {handle} on {}:{} with status: {}",
            address.host,
            address.port,
            status.name()
        ),
        Record::SessionExpired { handle, name, gap_ms } => {
            warn!("Timing out session: {handle} ({name}) after a heartbeat gap of {gap_ms} msec");
        }
        Record::OutOfStep {
            handle,
            kind,
            request_id,
            grant_id,
            seen_request_id,
            seen_grant_id,
        } => {
            let ids =
                format!("{handle} CM:{request_id} {grant_id} JT:{seen_request_id} {seen_grant_id}");
            match kind {
                StepMismatch::Lost => error!("heartbeat out-of-sync:{ids}, session ends"),
                StepMismatch::Late => error!("heartbeat out-of-sync:{ids}"),
                StepMismatch::Progress => info!("heartbeat mismatch with progress:{ids}"),
                StepMismatch::NoProgress => info!("heartbeat mismatch with no progress:{ids}"),
            }
        }
        Record::Requested { handle, kind, count } => {
            info!("Request {count} {kind} resources from session: {handle}");
        }
        Record::DuplicateRequest { handle, id } => {
            warn!("Duplicate request from Session: {handle} request: {id}");
        }
        Record::Released { handle, kind, count } => {
            info!("Release {count} {kind} resources from session: {handle}");
        }
        Record::Assigned { handle, kind, count, .. } => {
            info!("Assigning {count} {kind} requests to Session: {handle}");
        }
        Record::Revoked { handle, kind, count } => {
            info!("Preempt {count} {kind} tasks for Session:{handle}");
        }
        Record::NodeAdded { report, .. } => info!(
            "Adding node with heartbeat: {} at {}:{} with {} CPUs",
            report.name, report.address.host, report.address.port, report.total.num_cpus
        ),
        Record::NodeLost { name, expired, told, .. } => {
            if *expired {
                warn!("Timing out node: {name}");
            }
            info!("Notify {told} sessions about dead node {name}");
        }
        Record::NodeRunnable { name, kind, runnable: true } => {
            info!("Node {name} is now {kind} runnable");
        }
        Record::NodeRunnable { name, kind, runnable: false } => {
            info!("Node {name} is no longer {kind} runnable");
        }
        Record::NodeBlacklisted { name, kind } => {
            warn!("Node {name} has been blacklisted for resource {kind}");
        }
        Record::FeedbackForUnknownNode { name } => {
            info!("Received node feedback for deleted node {name}");
        }
        Record::RestartRequested { nodes: 0, .. } => info!("There is no cluster node to restart"),
        Record::RestartRequested { batch_size, .. } => {
            info!("Got request to restart all the cluster nodes with batch size {batch_size}")
        }
        Record::RestartTold { name } => info!("Notify {name} to restart"),
        Record::PoolStarving {
            pool, kind, cause: Starvation::Minimum, minimum, granted, ..
        } => {
            info!("Pool:{pool} for type:{kind} is starving min:{minimum} granted:{granted}");
        }
        Record::PoolStarving { pool, kind, cause: Starvation::Share, share, granted, .. } => {
            info!("Pool:{pool} for type:{kind} is starving share:{share} granted:{granted}");
        }
        Record::PreemptionFound { kind, count } => info!("Found {count} {kind} tasks to preempt"),
        Record::PreemptionFellShort { kind, missing, rounds, max_running_time_ms } => warn!(
            "Cannot preempt enough {kind} tasks  rounds {rounds} maxRunningTime \
             {max_running_time_ms} tasks not preempted:{missing}"
        ),
        // Who has read the files tells it.
        Record::SettingsChanged => {}
        Record::SafeMode { on: true } => info!("Safe mode is now: ON"),
        Record::SafeMode { on: false } => {
            info!("Resetting the heartbeat times for all sessions and nodes");
            info!("Safe mode is now: OFF");
        }
    }
}
