//! Finished jobs: the recorded addresses, search, and what keeps histories from being read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use corona_filesystem::testing::{Faults, MiniCluster};
use corona_filesystem::{CreateOptions, FileSystems};

use super::{PATIENCE, Running, lay_out};

/// Recorded histories that have an end, and all.
const ENDED: usize = 10;
const ALL: usize = 12;

/// Addresses of running jobs, which have no history, and of what every web server of Java has.
const NOT_OF_HISTORY: [&str; 3] = ["pjt-proxy-", "pjt-post-", "pjt-metrics"];

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_address_answers_with_what_it_was_asked_for() {
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("sessions"));
    let proxy = Running::start(root.path(), &[]).await;
    let urls = include_str!("../../../fixtures/recordings/job-clients/pages/urls.txt");
    let mut asked = 0;
    for line in urls.lines().filter(|line| line.starts_with("pjt-")) {
        let name = line.split(' ').next().unwrap();
        if NOT_OF_HISTORY.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let (_, address) = line.split_once("http://localhost:28337").unwrap();
        let own = format!("file:{}/sessions", root.path().display());
        let address = address.replace("file:/data/hadoop01/var/data/sessions", &own);
        let recorded: u16 = line.split("HTTP/1.1 ").nth(1).unwrap()[..3].parse().unwrap();
        let (status, body) = proxy.get(&address).await;
        let expected = match name {
            // PJ-3, and a page to which the original only has links.
            "pjt-badjobid" => 400,
            "pjt-ok-taskstatshistory-404" => 200,
            // PJ-1.
            _ if body.starts_with("Could not connect to Job Tracker") => 403,
            _ => recorded,
        };
        assert_eq!(status, expected, "{address}: {body}");
        for parameter in ["attemptid", "taskid", "jobid"] {
            let value = address.split(&format!("{parameter}=")).nth(1);
            let Some(value) = value.filter(|_| status == 200) else { continue };
            let value = value.split('&').next().unwrap();
            assert!(body.contains(value), "{address} does not show {value}: {body}");
            break;
        }
        asked += 1;
    }
    assert!(asked > 20, "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_job_shows_what_the_original_showed() {
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("sessions"));
    let proxy = Running::start(root.path(), &[]).await;
    let (_, page) = proxy.get("/coronajobdetailshistory.jsp?jobid=job_202611221049.2_0001").await;
    let shown = |text: &str| assert!(page.contains(text), "{text}: {page}");
    shown("bad &quot;map&quot; = a.b");
    shown("Analyse This Job");
    let original = include_str!(
        "../../../fixtures/recordings/job-clients/pages/pjt-ok-jobdetailshistory.html"
    );
    // The numbers of its counters, with other gaps between thousands.
    let numbers: Vec<String> = original
        .split("align=\"right\">")
        .skip(1)
        .filter_map(|cell| cell.split('<').next())
        .map(|cell| cell.trim().replace(',', "\u{202f}"))
        .filter(|cell| cell.len() > 5 && cell.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert!(numbers.len() > 10, "{numbers:?}");
    for number in numbers {
        shown(&number);
    }
    let job = proxy.json("/api/v1/jobs/job_202611221049.2_0001").await;
    assert_eq!(
        (&job["state"], &job["kinds"]["map"]["succeeded"]),
        (&"succeeded".into(), &3.into())
    );
    assert_eq!(job["damaged_records"], 0);
    let tasks = proxy.json("/api/v1/jobs/job_202611221049.4_0001/tasks?status=failed").await;
    assert!(tasks["total"].as_u64().unwrap() > 0, "{tasks}");
    assert!(tasks["attempts"][0]["error"].as_str().unwrap().contains("Exception"), "{tasks}");
    let (status, page) =
        proxy.get("/compare?a=job_202611221049.2_0001&b=job_202611221049.1_0001").await;
    assert_eq!(status, 200);
    assert!(page.contains("Spilled Records") && page.contains("job_202611221049.1_0001"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_served_as_it_is_and_only_under_own_names() {
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("sessions"));
    let job = "job_202611221049.2_0001";
    let proxy = Running::start(root.path(), &[("corona.pjt.http.hosts", "jobs.example")]).await;
    let recorded = fs::read_to_string(root.path().join("sessions/202611221049.0/done").join(job));
    assert_eq!(proxy.get(&format!("/jobs/{job}/history")).await, (200, recorded.unwrap()));
    assert_eq!(proxy.get("/jobs/job_1.1_0001/history").await.0, 404);
    for (host, path, status) in [
        ("jobs.example:80", "/jobs", 200),
        ("localhost", "/jobs", 200),
        ("evil.example", "/jobs", 421),
        ("evil.example", "/metrics", 421),
        ("evil.example", "/healthz", 200),
        ("evil.example", "/readyz", 200),
    ] {
        assert_eq!(proxy.get_as(host, path).await.0, status, "{host} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_cannot_be_looked_at_hide_no_job() {
    let root = tempfile::tempdir().unwrap();
    let sessions = root.path().join("sessions");
    lay_out(&sessions);
    let directory = sessions.join("202611221049.0");
    // Links that lead to themselves, and one that leads through a file.
    symlink("202611221049.7", sessions.join("202611221049.7")).unwrap();
    symlink("job_202611221049.93_0001", directory.join("job_202611221049.93_0001")).unwrap();
    let through = directory.join("done/job_202611221049.2_0001/x");
    symlink(through, directory.join("done/job_202611221049.94_0001")).unwrap();
    let proxy = Running::start(root.path(), &[]).await;
    proxy.until_jobs("", ALL).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, page) = proxy.get("/jobs").await;
        if page.contains("3 histories or other entries of their directories could not be read") {
            assert!(!page.contains("The log says why"), "{page}");
            break;
        }
        assert!(Instant::now() < deadline, "{page}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // What ends later is found.
    let history = fs::read(directory.join("done/job_202611221049.2_0001")).unwrap();
    fs::write(directory.join("done/job_202611221049.95_0001"), history).unwrap();
    proxy.until_jobs("", ALL + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_jobs_are_sorted_by_any_column() {
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("sessions"));
    let proxy = Running::start(root.path(), &[]).await;
    let jobs = proxy.until_jobs("", ALL).await;
    let all: Vec<&str> =
        jobs["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    let rows = async |query: &str| -> Vec<String> {
        let (_, page) = proxy.get(&format!("/jobs?{query}")).await;
        let rows = page.split("<tr data-key=\"").skip(1);
        rows.map(|row| row.split('"').next().unwrap().to_owned()).collect()
    };
    assert_eq!(rows("").await, all, "the last submitted first");
    let mut by_id: Vec<&str> = all.clone();
    by_id.sort_unstable();
    assert_eq!(rows("sort=id").await, by_id);
    by_id.reverse();
    assert_eq!(rows("sort=-id").await, by_id);
    assert_eq!(rows("sort=-id&rows=5&page=2").await, by_id[5..10]);
    let maps = |id: &String| {
        let job = jobs["jobs"].as_array().unwrap().iter().find(|job| job["id"] == **id);
        job.unwrap()["maps"].as_u64().unwrap()
    };
    let most_first = rows("sort=-maps").await;
    assert!(most_first.is_sorted_by_key(|id| std::cmp::Reverse(maps(id))), "{most_first:?}");
    for column in ["name", "user", "pool", "state", "submitted", "took", "reduces", "failures"] {
        let (_, page) = proxy.get(&format!("/jobs?state=succeeded&sort={column}")).await;
        let link = format!("/jobs?state=succeeded&amp;sort=-{column}");
        assert!(page.contains(&link), "{column}: {page}");
    }
}

/// The lines of a traceback stay lines.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_shows_its_reason_as_it_was_written() {
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("sessions"));
    let proxy = Running::start(root.path(), &[]).await;
    let (jobs, mut failed) = (proxy.until_jobs("", ALL).await, 0);
    for job in jobs["jobs"].as_array().unwrap() {
        let id = job["id"].as_str().unwrap();
        let (_, page) = proxy.get(&format!("/jobs/{id}")).await;
        let reason = page.split("<pre class=\"text\" tabindex=\"0\">").nth(1);
        if job["state"] != "failed" {
            assert_eq!(reason, None, "{id}");
            continue;
        }
        let reason =
            reason.unwrap_or_else(|| panic!("{id}: {page}")).split("</pre>").next().unwrap();
        let link = page.split("<h2><a href=\"").nth(1).unwrap().split('"').next().unwrap();
        let (_, task) = proxy.get(link).await;
        let shown = format!("<span class=\"long lines\">{reason}</span>");
        assert!(!reason.is_empty() && task.contains(&shown), "{id}: {reason}: {task}");
        failed += 1;
    }
    assert!(failed > 0);
}

/// A failed or killed attempt has no counters in a history.
#[tokio::test(flavor = "multi_thread")]
async fn every_link_to_counters_leads_to_some() {
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("sessions"));
    let proxy = Running::start(root.path(), &[]).await;
    let jobs = proxy.until_jobs("", ALL).await;
    let (mut shown, mut without) = (0, 0);
    for job in jobs["jobs"].as_array().unwrap() {
        let job = job["id"].as_str().unwrap();
        let tasks = proxy.json(&format!("/api/v1/jobs/{job}/tasks")).await;
        for attempt in tasks["attempts"].as_array().unwrap() {
            let [id, task] = ["attempt", "task"].map(|name| attempt[name].as_str().unwrap());
            let (_, page) = proxy.get(&format!("/jobs/{job}/tasks/{task}")).await;
            let link = format!("/jobs/{job}/counters/{id}");
            match page.contains(&format!("href=\"{link}\"")) {
                true => {
                    shown += 1;
                    assert_eq!(proxy.get(&link).await.0, 200, "{link}");
                }
                false => {
                    without += 1;
                    assert_ne!(attempt["status"], "SUCCESS", "{id}: {page}");
                    assert_eq!(proxy.get(&link).await.0, 404, "{link}");
                }
            }
        }
    }
    assert!(shown > 10 && without > 0, "{shown} {without}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_indexed_searched_and_known_at_once_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let sessions = root.path().join("sessions");
    let proxy = Running::start(root.path(), &[]).await;
    // The directory appears later.
    proxy.until_jobs("", 0).await;
    lay_out(&sessions);
    proxy.until_jobs("", ALL).await;
    proxy.until_jobs("?state=incomplete", ALL - ENDED).await;
    proxy.until_jobs("?user=root&name=SLEEP&state=succeeded", 1).await;
    proxy.until_jobs("?user=nobody", 0).await;
    proxy.until_jobs("?until=2026-11-22", ALL - ENDED).await;
    let (_, page) = proxy.get("/jobs?state=killed").await;
    assert!(page.contains("job_202611221049.5_0001"), "{page}");
    assert!(!page.contains("job_202611221049.2_0001"), "{page}");
    let (_, page) = proxy.get("/coronajobhistory.jsp?pageno=1&search=root:map").await;
    assert!(page.contains("job_202611221049.2_0001"), "{page}");
    // A job ends.
    let (from, to) = ("202611221049.0", "202611221049.0/done");
    let name = "job_202611221049.17_0001";
    fs::write(
        sessions.join(to).join(name),
        "Meta VERSION=\"1\" .\nJob JOBID=\"job_202611221049\\.17_0001\" USER=\"x\" JOB_STATUS=\"FAILED\" .\n",
    )
    .unwrap();
    fs::remove_file(sessions.join(from).join(name)).unwrap();
    proxy.until_jobs("?state=failed&user=x", 1).await;
    drop(proxy);
    // The histories are not there: what is known comes from the stored index.
    let deadline = Instant::now() + PATIENCE;
    while !root.path().join("data/history.index").exists() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let interval = [("corona.pjt.index.interval.ms", "3600000")];
    let proxy = Running::start(root.path(), &interval).await;
    proxy.until_jobs("", ALL).await;
    // A directory that was deleted takes its jobs along.
    fs::remove_dir_all(sessions.join(from)).unwrap();
    drop(proxy);
    let proxy = Running::start(root.path(), &[]).await;
    proxy.until_jobs("", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_are_shown_as_far_as_they_go_and_never_from_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    let sessions = root.path().join("sessions");
    lay_out(&sessions);
    let done = sessions.join("202611221049.0/done");
    let whole = fs::read(done.join("job_202611221049.2_0001")).unwrap();
    fs::write(done.join("job_202611221049.90_0001"), &whole[..whole.len() / 2]).unwrap();
    fs::write(root.path().join("secret"), &whole).unwrap();
    symlink(root.path().join("secret"), done.join("job_202611221049.91_0001")).unwrap();
    let proxy = Running::start(root.path(), &[]).await;
    let (status, page) = proxy.get("/jobs/job_202611221049.90_0001").await;
    assert_eq!(status, 200);
    assert!(
        page.contains("Incomplete") && page.contains("records of the history are damaged"),
        "{page}"
    );
    assert!(page.contains("bad &quot;map&quot; = a.b"), "{page}");
    for address in [
        "/jobs/job_202611221049.91_0001".to_owned(),
        format!("/coronajobdetailshistory.jsp?jobid=j&logFile={}/secret", root.path().display()),
        "/coronajobdetailshistory.jsp?jobid=j&logFile=/etc/passwd".to_owned(),
        "/coronajobconf_history.jsp?jobLogDir=/etc&jobUniqueString=passwd".to_owned(),
        "/proxy?historydir=../..&jobid=job_202611221049.2_0001".to_owned(),
    ] {
        let (status, body) = proxy.get(&address).await;
        assert!(matches!(status, 400 | 404), "{address}: {status} {body}");
        assert!(
            !body.contains("bad &quot;map&quot;") && !body.contains("root:"),
            "{address}: {body}"
        );
    }
}

/// Recorded histories of a classic job tracker, beside those of sessions.
#[tokio::test(flavor = "multi_thread")]
async fn histories_of_classic_job_trackers_are_listed_too() {
    const NAMED: &str = "localhost_1795343630800_job_202611221033_0008_root_bad+%22map%22+%3D+a.b";
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("sessions"));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/recordings/job-clients/classic-history");
    let running = root.path().join("classic");
    let done = running.join("done");
    fs::create_dir_all(&done).unwrap();
    for entry in fs::read_dir(fixtures).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), done.join(entry.file_name())).unwrap();
    }
    // A job that runs.
    let whole = fs::read(done.join(NAMED)).unwrap();
    let unfinished = "localhost_1795343630800_job_202611221033_0009_eve_runs";
    fs::write(running.join(unfinished), &whole[..whole.len() / 2]).unwrap();
    let location = [("hadoop.job.history.location", running.to_str().unwrap())];
    let proxy = Running::start(root.path(), &location).await;
    proxy.until_jobs("", ALL + 4).await;
    proxy.until_jobs("?q=job_202611221033&state=incomplete", 1).await;
    proxy.until_jobs("?name=word%20count&q=job_202611221033", 1).await;
    let job = "job_202611221033_0008";
    let of_file = running.join("done").join(NAMED.replace('%', "%25"));
    for address in [
        format!("/jobs/{job}"),
        format!("/jobs/{job}/tasks"),
        format!("/jobdetailshistory.jsp?jobid={job}"),
        format!(
            "/jobdetailshistory.jsp?logFile={}",
            of_file.display().to_string().replace('+', "%2B")
        ),
        format!("/jobs/{job}/history"),
    ] {
        let (status, body) = proxy.get(&address).await;
        assert_eq!(status, 200, "{address}: {body}");
        assert!(body.contains(job), "{address}: {body}");
    }
    let (_, page) = proxy.get(&format!("/jobs/{job}")).await;
    assert!(page.contains("bad &quot;map&quot; = a.b"), "{page}");
    let (_, page) = proxy.get(&format!("/jobs/{job}/configuration")).await;
    assert!(page.contains("mapred.job.name"), "{page}");
    let unique = "localhost_1795343630800_job_202611221033_0008";
    let address = format!(
        "/jobconf_history.jsp?jobid={job}&jobLogDir={}&jobUniqueString={unique}",
        done.display()
    );
    let (status, page) = proxy.get(&address).await;
    assert!(status == 200 && page.contains("mapred.job.name"), "{status} {page}");
    for address in [
        format!("/jobdetailshistory.jsp?logFile={}/../sessions", done.display()),
        format!("/jobconf_history.jsp?jobLogDir={}/..&jobUniqueString={unique}", done.display()),
    ] {
        assert!(matches!(proxy.get(&address).await.0, 400 | 404), "{address}");
    }
    // The job ends, another one is deleted, and a restart knows all from the stored index.
    fs::remove_file(running.join(unfinished)).unwrap();
    let ended = unfinished.replace("_runs", "_has+ended");
    fs::write(done.join(ended), &whole).unwrap();
    proxy.until_jobs("?q=job_202611221033&state=incomplete", 0).await;
    proxy.until_jobs("?q=job_202611221033", 4).await;
    fs::remove_file(done.join(NAMED)).unwrap();
    proxy.until_jobs("?q=job_202611221033", 3).await;
    drop(proxy);
    let proxy = Running::start(root.path(), &location).await;
    proxy.until_jobs("", ALL + 3).await;
    drop(proxy);
    // Without the directory they are of no interest.
    let proxy = Running::start(root.path(), &[]).await;
    proxy.until_jobs("", ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_is_silent_keeps_nobody_else_waiting() {
    let root = tempfile::tempdir().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = format!("hdfs://{}/sessions", silent.local_addr().unwrap());
    let settings =
        [("corona.sessions.log.dir", &*directory), ("corona.pjt.file.timeout.ms", "300")];
    let proxy = Running::start(root.path(), &settings).await;
    let waiting = proxy.get("/jobs/job_202611221049.2_0001");
    let others = async {
        let begun = Instant::now();
        for path in ["/healthz", "/jobs", "/metrics", "/api/v1/statistics"] {
            assert_eq!(proxy.get(path).await.0, 200, "{path}");
        }
        begun.elapsed()
    };
    let ((status, body), _) = tokio::join!(waiting, others);
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("does not answer in time"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_directory_that_cannot_be_read_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    let sessions = root.path().join("sessions");
    lay_out(&sessions);
    // A file where a directory of finished jobs should be, and a file that is no history.
    fs::create_dir_all(sessions.join("1.0/done")).unwrap();
    fs::create_dir_all(sessions.join("1.0/done/job_1.1_0001")).unwrap();
    fs::write(sessions.join("1.0/done/job_1.2_0001"), [0xff_u8; 5000]).unwrap();
    fs::write(sessions.join("2.0"), "a file").unwrap();
    let proxy = Running::start(root.path(), &[]).await;
    proxy.until_jobs("", ALL + 1).await;
    assert_eq!(proxy.get("/jobs/job_1.2_0001").await.0, 200);
    assert_eq!(proxy.get("/jobs/job_1.1_0001").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn data_nodes_that_send_nothing_delay_only_what_needs_them() {
    let root = tempfile::tempdir().unwrap();
    lay_out(&root.path().join("local"));
    let cluster = MiniCluster::start(2).await;
    let files = FileSystems::new(cluster.settings()).unwrap();
    let (known, other) = ("job_202611221049.2_0001", "job_202611221049.1_0001");
    for name in [known, "job_202611221049.2_0001_conf.xml", other] {
        let (system, path) =
            files.resolve(&format!("/sessions/202611221049.0/done/{name}")).unwrap();
        let mut writer = system.create(&path, CreateOptions::default()).await.unwrap();
        let recorded = fs::read(root.path().join("local/202611221049.0/done").join(name)).unwrap();
        writer.write(&recorded).await.unwrap();
        writer.close().await.unwrap();
    }
    let default = format!("hdfs://{}/", cluster.address());
    let settings = [
        ("fs.default.name", &*default),
        ("corona.sessions.log.dir", "/sessions"),
        ("corona.pjt.file.timeout.ms", "1000"),
    ];
    let proxy = Running::start(root.path(), &settings).await;
    proxy.until_jobs("", 2).await;
    let (_, page) = proxy.get(&format!("/jobs/{known}/configuration")).await;
    assert!(page.contains("mapred.job.name"), "{page}");
    let (status, page) = proxy.get(&format!("/proxy?jobid={known}")).await;
    assert!(status == 200 && page.contains("bad &quot;map&quot; = a.b"), "{status} {page}");
    for node in &cluster.data_nodes {
        node.set_faults(Faults { is_stuck: true, ..Faults::default() });
    }
    let address = format!("/jobs/{other}");
    let late = proxy.get(&address);
    let innocent = async {
        // It is in memory, and its file has not changed.
        let (_, page) = proxy.get(&format!("/jobs/{known}")).await;
        assert!(page.contains("bad &quot;map&quot;"), "{page}");
        proxy.until_jobs("?name=map", 1).await;
    };
    let ((_, page), ()) = tokio::join!(late, innocent);
    assert!(page.contains("does not answer in time"), "{page}");
    for node in &cluster.data_nodes {
        node.set_faults(Faults::default());
    }
    let deadline = Instant::now() + PATIENCE;
    while proxy.get(&address).await.1.contains("cannot be shown") {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_huge_directories_and_a_full_disk_stop_nothing() {
    let root = tempfile::tempdir().unwrap();
    let sessions = root.path().join("sessions");
    lay_out(&sessions);
    let done = sessions.join("202611221049.0/done");
    // Opening a pipe waits for a writer that never comes.
    let pipe = done.join("job_202611221049.93_0001");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for number in 0..5000 {
        fs::write(done.join(format!("junk-{number}")), "x").unwrap();
    }
    // A directory that cannot be made stands for a disk that takes nothing.
    fs::write(root.path().join("data"), "a file").unwrap();
    let proxy = Running::start(root.path(), &[("corona.pjt.file.timeout.ms", "1000")]).await;
    proxy.until_jobs("", ALL).await;
    let (_, page) = proxy.get("/jobs/job_202611221049.93_0001").await;
    assert!(page.contains("cannot be shown"), "{page}");
    let (_, page) = proxy.get("/jobs/job_202611221049.2_0001").await;
    assert!(page.contains("bad &quot;map&quot;"), "{page}");
    let (_, metrics) = proxy.get("/metrics").await;
    assert!(metrics.contains("corona_proxy_job_tracker_index_failed 0\n"), "{metrics}");
    // It is tried again, and counts once.
    let deadline = Instant::now() + PATIENCE;
    let tries = |metrics: &str| -> u64 {
        let name = "\ncorona_proxy_job_tracker_unreadable_histories_total ";
        metrics.split(name).nth(1).unwrap().lines().next().unwrap().parse().unwrap()
    };
    while tries(&proxy.get("/metrics").await.1) < 3 {
        assert!(Instant::now() < deadline);
    }
    assert!(proxy.get("/jobs").await.1.contains("1 histories or other entries"));
    fs::remove_file(pipe).unwrap();
    fs::copy(done.join("job_202611221049.2_0001"), done.join("job_202611221049.93_0001")).unwrap();
    proxy.until_jobs("", ALL + 1).await;
}
