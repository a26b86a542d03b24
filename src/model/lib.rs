//! The plain types and settings that several crates share: slot types, names, times, the
//! scheduler's configuration, texts of bounded length, and numbers from a seed. It knows nothing of nodes, sessions or the wire.
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

pub mod files;
pub mod form;
pub mod queues;
pub mod random;
pub mod resources;
pub mod settings;
pub mod text;
pub mod types;
