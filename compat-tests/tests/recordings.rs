//! Recordings of the original, played against the built program. Nothing may differ that the
//! compatibility table does not list.
//!
//! A case mostly waits for recorded pauses. They all start together with the first test, so that
//! the whole takes as long as the longest.

use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use compat_tests::{corona_program, replay, repository};
use corona::conformance::replay::{Report, Rule};

/// A recording and what is expected of it.
struct Case {
    name: &'static str,
    /// How much faster than recorded pauses pass and nodes and sessions expire. Intervals of the
    /// scheduling files stay as they are, so recordings in which those matter are played at 1, or
    /// wait for what they bring.
    speed: f64,
    /// The rows of the compatibility table that may explain a difference here.
    explained_by: &'static [Rule],
    /// Why something differs still. When nothing does any more, the test fails, and the reason goes.
    differs_because: Option<&'static str>,
}

const fn case(name: &'static str, speed: f64, explained_by: &'static [Rule]) -> Case {
    Case { name, speed, explained_by, differs_because: None }
}

/// Lists the cases and makes a test of each.
macro_rules! cases {
    ($( $test:ident: $case:expr; )+) => {
        const CASES: &[Case] = &[ $( $case ),+ ];

        #[allow(non_camel_case_types)]
        enum Place { $( $test ),+ }

        $(
            #[test]
            fn $test() {
                check(Place::$test as usize);
            }
        )+
    };
}

cases! {
    session_lifecycle: case("scenarios/session_lifecycle", 1.0, &[]);
    grants: case("scenarios/grants", 1.0, &[Rule::FREE_NODE]);
    exclude_hosts: case("scenarios/exclude_hosts", 1.0, &[]);
    node_locality: case("scenarios/node_locality", 1.0, &[]);
    session_expiry: case("scenarios/session_expiry", 1.0, &[Rule::PROMPT_EXPIRY]);
    dead_node: case("scenarios/dead_node", 1.0, &[Rule::PROMPT_GRANTS]);
    wire: case("scenarios/wire", 1.0, &[]);
    locality_wait: case("scenarios/locality_wait", 1.0, &[]);
    fair_two_pools: case("scenarios/fair_two_pools", 1.0, &[Rule::FREE_NODE]);
    min_and_max: case("scenarios/min_and_max", 1.0, &[Rule::FREE_NODE]);
    fifo: case("scenarios/fifo", 1.0, &[]);
    preemption: case("scenarios/preemption", 1.0, &[]);
    strict_pools: case("scenarios/strict_pools", 1.0, &[]);
    safe_mode_and_recovery: case("scenarios/safe_mode_and_recovery", 1.0, &[]);
    job_inproc_sleep: case("jobs/inproc-sleep", 8.0, &[Rule::FREE_NODE]);
    job_remote_sleep: case("jobs/remote-sleep", 8.0, &[Rule::FREE_NODE]);
    job_wc_remote: case("jobs/wc-remote", 8.0, &[Rule::FREE_NODE]);
    // Nodes heartbeat every 3 s and expire after 8 s: what is left must suffice on a busy machine.
    job_nodedeath: case("jobs/nodedeath", 4.0, &[Rule::FREE_NODE]);
    job_preempt: case("jobs/preempt", 8.0, &[Rule::FREE_NODE]);
}

/// Waits for the report of a case, shows it (to be seen with `--nocapture`), and holds it against
/// what is expected.
#[expect(clippy::print_stdout, reason = "a test may show what it found")]
fn check(place: usize) {
    let case = &CASES[place];
    let report = report(place);
    println!("{report}");
    assert!(report.calls > 0, "nothing was compared: {report}");
    match case.differs_because {
        None => assert!(report.agrees(), "{report}"),
        Some(reason) => assert!(!report.agrees(), "agrees now, though {reason}: {report}"),
    }
    for finding in &report.explained {
        let rule = finding.rule.expect("an explained finding has a rule");
        assert!(case.explained_by.contains(&rule), "unexpected: {finding}");
    }
}

type Running = Mutex<Option<JoinHandle<Report>>>;

/// The report of a case; all of them are started by whoever asks first.
fn report(place: usize) -> Report {
    static RUNNING: OnceLock<Vec<Running>> = OnceLock::new();
    let running = RUNNING.get_or_init(|| {
        corona_program();
        let start =
            |case: &'static Case| Mutex::new(Some(thread::spawn(|| replay(case.name, case.speed))));
        CASES.iter().map(start).collect()
    });
    let handle = running[place].lock().unwrap().take().expect("each case is asked for once");
    handle.join().unwrap_or_else(|_| panic!("{} could not be played", CASES[place].name))
}

#[test]
fn every_rule_is_a_row_of_the_compatibility_table() {
    let path = repository().join("docs/compatibility.md");
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
