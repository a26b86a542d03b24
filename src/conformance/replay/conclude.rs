//! The end of a run: the notifications and connections of the whole run, compared.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ledger::{Topic, TopicEntries};
use super::play::{CLOSED, Play};
use super::world::{Arrival, World};
use crate::answers::show;
use crate::report::{Finding, Rule, Subject};

impl<W: World> Play<W> {
    /// There must be no unsolicited messages.
    pub(super) fn conclude_connections(&mut self, at: Duration) {
        let mut surplus = Vec::new();
        for (connection, known) in &self.connections {
            while let Some(arrival) = self.world.present_arrival(*connection) {
                let what = match arrival {
                    Arrival::Message(message) => show(&message),
                    _ if known.may_end() => break,
                    Arrival::Nonsense(why) => format!("not a message: {why}"),
                    Arrival::Closed => CLOSED.to_owned(),
                };
                surplus.push((*connection, what));
            }
        }
        surplus.sort_by_key(|(connection, _)| *connection);
        for (connection, what) in surplus {
            let place = format!("connection {}, at the end", connection.0);
            self.run_differs(at, &place, "nothing more".to_owned(), what);
        }
    }

    /// Compares the notifications of the whole run.
    pub(super) fn conclude(&mut self, at: Duration) {
        let pages: Vec<(Topic, TopicEntries)> =
            self.ledger.pages().map(|(topic, page)| (topic.clone(), page.clone())).collect();
        for (topic, page) in pages {
            self.report.notices.recorded += page.recorded.len();
            self.report.notices.live += page.live.len();
            if self.options.compare_notices {
                self.conclude_topic(at, &topic, &page);
            }
        }
        let older = self.older.sessions.len();
        if older > 0 {
            self.report.does_not_compare(&format!(
                "{older} sessions that are older than the recording, with {} calls. Nor the grants of other \
                 sessions: the slots that the older ones held are free here.",
                self.older.calls
            ));
        } else if !self.options.compare_notices {
            self.report.does_not_compare(NO_NOTICES);
        }
        if self.options.compare_safe_mode && self.safe_mode.0 != self.safe_mode.1 {
            let (recorded, live) =
                (format!("{:?}", self.safe_mode.0), format!("{:?}", self.safe_mode.1));
            self.run_differs(at, "safe mode calls to the proxy job tracker", recorded, live);
        }
        let slots = self.options.partitioning.as_deref().and_then(slots);
        for node in slots.map(|slots| self.cluster.overfull(slots)).unwrap_or_default() {
            self.run_differs(at, "slots", "no node is overfull".to_owned(), node);
        }
    }

    fn conclude_topic(&mut self, at: Duration, topic: &Topic, page: &TopicEntries) {
        let (recorded, live) = (format!("{:?}", page.recorded), format!("{:?}", page.live));
        let (only_recorded, only_live) = page.difference();
        let same = only_recorded.is_empty() && only_live.is_empty();
        match topic {
            Topic::Granted(handle, kind) => {
                let (kind, session) = (kind_name(*kind), self.both_names(handle));
                let place = format!("{kind} grants to session {session}");
                if !same || page.recorded != page.live {
                    self.notice_differs(at, place, None, recorded, live);
                } else {
                    self.conclude_nodes(at, place, handle, &page.recorded);
                }
            }
            Topic::Revoked(handle, kind) => {
                let (kind, session) = (kind_name(*kind), self.both_names(handle));
                let place = format!("{kind} revocations from session {session}");
                if !same && page.recorded.len() == page.live.len() {
                    self.notice_differs(at, place, Some(Rule::FREE_ORDER), recorded, live);
                } else if !same || page.recorded != page.live {
                    self.notice_differs(at, place, None, recorded, live);
                }
            }
            Topic::DeadNode(handle, node) => {
                let session = self.both_names(handle);
                let place = format!("dead node {node}, sent to session {session}");
                if !same && page.live.is_empty() && !self.cluster.has_used(handle, node) {
                    self.notice_differs(at, place, Some(Rule::FREE_NODE), recorded, live);
                } else if !same {
                    self.notice_differs(at, place, None, recorded, live);
                }
            }
        }
    }

    /// The same requests were granted: on which nodes?
    fn conclude_nodes(&mut self, at: Duration, place: String, handle: &str, ids: &[i32]) {
        let mut nodes = (String::new(), String::new());
        let mut local = (0, 0);
        for id in ids {
            let key = (handle.to_owned(), *id);
            let (Some(recorded), Some(live)) =
                (self.recorded_grants.get(&key), self.live_grants.get(&key))
            else {
                continue;
            };
            local.0 += usize::from(self.cluster.is_local(handle, recorded));
            local.1 += usize::from(self.cluster.is_local(handle, live));
            if recorded.node_name != live.node_name {
                nodes.0.push_str(&format!("{id} on {}; ", recorded.node_name));
                nodes.1.push_str(&format!("{id} on {}; ", live.node_name));
            }
        }
        if local.1 < local.0 {
            let count = |local| format!("{local} on a preferred host");
            self.notice_differs(at, place, None, count(local.0), count(local.1));
        } else if !nodes.0.is_empty() {
            self.notice_differs(at, place, Some(Rule::FREE_NODE), nodes.0, nodes.1);
        }
    }

    /// A session by its recorded id and by its id in this run.
    fn both_names(&self, recorded: &str) -> String {
        match self.names.live_text(recorded) {
            live if live == recorded => live,
            live => format!("{live}, recorded as {recorded}"),
        }
    }

    /// The notifications of a session differ from the recorded ones.
    fn notice_differs(
        &mut self,
        at: Duration,
        place: String,
        rule: Option<Rule>,
        recorded: String,
        live: String,
    ) {
        let found = Finding::of_words(at, Subject::Notice, place, (recorded, live));
        self.report.add(Finding { rule, ..found });
    }
}

const NO_NOTICES: &str = "Notifications of grants, revocations and dead nodes: the recording has none. \
    'corona record --relay-callbacks' records them.";

/// The name of a type of resource, its number if it has none.
fn kind_name(kind: i32) -> String {
    match kind {
        0 => "MAP".to_owned(),
        1 => "REDUCE".to_owned(),
        2 => "JOBTRACKER".to_owned(),
        other => format!("type {other}"),
    }
}

/// Slots by number of CPUs and type. Spec: cluster-manager/03 §2.
fn slots(partitioning: &str) -> Option<impl Fn(i16, i32) -> usize + use<>> {
    let table: BTreeMap<String, BTreeMap<String, usize>> =
        serde_json::from_str(partitioning).ok()?;
    Some(move |cpus: i16, kind: i32| {
        let name = match kind {
            0 => "MAP",
            1 => "REDUCE",
            _ => "JOBTRACKER",
        };
        let of = |cpus: i16| table.get(&cpus.to_string());
        let count = |row: &BTreeMap<String, usize>| row.get(name).copied().unwrap_or(0);
        match (of(cpus), of(1)) {
            (Some(row), _) => count(row),
            (None, Some(one)) => count(one).saturating_mul(usize::try_from(cpus).unwrap_or(0)),
            (None, None) => 0,
        }
    })
}
