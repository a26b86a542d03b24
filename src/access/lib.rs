//! Access to a cluster: who a peer is, how it shows that, and what it may do.
//!
//! A cluster has one certificate authority ([`Authority`]). The holder of an [`AccessString`] exchanges
//! it for a certificate that names a [`Role`] ([`Identity`]); the first contact pins the authority by its
//! hash. Every listener looks at the first byte of a connection and serves TLS and plain peers on one port
//! ([`Gate`]). It knows services by their names only.

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

mod audit;
mod authority;
mod certificate;
mod dialer;
mod enrol;
mod files;
mod gate;
mod identity;
mod plain;
mod renewals;
mod revoked;
pub mod rights;
mod role;
mod sessions;
mod stream;
mod string;
mod table;
mod verify;

#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

pub use audit::{Action, Done, Following, Noted, last_actions, last_actions_as_text};
pub use authority::{Authority, AuthorityError};
pub use certificate::Identified;
pub use corona_config::{TlsMode, TlsSettings};
pub use dialer::{
    BlockingStream, ReadAhead, dial, dial_blocking, environment, is_required_of_clients,
    use_as_parent, use_in_clients,
};
pub use enrol::{EnrolError, Ticket};
pub use files::FileError;
pub use gate::{Gate, GateError, NO_TLS, Refused, is_tls, speaks_tls};
pub use identity::{Identity, IdentityError};
pub use plain::{PlainPeer, PlainPeers};
pub use revoked::Revocations;
pub use rights::{Change, Rights};
pub use role::{Role, UnknownRole};
pub use stream::{Peer, Stream, send};
pub use string::{AccessString, CaHash, Secret, StringError};
pub use table::{Entry, GrantId, NewGrant};

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
