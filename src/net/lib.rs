//! Servers of any protocol: opening a listener, accepting connections, and limits on the resources
//! of a connection, of a peer and of all peers together.
//!
//! [`accept`] is the one accept loop. Servers of messages count their connections ([`Counters`]),
//! account for their memory ([`memory`]) and share scarce work fairly between peers ([`permits`]).
//! Servers of pages limit connections by peer ([`connections`]).
//! Attempts that fail pause longer and longer ([`Backoff`]).
//! Relays pass bytes on ([`relay`]) and name the peer behind them ([`proxy_protocol`]). This crate
//! knows nothing of Thrift, Hadoop or pages.

// It reads bytes of peers: nothing in them may end the program, or become another number.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod accept;
mod backoff;
pub mod connections;
mod counters;
mod listen;
pub mod memory;
pub mod permits;
pub mod proxy_protocol;
pub mod relay;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod write_timeout;

use std::net::{IpAddr, Ipv6Addr};

pub use backoff::Backoff;
pub use counters::{Counters, Ending};
pub use listen::{CannotListen, ListenOn, Reserved, address_of, listen, listen_at};
pub use write_timeout::WriteTimeout;

/// The peer to which a limit for each peer counts an address: the address itself, or its /64
/// network in IPv6, which one machine may own completely.
pub fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_machine_are_one_peer() {
        for (address, peer) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
        ] {
            assert_eq!(peer_of(address.parse().unwrap()).to_string(), peer);
        }
    }
}
