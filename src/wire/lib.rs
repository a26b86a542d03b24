//! The wire: typed calls and answers over TCP, in the encoding that Corona's Java programs speak.
//!
//! This room moves messages and knows no cluster. Nothing outside sees a byte of Thrift: a service
//! gets calls from a [`server::Server`] and gives [`server::Answer`]s, and calls others with a
//! [`client::Client`]. The contract is `thrift/ClusterManager.thrift`; [`generated`] has its
//! structs, [`calls`] its services.
//!
//! The path of a message in: the socket fills an inbox. Without frames, a scan finds the end of the
//! message (`scan`). One walk makes typed values of it (`decode`). A message that cannot be read is
//! checked against the contract to find its error (`check`).

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

pub mod calls;
mod check;
pub mod client;
mod decode;
pub mod editor;
mod encode;
#[allow(missing_docs, reason = "the contract describes them")]
pub mod generated;
mod inbox;
mod limits;
mod message;
mod scan;
pub mod schema;
pub mod server;
mod service;
#[cfg(test)]
mod tests;
pub mod value;

pub use scan::Malformed;
pub use service::{ApplicationFault, Exception, FaultKind, Framing, Service};
