//! How the web pages are served.

use std::time::Duration;

use super::secret::Secret;
use super::typed::{HostPort, Wrong};

/// Limits and costs of the pages. The original has none of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSettings {
    /// The token that is needed to end a session from a page; without it that is not possible.
    /// `corona.cm.web.kill.token`
    pub kill_token: Option<Secret>,
    /// Pause between the samples of the utilisation plot. `corona.cm.web.sample.period.ms`
    pub sample_period: Duration,
    /// Connections of browsers and scripts that may be open at a time.
    /// `corona.cm.web.max.connections`
    pub max_connections: usize,
    /// Those of one peer. `corona.cm.web.max.connections.per.peer`
    pub max_connections_per_peer: usize,
    /// Connections beyond these for monitors of the program. `corona.cm.web.probe.connections`
    pub probe_connections: usize,
    /// Host names under which the pages are served, besides the machine's. `corona.cm.web.hosts`
    pub hosts: Vec<Box<str>>,
    /// Streams of events among them. `corona.cm.web.max.subscribers`
    pub max_subscribers: usize,
    /// Port of the task trackers' pages, as these files have it for them; `None` if they choose a free
    /// one. `mapred.task.tracker.http.address`
    pub tracker_port: Option<u16>,
    /// Where the job tracker service shows the jobs that run; `None` if there is none.
    /// `mapred.job.tracker.http.address`, beside `corona.jt.address`
    pub running_jobs: Option<HostPort>,
    /// Where the proxy job tracker shows finished jobs, as these files have it for it; `None` if it
    /// chooses a free port. `mapred.job.tracker.corona.proxyaddr`
    pub finished_jobs: Option<HostPort>,
}

/// Host names with commas between, or `*`.
pub(super) fn hosts(text: &str) -> Result<Vec<Box<str>>, Wrong> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let legal = |name: &str| {
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        name == "*" || name.bytes().all(of_name)
    };
    let host = |name: &str| match legal(name) {
        true => Ok(name.into()),
        false => Err(Wrong::new(
            format!("has the illegal host name {name:?}"),
            "host names without ports, with commas between, or *",
        )),
    };
    names.map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_without_ports() {
        let names = |text| hosts(text).map(|names| names.join(" "));
        assert_eq!(names("").unwrap(), "");
        assert_eq!(names(" cm.example.com, cm,").unwrap(), "cm.example.com cm");
        assert_eq!(names("*").unwrap(), "*");
        for wrong in ["cm:50030", "http://cm", "a b"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }
}
