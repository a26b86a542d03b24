//! Resources beside slots in the simulation: it passes, survives images, and finds each rule that is missing.

use super::tests::{Fault, SHORT, check_faults_are_found, check_restored};
use super::*;
use corona_model::queues::Part;
use corona_model::resources::{Amounts, Resources};
use corona_model::types::{ComputeSpecs, PerType};

fn plan(seed: u64) -> Plan {
    let trees = seed.is_multiple_of(4);
    Plan { seed, steps: SHORT, restarts: seed.is_multiple_of(3), trees, resources: true }
}

#[test]
fn runs_with_resources_pass() {
    let mut all = Summary::default();
    // In the last one a queue waits for slots of a node that has no CPU left.
    let waits = Plan { trees: true, restarts: false, ..plan(20_069) };
    for plan in (1..=60).map(plan).chain([waits]) {
        let (seed, run) = (plan.seed, run(plan));
        all.add(run.unwrap_or_else(|failure| panic!("seed {seed}: {}", failure.what)));
    }
    assert!(all.granted > 2000, "{all:?}");
}

#[test]
fn resources_restored_from_an_image_go_on_as_the_first_ones() {
    check_restored(plan);
}

fn hears(name: &'static str, hears: fn(Input) -> Input) -> Fault {
    Fault { name, hears, says: |_| {} }
}

fn settings(mut input: Input, change: impl Fn(&mut Settings)) -> Input {
    if let Input::SettingsChanged { settings } = &mut input {
        change(settings);
    }
    input
}

fn rules(input: Input, change: impl Fn(&mut Resources)) -> Input {
    settings(input, |settings| change(&mut settings.resources))
}

fn parts(input: Input, change: fn(u32) -> u32) -> Input {
    rules(input, |rules| rules.overcommit.iter_mut().for_each(|Part(part)| *part = change(*part)))
}

fn wishes(mut input: Input, change: impl Fn(&mut ComputeSpecs)) -> Input {
    if let Input::RequestResources { requests, .. } | Input::MoreRequests { requests, .. } =
        &mut input
    {
        requests.iter_mut().filter_map(|request| request.specs.as_mut()).for_each(change);
    }
    input
}

fn reports(mut input: Input, change: impl Fn(&mut ComputeSpecs)) -> Input {
    if let Input::HeartbeatNode { report, .. } = &mut input {
        change(&mut report.total);
    }
    input
}

/// Twenty ways in which resources may be counted wrongly.
fn faults() -> Vec<Fault> {
    vec![
        hears("no resources are counted", |i| rules(i, |rules| rules.counted = [false; 4])),
        hears("all resources are counted", |i| rules(i, |rules| rules.counted = [true; 4])),
        hears("CPUs are not counted", |i| rules(i, |rules| rules.counted[0] = false)),
        hears("memory is not counted", |i| rules(i, |rules| rules.counted[1] = false)),
        hears("disk space is not counted", |i| rules(i, |rules| rules.counted[2] = false)),
        hears("the network is not counted", |i| rules(i, |rules| rules.counted[3] = false)),
        hears("nodes give out twice as much", |i| parts(i, |part| part.saturating_mul(2))),
        hears("nodes give out half as much", |i| parts(i, |part| part / 2)),
        hears("nodes give out all that they have", |i| parts(i, |_| 10_000)),
        hears("nodes give out a little more", |i| parts(i, |part| part + part / 8)),
        hears("nodes keep no memory", |i| settings(i, |all| all.reserved_memory_mb = 0)),
        hears("requests take nothing by default", |i| {
            rules(i, |rules| rules.requested = PerType::all(Amounts::ZERO))
        }),
        hears("requests take more by default", |i| {
            rules(i, |rules| {
                rules.requested.0.iter_mut().for_each(|own| *own = own.plus(Amounts([1; 4])));
            })
        }),
        hears("maps and reduces take the same by default", |i| {
            rules(i, |rules| rules.requested.0[1] = rules.requested.0[0])
        }),
        hears("the memory of a request is not heard", |i| {
            wishes(i, |specs| specs.memory_mb = None)
        }),
        hears("a request takes half the memory", |i| {
            wishes(i, |specs| specs.memory_mb = specs.memory_mb.map(|memory| memory / 2))
        }),
        hears("a request takes a CPU less", |i| {
            wishes(i, |specs| specs.num_cpus = specs.num_cpus.saturating_sub(1))
        }),
        hears("a request takes more disk space", |i| {
            wishes(i, |specs| specs.disk_gb = specs.disk_gb.map(|disk| disk.saturating_add(1)))
        }),
        hears("a node has twice the memory", |i| {
            reports(i, |total| total.memory_mb = total.memory_mb.map(|memory| memory * 2))
        }),
        hears("a node has a fixed network", |i| reports(i, |total| total.network_mbps = Some(30))),
    ]
}

#[test]
fn each_wrong_count_is_found_within_six_hundred_seeds() {
    check_faults_are_found(faults(), plan);
}
