//! Restarting the nodes in batches.
//!
//! Spec: cluster-manager/02 §4. A node gets the order to restart in the reply to a heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::check::{ImageError, check, hold};
use super::types::Millis;

/// The nodes that have not received the order to restart yet, by name.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Those whose batch is still to come, in the order of their restarts.
    order: BTreeMap<u64, Arc<str>>,
    /// Where in the order each of them is.
    waiting: BTreeMap<Arc<str>, u64>,
    last_place: u64,
    ready: BTreeSet<Arc<str>>,
    batch_size: usize,
    next_batch: Option<Millis>,
}

/// The restarts in an [`Image`](super::Image).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RestartsImage {
    order: Vec<(u64, Arc<str>)>,
    last_place: u64,
    ready: Vec<Arc<str>>,
    batch_size: usize,
    next_batch: Option<Millis>,
}

impl Restarts {
    pub(super) fn image(&self) -> RestartsImage {
        RestartsImage {
            order: self.order.iter().map(|(place, node)| (*place, node.clone())).collect(),
            last_place: self.last_place,
            ready: self.ready.iter().cloned().collect(),
            batch_size: self.batch_size,
            next_batch: self.next_batch,
        }
    }

    pub(super) fn from_image(image: RestartsImage) -> Result<Self, ImageError> {
        let RestartsImage { order, last_place, ready, batch_size, next_batch } = image;
        let places = order.iter().all(|(place, _)| *place <= last_place);
        check(places, "a node restarts after all others")?;
        Ok(Restarts {
            waiting: order.iter().map(|(place, node)| (node.clone(), *place)).collect(),
            order: order.into_iter().collect(),
            last_place,
            ready: ready.into_iter().collect(),
            batch_size,
            next_batch,
        })
    }

    /// Adds nodes and releases a batch at once. `force` forgets an earlier restart.
    /// A batch size of 0 or less releases none.
    pub(super) fn add(
        &mut self,
        now: Millis,
        nodes: impl Iterator<Item = Arc<str>>,
        force: bool,
        batch_size: i32,
        interval_ms: i64,
    ) {
        if force {
            self.order.clear();
            self.waiting.clear();
            self.ready.clear();
        }
        self.batch_size = usize::try_from(batch_size).unwrap_or(0);
        for node in nodes {
            if !self.ready.contains(&node) && !self.waiting.contains_key(&node) {
                self.last_place += 1;
                self.order.insert(self.last_place, node.clone());
                self.waiting.insert(node, self.last_place);
            }
        }
        self.release_batch(now, interval_ms);
    }

    /// Releases the next batch when its time has come.
    pub(super) fn release_batch_if_due(&mut self, now: Millis, interval_ms: i64) {
        if self.next_batch.is_some_and(|at| at <= now) {
            self.release_batch(now, interval_ms);
        }
    }

    /// Whether the heartbeating node must restart. It gets the order once.
    pub(super) fn take(&mut self, name: &str) -> bool {
        !self.ready.is_empty() && self.ready.remove(name)
    }

    /// Whether the node is to restart with its next heartbeat.
    pub(super) fn is_due(&self, name: &str) -> bool {
        self.ready.contains(name)
    }

    /// Removes a lost node.
    pub(super) fn forget(&mut self, name: &str) {
        self.ready.remove(name);
        if let Some(place) = self.waiting.remove(name) {
            self.order.remove(&place);
        }
    }

    /// When the next batch is due.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.next_batch
    }

    /// Whether only nodes that exist are waited for, each once, and nothing piles up.
    pub(super) fn audit(&self, exists: impl Fn(&str) -> bool) -> Result<(), String> {
        for name in self.waiting.keys().chain(&self.ready) {
            hold(exists(name), || format!("{name} is to restart, but is unknown"))?;
        }
        let twice = self.ready.iter().any(|name| self.waiting.contains_key(name));
        hold(!twice, || "a node is to restart twice".into())?;
        let listed = |(name, place)| self.order.get(place) == Some(name);
        hold(self.waiting.iter().all(listed), || {
            "a node that waits for its restart is not in the order".into()
        })?;
        let (order, waiting) = (self.order.len(), self.waiting.len());
        hold(order == waiting, || format!("{order} entries for {waiting} restarts"))
    }

    fn release_batch(&mut self, now: Millis, interval_ms: i64) {
        let mut left = self.batch_size;
        while left > 0
            && let Some((_, node)) = self.order.pop_first()
        {
            self.waiting.remove(&node);
            self.ready.insert(node);
            left -= 1;
        }
        let more = !self.waiting.is_empty() && self.batch_size > 0;
        self.next_batch = more.then(|| now.plus_ms(interval_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> std::vec::IntoIter<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn batches_are_released_one_by_one_and_told_once() {
        let mut restarts = Restarts::default();
        restarts.add(Millis(0), names(&["a", "b", "c"]), false, 2, 100);
        assert_eq!(
            ["a", "b", "c", "a"].map(|node| restarts.take(node)),
            [true, true, false, false]
        );
        assert_eq!(restarts.next_deadline(), Some(Millis(100)));
        restarts.release_batch_if_due(Millis(99), 100);
        assert!(!restarts.take("c"));
        restarts.release_batch_if_due(Millis(100), 100);
        assert!(restarts.take("c"));
        assert_eq!(restarts.next_deadline(), None);
    }

    #[test]
    fn nodes_that_are_gone_leave_no_trace() {
        let mut restarts = Restarts::default();
        let all: Vec<String> = (0..200).map(|number| format!("n{number:03}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        restarts.add(Millis(0), names(&all), false, 0, 100);
        let (gone, left) = all.split_at(199);
        gone.iter().for_each(|name| restarts.forget(name));
        assert_eq!(restarts.audit(|name| name == left[0]), Ok(()));
        // A node that is added again waits behind the others.
        restarts.add(Millis(1), names(&["n000"]), false, 1, 100);
        assert!(!restarts.take("n000") && restarts.take(left[0]));
        restarts.forget("n000");
        assert_eq!(restarts.audit(|_| false), Ok(()));
        restarts.release_batch_if_due(Millis(101), 100);
        assert!(!restarts.take("n000") && restarts.next_deadline().is_none());
    }

    #[test]
    fn force_starts_over_and_another_call_adds() {
        let mut restarts = Restarts::default();
        restarts.add(Millis(0), names(&["a", "b"]), false, 1, 100);
        restarts.add(Millis(1), names(&["a", "b"]), false, 1, 100);
        assert!(restarts.take("a") && restarts.take("b"));
        restarts.add(Millis(2), names(&["a", "b"]), false, 1, 100);
        restarts.add(Millis(3), names(&["b"]), true, 5, 100);
        assert!(!restarts.take("a") && restarts.take("b"));
        restarts.add(Millis(4), names(&["a"]), true, 0, 100);
        assert!(!restarts.take("a") && restarts.next_deadline().is_none());
    }
}
