//! `corona job-tracker`: starts the job tracker service and ends with it.
//!
//! Wiring only: which directory, which overrides, which log, which signals, which status.

use std::cell::Cell;
use std::ffi::OsString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use corona::config::JobTrackerServiceSettings;
use corona::hadoop::rpc::KeptConnection;
use corona::job_tracker::standalone::{self, RemoteJobTracker};
use corona::job_tracker::{Ending, FILES_OF_JOBS, JobTracker, KeptService};
use corona::process::budget::Use;
use corona::process::descriptors;
use corona::process::handover::{self, Handed, Text as HandedText};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::{FoundSource, SourceArguments};
use super::daemon::{
    CONNECTION_BYTES, MIB, budget, calls_in_flight, end_with_parent, in_flight_bytes,
    not_restarted, ready, run_service, serve_until, starting, threads, usable,
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
  As task trackers start it for one job of a parent elsewhere:
    corona job-tracker --remote job_202611210044.1_0001 \
      attempt_202611210044.1_0001_m_100003_0 client.example.com 33271

SIGTERM and SIGINT stop the service. Its jobs go on when it is started again
with the same corona.jt.data.dir, also after a kill -9. SIGHUP starts it again in
the same process, a new version of the program if there is one: its clients keep
their connections and do not notice.
Exit status: 0 stopped; 1 could not start, or a part of it failed, with one
line on stderr that says so; 2 wrong usage. With --remote: 0 the job was over
for an hour; 1 also if the parent is gone; 143 stopped.";

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

    /// Run one job for a parent, as a task tracker starts it
    ///
    /// The job's configuration is in the file <JOB>.xml of the working
    /// directory.
    #[arg(long)]
    remote: bool,

    /// With --remote: JOB ATTEMPT PARENT_HOST PARENT_PORT NODE_HOST NODE_PORT
    #[arg(requires = "remote", value_name = "ARGS", trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The exit status of a process that SIGTERM has ended, as shells report it.
const TERMINATED: u8 = 143;
/// Threads of a remote job tracker.
const REMOTE_THREADS: usize = 2;

/// Runs the job tracker until a signal stops it.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Each thread that allocates touches pages of its own, and there may be many job trackers on a node.
    corona::process::memory::be_frugal();
    let log = arguments.log.init()?;
    let source = arguments.source.found()?;
    // A task tracker ends its job trackers itself; the process that it ends with is another one's parent.
    if arguments.remote {
        let words = standalone::Arguments::parse(&arguments.words)?;
        let mut status = ExitCode::FAILURE;
        let ran =
            run_service(REMOTE_THREADS, |stop| serve_parent(words, source, stop, &mut status));
        return ran.map(|()| status);
    }
    end_with_parent()?;
    // A new version replaces this file while the program runs.
    let program = std::env::current_exe().context("the program's own file")?;
    let kept = handed_over()?;
    let mut again = None;
    run_service(threads(), |stop| serve(source, stop, kept, &mut again))?;
    match again {
        None => Ok(ExitCode::SUCCESS),
        Some(kept) => {
            drop(log);
            let arguments: Vec<OsString> = std::env::args_os().collect();
            let error = handover::replace_program(&program, &arguments, hand_over(kept)?);
            Err(error).with_context(|| format!("cannot start {} again", program.display()))
        }
    }
}

/// What is said of the descriptors that a service hands over, with which it begins and ends: first those of the
/// listeners, then those of the connections.
#[derive(Debug, Serialize, Deserialize)]
struct Handover {
    /// Another one is refused: the connections end then.
    version: u32,
    listeners: usize,
    /// What the next service must read before what arrives, of each connection.
    received: Vec<Vec<u8>>,
}

const HANDOVER_VERSION: u32 = 1;

fn hand_over(kept: KeptService) -> anyhow::Result<Handed> {
    let mut of = Handover {
        version: HANDOVER_VERSION,
        listeners: kept.listeners.len(),
        received: Vec::new(),
    };
    let mut descriptors: Vec<OwnedFd> = kept.listeners.into_iter().map(Into::into).collect();
    for connection in kept.connections {
        descriptors.push(connection.stream.into());
        of.received.push(connection.received);
    }
    let text = HandedText::written(|writer| Ok(serde_json::to_writer(writer, &of)?))?;
    Ok(Handed { text, descriptors })
}

fn handed_over() -> anyhow::Result<KeptService> {
    let handed = handover::received().context("what the former service has handed over")?;
    let Some(Handed { mut text, descriptors }) = handed else { return Ok(KeptService::default()) };
    match serde_json::from_reader::<_, Handover>(text.reader()?) {
        Ok(of) if of.version == HANDOVER_VERSION => {
            let mut descriptors = descriptors.into_iter();
            let listeners = descriptors.by_ref().take(of.listeners).map(Into::into).collect();
            let connections = descriptors.zip(of.received);
            let connections = connections
                .map(|(stream, received)| KeptConnection { stream: stream.into(), received });
            Ok(KeptService { listeners, connections: connections.collect() })
        }
        // The listeners are closed with the rest, so that their addresses are free.
        _ => {
            tracing::warn!(
                "the former service has handed connections over in a form that this version does not know; they end"
            );
            Ok(KeptService::default())
        }
    }
}

/// Runs one job for a parent.
async fn serve_parent(
    arguments: standalone::Arguments,
    source: FoundSource,
    stop: impl Future<Output = StopSignal>,
    status: &mut ExitCode,
) -> anyhow::Result<()> {
    descriptors::raise_limit();
    let job_xml = PathBuf::from(format!("{}.xml", arguments.job));
    ensure!(job_xml.exists(), "{} is not in the working directory", job_xml.display());
    let loaded = usable(source.of_service().load_remote_job_tracker(&job_xml))?;
    starting("CoronaJobTracker", &loaded.warnings);
    let tracker = RemoteJobTracker::start(arguments, loaded, job_xml).await?;
    tracing::info!("CoronaJobTracker up at {}, session {}", tracker.address(), tracker.session());
    let serve = |stopped| tracker.run(stopped);
    *status = match serve_until("CoronaJobTracker", serve, stop).await? {
        standalone::Ending::Lingered => ExitCode::SUCCESS,
        standalone::Ending::Stopped => ExitCode::from(TERMINATED),
        standalone::Ending::ParentGone | standalone::Ending::Panicked => ExitCode::FAILURE,
    };
    Ok(())
}

/// Serves until it is stopped. After SIGHUP `again` is what the next service goes on with.
async fn serve(
    source: FoundSource,
    stop: impl Future<Output = StopSignal>,
    kept: KeptService,
    again: &mut Option<KeptService>,
) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    handover::hear_hangups().context("cannot listen for SIGHUP")?;
    let mut loaded = usable(source.of_service().load_job_tracker())?;
    starting("JobTracker", &loaded.warnings);
    fit(&mut loaded.settings);
    let connections = kept.connections.len();
    let tracker = JobTracker::bind_with(loaded, kept).await?;
    if connections > 0 {
        tracing::info!("{connections} connections of clients and task trackers have been kept");
    }
    let to = tracker.addresses();
    ready(&format!(
        "corona job tracker ready: rpc {} notifications {} pages {} jobs resumed {}",
        to.rpc,
        to.notifications,
        to.pages,
        tracker.resumed()
    ));
    let keeper = tracker.keeper();
    let hung_up = Cell::new(false);
    let mut stop = pin!(stop);
    let stop = async {
        loop {
            tokio::select! {
                signal = &mut stop => return signal,
                _ = hangup.recv() => match usable(source.of_service().load_job_tracker()) {
                    Ok(_) => {
                        keeper.keep();
                        hung_up.set(true);
                        return StopSignal::Hangup;
                    }
                    Err(error) => {
                        let why = format!("the configuration cannot be used: {error}");
                        tracing::error!("no restart after SIGHUP: {why}");
                        not_restarted("corona job tracker", &why);
                    }
                }
            }
        }
    };
    match serve_until("JobTracker", |stopped| tracker.run(stopped), stop).await? {
        Ending::Stopped => {
            *again = hung_up.get().then(|| keeper.take());
            Ok(())
        }
        Ending::Panicked(panic) => Err(panic.into()),
    }
}

/// Descriptors of a job that runs: a connection each from and to the cluster manager, and one for its history on
/// a file system that does not let it be closed and opened again.
const DESCRIPTORS_OF_JOB: u64 = 3;
/// MiB that running jobs have however little memory there is: a small job runs.
const LEAST_MEMORY: usize = 16;

/// Fits the limits on jobs and connections to what the machine allows the process.
fn fit(settings: &mut JobTrackerServiceSettings) {
    const JOBS: &str = "running jobs";
    const FILES: &str = "files of journals and histories";
    const CALLS: &str = "connections of clients and task trackers";
    const PAGES: &str = "connections for pages";
    const MEMORY: &str = "MiB of running jobs";
    let memory = usize::try_from(settings.max_jobs_memory >> 20).unwrap_or(usize::MAX);
    let budget = budget(&[
        Use::new(JOBS, settings.max_jobs).files(DESCRIPTORS_OF_JOB).weight(4),
        Use::new(MEMORY, memory).memory(MIB as u64).weight(8).least(LEAST_MEMORY),
        Use::new(FILES, FILES_OF_JOBS).files(1).weight(2),
        Use::new(CALLS, settings.rpc_max_connections).files(1).memory(CONNECTION_BYTES).weight(4),
        Use::new(PAGES, settings.web.max_connections).files(1).memory(4 * CONNECTION_BYTES),
        calls_in_flight(settings.rpc_max_total_inflight_bytes),
    ]);
    if let Some(limit) = budget.reason(JOBS) {
        (settings.max_jobs, settings.max_jobs_from) = (budget.of(JOBS), limit);
    }
    if let Some(limit) = budget.reason(MEMORY) {
        settings.max_jobs_memory = (budget.of(MEMORY) as u64) << 20;
        settings.max_jobs_memory_from = limit;
    }
    settings.rpc_max_connections = budget.of(CALLS);
    settings.web.max_connections = budget.of(PAGES);
    let in_flight = &mut settings.rpc_max_total_inflight_bytes;
    *in_flight = in_flight_bytes(&budget, *in_flight);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_of_the_first_version_is_read_and_written() {
        let fixture = include_str!("../../fixtures/versions/job-tracker-handover.json");
        let of: Handover = serde_json::from_str(fixture).unwrap();
        assert_eq!((of.version, of.listeners), (HANDOVER_VERSION, 2));
        assert_eq!(of.received, [vec![], vec![0, 0, 0, 5]]);
        assert_eq!(serde_json::to_string(&of).unwrap(), fixture.trim_end());
    }
}
