//! Views of the engine.

use super::*;

/// All rows of a list, read in pieces of `places`, with the change `between` applied to the world
/// between two pieces.
pub(super) fn pieces<T>(
    world: &mut TestEngine,
    take: impl Fn(&Engine, u64) -> Slice<T>,
    mut between: impl FnMut(&mut TestEngine),
) -> Vec<T> {
    let mut rows = Vec::new();
    let mut from = Some(0);
    while let Some(place) = from {
        let piece = take(&world.engine, place);
        rows.extend(piece.rows);
        from = piece.next;
        between(world);
    }
    rows
}

#[test]
fn pieces_of_a_list_make_the_whole_list() {
    let mut world = TestEngine::new(|settings| settings.retired_sessions = 4);
    for number in 1..=5 {
        let handle = format!("2026.{number}");
        world.node(&format!("n{number}"), &format!("h{number}"), 4);
        world.session(&handle, "g.p", requests(1..=4, Map));
        world.release(&handle, &[2]);
    }
    let now = Millis(world.now);
    for places in [1, 2, 3, 100] {
        let sessions = pieces(&mut world, |e, at| e.sessions_slice(now, at, places), |_| {});
        assert_eq!(sessions, world.engine.sessions_at(now), "{places}");
        let mut nodes = pieces(&mut world, |e, at| e.nodes_slice(at, places), |_| {});
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(nodes, world.engine.nodes(), "{places}");
        let take = |e: &Engine, at| e.grants_slice("2026.3", at, places).unwrap();
        let mut grants: Vec<i32> =
            pieces(&mut world, take, |_| {}).iter().map(|grant| grant.id).collect();
        grants.sort_unstable();
        assert_eq!(grants, [1, 3, 4], "{places}");
    }
    assert_eq!(world.engine.grants_slice("2026.9", 0, 1), None);
}

#[test]
fn ended_sessions_are_seen_once_while_more_end() {
    let mut world = TestEngine::new(|settings| settings.retired_sessions = 4);
    let mut ended = 0;
    let end_one = |world: &mut TestEngine, number: i32| {
        let handle = format!("2026.{number}");
        world.start(&handle, "g.p");
        world.end(&handle);
    };
    for number in 1..=6 {
        end_one(&mut world, number);
        ended = number;
    }
    let rows = pieces(
        &mut world,
        |e, at| e.retired_slice(at, 1),
        |world| {
            while ended < 8 {
                ended += 1;
                end_one(world, ended);
            }
        },
    );
    let seen: Vec<&str> = rows.iter().map(|row| &*row.handle).collect();
    // 4 is forgotten when 8 ends, before its turn; those that end meanwhile come last.
    assert_eq!(seen, ["2026.3", "2026.5", "2026.6", "2026.7", "2026.8"]);
}

#[test]
fn a_grant_tells_when_its_request_came() {
    let mut world = TestEngine::new(|_| {});
    world.start("2026.1", "g.p");
    world.apply(testing::ask("2026.1", requests(7..=7, Map))).unwrap();
    let asked = Asked { at: Millis(world.now), input: world.engine.inputs() };
    world.wait(500);
    let node = Input::HeartbeatNode { report: report("n1", "h1", 1), rack: None };
    world.apply(node).unwrap();
    let outcome = world.engine.apply(Millis(world.now), Input::Pass);
    let told = outcome.effects.into_iter().find_map(|effect| match effect {
        Effect::Record(Record::Assigned { asked, count, .. }) => Some((asked, count)),
        _ => None,
    });
    assert_eq!(told, Some((vec![asked], 1)));
}

#[test]
fn shares_of_a_view_are_those_of_the_engine() {
    let mut world = TestEngine::new(|settings| {
        pool(settings, "a.one", |pool| pool.minimum[Map] = 3);
        pool(settings, "a.two", |pool| pool.weight = 2.0);
        pool(settings, "b.one", |pool| pool.maximum[Map] = 2);
    });
    world.node("n1", "h1", 12);
    for (number, name) in ["a.one", "a.two", "b.one", "c.new"].into_iter().enumerate() {
        let handle = format!("2026.{number}");
        world.session(&handle, name, requests(1..=9, Map));
    }
    world.wait(1_500);
    let computed = world.engine.pools();
    assert!(computed.iter().any(|view| view.share[Map] > 1.0));
    let mut views = computed.clone();
    for view in &mut views {
        view.share = PerType::all(-1.0);
    }
    let used = PerType(ResourceType::ALL.map(|kind| world.engine.slots(kind).used));
    fill_in_shares(&mut views, used);
    for (view, expected) in views.iter().zip(&computed) {
        let (share, expected) = (view.share[Map], expected.share[Map]);
        assert!((share - expected).abs() < 1e-9, "{view:?}: {expected}");
        assert_eq!(view.share[Reduce], 0.0);
    }
}

#[test]
fn an_idle_pool_is_due_nothing_and_shares_of_pools_are_within_that_of_their_group() {
    let mut world = TestEngine::new(|settings| {
        pool(settings, "g.idle", |pool| pool.minimum[Map] = 84);
        pool(settings, "g.busy", |pool| pool.minimum[Map] = 2);
    });
    world.node("n1", "h1", 8);
    world.session("2026.1", "g.busy", requests(1..=9, Map));
    world.start("2026.2", "g.idle");
    world.wait(1_500);
    let used = PerType(ResourceType::ALL.map(|kind| world.engine.slots(kind).used));
    let mut views = world.engine.pools();
    fill_in_shares(&mut views, used);
    let share = |name: Option<&str>| {
        let view = views.iter().find(|view| view.pool.as_deref() == name);
        view.map(|view| view.share[Map]).unwrap()
    };
    assert_eq!(share(Some("idle")), 0.0);
    assert!(share(Some("busy")) > 1.0 && share(Some("busy")) <= share(None) + 1e-9, "{views:?}");
}

#[test]
fn a_pool_starves_from_the_end_of_its_patience() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.starving_time_for_minimum_ms = 2_000;
        settings.scheduling.starving_time_for_share_ms = 9_000;
        pool(settings, "g.poor", |pool| pool.minimum[Map] = 4);
        pool(settings, "g.rich", |pool| pool.preemptable = false);
    });
    let starving = |world: &TestEngine, name: &str| {
        let views = world.engine.pools();
        let pool = views.into_iter().find(|view| view.pool.as_deref() == Some(name));
        let (pool, now) = (pool.unwrap(), Millis(world.now));
        let scheduling = &world.engine.settings().scheduling;
        PerType(ResourceType::ALL.map(|kind| pool.starving_ms(kind, now, scheduling)))
    };
    world.node("n1", "h1", 4);
    world.session("2026.1", "g.rich", requests(1..=4, Map));
    assert_eq!(starving(&world, "poor"), PerType::all(-2_000));
    world.wait(60_000);
    assert_eq!(starving(&world, "poor"), PerType::all(-2_000), "nobody waits");
    world.session("2026.2", "g.poor", requests(1..=4, Map));
    world.wait(1_500);
    assert_eq!(starving(&world, "poor"), PerType([-500, -2_000, -2_000]));
    world.wait(1_000);
    assert_eq!(starving(&world, "poor"), PerType([500, -2_000, -2_000]));
    assert_eq!(starving(&world, "rich"), PerType([-2_000, -2_000, -2_000]));
}

#[test]
fn a_pool_that_waits_for_nothing_does_not_starve() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.starving_time_for_minimum_ms = 2_000;
        pool(settings, "g.asking", |pool| pool.minimum[Map] = 4);
        pool(settings, "g.idle", |pool| pool.minimum[Map] = 4);
        pool(settings, "h.rich", |pool| pool.preemptable = false);
    });
    world.node("n1", "h1", 4);
    world.session("2026.1", "h.rich", requests(1..=4, Map));
    world.session("2026.2", "g.asking", requests(1..=2, Map));
    let mut starved = std::collections::BTreeSet::new();
    for _ in 0..10 {
        world.now += 1_000;
        let mut effects = world.engine.apply(Millis(world.now), Input::Tick).effects;
        while world.engine.wants_pass() {
            effects.extend(world.engine.apply(Millis(world.now), Input::Pass).effects);
        }
        for effect in effects {
            if let Effect::Record(Record::PoolStarving { pool, .. }) = effect {
                starved.insert(pool.pool.to_string());
            }
        }
    }
    // The share of the idle one is its minimum, by the original's rule for a group below its minima.
    let views = world.engine.pools();
    let view = |name: &str| views.iter().find(|view| view.pool.as_deref() == Some(name)).unwrap();
    assert_eq!(view("idle").share[Map], 4.0);
    let (now, scheduling) = (Millis(world.now), &world.engine.settings().scheduling);
    assert!(view("idle").starving_ms(Map, now, scheduling) > 0, "as the original tells it");
    assert_eq!(view("idle").starved_ms(Map, now, scheduling), None);
    assert!(view("asking").starved_ms(Map, now, scheduling) > Some(5_000));
    assert_eq!(view("asking").starved_ms(Reduce, now, scheduling), None);
    assert_eq!(starved.into_iter().collect::<Vec<_>>(), ["asking"]);
}

/// Spec: cluster-manager/02 §3.16.
#[test]
fn a_job_is_sent_to_the_pool_of_its_size_with_that_pools_whitelist() {
    let mut world = TestEngine::new(|settings| {
        let name = |pool: &str| PoolName::new("g", pool);
        settings.scheduling.redirects.insert(name("old"), name("small"));
        let redirect = SizeRedirect { input_size_limit_bytes: 100, destination: name("big") };
        settings.pools.size_redirects.insert(name("small"), redirect);
        pool(settings, "g.small", |pool| pool.whitelist = Some("all".into()));
        pool(settings, "g.big", |pool| pool.whitelist = Some("alice,bob".into()));
    });
    for (asked, input_size_bytes, expected, whitelist) in [
        ("small", 99, "small", "all"),
        ("small", 100, "big", "alice,bob"),
        ("old", 0, "small", "all"),
        ("old", 101, "big", "alice,bob"),
        ("other", 1_000, "other", ""),
    ] {
        let answer = world.engine.actual_pool(&PoolName::new("g", asked), input_size_bytes);
        let expected = Ok((PoolName::new("g", expected), whitelist.into()));
        assert_eq!(answer, expected, "{asked} {input_size_bytes}");
    }
    world.change(|settings| settings.configured_pools_only = true);
    let refused = world.engine.actual_pool(&PoolName::new("g", "other"), 0);
    let objection = PoolObjection::NotConfigured(PoolName::new("g", "other"));
    assert_eq!(refused, Err(Refusal::Pool(objection)));
    world.run(Input::SetSafeMode { on: true }).unwrap();
    let refused = world.engine.actual_pool(&PoolName::new("g", "small"), 0);
    assert_eq!(refused, Err(Refusal::SafeMode));
}
