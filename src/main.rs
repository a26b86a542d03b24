//! The `corona` program: takes the arguments, hands over to a subcommand, gives back the exit
//! status. It knows nothing of clusters.

mod commands;

use std::process::ExitCode;

/// What a cluster manager allocates is many small things, by one thread, that another gives back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::main(std::env::args_os())
}
