//! Pending requests and matching against the plainest model of the rule: a list, a position, a walk.
//!
//! Spec: cluster-manager/04 §7 and 03 §7. The model knows nothing of indexes, cursors on links,
//! classes or generations. Whatever happens before, both must find the same request and node.

use proptest::prelude::*;

use super::index::{HostIdx, Idx, NodeIdx, ReqIdx, SessionIdx};
use super::input::Asked;
use super::lookup::HashSeed;
use super::nodes::Nodes;
use super::pending::Pending;
use super::requests::{Request, RequestState, Requests, Wish as Taken};
use super::scheduler::{Allowance, Level, Search};
use super::settings::Settings;
use super::topology::Topology;
use super::types::{Address, ComputeSpecs, Millis, PerType, ResourceType};
use corona_model::resources::Amounts;

fn taken(need: u32) -> Taken {
    Taken { need, demand: Amounts::ZERO }
}

const HOSTS: u32 = 9;
const HOSTS_IN_A_RACK: u32 = 3;

#[derive(Clone, Debug)]
enum Step {
    Ask {
        hosts: Vec<u32>,
        excluded: Vec<u32>,
        need: i16,
        times: u8,
    },
    Withdraw {
        which: usize,
        times: u8,
    },
    Match {
        level: Level,
        times: u8,
    },
    /// The searches that follow belong to another pass, as all do after anything but a search.
    Pass,
    Join {
        host: u32,
        slots: u32,
    },
    Leave {
        which: usize,
    },
    Resize {
        which: usize,
        slots: u32,
    },
    Release {
        which: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let few = |most: u8| prop_oneof![9 => 1..=1u8, 1 => 1..=most];
    let hosts = prop::collection::vec(0..HOSTS, 0..=3);
    let excluded = prop_oneof![3 => Just(vec![]), 2 => prop::collection::vec(0..HOSTS, 1..=6)];
    let need = prop_oneof![3 => Just(1i16), 1 => -1i16..=4];
    let level = prop_oneof![Just(Level::Node), Just(Level::Rack), Just(Level::Any)];
    prop_oneof![
        5 => (hosts, excluded, need, few(90)).prop_map(|(hosts, excluded, need, times)| {
            Step::Ask { hosts, excluded, need, times }
        }),
        2 => (any::<usize>(), few(90)).prop_map(|(which, times)| Step::Withdraw { which, times }),
        1 => Just(Step::Pass),
        7 => (level, few(20)).prop_map(|(level, times)| Step::Match { level, times }),
        2 => (0..HOSTS, 0..5u32).prop_map(|(host, slots)| Step::Join { host, slots }),
        1 => any::<usize>().prop_map(|which| Step::Leave { which }),
        1 => (any::<usize>(), 0..6u32).prop_map(|(which, slots)| Step::Resize { which, slots }),
        4 => any::<usize>().prop_map(|which| Step::Release { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_request_that_the_walk_finds_is_found(
        kind in prop_oneof![3 => Just(ResourceType::Map), 1 => Just(ResourceType::Reduce)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = EngineAndModel::new(kind);
        for step in steps {
            world.take(step)?;
        }
    }
}

/// The engine's structures and the model, side by side.
struct EngineAndModel {
    kind: ResourceType,
    settings: Settings,
    topology: Topology,
    hosts: Vec<HostIdx>,
    nodes: Nodes,
    requests: Requests,
    pending: Pending,
    model: Model,
    next_id: i32,
    pass: u64,
}

impl EngineAndModel {
    fn new(kind: ResourceType) -> Self {
        let seed = HashSeed(3);
        let mut topology = Topology::new(seed);
        let hosts = (0..HOSTS).map(|host| {
            let rack = format!("/rack{}", host / HOSTS_IN_A_RACK);
            topology.acquire(&format!("host{host}").into(), || Some(rack.into()))
        });
        EngineAndModel {
            kind,
            settings: Settings::default(),
            hosts: hosts.collect(),
            topology,
            nodes: Nodes::new(seed),
            requests: Requests::new(seed),
            pending: Pending::new(seed, kind == ResourceType::Map),
            model: Model::default(),
            next_id: 0,
            pass: 0,
        }
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        if !matches!(step, Step::Match { .. }) {
            self.pass += 1;
        }
        match step {
            Step::Pass => {}
            Step::Ask { hosts, mut excluded, need, times } => {
                excluded.retain(|host| !hosts.contains(host));
                (0..times).for_each(|_| self.ask(&hosts, &excluded, need));
            }
            Step::Withdraw { which, times } => (0..times).for_each(|_| self.withdraw(which)),
            Step::Match { level, times } => {
                // Types that do not look at places try one level only.
                let level = if self.kind == ResourceType::Map { level } else { Level::Any };
                (0..times).try_for_each(|_| self.find_a_match(level))?;
            }
            Step::Join { host, slots } => self.join(host, slots),
            Step::Leave { which } => self.leave(which),
            Step::Resize { which, slots } => self.resize(which, slots),
            Step::Release { which } => self.release(which),
        }
        self.pending.audit(&self.requests, &self.topology, self.kind).map_err(reject)?;
        self.nodes.audit(&self.settings).map_err(reject)
    }

    fn ask(&mut self, hosts: &[u32], excluded: &[u32], need: i16) {
        self.next_id += 1;
        let number = |host: &u32| self.hosts[*host as usize];
        let (near, avoided) =
            (hosts.iter().map(number).collect(), excluded.iter().map(number).collect());
        let specs = Some(ComputeSpecs { num_cpus: need, ..ComputeSpecs::default() });
        let request = Request::new(self.next_id, self.kind, need.max(1) as u16, near, avoided);
        let asked = Asked { at: Millis(0), input: 0 };
        let req = self.requests.insert(request, asked, specs, Amounts::ZERO);
        self.pending.push(&mut self.requests, &self.topology, req);
        self.model.list.push(Wish {
            req,
            hosts: hosts.to_vec(),
            excluded: excluded.to_vec(),
            need: need.max(1) as u32,
        });
    }

    fn withdraw(&mut self, which: usize) {
        let Some(at) = which.checked_rem(self.model.list.len()) else { return };
        // The list shrinks and the position stays.
        let wish = self.model.list.remove(at);
        self.pending.remove(&mut self.requests, &self.topology, wish.req);
        self.requests.remove(wish.req);
    }

    fn find_a_match(&mut self, level: Level) -> Result<(), TestCaseError> {
        let (nodes, topology, requests) = (&self.nodes, &self.topology, &self.requests);
        let most = Allowance { slots: u32::MAX, amounts: Amounts::MOST };
        let search = Search { kind: self.kind, nodes, topology, requests, most };
        let found = search.find(&mut self.pending, level, self.pass);
        let expected = self.model.walk(level);
        prop_assert_eq!(found, expected.map(|(at, node)| (self.model.list[at].req, node)));
        let Some((at, node)) = expected else { return Ok(()) };
        let wish = self.model.list.remove(at);
        self.pending.stop_at(&self.requests, wish.req);
        self.pending.remove(&mut self.requests, &self.topology, wish.req);
        let slot = self.nodes.allocate(
            node,
            self.kind,
            taken(wish.need),
            (SessionIdx::from_number(0), wish.req),
        );
        self.requests[wish.req].state = RequestState::Granted { node, slot, at: Millis(0) };
        self.model.use_slots(node, wish.need);
        self.model.granted.push((wish.req, node, wish.need));
        Ok(())
    }

    fn release(&mut self, which: usize) {
        let Some(at) = which.checked_rem(self.model.granted.len()) else { return };
        let (req, node, need) = self.model.granted.remove(at);
        self.free(req, node, need);
        self.model.free_slots(node, need);
    }

    fn free(&mut self, req: ReqIdx, node: NodeIdx, need: u32) {
        let RequestState::Granted { slot, .. } = self.requests[req].state else { return };
        self.nodes.free(node, self.kind, taken(need), slot);
        self.requests.remove(req);
    }

    fn join(&mut self, host: u32, slots: u32) {
        self.next_id += 1;
        let name: std::sync::Arc<str> = format!("node{}", self.next_id).into();
        let number = self.hosts[host as usize];
        let address = Address { host: "h".into(), port: 1 };
        let rack = self.topology.rack_of(number);
        let node = self.nodes.insert(name, address, number, rack, Millis(0));
        self.nodes.set_app(node, self.kind, Some("a:1".into()));
        self.model.nodes.push(NodeModel { node, host, slots: 0, used: 0, grants: 0 });
        self.resize(self.model.nodes.len() - 1, slots);
    }

    fn leave(&mut self, which: usize) {
        let Some(at) = which.checked_rem(self.model.nodes.len()) else { return };
        let node = self.model.nodes.remove(at).node;
        let lost = |granted: &mut (ReqIdx, NodeIdx, u32)| granted.1 == node;
        let lost: Vec<_> = self.model.granted.extract_if(.., lost).collect();
        self.nodes.retire(node);
        for (req, node, need) in lost {
            self.free(req, node, need);
        }
        self.nodes.remove(node);
        self.model.settle();
    }

    fn resize(&mut self, which: usize, slots: u32) {
        let Some(at) = which.checked_rem(self.model.nodes.len()) else { return };
        let place = &mut self.model.nodes[at];
        place.slots = slots;
        let mut all = PerType::all(0);
        all[self.kind] = slots;
        self.nodes.set_slots(place.node, all);
        self.nodes.reindex(place.node, &self.settings);
        self.model.settle();
    }
}

fn reject(what: String) -> TestCaseError {
    TestCaseError::fail(what)
}

/// The original's data: a list, a position, and nodes in the order in which they got room.
#[derive(Default)]
struct Model {
    list: Vec<Wish>,
    position: usize,
    nodes: Vec<NodeModel>,
    /// Nodes with room, longest first.
    with_room: Vec<NodeIdx>,
    /// Nodes with room; among those with as many grants the longest so loaded first.
    by_load: Vec<(u32, NodeIdx)>,
    granted: Vec<(ReqIdx, NodeIdx, u32)>,
}

struct Wish {
    req: ReqIdx,
    hosts: Vec<u32>,
    excluded: Vec<u32>,
    need: u32,
}

struct NodeModel {
    node: NodeIdx,
    host: u32,
    slots: u32,
    used: u32,
    grants: u32,
}

impl Model {
    /// Visits each request once, from the position on and around.
    fn walk(&mut self, level: Level) -> Option<(usize, NodeIdx)> {
        if self.position >= self.list.len() {
            self.position = 0;
        }
        for _ in 0..self.list.len() {
            let at = self.position;
            self.position = if at + 1 >= self.list.len() { 0 } else { at + 1 };
            if let Some(node) = self.node_for(&self.list[at], level) {
                return Some((at, node));
            }
        }
        None
    }

    fn node_for(&self, wish: &Wish, level: Level) -> Option<NodeIdx> {
        if wish.hosts.is_empty() {
            return self.any_for(wish);
        }
        wish.hosts.iter().find_map(|host| {
            let on_host = |place: &NodeModel| place.host == *host;
            let in_rack =
                |place: &NodeModel| place.host / HOSTS_IN_A_RACK == host / HOSTS_IN_A_RACK;
            self.first(wish, on_host)
                .or_else(|| (level >= Level::Rack).then(|| self.first(wish, in_rack)).flatten())
                .or_else(|| (level >= Level::Any).then(|| self.any_for(wish)).flatten())
        })
    }

    fn first(&self, wish: &Wish, near: impl Fn(&NodeModel) -> bool) -> Option<NodeIdx> {
        self.with_room
            .iter()
            .copied()
            .find(|node| near(self.place(*node)) && self.fits(wish, *node))
    }

    fn any_for(&self, wish: &Wish) -> Option<NodeIdx> {
        self.by_load.iter().map(|(_, node)| *node).find(|node| self.fits(wish, *node))
    }

    fn fits(&self, wish: &Wish, node: NodeIdx) -> bool {
        let place = self.place(node);
        place.used + wish.need <= place.slots && !wish.excluded.contains(&place.host)
    }

    fn place(&self, node: NodeIdx) -> &NodeModel {
        self.nodes.iter().find(|place| place.node == node).unwrap()
    }

    fn use_slots(&mut self, node: NodeIdx, need: u32) {
        let place = self.nodes.iter_mut().find(|place| place.node == node).unwrap();
        place.used += need;
        place.grants += 1;
        self.settle();
    }

    fn free_slots(&mut self, node: NodeIdx, need: u32) {
        let place = self.nodes.iter_mut().find(|place| place.node == node).unwrap();
        place.used -= need;
        place.grants -= 1;
        self.settle();
    }

    /// Lets nodes that have changed leave the lists or join them at the end.
    fn settle(&mut self) {
        let Model { nodes, with_room, by_load, .. } = self;
        let loads: Vec<(u32, NodeIdx)> = nodes
            .iter()
            .filter(|place| place.used < place.slots)
            .map(|place| (place.grants, place.node))
            .collect();
        with_room.retain(|node| loads.iter().any(|(_, with_room)| with_room == node));
        by_load.retain(|load| loads.contains(load));
        for (load, node) in loads {
            if !with_room.contains(&node) {
                with_room.push(node);
            }
            if !by_load.contains(&(load, node)) {
                by_load.push((load, node));
            }
        }
        by_load.sort_by_key(|(load, _)| *load);
    }
}
