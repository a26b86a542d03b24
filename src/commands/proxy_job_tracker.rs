//! `corona proxy-job-tracker`: starts the proxy job tracker and ends with it.
//!
//! Wiring only: which directory, which overrides, which log, which signals, which status.

use std::future::Future;

use clap::Args;
use corona::process::budget::Use;
use corona::proxy_job_tracker::{Ending, ProxyJobTracker};

use super::arguments::{FoundSource, SourceArguments};
use super::daemon::{
    CONNECTION_BYTES, budget, end_with_parent, ready, run_service_with, serve_until, starting,
    threads, usable,
};
use super::logging::LogArguments;
use super::signals::StopSignal;

const EXAMPLES: &str = "\
Examples:
  Serve a cluster whose files are in a directory:
    corona proxy-job-tracker --conf-dir /etc/hadoop/conf
  See what would be deleted, and delete nothing:
    corona proxy-job-tracker --conf-dir /etc/hadoop/conf \\
      -D corona.pjt.clean.up=report

SIGTERM and SIGINT stop the service. The flag of safe mode is not kept: the
cluster manager sets it when it changes, and clears it when it starts.
Exit status: 0 stopped; 1 could not start, or a part of it failed, with one
line on stderr that says so; 2 wrong usage.";

/// Threads that wait for disks: more than the index, the pages and the clean-up use together when none of
/// their file systems answers. Each keeps memory of its own.
const BLOCKING: usize = 20;

/// Run the proxy job tracker: finished jobs, the safe mode flag, statistics
///
/// Reads core-site.xml and mapred-site.xml. Keeps the flag that peers poll while
/// the cluster manager is in safe mode, relays the pages of running jobs, shows
/// finished jobs from their histories, adds up statistics of jobs, and deletes
/// expired files. When it is ready it prints one line with its addresses.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,

    #[command(flatten)]
    log: LogArguments,
}

/// Runs the proxy job tracker until a signal stops it.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let _log = arguments.log.init()?;
    let source = arguments.source.found()?;
    end_with_parent()?;
    run_service_with(threads(), BLOCKING, |stop| serve(source, stop))
}

/// What the proxy job tracker needs descriptors for, and how many job trackers it expects to report at a time.
const PAGES: &str = "connections for pages";
const REPORTERS: usize = 1024;
/// Finished jobs that are found on pages, and the memory of each.
const INDEXED: &str = "jobs in the index";
const INDEXED_BYTES: u64 = 1 << 10;

async fn serve(source: FoundSource, stop: impl Future<Output = StopSignal>) -> anyhow::Result<()> {
    let mut loaded = usable(source.of_service().load_proxy_job_tracker())?;
    starting("ProxyJobTracker", &loaded.warnings);
    let budget = budget(&[
        // Each may be relayed, or read a history.
        Use::new(PAGES, loaded.settings.max_connections).files(2).memory(4 * CONNECTION_BYTES),
        Use::new("connections of job trackers", REPORTERS).files(1).memory(CONNECTION_BYTES),
        Use::new(INDEXED, loaded.settings.max_jobs).memory(INDEXED_BYTES).weight(2),
    ]);
    loaded.settings.max_connections = budget.of(PAGES);
    loaded.settings.max_jobs = budget.of(INDEXED);
    let proxy = ProxyJobTracker::bind(loaded).await?;
    let at = proxy.addresses();
    ready(&format!(
        "corona proxy job tracker ready: thrift {} rpc {} http {}",
        at.thrift, at.rpc, at.http
    ));
    match serve_until("ProxyJobTracker", |stopped| proxy.run(stopped), stop).await? {
        Ending::Stopped => Ok(()),
        Ending::Panicked(panic) => Err(panic.into()),
    }
}
