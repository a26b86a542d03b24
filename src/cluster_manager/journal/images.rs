//! Images of the state, made beside the live engine: a thread of its own reads the last image and the
//! records behind it from the files, as a start would, and stores what comes out. Its engine lives as
//! long as that takes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::follower::Reader;
use crate::hash_seed;
use corona_journal::Journal;
use corona_process::panics::{Panic, blocking};

/// How often it is looked whether an image is due.
const LOOK: Duration = Duration::from_millis(500);
/// A disk that accepts nothing for so long is reported in the log.
const STALL: Duration = Duration::from_secs(1);
/// After a failure, the next attempt is so much later.
const AFTER_FAILURE: Duration = Duration::from_secs(60);
/// How much less urgent the thread is than those that serve.
const NICE: i32 = 10;

/// What is known of the images that this process makes.
#[derive(Debug, Default)]
pub(crate) struct Images(Mutex<KnownImage>);

#[derive(Clone, Debug, Default)]
struct KnownImage {
    /// How long the making of the last one took.
    took: Option<Duration>,
    /// Why the last attempt has failed.
    failure: Option<String>,
}

impl Images {
    /// How long the making of the last image took.
    pub(super) fn took(&self) -> Option<Duration> {
        self.known().took
    }

    /// Why the last attempt has failed, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        self.known().failure.clone()
    }

    fn note(&self, outcome: Result<Duration, String>) {
        let mut known = self.known();
        match outcome {
            Ok(took) => *known = KnownImage { took: Some(took), failure: None },
            Err(failure) => known.failure = Some(failure),
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownImage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes an image whenever the records behind the last one have `image_bytes`, until `stop` becomes
/// true.
pub(crate) async fn make_images(
    journal: &Arc<Journal>,
    images: &Images,
    image_bytes: u64,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = LOOK;
    let mut stalled = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = LOOK;
        let status = journal.status();
        log_stall(stalled, status.stalled);
        stalled = status.stalled;
        if status.tail_bytes < image_bytes {
            continue;
        }
        let making = journal.clone();
        let outcome = blocking(move || on_a_thread(&making)).await;
        if let Err(failure) = &outcome {
            tracing::error!("No image of the journal could be made: {failure}");
            pause = AFTER_FAILURE;
        }
        images.note(outcome);
    }
}

/// Logs that the disk has stopped accepting records, and that it accepts them again. The arguments are for
/// how long it had accepted none at the previous check, and now.
fn log_stall(before: Duration, now: Duration) {
    if before < STALL && now >= STALL {
        tracing::warn!(
            "The disk has accepted no record of the journal for {} ms; replies and notifications wait",
            now.as_millis()
        );
    } else if before >= STALL && now < before {
        tracing::info!("The disk accepts records of the journal again");
    }
}

/// Makes an image on a thread of its own, which is less urgent than the others of this process.
fn on_a_thread(journal: &Journal) -> Result<Duration, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("journal-image".into());
        let making = thread.spawn_scoped(scope, || {
            // Of this thread only. Where that is not allowed, the image is made all the same.
            let _ = rustix::process::setpriority_process(None, NICE);
            make_image(journal)
        });
        match making.map_err(|error| error.to_string())?.join() {
            Ok(outcome) => outcome,
            Err(panic) => Err(Panic::of(&*panic).to_string()),
        }
    })
}

/// Makes an image of all that is committed. Returns how long that took.
pub(super) fn make_image(journal: &Journal) -> Result<Duration, String> {
    let started = Instant::now();
    let mut reader = Reader::new(hash_seed());
    let number =
        journal.read(|entry| Ok(reader.visit(entry)?)).map_err(|error| error.to_string())?;
    let follower = reader.finish().ok_or("the journal is empty")?;
    let bytes = follower.base().encode().map_err(|error| error.to_string())?;
    drop(follower);
    journal.store_image(number, &[&bytes]).map_err(|error| error.to_string())?;
    let took = started.elapsed();
    tracing::info!(
        "Stored an image of the journal: record {number}, {} bytes, in {} ms",
        bytes.len(),
        took.as_millis()
    );
    Ok(took)
}
