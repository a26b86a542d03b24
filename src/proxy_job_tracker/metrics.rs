//! The metrics of the proxy job tracker for Prometheus. A test compares `docs/operate/metrics.md` with the
//! names.

use std::sync::atomic::Ordering;

use super::ProxyContext;
use super::statistics::{Sum, original_name};
use corona_web::process::process;
use corona_web::prometheus::{Text, families};

families! {
    BUILD = Gauge "corona_build_info" "Always 1; the version is a label.";
    SAFE_MODE = Gauge "corona_proxy_job_tracker_safe_mode" "1 while the cluster manager is in safe mode, as it has set the flag.";
    CALLS = Counter "corona_proxy_job_tracker_calls_total" "Calls of the Thrift service, by method.";
    SESSIONS = Gauge "corona_proxy_job_tracker_announced_addresses" "Addresses of pages that running sessions have announced, as far as they are known.";
    WEB_CONNECTIONS = Gauge "corona_proxy_job_tracker_web_connections" "Open HTTP connections.";
    WEB_REQUESTS = Counter "corona_proxy_job_tracker_web_requests_total" "HTTP requests.";
    WEB_REFUSED = Counter "corona_proxy_job_tracker_web_refused_total" "HTTP connections and requests refused.";
    RELAYS = Gauge "corona_proxy_job_tracker_relayed_requests" "Requests to job trackers that are being relayed.";
    REPORTS = Counter "corona_proxy_job_tracker_job_reports_total" "Statistics of finished jobs that job trackers have reported.";
    ERROR_REPORTS = Counter "corona_proxy_job_tracker_error_reports_total" "Counters of task errors that job trackers have reported.";
    LEFT_OUT = Counter "corona_proxy_job_tracker_statistics_left_out_total" "Reported counters and pools for which there was no room.";
    JOBS = Gauge "corona_proxy_job_tracker_indexed_jobs" "Jobs in the index of histories.";
    JOBS_LEFT_OUT = Counter "corona_proxy_job_tracker_index_left_out_total" "Jobs for which the index had no room.";
    UNREADABLE = Counter "corona_proxy_job_tracker_unreadable_histories_total" "Attempts to read a history for the index that failed.";
    SEARCHED = Gauge "corona_proxy_job_tracker_index_timestamp_seconds" "Time at which all histories were last searched for new ones; 0 before the first time.";
    SEARCH_FAILED = Gauge "corona_proxy_job_tracker_index_failed" "1 if the last search could not read every directory.";
    CLEANED = Counter "corona_proxy_job_tracker_clean_up_total" "Expired directories and files, by outcome.";
    STATS = Counter "corona_proxy_job_tracker_job_statistics_total" "Statistics of finished jobs; name is the original's name of the metric.";
    COUNTERS = Counter "corona_proxy_job_tracker_job_counters_total" "Counters of finished jobs; name is the original's name of the metric.";
    POOL_STATS = Counter "corona_proxy_job_tracker_pool_job_statistics_total" "Statistics of finished jobs, by pool.";
    POOL_COUNTERS = Counter "corona_proxy_job_tracker_pool_job_counters_total" "Counters of finished jobs, by pool.";
}

/// Everything, as text. It reads files of the kernel.
pub(super) fn render(shared: &ProxyContext) -> String {
    let mut text = Text(String::with_capacity(16 * 1024));
    text.family(BUILD).labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(SAFE_MODE).value(u8::from(shared.safe_mode.load(Ordering::Acquire)));
    let calls = &shared.calls;
    let mut samples = text.family(CALLS);
    for (method, count) in [
        ("setClusterManagerSafeModeFlag", &calls.set_safe_mode),
        ("getClusterManagerSafeModeFlag", &calls.get_safe_mode),
        ("getSystemDir", &calls.system_dir),
        ("cleanJobHistoryCache", &calls.clean_cache),
    ] {
        samples.labelled(&[("method", method)], count.load(Ordering::Relaxed));
    }
    text.family(SESSIONS).value(shared.sessions.count());
    text.family(WEB_CONNECTIONS).value(shared.front.open());
    text.family(WEB_REQUESTS).value(shared.front.requests());
    text.family(WEB_REFUSED).value(shared.front.refused());
    text.family(RELAYS).value(shared.relay.running());
    let sums = shared.statistics.sums();
    text.family(REPORTS).value(sums.jobs);
    text.family(ERROR_REPORTS).value(sums.errors);
    text.family(LEFT_OUT).value(sums.left_out);
    let index = &shared.index;
    text.family(JOBS).value(index.jobs().len());
    text.family(JOBS_LEFT_OUT).value(index.left_out.load(Ordering::Relaxed));
    text.family(UNREADABLE).value(index.unreadable.load(Ordering::Relaxed));
    text.family(SEARCHED).value(index.searched_ms.load(Ordering::Relaxed) as f64 / 1000.0);
    text.family(SEARCH_FAILED).value(u8::from(index.has_failed.load(Ordering::Relaxed)));
    let cleaned = &shared.cleaned;
    let mut samples = text.family(CLEANED);
    for (outcome, count) in [
        ("deleted", &cleaned.deleted),
        ("reported", &cleaned.reported),
        ("failed", &cleaned.failed),
    ] {
        samples.labelled(&[("outcome", outcome)], count.load(Ordering::Relaxed));
    }
    let mut samples = text.family(STATS);
    for (name, value) in &sums.all.stats {
        samples.labelled(&[("name", name)], value);
    }
    let mut samples = text.family(COUNTERS);
    for (name, value) in counters(&sums.all) {
        samples.labelled(&[("name", &name)], value);
    }
    let mut samples = text.family(POOL_STATS);
    for (pool, sum) in &sums.pools {
        for (name, value) in &sum.stats {
            samples.labelled(&[("pool", pool), ("name", name)], value);
        }
    }
    let mut samples = text.family(POOL_COUNTERS);
    for (pool, sum) in &sums.pools {
        for (name, value) in counters(sum) {
            samples.labelled(&[("pool", pool), ("name", &name)], value);
        }
    }
    process(&mut text);
    text.0
}

/// By the original's names. Where two counters have one name, as digits are replaced, they are added.
pub(super) fn counters(sum: &Sum) -> std::collections::BTreeMap<String, i64> {
    let mut counters = std::collections::BTreeMap::new();
    for ((group, counter), value) in &sum.counters {
        let total: &mut i64 = counters.entry(original_name(group, counter)).or_default();
        *total = total.saturating_add(*value);
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_exactly_these_metrics() {
        let document = include_str!("../../docs/operate/metrics.md");
        for family in FAMILIES.iter() {
            assert!(document.contains(&format!("`{}`", family.name)), "{}", family.name);
        }
    }
}
