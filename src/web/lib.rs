//! What the pages of all services have in common: how numbers and times are written, the looks, the
//! form that Prometheus reads, and limits on the connections of those who read them.
//!
//! It knows no service.

pub mod compression;
pub mod files;
pub mod process;
pub mod prometheus;
pub mod units;
