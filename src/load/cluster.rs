//! The emulated nodes: their names and addresses, and how many of their slots are held.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use super::faults::{FaultKind, Faults};
use super::plan::{Job, Nodes, Placement};
use corona_model::random::Random;
use corona_wire::generated::{
    ClusterNodeInfo, ComputeSpecs, InetAddress, ResourceGrant, ResourceType,
};

/// The number of a node that is not one of the run's.
pub(super) const FOREIGN: u32 = u32::MAX;

/// Port of every node's own listener, and of the service that its grants name. It has no listener:
/// no task is started.
const NODE_PORT: u16 = 50_060;
const SERVICE_PORT: u16 = 50_061;
/// Nodes that a placement takes for neighbours in a rack.
const NODES_OF_A_RACK: u32 = 40;

/// All nodes of a run.
#[derive(Debug)]
pub(super) struct LoadedCluster {
    map_slots: u32,
    cpus: i16,
    nodes: Box<[Node]>,
    /// Slots held, of nodes that are not the run's too.
    held: AtomicI64,
}

/// The books of a node. A slot is held from its grant until just before its release: a grant is
/// counted after the cluster manager has counted it and a release before, so there are never more
/// than the cluster manager knows.
#[derive(Debug, Default)]
struct Node {
    maps: AtomicU32,
    most_maps: AtomicU32,
    /// Slots that a session lost. Its notification may arrive after that of another session that received
    /// the slot now.
    lost_maps: AtomicU32,
}

impl LoadedCluster {
    pub(super) fn new(plan: &Nodes) -> LoadedCluster {
        let nodes = std::iter::repeat_with(Node::default).take(plan.count).collect();
        LoadedCluster { map_slots: plan.map_slots, cpus: plan.cpus, nodes, held: AtomicI64::new(0) }
    }

    /// How many nodes there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(FOREIGN)
    }

    /// The contents of a node's heartbeat.
    pub(super) fn info(&self, number: u32) -> ClusterNodeInfo {
        let host = host(number);
        let service = format!("{host}:{SERVICE_PORT}");
        let services =
            [ResourceType::MAP, ResourceType::REDUCE].map(|kind| (kind, service.clone()));
        node_info(name(number), host, self.cpus, services)
    }

    /// The node that a grant names: its number, or [`FOREIGN`]. An error names the fault of the
    /// grant.
    pub(super) fn node_of(&self, grant: &ResourceGrant) -> Result<u32, String> {
        let Some(number) = self.number(&grant.node_name) else { return Ok(FOREIGN) };
        let InetAddress { host, port } = &grant.address;
        if !is_host(host, number) || *port != i32::from(NODE_PORT) {
            return Err(format!("{} is not at {host}:{port}", grant.node_name));
        }
        let service = grant.app_info.as_deref().and_then(|info| info.rsplit_once(':'));
        let right = service
            .is_some_and(|(host, port)| is_host(host, number) && port.parse() == Ok(SERVICE_PORT));
        if !right {
            return Err(format!("{} has not reported {:?}", grant.node_name, grant.app_info));
        }
        Ok(number)
    }

    /// The number of the run's node with this name.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let number = name.strip_prefix(NAME)?.parse().ok()?;
        (number < self.count()).then_some(number)
    }

    /// Slots held now.
    pub(super) fn held(&self) -> i64 {
        self.held.load(Ordering::Relaxed)
    }

    /// A slot of a node is held from now on.
    pub(super) fn hold(&self, node: u32, is_map: bool) {
        self.held.fetch_add(1, Ordering::Relaxed);
        if let Some(node) = self.node(node, is_map) {
            let held = node.maps.fetch_add(1, Ordering::Relaxed) + 1;
            node.most_maps.fetch_max(held, Ordering::Relaxed);
        }
    }

    /// A slot that was held is about to be released.
    pub(super) fn release(&self, node: u32, is_map: bool) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        if let Some(node) = self.node(node, is_map) {
            node.maps.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A held slot was lost.
    pub(super) fn lose(&self, node: u32, is_map: bool) {
        self.release(node, is_map);
        if let Some(node) = self.node(node, is_map) {
            node.lost_maps.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn node(&self, number: u32, is_map: bool) -> Option<&Node> {
        self.nodes.get(number as usize).filter(|_| is_map)
    }

    /// Records every held slot beyond the capacity of its node, unless a session lost one.
    pub(super) fn judge(&self, faults: &Faults) {
        for (number, node) in self.nodes.iter().enumerate() {
            let most = node.most_maps.load(Ordering::Relaxed);
            let allowed = self.map_slots.saturating_add(node.lost_maps.load(Ordering::Relaxed));
            let over = most.saturating_sub(allowed);
            faults.note_times(FaultKind::OverCapacity, over.into(), || {
                let (name, slots) = (name(number as u32), self.map_slots);
                format!("{most} MAP slots of {name} were held at the same time; it has {slots}")
            });
        }
    }

    /// The nodes that request `id` of the session `seed` wants to be near to.
    pub(super) fn near(&self, job: &Job, seed: u64, id: i32) -> impl Iterator<Item = u32> {
        let count = self.count();
        let (placement, hosts) = (job.placement, if count == 0 { 0 } else { job.hosts });
        let first = match placement {
            Placement::Neighbours => {
                (seed.wrapping_mul(7_919).wrapping_add(id as u64) % u64::from(count.max(1))) as u32
            }
            Placement::Scattered => draw(seed, id, 0, count),
        };
        (0..hosts).map(move |place| match (placement, place) {
            (_, 0) => first,
            (Placement::Neighbours, place) => (first + place) % count,
            // The second copy of a block lies in the rack of the first.
            (Placement::Scattered, 1) => {
                let rack = first / NODES_OF_A_RACK * NODES_OF_A_RACK;
                let size = NODES_OF_A_RACK.min(count - rack);
                rack + (first - rack + 1 + draw(seed, id, 1, size.saturating_sub(1))) % size
            }
            (Placement::Scattered, place) => draw(seed, id, place, count),
        })
    }
}

/// A number below `bound` that follows from the others.
fn draw(seed: u64, id: i32, place: u32, bound: u32) -> u32 {
    let seed = seed ^ (u64::from(id.cast_unsigned()) << 32) ^ u64::from(place);
    Random::new(seed).below(bound as usize) as u32
}

/// The prefix of node names. They are the same in each run, so that a run takes the place
/// of one before it.
const NAME: &str = "load-node-";

fn name(number: u32) -> String {
    format!("{NAME}{number}")
}

/// Literal addresses, which need no lookup.
pub(super) fn host(number: u32) -> String {
    let [_, a, b, c] = number.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

/// The heartbeat of a node that offers these services.
pub(super) fn node_info(
    name: String,
    host: String,
    cpus: i16,
    services: impl IntoIterator<Item = (ResourceType, String)>,
) -> ClusterNodeInfo {
    // More than any cluster manager keeps in reserve.
    let specs = ComputeSpecs::new(cpus, 1_000, 256 << 10, 10_000);
    let address = InetAddress { host, port: NODE_PORT.into() };
    let services = services.into_iter().collect();
    ClusterNodeInfo::new(name, address, specs.clone(), specs, Some(services), None, None)
}

fn is_host(host: &str, number: u32) -> bool {
    let [_, a, b, c] = number.to_be_bytes();
    let mut parts = host.split('.');
    let all = [10, a, b, c]
        .iter()
        .all(|byte| parts.next().is_some_and(|part| part.len() <= 3 && part.parse() == Ok(*byte)));
    all && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::plan::Heartbeats;

    fn cluster(count: usize) -> LoadedCluster {
        let heartbeats = Heartbeats::Every(Duration::from_secs(3));
        LoadedCluster::new(&Nodes { count, cpus: 4, map_slots: 2, connections: 1, heartbeats })
    }

    fn grant(node: &ClusterNodeInfo) -> ResourceGrant {
        let info = node.resource_infos.as_ref().unwrap()[&ResourceType::MAP].clone();
        ResourceGrant {
            id: 1,
            node_name: node.name.clone(),
            address: node.address.clone(),
            granted_time: 0,
            type_: ResourceType::MAP,
            app_info: Some(info),
        }
    }

    #[test]
    fn grants_name_a_node_as_it_is() {
        let cluster = cluster(70_000);
        for number in [0, 1, 255, 256, 65_536, 69_999] {
            assert_eq!(cluster.node_of(&grant(&cluster.info(number))), Ok(number));
        }
        assert_eq!(cluster.node_of(&grant(&cluster.info(70_000))), Ok(FOREIGN));
        let right = grant(&cluster.info(300));
        let wrong: [fn(&mut ResourceGrant); 5] = [
            |grant| grant.address.port = 1,
            |grant| grant.address.host = "10.0.1.45".into(),
            |grant| grant.app_info = None,
            |grant| grant.app_info = Some("10.0.1.44:1".into()),
            |grant| grant.node_name = "load-node-301".into(),
        ];
        for change in wrong {
            let mut grant = right.clone();
            change(&mut grant);
            assert!(cluster.node_of(&grant).is_err(), "{grant:?}");
        }
    }

    #[test]
    fn more_than_a_node_has_is_a_fault_unless_a_session_lost_a_slot() {
        let over = |happen: fn(&LoadedCluster)| {
            let (cluster, faults) = (cluster(2), Faults::default());
            happen(&cluster);
            cluster.judge(&faults);
            faults.list()
        };
        let three = |cluster: &LoadedCluster| (0..3).for_each(|_| cluster.hold(1, true));
        let [fault] = &over(three)[..] else { panic!("one fault") };
        assert_eq!((fault.kind, fault.count), (FaultKind::OverCapacity, 1));
        assert_eq!(fault.first, "3 MAP slots of load-node-1 were held at the same time; it has 2");
        assert!(
            over(|cluster| {
                (0..3).for_each(|_| cluster.hold(1, true));
                cluster.lose(1, true);
            })
            .is_empty()
        );
        assert!(
            over(|cluster| {
                (0..9).for_each(|_| {
                    cluster.hold(1, true);
                    cluster.hold(1, false);
                    cluster.hold(FOREIGN, true);
                    cluster.release(1, true);
                });
                assert_eq!(cluster.held(), 18);
            })
            .is_empty()
        );
    }

    #[test]
    fn placements_name_nodes_that_are_there_and_are_the_same_each_time() {
        for count in [1, 2, 39, 40, 41, 1_000] {
            let cluster = cluster(count);
            for placement in [Placement::Neighbours, Placement::Scattered] {
                let job = Job { hosts: 3, placement, ..crate::tests::job(1) };
                for id in 1..200 {
                    let near: Vec<u32> = cluster.near(&job, 5, id).collect();
                    assert_eq!(near, cluster.near(&job, 5, id).collect::<Vec<u32>>());
                    assert_eq!(near.len(), 3);
                    assert!(near.iter().all(|number| (*number as usize) < count), "{near:?}");
                    if placement == Placement::Scattered && count > 1 {
                        assert_eq!(near[0] / 40, near[1] / 40, "one rack");
                        assert!(near[0] != near[1] || count == 41, "{near:?}");
                    }
                }
            }
            let job = Job { hosts: 1, ..crate::tests::job(1) };
            let drawn: HashSet<u32> =
                (1..20_000).flat_map(|id| cluster.near(&job, 1, id)).collect();
            assert_eq!(drawn.len(), count, "every node is somebody's");
        }
        let job = Job { hosts: 3, ..crate::tests::job(1) };
        assert_eq!(cluster(0).near(&job, 1, 1).count(), 0);
    }
}
