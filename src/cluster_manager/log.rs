//! Records as log lines, with the original's wording, because operators search for it. Spec:
//! cluster-manager/08 §5.

use std::time::Duration;

use tracing::{debug, error, info, warn};

use corona_engine::{Record, Starvation, StepMismatch};
use corona_model::types::{PerType, PoolName, ResourceType};

/// Writes the lines for one record. `kinds` are the types that are scheduled.
#[allow(clippy::too_many_lines, reason = "a table: each record has its lines")]
pub(super) fn record(record: &Record, kinds: &[ResourceType]) {
    match record {
        Record::SessionStarted { handle, name, user, address, pool, scheduling_pool, .. } => {
            info!("Add Session {handle} -> {name}@{}:{}", address.host, address.port);
            info!("session started: session={handle} job={name} user={user} pool={pool}");
            let PoolName { group, pool: name } = scheduling_pool;
            // The original has a line of each of these two kinds for each type.
            let types = kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            info!(
                "Session {handle} added to pool info (poolGroup={group},pool={name}) \
                 (originally {pool}) for {types}"
            );
            for kind in kinds {
                debug!("Session {handle} has been added to {kind} scheduler");
            }
        }
        Record::IllegalPool { handle, pool } => {
            warn!("Illegal pool info :{pool} from session {handle}");
        }
        Record::SessionUpdated { handle, priority } => {
            let priority = priority.unwrap_or_default().name();
            info!("sessionUpdateInfo called for session: {handle} with priority: {priority}");
        }
        Record::SessionEnded { handle, name, user, address, status, .. } => {
            let status = status.name();
            info!(
                "sessionEnd called for session: {handle} on {}:{} with status: {status}",
                address.host, address.port
            );
            info!("session ended: session={handle} job={name} user={user} status={status}");
        }
        Record::SessionExpired { handle, name, user, granted, gap_ms } => {
            warn!("Timing out session: {handle} ({name}) after a heartbeat gap of {gap_ms} msec");
            let slots = slots(granted);
            warn!(
                "session expired: session={handle} job={name} user={user} slots={slots}: its job tracker did not \
                 end it; its slots are free"
            );
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
            debug!("Request {count} {kind} resources from session: {handle}");
        }
        Record::DuplicateRequest { handle, id } => {
            warn!("Duplicate request from Session: {handle} request: {id}");
        }
        Record::Released { handle, kind, count } => {
            debug!("Release {count} {kind} resources from session: {handle}");
        }
        Record::Assigned { handle, kind, count, .. } => {
            debug!("Assigning {count} {kind} requests to Session: {handle}");
        }
        Record::Revoked { handle, kind, count } => {
            info!("Preempt {count} {kind} tasks for Session:{handle}");
        }
        Record::NodeReserved { node, handle, kind, id } => {
            info!("Node {node} is kept for request {id} of {kind} of session {handle}");
        }
        Record::ReservationEnded { node, handle, kind, id, served } => {
            let end = if *served { "it is granted there" } else { "there is no reason any more" };
            info!(
                "Node {node} is no longer kept for request {id} of {kind} of session {handle}: {end}"
            );
        }
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
        Record::ReservationExpired { node, handle, kind, id, kept_ms } => {
            info!(
                "Node {node} is no longer kept for request {id} of {kind} of session {handle}: \
                 what runs there has not ended in {kept_ms} msec"
            );
        }
        Record::RoomMade { node, handle, kind, id, cause, victims } => {
            let due = if *cause == Starvation::Minimum { "minimum" } else { "share" };
            info!(
                "Request {id} of {kind} of session {handle} gets the room of {victims} preempted \
                 tasks on node {node}: its pool is below its {due}"
            );
        }
        Record::PreemptionPaused { kind, nodes_left } => {
            debug!(
                "Looked for {kind} tasks to preempt; {nodes_left} nodes are left for the next second"
            );
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
        Record::NodeLate { name, silent_ms } => {
            warn!("Node {name} is late: no heartbeat for {silent_ms} msec");
        }
        Record::NodeOnTime { name } => info!("Node {name} is on time again"),
        Record::NodeRunnable { name, kind, runnable: true } => {
            info!("Node {name} is now {kind} runnable");
        }
        Record::NodeRunnable { name, kind, runnable: false } => {
            info!("Node {name} is no longer {kind} runnable");
        }
        Record::NodeBlacklisted { name, kind } => {
            warn!("Node {name} has been blacklisted for resource {kind}");
        }
        Record::BlacklistCleared { name, kind } => {
            info!("Node {name} is no longer blacklisted for resource {kind}");
        }
        Record::NodeDraining { name, on: true } => {
            info!("Node {name} drains: it is granted nothing")
        }
        Record::NodeDraining { name, on: false } => info!("Node {name} does not drain any more"),
        Record::NodeRevoked { name, access, on: true, told } => warn!(
            "Node {name} is granted nothing: its access {access} has been revoked; {told} sessions \
             are notified that its work is lost"
        ),
        Record::NodeRevoked { name, access, on: false, .. } => {
            info!("Node {name} has other access than {access}, which was revoked: it serves again");
        }
        Record::FeedbackForUnknownNode { name } => {
            info!("Received node feedback for deleted node {name}");
        }
        Record::RestartRequested { nodes: 0, .. } => info!("There is no cluster node to restart"),
        Record::RestartRequested { batch_size, .. } => {
            info!("Got request to restart all the cluster nodes with batch size {batch_size}")
        }
        Record::RestartTold { name } => {
            info!("set {name} to be ready for restart");
            info!("Notify {name} to restart");
        }
        // The reader of the files logs it.
        Record::SettingsChanged => {}
        Record::HeldUp { ms } => {
            warn!(
                "Nothing was processed for {ms} msec; not counted as silence of nodes and sessions"
            )
        }
        Record::SafeMode { on: true } => info!("Safe mode is now: ON"),
        Record::SafeMode { on: false } => {
            info!("Resetting the heartbeat times for all sessions and nodes");
            info!("Safe mode is now: OFF");
        }
    }
}

/// A pass that took longer has a line in the log.
const SLOW_PASS: Duration = Duration::from_millis(50);

/// Writes how long a slow pass with grants took, a line for each type. One pass serves all types,
/// so each line has the same time. Spec: cluster-manager/04 §3.
pub(super) fn pass(records: &[Record], took: Duration) {
    if took <= SLOW_PASS {
        return;
    }
    for kind in ResourceType::ALL {
        let counts = records.iter().filter_map(|record| match record {
            Record::Assigned { kind: of, count, .. } if *of == kind => Some(*count),
            _ => None,
        });
        let grants: u64 = counts.sum();
        if grants > 0 {
            let ms = took.as_secs_f64() * 1000.0;
            let each = ms / grants as f64;
            info!("Scheduler runtime for {kind} {ms:.3} ms / {grants} grants = {each:.6}");
        }
    }
}

/// Grants by type: `3 MAP+1 REDUCE`.
fn slots(granted: &PerType<i64>) -> String {
    let held = ResourceType::ALL.into_iter().filter(|kind| granted[*kind] > 0);
    let held: Vec<String> = held.map(|kind| format!("{} {kind}", granted[kind])).collect();
    if held.is_empty() { "none".to_owned() } else { held.join("+") }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;
    use corona_model::types::{Address, SessionStatus};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Level and text of each line that is written.
    fn lines(write: impl FnOnce()) -> Vec<String> {
        let buffer = Buffer::default();
        let sink = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_target(false)
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || sink.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, write);
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Lines that operators search for keep their words, and all but those of each grant their level. Spec: cluster-manager/08 §5.
    #[test]
    fn lines_are_worded_as_the_originals() {
        let handle: Arc<str> = "202611210005.1".into();
        let kinds = [ResourceType::Map, ResourceType::Reduce];
        let (kind, count) = (ResourceType::Map, 3);
        let at = Address { host: "h".into(), port: 7 };
        let assigned = Record::Assigned { handle: handle.clone(), kind, count, asked: vec![] };
        for (records, expected) in [
            (
                vec![Record::SessionStarted {
                    handle: handle.clone(),
                    name: "job".into(),
                    user: "alice".into(),
                    address: at.clone(),
                    pool: PoolName::new("g", "p"),
                    scheduling_pool: PoolName::new("g", "q"),
                    running: 1,
                }],
                vec![
                    "INFO Add Session 202611210005.1 -> job@h:7",
                    "INFO session started: session=202611210005.1 job=job user=alice pool=g.p",
                    "INFO Session 202611210005.1 added to pool info (poolGroup=g,pool=q) (originally g.p) for MAP, REDUCE",
                    "DEBUG Session 202611210005.1 has been added to MAP scheduler",
                    "DEBUG Session 202611210005.1 has been added to REDUCE scheduler",
                ],
            ),
            (
                vec![
                    Record::Requested { handle: handle.clone(), kind, count },
                    assigned.clone(),
                    Record::Released { handle: handle.clone(), kind, count },
                    Record::Revoked { handle: handle.clone(), kind, count },
                    Record::DuplicateRequest { handle: handle.clone(), id: 9 },
                ],
                vec![
                    "DEBUG Request 3 MAP resources from session: 202611210005.1",
                    "DEBUG Assigning 3 MAP requests to Session: 202611210005.1",
                    "DEBUG Release 3 MAP resources from session: 202611210005.1",
                    "INFO Preempt 3 MAP tasks for Session:202611210005.1",
                    "WARN Duplicate request from Session: 202611210005.1 request: 9",
                ],
            ),
            (
                vec![
                    Record::SessionExpired {
                        handle: handle.clone(),
                        name: "job".into(),
                        user: "alice".into(),
                        granted: PerType([3, 1, 0]),
                        gap_ms: 5,
                    },
                    Record::SessionEnded {
                        handle,
                        name: "job".into(),
                        user: "alice".into(),
                        address: at,
                        status: SessionStatus::TimedOut,
                        url: None,
                        running: 0,
                    },
                    Record::NodeLost { name: "n".into(), expired: true, told: 2, nodes: 1 },
                    Record::NodeBlacklisted { name: "n".into(), kind },
                    Record::RestartTold { name: "n".into() },
                ],
                vec![
                    "WARN Timing out session: 202611210005.1 (job) after a heartbeat gap of 5 msec",
                    "WARN session expired: session=202611210005.1 job=job user=alice slots=3 MAP+1 REDUCE: its \
                     job tracker did not end it; its slots are free",
                    "INFO sessionEnd called for session: 202611210005.1 on h:7 with status: TIMED_OUT",
                    "INFO session ended: session=202611210005.1 job=job user=alice status=TIMED_OUT",
                    "WARN Timing out node: n",
                    "INFO Notify 2 sessions about dead node n",
                    "WARN Node n has been blacklisted for resource MAP",
                    "INFO set n to be ready for restart",
                    "INFO Notify n to restart",
                ],
            ),
        ] {
            let written = lines(|| records.iter().for_each(|of| record(of, &kinds)));
            assert_eq!(written, expected);
        }
        let runtime = |took_us| {
            lines(|| pass(std::slice::from_ref(&assigned), Duration::from_micros(took_us)))
        };
        assert_eq!(runtime(50_000), [""; 0]);
        assert_eq!(
            runtime(61_500),
            ["INFO Scheduler runtime for MAP 61.500 ms / 3 grants = 20.500000"]
        );
    }
}
