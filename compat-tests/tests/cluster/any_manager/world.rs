//! The means of a case: calls, sessions and notifications, and the steps that it records. Ids of
//! sessions are recorded as S1, S2, ..., so that each run records the same.

use std::net::{SocketAddr, TcpListener};

use corona::wire::Service;
use corona::wire::calls::{ClusterManager, ProxyJobTracker, SessionDriver};
use corona::wire::schema::{Kind, schema};
use corona::wire::value::{Message, MessageKind, Value};
use serde_json::{Value as Json, json};

use super::target::Target;
use compat_tests::cluster_peers::{Connection, Node, ReceivedNotices, call};

/// State that all cases share: the two nodes of the cluster, the sessions' listener and the proxy
/// job tracker.
pub(crate) struct Peers {
    pub(crate) address: SocketAddr,
    pub(crate) driver: ReceivedNotices,
    pub(crate) driver_port: u16,
    pub(crate) proxy: ReceivedNotices,
    _nodes: [Node; 2],
}

impl Peers {
    pub(crate) fn start(target: &Target) -> Peers {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let driver_port = listener.local_addr().unwrap().port();
        let address = target.address;
        let proxy = target.proxy.try_clone().expect("one more handle");
        Peers {
            address,
            driver: ReceivedNotices::serve::<SessionDriver>(listener),
            driver_port,
            proxy: ReceivedNotices::serve::<ProxyJobTracker>(proxy),
            _nodes: [
                Node::start(address, "n4", "10.1.1.1", 4),
                Node::start(address, "n2", "10.1.1.2", 2),
            ],
        }
    }
}

/// A case's state, and its recorded steps.
pub(crate) struct CaseState<'a> {
    pub(crate) peers: &'a Peers,
    connection: Option<Connection>,
    handles: Vec<String>,
    seqid: i32,
    steps: Vec<(String, String)>,
}

impl CaseState<'_> {
    pub(crate) fn new(peers: &Peers) -> CaseState<'_> {
        CaseState { peers, connection: None, handles: vec![], seqid: 0, steps: vec![] }
    }

    pub(crate) fn into_steps(self) -> Vec<(String, String)> {
        self.steps
    }

    /// Records a step and its outcome.
    pub(crate) fn note(&mut self, step: &str, outcome: impl ToString) {
        let mut outcome = outcome.to_string();
        for (place, handle) in self.handles.iter().enumerate().rev() {
            outcome = outcome.replace(handle, &format!("S{}", place + 1));
        }
        self.steps.push((step.to_owned(), outcome));
    }

    /// Makes a call and notes its answer.
    pub(crate) fn step(&mut self, step: &str, method: &str, args: Json) {
        let outcome = self.call(method, args);
        self.note(step, outcome);
    }

    /// Makes a call, on a new connection if the last one is closed, and returns the answer as text.
    pub(crate) fn call(&mut self, method: &str, args: Json) -> String {
        self.seqid += 1;
        let bytes = call(method, &args, self.seqid);
        match self.exchange(&bytes) {
            Some(message) => {
                assert_eq!((message.seqid, &*message.name), (self.seqid, method));
                self.outcome(&message)
            }
            None => "closed".to_owned(),
        }
    }

    /// Sends bytes and takes one answer; none when the connection is closed instead.
    pub(crate) fn exchange(&mut self, bytes: &[u8]) -> Option<Message> {
        let address = self.peers.address;
        let connection = self.connection.get_or_insert_with(|| Connection::open(address));
        connection.send(bytes);
        let answer = connection.receive();
        if answer.is_none() {
            self.connection = None;
        }
        answer
    }

    /// Ends the connection; the next call opens another one.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// An answer in words: `ok` for a void method, the value as JSON, the name of an exception
    /// with its text, or the number of a fault, with its text where the original sends one.
    pub(crate) fn outcome(&self, message: &Message) -> String {
        let body = message.body.as_ref().expect("an answer is complete");
        let json = serde_json::to_value(body).expect("values have a JSON form");
        if message.kind == MessageKind::Exception {
            let text = json["message"].as_str().unwrap_or_default();
            return match json["type"].as_i64() {
                Some(kind @ (1 | 7)) => format!("fault {kind}: {text}"),
                kind => format!("fault {}", kind.unwrap_or_default()),
            };
        }
        let Value::Struct(fields) = body else { return format!("no answer: {json}") };
        let Some((name, _)) = fields.first() else { return "ok".to_owned() };
        if *name == "success" {
            return self.plain(json["success"].clone());
        }
        let method = ClusterManager::schema().method(&message.name).expect("it was called");
        let mut results = schema().structure(method.result).fields.iter();
        let Some(Kind::Struct(id)) = results.find(|field| field.name == *name).map(|f| &f.kind)
        else {
            return format!("an unknown result: {json}");
        };
        let exception = &schema().structure(*id).name;
        let mut texts = json[name].as_object().into_iter().flat_map(|fields| fields.values());
        match texts.next().and_then(Json::as_str) {
            Some(text) => format!("{exception}: {text}"),
            None => exception.clone(),
        }
    }

    /// A value without the parts that differ from run to run.
    fn plain(&self, mut json: Json) -> String {
        if let Some(place) = json.pointer_mut("/clusterManagerInfo/jobHistoryLocation") {
            *place = json!("DIR");
        }
        if let Some(port) = json.pointer_mut("/address/port")
            && *port == self.peers.driver_port
        {
            *port = json!("PORT");
        }
        json.as_str().map_or_else(|| json.to_string(), str::to_owned)
    }

    /// A session's description of itself.
    pub(crate) fn info(&self, name: &str, group: &str, pool: &str) -> Json {
        json!({
            "address": { "host": "127.0.0.1", "port": self.peers.driver_port },
            "name": name,
            "userId": "alice",
            "poolInfoStrings": { "poolGroupName": group, "poolName": pool },
            "priority": "NORMAL",
            "noPreempt": false,
        })
    }

    /// A new id, which is noted as S1, S2, ... from now on.
    pub(crate) fn new_id(&mut self) -> String {
        let handle = self.call("getNextSessionId", json!({}));
        let parts = handle.split_once('.').map(|(start, number)| (start.len(), number.parse()));
        assert!(matches!(parts, Some((12, Ok(0..=u32::MAX)))), "an id: {handle}");
        self.handles.push(handle.clone());
        handle
    }

    /// Starts a session in a pool of the group `g`.
    pub(crate) fn session(&mut self, name: &str, pool: &str) -> String {
        let handle = self.new_id();
        let info = self.info(name, "g", pool);
        let answer = self.call("sessionStart", json!({ "handle": handle, "info": info }));
        assert!(answer.contains(&handle), "{name} does not start: {answer}");
        handle
    }

    /// Asks for `count` map slots with the ids from `first` on.
    pub(crate) fn ask(&mut self, handle: &str, first: i32, count: i32) {
        let requests: Vec<_> = (first..first + count).map(|id| request(id, "MAP")).collect();
        self.request(handle, json!(requests));
    }

    /// Asks for slots; that must go well.
    pub(crate) fn request(&mut self, handle: &str, requests: Json) {
        let args = json!({ "handle": handle, "requestList": requests });
        assert_eq!(self.call("requestResource", args), "ok");
    }

    /// Waits for so many grants to a session since its start, and returns all, by id.
    pub(crate) fn grants(&self, handle: &str, at_least: usize) -> Vec<Json> {
        self.slots("grantResource", "granted", handle, at_least)
    }

    /// The same for slots that are taken back.
    pub(crate) fn revocations(&self, handle: &str, at_least: usize) -> Vec<Json> {
        self.slots("revokeResource", "revoked", handle, at_least)
    }

    fn slots(&self, method: &str, list: &str, handle: &str, at_least: usize) -> Vec<Json> {
        let mut slots = self.peers.driver.until(method, |told| {
            let own = |(name, args): &&(String, Json)| name == method && args["handle"] == handle;
            let slots = told.iter().filter(own).filter_map(|(_, args)| args[list].as_array());
            let slots: Vec<Json> = slots.flatten().cloned().collect();
            (slots.len() >= at_least).then_some(slots)
        });
        slots.sort_by_key(|slot| slot["id"].as_i64());
        slots
    }

    /// How many slots a session holds: map, reduce and job tracker.
    pub(crate) fn held(&mut self, handle: &str) -> String {
        let sessions: Json = serde_json::from_str(&self.call("getSessions", json!({}))).unwrap();
        let mut sessions = sessions.as_array().into_iter().flatten();
        let session = sessions.find(|session| session["handle"] == handle);
        let held = &session.unwrap_or_else(|| panic!("{handle} runs"))["runningResources"];
        format!("{} {} {}", held["MAP"], held["REDUCE"], held["JOBTRACKER"])
    }

    /// The flags of safe mode that the proxy job tracker received, in order.
    pub(crate) fn flags(&self) -> Vec<Json> {
        self.peers.proxy.until("", |told| {
            let flags = told.iter().filter(|(name, _)| name == "setClusterManagerSafeModeFlag");
            Some(flags.map(|(_, args)| args["flagValue"].clone()).collect())
        })
    }

    /// The flag that comes after so many, once it is there.
    pub(crate) fn flag_after(&self, count: usize) -> Json {
        self.peers.proxy.until("the flag of safe mode", |told| {
            let mut flags = told.iter().filter(|(name, _)| name == "setClusterManagerSafeModeFlag");
            flags.nth(count).map(|(_, args)| args["flagValue"].clone())
        })
    }

    /// Ends whatever session of the case is left, so that the next one finds all slots free.
    pub(crate) fn end_sessions(&mut self) {
        for handle in self.handles.clone() {
            // Whether it was still there does not matter.
            self.call("sessionEnd", json!({ "handle": handle, "status": "SUCCESSFUL" }));
        }
    }
}

/// A request for a slot of a type, anywhere.
pub(crate) fn request(id: i32, kind: &str) -> Json {
    json!({ "id": id, "type": kind, "specs": { "numCpus": 1 } })
}
