//! `/metrics`: what the service counts, for Prometheus. `docs/operate/job-tracker.md` lists it.

use corona_mapreduce::{JobState, PerKind, TaskKind};
use corona_web::process::process;
use corona_web::prometheus::{Text, families};

use super::gather::Row;
use super::html::kind_name;
use crate::jobs::store::Load;
use crate::meter::{Counter, Meter};

families! {
    BUILD = Gauge "corona_job_tracker_build_info" "1, with the version.";
    STARTED = Gauge "corona_job_tracker_started_seconds" "When the service started, in seconds since the epoch.";
    JOBS = Gauge "corona_job_tracker_jobs" "Jobs that are known, by state.";
    SUBMITTED = Counter "corona_job_tracker_jobs_submitted_total" "Jobs accepted since the start.";
    REFUSED = Counter "corona_job_tracker_jobs_refused_total" "Submissions that were refused or failed.";
    ENDED = Counter "corona_job_tracker_jobs_ended_total" "Jobs that ended, by how.";
    WITHOUT_HISTORY = Counter "corona_job_tracker_jobs_without_history_total" "Jobs that ended without a history, since it could not be written.";
    PLACES = Gauge "corona_job_tracker_job_places" "Jobs that may run at a time.";
    PLACES_USED = Gauge "corona_job_tracker_job_places_used" "Jobs that run, begin, or are being submitted.";
    WAITING = Gauge "corona_job_tracker_waiting_jobs" "Jobs that wait until others have ended.";
    WAITING_LIMIT = Gauge "corona_job_tracker_waiting_jobs_limit" "Jobs that may wait at a time.";
    TASKS = Gauge "corona_job_tracker_tasks" "Tasks of jobs that run, by type and state: done, failed or open.";
    ATTEMPTS = Gauge "corona_job_tracker_attempts_running" "Attempts that run, by type.";
    REQUESTED = Gauge "corona_job_tracker_requested_slots" "Slots requested and not granted.";
    LAUNCHED = Counter "corona_job_tracker_launches_total" "Attempts of maps and reduces launched.";
    REPEATED = Counter "corona_job_tracker_repeated_launches_total" "Launches of further attempts of a task: after failures, or speculative.";
    UNDELIVERED = Counter "corona_job_tracker_undelivered_orders_total" "Orders that task trackers could not be given.";
    ATTEMPT_ENDS = Counter "corona_job_tracker_attempts_ended_total" "Attempts that ended, by type and how.";
    FETCH = Counter "corona_job_tracker_fetch_failures_total" "Reports of reduces that a map's output cannot be fetched.";
    HEARTBEATS = Counter "corona_job_tracker_heartbeats_total" "Heartbeats of task trackers.";
    REPORTS = Counter "corona_job_tracker_reports_total" "Reports on attempts in heartbeats.";
    BUSY = Counter "corona_job_tracker_busy_total" "Heartbeats that failed because a job had too much waiting.";
    ACTION = Histogram "corona_job_tracker_report_to_action_seconds" "From a heartbeat with an attempt's end to the orders that follow, in seconds.";
    TRACKERS = Gauge "corona_job_tracker_task_trackers" "Task trackers heard of lately.";
    JOURNAL_JOBS = Gauge "corona_job_tracker_journaled_jobs" "Jobs with a journal on this machine.";
    WEB_REQUESTS = Counter "corona_job_tracker_web_requests_total" "HTTP requests.";
    WEB_REFUSED = Counter "corona_job_tracker_web_refused_total" "HTTP connections and requests refused.";
    WEB_CONNECTIONS = Gauge "corona_job_tracker_web_connections" "Open HTTP connections.";
}

/// What is read at the time of the request.
pub(super) struct Gauges {
    pub(super) started_ms: i64,
    pub(super) rows: Vec<Row>,
    pub(super) load: Load,
    pub(super) trackers: usize,
    pub(super) connections: usize,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    /// Absent if the directory cannot be read.
    pub(super) journals: Option<usize>,
}

/// Octaves of the latency, up to a quarter of a minute.
const OCTAVES: usize = 25;

/// The whole text.
pub(super) fn render(meter: &Meter, gauges: &Gauges) -> String {
    let mut text = Text(String::new());
    text.family(BUILD).labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(STARTED).value(gauges.started_ms as f64 / 1000.0);
    jobs(&mut text, meter, &gauges.rows, &gauges.load);
    tasks(&mut text, &gauges.rows);
    let mut of_kinds = |family, counters: &PerKind<Counter>| {
        let mut samples = text.family(family);
        for kind in TaskKind::ALL {
            samples.labelled(&[("type", kind_name(kind))], counters[kind].get());
        }
    };
    of_kinds(LAUNCHED, &meter.launches);
    of_kinds(REPEATED, &meter.repeats);
    text.family(UNDELIVERED).value(meter.undelivered.get());
    let mut samples = text.family(ATTEMPT_ENDS);
    for kind in TaskKind::ALL {
        let ends = &meter.ends[kind];
        for (how, count) in
            [("succeeded", &ends.succeeded), ("failed", &ends.failed), ("killed", &ends.killed)]
        {
            samples.labelled(&[("type", kind_name(kind)), ("how", how)], count.get());
        }
    }
    text.family(FETCH).value(meter.fetch_failures.get());
    text.family(HEARTBEATS).value(meter.heartbeats.get());
    text.family(REPORTS).value(meter.reports.get());
    text.family(BUSY).value(meter.busy.get());
    text.family(ACTION).histogram_of(&[], &meter.report_to_action.snapshot(), OCTAVES);
    text.family(TRACKERS).value(gauges.trackers);
    text.family(JOURNAL_JOBS).labelled_if_any(&[], gauges.journals);
    text.family(WEB_REQUESTS).value(gauges.requests);
    text.family(WEB_REFUSED).value(gauges.refused);
    text.family(WEB_CONNECTIONS).value(gauges.connections);
    process(&mut text);
    text.0
}

fn jobs(text: &mut Text, meter: &Meter, rows: &[Row], load: &Load) {
    let mut samples = text.family(JOBS);
    for (state, name) in [
        (JobState::Prep, "prep"),
        (JobState::Running, "running"),
        (JobState::Succeeded, "succeeded"),
        (JobState::Failed, "failed"),
        (JobState::Killed, "killed"),
    ] {
        let count = rows.iter().filter(|row| row.progress.state == state).count();
        samples.labelled(&[("state", name)], count);
    }
    text.family(SUBMITTED).value(meter.jobs_submitted.get());
    text.family(REFUSED).value(meter.jobs_refused.get());
    let mut samples = text.family(ENDED);
    for (how, count) in [
        ("succeeded", &meter.jobs_succeeded),
        ("failed", &meter.jobs_failed),
        ("killed", &meter.jobs_killed),
    ] {
        samples.labelled(&[("how", how)], count.get());
    }
    text.family(WITHOUT_HISTORY).value(meter.without_history.get());
    text.family(PLACES).value(load.most);
    text.family(PLACES_USED).value(load.used);
    text.family(WAITING).value(load.waiting);
    text.family(WAITING_LIMIT).value(load.most_waiting);
}

fn tasks(text: &mut Text, rows: &[Row]) {
    let running: Vec<&Row> = rows.iter().filter(|row| row.progress.finished_at.is_none()).collect();
    let sum = |of: &dyn Fn(&Row) -> u64| -> u64 { running.iter().map(|row| of(row)).sum() };
    let mut samples = text.family(TASKS);
    for kind in TaskKind::ALL {
        let all = sum(&|row| row.progress.total[kind].into());
        let done = sum(&|row| row.progress.finished[kind].into());
        let failed = sum(&|row| row.progress.failed[kind].into());
        let open = all.saturating_sub(done).saturating_sub(failed);
        for (state, count) in [("done", done), ("failed", failed), ("open", open)] {
            samples.labelled(&[("type", kind_name(kind)), ("state", state)], count);
        }
    }
    let mut samples = text.family(ATTEMPTS);
    for kind in TaskKind::ALL {
        let live = sum(&|row| row.progress.live[kind].into());
        samples.labelled(&[("type", kind_name(kind))], live);
    }
    text.family(REQUESTED).value(sum(&|row| row.progress.requested as u64));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::store::Bound;

    #[test]
    fn every_family_is_served_once_and_documented() {
        let meter = Meter::default();
        meter.report_to_action.record(std::time::Duration::from_millis(3));
        let gauges = Gauges {
            started_ms: 1000,
            rows: Vec::new(),
            load: Load {
                used: 3,
                most: 4,
                from: "a key".into(),
                memory_used: 1 << 20,
                memory: Bound { most: 1 << 30, from: "a key".into() },
                waiting: 5,
                most_waiting: 6,
            },
            trackers: 2,
            requests: 1,
            refused: 0,
            connections: 1,
            journals: Some(0),
        };
        let text = render(&meter, &gauges);
        let document = include_str!("../../../docs/operate/job-tracker.md");
        for family in FAMILIES {
            assert_eq!(
                text.matches(&format!("# TYPE {} ", family.name)).count(),
                1,
                "{}",
                family.name
            );
            let shape = family.shape.name();
            let row = format!("| `{}` | {shape} | {} |", family.name, family.help);
            let is_own = family.name.starts_with("corona_");
            assert!(!is_own || document.contains(&row), "write this: {row}");
        }
        assert_eq!(text.matches("# TYPE ").count(), FAMILIES.len());
        let own = FAMILIES.iter().filter(|family| family.name.starts_with("corona_"));
        assert_eq!(document.matches("\n| `corona_").count(), own.count(), "nothing else is listed");
    }
}
