//! The environment of a replay: the cluster manager under test, the servers that this manager
//! calls, and the time.
//!
//! [`LiveWorld`](super::live::Live) reaches them over sockets and reads the machine's clock. The world of the
//! tests is a scripted manager in virtual time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::NoRestart;
use super::stalls::Stalls;
use crate::capture::ConnectionId;
use corona_wire::calls::SessionDriverCall;
use corona_wire::value::Message;

/// A message or event on a connection to the cluster manager under test.
#[derive(Debug)]
pub(super) enum Arrival {
    Message(Box<Message>),
    /// Bytes that are no message; nothing is read after them.
    Nonsense(String),
    /// The end of the connection.
    Closed,
}

/// A call that the cluster manager under test made.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Callback {
    /// To the session driver at this live port.
    Session(u16, SessionDriverCall),
    /// To the proxy job tracker: the flag of safe mode.
    SafeMode(bool),
}

/// The surroundings of a play. Times are counted from a moment before the play begins.
pub(super) trait ReplayTarget {
    /// The present. It never goes back.
    fn now(&self) -> Duration;

    /// The present in milliseconds since the epoch, as grants carry it.
    fn epoch_ms(&self) -> i64;

    async fn wait_until(&mut self, due: Duration);

    /// Connects to the manager. An older connection with this id is dropped.
    async fn connect(&mut self, connection: ConnectionId) -> io::Result<()>;

    async fn send(&mut self, connection: ConnectionId, bytes: &[u8]) -> io::Result<()>;

    /// Ends the client's side of a connection: with a reset if it is `broken`.
    async fn hang_up(&mut self, connection: ConnectionId, broken: bool);

    /// Drops a connection.
    fn close(&mut self, connection: ConnectionId);

    /// The next arrival on a connection, or none until `deadline`.
    async fn arrival(&mut self, connection: ConnectionId, deadline: Duration) -> Option<Arrival>;

    /// An arrival that is queued already.
    fn present_arrival(&mut self, connection: ConnectionId) -> Option<Arrival>;

    /// The next call of the manager and when it came, or none until `deadline`.
    async fn callback(&mut self, deadline: Duration) -> Option<(Duration, Callback)>;

    /// A call of the manager that is queued already, and when it came.
    fn present_callback(&mut self) -> Option<(Duration, Callback)>;

    /// Lets the proxy job tracker listen, or not.
    async fn set_proxy(&mut self, listens: bool) -> io::Result<()>;

    /// Lets the session driver with this recorded address listen, and returns its live address.
    async fn open_driver(&mut self, recorded: &(String, i32)) -> io::Result<SocketAddr>;

    /// Restarts the manager. No connection outlives that.
    async fn restart(&mut self) -> Result<(), NoRestart>;

    /// How long the replayer itself did not run so far.
    fn stalls(&self) -> Stalls;
}
