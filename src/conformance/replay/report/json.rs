//! The verdict for programs. The shape is described in `docs/operate/conformance.md`.

use serde::Serialize;

use super::{Counts, Report, Stalls};
use crate::report::json::{FindingJson, TimesJson, one, times, us};

/// The verdict as a value that [`serde`] turns into JSON. Members are only ever added.
pub fn json(report: &Report) -> impl Serialize + '_ {
    Verdict {
        agrees: report.agrees(),
        verdict: report.verdict(),
        ended: report
            .ended
            .as_ref()
            .map(|ended| EndedJson { at_us: us(ended.at), why: &ended.why }),
        name: &report.name,
        target: &report.target,
        speed: report.speed.is_finite().then_some(report.speed),
        recorded_us: us(report.recorded_for),
        calls: counts(&report.calls),
        methods: report
            .by_method
            .iter()
            .map(|(method, of)| Method { method, counts: counts(of) })
            .collect(),
        notices: Notices {
            recorded: report.notices.recorded,
            told: report.notices.live,
            explained: report.notices.explained,
            different: report.notices.different,
            exact: report.notices.exact,
            free: report.notices.free,
            not_compared: report.notices.not_compared,
            grants_exact: report.notices.grants_exact,
            grants_free: report.notices.grants_free,
        },
        calls_not_compared: report.calls_left_out,
        in_flight: report.in_flight,
        times: times(&report.times),
        held_up: held_up(&report.stalls),
        earlier_plays: report
            .earlier
            .iter()
            .map(|play| Earlier { different: play.different, held_up: held_up(&play.stalls) })
            .collect(),
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
    ended: Option<EndedJson<'a>>,
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
    held_up: HeldUp,
    earlier_plays: Vec<Earlier>,
    not_compared: &'a [String],
    findings: Vec<FindingJson<'a>>,
    findings_left_out: usize,
}

#[derive(Serialize)]
struct Counted {
    compared: usize,
    equal: usize,
    explained: usize,
    different: usize,
}

#[derive(Serialize)]
struct Method<'a> {
    method: &'a str,
    #[serde(flatten)]
    counts: Counted,
}

#[derive(Serialize)]
struct Notices {
    recorded: usize,
    told: usize,
    explained: usize,
    different: usize,
    exact: usize,
    free: usize,
    not_compared: usize,
    grants_exact: usize,
    grants_free: usize,
}

#[derive(Serialize)]
struct EndedJson<'a> {
    at_us: u64,
    why: &'a str,
}

#[derive(Serialize)]
struct HeldUp {
    pauses: usize,
    longest_us: u64,
    total_us: u64,
    late_answers: usize,
    latest_answer_us: u64,
    manager_us: u64,
}

#[derive(Serialize)]
struct Earlier {
    different: usize,
    held_up: HeldUp,
}

fn counts(of: &Counts) -> Counted {
    let Counts { equal, explained, different } = *of;
    Counted { compared: of.compared(), equal, explained, different }
}

fn held_up(of: &Stalls) -> HeldUp {
    HeldUp {
        pauses: of.pauses,
        longest_us: us(of.longest),
        total_us: us(of.total),
        late_answers: of.late_answers,
        latest_answer_us: us(of.latest_answer),
        manager_us: us(of.manager),
    }
}
