//! `corona task-tracker`: starts a node's task tracker and ends with it.
//!
//! Wiring only: which directory, which overrides, which log, which signals, which status.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use corona::config::{HostPort, TaskTrackerSettings};
use corona::process::budget::Use;
use corona::process::handover::{self, Handed};
use corona::task_tracker::child::{end_noted, end_strays};
use corona::task_tracker::handover::Kept;
use corona::task_tracker::node::heartbeats::Ending;
use corona::task_tracker::service::TaskTracker;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::arguments::{FoundSource, SourceArguments};
use super::daemon::{
    CONNECTION_BYTES, budget, calls_in_flight, end_with_parent, in_flight_bytes, ready,
    run_service, serve_until, starting, threads, usable,
};
use super::logging::LogArguments;
use super::signals::StopSignal;

/// Threads of the executor. Few are enough, because disk work has its own
/// threads.
const MOST_THREADS: usize = 4;

const EXAMPLES: &str = "\
Examples:
  Start with the files of an existing Hadoop installation:
    corona task-tracker --conf-dir /etc/hadoop/conf
  Try it with a cluster manager on this machine, without a Hadoop installation:
    corona task-tracker -D slave.host.name=localhost \\
      -D mapred.task.tracker.http.address=localhost:50060

SIGTERM and SIGINT stop the task tracker; the processes of its tasks end first.
SIGHUP starts it again in the same process, a new version of the program if there
is one: its tasks go on.
Exit status: 0 stopped, or the cluster manager asked for a restart; 1 could not
start, or the cluster manager refused this host or answered none of the first
ten heartbeats, or a part of it failed, with one line on stderr; 2 wrong
usage.";

/// Run the task tracker of a node
///
/// Reads core-site.xml and mapred-site.xml, offers the slots of this machine
/// to the cluster manager at cm.server.address, and runs the tasks that job
/// trackers send. When it is ready it prints one line with its name and its
/// addresses.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,

    #[command(flatten)]
    log: LogArguments,
}

/// Runs the task tracker until a signal or the cluster manager stops it.
///
/// # Errors
/// When it cannot start or continue; the text names the missing or wrong part.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let log = arguments.log.init()?;
    let source = arguments.source.found()?;
    end_with_parent()?;
    // A new version replaces this file while the program runs.
    let program = std::env::current_exe().context("the program's own file")?;
    let mut again = None;
    let former = former()?;
    run_service(threads().min(MOST_THREADS), |stop| {
        serve(source, stop, &program, former, &mut again)
    })?;
    let Some(kept) = again else { return Ok(()) };
    let handed = kept.into_handed().context("cannot hand the tasks over")?;
    drop(log);
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let error = handover::replace_program(&program, &arguments, handed);
    Err(error).with_context(|| format!("cannot start {} again", program.display()))
}

/// What a former program in this process has handed over.
enum FormerTracker {
    None,
    Kept(Box<Kept>),
    /// Its tasks cannot go on: their processes end as those of an earlier run.
    Unknown,
}

fn former() -> anyhow::Result<FormerTracker> {
    let handed = handover::received().context("what the former program has handed over")?;
    let Some(handed @ Handed { .. }) = handed else { return Ok(FormerTracker::None) };
    Ok(match Kept::read(handed) {
        Ok(kept) => FormerTracker::Kept(Box::new(kept)),
        Err(error) => {
            tracing::error!(
                %error,
                "cannot go on with the tasks of the former program; they end, and their jobs run them again"
            );
            FormerTracker::Unknown
        }
    })
}

/// How long a program may take to print its version.
const PROGRAM_CHECK: Duration = Duration::from_secs(30);

/// Checks that a program can take the place of this one.
///
/// # Errors
/// It cannot be run.
async fn check(program: &Path) -> anyhow::Result<()> {
    let mut version = tokio::process::Command::new(program);
    version.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    let shown = program.display();
    let output = timeout(PROGRAM_CHECK, version.output()).await;
    let output = output.with_context(|| format!("{shown} --version does not end"))?;
    let status = output.with_context(|| format!("cannot run {shown}"))?.status;
    ensure!(status.success(), "{shown} --version: {status}");
    Ok(())
}

/// Runs the service until `stop` completes, or until the cluster manager
/// refuses the node. After SIGHUP `again` is what the next program goes on with.
async fn serve(
    source: FoundSource,
    stop: impl Future<Output = StopSignal>,
    program: &Path,
    former: FormerTracker,
    again: &mut Option<Kept>,
) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    handover::hear_hangups().context("cannot listen for SIGHUP")?;
    let mut loaded = usable(source.of_service().load_task_tracker())?;
    starting("TaskTracker", &loaded.warnings);
    fit(&mut loaded.settings);
    let cluster_manager = loaded.settings.cluster_manager.clone();
    let sigkill_delay = loaded.settings.child.sigkill_delay;
    let (is_unknown, kept) = match former {
        FormerTracker::None => (false, None),
        FormerTracker::Kept(kept) => (false, Some(*kept)),
        FormerTracker::Unknown => (true, None),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let tracker = TaskTracker::bind_with(loaded, &variable, kept).await?;
    if is_unknown {
        // They have ended by now, and are this process's children.
        tokio::task::spawn_blocking(|| end_strays(&[])).await?;
    }
    let to = tracker.addresses();
    ready(&format!(
        "corona task tracker ready: http {} actions {} umbilical {} thrift {} name {}",
        to.http,
        to.actions,
        to.umbilical,
        to.callbacks,
        tracker.name()
    ));
    let keeper = tracker.keeper();
    let mut signals = pin!(stop);
    let stop = async {
        loop {
            tokio::select! {
                signal = &mut signals => return signal,
                _ = hangup.recv() => match restartable(&source, program).await {
                    Ok(()) => {
                        keeper.keep();
                        return StopSignal::Hangup;
                    }
                    Err(error) => tracing::error!("no restart after SIGHUP: {error:#}"),
                }
            }
        }
    };
    let ending = serve_until("TaskTracker", |stopped| tracker.run(stopped), stop).await?;
    *again = keeper.take();
    if again.is_some() && timeout(Duration::ZERO, signals).await.is_ok() {
        // A signal to stop came meanwhile.
        let notes = again.take().map(|kept| kept.state.notes()).unwrap_or_default();
        tokio::task::spawn_blocking(move || end_noted(&notes, sigkill_delay)).await?;
    }
    conclude(ending, &cluster_manager)
}

/// Checks that the next program will start.
async fn restartable(source: &FoundSource, program: &Path) -> anyhow::Result<()> {
    usable(source.of_service().load_task_tracker()).context("the configuration cannot be used")?;
    check(program).await
}

/// The exit status for the end of the service.
fn conclude(ending: Ending, cluster_manager: &HostPort) -> anyhow::Result<()> {
    match ending {
        Ending::Stopped => Ok(()),
        Ending::Restart => {
            tracing::warn!("SHUTDOWN_MSG: the cluster manager asks for a restart");
            Ok(())
        }
        Ending::Disallowed { host } => bail!(
            "the cluster manager at {cluster_manager} refuses host {host}: its host files \
             (cm.hosts, cm.hosts.exclude) do not allow it"
        ),
        Ending::Unreachable { failures, last } => bail!(
            "the cluster manager at {cluster_manager} (cm.server.address) has answered none of \
             {failures} heartbeats; the last: {last}"
        ),
        Ending::TaskPanicked(broken) => Err(broken.into()),
    }
}

/// Fits the limits on connections and calls to what the machine allows the process.
fn fit(settings: &mut TaskTrackerSettings) {
    const OUTPUT: &str = "connections for map output and pages";
    const CALLS: &str = "connections of job trackers, and of tasks";
    let budget = budget(&[
        // Each reads a file.
        Use::new(OUTPUT, settings.http.max_connections).files(2).memory(OUTPUT_BYTES).weight(3),
        // There are two servers.
        Use::new(CALLS, settings.rpc_max_connections)
            .files(2)
            .memory(2 * CONNECTION_BYTES)
            .weight(3),
        Use::new("descriptors for processes of tasks", DESCRIPTORS_FOR_TASKS).files(1).weight(2),
        calls_in_flight(settings.rpc_max_total_inflight_bytes),
    ]);
    settings.http.max_connections = budget.of(OUTPUT);
    settings.rpc_max_connections = budget.of(CALLS);
    let in_flight = &mut settings.rpc_max_total_inflight_bytes;
    *in_flight = in_flight_bytes(&budget, *in_flight);
}

/// Memory of a reduce that fetches, with the piece that is on its way.
const OUTPUT_BYTES: u64 = 128 << 10;
/// Pipes, logs and control groups of the tasks of a large node, in descriptors.
const DESCRIPTORS_FOR_TASKS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_are_failures_say_what_to_look_at() {
        let cluster_manager: HostPort = "cm:8888".parse().unwrap();
        let text = |ending| conclude(ending, &cluster_manager).map_err(|error| error.to_string());
        assert_eq!(text(Ending::Stopped), Ok(()));
        assert_eq!(text(Ending::Restart), Ok(()));
        let disallowed = text(Ending::Disallowed { host: "n1".into() });
        assert_eq!(
            disallowed.unwrap_err(),
            "the cluster manager at cm:8888 refuses host n1: its host files (cm.hosts, \
             cm.hosts.exclude) do not allow it"
        );
        let last = "no connection: Connection refused".to_owned();
        let unreachable = text(Ending::Unreachable { failures: 10, last });
        assert_eq!(
            unreachable.unwrap_err(),
            "the cluster manager at cm:8888 (cm.server.address) has answered none of 10 heartbeats; \
             the last: no connection: Connection refused"
        );
    }
}
