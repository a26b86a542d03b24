//! Many runs, each with a seed of its own, on several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Which runs.
pub(crate) struct Seeds {
    /// The first one.
    pub(crate) first: u64,
    /// How many.
    pub(crate) count: u64,
    /// How many at a time; one for each processor if absent.
    pub(crate) threads: Option<NonZeroUsize>,
}

impl Seeds {
    /// Runs all seeds, and adds up their results. Of several that fail, the first is given, whatever the number of
    /// threads.
    pub(crate) fn run_all<R, F: Send, T: Default + Send>(
        &self,
        run: impl Fn(u64) -> Result<R, F> + Sync,
        add: impl Fn(&mut T, R) + Sync,
    ) -> Result<T, F> {
        let next = AtomicU64::new(0);
        let total = Mutex::new(Ok::<T, (u64, F)>(T::default()));
        let total_now = || total.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.count || total_now().is_err() {
                    return;
                }
                let result = run(self.first.wrapping_add(number));
                match (&mut *total_now(), result) {
                    (Ok(total), Ok(result)) => add(total, result),
                    (Err(known), Err(failure)) if number < known.0 => *known = (number, failure),
                    (total @ Ok(_), Err(failure)) => *total = Err((number, failure)),
                    (Err(_), _) => {}
                }
            }
        };
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok());
        let most = usize::try_from(self.count).unwrap_or(usize::MAX);
        std::thread::scope(|scope| {
            for _ in 0..threads.map_or(1, NonZeroUsize::get).min(most) {
                scope.spawn(work);
            }
        });
        total.into_inner().unwrap_or_else(PoisonError::into_inner).map_err(|(_, failure)| failure)
    }
}
