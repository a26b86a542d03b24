//! Common parts of commands that read packet captures and recordings: the ports of services, and
//! how the reading ended.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use corona::conformance::capture::{Ending, PacketCounts};
use corona::conformance::conversation::{Conversation, FoundManager, Ports, managers};
use corona::conformance::setup::RecordedSetup;

use super::arguments::existing_conf_dir;
use super::daemon::usable;

/// The ports of services, for files that do not contain them.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Services in a packet capture")]
pub(super) struct PortArguments {
    /// Configuration of the recorded cluster, which contains the ports
    ///
    /// [default: $HADOOP_CONF_DIR]
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,

    /// The port of a service; may be repeated
    ///
    /// KIND is cluster-manager or proxy-job-tracker. Session drivers are
    /// found in the registrations of their sessions. Where several cluster
    /// managers listen on one port, name the addresses of one of them:
    /// cluster-manager=IP:N
    #[arg(long = "port", value_name = "KIND=N", value_parser = parse_port)]
    ports: Vec<NamedPort>,
}

/// A service and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedPort {
    ClusterManager(Option<IpAddr>, u16),
    ProxyJobTracker(u16),
}

fn parse_port(text: &str) -> Result<NamedPort, String> {
    let (kind, port) = text.split_once('=').ok_or("expected KIND=N")?;
    let (address, port) = match port.parse::<SocketAddr>() {
        Ok(at) if kind == "cluster-manager" => (Some(at.ip()), Some(at.port())),
        _ => (None, port.parse().ok()),
    };
    let port: u16 = port
        .filter(|port| *port != 0)
        .ok_or_else(|| format!("expected a port from 1 to 65535 after {kind}="))?;
    match kind {
        "cluster-manager" => Ok(NamedPort::ClusterManager(address, port)),
        "proxy-job-tracker" => Ok(NamedPort::ProxyJobTracker(port)),
        _ => Err("KIND is cluster-manager or proxy-job-tracker".to_owned()),
    }
}

impl PortArguments {
    /// The configuration that is named on the line.
    pub(super) fn conf_dir(&self) -> Option<&Path> {
        self.conf_dir.as_deref()
    }

    /// The ports that are named, on the line before the configuration; none when nothing names
    /// that of the cluster manager.
    ///
    /// # Errors
    /// When a configuration that was named on the line cannot be read.
    pub(super) fn ports(
        &self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> anyhow::Result<Option<Ports>> {
        let read = |named, variable: &dyn Fn(&str) -> Option<OsString>| {
            let Some(dir) = existing_conf_dir(named, variable)? else { return anyhow::Ok(None) };
            Ok(Some(usable(RecordedSetup::read(&dir))?.ports))
        };
        let configured = match &self.conf_dir {
            Some(named) => read(Some(named.clone()), &variable)?,
            // The file need not belong to the cluster of this machine.
            None => read(None, &variable).unwrap_or_default(),
        };
        let mut ports = configured.unwrap_or_default();
        for named in &self.ports {
            match named {
                NamedPort::ClusterManager(address, port) => {
                    ports.cluster_manager = *port;
                    ports.cluster_manager_at.extend(*address);
                }
                NamedPort::ProxyJobTracker(port) => ports.proxy_job_tracker = Some(*port),
            }
        }
        Ok((ports != Ports::default()).then_some(ports))
    }
}

/// Refuses messages of several cluster managers.
///
/// # Errors
/// There is more than one.
pub(super) fn one_manager(conversations: &[Conversation], port: u16) -> anyhow::Result<()> {
    let found = managers(conversations);
    let [first, _, ..] = &found[..] else { return Ok(()) };
    let addresses = |of: &FoundManager| {
        let all: Vec<String> = of.addresses.iter().map(ToString::to_string).collect();
        all.join(" and ")
    };
    let each = found.iter().map(|of| {
        let connections = of.connections;
        format!("{} ({connections} connections)", addresses(of))
    });
    let each: Vec<String> = each.collect();
    let example = first.addresses.first().map(|ip| SocketAddr::new(*ip, port).to_string());
    bail!(
        "{} cluster managers: {}; choose one by its addresses, with --port cluster-manager={} for each",
        found.len(),
        each.join(", "),
        example.unwrap_or_default()
    )
}

/// A message about a file that was not read to its end; none for one that was.
pub(super) fn ending_text(ending: Ending) -> Option<String> {
    match ending {
        Ending::Complete | Ending::Stopped => None,
        Ending::Truncated => Some("the file is truncated: its end is missing".to_owned()),
        Ending::Damaged => Some("the rest of the file is damaged".to_owned()),
        Ending::LimitReached(limit) => {
            Some(format!("the rest of the file was not read: it exceeds the limit of {limit}"))
        }
    }
}

/// A line about the packets that were left out of a capture, if any.
pub(super) fn skipped_text(packets: &PacketCounts) -> Option<String> {
    let parts = [
        (packets.other_protocols, "of other protocols"),
        (packets.fragments, "in fragments"),
        (packets.unknown_link_types, "of an unknown link type"),
        (packets.malformed, "malformed"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!parts.is_empty()).then(|| format!("packets left out: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn ports_on_the_line_win_over_the_configuration() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/recordings/");
        let recorded = PathBuf::from(root).join("scenarios/session_expiry");
        let known = |cluster_manager, proxy_job_tracker| {
            Some(Ports { cluster_manager, proxy_job_tracker, ..Ports::default() })
        };
        let port = |text: &str| parse_port(text).unwrap();
        for (conf_dir, ports, expected) in [
            (None, vec![], None),
            (None, vec![port("cluster-manager=7")], known(7, None)),
            (Some(recorded.clone()), vec![], known(18_800, Some(18_802))),
            (
                Some(recorded.clone()),
                vec![port("proxy-job-tracker=8"), port("cluster-manager=7")],
                known(7, Some(8)),
            ),
        ] {
            let arguments = PortArguments { conf_dir, ports };
            assert_eq!(arguments.ports(|_| None).unwrap(), expected, "{arguments:?}");
        }
        let of_machine = |dir: &Path| {
            let (dir, arguments) = (dir.as_os_str().to_owned(), PortArguments::default());
            arguments.ports(move |_| Some(dir.clone()))
        };
        assert_eq!(of_machine(&recorded).unwrap(), known(18_800, Some(18_802)));
        let nowhere = Path::new("/no/such/directory");
        assert_eq!(of_machine(nowhere).unwrap(), None);
        let named = PortArguments { conf_dir: Some(nowhere.into()), ..PortArguments::default() };
        assert!(named.ports(|_| None).is_err());
    }

    #[test]
    fn ports_are_numbers_of_known_kinds() {
        assert_eq!(parse_port("cluster-manager=9090"), Ok(NamedPort::ClusterManager(None, 9090)));
        for (text, ip) in [("10.0.0.1", "10.0.0.1"), ("[::1]", "::1")] {
            let named = NamedPort::ClusterManager(Some(ip.parse().unwrap()), 9090);
            assert_eq!(parse_port(&format!("cluster-manager={text}:9090")), Ok(named));
        }
        assert_eq!(parse_port("proxy-job-tracker=65535"), Ok(NamedPort::ProxyJobTracker(65535)));
        for wrong in [
            "",
            "9090",
            "cluster-manager",
            "cluster-manager=0",
            "cluster-manager=65536",
            "cluster-manager=x",
            "cluster-manager=10.0.0.1",
            "cluster-manager=10.0.0.1:0",
            "proxy-job-tracker=10.0.0.1:9090",
            "task-tracker=1",
        ] {
            assert!(parse_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn omissions_are_reported() {
        assert_eq!(skipped_text(&PacketCounts { used: 9, ..PacketCounts::default() }), None);
        let counts = PacketCounts { other_protocols: 2, malformed: 1, ..PacketCounts::default() };
        let expected = "packets left out: 2 of other protocols, 1 malformed";
        assert_eq!(skipped_text(&counts).as_deref(), Some(expected));
    }
}
