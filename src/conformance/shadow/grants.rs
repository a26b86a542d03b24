//! Matches the grants of both sides, and makes the books follow the primary's.

use std::sync::Arc;
use std::time::Duration;

use super::books::{DueWhat, ExpectedDecision, OurGrant, TheirDecision};
use super::comparison::Comparison;
use super::counts::{Change, ON};
use super::notices::{GIVEN_BACK, OUT_OF_REACH, describe};
use crate::report::Rule;
use corona_engine::{Objection, Observed, ObservedState};
use corona_model::types::{Grant, ResourceType};

/// How often in a row the primary may serve other sessions first.
const PASSED_OVER: u32 = 50;

const GRANT: &str = "grantResource";
const LEARNING: &str = "grants on nodes that have not sent a heartbeat yet";

impl Comparison {
    pub(super) fn we_grant(&mut self, handle: &Arc<str>, grant: Grant) {
        let Grant { id, node_name: node, kind, .. } = grant;
        let near = self.oracle.engine().is_near(handle, id, &node);
        let stamp = self.books.stamp();
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let made = session.made(self.now);
        let ours = OurGrant { id, node: node.clone(), near, made, stamp, released: false };
        session.of_type(kind).grants.push_back(ours);
        self.books.is_unconfirmed_on(&node, handle, id);
        self.is_due(handle, DueWhat::Grant(kind), stamp, self.patience);
    }

    /// The primary has granted something, by the time `since`. Returns whether the grant is dealt with.
    pub(super) fn they_grant(&mut self, handle: &Arc<str>, grant: &Grant, since: Duration) -> bool {
        let (id, kind) = (grant.id, grant.kind);
        let crossed = self.has_crossed();
        if self.awaits_move(handle, grant, since) {
            return false;
        }
        let Some(session) = self.books.sessions.get_mut(handle) else { return true };
        let books = session.of_type(kind);
        if let Some((ours, first)) = books.take_grant(id) {
            books.put_back.remove(&id);
            books.passed_over = 0;
            session.used.insert(grant.node_name.clone());
            self.books.is_settled_on(&ours.node, handle, id);
            self.books.open.remove(&ours.stamp);
            if !ours.released {
                self.time_grant(handle, grant, &ours, since);
                let change = Change { gain: true, ours: (ours.made.at, ON), theirs: Some(since) };
                self.changes(handle, kind, change);
            }
            self.same_grant(handle, grant, &ours, first, crossed);
            return true;
        }
        match self.oracle.engine().standing(handle, id) {
            Some(ObservedState::Waiting) => self.they_choose(handle, grant, since),
            Some(ObservedState::Granted(node)) => {
                let ours = format!("it has been granted already, on {node}");
                self.grant_differs(handle, grant, None, &ours);
                true
            }
            Some(ObservedState::Lost) => {
                // The session has ended here, or it was revoked here and not there.
                self.notice_not_compared(GRANT, GIVEN_BACK);
                self.enter_grant(handle, grant.id, &grant.node_name);
                self.gains_here(handle, kind, since);
                true
            }
            None if self.was_released(handle, id) => {
                self.notice_not_compared(GRANT, GIVEN_BACK);
                true
            }
            None => {
                let ours = "the request was never made, or was released";
                self.grant_differs(handle, grant, None, ours);
                true
            }
        }
    }

    /// Whether a grant of ours is to move to the primary's node, and news may still make room there.
    fn awaits_move(&self, handle: &Arc<str>, grant: &Grant, since: Duration) -> bool {
        let engine = self.oracle.engine();
        let node = &grant.node_name;
        engine.settings().resources.are_counted()
            && matches!(engine.standing(handle, grant.id), Some(ObservedState::Granted(at)) if at != *node)
            && engine.may_serve(handle, grant.id, node)
            && !engine.has_room(handle, grant.id, node)
            && self.awaits_room(grant.kind, since)
    }

    /// Whether news may still make room for a grant of the primary's: those of a revocation or, where resources are
    /// counted, of the end of a larger grant.
    fn awaits_room(&self, kind: ResourceType, since: Duration) -> bool {
        let counts = self.oracle.engine().settings().resources.are_counted();
        !self.has_waited(since) && (counts || self.books.unmatched_revocations[kind] > 0)
    }

    /// Both have granted the same request.
    fn same_grant(
        &mut self,
        handle: &Arc<str>,
        grant: &Grant,
        ours: &OurGrant,
        expected: Option<i32>,
        crossed: bool,
    ) {
        if ours.released {
            // The session was notified too late to use it, and the node does not matter.
            return self.stats.notice(GRANT).equal += 1;
        }
        if let Err(objection) = self.oracle.engine().check_grant(handle, grant) {
            return self.objected(handle, grant, &objection);
        }
        let near = self.oracle.engine().is_near(handle, grant.id, &grant.node_name);
        self.stats.near.of += 1;
        self.stats.near.primary += u64::from(near);
        self.stats.near.ours += u64::from(ours.near);
        if let Some(expected) = expected {
            let rule = crossed.then_some(Rule::FREE_ORDER);
            let ours = format!("request {expected} is granted before {}", grant.id);
            self.grant_differs(handle, grant, rule, &ours);
            if grant.node_name != our_node(self, handle, grant.id) {
                self.move_to(handle, grant);
            }
            return;
        }
        if ours.node == grant.node_name {
            return self.stats.notice(GRANT).equal += 1;
        }
        let here = format!("on {}", ours.node);
        self.grant_differs(handle, grant, Some(Rule::FREE_NODE), &here);
        self.move_to(handle, grant);
    }

    /// Moves our grant to the node of the primary's. A grant that is in the way there, and that the
    /// primary has not made, moves to the node that becomes free.
    fn move_to(&mut self, handle: &Arc<str>, grant: &Grant) {
        let from = our_node(self, handle, grant.id);
        let node = &grant.node_name;
        while !self.oracle.engine().has_room(handle, grant.id, node) {
            let Some((other, id, kind)) = self.in_the_way(node, grant.kind) else {
                self.no_room(handle, grant);
                break;
            };
            let engine = self.oracle.engine();
            // What becomes free may be too little for it where resources are counted.
            let may_move = !engine.settings().resources.are_counted()
                && engine.may_serve(&other, id, &from)
                && !engine.has_room(&other, id, &from);
            match may_move && self.enter_grant(&other, id, &from) {
                true => self.has_moved(&other, id, kind, &from),
                false => self.put_back(&other, id, kind),
            }
        }
        self.enter_grant(handle, grant.id, node);
    }

    /// The primary has granted a request that waits here. Returns whether the grant is dealt with.
    fn they_choose(&mut self, handle: &Arc<str>, grant: &Grant, since: Duration) -> bool {
        let (id, kind, node) = (grant.id, grant.kind, grant.node_name.clone());
        let waited = self.has_waited(since);
        if let Err(objection) = self.oracle.engine().check_grant(handle, grant) {
            if matches!(objection, Objection::UnknownNode(_)) && self.is_learning() {
                self.notice_not_compared(GRANT, LEARNING);
                self.enter_loss(handle, id);
                return true;
            }
            if !waited && !objection.can_be_followed() {
                return false;
            }
            self.objected(handle, grant, &objection);
            self.gains_here(handle, kind, since);
            return true;
        }
        let has_room =
            |comparison: &Comparison| comparison.oracle.engine().has_room(handle, id, &node);
        if has_room(self) {
            if !waited {
                return false;
            }
            // Both saw the same for long enough: there was room, and a request.
            let crossed = self.has_crossed().then_some(Rule::FREE_ORDER);
            self.grant_differs(handle, grant, crossed, "it waits");
            self.confirm_choice(handle, grant);
            self.gains_here(handle, kind, since);
            return true;
        }
        if self.awaits_room(kind, since) {
            return false;
        }
        let mut instead = None;
        while !has_room(self) {
            let Some((other, other_id, of)) = self.in_the_way(&node, kind) else { break };
            self.put_back(&other, other_id, of);
            self.is_passed_over(&other, handle, of);
            instead = Some((other, other_id, of));
        }
        if !has_room(self) && !waited && instead.is_none() {
            return false;
        }
        match instead.filter(|_| has_room(self)) {
            Some((other, other_id, of)) => {
                let same = other == *handle && of == kind;
                let rule = (!same || self.has_crossed() || self.is_unsettled(handle, kind))
                    .then_some(Rule::FREE_ORDER);
                let ours = format!("request {other_id} of session {other} comes first");
                self.grant_differs(handle, grant, rule, &ours);
            }
            None => self.no_room(handle, grant),
        }
        self.confirm_choice(handle, grant);
        self.gains_here(handle, kind, since);
        true
    }

    /// A grant of the primary is entered that was not made here.
    fn gains_here(&mut self, handle: &Arc<str>, kind: ResourceType, since: Duration) {
        let change = Change { gain: true, ours: (self.now, ON), theirs: Some(since) };
        self.changes(handle, kind, change);
    }

    /// Enters the primary's choice.
    fn confirm_choice(&mut self, handle: &Arc<str>, grant: &Grant) {
        self.enter_grant(handle, grant.id, &grant.node_name);
        if let Some(session) = self.books.sessions.get_mut(handle) {
            session.used.insert(grant.node_name.clone());
            let books = session.of_type(grant.kind);
            books.put_back.remove(&grant.id);
            books.passed_over = 0;
        }
    }

    /// Enters that a request has a slot of a node at the primary. Returns whether that could be done.
    pub(super) fn enter_grant(&mut self, handle: &Arc<str>, id: i32, node: &Arc<str>) -> bool {
        let (handle, node) = (handle.clone(), node.clone());
        self.oracle.observe(self.now, Observed::Granted { handle, id, node })
    }

    /// Enters that a request has no slot at the primary yet.
    fn enter_wait(&mut self, handle: &Arc<str>, id: i32) {
        self.oracle.observe(self.now, Observed::Waiting { handle: handle.clone(), id });
    }

    /// Enters that a request has lost its slot at the primary.
    pub(super) fn enter_loss(&mut self, handle: &Arc<str>, id: i32) {
        self.oracle.observe(self.now, Observed::Lost { handle: handle.clone(), id });
    }

    /// A grant that no correct cluster manager gives. It is entered if it can be.
    fn objected(&mut self, handle: &Arc<str>, grant: &Grant, objection: &Objection) {
        self.grant_differs(handle, grant, None, &objection.to_string());
        if objection.can_be_followed() {
            self.confirm_choice(handle, grant);
        } else {
            // The state of the request is not known any more.
            self.enter_loss(handle, grant.id);
        }
    }

    fn no_room(&mut self, handle: &Arc<str>, grant: &Grant) {
        match self.in_trouble() {
            true => self.notice_not_compared(GRANT, OUT_OF_REACH),
            false => self.grant_differs(handle, grant, None, "the node has no free slot"),
        }
    }

    /// A grant of ours on a node that the primary has not confirmed, the one with the largest id: of this type
    /// or, where resources are counted, else of another one, which shares them. With its type.
    fn in_the_way(
        &self,
        node: &Arc<str>,
        kind: ResourceType,
    ) -> Option<(Arc<str>, i32, ResourceType)> {
        let all = self.books.unconfirmed.get(node)?;
        let counts = self.oracle.engine().settings().resources.are_counted();
        let others = ResourceType::ALL.into_iter().filter(|other| counts && *other != kind);
        [kind].into_iter().chain(others).find_map(|kind| {
            let of_kind = |(handle, id): &&(Arc<str>, i32)| {
                let session = self.books.sessions.get(handle);
                let books = session.map(|session| &session.types[kind]);
                books.is_some_and(|books| {
                    books.overdue.contains_key(id)
                        || books.grants.iter().any(|ours| ours.id == *id && !ours.released)
                })
            };
            let (handle, id) = all.iter().rev().find(of_kind)?;
            Some((handle.clone(), *id, kind))
        })
    }

    /// A grant of ours is on another node now.
    fn has_moved(&mut self, handle: &Arc<str>, id: i32, kind: ResourceType, to: &Arc<str>) {
        let session = self.books.sessions.get_mut(handle);
        let books = session.map(|session| session.of_type(kind));
        let ours = books.and_then(|books| {
            let overdue = books.overdue.values_mut();
            books.grants.iter_mut().chain(overdue).find(|ours| ours.id == id)
        });
        let Some(ours) = ours else { return };
        let from = std::mem::replace(&mut ours.node, to.clone());
        self.books.is_settled_on(&from, handle, id);
        self.books.is_unconfirmed_on(to, handle, id);
    }

    /// A request with a grant of ours waits again.
    fn put_back(&mut self, handle: &Arc<str>, id: i32, kind: ResourceType) {
        let session = self.books.sessions.get_mut(handle);
        if let Some(overdue) = session.and_then(|session| session.of_type(kind).overdue.remove(&id))
        {
            // Granted again it would be overdue again.
            self.books.is_settled_on(&overdue.node, handle, id);
            self.enter_loss(handle, id);
            return;
        }
        self.enter_wait(handle, id);
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let books = session.of_type(kind);
        let Some(place) = books.grants.iter().position(|ours| ours.id == id) else { return };
        books.put_back.insert(id);
        if let Some(ours) = books.grants.remove(place) {
            let change = Change { gain: true, ours: (ours.made.at, self.now), theirs: None };
            books.changes.note(self.now, change);
            self.books.open.remove(&ours.stamp);
            self.books.is_settled_on(&ours.node, handle, id);
        }
    }

    /// The primary has served another session where we would have served this one.
    fn is_passed_over(&mut self, handle: &Arc<str>, by: &Arc<str>, kind: ResourceType) {
        let crossed = self.has_crossed();
        let session = self.books.sessions.get_mut(handle).filter(|_| handle != by);
        let Some(books) = session.map(|session| session.of_type(kind)) else { return };
        books.passed_over += 1;
        if books.passed_over == PASSED_OVER && !crossed {
            let place = format!("{kind} grants to session {handle}");
            let theirs = format!("others come first, {PASSED_OVER} times in a row, last {by}");
            self.notice_differs(GRANT, None, place, &theirs, "this session comes first");
        }
    }

    fn is_unsettled(&self, handle: &Arc<str>, kind: ResourceType) -> bool {
        let session = self.books.sessions.get(handle);
        session.is_some_and(|session| session.types[kind].put_back.len() > 1)
    }

    pub(super) fn grant_is_due(&mut self, due: &ExpectedDecision, kind: ResourceType) {
        let handle = &due.handle;
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let port = session.driver_port;
        let grants = &mut session.of_type(kind).grants;
        let Some(place) = grants.iter().position(|ours| ours.stamp == due.stamp) else { return };
        let Some(ours) = grants.remove(place) else { return };
        if ours.released {
            self.books.is_settled_on(&ours.node, handle, ours.id);
        } else {
            session.of_type(kind).overdue.insert(ours.id, ours.clone());
        }
        match self.excuse(ours.released, port) {
            Some(reason) => self.notice_not_compared(GRANT, reason),
            None => {
                let place = format!("{GRANT} of request {} to session {handle}", ours.id);
                let here = format!("{kind} request {} on {}", ours.id, ours.node);
                let patience = self.patience.as_secs_f64();
                let theirs = format!("nothing within {patience} s");
                self.notice_differs(GRANT, None, place, &theirs, &here);
            }
        }
    }

    fn grant_differs(&mut self, handle: &Arc<str>, grant: &Grant, rule: Option<Rule>, ours: &str) {
        let place = format!("{GRANT} of request {} to session {handle}", grant.id);
        let theirs = describe(&TheirDecision::Granted(grant.clone()));
        self.notice_differs(GRANT, rule, place, &theirs, ours);
    }
}

/// The node of a request in our books; empty if it holds nothing.
fn our_node(comparison: &Comparison, handle: &str, id: i32) -> Arc<str> {
    match comparison.oracle.engine().standing(handle, id) {
        Some(ObservedState::Granted(node)) => node,
        _ => "".into(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Configuration;
    use super::super::books::Unmatched;
    use super::super::oracle::Oracle;
    use super::super::stats::Stats;
    use super::*;
    use corona_engine::{Input, testing};
    use corona_model::types::{ComputeSpecs, Millis};

    /// Memory alone is counted, on nodes with 4,096 MB. Each of these sessions asks for one map with so much.
    pub(in super::super) fn watching(nodes: &[&str], requests: &[(&str, i32, i32)]) -> Comparison {
        let counted = [("corona.cm.resources".to_owned(), "memory".to_owned())];
        let loaded = corona_config::load(None, &counted).unwrap();
        let configuration = Configuration::read(&loaded).unwrap();
        let oracle = Oracle::start(&configuration, Millis(0), Duration::ZERO).unwrap();
        let stats = Stats::new("original");
        let mut both = Comparison::new(oracle, stats, Duration::from_secs(10));
        both.oracle.take_identity(both.now, "s".into(), i64::try_from(requests.len()).unwrap());
        for node in nodes {
            let mut report = testing::report(node, node, 8);
            report.total.memory_mb = Some(4_096);
            report.free = Some(report.total);
            both.oracle.apply(both.now, Input::HeartbeatNode { report, rack: None });
        }
        for (handle, id, memory_mb) in requests {
            let mut request = testing::request(*id, ResourceType::Map, &[]);
            let memory_mb = Some(*memory_mb);
            request.specs = Some(ComputeSpecs { num_cpus: 1, memory_mb, ..Default::default() });
            both.expect_session(handle, 1);
            both.oracle.apply(both.now, testing::session(handle, "pool"));
            both.oracle.apply(both.now, testing::ask(handle, vec![request]));
        }
        both.decide(false);
        both
    }

    pub(in super::super) fn grant_of(id: i32, node: &str) -> Grant {
        let node = testing::report(node, node, 8);
        Grant {
            id,
            node_name: node.name,
            address: node.address,
            granted_at: Millis(0),
            kind: ResourceType::Map,
            app_info: "m:1".into(),
        }
    }

    fn node_of(both: &Comparison, handle: &str, id: i32) -> Arc<str> {
        match both.oracle.engine().standing(handle, id) {
            Some(ObservedState::Granted(node)) => node,
            other => panic!("{handle} {id}: {other:?}"),
        }
    }

    pub(in super::super) fn found(both: &mut Comparison) -> Vec<String> {
        both.stats.take_new().iter().map(ToString::to_string).collect()
    }

    /// What a grant of ours releases is too little for the primary's: another order would not have made it.
    #[test]
    fn a_grant_without_room_is_no_other_order() {
        let mut both = watching(&["n"], &[("s.1", 1, 1_000), ("s.2", 2, 8_000)]);
        let granted = both.oracle.engine().standing("s.1", 1);
        assert_eq!(granted, Some(ObservedState::Granted("n".into())));
        both.now = Duration::from_secs(11);
        assert!(both.they_grant(&"s.2".into(), &grant_of(2, "n"), Duration::ZERO));
        let found = found(&mut both);
        assert!(found.len() == 1 && found[0].contains("the node has no free slot"), "{found:?}");
    }

    /// Our own grant in its way is too little, but another one ends at the primary, which is heard of later.
    #[test]
    fn a_grant_waits_for_the_news_that_makes_room() {
        let mut both = watching(&["n"], &[("s.1", 1, 3_000), ("s.2", 2, 1_000), ("s.3", 3, 4_000)]);
        assert!(both.they_grant(&"s.1".into(), &grant_of(1, "n"), both.now));
        let granted = both.oracle.engine().standing("s.2", 2);
        assert_eq!(granted, Some(ObservedState::Granted("n".into())));
        both.now = Duration::from_secs(1);
        assert!(!both.they_grant(&"s.3".into(), &grant_of(3, "n"), Duration::from_secs(1)));
        both.oracle.apply(both.now, Input::ReleaseResources { handle: "s.1".into(), ids: vec![1] });
        both.decide(false);
        both.now = Duration::from_secs(12);
        assert!(both.they_grant(&"s.3".into(), &grant_of(3, "n"), Duration::from_secs(1)));
        let granted = both.oracle.engine().standing("s.3", 3);
        assert_eq!(granted, Some(ObservedState::Granted("n".into())));
        let found = found(&mut both);
        let wrong =
            |notice: &String| notice.contains("no free slot") || notice.contains("it waits");
        assert!(!found.iter().any(wrong), "{found:?}");
    }

    /// Both have granted the request. The node that the primary chose is full here until a release is heard of.
    #[test]
    fn a_grant_on_another_node_waits_for_the_news_that_makes_room() {
        let mut both = watching(&["n", "o"], &[("s.1", 1, 4_000), ("s.2", 2, 1_000)]);
        let (first, second) = (node_of(&both, "s.1", 1), node_of(&both, "s.2", 2));
        assert_ne!(first, second);
        assert!(both.they_grant(&"s.1".into(), &grant_of(1, &first), both.now));
        both.now = Duration::from_secs(1);
        assert!(!both.they_grant(&"s.2".into(), &grant_of(2, &first), both.now));
        both.oracle.apply(both.now, Input::ReleaseResources { handle: "s.1".into(), ids: vec![1] });
        both.decide(false);
        assert!(both.they_grant(&"s.2".into(), &grant_of(2, &first), both.now));
        assert_eq!(node_of(&both, "s.2", 2), first);
        let found = found(&mut both);
        assert!(!found.iter().any(|notice| notice.contains("no free slot")), "{found:?}");
    }

    /// Two grants are made here at once. The first is to move to the node of the second.
    #[test]
    fn all_grants_of_a_moment_may_be_in_the_way_of_the_first() {
        for theirs in ["n", "o"] {
            let held = [("s.1", 1, 4_000), ("s.2", 2, 4_000)];
            let waiting = [("s.3", 3, 4_000), ("s.4", 4, 4_000)];
            let mut both = watching(&["n", "o"], &[held, waiting].concat());
            for (handle, id, _) in held {
                let node = node_of(&both, handle, id);
                assert!(both.they_grant(&handle.into(), &grant_of(id, &node), both.now));
            }
            both.now = Duration::from_secs(1);
            let what = TheirDecision::Granted(grant_of(3, theirs));
            let waits = Unmatched { since: both.now, what };
            both.books.sessions.get_mut("s.3").unwrap().unmatched.push_back(waits);
            both.now = Duration::from_secs(2);
            for (handle, id, _) in held {
                let input = Input::ReleaseResources { handle: handle.into(), ids: vec![id] };
                both.oracle.apply(both.now, input);
            }
            both.decide(false);
            assert_eq!(&*node_of(&both, "s.3", 3), theirs);
            let found = found(&mut both);
            assert!(!found.iter().any(|notice| notice.contains("no free slot")), "{found:?}");
        }
    }

    /// The primary's grant came in time, and waits for news when ours is due.
    #[test]
    fn a_grant_that_waits_for_news_is_not_missing() {
        let mut both = watching(&["n", "o"], &[("s.1", 1, 4_000), ("s.2", 2, 1_000)]);
        let full = node_of(&both, "s.1", 1);
        assert!(both.they_grant(&"s.1".into(), &grant_of(1, &full), both.now));
        both.primary_listed = true;
        both.now = both.patience - Duration::from_millis(200);
        let what = TheirDecision::Granted(grant_of(2, &full));
        let waits = Unmatched { since: both.now, what };
        both.books.sessions.get_mut("s.2").unwrap().unmatched.push_back(waits);
        both.match_decisions(&"s.2".into());
        both.now = both.patience + Duration::from_millis(100);
        both.sweep();
        both.oracle.apply(both.now, Input::ReleaseResources { handle: "s.1".into(), ids: vec![1] });
        both.decide(false);
        both.now = both.patience + Duration::from_secs(1);
        both.sweep();
        assert_eq!(node_of(&both, "s.2", 2), full);
        assert!(both.books.open.is_empty());
        let found = found(&mut both);
        assert!(found.iter().all(|notice| !notice.contains("nothing within")), "{found:?}");
    }
}
