//! A journal that breaks off at any step is opened again with all that was acknowledged.

use std::sync::Arc;

use corona_model::random::Random;

use super::memory::Memory;
use crate::frame::write_record;
use crate::log::{Log, store_image};
use crate::marker::{MARKER, Marker};
use crate::recovery::recover;
use crate::{Entry, OpenError, Storage, StorageError, check, repair};

/// Small, so that there are several.
const SEGMENT_BYTES: u64 = 200;

/// The payload of a record follows from its number, and the state is the sum of all payloads.
fn payload(number: u64) -> Vec<u8> {
    let length = (number * 7 % 23) as usize;
    number.to_le_bytes().into_iter().chain(std::iter::repeat_n(number as u8, length)).collect()
}

/// What a script acknowledged before it failed.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    /// Written: a crash of the process cannot lose it.
    written: u64,
    /// Durable: a power cut cannot.
    durable: u64,
    image: u64,
}

/// Writes batches of records and images until something fails, as the threads of a journal do it.
fn run(memory: &Memory, seed: u64, always: bool, acknowledged: &mut Acknowledged) {
    let mut random = Random::new(seed);
    let mut work = || -> Result<(), OpenError> {
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        let mut expected = None;
        let mut visit = |entry: Entry<'_>| {
            let number = match entry {
                Entry::Image { number, .. } | Entry::Record { number, .. } => number,
            };
            assert!(expected.is_none_or(|last| number == last + 1), "{number} after {expected:?}");
            expected = Some(number);
            Ok(())
        };
        let (mut log, recovered) = Log::open(storage.clone(), SEGMENT_BYTES, &mut visit)?;
        acknowledged.durable = acknowledged.durable.max(recovered.last);
        acknowledged.written = acknowledged.written.max(recovered.last);
        for _ in 0..12 {
            let mut batch = Vec::new();
            let mut last = log.last();
            let mut checksum = 0;
            for _ in 0..=random.below(4) {
                last += 1;
                checksum = write_record(&mut batch, last, acknowledged.durable, &payload(last));
            }
            log.write(&batch, last)?;
            if always {
                log.segment().sync()?;
                acknowledged.durable = last;
            }
            acknowledged.written = last;
            if !always && random.below(3) == 0 {
                log.segment().sync()?;
                acknowledged.durable = last;
            }
            if acknowledged.durable == last && last.is_multiple_of(2) {
                Marker { number: last, checksum }.write(&*storage, false)?;
            }
            if acknowledged.durable > 0 && random.below(4) == 0 {
                let number = acknowledged.durable;
                store_image(&*storage, number, &[format!("image {number}").as_bytes()])?;
                acknowledged.image = number;
            }
        }
        Ok(())
    };
    // The failure is that of the storage, which the script ordered.
    if let Err(error) = work() {
        assert!(matches!(error, OpenError::Storage(StorageError::System { .. })), "{error}");
    }
}

/// The names of the segments, ascending.
pub(super) fn segments(memory: &Memory) -> Vec<String> {
    memory.list().unwrap().into_iter().filter(|name| name.ends_with(".journal")).collect()
}

/// Opens what is left, holds it against what was written, and gives the last number.
fn reopened(memory: &Memory, context: &str) -> u64 {
    let mut last = 0;
    let opened = recover(memory, &mut |entry| {
        match entry {
            Entry::Image { number, bytes } => {
                assert_eq!(bytes, format!("image {number}").as_bytes(), "{context}");
                last = number;
            }
            Entry::Record { number, bytes } => {
                assert_eq!((number, bytes), (last + 1, &payload(number)[..]), "{context}");
                last = number;
            }
        }
        Ok(())
    });
    let (recovered, _) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(recovered.last, last, "{context}");
    last
}

#[test]
fn nothing_acknowledged_is_lost_at_any_point_of_failure() {
    for always in [false, true] {
        for seed in 0..20 {
            let whole = Memory::default();
            run(&whole, seed, always, &mut Acknowledged::default());
            for step in 0..whole.operations() {
                let memory = Memory::default();
                memory.fail_after(step);
                let mut acknowledged = Acknowledged::default();
                run(&memory, seed, always, &mut acknowledged);
                let context = format!("always {always}, seed {seed}, step {step}");

                let after_crash = memory.after_process_crash();
                let last = reopened(&after_crash, &context);
                assert!(last >= acknowledged.written, "{context}: {last} {acknowledged:?}");

                for cut in 0..3 {
                    let mut random = Random::new(seed ^ step << 8 ^ cut << 32);
                    let after_cut = memory.after_power_cut(&mut random);
                    let context = format!("{context}, power cut {cut}");
                    let last = reopened(&after_cut, &context);
                    assert!(last >= acknowledged.durable, "{context}: {last} {acknowledged:?}");
                    // It continues from there, through another crash.
                    let mut again = Acknowledged { written: 0, durable: 0, image: 0 };
                    after_cut.fail_after(step % 17);
                    run(&after_cut, seed + 1, always, &mut again);
                    let left = after_cut.after_process_crash();
                    assert!(reopened(&left, &context) >= again.written.max(last), "{context}");
                }
            }
        }
    }
}

#[test]
fn a_file_that_ends_anywhere_is_good_up_to_its_last_whole_record() {
    let memory = Memory::default();
    run(&memory, 3, false, &mut Acknowledged::default());
    // The marker would say that records are lost.
    memory.remove(MARKER).unwrap();
    let name = memory.list().unwrap().into_iter().rfind(|name| name.ends_with(".journal")).unwrap();
    let whole = memory.read(&name).unwrap();
    let mut least = reopened(&memory, "whole");
    for length in (0..whole.len() as u64).rev() {
        let cut = memory.after_process_crash();
        cut.truncate(&name, length).unwrap();
        // Records that an image stands for are not missed; without any a header is missing.
        match recover(&cut, &mut |_| Ok(())) {
            Ok((recovered, _)) => {
                assert!(recovered.last <= least, "length {length}");
                least = recovered.last;
            }
            Err(error) => {
                assert!(matches!(error, OpenError::Missing { .. }), "length {length}: {error}");
            }
        }
    }
}

#[test]
fn damage_before_what_was_durable_is_refused_with_its_place() {
    let memory = Memory::default();
    // Without images, so that every record counts.
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let (mut log, _) = Log::open(storage, SEGMENT_BYTES, &mut |_| Ok(())).unwrap();
    for number in 1..=30 {
        let mut record = Vec::new();
        write_record(&mut record, number, number - 1, &payload(number));
        log.write(&record, number).unwrap();
        log.segment().sync().unwrap();
    }
    drop(log);
    let names = segments(&memory);
    assert!(names.len() > 3, "{names:?}");
    for name in &names {
        let length = memory.read(name).unwrap().len();
        for at in 0..length {
            let damaged = memory.after_process_crash();
            damaged.flip(name, at);
            let context = format!("{name} at {at}");
            match recover(&damaged, &mut |_| Ok(())) {
                Err(OpenError::Damaged { file, offset, .. }) => {
                    assert_eq!(&file, name, "{context}");
                    assert!(offset <= at as u64, "{context}: {offset}");
                }
                // The last record of all says nothing of itself: it counts as torn.
                Ok((recovered, _)) => {
                    assert_eq!((name, recovered.last), (names.last().unwrap(), 29), "{context}");
                }
                Err(error) => panic!("{context}: {error}"),
            }
            let report = check(&damaged).unwrap();
            let is_reported = report.segments.iter().any(|segment| segment.problem.is_some())
                || report.outcome.as_ref().is_some_and(Result::is_err);
            assert_eq!(is_reported, recover(&damaged, &mut |_| Ok(())).is_err(), "{context}");

            let repaired = repair(&damaged).unwrap();
            assert_eq!(reopened(&damaged, &context), repaired.last, "{context}");
            assert!(repaired.last < 30, "{context}");
        }
    }
}

#[test]
fn a_missing_segment_is_named_and_a_damaged_image_has_a_substitute() {
    let memory = Memory::default();
    let mut acknowledged = Acknowledged::default();
    for seed in 0..20 {
        run(&memory, seed, true, &mut acknowledged);
        if seed >= 3 && segments(&memory).len() >= 3 {
            break;
        }
    }
    let images: Vec<String> =
        memory.list().unwrap().into_iter().filter(|name| name.ends_with(".image")).collect();
    assert_eq!(images.len(), 2, "{images:?}");
    let damaged = memory.after_process_crash();
    damaged.flip(&images[1], 40);
    let (recovered, _) = recover(&damaged, &mut |_| Ok(())).unwrap();
    assert_eq!(recovered.damaged_images, images[1..]);
    assert_eq!(recovered.last, acknowledged.written);
    damaged.flip(&images[0], 40);
    let error = recover(&damaged, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { offset: 0, .. }), "{error}");

    let segments = segments(&memory);
    assert!(segments.len() >= 3, "{segments:?}");
    let gap = memory.after_process_crash();
    gap.flip(&images[1], 40);
    gap.remove(&segments[1]).unwrap();
    let error = recover(&gap, &mut |_| Ok(())).unwrap_err();
    assert!(
        matches!(&error, OpenError::Missing { file, .. } if *file == segments[2]),
        "{error} {segments:?}"
    );
    repair(&gap).unwrap();
    reopened(&gap, "repaired");
}

#[test]
fn other_versions_are_refused() {
    let memory = Memory::default();
    run(&memory, 1, true, &mut Acknowledged::default());
    let name = memory.list().unwrap().into_iter().rfind(|name| name.ends_with(".journal")).unwrap();
    let mut bytes = memory.read(&name).unwrap();
    bytes[8] = 9;
    let checksum = crc32fast::hash(&bytes[..20]).to_le_bytes();
    bytes[20..24].copy_from_slice(&checksum);
    memory.remove(&name).unwrap();
    memory.create(&name).unwrap().write(&bytes).unwrap();
    let error = recover(&memory, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, OpenError::Version { version: 9, .. }), "{error}");
    assert!(matches!(repair(&memory), Err(OpenError::Version { .. })));
}
