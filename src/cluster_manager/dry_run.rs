//! A cluster manager that decides and notifies no peer: its inputs are calls and the time, its
//! outputs are its replies and the notifications that sessions would get.
//!
//! It has the translation, the engine, the bounds and the settings of the live service, and nothing
//! else: no socket, file, clock or name server. The caller performs the look-ups ([`Lookup`]) that
//! a call needs, for instance with [`Lookups`]. So the same calls at the same times with the same
//! look-up results always lead to the same decisions.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::access::{self, Access};
use super::door::Door;
use super::handling::{self, Step};
use super::large_calls;
use super::names::{Names, Resolver};
use super::racks::{Purpose, Racks};
use super::translate;
use super::translate::calls::{Question, not_allowed};
use super::{StartError, hash_seed, state_file};
use corona_config::{
    AccessSettings, CallSettings, ClusterManagerSettings, HostFiles, RackSettings, Topology,
};
use corona_engine::{Effect, Engine, Input, Notification, Observed, Refusal, Reply, Start};
use corona_model::settings::{Hosts, Settings};
use corona_model::types::Millis;
use corona_wire::calls::{ClusterManagerCall as Call, ClusterManagerReply as Answered};
use corona_wire::generated as wire;
use corona_wire::server::Answer;

/// The cluster manager without ends.
#[derive(Debug)]
pub struct DryRun {
    engine: Engine,
    door: Door,
    access: AccessSettings,
    /// Racks that can be computed, and those that were found.
    racks: Racks,
    max_reply_bytes: usize,
    decisions: Vec<Decision>,
}

/// The settings on which answers and decisions depend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionSettings {
    engine: Settings,
    calls: CallSettings,
    access: AccessSettings,
    topology: Topology,
    racks: RackSettings,
    max_reply_bytes: usize,
}

impl DecisionSettings {
    /// Those of a whole configuration.
    pub fn of(settings: &ClusterManagerSettings) -> DecisionSettings {
        DecisionSettings {
            engine: settings.engine.clone(),
            calls: settings.calls.clone(),
            access: settings.access.clone(),
            topology: settings.topology.clone(),
            racks: settings.racks.clone(),
            max_reply_bytes: settings.wire.max_frame_bytes,
        }
    }
}

/// A decision that a peer would have been notified of.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// A session would have been notified.
    Notified(Arc<str>, Notification),
    /// A session has ended, and would not be notified any more.
    Ended(Arc<str>),
}

/// A look-up outside the process that a call needs before it can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The racks of hosts.
    Racks {
        /// Their names, as the call has them.
        hosts: BTreeSet<Arc<str>>,
        /// Whether a node heartbeats; otherwise requests prefer the hosts.
        for_heartbeat: bool,
        /// The caller.
        peer: IpAddr,
    },
    /// Whether a host is the caller itself.
    IsCaller {
        /// The host's name.
        host: String,
        /// The caller.
        peer: IpAddr,
    },
    /// The contents of the host files.
    HostFiles,
}

/// Hosts with their racks.
pub type HostRacks = Vec<(Arc<str>, Arc<str>)>;

/// The outcome of a [`Lookup`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// Hosts that are not in the default rack with their racks, sorted by host; or why there are none.
    Racks(Result<HostRacks, String>),
    /// Whether the host is the caller.
    IsCaller(bool),
    /// The host files, or why they cannot be read.
    Hosts(Result<Hosts, String>),
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub enum Called {
    /// The caller would get this answer.
    Answered(Answer<Answered>),
    /// The call acts outside of the cluster manager and is not made: `setSafeMode` or `persistState`.
    NotMade,
    /// Nothing has happened yet. The call is to be repeated with the result of the look-up.
    Wants(Lookup),
}

impl From<Lookup> for Called {
    fn from(lookup: Lookup) -> Called {
        Called::Wants(lookup)
    }
}

impl DryRun {
    /// Starts with nothing but settings and host files, out of safe mode.
    ///
    /// # Errors
    /// The time cannot be put into session ids.
    pub fn start(
        settings: DecisionSettings,
        hosts: Hosts,
        now: Millis,
    ) -> Result<DryRun, StartError> {
        let DecisionSettings { engine, calls, access, topology, racks, max_reply_bytes } = settings;
        let door = Door::of(calls, &engine.bounds);
        let id_prefix = state_file::id_prefix(now).map_err(StartError::Clock)?;
        let mut engine = Engine::new(engine, Start { now, id_prefix, hash_seed: hash_seed() });
        // A fresh engine is not in safe mode and has no nodes: it refuses nothing, and nothing happens.
        let _ = engine.apply(now, Input::HostsChanged { hosts });
        let racks = Racks::new(topology, racks, &Resolver::system());
        Ok(DryRun { engine, door, access, racks, max_reply_bytes, decisions: Vec::new() })
    }

    /// A call of `peer`. `found` has the results that [`Called::Wants`] asked for.
    pub fn call(
        &mut self,
        now: Millis,
        peer: SocketAddr,
        call: Call,
        found: Option<Found>,
    ) -> Called {
        if matches!(call, Call::SetSafeMode { .. } | Call::PersistState) {
            return Called::NotMade;
        }
        if let Some((_, answer)) = self.door.objection(&call) {
            return Called::Answered(answer);
        }
        if let Some(why) = access::not_administrator(&self.access, peer, &call) {
            return Called::Answered(not_allowed(&call, why));
        }
        if let Some(host) = access::own_host(&self.access, &call) {
            match found {
                Some(Found::IsCaller(true)) => {}
                Some(Found::IsCaller(false)) => {
                    let why = access::not_own_host(host, peer);
                    return Called::Answered(not_allowed(&call, why));
                }
                _ => return Lookup::IsCaller { host: host.to_owned(), peer: peer.ip() }.into(),
            }
        }
        let look = (&self.engine, now);
        let step = handling::first_step(&self.door, &self.racks, &look, call);
        self.carry_out(now, peer, step, found)
    }

    fn carry_out(
        &mut self,
        now: Millis,
        peer: SocketAddr,
        step: Step,
        found: Option<Found>,
    ) -> Called {
        let answer = match step {
            Step::Answer(answer) => answer,
            Step::Refuse(_, refusal) => translate::refusal(refusal),
            Step::Exceeds { excess, .. } => excess.of_session(),
            Step::Apply(question) => self.answer(now, question),
            Step::FindRacks { mut question, hosts, purpose } => match found {
                Some(Found::Racks(Ok(racks))) => {
                    self.racks.remember_found(hosts, &racks);
                    question.place(racks);
                    self.answer(now, question)
                }
                Some(Found::Racks(Err(why))) => translate::fault(why),
                _ => {
                    let for_heartbeat = purpose == Purpose::Heartbeat;
                    return Lookup::Racks { hosts, for_heartbeat, peer: peer.ip() }.into();
                }
            },
            Step::ReadHostFiles => match found {
                Some(Found::Hosts(Ok(hosts))) => {
                    match self.apply(now, Input::HostsChanged { hosts }) {
                        Ok(_) => Answer::Reply(Answered::RefreshNodes),
                        Err(refusal) => translate::refusal(refusal),
                    }
                }
                Some(Found::Hosts(Err(why))) => translate::fault(why),
                _ => return Lookup::HostFiles.into(),
            },
            Step::ListSessions => {
                let running = self.engine.sessions_slice(now, 0, u32::MAX.into()).rows;
                large_calls::listed(running, self.max_reply_bytes)
            }
            Step::KillSessions(args) => self.kill_sessions(now, &args),
            Step::RequestInSlices(handle, requests) => {
                // Nobody waits here meanwhile, so all are applied at once.
                let look = (&self.engine, now);
                let whole = handling::request(&self.door, &self.racks, &look, handle, requests);
                return self.carry_out(now, peer, whole, found);
            }
        };
        Called::Answered(answer)
    }

    /// Turns safe mode on or off.
    pub fn set_safe_mode(&mut self, now: Millis, on: bool) {
        // The engine never refuses this input.
        let _ = self.apply(now, Input::SetSafeMode { on });
    }

    /// Applies an input of the engine, such as changed settings or an observed decision of another cluster
    /// manager.
    ///
    /// # Errors
    /// The engine refuses it.
    pub fn apply(&mut self, now: Millis, input: Input) -> Result<Reply, Refusal> {
        let outcome = self.engine.apply(now, input);
        for effect in outcome.effects {
            match effect {
                Effect::Notify { handle, notification, .. } => {
                    self.decisions.push(Decision::Notified(handle, notification));
                }
                Effect::ForgetSession { handle } => self.decisions.push(Decision::Ended(handle)),
                _ => {}
            }
        }
        outcome.reply
    }

    /// Runs the passes and ticks that are due. Returns when the next one is.
    pub fn settle(&mut self, now: Millis) -> Option<Millis> {
        let mut ticked_for = None;
        loop {
            while self.engine.wants_pass() {
                // Safe mode skips passes, and outside of it they are never refused.
                let _ = self.apply(now, Input::Pass);
            }
            let deadline = self.engine.next_deadline()?;
            if deadline > now {
                return Some(deadline);
            }
            if ticked_for == Some(deadline) {
                // A deadline that has passed without a change is not looked at again at once.
                return Some(Millis(now.0.saturating_add(PAUSE_MS)));
            }
            ticked_for = Some(deadline);
            // In safe mode it is refused, and time stands still.
            let _ = self.apply(now, Input::Tick);
        }
    }

    /// Enters a decision of another cluster manager. Returns whether that could be done.
    pub fn observe(&mut self, now: Millis, observed: Observed) -> bool {
        let reply = self.apply(now, Input::Observed(observed));
        matches!(reply, Ok(Reply::Observed { entered: true }))
    }

    /// Decisions since the last call, in order.
    pub fn decisions(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decisions)
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    fn answer(&mut self, now: Millis, Question { input, form }: Question) -> Answer<Answered> {
        let reply = self.apply(now, input);
        translate::calls::answer(form, reply)
    }

    fn kill_sessions(&mut self, now: Millis, args: &wire::KillSessionsArgs) -> Answer<Answered> {
        for handle in &args.session_ids {
            let handle = handle.as_str().into();
            if let Err(refusal) = self.apply(now, Input::KillSession { handle }) {
                return translate::refusal(refusal);
            }
        }
        Answer::Reply(Answered::KillSessions)
    }
}

/// How soon a deadline is looked at again that has passed without a change.
const PAUSE_MS: i64 = 250;

/// Look-ups for calls, as in the live service: with name servers, the topology script and files.
#[derive(Debug)]
pub struct Lookups {
    access: Access,
    racks: Racks,
    host_files: HostFiles,
}

impl Lookups {
    /// Builds the look-ups from the settings.
    pub fn new(settings: &ClusterManagerSettings) -> Lookups {
        let resolver = Resolver::system();
        let names = Names::new(&settings.names, resolver.clone());
        Lookups {
            access: Access::new(settings.access.clone(), names),
            racks: Racks::new(settings.topology.clone(), settings.racks.clone(), &resolver),
            host_files: settings.host_files.clone(),
        }
    }

    /// Looks something up.
    pub async fn find(&self, lookup: Lookup) -> Found {
        match lookup {
            Lookup::Racks { hosts, for_heartbeat, peer } => {
                let purpose = if for_heartbeat { Purpose::Heartbeat } else { Purpose::Request };
                let racks = self.racks.search(purpose, peer).racks_of(hosts).await;
                Found::Racks(racks.map_err(|error| error.to_string()))
            }
            Lookup::IsCaller { host, peer } => {
                Found::IsCaller(self.access.is_own_address(&host, peer).await)
            }
            Lookup::HostFiles => {
                let files = self.host_files.clone();
                let loaded = tokio::task::spawn_blocking(move || files.load()).await;
                Found::Hosts(match loaded {
                    Ok(Ok(loaded)) => Ok(loaded.hosts),
                    Ok(Err(errors)) => Err(errors.to_string()),
                    Err(error) => Err(format!("the host files were not read: {error}")),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use corona_engine::ObservedState;

    const NOW: Millis = Millis(1_795_000_000_000);

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    fn node(name: &str) -> Call {
        let address = wire::InetAddress::new(name.to_owned(), 5);
        let total = wire::ComputeSpecs::new(1, None, 1 << 20, 1 << 20);
        let apps = BTreeMap::from([(wire::ResourceType::MAP, "app".to_owned())]);
        let node =
            wire::ClusterNodeInfo::new(name.to_owned(), address, total, None, apps, None, None);
        Call::NodeHeartbeat { node: Some(node) }
    }

    fn start(id: &str) -> Call {
        let (address, name) = (wire::InetAddress::new("driver".to_owned(), 5), "n".to_owned());
        let user = "u".to_owned();
        let info = wire::SessionInfo::new(address, name, user, None, None, None, None, None, None);
        Call::SessionStart { handle: Some(id.to_owned()), info: Some(info) }
    }

    fn request(id: &str, host: Option<&str>) -> Call {
        let hosts = host.map(|host| vec![host.to_owned()]);
        let request = wire::ResourceRequest::new(3, hosts, None, wire::ResourceType::MAP, None);
        Call::RequestResource { handle: Some(id.to_owned()), requests: Some(vec![request]) }
    }

    fn manager(overrides: &[(&str, &str)]) -> DryRun {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let overrides: Vec<_> = overrides.iter().map(own).collect();
        let loaded = corona_config::load(None, &overrides).unwrap();
        let mut manager =
            DryRun::start(DecisionSettings::of(&loaded.settings), Hosts::default(), NOW).unwrap();
        let id_prefix = "202611220900".into();
        let identity = Observed::Identity { id_prefix, sessions_numbered: 4 };
        assert!(manager.observe(NOW, identity));
        manager
    }

    fn replied(called: Called) -> Answered {
        match called {
            Called::Answered(Answer::Reply(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_answers_decides_and_observes_without_notifying_anybody() {
        let mut manager = manager(&[]);
        let called = manager.call(NOW, peer(), Call::GetNextSessionId, None);
        let Answered::GetNextSessionId(id) = replied(called) else { panic!("no id") };
        assert_eq!(id, "202611220900.5");
        replied(manager.call(NOW, peer(), start(&id), None));
        replied(manager.call(NOW, peer(), request(&id, None), None));
        let mut next = None;
        for name in ["a", "b"] {
            replied(manager.call(NOW, peer(), node(name), None));
            next = manager.settle(NOW);
        }
        assert!(next.is_some_and(|next| next > NOW), "nodes and sessions expire");
        let decisions = manager.decisions();
        let [Decision::Notified(session, Notification::Granted(grants))] = &decisions[..] else {
            panic!("{decisions:?}")
        };
        assert_eq!((&**session, &*grants[0].node_name), (&*id, "a"));
        let handle: Arc<str> = id.as_str().into();
        let moved = Observed::Granted { handle: handle.clone(), id: 3, node: "b".into() };
        assert!(manager.observe(NOW, moved));
        assert_eq!(manager.engine().standing(&id, 3), Some(ObservedState::Granted("b".into())));
        let end = Call::SessionEnd { handle: Some(id), status: None };
        replied(manager.call(NOW, peer(), end, None));
        assert_eq!(manager.decisions(), [Decision::Ended(handle)]);
        assert!(matches!(manager.call(NOW, peer(), Call::PersistState, None), Called::NotMade));
    }

    #[test]
    fn lookups_are_left_to_the_caller_and_made_once() {
        let script = [("topology.script.file.name", "/no/such/script")];
        let mut manager = manager(&script);
        let id = "202611220900.5";
        manager.call(NOW, peer(), Call::GetNextSessionId, None);
        replied(manager.call(NOW, peer(), start(id), None));
        let hosts: BTreeSet<Arc<str>> = ["h".into()].into();
        let called = manager.call(NOW, peer(), request(id, Some("h")), None);
        let Called::Wants(Lookup::Racks { hosts: wanted, for_heartbeat: false, .. }) = called
        else {
            panic!("{called:?}")
        };
        assert_eq!(wanted, hosts);
        let failed = Found::Racks(Err("no such script".to_owned()));
        let called = manager.call(NOW, peer(), request(id, Some("h")), Some(failed));
        assert!(matches!(called, Called::Answered(Answer::Fault(_))), "{called:?}");
        let found = Found::Racks(Ok(vec![("h".into(), "/r".into())]));
        replied(manager.call(NOW, peer(), request(id, Some("h")), Some(found)));
        replied(manager.call(NOW, peer(), request(id, Some("h")), None));

        let called = manager.call(NOW, peer(), Call::RefreshNodes, None);
        assert!(matches!(called, Called::Wants(Lookup::HostFiles)), "{called:?}");
        let found = Found::Hosts(Ok(Hosts::default()));
        replied(manager.call(NOW, peer(), Call::RefreshNodes, Some(found)));
    }

    #[test]
    fn a_session_may_have_to_name_its_own_host() {
        let mut manager = manager(&[("corona.cm.sessions.same.host", "true")]);
        manager.call(NOW, peer(), Call::GetNextSessionId, None);
        let id = "202611220900.5";
        let called = manager.call(NOW, peer(), start(id), None);
        assert!(matches!(called, Called::Wants(Lookup::IsCaller { .. })), "{called:?}");
        let called = manager.call(NOW, peer(), start(id), Some(Found::IsCaller(false)));
        assert!(matches!(called, Called::Answered(Answer::Exception(_))), "{called:?}");
        replied(manager.call(NOW, peer(), start(id), Some(Found::IsCaller(true))));
    }
}
