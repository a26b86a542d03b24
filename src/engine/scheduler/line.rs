//! The sessions of a pool that may be given more, in order.
//!
//! Where a queue of the path limits users, a user who may hold no more is passed over. Each user's sessions
//! are in order there, and only the first of each user who may hold more is in the order of all: a grant
//! with which a user reaches or leaves the limit moves one session of each pool, however many wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::order::SessionKey;
use super::queue::Queue;

/// Sessions in order.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// All sessions; where users are limited, the first of each who may hold more.
    first: Queue<SessionKey>,
    /// The sessions of each user, where users are limited.
    users: BTreeMap<Arc<str>, UserLine>,
}

#[derive(Debug, Default)]
struct UserLine {
    /// Never empty.
    sessions: Queue<SessionKey>,
    /// Whether the user may hold more.
    open: bool,
}

impl UserLine {
    fn head(&self) -> Option<SessionKey> {
        self.sessions.first().filter(|_| self.open).cloned()
    }
}

impl Line {
    pub(super) fn first(&self) -> Option<&SessionKey> {
        self.first.first()
    }

    /// Whether no session may be given more.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Sessions that are in line, those too of users who may hold no more.
    pub(super) fn len(&self) -> usize {
        match self.users.is_empty() {
            true => self.first.len(),
            false => self.users.values().map(|user| user.sessions.len()).sum(),
        }
    }

    /// Sessions that come first: all, or the first of each user who may hold more.
    pub(super) fn heads(&self) -> usize {
        self.first.len()
    }

    pub(super) fn contains(&self, key: &SessionKey, user: &str) -> bool {
        self.is_of_user(key, user) || (self.users.is_empty() && self.first.contains(key))
    }

    /// Whether users are as `open` says, and the first session of each who may hold more comes first.
    pub(super) fn has_open(&self, open: impl Fn(&str) -> bool) -> bool {
        let heads = || self.users.values().filter_map(UserLine::head);
        self.users.iter().all(|(name, user)| user.open == open(name))
            && heads().all(|head| self.first.contains(&head))
            && (self.users.is_empty() || heads().count() == self.first.len())
    }

    fn is_of_user(&self, key: &SessionKey, user: &str) -> bool {
        self.users.get(user).is_some_and(|line| line.sessions.contains(key))
    }

    /// The sessions of users who may hold more that come before `key`, in order.
    pub(super) fn before(&self, key: &SessionKey) -> Vec<&SessionKey> {
        if self.users.is_empty() {
            return self.first.before(key).collect();
        }
        let open = self.users.values().filter(|user| user.open);
        let mut before: Vec<&SessionKey> =
            open.flat_map(|user| user.sessions.before(key)).collect();
        before.sort_unstable();
        before
    }

    /// Adds a session. `limited` says whether its user may hold more, where users are limited.
    pub(super) fn insert(&mut self, key: SessionKey, user: &Arc<str>, limited: Option<bool>) {
        let Some(open) = limited else { return self.first.insert(key) };
        self.users.entry(user.clone()).or_default();
        self.change_user(user, |line| {
            line.sessions.insert(key);
            line.open = open;
        });
    }

    pub(super) fn remove(&mut self, key: &SessionKey, user: &str) {
        // Where users have just been limited, or are no more, others of the user may be elsewhere.
        if !self.is_of_user(key, user) {
            return self.first.remove(key);
        }
        self.change_user(user, |line| line.sessions.remove(key));
        if self.users.get(user).is_some_and(|line| line.sessions.is_empty()) {
            self.users.remove(user);
        }
    }

    /// Changes the key of a session and moves the session to its new place.
    pub(super) fn change(
        &mut self,
        key: &SessionKey,
        user: &str,
        change: impl FnOnce(&mut SessionKey),
    ) {
        match self.is_of_user(key, user) {
            false => self.first.change(key, change),
            true => self.change_user(user, |line| line.sessions.change(key, change)),
        }
    }

    /// Notes whether a user may hold more.
    pub(super) fn set_open(&mut self, user: &str, open: bool) {
        self.change_user(user, |line| line.open = open);
    }

    /// Changes a user's sessions, and lets the first of them stand for them.
    fn change_user(&mut self, user: &str, change: impl FnOnce(&mut UserLine)) {
        let Some(line) = self.users.get_mut(user) else { return };
        let before = line.head();
        change(line);
        let after = line.head();
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.first.remove(&before);
        }
        if let Some(after) = after {
            self.first.insert(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::index::{Idx as _, SessionIdx};
    use crate::scheduler::SessionStanding;
    use crate::settings::SchedulingMode::Fair;
    use crate::types::{Millis, SessionPriority};

    fn standing(granted: i64, name: &Arc<str>) -> SessionStanding<'_> {
        let priority = SessionPriority::Normal;
        SessionStanding { priority, granted, deadline: 0, started: Millis(0), name }
    }

    proptest! {
        #[test]
        fn the_first_session_is_that_of_those_whose_users_may_hold_more(
            limited: bool,
            steps in prop::collection::vec((0..4u8, 0..9u32, 0..5i64), 0..60),
        ) {
            let names: [Arc<str>; 3] = ["ann", "bob", "eve"].map(Into::into);
            let mut line = Line::default();
            let mut open = [true; 3];
            let mut plain: BTreeMap<u32, SessionKey> = BTreeMap::new();
            for (step, session, granted) in steps {
                let of = session as usize % 3;
                let user = &names[of];
                let key = SessionKey::new(Fair, standing(granted, user), SessionIdx::from_number(session));
                match (step, plain.get(&session).cloned()) {
                    (0, None) => {
                        line.insert(key.clone(), user, limited.then_some(open[of]));
                        plain.insert(session, key);
                    }
                    (1, Some(old)) => {
                        line.remove(&old, user);
                        plain.remove(&session);
                    }
                    (2, Some(old)) => {
                        line.change(&old, user, |key| key.update(Fair, &standing(granted, user)));
                        plain.insert(session, key);
                    }
                    (3, _) => {
                        open[of] = !open[of];
                        line.set_open(user, open[of]);
                    }
                    _ => {}
                }
                let may = |session: &u32| !limited || open[*session as usize % 3];
                let mut sorted: Vec<&SessionKey> =
                    plain.iter().filter(|(session, _)| may(session)).map(|(_, key)| key).collect();
                sorted.sort_unstable();
                prop_assert_eq!(line.first(), sorted.first().copied());
                prop_assert_eq!((line.len(), line.is_empty()), (plain.len(), sorted.is_empty()));
                if let Some(last) = sorted.last() {
                    prop_assert_eq!(line.before(last), sorted[..sorted.len() - 1].to_vec());
                }
                for (session, key) in &plain {
                    prop_assert!(line.contains(key, &names[*session as usize % 3]));
                }
                let is_open = |user: &str| names.iter().zip(open).any(|(name, open)| open && **name == *user);
                prop_assert!(line.has_open(is_open));
            }
        }
    }
}
