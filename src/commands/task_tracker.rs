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
use corona::task_tracker::child::end_strays;
use corona::task_tracker::handover::{KeptTracker, VERSION};
use corona::task_tracker::node::heartbeats::Ending;
use corona::task_tracker::service::{TaskTracker, check_settings};
use tokio::io::{AsyncRead, AsyncReadExt};
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
is one: its tasks go on. So does 'corona admin restart-nodes --rolling'.
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

    /// Only check whether this program can take the place of one that runs with the same arguments
    #[arg(long, hide = true)]
    check_restart: bool,
}

/// Runs the task tracker until a signal or the cluster manager stops it.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    if arguments.check_restart {
        return check_restart(&arguments.source.found()?);
    }
    // The thread of the service hears them once there are handlers, and no other thread.
    handover::hold_signals().context("cannot hold signals back")?;
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
    Kept(Box<KeptTracker>),
    /// Its tasks cannot go on: their processes end as those of an earlier run.
    Unknown,
}

fn former() -> anyhow::Result<FormerTracker> {
    let handed = handover::received().context("what the former program has handed over")?;
    let Some(handed @ Handed { .. }) = handed else { return Ok(FormerTracker::None) };
    Ok(match KeptTracker::read(handed) {
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

/// The option that asks a program whether it can take the place of one that runs.
const CHECK_RESTART: &str = "--check-restart";
/// How long a program may take to answer that.
const PROGRAM_CHECK: Duration = Duration::from_secs(30);
/// The most bytes of its answer, and of the reason for none, that are read.
const MAX_ANSWER_BYTES: u64 = 4096;

/// The line with which a program answers that it can.
fn answer() -> String {
    format!("reads form {VERSION} of the hand-over\n")
}

/// Checks, in the program that is to come, that it can start, and prints the form of the hand-over that it reads.
fn check_restart(source: &FoundSource) -> anyhow::Result<()> {
    let loaded = usable(source.of_service().load_task_tracker())?;
    check_settings(&loaded)?;
    std::io::Write::write_all(&mut std::io::stdout(), answer().as_bytes())?;
    Ok(())
}

/// Checks that a program can take the place of this one, which has these arguments.
async fn check(
    program: &Path,
    arguments: impl Iterator<Item = OsString>,
    limit: Duration,
) -> anyhow::Result<()> {
    let shown = program.display();
    let mut asked = tokio::process::Command::new(program);
    asked.args(arguments).arg(CHECK_RESTART).env_remove(handover::VARIABLE);
    asked.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut asked = asked.spawn().with_context(|| format!("cannot run {shown}"))?;
    let (mut said, mut why) = (Vec::new(), Vec::new());
    let (out, err) = (asked.stdout.take(), asked.stderr.take());
    let answered = async {
        let kept = (read_some(out, &mut said), read_some(err, &mut why));
        tokio::join!(kept.0, kept.1);
        asked.wait().await
    };
    let status = timeout(limit, answered).await;
    let status = status.with_context(|| format!("{shown} {CHECK_RESTART} does not end"))??;
    let why = String::from_utf8_lossy(&why);
    let why = why.lines().next_back().unwrap_or_default();
    ensure!(status.success(), "{shown} cannot go on: {why} ({status})");
    let said = String::from_utf8_lossy(&said);
    ensure!(
        said == answer(),
        "{shown} cannot go on with what this program hands over, which is form {VERSION}; it says: {}",
        said.trim()
    );
    Ok(())
}

/// The beginning of a stream, which is closed then.
async fn read_some(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(stream) = stream else { return };
    let _ = stream.take(MAX_ANSWER_BYTES).read_to_end(kept).await;
}

/// Runs the service until `stop` completes, or until the cluster manager
/// refuses the node. After SIGHUP `again` is what the next program goes on with.
async fn serve(
    source: FoundSource,
    stop: impl Future<Output = StopSignal>,
    program: &Path,
    former: FormerTracker,
    again: &mut Option<KeptTracker>,
) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    let mut loaded = usable(source.of_service().load_task_tracker())?;
    starting("TaskTracker", &loaded.warnings);
    fit(&mut loaded.settings);
    let cluster_manager = loaded.settings.cluster_manager.clone();
    let (is_unknown, kept) = match former {
        FormerTracker::None => (false, None),
        FormerTracker::Kept(kept) => (false, Some(*kept)),
        FormerTracker::Unknown => (true, None),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let tracker = TaskTracker::bind_with(loaded, &variable, kept).await?;
    // Threads that were started before go on to hold them: this one alone hears them.
    handover::hear_signals().context("cannot listen for signals")?;
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
    let (keeper, link) = (tracker.keeper(), tracker.link());
    let mut signals = pin!(stop);
    let stop = async {
        loop {
            let by = tokio::select! {
                signal = &mut signals => return signal,
                _ = hangup.recv() => "SIGHUP",
                () = link.restart_asked() => "the request of the cluster manager",
            };
            let checked = tokio::select! {
                signal = &mut signals => return signal,
                checked = check(program, std::env::args_os().skip(1), PROGRAM_CHECK) => checked,
            };
            match checked.and_then(|()| Ok(keeper.check()?)) {
                Ok(()) => {
                    keeper.keep();
                    return StopSignal::Hangup;
                }
                Err(error) => {
                    tracing::error!("no restart after {by}: {error:#}");
                    link.refuse_restart(&format!("{error:#}"));
                }
            }
        }
    };
    let ending = serve_until("TaskTracker", |stopped| tracker.run(stopped), stop).await?;
    *again = keeper.take();
    if again.is_some() {
        // From here on, signals wait for the next program. One that came before is sent to it once more: it ends the
        // tasks, and reports the end of the node.
        handover::hold_signals().context("cannot hold signals back")?;
        if let Ok(signal) = timeout(LAST_LOOK, signals).await {
            let is_interrupt = signal == StopSignal::Interrupt;
            handover::hear_again(is_interrupt).context("cannot pass a signal on")?;
        }
    }
    conclude(ending, &cluster_manager)
}

/// How long a signal may take from its handler to this thread.
const LAST_LOOK: Duration = Duration::from_millis(50);

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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Why a script cannot take the place of this program; nothing if it can.
    async fn refusal(script: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("corona");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let arguments = ["task-tracker".into()].into_iter();
        let limit = if script.contains("sleep") { Duration::ZERO } else { PROGRAM_CHECK };
        let checked = check(&program, arguments, limit).await;
        let text = checked.err().map_or_else(String::new, |error| format!("{error:#}"));
        text.replace(&*program.display().to_string(), "corona")
    }

    #[tokio::test]
    async fn only_a_program_that_reads_the_same_form_takes_the_place() {
        let good = format!("test \"$*\" = 'task-tracker --check-restart' && printf '{}'", answer());
        assert_eq!(refusal(&good).await, "");
        // As a program of a version without the option.
        let old = "echo \"error: unexpected argument '$2' found\" >&2; exit 2";
        assert_eq!(
            refusal(old).await,
            "corona cannot go on: error: unexpected argument '--check-restart' found (exit status: 2)"
        );
        let later = "echo reads form 99 of the hand-over";
        assert_eq!(
            refusal(later).await,
            format!(
                "corona cannot go on with what this program hands over, which is form {VERSION}; it \
                 says: reads form 99 of the hand-over"
            )
        );
        assert!(refusal("true").await.ends_with("it says: "));
        assert!(refusal("yes").await.contains("cannot go on"));
        assert_eq!(
            refusal("exec sleep 60").await,
            "corona --check-restart does not end: deadline has elapsed"
        );
    }

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
