//! Resources beside slots in the simulation: it passes, survives images, and finds each rule that is missing.

use super::model::Name;
use super::tests::{
    Fault, SHORT, check_faults_are_found, check_restored, each_pool, hears, says, with_settings,
    without_protection,
};
use super::*;
use corona_engine::{Record, testing};
use corona_model::form::Later;
use corona_model::queues::Part;
use corona_model::resources::{Amounts, ReserveAfter, Resources};
use corona_model::types::{ComputeSpecs, PerType};
use std::collections::BTreeSet;

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
    assert!(all.granted > 2000 && all.reserved > 100 && all.revoked > 20, "{all:?}");
}

#[test]
fn resources_restored_from_an_image_go_on_as_the_first_ones() {
    check_restored(plan);
}

fn rules(input: Input, change: impl Fn(&mut Resources)) -> Input {
    with_settings(input, |settings| change(&mut settings.resources))
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
        hears("nodes keep no memory", |i| with_settings(i, |all| all.reserved_memory_mb = 0)),
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

fn records(effects: &mut [Effect], change: impl Fn(&mut Record)) {
    for effect in effects {
        if let Effect::Record(record) = effect {
            change(record);
        }
    }
}

fn without(effects: &mut Vec<Effect>, is_it: impl Fn(&Record) -> bool) {
    effects.retain(|effect| !matches!(effect, Effect::Record(record) if is_it(record)));
}

/// Ways in which nodes may be kept wrongly.
fn wrong_reservations() -> Vec<Fault> {
    vec![
        hears("a node is kept before the wait is over", |i| {
            rules(i, |rules| rules.reservation.0.0 = 0)
        }),
        says("nodes are kept without a record", |effects| {
            without(effects, |record| matches!(record, Record::NodeReserved { .. }));
        }),
        says("the end of a reservation has no record", |effects| {
            without(effects, |record| matches!(record, Record::ReservationEnded { .. }));
        }),
        says("each reservation ends as if it was served", |effects| {
            records(effects, |record| {
                if let Record::ReservationEnded { served, .. } = record {
                    *served = true;
                }
            });
        }),
        says("no reservation ends as if it was served", |effects| {
            records(effects, |record| {
                if let Record::ReservationEnded { served, .. } = record {
                    *served = false;
                }
            });
        }),
        says("a node is kept for another request", |effects| {
            records(effects, |record| {
                if let Record::NodeReserved { id, .. } | Record::ReservationEnded { id, .. } =
                    record
                {
                    *id += 1;
                }
            });
        }),
        says("a node is kept for another type", |effects| {
            records(effects, |record| {
                if let Record::NodeReserved { kind, .. } | Record::ReservationEnded { kind, .. } =
                    record
                {
                    *kind = match kind {
                        ResourceType::Map => ResourceType::Reduce,
                        _ => ResourceType::Map,
                    };
                }
            });
        }),
    ]
}

#[test]
fn each_wrong_reservation_is_found_within_six_hundred_seeds() {
    check_faults_are_found(wrong_reservations(), plan);
}

/// Ways in which room may be made wrongly.
fn wrong_exchanges() -> Vec<Fault> {
    vec![
        hears("sessions cannot be protected", without_protection),
        hears("pools cannot be protected", |i| each_pool(i, |pool| pool.preemptable = true)),
        hears("pools have no minimum", |i| each_pool(i, |pool| pool.minimum = PerType::all(0))),
        hears("weights do not count", |i| each_pool(i, |pool| pool.weight = 1.0)),
        hears("priorities do not count", |i| each_pool(i, |pool| pool.priority = 0)),
        hears("old grants are taken back", |i| {
            with_settings(i, |all| all.scheduling.preemption_rounds += 3)
        }),
        hears("no grant is safe and no queue protected", |i| {
            with_settings(i, |all| {
                let queues = &mut *all.pools.queues;
                for rules in queues.groups.values_mut().chain(queues.pools.values_mut()) {
                    (rules.min_runtime_ms, rules.preemption) = (None, Default::default());
                }
            })
        }),
        says("room is made without a record", |effects| {
            without(effects, |record| matches!(record, Record::RoomMade { .. }));
        }),
        says("more grants are said to be taken back", |effects| {
            records(effects, |record| {
                if let Record::RoomMade { victims, .. } = record {
                    *victims += 1;
                }
            });
        }),
        says("room is made for another request", |effects| {
            records(effects, |record| {
                if let Record::RoomMade { id, .. } = record {
                    *id += 1;
                }
            });
        }),
        says("room is made without a grant", |effects| {
            let is_made =
                |effect: &Effect| matches!(effect, Effect::Record(Record::RoomMade { .. }));
            if effects.iter().any(is_made)
                && let Some(Effect::Notify { notification: Notification::Granted(_), .. }) =
                    effects.last()
            {
                effects.pop();
            }
        }),
        says("one grant more is taken back", |effects| {
            let more = effects.iter().find_map(|effect| match effect {
                Effect::Notify { handle, notification: Notification::Granted(grants), .. } => {
                    Some((handle.clone(), grants.first()?.clone()))
                }
                _ => None,
            });
            let Some((of, more)) = more else { return };
            for effect in effects {
                if let Effect::Notify {
                    handle, notification: Notification::Revoked(grants), ..
                } = effect
                    && *handle == of
                {
                    grants.push(more.clone());
                }
            }
        }),
    ]
}

#[test]
fn each_wrong_exchange_is_found_within_six_hundred_seeds() {
    check_faults_are_found(wrong_exchanges(), plan);
}

/// Small requests that take each place as soon as it becomes free, and a large one.
struct Churn {
    engine: Engine,
    now: Millis,
    random: Random,
    longest_ms: i64,
    next_id: i32,
    /// The ends of the tasks that run: session and request.
    ends: BTreeSet<(Millis, Name, i32)>,
    /// When the large request was granted.
    served: Option<Millis>,
}

const STEP_MS: i64 = 250;

/// The session with the large request.
fn large() -> Name {
    format!("{ID_PREFIX}.1").into()
}

impl Churn {
    fn new(seed: u64, after_ms: i64) -> Churn {
        let mut random = Random::new(seed);
        let mut settings = testing::settings();
        settings.resources.counted = [true, true, false, false];
        settings.resources.reservation = Later(ReserveAfter(after_ms));
        let mut churn = Churn {
            engine: new_engine(&settings),
            now: BEGIN,
            longest_ms: random.between(2_000, 10_000),
            next_id: 1,
            ends: BTreeSet::new(),
            served: None,
            random,
        };
        let nodes = churn.random.between(1, 3);
        for node in 0..nodes {
            let name = format!("n{node}");
            let mut report = testing::report(&name, &name, 24);
            report.total.memory_mb = Some(1_000);
            report.free = Some(report.total);
            churn.apply(Input::HeartbeatNode { report, rack: None });
        }
        let sessions = churn.random.between(1, 3);
        for session in 0..sessions {
            let handle: Name = format!("{ID_PREFIX}.{}", 2 + session).into();
            churn.start(&handle, &format!("small{}", session % 2));
            // As many as run at a time, and a few that wait.
            churn.ask_small(&handle, (8 * nodes / sessions) as usize + 2);
        }
        churn
    }

    fn start(&mut self, handle: &Name, pool: &str) {
        self.apply(Input::NextSessionId);
        self.apply(testing::session(handle, &format!("g.{pool}")));
    }

    fn ask(&mut self, handle: &Name, memory_mb: i64) {
        let memory_mb = Some(memory_mb as i32);
        let specs = ComputeSpecs { num_cpus: 1, memory_mb, ..ComputeSpecs::default() };
        let mut request = testing::request(self.next_id, ResourceType::Map, &[]);
        request.specs = Some(specs);
        self.next_id += 1;
        self.apply(testing::ask(handle, vec![request]));
    }

    fn ask_small(&mut self, handle: &Name, count: usize) {
        for _ in 0..count {
            let memory_mb = self.random.between(50, 200);
            self.ask(handle, memory_mb);
        }
    }

    fn apply(&mut self, input: Input) {
        self.apply_one(input);
        while self.engine.wants_pass() {
            self.apply_one(Input::Pass);
        }
    }

    fn apply_one(&mut self, input: Input) {
        let outcome = self.engine.apply(self.now, input);
        outcome.reply.unwrap();
        for effect in outcome.effects {
            let Effect::Notify { handle, notification: Notification::Granted(grants), .. } = effect
            else {
                continue;
            };
            for grant in grants {
                let runs_ms = self.random.between(1, self.longest_ms);
                self.ends.insert((self.now.plus_ms(runs_ms), handle.clone(), grant.id));
                if *handle == *large() {
                    self.served = Some(self.now);
                }
            }
        }
    }

    fn step(&mut self) {
        self.now = self.now.plus_ms(STEP_MS);
        while let Some((_, handle, id)) = self.ends.first().cloned().filter(|end| end.0 <= self.now)
        {
            self.ends.pop_first();
            self.apply(Input::ReleaseResources { handle: handle.clone(), ids: vec![id] });
            self.ask_small(&handle, 1);
        }
        if self.engine.next_deadline().is_some_and(|due| due <= self.now) {
            self.apply(Input::Tick);
        }
    }

    /// How long a request for 60 % of a node waits, at most until `limit_ms`.
    fn large_waits_ms(mut self, limit_ms: i64) -> Option<i64> {
        for _ in 0..self.random.between(20, 60) {
            self.step();
        }
        let asked = self.now;
        self.start(&large(), "large");
        self.ask(&large(), 600);
        while self.served.is_none() && self.now.since(asked) < limit_ms {
            self.step();
        }
        self.served.map(|served| served.since(asked))
    }
}

/// A request for 60 % of a node amid a churn of small ones is served within the wait for the reservation and
/// the longest task. Reservations are looked at once in a second, and the churn moves in steps.
#[test]
fn large_requests_are_served_amid_small_ones() {
    const AFTER_MS: i64 = 20_000;
    let mut never_without = 0;
    for seed in 1..=1_000 {
        let churn = Churn::new(seed, AFTER_MS);
        let limit_ms = AFTER_MS + churn.longest_ms + 1_001 + 2 * STEP_MS;
        let waited = churn.large_waits_ms(limit_ms);
        assert!(waited.is_some(), "seed {seed}: not within {limit_ms} ms");
        if seed.is_multiple_of(10) {
            let without = Churn::new(seed, i64::MAX).large_waits_ms(limit_ms);
            never_without += u32::from(without.is_none());
        }
    }
    assert!(never_without > 50, "{never_without} of 100 wait for longer without reservations");
}
