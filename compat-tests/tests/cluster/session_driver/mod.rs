//! Sessions of the session driver library: they call as recorded Java sessions did, and get their
//! slots from the built program.

mod live;
mod recorded;

use std::future::Future;
use std::time::Duration;

use corona::session_driver::{Event, SessionEvents};
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Runs a test. Its thread may block: what it spawns runs on another one.
fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

async fn next(events: &mut SessionEvents) -> Event {
    let event = timeout(SOON, events.next()).await.expect("an event in time");
    event.expect("the session is not over")
}
