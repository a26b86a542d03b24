//! The `corona` program: passes the arguments to a subcommand and returns its exit status. It knows
//! nothing of clusters.

mod commands;

use std::process::ExitCode;

/// A cluster manager makes many small allocations that another thread frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::main(std::env::args_os())
}
