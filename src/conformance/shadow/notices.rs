//! What sessions are told: the primary's decisions and our own, matched as they come, and the books
//! made to follow the primary where the two choose differently.
//!
//! Each decision of either side waits for the other's: ours for as long as the primary may take to
//! tell it ([`ShadowOptions::patience`](super::ShadowOptions)), the primary's only for a moment
//! ([`HOLD`]), since it has already been made and more follows from it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::books::{Due, DueWhat, Held, Session, Theirs};
use super::line::Line;
use super::run::Run;
use crate::capture::ConnectionId;
use crate::replay::{About, Finding, Rule};
use corona_engine::Notification;
use corona_model::types::{Address, Grant, Millis, ResourceType};
use corona_wire::calls::{SessionDriver, SessionDriverCall};
use corona_wire::generated as wire;
use corona_wire::value::RawMessage;

/// How long a decision of the primary waits for ours, if nothing else stands in the way of both:
/// timers of the two do not run out at the same moment.
const HOLD: Duration = Duration::from_millis(500);

const REVOKE: &str = "revokeResource";

const OF_UNFOLLOWED: &str = "notices to sessions whose start was not seen";
const AFTER_THE_END: &str = "notices that came after the end of their sessions";
pub(super) const GIVEN_BACK: &str = "decisions about slots that were released meanwhile";
const HIDDEN_SLOTS: &str = "decisions made here while sessions that are not followed hold slots";
pub(super) const OUT_OF_REACH: &str = "sessions whose drivers could not be reached";

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
                let patience = self.dead_node_patience();
                let stamp = self.books.stamp();
                let Some(session) = self.books.sessions.get_mut(handle) else { return };
                session.dead_nodes.push_back((node, stamp));
                self.is_due(handle, DueWhat::DeadNode, stamp, patience);
            }
        }
        self.try_held(handle);
    }

    pub(super) fn is_due(
        &mut self,
        handle: &Arc<str>,
        what: DueWhat,
        stamp: u64,
        patience: Duration,
    ) {
        let at = Instant::now() + patience;
        let due = Due { at, handle: handle.clone(), what, stamp };
        self.books.open.insert(stamp);
        let place = self.books.due.partition_point(|other| other.at <= at);
        self.books.due.insert(place, due);
    }

    /// How much later than this program the primary may tell of a dead node: the original looks for
    /// them twice in an expiry interval. Spec: cluster-manager/05 §3.
    fn dead_node_patience(&self) -> Duration {
        let expiry_ms = u64::try_from(self.loaded.settings.engine.node_expiry_ms).unwrap_or(0);
        self.options.patience.saturating_add(Duration::from_millis(expiry_ms / 2))
    }

    /// The primary tells a session something.
    pub(super) fn told(&mut self, connection: ConnectionId, message: RawMessage) {
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

    /// What drivers are told on a connection that has a gap is not waited for.
    pub(super) fn nothing_is_told(&mut self, connection: ConnectionId) {
        let line = self.lines.get_mut(&connection);
        let telling = line.map(|line| std::mem::take(&mut line.telling)).unwrap_or_default();
        self.are_told(&telling);
    }

    fn are_told(&mut self, handles: &VecDeque<String>) {
        for handle in handles {
            if let Some(session) = self.books.sessions.get_mut(handle.as_str()) {
                session.telling = session.telling.saturating_sub(1);
            }
        }
    }

    /// A connection to a session driver is over.
    pub(super) fn driver_closed(&mut self, line: &Line) {
        self.are_told(&line.telling);
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

    /// Whether a request was given back lately.
    pub(super) fn gone(&self, handle: &Arc<str>, id: i32) -> bool {
        self.books.gone.has(&(handle.clone(), id)) || self.books.gone.may_lack_some()
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

    /// Why it says nothing that the primary has not told what was decided here about a slot of a
    /// session whose driver is at this port; none if it should have.
    pub(super) fn why_not_told(&self, released: bool, port: u16) -> Option<&'static str> {
        match () {
            () if released => Some(GIVEN_BACK),
            () if self.troubled_ports.has(&port) => Some(OUT_OF_REACH),
            () if self.may_hide_slots() => Some(HIDDEN_SLOTS),
            () => None,
        }
    }

    pub(super) fn notice_differs(
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

    pub(super) fn notice_not_compared(&self, method: &'static str, reason: &'static str) {
        let mut figures = self.figures();
        figures.notice(method).not_compared += 1;
        figures.not_compared(reason);
    }
}

/// A decision of the primary in words.
pub(super) fn describe(what: &Theirs) -> String {
    match what {
        Theirs::Granted(grant) | Theirs::Revoked(grant) => {
            format!("{} request {} on {}", grant.kind, grant.id, grant.node_name)
        }
        Theirs::DeadNode(node) => format!("{node} is dead"),
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
