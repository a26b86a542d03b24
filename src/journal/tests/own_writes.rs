//! Records that the thread which appends them writes itself.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::memory::Memory;
use crate::marker::Marker;
use crate::testing::Faults;
use crate::{Entry, Journal, Options, Sync};

const PATIENCE: Duration = Duration::from_secs(30);
const JOURNAL_THREAD: &str = "journal-write";

/// Memory whose writes are noted, and can be held.
#[derive(Clone, Default)]
struct Observed {
    memory: Memory,
    faults: Faults,
}

impl Observed {
    fn open(&self, sync: Sync, segment_bytes: u64) -> Journal {
        let options = Options { sync, segment_bytes, ..Options::default() };
        let storage = || self.faults.on(self.memory.clone());
        let open = || Journal::open_on(storage(), options, |_| Ok(())).unwrap().0;
        drop(open());
        // It has its marker, so the next record is not the first one.
        Marker::default().write(&self.memory, true).unwrap();
        let journal = open();
        self.faults.take_writers();
        journal
    }
}

fn here() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

async fn committed(journal: &Journal, number: u64) {
    tokio::time::timeout(PATIENCE, journal.wait_for(number)).await.unwrap().unwrap();
}

/// The numbers of all records.
fn records(memory: &Memory) -> Vec<u64> {
    let mut numbers = Vec::new();
    let visit = |entry: Entry<'_>| {
        if let Entry::Record { number, .. } = entry {
            numbers.push(number);
        }
        Ok(())
    };
    Journal::open(memory.after_process_crash(), Options::default(), visit).unwrap();
    numbers
}

#[test]
fn a_record_is_committed_when_the_thread_that_appended_it_has_written_it() {
    let storage = Observed::default();
    let journal = storage.open(Sync::Write, 1 << 20);
    let first = journal.append_unwritten(b"first").unwrap();
    let second = journal.append_unwritten(b"second").unwrap();
    assert_eq!(journal.status().committed, 0);
    journal.write_appended();
    assert_eq!((first, second, journal.status().committed), (1, 2, 2));
    assert_eq!(storage.faults.take_writers(), [here()], "both with one write");
    assert_eq!(records(&storage.memory), [1, 2], "a crash of the process does not lose them");
    journal.write_appended();
    assert_eq!(storage.faults.take_writers(), [""; 0], "nothing was left to write");
}

#[tokio::test]
async fn long_writes_are_left_to_the_thread_of_the_journal() {
    let storage = Observed::default();
    let journal = storage.open(Sync::Write, 200_000);
    let write = async |bytes: usize| {
        let number = journal.append_unwritten(&vec![7; bytes]).unwrap();
        journal.write_appended();
        committed(&journal, number).await;
        storage.faults.take_writers()
    };
    // A busy machine can make any write slow, and then the thread of the journal does the next.
    let write_own = async || {
        let mut attempts = 0..1000;
        while write(1).await != [here()] {
            assert!(attempts.next().is_some());
        }
    };
    write_own().await;
    assert_eq!(write(100_000).await, [JOURNAL_THREAD], "many bytes");
    write_own().await;
    for _ in 0..2 {
        write(60_000).await;
    }
    assert_eq!(write(1).await, [JOURNAL_THREAD; 2], "the header of a new segment, and the record");
    write_own().await;
    storage.faults.pause(Duration::from_millis(5));
    write(1).await;
    assert_eq!(write(1).await, [JOURNAL_THREAD], "the disk was slow the last time");
    storage.faults.pause(Duration::ZERO);
    assert_eq!(write(1).await, [JOURNAL_THREAD]);
    write_own().await;

    let storage = Observed::default();
    let journal = storage.open(Sync::Always, 200_000);
    let number = journal.append_unwritten(b"waits for the disk").unwrap();
    journal.write_appended();
    committed(&journal, number).await;
    assert_eq!(storage.faults.take_writers(), [JOURNAL_THREAD]);
}

/// One thread waits for a disk that accepts nothing. The others continue, and their records are written by
/// the thread of the journal as soon as the disk is back.
#[tokio::test]
async fn a_blocked_disk_blocks_one_caller() {
    let storage = Observed::default();
    let journal = Arc::new(storage.open(Sync::Write, 1 << 20));
    storage.faults.hold(true);
    let (ended, end) = mpsc::sync_channel(1);
    let blocked = journal.clone();
    thread::spawn(move || {
        blocked.append_unwritten(b"blocked").unwrap();
        blocked.write_appended();
        ended.send(()).unwrap();
    });
    storage.faults.wait_for_write();
    for number in 2..100 {
        assert_eq!(journal.append_unwritten(b"innocent").unwrap(), number);
        journal.write_appended();
    }
    assert_eq!(journal.status().committed, 0);
    assert!(end.try_recv().is_err());
    storage.faults.hold(false);
    committed(&journal, 99).await;
    end.recv_timeout(PATIENCE).unwrap();
    assert_eq!(records(&storage.memory), (1..100).collect::<Vec<_>>());
}

#[tokio::test]
async fn threads_that_write_together_lose_and_swap_nothing() {
    let storage = Observed::default();
    let journal = Arc::new(storage.open(Sync::Write, 4096));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let journal = journal.clone();
            thread::spawn(move || {
                for turn in 0..500 {
                    if (turn + thread) % 3 == 0 {
                        journal.append(b"for the thread of the journal").unwrap();
                    } else {
                        journal.append_unwritten(b"for this thread").unwrap();
                        journal.write_appended();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // Nobody appends any more: what is left is written without another call.
    committed(&journal, 2_000).await;
    // Which thread wrote a record depends on their turns; other tests decide that.
    assert_eq!(records(&storage.memory), (1..=2_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_failure_of_a_thread_that_appends_ends_the_journal() {
    let storage = Observed::default();
    let journal = storage.open(Sync::Write, 1 << 20);
    storage.memory.fail_after(0);
    let number = journal.append_unwritten(b"lost").unwrap();
    journal.write_appended();
    let failed = tokio::time::timeout(PATIENCE, journal.failed()).await.unwrap().to_string();
    assert_eq!(failed, "the journal failed: memory: cannot write: no");
    assert_eq!(journal.wait_for(number).await.unwrap_err().to_string(), failed);
    assert_eq!(journal.append_unwritten(b"more").unwrap_err().to_string(), failed);
    journal.write_appended();
    assert_eq!(storage.faults.take_writers(), [here()], "it is not tried again");
    assert!(journal.close().is_err());
}

#[test]
fn a_closed_journal_has_what_was_appended_and_writes_no_more() {
    let storage = Observed::default();
    let journal = storage.open(Sync::Write, 1 << 20);
    journal.append_unwritten(b"before").unwrap();
    journal.close().unwrap();
    assert_eq!(records(&storage.memory), [1]);
    storage.faults.take_writers();
    journal.append_unwritten(b"after").unwrap();
    journal.write_appended();
    assert_eq!(storage.faults.take_writers(), [""; 0]);
    assert_eq!(records(&storage.memory), [1]);
}
