//! The session ids that users have been given: nobody starts a session under an id that is another one's, or that
//! will be.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corona_engine::Engine;

/// Ids of one user that are remembered. A client starts its session at once.
const MAX_OF_USER: usize = 256;

/// The ids that users of certificates have been given by this process.
#[derive(Debug)]
pub(super) struct GivenSessions {
    id_prefix: Arc<str>,
    /// Ids up to this number were given before this process began; whose they are is not known.
    before: i64,
    given: Mutex<HashMap<String, VecDeque<String>>>,
}

impl GivenSessions {
    /// None yet.
    pub(super) fn new(engine: &Engine) -> GivenSessions {
        let (id_prefix, before) = engine.session_ids();
        GivenSessions { id_prefix: id_prefix.clone(), before, given: Mutex::default() }
    }

    /// A user has been given this id.
    pub(super) fn note(&self, user: &str, handle: &str) {
        let mut given = self.lock();
        let own = given.entry(user.to_owned()).or_default();
        own.push_back(handle.to_owned());
        if own.len() > MAX_OF_USER {
            own.pop_front();
        }
    }

    /// Whether the user may start a session under this id.
    pub(super) fn may_start(&self, user: &str, handle: &str) -> bool {
        let is_own = self.lock().get(user).is_some_and(|own| own.iter().any(|id| id == handle));
        is_own || self.is_from_before(handle)
    }

    fn is_from_before(&self, handle: &str) -> bool {
        let number = handle.strip_prefix(&*self.id_prefix).and_then(|rest| rest.strip_prefix('.'));
        let number = number.and_then(|number| number.parse::<i64>().ok());
        number.is_some_and(|number| {
            (1..=self.before).contains(&number) && format!("{}.{number}", self.id_prefix) == handle
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, VecDeque<String>>> {
        // Each change is whole, so it can be used after a panic too.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_starts_sessions_under_own_ids_only() {
        let given =
            GivenSessions { id_prefix: "202611".into(), before: 7, given: Mutex::default() };
        given.note("alice", "202611.8");
        given.note("bob", "202611.9");
        for (user, handle, may) in [
            ("alice", "202611.8", true),
            ("alice", "202611.9", false),
            ("bob", "202611.9", true),
            ("bob", "202611.8", false),
            // Not given yet.
            ("alice", "202611.10", false),
            ("alice", "202611.999999999999999999999", false),
            // A client may have got it from the process before.
            ("alice", "202611.7", true),
            ("alice", "202611.0", false),
            ("alice", "202611.-1", false),
            ("alice", "202611.07", false),
            ("alice", "202611.+7", false),
            ("alice", "202611", false),
            ("alice", "", false),
        ] {
            assert_eq!(given.may_start(user, handle), may, "{user} {handle}");
        }
    }

    #[test]
    fn ids_that_a_user_never_uses_take_a_bounded_space_and_no_place_of_others() {
        let given =
            GivenSessions { id_prefix: "202611".into(), before: 0, given: Mutex::default() };
        given.note("bob", "202611.1");
        for number in 2..2_000 {
            given.note("alice", &format!("202611.{number}"));
        }
        assert_eq!(given.lock()["alice"].len(), MAX_OF_USER);
        assert!(given.may_start("alice", "202611.1999"));
        assert!(given.may_start("bob", "202611.1") && !given.may_start("alice", "202611.1"));
    }
}
