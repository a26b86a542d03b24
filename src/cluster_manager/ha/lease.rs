//! The lease of a leader: until when replies and notifications may leave.
//!
//! The only clock of fail-over. It runs while the machine is suspended, so a leader that was suspended
//! does not take its lease for valid.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, clock_gettime};

use corona_model::types::Millis;

/// The present time: milliseconds since the machine was started.
pub(crate) fn now() -> Millis {
    let time = clock_gettime(ClockId::Boottime);
    Millis(time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000))
}

/// The lease of this process.
#[derive(Debug)]
pub(crate) struct Lease(AtomicI64);

impl Default for Lease {
    /// A lease that is over.
    fn default() -> Lease {
        Lease(AtomicI64::new(i64::MIN))
    }
}

impl Lease {
    /// Whether something may leave now.
    pub(crate) fn holds(&self) -> bool {
        now().0 < self.0.load(Ordering::Acquire)
    }

    /// Sets the end; `None` ends it now.
    pub(crate) fn set(&self, until: Option<Millis>) {
        self.0.store(until.map_or(i64::MIN, |until| until.0), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_holds_until_its_end() {
        let lease = Lease::default();
        assert!(!lease.holds());
        lease.set(Some(now().plus_ms(60_000)));
        assert!(lease.holds());
        lease.set(Some(now()));
        assert!(!lease.holds());
        lease.set(Some(now().plus_ms(60_000)));
        lease.set(None);
        assert!(!lease.holds());
    }
}
