//! Looks up and caches the racks of hosts, outside the engine.
//!
//! Spec: cluster-manager/03 §3, 06 §6. Resolving names and running the topology script take time:
//! only calls that name new hosts wait for it. No lock is held meanwhile. Heartbeats and requests
//! have separate look-ups, each peer has a quota of them, a call waits at most for the time limit,
//! and its look-ups end when it is dropped.

use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::names::{NameError, Names, Resolver};
use super::translate::calls::HostRack;
use corona_config::{NameSettings, RackSettings, Topology};
use corona_engine::DEFAULT_RACK;
use corona_net::peer_of;
use corona_net::permits::Permits;

/// Hosts whose racks are remembered; with more, all are looked up again.
const MAX_REMEMBERED: usize = 1_000_000;
/// Bytes of the script's answer that are read.
const MAX_SCRIPT_OUTPUT: u64 = 16 << 20;
/// How long an address that was found for a rack is used again: racks themselves are remembered.
const KEEP_ADDRESSES: Duration = Duration::from_secs(30);

/// The way from hosts to racks.
#[derive(Clone, Debug)]
pub(super) struct Racks {
    shared: Arc<RackCache>,
    heartbeats: Lane,
    requests: Lane,
}

#[derive(Debug)]
struct RackCache {
    topology: Topology,
    known: Mutex<HashMap<Arc<str>, Arc<str>>>,
    limits: RackSettings,
}

/// The look-ups for one kind of call.
#[derive(Clone, Debug)]
struct Lane {
    names: Arc<Names>,
    scripts: Arc<Permits<IpAddr>>,
}

/// The purpose for which racks are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A new node.
    Heartbeat,
    /// The hosts that requests prefer.
    Request,
}

/// The racks of some hosts, as far as they can be had at once.
#[derive(Debug)]
pub(super) enum KnownRacks {
    /// Those that are not the default rack, sorted by host.
    All(Vec<HostRack>),
    /// Some have to be looked up: these are all hosts.
    NotAll(BTreeSet<Arc<str>>),
}

/// The look-ups of one call.
#[derive(Debug)]
pub(super) struct Search {
    shared: Arc<RackCache>,
    lane: Lane,
    peer: IpAddr,
    due: Option<Instant>,
    names_left: usize,
}

/// Why a rack is not known.
#[derive(Clone, Debug, Error)]
pub(super) enum RackError {
    #[error("the topology script {script} {what}")]
    Script { script: String, what: String },
    #[error("{0:?} is not a host name: it has a slash")]
    Slash(Arc<str>),
    #[error("the rack {rack:?} of {host} does not start with a slash")]
    Relative { host: Arc<str>, rack: String },
    #[error("the racks of its hosts were not found within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error(
        "it names more than {0} hosts whose racks are not known yet \
         (corona.cm.racks.max.names.per.call)"
    )]
    TooMany(usize),
    #[error(transparent)]
    Name(#[from] NameError),
}

impl Racks {
    pub(super) fn new(topology: Topology, limits: RackSettings, resolver: &Resolver) -> Racks {
        let RackSettings { max_lookups, max_lookups_per_peer, timeout, .. } = limits;
        let lane = || {
            let names =
                NameSettings { max_lookups, max_lookups_per_peer, timeout, keep: KEEP_ADDRESSES };
            Lane {
                names: Names::new(&names, resolver.clone()),
                scripts: Permits::new(max_lookups, max_lookups_per_peer),
            }
        };
        let (heartbeats, requests) = (lane(), lane());
        let shared = Arc::new(RackCache { topology, known: Mutex::default(), limits });
        Racks { shared, heartbeats, requests }
    }

    /// Racks that are known or can be computed.
    pub(super) fn known<'a>(
        &self,
        mut hosts: impl Iterator<Item = &'a Arc<str>>,
    ) -> Result<KnownRacks, RackError> {
        let shared = &*self.shared;
        if shared.topology == Topology::DefaultRack {
            // Nothing is looked up then, but a host with a slash is refused as ever.
            return hosts
                .find(|host| host.contains('/'))
                .map_or(Ok(KnownRacks::All(Vec::new())), |host| {
                    Err(RackError::Slash(host.clone()))
                });
        }
        let hosts: BTreeSet<Arc<str>> = hosts.cloned().collect();
        let mut racks = Vec::with_capacity(hosts.len());
        let mut known = shared.known();
        for host in &hosts {
            let rack = match known.get(host) {
                Some(rack) => rack.clone(),
                None => {
                    if host.contains('/') {
                        return Err(RackError::Slash(host.clone()));
                    }
                    let Some(rack) = shared.computed(host) else {
                        return Ok(KnownRacks::NotAll(hosts));
                    };
                    let (host, rack) = normalised(host, rack)?;
                    remember(&mut known, host, rack.clone());
                    rack
                }
            };
            if &*rack != DEFAULT_RACK {
                racks.push((host.clone(), rack));
            }
        }
        Ok(KnownRacks::All(racks))
    }

    /// Remembers the racks of hosts that were found elsewhere. Hosts that are not among those found, which
    /// are sorted, are in the default rack.
    pub(super) fn remember_found(&self, hosts: BTreeSet<Arc<str>>, found: &[HostRack]) {
        let mut known = self.shared.known();
        for host in hosts {
            let place = found.binary_search_by(|(name, _)| name.cmp(&host)).ok();
            let rack = place.and_then(|place| found.get(place)).map(|(_, rack)| rack.clone());
            remember(&mut known, host, rack.unwrap_or_else(|| DEFAULT_RACK.into()));
        }
    }

    /// The look-ups of a call that comes from `peer`; its time begins now.
    pub(super) fn search(&self, purpose: Purpose, peer: IpAddr) -> Search {
        let limits = &self.shared.limits;
        let lane = match purpose {
            Purpose::Heartbeat => &self.heartbeats,
            Purpose::Request => &self.requests,
        };
        Search {
            shared: self.shared.clone(),
            lane: lane.clone(),
            peer: peer_of(peer),
            due: Instant::now().checked_add(limits.timeout),
            names_left: limits.max_names_per_call,
        }
    }

    /// Racks of those hosts that are not in the default rack, sorted by host, however many there are
    /// and however long it takes. Each single look-up has the time limit of a call.
    pub(super) async fn of_all<'a>(
        &self,
        hosts: impl Iterator<Item = &'a Arc<str>>,
    ) -> Result<Vec<HostRack>, RackError> {
        let unspecified = std::net::Ipv4Addr::UNSPECIFIED.into();
        match self.known(hosts)? {
            KnownRacks::All(racks) => Ok(racks),
            KnownRacks::NotAll(hosts) => {
                let search = self.search(Purpose::Request, unspecified);
                let mut search = Search { due: None, names_left: usize::MAX, ..search };
                search.racks_of(hosts).await
            }
        }
    }
}

impl Search {
    /// Racks of those hosts that are not in the default rack, sorted by host.
    pub(super) async fn racks_of(
        &mut self,
        hosts: BTreeSet<Arc<str>>,
    ) -> Result<Vec<HostRack>, RackError> {
        let unknown: Vec<Arc<str>> = {
            let known = self.shared.known();
            hosts.iter().filter(|host| !known.contains_key(*host)).cloned().collect()
        };
        if let Some(host) = unknown.iter().find(|host| host.contains('/')) {
            return Err(RackError::Slash(host.clone()));
        }
        self.names_left = self
            .names_left
            .checked_sub(unknown.len())
            .ok_or(RackError::TooMany(self.shared.limits.max_names_per_call))?;
        let finding = self.find(&unknown);
        let found = match self.due {
            Some(due) => timeout_at(due, finding)
                .await
                .unwrap_or(Err(RackError::TimedOut(self.shared.limits.timeout)))?,
            None => finding.await?,
        };
        let known = self.shared.known();
        let racks = hosts.into_iter().filter_map(|host| {
            let rack = found.get(&host).or_else(|| known.get(&host))?.clone();
            (&*rack != DEFAULT_RACK).then_some((host, rack))
        });
        Ok(racks.collect())
    }

    /// Looks these hosts up, several at a time. Results are cached at once, so that a repeat of a
    /// failed call does not start from scratch.
    async fn find(&self, hosts: &[Arc<str>]) -> Result<HashMap<Arc<str>, Arc<str>>, RackError> {
        let together = match &self.shared.topology {
            Topology::Script { args_per_call, .. } => (*args_per_call).max(1),
            _ => 1,
        };
        let mut waiting = hosts.chunks(together);
        let mut running = JoinSet::new();
        let mut found = HashMap::with_capacity(hosts.len());
        loop {
            while running.len() < self.shared.limits.max_lookups_per_peer
                && let Some(hosts) = waiting.next()
            {
                let (shared, lane) = (self.shared.clone(), self.lane.clone());
                running.spawn(shared.look_up(lane, self.peer, hosts.to_vec()));
            }
            match running.join_next().await {
                None => return Ok(found),
                Some(Ok(racks)) => found.extend(racks?),
                Some(Err(error)) => return ended(error).await,
            }
        }
    }
}

impl RackCache {
    /// The rack of a host that needs no look-up; `None` for others.
    fn computed(&self, host: &str) -> Option<Option<String>> {
        match &self.topology {
            Topology::DefaultRack => Some(None),
            Topology::Static { racks } => Some(racks.get(host).map(|rack| rack.to_string())),
            Topology::Ipv4Truncation { .. } | Topology::Ipv6Truncation { .. } => {
                host.parse().ok().map(|address| self.truncated(address))
            }
            Topology::Script { .. } => None,
        }
    }

    fn truncated(&self, address: IpAddr) -> Option<String> {
        match &self.topology {
            Topology::Ipv4Truncation { header } => ipv4_rack(header, address),
            Topology::Ipv6Truncation { header } => Some(ipv6_rack(header, address)),
            _ => None,
        }
    }

    /// Looks hosts up together.
    async fn look_up(
        self: Arc<Self>,
        lane: Lane,
        peer: IpAddr,
        mut hosts: Vec<Arc<str>>,
    ) -> Result<Vec<HostRack>, RackError> {
        match &self.topology {
            Topology::Script { path, .. } => {
                let arguments = addresses_or_names(&lane.names, peer, &hosts).await?;
                let _permit = lane.scripts.take(peer).await;
                // Another call may have found them meanwhile.
                let (mut found, mut asked) = (Vec::new(), Vec::new());
                {
                    let known = self.known();
                    for (host, argument) in hosts.iter().zip(arguments) {
                        match known.get(host) {
                            Some(rack) => found.push((host.clone(), rack.clone())),
                            None => asked.push((host.clone(), argument)),
                        }
                    }
                }
                let (unknown, arguments): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
                let answer = match arguments.is_empty() {
                    true => Vec::new(),
                    false => run_script(path, &arguments, self.limits.timeout)
                        .await
                        .map_err(|what| RackError::Script { script: show(path), what })
                        .inspect_err(|error| tracing::warn!("{error}"))?,
                };
                hosts = unknown;
                self.remember(&hosts, answer.into_iter().map(Some), found)
            }
            _ => {
                let mut racks = Vec::with_capacity(hosts.len());
                for host in &hosts {
                    racks.push(match lane.names.addresses(host, peer).await {
                        Ok(addresses) => addresses.first().and_then(|ip| self.truncated(*ip)),
                        Err(error @ NameError::TimedOut { .. }) => return Err(error.into()),
                        Err(_) => None,
                    });
                }
                self.remember(&hosts, racks.into_iter(), Vec::new())
            }
        }
    }

    fn remember(
        &self,
        hosts: &[Arc<str>],
        racks: impl Iterator<Item = Option<String>>,
        mut found: Vec<HostRack>,
    ) -> Result<Vec<HostRack>, RackError> {
        let mut known = self.known();
        for (host, rack) in hosts.iter().zip(racks) {
            let (host, rack) = normalised(host, rack)?;
            remember(&mut known, host.clone(), rack.clone());
            found.push((host, rack));
        }
        Ok(found)
    }

    /// No panic happens while the lock is held.
    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<str>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(known: &mut HashMap<Arc<str>, Arc<str>>, host: Arc<str>, rack: Arc<str>) {
    if known.len() >= MAX_REMEMBERED {
        known.clear();
    }
    known.insert(host, rack);
}

/// A task that has panicked, or that ends with the executor.
async fn ended<T>(error: JoinError) -> T {
    match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => pending().await,
    }
}

/// The script's arguments for these hosts: their addresses, or the names of hosts without one.
async fn addresses_or_names(
    names: &Arc<Names>,
    peer: IpAddr,
    hosts: &[Arc<str>],
) -> Result<Vec<String>, NameError> {
    let mut arguments: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
    let mut lookups = JoinSet::new();
    for (place, (host, argument)) in hosts.iter().zip(&mut arguments).enumerate() {
        if let Ok(address) = host.parse::<IpAddr>() {
            *argument = address.to_string();
            continue;
        }
        let (names, host) = (names.clone(), host.clone());
        lookups.spawn(async move { (place, names.addresses(&host, peer).await) });
    }
    while let Some(found) = lookups.join_next().await {
        match found {
            Ok((place, Ok(addresses))) => {
                if let (Some(argument), Some(address)) =
                    (arguments.get_mut(place), addresses.first())
                {
                    *argument = address.to_string();
                }
            }
            Ok((_, Err(error @ NameError::TimedOut { .. }))) => return Err(error),
            Ok((_, Err(_))) => {}
            Err(error) => return ended(error).await,
        }
    }
    Ok(arguments)
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// A rack starts with a slash and does not end with one.
fn normalised(host: &Arc<str>, rack: Option<String>) -> Result<HostRack, RackError> {
    let rack = rack.unwrap_or_else(|| DEFAULT_RACK.to_owned());
    if !rack.is_empty() && !rack.starts_with('/') {
        return Err(RackError::Relative { host: host.clone(), rack });
    }
    Ok((host.clone(), rack.strip_suffix('/').unwrap_or(&rack).into()))
}

fn ipv4_rack(header: &str, address: IpAddr) -> Option<String> {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Some(format!("{header}{a}.{b}.{c}"))
        }
        IpAddr::V6(_) => None,
    }
}

fn ipv6_rack(header: &str, address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{header}{a}.{b}.{c}")
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{header}{a:04x}:{b:04x}:{c:04x}:{d:04x}::")
        }
    }
}

/// One run of the script: it is given addresses and answers with as many racks.
async fn run_script(
    script: &Path,
    arguments: &[String],
    limit: Duration,
) -> Result<Vec<String>, String> {
    let run = async {
        let mut child = Command::new(script)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot be run: {error}"))?;
        let mut answer = String::new();
        if let Some(stdout) = child.stdout.take() {
            let read = stdout.take(MAX_SCRIPT_OUTPUT).read_to_string(&mut answer).await;
            read.map_err(|error| format!("has an unreadable answer: {error}"))?;
        }
        let status = child.wait().await.map_err(|error| format!("cannot be awaited: {error}"))?;
        if !status.success() {
            return Err(format!("failed with {status}"));
        }
        Ok(answer)
    };
    let answer = timeout(limit, run)
        .await
        .map_err(|_| format!("did not end within {} ms", limit.as_millis()))??;
    let racks: Vec<String> = answer.split_whitespace().map(str::to_owned).collect();
    let expected = arguments.len();
    if racks.len() != expected {
        return Err(format!("returned {} values when {expected} were expected", racks.len()));
    }
    Ok(racks)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;
    use corona_net::testing::{soon, until};

    fn limits() -> RackSettings {
        RackSettings {
            max_lookups: 4,
            max_lookups_per_peer: 2,
            timeout: Duration::from_secs(600),
            max_names_per_call: 100,
        }
    }

    fn by(topology: Topology) -> Racks {
        Racks::new(topology, limits(), &Resolver::system())
    }

    fn peer(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    async fn look_up(
        racks: &Racks,
        (purpose, peer): (Purpose, IpAddr),
        hosts: &[&str],
    ) -> Result<Vec<(String, String)>, RackError> {
        let hosts: Vec<Arc<str>> = hosts.iter().map(|host| Arc::from(*host)).collect();
        let found = match racks.known(hosts.iter())? {
            KnownRacks::All(found) => found,
            KnownRacks::NotAll(hosts) => racks.search(purpose, peer).racks_of(hosts).await?,
        };
        Ok(found.into_iter().map(|(host, rack)| (host.to_string(), rack.to_string())).collect())
    }

    async fn racks(racks: &Racks, hosts: &[&str]) -> Result<Vec<(String, String)>, RackError> {
        look_up(racks, (Purpose::Request, peer(1)), hosts).await
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(host, rack)| (host.to_string(), rack.to_string())).collect()
    }

    /// A topology script with this body.
    fn script(dir: &Path, body: &str, args_per_call: usize) -> Topology {
        let path = dir.join("racks");
        write_script(&path, body);
        Topology::Script { path, args_per_call }
    }

    fn write_script(path: &Path, body: &str) {
        fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn addresses_are_truncated() {
        let v4 = by(Topology::Ipv4Truncation { header: "/".into() });
        let found = racks(&v4, &["192.168.3.7", "10.1.1.1", "::1"]).await.unwrap();
        assert_eq!(found, pairs(&[("10.1.1.1", "/10.1.1"), ("192.168.3.7", "/192.168.3")]));
        let v6 = by(Topology::Ipv6Truncation { header: "/x/".into() });
        let found = racks(&v6, &["2001:db8:0:1::9", "10.1.1.1"]).await.unwrap();
        let expected = [("10.1.1.1", "/x/10.1.1"), ("2001:db8:0:1::9", "/x/2001:0db8:0000:0001::")];
        assert_eq!(found, pairs(&expected));
        let none = by(Topology::DefaultRack);
        assert_eq!(racks(&none, &["192.168.3.7", "a"]).await.unwrap(), []);
        for any in [v4, none] {
            assert!(matches!(racks(&any, &["10.1.1.1", "a/b"]).await, Err(RackError::Slash(_))));
        }
    }

    #[tokio::test]
    async fn names_are_resolved_or_are_in_the_default_rack() {
        let resolver = Resolver::new(|host| match host {
            "a" => Ok(vec![[10, 1, 1, 1].into()]),
            _ => Err(std::io::Error::other("no such host")),
        });
        let topology = Topology::Ipv4Truncation { header: "/".into() };
        let v4 = Racks::new(topology, limits(), &resolver);
        let found = racks(&v4, &["a", "absent", "10.2.2.2"]).await.unwrap();
        assert_eq!(found, pairs(&[("10.2.2.2", "/10.2.2"), ("a", "/10.1.1")]));
        let table = [("a".into(), "/t".into())].into();
        let by_table = Racks::new(Topology::Static { racks: table }, limits(), &resolver);
        assert_eq!(racks(&by_table, &["a", "b"]).await.unwrap(), pairs(&[("a", "/t")]));
    }

    #[tokio::test]
    async fn a_script_is_asked_once_for_each_host() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let body =
            format!("echo \"$@\" >> {}\nfor host; do echo /rack/$host/; done", log.display());
        let by_script = by(script(dir.path(), &body, 2));
        for _ in 0..2 {
            let found = racks(&by_script, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await.unwrap();
            assert_eq!(found[2], ("10.0.0.3".to_owned(), "/rack/10.0.0.3".to_owned()));
        }
        let log = fs::read_to_string(log).unwrap();
        let mut runs: Vec<_> = log.lines().collect();
        runs.sort_unstable();
        assert_eq!(runs, ["10.0.0.1 10.0.0.2", "10.0.0.3"]);
    }

    #[tokio::test]
    async fn a_failing_script_is_named_and_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("racks");
        let by_script = by(Topology::Script { path: path.clone(), args_per_call: 9 });
        let error = racks(&by_script, &["10.0.0.1"]).await.unwrap_err().to_string();
        assert!(error.contains("cannot be run"), "{error}");
        for (body, part) in [("exit 3", "exit status: 3"), ("echo /a /b", "returned 2 values")] {
            write_script(&path, body);
            let error = racks(&by_script, &["10.0.0.1"]).await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    /// Answers for every host but those in 10.9, with which it hangs; it notes its process.
    fn hanging(dir: &Path) -> (Topology, PathBuf) {
        let notes = dir.join("runs");
        let body = format!(
            "echo $$ >> {}\ncase $1 in 10.9.*) exec sleep 600;; esac\nfor host; do echo /r; done",
            notes.display()
        );
        (script(dir, &body, 1), notes)
    }

    fn runs(notes: &Path) -> Vec<String> {
        fs::read_to_string(notes).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn slow_look_ups_delay_neither_other_peers_nor_new_nodes() {
        let dir = tempfile::tempdir().unwrap();
        let (topology, notes) = hanging(dir.path());
        let by_script = by(topology);
        let slow: Vec<String> = (0..50).map(|number| format!("10.9.0.{number}")).collect();
        let attackers: Vec<_> = (0..10)
            .flat_map(|_| [Purpose::Request, Purpose::Heartbeat])
            .map(|purpose| {
                let (by_script, slow) = (by_script.clone(), slow.clone());
                tokio::spawn(async move {
                    let slow: Vec<&str> = slow.iter().map(String::as_str).collect();
                    look_up(&by_script, (purpose, peer(1)), &slow).await
                })
            })
            .collect();
        until("the attacker's part is used", || runs(&notes).len() == 4).await;
        for purpose in [Purpose::Request, Purpose::Heartbeat] {
            for number in 2..9 {
                let host = format!("10.{number}.0.{}", purpose as u8);
                let hosts = [&*host];
                let found = look_up(&by_script, (purpose, peer(number)), &hosts);
                let found = soon(found).await.unwrap();
                assert_eq!(found, pairs(&[(&host, "/r")]));
            }
        }
        let by_attacker = runs(&notes)[..4].to_vec();
        let exists = |run: &String| Path::new("/proc").join(run).exists();
        assert!(by_attacker.iter().all(exists));
        // When their callers go, so do their scripts.
        for attacker in &attackers {
            attacker.abort();
        }
        until("the scripts are ended", || !by_attacker.iter().any(exists)).await;
        assert_eq!(runs(&notes).len(), 4 + 14, "nothing was started after that");
    }

    #[tokio::test]
    async fn a_call_has_a_bound_on_names_and_on_time() {
        let dir = tempfile::tempdir().unwrap();
        let (topology, _) = hanging(dir.path());
        let limits =
            RackSettings { max_names_per_call: 2, timeout: Duration::from_millis(500), ..limits() };
        let by_script = Racks::new(topology, limits, &Resolver::system());
        let hosts: Vec<Arc<str>> = ["10.1.0.1", "10.1.0.2", "10.1.0.3"].map(Arc::from).to_vec();
        let mut search = by_script.search(Purpose::Request, peer(1));
        search.racks_of(hosts[..2].iter().cloned().collect()).await.unwrap();
        let error = search.racks_of(hosts[2..].iter().cloned().collect()).await.unwrap_err();
        assert!(error.to_string().contains("more than 2 hosts"), "{error}");
        // Those that are known do not count.
        racks(&by_script, &["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"]).await.unwrap();
        let error = racks(&by_script, &["10.1.0.5", "10.9.0.1"]).await.unwrap_err();
        assert!(matches!(error, RackError::TimedOut(_) | RackError::Script { .. }), "{error}");
        let known = by_script.known([Arc::from("10.1.0.5")].iter()).unwrap();
        assert!(matches!(known, KnownRacks::All(_)), "what was found is remembered: {known:?}");
        // A start from a state file has no such bounds.
        let many: Vec<Arc<str>> = (0..20).map(|n| format!("10.3.0.{n}").into()).collect();
        assert_eq!(by_script.of_all(many.iter()).await.unwrap().len(), 20);
    }
}
