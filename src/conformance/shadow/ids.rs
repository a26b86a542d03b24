//! The ids that the primary hands out: learned, not compared with own ones.
//!
//! An id is `<start>.<number>`, where `<start>` is when the primary started
//! (spec: cluster-manager/02 §3.1). The shadow goes by the primary's ids, so that nothing that names
//! a session has to be translated.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The primary's session ids, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    start: Option<Arc<str>>,
    last: i64,
    /// Numbers below the last one that no client was seen to receive: other calls were faster, or were not
    /// made through here.
    missed: BTreeSet<i64>,
}

/// The meaning of an id that the primary handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// It is one that may follow.
    New,
    /// It was handed out before.
    Again,
    /// It begins otherwise: the primary was started again.
    OtherStart,
    /// It is no session id.
    Strange,
}

/// Calls that may be in flight when the first id is seen.
const UNDER_WAY: usize = 1_000;

/// Numbers that are remembered as missed.
const MAX_MISSED: usize = 10_000;

impl Ids {
    /// Records an id that the primary has handed out.
    pub(super) fn handed_out(&mut self, id: &str) -> Id {
        let Some((start, number)) = split(id) else { return Id::Strange };
        match &self.start {
            None => self.learn(start, number),
            Some(known) if **known != *start => return Id::OtherStart,
            Some(_) if number > self.last => {
                let room = MAX_MISSED.saturating_sub(self.missed.len());
                self.missed.extend((self.last + 1..number).rev().take(room));
                self.last = number;
            }
            Some(_) if self.missed.remove(&number) => {}
            Some(_) => return Id::Again,
        }
        Id::New
    }

    /// Learns how ids begin from a session, if that is not known yet. False if it is not one of the
    /// primary's.
    pub(super) fn seen(&mut self, handle: &str) -> bool {
        match (split(handle), &self.start) {
            (Some((start, number)), None) => {
                self.learn(start, number);
                // Evidence of its assignment may come later: the primary itself reported its
                // session.
                self.missed.insert(number);
                true
            }
            (Some((start, _)), Some(known)) => **known == *start,
            (None, _) => false,
        }
    }

    /// How ids begin, and the largest number seen; none while no id was seen.
    pub(super) fn identity(&self) -> Option<(Arc<str>, i64)> {
        self.start.clone().map(|start| (start, self.last))
    }

    fn learn(&mut self, start: &str, number: i64) {
        self.start = Some(start.into());
        self.last = number;
        // Any of the calls in flight at first may have been the first.
        self.missed = (1..number).rev().take(UNDER_WAY).collect();
    }
}

fn split(id: &str) -> Option<(&str, i64)> {
    let (start, number) = id.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(start) && start.len() <= 20 && digits(number)).then_some(())?;
    Some((start, number.parse().ok().filter(|number| *number < i64::from(i32::MAX))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_once_and_in_any_order() {
        let mut ids = Ids::default();
        for (id, expected) in [
            ("202611220900.5007", Id::New),
            ("202611220900.5008", Id::New),
            ("202611220900.5008", Id::Again),
            ("202611220900.5011", Id::New),
            ("202611220900.5009", Id::New),
            ("202611220900.5009", Id::Again),
            ("202611220900.5006", Id::New),
            ("202611220900.5006", Id::Again),
            ("202611220900.3", Id::Again),
            ("202611220901.1", Id::OtherStart),
            ("hello", Id::Strange),
            ("202611220900.", Id::Strange),
            ("202611220900.99999999999999999999", Id::Strange),
        ] {
            assert_eq!(ids.handed_out(id), expected, "{id}");
        }
        assert_eq!(ids.identity(), Some(("202611220900".into(), 5011)));
    }

    #[test]
    fn a_session_may_be_heard_of_before_its_id_is_seen() {
        let mut ids = Ids::default();
        assert!(ids.seen("202611220900.2"));
        for (id, expected) in [("2", Id::New), ("1", Id::New), ("2", Id::Again), ("3", Id::New)] {
            assert_eq!(ids.handed_out(&format!("202611220900.{id}")), expected, "{id}");
        }
        assert!(ids.seen("202611220900.7") && !ids.seen("202611220901.1") && !ids.seen("hello"));
    }

    #[test]
    fn missed_ids_have_a_bound() {
        let mut ids = Ids::default();
        ids.handed_out("1.1");
        ids.handed_out("1.2000000000");
        assert_eq!(ids.missed.len(), MAX_MISSED);
    }
}
