//! What this instance is, shared by all its parts: the role machine, and where its effects go.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::lease::{self, Lease};
use corona_api::cluster as api;
use corona_model::types::Millis;
use corona_standby::{
    Effect, FencedBecause, Input, Machine, Role, Settings, StandbyView, Succession,
};

/// Where a leader is reached. It stands in ZooKeeper while it leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leader {
    /// Its name: the address at which other instances connect.
    pub(crate) instance: String,
    /// The number of the leadership.
    pub(crate) epoch: u64,
    /// Its Thrift service, as `host:port`.
    pub(crate) thrift: String,
    /// Its pages, as `host:port`.
    pub(crate) http: String,
    /// Its version, if it is one that reads more than the name of a standby; see [`Standby`].
    #[serde(default)]
    pub(crate) version: String,
}

/// A standby, as it presents itself to a leader. Leaders without a version in ZooKeeper take all of it for the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standby {
    pub(super) name: Arc<str>,
    /// Its version, and when it was started.
    pub(super) program: Option<(Arc<str>, Millis)>,
}

impl Standby {
    /// What is sent: the name, the version and the time of the start, with NULs between them.
    pub(super) fn write(&self) -> Vec<u8> {
        match &self.program {
            None => self.name.as_bytes().to_vec(),
            Some((version, started)) => {
                format!("{}\0{version}\0{}", self.name, started.0).into_bytes()
            }
        }
    }

    pub(super) fn read(sent: &[u8]) -> Standby {
        let sent = String::from_utf8_lossy(sent);
        let mut parts = sent.split('\0');
        let name = parts.next().unwrap_or_default().into();
        let program = parts.next().zip(parts.next().and_then(|started| started.parse().ok()));
        Standby {
            name,
            program: program.map(|(version, started)| (version.into(), Millis(started))),
        }
    }
}

/// The leader cannot hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no standby has a complete copy of the journal, so none may take over")]
pub(crate) struct NoStandby;

/// What this instance does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is a standby.
    Standby,
    /// It leads, with this epoch.
    Leading(u64),
    /// It has led, and must end.
    Fenced(FencedBecause),
}

/// Requests to ZooKeeper that may wait; the machine wants one at a time.
const MAX_ORDERS: usize = 16;

/// What ZooKeeper is to be asked for.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Campaign { version: Option<i32>, succession: Succession },
    Write { version: i32, succession: Succession },
}

/// What this instance is, and where the effects of its role machine go.
#[derive(Debug)]
pub(crate) struct InstanceRole {
    /// Its name.
    pub(crate) me: Arc<str>,
    inner: Mutex<Inner>,
    lease: Arc<Lease>,
    phase: watch::Sender<Phase>,
    released: watch::Sender<u64>,
    orders: mpsc::Sender<Order>,
    /// Whether the leader is to hand over.
    step_down: watch::Sender<bool>,
    /// The standbys that may take over from this leader.
    in_sync: watch::Sender<BTreeSet<Arc<str>>>,
}

#[derive(Debug)]
struct Inner {
    machine: Machine,
    /// The current connection of each standby.
    connections: HashMap<Arc<str>, Connection>,
    last_connection: u64,
}

/// Standbys that may be connected at a time.
const MAX_STANDBYS: usize = 16;

#[derive(Debug)]
struct Connection {
    number: u64,
    end: watch::Sender<bool>,
    progress: Arc<AtomicU64>,
    program: Option<(Arc<str>, Millis)>,
}

/// A connection of a standby that a leader serves.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) number: u64,
    /// Becomes true when the connection is to end.
    pub(super) ended: watch::Receiver<bool>,
    /// Bytes of its copy that the standby has taken; the largest number when that is complete.
    pub(super) progress: Arc<AtomicU64>,
}

impl InstanceRole {
    /// A standby, and what it wants of ZooKeeper.
    pub(super) fn new(settings: Settings) -> (Arc<InstanceRole>, mpsc::Receiver<Order>) {
        let (orders, wanted) = mpsc::channel(MAX_ORDERS);
        let instance_role = InstanceRole {
            me: settings.me.clone(),
            inner: Mutex::new(Inner {
                machine: Machine::new(settings),
                connections: HashMap::new(),
                last_connection: 0,
            }),
            lease: Arc::default(),
            phase: watch::Sender::new(Phase::Standby),
            released: watch::Sender::new(0),
            orders,
            step_down: watch::Sender::new(false),
            in_sync: watch::Sender::default(),
        };
        (Arc::new(instance_role), wanted)
    }

    /// Applies an input at the present time, and carries out what follows.
    pub(super) fn apply(&self, input: Input) {
        self.apply_to(&mut self.inner(), input);
    }

    fn apply_to(&self, inner: &mut Inner, input: Input) {
        let machine = &mut inner.machine;
        let is_written = matches!(input, Input::Written { .. });
        let effects = machine.apply(lease::now(), input);
        self.lease.set(machine.lease_until());
        if is_written {
            let in_sync = machine.standbys().into_iter().filter(|standby| standby.in_sync);
            self.in_sync.send_replace(in_sync.map(|standby| standby.name).collect());
        }
        for effect in effects {
            match effect {
                // There is one of each at a time. Without a receiver the process is about to end.
                Effect::Campaign { version, succession } => {
                    let _ = self.orders.try_send(Order::Campaign { version, succession });
                }
                Effect::Write { version, succession } => {
                    let names: Vec<&str> = succession.in_sync.iter().map(|name| &**name).collect();
                    tracing::info!("Instances that may lead next: {}", names.join(", "));
                    let _ = self.orders.try_send(Order::Write { version, succession });
                }
                Effect::Lead { epoch } => {
                    tracing::info!("Role is now leader, with epoch {epoch}");
                    self.phase.send_replace(Phase::Leading(epoch));
                }
                Effect::Release { number } => {
                    self.released.send_replace(number);
                }
                Effect::Slow { standby } => tracing::warn!(
                    "Standby {standby} delays calls; continuing without it until it has been fast for a while"
                ),
                Effect::Fast { standby } => {
                    tracing::info!("Standby {standby} has been fast for a while; it counts again");
                }
                Effect::Fence { why } => {
                    if why == FencedBecause::SteppedDown {
                        tracing::info!("Role is now fenced: {why}");
                    } else {
                        tracing::error!(
                            "Role is now fenced: {why}. Nothing leaves this process any more"
                        );
                    }
                    self.phase.send_replace(Phase::Fenced(why));
                }
            }
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.inner().machine.role()
    }

    /// The standbys that a leader knows.
    pub(crate) fn standbys(&self) -> Vec<StandbyView> {
        self.inner().machine.standbys()
    }

    pub(super) fn may_lead(&self, standby: &str) -> bool {
        self.inner().machine.may_lead(standby)
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// What the API serves of it.
    pub(crate) fn to_api(&self) -> api::HaStatus {
        let epoch = match *self.phase.borrow() {
            Phase::Leading(epoch) => epoch,
            Phase::Standby | Phase::Fenced(_) => 0,
        };
        let version_of = |name: &str| {
            let program = self.inner().connections.get(name)?.program.clone();
            program.map(|(version, _)| version.to_string())
        };
        let standby = |view: StandbyView| api::StandbyOfLeader {
            version: version_of(&view.name),
            instance: view.name.to_string(),
            acknowledged_record: view.acknowledged,
            in_sync: view.in_sync,
            slow: view.is_slow,
        };
        api::HaStatus {
            role: self.role().name().to_owned(),
            instance: self.me.to_string(),
            epoch,
            standbys: self.standbys().into_iter().map(standby).collect(),
        }
    }

    /// The versions of the standbys that are connected, and when each was started.
    pub(crate) fn programs(&self) -> Vec<(Arc<str>, Millis)> {
        self.inner().connections.values().filter_map(|of| of.program.clone()).collect()
    }

    /// Becomes true when the leader is to hand over.
    pub(crate) fn step_down(&self) -> watch::Receiver<bool> {
        self.step_down.subscribe()
    }

    /// Has the leader hand over, if a standby may take over.
    ///
    /// # Errors
    /// None may.
    pub(crate) fn request_step_down(&self) -> Result<(), NoStandby> {
        if !self.standbys().iter().any(|standby| standby.in_sync) {
            return Err(NoStandby);
        }
        self.step_down.send_replace(true);
        Ok(())
    }

    /// The standbys that may take over from this leader, as ZooKeeper has them.
    pub(crate) fn in_sync(&self) -> watch::Receiver<BTreeSet<Arc<str>>> {
        self.in_sync.subscribe()
    }

    /// How far replies may leave, where they wait for standbys.
    pub(crate) fn released(&self) -> watch::Receiver<u64> {
        self.released.subscribe()
    }

    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Takes note of a connection of a standby, and ends an earlier one. Nothing of an earlier one counts
    /// from now on. If too many are connected, the one that has taken least of its copy is ended; `None` if all
    /// have theirs.
    pub(super) fn connected(&self, standby: &Standby) -> Option<Connected> {
        let Standby { name: standby, program } = standby;
        let (end, ended) = watch::channel(false);
        let mut inner = self.inner();
        if inner.connections.len() >= MAX_STANDBYS && !inner.connections.contains_key(standby) {
            let of = |(name, one): (&Arc<str>, &Connection)| {
                (one.progress.load(Ordering::Relaxed), one.number, name.clone())
            };
            let (taken, _, least) = inner.connections.iter().map(of).min()?;
            if taken == u64::MAX {
                return None;
            }
            inner.connections.remove(&least)?.end.send_replace(true);
            self.apply_to(&mut inner, Input::Gone { standby: least });
        }
        inner.last_connection += 1;
        let number = inner.last_connection;
        let progress = Arc::<AtomicU64>::default();
        let connection =
            Connection { number, end, progress: progress.clone(), program: program.clone() };
        if let Some(earlier) = inner.connections.insert(standby.clone(), connection) {
            earlier.end.send_replace(true);
        }
        self.apply_to(&mut inner, Input::Gone { standby: standby.clone() });
        Some(Connected { number, ended, progress })
    }

    /// Applies what came on a connection of a standby, if that is still the current one.
    pub(super) fn apply_from(&self, standby: &Arc<str>, connection: u64, input: Input) {
        let mut inner = self.inner();
        if inner.is_current(standby, connection) {
            self.apply_to(&mut inner, input);
        }
    }

    /// The connection of a standby has ended.
    pub(super) fn disconnected(&self, standby: &Arc<str>, connection: u64) {
        let mut inner = self.inner();
        if inner.is_current(standby, connection) {
            inner.connections.remove(standby);
            self.apply_to(&mut inner, Input::Gone { standby: standby.clone() });
        }
    }

    /// The connections that there are, and the number of all that there have been.
    #[cfg(test)]
    pub(super) fn connections(&self) -> (usize, u64) {
        let inner = self.inner();
        (inner.connections.len(), inner.last_connection)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_current(&self, standby: &str, connection: u64) -> bool {
        self.connections.get(standby).is_some_and(|current| current.number == connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier leaders take all that they get for the name.
    #[test]
    fn a_standby_says_more_only_to_a_leader_that_reads_it() {
        let program = Some(("0.2.0".into(), Millis(7)));
        let standby = Standby { name: "h:1".into(), program };
        assert_eq!(standby.write(), b"h:1\x000.2.0\x007");
        assert_eq!(Standby::read(&standby.write()), standby);
        let plain = Standby { program: None, ..standby };
        assert_eq!(plain.write(), b"h:1");
        for sent in [&b"h:1"[..], b"h:1\0", b"h:1\x000.2.0", b"h:1\x000.2.0\0x"] {
            assert_eq!(Standby::read(sent), plain, "{sent:?}");
        }
        // The leader of an earlier version names none in ZooKeeper.
        let earlier = r#"{"instance":"h:2","epoch":3,"thrift":"h:4","http":"h:5"}"#;
        assert_eq!(serde_json::from_str::<Leader>(earlier).unwrap().version, "");
    }
}
