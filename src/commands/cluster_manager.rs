//! `corona cluster-manager`: starts the service and ends with it.
//!
//! Wiring only: which directory, which overrides, which log, which signals.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::arguments::{Override, parse_override};
use super::logging::LogArguments;
use super::signals::{StopSignal, shutdown_signal};

const EXAMPLES: &str = "\
Examples:
  Start with the files in ./conf:
    corona cluster-manager
  Start with the files of an existing Hadoop installation:
    corona cluster-manager --conf-dir /etc/hadoop/conf
  Try another port for once:
    corona cluster-manager -D cm.server.address=localhost:50131
  Follow one part of the program closely, as JSON:
    corona cluster-manager --log-level info,corona::wire=debug --log-format json

SIGTERM and SIGINT stop the cluster manager.
Exit status: 0 stopped; 1 could not start, with one line on stderr that says
why; 2 wrong usage.";

/// Run the cluster manager
///
/// Reads core-site.xml, mapred-site.xml and the files that they name, listens
/// on the port of cm.server.address for task trackers and sessions, and runs
/// until it is told to stop.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Directory of the configuration files
    ///
    /// [default: $HADOOP_CONF_DIR, else $HADOOP_HOME/conf, else conf]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,

    /// Set a configuration key, whatever the files say; may be repeated
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<Override>,

    /// Go on from the state file, as the original's -recoverFromDisk
    #[arg(long)]
    recover_from_disk: bool,

    #[command(flatten)]
    log: LogArguments,
}

/// What the service needs from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// An existing directory with the configuration files.
    pub(crate) conf_dir: PathBuf,
    /// Settings that win over the files, in the order given.
    pub(crate) overrides: Vec<Override>,
    /// Whether to go on from the state file.
    pub(crate) recover_from_disk: bool,
}

/// Runs the cluster manager until a signal stops it.
///
/// # Errors
/// When it cannot start; the text says what is missing or wrong.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    arguments.log.init()?;
    let start = arguments.into_start(|name| std::env::var_os(name))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the service")?;
    runtime.block_on(async {
        let stop = shutdown_signal().context("cannot listen for signals")?;
        serve(start, stop).await
    })
}

/// Runs the service until `stop` is done.
async fn serve(start: Start, _stop: impl Future<Output = StopSignal>) -> anyhow::Result<()> {
    tracing::debug!(?start, "command line");
    bail!("this build holds no cluster manager service yet")
}

impl Arguments {
    fn into_start(self, variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Start> {
        let conf_dir = self.conf_dir.unwrap_or_else(|| default_conf_dir(variable));
        ensure!(
            conf_dir.is_dir(),
            "configuration directory {} does not exist; name one with --conf-dir",
            conf_dir.display()
        );
        Ok(Start { conf_dir, overrides: self.overrides, recover_from_disk: self.recover_from_disk })
    }
}

/// Where the original's scripts look. Spec: cluster-manager/06 §1.1.
fn default_conf_dir(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let directory = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    directory("HADOOP_CONF_DIR")
        .or_else(|| directory("HADOOP_HOME").map(|home| home.join("conf")))
        .unwrap_or_else(|| PathBuf::from("conf"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::arguments::accept_java_spellings;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn start_of(line: &[&str]) -> anyhow::Result<Start> {
        let words = ["cluster-manager"].iter().chain(line).map(OsString::from);
        Line::try_parse_from(accept_java_spellings(words))?.arguments.into_start(|_| None)
    }

    #[test]
    fn command_line_becomes_a_start() {
        let setting = |key: &str, value: &str| Override { key: key.into(), value: value.into() };
        for (line, overrides, recover_from_disk) in [
            (&[][..], vec![], false),
            (&["--recover-from-disk"], vec![], true),
            (&["-recoverFromDisk"], vec![], true),
            (&["-D", "a=b"], vec![setting("a", "b")], false),
            (&["-Da=b"], vec![setting("a", "b")], false),
            (
                &["-Da={\"1\":{\"MAP\":1}}", "-recoverFromDisk", "-D", "a=2"],
                vec![setting("a", "{\"1\":{\"MAP\":1}}"), setting("a", "2")],
                true,
            ),
        ] {
            let line = [&["--conf-dir", "/"], line].concat();
            let expected = Start { conf_dir: "/".into(), overrides, recover_from_disk };
            assert_eq!(start_of(&line).unwrap(), expected, "{line:?}");
        }
    }

    #[test]
    fn missing_directory_is_named() {
        let error = start_of(&["--conf-dir", "/no/such/directory"]).unwrap_err();
        assert!(error.to_string().contains("/no/such/directory"), "{error}");
    }

    #[test]
    fn configuration_is_looked_for_where_the_scripts_look() {
        for (conf_dir, home, expected) in [
            (None, None, "conf"),
            (None, Some("/h"), "/h/conf"),
            (Some("/c"), Some("/h"), "/c"),
            (Some(""), Some(""), "conf"),
        ] {
            let variable = |name: &str| match name {
                "HADOOP_CONF_DIR" => conf_dir.map(OsString::from),
                "HADOOP_HOME" => home.map(OsString::from),
                _ => None,
            };
            assert_eq!(default_conf_dir(variable), PathBuf::from(expected));
        }
    }
}
