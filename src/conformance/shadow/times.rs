//! The times of decisions that both sides made, and the pools that are new.
//!
//! A time counts from its cause, which both sides see at the same moment: the request, or for a dead node its
//! last heartbeat. The primary sends a session one notification after the other: the time in which its driver
//! had one to answer does not count.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::books::{Made, OurGrant};
use super::comparison::Comparison;
use crate::report::times::{Interval, Pair};
use corona_model::types::{Grant, PerType, PoolName, ResourceType};
use corona_wire::generated::ResourceRequest;

/// Within this time of the first request in a pool the original has looked at all pools: a round of its
/// preemption, and a turn of its scheduler. Spec: cluster-manager/04 §9.
const AT_ONCE: Duration = Duration::from_millis(1_200);
/// Pools that are known, by type. Of more it is not known whether they are new.
const MAX_POOLS: usize = 65_536;

/// When slots of each type were last requested, and first in a pool.
#[derive(Debug, Default)]
pub(super) struct Requested {
    last: PerType<Option<Duration>>,
    first_in_pool: PerType<Option<FirstInPool>>,
    pools: HashSet<(PoolName, ResourceType)>,
}

/// The first request in a pool.
#[derive(Debug)]
struct FirstInPool {
    at: Duration,
    session: Arc<str>,
    /// Whether this program takes slots back for it later, once that matters.
    will_preempt: Option<bool>,
}

/// A request, as far as its time matters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    id: i32,
    kind: ResourceType,
    prefers_hosts: bool,
}

impl Asked {
    /// None for a type that does not exist.
    pub(super) fn of(request: &ResourceRequest) -> Option<Asked> {
        let prefers_hosts = request.hosts.as_ref().is_some_and(|hosts| !hosts.is_empty());
        let kind = ResourceType::from_number(request.type_.0)?;
        Some(Asked { id: request.id, kind, prefers_hosts })
    }
}

impl Comparison {
    /// A session has made these requests. Those that were refused are left out.
    pub(super) fn asks(&mut self, handle: &Arc<str>, requests: &[Asked]) {
        let (now, engine) = (self.now, self.oracle.engine());
        let Some(session) = self.books.sessions.get_mut(handle) else { return };
        let pool = self.oracle.pool_of(handle, now);
        for Asked { id, kind, prefers_hosts } in requests {
            if engine.standing(handle, *id).is_none() {
                continue;
            }
            session.asked.entry(*id).or_insert((now, *prefers_hosts));
            self.requested.last[*kind] = Some(now);
            let has_room = self.requested.pools.len() < MAX_POOLS;
            if let Some(pool) = pool.as_ref().filter(|_| has_room)
                && self.requested.pools.insert((pool.clone(), *kind))
            {
                let first = FirstInPool { at: now, session: handle.clone(), will_preempt: None };
                self.requested.first_in_pool[*kind] = Some(first);
            }
        }
    }

    /// Whether the original may take slots of a type back at this time since it looks at a pool for the
    /// first time, for which this program takes them back later.
    pub(super) fn has_new_pool(&mut self, kind: ResourceType, at: Duration) -> bool {
        let (oracle, now) = (&self.oracle, self.now);
        let first = self.requested.first_in_pool[kind].as_mut();
        first.is_some_and(|first| {
            let is_at_once = (first.at..=first.at.saturating_add(AT_ONCE)).contains(&at);
            let ask = || oracle.will_preempt(&first.session, kind, now);
            is_at_once && *first.will_preempt.get_or_insert_with(ask)
        })
    }

    /// Both sides have granted a request, the primary by this time.
    pub(super) fn time_grant(
        &mut self,
        handle: &Arc<str>,
        grant: &Grant,
        ours: &OurGrant,
        theirs: Duration,
    ) {
        let near = self.oracle.engine().is_near(handle, grant.id, &grant.node_name);
        let asked = self.books.sessions.get_mut(handle);
        let Some((since, prefers_hosts)) = asked.and_then(|it| it.asked.remove(&grant.id)) else {
            return;
        };
        let kind = match (prefers_hosts, near) {
            (false, _) => Interval::GrantAnywhere,
            (true, true) => Interval::GrantPreferred,
            (true, false) => Interval::GrantElsewhere,
        };
        let place = || format!("request {} of session {handle}", grant.id);
        self.pair(handle, kind, since, theirs, ours.made, place);
    }

    /// Both sides have revoked a grant.
    pub(super) fn time_revocation(
        &mut self,
        handle: &Arc<str>,
        grant: &Grant,
        theirs: Duration,
        ours: Made,
    ) {
        let first = theirs.min(ours.at);
        let since = self.requested.last[grant.kind].filter(|last| *last <= first);
        let place = || format!("request {} of session {handle}", grant.id);
        let since = since.unwrap_or(first);
        self.pair(handle, Interval::Revocation, since, theirs, ours, place);
    }

    /// Both sides have found a node dead.
    pub(super) fn time_death(
        &mut self,
        handle: &Arc<str>,
        node: &str,
        theirs: Duration,
        ours: Made,
    ) {
        let expiry_ms = self.oracle.engine().settings().node_expiry_ms;
        let expiry = Duration::from_millis(u64::try_from(expiry_ms).unwrap_or(0));
        let since = ours.at.saturating_sub(expiry);
        let place = || format!("node {node}, session {handle}");
        self.pair(handle, Interval::NodeExpiry, since, theirs, ours, place);
    }

    fn pair(
        &mut self,
        handle: &Arc<str>,
        kind: Interval,
        since: Duration,
        theirs: Duration,
        Made { at: ours, busy }: Made,
        place: impl FnOnce() -> String,
    ) {
        let Some(session) = self.books.sessions.get(handle) else { return };
        let is_late = theirs.saturating_sub(ours) > self.patience;
        if is_late || self.may_hide_slots() || self.troubled_ports.has(&session.driver_port) {
            return;
        }
        let busy = session.busy.until(self.now).saturating_sub(busy);
        let ours = ours.saturating_add(busy.min(theirs.saturating_sub(ours)));
        let [recorded, live] = [theirs, ours].map(|at| at.saturating_sub(since));
        self.stats.times.add(kind, Pair { at: theirs, place: place(), recorded, live });
    }
}
