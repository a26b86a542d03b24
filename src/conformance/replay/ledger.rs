//! The notifications of each session, in the recording and in the run under test, side by side.
//!
//! Sessions go by their recorded ids. Knows no sockets and no time.

use std::collections::BTreeMap;

/// A kind of notification of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Topic {
    /// Grants of a type to a session: `(session, type)`. The entries are request ids.
    Granted(String, i32),
    /// Revocations of a type. The entries are request ids.
    Revoked(String, i32),
    /// A node that died. The entries are zeros.
    DeadNode(String, String),
}

/// Both sides.
#[derive(Clone, Debug, Default)]
pub(super) struct NotificationLedger {
    pages: BTreeMap<Topic, TopicEntries>,
}

/// Both sides of one topic, each in the order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicEntries {
    pub(super) recorded: Vec<i32>,
    pub(super) live: Vec<i32>,
    /// Entries of the recording that are not waited for any more.
    forgiven: usize,
}

impl NotificationLedger {
    /// The recording has these notifications by now.
    pub(super) fn record(&mut self, topic: Topic, ids: impl IntoIterator<Item = i32>) {
        self.pages.entry(topic).or_default().recorded.extend(ids);
    }

    /// The manager under test has sent these notifications.
    pub(super) fn arrive(&mut self, topic: Topic, ids: impl IntoIterator<Item = i32>) {
        self.pages.entry(topic).or_default().live.extend(ids);
    }

    /// Topics with more recorded notifications than received ones.
    pub(super) fn missing(&self) -> Vec<Topic> {
        let behind = |page: &TopicEntries| page.recorded.len() > page.live.len() + page.forgiven;
        self.pages.iter().filter(|(_, page)| behind(page)).map(|(topic, _)| topic.clone()).collect()
    }

    /// Entries that are missing now are not waited for again.
    pub(super) fn forgive(&mut self, topic: &Topic) {
        if let Some(page) = self.pages.get_mut(topic) {
            page.forgiven = page.recorded.len().saturating_sub(page.live.len());
        }
    }

    /// All topics of either side.
    pub(super) fn pages(&self) -> impl Iterator<Item = (&Topic, &TopicEntries)> {
        self.pages.iter()
    }
}

impl TopicEntries {
    /// Entries that only one side has, each as often as it is missing on the other: those that are
    /// only recorded, and those that are only live.
    pub(super) fn difference(&self) -> (Vec<i32>, Vec<i32>) {
        (without(&self.recorded, &self.live), without(&self.live, &self.recorded))
    }
}

fn without(all: &[i32], taken: &[i32]) -> Vec<i32> {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for id in taken {
        *counts.entry(*id).or_default() += 1;
    }
    let mut left = Vec::new();
    for id in all {
        match counts.get_mut(id) {
            Some(count) if *count > 0 => *count -= 1,
            _ => left.push(*id),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps() -> Topic {
        Topic::Granted("1".to_owned(), 0)
    }

    #[test]
    fn waits_for_as_many_as_were_recorded() {
        let mut ledger = NotificationLedger::default();
        ledger.arrive(maps(), [1]);
        assert_eq!(ledger.missing(), []);
        ledger.record(maps(), [1, 3, 2]);
        assert_eq!(ledger.missing(), [maps()]);
        ledger.arrive(maps(), [2, 3]);
        assert_eq!(ledger.missing(), []);
    }

    #[test]
    fn what_did_not_come_is_waited_for_once() {
        let mut ledger = NotificationLedger::default();
        ledger.record(maps(), [1, 2]);
        ledger.arrive(maps(), [1]);
        ledger.forgive(&maps());
        assert_eq!(ledger.missing(), []);
        ledger.record(maps(), [3]);
        assert_eq!(ledger.missing(), [maps()]);
        ledger.arrive(maps(), [3]);
        assert_eq!(ledger.missing(), []);
    }

    #[test]
    fn differences_count_every_entry() {
        let page = TopicEntries {
            recorded: vec![1, 2, 2, 3],
            live: vec![3, 2, 4, 4],
            ..TopicEntries::default()
        };
        assert_eq!(page.difference(), (vec![1, 2], vec![4, 4]));
    }
}
