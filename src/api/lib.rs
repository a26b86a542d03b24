//! The shapes of the JSON below `/api/v1/` of the daemons, as types that daemons write and that commands and
//! other daemons read. Types, and the parser of streams of them: nothing here knows a socket, an
//! engine or a page.
//!
//! Rules of all shapes:
//!
//! * Members are only ever added. A reader ignores members that it does not know, so that it can read what a
//!   newer daemon serves; a member that an older daemon does not serve is an `Option` or has a default.
//! * A time is a number of milliseconds since the Unix epoch, and its name ends in `_ms`; so do the names of
//!   spans, which are described as such.
//! * Names come from peers: any text is possible in them.
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

pub mod cluster;
pub mod events;
pub mod finished;
pub mod jobs;
pub mod node;
#[cfg(test)]
mod reference;
pub mod stream;

use serde::{Deserialize, Serialize};

/// The body of a response with a status other than 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The problem, as a sentence.
    pub error: String,
}

/// `/api/v1`: the paths of this version of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// The version of the daemon.
    pub version: String,
    /// All paths.
    pub paths: Vec<IndexEntry>,
}

/// A path of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexEntry {
    /// The path, with placeholders in braces.
    pub path: String,
    /// The response.
    pub meaning: String,
}

/// What the machine allows the process, what it uses of that, and what it allows itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// File descriptors.
    pub open_files: ResourceStatus,
    /// Memory in bytes.
    pub memory_bytes: ResourceStatus,
    /// Threads.
    pub threads: ResourceStatus,
    /// The uses.
    pub uses: Vec<UseStatus>,
}

/// One resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceStatus {
    /// How much is used; left out where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// How much is allowed; left out where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// One use of the resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseStatus {
    /// Its name.
    #[serde(rename = "use")]
    pub name: String,
    /// How many are allowed at a time.
    pub allowed: usize,
    /// How many the configuration allows.
    pub configured: usize,
    /// The resource that allows no more: `open_files`, `memory_bytes` or `threads`; left out where the configuration
    /// decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
}
