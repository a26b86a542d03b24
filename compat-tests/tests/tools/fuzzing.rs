//! A short run of the fuzz targets, on any toolchain: their seeds as they are and changed at random.
//! `scripts/fuzz` runs the same targets for as long as one likes, guided by coverage.

use compat_tests::fuzzing::{TARGETS, Target, seeds};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Inputs of each target, besides its seeds.
const INPUTS: u32 = 400;

/// A change of a seed.
#[derive(Clone, Debug)]
enum Change {
    Set(u8),
    Insert(Vec<u8>),
    Remove(usize),
    Repeat(usize),
    Cut,
}

fn change() -> impl Strategy<Value = (prop::sample::Index, Change)> {
    let bytes = prop_oneof![
        vec(any::<u8>(), 1..9),
        Just(i32::MAX.to_be_bytes().to_vec()),
        Just(i32::MIN.to_be_bytes().to_vec()),
    ];
    let change = prop_oneof![
        4 => any::<u8>().prop_map(Change::Set),
        2 => bytes.prop_map(Change::Insert),
        2 => (1..64_usize).prop_map(Change::Remove),
        1 => (1..256_usize).prop_map(Change::Repeat),
        1 => Just(Change::Cut),
    ];
    (any::<prop::sample::Index>(), change)
}

fn changed(seed: &[u8], changes: &[(prop::sample::Index, Change)]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for (place, change) in changes {
        let at = place.index(bytes.len() + 1);
        let end = |length: usize| (at + length).min(bytes.len());
        match change {
            Change::Set(byte) => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = *byte),
            Change::Insert(more) => drop(bytes.splice(at..at, more.iter().copied())),
            Change::Remove(length) => drop(bytes.drain(at..end(*length))),
            Change::Repeat(length) => {
                let more = bytes[at..end(*length)].to_vec();
                drop(bytes.splice(at..at, more));
            }
            Change::Cut => bytes.truncate(at),
        }
    }
    bytes
}

fn check(name: &str) {
    let target: &Target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let seeds = seeds(target);
    assert!(seeds.len() >= 3, "{} seeds", seeds.len());
    seeds.iter().for_each(|seed| (target.run)(seed));
    let config = Config { cases: INPUTS, failure_persistence: None, ..Config::default() };
    let input = prop_oneof![
        9 => (any::<prop::sample::Index>(), vec(change(), 1..6))
            .prop_map(move |(seed, changes)| changed(&seeds[seed.index(seeds.len())], &changes)),
        1 => vec(any::<u8>(), 0..256),
    ];
    let run = |bytes: Vec<u8>| {
        (target.run)(&bytes);
        Ok(())
    };
    TestRunner::new(config).run(&input, run).unwrap_or_else(|failure| panic!("{name}: {failure}"));
}

macro_rules! targets {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )+

        #[test]
        fn every_target_is_run_here_and_in_fuzz() {
            let here = [$(stringify!($name)),+];
            let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(all, here);
            let manifest = compat_tests::repository().join("fuzz/Cargo.toml");
            let manifest = std::fs::read_to_string(manifest).unwrap();
            for name in here {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/ has no {name}");
            }
        }
    };
}

targets! {
    messages relayed_frames configuration scheduling_files state_file traffic hadoop_objects
    data_transfers
}

#[test]
fn a_name_that_is_no_text_may_grow_beyond_what_is_read() {
    let target = TARGETS.iter().find(|target| target.name == "messages").expect("a target");
    for length in [341_u32, 342, 1_024, 1_025] {
        // The session driver's service, which is bare; a call of a method whose name is no UTF-8.
        let head = [&[1, 0x80, 1, 0, 1][..], &length.to_be_bytes()].concat();
        let call = [head, vec![0xff; length as usize], vec![0; 5]].concat();
        (target.run)(&call);
    }
}
