//! Which of several cluster managers leads, and what may leave it. Pure: no socket, clock or file.
//!
//! [`Machine`] is the role of one instance: `Standby`, then `Leader`, then `Fenced`. It decides when to
//! campaign, which standbys must have a record before a reply may leave, and when a leader must stop.
//! [`stream`] has the frames in which a leader sends its journal.
//!
//! # Why nothing acknowledged is lost
//!
//! A coordination service keeps one [`Succession`]: the number of the last leadership (its *epoch*) and
//! the instances that have everything that was acknowledged. Only these may lead. The leader adds a
//! standby that has caught up, from then on waits for it, and waits until a standby is taken out before
//! it continues without that standby. So each instance in the succession has every acknowledged record.
//! A standby that delays callers is taken out too. It stays connected, and counts again when it has been
//! fast for a while.
//!
//! # Why two leaders do no harm
//!
//! A leader has a lease of two thirds of its session's timeout, counted from the moment when it *sent*
//! the last request that the service confirmed. Replies and notifications leave only within the lease.
//! The service lets another instance lead only when the session has timed out, which is later on any
//! clock that runs at most a third slower.

// It reads bytes of peers: nothing in them may end the program, or become another number.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod role;
#[cfg(test)]
mod simulation;
pub mod stream;

pub use self::role::{
    Ack, Copy, Effect, FencedBecause, Input, Machine, Role, Settings, StandbyView, Succession,
};
