//! Leftovers of large sessions: requests that hold nothing any more, and the indexes over them.
//! Dropping millions of them takes long, so each pass drops a part. None of this is visible from
//! outside: the session has ended, and its slots are free.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Engine;
use super::check::ImageError;
use super::index::{HostIdx, Idx, ReqIdx, SessionIdx};
use super::lookup::HashSeed;
use super::pending::{Pending, PendingImage};
use super::requests::{Requests, RequestsImage};
use super::sessions::Tally;
use super::topology::Topology;
use super::types::{PerType, ResourceType};
use corona_model::resources::Resources;

/// Requests that are dropped in one input. A session with more leaves its requests behind.
pub(super) const AT_ONCE: usize = 10_000;

/// Leftovers of ended sessions, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Remains(VecDeque<Remnant>);

#[derive(Debug)]
struct Remnant {
    requests: Requests,
    /// Requests at places below this one have been dropped.
    next: usize,
    pending: PerType<Pending>,
}

/// Leftovers of ended sessions, in an [`Image`](super::Image).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RemainsImage(Vec<RemnantImage>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RemnantImage {
    requests: RequestsImage,
    next: usize,
    pending: PerType<PendingImage>,
}

impl Remains {
    pub(super) fn image(&self) -> RemainsImage {
        let image = |remnant: &Remnant| RemnantImage {
            requests: remnant.requests.image(),
            next: remnant.next,
            pending: remnant.pending.map_ref(Pending::image),
        };
        RemainsImage(self.0.iter().map(image).collect())
    }

    pub(super) fn from_image(
        image: RemainsImage,
        topology: &Topology,
        resources: &Resources,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let mut remains = Remains::default();
        for RemnantImage { requests, next, pending } in image.0 {
            let (requests, lines) = Requests::from_image(requests, topology, resources, seed)?;
            let PerType([map, reduce, job_tracker]) = pending;
            let PerType([map_line, reduce_line, job_tracker_line]) = lines;
            let pending = PerType([
                Pending::from_image(map, map_line, seed)?,
                Pending::from_image(reduce, reduce_line, seed)?,
                Pending::from_image(job_tracker, job_tracker_line, seed)?,
            ]);
            remains.0.push_back(Remnant { requests, next, pending });
        }
        Ok(remains)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hosts that the requests name, each as often as they do.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostIdx> {
        let requests = self.0.iter().flat_map(|remnant| remnant.requests.iter());
        requests.flat_map(|(_, request)| request.hosts.iter().chain(&*request.excluded).copied())
    }
}

impl Engine {
    /// Frees the slots of a session that ends and leaves its requests behind. Returns by how much
    /// its counts change; [`Engine::settle`] with it follows.
    pub(super) fn leave_requests(&mut self, session: SessionIdx) -> PerType<Tally> {
        let entry = &self.sessions[session];
        let holds = |kind| entry.demand(kind).tally.granted > 0;
        let mut held: Vec<ReqIdx> = Vec::new();
        if ResourceType::ALL.into_iter().any(holds) {
            for node in &entry.nodes {
                let grants = self.nodes[*node].grants.iter().map(|(_, holder)| *holder);
                held.extend(grants.filter(|(of, _)| *of == session).map(|(_, req)| req));
            }
        }
        for req in held {
            self.unassign(session, req);
        }
        let remnant = Remnant {
            requests: self.sessions.take_requests(session),
            next: 0,
            pending: self.sessions.take_pending(session),
        };
        self.remains.0.push_back(remnant);
        let entry = &self.sessions[session];
        PerType(ResourceType::ALL.map(|kind| {
            let Tally { requested, pending, granted, slots } = entry.demand(kind).tally;
            Tally { requested: -requested, pending: -pending, granted: -granted, slots: -slots }
        }))
    }

    /// Drops a part of the leftovers of ended sessions.
    pub(super) fn clear_remains(&mut self) {
        let Some(Remnant { requests, next, pending }) = self.remains.0.front_mut() else { return };
        let places = requests.places();
        if *next < places {
            let end = next.saturating_add(AT_ONCE).min(places);
            // A session cannot have more requests than numbers for them.
            let numbers = (*next as u32..end as u32).map(ReqIdx::from_number);
            for request in numbers.filter_map(|req| requests.discard(req)) {
                for host in request.hosts.iter().chain(&*request.excluded) {
                    self.topology.release(*host);
                }
            }
            *next = end;
        } else if !pending.0.iter_mut().any(|pending| pending.dismantle(AT_ONCE)) {
            self.remains.0.pop_front();
        }
    }
}
