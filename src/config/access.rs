//! Access control by network address. The original allows all callers everything.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::typed::{NotAnAddress, Wrong};

/// Restrictions on peers. By default there are none, as in the original.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessSettings {
    /// Networks that may make administrative calls. `corona.cm.admin.networks`
    pub admin_networks: Networks,
    /// Networks that may see the pages. `corona.cm.web.networks`
    pub web_networks: Networks,
    /// Whether a session is notified only on the host that it registered from.
    /// `corona.cm.sessions.same.host`
    pub sessions_same_host: bool,
}

/// Whether a daemon speaks TLS, and with which certificate. `docs/operate/access.md` explains it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSettings {
    /// `corona.tls`
    pub mode: TlsMode,
    /// Networks of peers that are served without TLS where it is required; the empty set means none.
    /// `corona.tls.plain.networks`
    pub plain_networks: Networks,
    /// Where the certificate and its key are. `corona.tls.directory`
    pub directory: Option<PathBuf>,
    /// Where the certificate authority is, in a daemon that issues certificates.
    /// `corona.tls.authority.directory`
    pub authority: Option<PathBuf>,
}

/// Whether a daemon speaks TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// No: nothing is looked at.
    #[default]
    Off,
    /// With peers that do. Plain peers are served and counted.
    Allow,
    /// Yes. Plain peers are served from some networks only.
    Require,
}

impl TlsSettings {
    /// Whether a peer of this address is served without TLS.
    pub fn may_be_plain(&self, address: IpAddr) -> bool {
        match self.mode {
            TlsMode::Off | TlsMode::Allow => true,
            TlsMode::Require => {
                !self.plain_networks.are_all() && self.plain_networks.contain(address)
            }
        }
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsMode::Off => "off",
            TlsMode::Allow => "allow",
            TlsMode::Require => "require",
        })
    }
}

impl FromStr for TlsMode {
    type Err = NotAnAddress;

    /// By the rules of the configuration files.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        tls_mode(text).map_err(|Wrong { wrong, expected }| NotAnAddress { wrong, expected })
    }
}

/// `off`, `allow` or `require`
pub(super) fn tls_mode(text: &str) -> Result<TlsMode, Wrong> {
    let modes = [TlsMode::Off, TlsMode::Allow, TlsMode::Require];
    let mode = modes.into_iter().find(|mode| mode.to_string() == text.trim());
    mode.ok_or_else(|| Wrong::new(format!("is {text:?}"), "off, allow or require"))
}

/// A set of networks; the empty set means all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<String>", try_from = "Vec<String>")]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Whether the address is in one of the networks. An IPv4 address that arrives on an IPv6
    /// socket counts as IPv4.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.is_empty() || self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether all addresses are allowed.
    pub fn are_all(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Networks> for Vec<String> {
    fn from(networks: Networks) -> Vec<String> {
        networks.0.iter().map(ToString::to_string).collect()
    }
}

impl TryFrom<Vec<String>> for Networks {
    type Error = ipnet::AddrParseError;

    fn try_from(networks: Vec<String>) -> Result<Networks, ipnet::AddrParseError> {
        networks.iter().map(|network| network.parse()).collect::<Result<_, _>>().map(Networks)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("all networks");
        }
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

impl FromStr for Networks {
    type Err = NotAnAddress;

    /// By the rules of the configuration files.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        networks(text).map_err(|Wrong { wrong, expected }| NotAnAddress { wrong, expected })
    }
}

/// `10.0.0.0/8, 192.168.1.7, ::1`
pub(super) fn networks(text: &str) -> Result<Networks, Wrong> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let network = |item: &str| {
        let host = || item.parse::<IpAddr>().ok().map(IpNet::from);
        item.parse::<IpNet>().ok().or_else(host).ok_or_else(|| {
            Wrong::new(
                format!("has the illegal network {item:?}"),
                "networks with commas between, such as 10.0.0.0/8, 192.168.1.7, ::1",
            )
        })
    };
    items.map(network).collect::<Result<_, _>>().map(Networks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_what_they_say() {
        let cases = [
            ("", "1.2.3.4", true),
            ("10.0.0.0/8", "10.9.8.7", true),
            ("10.0.0.0/8", "::ffff:10.9.8.7", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("127.0.0.1, ::1", "::1", true),
            ("127.0.0.1, ::1", "127.0.0.2", false),
            ("2001:db8::/32,", "2001:db8:1::5", true),
        ];
        for (text, address, expected) in cases {
            let networks = networks(text).unwrap();
            assert_eq!(networks.contain(address.parse().unwrap()), expected, "{text} {address}");
        }
    }

    #[test]
    fn plain_peers_are_served_from_the_networks_that_are_named() {
        let here = "10.9.8.7".parse().unwrap();
        for (mode, networks_text, expected) in [
            ("off", "", true),
            ("allow", "192.168.0.0/16", true),
            ("require", "", false),
            ("require", "192.168.0.0/16", false),
            ("require", "10.0.0.0/8", true),
        ] {
            let mode = tls_mode(mode).unwrap();
            let plain_networks = networks(networks_text).unwrap();
            let settings = TlsSettings { mode, plain_networks, ..TlsSettings::default() };
            assert_eq!(settings.may_be_plain(here), expected, "{mode} {networks_text}");
        }
        assert!(tls_mode("on").is_err());
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["everyone", "10.0.0.0/33", "10.0.0", "::1/129", "10.0.0.0/8;10.1.0.0/16"] {
            assert!(networks(text).is_err(), "{text}");
        }
    }
}
