//! Between the objects that travel and the types of the job engine. Pure.
//!
//! [`translate`] turns reports of task trackers into inputs of the engine, and launches into orders;
//! [`saved`] turns the engine's effects into what a remote job tracker leaves with its parent, and back.
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

pub mod saved;
pub mod translate;
