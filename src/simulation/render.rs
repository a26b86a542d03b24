//! Inputs and outcomes as text in a canonical form, for [digests](super::digest).
//!
//! Every field is written by hand, so that the text survives any change of the Rust types: words
//! name the variants, numbers are decimal, texts come with their length in bytes, absent values are
//! `-`, and fractions are the bits of the `f64`. A refusal is written as the class and the text
//! that a Java peer receives.
//!
//! **A change here changes every digest that is kept.** A new input, record or field of a record
//! gets a word of its own; one that exists stays as it is.

use std::fmt::Write as _;
use std::sync::Arc;

use corona_engine::{
    Asked, Effect, Input, Notification, Observed, Outcome, PoolObjection, Record, Refusal, Reply,
    Starvation, StepMismatch,
};
use corona_model::queues::{PlaceBy, Placement, QueueRules, Queues};
use corona_model::resources::Resources;
use corona_model::settings::{Hosts, PoolSettings, SchedulingMode, Settings};
use corona_model::types::{
    Address, ComputeSpecs, Grant, Millis, NodeReport, PerType, PoolName, ResourceRequest,
    ResourceType, SessionInfo, SessionPriority, SessionStatus,
};

/// The start of a run.
pub(super) fn start(out: &mut String, all: &Settings) {
    word(out, "start");
    settings(out, all);
    out.push('\n');
}

/// One step of a run.
pub(super) fn step(out: &mut String, now: Millis, input: &Input, outcome: &Outcome) {
    number(out, now.0);
    input_text(out, input);
    out.push('\n');
    match &outcome.reply {
        Ok(reply) => reply_text(out, reply),
        Err(refusal) => refusal_text(out, refusal),
    }
    out.push('\n');
    for each in &outcome.effects {
        effect(out, each);
    }
}

/// The engine's demands on its caller after a step.
pub(super) fn demands(out: &mut String, pass: bool, deadline: Option<Millis>) {
    flag(out, pass);
    maybe(out, deadline, |out, at| number(out, at.0));
    out.push('\n');
}

fn input_text(out: &mut String, input: &Input) {
    match input {
        Input::NextSessionId => word(out, "next-session-id"),
        Input::StartSession { handle, info } => {
            word(out, "start-session");
            text(out, handle);
            session_info(out, info);
        }
        Input::UpdateSession { handle, info } => {
            word(out, "update-session");
            text(out, handle);
            session_info(out, info);
        }
        Input::EndSession { handle, status } => {
            word(out, "end-session");
            text(out, handle);
            session_status(out, *status);
        }
        Input::HeartbeatSession { handle, view } => {
            word(out, "heartbeat-session");
            text(out, handle);
            maybe(out, view.as_ref(), |out, view| {
                number(out, view.request_id);
                number(out, view.grant_id);
                per_type(out, &view.usages, |out, usages| {
                    maybe(out, usages.as_ref(), |out, usages| list(out, usages, number));
                });
            });
        }
        Input::RequestResources { handle, requests, racks } => {
            word(out, "request-resources");
            asked_for(out, handle, requests, racks);
        }
        Input::ExpectRequests { handle, summary } => {
            word(out, "expect-requests");
            text(out, handle);
            per_type(out, &summary.counts, |out, count| number(out, count));
            number(out, summary.largest_id);
            flag(out, summary.contradictory);
        }
        Input::MoreRequests { handle, requests, racks } => {
            word(out, "more-requests");
            asked_for(out, handle, requests, racks);
        }
        Input::ReleaseResources { handle, ids } => {
            word(out, "release-resources");
            text(out, handle);
            list(out, ids, number);
        }
        Input::HeartbeatNode { report, rack } => {
            word(out, "heartbeat-node");
            node_report(out, report);
            maybe(out, rack.as_ref(), |out, rack| text(out, rack));
        }
        Input::NodeFeedback { handle, kinds, reports } => {
            word(out, "node-feedback");
            text(out, handle);
            list(out, kinds, |out, kind| resource_type(out, *kind));
            list(out, reports, |out, report| {
                text(out, &report.node_name);
                number(out, report.failed);
                number(out, report.failed_connections);
            });
        }
        Input::ClearBlacklist { node, kind } => {
            word(out, "clear-blacklist");
            text(out, node);
            maybe(out, *kind, resource_type);
        }
        Input::HostsChanged { hosts } => {
            word(out, "hosts-changed");
            let Hosts { include, exclude } = hosts;
            list(out, include, |out, host| text(out, host));
            list(out, exclude, |out, host| text(out, host));
        }
        Input::RestartNodes { force, batch_size } => {
            word(out, "restart-nodes");
            flag(out, *force);
            number(out, batch_size);
        }
        Input::KillSession { handle } => {
            word(out, "kill-session");
            text(out, handle);
        }
        Input::SetSafeMode { on } => {
            word(out, "set-safe-mode");
            flag(out, *on);
        }
        Input::SettingsChanged { settings: all } => {
            word(out, "settings-changed");
            settings(out, all);
        }
        Input::NotificationFailed { handle } => {
            word(out, "notification-failed");
            text(out, handle);
        }
        Input::NodesEnded { host, names } => {
            word(out, "nodes-ended");
            text(out, host);
            list(out, names, |out, name| text(out, name));
        }
        Input::DrainNode { node, on } => {
            word(out, "drain-node");
            text(out, node);
            flag(out, *on);
        }
        Input::HeldUp { ms } => {
            word(out, "stalled");
            number(out, ms);
        }
        Input::Observed(observed) => {
            word(out, "observed");
            observed_text(out, observed);
        }
        Input::Tick => word(out, "tick"),
        Input::Pass => word(out, "pass"),
    }
}

fn observed_text(out: &mut String, observed: &Observed) {
    match observed {
        Observed::Identity { id_prefix, sessions_numbered } => {
            word(out, "identity");
            text(out, id_prefix);
            number(out, sessions_numbered);
        }
        Observed::Granted { handle, id, node } => {
            word(out, "granted");
            text(out, handle);
            number(out, id);
            text(out, node);
        }
        Observed::Waiting { handle, id } => {
            word(out, "waiting");
            text(out, handle);
            number(out, id);
        }
        Observed::Lost { handle, id } => {
            word(out, "lost");
            text(out, handle);
            number(out, id);
        }
        Observed::Ended { handle, status } => {
            word(out, "ended");
            text(out, handle);
            session_status(out, *status);
        }
    }
}

fn reply_text(out: &mut String, reply: &Reply) {
    match reply {
        Reply::Done => word(out, "done"),
        Reply::SessionId(id) => {
            word(out, "session-id");
            text(out, id);
        }
        Reply::Started { log_path, pool } => {
            word(out, "started");
            text(out, log_path);
            pool_name(out, pool);
        }
        Reply::NodeHeard { restart } => {
            word(out, "node-heard");
            flag(out, *restart);
        }
        Reply::BlacklistCleared { kinds } => {
            word(out, "blacklist-cleared");
            list(out, kinds, |out, kind| resource_type(out, *kind));
        }
        Reply::Observed { entered } => {
            word(out, "observed");
            flag(out, *entered);
        }
    }
}

fn refusal_text(out: &mut String, refusal: &Refusal) {
    word(out, "refused");
    let (class, sentence) = match refusal {
        Refusal::SafeMode => return word(out, "SafeModeException"),
        Refusal::DisallowedNode(host) => ("DisallowedNode", host.to_string()),
        Refusal::UnknownSession(handle)
        | Refusal::OutOfStep(handle)
        | Refusal::MalformedHandle(handle) => ("InvalidSessionHandle", handle.to_string()),
        Refusal::ForeignHandle(handle) => {
            ("InvalidSessionHandle", format!("Session belongs to a different start time {handle}"))
        }
        Refusal::AlreadyStarted(handle) => {
            ("InvalidSessionHandle", format!("Session already started {handle}"))
        }
        Refusal::SessionPool(objection) => ("InvalidSessionHandle", pool_sentence(objection)),
        Refusal::OverPoolMaximum { handle, kind, requested, allowed } => (
            "InvalidSessionHandle",
            format!(
                "Session {handle} requested {requested} resources for resource type {kind} but \
                 was only allowed {allowed}, so failing the job"
            ),
        ),
        Refusal::Pool(objection) => ("InvalidPoolInfo", pool_sentence(objection)),
        Refusal::IllegalType(handle) => {
            ("fault", format!("Bad resource type from session: {handle}"))
        }
        Refusal::ContradictoryHosts(handle) => {
            ("fault", format!("Bad excluded hosts from session: {handle}"))
        }
        Refusal::UnknownCpuCount { num_cpus } => (
            "fault",
            format!("No matching entry for cpu count: {num_cpus} in node and no 1 cpu map"),
        ),
        Refusal::TooManySessions { running } => {
            ("fault", format!("{running} sessions run already"))
        }
        Refusal::TooManyRequests { handle, known } => {
            ("fault", format!("Session {handle} has {known} requests already"))
        }
        Refusal::TooManyNodes { known } => ("fault", format!("{known} nodes are known already")),
        Refusal::TooManyPools { used } => ("fault", format!("{used} pools are in use already")),
    };
    word(out, class);
    text(out, &sentence);
}

fn pool_sentence(objection: &PoolObjection) -> String {
    let what = match objection {
        PoolObjection::NotSpecified => "not specified.".to_owned(),
        PoolObjection::NotConfigured(pool) => {
            format!("specified as '{pool}' and is not part of this cluster.")
        }
        PoolObjection::IllegalName(pool) => format!(
            "specified as '{pool}' and has illegal characters (Something not in \
             .*[^0-9a-z\\-\\_].*)."
        ),
        PoolObjection::Draining(_) | PoolObjection::NotAllowed { .. } => {
            return objection.to_string();
        }
    };
    let form = match objection {
        PoolObjection::NotSpecified => "poolgroup and pool in the format '<poolgroup>.<pool>'",
        _ => "pool group and pool in the format <poolgroup>.<pool>",
    };
    format!(
        "This cluster is operating in configured pools only mode.  The pool group and pool was \
         {what}  Please use the Corona parameter mapred.fairscheduler.pool to set a valid {form}"
    )
}

/// Each effect is a line, except for the effect that follows from the record beside it.
fn effect(out: &mut String, effect: &Effect) {
    match effect {
        Effect::Notify { handle, to, notification } => {
            word(out, "notify");
            text(out, handle);
            address(out, to);
            match notification {
                Notification::Granted(grants) => {
                    word(out, "granted");
                    list(out, grants, grant);
                }
                Notification::Revoked(grants) => {
                    word(out, "revoked");
                    list(out, grants, grant);
                }
                Notification::DeadNode(node) => {
                    word(out, "dead-node");
                    text(out, node);
                }
            }
        }
        Effect::ForgetSession { handle } => {
            word(out, "forget-session");
            text(out, handle);
        }
        // The record that safe mode is off implies it.
        Effect::ResumeNotifications => return,
        Effect::Record(happened) => {
            word(out, "record");
            record(out, happened);
        }
    }
    out.push('\n');
}

fn record(out: &mut String, record: &Record) {
    match record {
        Record::SessionStarted {
            handle,
            name,
            user: _,
            address: at,
            pool,
            scheduling_pool,
            running,
        } => {
            word(out, "session-started");
            text(out, handle);
            text(out, name);
            address(out, at);
            pool_name(out, pool);
            pool_name(out, scheduling_pool);
            number(out, running);
        }
        Record::IllegalPool { handle, pool } => {
            word(out, "illegal-pool");
            text(out, handle);
            pool_name(out, pool);
        }
        Record::SessionUpdated { handle, priority: to } => {
            word(out, "session-updated");
            text(out, handle);
            maybe(out, *to, priority);
        }
        Record::SessionEnded { handle, name: _, user: _, address: at, status, url, running } => {
            word(out, "session-ended");
            text(out, handle);
            address(out, at);
            session_status(out, *status);
            maybe(out, url.as_ref(), |out, url| text(out, url));
            number(out, running);
        }
        Record::SessionExpired { handle, name, gap_ms, .. } => {
            word(out, "session-expired");
            text(out, handle);
            text(out, name);
            number(out, gap_ms);
        }
        Record::OutOfStep {
            handle,
            kind,
            request_id,
            grant_id,
            seen_request_id,
            seen_grant_id,
        } => {
            word(out, "out-of-step");
            text(out, handle);
            word(
                out,
                match kind {
                    StepMismatch::Lost => "lost",
                    StepMismatch::Progress => "progress",
                    StepMismatch::NoProgress => "no-progress",
                    StepMismatch::Late => "late",
                },
            );
            for id in [request_id, grant_id, seen_request_id, seen_grant_id] {
                number(out, id);
            }
        }
        Record::Requested { handle, kind, count } => {
            counted(out, "requested", handle, *kind, *count);
        }
        Record::DuplicateRequest { handle, id } => {
            word(out, "duplicate-request");
            text(out, handle);
            number(out, id);
        }
        Record::Released { handle, kind, count } => {
            counted(out, "released", handle, *kind, *count);
        }
        Record::Assigned { handle, kind, count, asked } => {
            counted(out, "assigned", handle, *kind, *count);
            list(out, asked, |out, Asked { at, input }| {
                number(out, at.0);
                number(out, input);
            });
        }
        Record::Revoked { handle, kind, count } => counted(out, "revoked", handle, *kind, *count),
        Record::NodeAdded { report, nodes } => {
            word(out, "node-added");
            node_report(out, report);
            number(out, nodes);
        }
        Record::NodeLost { name, expired, nodes, told } => {
            word(out, "node-lost");
            text(out, name);
            flag(out, *expired);
            number(out, nodes);
            number(out, told);
        }
        Record::NodeLate { name, silent_ms } => {
            word(out, "node-late");
            text(out, name);
            number(out, silent_ms);
        }
        Record::NodeOnTime { name } => {
            word(out, "node-on-time");
            text(out, name);
        }
        Record::NodeRunnable { name, kind, runnable } => {
            word(out, "node-runnable");
            text(out, name);
            resource_type(out, *kind);
            flag(out, *runnable);
        }
        Record::NodeBlacklisted { name, kind } => {
            word(out, "node-blacklisted");
            text(out, name);
            resource_type(out, *kind);
        }
        Record::NodeDraining { name, on } => {
            word(out, "node-draining");
            text(out, name);
            flag(out, *on);
        }
        Record::BlacklistCleared { name, kind } => {
            word(out, "blacklist-cleared");
            text(out, name);
            resource_type(out, *kind);
        }
        Record::FeedbackForUnknownNode { name } => {
            word(out, "feedback-for-unknown-node");
            text(out, name);
        }
        Record::RestartRequested { nodes, batch_size } => {
            word(out, "restart-requested");
            number(out, nodes);
            number(out, batch_size);
        }
        Record::RestartTold { name } => {
            word(out, "restart-sent");
            text(out, name);
        }
        Record::PoolStarving { pool, kind, cause, share, minimum, granted } => {
            word(out, "pool-starving");
            pool_name(out, pool);
            resource_type(out, *kind);
            word(
                out,
                match cause {
                    Starvation::Minimum => "minimum",
                    Starvation::Share => "share",
                },
            );
            fraction(out, *share);
            number(out, minimum);
            number(out, granted);
        }
        Record::PreemptionFound { kind, count } => {
            word(out, "preemption-found");
            resource_type(out, *kind);
            number(out, count);
        }
        Record::PreemptionFellShort { kind, missing, rounds, max_running_time_ms } => {
            word(out, "preemption-fell-short");
            resource_type(out, *kind);
            number(out, missing);
            number(out, rounds);
            number(out, max_running_time_ms);
        }
        Record::SafeMode { on } => {
            word(out, "safe-mode");
            flag(out, *on);
        }
        Record::HeldUp { ms } => {
            word(out, "stalled");
            number(out, ms);
        }
        Record::SettingsChanged => word(out, "settings-changed"),
    }
}

fn counted(out: &mut String, what: &str, handle: &str, kind: ResourceType, count: u64) {
    word(out, what);
    text(out, handle);
    resource_type(out, kind);
    number(out, count);
}

fn asked_for(
    out: &mut String,
    handle: &str,
    requests: &[ResourceRequest],
    racks: &[(Arc<str>, Arc<str>)],
) {
    text(out, handle);
    list(out, requests, |out, request| {
        let ResourceRequest { id, hosts, specs: wanted, kind, exclude_hosts } = request;
        number(out, id);
        list(out, hosts, |out, host| text(out, host));
        maybe(out, *wanted, specs);
        resource_type(out, *kind);
        list(out, exclude_hosts, |out, host| text(out, host));
    });
    list(out, racks, |out, (host, rack)| {
        text(out, host);
        text(out, rack);
    });
}

fn grant(out: &mut String, grant: &Grant) {
    let Grant { id, node_name, address: at, granted_at, kind, app_info } = grant;
    number(out, id);
    text(out, node_name);
    address(out, at);
    number(out, granted_at.0);
    resource_type(out, *kind);
    text(out, app_info);
}

fn session_info(out: &mut String, info: &SessionInfo) {
    let SessionInfo {
        address: at,
        name,
        user_id,
        group_ids,
        pool,
        priority: rank,
        no_preempt,
        url,
        deadline,
    } = info;
    address(out, at);
    text(out, name);
    text(out, user_id);
    maybe(out, group_ids.as_ref(), |out, ids| list(out, ids, |out, id| text(out, id)));
    maybe(out, pool.as_ref(), pool_name);
    maybe(out, *rank, priority);
    maybe(out, *no_preempt, flag);
    maybe(out, url.as_ref(), |out, url| text(out, url));
    maybe(out, *deadline, number);
}

fn node_report(out: &mut String, report: &NodeReport) {
    let NodeReport { name, address: at, total, free, apps } = report;
    text(out, name);
    address(out, at);
    specs(out, *total);
    maybe(out, *free, specs);
    per_type(out, apps, |out, app| maybe(out, app.as_ref(), |out, app| text(out, app)));
}

fn settings(out: &mut String, all: &Settings) {
    let Settings {
        partitioning,
        node_expiry_ms,
        node_late_ms,
        skip_late_nodes,
        session_expiry_ms,
        retired_sessions,
        reserved_memory_mb,
        reserved_disk_gb,
        faults,
        restart_interval_ms,
        heartbeat_delay_max_ms,
        sessions_log_dir,
        sessions_per_log_dir,
        configured_pools_only,
        bounds,
        scheduling,
        pools,
        resources,
    } = all;
    list(out, &partitioning.0, |out, (cpus, slots)| {
        number(out, cpus);
        list(out, slots, |out, (kind, count)| {
            resource_type(out, *kind);
            number(out, count);
        });
    });
    number(out, node_expiry_ms);
    number(out, node_late_ms);
    flag(out, *skip_late_nodes);
    number(out, session_expiry_ms);
    number(out, retired_sessions);
    number(out, reserved_memory_mb);
    number(out, reserved_disk_gb);
    number(out, faults.failed_connection_sessions);
    number(out, faults.failed_connections_of_a_session);
    number(out, faults.failure_sessions);
    number(out, faults.failures_of_a_session);
    number(out, restart_interval_ms);
    number(out, heartbeat_delay_max_ms);
    text(out, sessions_log_dir);
    number(out, sessions_per_log_dir);
    flag(out, *configured_pools_only);
    for bound in [bounds.sessions, bounds.requests_per_session, bounds.nodes, bounds.pools] {
        number(out, bound);
    }
    per_type(out, &scheduling.node_locality_wait_ms, |out, wait| number(out, wait));
    per_type(out, &scheduling.rack_locality_wait_ms, |out, wait| number(out, wait));
    mode(out, scheduling.default_mode);
    fraction(out, scheduling.share_starving_ratio);
    number(out, scheduling.grants_per_pass);
    number(out, scheduling.min_preempt_period_ms);
    number(out, scheduling.starving_time_for_share_ms);
    number(out, scheduling.starving_time_for_minimum_ms);
    number(out, scheduling.preempted_task_max_running_time_ms);
    number(out, scheduling.preemption_rounds);
    list(out, &scheduling.redirects, |out, (from, to)| {
        pool_name(out, from);
        pool_name(out, to);
    });
    list(out, &pools.groups, |out, (name, group)| {
        text(out, name);
        per_type(out, &group.minimum, |out, count| number(out, count));
        per_type(out, &group.maximum, |out, count| number(out, count));
    });
    list(out, &pools.pools, |out, (name, pool)| {
        pool_name(out, name);
        pool_settings(out, pool);
    });
    list(out, &pools.size_redirects, |out, (name, redirect)| {
        pool_name(out, name);
        number(out, redirect.input_size_limit_bytes);
        pool_name(out, &redirect.destination);
    });
    // Files of two levels have none, and are rendered as before there were any.
    if !pools.queues.is_empty() {
        queues(out, &pools.queues);
    }
    // As before there were any, where only slots are counted.
    if resources.are_counted() {
        resource_settings(out, resources);
    }
}

fn resource_settings(out: &mut String, resources: &Resources) {
    let Resources { counted, overcommit, requested } = resources;
    counted.iter().for_each(|counted| flag(out, *counted));
    overcommit.iter().for_each(|part| number(out, part.0));
    per_type(out, requested, |out, amounts| {
        amounts.0.iter().for_each(|amount| number(out, amount))
    });
}

fn queues(out: &mut String, queues: &Queues) {
    list(out, &queues.groups, |out, (name, group)| {
        text(out, name);
        queue_rules(out, group);
    });
    list(out, &queues.pools, |out, (name, pool)| {
        pool_name(out, name);
        queue_rules(out, pool);
    });
    list(out, &queues.placement, placement);
}

fn queue_rules(out: &mut String, rules: &QueueRules) {
    let QueueRules {
        parent,
        weight,
        minimum,
        maximum,
        order,
        lend,
        preemption,
        min_runtime_ms,
        max_sessions,
        max_per_user,
        max_sessions_per_user,
        submit,
        draining,
        vanished,
        placement: places,
    } = rules;
    maybe(out, parent.as_ref(), |out, parent| text(out, parent));
    fraction(out, *weight);
    per_type(out, minimum, |out, part| maybe(out, *part, |out, part| number(out, part.0)));
    per_type(out, maximum, |out, part| maybe(out, *part, |out, part| number(out, part.0)));
    word(out, order.name());
    flag(out, *lend);
    word(out, preemption.name());
    maybe(out, *min_runtime_ms, number);
    for limit in [max_sessions, max_per_user, max_sessions_per_user] {
        maybe(out, *limit, number);
    }
    maybe(out, submit.as_ref(), |out, submit| {
        flag(out, submit.all);
        list(out, &submit.users, |out, user| text(out, user));
        list(out, &submit.groups, |out, group| text(out, group));
    });
    flag(out, *draining);
    flag(out, *vanished);
    list(out, places, placement);
}

fn placement(out: &mut String, rule: &Placement) {
    word(
        out,
        match rule.by {
            PlaceBy::User => "user",
            PlaceBy::Group => "group",
            PlaceBy::Name => "name",
        },
    );
    text(out, &rule.to);
    flag(out, rule.create);
}

fn pool_settings(out: &mut String, pool: &PoolSettings) {
    let PoolSettings {
        minimum,
        maximum,
        weight,
        priority: rank,
        mode: own_mode,
        preemptable,
        request_max,
        whitelist,
    } = pool;
    per_type(out, minimum, |out, count| number(out, count));
    per_type(out, maximum, |out, count| number(out, count));
    fraction(out, *weight);
    number(out, rank);
    maybe(out, *own_mode, mode);
    flag(out, *preemptable);
    flag(out, *request_max);
    maybe(out, whitelist.as_ref(), |out, names| text(out, names));
}

fn address(out: &mut String, address: &Address) {
    text(out, &address.host);
    number(out, address.port);
}

fn pool_name(out: &mut String, name: &PoolName) {
    text(out, &name.group);
    text(out, &name.pool);
}

fn specs(out: &mut String, specs: ComputeSpecs) {
    let ComputeSpecs { num_cpus, network_mbps, memory_mb, disk_gb } = specs;
    number(out, num_cpus);
    maybe(out, network_mbps, number);
    maybe(out, memory_mb, number);
    maybe(out, disk_gb, number);
}

fn resource_type(out: &mut String, kind: ResourceType) {
    word(
        out,
        match kind {
            ResourceType::Map => "MAP",
            ResourceType::Reduce => "REDUCE",
            ResourceType::JobTracker => "JOBTRACKER",
        },
    );
}

fn priority(out: &mut String, priority: SessionPriority) {
    word(
        out,
        match priority {
            SessionPriority::VeryLow => "VERY_LOW",
            SessionPriority::Low => "LOW",
            SessionPriority::Normal => "NORMAL",
            SessionPriority::High => "HIGH",
            SessionPriority::VeryHigh => "VERY_HIGH",
        },
    );
}

fn session_status(out: &mut String, status: SessionStatus) {
    word(
        out,
        match status {
            SessionStatus::Running => "RUNNING",
            SessionStatus::Failed => "FAILED",
            SessionStatus::Successful => "SUCCESSFUL",
            SessionStatus::Killed => "KILLED",
            SessionStatus::TimedOut => "TIMED_OUT",
            SessionStatus::KilledAborted => "KILLED_ABORTED",
            SessionStatus::FailedJobtracker => "FAILED_JOBTRACKER",
        },
    );
}

fn mode(out: &mut String, mode: SchedulingMode) {
    word(
        out,
        match mode {
            SchedulingMode::Fifo => "FIFO",
            SchedulingMode::Fair => "FAIR",
            SchedulingMode::Deadline => "DEADLINE",
        },
    );
}

fn per_type<T>(out: &mut String, values: &PerType<T>, mut write: impl FnMut(&mut String, &T)) {
    for kind in [ResourceType::Map, ResourceType::Reduce, ResourceType::JobTracker] {
        write(out, &values[kind]);
    }
}

fn list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    mut write: impl FnMut(&mut String, T),
) {
    let items = items.into_iter();
    let _ = write!(out, "[{} ", items.len());
    items.for_each(|item| write(out, item));
    out.push_str("] ");
}

fn maybe<T>(out: &mut String, value: Option<T>, write: impl FnOnce(&mut String, T)) {
    match value {
        Some(value) => write(out, value),
        None => word(out, "-"),
    }
}

fn word(out: &mut String, word: &str) {
    out.push_str(word);
    out.push(' ');
}

fn text(out: &mut String, text: &str) {
    let _ = write!(out, "{}:{text} ", text.len());
}

fn number(out: &mut String, number: impl std::fmt::Display) {
    let _ = write!(out, "{number} ");
}

fn flag(out: &mut String, flag: bool) {
    word(out, if flag { "yes" } else { "no" });
}

fn fraction(out: &mut String, fraction: f64) {
    let _ = write!(out, "{:016x} ", fraction.to_bits());
}
