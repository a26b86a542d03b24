//! One connection to a server: its opening, and the requests, replies, pings and events on it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::messages::{
    self, Code, Credentials, EVENT, MAX_FRAME_BYTES, Malformed, PING, Reply, Request,
};
use crate::{Error, Options};

/// Requests that wait for replies at a time. Further ones wait with their callers.
pub const MAX_IN_FLIGHT: usize = 16;

/// A request with its caller.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<Result<Reply, Error>>,
}

/// Why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is closed")]
    Closed,
    #[error("nothing was received for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("it takes no request")]
    Stuck,
    #[error("a message of {0} bytes is longer than allowed")]
    TooLong(u32),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the session has expired")]
    Expired,
}

/// How a connection has ended in order.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The session was closed.
    SessionClosed,
    /// Nobody asks any more.
    Unused,
}

/// What outlives a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) credentials: Credentials,
    /// The timeout that the server grants.
    pub(crate) timeout: Duration,
    /// The last change that a server has shown.
    last_seen: i64,
    /// When a server was last heard.
    pub(crate) heard: Instant,
}

/// A connection that belongs to a session.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    /// How long the server may take to accept a request.
    patience: Duration,
    last_number: i32,
    in_flight: VecDeque<InFlight>,
    /// Watches that may still report, and pings that are not answered: what else comes is not asked for.
    watches: usize,
    pings: usize,
    last_sent: Instant,
}

#[derive(Debug)]
struct InFlight {
    number: i32,
    request: Request,
    reply: oneshot::Sender<Result<Reply, Error>>,
}

impl Session {
    /// A session that does not exist yet.
    pub(crate) fn wanted(timeout: Duration) -> Session {
        Session {
            credentials: Credentials::default(),
            timeout,
            last_seen: 0,
            heard: Instant::now(),
        }
    }

    /// Whether the servers have ended it, as far as the clock tells.
    pub(crate) fn is_over(&self) -> bool {
        self.heard.elapsed() >= self.timeout
    }
}

impl Connection {
    /// Connects to a server, and begins or continues the session.
    pub(crate) async fn open(
        server: &str,
        options: &Options,
        session: &mut Session,
    ) -> Result<Connection, Lost> {
        let patience = options.connect_timeout;
        let opening = async {
            let stream = TcpStream::connect(server).await?;
            stream.set_nodelay(true)?;
            let mut connection = Connection {
                stream,
                received: BytesMut::new(),
                patience,
                last_number: 0,
                in_flight: VecDeque::new(),
                watches: 0,
                pings: 0,
                last_sent: Instant::now(),
            };
            let wanted_ms = i32::try_from(options.session_timeout.as_millis()).unwrap_or(i32::MAX);
            let opening = messages::opening(&session.credentials, session.last_seen, wanted_ms);
            connection.send(&opening).await?;
            let reply = connection.receive().await?;
            let (credentials, timeout_ms) = messages::opened(&reply)?.ok_or(Lost::Expired)?;
            session.credentials = credentials;
            session.timeout = Duration::from_millis(timeout_ms.unsigned_abs().into());
            session.heard = Instant::now();
            Ok(connection)
        };
        timeout(patience, opening).await.map_err(|_| Lost::Silent(patience))?
    }

    /// Exchanges messages until the connection is lost or the session is closed. Each event bumps `events`.
    pub(crate) async fn converse(
        &mut self,
        session: &mut Session,
        requests: &mut mpsc::Receiver<Asked>,
        events: &watch::Sender<u64>,
    ) -> Result<Ended, Lost> {
        loop {
            // A leader's lease is two thirds of the session's timeout: half of that leaves time for another server.
            let ping_due = self.last_sent + session.timeout / 6;
            let silence = session.timeout / 3;
            tokio::select! {
                received = self.receive() => {
                    session.heard = Instant::now();
                    if self.take(&received?, session, events)? {
                        return Ok(Ended::SessionClosed);
                    }
                }
                asked = requests.recv(), if self.in_flight.len() < MAX_IN_FLIGHT => {
                    let Some(asked) = asked else { return Ok(Ended::Unused) };
                    self.ask(asked).await?;
                }
                () = sleep_until(ping_due) => {
                    self.pings += 1;
                    self.send(&messages::ping()).await?;
                }
                () = sleep_until(session.heard + silence) => return Err(Lost::Silent(silence)),
            }
        }
    }

    /// Requests without a reply. Whether they were carried out is not known.
    pub(crate) fn fail(self) {
        for InFlight { reply, .. } in self.in_flight {
            // Its caller may have given it up.
            let _ = reply.send(Err(Error::Disconnected));
        }
    }

    async fn ask(&mut self, Asked { request, reply }: Asked) -> Result<(), Lost> {
        if reply.is_closed() {
            return Ok(());
        }
        let number = self.last_number.checked_add(1).unwrap_or(1);
        let frame = request.frame(number);
        if frame.len() > MAX_FRAME_BYTES {
            let _ = reply.send(Err(Error::TooLong(frame.len())));
            return Ok(());
        }
        self.last_number = number;
        self.watches += usize::from(request.watches());
        self.in_flight.push_back(InFlight { number, request, reply });
        self.send(&frame).await
    }

    /// Takes a message. Returns whether the session is closed by it.
    fn take(
        &mut self,
        message: &[u8],
        session: &mut Session,
        events: &watch::Sender<u64>,
    ) -> Result<bool, Lost> {
        let (number, change, code, content) = messages::header(message)?;
        if change > 0 {
            session.last_seen = session.last_seen.max(change);
        }
        match number {
            EVENT => {
                self.watches = self.watches.checked_sub(1).ok_or(Malformed::Unasked)?;
                messages::check_event(content)?;
                events.send_modify(|count| *count += 1);
            }
            PING => self.pings = self.pings.checked_sub(1).ok_or(Malformed::Unasked)?,
            number => {
                if self.in_flight.front().is_none_or(|first| first.number != number) {
                    return Err(Malformed::Unasked.into());
                }
                let first = self.in_flight.pop_front();
                let InFlight { request, reply, .. } = first.ok_or(Malformed::Unasked)?;
                let answer = match request.reply(code, content) {
                    Ok(Reply::Refused(Code::SESSION_EXPIRED)) => Err(Lost::Expired),
                    Ok(Reply::Refused(code)) => Ok(Err(Error::Refused(code))),
                    Ok(Reply::ChangeRefused(place, code)) => {
                        Ok(Err(Error::ChangeRefused { place, code }))
                    }
                    Ok(answer) => Ok(Ok(answer)),
                    Err(malformed) => Err(malformed.into()),
                };
                let (answer, lost) = match answer {
                    Ok(answer) => (answer, Ok(request == Request::Close)),
                    Err(lost) => (Err(Error::Disconnected), Err(lost)),
                };
                // Its caller may have given it up.
                let _ = reply.send(answer);
                return lost;
            }
        }
        Ok(false)
    }

    async fn send(&mut self, frame: &[u8]) -> Result<(), Lost> {
        self.last_sent = Instant::now();
        let sent = timeout(self.patience, self.stream.write_all(frame)).await;
        Ok(sent.map_err(|_| Lost::Stuck)??)
    }

    /// The next message. Nothing is lost if this is given up.
    async fn receive(&mut self) -> Result<BytesMut, Lost> {
        loop {
            if let Some(length) = self.received.first_chunk::<4>() {
                let length = u32::from_be_bytes(*length);
                let too_long = Lost::TooLong(length);
                let length = usize::try_from(length).ok().filter(|it| *it <= MAX_FRAME_BYTES);
                let length = length.ok_or(too_long)?;
                if self.received.len() >= 4 + length {
                    self.received.advance(4);
                    return Ok(self.received.split_to(length));
                }
            }
            self.received.reserve(4096);
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(Lost::Closed);
            }
        }
    }
}
