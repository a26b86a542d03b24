//! The shuffle of a reduce: the available outputs of maps, and fetching them from the nodes over
//! HTTP, several nodes in parallel, into bounded memory or onto disk. Spec: mapreduce/04 §4.9.
//!
//! [`Plan`] decides the order and the sources of fetches and the consequences of failures; it is
//! pure and takes the time as an argument. [`fetch`](crate::fetch) carries it out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use corona_hadoop::writables::{EventStatus, TaskAttemptId, TaskCompletionEvent};

/// Outputs that one request asks for.
pub const MOST_PER_REQUEST: usize = 10;

/// When fetches are repeated and reported.
#[derive(Clone, Copy, Debug)]
pub struct RetrySettings {
    /// Failed connections for one output after which it is reported, and then every so many.
    pub report_after: u32,
    /// Failures of one output after which the reduce fails.
    pub abort_after: u32,
    /// The pause after the first failure at a node.
    pub pause: Duration,
}

/// An output to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    attempt: TaskAttemptId,
    failures: u32,
}

/// A node that serves outputs.
#[derive(Debug, Default)]
struct Host {
    wanted: Vec<Wanted>,
    is_busy: bool,
    failures: u32,
    /// No request before this time.
    not_before: Duration,
}

/// A request to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where, such as `http://host:50060`.
    pub at: String,
    /// The attempts whose outputs are wanted, in order.
    pub attempts: Vec<TaskAttemptId>,
}

/// Why an output has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The node has it not, or sent something else.
    Serious,
    /// The node could not be reached, or the connection broke.
    Connection,
    /// Another output failed first.
    NotTried,
}

/// The available outputs, the wanted ones, and their places.
#[derive(Debug)]
pub struct Plan {
    maps: usize,
    settings: RetrySettings,
    /// Maps whose output is here, or that have none.
    done: BTreeSet<i32>,
    hosts: BTreeMap<String, Host>,
    /// Where the output of each map that is wanted lies, and whose it is.
    places: HashMap<i32, (String, TaskAttemptId)>,
    reports: Vec<TaskAttemptId>,
}

impl Plan {
    /// A plan for so many maps.
    pub fn new(maps: usize, settings: RetrySettings) -> Plan {
        Plan {
            maps,
            settings,
            done: BTreeSet::new(),
            hosts: BTreeMap::new(),
            places: HashMap::new(),
            reports: Vec::new(),
        }
    }

    /// Whether all outputs are here.
    pub fn is_done(&self) -> bool {
        self.done.len() >= self.maps
    }

    /// How many outputs are here.
    pub fn done(&self) -> usize {
        self.done.len()
    }

    /// Records an event.
    pub fn event(&mut self, event: &TaskCompletionEvent) {
        let map = event.attempt.task.number;
        match event.status {
            EventStatus::Succeeded => {
                let is_wanted =
                    self.places.get(&map).is_some_and(|(_, known)| *known == event.attempt);
                if self.done.contains(&map) || is_wanted || !self.is_map(map) {
                    return;
                }
                let Some(at) = &event.tracker_http else { return };
                self.forget(map);
                self.places.insert(map, (at.clone(), event.attempt.clone()));
                let wanted = Wanted { attempt: event.attempt.clone(), failures: 0 };
                self.hosts.entry(at.clone()).or_default().wanted.push(wanted);
            }
            EventStatus::TipFailed | EventStatus::SucceededNoOutput => {
                if self.is_map(map) {
                    self.forget(map);
                    self.done.insert(map);
                }
            }
            EventStatus::Failed | EventStatus::Killed | EventStatus::Obsolete => {
                if self.places.get(&map).is_some_and(|(_, known)| *known == event.attempt) {
                    self.forget(map);
                }
            }
        }
    }

    fn is_map(&self, map: i32) -> bool {
        usize::try_from(map).is_ok_and(|map| map < self.maps)
    }

    /// Gives up a map's output at its place.
    fn forget(&mut self, map: i32) {
        let Some((at, attempt)) = self.places.remove(&map) else { return };
        if let Some(host) = self.hosts.get_mut(&at) {
            host.wanted.retain(|wanted| wanted.attempt != attempt);
        }
    }

    /// The next outputs to fetch, from a node that serves no other request.
    pub fn next(&mut self, now: Duration) -> Option<Request> {
        let ready =
            |host: &Host| !host.is_busy && !host.wanted.is_empty() && host.not_before <= now;
        // The node with the most outputs first.
        let (at, host) = self
            .hosts
            .iter_mut()
            .filter(|(_, host)| ready(host))
            .max_by_key(|(_, host)| host.wanted.len())?;
        host.is_busy = true;
        let attempts =
            host.wanted.iter().take(MOST_PER_REQUEST).map(|wanted| wanted.attempt.clone());
        Some(Request { at: at.clone(), attempts: attempts.collect() })
    }

    /// An output is here. False: it is not wanted any more, and must be dropped.
    pub fn fetched(&mut self, attempt: &TaskAttemptId) -> bool {
        let map = attempt.task.number;
        if self.places.get(&map).is_none_or(|(_, known)| known != attempt) {
            return false;
        }
        self.forget(map);
        self.done.insert(map)
    }

    /// A request has ended, with these outputs missing. The error is the reason why the reduce
    /// fails.
    pub fn ended(
        &mut self,
        at: &str,
        missing: &[(TaskAttemptId, Failure)],
        now: Duration,
    ) -> Result<(), String> {
        let Some(host) = self.hosts.get_mut(at) else { return Ok(()) };
        host.is_busy = false;
        if missing.is_empty() {
            host.failures = 0;
            return Ok(());
        }
        host.failures += 1;
        let steps = i32::try_from(host.failures.min(11)).unwrap_or(0) - 1;
        host.not_before = now + self.settings.pause.mul_f64(1.3_f64.powi(steps));
        let abort_after = (self.settings.abort_after as usize).max(self.maps / 10);
        for (attempt, failure) in missing {
            let Some(wanted) = host.wanted.iter_mut().find(|wanted| wanted.attempt == *attempt)
            else {
                continue;
            };
            if *failure == Failure::NotTried {
                continue;
            }
            wanted.failures += 1;
            let is_due = wanted.failures.is_multiple_of(self.settings.report_after.max(1));
            if *failure == Failure::Serious || is_due {
                self.reports.push(attempt.clone());
            }
            if wanted.failures as usize >= abort_after {
                let failures = wanted.failures;
                return Err(format!(
                    "Exceeded the abort failure limit; bailing-out: {failures} attempts to fetch the output \
                     of {attempt} from {at} failed."
                ));
            }
        }
        Ok(())
    }

    /// Forgets where outputs are, since another job tracker lists them again.
    pub fn restart(&mut self) {
        let maps: Vec<i32> = self.places.keys().copied().collect();
        for map in maps {
            self.forget(map);
        }
    }

    /// The outputs to report as failed since the last call.
    pub fn take_reports(&mut self) -> Vec<TaskAttemptId> {
        std::mem::take(&mut self.reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::event;

    const SETTINGS: RetrySettings =
        RetrySettings { report_after: 3, abort_after: 7, pause: Duration::from_secs(10) };

    fn attempt(map: i32, number: i32) -> TaskAttemptId {
        format!("attempt_20.1_0001_m_{map:06}_{number}").parse().unwrap()
    }

    fn plan(maps: usize, at: &[&str]) -> Plan {
        let mut plan = Plan::new(maps, SETTINGS);
        for (map, at) in at.iter().enumerate() {
            plan.event(&event(attempt(map as i32, 0), EventStatus::Succeeded, at));
        }
        plan
    }

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn nodes_are_asked_in_parallel_and_each_once_at_a_time() {
        let mut plan = plan(4, &["http://a:1", "http://b:1", "http://a:1"]);
        let first = plan.next(NOW).unwrap();
        assert_eq!((first.at.as_str(), first.attempts.len()), ("http://a:1", 2));
        assert_eq!(plan.next(NOW).unwrap().at, "http://b:1");
        assert_eq!(plan.next(NOW), None);
        for attempt in &first.attempts {
            assert!(plan.fetched(attempt));
        }
        plan.ended(&first.at, &[], NOW).unwrap();
        assert!(plan.fetched(&attempt(1, 0)) && !plan.fetched(&attempt(1, 0)));
        assert_eq!((plan.done(), plan.is_done()), (3, false));
        plan.event(&event(attempt(3, 2), EventStatus::TipFailed, "http://a:1"));
        assert!(plan.is_done());
    }

    #[test]
    fn a_request_asks_for_ten_outputs_at_most() {
        let mut plan = plan(25, &["http://a:1"; 25]);
        assert_eq!(plan.next(NOW).unwrap().attempts.len(), 10);
    }

    #[test]
    fn an_output_that_is_lost_is_fetched_from_its_next_attempt() {
        let mut plan = plan(1, &["http://a:1"]);
        let asked = plan.next(NOW).unwrap();
        plan.event(&event(attempt(0, 0), EventStatus::Obsolete, "http://a:1"));
        plan.event(&event(attempt(0, 1), EventStatus::Succeeded, "http://b:1"));
        assert!(!plan.fetched(&attempt(0, 0)), "what comes late is of no use");
        plan.ended(&asked.at, &[(attempt(0, 0), Failure::Serious)], NOW).unwrap();
        assert_eq!(plan.take_reports(), []);
        assert_eq!(plan.next(NOW).unwrap().attempts, [attempt(0, 1)]);
        assert!(plan.fetched(&attempt(0, 1)) && plan.is_done());
    }

    #[test]
    fn failures_are_repeated_reported_and_end_the_reduce() {
        let mut plan = plan(2, &["http://a:1", "http://a:1"]);
        let mut now = NOW;
        let mut reported = 0;
        for failure in 1.. {
            let request = plan.next(now).unwrap();
            let missing =
                [(attempt(0, 0), Failure::Connection), (attempt(1, 0), Failure::NotTried)];
            let ended = plan.ended(&request.at, &missing, now);
            assert_eq!(plan.next(now + Duration::from_secs(9)), None, "the node is left alone");
            now += Duration::from_secs(200);
            reported += plan.take_reports().len();
            assert_eq!(reported, failure / 3);
            if failure == 7 {
                let told = ended.unwrap_err();
                assert!(told.contains("attempt_20.1_0001_m_000000_0 from http://a:1"), "{told}");
                return;
            }
            ended.unwrap();
        }
    }

    #[test]
    fn a_missing_output_is_reported_at_once() {
        let mut plan = plan(1, &["http://a:1"]);
        let request = plan.next(NOW).unwrap();
        plan.ended(&request.at, &[(attempt(0, 0), Failure::Serious)], NOW).unwrap();
        assert_eq!(plan.take_reports(), [attempt(0, 0)]);
        assert_eq!(plan.take_reports(), []);
    }

    #[test]
    fn events_of_no_map_change_nothing() {
        let mut plan = plan(1, &[]);
        for map in [1, i32::MAX] {
            plan.event(&event(attempt(map, 0), EventStatus::Succeeded, "http://a:1"));
            plan.event(&event(attempt(map, 0), EventStatus::TipFailed, "http://a:1"));
        }
        assert_eq!((plan.done(), plan.next(NOW)), (0, None));
    }
}
