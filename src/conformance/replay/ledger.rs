//! The notifications of each session, in the recording and in the run under test, side by side.
//!
//! Sessions go by their recorded ids, times are those of the recording. Knows no sockets and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

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

/// An entry of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoticeEntry {
    pub(super) id: i32,
    pub(super) at: Duration,
}

/// Both sides of one topic, each in the order of arrival.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicEntries {
    pub(super) recorded: Vec<NoticeEntry>,
    pub(super) live: Vec<NoticeEntry>,
    /// Entries of the recording that are not waited for any more.
    forgiven: usize,
    /// How long the play has waited for entries that have not arrived yet. The play's clock was
    /// set back by as much.
    waited: Duration,
}

impl NotificationLedger {
    /// The recording has these notifications by now.
    pub(super) fn record(&mut self, topic: Topic, id: i32, at: Duration) {
        self.pages.entry(topic).or_default().recorded.push(NoticeEntry { id, at });
    }

    /// The manager under test has sent these notifications.
    pub(super) fn arrive(&mut self, topic: Topic, id: i32, at: Duration) {
        let page = self.pages.entry(topic).or_default();
        if page.live.len() >= page.recorded.len() {
            page.waited = Duration::ZERO;
        }
        page.live.push(NoticeEntry { id, at: at.saturating_add(page.waited) });
    }

    /// Whether a session that is not `handle` has got more grants of a type than were recorded by now,
    /// or fewer.
    pub(super) fn others(&self, handle: &str, kind: i32, more: bool) -> bool {
        self.pages.iter().any(|(topic, page)| match topic {
            Topic::Granted(other, of) if *of == kind && other != handle => {
                let (recorded, live) = (page.recorded.len(), page.live.len());
                if more { live > recorded } else { live < recorded }
            }
            _ => false,
        })
    }

    /// How many grants of a type a session has more than were recorded by now, or fewer, while others
    /// have fewer or more.
    pub(super) fn exchanged(&self, handle: &str, kind: i32) -> i64 {
        let page = self.pages.get(&Topic::Granted(handle.to_owned(), kind));
        let count = |entries: &[NoticeEntry]| i64::try_from(entries.len()).unwrap_or(i64::MAX);
        let more = page.map_or(0, |page| count(&page.live) - count(&page.recorded));
        let by_others = more != 0 && self.others(handle, kind, more < 0);
        if by_others { more } else { 0 }
    }

    /// Whether this request is among the grants of a side.
    pub(super) fn is_granted(&self, handle: &str, kind: i32, id: i32, live: bool) -> bool {
        let page = self.pages.get(&Topic::Granted(handle.to_owned(), kind));
        page.is_some_and(|page| {
            let side = if live { &page.live } else { &page.recorded };
            side.iter().any(|entry| entry.id == id)
        })
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

    /// The play has waited for the missing entries of a topic for so long, without a result. Grants that another
    /// session has instead are not late.
    pub(super) fn waited(&mut self, topic: &Topic, time: Duration) {
        let is_exchanged = match topic {
            Topic::Granted(handle, kind) => self.others(handle, *kind, true),
            _ => false,
        };
        if let Some(page) = self.pages.get_mut(topic).filter(|_| !is_exchanged) {
            page.waited = page.waited.saturating_add(time);
        }
    }

    /// All topics of either side.
    pub(super) fn pages(&self) -> impl Iterator<Item = (&Topic, &TopicEntries)> {
        self.pages.iter()
    }
}

impl TopicEntries {
    /// The same without some entries of either side.
    pub(super) fn retain(
        &mut self,
        recorded: impl FnMut(&NoticeEntry) -> bool,
        live: impl FnMut(&NoticeEntry) -> bool,
    ) {
        self.recorded.retain(recorded);
        self.live.retain(live);
    }

    /// Entries that only one side has, each as often as it is missing on the other: those that are
    /// only recorded, and those that are only live.
    pub(super) fn difference(&self) -> (Vec<NoticeEntry>, Vec<NoticeEntry>) {
        (without(&self.recorded, &self.live), without(&self.live, &self.recorded))
    }

    /// Whether both sides have the same ids in the same order.
    pub(super) fn is_same(&self) -> bool {
        let ids = |side: &[NoticeEntry]| side.iter().map(|entry| entry.id).collect::<Vec<_>>();
        ids(&self.recorded) == ids(&self.live)
    }

    /// The entries that both sides have, one with the other: the first of an id with the first.
    pub(super) fn pairs(&self) -> Vec<(NoticeEntry, NoticeEntry)> {
        let mut live: BTreeMap<i32, Vec<NoticeEntry>> = BTreeMap::new();
        for entry in self.live.iter().rev() {
            live.entry(entry.id).or_default().push(*entry);
        }
        let pair = |recorded: &NoticeEntry| {
            let live = live.get_mut(&recorded.id)?.pop()?;
            Some((*recorded, live))
        };
        self.recorded.iter().filter_map(pair).collect()
    }

    /// Revocations on both sides, one with the other. Which of several grants is revoked is free, but
    /// not when.
    pub(super) fn revocation_pairs(&self) -> Vec<(NoticeEntry, NoticeEntry)> {
        match self.recorded.len() == self.live.len() {
            true => self.recorded.iter().copied().zip(self.live.iter().copied()).collect(),
            false => self.pairs(),
        }
    }
}

fn without(all: &[NoticeEntry], taken: &[NoticeEntry]) -> Vec<NoticeEntry> {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for entry in taken {
        *counts.entry(entry.id).or_default() += 1;
    }
    let mut left = Vec::new();
    for entry in all {
        match counts.get_mut(&entry.id) {
            Some(count) if *count > 0 => *count -= 1,
            _ => left.push(*entry),
        }
    }
    left
}

/// The ids of entries, for people.
pub(super) fn ids(entries: &[NoticeEntry]) -> String {
    let all: Vec<String> = entries.iter().map(|entry| entry.id.to_string()).collect();
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps() -> Topic {
        Topic::Granted("1".to_owned(), 0)
    }

    fn entries(ids: &[i32]) -> Vec<NoticeEntry> {
        let entry = |(id, ms)| NoticeEntry { id, at: Duration::from_millis(ms) };
        ids.iter().copied().zip(0..).map(entry).collect()
    }

    impl NotificationLedger {
        fn record_all(&mut self, ids: &[i32]) {
            ids.iter().for_each(|id| self.record(maps(), *id, Duration::ZERO));
        }

        fn arrive_all(&mut self, ids: &[i32]) {
            ids.iter().for_each(|id| self.arrive(maps(), *id, Duration::ZERO));
        }
    }

    #[test]
    fn waits_for_as_many_as_were_recorded() {
        let mut ledger = NotificationLedger::default();
        ledger.arrive_all(&[1]);
        assert_eq!(ledger.missing(), []);
        ledger.record_all(&[1, 3, 2]);
        assert_eq!(ledger.missing(), [maps()]);
        ledger.arrive_all(&[2, 3]);
        assert_eq!(ledger.missing(), []);
    }

    #[test]
    fn a_missing_notification_is_waited_for_once() {
        let mut ledger = NotificationLedger::default();
        ledger.record_all(&[1, 2]);
        ledger.arrive_all(&[1]);
        ledger.forgive(&maps());
        assert_eq!(ledger.missing(), []);
        ledger.record_all(&[3]);
        assert_eq!(ledger.missing(), [maps()]);
        ledger.arrive_all(&[3]);
        assert_eq!(ledger.missing(), []);
    }

    #[test]
    fn entries_that_were_waited_for_in_vain_are_late() {
        let second = Duration::from_secs(1);
        let of_other = Topic::Granted("2".to_owned(), 0);
        for (exchanged, late) in [(false, 5), (true, 0)] {
            let mut ledger = NotificationLedger::default();
            ledger.record_all(&[1]);
            if exchanged {
                ledger.arrive(of_other.clone(), 9, second);
            }
            ledger.waited(&maps(), 5 * second);
            ledger.arrive(maps(), 1, second);
            ledger.arrive(maps(), 2, second);
            let (_, page) = ledger.pages().find(|(topic, _)| **topic == maps()).unwrap();
            let times: Vec<Duration> = page.live.iter().map(|entry| entry.at).collect();
            assert_eq!(times, [second + late * second, second]);
        }
    }

    #[test]
    fn differences_count_every_entry() {
        let page = TopicEntries {
            recorded: entries(&[1, 2, 2, 3]),
            live: entries(&[3, 2, 4, 4]),
            ..TopicEntries::default()
        };
        let (recorded, live) = page.difference();
        assert_eq!((ids(&recorded), ids(&live)), ("1, 2".to_owned(), "4, 4".to_owned()));
        let pairs = page.pairs();
        let pairs: Vec<_> = pairs.iter().map(|(one, other)| (one.id, other.id)).collect();
        assert_eq!((pairs, ids(&[])), (vec![(2, 2), (3, 3)], "none".to_owned()));
    }
}
