//! Job trackers: [`engine`] decides everything about one job and does nothing, [`translate`] turns
//! what travels into its inputs and its effects into what travels, [`saved`] what a job tracker leaves
//! for the next one, and [`service`] runs any number of jobs for clients of the original.

pub mod engine;
pub mod saved;
pub mod service;
pub mod translate;
