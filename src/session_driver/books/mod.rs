//! The state of a session's slots: every slot from its request to its release.
//!
//! Pure: no sockets, no clock, no locks. The inputs are requests, acknowledgements and
//! notifications; the outputs are events and ids to release. Inputs may arrive twice, late, or
//! unsolicited. Spec: cluster-manager/02 §3.6 to §3.8, 05 §2, §5.

use std::sync::Arc;

use thiserror::Error;

use super::slots::{self, GrantOutcome, Slots};
use corona_model::types::{ComputeSpecs, Grant, PerType, ResourceRequest, ResourceType};

/// A slot to request. The [`SlotBooks`] assign its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// The type of the slot.
    pub kind: ResourceType,
    /// Hosts to be near to, best first; empty for anywhere.
    pub hosts: Vec<Arc<str>>,
    /// Hosts not to be used. None of `hosts` may be among them.
    pub exclude_hosts: Vec<Arc<str>>,
    /// The resources of the slot.
    pub specs: ComputeSpecs,
}

impl SlotRequest {
    /// A slot anywhere, with the specs that a Java job tracker requests: one CPU, 1024 MB of
    /// memory, 10 GB of disk, and 10 MB/s of network for a map task, 50 for others. Spec:
    /// cluster-manager/05 §6.
    pub fn new(kind: ResourceType) -> SlotRequest {
        let network_mbps = if kind == ResourceType::Map { 10 } else { 50 };
        let specs = ComputeSpecs {
            num_cpus: 1,
            network_mbps: Some(network_mbps),
            memory_mb: Some(1024),
            disk_gb: Some(10),
        };
        SlotRequest { kind, hosts: vec![], exclude_hosts: vec![], specs }
    }

    /// The same slot, but near one of these hosts, best first.
    pub fn near<H: Into<Arc<str>>>(mut self, hosts: impl IntoIterator<Item = H>) -> SlotRequest {
        self.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// The same slot, but on none of these hosts.
    pub fn avoiding<H: Into<Arc<str>>>(
        mut self,
        hosts: impl IntoIterator<Item = H>,
    ) -> SlotRequest {
        self.exclude_hosts = hosts.into_iter().map(Into::into).collect();
        self
    }
}

/// The request that replaces a lost slot.
impl From<&ResourceRequest> for SlotRequest {
    fn from(request: &ResourceRequest) -> SlotRequest {
        let one_cpu = ComputeSpecs { num_cpus: 1, ..ComputeSpecs::default() };
        SlotRequest {
            kind: request.kind,
            hosts: request.hosts.clone(),
            exclude_hosts: request.exclude_hosts.clone(),
            specs: request.specs.unwrap_or(one_cpu),
        }
    }
}

/// The state of a session's request.
pub type RequestStanding = slots::RequestStanding<Box<Grant>>;

/// A slot that the session held or requested, and that it lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The grant that is void.
    pub grant: Grant,
    /// The original request; of [books in outline](SlotBooks::in_outline), its id and type.
    pub request: ResourceRequest,
}

impl Lost {
    fn of(grant: Grant, request: &ResourceRequest) -> Lost {
        let request = ResourceRequest { id: grant.id, ..request.clone() };
        Lost { grant, request }
    }
}

/// Requests of one type by where they stand now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standings {
    /// See [`RequestStanding::Wanted`].
    pub wanted: usize,
    /// See [`RequestStanding::Pending`].
    pub pending: usize,
    /// See [`RequestStanding::Granted`].
    pub granted: usize,
    /// See [`RequestStanding::Lost`].
    pub lost: usize,
    /// See [`RequestStanding::Releasing`].
    pub releasing: usize,
}

/// Counters since the start of the session. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requested slots.
    pub requested: u64,
    /// Grants taken.
    pub granted: u64,
    /// Requests released, whether they were granted or not.
    pub released: u64,
    /// Grants taken back by the cluster manager.
    pub revoked: u64,
    /// Grants that went with their node.
    pub died: u64,
    /// Repeated grants of slots that were held.
    pub repeated_grants: u64,
    /// Grants of requests that had been released, or lost, before.
    pub late_grants: u64,
    /// Unsolicited grants.
    pub stray_grants: u64,
    /// Revocations of slots that were not held any more, or never were.
    pub stale_revocations: u64,
}

/// The meaning of a batch of grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantNews {
    /// Slots that the session has from now on.
    pub fresh: Vec<Grant>,
    /// Ids to release at once, ascending: these grants are not needed.
    pub give_back: Vec<i32>,
}

/// There are fewer ids left than requested slots. An id is never reused in a session, so another
/// session has to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{wanted} request ids were wanted, and {left} are left")]
pub struct IdsExhausted {
    /// How many were wanted.
    pub wanted: usize,
    /// How many are left.
    pub left: usize,
}

/// The books of one session.
#[derive(Clone, Debug)]
pub struct SlotBooks {
    slots: Slots<Arc<ResourceRequest>, Box<Grant>>,
    /// What stands for an acknowledged request of each type, if no more of it is kept.
    outlines: Option<PerType<Arc<ResourceRequest>>>,
    totals: Totals,
    last_request_id: i32,
    /// Not known to books of an earlier run before the first batch.
    last_grant_id: Option<i32>,
}

impl Default for SlotBooks {
    fn default() -> SlotBooks {
        SlotBooks::starting_at(1)
    }
}

impl SlotBooks {
    /// Empty books whose first request gets this id. The original, and [`SlotBooks::default`], start
    /// at 1.
    pub fn starting_at(first_id: i32) -> SlotBooks {
        SlotBooks {
            slots: Slots::starting_at(first_id),
            outlines: None,
            totals: Totals::default(),
            last_request_id: 0,
            last_grant_id: Some(0),
        }
    }

    /// The books of an earlier run that used the ids from 1 up to `last_id`, with the requests that
    /// it has not released and their grants.
    pub fn restored(last_id: i32, open: Vec<(ResourceRequest, Option<Grant>)>) -> SlotBooks {
        let open = open
            .into_iter()
            .map(|(request, grant)| (request.id, Arc::new(request), grant.map(Box::new)));
        SlotBooks {
            slots: Slots::restored(last_id, open),
            last_grant_id: None,
            ..SlotBooks::default()
        }
    }

    /// The same books, which keep of a request only its type once the cluster manager has acknowledged it: for
    /// an owner with very many requests that knows by itself what they were.
    pub fn in_outline(mut self) -> SlotBooks {
        let outline = |kind| {
            let (hosts, exclude_hosts) = (Vec::new(), Vec::new());
            Arc::new(ResourceRequest { id: 0, hosts, specs: None, kind, exclude_hosts })
        };
        self.outlines = Some(PerType(ResourceType::ALL.map(outline)));
        self
    }

    /// Books new requests and gives them their ids, ascending. All of them or none.
    pub fn want(
        &mut self,
        slots: Vec<SlotRequest>,
    ) -> Result<Vec<Arc<ResourceRequest>>, IdsExhausted> {
        let (wanted, left) = (slots.len(), self.slots.ids_left());
        if wanted > left {
            return Err(IdsExhausted { wanted, left });
        }
        let requests = slots.into_iter().filter_map(|slot| {
            let request = self.slots.want(|id| {
                Arc::new(ResourceRequest {
                    id,
                    hosts: slot.hosts,
                    specs: Some(slot.specs),
                    kind: slot.kind,
                    exclude_hosts: slot.exclude_hosts,
                })
            });
            // The remaining requests were counted, so each gets an id.
            request.cloned()
        });
        let requests: Vec<_> = requests.collect();
        self.totals.requested += requests.len() as u64;
        Ok(requests)
    }

    /// The cluster manager has acknowledged a call with these requests.
    pub fn requested(&mut self, ids: impl IntoIterator<Item = i32>) {
        self.last_request_id = 0;
        for id in ids {
            self.last_request_id = self.last_request_id.max(id);
            self.slots.acknowledge(id);
            if let Some(outlines) = &self.outlines {
                self.slots.change(id, |request| *request = outlines[request.kind].clone());
            }
        }
    }

    /// Abandons requests, granted or not. Returns the ids that must be released at the cluster
    /// manager, ascending: those that are known here and not yet released.
    pub fn release(&mut self, ids: impl IntoIterator<Item = i32>) -> Vec<i32> {
        let ids = ids.into_iter().filter(|id| self.slots.release(*id).is_some());
        let mut release: Vec<_> = ids.collect();
        self.totals.released += release.len() as u64;
        release.sort_unstable();
        release
    }

    /// The cluster manager has acknowledged a call that released these.
    pub fn released(&mut self, ids: impl IntoIterator<Item = i32>) {
        ids.into_iter().for_each(|id| self.slots.forget(id));
    }

    /// The cluster manager sent grants.
    pub fn granted(&mut self, grants: Vec<Grant>) -> GrantNews {
        let mut last = 0;
        let mut news = GrantNews::default();
        let totals = &mut self.totals;
        for grant in grants {
            last = last.max(grant.id);
            match self.slots.grant(grant.id, &Box::new(grant.clone())) {
                GrantOutcome::Fresh(_) => {
                    totals.granted += 1;
                    news.fresh.push(grant);
                }
                GrantOutcome::Again(RequestStanding::Granted(_)) => totals.repeated_grants += 1,
                // Its release is on the way, or is the holder's to make.
                GrantOutcome::Again(_) | GrantOutcome::Late => totals.late_grants += 1,
                // A cluster manager that was restored from an old state may grant released slots
                // again.
                GrantOutcome::Forgotten => {
                    totals.late_grants += 1;
                    news.give_back.push(grant.id);
                }
                GrantOutcome::Stray => {
                    totals.stray_grants += 1;
                    news.give_back.push(grant.id);
                }
            }
        }
        self.last_grant_id = Some(last);
        news.give_back.sort_unstable();
        news.give_back.dedup();
        news
    }

    /// The cluster manager takes grants back. Returns those that were held, or waited for.
    pub fn revoked(&mut self, grants: Vec<Grant>) -> Vec<Lost> {
        let mut lost = Vec::new();
        for told in grants {
            match self.slots.lose(told.id, Some(&Box::new(told.clone()))) {
                Some((grant, request)) => lost.push(Lost::of(*grant, request)),
                None => self.totals.stale_revocations += 1,
            }
        }
        self.totals.revoked += lost.len() as u64;
        lost
    }

    /// The cluster manager reported that a node is dead. Returns the lost grants, by id.
    pub fn node_died(&mut self, node: &str) -> Vec<Lost> {
        let of_node: Vec<i32> =
            self.grants().filter(|grant| &*grant.node_name == node).map(|grant| grant.id).collect();
        let lost = of_node.into_iter().filter_map(|id| {
            let (grant, request) = self.slots.lose(id, None)?;
            Some(Lost::of(*grant, request))
        });
        let lost: Vec<_> = lost.collect();
        self.totals.died += lost.len() as u64;
        lost
    }

    /// The request id in heartbeats: the greatest id of the last call that was acknowledged, at
    /// least 0. Spec: cluster-manager/02 §3.6.
    pub fn last_request_id(&self) -> i32 {
        self.last_request_id
    }

    /// The grant id in heartbeats: the greatest id of the last batch that was taken, at least 0. Nothing for
    /// books of an earlier run that have taken none.
    pub fn last_grant_id(&self) -> Option<i32> {
        self.last_grant_id
    }

    /// The state of a request; none once its release is acknowledged.
    pub fn standing(&self, id: i32) -> Option<&RequestStanding> {
        self.slots.get(id).map(|(_, standing)| standing)
    }

    /// All requests that are not forgotten, by id.
    pub fn requests(&self) -> impl Iterator<Item = (&ResourceRequest, &RequestStanding)> {
        self.slots.iter().map(|(_, request, standing)| (&**request, standing))
    }

    /// The grants that are held, by id.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.requests().filter_map(|(_, standing)| match standing {
            RequestStanding::Granted(grant) => Some(&**grant),
            _ => None,
        })
    }

    /// How many requests of each type stand where. Goes through all of them.
    pub fn standings(&self) -> PerType<Standings> {
        let mut counts = PerType::<Standings>::default();
        for (request, standing) in self.requests() {
            let counts = &mut counts[request.kind];
            let count = match standing {
                RequestStanding::Wanted => &mut counts.wanted,
                RequestStanding::Pending => &mut counts.pending,
                RequestStanding::Granted(_) => &mut counts.granted,
                RequestStanding::Lost(_) => &mut counts.lost,
                RequestStanding::Releasing(_) => &mut counts.releasing,
            };
            *count += 1;
        }
        counts
    }

    /// The counters so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }
}

#[cfg(test)]
mod tests;
