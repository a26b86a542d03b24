//! The resources of nodes and requests, found the naive way: every number is a new sum.

use super::model::{Model, Name, Node, Wish, WishState};
use corona_model::types::{ComputeSpecs, PerType};

/// CPUs, memory, disk space and network.
pub(super) type Numbers = [i64; 4];

fn numbers(specs: &ComputeSpecs) -> [Option<i64>; 4] {
    let ComputeSpecs { num_cpus, network_mbps, memory_mb, disk_gb } = *specs;
    [
        Some(i64::from(num_cpus)),
        memory_mb.map(i64::from),
        disk_gb.map(i64::from),
        network_mbps.map(i64::from),
    ]
}

impl Model {
    /// Whether resources are counted beside slots.
    pub(super) fn counts_resources(&self) -> bool {
        self.settings.resources.counted != [false; 4]
    }

    /// Slots that a request takes.
    pub(super) fn need(&self, wish: &Wish) -> u32 {
        self.slots_taken()(wish)
    }

    /// As [`Self::need`], by the present settings.
    pub(super) fn slots_taken(&self) -> impl Fn(&Wish) -> u32 + use<> {
        let one = self.counts_resources();
        move |wish| match wish.specs {
            Some(specs) if !one => specs.num_cpus.max(1) as u32,
            _ => 1,
        }
    }

    /// What a request takes of each resource that is counted.
    pub(super) fn demand(&self, wish: &Wish) -> Numbers {
        let rules = &self.settings.resources;
        let javas = [10, 50].map(|network| [Some(1), Some(1_024), Some(10), Some(network)]);
        let asked = wish.specs.as_ref().map(numbers).filter(|asked| !javas.contains(asked));
        std::array::from_fn(|at| {
            if !rules.counted[at] {
                return 0;
            }
            let own = asked.and_then(|asked| asked[at]).unwrap_or(0);
            let usual = rules.requested[wish.kind].0[at] as i64;
            if own > 0 { own } else { usual.max(1) }
        })
    }

    /// What a node has of each resource that is counted.
    pub(super) fn capacity(&self, node: &Node) -> Numbers {
        let settings = &self.settings;
        let kept = [0, settings.reserved_memory_mb, settings.reserved_disk_gb, 0];
        let total = numbers(&node.total);
        std::array::from_fn(|at| {
            let share = f64::from(settings.resources.overcommit[at].0) / 10_000.0;
            let given = (total[at].unwrap_or(0).max(0) as f64 * share + 1e-9).floor() as i64;
            match settings.resources.counted[at] {
                true => (given - i64::from(kept[at].max(0))).max(0),
                false => 0,
            }
        })
    }

    /// What the requests that hold slots of a node take.
    pub(super) fn taken(&self, name: &Name) -> Numbers {
        let wishes = self.sessions.values().flat_map(|session| session.wishes.values());
        let here = wishes
            .filter(|wish| matches!(&wish.state, WishState::Holds { node, .. } if node == name));
        here.map(|wish| self.demand(wish))
            .fold([0; 4], |sum, demand| std::array::from_fn(|at| sum[at] + demand[at]))
    }

    /// Whether a node has the resources for a request.
    pub(super) fn has_resources(&self, name: &Name, wish: &Wish) -> bool {
        let Some(node) = self.nodes.get(name).filter(|_| self.counts_resources()) else {
            return true;
        };
        let (capacity, taken, demand) = (self.capacity(node), self.taken(name), self.demand(wish));
        (0..4).all(|at| demand[at] == 0 || taken[at] + demand[at] <= capacity[at])
    }

    /// Whether a node has the resources for a request when nothing runs there.
    pub(super) fn has_capacity(&self, node: &Node, wish: &Wish) -> bool {
        let (capacity, demand) = (self.capacity(node), self.demand(wish));
        (0..4).all(|at| demand[at] <= capacity[at])
    }

    /// Counts the slots of all grants by the present settings.
    pub(super) fn count_slots_anew(&mut self) {
        let slots = self.slots_taken();
        for (name, node) in &mut self.nodes {
            node.used = PerType::all(0);
            for wish in self.sessions.values().flat_map(|session| session.wishes.values()) {
                if matches!(&wish.state, WishState::Holds { node, .. } if node == name) {
                    node.used[wish.kind] += slots(wish);
                }
            }
        }
    }
}
