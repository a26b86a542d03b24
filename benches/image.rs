//! How long the image of a large engine takes to make, to write, to read, and to be an engine again.
//!
//!     cargo bench --bench image                   10,000 nodes, 2,000 sessions, 300,000 requests
//!     cargo bench --bench image -- 1000 10 40000  nodes, sessions, requests of each session
//!
//! Two thirds of the requests are for maps with three preferred hosts; a third of all is granted.

#![expect(clippy::print_stdout, reason = "the result is for a person")]

use std::time::Instant;

use corona::engine::types::{Millis, ResourceType};
use corona::engine::{Engine, Image, Input, codec, testing};

fn main() {
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let sizes: Vec<usize> = words.map(|word| word.parse().expect("a number")).collect();
    match sizes[..] {
        [nodes, sessions, requests] => measure(nodes, sessions, requests),
        _ => measure(10_000, 2_000, 150),
    }
}

fn measure(nodes: usize, sessions: usize, requests: usize) {
    let engine = busy_engine(nodes, sessions, requests);
    let granted: u64 = ResourceType::ALL.map(|kind| engine.slots(kind).used).iter().sum();
    println!(
        "{nodes} nodes, {sessions} sessions, {} requests, {granted} of them granted",
        sessions * requests
    );
    let image = timed("image", || engine.image());
    let bytes = timed("encode", || codec::encode(&image).expect("a form as bytes"));
    println!("{:>10} {:>8.1} MB", "size", bytes.len() as f64 / 1e6);
    let image = timed("decode", || codec::decode::<Image>(&bytes).expect("an image"));
    let restored = timed("engine", || Engine::from_image(image, 2).expect("an engine"));
    timed("audit", || restored.audit().expect("books that agree"));
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = run();
    println!("{what:>10} {:>8.1} ms", started.elapsed().as_secs_f64() * 1e3);
    result
}

fn busy_engine(nodes: usize, sessions: usize, requests: usize) -> Engine {
    let mut engine = testing::engine(testing::settings());
    let mut apply = |input| {
        engine.apply(Millis(1_000), input).reply.expect("no refusal");
        while engine.wants_pass() {
            engine.apply(Millis(1_000), Input::Pass);
        }
    };
    let granted = nodes.min(sessions * requests / 3);
    let cpus = (sessions * requests / 3).div_ceil(granted.max(1)).div_ceil(2);
    for node in 0..nodes {
        let report = testing::report(&format!("n{node}"), &format!("h{node}"), cpus as i16);
        apply(Input::HeartbeatNode { report, rack: Some(format!("/r{}", node / 40).into()) });
    }
    let racks: Vec<_> = {
        let mut racks: Vec<(std::sync::Arc<str>, std::sync::Arc<str>)> = (0..nodes)
            .map(|node| (format!("h{node}").into(), format!("/r{}", node / 40).into()))
            .collect();
        racks.sort();
        racks
    };
    for session in 0..sessions {
        let handle = format!("2026.{session}");
        apply(testing::session(&handle, &format!("g.p{}", session % 20)));
        let near = |id: usize| {
            let place = session * 31 + id * 17;
            let hosts = [place, place + 1, place + 40].map(|host| format!("h{}", host % nodes));
            let hosts = hosts.each_ref().map(String::as_str);
            match id % 3 {
                0 => testing::request(id as i32, ResourceType::Reduce, &[]),
                _ => testing::request(id as i32, ResourceType::Map, &hosts),
            }
        };
        let requests = (0..requests).map(near).collect();
        let racks = racks.clone();
        apply(Input::RequestResources { handle: handle.as_str().into(), requests, racks });
    }
    engine
}
