//! Whole proxy job trackers over directories of histories: the recorded ones, on disk and on HDFS.

mod clean_up;
mod finished;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use corona_config::Source;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::ProxyJobTracker;

/// More than anything takes here.
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy job tracker. It ends when this is dropped.
struct Running {
    http: SocketAddr,
    _stop: watch::Sender<bool>,
}

impl Running {
    /// With its files below `root`.
    async fn start(root: &Path, settings: &[(&str, &str)]) -> Running {
        let path = |name: &str| root.join(name).display().to_string();
        let own = [
            ("corona.proxy.job.tracker.thriftaddr", "localhost:0".to_owned()),
            ("corona.proxy.job.tracker.rpcaddr", "127.0.0.1:0".to_owned()),
            ("mapred.job.tracker.corona.proxyaddr", "127.0.0.1:0".to_owned()),
            ("corona.sessions.log.dir", path("sessions")),
            ("corona.system.dir", path("system")),
            ("corona.pjt.data.dir", path("data")),
            ("corona.pjt.index.interval.ms", "100".to_owned()),
            ("corona.pjt.clean.up", "off".to_owned()),
            ("hadoop.tmp.dir", path("tmp")),
            ("cm.server.address", "localhost:1".to_owned()),
        ];
        let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
        let given = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let overrides: Vec<(String, String)> = own.chain(given).collect();
        let source = Source { overrides: &overrides, ..Source::default() };
        let proxy = ProxyJobTracker::bind(source.load_proxy_job_tracker().unwrap()).await.unwrap();
        let http = proxy.addresses().http;
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(proxy.run(stopped));
        Running { http, _stop: stop }
    }

    /// Fetches a page: its status and its body.
    async fn get(&self, path: &str) -> (u16, String) {
        self.get_as(&self.http.to_string(), path).await
    }

    /// The same under another host name.
    async fn get_as(&self, host: &str, path: &str) -> (u16, String) {
        let asked = timeout(PATIENCE, async {
            let mut stream = TcpStream::connect(self.http).await.unwrap();
            let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).await.unwrap();
            String::from_utf8(reply).unwrap()
        });
        let reply = asked.await.unwrap_or_else(|_| panic!("no reply: {path}"));
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    async fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until so many jobs are found.
    async fn until_jobs(&self, query: &str, count: usize) -> serde_json::Value {
        let mut last = serde_json::Value::Null;
        let found = timeout(PATIENCE, async {
            loop {
                last = self.json(&format!("/api/v1/jobs{query}")).await;
                if last["total"] == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let is_found = found.await.is_ok();
        assert!(is_found, "{query}: not {count}: {last}");
        last
    }
}

/// Lays out the recorded histories below `sessions`, as the recorded job trackers did.
fn lay_out(sessions: &Path) {
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/job-clients/history");
    let done = sessions.join("202611221049.0/done");
    std::fs::create_dir_all(&done).unwrap();
    for (from, to) in [
        (fixtures.clone(), done.clone()),
        (fixtures.join("unfinished"), sessions.join("202611221049.0")),
    ] {
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    }
}
