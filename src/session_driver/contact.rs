//! Whether a cluster manager answers, for people who wait for it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Whether a cluster manager answers the calls of a session, or of a host that asks for ids. Copies
/// show the same.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Mutex<Option<Open>>>);

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
        let Open { since, is_paused } = (*self.open())?;
        Some(Silence { lasts: since.elapsed(), is_safe_mode: is_paused })
    }

    /// A call is made.
    pub(super) fn asks(&self) {
        let since = Instant::now();
        self.open().get_or_insert(Open { since, is_paused: false });
    }

    /// It is known to be in safe mode.
    pub(super) fn pauses(&self) {
        let since = Instant::now();
        self.open().get_or_insert(Open { since, is_paused: true }).is_paused = true;
    }

    /// A call was answered, or none waits any more.
    pub(super) fn answers(&self) {
        *self.open() = None;
    }

    /// No panic happens while it is held.
    fn open(&self) -> MutexGuard<'_, Option<Open>> {
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
}
