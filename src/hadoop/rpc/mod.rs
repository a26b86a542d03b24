//! Hadoop RPC, version 3: calls by name over TCP, with a server and a client.
//!
//! Knows how calls and replies travel, and no method: [`protocols`](super::protocols) has those.
//! A connection begins with a [`header`](ConnectionHeader) that names one protocol and one user;
//! calls have their length in front, replies do not. Spec: mapreduce/01.

mod argument;
mod call;
mod client;
mod connection;
mod fault;
mod header;
mod limits;
mod link;
mod protocol;
mod reply;
mod server;
mod services;
#[cfg(test)]
mod tests;

pub use argument::{Argument, Parameters};
pub use call::Call;
pub use client::Client;
pub use fault::{Fault, RemoteError};
pub use header::{Caller, ConnectionHeader, MAGIC, User};
pub use limits::Limits;
pub use link::{CallError, ClientOptions};
pub use protocol::{HANDSHAKE, Method, Protocol};
pub use reply::{Outcome, Reply};
pub use server::{Keeper, KeptConnection, KeptServer, Server};
pub use services::{Answer, Service, Services};
