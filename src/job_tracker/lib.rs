//! Job trackers: [`engine`] decides everything about one job and does nothing, [`parent`] does the same
//! for a job whose job tracker runs on a node, [`translate`] turns what travels into their inputs and
//! their effects into what travels, [`saved`] what a job tracker leaves for the next one, and [`service`]
//! runs any number of jobs for clients of the original.

#![allow(missing_docs, reason = "not a public API: a name that says it all needs no comment")]

pub mod engine;
pub mod parent;
pub mod saved;
pub mod service;
pub mod translate;
