//! Sessions and nodes that are older than their recording: found, and the sessions taken out of it.
//!
//! A recording of a running cluster starts in the middle of sessions, and between two heartbeats of its
//! nodes. The cluster manager under test does not know them, so the calls of these sessions cannot be
//! played, and their effects on others are not expected. It knows conversations and nothing of a run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::script::is_call;
use crate::answers::{handle_of, is_unknown_session, text};
use crate::capture::Side;
use crate::conversation::{Conversation, Offered, Said, typed_calls};
use corona_wire::calls::{ClusterManager, ClusterManagerCall, SessionDriver, SessionDriverCall};
use corona_wire::value::{Message, MessageKind, Value};

/// The sessions that were taken out, and the nodes that the recorded manager knew before it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Older {
    /// The sessions, by their recorded ids.
    pub(super) sessions: BTreeSet<String>,
    /// The calls of these sessions.
    pub(super) calls: usize,
    /// The names of the nodes.
    pub(super) nodes: BTreeSet<String>,
}

impl Older {
    /// Whether both cluster managers had the same slots to grant.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.nodes.is_empty()
    }
}

/// Finds them. A session is older if the recorded cluster manager knew it, and the recording does
/// not contain its start.
pub(super) fn older_sessions(conversations: &[Conversation]) -> BTreeSet<String> {
    let mut started = BTreeSet::new();
    let mut known = BTreeSet::new();
    for conversation in conversations.iter().filter(|one| one.service == Offered::ClusterManager) {
        let mut unanswered: VecDeque<&Message> = VecDeque::new();
        for (part, message) in conversation.messages() {
            if part.from == Side::Client {
                if message.name == "sessionStart" {
                    started.extend(handle_of(message).map(str::to_owned));
                }
                unanswered.extend(is_call(message).then_some(message));
                continue;
            }
            known.extend(listed(message).map(str::to_owned));
            let Some(call) = unanswered.pop_front() else { continue };
            let Some(handle) = handle_of(call).filter(|_| shows_a_known_session(&call.name)) else {
                continue;
            };
            if message.kind == MessageKind::Reply && !is_unknown_session(message, handle) {
                known.insert(handle.to_owned());
            }
        }
    }
    known.retain(|handle| !started.contains(handle));
    known
}

/// Whether only a session that runs is answered with success. Feedback is taken of any, and a
/// start makes one. Spec: cluster-manager/02 §3.
fn shows_a_known_session(method: &str) -> bool {
    matches!(
        method,
        "sessionHeartbeat"
            | "sessionHeartbeatV2"
            | "sessionUpdateInfo"
            | "sessionEnd"
            | "requestResource"
            | "releaseResource"
            | "getSessionInfo"
    )
}

/// The sessions in an answer to `getSessions`.
fn listed(message: &Message) -> impl Iterator<Item = &str> {
    let body = message.body.as_ref().ok().filter(|_| message.name == "getSessions");
    let sessions = match body.and_then(|body| body.field("success")) {
        Some(Value::List(sessions)) => sessions.as_slice(),
        _ => &[],
    };
    sessions.iter().filter_map(|session| text(session, "handle"))
}

/// Finds the nodes that the recorded cluster manager knew from a heartbeat before the recording. Their
/// slots are granted before their first heartbeat in it, and within the time in which a silent node
/// expires, which the original notices up to half an interval late. Spec: cluster-manager/05 §3.
pub(super) fn older_nodes(
    conversations: &[Conversation],
    node_expiry: Duration,
) -> BTreeSet<String> {
    let mut of_manager = conversations.iter().filter(|one| one.service == Offered::ClusterManager);
    // A manager that refuses connections first has no nodes yet.
    if of_manager.next().is_none_or(|first| !first.accepted) {
        return BTreeSet::new();
    }
    let mut heartbeats: BTreeMap<String, Duration> = BTreeMap::new();
    let mut granted: BTreeMap<String, Duration> = BTreeMap::new();
    let first = |all: &mut BTreeMap<String, Duration>, node: String, at: Duration| {
        let known = all.entry(node).or_insert(at);
        *known = at.min(*known);
    };
    for conversation in conversations {
        for part in conversation.parts.iter().filter(|part| part.from == Side::Client) {
            let Said::Messages { raw, .. } = &part.what else { continue };
            match conversation.service {
                Offered::ClusterManager => typed_calls::<ClusterManager>(raw)
                    .into_iter()
                    .filter_map(heartbeat_of)
                    .for_each(|node| first(&mut heartbeats, node, part.at)),
                Offered::SessionDriver => typed_calls::<SessionDriver>(raw)
                    .into_iter()
                    .flat_map(granted_on)
                    .for_each(|node| first(&mut granted, node, part.at)),
                Offered::ProxyJobTracker => {}
            }
        }
    }
    let begin = conversations.iter().map(|one| one.opened_at).min().unwrap_or_default();
    let latest = begin.saturating_add(node_expiry).saturating_add(node_expiry / 2);
    let is_older = |node: &String, at: Duration| {
        at <= latest && heartbeats.get(node).is_none_or(|heartbeat_at| *heartbeat_at > at)
    };
    granted.into_iter().filter(|(node, at)| is_older(node, *at)).map(|(node, _)| node).collect()
}

fn heartbeat_of(call: ClusterManagerCall) -> Option<String> {
    match call {
        ClusterManagerCall::NodeHeartbeat { node } => Some(node?.name),
        _ => None,
    }
}

fn granted_on(call: SessionDriverCall) -> Vec<String> {
    match call {
        SessionDriverCall::GrantResource { granted, .. } => {
            granted.into_iter().flatten().map(|grant| grant.node_name).collect()
        }
        _ => Vec::new(),
    }
}

/// The conversations without these sessions: without their calls, the answers to them, notices to
/// them, and their places in lists.
pub(super) fn without(
    conversations: &[Conversation],
    sessions: BTreeSet<String>,
) -> (Vec<Conversation>, Older) {
    let mut older = Older { sessions, ..Older::default() };
    let conversations = conversations.iter().map(|one| cleared(one, &mut older)).collect();
    (conversations, older)
}

fn cleared(conversation: &Conversation, older: &mut Older) -> Conversation {
    let mut cleared = conversation.clone();
    // Of each call that waits for its answer, whether it is one of theirs.
    let mut unanswered: VecDeque<bool> = VecDeque::new();
    for part in &mut cleared.parts {
        let Said::Messages { raw, messages } = &mut part.what else { continue };
        let before = messages.len();
        let mut changed = false;
        messages.retain_mut(|message| {
            if part.from == Side::Client {
                let is_theirs =
                    handle_of(message).is_some_and(|handle| older.sessions.contains(handle));
                if is_call(message) {
                    unanswered.push_back(is_theirs);
                }
                older.calls +=
                    usize::from(is_theirs && conversation.service == Offered::ClusterManager);
                return !is_theirs;
            }
            changed |= shorten(message, &older.sessions);
            unanswered.pop_front() != Some(true)
        });
        if messages.len() < before || changed {
            *raw = written(conversation.service, messages);
        }
    }
    let is_empty =
        |what: &Said| matches!(what, Said::Messages { messages, .. } if messages.is_empty());
    cleared.parts.retain(|part| !is_empty(&part.what));
    cleared
}

/// Takes sessions out of an answer to `getSessions`.
fn shorten(message: &mut Message, older: &BTreeSet<String>) -> bool {
    if message.name != "getSessions" {
        return false;
    }
    let Ok(Value::Struct(fields)) = &mut message.body else { return false };
    let success = fields.iter_mut().find(|(name, _)| *name == "success");
    let Some((_, Value::List(sessions))) = success else { return false };
    let before = sessions.len();
    sessions.retain(|session| text(session, "handle").is_none_or(|handle| !older.contains(handle)));
    sessions.len() < before
}

/// The bytes of messages. Messages that were read can be written, except those with unknown bodies.
fn written(service: Offered, messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        // One that cannot be written is not sent, and its answer is missed.
        let _ = message.write(service.schema(), service.framing(), &mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Part;
    use crate::samples::{self, message, word};
    use corona_wire::generated::{
        ClusterNodeInfo, ComputeSpecs, InetAddress, ResourceGrant, ResourceType,
    };
    use corona_wire::value::RawMessage;

    fn call(name: &str, handle: &str) -> (Side, Message) {
        (Side::Client, message(MessageKind::Call, name, vec![("handle", word(handle))]))
    }

    fn done(name: &str) -> (Side, Message) {
        (Side::Server, message(MessageKind::Reply, name, vec![]))
    }

    fn unknown(name: &str, handle: &str) -> (Side, Message) {
        let exception = Value::Struct(vec![("handle", word(handle))]);
        (Side::Server, message(MessageKind::Reply, name, vec![("e", exception)]))
    }

    fn list(handles: &[&str]) -> (Side, Message) {
        let session = |handle: &&str| Value::Struct(vec![("handle", word(handle))]);
        let sessions = Value::List(handles.iter().map(session).collect());
        (Side::Server, message(MessageKind::Reply, "getSessions", vec![("success", sessions)]))
    }

    fn conversation(said: Vec<(Side, Message)>) -> Conversation {
        let part = |(from, message): (Side, Message)| {
            let what = Said::Messages { raw: vec![], messages: vec![message] };
            Part { at: Duration::ZERO, from, what }
        };
        samples::conversation(Offered::ClusterManager, said.into_iter().map(part).collect())
    }

    fn left(conversations: &[Conversation]) -> (String, Older) {
        let sessions = older_sessions(conversations);
        let (conversations, older) = without(conversations, sessions);
        let said = conversations.iter().flat_map(|one| one.messages());
        let name = |(_, message): (&Part, &Message)| match listed(message).collect::<Vec<_>>() {
            handles if handles.is_empty() => message.name.clone(),
            handles => format!("{} {}", message.name, handles.join(" ")),
        };
        (said.map(name).collect::<Vec<_>>().join(", "), older)
    }

    #[test]
    fn sessions_without_a_start_are_taken_out_with_their_calls_and_entries() {
        let get_sessions = || (Side::Client, message(MessageKind::Call, "getSessions", vec![]));
        let said = conversation(vec![
            call("sessionHeartbeat", "old"),
            done("sessionHeartbeat"),
            call("sessionStart", "new"),
            done("sessionStart"),
            call("releaseResource", "new"),
            call("releaseResource", "old"),
            done("releaseResource"),
            done("releaseResource"),
            get_sessions(),
            list(&["old", "new", "idle"]),
        ]);
        let (left, older) = left(&[said]);
        assert_eq!(
            left,
            "sessionStart, sessionStart, releaseResource, releaseResource, getSessions, getSessions new"
        );
        let expected: BTreeSet<String> = ["old", "idle"].map(str::to_owned).into();
        assert_eq!(older, Older { sessions: expected, calls: 2, ..Older::default() });
    }

    fn said_at(service: Offered, at_s: u64, call: Option<RawMessage>) -> Conversation {
        let message = call.unwrap().decode();
        let raw = written(service, std::slice::from_ref(&message));
        let mut one =
            Conversation { service, ..conversation(vec![(Side::Client, message.clone())]) };
        let what = Said::Messages { raw, messages: vec![message] };
        one.parts = vec![Part { at: Duration::from_secs(at_s), from: Side::Client, what }];
        one
    }

    /// A heartbeat of a node, and a grant on it, at these times.
    fn heartbeat_and_grant(heartbeat_s: u64, grant_s: u64) -> [Conversation; 2] {
        let (name, address) = ("n1".to_owned(), InetAddress::new("h1".to_owned(), 50_000));
        let total = ComputeSpecs::new(1, None, None, None);
        let node =
            ClusterNodeInfo::new(name.clone(), address.clone(), total, None, None, None, None);
        let grant = ResourceGrant::new(1, name, address, 5, ResourceType::MAP, None);
        let heartbeat = ClusterManagerCall::NodeHeartbeat { node: Some(node) };
        let (handle, granted) = (Some("s".to_owned()), Some(vec![grant]));
        let grant = SessionDriverCall::GrantResource { handle, granted };
        [
            said_at(
                Offered::ClusterManager,
                heartbeat_s,
                RawMessage::of_call::<ClusterManager>(&heartbeat),
            ),
            said_at(Offered::SessionDriver, grant_s, RawMessage::of_call::<SessionDriver>(&grant)),
        ]
    }

    #[test]
    fn a_node_is_older_if_it_is_granted_before_its_heartbeat_and_may_be_alive() {
        let nodes = |heartbeat_s, grant_s| {
            older_nodes(&heartbeat_and_grant(heartbeat_s, grant_s), Duration::from_secs(10))
        };
        assert_eq!(nodes(7, 3), BTreeSet::from(["n1".to_owned()]));
        assert_eq!(nodes(3, 3), BTreeSet::new());
        assert_eq!(nodes(3, 7), BTreeSet::new());
        assert_eq!(nodes(40, 15), BTreeSet::from(["n1".to_owned()]));
        assert_eq!(nodes(40, 16), BTreeSet::new(), "a silent node has expired by then");
        let [heartbeat, grant] = heartbeat_and_grant(7, 3);
        let refused = Conversation { accepted: false, parts: vec![], ..heartbeat.clone() };
        let from_the_start = [refused, heartbeat, grant];
        assert_eq!(older_nodes(&from_the_start, Duration::from_secs(10)), BTreeSet::new());
    }

    #[test]
    fn a_session_that_was_not_known_is_no_older_one() {
        let fault = (Side::Server, message(MessageKind::Exception, "sessionEnd", vec![]));
        let said = conversation(vec![
            call("sessionHeartbeat", "bogus"),
            unknown("sessionHeartbeat", "bogus"),
            call("sessionEnd", "x"),
            fault,
            call("nodeFeedback", "gone"),
            done("nodeFeedback"),
            call("requestResource", "silent"),
        ]);
        assert_eq!(older_sessions(&[said]), BTreeSet::new());
    }
}
