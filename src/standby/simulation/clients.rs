//! The peers of the instances: nodes and drivers of sessions. Each repeats a call until it is answered, and
//! remembers the replies and notifications. The checks are invariants that every peer must see hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use corona_engine::testing::{ask, heartbeat, requests, session};
use corona_engine::{Engine, Input, Notification, Refusal, Reply};
use corona_model::types::{ResourceType, SessionStatus};

use super::Numbers;

const NODES: [&str; 2] = ["n1", "n2"];
const SLOTS_OF_A_NODE: usize = 4;
const DRIVERS: usize = 3;
/// Slots that a driver wants at a time, at most.
const WANTED: usize = 5;

/// A call that is not answered.
#[derive(Clone, Debug)]
struct Open {
    peer: Peer,
    input: Input,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Node(usize),
    Driver(usize),
}

/// The state of a request that a driver has not withdrawn, as the driver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// The call is not answered.
    Asked,
    Waiting,
    /// It has a slot on this node.
    Granted(Arc<str>),
}

#[derive(Debug, Default)]
struct Driver {
    handle: Option<Arc<str>>,
    /// The start was answered.
    is_started: bool,
    is_ending: bool,
    last_id: i32,
    wanted: BTreeMap<i32, Wanted>,
    /// Withdrawn, in a call that is not answered.
    releasing: BTreeSet<i32>,
    /// Withdrawn, in a call that was answered.
    released: BTreeSet<i32>,
}

#[derive(Debug)]
pub(super) struct Clients {
    /// No acknowledged record may be lost.
    strict: bool,
    open: BTreeMap<u64, Open>,
    calls: u64,
    registered: [bool; NODES.len()],
    drivers: [Driver; DRIVERS],
    /// The leadership of the last reply or notification.
    epoch: u64,
    /// Calls that were answered, and grants that arrived.
    pub(super) answered: u64,
    pub(super) granted: u64,
}

impl Clients {
    pub(super) fn new(strict: bool) -> Clients {
        Clients {
            strict,
            open: BTreeMap::new(),
            calls: 0,
            registered: Default::default(),
            drivers: Default::default(),
            epoch: 0,
            answered: 0,
            granted: 0,
        }
    }

    /// The engine that all start with.
    pub(super) fn engine() -> Engine {
        corona_engine::testing::engine(corona_engine::testing::settings())
    }

    /// Has a peer make its next call, or repeat the last one.
    pub(super) fn next_call(&mut self, numbers: &mut Numbers) -> Option<(u64, Input)> {
        let turn = numbers.below((DRIVERS * 4 + NODES.len()) as i64) as usize;
        let peer = match turn.checked_sub(DRIVERS * 4) {
            Some(node) => Peer::Node(node),
            None => Peer::Driver(turn % DRIVERS),
        };
        if let Some((call, open)) = self.open.iter().find(|(_, open)| open.peer == peer) {
            return Some((*call, open.input.clone()));
        }
        let input = match peer {
            Peer::Node(node) => heartbeat(NODES[node], SLOTS_OF_A_NODE as i16),
            Peer::Driver(driver) => self.drivers[driver].next_input(numbers)?,
        };
        self.calls += 1;
        self.open.insert(self.calls, Open { peer, input: input.clone() });
        Some((self.calls, input))
    }

    fn hear(&mut self, epoch: u64) {
        assert!(self.epoch <= epoch, "notified by two leaders");
        self.epoch = epoch;
    }

    /// A reply arrives.
    pub(super) fn answer(&mut self, epoch: u64, call: u64, reply: &Result<Reply, Refusal>) {
        self.hear(epoch);
        // A repeated call is answered twice.
        let Some(Open { peer, input }) = self.open.remove(&call) else { return };
        self.answered += 1;
        match peer {
            Peer::Node(node) => self.registered[node] = true,
            Peer::Driver(driver) => {
                let lost = self.drivers[driver].answer(&input, reply);
                assert!(!(lost && self.strict), "{input:?} after what was acknowledged: {reply:?}");
                if lost {
                    self.drivers[driver] = Driver::default();
                }
            }
        }
    }

    /// A notification arrives.
    pub(super) fn notify(&mut self, epoch: u64, handle: &Arc<str>, notification: &Notification) {
        self.hear(epoch);
        let Notification::Granted(grants) = notification else {
            panic!("nothing is revoked and no node dies here: {notification:?}");
        };
        for driver in self.drivers.iter_mut().filter(|d| d.handle.as_ref() == Some(handle)) {
            for grant in grants {
                // Repeated, or withdrawn meanwhile.
                let Some(wanted) = driver.wanted.get_mut(&grant.id) else { continue };
                if let Wanted::Granted(node) = wanted {
                    let same = *node == grant.node_name || !self.strict;
                    assert!(same, "{handle} {}: granted on {node} before", grant.id);
                }
                *wanted = Wanted::Granted(grant.node_name.clone());
                self.granted += 1;
            }
        }
        for node in NODES {
            let of_node = |wanted: &&Wanted| matches!(wanted, Wanted::Granted(on) if **on == *node);
            let used = self.drivers.iter().flat_map(|driver| driver.wanted.values());
            let used = used.filter(of_node).count();
            assert!(used <= SLOTS_OF_A_NODE || !self.strict, "a slot of {node} is granted twice");
        }
    }

    /// An instance leads with this engine.
    pub(super) fn check_leader(&self, engine: &Engine) {
        if !self.strict {
            return;
        }
        let nodes = engine.nodes();
        for (name, registered) in NODES.iter().zip(self.registered) {
            let is_there = nodes.iter().any(|node| *node.name == **name);
            assert!(is_there || !registered, "node {name} was acknowledged, and is lost");
        }
        for driver in &self.drivers {
            driver.check(engine);
        }
    }
}

impl Driver {
    fn next_input(&mut self, numbers: &mut Numbers) -> Option<Input> {
        let Some(handle) = self.handle.clone() else { return Some(Input::NextSessionId) };
        if !self.is_started {
            return Some(session(&handle, "g.p"));
        }
        let held: Vec<i32> = self.wanted.keys().copied().collect();
        match numbers.below(40) {
            0 => {
                // From here on its slots may be granted to others.
                self.wanted.clear();
                self.is_ending = true;
                Some(Input::EndSession { handle, status: SessionStatus::Successful })
            }
            1 => Some(Input::HeartbeatSession { handle, view: None }),
            2..20 if held.len() < WANTED => {
                let ids = self.last_id + 1..=self.last_id + 1 + numbers.below(2) as i32;
                self.last_id = *ids.end();
                self.wanted.extend(ids.clone().map(|id| (id, Wanted::Asked)));
                Some(ask(&handle, requests(ids, ResourceType::Map)))
            }
            _ if !held.is_empty() => {
                let id = held[numbers.below(held.len() as i64) as usize];
                self.wanted.remove(&id);
                self.releasing.insert(id);
                Some(Input::ReleaseResources { handle, ids: vec![id] })
            }
            _ => None,
        }
    }

    /// Returns whether the reply shows that something was lost.
    fn answer(&mut self, input: &Input, reply: &Result<Reply, Refusal>) -> bool {
        match (input, reply) {
            (Input::NextSessionId, Ok(Reply::SessionId(id))) => {
                *self = Driver { handle: Some(id.as_str().into()), ..Driver::default() };
            }
            // Its first call was applied, and its reply was lost.
            (Input::StartSession { .. }, Ok(_) | Err(Refusal::AlreadyStarted(_))) => {
                self.is_started = true;
            }
            (Input::EndSession { .. }, Ok(_) | Err(Refusal::UnknownSession(_))) => {
                *self = Driver::default();
            }
            (Input::RequestResources { requests, .. }, Ok(_)) => {
                for request in requests {
                    if let Some(wanted @ Wanted::Asked) = self.wanted.get_mut(&request.id) {
                        *wanted = Wanted::Waiting;
                    }
                }
            }
            (Input::ReleaseResources { ids, .. }, Ok(_)) => {
                for id in ids {
                    self.releasing.remove(id);
                    self.released.insert(*id);
                }
            }
            (Input::HeartbeatSession { .. }, Ok(_)) => {}
            _ => return true,
        }
        false
    }

    fn check(&self, engine: &Engine) {
        let Some(handle) = &self.handle else { return };
        if !self.is_started || self.is_ending {
            return;
        }
        let Some(session) = engine.session_at(handle, engine.now()) else {
            panic!("session {handle} was acknowledged, and is lost");
        };
        let grants = engine.grants(handle).unwrap_or_default();
        let node_of = |id: i32| {
            grants.iter().find(|view| view.grant.id == id).map(|view| &view.grant.node_name)
        };
        for (id, wanted) in &self.wanted {
            if let Wanted::Granted(node) = wanted {
                assert_eq!(node_of(*id), Some(node), "{handle} {id}: notified, and lost");
            }
        }
        for id in &self.released {
            assert_eq!(node_of(*id), None, "{handle} {id}: its release was acknowledged, and lost");
        }
        let requested = session.counts[ResourceType::Map].now.requested;
        let known = self.wanted.values().filter(|wanted| **wanted != Wanted::Asked).count();
        let most = self.wanted.len() + self.releasing.len();
        assert!(
            (known as i64..=most as i64).contains(&requested),
            "{handle}: {requested} requests; {known} were acknowledged of {most}"
        );
    }
}
