use std::io::Write;

use super::*;

/// What a task tracker of the first version has handed over: a job with a map that runs, one that waits for a slot, one
/// whose output is served, a process of Java that waits for tasks, a deletion, a file of the cache, and a job tracker.
const FIXTURE: &str = include_str!("../../../fixtures/versions/node-handover.json");

fn handed(text: &str, descriptors: usize) -> Handed {
    let listener = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let descriptors = (0..descriptors).map(|_| listener()).collect();
    let text = handover::Text::written(|writer| writer.write_all(text.as_bytes())).unwrap();
    Handed { text, descriptors }
}

#[test]
fn a_text_of_the_first_version_is_read_and_written() {
    let kept = KeptTracker::read(handed(FIXTURE, LISTENERS)).unwrap();
    assert_eq!(kept.state.node.name, "tracker_node:localhost/127.0.0.1:40001");
    assert_eq!(kept.state.pids(), [101, 102, 103]);
    let mut again = kept.into_handed().unwrap();
    let expected: serde_json::Value = serde_json::from_str(FIXTURE).unwrap();
    let written: serde_json::Value = serde_json::from_reader(again.text.reader().unwrap()).unwrap();
    assert_eq!(written, expected);
    assert_eq!(again.descriptors.len(), LISTENERS);
}

#[test]
fn other_versions_and_damaged_texts_are_refused_by_name() {
    let refused = |text: &str, descriptors| {
        KeptTracker::read(handed(text, descriptors)).unwrap_err().to_string()
    };
    let later = FIXTURE.replacen("\"version\": 1", "\"version\": 2", 1);
    assert_eq!(
        refused(&later, LISTENERS),
        "its form 2 is not known to this version of the program, which reads form 1"
    );
    assert_eq!(refused("{\"version\": 7}", 0), refused("{\"version\":7,\"a\":1}", LISTENERS));
    assert_eq!(refused(FIXTURE, 3), "3 of 4 listeners have arrived");
    assert!(
        refused(&FIXTURE[..FIXTURE.len() / 2], LISTENERS).starts_with("its text cannot be read")
    );
}

#[test]
fn descriptors_that_are_missing_are_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let connection = |number| KeptConnection { stream: connect(), received: vec![number] };
    let mut kept = KeptTracker::read(handed(FIXTURE, LISTENERS)).unwrap();
    kept.actions = vec![connection(1), connection(2)];
    kept.umbilical = vec![connection(3), connection(4)];
    let mut handed = kept.into_handed().unwrap();
    assert_eq!(handed.descriptors.len(), LISTENERS + 4);
    handed.descriptors.pop();
    let kept = KeptTracker::read(handed).unwrap();
    let received = |connections: &[KeptConnection]| -> Vec<Vec<u8>> {
        connections.iter().map(|connection| connection.received.clone()).collect()
    };
    assert_eq!(received(&kept.actions), [[1], [2]]);
    assert_eq!(received(&kept.umbilical), [[3]]);
}
