//! `corona simulate` alone: what the checks of each change build optimised, without the daemons.

use std::process::ExitCode;

use clap::Parser;
use corona_allocator as _;
use corona_simulate::Arguments;
use corona_terminal::console::Console;

#[derive(Parser)]
#[command(name = "corona-simulate")]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn main() -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let mut console = Console::of_process(&mut out, &mut err);
    match corona_simulate::run(Line::parse().arguments, &mut console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console.complain(&format!("corona-simulate: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}
