//! What the cluster manager shows: pages, the JSON of the API, the original's JSON tables, events and
//! metrics, and the pages of a standby.
//!
//! It knows the engine's views and the service as the trait [`Manager`], but no call, no journal and no
//! other instance. What the service counts and notes for it is in [`metrics`], [`events`] and
//! [`operations`].
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
mod api;
mod conf;
pub mod events;
mod exchange;
mod filter;
mod gather;
mod history;
pub mod metrics;
pub mod operations;
mod original;
mod pages;
mod places;
mod problems;
mod site;
mod standby;
#[cfg(test)]
mod testing;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;

use self::metrics::Metrics;
use self::operations::Operations;
pub use self::site::Pages;
pub use self::standby::StandbyPages;
use corona_api::cluster::{
    HaStatus, JournalStatus, Program, ProxyJobTrackerStatus, SafeModeStatus, StateFileStatus,
    Versions,
};
use corona_config::InForce;
use corona_engine::{Engine, Input, Refusal, Reply};
use corona_model::types::Millis;
use corona_web::events::{Commits, Events};

/// The cluster manager as its pages know it.
pub trait Manager: Debug + Send + Sync + 'static {
    /// How far the journal is committed.
    type Commits: Commits;

    /// Looks at the engine at the present time. Others wait meanwhile.
    fn look<T>(&self, look: impl FnOnce(&Engine, Millis) -> T) -> T;

    /// Applies an operator's input, and waits until it is committed.
    fn apply(&self, input: Input) -> impl Future<Output = Result<Reply, Refusal>> + Send;

    /// Its counters.
    fn metrics(&self) -> &Arc<Metrics>;

    /// Its events.
    fn events(&self) -> &Arc<Events<Self::Commits>>;

    /// The outcomes of administrative calls.
    fn operations(&self) -> &Operations;

    /// Pending notifications.
    fn queues(&self) -> QueueCounts;

    /// The state of the configuration.
    fn configuration(&self) -> ConfigStatus;

    /// Safe mode, and what the proxy job tracker knows of it. `on` is the engine's flag.
    fn safe_mode(&self, on: bool) -> (SafeModeStatus, ProxyJobTrackerStatus);

    /// The state file.
    fn state_file(&self) -> StateFileStatus;

    /// The journal, if one is kept.
    fn journal(&self) -> Option<JournalStatus>;

    /// Its standing as one of several instances.
    fn ha(&self) -> Option<HaStatus>;

    /// Has it hand over to a standby.
    ///
    /// # Errors
    /// Why it cannot.
    fn step_down(&self) -> Result<(), String>;

    /// What runs nodes and sessions.
    fn programs(&self) -> Arc<dyn Programs>;

    /// The versions that run in the cluster. This process was started at `started`.
    fn versions(&self, started: Millis) -> Versions;

    /// Has a node start again at its next heartbeat.
    fn restart(&self, node: &str, restart: Restart);
}

/// What runs nodes and sessions, as far as their heartbeats say it.
pub trait Programs: Debug + Send + Sync {
    /// What runs a node.
    fn of_node(&self, name: &str) -> Option<Program>;

    /// What runs a session.
    fn of_session(&self, handle: &str) -> Option<Program>;

    /// Whether a node has sent a heartbeat to this process.
    fn has_heard(&self, name: &str) -> bool;
}

/// How a node is to start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// In its process, in which its tasks go on.
    InPlace,
    /// Its process ends, and its service manager starts another one.
    Exit,
}

/// The state of the configuration, for pages, metrics and tools.
#[derive(Clone, Debug)]
pub struct ConfigStatus {
    /// Every key that was looked at, with its value and where it comes from.
    pub in_force: Vec<InForce>,
    /// Warnings about the configuration in force.
    pub warnings: Vec<String>,
    /// Why the scheduling files as they are now are not in force; empty when they are.
    pub errors: Vec<String>,
    /// When the configuration in force was read.
    pub loaded_at: SystemTime,
    /// How often changed files were taken over since the start.
    pub reloads: u64,
    /// How often changed files were refused since the start.
    pub failures: u64,
}

/// Pending notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// All calls.
    pub calls: usize,
    /// Sessions that a conversation is open with.
    pub queues: u64,
    /// Calls in the longest queue.
    pub longest: u64,
}
