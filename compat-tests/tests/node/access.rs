//! The built program as a closed cluster: members run jobs, and everybody else gets nothing.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use compat_tests::serving::fetch;

use super::mini_cluster::{MiniCluster, corona, stderr};

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
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = stream.write_all(bytes);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

fn ports(cluster: &MiniCluster) -> std::collections::BTreeMap<String, u16> {
    serde_json::from_slice(&fs::read(cluster.path("cluster/ports.json")).unwrap()).unwrap()
}

#[test]
fn a_closed_cluster_runs_jobs_of_members_only() {
    let root = tempfile::tempdir().unwrap();
    let address = "127.0.0.1:1";
    let init = ["init", "--authority", "ca", "--directory", "own", "--address", address];
    let (done, text) = access(root.path(), &init, "");
    assert!(done && text.contains("CA"), "{text}");
    let at = |name: &str| root.path().join(name).display().to_string();
    let settings = [
        "corona.tls=require".to_owned(),
        format!("corona.tls.directory={}", at("own")),
        format!("corona.tls.authority.directory={}", at("ca")),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let cluster = MiniCluster::start_by(corona(), root, &settings);
    let root = cluster.root.path();
    let ports = ports(&cluster);
    let manager = format!("127.0.0.1:{}", ports["thrift"]);
    member(root, &["submit", "--user", "alice"], &manager, "alice");
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
    assert!(head.contains(" 200 ") && body == "ok\n", "{head}{body}");

    // Access that is taken back ends at once.
    let list = ["list", "--json", "--authority", "ca"];
    let (_, listed) = access(root, &list, "");
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let alice = listed.as_array().unwrap().iter().find(|entry| entry["user"] == "alice").unwrap();
    let (done, text) =
        access(root, &["revoke", alice["id"].as_str().unwrap(), "--directory", "admin"], "");
    assert!(done, "{text}");
    let mut late = tool(&cluster, &["sessions", "list"], "alice");
    while late.is_ok() {
        std::thread::sleep(Duration::from_millis(100));
        late = tool(&cluster, &["sessions", "list"], "alice");
    }
    tool(&cluster, &["sessions", "list"], "reader").unwrap();
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
    assert!(fetch(&pages, "/").unwrap().0.contains(" 401 "));
    let link = cluster.tool(&["open"]);
    assert!(link.starts_with(&format!("https://{pages}/access?code=")), "{link}");
    // The secrets of the cluster are its user's, and in its directory only.
    for name in ["access/ca.key", "access/access.json", "identity/key.pem"] {
        use std::os::unix::fs::PermissionsExt;
        let file = fs::metadata(cluster.path("cluster").join(name)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
    }
}
