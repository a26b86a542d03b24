//! Sessions in an [`Image`](crate::Image).

use std::sync::Arc;

use corona_model::form::Later;
use corona_model::resources::{Amounts, Resources};
use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

use super::{Blocked, Demand, FirstWait, RetiredSession, Session, Sessions, Step, Tally};
use crate::arena::{Arena, ArenaImage};
use crate::check::{ImageError, check};
use crate::index::{NodeIdx, PoolIdx, SessionIdx};
use crate::lookup::{Chains, HashSeed, Lookup, Unique};
use crate::pending::{Pending, PendingImage};
use crate::requests::{PendingQueue, RequestState, Requests, RequestsImage};
use crate::scheduler::Locality;
use crate::scheduler::crowd::Gate;
use crate::topology::Topology;
use crate::types::{Millis, PerType, PoolName, ResourceType, SessionInfo};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionsImage {
    sessions: ArenaImage<SessionImage>,
    /// In the order of their last heartbeats.
    by_heartbeat: Vec<SessionIdx>,
    next_serial: u64,
    retired: Vec<RetiredSession>,
    retired_ever: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SessionImage {
    handle: Arc<str>,
    serial: u64,
    info: SessionInfo,
    deadline: i64,
    start_name: Arc<str>,
    pool_name: PoolName,
    pool: PoolIdx,
    started: Millis,
    last_heartbeat: Millis,
    expected: Step,
    last_seen: Step,
    last_sync: Millis,
    requests: RequestsImage,
    demand: PerType<DemandImage>,
    nodes: Vec<NodeIdx>,
    /// Whether it waits for its turn.
    waits: Later<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DemandImage {
    pending: PendingImage,
    max_granted: i64,
    fulfilled: i64,
    revoked: i64,
    usages: Vec<i64>,
    first_wait: FirstWait,
    locality: Locality,
    blocked: Option<Blocked>,
}

impl Sessions {
    pub(crate) fn image(&self) -> SessionsImage {
        SessionsImage {
            sessions: self.slab.image(|_, session| session.image()),
            by_heartbeat: self.by_heartbeat.iter(0, 0).collect(),
            next_serial: self.next_serial,
            retired: self.retired.iter().cloned().collect(),
            retired_ever: self.retired_ever,
        }
    }

    /// The sessions, which still have to be put into the queues of their pools.
    pub(crate) fn from_image(
        image: SessionsImage,
        topology: &Topology,
        resources: &Resources,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let SessionsImage { sessions, by_heartbeat: order, next_serial, retired, retired_ever } =
            image;
        let mut by_handle = Lookup::new(seed);
        let slab = Arena::from_image(sessions, |session, image: SessionImage| {
            let known = by_handle.insert(image.handle.clone(), session);
            check(known.is_none(), "two sessions have one handle")?;
            Session::from_image(image, topology, resources, seed)
        })?;
        let mut by_heartbeat = Chains::default();
        by_heartbeat.fill(0, 0, &order, &mut Unique::new(slab.places()))?;
        check(retired_ever >= retired.len() as u64, "too many sessions have ended")?;
        let retired = retired.into();
        Ok(Sessions { slab, by_handle, by_heartbeat, next_serial, retired, retired_ever, seed })
    }
}

impl Session {
    fn image(&self) -> SessionImage {
        SessionImage {
            handle: self.handle.clone(),
            serial: self.serial,
            info: self.info.clone(),
            deadline: self.deadline,
            start_name: self.start_name.clone(),
            pool_name: self.pool_name.clone(),
            pool: self.pool,
            started: self.started,
            last_heartbeat: self.last_heartbeat,
            expected: self.expected,
            last_seen: self.last_seen,
            last_sync: self.last_sync,
            requests: self.requests.image(),
            demand: self.demand.map_ref(Demand::image),
            nodes: self.nodes.iter().copied().collect(),
            waits: Later(self.gate.is_some()),
        }
    }

    fn from_image(
        image: SessionImage,
        topology: &Topology,
        resources: &Resources,
        seed: HashSeed,
    ) -> Result<Session, ImageError> {
        let (requests, PerType([map_line, reduce_line, job_tracker_line])) =
            Requests::from_image(image.requests, topology, resources, seed)?;
        let mut tallies = PerType::all(Tally::default());
        for (_, request) in requests.iter() {
            let granted = i64::from(matches!(request.state, RequestState::Granted { .. }));
            tallies[request.kind].add(Tally {
                requested: 1,
                pending: i64::from(matches!(request.state, RequestState::Pending { .. })),
                granted,
                slots: granted * i64::from(request.need()),
            });
        }
        let PerType([map, reduce, job_tracker]) = image.demand;
        let mut demand = PerType([
            Demand::from_image(map, tallies[ResourceType::Map], map_line, seed)?,
            Demand::from_image(reduce, tallies[ResourceType::Reduce], reduce_line, seed)?,
            Demand::from_image(
                job_tracker,
                tallies[ResourceType::JobTracker],
                job_tracker_line,
                seed,
            )?,
        ]);
        for (kind, held) in ResourceType::ALL.into_iter().zip(requests.held().0) {
            demand[kind].held = held;
        }
        let mut nodes = IndexSet::with_capacity_and_hasher(image.nodes.len(), seed.state());
        nodes.extend(image.nodes);
        Ok(Session {
            handle: image.handle,
            serial: image.serial,
            info: image.info,
            deadline: image.deadline,
            start_name: image.start_name,
            pool_name: image.pool_name,
            pool: image.pool,
            // The scheduler finds the right one.
            gate: image.waits.then_some(Gate::of_pool(image.pool)),
            started: image.started,
            last_heartbeat: image.last_heartbeat,
            expected: image.expected,
            last_seen: image.last_seen,
            last_sync: image.last_sync,
            requests,
            demand,
            nodes,
        })
    }
}

impl Demand {
    fn image(&self) -> DemandImage {
        DemandImage {
            pending: self.pending.image(),
            max_granted: self.max_granted,
            fulfilled: self.fulfilled,
            revoked: self.revoked,
            usages: self.usages.clone(),
            first_wait: self.first_wait,
            locality: self.locality,
            blocked: self.blocked,
        }
    }

    /// The place in the queue of the pool is still to be found.
    fn from_image(
        image: DemandImage,
        tally: Tally,
        line: PendingQueue,
        seed: HashSeed,
    ) -> Result<Demand, ImageError> {
        Ok(Demand {
            tally,
            held: Amounts::ZERO,
            pending: Pending::from_image(image.pending, line, seed)?,
            max_granted: image.max_granted,
            fulfilled: image.fulfilled,
            revoked: image.revoked,
            usages: image.usages,
            first_wait: image.first_wait,
            locality: image.locality,
            place: None,
            blocked: image.blocked,
            batch: Vec::new(),
            batch_asked: Vec::new(),
        })
    }
}
