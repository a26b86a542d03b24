//! How several cluster managers share one cluster.

use std::time::Duration;

use super::access::{self, Networks};
use super::typed::{self, HostPort, Wrong};

/// How this cluster manager is one of several instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaSettings {
    /// How ZooKeeper is reached.
    pub zookeeper: ZooKeeperSettings,
    /// The address at which other instances connect, and the name of this one.
    pub address: HostPort,
    /// From where other instances connect.
    pub instances: Networks,
    /// Whether replies wait for standbys.
    pub ack: HaAck,
    /// A standby that is behind for longer may not take over.
    pub ack_timeout: Duration,
    /// How long a new connection waits for a leader.
    pub hold: Duration,
    /// Bytes that may wait to be sent to a standby.
    pub max_lag_bytes: usize,
}

/// How a leader is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperSettings {
    /// The servers, as `host:port` with commas between.
    pub servers: String,
    /// The node under which the instances meet.
    pub path: String,
    /// After how long the session of an instance that is not heard ends.
    pub session_timeout: Duration,
}

/// How `corona gateway` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// Where it listens.
    pub address: HostPort,
    /// How it finds the leader; `None` if no servers are configured.
    pub zookeeper: Option<ZooKeeperSettings>,
    /// How long a new connection waits for a leader.
    pub hold: Duration,
    /// Connections that may be open at a time.
    pub max_connections: usize,
}

/// Whether a reply waits for standbys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HaAck {
    /// It does not.
    #[default]
    None,
    /// It waits for each that may take over.
    Standby,
}

impl HaAck {
    /// Its value in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            HaAck::None => "none",
            HaAck::Standby => "standby",
        }
    }
}

pub(super) fn ack(text: &str) -> Result<HaAck, Wrong> {
    let known = [HaAck::None, HaAck::Standby];
    let found = known.into_iter().find(|ack| ack.name() == text);
    found.ok_or_else(|| Wrong::new("is no way to wait for a standby", "none or standby"))
}

/// The servers of ZooKeeper; `None` without any.
pub(super) fn servers(text: &str) -> Result<Option<String>, Wrong> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let servers: Vec<String> = items
        .map(|item| match typed::address(item) {
            Ok(server) if server.port != 0 => Ok(server.to_string()),
            _ => Err(Wrong::new(
                format!("has the server {item:?}, which has no port"),
                "servers as host:port with commas between, such as zk1:2181,zk2:2181",
            )),
        })
        .collect::<Result<_, _>>()?;
    Ok((!servers.is_empty()).then(|| servers.join(",")))
}

/// A node of ZooKeeper that is not the root.
pub(super) fn path(text: &str) -> Result<String, Wrong> {
    let is_good = |name: &str| !name.is_empty() && name != "." && name != "..";
    match text.strip_prefix('/') {
        Some(names) if names.split('/').all(is_good) => Ok(text.to_owned()),
        _ => Err(Wrong::new("is no node of ZooKeeper", "a path such as /corona/cluster-manager")),
    }
}

/// The address of this instance; `None` if it is not set.
pub(super) fn address(text: &str) -> Result<Option<HostPort>, Wrong> {
    if text.is_empty() { Ok(None) } else { typed::address(text).map(Some) }
}

/// From where other instances connect. All networks are possible, and must be named. `None` if none is.
pub(super) fn instances(text: &str) -> Result<Option<Networks>, Wrong> {
    let networks = access::networks(text)?;
    Ok((!networks.are_all()).then_some(networks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_ports() {
        assert_eq!(servers(""), Ok(None));
        assert_eq!(servers(" zk1:2181, zk2:2182,"), Ok(Some("zk1:2181,zk2:2182".to_owned())));
        for wrong in ["zk1", "zk1:0", "zk1:2181;zk2:2181", ":2181x"] {
            assert!(servers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_are_absolute_and_have_names() {
        assert_eq!(path("/corona/a"), Ok("/corona/a".to_owned()));
        for wrong in ["", "/", "corona", "/corona/", "//a", "/a/../b"] {
            assert!(path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_values() {
        assert_eq!((ack("none"), ack("standby")), (Ok(HaAck::None), Ok(HaAck::Standby)));
        assert!(ack("all").is_err() && instances("x").is_err());
        assert_eq!(instances(""), Ok(None));
        assert_eq!(address(""), Ok(None));
        assert_eq!(address("a:1").unwrap().unwrap().port, 1);
    }
}
