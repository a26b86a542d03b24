//! Recordings of the original, played against the built program. Nothing may differ that the
//! compatibility table does not list.
//!
//! A case mostly waits for recorded pauses. Pauses and expiry are in real time: a play with an
//! unexpected result, in which the machine stalled either side, is repeated.

use compat_tests::{replay, replay_with, repository, with_tls};
use corona::conformance::replay::{Report, Rule, repeat_if_stalled};

/// A recording and the expected results.
struct Case {
    name: &'static str,
    /// How much faster than recorded pauses pass and nodes and sessions expire. Intervals of the
    /// scheduling files stay as they are, so recordings in which those matter are played at 1, or
    /// wait for their effects.
    speed: f64,
    /// The rows of the compatibility table that may explain a difference here.
    explained_by: &'static [Rule],
    /// Why something differs still. When nothing does any more, the test fails, and the reason goes.
    differs_because: Option<&'static str>,
}

const fn case(name: &'static str, speed: f64, explained_by: &'static [Rule]) -> Case {
    Case { name, speed, explained_by, differs_because: None }
}

/// Makes a test of each case.
macro_rules! cases {
    ($( $test:ident: $case:expr; )+) => {
        $(
            #[test]
            fn $test() {
                check(&$case);
            }
        )+
    };
}

cases! {
    // Nodes heartbeat every 3 s and expire after 8 s: the scaled times must suffice on a busy
    // machine.
    job_nodedeath: case("jobs/nodedeath", 3.0, &[Rule::FREE_NODE]);
    job_preempt: case("jobs/preempt", 8.0, &[Rule::FREE_NODE]);
    safe_mode_and_recovery: case("scenarios/safe_mode_and_recovery", 1.0, &[]);
    // Nodes and sessions that expire within 2 s get twice as long.
    dead_node: case("scenarios/dead_node", 0.5, &[Rule::PROMPT_GRANTS]);
    session_expiry: case("scenarios/session_expiry", 0.5, &[Rule::PROMPT_EXPIRY]);
    job_wc_remote: case("jobs/wc-remote", 6.0, &[Rule::FREE_NODE]);
    job_remote_sleep: case("jobs/remote-sleep", 6.0, &[Rule::FREE_NODE]);
    job_inproc_sleep: case("jobs/inproc-sleep", 6.0, &[Rule::FREE_NODE]);
    fifo: case("scenarios/fifo", 1.0, &[]);
    preemption: case("scenarios/preemption", 1.0, &[Rule::NEW_POOL_WAITS]);
    min_and_max: case("scenarios/min_and_max", 1.0, &[Rule::FREE_NODE]);
    fair_two_pools: case("scenarios/fair_two_pools", 1.0, &[Rule::FREE_NODE]);
    locality_wait: case("scenarios/locality_wait", 1.0, &[]);
    grants: case("scenarios/grants", 1.0, &[Rule::FREE_NODE]);
    exclude_hosts: case("scenarios/exclude_hosts", 1.0, &[]);
    node_locality: case("scenarios/node_locality", 1.0, &[]);
    session_lifecycle: case("scenarios/session_lifecycle", 1.0, &[]);
    wire: case("scenarios/wire", 1.0, &[]);
    strict_pools: case("scenarios/strict_pools", 1.0, &[]);
}

/// The most plays of a case, while differences may come from a busy machine.
const PLAYS: usize = 3;

/// Plays a case, shows its report (to be seen with `--nocapture`), and compares it with the expectations.
#[expect(clippy::print_stdout, reason = "a test may show what it found")]
fn check(case: &Case) {
    let report = case.play();
    println!("{report}");
    assert!(report.calls.compared() > 0, "nothing was compared: {report}");
    match case.differs_because {
        None => assert!(report.agrees(), "{report}"),
        Some(reason) => assert!(!report.agrees(), "agrees now, though {reason}: {report}"),
    }
    assert!(case.explains(&report), "explained by a row that does not belong here: {report}");
}

impl Case {
    fn play(&self) -> Report {
        let expected = |report: &Report| {
            report.agrees() == self.differs_because.is_none() && self.explains(report)
        };
        repeat_if_stalled(PLAYS, expected, || replay(self.name, self.speed))
    }

    /// Whether only rows explain something that may.
    fn explains(&self, report: &Report) -> bool {
        let mut rules = report.explained.iter().filter_map(|finding| finding.rule);
        rules.all(|rule| self.explained_by.contains(&rule))
    }
}

/// Java peers see the same of a daemon that speaks TLS beside them, and of one that requires it of others.
#[test]
fn recordings_play_the_same_beside_tls() {
    for is_required in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let settings = with_tls(directory.path(), is_required);
        for name in ["scenarios/wire", "scenarios/session_lifecycle", "scenarios/locality_wait"] {
            let report =
                repeat_if_stalled(PLAYS, Report::agrees, || replay_with(name, 1.0, &settings));
            assert!(report.calls.compared() > 0 && report.agrees(), "{name}: {report}");
            assert!(report.explained.is_empty(), "{name}: {report}");
        }
    }
}

#[test]
fn every_rule_is_a_row_of_the_compatibility_table() {
    let path = repository().join("docs/reference/compatibility.md");
    let table = std::fs::read_to_string(path).unwrap();
    for rule in Rule::ALL {
        let is_row = |line: &str| {
            let first = line.strip_prefix("| ").and_then(|rest| rest.split(" |").next());
            first.is_some_and(|first| {
                first == rule.row || first.starts_with(&format!("{} (", rule.row))
            })
        };
        assert!(table.lines().any(is_row), "no row {:?}", rule.row);
    }
}
