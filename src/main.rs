//! The `corona` program: parses the command line and hands over to a subcommand.

fn main() {}
