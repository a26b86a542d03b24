//! What a job of very many maps costs.

use std::mem::size_of;

use super::*;
use corona_mapreduce::{CounterLimits, CounterNames, Counters};

#[test]
fn a_map_takes_less_than_a_kilobyte() {
    // A running job of 100,000 maps has 120 MB. Each map has an attempt, a slot or an event, and counters.
    let mut counters = Counters::default();
    for number in 0..33 {
        counters.set("org.apache.hadoop.mapred.Task$Counter", &format!("C{number}"), 199_933_952);
    }
    let limits = CounterLimits { groups: 9, counters: 99, name_bytes: 99 };
    let (packed, _) = CounterNames::default().pack(&counters, &limits);
    let texts = 64;
    // Nodes of the trees that hold slots and times are at least half full.
    let trees = 2 * (size_of::<(RequestId, Slot)>() + size_of::<(Millis, AttemptKey)>());
    let of_lists = size_of::<RequestId>() + 3 * size_of::<HostIdx>() + size_of::<StoredEvent>();
    let map = size_of::<Task>() + size_of::<Attempt>() + packed.bytes() + texts + trees + of_lists;
    assert!(map < 1_000, "{map} bytes: {} and {}", size_of::<Task>(), size_of::<Attempt>());
}

#[test]
fn a_job_of_many_maps_comes_to_its_end() {
    // Linear work: with anything quadratic this takes minutes.
    const MAPS: u32 = 20_000;
    let mut world = world_with(MAPS as usize, 0, |settings| settings.max_node_failures = 9);
    let now = world.now;
    let job = &mut world.job;
    job.apply(now, JobInput::Submitted);
    let node = |number: u32| format!("tracker_h{}:1", number % 1_000);
    for first in (1..=MAPS as i32).step_by(100) {
        let slots = (first..first + 100).map(|id| {
            let number = id as u32 - 1;
            let host: Arc<str> = format!("h{}", number % 1_000).into();
            GrantedSlot {
                id: RequestId(id),
                node: node(number).into(),
                address: host.clone(),
                host,
            }
        });
        job.apply(now, JobInput::Granted { slots: slots.collect() });
    }
    let report = |job: &mut JobEngine, number: u32, attempt: AttemptKey| {
        job.apply(
            now,
            JobInput::Heartbeat {
                node: node(number).into(),
                host: "h".into(),
                http_port: 1,
                reports: vec![TaskStatus::new(attempt, TaskState::Succeeded)],
            },
        )
    };
    let setup = TaskKey { kind: TaskKind::Map, number: MAPS + 1 };
    report(job, 0, setup.attempt(0));
    for number in 0..MAPS {
        report(job, number, TaskKey { kind: TaskKind::Map, number }.attempt(0));
    }
    assert_eq!(job.progress().finished.map, MAPS);
    let cleanup = TaskKey { kind: TaskKind::Map, number: MAPS };
    let end = report(job, MAPS - 1, cleanup.attempt(0));
    assert!(matches!(end.effects.last(), Some(JobEffect::EndSession { .. })), "{end:?}");
}
