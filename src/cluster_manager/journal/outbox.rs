//! The notifications that sessions have not acknowledged, as the journal knows them. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use corona_engine::Notification;
use corona_model::types::Address;

/// Pending notifications by session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outbox {
    /// The serial number of the last notification, of any session.
    last: u64,
    sessions: BTreeMap<Arc<str>, Pending>,
}

/// The pending notifications of a session, the oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Where its driver listens.
    pub(crate) to: Address,
    /// Notifications with their serial numbers.
    pub(crate) calls: VecDeque<(u64, Notification)>,
}

impl Outbox {
    /// The serial number of the last notification.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Adds a notification, which gets the next serial number.
    pub(crate) fn push(&mut self, handle: Arc<str>, to: Address, call: Notification) {
        self.last += 1;
        let pending =
            self.sessions.entry(handle).or_insert_with(|| Pending { to, calls: VecDeque::new() });
        pending.calls.push_back((self.last, call));
    }

    /// Drops the notifications of a session up to a serial number.
    pub(crate) fn acknowledge(&mut self, handle: &str, up_to: u64) {
        let Some(pending) = self.sessions.get_mut(handle) else { return };
        while pending.calls.front().is_some_and(|(serial, _)| *serial <= up_to) {
            pending.calls.pop_front();
        }
        if pending.calls.is_empty() {
            self.sessions.remove(handle);
        }
    }

    /// Drops all notifications of a session.
    pub(crate) fn forget(&mut self, handle: &str) {
        self.sessions.remove(handle);
    }

    /// The sessions with pending notifications.
    pub(crate) fn into_sessions(self) -> impl Iterator<Item = (Arc<str>, Pending)> {
        self.sessions.into_iter()
    }

    /// Pending notifications of all sessions.
    pub(crate) fn len(&self) -> usize {
        self.sessions.values().map(|pending| pending.calls.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_notifications_are_dropped_in_order() {
        let mut outbox = Outbox::default();
        let to = Address { host: "h".into(), port: 1 };
        for (handle, node) in [("a", "n1"), ("b", "n2"), ("a", "n3")] {
            outbox.push(handle.into(), to.clone(), Notification::DeadNode(node.into()));
        }
        assert_eq!((outbox.last(), outbox.len()), (3, 3));
        outbox.acknowledge("a", 2);
        // One that was acknowledged twice, and one of a session that has ended.
        outbox.acknowledge("a", 1);
        outbox.acknowledge("c", 3);
        let left: Vec<(String, Vec<u64>)> = outbox
            .clone()
            .into_sessions()
            .map(|(handle, pending)| {
                (handle.to_string(), pending.calls.iter().map(|(serial, _)| *serial).collect())
            })
            .collect();
        assert_eq!(left, [("a".to_owned(), vec![3]), ("b".to_owned(), vec![2])]);
        outbox.forget("b");
        outbox.acknowledge("a", 3);
        assert_eq!(outbox, Outbox { last: 3, ..Outbox::default() });
    }
}
