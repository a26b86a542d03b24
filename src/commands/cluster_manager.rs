//! `corona cluster-manager`: starts the service and ends with it.
//!
//! Wiring only: which directory, which overrides, which log, which signals.

use std::ffi::OsString;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use corona::cluster_manager::{Again, Beginning, ClusterManager, End, Instance, ReloadRequest};
use corona::config::{self, ClusterManagerSettings};
use corona::process::budget::Use;
use tokio::sync::watch;

use super::arguments::{FoundSource, SourceArguments};
use super::daemon::{
    CONNECTION_BYTES, budget, calls_in_flight, end_with_parent, executor, in_flight_bytes, ready,
    serve_until, starting, threads, usable,
};
use super::logging::LogArguments;
use super::signals::{StopSignal, on_hangup, shutdown_signal};

const EXAMPLES: &str = "\
Examples:
  Start with built-in defaults:
    corona cluster-manager
  Start with the files of an existing Hadoop installation:
    corona cluster-manager --conf-dir /etc/hadoop/conf
  Start on another port:
    corona cluster-manager -D cm.server.address=localhost:50131
  Log one part of the program in detail, as JSON:
    corona cluster-manager --log-level info,corona_wire=debug --log-format json

SIGTERM and SIGINT stop the cluster manager; SIGHUP makes it reload the
scheduling files.
Exit status: 0 stopped; 1 could not start, or a part of it failed, with one line
on stderr with the reason; 2 wrong usage.";

/// Run the cluster manager
///
/// Reads core-site.xml, mapred-site.xml and the files that they name, listens
/// on the port of cm.server.address for task trackers and sessions, and runs
/// until it is stopped. Without a configured address it accepts connections
/// from this machine only. When it is ready, it prints a line with the
/// addresses of its Thrift service and of its pages, and a line with the URL of
/// the pages.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,

    /// Recover from the state file, like the original's -recoverFromDisk
    ///
    /// The file stays in place. If it does not exist, the start fails.
    #[arg(long)]
    recover_from_disk: bool,

    /// Start with nothing, and set the journal aside
    ///
    /// The directory of the journal gets the name <corona.cm.journal.dir>.old.
    /// Without this option a start resumes from the journal.
    #[arg(long, conflicts_with_all = ["recover_from_disk", "recover_if_present", "prefer_journal"])]
    fresh: bool,

    /// Recover from the state file if there is one, then rename it
    ///
    /// The file is renamed to <cm.state>.recovered, so that no later start
    /// recovers from it again. Meant for services, which start with the same
    /// options each time.
    #[arg(long, conflicts_with = "recover_from_disk")]
    recover_if_present: bool,

    /// Resume from the journal if there is one, and rename a state file
    ///
    /// The journal is never older than a state file that this cluster manager
    /// has written; the file is renamed to <cm.state>.outdated. Without a
    /// journal it is as with --recover-if-present. 'corona mini-cluster' starts
    /// its cluster manager so.
    #[arg(long, conflicts_with_all = ["recover_from_disk", "recover_if_present"])]
    prefer_journal: bool,

    #[command(flatten)]
    log: LogArguments,
}

/// The service's settings from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Start {
    source: FoundSource,
    /// Whether to recover from the state file.
    beginning: Beginning,
}

/// Runs the cluster manager until a signal stops it.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let log = arguments.log.init()?;
    let start = arguments.into_start(|name| std::env::var_os(name))?;
    end_with_parent()?;
    let runtime = executor(threads())?;
    let again = runtime.block_on(async {
        let stop = shutdown_signal().context("cannot listen for signals")?;
        serve(start, stop).await
    })?;
    // A disk that hangs must not keep the process from ending.
    runtime.shutdown_timeout(LAST_WORK);
    match again {
        None => Ok(()),
        Some(again) => {
            drop(log);
            start_again(&again)
        }
    }
}

/// How long work on disks may take after everything else has ended.
const LAST_WORK: Duration = Duration::from_secs(5);
/// How the process that started this one has ended, if it was the same service.
const AGAIN: &str = "CORONA_HA_AGAIN";
const STEPPED_DOWN: &str = "stepped down";

/// Replaces this process by a new one of the same program with the same arguments: no state of the
/// former leader remains.
fn start_again(again: &Again) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;

    let why = match again {
        Again::SteppedDown => STEPPED_DOWN,
        Again::Fenced(why) => why,
    };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "corona".into());
    let mut command = std::process::Command::new("/proc/self/exe");
    let error = command.arg0(name).args(arguments).env(AGAIN, why).exec();
    Err(error).context("cannot start again as a standby")
}

fn again_of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Option<Again> {
    let why = variable(AGAIN)?.to_string_lossy().into_owned();
    Some(if why == STEPPED_DOWN { Again::SteppedDown } else { Again::Fenced(why) })
}

/// Runs the service until `stop` is done. Returns how it is to start again, if it is.
async fn serve(
    start: Start,
    stop: impl Future<Output = StopSignal>,
) -> anyhow::Result<Option<Again>> {
    let mut loaded = usable(start.source.of_service().load())?;
    starting("ClusterManager", &loaded.warnings);
    fit(&mut loaded.settings);
    if loaded.settings.ha.is_some() {
        return serve_instance(loaded, start.beginning, stop).await;
    }
    let manager = ClusterManager::bind(loaded, start.beginning).await?;
    announce_ready(manager.thrift_address(), manager.web_address());
    let request = manager.reload_request();
    let hangups = on_hangup(move || request.send())?;
    let served = serve_until("ClusterManager", |stopped| manager.run(stopped), stop).await;
    hangups.abort();
    served??;
    Ok(None)
}

/// Fits the limits on connections and calls to what the machine allows the process.
fn fit(settings: &mut ClusterManagerSettings) {
    const CALLS: &str = "connections of task trackers and sessions";
    const NOTIFICATIONS: &str = "connections for notifications";
    const PAGES: &str = "connections for pages";
    let of = |name, wanted| Use::new(name, wanted).files(1).memory(CONNECTION_BYTES);
    let budget = budget(&[
        of(CALLS, settings.wire.max_connections).weight(6),
        // There are no more than sessions, and they are closed when they are idle.
        of(NOTIFICATIONS, settings.engine.bounds.sessions).weight(3),
        of(PAGES, settings.web.max_connections),
        calls_in_flight(settings.wire.max_total_inflight_bytes),
    ]);
    settings.wire.max_connections = budget.of(CALLS);
    settings.web.max_connections = budget.of(PAGES);
    let in_flight = &mut settings.wire.max_total_inflight_bytes;
    *in_flight = in_flight_bytes(&budget, *in_flight);
}

/// Runs one of several instances until `stop` is done, or it has led.
async fn serve_instance(
    loaded: config::Loaded,
    beginning: Beginning,
    stop: impl Future<Output = StopSignal>,
) -> anyhow::Result<Option<Again>> {
    let again = again_of_environment(|name| std::env::var_os(name));
    let instance = Instance::bind(loaded, beginning, again).await?;
    announce_ready(instance.thrift_address()?, instance.web_address()?);
    let (leads, mut request) = watch::channel(None::<ReloadRequest>);
    let hangups = on_hangup(move || {
        // A standby reads the files when it leads.
        if let Some(request) = &*request.borrow_and_update() {
            request.send();
        }
    })?;
    let on_lead = Box::new(move |request| drop(leads.send_replace(Some(request))));
    let served =
        serve_until("ClusterManager", |stopped| instance.run(stopped, on_lead), stop).await;
    hangups.abort();
    match served?? {
        End::Stopped => Ok(None),
        End::Again(again) => Ok(Some(again)),
    }
}

fn announce_ready(thrift: SocketAddr, web: SocketAddr) {
    ready(&format!(
        "corona cluster manager ready: thrift {thrift} http {web}\npages http://{}/",
        shown_address(web)
    ));
}

/// The address of a listener in a form that works on this machine.
fn shown_address(listener: SocketAddr) -> SocketAddr {
    let shown = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    SocketAddr::new(shown, listener.port())
}

impl Arguments {
    fn into_start(self, variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Start> {
        let source = self.source.found_with(variable)?;
        // At most one of them is set.
        let beginning = if self.recover_from_disk {
            Beginning::StateFile
        } else if self.recover_if_present {
            Beginning::StateFileIfPresent
        } else if self.prefer_journal {
            Beginning::JournalIfPresent
        } else if self.fresh {
            Beginning::Fresh
        } else {
            Beginning::Resume
        };
        Ok(Start { source, beginning })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;

    use super::*;
    use crate::commands::java::accept_java_spellings;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn start_of(line: &[&str]) -> anyhow::Result<Start> {
        let words = ["corona", "cluster-manager"].iter().chain(line).map(OsString::from);
        let words = accept_java_spellings(words).unwrap().split_off(1);
        Line::try_parse_from(words)?.arguments.into_start(|_| None)
    }

    #[test]
    fn command_line_becomes_a_start() {
        let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let (clean, from_file) = (Beginning::Resume, Beginning::StateFile);
        for (line, overrides, beginning) in [
            (&[][..], vec![], clean),
            (&["--recover-from-disk"], vec![], from_file),
            (&["--recover-if-present"], vec![], Beginning::StateFileIfPresent),
            (&["--prefer-journal"], vec![], Beginning::JournalIfPresent),
            (&["--fresh"], vec![], Beginning::Fresh),
            (&["-recoverFromDisk"], vec![], from_file),
            (&["-D", "a=b"], vec![setting("a", "b")], clean),
            (&["-Da=b"], vec![setting("a", "b")], clean),
            (
                &["-Da={\"1\":{\"MAP\":1}}", "-recoverFromDisk", "-D", "a=2"],
                vec![setting("a", "{\"1\":{\"MAP\":1}}"), setting("a", "2")],
                from_file,
            ),
        ] {
            let line = [&["--conf-dir", "/"], line].concat();
            let conf_dir = Some("/".into());
            let expected = Start { source: FoundSource { conf_dir, overrides }, beginning };
            assert_eq!(start_of(&line).unwrap(), expected, "{line:?}");
        }
    }

    #[test]
    fn the_url_of_the_pages_can_be_opened() {
        for (listener, shown) in [
            ("127.0.0.1:8889", "127.0.0.1:8889"),
            ("0.0.0.0:8889", "127.0.0.1:8889"),
            ("[::]:8889", "[::1]:8889"),
            ("10.1.2.3:80", "10.1.2.3:80"),
        ] {
            assert_eq!(shown_address(listener.parse().unwrap()).to_string(), shown);
        }
    }

    #[test]
    fn both_ways_to_recover_at_once_are_wrong_usage() {
        let line = ["cluster-manager", "--recover-if-present", "--recover-from-disk"];
        assert!(Line::try_parse_from(line).is_err());
        for other in ["--recover-if-present", "--recover-from-disk"] {
            let line = ["cluster-manager", "--prefer-journal", other];
            assert!(Line::try_parse_from(line).is_err());
        }
        for other in ["--recover-if-present", "--recover-from-disk", "--prefer-journal"] {
            assert!(Line::try_parse_from(["cluster-manager", "--fresh", other]).is_err());
        }
    }

    #[test]
    fn directory_comes_from_the_line_then_the_environment() {
        for (line, variable, expected) in [
            (&[][..], None, None),
            (&[], Some(""), None),
            (&[], Some("/"), Some("/")),
            (&["--conf-dir", "/"], Some("/no/such/directory"), Some("/")),
        ] {
            let words = ["cluster-manager"].iter().chain(line).map(OsString::from);
            let arguments = Line::try_parse_from(words).unwrap().arguments;
            let start = arguments.into_start(|_| variable.map(OsString::from)).unwrap();
            assert_eq!(start.source.conf_dir, expected.map(PathBuf::from), "{line:?} {variable:?}");
        }
    }
}
