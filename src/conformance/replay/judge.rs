//! Whether an answer of the manager under test is the recorded one, and if not, which row of the
//! compatibility table allows the difference.
//!
//! It knows replies and the model of the cluster, and has no connections.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cluster::ClusterModel;
use super::names::LiveNames;
use super::values::translate_message;
use crate::answers::{Verdict, by_handle, handle_of, is_unknown_session, same_body};
use crate::report::Rule;
use corona_wire::value::{Message, Value};

/// The circumstances of an answer that a judgement depends on.
pub(super) struct Circumstances<'a> {
    /// When the answer was recorded.
    pub(super) at: Duration,
    pub(super) names: &'a LiveNames,
    pub(super) cluster: &'a ClusterModel,
    /// The recorded expiry interval of sessions, if it is known.
    pub(super) session_expiry: Option<Duration>,
    /// The same of nodes.
    pub(super) node_expiry: Option<Duration>,
    /// Whether both sides have the same slots to grant. If not, the number that a session holds is
    /// not comparable.
    pub(super) same_slots: bool,
    /// The number of grants of a type to a session in the recording soon after this.
    pub(super) granted_soon: &'a dyn Fn(&str, i32) -> usize,
    /// How many grants of a type a session has here beyond the recorded ones, since the manager has
    /// served it before another session. Negative if it has fewer.
    pub(super) exchanged: &'a dyn Fn(&str, i32) -> i64,
}

/// Judges the answer to a recorded call.
pub(super) fn answer(
    call: Option<&Message>,
    recorded: &Message,
    live: &Message,
    circumstances: &Circumstances<'_>,
) -> Verdict {
    let expected = translate_message(recorded, circumstances.names);
    if (expected.kind, &expected.name, expected.seqid) == (live.kind, &live.name, live.seqid) {
        if same_body(&expected, live) {
            return Verdict::Equal;
        }
        if live.name == "getSessions"
            && let (Ok(expected), Ok(live)) = (&expected.body, &live.body)
        {
            return sessions(recorded, expected, live, circumstances);
        }
    }
    if expected.seqid == live.seqid && has_expired_already(call, &expected, live, circumstances) {
        return Verdict::Explained(Rule::PROMPT_EXPIRY);
    }
    Verdict::Different
}

/// The original has not found out yet that the session is overdue. The reverse would be wrong: a
/// manager that finds out at once does not know the session any more.
fn has_expired_already(
    call: Option<&Message>,
    expected: &Message,
    live: &Message,
    circumstances: &Circumstances<'_>,
) -> bool {
    let (Some(handle), Some(expiry)) = (call.and_then(handle_of), circumstances.session_expiry)
    else {
        return false;
    };
    let live_handle = circumstances.names.live_text(handle);
    let gone = |answer: &Message| is_unknown_session(answer, &live_handle);
    !gone(expected)
        && gone(live)
        && circumstances.cluster.session_is_overdue(handle, circumstances.at, expiry)
}

/// Lists of sessions that differ, session by session.
fn sessions(
    recorded: &Message,
    expected: &Value,
    live: &Value,
    circumstances: &Circumstances<'_>,
) -> Verdict {
    let (Some(expected), Some(live)) = (by_handle(expected), by_handle(live)) else {
        return Verdict::Different;
    };
    // Model and script go by recorded ids.
    let recorded_ids: BTreeMap<String, String> = recorded
        .body
        .as_ref()
        .ok()
        .and_then(by_handle)
        .unwrap_or_default()
        .into_keys()
        .map(|id| (circumstances.names.live_text(&id), id))
        .collect();
    let id_of = |live: &String| {
        let known = recorded_ids.get(live).cloned();
        known.unwrap_or_else(|| circumstances.names.recorded_session(live))
    };
    let mut rule = None;
    let handles =
        expected.keys().chain(live.keys().filter(|handle| !expected.contains_key(*handle)));
    for handle in handles {
        let verdict = match (expected.get(handle), live.get(handle)) {
            (Some(expected), Some(live)) if expected == live => continue,
            (Some(expected), Some(live)) => {
                one_session(&id_of(handle), expected, live, circumstances)
            }
            (None, _) => None,
            (Some(_), None) => {
                let overdue = circumstances.session_expiry.is_some_and(|expiry| {
                    let at = circumstances.at;
                    circumstances.cluster.session_is_overdue(&id_of(handle), at, expiry)
                });
                overdue.then_some(Verdict::Explained(Rule::PROMPT_EXPIRY))
            }
        };
        match verdict {
            Some(Verdict::Equal) => {}
            Some(Verdict::Explained(found)) => rule = Some(found),
            Some(Verdict::Different) | None => return Verdict::Different,
        }
    }
    rule.map_or(Verdict::Equal, Verdict::Explained)
}

/// One session on both sides: only the number of its running resources may differ.
fn one_session(
    handle: &str,
    expected: &Value,
    live: &Value,
    circumstances: &Circumstances<'_>,
) -> Option<Verdict> {
    let (Value::Struct(expected), Value::Struct(live)) = (expected, live) else { return None };
    if expected.len() != live.len() {
        return None;
    }
    let mut verdict = Verdict::Equal;
    for ((name, expected), (live_name, live)) in expected.iter().zip(live) {
        if name != live_name {
            return None;
        }
        if expected == live {
            continue;
        }
        if *name != "runningResources" {
            return None;
        }
        if !circumstances.same_slots {
            continue;
        }
        verdict = Verdict::Explained(running_resources(handle, expected, live, circumstances)?);
    }
    Some(verdict)
}

fn running_resources(
    handle: &str,
    expected: &Value,
    live: &Value,
    circumstances: &Circumstances<'_>,
) -> Option<Rule> {
    let (Value::Map(expected), Value::Map(live)) = (expected, live) else { return None };
    if expected.len() != live.len() {
        return None;
    }
    let mut rule = None;
    for ((kind, expected), (live_kind, live)) in expected.iter().zip(live) {
        let (Value::Enum(kind, _), Value::Enum(live_kind, _)) = (kind, live_kind) else {
            return None;
        };
        let (Value::I32(expected), Value::I32(live)) = (expected, live) else { return None };
        if kind != live_kind {
            return None;
        }
        let more = usize::try_from(live.checked_sub(*expected)?);
        let fewer = usize::try_from(expected.checked_sub(*live)?);
        match (more, fewer) {
            (Ok(0), _) => {}
            (Ok(more), _) if more <= (circumstances.granted_soon)(handle, *kind) => {
                rule = Some(Rule::PROMPT_GRANTS);
            }
            (_, Ok(fewer)) if fewer <= lost_with_nodes(handle, *kind, circumstances) => {
                rule = Some(Rule::PROMPT_EXPIRY);
            }
            _ => {
                let all = (circumstances.exchanged)(handle, *kind);
                let here = i64::from(*live) - i64::from(*expected);
                let is_part = here.signum() == all.signum() && here.abs() <= all.abs();
                rule = Some(is_part.then_some(Rule::FREE_ORDER)?);
            }
        }
    }
    rule
}

fn lost_with_nodes(handle: &str, kind: i32, circumstances: &Circumstances<'_>) -> usize {
    circumstances.node_expiry.map_or(0, |expiry| {
        circumstances.cluster.held_on_overdue_nodes(handle, kind, circumstances.at, expiry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{message, word};
    use corona_wire::calls::ClusterManagerCall;
    use corona_wire::generated::{InetAddress, SessionInfo};
    use corona_wire::value::MessageKind;

    fn listed(sessions: &[(&str, &str, i32)]) -> Message {
        let session = |(handle, name, maps): &(&str, &str, i32)| {
            let running = vec![(Value::Enum(0, Some("MAP")), Value::I32(*maps))];
            Value::Struct(vec![
                ("handle", word(handle)),
                ("name", word(name)),
                ("runningResources", Value::Map(running)),
            ])
        };
        let list = Value::List(sessions.iter().map(session).collect());
        message(MessageKind::Reply, "getSessions", vec![("success", list)])
    }

    fn heartbeat_answer(gone: Option<&str>) -> Message {
        let fields = gone.map(|handle| ("e", Value::Struct(vec![("handle", word(handle))])));
        message(MessageKind::Reply, "sessionHeartbeat", fields.into_iter().collect())
    }

    /// Session `a` has been silent for 2 s, which is its expiry interval; two maps are granted
    /// soon.
    fn judge(call: Option<&Message>, recorded: &Message, live: &Message) -> Verdict {
        let mut cluster = ClusterModel::default();
        let address = InetAddress::new("h".to_owned(), 1);
        let info = SessionInfo::new(
            address,
            "n".to_owned(),
            "u".to_owned(),
            None,
            None,
            None,
            None,
            None,
            None,
        );
        let start =
            ClusterManagerCall::SessionStart { handle: Some("a".to_owned()), info: Some(info) };
        cluster.called(Duration::ZERO, &start);
        let circumstances = Circumstances {
            at: Duration::from_secs(2),
            names: &LiveNames::default(),
            cluster: &cluster,
            session_expiry: Some(Duration::from_secs(2)),
            node_expiry: None,
            same_slots: true,
            granted_soon: &|handle, kind| if (handle, kind) == ("b", 0) { 2 } else { 0 },
            exchanged: &|handle, kind| if (handle, kind) == ("c", 0) { -2 } else { 0 },
        };
        answer(call, recorded, live, &circumstances)
    }

    #[test]
    fn lists_of_sessions_are_sets() {
        let (a, b) = (("a", "n", 1), ("b", "m", 2));
        assert_eq!(judge(None, &listed(&[a, b]), &listed(&[b, a])), Verdict::Equal);
        let renamed = ("b", "x", 2);
        assert_eq!(judge(None, &listed(&[a, b]), &listed(&[a, renamed])), Verdict::Different);
        assert_eq!(judge(None, &listed(&[a, b]), &listed(&[a, b, b])), Verdict::Different);
    }

    #[test]
    fn overdue_sessions_may_be_gone_already() {
        let (a, b) = (("a", "n", 1), ("b", "m", 2));
        let explained = Verdict::Explained(Rule::PROMPT_EXPIRY);
        assert_eq!(judge(None, &listed(&[a, b]), &listed(&[b])), explained);
        assert_eq!(judge(None, &listed(&[b]), &listed(&[a, b])), Verdict::Different);
        assert_eq!(judge(None, &listed(&[a, b]), &listed(&[a])), Verdict::Different);

        let call = message(MessageKind::Call, "sessionHeartbeat", vec![("handle", word("a"))]);
        let (known, gone) = (heartbeat_answer(None), heartbeat_answer(Some("a")));
        assert_eq!(judge(Some(&call), &known, &gone), explained);
        assert_eq!(judge(Some(&call), &gone, &known), Verdict::Different);
        assert_eq!(judge(None, &known, &gone), Verdict::Different);
        assert_eq!(judge(Some(&call), &known, &heartbeat_answer(Some("b"))), Verdict::Different);
    }

    #[test]
    fn grants_may_come_at_once_but_not_from_nowhere() {
        let maps = |count| listed(&[("b", "m", count)]);
        let explained = Verdict::Explained(Rule::PROMPT_GRANTS);
        assert_eq!(judge(None, &maps(1), &maps(3)), explained);
        assert_eq!(judge(None, &maps(1), &maps(4)), Verdict::Different);
        assert_eq!(judge(None, &maps(1), &maps(0)), Verdict::Different);
        let of_other = |count| listed(&[("c", "m", count)]);
        let free = Verdict::Explained(Rule::FREE_ORDER);
        assert_eq!(judge(None, &of_other(4), &of_other(2)), free);
        assert_eq!(judge(None, &of_other(4), &of_other(1)), Verdict::Different);
        assert_eq!(judge(None, &of_other(4), &of_other(5)), Verdict::Different);
    }

    #[test]
    fn a_flipped_field_is_different() {
        let reply = |flag| {
            let flag = Value::Struct(vec![("restartFlag", Value::Bool(flag))]);
            message(MessageKind::Reply, "nodeHeartbeat", vec![("success", flag)])
        };
        assert_eq!(judge(None, &reply(false), &reply(false)), Verdict::Equal);
        assert_eq!(judge(None, &reply(false), &reply(true)), Verdict::Different);
        let mut other = reply(false);
        other.seqid += 1;
        assert_eq!(judge(None, &reply(false), &other), Verdict::Different);
    }
}
