//! Calls with long lists. Each is applied in slices, so that no call locks the engine for longer
//! than a few milliseconds and others run between two slices; peers take turns.
//!
//! The call is answered after its last slice. Each slice looks the session up again: if the session
//! ends between two slices, or safe mode starts, the call is answered like any call from then on,
//! and the applied slices remain. Repeating such a call is harmless: known requests are ignored,
//! and releases, reports and kills take effect only once.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

use super::calls::{Calls, refused};
use super::door::Door;
use super::handling::{self, BadRequest, SLICE, no_rack, weight_of};
use super::racks::{KnownRacks, Purpose};
use super::translate;
use super::translate::calls::{HostRack, Question};
use corona_config::ClusterManagerSettings;
use corona_engine::{Input, Reply, RequestSummary, RunningSession};
use corona_model::text::boundary;
use corona_model::types::ResourceRequest;
use corona_net::peer_of;
use corona_net::permits::{Permit, Permits};
use corona_wire::calls::ClusterManagerReply as Answered;
use corona_wire::generated as wire;
use corona_wire::server::Answer;

/// Sessions that are looked at while the engine is held.
const SESSIONS_AT_ONCE: u64 = 256;
/// Bytes of a listed session without its texts, at most.
const SESSION_BYTES: usize = 128;

/// Limits that calls pass before they reach the engine.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) door: Door,
    /// Held while new requests and sessions are entered: one at a time, first come first served.
    /// Whatever else comes need not wait for more than one of them, however many there are.
    pub(super) new_work: Arc<Semaphore>,
    /// Held for one slice of a large call.
    slices: Arc<Permits<IpAddr>>,
    /// Held while a large call with requests is applied, which continues without its caller.
    applied: Arc<Permits<IpAddr>>,
    max_reply_bytes: usize,
}

impl Entrance {
    pub(super) fn new(settings: &ClusterManagerSettings) -> Entrance {
        Entrance {
            door: Door::new(settings),
            new_work: Arc::new(Semaphore::new(1)),
            slices: Permits::new(1, 1),
            applied: Permits::new(2, 1),
            max_reply_bytes: settings.wire.max_frame_bytes,
        }
    }

    async fn slice_of(&self, peer: SocketAddr) -> Permit<IpAddr> {
        self.slices.take(peer_of(peer.ip())).await
    }
}

/// Some requests of a call, with the racks of their hosts.
type Part = (Vec<ResourceRequest>, Vec<HostRack>);

impl Calls {
    /// `requestResource` with more than a slice: everything is checked and looked up, then the call is
    /// applied, to its end even if the caller hangs up meanwhile.
    pub(super) async fn request_in_slices(
        &self,
        peer: SocketAddr,
        handle: Arc<str>,
        requests: Vec<wire::ResourceRequest>,
    ) -> Answer<Answered> {
        let (parts, summary) = match self.prepare(peer, &handle, requests).await {
            Ok(prepared) => prepared,
            Err(answer) => return *answer,
        };
        let permit = self.entrance.applied.take(peer_of(peer.ip())).await;
        let (core, slices) = (self.core.clone(), self.entrance.slices.clone());
        let new_work = self.entrance.new_work.clone();
        let applied = tokio::spawn(async move {
            let _permit = permit;
            let enter = async |input| {
                let _slice = slices.take(peer_of(peer.ip())).await;
                let _turn = new_work.acquire().await;
                core.apply(input)
            };
            enter(Input::ExpectRequests { handle: handle.clone(), summary }).await?;
            for (requests, racks) in parts {
                enter(Input::MoreRequests { handle: handle.clone(), requests, racks }).await?;
                yield_now().await;
            }
            Ok(())
        });
        match applied.await {
            Ok(Ok(())) => Answer::Reply(Answered::RequestResource),
            Ok(Err(refusal)) => refused("requestResource", refusal),
            // The executor stops.
            Err(_) => Answer::Close,
        }
    }

    async fn prepare(
        &self,
        peer: SocketAddr,
        handle: &str,
        requests: Vec<wire::ResourceRequest>,
    ) -> Result<(Vec<Part>, RequestSummary), Box<Answer<Answered>>> {
        let mut summary = RequestSummary::default();
        let mut search = self.racks.search(Purpose::Request, peer.ip());
        let mut parts = Vec::new();
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let slice = self.entrance.slice_of(peer).await;
            let (mut part, mut weight) = (Vec::new(), 0);
            while weight < SLICE
                && let Some(request) = requests.next()
            {
                weight += weight_of(&request);
                let request = match handling::request_of(&self.entrance.door, handle, request) {
                    Ok(request) => request,
                    Err(BadRequest::Exceeds(excess)) => {
                        tracing::warn!("requestResource of {handle} from {peer}: {excess}");
                        return Err(Box::new(excess.of_session()));
                    }
                    Err(BadRequest::NoInput(no_input)) => return Err(Box::new(no_input.answer())),
                };
                summary.add(&request);
                part.push(request);
            }
            let hosts = part.iter().flat_map(|request| &request.hosts);
            let known = self.racks.known(hosts);
            drop(slice);
            let racks = match known {
                Ok(KnownRacks::All(racks)) => Ok(racks),
                Ok(KnownRacks::NotAll(hosts)) => search.racks_of(hosts).await,
                Err(error) => Err(error),
            };
            parts.push((part, racks.map_err(|error| Box::new(no_rack(&error)))?));
            yield_now().await;
        }
        Ok((parts, summary))
    }

    /// Applies the list of `releaseResource` or `nodeFeedback` in slices.
    pub(super) async fn apply_in_slices(
        &self,
        peer: SocketAddr,
        Question { input, form }: Question,
    ) -> Answer<Answered> {
        let mut last = Ok(Reply::Done);
        for slice in slices_of(input) {
            let _slice = self.entrance.slice_of(peer).await;
            last = self.core.apply(slice);
            if let Err(refusal) = last {
                return refused(form.method, refusal);
            }
            yield_now().await;
        }
        translate::calls::answer(form, last)
    }

    /// `killSessions`: each in turn; sessions that do not exist are passed over.
    pub(super) async fn kill_sessions(
        &self,
        peer: SocketAddr,
        args: wire::KillSessionsArgs,
    ) -> Answer<Answered> {
        // A session that ends may take as long as a slice.
        const KILLED_AT_ONCE: usize = 64;
        for handles in args.session_ids.chunks(KILLED_AT_ONCE) {
            let _slice = match args.session_ids.len() {
                ..=KILLED_AT_ONCE => None,
                _ => Some(self.entrance.slice_of(peer).await),
            };
            for handle in handles {
                let handle: Arc<str> = handle.as_str().into();
                tracing::info!("Killing session {handle}");
                if let Err(refusal) = self.core.apply(Input::KillSession { handle }) {
                    return refused("killSession", refusal);
                }
            }
            yield_now().await;
        }
        if !args.session_ids.is_empty() {
            tracing::info!("{} killed session {}", args.who, args.session_ids.join(" "));
        }
        Answer::Reply(Answered::KillSessions)
    }

    /// `getSessions`, in the order of their start. Sessions that start or end meanwhile may be there
    /// or not.
    pub(super) async fn list_sessions(&self) -> Answer<Answered> {
        let (mut running, mut from) = (Vec::new(), Some(0));
        while let Some(place) = from {
            let slice =
                self.core.look(|engine, now| engine.sessions_slice(now, place, SESSIONS_AT_ONCE));
            running.extend(slice.rows);
            from = slice.next;
            if from.is_some() {
                yield_now().await;
            }
        }
        listed(running, self.entrance.max_reply_bytes)
    }
}

/// The input with no more than a slice of its list each time.
fn slices_of(input: Input) -> Vec<Input> {
    match input {
        Input::ReleaseResources { handle, ids } => ids
            .chunks(SLICE)
            .map(|ids| Input::ReleaseResources { handle: handle.clone(), ids: ids.to_vec() })
            .collect(),
        Input::NodeFeedback { handle, kinds, mut reports } => {
            let mut slices = Vec::new();
            while !reports.is_empty() {
                let rest = reports.split_off(reports.len().min(SLICE));
                let (handle, kinds) = (handle.clone(), kinds.clone());
                slices.push(Input::NodeFeedback { handle, kinds, reports });
                reports = rest;
            }
            slices
        }
        input => vec![input],
    }
}

/// The reply of `getSessions`.
pub(super) fn listed(mut running: Vec<RunningSession>, max_reply_bytes: usize) -> Answer<Answered> {
    running.sort_by_key(|session| session.started);
    let mut sessions = running.into_iter().map(translate::running_session).collect();
    fit(&mut sessions, max_reply_bytes);
    Answer::Reply(Answered::GetSessions(sessions))
}

/// Makes the list small enough to be sent: shortens names, and leaves sessions out if that is not
/// enough.
fn fit(sessions: &mut Vec<wire::RunningSession>, max_bytes: usize) {
    let most = max_bytes.saturating_sub(1024);
    let size = |session: &wire::RunningSession| {
        let wire::PoolInfoStrings { pool_group_name, pool_name } = &session.pool_info;
        let names = [&session.name, &session.user_id, pool_group_name, pool_name];
        let names: usize = names.into_iter().map(String::len).sum();
        SESSION_BYTES + session.handle.len() + names
    };
    if sessions.iter().map(size).sum::<usize>() <= most {
        return;
    }
    let fixed: usize = sessions.iter().map(|s| SESSION_BYTES + s.handle.len()).sum();
    let room = most.saturating_sub(fixed) / sessions.len().max(1) / 4;
    for session in sessions.iter_mut() {
        let wire::PoolInfoStrings { pool_group_name, pool_name } = &mut session.pool_info;
        for name in [&mut session.name, &mut session.user_id, pool_group_name, pool_name] {
            name.truncate(boundary(name, room));
        }
    }
    let mut bytes = 0;
    let fitting = sessions.iter().take_while(|session| {
        bytes += size(session);
        bytes <= most
    });
    let (count, all) = (fitting.count(), sessions.len());
    sessions.truncate(count);
    tracing::warn!(
        "getSessions: shortened names to {room} bytes and omitted {} of {all} sessions to keep the reply within {max_bytes} bytes",
        all - count
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_sessions_is_made_to_fit() {
        let session = |name: usize| wire::RunningSession {
            handle: "2026.1".into(),
            name: "é".repeat(name),
            user_id: "u".into(),
            pool_info: wire::PoolInfoStrings::new("g".into(), "p".into()),
            priority: None,
            deadline: None,
            running_resources: None,
        };
        let fitted = |count: usize, name, max_bytes| {
            let mut sessions = vec![session(name); count];
            fit(&mut sessions, max_bytes);
            (sessions.len(), sessions.first().map_or(0, |session| session.name.len()))
        };
        assert_eq!(fitted(10, 100, 1 << 20), (10, 200));
        let (count, name) = fitted(10, 1000, 10 << 10);
        assert!(count == 10 && (100..200).contains(&name) && name % 2 == 0, "{count} {name}");
        let (count, name) = fitted(100, 1000, 10 << 10);
        assert!((60..80).contains(&count) && name == 0, "{count} {name}");
        assert_eq!(fitted(0, 0, 0), (0, 0));
    }
}
