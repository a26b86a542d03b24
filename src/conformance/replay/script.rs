//! What happens in a replay, in the order of the recording.
//!
//! Knows conversations and nothing of the run under test. The recorded order is the causality that
//! a replay keeps: a peer does nothing before everything that it may have known has happened.

use std::time::Duration;

use crate::conformance::capture::{ConnectionId, Side};
use crate::conformance::conversation::{Conversation, Offered, Said};
use crate::wire::calls::{ProxyJobTracker, ProxyJobTrackerCall, SessionDriver, SessionDriverCall};
use crate::wire::value::{Message, MessageKind};

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// When it happened, since the first packet of the capture.
    pub(super) at: Duration,
    /// On which connection.
    pub(super) connection: ConnectionId,
    /// What it is.
    pub(super) what: Happening,
}

/// What a step is about.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A client connects to the cluster manager.
    Open,
    /// A client sends this to the cluster manager.
    Send {
        /// As it was sent.
        raw: Vec<u8>,
        /// The calls in it; none when it is no message.
        calls: Vec<Message>,
    },
    /// A client ends its connection; `broken` when it did so with a reset.
    HangUp {
        /// Whether it was broken off.
        broken: bool,
    },
    /// The cluster manager answers.
    Answer(Box<Message>),
    /// The cluster manager ends a connection that its client had not ended.
    HungUp,
    /// The cluster manager tells a session something.
    Notice(Box<SessionDriverCall>),
    /// The cluster manager tells the proxy job tracker whether it is in safe mode.
    SafeMode(bool),
    /// The proxy job tracker listens from here on, or no longer.
    ProxyListens(bool),
    /// The recorded cluster manager was started again; what follows is not played.
    Restart,
}

/// The steps of a recording, in order.
pub(super) fn script(conversations: &[Conversation]) -> Vec<Step> {
    let mut steps = Vec::new();
    for conversation in conversations {
        let mut step = |at, what| {
            steps.push(Step { at, connection: conversation.connection, what });
        };
        match conversation.service {
            Offered::ClusterManager => with_cluster_manager(conversation, &mut step),
            Offered::SessionDriver => with_session_driver(conversation, &mut step),
            Offered::ProxyJobTracker => with_proxy(conversation, &mut step),
        }
    }
    // Stable: what one conversation holds at one time stays in its order.
    steps.sort_by_key(|step| step.at);
    open_doors_early(&mut steps);
    if let Some(restart) = restarted(conversations) {
        end_at_restart(&mut steps, restart);
    }
    steps
}

/// Whether the proxy job tracker listens shows only when it is called. Whoever made the manager call
/// it had better find it so: the change is moved before the last thing that a client sent.
fn open_doors_early(steps: &mut [Step]) {
    for place in 0..steps.len() {
        let (before, rest) = steps.split_at_mut(place);
        let Some(door) = rest.first_mut().filter(|step| is_door(step)) else { continue };
        let is_send = |step: &Step| matches!(step.what, Happening::Send { .. });
        let Some(cause) = before.iter().rposition(is_send) else { continue };
        let Some(sent_at) = before.get(cause).map(|sent| sent.at) else { continue };
        if before
            .iter()
            .skip(cause.saturating_sub(1))
            .any(|step| is_door(step) && step.at >= sent_at)
        {
            // The earlier change belongs to that call, this one to nothing that is recorded.
            continue;
        }
        door.at = sent_at;
        if let Some(span) = steps.get_mut(cause..=place) {
            span.rotate_right(1);
        }
    }
}

fn is_door(step: &Step) -> bool {
    matches!(step.what, Happening::ProxyListens(_))
}

/// When the cluster manager refused a connection after it had taken others, which it does only
/// when it is not there.
fn restarted(conversations: &[Conversation]) -> Option<(Duration, ConnectionId)> {
    let of_manager = conversations.iter().filter(|one| one.service == Offered::ClusterManager);
    let mut of_manager = of_manager.skip_while(|one| !one.accepted);
    of_manager.find(|one| !one.accepted).map(|one| (one.opened_at, one.connection))
}

/// What the end of the manager did to its connections is left out, too.
fn end_at_restart(steps: &mut Vec<Step>, (at, connection): (Duration, ConnectionId)) {
    steps.retain(|step| step.at < at);
    while steps.last().is_some_and(|step| {
        matches!(step.what, Happening::HungUp | Happening::HangUp { .. }) || is_door(step)
    }) {
        steps.pop();
    }
    steps.push(Step { at, connection, what: Happening::Restart });
}

type Add<'a> = &'a mut dyn FnMut(Duration, Happening);

fn with_cluster_manager(conversation: &Conversation, add: Add<'_>) {
    if !conversation.accepted {
        // Nobody listened yet, or no longer.
        return;
    }
    let first = conversation.parts.first().map(|part| part.at);
    let opened_at = if conversation.whole { Some(conversation.opened_at) } else { first };
    let Some(opened_at) = opened_at else { return };
    add(opened_at, Happening::Open);
    let mut client_ended = false;
    for part in &conversation.parts {
        match (&part.what, part.from) {
            (Said::Messages { raw, messages }, Side::Client) => {
                add(part.at, Happening::Send { raw: raw.clone(), calls: messages.clone() });
            }
            (Said::Bytes(raw), Side::Client) => {
                add(part.at, Happening::Send { raw: raw.clone(), calls: Vec::new() });
            }
            (Said::Messages { messages, .. }, Side::Server) => {
                for message in messages {
                    add(part.at, Happening::Answer(Box::new(message.clone())));
                }
            }
            (Said::End | Said::Reset, Side::Client) => {
                if !client_ended {
                    add(part.at, Happening::HangUp { broken: part.what == Said::Reset });
                }
                client_ended = true;
            }
            (Said::End | Said::Reset, Side::Server) => {
                if !client_ended {
                    add(part.at, Happening::HungUp);
                    return;
                }
            }
            // What the capture lacks can be neither sent nor compared.
            (Said::Bytes(_) | Said::Missing(_), _) => {}
        }
    }
}

fn with_session_driver(conversation: &Conversation, add: Add<'_>) {
    for (part, message) in conversation.messages() {
        if part.from == Side::Client
            && let Ok(call) = message.call::<SessionDriver>()
        {
            add(part.at, Happening::Notice(Box::new(call)));
        }
    }
}

/// Of what is said to the proxy job tracker only the flag comes from the cluster manager.
fn with_proxy(conversation: &Conversation, add: Add<'_>) {
    add(conversation.opened_at, Happening::ProxyListens(conversation.accepted));
    for (part, message) in conversation.messages() {
        if part.from == Side::Client
            && let Ok(ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag }) =
                message.call::<ProxyJobTracker>()
        {
            add(part.at, Happening::SafeMode(flag));
        }
    }
}

/// Whether a message is a call that a cluster manager answers.
pub(super) fn is_call(message: &Message) -> bool {
    matches!(message.kind, MessageKind::Call | MessageKind::Oneway | MessageKind::Other(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ms: u64, what: Happening) -> Step {
        Step { at: Duration::from_millis(ms), connection: ConnectionId(0), what }
    }

    fn send() -> Happening {
        Happening::Send { raw: vec![], calls: vec![] }
    }

    fn order(steps: &[Step]) -> String {
        let one = |step: &Step| match step.what {
            Happening::Send { .. } => "send",
            Happening::ProxyListens(true) => "open",
            Happening::ProxyListens(false) => "close",
            _ => "other",
        };
        steps.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_door_is_open_before_the_call_that_needs_it() {
        use Happening::{HungUp, ProxyListens};
        for (what, expected) in [
            (vec![send(), HungUp, ProxyListens(true)], "open send other"),
            (vec![ProxyListens(false), send()], "close send"),
            (
                vec![send(), ProxyListens(false), HungUp, send(), ProxyListens(true)],
                "close send other open send",
            ),
            (vec![send(), ProxyListens(false), ProxyListens(true)], "close send open"),
        ] {
            let mut steps: Vec<Step> =
                what.into_iter().zip(0..).map(|(what, ms)| step(ms, what)).collect();
            open_doors_early(&mut steps);
            assert_eq!(order(&steps), expected);
            assert!(steps.is_sorted_by_key(|step| step.at), "{expected}");
        }
    }
}
