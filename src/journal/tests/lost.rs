//! Files that are lost or damaged are refused and left as they are, however idle the journal was; a torn
//! tail is cut off and kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::crash::segments;
use super::memory::Memory;
use crate::log::Log;
use crate::marker::{MARKER, Marker};
use crate::recovery::recover;
use crate::{Journal, OpenError, Options, Recovered, Storage, Sync, check, repair};

const PATIENCE: Duration = Duration::from_secs(60);
const FIRST: &str = "00000000000000000001.journal";

/// Opens a journal as its owner does.
fn open(memory: &Memory) -> Result<Recovered, OpenError> {
    Log::open(Arc::new(memory.clone()), 1 << 20, &mut |_| Ok(())).map(|(_, recovered)| recovered)
}

/// Every file with its bytes.
fn files(memory: &Memory) -> Vec<(String, Vec<u8>)> {
    let named = |name: String| (name.clone(), memory.read(&name).unwrap());
    memory.list().unwrap().into_iter().map(named).collect()
}

/// The files of a killed journal of 60 records of this text that was idle before. With the records that its
/// image has, if any.
fn idle(sync: Sync, text: &str, image: Option<u64>) -> Memory {
    let memory = Memory::default();
    let sync_interval = Duration::from_millis(1);
    let options = Options { sync, sync_interval, segment_bytes: 500 };
    let (journal, _) = Journal::open(memory.clone(), options, |_| Ok(())).unwrap();
    for number in 1..=60_u64 {
        journal.append(format!("{text} {number}").as_bytes()).unwrap();
        if number.is_multiple_of(20) {
            journal.sync(number).unwrap();
        }
        if image == Some(number) {
            journal.store_image(number, &[b"state"]).unwrap();
        }
    }
    let started = Instant::now();
    while Marker::read(&memory).unwrap().is_none_or(|marker| marker.number < 60) {
        assert!(started.elapsed() < PATIENCE, "an idle journal is not marked");
        std::thread::sleep(Duration::from_millis(1));
    }
    memory.after_process_crash()
}

#[test]
fn every_flipped_bit_of_the_last_burst_is_refused() {
    for sync in [Sync::Write, Sync::Always] {
        let whole = idle(sync, "record", None);
        let last = segments(&whole).pop().unwrap();
        for bit in 0..whole.read(&last).unwrap().len() * 8 {
            let memory = whole.after_process_crash();
            memory.damage(&last, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let before = files(&memory);
            let opened = open(&memory);
            assert!(
                matches!(&opened, Err(OpenError::Damaged { file, .. }) if *file == last),
                "{sync:?}, bit {bit}: {opened:?}"
            );
            assert_eq!(files(&memory), before, "{sync:?}, bit {bit}: the evidence is kept");
        }
    }
}

#[test]
fn a_file_that_was_cut_short_is_refused() {
    let whole = idle(Sync::Write, "record", None);
    let last = segments(&whole).pop().unwrap();
    for length in 0..whole.read(&last).unwrap().len() {
        let memory = whole.after_process_crash();
        memory.truncate(&last, length as u64).unwrap();
        let opened = open(&memory);
        assert!(
            matches!(opened, Err(OpenError::Lost { durable: 60, .. } | OpenError::Damaged { .. })),
            "length {length}: {opened:?}"
        );
    }
}

type Harm = Box<dyn Fn(&Memory)>;

fn remove(names: &[String]) -> Harm {
    let names = names.to_vec();
    Box::new(move |memory| names.iter().for_each(|name| memory.remove(name).unwrap()))
}

fn replace(name: &str, content: &'static [u8]) -> Harm {
    let name = name.to_owned();
    Box::new(move |memory| memory.damage(&name, |bytes| *bytes = content.to_vec()))
}

/// What is wrong with a journal, and a word of the refusal; none if it is opened.
fn refusals(whole: &Memory) -> Vec<(&'static str, Harm, Option<&'static str>)> {
    let files = segments(whole);
    let (first, middle, last) = (&files[..1], &files[1..2], &files[files.len() - 1..]);
    assert!(files.len() >= 3 && first[0] == FIRST, "{files:?}");
    let foreign = Marker { number: 20, checksum: 1 };
    vec![
        ("nothing", Box::new(|_| {}), None),
        ("no first segment", remove(first), Some("record 1 is in no file")),
        ("no middle segment", remove(middle), Some("is in no file")),
        ("no last segment", remove(last), Some("lost: ")),
        ("no segment", remove(&files), Some("lost: ")),
        ("an empty first segment", replace(FIRST, b""), Some("not whole")),
        ("a first segment of garbage", replace(FIRST, &[7; 2000]), Some("not whole")),
        ("an empty last segment", replace(&last[0], b""), Some("not whole")),
        ("a last segment of garbage", replace(&last[0], &[7; 2000]), Some("not whole")),
        ("a last segment of zeros", replace(&last[0], &[0; 2000]), Some("not whole")),
        ("no marker", remove(&[MARKER.to_owned()]), None),
        ("a damaged marker", replace(MARKER, b"garbage"), None),
        (
            "the marker of another journal",
            Box::new(move |memory| foreign.write(memory, true).unwrap()),
            Some("different journals"),
        ),
    ]
}

#[test]
fn lost_and_damaged_journals_are_refused_kept_and_repaired() {
    let whole = idle(Sync::Write, "record", None);
    for (harm, inflict, refusal) in refusals(&whole) {
        let memory = whole.after_process_crash();
        inflict(&memory);
        let before = files(&memory);
        let checked = check(&memory).unwrap().outcome.unwrap();
        match (open(&memory), refusal) {
            (Ok(recovered), None) => {
                assert_eq!((recovered.last, checked.unwrap().last), (60, 60), "{harm}");
                assert_eq!(Marker::read(&memory).unwrap().unwrap().number, 60, "{harm}");
            }
            (Err(error), Some(refusal)) => {
                let text = error.to_string();
                assert!(text.contains(refusal), "{harm}: {text}");
                assert_eq!(checked.unwrap_err().to_string(), text, "{harm}");
                assert_eq!(files(&memory), before, "{harm}: the evidence is kept");
                // An operator may go on with what is left, if it is a beginning.
                if let Ok(repaired) = repair(&memory) {
                    assert_eq!(open(&memory).unwrap().last, repaired.last, "{harm}");
                    assert!(!repaired.set_aside.is_empty(), "{harm}");
                }
            }
            (opened, _) => panic!("{harm}: {opened:?}, expected {refusal:?}"),
        }
    }
}

/// Every cluster is in this state until its first image.
#[test]
fn a_journal_of_one_segment_that_is_gone_is_not_a_first_start() {
    let memory = Memory::default();
    let (journal, _) = Journal::open(memory.clone(), Options::default(), |_| Ok(())).unwrap();
    // A start that failed before its first record leaves nothing to miss.
    assert_eq!(Marker::read(&memory).unwrap(), None);
    let number = journal.append(b"the first record").unwrap();
    journal.sync(number).unwrap();
    journal.close().unwrap();
    for harm in [remove(&[FIRST.to_owned()]), replace(FIRST, b""), replace(FIRST, b"garbage")] {
        let lost = memory.after_process_crash();
        harm(&lost);
        let before = files(&lost);
        let opened = open(&lost);
        let is_refused = matches!(opened, Err(OpenError::Lost { .. } | OpenError::Damaged { .. }));
        assert!(is_refused, "{opened:?}");
        assert_eq!(files(&lost), before, "nothing is written over");
        assert_eq!(repair(&lost).unwrap().last, 0);
        assert_eq!(open(&lost).unwrap().last, 0);
    }
}

#[test]
fn an_image_stands_for_segments_and_a_lost_image_is_missed() {
    let whole = idle(Sync::Write, "record", Some(60));
    let files = segments(&whole);
    let memory = whole.after_process_crash();
    remove(&files)(&memory);
    assert_eq!(open(&memory).unwrap().last, 60);
    let memory = whole.after_process_crash();
    let image = crate::image_name(60);
    remove(&[image])(&memory);
    // The segments are there until a second image is.
    assert_eq!(open(&memory).unwrap().last, 60);
    let memory = whole.after_process_crash();
    remove(&[files, vec![crate::image_name(60)]].concat())(&memory);
    assert!(matches!(open(&memory), Err(OpenError::Lost { durable: 60, last: 0 })));
}

#[test]
fn a_directory_of_an_earlier_version_is_read_and_gets_a_marker() {
    let memory = idle(Sync::Write, "record", None);
    remove(&[MARKER.to_owned()])(&memory);
    for harm in [replace(FIRST, &[7; 2000]), replace(FIRST, &[0; 200])] {
        let damaged = memory.after_process_crash();
        segments(&damaged)[1..].iter().for_each(|name| damaged.remove(name).unwrap());
        harm(&damaged);
        // More than a header was written, so it was whole once.
        assert!(matches!(open(&damaged), Err(OpenError::Damaged { offset: 0, .. })));
    }
    assert_eq!(open(&memory).unwrap().last, 60);
    let marker = Marker::read(&memory).unwrap().unwrap();
    assert!(marker.number == 60 && marker.checksum != 0, "{marker:?}");
}

#[test]
fn torn_tails_are_cut_off_and_the_last_ones_are_kept() {
    let memory = idle(Sync::Write, "record", None);
    let last = segments(&memory).pop().unwrap();
    let length = memory.read(&last).unwrap().len();
    for turn in 0..20_u8 {
        memory.damage(&last, |bytes| bytes.extend([turn; 10]));
        assert_eq!(open(&memory).unwrap().torn_bytes, 10, "turn {turn}");
        assert_eq!(memory.read(&last).unwrap().len(), length);
        let kept = files(&memory).into_iter().filter(|(name, _)| name.ends_with(".torn"));
        let kept: Vec<Vec<u8>> = kept.map(|(_, bytes)| bytes).collect();
        assert!(kept.contains(&vec![turn; 10]) && kept.len() <= 8, "turn {turn}: {kept:?}");
    }
    let (recovered, _) = recover(&memory, &mut |_| Ok(())).unwrap();
    assert_eq!((recovered.last, recovered.torn_bytes), (60, 0));
}
