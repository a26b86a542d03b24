//! Matches both sides' revocations and dead nodes.

use std::sync::Arc;
use std::time::Duration;

use super::books::{DueWhat, ExpectedDecision, OurDeadNode, OurRevocation, TheirDecision};
use super::comparison::Comparison;
use super::counts::{Change, ON};
use super::notices::{GIVEN_BACK, OUT_OF_REACH, describe};
use crate::report::Rule;
use corona_engine::ObservedState;
use corona_model::types::{Grant, ResourceType};

const REVOKE: &str = "revokeResource";
const DEAD_NODE: &str = "processDeadNode";

impl Comparison {
    pub(super) fn we_revoke(&mut self, handle: &Arc<str>, grant: &Grant) {
        let (id, node, kind) = (grant.id, grant.node_name.clone(), grant.kind);
        let stamp = self.books.stamp();
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let made = session.made(self.now);
        let ours = OurRevocation { id, node, made, stamp, released: false };
        session.of_type(kind).revocations.push_back(ours);
        self.is_due(handle, DueWhat::Revocation(kind), stamp, self.patience);
    }

    /// The primary has revoked something, by the time `since`. Returns whether the revocation is dealt with.
    pub(super) fn they_revoke(
        &mut self,
        handle: &Arc<str>,
        grant: &Grant,
        since: Duration,
    ) -> bool {
        let (id, kind, waited) = (grant.id, grant.kind, self.has_waited(since));
        let crossed = self.has_crossed();
        let Some(session) = self.books.sessions.get_mut(handle) else { return true };
        if let Some((ours, first)) = session.of_type(kind).take_revocation(id) {
            self.books.open.remove(&ours.stamp);
            if !ours.released {
                self.time_revocation(handle, grant, since, ours.made);
                let change = Change { gain: false, ours: (ours.made.at, ON), theirs: Some(since) };
                self.changes(handle, kind, change);
            }
            match first {
                None => self.stats.notice(REVOKE).equal += 1,
                Some(first) => {
                    let rule = crossed.then_some(Rule::FREE_ORDER);
                    let ours = format!("request {first} is revoked before {id}");
                    self.revocation_differs(handle, grant, rule, &ours);
                }
            }
            return true;
        }
        let standing = self.oracle.engine().standing(handle, id);
        match standing {
            Some(ObservedState::Granted(_)) if !waited => return false,
            Some(ObservedState::Granted(_)) => {
                let instead = self.revoked_instead(handle, kind);
                let rule = match instead.is_some() || crossed {
                    true => Some(Rule::FREE_ORDER),
                    false => self.has_new_pool(kind, since).then_some(Rule::NEW_POOL_WAITS),
                };
                let ours = match &instead {
                    Some(first) => format!("request {first} is revoked instead"),
                    None => "it stays granted".to_owned(),
                };
                self.revocation_differs(handle, grant, rule, &ours);
                self.enter_loss(handle, id);
                let change = Change { gain: false, ours: (self.now, ON), theirs: Some(since) };
                self.changes(handle, kind, change);
            }
            Some(ObservedState::Waiting) => {
                self.revocation_differs(handle, grant, None, "it is pending, and holds no slot");
            }
            Some(ObservedState::Lost) => {
                self.revocation_differs(handle, grant, None, "it has been revoked already");
            }
            None if self.was_released(handle, id) => self.notice_not_compared(REVOKE, GIVEN_BACK),
            None => self.revocation_differs(handle, grant, None, "it was never requested"),
        }
        true
    }

    /// The request that we have revoked where the primary has revoked another one. It gets its slot
    /// back.
    fn revoked_instead(&mut self, handle: &Arc<str>, kind: ResourceType) -> Option<i32> {
        let session = self.books.sessions.get_mut(handle)?;
        let first = session.of_type(kind).revocations.pop_front()?;
        let OurRevocation { id, node, made, stamp, .. } = first;
        let change = Change { gain: false, ours: (made.at, self.now), theirs: None };
        session.of_type(kind).changes.note(self.now, change);
        self.books.open.remove(&stamp);
        self.enter_grant(handle, id, &node);
        Some(id)
    }

    pub(super) fn revocation_is_due(&mut self, due: &ExpectedDecision, kind: ResourceType) {
        let handle = &due.handle;
        let crossed = self.has_crossed();
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let port = session.driver_port;
        let all = &mut session.of_type(kind).revocations;
        let Some(place) = all.iter().position(|ours| ours.stamp == due.stamp) else { return };
        let Some(ours) = all.remove(place) else { return };
        match self.excuse(ours.released, port) {
            Some(reason) => self.notice_not_compared(REVOKE, reason),
            None => {
                let place = format!("{REVOKE} of request {} to session {handle}", ours.id);
                let here = format!("{kind} request {} on {}", ours.id, ours.node);
                let rule = crossed.then_some(Rule::FREE_ORDER);
                self.notice_differs(REVOKE, rule, place, "nothing", &here);
            }
        }
        if !ours.released {
            let (id, node) = (ours.id, ours.node);
            let change = Change { gain: false, ours: (ours.made.at, self.now), theirs: None };
            self.changes(handle, kind, change);
            self.enter_grant(handle, id, &node);
        }
    }

    fn revocation_differs(
        &mut self,
        handle: &Arc<str>,
        grant: &Grant,
        rule: Option<Rule>,
        ours: &str,
    ) {
        let place = format!("{REVOKE} of request {} to session {handle}", grant.id);
        let theirs = describe(&TheirDecision::Revoked(grant.clone()));
        self.notice_differs(REVOKE, rule, place, &theirs, ours);
    }

    /// The primary has found a node dead, by the time `since`. Returns whether that is dealt with.
    pub(super) fn they_lose(
        &mut self,
        handle: &Arc<str>,
        node: &Arc<str>,
        since: Duration,
    ) -> bool {
        let Some(session) = self.books.sessions.get_mut(handle) else { return true };
        session.lost_node_at = session.lost_node_at.max(Some(since));
        let place = session.dead_nodes.iter().position(|ours| ours.node == *node);
        match place.and_then(|place| session.dead_nodes.remove(place)) {
            Some(ours) => {
                self.books.open.remove(&ours.stamp);
                self.time_death(handle, node, since, ours.made);
                self.stats.notice(DEAD_NODE).equal += 1;
            }
            None if !self.has_waited(since) => return false,
            None => {
                let rule = self.has_crossed().then_some(Rule::FREE_NODE);
                let place = format!("{DEAD_NODE} to session {handle}");
                self.notice_differs(DEAD_NODE, rule, place, &format!("{node} is dead"), "nothing");
            }
        }
        true
    }

    pub(super) fn dead_node_is_due(&mut self, due: &ExpectedDecision) {
        let handle = &due.handle;
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let place = session.dead_nodes.iter().position(|ours| ours.stamp == due.stamp);
        let ours = place.and_then(|place| session.dead_nodes.remove(place));
        let Some(OurDeadNode { node, .. }) = ours else { return };
        if self.troubled_ports.has(&session.driver_port) {
            return self.notice_not_compared(DEAD_NODE, OUT_OF_REACH);
        }
        // Its grants there were moved to where the primary's were.
        let rule = (!session.used.contains(&node)).then_some(Rule::FREE_NODE);
        let place = format!("{DEAD_NODE} to session {handle}");
        self.notice_differs(DEAD_NODE, rule, place, "nothing", &format!("{node} is dead"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::books::Made;
    use super::super::grants::tests::{found, grant_of, watching};
    use super::*;

    /// The primary revokes in the reverse order.
    #[test]
    fn revocations_in_another_order_differ() {
        let mut both = watching(&["n"], &[("s.1", 1, 1_000)]);
        let handle: Arc<str> = "s.1".into();
        let session = both.books.sessions.get_mut(&handle).unwrap();
        for (stamp, id) in [(101, 1), (102, 2)] {
            let (node, made) = ("n".into(), Made::default());
            let ours = OurRevocation { id, node, made, stamp, released: false };
            session.of_type(ResourceType::Map).revocations.push_back(ours);
        }
        for id in [2, 1] {
            assert!(both.they_revoke(&handle, &grant_of(id, "n"), Duration::ZERO));
        }
        let found = found(&mut both);
        assert!(
            found.len() == 1 && found[0].contains("request 1 is revoked before 2"),
            "{found:?}"
        );
        assert_eq!(both.stats.notice(REVOKE).different, 1);
    }
}
