//! Native map and reduce tasks: what the process of a task does, without Java.
//!
//! From the inside out: `vint.rs`, [`ifile`], [`lines`], [`partition`], [`run`] and [`sort`] know bytes,
//! [`Read`](std::io::Read) and [`Write`](std::io::Write) alone; [`segment`] and [`spill`] put sorted data
//! into the local directories of a node; [`program`] and [`builtin`] are the user's code; [`shuffle`] decides
//! and [`fetch`] carries out what a reduce fetches; [`output`] commits; [`child`] ties all of it to the task
//! tracker's umbilical.

pub mod builtin;
pub mod child;
pub mod codec;
pub mod counters;
pub mod error;
pub mod fetch;
pub mod files;
pub mod ifile;
pub mod lines;
mod map;
pub mod output;
pub mod partition;
pub mod program;
mod reduce;
pub mod run;
pub mod scratch;
pub mod segment;
mod settings;
pub mod shuffle;
pub mod sort;
pub mod spill;
pub mod status;
mod umbilical;
mod vint;
