//! The end of writers that are dropped: their files and uploads are given up by tasks of the runtime, which a process that
//! ends can wait for.

use std::sync::LazyLock;

use tokio::runtime::Handle;
use tokio::sync::watch;

/// How many such tasks there are in this process.
static PENDING: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Counts a task until it ends, also if its runtime does.
struct Counted;

impl Counted {
    fn new() -> Counted {
        PENDING.send_modify(|pending| *pending += 1);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        PENDING.send_modify(|pending| *pending = pending.saturating_sub(1));
    }
}

/// Does this work after its owner has gone; not at all where there is no runtime.
pub(crate) fn in_background(work: impl Future<Output = ()> + Send + 'static) {
    let Ok(runtime) = Handle::try_current() else { return };
    let counted = Counted::new();
    runtime.spawn(async move {
        work.await;
        drop(counted);
    });
}

/// Waits until all that dropped writers of this process have left is given up.
pub async fn all_given_up() {
    // The sender lives as long as the process.
    let _ = PENDING.subscribe().wait_for(|pending| *pending == 0).await;
}
