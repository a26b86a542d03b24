//! The verdict for programs. The shape is described in `docs/operate/conformance.md`.

use serde::Serialize;

use super::{EarlierPlay, Ended, Notices, Report, Stalls};
use crate::report::json::{Counted, FindingJson, Method, TimesJson, counts, one, times, us};

/// The verdict as a value that [`serde`] turns into JSON. Members are only ever added.
pub fn json(report: &Report) -> impl Serialize + '_ {
    Verdict {
        agrees: report.agrees(),
        verdict: report.verdict(),
        ended: report.ended.as_ref(),
        name: &report.name,
        target: &report.target,
        speed: report.speed.is_finite().then_some(report.speed),
        recorded_us: us(report.recorded_for),
        calls: counts(report.calls),
        methods: report
            .by_method
            .iter()
            .map(|(method, of)| Method { method, counts: counts(*of) })
            .collect(),
        notices: report.notices,
        calls_not_compared: report.calls_left_out,
        in_flight: report.in_flight,
        times: times(&report.times),
        held_up: report.stalls,
        earlier_plays: &report.earlier,
        not_compared: &report.not_compared,
        findings: report.different.iter().chain(&report.explained).map(one).collect(),
        findings_left_out: report.left_out,
    }
}

#[derive(Serialize)]
struct Verdict<'a> {
    agrees: bool,
    verdict: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<&'a Ended>,
    name: &'a str,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    recorded_us: u64,
    calls: Counted,
    methods: Vec<Method<'a>>,
    notices: Notices,
    calls_not_compared: usize,
    in_flight: usize,
    times: TimesJson,
    held_up: Stalls,
    earlier_plays: &'a [EarlierPlay],
    not_compared: &'a [String],
    findings: Vec<FindingJson<'a>>,
    findings_left_out: usize,
}
