//! Resources of a run, where they are counted: what nodes have and grants take, how what is free is spread, and what
//! requests that wait lack.

use std::collections::BTreeMap;

use corona_engine::{Engine, NodeView};
use corona_model::resources::{Amounts, Dimension, Resources};
use corona_model::settings::Settings;
use corona_model::types::{ComputeSpecs, ResourceType};

use crate::workload::{Node, Task};

/// Kinds of requests that are looked at, those of which most wait.
const LOOKED_AT: usize = 64;

/// What requests may lack, by its number.
pub(crate) const LACKS: [&str; 8] =
    ["slots", "cpus", "memory", "disk", "network", "several", "reserved", "other"];
const SLOTS: usize = 0;
const SEVERAL: usize = 5;
const RESERVED: usize = 6;
const OTHER: usize = 7;

/// Parts of requests by what they lack.
pub(crate) type Lacks = [f64; LACKS.len()];

/// The requests of a pool that are alike: its number, their type, and what each takes.
pub(crate) type Alike = (usize, ResourceType, Amounts);

/// What is counted while a run goes on.
#[derive(Debug)]
pub(crate) struct Counts {
    resources: Resources,
    kept: Amounts,
    totals: Vec<ComputeSpecs>,
    is_up: Vec<bool>,
    /// What all nodes give out, and what grants take of it.
    pub(crate) capacity: Amounts,
    pub(crate) held: Amounts,
    waiting: BTreeMap<Alike, u64>,
}

/// How free resources were spread at a moment, and what requests lacked.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// What is free on all nodes, on the node with most, and on nodes on which no request that waits fits.
    pub(crate) free: Amounts,
    pub(crate) largest: Amounts,
    pub(crate) too_small: Amounts,
    /// For each pool, requests by what they lack.
    pub(crate) lacks: BTreeMap<usize, Lacks>,
}

impl Counts {
    pub(crate) fn new(settings: &Settings, nodes: &[Node]) -> Counts {
        Counts {
            resources: (*settings.resources).clone(),
            kept: settings.kept(),
            totals: totals(nodes),
            is_up: vec![false; nodes.len()],
            capacity: Amounts::ZERO,
            held: Amounts::ZERO,
            waiting: BTreeMap::new(),
        }
    }

    /// The dimensions that are counted and of which nodes are known to have something.
    pub(crate) fn dimensions(&self, nodes: &[Node]) -> Vec<Dimension> {
        let is_known = |dimension: &Dimension| knows(nodes, *dimension);
        self.resources.dimensions().filter(is_known).collect()
    }

    /// What is assumed of nodes, as sentences.
    pub(crate) fn assumptions(&self, nodes: &[Node]) -> Vec<String> {
        let mut all = Vec::new();
        for dimension in self.resources.dimensions() {
            let name = dimension.name();
            let known = nodes.iter().filter(|node| dimension.of(&node.total()).is_some()).count();
            match (known, nodes.len() - known) {
                (_, 0) => {}
                (0, _) => all.push(format!(
                    "It is not known how much {name} nodes have, so that it does not limit what runs there: the amounts \
                     may be set with --nodes or in the workload."
                )),
                (_, unknown) => all.push(format!(
                    "Of {unknown} nodes it is not known how much {name} they have: as much as the one that has least."
                )),
            }
        }
        all
    }

    pub(crate) fn total(&self, place: usize) -> ComputeSpecs {
        self.totals.get(place).copied().unwrap_or_default()
    }

    pub(crate) fn node(&mut self, place: usize, is_up: bool) {
        let Some(was_up) = self.is_up.get_mut(place) else { return };
        if std::mem::replace(was_up, is_up) == is_up {
            return;
        }
        let capacity = self.resources.capacity(&self.total(place), self.kept);
        self.capacity = match is_up {
            true => self.capacity.plus(capacity),
            false => self.capacity.minus(capacity),
        };
    }

    /// The slots of a task and what it takes.
    pub(crate) fn taken(&self, task: &Task) -> (i64, Amounts) {
        let slots = self.resources.slots(task.takes);
        (i64::from(slots), self.resources.demand(task.kind, task.takes))
    }

    pub(crate) fn holds(&mut self, takes: Amounts, more: bool) {
        self.held = if more { self.held.plus(takes) } else { self.held.minus(takes) };
    }

    /// A request of a pool waits, or waits no longer.
    pub(crate) fn waits(&mut self, pool: usize, task: &Task, more: bool) {
        if !self.resources.are_counted() {
            return;
        }
        let alike = (pool, task.kind, self.resources.demand(task.kind, task.takes));
        let count = self.waiting.entry(alike).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.waiting.remove(&alike);
        }
    }

    /// What can be seen at a moment; nothing if no request waits or no resources are counted.
    pub(crate) fn sample(&self, engine: &Engine) -> Option<Sample> {
        if self.waiting.is_empty() {
            return None;
        }
        let mut kinds: BTreeMap<(ResourceType, Amounts), u64> = BTreeMap::new();
        for ((_, kind, takes), count) in &self.waiting {
            *kinds.entry((*kind, *takes)).or_default() += count;
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        kinds.truncate(LOOKED_AT);
        let mut kinds: Vec<Looked> = kinds.into_iter().map(|(of, _)| Looked::new(of)).collect();
        let mut sample = Sample::default();
        for node in engine.nodes() {
            // What an operator drains is not free.
            let spare = if node.is_open() { node.spare() } else { continue };
            // Each of them looks at the node, also after one that fits.
            let mut fits = false;
            for kind in &mut kinds {
                fits |= kind.look(&node, &spare);
            }
            sample.free = sample.free.plus(spare);
            for (largest, amount) in sample.largest.0.iter_mut().zip(spare.0) {
                *largest = amount.max(*largest);
            }
            if !fits {
                sample.too_small = sample.too_small.plus(spare);
            }
        }
        for ((pool, kind, takes), count) in &self.waiting {
            let Some(looked) = kinds.iter().find(|looked| looked.of == (*kind, *takes)) else {
                continue;
            };
            let lacks = sample.lacks.entry(*pool).or_default();
            for (sum, part) in lacks.iter_mut().zip(looked.lacks()) {
                *sum += part * *count as f64;
            }
        }
        Some(sample)
    }
}

/// Requests that are alike, while nodes are looked at.
struct Looked {
    of: (ResourceType, Amounts),
    /// A bit for each that would be enough if it alone were there, on any node.
    alone: u8,
    fits: bool,
}

impl Looked {
    fn new(of: (ResourceType, Amounts)) -> Looked {
        Looked { of, alone: 0, fits: false }
    }

    /// Whether the request fits on a node.
    fn look(&mut self, node: &NodeView, spare: &Amounts) -> bool {
        let (kind, takes) = self.of;
        if node.apps[kind].is_none() || node.blacklisted[kind] {
            return false;
        }
        let mut lacking = u8::from(node.room(kind) == 0) << SLOTS;
        for dimension in Dimension::ALL {
            let lacks = takes[dimension] > spare[dimension];
            lacking |= u8::from(lacks) << (dimension as usize + 1);
        }
        // A node may be kept for the very request.
        lacking |= u8::from(lacking == 0 && node.reserved_for.is_some()) << RESERVED;
        self.fits |= lacking == 0;
        if lacking.is_power_of_two() {
            self.alone |= lacking;
        }
        lacking == 0
    }

    /// What each of these requests lacks, in parts of 1.
    fn lacks(&self) -> Lacks {
        let mut lacks = Lacks::default();
        match (self.fits, self.alone.count_ones()) {
            (true, _) => lacks[OTHER] = 1.0,
            (false, 0) => lacks[SEVERAL] = 1.0,
            (false, count) => {
                for (place, part) in lacks.iter_mut().enumerate() {
                    *part = f64::from(self.alone >> place & 1) / f64::from(count);
                }
            }
        }
        lacks
    }
}

fn knows(nodes: &[Node], dimension: Dimension) -> bool {
    nodes.iter().any(|node| dimension.of(&node.total()).is_some())
}

/// What nodes report. What is not known of a node is the least of the others; what is known of none does not limit.
fn totals(nodes: &[Node]) -> Vec<ComputeSpecs> {
    let memory_mb = nodes.iter().filter_map(|node| node.memory_mb).min().unwrap_or(i32::MAX);
    let disk_gb = nodes.iter().filter_map(|node| node.disk_gb).min().unwrap_or(i32::MAX);
    let network_mbps = nodes.iter().filter_map(|node| node.network_mbps).min().unwrap_or(i16::MAX);
    let total = |node: &Node| {
        let total = node.total();
        ComputeSpecs {
            memory_mb: total.memory_mb.or(Some(memory_mb)),
            disk_gb: total.disk_gb.or(Some(disk_gb)),
            network_mbps: total.network_mbps.or(Some(network_mbps)),
            ..total
        }
    };
    nodes.iter().map(total).collect()
}
