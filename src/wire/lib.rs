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

pub mod calls;
mod check;
pub mod client;
mod decode;
pub mod editor;
#[allow(missing_docs, unreachable_pub, clippy::all)]
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
