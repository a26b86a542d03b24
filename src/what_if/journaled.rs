//! Workloads from a cluster manager's journal: what its sessions asked for, with the engine's own decisions.
//!
//! The journal itself is read elsewhere; each state and input that it leads to comes here.

use corona_engine::snapshot::Standing;
use corona_engine::{DEFAULT_RACK, Effect, Engine, Input, Outcome, Record};
use corona_model::types::{Millis, NodeReport};

use crate::history::History;
use crate::workload::{Node, Reading};

/// A journal's nodes stay until the engine loses them.
const NEVER_MS: i64 = i64::MAX;

/// Collects what a journal shows.
#[derive(Debug, Default)]
pub struct Journaled {
    history: Option<History>,
}

impl Journaled {
    /// A whole state: the first one, or one from which the journal goes on.
    pub fn state(&mut self, engine: &Engine) {
        let now = engine.now().0;
        let history = self.history.get_or_insert_with(|| History::from(now, now));
        for view in engine.nodes() {
            let rack = Some(view.rack).filter(|rack| **rack != *DEFAULT_RACK);
            let (name, drains) = (view.name.clone(), view.draining);
            let node = Node { rack, ..Node::new(view.name, view.address.host, view.total) };
            history.node_seen(now, node, NEVER_MS);
            history.node_drains(now, &name, drains);
        }
        for session in engine.snapshot().sessions {
            let mut info = session.info;
            // As it was submitted, or where redirects led it.
            info.pool.get_or_insert(session.pool);
            if !history.session_ran(&session.handle, &info) {
                continue;
            }
            for known in session.requests {
                let id = known.request.id;
                match known.standing {
                    Standing::Lost => {}
                    Standing::Pending => history.requests(now, &session.handle, &[known.request]),
                    Standing::Granted { node, .. } => {
                        history.requests(now, &session.handle, &[known.request]);
                        history.granted(now, &session.handle, id, &node);
                    }
                }
            }
        }
    }

    /// An input that the engine took, with its outcome.
    pub fn input(&mut self, at: Millis, input: &Input, outcome: &Outcome) {
        let Some(history) = &mut self.history else { return };
        let at_ms = at.0;
        history.lasts_until(at_ms);
        if outcome.reply.is_ok() {
            match input {
                Input::StartSession { handle, info } => history.session_starts(at_ms, handle, info),
                Input::RequestResources { handle, requests, .. }
                | Input::MoreRequests { handle, requests, .. } => {
                    history.requests(at_ms, handle, requests);
                }
                Input::ReleaseResources { handle, ids } => history.releases(at_ms, handle, ids),
                _ => {}
            }
        }
        for effect in &outcome.effects {
            match effect {
                Effect::Notify { handle, notification, .. } => {
                    history.notified(at_ms, handle, notification);
                }
                Effect::ForgetSession { handle } => history.session_ends(at_ms, handle),
                Effect::Record(Record::NodeAdded { report, .. }) => {
                    let rack = match input {
                        Input::HeartbeatNode { rack, .. } => rack.clone(),
                        _ => None,
                    };
                    let NodeReport { name, address, total, .. } = &**report;
                    let node = Node::new(name.clone(), address.host.clone(), *total);
                    history.node_seen(at_ms, Node { rack, ..node }, NEVER_MS);
                }
                Effect::Record(Record::NodeDraining { name, on }) => {
                    history.node_drains(at_ms, name, *on);
                }
                Effect::Record(Record::NodeLost { name, .. }) => history.node_gone(at_ms, name),
                Effect::ResumeNotifications | Effect::Record(_) => {}
            }
        }
    }

    /// The workload; none if the journal has no state.
    pub fn finish(self, name: &str) -> Option<Reading> {
        let (mut workload, gaps) = self.history?.finish(name, 0, NEVER_MS);
        workload.assume(
            "Nodes that were blacklisted serve all the time; lost and drained ones are away as long as they were.",
        );
        if gaps.older > 0 {
            workload.assume(&format!(
                "{} sessions ran before the journal begins: they request at its beginning what they held and \
                 waited for then.",
                gaps.older
            ));
        }
        let left_out = gaps.left_out("journal");
        Some(Reading { workload, left_out })
    }
}
