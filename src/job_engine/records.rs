//! The records for the job's history, and the counters of the job. Spec: mapreduce/08 §8.3, mapreduce/09 §F.

use std::sync::Arc;

use corona_mapreduce::counters::JOB_GROUP;
use corona_mapreduce::history::{AttemptResult, JobEnd};
use corona_mapreduce::{
    AttemptEnd, AttemptKey, Counter, CounterGroup, Counters, HistoryRecord, JobState, PerKind,
    TaskKey, TaskKind,
};

use corona_model::types::Millis;

use super::reports::Fate;
use super::slots::Locality;
use super::tasks::Stage;
use super::{JobEngine, JobStage, TASK_COUNTERS, Turn};

impl JobEngine {
    pub(super) fn record_start(&self, turn: &mut Turn) {
        let spec = &self.spec;
        turn.record(HistoryRecord::Version);
        turn.record(HistoryRecord::Submitted {
            name: spec.name.clone(),
            user: spec.user.clone(),
            submit_ms: self.submitted.0,
            conf: spec.conf.clone(),
            tracker: spec.tracker.clone(),
        });
        turn.record(HistoryRecord::Launched {
            launch_ms: self.last.0,
            maps: self.sizes.map as usize,
            reduces: self.sizes.reduce as usize,
        });
    }

    pub(super) fn record_task_start(&self, key: TaskKey, turn: &mut Turn) {
        let task = self.task(key);
        turn.record(HistoryRecord::TaskStarted {
            task: key,
            role: self.role(key),
            start_ms: task.first_launch.0,
            hosts: self.host_names(&task.hosts),
        });
    }

    pub(super) fn record_success(&self, key: AttemptKey, turn: &mut Turn) {
        let attempt = self.attempt(key);
        let counters = self.counter_names.unpack(&attempt.counters);
        // A reduce's end also ends phases that it did not report. Spec: mapreduce/02 §2.3.
        let or_end = |time| if time > 0 { time } else { attempt.finish_ms };
        let phases = match key.task.kind {
            TaskKind::Map => None,
            TaskKind::Reduce => Some((or_end(attempt.shuffle_ms), or_end(attempt.sort_ms))),
        };
        let state_string = attempt.state_string.to_string();
        let result = AttemptResult::Succeeded { phases, state_string, counters: counters.clone() };
        self.record_attempt(key, true, result, turn);
        let (role, finish_ms) = (self.role(key.task), self.last.0);
        turn.record(HistoryRecord::TaskSucceeded { task: key.task, role, finish_ms, counters });
    }

    pub(super) fn record_end(&self, key: AttemptKey, fate: Fate, heard: bool, turn: &mut Turn) {
        let error = self.attempt(key).diagnostics.to_string();
        let result = match fate {
            Fate::Failed => AttemptResult::Failed { error },
            Fate::Killed => AttemptResult::Killed { error },
        };
        self.record_attempt(key, heard, result, turn);
    }

    /// The port stands where a report brought the end. The host is that of the reports for a success, else
    /// that of the tracker's name, which is the node's.
    fn record_attempt(&self, key: AttemptKey, heard: bool, result: AttemptResult, turn: &mut Turn) {
        let attempt = self.attempt(key);
        let node = &self.nodes[attempt.node];
        let http = node.http.as_ref().filter(|_| heard);
        let host = http.filter(|_| matches!(result, AttemptResult::Succeeded { .. }));
        let host: &Arc<str> = host.map_or_else(|| self.hosts.name(node.host), |http| &http.host);
        turn.record(HistoryRecord::Attempt(Box::new(AttemptEnd {
            attempt: key,
            role: self.role(key.task),
            start_ms: attempt.start_ms,
            tracker: node.name.clone(),
            http_port: http.map(|http| http.port),
            finish_ms: attempt.finish_ms,
            host: host.clone(),
            result,
        })));
    }

    pub(super) fn record_task_failure(&self, key: TaskKey, turn: &mut Turn) {
        turn.record(self.task_failure(key));
    }

    pub(super) fn task_failure(&self, key: TaskKey) -> HistoryRecord {
        let errors: Vec<&str> =
            self.task(key).attempts.iter().map(|attempt| &*attempt.diagnostics).collect();
        let errors: Vec<&str> = errors.into_iter().filter(|text| !text.is_empty()).collect();
        HistoryRecord::TaskFailed {
            task: key,
            role: self.role(key),
            finish_ms: self.last.0,
            error: errors.join(","),
        }
    }

    pub(super) fn record_job_end(&self, state: JobState, turn: &mut Turn) {
        let totals = &self.totals;
        let ended = PerKind::of(|kind| totals.failed_attempts[kind] + totals.killed_attempts[kind]);
        let (map_counters, reduce_counters) =
            (self.counters_of(TaskKind::Map), self.counters_of(TaskKind::Reduce));
        let mut counters = self.counters();
        if state != JobState::Succeeded {
            counters.add(&self.waits());
        }
        turn.record(HistoryRecord::Ended(Box::new(JobEnd {
            state,
            finish_ms: self.finished.0,
            finished_maps: self.counts.map.finished as usize,
            finished_reduces: self.counts.reduce.finished as usize,
            failed_maps: ended.map as usize,
            failed_reduces: ended.reduce as usize,
            killed_maps: totals.killed_attempts.map as usize,
            killed_reduces: totals.killed_attempts.reduce as usize,
            map_counters,
            reduce_counters,
            counters,
        })));
    }

    /// What the history of a job that did not succeed says of its waits, in milliseconds since the submission.
    /// Spec: mapreduce/09 §F.
    fn waits(&self) -> Counters {
        let since = |time: Millis| time.since(self.submitted).max(0);
        let ended = |task: fn(&Self, TaskKind) -> TaskKey| {
            let mut tasks = TaskKind::ALL.into_iter().map(|kind| self.task(task(self, kind)));
            tasks.find(|task| task.is_complete()).map(|task| since(task.finished))
        };
        let maps = self.tasks.map.iter().take(self.sizes.map as usize);
        let waits = maps.filter(|map| map.is_complete()).map(|map| since(map.first_launch));
        let (count, sum, most) = waits.fold((0_i64, 0_i64, 0_i64), |(count, sum, most), wait| {
            (count + 1, sum.saturating_add(wait), wait.max(most))
        });
        let counters = [
            // Tasks are made with the submission.
            ("submit_time", Some(0)),
            ("setup_time", ended(Self::setup_task)),
            ("cleanup_time", ended(Self::cleanup_task)),
            ("avg_map_wait_time", Some(sum / count.max(1))),
            ("max_map_wait_time", Some(most)),
        ];
        let mut waits = Counters::default();
        for (name, value) in counters {
            if let Some(value) = value {
                waits.set("extMet", name, value);
            }
        }
        waits
    }

    /// The time that an attempt took. Spec: mapreduce/09 §F.
    pub(super) fn count_time(&mut self, key: AttemptKey) {
        let attempt = self.attempt(key);
        if attempt.start_ms == 0 || attempt.finish_ms < attempt.start_ms {
            return;
        }
        let (start, finish) = (attempt.start_ms, attempt.finish_ms);
        let time = |end: i64| if end > 0 { end.clamp(start, finish) } else { finish };
        let shuffle = time(attempt.shuffle_ms);
        let sort = time(attempt.sort_ms).max(shuffle);
        let add = |sum: &mut i64, span: i64| *sum = sum.saturating_add(span);
        add(&mut self.totals.slot_millis[key.task.kind], finish - start);
        if key.task.kind == TaskKind::Reduce {
            let spans = [shuffle - start, sort - shuffle, finish - sort];
            for (sum, span) in self.totals.reduce_phase_millis.iter_mut().zip(spans) {
                add(sum, span);
            }
        }
    }

    /// The sums of the tasks of a kind: a complete task counts by its success, one that runs by the attempt
    /// that is ahead, others not. Spec: mapreduce/09 §F.
    pub(super) fn counters_of(&self, kind: TaskKind) -> Counters {
        let work = self.tasks[kind].iter().take(self.sizes[kind] as usize);
        self.counter_names.sum(work.filter_map(|task| {
            let attempt = match task.stage {
                Stage::Complete(number) => task.attempts.get(number as usize),
                Stage::Open => {
                    let live = task.live().map(|(_, attempt)| attempt);
                    let counted = live.filter(|attempt| !attempt.counters.is_empty());
                    counted.max_by(|one, other| one.progress.total_cmp(&other.progress))
                }
                Stage::Failed | Stage::Killed => None,
            };
            attempt.map(|attempt| &attempt.counters)
        }))
    }

    /// The counters of the job: the sums of its tasks, and its own.
    pub fn counters(&self) -> Counters {
        let mut all = self.own_counters();
        all.add(&self.counters_of(TaskKind::Map));
        all.add(&self.counters_of(TaskKind::Reduce));
        all
    }

    /// Bytes that maps so near to their splits have read; none without such a map that has succeeded.
    /// Spec: mapreduce/09 §F.
    fn input_bytes(&self, near: Locality) -> Option<i64> {
        let maps = self.tasks.map.iter().take(self.sizes.map as usize);
        let mut sum: Option<i64> = None;
        for (number, task) in (0..).zip(maps) {
            let Stage::Complete(attempt) = task.stage else { continue };
            let Some(attempt) = task.attempts.get(attempt as usize) else { continue };
            let key = TaskKey { kind: TaskKind::Map, number };
            if self.locality(key, attempt.node) == near {
                let names = &self.counter_names;
                let bytes = names.value(&attempt.counters, TASK_COUNTERS, "MAP_INPUT_BYTES");
                sum = Some(sum.unwrap_or(0).saturating_add(bytes.unwrap_or(0)));
            }
        }
        sum
    }

    /// The most memory that a task of the kind has reported, those that set the job up and clean up after it
    /// included; none before the first report. Spec: mapreduce/09 §F.
    fn most_memory(&self, kind: TaskKind) -> [(&'static str, Option<i64>); 3] {
        let names = match kind {
            TaskKind::Map => {
                ["MAX_MAP_MEM_BYTES", "MAX_MAP_RSS_MEM_BYTES", "MAX_MAP_INST_MEM_BYTES"]
            }
            TaskKind::Reduce => {
                ["MAX_REDUCE_MEM_BYTES", "MAX_REDUCE_RSS_MEM_BYTES", "MAX_REDUCE_INST_MEM_BYTES"]
            }
        };
        let reported = ["MAX_MEMORY_BYTES", "MAX_RSS_MEMORY_BYTES", "INST_MEMORY_BYTES"];
        let mut most = [None; 3];
        let attempts = self.tasks[kind].iter().flat_map(|task| &task.attempts);
        for attempt in attempts.filter(|attempt| attempt.heard) {
            for (most, name) in most.iter_mut().zip(reported) {
                let value = self.counter_names.value(&attempt.counters, TASK_COUNTERS, name);
                *most = (*most).max(Some(value.unwrap_or(0)));
            }
        }
        [0, 1, 2].map(|at: usize| (names[at], most[at]))
    }

    pub(super) fn own_counters(&self) -> Counters {
        let totals = &self.totals;
        let [copy, sort, reduce] = totals.reduce_phase_millis;
        let has_reduces = totals.slot_millis.reduce != 0 || copy + sort + reduce != 0;
        // The original's summary of a job that has succeeded looks at these, which makes them.
        let is_summed_up = matches!(self.stage, JobStage::Over(JobState::Succeeded));
        let [local, rack] = [Locality::Host, Locality::Rack].map(|near| self.input_bytes(near));
        let saved = [
            ("SAVED_MAP_WALLCLOCK_MILLIS", totals.saved_millis.map),
            ("SAVED_REDUCE_WALLCLOCK_MILLIS", totals.saved_millis.reduce),
        ];
        let own = [
            ("TOTAL_LAUNCHED_MAPS", "Launched map tasks", counted(totals.launched.map)),
            ("TOTAL_LAUNCHED_REDUCES", "Launched reduce tasks", counted(totals.launched.reduce)),
            ("NUM_FAILED_MAPS", "Failed map tasks", counted(totals.failed_tasks.map)),
            ("NUM_FAILED_REDUCES", "Failed reduce tasks", counted(totals.failed_tasks.reduce)),
            (
                "SLOTS_MILLIS_MAPS",
                "Total time spent by all maps",
                counted(totals.slot_millis.map).or(is_summed_up.then_some(0)),
            ),
            (
                "SLOTS_MILLIS_REDUCES",
                "Total time spent by all reduces",
                counted(totals.slot_millis.reduce).or(is_summed_up.then_some(0)),
            ),
            (
                "SLOTS_MILLIS_REDUCES_COPY",
                "Total time spent by all copy phase",
                has_reduces.then_some(copy),
            ),
            (
                "SLOTS_MILLIS_REDUCES_SORT",
                "Total time spent by all sort phase",
                has_reduces.then_some(sort),
            ),
            (
                "SLOTS_MILLIS_REDUCES_REDUCE",
                "Total time spent by all reduce phase",
                has_reduces.then_some(reduce),
            ),
            // No slot is reserved for a task before it can run.
            (
                "FALLOW_SLOTS_MILLIS_MAPS",
                "Total time spent by all maps waiting after reserving slots (ms)",
                is_summed_up.then_some(0),
            ),
            (
                "FALLOW_SLOTS_MILLIS_REDUCES",
                "Total time spent by all reduces waiting after reserving slots (ms)",
                is_summed_up.then_some(0),
            ),
            ("DATA_LOCAL_MAPS", "Data-local map tasks", counted(totals.data_local)),
            ("RACK_LOCAL_MAPS", "Rack-local map tasks", counted(totals.rack_local)),
            ("LOCAL_MAP_INPUT_BYTES", "Total bytes read by maps from same node", local),
            ("RACK_MAP_INPUT_BYTES", "Total bytes read by maps from same rack", rack),
            ("NUM_RJT_FAILOVER", "NUM_RJT_FAILOVER", counted(totals.fail_overs)),
            ("NUM_SAVED_MAPPERS", "NUM_SAVED_MAPPERS", counted(totals.saved.map)),
            ("NUM_SAVED_REDUCERS", "NUM_SAVED_REDUCERS", counted(totals.saved.reduce)),
        ];
        let saved = saved.into_iter().map(|(name, value)| (name, name, counted(value)));
        let memory = TaskKind::ALL.into_iter().flat_map(|kind| self.most_memory(kind));
        let memory = memory.map(|(name, value)| (name, name, value));
        let all = own.into_iter().chain(saved).chain(memory);
        let counters = all.filter_map(|(name, display_name, value)| {
            Some(Counter { name: name.into(), display_name: display_name.into(), value: value? })
        });
        let counters: Vec<Counter> = counters.collect();
        let group =
            CounterGroup { name: JOB_GROUP.into(), display_name: "Job Counters ".into(), counters };
        Counters {
            groups: Some(group).filter(|group| !group.counters.is_empty()).into_iter().collect(),
        }
    }
}

/// A counter that is made with its first count.
fn counted(value: impl Into<i64>) -> Option<i64> {
    Some(value.into()).filter(|value| *value != 0)
}
