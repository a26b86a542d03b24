//! This program's cluster manager as the manager under test, without sockets and in virtual time. What
//! it sends can be changed on the way, as a lying proxy would.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use super::world::{Arrival, ReplayTarget};
use super::*;
use crate::capture::ConnectionId;
use crate::recorded::configuration_of;
use crate::setup::RecordedSetup;
use crate::shadow::Configuration;
use corona_cluster_manager::{Called, Decision, DryRun, Found, Lookup};
use corona_engine::Notification;
use corona_model::types::{Grant, Millis};
use corona_wire::Service;
use corona_wire::calls::{ClusterManager, ClusterManagerCall, SessionDriverCall};
use corona_wire::generated::{InetAddress, ResourceGrant, ResourceType};
use corona_wire::value::{Message, RawMessage, StreamReader};

/// Changes what the manager sends. Returns how much later a notification is sent.
pub(super) type Proxy =
    (Box<dyn FnMut(&mut Message)>, Box<dyn FnMut(&mut SessionDriverCall) -> Duration>);

/// A proxy that changes nothing.
pub(super) fn honest() -> Proxy {
    (Box::new(|_| {}), Box::new(|_| Duration::ZERO))
}

/// A cluster manager in virtual time.
pub(super) struct DryManager {
    now: Duration,
    manager: DryRun,
    configuration: Configuration,
    wakes_at: Option<Duration>,
    pipes: HashMap<ConnectionId, Pipe>,
    ports: DriverPorts,
    /// The ports of session drivers by live session.
    drivers: HashMap<String, u16>,
    callbacks: VecDeque<(Duration, Callback)>,
    proxy: Proxy,
}

struct Pipe {
    from_client: StreamReader,
    to_client: VecDeque<Arrival>,
}

const EPOCH_MS: i64 = 1_900_000_000_000;

/// The ports of this run's session drivers, by their recorded addresses.
#[derive(Default)]
pub(super) struct DriverPorts(HashMap<(String, i32), u16>);

impl DriverPorts {
    /// The address of a driver, which gets a port if it has none.
    pub(super) fn open(&mut self, recorded: &(String, i32)) -> SocketAddr {
        let next = 40_000 + u16::try_from(self.0.len()).unwrap();
        let port = *self.0.entry(recorded.clone()).or_insert(next);
        (Ipv4Addr::LOCALHOST, port).into()
    }
}

impl DryManager {
    /// With the configuration of a directory.
    pub(super) fn start(directory: &Path, proxy: Proxy) -> DryManager {
        let configuration = configuration_of(directory);
        let Configuration { settings, hosts } = configuration.clone();
        DryManager {
            now: Duration::ZERO,
            manager: DryRun::start(settings, hosts, Millis(EPOCH_MS)).unwrap(),
            configuration,
            wakes_at: Some(Duration::ZERO),
            pipes: HashMap::new(),
            ports: DriverPorts::default(),
            drivers: HashMap::new(),
            callbacks: VecDeque::new(),
            proxy,
        }
    }

    fn millis(&self) -> Millis {
        Millis(EPOCH_MS + self.now.as_millis() as i64)
    }

    /// Makes the decisions that are due.
    fn settle(&mut self) {
        let due = self.manager.settle(self.millis());
        self.wakes_at = due.map(|due| {
            let ms = u64::try_from(due.0 - EPOCH_MS).unwrap_or(0);
            Duration::from_millis(ms).max(self.now + Duration::from_millis(1))
        });
        for decision in self.manager.decisions() {
            if let Decision::Notified(handle, notification) = decision {
                self.notify(&handle, notification);
            }
        }
    }

    fn notify(&mut self, session: &str, notification: Notification) {
        let handle = Some(session.to_owned());
        let wire = |grants: Vec<Grant>| Some(grants.iter().map(on_the_wire).collect());
        let mut call = match notification {
            Notification::Granted(grants) => {
                SessionDriverCall::GrantResource { handle, granted: wire(grants) }
            }
            Notification::Revoked(grants) => {
                SessionDriverCall::RevokeResource { handle, revoked: wire(grants), force: false }
            }
            Notification::DeadNode(node) => {
                SessionDriverCall::ProcessDeadNode { handle, node: Some(node.to_string()) }
            }
        };
        let at = self.now + (self.proxy.1)(&mut call);
        let port = self.drivers[session];
        let place = self.callbacks.partition_point(|(other, _)| *other <= at);
        self.callbacks.insert(place, (at, Callback::Session(port, call)));
    }

    /// Lets time pass until `is_there`, at most until `deadline`.
    fn pass(&mut self, deadline: Duration, is_there: impl Fn(&Self) -> bool) {
        loop {
            if self.wakes_at.is_some_and(|at| at <= self.now) {
                self.settle();
            }
            if is_there(self) {
                return;
            }
            let sent = self.callbacks.front().map(|(at, _)| *at).filter(|at| *at > self.now);
            match self.wakes_at.into_iter().chain(sent).min().filter(|at| *at <= deadline) {
                Some(at) => self.now = self.now.max(at),
                None => return self.now = self.now.max(deadline),
            }
        }
    }

    fn call(&mut self, connection: ConnectionId, message: &RawMessage) {
        let Ok(call) = message.call::<ClusterManager>() else {
            return self.reply(connection, Arrival::Closed);
        };
        if let ClusterManagerCall::SessionStart { handle: Some(handle), info: Some(info) } = &call {
            self.drivers.insert(handle.clone(), info.address.port as u16);
        }
        let client = "127.0.0.1:1".parse().unwrap();
        let mut found = None;
        let answer = loop {
            match self.manager.call(self.millis(), client, call.clone(), found.take()) {
                Called::Answered(answer) => break answer,
                Called::Wants(Lookup::HostFiles) => {
                    found = Some(Found::Hosts(Ok(self.configuration.hosts.clone())));
                }
                Called::Wants(Lookup::Racks { .. }) => found = Some(Found::Racks(Ok(vec![]))),
                Called::Wants(Lookup::IsCaller { .. }) => found = Some(Found::IsCaller(true)),
                Called::NotMade => return self.reply(connection, Arrival::Closed),
            }
        };
        let answer = RawMessage::of_answer::<ClusterManager>(&message.name, &answer, message.seqid);
        let arrival = answer.map_or(Arrival::Closed, |answer| {
            let mut answer = answer.decode();
            (self.proxy.0)(&mut answer);
            Arrival::Message(Box::new(answer))
        });
        self.reply(connection, arrival);
        self.settle();
    }

    fn reply(&mut self, connection: ConnectionId, arrival: Arrival) {
        self.pipes.get_mut(&connection).unwrap().to_client.push_back(arrival);
    }
}

fn on_the_wire(grant: &Grant) -> ResourceGrant {
    let address = InetAddress::new(grant.address.host.to_string(), grant.address.port);
    let (node, app_info) = (grant.node_name.to_string(), grant.app_info.to_string());
    let kind = ResourceType(grant.kind.index() as i32);
    ResourceGrant::new(grant.id, node, address, grant.granted_at.0, kind, app_info)
}

impl ReplayTarget for DryManager {
    fn now(&self) -> Duration {
        self.now
    }

    fn epoch_ms(&self) -> i64 {
        self.millis().0
    }

    async fn wait_until(&mut self, due: Duration) {
        self.pass(due, |_| false);
    }

    async fn connect(&mut self, connection: ConnectionId) -> io::Result<()> {
        let from_client =
            StreamReader::new(ClusterManager::schema(), ClusterManager::FRAMING, 1 << 20);
        let pipe = Pipe { from_client, to_client: VecDeque::new() };
        self.pipes.insert(connection, pipe);
        Ok(())
    }

    async fn send(&mut self, connection: ConnectionId, bytes: &[u8]) -> io::Result<()> {
        let pipe = self.pipes.get_mut(&connection).ok_or(io::ErrorKind::NotConnected)?;
        pipe.from_client.push(bytes);
        loop {
            match self.pipes.get_mut(&connection).unwrap().from_client.next_raw() {
                Ok(Some(message)) => self.call(connection, &message),
                Ok(None) => return Ok(()),
                Err(_) => {
                    self.reply(connection, Arrival::Closed);
                    return Ok(());
                }
            }
        }
    }

    async fn hang_up(&mut self, _connection: ConnectionId, _broken: bool) {}

    fn close(&mut self, connection: ConnectionId) {
        self.pipes.remove(&connection);
    }

    async fn arrival(&mut self, connection: ConnectionId, deadline: Duration) -> Option<Arrival> {
        let is_there = |world: &Self| {
            world.pipes.get(&connection).is_some_and(|pipe| !pipe.to_client.is_empty())
        };
        self.pass(deadline, is_there);
        self.present_arrival(connection)
    }

    fn present_arrival(&mut self, connection: ConnectionId) -> Option<Arrival> {
        self.pipes.get_mut(&connection)?.to_client.pop_front()
    }

    async fn callback(&mut self, deadline: Duration) -> Option<(Duration, Callback)> {
        self.pass(deadline, |world| {
            world.callbacks.front().is_some_and(|(at, _)| *at <= world.now)
        });
        self.present_callback()
    }

    fn present_callback(&mut self) -> Option<(Duration, Callback)> {
        let is_sent = self.callbacks.front().is_some_and(|(at, _)| *at <= self.now);
        is_sent.then(|| self.callbacks.pop_front()).flatten()
    }

    async fn set_proxy(&mut self, _listens: bool) -> io::Result<()> {
        Ok(())
    }

    async fn open_driver(&mut self, recorded: &(String, i32)) -> io::Result<SocketAddr> {
        Ok(self.ports.open(recorded))
    }

    async fn restart(&mut self) -> Result<(), NoRestart> {
        Err(NoRestart::NotPossible)
    }

    fn stalls(&self) -> Stalls {
        Stalls::default()
    }
}

/// Plays conversations against a manager with the configuration of `directory`, which is the recorded one
/// unless `change` has other options.
pub(super) fn play_dry(
    conversations: &[Conversation],
    directory: &Path,
    proxy: Proxy,
    change: impl FnOnce(&mut ReplayOptions),
) -> Report {
    let mut options = options_of(directory);
    change(&mut options);
    let (steps, older, gaps) = steps_of(conversations, &options);
    let manager = DryManager::start(directory, proxy);
    let mut play = Play::new(manager, options, older, gaps, watch::Sender::default(), &steps);
    tests::at_once(play.run(&steps));
    play.report
}

/// The options of a replay of a recording with the configuration of `directory`.
pub(super) fn options_of(directory: &Path) -> ReplayOptions {
    let options = RecordedSetup::read(directory).unwrap().options("dry", 1.0);
    ReplayOptions { compare_safe_mode: false, ..options }
}
