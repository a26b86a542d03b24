//! The parts of a recording that are missing: where they are, and what they can touch.
//!
//! It knows conversations and nothing of a run.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::answers::handle_of;
use crate::capture::{ConnectionId, Side};
use crate::conversation::{Conversation, Offered, Said};

/// What a recording lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gaps {
    /// Bytes that were sent and are not in the recording.
    pub(super) bytes: u64,
    /// Connections with such bytes.
    pub(super) places: usize,
    /// When the first of them are missing.
    pub(super) first_at: Option<Duration>,
    /// Connections to the cluster manager on which calls or replies may be missing, or whose
    /// beginning is.
    pub(super) connections: BTreeSet<ConnectionId>,
    /// Ports of session drivers whose notifications are not all there.
    pub(super) drivers: BTreeSet<u16>,
    /// From here on calls are missing that may have changed what is granted to whom.
    pub(super) changes_at: Option<Duration>,
    /// Sessions that such calls may be about.
    pub(super) sessions: BTreeSet<String>,
}

/// Finds the gaps of a recording.
pub(super) fn gaps(conversations: &[Conversation]) -> Gaps {
    let mut gaps = Gaps::default();
    for conversation in conversations {
        note(conversation, &mut gaps);
    }
    gaps
}

fn note(conversation: &Conversation, gaps: &mut Gaps) {
    let is_manager = conversation.service == Offered::ClusterManager;
    if is_manager && !conversation.whole {
        gaps.connections.insert(conversation.connection);
    }
    let mut before = conversation.opened_at;
    let mut any = false;
    for part in &conversation.parts {
        let Said::Missing(bytes) = part.what else {
            before = part.at;
            continue;
        };
        any = true;
        gaps.bytes = gaps.bytes.saturating_add(bytes);
        gaps.first_at = Some(gaps.first_at.map_or(part.at, |first| first.min(part.at)));
        match (conversation.service, part.from) {
            (Offered::ClusterManager, from) => {
                gaps.connections.insert(conversation.connection);
                if from == Side::Client && !is_harmless(conversation, part.at) {
                    let known = gaps.changes_at.unwrap_or(before);
                    gaps.changes_at = Some(known.min(before));
                    let handles = conversation.messages().filter_map(|(_, said)| handle_of(said));
                    gaps.sessions.extend(handles.map(str::to_owned));
                }
            }
            (Offered::SessionDriver, Side::Client) => {
                gaps.drivers.insert(conversation.server.port());
            }
            _ => {}
        }
    }
    gaps.places += usize::from(any);
}

/// Whether no call that is missing before `at` can have changed what is granted: those that are
/// known are only questions and signs of life.
fn is_harmless(conversation: &Conversation, at: Duration) -> bool {
    let only_asks = |method: &str| {
        matches!(
            method,
            "getSessions"
                | "getSessionInfo"
                | "getActualPoolInfo"
                | "getActualPoolInfoV2"
                | "sessionHeartbeat"
                | "sessionHeartbeatV2"
                | "nodeHeartbeat"
        )
    };
    let mut calls = conversation.messages().filter(|(part, _)| part.from == Side::Client);
    let has_begun = calls.next().is_some_and(|(part, _)| part.at < at);
    has_begun && conversation.messages().all(|(_, message)| only_asks(&message.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Part;
    use crate::samples::{conversation, message, word};
    use corona_wire::value::MessageKind;

    fn said(ms: u64, from: Side, method: Option<&str>) -> Part {
        let kind = if from == Side::Client { MessageKind::Call } else { MessageKind::Reply };
        let message = |name| message(kind, name, vec![("handle", word("1.1"))]);
        let what = match method {
            Some(name) => Said::Messages { raw: vec![], messages: vec![message(name)] },
            None => Said::Missing(7),
        };
        Part { at: Duration::from_millis(ms), from, what }
    }

    fn found(service: Offered, parts: Vec<Part>) -> Gaps {
        gaps(&[conversation(service, parts)])
    }

    #[test]
    fn a_gap_touches_what_a_missing_message_can_change() {
        use Side::{Client, Server};
        let manager = Offered::ClusterManager;
        let changes = |found: &Gaps| found.changes_at.map(|at| at.as_millis());
        for (parts, expected) in [
            (vec![said(1, Client, Some("nodeHeartbeat")), said(2, Client, None)], None),
            (vec![said(1, Client, Some("requestResource")), said(2, Client, None)], Some(1)),
            (vec![said(1, Client, Some("requestResource")), said(2, Server, None)], None),
            // Nothing is known of the first calls.
            (vec![said(1, Client, None), said(2, Client, Some("nodeHeartbeat"))], Some(0)),
        ] {
            let found = found(manager, parts);
            assert_eq!((changes(&found), found.bytes, found.places), (expected, 7, 1));
            assert_eq!(found.connections, BTreeSet::from([ConnectionId(3)]));
            assert_eq!(found.sessions.len(), usize::from(expected.is_some()));
        }
        let lost = found(Offered::SessionDriver, vec![said(5, Client, None)]);
        assert_eq!((lost.drivers, lost.connections.len()), (BTreeSet::from([9]), 0));
        assert_eq!(found(manager, vec![said(1, Client, Some("getSessions"))]), Gaps::default());
    }
}
