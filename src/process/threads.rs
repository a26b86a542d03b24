//! Threads for work that blocks, apart from those of the executor.
//!
//! The executor has one pool of threads for everything that blocks. Work that occupies that pool
//! stops all other file accesses and name look-ups. So work that peers cause, and work that must
//! not be delayed, runs on separate threads. It does not know what the work is.

use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use tokio::sync::{Semaphore, oneshot};

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads. They end when this is dropped and their work is done.
#[derive(Debug)]
pub struct Threads {
    /// A permit for each thread that has no work.
    free: Arc<Semaphore>,
    jobs: SyncSender<Job>,
}

impl Threads {
    /// Starts `count` threads. A name has at most 12 bytes, so that the kernel does not truncate
    /// it.
    ///
    /// Errors: the system starts no more threads.
    pub fn start(name: &str, count: usize) -> io::Result<Threads> {
        let (jobs, waiting) = sync_channel(count);
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..count {
            let waiting = waiting.clone();
            Builder::new().name(format!("{name}-{number}")).spawn(move || work(&waiting))?;
        }
        Ok(Threads { free: Arc::new(Semaphore::new(count)), jobs })
    }

    /// Runs work that may block, as soon as a thread is free; waiting work takes turns in order.
    /// The work runs to its end even if the caller stops waiting. A panic in it is propagated.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let permit = self.free.clone().acquire_owned().await;
        let (sender, result) = oneshot::channel();
        let job = move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            drop(permit);
            // The caller may have stopped waiting.
            let _ = sender.send(result);
        };
        // There is room for a job for each permit.
        let _ = self.jobs.try_send(Box::new(job));
        match result.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => pending().await,
        }
    }
}

fn work(waiting: &Mutex<Receiver<Job>>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::panics::caught;

    #[tokio::test]
    async fn work_is_done_on_other_threads_and_waits_for_a_free_one() {
        let threads = Arc::new(Threads::start("test", 2).unwrap());
        let here = std::thread::current().id();
        assert_ne!(threads.run(|| std::thread::current().id()).await, here);
        let (go_on, held) = sync_channel::<()>(2);
        let held = Arc::new(Mutex::new(held));
        let hold = || {
            let (threads, held) = (threads.clone(), held.clone());
            tokio::spawn(
                async move { threads.run(move || held.lock().unwrap().recv().is_ok()).await },
            )
        };
        let holding = [hold(), hold()];
        let last = threads.clone();
        let last = tokio::spawn(async move { last.run(|| 7).await });
        while threads.free.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(!last.is_finished());
        go_on.send(()).unwrap();
        assert_eq!(last.await.unwrap(), 7);
        go_on.send(()).unwrap();
        for held in holding {
            assert!(held.await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_panic_is_one_for_whoever_waits_and_costs_no_thread() {
        let threads = Threads::start("test", 1).unwrap();
        for _ in 0..3 {
            let failed = caught(threads.run(|| panic!("a fault"))).await;
            assert_eq!(failed.unwrap_err().to_string(), "panic: a fault");
        }
        assert_eq!(threads.run(|| 7).await, 7);
    }
}
