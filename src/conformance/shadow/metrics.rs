//! The counts of a shadow in Prometheus' format. A test compares the names with `docs/operate/conformance.md`.

use super::stats::Stats;
use crate::report::Counts;
use corona_web::process::process;
use corona_web::prometheus::{Samples, Text, families};

families! {
    ANSWERS = Counter "corona_shadow_answers_total"
        "Replies of the primary, by method and verdict.";
    NOTICES = Counter "corona_shadow_notices_total"
        "Entries in notifications of the primary and of this program, by method and verdict.";
    EXPLAINED = Counter "corona_shadow_explained_total"
        "Differences that a row of the compatibility table explains.";
    NOT_COMPARED = Counter "corona_shadow_not_compared_total"
        "Replies and entries that were not compared, by reason.";
    PLACED = Counter "corona_shadow_placed_grants_total"
        "Requests that both sides granted.";
    TIMES = Counter "corona_shadow_times_total"
        "Decisions of both sides whose times were compared, by kind and verdict (within, early or late).";
    NEAR = Counter "corona_shadow_near_grants_total"
        "Grants placed on a preferred host, by cluster manager (primary or here).";
    BEGINNINGS = Counter "corona_shadow_beginnings_total"
        "Times that the shadow resynchronised.";
    SESSIONS = Gauge "corona_shadow_sessions"
        "Sessions that are compared.";
    UNFOLLOWED = Gauge "corona_shadow_unfollowed_sessions"
        "Sessions that run at the primary and are not compared.";
    WAITING = Gauge "corona_shadow_waiting_decisions"
        "Decisions of one side that the other has not made yet.";
    LAG = Gauge "corona_shadow_lag_seconds"
        "Delay between the clients' traffic and its comparison.";
}

/// All metrics as text.
pub(crate) fn metrics(stats: &Stats) -> String {
    let mut text = Text(String::new());
    let mut answers = text.family(ANSWERS);
    for (method, tally) in &stats.calls {
        verdicts(&mut answers, method, *tally);
    }
    let mut notices = text.family(NOTICES);
    for (method, tally) in &stats.notices {
        verdicts(&mut notices, method, *tally);
    }
    let mut explained = text.family(EXPLAINED);
    for (rule, times) in &stats.rows {
        explained.labelled(&[("row", rule.row)], times);
    }
    let mut not_compared = text.family(NOT_COMPARED);
    for (reason, times) in &stats.reasons {
        not_compared.labelled(&[("reason", reason)], times);
    }
    text.family(PLACED).value(stats.near.of);
    let mut near = text.family(NEAR);
    near.labelled(&[("by", "primary")], stats.near.primary);
    near.labelled(&[("by", "here")], stats.near.ours);
    let mut times = text.family(TIMES);
    for (kind, pairs) in stats.times.kinds() {
        let within = pairs.compared - pairs.early - pairs.late;
        for (verdict, count) in [("within", within), ("early", pairs.early), ("late", pairs.late)] {
            times.labelled(&[("kind", kind.name()), ("verdict", verdict)], count);
        }
    }
    text.family(BEGINNINGS).value(stats.beginnings);
    text.family(SESSIONS).value(stats.sessions);
    text.family(UNFOLLOWED).value(stats.unfollowed);
    text.family(WAITING).value(stats.waiting);
    text.family(LAG).value(stats.lag.as_secs_f64());
    process(&mut text);
    text.0
}

fn verdicts(samples: &mut Samples<'_>, method: &str, tally: Counts) {
    let Counts { equal, explained, different, not_compared } = tally;
    for (verdict, count) in [
        ("equal", equal),
        ("explained", explained),
        ("different", different),
        ("not_compared", not_compared),
    ] {
        samples.labelled(&[("method", method), ("verdict", verdict)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_served_and_documented() {
        let mut stats = Stats::new("cm:9090");
        stats.call("getSessions").equal = 3;
        let text = metrics(&stats);
        let page = include_str!("../../../docs/operate/conformance.md");
        for family in FAMILIES {
            assert!(text.contains(&format!("# TYPE {} ", family.name)), "{}", family.name);
            let own = family.name.starts_with("corona_shadow_");
            assert!(!own || page.contains(&format!("`{}`", family.name)), "{}", family.name);
        }
        let line = "corona_shadow_answers_total{method=\"getSessions\",verdict=\"equal\"} 3\n";
        assert!(text.contains(line), "{text}");
    }
}
