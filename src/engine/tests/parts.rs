//! Large calls in parts, and large sessions that end.

use super::*;
use crate::remains::AT_ONCE;

/// Requests of all types, some with hosts.
fn mixed(ids: std::ops::RangeInclusive<i32>) -> Vec<ResourceRequest> {
    ids.map(|id| {
        let hosts = [&[][..], &["h1"], &["h2", "absent"]][id as usize % 3];
        let mut request = request(id, ResourceType::ALL[id as usize % 2], hosts);
        if id % 5 == 0 {
            request.exclude_hosts = vec![format!("bad{}", id % 7).into()];
        }
        request
    })
    .collect()
}

fn expect(requests: &[ResourceRequest]) -> Input {
    Input::ExpectRequests { handle: "2026.1".into(), summary: RequestSummary::of(requests) }
}

fn more(requests: &[ResourceRequest]) -> Input {
    let (handle, requests) = ("2026.1".into(), requests.to_vec());
    Input::MoreRequests { handle, requests, racks: Vec::new() }
}

fn world() -> TestEngine {
    let mut world = TestEngine::new(|settings| {
        pool(settings, "g.p", |pool| {
            pool.request_max = true;
            pool.maximum[Map] = 60;
        });
        settings.bounds.requests_per_session = 100;
    });
    world.start("2026.1", "g.p");
    world
}

#[test]
fn a_call_in_parts_leads_to_the_same_as_a_whole_one() {
    let requests = mixed(1..=50);
    let mut whole = world();
    whole.ask("2026.1", requests.clone());
    let mut parts = world();
    parts.apply(expect(&requests)).unwrap();
    for part in requests.chunks(7) {
        parts.apply(more(part)).unwrap();
    }
    assert_eq!(whole.engine.snapshot(), parts.engine.snapshot());
    let step = |request_id| {
        let view = SessionView { request_id, ..SessionView::default() };
        Input::HeartbeatSession { handle: "2026.1".into(), view: Some(view) }
    };
    for mut world in [whole, parts] {
        world.node("n1", "h1", 20);
        world.node("n2", "h2", 20);
        world.apply(step(50)).expect("in step");
        assert_eq!(world.holds("2026.1", Map) + world.holds("2026.1", Reduce), 50);
        world.engine.audit().unwrap();
    }
}

#[test]
fn a_call_in_parts_is_refused_as_a_whole_before_its_first_part() {
    let mut contradiction = mixed(1..=3);
    contradiction[1].exclude_hosts = vec!["h2".into()];
    let cases = [
        (contradiction, "ContradictoryHosts"),
        (requests(1..=61, Map), "OverPoolMaximum"),
        (requests(1..=101, Reduce), "TooManyRequests"),
    ];
    for (requests, refusal) in cases {
        let mut world = world();
        let before = world.engine.snapshot();
        let refused = world.apply(expect(&requests)).unwrap_err();
        assert!(format!("{refused:?}").starts_with(refusal), "{refused:?}");
        assert_eq!(world.engine.snapshot(), before, "{refusal}");
    }
    let mut world = TestEngine::new(|_| {});
    let refused = world.apply(expect(&[])).unwrap_err();
    assert_eq!(refused, Refusal::UnknownSession("2026.1".into()));
}

#[test]
fn an_end_between_the_parts_of_a_call() {
    let all = mixed(1..=80);
    let mut world = world();
    world.apply(expect(&all)).unwrap();
    world.apply(more(&all[..40])).unwrap();
    // Another call of the session has used up its room.
    world.ask("2026.1", requests(1000..=1040, Reduce));
    assert!(matches!(world.apply(more(&all[40..])), Err(Refusal::TooManyRequests { .. })));
    world.apply(more(&all[40..50])).unwrap();
    // The session ends.
    world.end("2026.1");
    let refused = world.apply(more(&all[50..])).unwrap_err();
    assert_eq!(refused, Refusal::UnknownSession("2026.1".into()));
    // A call that is repeated as a whole finds some of its requests already there.
    world.start("2026.1", "g.p");
    world.apply(expect(&all[..50])).unwrap();
    world.apply(more(&all[..30])).unwrap();
    world.ask("2026.1", all[..50].to_vec());
    assert_eq!(world.counts("2026.1", Map).requested, 25);
    world.engine.audit().unwrap();
}

/// The slots of a session with very many requests are free at once. The following passes drop the
/// rest of it, a part in each.
#[test]
fn a_large_session_is_cleared_away_in_parts() {
    let many = 5 * AT_ONCE as i32;
    for ending in ["end", "expiry", "kill"] {
        let mut world = TestEngine::new(|_| {});
        world.node("n1", "h1", 30);
        world.session("2026.1", "g.p", mixed(1..=many));
        world.session("2026.2", "g.p", requests(1..=30, Map));
        assert_eq!((world.holds("2026.1", Map), world.holds("2026.1", Reduce)), (30, 30));
        assert_eq!(world.granted("2026.2"), [0; 0]);
        let input = match ending {
            "end" => {
                Input::EndSession { handle: "2026.1".into(), status: SessionStatus::Successful }
            }
            "kill" => Input::KillSession { handle: "2026.1".into() },
            _ => {
                world.now += 3_125_001;
                let input = Input::HeartbeatSession { handle: "2026.2".into(), view: None };
                world.apply(input).unwrap();
                world.node("n1", "h1", 30);
                Input::Tick
            }
        };
        world.apply(input).unwrap();
        world.engine.audit().unwrap();
        assert!(world.engine.session_info("2026.1").is_err(), "{ending}");
        assert_eq!(world.engine.slots(Map).used, 0, "{ending}");
        // The same handle may start again meanwhile.
        let info = info("2026.1", "g.q");
        world.apply(Input::StartSession { handle: "2026.1".into(), info }).unwrap();
        let mut passes = 0;
        while world.engine.wants_pass() {
            world.apply(Input::Pass).unwrap();
            world.engine.audit().unwrap();
            passes += 1;
        }
        assert!(passes <= 12, "{passes}");
        assert_eq!(world.granted("2026.2").len(), 30, "{ending}");
        assert!(world.engine.remains.is_empty());
    }
}

#[test]
fn a_large_session_is_dropped_no_more_than_a_part_at_a_time() {
    let mut world = TestEngine::new(|_| {});
    world.start("2026.1", "g.p");
    let named = |id: i32| {
        vec![ResourceRequest { hosts: vec![format!("h{id}").into()], ..request(id, Map, &[]) }]
    };
    let all: Vec<_> = (1..=3 * AT_ONCE as i32).flat_map(named).collect();
    world.apply(expect(&all)).unwrap();
    for part in all.chunks(1000) {
        world.apply(more(part)).unwrap();
    }
    world.apply(Input::KillSession { handle: "2026.1".into() }).unwrap();
    let mut left = world.engine.remains.hosts().count();
    assert_eq!(left, all.len());
    while left > 0 {
        world.apply(Input::Pass).unwrap();
        let now = world.engine.remains.hosts().count();
        assert!(left - now <= AT_ONCE, "{left} {now}");
        left = now;
    }
    assert!(world.engine.wants_pass(), "the indexes are left");
    world.run(Input::Tick).unwrap();
    assert!(world.engine.remains.is_empty());
    world.engine.audit().unwrap();
}
