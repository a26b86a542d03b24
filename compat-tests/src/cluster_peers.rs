//! The peers of a cluster manager, on plain sockets: a client that makes calls, a server that remembers its calls, and a
//! node that heartbeats. Each panics on an answer that no sound cluster manager gives.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use corona::wire::calls::{ClusterManager, SessionDriver};
use corona::wire::schema::{Kind, StructId, schema};
use corona::wire::value::{Message, MessageKind, StreamReader, Value};
use corona::wire::{Framing, Service};
use serde_json::{Value as Json, json};

pub use crate::PATIENCE;

/// No further fields of a node, a session or a request.
pub const DEFAULT: &Json = &Json::Null;

/// A connection to the cluster manager.
pub struct Connection {
    stream: TcpStream,
    reader: StreamReader,
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    /// When there is no listener.
    pub fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("no connection to {address}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = StreamReader::new(ClusterManager::schema(), Framing::Framed, 1 << 24);
        Connection { stream, reader }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        // Whether it is still open shows when its answer is read.
        let _ = self.stream.write_all(bytes);
    }

    /// Announces that nothing more will be sent.
    pub fn end(&mut self) {
        // Whether it is still open shows when its answer is read.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// The next answer; none when the other side ends the connection.
    ///
    /// # Panics
    /// When it is not well formed, or does not come.
    pub fn receive(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.reader.next_message().expect("an answer is well formed") {
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.reader.push(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("no answer in {PATIENCE:?}")
                }
                Err(_) => return None,
            }
        }
    }
}

/// A client of a cluster manager, on one connection.
pub struct Caller {
    connection: Connection,
    seqid: i32,
}

impl Caller {
    /// Connects.
    pub fn open(address: SocketAddr) -> Caller {
        Caller { connection: Connection::open(address), seqid: 0 }
    }

    /// Makes a call; none when the connection is closed instead of an answer.
    pub fn try_call(&mut self, method: &str, args: &Json) -> Option<Message> {
        self.seqid += 1;
        self.connection.send(&call(method, args, self.seqid));
        self.connection.receive()
    }

    /// The result of a call, or its declared exception as `{ name: fields }`.
    pub fn call(&mut self, method: &str, args: &Json) -> Json {
        let answer = self.try_call(method, args).unwrap_or_else(|| panic!("no answer to {method}"));
        assert_eq!((answer.kind, answer.seqid), (MessageKind::Reply, self.seqid), "{method}");
        let Ok(Value::Struct(fields)) = answer.body else { panic!("{method}: {answer:?}") };
        fields.into_iter().next().map_or(Json::Null, |(name, value)| match name {
            "success" => serde_json::to_value(value).unwrap(),
            other => json!({ other: value }),
        })
    }

    /// Makes a call that has no result.
    pub fn notify(&mut self, method: &str, args: &Json) {
        assert_eq!(self.call(method, args), Json::Null, "{method}");
    }

    /// Sends the heartbeat of a node with these further fields, and returns the response.
    pub fn heartbeat(&mut self, name: &str, host: &str, cpus: i16, more: &Json) -> Json {
        let args = json!({ "node": with(report(name, host, cpus), more) });
        let response = self.call("nodeHeartbeat", &args);
        assert!(response["restartFlag"].is_boolean(), "{response}");
        response
    }

    /// Starts a session with these further fields, whose driver listens at this port, and returns its handle.
    pub fn session(&mut self, driver: u16, more: &Json) -> String {
        let handle = self.call("getNextSessionId", &json!({})).as_str().unwrap().to_owned();
        let info = json!({ "address": { "host": "127.0.0.1", "port": driver }, "name": "job",
                           "userId": "user" });
        let args = json!({ "handle": handle, "info": with(info, more) });
        let started = self.call("sessionStart", &args);
        assert_eq!(started["handle"], json!(handle), "{started}");
        handle
    }

    /// Requests slots for maps on one CPU, unless further fields differ.
    pub fn request(&mut self, handle: &str, ids: impl IntoIterator<Item = i32>, more: &Json) {
        let specs = json!({ "numCpus": 1, "networkMBps": 10, "memoryMB": 1024, "diskGB": 10 });
        let request = |id| {
            with(json!({ "id": id, "hosts": [], "specs": specs.clone(), "type": "MAP" }), more)
        };
        let requests: Vec<Json> = ids.into_iter().map(request).collect();
        self.notify("requestResource", &json!({ "handle": handle, "requestList": requests }));
    }

    /// Releases slots.
    pub fn release(&mut self, handle: &str, ids: impl IntoIterator<Item = impl Into<i64>>) {
        let ids: Vec<i64> = ids.into_iter().map(Into::into).collect();
        self.notify("releaseResource", &json!({ "handle": handle, "idList": ids }));
    }

    /// All sessions with the slots that they hold, by handle.
    pub fn sessions(&mut self) -> Vec<Json> {
        let Json::Array(mut sessions) = self.call("getSessions", &json!({})) else {
            panic!("no list of sessions")
        };
        sessions.sort_by(|a, b| a["handle"].as_str().cmp(&b["handle"].as_str()));
        sessions
    }

    /// Waits until a session holds so many slots for maps.
    pub fn holds(&mut self, handle: &str, wanted: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sessions = self.sessions();
            let session = sessions.iter().find(|session| session["handle"] == handle);
            if session.is_some_and(|session| session["runningResources"]["MAP"] == wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{wanted} slots of {handle}: {sessions:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends a session.
    pub fn end(&mut self, handle: &str, status: &str) {
        self.notify("sessionEnd", &json!({ "handle": handle, "status": status }));
    }
}

/// An object with further fields, which win.
fn with(mut object: Json, more: &Json) -> Json {
    for (name, value) in more.as_object().into_iter().flatten() {
        object[name] = value.clone();
    }
    object
}

/// The bytes of a call, in a frame, with these arguments. Missing arguments are left out.
///
/// # Panics
/// When there is no such method, or the arguments are not of their types.
pub fn call(method: &str, args: &Json, seqid: i32) -> Vec<u8> {
    let service = ClusterManager::schema();
    let id = service.method(method).unwrap_or_else(|| panic!("no method {method}")).args;
    let body = Ok(value(&Kind::Struct(id), args));
    let message = Message { kind: MessageKind::Call, name: method.to_owned(), seqid, body };
    let mut bytes = vec![];
    message.write(service, Framing::Framed, &mut bytes).expect("the arguments are of their types");
    bytes
}

/// A value of the contract from its JSON form.
fn value(kind: &Kind, json: &Json) -> Value {
    let wrong = || panic!("{json} is not {kind:?}");
    let number = || json.as_i64().unwrap_or_else(wrong);
    match kind {
        Kind::Bool => Value::Bool(json.as_bool().unwrap_or_else(|| panic!("{json}"))),
        Kind::I16 => Value::I16(number() as i16),
        Kind::I32 => Value::I32(number() as i32),
        Kind::I64 => Value::I64(number()),
        Kind::String => Value::String(json.as_str().unwrap_or_else(|| panic!("{json}")).into()),
        Kind::Enum(id) => {
            let values = &schema().enumeration(*id).values;
            let named = values.iter().find(|(name, _)| json.as_str() == Some(name));
            named.map_or_else(
                || Value::Enum(number() as i32, None),
                |(name, number)| Value::Enum(*number, Some(name)),
            )
        }
        Kind::Struct(id) => structure(*id, json),
        Kind::List(element) => {
            let elements = json.as_array().unwrap_or_else(|| panic!("{json}"));
            Value::List(elements.iter().map(|json| value(element, json)).collect())
        }
        Kind::Map(key, of) => {
            let pairs = json.as_object().unwrap_or_else(|| panic!("{json}"));
            let pair = |(name, json): (&String, &Json)| (value(key, &json!(name)), value(of, json));
            Value::Map(pairs.iter().map(pair).collect())
        }
    }
}

fn structure(id: StructId, json: &Json) -> Value {
    let object = json.as_object().unwrap_or_else(|| panic!("{json}"));
    let fields = &schema().structure(id).fields;
    for name in object.keys() {
        assert!(fields.iter().any(|field| field.name == *name), "no field {name} for {json}");
    }
    let there = fields.iter().filter_map(|field| Some((field, object.get(&field.name)?)));
    Value::Struct(there.map(|(field, json)| (&*field.name, value(&field.kind, json))).collect())
}

/// A call that a server got: its name and its arguments.
pub type Notice = (String, Json);

/// The calls that a server received, in order.
#[derive(Clone, Default)]
pub struct ReceivedNotices(Arc<Heard>);

#[derive(Default)]
struct Heard {
    notices: Mutex<Vec<Notice>>,
    changed: Condvar,
}

impl ReceivedNotices {
    /// Serves a service that only receives notifications: each call is answered at once and
    /// remembered by its name, with its arguments.
    pub fn serve<S: Service>(listener: TcpListener) -> ReceivedNotices {
        let told = ReceivedNotices::default();
        let heard = told.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let told = told.clone();
                thread::spawn(move || told.listen::<S>(stream));
            }
        });
        heard
    }

    fn listen<S: Service>(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = StreamReader::new(S::schema(), S::FRAMING, 1 << 24);
        let mut bytes = [0; 4096];
        loop {
            let count = stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
            reader.push(&bytes[..count]);
            while let Some(message) = reader.next_message().ok()? {
                let arguments = serde_json::to_value(message.body.as_ref().ok()?).ok()?;
                self.0.notices.lock().ok()?.push((message.name.clone(), arguments));
                self.0.changed.notify_all();
                let kind = MessageKind::Reply;
                let reply = Message { kind, body: Ok(Value::Struct(vec![])), ..message };
                let mut answer = vec![];
                reply.write(S::schema(), S::FRAMING, &mut answer).ok()?;
                stream.write_all(&answer).ok()?;
            }
        }
    }

    /// The result of `look` in all received calls, once it finds something.
    ///
    /// # Panics
    /// When it finds nothing in time.
    pub fn until<T>(&self, what: &str, look: impl Fn(&[Notice]) -> Option<T>) -> T {
        let mut told = self.0.notices.lock().unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(&told) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come about in {PATIENCE:?}: {told:?}");
            told = self.0.changed.wait_timeout(told, left).unwrap().0;
        }
    }
}

/// A driver of any number of sessions, which accepts all notifications.
pub struct Driver {
    /// The notifications.
    pub told: ReceivedNotices,
    /// Where it listens.
    pub port: u16,
}

impl Driver {
    /// Serves on a free port.
    pub fn start() -> Driver {
        Driver::on(TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    /// Serves on this port.
    pub fn on(listener: TcpListener) -> Driver {
        let port = listener.local_addr().expect("the address of a port").port();
        Driver { told: ReceivedNotices::serve::<SessionDriver>(listener), port }
    }

    /// The ids of a session's grants, sorted, once there are so many.
    pub fn granted(&self, handle: &str, wanted: usize) -> Vec<i64> {
        self.told.until(&format!("{wanted} grants to {handle}"), |told| {
            let grants = told.iter().filter(|(name, args)| {
                name == "grantResource" && args["handle"].as_str() == Some(handle)
            });
            let grants = grants.filter_map(|(_, args)| args["granted"].as_array()).flatten();
            let mut ids: Vec<i64> = grants.filter_map(|grant| grant["id"].as_i64()).collect();
            ids.sort_unstable();
            (ids.len() == wanted).then_some(ids)
        })
    }
}

/// A node that heartbeats until this is dropped.
pub struct Node(Arc<AtomicBool>);

impl Node {
    /// Returns when the node has joined. It ends with the connection as well.
    ///
    /// # Panics
    /// When it may not join.
    pub fn start(address: SocketAddr, name: &str, host: &str, cpus: i16) -> Node {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let bytes = call("nodeHeartbeat", &json!({ "node": report(name, host, cpus) }), 1);
        let mut connection = Connection::open(address);
        connection.send(&bytes);
        let answer = connection.receive().map(|answer| (answer.kind, answer.body));
        let Some((MessageKind::Reply, Ok(Value::Struct(fields)))) = answer else {
            panic!("{name}: {answer:?}")
        };
        assert!(fields.iter().any(|(field, _)| *field == "success"), "{name}: {fields:?}");
        thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                // The pace of a node, not a wait for something.
                thread::sleep(Duration::from_millis(300));
                connection.send(&bytes);
                if connection.receive().is_none() {
                    break;
                }
            }
        });
        Node(stop)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A node's report in a heartbeat.
pub fn report(name: &str, host: &str, cpus: i16) -> Json {
    let specs = json!({ "numCpus": cpus, "networkMBps": 1000, "memoryMB": 65536, "diskGB": 1000 });
    json!({
        "name": name,
        "address": { "host": host, "port": 50000 },
        "total": specs,
        "free": specs,
        "resourceInfos": { "MAP": format!("{host}:1"), "REDUCE": format!("{host}:2"),
                           "JOBTRACKER": format!("{host}:3") },
    })
}
