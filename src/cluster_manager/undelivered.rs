//! Notifications that a session has not acknowledged, as plain data.

use std::sync::Arc;

use corona_engine::Notification;
use corona_model::types::Address;

/// The notifications that one session has not acknowledged, in their order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Undelivered {
    /// The session.
    pub(super) handle: Arc<str>,
    /// Where its driver listens.
    pub(super) to: Address,
    /// The notifications, the oldest first.
    pub(super) calls: Vec<Notification>,
}
