//! One session's requests: what it has asked for and not given back.
//!
//! Spec: cluster-manager/05 §2. A request is pending, granted or lost (its grant was taken back or
//! died with its node). A lost one stays known, and counts as requested, until it is released.

use std::ops::{Index, IndexMut};

use slab::Slab;

use super::audit::hold;
use super::lookup::{HashSeed, Lookup, NONE};
use super::nodes::NodeIdx;
use super::topology::HostIdx;
use super::types::{ComputeSpecs, Millis, ResourceType};

/// A request by number within its session.
pub(super) type ReqIdx = u32;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Waits. `seq` is its place in the order of arrival, `prev` and `next` its neighbours there.
    Pending { seq: u64, prev: ReqIdx, next: ReqIdx, class: u32 },
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
    next_seq: u64,
}

impl Requests {
    pub(super) fn new(seed: HashSeed) -> Self {
        Requests { slab: Slab::new(), by_id: Lookup::new(seed), next_seq: 0 }
    }

    /// Adds a request, of which the id must be new.
    pub(super) fn insert(&mut self, request: Request) -> ReqIdx {
        let id = request.id;
        let req = self.slab.insert(request) as ReqIdx;
        self.by_id.insert(id, req);
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
        }
        Ok(())
    }

    /// The next place in the order of arrival. Types share the numbers, so that a number and its
    /// place never come again together.
    pub(super) fn next_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    /// The place of a pending request in the order of arrival; `None` for any other.
    pub(super) fn seq(&self, req: ReqIdx) -> Option<u64> {
        match self.slab.get(req as usize)?.state {
            RequestState::Pending { seq, .. } => Some(seq),
            _ => None,
        }
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
