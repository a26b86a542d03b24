//! What a shadow counts, as Prometheus reads it. A test holds `docs/conformance.md` to the names.

use super::figures::{Figures, Tally};
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

/// All of it as text.
pub(crate) fn metrics(figures: &Figures) -> String {
    let mut text = Text(String::new());
    let mut answers = text.family(ANSWERS);
    for (method, tally) in &figures.calls {
        verdicts(&mut answers, method, *tally);
    }
    let mut notices = text.family(NOTICES);
    for (method, tally) in &figures.notices {
        verdicts(&mut notices, method, *tally);
    }
    let mut explained = text.family(EXPLAINED);
    for (rule, times) in &figures.rows {
        explained.labelled(&[("row", rule.row)], times);
    }
    let mut not_compared = text.family(NOT_COMPARED);
    for (reason, times) in &figures.reasons {
        not_compared.labelled(&[("reason", reason)], times);
    }
    text.family(PLACED).value(figures.near.of);
    let mut near = text.family(NEAR);
    near.labelled(&[("by", "primary")], figures.near.primary);
    near.labelled(&[("by", "here")], figures.near.ours);
    text.family(BEGINNINGS).value(figures.beginnings);
    text.family(SESSIONS).value(figures.sessions);
    text.family(UNFOLLOWED).value(figures.unfollowed);
    text.family(WAITING).value(figures.waiting);
    text.family(LAG).value(figures.lag.as_secs_f64());
    process(&mut text);
    text.0
}

fn verdicts(samples: &mut Samples<'_>, method: &str, tally: Tally) {
    let Tally { equal, explained, different, not_compared } = tally;
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
        let mut figures = Figures::new("cm:9090");
        figures.call("getSessions").equal = 3;
        let text = metrics(&figures);
        let page = std::fs::read_to_string(
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
                .join("docs/conformance.md"),
        )
        .unwrap();
        for family in FAMILIES {
            assert!(text.contains(&format!("# TYPE {} ", family.name)), "{}", family.name);
            let own = family.name.starts_with("corona_shadow_");
            assert!(!own || page.contains(&format!("`{}`", family.name)), "{}", family.name);
        }
        let line = "corona_shadow_answers_total{method=\"getSessions\",verdict=\"equal\"} 3\n";
        assert!(text.contains(line), "{text}");
    }
}
