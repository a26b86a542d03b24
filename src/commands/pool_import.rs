//! `corona pools import`: a pools file made of a queue file of YARN's schedulers.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use corona::config::import;

use corona_terminal::console::{Console, printable};

/// Make a pools file of a capacity-scheduler.xml or a fair-scheduler.xml
///
/// Prints the pools file, or writes it. What has no counterpart is listed on
/// stderr, and so are queues that are called otherwise.
#[derive(Args, Clone, Debug)]
pub(super) struct Import {
    /// The file of YARN's capacity or fair scheduler
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write the pools file here; an existing file is not replaced
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Import {
    /// Reads, translates and prints.
    pub(super) fn run(self, console: &mut Console<'_>) -> anyhow::Result<()> {
        let imported = import::import(&self.file)?;
        for note in &imported.notes {
            console.complain(&format!("{}\n", printable(note)));
        }
        match &self.output {
            None => Ok(console.print(&imported.pools_file)?),
            Some(path) => {
                let write = || {
                    let mut file = std::fs::File::create_new(path)?;
                    std::io::Write::write_all(&mut file, imported.pools_file.as_bytes())
                };
                write().with_context(|| format!("cannot write {}", path.display()))
            }
        }
    }
}
