//! The demo's promises before it runs. The run itself is tested with the built program.

use super::machine::Machines;
use super::pace::Pace;
use super::settings::{self, Directory};
use super::work::Office;
use super::{NODES, Options, SPEEDS};

fn options(nodes: usize) -> Options {
    Options { web_port: 0, thrift_port: 0, nodes, seed: 1, speed: 1.0 }
}

#[test]
fn every_size_and_pace_has_a_configuration_without_a_warning() {
    for nodes in [*NODES.start(), 24, 100, *NODES.end()] {
        for speed in [*SPEEDS.start(), 1.0, *SPEEDS.end()] {
            let (machines, pace) = (Machines::new(nodes), Pace::new(speed));
            let directory = Directory::create().unwrap();
            settings::write(&directory, &machines, pace).unwrap();
            let overrides = settings::overrides(&directory, &machines, &options(nodes), pace);
            let loaded = corona_config::load(None, &overrides).unwrap();
            let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
            assert_eq!(warnings, [""; 0], "{nodes} nodes, {speed} times");
        }
    }
}

#[test]
fn every_size_has_several_racks_and_hosts_of_their_own() {
    for nodes in NODES {
        let machines = Machines::new(nodes);
        let mut hosts: Vec<_> = machines.all().iter().map(|machine| machine.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts.len(), nodes + 1);
        assert!(hosts.iter().all(|host| host.parse::<std::net::Ipv4Addr>().is_ok()), "{hosts:?}");
        let in_racks = |rack: usize| machines.all().iter().filter(|it| it.rack == rack).count();
        assert!(machines.racks() >= 3);
        assert!((1..=machines.racks()).all(|rack| in_racks(rack) >= 2), "{nodes}");
        // A node is taken away twice at a time.
        assert!(machines.working().iter().filter(|machine| machine.is_small()).count() >= 2);
    }
}

#[test]
fn a_seed_gives_the_same_jobs_and_another_one_others() {
    let jobs = |seed| {
        let mut office = Office::new(seed, 150.0);
        let job = |_| {
            let pause = office.pause();
            let (plan, _) = office.next_job();
            (pause.to_bits(), plan.name, plan.user, plan.maps, plan.reduces, plan.priority)
        };
        (0..200).map(job).collect::<Vec<_>>()
    };
    let first = jobs(1);
    assert_eq!(first, jobs(1));
    assert_ne!(first, jobs(2));
    let users: std::collections::BTreeSet<_> = first.iter().map(|job| job.2).collect();
    assert!(users.len() > 5, "{users:?}");
    let sizes = |range: std::ops::RangeInclusive<usize>| {
        first.iter().filter(|job| range.contains(&job.3)).count()
    };
    assert!(sizes(2..=10) > 100 && sizes(15..=45) > 20 && sizes(60..=120) > 2);
}

#[test]
fn the_directory_is_private_and_goes_with_the_demo() {
    use std::os::unix::fs::PermissionsExt;
    let (one, other) = (Directory::create().unwrap(), Directory::create().unwrap());
    assert_ne!(one.path(), other.path());
    let mode = std::fs::metadata(one.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    std::fs::write(one.path().join("file"), "").unwrap();
    let path = one.path().to_path_buf();
    drop(one);
    assert!(!path.exists() && other.path().exists());
}
