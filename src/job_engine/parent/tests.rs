//! The rules of the parent, as short scripts with the expected effects inline. A node `a` has the host
//! `a` and the name `tracker_a:1`; the remote with the number 0 runs in the session `s0`.

use corona_mapreduce::{JobState, TaskKey, TaskKind};
use corona_model::types::Millis;

use super::*;

struct TestParent {
    parent: Parent,
    now: Millis,
}

fn world(change: impl FnOnce(&mut ParentSettings)) -> TestParent {
    let mut settings = ParentSettings {
        maps: 3,
        reduces: 8,
        max_restarts: 1,
        start_attempts: 2,
        start_timeout_ms: 60_000,
        exclude_failed: true,
        exclusion_wait_ms: 3_000,
        max_state_bytes: 10_000,
    };
    change(&mut settings);
    let mut world = TestParent { parent: Parent::new(settings), now: Millis(1_000) };
    world.expect(ParentInput::Submitted, "request 1");
    world
}

fn slot(id: i32, host: &str) -> ParentInput {
    let slot = GrantedSlot {
        id: RequestId(id),
        node: format!("tracker_{host}:1").into(),
        host: host.into(),
        address: format!("{host}:2").into(),
    };
    ParentInput::Granted { slots: vec![slot] }
}

fn remote(attempt: u32) -> Remote {
    let session = format!("s{attempt}").into();
    Remote { attempt, host: "10.0.0.1".into(), port: 7_000 + attempt as u16, session }
}

fn text(effect: &ParentEffect) -> String {
    match effect {
        ParentEffect::Request(request) => {
            let excluded: String =
                request.exclude_hosts.iter().map(|host| format!(" -{host}")).collect();
            assert_eq!(request.kind, ResourceType::JobTracker);
            format!("request {}{excluded}", request.id)
        }
        ParentEffect::Release(id) => format!("release {}", id.0),
        ParentEffect::Start { attempt, slot } => format!("start {attempt} at {}", slot.host),
        ParentEffect::Watch(remote) => format!("watch {}", remote.attempt),
        ParentEffect::Kill(remote) => format!("kill {}", remote.attempt),
        ParentEffect::EndRemoteSession(session) => format!("end {session}"),
        ParentEffect::UpdatePriority(priority) => format!("priority {}", priority.name()),
        ParentEffect::End { state, reason: None } => format!("over {state:?}"),
        ParentEffect::End { state, reason: Some(reason) } => {
            let first = reason.to_string();
            format!("over {state:?}: {}", first.split(" (").next().unwrap())
        }
    }
}

impl TestParent {
    fn apply(&mut self, input: ParentInput) -> (Result<ParentReply, ParentRefusal>, String) {
        let ParentOutcome { reply, effects } = self.parent.apply(self.now, input);
        let effects: Vec<String> = effects.iter().map(text).collect();
        (reply, effects.join("; "))
    }

    #[track_caller]
    fn expect(&mut self, input: ParentInput, expected: &str) {
        let (reply, effects) = self.apply(input);
        assert!(reply.is_ok(), "{reply:?}");
        assert_eq!(effects, expected);
    }

    /// A remote that has reported.
    fn working(change: impl FnOnce(&mut ParentSettings)) -> TestParent {
        let mut world = world(change);
        world.expect(slot(1, "a"), "start 0 at a");
        world.expect(ParentInput::Reported(remote(0)), "watch 0");
        world
    }

    fn pass(&mut self, span_ms: i64) {
        self.now = self.now.plus_ms(span_ms);
    }
}

fn launch(at_ms: i64) -> SavedUpdate {
    SavedUpdate { status_of: None, is_passing: false, at_ms, bytes: vec![1; 100] }
}

#[test]
fn a_job_goes_to_a_node_and_ends_there() {
    let mut world = TestParent::working(|_| {});
    assert_eq!(world.parent.key(1), TaskKey { kind: TaskKind::Map, number: 100_003 }.attempt(1));
    world.expect(ParentInput::Reported(remote(0)), "");
    assert_eq!(world.parent.next_deadline(), None);
    let ended = ParentInput::Ended { attempt: 0, state: JobState::Succeeded };
    world.expect(ended.clone(), "over Succeeded");
    assert_eq!(world.parent.end(), Some(JobState::Succeeded));
    assert_eq!(world.apply(ended).0, Err(ParentRefusal::Ended));
    assert_eq!(world.apply(ParentInput::Resumed).0, Err(ParentRefusal::Ended));
}

#[test]
fn a_lost_remote_is_replaced_elsewhere_with_its_state() {
    let mut world = TestParent::working(|_| {});
    let key = TaskKey { kind: TaskKind::Map, number: 0 }.attempt(0);
    let status = |at_ms: i64, is_passing| SavedUpdate {
        status_of: Some(key),
        is_passing,
        at_ms,
        bytes: vec![at_ms as u8],
    };
    let updates = vec![launch(3), status(4, true), status(5, true), launch(1)];
    world.expect(ParentInput::Pushed { attempt: 0, updates }, "");
    let updates = vec![status(6, false), status(7, false)];
    world.expect(ParentInput::Pushed { attempt: 0, updates }, "");
    world.expect(ParentInput::Unreachable { attempt: 0 }, "end s0; release 1; request 2 -a");
    // The lost one is refused, whatever it does.
    let refused = Err(ParentRefusal::NotCurrent { attempt: 0, current: 1 });
    for input in [
        ParentInput::Reported(remote(0)),
        ParentInput::Pushed { attempt: 0, updates: vec![launch(9)] },
        ParentInput::Committing { attempt: 0, tasks: vec![key] },
    ] {
        assert_eq!(world.apply(input), (refused.clone(), String::new()));
    }
    for late in [
        ParentInput::Unreachable { attempt: 0 },
        ParentInput::Ended { attempt: 0, state: JobState::Failed },
        ParentInput::StartFailed { attempt: 0 },
        slot(1, "a"),
    ] {
        world.expect(late, "");
    }
    assert!(world.parent.saved(0).is_err());
    world.expect(slot(2, "b"), "start 1 at b");
    world.expect(ParentInput::Reported(remote(1)), "watch 1");
    let (saved, _) = world.parent.saved(1).unwrap();
    let times: Vec<i64> = saved.in_order().iter().map(|update| update.at_ms).collect();
    assert_eq!(times, [1, 3, 6, 7], "a passing status is replaced");
    assert_eq!(saved.in_order()[2].bytes, [6]);
    let limit = "release 2; over Failed: remote job trackers lost: 2, replacements allowed: 1";
    world.expect(ParentInput::Unreachable { attempt: 1 }, &format!("end s1; {limit}"));
}

#[test]
fn without_restarts_a_lost_remote_ends_the_job() {
    let mut world = TestParent::working(|settings| settings.max_restarts = 0);
    let refused = Err(ParentRefusal::NotRestoring);
    let updates = vec![launch(1)];
    assert_eq!(world.apply(ParentInput::Pushed { attempt: 0, updates }).0, refused);
    let over = "over Failed: remote job trackers lost: 1, replacements allowed: 0";
    let node = "tracker_a:1".into();
    world.expect(ParentInput::NodeLost { node }, &format!("end s0; release 1; {over}"));
}

#[test]
fn a_remote_that_does_not_start_is_tried_elsewhere() {
    let mut world = world(|_| {});
    world.expect(slot(1, "a"), "start 0 at a");
    assert_eq!(world.parent.next_deadline(), Some(Millis(61_000)));
    world.pass(59_999);
    world.expect(ParentInput::Tick, "");
    world.pass(1);
    world.expect(ParentInput::Tick, "release 1; request 2 -a");
    let late = world.apply(ParentInput::Reported(remote(0))).0.unwrap_err();
    assert_eq!(late.to_string(), "Attempt 0 does not match current attempt 1");
    // There is no other slot: the host is better than none.
    world.pass(3_000);
    world.expect(ParentInput::Tick, "request 3; release 2");
    assert_eq!(world.parent.next_deadline(), None);
    world.expect(slot(3, "a"), "start 1 at a");
    let over = "release 3; over Failed: remote job trackers that did not start, one after the \
                other: 2";
    world.pass(60_000);
    world.expect(ParentInput::Tick, over);
}

#[test]
fn a_node_that_is_dead_costs_none_of_the_starts_and_is_not_tried_twice() {
    let mut world = world(|settings| settings.start_attempts = 2);
    world.expect(slot(1, "a"), "start 0 at a");
    world.expect(ParentInput::StartFailed { attempt: 0 }, "release 1; request 2 -a");
    world.expect(slot(2, "b"), "start 1 at b");
    let node = "tracker_b:1".into();
    world.expect(ParentInput::NodeLost { node }, "release 2; request 3 -a -b");
    // The cluster manager still grants the dead nodes.
    world.pass(3_000);
    world.expect(ParentInput::Tick, "request 4; release 3");
    world.expect(slot(4, "a"), "release 4");
    assert!(world.parent.awaits().is_some());
    world.pass(3_000);
    world.expect(ParentInput::Tick, "request 5");
    world.expect(slot(5, "c"), "start 2 at c");
    world.expect(ParentInput::Reported(remote(2)), "watch 2");
}

#[test]
fn a_node_may_be_back_after_a_while_and_nodes_that_never_answer_end_the_job() {
    let mut world = world(|_| {});
    let mut id = 1;
    for attempt in 0..64 {
        world.expect(slot(id, "a"), &format!("start {attempt} at a"));
        let (_, effects) = world.apply(ParentInput::StartFailed { attempt });
        if attempt == 63 {
            assert!(effects.contains("over Failed") && effects.contains("64"), "{effects}");
            return;
        }
        world.pass(60_000);
        world.apply(ParentInput::Tick).0.unwrap();
        id += 2;
    }
}

#[test]
fn a_slot_that_is_taken_back_counts_as_the_remote() {
    let mut world = TestParent::working(|_| {});
    world.expect(ParentInput::Revoked { ids: vec![RequestId(9)] }, "");
    let ids = vec![RequestId(1)];
    world.expect(ParentInput::Revoked { ids }, "end s0; release 1; request 2 -a");
    world.expect(slot(2, "b"), "start 1 at b");
    let ids = vec![RequestId(2)];
    world.expect(ParentInput::Revoked { ids }, "release 2; request 3 -a -b");
}

#[test]
fn a_killed_job_is_not_started_again() {
    let mut waiting = world(|_| {});
    waiting.expect(ParentInput::KillJob, "over Killed");
    let mut world = TestParent::working(|_| {});
    world.expect(ParentInput::KillJob, "kill 0");
    world.expect(ParentInput::Resumed, "watch 0; kill 0");
    let over = "end s0; release 1; over Killed";
    world.expect(ParentInput::Unreachable { attempt: 0 }, over);
}

#[test]
fn a_parent_that_was_away_goes_on() {
    let mut world = world(|_| {});
    world.expect(ParentInput::Resumed, "release 1; request 2");
    world.expect(slot(2, "a"), "start 0 at a");
    // Whether the order went out is not known: if it did, that remote is refused.
    world.expect(ParentInput::Resumed, "release 2; request 3");
    world.expect(slot(3, "a"), "start 1 at a");
    assert!(world.apply(ParentInput::Reported(remote(0))).0.is_err());
    world.expect(ParentInput::Reported(remote(1)), "watch 1");
    world.expect(ParentInput::Resumed, "watch 1");
    assert_eq!(world.parent.lost(), 0, "its own absence costs no restart");
    let (last, open) = world.parent.open_request();
    assert_eq!((last, open.map(|(id, slot)| (id.0, slot.is_some()))), (3, Some((3, true))));
}

#[test]
fn the_last_attempt_that_commits_is_known_to_the_next_remote() {
    let mut world = TestParent::working(|_| {});
    let task = TaskKey { kind: TaskKind::Reduce, number: 7 };
    let commit = |attempt: u32, tasks: Vec<AttemptKey>| ParentInput::Committing { attempt, tasks };
    let other = TaskKey { kind: TaskKind::Map, number: 1 }.attempt(0);
    let unknown = TaskKey { kind: TaskKind::Map, number: 5 }.attempt(0);
    let refused = world.apply(commit(0, vec![other, unknown])).0;
    assert_eq!(refused, Err(ParentRefusal::UnknownTask));
    let tasks = vec![task.attempt(0), other];
    let reply = world.apply(commit(0, tasks)).0;
    assert_eq!(reply, Ok(ParentReply::Committed(vec![None, None])));
    world.expect(ParentInput::Unreachable { attempt: 0 }, "end s0; release 1; request 2 -a");
    world.expect(slot(2, "b"), "start 1 at b");
    let reply = world.apply(commit(1, vec![task.attempt(1)])).0;
    assert_eq!(reply, Ok(ParentReply::Committed(vec![Some(task.attempt(0))])));
}

#[test]
fn a_state_that_is_too_large_is_refused_and_not_used() {
    let mut world = TestParent::working(|_| {});
    let updates: Vec<SavedUpdate> = (0..60).map(launch).collect();
    world.expect(ParentInput::Pushed { attempt: 0, updates: updates.clone() }, "");
    let refused = Err(ParentRefusal::StateTooLarge(10_000));
    assert_eq!(world.apply(ParentInput::Pushed { attempt: 0, updates }).0, refused);
    let one = vec![launch(1)];
    assert_eq!(world.apply(ParentInput::Pushed { attempt: 0, updates: one }).0, refused);
    let over = "over Failed: a remote job tracker was lost, and its state is larger than \
                10000 bytes";
    world.expect(ParentInput::Unreachable { attempt: 0 }, &format!("end s0; release 1; {over}"));
}

#[test]
fn a_parent_whose_session_is_lost_ends_the_one_of_its_remote() {
    let mut world = TestParent::working(|_| {});
    let over = "end s0; over Failed: the session with the cluster manager is lost";
    world.expect(ParentInput::SessionLost, over);
}

#[test]
fn inputs_lead_back_to_the_same_parent() {
    let mut world = TestParent::working(|_| {});
    let inputs = [
        ParentInput::Submitted,
        slot(1, "a"),
        ParentInput::Reported(remote(0)),
        ParentInput::Pushed { attempt: 0, updates: vec![launch(2)] },
    ];
    let last = inputs[3].clone();
    world.expect(last, "");
    let bytes = postcard::to_stdvec(&inputs.to_vec()).unwrap();
    let read: Vec<ParentInput> = postcard::from_bytes(&bytes).unwrap();
    let mut again = Parent::new(world.parent.settings.clone());
    for input in read {
        again.apply(world.now, input).reply.unwrap();
    }
    assert_eq!(again, world.parent);
}
