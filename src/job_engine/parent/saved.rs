//! What a remote leaves with the parent for the next one: updates as they came. That an attempt waits to
//! commit is kept until more is known of it. Pure.

use std::collections::BTreeMap;

use corona_mapreduce::AttemptKey;
use serde::{Deserialize, Serialize};

/// What an update takes beside its bytes.
const OVERHEAD: usize = 64;

/// One update of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedUpdate {
    /// The attempt whose status it is, if it is one.
    pub status_of: Option<AttemptKey>,
    /// Whether it is of no use once another status of its attempt comes.
    pub is_passing: bool,
    /// Its time, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The update as it travels.
    pub bytes: Vec<u8>,
}

/// The state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedState {
    updates: Vec<SavedUpdate>,
    /// Where passing statuses are.
    passing: BTreeMap<AttemptKey, u32>,
    bytes: usize,
    is_cut: bool,
}

/// The state would be too large; from now on it is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl SavedState {
    /// Adds updates. Errors: there are more than `most` bytes, now or before; nothing is added then.
    pub fn add(&mut self, updates: Vec<SavedUpdate>, most: usize) -> Result<(), TooLarge> {
        let more: usize = updates.iter().map(size).sum();
        if self.is_cut || self.bytes.saturating_add(more) > most {
            *self = SavedState { is_cut: true, ..SavedState::default() };
            return Err(TooLarge);
        }
        for update in updates {
            self.bytes += size(&update);
            let known = update.status_of.and_then(|key| self.passing.remove(&key));
            let at = known.unwrap_or(u32::try_from(self.updates.len()).unwrap_or(u32::MAX));
            if let Some(key) = update.status_of.filter(|_| update.is_passing) {
                self.passing.insert(key, at);
            }
            match self.updates.get_mut(at as usize) {
                Some(place) => {
                    self.bytes -= size(place);
                    *place = update;
                }
                None => self.updates.push(update),
            }
        }
        Ok(())
    }

    /// Whether updates were refused.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// How many updates there are.
    pub fn len(&self) -> usize {
        self.updates.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// The updates in the order of their times; those of one time in the order in which they came.
    pub fn in_order(&self) -> Vec<&SavedUpdate> {
        let mut updates: Vec<&SavedUpdate> = self.updates.iter().collect();
        updates.sort_by_key(|update| update.at_ms);
        updates
    }
}

fn size(update: &SavedUpdate) -> usize {
    update.bytes.len() + OVERHEAD
}
