//! State files of the original, files that it cannot read, broken ones, and our own.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::Serializer;

use super::*;
use corona_engine::snapshot::{
    FirstWait, NodeState, Recovery, RequestInState, SessionState, Standing, Step, Visit,
};
use corona_engine::{Engine, Notification};
use corona_model::types::{
    Address, ComputeSpecs, Grant, PerType, PoolName, ResourceRequest, ResourceType, SessionInfo,
    SessionPriority,
};

const ONE_SESSION: &str = "recordings/scenarios/safe_mode_and_recovery/cm.state";
const TWO_JOBS: &str = "state/two-jobs.state";
const TWO_JOBS_GZIP: &str = "state/two-jobs.state.gz";
const RECORDED: [&str; 3] = [ONE_SESSION, TWO_JOBS, TWO_JOBS_GZIP];
const NOW: Millis = Millis(1_800_000_000_000);

fn fixture(name: &str) -> PathBuf {
    [concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), "fixtures", name].iter().collect()
}

fn recorded(name: &str) -> SavedState {
    let (state, oddities) = read(&fixture(name), NOW).unwrap();
    assert_eq!(oddities, [], "{name}");
    state
}

fn bytes_of(state: &SavedState, compress: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, compress, state).unwrap();
    bytes
}

fn read_bytes(bytes: &[u8]) -> Result<(SavedState, Vec<Oddity>), StateFileError> {
    Ok(reading::state_of(read_document(bytes, 1 << 20)?, NOW)?)
}

/// JSON with its members in order.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn of(bytes: &[u8]) -> Json {
        serde_json::from_slice(bytes).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap()
    }

    /// The value at a path of names, made if it is not there.
    fn at(&mut self, path: &[&str]) -> &mut Json {
        let Some((name, rest)) = path.split_first() else { return self };
        if let Json::List(items) = self {
            return items[name.parse::<usize>().unwrap()].at(rest);
        }
        let Json::Object(members) = self else { panic!("{path:?} goes through {self:?}") };
        let place = members.iter().position(|(key, _)| key == name).unwrap_or_else(|| {
            members.push((name.to_string(), Json::Null));
            members.len() - 1
        });
        members[place].1.at(rest)
    }

    fn remove(&mut self, path: &[&str]) {
        let (name, parent) = path.split_last().unwrap();
        let Json::Object(members) = self.at(parent) else { panic!("{path:?}") };
        members.retain(|(key, _)| key != name);
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Json;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
                Ok(Json::Number(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
                Ok(Json::Number(value as i64))
            }
            fn visit_str<E>(self, value: &str) -> Result<Json, E> {
                Ok(Json::Text(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Json::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Json::Object(members))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(value) => serializer.serialize_i64(*value),
            Json::Text(value) => serializer.serialize_str(value),
            Json::List(items) => serializer.collect_seq(items),
            Json::Object(members) => serializer.collect_map(members.iter().map(|(k, v)| (k, v))),
        }
    }
}

#[test]
fn files_of_the_original_are_read() {
    let state = recorded(ONE_SESSION);
    let EngineState { started, sessions_numbered, nodes, sessions, id_prefix } = &state.engine;
    assert_eq!((started.0, *sessions_numbered), (1_795_221_179_223, 1));
    assert_eq!(*id_prefix, super::id_prefix(*started).unwrap());
    assert_eq!(id_prefix.len(), "yyyyMMddHHmm".len());
    assert_eq!(state.undelivered, []);

    let [node] = &nodes[..] else { panic!("{nodes:?}") };
    assert_eq!((&*node.name, &*node.address.host, node.address.port), ("n1", "10.1.1.1", 50_000));
    assert_eq!((node.total.num_cpus, node.free.memory_mb), (4, Some(16_384)));
    assert!(node.apps.0.iter().all(|app| app.as_deref() == Some("127.0.0.1:9000")));
    let map = vec![ResourceType::Map];
    assert_eq!(node.visits, [Visit { handle: "202611210032.1".into(), granted: map }]);

    let [session] = &sessions[..] else { panic!("{sessions:?}") };
    assert_eq!(&*session.handle, "202611210032.1");
    assert_eq!((&*session.info.name, session.info.address.port), ("keeper", 43_073));
    assert_eq!((session.info.no_preempt, session.info.deadline), (Some(false), Some(0)));
    assert_eq!(session.pool, PoolName::new("g", "p"));
    assert_eq!(session.first_wait[ResourceType::Map], FirstWait::After(14));
    assert_eq!(session.first_wait[ResourceType::Reduce], FirstWait::NotAsked);
    assert_eq!(session.expected, Step { request_id: 6, grant_id: 5 });
    assert_eq!(session.last_sync, Millis(1_795_221_179_489));
    let standings = session.requests.iter().map(|known| match &known.standing {
        Standing::Pending => format!("{} waits", known.request.id),
        Standing::Granted { node, at } => {
            format!("{} on {node} since {}", known.request.id, at.0 - 1_795_221_179_000)
        }
        Standing::Lost => format!("{} lost", known.request.id),
    });
    let expected = [
        "1 on n1 since 502",
        "2 on n1 since 503",
        "3 on n1 since 503",
        "5 on n1 since 503",
        "4 waits",
        "6 waits",
    ];
    assert_eq!(standings.collect::<Vec<_>>(), expected);
}

#[test]
fn state_survives_reading_writing_and_reading() {
    for name in RECORDED {
        let state = recorded(name);
        for compress in [false, true] {
            let bytes = bytes_of(&state, compress);
            assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), compress);
            let (again, oddities) = read_bytes(&bytes).unwrap();
            assert_eq!(again, state, "{name}");
            assert_eq!(oddities, [], "{name}");
        }
    }
}

#[test]
fn an_engine_goes_on_from_each_recorded_file() {
    for name in RECORDED {
        let mut state = recorded(name).engine;
        // The file has a node's sessions in no order, the engine in that of their start.
        for node in &mut state.nodes {
            node.visits.sort_by(|a, b| a.handle.cmp(&b.handle));
        }
        let mut settings = corona_model::settings::Settings::default();
        settings.partitioning.0.insert(1, ResourceType::ALL.map(|kind| (kind, 1)).into());
        let recovery =
            Recovery { now: NOW, hash_seed: 1, hosts: Default::default(), racks: Vec::new() };
        let restored = Engine::restore(settings, state.clone(), recovery).unwrap();
        assert_eq!(restored.repairs, [], "{name}");
        assert_eq!(restored.engine.snapshot(), state, "{name}");
    }
}

/// Helper members of the original's beans, which no reader uses.
fn is_helper(name: &str) -> bool {
    let set = name.strip_prefix("set").is_some_and(|rest| rest.starts_with(char::is_uppercase));
    set || name.ends_with("Size") || name.ends_with("Iterator")
}

/// Without helpers and without queues in which nothing waits; maps of names in one order.
fn essence(json: Json, name: &str) -> Json {
    const MAPS: [&str; 9] = [
        "nameToNode",
        "hostsToSessions",
        "nameToApps",
        "resourceInfos",
        "grants",
        "sessions",
        "idToRequest",
        "idToGrant",
        "sessionsToCtx",
    ];
    match json {
        Json::Object(members) => {
            let mut members: Vec<_> = members
                .into_iter()
                .filter(|(key, _)| !is_helper(key))
                .map(|(key, value)| {
                    let value = essence(value, &key);
                    (key, value)
                })
                .collect();
            let by_type = members.iter().all(|(key, _)| ResourceType::from_name(key).is_some());
            if MAPS.contains(&name) || by_type {
                members.sort_by(|a, b| a.0.cmp(&b.0));
            }
            if name == "sessionNotifier" {
                members[0].1 = Json::Number(0);
                members[1].1 = Json::Object(vec![]);
            }
            Json::Object(members)
        }
        other => other,
    }
}

#[test]
fn members_stand_in_the_order_in_which_the_original_wants_them() {
    for name in [ONE_SESSION, TWO_JOBS] {
        let theirs = std::fs::read(fixture(name)).unwrap();
        let ours = bytes_of(&recorded(name), false);
        assert_eq!(essence(Json::of(&ours), ""), essence(Json::of(&theirs), ""), "{name}");
    }
}

#[test]
fn lines_and_blanks_are_the_originals() {
    for name in [ONE_SESSION, TWO_JOBS] {
        let theirs = std::fs::read_to_string(fixture(name)).unwrap();
        let mut ours = Vec::new();
        let mut json = serde_json::Serializer::with_formatter(&mut ours, JavaJson::default());
        Json::of(theirs.as_bytes()).serialize(&mut json).unwrap();
        assert_eq!(String::from_utf8(ours).unwrap(), theirs, "{name}");
    }
}

#[test]
fn calls_that_wait_are_kept() {
    let grant = Grant {
        id: 4,
        node_name: "n1".into(),
        address: Address { host: "10.1.1.1".into(), port: 50_000 },
        granted_at: Millis(9),
        kind: ResourceType::Map,
        app_info: "127.0.0.1:9000".into(),
    };
    let mut state = recorded(ONE_SESSION);
    state.undelivered = vec![Undelivered {
        handle: "202611210032.1".into(),
        to: Address { host: "127.0.0.1".into(), port: 43_073 },
        calls: vec![
            Notification::Granted(vec![grant.clone()]),
            Notification::Revoked(vec![grant]),
            Notification::DeadNode("n1".into()),
        ],
    }];
    let bytes = bytes_of(&state, false);
    assert_eq!(read_bytes(&bytes).unwrap(), (state, vec![]));
    let mut json = Json::of(&bytes);
    let notifier = json.at(&["sessionNotifier"]);
    assert_eq!(*notifier.at(&["totalSessionsToCtx"]), Json::Number(1));
    let context = notifier.at(&["sessionsToCtx", "202611210032.1"]);
    assert_eq!(*context.at(&["numPendingCalls"]), Json::Number(3));
    let names = |json: &Json| match json {
        Json::Object(members) => members.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(names(context), ["handle", "host", "port", "numPendingCalls", "pendingCalls"]);
    for (number, method, arguments) in [
        ("0", "grantResource", &["handle", "granted"][..]),
        ("1", "revokeResource", &["handle", "revoked", "force"]),
        ("2", "processDeadNode", &["handle", "node"]),
    ] {
        let call = context.at(&["pendingCalls", number]);
        assert_eq!(names(call), ["callType", "call"]);
        let class = format!("org.apache.hadoop.corona.SessionDriverService${method}_args");
        assert_eq!(*call.at(&["callType"]), Json::Text(class));
        assert_eq!(names(call.at(&["call"])), arguments);
    }
}

const SESSION: [&str; 3] = ["sessionManager", "sessions", "202611210032.1"];

/// The recorded file of one session after a change.
fn changed(change: impl FnOnce(&mut Json)) -> Result<(SavedState, Vec<Oddity>), StateFileError> {
    let mut json = Json::of(&std::fs::read(fixture(ONE_SESSION)).unwrap());
    change(&mut json);
    read_bytes(&json.bytes())
}

fn in_session<'a>(json: &'a mut Json, path: &[&str]) -> &'a mut Json {
    json.at(&SESSION).at(path)
}

fn text(text: &str) -> Json {
    Json::Text(text.into())
}

#[test]
fn order_and_further_members_do_not_matter() {
    fn shuffle(json: &mut Json) {
        match json {
            Json::Object(members) => {
                members.reverse();
                members.insert(0, ("later".into(), Json::List(vec![Json::Null])));
                // Keys of maps mean something: nothing may be added there.
                let named = |key: &str| key.chars().all(|c| c.is_ascii_alphabetic());
                if members.iter().skip(1).any(|(key, _)| !named(key) || key == "MAP" || key == "n1")
                {
                    members.remove(0);
                }
                members.iter_mut().for_each(|(_, value)| shuffle(value));
            }
            Json::List(items) => items.iter_mut().for_each(shuffle),
            _ => {}
        }
    }
    let (state, oddities) = changed(shuffle).unwrap();
    assert_eq!((state, oddities), (recorded(ONE_SESSION), vec![]));
}

#[test]
fn files_of_older_versions_have_no_heartbeat_ids() {
    let (state, oddities) = changed(|json| {
        for member in ["expectedInfo", "lastHeartbeat", "lastSyncTime"] {
            json.remove(&[&SESSION[..], &[member]].concat());
        }
    })
    .unwrap();
    let session = &state.engine.sessions[0];
    let times = (session.expected, session.last_seen, session.last_sync);
    assert_eq!((times, oddities), ((Step::default(), Step::default(), NOW), vec![]));
}

/// Spec: cluster-manager/07 §4.
#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn states_that_the_original_cannot_read_are_read() {
    const NODE: [&str; 4] = ["nodeManager", "nameToNode", "n1", "clusterNodeInfo"];
    let same = |_: &mut SavedState| {};
    type Change = fn(&mut Json);
    type Expect = fn(&mut SavedState);
    let cases: Vec<(&str, Change, Expect, &[&str])> = vec![
        (
            "a node without services, and with grants",
            |json| {
                *json.at(&NODE).at(&["resourceInfos"]) = Json::Null;
                *json.at(&["nodeManager", "nameToApps", "n1"]) = Json::Object(vec![]);
            },
            |state| {
                let app = Some("127.0.0.1:9000".into());
                state.engine.nodes[0].apps = PerType([app, None, None]);
            },
            &[],
        ),
        (
            "a node of which nobody knows where it serves what, as after blacklisting",
            |json| json.remove(&["nodeManager", "nameToApps", "n1"]),
            same,
            &[],
        ),
        (
            "a node that did not say what is free",
            |json| *json.at(&NODE).at(&["free"]) = Json::Null,
            same,
            &[],
        ),
        (
            "names of nodes that are gone",
            |json| {
                *json.at(&["nodeManager", "hostsToSessions", "gone"]) = Json::List(vec![]);
                *json.at(&["nodeManager", "nameToApps", "gone"]) = Json::Object(vec![]);
            },
            same,
            &["gone is named as a node, but the file does not describe it; it is left out"],
        ),
        (
            "several deleted sessions",
            |json| {
                let deleted = json.at(&["sessionNotifier", "deletedSessions"]);
                *deleted = Json::List(vec![text("a"), text("b"), text("202611210032.1")]);
            },
            same,
            &[],
        ),
        (
            "calls for a session that is gone",
            |json| {
                let contexts = json.at(&["sessionNotifier", "sessionsToCtx"]);
                let mut context = contexts.at(&["202611210032.1"]).clone();
                *context.at(&["handle"]) = text("gone");
                *context.at(&["pendingCalls"]) = Json::List(vec![Json::Object(vec![
                    ("callType".into(), text("whatever")),
                    ("call".into(), Json::Object(vec![])),
                ])]);
                *contexts.at(&["gone"]) = context;
            },
            same,
            &["Unable to serialize SessionNotificationCtx for gone"],
        ),
        (
            "a request that waits and is not known",
            |json| {
                let pending = in_session(json, &["idToPendingRequests"]);
                *pending = Json::List([4, 77, 6, 4].map(Json::Number).into());
            },
            same,
            &[
                "session 202611210032.1 waits for request 77, which the file does not describe; it is \
               left out",
            ],
        ),
        (
            "a request that waits and is granted",
            |json| {
                let pending = in_session(json, &["idToPendingRequests"]);
                *pending = Json::List([4, 1, 6].map(Json::Number).into());
            },
            same,
            &["session 202611210032.1 waits for request 1, which it has been granted; the grant \
               counts"],
        ),
        (
            "a grant for a request that is not known",
            |json| json.remove(&[&SESSION[..], &["idToRequest", "3"]].concat()),
            same,
            &["session 202611210032.1 has a grant for request 3, which it does not know; it is \
               kept"],
        ),
        (
            "a slot of a request that has no grant",
            |json| json.remove(&[&SESSION[..], &["idToGrant", "5"]].concat()),
            |state| state.engine.sessions[0].requests[3].standing = Standing::Lost,
            &["node n1 holds a slot for request 5 of 202611210032.1, which has no such grant; it \
               is free"],
        ),
        (
            "an ended session",
            |json| *in_session(json, &["deleted"]) = Json::Bool(true),
            |state| {
                state.engine.sessions.clear();
                state.engine.nodes[0].visits[0].granted.clear();
            },
            &[
                "session 202611210032.1 has ended; it is left out",
                "node n1 holds a slot for request 1 of 202611210032.1, which has no such grant; \
                 it is free",
            ],
        ),
        (
            "null where a text must stand",
            |json| {
                *json.at(&NODE).at(&["name"]) = Json::Null;
                *in_session(json, &["sessionId"]) = Json::Null;
                *in_session(json, &["poolInfo", "poolName"]) = Json::Null;
            },
            |state| state.engine.sessions[0].pool = PoolName::new("g", "null"),
            &[],
        ),
        (
            "beans without members",
            |json| {
                *in_session(json, &["expectedInfo"]) = Json::Object(vec![]);
                let specs = in_session(json, &["idToRequest", "1", "request", "specs"]);
                *specs = Json::Object(vec![("numCpus".into(), Json::Null)]);
            },
            |state| {
                let session = &mut state.engine.sessions[0];
                session.expected = Step::default();
                session.requests[0].request.specs = Some(ComputeSpecs::default());
            },
            &[],
        ),
    ];
    for (what, change, expect, odd) in cases {
        let (state, oddities) = changed(change).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut expected = recorded(ONE_SESSION);
        expect(&mut expected);
        assert_eq!(state, expected, "{what}");
        let told: Vec<String> = oddities.iter().map(ToString::to_string).collect();
        assert!(told.len() >= odd.len() && told[..odd.len()] == *odd, "{what}: {told:?}");
        // Repairs are permanent, and the original can read the result.
        assert_eq!(read_bytes(&bytes_of(&state, true)).unwrap().1, [], "{what}");
    }
}

#[test]
fn errors_name_their_place() {
    type Change = fn(&mut Json);
    let cases: Vec<(Change, &str)> = vec![
        (|json| *json = Json::List(vec![]), "expected struct Document"),
        (|json| json.remove(&["nodeManager"]), "missing field `nodeManager`"),
        (|json| *json.at(&["startTime"]) = text("x"), "startTime: invalid type: string \"x\""),
        (
            |json| *json.at(&["startTime"]) = Json::Number(i64::MAX),
            "startTime: 9223372036854775807 is not a time",
        ),
        (
            |json| in_session(json, &["idToGrant", "3", "nodeName"]).clone_from(&Json::Number(1)),
            "sessionManager.sessions[\"202611210032.1\"].idToGrant[\"3\"].nodeName: invalid type",
        ),
        (
            |json| *in_session(json, &["idToGrant", "3", "id"]) = Json::Number(4),
            "sessionManager.sessions[\"202611210032.1\"].idToGrant[\"3\"]: has the id 4",
        ),
        (
            |json| *in_session(json, &["idToRequest", "x"]) = Json::Null,
            "sessionManager.sessions[\"202611210032.1\"].idToRequest",
        ),
        (
            |json| *in_session(json, &["idToPendingRequests", "1"]) = Json::Number(1 << 40),
            ".idToPendingRequests[1]: invalid value: integer `1099511627776`, expected i32",
        ),
        (
            |json| {
                let request = in_session(json, &["idToRequest", "1", "request"]);
                *request.at(&["specs", "numCpus"]) = Json::Number(40_000);
            },
            ".idToRequest[\"1\"].request.specs.numCpus: invalid value: integer `40000`",
        ),
        (
            |json| *in_session(json, &["idToRequest", "1", "request", "type"]) = text("map"),
            ".idToRequest[\"1\"].request.type: unknown variant `map`",
        ),
        (
            |json| *in_session(json, &["typeToFirstWait", "DISK"]) = Json::Number(1),
            ".typeToFirstWait: unknown variant `DISK`",
        ),
        (
            |json| *in_session(json, &["sessionId"]) = text("other"),
            "sessionManager.sessions[\"202611210032.1\"].sessionId: is \"other\"",
        ),
        (
            |json| {
                let node = json.at(&["nodeManager", "nameToNode", "n1"]).clone();
                let Json::Object(nodes) = json.at(&["nodeManager", "nameToNode"]) else { return };
                nodes.push(("n1".into(), node));
            },
            "nodeManager.nameToNode[\"n1\"]: appears twice",
        ),
        (
            |json| {
                let Json::Object(requests) = in_session(json, &["idToRequest"]) else { return };
                requests.push(requests[0].clone());
            },
            ".idToRequest[\"1\"]: appears twice",
        ),
        (
            |json| {
                let context = json.at(&["sessionNotifier", "sessionsToCtx", "202611210032.1"]);
                *context.at(&["pendingCalls"]) = Json::List(vec![Json::Object(vec![
                    ("callType".into(), text("java.lang.Runtime")),
                    ("call".into(), Json::Object(vec![])),
                ])]);
            },
            "sessionNotifier.sessionsToCtx[\"202611210032.1\"].pendingCalls[0]: Unknown Class: \
             java.lang.Runtime",
        ),
    ];
    for (change, expected) in cases {
        let error = changed(change).unwrap_err().to_string();
        assert!(error.contains(expected), "expected {expected:?}, found {error:?}");
    }
}

#[test]
fn damaged_files_are_errors_wherever_they_are_cut() {
    for name in RECORDED {
        let whole = std::fs::read(fixture(name)).unwrap();
        for cut in (0..whole.len()).step_by(whole.len() / 50) {
            assert!(read_bytes(&whole[..cut]).is_err(), "{name} cut at {cut}");
        }
        let mut longer = whole.clone();
        longer.extend(b"{}");
        assert!(read_bytes(&longer).is_err(), "{name} with something behind it");
    }
    let mut gzip = std::fs::read(fixture(TWO_JOBS_GZIP)).unwrap();
    let checksum = gzip.len() - 8;
    gzip[checksum] ^= 1;
    assert!(matches!(read_bytes(&gzip), Err(StateFileError::Io(_))));
}

#[test]
fn a_file_cannot_cost_more_than_the_limit() {
    let zeros = b"0,".repeat(1 << 20);
    let long = [b"{\"startTime\":1,\"later\":[".as_slice(), &zeros, b"0]}"].concat();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&long).unwrap();
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 1 << 14);
    for file in [&long, &bomb] {
        let error = read_bytes(file).unwrap_err().to_string();
        assert_eq!(error, "more than 1048576 bytes, which is no state file");
    }
    let deep = [b"{\"later\":".as_slice(), &b"[".repeat(1 << 19)].concat();
    assert!(read_bytes(&deep).is_err());
    let deep = [b"{\"nodeManager\":".as_slice(), &b"{\"nameToNode\":".repeat(1 << 16)].concat();
    assert!(read_bytes(&deep).is_err());
}

#[test]
fn files_are_found_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cm.state");
    let error = read(&path, NOW).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    assert!(read(dir.path(), NOW).is_err());
    let state = recorded(TWO_JOBS);
    write(&path, true, &state).unwrap();
    assert_eq!(read(&path, NOW).unwrap().0, state);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_state_is_written_and_read(state in any_state(), compress in any::<bool>()) {
        let (again, oddities) = read_bytes(&bytes_of(&state, compress)).unwrap();
        prop_assert_eq!(oddities, vec![]);
        let expected = as_a_file_can_say(state);
        prop_assert_eq!(&again, &expected);
        prop_assert_eq!(read_bytes(&bytes_of(&again, compress)).unwrap(), (expected, vec![]));
    }

    #[test]
    fn no_bytes_make_it_panic(changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..8)) {
        let mut bytes = bytes_of(&recorded(ONE_SESSION), false);
        for (place, byte) in changes {
            let place = usize::from(place) % bytes.len();
            bytes[place] = byte;
        }
        let _ = read_bytes(&bytes);
    }
}

/// The state as a file can store it: absent numbers become 0, a priority and the CPUs of a request
/// are always there, and a session's grants on a node are the grants that it ever had there.
fn as_a_file_can_say(mut state: SavedState) -> SavedState {
    let set = |specs: ComputeSpecs| ComputeSpecs {
        num_cpus: specs.num_cpus,
        network_mbps: Some(specs.network_mbps.unwrap_or(0)),
        memory_mb: Some(specs.memory_mb.unwrap_or(0)),
        disk_gb: Some(specs.disk_gb.unwrap_or(0)),
    };
    for session in &mut state.engine.sessions {
        session.info.priority = Some(session.info.priority.unwrap_or_default());
        session.info.no_preempt = Some(session.info.no_preempt.unwrap_or(false));
        session.info.deadline = Some(session.deadline);
        for known in &mut session.requests {
            let specs = set(known.request.specs.unwrap_or_default());
            known.request.specs = Some(ComputeSpecs { num_cpus: specs.num_cpus.max(1), ..specs });
        }
    }
    for node in &mut state.engine.nodes {
        (node.total, node.free) = (set(node.total), set(node.free));
        for visit in &mut node.visits {
            let session = state.engine.sessions.iter().find(|s| s.handle == visit.handle);
            let waits = session.map(|session| session.first_wait);
            let ever = |kind: &ResourceType| {
                waits.is_some_and(|waits| matches!(waits[*kind], FirstWait::After(_)))
            };
            visit.granted = ResourceType::ALL.into_iter().filter(ever).collect();
        }
    }
    state
}

/// States as an engine gives them.
#[allow(clippy::too_many_lines, reason = "each field has its values")]
fn any_state() -> impl Strategy<Value = SavedState> {
    let specs = (any::<i16>(), any::<Option<i16>>(), any::<Option<i32>>(), any::<Option<i32>>());
    let specs = specs.prop_map(|(num_cpus, network_mbps, memory_mb, disk_gb)| ComputeSpecs {
        num_cpus,
        network_mbps,
        memory_mb,
        disk_gb,
    });
    let word = || "[a-z\"\\\\\u{1}\u{e4}\u{1f600}. ]{0,6}".prop_map(Arc::<str>::from);
    let kind = (0..3_i32).prop_map(|kind| ResourceType::from_number(kind).unwrap());
    let node = (word(), any::<i32>(), specs.clone(), specs.clone(), any::<[bool; 3]>());
    let hosts = proptest::collection::vec(word(), 0..3);
    let request = (kind, proptest::option::of(specs), hosts.clone(), hosts, any::<Option<u8>>());
    let requests = proptest::collection::btree_map(any::<i32>(), request, 0..8);
    let wait = prop_oneof![
        Just(FirstWait::NotAsked),
        Just(FirstWait::Waiting),
        (0..i64::MAX).prop_map(FirstWait::After)
    ];
    let waits = [wait.clone(), wait.clone(), wait].prop_map(PerType);
    let session = (
        (word(), word(), proptest::option::of(word()), any::<Option<bool>>(), 0..7_i32),
        (any::<i64>(), any::<i64>(), any::<[i32; 4]>(), waits),
        requests,
        proptest::collection::vec(any::<(u8, u8)>(), 0..4),
    );
    let nodes = proptest::collection::vec(node, 0..4);
    let sessions = proptest::collection::vec(session, 0..4);
    (0..4_000_000_000_000_i64, any::<i64>(), nodes, sessions).prop_map(
        |(started, sessions_numbered, nodes, sessions)| {
            let mut engine = EngineState {
                started: Millis(started),
                id_prefix: id_prefix(Millis(started)).unwrap(),
                sessions_numbered,
                nodes: Vec::new(),
                sessions: Vec::new(),
            };
            for (number, (host, port, total, free, apps)) in nodes.into_iter().enumerate() {
                engine.nodes.push(NodeState {
                    name: format!("n{number}:{host}").into(),
                    address: Address { host, port },
                    total,
                    free,
                    apps: PerType(apps.map(|app| app.then(|| "a:1".into()))),
                    visits: Vec::new(),
                });
            }
            let mut undelivered = Vec::new();
            for (number, (words, numbers, requests, calls)) in sessions.into_iter().enumerate() {
                let (name, user_id, group, no_preempt, priority) = words;
                let (deadline, time, steps, first_wait) = numbers;
                let handle: Arc<str> = format!("2026.{number}").into();
                let to = Address { host: name.clone(), port: steps[0] };
                let mut held = Vec::new();
                let mut waiting = Vec::new();
                let mut grants = Vec::new();
                for (id, (kind, specs, hosts, exclude_hosts, place)) in requests {
                    let request = ResourceRequest { id, hosts, specs, kind, exclude_hosts };
                    let serving: Vec<usize> = (0..engine.nodes.len())
                        .filter(|node| engine.nodes[*node].apps[kind].is_some())
                        .collect();
                    match place {
                        Some(place) if !serving.is_empty() => {
                            let node =
                                &mut engine.nodes[serving[usize::from(place) % serving.len()]];
                            if node.visits.last().is_none_or(|visit| visit.handle != handle) {
                                let handle = handle.clone();
                                node.visits.push(Visit { handle, granted: Vec::new() });
                            }
                            let at = Millis(time.wrapping_add(i64::from(id)));
                            grants.push(Grant {
                                id,
                                node_name: node.name.clone(),
                                address: node.address.clone(),
                                granted_at: at,
                                kind,
                                app_info: "a:1".into(),
                            });
                            let standing = Standing::Granted { node: node.name.clone(), at };
                            held.push(RequestInState { request, standing });
                        }
                        Some(_) => {
                            held.push(RequestInState { request, standing: Standing::Lost });
                        }
                        None => {
                            waiting.push(RequestInState { request, standing: Standing::Pending });
                        }
                    }
                }
                // Those that came last were asked for first.
                waiting.reverse();
                waiting.sort_by_key(|known| known.request.kind);
                held.extend(waiting);
                if !calls.is_empty() {
                    let calls = calls.iter().map(|(what, _)| match what % 3 {
                        0 => Notification::Granted(grants.clone()),
                        1 => Notification::Revoked(grants.clone()),
                        _ => Notification::DeadNode(format!("n{what}").into()),
                    });
                    let (handle, to) = (handle.clone(), to.clone());
                    undelivered.push(Undelivered { handle, to, calls: calls.collect() });
                }
                engine.sessions.push(SessionState {
                    handle,
                    info: SessionInfo {
                        address: to,
                        name,
                        user_id,
                        group_ids: group.clone().map(|group| vec![group]),
                        pool: group.clone().map(|group| PoolName::new(&group, "p")),
                        priority: SessionPriority::from_number(priority),
                        no_preempt,
                        url: group,
                        deadline: no_preempt.map(|_| deadline),
                    },
                    deadline,
                    pool: PoolName::new("g", "p"),
                    started: Millis(number as i64),
                    first_wait,
                    expected: Step { request_id: steps[0], grant_id: steps[1] },
                    last_seen: Step { request_id: steps[2], grant_id: steps[3] },
                    last_sync: Millis(time),
                    requests: held,
                });
            }
            SavedState { engine, undelivered }
        },
    )
}
