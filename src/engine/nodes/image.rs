//! Nodes in an [`Image`](crate::Image).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    BY_HOST, BY_LOAD, BY_RACK, FaultCount, LATE, Node, Nodes, ON_TIME, Runnable, Trouble, Visit,
    Visits, capacity,
};
use crate::arena::{Arena, ArenaImage};
use crate::check::{ImageError, check};
use crate::index::{HostIdx, Idx, NodeIdx, RackIdx, ReqIdx, SessionIdx};
use crate::lookup::{Chains, DenseSet, HashSeed, Lookup, Unique};
use crate::requests::Wish;
use crate::settings::Settings;
use crate::topology::Topology;
use crate::types::{AccessId, Address, ComputeSpecs, Millis, PerType, ResourceType};
use corona_model::form::{FOURTH, Later};
use corona_model::resources::Amounts;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodesImage {
    nodes: ArenaImage<NodeImage>,
    /// In the order of their last heartbeats.
    late: Vec<NodeIdx>,
    /// As `late`.
    on_time: Vec<NodeIdx>,
    runnable: PerType<RunnableImage>,
}

/// A node. Its grants, and the slots that they take, are stored with the requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct NodeImage {
    name: Arc<str>,
    address: Address,
    host: HostIdx,
    slots: PerType<u32>,
    usable: PerType<bool>,
    in_index: PerType<bool>,
    admission: Admission,
    last_heartbeat: Millis,
    grants: ArenaImage<(SessionIdx, ReqIdx)>,
    visits: Vec<(SessionIdx, Visit)>,
    apps: PerType<Option<Arc<str>>>,
    total: ComputeSpecs,
    free: ComputeSpecs,
    faults: PerType<FaultCount>,
    trouble: Option<Trouble>,
    access: Later<Option<AccessId>, FOURTH>,
}

/// Whether a node is allowed, whether it drains, and whether its access was revoked. The first images had a bool here, whether it was
/// allowed, which has the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Admission(u8);

impl Admission {
    const ALLOWED: u8 = 1;
    const DRAINING: u8 = 2;
    const REVOKED: u8 = 4;

    fn of(node: &Node) -> Admission {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        Admission(
            bit(node.allowed, Self::ALLOWED)
                | bit(node.draining, Self::DRAINING)
                | bit(node.revoked, Self::REVOKED),
        )
    }

    /// Whether it is allowed, drains, and is revoked.
    fn parts(self) -> Result<(bool, bool, bool), ImageError> {
        let Admission(bits) = self;
        let all = Self::ALLOWED | Self::DRAINING | Self::REVOKED;
        check(bits <= all, "a node is neither allowed nor excluded")?;
        let has = |bit| bits & bit != 0;
        Ok((has(Self::ALLOWED), has(Self::DRAINING), has(Self::REVOKED)))
    }
}

/// Nodes with room for a type. Each list has those that came first in front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RunnableImage {
    hosts: Vec<(HostIdx, Vec<NodeIdx>)>,
    racks: Vec<(RackIdx, Vec<NodeIdx>)>,
    loads: Vec<Vec<NodeIdx>>,
    generation: u64,
    fresh: Vec<NodeIdx>,
}

impl Nodes {
    pub(crate) fn image(&self) -> NodesImage {
        let list = |list| self.by_heartbeat.iter(0, list).collect();
        NodesImage {
            nodes: self.slab.image(|_, node| node.image()),
            late: list(LATE),
            on_time: list(ON_TIME),
            runnable: self.runnable.map_ref(Runnable::image),
        }
    }

    /// The grants on the nodes are still to be counted, with [`Self::count_grants`].
    pub(crate) fn from_image(
        image: NodesImage,
        topology: &Topology,
        settings: &Settings,
        seed: HashSeed,
    ) -> Result<Self, ImageError> {
        let NodesImage { nodes, late, on_time, runnable } = image;
        let mut all = Nodes::new(seed);
        let mut by_name = Lookup::new(seed);
        all.slab = Arena::from_image(nodes, |node, image: NodeImage| {
            let known = by_name.insert(image.name.clone(), node);
            check(known.is_none(), "two nodes have one name")?;
            Node::from_image(image, topology)
        })?;
        all.by_name = by_name;
        all.counted = settings.resources.counted;
        for node in all.slab.values_mut() {
            node.capacity = capacity(&node.total, settings);
            all.whole = all.whole.plus(node.capacity);
        }
        let mut unique = Unique::new(all.slab.places());
        for (list, nodes) in [(LATE, &late), (ON_TIME, &on_time)] {
            all.by_heartbeat.fill(0, list, nodes, &mut unique)?;
        }
        all.late = late.len();
        for node in &late {
            let node = all.slab.get_mut(*node);
            node.ok_or_else(|| ImageError::new("a late node is not known"))?.late = true;
        }
        let PerType(runnable) = runnable;
        for (place, image) in all.runnable.0.iter_mut().zip(runnable) {
            *place = Runnable::from_image(image, all.slab.places(), topology)?;
        }
        for kind in ResourceType::ALL {
            let lists = &all.runnable[kind].lists;
            for shelf in 0..lists.chains(BY_LOAD) {
                for node in lists.iter(BY_LOAD, shelf) {
                    let node = all.slab.get_mut(node);
                    let node = node.ok_or_else(|| ImageError::new("an unknown node has room"))?;
                    node.shelf[kind] = u32::try_from(shelf).unwrap_or(u32::MAX);
                }
            }
        }
        for (_, node) in all.slab.iter() {
            for kind in ResourceType::ALL {
                let slots = u64::from(node.slots[kind]);
                all.capacity[kind] += slots;
                all.offered[kind] += if node.apps[kind].is_some() { slots } else { 0 };
            }
        }
        Ok(all)
    }

    /// Marks a node as kept for a request.
    pub(crate) fn mark_reserved(&mut self, node: NodeIdx) -> Result<(), ImageError> {
        let entry = self.slab.get_mut(node);
        entry.ok_or_else(|| ImageError::new("a node is reserved that is not known"))?.reserved =
            true;
        Ok(())
    }

    /// Counts the grants on the nodes, from the requests that hold them. `request` gives the type
    /// and the needs of a request.
    pub(crate) fn count_grants(
        &mut self,
        request: impl Fn(SessionIdx, ReqIdx) -> Option<(ResourceType, Wish)>,
    ) -> Result<(), ImageError> {
        for node in self.slab.values_mut() {
            for (_, (session, req)) in node.grants.iter() {
                let of = request(*session, *req);
                let (kind, Wish { need, demand }) =
                    of.ok_or_else(|| ImageError::new("a slot belongs to nothing"))?;
                node.held = node.held.plus(demand);
                let used = node.used[kind].checked_add(need);
                node.used[kind] =
                    used.ok_or_else(|| ImageError::new("a node has too many grants"))?;
                node.grant_counts[kind] += 1;
                self.allocated[kind] += u64::from(need);
            }
            for kind in ResourceType::ALL.into_iter().filter(|kind| node.usable[*kind]) {
                self.room[kind] += u64::from(node.room(kind));
            }
            self.spare = self.spare.plus(node.usable_spare());
        }
        Ok(())
    }
}

impl Node {
    fn image(&self) -> NodeImage {
        NodeImage {
            name: self.name.clone(),
            address: self.address.clone(),
            host: self.host,
            slots: self.slots,
            usable: self.usable,
            in_index: self.in_index,
            admission: Admission::of(self),
            last_heartbeat: self.last_heartbeat,
            grants: self.grants.image(|_, holder| *holder),
            visits: self.sessions.0.clone(),
            apps: self.apps.clone(),
            total: self.total,
            free: self.free,
            faults: self.faults,
            trouble: self.trouble.as_deref().cloned(),
            access: Later(self.access),
        }
    }

    fn from_image(image: NodeImage, topology: &Topology) -> Result<Node, ImageError> {
        topology.check_host(image.host)?;
        topology.check_placed(image.host)?;
        let sorted = image.visits.is_sorted_by(|(a, _), (b, _)| a < b);
        check(sorted, "the sessions of a node are out of order")?;
        let (allowed, draining, revoked) = image.admission.parts()?;
        let Later(access) = image.access;
        check(!revoked || access.is_some(), "a node without access was revoked")?;
        Ok(Node {
            host: image.host,
            rack: topology.rack_of(image.host),
            slots: image.slots,
            used: PerType::all(0),
            grant_counts: PerType::all(0),
            usable: image.usable,
            in_index: image.in_index,
            shelf: PerType::all(0),
            capacity: Amounts::ZERO,
            held: Amounts::ZERO,
            allowed,
            draining,
            revoked,
            access,
            late: false,
            reserved: false,
            last_heartbeat: image.last_heartbeat,
            grants: Arena::from_image(image.grants, |_, holder| Ok(holder))?,
            sessions: Visits(image.visits),
            name: image.name,
            address: image.address,
            apps: image.apps,
            total: image.total,
            free: image.free,
            faults: image.faults,
            trouble: image.trouble.map(Box::new),
        })
    }
}

impl Runnable {
    fn image(&self) -> RunnableImage {
        let list = |way, list: usize| -> Vec<NodeIdx> { self.lists.iter(way, list).collect() };
        let hosts = self.hosts.items().iter();
        let racks = self.racks.items().iter();
        let mut loads: Vec<Vec<NodeIdx>> =
            (0..self.lists.chains(BY_LOAD)).map(|load| list(BY_LOAD, load)).collect();
        while loads.last().is_some_and(Vec::is_empty) {
            loads.pop();
        }
        RunnableImage {
            hosts: hosts.map(|host| (*host, list(BY_HOST, host.place()))).collect(),
            racks: racks.map(|rack| (*rack, list(BY_RACK, rack.place()))).collect(),
            loads,
            generation: self.generation,
            fresh: self.fresh.clone(),
        }
    }

    fn from_image(
        image: RunnableImage,
        nodes: usize,
        topology: &Topology,
    ) -> Result<Runnable, ImageError> {
        let RunnableImage { hosts, racks, loads, generation, fresh } = image;
        let (host_places, rack_places) = topology.places();
        let mut lists = Chains::default();
        let mut runnable = Runnable { generation, fresh, ..Runnable::default() };
        runnable.hosts = fill(&mut lists, BY_HOST, &hosts, host_places, nodes)?;
        runnable.racks = fill(&mut lists, BY_RACK, &racks, rack_places, nodes)?;
        let mut unique = Unique::new(nodes);
        for (load, nodes) in loads.iter().enumerate() {
            lists.fill(BY_LOAD, load, nodes, &mut unique)?;
            if !nodes.is_empty() {
                runnable.loads.set(load, true);
            }
        }
        runnable.count = loads.iter().map(Vec::len).sum();
        runnable.lists = lists;
        Ok(runnable)
    }
}

/// Appends the nodes of each place to its list, and gives the places.
fn fill<I: Idx>(
    lists: &mut Chains<NodeIdx, 3>,
    way: usize,
    image: &[(I, Vec<NodeIdx>)],
    places: usize,
    nodes: usize,
) -> Result<DenseSet<I>, ImageError> {
    let mut set = DenseSet::default();
    let mut unique = Unique::new(nodes);
    for (place, nodes) in image {
        check(place.place() < places, "nodes are where nothing is")?;
        check(!set.contains(*place), "a place is listed twice")?;
        set.insert(*place);
        lists.fill(way, place.place(), nodes, &mut unique)?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decode, encode};

    #[test]
    fn images_of_before_draining_are_read() {
        for allowed in [false, true] {
            let bytes = encode(&allowed).unwrap();
            let admission: Admission = decode(&bytes).unwrap();
            assert_eq!(admission.parts(), Ok((allowed, false, false)));
            assert_eq!(encode(&admission).unwrap(), bytes);
        }
        assert_eq!(Admission(3).parts(), Ok((true, true, false)));
        assert_eq!(Admission(5).parts(), Ok((true, false, true)));
        assert!(Admission(8).parts().is_err());
    }
}
