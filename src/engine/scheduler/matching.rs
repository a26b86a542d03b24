//! Finds a request of a session and a node for it.
//!
//! Spec: cluster-manager/04 §7, 03 §7. The rule is a walk: the pending requests from the cursor
//! on, each asking for the best node at the level; the first hit wins. The walk is done for a few
//! steps; if that finds nothing the same request is found through indices of what has room.

use crate::engine::lookup::DenseSet;
use crate::engine::nodes::{NodeIdx, Nodes, Runnable};
use crate::engine::pending::{ClassKey, Pending};
use crate::engine::requests::{ReqIdx, Request, RequestState, Requests};
use crate::engine::topology::{HostIdx, RackIdx, Topology};
use crate::engine::types::ResourceType;

use super::Level;

/// What a search looks at.
pub(in crate::engine) struct Search<'a> {
    pub(in crate::engine) kind: ResourceType,
    pub(in crate::engine) nodes: &'a Nodes,
    pub(in crate::engine) topology: &'a Topology,
    pub(in crate::engine) requests: &'a Requests,
}

/// A request, with its place in the walk: requests before the cursor come after those behind it.
type Candidate = ((bool, u64), ReqIdx);

impl Search<'_> {
    /// The first pending request, from the cursor on, that a node can serve at `level`, and that
    /// node. The cursor stays; see [`Pending::stop_at`].
    pub(in crate::engine) fn find(
        &self,
        pending: &mut Pending,
        level: Level,
    ) -> Option<(ReqIdx, NodeIdx)> {
        let (first, from) = pending.start(self.requests)?;
        let mut req = first;
        for _ in 0..self.steps_worth_walking(pending, level) {
            if let Some(node) = self.best_node(pending, req, level) {
                return Some((req, node));
            }
            req = pending.next_around(self.requests, req);
            if req == first {
                return None;
            }
        }
        let (_, req) = self.first_by_index(pending, level, from)?;
        self.best_node(pending, req, level).map(|node| (req, node))
    }

    /// A walk may take as many steps as the index would.
    fn steps_worth_walking(&self, pending: &Pending, level: Level) -> usize {
        const AT_LEAST: usize = 8;
        let runnable = self.nodes.runnable(self.kind);
        match level {
            Level::Node => AT_LEAST + runnable.hosts().len().min(pending.host_count()),
            Level::Rack => AT_LEAST + runnable.racks().len().min(pending.rack_count()),
            Level::Any => AT_LEAST,
        }
    }

    /// The best node for a request: for each of its hosts in turn one on the host, then, as far as
    /// the level allows, one in its rack, then any.
    fn best_node(&self, pending: &mut Pending, req: ReqIdx, level: Level) -> Option<NodeIdx> {
        let request = &self.requests[req];
        if request.hosts.is_empty() {
            return self.any_node(pending, request);
        }
        request.hosts.iter().find_map(|host| {
            self.on_host(*host, request.need())
                .or_else(|| {
                    (level >= Level::Rack).then(|| self.in_rack_of(*host, request)).flatten()
                })
                .or_else(|| {
                    (level == Level::Any).then(|| self.any_node(pending, request)).flatten()
                })
        })
    }

    fn on_host(&self, host: HostIdx, need: u32) -> Option<NodeIdx> {
        self.runnable().on_host(host).find(|node| self.nodes[*node].room(self.kind) >= need)
    }

    fn in_rack_of(&self, host: HostIdx, request: &Request) -> Option<NodeIdx> {
        self.on_rack(self.topology.rack_of(host), request)
    }

    fn on_rack(&self, rack: RackIdx, request: &Request) -> Option<NodeIdx> {
        self.runnable().on_rack(rack).find(|node| {
            let node = &self.nodes[*node];
            node.room(self.kind) >= request.need() && !request.excluded.contains(&node.host)
        })
    }

    fn any_node(&self, pending: &mut Pending, request: &Request) -> Option<NodeIdx> {
        let RequestState::Pending { class, .. } = request.state else { return None };
        self.any_node_of_class(pending, class as usize)
    }

    /// A node for a request of the class when its place does not matter. That there is none is
    /// remembered until some node gains room.
    fn any_node_of_class(&self, pending: &mut Pending, class: usize) -> Option<NodeIdx> {
        let class = pending.class(class);
        let runnable = self.runnable();
        if class.unserved_at == Some(runnable.generation()) {
            return None;
        }
        let ClassKey { excluded, need } = &*class.key;
        let found = runnable.least_loaded().find(|node| {
            let node = &self.nodes[*node];
            node.room(self.kind) >= *need && excluded.binary_search(&node.host).is_err()
        });
        if found.is_none() {
            class.unserved_at = Some(runnable.generation());
        }
        found
    }

    fn first_by_index(&self, pending: &mut Pending, level: Level, from: u64) -> Option<Candidate> {
        let mut best = None;
        for class in pending.class_numbers() {
            if self.any_node_of_class(pending, class).is_none() {
                continue;
            }
            keep_first(&mut best, from, pending.first_hostless(self.requests, class, from));
            if level == Level::Any {
                keep_first(&mut best, from, pending.first_hosted(self.requests, class, from));
            }
        }
        match level {
            Level::Node => self.first_by_host(pending, from, &mut best),
            Level::Rack => self.first_by_rack(pending, from, &mut best),
            Level::Any => {}
        }
        best
    }

    fn first_by_host(&self, pending: &mut Pending, from: u64, best: &mut Option<Candidate>) {
        let runnable = self.runnable().hosts();
        for host in common(runnable, pending.host_count(), |at| pending.host_at(at)) {
            let fits = |req| self.on_host(host, self.requests[req].need()).is_some();
            keep_first(best, from, pending.first_on_host(self.requests, host, from, fits));
        }
    }

    /// A node on a wanted host is in the host's rack, so the racks alone tell.
    fn first_by_rack(&self, pending: &mut Pending, from: u64, best: &mut Option<Candidate>) {
        let runnable = self.runnable().racks();
        for rack in common(runnable, pending.rack_count(), |at| pending.rack_at(at)) {
            let fits = |req| self.on_rack(rack, &self.requests[req]).is_some();
            keep_first(best, from, pending.first_on_rack(self.requests, rack, from, fits));
        }
    }

    fn runnable(&self) -> &Runnable {
        self.nodes.runnable(self.kind)
    }
}

fn keep_first(best: &mut Option<Candidate>, from: u64, found: Option<(u64, ReqIdx)>) {
    let Some((seq, req)) = found else { return };
    let candidate = ((seq < from, seq), req);
    if best.is_none_or(|best| candidate.0 < best.0) {
        *best = Some(candidate);
    }
}

/// Places that may be both runnable and wanted: the smaller of the two lists.
fn common(runnable: &DenseSet, wanted: usize, at: impl Fn(usize) -> Option<u32>) -> Vec<u32> {
    if runnable.len() <= wanted {
        runnable.items().to_vec()
    } else {
        (0..wanted).filter_map(at).filter(|place| runnable.contains(*place)).collect()
    }
}
