//! Options of a session: its identity, the addresses of its peers, and its timeouts. Plain data.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::types::{PoolName, SessionPriority};
use corona_wire::server::{Gate, Limits};

/// Where a server listens, as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Host name or literal address, without the brackets that IPv6 has in text.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Endpoint {
    /// This port of this host.
    pub fn new(host: impl Into<String>, port: u16) -> Endpoint {
        Endpoint { host: host.into(), port }
    }

    /// The addresses that sockets take.
    pub(super) fn pair(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The text is not `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not host:port")]
pub struct EndpointError(pub String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let error = || EndpointError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().map_err(|_| error())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if host.is_empty() || (bare.is_none() && host.contains(':')) {
            return Err(error());
        }
        Ok(Endpoint::new(host, port))
    }
}

/// The version of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramVersion {
    /// As the program prints it.
    pub version: String,
    /// When it was started: milliseconds since the Unix epoch.
    pub started_ms: i64,
}

/// A session to be started. [`Options::new`] has the original's defaults; set the fields that differ.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The cluster manager's Thrift service, `cm.server.address`.
    pub cluster_manager: Endpoint,
    /// The proxy job tracker's Thrift service, `corona.proxy.job.tracker.thriftaddr`. It knows when
    /// the cluster manager is down on purpose, and until when it need not be asked. Without one, a
    /// cluster manager in safe mode is asked again after each [`Timers::poll_interval`].
    pub proxy_job_tracker: Option<Endpoint>,
    /// Name for people. By default `<user>@<host>:<port>-<date>` with the address for
    /// notifications, as the original's.
    pub name: Option<String>,
    /// The user.
    pub user: String,
    /// The pool. The cluster manager may put the session into another one, see
    /// [`SessionDriver::pool`](super::SessionDriver::pool).
    pub pool: PoolName,
    /// Priority within the pool.
    pub priority: SessionPriority,
    /// A page about the session.
    pub url: Option<String>,
    /// When the session's work should be done, in milliseconds since the Unix epoch; matters in pools
    /// that order by deadline. A Java session never sends one.
    pub deadline_ms: Option<i64>,
    /// Whether its grants should not be taken back for others. The original ignores it.
    pub no_preempt: bool,
    /// Whether a request is released by itself when its grant is taken back or its node dies. The
    /// cluster manager counts it until then. Without it, the ids are the caller's to release.
    pub release_lost: bool,
    /// Whether [`Lost::request`](super::Lost::request) has only the id and the type of a request: for an owner
    /// with very many requests that knows by itself what they were.
    pub outline_requests: bool,
    /// The program that has the session, which a cluster manager of Corona shows.
    pub program: Option<ProgramVersion>,
    /// How patient the session is.
    pub timers: Timers,
    /// How much may wait.
    pub bounds: Bounds,
    /// The listener for notifications. Only for [`SessionDriver::start`](super::SessionDriver::start):
    /// a session of a [`DriverHost`](super::DriverHost) uses the host's listener.
    pub listen: Listen,
}

impl Options {
    /// A session of this user at this cluster manager, in the pool `default.defaultpool`, with
    /// normal priority.
    pub fn new(cluster_manager: Endpoint, user: impl Into<String>) -> Options {
        Options {
            cluster_manager,
            proxy_job_tracker: None,
            name: None,
            user: user.into(),
            pool: PoolName::new("default", "defaultpool"),
            priority: SessionPriority::Normal,
            url: None,
            deadline_ms: None,
            no_preempt: false,
            release_lost: true,
            outline_requests: false,
            program: None,
            timers: Timers::default(),
            bounds: Bounds::default(),
            listen: Listen::default(),
        }
    }
}

/// How patient a session is. Spec: cluster-manager/05 §6, 06 §2.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timers {
    /// Between heartbeats. The original's is an eighth of `cm.session.expiryinterval`, which by
    /// default is 3,125,000 ms; see [`Timers::for_session_expiry`].
    pub heartbeat_interval: Duration,
    /// Pause after a call that failed; each further one is twice as long, up to
    /// [`Timers::longest_pause`]. `cm.notifier.pollinterval`, 1000 ms.
    pub poll_interval: Duration,
    /// The longest pause between two attempts, so that a cluster manager that is back soon hears of
    /// the session. 5 s.
    pub longest_pause: Duration,
    /// How long a session that starts waits for a cluster manager that does not answer. The
    /// original makes seven attempts without a pause; here it is 60 s.
    pub start_timeout: Duration,
    /// For a connection to the cluster manager, and for an answer.
    /// `corona.sessiondriver.cm.client.timeout`, 300 s.
    pub client_timeout: Duration,
    /// For a connection to the proxy job tracker, and for an answer. The original waits forever.
    pub proxy_timeout: Duration,
    /// Between questions to the proxy job tracker whether safe mode is over: 1000 ms.
    pub safe_mode_poll: Duration,
    /// How long the end of a session is delivered, from
    /// [`SessionDriver::end`](super::SessionDriver::end) or the drop of the driver. After that the
    /// session is left to expire. 30 s; `Duration::MAX` is as long as it takes. The original makes
    /// one attempt.
    pub end_timeout: Duration,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            heartbeat_interval: Duration::from_millis(3_125_000 / 8),
            poll_interval: Duration::from_millis(1000),
            longest_pause: Duration::from_secs(5),
            start_timeout: Duration::from_secs(60),
            client_timeout: Duration::from_secs(300),
            proxy_timeout: Duration::from_secs(10),
            safe_mode_poll: Duration::from_millis(1000),
            end_timeout: Duration::from_secs(30),
        }
    }
}

impl Timers {
    /// The defaults for a cluster whose sessions expire after this time without a heartbeat.
    pub fn for_session_expiry(expiry: Duration) -> Timers {
        let heartbeat_interval = (expiry / 8).max(Duration::from_millis(1));
        Timers { heartbeat_interval, ..Timers::default() }
    }
}

/// How much may wait. Each session has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Notifications that the caller has not taken yet. With more the cluster manager is answered
    /// only when there is room. `corona.sessiondriver.max.incoming.queue.size`, 1000; at least 1.
    pub max_incoming: usize,
    /// Calls that wait to be made. With more, requests of the caller are refused, and no
    /// notification is taken out. At least 1.
    pub max_outgoing: usize,
    /// Requests, or ids to release, in one call to the cluster manager; more are cut into several
    /// calls. At least 1.
    pub max_ids_per_call: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { max_incoming: 1000, max_outgoing: 10_000, max_ids_per_call: 10_000 }
    }
}

/// The listener for notifications, and the address that the cluster manager receives for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listen {
    /// The address to listen on. Without one, the address from which this machine reaches the
    /// cluster manager. The original takes the address of the local host's name.
    pub address: Option<IpAddr>,
    /// The port; 0 is any free one.
    pub port: u16,
    /// The host that the cluster manager receives, if it differs from the listener's.
    pub advertised_host: Option<String>,
    /// Limits on callers.
    pub limits: CallerLimits,
    /// How long an answer is held back while a session's queue is full, before the connection is
    /// closed. The cluster manager gives up an unanswered call after its own
    /// `cm.server.sotimeout`, 60 s by default.
    pub max_reply_delay: Duration,
    /// Lets callers in.
    pub gate: Arc<Gate>,
}

impl Default for Listen {
    fn default() -> Listen {
        Listen {
            address: None,
            port: 0,
            advertised_host: None,
            limits: CallerLimits::default(),
            max_reply_delay: Duration::from_secs(60),
            gate: Gate::off(),
        }
    }
}

/// Limits on those who connect to the listener for notifications. A caller that exceeds one is
/// disconnected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallerLimits {
    /// Bytes of one notification. 16 MiB.
    pub max_call_bytes: usize,
    /// Connections open at once. 10,000.
    pub max_connections: usize,
    /// Bytes of one connection that have arrived and are not handled. 32 MiB; at least twice
    /// `max_call_bytes`.
    pub max_pending_bytes: usize,
    /// The same bytes of all connections together. 256 MiB.
    pub max_total_pending_bytes: usize,
    /// How long a connection may be silent between notifications. `cm.server.sotimeout`, 60 s.
    pub idle_timeout: Duration,
    /// How long a notification may take to arrive once it has begun. 60 s.
    pub call_timeout: Duration,
}

impl Default for CallerLimits {
    fn default() -> CallerLimits {
        CallerLimits {
            max_call_bytes: 16 << 20,
            max_connections: 10_000,
            max_pending_bytes: 32 << 20,
            max_total_pending_bytes: 256 << 20,
            idle_timeout: Duration::from_secs(60),
            call_timeout: Duration::from_secs(60),
        }
    }
}

impl CallerLimits {
    pub(super) fn to_wire(&self) -> Limits {
        Limits {
            max_frame_bytes: self.max_call_bytes,
            max_connections: self.max_connections,
            max_inflight_bytes: self.max_pending_bytes,
            max_total_inflight_bytes: self.max_total_pending_bytes,
            idle_timeout: self.idle_timeout,
            frame_timeout: self.call_timeout,
            ..Limits::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written_alike() {
        for (text, host, port) in [
            ("localhost:1", "localhost", 1),
            ("10.0.0.1:65535", "10.0.0.1", 65535),
            ("[::1]:80", "::1", 80),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint, Endpoint::new(host, port));
            assert_eq!(endpoint.to_string(), text);
        }
        for text in ["", "host", ":1", "[]:1", "host:", "host:65536", "host:-1", "::1:80", "h:1:2"]
        {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn heartbeats_come_eight_times_in_an_expiry_interval() {
        let interval = |expiry_ms| {
            Timers::for_session_expiry(Duration::from_millis(expiry_ms)).heartbeat_interval
        };
        assert_eq!(interval(3_125_000), Timers::default().heartbeat_interval);
        assert_eq!(interval(8000), Duration::from_secs(1));
        assert_eq!(interval(0), Duration::from_millis(1));
    }
}
