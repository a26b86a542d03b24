//! Calls of sessions. Spec: cluster-manager/02 §3, 05 §2.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use corona_model::queues::{PlaceBy, QueueRules};

use super::Engine;
use super::index::{HostIdx, PoolIdx, ReqIdx, SessionIdx};
use super::input::{
    Asked, Effect, PoolObjection, Record, Refusal, Reply, RequestSummary, SessionView, StepMismatch,
};
use super::nodes;
use super::remains;
use super::requests::{Request, RequestState};
use super::sessions::{FirstWait, RetiredSession, Session, Step, Tally};
use super::settings::{GroupSettings, PoolSettings, Pools, Settings};
use super::types::{
    Grant, Millis, PerType, PoolName, ResourceRequest, ResourceType, SessionInfo, SessionStatus,
    session_directory,
};

const DEFAULT_GROUP: &str = "default";
const DEFAULT_POOL: &str = "defaultpool";

impl Engine {
    pub(super) fn next_session_id(&mut self) -> String {
        self.sessions_numbered += 1;
        format!("{}.{}", self.id_prefix, self.sessions_numbered)
    }

    pub(super) fn start_session(
        &mut self,
        now: Millis,
        handle: Arc<str>,
        info: SessionInfo,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Refusal> {
        if !handle.starts_with(&*self.id_prefix) {
            return Err(Refusal::ForeignHandle(handle));
        }
        let log_path =
            self.log_path(&handle).ok_or_else(|| Refusal::MalformedHandle(handle.clone()))?;
        if self.sessions.find(&handle).is_some() {
            return Err(Refusal::AlreadyStarted(handle));
        }
        let running = self.sessions.len();
        if running >= self.settings.bounds.sessions {
            return Err(Refusal::TooManySessions { running });
        }
        let asked = info.pool.as_ref().map(|pool| self.redirect(pool));
        let asked = match self.placed(asked.as_ref(), &info) {
            Some(placed) => Some(placed),
            None => {
                self.check_pool(asked.as_ref()).map_err(Refusal::SessionPool)?;
                asked
            }
        };
        let pool_name = asked.unwrap_or_else(|| PoolName::new(DEFAULT_GROUP, &info.user_id));
        let scheduled = scheduling_pool_name(&pool_name, &info.user_id);
        let scheduled = scheduled.unwrap_or_else(|_| default_pool());
        self.check_submission(&scheduled, &info).map_err(Refusal::SessionPool)?;
        let pool = self.scheduling_pool(&handle, &pool_name, &info, effects)?;

        let (name, address) = (info.name.clone(), info.address.clone());
        let user = info.user_id.clone();
        let session = self.sessions.insert(handle.clone(), info, pool_name.clone(), pool, now);
        self.join_pool(session);
        effects.push(Effect::Record(Record::SessionStarted {
            handle,
            name,
            user,
            address,
            pool: pool_name.clone(),
            scheduling_pool: self.scheduler.tree[pool].name.clone(),
            running: self.sessions.len(),
        }));
        Ok(Reply::Started { log_path, pool: pool_name })
    }

    pub(super) fn update_session(
        &mut self,
        now: Millis,
        handle: &Arc<str>,
        info: SessionInfo,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let session = self.hear_session(now, handle)?;
        let SessionInfo { name, url, priority, deadline, .. } = info;
        let entry = &mut self.sessions[session];
        entry.info.name = name;
        entry.info.url = url;
        // A missing priority does not overwrite the previous one.
        entry.info.priority = priority.or(entry.info.priority);
        entry.deadline = deadline.unwrap_or(0);
        // On the wire the deadline stays absent if it was absent at the start.
        entry.info.deadline = entry.info.deadline.map(|_| entry.deadline);
        let priority = entry.info.priority;
        self.requeue_all_kinds(session);
        effects.push(Effect::Record(Record::SessionUpdated { handle: handle.clone(), priority }));
        Ok(())
    }

    pub(super) fn heartbeat_session(
        &mut self,
        now: Millis,
        handle: &Arc<str>,
        view: Option<SessionView>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let session = self.session(handle)?;
        if let Some(view) = view {
            if !self.check_step(now, session, &view, effects) {
                self.end(session, SessionStatus::FailedJobtracker, now, effects);
                return Err(Refusal::OutOfStep(handle.clone()));
            }
            let entry = &mut self.sessions[session];
            for (demand, usages) in entry.demand.0.iter_mut().zip(view.usages.0) {
                if let Some(usages) = usages {
                    demand.usages = usages;
                }
            }
        }
        self.sessions.heard(session, now);
        Ok(())
    }

    pub(super) fn request_resources(
        &mut self,
        now: Millis,
        handle: &Arc<str>,
        requests: Vec<ResourceRequest>,
        racks: &[(Arc<str>, Arc<str>)],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let session = self.expect_requests(now, handle, &RequestSummary::of(&requests))?;
        self.add_requests(now, session, requests, racks, effects);
        Ok(())
    }

    /// Checks a call of `requestResource` as a whole and makes room for its requests.
    pub(super) fn expect_requests(
        &mut self,
        now: Millis,
        handle: &Arc<str>,
        summary: &RequestSummary,
    ) -> Result<SessionIdx, Refusal> {
        let illegal = |kind: ResourceType| summary.counts[kind] > 0 && !self.legal[kind];
        if ResourceType::ALL.into_iter().any(illegal) {
            return Err(Refusal::IllegalType(handle.clone()));
        }
        if summary.contradictory {
            return Err(Refusal::ContradictoryHosts(handle.clone()));
        }
        let session = self.session(handle)?;
        self.check_request_count(session, &summary.counts)?;
        self.check_room(session, summary.count())?;
        self.sessions.heard(session, now);
        self.sessions[session].expected.request_id = summary.largest_id;
        self.sessions[session].requests.reserve(summary.count());
        Ok(session)
    }

    /// Some requests of a call that was expected.
    pub(super) fn more_requests(
        &mut self,
        now: Millis,
        handle: &Arc<str>,
        requests: Vec<ResourceRequest>,
        racks: &[(Arc<str>, Arc<str>)],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let session = self.session(handle)?;
        // The configuration may have changed, and other calls of the session may have come.
        if !requests.iter().all(|request| self.legal[request.kind]) {
            return Err(Refusal::IllegalType(handle.clone()));
        }
        if requests.iter().any(crate::input::excludes_a_preferred_host) {
            return Err(Refusal::ContradictoryHosts(handle.clone()));
        }
        self.check_room(session, requests.len())?;
        self.sessions.heard(session, now);
        self.add_requests(now, session, requests, racks, effects);
        Ok(())
    }

    fn check_room(&self, session: SessionIdx, more: usize) -> Result<(), Refusal> {
        let entry = &self.sessions[session];
        let known = entry.requests.len();
        if known.saturating_add(more) > self.settings.bounds.requests_per_session {
            return Err(Refusal::TooManyRequests { handle: entry.handle.clone(), known });
        }
        Ok(())
    }

    fn add_requests(
        &mut self,
        now: Millis,
        session: SessionIdx,
        requests: Vec<ResourceRequest>,
        racks: &[(Arc<str>, Arc<str>)],
        effects: &mut Vec<Effect>,
    ) {
        if !self.sessions[session].requests.has_places_for(requests.len()) {
            self.number_anew(session);
        }
        let mut added = PerType::all(0);
        for request in requests {
            let kind = request.kind;
            if self.add_request(session, request, racks, now, effects) {
                added[kind] += 1;
            }
        }
        for kind in ResourceType::ALL.into_iter().filter(|kind| added[*kind] > 0) {
            let count = added[kind];
            self.unblock(session, kind);
            let change = Tally { requested: count, pending: count, ..Tally::default() };
            self.settle(session, kind, change, now);
            let (handle, count) = (self.sessions[session].handle.clone(), count as u64);
            effects.push(Effect::Record(Record::Requested { handle, kind, count }));
        }
    }

    pub(super) fn release_resources(
        &mut self,
        now: Millis,
        handle: &Arc<str>,
        ids: &[i32],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let session = self.hear_session(now, handle)?;
        let mut changes = PerType::all(Tally::default());
        for ids in ids.chunks(nodes::PREFETCHED_AT_ONCE) {
            self.prefetch(session, ids);
            for id in ids {
                if let Some(req) = self.sessions[session].requests.find(*id) {
                    let (kind, change) = self.drop_request(session, req);
                    changes[kind].add(change);
                }
            }
        }
        for kind in ResourceType::ALL {
            let change = changes[kind];
            if change == Tally::default() {
                continue;
            }
            self.settle(session, kind, change, now);
            if change.granted < 0 {
                let count = change.granted.unsigned_abs();
                let handle = handle.clone();
                effects.push(Effect::Record(Record::Released { handle, kind, count }));
            }
        }
        Ok(())
    }

    pub(super) fn end_session(
        &mut self,
        handle: &Arc<str>,
        status: SessionStatus,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let session = self.session(handle)?;
        // A session that ends cannot run on. The original loses its grants then.
        let status = match status {
            SessionStatus::Running => SessionStatus::KilledAborted,
            status => status,
        };
        self.end(session, status, now, effects);
        Ok(())
    }

    pub(super) fn kill_session(
        &mut self,
        handle: &Arc<str>,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(session) = self.sessions.find(handle) {
            self.end(session, SessionStatus::Killed, now, effects);
        }
    }

    pub(super) fn notification_failed(
        &mut self,
        handle: &Arc<str>,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let session = self.session(handle)?;
        self.end(session, SessionStatus::TimedOut, now, effects);
        Ok(())
    }

    pub(super) fn expire_sessions(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        for _ in 0..super::EXPIRED_AT_ONCE {
            let Some((session, heard)) = self.sessions.most_silent() else { break };
            let gap_ms = now.since(heard);
            if gap_ms <= self.settings.session_expiry_ms {
                break;
            }
            let entry = &self.sessions[session];
            effects.push(Effect::Record(Record::SessionExpired {
                handle: entry.handle.clone(),
                name: entry.info.name.clone(),
                user: entry.info.user_id.clone(),
                granted: PerType(ResourceType::ALL.map(|kind| entry.demand(kind).tally.granted)),
                gap_ms,
            }));
            self.end(session, SessionStatus::TimedOut, now, effects);
        }
    }

    /// Takes a grant away from a session, which keeps the request as lost.
    /// `None` when the request holds no grant. Spec: cluster-manager/05 §2.
    pub(super) fn lose_grant(
        &mut self,
        session: SessionIdx,
        req: ReqIdx,
        now: Millis,
    ) -> Option<Grant> {
        let grant = self.grant_of(session, req)?;
        self.unassign(session, req);
        let slots = -i64::from(self.sessions[session].requests[req].need());
        let demand = self.sessions[session].demand_mut(grant.kind);
        demand.fulfilled -= 1;
        demand.revoked += 1;
        let change = Tally { granted: -1, slots, ..Tally::default() };
        self.settle(session, grant.kind, change, now);
        Some(grant)
    }

    /// The grant that a request holds.
    pub(super) fn grant_of(&self, session: SessionIdx, req: ReqIdx) -> Option<Grant> {
        let request = &self.sessions[session].requests[req];
        let RequestState::Granted { node, at, .. } = request.state else { return None };
        let node = &self.nodes[node];
        Some(Grant {
            id: request.id,
            node_name: node.name.clone(),
            address: node.address.clone(),
            granted_at: at,
            kind: request.kind,
            app_info: node.apps[request.kind].clone().unwrap_or_default(),
        })
    }

    /// The pool that is used in place of one that is asked for, perhaps by its path.
    pub(super) fn redirect(&self, pool: &PoolName) -> PoolName {
        let pool = self.settings.pools.queues.resolved(pool);
        self.settings.scheduling.redirects.get(&pool).cloned().unwrap_or(pool)
    }

    /// The pool that a placement rule finds for a session. `None` if the session names a configured
    /// pool, or no rule applies: then the pool that it asked for holds.
    fn placed(&self, asked: Option<&PoolName>, info: &SessionInfo) -> Option<PoolName> {
        let queues = &self.settings.pools.queues;
        let (rules, name) = match asked {
            None => (&queues.placement, None),
            Some(asked) if self.has_pool(asked) => return None,
            Some(asked) => match queues.groups.get(&asked.pool) {
                Some(group) if group.parent.as_ref() == Some(&asked.group) => {
                    (&group.placement, None)
                }
                _ => (&queues.groups.get(&asked.group)?.placement, Some(&asked.pool)),
            },
        };
        rules.iter().find_map(|rule| {
            let pool = match rule.by {
                PlaceBy::User => Some(&info.user_id),
                PlaceBy::Group => info.group_ids.as_ref().and_then(|groups| groups.first()),
                PlaceBy::Name => name,
            };
            let pool = PoolName { group: rule.to.clone(), pool: pool?.clone() };
            let exists = self.has_pool(&pool);
            (exists || rule.create && pool.is_legal()).then_some(pool)
        })
    }

    /// Whether the user may start a session in the pool, and the pool's queues take any.
    fn check_submission(&self, pool: &PoolName, info: &SessionInfo) -> Result<(), PoolObjection> {
        let queues = &self.settings.pools.queues;
        if queues.is_empty() {
            return Ok(());
        }
        // A queue that has vanished from the file counts as long as there are sessions in it.
        let used = || self.scheduler.tree.pools().filter(|(_, pool)| !pool.sessions.is_empty());
        let is_used_group =
            |name: &Arc<str>| used().any(|(_, pool)| queues.path(&pool.name.group).contains(name));
        let group = |name: Arc<str>| {
            let rules = queues.groups.get(&name)?;
            let is_there = !rules.vanished || is_used_group(&name);
            is_there.then(|| (queues.path_text(&name), rules))
        };
        let path = queues.path_text(&pool.group);
        let is_used = || used().any(|(_, used)| used.name == *pool);
        let own = queues.pools.get(pool).filter(|rules| !rules.vanished || is_used());
        let own = own.map(|rules| (format!("{path}.{}", pool.pool).into(), rules));
        let groups = queues.path(&pool.group).into_iter().rev().filter_map(group);
        let rules: Vec<(Arc<str>, &QueueRules)> = own.into_iter().chain(groups).collect();
        if let Some((queue, _)) = rules.iter().find(|(_, rules)| rules.draining) {
            return Err(PoolObjection::Draining(queue.clone()));
        }
        let decides = rules.iter().find_map(|(queue, rules)| Some((queue, rules.submit.as_ref()?)));
        match decides {
            Some((queue, submit)) if !submit.allow(info) => {
                let (queue, user) = (queue.clone(), info.user_id.clone());
                Err(PoolObjection::NotAllowed { queue, user })
            }
            _ => Ok(()),
        }
    }

    /// The settings with the queues that they have no more and that sessions are still in. These
    /// queues stay where they were, without a guarantee, and take no more sessions.
    pub(super) fn with_vanished_queues(&self, mut settings: Settings) -> Settings {
        let old = &self.settings.pools;
        if old.queues.is_empty() {
            return settings;
        }
        let new = &mut settings.pools;
        let groups_of_pools: BTreeSet<Arc<str>> =
            new.pools.keys().map(|pool| pool.group.clone()).collect();
        let used = self.scheduler.tree.pools().filter(|(_, pool)| !pool.sessions.is_empty());
        for (_, pool) in used {
            for group in old.queues.path(&pool.name.group) {
                let known = new.queues.groups.contains_key(&group)
                    || new.groups.contains_key(&group)
                    || groups_of_pools.contains(&group);
                let rules = old.queues.groups.get(&group);
                if known || rules.is_none() && !old.groups.contains_key(&group) {
                    continue;
                }
                let rules = rules.cloned().unwrap_or_default();
                let limits = old.groups.get(&group).cloned().unwrap_or_default();
                let limits = GroupSettings { minimum: PerType::all(0), ..limits };
                new.groups.insert(group.clone(), limits);
                new.queues.groups.insert(group, rules.vanished());
            }
            let Some(limits) = old.pools.get(&pool.name) else { continue };
            if !new.pools.contains_key(&pool.name) {
                let limits = PoolSettings { minimum: PerType::all(0), ..limits.clone() };
                let rules = old.queues.pools.get(&pool.name).cloned().unwrap_or_default();
                new.pools.insert(pool.name.clone(), limits);
                new.queues.pools.insert(pool.name.clone(), rules.vanished());
            }
        }
        settings
    }

    /// Whether the file has this pool: one that has vanished from it and is still used is none.
    fn has_pool(&self, pool: &PoolName) -> bool {
        let Pools { pools, queues, .. } = &self.settings.pools;
        pools.contains_key(pool) && !queues.pools.get(pool).is_some_and(|rules| rules.vanished)
    }

    /// Whether a pool may be used. Spec: cluster-manager/02 §3.16.
    pub(super) fn check_pool(&self, pool: Option<&PoolName>) -> Result<(), PoolObjection> {
        if !self.settings.configured_pools_only {
            return Ok(());
        }
        let pool = pool.ok_or(PoolObjection::NotSpecified)?;
        if !self.has_pool(pool) {
            return Err(PoolObjection::NotConfigured(pool.clone()));
        }
        if !pool.is_legal() {
            return Err(PoolObjection::IllegalName(pool.clone()));
        }
        Ok(())
    }

    /// The pool in which a session is scheduled. Spec: cluster-manager/04 §2.
    fn scheduling_pool(
        &mut self,
        handle: &Arc<str>,
        pool: &PoolName,
        info: &SessionInfo,
        effects: &mut Vec<Effect>,
    ) -> Result<PoolIdx, Refusal> {
        let name = scheduling_pool_name(pool, &info.user_id).unwrap_or_else(|illegal| {
            let (handle, pool) = (handle.clone(), illegal);
            effects.push(Effect::Record(Record::IllegalPool { handle, pool }));
            default_pool()
        });
        let tree = &mut self.scheduler.tree;
        if tree.find(&name).is_none() && tree.pool_count() >= self.settings.bounds.pools {
            let used = tree.pools().filter(|(_, pool)| !pool.configured).count();
            if used >= self.settings.bounds.pools {
                return Err(Refusal::TooManyPools { used });
            }
        }
        Ok(tree.acquire_pool(&name, &self.settings))
    }

    /// Directory for the session's history. Spec: cluster-manager/05 §3.1.
    fn log_path(&self, handle: &str) -> Option<String> {
        let directory = session_directory(handle, self.settings.sessions_per_log_dir)?;
        Some(format!("{}/{directory}", self.settings.sessions_log_dir))
    }

    fn session(&self, handle: &Arc<str>) -> Result<SessionIdx, Refusal> {
        self.sessions.find(handle).ok_or_else(|| Refusal::UnknownSession(handle.clone()))
    }

    fn hear_session(&mut self, now: Millis, handle: &Arc<str>) -> Result<SessionIdx, Refusal> {
        let session = self.session(handle)?;
        self.sessions.heard(session, now);
        Ok(session)
    }

    /// Whether the session may continue. Spec: cluster-manager/02 §3.6.
    fn check_step(
        &mut self,
        now: Millis,
        session: SessionIdx,
        view: &SessionView,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let late_after_ms = self.settings.heartbeat_delay_max_ms;
        let entry = &mut self.sessions[session];
        let mismatch = if view.request_id != entry.expected.request_id {
            StepMismatch::Lost
        } else if view.grant_id == entry.expected.grant_id {
            entry.last_sync = now;
            entry.last_seen = Step::default();
            return true;
        } else if view.grant_id != entry.last_seen.grant_id {
            entry.last_sync = now;
            entry.last_seen = Step { request_id: view.request_id, grant_id: view.grant_id };
            StepMismatch::Progress
        } else if now.since(entry.last_sync) > late_after_ms {
            StepMismatch::Late
        } else {
            StepMismatch::NoProgress
        };
        effects.push(Effect::Record(Record::OutOfStep {
            handle: entry.handle.clone(),
            kind: mismatch,
            request_id: entry.expected.request_id,
            grant_id: entry.expected.grant_id,
            seen_request_id: view.request_id,
            seen_grant_id: view.grant_id,
        }));
        mismatch != StepMismatch::Lost
    }

    /// `requestMax`: the most that one call may request. Spec: cluster-manager/02 §3.7, step 4.
    fn check_request_count(
        &self,
        session: SessionIdx,
        counts: &PerType<usize>,
    ) -> Result<(), Refusal> {
        let entry = &self.sessions[session];
        let Some(pool) = self.settings.pools.pools.get(&entry.pool_name) else { return Ok(()) };
        if !pool.request_max {
            return Ok(());
        }
        for kind in ResourceType::ALL {
            let requested = counts[kind] as u64;
            let allowed = pool.maximum[kind];
            if i128::from(requested) > i128::from(allowed) {
                let handle = entry.handle.clone();
                return Err(Refusal::OverPoolMaximum { handle, kind, requested, allowed });
            }
        }
        Ok(())
    }

    /// Adds a request as pending; [`Engine::settle`] follows. An id that is known already is a
    /// repeated call after a lost reply: the first one stays. Returns whether it was new.
    fn add_request(
        &mut self,
        session: SessionIdx,
        request: ResourceRequest,
        racks: &[(Arc<str>, Arc<str>)],
        now: Millis,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let (id, kind) = (request.id, request.kind);
        if self.sessions[session].requests.find(id).is_some() {
            let handle = self.sessions[session].handle.clone();
            effects.push(Effect::Record(Record::DuplicateRequest { handle, id }));
            return false;
        }
        let asked = Asked { at: now, input: self.inputs };
        let req = self.insert_request(session, request, asked, racks);
        let Session { requests, demand, .. } = &mut self.sessions[session];
        let demand = &mut demand[kind];
        demand.pending.push(requests, &self.topology, req);
        if demand.first_wait == FirstWait::NotAsked {
            demand.first_wait = FirstWait::Waiting;
        }
        true
    }

    /// Gives all requests of a session new places in their order. Needed once in four billion
    /// requests.
    pub(super) fn number_anew(&mut self, session: SessionIdx) {
        let Session { requests, demand, .. } = &mut self.sessions[session];
        requests.forget_order();
        for demand in &mut demand.0 {
            demand.pending.enter_anew(requests, &self.topology);
        }
    }

    /// Adds a request with a new id. The caller sets its state; until then it counts as lost.
    /// `racks` is sorted by host.
    pub(super) fn insert_request(
        &mut self,
        session: SessionIdx,
        request: ResourceRequest,
        asked: Asked,
        racks: &[(Arc<str>, Arc<str>)],
    ) -> ReqIdx {
        let ResourceRequest { id, hosts, specs, kind, exclude_hosts } = request;
        let topology = &mut self.topology;
        let placed = |name: &Arc<str>| topology.acquire(name, || rack_in(racks, name));
        let hosts = hosts.iter().map(placed).collect();
        let avoided = |name: &Arc<str>| self.topology.acquire_unplaced(name);
        let excluded: Box<[HostIdx]> = exclude_hosts.iter().map(avoided).collect();
        let resources = &self.settings.resources;
        let demand = resources.demand(kind, specs);
        let request = Request::new(id, kind, resources.slots(specs), hosts, excluded);
        self.sessions[session].requests.insert(request, asked, specs, demand)
    }

    /// Forgets a request and frees its slot. [`Engine::settle`] with the change follows.
    fn drop_request(&mut self, session: SessionIdx, req: ReqIdx) -> (ResourceType, Tally) {
        let granted = self.unassign(session, req);
        let Session { requests, demand, .. } = &mut self.sessions[session];
        let kind = requests[req].kind;
        let pending = matches!(requests[req].state, RequestState::Pending { .. });
        demand[kind].pending.remove(requests, &self.topology, req);
        let request = requests.remove(req);
        for host in request.hosts.iter().chain(&*request.excluded) {
            self.topology.release(*host);
        }
        let (pending, granted) = (i64::from(pending), i64::from(granted));
        let slots = granted * i64::from(request.need());
        (kind, Tally { requested: -1, pending: -pending, granted: -granted, slots: -slots })
    }

    /// Forgets all requests and frees their slots, as [`Engine::drop_request`] does.
    fn drop_requests(&mut self, session: SessionIdx) -> PerType<Tally> {
        let all: Vec<ReqIdx> = self.sessions[session].requests.iter().map(|(req, _)| req).collect();
        let mut changes = PerType::all(Tally::default());
        for req in all {
            let (kind, change) = self.drop_request(session, req);
            changes[kind].add(change);
        }
        changes
    }

    /// Prefetches the memory that freeing these requests will read, so that the cache misses
    /// overlap. It changes nothing.
    fn prefetch(&self, session: SessionIdx, ids: &[i32]) {
        let requests = &self.sessions[session].requests;
        let found = ids.iter().filter_map(|id| {
            let req = requests.find(*id)?;
            black_box(requests.demand(req));
            requests.get(req)
        });
        let mut held = Vec::with_capacity(ids.len());
        held.extend(found.filter_map(|request| match request.state {
            RequestState::Granted { node, slot, .. } => Some((node, slot, request.kind)),
            _ => None,
        }));
        self.nodes.prefetch_to_free(&held);
    }

    /// Ends a session: frees all that it holds and forgets its notifications.
    fn end(
        &mut self,
        session: SessionIdx,
        status: SessionStatus,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let changes = match self.sessions[session].requests.len() {
            0..=remains::AT_ONCE => self.drop_requests(session),
            _ => self.leave_requests(session),
        };
        let handle = self.sessions[session].handle.clone();
        for kind in ResourceType::ALL {
            self.settle(session, kind, changes[kind], now);
            let count = changes[kind].granted.unsigned_abs();
            if count > 0 {
                let handle = handle.clone();
                effects.push(Effect::Record(Record::Released { handle, kind, count }));
            }
        }
        self.leave_queues(session);
        let ended = self.sessions.remove(session);
        for node in &ended.nodes {
            self.nodes[*node].sessions.remove(session);
        }
        effects.push(Effect::Record(Record::SessionEnded {
            handle: handle.clone(),
            name: ended.info.name.clone(),
            user: ended.info.user_id.clone(),
            address: ended.info.address.clone(),
            status,
            url: ended.info.url.clone(),
            running: self.sessions.len(),
        }));
        effects.push(Effect::ForgetSession { handle });
        self.sessions.retire(retired(ended, status, now), self.settings.retired_sessions);
    }
}

fn retired(session: Session, status: SessionStatus, now: Millis) -> RetiredSession {
    RetiredSession {
        handle: session.handle,
        info: session.info,
        pool: session.pool_name,
        started: session.started,
        ended: now,
        status,
        max_granted: session.demand.map_ref(|demand| demand.max_granted),
        fulfilled: session.demand.map_ref(|demand| demand.fulfilled),
        revoked: session.demand.map_ref(|demand| demand.revoked),
        usages: session.demand.0.map(|demand| demand.usages),
    }
}

/// The rack of a host in a list sorted by host. `None` for the default rack.
pub(super) fn rack_in(racks: &[(Arc<str>, Arc<str>)], host: &Arc<str>) -> Option<Arc<str>> {
    let at = racks.binary_search_by(|(name, _)| name.cmp(host)).ok()?;
    racks.get(at).map(|(_, rack)| rack.clone())
}

/// The name of the pool in which a session of `pool` is scheduled, or the name that it would have
/// but that is not legal. Spec: cluster-manager/04 §2.
pub(super) fn scheduling_pool_name(pool: &PoolName, user_id: &str) -> Result<PoolName, PoolName> {
    let name =
        if pool.pool.is_empty() { PoolName::new(DEFAULT_GROUP, user_id) } else { pool.clone() };
    if name.is_legal() { Ok(name) } else { Err(name) }
}

/// Where sessions of illegal pools are scheduled.
pub(super) fn default_pool() -> PoolName {
    PoolName::new(DEFAULT_GROUP, DEFAULT_POOL)
}
