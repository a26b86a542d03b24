//! What the pages of all services have in common: how numbers and times are written, the looks, tables,
//! requests and responses, the server, the form that Prometheus reads, and who may change something.
//!
//! It knows no service.

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

pub mod attempts;
pub mod budget;
pub mod compression;
pub mod events;
pub mod exchange;
pub mod files;
pub mod filter;
pub mod frame;
pub mod hosts;
pub mod http;
pub mod making;
pub mod operator;
pub mod prefix;
pub mod process;
pub mod prometheus;
pub mod server;
pub mod session;
pub mod table;
pub mod units;
