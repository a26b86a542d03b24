//! Random settings, sensible or not, as an operator may have configured them.

use std::sync::Arc;

use super::Random;
use corona_model::form::Later;
use corona_model::queues::{
    Part, PlaceBy, Placement, PreemptionRule, QueueRules, Queues, Quota, Quotas, SiblingOrder,
    Submitters,
};
use corona_model::resources::{Amounts, ReservationLimit, ReserveAfter};
use corona_model::settings::{
    GroupSettings, Hosts, Partitioning, PoolSettings, SchedulingMode, Settings, UNLIMITED,
};
use corona_model::types::{PerType, PoolName, ResourceType};

/// Groups and pools that sessions ask for, configured or not.
pub(super) const GROUPS: [&str; 3] = ["red", "green", "blue"];
pub(super) const POOLS: [&str; 3] = ["one", "two", "three"];

/// Complete settings. Times are short, so that they matter within a run.
pub(super) fn settings(random: &mut Random) -> Settings {
    let mut settings = Settings { partitioning: partitioning(random), ..Settings::default() };
    settings.node_expiry_ms = *random.pick(&[2_000, 20_000, 600_000]);
    settings.node_late_ms = *random.pick(&[100, 1_000, 12_000, i64::MAX]);
    settings.skip_late_nodes = random.percent(30);
    settings.session_expiry_ms = *random.pick(&[3_000, 60_000, 3_125_000]);
    settings.retired_sessions = random.below(4);
    settings.restart_interval_ms = *random.pick(&[0, 500, 60_000]);
    settings.heartbeat_delay_max_ms = *random.pick(&[100, 600_000]);
    settings.configured_pools_only = random.percent(10);
    if random.percent(20) {
        settings.reserved_memory_mb = 100;
        settings.reserved_disk_gb = 10;
    }
    let faults = &mut settings.faults;
    faults.failure_sessions = *random.pick(&[0, 1, 2, 40]);
    faults.failed_connection_sessions = *random.pick(&[0, 1, 3, 20]);
    if random.percent(15) {
        let bounds = &mut settings.bounds;
        bounds.sessions = random.between(1, 5) as usize;
        bounds.nodes = random.between(1, 8) as usize;
        bounds.pools = random.between(0, 3) as usize;
        bounds.requests_per_session = random.between(5, 60) as usize;
    }
    scheduling(random, &mut settings);
    pools(random, &mut settings);
    settings
}

/// Settings that differ from the given ones where an operator makes changes while the cluster runs.
pub(super) fn changed(random: &mut Random, settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    match random.below(6) {
        0 => settings.partitioning = partitioning(random),
        5 => {
            settings.node_late_ms = *random.pick(&[100, 1_000, 12_000]);
            settings.skip_late_nodes = random.percent(50);
        }
        1 => settings.reserved_memory_mb = *random.pick(&[0, 100]),
        2 | 3 => pools(random, &mut settings),
        _ => scheduling(random, &mut settings),
    }
    settings
}

/// Host files that leave some of the hosts out.
pub(super) fn host_files(random: &mut Random, all: &[Arc<str>]) -> Hosts {
    let mut hosts = Hosts::default();
    if random.percent(60) {
        return hosts;
    }
    let some = |random: &mut Random, chance| {
        all.iter().filter(|_| random.percent(chance)).cloned().collect()
    };
    hosts.exclude = some(random, 25);
    if random.percent(30) {
        hosts.include = some(random, 75);
    }
    hosts
}

fn partitioning(random: &mut Random) -> Partitioning {
    let mut partitioning = Partitioning::default();
    let entry = |random: &mut Random, most| {
        let kinds = ResourceType::ALL.into_iter().filter(|_| !random.percent(7));
        kinds
            .collect::<Vec<_>>()
            .into_iter()
            .map(|kind| (kind, random.below(most) as u32))
            .collect()
    };
    if random.percent(90) {
        partitioning.0.insert(1, entry(random, 3));
    }
    for cpus in [2, 4, 8] {
        if random.percent(50) {
            partitioning.0.insert(cpus, entry(random, 9));
        }
    }
    partitioning
}

fn scheduling(random: &mut Random, settings: &mut Settings) {
    let scheduling = &mut settings.scheduling;
    let waits: [i64; 5] = [0, 0, 1, 80, 3_000];
    scheduling.node_locality_wait_ms = PerType([0; 3].map(|_: i64| *random.pick(&waits)));
    scheduling.rack_locality_wait_ms = PerType([0; 3].map(|_: i64| *random.pick(&waits)));
    scheduling.default_mode = mode(random);
    scheduling.share_starving_ratio = *random.pick(&[0.0, 0.3, 0.7, 1.0]);
    scheduling.grants_per_pass = *random.pick(&[1, 2, 5, 5_000, 5_000]);
    scheduling.min_preempt_period_ms = *random.pick(&[0, 400, 4_000]);
    scheduling.starving_time_for_share_ms = *random.pick(&[0, 50, 2_000, 10_000]);
    scheduling.starving_time_for_minimum_ms = *random.pick(&[0, 50, 1_500, 10_000]);
    scheduling.preempted_task_max_running_time_ms =
        *random.pick(&[0, 300, 5_000, 300_000, i64::MAX / 3]);
    scheduling.preemption_rounds = *random.pick(&[0, 1, 3, 10]);
    scheduling.redirects.clear();
    if random.percent(25) {
        let (from, to) = (pool_name(random), pool_name(random));
        scheduling.redirects.insert(from, to);
    }
}

fn pools(random: &mut Random, settings: &mut Settings) {
    let limits = |random: &mut Random, chance, most| {
        PerType([0; 3].map(|_: i32| {
            if random.percent(chance) { Some(random.between(0, most) as i32) } else { None }
        }))
    };
    let minimum =
        |random: &mut Random| PerType(limits(random, 25, 8).0.map(Option::unwrap_or_default));
    let maximum = |random: &mut Random| {
        PerType(limits(random, 20, 12).0.map(|most| most.unwrap_or(UNLIMITED)))
    };
    settings.pools.groups.clear();
    settings.pools.pools.clear();
    for group in GROUPS {
        if random.percent(40) {
            let group_settings =
                GroupSettings { minimum: minimum(random), maximum: maximum(random) };
            settings.pools.groups.insert(group.into(), group_settings);
        }
        for pool in POOLS {
            if !random.percent(45) {
                continue;
            }
            let pool_settings = PoolSettings {
                minimum: minimum(random),
                maximum: maximum(random),
                weight: *random.pick(&[0.0, 0.5, 1.0, 1.0, 3.0]),
                priority: random.between(0, 2) as i32,
                mode: if random.percent(60) { Some(mode(random)) } else { None },
                preemptable: !random.percent(20),
                request_max: random.percent(10),
                whitelist: None,
            };
            settings.pools.pools.insert(PoolName::new(group, pool), pool_settings);
        }
    }
}

/// Counts some resources beside slots, or none.
pub(super) fn resources(random: &mut Random, settings: &mut Settings) {
    let resources = &mut settings.resources;
    resources.counted = std::array::from_fn(|at| random.percent(if at < 2 { 75 } else { 20 }));
    for part in &mut resources.overcommit {
        *part = Part(*random.pick(&[5_000, 10_000, 10_000, 12_345, 20_000]));
    }
    let usual = |random: &mut Random| {
        Amounts([
            *random.pick(&[0, 1, 1, 2]),
            *random.pick(&[0, 20, 64]),
            *random.pick(&[0, 1, 5]),
            *random.pick(&[0, 1, 10]),
        ])
    };
    resources.requested = PerType([0; 3].map(|_: i32| usual(random)));
    // Follows from another number, so that runs draw the same numbers as before there were reservations.
    let shortest = resources.overcommit.iter().map(|part| part.0).min().unwrap_or(0);
    resources.reservation = Later(ReserveAfter(i64::from(shortest) - 5_000));
    let longest = resources.overcommit.iter().map(|part| part.0).max().unwrap_or(0);
    resources.reservation_limit = Later(ReservationLimit(i64::from(longest) - 4_000));
}

/// Changes what nodes must keep. `random` is left as it is, as in [`quotas`].
pub(super) fn reserves(random: &Random, settings: &mut Settings) {
    let mut random = Random::new(random.clone().next() ^ 1);
    if random.percent(25) {
        settings.reserved_memory_mb = *random.pick(&[0, 30, 100, 300]);
        settings.reserved_disk_gb = *random.pick(&[0, 10, 30]);
    }
}

/// Gives the queues of a tree limits in resources, or takes them away. `random` is left as it is, so that runs draw
/// the same numbers as before there were such limits.
pub(super) fn quotas(random: &Random, settings: &mut Settings) {
    let mut random = Random::new(random.clone().next());
    let has_any = random.percent(70);
    let queues = &mut *settings.pools.queues;
    for rules in queues.groups.values_mut().chain(queues.pools.values_mut()) {
        let mut limit = |chance: usize, amounts: [u64; 4]| -> Option<Quota> {
            if !has_any || !random.percent(chance) {
                return None;
            }
            let part = Part(*random.pick(&[500, 2_500, 3_333, 10_000]));
            let amount = *random.pick(&amounts);
            Some(if random.percent(40) { Quota::Part(part) } else { Quota::Amount(amount) })
        };
        let minimum = [
            limit(15, [1, 2, 4, 9]),
            limit(20, [10, 150, 300, 700]),
            limit(5, [1, 5, 20, 40]),
            limit(5, [1, 5, 20, 40]),
        ];
        let maximum = [
            limit(10, [1, 4, 9, 12]),
            limit(15, [60, 250, 500, 900]),
            limit(5, [5, 20, 40, 80]),
            limit(5, [5, 20, 40, 80]),
        ];
        *rules.quotas = Quotas { minimum, maximum };
    }
}

/// Puts the groups into a tree with rules.
pub(super) fn tree(random: &mut Random, settings: &mut Settings) {
    let queues = &mut settings.pools.queues;
    **queues = Queues::default();
    let outer: &[&str] = &["land", "sea"];
    let mut around: Vec<&str> = outer.to_vec();
    for group in outer.iter().chain(&GROUPS) {
        let parent = GROUPS.contains(group) && random.percent(75);
        let parent = parent.then(|| (*random.pick::<&str>(&around)).into());
        around.push(group);
        let outermost = parent.is_none();
        let rules = QueueRules { parent, ..rules(random, outermost) };
        if rules != QueueRules::default() {
            queues.groups.insert((*group).into(), rules);
        }
    }
    for pool in settings.pools.pools.keys() {
        if random.percent(50) {
            queues.pools.insert(pool.clone(), rules(random, false));
        }
    }
    for _ in 0..random.below(3) {
        queues.placement.push(placement(random));
    }
}

fn rules(random: &mut Random, outermost: bool) -> QueueRules {
    let part = |random: &mut Random, chance| {
        PerType([0; 3].map(|_: i32| {
            random.percent(chance).then(|| Part(*random.pick(&[500, 2_500, 3_333, 10_000])))
        }))
    };
    let some = |random: &mut Random, chance, most| {
        random.percent(chance).then(|| random.between(1, most) as u32)
    };
    let submit = || Submitters { all: false, users: vec!["ann".into()], groups: vec![] };
    QueueRules {
        parent: None,
        weight: *random.pick(&[0.5, 1.0, 1.0, 4.0]),
        minimum: part(random, if outermost { 25 } else { 12 }),
        maximum: part(random, 15),
        order: *random.pick(&[SiblingOrder::Priority, SiblingOrder::Fair, SiblingOrder::Capacity]),
        lend: !random.percent(20),
        preemption: *random.pick(&[
            PreemptionRule::Default,
            PreemptionRule::Default,
            PreemptionRule::Fence,
            PreemptionRule::Disabled,
        ]),
        min_runtime_ms: *random.pick(&[None, None, Some(0), Some(400), Some(5_000)]),
        max_sessions: some(random, 20, 3),
        max_per_user: some(random, 20, 6),
        max_sessions_per_user: some(random, 20, 2),
        submit: random.percent(8).then(submit),
        draining: random.percent(4),
        vanished: false,
        quotas: Later::default(),
        placement: (0..random.below(2)).map(|_| placement(random)).collect(),
    }
}

fn placement(random: &mut Random) -> Placement {
    Placement {
        by: *random.pick(&[PlaceBy::User, PlaceBy::Group, PlaceBy::Name]),
        to: (*random.pick::<&str>(&GROUPS)).into(),
        create: random.percent(70),
    }
}

fn mode(random: &mut Random) -> SchedulingMode {
    *random.pick(&[SchedulingMode::Fifo, SchedulingMode::Fair, SchedulingMode::Deadline])
}

/// A pool, mostly one that may be configured.
pub(super) fn pool_name(random: &mut Random) -> PoolName {
    match random.below(20) {
        0 => PoolName::new("Bad", "NAME"),
        1 => PoolName::new("red", ""),
        2 => PoolName::new("other", random.pick::<&str>(&["a", "b", "c", "d"])),
        _ => PoolName::new(random.pick::<&str>(&GROUPS), random.pick::<&str>(&POOLS)),
    }
}
