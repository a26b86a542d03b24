//! A subscription to records as they are committed, for a copy on another machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

/// Pieces that may wait, whatever their size.
const MAX_BATCHES: usize = 1 << 20;

/// Records that were committed together.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// The number of the last one.
    pub last: u64,
    /// The records as [`records`](super::records) reads them.
    pub bytes: Arc<[u8]>,
}

/// Receives all records that are committed after it was made.
#[derive(Debug)]
pub struct Tap {
    received: mpsc::Receiver<Tapped>,
    waiting: Arc<Waiting>,
}

/// The bytes that were not taken yet.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    is_lost: AtomicBool,
    /// Wakes the task that waits for the loss.
    lost: Notify,
}

/// The end of a tap at the journal.
#[derive(Debug)]
pub(crate) struct Feed {
    sender: mpsc::Sender<Tapped>,
    waiting: Arc<Waiting>,
    max_bytes: usize,
}

/// A tap that may fall behind by so many bytes, and the end to feed it.
pub(crate) fn tap(max_bytes: usize) -> (Feed, Tap) {
    let (sender, received) = mpsc::channel(MAX_BATCHES);
    let waiting = Arc::new(Waiting::default());
    (Feed { sender, waiting: waiting.clone(), max_bytes }, Tap { received, waiting })
}

impl Feed {
    /// Sends records to the tap. Returns whether it is still connected and complete.
    pub(crate) fn send(&self, tapped: &Tapped) -> bool {
        let size = tapped.bytes.len();
        let waits = self.waiting.bytes.fetch_add(size, Ordering::AcqRel);
        // One piece is always taken, however large.
        let fits = waits == 0 || waits + size <= self.max_bytes;
        if fits && self.sender.try_send(tapped.clone()).is_ok() {
            return true;
        }
        self.waiting.is_lost.store(true, Ordering::Release);
        self.waiting.lost.notify_one();
        false
    }
}

impl Tap {
    /// The next records. `None` if the journal has ended, or the tap fell too far behind.
    pub async fn next(&mut self) -> Option<Tapped> {
        let tapped = self.received.recv().await?;
        if self.is_lost() {
            // A record is missing after the queued ones; sending those is useless.
            return None;
        }
        self.waiting.bytes.fetch_sub(tapped.bytes.len(), Ordering::AcqRel);
        Some(tapped)
    }

    /// Whether the tap has fallen too far behind.
    pub fn is_lost(&self) -> bool {
        self.waiting.is_lost.load(Ordering::Acquire)
    }

    /// Waits until the tap has fallen too far behind: [`Tap::next`] gives nothing more then.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let waiting = self.waiting.clone();
        async move {
            while !waiting.is_lost.load(Ordering::Acquire) {
                waiting.lost.notified().await;
            }
        }
    }

    /// Bytes that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.bytes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tapped(last: u64, size: usize) -> Tapped {
        Tapped { last, bytes: vec![0; size].into() }
    }

    #[tokio::test]
    async fn a_tap_that_falls_behind_ends() {
        let (feed, mut tap) = tap(100);
        assert!(feed.send(&tapped(1, 500)), "one is always taken");
        assert_eq!(tap.next().await.unwrap().last, 1);
        assert!(feed.send(&tapped(2, 60)) && feed.send(&tapped(3, 40)));
        assert_eq!(tap.waiting_bytes(), 100);
        let lost = tokio::spawn(tap.lost());
        assert!(!feed.send(&tapped(4, 1)));
        lost.await.unwrap();
        drop(feed);
        assert!(tap.next().await.is_none());
    }

    #[tokio::test]
    async fn a_tap_that_is_dropped_is_not_fed() {
        let (feed, tap) = tap(100);
        drop(tap);
        assert!(!feed.send(&tapped(1, 1)));
    }
}
