//! Sessions that are older than their recording: found, and taken out of it.
//!
//! A recording of a running cluster starts in the middle of sessions. The cluster manager under
//! test does not know them, so their calls cannot be played, and their effects on others are not
//! expected. It knows conversations and nothing of a run.

use std::collections::{BTreeSet, VecDeque};

use super::script::is_call;
use crate::answers::{handle_of, is_unknown_session, text};
use crate::capture::Side;
use crate::conversation::{Conversation, Offered, Said};
use corona_wire::value::{Message, MessageKind, Value};

/// The sessions that were taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Older {
    /// The sessions, by their recorded ids.
    pub(super) sessions: BTreeSet<String>,
    pub(super) calls: usize,
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

/// The conversations without these sessions: without their calls, the answers to them, notices to
/// them, and their places in lists.
pub(super) fn without(
    conversations: &[Conversation],
    sessions: BTreeSet<String>,
) -> (Vec<Conversation>, Older) {
    let mut older = Older { sessions, calls: 0 };
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
    use std::time::Duration;

    use super::*;
    use crate::capture::ConnectionId;
    use crate::conversation::Part;

    fn string(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    fn message(kind: MessageKind, name: &str, fields: Vec<(&'static str, Value)>) -> Message {
        Message { kind, name: name.to_owned(), seqid: 1, body: Ok(Value::Struct(fields)) }
    }

    fn call(name: &str, handle: &str) -> (Side, Message) {
        (Side::Client, message(MessageKind::Call, name, vec![("handle", string(handle))]))
    }

    fn done(name: &str) -> (Side, Message) {
        (Side::Server, message(MessageKind::Reply, name, vec![]))
    }

    fn unknown(name: &str, handle: &str) -> (Side, Message) {
        let exception = Value::Struct(vec![("handle", string(handle))]);
        (Side::Server, message(MessageKind::Reply, name, vec![("e", exception)]))
    }

    fn list(handles: &[&str]) -> (Side, Message) {
        let session = |handle: &&str| Value::Struct(vec![("handle", string(handle))]);
        let sessions = Value::List(handles.iter().map(session).collect());
        (Side::Server, message(MessageKind::Reply, "getSessions", vec![("success", sessions)]))
    }

    fn conversation(said: Vec<(Side, Message)>) -> Conversation {
        let part = |(from, message): (Side, Message)| {
            let what = Said::Messages { raw: vec![], messages: vec![message] };
            Part { at: Duration::ZERO, from, what }
        };
        Conversation {
            connection: ConnectionId(1),
            client: "127.0.0.1:1".parse().unwrap(),
            server: "127.0.0.1:2".parse().unwrap(),
            service: Offered::ClusterManager,
            opened_at: Duration::ZERO,
            whole: true,
            accepted: true,
            parts: said.into_iter().map(part).collect(),
        }
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
        assert_eq!(older, Older { sessions: expected, calls: 2 });
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
