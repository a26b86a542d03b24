//! `corona gateway`: a relay on each machine that finds the cluster manager that leads.

use std::ffi::OsString;
use std::future::Future;

use anyhow::bail;
use clap::Args;
use corona::cluster_manager::Gateway;
use corona::config::{GatewaySettings, keys};
use corona::net::CannotListen;
use corona::process::budget::Use;

use super::arguments::SourceArguments;
use super::daemon::{CONNECTION_BYTES, budget, ready, run_service, serve_until, threads, usable};
use super::logging::LogArguments;
use super::signals::StopSignal;

const EXAMPLES: &str = "\
Examples:
  Start with the files of an existing Hadoop installation:
    corona gateway --conf-dir /etc/hadoop/conf
  Start without files:
    corona gateway -D corona.cm.ha.zookeeper=zk1:2181,zk2:2181,zk3:2181

SIGTERM and SIGINT stop it.
Exit status: 0 stopped; 1 could not start, with one line on stderr that says
why; 2 wrong usage.";

/// Relay local connections to the leading cluster manager
///
/// Listens on corona.gateway.address, a port for programs of this machine, and
/// passes their connections on to the instance that leads, which it finds
/// through the ZooKeeper servers of corona.cm.ha.zookeeper. Programs on this
/// machine have that port as their cm.server.address.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: SourceArguments,

    #[command(flatten)]
    log: LogArguments,
}

/// What the gateway needs descriptors for: each connection has two ends.
const RELAYED: &str = "relayed connections";

/// Runs the gateway until a signal stops it.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let _log = arguments.log.init()?;
    let mut settings = settings(arguments, |name| std::env::var_os(name))?;
    let connections =
        Use::new(RELAYED, settings.max_connections).files(2).memory(2 * CONNECTION_BYTES);
    settings.max_connections = budget(&[connections]).of(RELAYED);
    run_service(threads(), |stop| serve(settings, stop))
}

fn settings(
    arguments: Arguments,
    variable: impl Fn(&str) -> Option<OsString>,
) -> anyhow::Result<GatewaySettings> {
    let source = arguments.source.found_with(variable)?;
    let settings = usable(source.of_client().gateway())?;
    if settings.zookeeper.is_none() {
        bail!(
            "{} is not set: a gateway finds the leader through ZooKeeper",
            keys::HA_ZOOKEEPER.name
        );
    }
    Ok(settings)
}

async fn serve(
    settings: GatewaySettings,
    stop: impl Future<Output = StopSignal>,
) -> anyhow::Result<()> {
    let failed = CannotListen::at(keys::HA_GATEWAY_ADDRESS.name, &settings.address);
    let gateway = Gateway::bind(settings).await.map_err(failed)?;
    ready(&format!("corona gateway ready: thrift {}", gateway.address()?));
    serve_until("Gateway", |stopped| gateway.run(stopped), stop).await
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_gateway_needs_zookeeper() {
        let of = |line: &[&str]| {
            let line = ["gateway"].iter().chain(line);
            settings(Line::try_parse_from(line).unwrap().arguments, |_| None)
        };
        let error = of(&[]).unwrap_err().to_string();
        assert!(error.contains("corona.cm.ha.zookeeper is not set"), "{error}");
        let settings = of(&["-D", "corona.cm.ha.zookeeper=zk:2181"]).unwrap();
        assert_eq!(settings.address.to_string(), "localhost:8888");
        assert_eq!(settings.zookeeper.unwrap().servers, "zk:2181");
    }
}
