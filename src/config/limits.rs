//! Limits on the names, lists and look-ups that peers cause. The original has none.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bounds on the texts and lists in the calls of peers. A call that exceeds one is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSettings {
    /// Bytes of a name: of sessions, users, groups, pools, administrators.
    pub name_bytes: usize,
    /// Bytes of a session's URL.
    pub url_bytes: usize,
    /// Bytes of a host name.
    pub host_bytes: usize,
    /// Bytes of an id: of sessions and nodes, and of where a node serves a type.
    pub id_bytes: usize,
    /// Hosts that one request prefers, and hosts that it excludes.
    pub hosts_per_request: usize,
    /// Entries of any other list or map that is no list of requests, reports or sessions.
    pub list_entries: usize,
}

/// How the names of hosts are looked up where sessions want their notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameSettings {
    /// Look-ups at a time.
    pub max_lookups: usize,
    /// The same, for names that one peer has sent.
    pub max_lookups_per_peer: usize,
    /// How long a look-up is waited for.
    pub timeout: Duration,
    /// How long its result is used; zero for not at all.
    pub keep: Duration,
}

/// How the racks of hosts are looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RackSettings {
    /// Look-ups of names, and runs of the script, at a time: so many of each for heartbeats, and as
    /// many for requests.
    pub max_lookups: usize,
    /// Those for one peer.
    pub max_lookups_per_peer: usize,
    /// How long a call waits for the racks of its hosts.
    pub timeout: Duration,
    /// Hosts of one call whose racks are not known yet.
    pub max_names_per_call: usize,
}
