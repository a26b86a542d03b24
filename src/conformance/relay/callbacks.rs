//! Sits between the cluster manager and session drivers: which listener of the relay belongs to
//! which driver, and the changed addresses in messages.
//!
//! A session names its driver's address in `sessionStart`. The manager receives the address of a
//! listener instead, one for each driver, and when it returns that address, the real one is
//! restored. Spec: cluster-manager/01 §4, 05 §1. A driver that is not on the host of its session
//! has no listener; the manager receives its own address.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::guard::Guard;
use super::pump::{Transform, Transforms};
use crate::capture::Side;
use corona_net::{ListenOn, listen};
use corona_wire::Service;
use corona_wire::calls::ClusterManager;
use corona_wire::editor::{Edit, FrameEditor};
use corona_wire::value::{Message, MessageKind, Value};

/// Where a session driver listens, in the words of its session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RelayedDriver {
    pub(super) host: String,
    pub(super) port: u16,
    /// From where its session connects.
    pub(super) session: IpAddr,
}

/// A listener that is to be served: its connections go to the driver.
pub(super) struct Stand {
    pub(super) driver: RelayedDriver,
    pub(super) listener: TcpListener,
    /// Its sender is dropped to close the listener.
    pub(super) open: watch::Receiver<()>,
}

/// How listeners come and go.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// The address that listeners are opened on.
    pub(super) listen_on: IpAddr,
    /// The host that the cluster manager receives instead of the driver's; none for the relay's
    /// local address on the way to it.
    pub(super) host: Option<String>,
    /// Listeners at a time.
    pub(super) max_listeners: usize,
    /// How long a listener stays when its last session has ended.
    pub(super) linger: Duration,
    /// How long a listener stays without calls of its sessions.
    pub(super) idle: Duration,
}

/// Sessions that are followed at a time.
const MAX_SESSIONS: usize = 65_536;

/// The longest session handle that is followed, in bytes.
const MAX_HANDLE_BYTES: usize = 256;

/// Frames that are larger pass without being looked at, in bytes. Each connection may hold one.
const MAX_FRAME_BYTES: usize = 256 << 10;

/// All listeners for callbacks.
pub(super) struct CallbackListeners {
    rules: Rules,
    guard: Arc<Guard>,
    stands: mpsc::Sender<Stand>,
    table: Mutex<DriverTable>,
}

#[derive(Default)]
struct DriverTable {
    by_driver: HashMap<RelayedDriver, Entry>,
    by_port: HashMap<u16, RelayedDriver>,
    by_session: HashMap<String, RelayedDriver>,
}

struct Entry {
    port: u16,
    sessions: HashSet<String>,
    /// The last call of its sessions, or the last callback.
    heard_at: Instant,
    /// When its last session ended; none while one runs.
    ended_at: Option<Instant>,
    /// Dropped to close the listener.
    _open: watch::Sender<()>,
}

impl CallbackListeners {
    /// New listeners are handed to `stands`.
    pub(super) fn new(rules: Rules, guard: Arc<Guard>, stands: mpsc::Sender<Stand>) -> Arc<Self> {
        Arc::new(CallbackListeners { rules, guard, stands, table: Mutex::default() })
    }

    /// The editor for the messages of one connection of `client` with the cluster manager, which the
    /// relay reaches from `own` address.
    pub(super) fn transforms(self: &Arc<Self>, own: IpAddr, client: IpAddr) -> Transforms {
        let host = self.rules.host.clone().unwrap_or_else(|| own.to_string());
        let rewriter = |from, methods| -> Option<Box<dyn Transform>> {
            Some(Box::new(Rewriter {
                callbacks: Arc::clone(self),
                host: host.clone(),
                client,
                from,
                editor: FrameEditor::new(ClusterManager::schema(), methods, MAX_FRAME_BYTES),
            }))
        };
        Transforms {
            from_client: rewriter(Side::Client, CALLS),
            from_server: rewriter(Side::Server, ANSWERS),
        }
    }

    /// A callback has come for a driver.
    pub(super) fn heard(&self, driver: &RelayedDriver) {
        if let Some(entry) = self.table().by_driver.get_mut(driver) {
            entry.heard_at = Instant::now();
        }
    }

    /// Closes listeners that are no longer needed.
    pub(super) fn sweep(&self) {
        let Rules { linger, idle, .. } = self.rules;
        let mut table = self.table();
        let over: Vec<RelayedDriver> = table
            .by_driver
            .iter()
            .filter(|(_, entry)| {
                let ended = entry.ended_at.is_some_and(|ended_at| ended_at.elapsed() >= linger);
                ended || entry.heard_at.elapsed() >= idle
            })
            .map(|(driver, _)| driver.clone())
            .collect();
        over.iter().for_each(|driver| table.remove(driver));
    }

    /// Listeners that are open.
    #[cfg(test)]
    pub(super) fn listeners(&self) -> usize {
        self.table().by_driver.len()
    }

    fn table(&self) -> MutexGuard<'_, DriverTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port of the listener for a driver, which is opened if there is none.
    fn port_for(&self, driver: &RelayedDriver, handle: &str) -> io::Result<u16> {
        let mut table = self.table();
        if !table.by_driver.contains_key(driver) {
            while table.by_driver.len() >= self.rules.max_listeners.max(1) {
                table.remove_stalest();
            }
            let listener = listen(ListenOn::Address(SocketAddr::new(self.rules.listen_on, 0)))?;
            let port = listener.local_addr()?.port();
            let (keep_open, open) = watch::channel(());
            let stand = Stand { driver: driver.clone(), listener, open };
            self.stands.try_send(stand).map_err(io::Error::other)?;
            table.by_port.insert(port, driver.clone());
            let entry = Entry {
                port,
                sessions: HashSet::new(),
                heard_at: Instant::now(),
                ended_at: None,
                _open: keep_open,
            };
            table.by_driver.insert(driver.clone(), entry);
        }
        Ok(table.started(driver, handle))
    }
}

impl DriverTable {
    /// A session has named this as its driver. Returns the listener's port.
    fn started(&mut self, driver: &RelayedDriver, handle: &str) -> u16 {
        if let Some(before) = self.by_session.get(handle).filter(|before| *before != driver)
            && let Some(entry) = self.by_driver.get_mut(before)
        {
            entry.sessions.remove(handle);
        }
        let follow = handle.len() <= MAX_HANDLE_BYTES
            && (self.by_session.len() < MAX_SESSIONS || self.by_session.contains_key(handle));
        if follow {
            self.by_session.insert(handle.to_owned(), driver.clone());
        }
        let Some(entry) = self.by_driver.get_mut(driver) else { return 0 };
        if follow {
            entry.sessions.insert(handle.to_owned());
        }
        entry.heard_at = Instant::now();
        entry.ended_at = None;
        entry.port
    }

    fn heard(&mut self, handle: &str) {
        let driver = self.by_session.get(handle);
        if let Some(entry) = driver.and_then(|driver| self.by_driver.get_mut(driver)) {
            entry.heard_at = Instant::now();
        }
    }

    fn ended(&mut self, handle: &str) {
        let Some(driver) = self.by_session.remove(handle) else { return };
        if let Some(entry) = self.by_driver.get_mut(&driver) {
            entry.sessions.remove(handle);
            entry.ended_at = entry.sessions.is_empty().then(Instant::now);
        }
    }

    fn remove(&mut self, driver: &RelayedDriver) {
        if let Some(entry) = self.by_driver.remove(driver) {
            self.by_port.remove(&entry.port);
            for handle in entry.sessions {
                self.by_session.remove(&handle);
            }
        }
    }

    /// Of the host with the most listeners, so that no host loses one to another host that opens
    /// many.
    fn remove_stalest(&mut self) {
        let mut of_host: HashMap<IpAddr, usize> = HashMap::new();
        for driver in self.by_driver.keys() {
            *of_host.entry(driver.session).or_default() += 1;
        }
        let stalest = self.by_driver.iter().min_by_key(|(driver, entry)| {
            let listeners = of_host.get(&driver.session).copied().unwrap_or_default();
            (Reverse(listeners), entry.ended_at.is_none(), entry.heard_at)
        });
        if let Some(driver) = stalest.map(|(driver, _)| driver.clone()) {
            tracing::warn!(
                "the limit of session drivers is reached; no longer relaying callbacks to {}:{}",
                driver.host,
                driver.port
            );
            self.remove(&driver);
        }
    }
}

/// Calls of clients that are looked at.
const CALLS: &[&str] =
    &["sessionStart", "sessionUpdateInfo", "sessionEnd", "sessionHeartbeat", "sessionHeartbeatV2"];

/// Calls whose replies contain the address of a session driver.
const ANSWERS: &[&str] = &["getSessionInfo"];

/// One direction of a connection with the cluster manager.
struct Rewriter {
    callbacks: Arc<CallbackListeners>,
    /// The host that the cluster manager receives.
    host: String,
    /// Where the client is.
    client: IpAddr,
    from: Side,
    editor: FrameEditor,
}

impl Transform for Rewriter {
    fn pass(&mut self, read: &[u8], send: &mut Vec<u8>) {
        let Rewriter { callbacks, host, client, from, editor } = self;
        editor.pass(read, send, &mut |message| match from {
            Side::Client => callbacks.edit_call(message, host, *client),
            Side::Server => callbacks.edit_answer(message),
        });
    }

    fn finish(&mut self, send: &mut Vec<u8>) {
        self.editor.finish(send);
    }
}

impl CallbackListeners {
    fn edit_call(&self, message: &Message, host: &str, client: IpAddr) -> Vec<Edit> {
        let Ok(body) = &message.body else { return vec![] };
        let Some(Value::String(handle)) = body.field("handle") else { return vec![] };
        let address = || body.field("info").and_then(|info| info.field("address"));
        let said = || {
            let (host, port) = address().and_then(host_and_port)?;
            Some(RelayedDriver { host, port, session: client.to_canonical() })
        };
        let port = match (message.name.as_str(), message.kind) {
            (_, MessageKind::Reply | MessageKind::Exception) => return vec![],
            ("sessionStart", _) => said()
                .filter(|driver| self.is_allowed(driver, handle))
                .map(|driver| self.port_for(&driver, handle)),
            ("sessionUpdateInfo", _) => {
                self.table().heard(handle);
                let known = |driver| self.table().by_driver.get(&driver).map(|entry| entry.port);
                said().and_then(known).map(Ok)
            }
            ("sessionEnd", _) => {
                self.table().ended(handle);
                None
            }
            _ => {
                self.table().heard(handle);
                None
            }
        };
        match port {
            Some(Ok(port)) => {
                let (of_host, of_port): (&'static [&str], &'static [&str]) =
                    (&["info", "address", "host"], &["info", "address", "port"]);
                edits(of_host, host, of_port, port)
            }
            Some(Err(error)) => {
                tracing::error!("callbacks of session {handle} are not relayed: {error}");
                vec![]
            }
            None => vec![],
        }
    }

    fn edit_answer(&self, message: &Message) -> Vec<Edit> {
        let address = message.body.as_ref().ok().and_then(|body| body.field("success"));
        let told = address.and_then(|info| info.field("address")).and_then(host_and_port);
        let Some((host, port)) = told.filter(|_| message.kind == MessageKind::Reply) else {
            return vec![];
        };
        let real = self.table().by_port.get(&port).cloned();
        let Some(real) = real.filter(|_| self.is_own(&host)) else { return vec![] };
        edits(
            &["success", "address", "host"],
            &real.host,
            &["success", "address", "port"],
            real.port,
        )
    }

    /// Whether a driver may have a listener, as far as can be decided without a look-up. Names are
    /// looked up when a callback comes.
    fn is_allowed(&self, driver: &RelayedDriver, handle: &str) -> bool {
        let Ok(address) = driver.host.parse::<IpAddr>() else { return true };
        let allowed = self.guard.may_have_driver_at(driver.session, address);
        if !allowed {
            tracing::warn!(
                "callbacks of session {handle} are not relayed: its driver {address} is not on the \
                 session's host {} (--callback-drivers allows others)",
                driver.session
            );
        }
        allowed
    }

    /// Whether the manager may have received this host from the relay.
    fn is_own(&self, host: &str) -> bool {
        match &self.rules.host {
            Some(own) => own == host,
            None => host.parse::<IpAddr>().is_ok(),
        }
    }
}

fn host_and_port(address: &Value) -> Option<(String, u16)> {
    let (Value::String(host), Value::I32(port)) = (address.field("host")?, address.field("port")?)
    else {
        return None;
    };
    let port = u16::try_from(*port).ok().filter(|port| *port != 0)?;
    Some((host.clone(), port))
}

fn edits(
    path_of_host: &'static [&'static str],
    host: &str,
    path_of_port: &'static [&'static str],
    port: u16,
) -> Vec<Edit> {
    vec![
        Edit { path: path_of_host, value: Value::String(host.to_owned()) },
        Edit { path: path_of_port, value: Value::I32(i32::from(port)) },
    ]
}
