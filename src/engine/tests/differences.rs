//! Differences from the original that the stories of the rules do not show by themselves. The names of
//! the rows are those of `docs/reference/compatibility.md`.

use super::*;

/// D-1.4, D-3.3.
#[test]
fn sessions_without_priority_are_compared_and_free_their_slots() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 2);
    let priorities = [None, Some(SessionPriority::High), None];
    for (index, priority) in priorities.into_iter().enumerate() {
        let handle = format!("2026.{index}");
        world.start_with(&handle, "g.p", |info| info.priority = priority).unwrap();
        world.ask(&handle, requests(1..=1, Map));
    }
    let holds =
        |world: &TestEngine| [0, 1, 2].map(|index| world.holds(&format!("2026.{index}"), Map));
    assert_eq!(holds(&world), [1, 1, 0]);
    world.end("2026.0");
    assert_eq!(world.holds("2026.2", Map), 1);
    world.end("2026.1");
    world.end("2026.2");
    assert_eq!(world.engine.slots(Map).used, 0);
}

/// D-3.2.
#[test]
fn an_end_that_says_running_ends_the_session_as_aborted() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 1);
    world.session("2026.1", "g.p", requests(1..=1, Map));
    let status = SessionStatus::Running;
    world.run(Input::EndSession { handle: "2026.1".into(), status }).unwrap();
    assert_eq!(world.engine.slots(Map).used, 0);
    assert_eq!(world.engine.retired_sessions()[0].status, SessionStatus::KilledAborted);
}

/// D-3.8, E-5.
#[test]
fn lost_nodes_do_not_count_for_the_average_load() {
    let mut world = TestEngine::new(|settings| settings.node_expiry_ms = 1_000);
    for node in ["lost1", "lost2", "lost3"] {
        world.node(node, node, 8);
    }
    world.wait(1_001);
    assert_eq!(world.engine.node_count(), 0);
    for node in ["n1", "n2"] {
        world.node(node, node, 8);
    }
    world.session("2026.1", "g.p", requests(1..=8, Reduce));
    let used: Vec<_> = world.engine.nodes().iter().map(|node| node.slots[Reduce].used).collect();
    assert_eq!(used, [4, 4]);
}

/// D-3.17.
#[test]
fn as_many_ended_sessions_are_kept_as_configured() {
    let mut world = TestEngine::new(|settings| settings.retired_sessions = 2);
    for index in 0..5 {
        let handle = format!("2026.{index}");
        world.start(&handle, "g.p");
        world.end(&handle);
    }
    assert_eq!(world.engine.retired_sessions().len(), 2);
}

/// D-3.22.
#[test]
fn a_type_that_is_offered_later_can_be_blacklisted() {
    let mut world = TestEngine::new(|settings| settings.faults.failure_sessions = 1);
    let mut first = report("n1", "h1", 9);
    first.apps[Reduce] = None;
    world.try_node(first).unwrap();
    world.node("n1", "h1", 9);
    for session in 1..=2 {
        let handle = format!("2026.{session}");
        world.session(&handle, "g.p", requests(1..=1, Reduce));
        for _ in 0..10 {
            world.blame(&handle, "n1", &[Reduce], [6, 0]);
        }
    }
    assert_eq!(world.engine.nodes()[0].blacklisted, PerType([false, true, false]));
}

/// D-7.3.
#[test]
fn the_patience_of_a_pool_begins_when_it_is_first_seen() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.starving_time_for_minimum_ms = 5_000;
        settings.scheduling.preempted_task_max_running_time_ms = 600_000;
        pool(settings, "g.hog", |_| {});
        pool(settings, "g.poor", |pool| pool.minimum[Map] = 1);
    });
    world.node("n1", "h1", 1);
    world.session("2026.1", "g.hog", requests(1..=1, Map));
    world.wait(60_000);
    world.told("2026.1");
    world.session("2026.2", "g.poor", requests(1..=1, Map));
    world.wait(4_900);
    assert_eq!(world.told("2026.1"), []);
    world.wait(3_000);
    assert_eq!(world.told("2026.1"), [Revoked(vec![1])]);
}

/// D-7.6.
#[test]
fn no_deadline_comes_last() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.default_mode = SchedulingMode::Deadline;
    });
    for (index, deadline) in [None, Some(1 << 40)].into_iter().enumerate() {
        let handle = format!("2026.{index}");
        world.start_with(&handle, "g.p", |info| info.deadline = deadline).unwrap();
        world.ask(&handle, requests(1..=1, Map));
    }
    world.node("n1", "h1", 1);
    assert_eq!([world.holds("2026.0", Map), world.holds("2026.1", Map)], [0, 1]);
}

/// E-3.
#[test]
fn a_session_without_young_grants_hears_nothing_of_a_preemption() {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.starving_time_for_minimum_ms = 1_000;
        settings.scheduling.preempted_task_max_running_time_ms = 100;
        settings.scheduling.preemption_rounds = 1;
        pool(settings, "g.hog", |_| {});
        pool(settings, "g.poor", |pool| pool.minimum[Map] = 1);
    });
    world.node("n1", "h1", 1);
    world.session("2026.1", "g.hog", requests(1..=1, Map));
    world.wait(60_000);
    world.told("2026.1");
    world.session("2026.2", "g.poor", requests(1..=1, Map));
    world.wait(2_000);
    assert_eq!(world.told("2026.1"), []);
}

/// D-6.7.
#[test]
fn more_sessions_requests_and_nodes_than_allowed_are_refused() {
    let mut world = TestEngine::new(|settings| {
        settings.bounds.sessions = 1;
        settings.bounds.requests_per_session = 3;
        settings.bounds.nodes = 1;
    });
    world.node("n1", "h1", 1);
    let refused = world.try_node(report("n2", "h2", 1));
    assert_eq!(refused, Err(Refusal::TooManyNodes { known: 1 }));
    world.node("n1", "h1", 2);
    world.start("2026.1", "g.p");
    let refused = world.start_with("2026.2", "g.p", |_| {});
    assert_eq!(refused, Err(Refusal::TooManySessions { running: 1 }));
    world.ask("2026.1", requests(1..=3, Map));
    let refused = world.try_ask("2026.1", requests(4..=4, Map));
    assert_eq!(refused, Err(Refusal::TooManyRequests { handle: "2026.1".into(), known: 3 }));
    assert_eq!(world.counts("2026.1", Map).requested, 3);
    world.release("2026.1", &[1]);
    world.ask("2026.1", requests(4..=4, Map));
    world.end("2026.1");
    world.start("2026.2", "g.p");
}

/// `corona.history.max.per.dir`.
#[test]
fn so_many_sessions_share_a_log_directory() {
    let mut world = TestEngine::new(|settings| {
        settings.sessions_log_dir = "/logs".into();
        settings.sessions_per_log_dir = 10;
    });
    for (handle, expected) in [("2026.9", "/logs/2026.0"), ("2026.10", "/logs/2026.1")] {
        let reply = world.start_with(handle, "g.p", |_| {}).unwrap();
        let Reply::Started { log_path, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(&*log_path, expected);
    }
}
