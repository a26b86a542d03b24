//! Pages of a tracker that a test makes up.

use http_body_util::BodyExt;
use serde_json::Value;

use super::*;
use crate::child::TaskUsage;
use crate::local_dirs::tests::settings;
use crate::localise::TaskKind;
use crate::tracker::{Identity, JobSnapshot, SlotUse};
use corona_hadoop::writables::{NodeHealth, Phase};

const HOSTILE: &str = "<script>alert(1)</script>&\"'/..?#";

fn attempt(number: u32, state: TaskState, times: (i64, i64)) -> AttemptSnapshot {
    AttemptSnapshot {
        id: format!("attempt_20.1_0001_m_{number:06}_0"),
        kind: TaskKind::Work,
        is_map: true,
        state,
        phase: Phase::Map,
        progress: 0.42,
        state_string: "reads".into(),
        start_time_ms: times.0,
        finish_time_ms: times.1,
        slots: 1,
        pid: Some(77).filter(|_| times.1 == 0),
        usage: TaskUsage {
            cpu_ms: 1500,
            memory_bytes: 3 << 20,
            peak_memory_bytes: 5 << 20,
            read_bytes: 7,
            written_bytes: 9,
        },
    }
}

fn snapshot() -> Snapshot {
    let cleaning = AttemptSnapshot {
        kind: TaskKind::AttemptCleanup,
        ..attempt(5, TaskState::FailedUnclean, (3000, 0))
    };
    let attempts = vec![
        attempt(0, TaskState::Running, (1000, 0)),
        attempt(1, TaskState::Unassigned, (0, 0)),
        attempt(2, TaskState::Succeeded, (1000, 2000)),
        attempt(3, TaskState::FailedUnclean, (1000, 2000)),
        attempt(4, TaskState::Killed, (0, 2000)),
        cleaning,
    ];
    let job = |id: &str, attempts| JobSnapshot {
        id: id.into(),
        session: "20.1".into(),
        job_tracker: "jt:7".into(),
        attempts,
    };
    let hostile = AttemptSnapshot {
        id: HOSTILE.into(),
        state_string: HOSTILE.into(),
        progress: f32::NAN,
        start_time_ms: i64::MIN,
        finish_time_ms: i64::MAX,
        ..attempt(0, TaskState::Running, (0, 0))
    };
    Snapshot {
        identity: Identity {
            name: "tracker_n1:h/127.0.0.1:5".into(),
            host: "n1".into(),
            http_port: 1,
        },
        maps: SlotUse { total: 20, used: 3 },
        reduces: SlotUse { total: 10, used: 0 },
        failures: 4,
        idle_processes: 2,
        class_archive: Some("ready".into()),
        used: TaskUsage { cpu_ms: 2500, read_bytes: 70, written_bytes: 90, ..Default::default() },
        health: NodeHealth { is_healthy: true, report: String::new(), last_reported_ms: 7 },
        obstacles: vec![],
        jobs: vec![job("job_20.1_0001", attempts), job(HOSTILE, vec![hostile])],
    }
}

struct TestPages {
    _root: tempfile::TempDir,
    link: Arc<Link>,
    pages: NodePages,
}

fn world(node_expiry: Duration) -> TestPages {
    let root = tempfile::tempdir().unwrap();
    let bad = root.path().join("bad");
    std::fs::write(&bad, "").unwrap();
    let local = settings(&[&root.path().join("good"), &bad]);
    let dirs = Arc::new(LocalDirs::open(&local).unwrap());
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let about = About {
        addresses: Addresses { http: at(1), actions: at(2), umbilical: at(3), callbacks: at(4) },
        cluster_manager: "cm:8888".parse().unwrap(),
        cluster_manager_pages: Some("http://cm:80/".into()),
        finished_jobs: Some("http://pjt:81/".into()),
        granted: SlotCounts { maps: 2, reduces: 1 },
        slot_multiplier: 10,
        java_problem: None,
        expects_java: true,
        node_expiry,
        started: SystemTime::UNIX_EPOCH,
    };
    let link = Arc::new(Link::default());
    let pages = NodePages {
        about,
        look: Box::new(snapshot),
        job_trackers: Box::new(|| None),
        link: link.clone(),
        dirs,
        http: Arc::default(),
        files: Arc::default(),
    };
    TestPages { _root: root, link, pages }
}

fn text(page: Page) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let body = runtime.block_on(page.into_body().collect());
    String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
}

fn get(pages: &NodePages, path: &str, query: &str) -> (StatusCode, String) {
    let page = pages.page(path, query).unwrap_or_else(|| panic!("{path}"));
    // Without the places where names may wrap.
    (page.status(), text(page).replace("<wbr>", ""))
}

fn json(pages: &NodePages, path: &str, query: &str) -> Value {
    serde_json::from_str(&get(pages, path, query).1).unwrap()
}

#[test]
fn the_page_shows_running_attempts_and_their_jobs() {
    let world = world(Duration::from_secs(600));
    for path in ["/", "/tasktracker.jsp"] {
        let (status, page) = get(&world.pages, path, "");
        assert_eq!(status, StatusCode::OK);
        for shown in [
            "Task tracker n1",
            "tracker_n1:h/127.0.0.1:5",
            "cm:8888",
            "does not reply",
            "<strong>3</strong>",
            "of 2 slots",
            "Accepts up to 20.",
            "accepts 10 times as many attempts (corona.slot.multiplier)",
            "href=\"http://cm:80/\"",
            "href=\"http://pjt:81/\"",
            "href=\"http://cm:80/nodes/tracker_n1%3Ah%2F127.0.0.1%3A5\"",
            "href=\"http://cm:80/sessions/",
            "can run",
            "/tasklog?taskid=attempt_20.1_0001_m_000000_0\"",
            "/tasklog?taskid=attempt_20.1_0001_m_000005_0&amp;cleanup=true",
            "cleans up after this attempt",
            "42 %",
            "href=\"/jobs/job_20.1_0001\"",
            "left out",
        ] {
            assert!(page.contains(shown), "{shown} is not in {page}");
        }
        // Ended attempts are shown with their job only.
        assert!(!page.contains("m_000002_0"));
    }
    world.link.answered();
    let (_, page) = get(&world.pages, "/", "");
    assert!(!page.contains("does not reply") && page.contains("1 answered"), "{page}");
    let (status, page) = get(&world.pages, "/jobs/job_20.1_0001", "");
    assert_eq!((status, page.matches("<tr data-key").count()), (StatusCode::OK, 6));
    assert_eq!(get(&world.pages, "/jobs/job_1_1", "").0, StatusCode::NOT_FOUND);
}

#[test]
fn a_node_on_which_no_java_task_can_run_says_so() {
    let mut world = world(Duration::from_secs(600));
    world.link.answered();
    std::fs::remove_file(world._root.path().join("bad")).unwrap();
    world.pages.dirs.check(|_| {});
    let shown = |pages: &NodePages| {
        let tracker = json(pages, "/api/v1/tracker", "");
        let metric = |line: &str| pages.metrics().contains(line);
        let page = get(pages, "/", "").1;
        (
            tracker["state"].clone(),
            tracker["problems"].clone(),
            tracker["java_usable"].clone(),
            metric("\ncorona_task_tracker_java_usable 0\n"),
            page.contains("<li class=\"bad\">No Java task can run here: no class path</li>"),
        )
    };
    let none = Value::Array(vec![]);
    assert_eq!(shown(&world.pages), ("ok".into(), none, true.into(), false, false));
    world.pages.about.java_problem = Some("no class path".into());
    let problems = serde_json::json!(["No Java task can run here: no class path"]);
    assert_eq!(shown(&world.pages), ("degraded".into(), problems, false.into(), true, true));
    // A cluster without Java lacks nothing.
    world.pages.about.expects_java = false;
    let none = Value::Array(vec![]);
    assert_eq!(shown(&world.pages), ("ok".into(), none, false.into(), true, false));
    assert!(get(&world.pages, "/", "").1.contains("<dt>Java tasks</dt><dd>not set up</dd>"));
}

#[test]
fn a_node_that_takes_no_tasks_says_why() {
    let mut world = world(Duration::from_secs(600));
    let metric = |pages: &NodePages, value: u8| {
        pages.metrics().contains(&format!("\ncorona_task_tracker_takes_tasks {value}\n"))
    };
    assert_eq!(json(&world.pages, "/api/v1/tracker", "")["takes_tasks"], true);
    assert!(metric(&world.pages, 1));
    world.pages.look = Box::new(|| Snapshot { obstacles: vec!["no room".into()], ..snapshot() });
    let tracker = json(&world.pages, "/api/v1/tracker", "");
    assert_eq!((&tracker["takes_tasks"], &tracker["state"]), (&false.into(), &"degraded".into()));
    assert_eq!(tracker["problems"][0], "This node takes no new tasks: no room");
    let page = get(&world.pages, "/", "").1;
    assert!(page.contains("<li class=\"bad\">This node takes no new tasks: no room</li>"));
    assert!(metric(&world.pages, 0));
}

#[test]
fn reports_of_the_health_script_are_shown() {
    let mut world = world(Duration::from_secs(600));
    let shown = |pages: &NodePages| json(pages, "/api/v1/tracker", "")["health"].clone();
    assert_eq!(shown(&world.pages), serde_json::json!({"healthy": true, "reported_ms": 7}));
    let sick = || Snapshot {
        health: NodeHealth {
            is_healthy: false,
            report: format!("ERROR {HOSTILE}\n"),
            last_reported_ms: 0,
        },
        ..snapshot()
    };
    world.pages.look = Box::new(sick);
    let report = format!("ERROR {HOSTILE}\n");
    assert_eq!(shown(&world.pages), serde_json::json!({"healthy": false, "report": report}));
    let page = get(&world.pages, "/", "").1;
    assert!(page.contains("The health script reports: ERROR &lt;script&gt;"), "{page}");
    assert!(world.pages.metrics().contains("\ncorona_task_tracker_healthy 0\n"));
}

#[test]
fn use_of_tasks_and_machine_is_shown() {
    let world = world(Duration::from_secs(600));
    let tracker = json(&world.pages, "/api/v1/tracker", "");
    let used = serde_json::json!({"cpu_ms": 2500, "read_bytes": 70, "written_bytes": 90});
    assert_eq!((&tracker["tasks_used"], &tracker["idle_processes"]), (&used, &2.into()));
    assert!(tracker["machine"]["memory_bytes"].as_u64() > Some(1 << 20), "{tracker}");
    let job = json(&world.pages, "/api/v1/jobs/job_20.1_0001", "");
    let first = &job["attempts"][0];
    let shown = ["cpu_ms", "memory_bytes", "peak_memory_bytes", "read_bytes", "written_bytes"];
    let shown = shown.map(|name| first[name].as_u64().unwrap());
    assert_eq!(shown, [1500, 3 << 20, 5 << 20, 7, 9]);
    let page = get(&world.pages, "/", "").1;
    for shown in ["at most 5.0 MiB", "2 s of CPU", "Idle processes"] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    let metrics = world.pages.metrics();
    // Six attempts and one with a hostile name.
    for line in [
        "corona_task_tracker_idle_processes 2".to_owned(),
        "corona_task_tracker_tasks_cpu_seconds_total 2.5".to_owned(),
        format!("corona_task_tracker_tasks_memory_bytes {}", 7 * (3 << 20)),
        "corona_task_tracker_tasks_disk_read_bytes_total 70".to_owned(),
    ] {
        assert!(metrics.lines().any(|other| other == line), "{line} is not in:\n{metrics}");
    }
}

#[test]
fn texts_of_peers_stay_texts() {
    let world = world(Duration::ZERO);
    let job = "/jobs/%3Cscript%3Ealert%281%29%3C%2Fscript%3E%26%22%27%2F..%3F%23";
    for path in ["/", job] {
        let (status, page) = get(&world.pages, path, "");
        assert_eq!(status, StatusCode::OK, "{path}");
        assert!(!page.contains("<script>") && !page.contains("onerror"), "{page}");
        assert!(page.contains("&lt;script&gt;"), "{page}");
        // The only addresses elsewhere are those of the other services' pages.
        let page = page.replace("href=\"http://cm:80/", "");
        let page = page.replace("href=\"http://pjt:81/", "");
        for unwanted in ["style=", "http://", "https://", "javascript:"] {
            assert!(!page.contains(unwanted), "{unwanted}");
        }
    }
    assert!(get(&world.pages, "/", "").1.contains(&format!("href=\"{job}\"")));
    let api = json(&world.pages, &job.replace("/jobs", "/api/v1/jobs"), "");
    assert_eq!((&api["id"], &api["attempts"][0]["progress"]), (&HOSTILE.into(), &Value::Null));
}

#[test]
fn the_api_says_the_same_in_json() {
    let world = world(Duration::from_secs(600));
    let tracker = json(&world.pages, "/api/v1/tracker", "");
    assert_eq!(tracker["name"], "tracker_n1:h/127.0.0.1:5");
    let maps = serde_json::json!({"total": 2, "used": 3, "granted": 2, "accepted": 20});
    assert_eq!((&tracker["slots"]["MAP"], &tracker["slot_multiplier"]), (&maps, &10.into()));
    assert_eq!(tracker["cluster_manager"]["address"], "cm:8888");
    assert_eq!(tracker["addresses"]["actions"], "127.0.0.1:2");
    let counts =
        serde_json::json!({"running": 3, "waiting": 1, "succeeded": 1, "failed": 1, "killed": 1});
    assert_eq!(tracker["attempts"], counts);
    assert!(tracker["local_dirs"][0].get("problem").is_none());
    assert!(tracker["local_dirs"][1]["problem"].is_string());
    let jobs = json(&world.pages, "/api/v1/jobs", "");
    assert_eq!(jobs["jobs"][0]["id"], "job_20.1_0001");
    assert_eq!(jobs["jobs"][0]["counts"]["running"], 2);
    let path = "/api/v1/jobs/job_20.1_0001";
    let job = json(&world.pages, path, "");
    assert_eq!(job["attempts"].as_array().unwrap().len(), 6);
    let first = &job["attempts"][0];
    assert_eq!((&first["started_ms"], &first["pid"]), (&1000.into(), &77.into()));
    assert!(first.get("finished_ms").is_none());
    assert_eq!((&first["state"], &first["stage"]), (&"RUNNING".into(), &"running".into()));
    // A list continues where the last one ended.
    let (mut seen, mut query) = (Vec::new(), "limit=4".to_owned());
    loop {
        let job = json(&world.pages, path, &query);
        let ids = job["attempts"].as_array().unwrap().iter();
        seen.extend(ids.map(|attempt| attempt["id"].as_str().unwrap().to_owned()));
        let Some(next) = job["next"].as_str() else { break };
        query = format!("limit=4&after={next}");
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    for query in ["limit=0", "limit=2001", "limit=x"] {
        let (status, text) = get(&world.pages, path, query);
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.contains("1 to 2000"), "{text}");
    }
    assert_eq!(get(&world.pages, "/api/v1/jobs/none", "").0, StatusCode::NOT_FOUND);
}

#[test]
fn job_trackers_are_shown_where_they_may_run() {
    let TestPages { pages, .. } = world(Duration::ZERO);
    assert!(!get(&pages, "/", "").1.contains("Job trackers</h2>"));
    assert!(json(&pages, "/api/v1/tracker", "").get("job_trackers").is_none());
    let one = JobTrackerSnapshot {
        attempt: "attempt_20.1_0001_m_100000_0".into(),
        job: "job_20.1_0001".into(),
        parent: HOSTILE.into(),
        since: SystemTime::UNIX_EPOCH,
        pid: Some(99),
    };
    let job_trackers = Box::new(move || Some(vec![one.clone()]));
    let pages = NodePages { job_trackers, ..pages };
    let (_, page) = get(&pages, "/", "");
    for shown in ["Job trackers</h2>", "1 process", "m_100000_0</a>", "&lt;script&gt;", ">99<"] {
        assert!(page.contains(shown), "{shown} is not in {page}");
    }
    let tracker = json(&pages, "/api/v1/tracker", "");
    assert_eq!(tracker["job_trackers"][0]["parent"], HOSTILE);
    assert_eq!(tracker["job_trackers"][0]["pid"], 99);
}

#[test]
fn health_is_whether_the_cluster_manager_still_counts_on_it() {
    assert_eq!(world(Duration::from_secs(600)).pages.sickness(), None);
    let sickness = world(Duration::ZERO).pages.sickness().unwrap();
    assert!(sickness.starts_with("no answer of the cluster manager for 0 s"), "{sickness}");
}

#[test]
fn metrics_are_declared_once_and_documented() {
    let text = world(Duration::ZERO).pages.metrics();
    let declared: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let names: Vec<&str> = metrics::FAMILIES.iter().map(|family| family.name).collect();
    assert_eq!(declared, names);
    for line in [
        "corona_task_tracker_slots{type=\"MAP\"} 20",
        "corona_task_tracker_attempts{stage=\"running\"} 3",
        "corona_task_tracker_heartbeats_total{outcome=\"answered\"} 0",
        "corona_task_tracker_failures_total 4",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
    }
    let document = include_str!("../../../docs/operate/metrics.md");
    let is_own =
        |name: &str| name.starts_with("corona_task_tracker_") || name.starts_with("corona_node_");
    let documented: Vec<&str> =
        document.lines().filter(|line| line.strip_prefix("| `").is_some_and(is_own)).collect();
    let own = |family: &&corona_web::prometheus::Family| is_own(family.name);
    let expected: Vec<String> = metrics::FAMILIES
        .iter()
        .filter(own)
        .map(|family| format!("| `{}` | {} | {} |", family.name, family.shape.name(), family.help))
        .collect();
    assert_eq!(documented, expected, "write this:\n{}", expected.join("\n"));
}

#[test]
fn other_addresses_have_nothing() {
    let pages = world(Duration::ZERO).pages;
    for path in ["/nothing", "/static/../mod.rs", "/api/v1", "/api/v1/", "/api/v1/tracker/x", ""] {
        assert!(pages.page(path, "").is_none(), "{path}");
    }
}
