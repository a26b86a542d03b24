//! Finds the racks of hosts, outside the engine, and remembers them.
//!
//! Spec: cluster-manager/03 §3, 06 §6. Resolving names and running the topology script take time:
//! only calls that name hosts not seen before wait for it.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use corona_config::Topology;
use corona_engine::DEFAULT_RACK;

/// Hosts whose racks are remembered; with more, all are asked for again.
const MAX_REMEMBERED: usize = 1_000_000;
/// How long one run of the script may take.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of the script's answer that are read.
const MAX_SCRIPT_OUTPUT: u64 = 16 << 20;

/// A host with its rack.
pub(super) type HostRack = (Arc<str>, Arc<str>);

/// The way from hosts to racks.
#[derive(Debug)]
pub(super) struct Racks {
    topology: Topology,
    known: Mutex<HashMap<Arc<str>, Arc<str>>>,
    /// Held while racks are asked for, so that the same host is asked for once.
    asking: tokio::sync::Mutex<()>,
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
}

impl Racks {
    pub(super) fn new(topology: Topology) -> Racks {
        Racks { topology, known: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// Racks of those hosts that are not in the default rack, sorted by host.
    pub(super) async fn of(
        &self,
        mut hosts: impl Iterator<Item = &Arc<str>> + Send,
    ) -> Result<Vec<HostRack>, RackError> {
        if self.topology == Topology::DefaultRack {
            // Nothing is asked then, but a host with a slash is refused as ever.
            return hosts
                .find(|host| host.contains('/'))
                .map_or(Ok(Vec::new()), |host| Err(RackError::Slash(host.clone())));
        }
        let hosts: BTreeSet<Arc<str>> = hosts.cloned().collect();
        if let Some(racks) = self.remembered(&hosts) {
            return Ok(racks);
        }
        let _one_at_a_time = self.asking.lock().await;
        let unknown: Vec<Arc<str>> = {
            let known = self.known();
            hosts.iter().filter(|host| !known.contains_key(*host)).cloned().collect()
        };
        let found = self.ask(&unknown).await?;
        self.remember(found.clone());
        let mut racks: HashMap<Arc<str>, Arc<str>> = found.into_iter().collect();
        let known = self.known();
        let all = hosts.into_iter().filter_map(|host| {
            let rack = racks.remove(&host).or_else(|| known.get(&host).cloned())?;
            (&*rack != DEFAULT_RACK).then_some((host, rack))
        });
        Ok(all.collect())
    }

    /// `None` if one of the hosts is not known yet.
    fn remembered(&self, hosts: &BTreeSet<Arc<str>>) -> Option<Vec<HostRack>> {
        let known = self.known();
        let mut racks = Vec::with_capacity(hosts.len());
        for host in hosts {
            let rack = known.get(host)?;
            if &**rack != DEFAULT_RACK {
                racks.push((host.clone(), rack.clone()));
            }
        }
        Some(racks)
    }

    fn remember(&self, found: Vec<HostRack>) {
        let mut known = self.known();
        if known.len() + found.len() > MAX_REMEMBERED {
            known.clear();
        }
        known.extend(found.into_iter().take(MAX_REMEMBERED));
    }

    async fn ask(&self, hosts: &[Arc<str>]) -> Result<Vec<HostRack>, RackError> {
        if let Some(host) = hosts.iter().find(|host| host.contains('/')) {
            return Err(RackError::Slash(host.clone()));
        }
        let mut racks = Vec::with_capacity(hosts.len());
        match &self.topology {
            Topology::DefaultRack => {}
            Topology::Static { racks: table } => {
                racks.extend(hosts.iter().map(|host| table.get(host).map(|rack| rack.to_string())));
            }
            Topology::Ipv4Truncation { header } => {
                for host in hosts {
                    racks.push(address_of(host).await.and_then(|ip| ipv4_rack(header, ip)));
                }
            }
            Topology::Ipv6Truncation { header } => {
                for host in hosts {
                    racks.push(address_of(host).await.map(|ip| ipv6_rack(header, ip)));
                }
            }
            Topology::Script { path, args_per_call } => {
                for chunk in hosts.chunks((*args_per_call).max(1)) {
                    let answer = run_script(path, chunk).await;
                    let answer = answer
                        .map_err(|what| RackError::Script { script: show(path), what })
                        .inspect_err(|error| tracing::warn!("{error}"))?;
                    racks.extend(answer.into_iter().map(Some));
                }
            }
        }
        hosts.iter().zip(racks).map(|(host, rack)| normalised(host, rack)).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<str>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// The host's address; a name is resolved. `None` when that fails.
async fn address_of(host: &str) -> Option<IpAddr> {
    if let Ok(address) = host.parse() {
        return Some(address);
    }
    let mut found = tokio::net::lookup_host((host, 0)).await.ok()?;
    found.next().map(|address| address.ip())
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
async fn run_script(script: &Path, hosts: &[Arc<str>]) -> Result<Vec<String>, String> {
    let mut arguments = Vec::with_capacity(hosts.len());
    for host in hosts {
        let address = address_of(host).await;
        arguments.push(address.map_or_else(|| host.to_string(), |address| address.to_string()));
    }
    let run = async {
        let mut child = Command::new(script)
            .args(&arguments)
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
    let answer = timeout(SCRIPT_TIMEOUT, run)
        .await
        .map_err(|_| format!("did not end within {} s", SCRIPT_TIMEOUT.as_secs()))??;
    let racks: Vec<String> = answer.split_whitespace().map(str::to_owned).collect();
    if racks.len() != hosts.len() {
        return Err(format!("returned {} values when {} were expected", racks.len(), hosts.len()));
    }
    Ok(racks)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn racks(racks: &Racks, hosts: &[&str]) -> Result<Vec<(String, String)>, RackError> {
        let hosts: Vec<Arc<str>> = hosts.iter().map(|host| Arc::from(*host)).collect();
        let found = racks.of(hosts.iter()).await?;
        Ok(found.into_iter().map(|(host, rack)| (host.to_string(), rack.to_string())).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(host, rack)| (host.to_string(), rack.to_string())).collect()
    }

    #[tokio::test]
    async fn addresses_are_truncated() {
        let v4 = Racks::new(Topology::Ipv4Truncation { header: "/".into() });
        let found = racks(&v4, &["192.168.3.7", "10.1.1.1", "::1"]).await.unwrap();
        assert_eq!(found, pairs(&[("10.1.1.1", "/10.1.1"), ("192.168.3.7", "/192.168.3")]));
        let v6 = Racks::new(Topology::Ipv6Truncation { header: "/x/".into() });
        let found = racks(&v6, &["2001:db8:0:1::9", "10.1.1.1"]).await.unwrap();
        let expected = [("10.1.1.1", "/x/10.1.1"), ("2001:db8:0:1::9", "/x/2001:0db8:0000:0001::")];
        assert_eq!(found, pairs(&expected));
        let none = Racks::new(Topology::DefaultRack);
        assert_eq!(racks(&none, &["192.168.3.7", "a"]).await.unwrap(), []);
        for any in [v4, none] {
            assert!(matches!(racks(&any, &["10.1.1.1", "a/b"]).await, Err(RackError::Slash(_))));
        }
    }

    #[tokio::test]
    async fn a_script_is_asked_once_for_each_host() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("racks");
        let log = dir.path().join("log");
        let text = format!(
            "#!/bin/sh\necho \"$@\" >> {}\nfor host; do echo /rack/$host/; done\n",
            log.display()
        );
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let by_script = Racks::new(Topology::Script { path: script, args_per_call: 2 });
        for _ in 0..2 {
            let found = racks(&by_script, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await.unwrap();
            assert_eq!(found[2], ("10.0.0.3".to_owned(), "/rack/10.0.0.3".to_owned()));
        }
        assert_eq!(std::fs::read_to_string(log).unwrap(), "10.0.0.1 10.0.0.2\n10.0.0.3\n");
    }

    #[tokio::test]
    async fn a_failing_script_is_named_and_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("racks");
        let by_script = Racks::new(Topology::Script { path: script.clone(), args_per_call: 9 });
        let error = racks(&by_script, &["10.0.0.1"]).await.unwrap_err().to_string();
        assert!(error.contains("cannot be run"), "{error}");
        for (body, part) in [("exit 3", "exit status: 3"), ("echo /a /b", "returned 2 values")] {
            std::fs::write(&script, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
            let error = racks(&by_script, &["10.0.0.1"]).await.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
