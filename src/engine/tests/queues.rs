//! Trees of queues: the rules as short stories, and the complaints of users of other schedulers.

use super::*;
use corona_model::queues::{
    Part, PlaceBy, Placement, PreemptionRule, QueueRules, SiblingOrder, Submitters,
};

/// Puts a group into another one, with rules.
fn inside(
    settings: &mut Settings,
    group: &str,
    parent: Option<&str>,
    change: impl FnOnce(&mut QueueRules),
) {
    let rules = settings.pools.queues.groups.entry(group.into()).or_default();
    rules.parent = parent.map(Into::into);
    change(rules);
}

fn group(settings: &mut Settings, name: &str, minimum: i32, maximum: i32) {
    let limits = settings.pools.groups.entry(name.into()).or_default();
    limits.minimum = PerType::all(minimum);
    limits.maximum = PerType::all(maximum);
}

fn pool_rules(settings: &mut Settings, name: &str, change: impl FnOnce(&mut QueueRules)) {
    pool(settings, name, |_| {});
    let (group, pool) = name.split_once('.').unwrap();
    change(settings.pools.queues.pools.entry(PoolName::new(group, pool)).or_default());
}

/// A cluster of one node, and sessions of pools that each ask for more maps than there are slots.
fn crowded(slots: i16, pools: &[&str], change: impl FnOnce(&mut Settings)) -> TestEngine {
    let mut world = TestEngine::new(change);
    for (number, pool) in (1..).zip(pools) {
        let handle = format!("2026.{number}");
        world
            .start_with(&handle, pool, |info| info.user_id = format!("user{number}").into())
            .unwrap();
        world.ask(&handle, requests(1..=i32::from(slots) * 2, Map));
    }
    world.node("n1", "h1", slots);
    world
}

/// An image of the world's engine that is read again makes the same views.
fn restored(world: &TestEngine) -> TestEngine {
    // A tree needs the second form.
    world.restored(corona_model::form::SECOND)
}

/// `company` with two departments: `revenue` with `ads` and `search`, and `science`.
fn company(settings: &mut Settings) {
    inside(settings, "company", None, |_| {});
    inside(settings, "revenue", Some("company"), |rules| rules.weight = 2.0);
    inside(settings, "science", Some("company"), |_| {});
    inside(settings, "ads", Some("revenue"), |_| {});
    inside(settings, "search", Some("revenue"), |rules| rules.weight = 3.0);
}

const PEOPLE: [&str; 3] = ["ads.etl", "search.index", "science.physics"];

#[test]
fn weights_share_slots_at_every_level() {
    let world = crowded(12, &PEOPLE, company);
    // 8 of 12 for revenue, of these 2 and 6.
    assert_eq!(world.held(3), [2, 6, 4]);
    let views = world.engine.pools();
    let paths: Vec<&str> = views.iter().map(|view| &*view.path).collect();
    assert_eq!(
        paths,
        [
            "company",
            "company.revenue",
            "company.revenue.ads",
            "company.revenue.ads.etl",
            "company.revenue.search",
            "company.revenue.search.index",
            "company.science",
            "company.science.physics",
        ]
    );
    assert_eq!((views[0].counts[Map].granted, views[1].counts[Map].granted), (12, 8));
    restored(&world);
}

#[test]
fn minima_and_maxima_hold_at_every_level() {
    let world = crowded(12, &PEOPLE, |settings| {
        company(settings);
        group(settings, "revenue", 0, 6);
        group(settings, "ads", 5, 12);
    });
    assert_eq!(world.held(3), [5, 1, 6]);
    let why = world.reasons("2026.2");
    assert!(why.starts_with("group company.revenue holds 6 grants, its maximum"), "{why}");
    restored(&world);
}

#[test]
fn a_group_without_priorities_goes_by_weights_alone() {
    let order = |order| {
        move |settings: &mut Settings| {
            inside(settings, "g", None, |rules| rules.order = order);
            pool(settings, "g.high", |pool| pool.priority = 5);
            pool(settings, "g.low", |_| {});
        }
    };
    let pools = ["g.high", "g.low"];
    assert_eq!(crowded(6, &pools, order(SiblingOrder::Priority)).held(2), [6, 0]);
    assert_eq!(crowded(6, &pools, order(SiblingOrder::Fair)).held(2), [3, 3]);
}

#[test]
fn a_group_in_strict_capacity_order_goes_by_guarantees_alone() {
    let pools = ["g.small", "g.large", "g.none"];
    let order = |minima: [i32; 3]| {
        move |settings: &mut Settings| {
            inside(settings, "g", None, |rules| rules.order = SiblingOrder::Capacity);
            for (name, minimum) in pools.into_iter().zip(minima) {
                pool(settings, name, |pool| pool.minimum = PerType::all(minimum));
            }
            pool(settings, "g.none", |pool| (pool.weight, pool.priority) = (100.0, 9));
        }
    };
    // Beyond the guarantees in proportion to them, and neither weight nor priority helps.
    assert_eq!(crowded(12, &pools, order([1, 2, 0])).held(3), [4, 8, 0]);
    assert_eq!(crowded(12, &pools, order([2, 2, 0])).held(3), [6, 6, 0]);
    let mut world = crowded(12, &pools, order([1, 2, 0]));
    for handle in ["2026.1", "2026.2"] {
        world.end(handle);
    }
    world.run(Input::Pass).unwrap();
    assert_eq!(world.holds("2026.3", Map), 12, "the rest is for those without a guarantee");
    restored(&world);
}

#[test]
fn a_path_names_the_pool_of_its_innermost_group() {
    let mut world = TestEngine::new(company);
    let start = |world: &mut TestEngine, handle: &str, group: &str| {
        let pool = Some(PoolName::new(group, "etl"));
        world.start_with(handle, "x.y", |info| info.pool = pool).unwrap()
    };
    for (handle, group) in [("2026.1", "ads"), ("2026.2", "company.revenue.ads")] {
        let Reply::Started { pool, .. } = start(&mut world, handle, group) else { panic!() };
        assert_eq!(pool, PoolName::new("ads", "etl"));
    }
    // No path of the tree: the name is illegal, as before there were trees.
    let Reply::Started { pool, .. } = start(&mut world, "2026.3", "science.ads") else { panic!() };
    assert_eq!(pool, PoolName::new("science.ads", "etl"));
    let at = world.engine.session_at("2026.3", Millis(world.now)).unwrap();
    assert_eq!(at.scheduling_pool, PoolName::new("default", "defaultpool"));
}

#[test]
fn sessions_are_placed_by_rules() {
    let mut world = TestEngine::new(|settings| {
        inside(settings, "university", None, |_| {});
        inside(settings, "students", Some("university"), |rules| {
            let to: Arc<str> = "students".into();
            rules.placement = vec![Placement { by: PlaceBy::User, to, create: true }];
        });
        pool(settings, "staff.teachers", |_| {});
        let to: Arc<str> = "staff".into();
        let by_group = Placement { by: PlaceBy::Group, to, create: false };
        settings.pools.queues.placement = vec![by_group];
    });
    let cases = [
        (Some(("university", "students")), "ann", None, "students.ann"),
        (Some(("students", "anything")), "ann", None, "students.ann"),
        (Some(("staff", "teachers")), "ann", None, "staff.teachers"),
        (None, "ann", Some("teachers"), "staff.teachers"),
        (None, "ann", Some("janitors"), "default.ann"),
        // No legal name of a pool.
        (Some(("students", "anything")), "Ann", None, "students.anything"),
    ];
    for (number, (asked, user, of, expected)) in (1..).zip(cases) {
        let reply = world.start_with(&format!("2026.{number}"), "x.y", |info| {
            info.pool = asked.map(|(group, pool)| PoolName::new(group, pool));
            info.user_id = user.into();
            info.group_ids = of.map(|group| vec![group.into()]);
        });
        let Ok(Reply::Started { pool, .. }) = reply else { panic!("{reply:?}") };
        assert_eq!(pool.to_string(), expected, "{asked:?} {user} {of:?}");
    }
}

#[test]
fn only_those_who_may_submit_start_sessions_and_none_do_where_it_drains() {
    let mut world = TestEngine::new(|settings| {
        inside(settings, "g", None, |rules| {
            rules.submit = Some(Submitters {
                all: false,
                users: vec!["ann".into()],
                groups: vec!["staff".into()],
            });
        });
        pool_rules(settings, "g.open", |rules| {
            rules.submit = Some(Submitters { all: true, ..Submitters::default() });
        });
        pool_rules(settings, "g.shut", |rules| rules.draining = true);
    });
    let cases = [
        ("g.p", "ann", None, true),
        ("g.p", "bob", Some("staff"), true),
        ("g.p", "bob", Some("other"), false),
        ("g.open", "bob", None, true),
        ("g.shut", "ann", None, false),
        ("elsewhere.p", "bob", None, true),
    ];
    for (number, (pool, user, of, allowed)) in (1..).zip(cases) {
        let started = world.start_with(&format!("2026.{number}"), pool, |info| {
            info.user_id = user.into();
            info.group_ids = of.map(|group| vec![group.into()]);
        });
        assert_eq!(started.is_ok(), allowed, "{pool} {user}: {started:?}");
    }
}

/// A session that names no pool, an empty or an illegal one is scheduled in the group `default`, whose rules hold then.
#[test]
fn the_rules_of_the_queue_in_which_a_session_is_scheduled_hold() {
    let mut world = TestEngine::new(|settings| {
        inside(settings, "default", None, |rules| rules.draining = true);
    });
    let pools = [None, Some(PoolName::new("default", "")), Some(PoolName::new("X", "Y"))];
    for (number, pool) in (1..).zip(pools) {
        let refused = world.start_with(&format!("2026.{number}"), "a.b", |info| info.pool = pool);
        let draining = PoolObjection::Draining("default".into());
        assert_eq!(refused, Err(Refusal::SessionPool(draining)));
    }
}

#[test]
fn a_group_that_gets_rules_outlives_its_last_pool() {
    let mut world = TestEngine::new(|settings| pool(settings, "students.p", |_| {}));
    world.change(|settings| {
        settings.pools = Default::default();
        inside(settings, "students", None, |rules| rules.weight = 2.0);
    });
    let world = restored(&world);
    let mut views = world.engine.pools().into_iter();
    assert!(views.any(|view| &*view.path == "students"));
}

#[test]
fn a_queue_that_has_vanished_and_is_empty_takes_sessions_like_any_other() {
    let mut world = TestEngine::new(|settings| {
        inside(settings, "g", None, |rules| rules.weight = 2.0);
        pool_rules(settings, "g.p", |_| {});
        group(settings, "plain", 0, 1);
    });
    world.start("2026.1", "g.p");
    world.start("2026.2", "plain.p");
    world.change(|settings| {
        settings.pools = Default::default();
        inside(settings, "other", None, |_| {});
    });
    // A group that had numbers only drains as well.
    for (number, pool) in [(3, "g.p"), (4, "plain.q")] {
        let refused = world.start_with(&format!("2026.{number}"), pool, |_| {});
        assert!(matches!(refused, Err(Refusal::SessionPool(PoolObjection::Draining(_)))), "{pool}");
    }
    world.end("2026.1");
    world.end("2026.2");
    world.start("2026.5", "g.p");
    world.start("2026.6", "plain.q");
}

/// Complaint 1: "why does my job wait?" is not answered.
#[test]
fn why_does_my_job_wait() {
    let mut world = crowded(4, &["ads.etl", "search.index"], |settings| {
        company(settings);
        inside(settings, "ads", Some("revenue"), |rules| {
            rules.max_per_user = Some(1);
            rules.max_sessions = Some(1);
        });
    });
    assert_eq!(
        world.reasons("2026.1"),
        "user user1 holds 1 grant in queue company.revenue.ads, the maximum of each user"
    );
    let why = world.reasons("2026.2");
    assert!(
        why.contains("queue company.revenue.search.index holds 3 grants, its share is"),
        "{why}"
    );
    world.session("2026.3", "ads.etl", requests(1..=1, Map));
    assert_eq!(
        world.reasons("2026.3"),
        "queue company.revenue.ads serves 1 session at a time, and 1 is served; this session is next"
    );
    restored(&world);
}

/// Complaint 2: preemption in loops.
#[test]
fn preemption_in_loops() {
    let mut world = TestEngine::new(|settings| {
        company(settings);
        // Nobody in ads may use more than two slots, so ads is due no more, whatever it asks for.
        inside(settings, "ads", Some("revenue"), |rules| rules.max_per_user = Some(2));
        settings.scheduling.starving_time_for_share_ms = 1_000;
        settings.scheduling.min_preempt_period_ms = 0;
    });
    world.node("n1", "h1", 12);
    world.session("2026.2", "search.index", requests(1..=50, Map));
    world.session("2026.1", "ads.etl", requests(1..=50, Map));
    world.wait(60_000);
    let revoked: usize = world
        .told("2026.2")
        .iter()
        .map(|told| match told {
            Revoked(ids) => ids.len(),
            _ => 0,
        })
        .sum();
    // Shares are rounded down, as in the original.
    assert_eq!((world.holds("2026.1", Map), revoked), (1, 1));
    assert_eq!(world.told("2026.1").iter().filter(|told| matches!(told, Revoked(_))).count(), 0);
}

/// Complaint 3: large requests starve. With slots a strict order within a pool is what helps: the
/// first session of a FIFO pool is served first, and no later one takes its slots.
#[test]
fn large_requests_starve() {
    let mut world = TestEngine::new(|settings| {
        company(settings);
        pool(settings, "ads.etl", |pool| pool.mode = Some(SchedulingMode::Fifo));
    });
    world.node("n1", "h1", 4);
    world.session("2026.1", "ads.etl", requests(1..=100, Map));
    world.now += 1;
    world.session("2026.2", "ads.etl", requests(1..=1, Map));
    for id in 1..=20 {
        world.release("2026.1", &[id]);
        assert_eq!(world.held(2), [4, 0]);
    }
}

/// Complaint 4: admitted by quota, fits nowhere. A grant is one decision about limits and a node, so
/// a session within all limits holds nothing that it cannot use, and delays nobody.
#[test]
fn admitted_by_quota_fits_nowhere() {
    let mut world = TestEngine::new(|settings| {
        company(settings);
        group(settings, "ads", 4, 8);
    });
    world.node("n1", "h1", 2);
    world.node("n2", "h2", 2);
    world.session("2026.1", "ads.etl", vec![cpus(request(1, Map, &[]), 3)]);
    world.session("2026.2", "search.index", requests(1..=9, Map));
    assert_eq!(world.held(2), [0, 4]);
    assert!(world.reasons("2026.1").contains("no node has more than 2: it can never be served"));
}

/// Complaint 5: work is killed just before its end.
#[test]
fn work_is_killed_just_before_its_end() {
    let taken = |min_runtime_ms| {
        let mut world = TestEngine::new(|settings| {
            company(settings);
            inside(settings, "science", Some("company"), |rules| {
                rules.min_runtime_ms = min_runtime_ms;
            });
            settings.scheduling.starving_time_for_share_ms = 1_000;
        });
        world.node("n1", "h1", 12);
        world.session("2026.2", "science.physics", requests(1..=12, Map));
        world.wait(1_000);
        world.session("2026.1", "ads.etl", requests(1..=12, Map));
        world.wait(5_000);
        let early = world.held(2);
        world.wait(130_000);
        (early, world.held(2))
    };
    assert_eq!(taken(None), (vec![7, 5], vec![7, 5]));
    assert_eq!(taken(Some(100_000)), (vec![0, 12], vec![7, 5]));
}

/// Complaint 6: unused capacity goes to the first comer.
#[test]
fn unused_capacity_goes_to_the_first_comer() {
    let mut world = crowded(12, &["ads.etl"], |settings| {
        company(settings);
        group(settings, "science", 6, 12);
        settings.scheduling.starving_time_for_share_ms = 2_000;
    });
    // Alone, ads uses all, the guarantee of science too; then search shares by weight, and science
    // gets its guarantee back after the wait.
    assert_eq!(world.held(1), [12]);
    world.session("2026.2", "science.physics", requests(1..=12, Map));
    assert_eq!(world.held(2), [12, 0]);
    world.wait(10_000);
    assert_eq!(world.held(2), [6, 6]);
}

/// Complaint 7: absolute quotas are toil when a cluster grows.
#[test]
fn absolute_quotas_are_toil_when_a_cluster_grows() {
    let mut world = crowded(8, &PEOPLE, |settings| {
        company(settings);
        let parts = |part| PerType::all(Some(Part(part)));
        inside(settings, "company", None, |rules| rules.minimum = parts(10_000));
        inside(settings, "science", Some("company"), |rules| {
            rules.minimum = parts(7_500);
            rules.maximum = parts(7_500);
        });
    });
    assert_eq!(world.held(3)[2], 6);
    world.node("n2", "h2", 8);
    assert_eq!(world.held(3)[2], 12);
    let views = restored(&world).engine.pools();
    let science = views.iter().find(|view| &*view.path == "company.science").unwrap();
    assert_eq!((science.minimum[Map], science.maximum[Map]), (12, 12));
}

/// Complaint 8: a broken queue file stops everything. The service keeps the old file (see `config`);
/// here, a queue that vanishes drains in its place.
#[test]
fn a_broken_queue_file_stops_everything() {
    let mut world = crowded(8, &["ads.etl", "search.index"], |settings| {
        company(settings);
        group(settings, "ads", 4, 4);
        pool(settings, "ads.etl", |pool| pool.weight = 2.0);
    });
    world.change(|settings| {
        settings.pools = Default::default();
        inside(settings, "company", None, |_| {});
    });
    assert_eq!(world.held(2), [4, 4]);
    world.release("2026.1", &[1]);
    let of_ads = |world: &TestEngine| {
        let mut views = world.engine.pools().into_iter();
        views.find(|view| &*view.path == "company.revenue.ads")
    };
    let ads = of_ads(&world).unwrap();
    assert_eq!((ads.minimum[Map], ads.maximum[Map], ads.rules.vanished), (0, 4, true));
    let refused = world.start_with("2026.3", "ads.etl", |_| {});
    let draining = PoolObjection::Draining("company.revenue.ads.etl".into());
    assert_eq!(refused, Err(Refusal::SessionPool(draining)));
    let mut world = restored(&world);
    world.end("2026.1");
    assert_eq!(of_ads(&world), None);
}

/// Complaint 9: a reserve that nobody may borrow.
#[test]
fn a_reserve_that_nobody_may_borrow() {
    let mut world = crowded(8, &["search.index"], |settings| {
        company(settings);
        group(settings, "ads", 3, 8);
        inside(settings, "ads", Some("revenue"), |rules| rules.lend = false);
    });
    assert_eq!(world.held(1), [5]);
    assert_eq!(
        world.reasons("2026.1"),
        "3 slots stay free for company.revenue.ads, which does not lend"
    );
    world.session("2026.2", "ads.etl", requests(1..=1, Map));
    assert_eq!(world.held(2), [5, 1]);
    world.release("2026.1", &[1]);
    assert_eq!(world.held(2), [5, 1]);
    world.ask("2026.2", requests(2..=9, Map));
    assert_eq!(world.held(2), [5, 3]);
    let mut world = restored(&world);
    world.release("2026.2", &[1, 2, 3]);
    world.end("2026.2");
    assert_eq!(world.held(1), [5]);
}

/// A request of several slots that may not be given those of a reserve is served as soon as there are
/// enough beside it, though it names another host than the one that gained room.
#[test]
fn a_large_request_beside_a_reserve_is_served_when_room_is_gained_anywhere() {
    let mut world = TestEngine::new(|settings| {
        company(settings);
        group(settings, "ads", 2, 8);
        inside(settings, "ads", Some("revenue"), |rules| rules.lend = false);
        settings.scheduling.node_locality_wait_ms[Map] = 60_000;
        settings.scheduling.rack_locality_wait_ms[Map] = 60_000;
    });
    world.node("n1", "h1", 4);
    world.node("n2", "h2", 2);
    world.start("2026.1", "science.physics");
    world.ask("2026.1", (1..=2).map(|id| request(id, Map, &["h2"])).collect());
    world.session("2026.2", "search.index", vec![cpus(request(1, Map, &["h1"]), 3)]);
    assert_eq!(world.held(2), [2, 0], "four are free, and two of them reserved");
    let mut world = restored(&world);
    world.release("2026.1", &[1]);
    assert_eq!(world.held(2), [1, 1]);
}

/// A reserve is counted in slots, so that requests of several slots may use all of their own queue's,
/// and nothing of another's.
#[test]
fn large_requests_use_the_reserve_of_their_own_queue_and_of_no_other() {
    let mut world = TestEngine::new(|settings| {
        company(settings);
        for name in ["ads", "search"] {
            group(settings, name, 3, 9);
            inside(settings, name, Some("revenue"), |rules| rules.lend = false);
        }
    });
    world.node("n1", "h1", 3);
    world.node("n2", "h2", 3);
    world.session("2026.1", "ads.etl", vec![cpus(request(1, Map, &[]), 3)]);
    assert_eq!(world.held(1), [1]);
    world.ask("2026.1", requests(2..=9, Map));
    assert_eq!(world.held(1), [1]);
    world.session("2026.2", "search.index", vec![cpus(request(1, Map, &[]), 2)]);
    let mut world = restored(&world);
    world.ask("2026.2", requests(2..=9, Map));
    assert_eq!(world.held(2), [1, 2]);
}

/// Slots that a queue returns on a node that serves no more may be taken elsewhere at once.
#[test]
fn a_large_request_is_served_when_its_own_reserve_grows() {
    let mut world = TestEngine::new(|settings| {
        company(settings);
        for name in ["ads", "search"] {
            group(settings, name, 3, 9);
            inside(settings, name, Some("revenue"), |rules| rules.lend = false);
        }
    });
    world.node("n1", "h1", 2);
    world.session("2026.1", "ads.etl", requests(1..=2, Map));
    world.drain("n1", true);
    world.node("n2", "h2", 3);
    world.ask("2026.1", vec![cpus(request(3, Map, &[]), 3)]);
    assert_eq!(world.held(1), [2], "three are free, and three reserved for the other queue");
    let mut world = restored(&world);
    world.release("2026.1", &[1, 2]);
    assert_eq!(world.held(1), [1]);
}

/// A user who waits in several pools of a group that limits users is due what the group lets the user
/// hold, once.
#[test]
fn nothing_is_taken_for_a_user_who_may_hold_no_more_in_a_group() {
    let mut world = TestEngine::new(|settings| {
        inside(settings, "students", None, |rules| rules.max_per_user = Some(4));
        settings.scheduling.starving_time_for_share_ms = 1_000;
        settings.scheduling.min_preempt_period_ms = 0;
    });
    world.node("n1", "h1", 12);
    for (handle, pool) in
        [("2026.1", "staff.x"), ("2026.2", "students.a"), ("2026.3", "students.b")]
    {
        world.session(handle, pool, requests(1..=50, Map));
    }
    let why = world.reasons("2026.2");
    assert!(why.contains("its share is 2"), "{why}");
    world.wait(60_000);
    let held = world.held(3);
    let taken: usize = world
        .told("2026.1")
        .iter()
        .map(|told| if let Revoked(ids) = told { ids.len() } else { 0 })
        .sum();
    assert!((2..=4).contains(&taken), "{taken}");
    assert_eq!(held, [12 - taken as i64, held[1], taken as i64 - held[1]]);
}

/// A pool below its minimum that asked for less is due what it asked for: it has to wait for the rest like
/// any other from when it asks for it.
#[test]
fn a_minimum_is_due_from_when_it_is_asked_for() {
    let mut world = TestEngine::new(|settings| {
        company(settings);
        pool(settings, "ads.etl", |pool| pool.minimum = PerType::all(6));
        settings.scheduling.starving_time_for_minimum_ms = 10_000;
        settings.scheduling.starving_time_for_share_ms = 10_000;
        settings.scheduling.min_preempt_period_ms = 0;
    });
    world.node("n1", "h1", 12);
    world.session("2026.1", "ads.etl", requests(1..=2, Map));
    world.session("2026.2", "science.physics", requests(1..=50, Map));
    world.wait(60_000);
    world.ask("2026.1", requests(3..=9, Map));
    world.wait(5_000);
    assert_eq!(world.held(2), [2, 10]);
    world.wait(8_000);
    assert_eq!(world.held(2), [7, 5]);
}

/// Complaint 10: one user fills a queue.
#[test]
fn one_user_fills_a_queue() {
    let mut world = TestEngine::new(|settings| {
        inside(settings, "students", None, |rules| {
            rules.max_per_user = Some(2);
            rules.max_sessions_per_user = Some(1);
        });
    });
    world.node("n1", "h1", 8);
    for (handle, user) in [("2026.1", "ann"), ("2026.2", "ann"), ("2026.3", "bob")] {
        let pool = format!("students.{user}");
        world.start_with(handle, &pool, |info| info.user_id = user.into()).unwrap();
        world.ask(handle, requests(1..=5, Map));
    }
    assert_eq!(world.held(3), [2, 0, 2]);
    world.release("2026.1", &[1]);
    assert_eq!(world.held(3), [2, 0, 2]);
    assert!(
        world
            .reasons("2026.2")
            .starts_with("queue students serves 1 session of user ann at a time, and 1 is served")
    );
    let mut world = restored(&world);
    world.end("2026.1");
    assert_eq!((world.holds("2026.2", Map), world.holds("2026.3", Map)), (2, 2));
}

#[test]
fn nothing_is_taken_across_a_fence_and_from_queues_where_preemption_is_disabled() {
    // 8 and 4 by weight; what is taken back is rounded down, as in the original.
    for (group, rule, expected) in [
        ("revenue", PreemptionRule::Default, (7, 5)),
        ("revenue", PreemptionRule::Fence, (0, 12)),
        ("science", PreemptionRule::Disabled, (0, 12)),
    ] {
        let mut world = TestEngine::new(move |settings| {
            company(settings);
            inside(settings, group, Some("company"), |rules| rules.preemption = rule);
            settings.scheduling.starving_time_for_share_ms = 1_000;
        });
        world.node("n1", "h1", 12);
        for (handle, pool) in [("2026.3", "science.physics"), ("2026.1", "ads.etl")] {
            world.session(handle, pool, requests(1..=12, Map));
        }
        world.wait(100_000);
        let held = (world.holds("2026.1", Map), world.holds("2026.3", Map));
        assert_eq!(held, expected, "{group} {rule:?}");
    }
}

#[test]
fn turns_are_taken_in_the_order_of_the_starts() {
    let mut world = TestEngine::new(|settings| {
        inside(settings, "outer", None, |rules| rules.max_sessions = Some(2));
        inside(settings, "inner", Some("outer"), |rules| rules.max_sessions = Some(1));
    });
    world.node("n1", "h1", 8);
    for (handle, pool) in
        [("2026.1", "inner.p"), ("2026.2", "outer.p"), ("2026.3", "inner.p"), ("2026.4", "outer.p")]
    {
        world.session(handle, pool, requests(1..=2, Map));
    }
    assert_eq!(world.held(4), [2, 2, 0, 0]);
    let mut world = restored(&world);
    world.end("2026.2");
    let left = |world: &TestEngine| [world.holds("2026.3", Map), world.holds("2026.4", Map)];
    assert_eq!(left(&world), [0, 2], "inner has its session");
    world.end("2026.1");
    assert_eq!(left(&world), [2, 2]);
}

#[test]
fn groups_move_while_sessions_run() {
    let mut world = crowded(12, &PEOPLE, company);
    world.change(|settings| {
        inside(settings, "ads", None, |_| {});
        inside(settings, "science", Some("revenue"), |rules| rules.weight = 1.0);
    });
    let views = world.engine.pools();
    let granted = |path: &str| {
        views.iter().find(|view| &*view.path == path).map(|view| view.counts[Map].granted)
    };
    assert_eq!(granted("ads"), Some(2));
    assert_eq!(granted("company"), Some(10));
    assert_eq!(granted("company.revenue.science"), Some(4));
    restored(&world);
}
