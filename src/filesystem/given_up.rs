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
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.is_left {
            GIVEN_UP.send_modify(|given_up| given_up.is_left = true);
        }
    }
}

/// Does this work, which says whether nothing is left, after its owner has gone; not at all where there is no runtime.
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

/// Waits until what dropped writers of this process have left is given up. Returns whether all of it was: false if
/// something may be left.
pub async fn all_given_up() -> bool {
    let mut given_up = GIVEN_UP.subscribe();
    // The sender lives as long as the process.
    let done = given_up.wait_for(|given_up| given_up.pending == 0).await;
    done.is_ok_and(|given_up| !given_up.is_left)
}
