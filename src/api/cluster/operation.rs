//! Shapes of the API about the cluster manager itself: its configuration, its latencies, and the
//! use of slots over the last hour.

use serde::{Deserialize, Serialize};

use super::{ByType, Slots};

/// The configuration in force, and the problems of its files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// When the configuration in force was read.
    pub loaded_ms: i64,
    /// How often changed files were applied since the start.
    pub reloads: u64,
    /// How often changed files were refused since the start.
    pub failures: u64,
    /// Why the current files are not in force; empty if they are.
    pub errors: Vec<String>,
    /// Settings in force that may not be intended.
    pub warnings: Vec<String>,
    /// Every key that is used. Secrets are hidden.
    pub values: Vec<ConfigurationValue>,
}

/// A key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationValue {
    /// The key.
    pub key: String,
    /// Its value, variables replaced.
    pub value: String,
    /// The file or other source that sets it.
    pub origin: String,
}

/// Hosts of the include file from which no node heartbeats, without excluded ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentHosts {
    /// When the data was read.
    pub now_ms: i64,
    /// Whether there is an include file; without one every host may heartbeat.
    pub included: bool,
    /// The hosts, sorted.
    pub hosts: Vec<String>,
}

/// The use of slots over the last hour, or over the configured time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The time between two samples.
    pub period_ms: u64,
    /// The samples, the oldest first.
    pub samples: Vec<Sample>,
}

/// Slots of all nodes at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at_ms: i64,
    /// The slots.
    pub slots: ByType<Slots>,
}

/// Latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// In the last minute or, at the start, since the first sample of [`History`].
    pub last_minute: LatenciesOf,
    /// Since the cluster manager was started.
    pub since_start: LatenciesOf,
}

/// Latencies over a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatenciesOf {
    /// Time from the arrival of a request until it was granted.
    pub request_to_grant: Latency,
    /// Time from scheduling a grant until the session acknowledged it.
    pub grant_to_delivered: Latency,
    /// Duration of a scheduler pass over all types.
    pub pass: Latency,
    /// Time for which calls and passes waited for the engine.
    pub engine_wait: Latency,
}

/// The distribution of a duration, accurate to an eighth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of measurements.
    pub count: u64,
    /// The median in microseconds; left out without measurements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<u64>,
    /// The 99th percentile in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile_99_us: Option<u64>,
    /// The 99.9th percentile in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile_99_9_us: Option<u64>,
}
