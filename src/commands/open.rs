//! `corona open`: a link with which a browser sees the pages of a closed cluster.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use corona::access::{Identity, TlsMode};
use corona::config::HostPort;

use super::cluster::{block_on, parse_address};
use super::jobs::Which;
use corona_terminal::console::Console;

const EXAMPLES: &str = "\
Examples:
  The pages of the cluster of 'corona login':
    corona open
  Those of the jobs that run, in a browser of this machine:
    xdg-open \"$(corona open jobs)\"
  A script that reads the metrics of a node; the cluster is called alpha:
    curl --cacert ~/.config/corona/clusters/alpha/identity/ca.pem \\
      -H \"Authorization: Bearer $(corona open --token --address beta:8890)\" \\
      https://beta:8890/metrics

The link is printed on stdout. It can be used once, within two minutes, and
lets the browser see these pages for twelve hours. The pages of an open cluster
need none: their address is printed.
Exit status: 0 done; 1 failed, with one line on stderr; 2 wrong usage.";

/// Print a link to the pages of the cluster that a browser can use once
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Which pages: each daemon has its own
    #[arg(value_enum, value_name = "PAGES", default_value_t = Pages::Cluster)]
    pages: Pages,

    /// Those of any daemon instead, such as a node, by the address of its pages
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, conflicts_with = "pages")]
    address: Option<HostPort>,

    /// Print a token for scripts instead, which send it in the header
    /// 'Authorization: Bearer TOKEN'
    #[arg(long)]
    token: bool,

    #[command(flatten)]
    which: Which,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Pages {
    /// The cluster: nodes, sessions, pools
    Cluster,
    /// The jobs that run
    Jobs,
    /// The jobs that have ended
    Finished,
}

impl Pages {
    /// Their address by the configuration, and the key that has it.
    fn configured(self, which: &Which) -> anyhow::Result<(Option<HostPort>, &'static str)> {
        Ok(match self {
            Pages::Cluster => (Some(which.client()?.http_address), "cm.server.http.address"),
            Pages::Jobs => {
                let address = which.service()?.settings.http_address;
                (Some(address), "mapred.job.tracker.http.address")
            }
            Pages::Finished => {
                (which.client()?.finished_jobs, "mapred.job.tracker.corona.proxyaddr")
            }
        })
    }
}

/// Prints the link.
///
/// # Errors
/// The address is not configured, or the daemon does not answer or refuses.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let at = match arguments.address {
        Some(address) => address,
        None => {
            let (address, key) = arguments.pages.configured(&arguments.which)?;
            let address = address.filter(|address| address.port != 0);
            address.ok_or_else(|| anyhow!("{key} is not configured; see 'corona login'"))?
        }
    };
    let tls = arguments.which.client()?.tls;
    let directory = tls.directory.filter(|_| tls.mode != TlsMode::Off);
    let identity = directory.map(|directory| Identity::open(&directory)).transpose()?.map(Arc::new);
    let asked = async {
        if let Some(identity) = &identity
            && let Err(error) = identity.renew_if_due(SystemTime::now()).await
        {
            tracing::warn!(%error, "Cannot renew the certificate of this member");
        }
        Ok(match (&identity, arguments.token) {
            (Some(identity), true) => identity.token(&at.host, at.port).await?.value,
            (Some(identity), false) => {
                let code = identity.one_time_code(&at.host, at.port).await?.value;
                format!("https://{at}/access?code={code}")
            }
            (None, true) => bail!("this cluster is open, and takes no tokens"),
            (None, false) => format!("http://{at}/"),
        })
    };
    console.print(&format!("{}\n", block_on(asked)?))?;
    Ok(ExitCode::SUCCESS)
}
