//! A short run of the fuzz targets, on any toolchain: their seeds as they are and changed at random.
//! `scripts/fuzz` runs the same targets for as long as one likes, guided by coverage.

use compat_tests::fuzzing::{LARGEST_INPUT, TARGETS, seeds, target};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Inputs of each target, besides its seeds.
const INPUTS: u32 = 400;

/// The longest section of a seed that [`nested`] repeats, in bytes.
const LONGEST_SECTION: usize = 48;
/// The seeds of a target in which it looks for such sections, the shortest ones.
const NESTED_SEEDS: usize = 12;
/// The length to which a section is repeated: enough for the small stack of the targets.
const NESTED_BYTES: usize = 48 << 10;

/// A change of a seed.
#[derive(Clone, Debug)]
enum Change {
    Set(u8),
    Insert(Vec<u8>),
    Remove(usize),
    /// So many bytes are repeated so many times.
    Repeat(usize, usize),
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
        1 => (1..256_usize, prop_oneof![4 => Just(1_usize), 1 => 1..LARGEST_INPUT])
            .prop_map(|(length, times)| Change::Repeat(length, times)),
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
            Change::Repeat(length, times) => {
                let section = bytes[at..end(*length)].to_vec();
                let times = (*times).min(LARGEST_INPUT / section.len().max(1));
                drop(bytes.splice(at..at, section.repeat(times)));
            }
            Change::Cut => bytes.truncate(at),
        }
        bytes.truncate(LARGEST_INPUT);
    }
    bytes
}

/// Short seeds in which each section in turn is repeated over and over, as if it were within itself.
fn nested(seeds: &[Vec<u8>]) -> impl Iterator<Item = Vec<u8>> {
    let mut short: Vec<&Vec<u8>> = seeds.iter().collect();
    short.sort_by_key(|seed| seed.len());
    short.truncate(NESTED_SEEDS);
    short.into_iter().flat_map(|seed| {
        let starts = 0..seed.len().min(LONGEST_SECTION);
        starts.flat_map(move |start| {
            let lengths = 1..=(seed.len() - start).min(LONGEST_SECTION);
            lengths.map(move |length| {
                let (before, rest) = seed.split_at(start);
                let section = rest[..length].repeat(NESTED_BYTES / length);
                [before, &section, rest].concat()
            })
        })
    })
}

fn check(name: &str) {
    let target = target(name);
    let seeds = seeds(target);
    assert!(seeds.len() >= 3, "{} seeds", seeds.len());
    seeds.iter().for_each(|seed| target.check(seed));
    nested(&seeds).for_each(|input| target.check(&input));
    let config = Config { cases: INPUTS, failure_persistence: None, ..Config::default() };
    let input = prop_oneof![
        9 => (any::<prop::sample::Index>(), vec(change(), 1..6))
            .prop_map(move |(seed, changes)| changed(&seeds[seed.index(seeds.len())], &changes)),
        1 => vec(any::<u8>(), 0..256),
    ];
    let run = |bytes: Vec<u8>| {
        target.check(&bytes);
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
    data_transfers access_strings first_bytes sequence_files
}

#[test]
fn a_name_that_is_no_text_may_grow_beyond_what_is_read() {
    for length in [341_u32, 342, 1_024, 1_025] {
        // The session driver's service, which is bare; a call of a method whose name is no UTF-8.
        let head = [&[1, 0x80, 1, 0, 1][..], &length.to_be_bytes()].concat();
        let call = [head, vec![0xff; length as usize], vec![0; 5]].concat();
        target("messages").check(&call);
    }
}
