//! `corona import`: converts a packet capture to a recording.
//!
//! Wiring only: the two files, and the summary.

use std::fs;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use corona::conformance::capture::{Ending, Limits};
use corona::conformance::recording::{Converted, convert};
use corona::conformance::{Source, sniff};
use serde::Serialize;

use super::EXIT_FAILED;
use super::arguments::{create_file, is_same_file};
use super::traffic::{PortArguments, ending_text, skipped_text};
use corona_terminal::console::{Console, FormArguments, TextForm, printable};
use corona_terminal::progress::WatchedFile;

const EXAMPLES: &str = "\
Examples:
  A capture of tcpdump, with the configuration of its cluster:
    corona import cm.pcap --conf-dir /etc/hadoop/conf --out monday.corec
  The same with the port named:
    corona import cm.pcap.gz --port cluster-manager=9090 --out monday.corec

Exit status: 0 done; 1 not done, or only a part of the capture or no connection
to the cluster manager was read; 2 wrong usage.";

/// Convert a packet capture to a recording
///
/// Reads pcap and pcapng files of tcpdump and Wireshark, optionally compressed
/// with gzip. The recording contains the connections and their bytes, not the
/// packets, and is much smaller. If no port is known here, commands that read
/// the recording need it.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    /// Packet capture to read
    #[arg(value_name = "CAPTURE")]
    capture: PathBuf,

    /// Recording to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Overwrite the file if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    ports: PortArguments,

    #[command(flatten)]
    form: FormArguments,
}

/// The result as JSON.
#[derive(Serialize)]
struct Report {
    connections: u64,
    bytes: u64,
    packets: u64,
    /// Connections to the cluster manager.
    to_cluster_manager: u64,
    /// Bytes that were sent and are not in the capture.
    missing_bytes: u64,
    /// Remarks for the user, as sentences.
    notes: Vec<String>,
}

/// Converts the file.
pub(super) fn run(arguments: Arguments, console: &mut Console<'_>) -> anyhow::Result<ExitCode> {
    let Arguments { capture, out, force, ports, form } = arguments;
    let ports = ports.ports(|name| std::env::var_os(name))?.unwrap_or_default();
    let shown = capture.display().to_string();
    let shown = printable(&shown);
    let file = WatchedFile::open(&capture).with_context(|| format!("cannot open {shown}"))?;
    let source = match sniff(file).with_context(|| shown.clone().into_owned())? {
        Source::Packets(source) => source,
        Source::Recording(_) => bail!("{shown} is a recording already"),
    };
    let limits = Limits {
        server_ports: [Some(ports.cluster_manager), ports.proxy_job_tracker]
            .into_iter()
            .flatten()
            .filter(|port| *port != 0)
            .collect(),
        ..Limits::default()
    };
    let name = capture.file_name().unwrap_or_default().to_string_lossy();
    ensure!(!is_same_file(&capture, &out), "{shown} cannot be read and overwritten at once");
    let recording = BufWriter::new(create_file(&out, force)?);
    let converted = convert(source, &name, &limits, &ports, recording);
    if converted.is_err() && out.is_file() {
        // Half a recording would look like a whole one. That it stays is not worth an error more.
        let _ = fs::remove_file(&out);
    }
    let converted = converted.with_context(|| format!("cannot import {shown}"))?;
    let Converted { read, connections, bytes, missing_bytes, .. } = converted;
    let packets = read.packets.used;
    let of_nobody = (converted.to_cluster_manager == 0).then(|| match ports.cluster_manager {
        0 => {
            "the port of the cluster manager is not known: pass it to the commands that read the recording"
                .to_owned()
        }
        port => format!("no connection goes to the cluster manager's port {port}"),
    });
    let several = (converted.managers.len() > 1).then(|| {
        let all: Vec<String> = converted.managers.iter().map(ToString::to_string).collect();
        format!(
            "connections to the port of the cluster manager go to {}: of two cluster managers on one port, import one with --port cluster-manager=IP:{}",
            all.join(" and "),
            ports.cluster_manager
        )
    });
    let is_whole = matches!(read.ending, Ending::Complete | Ending::Stopped);
    let has_calls = connections > 0 && (ports.cluster_manager == 0 || of_nobody.is_none());
    let missing = (missing_bytes > 0)
        .then(|| format!("{missing_bytes} bytes were sent but are not in the capture"));
    let notes =
        [of_nobody, several, missing, skipped_text(&read.packets), ending_text(read.ending)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    match form.output {
        TextForm::Text => {
            let head = format!("{connections} connections, {bytes} bytes from {packets} packets");
            let lines = std::iter::once(head).chain(notes);
            console.print(&lines.map(|line| line + "\n").collect::<String>())?;
        }
        TextForm::Json => console.print_json(&Report {
            connections,
            bytes,
            packets,
            to_cluster_manager: converted.to_cluster_manager,
            missing_bytes,
            notes,
        })?,
    }
    Ok(if is_whole && has_calls { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}
