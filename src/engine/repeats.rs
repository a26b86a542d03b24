//! Heartbeats without news: a journal can leave their contents out.

use super::Engine;
use super::node_calls::allowed;
use super::types::NodeReport;

impl Engine {
    /// Whether the heartbeat of a node equals its last one, so that it changes nothing except the
    /// time when the node was last heard: no session is notified, no slot is freed or offered, and
    /// the node need not restart. Applying [`Engine::last_report`] instead leads to the same state.
    pub fn repeats_last_report(&self, report: &NodeReport) -> bool {
        let Some(node) = self.nodes.find(&report.name) else { return false };
        let node = &self.nodes[node];
        !self.safe_mode
            && !node.late
            && node.allowed == allowed(&self.hosts, &report.address.host)
            && node.total == report.total
            && report.free.is_none_or(|free| free == node.free)
            && node.address == report.address
            && node.apps == report.apps
            && !self.restarts.is_due(&report.name)
    }

    /// The last heartbeat of a node; `None` if there is no such node.
    pub fn last_report(&self, name: &str) -> Option<NodeReport> {
        let node = &self.nodes[self.nodes.find(name)?];
        Some(NodeReport {
            name: node.name.clone(),
            address: node.address.clone(),
            total: node.total,
            free: Some(node.free),
            apps: node.apps.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::Hosts;
    use crate::types::{Millis, NodeReport};
    use crate::{Engine, Input, Start, testing};

    fn report(name: &str, cpus: i16) -> NodeReport {
        let Input::HeartbeatNode { report, .. } = testing::heartbeat(name, cpus) else {
            panic!("no heartbeat")
        };
        report
    }

    fn engine() -> Engine {
        let start = Start { now: Millis(0), id_prefix: "1".into(), hash_seed: 1 };
        let mut engine = Engine::new(testing::settings(), start);
        for name in ["a", "b"] {
            engine.apply(Millis(1), testing::heartbeat(name, 1)).reply.unwrap();
        }
        engine
    }

    fn hear(engine: &mut Engine, report: NodeReport) {
        let outcome = engine.apply(Millis(9), Input::HeartbeatNode { report, rack: None });
        assert_eq!(outcome.effects, []);
    }

    #[test]
    fn a_repeated_heartbeat_can_be_replaced_by_the_last_report() {
        let (mut one, mut other) = (engine(), engine());
        let free = NodeReport { free: None, ..report("a", 1) };
        for said in [report("a", 1), free] {
            assert!(one.repeats_last_report(&said));
            hear(&mut one, said);
            let last = other.last_report("a").unwrap();
            hear(&mut other, last);
            assert_eq!(one.image(), other.image());
        }
        assert_eq!(one.last_report("c"), None);
    }

    #[test]
    fn heartbeats_that_matter_are_not_taken_for_repeated_ones() {
        let plain = || report("a", 1);
        let mut moved = plain();
        moved.address.port += 1;
        let mut full = plain();
        full.free = Some(crate::types::ComputeSpecs { num_cpus: 0, ..full.total });
        let mut without = plain();
        without.apps = Default::default();
        for (what, said) in [
            ("another node", report("c", 1)),
            ("more CPUs", report("a", 2)),
            ("another address", moved),
            ("less that is free", full),
            ("no service", without),
        ] {
            assert!(!engine().repeats_last_report(&said), "{what}");
        }
        let mut restarting = engine();
        restarting.apply(Millis(2), Input::RestartNodes { force: false, batch_size: 1 });
        let due = ["a", "b"].map(|name| !restarting.repeats_last_report(&report(name, 1)));
        assert_eq!(due, [true, false], "one at a time");
        let mut late = engine();
        let much_later = Millis(1 + late.settings().node_late_ms + 1);
        late.apply(much_later, Input::Tick);
        assert!(!late.repeats_last_report(&plain()));
        let mut included = engine();
        for exclude in [vec!["a".into()], vec![]] {
            let hosts = Hosts { exclude: exclude.into_iter().collect(), ..Hosts::default() };
            included.apply(Millis(2), Input::HostsChanged { hosts });
        }
        assert!(!included.repeats_last_report(&plain()));
        let mut safe = engine();
        safe.apply(Millis(2), Input::SetSafeMode { on: true });
        assert!(!safe.repeats_last_report(&plain()));
    }
}
