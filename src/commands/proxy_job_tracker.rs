//! `corona proxy-job-tracker`: starts the proxy job tracker and ends with it.
//!
//! Wiring only: which directory, which overrides, which log, which signals, which status.

use std::future::Future;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use corona::config::Source;
use corona::proxy_job_tracker::{Ending, ProxyJobTracker};
use sd_notify::NotifyState;
use tokio::sync::watch;

use super::arguments::{Override, existing_conf_dir, pairs, parse_override};
use super::daemon::{allow_open_files, announce, serve_until, tell_systemd, threads, usable};
use super::logging::LogArguments;
use super::signals::{StopSignal, shutdown_signal};

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

/// Run the proxy job tracker: finished jobs, the safe mode flag, statistics
///
/// Reads core-site.xml and mapred-site.xml. Keeps the flag that peers poll while
/// the cluster manager is in safe mode, relays the pages of running jobs, shows
/// finished jobs from their histories, adds up statistics of jobs, and deletes
/// expired files. When it is ready it prints one line with its addresses.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Directory of the configuration files
    ///
    /// [default: $HADOOP_CONF_DIR, else built-in defaults only]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,

    /// Set a configuration key, overriding the files; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,

    #[command(flatten)]
    log: LogArguments,
}

/// Runs the proxy job tracker until a signal stops it.
///
/// # Errors
/// When it cannot start or continue; the text says what is missing or wrong.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let _log = arguments.log.init()?;
    let conf_dir = existing_conf_dir(arguments.conf_dir, |name| std::env::var_os(name))?;
    allow_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads())
        .enable_all()
        .build()
        .context("cannot start the threads of the service")?;
    let served = runtime.block_on(async {
        let stop = shutdown_signal().context("cannot listen for signals")?;
        serve(conf_dir, arguments.overrides, stop).await
    });
    // A disk that does not answer must not keep the process from ending.
    runtime.shutdown_background();
    served
}

async fn serve(
    conf_dir: Option<PathBuf>,
    overrides: Vec<Override>,
    stop: impl Future<Output = StopSignal>,
) -> anyhow::Result<()> {
    let overrides = pairs(overrides);
    let source =
        Source { conf_dir: conf_dir.as_deref(), overrides: &overrides, ..Source::default() };
    let loaded = usable(source.load_proxy_job_tracker())?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!("STARTUP_MSG: Starting ProxyJobTracker, corona {version}");
    let proxy = ProxyJobTracker::bind(loaded).await?;
    let at = proxy.addresses();
    announce(&format!(
        "corona proxy job tracker ready: thrift {} rpc {} http {}",
        at.thrift, at.rpc, at.http
    ));
    tell_systemd(NotifyState::Ready);
    let (stop_sender, stop_receiver) = watch::channel(false);
    let serving = proxy.run(stop_receiver);
    match serve_until("ProxyJobTracker", serving, stop, &stop_sender).await? {
        Ending::Stopped => Ok(()),
        Ending::Panicked(panic) => Err(panic.into()),
    }
}
