//! Images: an engine that is made from one behaves as the original engine does.
//!
//! Simulations restore engines anywhere in hundreds of runs; these tests cover the rest.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::codec;

/// The engine of the image of this one, by way of bytes, with another key for its hash tables.
fn restored(engine: &Engine) -> Engine {
    let image = engine.image();
    let bytes = codec::encode(&image).unwrap();
    let decoded: Image = codec::decode(&bytes).unwrap();
    assert_eq!(decoded, image);
    let restored = Engine::from_image(decoded, 99).unwrap();
    assert_eq!(restored.image(), image);
    restored
}

/// Gives an engine and one made of its image the same inputs, each with the passes it leads to.
fn go_on_alike(world: &TestEngine, inputs: Vec<Input>) {
    let mut engines = [restored(&world.engine), restored(&world.engine)];
    // The first runs alone, the second is restored again and again.
    for input in inputs {
        let mut next = Some(input);
        while let Some(input) = next {
            let mut outcomes = engines.each_mut().map(|engine| {
                let outcome = engine.apply(Millis(world.now), input.clone());
                (outcome, engine.wants_pass(), engine.next_deadline())
            });
            let [first, second] = &mut outcomes;
            assert_eq!(first, second, "{input:?}");
            next = first.1.then_some(Input::Pass);
            engines[1] = restored(&engines[1]);
        }
    }
    assert_eq!(engines[0].image(), engines[1].image());
}

#[test]
fn leftovers_of_a_large_session_are_dropped_alike() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 2);
    world.start("2026.1", "g.p");
    let near = |id: i32| request(id, Map, &[&format!("h{}", id % 300)]);
    world.ask("2026.1", (1..=25_000).map(near).collect());
    let status = SessionStatus::Successful;
    world.apply(Input::EndSession { handle: "2026.1".into(), status }).unwrap();
    for _ in 0..4 {
        assert!(world.engine.wants_pass());
        go_on_alike(&world, vec![Input::Pass, report_of("n2")]);
        world.apply(Input::Pass).unwrap();
    }
}

fn report_of(name: &str) -> Input {
    Input::HeartbeatNode { report: report(name, name, 2), rack: Some("/r".into()) }
}

#[test]
fn observed_state_continues_alike() {
    let mut world = TestEngine::new(|_| {});
    world.node("n1", "h1", 1);
    world.node("n2", "h2", 1);
    world.session("2026.1", "g.p", requests(1..=5, Map));
    let handle: Arc<str> = "2026.1".into();
    let observed = [
        Observed::Granted { handle: handle.clone(), id: 5, node: "n1".into() },
        Observed::Granted { handle: handle.clone(), id: 4, node: "n1".into() },
        Observed::Waiting { handle: handle.clone(), id: 1 },
        Observed::Lost { handle: handle.clone(), id: 5 },
        Observed::Identity { id_prefix: "2027".into(), sessions_numbered: 8 },
    ];
    for observed in observed {
        world.apply(Input::Observed(observed)).unwrap();
        let ids = vec![1, 2, 4];
        let release = Input::ReleaseResources { handle: handle.clone(), ids };
        go_on_alike(&world, vec![Input::Tick, Input::NextSessionId, release]);
    }
}

#[test]
fn an_image_is_small() {
    let mut world = TestEngine::new(|_| {});
    for node in 0..100 {
        world.node(&format!("n{node}"), &format!("h{node}"), 8);
    }
    let empty = codec::encode(&world.engine.image()).unwrap().len();
    world.start("2026.1", "g.p");
    let near =
        |id: i32| request(id, Map, &["h1", "h2", "h3"].map(|h| if id % 2 == 0 { h } else { "h9" }));
    world.ask("2026.1", (1..=10_000).map(near).collect());
    let full = codec::encode(&world.engine.image()).unwrap().len();
    assert!(full - empty < 10_000 * 80, "{} bytes for each request", (full - empty) / 10_000);
}

/// A world with something of every kind.
fn varied() -> TestEngine {
    let mut world = TestEngine::new(|settings| {
        settings.scheduling.node_locality_wait_ms[Map] = 5_000;
        settings.scheduling.rack_locality_wait_ms[Map] = 5_000;
        settings.faults.failure_sessions = 0;
        pool(settings, "g.p", |_| {});
    });
    for name in ["a", "b", "c"] {
        world.run(report_of(name)).unwrap();
    }
    for (session, pool) in [("2026.1", "g.p"), ("2026.2", "other.q"), ("2026.3", "g.p")] {
        world.start(session, pool);
        let mut wishes = requests(1..=4, Reduce);
        wishes.extend([request(5, Map, &["a"]), request(6, Map, &["absent", "b"])]);
        wishes[0].exclude_hosts = vec!["c".into()];
        world.ask(session, wishes);
    }
    world.end("2026.3");
    world.blame("2026.1", "a", &[Reduce], [100, 0]);
    world.run(Input::RestartNodes { force: false, batch_size: 1 }).unwrap();
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Images come from files and from other machines.
    #[test]
    fn a_damaged_image_is_refused_or_is_one_of_another_engine(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        thread_local! {
            static BYTES: Vec<u8> = codec::encode(&varied().engine.image()).unwrap();
        }
        let mut bytes = BYTES.with(Vec::clone);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(image) = codec::decode::<Image>(&bytes)
            && let Ok(engine) = Engine::from_image(image, 1)
        {
            prop_assert_eq!(engine.audit(), Ok(()));
        }
    }
}
