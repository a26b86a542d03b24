//! The behaviour required of any cluster manager, as a peer sees it: one suite for this program,
//! and for another one that runs already.
//!
//!     cargo test -p compat-tests --test cluster any_manager
//!     CORONA_TARGET=host:port CORONA_TARGET_KIND=original \
//!         cargo test -p compat-tests --test cluster any_manager
//!
//! Without `CORONA_TARGET` the built program is started. Another manager must have been started
//! with the configuration in `fixtures/config/any_manager` and nothing else may use it; its README
//! explains how. `CORONA_TARGET_KIND` selects the expected answers: `original` (the default for a
//! target) or `ours`. Where the two differ on purpose, the case has both answers, with the row of
//! the compatibility table. Each kind has to give its own: so the suite notices a difference that
//! has vanished as well as a new one.

mod cases;
mod expected;
mod target;
mod world;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::thread;

use expected::{Expected, Kind};
use target::Target;
use world::{CaseState, Peers};

/// A case: its name, its actions, and the expected result of each step.
struct Case {
    name: &'static str,
    run: fn(&mut CaseState),
    expected: &'static str,
}

/// The result of a case: its steps, or why it failed.
type Outcome = Result<Vec<(String, String)>, String>;

/// Lists the cases in the order in which they run, and makes a test of each.
macro_rules! cases {
    ($( $room:ident::$case:ident $expected:ident; )+) => {
        const CASES: &[Case] = &[ $(
            Case {
                name: stringify!($case),
                run: cases::$room::$case,
                expected: cases::$room::$expected,
            },
        )+ ];

        $(
            #[test]
            fn $case() {
                check(stringify!($case));
            }
        )+
    };
}

cases! {
    sessions::a_session_from_start_to_end A_SESSION_FROM_START_TO_END;
    sessions::starts_that_are_refused STARTS_THAT_ARE_REFUSED;
    sessions::heartbeats_of_sessions HEARTBEATS_OF_SESSIONS;
    sessions::sessions_that_are_not_there SESSIONS_THAT_ARE_NOT_THERE;
    pools::names_of_pools NAMES_OF_POOLS;
    wire::bytes_that_are_no_calls BYTES_THAT_ARE_NO_CALLS;
    wire::odd_messages ODD_MESSAGES;
    nodes::heartbeats_of_nodes HEARTBEATS_OF_NODES;
    requests::odd_requests ODD_REQUESTS;
    requests::grants_by_type_and_node GRANTS_BY_TYPE_AND_NODE;
    requests::places PLACES;
    pools::first_in_first_out FIRST_IN_FIRST_OUT;
    pools::a_maximum A_MAXIMUM;
    pools::weights WEIGHTS;
    pools::a_minimum_is_taken_back A_MINIMUM_IS_TAKEN_BACK;
    nodes::safe_mode SAFE_MODE;
    nodes::a_dead_node A_DEAD_NODE;
    sessions::a_silent_session_expires A_SILENT_SESSION_EXPIRES;
}

/// Cases that wait long, and that others do not disturb: they start first, each on its own thread.
const BESIDE: &[&str] = &["a_silent_session_expires"];

/// The outcome of a case. It has a cluster manager of its own; another cluster manager is one for all, whose cases run one
/// after another in one process when the first test asks.
fn outcome(case: &Case) -> Outcome {
    static OF_ANOTHER: OnceLock<HashMap<&'static str, Outcome>> = OnceLock::new();
    if let Some(named) = Target::named() {
        let outcomes = OF_ANOTHER.get_or_init(|| run_all(&Target::another(&named)));
        return outcomes[case.name].clone();
    }
    let target = Target::ours();
    run(case, &Peers::start(&target))
}

fn kind() -> Kind {
    Target::kind_from_environment()
}

fn run_all(target: &Target) -> HashMap<&'static str, Outcome> {
    let peers = Peers::start(target);
    let (beside, in_turn): (Vec<&Case>, Vec<_>) =
        CASES.iter().partition(|case| BESIDE.contains(&case.name));
    thread::scope(|scope| {
        let beside = beside.iter().map(|case| scope.spawn(|| (case.name, run(case, &peers))));
        let beside: Vec<_> = beside.collect();
        let mut outcomes: HashMap<_, _> =
            in_turn.iter().map(|case| (case.name, run(case, &peers))).collect();
        outcomes.extend(beside.into_iter().map(|thread| thread.join().expect("it is caught")));
        outcomes
    })
}

fn run(case: &Case, peers: &Peers) -> Outcome {
    let mut world = CaseState::new(peers);
    let run = catch_unwind(AssertUnwindSafe(|| (case.run)(&mut world)));
    world.end_sessions();
    match run {
        Ok(()) => Ok(world.into_steps()),
        Err(reason) => {
            let text = reason.downcast_ref::<String>().cloned();
            let text = text.or(reason.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let steps = format!("{:#?}", world.into_steps());
            Err(format!("{} after {steps}", text.unwrap_or("a panic".to_owned())))
        }
    }
}

fn check(name: &str) {
    let case = CASES.iter().find(|case| case.name == name).expect("it is in the list");
    if let Err(text) = judge(case, outcome(case), kind()) {
        panic!("{text}");
    }
}

/// Compares an outcome with the expectations for this kind of manager.
fn judge(case: &Case, outcome: Outcome, kind: Kind) -> Result<(), String> {
    let steps = outcome.map_err(|reason| format!("{}: {reason}", case.name))?;
    Expected::read(case.expected).judge(&steps, kind)
}

/// The suite distinguishes the kinds of managers: taken for the original, this program fails in
/// each case that names a difference, and in no other.
#[test]
fn a_manager_of_the_wrong_kind_is_noticed() {
    let outcomes = run_all(&Target::ours());
    let mut named = 0;
    for case in CASES {
        let differs = Expected::read(case.expected).names_a_difference();
        let outcome = outcomes[case.name].clone();
        assert_eq!(judge(case, outcome, Kind::Original).is_err(), differs, "{}", case.name);
        named += usize::from(differs);
    }
    assert!(named >= 5, "{named} cases name a difference");
}

/// A plain peer sees the same of a cluster manager that speaks TLS beside it, and of one that requires TLS of others.
#[test]
fn all_cases_are_the_same_beside_tls() {
    for is_required in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let further = compat_tests::with_tls(directory.path(), is_required);
        let outcomes = run_all(&Target::ours_with(&further));
        for case in CASES {
            let outcome = outcomes[case.name].clone();
            if let Err(text) = judge(case, outcome, Kind::Ours) {
                panic!("required: {is_required}: {text}");
            }
        }
    }
}

#[test]
fn every_difference_is_a_row_of_the_compatibility_table() {
    let table = compat_tests::repository().join("docs/reference/compatibility.md");
    let table = std::fs::read_to_string(table).unwrap();
    for case in CASES {
        for row in Expected::read(case.expected).rows() {
            let is_there = table.lines().any(|line| line.starts_with(&format!("| {row} |")));
            assert!(is_there, "{}: no row {row}", case.name);
        }
    }
}
