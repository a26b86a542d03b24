//! Long lists in pieces, so that readers lock the engine only briefly.
//!
//! Between two pieces the engine may change. An element that exists all the time is seen exactly
//! once; one that appears or disappears meanwhile may or may not be seen.

use super::Engine;
use super::index::Idx;
use super::requests::RequestState;
use super::sessions::RetiredSession;
use super::types::{Grant, Millis};
use super::views::{NodeGrant, NodeView, RunningSession};

/// A piece of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice<T> {
    /// The elements at the places that were visited, in their order.
    pub rows: Vec<T>,
    /// Where to continue; none at the end of the list.
    pub next: Option<u64>,
}

impl Engine {
    /// Running sessions at `places` places from `from` on, which is 0 for the first piece. They
    /// come in no particular order.
    pub fn sessions_slice(&self, now: Millis, from: u64, places: u64) -> Slice<RunningSession> {
        let all = self.sessions.places() as u64;
        slice(from, places, all, |place| {
            let session = index(place)?;
            self.sessions.get(session).map(|_| self.running_session(session, now))
        })
    }

    /// As [`Self::sessions_slice`], of nodes.
    pub fn nodes_slice(&self, from: u64, places: u64) -> Slice<NodeView> {
        let all = self.nodes.places() as u64;
        slice(from, places, all, |place| {
            let node = self.nodes.get(index(place)?)?;
            Some(self.node_view(node))
        })
    }

    /// As [`Self::sessions_slice`], for the grants on a node; `None` if there is no such node.
    pub fn node_grants_slice(
        &self,
        name: &str,
        from: u64,
        places: u64,
    ) -> Option<Slice<NodeGrant>> {
        let grants = &self.nodes[self.nodes.find(name)?].grants;
        Some(slice(from, places, grants.places() as u64, |place| {
            let (session, req) = grants.get(index(place)?)?;
            self.node_grant(*session, *req)
        }))
    }

    /// As [`Self::sessions_slice`], of the grants of a running session; `None` if it does not run.
    pub fn grants_slice(&self, handle: &str, from: u64, places: u64) -> Option<Slice<Grant>> {
        let session = self.sessions.find(handle)?;
        let requests = &self.sessions[session].requests;
        Some(slice(from, places, requests.places() as u64, |place| {
            let req = index(place)?;
            let granted = matches!(requests.get(req)?.state, RequestState::Granted { .. });
            granted.then(|| self.grant_of(session, req)).flatten()
        }))
    }

    /// As [`Self::sessions_slice`], of ended sessions, in the order of their ends.
    pub fn retired_slice(&self, from: u64, places: u64) -> Slice<RetiredSession> {
        let retired = self.sessions.retired();
        let forgotten = self.sessions.retired_ever() - retired.len() as u64;
        slice(from.max(forgotten), places, self.sessions.retired_ever(), |serial| {
            let place = usize::try_from(serial.checked_sub(forgotten)?).ok()?;
            retired.get(place).cloned()
        })
    }
}

fn index<I: Idx>(place: u64) -> Option<I> {
    u32::try_from(place).ok().map(I::from_number)
}

fn slice<T>(from: u64, places: u64, all: u64, row: impl FnMut(u64) -> Option<T>) -> Slice<T> {
    let end = from.saturating_add(places).min(all);
    let rows = (from..end).filter_map(row).collect();
    Slice { rows, next: (end < all).then_some(end) }
}
