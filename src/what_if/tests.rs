//! Planted questions with known answers, and the way from a recording to its report.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use corona_conformance::capture::Limits;
use corona_conformance::conversation::Ports;
use corona_model::settings::{PoolSettings, Settings};
use corona_model::types::{PoolName, ResourceType};

use crate::report::{Report, html};
use crate::{Node, Reading, Run, Session, Setting, Task, Workload, change, file, simulate, swf};

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
    let mut whole = workload(nodes(2, 3), vec![session("s", "g.p", 0, maps(2, 1)), second]);
    whole.nodes[1].rack = Some("/r1".into());
    whole.nodes[1].until_ms = Some(77);
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
    for (text, expected) in [
        ("", "is no workload"),
        ("{\"x\":1}\n", "is no workload"),
        ("{\"corona_workload\":2}\n", "version 2"),
        (
            "{\"corona_workload\":1}\n{\"node\":{\"name\":\"n\",\"host\":\"h\",\"cpus\":0}}\n",
            "line 2: a node",
        ),
        ("{\"corona_workload\":1}\n\n{\"job\":{}}\n", "unknown variant"),
        (
            "{\"corona_workload\":1}\n{\"session\":{\"id\":\"s\",\"follows\":[\"t\",1]}}\n",
            "line 2: no session t stands before this one",
        ),
        (
            "{\"corona_workload\":1}\n{\"session\":{\"id\":\"s\"}}\n{\"session\":{\"id\":\"s\"}}\n",
            "line 3: session s stands twice",
        ),
        (
            "{\"corona_workload\":1}\n{\"session\":{\"id\":\"s\",\"tasks\":[{\"type\":\"MAP\",\"ms\":-1}]}}\n",
            "line 2: the time -1 is not from 0",
        ),
        (
            "{\"corona_workload\":1}\n{\"session\":{\"id\":\"s\",\"at_ms\":9223372036854775807}}\n",
            "line 2: the time 9223372036854775807 is not from 0",
        ),
        ("{\"corona_workload\":1,\"until_ms\":-1}\n", "line 1: the time -1 is not from 0"),
        (
            "{\"corona_workload\":1}\n\
             {\"session\":{\"id\":\"s\",\"tasks\":[{\"type\":\"MAP\",\"ms\":1,\"count\":4000000000}]}}\n",
            "more than 20000000 tasks",
        ),
    ] {
        let error = file::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let plain =
        "{\"session\":{\"id\":\"s\",\"tasks\":[{\"type\":\"MAP\",\"ms\":1000,\"count\":3}]}}\n";
    let read = file::read(format!("{HEAD}{plain}").as_bytes()).unwrap().workload;
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
