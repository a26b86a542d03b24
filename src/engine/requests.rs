//! One session's requests: what it has asked for and not given back.
//!
//! Spec: cluster-manager/05 §2. A request is pending, granted or lost (its grant was taken back or
//! died with its node). A lost one stays known, and counts as requested, until it is released.

use std::ops::{Index, IndexMut};

use slab::Slab;

use super::audit::hold;
use super::input::Asked;
use super::lookup::{HashSeed, Lookup, NONE};
use super::nodes::NodeIdx;
use super::topology::HostIdx;
use super::types::{ComputeSpecs, Millis, ResourceType};

/// A request by number within its session.
pub(super) type ReqIdx = u32;

/// A place in the order in which a session's requests came, from 1.
pub(super) type Seq = u32;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Waits. `prev` and `next` are its neighbours in the order of arrival.
    Pending { prev: ReqIdx, next: ReqIdx, class: u32 },
    /// Holds a slot: entry `slot` of the node's grants.
    Granted { node: NodeIdx, slot: u32, at: Millis },
    /// Its grant is gone.
    Lost,
}

/// A request as the engine keeps it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: i32,
    pub(super) kind: ResourceType,
    pub(super) specs: Option<ComputeSpecs>,
    pub(super) hosts: Box<[HostIdx]>,
    pub(super) excluded: Box<[HostIdx]>,
    pub(super) asked: Asked,
    pub(super) state: RequestState,
}

impl Request {
    /// Slots that the request takes: its CPUs, at least 1; 1 when it does not say.
    pub(super) fn need(&self) -> u32 {
        self.specs.map_or(1, |specs| u32::try_from(specs.num_cpus).unwrap_or(1).max(1))
    }
}

/// All requests of a session.
#[derive(Debug)]
pub(super) struct Requests {
    slab: Slab<Request>,
    by_id: Lookup<i32, ReqIdx>,
    /// The places of pending requests by their numbers, 0 for others. Searches look at many, so
    /// they are kept close together.
    seqs: Vec<Seq>,
    last_seq: Seq,
}

impl Requests {
    pub(super) fn new(seed: HashSeed) -> Self {
        Requests { slab: Slab::new(), by_id: Lookup::new(seed), seqs: Vec::new(), last_seq: 0 }
    }

    /// Adds a request, of which the id must be new.
    pub(super) fn insert(&mut self, request: Request) -> ReqIdx {
        let id = request.id;
        let req = self.slab.insert(request) as ReqIdx;
        self.by_id.insert(id, req);
        if self.seqs.len() <= req as usize {
            self.seqs.resize(req as usize + 1, 0);
        }
        req
    }

    pub(super) fn remove(&mut self, req: ReqIdx) -> Request {
        let request = self.slab.remove(req as usize);
        self.by_id.remove(&request.id);
        request
    }

    pub(super) fn find(&self, id: i32) -> Option<ReqIdx> {
        self.by_id.get(&id).copied()
    }

    /// The request of this number, if there is one.
    pub(super) fn get(&self, req: ReqIdx) -> Option<&Request> {
        self.slab.get(req as usize)
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// All numbers are below this one.
    pub(super) fn places(&self) -> usize {
        self.slab.capacity()
    }

    /// All requests in a defined order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ReqIdx, &Request)> {
        self.slab.iter().map(|(req, request)| (req as ReqIdx, request))
    }

    /// Recomputes the index by id.
    pub(super) fn audit(&self) -> Result<(), String> {
        hold(self.by_id.len() == self.slab.len(), || "requests by id: too many".into())?;
        for (req, request) in self.iter() {
            let found = self.by_id.get(&request.id) == Some(&req);
            hold(found, || format!("request {} is not found by id", request.id))?;
            let pending = matches!(request.state, RequestState::Pending { .. });
            hold(pending == self.seq(req).is_some(), || {
                format!("request {} has a place without waiting or waits without one", request.id)
            })?;
        }
        let placed = self.seqs.iter().filter(|seq| **seq > 0).count();
        hold(placed <= self.slab.len(), || format!("{placed} places are taken"))
    }

    /// Whether there are places left for so many more requests. If not, all pending ones have to be
    /// entered anew after [`Self::forget_order`].
    pub(super) fn has_places_for(&self, more: usize) -> bool {
        more <= (Seq::MAX - self.last_seq) as usize
    }

    /// Lets the order of arrival begin anew. No pending request has a place afterwards.
    pub(super) fn forget_order(&mut self) {
        self.seqs.fill(0);
        self.last_seq = 0;
    }

    #[cfg(test)]
    pub(super) fn use_up_places(&mut self, left: Seq) {
        self.last_seq = Seq::MAX - left;
    }

    /// Makes a request pending, behind `prev`, and gives it the next place. Types share the places,
    /// so that a number and its place never come again together.
    pub(super) fn enter(&mut self, req: ReqIdx, prev: ReqIdx, class: u32) -> Seq {
        self.last_seq = self.last_seq.saturating_add(1);
        self.seqs[req as usize] = self.last_seq;
        self[req].state = RequestState::Pending { prev, next: NONE, class };
        self.last_seq
    }

    /// Makes a request that was pending lost.
    pub(super) fn leave(&mut self, req: ReqIdx) {
        self.seqs[req as usize] = 0;
        self[req].state = RequestState::Lost;
    }

    /// The place of a pending request in the order of arrival; `None` for any other.
    pub(super) fn seq(&self, req: ReqIdx) -> Option<Seq> {
        self.seqs.get(req as usize).copied().filter(|seq| *seq > 0)
    }

    /// Whether the request is pending and at this place.
    pub(super) fn is_at(&self, req: ReqIdx, seq: Seq) -> bool {
        self.seqs.get(req as usize) == Some(&seq)
    }

    /// The pending request after this pending one, or [`NONE`].
    pub(super) fn next(&self, req: ReqIdx) -> ReqIdx {
        match self.slab.get(req as usize).map(|request| request.state) {
            Some(RequestState::Pending { next, .. }) => next,
            _ => NONE,
        }
    }

    pub(super) fn set_next(&mut self, req: ReqIdx, to: ReqIdx) {
        if let RequestState::Pending { next, .. } = &mut self[req].state {
            *next = to;
        }
    }

    pub(super) fn set_prev(&mut self, req: ReqIdx, to: ReqIdx) {
        if let RequestState::Pending { prev, .. } = &mut self[req].state {
            *prev = to;
        }
    }
}

impl Index<ReqIdx> for Requests {
    type Output = Request;
    fn index(&self, req: ReqIdx) -> &Request {
        &self.slab[req as usize]
    }
}

impl IndexMut<ReqIdx> for Requests {
    fn index_mut(&mut self, req: ReqIdx) -> &mut Request {
        &mut self.slab[req as usize]
    }
}
