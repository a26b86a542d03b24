//! What job trackers report of jobs that have ended, added up: over all jobs, and by pool.
//! Spec: mapreduce/03 §3.8, mapreduce/08 §8.9.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use corona_hadoop::protocols::job_aggregator::CoronaJobAggregator;
use corona_hadoop::rpc::{Caller, Fault};
use corona_hadoop::writables::{Counters, JobStats};
use corona_mapreduce::counters::JOB_GROUP;

use super::ProxyContext;

/// Pools that are kept apart. Reports of further ones count for all jobs only.
const MAX_POOLS: usize = 1000;
/// Counters that are added up. Further ones are left out.
const MAX_COUNTERS: usize = 2000;
/// The longest name of a pool or counter, in bytes.
const MAX_NAME: usize = 256;

/// The group of errors of tasks.
const TASK_ERRORS: &str = "TaskError";
/// The groups whose counters are added up.
const GROUPS: [&str; 3] =
    [JOB_GROUP, "org.apache.hadoop.mapred.Task$Counter", "FileSystemCounters"];

/// The sums since the start.
#[derive(Debug, Default)]
pub(super) struct Statistics(Mutex<Sums>);

/// What was added up.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) all: Sum,
    pub(super) pools: BTreeMap<String, Sum>,
    /// Reports of jobs.
    pub(super) jobs: u64,
    /// Reports of errors.
    pub(super) errors: u64,
    /// Counters and pools that found no room.
    pub(super) left_out: u64,
}

/// The sums of some jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    /// By the original's name, see [`stats_of`].
    pub(super) stats: BTreeMap<&'static str, i64>,
    /// By group and name.
    pub(super) counters: BTreeMap<(String, String), i64>,
}

impl Statistics {
    pub(super) fn sums(&self) -> Sums {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn job(&self, pool: &str, stats: &JobStats, counters: &Counters) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Sums { all, pools, jobs, left_out, .. } = &mut *sums;
        *jobs += 1;
        *left_out += all.add(stats, counters);
        let has_room = pools.len() < MAX_POOLS && pool.len() <= MAX_NAME;
        if let Some(sum) = pools.get_mut(pool) {
            *left_out += sum.add(stats, counters);
        } else if has_room {
            *left_out += pools.entry(pool.to_owned()).or_default().add(stats, counters);
        } else {
            *left_out += 1;
        }
    }

    fn errors(&self, counters: &Counters) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sums.errors += 1;
        let left_out = sums.all.add_groups(counters, &[TASK_ERRORS]);
        sums.left_out += left_out;
    }
}

impl Sum {
    /// Returns how many counters found no room.
    fn add(&mut self, stats: &JobStats, counters: &Counters) -> u64 {
        for (name, value) in stats_of(stats) {
            let sum = self.stats.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
        self.add_groups(counters, &GROUPS)
    }

    fn add_groups(&mut self, counters: &Counters, names: &[&str]) -> u64 {
        let mut left_out = 0;
        for group in counters.groups.iter().filter(|group| names.contains(&&*group.name)) {
            for counter in &group.counters {
                let key = (group.name.clone(), counter.name.clone());
                let is_new = !self.counters.contains_key(&key);
                if is_new && (self.counters.len() >= MAX_COUNTERS || counter.name.len() > MAX_NAME)
                {
                    left_out += 1;
                    continue;
                }
                let sum = self.counters.entry(key).or_default();
                *sum = sum.saturating_add(counter.value);
            }
        }
        left_out
    }
}

/// The name of a counter among the original's metrics: every character but letters and `_` is
/// replaced.
pub(super) fn original_name(group: &str, counter: &str) -> String {
    let replaced = |c: char| match c {
        'a'..='z' | '_' => c,
        'A'..='Z' => c.to_ascii_lowercase(),
        _ => '_',
    };
    format!("{group}_{counter}").chars().map(replaced).collect()
}

/// The original's names of what is reported. It reports the time of speculative maps as that of
/// speculative reduces; here each has its own.
fn stats_of(stats: &JobStats) -> [(&'static str, i64); 27] {
    [
        ("maps_launched", stats.maps_launched.into()),
        ("maps_completed", stats.maps_completed.into()),
        ("maps_failed", stats.maps_failed.into()),
        ("reduces_launched", stats.reduces_launched.into()),
        ("reduces_completed", stats.reduces_completed.into()),
        ("reduces_failed", stats.reduces_failed.into()),
        ("num_speculative_maps", stats.speculative_maps.into()),
        ("num_speculative_reduces", stats.speculative_reduces.into()),
        ("num_speculative_succeeded_maps", stats.speculative_succeeded_maps.into()),
        ("num_speculative_succeeded_reduces", stats.speculative_succeeded_reduces.into()),
        ("num_speculative_wasted_maps", stats.speculative_waste_maps.into()),
        ("num_speculative_wasted_reduces", stats.speculative_waste_reduces.into()),
        ("speculative_map_time_waste", stats.speculative_map_waste_ms),
        ("speculative_reduce_time_waste", stats.speculative_reduce_waste_ms),
        ("killed_tasks_map_time", stats.killed_map_time_ms),
        ("killed_tasks_reduce_time", stats.killed_reduce_time_ms),
        ("failed_tasks_map_time", stats.failed_map_time_ms),
        ("failed_tasks_reduce_time", stats.failed_reduce_time_ms),
        ("num_dataLocal_maps", stats.data_local_maps.into()),
        ("num_rackLocal_maps", stats.rack_local_maps.into()),
        ("maps_killed", stats.maps_killed.into()),
        ("reduces_killed", stats.reduces_killed.into()),
        ("total_map_input_bytes", stats.total_map_input_bytes),
        ("local_map_input_bytes", stats.local_map_input_bytes),
        ("rack_map_input_bytes", stats.rack_map_input_bytes),
        ("maps_failed_by_fetch_failures", stats.maps_failed_by_fetch_failures.into()),
        ("map_fetches_failed", stats.map_fetch_failures.into()),
    ]
}

impl CoronaJobAggregator for ProxyContext {
    async fn report_job_stats(
        &self,
        _: &Caller,
        job: Option<String>,
        pool: Option<String>,
        stats: JobStats,
        counters: Counters,
    ) -> Result<(), Fault> {
        let (job, pool) = (job.unwrap_or_default(), pool.unwrap_or_default());
        tracing::debug!(job, pool, "a job has ended");
        self.index.note_pool(&job, &pool);
        self.statistics.job(&pool, &stats, &counters);
        Ok(())
    }

    async fn report_job_error_counters(&self, _: &Caller, counters: Counters) -> Result<(), Fault> {
        self.statistics.errors(&counters);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use corona_hadoop::writables::{Counter, CounterGroup};

    use super::*;

    fn counters(group: &str, names: &[(&str, i64)]) -> Counters {
        let counter = |(name, value): &(&str, i64)| Counter {
            name: (*name).to_owned(),
            display_name: None,
            value: *value,
        };
        let counters = names.iter().map(counter).collect();
        let group =
            CounterGroup { name: group.to_owned(), display_name: group.to_owned(), counters };
        Counters { groups: vec![group] }
    }

    #[test]
    fn reports_are_added_up_over_all_jobs_and_by_pool() {
        let statistics = Statistics::default();
        let stats = JobStats {
            maps_launched: 3,
            speculative_map_waste_ms: 5,
            speculative_reduce_waste_ms: 7,
            ..JobStats::default()
        };
        let counted = counters(GROUPS[1], &[("MAP_INPUT_RECORDS", i64::MAX)]);
        statistics.job("default.a", &stats, &counted);
        statistics.job("default.b", &stats, &counted);
        statistics.errors(&counters(TASK_ERRORS, &[("UNKNOWN", 2)]));
        let sums = statistics.sums();
        assert_eq!((sums.jobs, sums.errors, sums.left_out), (2, 1, 0));
        assert_eq!(sums.all.stats["maps_launched"], 6);
        assert_eq!(sums.pools["default.b"].stats["maps_launched"], 3);
        assert_eq!(sums.all.stats["speculative_map_time_waste"], 10);
        assert_eq!(sums.all.stats["speculative_reduce_time_waste"], 14);
        let key = |group: &str, name: &str| (group.to_owned(), name.to_owned());
        assert_eq!(sums.all.counters[&key(GROUPS[1], "MAP_INPUT_RECORDS")], i64::MAX);
        assert_eq!(sums.all.counters[&key(TASK_ERRORS, "UNKNOWN")], 2);
    }

    #[test]
    fn groups_of_users_are_left_out_and_tables_have_bounds() {
        let statistics = Statistics::default();
        statistics.job("p", &JobStats::default(), &counters("my.Group", &[("X", 1)]));
        assert!(statistics.sums().all.counters.is_empty());
        let names: Vec<String> = (0..MAX_COUNTERS + 5).map(|number| format!("C{number}")).collect();
        let many: Vec<(&str, i64)> = names.iter().map(|name| (&**name, 1)).collect();
        statistics.errors(&counters(TASK_ERRORS, &many));
        let sums = statistics.sums();
        assert_eq!((sums.all.counters.len(), sums.left_out), (MAX_COUNTERS, 5));
        for number in 0..MAX_POOLS + 2 {
            statistics.job(&format!("q.{number}"), &JobStats::default(), &Counters::default());
        }
        assert_eq!(statistics.sums().pools.len(), MAX_POOLS);
    }

    #[test]
    fn counters_have_the_names_of_the_original() {
        for (group, counter, name) in [
            (
                GROUPS[0],
                "TOTAL_LAUNCHED_MAPS",
                "org_apache_hadoop_mapred_jobinprogress_counter_total_launched_maps",
            ),
            (GROUPS[2], "FILE_BYTES_READ", "filesystemcounters_file_bytes_read"),
            (TASK_ERRORS, "E404", "taskerror_e___"),
        ] {
            assert_eq!(original_name(group, counter), name);
        }
    }
}
