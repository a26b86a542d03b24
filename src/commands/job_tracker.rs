//! `corona job-tracker`: starts the job tracker service and ends with it.
//!
//! Wiring only: which directory, which overrides, which log, which signals, which status.

use std::future::Future;

use clap::Args;
use corona::job_tracker::service::{Ending, JobTracker};
use sd_notify::NotifyState;
use tokio::sync::watch;

use super::arguments::{FoundSource, SourceArguments};
use super::daemon::{
    announce, end_with_parent, run_service, serve_until, tell_systemd, threads, usable,
};
use super::logging::LogArguments;
use super::signals::StopSignal;

const EXAMPLES: &str = "\
Examples:
  Serve a cluster whose files are in a directory:
    corona job-tracker --conf-dir /etc/hadoop/conf \\
      -D corona.jt.address=jt.example.com:8021
  Submit to it with any Hadoop client:
    hadoop jar examples.jar pi -D mapred.job.tracker=jt.example.com:8021 2 100

SIGTERM and SIGINT stop the service. Its jobs go on when it is started again
with the same corona.jt.data.dir, also after a kill -9.
Exit status: 0 stopped; 1 could not start, or a part of it failed, with one
line on stderr that says so; 2 wrong usage.";

/// Run jobs for Hadoop clients: the job tracker as a service
///
/// Reads core-site.xml and mapred-site.xml, takes jobs from every Hadoop client
/// that has mapred.job.tracker set to its address, and runs each job in a
/// session of its own at the cluster manager, on Java and Rust task trackers.
/// When it is ready it prints one line with its addresses.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,

    #[command(flatten)]
    log: LogArguments,
}

/// Runs the job tracker until a signal stops it.
///
/// # Errors
/// When it cannot start or continue; the text says what is missing or wrong.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let _log = arguments.log.init()?;
    let source = arguments.source.found()?;
    end_with_parent()?;
    run_service(threads(), |stop| serve(source, stop))
}

async fn serve(source: FoundSource, stop: impl Future<Output = StopSignal>) -> anyhow::Result<()> {
    let loaded = usable(source.of_service().load_job_tracker())?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!("STARTUP_MSG: Starting JobTracker, corona {}", env!("CARGO_PKG_VERSION"));
    let tracker = JobTracker::bind(loaded).await?;
    let to = tracker.addresses();
    announce(&format!(
        "corona job tracker ready: rpc {} notifications {} pages {} jobs resumed {}",
        to.rpc,
        to.notifications,
        to.pages,
        tracker.resumed()
    ));
    tell_systemd(NotifyState::Ready);
    let (stop_sender, stop_receiver) = watch::channel(false);
    let serving = tracker.run(stop_receiver);
    match serve_until("JobTracker", serving, stop, &stop_sender).await? {
        Ending::Stopped => Ok(()),
        Ending::Panicked(panic) => Err(panic.into()),
    }
}
