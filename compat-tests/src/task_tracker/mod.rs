//! What the tests of the task tracker share: everybody that it talks to.
//!
//! * [`cluster_manager`]: a cluster manager and a proxy job tracker that answer as they are told;
//! * [`job_tracker`]: a job tracker that sends actions and keeps what is reported;
//! * [`job`]: jobs, their files and their tasks;
//! * [`steps`]: what a task of a test does, one thing after the other. The program `test-task` of
//!   this package does it, and speaks the umbilical protocol;
//! * [`notes`]: what such tasks tell the test behind the task tracker's back;
//! * [`node`]: the built program as a task tracker, in a directory of its own.

pub mod cluster_manager;
pub mod job;
pub mod job_tracker;
pub mod node;
pub mod notes;
pub mod steps;

use std::time::{Duration, Instant};

use tokio::time::sleep;

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at something.
pub const PAUSE: Duration = Duration::from_millis(5);

/// Waits until there is something to give.
///
/// # Panics
/// When there is nothing in time; `what` says what was missing.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing came of waiting for {what}");
        sleep(PAUSE).await;
    }
}
