//! The built program as a node of a cluster.

mod task_tracker;
