//! All metrics in the Prometheus text format 0.0.4.
//!
//! Every name is defined once, in `FAMILIES`, with its type and meaning; a test checks
//! `docs/operate/metrics.md` and the dashboard against them. Names of pools come from peers and are
//! escaped.

use std::fmt::Display;
use std::sync::Arc;

use super::fairness::{Unfairness, fairness};
use super::{
    ANSWERS, Counter, LOSSES, MISMATCHES, Metrics, NOTIFICATIONS, STARVATIONS, Snapshot, methods,
};
use crate::gather::{NodeCounts, Overview, Pools};
use crate::places::Places;
use crate::{ConfigStatus, QueueCounts};
use corona_api::cluster::JournalStatus;
use corona_engine::PoolView;
use corona_model::resources::{Amounts, Dimension};
use corona_model::settings::UNLIMITED;
use corona_model::types::{Millis, PerType, ResourceType, SessionStatus};
use corona_net::{Counters, Ending};
use corona_process::since_epoch_ms;
use corona_web::process::process;
use corona_web::prometheus::{Family, Labels, Samples, Text, families};

/// The maximum number of groups and pools with series. Further ones are only counted, so that peers
/// that create pools cannot flood the storage of the series.
const MAX_POOLS: usize = 2000;
const MIB: f64 = (1_u64 << 20) as f64;

/// Values that are read at one time, as opposed to counters.
#[derive(Clone, Debug)]
pub(crate) struct Gauges {
    pub(crate) overview: Overview,
    /// How many nodes are how.
    pub(crate) nodes: NodeCounts,
    pub(crate) pools: Arc<Pools>,
    /// Pending notifications.
    pub(crate) queues: QueueCounts,
    /// Counters of the Thrift server.
    pub(crate) wire: Arc<Counters>,
    /// State of the configuration.
    pub(crate) configuration: ConfigStatus,
    /// The journal, if one is kept.
    pub(crate) journal: Option<JournalStatus>,
    /// Counts of the web server.
    pub(crate) web: WebCounts,
}

/// Counts of the web server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WebCounts {
    /// Connections of browsers and scripts.
    pub(crate) connections: u64,
    /// Streams of events among them.
    pub(crate) subscribers: u64,
    /// Requests so far.
    pub(crate) requests: u64,
    /// Connections and requests that were refused so far.
    pub(crate) refused: u64,
}

families! {
    BUILD = Gauge "corona_build_info" "Always 1; the version is a label.";
    FIRST_STARTED = Gauge "corona_first_start_timestamp_seconds" "Time of the first start of the cluster manager, which a recovery does not change.";
    SAFE_MODE = Gauge "corona_safe_mode" "1 in safe mode, otherwise 0.";

    NODES_ALIVE = Gauge "corona_nodes_alive" "Nodes that sent a heartbeat within cm.node.expiryinterval, including late ones.";
    NODES_LATE = Gauge "corona_nodes_late" "Nodes that have missed too many heartbeats but have not expired.";
    NODES_OLDEST_HEARTBEAT = Gauge "corona_nodes_oldest_heartbeat_seconds" "Time since the oldest last heartbeat of any node; absent without nodes and in safe mode.";
    NODES_DEAD = Gauge "corona_nodes_dead" "Hosts of the include file without a heartbeating node.";
    NODES_BLACKLISTED = Gauge "corona_nodes_blacklisted" "Nodes that are blacklisted for at least one type.";
    NODES_EXCLUDED = Gauge "corona_nodes_excluded" "Nodes whose host is not allowed by the host files.";
    NODES_DRAINING = Gauge "corona_nodes_draining" "Nodes that an operator drains.";
    NODES_REVOKED = Gauge "corona_nodes_revoked" "Nodes whose access to the cluster was revoked, until they expire.";
    NODES_BELOW_RESERVE = Gauge "corona_nodes_below_reserve" "Nodes with less free memory or disk space than they must keep.";
    NODES_USABLE = Gauge "corona_nodes_usable" "Nodes with slots of the type that can be granted now.";
    NODES_ADDED = Counter "corona_nodes_added_total" "Nodes that joined, counting restarted nodes again.";
    NODES_LOST = Counter "corona_nodes_lost_total" "Nodes that left, by reason.";
    NODES_BLACKLISTINGS = Counter "corona_nodes_blacklistings_total" "Times that a node was blacklisted for the type.";

    SLOTS = Gauge "corona_slots" "Slots of nodes that serve the type.";
    SLOTS_USED = Gauge "corona_slots_used" "Granted slots.";
    SLOTS_FREE = Gauge "corona_slots_free" "Slots that are not granted.";
    SLOTS_UNUSABLE = Gauge "corona_slots_unusable" "Free slots on nodes that get no grants: excluded, draining, without access, blacklisted, short of memory or disk space, or late if corona.cm.node.late.skip is set.";

    RESOURCES_CAPACITY = Gauge "corona_resources_capacity" "Resources that all nodes give out, in the unit of the label; absent while only slots are counted.";
    RESOURCES_GRANTED = Gauge "corona_resources_granted" "Resources that grants take, in the unit of the label.";
    RESOURCES_FREE = Gauge "corona_resources_free" "Resources left on nodes that may be given more, in the unit of the label.";
    RESOURCES_LARGEST = Gauge "corona_resources_largest_free" "Resources left on the one node that has most left, in the unit of the label: no larger request can be granted.";

    REQUESTS_WAITING = Gauge "corona_requests_waiting" "Pending requests.";
    REQUESTS_RUNNING = Gauge "corona_requests_running" "Granted requests.";
    REQUESTS = Counter "corona_requests_total" "Requests received, not counting repeated ones.";
    REQUESTS_REPEATED = Counter "corona_requests_repeated_total" "Requests received with an id that was already known.";
    GRANTS = Counter "corona_grants_total" "Slots granted.";
    RELEASES = Counter "corona_releases_total" "Slots released by sessions.";
    REVOCATIONS = Counter "corona_revocations_total" "Slots revoked for other sessions.";
    REQUEST_TO_GRANT = Histogram "corona_request_to_grant_seconds" "Time from the arrival of a request until the scheduler granted it.";
    GRANT_TO_DELIVERED = Histogram "corona_grant_to_delivered_seconds" "Time from scheduling a grant until the session acknowledged it.";

    SESSIONS_RUNNING = Gauge "corona_sessions_running" "Running sessions.";
    SESSIONS_STARTED = Counter "corona_sessions_started_total" "Sessions started.";
    SESSIONS_ENDED = Counter "corona_sessions_ended_total" "Sessions ended, by status.";
    SESSIONS_EXPIRED = Counter "corona_sessions_expired_total" "Sessions ended because they sent no heartbeat for too long.";
    STEPS_MISMATCHED = Counter "corona_session_steps_mismatched_total" "Heartbeats whose request or grant id differs from the expected one, by kind.";
    REMOTE_TIMED_OUT = Counter "corona_remote_job_trackers_timed_out_total" "Timed-out sessions whose URL is the page of another session.";

    PASS = Histogram "corona_pass_seconds" "Duration of a scheduler pass over all types.";
    LAST_PASS = Gauge "corona_last_pass_seconds" "Duration of the last scheduler pass.";
    LOCK_WAIT = Histogram "corona_engine_lock_wait_seconds" "Time spent waiting for the lock of the engine.";
    COMMIT_WAIT = Histogram "corona_commit_wait_seconds" "Time for which the replies to calls that changed something waited for the journal and standbys.";
    HELD_UP = Counter "corona_held_up_seconds_total" "Time during which the machine did not let the process run.";
    STARVATIONS_FOUND = Counter "corona_starvations_total" "Times that a pool was found starving, by cause.";
    PREEMPTIONS_WANTED = Counter "corona_preemptions_wanted_total" "Slots that starving pools lacked.";
    PREEMPTIONS_MISSED = Counter "corona_preemptions_missed_total" "Slots that starving pools lacked and that could not be revoked.";

    NOTIFIER_CALLS = Gauge "corona_notifier_pending_calls" "Pending notifications.";
    NOTIFIER_QUEUES = Gauge "corona_notifier_queues" "Sessions with a notification queue.";
    NOTIFIER_LONGEST = Gauge "corona_notifier_longest_queue" "Pending notifications of the session with most of them.";
    NOTIFIED = Counter "corona_notifications_total" "Notifications acknowledged by sessions, by kind.";
    NOTIFY_FAILURES = Counter "corona_notification_failures_total" "Failed attempts to deliver a notification.";

    RPC = Histogram "corona_rpc_seconds" "Time from decoding a call until its reply, by method.";
    RPC_ANSWERS = Counter "corona_rpc_answers_total" "Replies to calls, by method and result.";
    CONNECTIONS_OPEN = Gauge "corona_connections_open" "Open connections of peers.";
    CONNECTIONS_ACCEPTED = Counter "corona_connections_accepted_total" "Connections accepted and served.";
    CONNECTIONS_REFUSED = Counter "corona_connections_refused_total" "Connections closed at once because too many were open.";
    CONNECTIONS_ENDED = Counter "corona_connections_ended_total" "Connections that ended, by reason.";
    ACCEPT_ERRORS = Counter "corona_accept_errors_total" "Errors while accepting connections.";
    CALLS = Counter "corona_calls_total" "Calls handled.";
    CALL_FAULTS = Counter "corona_call_faults_total" "Messages that are not a known call, answered with an exception.";
    INFLIGHT = Gauge "corona_inflight_bytes" "Bytes of received messages that are not handled yet, and of replies that are not written yet.";

    POOLS = Gauge "corona_pools" "Pools.";
    POOLS_LEFT_OUT = Gauge "corona_pools_left_out" "Groups and pools without series because there are too many.";
    POOL_SESSIONS = Gauge "corona_pool_sessions" "Running sessions in the pool.";
    POOL_WEIGHT = Gauge "corona_pool_weight" "Weight of the pool in its group.";
    POOL_REQUESTED = Gauge "corona_pool_requested" "Requests of the pool: pending, granted, or lost and not released.";
    POOL_WAITING = Gauge "corona_pool_waiting" "Pending requests of the pool.";
    POOL_GRANTED = Gauge "corona_pool_granted" "Slots granted to the pool.";
    POOL_SHARE = Gauge "corona_pool_share" "Slots that the pool is due.";
    POOL_MINIMUM = Gauge "corona_pool_minimum" "Slots guaranteed to the pool.";
    POOL_MAXIMUM = Gauge "corona_pool_maximum" "Maximum of slots of the pool; absent without a limit.";
    POOL_MINIMUM_RESOURCES = Gauge "corona_pool_resources_minimum" "Resources guaranteed to the pool, in the unit of the label; absent without a minimum and while only slots are counted.";
    POOL_MAXIMUM_RESOURCES = Gauge "corona_pool_resources_maximum" "Maximum of resources of the pool, in the unit of the label; absent without a limit and while only slots are counted.";
    POOL_RESOURCES = Gauge "corona_pool_resources_granted" "Resources that grants of the pool take, in the unit of the label; absent while only slots are counted.";
    POOL_DOMINANT_SHARE = Gauge "corona_pool_dominant_share_ratio" "Largest part of any resource of the cluster that grants of the pool take, from 0 to 1.";
    POOL_STARVING = Gauge "corona_pool_starving_seconds" "Time for which the pool has been allowed to preempt; negative while it still has to wait.";
    POOL_FIRST_WAIT = Gauge "corona_pool_first_wait_seconds" "Average time that the pool's running sessions waited for their first slot, not counting sessions without one.";
    GROUP_SESSIONS = Gauge "corona_group_sessions" "Running sessions in the group.";
    GROUP_REQUESTED = Gauge "corona_group_requested" "Requests of the group: pending, granted, or lost and not released.";
    GROUP_WAITING = Gauge "corona_group_waiting" "Pending requests of the group.";
    GROUP_GRANTED = Gauge "corona_group_granted" "Slots granted to the group.";
    GROUP_SHARE = Gauge "corona_group_share" "Slots that the group is due.";
    GROUP_MINIMUM = Gauge "corona_group_minimum" "Slots guaranteed to the group.";
    GROUP_MAXIMUM = Gauge "corona_group_maximum" "Maximum of slots of the group; absent without a limit.";
    GROUP_MINIMUM_RESOURCES = Gauge "corona_group_resources_minimum" "Resources guaranteed to the group, in the unit of the label; absent without a minimum and while only slots are counted.";
    GROUP_MAXIMUM_RESOURCES = Gauge "corona_group_resources_maximum" "Maximum of resources of the group, in the unit of the label; absent without a limit and while only slots are counted.";
    GROUP_RESOURCES = Gauge "corona_group_resources_granted" "Resources that grants of the group take, in the unit of the label; absent while only slots are counted.";
    GROUP_DOMINANT_SHARE = Gauge "corona_group_dominant_share_ratio" "Largest part of any resource of the cluster that grants of the group take, from 0 to 1.";

    FAIRNESS_DIFFERENCE = Gauge "corona_fairness_difference" "Slots by which the grants of pools differ from equal sharing.";
    FAIRNESS_PERCENT = Gauge "corona_fairness_unfair_percent" "Percentage of slots granted to another pool than under equal sharing.";
    FAIRNESS_PER_POOL = Gauge "corona_fairness_difference_per_pool" "Average over pools of the difference from equal sharing, in slots.";
    FAIRNESS_DEVIATION = Gauge "corona_fairness_deviation" "Standard deviation over pools of the difference from equal sharing, in slots.";

    CONFIG_PROBLEMS = Gauge "corona_configuration_problems" "Problems in the configuration files, by severity.";
    CONFIG_LOADED = Gauge "corona_configuration_loaded_timestamp_seconds" "Time at which the current configuration was read.";
    CONFIG_RELOADS = Counter "corona_configuration_reloads_total" "Times that changed configuration files were applied.";
    CONFIG_FAILURES = Counter "corona_configuration_failures_total" "Times that changed configuration files were refused.";

    JOURNAL_RECORDS = Counter "corona_journal_records_total" "Records appended to the journal since it was started.";
    JOURNAL_UNCOMMITTED = Gauge "corona_journal_uncommitted_records" "Records whose replies and notifications wait for the disk.";
    JOURNAL_UNSYNCED = Gauge "corona_journal_unsynced_records" "Records that a power cut would lose.";
    JOURNAL_STALLED = Gauge "corona_journal_stalled_seconds" "Time for which the disk has accepted none of the waiting records.";
    JOURNAL_BYTES = Gauge "corona_journal_bytes" "Size of all files of the journal in bytes.";
    JOURNAL_TAIL = Gauge "corona_journal_tail_bytes" "Bytes of the records behind the last image, which a start reads.";
    JOURNAL_PENDING = Gauge "corona_journal_pending_bytes" "Bytes that wait to be written to the journal.";
    JOURNAL_WRITES = Counter "corona_journal_writes_total" "Writes to the journal, each of one or more records.";
    JOURNAL_SYNCS = Counter "corona_journal_syncs_total" "Number of times that records were synced to the disk.";
    JOURNAL_IMAGE_TIME = Gauge "corona_journal_image_timestamp_seconds" "Time at which the last image was made; absent without one.";
    JOURNAL_IMAGE_BYTES = Gauge "corona_journal_image_bytes" "Size of the last image in bytes; absent without one.";
    JOURNAL_IMAGE_TOOK = Gauge "corona_journal_image_seconds" "Time that making the last image took; absent if this process has made none.";
    JOURNAL_IMAGE_FAILED = Gauge "corona_journal_image_failed" "1 if the last attempt to make an image failed, otherwise 0.";
    JOURNAL_RECOVERY = Gauge "corona_journal_recovery_seconds" "Time that the recovery at the start took; absent if the process started empty.";

    WEB_CONNECTIONS = Gauge "corona_web_connections_open" "Open HTTP connections.";
    WEB_REQUESTS = Counter "corona_web_requests_total" "HTTP requests for pages, JSON and metrics.";
    WEB_REFUSED = Counter "corona_web_connections_refused_total" "HTTP connections closed at once because too many were open or the network is not allowed.";
    EVENT_SUBSCRIBERS = Gauge "corona_event_subscribers" "Open event streams.";
    EVENTS = Counter "corona_events_total" "Events published.";

}

/// Everything, as text. It takes milliseconds with thousands of pools, and reads files of the
/// kernel: for a thread that may block.
pub(crate) fn render(metrics: &Metrics, gauges: &Gauges) -> String {
    let mut text = Text(String::with_capacity(64 * 1024));
    service(&mut text, metrics, gauges);
    nodes(&mut text, metrics, gauges);
    requests(&mut text, metrics, gauges);
    sessions(&mut text, metrics, gauges);
    scheduler(&mut text, metrics);
    notifier(&mut text, metrics, gauges);
    wire(&mut text, metrics, &gauges.wire);
    pools(&mut text, gauges);
    fairness_of(&mut text, gauges);
    configuration(&mut text, gauges);
    journal(&mut text, gauges.journal.as_ref());
    web(&mut text, metrics, gauges);
    process(&mut text);
    text.0
}

fn service(text: &mut Text, metrics: &Metrics, gauges: &Gauges) {
    text.family(BUILD).labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(FIRST_STARTED).value(seconds(gauges.overview.first_started));
    text.family(SAFE_MODE).value(u8::from(metrics.safe_mode()));
}

fn nodes(text: &mut Text, metrics: &Metrics, gauges: &Gauges) {
    let nodes = gauges.nodes;
    text.family(NODES_ALIVE).value(nodes.alive);
    text.family(NODES_LATE).value(nodes.late);
    let oldest = gauges.overview.oldest_heartbeat.filter(|_| !metrics.safe_mode());
    let silent_ms = oldest.map(|heard| gauges.overview.now.since(heard).max(0) as f64);
    text.family(NODES_OLDEST_HEARTBEAT).labelled_if_any(&[], silent_ms.map(|ms| ms / 1000.0));
    text.family(NODES_DEAD).value(nodes.dead);
    text.family(NODES_BLACKLISTED).value(nodes.blacklisted);
    text.family(NODES_EXCLUDED).value(nodes.excluded);
    text.family(NODES_DRAINING).value(nodes.draining);
    text.family(NODES_REVOKED).value(nodes.revoked);
    text.family(NODES_BELOW_RESERVE).value(nodes.below_reserve);
    text.family(NODES_USABLE).by_type(&gauges.overview.kinds, |kind| nodes.usable[kind]);
    text.family(NODES_ADDED).value(metrics.nodes_added.get());
    text.family(NODES_LOST).each("reason", &LOSSES, &metrics.nodes_lost);
    text.family(NODES_BLACKLISTINGS).counters(&gauges.overview.kinds, &metrics.nodes_blacklisted);
    text.family(SLOTS).by_type(&gauges.overview.kinds, |kind| gauges.overview.slots[kind].total);
    text.family(SLOTS_USED)
        .by_type(&gauges.overview.kinds, |kind| gauges.overview.slots[kind].used);
    text.family(SLOTS_FREE).by_type(&gauges.overview.kinds, |kind| gauges.free_slots(kind));
    text.family(SLOTS_UNUSABLE)
        .by_type(&gauges.overview.kinds, |kind| gauges.nodes.unusable_slots[kind]);
    let Places { capacity, granted, free, largest } = nodes.places;
    for (family, amounts) in [
        (RESOURCES_CAPACITY, capacity),
        (RESOURCES_GRANTED, granted),
        (RESOURCES_FREE, free),
        (RESOURCES_LARGEST, largest),
    ] {
        text.family(family).by_resource(gauges, &[], &amounts, |_| true);
    }
}

/// The unit of a resource in samples, and what an amount of one is in it.
fn unit(dimension: Dimension) -> (&'static str, f64) {
    match dimension {
        Dimension::Cpus => ("cores", 1.0),
        Dimension::Memory => ("bytes", MIB),
        Dimension::Disk => ("bytes", 1024.0 * MIB),
        Dimension::Network => ("bytes_per_second", MIB),
    }
}

fn requests(text: &mut Text, metrics: &Metrics, gauges: &Gauges) {
    let kinds = &gauges.overview.kinds;
    text.family(REQUESTS_WAITING).by_type(kinds, |kind| gauges.waiting(kind));
    text.family(REQUESTS_RUNNING).by_type(kinds, |kind| gauges.running(kind));
    text.family(REQUESTS).counters(kinds, &metrics.requested);
    text.family(REQUESTS_REPEATED).value(metrics.duplicate_requests.get());
    text.family(GRANTS).counters(kinds, &metrics.granted);
    text.family(RELEASES).counters(kinds, &metrics.released);
    text.family(REVOCATIONS).counters(kinds, &metrics.revoked);
    let mut family = text.family(REQUEST_TO_GRANT);
    for kind in kinds {
        let snapshot = metrics.request_to_grant[*kind].snapshot();
        family.histogram(&[("type", kind.name())], &snapshot, Span::Long);
    }
    let snapshot = metrics.grant_to_delivered.snapshot();
    text.family(GRANT_TO_DELIVERED).histogram(&[], &snapshot, Span::Long);
}

fn sessions(text: &mut Text, metrics: &Metrics, gauges: &Gauges) {
    text.family(SESSIONS_RUNNING).value(gauges.overview.sessions);
    text.family(SESSIONS_STARTED).value(metrics.sessions_started.get());
    let mut family = text.family(SESSIONS_ENDED);
    for status in SessionStatus::ALL.into_iter().filter(|status| *status != SessionStatus::Running)
    {
        let ended = metrics.ended(status).get();
        family.labelled(&[("status", status.name())], ended);
    }
    text.family(SESSIONS_EXPIRED).value(metrics.sessions_expired.get());
    text.family(STEPS_MISMATCHED).each("kind", &MISMATCHES, &metrics.steps_mismatched);
    text.family(REMOTE_TIMED_OUT).value(metrics.remote_job_trackers_timed_out.get());
}

fn scheduler(text: &mut Text, metrics: &Metrics) {
    let kinds = &ResourceType::ALL;
    text.family(PASS).histogram(&[], &metrics.pass.snapshot(), Span::Short);
    text.family(LAST_PASS).value(metrics.last_pass().as_secs_f64());
    text.family(LOCK_WAIT).histogram(&[], &metrics.lock_wait.snapshot(), Span::Short);
    text.family(COMMIT_WAIT).histogram(&[], &metrics.commit_wait.snapshot(), Span::Short);
    text.family(HELD_UP).value(metrics.held_up_ms.get() as f64 / 1000.0);
    let mut family = text.family(STARVATIONS_FOUND);
    for (cause, counters) in STARVATIONS.iter().zip(&metrics.starvations) {
        for kind in kinds {
            let count = counters[*kind].get();
            family.labelled(&[("type", kind.name()), ("cause", cause)], count);
        }
    }
    text.family(PREEMPTIONS_WANTED).counters(kinds, &metrics.preemptions_wanted);
    text.family(PREEMPTIONS_MISSED).counters(kinds, &metrics.preemptions_missed);
}

fn notifier(text: &mut Text, metrics: &Metrics, gauges: &Gauges) {
    let queues = gauges.queues;
    text.family(NOTIFIER_CALLS).value(queues.calls);
    text.family(NOTIFIER_QUEUES).value(queues.queues);
    text.family(NOTIFIER_LONGEST).value(queues.longest);
    text.family(NOTIFIED).each("kind", &NOTIFICATIONS, &metrics.notifications);
    text.family(NOTIFY_FAILURES).value(metrics.notification_failures.get());
}

fn wire(text: &mut Text, metrics: &Metrics, counters: &Counters) {
    let mut family = text.family(RPC);
    for (method, counted) in methods().iter().zip(&metrics.rpc) {
        family.histogram(&[("method", method)], &counted.time.snapshot(), Span::Short);
    }
    let mut family = text.family(RPC_ANSWERS);
    for (method, counted) in methods().iter().zip(&metrics.rpc) {
        for (answer, count) in ANSWERS.iter().zip(&counted.answers) {
            family.labelled(&[("method", method), ("answer", answer)], count.get());
        }
    }
    text.family(CONNECTIONS_OPEN).value(counters.open());
    text.family(CONNECTIONS_ACCEPTED).value(counters.accepted());
    text.family(CONNECTIONS_REFUSED).value(counters.refused());
    let mut family = text.family(CONNECTIONS_ENDED);
    for ending in Ending::ALL {
        family.labelled(&[("reason", ending.name())], counters.ended(ending));
    }
    text.family(ACCEPT_ERRORS).value(counters.accept_errors());
    text.family(CALLS).value(counters.calls());
    text.family(CALL_FAULTS).value(counters.faults());
    text.family(INFLIGHT).value(counters.inflight_bytes());
}

fn pools(text: &mut Text, gauges: &Gauges) {
    let shown = gauges.pools.views.len().min(MAX_POOLS);
    let (shown, left_out) = gauges.pools.views.split_at(shown);
    let pools: Vec<(&PoolView, &str)> =
        shown.iter().filter_map(|view| view.pool.as_deref().map(|pool| (view, pool))).collect();
    let groups: Vec<&PoolView> = shown.iter().filter(|view| view.pool.is_none()).collect();
    let all_pools = gauges.pools.views.iter().filter(|view| view.pool.is_some());
    text.family(POOLS).value(all_pools.count());
    text.family(POOLS_LEFT_OUT).value(left_out.len());

    let mut family = text.family(POOL_SESSIONS);
    for (view, _) in &pools {
        family.labelled(&queue_labels(view, None), view.sessions);
    }
    let mut family = text.family(POOL_WEIGHT);
    for (view, _) in &pools {
        family.labelled(&queue_labels(view, None), view.weight);
    }
    for (of_pools, _, number) in pool_numbers() {
        let mut family = text.family(of_pools);
        for (view, _) in &pools {
            for kind in &gauges.overview.kinds {
                family.labelled_if_any(&queue_labels(view, Some(*kind)), number(view, *kind));
            }
        }
    }
    holdings(
        text,
        gauges,
        [POOL_MINIMUM_RESOURCES, POOL_MAXIMUM_RESOURCES, POOL_RESOURCES, POOL_DOMINANT_SHARE],
        pools.iter().map(|(view, _)| *view),
    );
    let mut family = text.family(POOL_STARVING);
    for (view, _) in &pools {
        for kind in &gauges.overview.kinds {
            let labels = queue_labels(view, Some(*kind));
            family.labelled(&labels, gauges.starving_ms(view, *kind) as f64 / 1000.0);
        }
    }
    let mut family = text.family(POOL_FIRST_WAIT);
    for (name, waits) in gauges.pools.first_waits.granted_ms.iter().take(MAX_POOLS) {
        for kind in &gauges.overview.kinds {
            let labels = [("group", &*name.group), ("pool", &*name.pool), ("type", kind.name())];
            family.labelled_if_any(&labels, waits[*kind].map(|wait_ms| wait_ms as f64 / 1000.0));
        }
    }
    let mut family = text.family(GROUP_SESSIONS);
    for view in &groups {
        family.labelled(&queue_labels(view, None), view.sessions);
    }
    for (_, of_groups, number) in pool_numbers() {
        let mut family = text.family(of_groups);
        for view in &groups {
            for kind in &gauges.overview.kinds {
                family.labelled_if_any(&queue_labels(view, Some(*kind)), number(view, *kind));
            }
        }
    }
    let families =
        [GROUP_MINIMUM_RESOURCES, GROUP_MAXIMUM_RESOURCES, GROUP_RESOURCES, GROUP_DOMINANT_SHARE];
    holdings(text, gauges, families, groups.iter().copied());
}

/// What queues are guaranteed and may hold of the resources, and what their grants take; no samples while only slots
/// are counted.
fn holdings<'a>(
    text: &mut Text,
    gauges: &Gauges,
    [minimum, maximum, resources, share]: [Family; 4],
    views: impl Iterator<Item = &'a PoolView> + Clone,
) {
    let mut family = text.family(minimum);
    for view in views.clone() {
        let set = |amount: u64| amount > 0;
        family.by_resource(gauges, &queue_labels(view, None), &view.minimum_amounts, set);
    }
    let mut family = text.family(maximum);
    for view in views.clone() {
        let set = |amount: u64| amount < u64::MAX;
        family.by_resource(gauges, &queue_labels(view, None), &view.maximum_amounts, set);
    }
    let mut family = text.family(resources);
    for view in views.clone() {
        family.by_resource(gauges, &queue_labels(view, None), &view.holding.held, |_| true);
    }
    let mut family = text.family(share);
    let are_counted = gauges.overview.settings.resources.are_counted();
    for view in views.filter(|_| are_counted) {
        family.labelled(&queue_labels(view, None), view.holding.dominant_share);
    }
}

/// The labels of a pool or a group; with its path in a tree of queues.
fn queue_labels(view: &PoolView, kind: Option<ResourceType>) -> Vec<(&'static str, &str)> {
    let pool = view.pool.as_deref().map(|pool| ("pool", pool));
    let path = view.is_of_tree().then(|| ("path", &*view.path));
    let kind = kind.map(|kind| ("type", kind.name()));
    [Some(("group", &*view.group)), pool, path, kind].into_iter().flatten().collect()
}

/// A number of a pool or a group; absent without a limit.
type PoolNumber = fn(&PoolView, ResourceType) -> Option<f64>;

/// The numbers that both pools and groups have, with both names.
fn pool_numbers() -> [(Family, Family, PoolNumber); 6] {
    [
        (POOL_REQUESTED, GROUP_REQUESTED, |view, kind| Some(view.counts[kind].requested as f64)),
        (POOL_WAITING, GROUP_WAITING, |view, kind| Some(view.counts[kind].pending as f64)),
        (POOL_GRANTED, GROUP_GRANTED, |view, kind| Some(view.counts[kind].granted as f64)),
        (POOL_SHARE, GROUP_SHARE, |view, kind| Some(view.share[kind])),
        (POOL_MINIMUM, GROUP_MINIMUM, |view, kind| Some(view.minimum[kind].into())),
        (POOL_MAXIMUM, GROUP_MAXIMUM, |view, kind| {
            Some(view.maximum[kind]).filter(|most| *most != UNLIMITED).map(f64::from)
        }),
    ]
}

fn fairness_of(text: &mut Text, gauges: &Gauges) {
    let fairness = fairness(&gauges.pools.views, &gauges.overview.kinds);
    type Measure = fn(&Unfairness) -> f64;
    let families: [(Family, Measure); 4] = [
        (FAIRNESS_DIFFERENCE, |measure| measure.difference as f64),
        (FAIRNESS_PERCENT, |measure| measure.percent.into()),
        (FAIRNESS_PER_POOL, |measure| measure.per_pool.into()),
        (FAIRNESS_DEVIATION, |measure| measure.deviation.into()),
    ];
    for (family, measure) in families {
        let mut family = text.family(family);
        let Some(fairness) = &fairness else { continue };
        for kind in &gauges.overview.kinds {
            family.labelled(&[("type", kind.name())], measure(&fairness.by_type[*kind]));
        }
        family.labelled(&[("type", "all")], measure(&fairness.all));
    }
}

fn configuration(text: &mut Text, gauges: &Gauges) {
    let configuration = &gauges.configuration;
    let mut family = text.family(CONFIG_PROBLEMS);
    family.labelled(&[("severity", "warning")], configuration.warnings.len());
    family.labelled(&[("severity", "error")], configuration.errors.len());
    text.family(CONFIG_LOADED).value(since_epoch_ms(configuration.loaded_at) as f64 / 1000.0);
    text.family(CONFIG_RELOADS).value(configuration.reloads);
    text.family(CONFIG_FAILURES).value(configuration.failures);
}

/// Without a journal there are no samples.
fn journal(text: &mut Text, journal: Option<&JournalStatus>) {
    type Number = fn(&JournalStatus) -> Option<f64>;
    let numbers: [(Family, Number); 14] = [
        (JOURNAL_RECORDS, |it| Some(it.last_record as f64)),
        (JOURNAL_UNCOMMITTED, |it| Some(behind(it.last_record, it.committed_record))),
        (JOURNAL_UNSYNCED, |it| Some(behind(it.last_record, it.durable_record))),
        (JOURNAL_STALLED, |it| Some(from_ms(it.stalled_ms))),
        (JOURNAL_BYTES, |it| Some(it.bytes as f64)),
        (JOURNAL_TAIL, |it| Some(it.tail_bytes as f64)),
        (JOURNAL_PENDING, |it| Some(it.pending_bytes as f64)),
        (JOURNAL_WRITES, |it| Some(it.writes as f64)),
        (JOURNAL_SYNCS, |it| Some(it.syncs as f64)),
        (JOURNAL_IMAGE_TIME, |it| it.image_ms.map(|made| made as f64 / 1000.0)),
        (JOURNAL_IMAGE_BYTES, |it| it.image_bytes.map(|bytes| bytes as f64)),
        (JOURNAL_IMAGE_TOOK, |it| it.image_took_ms.map(from_ms)),
        (JOURNAL_IMAGE_FAILED, |it| Some(u8::from(it.image_failure.is_some()).into())),
        (JOURNAL_RECOVERY, |it| it.recovery.as_ref().map(|recovery| from_ms(recovery.took_ms))),
    ];
    for (family, number) in numbers {
        text.family(family).labelled_if_any(&[], journal.and_then(number));
    }
}

fn behind(last: u64, done: u64) -> f64 {
    last.saturating_sub(done) as f64
}

fn from_ms(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn web(text: &mut Text, metrics: &Metrics, gauges: &Gauges) {
    text.family(WEB_CONNECTIONS).value(gauges.web.connections);
    text.family(WEB_REQUESTS).value(gauges.web.requests);
    text.family(WEB_REFUSED).value(gauges.web.refused);
    text.family(EVENT_SUBSCRIBERS).value(gauges.web.subscribers);
    text.family(EVENTS).value(metrics.events.get());
}

impl Gauges {
    /// Free slots of the nodes that serve the type.
    fn free_slots(&self, kind: ResourceType) -> u64 {
        self.overview.slots[kind].total.saturating_sub(self.overview.slots[kind].used)
    }

    /// Requests that wait, of all sessions.
    pub(crate) fn waiting(&self, kind: ResourceType) -> i64 {
        self.groups().map(|group| group.counts[kind].pending).sum()
    }

    /// Requests that hold a slot, of all sessions.
    pub(crate) fn running(&self, kind: ResourceType) -> i64 {
        self.groups().map(|group| group.counts[kind].granted).sum()
    }

    /// Since when a pool may take slots from others, negative while it has patience.
    pub(crate) fn starving_ms(&self, view: &PoolView, kind: ResourceType) -> i64 {
        view.starving_ms(kind, self.overview.now, &self.overview.settings.scheduling)
    }

    /// The outermost groups.
    fn groups(&self) -> impl Iterator<Item = &PoolView> {
        self.pools.views.iter().filter(|view| view.pool.is_none() && view.parent.is_none())
    }
}

fn seconds(at: Millis) -> f64 {
    at.0 as f64 / 1000.0
}

/// The range of a histogram.
#[derive(Clone, Copy)]
enum Span {
    /// To 16 seconds: the program's own work.
    Short,
    /// To 76 hours: waits for others.
    Long,
}

impl Span {
    fn octaves(self) -> usize {
        match self {
            Span::Short => 25,
            Span::Long => 39,
        }
    }
}

/// The shapes that samples of a cluster manager take.
trait ClusterSamples {
    fn by_type<V: Display>(&mut self, kinds: &[ResourceType], value: impl Fn(ResourceType) -> V);
    /// The amounts of counted resources that are `set`.
    fn by_resource(
        &mut self,
        gauges: &Gauges,
        labels: &[(&str, &str)],
        amounts: &Amounts,
        set: impl Fn(u64) -> bool,
    );
    fn counters(&mut self, kinds: &[ResourceType], counters: &PerType<Counter>);
    fn each(&mut self, label: &str, values: &[&str], counters: &[Counter]);
    fn histogram(&mut self, labels: &Labels<'_>, snapshot: &Snapshot, span: Span);
}

impl ClusterSamples for Samples<'_> {
    fn by_type<V: Display>(&mut self, kinds: &[ResourceType], value: impl Fn(ResourceType) -> V) {
        for kind in kinds {
            self.labelled(&[("type", kind.name())], value(*kind));
        }
    }

    fn by_resource(
        &mut self,
        gauges: &Gauges,
        labels: &[(&str, &str)],
        amounts: &Amounts,
        set: impl Fn(u64) -> bool,
    ) {
        let counted = gauges.overview.settings.resources.dimensions();
        for dimension in counted.into_iter().filter(|dimension| set(amounts[*dimension])) {
            let (name, scale) = unit(dimension);
            let own = [("resource", dimension.name()), ("unit", name)];
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain(own).collect();
            self.labelled(&labels, amounts[dimension] as f64 * scale);
        }
    }

    fn counters(&mut self, kinds: &[ResourceType], counters: &PerType<Counter>) {
        self.by_type(kinds, |kind| counters[kind].get());
    }

    fn each(&mut self, label: &str, values: &[&str], counters: &[Counter]) {
        for (value, counter) in values.iter().zip(counters) {
            self.labelled(&[(label, value)], counter.get());
        }
    }

    fn histogram(&mut self, labels: &Labels<'_>, snapshot: &Snapshot, span: Span) {
        self.histogram_of(labels, snapshot, span.octaves());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::gather::FirstWaits;
    use crate::testing::overview;
    use corona_engine::{Holding, SlotCounts, TypeCounts};
    use corona_model::form::Later;
    use corona_model::resources::Resources;
    use corona_model::settings::{SchedulingMode, Settings};
    use corona_model::types::PoolName;
    use corona_web::prometheus::Shape;

    /// A pool or a group with some numbers, for tests of everything that shows them.
    pub(crate) fn pool_view(group: &str, pool: Option<&str>) -> PoolView {
        let counts = TypeCounts { requested: 6, pending: 2, granted: 4 };
        PoolView {
            group: group.into(),
            pool: pool.map(Into::into),
            path: pool.map_or(group.to_owned(), |pool| format!("{group}.{pool}")).into(),
            parent: None,
            rules: Default::default(),
            sessions_waiting: 0,
            mode: SchedulingMode::Fair,
            preemptable: true,
            request_max: false,
            priority: 0,
            weight: 1.5,
            configured: true,
            sessions: 3,
            counts: PerType::all(counts),
            share: PerType::all(3.99),
            minimum: PerType::all(1),
            maximum: PerType([UNLIMITED, 7, UNLIMITED]),
            lacks: PerType::default(),
            holding: Holding { held: Amounts([4, 2_048, 0, 0]), dominant_share: 0.25 },
            minimum_amounts: Amounts::ZERO,
            maximum_amounts: Amounts::MOST,
        }
    }

    /// The gauges of a small cluster with two pools.
    pub(crate) fn gauges() -> Gauges {
        let name = PoolName::new("g", "p");
        let overview = Overview {
            now: Millis(1_000_000),
            first_started: Millis(1_500),
            slots: PerType::all(SlotCounts { total: 10, used: 4 }),
            all_slots: PerType::all(SlotCounts { total: 15, used: 4 }),
            oldest_heartbeat: Some(Millis(998_500)),
            sessions: 3,
            ..overview()
        };
        let nodes =
            NodeCounts { alive: 2, late: 1, usable: PerType::all(1), ..NodeCounts::default() };
        let first_waits = FirstWaits {
            granted_ms: [(name.clone(), PerType([Some(250), None, None]))].into(),
            java_ms: [(name, PerType([Some(700), Some(40), None]))].into(),
        };
        let views = vec![pool_view("g", None), pool_view("g", Some("p"))];
        Gauges {
            overview,
            nodes,
            pools: Arc::new(Pools { views, first_waits }),
            queues: QueueCounts { calls: 5, queues: 2, longest: 4 },
            wire: Arc::default(),
            configuration: ConfigStatus {
                in_force: Vec::new(),
                warnings: Vec::new(),
                errors: Vec::new(),
                loaded_at: UNIX_EPOCH,
                reloads: 0,
                failures: 0,
            },
            journal: Some(journal_status()),
            web: WebCounts::default(),
        }
    }

    /// A journal that has resumed, has made an image, and waits for the disk.
    pub(crate) fn journal_status() -> JournalStatus {
        JournalStatus {
            directory: "/j".into(),
            sync: "write".into(),
            last_record: 90,
            committed_record: 88,
            durable_record: 80,
            bytes: 5_000,
            tail_bytes: 700,
            pending_bytes: 60,
            stalled_ms: 1_500,
            writes: 40,
            syncs: 4,
            image_record: Some(50),
            image_bytes: Some(4_000),
            image_ms: Some(880_000),
            image_took_ms: Some(20),
            image_failure: None,
            recovery: Some(corona_api::cluster::JournalRecovery {
                took_ms: 61,
                image_record: 0,
                records: 12,
                torn_bytes: 0,
            }),
        }
    }

    #[test]
    fn without_a_journal_there_are_no_samples_of_one() {
        let gauges = Gauges { journal: None, ..gauges() };
        let text = render(&Metrics::default(), &gauges);
        let samples = text.lines().filter(|line| line.starts_with("corona_journal_"));
        assert_eq!(samples.count(), 0);
    }

    /// The family that a sample belongs to.
    fn family_of(sample: &str) -> &str {
        let name = sample.split(['{', ' ']).next().unwrap();
        let of = |suffix: &str| {
            let name = name.strip_suffix(suffix)?;
            FAMILIES
                .iter()
                .find(|family| family.name == name && family.shape == Shape::Histogram)
                .map(|family| family.name)
        };
        of("_bucket").or(of("_sum")).or(of("_count")).unwrap_or(name)
    }

    #[test]
    fn every_family_is_declared_once_and_samples_follow_it() {
        let metrics = Metrics::default();
        metrics.pass.record(Duration::from_millis(3));
        let text = render(&metrics, &gauges());
        let mut declared = Vec::new();
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                declared.push(rest.split(' ').next().unwrap());
            } else if !line.starts_with('#') {
                assert_eq!(Some(&family_of(line)), declared.last(), "{line}");
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert!(seen.insert(series.to_owned()), "{series} twice");
                value.parse::<f64>().unwrap();
            }
        }
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(declared, names);
    }

    #[test]
    fn names_have_the_forms_that_prometheus_wants() {
        for Family { name, shape, help } in FAMILIES {
            let counted = name.ends_with("_total");
            assert_eq!(counted, *shape == Shape::Counter, "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}");
            assert!(name.starts_with("corona_") || name.starts_with("process_"), "{name}");
        }
    }

    #[test]
    fn numbers_are_where_they_belong() {
        let metrics = Metrics::default();
        metrics.granted[ResourceType::Reduce].add(7);
        metrics.grant_to_delivered.record_times(Duration::from_micros(3), 2);
        let text = render(&metrics, &gauges());
        for line in [
            "corona_grants_total{type=\"REDUCE\"} 7",
            "corona_slots_free{type=\"MAP\"} 6",
            "corona_nodes_late 1",
            "corona_nodes_oldest_heartbeat_seconds 1.5",
            "corona_requests_waiting{type=\"MAP\"} 2",
            "corona_pool_share{group=\"g\",pool=\"p\",type=\"MAP\"} 3.99",
            "corona_pool_maximum{group=\"g\",pool=\"p\",type=\"REDUCE\"} 7",
            "corona_pool_starving_seconds{group=\"g\",pool=\"p\",type=\"MAP\"} -180",
            "corona_pool_first_wait_seconds{group=\"g\",pool=\"p\",type=\"MAP\"} 0.25",
            "corona_group_maximum{group=\"g\",type=\"REDUCE\"} 7",
            "corona_grant_to_delivered_seconds_bucket{le=\"0.000002\"} 0",
            "corona_grant_to_delivered_seconds_bucket{le=\"0.000004\"} 2",
            "corona_grant_to_delivered_seconds_bucket{le=\"+Inf\"} 2",
            "corona_grant_to_delivered_seconds_sum 0.000006",
            "corona_first_start_timestamp_seconds 1.5",
            "corona_journal_records_total 90",
            "corona_journal_uncommitted_records 2",
            "corona_journal_unsynced_records 10",
            "corona_journal_stalled_seconds 1.5",
            "corona_journal_image_timestamp_seconds 880",
            "corona_journal_image_failed 0",
            "corona_journal_recovery_seconds 0.061",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
        }
        assert!(!text.contains("corona_pool_maximum{group=\"g\",pool=\"p\",type=\"MAP\"}"));
    }

    #[test]
    fn resources_have_samples_only_where_they_are_counted() {
        let of_resources = |gauges: &Gauges| {
            let text = render(&Metrics::default(), gauges);
            let samples = text.lines().filter(|line| {
                let is_of = |word| line.contains(word) && !line.starts_with('#');
                is_of("_resources_") || is_of("_dominant_share_")
            });
            samples.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of_resources(&gauges()), Vec::<String>::new());
        let counted = [true, true, false, false];
        let settings = Settings {
            resources: Later(Resources { counted, ..Resources::default() }),
            ..Settings::default()
        };
        let places = Places {
            capacity: Amounts([8, 4_096, 0, 0]),
            granted: Amounts([4, 2_048, 0, 0]),
            free: Amounts([4, 2_048, 0, 0]),
            largest: Amounts([2, 1_024, 0, 0]),
        };
        let mut gauges = gauges();
        let nodes = NodeCounts { places, ..gauges.nodes };
        let [group, pool] = &mut Arc::make_mut(&mut gauges.pools).views[..] else { panic!() };
        group.minimum_amounts = Amounts([0, 2_048, 7, 0]);
        group.maximum_amounts = Amounts([7, u64::MAX, 9, u64::MAX]);
        pool.minimum_amounts = Amounts([0, 1_024, 7, 0]);
        pool.maximum_amounts = Amounts([6, u64::MAX, 9, u64::MAX]);
        gauges.overview.settings = Arc::new(settings);
        let samples = of_resources(&Gauges { nodes, ..gauges });
        for line in [
            "corona_resources_capacity{resource=\"cpus\",unit=\"cores\"} 8",
            "corona_resources_capacity{resource=\"memory\",unit=\"bytes\"} 4294967296",
            "corona_resources_largest_free{resource=\"memory\",unit=\"bytes\"} 1073741824",
            "corona_pool_resources_granted{group=\"g\",pool=\"p\",resource=\"cpus\",unit=\"cores\"} 4",
            "corona_pool_resources_minimum{group=\"g\",pool=\"p\",resource=\"memory\",unit=\"bytes\"} 1073741824",
            "corona_pool_resources_maximum{group=\"g\",pool=\"p\",resource=\"cpus\",unit=\"cores\"} 6",
            "corona_group_resources_granted{group=\"g\",resource=\"memory\",unit=\"bytes\"} 2147483648",
            "corona_group_resources_minimum{group=\"g\",resource=\"memory\",unit=\"bytes\"} 2147483648",
            "corona_group_resources_maximum{group=\"g\",resource=\"cpus\",unit=\"cores\"} 7",
            "corona_pool_dominant_share_ratio{group=\"g\",pool=\"p\"} 0.25",
            "corona_group_dominant_share_ratio{group=\"g\"} 0.25",
        ] {
            assert!(samples.iter().any(|sample| sample == line), "{line} is not in {samples:#?}");
        }
        assert_eq!(samples.len(), 4 * 2 + 2 * 4 + 2);
    }

    #[test]
    fn names_of_pools_cannot_break_out() {
        let mut gauges = gauges();
        Arc::make_mut(&mut gauges.pools).views = vec![pool_view("a\"b\\c\nd", None)];
        let text = render(&Metrics::default(), &gauges);
        assert!(text.contains("corona_group_sessions{group=\"a\\\"b\\\\c\\nd\"} 3\n"), "{text}");
    }

    #[test]
    fn many_pools_do_not_make_many_series() {
        let mut gauges = gauges();
        Arc::make_mut(&mut gauges.pools).views =
            (0..3 * MAX_POOLS).map(|i| pool_view("g", Some(&i.to_string()))).collect();
        let text = render(&Metrics::default(), &gauges);
        let series = text.lines().filter(|line| line.starts_with("corona_pool_sessions{"));
        assert_eq!(series.count(), MAX_POOLS);
        assert!(text.contains(&format!("corona_pools_left_out {}\n", 2 * MAX_POOLS)));
    }

    #[test]
    fn the_documentation_has_exactly_these_names() {
        let document = include_str!("../../../docs/operate/metrics.md");
        // Those of other services have sections of their own.
        let documented: Vec<&str> = document
            .lines()
            .take_while(|line| !line.starts_with("## Of the "))
            .filter(|line| line.starts_with("| `corona_") || line.starts_with("| `process_"))
            .collect();
        let row = |family: &Family| {
            format!("| `{}` | {} | {} |", family.name, family.shape.name(), family.help)
        };
        let of_instances = &crate::standby::GAUGES;
        let expected: Vec<String> = FAMILIES.iter().chain(of_instances).map(row).collect();
        assert_eq!(documented, expected, "write this:\n{}", expected.join("\n"));
    }
}
