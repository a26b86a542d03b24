//! The live journal: threads, real files, and what can go wrong with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tokio::time::timeout;

use super::memory::Memory;
use crate::{DiskStorage, Entry, Journal, OpenError, Options, StorageError, Sync};

const PATIENCE: Duration = Duration::from_secs(30);

fn options(sync: Sync) -> Options {
    Options { sync, sync_interval: Duration::from_millis(5), segment_bytes: 4096 }
}

/// A number and what is stored under it.
type Stored = (u64, Vec<u8>);

/// The image and all records that a journal holds.
fn content(path: &std::path::Path) -> (Option<Stored>, Vec<Stored>) {
    let (mut image, mut records) = (None, Vec::new());
    let storage = DiskStorage::open(path).unwrap();
    let visit = |entry: Entry<'_>| {
        match entry {
            Entry::Image { number, bytes } => image = Some((number, bytes.to_vec())),
            Entry::Record { number, bytes } => records.push((number, bytes.to_vec())),
        }
        Ok(())
    };
    Journal::open(storage, Options::default(), visit).unwrap().0.close().unwrap();
    (image, records)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_many_tasks_are_committed_and_found_again() {
    for sync in [Sync::Write, Sync::Always] {
        let directory = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(&directory.path().join("journal")).unwrap();
        let (journal, recovered) = Journal::open(storage, options(sync), |_| Ok(())).unwrap();
        assert_eq!(recovered.last, 0);
        let journal = std::sync::Arc::new(journal);
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let journal = journal.clone();
                tokio::spawn(async move {
                    for turn in 0..200 {
                        let payload = format!("{task} {turn}");
                        let number = journal.append(payload.as_bytes()).unwrap();
                        timeout(PATIENCE, journal.wait_for(number)).await.unwrap().unwrap();
                        let status = journal.status();
                        assert!(status.committed >= number);
                        assert!(sync == Sync::Write || status.durable >= number);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let half = 800;
        let imaging = journal.clone();
        tokio::task::spawn_blocking(move || imaging.store_image(half, &[b"half"]).unwrap())
            .await
            .unwrap();
        let status = journal.status();
        assert_eq!((status.committed, status.image, status.image_bytes), (1_600, half, 4));
        assert!(status.durable >= half);
        journal.close().unwrap();

        let (image, records) = content(&directory.path().join("journal"));
        assert_eq!(image, Some((half, b"half".to_vec())));
        assert_eq!(records.len(), 800);
        assert!(records.iter().map(|record| record.0).eq(half + 1..=1_600));
    }
}

#[test]
fn a_second_process_is_refused_and_a_third_may_follow() {
    let directory = tempfile::tempdir().unwrap();
    let first = DiskStorage::open(&directory.path().join("journal")).unwrap();
    let second = DiskStorage::open(&directory.path().join("journal")).unwrap_err();
    assert!(matches!(second, StorageError::InUse { .. }), "{second}");
    assert!(second.to_string().contains("another process uses this journal"), "{second}");
    drop(first);
    DiskStorage::open(&directory.path().join("journal")).unwrap();
}

#[test]
fn images_keep_the_journal_small() {
    let directory = tempfile::tempdir().unwrap();
    let storage = DiskStorage::open(&directory.path().join("journal")).unwrap();
    let (journal, _) = Journal::open(storage, options(Sync::Write), |_| Ok(())).unwrap();
    for _ in 0..20 {
        let last = (0..100).fold(0, |_, _| journal.append(&[7; 100]).unwrap());
        journal.store_image(last, &[b"state"]).unwrap();
    }
    journal.close().unwrap();
    let bytes: u64 = fs::read_dir(directory.path().join("journal"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 60_000, "{bytes} bytes of 250,000 are left");
    let (image, records) = content(&directory.path().join("journal"));
    assert_eq!(image, Some((2_000, b"state".to_vec())));
    assert_eq!(records, []);
}

#[test]
fn a_journal_is_shown_from_its_oldest_state_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let storage = DiskStorage::open(&path).unwrap();
    let (journal, _) = Journal::open(storage, options(Sync::Write), |_| Ok(())).unwrap();
    let shown = || {
        let (mut images, mut records) = (Vec::new(), Vec::new());
        let found = crate::show_all(&DiskStorage::look(&path).unwrap(), |entry| {
            match entry {
                Entry::Image { number, .. } => images.push(number),
                Entry::Record { number, .. } => records.push(number),
            }
            Ok(())
        });
        found.map(|found| (found.last, images, records))
    };
    let append = |count: u64| (0..count).fold(0, |_, _| journal.append(&[7; 100]).unwrap());
    for last in [100, 200] {
        append(100);
        journal.store_image(last, &[b"state"]).unwrap();
    }
    append(50);
    journal.sync(250).unwrap();
    // The older of two images, and all behind it.
    assert_eq!(shown().unwrap(), (250, vec![100], (101..=250).collect()));
    fs::write(path.join(crate::image_name(100)), b"damaged").unwrap();
    let (last, images, records) = shown().unwrap();
    assert_eq!((last, images, records.first()), (250, vec![200], Some(&201)));
    journal.close().unwrap();

    let path = directory.path().join("small");
    let storage = DiskStorage::open(&path).unwrap();
    let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(())).unwrap();
    let last = (0..9).fold(0, |_, _| journal.append(b"record").unwrap());
    journal.store_image(last, &[b"state"]).unwrap();
    journal.close().unwrap();
    let mut records = Vec::new();
    crate::show_all(&DiskStorage::look(&path).unwrap(), |entry| {
        records.extend(match entry {
            Entry::Record { number, .. } => Some(number),
            Entry::Image { .. } => None,
        });
        Ok(())
    })
    .unwrap();
    assert!(records.iter().copied().eq(1..=9), "no image is needed: {records:?}");
}

/// Whatever operation fails first, no later record is acknowledged, and every waiting writer receives the error.
#[tokio::test]
async fn a_failing_disk_ends_the_journal_and_nothing_is_tried_again() {
    for sync in [Sync::Write, Sync::Always] {
        for operations in 4..24 {
            let memory = Memory::default();
            memory.fail_after(operations);
            let opened = Journal::open(memory.clone(), options(sync), |_| Ok(()));
            let Ok((journal, _)) = opened else { continue };
            let mut acknowledged = 0;
            let failed = loop {
                let number = match journal.append(b"record") {
                    Ok(number) => number,
                    Err(failed) => break failed,
                };
                match timeout(PATIENCE, journal.wait_for(number)).await.unwrap() {
                    Ok(()) => acknowledged = number,
                    Err(failed) => break failed,
                }
                assert!(number < 100_000, "the failure is not noticed");
            };
            let text = failed.to_string();
            assert!(text.starts_with("the journal failed: memory: cannot "), "{text}");
            assert_eq!(journal.append(b"more").unwrap_err().to_string(), failed.to_string());
            assert!(journal.store_image(1, &[b""]).is_err());
            let made = memory.operations();
            assert!(journal.close().is_err());
            assert!(memory.operations() <= made + 1, "a sync under way, and nothing after it");
            let left = memory.after_process_crash();
            let mut last = 0;
            let visit = |entry: Entry<'_>| {
                if let Entry::Record { number, .. } = entry {
                    last = number;
                }
                Ok(())
            };
            Journal::open(left, Options::default(), visit).unwrap();
            assert!(last >= acknowledged, "{last} {acknowledged}");
        }
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DiskStorage::open(&file).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}: cannot make the directory", file.display())),
        "{error}"
    );
    let below = file.join("below");
    assert!(DiskStorage::open(&below).is_err());
    // Root may write everywhere, so the mode of a directory is tried as somebody else only.
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(closed.join("probe"), "").is_err() {
        let error = DiskStorage::open(&closed).unwrap_err().to_string();
        assert!(error.contains("closed/lock: cannot open: Permission denied"), "{error}");
    }
}

/// What [`Journal::read`] shows: whether there was an image, and the numbers of the records.
fn shown(journal: &Journal) -> (u64, Vec<u64>) {
    let (mut image, mut records) = (0, Vec::new());
    let last = journal
        .read(|entry| {
            match entry {
                Entry::Image { number, .. } => image = number,
                Entry::Record { number, .. } => records.push(number),
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(last, records.last().copied().unwrap_or(image));
    (image, records)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_journal_is_read_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let storage = DiskStorage::open(&directory.path().join("journal")).unwrap();
    let (journal, _) = Journal::open(storage, options(Sync::Write), |_| Ok(())).unwrap();
    let mut last = 0;
    let mut append = |count: u32| {
        for _ in 0..count {
            last = journal.append(&[7; 100]).unwrap();
        }
        last
    };
    let first = append(200);
    timeout(PATIENCE, journal.wait_for(first)).await.unwrap().unwrap();
    assert_eq!(shown(&journal), (0, (1..=200).collect()));
    assert_eq!(journal.status().tail_bytes, 200 * 124);
    journal.store_image(200, &[b"state"]).unwrap();
    assert_eq!(journal.status().tail_bytes, 0);

    let second = append(50);
    timeout(PATIENCE, journal.wait_for(second)).await.unwrap().unwrap();
    assert_eq!(shown(&journal), (200, (201..=250).collect()));
    // Records that come while the image is made are behind it.
    let third = append(50);
    journal.store_image(250, &[b"state"]).unwrap();
    timeout(PATIENCE, journal.wait_for(third)).await.unwrap().unwrap();
    assert_eq!(journal.status().tail_bytes, 50 * 124);
    assert_eq!(shown(&journal), (250, (251..=300).collect()));
    journal.close().unwrap();
}

#[test]
fn a_journal_is_set_aside_under_a_name_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cm.journal");
    assert_eq!(DiskStorage::set_aside(&path).unwrap(), None, "there is none");
    DiskStorage::open(&path).unwrap();
    assert_eq!(DiskStorage::set_aside(&path).unwrap(), None, "it is empty");
    for aside in ["cm.journal.old", "cm.journal.old.2"] {
        let storage = DiskStorage::open(&path).unwrap();
        let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(())).unwrap();
        assert!(matches!(DiskStorage::set_aside(&path), Err(StorageError::InUse { .. })));
        journal.append(b"one").unwrap();
        journal.close().unwrap();
        drop(journal);
        let expected = directory.path().join(aside);
        assert_eq!(DiskStorage::set_aside(&path).unwrap(), Some(expected.clone()));
        assert_eq!(content(&expected).1.len(), 1);
    }
}

#[tokio::test]
async fn a_copy_gets_every_record_while_the_journal_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let storage = DiskStorage::open(&path).unwrap();
    let (journal, _) = Journal::open(storage, options(Sync::Write), |_| Ok(())).unwrap();
    let journal = std::sync::Arc::new(journal);
    for number in 1..=100_u64 {
        journal.append(&number.to_le_bytes()).unwrap();
    }
    journal.sync(50).unwrap();
    journal.store_image(50, &[b"fifty"]).unwrap();
    let writing = journal.clone();
    let writer = std::thread::spawn(move || {
        for number in 101..=2000_u64 {
            writing.append(&number.to_le_bytes()).unwrap();
        }
    });
    let mut tap = journal.tap(1 << 20);
    let (mut image, mut copied) = (None, Vec::new());
    let read = journal
        .read(|entry| {
            match entry {
                Entry::Image { number, bytes } => image = Some((number, bytes.to_vec())),
                Entry::Record { bytes, .. } => copied.push(bytes.to_vec()),
            }
            Ok(())
        })
        .unwrap();
    writer.join().unwrap();
    let mut last = read;
    while last < 2000 {
        let tapped = tap.next().await.unwrap();
        for record in crate::records(&tapped.bytes) {
            let (number, bytes) = record.unwrap();
            if number > last {
                assert_eq!(number, last + 1);
                copied.push(bytes.to_vec());
                last = number;
            }
        }
        assert_eq!(last, tapped.last.max(read));
    }
    // The copy is a journal of its own, with the same numbers.
    let (number, bytes) = image.unwrap();
    let copy = directory.path().join("copy");
    let storage = DiskStorage::open(&copy).unwrap();
    crate::seed(&storage, number, &bytes).unwrap();
    let (journal, recovered) = Journal::open(storage, options(Sync::Write), |_| Ok(())).unwrap();
    assert_eq!((recovered.image, recovered.last), (50, 50));
    for record in &copied {
        journal.append(record).unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    let (stored, records) = content(&copy);
    assert_eq!(stored, Some((50, b"fifty".to_vec())));
    let expected: Vec<_> =
        (51..=2000_u64).map(|number| (number, number.to_le_bytes().to_vec())).collect();
    assert_eq!(records, expected);
}

#[test]
fn the_marker_is_beside_the_directory_and_goes_with_it() {
    let directory = tempfile::tempdir().unwrap();
    // With a slash at the end, as configurations have it.
    let path = directory.path().join("journal").join("");
    let begin = || {
        let storage = DiskStorage::open(&path).unwrap();
        let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(())).unwrap();
        journal.append(b"one").unwrap();
        journal.close().unwrap();
    };
    let left = || {
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        names
    };
    begin();
    assert_eq!(left(), ["journal", "journal.marker"]);
    fs::remove_dir_all(&path).unwrap();
    let look = DiskStorage::look(&path).unwrap();
    let shown = crate::show(&look, |_| Ok(())).unwrap_err();
    assert!(matches!(shown, OpenError::Lost { durable: 1, last: 0 }), "{shown}");
    assert_eq!(DiskStorage::set_aside(&path).unwrap(), Some(directory.path().join("journal.old")));
    assert_eq!(left(), ["journal.old.marker"], "the evidence is kept");
    begin();
    assert_eq!(content(&path).1.len(), 1);
    DiskStorage::remove_all(&path).unwrap();
    assert_eq!(left(), ["journal.old.marker"]);

    // Where nothing may be written beside it, it is inside. Root may write everywhere.
    let parent = directory.path().join("closed");
    let path = parent.join("journal");
    fs::create_dir_all(&path).unwrap();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(parent.join("probe"), "").is_err() {
        let storage = DiskStorage::open(&path).unwrap();
        let (journal, _) = Journal::open(storage, Options::default(), |_| Ok(())).unwrap();
        journal.append(b"one").unwrap();
        journal.close().unwrap();
        drop(journal);
        assert!(path.join("marker").is_file());
        fs::remove_file(path.join("00000000000000000001.journal")).unwrap();
        let opened = DiskStorage::open(&path).unwrap();
        let refused = Journal::open(opened, Options::default(), |_| Ok(())).unwrap_err();
        assert!(matches!(refused, OpenError::Lost { .. }), "{refused}");
    }
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o700)).unwrap();
}
