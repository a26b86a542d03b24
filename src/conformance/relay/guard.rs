//! The hosts that may use the listeners for callbacks, and the hosts that the listeners lead to.
//!
//! A session names the host and port of its driver, and the relay opens a listener that leads
//! there. Without a guard, every peer that can start a session or that finds the listener could
//! reach any port that the relay can reach. So a listener leads only to the session's own host, and
//! only the cluster manager may connect to it. It knows no messages.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corona_config::Networks;

/// The rules, and the addresses that the cluster manager has.
#[derive(Debug)]
pub(super) struct Guard {
    /// Where drivers may be besides the hosts of their sessions.
    further_drivers: Option<Networks>,
    /// From where callbacks may come besides the cluster manager's addresses.
    further_sources: Option<Networks>,
    /// Whether an address is one of this machine.
    is_own: fn(IpAddr) -> bool,
    /// The addresses that the name of the cluster manager had last.
    primary: Mutex<Vec<IpAddr>>,
}

impl Guard {
    pub(super) fn new(
        further_drivers: Option<Networks>,
        further_sources: Option<Networks>,
        is_own: fn(IpAddr) -> bool,
    ) -> Guard {
        Guard { further_drivers, further_sources, is_own, primary: Mutex::default() }
    }

    /// The cluster manager is at these addresses now.
    pub(super) fn primary_is_at(&self, addresses: &[SocketAddr]) {
        let addresses = addresses.iter().map(|address| address.ip().to_canonical());
        *self.primary() = addresses.collect();
    }

    /// Whether callbacks are accepted from this peer.
    pub(super) fn may_call(&self, peer: IpAddr) -> bool {
        let of_primary = self.primary().iter().any(|own| self.is_same_host(*own, peer));
        of_primary || contain(self.further_sources.as_ref(), peer)
    }

    /// Whether a session of this host may have its driver at that address.
    pub(super) fn may_have_driver_at(&self, session: IpAddr, driver: IpAddr) -> bool {
        self.is_same_host(session, driver) || contain(self.further_drivers.as_ref(), driver)
    }

    /// Addresses of one host are equal, except that this machine has several.
    fn is_same_host(&self, a: IpAddr, b: IpAddr) -> bool {
        let (a, b) = (a.to_canonical(), b.to_canonical());
        a == b || (self.is_own)(a) && (self.is_own)(b)
    }

    fn primary(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn contain(networks: Option<&Networks>, address: IpAddr) -> bool {
    networks.is_some_and(|networks| networks.contain(address))
}

/// Whether an address is one of this machine: packets to it leave from it.
pub(super) fn is_own_address(address: IpAddr) -> bool {
    // The port means nothing; 9 discards.
    let own = || own_address(SocketAddr::new(address, 9));
    address.is_loopback() || own().is_ok_and(|own| own == address)
}

/// The address of this machine from which packets to another one go. None is sent.
pub(crate) fn own_address(towards: SocketAddr) -> io::Result<IpAddr> {
    let any = match towards {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(towards)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn networks(text: &str) -> Option<Networks> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_session_has_its_driver_on_its_own_host_or_where_it_is_allowed() {
        let is_own = |address: IpAddr| address.is_loopback() || address == ip("10.0.0.1");
        let strict = Guard::new(None, None, is_own);
        let wide = Guard::new(networks("10.2.0.0/16"), None, is_own);
        for (session, driver, expected, widened) in [
            ("10.0.0.7", "10.0.0.7", true, true),
            ("::ffff:10.0.0.7", "10.0.0.7", true, true),
            ("10.0.0.7", "10.0.0.8", false, false),
            ("10.0.0.7", "10.2.0.8", false, true),
            // Services on loopback of the relay's machine are not for other machines.
            ("10.0.0.7", "127.0.0.1", false, false),
            ("10.0.0.7", "10.0.0.1", false, false),
            ("127.0.0.1", "10.0.0.1", true, true),
            ("10.0.0.1", "127.0.1.1", true, true),
            ("127.0.0.1", "10.0.0.7", false, false),
        ] {
            for (guard, expected) in [(&strict, expected), (&wide, widened)] {
                let may = guard.may_have_driver_at(ip(session), ip(driver));
                assert_eq!(may, expected, "{session} {driver}");
            }
        }
    }

    #[test]
    fn only_the_cluster_manager_calls_back() {
        let guard = Guard::new(None, networks("10.9.0.0/16"), |_| false);
        assert!(!guard.may_call(ip("10.0.0.1")), "nobody knows yet where it is");
        guard.primary_is_at(&["10.0.0.1:9".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap()]);
        for (peer, expected) in [
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("10.0.0.2", false),
            ("127.0.0.1", false),
            ("10.9.1.1", true),
        ] {
            assert_eq!(guard.may_call(ip(peer)), expected, "{peer}");
        }
        guard.primary_is_at(&["10.0.0.2:9".parse().unwrap()]);
        assert!(guard.may_call(ip("10.0.0.2")) && !guard.may_call(ip("10.0.0.1")), "it has moved");
    }

    #[test]
    fn own_addresses_are_known() {
        assert!(is_own_address(ip("127.0.0.1")) && is_own_address(ip("127.0.1.1")));
        assert!(is_own_address(ip("::1")));
        // Of a network for documentation.
        assert!(!is_own_address(ip("192.0.2.1")));
    }
}
