//! Peers of the tools: services that record the calls that they get, and pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use corona::filesystem::testing::MiniCluster;
use corona::wire::Service;
use corona::wire::server::{self, Answer, Limits, ListenOn, Server, listen};
use tokio::sync::watch;

/// A small HDFS on threads of its own.
pub(super) struct Hdfs {
    pub(super) cluster: MiniCluster,
    _runtime: tokio::runtime::Runtime,
}

impl Hdfs {
    pub(super) fn start(data_nodes: usize) -> Hdfs {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let cluster = runtime.block_on(MiniCluster::start(data_nodes));
        Hdfs { cluster, _runtime: runtime }
    }
}

/// A service on a port of its own that records its calls.
pub(super) struct Peer<S: Service> {
    pub(super) address: SocketAddr,
    calls: Arc<Mutex<Vec<S::Call>>>,
    stop: Option<watch::Sender<bool>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Service> Peer<S>
where
    S: 'static,
    S::Call: Clone,
{
    /// A peer that answers so.
    pub(super) fn new(
        answer: impl Fn(&S::Call) -> Answer<S::Reply> + Clone + Send + Sync + 'static,
    ) -> Peer<S> {
        let calls: Arc<Mutex<Vec<S::Call>>> = Arc::default();
        let (stop, stopped) = watch::channel(false);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let record = calls.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let loopback = ListenOn::Address(([127, 0, 0, 1], 0).into());
                let handler = move |_: server::Peer, call: S::Call| {
                    record.lock().unwrap().push(call.clone());
                    let answer = answer(&call);
                    async move { answer }
                };
                let server = Server::new(listen(loopback).unwrap(), handler, Limits::default());
                tell.send(server.local_addr().unwrap()).unwrap();
                server.run::<S>(stopped).await;
            });
        });
        let address = told.recv().unwrap();
        Peer { address, calls, stop: Some(stop), thread: Some(thread) }
    }

    /// The calls since the last look.
    pub(super) fn calls(&self) -> Vec<S::Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl<S: Service> Drop for Peer<S> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the peer has failed the test already.
            let _ = thread.join();
        }
    }
}

/// An address of this machine where nothing listens as long as the process runs.
pub(super) fn nowhere() -> SocketAddr {
    let nobody = corona_net::testing::nobody();
    let address = nobody.address();
    std::mem::forget(nobody);
    address
}

/// Pages by path, for a POST with the form behind it; everything else is not
/// found, in HTML as the original has it. Serves as long as the process runs.
pub(super) fn pages(pages: &[(&'static str, u16, String)]) -> SocketAddr {
    let pages = pages.to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A test of pages ignores a client that disconnects.
            let _ = serve_page(stream.unwrap(), &pages);
        }
    });
    address
}

fn serve_page(mut stream: TcpStream, pages: &[(&str, u16, String)]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).map(|_| line.trim_end().to_owned())
    };
    let request = line()?;
    let mut length = 0;
    loop {
        let header = line()?.to_ascii_lowercase();
        match header.strip_prefix("content-length: ") {
            Some(bytes) => length = bytes.parse().unwrap_or(0),
            None if header.is_empty() => break,
            None => {}
        }
    }
    let mut form = vec![0; length];
    reader.read_exact(&mut form)?;
    let mut path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    if request.starts_with("POST ") {
        path = format!("{path} {}", String::from_utf8_lossy(&form));
    }
    let not_found = (404, "<html>HTTP ERROR 404</html>");
    let page = pages.iter().find(|(page, ..)| **page == *path);
    let (status, body) = page.map_or(not_found, |(_, status, body)| (*status, body));
    write!(
        stream,
        "HTTP/1.1 {status} Text\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
