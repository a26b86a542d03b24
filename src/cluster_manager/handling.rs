//! The handling of calls that concern only the engine, without input and output: which checks come
//! first, what has to be looked up, and which input of the engine the call is.
//!
//! The live service ([`Calls`](super::calls::Calls)), calls with long lists
//! ([`large_calls`](super::large_calls)) and the shadow's [`DryRun`](super::DryRun) carry out its steps, each
//! in its own way. It has no scheduling rules: the engine decides which calls to refuse.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::core::Core;
use super::door::{Door, Excess};
use super::racks::{KnownRacks, Purpose, RackError, Racks};
use super::translate;
use super::translate::calls::{NoInput, Question};
use corona_engine::{Engine, Input, RackWanted, Refusal};
use corona_model::types::Millis;
use corona_wire::calls::{ClusterManagerCall as Call, ClusterManagerReply as Answered};
use corona_wire::generated as wire;
use corona_wire::server::Answer;

/// Entries of a list, those of lists inside it included, that are applied at once.
pub(super) const SLICE: usize = 8192;

const REQUEST: &str = "requestResource";

/// An engine at a time, to look at.
pub(super) trait Look {
    fn look<T>(&self, look: impl FnOnce(&Engine, Millis) -> T) -> T;
}

impl Look for Core {
    fn look<T>(&self, look: impl FnOnce(&Engine, Millis) -> T) -> T {
        Core::look(self, look)
    }
}

impl Look for (&Engine, Millis) {
    fn look<T>(&self, look: impl FnOnce(&Engine, Millis) -> T) -> T {
        look(self.0, self.1)
    }
}

/// The next step in answering a call.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing is applied.
    Answer(Answer<Answered>),
    /// Nothing is applied: the call of this method is refused.
    Refuse(&'static str, Refusal),
    /// Nothing is applied: a value in the list of this session exceeds a bound.
    Exceeds { method: &'static str, session: String, excess: Excess },
    /// The input is applied, and its reply is the answer.
    Apply(Question),
    /// The same, after the racks of these hosts were found.
    FindRacks { question: Question, hosts: BTreeSet<Arc<str>>, purpose: Purpose },
    /// The host files are read and applied. Spec: cluster-manager/02 §3.11.
    ReadHostFiles,
    /// All sessions are listed.
    ListSessions,
    /// Each session is killed in turn; sessions that do not exist are passed over.
    KillSessions(wire::KillSessionsArgs),
    /// The requests are applied in slices; the session exists.
    RequestInSlices(String, Vec<wire::ResourceRequest>),
}

/// The first step for a call to which there is no objection. `setSafeMode` and `persistState` are none
/// of these calls.
pub(super) fn first_step(door: &Door, racks: &Racks, engine: &impl Look, call: Call) -> Step {
    match call {
        Call::RequestResource { handle: Some(handle), requests: Some(requests) } => {
            if !is_large(&requests) {
                return request(door, racks, engine, handle, requests);
            }
            match engine.look(|engine, _| engine.check_session(&handle)) {
                Ok(()) => Step::RequestInSlices(handle, requests),
                Err(refusal) => Step::Refuse(REQUEST, refusal),
            }
        }
        Call::NodeHeartbeat { .. } => heartbeat(racks, engine, call),
        Call::NodeFeedback { ref handle, reports: Some(ref reports), .. } => {
            match reports.iter().find_map(|report| door.check_report(report).err()) {
                Some(excess) => {
                    let session = handle.clone().unwrap_or_default();
                    Step::Exceeds { method: "nodeFeedback", session, excess }
                }
                None => apply(call),
            }
        }
        Call::RefreshNodes => outside_safe_mode(engine, "refreshNodes", Step::ReadHostFiles),
        Call::GetSessions => outside_safe_mode(engine, "getSessions", Step::ListSessions),
        Call::GetSessionInfo { handle: Some(handle) } => {
            match engine.look(|engine, _| engine.session_info(&handle)) {
                Ok(info) => Step::Answer(Answer::Reply(Answered::GetSessionInfo(
                    translate::session_info_to_wire(info),
                ))),
                Err(refusal) => Step::Refuse("getSessionInfo", refusal),
            }
        }
        Call::KillSessions { args: Some(args) } => Step::KillSessions(args),
        Call::GetActualPoolInfo { args: Some(args) } => match actual_pool(engine, &args) {
            Ok((pool, _)) => Step::Answer(Answer::Reply(Answered::GetActualPoolInfo(pool))),
            Err(refusal) => Step::Refuse("getActualPoolInfo", refusal),
        },
        Call::GetActualPoolInfoV2 { args: Some(args) } => match actual_pool(engine, &args) {
            Ok((pool_info_string, whitelist)) => {
                let pool = wire::ActualPoolInfoResponse { pool_info_string, whitelist };
                Step::Answer(Answer::Reply(Answered::GetActualPoolInfoV2(pool)))
            }
            Err(refusal) => Step::Refuse("getActualPoolInfoV2", refusal),
        },
        call => apply(call),
    }
}

/// A call that is an input as it stands.
fn apply(call: Call) -> Step {
    match translate::calls::input(call) {
        Ok(question) => Step::Apply(question),
        Err(no_input) => Step::Answer(no_input.answer()),
    }
}

fn outside_safe_mode(engine: &impl Look, method: &'static str, step: Step) -> Step {
    if engine.look(|engine, _| engine.safe_mode()) {
        return Step::Refuse(method, Refusal::SafeMode);
    }
    step
}

/// The first step for `requestResource` as a whole, however long its list is.
pub(super) fn request(
    door: &Door,
    racks: &Racks,
    engine: &impl Look,
    handle: String,
    requests: Vec<wire::ResourceRequest>,
) -> Step {
    let session: Arc<str> = handle.as_str().into();
    if let Some(excess) = requests.iter().find_map(|request| door.check_request(request).err()) {
        return Step::Exceeds { method: REQUEST, session: handle, excess };
    }
    let call = Call::RequestResource { handle: Some(handle), requests: Some(requests) };
    let mut question = match translate::calls::input(call) {
        Ok(question) => question,
        Err(no_input) => return Step::Answer(no_input.answer()),
    };
    let hosts = question.requests().iter().flat_map(|request| &request.hosts);
    match racks.known(hosts) {
        Ok(KnownRacks::All(racks)) => {
            question.place(racks);
            Step::Apply(question)
        }
        Ok(KnownRacks::NotAll(hosts)) => {
            match engine.look(|engine, _| engine.check_session(&session)) {
                Ok(()) => Step::FindRacks { question, hosts, purpose: Purpose::Request },
                Err(refusal) => Step::Refuse(REQUEST, refusal),
            }
        }
        Err(error) => Step::Answer(no_rack(&error)),
    }
}

fn heartbeat(racks: &Racks, engine: &impl Look, call: Call) -> Step {
    let mut question = match translate::calls::input(call) {
        Ok(question) => question,
        Err(no_input) => return Step::Answer(no_input.answer()),
    };
    let Input::HeartbeatNode { report, .. } = &question.input else {
        return Step::Apply(question);
    };
    let host = &report.address.host;
    let known = match racks.known(std::iter::once(host)) {
        Ok(KnownRacks::All(racks)) => racks,
        Ok(KnownRacks::NotAll(hosts)) => {
            match engine.look(|engine, _| engine.rack_wanted(&report.name, host)) {
                RackWanted::No => Vec::new(),
                RackWanted::Known(rack) => vec![(host.clone(), rack)],
                RackWanted::Yes => {
                    return Step::FindRacks { question, hosts, purpose: Purpose::Heartbeat };
                }
            }
        }
        Err(error) => return Step::Answer(no_rack(&error)),
    };
    question.place(known);
    Step::Apply(question)
}

fn actual_pool(
    engine: &impl Look,
    args: &wire::ActualPoolInfoArgs,
) -> Result<(wire::PoolInfoStrings, String), Refusal> {
    let asked = translate::pool_name(&args.pool_info_string);
    let (pool, whitelist) =
        engine.look(|engine, _| engine.actual_pool(&asked, args.job_input_size))?;
    Ok((translate::pool_name_to_wire(&pool), whitelist.to_string()))
}

/// Why one request of a long list cannot be applied.
#[derive(Debug)]
pub(super) enum BadRequest {
    Exceeds(Excess),
    NoInput(NoInput),
}

/// One request of a long list of a session, translated.
pub(super) fn request_of(
    door: &Door,
    session: &str,
    request: wire::ResourceRequest,
) -> Result<corona_model::types::ResourceRequest, BadRequest> {
    door.check_request(&request).map_err(BadRequest::Exceeds)?;
    let bad = || BadRequest::NoInput(NoInput::BadResourceType(session.to_owned()));
    translate::request(request).ok_or_else(bad)
}

/// Whether the requests are more than one slice.
fn is_large(requests: &[wire::ResourceRequest]) -> bool {
    let mut weight = 0;
    requests.iter().any(|request| {
        weight += weight_of(request);
        weight > SLICE
    })
}

/// Entries of a request, those of its lists included.
pub(super) fn weight_of(request: &wire::ResourceRequest) -> usize {
    let hosts = |hosts: &Option<Vec<String>>| hosts.as_ref().map_or(0, Vec::len);
    1 + hosts(&request.hosts) + hosts(&request.exclude_hosts)
}

/// The answer to a call with a host whose rack is not known.
pub(super) fn no_rack(error: &RackError) -> Answer<Answered> {
    translate::fault(error.to_string())
}
