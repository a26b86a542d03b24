//! Which pages sessions have announced: the addresses that requests may be relayed to, and where the
//! job tracker of a job is. The cluster manager knows. Spec: mapreduce/08 §8.8.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use corona_config::HostPort;
use corona_web::exchange::Parameters;
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
/// How long an announcement of a session is valid before it is requested again.
const FRESH: Duration = Duration::from_secs(30);
/// Sessions that are asked about.
const MAX_SESSIONS: usize = 20_000;
/// Announced addresses that are looked at for one request.
const MAX_CANDIDATES: usize = 64;
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
        Place::of_url(url).map(|place| place.target)
    }
}

/// A page of a job tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) target: Target,
    /// Its path without the first slash.
    pub(super) path: String,
    pub(super) query: Parameters,
}

impl Place {
    /// The page that an address leads to, by itself or through a proxy job tracker. None if it is not an
    /// address of HTTP.
    pub(super) fn of_url(url: &str) -> Option<Place> {
        let rest = url.strip_prefix("http://").filter(|rest| rest.bytes().all(is_visible))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => (authority, "80"),
        };
        let (path, query) = split_query(path);
        if path == "proxy" {
            let target = Target::of(query.get("host")?, query.get("port")?)?;
            let path = query.get("path").unwrap_or_default().trim_start_matches('/').to_owned();
            let query = query.with(&[("host", ""), ("port", ""), ("path", "")]);
            return Some(Place { target, path, query });
        }
        Some(Place { target: Target::of(host, port)?, path, query })
    }

    /// The page that a redirect of a job tracker leads to.
    pub(super) fn of_redirect(from: &Target, location: &str) -> Option<Place> {
        // A path on another host, without the scheme.
        if location.starts_with("//") {
            return Place::of_url(&format!("http:{location}"));
        }
        let has_scheme = location.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
        if has_scheme {
            return Place::of_url(location);
        }
        let (path, query) = split_query(location);
        let is_path = !location.is_empty() && location.bytes().all(is_visible);
        is_path.then(|| Place { target: from.clone(), path, query })
    }
}

/// Whether a byte may stand in an address. No others reach a request line.
fn is_visible(byte: u8) -> bool {
    byte.is_ascii_graphic()
}

fn split_query(path: &str) -> (String, Parameters) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    (path.trim_start_matches('/').to_owned(), Parameters::parse(query.as_bytes()))
}

/// What one session has announced.
#[derive(Clone, Debug)]
struct Announced {
    target: Option<Target>,
    /// The host of the session, by its own address, which the cluster manager calls.
    host: String,
    asked: Instant,
}

/// What is known of the sessions of the cluster manager.
pub(super) struct Sessions {
    cluster_manager: HostPort,
    /// Hosts to which requests are relayed wherever the session is; `*` for all.
    hosts: Vec<Box<str>>,
    connection: tokio::sync::Mutex<Option<Client<ClusterManager>>>,
    known: Mutex<HashMap<String, Announced>>,
    /// When the last walk ended. Held during a walk.
    walked: tokio::sync::Mutex<Option<Instant>>,
}

impl Sessions {
    pub(super) fn new(cluster_manager: HostPort, hosts: Vec<Box<str>>) -> Sessions {
        Sessions {
            cluster_manager,
            hosts,
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
        let (url, host) = match reply {
            Ok(ClusterManagerReply::GetSessionInfo(info)) => (info.url, info.address.host),
            Ok(_) => (None, String::new()),
            Err(error) => {
                tracing::info!(handle, error, "cannot look up session");
                self.forget(handle);
                return None;
            }
        };
        let url = url.filter(|url| url.len() <= MAX_URL);
        let target = url.as_deref().and_then(Target::of_url);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_SESSIONS || known.contains_key(handle) {
            known.insert(handle.to_owned(), Announced { target, host, asked: Instant::now() });
        }
        url
    }

    /// Where to connect for this host and port: the address as a session on that host has announced
    /// it, or none if no session has. `handle` is the session that is likely to have.
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
        let candidates: Vec<(Target, String)> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let all = known.values().filter_map(|announced| {
                let own = announced.target.as_ref().filter(|own| own.port == target.port)?;
                Some((own.clone(), announced.host.clone()))
            });
            // Those of that name first: there may be many others at the port.
            let (named, others): (Vec<_>, Vec<_>) = all.partition(|(own, _)| own == target);
            named.into_iter().chain(others).take(MAX_CANDIDATES).collect()
        };
        // It may be another name of the same machine.
        let mut wanted = None;
        for (candidate, session) in candidates {
            let is_same = candidate == *target || {
                let found = addresses(&candidate).await;
                let wanted = match &wanted {
                    Some(wanted) => wanted,
                    None => wanted.insert(addresses(target).await),
                };
                found.iter().any(|ip| wanted.contains(ip))
            };
            if is_same && self.is_on(&candidate, session).await {
                return Some(candidate);
            }
        }
        None
    }

    /// Whether pages are where their session is: nobody makes this program ask servers elsewhere.
    async fn is_on(&self, pages: &Target, session: String) -> bool {
        let is_own = |host: &str| host.eq_ignore_ascii_case(&pages.host);
        let mut further = self.hosts.iter().map(|host| &**host);
        if is_own(&session) || further.any(|host| host == "*" || is_own(host)) {
            return true;
        }
        let session = Target { host: session, port: pages.port };
        let (own, of_session) = (addresses(pages).await, addresses(&session).await);
        // All loopback addresses are of this machine: nodes of one machine have one each.
        let is_here = |ips: &[IpAddr]| ips.iter().any(IpAddr::is_loopback);
        let is_on =
            own.iter().any(|ip| of_session.contains(ip)) || (is_here(&own) && is_here(&of_session));
        if !is_on {
            tracing::info!(
                %pages,
                session = session.host,
                "refused to relay to pages on another host than their session \
                 (corona.pjt.relay.hosts)"
            );
        }
        is_on
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
            ("http://jt:1/\rx", None),
        ] {
            assert_eq!(Target::of_url(url), expected, "{url}");
        }
    }

    #[test]
    fn a_redirect_leads_to_a_page() {
        let from = Target { host: "parent".into(), port: 80 };
        let place = |host: &str, port, path: &str, query: &str| {
            let (path, query) = (path.to_owned(), Parameters::parse(query.as_bytes()));
            Some(Place { target: Target { host: host.into(), port }, path, query })
        };
        for (location, expected) in [
            ("/a.jsp?x=1", place("parent", 80, "a.jsp", "x=1")),
            ("a.jsp", place("parent", 80, "a.jsp", "")),
            ("a.jsp?to=http://x/", place("parent", 80, "a.jsp", "to=http://x/")),
            ("http://remote:81/a.jsp?x=1", place("remote", 81, "a.jsp", "x=1")),
            ("http://remote:81?x=1", place("remote", 81, "", "x=1")),
            ("//remote:81/a.jsp", place("remote", 81, "a.jsp", "")),
            (
                "http://pjt:1/proxy?host=remote&port=81&path=a.jsp&jobid=j",
                place("remote", 81, "a.jsp", "jobid=j"),
            ),
            ("http://pjt:1/proxy?host=remote", None),
            ("https://remote/a.jsp", None),
            ("javascript:alert(1)", None),
            ("", None),
            ("/a\rb", None),
            ("/a\r\nX: y", None),
            ("/a b", None),
            ("http://remote:81/\u{202e}", None),
        ] {
            assert_eq!(Place::of_redirect(&from, location), expected, "{location:?}");
        }
    }

    #[tokio::test]
    async fn pages_on_another_host_than_their_session_are_not_relayed() {
        let pages = Target { host: "127.0.0.1".into(), port: 81 };
        for (session, further, is_found) in [
            ("127.0.0.1", "", true),
            // Another name of the same machine.
            ("localhost", "", true),
            ("127.0.0.2", "", true),
            ("192.0.2.1", "", false),
            ("no-such-host.invalid", "", false),
            ("", "", false),
            ("*", "", false),
            ("192.0.2.1", "127.0.0.1", true),
            ("192.0.2.1", "*", true),
            ("192.0.2.1", "elsewhere", false),
        ] {
            let nobody = HostPort { host: "127.0.0.1".into(), port: 1 };
            let sessions = Sessions::new(nobody, vec![further.into()]);
            let (target, host) = (Some(pages.clone()), session.to_owned());
            let announced = Announced { target, host, asked: Instant::now() };
            sessions.known.lock().unwrap().insert("1.1".into(), announced);
            let found = sessions.find(&pages).await;
            assert_eq!(found.is_some(), is_found, "{session} {further}");
        }
    }
}
