//! Whether a cluster manager answers, for people who wait for it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Whether a cluster manager answers the calls of a session, or of a host that asks for ids. Copies
/// show the same.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Mutex<ContactState>>);

#[derive(Debug, Default)]
struct ContactState {
    open: Option<Open>,
    /// Those that may wait for an answer.
    callers: usize,
}

/// Somebody who makes calls, and waits for none when this is dropped. The last one ends the silence.
#[derive(Debug)]
pub(super) struct Caller(Contact);

impl Drop for Caller {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.callers = state.callers.saturating_sub(1);
        if state.callers == 0 {
            state.open = None;
        }
    }
}

/// Calls that wait for an answer.
#[derive(Clone, Copy, Debug)]
struct Open {
    since: Instant,
    is_paused: bool,
}

/// A cluster manager that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silence {
    /// For how long: since the first call that was not answered.
    pub lasts: Duration,
    /// Whether that is on purpose: it is in safe mode.
    pub is_safe_mode: bool,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.lasts.as_secs();
        match self.is_safe_mode {
            true => write!(f, "the cluster manager has been in safe mode for {seconds} s"),
            false => write!(f, "the cluster manager has not answered for {seconds} s"),
        }
    }
}

impl Contact {
    /// The silence of the cluster manager; nothing while it answers, or nothing is asked.
    pub fn silence(&self) -> Option<Silence> {
        let Open { since, is_paused } = self.state().open?;
        Some(Silence { lasts: since.elapsed(), is_safe_mode: is_paused })
    }

    /// For somebody who will make calls.
    pub(super) fn caller(&self) -> Caller {
        self.state().callers += 1;
        Caller(self.clone())
    }

    /// A call is made.
    pub(super) fn asks(&self) {
        let since = Instant::now();
        self.state().open.get_or_insert(Open { since, is_paused: false });
    }

    /// It is known to be in safe mode.
    pub(super) fn pauses(&self) {
        let since = Instant::now();
        self.state().open.get_or_insert(Open { since, is_paused: true }).is_paused = true;
    }

    /// A call was answered, or none waits any more.
    pub(super) fn answers(&self) {
        self.state().open = None;
    }

    /// No panic happens while it is held.
    fn state(&self) -> MutexGuard<'_, ContactState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_lasts_from_the_first_call_without_an_answer() {
        let contact = Contact::default();
        assert_eq!(contact.silence(), None);
        contact.asks();
        advance(Duration::from_secs(30)).await;
        contact.asks();
        advance(Duration::from_secs(10)).await;
        let silence = contact.clone().silence().unwrap();
        assert_eq!(silence.to_string(), "the cluster manager has not answered for 40 s");
        contact.pauses();
        let silence = contact.silence().unwrap();
        assert_eq!(silence.to_string(), "the cluster manager has been in safe mode for 40 s");
        contact.answers();
        assert_eq!(contact.silence(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_when_nobody_waits_any_more() {
        let contact = Contact::default();
        let (one, other) = (contact.caller(), contact.caller());
        contact.asks();
        advance(Duration::from_secs(9)).await;
        drop(one);
        assert_eq!(contact.silence().map(|silence| silence.lasts.as_secs()), Some(9));
        drop(other);
        assert_eq!(contact.silence(), None);
    }
}
