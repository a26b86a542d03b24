//! The identity of this machine in the cluster: its name and address, and the names derived from
//! them.
//!
//! Spec: mapreduce/04 §4.1 (3), (7), §4.2.

use std::io;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

/// This machine, as others reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name. The file system must use the same name, or tasks are not placed near its data.
    pub name: String,
    /// The address of that name.
    pub address: IpAddr,
}

/// The reason why this machine's name is not known.
#[derive(Debug, Error)]
pub enum HostError {
    /// The machine's name is unknown.
    #[error("cannot read the machine's name: {0}; slave.host.name may name it")]
    Nameless(io::Error),
    /// The name has no address.
    #[error("host {name} has no address: {why}; slave.host.name may name another")]
    NoAddress {
        /// The name that was looked up.
        name: String,
        /// The system's error.
        why: String,
    },
}

impl Host {
    /// The machine under the configured name, else under the canonical one of its own. It blocks: the
    /// network may be asked.
    pub fn find(configured: Option<&str>) -> Result<Host, HostError> {
        if let Some(name) = configured {
            return Ok(Host { name: name.to_owned(), address: address_of(name)? });
        }
        let own = corona_process::machine_name().map_err(HostError::Nameless)?;
        let address = address_of(&own)?;
        // Without an entry for the address the machine's own name must do.
        let canonical = dns_lookup::lookup_addr(&address).ok();
        let name = canonical.filter(|name| is_name(name)).unwrap_or(own);
        Ok(Host { name, address })
    }

    /// The name of a task tracker whose tasks report to this address of the host `report_host`: see
    /// [`name_of`]. Job trackers take the part between `tracker_` and the first colon for the host;
    /// the rest distinguishes this process from others.
    pub fn tracker_name(&self, report_host: &str, report: SocketAddr) -> String {
        format!("tracker_{}:{report_host}/{}:{}", self.name, report.ip(), report.port())
    }

    /// Whether peers that work with a cluster manager on this host cannot reach this machine: it is
    /// not the only machine, and its address is of the loopback network.
    pub fn is_hidden_from(&self, cluster_manager: &str) -> bool {
        let is_local = |address: IpAddr| address.is_loopback() || address.is_unspecified();
        let alone = match cluster_manager.parse() {
            Ok(address) => is_local(address),
            Err(_) => cluster_manager == "localhost" || cluster_manager == self.name,
        };
        self.address.is_loopback() && !alone
    }

    /// Where job trackers find a port of this machine: they split at the last colon.
    pub fn application_address(&self, port: u16) -> String {
        format!("{}:{port}", self.address)
    }
}

/// The first address of a name, an IPv4 address if there is one: Java programs receive it
/// unchanged.
fn address_of(name: &str) -> Result<IpAddr, HostError> {
    let none = |why: String| HostError::NoAddress { name: name.to_owned(), why };
    let found = dns_lookup::lookup_host(name).map_err(|error| none(error.to_string()))?;
    let found: Vec<IpAddr> = found.collect();
    let v4 = found.iter().find(|address| address.is_ipv4());
    v4.or(found.first()).copied().ok_or_else(|| none("none is known".into()))
}

/// The name of a host that is configured by name or address: Java shows an address as its name, if it
/// has one. It blocks: the network may be asked.
pub fn name_of(host: &str) -> String {
    let own = host.parse().ok().and_then(|address| dns_lookup::lookup_addr(&address).ok());
    own.filter(|name| is_name(name)).unwrap_or_else(|| host.to_owned())
}

/// Whether it can be part of the names that are built from it, and is no address.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(':') && name.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_form_that_job_trackers_take_apart() {
        let host = Host { name: "n1.example.com".into(), address: "10.0.0.7".parse().unwrap() };
        let report = "127.0.0.1:35789".parse().unwrap();
        assert_eq!(
            host.tracker_name("localhost", report),
            "tracker_n1.example.com:localhost/127.0.0.1:35789"
        );
        assert_eq!(host.application_address(7), "10.0.0.7:7");
    }

    #[test]
    fn a_loopback_address_is_enough_for_one_machine() {
        let host = |address: &str| Host { name: "n1".into(), address: address.parse().unwrap() };
        for (address, cluster_manager, expected) in [
            ("127.0.1.1", "cm.example.com", true),
            ("127.0.1.1", "10.0.0.1", true),
            ("127.0.1.1", "localhost", false),
            ("127.0.1.1", "127.0.0.1", false),
            ("127.0.1.1", "n1", false),
            ("10.0.0.7", "cm.example.com", false),
        ] {
            let hidden = host(address).is_hidden_from(cluster_manager);
            assert_eq!(hidden, expected, "{address} {cluster_manager}");
        }
    }

    #[test]
    fn a_configured_name_is_kept_and_its_address_found() {
        let host = Host::find(Some("localhost")).unwrap();
        assert_eq!(host.name, "localhost");
        assert!(host.address.is_loopback(), "{host:?}");
        let host = Host::find(Some("127.0.0.9")).unwrap();
        assert_eq!((&*host.name, host.address), ("127.0.0.9", "127.0.0.9".parse().unwrap()));
        let error = Host::find(Some("no-such-host.invalid")).unwrap_err().to_string();
        assert!(error.starts_with("host no-such-host.invalid has no address: "), "{error}");
        assert!(error.ends_with("; slave.host.name may name another"), "{error}");
    }

    #[test]
    fn an_address_is_shown_as_its_name() {
        let addresses: IpAddr = "127.0.0.1".parse().unwrap();
        // Most machines call it localhost; some call it nothing.
        let expected = dns_lookup::lookup_addr(&addresses).ok().filter(|name| is_name(name));
        assert_eq!(name_of("127.0.0.1"), expected.unwrap_or_else(|| "127.0.0.1".into()));
        // An address of an unused network.
        assert_eq!(name_of("192.0.2.1"), "192.0.2.1");
        assert_eq!(name_of("n1.example.com"), "n1.example.com");
    }

    #[test]
    fn addresses_and_texts_with_colons_are_no_names() {
        for (text, expected) in
            [("n1", true), ("", false), ("10.0.0.7", false), ("::1", false), ("n:1", false)]
        {
            assert_eq!(is_name(text), expected, "{text:?}");
        }
    }
}
