//! Job trackers: so far [`engine`], which decides everything about one job and does nothing, and
//! [`translate`], which turns what travels into its inputs and its effects into what travels.

pub mod engine;
pub mod translate;
