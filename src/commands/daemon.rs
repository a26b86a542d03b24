//! Common parts of all services: limits of the process, the line on stdout when it is ready, and
//! the notifications of systemd.

use std::fmt::Display;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::OnceLock;

use anyhow::{Context, anyhow, ensure};
use corona::config::ConfigErrors;
use corona::process::budget::{Budget, Limits, Resource, Use};
use corona::process::descriptors;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use sd_notify::NotifyState;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::signals::{StopSignal, shutdown_signal};

/// A configuration, or all its problems on one line.
pub(super) fn usable<T>(loaded: Result<T, ConfigErrors>) -> anyhow::Result<T> {
    loaded.map_err(|problems| {
        let each: Vec<String> = problems.errors().map(ToString::to_string).collect();
        anyhow!(each.join("; "))
    })
}

/// The variable with the number of the process that a service ends with, if it has one.
pub(super) const PARENT: &str = "CORONA_PARENT";

/// Lets the service stop when the process that started it ends, if that asks for it by [`PARENT`].
///
/// # Errors
/// When that process has ended already, or the system refuses.
pub(super) fn end_with_parent() -> anyhow::Result<()> {
    let Some(parent) = std::env::var_os(PARENT) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))
        .context("cannot wait for the end of the process that started this one")?;
    // It may have ended before that.
    let is_there = getppid().is_some_and(|pid| *pid.as_raw_nonzero().to_string() == *parent);
    ensure!(is_there, "the process that started this one has ended");
    Ok(())
}

/// Threads of the executor: one for each processor, and at least two, so that a
/// long request does not delay short ones.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).max(2)
}

/// The executor of a service.
///
/// # Errors
/// Its threads cannot be started.
pub(super) fn executor(threads: usize) -> anyhow::Result<Runtime> {
    executor_with(threads, MAX_BLOCKING)
}

/// The default of tokio.
const MAX_BLOCKING: usize = 512;
/// What this service has instead, if it has fewer.
static DISK_THREADS: OnceLock<usize> = OnceLock::new();
/// How they are called; the machine may allow fewer. A thread takes some memory, too.
const DISKS: &str = "threads that wait for disks";

/// What the machine allows this process, after it has raised what it may raise itself.
fn limits() -> Limits {
    descriptors::raise_limit();
    Limits::of_process()
}

fn disk_threads(most: usize) -> Use {
    Use::new(DISKS, most).threads(1).memory(128 << 10).least(4)
}

fn executor_with(threads: usize, blocking: usize) -> anyhow::Result<Runtime> {
    let most = *DISK_THREADS.get_or_init(|| blocking);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(Budget::new(limits(), &[disk_threads(most)]).of(DISKS))
        .enable_all()
        .build()
        .context("cannot start the threads of the service")?;
    runtime.spawn(feed_watchdog());
    Ok(runtime)
}

/// Runs a service until it ends. It gets the future that completes when it is asked to stop.
pub(super) fn run_service<F>(
    threads: usize,
    serve: impl FnOnce(Pin<Box<dyn Future<Output = StopSignal>>>) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    run_service_with(threads, MAX_BLOCKING, serve)
}

/// The same with at most so many threads that wait for disks.
pub(super) fn run_service_with<F>(
    threads: usize,
    blocking: usize,
    serve: impl FnOnce(Pin<Box<dyn Future<Output = StopSignal>>>) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = executor_with(threads, blocking)?;
    let served = runtime.block_on(async {
        let stop = shutdown_signal().context("cannot listen for signals")?;
        serve(Box::pin(stop)).await
    });
    // A disk or a name server that does not answer must not keep the process from ending.
    runtime.shutdown_background();
    served
}

/// Distributes what the machine allows the process among these uses, and logs what each may have, which metrics,
/// pages and the JSON of the status show as well.
pub(super) fn budget(uses: &[Use]) -> Budget {
    let most = *DISK_THREADS.get().unwrap_or(&MAX_BLOCKING);
    let budget = Budget::new(limits(), &[uses, &[disk_threads(most)]].concat());
    let raise: Vec<&str> = budget.scarce().into_iter().map(key_of).collect();
    match raise.is_empty() {
        true => tracing::info!("{}", budget.text()),
        false => tracing::warn!("{}; for more, raise {}", budget.text(), raise.join(" and ")),
    }
    budget.adopt();
    budget
}

/// What an operator raises for more of it.
fn key_of(resource: Resource) -> &'static str {
    match resource {
        Resource::OpenFiles => "the limit of open files (LimitNOFILE, ulimit -n)",
        Resource::Memory => "the memory of the control group (MemoryMax) or of the machine",
        Resource::Threads => "the number of threads (TasksMax)",
    }
}

/// Bytes in a MiB: pools of memory are counted so.
pub(super) const MIB: usize = 1 << 20;
/// Memory of a connection that does nothing, with its task and its buffers.
pub(super) const CONNECTION_BYTES: u64 = 16 << 10;

/// The memory of calls that arrive and replies that leave, as the configuration allows it in bytes.
pub(super) fn calls_in_flight(most_bytes: usize) -> Use {
    let least = LEAST_IN_FLIGHT.min(most_bytes.div_ceil(MIB));
    Use::new(IN_FLIGHT, most_bytes.div_ceil(MIB)).memory(MIB as u64).weight(4).least(least)
}

const LEAST_IN_FLIGHT: usize = 16;
/// Its name in a budget.
const IN_FLIGHT: &str = "MiB of calls in flight";

/// What is allowed of that, in bytes.
pub(super) fn in_flight_bytes(budget: &Budget, most_bytes: usize) -> usize {
    budget.of(IN_FLIGHT).saturating_mul(MIB).min(most_bytes)
}

/// Notifies systemd if it started the program.
pub(super) fn tell_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("cannot notify systemd of a change of state: {error}");
    }
}

/// Shows systemd that the executor makes progress, if the unit has a `WatchdogSec`. A process whose
/// threads are all stuck is then restarted.
async fn feed_watchdog() {
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    let mut beat = tokio::time::interval(interval / 2);
    loop {
        beat.tick().await;
        // A socket that nothing reads blocks its writer.
        let _ = tokio::task::spawn_blocking(|| tell_systemd(NotifyState::Watchdog)).await;
    }
}

/// Logs the start of a service under the original's name of it, and what its configuration warns of.
pub(super) fn starting(name: &str, warnings: &[impl Display]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!("STARTUP_MSG: Starting {name}, corona {}", env!("CARGO_PKG_VERSION"));
}

/// The words of a line on stdout between the name of a service and the reason why it goes on as before.
pub(super) const REFUSED: &str = " not restarted: ";

/// Prints a line on stdout with the reason why a service has not started again in its process.
pub(super) fn not_restarted(service: &str, why: &str) {
    let mut stdout = std::io::stdout().lock();
    // A reason of several lines is one line here.
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(stdout, "{service}{REFUSED}{why}").and_then(|()| stdout.flush());
}

/// Prints the line on stdout when a service is ready, and notifies systemd. A failure to write the line does not
/// end the service.
pub(super) fn ready(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    drop(stdout);
    tell_systemd(NotifyState::Ready);
}

/// Runs what `serve` returns until it ends, or until `stop` completes: then the receiver that `serve` got becomes
/// true, and the end is waited for. The log uses the original's name of the service.
///
/// # Errors
/// When it panics.
pub(super) async fn serve_until<T, F>(
    name: &str,
    serve: impl FnOnce(watch::Receiver<bool>) -> F,
    stop: impl Future<Output = StopSignal>,
) -> anyhow::Result<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (tell, told) = watch::channel(false);
    let mut serving = tokio::spawn(serve(told));
    let ended = tokio::select! {
        ended = &mut serving => ended,
        signal = stop => {
            tracing::info!("SHUTDOWN_MSG: Shutting down {name} after {signal}");
            if signal != StopSignal::Hangup {
                tell_systemd(NotifyState::Stopping);
            }
            tell.send_replace(true);
            serving.await
        }
    };
    ended.context("the service panicked")
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_service_ends_by_itself_or_when_it_is_told() {
        let by_itself = serve_until("Service", |_| async { 1 }, pending()).await;
        assert_eq!(by_itself.unwrap(), 1);
        let broken = |_| async { panic!("out of luck") };
        let error = serve_until::<(), _>("Service", broken, pending()).await.unwrap_err();
        assert_eq!(error.to_string(), "the service panicked");
        let when_told = |mut told: watch::Receiver<bool>| async move {
            told.wait_for(|told| *told).await.is_ok()
        };
        let signal = std::future::ready(StopSignal::Terminate);
        assert!(serve_until("Service", when_told, signal).await.unwrap());
    }
}
