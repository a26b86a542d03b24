//! Trees of queues in the simulation: it passes, survives images, and finds each rule that is missing.

use super::tests::{Fault, SHORT, check_faults_are_found, check_restored, hears, with_settings};
use super::*;
use corona_model::queues::{PreemptionRule, QueueRules, Queues, SiblingOrder};
use corona_model::types::PerType;

fn plan(seed: u64) -> Plan {
    Plan { seed, steps: SHORT, restarts: false, trees: true, resources: false }
}

#[test]
fn runs_with_trees_of_queues_pass() {
    let mut all = Summary::default();
    for seed in 1..=40 {
        let run = run(plan(seed));
        all.add(run.unwrap_or_else(|failure| panic!("seed {seed}: {}", failure.what)));
    }
    assert!(all.granted > 2000 && all.revoked > 5, "{all:?}");
}

/// A session that waited for a near node was not tried again when room on another host made its large request
/// fit beside a reserve.
#[test]
fn the_run_that_left_a_large_request_beside_free_slots_passes() {
    let run = run(Plan { steps: 10_000, ..plan(8_000_101) });
    run.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_tree_restored_from_its_image_goes_on_as_the_first_one() {
    check_restored(plan);
}

fn each_rule(input: Input, change: impl Fn(&mut QueueRules)) -> Input {
    with_settings(input, |settings| {
        let queues: &mut Queues = &mut settings.pools.queues;
        queues.groups.values_mut().chain(queues.pools.values_mut()).for_each(change);
    })
}

/// Twenty ways in which the rules may be wrong.
fn faults() -> Vec<Fault> {
    vec![
        hears("groups do not nest", |i| each_rule(i, |rules| rules.parent = None)),
        hears("groups have no weight", |i| each_rule(i, |rules| rules.weight = 1.0)),
        hears("parts are no minima", |i| each_rule(i, |rules| rules.minimum = PerType::all(None))),
        hears("parts are no maxima", |i| each_rule(i, |rules| rules.maximum = PerType::all(None))),
        hears("parts of maxima are larger", |i| {
            each_rule(i, |rules| {
                for part in rules.maximum.0.iter_mut().flatten() {
                    part.0 = part.0.saturating_mul(2);
                }
            })
        }),
        hears("parts of minima are smaller", |i| {
            each_rule(i, |rules| {
                for part in rules.minimum.0.iter_mut().flatten() {
                    part.0 /= 2;
                }
            })
        }),
        hears("priorities count everywhere", |i| {
            each_rule(i, |rules| rules.order = SiblingOrder::Priority)
        }),
        hears("priorities count nowhere", |i| {
            each_rule(i, |rules| rules.order = SiblingOrder::Fair)
        }),
        hears("every queue lends", |i| each_rule(i, |rules| rules.lend = true)),
        hears("no queue lends", |i| each_rule(i, |rules| rules.lend = false)),
        hears("every queue may be taken from", |i| {
            each_rule(i, |rules| rules.preemption = PreemptionRule::Default)
        }),
        hears("no queue may be taken from", |i| {
            each_rule(i, |rules| rules.preemption = PreemptionRule::Disabled)
        }),
        hears("no grant is safe", |i| each_rule(i, |rules| rules.min_runtime_ms = None)),
        hears("any number of sessions is served", |i| {
            each_rule(i, |rules| rules.max_sessions = None)
        }),
        hears("one session more is served", |i| {
            each_rule(i, |rules| rules.max_sessions = rules.max_sessions.map(|most| most + 1))
        }),
        hears("users hold what they like", |i| each_rule(i, |rules| rules.max_per_user = None)),
        hears("users hold one more", |i| {
            each_rule(i, |rules| rules.max_per_user = rules.max_per_user.map(|most| most + 1))
        }),
        hears("any number of a user's sessions is served", |i| {
            each_rule(i, |rules| rules.max_sessions_per_user = None)
        }),
        hears("everybody may submit", |i| each_rule(i, |rules| rules.submit = None)),
        hears("draining queues take sessions", |i| each_rule(i, |rules| rules.draining = false)),
        hears("sessions are placed nowhere", |i| each_rule(i, |rules| rules.placement.clear())),
    ]
}

#[test]
fn each_missing_rule_is_found_within_six_hundred_seeds() {
    check_faults_are_found(faults(), plan);
}
