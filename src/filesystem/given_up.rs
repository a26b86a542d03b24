//! The end of writers that are dropped: their files and uploads are given up by tasks of the runtime, which a process that
//! ends can wait for.

use std::sync::LazyLock;

use tokio::runtime::Handle;
use tokio::sync::watch;

/// What this process gives up.
#[derive(Debug, Default)]
struct GivenUp {
    /// How many tasks do so.
    pending: usize,
    /// Whether something may be left.
    is_left: bool,
}

static GIVEN_UP: LazyLock<watch::Sender<GivenUp>> =
    LazyLock::new(|| watch::Sender::new(GivenUp::default()));

/// Counts a task until it ends, also if its runtime does.
struct Counted;

impl Counted {
    fn new() -> Counted {
        GIVEN_UP.send_modify(|given_up| given_up.pending += 1);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        GIVEN_UP.send_modify(|given_up| given_up.pending = given_up.pending.saturating_sub(1));
    }
}

/// Something that may be left if this is dropped before it is finished.
pub(crate) struct Unfinished {
    is_left: bool,
}

impl Unfinished {
    pub(crate) fn new() -> Unfinished {
        Unfinished { is_left: true }
    }

    pub(crate) fn finish(mut self) {
        self.is_left = false;
    }

    /// Does what may leave something if it is dropped before it ends.
    pub(crate) async fn during<T>(work: impl Future<Output = T>) -> T {
        let unfinished = Unfinished::new();
        let done = work.await;
        unfinished.finish();
        done
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_left {
            GIVEN_UP.send_modify(|given_up| given_up.is_left = true);
        }
    }
}

/// Does this work, which returns whether nothing is left, after its owner has gone; not at all where there is no runtime.
pub(crate) fn in_background(work: impl Future<Output = bool> + Send + 'static) {
    let unfinished = Unfinished::new();
    let Ok(runtime) = Handle::try_current() else { return };
    let counted = Counted::new();
    runtime.spawn(async move {
        match work.await {
            true => unfinished.finish(),
            false => drop(unfinished),
        }
        drop(counted);
    });
}

/// Waits until what dropped writers of this process have left is given up. Returns whether all of it since the last such
/// answer was: false if something may be left.
pub async fn all_given_up() -> bool {
    let mut given_up = GIVEN_UP.subscribe();
    // The sender lives as long as the process.
    let is_over = given_up.wait_for(|given_up| given_up.pending == 0).await.is_ok();
    is_over && !GIVEN_UP.send_if_modified(|given_up| std::mem::take(&mut given_up.is_left))
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::sync::{Mutex, MutexGuard};

    use super::all_given_up;

    /// Held by a test that asks whether all was given up: the answer is that of the whole process, and does not concern
    /// what earlier tests have left.
    pub(crate) async fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        all_given_up().await;
        alone
    }
}
