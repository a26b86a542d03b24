//! What the pages of all services have in common: how numbers and times are written, the looks, the
//! form that Prometheus reads.
//!
//! It knows no service.

pub(crate) mod files;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod units;
