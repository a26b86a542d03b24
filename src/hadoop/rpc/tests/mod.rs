//! The server and the client against bytes of the original, against each other, and against
//! nonsense.

mod client;
mod golden;
mod hostile;
mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::*;
use crate::io::formats::Writable;
use crate::io::{Reader, Writer};
use crate::object::Object;
use crate::protocols::{self, corona_task_tracker, inter_tracker};
use crate::writables::{
    HeartbeatResponse, InetAddress, JobId, SessionInfo, Task, TaskCompletionEvent,
    TaskTrackerAction, TaskTrackerStatus,
};
use corona_net::testing::{soon, until};
use corona_net::{Counters, Ending};

/// A tracker of both kinds, for tests.
struct Peer {
    /// A record of the calls that were carried out.
    done: Mutex<Vec<String>>,
    /// Calls of `getSystemDir` wait for a permit each.
    gate: Semaphore,
}

impl Peer {
    fn new() -> Arc<Peer> {
        Arc::new(Peer { done: Mutex::default(), gate: Semaphore::new(0) })
    }

    fn note(&self, what: impl Into<String>) {
        self.done.lock().unwrap().push(what.into());
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

impl corona_task_tracker::CoronaTaskTracker for Peer {
    async fn submit_actions(
        &self,
        caller: &Caller,
        actions: Option<Vec<TaskTrackerAction>>,
    ) -> Result<(), Fault> {
        let user = caller.user.as_ref().map_or("nobody", |user| &user.name);
        self.note(format!("{:?} actions of {user}", actions.map(|actions| actions.len())));
        Ok(())
    }

    async fn start_corona_job_tracker(
        &self,
        _caller: &Caller,
        _task: Task,
        _session: SessionInfo,
    ) -> Result<(), Fault> {
        Err(Fault::io("no room"))
    }
}

impl inter_tracker::InterTracker for Peer {
    async fn heartbeat(
        &self,
        _caller: &Caller,
        status: TaskTrackerStatus,
        _restarted: bool,
        _initial_contact: bool,
        _accept_new_tasks: bool,
        response_id: i16,
    ) -> Result<HeartbeatResponse, Fault> {
        self.note(status.name);
        let response_id = response_id.wrapping_add(1);
        Ok(HeartbeatResponse { response_id, interval_ms: 3000, ..Default::default() })
    }

    /// A long answer.
    async fn get_build_version(&self, _caller: &Caller) -> Result<String, Fault> {
        Ok("x".repeat(60_000))
    }

    async fn get_task_completion_events(
        &self,
        _caller: &Caller,
        job: JobId,
        from: i32,
        max: i32,
    ) -> Result<Vec<TaskCompletionEvent>, Fault> {
        assert_ne!(job.number, 13, "a panic for a test");
        Ok((from..from.saturating_add(max)).map(event).collect())
    }

    /// A slow answer.
    async fn get_system_dir(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        self.note("waiting");
        self.gate.acquire().await.expect("never closed").forget();
        self.note("passed");
        Ok(Some("/system".to_owned()))
    }

    async fn get_filesystem_name(&self, _caller: &Caller) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    async fn report_task_tracker_error(
        &self,
        _caller: &Caller,
        tracker: Option<String>,
        error_class: Option<String>,
        message: Option<String>,
    ) -> Result<(), Fault> {
        self.note(format!("{tracker:?} {error_class:?} {message:?}"));
        Ok(())
    }
}

fn event(event_id: i32) -> TaskCompletionEvent {
    TaskCompletionEvent {
        attempt: "attempt_201401011200.7_0001_m_000003_0".parse().unwrap(),
        id_within_job: 3,
        is_map: true,
        status: crate::writables::EventStatus::Succeeded,
        tracker_http: Some("http://h:50060".to_owned()),
        run_time_ms: 12345,
        event_id,
    }
}

/// A server that runs.
struct Running {
    peer: Arc<Peer>,
    address: InetAddress,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

async fn start(limits: Limits) -> Running {
    let peer = Peer::new();
    let services = Services::new()
        .offer(corona_task_tracker::Served::new(peer.clone()))
        .offer(inter_tracker::Served::new(peer.clone()))
        .know(protocols::ALL);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::new(listener, services, limits);
    let port = server.local_addr().unwrap().port();
    let counters = server.counters();
    let (stop, stopped) = watch::channel(false);
    let server = tokio::spawn(server.run(stopped));
    Running { peer, address: local(port), counters, stop, server }
}

fn local(port: u16) -> InetAddress {
    InetAddress { host: "127.0.0.1".to_owned(), port }
}

fn alice() -> User {
    User { name: "alice".to_owned(), groups: vec!["users".to_owned()] }
}

fn bytes(object: &impl Writable) -> Vec<u8> {
    let mut writer = Writer::new(1 << 20);
    object.encode(&mut writer);
    writer.finish().unwrap()
}

/// The bytes that a client sends before its first call.
fn preamble(protocol: &str) -> Vec<u8> {
    let protocol = protocol.to_owned();
    ConnectionHeader { protocol, user: Some(alice()) }.preamble(1000).unwrap()
}

/// A call with its length.
fn frame(id: i32, method: &str, parameters: Vec<Object>) -> Vec<u8> {
    let call = bytes(&Call { id, method: method.to_owned(), parameters });
    let mut frame = i32::try_from(call.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(call);
    frame
}

/// A peer that speaks in bytes.
struct Raw {
    stream: TcpStream,
    inbox: Vec<u8>,
}

impl Raw {
    async fn connect(running: &Running) -> Raw {
        let address = (running.address.host.as_str(), running.address.port);
        Raw::over(TcpStream::connect(address).await.unwrap())
    }

    fn over(stream: TcpStream) -> Raw {
        Raw { stream, inbox: vec![] }
    }

    /// A connection to the server's job tracker side.
    async fn open(running: &Running) -> Raw {
        let mut raw = Raw::connect(running).await;
        raw.send(&preamble(inter_tracker::PROTOCOL.name)).await;
        raw
    }

    async fn send(&mut self, bytes: &[u8]) {
        soon(self.stream.write_all(bytes)).await.unwrap();
    }

    /// The next thing that can be decoded.
    async fn receive<T: Writable>(&mut self) -> T {
        loop {
            let mut reader = Reader::partial(&self.inbox, 1 << 24);
            if let Ok(value) = T::decode(&mut reader) {
                let read = reader.position();
                self.inbox.drain(..read);
                return value;
            }
            assert_ne!(soon(self.stream.read_buf(&mut self.inbox)).await.unwrap(), 0, "closed");
        }
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.inbox.len() < length {
            assert_ne!(soon(self.stream.read_buf(&mut self.inbox)).await.unwrap(), 0, "closed");
        }
        self.inbox.drain(..length).collect()
    }

    /// The next call, without signs of life.
    async fn call(&mut self) -> Call {
        let length = self.take(4).await;
        let length = i32::from_be_bytes(length.try_into().unwrap());
        let call = self.take(usize::try_from(length).unwrap()).await;
        Call::decode(&mut Reader::new(&call)).unwrap()
    }

    async fn reply(&mut self, id: i32, outcome: Outcome) {
        let reply = bytes(&Reply { id, outcome });
        self.send(&reply).await;
    }

    /// Waits for the end, and returns the bytes before it.
    async fn rest(mut self) -> Vec<u8> {
        // A reset is an end too: the server closed with bytes of ours unread.
        let _ = soon(self.stream.read_to_end(&mut self.inbox)).await;
        self.inbox
    }
}
