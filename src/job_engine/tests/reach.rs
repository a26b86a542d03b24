//! Which silent task trackers count as lost.

use std::collections::BTreeSet;

use corona_model::types::Millis;

use crate::Tracker;
use crate::reach::{Answer, Judgement, Reach};
use Answer::{Connected, NotTried, Nothing, Refused};

fn at(name: &str) -> Tracker {
    Tracker { node: format!("tracker_{name}").into(), address: format!("{name}:9").into() }
}

/// Rounds a second apart with the same answers, the last of which is at `until_ms`.
fn rounds(
    reach: &mut Reach,
    mut from_ms: i64,
    until_ms: i64,
    heard: &[&str],
    answers: &[(&str, Answer)],
) -> Judgement {
    let heard: BTreeSet<&str> = heard.iter().copied().collect();
    let attempts: Vec<_> = answers.iter().map(|(name, answer)| (at(name), *answer)).collect();
    let mut all = Judgement::default();
    while from_ms <= until_ms {
        let judged = reach.judge(Millis(from_ms), &heard, &attempts);
        all.lost.extend(judged.lost);
        all.cut_off_ms += judged.cut_off_ms;
        all.out_of_reach.extend(judged.out_of_reach);
        from_ms += 1_000;
    }
    all
}

#[test]
fn those_that_answer_nothing_are_lost_unless_most_do() {
    for (heard, answers, lost, is_cut_off) in [
        // A machine that refuses is there; its task tracker is not.
        (&[][..], &[("a", Refused)][..], &["a"][..], false),
        (&[], &[("a", Refused), ("b", Refused)], &["a", "b"], false),
        (&[], &[("a", Connected), ("b", Refused)], &["b"], false),
        // One of two may have died; all at once have not.
        (&["b"], &[("a", Nothing)], &["a"], false),
        (&[], &[("a", Nothing)], &[], true),
        (&[], &[("a", Nothing), ("b", Nothing), ("c", Nothing)], &[], true),
        (&["b", "c"], &[("a", Nothing)], &["a"], false),
        (&["d"], &[("a", Nothing), ("b", Nothing), ("c", Refused)], &["a", "b", "c"], false),
        (&["d"], &[("a", Nothing), ("b", Nothing)], &[], true),
        // This machine has no route, or no descriptors.
        (&[], &[("a", NotTried), ("b", NotTried)], &[], true),
        (&["c"], &[("a", NotTried)], &[], false),
        (&["c", "d"], &[], &[], false),
    ] {
        let mut reach = Reach::new(60_000);
        let early = rounds(&mut reach, 0, 59_000, heard, answers);
        assert!(early.lost.is_empty(), "{heard:?} {answers:?}");
        let judged = rounds(&mut reach, 60_000, 60_000, heard, answers);
        let expected: Vec<Tracker> = lost.iter().map(|name| at(name)).collect();
        assert_eq!(judged.lost, expected, "{heard:?} {answers:?}");
        assert_eq!(judged.cut_off_ms > 0, is_cut_off, "{heard:?} {answers:?}");
    }
}

#[test]
fn only_nodes_out_of_reach_are_excused_while_this_machine_is_cut_off() {
    let mut reach = Reach::new(60_000);
    let answers =
        [("a", Nothing), ("b", Nothing), ("c", Nothing), ("d", Connected), ("e", NotTried)];
    let judged = rounds(&mut reach, 0, 1_000, &["f"], &answers);
    let out: Vec<&str> = judged.out_of_reach.iter().map(|node| &**node).collect();
    assert_eq!(out, ["tracker_a", "tracker_b", "tracker_c", "tracker_e"]);
    assert_eq!(judged.cut_off_ms, 1_000);
}

#[test]
fn several_task_trackers_of_a_machine_are_one_witness() {
    let of = |number: u32| Tracker {
        node: format!("tracker_a:{number}").into(),
        address: format!("a:{number}").into(),
    };
    let attempts: Vec<_> = (1..=5).map(|number| (of(number), Nothing)).collect();
    let mut reach = Reach::new(1_000);
    let heard = BTreeSet::from(["b"]);
    reach.judge(Millis(0), &heard, &attempts);
    assert_eq!(reach.judge(Millis(1_000), &heard, &attempts).lost.len(), 5);
}

#[test]
fn the_end_of_a_cut_gives_nobody_up() {
    let mut reach = Reach::new(10_000);
    let all = [("a", Nothing), ("b", Nothing), ("c", Nothing)];
    let cut = rounds(&mut reach, 0, 70_000, &[], &all);
    assert!(cut.lost.is_empty());
    assert_eq!(cut.cut_off_ms, 70_000);
    // The first ones answer again while the attempts at the last one still run.
    let half = rounds(&mut reach, 71_000, 80_000, &["a", "b"], &[("c", Nothing)]);
    assert_eq!(half, Judgement::default());
    // It has died indeed.
    let lost = rounds(&mut reach, 81_000, 81_000, &["a", "b"], &[("c", Nothing)]);
    assert_eq!(lost.lost, [at("c")]);
}

#[test]
fn the_silence_of_one_that_was_heard_of_meanwhile_begins_again() {
    let mut reach = Reach::new(10_000);
    rounds(&mut reach, 0, 9_000, &["b"], &[("a", Nothing)]);
    rounds(&mut reach, 9_500, 9_500, &["a", "b"], &[]);
    assert_eq!(rounds(&mut reach, 10_000, 19_000, &["b"], &[("a", Nothing)]), Judgement::default());
}
