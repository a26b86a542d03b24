//! The findings of a shadow, for programs. The shape is described in `docs/operate/conformance.md`.

use serde::Serialize;

use super::stats::{Near, Resync, Stats};
use crate::report::Counts;
use crate::report::json::{Counted, FindingJson, Method, TimesJson, counts, one, times, us};

/// The statistics as a value that [`serde`] turns into JSON. Members are only ever added.
pub fn json(stats: &Stats) -> impl Serialize + '_ {
    let rows = stats.rows.iter();
    let reasons = stats.reasons.iter();
    let calls = stats.calls.iter().map(|(method, tally)| (method.as_str(), tally));
    let findings = stats.different.iter().chain(&stats.explained).chain(&stats.of_times);
    Verdict {
        agrees: stats.agrees(),
        primary: &stats.primary,
        began_ms: stats.began_ms,
        ran_for_us: us(stats.ran_for),
        answers: counted(stats.all_calls()),
        answers_by_method: calls.map(method).collect(),
        notices: counted(stats.all_notices()),
        notices_by_method: stats
            .notices
            .iter()
            .map(|(name, tally)| method((name, tally)))
            .collect(),
        explained: rows.map(|(rule, times)| Row { row: rule.row, times: *times }).collect(),
        not_compared: reasons.map(|(reason, times)| Reason { reason, times: *times }).collect(),
        near: stats.near,
        sessions: stats.sessions,
        unfollowed_sessions: stats.unfollowed,
        waiting: stats.waiting,
        lag_us: us(stats.lag),
        worst_lag_us: us(stats.worst_lag),
        beginnings: stats.beginnings,
        last_beginnings: &stats.last_beginnings,
        times: times(&stats.times),
        findings: findings.map(one).collect(),
        findings_left_out: stats.left_out(),
    }
}

#[derive(Serialize)]
struct Verdict<'a> {
    agrees: bool,
    primary: &'a str,
    began_ms: u64,
    ran_for_us: u64,
    answers: Counted,
    answers_by_method: Vec<Method<'a>>,
    notices: Counted,
    notices_by_method: Vec<Method<'a>>,
    explained: Vec<Row>,
    not_compared: Vec<Reason<'a>>,
    near: Near,
    times: TimesJson,
    sessions: usize,
    unfollowed_sessions: usize,
    waiting: usize,
    lag_us: u64,
    worst_lag_us: u64,
    beginnings: u64,
    last_beginnings: &'a [Resync],
    findings: Vec<FindingJson<'a>>,
    findings_left_out: u64,
}

#[derive(Serialize)]
struct Row {
    row: &'static str,
    times: u64,
}

#[derive(Serialize)]
struct Reason<'a> {
    reason: &'a str,
    times: u64,
}

fn counted(of: Counts) -> Counted {
    Counted { not_compared: Some(of.not_compared), ..counts(of) }
}

fn method<'a>((method, tally): (&'a str, &Counts)) -> Method<'a> {
    Method { method, counts: counted(*tally) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_member_is_documented() {
        let mut stats = Stats::new("cm:9090");
        stats.restarted(Duration::ZERO, "a reason".to_owned());
        let value = serde_json::to_value(json(&stats)).unwrap();
        let page = include_str!("../../../docs/operate/conformance.md");
        let (_, section) = page.split_once("\n### JSON of a shadow\n").unwrap();
        let section = section.split("\n## ").next().unwrap_or_default();
        for member in value.as_object().unwrap().keys() {
            assert!(section.contains(&format!("`{member}`")), "{member} is not documented");
        }
    }
}
