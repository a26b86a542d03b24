//! The recordings of the original among the fixtures, for tests.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::Traffic;
use crate::capture::{Limits, Side};
use crate::conversation::{Conversation, Offered, Said};
use crate::setup::RecordedSetup;
use crate::shadow::Configuration;
use corona_config::{Lookup, Source};
use corona_wire::value::Message;

/// The scenarios that can be played in virtual time: none of them restarts the cluster manager.
pub(crate) const SCENARIOS: [&str; 13] = [
    "dead_node",
    "exclude_hosts",
    "fair_two_pools",
    "fifo",
    "grants",
    "locality_wait",
    "min_and_max",
    "node_locality",
    "preemption",
    "session_expiry",
    "session_lifecycle",
    "strict_pools",
    "wire",
];

/// The recordings of jobs.
pub(crate) const JOBS: [&str; 5] =
    ["inproc-sleep", "remote-sleep", "wc-remote", "nodedeath", "preempt"];

/// The directory of a recording, such as `scenarios/grants`.
pub(crate) fn directory(name: &str) -> PathBuf {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join("fixtures/recordings").join(name)
}

/// The directory of a scenario.
pub(crate) fn scenario(name: &str) -> PathBuf {
    directory("scenarios").join(name)
}

/// The directory of a job.
pub(crate) fn job(name: &str) -> PathBuf {
    directory("jobs").join(name)
}

/// What a file of a recording has that is compressed.
pub(crate) fn unpacked(file: &Path) -> String {
    let mut text = String::new();
    let mut packed = flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap());
    packed.read_to_string(&mut text).unwrap();
    text
}

/// The conversations of a capture of a cluster with this configuration.
pub(crate) fn conversations_in(capture: &[u8], setup: &RecordedSetup) -> Vec<Conversation> {
    let limits = Limits { server_ports: vec![setup.ports.cluster_manager], ..Limits::default() };
    Traffic::read(capture, &limits).unwrap().conversations(&setup.ports)
}

/// The conversations of the recording in a directory.
pub(crate) fn conversations_of(directory: &Path) -> Vec<Conversation> {
    let capture = std::fs::read(directory.join("traffic.pcap")).unwrap();
    conversations_in(&capture, &RecordedSetup::read(directory).unwrap())
}

/// What a cluster manager of this program is started with that replaces the recorded one.
pub(crate) fn configuration_of(directory: &Path) -> Configuration {
    let setup = RecordedSetup::read(directory).unwrap();
    let nobody = "127.0.0.1:9".parse().unwrap();
    let overrides = setup.overrides(1.0, nobody, &directory.join("no.state"));
    let source =
        Source { conf_dir: Some(directory), overrides: &overrides, lookup: Lookup::AlsoByName };
    Configuration::read(&source.load().unwrap()).unwrap()
}

/// The configuration of a scenario with other texts in its files.
pub(crate) fn configured(name: &str, changes: &[(&str, &str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in ["core-site.xml", "corona.xml", "pools.xml"] {
        let mut text = std::fs::read_to_string(scenario(name).join(file)).unwrap();
        for (_, from, to) in changes.iter().filter(|(changed, ..)| *changed == file) {
            assert!(text.contains(from), "{name}: {file} has no {from}");
            text = text.replace(from, to);
        }
        std::fs::write(directory.path().join(file), text).unwrap();
    }
    directory
}

/// Changes each message that a cluster manager sends, and writes the bytes again.
pub(crate) fn falsify(conversations: &mut [Conversation], mut edit: impl FnMut(&mut Message)) {
    for one in conversations {
        let service = one.service;
        let from = if service == Offered::SessionDriver { Side::Client } else { Side::Server };
        for part in one.parts.iter_mut().filter(|part| part.from == from) {
            let Said::Messages { raw, messages } = &mut part.what else { continue };
            let before = messages.clone();
            messages.iter_mut().for_each(&mut edit);
            if *messages != before {
                raw.clear();
                for message in messages {
                    message.write(service.schema(), service.framing(), raw).unwrap();
                }
            }
        }
    }
}
