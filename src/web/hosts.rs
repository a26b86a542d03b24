//! The host names under which the pages are served.
//!
//! A page of another site can let its own DNS name resolve to this machine, and then read the
//! responses as its own. Its requests carry that name, so requests under names that are not this
//! cluster manager's are refused. An address is not such a name, and scripts may leave the name
//! out.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::StatusCode;
use hyper::header::{HOST, HeaderMap};

use crate::exchange::{Answer, text};

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
        let own = corona_process::machine_name().unwrap_or_default();
        let own = names_of(&own, &read("/etc/hosts"), &read("/etc/resolv.conf"));
        Hosts::new(own.into_iter().chain(further.into_iter().map(|name| plain(name.as_ref()))))
    }

    fn new(names: impl IntoIterator<Item = String>) -> Hosts {
        let names: BTreeSet<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
        Hosts { all: names.contains("*"), names }
    }

    /// The refusal of a request under a host name that is not this service's. Monitors may use any
    /// name for the two addresses that reveal nothing. `service` and `key` are for the sentence: what
    /// the name is not one of, and the setting that adds it.
    pub fn misdirected<S>(
        &self,
        path: &str,
        headers: &HeaderMap,
        (service, key): (&str, &str),
    ) -> Option<Answer<S>> {
        if matches!(path, "/healthz" | "/readyz") {
            return None;
        }
        let hosts = headers.get_all(HOST).iter().map(|host| host.as_bytes());
        let name = self.foreign(hosts)?;
        Some(text(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "The request was rejected: {name:?} is not a name of this {service}. \
                 If it is, add it to {key}.\n"
            ),
        ))
    }

    /// The name in the `Host` headers of a request that is not for this service; none if the request
    /// has no such header, as scripts may. No request has two.
    pub fn foreign<'h>(&self, hosts: impl IntoIterator<Item = &'h [u8]>) -> Option<String> {
        let mut hosts = hosts.into_iter();
        let host = String::from_utf8_lossy(hosts.next()?);
        let is_own = self.all || Authority::parse(&host).is_some_and(|host| self.contain(&host));
        (!is_own || hosts.next().is_some()).then(|| host.into_owned())
    }

    fn contain(&self, host: &Authority) -> bool {
        match host {
            Authority::Address => true,
            Authority::Name(name) => {
                name == "localhost" || name.ends_with(".localhost") || self.names.contains(name)
            }
        }
    }
}

/// The host of a `Host` header, without its port.
#[derive(Debug, PartialEq, Eq)]
enum Authority {
    Address,
    Name(String),
}

impl Authority {
    /// A name or an address and perhaps a port, and nothing else: what cannot be read is no host of
    /// this service, however it begins or ends.
    fn parse(text: &str) -> Option<Authority> {
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(bracketed) => bracketed?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let is_port = |port: &str| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
        };
        if !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
            return None;
        }
        if text.starts_with('[') {
            return host.parse::<Ipv6Addr>().ok().map(|_| Authority::Address);
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !host.bytes().all(legal) {
            return None;
        }
        let name = plain(host);
        Some(match name.parse::<Ipv4Addr>() {
            Ok(_) => Authority::Address,
            Err(_) => Authority::Name(name),
        })
    }
}

/// A host name up to its first dot; an address as it is.
pub fn short_name(host: &str) -> &str {
    match host.parse::<std::net::IpAddr>() {
        Ok(_) => host,
        Err(_) => host.split('.').next().unwrap_or(host),
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
            // What begins or ends with a name of this service is none.
            ("localhost:22421, evil", false),
            ("127.0.0.1:22421@evil", false),
            ("evil@127.0.0.1:22421", false),
            ("cm evil", false),
            ("cm/evil", false),
            ("cm:1:2", false),
            ("cm:", false),
            ("cm:+1", false),
            ("cm:65536", false),
            ("[::1]evil", false),
            ("[::1]:1@evil", false),
            ("[::1", false),
            ("::1", false),
            ("[127.0.0.1]", false),
        ] {
            let found = hosts.foreign([host.as_bytes()]);
            assert_eq!(found, (!own).then(|| host.to_owned()), "{host}");
            assert_eq!(Hosts::new(["*".to_owned()]).foreign([host.as_bytes()]), None);
        }
        assert_eq!(hosts.foreign([]), None, "no browser leaves it out");
        assert!(hosts.foreign([&b"cm"[..], b"cm"]).is_some(), "one is enough");
        assert!(hosts.foreign([&b"\xff"[..]]).is_some());
    }

    #[test]
    fn a_request_under_a_foreign_name_is_told_the_key() {
        let hosts = Hosts::new(["cm".to_owned()]);
        let own = ("test", "corona.test");
        let refused = |path: &str, host: &'static str| {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            let answer: Option<Answer> = hosts.misdirected(path, &headers, own);
            answer.map(|answer| answer.status())
        };
        assert_eq!(refused("/", "cm:1"), None);
        assert_eq!(refused("/healthz", "evil"), None);
        assert_eq!(refused("/", "evil"), Some(StatusCode::MISDIRECTED_REQUEST));
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

    #[test]
    fn the_host_is_shown_up_to_its_first_dot() {
        for (host, short) in
            [("cm.example.com", "cm"), ("cm", "cm"), ("10.1.2.3", "10.1.2.3"), ("::1", "::1")]
        {
            assert_eq!(short_name(host), short);
        }
    }
}
