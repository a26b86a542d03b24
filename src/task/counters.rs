//! A task's counters, under the original's names. Spec: mapreduce/02 §2.4.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corona_hadoop::writables::{Counter, CounterGroup, Counters};

macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident = $group:ident $name:literal $display:literal;)*) => {
        /// The counted thing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count {
            $($(#[$doc])* $count,)*
        }

        const ALL: &[(Group, &str, &str)] = &[$((Group::$group, $name, $display),)*];
    };
}

/// The groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Task,
    Files,
}

counts! {
    /// Lines of the split.
    MapInputRecords = Task "MAP_INPUT_RECORDS" "Map input records";
    /// Bytes of these lines.
    MapInputBytes = Task "MAP_INPUT_BYTES" "Map input bytes";
    /// Lines of the split that were too large, or were left out by an attempt that skips bad records.
    MapSkippedRecords = Task "MAP_SKIPPED_RECORDS" "Map skipped records";
    /// Records of the mapper.
    MapOutputRecords = Task "MAP_OUTPUT_RECORDS" "Map output records";
    /// Bytes of their keys and values, as written.
    MapOutputBytes = Task "MAP_OUTPUT_BYTES" "Map output bytes";
    /// Spills of a map.
    MapSpills = Task "MAP_SPILL_NUMBER" "MAP_SPILL_NUMBER";
    /// Bytes of these spills.
    MapSpillBytes = Task "MAP_SPILL_BYTES" "MAP_SPILL_BYTES";
    /// Records that combiners got.
    CombineInputRecords = Task "COMBINE_INPUT_RECORDS" "Combine input records";
    /// Records that combiners returned.
    CombineOutputRecords = Task "COMBINE_OUTPUT_RECORDS" "Combine output records";
    /// Different keys of a reduce.
    ReduceInputGroups = Task "REDUCE_INPUT_GROUPS" "Reduce input groups";
    /// Bytes that were fetched.
    ReduceShuffleBytes = Task "REDUCE_SHUFFLE_BYTES" "Reduce shuffle bytes";
    /// Bytes of the records of a reduce.
    ReduceInputBytes = Task "REDUCE_INPUT_BYTES" "REDUCE_INPUT_BYTES";
    /// Records of a reduce.
    ReduceInputRecords = Task "REDUCE_INPUT_RECORDS" "Reduce input records";
    /// Keys that were left out by an attempt that skips bad records.
    ReduceSkippedGroups = Task "REDUCE_SKIPPED_GROUPS" "Reduce skipped groups";
    /// Records of these keys.
    ReduceSkippedRecords = Task "REDUCE_SKIPPED_RECORDS" "Reduce skipped records";
    /// Records of the reducer.
    ReduceOutputRecords = Task "REDUCE_OUTPUT_RECORDS" "Reduce output records";
    /// Records that were written to disk between map and reduce.
    SpilledRecords = Task "SPILLED_RECORDS" "Spilled Records";
    /// Processor time of the task and its programs.
    CpuMillis = Task "CPU_MILLISECONDS" "Total cumulative CPU milliseconds";
    /// The largest memory that the task occupied itself.
    RssBytes = Task "RSS_MEMORY_BYTES" "RSS_MEMORY_BYTES";
    /// Bytes read from this machine's disks.
    FileRead = Files "FILE_BYTES_READ" "FILE_BYTES_READ";
    /// Bytes written to this machine's disks.
    FileWritten = Files "FILE_BYTES_WRITTEN" "FILE_BYTES_WRITTEN";
    /// Bytes read from HDFS.
    HdfsRead = Files "HDFS_BYTES_READ" "HDFS_BYTES_READ";
    /// Bytes written to HDFS.
    HdfsWritten = Files "HDFS_BYTES_WRITTEN" "HDFS_BYTES_WRITTEN";
}

/// How many counters programs may have together, and how long a name may be.
const MOST_OWN: usize = 1000;
const MOST_NAME_BYTES: usize = 1024;

/// The counters of a task, which its threads share.
#[derive(Debug)]
pub struct TaskCounters {
    values: Vec<AtomicU64>,
    own: Mutex<BTreeMap<(String, String), i64>>,
    /// Whether anything has happened since the last report.
    moved: AtomicBool,
}

impl Default for TaskCounters {
    fn default() -> TaskCounters {
        TaskCounters {
            values: ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            own: Mutex::default(),
            moved: AtomicBool::new(false),
        }
    }
}

impl TaskCounters {
    /// Adds to a counter, which is progress.
    pub fn add(&self, count: Count, more: u64) {
        if let Some(value) = self.values.get(count as usize) {
            value.fetch_add(more, Ordering::Relaxed);
        }
        self.progressed();
    }

    /// Sets a counter, which is no progress.
    pub fn set(&self, count: Count, to: u64) {
        if let Some(value) = self.values.get(count as usize) {
            value.store(to, Ordering::Relaxed);
        }
    }

    /// The value of a counter.
    pub fn get(&self, count: Count) -> u64 {
        self.values.get(count as usize).map_or(0, |value| value.load(Ordering::Relaxed))
    }

    /// Notes progress: work was done that may not be counted yet. True: nothing was noted since the last
    /// report, so a caller that counts many records at a time reports them now.
    #[inline]
    pub fn progressed(&self) -> bool {
        // Threads that note it for each record must not fight for the memory.
        !self.moved.load(Ordering::Relaxed) && !self.moved.swap(true, Ordering::Relaxed)
    }

    /// Whether there was progress since the last call.
    pub fn take_progress(&self) -> bool {
        self.moved.swap(false, Ordering::Relaxed)
    }

    /// Adds to a counter of the job's own. False: the name is too long, or there are too many.
    pub fn add_own(&self, group: &str, name: &str, more: i64) -> bool {
        self.progressed();
        let mut own = self.own();
        let key = (group.to_owned(), name.to_owned());
        let fits = own.len() < MOST_OWN && group.len().max(name.len()) <= MOST_NAME_BYTES;
        if !fits && !own.contains_key(&key) {
            return false;
        }
        let value = own.entry(key).or_insert(0);
        *value = value.saturating_add(more);
        true
    }

    fn own(&self) -> MutexGuard<'_, BTreeMap<(String, String), i64>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters that are not 0, as they are reported.
    pub fn report(&self) -> Counters {
        let mut groups = Vec::new();
        for (group, name, display_name) in [
            (Group::Task, "org.apache.hadoop.mapred.Task$Counter", "Map-Reduce Framework"),
            (Group::Files, "FileSystemCounters", "FileSystemCounters"),
        ] {
            let of_group = ALL.iter().zip(&self.values).filter(|((of, ..), _)| *of == group);
            let counters = of_group.filter_map(|((_, name, display), value)| {
                let value = i64::try_from(value.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
                let display_name = (display != name).then(|| (*display).to_owned());
                (value != 0).then(|| Counter { name: (*name).to_owned(), display_name, value })
            });
            let (name, display_name) = (name.to_owned(), display_name.to_owned());
            groups.push(CounterGroup { name, display_name, counters: counters.collect() });
        }
        for ((group, name), value) in self.own().iter() {
            let counter = Counter { name: name.clone(), display_name: None, value: *value };
            match groups.iter_mut().find(|known| known.name == *group) {
                Some(known) => known.counters.push(counter),
                None => groups.push(CounterGroup {
                    name: group.clone(),
                    display_name: group.clone(),
                    counters: vec![counter],
                }),
            }
        }
        groups.retain(|group| !group.counters.is_empty());
        Counters { groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_names_of_the_original() {
        let counters = TaskCounters::default();
        counters.add(Count::MapInputRecords, 2);
        counters.add(Count::HdfsWritten, 3);
        assert!(counters.add_own("mine", "x", 4) && counters.add_own("mine", "x", -1));
        let report = counters.report();
        for (group, name, value) in [
            ("org.apache.hadoop.mapred.Task$Counter", "MAP_INPUT_RECORDS", 2),
            ("FileSystemCounters", "HDFS_BYTES_WRITTEN", 3),
            ("mine", "x", 3),
        ] {
            assert_eq!(report.get(group, name), Some(value), "{name}");
        }
        assert_eq!(report.groups[0].counters[0].display_name.as_deref(), Some("Map input records"));
        assert_eq!(report.groups.len(), 3);
        assert!(counters.take_progress() && !counters.take_progress());
        assert!(counters.progressed() && !counters.progressed() && counters.take_progress());
    }

    #[test]
    fn a_program_cannot_make_counters_without_end() {
        let counters = TaskCounters::default();
        let made = (0..3 * MOST_OWN).filter(|n| counters.add_own("g", &n.to_string(), 1)).count();
        assert_eq!(made, MOST_OWN);
        assert!(counters.add_own("g", "0", 1), "one that exists goes on counting");
        assert!(!counters.add_own(&"g".repeat(2000), "x", 1));
    }
}
