//! The `corona` program: passes the arguments to a subcommand and returns its exit status. It knows
//! nothing of clusters.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod commands;

use std::process::ExitCode;

use corona_allocator as _;

fn main() -> ExitCode {
    commands::main(std::env::args_os())
}
