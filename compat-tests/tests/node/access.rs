//! The built program as a closed cluster: members run jobs, and everybody else gets nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use compat_tests::serving::{fetch, status};
use compat_tests::task_tracker::{PATIENCE, PAUSE};
use corona::access::{Identity, Role};
use corona::wire::calls::{ClusterManager, ClusterManagerCall, ClusterManagerReply};
use corona::wire::client::{Client, ClientOptions};
use corona::wire::generated::{InetAddress, PoolInfoStrings, SessionInfo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::mini_cluster::{MiniCluster, corona, stderr, until};

fn access(root: &Path, arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = corona();
    command.arg("access").args(arguments).current_dir(root);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// Gives access and uses it.
fn member(root: &Path, create: &[&str], address: &str, directory: &str) -> String {
    let authority = ["--authority", "ca", "--address", address];
    let (done, string) = access(root, &[&["create"], create, &authority].concat(), "");
    assert!(done && string.starts_with("corona1:"), "{string}");
    let (done, text) = access(root, &["enrol", "-", "--directory", directory], &string);
    assert!(done, "{text}");
    assert!(!text.contains(string.trim().rsplit(':').next().unwrap()), "no secret is shown");
    text
}

fn tool(cluster: &MiniCluster, arguments: &[&str], directory: &str) -> Result<String, String> {
    let mut command = corona();
    command.args(arguments).args(["--conf-dir", "cluster/conf"]).current_dir(cluster.root.path());
    command.args(["-D", &format!("corona.tls.directory={directory}")]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(stderr(&output)) }
}

/// What a port gives to a peer that speaks no TLS.
fn plainly(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = stream.write_all(bytes);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

/// The id of a job, once one runs.
fn until_running(cluster: &MiniCluster) -> String {
    until("a job that runs", || {
        let listed = tool(cluster, &["jobs", "list"], "reader").unwrap();
        let row = listed.lines().find(|line| line.contains("RUNNING"))?;
        row.split_whitespace().next().map(str::to_owned)
    })
}

fn ports(cluster: &MiniCluster) -> std::collections::BTreeMap<String, u16> {
    let kept = fs::read(cluster.path("cluster/ports.json")).unwrap();
    let mut ports: std::collections::BTreeMap<_, _> = serde_json::from_slice(&kept).unwrap();
    ports.remove("version").expect("a version");
    ports
}

/// A cluster whose daemons speak TLS only, with an authority in `ca`.
fn closed_cluster(settings: &[&str]) -> MiniCluster {
    let root = tempfile::tempdir().unwrap();
    let address = "127.0.0.1:1";
    let init = ["init", "--authority", "ca", "--directory", "own", "--address", address];
    let (done, text) = access(root.path(), &init, "");
    assert!(done && text.contains("CA"), "{text}");
    let at = |name: &str| root.path().join(name).display().to_string();
    let closed = [
        "corona.tls=require".to_owned(),
        format!("corona.tls.directory={}", at("own")),
        format!("corona.tls.authority.directory={}", at("ca")),
    ];
    let all = [closed.iter().map(String::as_str).collect(), settings.to_vec()].concat();
    MiniCluster::start_by(corona(), root, &all)
}

/// A request of HTTP to a daemon as the member of a directory; the status and the rest of the reply.
async fn ask(member: &Identity, port: u16, request: &str, form: Option<&str>) -> (u16, String) {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut stream = member.connect(stream, &[Role::Admin]).await.unwrap();
    let form = form.unwrap_or_default();
    let request = format!(
        "{request} HTTP/1.0\r\nHost: localhost:{port}\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}",
        form.len()
    );
    corona::access::send(&mut stream, request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    // Servers of these pages close the connection without more ado.
    let _ = stream.read_to_end(&mut reply).await;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{request}: {reply}")), reply)
}

async fn call(
    member: &Identity,
    port: u16,
    call: ClusterManagerCall,
) -> Result<ClusterManagerReply, String> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let stream = member.connect(stream, &[Role::Admin]).await.unwrap();
    let mut client = Client::<ClusterManager>::over(stream, ClientOptions::default());
    client.call(&call).await.map_err(|error| error.to_string())
}

async fn next_session(member: &Identity, port: u16) -> String {
    match call(member, port, ClusterManagerCall::GetNextSessionId).await.unwrap() {
        ClusterManagerReply::GetNextSessionId(handle) => handle,
        other => panic!("{other:?}"),
    }
}

/// Starts a session on the head's machine that announces these pages.
async fn start(member: &Identity, port: u16, handle: &str, url: &str) -> Result<(), String> {
    let address = InetAddress { host: "127.0.0.1".into(), port: 1 };
    let pool = PoolInfoStrings::new("default".into(), "alice".into());
    let (name, user, url) = ("job".into(), "root".into(), url.to_owned());
    let info = SessionInfo::new(address, name, user, None, pool, None, None, url, None);
    let start = ClusterManagerCall::SessionStart { handle: Some(handle.into()), info: Some(info) };
    call(member, port, start).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_lends_its_rights_to_no_member() {
    let cluster = closed_cluster(&[]);
    let root = cluster.root.path();
    let ports = ports(&cluster);
    let manager = format!("127.0.0.1:{}", ports["thrift"]);
    let member = |create: &[&str], directory: &str| {
        member(root, create, &manager, directory);
        Identity::open(&root.join(directory)).unwrap()
    };
    let alice = member(&["submit", "--user", "alice"], "alice");
    let bob = member(&["submit", "--user", "bob"], "bob");
    let reader = member(&["read"], "reader");
    let admin = member(&["admin"], "admin");

    // Nobody starts a session under the id of another one, or under one that others will get.
    let handle = next_session(&bob, ports["thrift"]).await;
    let (prefix, number) = handle.rsplit_once('.').unwrap();
    let next = format!("{prefix}.{}", number.parse::<u32>().unwrap() + 1);
    let pages = format!("http://127.0.0.1:{}/", ports["pages"]);
    for taken in [&handle, &next] {
        let error = start(&alice, ports["thrift"], taken, &pages).await.unwrap_err();
        assert!(error.contains("was not given to alice"), "{error}");
    }
    start(&bob, ports["thrift"], &handle, &pages).await.unwrap();
    let own = next_session(&alice, ports["thrift"]).await;
    assert_eq!(own, next);
    // She announces pages of the cluster manager and of a node.
    start(&alice, ports["thrift"], &own, &pages).await.unwrap();
    let (_, nodes) = ask(&alice, ports["pages"], "GET /api/v1/nodes", None).await;
    let (_, nodes) = nodes.split_once("\r\n\r\n").unwrap();
    let nodes: serde_json::Value = serde_json::from_str(nodes).unwrap();
    let node = nodes["nodes"][0]["name"].as_str().unwrap().to_owned();
    let drain = format!("api/v1/nodes/{}/drain", node.replace('/', "%2F"));
    let named = drain.replace('%', "%25");
    let to = format!("host=127.0.0.1&port={}", ports["pages"]);
    let below = format!("127.0.0.1:{}", ports["pages"]);
    let proxy = ports["proxy_pages"];
    let (status, reply) =
        ask(&alice, proxy, &format!("GET /proxy?{to}&path=api/v1/nodes"), None).await;
    assert!(status == 200 && reply.contains(&node), "pages are relayed: {reply}");
    let drains = async || {
        let request = "GET /api/v1/nodes?problem=draining";
        ask(&reader, ports["pages"], request, None).await.1.contains(&node)
    };
    for request in
        [format!("POST /proxy?{to}&path={named}"), format!("POST /proxy/{below}/{drain}")]
    {
        for member in [&alice, &reader] {
            let (status, reply) = ask(member, proxy, &request, Some("on=1")).await;
            assert_eq!(status, 403, "{reply}");
        }
    }
    assert!(!drains().await);
    let (status, reply) = ask(
        &reader,
        proxy,
        &format!("GET /proxy?{to}&path=mapOutput&job=job_{own}_0001&map=attempt_{own}_0001_m_000000_0&reduce=0"),
        None,
    )
    .await;
    assert!(status == 403 && reply.contains("the role read may not do this"), "{reply}");
    // The proxy does not ask itself, which it would do with its own rights.
    let again = next_session(&alice, ports["thrift"]).await;
    let itself = format!("http://127.0.0.1:{proxy}/");
    start(&alice, ports["thrift"], &again, &itself).await.unwrap();
    let request = format!("GET /proxy/127.0.0.1:{proxy}/proxy/{below}/access/audit");
    let deadline = Instant::now() + PATIENCE;
    let (status, reply) = loop {
        let (status, reply) = ask(&alice, proxy, &request, None).await;
        // The proxy knows of the session a moment later.
        if !reply.contains("No running job has announced") || Instant::now() > deadline {
            break (status, reply);
        }
        tokio::time::sleep(PAUSE).await;
    };
    assert!(status == 403 && reply.contains("are not relayed again"), "{reply}");
    // An administrator may.
    let request = format!("POST /proxy?{to}&path={named}");
    let (status, reply) = ask(&admin, proxy, &request, Some("on=1")).await;
    assert!(status == 200 && drains().await, "{reply}");

    // The notice of the end of a job goes to an address that a user names.
    let receiver = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let notice =
        format!("job.end.notification.url=http://{}/?$jobId", receiver.local_addr().unwrap());
    cluster.write("input", "one\n");
    let job = ["--input", "input", "--output", "noticed", "--mapper", "cat", "--reduces", "0"];
    let settings = ["-D", "corona.tls.directory=alice", "-D", &notice];
    let mut job = cluster.job(&[&job[..], &settings].concat());
    let job = tokio::task::spawn_blocking(move || job.output().unwrap());
    let (mut stream, _) = receiver.accept().await.unwrap();
    let mut request = [0; 5];
    stream.read_exact(&mut request).await.unwrap();
    assert_eq!(&request, b"GET /", "no certificate, no TLS");
    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await.unwrap();
    drop(stream);
    let done = job.await.unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
}

/// Reads until it contains all of these.
fn until_read(mut read: impl FnMut() -> String, expected: &[&str]) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = read();
        match expected.iter().find(|expected| !text.contains(**expected)) {
            None => return text,
            Some(missing) => assert!(Instant::now() < deadline, "no {missing} in {text}"),
        }
        std::thread::sleep(PAUSE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn privileged_actions_are_noted_with_who_from_where_and_what() {
    let cluster = closed_cluster(&[]);
    let root = cluster.root.path();
    let ports = ports(&cluster);
    let manager = format!("127.0.0.1:{}", ports["thrift"]);
    member(root, &["admin"], &manager, "admin");
    member(root, &["submit", "--user", "alice"], &manager, "alice");
    member(root, &["read"], &manager, "reader");
    let admin = Identity::open(&root.join("admin")).unwrap();
    let who = admin.identified().to_string();

    // At the cluster manager: a call, and a page that refuses.
    call(&admin, ports["thrift"], ClusterManagerCall::RefreshNodes).await.unwrap();
    let drain = "POST /api/v1/nodes/none/drain";
    let (status, _) = ask(&admin, ports["pages"], drain, Some("on=1")).await;
    assert_ne!(status, 200);
    // At the job tracker: of a user, and of an administrator.
    cluster.write("input", "one\n");
    let job = ["--input", "input", "--output", "killed", "--mapper", "sleep 600"];
    let mut running = cluster.job(&[&job[..], &["-D", "corona.tls.directory=alice"]].concat());
    let mut running = running.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let job = until_running(&cluster);
    tool(&cluster, &["jobs", "kill", &job], "admin").unwrap();
    assert!(!running.wait().unwrap().success());
    // At the proxy job tracker: it has no such page to relay.
    let relayed = "POST /proxy?host=127.0.0.1&port=1&path=x";
    let (status, _) = ask(&admin, ports["proxy_pages"], relayed, Some("on=1")).await;
    assert_ne!(status, 200);
    // Access, over the network and on the machine of the authority.
    let create = ["create", "read", "--authority", "ca", "--address", &manager];
    assert!(access(root, &create, "").0);
    let (_, listed) = access(root, &["list", "--json", "--directory", "admin"], "");
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let read = listed.iter().rfind(|entry| entry["role"] == "read").unwrap();
    let read = read["id"].as_str().unwrap();
    assert!(access(root, &["revoke", read, "--directory", "admin"], "").0);

    let revoked = format!("revoke access {read}");
    let created = format!("create access {read} for read");
    let submitter = "submit alice (access ";
    for (pages, log, expected) in [
        (
            "pages",
            "cluster-manager",
            &[
                "ClusterManagerService refreshNodes",
                drain,
                &revoked,
                &created,
                "this machine",
                &who,
            ][..],
        ),
        (
            "job_pages",
            "job-tracker",
            &["JobSubmissionProtocol submitJob", "JobSubmissionProtocol killJob", submitter, &who],
        ),
        ("proxy_pages", "proxy-job-tracker", &["POST /proxy", &who]),
    ] {
        let at = format!("127.0.0.1:{}", ports[pages]);
        let audit = ["audit", "--at", &at, "--directory", "admin"];
        let text = until_read(|| access(root, &audit, "").1, expected);
        assert!(text.contains(" 127.0.0.1:"), "from where: {text}");
        let log = format!("cluster/logs/{log}.log");
        let log = until_read(|| fs::read_to_string(cluster.path(&log)).unwrap(), expected);
        assert!(log.contains("Privileged action"), "{log}");
        let (done, json) = access(root, &[&audit[..], &["--json"]].concat(), "");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(
            done && json.as_array().unwrap().iter().all(|action| {
                action["time_ms"].as_i64().is_some() && action["outcome"].is_string()
            })
        );
        // A member without that right cannot read them.
        let refused = access(root, &["audit", "--at", &at, "--directory", "alice"], "");
        assert!(
            !refused.0 && refused.1.contains("the role submit may not do this"),
            "{}",
            refused.1
        );
        if pages == "proxy_pages" {
            // It has no events.
            continue;
        }
        let events = ["events", "--event", "privileged_action", "--last", "100"];
        let events = [&events[..], &["--http-address", &at]].concat();
        until_read(|| tool(&cluster, &events, "admin").unwrap(), expected);
        assert_eq!(tool(&cluster, &events, "alice").unwrap(), "");
    }
}

#[test]
fn a_closed_cluster_runs_jobs_of_members_only() {
    let cluster = closed_cluster(&[]);
    let root = cluster.root.path();
    let ports = ports(&cluster);
    let manager = format!("127.0.0.1:{}", ports["thrift"]);
    member(root, &["submit", "--user", "alice"], &manager, "alice");
    member(root, &["submit", "--user", "bob"], &manager, "bob");
    member(root, &["read"], &manager, "reader");
    member(root, &["admin"], &manager, "admin");

    cluster.write("input", "one two\ntwo\n");
    let run = |output: &str, directory: &str| {
        let job = ["--input", "input", "--output", output, "--mapper", "cat", "--reducer", "cat"];
        let own = format!("corona.tls.directory={directory}");
        cluster.job(&[&job[..], &["-D", &own]].concat()).output().unwrap()
    };
    let done = run("done", "alice");
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(cluster.lines("done").len(), 2);
    let refused = run("refused", "reader");
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("the role read may not do this"), "{}", stderr(&refused));
    let jobs = tool(&cluster, &["jobs", "list", "--all", "--json"], "reader").unwrap();
    assert!(jobs.contains("alice"), "the user is the certificate's: {jobs}");

    // A user changes no job of another one, also if it claims to be that.
    let waiting = "while [ ! -e go ]; do sleep 0.05; done; cat";
    let waiting = format!("cd {} && {waiting}", root.display());
    let own = ["-D", "corona.tls.directory=alice"];
    let job = ["--input", "input", "--output", "waited", "--mapper", &waiting];
    let mut running = cluster.job(&[&job[..], &own].concat());
    let running = running.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let id = until_running(&cluster);
    let mut kill = corona();
    kill.args(["jobs", "kill", &id, "--conf-dir", "cluster/conf"]);
    kill.args(["-D", "corona.tls.directory=bob", "-D", "hadoop.job.ugi=alice,users"]);
    let refused = kill.current_dir(root).output().unwrap();
    let told = stderr(&refused);
    assert!(!refused.status.success() && told.contains("user bob may not change"), "{told}");
    fs::write(root.join("go"), "").unwrap();
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));

    // Administrators alone change the cluster.
    let refused = tool(&cluster, &["admin", "refresh-nodes"], "alice").unwrap_err();
    assert!(refused.contains("the role submit may not do this"), "{refused}");
    tool(&cluster, &["admin", "refresh-nodes"], "admin").unwrap();

    // Nobody else gets anything but one word.
    let http = b"GET / HTTP/1.0\r\n\r\n".as_slice();
    for (name, port) in &ports {
        for bytes in
            [http, b"hrpc\x03\0\0\0\x01\0", b"\0\0\0\x04\x80\x01\0\x01", b"\x80\x01\0\x01\0"]
        {
            let reply = plainly(*port, bytes);
            let is_nothing = reply.is_empty() || reply.contains("access to this cluster is needed");
            assert!(is_nothing || reply.starts_with("HTTP/1.1 400 "), "{name}: {reply}");
        }
    }
    let pages = format!("127.0.0.1:{}", ports["pages"]);
    let (head, body) = fetch(&pages, "/healthz").unwrap();
    assert_eq!((status(&head), body.as_str()), ("200", "ok\n"), "{head}");
}

#[test]
fn a_mini_cluster_is_closed_on_demand() {
    let root = tempfile::tempdir().unwrap();
    let cluster = MiniCluster::start_with(corona(), root, &["--closed"]);
    assert!(cluster.ready.contains(" ready: pages https://"), "{}", cluster.ready);
    cluster.write("input", "one two\ntwo\n");
    cluster.run(&["--input", "input", "--output", "done", "--mapper", "cat", "--reducer", "cat"]);
    assert_eq!(cluster.lines("done").len(), 2);
    let pages = format!("127.0.0.1:{}", ports(&cluster)["pages"]);
    assert_eq!(status(&fetch(&pages, "/").unwrap().0), "401");
    let link = cluster.tool(&["open"]);
    assert!(link.starts_with(&format!("https://{pages}/access?code=")), "{link}");
    // The configuration files are enough for an administrator.
    let of_files = ["--conf-dir", "cluster/conf"];
    let root = cluster.root.path();
    let (done, listed) = access(root, &[&["list"][..], &of_files].concat(), "");
    assert!(done && listed.contains(" head "), "{listed}");
    let create = ["create", "submit", "--user", "ann", "--uses", "1"];
    let (done, string) = access(root, &[&create[..], &of_files].concat(), "");
    assert!(done && string.starts_with("corona1:submit:127.0.0.1:"), "{string}");
    until_read(
        || access(root, &[&["audit"][..], &of_files].concat(), "").1,
        &["this machine ", " for submit as ann: done"],
    );
    // Its ports are not those of a head. The string is not used up.
    let mut login = corona();
    login.args(["login", string.trim()]).env("XDG_CONFIG_HOME", root.join("config"));
    let refused = stderr(&login.output().unwrap());
    assert!(refused.contains("'corona access enrol - --directory DIR'"), "{refused}");
    assert_eq!(fs::read_dir(root.join("config/corona")).unwrap().count(), 0, "nothing is left");
    let (done, text) = access(root, &["enrol", "-", "--directory", "ann"], &string);
    assert!(done && text.starts_with("submit ann"), "{text}");
    // Whole jobs of a load run within TLS as well, on its own task trackers.
    let nodes = cluster.json(&["nodes", "list"]).unwrap();
    for node in nodes.as_array().or(nodes["nodes"].as_array()).unwrap() {
        cluster.tool(&["nodes", "drain", node["name"].as_str().unwrap(), "--wait"]);
    }
    let at = |name: &str| format!("127.0.0.1:{}", ports(&cluster)[name]);
    let mut load = corona();
    load.args(["load", "jobs", "--address", &at("thrift"), "--job-tracker", &at("job_tracker")]);
    load.args(["--nodes", "2", "--maps", "4", "--tls-directory"]);
    let loaded = load.arg(cluster.path("cluster/identity")).output().unwrap();
    let report = String::from_utf8_lossy(&loaded.stdout);
    assert!(loaded.status.success() && report.starts_with("1 of 1 jobs succeeded"), "{report}");
    // The secrets of the cluster are its user's, and in its directory only.
    for name in ["access/ca.key", "access/access.json", "identity/key.pem"] {
        use std::os::unix::fs::PermissionsExt;
        let file = fs::metadata(cluster.path("cluster").join(name)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
    }
}
