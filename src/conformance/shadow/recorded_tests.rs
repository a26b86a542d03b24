//! Shadows of the original: recorded scenarios pass the stepper in virtual time, as they are and falsified.
//! Each run is written down and replayed, and must find the same.

use std::time::Duration;

use super::event_log::{EventLog, replay_events};
use super::*;
use crate::capture::{ConnectionId, Limits, Opening};
use crate::conversation::{Conversation, Part, Said};
use crate::recorded::{
    SCENARIOS, configuration_of, configured, conversations_of, falsify, scenario,
};
use crate::recording::{Record, Unrecorded};
use crate::report::Rule;
use crate::report::times::USUAL_TOLERANCE;
use corona_cluster_manager::{Found, Lookup};
use corona_wire::value::{Message, Value};

const EPOCH: Millis = Millis(1_795_000_000_000);

/// A recorded scenario, and the configuration with which it was recorded.
fn recorded(name: &str) -> (Vec<Conversation>, Configuration) {
    let directory = scenario(name);
    (conversations_of(&directory), configuration_of(&directory))
}

/// The conversations as they would have passed a relay.
fn events(conversations: &[Conversation]) -> Vec<(Duration, Event)> {
    let mut events = Vec::new();
    for (number, one) in conversations.iter().enumerate() {
        let Conversation { client, server, opened_at: at, whole, service, .. } = *one;
        let mut push = |at, record| {
            let connection = ConnectionId(number as u64);
            events.push((at, Event::Passed(connection, record)));
        };
        let opening = Opening { client, server, at, whole };
        push(at, Record::Opened { opening, service: Some(service) });
        if one.accepted {
            push(at, Record::Accepted);
        }
        let mut end = at;
        for part in &one.parts {
            end = part.at;
            let record = match &part.what {
                Said::Messages { raw, .. } | Said::Bytes(raw) => {
                    Record::Data(part.from, raw.clone())
                }
                Said::End => Record::End(part.from),
                Said::Reset => Record::Reset(part.from),
                Said::Missing(_) => continue,
            };
            push(part.at, record);
        }
        push(end, Record::Closed);
    }
    events.sort_by_key(|(at, _)| *at);
    events
}

/// A shadow in virtual time, with look-ups that need no outside source.
struct Virtual {
    stepper: Stepper,
    configuration: Configuration,
    log: EventLog<Vec<u8>>,
    found: Vec<String>,
}

impl Virtual {
    fn start(configuration: Configuration, max_bytes: u64) -> Virtual {
        let patience = Duration::from_secs(10);
        let time_tolerance = USUAL_TOLERANCE;
        let options = ShadowOptions { primary: "original".to_owned(), patience, time_tolerance };
        let log = EventLog::start(Vec::new(), max_bytes, &options, &configuration, EPOCH).unwrap();
        let stepper = Stepper::new(configuration.clone(), &options, EPOCH).unwrap();
        Virtual { stepper, configuration, log, found: Vec::new() }
    }

    fn step(&mut self, at: Duration, event: Event) {
        self.log.write(at, &event);
        let found = self.stepper.step(at, event);
        self.found.extend(found.iter().map(ToString::to_string));
        while let Some(want) = self.stepper.wants().cloned() {
            let learnt = match want {
                Want::Sessions => Learnt::Sessions(Ok(Vec::new())),
                Want::Configuration => {
                    Learnt::Configuration(Ok(Box::new(self.configuration.clone())))
                }
                Want::Lookup(Lookup::HostFiles) => {
                    Learnt::Found(Found::Hosts(Ok(self.configuration.hosts.clone())))
                }
                Want::Lookup(Lookup::Racks { .. }) => Learnt::Found(Found::Racks(Ok(Vec::new()))),
                Want::Lookup(Lookup::IsCaller { .. }) => Learnt::Found(Found::IsCaller(true)),
            };
            let event = Event::Learnt(learnt);
            self.log.write(at, &event);
            let found = self.stepper.step(at, event);
            self.found.extend(found.iter().map(ToString::to_string));
        }
    }
}

/// A shadow run over these events, with an idle step every so often. Returns its results, all findings, and
/// the file of its events.
fn run(
    configuration: Configuration,
    events: Vec<(Duration, Event)>,
    idle: Option<Duration>,
) -> (Stats, Vec<String>, Vec<u8>) {
    let mut shadow = Virtual::start(configuration, u64::MAX);
    shadow.step(Duration::ZERO, Event::Learnt(Learnt::Idle));
    let mut now = Duration::ZERO;
    let end = events.last().map_or(Duration::ZERO, |(at, _)| *at);
    for (at, event) in events {
        while let Some(idle) = idle.filter(|idle| now + *idle < at) {
            now += idle;
            shadow.step(now, Event::Learnt(Learnt::Idle));
        }
        now = at;
        shadow.step(at, event);
    }
    shadow.step(end, Event::Learnt(Learnt::End));
    let Virtual { stepper, mut log, found, .. } = shadow;
    log.finish(end, Unrecorded::default());
    (stepper.stats().clone(), found, log.into_inner())
}

/// Runs, replays the file of events, and checks that both find the same. Returns the results.
fn check(name: &str, configuration: Configuration, conversations: &[Conversation]) -> Stats {
    let (stats, found, file) = run(configuration.clone(), events(conversations), None);
    let replayed = replay_events(&*file).unwrap();
    assert_eq!(replayed, stats, "{name}");
    assert_eq!(text(&replayed, 80), text(&stats, 80), "{name}");
    // How often a shadow looks up makes no difference.
    let often = Some(Duration::from_millis(7));
    let (idle, found_idle, _) = run(configuration, events(conversations), often);
    assert_eq!((idle, found_idle), (stats.clone(), found), "{name}");
    stats
}

#[test]
fn recorded_scenarios_replay_to_the_same_findings() {
    let mut times = 0;
    for name in SCENARIOS {
        let (conversations, configuration) = recorded(name);
        let stats = check(name, configuration, &conversations);
        assert!(stats.agrees(), "{name}: {}", text(&stats, 80));
        assert!(stats.all_calls().compared() > 3, "{name}: {}", text(&stats, 80));
        // The original revoked 0.3 s after the first request of a pool, for which this program waits.
        let waits = stats.rows.get(&Rule::NEW_POOL_WAITS).copied();
        assert_eq!(waits, (name == "preemption").then_some(3), "{name}: {}", text(&stats, 80));
        times += stats.times.compared();
    }
    assert!(times >= 100, "{times}");
}

#[test]
fn deviations_planted_in_settings_and_times_are_found() {
    const KEPT: &str = "<pool name=\"hog\"><preemptable>false</preemptable></pool>";
    const WAITS: [&str; 2] = ["<nodeLocalityWaitMAP>2000<", "<rackLocalityWaitMAP>1000<"];
    let mut all = Vec::new();
    let mut expect = |name: &str, words: &str, stats: &Stats| {
        let text = text(stats, 500);
        if stats.agrees() || !words.split('|').all(|word| text.contains(word)) {
            all.push(format!("{name}: no {words} in {text}"));
        }
    };
    for (name, file, from, to, words) in [
        ("locality_wait", "corona.xml", WAITS[0], "<nodeLocalityWaitMAP>0<", "another host"),
        ("locality_wait", "corona.xml", WAITS[1], "<rackLocalityWaitMAP>0<", "another host"),
        ("dead_node", "core-site.xml", "<value>2000<", "<value>200<", "expiryinterval"),
        ("dead_node", "core-site.xml", "<value>2000<", "<value>9000<", "n1 is dead"),
        ("preemption", "pools.xml", "<pool name=\"hog\"/>", KEPT, "it stays granted"),
    ] {
        let directory = configured(name, &[(file, from, to)]);
        let conversations = conversations_of(&scenario(name));
        let stats = check(name, configuration_of(directory.path()), &conversations);
        expect(&format!("{name}: {to}"), words, &stats);
    }
    // The primary notifies sessions later than it could.
    for (name, method, ms, words) in [
        ("grants", "grantResource", 1_900, "without preferred hosts|weights"),
        ("node_locality", "grantResource", 1_900, "on a preferred host|nodeLocalityWaitMAP"),
        ("locality_wait", "grantResource", 3_000, "on another host"),
        ("dead_node", "processDeadNode", 3_000, "report of its death|expiryinterval"),
    ] {
        let (mut conversations, configuration) = recorded(name);
        for one in &mut conversations {
            let is_it = |message: &Message| message.name == method;
            if one.messages().any(|(_, message)| is_it(message)) {
                one.parts.iter_mut().for_each(|part| part.at += Duration::from_millis(ms));
            }
        }
        let stats = check(name, configuration, &conversations);
        expect(&format!("{name}: {method} after {ms} ms"), words, &stats);
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// The numbers of slots of running sessions in a list of sessions.
fn running(message: &mut Message) -> Vec<&mut i32> {
    let mut found = Vec::new();
    let sessions = message.body.as_mut().ok().and_then(|body| find(body, "success"));
    let Some(Value::List(sessions)) = sessions else { return found };
    for session in sessions {
        let Some(Value::Map(counts)) = find(session, "runningResources") else { continue };
        found.extend(counts.iter_mut().filter_map(|(_, count)| match count {
            Value::I32(count) => Some(count),
            _ => None,
        }));
    }
    found
}

#[test]
fn each_wrong_number_of_slots_in_a_list_of_sessions_is_found() {
    let mut planted = 0;
    for name in SCENARIOS {
        let (conversations, configuration) = recorded(name);
        let lists = |one: &Conversation| {
            let is_list =
                |message: &Message| message.name == "getSessions" && message.kind.is_answer();
            one.messages().filter(|(_, message)| is_list(message)).count()
        };
        let lists: usize = conversations.iter().map(lists).sum();
        for (list, by) in (0..lists).flat_map(|list| [(list, 1), (list, -1)]) {
            let mut changed = conversations.clone();
            let (mut seen, mut done) = (0, false);
            falsify(&mut changed, |message| {
                if message.name == "getSessions" && message.kind.is_answer() {
                    let counts = running(message);
                    if seen == list
                        && let Some(count) = counts.into_iter().find(|count| **count > 0)
                    {
                        *count += by;
                        done = true;
                    }
                    seen += 1;
                }
            });
            if !done {
                continue;
            }
            planted += 1;
            let stats = check(name, configuration.clone(), &changed);
            let text = text(&stats, 80);
            assert!(!stats.agrees() && text.contains("runningResources"), "{name}, {by}: {text}");
        }
    }
    // Two lists have a session with slots; each number is planted one too high and one too low.
    assert_eq!(planted, 4);
}

fn find<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let Value::Struct(fields) = value else { return None };
    fields.iter_mut().find(|(field, _)| *field == name).map(|(_, value)| value)
}

fn list<'a>(message: &'a mut Message, name: &str) -> &'a mut Vec<Value> {
    match find(message.body.as_mut().unwrap(), name) {
        Some(Value::List(values)) => values,
        other => panic!("no list {name}: {other:?}"),
    }
}

/// Checks that a scenario whose first message of a name is falsified differs so often and with these words, and
/// replays to the same findings.
fn check_falsified(
    name: &str,
    differences: usize,
    words: &str,
    (method, is_answer): (&str, bool),
    edit: impl Fn(&mut Message) -> Option<()>,
) {
    let (mut conversations, configuration) = recorded(name);
    let mut done = false;
    falsify(&mut conversations, |message| {
        let is_it = message.name == method && message.kind.is_answer() == is_answer;
        done = done || (is_it && edit(message).is_some());
    });
    assert!(done, "{name} has nothing to falsify");
    let stats = check(name, configuration, &conversations);
    let text = text(&stats, 80);
    let plural = if differences == 1 { "" } else { "s" };
    let verdict = format!("DIFFERS: {differences} unexplained difference{plural}.");
    assert!(!stats.agrees() && text.starts_with(&verdict), "{name}: not {verdict:?} in {text}");
    assert!(text.contains(words), "{name}: no {words:?} in {text}");
}

#[test]
fn falsified_scenarios_replay_to_the_same_findings() {
    let (info, grant) = (("getSessionInfo", true), ("grantResource", false));
    check_falsified("session_lifecycle", 1, "success.noPreempt  true ", info, |message| {
        let info = find(message.body.as_mut().ok()?, "success")?;
        find(info, "noPreempt").map(|flag| *flag = Value::Bool(true))
    });
    check_falsified("exclude_hosts", 1, "the request was never made", grant, |message| {
        let granted = list(message, "granted");
        granted.push(granted[0].clone());
        find(granted.last_mut()?, "id").map(|id| *id = Value::I32(9_999))
    });
    check_falsified("exclude_hosts", 1, "it has been granted already", grant, |message| {
        let granted = list(message, "granted");
        granted.push(granted[0].clone());
        Some(())
    });
    let revocation = ("revokeResource", false);
    check_falsified("preemption", 3, "it was never requested", revocation, |message| {
        find(&mut list(message, "revoked")[0], "id").map(|id| *id = Value::I32(9_999))
    });
}

#[test]
fn a_connection_closed_instead_of_an_answer_is_found() {
    let (mut conversations, configuration) = recorded("session_lifecycle");
    let is_answer = |part: &Part| match &part.what {
        Said::Messages { messages, .. } => messages
            .iter()
            .any(|message| message.name == "getSessionInfo" && message.kind.is_answer()),
        _ => false,
    };
    let closed = conversations.iter_mut().find_map(|one| {
        let place = one.parts.iter().position(is_answer)?;
        one.parts.truncate(place + 1);
        one.parts[place].what = Said::End;
        Some(())
    });
    assert!(closed.is_some());
    let stats = check("session_lifecycle", configuration, &conversations);
    let text = text(&stats, 80);
    assert!(!stats.agrees() && text.contains("  primary   the connection is closed\n"), "{text}");
}

#[test]
fn a_panic_and_missed_bytes_are_replayed() {
    let (conversations, configuration) = recorded("grants");
    let mut events = events(&conversations);
    let (middle, end) = (events.len() / 2, events[events.len() - 1].0);
    let at = events[middle].0;
    let learnt = |at: Duration, learnt| (at, Event::Learnt(learnt));
    events.insert(middle, learnt(at, Learnt::Panicked("panic: out of luck".to_owned())));
    let later = end + Duration::from_secs(3);
    events.push(learnt(end, Learnt::LeftOut(Unrecorded { connections: 1, bytes: 77 })));
    events.push(learnt(later, Learnt::Idle));
    let (stats, _, file) = run(configuration, events, None);
    let text = text(&stats, 80);
    assert!(text.contains("  here      panic: out of luck\n"), "{text}");
    assert!(text.contains("it was too slow, and missed 77 bytes and 1 connections"), "{text}");
    let restarts = "the recorded cluster manager was not there at first";
    assert_eq!(stats.beginnings, 2 + 2, "{restarts}");
    assert_eq!(replay_events(&*file).unwrap(), stats);
}

#[test]
fn the_file_of_events_has_a_bound_and_serves_as_a_recording() {
    let (conversations, configuration) = recorded("grants");
    let (_, _, file) = run(configuration.clone(), events(&conversations), None);
    let traffic = crate::Traffic::read(&*file, &Limits::default()).unwrap();
    assert_eq!(traffic.capture.connections.len(), conversations.len());
    let mut shadow = Virtual::start(configuration, 1);
    for (at, event) in events(&conversations) {
        shadow.step(at, event);
    }
    shadow.step(Duration::from_secs(9), Event::Learnt(Learnt::End));
    assert!(shadow.log.has_ended(), "one byte is not enough");
    for not_events in [&b"no recording"[..], &file[..40]] {
        assert!(replay_events(not_events).is_err());
    }
}
