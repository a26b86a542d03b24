//! Conformance: the traffic between the programs of a cluster, taken from packet captures, played
//! against a cluster manager, and compared with its behaviour.
//!
//! It knows the wire and the meaning of each call to a peer. It knows nothing of the engine or of the
//! live service, because it judges them. Only [`shadow`] does, which runs a second one beside a cluster
//! manager in service.
//!
//! The path of a recording: [`open`] opens any file of traffic, [`capture`] turns packets into
//! connections, [`recording`] is the project's own format, [`conversation`] cuts connections into
//! messages, [`hadoop_rpc`] does the same for Hadoop RPC, [`setup`] reads the recorded
//! configuration, [`launch`] starts a manager with it, [`replay`] plays the clients against that
//! manager and judges it, and [`trial`] does all that for one file.
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

mod answers;
pub mod capture;
pub mod conversation;
pub mod hadoop_rpc;
pub mod inspect;
pub mod launch;
#[cfg(test)]
mod recorded;
pub mod recording;
pub mod relay;
pub mod replay;
pub mod report;
#[cfg(test)]
mod report_tests;
#[cfg(test)]
mod samples;
pub mod setup;
pub mod shadow;
mod traffic;
pub mod trial;

pub use traffic::{Source, Traffic, open, sniff};
