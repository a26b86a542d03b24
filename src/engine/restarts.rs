//! Restarting the nodes in batches.
//!
//! Spec: cluster-manager/02 §4. A node is told to restart in the answer to a heartbeat.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::audit::hold;
use super::types::Millis;

/// The nodes that are still to be told to restart, by name.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// In order; names that are not in `waiting` any more are passed over.
    order: VecDeque<Arc<str>>,
    waiting: BTreeSet<Arc<str>>,
    ready: BTreeSet<Arc<str>>,
    batch_size: usize,
    next_batch: Option<Millis>,
}

impl Restarts {
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
            if !self.ready.contains(&node) && self.waiting.insert(node.clone()) {
                self.order.push_back(node);
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

    /// Whether the node that heartbeats is to restart. It is told once.
    pub(super) fn take(&mut self, name: &str) -> bool {
        !self.ready.is_empty() && self.ready.remove(name)
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.ready.remove(name);
        self.waiting.remove(name);
    }

    /// When the next batch is due.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.next_batch
    }

    /// Whether only nodes that exist are waited for, each once, and nothing piles up.
    pub(super) fn audit(&self, exists: impl Fn(&str) -> bool) -> Result<(), String> {
        for name in self.waiting.iter().chain(&self.ready) {
            hold(exists(name), || format!("{name} is to restart, but is gone"))?;
        }
        hold(self.waiting.is_disjoint(&self.ready), || "a node is to restart twice".into())?;
        let listed = self.waiting.iter().all(|name| self.order.contains(name));
        hold(listed, || "a node that waits for its restart is not in the order".into())?;
        let (order, waiting) = (self.order.len(), self.waiting.len());
        hold(order <= 2 * waiting + 64, || format!("{order} entries for {waiting} restarts"))
    }

    fn release_batch(&mut self, now: Millis, interval_ms: i64) {
        let mut left = self.batch_size;
        while left > 0
            && let Some(node) = self.order.pop_front()
        {
            if self.waiting.remove(&node) {
                self.ready.insert(node);
                left -= 1;
            }
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
