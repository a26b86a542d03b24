//! Which pages sessions have announced: the addresses that requests may be relayed to, and where the
//! job tracker of a job is. The cluster manager knows. Spec: mapreduce/08 §8.8.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use corona_config::HostPort;
use corona_wire::calls::{ClusterManager, ClusterManagerCall, ClusterManagerReply};
use corona_wire::client::{CallError, Client, ClientOptions};
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout};

/// For one question, from the wait for the connection to the reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// For all questions of one walk over the sessions.
const WALK: Duration = Duration::from_secs(20);
/// Between two walks.
const PAUSE: Duration = Duration::from_secs(1);
/// How long what a session has announced counts before it is asked for again.
const FRESH: Duration = Duration::from_secs(30);
/// Sessions that are asked about.
const MAX_SESSIONS: usize = 20_000;
/// The longest address that is kept, in bytes.
const MAX_URL: usize = 4096;

/// A host and a port of pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Target {
    /// The two parameters as browsers send them; none if they are not a host and a port.
    pub(super) fn of(host: &str, port: &str) -> Option<Target> {
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:%".contains(&byte);
        let fits = (1..=255).contains(&host.len()) && host.bytes().all(legal);
        fits.then(|| Target { host: host.to_ascii_lowercase(), port })
    }

    /// What an address that a session announces leads to: the job tracker behind a proxy job tracker,
    /// or the server that it names.
    fn of_url(url: &str) -> Option<Target> {
        let rest = url.strip_prefix("http://")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let parameter = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        if path == "proxy" {
            return Target::of(&parameter("host")?, &parameter("port")?);
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, "80"),
        };
        Target::of(host, port)
    }
}

/// What one session has announced.
#[derive(Clone, Debug)]
struct Announced {
    target: Option<Target>,
    asked: Instant,
}

/// What is known of the sessions of the cluster manager.
pub(super) struct Sessions {
    cluster_manager: HostPort,
    connection: tokio::sync::Mutex<Option<Client<ClusterManager>>>,
    known: Mutex<HashMap<String, Announced>>,
    /// When the last walk ended. Held during a walk.
    walked: tokio::sync::Mutex<Option<Instant>>,
}

impl Sessions {
    pub(super) fn new(cluster_manager: HostPort) -> Sessions {
        Sessions {
            cluster_manager,
            connection: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            walked: tokio::sync::Mutex::default(),
        }
    }

    /// Addresses that are known now.
    pub(super) fn count(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().filter(|announced| announced.target.is_some()).count()
    }

    /// The address of the pages of a session that runs; none if there is no such session, or the
    /// cluster manager does not answer.
    pub(super) async fn url(&self, handle: &str) -> Option<String> {
        let call = ClusterManagerCall::GetSessionInfo { handle: Some(handle.to_owned()) };
        let reply = self.ask(&call).await;
        let url = match reply {
            Ok(ClusterManagerReply::GetSessionInfo(info)) => info.url,
            Ok(_) => None,
            Err(error) => {
                tracing::info!(handle, error, "no information on a session");
                self.forget(handle);
                return None;
            }
        };
        let url = url.filter(|url| url.len() <= MAX_URL);
        let target = url.as_deref().and_then(Target::of_url);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_SESSIONS || known.contains_key(handle) {
            known.insert(handle.to_owned(), Announced { target, asked: Instant::now() });
        }
        url
    }

    /// Where to connect for this host and port: the address as a session has announced it, or none if
    /// no session has. `handle` is the session that is likely to have.
    pub(super) async fn announced(&self, target: &Target, handle: Option<&str>) -> Option<Target> {
        if let Some(found) = self.find(target).await {
            return Some(found);
        }
        if let Some(handle) = handle {
            self.url(handle).await;
            if let Some(found) = self.find(target).await {
                return Some(found);
            }
        }
        self.walk().await;
        self.find(target).await
    }

    async fn find(&self, target: &Target) -> Option<Target> {
        let candidates: Vec<Target> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let targets = known.values().filter_map(|announced| announced.target.as_ref());
            targets.filter(|other| other.port == target.port).take(64).cloned().collect()
        };
        if candidates.contains(target) {
            return Some(target.clone());
        }
        // Another name of the same machine.
        let wanted = addresses(target).await;
        for candidate in candidates {
            let found = addresses(&candidate).await;
            if found.iter().any(|ip| wanted.contains(ip)) {
                return Some(candidate);
            }
        }
        None
    }

    fn forget(&self, handle: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(handle);
    }

    /// Asks for all sessions and what they have announced, unless that has just been done.
    async fn walk(&self) {
        let mut walked = self.walked.lock().await;
        if walked.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        if timeout(WALK, self.walk_all()).await.is_err() {
            tracing::warn!("the cluster manager takes too long to describe its sessions");
        }
        *walked = Some(Instant::now());
    }

    async fn walk_all(&self) {
        let Ok(ClusterManagerReply::GetSessions(mut sessions)) =
            self.ask(&ClusterManagerCall::GetSessions).await
        else {
            return;
        };
        sessions.truncate(MAX_SESSIONS);
        let stale: Vec<String> = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let handles: std::collections::HashSet<&str> =
                sessions.iter().map(|session| &*session.handle).collect();
            known.retain(|handle, _| handles.contains(&**handle));
            let is_fresh = |handle: &str| {
                known.get(handle).is_some_and(|announced| {
                    announced.target.is_some() && announced.asked.elapsed() < FRESH
                })
            };
            let handles = handles.into_iter().filter(|handle| !is_fresh(handle));
            handles.map(str::to_owned).collect()
        };
        for handle in stale {
            self.url(&handle).await;
        }
    }

    /// Asks the cluster manager. The error is a text for the log.
    async fn ask(&self, call: &ClusterManagerCall) -> Result<ClusterManagerReply, String> {
        let asked = timeout(PATIENCE, async {
            let mut connection = self.connection.lock().await;
            // A connection may have been closed since the last question.
            for is_last in [false, true] {
                let mut client = match connection.take().filter(Client::is_usable) {
                    Some(client) => client,
                    None => self.connect().await?,
                };
                match client.call(call).await {
                    Ok(reply) => {
                        *connection = Some(client);
                        return Ok(reply);
                    }
                    Err(error @ (CallError::Exception(_) | CallError::Fault(_))) => {
                        *connection = Some(client);
                        return Err(error.to_string());
                    }
                    Err(error) if is_last => return Err(error.to_string()),
                    Err(_) => {}
                }
            }
            Err("no reply".to_owned())
        });
        asked.await.unwrap_or_else(|_| Err("the cluster manager does not answer".to_owned()))
    }

    async fn connect(&self) -> Result<Client<ClusterManager>, String> {
        let options = ClientOptions {
            connect_timeout: PATIENCE / 2,
            call_timeout: PATIENCE / 2,
            ..ClientOptions::default()
        };
        let address = (&*self.cluster_manager.host, self.cluster_manager.port);
        Client::connect(address, options).await.map_err(|error| error.to_string())
    }
}

async fn addresses(target: &Target) -> Vec<IpAddr> {
    let found = timeout(PATIENCE, lookup_host((&*target.host, target.port))).await;
    found.ok().and_then(Result::ok).into_iter().flatten().map(|address| address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_a_job_tracker() {
        let target = |host: &str, port| Some(Target { host: host.into(), port });
        for (url, expected) in [
            (
                "http://pjt:28337/proxy?host=VM&port=40791&path=coronajobdetails.jsp&jobid=j",
                target("vm", 40791),
            ),
            ("http://jt.example.com:50030/jobdetails.jsp?jobid=j", target("jt.example.com", 50030)),
            ("http://[::1]:81/x", target("::1", 81)),
            ("http://plain/x", target("plain", 80)),
            ("http://pjt:1/proxy?host=vm", None),
            ("https://jt:1/", None),
            ("javascript:alert(1)", None),
            ("http://a b:1/", None),
            ("http://:1/", None),
            ("http://h:0/", None),
            ("http://h:65536/", None),
        ] {
            assert_eq!(Target::of_url(url), expected, "{url}");
        }
    }
}
