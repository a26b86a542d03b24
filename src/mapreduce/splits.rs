//! What a map reads, as far as a job tracker looks at it. Spec: mapreduce/02 §2.11.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One split. What its map reads is opaque to the job tracker, and stays in the job's split file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Bytes that the map will read.
    pub length: i64,
    /// The hosts that have those bytes, in the order of the split, duplicates kept.
    pub hosts: Vec<Arc<str>>,
}
