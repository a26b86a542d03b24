//! A job's settings for its job tracker, typed. Spec: mapreduce/05 §5.3, §5.5, mapreduce/09 §C, §E.

use corona_config::{JobConf, keys};
use corona_model::types::PoolName;
use serde::{Deserialize, Serialize};

use crate::counters::CounterLimits;
use crate::ids::PerKind;

/// Slow tasks are looked for at most this often: each time all tasks are looked at. The original's thread
/// that does it runs once a second. Spec: mapreduce/09.
const MIN_REFRESH_MS: i64 = 1000;
/// The group of a pool that is named without one.
pub const NO_POOL_GROUP: &str = "default";

/// The settings of one job. A value that cannot be read counts as the default, as in the original.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSettings {
    /// Whether a task prepares the job and another one cleans up after it.
    pub setup_cleanup_needed: bool,
    /// Whether an attempt that failed or was killed is cleaned up after.
    pub task_cleanup_needed: bool,
    /// Failed attempts that fail a task.
    pub max_attempts: PerKind<u32>,
    /// Killed attempts that fail a task, so that every job ends.
    pub max_killed_attempts: u32,
    /// Percentage of tasks that may fail without failing the job.
    pub failures_percent: PerKind<u32>,
    /// The share of maps that must be finished before reduces are requested.
    #[serde(with = "crate::exact")]
    pub slow_start: f64,
    /// A job of at most so many maps requests its reduces at once.
    pub rush_maps: usize,
    /// A job of at most so many reduces requests them at once.
    pub rush_reduces: usize,
    /// Whether the job ends when its reduces have, whatever its maps do.
    pub finish_when_reduces_done: bool,
    /// Milliseconds without a report until an attempt is given up; 0 for never.
    pub task_timeout_ms: i64,
    /// Milliseconds from a launch to the first report until an attempt is given up; 0 for never.
    pub launch_timeout_ms: i64,
    /// Fetch failures of one map's output that fail the map, however many reduces run.
    pub max_fetch_failures: u32,
    /// Which tasks get a second attempt because they are slow.
    pub speculation: PerKind<SpeculationSettings>,
    /// Milliseconds between two searches for slow tasks.
    pub speculation_refresh_ms: i64,
    /// How many standard deviations below the mean a rate counts as slow.
    #[serde(with = "crate::exact")]
    pub slow_task_threshold: f64,
    /// The largest distance from the mean that counts, as a part of the mean.
    #[serde(with = "crate::exact")]
    pub max_deviation_ratio: f64,
    /// The part of the running tasks that may have a second attempt.
    #[serde(with = "crate::exact")]
    pub speculative_cap: f64,
    /// Records of a map, and groups of a reduce, that may be skipped around a bad one; 0 for no skipping.
    pub max_skipped: PerKind<i64>,
    /// Failed attempts of a task after which it skips.
    pub attempts_before_skipping: u32,
    /// Failed connections to a node, and attempts that timed out there, above which it counts as faulty.
    pub max_failed_connections: u32,
    /// Attempts that failed and left output to clean up, above which a node counts as faulty.
    pub max_node_failures: u32,
    /// Milliseconds for which a request waits with excluded hosts while the hosts of the cluster
    /// are unknown.
    pub exclusion_wait_ms: i64,
    /// Milliseconds that the clean-up of a job that was killed may take; 0: it is not cleaned up after.
    pub killed_cleanup_ms: i64,
    /// Counters of all tasks.
    pub counters: CounterLimits,
    /// Bytes of the diagnostics, and of the state text, kept of one attempt.
    pub max_text_bytes: usize,
}

/// Settings of speculation for one kind of task. Spec: mapreduce/09 §E.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpeculationSettings {
    /// Whether slow tasks get a second attempt.
    pub enabled: bool,
    /// Milliseconds from the launch in which no attempt counts as slow.
    pub lag_ms: i64,
    /// Seconds in which a task should be done; faster ones do not count as slow. 0 for no such test.
    pub duration_s: i64,
    /// The part of unfinished tasks below which every running one counts as slow.
    #[serde(with = "crate::exact")]
    pub unfinished_threshold: f64,
}

impl Default for JobSettings {
    /// The settings of a job whose configuration is empty.
    fn default() -> Self {
        JobSettings::read(&|_| None)
    }
}

impl JobSettings {
    /// The settings in a job's configuration.
    pub fn of(conf: &JobConf) -> JobSettings {
        JobSettings::read(&|key| conf.get(key.name))
    }

    /// The same with limits that are not above these: those of the service, which a job cannot raise.
    pub fn limited(mut self, most: &JobSettings) -> JobSettings {
        let CounterLimits { groups, counters, name_bytes } = most.counters;
        self.counters = CounterLimits {
            groups: self.counters.groups.min(groups),
            counters: self.counters.counters.min(counters),
            name_bytes: self.counters.name_bytes.min(name_bytes),
        };
        self.max_text_bytes = self.max_text_bytes.min(most.max_text_bytes);
        self
    }

    fn read(get: &dyn Fn(&keys::Key) -> Option<String>) -> JobSettings {
        let number = |key: &keys::Key| key.number_of(get(key).as_deref());
        let count =
            |key| number(key).map_or(0, |number| u32::try_from(number.max(0)).unwrap_or(u32::MAX));
        let size = |key| {
            number(key).map_or(0, |number| usize::try_from(number.max(0)).unwrap_or(usize::MAX))
        };
        let span = |key| number(key).unwrap_or(0);
        let flag = |key: &keys::Key| match get(key).as_deref() {
            Some("true") => true,
            Some("false") => false,
            _ => key.default == "true",
        };
        let part = |key: &keys::Key| {
            let read = |text: &str| text.trim().parse().ok().filter(|part: &f64| part.is_finite());
            get(key).and_then(|text| read(&text)).or_else(|| read(key.default)).unwrap_or(0.0)
        };
        let task_timeout_ms = span(&keys::JOB_TASK_TIMEOUT);
        JobSettings {
            setup_cleanup_needed: flag(&keys::JOB_SETUP_CLEANUP_NEEDED),
            task_cleanup_needed: flag(&keys::JOB_TASK_CLEANUP_NEEDED),
            max_attempts: PerKind {
                map: count(&keys::JOB_MAP_MAX_ATTEMPTS),
                reduce: count(&keys::JOB_REDUCE_MAX_ATTEMPTS),
            },
            max_killed_attempts: count(&keys::JOB_MAX_KILLED_ATTEMPTS),
            failures_percent: PerKind {
                map: count(&keys::JOB_MAP_FAILURES_PERCENT),
                reduce: count(&keys::JOB_REDUCE_FAILURES_PERCENT),
            },
            slow_start: part(&keys::JOB_SLOW_START),
            rush_maps: size(&keys::JOB_RUSH_MAPS),
            rush_reduces: size(&keys::JOB_RUSH_REDUCES),
            finish_when_reduces_done: flag(&keys::JOB_FINISH_WHEN_REDUCES_DONE),
            task_timeout_ms,
            launch_timeout_ms: number(&keys::JOB_LAUNCH_TIMEOUT).unwrap_or(task_timeout_ms),
            max_fetch_failures: count(&keys::JOB_MAX_FETCH_FAILURES),
            speculation: PerKind {
                map: SpeculationSettings {
                    enabled: flag(&keys::JOB_MAP_SPECULATION),
                    lag_ms: span(&keys::JOB_MAP_SPECULATION_LAG),
                    duration_s: span(&keys::JOB_MAP_SPECULATION_DURATION),
                    unfinished_threshold: part(&keys::JOB_MAP_SPECULATION_UNFINISHED),
                },
                reduce: SpeculationSettings {
                    enabled: flag(&keys::JOB_REDUCE_SPECULATION),
                    lag_ms: span(&keys::JOB_REDUCE_SPECULATION_LAG),
                    duration_s: span(&keys::JOB_REDUCE_SPECULATION_DURATION),
                    unfinished_threshold: part(&keys::JOB_REDUCE_SPECULATION_UNFINISHED),
                },
            },
            speculation_refresh_ms: span(&keys::JOB_SPECULATION_REFRESH).max(MIN_REFRESH_MS),
            slow_task_threshold: part(&keys::JOB_SLOW_TASK_THRESHOLD),
            max_deviation_ratio: part(&keys::JOB_MAX_DEVIATION_RATIO),
            speculative_cap: part(&keys::JOB_SPECULATIVE_CAP),
            max_skipped: PerKind {
                map: span(&keys::JOB_MAX_SKIPPED_RECORDS),
                reduce: span(&keys::JOB_MAX_SKIPPED_GROUPS),
            },
            attempts_before_skipping: count(&keys::JOB_ATTEMPTS_BEFORE_SKIPPING),
            max_failed_connections: count(&keys::MAX_FAILED_CONNECTIONS_SESSION),
            max_node_failures: count(&keys::MAX_FAILURES_SESSION),
            exclusion_wait_ms: span(&keys::JOB_EXCLUSION_WAIT),
            killed_cleanup_ms: span(&keys::JOB_KILLED_CLEANUP),
            counters: CounterLimits {
                groups: size(&keys::JOB_MAX_COUNTER_GROUPS),
                counters: size(&keys::JOB_MAX_COUNTERS),
                name_bytes: size(&keys::JOB_MAX_COUNTER_NAME),
            },
            max_text_bytes: size(&keys::JOB_MAX_TEXT),
        }
    }
}

/// The pool of a job's session. Spec: mapreduce/05 §5.2, mapreduce/07 §7.7.
pub fn pool_of_job(conf: &JobConf, user: &str, queue: &str) -> PoolName {
    let explicit = conf.text_if_set(&keys::CLIENT_POOL);
    let queue = (queue != keys::JOB_QUEUE.default && !queue.is_empty()).then(|| queue.to_owned());
    let named = explicit.or(queue).or_else(|| {
        let property = conf.text(&keys::CLIENT_POOL_PROPERTY);
        match property == keys::CLIENT_POOL_PROPERTY.default {
            // Who submits is known better than what the file says.
            true => Some(user.to_owned()),
            false => conf.get(&property).filter(|name| !name.is_empty()),
        }
    });
    match named.as_deref().map(|name| name.split_once('.').unwrap_or((NO_POOL_GROUP, name))) {
        Some((group, pool)) if !group.is_empty() && !pool.is_empty() => PoolName::new(group, pool),
        _ => PoolName::new(NO_POOL_GROUP, "defaultpool"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &[(&str, &str)]) -> JobSettings {
        JobSettings::read(&|key| {
            let found = properties.iter().find(|(name, _)| *name == key.name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let settings = JobSettings::default();
        assert!(settings.setup_cleanup_needed && settings.task_cleanup_needed);
        assert_eq!(settings.max_attempts, PerKind { map: 4, reduce: 4 });
        assert_eq!((settings.slow_start, settings.rush_maps, settings.rush_reduces), (0.05, 5, 5));
        assert_eq!((settings.task_timeout_ms, settings.launch_timeout_ms), (600_000, 600_000));
        assert_eq!(settings.speculation.map.lag_ms, 60_000);
        assert_eq!((settings.slow_task_threshold, settings.max_deviation_ratio), (1.0, 0.33));
        assert_eq!((settings.max_failed_connections, settings.max_node_failures), (1, 5));
    }

    #[test]
    fn a_job_lowers_limits_and_does_not_raise_them() {
        let keys = [
            "corona.jt.max.counter.groups",
            "corona.jt.max.counters",
            "corona.jt.max.counter.name.bytes",
            "corona.jt.max.text.bytes",
        ];
        let limits = |value| {
            let settings = read(&keys.map(|key| (key, value))).limited(&JobSettings::default());
            let CounterLimits { groups, counters, name_bytes } = settings.counters;
            [groups, counters, name_bytes, settings.max_text_bytes]
        };
        assert_eq!(limits("100"), [100; 4]);
        assert_eq!(limits("1000000000"), [200, 5000, 1024, 32_768]);
        let often = read(&[("mapreduce.job.speculative.refresh.timeout", "1")]);
        assert_eq!(often.speculation_refresh_ms, MIN_REFRESH_MS);
    }

    #[test]
    fn values_are_read_and_unreadable_ones_are_defaults() {
        let settings = read(&[
            ("mapred.map.max.attempts", "7"),
            ("mapred.reduce.max.attempts", "many"),
            ("mapred.task.timeout", "1000"),
            ("mapred.reduce.slowstart.completed.maps", "0.8"),
            ("mapred.map.tasks.speculative.execution", "false"),
            ("mapreduce.job.speculative.speculativecap", "NaN"),
        ]);
        assert_eq!(settings.max_attempts, PerKind { map: 7, reduce: 4 });
        assert_eq!((settings.task_timeout_ms, settings.launch_timeout_ms), (1000, 1000));
        assert_eq!((settings.slow_start, settings.speculative_cap), (0.8, 0.1));
        assert!(!settings.speculation.map.enabled && settings.speculation.reduce.enabled);
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<JobSettings>(&text).unwrap(), settings);
    }
}
