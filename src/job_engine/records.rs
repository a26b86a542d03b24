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
use super::tasks::Stage;
use super::{JobEngine, Turn};

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

    pub(super) fn own_counters(&self) -> Counters {
        let totals = &self.totals;
        let [copy, sort, reduce] = totals.reduce_phase_millis;
        let own: [(&str, &str, i64); 16] = [
            ("TOTAL_LAUNCHED_MAPS", "Launched map tasks", totals.launched.map.into()),
            ("TOTAL_LAUNCHED_REDUCES", "Launched reduce tasks", totals.launched.reduce.into()),
            ("NUM_FAILED_MAPS", "Failed map tasks", totals.failed_tasks.map.into()),
            ("NUM_FAILED_REDUCES", "Failed reduce tasks", totals.failed_tasks.reduce.into()),
            ("SLOTS_MILLIS_MAPS", "Total time spent by all maps", totals.slot_millis.map),
            ("SLOTS_MILLIS_REDUCES", "Total time spent by all reduces", totals.slot_millis.reduce),
            ("SLOTS_MILLIS_REDUCES_COPY", "Total time spent by all copy phase", copy),
            ("SLOTS_MILLIS_REDUCES_SORT", "Total time spent by all sort phase", sort),
            ("SLOTS_MILLIS_REDUCES_REDUCE", "Total time spent by all reduce phase", reduce),
            ("DATA_LOCAL_MAPS", "Data-local map tasks", totals.data_local.into()),
            ("RACK_LOCAL_MAPS", "Rack-local map tasks", totals.rack_local.into()),
            ("NUM_RJT_FAILOVER", "NUM_RJT_FAILOVER", totals.fail_overs.into()),
            ("NUM_SAVED_MAPPERS", "NUM_SAVED_MAPPERS", totals.saved.map.into()),
            ("NUM_SAVED_REDUCERS", "NUM_SAVED_REDUCERS", totals.saved.reduce.into()),
            ("SAVED_MAP_WALLCLOCK_MILLIS", "SAVED_MAP_WALLCLOCK_MILLIS", totals.saved_millis.map),
            (
                "SAVED_REDUCE_WALLCLOCK_MILLIS",
                "SAVED_REDUCE_WALLCLOCK_MILLIS",
                totals.saved_millis.reduce,
            ),
        ];
        let counted = own.into_iter().filter(|(.., value)| *value != 0);
        let counters = counted.map(|(name, display_name, value)| Counter {
            name: name.into(),
            display_name: display_name.into(),
            value,
        });
        let counters: Vec<Counter> = counters.collect();
        let group =
            CounterGroup { name: JOB_GROUP.into(), display_name: "Job Counters ".into(), counters };
        Counters {
            groups: Some(group).filter(|group| !group.counters.is_empty()).into_iter().collect(),
        }
    }
}
