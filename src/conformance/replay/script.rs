//! The steps of a replay, in the order of the recording.
//!
//! This file knows conversations and nothing of the run under test. The recorded order is the causality that
//! a replay keeps: a peer does nothing before everything that it may have known has happened.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::capture::{ConnectionId, Side};
use crate::conversation::{Conversation, Offered, Said, typed_calls};
use corona_wire::Service;
use corona_wire::calls::{ProxyJobTracker, ProxyJobTrackerCall, SessionDriver, SessionDriverCall};
use corona_wire::value::{Message, MessageKind};

/// One recorded event, to be played or to be compared.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Its time since the first packet of the capture.
    pub(super) at: Duration,
    pub(super) connection: ConnectionId,
    /// The event.
    pub(super) what: StepKind,
}

/// The event of a step.
#[derive(Clone, Debug)]
pub(super) enum StepKind {
    /// A client connects to the cluster manager.
    Open,
    /// A client sends this to the cluster manager.
    Send {
        /// The bytes that were sent.
        raw: Vec<u8>,
        /// The calls in them; empty if they are no message.
        calls: Vec<Message>,
    },
    /// A client ends its connection; `broken` when it did so with a reset.
    HangUp {
        /// Whether it ended with a reset.
        broken: bool,
    },
    /// The cluster manager answers.
    Answer(Box<Message>),
    /// The cluster manager ends a connection that its client had not ended.
    HungUp,
    /// The cluster manager notifies a session.
    Notice(Box<SessionDriverCall>),
    /// The cluster manager sends the safe mode flag to the proxy job tracker.
    SafeMode(bool),
    /// The proxy job tracker listens from here on, or no longer.
    ProxyListens(bool),
    /// The cluster manager is restarted, and continues from its state file.
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
    // The sort is stable: parts of one conversation with the same time keep their order.
    steps.sort_by_key(|step| step.at);
    open_doors_early(&mut steps);
    for absence in absences(conversations) {
        restart_after(&mut steps, &absence);
    }
    steps
}

/// A recording shows that the proxy job tracker listens only when the proxy is called. The client whose call
/// causes this needs the port in that state, so the change is moved before the last send of a client.
fn open_doors_early(steps: &mut [Step]) {
    for place in 0..steps.len() {
        let (before, rest) = steps.split_at_mut(place);
        let Some(door) = rest.first_mut().filter(|step| is_door(step)) else { continue };
        let is_send = |step: &Step| matches!(step.what, StepKind::Send { .. });
        let Some(cause) = before.iter().rposition(is_send) else { continue };
        let Some(sent_at) = before.get(cause).map(|sent| sent.at) else { continue };
        if before
            .iter()
            .skip(cause.saturating_sub(1))
            .any(|step| is_door(step) && step.at >= sent_at)
        {
            // The earlier change belongs to that call; nothing that is recorded caused this change.
            continue;
        }
        door.at = sent_at;
        if let Some(span) = steps.get_mut(cause..=place) {
            span.rotate_right(1);
        }
    }
}

fn is_door(step: &Step) -> bool {
    matches!(step.what, StepKind::ProxyListens(_))
}

/// A time in which the cluster manager's port was closed.
struct Absence {
    from: Duration,
    /// None if it never returned.
    until: Option<Duration>,
    /// The first connection that was refused.
    noticed_by: ConnectionId,
}

/// A cluster manager that has taken connections refuses one only when it is not there.
fn absences(conversations: &[Conversation]) -> Vec<Absence> {
    let mut absences: Vec<Absence> = Vec::new();
    let of_manager = conversations.iter().filter(|one| one.service == Offered::ClusterManager);
    for one in of_manager.skip_while(|one| !one.accepted) {
        let last = absences.last_mut().filter(|absence| absence.until.is_none());
        match (last, one.accepted) {
            (Some(absence), true) => absence.until = Some(one.opened_at),
            (None, false) => absences.push(Absence {
                from: one.opened_at,
                until: None,
                noticed_by: one.connection,
            }),
            (Some(_), false) | (None, true) => {}
        }
    }
    absences
}

/// Puts the restart where the absence was noticed. The effects of the manager's end on its
/// connections are left out. Its calls to the proxy job tracker and to sessions before it accepts
/// connections again are kept.
fn restart_after(steps: &mut Vec<Step>, absence: &Absence) {
    let noticed = steps.partition_point(|step| step.at < absence.from);
    let mut later = steps.split_off(noticed);
    let is_end = |step: &Step| matches!(step.what, StepKind::HungUp | StepKind::HangUp { .. });
    let said = steps.iter().rposition(|step| !is_end(step) && !is_door(step));
    let mut place = 0..;
    steps.retain(|step| place.next() <= said || !is_end(step));

    let before: BTreeSet<ConnectionId> = steps.iter().map(|step| step.connection).collect();
    let from_outside = |step: &Step| {
        use StepKind::{Answer, HangUp, HungUp, Open, Send};
        matches!(step.what, Open | Send { .. } | HangUp { .. } | Answer(_) | HungUp)
    };
    let is_back = |step: &Step| absence.until.is_some_and(|until| step.at >= until);
    later.retain(|step| {
        !from_outside(step) || (is_back(step) && !before.contains(&step.connection))
    });
    let (at, connection) = (absence.from, absence.noticed_by);
    steps.push(Step { at, connection, what: StepKind::Restart });
    steps.append(&mut later);
}

type Add<'a> = &'a mut dyn FnMut(Duration, StepKind);

fn with_cluster_manager(conversation: &Conversation, add: Add<'_>) {
    if !conversation.accepted {
        // The manager did not listen yet, or no longer.
        return;
    }
    let first = conversation.parts.first().map(|part| part.at);
    let opened_at = if conversation.whole { Some(conversation.opened_at) } else { first };
    let Some(opened_at) = opened_at else { return };
    add(opened_at, StepKind::Open);
    let mut client_ended = false;
    let lacks_calls = !conversation.whole
        || conversation
            .parts
            .iter()
            .any(|part| part.from == Side::Client && matches!(part.what, Said::Missing(_)));
    for part in &conversation.parts {
        match (&part.what, part.from) {
            (Said::Messages { raw, messages }, Side::Client) => {
                add(part.at, StepKind::Send { raw: raw.clone(), calls: messages.clone() });
            }
            // What is left of a message would make a server wait for the rest of it.
            (Said::Bytes(_), Side::Client) if lacks_calls => {}
            (Said::Bytes(raw), Side::Client) => {
                add(part.at, StepKind::Send { raw: raw.clone(), calls: Vec::new() });
            }
            (Said::Messages { messages, .. }, Side::Server) => {
                for message in messages {
                    add(part.at, StepKind::Answer(Box::new(message.clone())));
                }
            }
            (Said::End | Said::Reset, Side::Client) => {
                if !client_ended {
                    add(part.at, StepKind::HangUp { broken: part.what == Said::Reset });
                }
                client_ended = true;
            }
            (Said::End | Said::Reset, Side::Server) => {
                if !client_ended {
                    add(part.at, StepKind::HungUp);
                    return;
                }
            }
            // Bytes that the capture lacks can be neither sent nor compared.
            (Said::Bytes(_) | Said::Missing(_), _) => {}
        }
    }
}

fn with_session_driver(conversation: &Conversation, add: Add<'_>) {
    for (at, call) in calls_in::<SessionDriver>(conversation) {
        add(at, StepKind::Notice(Box::new(call)));
    }
}

/// Of the calls to the proxy job tracker only the flag comes from the cluster manager.
fn with_proxy(conversation: &Conversation, add: Add<'_>) {
    add(conversation.opened_at, StepKind::ProxyListens(conversation.accepted));
    for (at, call) in calls_in::<ProxyJobTracker>(conversation) {
        if let ProxyJobTrackerCall::SetClusterManagerSafeModeFlag { flag } = call {
            add(at, StepKind::SafeMode(flag));
        }
    }
}

/// The typed calls of a conversation's client, with their times.
fn calls_in<S: Service>(
    conversation: &Conversation,
) -> impl Iterator<Item = (Duration, S::Call)> + use<'_, S> {
    let of_client = conversation.parts.iter().filter(|part| part.from == Side::Client);
    of_client.flat_map(|part| {
        let calls = match &part.what {
            Said::Messages { raw, .. } => typed_calls::<S>(raw),
            _ => Vec::new(),
        };
        calls.into_iter().map(|call| (part.at, call))
    })
}

/// Whether a message is a call that a cluster manager answers.
pub(super) fn is_call(message: &Message) -> bool {
    matches!(message.kind, MessageKind::Call | MessageKind::Oneway | MessageKind::Other(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ms: u64, what: StepKind) -> Step {
        Step { at: Duration::from_millis(ms), connection: ConnectionId(0), what }
    }

    fn send() -> StepKind {
        StepKind::Send { raw: vec![], calls: vec![] }
    }

    fn order(steps: &[Step]) -> String {
        let one = |step: &Step| match step.what {
            StepKind::Send { .. } => "send",
            StepKind::ProxyListens(true) => "open",
            StepKind::ProxyListens(false) => "close",
            _ => "other",
        };
        steps.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_door_is_open_before_the_call_that_needs_it() {
        use StepKind::{HungUp, ProxyListens};
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

    #[test]
    fn a_restart_takes_the_place_of_what_the_end_of_the_manager_did() {
        use StepKind::{HangUp, HungUp, Open, ProxyListens, SafeMode};
        let on =
            |connection, ms, what| Step { connection: ConnectionId(connection), ..step(ms, what) };
        let recorded = || {
            vec![
                on(1, 1, Open),
                on(2, 2, Open),
                on(1, 3, send()),
                on(1, 5, HungUp),
                on(9, 6, ProxyListens(true)),
                // The manager is away from 10 to 20.
                on(1, 11, HangUp { broken: false }),
                on(2, 12, HungUp),
                on(9, 13, SafeMode(false)),
                on(4, 20, Open),
                on(4, 21, send()),
                on(2, 22, HangUp { broken: false }),
                on(4, 23, HungUp),
            ]
        };
        let from = Duration::from_millis(10);
        let back = Some(Duration::from_millis(20));
        for (until, expected) in [
            (back, "1 open, 2 open, 1 send, 9 door, 3 restart, 9 flag, 4 open, 4 send, 4 end"),
            (None, "1 open, 2 open, 1 send, 9 door, 3 restart, 9 flag"),
        ] {
            let mut steps = recorded();
            restart_after(&mut steps, &Absence { from, until, noticed_by: ConnectionId(3) });
            let told = steps.iter().map(|step| {
                let what = match step.what {
                    Open => "open",
                    StepKind::Send { .. } => "send",
                    HungUp | HangUp { .. } => "end",
                    ProxyListens(_) => "door",
                    SafeMode(_) => "flag",
                    StepKind::Restart => "restart",
                    _ => "other",
                };
                format!("{} {what}", step.connection.0)
            });
            assert_eq!(told.collect::<Vec<_>>().join(", "), expected);
        }
    }
}
