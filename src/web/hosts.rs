//! The host names under which the pages are served.
//!
//! A page of another site can let its own DNS name resolve to this machine, and then read the
//! responses as its own. Its requests carry that name, so requests under names that are not this
//! cluster manager's are refused. An address is not such a name, and scripts may leave the name
//! out.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};

use hyper::header::{HOST, HeaderMap};

/// The names of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    all: bool,
    names: BTreeSet<String>,
}

impl Hosts {
    /// The names of the machine, and these. `*` stands for every name.
    pub fn of_machine(further: impl IntoIterator<Item = impl AsRef<str>>) -> Hosts {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let own = read("/proc/sys/kernel/hostname");
        let own = names_of(own.trim(), &read("/etc/hosts"), &read("/etc/resolv.conf"));
        Hosts::new(own.into_iter().chain(further.into_iter().map(|name| plain(name.as_ref()))))
    }

    fn new(names: impl IntoIterator<Item = String>) -> Hosts {
        let names: BTreeSet<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        Hosts { all: names.contains("*"), names }
    }

    /// The name in a request that is none of this service's.
    pub fn foreign<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let host = headers.get(HOST)?.to_str().unwrap_or("(unreadable)");
        (!self.all && !self.contain(host)).then_some(host)
    }

    fn contain(&self, host: &str) -> bool {
        if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return address.0.parse::<Ipv6Addr>().is_ok();
        }
        let name = plain(host.rsplit_once(':').map_or(host, |(name, _)| name));
        name.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.names.contains(&name)
    }
}

/// Names are compared without case, and without the dot that ends a whole one.
fn plain(name: &str) -> String {
    name.trim().trim_end_matches('.').to_ascii_lowercase()
}

/// The machine's name, those beside it in the table of hosts, and it in each domain that is searched.
fn names_of(own: &str, hosts: &str, resolver: &str) -> Vec<String> {
    let own = plain(own);
    if own.is_empty() {
        return Vec::new();
    }
    let mut names = vec![own.clone()];
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let of_line: Vec<String> = line.split_whitespace().skip(1).map(plain).collect();
        if of_line.contains(&own) {
            names.extend(of_line);
        }
    }
    if !own.contains('.') {
        let domains = resolver.lines().filter_map(|line| {
            line.strip_prefix("search ").or_else(|| line.strip_prefix("domain "))
        });
        let domains = domains.flat_map(str::split_whitespace).map(plain);
        names.extend(domains.map(|domain| format!("{own}.{domain}")));
    } else if let Some((short, _)) = own.split_once('.') {
        names.push(short.to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn only_names_of_this_service_are_served() {
        let hosts = Hosts::new(["cm.example.com", "cm"].map(plain));
        for (host, own) in [
            ("cm.example.com:50030", true),
            ("CM.example.com.", true),
            ("cm", true),
            ("localhost:1", true),
            ("a.localhost", true),
            ("127.0.0.1:1", true),
            ("10.1.2.3", true),
            ("[::1]:1", true),
            ("evil.example", false),
            ("cm.example.com.evil.example", false),
            ("cm.evil.example:50030", false),
            ("127.0.0.1.evil.example", false),
            ("[evil]", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            assert_eq!(hosts.foreign(&headers), (!own).then_some(host), "{host}");
            assert_eq!(Hosts::new(["*".to_owned()]).foreign(&headers), None);
        }
        assert_eq!(hosts.foreign(&HeaderMap::new()), None, "no browser leaves it out");
    }

    #[test]
    fn the_machines_names_are_found() {
        let hosts = "127.0.0.1 localhost\n10.0.0.1 cm.dc1.example.com cm # old: cm2\n10.0.0.2 tt";
        let found =
            names_of("cm", hosts, "nameserver 10.0.0.9\nsearch dc2.example.com example.com\n");
        assert_eq!(
            found,
            ["cm", "cm.dc1.example.com", "cm", "cm.dc2.example.com", "cm.example.com"]
        );
        assert_eq!(names_of("CM.dc1", "", "search x"), ["cm.dc1", "cm"]);
        assert_eq!(names_of("", hosts, ""), [""; 0]);
    }
}
