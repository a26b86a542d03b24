//! Reports of replays and shadows, byte for byte as `fixtures/reports` has them: programs read the
//! JSON, and people compare reports of different versions.

use std::path::PathBuf;
use std::time::Duration;

use crate::replay::{self, Counts, EarlierPlay, Ended, Notices, Report, Stalls};
use crate::report::times::{Interval, Pair, Times, Tolerance};
use crate::report::{FieldPair, Fields, Finding, Rule, Subject};
use crate::shadow::stats::{Near, Resync, Stats};
use crate::shadow::{html, json, text};

fn check(name: &str, written: &str) {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let path = root.join("fixtures/reports").join(name);
    let written = written.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let expected = std::fs::read_to_string(&path).unwrap();
    for (number, (expected, written)) in expected.lines().zip(written.lines()).enumerate() {
        assert_eq!(expected, written, "line {} of {name}", number + 1);
    }
    assert_eq!(expected, written, "{name}");
}

/// A text for a terminal of so many columns.
fn check_text(name: &str, written: &str, width: usize) {
    assert!(written.lines().all(|line| line.chars().count() <= width), "{name}");
    check(name, written);
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap())
}

fn pair(path: &str, recorded: Option<&str>, live: Option<&str>) -> FieldPair {
    let [recorded, live] = [recorded, live].map(|side| side.map(str::to_owned));
    FieldPair { path: path.to_owned(), recorded, live }
}

/// Findings of every kind, with and without fields, arguments and a row.
fn findings() -> Vec<Finding> {
    let finding = |at_ms, about, place: &str, rule| {
        let long = "words of one side, which are more than fit on a line of a terminal; ".repeat(3);
        let both = (long.trim_end().to_owned(), "<b>the other\u{1b}[2J".to_owned());
        let found = Finding::of_words(Duration::from_millis(at_ms), about, place.to_owned(), both);
        Finding { rule, ..found }
    };
    let call = |method: &str| Subject::Call(method.to_owned());
    let with_fields = Finding {
        arguments: "handle: \"202611210043.1\", requestList: [{id: 1}, {id: 2}]".to_owned(),
        fields: Fields {
            pairs: vec![
                pair("success.name", Some("\"same\""), Some("\"same\"")),
                pair("success[202611210043.1].userId", Some("\"u\""), Some("\"<eve>\"")),
                pair("success.deadline", None, Some("7")),
                pair("success.priority", Some("NORMAL"), None),
            ],
            left_out: 3,
        },
        ..finding(1_500, call("getSessions"), "getSessions 42 on connection 3", None)
    };
    let mut wide = with_fields.clone();
    wide.fields.pairs.push(pair("success.url", Some(&"u".repeat(150)), Some("\"\"")));
    wide.rule = Some(Rule::PROMPT_GRANTS);
    vec![
        with_fields,
        wide,
        finding(2_000, call("releaseResource"), "releaseResource 9 on connection 4", None),
        finding(2_250, Subject::Notice, "MAP grants to session 202611210043.1", None),
        finding(2_500, Subject::Notice, "MAP grants to session 2", Some(Rule::FREE_NODE)),
        finding(2_600, Subject::Notice, "MAP grants to session 3", Some(Rule::FREE_NODE)),
        finding(3_000, Subject::Run, "connection 7, at the end", None),
        finding(3_250, call("sessionHeartbeat"), "sessionHeartbeat 3", Some(Rule::PROMPT_EXPIRY)),
    ]
}

/// Two kinds of times, one of which differs.
fn times() -> Times {
    let mut times = Times::new(Tolerance::default());
    for (kind, recorded, live) in
        [(Interval::GrantAnywhere, 3, 4), (Interval::GrantElsewhere, 2_001, 7)]
    {
        let [recorded, live] = [recorded, live].map(Duration::from_millis);
        times.add(kind, Pair { at: recorded, place: "request 7".to_owned(), recorded, live });
    }
    times
}

fn replayed() -> Report {
    let held_up = Stalls {
        pauses: 2,
        longest: Duration::from_millis(70),
        total: Duration::from_millis(130),
        late_answers: 1,
        latest_answer: Duration::from_millis(80),
        manager: Duration::from_millis(300),
    };
    let (explained, different) = findings().into_iter().partition(|found| found.rule.is_some());
    let counts =
        |equal, explained, different| Counts { equal, explained, different, ..Counts::default() };
    Report {
        name: "monday.corec".to_owned(),
        target: "corona 1.2.3".to_owned(),
        speed: 2.5,
        recorded_for: Duration::from_millis(12_345),
        calls: counts(1_000, 2, 3),
        by_method: [
            ("getSessions", counts(0, 1, 1)),
            ("nodeHeartbeat", counts(1_000, 0, 0)),
            ("releaseResource", counts(0, 0, 1)),
            ("sessionHeartbeatWithALongName", counts(0, 1, 1)),
        ]
        .map(|(method, counts)| (method.to_owned(), counts))
        .into(),
        calls_left_out: 5,
        notices: Notices {
            recorded: 12,
            live: 11,
            explained: 2,
            different: 1,
            exact: 7,
            free: 2,
            not_compared: 1,
            grants_exact: 6,
            grants_free: 2,
        },
        times: times(),
        in_flight: 2,
        ended: Some(Ended {
            at: Duration::from_millis(9_000),
            why: "it was ended by SIGTERM".to_owned(),
        }),
        explained,
        different,
        left_out: 4,
        stalls: held_up,
        earlier: vec![EarlierPlay { different: 5, stalls: held_up }],
        not_compared: vec!["Notices: the recording does not have them, ".repeat(4), "<i>".into()],
    }
}

#[test]
fn reports_of_replays_stay_as_they_are() {
    let plain = Report {
        name: "monday.corec".to_owned(),
        speed: f64::INFINITY,
        calls: Counts { equal: 7, ..Counts::default() },
        ..Report::default()
    };
    for (name, report) in [("replay", replayed()), ("replay-agrees", plain)] {
        check_text(&format!("{name}.txt"), &replay::text(&report, 80, false), 80);
        check(&format!("{name}-full.txt"), &replay::text(&report, 60, true));
        check(&format!("{name}-display.txt"), &report.to_string());
        let json = serde_json::to_value(replay::json(&report)).unwrap();
        check(&format!("{name}.json"), &pretty(&json));
        check(&format!("{name}.html"), &replay::html(&report));
    }
}

fn shadowed() -> Stats {
    let tally = |equal, explained, different, not_compared| Counts {
        equal,
        explained,
        different,
        not_compared,
    };
    let (explained, different) = findings().into_iter().partition(|found| found.rule.is_some());
    let mut stats = Stats::new("cm.example.com:9090");
    stats.calls = [
        ("getSessions", tally(0, 1, 1, 2)),
        ("nodeHeartbeat", tally(1_000, 0, 0, 0)),
        ("<method>", tally(0, 1, 1, 1)),
    ]
    .map(|(method, tally)| (method.to_owned(), tally))
    .into();
    stats.notices =
        [("grantResource", tally(12, 2, 300, 1)), ("processDeadNode", tally(1, 0, 0, 0))].into();
    stats.reasons = [
        ("calls of sessions whose start was not seen, which is a longer reason than most", 3),
        ("decisions about slots that were given back meanwhile", 1),
    ]
    .into();
    stats.rows = [(Rule::FREE_NODE, 2), (Rule::PROMPT_EXPIRY, 1), (Rule::PROMPT_GRANTS, 1)].into();
    stats.near = Near { of: 10, primary: 8, ours: 9 };
    for (kind, recorded, live) in [
        (Interval::GrantElsewhere, 2_003, 1),
        (Interval::GrantAnywhere, 1_100, 2),
        (Interval::Revocation, 4_000, 4_100),
    ] {
        let place = "request 3 of session 1.1".to_owned();
        let [recorded, live] = [recorded, live].map(Duration::from_millis);
        stats.times.add(kind, Pair { at: Duration::from_millis(2_500), place, recorded, live });
    }
    stats.judge_times();
    stats.sessions = 4;
    stats.unfollowed = 2;
    stats.waiting = 3;
    stats.lag = Duration::from_millis(7);
    stats.worst_lag = Duration::from_millis(1_234);
    stats.beginnings = 12;
    stats.last_beginnings = vec![
        Resync { at: Duration::from_secs(65), why: "the primary is in <safe> mode".into() },
        Resync { at: Duration::from_secs(90_061), why: "a reason of words ".repeat(8) },
    ];
    stats.explained = explained;
    stats.different = different;
    stats
}

#[test]
fn reports_of_shadows_stay_as_they_are() {
    let mut plain = Stats::new("cm:9090");
    plain.call("nodeHeartbeat").equal = 7;
    for (name, stats) in
        [("shadow", shadowed()), ("shadow-agrees", plain), ("shadow-empty", Stats::new("cm"))]
    {
        check_text(&format!("{name}.txt"), &text(&stats, 80), 80);
        check_text(&format!("{name}-wide.txt"), &text(&stats, 120), 120);
        let mut json = serde_json::to_value(json(&stats)).unwrap();
        // When it began, and how long it has run, are those of this test.
        for time in ["began_ms", "ran_for_us"] {
            assert!(json[time].take().is_u64(), "{time}");
        }
        check(&format!("{name}.json"), &pretty(&json));
        check(&format!("{name}.html"), &html(&stats, None));
        let refreshed = html(&stats, Some(Duration::from_secs(5)));
        check(&format!("{name}-refreshed.html"), &refreshed);
        let metrics = crate::shadow::metrics::metrics(&stats);
        // After them come those of the process.
        let own = metrics.lines().filter(|line| line.starts_with("corona_shadow"));
        let own: Vec<&str> = own.collect();
        check(&format!("{name}.prom"), &format!("{}\n", own.join("\n")));
    }
}
