//! Helpers of the tests of the task tracker: all its peers.
//!
//! * [`cluster_manager`]: a cluster manager and a proxy job tracker with scripted answers;
//! * [`job_tracker`]: a job tracker that sends actions and keeps reports;
//! * [`job`]: jobs, their files and their tasks;
//! * [`steps`]: the actions of a task of a test, one after another. The program `test-task` of this
//!   package carries them out, and speaks the umbilical protocol;
//! * [`notes`]: messages of such tasks to the test behind the task tracker's back;
//! * [`node`]: the built program as a task tracker, in a directory of its own.

pub mod cluster_manager;
pub mod job;
pub mod job_tracker;
pub mod node;
pub mod notes;
pub mod steps;

use std::time::{Duration, Instant};

use tokio::time::sleep;

pub use crate::PATIENCE;
/// Pause between two looks at something.
pub const PAUSE: Duration = Duration::from_millis(5);

/// Waits until there is something to give.
///
/// # Panics
/// When `look` finds nothing in time; `what` names the missing thing.
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
