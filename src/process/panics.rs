//! What becomes of a panic in a task that others rely on.
//!
//! A panic is a fault of this program. It must not pass unseen, and must not take along more than it
//! has to: who starts a task that somebody relies on starts it through one of these. Knows nothing of
//! what the tasks do.

use std::any::Any;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use tokio::task::{JoinSet, spawn_blocking};

/// How long a loop rests after a panic before it begins anew.
const REST: Duration = Duration::from_secs(1);

/// What a panic said.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("panic: {0}")]
pub struct Panic(String);

impl Panic {
    /// From what it left when it was caught.
    pub fn of(left: &(dyn Any + Send)) -> Panic {
        let text = left.downcast_ref::<&str>().copied();
        let text = text.or_else(|| left.downcast_ref::<String>().map(String::as_str));
        Panic(text.unwrap_or("without words").to_owned())
    }
}

/// Does some work to its end. A panic in it is an error, and then nothing of it is left.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panic> {
    let mut work = pin!(work);
    let polled =
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Err(left) => Poll::Ready(Err(Panic::of(&*left))),
        });
    polled.await
}

/// Does what may block on a thread for that. A panic there is one here.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(left)) => resume_unwind(left),
        // The executor stops, and this task with it.
        Err(Err(_)) => pending().await,
    }
}

/// Goes through a loop until it ends by itself. After each panic in it that is told to the log, and
/// after a rest the loop begins anew, with what it is about as it is then.
pub async fn begun_anew<F: Future<Output = ()>>(task: &str, begin: impl Fn() -> F) {
    while let Err(panic) = caught(async { begin().await }).await {
        tracing::error!(%panic, "{task} broke off, and begins anew");
        tokio::time::sleep(REST).await;
    }
}

/// A part of a service that cannot begin anew has ended with a panic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{task} broke down: {panic}")]
pub struct BrokenDown {
    /// What it was for.
    task: &'static str,
    panic: Panic,
}

/// Does what a service is nothing without. A panic in it is told to the log, and to who waits.
pub async fn caught_in<T>(
    task: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, BrokenDown> {
    caught(work).await.map_err(|panic| {
        tracing::error!(%panic, "{task} broke down");
        BrokenDown { task, panic }
    })
}

/// The tasks that a service consists of: it is nothing without any of them. Dropped, all end.
#[derive(Debug, Default)]
pub struct ServiceTasks(JoinSet<Result<(), BrokenDown>>);

impl ServiceTasks {
    /// Starts one.
    pub fn spawn(&mut self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(caught_in(task, work));
    }

    /// Waits until all have ended.
    ///
    /// Errors: one has ended with a panic. It is told at once, and once; the others go on.
    pub async fn ended(&mut self) -> Result<(), BrokenDown> {
        while let Some(ended) = self.0.join_next().await {
            // They catch their panics themselves: an error says that the executor stops.
            ended.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn panic(text: &str) -> Panic {
        Panic(text.to_owned())
    }

    /// A panic with words that are put together.
    fn fail(number: u32) {
        panic!("number {number}");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_words() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let held = Arc::new(());
        let theirs = held.clone();
        let failing = async move {
            let _theirs = theirs;
            tokio::task::yield_now().await;
            fail(3);
        };
        assert_eq!(caught(failing).await, Err(panic("number 3")));
        assert_eq!(Arc::strong_count(&held), 1, "nothing is left of it");
        assert_eq!(caught(async { panic!("plain") }).await, Err::<(), _>(panic("plain")));
        let other = caught(async { std::panic::panic_any(5) }).await;
        assert_eq!(other, Err::<(), _>(panic("without words")));
        assert_eq!(caught(blocking(|| fail(4))).await, Err(panic("number 4")));
        assert_eq!(blocking(|| 8).await, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_begins_anew_until_it_ends_by_itself() {
        let begun = AtomicU32::new(0);
        let once = || async {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if number < 3 {
                fail(number);
            }
        };
        let started = tokio::time::Instant::now();
        begun_anew("a loop", once).await;
        assert_eq!((begun.load(Ordering::Relaxed), started.elapsed()), (4, 3 * REST));
    }

    #[tokio::test]
    async fn a_service_is_told_at_once_which_task_broke_down() {
        let mut tasks = ServiceTasks::default();
        tasks.spawn("one that lasts", pending());
        tasks.spawn("one that is done", async {});
        tasks.spawn("one that fails", async { fail(1) });
        let broken = BrokenDown { task: "one that fails", panic: panic("number 1") };
        assert_eq!(broken.to_string(), "one that fails broke down: panic: number 1");
        assert_eq!(tasks.ended().await, Err(broken));
        let mut tasks = ServiceTasks::default();
        tasks.spawn("one that is done", async {});
        assert_eq!(tasks.ended().await, Ok(()));
    }
}
