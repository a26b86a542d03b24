//! Translates a call to an input of the engine, and the engine's reply to the answer. Pure: the
//! caller looks up racks, and nothing is decided here.

use std::sync::Arc;

use super::{fault, refusal};
use corona_engine::{Input, Refusal, Reply};
use corona_model::types::{ResourceRequest, SessionStatus};
use corona_wire::Exception;
use corona_wire::calls::{
    ClusterManager, ClusterManagerCall as Call, ClusterManagerReply as Answered,
};
use corona_wire::generated as wire;
use corona_wire::server::Answer;

/// A host and its rack.
pub(crate) type HostRack = (Arc<str>, Arc<str>);

/// A call that is one input of the engine.
#[derive(Debug)]
pub(crate) struct Question {
    /// The input. Racks are missing until [`Question::place`].
    pub(crate) input: Input,
    /// How the engine's reply is answered.
    pub(crate) form: Form,
}

/// How a reply of the engine is put into an answer.
#[derive(Debug)]
pub(crate) struct Form {
    /// The method as the original names it in its log. Spec: cluster-manager/02 §2.
    pub(crate) method: &'static str,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// The same for every reply. Made when it is needed: an answer is large, and each heartbeat would
    /// carry the room for one.
    Fixed(fn() -> Answered),
    SessionId,
    /// The session's id goes back to it.
    Started(String),
    NodeHeard,
}

impl Question {
    fn new(method: &'static str, input: Input, shape: Shape) -> Question {
        Question { input, form: Form { method, shape } }
    }

    fn done(method: &'static str, input: Input, answered: fn() -> Answered) -> Question {
        Question::new(method, input, Shape::Fixed(answered))
    }

    /// The requests of `requestResource`, whose preferred hosts have racks.
    pub(crate) fn requests(&self) -> &[ResourceRequest] {
        match &self.input {
            Input::RequestResources { requests, .. } => requests,
            _ => &[],
        }
    }

    /// Adds the racks of hosts that are not in the default rack, sorted by host.
    pub(crate) fn place(&mut self, found: Vec<HostRack>) {
        match &mut self.input {
            Input::RequestResources { racks, .. } => *racks = found,
            Input::HeartbeatNode { rack, .. } => *rack = found.into_iter().next().map(|(_, it)| it),
            _ => {}
        }
    }
}

/// Why a call is no input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoInput {
    /// An argument of this method is missing, or it is answered without the engine.
    Incomplete(&'static str),
    /// The session of this id requests a type that does not exist.
    BadResourceType(String),
    /// `sessionHeartbeatV2` without an argument. A fault would make the client give up the method.
    Unanswerable,
}

impl NoInput {
    /// The answer to the call.
    pub(crate) fn answer<R>(self) -> Answer<R> {
        match self {
            NoInput::Incomplete(method) => fault(format!("an argument of {method} is missing")),
            NoInput::BadResourceType(handle) => {
                fault(format!("Bad resource type from session: {handle}"))
            }
            NoInput::Unanswerable => Answer::Close,
        }
    }
}

/// The input that a call is, without racks.
///
/// # Errors
/// The call is no input of the engine.
pub(crate) fn input(call: Call) -> Result<Question, NoInput> {
    Ok(match call {
        Call::GetNextSessionId => {
            Question::new("getNextSessionId", Input::NextSessionId, Shape::SessionId)
        }
        Call::SessionStart { handle: Some(handle), info: Some(info) } => {
            let info = super::session_info(info);
            let input = Input::StartSession { handle: handle.as_str().into(), info };
            Question::new("sessionStart", input, Shape::Started(handle))
        }
        Call::SessionUpdateInfo { handle: Some(handle), info: Some(info) } => {
            let info = super::session_info(info);
            let input = Input::UpdateSession { handle: handle.into(), info };
            Question::done("sessionUpdateInfo", input, || Answered::SessionUpdateInfo)
        }
        Call::SessionEnd { handle: Some(handle), status } => {
            // Without a status that we know the session ends all the same.
            let status = status.and_then(super::session_status);
            let status = status.unwrap_or(SessionStatus::KilledAborted);
            let input = Input::EndSession { handle: handle.into(), status };
            Question::done("sessionEnd", input, || Answered::SessionEnd)
        }
        Call::SessionHeartbeat { handle: Some(handle) } => {
            let input = Input::HeartbeatSession { handle: handle.into(), view: None };
            Question::done("sessionHeartbeat", input, || Answered::SessionHeartbeat)
        }
        Call::SessionHeartbeatV2 { handle: Some(handle), args: Some(args) } => {
            let view = Some(super::session_view(args));
            let input = Input::HeartbeatSession { handle: handle.into(), view };
            Question::done("sessionHeartbeatV2", input, || Answered::SessionHeartbeatV2)
        }
        Call::SessionHeartbeatV2 { .. } => return Err(NoInput::Unanswerable),
        Call::RequestResource { handle: Some(handle), requests: Some(requests) } => {
            let known: Option<Vec<_>> = requests.into_iter().map(super::request).collect();
            let Some(requests) = known else { return Err(NoInput::BadResourceType(handle)) };
            let racks = Vec::new();
            let input = Input::RequestResources { handle: handle.into(), requests, racks };
            Question::done("requestResource", input, || Answered::RequestResource)
        }
        Call::ReleaseResource { handle: Some(handle), ids: Some(ids) } => {
            let input = Input::ReleaseResources { handle: handle.into(), ids };
            Question::done("releaseResource", input, || Answered::ReleaseResource)
        }
        Call::NodeHeartbeat { node: Some(node) } if leaves(&node) => {
            let input = nodes_ended(node.address.host, node.ended.unwrap_or_default());
            let answered = || {
                Answered::NodeHeartbeat(wire::NodeHeartbeatResponse {
                    restart_flag: false,
                    restart_in_place: None,
                })
            };
            Question::done("nodeHeartbeat", input, answered)
        }
        Call::NodeHeartbeat { node: Some(node) } => {
            let input = Input::HeartbeatNode { report: super::node_report(node), rack: None };
            Question::new("nodeHeartbeat", input, Shape::NodeHeard)
        }
        Call::NodeFeedback { handle, types: Some(types), reports: Some(reports) } => {
            let input = Input::NodeFeedback {
                handle: handle.unwrap_or_default().into(),
                kinds: resource_types(types),
                reports: reports.into_iter().map(super::usage_report).collect(),
            };
            Question::done("nodeFeedback", input, || Answered::NodeFeedback)
        }
        Call::RestartNodes { args: Some(args) } => {
            let wire::RestartNodesArgs { force, batch_size } = args;
            let answered = || Answered::RestartNodes(wire::RestartNodesResponse {});
            Question::done("restartNode", Input::RestartNodes { force, batch_size }, answered)
        }
        Call::KillSession { id: Some(id) } => {
            let input = Input::KillSession { handle: id.into() };
            Question::done("killSession", input, || Answered::KillSession)
        }
        incomplete => {
            let method = <ClusterManager as corona_wire::Service>::method_name(&incomplete);
            return Err(NoInput::Incomplete(method));
        }
    })
}

/// Whether this heartbeat only reports that the node has ended: its last one, or the first one of a process that
/// has the name of an earlier one.
fn leaves(node: &wire::ClusterNodeInfo) -> bool {
    node.ended.as_ref().is_some_and(|ended| ended.contains(&node.name))
}

fn nodes_ended(host: String, names: Vec<String>) -> Input {
    let names = names.into_iter().map(Into::into).collect();
    Input::NodesEnded { host: host.into(), names }
}

/// What precedes the heartbeat of a node of ours that replaces others: they have ended. The original, and a
/// shadow of it, pass over the field.
pub(crate) fn ended_before(call: &Call) -> Option<Input> {
    let Call::NodeHeartbeat { node: Some(node) } = call else { return None };
    let names = node.ended.as_ref().filter(|names| !names.is_empty() && !leaves(node))?;
    Some(nodes_ended(node.address.host.clone(), names.clone()))
}

/// The answer to a call that the engine has replied to.
pub(crate) fn answer(form: Form, reply: Result<Reply, Refusal>) -> Answer<Answered> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(refused) => return refusal(refused),
    };
    let answered = match (form.shape, reply) {
        (Shape::Fixed(answered), _) => answered(),
        (Shape::SessionId, Reply::SessionId(id)) => Answered::GetNextSessionId(id),
        (Shape::Started(handle), Reply::Started { log_path, pool }) => {
            Answered::SessionStart(wire::SessionRegistrationData {
                handle,
                cluster_manager_info: wire::ClusterManagerInfo {
                    url: String::new(),
                    job_history_location: log_path,
                },
                pool_info_strings: super::pool_name_to_wire(&pool),
            })
        }
        (Shape::NodeHeard, Reply::NodeHeard { restart }) => {
            Answered::NodeHeartbeat(wire::NodeHeartbeatResponse {
                restart_flag: restart,
                restart_in_place: None,
            })
        }
        // The engine gives each input the reply that belongs to it.
        _ => return Answer::Close,
    };
    Answer::Reply(answered)
}

/// The answer to a call whose caller may not make it.
pub(crate) fn not_allowed(call: &Call, why: String) -> Answer<Answered> {
    match call {
        Call::SessionStart { .. } => Answer::Exception(Exception::invalid_session_handle(why)),
        _ => fault(why),
    }
}

/// The known types, each once.
pub(crate) fn resource_types(
    types: Vec<wire::ResourceType>,
) -> Vec<corona_model::types::ResourceType> {
    let mut kinds: Vec<_> = types.into_iter().filter_map(super::resource_type).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_may_report_nodes_that_have_ended() {
        let heartbeat = |ended: Option<&[&str]>| {
            let address = wire::InetAddress::new("h".to_owned(), 1);
            let total = wire::ComputeSpecs::new(1, None, None, None);
            let ended = ended.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let node =
                wire::ClusterNodeInfo::new("n".to_owned(), address, total, None, None, ended, None);
            Call::NodeHeartbeat { node: Some(node) }
        };
        let ended = |names: &[&str]| Input::NodesEnded {
            host: "h".into(),
            names: names.iter().map(|name| (*name).into()).collect(),
        };
        for (call, before, leaves) in [
            (heartbeat(None), None, false),
            (heartbeat(Some(&[])), None, false),
            (heartbeat(Some(&["m"])), Some(ended(&["m"])), false),
            (heartbeat(Some(&["m", "n"])), None, true),
        ] {
            assert_eq!(ended_before(&call), before, "{call:?}");
            let input = input(call.clone()).unwrap().input;
            assert_eq!(matches!(input, Input::HeartbeatNode { .. }), !leaves, "{call:?}");
            if leaves {
                assert_eq!(input, ended(&["m", "n"]));
            }
        }
    }
    use corona_model::types::PoolName;

    fn handle() -> Option<String> {
        Some("2026.1".to_owned())
    }

    fn request(kind: i32) -> wire::ResourceRequest {
        let hosts = Some(vec!["a".to_owned()]);
        wire::ResourceRequest::new(7, hosts, None, wire::ResourceType(kind), None)
    }

    #[test]
    fn racks_go_where_the_call_names_hosts() {
        let racks = vec![("a".into(), "/r".into())];
        let call = Call::RequestResource { handle: handle(), requests: Some(vec![request(0)]) };
        let mut question = input(call).unwrap();
        assert_eq!(&*question.requests()[0].hosts[0], "a");
        question.place(racks.clone());
        let Input::RequestResources { racks: placed, .. } = &question.input else {
            panic!("{question:?}")
        };
        assert_eq!(*placed, racks);

        let address = wire::InetAddress::new("a".to_owned(), 1);
        let total = wire::ComputeSpecs::new(1, None, None, None);
        let node =
            wire::ClusterNodeInfo::new("n".to_owned(), address, total, None, None, None, None);
        let mut question = input(Call::NodeHeartbeat { node: Some(node) }).unwrap();
        question.place(racks);
        let Input::HeartbeatNode { rack, .. } = &question.input else { panic!("{question:?}") };
        assert_eq!(rack.as_deref(), Some("/r"));
    }

    #[test]
    fn replies_become_the_answers_of_their_calls() {
        let start = Call::GetNextSessionId;
        let form = input(start).unwrap().form;
        let reply = Ok(Reply::SessionId("2026.2".into()));
        let Answer::Reply(Answered::GetNextSessionId(id)) = answer(form, reply) else { panic!() };
        assert_eq!(id, "2026.2");

        let address = wire::InetAddress::new("h".to_owned(), 1);
        let (name, user) = ("n".to_owned(), "u".to_owned());
        let info = wire::SessionInfo::new(address, name, user, None, None, None, None, None, None);
        let form = input(Call::SessionStart { handle: handle(), info: Some(info) }).unwrap().form;
        let reply = Reply::Started { log_path: "/logs".into(), pool: PoolName::new("g", "p") };
        let Answer::Reply(Answered::SessionStart(data)) = answer(form, Ok(reply)) else { panic!() };
        assert_eq!(
            (&*data.handle, &*data.cluster_manager_info.job_history_location),
            ("2026.1", "/logs")
        );

        let form = input(Call::SessionHeartbeat { handle: handle() }).unwrap().form;
        let refused = answer(form, Err(Refusal::SafeMode));
        assert!(matches!(refused, Answer::Exception(_)), "{refused:?}");
    }

    #[test]
    fn calls_that_are_no_input_are_answered_at_once() {
        let unknown = Call::RequestResource { handle: handle(), requests: Some(vec![request(9)]) };
        for (call, text) in [
            (unknown, Some("Bad resource type from session: 2026.1")),
            (
                Call::SessionEnd { handle: None, status: None },
                Some("an argument of sessionEnd is missing"),
            ),
            (Call::SessionHeartbeatV2 { handle: handle(), args: None }, None),
        ] {
            match (input(call).unwrap_err().answer::<Answered>(), text) {
                (Answer::Fault(fault), Some(text)) => assert_eq!(fault.message, text),
                (Answer::Close, None) => {}
                (other, _) => panic!("{other:?}"),
            }
        }
    }
}
