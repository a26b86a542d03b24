//! The state of a session's slots: every slot from its request to its release.
//!
//! Pure: no sockets, no clock, no locks. The inputs are requests, acknowledgements and
//! notifications; the outputs are events and ids to release. Inputs may arrive twice, late, or
//! unsolicited. Spec: cluster-manager/02 §3.6 to §3.8, 05 §2, §5.

use std::sync::Arc;

use thiserror::Error;

use super::slots::{self, GrantOutcome, Slots};
use super::types::{Grant, PerType, Request, ResourceType, SlotRequest};

/// The state of a session's request.
pub type Standing = slots::RequestStanding<Box<Grant>>;

/// A slot that the session held or requested, and that it lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The grant that is void.
    pub grant: Grant,
    /// The original request; with [`Options::outline_requests`](super::Options::outline_requests), its
    /// id and type.
    pub request: Request,
}

impl Lost {
    fn of(grant: Grant, slot: &Arc<SlotRequest>) -> Lost {
        let request = Request { id: grant.id, slot: slot.clone() };
        Lost { grant, request }
    }
}

/// A request of a session and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The request; with [`Options::outline_requests`](super::Options::outline_requests), its id and type.
    pub request: Request,
    /// The state.
    pub standing: Standing,
}

/// How many requests stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Standings {
    /// See [`Standing::Wanted`].
    pub wanted: usize,
    /// See [`Standing::Pending`].
    pub pending: usize,
    /// See [`Standing::Granted`].
    pub granted: usize,
    /// See [`Standing::Lost`].
    pub lost: usize,
    /// See [`Standing::Releasing`].
    pub releasing: usize,
}

impl Standings {
    /// Counts these.
    pub(super) fn of<'a>(standings: impl Iterator<Item = &'a Standing>) -> Standings {
        let mut counts = Standings::default();
        for standing in standings {
            let count = match standing {
                Standing::Wanted => &mut counts.wanted,
                Standing::Pending => &mut counts.pending,
                Standing::Granted(_) => &mut counts.granted,
                Standing::Lost(_) => &mut counts.lost,
                Standing::Releasing(_) => &mut counts.releasing,
            };
            *count += 1;
        }
        counts
    }
}

/// Counters since the start of the session. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
pub(super) struct GrantNews {
    /// Slots that the session has from now on.
    pub fresh: Vec<Grant>,
    /// Ids to release at once, ascending: these grants are not needed.
    pub give_back: Vec<i32>,
}

/// There are fewer ids left than requested slots. An id is never reused in a session, so another
/// session has to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{wanted} request ids were wanted, and {left} are left")]
#[non_exhaustive]
pub struct IdsExhausted {
    /// How many were wanted.
    pub wanted: usize,
    /// How many are left.
    pub left: usize,
}

/// The books of one session.
#[derive(Clone, Debug)]
pub(super) struct SlotBooks {
    slots: Slots<Arc<SlotRequest>, Box<Grant>>,
    /// What stands for an acknowledged request of each type, if no more of it is kept.
    outlines: Option<PerType<Arc<SlotRequest>>>,
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
    pub(super) fn starting_at(first_id: i32) -> SlotBooks {
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
    pub(super) fn restored(last_id: i32, open: Vec<(Request, Option<Grant>)>) -> SlotBooks {
        let open = open
            .into_iter()
            .map(|(request, grant)| (request.id, request.slot, grant.map(Box::new)));
        SlotBooks {
            slots: Slots::restored(last_id, open),
            last_grant_id: None,
            ..SlotBooks::default()
        }
    }

    /// The same books, which keep of a request only its type once the cluster manager has acknowledged it: for
    /// an owner with very many requests that knows by itself what they were.
    pub(super) fn in_outline(mut self) -> SlotBooks {
        let outline = |kind| Arc::new(SlotRequest::new(kind));
        self.outlines = Some(PerType(ResourceType::ALL.map(outline)));
        self
    }

    /// Books new requests and gives them their ids, ascending. All of them or none.
    pub(super) fn want(&mut self, slots: Vec<SlotRequest>) -> Result<Vec<Request>, IdsExhausted> {
        let (wanted, left) = (slots.len(), self.slots.ids_left());
        if wanted > left {
            return Err(IdsExhausted { wanted, left });
        }
        let mut requests = Vec::with_capacity(wanted);
        for slot in slots.into_iter().map(Arc::new) {
            // They were counted, so each gets an id.
            self.slots.want(|id| {
                requests.push(Request { id, slot: slot.clone() });
                slot
            });
        }
        self.totals.requested += requests.len() as u64;
        Ok(requests)
    }

    /// The cluster manager has acknowledged a call with these requests.
    pub(super) fn requested(&mut self, ids: impl IntoIterator<Item = i32>) {
        self.last_request_id = 0;
        for id in ids {
            self.last_request_id = self.last_request_id.max(id);
            self.slots.acknowledge(id);
            if let Some(outlines) = &self.outlines {
                self.slots.change(id, |slot| *slot = outlines[slot.kind].clone());
            }
        }
    }

    /// Abandons requests, granted or not. Returns the ids that must be released at the cluster
    /// manager, ascending: those that are known here and not yet released.
    pub(super) fn release(&mut self, ids: impl IntoIterator<Item = i32>) -> Vec<i32> {
        let ids = ids.into_iter().filter(|id| self.slots.release(*id).is_some());
        let mut release: Vec<_> = ids.collect();
        self.totals.released += release.len() as u64;
        release.sort_unstable();
        release
    }

    /// The cluster manager has acknowledged a call that released these.
    pub(super) fn released(&mut self, ids: impl IntoIterator<Item = i32>) {
        ids.into_iter().for_each(|id| self.slots.forget(id));
    }

    /// The cluster manager sent grants.
    pub(super) fn granted(&mut self, grants: Vec<Grant>) -> GrantNews {
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
                GrantOutcome::Again(Standing::Granted(_)) => totals.repeated_grants += 1,
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
    pub(super) fn revoked(&mut self, grants: Vec<Grant>) -> Vec<Lost> {
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
    pub(super) fn node_died(&mut self, node: &str) -> Vec<Lost> {
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
    pub(super) fn last_request_id(&self) -> i32 {
        self.last_request_id
    }

    /// The grant id in heartbeats: the greatest id of the last batch that was taken, at least 0. Nothing for
    /// books of an earlier run that have taken none.
    pub(super) fn last_grant_id(&self) -> Option<i32> {
        self.last_grant_id
    }

    /// The id of the last request; 0 if there was none.
    pub(super) fn last_id(&self) -> i32 {
        self.slots.last_id()
    }

    /// All requests that are not forgotten, by id.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().map(|(id, slot, standing)| Slot {
            request: Request { id, slot: slot.clone() },
            standing: standing.clone(),
        })
    }

    /// The grants that are held, by id.
    fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.slots.iter().filter_map(|(_, _, standing)| match standing {
            Standing::Granted(grant) => Some(&**grant),
            _ => None,
        })
    }

    /// The counters so far.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }
}

#[cfg(test)]
mod tests;
