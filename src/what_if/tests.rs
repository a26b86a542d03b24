//! Planted questions with known answers, and the way from a recording to its report.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use corona_conformance::capture::Limits;
use corona_conformance::conversation::Ports;
use corona_engine::{Engine, Input, testing};
use corona_mapreduce::history_reader::Records;
use corona_mapreduce::{JobHistory, JobSettings, TaskDemand};
use corona_model::form::Later;
use corona_model::queues::Part;
use corona_model::resources::{ReserveAfter, Resources};
use corona_model::settings::{PoolSettings, Settings};
use corona_model::types::{ComputeSpecs, Millis, PoolName, ResourceType, SessionStatus};

use crate::job_histories::{Configured, JobHistories};
use crate::journaled::Journaled;
use crate::report::{Report, html};
use crate::{
    LackResult, Node, Reading, Run, Session, Setting, Task, Workload, change, file, simulate,
    suggest, swf,
};

const MAP: ResourceType = ResourceType::Map;
const REDUCE: ResourceType = ResourceType::Reduce;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// One slot of each type for each CPU, and grants without a wait for locality.
fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = corona_engine::testing::settings();
    change(&mut settings);
    settings
}

fn pool(settings: &mut Settings, name: &str, change: impl FnOnce(&mut PoolSettings)) {
    let (group, pool) = name.split_once('.').unwrap();
    change(settings.pools.pools.entry(PoolName::new(group, pool)).or_default());
}

fn nodes(count: usize, cpus: i16) -> Vec<Node> {
    let node = |number: usize| {
        let name = format!("n{number}");
        Node { name: name.as_str().into(), host: name.into(), cpus, ..Node::default() }
    };
    (1..=count).map(node).collect()
}

fn session(id: &str, pool: &str, at_s: i64, tasks: Vec<Task>) -> Session {
    Session {
        id: id.into(),
        name: id.into(),
        user: "ann".into(),
        pool: Some(crate::workload::pool_of(pool)),
        at_ms: at_s * 1_000,
        tasks,
        ..Session::default()
    }
}

fn maps(count: usize, seconds: i64) -> Vec<Task> {
    vec![Task::new(MAP, seconds * 1_000); count]
}

fn workload(nodes: Vec<Node>, sessions: Vec<Session>) -> Workload {
    let until_ms = sessions.iter().map(|session| session.at_ms).max().unwrap_or(0) + 60_000;
    Workload { name: "planted".to_owned(), until_ms, nodes, sessions, ..Workload::default() }
}

fn run(workload: &Workload, settings: Settings) -> Run {
    simulate(workload, &Setting { name: "run".to_owned(), settings }, &mut |_| true)
}

fn waits(run: &Run, pool: &str) -> crate::Spread {
    run.pools.iter().find(|one| one.name == pool).map(|one| one.waits).unwrap_or_default()
}

#[test]
fn a_pool_with_half_the_guarantee_waits_twice_as_long() {
    let workload = workload(
        nodes(4, 4),
        vec![
            session("hog", "g.hog", 0, maps(4_000, 10)),
            session("poor", "g.poor", 0, maps(400, 10)),
        ],
    );
    let with = |guarantee| {
        settings(|settings| {
            pool(settings, "g.hog", |pool| pool.weight = 1e6);
            pool(settings, "g.poor", |pool| pool.minimum[MAP] = guarantee);
        })
    };
    let [whole, half] = [8, 4].map(|guarantee| waits(&run(&workload, with(guarantee)), "g.poor"));
    let ratio = half.mean_ms / whole.mean_ms;
    assert!((1.95..2.1).contains(&ratio), "{whole:?} {half:?}");
    assert_eq!((whole.longest_ms, half.longest_ms), (490_000, 990_000));
}

#[test]
fn a_third_more_nodes_remove_the_wait() {
    let sessions =
        (0..30).map(|minute| session(&format!("s{minute}"), "g.p", minute * 60, maps(16, 50)));
    let workload = workload(nodes(12, 1), sessions.collect());
    let before = run(&workload, settings(|_| ()));
    assert!(waits(&before, "g.p").p95_ms > 30_000, "{:?}", before.cluster);
    let mut more = workload.clone();
    change::resize(&mut more, 16);
    let after = run(&more, settings(|_| ()));
    assert_eq!(waits(&after, "g.p").longest_ms, 0);
    assert!(after.cluster.types.iter().all(|of| of.free_while_waiting == 0.0));
    let mut fewer = workload;
    change::resize(&mut fewer, 6);
    assert!(waits(&run(&fewer, settings(|_| ())), "g.p").p95_ms > 600_000);
}

#[test]
fn a_fence_stops_preemption() {
    let workload = workload(
        nodes(1, 8),
        vec![session("hog", "g.hog", 0, maps(8, 600)), session("poor", "g.poor", 10, maps(3, 20))],
    );
    let with = |fenced: bool| {
        settings(|settings| {
            settings.scheduling.starving_time_for_minimum_ms = 30_000;
            settings.scheduling.preempted_task_max_running_time_ms = 600_000;
            pool(settings, "g.hog", |pool| pool.preemptable = !fenced);
            pool(settings, "g.poor", |pool| pool.minimum[MAP] = 3);
        })
    };
    let (open, fenced) = (run(&workload, with(false)), run(&workload, with(true)));
    assert_eq!((open.cluster.revoked, fenced.cluster.revoked), (3, 0));
    // The three had run since the beginning.
    let lost_ms = open.cluster.lost_ms;
    assert!((3 * 39_000..3 * 45_000).contains(&lost_ms), "{lost_ms}");
    assert!((29_000..36_000).contains(&waits(&open, "g.poor").longest_ms));
    assert_eq!(waits(&fenced, "g.poor").longest_ms, 590_000);
    assert_eq!((open.cluster.unfinished, fenced.cluster.unfinished), (0, 0));
}

#[test]
fn reduces_start_slowly_and_end_after_the_maps() {
    let reduce = Task { after: 2, delay_ms: 500, shuffles: true, ..Task::new(REDUCE, 7_000) };
    let late = Task { after: 4, ..Task::new(REDUCE, 1_000) };
    let tasks = [maps(4, 10), vec![reduce, late]].concat();
    let workload = workload(nodes(1, 2), vec![session("s", "g.p", 5, tasks)]);
    let run = run(&workload, settings(|_| ()));
    // Maps end at 15 s and 25 s, the reduce 7 s after the last one, though it was granted at 15.5 s.
    assert_eq!(run.sessions[0].ended_ms, Some(32_000));
    assert_eq!(waits(&run, "g.p").count, 6);
    // Two maps wait for two others.
    assert_eq!(run.sessions[0].waited_ms, 20_000);
}

#[test]
fn tasks_of_a_failed_node_run_again() {
    let mut workload = workload(nodes(2, 2), vec![session("s", "g.p", 0, maps(4, 100))]);
    change::fail(&mut workload, "n2", 60_000, Some(30_000)).unwrap();
    assert_eq!(change::fail(&mut workload, "n9", 0, None), Err("n9".to_owned()));
    let run = run(&workload, settings(|_| ()));
    assert_eq!((run.cluster.lost_with_nodes, run.cluster.lost_ms), (2, 120_000));
    // They start again when the node is back.
    assert_eq!(run.sessions[0].ended_ms, Some(190_000));
}

#[test]
fn a_larger_load_copies_sessions_evenly() {
    let sessions = (0..10).map(|at| session(&format!("s{at}"), "g.p", at * 10, maps(1, 1)));
    let whole = workload(nodes(1, 1), sessions.collect());
    for (factor, count) in [(0.5, 5), (1.0, 10), (1.3, 13), (2.0, 20)] {
        let mut workload = whole.clone();
        change::load(&mut workload, factor);
        let ids: BTreeSet<_> = workload.sessions.iter().map(|session| session.id.clone()).collect();
        assert_eq!((workload.sessions.len(), ids.len()), (count, count), "{factor}");
        assert_eq!(run(&workload, settings(|_| ())).cluster.unfinished, 0);
    }
}

#[test]
fn sessions_that_follow_one_another_are_copied_or_left_out_together() {
    let sessions = (0..12).map(|number| {
        let follows = (number % 3 != 0).then(|| (number - 1, 5_000));
        Session { follows, ..session(&format!("s{number}"), "g.p", i64::from(number), maps(1, 1)) }
    });
    let whole = workload(nodes(1, 1), sessions.collect());
    for (factor, chains) in [(0.5, 2), (1.5, 6), (3.0, 12)] {
        let mut workload = whole.clone();
        change::load(&mut workload, factor);
        assert_eq!(workload.sessions.len(), chains * 3, "{factor}");
        let first = workload.sessions.iter().filter(|session| session.follows.is_none());
        assert_eq!(first.count(), chains, "{factor}");
        for session in &workload.sessions {
            let Some((of, _)) = session.follows else { continue };
            // s4+1 follows s3+1.
            let number =
                |id: &str| id.trim_start_matches('s').replace('+', ".").parse::<f64>().unwrap();
            let before = &workload.sessions[of as usize].id;
            assert!((number(&session.id) - number(before) - 1.0).abs() < 1e-9, "{}", session.id);
        }
    }
}

/// Tasks that name so much memory.
fn large(count: usize, seconds: i64, memory_mb: i32) -> Vec<Task> {
    let takes = ComputeSpecs { num_cpus: 1, memory_mb: Some(memory_mb), ..ComputeSpecs::default() };
    vec![Task { takes: Some(takes), ..Task::new(MAP, seconds * 1_000) }; count]
}

fn counting(change: impl FnOnce(&mut Resources)) -> Settings {
    settings(|settings| {
        (settings.reserved_memory_mb, settings.reserved_disk_gb) = (0, 0);
        settings.resources.0.counted = [true, true, false, false];
        change(&mut settings.resources.0);
    })
}

fn with_memory(mut nodes: Vec<Node>, memory_mb: i32) -> Vec<Node> {
    nodes.iter_mut().for_each(|node| node.memory_mb = Some(memory_mb));
    nodes
}

#[test]
fn where_memory_counts_it_limits_what_runs_and_the_report_says_so() {
    // Of 4 CPUs and 8 GB on each of two nodes, tasks with 3 GB use 2 at a time.
    let of = |memory_mb| {
        let sessions = vec![session("s", "g.p", 0, large(16, 60, 3_072))];
        let mut whole = workload(with_memory(nodes(2, 4), memory_mb), sessions);
        whole.until_ms = 240_000;
        whole
    };
    let counted = run(&of(8_192), counting(|_| ()));
    assert_eq!(counted.sessions[0].ended_ms, Some(240_000));
    let [cpus, memory] = &counted.cluster.resources[..] else { panic!("{counted:?}") };
    assert_eq!((cpus.all, memory.all), (8, 16_384));
    assert!((cpus.used - 0.5).abs() < 1e-9 && (memory.used - 0.75).abs() < 1e-9, "{counted:?}");
    // While others wait, 2 GB and 2 CPUs are left on each node, and no request fits there.
    assert!((memory.largest - 2_048.0).abs() < 1.0 && memory.too_small == 1.0, "{memory:?}");
    assert_eq!(counted.cluster.lacks, [LackResult { of: "memory", share: 1.0 }]);
    assert_eq!(counted.pools[0].lacks, counted.cluster.lacks);
    // 16 tasks of 3 GB for a minute.
    assert!((counted.pools[0].resource_hours["memory"] - 16.0 * 3_072.0 / 60.0).abs() < 1e-6);
    // With enough memory, or where it is given out twice, CPUs are what is missing.
    let twice = run(&of(8_192), counting(|resources| resources.overcommit[1] = Part(20_000)));
    for run in [run(&of(16_384), counting(|_| ())), twice] {
        assert_eq!(run.sessions[0].ended_ms, Some(120_000));
        // Of slots and CPUs there are as many.
        assert_eq!(run.cluster.lacks, [LackResult { of: "several", share: 1.0 }]);
    }
    // What nodes must keep is not given out.
    let mut keeps = counting(|_| ());
    keeps.reserved_memory_mb = 4_096;
    assert_eq!(run(&of(8_192), keeps).sessions[0].ended_ms, Some(480_000));
    // Slots alone know no memory.
    let slots = run(&of(8_192), settings(|_| ()));
    assert_eq!(slots.sessions[0].ended_ms, Some(120_000));
    assert!(slots.cluster.resources.is_empty() && slots.cluster.reservations.is_none());
}

#[test]
fn unknown_amounts_of_nodes_are_assumed_and_said() {
    let sessions = vec![session("s", "g.p", 0, large(8, 60, 3_072))];
    let unknown = workload(nodes(2, 4), sessions);
    let of = |whole: &Workload| {
        let run = run(whole, counting(|_| ()));
        let names: Vec<&str> = run.cluster.resources.iter().map(|of| of.resource.name()).collect();
        (run.sessions[0].ended_ms, names.join(","), run.assumptions)
    };
    let (ended_ms, names, assumptions) = of(&unknown);
    assert_eq!((ended_ms, &*names), (Some(60_000), "cpus"));
    assert!(assumptions[0].contains("does not limit what runs there"), "{assumptions:?}");
    let mut one = unknown;
    one.nodes[0].memory_mb = Some(8_192);
    let (ended_ms, names, assumptions) = of(&one);
    assert_eq!((ended_ms, &*names), (Some(120_000), "cpus,memory"));
    assert!(
        assumptions[0].contains("Of 1 nodes it is not known how much memory"),
        "{assumptions:?}"
    );
}

#[test]
fn reservations_and_room_that_is_made_are_counted() {
    // Tasks end one after the other, so that never enough is free at a time.
    let small = (0..400).flat_map(|number| large(1, 20 + number * 7 % 23, 1_000));
    let whole = workload(
        with_memory(nodes(2, 10), 10_000),
        vec![
            session("s", "g.small", 0, small.collect()),
            session("l", "g.large", 60, large(2, 30, 6_000)),
        ],
    );
    let reserving = counting(|resources| resources.reservation = Later(ReserveAfter(20_000)));
    let reserved = run(&whole, reserving);
    let kept = reserved.cluster.reservations.unwrap();
    assert!(kept.made > 0 && kept.served > 0 && kept.rooms == 0, "{kept:?}");
    let mut preempting = counting(|_| ());
    preempting.scheduling.starving_time_for_minimum_ms = 10_000;
    preempting.scheduling.preempted_task_max_running_time_ms = 600_000;
    pool(&mut preempting, "g.large", |pool| pool.minimum[MAP] = 2);
    let preempted = run(&whole, preempting);
    let kept = preempted.cluster.reservations.unwrap();
    assert!(kept.made == 0 && kept.rooms > 0, "{kept:?}");
    assert!(
        preempted.cluster.revoked >= 6 && preempted.cluster.lost_ms > 0,
        "{:?}",
        preempted.cluster
    );
    let never = run(&whole, counting(|_| ()));
    let [reserved, preempted, never] =
        [&reserved, &preempted, &never].map(|run| waits(run, "g.large").longest_ms);
    assert!(preempted < reserved && reserved < never, "{preempted} {reserved} {never}");
}

#[test]
fn where_slots_count_a_request_takes_as_many_as_it_names_cpus() {
    let takes = ComputeSpecs { num_cpus: 4, ..ComputeSpecs::default() };
    let wide = vec![Task { takes: Some(takes), ..Task::new(MAP, 60_000) }; 4];
    let mut whole = workload(nodes(2, 4), vec![session("s", "g.p", 0, wide)]);
    whole.until_ms = 120_000;
    let run = run(&whole, settings(|_| ()));
    assert_eq!((run.sessions[0].ended_ms, run.pools[0].used_ms), (Some(120_000), 16 * 60_000));
    assert!((run.cluster.types[0].used - 1.0).abs() < 1e-9, "{:?}", run.cluster.types);
}

#[test]
fn drained_nodes_finish_what_they_have_and_get_no_more() {
    let mut whole = workload(nodes(2, 1), vec![session("s", "g.p", 0, maps(6, 10))]);
    whole.nodes[1].drained = vec![(5_000, 35_000)];
    // The first runs four, the second one the first and, from 35 s on, the last.
    let run = run(&whole, settings(|_| ()));
    assert_eq!((run.sessions[0].ended_ms, run.cluster.lost_with_nodes), (Some(45_000), 0));
}

/// A pool with much work, and another one with little.
fn hog_and_poor() -> Workload {
    let mut sessions = vec![session("hog", "g.hog", 0, maps(4_000, 10))];
    sessions.extend((0..10).map(|at| session(&format!("s{at}"), "g.poor", at * 60, maps(40, 10))));
    workload(nodes(10, 4), sessions)
}

#[test]
fn a_search_finds_the_smallest_change_that_reaches_the_goal() {
    let workload = hog_and_poor();
    let present = settings(|settings| {
        pool(settings, "g.hog", |pool| pool.weight = 1e6);
        pool(settings, "g.poor", |_| ());
    });
    let base = run(&workload, present.clone());
    let search = |goal: &str, most| {
        let goals = [goal.parse().unwrap()];
        let knobs = suggest::usual_knobs(&workload, &base, &goals);
        let named: Vec<String> = knobs.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["min:g.poor", "weight:g.poor"]);
        suggest::suggest(&present, &base, (&goals, &knobs), most, &mut |all| {
            all.into_iter().map(|settings| run(&workload, settings)).collect()
        })
    };
    let found = search("p95 of g.po* < 60s", 60);
    let best = &found.trials[found.best];
    // 40 maps of 10 s each minute need 7 slots; of 2, 4, 8, ... slots of 40 that is 8.
    assert!(!found.trials[0].reached && best.reached, "{found:?}");
    assert_eq!(best.changes.len(), 1, "{best:?}");
    assert!(best.changes[0].contains("g.poor: minMAP 8 instead of 0"), "{best:?}");
    assert!(best.others > 0.0 && !found.exhausted, "{best:?}");
    let short = search("p95 of g.po* < 60s", 3);
    assert_eq!((short.trials.len(), short.exhausted), (4, true));
    // No slot is free at once where a hog holds all of them.
    let none = search("longest of g.poor < 1ms", 60);
    assert!(none.trials.iter().all(|trial| !trial.reached), "{none:?}");
    assert!(none.trials[none.best].missed < none.trials[0].missed);
}

#[test]
fn goals_and_knobs_are_read_as_they_are_written() {
    let goal: suggest::Goal = "p95 of ads.* < 60s".parse().unwrap();
    assert_eq!(goal.to_string(), "p95 of ads.* < 1 min 0 s");
    for (pattern, name, expected) in [
        ("ads.*", "ads.hourly", true),
        ("ads.*", "bads.hourly", false),
        ("*.hourly", "ads.hourly", true),
        ("*", "ads.hourly", true),
        ("a*.*ly", "ads.hourly", true),
        ("a*.*ly", "ads.daily2", false),
        ("ads.hourly", "ads.hourly", true),
        ("ads.hour", "ads.hourly", false),
    ] {
        let goal: suggest::Goal = format!("median of {pattern} < 5m").parse().unwrap();
        assert_eq!((goal.matches(name), goal.limit_ms), (expected, 300_000), "{pattern} {name}");
    }
    for wrong in [
        "",
        "p95",
        "p95 of ads.*",
        "p95 of < 1s",
        "p9 of a.b < 1s",
        "p95 of a.b < 0s",
        "p95 of a.b < 5",
    ] {
        assert!(wrong.parse::<suggest::Goal>().is_err(), "{wrong}");
    }
    for knob in ["min:a.b", "weight:a.b", "minRuntime:a.b", "nodeWait", "rackWait"] {
        assert_eq!(knob.parse::<suggest::Knob>().unwrap().to_string(), knob);
    }
    for wrong in ["min", "min:a", "min:.b", "nodeWait:a.b", "max:a.b"] {
        assert!(wrong.parse::<suggest::Knob>().is_err(), "{wrong}");
    }
}

#[test]
fn requests_that_nothing_can_serve_end_the_run_and_are_counted() {
    let task = Task { exclude: ["n1".into()].into(), ..Task::new(MAP, 1_000) };
    let sessions = vec![session("s", "g.p", 0, vec![task]), session("t", "g.p", 5, maps(2, 1))];
    let run = run(&workload(nodes(1, 1), sessions), settings(|_| ()));
    assert_eq!((run.cluster.unserved, run.cluster.unfinished), (1, 1));
    assert_eq!(run.sessions[1].ended_ms, Some(7_000));
}

#[test]
fn a_run_ends_when_it_is_asked_to() {
    let workload = workload(nodes(1, 1), vec![session("s", "g.p", 0, maps(40_000, 1))]);
    let setting = Setting { name: "run".to_owned(), settings: settings(|_| ()) };
    let mut asked = 0;
    let run = simulate(&workload, &setting, &mut |progress| {
        asked += 1;
        progress.ended == 0
    });
    assert!(run.stopped_at_ms.is_some() && asked <= 2, "{asked}");
}

/// The workload with the waits and times of a run as its recorded ones.
fn as_recorded(mut workload: Workload, settings: &Settings, distort: f64) -> Workload {
    let run = run(&workload, settings.clone());
    for (session, result) in workload.sessions.iter_mut().zip(&run.sessions) {
        session.recorded_ms = result.took_ms().map(|ms| (ms as f64 * distort) as i64);
        let each = result.waited_ms as i64 / session.tasks.len() as i64;
        for task in &mut session.tasks {
            task.waited_ms = Some((each as f64 * distort) as i64);
        }
    }
    workload
}

#[test]
fn the_check_finds_a_simulation_that_differs() {
    let sessions = (0..20).map(|at| session(&format!("s{at}"), "g.p", at * 10, maps(1, 30)));
    let plain = workload(nodes(1, 2), sessions.collect());
    let settings = settings(|_| ());
    for (distort, good) in [(1.0, true), (1.04, true), (1.2, false), (0.5, false)] {
        let workload = as_recorded(plain.clone(), &settings, distort);
        let reading = Reading { workload, left_out: Vec::new() };
        let base = run(&reading.workload, settings.clone());
        let report = Report::new(&reading, base, Vec::new(), Vec::new());
        assert_eq!(report.check.is_good(), good, "{distort}: {:?}", report.check);
        assert_eq!(report.check.tasks, 20);
        let page = html(&report);
        assert_eq!(page.contains("WARNING"), !good, "{distort}");
    }
    let unknown = Reading { workload: plain, left_out: Vec::new() };
    let base = run(&unknown.workload, settings);
    let report = Report::new(&unknown, base, Vec::new(), Vec::new());
    assert_eq!(report.check.error, None);
    assert!(!report.check.is_good());
}

#[test]
fn a_report_names_the_sessions_that_change_most() {
    let sessions = vec![
        session("small", "g.small", 30, maps(4, 10)),
        session("large", "g.large", 0, maps(40, 60)),
    ];
    let workload = workload(nodes(4, 1), sessions);
    let base = run(&workload, settings(|_| ()));
    let first = settings(|settings| {
        pool(settings, "g.small", |pool| pool.priority = 1);
        pool(settings, "g.large", |pool| pool.maximum[MAP] = 2);
    });
    let other = run(&workload, first);
    let reading = Reading { workload: workload.clone(), left_out: vec!["7 < 8".to_owned()] };
    let report = Report::new(&reading, base, vec![(&workload, other)], vec![]);
    let [comparison] = &report.comparisons[..] else { panic!("{report:?}") };
    assert_eq!((comparison.faster, comparison.slower), (1, 1), "{comparison:?}");
    assert_eq!(comparison.most_faster[0].id, "small");
    assert_eq!(comparison.most_slower[0].id, "large");
    let page = html(&report);
    assert!(page.contains("7 &lt; 8") && page.contains("<svg") && !page.contains("<script"));
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
}

#[test]
fn a_workload_is_the_same_after_it_was_written_and_read() {
    let mut second = session("t", "g.p", 7, maps(3, 5));
    second.follows = Some((0, 4_000));
    second.no_preempt = true;
    let hosts = Task {
        hosts: ["h1".into(), "h2".into()].into(),
        exclude: ["h3".into()].into(),
        away_ms: Some(9),
        waited_ms: Some(3),
        held_ms: Some(4),
        shuffles: true,
        after: 2,
        delay_ms: 1,
        ..Task::new(REDUCE, 8)
    };
    second.tasks.push(hosts);
    second.tasks.extend(large(2, 5, 3_000));
    let mut whole = workload(nodes(2, 3), vec![session("s", "g.p", 0, maps(2, 1)), second]);
    whole.nodes[1].rack = Some("/r1".into());
    whole.nodes[1].until_ms = Some(77);
    (whole.nodes[1].memory_mb, whole.nodes[1].network_mbps) = (Some(9_000), Some(7));
    whole.nodes[1].drained = vec![(3, 4)];
    whole.assume("It is assumed.");
    let mut written = Vec::new();
    file::write(&whole, &mut written).unwrap();
    let read = file::read(&written[..]).unwrap();
    assert_eq!(read, Reading { workload: whole.clone(), left_out: vec![] });

    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&written).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(file::read(&packed[..]).unwrap(), read);
    for cut in written.len() - 20..written.len() - 1 {
        let read = file::read(&written[..cut]).unwrap();
        assert_eq!(read.workload.sessions, whole.sessions[..1], "{cut}");
        assert_eq!(read.left_out, ["The file ends within line 5."]);
    }
    let cut = file::read(&packed[..packed.len() - 12]).unwrap();
    assert_eq!(cut.left_out.len(), 1, "{:?}", cut.left_out);
}

#[test]
fn wrong_workloads_are_refused_with_the_line() {
    const HEAD: &str = "{\"corona_workload\":1}\n";
    let session = |rest: &str| format!(r#"{{"session":{{"id":"s"{rest}}}}}"#);
    let task = |rest: &str| session(&format!(r#","tasks":[{{"type":"MAP",{rest}}}]"#));
    let node = |rest: &str| format!(r#"{{"node":{{"name":"n","host":"h",{rest}}}}}"#);
    for (lines, expected) in [
        (node(r#""cpus":0"#), "line 2: a node"),
        ("\n{\"job\":{}}".to_owned(), "unknown variant"),
        (session(r#","follows":["t",1]"#), "line 2: no session t stands before this one"),
        (format!("{0}\n{0}", session("")), "line 3: session s stands twice"),
        (task(r#""ms":-1"#), "line 2: the time -1 is not from 0"),
        (
            session(r#","at_ms":9223372036854775807"#),
            "line 2: the time 9223372036854775807 is not from 0",
        ),
        (node(r#""cpus":1,"memory_mb":0"#), "line 2: 0 is no amount of a resource"),
        (task(r#""ms":1,"cpus":-2"#), "line 2: -2 is no amount of a resource"),
        (task(r#""ms":1,"count":4000000000"#), "more than 20000000 tasks"),
    ] {
        let error = file::read(format!("{HEAD}{lines}\n").as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    for (text, expected) in [
        ("", "is no workload"),
        ("{\"x\":1}\n", "is no workload"),
        ("{\"corona_workload\":2}\n", "version 2"),
        ("{\"corona_workload\":1,\"until_ms\":-1}\n", "line 1: the time -1 is not from 0"),
    ] {
        let error = file::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let plain = task(r#""ms":1000,"count":3"#);
    let read = file::read(format!("{HEAD}{plain}\n").as_bytes()).unwrap().workload;
    assert_eq!(read.tasks(), 3);
}

#[test]
fn anonymous_workloads_name_nobody_and_behave_the_same() {
    let mut sessions = vec![session("secret1", "gold.mine", 0, maps(9, 5))];
    sessions.push(session("secret2", "gold.mine", 2, maps(3, 5)));
    sessions[0].tasks[0].hosts = ["n1".into()].into();
    let whole = workload(nodes(2, 2), sessions);
    let mut hidden = whole.clone();
    change::anonymise(&mut hidden);
    let mut written = Vec::new();
    file::write(&hidden, &mut written).unwrap();
    let text = String::from_utf8(written).unwrap();
    assert!(
        ["secret", "gold", "mine", "ann", "n1\""].iter().all(|name| !text.contains(name)),
        "{text}"
    );
    let [one, other] = [&whole, &hidden].map(|workload| run(workload, settings(|_| ())));
    assert_eq!(one.sessions, other.sessions);
    assert_eq!(hidden.sessions[0].tasks[0].hosts[0], hidden.nodes[0].host);
}

#[test]
fn a_trace_of_the_archive_becomes_sessions_with_maps() {
    let text = std::fs::read(fixtures().join("workloads/small.swf")).unwrap();
    assert!(swf::looks_like_one(&text));
    let Reading { workload, left_out } = swf::read("small.swf", &text[..]).unwrap();
    assert_eq!(left_out, ["1 jobs that never ran, or whose processors are not known."]);
    let cpus: Vec<i16> = workload.nodes.iter().map(|node| node.cpus).collect();
    assert_eq!(cpus, [2, 2, 2, 2]);
    assert_eq!((workload.began_ms, workload.until_ms), (1_100_000_000_000, 365_000));
    let sizes: Vec<usize> = workload.sessions.iter().map(|session| session.tasks.len()).collect();
    assert_eq!(sizes, [8, 4, 4, 2, 6, 1, 1]);
    // 4,096 KB for each processor.
    let memory = |session: usize| workload.sessions[session].tasks[0].takes?.memory_mb;
    assert_eq!((memory(0), memory(3)), (None, Some(4)));
    let last = &workload.sessions[6];
    assert_eq!((last.follows, &*last.user), (Some((5, 5_000)), "user3"));
    assert_eq!(last.pool, Some(PoolName::new("group2", "queue2")));
    let run = run(&workload, settings(|_| ()));
    // The first job has the machine for 100 s, the two behind it share it then.
    assert_eq!(waits(&run, "group1.queue1").longest_ms, 90_000);
    let reading = Reading { workload, left_out };
    let report = Report::new(&reading, run, vec![], vec![]);
    assert!(report.check.is_good(), "{:?}", report.check);
    for damaged in [&text[..text.len() - 30], &[&text[..], b"9 1 2\nnonsense\n"].concat()] {
        let read = swf::read("cut", damaged).unwrap();
        assert!(read.left_out.iter().any(|one| one.contains("lines that are no jobs")));
    }
}

/// Without a machine in its head, a trace's machine has what was in use at most, and not what its widest job had.
#[test]
fn a_trace_without_a_head_is_played_on_what_was_in_use() {
    let line = |number: u32, at: u32, processors: u32| {
        format!("{number} {at} 0 60 {processors} -1 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1\n")
    };
    // From second 30 on the first two run together; the third begins when the second ends.
    let text = [line(1, 0, 20), line(2, 30, 15), line(3, 90, 18)].concat();
    let Reading { workload, left_out } = swf::read("headless", text.as_bytes()).unwrap();
    assert_eq!(workload.nodes.iter().map(|node| i32::from(node.cpus)).sum::<i32>(), 35);
    assert!(workload.assumptions.iter().any(|one| one.contains("35 processors")), "{workload:?}");
    let run = run(&workload, settings(|_| ()));
    let report = Report::new(&Reading { workload, left_out }, run, vec![], vec![]);
    assert!(report.check.is_good(), "{:?}", report.check);
}

#[test]
fn recordings_of_the_original_become_workloads_that_come_out_as_recorded() {
    let mut errors = Vec::new();
    for (name, sessions, least) in [("fifo", 2, 8), ("min_and_max", 2, 40), ("node_locality", 1, 1)]
    {
        let directory = fixtures().join("recordings/scenarios").join(name);
        let source = corona_config::Source {
            conf_dir: Some(&directory),
            overrides: &[],
            lookup: corona_config::Lookup::AlsoByName,
        };
        let settings = source.load().unwrap().settings;
        let limits = Limits::default();
        let traffic = corona_conformance::open(&directory.join("traffic.pcap"), &limits).unwrap();
        let ports = Ports { cluster_manager: settings.server_address.port, ..Ports::default() };
        let conversations = traffic.conversations(&ports);
        let began_ms = traffic.capture.started_at_us as i64 / 1_000;
        let reading = crate::recorded::read(name, &conversations, began_ms, 600_000);
        let workload = &reading.workload;
        let mut nodes = workload.nodes.iter();
        assert!(nodes.all(|node| node.memory_mb == Some(16_384)), "{name}: {:?}", workload.nodes);
        let run = run(workload, settings.engine.clone());
        let report = Report::new(&reading, run, vec![], vec![]);
        if workload.sessions.len() < sessions
            || (report.check.tasks as usize) < least
            || !report.check.is_good()
        {
            errors.push(format!(
                "{name}: {} sessions, {} nodes, {:?} {:?}",
                workload.sessions.len(),
                workload.nodes.len(),
                report.check,
                report.left_out
            ));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// The inputs of a cluster manager with one node of 2 CPUs: a session with 4 maps of 10 s each.
fn inputs() -> Vec<(i64, Input)> {
    let map = |id| testing::request(id, MAP, &["n1"]);
    // All that it holds.
    let release = Input::ReleaseResources { handle: "2026.1".into(), ids: vec![] };
    let end = Input::EndSession { handle: "2026.1".into(), status: SessionStatus::Successful };
    vec![
        (0, testing::heartbeat("n1", 2)),
        (1_000, Input::NextSessionId),
        (1_000, testing::session("2026.1", "g.p")),
        (1_000, testing::ask("2026.1", (1..=4).map(map).collect())),
        (11_000, release.clone()),
        (21_000, release),
        (22_000, end),
        (22_500, Input::DrainNode { node: "n1".into(), on: true }),
        (23_000, Input::NodesEnded { host: "n1".into(), names: vec!["n1".into()] }),
        (33_000, testing::heartbeat("n1", 2)),
        (40_000, testing::heartbeat("n1", 2)),
    ]
}

/// A cluster that is shut down after its work would be too small for the same work under other settings.
#[test]
fn nodes_that_are_lost_after_the_last_session_stay() {
    let workload = journaled(0, 23_000).workload;
    assert_eq!(workload.nodes[0].until_ms, None);
    assert!(workload.assumptions.iter().any(|one| one.starts_with("1 nodes were lost after")));
    let mut slow = settings(|_| ());
    pool(&mut slow, "g.p", |pool| pool.maximum[MAP] = 1);
    assert_eq!(run(&workload, slow).cluster.unserved, 0);
}

/// What a journal shows that begins before the first input at or after a time, and ends at another one.
fn journaled(from_ms: i64, until_ms: i64) -> Reading {
    let mut engine: Engine = testing::engine(settings(|_| ()));
    let (mut journaled, mut shown) = (Journaled::default(), false);
    for (at_ms, input) in inputs().into_iter().filter(|(at_ms, _)| *at_ms <= until_ms) {
        let mut next = vec![input];
        while let Some(mut input) = next.pop() {
            if let Input::ReleaseResources { ids, .. } = &mut input {
                let held = engine.grants("2026.1").unwrap();
                ids.extend(held.iter().map(|view| view.grant.id));
            }
            if !shown && at_ms >= from_ms {
                journaled.state(&engine);
                shown = true;
            }
            let outcome = engine.apply(Millis(at_ms), input.clone());
            journaled.input(Millis(at_ms), &input, &outcome);
            next.extend(engine.wants_pass().then_some(Input::Pass));
        }
    }
    journaled.finish("journal").unwrap()
}

#[test]
fn journals_become_workloads_that_come_out_as_recorded() {
    let reading = journaled(0, i64::MAX);
    let workload = &reading.workload;
    let tasks = &workload.sessions[0].tasks;
    assert!(tasks.iter().all(|task| task.takes.is_some_and(|takes| takes.num_cpus == 1)));
    let mut times: Vec<_> = tasks.iter().map(|task| (task.ms, task.waited_ms)).collect();
    times.sort_unstable();
    let (first, second) = ((10_000, Some(0)), (10_000, Some(10_000)));
    assert_eq!(times, [first, first, second, second]);
    assert_eq!(
        (workload.nodes[0].away.as_slice(), workload.until_ms),
        (&[(23_000, 33_000)][..], 40_000)
    );
    assert_eq!(workload.nodes[0].drained, [(22_500, 23_000)]);
    let run = run(workload, settings(|_| ()));
    let report = Report::new(&reading, run, vec![], vec![]);
    assert!(report.check.is_good() && report.left_out.is_empty(), "{report:?}");
}

#[test]
fn sessions_that_are_older_than_a_journal_hold_what_they_held() {
    let Reading { workload, left_out } = journaled(11_000, i64::MAX);
    let session = &workload.sessions[0];
    // It begins at 1 s, with the last input before: maps of 10 s run, two others wait.
    let times: Vec<_> = session.tasks.iter().map(|task| (task.ms, task.waited_ms)).collect();
    assert_eq!(times, [(10_000, None); 4]);
    assert_eq!((session.recorded_ms, left_out.len()), (None, 0));
    let run = run(&workload, settings(|_| ()));
    assert_eq!(run.sessions[0].ended_ms, Some(21_000));
    assert!(workload.assumptions.iter().any(|one| one.contains("1 sessions ran before")));
}

/// A history file from its records without their ends.
fn history(records: &[&str]) -> JobHistory {
    let (mut reader, mut history) = (Records::new(), JobHistory::default());
    let text = records.iter().map(|record| format!("{record} .\n"));
    let text = format!("Meta VERSION=\"1\" .\n{}", text.collect::<String>());
    reader.push(text.as_bytes(), &mut |record| history.take(record));
    history
}

/// An attempt of a task on a node, with its times in seconds.
fn attempt(task: &str, number: u32, node: &str, [from, until]: [i64; 2], state: &str) -> String {
    let kind = if task.starts_with('m') { "Map" } else { "Reduce" };
    format!(
        "{kind}Attempt TASKID=\"task_1_1_{task}\" TASK_ATTEMPT_ID=\"attempt_1_1_{task}_{number}\" \
         START_TIME=\"{from}000\" FINISH_TIME=\"{until}000\" TASK_STATUS=\"{state}\" \
         TRACKER_NAME=\"tracker_{node}\" HOSTNAME=\"/rack/{node}\""
    )
}

/// What a job is known to be configured with, from a recorded file with these settings besides.
fn configured(settings: &[(&str, &str)]) -> Configured {
    let conf = "recordings/job-clients/history/job_202611221049.2_0001_conf.xml";
    let mut conf = corona_config::JobConf::localised(&fixtures().join(conf)).unwrap();
    settings.iter().for_each(|(key, value)| conf.set(key, value));
    Configured {
        pool: PoolName::new("g", "p"),
        priority: None,
        settings: JobSettings::of(&conf),
        demand: TaskDemand::of(&conf),
    }
}

#[test]
fn histories_show_requests_as_job_trackers_make_them() {
    let [ok, failed] = ["SUCCESS", "FAILED"];
    let records = [
        "Job JOBID=\"job_1_1\" JOBNAME=\"etl\" USER=\"ann\" SUBMIT_TIME=\"1000000\"".to_owned(),
        "Job JOBID=\"job_1_1\" LAUNCH_TIME=\"1001000\" TOTAL_MAPS=\"4\" TOTAL_REDUCES=\"1\""
            .to_owned(),
        "Task TASKID=\"task_1_1_m_000000\" TASK_TYPE=\"MAP\" SPLITS=\"/rack/a,/rack/b\"".to_owned(),
        attempt("m_000000", 0, "a", [1_002, 1_012], ok),
        attempt("m_000001", 0, "a", [1_002, 1_012], ok),
        attempt("m_000002", 0, "b", [1_002, 1_007], failed),
        attempt("m_000003", 0, "b", [1_002, 1_022], ok),
        attempt("m_000002", 1, "b", [1_008, 1_018], ok),
        attempt("r_000000", 0, "a", [1_013, 1_027], ok),
        "Job JOBID=\"job_1_1\" FINISH_TIME=\"1030000\" JOB_STATUS=\"SUCCESS\"".to_owned(),
    ];
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let mut configured = configured(&[]);
    let of_job = &mut configured.settings;
    (of_job.slow_start, of_job.rush_maps, of_job.rush_reduces) = (0.5, 0, 0);
    let mut histories = JobHistories::default();
    histories.add(&history(&records), Some(&configured));
    let reading = histories.finish("done", &settings(|_| ()));
    let workload = &reading.workload;
    let session = &workload.sessions[0];
    let seen: Vec<_> = session
        .tasks
        .iter()
        .map(|task| (task.kind, task.ms, task.after, task.delay_ms, task.waited_ms))
        .collect();
    let map = |ms, after, delay_ms, waited_ms| (MAP, ms, after, delay_ms, Some(waited_ms));
    assert_eq!(
        seen,
        [
            map(10_000, 0, 1_000, 1_000),
            map(10_000, 0, 1_000, 1_000),
            map(5_000, 0, 1_000, 1_000),
            map(20_000, 0, 1_000, 1_000),
            // It follows the failed one.
            map(10_000, 1, 0, 1_000),
            // Half of the maps had ended at 12 s; it ends 5 s after the last of them.
            (REDUCE, 5_000, 3, 0, Some(1_000)),
        ]
    );
    assert_eq!(session.tasks[0].hosts[..], ["a".into(), "b".into()]);
    assert_eq!((session.recorded_ms, session.lingers_ms), (Some(30_000), 3_000));
    assert_eq!(session.pool, Some(PoolName::new("g", "p")));
    let nodes: Vec<_> = workload
        .nodes
        .iter()
        .map(|node| (&*node.name, &*node.host, node.rack.as_deref(), node.cpus))
        .collect();
    assert_eq!(nodes, [("tracker_a", "a", Some("/rack"), 2), ("tracker_b", "b", Some("/rack"), 2)]);
    // The same job, whose job tracker died after the first end of a map.
    let mut histories = JobHistories::default();
    histories.add(&history(&records[..5]), None);
    histories.add(&history(&["Job JOBID=\"job_1_2\""]), None);
    let Reading { workload, left_out } = histories.finish("running", &settings(|_| ()));
    assert_eq!((workload.sessions.len(), workload.tasks()), (1, 2));
    assert_eq!(
        left_out,
        ["The rest of 1 jobs whose histories have no end.", "1 histories without any time."]
    );
}

/// A history of a job whose maps prefer the node `a`: those there take `near` seconds, those on `b` take `away`.
fn distant(job: &str, near: i64, away: i64, count: i64) -> JobHistory {
    let at = 1_000 * near;
    let mut records = vec![format!("Job JOBID=\"{job}\" USER=\"ann\" SUBMIT_TIME=\"{at}000\"")];
    for number in 0..2 * count {
        let task = format!("m_{number:06}");
        let (node, ms) = if number < count { ("a", near) } else { ("b", away) };
        records
            .push(format!("Task TASKID=\"task_1_1_{task}\" TASK_TYPE=\"MAP\" SPLITS=\"/rack/a\""));
        records.push(attempt(&task, 0, node, [at, at + ms], "SUCCESS"));
    }
    let end = at + near.max(away);
    records.push(format!("Job JOBID=\"{job}\" FINISH_TIME=\"{end}000\" JOB_STATUS=\"SUCCESS\""));
    history(&records.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn tasks_take_as_much_longer_away_from_their_hosts_as_others_did() {
    let workload = |jobs: &[(i64, i64, i64)]| {
        let mut histories = JobHistories::default();
        for (place, (near, away, count)) in jobs.iter().enumerate() {
            histories.add(&distant(&format!("job_1_{place}"), *near, *away, *count), None);
        }
        histories.finish("done", &settings(|_| ())).workload
    };
    // Of different sizes; each shows too little alone, and they agree.
    let whole = workload(&[(10, 15, 6), (40, 60, 6)]);
    for (session, (near, away)) in whole.sessions.iter().zip([(10_000, 15_000), (40_000, 60_000)]) {
        let known = session.tasks.iter().map(|task| (task.ms, task.away_ms));
        assert!(known.into_iter().all(|known| known == (near, Some(away))), "{session:?}");
    }
    let says =
        |whole: &Workload, what: &str| whole.assumptions.iter().any(|one| one.contains(what));
    assert!(says(&whole, "takes 1.50 times as long"), "{:?}", whole.assumptions);
    // The second has seen enough for a factor of its own.
    let whole = workload(&[(10, 15, 30), (10, 30, 10)]);
    assert_eq!(whole.sessions[0].tasks[0].away_ms, Some(15_000));
    assert_eq!(whole.sessions[1].tasks[19].ms, 10_000);
    // The first has seen enough to know that it makes no difference.
    let whole = workload(&[(10, 10, 30), (10, 15, 30), (10, 15, 30)]);
    let known = whole.sessions.iter().map(|session| session.tasks[0].away_ms);
    assert_eq!(known.collect::<Vec<_>>(), [None, Some(15_000), Some(15_000)]);
    for (jobs, what) in [
        ([(10, 15, 2)], "too few are known"),
        ([(10, 10, 20)], "is taken for chance"),
        ([(10, 250, 20)], "is taken for chance"),
    ] {
        let whole = workload(&jobs);
        assert!(says(&whole, what), "{:?}", whole.assumptions);
        assert_eq!(whole.sessions[0].tasks[0].away_ms, None);
    }
    // Where both nodes are free, maps run on the one that they prefer, unless it is full.
    let whole = workload(&[(10, 30, 10)]);
    assert_eq!(whole.nodes[0].cpus, 10);
    let run = run(&whole, settings(|_| ()));
    assert_eq!(run.sessions[0].ended_ms, Some(30_000));
}

#[test]
fn histories_show_the_memory_that_jobs_name() {
    let configured = configured(&[("mapred.job.map.memory.mb", "3000")]);
    let mut histories = JobHistories::default();
    histories.add(&distant("job_1_1", 10, 10, 4), Some(&configured));
    let Reading { workload, .. } = histories.finish("done", &counting(|_| ()));
    let takes = workload.sessions[0].tasks[0].takes.unwrap();
    assert_eq!((takes.num_cpus, takes.memory_mb), (1, Some(3_000)));
    // Four at a time on each node.
    let sizes: Vec<_> = workload.nodes.iter().map(|node| (node.cpus, node.memory_mb)).collect();
    assert_eq!(sizes, [(4, Some(12_000)); 2]);
    // What nodes must keep they have as well.
    let mut histories = JobHistories::default();
    histories.add(&distant("job_1_1", 10, 10, 4), Some(&configured));
    let mut kept = counting(|resources| resources.overcommit[1] = Part(5_000));
    kept.reserved_memory_mb = 2_048;
    let reading = histories.finish("done", &kept);
    assert_eq!(reading.workload.nodes[0].memory_mb, Some(28_096));
}

#[test]
fn a_reduce_takes_as_long_after_its_maps_as_its_node_is_away() {
    let hosts = ["elsewhere".into()].into();
    let reduce = Task { away_ms: Some(9_000), shuffles: true, hosts, ..Task::new(REDUCE, 1_000) };
    let tasks = vec![Task::new(MAP, 60_000), reduce];
    let run = run(&workload(nodes(1, 1), vec![session("s", "g.p", 0, tasks)]), settings(|_| ()));
    assert_eq!(run.sessions[0].ended_ms, Some(69_000));
}

#[test]
fn a_history_whose_clock_was_set_back_is_read() {
    let records = [
        "Job JOBID=\"job_1_1\" USER=\"ann\" SUBMIT_TIME=\"2000\"",
        "Task TASKID=\"task_1_1_m_000000\" TASK_TYPE=\"MAP\" SPLITS=\"\"",
        &attempt("m_000000", 0, "a", [3, i64::MAX / 1_000], "SUCCESS"),
        "Job JOBID=\"job_1_1\" FINISH_TIME=\"1000\" JOB_STATUS=\"SUCCESS\"",
    ];
    let mut histories = JobHistories::default();
    histories.add(&history(&records), None);
    let workload = histories.finish("done", &settings(|_| ())).workload;
    assert_eq!(workload.sessions[0].tasks[0].ms, 0);
}

#[test]
fn refused_and_late_sessions_are_counted() {
    let mut sessions = vec![
        session("s", "g.p", 0, maps(1, 10)),
        session("t", "g.p", 0, maps(1, 10)),
        session("u", "g.other", 0, maps(1, 10)),
    ];
    (sessions[0].deadline_ms, sessions[1].deadline_ms) = (Some(10_000), Some(10_000));
    let whole = workload(nodes(1, 1), sessions);
    let with = settings(|settings| {
        settings.configured_pools_only = true;
        pool(settings, "g.p", |_| ());
    });
    let run = run(&whole, with);
    assert_eq!((run.cluster.refused, run.cluster.late, run.cluster.unfinished), (1, 1, 0));
    let user = &run.users[0];
    assert_eq!((&*user.name, user.sessions, user.refused), ("ann", 2, 1));
}
