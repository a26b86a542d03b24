//! A session: the requests of its callers, and the task that keeps it alive.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::Error;
use crate::connection::{Asked, Connection, Ended, Lost, MAX_IN_FLIGHT, Session};
use crate::messages::{Change, Code, Lifetime, Reply, Request};

/// The pause before each attempt to reconnect.
const RECONNECT: Duration = Duration::from_millis(100);

/// How a session is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The servers, as `host:port`.
    pub servers: Vec<String>,
    /// After how long without a message the servers end the session. They may grant another one.
    pub session_timeout: Duration,
    /// How long a server may take to accept a connection or a request.
    pub connect_timeout: Duration,
}

/// A session with ZooKeeper. It reconnects by itself while it lasts; without [`Client::close`] it ends after its
/// timeout when this is dropped.
#[derive(Debug)]
pub struct Client {
    requests: mpsc::Sender<Asked>,
    events: watch::Receiver<u64>,
    pub(crate) is_over: watch::Receiver<bool>,
    timeout: Duration,
    task: JoinHandle<()>,
}

impl Client {
    /// Begins a session with one of the servers, each of which is tried once.
    ///
    /// # Errors
    /// None of them can be reached.
    pub async fn connect(options: Options) -> Result<Client, Error> {
        let mut servers = Servers::new(&options);
        let mut session = Session::wanted(options.session_timeout);
        let mut last = "none is configured".to_owned();
        for _ in 0..options.servers.len() {
            match servers.open(&mut session).await {
                Ok(connection) => {
                    let (requests, asked) = mpsc::channel(MAX_IN_FLIGHT);
                    let (event, events) = watch::channel(0);
                    let (over, is_over) = watch::channel(false);
                    let timeout = session.timeout;
                    let keeper =
                        Keeper { servers: Servers { options, ..servers }, session, asked, event };
                    let task = tokio::spawn(async move {
                        keeper.keep(connection).await;
                        over.send_replace(true);
                    });
                    return Ok(Client { requests, events, is_over, timeout, task });
                }
                Err((server, lost)) => last = format!("{server}: {lost}"),
            }
        }
        Err(Error::Unreachable(last))
    }

    /// The timeout that the servers grant.
    pub fn session_timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the session is over: its ephemeral nodes are gone.
    pub fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Changes whenever a watched node may have changed: a watch has reported, or watches were lost with a
    /// connection.
    pub fn events(&self) -> watch::Receiver<u64> {
        self.events.clone()
    }

    /// Creates a node.
    ///
    /// # Errors
    /// It exists, or there is no reply.
    pub async fn create(&self, path: &str, data: &[u8], lifetime: Lifetime) -> Result<(), Error> {
        let (path, data) = (path.to_owned(), data.to_vec());
        self.ask(Request::Create { path, data, lifetime }).await.map(drop)
    }

    /// Replaces the content of a node that has this version, or any. Returns the new version.
    ///
    /// # Errors
    /// There is no such node or it has another version, or there is no reply.
    pub async fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Result<i32, Error> {
        let (path, data) = (path.to_owned(), data.to_vec());
        match self.ask(Request::Set { path, data, version }).await? {
            Reply::Version(version) => Ok(version),
            _ => Err(Error::Disconnected),
        }
    }

    /// The content and version of a node; `None` if there is none.
    ///
    /// # Errors
    /// There is no reply.
    pub async fn get(&self, path: &str) -> Result<Option<(Vec<u8>, i32)>, Error> {
        self.read(path, false).await
    }

    /// As [`Self::get`]. [`Self::events`] changes when the node changes, is created or is deleted afterwards.
    ///
    /// # Errors
    /// There is no reply.
    pub async fn get_and_watch(&self, path: &str) -> Result<Option<(Vec<u8>, i32)>, Error> {
        loop {
            if let Some(found) = self.read(path, true).await? {
                return Ok(Some(found));
            }
            // A node that does not exist is watched in another way.
            let request = Request::Exists { path: path.to_owned(), watch: true };
            match self.ask(request).await {
                Ok(_) => {}
                Err(error) if error.is(Code::NO_NODE) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes all of these changes or none. Returns the version of each node; 0 of one that was created or checked.
    ///
    /// # Errors
    /// One of them is refused, or there is no reply.
    pub async fn transact(&self, changes: Vec<Change>) -> Result<Vec<i32>, Error> {
        match self.ask(Request::Transaction(changes)).await? {
            Reply::Versions(versions) => Ok(versions),
            _ => Err(Error::Disconnected),
        }
    }

    /// Ends the session, and its ephemeral nodes with it.
    ///
    /// # Errors
    /// There is no reply: the session ends after its timeout.
    pub async fn close(self) -> Result<(), Error> {
        self.ask(Request::Close).await.map(drop)
    }

    async fn read(&self, path: &str, watch: bool) -> Result<Option<(Vec<u8>, i32)>, Error> {
        match self.ask(Request::Get { path: path.to_owned(), watch }).await {
            Ok(Reply::Data(data, version)) => Ok(Some((data, version))),
            Ok(_) => Err(Error::Disconnected),
            Err(error) if error.is(Code::NO_NODE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A request takes at most as long as the session lasts without a message.
    async fn ask(&self, request: Request) -> Result<Reply, Error> {
        let (reply, replied) = oneshot::channel();
        let asking = async {
            let sent = self.requests.send(Asked { request, reply }).await;
            sent.map_err(|_| Error::SessionOver)?;
            replied.await.map_err(|_| Error::SessionOver)?
        };
        timeout(self.timeout, asking).await.map_err(|_| Error::TimedOut(self.timeout))?
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The servers, one after the other.
struct Servers {
    options: Options,
    next: usize,
}

impl Servers {
    fn new(options: &Options) -> Servers {
        // Many programs must not all have the same server.
        let next = usize::try_from(std::process::id()).unwrap_or_default();
        Servers { options: options.clone(), next }
    }

    async fn open(&mut self, session: &mut Session) -> Result<Connection, (String, Lost)> {
        let servers = &self.options.servers;
        let place = self.next.checked_rem(servers.len()).unwrap_or_default();
        let server = servers.get(place).cloned().unwrap_or_default();
        self.next = place + 1;
        let opened = Connection::open(&server, &self.options, session).await;
        opened.map_err(|lost| (server, lost))
    }
}

/// Keeps a session alive.
struct Keeper {
    servers: Servers,
    session: Session,
    asked: mpsc::Receiver<Asked>,
    event: watch::Sender<u64>,
}

impl Keeper {
    /// Returns when the session is over or nobody needs it.
    async fn keep(mut self, mut connection: Connection) {
        loop {
            let Keeper { session, asked, event, .. } = &mut self;
            let ended = connection.converse(session, asked, event).await;
            connection.fail();
            // What happens from now on is not reported.
            self.event.send_modify(|count| *count += 1);
            match ended {
                Ok(Ended::SessionClosed | Ended::Unused) | Err(Lost::Expired) => return,
                Err(lost) => tracing::debug!("Lost the connection to ZooKeeper: {lost}"),
            }
            match self.reconnect().await {
                Some(again) => connection = again,
                None => return,
            }
        }
    }

    /// A connection that continues the session; `None` when it is over.
    async fn reconnect(&mut self) -> Option<Connection> {
        let lost = Instant::now();
        while !self.session.is_over() && !self.asked.is_closed() {
            sleep(RECONNECT).await;
            match self.servers.open(&mut self.session).await {
                Ok(connection) => {
                    tracing::info!("Reconnected to ZooKeeper after {:?}", lost.elapsed());
                    return Some(connection);
                }
                Err((server, Lost::Expired)) => {
                    tracing::warn!("ZooKeeper server {server} has ended the session");
                    return None;
                }
                Err((server, lost)) => tracing::debug!("ZooKeeper server {server}: {lost}"),
            }
        }
        None
    }
}
