//! What peers ask while jobs run: the flag of safe mode, the directory of jobs, pages of job trackers,
//! and reports.

use std::net::SocketAddr;

use compat_tests::repository;
use compat_tests::serving::free_port;
use corona::hadoop::protocols::job_aggregator::CoronaJobAggregatorClient;
use corona::hadoop::rpc::{ClientOptions, User};
use corona::hadoop::writables::{Counter, CounterGroup, Counters, InetAddress, JobStats};
use corona::wire::calls::{
    ClusterManager, ClusterManagerCall, ClusterManagerReply, ProxyJobTracker, ProxyJobTrackerCall,
    ProxyJobTrackerReply,
};
use corona::wire::generated::{InetAddress as Address, PoolInfoStrings, SessionInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Proxy, client, pair};

async fn flag(proxy: &Proxy) -> bool {
    let mut peer = client::<ProxyJobTracker>(proxy.thrift).await;
    match peer.call(&ProxyJobTrackerCall::GetClusterManagerSafeModeFlag).await.unwrap() {
        ProxyJobTrackerReply::GetClusterManagerSafeModeFlag(flag) => flag,
        other => panic!("{other:?}"),
    }
}

/// Starts a session whose pages are at `url`; returns its handle.
async fn session(manager: SocketAddr, url: &str) -> String {
    session_on(manager, "127.0.0.1", url).await
}

/// The same for a session that says that it is on this host.
async fn session_on(manager: SocketAddr, host: &str, url: &str) -> String {
    let mut peer = client::<ClusterManager>(manager).await;
    let handle = match peer.call(&ClusterManagerCall::GetNextSessionId).await.unwrap() {
        ClusterManagerReply::GetNextSessionId(handle) => handle,
        other => panic!("{other:?}"),
    };
    let address = Address { host: host.into(), port: 1 };
    let pool = PoolInfoStrings::new("default".into(), "alice".into());
    let (name, user, url) = ("job".into(), "alice".into(), url.to_owned());
    let info = SessionInfo::new(address, name, user, None, pool, None, None, url, None);
    let call = ClusterManagerCall::SessionStart { handle: Some(handle.clone()), info: Some(info) };
    peer.call(&call).await.unwrap();
    handle
}

/// Pages of a job tracker, which show the first line of each request and its body.
async fn job_tracker() -> SocketAddr {
    let listener = free_port();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while let Ok(1..) = stream.read_buf(&mut request).await {
                let text = String::from_utf8_lossy(&request);
                let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
                });
                if text.contains("\r\n\r\n") && body.len() >= length.unwrap_or(0) {
                    let page = format!("{} | {body}", head.lines().next().unwrap_or_default());
                    let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain";
                    let reply = format!("{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
                    let _ = stream.write_all(reply.as_bytes()).await;
                    break;
                }
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_manager_sets_the_flag_that_peers_poll() {
    let root = tempfile::tempdir().unwrap();
    let (proxy, manager) = pair(root.path(), &[]);
    assert!(!flag(&proxy).await);
    let mut peer = client::<ClusterManager>(manager.thrift()).await;
    for on in [true, false] {
        let set = peer.call(&ClusterManagerCall::SetSafeMode { safe_mode: on }).await.unwrap();
        assert_eq!(set, ClusterManagerReply::SetSafeMode(true));
        assert_eq!(flag(&proxy).await, on);
        let (_, _, metrics) = proxy.get("/metrics").await;
        let line = format!("corona_proxy_job_tracker_safe_mode {}\n", u8::from(on));
        assert!(metrics.contains(&line), "{metrics}");
    }
    let mut peer = client::<ProxyJobTracker>(proxy.thrift).await;
    let directory = peer.call(&ProxyJobTrackerCall::GetSystemDir).await.unwrap();
    let expected = format!("file:{}", root.path().join("system").display());
    assert_eq!(directory, ProxyJobTrackerReply::GetSystemDir(expected));
    let clean = ProxyJobTrackerCall::CleanJobHistoryCache { job_id: Some("job_x".into()) };
    assert_eq!(peer.call(&clean).await.unwrap(), ProxyJobTrackerReply::CleanJobHistoryCache);
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(proxy.get(probe).await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_reach_the_job_trackers_that_sessions_have_announced_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let (proxy, manager) = pair(root.path(), &[]);
    let (tracker, other) = (job_tracker().await, job_tracker().await);
    let url = format!(
        "http://{}/proxy?host={}&port={}&path=coronajobdetails.jsp",
        proxy.http,
        tracker.ip(),
        tracker.port()
    );
    let handle = session(manager.thrift(), &url).await;
    let job = format!("job_{handle}_0001");
    // The name of an address that no job has announced leads nowhere, whatever listens there.
    let at = |of: SocketAddr| format!("/proxy?host={}&port={}", of.ip(), of.port());
    let (status, head, body) =
        proxy.get(&format!("{}&path=a.jsp&jobid={job}&x=1%262", at(tracker))).await;
    assert_eq!((status, &*body), (200, &*format!("GET /a.jsp?jobid={job}&x=1%262 HTTP/1.1 | ")));
    // As the original, but browsers run nothing of it.
    let head = head.to_ascii_lowercase();
    let policy =
        "content-security-policy: sandbox allow-forms allow-same-origin; default-src 'none'";
    for line in ["content-type: text/html", "x-content-type-options: nosniff", policy] {
        assert!(head.contains(line), "{head}");
    }
    let (_, _, body) = proxy.get(&format!("{}&path=b.jsp", at(tracker))).await;
    assert_eq!(body, "GET /b.jsp HTTP/1.1 | ", "found without a job id");
    let named = format!("/proxy?host=localhost&port={}&path=c.jsp", tracker.port());
    assert_eq!(proxy.get(&named).await.2, "GET /c.jsp HTTP/1.1 | ", "by another name");
    let (status, _, body) = proxy.get(&format!("{}&path=a.jsp", at(other))).await;
    assert_eq!(status, 403);
    assert!(body.starts_with("Could not connect to Job Tracker at 127.0.0.1:"), "{body}");
    // Pages that a session announces on a host that is not its own.
    let elsewhere = job_tracker().await;
    session_on(manager.thrift(), "elsewhere.invalid", &format!("http://{elsewhere}/")).await;
    assert_eq!(proxy.get(&format!("{}&path=a.jsp", at(elsewhere))).await.0, 403);
    // Forms, but not those of other sites.
    let form = "action=changeprio&prio=HIGH";
    let to = format!("{}&path=coronajobdetails.jsp&jobid={job}", at(tracker));
    let (_, _, body) = proxy.post(&to, form, "").await;
    let expected = format!("jobid={}&action=changeprio&prio=HIGH", job);
    assert_eq!(body, format!("POST /coronajobdetails.jsp HTTP/1.1 | {expected}"));
    let (status, _, _) = proxy.post(&to, form, "Origin: http://elsewhere\r\n").await;
    assert_eq!(status, 403);
    // Without an address: the job's pages, wherever they are.
    let (status, head, _) = proxy.get(&format!("/proxy?jobid={job}")).await;
    assert_eq!(status, 302);
    assert!(head.contains(&url), "{head}");
    for (query, expected) in
        [("", 400), ("?jobid=job_202001010000.1_0001", 400), ("?jobid=nonsense", 400)]
    {
        assert_eq!(proxy.get(&format!("/proxy{query}")).await.0, expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_relayed_pages_lead_through_the_proxy() {
    let root = tempfile::tempdir().unwrap();
    let (proxy, manager) = pair(root.path(), &[]);
    let (tracker, other) = (job_tracker().await, job_tracker().await);
    let handle = session(manager.thrift(), &format!("http://{tracker}/coronajobdetails.jsp")).await;
    let job = format!("job_{handle}_0001");
    let at = |of: SocketAddr, page: &str| format!("/proxy/{of}/{page}");
    let (status, head, body) =
        proxy.get(&at(tracker, &format!("jobs/{job}/tasks?kind=map&x=1%262"))).await;
    let asked = format!("GET /jobs/{job}/tasks?kind=map&x=1%262 HTTP/1.1 | ");
    assert_eq!((status, &*body), (200, &*asked));
    // Other content is served as plain text, and browsers run no script of a job tracker.
    let head = head.to_ascii_lowercase();
    for line in [
        "content-type: text/plain",
        "x-content-type-options: nosniff",
        "content-security-policy: sandbox ",
        "script-src 'self'",
    ] {
        assert!(head.contains(line), "{head}");
    }
    for (page, expected) in [("", "GET / HTTP/1.1 | "), ("?a=b", "GET /?a=b HTTP/1.1 | ")] {
        assert_eq!(proxy.get(&at(tracker, page)).await.2, expected);
    }
    assert_eq!(proxy.get(&format!("/proxy/{tracker}")).await.2, "GET / HTTP/1.1 | ");
    // Forms, but not those of other sites.
    let end = at(tracker, &format!("jobs/{job}/end"));
    let (_, _, body) = proxy.post(&end, "token=a%26b", "").await;
    assert_eq!(body, format!("POST /jobs/{job}/end HTTP/1.1 | token=a%26b"));
    let (status, _, _) = proxy.post(&end, "token=a", "Origin: http://elsewhere\r\n").await;
    assert_eq!(status, 403);
    // Addresses that no job has announced, and none at all: the history of the job, if one is named.
    for place in [other.to_string(), "localhost:1".into(), "nothing".into(), "h:0".into()] {
        let (status, head, _) = proxy.get(&format!("/proxy/{place}/jobs/{job}/tasks")).await;
        assert_eq!(status, 303, "{place}: {head}");
        assert!(head.contains(&format!("location: /jobs/{job}")), "{head}");
        let (status, _, body) = proxy.get(&format!("/proxy/{place}/ended")).await;
        assert!(body.starts_with("Could not connect to Job Tracker at "), "{body}");
        assert_eq!(status, 403);
        let end = format!("/proxy/{place}/jobs/{job}/end");
        let (status, _, body) = proxy.post(&end, "a=b", "").await;
        assert!(body.starts_with("Could not connect to Job Tracker at "), "{body}");
        assert_eq!(status, 403);
    }
}

/// Answers each request with a redirect; returns the address.
async fn redirecting(to: String) -> SocketAddr {
    let listener = free_port();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let reply =
                format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    });
    address
}

/// A parent redirects to the remote job tracker of its job, by its address or that of the proxy.
#[tokio::test(flavor = "multi_thread")]
async fn redirects_lead_to_announced_job_trackers_and_nowhere_else() {
    let root = tempfile::tempdir().unwrap();
    let (proxy, manager) = pair(root.path(), &[]);
    let (remote, hidden) = (job_tracker().await, job_tracker().await);
    session(manager.thrift(), &format!("http://{remote}/coronajobdetails.jsp")).await;
    let page = "path=coronajobdetails.jsp&jobid=job_1.1_0001";
    let by_proxy = |host: &str, of: SocketAddr| {
        format!("http://{host}/proxy?host={}&port={}&{page}", of.ip(), of.port())
    };
    for (location, is_followed) in [
        (format!("http://{remote}/coronajobdetails.jsp?jobid=job_1.1_0001"), true),
        (by_proxy("anyproxy.example:28337", remote), true),
        (format!("http://{hidden}/coronajobdetails.jsp?jobid=job_1.1_0001"), false),
        (by_proxy("anyproxy.example:28337", hidden), false),
        ("https://elsewhere.example/".to_owned(), false),
        (String::new(), false),
        (format!("http://{remote}/\u{1}x"), false),
        (format!("http://{remote}/\rx"), false),
    ] {
        let parent = redirecting(location.clone()).await;
        let handle = session(manager.thrift(), &format!("http://{parent}/")).await;
        let job = format!("job_{handle}_0001");
        let at = format!("/proxy?host={}&port={}&jobid={job}", parent.ip(), parent.port());
        for at in [at, format!("/proxy/{parent}/jobs/{job}")] {
            let (status, head, _) = proxy.get(&at).await;
            let to = head.lines().find_map(|line| line.strip_prefix("location: "));
            if !is_followed {
                // A reply that is not one of HTTP is as none at all: the history takes its place.
                let no_reply = location.contains(['\r', '\u{1}']);
                assert!(status == 403 || no_reply, "{location:?} {at}: {head}");
                let is_own = to.is_none_or(|to| to == format!("/jobs/{job}"));
                assert!(is_own, "{location:?} {at}: {head}");
                continue;
            }
            assert_eq!(status, 302, "{location} {at}: {head}");
            let to = to.unwrap_or_else(|| panic!("{head}"));
            let (status, _, body) = proxy.get(to).await;
            let expected = "GET /coronajobdetails.jsp?jobid=job_1.1_0001 HTTP/1.1 | ";
            assert_eq!((status, &*body), (200, expected), "{location} {at} {to}");
        }
    }
    // What the pages of Java's job trackers refer to.
    let (status, head, _) = proxy.get("/static/hadoop.css").await;
    assert!(status == 200 && head.contains("text/css"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_of_a_finished_job_is_the_one_that_its_job_tracker_reported() {
    let root = tempfile::tempdir().unwrap();
    super::commands::lay_out(root.path());
    let proxy = Proxy::start(root.path(), &[]);
    let found = async |query: &str, total: usize| {
        let deadline = std::time::Instant::now() + compat_tests::task_tracker::PATIENCE;
        loop {
            let (_, _, body) = proxy.get(&format!("/api/v1/jobs?{query}")).await;
            let jobs: serde_json::Value = serde_json::from_str(&body).unwrap();
            if jobs["total"] == total {
                return jobs;
            }
            assert!(std::time::Instant::now() < deadline, "{query}: {body}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let jobs = found("", 10).await;
    let jobs = jobs["jobs"].as_array().unwrap();
    let without = jobs.iter().find(|job| job["pool"] == "").expect("a job without a pool");
    let id = without["id"].as_str().unwrap().to_owned();
    let address = InetAddress { host: "127.0.0.1".into(), port: proxy.rpc.port() };
    let user = User { name: "alice".into(), groups: vec![] };
    let mut tracker = CoronaJobAggregatorClient::new(address, ClientOptions::new(user));
    let (job, pool) = (Some(id.clone()), Some("ads.hourly".to_owned()));
    let counters = Counters { groups: vec![] };
    tracker.report_job_stats(job, pool, JobStats::default(), counters).await.unwrap();
    let found = found("pool=hourly", 1).await;
    assert_eq!(
        (&found["jobs"][0]["id"], &found["jobs"][0]["pool"]),
        (&id.into(), &"ads.hourly".into())
    );
}

/// The recorded addresses of running jobs, with the address of a job tracker of this test: pages, forms
/// and metrics.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_addresses_of_running_jobs_reach_their_job_tracker() {
    let root = tempfile::tempdir().unwrap();
    let (proxy, manager) = pair(root.path(), &[]);
    let tracker = job_tracker().await;
    session(manager.thrift(), &format!("http://{tracker}/coronajobdetails.jsp")).await;
    let file = repository().join("fixtures/recordings/job-clients/pages/urls.txt");
    let addresses = std::fs::read_to_string(file).unwrap();
    let mut asked = Vec::new();
    for line in addresses.lines() {
        let (name, rest) = line.split_once(' ').unwrap();
        if !["pjt-proxy-", "pjt-post-", "pjt-metrics"].iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        let (_, address) = rest.split_once("http://localhost:28337").unwrap();
        let (address, form) = address.split_once(' ').unwrap_or((address, ""));
        let form = ["jobid", "tipid", "taskid"].iter().fold(form.to_owned(), |form, name| {
            form.replace(&format!("&{name}"), &format!("&{name}=value"))
        });
        let Some((_, query)) = address.split_once('?') else {
            assert_eq!((address, proxy.get(address).await.0), ("/metrics", 200));
            asked.push(name);
            continue;
        };
        // The recorded job tracker had this name and port.
        let rest: Vec<&str> = query.splitn(3, '&').collect();
        assert!(rest[0].starts_with("host=") && rest[1].starts_with("port="), "{query}");
        let at = format!("/proxy?host={}&port={}&{}", tracker.ip(), tracker.port(), rest[2]);
        let (page, parameters) = rest[2].split_once('&').unwrap_or((rest[2], ""));
        let page = page.strip_prefix("path=").unwrap();
        let (reply, expected) = if name.starts_with("pjt-proxy-") {
            (proxy.get(&at).await, format!("GET /{page}?{parameters} HTTP/1.1 | "))
        } else {
            (proxy.post(&at, &form, "").await, format!("POST /{page} HTTP/1.1 | {form}"))
        };
        assert_eq!((reply.0, &*reply.2), (200, &*expected), "{address}");
        asked.push(name);
    }
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), 6, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_job_tracker_delays_nobody_else() {
    let root = tempfile::tempdir().unwrap();
    let (proxy, manager) = pair(root.path(), &[("corona.pjt.relay.max.requests", "16")]);
    let silent = free_port();
    let deaf = silent.local_addr().unwrap();
    let innocent = job_tracker().await;
    for at in [deaf, innocent] {
        session(manager.thrift(), &format!("http://{at}/jobdetails.jsp")).await;
    }
    let at = |of: SocketAddr| format!("/proxy?host={}&port={}&path=a", of.ip(), of.port());
    let request = format!("GET {} HTTP/1.0\r\nHost: localhost\r\n\r\n", at(deaf));
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut stream = tokio::net::TcpStream::connect(proxy.http).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        // It has arrived there, and is not answered.
        waiting.push((stream, silent.accept().await.unwrap()));
    }
    // Its share of requests is used up.
    assert_eq!(proxy.get(&at(deaf)).await.0, 503);
    assert_eq!(proxy.get(&at(innocent)).await.2, "GET /a HTTP/1.1 | ");
    assert!(!flag(&proxy).await);
    drop(waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_job_trackers_become_metrics() {
    let root = tempfile::tempdir().unwrap();
    let mut proxy = Proxy::start(root.path(), &[]);
    compat_tests::nested::send_call(
        &proxy.rpc.to_string(),
        "org.apache.hadoop.mapred.CoronaJobAggregator",
    )
    .await;
    assert!(proxy.child.try_wait().unwrap().is_none());
    let address = InetAddress { host: "127.0.0.1".into(), port: proxy.rpc.port() };
    let user = User { name: "alice".into(), groups: vec![] };
    let mut tracker = CoronaJobAggregatorClient::new(address, ClientOptions::new(user));
    let group = |group: &str, name: &str| {
        let counter = Counter { name: name.into(), display_name: None, value: 4 };
        let groups = vec![CounterGroup {
            name: group.into(),
            display_name: group.into(),
            counters: vec![counter],
        }];
        Counters { groups }
    };
    let stats = JobStats { maps_launched: 3, ..JobStats::default() };
    let job = Some("job_202611221049.2_0001".to_owned());
    let counters = group("FileSystemCounters", "FILE_BYTES_READ");
    tracker.report_job_stats(job, Some("default.p".into()), stats, counters).await.unwrap();
    tracker.report_job_error_counters(group("TaskError", "UNKNOWN")).await.unwrap();
    for (address, shown) in [
        ("/statistics", "<td class=\"n\" data-label=\"Maps launched\">3</td>"),
        ("/statistics", "href=\"/statistics?pool=default.p\""),
        ("/statistics?pool=default.p", "filesystemcounters_file_bytes_read"),
        ("/statistics?pool=none", "No job of the pool none has been reported."),
    ] {
        let (status, _, page) = proxy.get(address).await;
        assert!(status == 200 && page.contains(shown), "{address}: {page}");
    }
    let (_, _, metrics) = proxy.get("/metrics").await;
    let pjt = "corona_proxy_job_tracker";
    for line in [
        format!("{pjt}_job_reports_total 1"),
        format!("{pjt}_job_statistics_total{{name=\"maps_launched\"}} 3"),
        format!("{pjt}_job_counters_total{{name=\"filesystemcounters_file_bytes_read\"}} 4"),
        format!("{pjt}_job_counters_total{{name=\"taskerror_unknown\"}} 4"),
        format!("{pjt}_pool_job_statistics_total{{pool=\"default.p\",name=\"maps_launched\"}} 3"),
    ] {
        assert!(metrics.lines().any(|own| own == line), "{line}\n{metrics}");
    }
}
