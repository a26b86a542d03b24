//! The input of a map, as far as a job tracker reads it. Spec: mapreduce/02 §2.11.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One split. Its map's input is opaque to the job tracker, and stays in the job's split file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Bytes that the map will read.
    pub length: i64,
    /// The hosts that have those bytes, in the order of the split, duplicates kept.
    pub hosts: Vec<Arc<str>>,
}
