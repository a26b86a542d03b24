//! Access rules for peers. By default everything is allowed, as in the original.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::names::Names;
use corona_config::{AccessSettings, TlsMode, TlsSettings};
use corona_wire::calls::ClusterManagerCall as Call;

/// The rules in force.
#[derive(Debug)]
pub(super) struct Access {
    settings: AccessSettings,
    names: Arc<Names>,
}

impl Access {
    pub(super) fn new(settings: AccessSettings, names: Arc<Names>) -> Access {
        Access { settings, names }
    }

    /// One line for each service: from where it is called, and by whom.
    pub(super) fn log_openness(&self, tls: &TlsSettings) {
        let AccessSettings { admin_networks, web_networks, sessions_same_host } = &self.settings;
        let (of_admins, of_members) = (by_whom(tls, "administrators"), by_whom(tls, "members"));
        tracing::info!("Administrative calls are accepted from {admin_networks}{of_admins}");
        tracing::info!("Pages are shown to {web_networks}{of_members}");
        if !sessions_same_host {
            tracing::info!(
                "Session callback addresses are not restricted (corona.cm.sessions.same.host=false)"
            );
        }
    }

    /// Why the peer may not make this call; `None` if it may.
    pub(super) async fn objection(&self, peer: SocketAddr, call: &Call) -> Option<String> {
        if let Some(objection) = not_administrator(&self.settings, peer, call) {
            return Some(objection);
        }
        let host = own_host(&self.settings, call)?;
        let own = self.is_own_address(host, peer.ip()).await;
        (!own).then(|| not_own_host(host, peer))
    }

    /// Whether the host is the peer itself. A name must resolve to the peer's address.
    pub(super) async fn is_own_address(&self, host: &str, peer: IpAddr) -> bool {
        let found = self.names.addresses(host, peer).await;
        let peer = peer.to_canonical();
        found.is_ok_and(|found| found.iter().any(|address| address.to_canonical() == peer))
    }
}

/// Who among the callers of these networks is served, where callers show certificates.
fn by_whom(tls: &TlsSettings, members: &str) -> String {
    match tls.mode {
        TlsMode::Off => String::new(),
        TlsMode::Allow => format!(" for {members} of the cluster, and for peers without TLS"),
        TlsMode::Require if tls.plain_networks.are_all() => {
            format!(" for {members} of the cluster alone, within TLS")
        }
        TlsMode::Require => format!(
            " for {members} of the cluster, within TLS, and for peers without TLS in {}",
            tls.plain_networks
        ),
    }
}

/// Why the peer may not make this call, if it is an administrative one that the peer may not make.
pub(super) fn not_administrator(
    settings: &AccessSettings,
    peer: SocketAddr,
    call: &Call,
) -> Option<String> {
    let is_allowed = !is_administrative(call) || settings.admin_networks.contain(peer.ip());
    (!is_allowed).then(|| format!("administrative calls are not accepted from {}", peer.ip()))
}

/// The host that a call names and that must be the caller itself.
pub(super) fn own_host<'a>(settings: &AccessSettings, call: &'a Call) -> Option<&'a str> {
    match call {
        Call::SessionStart { info: Some(info), .. } if settings.sessions_same_host => {
            Some(&info.address.host)
        }
        _ => None,
    }
}

/// Why a peer may not start a session that names another host.
pub(super) fn not_own_host(host: &str, peer: SocketAddr) -> String {
    format!("a session from {} may not name {host:?}", peer.ip())
}

fn is_administrative(call: &Call) -> bool {
    matches!(
        call,
        Call::KillSession { .. }
            | Call::KillSessions { .. }
            | Call::RestartNodes { .. }
            | Call::RefreshNodes
            | Call::SetSafeMode { .. }
            | Call::PersistState
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Resolver;
    use corona_config as config;
    use corona_wire::generated::{InetAddress, KillSessionsArgs, SessionInfo};

    fn access(key: &str, value: &str) -> Access {
        let loaded = config::load(None, &[(key.to_owned(), value.to_owned())]).unwrap();
        let names = Names::new(&loaded.settings.names, Resolver::system());
        Access::new(loaded.settings.access, names)
    }

    fn start_on(host: &str) -> Call {
        let (address, name) = (InetAddress::new(host.to_owned(), 1), String::new());
        let user = String::new();
        let info = SessionInfo::new(address, name, user, None, None, None, None, None, None);
        Call::SessionStart { handle: None, info: Some(info) }
    }

    #[tokio::test]
    async fn administrative_calls_may_be_limited_to_networks() {
        let kill = Call::KillSessions {
            args: Some(KillSessionsArgs { session_ids: vec![], who: String::new() }),
        };
        let far: SocketAddr = "10.1.2.3:4".parse().unwrap();
        let near: SocketAddr = "[::ffff:127.0.0.1]:4".parse().unwrap();
        let limited = access("corona.cm.admin.networks", "127.0.0.0/8");
        for call in [&kill, &Call::RefreshNodes, &Call::PersistState] {
            assert!(limited.objection(far, call).await.is_some(), "{call:?}");
            assert_eq!(limited.objection(near, call).await, None, "{call:?}");
        }
        assert_eq!(limited.objection(far, &Call::GetSessions).await, None);
        let open = access("corona.cm.web.networks", "");
        assert_eq!(open.objection(far, &kill).await, None);
    }

    #[tokio::test]
    async fn sessions_may_be_held_to_the_host_they_come_from() {
        let peer: SocketAddr = "[::ffff:127.0.0.1]:4".parse().unwrap();
        for (same_host, host, objected) in [
            ("false", "10.1.1.1", false),
            ("true", "10.1.1.1", true),
            ("true", "127.0.0.1", false),
            ("true", "localhost", false),
            ("true", "no.such.host.invalid", true),
        ] {
            let access = access("corona.cm.sessions.same.host", same_host);
            let objection = access.objection(peer, &start_on(host)).await;
            assert_eq!(objection.is_some(), objected, "{same_host} {host}");
        }
    }

    #[test]
    fn the_log_says_who_is_served_within_networks() {
        let of = |mode, networks: &str| {
            let plain_networks = networks.parse().unwrap();
            by_whom(&TlsSettings { mode, plain_networks, ..TlsSettings::default() }, "members")
        };
        for (mode, networks, expected) in [
            (TlsMode::Off, "", ""),
            (TlsMode::Allow, "", " for members of the cluster, and for peers without TLS"),
            (TlsMode::Require, "", " for members of the cluster alone, within TLS"),
            (
                TlsMode::Require,
                "10.0.0.0/8",
                " for members of the cluster, within TLS, and for peers without TLS in 10.0.0.0/8",
            ),
        ] {
            assert_eq!(of(mode, networks), expected);
        }
    }
}
