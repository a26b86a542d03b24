//! Copies of a session's state: to look at, and to write down for another process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::books::{Slot, Standing, Standings, Totals};
use super::driver::StartError;
use super::options::Endpoint;
use super::types::{Grant, PoolName, Request, ResourceType};

/// The slots of a session at one time. It is a copy, and the session goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Requests whose release the cluster manager has not acknowledged, by id.
    pub slots: Vec<Slot>,
    /// The id of the last request; 0 if there was none.
    pub last_id: i32,
    /// Counters since the start of the session.
    pub totals: Totals,
}

impl Snapshot {
    /// The grants that are held, by id.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.slots.iter().filter_map(|slot| match &slot.standing {
            Standing::Granted(grant) => Some(&**grant),
            _ => None,
        })
    }

    /// The state of a request; none once its release is acknowledged.
    pub fn standing(&self, id: i32) -> Option<&Standing> {
        let place = self.slots.binary_search_by_key(&id, |slot| slot.request.id).ok()?;
        self.slots.get(place).map(|slot| &slot.standing)
    }

    /// How many requests of this type stand where.
    pub fn standings(&self, kind: ResourceType) -> Standings {
        let of_kind = self.slots.iter().filter(|slot| slot.request.slot.kind == kind);
        Standings::of(of_kind.map(|slot| &slot.standing))
    }
}

/// A session that an earlier process started and did not end, as that process has written it down.
///
/// It can be written in any format of `serde` that names fields, such as JSON; later versions read what
/// this one has written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedSession {
    /// Its id.
    pub handle: Arc<str>,
    /// Its pool.
    pub pool: PoolName,
    /// Where the cluster manager wants its logs to be: a path.
    #[serde(default)]
    pub session_log: String,
    /// Where it takes notifications. If it is there, [`DriverHost::resume`](super::DriverHost::resume)
    /// checks that the host listens there.
    #[serde(default)]
    pub notifications: Option<Endpoint>,
    /// The last id that a request has, or may have, used; 0 if there was none.
    pub last_id: i32,
    /// The requests that are not released, with their grants.
    pub open: Vec<(Request, Option<Grant>)>,
}

impl SavedSession {
    /// A session without requests.
    pub fn new(handle: impl Into<Arc<str>>, pool: PoolName) -> SavedSession {
        SavedSession {
            handle: handle.into(),
            pool,
            session_log: String::new(),
            notifications: None,
            last_id: 0,
            open: Vec::new(),
        }
    }

    /// The open requests of a session. Lost ones are not among them: their work is to be requested again.
    pub(super) fn take(&mut self, snapshot: Snapshot) {
        let open = snapshot.slots.into_iter().filter_map(|slot| match slot.standing {
            Standing::Wanted | Standing::Pending => Some((slot.request, None)),
            Standing::Granted(grant) => Some((slot.request, Some(*grant))),
            Standing::Lost(_) | Standing::Releasing(_) => None,
        });
        self.open = open.collect();
        self.last_id = snapshot.last_id;
    }

    /// The cluster manager notifies the address that the session started with.
    pub(super) fn check_address(&self, here: &Endpoint) -> Result<(), StartError> {
        match &self.notifications {
            Some(saved) if saved != here => {
                Err(StartError::OtherAddress { saved: saved.clone(), here: here.clone() })
            }
            _ => Ok(()),
        }
    }
}
