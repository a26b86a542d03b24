//! One of several instances: it stands by, leads, and is fenced. `docs/operate/high-availability.md` is for
//! operators, the crate `corona-standby` decides.
//!
//! | part | while standing by | while leading |
//! |---|---|---|
//! | [`zookeeper`] | looks for a vacancy | keeps the lease |
//! | [`copy_in`], [`copy_out`] | copies the leader's journal | sends it |
//! | [`relay`] | passes connections of peers on | passes those on that still waited |
//! | [`door`] | closes connections of instances | takes them |
//! | [`status`] | says on pages where the leader is | |
//! | [`role_events`] | | published |

mod copy_in;
mod copy_out;
mod door;
pub(crate) mod instance_role;
pub(crate) mod lease;
mod relay;
pub(crate) mod role_events;
mod status;
mod zookeeper;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, timeout};

use self::copy_in::{Copying, Held, copy_at_start};
use self::copy_out::{COPY_TIME, PIECE_TIME, Source};
use self::door::{Door, Leading};
use self::instance_role::{InstanceRole, Leader, Phase};
use self::relay::{Relays, To};
use self::status::StandbyView;
use self::zookeeper::Election;
use super::journal::opening::{Disk, Opened};
use super::origin::absolute;
use super::{
    Beginning, ClusterManager, Failure, HTTP_ADDRESS, REPLICATION_ADDRESS, ReloadRequest,
    StartError, bind_thrift, bind_web,
};
use crate::names::Resolver;
use corona_access::Gate;
use corona_cluster_pages::StandbyPages;
use corona_config::{GatewaySettings, HaAck, HaSettings, Interfaces, Loaded, ZooKeeperSettings};
use corona_journal::Journal;
use corona_model::types::Millis;
use corona_net::CannotListen;
use corona_process::Boxed;
use corona_standby::{Ack, FencedBecause, Input, Settings};
use corona_web::server::serve;
use corona_wire::server::{ListenOn, listen};

/// How often the role machine looks at the time.
const TICK: Duration = Duration::from_millis(50);
/// How long a leader that hands over waits for its calls in flight, and then for a standby to have everything.
const HAND_OVER: Duration = Duration::from_secs(5);
/// Connections of peers that wait for the server to take them from a relay.
const HANDED: usize = 64;

/// An instance that listens. Nothing is served before [`Self::run`].
#[derive(Debug)]
pub struct Instance {
    loaded: Loaded,
    beginning: Beginning,
    ha: HaSettings,
    directory: PathBuf,
    thrift: std::net::TcpListener,
    web: std::net::TcpListener,
    door: TcpListener,
    me: Leader,
    /// How an earlier process of this service ended, if this one continues from it.
    again: Option<Again>,
}

/// How an instance has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Stopped,
    /// It has led, and is to start again as a standby.
    Again(Again),
}

/// Why an instance starts again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// It has handed over.
    SteppedDown,
    /// It was fenced, for this reason.
    Fenced(String),
}

/// Why an instance has ended by itself.
#[derive(Debug, Error)]
pub enum InstanceFailure {
    /// It cannot lead.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It has led, and a part of it failed.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// A part of it panicked.
    #[error("{0} panicked")]
    Panicked(&'static str),
}

/// What a cluster manager takes over from the time when it was a standby.
pub(crate) struct Takeover {
    /// The copy of the last leader's journal; `None` to resume from the disk.
    pub(crate) opened: Option<Opened>,
    pub(crate) thrift: TcpListener,
    pub(crate) web: TcpListener,
    /// Connections of peers that other instances have passed on.
    pub(crate) handed: mpsc::Receiver<(TcpStream, SocketAddr)>,
    pub(crate) instance_role: Arc<InstanceRole>,
    pub(crate) ack: HaAck,
    /// Whether this is not the first process of the service: what the arguments say about the
    /// beginning was done by the first one.
    pub(crate) goes_on: bool,
}

impl Instance {
    /// Opens the ports. Must be called within a tokio runtime. `again` is how an earlier process of
    /// this service has ended, if this one continues from it.
    ///
    /// # Errors
    /// A port cannot be opened, or no instance is configured.
    pub fn bind(
        loaded: Loaded,
        beginning: Beginning,
        again: Option<Again>,
    ) -> Boxed<'static, Result<Instance, StartError>> {
        Box::pin(Instance::open(loaded, beginning, again))
    }

    async fn open(
        loaded: Loaded,
        beginning: Beginning,
        again: Option<Again>,
    ) -> Result<Instance, StartError> {
        let settings = &loaded.settings;
        let (Some(ha), Some(directory)) = (&settings.ha, &settings.journal.directory) else {
            return Err(StartError::NoInstance);
        };
        let (ha, directory) = (ha.clone(), absolute(directory));
        let refused = |key| CannotListen::at(key, &ha.address);
        let at = ListenOn::AnyAddress(ha.address.port);
        let at = match settings.interfaces {
            Interfaces::All => at,
            Interfaces::Loopback => {
                ListenOn::Address((Ipv4Addr::LOCALHOST, ha.address.port).into())
            }
        };
        let door = listen(at).map_err(refused(REPLICATION_ADDRESS))?;
        let (thrift, web) = (bind_thrift(settings)?, bind_web(settings).await?);
        let port = |listener: &TcpListener, key| {
            let address = listener.local_addr();
            address.map(|address| address.port()).map_err(refused(key))
        };
        let on_host = |port| corona_config::HostPort { port, ..ha.address.clone() }.to_string();
        let me = Leader {
            instance: on_host(port(&door, REPLICATION_ADDRESS)?),
            epoch: 0,
            thrift: on_host(port(&thrift, super::SERVER_ADDRESS)?),
            http: on_host(port(&web, HTTP_ADDRESS)?),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let plain = |listener: TcpListener, key| listener.into_std().map_err(refused(key));
        Ok(Instance {
            thrift: plain(thrift, super::SERVER_ADDRESS)?,
            web: plain(web, HTTP_ADDRESS)?,
            door,
            me,
            loaded,
            beginning,
            ha,
            directory,
            again,
        })
    }

    /// Where the Thrift service listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn thrift_address(&self) -> std::io::Result<SocketAddr> {
        self.thrift.local_addr()
    }

    /// Where the pages are.
    ///
    /// # Errors
    /// Those of the system.
    pub fn web_address(&self) -> std::io::Result<SocketAddr> {
        self.web.local_addr()
    }

    /// Stands by, and leads when it is its turn, until `stop` becomes true or it has led. `on_lead` gets
    /// the way to have the scheduling files read again.
    ///
    /// # Errors
    /// It cannot lead, or a part of it has failed.
    pub fn run(
        self,
        stop: watch::Receiver<bool>,
        on_lead: Box<dyn Fn(ReloadRequest) + Send>,
    ) -> Boxed<'static, Result<End, InstanceFailure>> {
        Box::pin(self.serve(stop, on_lead))
    }

    async fn serve(
        self,
        mut stop: watch::Receiver<bool>,
        on_lead: Box<dyn Fn(ReloadRequest) + Send>,
    ) -> Result<End, InstanceFailure> {
        let gate = Gate::open(&self.loaded.settings.tls).map_err(StartError::from)?;
        let (instance_role, orders) = InstanceRole::new(self.machine_settings());
        let mut tasks = Tasks::default();
        let (leader, leader_seen) = watch::channel(None);
        let (is_connected, connected) = watch::channel(false);
        let (is_led, led) = watch::channel(false);
        let (copy, copies) = watch::channel(copy_at_start(&self.directory));
        let (resign, resigned) = watch::channel(false);
        let election = Election {
            settings: self.ha.zookeeper.clone(),
            instance_role: instance_role.clone(),
            me: self.me.clone(),
            orders,
            leader,
            is_connected,
            is_led,
            copy: copies,
            resign: resigned,
        };
        let mut election = tokio::spawn(election.run());
        let (instances, leading) = (self.ha.instances.clone(), watch::Sender::new(None));
        let door = Arc::new(Door { instances, gate: gate.clone(), leading });
        let held = Arc::new(Held::default());
        let (end_standby, standby_ended) = watch::channel(false);
        let Instance { loaded, beginning, ha, directory, thrift, web, door: listener, me, again } =
            self;
        tasks.spawn(door.clone().serve(listener));
        tasks.spawn(gate.clone().maintain(stop.clone()));
        tasks.spawn(tick(instance_role.clone()));
        let copying = Copying {
            me: instance_role.me.clone(),
            started: Millis(corona_process::started_ms()),
            directory: directory.clone(),
            settings: loaded.settings.journal.clone(),
            patience: ha.zookeeper.session_timeout,
            leader: leader_seen.clone(),
            copy,
            held: held.clone(),
        };
        let copying = tokio::spawn(copying.run());
        let relays = Relays {
            leader: leader_seen.clone(),
            to: To::Instance,
            hold: ha.hold,
            max_connections: loaded.settings.wire.max_connections,
            counts: Arc::default(),
        };
        let fenced = fenced_until_connected(again.clone(), connected.clone(), &mut tasks);
        let view = StandbyView {
            instance: instance_role.me.clone(),
            leader: leader_seen,
            is_led: led,
            is_connected: connected,
            fenced,
            held: held.clone(),
            relayed: relays.counts.clone(),
        };
        let pages = StandbyPages::new(&loaded.settings, gate, move || view.status());
        let pages = tokio::spawn(serve(Arc::new(pages), again_of(&web)?, standby_ended.clone()));
        let relays = tokio::spawn(relays.accept(again_of(&thrift)?, standby_ended));
        let servers = &ha.zookeeper.servers;
        tracing::info!("Role is now standby; instance {}, ZooKeeper {servers}", me.instance);
        let epoch = match until_led(instance_role.phase(), &mut stop).await {
            Ok(epoch) => epoch,
            Err(why) => {
                end_of(&mut election, &ha.zookeeper).await;
                return Ok(End::Again(Again::Fenced(why.to_string())));
            }
        };
        end_standby.send_replace(true);
        copying.abort();
        let _ = copying.await;
        let opened = held.take(&directory);
        let Some(epoch) = epoch else {
            resign.send_replace(true);
            close(opened).await;
            election.abort();
            return Ok(End::Stopped);
        };
        // Connections that wait are passed on to this instance itself.
        let _still_relayed: JoinSet<()> =
            relays.await.map_err(|_| InstanceFailure::Panicked("the relay"))?;
        let _ = pages.await;
        let (handing, handed) = mpsc::channel(HANDED);
        let takeover = Takeover {
            opened,
            thrift: again_of(&thrift)?,
            web: again_of(&web)?,
            handed,
            instance_role: instance_role.clone(),
            ack: ha.ack,
            goes_on: again.is_some(),
        };
        let lead =
            Lead { instance_role, ha, door, handing, epoch, stop, on_lead, resign, election };
        lead.run(loaded, beginning, takeover).await
    }

    fn machine_settings(&self) -> Settings {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4);
        Settings {
            me: self.me.instance.as_str().into(),
            session_timeout_ms: ms(self.ha.zookeeper.session_timeout),
            ack: match self.ha.ack {
                HaAck::None => Ack::None,
                HaAck::Standby => Ack::Standby,
            },
            ack_timeout_ms: ms(self.ha.ack_timeout),
        }
    }
}

async fn tick(role: Arc<InstanceRole>) {
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        role.apply(Input::Tick);
    }
}

/// Waits until the instance leads, and returns its epoch, or `None` when it is to stop.
///
/// # Errors
/// It is fenced.
async fn until_led(
    mut phase: watch::Receiver<Phase>,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<u64>, FencedBecause> {
    let led = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return Ok(None),
        led = phase.wait_for(|phase| *phase != Phase::Standby) => led,
    };
    match led.map(|phase| *phase) {
        Ok(Phase::Leading(epoch)) => Ok(Some(epoch)),
        Ok(Phase::Fenced(why)) => Err(why),
        Ok(Phase::Standby) | Err(_) => Ok(None),
    }
}

/// Tasks that end with the instance.
#[derive(Default)]
struct Tasks(JoinSet<()>);

impl Tasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}

/// Another handle of a listener: what waits to be accepted stays when one of them is closed.
fn again_of(listener: &std::net::TcpListener) -> Result<TcpListener, StartError> {
    let again = listener.try_clone().and_then(TcpListener::from_std);
    Ok(again.map_err(CannotListen::at(super::SERVER_ADDRESS, &""))?)
}

/// Why this instance was fenced, until it has reached ZooKeeper again.
fn fenced_until_connected(
    again: Option<Again>,
    mut connected: watch::Receiver<bool>,
    tasks: &mut Tasks,
) -> watch::Receiver<Option<String>> {
    let why = match again {
        Some(Again::Fenced(why)) => Some(why),
        Some(Again::SteppedDown) | None => None,
    };
    let is_fenced = why.is_some();
    let (fenced, shown) = watch::channel(why);
    if is_fenced {
        tracing::warn!("Role is now fenced, until ZooKeeper is reached");
        tasks.spawn(async move {
            if connected.wait_for(|connected| *connected).await.is_ok() {
                tracing::info!("Role is now standby: ZooKeeper is reached again");
                fenced.send_replace(None);
            }
            // The value stays for those who look.
            std::future::pending::<()>().await;
        });
    }
    shown
}

/// The time as a leader.
struct Lead {
    instance_role: Arc<InstanceRole>,
    ha: HaSettings,
    door: Arc<Door>,
    handing: mpsc::Sender<(TcpStream, SocketAddr)>,
    epoch: u64,
    stop: watch::Receiver<bool>,
    on_lead: Box<dyn Fn(ReloadRequest) + Send>,
    resign: watch::Sender<bool>,
    election: JoinHandle<()>,
}

/// Why a leader ends.
enum EndOfTerm {
    /// The cluster manager has ended by itself.
    Ended(Result<Result<(), Failure>, tokio::task::JoinError>),
    Stop,
    StepDown,
    Fenced(FencedBecause),
}

impl Lead {
    async fn run(
        mut self,
        loaded: Loaded,
        beginning: Beginning,
        takeover: Takeover,
    ) -> Result<End, InstanceFailure> {
        let (resolver, disk) = (Resolver::system(), Disk::system());
        let binding = ClusterManager::bind_with(loaded, beginning, resolver, disk, Some(takeover));
        let mut phase = self.instance_role.phase();
        let bound = tokio::select! {
            biased;
            why = fenced(&mut phase) => return Ok(self.after_fence(why).await),
            bound = binding => bound,
        };
        let manager = match bound {
            Ok(manager) => manager,
            Err(error) => {
                self.leave().await;
                return Err(error.into());
            }
        };
        let journal = manager.journal().ok_or(StartError::NoInstance)?;
        let mut tasks = Tasks::default();
        tasks.spawn(report_commits(self.instance_role.clone(), journal.clone(), self.ha.ack));
        tasks.spawn(report_appended(self.instance_role.clone(), journal.clone()));
        let source = Source {
            instance_role: self.instance_role.clone(),
            epoch: self.epoch,
            journal: journal.clone(),
            max_lag_bytes: self.ha.max_lag_bytes,
            beat: self.ha.zookeeper.session_timeout / 6,
            piece_time: PIECE_TIME,
            copy_time: COPY_TIME,
            snapshots: Arc::default(),
        };
        self.door.lead(Some(Leading { source, handed: self.handing.clone() }));
        (self.on_lead)(manager.reload_request());
        let (end, ended) = watch::channel(false);
        let mut serving = tokio::spawn(manager.run(ended));
        let mut step_down = self.instance_role.step_down();
        let mut stop = self.stop.clone();
        let why = tokio::select! {
            biased;
            why = fenced(&mut phase) => EndOfTerm::Fenced(why),
            served = &mut serving => EndOfTerm::Ended(served),
            _ = stop.wait_for(|stop| *stop) => EndOfTerm::Stop,
            _ = step_down.wait_for(|wanted| *wanted) => EndOfTerm::StepDown,
        };
        match why {
            EndOfTerm::Fenced(why) => Ok(self.after_fence(why).await),
            EndOfTerm::Ended(served) => {
                // Another instance takes over at once. Each that may has what was acknowledged.
                self.leave().await;
                match served {
                    Ok(Ok(())) => Ok(End::Stopped),
                    Ok(Err(failure)) => Err(failure.into()),
                    Err(_) => Err(InstanceFailure::Panicked("the cluster manager")),
                }
            }
            EndOfTerm::Stop => {
                self.hand_over(serving, &end, &journal).await?;
                Ok(End::Stopped)
            }
            EndOfTerm::StepDown => {
                self.hand_over(serving, &end, &journal).await?;
                Ok(End::Again(Again::SteppedDown))
            }
        }
    }

    /// Gives the leadership up at once, so that nobody waits for the end of its session.
    async fn after_fence(&mut self, why: FencedBecause) -> End {
        end_of(&mut self.election, &self.ha.zookeeper).await;
        End::Again(Again::Fenced(why.to_string()))
    }

    /// Answers calls in flight, waits until a standby has everything, and gives the leadership up. If the disk
    /// hangs, calls in flight have no answer: their callers repeat them.
    async fn hand_over(
        &mut self,
        mut serving: JoinHandle<Result<(), Failure>>,
        end: &watch::Sender<bool>,
        journal: &Journal,
    ) -> Result<(), InstanceFailure> {
        tracing::info!("Handing over: answering calls in flight");
        end.send_replace(true);
        let Ok(served) = timeout(HAND_OVER, &mut serving).await else {
            tracing::warn!(
                "Calls in flight were not answered within {} s; handing over without their replies",
                HAND_OVER.as_secs()
            );
            self.leave().await;
            return Ok(());
        };
        if let Err(failure) =
            served.map_err(|_| InstanceFailure::Panicked("the cluster manager"))?
        {
            self.leave().await;
            return Err(failure.into());
        }
        let last = journal.status().appended;
        self.instance_role.apply(Input::Committed { number: last });
        let has_all = async {
            loop {
                let standbys = self.instance_role.standbys();
                let in_sync =
                    |of: &corona_standby::StandbyView| of.in_sync && of.acknowledged >= last;
                if standbys.is_empty() || standbys.iter().any(in_sync) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if timeout(HAND_OVER, has_all).await.is_err() {
            tracing::warn!("No standby has all records; it may take over without the last ones");
        }
        self.leave().await;
        Ok(())
    }

    async fn leave(&mut self) {
        self.resign.send_replace(true);
        end_of(&mut self.election, &self.ha.zookeeper).await;
        self.instance_role.apply(Input::SteppedDown);
    }
}

/// Closes the journal of a copy. What is written survives the process anyway.
async fn close(opened: Option<Opened>) {
    if let Some(opened) = opened {
        let _ = corona_process::panics::blocking(move || opened.journal.close()).await;
    }
}

/// Waits until the session with ZooKeeper is ended. One that cannot be ended ends by itself.
async fn end_of(election: &mut JoinHandle<()>, settings: &ZooKeeperSettings) {
    let _ = timeout(2 * zookeeper::leave_limit(settings), election).await;
}

async fn fenced(phase: &mut watch::Receiver<Phase>) -> FencedBecause {
    loop {
        if let Phase::Fenced(why) = *phase.borrow_and_update() {
            return why;
        }
        // The sender lives as long as the role, which its callers hold.
        let _ = phase.changed().await;
    }
}

/// Reports the committed records of the leader's own journal to the role machine.
async fn report_commits(instance_role: Arc<InstanceRole>, journal: Arc<Journal>, ack: HaAck) {
    let mut committed = journal.committed();
    loop {
        let number = *committed.borrow_and_update();
        instance_role.apply(Input::Committed { number });
        if ack == HaAck::None {
            // No reply waits for it.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if committed.changed().await.is_err() {
            return;
        }
    }
}

/// Reports what waits for the leader's own journal to the role machine.
async fn report_appended(instance_role: Arc<InstanceRole>, journal: Arc<Journal>) {
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        instance_role.apply(Input::Appended { number: journal.status().appended });
    }
}

/// `corona gateway`: passes connections of this machine on to whichever instance leads.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    settings: GatewaySettings,
}

impl Gateway {
    /// Opens the port. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(settings: GatewaySettings) -> std::io::Result<Gateway> {
        let address = (&*settings.address.host, settings.address.port);
        Ok(Gateway { listener: TcpListener::bind(address).await?, settings })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` becomes true.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let Some(zookeeper) = self.settings.zookeeper else { return };
        let (leader, seen) = watch::channel(None);
        let relays = Relays {
            leader: seen,
            to: To::Service,
            hold: self.settings.hold,
            max_connections: self.settings.max_connections,
            counts: Arc::default(),
        };
        tokio::select! {
            _ = relays.accept(self.listener, stop) => {}
            () = zookeeper::follow_leader(&zookeeper, &leader) => {}
        }
    }
}
