//! The pages, the JSON and the metrics of the job tracker service, over whole jobs and in a real browser.
//!
//! Pictures of all pages are left in `target/web`.

use std::io::{Read, Write};
use std::net::TcpStream;

use compat_tests::browser::Browser;
use compat_tests::repository;
use compat_tests::task_tracker::steps::TaskRole;
use serde_json::{Value, json};

use super::super::task_tracker::block_on;
use super::*;

/// A name that would show itself in the page's window if it were not escaped.
const HOSTILE: &str = "</td><script>window.harmed = 1</script>\
                       <img src=x onerror=\"window.harmed = 2\">&lt;\"'";
pub(super) const TOKEN: &str = "a token of a test";

/// One request: the status, the head and the body of its answer.
fn exchange(world: &TestCluster, request: &str) -> (u16, String, String) {
    let authority = world.job_tracker.pages().strip_prefix("http://").expect("http");
    let mut stream = TcpStream::connect(authority).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let request = request.replace("HOST", authority);
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a status");
    (status, head.to_lowercase(), body.to_owned())
}

pub(super) fn get(world: &TestCluster, path: &str) -> (u16, String, String) {
    exchange(world, &format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"))
}

pub(super) fn post(world: &TestCluster, path: &str, form: &str) -> (u16, String, String) {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}",
        form.len()
    );
    exchange(world, &request)
}

pub(super) fn page(world: &TestCluster, path: &str) -> String {
    let (status, _, body) = get(world, path);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

pub(super) fn api(world: &TestCluster, path: &str) -> Value {
    serde_json::from_str(&page(world, &format!("/api/v1/{path}"))).expect("JSON")
}

fn metric(world: &TestCluster, name: &str) -> f64 {
    let text = page(world, "/metrics");
    let line =
        text.lines().find(|line| line.strip_prefix(name).is_some_and(|it| it.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

/// A map that waits, in a job of this name.
async fn waiting(world: &TestCluster, client: &mut JobSubmissionClient, name: &str) -> Job {
    let waits =
        |job: Job| job.steps(TaskRole::Map, "update=0.5,wait,done").with("mapred.job.name", name);
    let job = world.prepare(client, 3, 1, waits).await;
    client.submit_job(job.id.clone()).await.unwrap();
    let notes = world.notes(&job);
    let first = job.map(0).to_string();
    until("a map that waits", || notes.of(&first, "waits").into_iter().next()).await;
    // The next heartbeat reports it. The API refuses where jobs are not shown to everybody.
    let path = format!("/api/v1/jobs/{}/attempts/{first}", job.id);
    until("a map that is known to run", || {
        let (status, _, body) = get(world, &path);
        (status == 404 || body.contains("\"RUNNING\"")).then_some(())
    })
    .await;
    job
}

/// The recorded addresses of the original's pages, asked for this job: each leads to a page that shows
/// the attempt, task or job of the address. Those without a job lead to the list of jobs.
fn recorded_addresses_lead_to_pages(world: &TestCluster, job: &str) {
    let file = repository().join("fixtures/recordings/job-clients/pages/urls.txt");
    let addresses = std::fs::read_to_string(file).unwrap();
    let number = job.strip_prefix("job_").unwrap();
    let mut asked = 0;
    for line in addresses.lines().filter(|line| line.starts_with("jt-")) {
        let (_, path) = line.split_once("http://vm:40791").unwrap();
        let path = path.replace("202611221049.1_0001", number);
        let (mut status, head, mut body) = get(world, &path);
        if status == 303 {
            let to = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
            (status, _, body) = get(world, to.trim());
        }
        if path.contains("action=confirm") {
            // No token for that is configured here.
            assert!(status == 403 && body.contains("corona.jt.web.kill.token"), "{path}: {body}");
            asked += 1;
            continue;
        }
        assert_eq!(status, 200, "{path}: {body}");
        let of = |name: &str| {
            let (_, value) = path.split_once(&format!("{name}="))?;
            value.split('&').next()
        };
        let wanted =
            ["taskid", "tipid", "jobid"].into_iter().find_map(of).unwrap_or("Running jobs");
        assert!(body.contains(wanted), "{path} does not show {wanted}: {body}");
        asked += 1;
    }
    assert_eq!(asked, 15);
}

#[test]
#[allow(clippy::too_many_lines, reason = "one job is followed from page to page")]
fn a_job_can_be_followed_on_pages_and_as_json() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        // The slots of the cluster are known before the first job.
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let status = client.get_cluster_status(false).await.unwrap().unwrap();
            if status.active == 1 && status.max_maps > 0 && status.max_reduces > 0 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{status:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let job = waiting(&world, &mut client, HOSTILE).await;
        let id = job.id.to_string();
        // Clients count the tasks that the task trackers themselves have.
        let status = client.get_cluster_status(true).await.unwrap().unwrap();
        let mut running = status.trackers.iter().flat_map(|tracker| &tracker.tasks);
        assert!(running.any(|task| task.attempt == job.map(0)), "{status:?}");
        // The tracking URL leads to the page, as the original's address does.
        let profile = client.get_job_profile(job.id.clone()).await.unwrap().unwrap();
        let expected = format!("{}/jobdetails.jsp?jobid={id}", world.job_tracker.pages());
        assert_eq!(profile.url, expected);
        let (status, head, _) = get(&world, &format!("/jobdetails.jsp?jobid={id}"));
        assert_eq!(status, 303);
        assert!(head.contains(&format!("location: /jobs/{id}")), "{head}");

        let (map, attempt) = (job.map(0).task.to_string(), job.map(0).to_string());
        for path in [
            "/".to_owned(),
            "/ended".to_owned(),
            "/trackers".to_owned(),
            format!("/jobs/{id}"),
            format!("/jobs/{id}/tasks?kind=map&state=running"),
            format!("/jobs/{id}/tasks/{map}"),
            format!("/jobs/{id}/attempts/{attempt}"),
            format!("/jobs/{id}/failures"),
            format!("/jobs/{id}/configuration?q=job.name"),
        ] {
            let body = page(&world, &path);
            assert!(!body.contains("<script>window"), "{path}");
            assert!(!body.contains("<img src=x"), "{path}");
        }
        let body = page(&world, &format!("/jobs/{id}"));
        assert!(body.contains("&lt;/<wbr>td&gt;"), "the name is shown as text: {body}");
        assert!(body.contains("Why it waits") && body.contains("Where the time went"), "{body}");
        let body = page(&world, &format!("/jobs/{id}/attempts/{attempt}"));
        assert!(body.contains(&format!("tasklog?taskid={attempt}")), "{body}");
        assert!(page(&world, "/").contains(&id) && !page(&world, "/ended").contains(&id));
        assert!(page(&world, "/?q=nothing").contains("No job matches."));
        let history = page(&world, &format!("/jobs/{id}/history"));
        assert!(history.starts_with("Meta VERSION"), "{history}");
        for path in ["/jobs/job_1_1", "/jobs/x", "/nothing", &format!("/jobs/{id}/tasks/task_x")] {
            assert_eq!(get(&world, path).0, 404, "{path}");
        }

        recorded_addresses_lead_to_pages(&world, &id);

        let jobs = api(&world, "jobs?ended=0");
        let row = &jobs["jobs"][0];
        assert_eq!((&row["id"], &row["name"]), (&json!(id), &json!(HOSTILE)));
        assert_eq!((&row["state"], &row["user"]), (&json!("RUNNING"), &json!("alice")));
        assert_eq!((&row["maps"]["total"], &row["reduces"]["total"]), (&json!(3), &json!(1)));
        let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
        let expected = [
            "cleanup_progress",
            "ended_ms",
            "id",
            "maps",
            "name",
            "page",
            "pool",
            "priority",
            "queue",
            "reduces",
            "requested_slots",
            "setup_progress",
            "state",
            "submitted_ms",
            "user",
        ];
        assert_eq!(keys, expected);
        let tasks = api(&world, &format!("jobs/{id}/tasks?kind=map"));
        assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(3), "{tasks}");
        let running = api(&world, &format!("jobs/{id}/tasks?kind=map&state=running&limit=1"));
        assert_eq!(running["tasks"][0]["id"], json!(map), "{running}");
        let task = api(&world, &format!("jobs/{id}/tasks/{map}"));
        assert_eq!(task["attempts"][0]["id"], json!(attempt), "{task}");
        let one = api(&world, &format!("jobs/{id}/attempts/{attempt}"));
        assert_eq!(one["state"], "RUNNING", "{one}");
        assert!(one["counters"].is_array(), "{one}");
        // The command line reads the same.
        let corona = |words: &[&str]| {
            let out = corona(&[&["jobs"][..], words].concat()).output().expect("an output");
            assert!(out.status.success(), "{words:?}: {out:?}");
            String::from_utf8(out.stdout).expect("text")
        };
        let rpc = world.job_tracker.address.to_string();
        let text = corona(&["history", &id, "--job-tracker", &rpc]);
        assert!(text.starts_with("Meta VERSION") && text.contains("MapAttempt"), "{text}");
        let manager = world.manager.http().expect("its pages").to_string();
        let text = corona(&["explain", &id, "--http-address", &manager]);
        assert!(text.contains("REDUCE") && text.lines().count() > 4, "{text}");
        let json = corona(&["explain", &id, "--http-address", &manager, "--output", "json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert!(json["waits"].is_array(), "{json}");

        // One slot for maps: the others wait, and the cluster manager says why.
        let waits = api(&world, &format!("jobs/{id}/waits"));
        assert!(waits["waits"].as_array().is_some_and(|waits| !waits.is_empty()), "{waits}");
        assert!(waits["waits"][0]["text"].as_str().is_some_and(|text| text.len() > 10), "{waits}");
        let events = api(&world, &format!("jobs/{id}/events"));
        assert_eq!(
            events["events"][0]["attempt"],
            json!(format!("attempt_{}_m_000004_0", id.trim_start_matches("job_"))),
            "{events}"
        );
        assert_eq!(events["next"], 1);
        assert_eq!(get(&world, &format!("/api/v1/jobs/{id}/tasks?limit=0")).0, 400);
        // An unknown value of a filter is an error, and not an empty list.
        for (wrong, expected) in [
            ("jobs?ended=yes", "ended: expected one of 0, 1"),
            ("jobs?state=gone", "state: expected one of PREP, RUNNING"),
            ("jobs?after=x", "after: "),
            (&format!("jobs/{id}/tasks?kind=maps"), "kind: expected one of map, reduce, setup"),
            (&format!("jobs/{id}/tasks?state=done"), "state: expected one of pending, running"),
            (&format!("jobs/{id}/tasks?after={attempt}"), "after: "),
        ] {
            let (status, _, body) = get(&world, &format!("/api/v1/{wrong}"));
            assert!(status == 400 && body.contains(expected), "{wrong}: {status} {body}");
        }
        let same = api(&world, &format!("jobs/{id}/tasks?kind=MAP&state=Running"));
        assert_eq!(same["tasks"][0]["id"], json!(map), "{same}");
        // The rest of a list is there although what it continues behind is not in it any more.
        let rest = api(&world, &format!("jobs/{id}/tasks?state=pending&after={map}"));
        assert!(rest["tasks"].as_array().is_some_and(|rest| !rest.is_empty()), "{rest}");
        assert_eq!(get(&world, "/api/v1/jobs/job_1_1").0, 404);

        assert_eq!(metric(&world, "corona_job_tracker_jobs_submitted_total"), 1.0);
        assert_eq!(metric(&world, "corona_job_tracker_jobs{state=\"running\"}"), 1.0);
        assert!(metric(&world, "corona_job_tracker_requested_slots") >= 1.0);
        assert!(metric(&world, "corona_job_tracker_launches_total{type=\"map\"}") >= 1.0);
        assert!(metric(&world, "corona_job_tracker_report_to_action_seconds_count") >= 1.0);
        assert_eq!(get(&world, "/healthz").0, 200);
        assert_eq!(get(&world, "/readyz").0, 200);
        let foreign = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
        assert_eq!(exchange(&world, foreign).0, 421);

        client.kill_job(job.id.clone()).await.unwrap();
        assert_eq!(world.ended(&mut client, &job).await.run_state, KILLED);
        assert!(page(&world, "/ended").contains(&id) && !page(&world, "/").contains(&id));
        let killed = api(&world, &format!("jobs/{id}"));
        assert_eq!(killed["state"], "KILLED");
        for kind in ["maps", "reduces"] {
            let [succeeded, total, progress] =
                ["succeeded", "total", "progress"].map(|name| killed[kind][name].as_f64().unwrap());
            assert!((progress - succeeded / total).abs() < 1e-6 && progress < 1.0, "{killed}");
        }
        // Its set-up is done, and so is the clean-up of a job that was killed.
        for role in ["setup", "cleanup"] {
            let [progress, done] = [format!("{role}_progress"), format!("{role}_task_done")];
            assert_eq!((&killed[progress], &killed[done]), (&json!(1.0), &json!(true)), "{killed}");
        }
        // There is one node.
        let of_kind = |kind: &str| killed["totals"][kind]["killed_attempts"].as_u64().unwrap();
        let all = of_kind("maps") + of_kind("reduces");
        assert_eq!(killed["nodes"][0]["killed"].as_u64(), Some(all), "{killed}");
        assert!(all > 0, "{killed}");
        let failures = api(&world, &format!("jobs/{id}/failures"));
        assert!(failures["attempts"][0]["launched_ms"].as_i64() > Some(0), "{failures}");
        let tasks = api(&world, &format!("jobs/{id}/tasks"));
        let pending = tasks["tasks"].as_array().unwrap().iter().find(|it| it["state"] == "pending");
        assert_eq!(pending, None);
        assert_eq!(metric(&world, "corona_job_tracker_jobs_ended_total{how=\"killed\"}"), 1.0);
        world.home.nothing_left().await;
    });
}

#[test]
fn a_page_ends_a_job_and_an_attempt_with_the_token_only() {
    block_on(async {
        let world = TestCluster::new(&[]).await;
        let mut client = world.client("alice");
        let job = waiting(&world, &mut client, "a job").await;
        let end = format!("/jobs/{}/end", job.id);
        assert!(!page(&world, &format!("/jobs/{}", job.id)).contains("End this job"));
        assert_eq!(get(&world, &end).0, 403, "no token is configured");
        assert_eq!(post(&world, &end, "token=").0, 403);
        client.kill_job(job.id.clone()).await.unwrap();
        world.ended(&mut client, &job).await;
        drop(world);

        let world = TestCluster::new(&[("corona.jt.web.kill.token", TOKEN)]).await;
        let mut client = world.client("alice");
        let job = waiting(&world, &mut client, "a job").await;
        let end = format!("/jobs/{}/end", job.id);
        assert!(page(&world, &format!("/jobs/{}", job.id)).contains(&end));
        let right = "token=a+token+of+a+test";
        // Hive and others send no token, and other sites send forms.
        let hive = format!("/jobdetails.jsp?jobid={}&action=kill", job.id);
        assert_eq!(post(&world, &hive, "").0, 403);
        let foreign = format!(
            "POST {end} HTTP/1.1\r\nHost: HOST\r\nOrigin: http://evil.example\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{right}",
            right.len()
        );
        assert_eq!(exchange(&world, &foreign).0, 403);
        let attempt = format!("/api/v1/jobs/{}/attempts/{}/end", job.id, job.map(0));
        let path = format!("jobs/{}/attempts/{}", job.id, job.map(0));
        // An attempt that has not reported yet cannot be ended.
        let (_, _, body) = until("an attempt that can be ended", || {
            let answer = post(&world, &attempt, right);
            assert!(matches!(answer.0, 200 | 409), "{} {}", answer.0, answer.2);
            (answer.0 == 200).then_some(answer)
        })
        .await;
        assert!(!body.is_empty());
        until("the end of the attempt", || {
            let state = api(&world, &path)["state"].as_str().map(str::to_owned);
            state.filter(|state| state.starts_with("KILLED"))
        })
        .await;
        let (status, _, body) = post(&world, &end, "token=wrong+but+long");
        assert_eq!(status, 403);
        assert!(body.contains("Wrong token. Nothing was ended."), "{body}");
        let (status, ..) = post(&world, &end, right);
        assert_eq!(status, 429, "a wrong one costs time");
        let (_, head, _) = until("the end of the pause", || {
            let answer = post(&world, &end, right);
            (answer.0 == 303).then_some(answer)
        })
        .await;
        assert!(head.contains(&format!("location: /jobs/{}", job.id)), "{head}");
        assert_eq!(world.ended(&mut client, &job).await.run_state, KILLED);
    });
}

#[test]
fn jobs_that_not_everybody_may_see_are_on_no_page() {
    block_on(async {
        let world = TestCluster::new(&[("corona.jt.viewers", "bob")]).await;
        let mut client = world.client("alice");
        let job = waiting(&world, &mut client, "a secret").await;
        for path in ["/".to_owned(), "/ended".to_owned(), "/api/v1/jobs".to_owned()] {
            let body = page(&world, &path);
            assert!(!body.contains("a secret") && !body.contains(&job.id.to_string()), "{path}");
        }
        assert!(page(&world, "/").contains("corona.jt.viewers"));
        let (status, _, body) = get(&world, "/api/v1/events?last=100&follow=0");
        assert_eq!(status, 403);
        assert!(body.contains("corona.jt.viewers"), "{body}");
        for rest in ["", "/tasks", "/configuration", "/history", "/failures"] {
            assert_eq!(get(&world, &format!("/jobs/{}{rest}", job.id)).0, 404);
            assert_eq!(get(&world, &format!("/api/v1/jobs/{}{rest}", job.id)).0, 404);
        }
        client.kill_job(job.id.clone()).await.unwrap();
        world.ended(&mut client, &job).await;
    });
}

#[test]
fn events_of_jobs_are_streamed() {
    block_on(async {
        let limits = [("corona.jt.web.max.connections", "8")];
        let world = TestCluster::new(&limits).await;
        let mut client = world.client("alice");
        let fails = |job: Job| {
            job.map_steps(1, "diagnose=no luck,exit=1").with("mapred.map.max.attempts", "1")
        };
        let failed = world.prepare(&mut client, 2, 0, fails).await;
        client.submit_job(failed.id.clone()).await.unwrap();
        world.ended(&mut client, &failed).await;
        let other = waiting(&world, &mut client, "another job").await;

        // All that has happened to one job.
        let path = format!("/api/v1/events?last=4096&follow=0&job={}", failed.id);
        let (status, head, body) = get(&world, &path);
        assert_eq!(status, 200);
        assert!(head.to_ascii_lowercase().contains("content-type: text/event-stream"), "{head}");
        let mut names: Vec<&str> =
            body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(
            (names.first(), names.last()),
            (Some(&"job_submitted"), Some(&"job_ended")),
            "{body}"
        );
        names.sort_unstable();
        names.dedup();
        for name in ["job_launched", "job_running", "attempt_launched", "attempt_failed"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        assert!(body.contains("no luck") && body.contains(r#""state":"FAILED""#), "{body}");
        assert!(!body.contains(&other.id.to_string()), "{body}");

        // Readers that read nothing take their places only, and a page is still there.
        let authority = world.job_tracker.pages().strip_prefix("http://").unwrap().to_owned();
        let request = format!("GET /api/v1/events HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let mut unread = Vec::new();
        for _ in 0..4 {
            let stream = until("a place for a stream", || {
                let mut stream = TcpStream::connect(&authority).unwrap();
                stream.write_all(request.as_bytes()).unwrap();
                let mut status = [0; b"HTTP/1.1 200".len()];
                stream.read_exact(&mut status).unwrap();
                (status == *b"HTTP/1.1 200").then_some(stream)
            });
            unread.push(stream.await);
        }
        assert_eq!(get(&world, "/api/v1/events?follow=0").0, 503);
        assert!(page(&world, "/").contains("another job"));
        client.kill_job(other.id.clone()).await.unwrap();
        assert_eq!(world.ended(&mut client, &other).await.run_state, KILLED);
        drop(unread);
        let path = format!("/api/v1/events?last=4096&follow=0&job={}", other.id);
        let body = until("a place", || {
            let (status, _, body) = get(&world, &path);
            (status == 200 && body.contains("event: job_ended")).then_some(body)
        })
        .await;
        assert!(body.contains(r#""state":"KILLED""#), "{body}");
    });
}

#[test]
fn an_attacker_of_the_pages_delays_nobody_else() {
    block_on(async {
        let limits =
            [("corona.jt.web.max.connections", "8"), ("corona.jt.web.probe.connections", "2")];
        let world = TestCluster::new(&limits).await;
        let mut client = world.client("alice");
        let job = waiting(&world, &mut client, "an innocent job").await;
        let authority = world.job_tracker.pages().strip_prefix("http://").unwrap().to_owned();
        // Requests that never end, and answers that are never read.
        let mut held = Vec::new();
        for number in 0..40 {
            let Ok(mut stream) = TcpStream::connect(&authority) else { continue };
            let request = match number % 2 {
                0 => format!("GET / HTTP/1.1\r\nHost: {authority}\r\nX-Slow: "),
                _ => {
                    format!("GET /jobs/{} HTTP/1.1\r\nHost: {authority}\r\n\r\n", job.id).repeat(50)
                }
            };
            // It may be refused already.
            let _ = stream.write_all(request.as_bytes());
            held.push(stream);
        }
        for wrong in [
            "\0\x01\x02\r\n\r\n",
            "GET / HTTP/9.9\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        ] {
            if let Ok(mut stream) = TcpStream::connect(&authority) {
                let _ = stream.write_all(wrong.as_bytes());
            }
        }
        // Clients and task trackers have another port, and are served.
        let status = client.get_job_status(job.id.clone()).await.unwrap().unwrap();
        assert_eq!(status.run_state, RUNNING);
        client.kill_job(job.id.clone()).await.unwrap();
        assert_eq!(world.ended(&mut client, &job).await.run_state, KILLED);
        drop(held);
        until("pages again", || {
            let mut stream = TcpStream::connect(&authority).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
            let request =
                format!("GET / HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        })
        .await;
        world.home.nothing_left().await;
    });
}

/// How many tables show only a part of themselves.
const CUT_OFF: &str = "[...document.querySelectorAll('.scroll')] \
                       .filter((box) => box.scrollWidth > box.clientWidth).length";

#[test]
fn all_pages_of_jobs_fit_and_survive_refreshes() {
    block_on(async {
        let world = TestCluster::new(&[("corona.jt.web.kill.token", TOKEN)]).await;
        let mut client = world.client("alice");
        // One that fails in part, one that is whole, and one that waits under a hostile name.
        let fails = |job: Job| {
            job.map_steps(1, "diagnose=no luck on this machine\nat line two,exit=1")
                .with("mapred.map.max.attempts", "1")
                .with("mapred.job.name", "index: shard 7 of 64")
        };
        let failed = world.prepare(&mut client, 3, 1, fails).await;
        client.submit_job(failed.id.clone()).await.unwrap();
        world.ended(&mut client, &failed).await;
        let whole = world
            .prepare(&mut client, 12, 2, |job| job.with("mapred.job.name", "nightly: join clicks"))
            .await;
        client.submit_job(whole.id.clone()).await.unwrap();
        assert_eq!(world.ended(&mut client, &whole).await.run_state, SUCCEEDED);
        let job = waiting(&world, &mut client, HOSTILE).await;
        let (id, ended, lost) = (&job.id, &whole.id, &failed.id);
        let pages = [
            ("running", "/".to_owned()),
            ("ended", "/ended".to_owned()),
            ("trackers", "/trackers".to_owned()),
            ("job", format!("/jobs/{id}")),
            ("job-whole", format!("/jobs/{ended}")),
            ("job-failed", format!("/jobs/{lost}")),
            ("tasks", format!("/jobs/{ended}/tasks?kind=map")),
            ("task", format!("/jobs/{lost}/tasks/{}", failed.map(1).task)),
            ("attempt", format!("/jobs/{lost}/attempts/{}", failed.map(1))),
            ("attempt-reduce", format!("/jobs/{ended}/attempts/{}", whole.reduce(0))),
            ("failures", format!("/jobs/{lost}/failures")),
            ("configuration", format!("/jobs/{ended}/configuration?q=mapred")),
            ("end", format!("/jobs/{id}/end")),
            ("missing", "/nothing/here".to_owned()),
        ];
        let address = world.job_tracker.pages();
        let directory = repository().join("target/web");
        std::fs::create_dir_all(&directory).expect("a directory for pictures");
        let mut browser = Browser::start();
        for (name, path) in &pages {
            for (width, dark) in
                [(1920, false), (1400, true), (1400, false), (400, false), (360, true)]
            {
                browser.look_through(width, dark);
                browser.open(&format!("{address}{path}"));
                let wider = "document.documentElement.scrollWidth - window.innerWidth";
                assert_eq!(browser.value(wider), 0, "{path} is wider than {width}");
                if !(600..1400).contains(&width) {
                    assert_eq!(browser.value(CUT_OFF), 0, "{path}: a table is wider than {width}");
                }
                let theme = if dark { "dark" } else { "light" };
                browser.picture(&directory.join(format!("jobs-{name}-{width}-{theme}.png")));
            }
        }
        assert_eq!(browser.value("window.harmed === undefined"), true);

        // A page patches itself: the focus stays, and a click during a refresh is not lost.
        browser.look_through(1400, false);
        browser.open(&format!("{address}/jobs/{id}"));
        browser.value(
            "window.mark = document.querySelector('#job .facts'); \
                       document.querySelector('.links a').focus(); 0",
        );
        let shown = browser.text("#as-of");
        browser.until("a refresh", |browser| browser.text("#as-of") != shown);
        assert_eq!(browser.value("document.querySelector('#job .facts') === window.mark"), true);
        assert_eq!(browser.value("document.activeElement.textContent"), "Maps");
        client.kill_job(job.id.clone()).await.unwrap();
        browser.until("the end of the job", |browser| browser.text("#job .badge") == "KILLED");
        browser.click(".links a");
        browser.until("the page of its tasks", |browser| browser.text("h1").starts_with("Maps of"));
        assert_eq!(browser.value("window.harmed === undefined"), true);
        let complaints = browser.complaints();
        // The page that is not there is one.
        let unexpected: Vec<&String> = complaints.iter().filter(|it| !it.contains("404")).collect();
        assert!(unexpected.is_empty(), "{unexpected:?}");
    });
}
