//! Job trackers: [`engine`] decides everything about one job and does nothing, [`translate`] turns
//! what travels into its inputs and its effects into what travels, and [`service`] runs any number of
//! jobs for clients of the original.

pub mod engine;
pub mod service;
pub mod translate;
