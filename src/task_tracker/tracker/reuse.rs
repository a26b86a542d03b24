//! Processes that run several tasks of a job, one after another.
//!
//! The run that started a process is its host: it lives as long as the process, whose working
//! directory and logs are the host's. The pool only decides which process takes which task, and which
//! one is to end; it knows neither tasks nor files. Spec: mapreduce/04 §4.5; the original's rules are
//! those of its `JvmManager`.

use std::time::{Duration, Instant};

use crate::table::AttemptRun;
use corona_hadoop::writables::{JvmId, TaskAttemptId};

/// All processes of a tracker that may run more than one task. `C` is a handle of a process.
#[derive(Debug)]
pub(super) struct JvmPool<C> {
    jvms: Vec<Pooled<C>>,
}

/// One process.
#[derive(Debug)]
pub(super) struct Pooled<C> {
    pub(super) jvm: JvmId,
    pub(super) child: C,
    pub(super) host: AttemptRun,
    /// The tasks that it still runs after the present one; `None` for any number.
    pub(super) left: Option<u32>,
    /// Since when it has no task.
    pub(super) idle_since: Option<Instant>,
    /// It is to take no further task.
    pub(super) is_retired: bool,
}

/// The process that takes a task.
#[derive(Clone, Debug)]
pub(super) struct Claim<C> {
    pub(super) jvm: JvmId,
    pub(super) child: C,
    /// Whether it may run further tasks after this one.
    pub(super) has_more: bool,
}

impl<C> Default for JvmPool<C> {
    fn default() -> Self {
        JvmPool { jvms: Vec::new() }
    }
}

impl<C: Clone> JvmPool<C> {
    /// All of them.
    pub(super) fn all(&self) -> &[Pooled<C>] {
        &self.jvms
    }

    /// Enters one as it was.
    pub(super) fn enter(&mut self, pooled: Pooled<C>) {
        self.jvms.push(pooled);
    }

    /// A process that was started for a task and may run more: `left` further ones, or any number.
    pub(super) fn add(&mut self, jvm: JvmId, child: C, host: AttemptRun, left: Option<u32>) {
        self.jvms.push(Pooled { jvm, child, host, left, idle_since: None, is_retired: false });
    }

    /// Takes the idle process that was idle last for a task of the same job and type. Never the
    /// process of another run of the same attempt, whose files are in its working directory.
    pub(super) fn claim(&mut self, task: &TaskAttemptId) -> Option<Claim<C>> {
        let suits = |jvm: &&mut Pooled<C>| {
            jvm.idle_since.is_some()
                && !jvm.is_retired
                && jvm.jvm.job == *task.job()
                && jvm.jvm.is_map == task.task.is_map
                && jvm.host.attempt != *task
        };
        let found = self.jvms.iter_mut().filter(suits).max_by_key(|jvm| jvm.idle_since)?;
        found.idle_since = None;
        found.left = found.left.map(|left| left.saturating_sub(1));
        let has_more = found.left != Some(0);
        Some(Claim { jvm: found.jvm.clone(), child: found.child.clone(), has_more })
    }

    /// A process has done its task. False if it is not to take another one.
    pub(super) fn give_back(&mut self, jvm: &JvmId, now: Instant) -> bool {
        let found = self.jvms.iter_mut().find(|pooled| pooled.jvm == *jvm);
        let Some(found) = found.filter(|found| !found.is_retired && found.left != Some(0)) else {
            return false;
        };
        found.idle_since = Some(now);
        true
    }

    /// A process has ended, or is about to be ended.
    pub(super) fn remove(&mut self, jvm: &JvmId) {
        self.jvms.retain(|pooled| pooled.jvm != *jvm);
    }

    /// Takes a process that has been idle for so long out of the pool. Otherwise, the time at which it
    /// may be; `None` while it has a task.
    pub(super) fn remove_if_idle(
        &mut self,
        jvm: &JvmId,
        limit: Duration,
        now: Instant,
    ) -> Result<(), Option<Instant>> {
        let found = self.jvms.iter().find(|pooled| pooled.jvm == *jvm);
        let Some(found) = found else { return Ok(()) };
        let over = found.idle_since.and_then(|since| since.checked_add(limit));
        match over {
            Some(over) if over <= now => {
                self.remove(jvm);
                Ok(())
            }
            later => Err(later),
        }
    }

    /// Makes room for a process of this type, as the original does when it has as many as slots: takes
    /// the process that has been idle longest out of the pool, and returns it to be ended.
    pub(super) fn make_room(&mut self, is_map: bool, processes: usize, limit: usize) -> Option<C> {
        if processes < limit {
            return None;
        }
        let idle = self.jvms.iter().filter(|jvm| jvm.jvm.is_map == is_map);
        let longest = idle
            .filter_map(|jvm| Some((jvm.idle_since?, jvm.jvm.clone())))
            .min_by_key(|idle| idle.0);
        self.take(&longest?.1)
    }

    /// Takes all idle processes out of the pool, and returns them to be ended.
    pub(super) fn drain_idle(&mut self) -> Vec<C> {
        let idle: Vec<JvmId> = self
            .jvms
            .iter()
            .filter(|jvm| jvm.idle_since.is_some())
            .map(|jvm| jvm.jvm.clone())
            .collect();
        idle.iter().filter_map(|jvm| self.take(jvm)).collect()
    }

    /// An attempt is launched again while the process of its earlier run may still live: the process
    /// takes no further task. Returns it if it is idle, to be ended.
    pub(super) fn retire(&mut self, attempt: &TaskAttemptId) -> Option<C> {
        let found = self.jvms.iter_mut().find(|jvm| jvm.host.attempt == *attempt)?;
        found.is_retired = true;
        let idle = found.idle_since.is_some().then(|| found.jvm.clone());
        self.take(&idle?)
    }

    /// How many processes of a type have no task.
    pub(super) fn idle(&self, is_map: bool) -> usize {
        let idle = self.jvms.iter().filter(|jvm| jvm.idle_since.is_some());
        idle.filter(|jvm| jvm.jvm.is_map == is_map).count()
    }

    /// Takes the process that was started for a run out of the pool.
    pub(super) fn take_of(&mut self, host: &AttemptRun) -> Option<C> {
        let found = self.jvms.iter().find(|jvm| jvm.host == *host)?.jvm.clone();
        self.take(&found)
    }

    /// Whether it knows no process.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.jvms.is_empty()
    }

    fn take(&mut self, jvm: &JvmId) -> Option<C> {
        let index = self.jvms.iter().position(|pooled| pooled.jvm == *jvm)?;
        Some(self.jvms.swap_remove(index).child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(text: &str) -> TaskAttemptId {
        format!("attempt_20.1_000{text}_0").parse().unwrap()
    }

    /// A pool with a process of each of these hosts; the process has the index as its handle.
    fn pool(hosts: &[&str], left: Option<u32>) -> (JvmPool<usize>, Vec<JvmId>) {
        let mut pool = JvmPool::default();
        let jvm = |(number, host): (usize, &&str)| {
            let id = attempt(host);
            let number = i32::try_from(number).unwrap();
            JvmId { number, job: id.job().clone(), is_map: id.task.is_map }
        };
        let jvms: Vec<JvmId> = hosts.iter().enumerate().map(jvm).collect();
        for (index, host) in hosts.iter().enumerate() {
            let run = AttemptRun { attempt: attempt(host), number: index as u64 };
            pool.add(jvms[index].clone(), index, run, left);
        }
        (pool, jvms)
    }

    #[test]
    fn an_idle_process_takes_tasks_of_its_job_and_type_alone() {
        let (mut pool, jvms) = pool(&["1_m_000000", "2_m_000000", "1_r_000000"], None);
        let now = Instant::now();
        assert!(pool.claim(&attempt("1_m_000001")).is_none(), "all have tasks");
        for jvm in &jvms {
            assert!(pool.give_back(jvm, now));
        }
        assert_eq!((pool.idle(true), pool.idle(false)), (2, 1));
        let mut takes = |task: &str| pool.claim(&attempt(task)).map(|claim| claim.child);
        let cases = [
            ("1_m_000000", None),
            ("1_m_000001", Some(0)),
            ("1_m_000002", None),
            ("1_r_000001", Some(2)),
            ("3_m_000000", None),
            ("2_m_000007", Some(1)),
        ];
        for (task, expected) in cases {
            assert_eq!(takes(task), expected, "{task}");
        }
    }

    #[test]
    fn a_process_runs_as_many_tasks_as_its_job_allows() {
        let (mut pool, jvms) = pool(&["1_m_000000"], Some(2));
        let now = Instant::now();
        assert!(pool.give_back(&jvms[0], now));
        assert!(pool.claim(&attempt("1_m_000001")).unwrap().has_more);
        assert!(pool.give_back(&jvms[0], now));
        assert!(!pool.claim(&attempt("1_m_000002")).unwrap().has_more);
        assert!(!pool.give_back(&jvms[0], now));
        assert!(pool.claim(&attempt("1_m_000003")).is_none());
    }

    #[test]
    fn idle_processes_end_after_a_time_or_for_others() {
        let (mut pool, jvms) = pool(&["1_m_000000", "2_m_000000", "3_m_000000"], None);
        let (now, limit) = (Instant::now(), Duration::from_secs(60));
        let later = now + limit;
        assert_eq!(pool.remove_if_idle(&jvms[0], limit, later), Err(None));
        assert!(pool.give_back(&jvms[0], now));
        assert!(pool.give_back(&jvms[1], now + Duration::from_secs(1)));
        assert_eq!(pool.remove_if_idle(&jvms[0], limit, now), Err(Some(later)));
        assert_eq!(pool.make_room(true, 2, 3), None);
        assert_eq!(pool.make_room(false, 3, 3), None);
        assert_eq!(pool.make_room(true, 3, 3), Some(0));
        assert_eq!(pool.make_room(true, 3, 3), Some(1));
        assert_eq!(pool.make_room(true, 3, 3), None, "the last one has a task");
        assert!(pool.give_back(&jvms[2], now));
        assert_eq!(pool.remove_if_idle(&jvms[2], limit, later), Ok(()));
        assert!(pool.drain_idle().is_empty());
    }

    #[test]
    fn a_process_whose_attempt_returns_takes_no_more() {
        let (mut pool, jvms) = pool(&["1_m_000000", "1_m_000001"], None);
        let now = Instant::now();
        assert_eq!(pool.retire(&attempt("1_m_000000")), None, "it has a task");
        assert!(!pool.give_back(&jvms[0], now));
        assert!(pool.give_back(&jvms[1], now));
        assert_eq!(pool.retire(&attempt("1_m_000001")), Some(1));
        assert_eq!(pool.retire(&attempt("1_m_000001")), None);
    }
}
