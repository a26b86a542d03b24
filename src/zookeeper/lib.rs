//! A client of ZooKeeper for the few operations that an election needs: sessions, ephemeral nodes,
//! conditional writes, transactions and watches.
//!
//! [`Client`] is one session. A task of its own keeps it alive, reconnects to any of the servers while it
//! lasts, and gives each request one reply or one error. Authentication and TLS are not supported.
//!
//! The servers are not trusted: nothing is allocated for a length before it is compared with
//! [`MAX_FRAME_BYTES`] and with the bytes that are left, an unsolicited or malformed message ends the connection,
//! and at most [`MAX_IN_FLIGHT`] requests wait for replies.

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

mod client;
mod connection;
mod messages;
#[cfg(test)]
mod tests;

pub use self::client::{Client, Options};
pub use self::connection::MAX_IN_FLIGHT;
pub use self::messages::{Change, Code, Lifetime, MAX_FRAME_BYTES, Malformed, fuzz_reply};

use std::time::Duration;

use thiserror::Error;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The server has refused it.
    #[error("ZooKeeper refused it: {0}")]
    Refused(Code),
    /// The server has refused a transaction because of one of its changes. Nothing was changed.
    #[error("ZooKeeper refused change {place} of a transaction: {code}")]
    ChangeRefused {
        /// The change's place, from 0.
        place: usize,
        /// The reason.
        code: Code,
    },
    /// The connection was lost before the reply: it may have been carried out.
    #[error("the connection was lost before the reply")]
    Disconnected,
    /// There was no reply in time: it may have been carried out.
    #[error("no reply within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The session is over, and its ephemeral nodes with it.
    #[error("the session is over")]
    SessionOver,
    /// No server could be connected to.
    #[error("no server could be reached; the last one: {0}")]
    Unreachable(String),
    /// It does not fit into a message.
    #[error("a request of {0} bytes is too long")]
    TooLong(usize),
}

impl Error {
    /// Whether the server has refused it for this reason.
    pub fn is(&self, reason: Code) -> bool {
        match self {
            Error::Refused(code) | Error::ChangeRefused { code, .. } => *code == reason,
            _ => false,
        }
    }
}
