//! The pages as a browser without JavaScript gets them, over an engine in the same process.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST,
    HeaderName, LOCATION, ORIGIN, VARY,
};
use hyper::{Request, StatusCode};
use tokio::sync::watch;

use super::*;
use crate::access::Access;
use crate::clock::Clock;
use crate::commits::Commits;
use crate::core::Core;
use crate::live::Live;
use crate::notifier::{Notifier, Patience, Recorded};
use crate::persist::Persist;
use crate::programs::Sender;
use crate::reload::Reloader;
use crate::safe_mode::SafeModeSwitch;
use crate::testing::reach;
use corona_api::cluster as shapes;
use corona_cluster_pages::Pages;
use corona_config as config;
use corona_engine::{Engine, NodeUsageReport, Start, testing};
use corona_model::settings::Settings;
use corona_model::types::{
    Address, ComputeSpecs, NodeReport, PerType, PoolName, ResourceRequest, ResourceType,
    SessionInfo, SessionStatus,
};
use corona_web::events::Stream;
use corona_web::exchange::{Answer, encode_segment};
use corona_web::server::{Site, respond};
use corona_wire::calls::{ClusterManagerCall, ClusterManagerReply};
use corona_wire::generated as wire;
use corona_wire::server::Answer as RpcAnswer;
use serde_json::{Value, json};

const TOKEN: &str = "a token for tests";
/// A name that would do harm if it were not escaped.
const HOSTILE: &str = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";

fn info(name: &str, pool: Option<PoolName>) -> SessionInfo {
    SessionInfo { pool, no_preempt: None, ..testing::info(name, "") }
}

/// The pages over an engine that tests give inputs.
struct TestPages {
    pages: Arc<Pages<Parts>>,
    parts: Parts,
    stop: watch::Sender<bool>,
    requests: std::sync::atomic::AtomicU8,
}

impl TestPages {
    fn new(overrides: &[(&str, &str)]) -> TestPages {
        let overrides: Vec<(String, String)> =
            overrides.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let mut loaded = config::load(None, &overrides).unwrap();
        loaded.settings.http_address.host = "manager.example.com".into();
        let settings = &loaded.settings;
        let engine_settings = Settings { retired_sessions: 10, ..settings.engine.clone() };
        let start = Start { now: Millis(0), id_prefix: "2026".into(), hash_seed: 1 };
        let patience = Patience {
            timeout: Duration::from_secs(1),
            poll_interval: Duration::from_secs(60),
            retry_start: Duration::from_secs(60),
            retry_factor: 1,
            retry_max: 9,
            max_queue: 1000,
            max_reply_bytes: 1 << 16,
            linger: Duration::ZERO,
        };
        let clock = Clock::new();
        let metrics = Arc::<Metrics>::default();
        metrics.beat();
        let reach = reach(&settings.names);
        let access = Access::new(settings.access.clone(), reach.names.clone());
        let (notifier, _give_ups) =
            Notifier::new(patience, metrics.clone(), reach, Recorded::nowhere());
        let events =
            Arc::new(Events::new(clock.now(), settings.web.max_subscribers, Commits::everything()));
        let engine = Engine::new(engine_settings, start);
        let kinds = engine.legal_types();
        let live = Live::new(notifier.clone(), events.clone(), metrics.clone(), kinds);
        let core = Arc::new(Core::new(engine, clock, Arc::new(live), metrics.clone()));
        let proxy_job_tracker = settings.proxy_job_tracker_address.clone();
        let safe_mode = Arc::new(SafeModeSwitch::new(proxy_job_tracker, true, clock));
        let state_file = settings.state_file.clone();
        let persist = Persist::new(
            core.clone(),
            notifier.clone(),
            safe_mode.clone(),
            state_file,
            false,
            false,
        );
        let parts = Parts {
            gate: corona_access::Gate::off(),
            core: core.clone(),
            notifier,
            access: Arc::new(access),
            metrics,
            reloader: Arc::new(Reloader::new(&loaded, core)),
            programs: Arc::default(),
            events,
            safe_mode,
            persist: Arc::new(persist),
            host_files: corona_config::HostFiles { include: None, exclude: None },
            operations: Arc::default(),
            journal: None,
            ha: None,
        };
        let gate = parts.gate.clone();
        let pages = Pages::new(Arc::new(parts.clone()), Arc::default(), gate, settings);
        TestPages {
            pages: Arc::new(pages),
            parts,
            stop: watch::Sender::new(false),
            requests: Default::default(),
        }
    }

    fn apply(&self, input: Input) -> Reply {
        let reply = self.parts.core.apply(input).unwrap();
        // An earlier copy may still be reused.
        self.pages.forget_copies();
        reply
    }

    fn node(&self, name: &str, cpus: i16) {
        let specs = ComputeSpecs { num_cpus: cpus, memory_mb: Some(4096), ..Default::default() };
        let report = NodeReport {
            name: name.into(),
            address: Address { host: format!("{name}.example.com").into(), port: 5000 },
            total: specs,
            free: Some(specs),
            apps: PerType(["m:1", "r:1", "j:1"].map(|app| Some(app.into()))),
        };
        self.apply(Input::HeartbeatNode { report, rack: None });
    }

    fn session(&self, handle: &str, name: &str) {
        let info = info(name, Some(PoolName::new("ads", "nightly")));
        self.apply(Input::StartSession { handle: handle.into(), info });
    }

    fn ask(&self, handle: &str, ids: std::ops::RangeInclusive<i32>) {
        self.ask_all(handle, testing::requests(ids, ResourceType::Map));
    }

    fn ask_all(&self, handle: &str, requests: Vec<ResourceRequest>) {
        self.apply(testing::ask(handle, requests));
        while self.parts.core.look(|engine, _| engine.wants_pass()) {
            self.apply(Input::Pass);
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Answer<Stream> {
        // Each request comes from a host of its own, so that no wrong token delays another one.
        let number = self.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.send_from([127, 0, 0, number].into(), request).await
    }

    async fn send_from(
        &self,
        peer: std::net::IpAddr,
        request: Request<Full<Bytes>>,
    ) -> Answer<Stream> {
        let peer = corona_access::Peer::plain((peer, 5).into());
        respond(&self.pages, request, peer, self.stop.subscribe()).await
    }

    async fn get(&self, address: &str) -> Answer<Stream> {
        self.send(Request::get(address).body(Full::default()).unwrap()).await
    }

    /// The body of an answer that must be fine, without the places where names may wrap.
    async fn body(&self, address: &str) -> String {
        let answer = self.get(address).await;
        assert_eq!(answer.status(), StatusCode::OK, "{address}");
        text(answer).await.replace("<wbr>", "")
    }

    async fn json<T: serde::de::DeserializeOwned>(&self, address: &str) -> T {
        serde_json::from_str(&self.body(address).await).unwrap()
    }

    /// An answer for a reader that takes gzip.
    async fn get_packed(&self, address: &str) -> Answer<Stream> {
        let request = Request::get(address).header(ACCEPT_ENCODING, "gzip, deflate, br");
        self.send(request.body(Full::default()).unwrap()).await
    }

    async fn kill(
        &self,
        handle: &str,
        form: &str,
        headers: &[(HeaderName, &str)],
    ) -> Answer<Stream> {
        self.post(&format!("/sessions/{handle}/kill"), form, headers).await
    }

    async fn post(&self, path: &str, form: &str, headers: &[(HeaderName, &str)]) -> Answer<Stream> {
        let mut request =
            Request::post(path).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        self.send(request.body(Full::from(form.to_owned())).unwrap()).await
    }

    fn runs(&self, handle: &str) -> bool {
        self.parts.core.look(|engine, _| engine.is_running(handle))
    }
}

async fn text(answer: Answer<Stream>) -> String {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn every_page_is_whole_for_an_empty_and_for_a_busy_cluster() {
    let world = TestPages::new(&[]);
    let pages =
        ["/", "/pools", "/sessions", "/nodes", "/nodes?state=silent", "/retired", "/configuration"];
    for busy in [false, true] {
        if busy {
            world.node("n1", 2);
            world.session("2026.1", "job one");
            world.ask("2026.1", 1..=5);
            world.session("2026.2", "job two");
            let status = SessionStatus::Failed;
            world.apply(Input::EndSession { handle: "2026.2".into(), status });
        }
        for address in pages {
            let page = world.body(address).await;
            assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">"), "{address}");
            assert!(page.ends_with("</footer></body></html>"), "{address}");
            for once in ["<h1>", " aria-current=\"page\""] {
                assert_eq!(page.matches(once).count(), 1, "{address}: {once}");
            }
            for unwanted in ["style=\"", "onclick", "<style", "javascript:"] {
                assert!(!page.contains(unwanted), "{address}: {unwanted}");
            }
            // Ids are unique, so that labels and the script find their elements.
            let mut ids: Vec<&str> =
                page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
            ids.sort_unstable();
            let all = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), all, "{address}");
        }
    }
    let session = world.body("/sessions/2026.1").await;
    for part in [
        "job one",
        "all 2 slots are in use; pool ads.nightly holds 2 grants",
        "n1.example.com:5000",
        "Grants",
    ] {
        assert!(session.contains(part), "{part} is not in {session}");
    }
    let ended = world.body("/sessions/2026.2").await;
    assert!(ended.contains("FAILED") && ended.contains("job two"), "{ended}");
}

#[tokio::test]
async fn the_page_and_the_api_explain_a_redirected_session_in_the_same_words() {
    let world = TestPages::new(&[]);
    let mut settings = world.parts.core.look(|engine, _| (**engine.settings()).clone());
    let (nightly, new) = (PoolName::new("ads", "nightly"), PoolName::new("ads", "new"));
    settings.scheduling.redirects.insert(nightly, new.clone());
    settings.pools.pools.entry(new).or_default().maximum[ResourceType::Map] = 2;
    world.apply(Input::SettingsChanged { settings: settings.into() });
    world.session("2026.1", "job");
    world.ask("2026.1", 1..=5);
    let before: Value = world.json("/api/v1/sessions/2026.1").await;
    let map = &before["types"]["MAP"];
    assert_eq!((&map["max_concurrent"], map.get("first_wait_ms")), (&json!(0), None));

    world.node("n1", 8);
    while world.parts.core.look(|engine, _| engine.wants_pass()) {
        world.apply(Input::Pass);
    }
    let page = world.body("/sessions/2026.1").await.replace("<wbr>", "");
    let reason = "pool ads.new (the session asked for ads.nightly) holds 2 grants, its maximum; this \
                  session is next in the pool";
    assert!(page.contains(&format!("data-label=\"Why\">{reason}</td>")), "{page}");
    assert!(
        page.contains(">ads.new</a><span class=\"note\">asked for ads.nightly</span>"),
        "{page}"
    );
    let session: Value = world.json("/api/v1/sessions/2026.1").await;
    assert_eq!(session["waits"][0]["text"], reason);
    assert_eq!(session["asked_pool"], json!({"group": "ads", "pool": "nightly"}));
    assert_eq!(session["pool"], json!({"group": "ads", "pool": "new"}));
    let map = &session["types"]["MAP"];
    assert_eq!((&map["max_concurrent"], &map["requested"]), (&json!(2), &json!(5)));
    assert!(map["first_wait_ms"].is_i64(), "{map}");

    let status = SessionStatus::Successful;
    world.apply(Input::EndSession { handle: "2026.1".into(), status });
    let retired: Value = world.json("/api/v1/retired").await;
    let ended = &retired["sessions"][0];
    assert_eq!(ended["asked_pool"], json!({"group": "ads", "pool": "nightly"}));
    assert_eq!(ended["types"]["MAP"]["max_concurrent"], 2);
    let page = world.body("/sessions/2026.1").await.replace("<wbr>", "");
    assert!(page.contains("asked for ads.nightly"), "{page}");
}

#[tokio::test]
async fn hostile_names_are_text_everywhere() {
    let world = TestPages::new(&[("corona.cm.web.kill.token", TOKEN)]);
    world.node(HOSTILE, 1);
    let handle = format!("2026{HOSTILE}.1");
    world.session(&handle, HOSTILE);
    let mut info = info(HOSTILE, None);
    info.url = Some("javascript:alert(1)".into());
    info.user_id = HOSTILE.into();
    world.apply(Input::UpdateSession { handle: handle.as_str().into(), info });
    world.ask(&handle, 1..=2);
    let page = format!("/sessions/{}", encode_segment(&handle));
    for address in [
        "/",
        "/pools",
        "/sessions",
        "/nodes",
        &page,
        &format!("{page}/kill"),
        &format!("/nodes/{}", encode_segment(HOSTILE)),
        &format!("/nodes/{}/clear-blacklist", encode_segment(HOSTILE)),
        &format!("/sessions?q={}", encode_segment(HOSTILE)),
        &format!("/nodes?q={0}&sort={0}&state={0}&type={0}&page={0}", encode_segment(HOSTILE)),
        "/active_json.jsp",
        "/pool_json.jsp",
        "/metrics?format=json",
    ] {
        let body = world.body(address).await;
        for harm in ["<script>alert", "<img src=x", "href=\"javascript:"] {
            assert!(!body.contains(harm), "{address}: {harm}");
        }
    }
    let sessions = world.body("/sessions").await;
    assert!(sessions.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;"), "{sessions}");
}

#[tokio::test]
async fn groups_of_a_tree_fold() {
    let world = TestPages::new(&[]);
    let flat = world.body("/pools").await;
    assert!(!flat.contains("class=\"fold\""), "two levels look as they did");
    let mut settings = world.parts.core.look(|engine, _| (**engine.settings()).clone());
    let pools = &mut settings.pools;
    for (group, parent) in [("revenue", None), ("ads", Some("revenue")), ("revenue-2", None)] {
        pools.queues.groups.entry(group.into()).or_default().parent = parent.map(Into::into);
        pools.pools.entry(PoolName::new(group, "etl")).or_default();
    }
    world.apply(Input::SettingsChanged { settings: settings.into() });
    let rows = |page: &str| -> Vec<String> {
        let keys = page.split("<tr data-key=\"").skip(1);
        keys.map(|key| key.split('"').next().unwrap().to_owned()).collect()
    };
    let open = world.body("/pools").await;
    assert!(open.contains("href=\"/pools?folded=revenue.ads\""), "{open}");
    let all = rows(&open);
    for key in ["revenue.", "ads.", "ads.etl", "revenue.etl", "revenue-2.etl"] {
        assert!(all.iter().any(|row| row == key), "{key} is not in {all:?}");
    }
    let folded = world.body("/pools?folded=revenue").await;
    let left: Vec<String> = all
        .into_iter()
        .filter(|row| !["ads.", "ads.etl", "revenue.etl"].contains(&&**row))
        .collect();
    assert_eq!(rows(&folded), left);
    assert!(folded.contains("href=\"/pools\"") && folded.contains("aria-expanded=\"false\""));
}

#[tokio::test]
async fn sessions_are_sorted_and_filtered_by_the_address() {
    let world = TestPages::new(&[]);
    world.node("n1", 3);
    for (handle, name) in [("2026.10", "b"), ("2026.9", "c"), ("2026.8", "a")] {
        world.session(handle, name);
    }
    world.ask("2026.9", 1..=9);
    let shown = async |query: &str| {
        let page = world.body(&format!("/sessions?{query}")).await;
        let rows = page.split("<th scope=\"row\">").skip(1);
        rows.map(|row| row.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (query, expected) in [
        ("", "2026.8 2026.9 2026.10"),
        ("sort=-id", "2026.10 2026.9 2026.8"),
        ("sort=name", "2026.8 2026.10 2026.9"),
        ("sort=-map-waiting&q=2026", "2026.9 2026.8 2026.10"),
        ("q=B", "2026.10"),
        ("waiting=1", "2026.9"),
        ("users=nobody", ""),
        ("users=user&poolGroups=ads", "2026.8 2026.9 2026.10"),
        ("poolInfos=ads.weekly", ""),
        ("priority=HIGH", ""),
        ("rows=2", "2026.8 2026.9"),
        ("rows=2&page=2", "2026.10"),
    ] {
        assert_eq!(shown(query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn nodes_say_why_they_are_not_used() {
    let world = TestPages::new(&[("cm.node.reserved.memory.mb", "5000")]);
    world.node("n1", 1);
    let page = world.body("/nodes").await;
    assert!(page.contains("short of memory or disk"), "{page}");
    let world = TestPages::new(&[]);
    for name in ["n1", "n2", "n3"] {
        world.node(name, 1);
    }
    world.session("2026.1", "job");
    world.ask("2026.1", 1..=1);
    let hosts = corona_model::settings::Hosts {
        include: ["n1", "n2", "n3", "n4"].map(|name| format!("{name}.example.com").into()).into(),
        exclude: ["n2.example.com".into()].into(),
    };
    world.apply(Input::HostsChanged { hosts });
    for (state, shown, hidden) in [
        ("excluded", &["n2", "excluded"][..], &["n1.", "n3."][..]),
        ("usable&type=MAP", &["usable"], &["n2."]),
        ("silent", &["n4.example.com"], &["n1.", "n2.", "n3."]),
        ("full&type=MAP", &["full"], &["n2."]),
    ] {
        let page = world.body(&format!("/nodes?state={state}")).await;
        let table = page.split("<tbody>").nth(1).unwrap();
        assert!(shown.iter().all(|part| table.contains(part)), "{state}: {table}");
        assert!(hidden.iter().all(|part| !table.contains(part)), "{state}: {table}");
    }
    let cluster = world.body("/").await;
    for problem in
        ["1 host of the include file does not heartbeat", "1 node is excluded by the host files"]
    {
        assert!(cluster.contains(problem), "{problem} is not in {cluster}");
    }
}

#[tokio::test]
async fn only_a_post_with_the_token_ends_a_session() {
    let world = TestPages::new(&[("corona.cm.web.kill.token", TOKEN)]);
    world.session("2026.1", "job");
    let page = world.body("/sessions/2026.1").await;
    assert!(page.contains("href=\"/sessions/2026.1/kill\""), "{page}");
    let question = world.body("/sessions/2026.1/kill?token=a+token+for+tests").await;
    assert!(question.contains("method=\"post\"") && question.contains("type=\"password\""));
    assert!(world.runs("2026.1"), "a GET never ends a session");

    let right = "token=a+token+for+tests";
    let evil = [(ORIGIN, "http://evil.example.com"), (HOST, "manager.example.com:50032")];
    for (form, headers, status) in [
        ("token=wrong", &[][..], StatusCode::FORBIDDEN),
        ("", &[], StatusCode::FORBIDDEN),
        (right, &evil, StatusCode::FORBIDDEN),
    ] {
        tokio::time::pause();
        let answer = world.kill("2026.1", form, headers).await;
        tokio::time::resume();
        assert_eq!(answer.status(), status, "{form}");
        assert!(text(answer).await.contains("The session is still running."), "{form}");
        assert!(world.runs("2026.1"), "{form}");
    }
    let get = Request::get("/cm.jsp?toKillSessionId=2026.1&killSessionsToken=prism");
    world.send(get.body(Full::default()).unwrap()).await;
    assert!(world.runs("2026.1"), "the original's way is closed");

    // After a wrong token not even the right one of the same peer is looked at.
    let guess = async |form: &'static str| {
        let request = Request::post("/sessions/2026.1/kill")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form));
        world.send_from([10, 0, 0, 1].into(), request.unwrap()).await.status()
    };
    let statuses = tokio::join!(guess("token=wrong"), guess(right));
    assert_eq!(statuses, (StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS));
    assert!(world.runs("2026.1"), "it was ended too soon");

    let own = [(ORIGIN, "http://manager.example.com:50032"), (HOST, "manager.example.com:50032")];
    let answer = world.kill("2026.1", right, &own).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(answer.headers()[LOCATION], "/sessions/2026.1");
    assert!(!world.runs("2026.1"));
    assert!(world.body("/sessions/2026.1").await.contains("KILLED"));
    let again = world.kill("2026.1", right, &own).await;
    assert_eq!(again.status(), StatusCode::NOT_FOUND);
}

/// Pages of a job tracker in a client end with it.
#[tokio::test]
async fn an_ended_session_leads_to_its_finished_job() {
    const OWN: &str = "http://client.example.com:4711/jobs/job_2026.1_0001";
    const FINISHED: &str = "href=\"http://pjt.example.com:50032/jobs/job_2026.1_0001\"";
    for (setting, is_linked) in [(None, true), (Some("pjt.example.com:50032"), false)] {
        let setting = setting.map(|address| ("mapred.job.tracker.corona.proxyaddr", address));
        let world = TestPages::new(setting.as_slice());
        let info = SessionInfo { url: Some(OWN.into()), ..info("job", None) };
        world.apply(Input::StartSession { handle: "2026.1".into(), info });
        let link = format!("href=\"{OWN}\"");
        let page = world.body("/sessions/2026.1").await;
        assert!(page.contains(&link) && !page.contains(FINISHED), "{page}");
        let status = SessionStatus::Successful;
        world.apply(Input::EndSession { handle: "2026.1".into(), status });
        let page = world.body("/sessions/2026.1").await;
        assert!(page.contains(OWN) && page.contains("SUCCESSFUL"), "{page}");
        assert_eq!(page.contains(&link), is_linked, "{page}");
        assert_eq!(page.contains(FINISHED), !is_linked, "{page}");
    }
}

#[tokio::test]
async fn sessions_cannot_be_ended_without_a_configured_token_or_from_elsewhere() {
    let world = TestPages::new(&[]);
    world.session("2026.1", "job");
    assert!(!world.body("/sessions/2026.1").await.contains("/kill"));
    assert_eq!(world.get("/sessions/2026.1/kill").await.status(), StatusCode::FORBIDDEN);
    assert_eq!(world.kill("2026.1", "token=", &[]).await.status(), StatusCode::FORBIDDEN);
    assert!(world.runs("2026.1"));

    let world = TestPages::new(&[
        ("corona.cm.web.kill.token", TOKEN),
        ("corona.cm.admin.networks", "10.0.0.0/8"),
    ]);
    world.session("2026.1", "job");
    let answer = world.kill("2026.1", "token=a+token+for+tests", &[]).await;
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert!(world.runs("2026.1"));
}

#[tokio::test]
async fn late_nodes_are_shown_everywhere() {
    let world = TestPages::new(&[
        ("corona.cm.node.late.heartbeats", "1"),
        ("corona.clustermanager.heartbeat.interval", "1"),
    ]);
    world.node("n1", 1);
    let mut late = 0;
    while late == 0 {
        tokio::task::yield_now().await;
        world.apply(Input::Tick);
        late = world.parts.core.look(|engine, _| engine.late_nodes());
    }
    for (address, parts) in [
        ("/", &["<a href=\"/nodes?state=late\">1 node is late</a>", "Node n1 is late"][..]),
        ("/nodes", &["<span class=\"badge bad\">late</span>"]),
        ("/nodes?state=late", &["n1.example.com"]),
        ("/nodes/n1", &["<span class=\"badge bad\">late</span>"]),
        ("/api/v1/cluster", &["\"nodes\":1,\"nodes_late\":1"]),
        ("/api/v1/nodes", &["\"problems\":[\"late\"]"]),
        ("/api/v1/status", &["1 node is late: no heartbeat for more than"]),
        ("/metrics", &["\ncorona_nodes_late 1\n", "\ncorona_nodes_oldest_heartbeat_seconds 0."]),
        ("/metrics?format=text", &["\n      alive_nodes=1\n"]),
    ] {
        let body = world.body(address).await;
        for part in parts {
            assert!(body.contains(part), "{address}: {part} is not in {body}");
        }
    }
    world.node("n1", 1);
    let cluster = world.body("/").await;
    assert!(!cluster.contains("node is late</a>"), "{cluster}");
    assert!(cluster.contains("Node n1 is on time again"), "{cluster}");
}

/// A world with a node of two slots of each type that is blacklisted for maps and runs one.
fn blacklisted_node(overrides: &[(&str, &str)]) -> TestPages {
    let world = TestPages::new(&[&[("cm.node.max.failures", "0")], overrides].concat());
    world.node("n 1", 2);
    world.session("2026.1", "job one");
    world.ask("2026.1", 1..=1);
    let reports =
        vec![NodeUsageReport { node_name: "n 1".into(), failed: 17, failed_connections: 1 }];
    let kinds = vec![ResourceType::Map];
    world.apply(Input::NodeFeedback { handle: "2026.1".into(), kinds, reports });
    world
}

fn is_blacklisted(world: &TestPages) -> bool {
    let node = world.parts.core.look(|engine, _| engine.node_detail("n 1")).unwrap().node;
    node.blacklisted[ResourceType::Map]
}

#[tokio::test]
async fn a_node_has_a_page_with_what_runs_there_and_who_complained() {
    let world = blacklisted_node(&[("corona.cm.web.kill.token", TOKEN)]);
    let list = world.body("/nodes").await;
    assert!(list.contains("<a href=\"/nodes/n%201\">n 1</a>"), "{list}");
    let page = world.body("/nodes/n%201").await;
    for part in [
        "<h1>Node n 1</h1>",
        "blacklisted for MAP",
        "href=\"/nodes/n%201/clear-blacklist\"",
        "href=\"/sessions/2026.1\"",
        "job one",
        "ads.nightly",
        "1 of 2",
        "1 (at most 0)",
        ">17</td>",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let detail: shapes::NodeDetail = world.json("/api/v1/nodes/n%201").await;
    assert_eq!((&*detail.node.name, detail.grants_total), ("n 1", 1));
    let grant = &detail.grants[0];
    assert_eq!((&*grant.session, &*grant.name, &*grant.user), ("2026.1", "job one", "user"));
    assert_eq!((grant.id, grant.kind, grant.slots), (1, ResourceType::Map, 1));
    let faults = detail.faults[&ResourceType::Map];
    assert_eq!((faults.failures, faults.failures_limit), (1, 0));
    assert!(faults.blacklisted_since_ms.is_some_and(|since| since <= detail.now_ms));
    let complaint = &detail.complaints[0];
    assert_eq!((&*complaint.session, complaint.failed), ("2026.1", 17));
    assert_eq!(complaint.types, [ResourceType::Map]);
    for address in ["/nodes/n2", "/nodes/n2/clear-blacklist", "/api/v1/nodes/n2", "/api/v1/nodes/"]
    {
        assert_eq!(world.get(address).await.status(), StatusCode::NOT_FOUND, "{address}");
    }
    let with_token = blacklisted_node(&[("corona.cm.web.kill.token", TOKEN)]);
    let page = with_token.body("/nodes/n%201").await;
    assert!(page.contains("<code>corona nodes clear-blacklist 'n 1'</code>"), "{page}");
    // Without a token the page offers nothing.
    let page = blacklisted_node(&[]).body("/nodes/n%201").await;
    assert!(!page.contains("clear-blacklist"), "{page}");
    // One of its two slots for maps is free, and of no use.
    let cluster = world.body("/").await;
    assert!(cluster.contains("1 on unusable nodes"), "{cluster}");
    let cluster = world.body("/api/v1/cluster").await;
    assert!(cluster.contains("\"unusable_slots\":{\"MAP\":1,\"REDUCE\":0"), "{cluster}");
    let metrics = world.body("/metrics").await;
    assert!(metrics.contains("\ncorona_slots_unusable{type=\"MAP\"} 1\n"), "{metrics}");
}

#[tokio::test]
async fn only_a_post_with_the_token_lifts_a_blacklisting() {
    let right = "token=a+token+for+tests";
    let evil = [(ORIGIN, "http://evil.example.com"), (HOST, "manager.example.com:50032")];
    let own = [(ORIGIN, "http://manager.example.com:50032"), (HOST, "manager.example.com:50032")];
    for (path, done) in [
        ("/nodes/n%201/clear-blacklist", StatusCode::SEE_OTHER),
        ("/api/v1/nodes/n%201/clear-blacklist", StatusCode::OK),
    ] {
        let world = blacklisted_node(&[("corona.cm.web.kill.token", TOKEN)]);
        let question = world.get(&format!("{path}?token=a+token+for+tests")).await;
        assert!(!question.status().is_redirection(), "{path}");
        assert!(is_blacklisted(&world), "a GET never changes anything");
        let typed = format!("{right}&type=MAPS");
        for (form, headers, status) in [
            ("token=wrong", &[][..], StatusCode::FORBIDDEN),
            ("", &[], StatusCode::FORBIDDEN),
            (right, &evil, StatusCode::FORBIDDEN),
            (&typed, &[], StatusCode::BAD_REQUEST),
        ] {
            tokio::time::pause();
            let answer = world.post(path, form, headers).await;
            tokio::time::resume();
            assert_eq!(answer.status(), status, "{path} {form}");
            assert!(is_blacklisted(&world), "{path} {form}");
        }
        world.apply(Input::SetSafeMode { on: true });
        let answer = world.post(path, right, &own).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        world.apply(Input::SetSafeMode { on: false });

        let answer = world.post(path, right, &own).await;
        assert_eq!(answer.status(), done, "{path}");
        if done == StatusCode::OK {
            let cleared: shapes::BlacklistCleared =
                serde_json::from_str(&text(answer).await).unwrap();
            assert_eq!(cleared.cleared, [ResourceType::Map]);
        } else {
            assert_eq!(answer.headers()[LOCATION], "/nodes/n%201");
        }
        assert!(!is_blacklisted(&world), "{path}");
        let elsewhere = path.replace("n%201", "n2");
        let answer = world.post(&elsewhere, right, &own).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{elsewhere}");

        let closed = blacklisted_node(&[]);
        assert_eq!(closed.post(path, "token=", &[]).await.status(), StatusCode::FORBIDDEN);
        let far = blacklisted_node(&[
            ("corona.cm.web.kill.token", TOKEN),
            ("corona.cm.admin.networks", "10.0.0.0/8"),
        ]);
        assert_eq!(far.post(path, right, &own).await.status(), StatusCode::FORBIDDEN);
        assert!(is_blacklisted(&closed) && is_blacklisted(&far), "{path}");
    }
}

/// A world that refuses a change of node `n 1` unless it is a proper post, and one that refuses it to all but other
/// networks.
async fn refused_change(path: &str, form: &str, wrong: &str) -> (TestPages, TestPages) {
    let evil = [(ORIGIN, "http://evil.example.com"), (HOST, "manager.example.com:50032")];
    let world = blacklisted_node(&[]);
    let far = blacklisted_node(&[("corona.cm.admin.networks", "10.0.0.0/8")]);
    assert_eq!(far.post(path, form, &[]).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(world.get(&format!("{path}?{form}")).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(world.post(path, form, &evil).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(world.post(path, wrong, &[]).await.status(), StatusCode::BAD_REQUEST);
    let unknown = world.post(&path.replace("n%201", "n2"), form, &[]).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    (world, far)
}

#[tokio::test]
async fn only_a_post_of_an_administrator_drains_a_node() {
    const PATH: &str = "/api/v1/nodes/n%201/drain";
    let drains = |world: &TestPages| world.parts.core.look(|engine, _| engine.nodes()[0].draining);
    let (world, far) = refused_change(PATH, "on=1", "on=yes").await;
    world.apply(Input::SetSafeMode { on: true });
    assert_eq!(world.post(PATH, "on=1", &[]).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    world.apply(Input::SetSafeMode { on: false });
    assert!(!drains(&world) && !drains(&far));

    // The lists were copied just before.
    world.body("/").await;
    world.pages.keep_copies();
    let answer = world.post(PATH, "on=1", &[]).await;
    assert_eq!(text(answer).await, "{\"draining\":true}");
    let detail: shapes::NodeDetail = world.json("/api/v1/nodes/n%201").await;
    assert!(detail.node.problems.contains(&shapes::NodeProblem::Draining));
    assert_eq!((&*detail.visitors[0].session, detail.visitors_total), ("2026.1", 1));
    for (page, part) in [
        ("/nodes?state=draining", ">draining</span>"),
        ("/nodes/n%201", "Let it serve again: <code>corona nodes drain 'n 1' --undo</code>"),
        ("/", "1 node drains"),
        ("/metrics", "\ncorona_nodes_draining 1\n"),
    ] {
        let body = world.body(page).await;
        assert!(body.contains(part), "{part} is not in {body}");
    }
    let answer = world.post(PATH, "on=0", &[]).await;
    assert_eq!(text(answer).await, "{\"draining\":false}");
    assert!(!drains(&world));
}

/// What the cluster manager answers to a heartbeat of a node, which names this version and start.
fn heartbeat(
    world: &TestPages,
    name: &str,
    program: Option<(&str, i64)>,
) -> wire::NodeHeartbeatResponse {
    let address = wire::InetAddress::new(format!("{name}.example.com"), 5000);
    let total = wire::ComputeSpecs::new(2, None, None, None);
    let program =
        program.map(|(version, started)| wire::Program::new(version.into(), started, None));
    let node = wire::ClusterNodeInfo::new(name.into(), address, total, None, None, None, program);
    let sender = Sender::of(&ClusterManagerCall::NodeHeartbeat { node: Some(node) }).unwrap();
    let answered = wire::NodeHeartbeatResponse::new(false, None);
    let mut answer = RpcAnswer::Reply(ClusterManagerReply::NodeHeartbeat(answered));
    let parts = &world.parts;
    parts.programs.heard(&parts.core, sender, &mut answer);
    let RpcAnswer::Reply(ClusterManagerReply::NodeHeartbeat(answered)) = answer else { panic!() };
    answered
}

#[tokio::test]
async fn only_a_post_of_an_administrator_restarts_a_node() {
    const PATH: &str = "/api/v1/nodes/n%201/restart";
    let no_order = wire::NodeHeartbeatResponse::new(false, None);
    let new = Some(("0.2.0", 7));
    let (world, far) = refused_change(PATH, "how=exit", "how=now").await;
    // A node that names no program reads no order for it.
    assert_eq!(heartbeat(&world, "n 1", None), no_order);
    assert_eq!(world.post(PATH, "how=in-place", &[]).await.status(), StatusCode::CONFLICT);
    assert_eq!(heartbeat(&far, "n 1", new), no_order);

    assert_eq!(heartbeat(&world, "n 1", new), no_order);
    let answer = world.post(PATH, "how=in-place", &[]).await;
    assert_eq!(text(answer).await, "{\"in_place\":true}");
    assert_eq!(heartbeat(&world, "n 2", new), no_order);
    let in_place = wire::NodeHeartbeatResponse::new(false, true);
    assert_eq!(heartbeat(&world, "n 1", new), in_place);
    assert_eq!(heartbeat(&world, "n 1", new), no_order);
    let page = world.body("/nodes/n%201").await;
    assert!(page.contains("0.2.0"), "{page}");
    let node = world.body("/api/v1/nodes/n%201").await;
    assert!(
        node.contains("\"program\":{\"version\":\"0.2.0\",\"started_ms\":7},\"heard\":true"),
        "{node}"
    );

    // The cluster manager gives up a node whose process ends, as for the original's call.
    let answer = world.post(PATH, "how=exit", &[]).await;
    assert_eq!(text(answer).await, "{\"in_place\":false}");
    let exit = wire::NodeHeartbeatResponse::new(true, None);
    assert_eq!(heartbeat(&world, "n 1", None), exit);
    assert_eq!(world.get("/api/v1/nodes/n%201").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn versions_that_are_mixed_for_long_are_a_note() {
    let world = TestPages::new(&[]);
    for name in ["n1", "n2", "n3"] {
        world.node(name, 2);
    }
    let own = env!("CARGO_PKG_VERSION");
    // Java's name none.
    heartbeat(&world, "n1", None);
    let started = world.json::<shapes::Status>("/api/v1/status").await.process_started_ms;
    heartbeat(&world, "n2", Some((own, started - 5_000)));
    let versions = async || {
        let status: shapes::Status = world.json("/api/v1/status").await;
        let texts: Vec<String> = status.problems.into_iter().map(|problem| problem.text).collect();
        (status.versions.unwrap(), texts.into_iter().find(|text| text.contains("mixed")))
    };
    let (one, note) = versions().await;
    assert_eq!((one.versions.len(), one.mixed_since_ms, note), (1, None, None));
    assert_eq!((one.versions[0].nodes, one.versions[0].instances), (1, 1));
    // The earlier version began long ago, and the mix with the first program of the present one.
    heartbeat(&world, "n3", Some(("0.0.9", 1)));
    let (two, note) = versions().await;
    assert_eq!((two.mixed_since_ms, note), (Some(started - 5_000), None));
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    heartbeat(&world, "n2", Some((own, started - DAY_MS - 60_000)));
    let (two, note) = versions().await;
    assert_eq!(two.mixed_since_ms, Some(started - DAY_MS - 60_000));
    let note = note.unwrap();
    let expected =
        format!("0.0.9 (1 node), {own} (1 instance of the cluster manager, 1 node). What remains");
    assert!(note.contains("mixed for 1 d") && note.contains(&expected), "{note}");
    // A node that has left does not count.
    let left = Input::NodesEnded { host: "n3.example.com".into(), names: vec!["n3".into()] };
    world.apply(left);
    assert_eq!(versions().await.0.mixed_since_ms, None);
}

#[tokio::test]
async fn slots_are_those_of_nodes_that_serve_the_type() {
    let world = TestPages::new(&[]);
    let specs = ComputeSpecs { num_cpus: 8, ..ComputeSpecs::default() };
    let report = NodeReport {
        name: "n1".into(),
        address: Address { host: "n1.example.com".into(), port: 5000 },
        total: specs,
        free: Some(specs),
        apps: PerType([Some("m:1".into()), Some("r:1".into()), None]),
    };
    world.apply(Input::HeartbeatNode { report, rack: None });
    let cluster: shapes::Cluster = world.json("/api/v1/cluster").await;
    let totals: Vec<u64> = cluster.slots.values().map(|slots| slots.total).collect();
    assert_eq!(totals, [8, 8, 0]);
    let metrics = world.body("/metrics").await;
    for line in ["corona_slots{type=\"MAP\"} 8", "corona_slots{type=\"JOBTRACKER\"} 0"] {
        assert!(metrics.lines().any(|other| other == line), "{line} is not in {metrics}");
    }
    // The names of the Java cluster manager keep its meaning.
    let text = world.body("/metrics?format=text").await;
    for line in ["      total_jobtracker=8", "      free_jobtracker=8"] {
        assert!(text.lines().any(|other| other == line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn safe_mode_is_shown_and_refuses_to_end_sessions() {
    let world = TestPages::new(&[("corona.cm.web.kill.token", TOKEN)]);
    world.session("2026.1", "job");
    assert_eq!(world.body("/readyz").await, "ready\n");
    world.apply(Input::SetSafeMode { on: true });
    let answer = world.kill("2026.1", "token=a+token+for+tests", &[]).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(answer).await.contains("Safe mode is on"));
    assert!(world.body("/").await.contains("Safe mode is on: no slots are granted"));
    assert!(world.body("/sessions").await.contains("<strong class=\"badge warn\">Safe mode"));
    let readiness = world.get("/readyz").await;
    assert_eq!(readiness.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text(readiness).await, "safe mode\n");
    assert_eq!(world.body("/healthz").await, "ok\n");
    world.apply(Input::SetSafeMode { on: false });
    world.stop.send_replace(true);
    assert_eq!(text(world.get("/readyz").await).await, "stopping\n");
}

#[tokio::test]
async fn metrics_come_in_three_forms() {
    let world = TestPages::new(&[]);
    world.node("n1", 2);
    world.session("2026.1", "job");
    world.ask("2026.1", 1..=3);
    let answer = world.get("/metrics").await;
    assert_eq!(answer.headers()[CONTENT_TYPE], corona_web::prometheus::CONTENT_TYPE);
    let text_of_prometheus = text(answer).await;
    for line in [
        "corona_requests_total{type=\"MAP\"} 3",
        "corona_grants_total{type=\"MAP\"} 2",
        "corona_requests_waiting{type=\"MAP\"} 1",
        "corona_request_to_grant_seconds_count{type=\"MAP\"} 2",
        "corona_nodes_alive 1",
        "corona_pool_granted{group=\"ads\",pool=\"nightly\",type=\"MAP\"} 2",
        "corona_notifier_pending_calls 1",
        "corona_events_total 3",
    ] {
        assert!(text_of_prometheus.lines().any(|other| other == line), "{line}");
    }
    let json = world.get("/metrics?format=json").await;
    assert_eq!(json.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
    let json: serde_json::Value = serde_json::from_str(&text(json).await).unwrap();
    assert_eq!(json["clustermanager"]["clustermanager"][0][1]["pending_map"], 1);
    assert_eq!(json["clustermanager"]["pool-ads.nightly"][0][1]["granted_map"], 2);
    let plain = world.body("/metrics?format=text").await;
    assert!(plain.contains("\n      granted_map=2\n"), "{plain}");
    assert_eq!(world.get("/metrics?format=xml").await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn addresses_that_do_not_exist_and_methods_that_are_not_known() {
    let world = TestPages::new(&[]);
    for address in [
        "/jmx",
        "/stacks",
        "/logLevel",
        "/exec.jsp?req=reloadServerPoolsConfig",
        "/logs/",
        "/static/../mod.rs",
        "/static/",
        "/sessions/2026.1",
        "/sessions/2026.1/kill/x",
        "//",
        "/nodes/",
    ] {
        let answer = world.get(address).await;
        assert!(answer.headers().contains_key(CONTENT_SECURITY_POLICY), "{address}");
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{address}");
    }
    for (method, address) in [("POST", "/"), ("PUT", "/sessions/1/kill"), ("DELETE", "/nodes")] {
        let request = Request::builder().method(method).uri(address).body(Full::default());
        let answer = world.send(request.unwrap()).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {address}");
    }
    for address in ["/api", "/api/", "/api/v2/cluster", "/api/v1/nonsense", "/api/v1/nodes/x/y/z"] {
        let answer = world.get(address).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{address}");
        let failure: corona_api::Failure = serde_json::from_str(&text(answer).await).unwrap();
        assert!(!failure.error.is_empty(), "{address}");
    }
    let file = world.get("/static/corona.css?v=1").await;
    assert!(file.headers()[CACHE_CONTROL].to_str().unwrap().contains("immutable"));
}

#[tokio::test]
async fn tables_of_the_original_take_filters_by_post_too() {
    let world = TestPages::new(&[]);
    world.session("2026.1", "job");
    let post = |form: &str| {
        Request::post("/active_json.jsp")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form.to_owned()))
            .unwrap()
    };
    for (form, rows) in [("users=user", 1), ("users=other", 0), ("", 1)] {
        let answer = world.send(post(form)).await;
        let json: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
        assert_eq!(json["aaData"].as_array().map(Vec::len), Some(rows), "{form}");
    }
}

#[tokio::test]
async fn events_are_streamed_within_bounds() {
    let world = TestPages::new(&[("corona.cm.web.max.subscribers", "1")]);
    let answer = world.get("/api/v1/events").await;
    assert_eq!(answer.headers()[CONTENT_TYPE], "text/event-stream");
    assert_eq!(world.get("/api/v1/events").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    let mut body = answer.into_body();
    world.node("n1", 1);
    let mut seen = String::new();
    while !seen.contains("node_added") {
        let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await.unwrap();
        seen.push_str(std::str::from_utf8(frame.unwrap().unwrap().data_ref().unwrap()).unwrap());
    }
    assert!(seen.contains("\"node\":\"n1\"}"), "{seen}");
}

#[tokio::test]
async fn answers_are_compressed_for_readers_that_take_it() {
    let world = TestPages::new(&[]);
    for number in 0..100 {
        world.node(&format!("n{number}"), 1);
    }
    world.session("2026.1", "job");
    for address in [
        "/",
        "/nodes",
        "/sessions",
        "/api/v1/nodes",
        "/metrics",
        "/metrics?format=json",
        "/static/corona.js",
        "/static/corona.css",
        "/conf",
    ] {
        let plain = world.get(address).await;
        assert_eq!(plain.headers()[VARY], "accept-encoding", "{address}");
        assert!(!plain.headers().contains_key(CONTENT_ENCODING), "{address}");
        let length = text(plain).await.len();
        let packed = world.get_packed(address).await;
        assert_eq!(packed.headers()[VARY], "accept-encoding", "{address}");
        assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip", "{address}");
        assert!(packed.headers().contains_key(CONTENT_SECURITY_POLICY), "{address}");
        let packed = packed.into_body().collect().await.unwrap().to_bytes();
        assert!(packed.len() < length / 2, "{address}: {} of {length}", packed.len());
        let mut unpacked = String::new();
        flate2::read::GzDecoder::new(&*packed).read_to_string(&mut unpacked).unwrap();
        // Times move on between the two.
        assert!(unpacked.len().abs_diff(length) < 200, "{address}: {} {length}", unpacked.len());
    }
    let short = world.get_packed("/healthz").await;
    assert!(!short.headers().contains_key(CONTENT_ENCODING));
    let events = world.get_packed("/api/v1/events").await;
    assert!(!events.headers().contains_key(CONTENT_ENCODING));
    assert!(!events.headers().contains_key(VARY));
}

#[tokio::test]
async fn the_api_lists_its_paths() {
    let world = TestPages::new(&[]);
    world.node("n1", 1);
    world.session("2026.1", "job");
    let index: corona_api::Index = world.json("/api/v1").await;
    assert_eq!(index, world.json("/api/v1/").await);
    assert!(index.paths.len() > 8, "{index:?}");
    for entry in &index.paths {
        let path = entry.path.replace("{id}", "2026.1").replace("{name}", "n1");
        assert_eq!(world.get(&path).await.status(), StatusCode::OK, "{path}");
        let documented = include_str!("../../../docs/reference/compatibility/pages.md");
        let row = format!("| `{}` |", entry.path.replace("{id}", "{handle}"));
        assert!(documented.contains(&row), "{row} is not in docs/reference/compatibility/pages.md");
    }
}

#[tokio::test]
async fn rows_have_keys_and_cells_have_headings() {
    let world = TestPages::new(&[]);
    for name in ["n10", "n9"] {
        world.node(name, 2);
    }
    world.session("2026.1", "job");
    world.ask("2026.1", 1..=9);
    world.session("2026.2", "job");
    world.apply(Input::EndSession { handle: "2026.2".into(), status: SessionStatus::Failed });
    for address in [
        "/",
        "/pools",
        "/sessions",
        "/nodes",
        "/retired",
        "/configuration",
        "/nodes/n10",
        "/sessions/2026.1",
    ] {
        let page = world.body(address).await;
        let mut tables = 0;
        for table in page.split("<table ").skip(1) {
            let body = table.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
            let mut keys: Vec<&str> = body.split("<tr data-key=\"").skip(1).collect();
            keys.iter_mut().for_each(|row| *row = row.split('"').next().unwrap());
            let rows = keys.len();
            assert_eq!(rows, body.matches("<tr").count(), "{address}: {body}");
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), rows, "{address}: a key occurs twice in {keys:?}");
            let labels = body.matches(" data-label=\"").count();
            assert_eq!(labels, body.matches("<td").count(), "{address}: {body}");
            tables += 1;
        }
        assert!(tables > 0, "{address}");
    }
    let nodes = world.body("/nodes").await;
    let tracker = "<a href=\"http://n9.example.com:50060/\" rel=\"noreferrer\"";
    assert!(nodes.contains(tracker) && world.body("/nodes/n9").await.contains(tracker), "{nodes}");
    assert!(nodes.find(">n9<") < nodes.find(">n10<"), "nodes are ordered by their numbers");
}

#[tokio::test]
async fn a_large_cluster_is_shown_by_pages() {
    let world = TestPages::new(&[]);
    for number in 0..1000 {
        world.node(&format!("n{number:04}"), 1);
    }
    let page = world.body("/nodes?page=3&sort=-name").await;
    assert!(page.contains("Page 3 of 5") && page.contains(">1\u{202f}000 nodes<"), "{page}");
    assert!(page.contains(">n0599<") && !page.contains(">n0399<"));
    assert_eq!(page.matches("<th scope=\"row\">").count(), 200);
}

#[tokio::test]
async fn the_api_tells_what_the_pages_tell_of_the_manager_itself() {
    let world =
        TestPages::new(&[("corona.cm.web.kill.token", TOKEN), ("cm.node.expiryinterval", "7")]);
    let text = world.body("/api/v1/configuration").await;
    assert!(!text.contains(TOKEN), "{text}");
    let configuration: shapes::Configuration = serde_json::from_str(&text).unwrap();
    let interval = configuration.values.iter().find(|set| set.key == "cm.node.expiryinterval");
    assert_eq!(interval.unwrap().value, "7");
    assert_eq!((configuration.reloads, configuration.failures), (0, 0));
    assert!(configuration.loaded_ms > 0 && configuration.errors.is_empty());

    world.node("n1", 2);
    let included = ["n1.example.com", "b", "a", "off"].map(Into::into).into_iter().collect();
    let excluded = ["off".into()].into_iter().collect();
    let hosts = corona_model::settings::Hosts { include: included, exclude: excluded };
    world.apply(Input::HostsChanged { hosts });
    let silent: shapes::SilentHosts = world.json("/api/v1/silent-hosts").await;
    assert_eq!((silent.included, silent.hosts), (true, vec!["a".to_owned(), "b".to_owned()]));

    world.pages.take_sample();
    let history: shapes::History = world.json("/api/v1/history").await;
    assert_eq!(history.period_ms, 10_000);
    assert_eq!(history.samples.len(), 1);
    assert!(history.samples[0].at_ms >= configuration.loaded_ms);
    assert_eq!(history.samples[0].slots[&ResourceType::Map], shapes::Slots { total: 2, used: 0 });

    world.session("2026.1", "job");
    world.ask("2026.1", 1..=2);
    let latencies: shapes::Latencies = world.json("/api/v1/latencies").await;
    for of in [&latencies.last_minute, &latencies.since_start] {
        assert_eq!(of.request_to_grant.count, 2);
        assert!(of.request_to_grant.median_us.is_some());
        assert_eq!(of.grant_to_delivered.median_us, None, "nobody answers here");
    }
}

#[tokio::test]
async fn names_of_others_are_refused_and_probes_are_not() {
    let world = TestPages::new(&[("corona.cm.web.hosts", "cm.example.org")]);
    let get = async |path: &str, host: &str| {
        let request = Request::get(path).header(HOST, host).body(Full::default()).unwrap();
        world.send(request).await.status()
    };
    for path in ["/", "/api/v1/cluster", "/metrics", "/conf", "/healthz", "/readyz"] {
        let foreign = match path {
            "/healthz" | "/readyz" => StatusCode::OK,
            _ => StatusCode::MISDIRECTED_REQUEST,
        };
        assert_eq!(get(path, "evil.example").await, foreign, "{path}");
        for own in ["manager.example.com:50032", "cm.example.org", "localhost:1", "10.0.0.1"] {
            assert_eq!(get(path, own).await, StatusCode::OK, "{path} {own}");
        }
    }
}

#[tokio::test]
async fn pages_may_be_limited_to_networks() {
    let world = TestPages::new(&[("corona.cm.web.networks", "10.0.0.0/8")]);
    assert!(world.pages.may_connect("10.1.1.1:1".parse().unwrap()));
    assert!(!world.pages.may_connect("11.1.1.1:1".parse().unwrap()));
}

/// Three connections for pages, two of them of one peer, and one for probes.
#[tokio::test]
async fn pages_have_the_configured_room() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = TestPages::new(&[
        ("corona.cm.web.max.connections", "3"),
        ("corona.cm.web.max.connections.per.peer", "2"),
        ("corona.cm.web.probe.connections", "1"),
    ]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(world.pages.clone().serve(listener, world.stop.subscribe()));
    let connect = async |peer: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 1, peer], 0).into()).unwrap();
        socket.connect(address).await.unwrap()
    };
    // A stream of events is a request that lasts.
    let ask = async |peer: u8| {
        let mut stream = connect(peer).await;
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        (stream, String::from_utf8(status.to_vec()).unwrap())
    };
    let (_first, status) = ask(1).await;
    assert_eq!(status, "HTTP/1.1 200");
    let (_second, status) = ask(1).await;
    assert_eq!(status, "HTTP/1.1 200");
    // A third one of this peer is for probes.
    let mut waiting = connect(1).await;
    let (_third, status) = ask(2).await;
    assert_eq!(status, "HTTP/1.1 200");
    let metrics = text(world.get("/metrics").await).await;
    assert!(metrics.contains("\ncorona_web_connections_open 4\n"), "{metrics}");
    // It takes the place for probes, since that is the only one.
    let (_fourth, status) = ask(2).await;
    assert_eq!(status, "HTTP/1.1 503");
    // After half a minute it would be closed for its silence.
    let closed = tokio::time::timeout(Duration::from_secs(20), waiting.read(&mut [0])).await;
    assert_eq!(closed.expect("there is another place").unwrap(), 0);
}

#[tokio::test]
async fn resources_are_shown_where_they_are_counted_and_nowhere_else() {
    let counted = TestPages::new(&[("corona.cm.resources", "cpus,memory")]);
    let slots = TestPages::new(&[]);
    for world in [&counted, &slots] {
        world.node("n1", 8);
        world.node("n2", 1);
        world.session("2026.1", "job one");
        // Each takes 1,024 of 4,096 MB; the smaller node serves one.
        world.ask("2026.1", 1..=4);
    }
    for (address, parts) in [
        (
            "/",
            &[
                "id=\"resource-memory\"",
                "5 CPUs are free",
                "4 GB of memory are free, the largest place has",
            ][..],
        ),
        ("/nodes", &["of 8</span>", "of 4 GB</span>", "really used"]),
        ("/nodes/n1", &["id=\"resource-table\"", "Reported", "1 CPU, 1 GB of memory"]),
        ("/pools", &["Share of resources", "4 CPUs, 4 GB of memory", "50.0 %"]),
        ("/sessions", &["Share of resources", "4 CPUs, 4 GB of memory"]),
        ("/sessions/2026.1", &["Share of resources", "50.0 %"]),
    ] {
        let page = counted.body(address).await;
        for part in parts {
            assert!(page.contains(part), "{part} is not in {address}: {page}");
        }
        let page = slots.body(address).await;
        for part in ["Share of resources", "id=\"resource-", "GB of memory", "really used"] {
            assert!(!page.contains(part), "{part} is in {address} where slots are counted");
        }
    }
    let cluster: Value = counted.json("/api/v1/cluster").await;
    let memory = &cluster["resources"]["memory"];
    assert_eq!((&memory["capacity"], &memory["granted"]), (&json!(8_192), &json!(4_096)));
    let (free, largest) =
        (memory["free"].as_u64().unwrap(), memory["largest_free"].as_u64().unwrap());
    assert_eq!(free, 4_096, "{cluster}");
    assert!((1_024..4_096).contains(&largest), "{cluster}");
    let pools: Value = counted.json("/api/v1/pools").await;
    assert_eq!(pools["pools"][1]["resources"], json!({ "cpus": 4, "memory": 4_096 }), "{pools}");
    assert_eq!(pools["pools"][1]["dominant_share"], 0.5, "{pools}");
    for path in ["cluster", "status", "nodes", "nodes/n1", "pools", "sessions", "sessions/2026.1"] {
        let text = slots.body(&format!("/api/v1/{path}")).await;
        assert!(!text.contains("\"resources\"") && !text.contains("dominant"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_request_without_room_names_the_node_kept_for_it_and_when_room_is_made() {
    let world = TestPages::new(&[
        ("corona.cm.resources", "cpus,memory"),
        ("corona.cm.reservation.after.ms", "1"),
        ("corona.cm.reservation.limit.ms", "36000000"),
    ]);
    world.node("n1", 8);
    world.session("2026.1", "small");
    world.ask("2026.1", 1..=3);
    let hourly = info("large", Some(PoolName::new("ads", "hourly")));
    world.apply(Input::StartSession { handle: "2026.2".into(), info: hourly });
    let specs = ComputeSpecs { num_cpus: 1, memory_mb: Some(3_000), ..Default::default() };
    let mut large = testing::requests(7..=7, ResourceType::Map);
    large.iter_mut().for_each(|request| request.specs = Some(specs));
    world.ask_all("2026.2", large);
    let of_api = async |path: &str| -> Value { world.json(&format!("/api/v1/{path}")).await };
    let mut wait = Value::Null;
    // The second look at the pools finds that it still lacks its share.
    while wait["reservation"].is_null() || wait["preemption"].is_null() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.apply(Input::Tick);
        world.apply(Input::Pass);
        let session = of_api("sessions/2026.2").await;
        wait = session["waits"][0].clone();
        assert_eq!(wait["reason"], "too_little", "{session}");
    }
    let kept = &wait["reservation"];
    assert_eq!((&kept["node"], &kept["request"]), (&json!("n1"), &json!(7)), "{wait}");
    let (since, until) = (kept["since_ms"].as_i64().unwrap(), kept["until_ms"].as_i64().unwrap());
    assert_eq!(until - since, 36_000_000, "{wait}");
    // Its pool holds nothing, and the other one all that is granted.
    assert_eq!(wait["preemption"]["cause"], "share", "{wait}");
    assert!(wait["preemption"]["due_ms"].as_i64().unwrap() > since, "{wait}");
    assert_eq!(wait["kept"], 0, "{wait}");
    let node = of_api("nodes/n1").await;
    let expected = json!({ "session": "2026.2", "id": 7, "since_ms": since, "until_ms": until });
    assert_eq!(node["reserved_for"], expected, "{node}");
    let page = world.body("/nodes/n1").await;
    assert!(page.contains("9 h 5"), "{page}");
    world.ask("2026.1", 4..=4);
    let other = of_api("sessions/2026.1").await;
    let wait = &other["waits"][0];
    assert_eq!((&wait["kept"], wait.get("reservation")), (&json!(1), None), "{other}");
}
