//! When certificates were renewed last: each renewal writes files of the authority.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::certificate::PublicKey;

/// The keys whose certificates were renewed lately.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Mutex<HashMap<PublicKey, Instant>>);

impl Renewals {
    /// The least time between two renewals for one key. A daemon that needs one has ten days for it.
    pub(crate) const PAUSE: Duration = Duration::from_secs(10 * 60);
    /// Keys that are remembered. There is one for each member, whom an access string has let in.
    const MAX_KNOWN: usize = 20_000;

    /// Whether the certificate of this key may be renewed now.
    pub(crate) fn may(&self, key: &PublicKey, now: Instant) -> bool {
        // Each change can be used after a panic too.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < Renewals::PAUSE;
        if known.get(key).is_some_and(is_recent) {
            return false;
        }
        if known.len() >= Renewals::MAX_KNOWN {
            known.retain(|_, at| is_recent(at));
        }
        if known.len() < Renewals::MAX_KNOWN {
            known.insert(key.clone(), now);
        }
        true
    }
}
