//! Shapes of the API that tell of the cluster manager itself: its configuration, how fast it is,
//! and what the last hour was like.

use serde::{Deserialize, Serialize};

use super::{ByType, Slots};

/// The configuration in force, and what is wrong with its files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// When what is in force was read.
    pub loaded_ms: i64,
    /// How often changed files were taken over since the start.
    pub reloads: u64,
    /// How often changed files were refused since the start.
    pub failures: u64,
    /// Why the files as they are now are not in force; empty when they are.
    pub errors: Vec<String>,
    /// What is in force and may not be meant so.
    pub warnings: Vec<String>,
    /// Every key that is looked at. Secrets are hidden.
    pub values: Vec<ConfigurationValue>,
}

/// A key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationValue {
    /// The key.
    pub key: String,
    /// Its value, variables replaced.
    pub value: String,
    /// The file that sets it, or what else does.
    pub origin: String,
}

/// Hosts of the include file from which no node heartbeats, those that are excluded left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilentHosts {
    /// When this was looked up.
    pub now_ms: i64,
    /// Whether there is an include file; without one every host may heartbeat.
    pub included: bool,
    /// The hosts, sorted.
    pub hosts: Vec<String>,
}

/// The use of slots over the last hour, or the span that is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The span between two samples.
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

/// How long things take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// In the last minute or, at the start, since the first sample of [`History`].
    pub last_minute: LatenciesOf,
    /// Since the cluster manager was started.
    pub since_start: LatenciesOf,
}

/// How long things took in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatenciesOf {
    /// From a request's arrival to the decision that grants it.
    pub request_to_grant: Latency,
    /// From the decision to the session's answer that it has the grant.
    pub grant_to_delivered: Latency,
    /// One pass of the scheduler over all types.
    pub pass: Latency,
    /// Waits of calls and passes for the engine.
    pub engine_wait: Latency,
}

/// How long one thing took, right to an eighth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How often it was seen.
    pub count: u64,
    /// Half took no longer, in microseconds; left out when it was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<u64>,
    /// 99 of 100 took no longer, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile_99_us: Option<u64>,
    /// 999 of 1,000 took no longer, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile_99_9_us: Option<u64>,
}
