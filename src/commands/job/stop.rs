//! What Ctrl-C does to a job: before its submission nothing is submitted, afterwards the job is killed.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::time::timeout;

use super::waiting::Waiting;
use crate::commands::signals::StopSignals;
use corona_terminal::console::Console;

/// The requests to stop since this was made, from before the job is submitted until it is over.
pub(in crate::commands) struct Stop {
    signals: StopSignals,
    is_wanted: bool,
}

impl Stop {
    /// # Errors
    /// When the system refuses a handler of signals.
    pub(in crate::commands) fn listen() -> anyhow::Result<Stop> {
        let signals = StopSignals::listen().context("cannot listen for signals")?;
        Ok(Stop { signals, is_wanted: false })
    }

    /// The result of `work` on the way to the submission.
    ///
    /// # Errors
    /// Those of `work`, or a signal came before it was done.
    pub(in crate::commands) async fn before_submission<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let done = self.or(work).await;
        done.unwrap_or_else(|| Err(anyhow!("stopped before the job was submitted")))
    }

    /// Whether a signal has been received.
    pub(in crate::commands) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Waits for the next signal.
    async fn next(&mut self) {
        self.signals.next().await;
        self.is_wanted = true;
    }

    /// The result of `work`; or None, and the end of `work`, if a signal comes before it.
    pub(in crate::commands) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.next() => None,
            done = work => Some(done),
        }
    }

    /// The result of `work`, which a signal ends only `patience` later, and whether a signal came.
    pub(super) async fn or_later<T>(
        &mut self,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> (Option<T>, bool) {
        tokio::pin!(work);
        match self.or(&mut work).await {
            Some(done) => (Some(done), false),
            None => (timeout(patience, work).await.ok(), true),
        }
    }

    /// The result of `work`, which the first signal does not end: it has the note shown.
    ///
    /// # Errors
    /// A second signal ended the wait.
    pub(super) async fn after_first<T>(
        &mut self,
        work: impl Future<Output = T>,
        waiting: &Waiting,
        note: &str,
        console: &mut Console<'_>,
    ) -> anyhow::Result<T> {
        tokio::pin!(work);
        if let Some(done) = self.or(waiting.on(&mut work, console)).await {
            return Ok(done);
        }
        console.complain(note);
        match self.or(waiting.on(work, console)).await {
            Some(done) => Ok(done),
            None => bail!("stopped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use nix::sys::signal::{Signal, raise};
    use tokio::time::sleep;

    use super::*;
    use crate::commands::signals::tests::SIGNALS;

    #[tokio::test]
    async fn a_call_may_end_soon_after_a_signal() {
        let _alone = SIGNALS.lock().await;
        let mut stop = Stop::listen().unwrap();
        let moment = Duration::from_millis(20);
        assert_eq!(stop.or_later(moment, ready(1)).await, (Some(1), false));
        let long = Duration::from_secs(60);
        let raised = async || raise(Signal::SIGTERM).unwrap();
        let (done, ()) = tokio::join!(stop.or_later(long, sleep(moment)), raised());
        assert_eq!(done, (Some(()), true));
        let (done, ()) = tokio::join!(stop.or_later(moment, pending::<()>()), raised());
        assert_eq!(done, (None, true));
        assert!(stop.is_wanted());
    }
}
