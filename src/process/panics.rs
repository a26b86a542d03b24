//! Panics in tasks that other parts rely on.
//!
//! A panic is a bug in this program. It must be logged, and must not stop more than necessary:
//! start every task that another part relies on through one of these functions. This file must not
//! know the tasks' purpose.

use std::any::Any;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, spawn, spawn_blocking};

/// The pause between a panic of a loop and its restart.
const PAUSE: Duration = Duration::from_secs(1);

/// The message of a panic.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("panic: {0}")]
pub struct Panic(String);

impl Panic {
    /// From the payload of a caught panic.
    pub fn of(left: &(dyn Any + Send)) -> Panic {
        let text = left.downcast_ref::<&str>().copied();
        let text = text.or_else(|| left.downcast_ref::<String>().map(String::as_str));
        Panic(text.unwrap_or("without a message").to_owned())
    }
}

/// Runs a future to its end. A panic becomes an error, after everything in the future was dropped.
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

/// Runs work that may block on a thread for such work. A panic there is propagated.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(left)) => resume_unwind(left),
        // The executor stops, and so does this task.
        Err(Err(_)) => pending().await,
    }
}

/// Runs a loop until it returns. After a panic the loop is restarted following a pause, and the panic
/// is logged.
pub async fn restart_on_panic<F: Future<Output = ()>>(task: &str, start: impl Fn() -> F) {
    while let Err(panic) = caught(async { start().await }).await {
        tracing::error!(%panic, "{task} panicked; restarting in 1 s");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Starts work that nothing waits for. A panic in it is logged, and costs nothing else.
pub fn spawn_detached(
    task: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    spawn(async move {
        if let Err(panic) = caught(work).await {
            tracing::error!(%panic, "{task} panicked");
        }
    })
}

/// Loops that a service needs as long as it runs. Each is restarted after a panic. Dropping this ends all.
#[derive(Debug, Default)]
pub struct Loops(JoinSet<()>);

impl Loops {
    /// Starts a loop, and restarts it after each panic.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        task: &'static str,
        start: impl Fn() -> F + Send + Sync + 'static,
    ) {
        self.0.spawn(async move { restart_on_panic(task, start).await });
    }
}

/// A part of a service that cannot be restarted has panicked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{task} panicked: {panic}")]
pub struct TaskPanicked {
    task: &'static str,
    panic: Panic,
}

/// Runs an essential task. A panic is logged and returned to the caller.
pub async fn run_essential<T>(
    task: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, TaskPanicked> {
    caught(work).await.map_err(|panic| {
        tracing::error!(%panic, "{task} panicked");
        TaskPanicked { task, panic }
    })
}

/// Does work until it is done or `stop` becomes true.
pub async fn until(mut stop: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = work => {}
    }
}

/// The essential tasks of a service: it cannot work without any of them. Dropping this ends all.
#[derive(Debug, Default)]
pub struct ServiceTasks(JoinSet<Result<(), TaskPanicked>>);

impl ServiceTasks {
    /// Starts a task.
    pub fn spawn(&mut self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(run_essential(task, work));
    }

    /// Waits until all tasks have ended.
    ///
    /// # Errors
    /// When a task has panicked: at once, and once for each. The other tasks continue.
    pub async fn ended(&mut self) -> Result<(), TaskPanicked> {
        while let Some(ended) = self.0.join_next().await {
            // The tasks catch their own panics: an error means that the executor stops.
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

    /// A panic with a formatted message.
    fn fail(number: u32) {
        panic!("number {number}");
    }

    #[tokio::test]
    async fn a_panic_becomes_an_error_with_its_message() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let held = Arc::new(());
        let theirs = held.clone();
        let failing = async move {
            let _theirs = theirs;
            tokio::task::yield_now().await;
            fail(3);
        };
        assert_eq!(caught(failing).await, Err(panic("number 3")));
        assert_eq!(Arc::strong_count(&held), 1, "everything in it was dropped");
        assert_eq!(caught(async { panic!("plain") }).await, Err::<(), _>(panic("plain")));
        let other = caught(async { std::panic::panic_any(5) }).await;
        assert_eq!(other, Err::<(), _>(panic("without a message")));
        assert_eq!(caught(blocking(|| fail(4))).await, Err(panic("number 4")));
        assert_eq!(blocking(|| 8).await, 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_is_restarted_until_it_returns() {
        let starts = AtomicU32::new(0);
        let once = || async {
            let number = starts.fetch_add(1, Ordering::Relaxed);
            if number < 3 {
                fail(number);
            }
        };
        let started = tokio::time::Instant::now();
        restart_on_panic("a loop", once).await;
        assert_eq!((starts.load(Ordering::Relaxed), started.elapsed()), (4, 3 * PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_of_a_service_outlives_its_panics_and_ends_with_its_owner() {
        let starts = Arc::new(AtomicU32::new(0));
        let (counted, held) = (starts.clone(), Arc::new(()));
        let theirs = held.clone();
        let mut loops = Loops::default();
        loops.spawn("a loop", move || {
            let (number, _theirs) = (counted.fetch_add(1, Ordering::Relaxed), theirs.clone());
            async move {
                if number == 0 {
                    fail(0);
                }
                pending::<()>().await;
            }
        });
        tokio::time::sleep(2 * PAUSE).await;
        assert_eq!(starts.load(Ordering::Relaxed), 2);
        drop(loops);
        tokio::time::sleep(PAUSE).await;
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(spawn_detached("a task", async { fail(1) }).await.is_ok());
    }

    #[tokio::test]
    async fn a_service_learns_at_once_which_task_panicked() {
        let mut tasks = ServiceTasks::default();
        tasks.spawn("one that lasts", pending());
        tasks.spawn("one that is done", async {});
        tasks.spawn("one that fails", async { fail(1) });
        let broken = TaskPanicked { task: "one that fails", panic: panic("number 1") };
        assert_eq!(broken.to_string(), "one that fails panicked: panic: number 1");
        assert_eq!(tasks.ended().await, Err(broken));
        let mut tasks = ServiceTasks::default();
        tasks.spawn("one that is done", async {});
        assert_eq!(tasks.ended().await, Ok(()));
    }
}
