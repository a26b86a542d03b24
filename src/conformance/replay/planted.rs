//! Tables of deviations that are planted in what the recording has, in what the manager under test
//! sends, and in its settings. Each is found at the right place; without them nothing is.

use std::path::Path;

use super::dry_manager::{Proxy, honest, options_of, play_dry};
use super::*;
use crate::conversation::Offered;
use crate::recorded::{SCENARIOS, configured, conversations_of, falsify, scenario};
use crate::samples::word;
use corona_wire::calls::SessionDriverCall;
use corona_wire::generated::ResourceGrant;
use corona_wire::value::{Message, MessageKind, Value};

/// The recorded conversations of a scenario.
fn recorded(name: &str) -> Vec<Conversation> {
    conversations_of(&scenario(name))
}

#[test]
fn this_program_agrees_with_the_original_in_its_times_too() {
    let mut times = 0;
    for name in SCENARIOS {
        let report = play_dry(&recorded(name), &scenario(name), honest(), |_| {});
        assert!(report.agrees(), "{name}: {report}");
        times += report.times.compared();
    }
    assert!(times >= 100, "{times}");
}

/// What a report lacks that should differ with these words; none if it does.
fn missed(name: &str, words: &str, report: &Report) -> Option<String> {
    let found: Vec<String> = report.different.iter().map(ToString::to_string).collect();
    let shows = |finding: &String| words.split('|').all(|word| finding.contains(word));
    let is_found = !report.agrees() && found.iter().any(shows);
    (!is_found).then(|| format!("{name}: no {words} in {found:#?}"))
}

/// Sets every field of this name within a value.
fn set(value: &mut Value, name: &str, to: &Value) {
    match value {
        Value::Struct(fields) => {
            for (field, value) in fields {
                if *field == name { *value = to.clone() } else { set(value, name, to) }
            }
        }
        Value::List(values) => values.iter_mut().for_each(|value| set(value, name, to)),
        _ => {}
    }
}

#[test]
fn deviations_planted_in_recordings_are_found() {
    let mut all = Vec::new();
    let number = Value::I32;
    for (name, method, field, to, words) in [
        ("grants", "nodeHeartbeat", "restartFlag", Value::Bool(true), "nodeHeartbeat|restartFlag"),
        ("session_lifecycle", "getSessionInfo", "userId", word("eve"), "getSessionInfo|eve"),
        ("session_lifecycle", "getSessionInfo", "name", word("x"), "getSessionInfo|\"name\":\"x\""),
        ("session_lifecycle", "getSessionInfo", "noPreempt", Value::Bool(true), "noPreempt\":true"),
        (
            "session_lifecycle",
            "getSessions",
            "deadline",
            Value::I64(1),
            "getSessions|\"deadline\":1",
        ),
        ("session_lifecycle", "getSessions", "userId", word("eve"), "getSessions|eve"),
        ("session_lifecycle", "sessionStart", "url", word("http://x"), "sessionStart|http://x"),
        ("grants", "grantResource", "nodeName", word("n99"), "as it was recorded|no node n99"),
        ("grants", "grantResource", "appInfo", word("other"), "as it was recorded|not other"),
        (
            "exclude_hosts",
            "grantResource",
            "appInfo",
            word("other"),
            "as it was recorded|not other",
        ),
        ("node_locality", "grantResource", "port", number(1), "as it was recorded|is at"),
        (
            "fifo",
            "grantResource",
            "id",
            number(777),
            "as it was recorded|request 777 was never made",
        ),
        ("grants", "grantResource", "id", number(1), "as it was recorded|granted already"),
        (
            "preemption",
            "revokeResource",
            "id",
            number(777),
            "revokeResource|as it was recorded|holds nothing for request 777",
        ),
        (
            "preemption",
            "revokeResource",
            "nodeName",
            word("n99"),
            "revokeResource|as it was recorded|holds another grant",
        ),
        ("dead_node", "processDeadNode", "node", word("n7"), "dead node n1|recorded: not sent"),
        ("session_expiry", "sessionHeartbeat", "handle", word("9.9"), "sessionHeartbeat|9.9"),
    ] {
        let mut conversations = recorded(name);
        falsify(&mut conversations, |message| {
            if message.name == method {
                set(message.body.as_mut().unwrap(), field, &to);
            }
        });
        let report = play_dry(&conversations, &scenario(name), honest(), |_| {});
        all.extend(missed(&format!("{name}: {method}.{field}"), words, &report));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// A proxy that changes the answers of one method.
fn answers(method: &'static str, mut change: impl FnMut(&mut Message) + 'static) -> Proxy {
    let answer = move |message: &mut Message| {
        if message.name == method {
            change(message);
        }
    };
    (Box::new(answer), honest().1)
}

/// A proxy that changes notifications, and delays them.
fn notices(change: impl FnMut(&mut SessionDriverCall) -> Duration + 'static) -> Proxy {
    (honest().0, Box::new(change))
}

/// A proxy that changes grants.
fn grants(change: impl Fn(&mut Vec<ResourceGrant>) + 'static) -> Proxy {
    notices(move |call| {
        if let SessionDriverCall::GrantResource { granted: Some(granted), .. } = call {
            change(granted);
        }
        Duration::ZERO
    })
}

/// A proxy that changes revocations.
fn revocations(change: impl Fn(&mut Vec<ResourceGrant>) + 'static) -> Proxy {
    notices(move |call| {
        if let SessionDriverCall::RevokeResource { revoked: Some(revoked), .. } = call {
            change(revoked);
        }
        Duration::ZERO
    })
}

/// A proxy that delays the notifications that `is_it` picks.
fn late(ms: u64, is_it: impl Fn(&SessionDriverCall) -> bool + 'static) -> Proxy {
    notices(move |call| if is_it(call) { Duration::from_millis(ms) } else { Duration::ZERO })
}

#[test]
fn deviations_planted_in_answers_and_notifications_are_found() {
    use SessionDriverCall as Call;
    let field = |name: &'static str, to: Value| {
        move |message: &mut Message| set(message.body.as_mut().unwrap(), name, &to)
    };
    let is_grant = |call: &Call| matches!(call, Call::GrantResource { .. });
    let mut all = Vec::new();
    let is_revocation = |call: &Call| matches!(call, Call::RevokeResource { .. });
    let is_death = |call: &Call| matches!(call, Call::ProcessDeadNode { .. });
    let table: Vec<(&str, &str, Proxy)> = vec![
        (
            "grants",
            "nodeHeartbeat",
            answers("nodeHeartbeat", field("restartFlag", Value::Bool(true))),
        ),
        (
            "session_lifecycle",
            "getSessionInfo|eve",
            answers("getSessionInfo", field("userId", word("eve"))),
        ),
        (
            "session_lifecycle",
            "getSessions|eve",
            answers("getSessions", field("userId", word("eve"))),
        ),
        (
            "session_lifecycle",
            "sessionEnd|seq=99",
            answers("sessionEnd", |message| message.seqid = 99),
        ),
        (
            "session_lifecycle",
            "sessionStart|http://x",
            answers("sessionStart", field("url", word("http://x"))),
        ),
        (
            "grants",
            "releaseResource",
            answers("releaseResource", |message| message.name = "x".to_owned()),
        ),
        (
            "grants",
            "releaseResource|EXCEPTION",
            answers("releaseResource", |message| {
                message.kind = MessageKind::Exception;
                message.body = Ok(Value::Struct(vec![("type", Value::I32(6))]));
            }),
        ),
        ("grants", "request 777 was never made", grants(|all| all[0].id = 777)),
        ("grants", "no node n99", grants(|all| all[0].node_name = "n99".to_owned())),
        ("grants", "with appInfo", grants(|all| all[0].app_info = Some("other".to_owned()))),
        ("grants", "is at", grants(|all| all[0].address.port = 1)),
        ("grants", "the time of the grant is", grants(|all| all[0].granted_time = 5)),
        ("grants", "granted already", grants(|all| all.push(all[0].clone()))),
        ("fifo", "MAP grants to session", grants(|all| all.reverse())),
        ("fair_two_pools", "MAP grants to session", grants(|all| drop(all.pop()))),
        (
            "preemption",
            "force is set",
            notices(|call| {
                if let Call::RevokeResource { force, .. } = call {
                    *force = true;
                }
                Duration::ZERO
            }),
        ),
        ("preemption", "MAP revocations", revocations(|all| drop(all.pop()))),
        ("preemption", "holds nothing for request 777", revocations(|all| all[0].id = 777)),
        (
            "dead_node",
            "dead node n1|live:     not sent",
            notices(|call| {
                if let Call::ProcessDeadNode { node, .. } = call {
                    *node = Some("n9".to_owned());
                }
                Duration::ZERO
            }),
        ),
        // Times.
        ("grants", "the time from a request|median 1500 ms", late(1_500, is_grant)),
        ("fifo", "the time from a request", late(900, is_grant)),
        ("node_locality", "preferred host|nodeLocalityWaitMAP", late(700, is_grant)),
        ("locality_wait", "another host|4000 ms", late(2_000, is_grant)),
        ("min_and_max", "the time from a request|weights", late(2_000, is_grant)),
        ("dead_node", "death|cm.node.expiryinterval", late(3_000, is_death)),
        ("preemption", "to a revocation|starvingTimeForMinimum", late(5_000, is_revocation)),
    ];
    for (name, words, proxy) in table {
        let report = play_dry(&recorded(name), &scenario(name), proxy, |_| {});
        all.extend(missed(name, words, &report));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn deviations_planted_in_settings_are_found() {
    const NODE_WAIT: &str = "<nodeLocalityWaitMAP>2000<";
    const RACK_WAIT: &str = "<rackLocalityWaitMAP>1000<";
    const FOUR: &str = "\"4\":{\"MAP\":4,\"REDUCE\":2,\"JOBTRACKER\":1}";
    let mut all = Vec::new();
    for (name, file, from, to, words) in [
        (
            "locality_wait",
            "corona.xml",
            NODE_WAIT,
            "<nodeLocalityWaitMAP>0<",
            "another host|nodeLocalityWaitMAP",
        ),
        (
            "locality_wait",
            "corona.xml",
            RACK_WAIT,
            "<rackLocalityWaitMAP>0<",
            "another host|rackLocalityWaitMAP",
        ),
        ("locality_wait", "corona.xml", NODE_WAIT, "<nodeLocalityWaitMAP>4000<", "another host"),
        ("dead_node", "core-site.xml", "<value>2000<", "<value>9000<", "dead node n1"),
        ("dead_node", "core-site.xml", "<value>2000<", "<value>200<", "cm.node.expiryinterval"),
        ("session_expiry", "core-site.xml", "<value>2000<", "<value>300<", "session"),
        ("session_expiry", "core-site.xml", "<value>2000<", "<value>90000<", "session"),
        ("fifo", "pools.xml", "FIFO", "FAIR", "MAP grants"),
        ("fair_two_pools", "pools.xml", "2.0", "9.0", "MAP grants"),
        ("min_and_max", "pools.xml", "<maxMAP>5", "<maxMAP>2", "MAP grants"),
        ("min_and_max", "pools.xml", "<minMAP>20", "<minMAP>1", "MAP grants"),
        (
            "preemption",
            "pools.xml",
            "<pool name=\"hog\"/>",
            "<pool name=\"hog\"><preemptable>false</preemptable></pool>",
            "MAP revocations",
        ),
        ("preemption", "pools.xml", "<minMAP>3", "<minMAP>0", "MAP revocations"),
        (
            "grants",
            "core-site.xml",
            FOUR,
            "\"4\":{\"MAP\":1,\"REDUCE\":2,\"JOBTRACKER\":1}",
            "MAP grants",
        ),
        ("strict_pools", "pools.xml", "known", "other", "known"),
    ] {
        let directory = configured(name, &[(file, from, to)]);
        // Whether the tolerances follow from the changed settings or from the recorded ones.
        let changed = play_dry(&recorded(name), directory.path(), honest(), |_| {});
        all.extend(missed(&format!("{name}: {to}"), words, &changed));
        let at_target = play_dry(&recorded(name), directory.path(), honest(), |options| {
            *options = options_of(&scenario(name));
        });
        all.extend(missed(&format!("{name}: {to} at a target"), words, &at_target));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_setting_that_changes_no_recorded_decision_agrees() {
    // The share of the pool is 3.99 slots of 8 with either minimum.
    let directory = configured("preemption", &[("pools.xml", "<minMAP>3", "<minMAP>1")]);
    let report = play_dry(&recorded("preemption"), directory.path(), honest(), |_| {});
    assert!(report.agrees(), "{report}");
}

/// A recording in which everything from the first revocation on comes later, as if the pool had
/// starved before.
fn starved(conversations: &mut [Conversation], by: Duration) {
    let parts = conversations.iter().filter(|one| one.service == Offered::SessionDriver);
    let revoked =
        parts.flat_map(|one| one.messages()).filter(|(_, said)| said.name == "revokeResource");
    let first = revoked.map(|(part, _)| part.at).min().unwrap();
    for one in conversations {
        one.opened_at += if one.opened_at >= first { by } else { Duration::ZERO };
        for part in one.parts.iter_mut().filter(|part| part.at >= first) {
            part.at += by;
        }
    }
}

#[test]
fn a_starving_time_that_is_too_short_is_found() {
    let mut conversations = recorded("preemption");
    starved(&mut conversations, Duration::from_millis(1_690));
    let play = |directory: &Path| play_dry(&conversations, directory, honest(), |_| {});
    let honest = play(&scenario("preemption"));
    assert!(honest.agrees() && honest.times.compared() >= 14, "{honest}");
    let from = "<starvingTimeForMinimum>1500<";
    let to = "<starvingTimeForMinimum>1<";
    let directory = configured("preemption", &[("corona.xml", from, to)]);
    let words = "to a revocation|starvingTimeForMinimum";
    assert_eq!(missed("starving time of 1 ms", words, &play(directory.path())), None);
}

#[test]
fn times_are_compared_only_where_pauses_are_played() {
    let (conversations, directory) = (recorded("locality_wait"), scenario("locality_wait"));
    let report = play_dry(&conversations, &directory, honest(), |options| options.speed = 4.0);
    assert_eq!(report.times.compared(), 0);
    assert!(report.not_compared.iter().any(|what| what.starts_with("Times: ")), "{report}");
}

#[test]
fn a_replay_that_is_ended_or_meets_silence_reports_what_it_has() {
    let (conversations, directory) = (recorded("grants"), scenario("grants"));
    let mute = || answers("requestResource", |message| message.name = "x".to_owned());
    let stop = watch::Sender::new(Some("SIGTERM".to_owned()));
    let stopped = Some(stop.subscribe());
    let ended = play_dry(&conversations, &directory, honest(), |options| options.stop = stopped);
    let early = ended.ended.as_ref().unwrap();
    assert!(
        early.why.contains("SIGTERM") && !ended.agrees() && ended.different.is_empty(),
        "{ended}"
    );
    let lost = late(60_000, |_| true);
    let silent = play_dry(&conversations, &directory, lost, |options| {
        options.silence = Duration::from_secs(5);
    });
    assert!(silent.ended.as_ref().unwrap().why.contains("did not come"), "{silent}");
    assert!(!play_dry(&conversations, &directory, mute(), |_| {}).agrees());
}
