//! The wire: typed calls and answers over TCP, in the encoding that Corona's Java programs speak.
//!
//! This room moves messages and knows no cluster. Nothing outside sees a byte of Thrift: a service
//! gets calls from a [`server::Server`] and gives [`server::Answer`]s, and calls others with a
//! [`client::Client`]. The contract is `thrift/ClusterManager.thrift`; [`generated`] has its
//! structs, [`calls`] its services.
//!
//! The path of a message in: the socket fills an inbox. Where no frame says it, a scan finds where the
//! message ends (`scan`). One walk makes typed values of it (`decode`). A message that cannot be read
//! is held against the contract, which says what is wrong with it (`check`).

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
