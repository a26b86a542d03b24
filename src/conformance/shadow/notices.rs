//! Matches the notifications of the primary with our own decisions as they come, and makes the books
//! follow the primary where the two choose differently.
//!
//! Each decision of either side waits for the other's: ours for as long as the primary may take to
//! notify the session ([`ShadowOptions::patience`](super::ShadowOptions)), the primary's only for a moment
//! ([`HOLD`]), since it has already been made and more follows from it.

use std::sync::Arc;
use std::time::Duration;

use super::books::{
    DueWhat, ExpectedDecision, OurDeadNode, SessionBooks, TheirDecision, Unmatched,
};
use super::comparison::Comparison;
use super::connections::Connection;
use super::counts::Change;
use crate::report::{Finding, Rule, Subject};
use corona_engine::{Notification, ObservedState};
use corona_model::types::{Address, Grant, Millis, ResourceType};
use corona_wire::calls::SessionDriverCall;
use corona_wire::generated as wire;

/// How long a decision of the primary waits for ours, if nothing else delays either: their timers
/// do not expire at the same moment.
pub(super) const HOLD: Duration = Duration::from_millis(500);

const REVOKE: &str = "revokeResource";

const OF_UNFOLLOWED: &str = "notices to sessions whose start was not seen";
const AFTER_THE_END: &str = "notices that came after the end of their sessions";
pub(super) const GIVEN_BACK: &str = "decisions about slots that were released meanwhile";
const HIDDEN_SLOTS: &str = "decisions made here while sessions that are not followed hold slots";
pub(super) const OUT_OF_REACH: &str = "sessions whose drivers could not be reached";

impl Comparison {
    /// A session is about to start.
    pub(super) fn expect_session(&mut self, handle: &str, port: i32) {
        if !self.oracle.engine().has_session(handle) {
            let driver_port = u16::try_from(port).unwrap_or(0);
            let session = SessionBooks { driver_port, ..SessionBooks::default() };
            self.books.sessions.insert(handle.into(), session);
        }
    }

    /// A session has ended here.
    pub(super) fn session_ended(&mut self, handle: &Arc<str>) {
        self.books.end(handle, self.now);
    }

    /// A session releases slots or withdraws requests.
    pub(super) fn releases(&mut self, handle: &str, ids: &[i32]) {
        let handle: Arc<str> = handle.into();
        let Some(session) = self.books.sessions.get_mut(&handle) else { return };
        let (now, mut settled) = (self.now, Vec::new());
        let engine = self.oracle.engine();
        for id in ids {
            session.asked.remove(id);
            if let Some((kind, ObservedState::Granted(_))) =
                engine.kind_of(&handle, *id).zip(engine.standing(&handle, *id))
            {
                session.of_type(kind).changes.released(now);
            }
        }
        for books in &mut session.types.0 {
            settled.extend(ids.iter().filter_map(|id| books.overdue.remove(id)));
            for grant in books.grants.iter_mut().filter(|grant| ids.contains(&grant.id)) {
                grant.released = true;
                let ours = (grant.made.at, now);
                books.changes.note(now, Change { gain: true, ours, theirs: None });
            }
            for one in books.revocations.iter_mut().filter(|one| ids.contains(&one.id)) {
                one.released = true;
            }
            ids.iter().for_each(|id| {
                books.put_back.remove(id);
            });
        }
        for grant in settled {
            self.books.is_settled_on(&grant.node, &handle, grant.id);
        }
        for id in ids {
            self.books.released.note((handle.clone(), *id), self.now);
        }
    }

    /// This program has made a decision, which is entered in the books.
    pub(super) fn decided(&mut self, handle: &Arc<str>, notification: Notification) {
        match notification {
            Notification::Granted(grants) => {
                grants.into_iter().for_each(|grant| self.we_grant(handle, grant));
            }
            Notification::Revoked(grants) => {
                grants.into_iter().for_each(|grant| self.we_revoke(handle, &grant));
            }
            Notification::DeadNode(node) => {
                let patience = self.dead_node_patience();
                let stamp = self.books.stamp();
                let Some(session) = self.books.sessions.get_mut(handle) else { return };
                session.lost_node_at = Some(self.now);
                let made = session.made(self.now);
                session.dead_nodes.push_back(OurDeadNode { node, stamp, made });
                self.is_due(handle, DueWhat::DeadNode, stamp, patience);
            }
        }
    }

    pub(super) fn is_due(
        &mut self,
        handle: &Arc<str>,
        what: DueWhat,
        stamp: u64,
        patience: Duration,
    ) {
        let at = self.now.saturating_add(patience);
        let due = ExpectedDecision { at, handle: handle.clone(), what, stamp };
        self.books.open.insert(stamp);
        let place = self.books.due.partition_point(|other| other.at <= at);
        self.books.due.insert(place, due);
    }

    /// How much later than this program the primary may notify sessions of a dead node: the original
    /// looks for dead nodes twice in an expiry interval. Spec: cluster-manager/05 §3.
    fn dead_node_patience(&self) -> Duration {
        let expiry_ms = u64::try_from(self.oracle.engine().settings().node_expiry_ms).unwrap_or(0);
        self.patience.saturating_add(Duration::from_millis(expiry_ms / 2))
    }

    /// The primary notifies a session. Returns the session.
    pub(super) fn notified(&mut self, call: SessionDriverCall) -> Arc<str> {
        let (handle, all) = match call {
            SessionDriverCall::GrantResource { handle, granted } => {
                let granted = granted.into_iter().flatten().filter_map(grant);
                (handle, granted.map(TheirDecision::Granted).collect())
            }
            SessionDriverCall::RevokeResource { handle, revoked, force } => {
                if force {
                    let place = format!("{REVOKE} to session {}", handle.as_deref().unwrap_or(""));
                    let ours = "not set, as the original never does";
                    self.notice_differs(REVOKE, None, place, "force is set", ours);
                }
                let revoked = revoked.into_iter().flatten().filter_map(grant);
                (handle, revoked.map(TheirDecision::Revoked).collect())
            }
            SessionDriverCall::ProcessDeadNode { handle, node } => {
                let node = node.map(|node| TheirDecision::DeadNode(node.into()));
                (handle, node.into_iter().collect::<Vec<_>>())
            }
        };
        let handle: Arc<str> = handle.unwrap_or_default().into();
        let now = self.now;
        let Some(session) = self.books.sessions.get_mut(&handle) else {
            self.stranger_notified(&handle, &all);
            return handle;
        };
        session.notifications = session.notifications.saturating_add(1);
        session.busy.begins(now);
        for what in all {
            if let TheirDecision::Revoked(grant) = &what {
                self.books.unmatched_revocations[grant.kind] += 1;
            }
            session.unmatched.push_back(Unmatched { since: now, what });
        }
        self.match_decisions(&handle);
        handle
    }

    /// The primary notifies a session that is not followed.
    fn stranger_notified(&mut self, handle: &Arc<str>, all: &[TheirDecision]) {
        let reason = match () {
            () if self.unfollowed.contains(handle) => Some(OF_UNFOLLOWED),
            () if self.books.ended.has(handle) => Some(AFTER_THE_END),
            () if self.is_learning() || self.books.ended.may_lack_some(self.now) => {
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

    /// Notifications of these sessions are answered, or their answers are not waited for any more.
    pub(super) fn notifications_end<'a>(&mut self, handles: impl IntoIterator<Item = &'a String>) {
        for handle in handles {
            if let Some(session) = self.books.sessions.get_mut(handle.as_str()) {
                session.notifications = session.notifications.saturating_sub(1);
                if session.notifications == 0 {
                    session.busy.ends(self.now);
                }
            }
        }
    }

    /// A connection to a session driver is closed.
    pub(super) fn driver_closed(&mut self, connection: &Connection) {
        self.notifications_end(&connection.notified);
        if !connection.accepted || !connection.notified.is_empty() {
            self.troubled_ports.note(connection.server_port, self.now);
            self.trouble_at = Some(self.now);
        }
    }

    /// Judges the decisions of the primary about a session, oldest first, as far as that is possible now.
    pub(super) fn match_decisions(&mut self, handle: &Arc<str>) {
        loop {
            let session = self.books.sessions.get(handle);
            let first = session.and_then(|session| session.unmatched.front());
            let Some(unmatched) = first.cloned() else {
                self.books.with_unmatched.remove(handle);
                return;
            };
            let since = unmatched.since;
            let done = match &unmatched.what {
                TheirDecision::Granted(grant) => self.they_grant(handle, grant, since),
                TheirDecision::Revoked(grant) => self.they_revoke(handle, grant, since),
                TheirDecision::DeadNode(node) => self.they_lose(handle, node, since),
            };
            if !done {
                self.books.with_unmatched.insert(handle.clone());
                return;
            }
            if let TheirDecision::Revoked(grant) = &unmatched.what {
                let count = &mut self.books.unmatched_revocations[grant.kind];
                *count = count.saturating_sub(1);
            }
            if let Some(session) = self.books.sessions.get_mut(handle) {
                session.unmatched.pop_front();
            }
        }
    }

    /// Whether a decision of the primary of this time has waited long enough for ours.
    pub(super) fn has_waited(&self, since: Duration) -> bool {
        self.now.saturating_sub(since) >= HOLD
    }

    /// Notes that a session's slot of a type has changed on either side.
    pub(super) fn changes(&mut self, handle: &Arc<str>, kind: ResourceType, change: Change) {
        let now = self.now;
        if let Some(session) = self.books.sessions.get_mut(handle) {
            session.of_type(kind).changes.note(now, change);
        }
    }

    /// The primary has answered a release that was called at this time.
    pub(super) fn release_answered(&mut self, handle: &Arc<str>, called: Duration) {
        let now = self.now;
        let session = self.books.sessions.get_mut(handle);
        for books in session.into_iter().flat_map(|session| &mut session.types.0) {
            books.changes.release_answered(called, now);
        }
    }

    /// Whether a request may have been released lately.
    pub(super) fn was_released(&self, handle: &Arc<str>, id: i32) -> bool {
        let released = &self.books.released;
        released.has(&(handle.clone(), id)) || released.may_lack_some(self.now)
    }

    /// Judges decisions that have waited long enough.
    pub(super) fn sweep(&mut self) {
        for handle in self.books.with_unmatched.clone() {
            self.match_decisions(&handle);
        }
        self.judge_put_off(false);
        self.stats.judge_times();
        while let Some(due) = self.books.due.front() {
            let waits = self.books.open.contains(&due.stamp);
            if waits && due.at > self.now {
                return;
            }
            let Some(due) = self.books.due.pop_front() else { return };
            if !waits {
                continue;
            }
            self.books.open.remove(&due.stamp);
            let Some(session) = self.books.sessions.get(&due.handle) else { continue };
            let put_off = match due.what {
                // The primary waits for the driver's answer before it sends it more.
                _ if session.notifications > 0 => Some(self.patience),
                // The primary's is there, and waits for news.
                DueWhat::Grant(kind) if session.is_matched_soon(kind, due.stamp) => Some(HOLD),
                _ => None,
            };
            if let Some(wait) = put_off {
                let ExpectedDecision { handle, what, stamp, .. } = due;
                self.is_due(&handle, what, stamp, wait);
                continue;
            }
            match due.what {
                DueWhat::Grant(kind) => self.grant_is_due(&due, kind),
                DueWhat::Revocation(kind) => self.revocation_is_due(&due, kind),
                DueWhat::DeadNode => self.dead_node_is_due(&due),
            }
        }
    }

    /// Why a decision that the primary has not made does not count as a difference; none if it does. It
    /// concerns a slot of a session whose driver is at this port.
    pub(super) fn excuse(&self, released: bool, port: u16) -> Option<&'static str> {
        match () {
            () if released => Some(GIVEN_BACK),
            () if self.troubled_ports.has(&port) => Some(OUT_OF_REACH),
            () if self.may_hide_slots() => Some(HIDDEN_SLOTS),
            () => None,
        }
    }

    pub(super) fn notice_differs(
        &mut self,
        method: &'static str,
        rule: Option<Rule>,
        place: String,
        theirs: &str,
        ours: &str,
    ) {
        self.stats.notice(method).differs(rule);
        let both = (theirs.to_owned(), ours.to_owned());
        let found = Finding::of_words(self.now, Subject::Notice, place, both);
        self.stats.keep(Finding { rule, ..found });
    }

    pub(super) fn notice_not_compared(&mut self, method: &'static str, reason: &'static str) {
        self.stats.notice(method).not_compared += 1;
        self.stats.not_compared(reason);
    }
}

/// A decision of the primary in words.
pub(super) fn describe(what: &TheirDecision) -> String {
    match what {
        TheirDecision::Granted(grant) | TheirDecision::Revoked(grant) => {
            format!("{} request {} on {}", grant.kind, grant.id, grant.node_name)
        }
        TheirDecision::DeadNode(node) => format!("{node} is dead"),
    }
}

/// A grant as the engine has it; none for a type that does not exist.
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
