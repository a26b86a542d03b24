//! One emulated session, as the listener and the task that talks for it share it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::cluster::FOREIGN;
use super::crowd::CrowdRun;
use super::faults::FaultKind;
use super::ledger::{Slip, SlotLedger, Taken};
use super::meter::locked;
use super::world::LoadWorld;
use corona_model::types::ResourceType;
use corona_wire::generated::{self as wire, ResourceGrant, ResourceRequest};

/// Slots are released after this time even if a batch is not full: others may wait for them.
const BATCH_LINGER: Duration = Duration::from_millis(5);

/// An emulated session.
#[derive(Debug)]
pub(super) struct LoadSession {
    world: Arc<LoadWorld>,
    crowd: Arc<CrowdRun>,
    pub(super) handle: String,
    seed: u64,
    state: Mutex<LoadState>,
    /// Something has come.
    pub(super) wake: Notify,
    acknowledged: AtomicU64,
}

#[derive(Debug, Default)]
struct LoadState {
    ledger: SlotLedger,
    /// The slots to release, and their times.
    due: VecDeque<(Instant, i32)>,
}

/// The next step of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Release these.
    Release(Vec<i32>),
    /// Nothing before this time, or before something comes.
    Wait(Option<Instant>),
    /// All that was asked for has been granted and released.
    Done,
}

impl LoadSession {
    pub(super) fn new(
        world: Arc<LoadWorld>,
        crowd: Arc<CrowdRun>,
        handle: String,
        seed: u64,
    ) -> LoadSession {
        let (state, wake) = (Mutex::default(), Notify::new());
        LoadSession { world, crowd, handle, seed, state, wake, acknowledged: AtomicU64::new(0) }
    }

    /// Files the next requests of a job, to be sent at once; none when its ids have run out.
    pub(super) fn ask(&self, kind: ResourceType, count: u32) -> Option<Vec<ResourceRequest>> {
        let now_us = self.world.micros();
        let mut state = locked(&self.state);
        let ids: Option<Vec<i32>> = (0..count).map(|_| state.ledger.ask(kind, now_us)).collect();
        drop(state);
        self.crowd.add_waiting(i64::from(count));
        Some(ids?.into_iter().map(|id| self.request(kind, id)).collect())
    }

    fn request(&self, kind: ResourceType, id: i32) -> ResourceRequest {
        let hosts: Vec<String> = match kind {
            ResourceType::Map => {
                let near = self.world.cluster.near(&self.crowd.plan.job, self.seed, id);
                near.map(super::cluster::host).collect()
            }
            _ => vec![],
        };
        let (type_, network) = match kind {
            ResourceType::Map => (wire::ResourceType::MAP, 10),
            _ => (wire::ResourceType::REDUCE, 50),
        };
        // The requests of a Java job tracker. Spec: cluster-manager/05 §6.
        let specs = wire::ComputeSpecs::new(1, network, 1024, 10);
        ResourceRequest {
            id,
            hosts: (!hosts.is_empty()).then_some(hosts),
            specs: Some(specs),
            type_,
            exclude_hosts: None,
        }
    }

    /// Takes grants that came from this port.
    pub(super) fn granted(&self, grants: &[ResourceGrant], from_port: u16) {
        let now = Instant::now();
        let now_us = self.world.micros();
        let due_at = now + self.crowd.plan.job.hold;
        let mut fresh = 0;
        let mut state = locked(&self.state);
        for grant in grants {
            let node = self.world.cluster.node_of(grant).unwrap_or_else(|wrong| {
                let sentence = || format!("grant {} of {}: {wrong}", grant.id, self.handle);
                self.world.faults.note(FaultKind::WrongGrant, sentence);
                FOREIGN
            });
            let kind = kind_of(grant);
            let granted_ms = grant.granted_time as u32;
            let slip = Slip { node, granted_ms, from_port };
            match state.ledger.grant(grant.id, kind, slip) {
                Taken::Fresh { asked_us } => {
                    fresh += 1;
                    state.due.push_back((due_at, grant.id));
                    self.world.cluster.hold(node, kind == ResourceType::Map);
                    let waited = now_us.wrapping_sub(asked_us);
                    self.crowd.count_grant(Duration::from_micros(waited.into()));
                    self.note_locality(kind, node, grant.id);
                }
                Taken::Late => self.crowd.late_grants.add(1),
                Taken::Repeated => self.crowd.repeated_grants.add(1),
                Taken::Twice => self.blame(FaultKind::GrantedTwice, grant),
                Taken::NeverRequested => self.blame(FaultKind::NeverRequested, grant),
                Taken::WrongType => self.blame(FaultKind::WrongGrant, grant),
            }
        }
        drop(state);
        self.crowd.add_waiting(-fresh);
        self.wake.notify_one();
    }

    fn note_locality(&self, kind: ResourceType, node: u32, id: i32) {
        let job = &self.crowd.plan.job;
        if kind == ResourceType::Map && job.hosts > 0 {
            let is_near = self.world.cluster.near(job, self.seed, id).any(|near| near == node);
            let count = if is_near { &self.crowd.near } else { &self.crowd.far };
            count.add(1);
        }
    }

    fn blame(&self, kind: FaultKind, grant: &ResourceGrant) {
        self.world.faults.note(kind, || {
            let (id, node, handle) = (grant.id, &grant.node_name, &self.handle);
            format!("{} {id} of session {handle} on {node}", kind_of(grant))
        });
    }

    /// Slots were taken back.
    pub(super) fn revoked(&self, grants: &[ResourceGrant]) {
        let now = Instant::now();
        let mut state = locked(&self.state);
        for grant in grants {
            if let Some((node, kind)) = state.ledger.revoke(grant.id) {
                self.world.cluster.lose(node, kind == ResourceType::Map);
                self.crowd.lost_slots.add(1);
                state.due.push_front((now, grant.id));
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// A node is dead.
    pub(super) fn node_died(&self, name: &str) {
        let Some(node) = self.world.cluster.number(name) else { return };
        let now = Instant::now();
        let mut state = locked(&self.state);
        for (id, kind) in state.ledger.lose_node(node) {
            self.world.cluster.lose(node, kind == ResourceType::Map);
            self.crowd.lost_slots.add(1);
            state.due.push_front((now, id));
        }
        drop(state);
        self.wake.notify_one();
    }

    /// The next step at this time.
    pub(super) fn next(&self, now: Instant) -> Next {
        let batch = self.crowd.plan.job.release_batch as usize;
        let mut state = locked(&self.state);
        if state.ledger.outstanding() == 0 {
            state.due.clear();
            return Next::Done;
        }
        let ready = state.due.iter().take_while(|(at, _)| *at <= now).count();
        let Some((first, _)) = state.due.front() else { return Next::Wait(None) };
        let linger = if batch > 1 { BATCH_LINGER } else { Duration::ZERO };
        let latest = *first + linger;
        if ready < batch && latest > now {
            return Next::Wait(Some(latest));
        }
        // A lost slot is listed twice.
        let ids = state.due.drain(..ready).map(|(_, id)| id).collect();
        let ids = self.strike(&mut state.ledger, ids);
        if ids.is_empty() { Next::Wait(Some(now)) } else { Next::Release(ids) }
    }

    /// Everything that has not been released, to be released now.
    pub(super) fn withdraw_all(&self) -> Vec<i32> {
        let mut state = locked(&self.state);
        state.due.clear();
        let ids = state.ledger.outstanding_ids();
        self.crowd.add_waiting(-(state.ledger.waiting() as i64));
        self.strike(&mut state.ledger, ids)
    }

    /// Puts ids down as released in the ledger and in the books of the nodes. Gives those that were
    /// outstanding.
    fn strike(&self, ledger: &mut SlotLedger, ids: Vec<i32>) -> Vec<i32> {
        let mut struck = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(slot) = ledger.release(id) else { continue };
            if let Some((node, kind)) = slot {
                self.world.cluster.release(node, kind == ResourceType::Map);
            }
            struck.push(id);
        }
        struck
    }

    /// So many releases were answered.
    pub(super) fn acknowledge(&self, releases: usize) {
        self.acknowledged.fetch_add(releases as u64, Ordering::SeqCst);
    }

    /// Releases that were answered so far.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Requests made so far.
    pub(super) fn asked(&self) -> u64 {
        locked(&self.state).ledger.asked()
    }

    /// The session ended without releasing its slots: other sessions may have them already.
    pub(super) fn abandon(&self) {
        let mut state = locked(&self.state);
        self.crowd.add_waiting(-(state.ledger.waiting() as i64));
        for id in state.ledger.outstanding_ids() {
            if let Some(Some((node, kind))) = state.ledger.release(id) {
                self.world.cluster.lose(node, kind == ResourceType::Map);
            }
        }
    }
}

fn kind_of(grant: &ResourceGrant) -> ResourceType {
    // An unknown type was not requested.
    ResourceType::from_number(grant.type_.0).unwrap_or(ResourceType::JobTracker)
}
