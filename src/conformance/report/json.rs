//! Findings as JSON. The members are described in `docs/operate/conformance.md`.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::times::{Interval, Pairs, Times};
use super::{Counts, FieldPair, Finding, Subject};

#[derive(Serialize)]
pub(crate) struct FindingJson<'a> {
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<&'static str>,
    about: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    at_us: u64,
    place: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    arguments: &'a str,
    recorded: &'a str,
    live: &'a str,
    fields: Vec<Field<'a>>,
    fields_left_out: usize,
}

#[derive(Serialize)]
struct Field<'a> {
    path: &'a str,
    equal: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<&'a str>,
}

/// Counts by verdict.
#[derive(Serialize)]
pub(crate) struct Counted {
    pub(crate) compared: u64,
    pub(crate) equal: u64,
    pub(crate) explained: u64,
    pub(crate) different: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_compared: Option<u64>,
}

/// The counts of a method.
#[derive(Serialize)]
pub(crate) struct Method<'a> {
    pub(crate) method: &'a str,
    #[serde(flatten)]
    pub(crate) counts: Counted,
}

/// Without what is not compared.
pub(crate) fn counts(of: Counts) -> Counted {
    let Counts { equal, explained, different, .. } = of;
    Counted { compared: of.compared(), equal, explained, different, not_compared: None }
}

/// Compared times.
#[derive(Serialize)]
pub(crate) struct TimesJson {
    tolerance_us: u64,
    compared: u64,
    kinds: Vec<KindJson>,
}

#[derive(Serialize)]
struct KindJson {
    kind: &'static str,
    compared: u64,
    recorded_median_ms: i64,
    live_median_ms: i64,
    early: u64,
    late: u64,
}

pub(crate) fn times(times: &Times) -> TimesJson {
    let kind = |(kind, pairs): (Interval, &Pairs)| KindJson {
        kind: kind.name(),
        compared: pairs.compared,
        recorded_median_ms: pairs.recorded_ms(),
        live_median_ms: pairs.live_ms(),
        early: pairs.early,
        late: pairs.late,
    };
    TimesJson {
        tolerance_us: us(times.tolerance()),
        compared: times.compared(),
        kinds: times.kinds().map(kind).collect(),
    }
}

/// Microseconds.
pub(crate) fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Writes microseconds.
pub(crate) fn as_us<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(us(*time))
}

/// One difference.
pub(crate) fn one(finding: &Finding) -> FindingJson<'_> {
    FindingJson {
        verdict: if finding.rule.is_some() { "explained" } else { "different" },
        row: finding.rule.map(|rule| rule.row),
        about: finding.kind(),
        method: match &finding.about {
            Subject::Call(method) => Some(method),
            _ => None,
        },
        at_us: us(finding.at),
        place: &finding.place,
        arguments: &finding.arguments,
        recorded: &finding.recorded,
        live: &finding.live,
        fields: finding.fields.pairs.iter().map(field).collect(),
        fields_left_out: finding.fields.left_out,
    }
}

fn field(pair: &FieldPair) -> Field<'_> {
    let FieldPair { path, recorded, live } = pair;
    Field { path, equal: pair.is_equal(), recorded: recorded.as_deref(), live: live.as_deref() }
}
