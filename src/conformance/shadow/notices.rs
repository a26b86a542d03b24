//! What sessions are told: the primary's decisions and our own, matched as they come, and the books
//! made to follow the primary where the two choose differently.
//!
//! Each decision of either side waits for the other's: ours for as long as the primary may take to
//! tell it ([`ShadowOptions::patience`](super::ShadowOptions)), the primary's only for a moment
//! ([`HOLD`]), since it has already been made and more follows from it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::books::{Due, DueWhat, Held, OurGrant, OurRevocation, Session, Theirs};
use super::line::Line;
use super::run::Run;
use crate::conformance::capture::ConnectionId;
use crate::conformance::replay::{About, Finding, Rule};
use crate::engine::types::{Address, Grant, Millis, ResourceType};
use crate::engine::{Notification, Objection, Standing};
use crate::wire::calls::{SessionDriver, SessionDriverCall};
use crate::wire::generated as wire;
use crate::wire::value::Message;

/// How long a decision of the primary waits for ours, if nothing else stands in the way of both:
/// timers of the two do not run out at the same moment.
const HOLD: Duration = Duration::from_millis(500);
/// How often in a row the primary may serve other sessions first.
const PASSED_OVER: u32 = 50;

const GRANT: &str = "grantResource";
const REVOKE: &str = "revokeResource";
const DEAD_NODE: &str = "processDeadNode";

const OF_UNFOLLOWED: &str = "notices to sessions whose start was not seen";
const AFTER_THE_END: &str = "notices that came after the end of their sessions";
const GIVEN_BACK: &str = "decisions about slots that were given back meanwhile";
const HIDDEN_SLOTS: &str = "grants made here while sessions that are not followed hold slots";
const OUT_OF_REACH: &str = "sessions whose drivers could not be reached";
const LEARNING: &str = "grants on nodes that were not heard yet";

impl Run {
    /// A session is about to start.
    pub(super) fn expect_session(&mut self, handle: &str, port: i32) {
        let known = self.manager.look(|engine| engine.has_session(handle));
        if !known {
            let session =
                Session { driver_port: u16::try_from(port).unwrap_or(0), ..Session::default() };
            self.books.sessions.insert(handle.into(), session);
        }
    }

    /// A session has ended here.
    pub(super) fn session_ended(&mut self, handle: &Arc<str>) {
        self.books.end(handle);
    }

    /// A session gives slots back, or wishes.
    pub(super) fn gives_back(&mut self, handle: &str, ids: &[i32]) {
        let handle: Arc<str> = handle.into();
        let Some(session) = self.books.sessions.get_mut(&handle) else { return };
        session.moved_at = Some(Instant::now());
        let mut settled = Vec::new();
        for topic in &mut session.topics {
            settled.extend(ids.iter().filter_map(|id| topic.overdue.remove(id)));
            for grant in topic.grants.iter_mut().filter(|grant| ids.contains(&grant.id)) {
                grant.released = true;
            }
            for one in topic.revocations.iter_mut().filter(|one| ids.contains(&one.id)) {
                one.released = true;
            }
            ids.iter().for_each(|id| {
                topic.put_back.remove(id);
            });
        }
        for grant in settled {
            self.books.is_settled_on(&grant.node, &handle, grant.id);
        }
        for id in ids {
            self.books.gone.note((handle.clone(), *id));
        }
    }

    /// This program has decided something.
    pub(super) fn decided(&mut self, handle: &Arc<str>, notification: Notification) {
        match notification {
            Notification::Granted(grants) => {
                grants.into_iter().for_each(|grant| self.we_grant(handle, grant));
            }
            Notification::Revoked(grants) => {
                grants.into_iter().for_each(|grant| self.we_revoke(handle, &grant));
            }
            Notification::DeadNode(node) => {
                let stamp = self.books.stamp();
                let Some(session) = self.books.sessions.get_mut(handle) else { return };
                session.dead_nodes.push_back((node, stamp));
                self.is_due(handle, DueWhat::DeadNode, stamp, self.options.dead_node_patience);
            }
        }
        self.try_held(handle);
    }

    fn we_grant(&mut self, handle: &Arc<str>, grant: Grant) {
        let Grant { id, node_name: node, kind, .. } = grant;
        let near = self.manager.look(|engine| engine.is_near(handle, id, &node));
        let stamp = self.books.stamp();
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        session.moved_at = Some(Instant::now());
        let ours = OurGrant { id, node: node.clone(), near, stamp, released: false };
        session.topic(kind).grants.push_back(ours);
        self.books.is_unconfirmed_on(&node, handle, id);
        self.is_due(handle, DueWhat::Grant(kind), stamp, self.options.patience);
    }

    fn we_revoke(&mut self, handle: &Arc<str>, grant: &Grant) {
        let (id, node, kind) = (grant.id, grant.node_name.clone(), grant.kind);
        let stamp = self.books.stamp();
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        session.moved_at = Some(Instant::now());
        let ours = OurRevocation { id, node, stamp, released: false };
        session.topic(kind).revocations.push_back(ours);
        self.is_due(handle, DueWhat::Revocation(kind), stamp, self.options.patience);
    }

    fn is_due(&mut self, handle: &Arc<str>, what: DueWhat, stamp: u64, patience: Duration) {
        let at = Instant::now() + patience;
        let due = Due { at, handle: handle.clone(), what, stamp };
        self.books.open.insert(stamp);
        let place = self.books.due.partition_point(|other| other.at <= at);
        self.books.due.insert(place, due);
    }

    /// The primary tells a session something.
    pub(super) fn told(&mut self, connection: ConnectionId, message: Message) {
        let Ok(call) = message.call::<SessionDriver>() else { return };
        let (handle, all) = match call {
            SessionDriverCall::GrantResource { handle, granted } => {
                let granted = granted.into_iter().flatten().filter_map(grant);
                (handle, granted.map(Theirs::Granted).collect())
            }
            SessionDriverCall::RevokeResource { handle, revoked, force } => {
                if force {
                    let place = format!("{REVOKE} to session {}", handle.as_deref().unwrap_or(""));
                    let ours = "not set, as the original never does";
                    self.notice_differs(REVOKE, None, place, "force is set", ours);
                }
                let revoked = revoked.into_iter().flatten().filter_map(grant);
                (handle, revoked.map(Theirs::Revoked).collect())
            }
            SessionDriverCall::ProcessDeadNode { handle, node } => {
                let node = node.map(|node| Theirs::DeadNode(node.into()));
                (handle, node.into_iter().collect::<Vec<_>>())
            }
        };
        let handle: Arc<str> = handle.unwrap_or_default().into();
        if let Some(line) = self.lines.get_mut(&connection) {
            line.telling.push_back(handle.to_string());
        }
        let Some(session) = self.books.sessions.get_mut(&handle) else {
            return self.told_to_stranger(&handle, &all);
        };
        session.telling = session.telling.saturating_add(1);
        session.moved_at = Some(Instant::now());
        for what in all {
            if let Theirs::Revoked(grant) = &what {
                self.books.held_revocations[grant.kind.index()] += 1;
            }
            session.held.push_back(Held { since: Instant::now(), what });
        }
        self.try_held(&handle);
    }

    fn told_to_stranger(&mut self, handle: &Arc<str>, all: &[Theirs]) {
        let reason = match () {
            () if self.unfollowed.contains_key(handle) => Some(OF_UNFOLLOWED),
            () if self.books.ended.has(handle) => Some(AFTER_THE_END),
            () if self.is_learning() || self.books.ended.may_lack_some() => {
                self.is_not_followed(handle);
                Some(OF_UNFOLLOWED)
            }
            () => None,
        };
        for what in all {
            match reason {
                Some(reason) => self.notice_not_compared(what.method(), reason),
                None => {
                    let place = format!("{} to session {handle}", what.method());
                    let theirs = describe(what);
                    self.notice_differs(what.method(), None, place, &theirs, "no such session");
                }
            }
        }
    }

    /// A session driver answers the oldest notice on its connection.
    pub(super) fn heard(&mut self, connection: ConnectionId) {
        let line = self.lines.get_mut(&connection);
        let Some(handle) = line.and_then(|line| line.telling.pop_front()) else { return };
        if let Some(session) = self.books.sessions.get_mut(handle.as_str()) {
            session.telling = session.telling.saturating_sub(1);
        }
    }

    /// A connection to a session driver is over.
    pub(super) fn driver_closed(&mut self, line: &Line) {
        for handle in &line.telling {
            if let Some(session) = self.books.sessions.get_mut(handle.as_str()) {
                session.telling = session.telling.saturating_sub(1);
            }
        }
        if !line.accepted || !line.telling.is_empty() {
            self.troubled_ports.note(line.server_port);
            self.trouble_at = Some(Instant::now());
        }
    }

    /// Looks at what the primary has told a session, oldest first, as far as it can be judged now.
    fn try_held(&mut self, handle: &Arc<str>) {
        loop {
            let session = self.books.sessions.get(handle);
            let Some(held) = session.and_then(|session| session.held.front()).cloned() else {
                self.books.holding.remove(handle);
                return;
            };
            let waited = held.since.elapsed() >= HOLD;
            let done = match &held.what {
                Theirs::Granted(grant) => self.they_grant(handle, grant, waited),
                Theirs::Revoked(grant) => self.they_revoke(handle, grant, waited),
                Theirs::DeadNode(node) => self.they_lose(handle, node, waited),
            };
            if !done {
                self.books.holding.insert(handle.clone());
                return;
            }
            if let Theirs::Revoked(grant) = &held.what {
                let count = &mut self.books.held_revocations[grant.kind.index()];
                *count = count.saturating_sub(1);
            }
            if let Some(session) = self.books.sessions.get_mut(handle) {
                session.held.pop_front();
            }
        }
    }

    /// Returns whether the grant is dealt with.
    fn they_grant(&mut self, handle: &Arc<str>, grant: &Grant, waited: bool) -> bool {
        let (id, kind) = (grant.id, grant.kind);
        let crossed = self.crossed();
        let Some(session) = self.books.sessions.get_mut(handle) else { return true };
        let topic = session.topic(kind);
        if let Some((ours, first)) = topic.take_grant(id) {
            topic.put_back.remove(&id);
            topic.passed_over = 0;
            session.used.insert(grant.node_name.clone());
            self.books.is_settled_on(&ours.node, handle, id);
            self.books.open.remove(&ours.stamp);
            self.same_grant(handle, grant, &ours, first, crossed);
            return true;
        }
        match self.manager.look(|engine| engine.standing(handle, id)) {
            Some(Standing::Waiting) => self.they_choose(handle, grant, waited),
            Some(Standing::Granted(node)) => {
                let ours = format!("it has been granted already, on {node}");
                self.grant_differs(handle, grant, None, &ours);
                true
            }
            Some(Standing::Lost) => {
                // It was given up here, or revoked here and not there.
                self.notice_not_compared(GRANT, GIVEN_BACK);
                self.make_follow(handle, grant);
                true
            }
            None if self.gone(handle, id) => {
                self.notice_not_compared(GRANT, GIVEN_BACK);
                true
            }
            None => {
                let ours = "the request was never made, or was given back";
                self.grant_differs(handle, grant, None, ours);
                true
            }
        }
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
            // It was told too late to be of use, and may have gone anywhere.
            return self.figures().notice(GRANT).equal += 1;
        }
        if let Err(objection) = self.manager.look(|engine| engine.check_grant(handle, grant)) {
            return self.objected(handle, grant, &objection);
        }
        let near = self.manager.look(|engine| engine.is_near(handle, grant.id, &grant.node_name));
        {
            let mut figures = self.figures();
            figures.near.of += 1;
            figures.near.primary += u64::from(near);
            figures.near.ours += u64::from(ours.near);
        }
        if let Some(expected) = expected {
            let rule = crossed.then_some(Rule::FREE_ORDER);
            let ours = format!("request {expected} is granted before {}", grant.id);
            self.grant_differs(handle, grant, rule, &ours);
            if grant.node_name != ours_node(self, handle, grant.id) {
                self.move_to(handle, grant);
            }
            return;
        }
        if ours.node == grant.node_name {
            return self.figures().notice(GRANT).equal += 1;
        }
        let here = format!("on {}", ours.node);
        self.grant_differs(handle, grant, Some(Rule::FREE_NODE), &here);
        self.move_to(handle, grant);
    }

    /// Our grant goes where the primary's is. Who is in the way there, and is not known to be there at
    /// the primary, takes its place.
    fn move_to(&mut self, handle: &Arc<str>, grant: &Grant) {
        let from = ours_node(self, handle, grant.id);
        let node = &grant.node_name;
        while !self.manager.look(|engine| engine.has_room(handle, grant.id, node)) {
            let Some((other, id)) = self.in_the_way(node, grant.kind) else {
                self.no_room(handle, grant);
                break;
            };
            let may = self.manager.look(|engine| {
                engine.may_serve(&other, id, &from) && !engine.has_room(&other, id, &from)
            });
            match may
                && self.manager.follow(|engine, now| engine.follow_grant(now, &other, id, &from))
            {
                true => self.has_moved(&other, id, grant.kind, &from),
                false => self.put_back(&other, id, grant.kind),
            }
        }
        self.manager.follow(|engine, now| engine.follow_grant(now, handle, grant.id, node));
    }

    /// The primary has granted what waits here. Returns whether that is dealt with.
    fn they_choose(&mut self, handle: &Arc<str>, grant: &Grant, waited: bool) -> bool {
        let (id, kind, node) = (grant.id, grant.kind, grant.node_name.clone());
        if let Err(objection) = self.manager.look(|engine| engine.check_grant(handle, grant)) {
            if matches!(objection, Objection::UnknownNode(_)) && self.is_learning() {
                self.notice_not_compared(GRANT, LEARNING);
                self.manager.follow(|engine, now| engine.follow_loss(now, handle, id));
                return true;
            }
            if !waited && !objection.can_be_followed() {
                return false;
            }
            self.objected(handle, grant, &objection);
            return true;
        }
        let has_room = |run: &Run| run.manager.look(|engine| engine.has_room(handle, id, &node));
        if has_room(self) {
            if !waited {
                return false;
            }
            // Both saw the same for long enough: there was room, and a request.
            let crossed = self.crossed().then_some(Rule::FREE_ORDER);
            self.grant_differs(handle, grant, crossed, "it waits");
            self.confirm_choice(handle, grant);
            return true;
        }
        if !waited && self.books.held_revocations[kind.index()] > 0 {
            return false;
        }
        let mut instead = None;
        while !has_room(self) {
            let Some((other, other_id)) = self.in_the_way(&node, kind) else { break };
            self.put_back(&other, other_id, kind);
            self.is_passed_over(&other, handle, kind);
            instead = Some((other, other_id));
        }
        if !has_room(self) && !waited && instead.is_none() {
            return false;
        }
        match instead {
            Some((other, other_id)) => {
                let same = other == *handle;
                let rule = (!same || self.crossed() || self.is_unsettled(handle, kind))
                    .then_some(Rule::FREE_ORDER);
                let ours = format!("request {other_id} of session {other} comes first");
                self.grant_differs(handle, grant, rule, &ours);
            }
            None => self.no_room(handle, grant),
        }
        self.confirm_choice(handle, grant);
        true
    }

    /// The primary's choice is entered.
    fn confirm_choice(&mut self, handle: &Arc<str>, grant: &Grant) {
        self.make_follow(handle, grant);
        if let Some(session) = self.books.sessions.get_mut(handle) {
            session.used.insert(grant.node_name.clone());
            let topic = session.topic(grant.kind);
            topic.put_back.remove(&grant.id);
            topic.passed_over = 0;
        }
    }

    fn make_follow(&mut self, handle: &Arc<str>, grant: &Grant) {
        let (id, node) = (grant.id, &grant.node_name);
        self.manager.follow(|engine, now| engine.follow_grant(now, handle, id, node));
    }

    /// A grant that no correct manager gives. It is followed if it can be.
    fn objected(&mut self, handle: &Arc<str>, grant: &Grant, objection: &Objection) {
        self.grant_differs(handle, grant, None, &objection.to_string());
        if objection.can_be_followed() {
            self.confirm_choice(handle, grant);
        } else {
            // What became of the request is not known any more.
            let id = grant.id;
            self.manager.follow(|engine, now| engine.follow_loss(now, handle, id));
        }
    }

    fn no_room(&mut self, handle: &Arc<str>, grant: &Grant) {
        match self.in_trouble() {
            true => self.notice_not_compared(GRANT, OUT_OF_REACH),
            false => self.grant_differs(handle, grant, None, "the node has no free slot"),
        }
    }

    /// Something of ours on a node that the primary has not confirmed, the newest by request.
    fn in_the_way(&self, node: &Arc<str>, kind: ResourceType) -> Option<(Arc<str>, i32)> {
        let all = self.books.unconfirmed.get(node)?;
        let of_kind = |(handle, id): &&(Arc<str>, i32)| {
            let session = self.books.sessions.get(handle);
            let topic = session.map(|session| &session.topics[kind.index()]);
            topic.is_some_and(|topic| {
                topic.overdue.contains_key(id)
                    || topic.grants.iter().any(|ours| ours.id == *id && !ours.released)
            })
        };
        all.iter().rev().find(of_kind).cloned()
    }

    /// One of ours is on another node now.
    fn has_moved(&mut self, handle: &Arc<str>, id: i32, kind: ResourceType, to: &Arc<str>) {
        let session = self.books.sessions.get_mut(handle);
        let topic = session.map(|session| session.topic(kind));
        let ours = topic.and_then(|topic| {
            let overdue = topic.overdue.values_mut();
            topic.grants.iter_mut().chain(overdue).find(|ours| ours.id == id)
        });
        let Some(ours) = ours else { return };
        let from = std::mem::replace(&mut ours.node, to.clone());
        self.books.is_settled_on(&from, handle, id);
        self.books.is_unconfirmed_on(to, handle, id);
    }

    /// One of ours waits again.
    fn put_back(&mut self, handle: &Arc<str>, id: i32, kind: ResourceType) {
        let session = self.books.sessions.get_mut(handle);
        if let Some(overdue) = session.and_then(|session| session.topic(kind).overdue.remove(&id)) {
            // Granted again it would be overdue again.
            self.books.is_settled_on(&overdue.node, handle, id);
            self.manager.follow(|engine, now| engine.follow_loss(now, handle, id));
            return;
        }
        self.manager.follow(|engine, now| engine.follow_wait(now, handle, id));
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let topic = session.topic(kind);
        let Some(place) = topic.grants.iter().position(|ours| ours.id == id) else { return };
        topic.put_back.insert(id);
        if let Some(ours) = topic.grants.remove(place) {
            self.books.open.remove(&ours.stamp);
            self.books.is_settled_on(&ours.node, handle, id);
        }
    }

    /// The primary has served a session where we would have served another one.
    fn is_passed_over(&mut self, handle: &Arc<str>, by: &Arc<str>, kind: ResourceType) {
        let crossed = self.crossed();
        let session = self.books.sessions.get_mut(handle).filter(|_| handle != by);
        let Some(topic) = session.map(|session| session.topic(kind)) else { return };
        topic.passed_over += 1;
        if topic.passed_over == PASSED_OVER && !crossed {
            let place = format!("{kind} grants to session {handle}");
            let theirs = format!("others come first, {PASSED_OVER} times in a row, last {by}");
            self.notice_differs(GRANT, None, place, &theirs, "this session comes first");
        }
    }

    fn is_unsettled(&self, handle: &Arc<str>, kind: ResourceType) -> bool {
        let session = self.books.sessions.get(handle);
        session.is_some_and(|session| session.topics[kind.index()].put_back.len() > 1)
    }

    /// Whether a request was given back lately.
    fn gone(&self, handle: &Arc<str>, id: i32) -> bool {
        self.books.gone.has(&(handle.clone(), id)) || self.books.gone.may_lack_some()
    }

    /// Returns whether the revocation is dealt with.
    fn they_revoke(&mut self, handle: &Arc<str>, grant: &Grant, waited: bool) -> bool {
        let (id, kind) = (grant.id, grant.kind);
        let crossed = self.crossed();
        let Some(session) = self.books.sessions.get_mut(handle) else { return true };
        if let Some((ours, first)) = session.topic(kind).take_revocation(id) {
            self.books.open.remove(&ours.stamp);
            match first {
                None => self.figures().notice(REVOKE).equal += 1,
                Some(first) => {
                    let rule = crossed.then_some(Rule::FREE_ORDER);
                    let ours = format!("request {first} is revoked before {id}");
                    self.revocation_differs(handle, grant, rule, &ours);
                }
            }
            return true;
        }
        let standing = self.manager.look(|engine| engine.standing(handle, id));
        match standing {
            Some(Standing::Granted(_)) if !waited => return false,
            Some(Standing::Granted(_)) => {
                let instead = self.revoked_instead(handle, kind);
                let rule = instead.is_some() || crossed;
                let ours = match &instead {
                    Some(first) => format!("request {first} is revoked instead"),
                    None => "it stays granted".to_owned(),
                };
                self.revocation_differs(handle, grant, rule.then_some(Rule::FREE_ORDER), &ours);
                self.manager.follow(|engine, now| engine.follow_loss(now, handle, id));
            }
            Some(Standing::Waiting) => {
                self.revocation_differs(handle, grant, None, "it waits, and holds nothing");
            }
            Some(Standing::Lost) => {
                self.revocation_differs(handle, grant, None, "it has been revoked already");
            }
            None if self.gone(handle, id) => self.notice_not_compared(REVOKE, GIVEN_BACK),
            None => self.revocation_differs(handle, grant, None, "it was never requested"),
        }
        true
    }

    /// What we have revoked of a session where the primary has revoked something else. It is given
    /// back.
    fn revoked_instead(&mut self, handle: &Arc<str>, kind: ResourceType) -> Option<i32> {
        let session = self.books.sessions.get_mut(handle)?;
        let first = session.topic(kind).revocations.pop_front()?;
        let OurRevocation { id, node, stamp, .. } = first;
        self.books.open.remove(&stamp);
        self.manager.follow(|engine, now| engine.follow_grant(now, handle, id, &node));
        Some(id)
    }

    /// Returns whether the death of the node is dealt with.
    fn they_lose(&mut self, handle: &Arc<str>, node: &Arc<str>, waited: bool) -> bool {
        let Some(session) = self.books.sessions.get_mut(handle) else { return true };
        let place = session.dead_nodes.iter().position(|(ours, _)| ours == node);
        match place {
            Some(place) => {
                if let Some((_, stamp)) = session.dead_nodes.remove(place) {
                    self.books.open.remove(&stamp);
                }
                self.figures().notice(DEAD_NODE).equal += 1;
            }
            None if !waited => return false,
            None => {
                let rule = self.crossed().then_some(Rule::FREE_NODE);
                let place = format!("{DEAD_NODE} to session {handle}");
                self.notice_differs(DEAD_NODE, rule, place, &format!("{node} is gone"), "nothing");
            }
        }
        true
    }

    /// Looks through what waits.
    pub(super) fn sweep(&mut self) {
        for handle in self.books.holding.clone() {
            self.try_held(&handle);
        }
        let now = Instant::now();
        while let Some(due) = self.books.due.front() {
            let waits = self.books.open.contains(&due.stamp);
            if waits && due.at > now {
                return;
            }
            let Some(due) = self.books.due.pop_front() else { return };
            if !waits {
                continue;
            }
            self.books.open.remove(&due.stamp);
            let Some(session) = self.books.sessions.get(&due.handle) else { continue };
            if session.telling > 0 {
                // The primary waits for the driver's answer before it tells it more.
                let Due { handle, what, stamp, .. } = due;
                self.is_due(&handle, what, stamp, self.options.patience);
                continue;
            }
            match due.what {
                DueWhat::Grant(kind) => self.grant_is_due(&due, kind),
                DueWhat::Revocation(kind) => self.revocation_is_due(&due, kind),
                DueWhat::DeadNode => self.dead_node_is_due(&due),
            }
        }
    }

    fn grant_is_due(&mut self, due: &Due, kind: ResourceType) {
        let handle = &due.handle;
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let port = session.driver_port;
        let grants = &mut session.topic(kind).grants;
        let Some(place) = grants.iter().position(|ours| ours.stamp == due.stamp) else { return };
        let Some(ours) = grants.remove(place) else { return };
        if ours.released {
            self.books.is_settled_on(&ours.node, handle, ours.id);
        } else {
            session.topic(kind).overdue.insert(ours.id, ours.clone());
        }
        let why_not = match () {
            () if ours.released => Some(GIVEN_BACK),
            () if self.troubled_ports.has(&port) => Some(OUT_OF_REACH),
            () if self.may_hide_slots() => Some(HIDDEN_SLOTS),
            () => None,
        };
        match why_not {
            Some(reason) => self.notice_not_compared(GRANT, reason),
            None => {
                let place = format!("{GRANT} of request {} to session {handle}", ours.id);
                let here = format!("{kind} request {} on {}", ours.id, ours.node);
                let patience = self.options.patience.as_secs_f64();
                let theirs = format!("nothing within {patience} s");
                self.notice_differs(GRANT, None, place, &theirs, &here);
            }
        }
    }

    fn revocation_is_due(&mut self, due: &Due, kind: ResourceType) {
        let handle = &due.handle;
        let crossed = self.crossed();
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let port = session.driver_port;
        let all = &mut session.topic(kind).revocations;
        let Some(place) = all.iter().position(|ours| ours.stamp == due.stamp) else { return };
        let Some(ours) = all.remove(place) else { return };
        let why_not = match () {
            () if ours.released => Some(GIVEN_BACK),
            () if self.troubled_ports.has(&port) => Some(OUT_OF_REACH),
            () if self.may_hide_slots() => Some(HIDDEN_SLOTS),
            () => None,
        };
        match why_not {
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
            self.manager.follow(|engine, now| engine.follow_grant(now, handle, id, &node));
        }
    }

    fn dead_node_is_due(&mut self, due: &Due) {
        let handle = &due.handle;
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let place = session.dead_nodes.iter().position(|(_, stamp)| *stamp == due.stamp);
        let Some((node, _)) = place.and_then(|place| session.dead_nodes.remove(place)) else {
            return;
        };
        if self.troubled_ports.has(&session.driver_port) {
            return self.notice_not_compared(DEAD_NODE, OUT_OF_REACH);
        }
        // Its grants there were moved to where the primary's were.
        let rule = (!session.used.contains(&node)).then_some(Rule::FREE_NODE);
        let place = format!("{DEAD_NODE} to session {handle}");
        self.notice_differs(DEAD_NODE, rule, place, "nothing", &format!("{node} is gone"));
    }

    fn grant_differs(&self, handle: &Arc<str>, grant: &Grant, rule: Option<Rule>, ours: &str) {
        let place = format!("{GRANT} of request {} to session {handle}", grant.id);
        let theirs = describe(&Theirs::Granted(grant.clone()));
        self.notice_differs(GRANT, rule, place, &theirs, ours);
    }

    fn revocation_differs(&self, handle: &Arc<str>, grant: &Grant, rule: Option<Rule>, ours: &str) {
        let place = format!("{REVOKE} of request {} to session {handle}", grant.id);
        let theirs = describe(&Theirs::Revoked(grant.clone()));
        self.notice_differs(REVOKE, rule, place, &theirs, ours);
    }

    fn notice_differs(
        &self,
        method: &'static str,
        rule: Option<Rule>,
        place: String,
        theirs: &str,
        ours: &str,
    ) {
        let mut figures = self.figures();
        let tally = figures.notice(method);
        match rule {
            Some(_) => tally.explained += 1,
            None => tally.different += 1,
        }
        let both = (theirs.to_owned(), ours.to_owned());
        let at = figures.ran_for();
        let found = Finding::of_words(at, About::Notice, place, both);
        figures.keep(Finding { rule, ..found });
    }

    fn notice_not_compared(&self, method: &'static str, reason: &'static str) {
        let mut figures = self.figures();
        figures.notice(method).not_compared += 1;
        figures.not_compared(reason);
    }
}

/// The node of a request in our books; empty if it holds nothing.
fn ours_node(run: &Run, handle: &str, id: i32) -> Arc<str> {
    match run.manager.look(|engine| engine.standing(handle, id)) {
        Some(Standing::Granted(node)) => node,
        _ => "".into(),
    }
}

fn describe(what: &Theirs) -> String {
    match what {
        Theirs::Granted(grant) | Theirs::Revoked(grant) => {
            format!("{} request {} on {}", grant.kind, grant.id, grant.node_name)
        }
        Theirs::DeadNode(node) => format!("{node} is gone"),
    }
}

/// A grant in the engine's words; none for a type that does not exist.
fn grant(grant: wire::ResourceGrant) -> Option<Grant> {
    Some(Grant {
        id: grant.id,
        node_name: grant.node_name.into(),
        address: Address { host: grant.address.host.into(), port: grant.address.port },
        granted_at: Millis(grant.granted_time),
        kind: ResourceType::from_number(grant.type_.0)?,
        app_info: grant.app_info.unwrap_or_default().into(),
    })
}
