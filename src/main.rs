//! The `corona` program: takes the arguments, hands over to a subcommand, gives back the exit
//! status. It knows nothing of clusters.

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main(std::env::args_os())
}
