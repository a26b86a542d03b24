//! The built program as a proxy job tracker, with the built cluster manager, sessions, and job trackers
//! that a test stands for.

mod commands;
mod recorded;
mod running;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use compat_tests::corona_program;
use compat_tests::daemons::{first_line, start_daemon, tell_end};
use compat_tests::task_tracker::PATIENCE;
use corona::conformance::launch::LaunchedManager;
use corona::wire::Service;
use corona::wire::client::{Client, ClientOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The program as a proxy job tracker. It is ended, at once, when this is dropped.
struct Proxy {
    child: Child,
    thrift: SocketAddr,
    rpc: SocketAddr,
    http: SocketAddr,
    log: PathBuf,
}

impl Proxy {
    /// Starts it with its files below `root` and waits until it is ready.
    fn start(root: &Path, settings: &[(&str, &str)]) -> Proxy {
        let mut command = Command::new(corona_program());
        command.arg("proxy-job-tracker").current_dir(root);
        let path = |name: &str| root.join(name).display().to_string();
        let own = [
            ("corona.proxy.job.tracker.thriftaddr", "localhost:0".to_owned()),
            ("corona.proxy.job.tracker.rpcaddr", "127.0.0.1:0".to_owned()),
            ("mapred.job.tracker.corona.proxyaddr", "127.0.0.1:0".to_owned()),
            ("corona.sessions.log.dir", path("history")),
            ("corona.system.dir", path("system")),
            ("corona.pjt.data.dir", path("pjt")),
            ("corona.pjt.index.interval.ms", "100".to_owned()),
            ("hadoop.tmp.dir", path("tmp")),
            ("cm.server.address", "localhost:1".to_owned()),
        ];
        let own = own.iter().map(|(key, value)| (*key, value.as_str()));
        let log = root.join("proxy.log");
        let mut child = start_daemon(command, own.chain(settings.iter().copied()), &log);
        let ready = first_line(&mut child);
        let port = |name: &str| {
            let mut words = ready.split_whitespace().skip_while(|word| *word != name).skip(1);
            let address = words.next().and_then(|word| word.parse::<SocketAddr>().ok());
            let log = || fs::read_to_string(&log).unwrap_or_default();
            let port = address.unwrap_or_else(|| panic!("not ready: {ready:?}\n{}", log())).port();
            SocketAddr::from(([127, 0, 0, 1], port))
        };
        Proxy { thrift: port("thrift"), rpc: port("rpc"), http: port("http"), child, log }
    }

    /// Fetches a page: its status, its head and its body.
    async fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(&format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.http)).await
    }

    async fn post(&self, path: &str, form: &str, head: &str) -> (u16, String, String) {
        let kind = "Content-Type: application/x-www-form-urlencoded";
        self.ask(&format!(
            "POST {path} HTTP/1.0\r\nHost: {}\r\n{kind}\r\nContent-Length: {}\r\n{head}\r\n{form}",
            self.http,
            form.len()
        ))
        .await
    }

    async fn ask(&self, request: &str) -> (u16, String, String) {
        let asked = timeout(PATIENCE, async {
            let mut stream = TcpStream::connect(self.http).await.expect("the web server");
            stream.write_all(request.as_bytes()).await.expect("a request");
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).await.expect("a reply");
            reply
        });
        let reply = asked.await.unwrap_or_else(|_| panic!("no reply to {request}"));
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{head}")), head.to_owned(), body.to_owned())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            tell_end("the proxy's log", &log, usize::MAX);
        }
    }
}

/// A proxy and a cluster manager that know each other.
fn pair(root: &Path, settings: &[(&str, &str)]) -> (Proxy, LaunchedManager) {
    let thrift = compat_tests::serving::free_address().to_string();
    let history = root.join("history").display().to_string();
    let manager = compat_tests::start_with(&[
        ("corona.proxy.job.tracker.thriftaddr", &thrift),
        ("corona.sessions.log.dir", &history),
    ]);
    let address = manager.thrift().to_string();
    let own = [("corona.proxy.job.tracker.thriftaddr", &*thrift), ("cm.server.address", &address)];
    let proxy = Proxy::start(root, &[&own[..], settings].concat());
    (proxy, manager)
}

async fn client<S: Service>(address: SocketAddr) -> Client<S> {
    let options = ClientOptions { call_timeout: PATIENCE, ..ClientOptions::default() };
    Client::connect(address, options).await.expect("a connection")
}
